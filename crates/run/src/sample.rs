//! [`Sample`]: the kernel's counters at one instant.

use lotsfree_kernel_files::counters::{Meminfo, MemoryStat, Numastat, Values, Vmstat};
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::zoneinfo::Zone;

/// What the machine's kernel counts, at one instant of the run. Monotonic counters count from the machine's
/// boot, as the kernel's do: only their change means something.
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
    /// What each NUMA node shows of itself below `/sys/devices/system/node`, ascending; empty where nodes are
    /// not looked at.
    pub nodes: Vec<NodeSample>,
    /// `/proc/swaps`, in file order; empty where there is no swap.
    pub swaps: Vec<SwapArea>,
    /// `memory.stat` of the control group that the actors are in; empty where they are in none of their own.
    pub group: Values<MemoryStat>,
}

/// One directory `/sys/devices/system/node/node*`. What does not change during a run (CPUs, distances) is in
/// [`NodeFacts`](crate::NodeFacts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSample {
    /// The node's number.
    pub id: u32,
    /// `meminfo`, in KiB.
    pub meminfo: Values<Meminfo>,
    /// `numastat`.
    pub numastat: Values<Numastat>,
}
