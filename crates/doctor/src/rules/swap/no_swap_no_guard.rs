use lotsfree_formulas::swap;
use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_kernel_files::file::cgroup::{Cgroup, Limit};
use lotsfree_settings::OVERCOMMIT_MEMORY;
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::swapping::{add_swap, largest, saw};
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload};

rule! {
    /// Anonymous memory fills the host, and neither swap nor any limit stands between it and the OOM killer.
    ///
    /// # Sees
    /// `SwapTotal` 0, `vm.overcommit_memory` other than 2, `AnonPages` and `Shmem` above 70 % of memory
    /// without the huge page pools, and no memory cgroup of weight that is bounded (`memory.max`,
    /// `memory.high`) or protected (`memory.low`, `memory.min`).
    ///
    /// # Hurts
    /// Without swap only file cache can be reclaimed, and there is little of it left: programs' code is
    /// evicted and read again, the host crawls, and in the end the kernel kills whatever is largest, which is
    /// the database.
    ///
    /// # Remedies
    /// A little swap for what nobody touches, or limits on everything but the main program.
    ///
    /// # False alarms
    /// Elasticsearch, Cassandra, Kubernetes nodes and real-time hosts run without swap on purpose: for them
    /// only limits are proposed. Where most anonymous memory is locked, swap would not take it anyway;
    /// nothing is reported.
    ///
    /// # References
    /// `mm/vmscan.c:get_scan_count` and `mm/oom_kill.c` (6.12); Red Hat, "Recommended system swap space";
    /// "Memory Hogs" (Linux Magazine).
    pub NoSwapNoGuard = "no-swap-no-guard" in Swap
}

/// Above it, less than a third of memory is left for file cache and the kernel.
const FULL: f64 = 0.70;
/// From here on the next allocation spree meets the OOM killer.
const VERY_FULL: f64 = 0.85;
/// A bounded group that holds at least this share of memory is a guard; one around a small service is not.
const WEIGHTY: f64 = 0.10;
/// The same for protection: a service's few megabytes do not count.
const PROTECTED: f64 = 0.05;
/// Where most anonymous memory is locked, it stays in memory on purpose.
const LOCKED: f64 = 0.5;

impl Rule for NoSwapNoGuard {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        if cx.mem(m::SwapTotal)? > Bytes::ZERO {
            return Ok(Vec::new());
        }
        let ordinary = cx.total_without_pools()?;
        let (anon, shmem) = (cx.mem(m::AnonPages)?, cx.mem_or_zero(m::Shmem));
        let held = anon + shmem;
        let share = held.share_of(ordinary);
        if share <= FULL || cx.mem_or_zero(m::Mlocked).share_of(held) >= LOCKED {
            return Ok(Vec::new());
        }
        let mode = cx.sysctl(OVERCOMMIT_MEMORY)?;
        let groups = cx.cgroups()?;
        if mode == 2 || groups.groups.iter().any(|group| guards(group, ordinary)) {
            return Ok(Vec::new());
        }
        let on_purpose = without_swap_on_purpose(cx);
        let severity = Severity::ladder(
            &[(on_purpose.is_some(), Severity::Info), (share > VERY_FULL, Severity::High)],
            Severity::Warning,
        );
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!(
                "{held} of anonymous and shared memory ({} of {ordinary}), no swap, and no limit on anybody",
                Percent(share)
            ),
            Cost::risk(
                "whatever grows next evicts programs' code first and then gets the largest process killed",
            ),
        );
        finding
            .sure(if groups.left_out > 0 { Confidence::Likely } else { Confidence::Certain })
            .because(cx.saw_mem(m::SwapTotal))
            .because(cx.saw_mem(m::AnonPages).against(
                format!("with Shmem at most {} of {ordinary:#}", Percent(FULL)),
                "less than a third is left for file cache and the kernel",
            ))
            .because(cx.saw_mem(m::Shmem))
            .because(cx.saw_sysctl(OVERCOMMIT_MEMORY))
            .because(Evidence::new(
                "/sys/fs/cgroup",
                "memory.max, memory.high, memory.low, memory.min",
                "none on a group of weight",
            ));
        let processes = cx.processes().unwrap_or_default();
        finding.because_all(largest(processes, s::RssAnon, 2).into_iter().map(|p| saw(p, s::RssAnon)));
        add_remedies(&mut finding, ordinary, on_purpose);
        let killer = (cx.now().tuners.earlyoom, cx.now().tuners.systemd_oomd);
        if killer.0 || killer.1 {
            finding.note(
                "A userspace OOM killer is enabled here. It kills earlier and in a more orderly way, but it \
                 kills: it is no guard for the largest process.",
            );
        }
        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, ordinary: Bytes, on_purpose: Option<String>) {
    finding.remedy(
        Remedy::new("Bound what may grow, so that it meets its own limit and not the database's memory")
            .run("systemctl set-property --runtime UNIT MemoryHigh=SIZE MemoryMax=SIZE")
            .keep("the unit's drop-in, [Service]", "MemoryHigh=SIZE")
            .keep("the unit's drop-in, [Service]", "MemoryMax=SIZE")
            .undo_with("systemctl set-property --runtime UNIT MemoryHigh=infinity MemoryMax=infinity")
            .risk("A unit at its MemoryMax is killed alone. Sizes below what it needs kill it needlessly."),
    );
    match on_purpose {
        Some(why) => {
            finding.note(format!("Swap is not proposed: {why}."));
        }
        None => {
            let size = swap::rhel(ordinary);
            finding.remedy(add_swap(size)).note(format!(
                "{size} is Red Hat's least for {ordinary} (twice memory up to 2 GiB, as much up to 8 \
                 GiB, 4 GiB beyond): room for what nobody touches, and time to see growth coming. With \
                 vm.swappiness of 1 to 10 it stays nearly empty."
            ));
        }
    }
}

fn guards(group: &Cgroup, ordinary: Bytes) -> bool {
    let bytes = |limit: Option<Limit>| limit.and_then(Limit::bytes);
    let bounded = bytes(group.max).or(bytes(group.high)).is_some()
        && group.current.unwrap_or_default().share_of(ordinary) >= WEIGHTY;
    // A protection of `max` covers all that the group uses.
    let covers = |limit: Option<Limit>| match limit {
        Some(Limit::At(bytes)) => bytes.share_of(ordinary) >= PROTECTED,
        Some(Limit::Max) => true,
        None => false,
    };
    group.path != "/" && (bounded || covers(group.low) || covers(group.min))
}

/// Who here is run without swap by its vendor's advice.
fn without_swap_on_purpose(cx: &Context<'_>) -> Option<String> {
    let processes = cx.processes().ok()?;
    if processes.iter().any(|p| &*p.stat.name == "kubelet") {
        return Some(
            "this is a Kubernetes node, whose kubelet expects none unless configured otherwise".to_owned(),
        );
    }
    let largest = largest(processes, s::RssAnon, 1).first().copied()?;
    if matches!(largest.stat.policy, 1 | 2 | 6) {
        return Some(format!("the largest process, {}, is scheduled in real time", largest.stat.name));
    }
    (Workload::of_name(&largest.stat.name) == Some(Workload::Java)).then(|| {
        "the largest process is Java; a heap in swap stops at every garbage collection, and Elasticsearch \
         and Cassandra ask for no swap at all"
            .to_owned()
    })
}
