//! The page cache under `read` and `write` (`mm/filemap.c`).

use lotsfree_units::{Bytes, PageSize};
use lotsfree_workload::How;

use super::frame::{entry, flag};
use super::object::Backing;
use super::page_alloc::Alloc;
use super::policy::Arrival;
use super::readahead::RaState;
use super::vmstat::Stat;
use super::workingset::Change;
use super::{BLOCK, Cx, Device, Done, IoRequest, Mm, Stop, Wait};

/// A `pread` or `pwrite`, and how far it has come.
#[derive(Debug)]
struct Transfer {
    offset: u64,
    len: u64,
    how: How,
    /// Pages go into a pipe and are not copied to the caller.
    piped: bool,
    /// It has been charged.
    begun: bool,
    /// The inode of the file that is written has changed.
    noted: bool,
    /// Bytes that are read or written.
    done: u64,
    /// `O_DIRECT`: the request has been sent.
    sent: bool,
    alloc: Alloc,
}

impl Transfer {
    fn new(offset: u64, len: u32, how: How) -> Self {
        let (len, alloc) = (u64::from(len), Alloc::default());
        Transfer { offset, len, how, piped: false, begun: false, noted: false, done: 0, sent: false, alloc }
    }

    /// A part of a call that was charged as a whole.
    fn part(offset: u64, len: u32) -> Self {
        Transfer { begun: true, ..Transfer::new(offset, len, How::Buffered) }
    }

    /// Charges the call.
    fn begin(&mut self, mm: &Mm, cx: &mut Cx) {
        if !self.begun {
            self.begun = true;
            cx.spend(mm.costs.syscall);
        }
    }

    /// `O_DIRECT`: writes and drops cached pages of the range, then sends a request to the device, and is
    /// done when that has completed.
    fn direct(&mut self, mm: &mut Mm, cx: &mut Cx, number: u32, len: u64, write: bool) -> Done {
        if len == 0 || self.sent {
            return Ok(());
        }
        let base = mm.objects[number].base;
        let end = self.offset + len;
        let (first, last) = ((self.offset >> mm.page.shift()) as u32, mm.page.pages_for(Bytes(end)) as u32);
        let busy = |slot: u32| {
            entry::frame(mm.entries[slot as usize])
                .is_some_and(|frame| mm.frames[frame as usize].has(flag::DIRTY | flag::WRITEBACK))
        };
        if (base + first..base + last).any(busy) {
            mm.filemap_write_and_wait(cx, number)?;
        }
        for slot in base + first..base + last {
            if let Some(frame) = entry::frame(mm.entries[slot as usize])
                && !mm.is_mapped(frame)
            {
                mm.invalidate(cx, frame);
            }
            if write && entry::frame(mm.entries[slot as usize]).is_none() {
                mm.forget_shadows(cx, slot..slot + 1);
                mm.entries[slot as usize] = entry::ON_DISK;
            }
        }
        // The device transfers blocks, not whole pages.
        let start = self.offset / BLOCK;
        let request = IoRequest {
            device: Device::Disk,
            write,
            sync: true,
            start: u64::from(base) * u64::from(mm.blocks()) + start,
            pages: (end.div_ceil(BLOCK) - start) as u32,
            queued: super::Queued::Apart,
        };
        self.sent = true;
        Err(Wait::io(mm.submit(cx, request, Vec::new())).into())
    }
}

/// `pread`
#[derive(Debug)]
pub struct Read(Transfer);

impl Read {
    /// A read of a file that each poll names.
    pub fn new(offset: u64, len: u32, how: How) -> Self {
        Read(Transfer::new(offset, len, how))
    }

    /// A read within a call that was charged already; a pipe takes the pages themselves.
    pub(super) fn into_pipe(offset: u64, len: u32) -> Self {
        Read(Transfer { piped: true, ..Transfer::part(offset, len) })
    }

