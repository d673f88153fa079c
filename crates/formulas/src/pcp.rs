//! Per-CPU page lists: pages that are free but not in `NR_FREE_PAGES`, so marks are met that much earlier.

use lotsfree_units::{Bytes, PageSize};

/// How a kernel sizes its per-CPU lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpRules {
    /// The batch is a quarter of this, at most, before rounding: 512 KiB (to 4.4), 1 MiB (read in 5.4).
    pub batch_cap: Bytes,
    /// `high` follows from the low mark and the CPUs of the node (6.1); else it is six batches.
    pub high_from_mark: bool,
    /// Between that and [`high_max`] a list's length adapts to what its CPU does (6.7 on).
    pub adapts: bool,
}

/// `batch` of a zone in pages, as `/proc/zoneinfo` prints it: how many pages move at a time.
///
/// A thousandth of the zone within the cap, a quarter of that, then one below a power of two (31, 63); at
/// least 1. Source: `zone_batchsize`.
pub const fn batch(rules: &PcpRules, managed_pages: u64, page: PageSize) -> u64 {
    let cap = page.pages(rules.batch_cap);
    let thousandth = managed_pages / 1024;
    let quarter = (if thousandth < cap { thousandth } else { cap }) / 4;
    let quarter = if quarter == 0 { 1 } else { quarter };
    let rounded = 1u64 << (quarter + quarter / 2).ilog2();
    if rounded < 3 { 1 } else { rounded - 1 }
}

/// The list length at which a CPU gives pages back, in pages: `high`, in 6.12 the lower bound `high_min`.
///
/// `cpus` are the CPUs of the zone's node. Source: `zone_highsize` (6.1, 6.12), six batches before.
pub const fn high(rules: &PcpRules, low_mark_pages: u64, cpus: u64, batch_pages: u64) -> u64 {
    if !rules.high_from_mark {
        return batch_pages.saturating_mul(6);
    }
    let share = low_mark_pages / if cpus == 0 { 1 } else { cpus };
    let least = batch_pages.saturating_mul(4);
    if share < least { least } else { share }
}

/// The upper bound `high_max` to which 6.12 lets a busy CPU's list grow, in pages: an eighth of the zone,
/// shared.
pub const fn high_max(managed_pages: u64, cpus: u64) -> u64 {
    managed_pages / 8 / if cpus == 0 { 1 } else { cpus }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    #[test]
    fn big_zones_move_31_or_63_pages_at_a_time() {
        let old = Rules::linux_4_4().pcp.unwrap();
        assert_eq!(batch(&old, 5_000_000, PageSize::X86), 31);
        assert_eq!(high(&old, 14_105, 8, 31), 186);
        let new = Rules::linux_6_12().pcp.unwrap();
        assert_eq!(batch(&new, 5_000_000, PageSize::X86), 63);
        assert_eq!(batch(&new, 3840, PageSize::X86), 1);
        assert_eq!(high(&new, 12_867, 2, 63), 6433);
        assert_eq!(high(&new, 100, 2, 63), 252);
        assert_eq!(high_max(772_497, 2), 48_281);
    }
}
