//! Readahead windows (`mm/readahead.c`, `mm/filemap.c`).

use lotsfree_units::Bytes;
use lotsfree_workload::{Advice, RegionId};

use super::frame::{entry, flag};
use super::object::Object;
use super::page_alloc::Alloc;
use super::{Cx, Device, IoRequest, Mm, Stop};

/// MMAP_LOTSAMISS
const MMAP_LOTSAMISS: u32 = 100;

/// Readahead state of an open file (`file_ra_state`).
#[derive(Clone, Copy, Debug)]
pub struct RaState {
    /// First page and size of the window.
    pub(crate) start: u32,
    pub(crate) size: u32,
    /// Size of the last part of the window. Reading the first page of this part starts the next window.
    pub(crate) async_size: u32,
    /// The order of the folios that the last window could have had.
    pub(crate) order: u32,
    /// Last page that was read; `u32::MAX` before the first.
    pub(crate) prev: u32,
    /// The advice given for the file.
    pub(crate) advice: Advice,
}

impl Default for RaState {
    fn default() -> Self {
        RaState { start: 0, size: 0, async_size: 0, order: 0, prev: u32::MAX, advice: Advice::Normal }
    }
}

/// MAX_PAGECACHE_ORDER: the largest folio of a file is as large as a huge page.
const MAX_ORDER: u32 = 9;

impl RaState {
    /// Lets the next window end at a multiple of the folios that it may have, four times as large as those of
    /// the last (`page_cache_async_ra`, `page_cache_ra_order`). `max` is the largest window.
    fn end_aligned(&mut self, max: u32) {
        self.order += 2;
        let align = 1 << self.order.min(max.trailing_zeros());
        let end = self.start + self.size;
        let aligned = end / align * align;
        if aligned > self.start {
            self.size -= end - aligned;
        }
        self.order = self.order.min(MAX_ORDER).min(self.size.ilog2());
    }
}

/// Pages next to each other that are read in one request.
struct Run {
    /// Slot of the first.
    start: u32,
    frames: Vec<u32>,
}

/// `get_init_ra_size`
fn initial(request: u32, max: u32) -> u32 {
    let rounded = request.next_power_of_two();
    if rounded <= max / 32 {
        rounded * 4
    } else if rounded <= max / 4 {
        rounded * 2
    } else {
        max
    }
}

/// `get_next_ra_size`
fn next(current: u32, max: u32) -> u32 {
    if current < max / 16 {
        4 * current
    } else if current <= max / 2 {
        2 * current
    } else {
        max
    }
}

impl Mm {
    /// The largest window under an advice, in pages.
    pub(crate) fn ra_pages(&self, advice: Advice) -> u32 {
        let max = self.page.pages(Bytes::kib(self.tuning.read_ahead_kb)) as u32;
        match advice {
            Advice::Random => 0,
            Advice::Sequential => max * 2,
            _ => max,
        }
    }

    /// The largest window for a read of `request` pages: a read that is larger than the window may have a
    /// request of the disk (`ractl_max_pages`; 4.10 on, 9491ae4aade6).
    fn max_pages(&self, advice: Advice, request: u32) -> u32 {
        let max = self.ra_pages(advice);
        match self.generation.readahead_io_pages {
            true if max > 0 && request > max => max.max(request.min(self.request_pages())),
            _ => max,
        }
    }

