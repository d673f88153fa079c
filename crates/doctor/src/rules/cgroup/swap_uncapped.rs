use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, Cgroups, Limit};
use lotsfree_units::{Bytes, Percent};

use crate::control_groups as groups;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rule, Severity, Skip, Workload};

rule! {
    /// A database's cgroup may be swapped out without bound.
    ///
    /// # Sees
    /// On version 2, the group of a database process with `memory.swap.max` at `max`, and no ancestor with
    /// less, on a host with swap. `memory.swap.current` shows whether it has happened.
    ///
    /// # Hurts
    /// Page cache of a backup outlives pages of the database that nobody touched for an hour: they go to swap
    /// one by one, and the first query in the morning reads them back at the speed of random reads.
    ///
    /// # Remedies
    /// `memory.swap.max` of 0 for the database's group, together with `memory.low`. All other programs keep
    /// their swap.
    ///
    /// # False alarms
    /// Without swap, or with a cap on the service or its slice, nothing is to be done. With swap only on zram
    /// a page comes back in microseconds; then, and as long as nothing is swapped out, this is a remark.
    ///
    /// # References
    /// `Documentation/admin-guide/cgroup-v2.rst`, memory.swap.max;
    /// mm/memcontrol.c:__mem_cgroup_try_charge_swap (6.12); systemd.resource-control(5), MemorySwapMax=.
    pub SwapUncapped = "swap-uncapped" in Cgroup
}

/// From this part of the group's memory on it is more than what a start leaves behind.
const NOTICEABLE: f64 = 0.01;

impl Rule for SwapUncapped {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let cgroups = cx.cgroups()?;
        if cgroups.version == CgroupVersion::V1 {
            return Err(Skip::because("cgroup version 1 cannot cap swap by itself"));
        }
        if cx.mem(m::SwapTotal)? == Bytes::ZERO {
            return Err(Skip::because("there is no swap"));
        }
        let processes = cx.processes()?;
        let mut seen: Vec<(Workload, &str)> = Vec::new();
        let mut without_group = false;
        for process in processes {
            let Some(workload) = Workload::of_name(&process.stat.name).filter(|w| w.is_database()) else {
                continue;
            };
            match process.detail.as_ref().and_then(|detail| detail.cgroup.as_deref()) {
                Some(path) if !seen.iter().any(|(_, known)| *known == path) => seen.push((workload, path)),
                Some(_) => {}
                None => without_group = true,
            }
        }
        match (seen.is_empty(), without_group) {
            (true, true) => return Err(Skip::missing("/proc/PID/cgroup")),
            (true, false) => return Err(Skip::because("no database runs here")),
            _ => {}
        }
        let judged: Vec<_> = seen.iter().filter_map(|(w, path)| Some((*w, cgroups.at(path)?))).collect();
        // The root's group cannot be capped and has no file.
        if judged.iter().all(|(_, group)| group.swap_max.is_none()) {
            return Err(Skip::missing(groups::file(cgroups.version, "/*", "swap.max")));
        }
        let uncapped = judged.into_iter().filter(|(_, group)| {
            group.swap_max == Some(Limit::Max)
                && cgroups
                    .ancestors(&group.path)
                    .all(|parent| parent.swap_max.is_none_or(|max| max == Limit::Max))
        });
        Ok(uncapped.map(|(workload, group)| finding(cx, cgroups, workload, group)).collect())
    }
}

fn finding(cx: &Context<'_>, cgroups: &Cgroups, workload: Workload, group: &Cgroup) -> Finding {
    let path = group.path.as_str();
    let swapped = group.swap_current.unwrap_or_default();
    let share = swapped.share_of(group.current.unwrap_or_default() + swapped);
    let zram = cx
        .swaps()
        .is_ok_and(|areas| !areas.is_empty() && areas.iter().all(|area| area.path.contains("/zram")));
    let (read, how) = cx.read_latency();
    let out = share >= NOTICEABLE;
    let (severity, cost) = match out && !zram {
        true => {
            let pages = swapped.units_of(cx.pages(1));
            let seconds = pages as f64 * read;
            let text = format!("to bring them back one by one takes {seconds:.0} s at {how}");
            let cost = match cx.total() {
                Ok(total) => Cost::memory(swapped, total, text),
                Err(_) => Cost::risk(format!("{swapped} are in swap: {text}")),
            };
            (Severity::Warning, cost)
        }
        false => {
            (Severity::Info, Cost::risk("its idle pages may go to swap while page cache stays in memory"))
        }
    };
    let state = match out {
        true => format!("and {swapped} ({}) of it are there", Percent(share)),
        false => "though little of it is there now".to_owned(),
    };
    let file = |name| groups::file(CgroupVersion::V2, path, name);
    let mut finding = Finding::new(
        SwapUncapped::ID,
        severity,
        format!("the group of {} ({path}) may go to swap without bound, {state}", workload.name()),
        cost,
    );
    finding
        .sure(Confidence::Certain)
        .because(
            Evidence::new(file("swap.max"), "memory.swap.max", "max").of(path).against(
                "a bound on the group or an ancestor",
                "systemd.resource-control(5), MemorySwapMax=",
            ),
        )
        .because(Evidence::new(file("swap.current"), "memory.swap.current", swapped).of(path))
        .because(cx.saw_mem(m::SwapTotal));
    if zram {
        finding.note("All swap is zram: a page comes back by decompression, in microseconds.");
    }
    finding.remedy(
        groups::set(
            "Keep this group out of swap",
            cgroups.version,
            path,
            ("MemorySwapMax", "swap.max"),
            Some(Bytes::ZERO),
            None,
        )
        .risk(
            "What cannot be swapped has to stay: if the host runs out of memory, somebody is killed sooner. \
             Pages that are in swap stay there until they are touched.",
        ),
    );
    finding.note_if(groups::lasting(path));
    finding.note(
        "How to choose: 0 where response time counts and memory.low protects the group as well; leave it \
         where the host needs the swap for this very program.",
    );
    finding
}
