//! Memory that processes share: System V segments and files of tmpfs (`mm/shmem.c`, `ipc/shm.c`).
//!
//! Its pages are in the page cache, on the lists of anonymous memory, and go to swap. A page on its way to
//! swap is in no page table and no longer in the page cache. One that comes back gives up its slot at once.

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_workload::RegionId;

use super::frame::{entry, flag};
use super::memory::Fault;
use super::object::{Backing, Object};
use super::policy::Arrival;
use super::vmstat::Stat;
use super::{Cx, Done, MS, Mm, Stop, Wait, WaitReason};

impl Mm {
    /// Makes a segment, of which no page exists yet, and returns the number of its object. One of System V is
    /// `accounted` in its whole length (`shmget`), a file of tmpfs by the pages that it has.
    pub fn create_segment(&mut self, pages: u32, accounted: bool) -> u32 {
        let number = self.objects.create(&mut self.entries, pages, Backing::Shmem);
        self.objects[number].accounted = accounted;
        number
    }

    /// Removes a segment once nobody has it attached any more (`IPC_RMID`, `unlink`).
    pub fn remove_segment(&mut self, cx: &mut Cx, number: u32) {
        let object = &mut self.objects[number];
        object.deleted = true;
        if object.live && object.mappings.is_empty() {
            self.drop_object(cx, number);
        }
    }

    /// Attaches a segment, or maps a file of tmpfs (`shmat`, `mmap`).
    ///
    /// # Errors
    /// [`Stop::Bad`] if there is no such segment, or no room for it.
    pub fn attach(&mut self, cx: &mut Cx, region: RegionId, number: u32) -> Done {
        self.unmap_if(cx, region)?;
        cx.spend(self.costs.syscall);
        let Some(&Object { live: true, pages, shmem, hugetlb, .. }) = self.objects.get(number) else {
            return Err(Stop::Bad);
        };
        if hugetlb {
            return self.attach_huge(cx, region, number);
        }
        if !shmem {
            return Err(Stop::Bad);
        }
        self.add_region(cx, region, number, pages, None)
    }

    /// A fault on shared memory (`shmem_fault`).
    pub(super) fn shmem_fault(&mut self, cx: &mut Cx, fault: &mut Fault, number: u32, which: usize) -> Done {
        let object = &self.objects[number];
        let page = fault.page();
        let slot = object.base + page;
        let e = self.entries[slot as usize];
        match entry::is(e) {
            entry::Is::Mapped(frame) | entry::Is::Resident(frame) => {
                if object.is_mapped(which, page, e) {
                    self.frames[frame as usize].flags |= flag::OTHER;
                    return Ok(());
                }
                fault.begin(self, cx);
                if self.frames[frame as usize].has(flag::LOCKED) {
                    return Err(self.wait_locked(frame).into());
                }
                if self.frames[frame as usize].has(flag::WRITEBACK) {
                    // Its slot is in use until it is written (`folio_wait_writeback`).
                    return Err(Wait::until(cx.now() + MS / 10, WaitReason::SwapIn).into());
                }
                if self.zswap.is_some() && fault.alloc().is_under_way() {
                    self.drop_alloc(cx, fault.alloc())?;
                    // What made room may have taken the page again.
                    return Err(Wait::YIELD.into());
                }
                self.shmem_swapped_in(cx, frame);
                self.map_shmem(number, which, page, frame);
                self.shmem_around(fault, number, which);
                Ok(())
            }
            entry::Is::Swap(swap) => {
                fault.begin(self, cx);
                let request = self.swapin_readahead(cx, fault.alloc(), number, slot, swap)?;
                if request.is_some() {
                    self.events[vmstat::pgmajfault] += 1;
                    fault.is_major();
                }
                let wait = request.map_or(Wait::YIELD, |id| Wait::request(id, WaitReason::SwapIn));
                Err(wait.into())
            }
            entry::Is::Shadow(_) | entry::Is::Empty => {
                fault.begin(self, cx);
                let ac = fault.alloc().context(self, cx, Some(page), false);
                let frame = fault.alloc().poll(self, cx, &ac)?;
                if self.entries[slot as usize] != entry::EMPTY {
                    // Somebody else was faster.
                    self.free_page(cx.cpu, frame);
                    return Err(Wait::YIELD.into());
                }
                cx.spend(self.costs.zero);
                self.frames[frame as usize].slot = slot;
                self.frames[frame as usize].flags |= flag::ANON | flag::DIRTY;
                self.entries[slot as usize] = entry::RESIDENT | frame;
                self.objects[number].held += 1;
                self.stat_add(frame, Stat::FilePages);
                self.stat_add(frame, Stat::Shmem);
                self.generation.policy.insert(self, frame, Arrival::Touched);
                self.batch_lru_add(cx, frame);
                self.map_shmem(number, which, page, frame);
                Ok(())
            }
        }
    }

    /// Moves a page from the swap cache into the page cache, and gives back its slot (`shmem_swapin_folio`).
    fn shmem_swapped_in(&mut self, cx: &mut Cx, frame: u32) {
        let f = self.frames[frame as usize];
        if !f.has(flag::SWAPCACHE) {
            return;
        }
        if f.has(flag::SWAP_RA) {
            self.swap.hit();
            self.events[vmstat::swap_ra_hit] += 1;
        }
        self.delete_from_swap_cache(cx, frame);
        self.frames[frame as usize].flags |= flag::DIRTY;
        self.stat_add(frame, Stat::FilePages);
        self.stat_add(frame, Stat::Shmem);
    }

    /// Maps a page for reading and writing: nobody has to know when it becomes dirty.
    fn map_shmem(&mut self, number: u32, which: usize, page: u32, frame: u32) {
        self.map_file_page(number, which, page, frame);
        if which == 0 {
            let slot = self.objects[number].base + page;
            self.entries[slot as usize] |= entry::DIRTY;
        }
    }

    /// Maps what is in memory around a page that was read (`do_fault_around`).
    fn shmem_around(&mut self, fault: &Fault, number: u32, which: usize) {
        let around = self.pages_around();
        if fault.writes() || self.generation.fault_around.is_none() || around < 2 {
            return;
        }
        let object = &self.objects[number];
        let (base, first) = (object.base, fault.page() & !(around - 1));
        for page in first..(first + around).min(object.pages) {
            let e = self.entries[(base + page) as usize];
            let Some(frame) = entry::frame(e) else { continue };
            let skip = self.frames[frame as usize].has(flag::LOCKED | flag::SWAPCACHE);
            if !skip && !self.objects[number].is_mapped(which, page, e) {
                self.map_shmem(number, which, page, frame);
            }
        }
    }
}
