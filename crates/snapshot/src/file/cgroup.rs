//! Memory cgroups, version 1 and 2.

use lotsfree_counters::{MemoryEvents, MemoryStat, Values};
use lotsfree_units::Bytes;
use serde::Serialize;

use super::pressure::Psi;

/// Where the memory controller lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum CgroupVersion {
    /// Version 1 (`/sys/fs/cgroup/memory`), pure or hybrid.
    #[default]
    V1,
    /// Version 2 (unified).
    V2,
}

/// The memory cgroups of a host: own, root, the largest ones and all with a limit close by or protection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cgroups {
    /// Which version has the memory controller.
    pub version: CgroupVersion,
    /// Path of the reader's own group, live only.
    pub own: Option<String>,
    /// The v2 hierarchy is mounted with `memory_recursiveprot`.
    pub recursive_protection: bool,
    /// `nr_dying_descendants` of the root's `cgroup.stat` (v2).
    pub dying: Option<u64>,
    /// The groups, parents before children.
    pub groups: Vec<Cgroup>,
    /// How many more groups there were, not kept because they are small.
    pub left_out: u32,
}

impl Cgroups {
    /// The group at `path`.
    pub fn at(&self, path: &str) -> Option<&Cgroup> {
        self.groups.iter().find(|group| group.path == path)
    }

    /// The groups above `path`, nearest first, the root last.
    pub fn ancestors<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Cgroup> {
        let mut rest = path;
        std::iter::from_fn(move || {
            if rest == "/" || rest.is_empty() {
                return None;
            }
            let cut = rest.rfind('/')?;
            rest = if cut == 0 { "/" } else { &rest[..cut] };
            Some(rest)
        })
        .filter_map(move |path| self.at(path))
    }
}

/// A limit that may be `max`. Version 1's 2^63-ish "no limit" is `Max` as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// No limit.
    Max,
    /// This much.
    At(Bytes),
}

impl Limit {
    /// The limit, `None` for `max`.
    pub fn bytes(self) -> Option<Bytes> {
        match self {
            Limit::Max => None,
            Limit::At(bytes) => Some(bytes),
        }
    }
}

/// One group. Fields that its version or kernel lacks are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cgroup {
    /// Path from the hierarchy's root, `/` for the root itself.
    pub path: String,
    /// `memory.current`, v1 `memory.usage_in_bytes`.
    pub current: Option<Bytes>,
    /// `memory.max`, v1 `memory.limit_in_bytes`.
    pub max: Option<Limit>,
    /// `memory.high` (v2).
    pub high: Option<Limit>,
    /// `memory.low` (v2).
    pub low: Option<Limit>,
    /// `memory.min` (v2).
    pub min: Option<Limit>,
    /// `memory.soft_limit_in_bytes` (v1).
    pub soft_limit: Option<Limit>,
    /// `memory.peak`, v1 `memory.max_usage_in_bytes`.
    pub peak: Option<Bytes>,
    /// `memory.swap.current`; v1: memsw usage less memory usage.
    pub swap_current: Option<Bytes>,
    /// `memory.swap.max`; v1: `memory.memsw.limit_in_bytes` (memory and swap together).
    pub swap_max: Option<Limit>,
    /// `memory.swappiness` (v1).
    pub swappiness: Option<u64>,
    /// `memory.failcnt` (v1).
    pub failcnt: Option<u64>,
    /// `memory.oom.group` (v2).
    pub oom_group: Option<bool>,
    /// `memory.stat`.
    pub stat: Option<Values<MemoryStat>>,
    /// `memory.events` (v2), v1 `memory.oom_control`'s `oom_kill`.
    pub events: Option<Values<MemoryEvents>>,
    /// `memory.pressure` (v2).
    pub pressure: Option<Psi>,
    /// Limits on huge pages, per page size.
    pub hugetlb: Vec<HugetlbLimit>,
}

/// `hugetlb.<size>.*` of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HugetlbLimit {
    /// Page size.
    pub size: Bytes,
    /// `current`, v1 `usage_in_bytes`.
    pub current: Option<Bytes>,
    /// `max`, v1 `limit_in_bytes`: checked at fault, where failing means SIGBUS.
    pub max: Limit,
    /// `rsvd.max`, v1 `rsvd.limit_in_bytes`: checked at mmap, where failing means ENOMEM.
    pub reserved_max: Option<Limit>,
    /// `events`: how often `max` was hit; v1 `failcnt`.
    pub events_max: Option<u64>,
}
