//! Page faults, and the ends of objects (`mm/memory.c`, `mm/rmap.c`).

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_units::Bytes;
use lotsfree_workload::{Op, RegionId};

use super::frame::{NONE, entry, flag, list};
use super::mmap::Vma;
use super::object::{Backing, Mapping, Object};
use super::page_alloc::Alloc;
use super::policy::Arrival;
use super::vmstat::Stat;
use super::workingset::{Change, Tree};
use super::{Cx, Device, Done, Mm, Stop, Wait, WaitReason};
use crate::generation::MmapHit;

/// Entries that a core's caches may hold: 8 MiB of them.
const CACHED_ENTRIES: usize = 1 << 21;
/// `fault_around_bytes`
const FAULT_AROUND: Bytes = Bytes::kib(64);
/// The entry of an anonymous page that was only read: the zero page is mapped.
pub(crate) const ZERO: u32 = entry::SHADOW | (entry::VALUE - 1);

/// A load from or a store to a page of a region that needs more than the page table's bits.
#[derive(Debug)]
pub struct Fault {
    region: RegionId,
    page: u32,
    write: bool,
    stage: Stage,
    /// It counts as major for its task.
    major: bool,
    alloc: Alloc,
    /// The allocation of a page table.
    table: Alloc,
}

/// How far a fault has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It may turn out to be none.
    New,
    /// It is counted and charged.
    Begun,
    /// Its page is not in the page cache, and that is counted too.
    Missed,
    /// It gave up its lock, and looks for its page once more (`FAULT_FLAG_TRIED`).
    Tried,
    /// The page of a private file is in the page cache, and is to be copied.
    Copying,
}

impl Fault {
    /// The access of the caller's process to a page of one of its regions.
    pub fn new(region: RegionId, page: u32, write: bool) -> Self {
        let (alloc, table) = (Alloc::default(), Alloc::default());
        Fault { region, page, write, stage: Stage::New, major: false, alloc, table }
    }

    /// Handles the fault, or goes on to do so. It counts for its task when it is done (`mm_account_fault`).
    ///
    /// # Errors
    /// The wait after which it is to be polled again; [`Stop::OutOfMemory`]; [`Stop::Bus`] if no page may be
    /// had; [`Stop::Bad`] if there is no such page.
    #[inline(never)]
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx) -> Done {
        mm.handle_fault(cx, self)?;
        if self.stage != Stage::New {
            let faults = if self.major { &mut cx.major } else { &mut cx.minor };
            *faults += 1;
        }
        Ok(())
    }

    pub(super) fn region(&self) -> RegionId {
        self.region
    }

    pub(super) fn page(&self) -> u32 {
        self.page
    }

    pub(super) fn writes(&self) -> bool {
        self.write
    }

    pub(super) fn alloc(&mut self) -> &mut Alloc {
        &mut self.alloc
    }

    /// Counts it as major for its task.
    pub(super) fn count_as_major(&mut self) {
        self.major = true;
    }

    /// Counts and charges what has turned out to be a fault.
    pub(super) fn begin(&mut self, mm: &mut Mm, cx: &mut Cx) {
        if self.stage == Stage::New {
            self.stage = Stage::Begun;
            mm.events[vmstat::pgfault] += 1;
            cx.spend(mm.costs.fault);
        }
    }

    /// Gives up the lock, after which the fault looks for its page once more.
    fn retry(&mut self, mm: &mut Mm) {
        if self.stage != Stage::Tried {
            self.stage = Stage::Tried;
            mm.events[vmstat::pgfault] += u64::from(mm.generation.counts_retries);
        }
        self.major |= mm.generation.retried_is_major;
    }

    /// The fault is done but for the throttling of the writer, for which some kernels give up the lock.
    fn dirtied(&mut self, mm: &mut Mm) {
        if mm.generation.dirty_fault_retries {
            self.stage = Stage::Begun;
            self.retry(mm);
        }
    }
}

impl Mm {
    /// Registers a file of the scenario; `exists` means that its contents are on disk.
    pub fn declare_file(&mut self, pages: u32, exists: bool) -> u32 {
        let number = self.create_file(pages, if exists { Backing::Disk } else { Backing::Hole });
        if exists {
            self.lay_out(number);
        }
        number
    }

    /// A file's object, with nodes for it.
    pub(super) fn create_file(&mut self, pages: u32, backing: Backing) -> u32 {
        let number = self.objects.create(&mut self.entries, pages, backing);
        self.tree.grow(Tree::Files, self.entries.len());
        number
    }

