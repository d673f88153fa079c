use lotsfree_kernel_files::file::cgroup::{CgroupVersion, Limit};

use crate::control_groups as groups;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, remedies};

rule! {
    /// The memory controller is cgroup version 1, which cannot protect or throttle memory.
    ///
    /// # Sees
    /// The memory controller mounted as version 1, together with something that it matters to: groups with
    /// limits or soft limits, or a database.
    ///
    /// # Hurts
    /// Version 1 has a hard limit and little else. There is no `memory.low` or `memory.min` to protect a
    /// database, no `memory.high` to slow a backup down, no pressure figure per group, and no writeback
    /// throttling by group: a copy under a hard limit can be killed because its own dirty pages fill the
    /// limit. The soft limit is not protection: it only chooses whom global reclaim asks first, and the
    /// multi-generational LRU ignores it.
    ///
    /// # Remedies
    /// Version 2 (`systemd.unified_cgroup_hierarchy=1` and a reboot). Until then: huge pages or locked memory
    /// for what has to stay, and limits on the others.
    ///
    /// # False alarms
    /// Hosts on version 1 where no group has a limit and no database runs lose nothing and are left alone.
    ///
    /// # References
    /// `Documentation/admin-guide/cgroup-v1/memory.rst`; `Documentation/admin-guide/cgroup-v2.rst`, memory;
    /// mm/memcontrol-v1.c:memcg1_soft_limit_reclaim (6.12); systemd(1), systemd.unified_cgroup_hierarchy.
    pub V1Host = "v1-host" in Cgroup
}

impl Rule for V1Host {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let cgroups = cx.cgroups()?;
        if cgroups.version == CgroupVersion::V2 {
            return Err(Skip::because("the memory controller is cgroup version 2"));
        }
        let bounded = |limit: Option<Limit>| limit.and_then(Limit::bytes);
        let limited: Vec<_> = cgroups.groups.iter().filter_map(|g| Some((g, bounded(g.max)?))).collect();
        let soft: Vec<_> = cgroups.groups.iter().filter_map(|g| Some((g, bounded(g.soft_limit)?))).collect();
        let database = cx.workloads().iter().find(|w| w.is_database());
        if limited.is_empty() && soft.is_empty() && database.is_none() {
            return Err(Skip::because("version 1, but no group has a limit and no database was seen"));
        }
        let mut concerned = Vec::new();
        if let Some(database) = database {
            concerned.push(format!("{} cannot be protected", database.name()));
        }
        if !limited.is_empty() {
            concerned
                .push(format!("{} kill or reclaim at once instead of slowing down", limits(limited.len())));
        }
        if !soft.is_empty() {
            concerned.push(format!("{} not protect anything", soft_limits(soft.len())));
        }
        let mut finding = Finding::new(
            Self::ID,
            Severity::Info,
            format!("memory is controlled by cgroup version 1: {}", concerned.join(", ")),
            Cost::risk(
                "no protection, no throttling and no pressure figures by group, on a host that would use them",
            ),
        );
        finding.sure(Confidence::Certain).because(
            Evidence::new("/sys/fs/cgroup/memory", "memory controller", "version 1")
                .against("version 2", "Documentation/admin-guide/cgroup-v2.rst"),
        );
        for (group, limit) in limited.iter().take(3) {
            let file = groups::file(CgroupVersion::V1, &group.path, "max");
            finding.because(Evidence::new(file, "memory.limit_in_bytes", limit).of(&*group.path));
        }
        for (group, limit) in soft.iter().take(3) {
            let file = groups::file(CgroupVersion::V1, &group.path, "soft_limit_in_bytes");
            finding.because(Evidence::new(file, "memory.soft_limit_in_bytes", limit).of(&*group.path));
        }
        let kernel = &cx.now().host.kernel;
        // Version 2 has had the memory controller since 4.5; RHEL 7 and older have no kernel that does.
        if kernel.is_known() && !kernel.at_least(4, 5) {
            finding.note(format!("Kernel {kernel} has no version 2 memory controller (4.5 or later): only the means below remain."));
        } else {
            finding.remedy(
                Remedy::new("Boot with cgroup version 2")
                    .keep("kernel command line", "systemd.unified_cgroup_hierarchy=1")
                    .risk(
                        "Settings made for version 1 (memory.limit_in_bytes, swappiness by group, \
                         MemoryLimit=) have to be carried over. Old runtimes do not read version 2: Docker \
                         before 20.10, Kubernetes before 1.25, Java before 8u372, 11.0.16 or 15 take the \
                         host's memory for theirs.",
                    )
                    .restart("the host"),
            );
        }
        finding.remedy(remedies::bounded_writer(cx)).note(
            "What else keeps a database's memory in place here: a huge page pool (never swapped or \
             reclaimed) or locked memory (LimitMEMLOCK= and the program's own setting).",
        );
        Ok(vec![finding])
    }
}

fn limits(n: usize) -> String {
    if n == 1 {
        "the limit of 1 group can only".to_owned()
    } else {
        format!("the limits of {n} groups can only")
    }
}

fn soft_limits(n: usize) -> String {
    if n == 1 {
        "the soft limit of 1 group does".to_owned()
    } else {
        format!("the soft limits of {n} groups do")
    }
}