    /// Handles a read of `request` pages from `page` on that missed the cache (`page_cache_sync_ra`): reads a
    /// window for it.
    pub(crate) fn sync_readahead(
        &mut self,
        cx: &mut Cx,
        alloc: &mut Alloc,
        number: u32,
        ra: &mut RaState,
        page: u32,
        request: u32,
    ) -> Result<(), Stop> {
        let request = request.max(1);
        let max = self.max_pages(ra.advice, request);
        if max == 0 {
            return self.read_pages(cx, number, page, request, 0, Some((page, alloc)));
        }
        let sequential = page == 0 || (ra.prev != u32::MAX && page.wrapping_sub(ra.prev) <= 1);
        if !sequential && request <= max {
            // If enough pages before it are cached, the read is taken for a part of a stream.
            let object = &self.objects[number];
            let history = (1..=max)
                .take_while(|&back| {
                    page.checked_sub(back)
                        .is_some_and(|p| entry::frame(self.entries[(object.base + p) as usize]).is_some())
                })
                .count() as u32;
            if history <= request {
                return self.read_pages(cx, number, page, request, 0, Some((page, alloc)));
            }
            ra.start = page;
            ra.size = (history + request).min(max);
            ra.async_size = 1;
        } else {
            ra.start = page;
            ra.size = initial(request, max);
            ra.async_size = if ra.size > request { ra.size - request } else { ra.size };
        }
        // The mark would be on the page that was just read, so this window and the next one are read in one
        // go.
        if ra.async_size == ra.size && page == ra.start {
            let more = next(ra.size, max);
            (ra.size, ra.async_size) = match ra.size + more {
                both if both <= max => (both, more),
                _ if self.generation.readahead_io_pages => (max, max / 2),
                both => (both.min(max.max(ra.size)), more),
            };
        }
        ra.order = 0;
        self.read_pages(cx, number, ra.start, ra.size, ra.async_size, Some((page, alloc)))
    }

    /// Starts the next window after a read, of which `request` pages are left, met the page that is marked
    /// for it (`page_cache_async_ra`).
    pub(crate) fn async_readahead(
        &mut self,
        cx: &mut Cx,
        number: u32,
        ra: &mut RaState,
        page: u32,
        request: u32,
    ) {
        let max = self.max_pages(ra.advice, request);
        // Reads have a queue of their own, which one window per reader does not fill; it is never congested.
        if max == 0 {
            return;
        }
        let expected = ra.start + ra.size - ra.async_size.min(ra.size);
        if page == expected || page == ra.start + ra.size {
            ra.start += ra.size;
            ra.size = next(ra.size, max);
        } else {
            // The mark belongs to somebody else's window: the stream goes on at the next hole after the page.
            let object = &self.objects[number];
            let (base, pages) = (object.base, object.pages);
            let hole = (page + 1..pages.min(page + 1 + max))
                .find(|&p| entry::frame(self.entries[(base + p) as usize]).is_none());
            let Some(hole) = hole else { return };
            ra.start = hole;
            ra.size = next((hole - page).max(1), max);
        }
        if self.generation.aligns_readahead {
            ra.end_aligned(max);
        }
        ra.async_size = ra.size;
        // Nobody waits for these pages: those for which there is no memory are left out.
        let _ = self.read_pages(cx, number, ra.start, ra.size, ra.async_size, None);
    }

    /// Handles a fault on a mapping that missed the cache: read-around (`do_sync_mmap_readahead`). `counts`
    /// says that the miss has not been counted yet.
    pub(crate) fn mmap_readahead(
        &mut self,
        cx: &mut Cx,
        alloc: &mut Alloc,
        id: RegionId,
        (number, page): (u32, u32),
        counts: bool,
    ) -> Result<(), Stop> {
        let Some(vma) = self.processes[cx.process].vma_mut(id) else {
            return Err(Stop::Bad);
        };
        let advice = vma.advice;
        if advice == Advice::Random {
            return self.read_page(cx, alloc, number, page);
        }
        let mut ra = vma.ra;
        // What is told about its order is not judged by its misses.
        if counts && advice == Advice::Normal {
            vma.mmap_miss = (vma.mmap_miss + 1).min(10 * MMAP_LOTSAMISS);
        }
        let too_many = vma.mmap_miss > MMAP_LOTSAMISS;
        let max = self.ra_pages(Advice::Normal);
        let result = match advice {
            Advice::Sequential => {
                ra.advice = Advice::Sequential;
                let result = self.sync_readahead(cx, alloc, number, &mut ra, page, 1);
                ra.prev = page;
                result
            }
            _ if too_many || max == 0 => self.read_page(cx, alloc, number, page),
            _ => {
                ra.start = page.saturating_sub(max / 2);
                ra.size = max;
                ra.async_size = max / 4;
                ra.order = 0;
                self.read_pages(cx, number, ra.start, ra.size, ra.async_size, Some((page, alloc)))
            }
        };
        if let Some(vma) = self.processes[cx.process].vma_mut(id) {
            vma.ra = ra;
        }
        result
    }

