//! Address spaces and their regions (`mm/mmap.c`).

use std::ops::Range;

use lotsfree_workload::{Advice, Huge, Limit, Memory, Policy, RegionId};

use super::frame::NONE;
use super::object::{Backing, RUN};
use super::pgtable::PageTables;
use super::readahead::RaState;
use super::{Cx, Done, Mm, Stop};
use crate::generation::AlignsAnon;

/// A mapping of a process (`vm_area_struct`).
#[derive(Debug)]
pub(crate) struct Vma {
    /// The first slot if accesses may use the entries directly, otherwise [`NONE`].
    pub(crate) base: u32,
    /// Its address, as a number of pages.
    pub(super) start: u64,
    /// Pages that no other region may have.
    pub(super) room: u64,
    pub(crate) pages: u32,
    /// Pages that an entry maps, as an order: more than one if they are huge.
    pub(super) order: u8,
    pub(crate) object: u32,
    /// Which of the object's mappings it is.
    pub(super) which: u32,
    /// The object with the copied pages of a private file mapping.
    pub(crate) copies: Option<u32>,
    pub(crate) advice: Advice,
    /// `VM_LOCKED`
    pub(super) locked: bool,
    /// `VM_HUGEPAGE`
    pub(super) huge: bool,
    pub(crate) ra: RaState,
    pub(crate) mmap_miss: u32,
}

impl Vma {
    /// The slots whose entries accesses may use directly. Those of a region without such entries lie beyond
    /// all that there are.
    #[inline]
    pub(super) fn slots(&self) -> Range<usize> {
        let base = self.base as usize;
        base..base + (self.pages >> self.order) as usize
    }

    /// Whether a walk over page tables looks at it.
    pub(crate) fn is_walked(&self) -> bool {
        self.has_recency() && !self.locked
    }

    /// Whether accesses say that pages are worth keeping (`vma_has_recency`; `lru_gen_enter_fault` in 6.1).
    pub(crate) fn has_recency(&self) -> bool {
        !matches!(self.advice, Advice::Random | Advice::Sequential)
    }
}

/// An address space.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    pub(crate) policy: Policy,
    pub(crate) vmas: Vec<Option<Vma>>,
    pub(crate) interleave: usize,
    pub(super) tables: PageTables,
    /// Whether what it maps is locked (`MCL_FUTURE`).
    pub(super) locks_future: bool,
    /// Pages of all regions and of the program's own memory (`mm->total_vm`).
    pub(super) total_vm: u64,
    /// The most that it was (`hiwater_vm`).
    pub(super) hiwater_vm: u64,
    /// Pages of the program's own memory, those of them that are promised, and those that are private and may
    /// be written to.
    pub(super) own_vm: u64,
    pub(super) own_committed: u64,
    pub(super) own_data: u64,
    /// How it has its memory.
    pub(super) memory: Memory,
}

impl AddressSpace {
    pub(crate) fn new(policy: Policy) -> Self {
        AddressSpace {
            policy,
            vmas: Vec::new(),
            interleave: 0,
            tables: PageTables::default(),
            locks_future: false,
            total_vm: 0,
            hiwater_vm: 0,
            own_vm: 0,
            own_committed: 0,
            own_data: 0,
            memory: Memory::default(),
        }
    }

    /// Adds pages that are mapped (`vm_stat_account`).
    pub(super) fn grow(&mut self, pages: u64) {
        self.total_vm += pages;
        self.hiwater_vm = self.hiwater_vm.max(self.total_vm);
    }

