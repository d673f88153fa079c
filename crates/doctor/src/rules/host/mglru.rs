use lotsfree_kernel_files::ProblemKind;
use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_kernel_files::file::cgroup::{CgroupVersion, Limit};
use lotsfree_units::{Bytes, Percent};

use crate::control_groups as groups;
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, REFAULT_ANON, Remedy, Rule, Severity, Skip,
};

rule! {
    /// The multi-generational LRU is set so that it kills, ignores soft limits, or is off while the host
    /// thrashes.
    ///
    /// # Sees
    /// `enabled` and `min_ttl_ms` of `/sys/kernel/mm/lru_gen` (6.1 and later); soft limits of cgroup version
    /// 1; over two samples pages that are swapped in soon after they were swapped out.
    ///
    /// # Hurts
    /// `min_ttl_ms` protects what was used within that time, and calls the OOM killer when that cannot be
    /// kept: a host that would have been slow for a minute loses its database instead. The multi-generational
    /// LRU does not look at version 1's soft limits at all. Where it is built in but off, reclaim uses the
    /// older lists, which evict the wrong pages more often under pressure from page cache.
    ///
    /// # Remedies
    /// `min_ttl_ms` of 0 on servers; version 2's `memory.low` instead of soft limits; the multi-generational
    /// LRU on where the host thrashes.
    ///
    /// # False alarms
    /// On desktops a `min_ttl_ms` of a second is meant so. Off and without refaults nothing is lost. Which
    /// LRU is better depends on the load: try it and compare refaults.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/multigen_lru.rst`; mm/vmscan.c:lru_gen_age_node and balance_pgdat
    /// (6.12); mm/memcontrol-v1.c: memcg1_soft_limit_reclaim.
    pub Mglru = "mglru" in Host
}

/// Bit 0 of `enabled`: the multi-generational LRU as such.
const CORE: u32 = 1;
/// Refaults of swapped pages from here on are steady thrashing (pmie's rule for paging).
const THRASH: f64 = 5.0;
const ENABLED: &str = "/sys/kernel/mm/lru_gen/enabled";
const MIN_TTL: &str = "/sys/kernel/mm/lru_gen/min_ttl_ms";

impl Rule for Mglru {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let Some(lru) = cx.now().lru_gen else {
            let kernel = &cx.now().host.kernel;
            // A saved tree that lacks the file says nothing; on the running machine it was not built in.
            let absent = (cx.now().problems.iter())
                .any(|p| p.kind == ProblemKind::Absent && p.path.starts_with("sys/kernel/mm/lru_gen"));
            return Err(match () {
                () if kernel.is_known() && !kernel.at_least(6, 1) => {
                    Skip::because("a kernel before 6.1 without the multi-generational LRU")
                }
                () if cx.now().host.live && absent => {
                    Skip::because("this kernel was built without the multi-generational LRU")
                }
                () => Skip::missing(ENABLED),
            });
        };
        let on = lru.enabled & CORE != 0;
        let mut found = Vec::new();
        if on && lru.min_ttl_ms > 0 {
            found.push(kills(cx, lru.min_ttl_ms));
        }
        if on {
            found.extend(soft_limits(cx));
        } else {
            found.extend(off(cx, lru.enabled));
        }
        Ok(found)
    }
}

fn kills(cx: &Context<'_>, ttl: u64) -> Finding {
    let database = cx.workloads().iter().find(|w| w.is_database());
    let killed = cx.rate(&[v::oom_kill]).ok().filter(|rate| rate.total > 0);
    let before = cx.vm(v::oom_kill).is_ok_and(|kills| kills > 0);
    let severity = Severity::ladder(
        &[(killed.is_some(), Severity::High), (database.is_some(), Severity::Warning)],
        Severity::Info,
    );
    let whom = database.map_or("the largest process".to_owned(), |w| w.name().to_owned());
    let mut finding = Finding::new(
        Mglru::ID,
        severity,
        format!("the OOM killer runs rather than evict what was used within {ttl} ms (lru_gen/min_ttl_ms)"),
        Cost::risk(format!("under pressure {whom} is killed where the host would have become slow")),
    );
    finding.sure(Confidence::Certain).because(
        Evidence::new(MIN_TTL, "min_ttl_ms", ttl)
            .against("0", "kernel default; Documentation/admin-guide/mm/multigen_lru.rst"),
    );
    finding.because_if(before.then(|| cx.saw_vm(v::oom_kill)));
    finding
        .remedy(
            Remedy::new("Let reclaim evict what it has to")
                .sysfs(MIN_TTL, "0", Some(&ttl.to_string()))
                .risk("Under heavy pressure the host thrashes again until something gives way."),
        )
        .note("How to choose: on a desktop a killed program is better than a frozen screen; a database server wants its memory bounded (cgroup limits on the others) and no kill.");
    finding
}

