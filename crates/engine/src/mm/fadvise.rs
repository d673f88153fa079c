//! Advice on files and mappings (`mm/fadvise.c`, `mm/madvise.c`, `mm/swap.c`: `deactivate_file_folio`).

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_units::Bytes;
use lotsfree_workload::{Advice, RegionId};

use super::frame::{entry, flag, list};
use super::page_alloc::Alloc;
use super::readahead::RaState;
use super::wbt::Writer;
use super::{Cx, Device, Done, Mm, Stop, Wait, WaitReason};

/// What WILLNEED reads at a time (`force_page_cache_ra`).
const CHUNK: Bytes = Bytes::mib(2);

/// `posix_fadvise` on `len` bytes of a file from `offset` on; a `len` of 0 means to the end.
#[derive(Debug)]
pub struct Fadvise {
    offset: u64,
    len: u64,
    advice: Advice,
    stage: Stage,
}

/// How far the call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    /// `DONTNEED`: dirty pages of the range are written from this page of the file on.
    Writes(u32),
    /// `DONTNEED`: pages of the range are dropped.
    Drops,
}

impl Fadvise {
    /// The call on a file that each poll names.
    pub fn new(offset: u64, len: u64, advice: Advice) -> Self {
        Fadvise { offset, len, advice, stage: Stage::New }
    }

    /// Takes the advice, or goes on to do so. `ra` is the readahead state of the open file.
    ///
    /// # Errors
    /// [`Stop::Bad`] if there is no such file; a wait while the device takes no more writes.
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx, number: u32, ra: &mut RaState) -> Done {
        let Fadvise { offset, len, advice, stage } = *self;
        let pages = mm.objects.file(number)?.pages;
        if stage == Stage::New {
            cx.spend(mm.costs.syscall);
        }
        let (page, size) = (mm.page, mm.page.of(pages.into()).0);
        let end = if len == 0 { size } else { offset.saturating_add(len).min(size) };
        if offset >= end && !matches!(advice, Advice::Normal | Advice::Sequential | Advice::Random) {
            return Ok(());
        }
        match advice {
            Advice::Normal | Advice::Sequential | Advice::Random => ra.advice = advice,
            Advice::WillNeed => {
                let (first, last) = (page.pages(Bytes(offset)) as u32, page.pages_for(Bytes(end)) as u32);
                mm.read_ahead_of_need(cx, number, first, last, ra.advice);
            }
            Advice::DontNeed => {
                let (first, last) = (page.pages(Bytes(offset)) as u32, page.pages_for(Bytes(end)) as u32);
                if stage == Stage::New {
                    // Before 5.16, nothing is written if the device is congested.
                    let congested = !mm.generation.reclaim_throttle && mm.queues.is_congested();
                    self.stage = if congested { Stage::Drops } else { Stage::Writes(first) };
                }
                if let Stage::Writes(at) = &mut self.stage {
                    mm.write_range(cx, number, at, last)?;
                    self.stage = Stage::Drops;
                }
                // Only whole pages are dropped; the file's last page counts as whole.
                let (first, last) = (page.pages_for(Bytes(offset)) as u32, page.pages(Bytes(end)) as u32);
                mm.invalidate_range(cx, number, first, last);
            }
            Advice::HugePage | Advice::NoHugePage => return Err(Stop::Bad),
        }
        Ok(())
    }
}

/// `madvise` on a whole region.
#[derive(Debug)]
pub struct Madvise {
    region: RegionId,
    advice: Advice,
    /// It has been charged.
    begun: bool,
    /// `WILLNEED`: pages before this one are in memory, or on their way.
    page: u32,
    alloc: Alloc,
}

impl Madvise {
    /// The advice on a region of the caller's process.
    pub fn new(region: RegionId, advice: Advice) -> Self {
        Madvise { region, advice, begun: false, page: 0, alloc: Alloc::default() }
    }

