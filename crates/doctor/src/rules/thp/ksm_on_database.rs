use lotsfree_kernel_files::counters::{ksm, meminfo as m};
use lotsfree_units::Percent;

use super::khugepaged_cpu::cpu_share;
use crate::rule::rule;
use crate::{Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload};

rule! {
    /// Kernel samepage merging is on although a database runs here.
    ///
    /// # Sees
    /// `run` in `/sys/kernel/mm/ksm` is 1 and a database runs; how much was merged (`pages_sharing`), and
    /// over two samples the CPU time of ksmd.
    ///
    /// # Hurts
    /// ksmd compares pages for ever to find equal ones. A database has none to speak of, since each page has
    /// its own number in it. A merged page is copied again at the next write, which is a page fault in the
    /// middle of a transaction, and merging splits huge pages. Across NUMA nodes it makes accesses remote.
    ///
    /// # Remedies
    /// `run` at 2, which also takes merged pages apart, if there is memory for the copies; else 0. Stop `ksm`
    /// and `ksmtuned`.
    ///
    /// # False alarms
    /// Hosts of virtual machines: there it saves memory, and a database in a guest is not seen from here. KSM
    /// only looks at memory that a program offered (`MADV_MERGEABLE`), so as long as nothing is merged little
    /// is lost.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/ksm.rst`; mm/ksm.c:run_store (6.12); check 2400 of SAP's arp142 (0 is
    /// asked for).
    pub KsmOnDatabase = "ksm-on-database" in Thp
}

const RUN: &str = "/sys/kernel/mm/ksm/run";

impl Rule for KsmOnDatabase {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let values = cx.now().ksm.as_ref().ok_or_else(|| Skip::missing(RUN))?;
        let run = values.get(ksm::run).ok_or_else(|| Skip::missing(RUN))?;
        if run != 1 {
            return Ok(Vec::new());
        }
        cx.processes()?;
        let Some(database) = cx.workloads().iter().find(|workload| workload.is_database()) else {
            return Err(Skip::because("no database runs here"));
        };
        if cx.runs(Workload::Kvm) {
            return Err(Skip::because("virtual machines run here, which KSM is for"));
        }
        let merged = cx.pages(values.get(ksm::pages_sharing).unwrap_or(0));
        let cpu = cpu_share(cx, "ksmd").ok();
        let idle = merged.0 == 0 && values.get(ksm::pages_unshared).unwrap_or(0) == 0;
        let cost = match cpu.filter(|(_, share)| *share > 0.0) {
            Some((_, share)) => {
                Cost::stalled(share, "CPU time of ksmd, and a fault for each merged page that is written")
            }
            None => Cost::risk("CPU time of ksmd, and a page fault for each merged page that is written"),
        };
        let mut finding = Finding::new(
            Self::ID,
            if idle { Severity::Info } else { Severity::Warning },
            format!("KSM is merging pages beside {}: {merged} are merged now", database.name()),
            cost,
        );
        finding.because(
            Evidence::new(RUN, "run", run).against(0, "check 2400 of SAP's arp142; the kernel's default"),
        );
        for counter in [ksm::pages_sharing, ksm::pages_unshared, ksm::pages_volatile] {
            if let Some(pages) = values.get(counter) {
                let file = format!("/sys/kernel/mm/ksm/{}", counter.name());
                finding.because(Evidence::new(file, counter.name(), cx.pages(pages)));
            }
        }
        if let Some((pid, share)) = cpu {
            finding.because(
                Evidence::new("/proc/PID/stat", "utime + stime", format!("{} of a CPU", Percent(share)))
                    .of(format!("pid {pid} ksmd")),
            );
        }
        if cx.several_nodes().is_ok() && values.get(ksm::merge_across_nodes) == Some(1) {
            finding.note(
                "merge_across_nodes is 1: a merged page lies on one node and all others reach it remotely.",
            );
        }
        if idle {
            finding.note("No program has offered memory to KSM, so ksmd has nothing to compare yet.");
        }
        // Taking merged pages apart allocates one page for each.
        let (value, risk) = match cx.mem(m::MemAvailable) {
            Ok(available) if merged.times(2) < available => {
                ("2", format!("Taking the merged pages apart needs {merged}, of {available} available."))
            }
            _ => (
                "0",
                format!(
                    "Pages that are merged stay so until they are written; taking them apart (2) would need \
                     {merged}."
                ),
            ),
        };
        add_remedies(&mut finding, value, &risk);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, value: &str, risk: &str) {
    finding.remedy(
        Remedy::new("Turn KSM off")
            .sysfs(RUN, value, Some("1"))
            .run("systemctl disable --now ksm.service ksmtuned.service")
            .undo_with("systemctl enable --now ksm.service ksmtuned.service")
            .risk(risk),
    );
}