    /// Pages of anonymous memory of a process that are in memory, its copies of file pages included.
    pub(crate) fn held(&self, process: usize) -> u64 {
        let vmas = self.processes.get(process).map_or(&[][..], |process| &process.vmas);
        let of = |number: u32| match &self.objects[number] {
            object if object.shmem || object.hugetlb => 0,
            object => u64::from(object.held),
        };
        let of_vma = |vma: &Vma| of(vma.object) + vma.copies.map_or(0, of);
        vmas.iter().flatten().map(of_vma).sum()
    }

    /// Removes one mapping of an object (`zap_page_range`).
    pub(super) fn zap(&mut self, cx: &mut Cx, number: u32, which: usize) {
        let (pages, private) = (self.objects[number].pages, self.objects[number].is_private());
        if !private {
            self.zap_ptes(number, which);
        }
        self.objects[number].unmap(which);
        self.renumber_mapping(number, which);
        cx.spend(u64::from(pages) * self.costs.walk);
        let object = &self.objects[number];
        if object.mappings.is_empty() && (private || object.deleted) {
            self.drop_object(cx, number);
        }
    }

    /// Removes a file's pages from one page table; the pages stay in the page cache.
    pub(crate) fn zap_ptes(&mut self, number: u32, which: usize) {
        if self.objects[number].hugetlb {
            return self.zap_huge(number, which);
        }
        let object = &mut self.objects[number];
        let (base, pages) = (object.base, object.pages);
        if which > 0 {
            for page in object.take_bits(which).iter() {
                self.drop_mapped_bit(number, page);
            }
        } else {
            for page in 0..pages {
                let slot = base + page;
                if self.entries[slot as usize] & entry::MAPPED != 0 {
                    let young = self.unmap_entry(slot);
                    if let Some(frame) = entry::frame(self.entries[slot as usize]) {
                        if young {
                            self.generation.policy.touch(self, frame);
                        }
                        if !self.objects[number].is_mapped_elsewhere(page) {
                            self.stat_sub(frame, Stat::Mapped);
                        }
                    }
                }
            }
        }
    }

    /// Updates the region whose mapping has moved to a number, if there is one. If that is the first, its
    /// bits move into the entries.
    fn renumber_mapping(&mut self, number: u32, which: usize) {
        let object = &mut self.objects[number];
        let Some(&Mapping { process, region, .. }) = object.mappings.get(which) else { return };
        let base = object.base;
        if which == 0 {
            for page in object.take_bits(0).iter() {
                let e = &mut self.entries[(base + page) as usize];
                if let Some(frame) = entry::frame(*e) {
                    // A store to shared memory that is dirty already needs no fault.
                    let dirty =
                        object.hugetlb || (object.shmem && self.frames[frame as usize].has(flag::DIRTY));
                    *e = entry::MAPPED | if dirty { entry::DIRTY } else { 0 } | frame;
                }
            }
        }
        let direct = which == 0 && !self.generation.policy.sees_every_access();
        if let Some(vma) = self.processes[process].vma_mut(RegionId(region)) {
            vma.which = which as u32;
            if direct && vma.copies.is_none() {
                vma.base = base;
            }
        }
    }

    /// Removes a page from a secondary mapping. The page is no longer mapped if that was the last mapping.
    fn drop_mapped_bit(&mut self, number: u32, page: u32) {
        let slot = self.objects[number].base + page;
        let e = self.entries[slot as usize];
        if let Some(frame) = entry::frame(e)
            && e & entry::MAPPED == 0
            && !self.objects[number].is_mapped_elsewhere(page)
        {
            self.stat_sub(frame, Stat::Mapped);
        }
    }

    /// Clears the entry's mapped bit. Returns the accessed bit.
    fn unmap_entry(&mut self, slot: u32) -> bool {
        let e = self.entries[slot as usize];
        let frame = e & entry::VALUE;
        self.entries[slot as usize] = entry::RESIDENT | frame;
        e & entry::ACCESSED != 0
    }

    /// Removes a page from all page tables (`try_to_unmap`). Accessed bits are lost.
    #[inline(always)]
    pub(crate) fn unmap_page(&mut self, frame: u32) {
        let f = &mut self.frames[frame as usize];
        f.flags &= !flag::OTHER;
        let (slot, anon) = (f.slot, f.has(flag::ANON));
        let e = &mut self.entries[slot as usize];
        let mut mapped = *e & entry::MAPPED != 0;
        *e = entry::RESIDENT | frame;
        let number = self.objects.owner(slot);
        let object = &mut self.objects[number];
        if object.mappings.len() > 1 {
            mapped |= object.unmap_elsewhere(slot - object.base);
        }
        let anon = anon && !object.shmem;
        if !object.huge.is_empty() {
            let page = slot - object.base;
            self.split_huge_page(number, page);
        }
        if mapped {
            self.stat_sub(frame, if anon { Stat::AnonPages } else { Stat::Mapped });
        }
    }