    /// Reads, or goes on to do so, up to the end of the file. `ra` is the readahead state of the open file.
    ///
    /// # Errors
    /// The wait after which it is to be polled again; [`Stop::OutOfMemory`]; [`Stop::Bad`] if there is no
    /// such file.
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx, number: u32, ra: &mut RaState) -> Done {
        if mm.page == PageSize::X86 {
            self.read::<true>(mm, cx, number, ra)
        } else {
            self.read::<false>(mm, cx, number, ra)
        }
    }

    /// The same. Runs spend much of their time here, and less if the size of a page is a constant.
    fn read<const FOUR_KIB: bool>(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        number: u32,
        ra: &mut RaState,
    ) -> Done {
        let call = &mut self.0;
        let pages = mm.objects.file(number)?.pages;
        call.begin(mm, cx);
        let shift = if FOUR_KIB { PageSize::X86.shift() } else { mm.page.shift() };
        let page_size = 1 << shift;
        let len = call.len.min(mm.page.of(pages.into()).0.saturating_sub(call.offset));
        if call.how == How::Direct {
            return call.direct(mm, cx, number, len, false);
        }
        let end = mm.page.pages_for(Bytes(call.offset + len)) as u32;
        while call.done < len {
            let at = call.offset + call.done;
            let page = (at >> shift) as u32;
            let slot = mm.objects[number].base + page;
            let Some(frame) = entry::frame(mm.entries[slot as usize]) else {
                mm.sync_readahead(cx, &mut call.alloc, number, ra, page, end - page)?;
                if entry::frame(mm.entries[slot as usize]).is_none() {
                    return Err(Wait::YIELD.into());
                }
                continue;
            };
            let locked = mm.frames[frame as usize].has(flag::LOCKED);
            if mm.frames[frame as usize].has(flag::READAHEAD) {
                // The reader holds the page, so that zone reclaim for the next window cannot free it.
                let flags = &mut mm.frames[frame as usize].flags;
                *flags = (*flags & !flag::READAHEAD) | flag::LOCKED;
                mm.async_readahead(cx, number, ra, page, end - page);
                if !locked {
                    mm.frames[frame as usize].flags &= !flag::LOCKED;
                }
            }
            if locked {
                return Err(mm.wait_locked(frame).into());
            }
            let part = (page_size - (at & (page_size - 1))).min(len - call.done);
            if !call.piped {
                cx.spend(mm.costs.copy * if FOUR_KIB { 1 } else { part.div_ceil(BLOCK) });
            }
            if ra.prev != page {
                mm.generation.policy.touch(mm, frame);
            }
            ra.prev = page;
            call.done += part;
            call.alloc.forget();
            if cx.spent >= cx.slice && call.done < len {
                return Err(Wait::YIELD.into());
            }
        }
        Ok(())
    }
}

/// `pwrite`
#[derive(Debug)]
pub struct Write(Transfer);

impl Write {
    /// A write to a file that each poll names.
    pub fn new(offset: u64, len: u32, how: How) -> Self {
        Write(Transfer::new(offset, len, how))
    }

    /// A write within a call that was charged already.
    pub(super) fn out_of_pipe(offset: u64, len: u32) -> Self {
        Write(Transfer::part(offset, len))
    }

    /// Writes, or goes on to do so. A file does not grow.
    ///
    /// # Errors
    /// The wait after which it is to be polled again; [`Stop::OutOfMemory`]; [`Stop::Bad`] if there is no
    /// such file or it is shorter.
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx, number: u32) -> Done {
        let call = &mut self.0;
        let pages = mm.objects.file(number)?.pages;
        call.begin(mm, cx);
        let (page_size, shift) = (mm.page.bytes().0, mm.page.shift());
        if call.offset + call.len > mm.page.of(pages.into()).0 {
            return Err(Stop::Bad);
        }
        if !std::mem::replace(&mut call.noted, true) {
            mm.dirty_inode(cx, number);
        }
        if call.how == How::Direct {
            return call.direct(mm, cx, number, call.len, true);
        }
        while call.done < call.len {
            let at = call.offset + call.done;
            let page = (at >> shift) as u32;
            let part = (page_size - (at & (page_size - 1))).min(call.len - call.done);
            let slot = mm.objects[number].base + page;
            let frame = match entry::frame(mm.entries[slot as usize]) {
                Some(frame) => frame,
                None => {
                    let e = mm.entries[slot as usize];
                    let on_disk = e != entry::EMPTY || !mm.objects[number].hole;
                    // What is written in whole blocks need not be read (`__block_write_begin_int`).
                    if on_disk && !(at | part).is_multiple_of(BLOCK) {
                        mm.read_page(cx, &mut call.alloc, number, page)?;
                        continue;
                    }
                    let ac = call.alloc.context(mm, cx, Some(page), true);
                    let frame = call.alloc.poll(mm, cx, &ac)?;
                    mm.add_to_page_cache(cx, frame, slot, true);
                    cx.spend(mm.costs.write);
                    frame
                }
            };
            if mm.frames[frame as usize].has(flag::LOCKED) {
                return Err(mm.wait_locked(frame).into());
            }
            cx.spend(mm.costs.copy * part.div_ceil(BLOCK));
            mm.generation.policy.touch(mm, frame);
            mm.create_buffers(cx, frame);
            mm.set_page_dirty(cx, frame);
            call.done += part;
            call.alloc.forget();
            mm.balance_dirty_pages(cx)?;
            if cx.spent >= cx.slice && call.done < call.len {
                return Err(Wait::YIELD.into());
            }
        }
        Ok(())
    }
}