fn soft_limits(cx: &Context<'_>) -> Option<Finding> {
    let cgroups = cx.now().cgroups.as_ref().filter(|cgroups| cgroups.version == CgroupVersion::V1)?;
    let soft: Vec<(&str, Bytes)> = (cgroups.groups.iter())
        .filter_map(|group| Some((&*group.path, group.soft_limit.and_then(Limit::bytes)?)))
        .collect();
    if soft.is_empty() {
        return None;
    }
    let number = if soft.len() == 1 { "1 group".to_owned() } else { format!("{} groups", soft.len()) };
    let paths = soft.iter().map(|(path, _)| *path).take(3).collect::<Vec<_>>().join(", ");
    let evidence = soft.iter().take(8).map(|(path, limit)| {
        let file = groups::file(CgroupVersion::V1, path, "soft_limit_in_bytes");
        Evidence::new(file, "memory.soft_limit_in_bytes", limit).of(path)
    });
    let mut finding = Finding::new(
        Mglru::ID,
        Severity::Warning,
        format!("soft limits of {number} ({paths}) do nothing: the multi-generational LRU ignores them"),
        Cost::risk("groups above their soft limit are not reclaimed first"),
    );
    finding
        .sure(Confidence::Certain)
        .because(Evidence::new(ENABLED, "enabled, bit 0", 1).against("0, for soft limits to count", "mm/memcontrol-v1.c:memcg1_soft_limit_reclaim"))
        .because_all(evidence)
        .remedy(
            Remedy::new("Use cgroup version 2 with memory.low for what is to stay")
                .keep("kernel command line", "systemd.unified_cgroup_hierarchy=1")
                .risk("Limits and container runtimes have to be ready for version 2.")
                .restart("the host"),
        )
        .note("Turning the multi-generational LRU off would bring soft limits back, at the price of the older lists for the whole host.");
    Some(finding)
}

fn off(cx: &Context<'_>, enabled: u32) -> Option<Finding> {
    let refaults = cx.rate(REFAULT_ANON).ok().filter(|rate| rate.per_second >= THRASH)?;
    let swapped = cx.rate(&[v::pswpin]).ok().filter(|rate| rate.total > 0)?;
    let (read, how) = cx.read_latency();
    let share = refaults.per_second * read;
    let mut finding = Finding::new(
        Mglru::ID,
        Severity::Info,
        format!(
            "the multi-generational LRU is off while {:.0} pages/s come back from swap soon after they went ({} of a task's time)",
            refaults.per_second,
            Percent(share)
        ),
        Cost::faults(swapped.per_second, read, format!("pages read from swap, at {how}")),
    );
    finding
        // That it would do better here is a guess until it is tried.
        .sure(Confidence::Possible)
        .because(Evidence::new(ENABLED, "enabled", format!("{enabled:#06x}")).against("0x0007", "Documentation/admin-guide/mm/multigen_lru.rst"))
        .because(cx.saw_rate(REFAULT_ANON, &refaults).against(format!("below {THRASH}/s"), "pmie's rule for paging"))
        .because(cx.saw_rate(&[v::pswpin], &swapped))
        .remedy(
            Remedy::new("Try the multi-generational LRU and compare the refaults")
                .sysfs(ENABLED, "y", Some(&format!("{enabled:#06x}")))
                .risk("Changes what is evicted on the whole host; watch refaults of file pages as well."),
        )
        .note("This treats a symptom: what grew and pushed the pages out is a matter of the rules on reclaim and swap.");
    Some(finding)
}