    /// Whether the page is in any page table.
    #[inline]
    pub(crate) fn is_mapped(&self, frame: u32) -> bool {
        self.is_mapped_at(self.frames[frame as usize].slot)
    }

    /// Whether the page of a slot is in any page table.
    #[inline]
    pub(crate) fn is_mapped_at(&self, slot: u32) -> bool {
        self.entries[slot as usize] & entry::MAPPED != 0 || {
            let object = self.objects.at(slot);
            object.is_mapped_elsewhere(slot - object.base)
        }
    }

    /// Frees all pages and slots of an object, and the object (`truncate_inode_pages`, or exit of its last
    /// user).
    pub(super) fn drop_object(&mut self, cx: &mut Cx, number: u32) {
        if self.objects[number].hugetlb {
            return self.drop_huge(number);
        }
        let (base, pages) = (self.objects[number].base, self.objects[number].pages);
        self.zap_huge_pages(number);
        if self.objects[number].file {
            self.forget_shadows(cx, base..base + pages);
        }
        let mut busy = 0;
        for slot in base..base + pages {
            match entry::is(self.entries[slot as usize]) {
                entry::Is::Mapped(frame) | entry::Is::Resident(frame) => {
                    busy += u32::from(!self.drop_page(cx, frame));
                }
                entry::Is::Swap(swap) => {
                    self.free_swap(cx, swap);
                    self.entries[slot as usize] = entry::EMPTY;
                    if self.objects[number].is_tmpfs() {
                        self.unaccount(1);
                    }
                }
                _ => {}
            }
        }
        if busy > 0 {
            // Pages on their way to or from a device are freed when they arrive.
            // The caller has given them back all the same.
            cx.pages.returned += busy;
            let object = &mut self.objects[number];
            object.busy = busy;
            object.deleted = true;
            object.hole = true;
        } else {
            if self.objects[number].sysv {
                self.unaccount(pages.into());
            }
            self.writeback.forget(number);
            self.objects.release(&mut self.entries, number);
        }
    }

    /// Frees one page of an object that is being removed; returns `false` if a device still has the page.
    pub(crate) fn drop_page(&mut self, cx: &mut Cx, frame: u32) -> bool {
        self.unmap_page(frame);
        let f = self.frames[frame as usize];
        if f.has(flag::LOCKED | flag::WRITEBACK) {
            return false;
        }
        self.clear_dirty(frame);
        if f.has(flag::SWAPCACHE) {
            self.delete_from_swap_cache(cx, frame);
        }
        self.entries[f.slot as usize] = entry::EMPTY;
        if f.has(flag::ANON) {
            let object = self.objects.at_mut(f.slot);
            object.held -= 1;
            let tmpfs = object.is_tmpfs();
            if object.shmem && !f.has(flag::SWAPCACHE) {
                self.stat_sub(frame, Stat::FilePages);
                self.stat_sub(frame, Stat::Shmem);
            }
            if tmpfs {
                self.unaccount(1);
            }
        } else {
            self.update_node(cx, f.slot, Change::Removed { shadow: false });
        }
        cx.pages.returned += 1;
        self.forget_page(cx, frame);
        true
    }

    /// Removes a page that is in no table any more from the statistics and its list, and frees the frame.
    #[inline(always)]
    pub(crate) fn forget_page(&mut self, cx: &mut Cx, frame: u32) {
        if !self.frames[frame as usize].has(flag::ANON) {
            self.stat_sub(frame, Stat::FilePages);
            self.free_buffers(cx, frame);
        }
        if self.frames[frame as usize].has(flag::MLOCKED) {
            self.clear_page_mlock(frame);
        }
        self.lru_remove(frame);
        cx.spend(self.costs.free);
        self.free_page(cx.cpu, frame);
    }

    /// `unlink`
    pub fn delete_file(&mut self, cx: &mut Cx, number: u32) -> Done {
        self.remove_file(cx, number, true)
    }

    /// Removes a file's pages, its blocks and, with `unlinked`, its name.
    pub(super) fn remove_file(&mut self, cx: &mut Cx, number: u32, unlinked: bool) -> Done {
        cx.spend(self.costs.syscall);
        if self.objects.file(number)?.deleted {
            return Err(Stop::Bad);
        }
        self.free_blocks(cx, number, unlinked);
        let object = &mut self.objects[number];
        object.deleted = true;
        if object.mappings.is_empty() {
            self.drop_object(cx, number);
        }
        Ok(())
    }

