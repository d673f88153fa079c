//! `/proc/pagetypeinfo`: free blocks and page blocks per migrate type. Reading it walks the free lists under the
//! zone lock (0.3 ms on a small host, milliseconds on a large one), so it is read once, never in a loop.

use serde::Serialize;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageTypes {
    /// `Page block order`, 9 on x86-64.
    pub block_order: Option<u32>,
    /// Free blocks per order, one row per node, zone and migrate type. A count that the kernel prints as
    /// `>100000` is kept as 100000.
    pub free: Vec<FreeByType>,
    /// Page blocks per migrate type, one row per node and zone: type name and count.
    pub blocks: Vec<BlocksByType>,
}

/// Free blocks of one migrate type in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FreeByType {
    /// NUMA node.
    pub node: u32,
    /// Zone name.
    pub zone: Box<str>,
    /// `Unmovable`, `Movable`, `Reclaimable`, `HighAtomic`, `CMA`, `Isolate`.
    pub migrate_type: Box<str>,
    /// Free blocks by order.
    pub blocks: Vec<u64>,
}

/// Page blocks of one zone by migrate type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlocksByType {
    /// NUMA node.
    pub node: u32,
    /// Zone name.
    pub zone: Box<str>,
    /// Migrate type and number of page blocks, in file order.
    pub counts: Vec<(Box<str>, u64)>,
}
