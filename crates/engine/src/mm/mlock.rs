//! Locked memory (`mm/mlock.c`), whose pages come with it (`mm/gup.c`: `populate_vma_page_range`).
//!
//! A page of a locked region is on the list of the unevictable, where reclaim does not look. Each page that
//! is brought in is a fault of the task, as if it had touched the page.
//!
//! Not modelled: `MLOCK_ONFAULT`, `munlock`, and that pages which a fault maps around it are locked.

use lotsfree_formulas::memlock::{Owner, shm_hugetlb_permitted};
use lotsfree_kernel_files::counters::vmstat;
use lotsfree_units::Bytes;
use lotsfree_workload::{Limit, RegionId};

use super::frame::{entry, flag, list};
use super::mmap::Vma;
use super::vmstat::Stat;
use super::{Cx, Done, Fault, Mm, Stop, Wait};

/// `mlock` of a region, `mlockall`, or a call that maps one: it brings the region's pages in if the process
/// locks all that it maps, or maps with `MAP_POPULATE`.
#[derive(Debug)]
pub struct Lock {
    call: Call,
    begun: bool,
    /// How far it has come.
    region: RegionId,
    page: u32,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// `mmap` of anonymous memory, with its number of pages.
    Mmap(u32),
    /// `mmap` of a file: its object, the number of pages, and whether the mapping is shared.
    MapFile(u32, u32, bool),
    /// `shmat` of a segment, by its object.
    Attach(u32),
    Mlock,
    /// `mlockall(MCL_CURRENT | MCL_FUTURE)`
    Mlockall,
}

impl Lock {
    fn new(call: Call, region: RegionId) -> Self {
        Lock { call, begun: false, region, page: 0, fault: None }
    }

    /// `mmap` of anonymous memory.
    pub fn mmap(region: RegionId, pages: u32) -> Self {
        Lock::new(Call::Mmap(pages), region)
    }

    /// `mmap` of a file, by its object.
    pub fn map_file(region: RegionId, object: u32, pages: u32, shared: bool) -> Self {
        Lock::new(Call::MapFile(object, pages, shared), region)
    }

    /// `shmat` of a segment, by its object.
    pub fn attach(region: RegionId, object: u32) -> Self {
        Lock::new(Call::Attach(object), region)
    }

    /// `mlock` of a whole region.
    pub fn mlock(region: RegionId) -> Self {
        Lock::new(Call::Mlock, region)
    }

    /// `mlockall(MCL_CURRENT | MCL_FUTURE)`: all that the process has mapped, and will map.
    pub fn mlockall() -> Self {
        Lock::new(Call::Mlockall, RegionId(0))
    }

