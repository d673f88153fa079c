//! Compaction (`mm/compaction.c`): pages are moved until a block of the size of a huge page is free.
//!
//! One scanner goes up through the pageblocks of a zone and takes what can be moved out of them, another goes
//! down from the end and finds free pages for it. The next compaction goes on from where they are. When they
//! meet, it has failed, and the next one begins anew: who searches for one block after the other and gives up
//! after a failure gets about as many as one passage makes. Pages of the kernel, of the pool of huge pages
//! and those that a device reads or writes stay where they are, and a pageblock that has one of them never
//! becomes free.
//!
//! Not modelled: pageblocks that are skipped because they were in vain lately, the deferral after failures,
//! kcompactd and proactive compaction, and that a task waits for pages under writeback.

use lotsfree_kernel_files::counters::vmstat;

use super::frame::{entry, flag, list};
use super::free_area::MigrateType;
use super::mmzone::Zone;
use super::page_alloc::HIGHEST;
use super::{Cx, Mm, Wait};

/// Compaction of one zone for a block of the size of a huge page (`compact_zone`), in light synchronous mode.
#[derive(Debug)]
pub(crate) struct Compaction {
    zone: usize,
    /// The first frames of the zone's pageblocks.
    blocks: Vec<u32>,
    /// The next of them to be emptied, and the last that has not been looked through for free pages.
    migrate: usize,
    free: usize,
    /// Free pages that were taken off the free lists to move others to.
    targets: Vec<u32>,
}

impl Zone {
    /// Pages that have to become free before a block of a costly order can be looked for by compaction: those
    /// up to the low mark, and twice the block (`compaction_suitable`, `compact_gap`).
    pub(super) fn lacks_for(&self, order: usize) -> u64 {
        let mark = self.low_wmark_pages() + (2 << order) + self.reserve[HIGHEST];
        (mark + 1).saturating_sub(self.free)
    }
}

impl Compaction {
    /// Compaction of a zone from where the last one ended.
    pub(crate) fn of(mm: &mut Mm, zone: usize) -> Self {
        mm.drain_all();
        let blocks: Vec<u32> = mm.frames.pageblocks_of(zone).collect();
        let (migrate, free) = mm.zones[zone].compact_cached.unwrap_or((0, blocks.len()));
        Compaction { zone, blocks, migrate, free, targets: Vec::new() }
    }

    /// Compacts, or goes on to do so, and returns whether there is such a block now.
    ///
    /// # Errors
    /// The wait after which it is to be polled again.
    pub(crate) fn poll(&mut self, mm: &mut Mm, cx: &mut Cx) -> Result<bool, Wait> {
        while self.migrate < self.free {
            let first = self.blocks[self.migrate];
            self.migrate += 1;
            self.empty(mm, cx, first);
            if mm.zones[self.zone].area.has_pageblock(MigrateType::Movable) {
                self.end(mm);
                mm.zones[self.zone].compact_cached = Some((self.migrate, self.free));
                return Ok(true);
            }
            if cx.spent >= cx.slice {
                // Others may take the free pages meanwhile.
                self.end(mm);
                return Err(Wait::YIELD);
            }
        }
        self.end(mm);
        mm.zones[self.zone].compact_cached = None;
        Ok(false)
    }

    /// Moves the pages of a pageblock elsewhere, those that can be moved (`isolate_migratepages_block`,
    /// `migrate_pages`).
    fn empty(&mut self, mm: &mut Mm, cx: &mut Cx, first: u32) {
        let pages = mm.zones[self.zone].area.sizes.pageblock_pages();
        if mm.frames[first as usize].has(flag::KERNEL) && mm.frames[first as usize].has(flag::HUGETLB) {
            // A huge page of the pool is looked at once.
            mm.events[vmstat::compact_migrate_scanned] += 1;
            return;
        }
        cx.spend(mm.costs.walk * u64::from(pages));
        mm.events[vmstat::compact_migrate_scanned] += u64::from(pages);
        for from in first..first + pages {
            if !mm.is_migratable(from) {
                continue;
            }
            let Some(to) = self.target(mm, cx) else { return };
            mm.events[vmstat::compact_isolated] += 1;
            mm.migrate_page(from, to);
            cx.spend(mm.costs.copy + mm.costs.free);
            mm.zones[self.zone].free_one_page(&mut mm.frames, from, 0);
        }
    }

