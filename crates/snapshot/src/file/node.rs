//! `/sys/devices/system/node/node*`: NUMA nodes.

use lotsfree_counters::{Meminfo, Numastat, Values, Vmstat};
use serde::Serialize;

use super::hugepages::HugePool;

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// CPUs of the node, expanded from `cpulist`; empty for a memory-only node.
    pub cpus: Vec<u32>,
    /// `meminfo`, in KiB.
    pub meminfo: Option<Values<Meminfo>>,
    /// `vmstat` (2.6.34 and later).
    pub vmstat: Option<Values<Vmstat>>,
    /// `numastat`, in pages.
    pub numastat: Option<Values<Numastat>>,
    /// `distance` to each online node, in node order.
    pub distance: Vec<u32>,
    /// The node's part of the huge page pools.
    pub huge_pools: Vec<HugePool>,
}