    /// Frees a page after I/O on it has ended, if its object was removed meanwhile. The last such page takes
    /// the object with it.
    pub(crate) fn reap_deleted(&mut self, frame: u32) {
        let number = self.objects.owner(self.frames[frame as usize].slot);
        let object = &mut self.objects[number];
        if object.deleted && object.live && object.mappings.is_empty() {
            let mut cx = Cx::new(0, 0, usize::MAX, 0);
            object.busy = object.busy.saturating_sub(1);
            if object.busy > 0 {
                self.drop_page(&mut cx, frame);
            } else {
                self.drop_object(&mut cx, number);
            }
        }
    }

    /// Touches pages of a region one after another, as long as each is in the page table and only its bits
    /// have to change. Returns how many pages that were. Each page is given as its place in the region and
    /// whether it is written to.
    ///
    /// Such a touch is a load and a store in one array. All other touches are a [`Fault`].
    #[inline]
    pub fn touch_mapped(
        &mut self,
        process: usize,
        id: RegionId,
        pages: impl IntoIterator<Item = (u32, bool)>,
    ) -> usize {
        let Some(vma) = self.processes.get(process).and_then(|process| process.vma(id)) else {
            return 0;
        };
        let order = vma.order;
        let Some(table) = self.entries.get_mut(vma.slots()) else { return 0 };
        let mut touched = 0;
        for (page, write) in pages {
            if !table.get_mut((page >> order) as usize).is_some_and(|e| entry::access(e, write)) {
                break;
            }
            touched += 1;
        }
        touched
    }

    /// Brings the entries that touches among the next operations will need into the processor's caches. Their
    /// loads are independent, so that the host's memory serves them together; if they were loaded one at a
    /// time, as the operations come, the host would wait for each.
    /// Entries that fit into the caches anyway are left alone.
    pub fn look_ahead_at(&self, process: usize, ops: &[Op]) {
        let Some(process) = self.processes.get(process) else { return };
        if self.entries.len() < CACHED_ENTRIES {
            return;
        }
        let (mut mapped, mut order, mut table) = (None, 0, &[][..]);
        let mut all = 0;
        for op in ops {
            let Op::Touch { region, page, .. } = *op else { continue };
            if mapped != Some(region) {
                mapped = Some(region);
                let vma = process.vma(region);
                order = vma.map_or(0, |vma| vma.order);
                let slots = vma.map(Vma::slots);
                table = slots.and_then(|slots| self.entries.get(slots)).unwrap_or_default();
            }
            all ^= table.get((page >> order) as usize).copied().unwrap_or_default();
        }
        std::hint::black_box(all);
    }

    /// `handle_mm_fault`
    #[inline(always)]
    fn handle_fault(&mut self, cx: &mut Cx, fault: &mut Fault) -> Done {
        let Some(vma) = self.processes.get(cx.process).and_then(|process| process.vma(fault.region)) else {
            return Err(Stop::Bad);
        };
        if fault.page >= vma.pages {
            return Err(Stop::Bad);
        }
        let (object, copies, direct) = (vma.object, vma.copies, vma.base != NONE);
        let which = vma.which as usize;
        // Somebody else may have mapped the page, or it was mapped before the dirty limit held the task back.
        let entry = vma.base.wrapping_add(fault.page >> vma.order) as usize;
        if vma.base != NONE && entry::access(&mut self.entries[entry], fault.write) {
            return Ok(());
        }
        let (recency, locked, at) = (vma.has_recency(), vma.locked, vma.start + u64::from(fault.page));
        let leaf = usize::from(vma.order > 0);
        self.alloc_tables(cx, &mut fault.table, at, leaf)?;
        self.in_lru_fault = recency;
        let done = match copies {
            Some(copies) => self.private_fault(cx, fault, (object, which), copies),
            None if self.objects[object].file => self.file_fault(cx, fault, object, which, fault.write),
            None if self.objects[object].shmem => self.shmem_fault(cx, fault, object, which),
            None if self.objects[object].hugetlb => self.hugetlb_fault(cx, fault, object, which),
            None => self.anon_fault(cx, fault, object),
        };
        self.in_lru_fault = false;
        if locked && done.is_ok() {
            self.mlock_page(object, copies, fault.page);
        }
        if !direct && leaf == 0 && done.is_ok() && self.generation.policy.sees_every_access() {
            self.touch_page(object, copies, fault.page);
        }
        done
    }

    /// Tells the policy of an access to a page through a page table.
    fn touch_page(&mut self, object: u32, copies: Option<u32>, page: u32) {
        if let Some(frame) = self.frame_of(object, copies, page) {
            self.generation.policy.touch(self, frame);
        }
    }

    /// The frame that a region has at a page: that of its copy, if it has one.
    pub(super) fn frame_of(&self, object: u32, copies: Option<u32>, page: u32) -> Option<u32> {
        let frame = |number: u32| entry::frame(self.entries[(self.objects[number].base + page) as usize]);
        copies.and_then(frame).or_else(|| frame(object))
    }