    /// Counts cached pages that faults met (`do_async_mmap_readahead`, `filemap_map_pages`).
    pub(crate) fn mmap_hits(&mut self, cx: &Cx, id: RegionId, hits: u32) {
        if let Some(vma) = self.processes[cx.process].vma_mut(id) {
            vma.mmap_miss = vma.mmap_miss.saturating_sub(hits);
        }
    }

    /// Starts the next window after a fault met the page that is marked for it.
    pub(crate) fn mmap_async_readahead(&mut self, cx: &mut Cx, id: RegionId, number: u32, page: u32) {
        let slot = self.objects[number].base + page;
        if let Some(frame) = entry::frame(self.entries[slot as usize]) {
            self.frames[frame as usize].flags &= !flag::READAHEAD;
        }
        let Some(vma) = self.processes[cx.process].vma(id) else { return };
        if vma.advice == Advice::Random {
            return;
        }
        let mut ra = vma.ra;
        let request = self.ra_pages(Advice::Normal);
        self.async_readahead(cx, number, &mut ra, page, request);
        if let Some(vma) = self.processes[cx.process].vma_mut(id) {
            vma.ra = ra;
        }
    }

    /// Brings one page into the cache if it is not there, as [`read_pages`](Self::read_pages) does for a
    /// window of one page that is wanted.
    #[inline(always)]
    pub(crate) fn read_page(
        &mut self,
        cx: &mut Cx,
        alloc: &mut Alloc,
        number: u32,
        page: u32,
    ) -> Result<(), Stop> {
        let Object { base, pages, hole, .. } = self.objects[number];
        if page >= pages {
            return Ok(());
        }
        let slot = base + page;
        let e = self.entries[slot as usize];
        if entry::frame(e).is_some() {
            return Ok(());
        }
        let ac = alloc.context(self, cx, Some(page), false);
        let frame = alloc.poll(self, cx, &ac)?;
        self.add_to_page_cache(cx, frame, slot, false);
        if hole && e == entry::EMPTY {
            cx.spend(self.costs.zero);
            return Ok(());
        }
        self.read_folio(cx, slot, frame);
        Ok(())
    }

    /// Reads a page of the page cache from the disk (`filemap_read_folio`).
    pub(super) fn read_folio(&mut self, cx: &mut Cx, slot: u32, frame: u32) {
        if self.instant_reads {
            return self.read_at_once(cx, self.page.kib(1));
        }
        self.frames[frame as usize].flags |= flag::LOCKED;
        let mut run = self.flights.frames();
        run.push(frame);
        self.submit_read(cx, slot, run);
    }

