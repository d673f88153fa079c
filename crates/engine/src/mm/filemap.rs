//! The page cache under `read` and `write` (`mm/filemap.c`).

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_workload::{How, RegionId};

use super::frame::{entry, flag, list};
use super::readahead::RaState;
use super::vmstat::Stat;
use super::{Cx, Device, Done, IoRequest, Mm, Stop, Wait};

/// Bytes of a page.
const PAGE: u64 = 4096;

impl Mm {
    /// Enters a page into the page cache. The past of a page that is written over has no influence.
    pub(crate) fn add_to_page_cache(&mut self, cx: &mut Cx, frame: u32, slot: u32, write: bool) {
        // This happens before the page is on a list, so that the page itself cannot be reclaimed.
        if self.tuning.pagecache_limit_mb > 0 {
            self.pagecache_limit(cx);
        }
        let old = self.entries[slot as usize];
        self.frames[frame as usize].slot = slot;
        self.entries[slot as usize] = entry::RESIDENT | frame;
        self.stat_add(frame, Stat::FilePages);
        let mut active = false;
        if let entry::Is::Shadow(shadow) = entry::is(old)
            && !write
        {
            if old != entry::ON_DISK {
                cx.pages.refaults += 1;
                if let Some(evictions) = &mut self.evictions {
                    evictions.refaulted(cx.process, slot);
                }
                self.frames[frame as usize].flags |= flag::REFAULTED;
            }
            active = self.workingset_refault(frame, shadow, false);
        }
        let to = if self.generation.mglru {
            self.new_page_list(frame, false)
        } else {
            list::classic(false, active)
        };
        self.lru_add(frame, to);
        self.note_added(frame, active);
    }

    /// Handles a fault on a page of a file that is not in the cache (`filemap_fault`): reads the page and
    /// those around it. The fault counts as major even if the page was never written and no device is
    /// involved.
    pub(crate) fn filemap_fault_miss(&mut self, cx: &mut Cx, id: RegionId, number: u32, page: u32) -> Done {
        self.begin_fault(cx);
        self.mmap_readahead(cx, id, number, page)?;
        self.events[vmstat::pgmajfault] += 1;
        cx.major += 1;
        Ok(())
    }

    /// `pread`. `done` counts the bytes that were read by earlier calls of the same operation.
    #[allow(clippy::too_many_arguments)]
    pub fn read(
        &mut self,
        cx: &mut Cx,
        number: u32,
        offset: u64,
        len: u32,
        how: How,
        ra: &mut RaState,
        done: &mut u64,
    ) -> Done {
        let pages = self.file_pages(number)?;
        if !cx.again {
            cx.spend(self.costs.syscall);
        }
        let len = u64::from(len).min((u64::from(pages) * PAGE).saturating_sub(offset));
        if how == How::Direct {
            return self.direct_io(cx, number, offset, len, false, done);
        }
        while *done < len {
            let at = offset + *done;
            let page = (at / PAGE) as u32;
            let slot = self.objects[number as usize].base + page;
            let Some(frame) = entry::frame(self.entries[slot as usize]) else {
                let request = (offset + len).div_ceil(PAGE) as u32 - page;
                self.sync_readahead(cx, number, ra, page, request)?;
                if entry::frame(self.entries[slot as usize]).is_none() {
                    return Err(Wait::YIELD.into());
                }
                continue;
            };
            if self.frames[frame as usize].has(flag::READAHEAD) {
                self.frames[frame as usize].flags &= !flag::READAHEAD;
                self.async_readahead(cx, number, ra, page);
            }
            if self.frames[frame as usize].has(flag::LOCKED) {
                return Err(self.wait_locked(frame).into());
            }
            cx.spend(self.costs.copy);
            if ra.prev != page {
                self.mark_page_accessed(frame);
            }
            ra.prev = page;
            *done += (PAGE - at % PAGE).min(len - *done);
            if cx.spent >= cx.slice && *done < len {
                return Err(Wait::YIELD.into());
            }
        }
        Ok(())
    }

