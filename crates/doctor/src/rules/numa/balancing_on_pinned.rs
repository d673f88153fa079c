use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_settings::NUMA_BALANCING;
use lotsfree_units::Percent;

use crate::finding::subject;
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
};

rule! {
    /// NUMA balancing samples the memory of a program that places it itself.
    ///
    /// # Sees
    /// `kernel.numa_balancing` with bit 0 set, several nodes, a database, and over two samples more than
    /// 10,000 `numa_hint_faults` a second; the share of them that were local already; `numa_pages_migrated`.
    /// For SAP HANA, Oracle and SQL Server, whose vendors ask for 0, the setting alone gives a finding of
    /// lowest severity.
    ///
    /// # Hurts
    /// The kernel takes access away from up to 256 MiB of each task at a time to see who comes back, and each
    /// page of it costs a fault. What is found remote is copied, and copied back when a thread on the other
    /// node touches it. A database that bound or interleaved its memory gains nothing and pays with latency;
    /// shared buffers are sampled in every process.
    ///
    /// # Remedies
    /// `kernel.numa_balancing = 0`.
    ///
    /// # False alarms
    /// Hosts of many unpinned virtual machines gain from it, and so do programs that do not place their
    /// memory: without a database nothing is said. Mode 2 alone is memory tiering and is left alone.
    ///
    /// # References
    /// kernel/sched/fair.c:task_numa_work, mm/memory.c:do_numa_page (6.12);
    /// `Documentation/admin-guide/sysctl/kernel.rst`; check 2200 of SAP's arp142.
    pub BalancingOnPinned = "balancing-on-pinned" in Numa
}

/// Hinting faults a second from which on they take more than 1 % of a CPU at a microsecond each.
const FAULTS: f64 = 1e4;
/// Seconds of a minor fault (measured on 6.18: 1.61 us with clearing the page, 1.07 us when populated in
/// bulk; a hinting fault clears nothing).
const FAULT_SECONDS: f64 = 1.07e-6;
/// Share of one CPU from which on the cost is noticeable.
const HIGH: f64 = 0.1;
/// Balancing proper; bit 1 is tiering (5.18 and later).
const NORMAL: u64 = 1;

impl Rule for BalancingOnPinned {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        cx.several_nodes()?;
        let mode = cx.sysctl(NUMA_BALANCING)?;
        if mode & NORMAL == 0 {
            return Ok(Vec::new());
        }
        cx.processes()?;
        let advice = advice::numa_balancing(cx);
        if advice.value & NORMAL != 0 {
            return Err(Skip::because("no program runs here that places its memory itself"));
        }
        if cx.runs(Workload::Kvm) {
            return Err(Skip::because("virtual machines run here: unpinned ones gain from NUMA balancing"));
        }
        let asks = [Workload::Hana, Workload::Oracle, Workload::Mssql].iter().any(|w| cx.runs(*w));
        let faults = cx.rate(&[v::numa_hint_faults]).ok();
        let busy = faults.filter(|rate| rate.per_second > FAULTS);
        let (severity, title, cost) = match busy {
            Some(rate) => {
                let stalled = rate.per_second * FAULT_SECONDS;
                (
                    if stalled >= HIGH { Severity::High } else { Severity::Warning },
                    format!(
                        "NUMA balancing causes {:.0} page faults a second beside a database",
                        rate.per_second
                    ),
                    Cost::faults(
                        rate.per_second,
                        FAULT_SECONDS,
                        "hinting faults at 1.07 us each (measured), copies not counted",
                    ),
                )
            }
            None if asks => (
                Severity::Info,
                format!("kernel.numa_balancing is {mode}, and {}", advice.because),
                Cost::risk("faults to sample who uses which page, once the program is busy"),
            ),
            None => {
                cx.rate(&[v::numa_hint_faults])?;
                return Ok(Vec::new());
            }
        };
        let vendor = if asks {
            "vendors of SAP HANA, Oracle and SQL Server"
        } else {
            "databases place their memory themselves"
        };
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding
            .sure(if busy.is_some() { cx.rate_confidence() } else { Confidence::Likely })
            .because(cx.saw_sysctl(NUMA_BALANCING).against(0, vendor));
        if let Some(rate) = faults {
            let seen = cx.saw_rate(&[v::numa_hint_faults], &rate);
            finding.because(seen.against("10,000/s", "1 % of a CPU at a microsecond each"));
            if let Ok(local) = cx.rate(&[v::numa_hint_faults_local]) {
                let share = if rate.total == 0 { 0.0 } else { local.total as f64 / rate.total as f64 };
                let seen = format!("{} were local already: sampled for nothing", Percent(share));
                finding.because(Evidence::new("/proc/vmstat", "numa_hint_faults_local", seen));
            }
            if let Ok(moved) = cx.rate(&[v::numa_pages_migrated]) {
                finding.because(cx.saw_rate(&[v::numa_pages_migrated], &moved)).note(format!(
                    "{}/s were copied to another node on top of it.",
                    cx.pages(moved.per_second as u64)
                ));
            }
        }
        finding.because_all(policies(cx));
        let remedy = Remedy::new("Turn NUMA balancing off")
            .sysctl(cx, NUMA_BALANCING, advice.value)
            .risk("Programs that do not place their memory, and unpinned virtual machines, lose locality.");
        finding.remedy(remedy).note(advice.contested);
        Ok(vec![finding])
    }
}

/// Databases whose memory is bound or interleaved: proof that they place it themselves.
fn policies(cx: &Context<'_>) -> Vec<Evidence> {
    let evidence = |process: &lotsfree_kernel_files::file::process::Process| {
        Workload::of_name(&process.stat.name).filter(|workload| workload.is_database())?;
        let numa = process.detail.as_ref()?.numa.as_ref()?;
        let own = numa.mappings.iter().map(|mapping| &mapping.policy);
        let policy = std::iter::once(&numa.first_policy).chain(own).find(|policy| &***policy != "default")?;
        Some(Evidence::new("/proc/PID/numa_maps", "policy", policy).of(subject(process)))
    };
    cx.processes().unwrap_or_default().iter().filter_map(evidence).take(3).collect()
}
