//! SUSE's limit on the page cache (SLE 11 SP1 to SLE 12, not upstream; `pagecache_over_limit` and
//! `__shrink_page_cache` of `pagecache-limit.patch`, `pagecache-limit-unmapped.diff` and
//! `pagecache-limit-dirty.diff`, read in the kernel-source of SLE 11 SP2).
//!
//! The limit is soft: of the free memory, what exceeds a sixteenth of RAM and half of the swap in use is
//! added to it eight times, so that nothing happens while much memory is free. Only file pages that nobody
//! maps are taken. The task that adds a page to the cache does the work, and kswapd when it begins. The slabs
//! that SUSE's function shrinks too are left out.

use super::mmzone::Lruvec;
use super::vmscan::{Reclaimer, ScanControl};
use super::vmstat::Stat;
use super::{Cx, DEF_PRIORITY, Mm, SWAP_CLUSTER_MAX};

/// FREE_TO_PAGECACHE_RATIO
const FREE_RATIO: u64 = 8;
/// The part of RAM that must be free before more free memory counts, and the part of the lists that may not
/// be freed easily (SUSE's).
const SIXTEENTH: u64 = 16;
/// The fewest pages that a call aims at.
const LEAST: u64 = 8 * SWAP_CLUSTER_MAX;
/// Pages in a MiB.
const MIB: u64 = 256;

impl Mm {
    /// By how many pages the unmapped page cache exceeds the limit (`pagecache_over_limit`).
    ///
    /// Cached pages that nobody maps count, up to fifteen sixteenths of the pages on the file lists. Dirty
    /// pages are first taken off those lists: all of them if `vm.pagecache_limit_ignore_dirty` is 1, half of
    /// them if it is 2, none if it is 0.
    pub(crate) fn pagecache_over(&self) -> u64 {
        let limit = self.tuning.pagecache_limit_mb;
        if limit == 0 {
            return 0;
        }
        let (mut cache, mut mapped, mut dirty, mut free, mut ram) = (0, 0, 0, 0, 0);
        for zone in &self.zones {
            cache += zone.stat[Stat::FilePages as usize] + zone.stat[Stat::SwapCached as usize];
            mapped += zone.stat[Stat::Mapped as usize];
            dirty += zone.stat[Stat::Dirty as usize];
            free += zone.free;
            ram += zone.managed;
        }
        let ignored = dirty.checked_div(self.tuning.pagecache_limit_ignore_dirty).unwrap_or(0);
        let lists = self.lruvecs.iter().map(Lruvec::file).sum::<u64>().saturating_sub(ignored);
        let freeable = cache.saturating_sub(mapped).min(lists - lists / SIXTEENTH);
        let used = u64::from(self.swap.total) - self.swap.free();
        let free = free.saturating_sub(ram / SIXTEENTH).saturating_sub(used / 2);
        let allowed = limit.saturating_mul(MIB).saturating_add(FREE_RATIO * free);
        freeable.saturating_sub(allowed)
    }

    /// Shrinks the page cache if it is over the limit, before a page enters it and when kswapd begins.
    pub(crate) fn pagecache_limit(&mut self, cx: &mut Cx) {
        let over = self.pagecache_over();
        if over > 0 {
            self.shrink_page_cache(cx, over);
        }
    }

    /// Makes up to three passes over all lruvecs, each from priority 12 down to 0: one over the inactive
    /// pages alone, one that includes the active ones, and, unless dirty pages are left out, one that also
    /// writes. It never unmaps and never swaps (`__shrink_page_cache`).
    fn shrink_page_cache(&mut self, cx: &mut Cx, over: u64) {
        let target = (over / (FREE_RATIO / 2)).max(LEAST);
        let mut scan = ScanControl::new(Reclaimer::Limit, DEF_PRIORITY, target);
        scan.may_unmap = false;
        scan.may_swap = false;
        let passes = if self.tuning.pagecache_limit_ignore_dirty == 1 { 2 } else { 3 };
        for pass in 0..passes {
            scan.may_writepage = pass == 2;
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

#[cfg(test)]
mod tests {
    use lotsfree_workload::{How, Policy};

    use super::super::{Config, RaState, Read};
    use super::*;
    use crate::Generation;

    /// A machine with SLES 11, 256 MiB of memory and a limit of 16 MiB. It has read a file until no more than
    /// `free` pages are free. With it come the task's context and the number of the file's pages in memory.
    fn reading_until(free: u64) -> (Mm, Cx, u64) {
        let generation = Generation::sles_11_sp2();
        let mut mm = Mm::new(&Config { instant_reads: true, ..Config::new(generation, vec![1 << 16]) });
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let file = mm.declare_file(1 << 16, true);
        let (mut cx, mut ra) = (Cx::new(task, 0, process, 0), RaState::default());
        for page in 0u64.. {
            if mm.zones.iter().map(|zone| zone.free).sum::<u64>() <= free {
                break;
            }
            Read::new(page * 4096, 4096, How::Buffered).poll(&mut mm, &mut cx, file, &mut ra).unwrap();
        }
        mm.tuning.pagecache_limit_mb = 16;
        let cached = mm.lruvecs.iter().map(Lruvec::file).sum();
        (mm, cx, cached)
    }

    #[test]
    fn fifteen_sixteenths_of_the_clean_cache_are_compared_with_the_limit_once_little_is_free() {
        let (mut mm, _, cached) = reading_until(4000);
        let over = cached - cached / 16 - 16 * MIB;
        assert_eq!(mm.pagecache_over(), over);
        mm.zones[1].stat[Stat::Dirty as usize] = 1600;
        for (ignore_dirty, less) in [(0, 0), (1, 1500), (2, 750)] {
            mm.tuning.pagecache_limit_ignore_dirty = ignore_dirty;
            let fewer = over - mm.pagecache_over();
            assert!(fewer.abs_diff(less) <= 1, "{ignore_dirty}: {fewer}");
        }
        mm.tuning.pagecache_limit_mb = 0;
        assert_eq!(mm.pagecache_over(), 0);
    }

    #[test]
    fn free_memory_beyond_a_sixteenth_of_ram_raises_the_limit_eight_times() {
        let (mm, _, cached) = reading_until(8000);
        let free: u64 = mm.zones.iter().map(|zone| zone.free).sum();
        let ram: u64 = mm.zones.iter().map(|zone| zone.managed).sum();
        assert_eq!(mm.pagecache_over(), cached - cached / 16 - 16 * MIB - 8 * (free - ram / 16));
    }

    #[test]
    fn a_call_frees_a_quarter_of_what_is_over_the_limit() {
        let (mut mm, mut cx, cached) = reading_until(4000);
        let over = mm.pagecache_over();
        mm.pagecache_limit(&mut cx);
        let freed = cached - mm.lruvecs.iter().map(Lruvec::file).sum::<u64>();
        assert!((over / 4..over / 4 + SWAP_CLUSTER_MAX).contains(&freed), "{freed} of {over}");
        assert_eq!(mm.check(), Ok(()));
    }
}