    /// Takes the advice, or goes on to do so.
    ///
    /// # Errors
    /// [`Stop::Bad`] if there is no such region, or if what is locked is said not to be needed; a wait for
    /// the memory into which pages are swapped in.
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx) -> Done {
        let process = mm.processes.get_mut(cx.process);
        let Some(vma) = process.and_then(|process| process.vma_mut(self.region)) else {
            return Err(Stop::Bad);
        };
        let (number, copies, pages, which) = (vma.object, vma.copies, vma.pages, vma.which as usize);
        if !self.begun {
            self.begun = true;
            cx.spend(mm.costs.syscall);
        }
        let file = mm.objects[number].file;
        let shared = !mm.objects[number].is_private();
        match self.advice {
            Advice::Normal | Advice::Sequential | Advice::Random => vma.advice = self.advice,
            Advice::DontNeed if vma.locked => return Err(Stop::Bad),
            Advice::HugePage => vma.huge = true,
            Advice::NoHugePage => vma.huge = false,
            Advice::WillNeed if file => mm.read_ahead_of_need(cx, number, 0, pages, Advice::Normal),
            Advice::WillNeed if mm.objects[number].hugetlb => {}
            Advice::WillNeed => return self.swap_in(mm, cx, number, pages),
            Advice::DontNeed => {
                if shared {
                    mm.zap_shared_pages(cx, number, which);
                }
                if let Some(anon) = copies.or((!shared).then_some(number)) {
                    mm.zap_huge_pages(anon);
                    mm.zap_anon_pages(cx, anon);
                }
            }
        }
        Ok(())
    }

    /// Starts to read pages that are on swap (`madvise_willneed`), until there is no memory for them.
    fn swap_in(&mut self, mm: &mut Mm, cx: &mut Cx, number: u32, pages: u32) -> Done {
        let base = mm.objects[number].base;
        while self.page < pages {
            let slot = base + self.page;
            let read = match entry::is(mm.entries[slot as usize]) {
                entry::Is::Swap(swap) => {
                    mm.swapin_readahead(cx, &mut self.alloc, number, slot, swap).map(drop)
                }
                _ => mm.drop_alloc(cx, &mut self.alloc),
            };
            match read {
                Err(Stop::OutOfMemory) => return Ok(()),
                read => read?,
            }
            self.alloc.forget();
            self.page += 1;
            if cx.spent >= cx.slice && self.page < pages {
                return Err(Wait::YIELD.into());
            }
        }
        Ok(())
    }
}

impl Mm {
    /// Starts to read absent pages (`force_page_cache_ra`), at most as many as the larger of a request and a
    /// window.
    fn read_ahead_of_need(&mut self, cx: &mut Cx, number: u32, first: u32, last: u32, advice: Advice) {
        let most = self.request_pages().max(self.ra_pages(advice));
        let last = last.min(first.saturating_add(most));
        let mut at = first;
        while at < last {
            let count = (self.page.pages(CHUNK) as u32).min(last - at);
            // Nobody waits for these pages: those for which there is no memory are left out.
            let _ = self.read_pages(cx, number, at, count, 0, None);
            at += count;
        }
    }

    /// Starts to write the dirty pages from `at` to `last` (`__filemap_fdatawrite_range` without waiting for
    /// the data), and moves `at` on.
    fn write_range(&mut self, cx: &mut Cx, number: u32, at: &mut u32, last: u32) -> Done {
        while *at < last {
            if self.queue_full(cx, Device::Disk, Writer::Task) {
                return Err(self.wait_for_room(cx, Device::Disk, Writer::Task, WaitReason::Io).into());
            }
            *at = self.write_run(cx, number, *at, last);
        }
        Ok(())
    }

    /// `invalidate_mapping_pages`, with `deactivate_file_folio` for the pages that have to stay.
    fn invalidate_range(&mut self, cx: &mut Cx, number: u32, first: u32, last: u32) {
        let base = self.objects[number].base;
        for slot in base + first..base + last.max(first) {
            let Some(frame) = entry::frame(self.entries[slot as usize]) else { continue };
            cx.spend(self.costs.scan);
            if !self.frames[frame as usize].has(flag::LOCKED) && !self.invalidate(cx, frame) {
                self.deactivate_file_page(frame);
            }
        }
    }

    fn deactivate_file_page(&mut self, frame: u32) {
        let f = self.frames[frame as usize];
        if f.list() == list::UNEVICTABLE || self.is_mapped(frame) {
            return;
        }
        if list::is_active(f.list()) {
            self.events[vmstat::pgdeactivate] += 1;
        }
        let to = self.generation.policy.list_to_reclaim(self, frame);
        let busy = f.has(flag::DIRTY | flag::WRITEBACK);
        let flags = &mut self.frames[frame as usize].flags;
        *flags &= !flag::REFERENCED;
        if busy {
            // The page is reclaimed when it has been written.
            *flags |= flag::RECLAIM;
        } else {
            self.events[vmstat::pgrotated] += 1;
        }
        self.lru_move(frame, to, !busy);
    }

    /// Removes the pages of a file or of shared memory from one page table; they stay in the page cache.
    fn zap_shared_pages(&mut self, cx: &mut Cx, number: u32, which: usize) {
        self.zap_ptes(number, which);
        cx.spend(u64::from(self.objects[number].pages) * self.costs.walk);
    }

    /// Frees anonymous memory: the next touch finds zeroes. Pages that are on their way to or from swap leave
    /// the page table and are left to reclaim.
    fn zap_anon_pages(&mut self, cx: &mut Cx, number: u32) {
        let (base, pages) = (self.objects[number].base, self.objects[number].pages);
        cx.spend(u64::from(pages) * self.costs.walk);
        for slot in base..base + pages {
            match entry::is(self.entries[slot as usize]) {
                entry::Is::Mapped(frame) | entry::Is::Resident(frame) => {
                    self.drop_page(cx, frame);
                }
                entry::Is::Swap(swap) => {
                    self.free_swap(cx, swap);
                    self.entries[slot as usize] = entry::EMPTY;
                }
                entry::Is::Shadow(_) | entry::Is::Empty => self.entries[slot as usize] = entry::EMPTY,
            }
        }
    }
}
