//! Memory cgroups for rules: names of their files, who administers them, the memory that they hold.

use lotsfree_kernel_files::counters::memory_stat as s;
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, Limit};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, MIB};

use crate::remedy::word;
use crate::{Context, Remedy};

/// Path of a group's file, named as in its version: `max` is `memory.max`, v1 `memory.limit_in_bytes`.
pub(crate) fn file(version: CgroupVersion, path: &str, name: &str) -> String {
    format!("{}/{}", directory(version, path), field(version, name))
}

/// Path of a group's directory.
pub(crate) fn directory(version: CgroupVersion, path: &str) -> String {
    let root = match version {
        CgroupVersion::V1 => "/sys/fs/cgroup/memory",
        CgroupVersion::V2 => "/sys/fs/cgroup",
    };
    format!("{root}{}", path.trim_end_matches('/'))
}

/// Name of a group's file, without the directory.
pub(crate) fn field(version: CgroupVersion, name: &str) -> String {
    let v1 = match name {
        "current" => "usage_in_bytes",
        "max" => "limit_in_bytes",
        name => name,
    };
    match version {
        CgroupVersion::V1 => format!("memory.{v1}"),
        CgroupVersion::V2 => format!("memory.{name}"),
    }
}

/// Memory that a group holds, from `memory.stat`, including its descendants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// `memory.current`.
    pub current: Bytes,
    /// Page cache on the inactive list.
    pub inactive_file: Bytes,
    /// Page cache on the active list.
    pub active_file: Bytes,
    /// Lower bound of the mapped page cache: `file_mapped` less all of shared memory.
    pub mapped_file: Bytes,
    /// Slab that a shrinker can free; version 1 does not report it.
    pub slab_reclaimable: Bytes,
}

impl Held {
    /// `None` if the kernel did not report how much memory is held, or how much of it is on the inactive file
    /// list.
    pub(crate) fn of(version: CgroupVersion, group: &Cgroup) -> Option<Held> {
        let stat = group.stat.as_ref()?;
        let get = |counter| stat.get(counter).map(Bytes);
        // Version 1 counts descendants in the `total_` lines only.
        let (inactive, active, mapped, shmem) = match version {
            CgroupVersion::V1 => (
                get(s::total_inactive_file).or_else(|| get(s::inactive_file)),
                get(s::total_active_file).or_else(|| get(s::active_file)),
                get(s::total_mapped_file).or_else(|| get(s::mapped_file)),
                get(s::total_shmem).or_else(|| get(s::shmem)),
            ),
            CgroupVersion::V2 => {
                (get(s::inactive_file), get(s::active_file), get(s::file_mapped), get(s::shmem))
            }
        };
        Some(Held {
            current: group.current?,
            inactive_file: inactive?,
            active_file: active.unwrap_or_default(),
            // Without the count of shared memory nothing is known about mapped files.
            mapped_file: shmem.zip(mapped).map_or(Bytes::ZERO, |(shmem, mapped)| mapped - shmem),
            slab_reclaimable: get(s::slab_reclaimable).unwrap_or_default(),
        })
    }

    /// The working set as kubelet and cAdvisor count it: everything except the inactive file list.
    pub(crate) fn working_set(&self) -> Bytes {
        self.current - self.inactive_file
    }

    /// The working set without the active page cache that is known to be mapped files.
    pub(crate) fn without_mapped_files(&self) -> Bytes {
        self.working_set() - self.mapped_file.min(self.active_file)
    }

    /// Memory that reclaim cannot simply drop: everything except page cache and reclaimable slab.
    pub(crate) fn kept(&self) -> Bytes {
        self.working_set() - self.active_file - self.slab_reclaimable
    }
}

/// Of a limit that is raised, this much should be in use.
pub(crate) const COMFORTABLE: f64 = 0.80;

/// The limit of which what a group cannot give back, and what it has in swap, is [`COMFORTABLE`].
pub(crate) fn comfortable(kept: Bytes, group: &Cgroup) -> Bytes {
    rounded((kept + group.swap_current.unwrap_or_default()).scale(1.0 / COMFORTABLE))
}

/// The groups with more in memory and swap together than they may have in memory, most in swap first: without
/// swap a process of each is killed.
pub(crate) fn overfull<'a>(cx: &Context<'a>) -> Vec<(&'a Cgroup, Bytes)> {
    let groups = cx.cgroups().map(|cgroups| cgroups.groups.as_slice()).unwrap_or_default();
    let mut found: Vec<(&Cgroup, Bytes)> = groups
        .iter()
        .filter_map(|group| {
            let (limit, swapped) = (group.max?.bytes()?, group.swap_current?);
            let inactive =
                Held::of(cx.cgroups().ok()?.version, group).map_or(Bytes::ZERO, |held| held.inactive_file);
            let fits = group.current? - inactive + swapped <= limit;
            (swapped > Bytes::ZERO && !fits).then_some((group, limit))
        })
        .collect();
    found.sort_by_key(|(group, _)| std::cmp::Reverse(group.swap_current));
    found
}

