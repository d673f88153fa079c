//! SUSE's limit on the page cache (SLE 11 SP1 to SLE 12, not upstream; `mm/vmscan.c`: `shrink_page_cache`).
//!
//! The limit is soft: eight times the free memory is added to it, so that nothing happens while much memory
//! is free. Only file pages that nobody maps are taken. The task that adds a page to the cache does the work.

use super::vmscan::{Reclaimer, ScanControl};
use super::vmstat::Stat;
use super::{Cx, DEF_PRIORITY, Mm, SWAP_CLUSTER_MAX};

/// FREE_TO_PAGECACHE_RATIO
const FREE_RATIO: u64 = 8;
/// The fewest pages that a call aims at.
const LEAST: u64 = 8 * SWAP_CLUSTER_MAX;
/// Pages in a MiB.
const MIB: u64 = 256;

impl Mm {
    /// By how many pages the unmapped page cache exceeds the limit (`pagecache_over_limit`).
    ///
    /// `vm.pagecache_limit_ignore_dirty` 1 leaves dirty pages out of the cache, 2 half of them (the fraction
    /// is UNVERIFIED), 0 none.
    pub(crate) fn pagecache_over(&self) -> u64 {
        let limit = self.tuning.pagecache_limit_mb;
        if limit == 0 {
            return 0;
        }
        let (mut cache, mut mapped, mut dirty, mut free) = (0, 0, 0, 0);
        for zone in &self.zones {
            cache += zone.stat[Stat::FilePages as usize] + zone.stat[Stat::SwapCached as usize];
            mapped += zone.stat[Stat::Mapped as usize];
            dirty += zone.stat[Stat::Dirty as usize];
            free += zone.free;
        }
        let ignored = dirty.checked_div(self.tuning.pagecache_limit_ignore_dirty).unwrap_or(0);
        let allowed = limit.saturating_mul(MIB).saturating_add(FREE_RATIO * free);
        cache.saturating_sub(mapped).saturating_sub(ignored).saturating_sub(allowed)
    }

    /// Shrinks the page cache if it is over the limit, before a page enters it.
    pub(crate) fn pagecache_limit(&mut self, cx: &mut Cx) {
        let over = self.pagecache_over();
        if over > 0 {
            self.shrink_page_cache(cx, over);
        }
    }

    /// Enforces the limit in kswapd too.
    pub(crate) fn pagecache_limit_kswapd(&mut self, cx: &mut Cx) {
        self.pagecache_limit(cx);
    }

    /// Makes three passes over all lruvecs, each from priority 12 down to 0: one over the inactive pages
    /// alone, then two that include the active ones. It never unmaps and never swaps, and writes only where
    /// dirty pages count as cache.
    fn shrink_page_cache(&mut self, cx: &mut Cx, over: u64) {
        let target = (over / 4).max(LEAST);
        let mut scan = ScanControl::new(Reclaimer::Limit, DEF_PRIORITY, target);
        scan.may_unmap = false;
        scan.may_swap = false;
        scan.may_writepage = self.tuning.pagecache_limit_ignore_dirty == 0;
        for pass in 0..3 {
            for priority in (0..=DEF_PRIORITY).rev() {
                scan.priority = priority;
                for lruvec in 0..self.lruvecs.len() {
                    self.generation.policy.shrink_file_cache(self, cx, &mut scan, lruvec, pass > 0);
                    if scan.reclaimed >= target {
                        return;
                    }
                }
            }
        }
    }
}