    /// `pwrite`. `done` counts the bytes that were written by earlier calls of the same operation.
    pub fn write(
        &mut self,
        cx: &mut Cx,
        number: u32,
        offset: u64,
        len: u32,
        how: How,
        done: &mut u64,
    ) -> Done {
        let pages = self.file_pages(number)?;
        if !cx.again {
            cx.spend(self.costs.syscall);
        }
        let len = u64::from(len);
        if offset + len > u64::from(pages) * PAGE {
            return Err(Stop::Bad);
        }
        if how == How::Direct {
            return self.direct_io(cx, number, offset, len, true, done);
        }
        while *done < len {
            let at = offset + *done;
            let page = (at / PAGE) as u32;
            let part = (PAGE - at % PAGE).min(len - *done);
            let slot = self.objects[number as usize].base + page;
            let frame = match entry::frame(self.entries[slot as usize]) {
                Some(frame) => frame,
                None => {
                    let e = self.entries[slot as usize];
                    let on_disk = e != entry::EMPTY || !self.objects[number as usize].hole;
                    if on_disk && part < PAGE {
                        self.read_page(cx, number, page)?;
                        continue;
                    }
                    let ac = self.alloc_context(cx, Some(page), true);
                    let frame = self.alloc_page(cx, &ac)?;
                    self.add_to_page_cache(cx, frame, slot, true);
                    cx.spend(self.costs.write);
                    frame
                }
            };
            if self.frames[frame as usize].has(flag::LOCKED) {
                return Err(self.wait_locked(frame).into());
            }
            cx.spend(self.costs.copy);
            self.mark_page_accessed(frame);
            self.set_page_dirty(cx, frame);
            *done += part;
            self.balance_dirty_pages(cx)?;
            if cx.spent >= cx.slice && *done < len {
                return Err(Wait::YIELD.into());
            }
        }
        Ok(())
    }

    fn file_pages(&self, number: u32) -> Result<u32, Stop> {
        match self.objects.get(number as usize) {
            Some(object) if object.live && object.file => Ok(object.pages),
            _ => Err(Stop::Bad),
        }
    }

    /// `O_DIRECT`: writes and drops cached pages of the range, then sends a request to the device. `done` is
    /// 1 from the request on until it has completed.
    fn direct_io(
        &mut self,
        cx: &mut Cx,
        number: u32,
        offset: u64,
        len: u64,
        write: bool,
        done: &mut u64,
    ) -> Done {
        if len == 0 || *done > 0 {
            *done = len;
            return Ok(());
        }
        let base = self.objects[number as usize].base;
        let (first, last) = ((offset / PAGE) as u32, ((offset + len).div_ceil(PAGE)) as u32);
        let mut dirty = false;
        for page in first..last {
            if let Some(frame) = entry::frame(self.entries[(base + page) as usize]) {
                let f = self.frames[frame as usize];
                dirty |= f.has(flag::DIRTY | flag::WRITEBACK);
            }
        }
        if dirty {
            self.sync(cx, number)?;
        }
        for page in first..last {
            let slot = base + page;
            if let Some(frame) = entry::frame(self.entries[slot as usize])
                && !self.is_mapped(frame)
            {
                self.invalidate(cx, frame);
            }
            if write && entry::frame(self.entries[slot as usize]).is_none() {
                self.entries[slot as usize] = entry::ON_DISK;
            }
        }
        let start = u64::from(base + first);
        let request = IoRequest {
            device: Device::Disk,
            write,
            sync: true,
            start,
            pages: last - first,
            queued: super::Queued::Apart,
        };
        *done = 1;
        Err(Wait::io(self.submit(cx, request, Vec::new())).into())
    }

    /// Drops a clean, unmapped page that no device is using; its contents are on disk
    /// (`invalidate_inode_page`).
    pub(crate) fn invalidate(&mut self, cx: &mut Cx, frame: u32) -> bool {
        let f = self.frames[frame as usize];
        if f.has(flag::DIRTY | flag::WRITEBACK | flag::LOCKED) || self.is_mapped(frame) {
            return false;
        }
        self.entries[f.slot as usize] = entry::ON_DISK;
        cx.pages.returned += 1;
        self.forget_page(cx, frame);
        true
    }

    /// `ftruncate` to nothing, then to a size: replaces the file with a new, empty one, and returns its
    /// object.
    pub fn truncate(&mut self, cx: &mut Cx, number: u32, pages: u32) -> u32 {
        let _ = self.delete_file(cx, number);
        self.create_object(pages, true, true)
    }

    /// Ends the read of a page, which may now be used.
    pub(crate) fn end_read(&mut self, frame: u32) {
        self.frames[frame as usize].flags &= !flag::LOCKED;
        self.reap_deleted(frame);
    }
}