    /// Makes the call, or goes on to do so.
    ///
    /// # Errors
    /// The wait after which it is to be polled again; what [`Mm::map_anon`], [`Mm::map_file`], [`Mm::attach`]
    /// and [`Fault::poll`] say; [`Stop::Memlock`]; [`Stop::Bad`] if there is no such region.
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx) -> Done {
        if !self.begun {
            match self.call {
                Call::Mmap(pages) => mm.map_anon(cx, self.region, pages)?,
                Call::MapFile(object, pages, shared) => {
                    mm.map_file(cx, self.region, object, pages, shared)?
                }
                Call::Attach(object) => mm.attach(cx, self.region, object)?,
                Call::Mlock | Call::Mlockall => {
                    cx.spend(mm.costs.syscall);
                    mm.may_lock(cx.process, (self.call == Call::Mlock).then_some(self.region))?;
                }
            }
            let process = mm.processes.get_mut(cx.process).ok_or(Stop::Bad)?;
            process.locks_future |= self.call == Call::Mlockall;
            if self.call == Call::Mlock {
                let vma = process.vma_mut(self.region).ok_or(Stop::Bad)?;
                vma.locked = vma.order == 0;
            } else if self.call == Call::Mlockall {
                process.vmas.iter_mut().flatten().for_each(|vma| vma.locked = vma.order == 0);
            }
            self.begun = true;
        }
        let regions = mm.processes[cx.process].vmas.len() as u32;
        let last = if self.call == Call::Mlockall { regions } else { self.region.0 + 1 };
        while self.region.0 < last {
            self.populate(mm, cx)?;
            (self.region.0, self.page, self.fault) = (self.region.0 + 1, 0, None);
        }
        // The advice follows the mapping, whose pages are there if they came with it.
        if let Call::Mmap(_) = self.call
            && mm.wants_transparent_huge(cx.process)
            && let Some(vma) = mm.processes[cx.process].vma_mut(RegionId(last - 1))
        {
            vma.huge = true;
        }
        Ok(())
    }

    /// Brings in the pages of one region, if that is locked or mapped with `MAP_POPULATE`.
    fn populate(&mut self, mm: &mut Mm, cx: &mut Cx) -> Done {
        let space = &mm.processes[cx.process];
        let populates = space.memory.populate && matches!(self.call, Call::Mmap(_) | Call::MapFile(..));
        let Some(vma) = space.vma(self.region).filter(|vma| vma.locked || populates) else {
            return Ok(());
        };
        // A private region that may be written to is populated by stores.
        let writes = mm.is_accountable(vma);
        let (pages, step) = (vma.pages, 1 << vma.order);
        while self.page < pages {
            let (region, page) = (self.region, self.page);
            let fault = self.fault.get_or_insert_with(|| Fault::new(region, page, writes));
            match fault.poll(mm, cx) {
                // A page that cannot be had ends `mlock`; the others go on with the next region.
                Err(Stop::Bus | Stop::Bad) if self.call == Call::Mlock => return Err(Stop::Refused),
                Err(Stop::Bus | Stop::Bad) => break,
                done => done?,
            }
            self.fault = None;
            if let Some(vma) = mm.processes[cx.process].vma(region).filter(|vma| vma.locked) {
                mm.mlock_page(vma.object, vma.copies, page);
            }
            cx.spend(mm.costs.walk);
            self.page += step;
            if cx.spent >= cx.slice && self.page < pages {
                return Err(Wait::YIELD.into());
            }
        }
        Ok(())
    }
}

impl Mm {
    /// Whether a process may lock a region, or all that it has (`can_do_mlock`, `do_mlock`, `mlockall`).
    fn may_lock(&self, process: usize, region: Option<RegionId>) -> Done {
        let Some(space) = self.processes.get(process) else { return Err(Stop::Bad) };
        let Some(limit) = space.memory.limits.memlock.and_then(Limit::bytes) else { return Ok(()) };
        let pages = match region {
            Some(region) => {
                let vma = space.vma(region).ok_or(Stop::Bad)?;
                self.locked_vm(process) + if vma.locked { 0 } else { u64::from(vma.pages) }
            }
            None => space.total_vm,
        };
        if limit.0 == 0 || pages > self.page.pages(limit) { Err(Stop::Memlock) } else { Ok(()) }
    }

    /// `RLIMIT_MEMLOCK` of a process to which nobody gave another; `None` where it is not known.
    pub fn default_memlock(&self) -> Option<Bytes> {
        self.generation.rules.memlock.default_limit
    }

    /// Whether a process that may lock that much may make a segment of huge pages (`hugetlb_file_setup`).
    /// `pages` are the machine's.
    pub fn may_use_huge_pages(&self, memlock: Option<Limit>, pages: u32) -> bool {
        let Some(memlock) = memlock else { return true };
        let owner = Owner { memlock: memlock.bytes(), ..Owner::default() };
        let size = self.page.of(u64::from(pages).next_multiple_of(1 << self.hugetlb.order));
        shm_hugetlb_permitted(&self.generation.rules.memlock, &owner, size)
    }

    /// `mlockall(MCL_CURRENT | MCL_FUTURE)` of a process that has mapped nothing yet.
    ///
    /// # Errors
    /// [`Stop::Memlock`]
    pub fn lock_from_start(&mut self, process: usize) -> Done {
        self.may_lock(process, None)?;
        if let Some(space) = self.processes.get_mut(process) {
            space.locks_future = true;
        }
        Ok(())
    }