    /// A fault on a private mapping of a file, whose pages are copied when they are written to.
    fn private_fault(
        &mut self,
        cx: &mut Cx,
        fault: &mut Fault,
        (file, which): (u32, usize),
        copies: u32,
    ) -> Done {
        let slot = self.objects[copies].base + fault.page;
        if self.entries[slot as usize] != entry::EMPTY {
            return self.anon_fault(cx, fault, copies);
        }
        if fault.stage != Stage::Copying {
            self.file_fault(cx, fault, file, which, false)?;
            if !fault.write {
                return Ok(());
            }
            // do_cow_fault: the file's page stays, and a copy of it is mapped, in the same fault. One that
            // was mapped for reading is copied in a fault of its own (do_wp_page).
            fault.begin(self, cx);
            fault.stage = Stage::Copying;
        }
        self.new_anon_page(cx, fault, slot, self.costs.copy * u64::from(self.blocks()))
    }

    /// A fault on anonymous memory (`do_anonymous_page`, `do_swap_page`, `do_wp_page`).
    fn anon_fault(&mut self, cx: &mut Cx, fault: &mut Fault, number: u32) -> Done {
        let Fault { page, write, .. } = *fault;
        let slot = self.objects[number].base + page;
        if entry::access(&mut self.entries[slot as usize], write) {
            return Ok(());
        }
        match entry::is(self.entries[slot as usize]) {
            entry::Is::Mapped(frame) => {
                // A write to a page that was swapped in for reading makes its copy on swap stale.
                fault.begin(self, cx);
                self.own_page(cx, frame);
                self.entries[slot as usize] |= entry::DIRTY | entry::ACCESSED;
                Ok(())
            }
            entry::Is::Resident(frame) => {
                fault.begin(self, cx);
                if self.frames[frame as usize].has(flag::LOCKED) {
                    fault.retry(self);
                    return Err(self.wait_locked(frame).into());
                }
                if self.zswap.is_some() && fault.alloc.is_under_way() {
                    self.drop_alloc(cx, &mut fault.alloc)?;
                    // What made room may have taken the page again.
                    return self.map_if_there(cx, slot, write, Wait::YIELD);
                }
                self.map_swapped_in(cx, frame, slot, write);
                Ok(())
            }
            entry::Is::Swap(swap) => self.swap_in(cx, fault, number, slot, swap),
            entry::Is::Shadow(_) if !write => Ok(()),
            entry::Is::Shadow(_) | entry::Is::Empty => {
                fault.begin(self, cx);
                if !write {
                    self.entries[slot as usize] = ZERO;
                    return Ok(());
                }
                if self.huge_anon_fault(cx, fault, number) {
                    return Ok(());
                }
                self.new_anon_page(cx, fault, slot, self.costs.zero)
            }
        }
    }

    /// Reads a page that is on swap, and its neighbours (`do_swap_page`).
    fn swap_in(&mut self, cx: &mut Cx, fault: &mut Fault, number: u32, slot: u32, swap: u32) -> Done {
        fault.begin(self, cx);
        if self.zram.is_some() && self.generation.skips_swap_cache {
            return self.swap_in_alone(cx, fault, slot, swap);
        }
        let request = self.swapin_readahead(cx, &mut fault.alloc, number, slot, swap)?;
        if request.is_some() {
            self.events[vmstat::pgmajfault] += 1;
            fault.major = true;
        }
        let wait = request.map_or(Wait::YIELD, |id| Wait::request(id, WaitReason::SwapIn));
        self.map_if_there(cx, slot, fault.write, wait)
    }

    /// Maps a page of the swap cache again, or waits if it is not there yet.
    fn map_if_there(&mut self, cx: &mut Cx, slot: u32, write: bool, wait: Wait) -> Done {
        match entry::frame(self.entries[slot as usize]) {
            Some(frame) if !self.frames[frame as usize].has(flag::LOCKED) => {
                self.map_swapped_in(cx, frame, slot, write);
                Ok(())
            }
            _ => Err(wait.into()),
        }
    }

