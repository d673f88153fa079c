//! Memory that processes share: System V segments and files of tmpfs (`mm/shmem.c`, `ipc/shm.c`).
//!
//! Its pages are in the page cache, on the lists of anonymous memory, and go to swap if they were ever
//! written to. A page on its way to swap is in no page table and no longer in the page cache. One that comes
//! back gives up its slot at once.
//!
//! Not modelled: the size limit of tmpfs and its `SIGBUS`, `kernel.shmmax` and `shmall`, `SHM_LOCK`, huge
//! pages of tmpfs, shadows of pages that were only read.

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_workload::RegionId;

use super::frame::{entry, flag};
use super::memory::Fault;
use super::object::{Backing, Object};
use super::policy::Arrival;
use super::vmstat::Stat;
use super::{Cx, Done, Lack, MS, Mm, Stop, Wait, WaitReason};

impl Mm {
    /// Makes a segment, of which no page exists yet, and returns the number of its object: of System V
    /// (`shmget`), or a file of tmpfs. The administrator makes it.
    ///
    /// # Errors
    /// [`Lack::Promise`], with the most pages that one of System V may have now.
    pub fn create_segment(&mut self, pages: u32, sysv: bool) -> Result<u32, Lack> {
        if sysv && self.account(None, pages.into()).is_err() {
            return Err(Lack::Promise(self.largest_request(None).unwrap_or_default()));
        }
        let number = self.objects.create(&mut self.entries, pages, Backing::Shmem);
        self.objects[number].sysv = sysv;
        Ok(number)
    }

    /// Removes a segment once nobody has it attached any more (`IPC_RMID`, `unlink`).
    pub fn remove_segment(&mut self, cx: &mut Cx, number: u32) {
        let Some(Object { live: true, mappings, .. }) = self.objects.get(number) else { return };
        let alone = mappings.is_empty();
        self.objects[number].deleted = true;
        if alone {
            self.drop_object(cx, number);
        }
    }

    /// Attaches a segment, or maps a file of tmpfs (`shmat`, `mmap`).
    ///
    /// # Errors
    /// [`Stop::Bad`] if there is no such segment, or no room for it; what the limits of the process do not
    /// allow.
    pub fn attach(&mut self, cx: &mut Cx, region: RegionId, number: u32) -> Done {
        self.unmap_if(cx, region)?;
        cx.spend(self.costs.syscall);
        let Some(&Object { live: true, pages, shmem, hugetlb, .. }) = self.objects.get(number) else {
            return Err(Stop::Bad);
        };
        if hugetlb {
            self.may_map(cx.process, u64::from(pages) << self.hugetlb.order, false)?;
            return self.attach_huge(cx, region, number);
        }
        if !shmem {
            return Err(Stop::Bad);
        }
        self.may_map(cx.process, pages.into(), false)?;
        self.add_region(cx, region, number, pages, None)
    }

    /// A fault on shared memory (`shmem_fault`).
    pub(super) fn shmem_fault(&mut self, cx: &mut Cx, fault: &mut Fault, number: u32, which: usize) -> Done {
        let object = &self.objects[number];
        let page = fault.page();
        let slot = object.base + page;
        let e = self.entries[slot as usize];
        if let Some(frame) = entry::frame(e)
            && object.is_mapped(which, page, e)
        {
            // Its table lets the process store without a fault.
            self.access_shmem(number, which, page, (frame, fault.writes()));
            return Ok(());
        }
        fault.begin(self, cx);
        match entry::is(e) {
            entry::Is::Mapped(_) | entry::Is::Resident(_) => self.map_shmem_page(cx, fault, number, which)?,
            entry::Is::Swap(swap) => {
                let request = self.swapin_readahead(cx, fault.alloc(), number, slot, swap)?;
                if request.is_some() {
                    self.events[vmstat::pgmajfault] += 1;
                    fault.count_as_major();
                }
                // What asked no device is there at once.
                match entry::frame(self.entries[slot as usize]) {
                    Some(_) => self.map_shmem_page(cx, fault, number, which)?,
                    None => return Err(Wait::YIELD.into()),
                }
            }
            entry::Is::Empty => {
                let ac = fault.alloc().context(self, cx, Some(page), false);
                let frame = fault.alloc().poll(self, cx, &ac)?;
                if self.entries[slot as usize] != entry::EMPTY {
                    // Somebody else was faster.
                    self.free_page(cx.cpu, frame);
                    return Err(Wait::YIELD.into());
                }
                if self.objects[number].is_tmpfs() && self.account(Some(cx.process), 1).is_err() {
                    self.free_page(cx.cpu, frame);
                    return Err(Stop::Bus);
                }
                cx.spend(self.costs.zero);
                self.frames[frame as usize].slot = slot;
                self.frames[frame as usize].flags |= flag::ANON;
                self.entries[slot as usize] = entry::RESIDENT | frame;
                self.objects[number].held += 1;
                self.stat_add(frame, Stat::FilePages);
                self.stat_add(frame, Stat::Shmem);
                self.generation.policy.insert(self, frame, Arrival::Shared);
                self.batch_lru_add(cx, frame);
                self.map_file_page(number, which, page, frame);
                self.access_shmem(number, which, page, (frame, fault.writes()));
            }
            entry::Is::Shadow(_) => return Err(Stop::Bad),
        }
        self.shmem_around(fault, number, which);
        Ok(())
    }

