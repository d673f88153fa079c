//! `/sys/kernel/mm/transparent_hugepage`.

use lotsfree_counters::{MthpStats, Values};
use lotsfree_units::Bytes;
use serde::Serialize;

/// A file such as `always [madvise] never`: what may be chosen and what is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The word in brackets; empty if none was.
    pub selected: Box<str>,
    /// All words, in file order.
    pub choices: Vec<Box<str>>,
}

/// All of the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Thp {
    /// `enabled`: `always`, `madvise`, `never`.
    pub enabled: Choice,
    /// `defrag`: `always`, `defer`, `defer+madvise`, `madvise`, `never`.
    pub defrag: Choice,
    /// `shmem_enabled` (4.8 and later).
    pub shmem_enabled: Option<Choice>,
    /// `use_zero_page`.
    pub use_zero_page: Option<u64>,
    /// `hpage_pmd_size`, bytes of one huge page.
    pub pmd_size: Option<Bytes>,
    /// `shrink_underused` (6.12 and later).
    pub shrink_underused: Option<u64>,
    /// Files of `khugepaged/`, by name (`pages_to_scan`, `max_ptes_none`, `defrag`, …).
    pub khugepaged: Vec<(Box<str>, u64)>,
    /// `hugepages-*kB/` (6.8 and later), smallest first.
    pub sizes: Vec<ThpSize>,
}

impl Thp {
    /// A khugepaged setting or counter.
    pub fn khugepaged(&self, name: &str) -> Option<u64> {
        self.khugepaged.iter().find(|(key, _)| &**key == name).map(|(_, value)| *value)
    }
}

/// One page size of multi-size THP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThpSize {
    /// Size of one page.
    pub size: Bytes,
    /// `enabled`: `always`, `inherit`, `madvise`, `never`.
    pub enabled: Choice,
    /// `shmem_enabled`.
    pub shmem_enabled: Option<Choice>,
    /// `stats/*` (6.10 and later).
    pub stats: Option<Values<MthpStats>>,
}