    /// The mapping of a region.
    pub(crate) fn vma(&self, id: RegionId) -> Option<&Vma> {
        self.vmas.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn vma_mut(&mut self, id: RegionId) -> Option<&mut Vma> {
        self.vmas.get_mut(id.0 as usize)?.as_mut()
    }
}

impl Mm {
    /// `mmap` of anonymous memory.
    ///
    /// # Errors
    /// [`Stop::Refused`], and the wait after which it is to be called again.
    pub fn map_anon(&mut self, cx: &mut Cx, region: RegionId, pages: u32) -> Done {
        if self.processes.get(cx.process).is_some_and(|space| space.memory.huge == Huge::Pool) {
            return self.map_huge_anon(cx, region, pages);
        }
        self.generation.policy.reserve(self, cx, pages)?;
        cx.spend(self.costs.syscall);
        if let Err(refused) = self.may_map(cx.process, pages.into(), true) {
            self.generation.policy.unreserve(self, pages);
            return Err(refused);
        }
        // Slots have numbers of 32 bits.
        let fits = self.entries.len() as u64 + u64::from(pages) < u64::from(NONE) - u64::from(RUN);
        let accounted = if fits { self.account(Some(cx.process), pages.into()) } else { Err(Stop::Refused) };
        if let Err(refused) = accounted {
            self.generation.policy.unreserve(self, pages);
            return Err(refused);
        }
        self.unmap_if(cx, region)?;
        let object = self.objects.create(&mut self.entries, pages, Backing::Anon);
        let mapped = self.add_region(cx, region, object, pages, None);
        if mapped.is_err() {
            self.generation.policy.unreserve(self, pages);
            self.unaccount(pages.into());
            self.objects.release(&mut self.entries, object);
        }
        mapped
    }

    /// `mmap` of a file from its beginning.
    ///
    /// # Errors
    /// [`Stop::Refused`]; [`Stop::Bad`] if there is no such file.
    pub fn map_file(&mut self, cx: &mut Cx, region: RegionId, object: u32, pages: u32, shared: bool) -> Done {
        cx.spend(self.costs.syscall);
        let pages = pages.min(self.objects.file(object)?.pages);
        self.may_map(cx.process, pages.into(), !shared)?;
        let promised = if shared { 0 } else { u64::from(pages) };
        self.account(Some(cx.process), promised)?;
        self.unmap_if(cx, region)?;
        if self.objects.file(object).is_err() {
            // It was deleted, and nobody else had it mapped.
            self.unaccount(promised);
            return Err(Stop::Bad);
        }
        let copies =
            if shared { None } else { Some(self.objects.create(&mut self.entries, pages, Backing::Anon)) };
        let mapped = self.add_region(cx, region, object, pages, copies);
        if let (Err(_), Some(copies)) = (mapped, copies) {
            self.unaccount(promised);
            self.objects.release(&mut self.entries, copies);
        }
        mapped
    }

    /// `mmap` of anonymous memory in pages of the pool (`MAP_HUGETLB`), which are reserved.
    fn map_huge_anon(&mut self, cx: &mut Cx, region: RegionId, pages: u32) -> Done {
        cx.spend(self.costs.syscall);
        self.may_map(cx.process, pages.into(), true)?;
        let object = self.create_huge_segment(pages).map_err(|_| Stop::Refused)?;
        // It ends with its only mapping.
        self.objects[object].deleted = true;
        self.unmap_if(cx, region)?;
        let mapped = self.attach_huge(cx, region, object);
        if mapped.is_err() {
            self.drop_object(cx, object);
        }
        mapped
    }

    /// Whether the limits of a process allow it to map that number of pages (`may_expand_vm`,
    /// `mlock_future_check`). `data` says whether they are private and may be written to.
    ///
    /// # Errors
    /// [`Stop::Refused`], [`Stop::Memlock`]
    pub(super) fn may_map(&self, process: usize, pages: u64, data: bool) -> Done {
        let Some(space) = self.processes.get(process) else { return Err(Stop::Bad) };
        let limits = &space.memory.limits;
        if limits.is_empty() {
            return Ok(());
        }
        let beyond = |limit: Option<Limit>, pages: u64| {
            limit.and_then(Limit::bytes).is_some_and(|bytes| pages > self.page.pages(bytes))
        };
        if space.locks_future && beyond(limits.memlock, self.locked_vm(process) + pages) {
            return Err(Stop::Memlock);
        }
        let of_data =
            data && self.generation.limits_data && beyond(limits.data, self.data_vm(process) + pages);
        if of_data || beyond(limits.address_space, space.total_vm + pages) {
            return Err(Stop::Refused);
        }
        Ok(())
    }

    /// Pages of regions that are locked (`mm->locked_vm`).
    pub(super) fn locked_vm(&self, process: usize) -> u64 {
        let vmas = self.processes.get(process).map_or(&[][..], |space| &space.vmas);
        vmas.iter().flatten().filter(|vma| vma.locked).map(|vma| u64::from(vma.pages)).sum()
    }