/// Share of a limit from which on a group stands at it.
const AT: f64 = 0.95;

/// The limit at which a group stands, and the version 2 name of its file without `memory.`.
pub(crate) fn limit(group: &Cgroup) -> Option<(&'static str, Bytes)> {
    let current = group.current?;
    [("high", group.high), ("max", group.max)].into_iter().find_map(|(name, limit)| {
        let limit = limit.and_then(Limit::bytes).filter(|limit| *limit > Bytes::ZERO)?;
        (current.share_of(limit) >= AT).then_some((name, limit))
    })
}

/// Owner of a group, who sets its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// A systemd unit: service, slice or scope.
    Systemd(&'a str),
    /// A Kubernetes pod or container.
    Kubernetes,
    /// A container of Docker, containerd, CRI-O or Podman outside Kubernetes.
    Container,
    /// A `lotsfree lab` that is running, or was killed.
    Lab,
    /// Somebody who writes to the cgroup file system.
    Files,
}

/// Owner of the group at `path`, by the naming of systemd and of the container runtimes.
pub(crate) fn owner(path: &str) -> Owner<'_> {
    const RUNTIMES: &[&str] = &["docker-", "cri-containerd-", "crio-", "libpod-"];
    let last = path.rsplit('/').next().unwrap_or_default();
    if path.contains("kubepods") {
        return Owner::Kubernetes;
    }
    if RUNTIMES.iter().any(|prefix| last.starts_with(prefix))
        || path.starts_with("/docker/")
        || path.contains("/libpod_parent/")
    {
        return Owner::Container;
    }
    if last.starts_with("lotsfree-lab-") {
        return Owner::Lab;
    }
    let unit = [".service", ".slice", ".scope"].iter().any(|kind| last.ends_with(kind));
    if unit { Owner::Systemd(last) } else { Owner::Files }
}

/// The service that a process belongs to, by its cgroup.
pub(crate) fn service_of(process: &Process) -> Option<&str> {
    let path = process.detail.as_ref()?.cgroup.as_deref()?;
    path.split('/').rfind(|part| part.ends_with(".service"))
}

/// Whether it is a transient scope that `systemd-run` made, usually to bound one job on purpose.
pub(crate) fn is_transient(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.starts_with("run-") && (last.ends_with(".scope") || last.ends_with(".service"))
}

/// `wanted` rounded up to a multiple of 64 MiB, as a person would set it.
pub(crate) fn rounded(wanted: Bytes) -> Bytes {
    const STEP: Bytes = Bytes(64 * MIB);
    STEP.times(wanted.units_of(STEP))
}

/// A remedy that gives a group's file another value, in the way in which the group's owner sets it.
/// `property` is systemd's name of the setting, `name` the version 2 name of the file.
pub(crate) fn set(
    title: impl Into<String>,
    version: CgroupVersion,
    path: &str,
    (property, name): (&str, &str),
    value: Option<Bytes>,
    now: Option<Bytes>,
) -> Remedy {
    let systemd = |value: Option<Bytes>| value.map_or("infinity".to_owned(), |value| value.0.to_string());
    let raw = |value: Option<Bytes>| match (value, version) {
        (Some(value), _) => value.0.to_string(),
        (None, CgroupVersion::V2) => "max".to_owned(),
        (None, CgroupVersion::V1) => "-1".to_owned(),
    };
    let remedy = Remedy::new(title);
    match owner(path) {
        Owner::Systemd(unit) => {
            let remedy = remedy
                .run(format!("systemctl set-property --runtime {} {property}={}", word(unit), systemd(value)))
                .undo_with(format!(
                    "systemctl set-property --runtime {} {property}={}",
                    word(unit),
                    systemd(now)
                ))
                .sets(format!("{unit} {property}"), systemd(value));
            // A transient unit has no file in which the value could be kept.
            if is_transient(path) {
                return remedy;
            }
            let file = format!("/etc/systemd/system/{unit}.d/90-lotsfree.conf");
            remedy.keep(&file, section(unit)).keep(&file, format!("{property}={}", systemd(value)))
        }
        Owner::Kubernetes | Owner::Container | Owner::Lab | Owner::Files => {
            let file = file(version, path, name);
            remedy
                .run(format!("echo {} > {}", raw(value), word(&file)))
                .undo_with(format!("echo {} > {}", raw(now), word(&file)))
                .sets(file, raw(value))
        }
    }
}