    /// Reads a page past the swap cache, from a device that answers at once. Its slot is then free, and
    /// its only copy is in memory.
    fn swap_in_alone(&mut self, cx: &mut Cx, fault: &mut Fault, slot: u32, swap: u32) -> Done {
        let ac = fault.alloc.context(self, cx, None, false);
        let frame = fault.alloc.poll(self, cx, &ac)?;
        if let Some(evictions) = &mut self.evictions {
            evictions.refaulted(cx.process, slot);
        }
        cx.pages.refaults += 1;
        self.frames[frame as usize].slot = slot;
        self.frames[frame as usize].flags |= flag::ANON | flag::DIRTY;
        self.objects.at_mut(slot).held += 1;
        let writable = fault.write || self.generation.swapin_is_writable;
        let dirty = if writable { entry::DIRTY } else { 0 };
        self.entries[slot as usize] = entry::MAPPED | entry::ACCESSED | dirty | frame;
        self.stat_add(frame, Stat::AnonPages);
        let shadow = self.swap.shadow.get(swap as usize).copied().unwrap_or(0);
        let refault = shadow != 0 && self.workingset_refault(frame, shadow);
        self.generation.policy.insert(self, frame, Arrival::SwappedIn { refault });
        self.batch_lru_add(cx, frame);
        self.zram_read(cx, 1);
        self.events[vmstat::pswpin] += 1;
        self.events[vmstat::pgmajfault] += 1;
        fault.major = true;
        self.free_swap(cx, swap);
        self.activate_swapped_in(frame);
        Ok(())
    }

    /// Allocates and maps an anonymous page, and charges how it is filled: by zeroing or copying.
    fn new_anon_page(&mut self, cx: &mut Cx, fault: &mut Fault, slot: u32, filling: u64) -> Done {
        let ac = fault.alloc.context(self, cx, None, false);
        let frame = fault.alloc.poll(self, cx, &ac)?;
        cx.spend(filling);
        self.map_new_anon(slot, frame);
        self.batch_lru_add(cx, frame);
        Ok(())
    }

    /// Maps a new anonymous page.
    #[inline(always)]
    pub(super) fn map_new_anon(&mut self, slot: u32, frame: u32) {
        self.frames[frame as usize].slot = slot;
        self.frames[frame as usize].flags |= flag::ANON | flag::DIRTY;
        self.entries[slot as usize] = entry::MAPPED | entry::ACCESSED | entry::DIRTY | frame;
        self.objects.at_mut(slot).held += 1;
        self.stat_add(frame, Stat::AnonPages);
        self.generation.policy.insert(self, frame, Arrival::Touched);
    }

    /// Maps a page of the swap cache again.
    pub(crate) fn map_swapped_in(&mut self, cx: &mut Cx, frame: u32, slot: u32, write: bool) {
        let f = self.frames[frame as usize];
        if f.has(flag::SWAP_RA) {
            self.frames[frame as usize].flags &= !flag::SWAP_RA;
            self.swap.hit();
            self.events[vmstat::swap_ra_hit] += 1;
        }
        self.entries[slot as usize] = entry::MAPPED | entry::ACCESSED | frame;
        self.stat_add(frame, Stat::AnonPages);
        self.activate_swapped_in(frame);
        // If more than half of swap is in use, the slot is given back at once and the page is then dirty.
        if write || self.swap.is_half_full() {
            self.own_page(cx, frame);
        }
        if write {
            self.entries[slot as usize] |= entry::DIRTY;
        }
    }

    /// Moves a page that a fault has brought back to the active list, where new ones start there, too.
    fn activate_swapped_in(&mut self, frame: u32) {
        if !self.generation.anon_starts_inactive && self.frames[frame as usize].list() == list::INACTIVE_ANON
        {
            self.lru_move(frame, list::ACTIVE_ANON, false);
        }
    }

    /// Removes a page from the swap cache, unless it is being written. Its contents are then only in memory.
    fn own_page(&mut self, cx: &mut Cx, frame: u32) {
        let f = &mut self.frames[frame as usize];
        f.flags |= flag::DIRTY;
        if f.has(flag::SWAPCACHE) && !f.has(flag::WRITEBACK) {
            self.delete_from_swap_cache(cx, frame);
        }
    }