    /// Private pages that may be written to, but for the stack (`mm->data_vm`).
    pub(super) fn data_vm(&self, process: usize) -> u64 {
        let Some(space) = self.processes.get(process) else { return 0 };
        let is_data = |vma: &&Vma| {
            let object = &self.objects[vma.object];
            self.is_accountable(vma) || (object.hugetlb && object.deleted)
        };
        space.own_data
            + space.vmas.iter().flatten().filter(is_data).map(|vma| u64::from(vma.pages)).sum::<u64>()
    }

    /// Says how a process has its memory, before it has any.
    pub fn set_memory(&mut self, process: usize, memory: Memory) {
        if let Some(space) = self.processes.get_mut(process) {
            space.memory = memory;
        }
    }

    /// Whether the anonymous memory of a process is to consist of transparent huge pages.
    pub(super) fn wants_transparent_huge(&self, process: usize) -> bool {
        self.processes.get(process).is_some_and(|space| space.memory.huge == Huge::Transparent)
    }

    pub(super) fn add_region(
        &mut self,
        cx: &Cx,
        id: RegionId,
        number: u32,
        pages: u32,
        copies: Option<u32>,
    ) -> Done {
        let huge = self.page.pages(self.page.pmd_huge());
        let object = &self.objects[number];
        let hugetlb = object.hugetlb;
        let aligned = hugetlb
            || object.is_private()
                && match self.generation.aligns_anon {
                    AlignsAnon::Never => false,
                    AlignsAnon::Long => u64::from(pages) >= huge,
                    AlignsAnon::Multiple => pages > 0 && u64::from(pages).is_multiple_of(huge),
                };
        // Pages that are mapped together with one (`fault_around`) are the same by address and by offset, and
        // in one table. A kernel goes by the address, and does not align it.
        let around = u64::from(self.pages_around());
        let align = match aligned {
            true => huge,
            false if u64::from(pages) >= around => around,
            false => 1,
        };
        // What lies between two such regions is too short for another, and is not looked for again.
        let room = if align == around { u64::from(pages).next_multiple_of(around) } else { pages.into() };
        let start = self.get_unmapped_area(cx, room, align).ok_or(Stop::Bad)?;
        let object = &mut self.objects[number];
        let which = object.map(cx.process, id.0);
        let direct = which == 0 && copies.is_none() && !self.generation.policy.sees_every_access();
        let base = if direct { object.base } else { NONE };
        let process = &mut self.processes[cx.process];
        process.grow(pages.into());
        let (locked, vmas) = (process.locks_future, &mut process.vmas);
        let index = id.0 as usize;
        if vmas.len() <= index {
            vmas.resize_with(index + 1, || None);
        }
        vmas[index] = Some(Vma {
            base,
            start,
            room,
            pages,
            order: if hugetlb { self.hugetlb.order as u8 } else { 0 },
            object: number,
            which: which as u32,
            copies,
            advice: Advice::Normal,
            // Huge pages of the pool stay anyway, and do not count as locked.
            locked: locked && !hugetlb,
            huge: false,
            ra: RaState::default(),
            mmap_miss: 0,
        });
        if let Some(copies) = copies {
            self.objects[copies].map(cx.process, id.0);
        }
        Ok(())
    }

    pub(super) fn unmap_if(&mut self, cx: &mut Cx, region: RegionId) -> Done {
        match self.processes.get(cx.process).map(|process| process.vma(region).is_some()) {
            None => Err(Stop::Bad),
            Some(false) => Ok(()),
            Some(true) => self.unmap(cx, region),
        }
    }

    /// `munmap` of a whole region.
    pub fn unmap(&mut self, cx: &mut Cx, id: RegionId) -> Done {
        cx.spend(self.costs.syscall);
        let Some(vma) =
            self.processes.get_mut(cx.process).and_then(|p| p.vmas.get_mut(id.0 as usize)?.take())
        else {
            return Err(Stop::Bad);
        };
        self.processes[cx.process].total_vm -= u64::from(vma.pages);
        self.munlock_vma(&vma);
        if self.objects[vma.object].is_private() {
            self.generation.policy.unreserve(self, vma.pages);
        }
        if self.is_accountable(&vma) {
            self.unaccount(vma.pages.into());
        }
        self.zap(cx, vma.object, vma.which as usize);
        if let Some(copies) = vma.copies {
            self.zap(cx, copies, 0);
        }
        self.free_pgtables(cx, vma.start..vma.start + vma.room.max(1));
        Ok(())
    }