/// A remedy that raises the limit of a group from `limit` to `wanted`. Version 1 refuses a limit above the
/// one on memory and swap (EINVAL), so that one goes up first and down last.
pub(crate) fn raise(
    title: impl Into<String>,
    version: CgroupVersion,
    group: &Cgroup,
    limit: Bytes,
    wanted: Bytes,
) -> Remedy {
    let path = group.path.as_str();
    let mut raise = set(title, version, path, ("MemoryMax", "max"), Some(wanted), Some(limit));
    if let (CgroupVersion::V1, Some(Limit::At(both))) = (version, group.swap_max)
        && both < wanted
    {
        let memsw = format!("/sys/fs/cgroup/memory{path}/memory.memsw.limit_in_bytes");
        let above = wanted + (both - limit);
        raise.runtime.insert(0, format!("echo {} > {}", above.0, word(&memsw)));
        raise = raise.undo_with(format!("echo {} > {}", both.0, word(&memsw))).sets(memsw, above.0);
    }
    raise
}

fn section(unit: &str) -> &'static str {
    match unit.rsplit('.').next() {
        Some("slice") => "[Slice]",
        Some("scope") => "[Scope]",
        _ => "[Service]",
    }
}

/// Where to set a limit permanently that was written to the cgroup file system, for notes.
pub(crate) fn lasting(path: &str) -> Option<&'static str> {
    match owner(path) {
        Owner::Kubernetes => Some(
            "Kubernetes sets this limit from resources.limits of the pod's containers: change it there, or the value is \
             written back when the container restarts.",
        ),
        Owner::Container => Some(
            "The container runtime sets this limit: docker update --memory (podman update --memory) changes it for good.",
        ),
        Owner::Lab => Some(
            "A lotsfree lab made this group and bounds it as its scenario says; it is removed when the lab ends, or by \
             `lotsfree lab restore` if the lab was killed.",
        ),
        Owner::Files => {
            Some("Whoever made this group has to be told, or the value is lost when the group is made again.")
        }
        Owner::Systemd(_) => None,
    }
}

/// The largest processes whose memory cgroup is `path` or below it, with their resident memory.
pub(crate) fn largest_in<'a>(cx: &Context<'a>, path: &str, most: usize) -> Vec<(&'a Process, Bytes)> {
    let inside = |group: &str| {
        group == path || group.strip_prefix(path).is_some_and(|rest| rest.starts_with('/') || path == "/")
    };
    let mut found: Vec<(&Process, Bytes)> = (cx.now().processes.iter().flatten())
        .filter(|process| process.detail.as_ref().and_then(|d| d.cgroup.as_deref()).is_some_and(inside))
        .map(|process| {
            let resident = process.memory_or_zero(lotsfree_kernel_files::counters::status::VmRSS);
            (process, resident)
        })
        .collect();
    found.sort_by_key(|found| std::cmp::Reverse(found.1));
    found.truncate(most);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_by_the_names_that_runtimes_give() {
        assert_eq!(
            owner("/system.slice/postgresql@15-main.service"),
            Owner::Systemd("postgresql@15-main.service")
        );
        assert_eq!(owner("/user.slice"), Owner::Systemd("user.slice"));
        assert_eq!(owner("/system.slice/docker-0123abcd.scope"), Owner::Container);
        assert_eq!(owner("/docker/0123abcd"), Owner::Container);
        assert_eq!(
            owner(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-2.scope"
            ),
            Owner::Kubernetes
        );
        assert_eq!(owner("/db/replica"), Owner::Files);
        assert_eq!(owner("/lotsfree-lab-EbagYjzk5oAi"), Owner::Lab);
        assert!(is_transient("/system.slice/run-r0a1b2c.scope"));
        assert!(!is_transient("/system.slice/runner.service"));
    }

    #[test]
    fn files_are_named_by_version() {
        assert_eq!(file(CgroupVersion::V2, "/", "max"), "/sys/fs/cgroup/memory.max");
        assert_eq!(file(CgroupVersion::V1, "/db", "max"), "/sys/fs/cgroup/memory/db/memory.limit_in_bytes");
        assert_eq!(
            file(CgroupVersion::V1, "/db", "current"),
            "/sys/fs/cgroup/memory/db/memory.usage_in_bytes"
        );
        assert_eq!(file(CgroupVersion::V1, "/db", "stat"), "/sys/fs/cgroup/memory/db/memory.stat");
    }

    #[test]
    fn limits_are_rounded_up() {
        assert_eq!(rounded(Bytes::mib(65)), Bytes::mib(128));
        assert_eq!(rounded(Bytes::mib(128)), Bytes::mib(128));
    }
}