    /// Maps the page of a fault, which is in memory or on its way there.
    fn map_shmem_page(&mut self, cx: &mut Cx, fault: &mut Fault, number: u32, which: usize) -> Done {
        let page = fault.page();
        let slot = self.objects[number].base + page;
        let Some(frame) = entry::frame(self.entries[slot as usize]) else { return Err(Wait::YIELD.into()) };
        if self.frames[frame as usize].has(flag::LOCKED) {
            return Err(self.wait_locked(frame).into());
        }
        if self.frames[frame as usize].has(flag::WRITEBACK) {
            // Its slot is in use until it is written (`folio_wait_writeback`).
            return Err(Wait::until(cx.now() + MS / 10, WaitReason::SwapIn).into());
        }
        if fault.alloc().is_under_way() {
            // Somebody else has brought the page. What reclaim collected for this allocation is sent.
            self.drop_alloc(cx, fault.alloc())?;
            fault.alloc().forget();
            self.end_plug(cx.task);
            // What made room may have taken the page again.
            return Err(Wait::YIELD.into());
        }
        self.shmem_swapped_in(cx, frame);
        self.map_file_page(number, which, page, frame);
        self.access_shmem(number, which, page, (frame, fault.writes()));
        Ok(())
    }

    /// Notes an access to a page through the page table of a mapping.
    fn access_shmem(&mut self, number: u32, which: usize, page: u32, (frame, write): (u32, bool)) {
        if write {
            self.frames[frame as usize].flags |= flag::DIRTY;
        }
        if which == 0 {
            let slot = self.objects[number].base + page;
            self.entries[slot as usize] |= entry::ACCESSED | if write { entry::DIRTY } else { 0 };
        } else {
            self.frames[frame as usize].flags |= flag::OTHER;
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

    /// Maps what is in memory around a page of tmpfs that was read (`do_fault_around`).
    fn shmem_around(&mut self, fault: &Fault, number: u32, which: usize) {
        let around = self.pages_around();
        let object = &self.objects[number];
        if fault.writes() || object.sysv || self.generation.fault_around.is_none() || around < 2 {
            return;
        }
        let (base, first) = (object.base, fault.page() & !(around - 1));
        for page in first..(first + around).min(object.pages) {
            let e = self.entries[(base + page) as usize];
            let Some(frame) = entry::frame(e) else { continue };
            let skip = self.frames[frame as usize].has(flag::LOCKED | flag::SWAPCACHE);
            if !skip && !self.objects[number].is_mapped(which, page, e) {
                self.map_file_page(number, which, page, frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_formulas::overcommit::Mode;
    use lotsfree_kernel_files::counters::meminfo as m;
    use lotsfree_scenario::Zpool;
    use lotsfree_workload::Policy;

    use super::super::{Config, Kswapd, WaitChannel, ZramConfig, ZswapConfig};
    use super::*;
    use crate::Generation;

    /// Two processes that have attached a segment, on a machine of 32 MiB.
    struct Host {
        mm: Mm,
        kswapd: (usize, Kswapd),
        segment: u32,
        now: u64,
    }

    const PAGES: u32 = 1 << 14;

    impl Host {
        fn new(config: &Config, sysv: bool) -> Self {
            let mut config = config.clone();
            config.tuning.overcommit = Mode::Always;
            let mut mm = Mm::new(&config);
            let segment = mm.create_segment(PAGES, sysv).unwrap();
            for process in 0..2 {
                mm.create_process(Policy::Local);
                mm.create_task();
                mm.attach(&mut Cx::new(process, 0, process, 0), RegionId(0), segment).unwrap();
            }
            let kswapd = (mm.create_task(), Kswapd::new(0));
            Host { mm, kswapd, segment, now: 0 }
        }

        /// Touches pages; returns the minor and major faults of the process.
        fn touch(&mut self, process: usize, pages: impl Iterator<Item = u32>, write: bool) -> (u32, u32) {
            let mut cx = Cx::new(process, 0, process, self.now);
            for page in pages {
                let mut fault = Fault::new(RegionId(0), page, write);
                while let Err(stop) = fault.poll(&mut self.mm, &mut cx) {
                    let Stop::Wait(wait) = stop else { panic!("{stop:?}") };
                    if let Some(WaitChannel::Io(id)) = wait.channel {
                        assert!(self.mm.flights.contains(id), "nobody ends the wait for request {id}");
                    }
                    let mut kernel = Cx::new(self.kswapd.0, 0, usize::MAX, cx.now());
                    self.kswapd.1.poll(&mut self.mm, &mut kernel);
                    (cx.start, cx.spent) = (cx.now() + MS, 0);
                    let sent: Vec<u64> = self.mm.take_io().map(|io| io.id).collect();
                    sent.into_iter().for_each(|id| self.mm.complete(id, cx.start));
                }
            }
            self.now = cx.now();
            assert_eq!(self.mm.check(), Ok(()));
            (cx.minor, cx.major)
        }

        fn kib(
            &self,
            line: lotsfree_kernel_files::counters::Counter<lotsfree_kernel_files::counters::Meminfo>,
        ) -> u64 {
            self.mm.meminfo().get(line).unwrap_or_default()
        }
    }

    #[test]
    fn shared_memory_goes_to_swap_and_comes_back_once_for_all() {
        let zram = Some(ZramConfig { object_bytes: 400, limit_pages: 0 });
        let zswap = Some(ZswapConfig {
            object_bytes: 400,
            zpool: Zpool::Zsmalloc,
            max_pool_percent: 20,
            accept_threshold_percent: 90,
        });
        for kernel in ["linux-3.10", "linux-5.4", "linux-6.12", "linux-6.12+mglru"] {
            for (zram, zswap) in [(None, None), (zram, None), (None, zswap)] {
                let generation = Generation::named(kernel).unwrap();
                let config = Config::new(generation, vec![1 << 13]);
                let mut host = Host::new(&Config { swap_pages: 20_000, zram, zswap, ..config }, true);
                // More than there is memory for.
                host.touch(0, 0..PAGES, true);
                let swapped = host.kib(m::SwapTotal) - host.kib(m::SwapFree);
                assert!(swapped > 4 * 8000, "{kernel}: {swapped} KiB on swap");
                assert!(host.kib(m::Shmem) + host.kib(m::SwapCached) + swapped >= 4 * u64::from(PAGES));
                assert_eq!(host.kib(m::Committed_AS), 4 * u64::from(PAGES));
                // The first pages are on swap. The other process reads them; then they are there for both.
                let (minor, major) = host.touch(1, 0..64, false);
                assert!(major > 0 && minor + major == 64, "{kernel}: {minor} minor, {major} major");
                assert_eq!(host.touch(0, 0..64, false).1, 0, "{kernel}");
                let (owner, other) = (host.mm.rss(0).total(), host.mm.rss(1).total());
                assert!(owner >= 64 && other >= 64, "{kernel}: {owner} and {other} pages are mapped");
            }
        }
    }

    #[test]
    fn what_was_only_read_needs_no_swap() {
        let mut host = Host::new(&Config::new(Generation::linux_6_12(), vec![1 << 13]), false);
        host.touch(0, 0..2000, false);
        assert_eq!(host.kib(m::Committed_AS), 4 * 2000, "tmpfs is accounted by page");
        assert_eq!(host.mm.frames.iter().filter(|f| f.has(flag::DIRTY) && f.has(flag::ANON)).count(), 0);
        host.touch(1, 0..10, true);
        assert_eq!(host.mm.frames.iter().filter(|f| f.has(flag::DIRTY) && f.has(flag::ANON)).count(), 10);
    }

    #[test]
    fn a_read_fault_maps_what_is_around_in_tmpfs_alone() {
        for (sysv, faults) in [(true, 160), (false, 10)] {
            let mut host = Host::new(&Config::new(Generation::linux_6_12(), vec![1 << 13]), sysv);
            host.touch(0, 0..160, true);
            assert_eq!(host.touch(1, 0..160, false), (faults, 0), "System V: {sysv}");
            assert_eq!((host.kib(m::Mapped), host.kib(m::AnonPages)), (4 * 160, 0));
        }
    }

    #[test]
    fn a_segment_outlives_who_leaves_and_ends_when_it_is_removed() {
        let mut host = Host::new(&Config::new(Generation::linux_6_12(), vec![1 << 13]), true);
        host.touch(0, 0..100, true);
        host.touch(1, 50..100, true);
        host.mm.exit(&mut Cx::new(0, 0, 0, host.now));
        assert_eq!((host.mm.check(), host.kib(m::Shmem), host.kib(m::Mapped)), (Ok(()), 400, 200));
        // Stores through what is now the first mapping need no fault.
        let writes = (50..100).map(|page| (page, true));
        assert_eq!(host.mm.touch_mapped(1, RegionId(0), writes), 50);
        host.mm.remove_segment(&mut Cx::new(1, 0, 1, host.now), host.segment);
        assert_eq!(host.kib(m::Shmem), 400, "somebody has it attached");
        host.mm.exit(&mut Cx::new(1, 0, 1, host.now));
        assert_eq!((host.mm.check(), host.kib(m::Shmem), host.kib(m::PageTables)), (Ok(()), 0, 0));
    }
}