    /// A fault on a file mapping (`filemap_fault`, `page_mkwrite`).
    #[inline(always)]
    fn file_fault(&mut self, cx: &mut Cx, fault: &mut Fault, number: u32, which: usize, write: bool) -> Done {
        let Fault { region: id, page, .. } = *fault;
        let object = &self.objects[number];
        let slot = object.base + page;
        let e = self.entries[slot as usize];
        let mapped_here = object.is_mapped(which, page, e);
        if let Some(frame) = entry::frame(e)
            && mapped_here
        {
            if which == 0 {
                self.entries[slot as usize] |= entry::ACCESSED;
            } else {
                self.frames[frame as usize].flags |= flag::OTHER;
            }
            if write && !self.frames[frame as usize].has(flag::DIRTY) {
                fault.begin(self, cx);
                self.create_buffers(cx, frame);
                self.set_page_dirty(cx, frame);
                fault.dirtied(self);
            }
            if write && which == 0 {
                self.entries[slot as usize] |= entry::DIRTY;
            }
            return if write { self.balance_dirty_pages(cx) } else { Ok(()) };
        }
        // A page of 64 KiB has nothing around it (`do_read_fault`).
        let around = self.generation.fault_around.filter(|_| !write && self.pages_around() > 1);
        match entry::frame(e) {
            Some(frame) => {
                fault.begin(self, cx);
                // A page that can be mapped at once is a hit by being mapped, below.
                let f = self.frames[frame as usize];
                let mapped = around.is_some() && !f.has(flag::LOCKED | flag::READAHEAD);
                if fault.stage == Stage::Begun && !mapped {
                    self.mmap_hits(cx, id, 1);
                }
                if f.has(flag::LOCKED) {
                    fault.retry(self);
                    return Err(self.wait_locked(frame).into());
                }
                if self.frames[frame as usize].has(flag::READAHEAD) {
                    fault.retry(self);
                    self.mmap_async_readahead(cx, id, number, page);
                }
            }
            None => self.filemap_fault_miss(cx, fault, number, (which, around))?,
        }
        let Some(frame) = entry::frame(self.entries[slot as usize]) else { return Err(Wait::YIELD.into()) };
        if self.frames[frame as usize].has(flag::LOCKED) {
            fault.retry(self);
            return Err(self.wait_locked(frame).into());
        }
        self.map_file_page(number, which, page, frame);
        if let Some(hit) = around {
            self.fault_around(cx, fault, number, which, hit);
        }
        if write {
            self.create_buffers(cx, frame);
            self.set_page_dirty(cx, frame);
            fault.dirtied(self);
            if which == 0 {
                self.entries[slot as usize] |= entry::DIRTY;
            }
            return self.balance_dirty_pages(cx);
        }
        Ok(())
    }

    /// Handles a fault on a page of a file that is not in the cache: reads the page and those around it. The
    /// fault counts as major even if the page was never written and no device is involved.
    fn filemap_fault_miss(
        &mut self,
        cx: &mut Cx,
        fault: &mut Fault,
        number: u32,
        (which, around): (usize, Option<MmapHit>),
    ) -> Done {
        fault.begin(self, cx);
        let misses = fault.stage != Stage::Missed;
        if misses {
            fault.stage = Stage::Missed;
            fault.major = true;
            self.events[vmstat::pgmajfault] += 1;
            // What is cached around would be mapped first; that is left to when the page is there.
            if let Some(hit) = around {
                self.take_back_misses(cx, fault, number, which, hit);
            }
        }
        self.mmap_readahead(cx, &mut fault.alloc, fault.region, (number, fault.page), misses)
    }

    /// `PTRS_PER_PTE`: entries of a page table, 8 bytes each.
    pub(super) fn ptes(&self) -> u32 {
        (self.page.bytes().0 / 8) as u32
    }

    /// Pages of 64 KiB (`fault_around_bytes`).
    #[inline]
    pub(super) fn pages_around(&self) -> u32 {
        self.page.pages(FAULT_AROUND) as u32
    }

    /// Maps the cached pages of the 64 KiB around a page (`do_fault_around`), which is mapped already if it
    /// is cached, and takes back a miss for each that counts as a hit (`filemap_map_pages`).
    #[inline]
    fn fault_around(&mut self, cx: &Cx, fault: &Fault, number: u32, which: usize, hit: MmapHit) {
        let page = fault.page;
        // Usually all pages are absent or in the page table already, and most files are read without misses
        // to take back. These checks take no branch per page and read no frame.
        let around = self.entries.around(self.objects[number].base + page);
        let unmapped = around.iter().fold(false, |any, &e| any | entry::is_unmapped(e));
        self.take_back_misses(cx, fault, number, which, hit);
        if which > 0 || unmapped {
            self.map_around(number, which, page);
        }
    }

    /// Takes back a miss for each hit among the pages around one.
    #[inline]
    fn take_back_misses(&mut self, cx: &Cx, fault: &Fault, number: u32, which: usize, hit: MmapHit) {
        let Fault { region, page, .. } = *fault;
        if self.processes[cx.process].vma(region).is_some_and(|vma| vma.mmap_miss > 0) {
            let hits = self.hits_around(number, which, page, hit);
            self.mmap_hits(cx, region, hits);
        }
    }

    /// How many of the pages around one count as hits.
    #[cold]
    fn hits_around(&self, number: u32, which: usize, page: u32, hit: MmapHit) -> u32 {
        let object = &self.objects[number];
        let first = page & !(self.pages_around() - 1);
        let slot = (object.base + first) as usize;
        let around = (first..).zip(&self.entries[slot..slot + self.pages_around() as usize]);
        let hits = around.filter(|(near, e)| {
            let Some(frame) = entry::frame(**e) else { return false };
            let frame = &self.frames[frame as usize];
            let counts = match hit {
                MmapHit::Mapped => *near == page || !object.is_mapped(which, *near, **e),
                MmapHit::Cached => true,
                MmapHit::Fresh => !frame.has(flag::WORKINGSET),
            };
            counts && !frame.has(flag::LOCKED | flag::READAHEAD)
        });
        hits.count() as u32
    }

