//! [`Sample`]: the kernel's counters at one instant.

use lotsfree_kernel_files::counters::{Meminfo, MemoryStat, Numastat, Values, Vmstat};
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