    /// Locks the page that a region has at a place: its copy, if it has one.
    pub(super) fn mlock_page(&mut self, object: u32, copies: Option<u32>, page: u32) {
        if self.objects[object].hugetlb {
            return;
        }
        let Some(frame) = self.frame_of(object, copies, page) else { return };
        let f = &mut self.frames[frame as usize];
        if f.has(flag::MLOCKED) {
            return;
        }
        f.flags |= flag::MLOCKED;
        let listed = f.list() != list::NONE;
        self.stat_add(frame, Stat::Mlock);
        self.events[vmstat::unevictable_pgs_mlocked] += 1;
        // What reclaim has taken off its list goes there when it is put back.
        if listed {
            self.events[vmstat::unevictable_pgs_culled] += 1;
            self.lru_move(frame, list::UNEVICTABLE, false);
        }
    }

    /// Unlocks a page that goes on to exist.
    fn munlock_page(&mut self, frame: u32) {
        self.clear_page_mlock(frame);
        if self.frames[frame as usize].list() == list::UNEVICTABLE {
            self.events[vmstat::unevictable_pgs_rescued] += 1;
            let to = self.generation.policy.list_to_reclaim(self, frame);
            self.lru_move(frame, to, false);
        }
    }

    /// Takes the lock from a page.
    pub(super) fn clear_page_mlock(&mut self, frame: u32) {
        self.frames[frame as usize].flags &= !flag::MLOCKED;
        self.stat_sub(frame, Stat::Mlock);
        self.events[vmstat::unevictable_pgs_munlocked] += 1;
    }

    /// Unlocks the pages of a locked region that is unmapped, if they are of a file or shared, and no other
    /// locked region has them.
    pub(super) fn munlock_vma(&mut self, vma: &Vma) {
        if !vma.locked || self.objects[vma.object].is_private() {
            return;
        }
        let base = self.objects[vma.object].base;
        for page in 0..vma.pages >> vma.order {
            let Some(frame) = entry::frame(self.entries[(base + page) as usize]) else { continue };
            if self.frames[frame as usize].has(flag::MLOCKED) && !self.is_locked(vma.object, page) {
                self.munlock_page(frame);
            }
        }
    }