    /// The next free page to move one to (`compaction_alloc`, `isolate_freepages`).
    fn target(&mut self, mm: &mut Mm, cx: &mut Cx) -> Option<u32> {
        while self.targets.is_empty() && self.free > self.migrate {
            self.free -= 1;
            let first = self.blocks[self.free];
            let pages = mm.zones[self.zone].area.sizes.pageblock_pages();
            cx.spend(mm.costs.walk * u64::from(pages));
            mm.events[vmstat::compact_free_scanned] += u64::from(pages);
            mm.zones[self.zone].isolate_free_pages(&mut mm.frames, first, &mut self.targets);
            mm.events[vmstat::compact_isolated] += self.targets.len() as u64;
        }
        self.targets.pop()
    }

    /// Gives back the free pages that were not used, to be found again (`release_freepages`).
    fn end(&mut self, mm: &mut Mm) {
        self.free += usize::from(!self.targets.is_empty());
        for frame in self.targets.drain(..) {
            mm.frames[frame as usize].flags &= flag::ZONE;
            mm.zones[self.zone].free_one_page(&mut mm.frames, frame, 0);
        }
    }
}

impl Mm {
    /// Whether a page can be moved: it is on a list of reclaim, and no device reads or writes it.
    fn is_migratable(&self, frame: u32) -> bool {
        let f = &self.frames[frame as usize];
        f.list() != list::NONE
            && !f.has(flag::LOCKED | flag::WRITEBACK)
            && self.objects.at(f.slot).huge.is_empty()
    }