    /// Unmaps every region of the caller's process.
    pub fn exit(&mut self, cx: &mut Cx) {
        for region in 0..self.processes.get(cx.process).map_or(0, |process| process.vmas.len()) {
            let _ = self.unmap(cx, RegionId(region as u32));
        }
        self.exit_pgtables(cx);
        if let Some(process) = self.processes.get_mut(cx.process) {
            process.total_vm -= std::mem::take(&mut process.own_vm);
            process.own_data = 0;
            let own = std::mem::take(&mut process.own_committed);
            self.unaccount(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::meminfo;
    use lotsfree_workload::Limits;
    use lotsfree_workload::quantity::Size;

    use super::super::{Config, Fault, Lock};
    use super::*;
    use crate::Generation;

    const MIB: u32 = 256;

    /// A machine of 256 MiB with a process that has its memory in this way.
    fn machine(kernel: &str, memory: Memory, pool: u64) -> (Mm, Cx) {
        let mut config = Config::new(Generation::named(kernel).unwrap(), vec![1 << 16]);
        config.tuning.nr_hugepages = pool;
        let mut mm = Mm::new(&config);
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        mm.set_memory(process, memory);
        (mm, Cx::new(task, 0, process, 0))
    }

    fn limited(limits: Limits) -> Memory {
        Memory { limits, ..Memory::default() }
    }

    fn at(mib: u64) -> Option<Limit> {
        Some(Limit::At(Size::mib(mib)))
    }

    /// What `mmap` of anonymous memory says, with the pages that come with it.
    fn map(mm: &mut Mm, cx: &mut Cx, region: u32, pages: u32) -> Done {
        let mut lock = Lock::mmap(RegionId(region), pages);
        loop {
            match lock.poll(mm, cx) {
                Err(Stop::Wait(_)) => cx.spent = 0,
                done => {
                    assert_eq!(mm.check(), Ok(()));
                    return done;
                }
            }
        }
    }

    #[test]
    fn a_limit_of_data_counts_what_is_private_and_may_be_written_to_from_4_7_on() {
        for (kernel, refused) in [("linux-3.10", Ok(())), ("linux-6.1", Err(Stop::Refused))] {
            let (mut mm, mut cx) = machine(kernel, limited(Limits { data: at(4), ..Limits::default() }), 0);
            let file = mm.declare_file(8 * MIB, true);
            mm.map_file(&mut cx, RegionId(0), file, 8 * MIB, true).unwrap();
            assert_eq!(map(&mut mm, &mut cx, 1, 4 * MIB), Ok(()), "{kernel}: a shared mapping is no data");
            assert_eq!(map(&mut mm, &mut cx, 2, 1), refused, "{kernel}");
            assert_eq!(
                mm.map_file(&mut cx, RegionId(2), file, 1, false),
                refused,
                "{kernel}: nor a private file"
            );
            mm.unmap(&mut cx, RegionId(1)).unwrap();
            assert_eq!(map(&mut mm, &mut cx, 2, 4 * MIB), Ok(()), "{kernel}: there is room again");
        }
    }

    #[test]
    fn a_limit_of_the_address_space_counts_everything_touched_or_not() {
        let limits = Limits { address_space: at(8), ..Limits::default() };
        for kernel in ["linux-3.10", "linux-6.12"] {
            let (mut mm, mut cx) = machine(kernel, limited(limits), 0);
            let file = mm.declare_file(6 * MIB, true);
            mm.map_file(&mut cx, RegionId(0), file, 6 * MIB, true).unwrap();
            let promised = mm.meminfo().get(meminfo::Committed_AS);
            assert_eq!(map(&mut mm, &mut cx, 1, 2 * MIB + 1), Err(Stop::Refused), "{kernel}");
            assert_eq!(mm.meminfo().get(meminfo::Committed_AS), promised, "{kernel}: nothing was promised");
            assert_eq!(map(&mut mm, &mut cx, 1, 2 * MIB), Ok(()), "{kernel}");
        }
    }

    #[test]
    fn what_is_locked_from_the_start_counts_against_memlock_as_it_is_mapped() {
        let (mut mm, mut cx) =
            machine("linux-6.1", limited(Limits { memlock: at(4), ..Limits::default() }), 0);
        mm.lock_from_start(cx.process).unwrap();
        assert_eq!(map(&mut mm, &mut cx, 0, 3 * MIB), Ok(()));
        assert_eq!(cx.minor, 3 * MIB, "its pages are there");
        assert_eq!(map(&mut mm, &mut cx, 1, MIB + 1), Err(Stop::Memlock));
        assert_eq!(map(&mut mm, &mut cx, 1, MIB), Ok(()));
        assert_eq!(mm.meminfo().get(meminfo::Mlocked), Some(4 << 10));
        let none = limited(Limits { memlock: at(0), ..Limits::default() });
        let (mut mm, cx) = machine("linux-6.1", none, 0);
        assert_eq!(mm.lock_from_start(cx.process), Err(Stop::Memlock), "who may lock nothing may not ask");
    }

    #[test]
    fn pages_of_a_mapping_that_is_populated_are_there_but_not_locked() {
        let memory = Memory { populate: true, ..Memory::default() };
        let (mut mm, mut cx) = machine("linux-6.1", memory, 0);
        assert_eq!(map(&mut mm, &mut cx, 0, 2 * MIB), Ok(()));
        assert_eq!((cx.minor, mm.meminfo().get(meminfo::Mlocked)), (2 * MIB, Some(0)));
        for page in 0..2 * MIB {
            Fault::new(RegionId(0), page, true).poll(&mut mm, &mut cx).unwrap();
        }
        assert_eq!(cx.minor, 2 * MIB, "a touch is no fault");
    }

    #[test]
    fn private_huge_pages_are_reserved_as_they_are_mapped() {
        let memory = Memory { huge: Huge::Pool, ..Memory::default() };
        let (mut mm, mut cx) = machine("linux-6.1", memory, 4);
        let pool = |mm: &Mm| {
            let huge = mm.huge_pages();
            [huge.total, huge.free, huge.reserved]
        };
        let promised = mm.meminfo().get(meminfo::Committed_AS);
        // A page more than two huge ones.
        assert_eq!(map(&mut mm, &mut cx, 0, 4 * MIB + 1), Ok(()));
        assert_eq!(pool(&mm), [4, 4, 3]);
        assert_eq!(map(&mut mm, &mut cx, 1, 4 * MIB), Err(Stop::Refused), "one is left");
        assert_eq!(pool(&mm), [4, 4, 3]);
        Fault::new(RegionId(0), 700, true).poll(&mut mm, &mut cx).unwrap();
        assert_eq!((pool(&mm), cx.minor), ([4, 3, 2], 1));
        assert_eq!(mm.meminfo().get(meminfo::Committed_AS), promised, "the pool is promised apart");
        // What is mapped anew goes first.
        assert_eq!(map(&mut mm, &mut cx, 0, 2 * MIB), Ok(()));
        assert_eq!(pool(&mm), [4, 4, 1]);
        mm.exit(&mut cx);
        assert_eq!((pool(&mm), mm.check()), ([4, 4, 0], Ok(())));
    }

    #[test]
    fn a_segment_of_huge_pages_needs_memlock_for_all_of_it_and_from_6_1_on_the_capability() {
        for (kernel, within) in [("linux-2.6.32-rhel6", true), ("linux-5.4", true), ("linux-6.1", false)] {
            let (mm, _) = machine(kernel, Memory::default(), 8);
            assert!(mm.may_use_huge_pages(None, 1 << 30), "{kernel}: with the capability");
            assert_eq!(mm.may_use_huge_pages(at(4), 4 * MIB), within, "{kernel}");
            assert!(!mm.may_use_huge_pages(at(4), 4 * MIB + 1), "{kernel}: it is rounded up to a huge page");
            assert_eq!(mm.may_use_huge_pages(Some(Limit::Unlimited), 1 << 30), within, "{kernel}");
        }
    }
}