    /// Whether a locked region has a page of a file or of shared memory.
    fn is_locked(&self, number: u32, page: u32) -> bool {
        let object = &self.objects[number];
        let e = self.entries[(object.base + page) as usize];
        object.mappings.iter().enumerate().any(|(which, mapping)| {
            let vma = self.processes[mapping.process].vma(RegionId(mapping.region));
            vma.is_some_and(|vma| vma.locked) && object.is_mapped(which, page, e)
        })
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::meminfo;
    use lotsfree_workload::Policy;

    use super::super::{Config, Kswapd, MS};
    use super::*;
    use crate::Generation;

    const PAGES: u32 = 2000;

    struct Host {
        mm: Mm,
        kswapd: (usize, Kswapd),
        cx: Cx,
    }

    impl Host {
        fn new(kernel: &str) -> Self {
            let mut config = Config::new(Generation::named(kernel).unwrap(), vec![1 << 13]);
            config.swap_pages = 20_000;
            let mut mm = Mm::new(&config);
            let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
            let kswapd = (mm.create_task(), Kswapd::new(0));
            Host { mm, kswapd, cx: Cx::new(task, 0, process, 0) }
        }

        /// Makes a call to its end, and checks what it has left.
        fn run(&mut self, call: impl FnMut(&mut Mm, &mut Cx) -> Done) {
            self.finish(call);
            assert_eq!(self.mm.check(), Ok(()));
        }

        fn finish(&mut self, mut call: impl FnMut(&mut Mm, &mut Cx) -> Done) {
            while let Err(stop) = call(&mut self.mm, &mut self.cx) {
                let Stop::Wait(_) = stop else { panic!("{stop:?}") };
                let mut kernel = Cx::new(self.kswapd.0, 0, usize::MAX, self.cx.now());
                self.kswapd.1.poll(&mut self.mm, &mut kernel);
                (self.cx.start, self.cx.spent) = (self.cx.now() + MS, 0);
                let sent: Vec<u64> = self.mm.take_io().map(|io| io.id).collect();
                sent.into_iter().for_each(|id| self.mm.complete(id, self.cx.start));
            }
        }

        fn lock(&mut self, mut lock: Lock) {
            self.run(|mm, cx| lock.poll(mm, cx));
        }

        fn touch(&mut self, region: u32, pages: u32) {
            for page in 0..pages {
                let mut fault = Fault::new(RegionId(region), page, true);
                self.finish(|mm, cx| fault.poll(mm, cx));
            }
            assert_eq!(self.mm.check(), Ok(()));
        }

        /// `Mlocked`, `Unevictable` and `SwapFree` in pages.
        fn lines(&self) -> [u64; 3] {
            let meminfo = self.mm.meminfo();
            [meminfo::Mlocked, meminfo::Unevictable, meminfo::SwapFree]
                .map(|line| meminfo.get(line).unwrap() / 4)
        }
    }

    #[test]
    fn locked_pages_are_there_before_they_are_touched_and_stay() {
        for kernel in ["linux-3.10", "linux-6.1", "linux-6.12+mglru"] {
            for before in [false, true] {
                let mut host = Host::new(kernel);
                if before {
                    host.lock(Lock::mlockall());
                    assert_eq!(host.lines(), [0, 0, 20_000], "{kernel}");
                }
                host.lock(Lock::mmap(RegionId(0), PAGES));
                if !before {
                    assert_eq!(host.cx.minor, 0, "{kernel}");
                    host.touch(0, 100);
                    host.lock(Lock::mlock(RegionId(0)));
                }
                assert_eq!((host.cx.minor, host.cx.major), (PAGES, 0), "{kernel}");
                host.touch(0, PAGES);
                assert_eq!(host.cx.minor, PAGES, "{kernel}: a touch is no fault");
                // More than there is memory for: the locked pages stay.
                let mut other = host.cx;
                other.process = host.mm.create_process(Policy::Local);
                let mine = std::mem::replace(&mut host.cx, other);
                host.lock(Lock::mmap(RegionId(0), 8000));
                host.touch(0, 8000);
                let [locked, unevictable, swap] = host.lines();
                assert_eq!((locked, unevictable), (u64::from(PAGES), u64::from(PAGES)), "{kernel}");
                assert!(swap < 18_500, "{kernel}: {swap} of 20,000 pages of swap are free");
                assert_eq!(host.mm.rss(0).total(), u64::from(PAGES));
                host.cx = mine;
                host.run(|mm, cx| mm.unmap(cx, RegionId(0)));
                assert_eq!(host.lines()[0], 0, "{kernel}");
            }
        }
    }

    #[test]
    fn what_is_on_swap_comes_back_to_be_locked() {
        let mut host = Host::new("linux-6.12");
        host.lock(Lock::mmap(RegionId(0), 500));
        host.touch(0, 500);
        host.lock(Lock::mmap(RegionId(1), 9000));
        host.touch(1, 9000);
        (host.cx.minor, host.cx.major) = (0, 0);
        host.lock(Lock::mlock(RegionId(0)));
        assert!(host.cx.major > 50, "{} major faults", host.cx.major);
        assert_eq!(host.lines()[..2], [500, 500]);
    }

    #[test]
    fn pages_of_a_file_and_of_shared_memory_are_unlocked_when_the_last_locked_region_goes() {
        let mut host = Host::new("linux-6.1");
        let file = host.mm.declare_file(300, false);
        let segment = host.mm.create_segment(300, true).unwrap();
        for process in [0, 1] {
            if process == 1 {
                host.cx.process = host.mm.create_process(Policy::Local);
            }
            host.run(|mm, cx| mm.map_file(cx, RegionId(0), file, 300, true));
            host.run(|mm, cx| mm.attach(cx, RegionId(1), segment));
            host.lock(Lock::mlockall());
        }
        assert_eq!(host.lines()[..2], [600, 600]);
        host.run(|mm, cx| mm.unmap(cx, RegionId(0)));
        assert_eq!(host.lines()[..2], [600, 600], "the other process has it locked, too");
        host.cx.process = 0;
        host.run(|mm, cx| mm.unmap(cx, RegionId(0)));
        assert_eq!(host.lines()[..2], [300, 300]);
        for process in [0, 1] {
            host.cx.process = process;
            host.run(|mm, cx| {
                mm.exit(cx);
                Ok(())
            });
        }
        assert_eq!(host.lines()[..2], [0, 0]);
        assert_eq!(host.mm.meminfo().get(meminfo::Shmem), Some(1200), "the segment stays");
    }
}
