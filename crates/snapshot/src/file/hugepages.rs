//! `/sys/kernel/mm/hugepages/hugepages-*kB` and their per-node twins.

use lotsfree_units::Bytes;
use serde::Serialize;

/// The pool of one page size. `HugePages_*` in meminfo show the default size only; this is each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HugePool {
    /// Size of one page.
    pub size: Bytes,
    /// `nr_hugepages`: pages in the pool, surplus included.
    pub total: u64,
    /// `free_hugepages`: not yet given to anybody.
    pub free: u64,
    /// `resv_hugepages`: promised to mappings, not yet touched (machine-wide only, 0 per node).
    pub reserved: u64,
    /// `surplus_hugepages`: beyond the persistent pool.
    pub surplus: u64,
    /// `nr_overcommit_hugepages`: how far the pool may grow on demand (machine-wide only).
    pub overcommit: u64,
}

impl HugePool {
    /// Bytes of the whole pool.
    pub fn bytes(&self) -> Bytes {
        self.size.times(self.total)
    }

    /// Pages that nobody uses and nobody was promised: `free - reserved`.
    pub fn idle(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// Pages touched: `total - free`.
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }
}