    /// Moves a page to a free frame of the same zone (`migrate_pages`). The old frame is then as one that was
    /// taken off the free lists, and on no list.
    fn migrate_page(&mut self, from: u32, to: u32) {
        let f = self.frames[from as usize];
        let which = f.counts_in();
        self.lru_remove(from);
        let state = self.frames[from as usize].flags & !flag::ZONE;
        self.frames[from as usize].flags &= flag::ZONE;
        let target = &mut self.frames[to as usize];
        target.flags = (target.flags & flag::ZONE) | state;
        target.slot = f.slot;
        let e = &mut self.entries[f.slot as usize];
        *e = (*e & !entry::VALUE) | to;
        self.swap.moved(from, to);
        self.move_buffers(from, to);
        self.lru_add(to, which);
        self.events[vmstat::pgmigrate_success] += 1;
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_workload::{Policy, RegionId};

    use super::super::{Config, Fault, Lock, SetPool, Stop};
    use super::*;
    use crate::Generation;

    const KEPT: RegionId = RegionId(0);
    const GIVEN_BACK: RegionId = RegionId(1);

    /// A machine of 256 MiB without swap, half of which a process keeps and a third of which it gives back:
    /// it has touched the pages of both in turn.
    fn fragmented(kernel: &str) -> (Mm, Cx) {
        let mut mm = Mm::new(&Config::new(Generation::named(kernel).unwrap(), vec![1 << 16]));
        let mut cx = Cx::new(mm.create_task(), 0, mm.create_process(Policy::Local), 0);
        for (region, pages) in [(KEPT, 1 << 15), (GIVEN_BACK, 1 << 14)] {
            Lock::mmap(region, pages).poll(&mut mm, &mut cx).unwrap();
        }
        for page in 0..1 << 14 {
            for (region, page) in [(KEPT, 2 * page), (GIVEN_BACK, page), (KEPT, 2 * page + 1)] {
                Fault::new(region, page, true).poll(&mut mm, &mut cx).unwrap();
            }
        }
        mm.unmap(&mut cx, GIVEN_BACK).unwrap();
        mm.drain_all();
        (mm, cx)
    }

    /// Sets the pool to the end, and checks everything whenever the task could be interrupted.
    fn set(mm: &mut Mm, cx: &mut Cx, pages: u64) -> Result<(), Stop> {
        set_and(mm, cx, pages, |mm| assert_eq!(mm.check(), Ok(())))
    }

    fn set_and(mm: &mut Mm, cx: &mut Cx, pages: u64, check: impl Fn(&Mm)) -> Result<(), Stop> {
        let mut set = SetPool::new(pages);
        loop {
            cx.spent = 0;
            match set.poll(mm, cx) {
                Err(Stop::Wait(_)) => check(mm),
                done => return done,
            }
        }
    }

    #[test]
    fn pages_that_lie_between_free_ones_are_moved_and_stay_in_memory() {
        for kernel in ["linux-3.10", "linux-6.1", "linux-6.12+mglru"] {
            let (mut mm, mut cx) = fragmented(kernel);
            let (free, rss) =
                (mm.zones.iter().map(|zone| zone.free).sum::<u64>(), mm.rss(cx.process).total());
            assert_eq!(mm.huge_pages().total, 0);
            let wanted = free / 512 / 2;
            assert_eq!(set(&mut mm, &mut cx, wanted), Ok(()), "{kernel}");
            assert_eq!((mm.huge_pages().total, mm.huge_pages().free), (wanted, wanted), "{kernel}");
            assert!(mm.events[vmstat::pgmigrate_success] > 0, "{kernel}");
            assert_eq!(mm.rss(cx.process).total(), rss, "{kernel}: nothing had to go");
            assert_eq!(mm.check(), Ok(()), "{kernel}");
            for page in 0..1 << 15 {
                Fault::new(KEPT, page, true).poll(&mut mm, &mut cx).unwrap();
            }
            set(&mut mm, &mut cx, 0).unwrap();
            mm.drain_all();
            assert_eq!(mm.zones.iter().map(|zone| zone.free).sum::<u64>(), free, "{kernel}");
        }
    }

    #[test]
    fn the_pool_gets_no_more_than_can_be_moved_away_or_evicted() {
        let (mut mm, mut cx) = fragmented("linux-6.1");
        assert_eq!(set(&mut mm, &mut cx, 1 << 20), Err(Stop::Pool));
        let got = mm.huge_pages().total;
        // The 128 MiB that are kept are anonymous, and there is no swap.
        assert!((30..64).contains(&got), "{got} of 128 huge pages");
        assert_eq!(mm.check(), Ok(()));
        assert!(mm.events[vmstat::htlb_buddy_alloc_fail] > 0);
    }

    #[test]
    fn one_page_that_cannot_be_moved_keeps_its_whole_pageblock() {
        let (mut mm, mut cx) = fragmented("linux-6.1");
        // A page of each pageblock is being written, though no device knows of it.
        for zone in 0..mm.zones.len() {
            let firsts: Vec<u32> = mm.frames.pageblocks_of(zone).collect();
            for first in firsts {
                let pinned = (first..first + 512).find(|&frame| mm.is_migratable(frame));
                pinned.inspect(|&frame| mm.frames[frame as usize].flags |= flag::WRITEBACK);
            }
        }
        assert_eq!(set_and(&mut mm, &mut cx, 1 << 20, |_| ()), Err(Stop::Pool));
        let free_blocks = mm.huge_pages().total;
        let (mut movable, mut cx) = fragmented("linux-6.1");
        set(&mut movable, &mut cx, 1 << 20).unwrap_err();
        assert!(free_blocks < movable.huge_pages().total, "{free_blocks} huge pages");
    }
}
