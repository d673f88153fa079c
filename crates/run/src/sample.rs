//! [`Sample`]: the kernel's counters at one instant.

use lotsfree_kernel_files::counters::{
    Meminfo, MemoryEvents, MemoryStat, Numastat, Values, Vmstat, memory_events,
};
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::zoneinfo::Zone;

/// Counters of the machine's kernel at one instant of the run. Monotonic counters count from the machine's
/// boot, as the kernel's do, so only their change has a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since the run began.
    pub at: u64,
    /// `/proc/meminfo`.
    pub meminfo: Values<Meminfo>,
    /// `/proc/vmstat`.
    pub vmstat: Values<Vmstat>,
    /// `/proc/zoneinfo`, in file order. The node's statistics are in the node's first populated zone, as 4.8
    /// and later print them.
    pub zones: Vec<Zone>,
    /// Counters of each NUMA node below `/sys/devices/system/node`, ascending; empty if nodes are not
    /// sampled.
    pub nodes: Vec<NodeSample>,
    /// `/proc/swaps`, in file order; empty where there is no swap.
    pub swaps: Vec<SwapArea>,
    /// `memory.stat` of the actors' control group; empty if they have no group of their own.
    pub group: Values<MemoryStat>,
    /// `memory.events` of that group; empty for one of version 1, which does not have this file.
    pub events: Values<MemoryEvents>,
    /// `memory.failcnt` and `memory.memsw.failcnt` of that group together, the times that it met either
    /// limit; `None` for one of version 2.
    pub failcnt: Option<u64>,
}

impl Sample {
    /// The times that the actors' control group met its limit since it was made; `None` without a group.
    pub fn limit_hits(&self) -> Option<u64> {
        self.failcnt.or_else(|| self.events.get(memory_events::max))
    }
}

/// One directory `/sys/devices/system/node/node*`. Files that do not change during a run (CPUs, distances)
/// are in [`NodeFacts`](crate::NodeFacts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSample {
    /// The node's number.
    pub id: u32,
    /// `meminfo`, in KiB.
    pub meminfo: Values<Meminfo>,
    /// `numastat`.
    pub numastat: Values<Numastat>,
}
