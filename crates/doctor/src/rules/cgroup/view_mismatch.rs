use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::cgroup::{CgroupVersion, Limit};
use lotsfree_settings::PANIC;
use lotsfree_units::{Bytes, Percent};

use crate::control_groups::{self as groups, Owner};
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// The figures are the host's, but they were read in a container.
    ///
    /// # Sees
    /// A container runtime around the reader, or a limit on what looks like the root of the cgroup hierarchy:
    /// the real root has none (version 2 has no `memory.max` there, version 1 refuses one). `MemTotal`
    /// against that limit tells whether `/proc/meminfo` shows the host.
    ///
    /// # Hurts
    /// Programs and people that size by `/proc/meminfo` in a container plan with memory that they may not
    /// use, and are killed at the limit while `free` shows plenty. `/proc/sys/vm`, huge pages and transparent
    /// huge pages are not namespaced: a change made in a privileged container changes the host and all its
    /// other containers.
    ///
    /// # Remedies
    /// Size by the container's limit; look for the cause of slowness on the host, and change settings there.
    ///
    /// # False alarms
    /// A root file system that was made from an image keeps the runtime's marker file (`/.dockerenv`) without
    /// being a container: the host's own cgroups are in view then. With lxcfs `/proc/meminfo` is rewritten to
    /// the limit, while `/proc/vmstat` and `/proc/zoneinfo` remain the host's.
    ///
    /// # References
    /// mm/memcontrol.c:memory_files, CFTYPE_NOT_ON_ROOT (6.12); mm/memcontrol-v1.c:mem_cgroup_write;
    /// cgroup_namespaces(7); lxcfs(1).
    pub ViewMismatch = "view-mismatch" in Cgroup
}

/// What the rules may propose and a container must not set: none of it is namespaced.
const NOT_NAMESPACED: &[&str] = &[
    "fs.procfs-drop-fd-dentries",
    "kernel.numa_balancing*",
    PANIC,
    "vm.*",
    "/sys/devices/system/node/*",
    "/sys/kernel/mm/*",
    "/sys/module/*",
];

impl Rule for ViewMismatch {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let runtime = cx.now().host.container.as_deref();
        let root = cx.now().cgroups.as_ref().and_then(|cgroups| Some((cgroups.version, cgroups.at("/")?)));
        // On version 2 even a file that says `max` is one that the real root does not have.
        let namespaced = root.is_some_and(|(version, group)| match version {
            CgroupVersion::V1 => group.max.and_then(Limit::bytes).is_some(),
            CgroupVersion::V2 => group.max.is_some(),
        });
        let own_path = cx.now().cgroups.as_ref().and_then(|cgroups| cgroups.own.as_deref());
        let made_by_runtime =
            own_path.is_some_and(|path| matches!(groups::owner(path), Owner::Container | Owner::Kubernetes));
        let certain = namespaced || made_by_runtime || runtime == Some("lxcfs");
        if !certain {
            if runtime.is_none() {
                cx.cgroups()?;
                return Err(Skip::because("not in a container"));
            }
            // In a namespace of version 1 without a limit the own group looks like the root, so nothing more
            // can be said.
            if root.is_some_and(|(version, _)| {
                version == CgroupVersion::V2 || own_path.is_some_and(|path| path != "/")
            }) {
                return Err(Skip::because(
                    "a container runtime's marker, but the host's own cgroups are in view: a root file system made from an image",
                ));
            }
        }
        let total = cx.total().ok();
        let own = cx.now().cgroups.as_ref().and_then(|cgroups| {
            let group = cgroups.own.as_deref().and_then(|own| cgroups.at(own)).or_else(|| cgroups.at("/"))?;
            Some((cgroups.version, group, group.max.and_then(Limit::bytes)?))
        });
        let limit = own.map(|(_, _, limit)| limit);
        let whose = runtime.map_or_else(|| "a container".to_owned(), |name| format!("a container ({name})"));
        let (severity, title, cost) = judge(&whose, limit, total);
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding.sure(if certain { Confidence::Certain } else { Confidence::Possible });
        if let Some(runtime) = runtime {
            finding.because(Evidence::new(
                "/run/.containerenv, /.dockerenv or $container",
                "runtime",
                runtime,
            ));
        }
        if let Some((version, group)) = root.filter(|_| namespaced) {
            let value =
                group.max.unwrap_or_default().bytes().map_or_else(|| "max".to_owned(), |b| b.to_string());
            finding.because(
                Evidence::new(groups::file(version, "/", "max"), groups::field(version, "max"), value)
                    .of("/")
                    .against("absent or without limit", "the root of the hierarchy has none"),
            );
        }
        if let Some((version, group, limit)) = own.filter(|(_, group, _)| group.path != "/") {
            finding.because(
                Evidence::new(
                    groups::file(version, &group.path, "max"),
                    groups::field(version, "max"),
                    limit,
                )
                .of(&*group.path),
            );
        }
        finding.because_if(total.is_some().then(|| cx.saw_mem(m::MemTotal)));
        let why = "This was read in a container: the setting is the whole host's and has to be changed there";
        for setting in NOT_NAMESPACED.iter().filter(|_| certain) {
            finding.forbid(*setting, why);
        }
        let size = limit
            .filter(|limit| *limit > Bytes::ZERO)
            .map_or_else(|| "its limit".to_owned(), |limit| limit.to_string());
        add_remedies(&mut finding, &size, certain);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, size: &str, certain: bool) {
    finding
        .remedy(Remedy::new(format!("Size the program by {size}, not by MemTotal")).risk(
            "Java from 10 (8u191) and Go with GOMEMLIMIT do so; most databases need their cache set by hand.",
        ))
        .remedy(
            Remedy::new("Look at the host itself")
                .run("lotsfree doctor")
                .risk("Needs access to the host: in its namespaces, not in a container."),
        )
        .note(if certain {
            "Findings about memory of the whole host (reclaim, swap, huge pages) hold for the host; changes \
             to vm settings are not proposed from here."
        } else {
            "Findings about memory of the whole host (reclaim, swap, huge pages) hold for the host. Should \
             this be a container after all, make changes to vm settings there."
        });
}

fn judge(whose: &str, limit: Option<Bytes>, total: Option<Bytes>) -> (Severity, String, Cost) {
    let less = limit.zip(total).filter(|(limit, total)| limit < total);
    match (less, limit.zip(total)) {
        (Some((limit, total)), _) => (
            Severity::Warning,
            format!("read in {whose} that may use {limit}, while /proc/meminfo shows the host's {total}"),
            Cost::risk(format!(
                "whoever sizes by MemTotal takes {} of the limit",
                Percent(total.share_of(limit))
            )),
        ),
        (None, Some((limit, total))) => (
            Severity::Info,
            format!("read in {whose} limited to {limit}, with a /proc/meminfo that shows {total}"),
            Cost::risk("vmstat, zoneinfo and all settings are the host's"),
        ),
        (None, None) => (
            Severity::Info,
            format!("read in {whose}: counters and settings are the host's"),
            Cost::risk("nothing said here is about the container alone"),
        ),
    }
}
