//! `/sys/kernel/mm/lru_gen`: the multi-generational LRU (6.1 and later).

use serde::Serialize;

/// Its settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LruGen {
    /// `enabled`, hexadecimal in the file: bit 0 core, bit 1 leaf batches, bit 2 non-leaf.
    pub enabled: u32,
    /// `min_ttl_ms`: the OOM killer runs rather than evict anything younger; 0 is off.
    pub min_ttl_ms: u64,
}