    /// Brings the absent pages of a window into the cache. The page `wanted` is allocated by all means,
    /// including reclaim, with the allocation beside it, the others only if that is easy. Pages that were
    /// never written are zeroed, the others are read.
    pub(crate) fn read_pages(
        &mut self,
        cx: &mut Cx,
        number: u32,
        first: u32,
        count: u32,
        async_size: u32,
        mut wanted: Option<(u32, &mut Alloc)>,
    ) -> Result<(), Stop> {
        let object = &self.objects[number];
        let (base, pages, hole) = (object.base, object.pages, object.hole);
        let end = first.saturating_add(count).min(pages);
        let mark = first.saturating_add(count).saturating_sub(async_size);
        // If the wanted page is waited for, those before it have had their turn.
        let first =
            wanted.as_ref().filter(|(_, alloc)| alloc.is_under_way()).map_or(first, |(page, _)| *page);
        let mut run = Run { start: 0, frames: self.flights.frames() };
        for page in first..end {
            let slot = base + page;
            let e = self.entries[slot as usize];
            if entry::frame(e).is_some() {
                self.submit_run(cx, &mut run);
                continue;
            }
            let frame = match &mut wanted {
                Some((wanted, alloc)) if *wanted == page => {
                    Some(self.alloc_wanted(cx, alloc, page, &mut run)?)
                }
                _ => {
                    let ac = self.alloc_context(cx, Some(page), false);
                    self.alloc_page_light(cx, &ac)
                }
            };
            let Some(frame) = frame else {
                self.submit_run(cx, &mut run);
                // A page behind the wanted one for which there is no memory ends the window.
                match &wanted {
                    Some((wanted, _)) if page > *wanted => return Ok(()),
                    _ => continue,
                }
            };
            self.add_to_page_cache(cx, frame, slot, false);
            if async_size > 0 && page == mark {
                self.frames[frame as usize].flags |= flag::READAHEAD;
            }
            if e == entry::EMPTY && hole {
                cx.spend(self.costs.zero);
                self.submit_run(cx, &mut run);
                continue;
            }
            self.frames[frame as usize].flags |= flag::LOCKED;
            if run.frames.is_empty() {
                run.start = slot;
            }
            run.frames.push(frame);
        }
        self.submit_run(cx, &mut run);
        Ok(())
    }

    /// Allocates the page of a window that is waited for. The pages before it are on their way while the
    /// caller reclaims.
    fn alloc_wanted(
        &mut self,
        cx: &mut Cx,
        alloc: &mut Alloc,
        page: u32,
        run: &mut Run,
    ) -> Result<u32, Stop> {
        let ac = alloc.context(self, cx, Some(page), false);
        if let Some(frame) = alloc.fast(self, cx, &ac) {
            return Ok(frame);
        }
        self.submit_run(cx, run);
        alloc.slow(self, cx)
    }

    fn submit_run(&mut self, cx: &mut Cx, run: &mut Run) {
        self.submit_read(cx, run.start, std::mem::take(&mut run.frames));
    }

    fn submit_read(&mut self, cx: &mut Cx, start: u32, frames: Vec<u32>) {
        if frames.is_empty() {
            return;
        }
        let pages = frames.len() as u32;
        let request = IoRequest {
            device: Device::Disk,
            write: false,
            sync: true,
            start: u64::from(start),
            pages,
            queued: super::Queued::Apart,
        };
        self.submit(cx, request, frames);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_as_the_kernel_s_do() {
        assert_eq!([1, 2, 4, 8, 32, 100].map(|request| initial(request, 32)), [4, 4, 8, 16, 32, 32]);
        assert_eq!([1, 4, 16, 32].map(|size| next(size, 32)), [4, 8, 32, 32]);
    }

    #[test]
    fn windows_end_where_ever_larger_folios_would() {
        let mut ra = RaState { start: 7, size: 8, ..RaState::default() };
        let windows: Vec<(u32, u32)> = (0..5)
            .map(|_| {
                (ra.start, ra.size) = (ra.start + ra.size, next(ra.size, 32));
                ra.end_aligned(32);
                (ra.start, ra.size)
            })
            .collect();
        // The ends are multiples of 4, 16 and 32, which is the largest window.
        assert_eq!(windows, [(15, 13), (28, 20), (48, 16), (64, 32), (96, 32)]);
        // A window that ends in the folio in which it begins is left as it is.
        let mut short = RaState { start: 33, size: 2, order: 3, ..RaState::default() };
        short.end_aligned(32);
        assert_eq!((short.start, short.size, short.order), (33, 2, 1));
    }
}