impl Mm {
    /// Enters a page into the page cache. The past of a page that is written over has no influence.
    #[inline(always)]
    pub(crate) fn add_to_page_cache(&mut self, cx: &mut Cx, frame: u32, slot: u32, write: bool) {
        // This happens before the page is on a list, so that the page itself cannot be reclaimed.
        if self.tuning.pagecache_limit_mb > 0 {
            self.pagecache_limit(cx);
        }
        let old = self.entries[slot as usize];
        self.frames[frame as usize].slot = slot;
        self.entries[slot as usize] = entry::RESIDENT | frame;
        self.stat_add(frame, Stat::FilePages);
        let mut refault = false;
        let evicted = matches!(entry::is(old), entry::Is::Shadow(_)) && old != entry::ON_DISK;
        self.update_node(cx, slot, Change::Added { shadow: evicted && self.keeps_shadows() });
        if let entry::Is::Shadow(shadow) = entry::is(old)
            && !write
        {
            if evicted {
                cx.pages.refaults += 1;
                if let Some(evictions) = &mut self.evictions {
                    evictions.refaulted(cx.process, slot);
                }
                self.frames[frame as usize].flags |= flag::REFAULTED;
            }
            refault = self.workingset_refault(frame, shadow);
        }
        self.generation.policy.insert(self, frame, Arrival::File { refault });
        self.batch_lru_add(cx, frame);
    }

    /// Drops a clean, unmapped page that no device is using; its contents are on disk
    /// (`invalidate_inode_page`).
    pub(crate) fn invalidate(&mut self, cx: &mut Cx, frame: u32) -> bool {
        let f = self.frames[frame as usize];
        if f.has(flag::DIRTY | flag::WRITEBACK | flag::LOCKED) || self.is_mapped(frame) {
            return false;
        }
        self.entries[f.slot as usize] = entry::ON_DISK;
        self.update_node(cx, f.slot, Change::Removed { shadow: false });
        cx.pages.returned += 1;
        self.forget_page(cx, frame);
        true
    }

    /// `ftruncate` to nothing, then to a size: replaces the file with a new, empty one, and returns its
    /// object.
    pub fn truncate(&mut self, cx: &mut Cx, number: u32, pages: u32) -> u32 {
        let _ = self.remove_file(cx, number, false);
        self.create_file(pages, Backing::Hole)
    }

    /// Ends the read of a page, which may now be used.
    pub(crate) fn end_read(&mut self, frame: u32) {
        self.frames[frame as usize].flags &= !flag::LOCKED;
        self.reap_deleted(frame);
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_workload::Policy;

    use super::super::Config;
    use super::*;
    use crate::{Generation, Tuning};

    #[test]
    fn a_page_that_is_read_is_not_freed_to_make_room_for_the_next_window() {
        let tuning = Tuning { zone_reclaim_mode: Some(1), ..Tuning::default() };
        let config =
            Config { tuning, instant_reads: true, ..Config::new(Generation::linux_3_0(), vec![8192]) };
        let mut mm = Mm::new(&config);
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 0);
        let files: Vec<u32> = (0..4000).map(|_| mm.declare_file(64, true)).collect();
        let mut states = vec![RaState::default(); files.len()];
        let is_cached = |mm: &Mm, file: u32, page: u32| {
            entry::frame(mm.entries[(mm.objects[file].base + page) as usize]).is_some()
        };
        let (mut oldest, mut met) = (0, 0);
        for newest in 0..files.len() {
            // The first read of a file brings in a window; page 1 is marked to start the next.
            let mut reads = vec![(newest, 0)];
            while !is_cached(&mm, files[oldest], 1) && oldest < newest {
                oldest += 1;
            }
            if oldest > 0 {
                reads.push((oldest, 1));
            }
            for (which, page) in reads {
                let was_cached = is_cached(&mm, files[which], page);
                let mut read = Read::new(u64::from(page) * 4096, 4096, How::Buffered);
                while read.poll(&mut mm, &mut cx, files[which], &mut states[which]).is_err() {}
                assert!(is_cached(&mm, files[which], page), "page {page} of file {which}");
                met += u32::from(was_cached);
            }
        }
        assert!(met > 100, "{met} reads met a marked page");
    }
}
