//! Per-CPU page lists: pages that are free but not in `NR_FREE_PAGES`, so marks are met that much earlier.

use lotsfree_units::{Bytes, PageSize};

/// How a kernel sizes its per-CPU lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpRules {
    /// The batch is a quarter of this, at most, before rounding: 512 KiB (to 4.4), 1 MiB (read in 5.4).
    pub batch_cap: Bytes,
    /// `high` follows from the low mark and the CPUs of the node (read in 5.15); else it is six batches.
    pub high_from_mark: bool,
    /// Between that and [`high_max`] a list's length adapts to what its CPU does (6.7 on).
    pub adapts: bool,
}

/// `batch` of a zone in pages, as `/proc/zoneinfo` prints it: how many pages move at a time.
///
/// A thousandth of the zone within the cap, a quarter of that, then one below a power of two (31, 63); at
/// least 1. Source: `zone_batchsize`.
pub const fn batch(rules: &PcpRules, managed_pages: u64, page: PageSize) -> u64 {
    let batch = zone_batchsize(rules, managed_pages, page);
    if batch == 0 { 1 } else { batch }
}

/// The same before it is made at least 1: 0 for a zone of less than 32 MiB.
const fn zone_batchsize(rules: &PcpRules, managed_pages: u64, page: PageSize) -> u64 {
    let cap = page.pages(rules.batch_cap);
    let thousandth = managed_pages / 1024;
    let quarter = (if thousandth < cap { thousandth } else { cap }) / 4;
    let quarter = if quarter == 0 { 1 } else { quarter };
    (1u64 << (quarter + quarter / 2).ilog2()) - 1
}

/// The list length at which a CPU gives pages back, in pages: `high`, in 6.12 the lower bound `high_min`.
///
/// `cpus` are the CPUs of the zone's node. Source: `zone_highsize` (5.15, 6.1, 6.12). Before, it is six
/// batches, and a small zone, such as ZONE_DMA, keeps no page on a list: `high` is 0 there
/// (`pageset_set_batch`, 5.4).
pub const fn high(
    rules: &PcpRules,
    low_mark_pages: u64,
    cpus: u64,
    managed_pages: u64,
    page: PageSize,
) -> u64 {
    if !rules.high_from_mark {
        return 6 * zone_batchsize(rules, managed_pages, page);
    }
    let share = low_mark_pages / if cpus == 0 { 1 } else { cpus };
    let least = batch(rules, managed_pages, page).saturating_mul(4);
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
    fn batches_are_bounded_in_bytes() {
        // A quarter of 1 MiB is 4 pages of 64 KiB, and 31 or 63 pages of 4 KiB would be 2 to 4 MB of them.
        let (old, new) = (Rules::linux_4_4().pcp.unwrap(), Rules::linux_6_1().pcp.unwrap());
        let (pages_16k, pages_64k) = (PageSize::new(16_384).unwrap(), PageSize::new(65_536).unwrap());
        let gib_64 = |page: PageSize| page.pages(Bytes::gib(64));
        for (page, of_old, of_new) in [(PageSize::X86, 31, 63), (pages_16k, 7, 15), (pages_64k, 1, 3)] {
            assert_eq!((batch(&old, gib_64(page), page), batch(&new, gib_64(page), page)), (of_old, of_new));
        }
    }

    #[test]
    fn big_zones_move_31_or_63_pages_at_a_time() {
        let old = Rules::linux_4_4().pcp.unwrap();
        assert_eq!(batch(&old, 5_000_000, PageSize::X86), 31);
        assert_eq!(high(&old, 14_105, 8, 5_000_000, PageSize::X86), 186);
        assert_eq!((batch(&old, 3976, PageSize::X86), high(&old, 34, 1, 3976, PageSize::X86)), (1, 0));
        let new = Rules::linux_6_12().pcp.unwrap();
        assert_eq!(batch(&new, 5_000_000, PageSize::X86), 63);
        assert_eq!(batch(&new, 3840, PageSize::X86), 1);
        assert_eq!(high(&new, 12_867, 2, 5_000_000, PageSize::X86), 6433);
        assert_eq!(high(&new, 100, 2, 5_000_000, PageSize::X86), 252);
        assert_eq!(high_max(772_497, 2), 48_281);
    }
}