    /// Maps the cached pages around one.
    #[cold]
    fn map_around(&mut self, number: u32, which: usize, page: u32) {
        let Object { base, pages, .. } = self.objects[number];
        let around = self.pages_around();
        let first = page & !(around - 1);
        let last = (first + around).min(pages);
        for near in first..last {
            let e = self.entries[(base + near) as usize];
            if near == page || (which == 0 && e & entry::MAPPED != 0) {
                continue;
            }
            if let Some(frame) = entry::frame(e)
                && !self.frames[frame as usize].has(flag::LOCKED | flag::READAHEAD)
            {
                self.map_file_page(number, which, near, frame);
            }
        }
    }

    /// Enters a cached page into a page table, as accessed.
    #[inline(always)]
    pub(super) fn map_file_page(&mut self, number: u32, which: usize, page: u32, frame: u32) {
        let object = &mut self.objects[number];
        let e = &mut self.entries[(object.base + page) as usize];
        let first = *e & entry::MAPPED == 0 && !object.is_mapped_elsewhere(page);
        if which == 0 {
            if *e & entry::MAPPED != 0 {
                return;
            }
            *e = entry::MAPPED | entry::ACCESSED | frame;
        } else {
            object.map_elsewhere(which, page);
            self.frames[frame as usize].flags |= flag::OTHER;
        }
        if first {
            self.stat_add(frame, Stat::Mapped);
        }
    }

    /// The wait for the request that reads a page.
    pub(crate) fn wait_locked(&self, frame: u32) -> Wait {
        let f = self.frames[frame as usize];
        let why = if f.has(flag::ANON) {
            WaitReason::SwapIn
        } else if f.has(flag::REFAULTED) {
            WaitReason::Refault
        } else {
            WaitReason::Io
        };
        self.request_of(frame).map_or(Wait::YIELD, |id| Wait::request(id, why))
    }

    /// The request that reads a page.
    pub(crate) fn request_of(&self, frame: u32) -> Option<u64> {
        let f = self.frames[frame as usize];
        let (device, place) = match f.has(flag::SWAPCACHE) {
            true => (Device::Swap, self.swap.slot_of(frame)?),
            false => (Device::Disk, f.slot),
        };
        self.flights.reading(frame, device, place.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use lotsfree_workload::Policy;

    use super::*;
    use crate::Generation;

    /// Writes each page of a mapped file that has no contents. Returns the faults of the machine and
    /// the major ones, and the major and minor faults of the task.
    fn faults(generation: Generation) -> (u64, u64, u32, u32) {
        let mut mm = Mm::new(&Config::new(generation, vec![20_000]));
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let file = mm.declare_file(256, false);
        let mut cx = Cx::new(task, 0, process, 0);
        mm.map_file(&mut cx, RegionId(0), file, 256, true).unwrap();
        for page in 0..256 {
            Fault::new(RegionId(0), page, true).poll(&mut mm, &mut cx).unwrap();
        }
        (mm.events[vmstat::pgfault], mm.events[vmstat::pgmajfault], cx.major, cx.minor)
    }

    #[test]
    fn a_hole_is_filled_by_read_around_and_a_retry_is_major_to_the_task() {
        // The first window is 32 pages long. Page 24 starts the next window, and after that the first page of
        // each window starts the next.
        assert_eq!(faults(Generation::linux_6_1()), (256 + 8, 1, 1 + 8, 256 - 9));
        assert_eq!(faults(Generation::linux_6_12()), (256, 1, 1, 255));
        // Every page that becomes dirty is met twice.
        assert_eq!(faults(Generation::linux_5_10()), (256 + 8 + 256, 1, 256, 0));
    }

    #[test]
    fn a_write_to_a_private_file_is_one_fault_that_copies() {
        let mut mm = Mm::new(&Config::new(Generation::linux_6_12(), vec![20_000]));
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let file = mm.declare_file(64, false);
        let mut cx = Cx::new(task, 0, process, 0);
        mm.map_file(&mut cx, RegionId(0), file, 64, false).unwrap();
        // Half of the pages were read before: their copies are made in faults of their own.
        for page in 0..32 {
            Fault::new(RegionId(0), page, false).poll(&mut mm, &mut cx).unwrap();
        }
        let (before, spent) = (mm.events[vmstat::pgfault], cx.major + cx.minor);
        for page in 0..64 {
            Fault::new(RegionId(0), page, true).poll(&mut mm, &mut cx).unwrap();
        }
        assert_eq!(mm.events[vmstat::pgfault] - before, 64);
        assert_eq!(cx.major + cx.minor - spent, 64);
    }
}
