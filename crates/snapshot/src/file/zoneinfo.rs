//! `/proc/zoneinfo`: one block per zone of each node.

use lotsfree_counters::{Values, Vmstat, Zoneinfo};
use serde::Serialize;

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, `Device`.
    pub name: Box<str>,
    /// Free pages, watermarks, sizes (the `pages free` block) and the few fields after the page sets.
    pub marks: Values<Zoneinfo>,
    /// The zone's own statistics, under their `/proc/vmstat` names.
    pub stats: Values<Vmstat>,
    /// The node's statistics (`per-node stats`), printed by 4.8 and later in the node's first populated zone.
    pub node_stats: Option<Values<Vmstat>>,
    /// `protection:`, the lowmem reserve in pages against allocations that may use higher zones.
    pub protection: Vec<u64>,
    /// `pagesets`, one per CPU.
    pub pagesets: Vec<Pageset>,
}

/// A zone's free pages that one CPU holds back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pageset {
    /// CPU number.
    pub cpu: u32,
    /// Pages on the list.
    pub count: u64,
    /// Length at which it is trimmed.
    pub high: u64,
    /// Pages moved at a time.
    pub batch: u64,
}
