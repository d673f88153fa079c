//! How much memory may be promised (`mm/util.c`: `__vm_enough_memory`, `vm_commit_limit`).
//!
//! Promised are private regions that may be written to and segments of System V, touched or not, the pages
//! that files of tmpfs have, and what programs have of their own. Huge pages of the pool are not.
//!
//! Not modelled: `MAP_NORESERVE`, stacks that grow, `fork`, what the kernel's counter hides in its batches
//! (`vm_committed_as_batch`), and that there is less free memory at boot, of which the reserves are a part,
//! than the zones manage.

use lotsfree_formulas::Rules;
use lotsfree_formulas::overcommit::{
    Asker, CommitState, Heuristic, Mode, OvercommitRules, commit_limit, default_reserves_kib, largest_request,
};

use super::frame::entry;
use super::mmap::Vma;
use super::vmstat::Stat;
use super::{Done, Mm, Stop};
use crate::tuning::Tuning;

/// The rules of kernels whose function was not read (3.0): those of RHEL 6.
const UNREAD: OvercommitRules = match Rules::rhel_6().overcommit {
    Some(rules) => rules,
    None => panic!("RHEL 6 has rules"),
};

impl Mm {
    /// The kernel's rules.
    fn overcommit_rules(&self) -> OvercommitRules {
        self.generation.rules.overcommit.unwrap_or(UNREAD)
    }

    /// Pages of the pools of huge pages (`hugetlb_total_pages`).
    fn hugetlb_total_pages(&self) -> u64 {
        self.huge_pages().total << self.hugetlb.order
    }

    /// `CommitLimit`, in pages.
    pub(super) fn commit_limit(&self) -> u64 {
        let (ram, swap) = (self.totalram_pages(), u64::from(self.swap.total));
        let huge = self.hugetlb_total_pages();
        commit_limit(&self.overcommit_rules(), self.tuning.commit_limit, ram, huge, swap, self.page)
    }

    /// `vm.admin_reserve_kbytes` and `vm.user_reserve_kbytes`.
    pub(super) fn commit_reserves(&self) -> (u64, u64) {
        let (admin, user) = default_reserves_kib(self.page.of(self.totalram_pages()).as_kib());
        let Tuning { admin_reserve_kbytes, user_reserve_kbytes, .. } = self.tuning;
        (admin_reserve_kbytes.unwrap_or(admin), user_reserve_kbytes.unwrap_or(user))
    }

    /// The most pages that a process may ask for at once; `None` if nothing is refused. Without a process,
    /// the administrator asks, who has mapped nothing.
    pub(super) fn largest_request(&self, process: Option<usize>) -> Option<u64> {
        let (rules, limit) = (self.overcommit_rules(), self.commit_limit());
        let mode = self.tuning.overcommit;
        if mode == Mode::Always {
            return None;
        }
        let ram = self.totalram_pages();
        let (admin, user) = self.commit_reserves();
        let pages = |kib: u64| kib / self.page.bytes().as_kib();
        let mut state = CommitState {
            ram,
            hugetlb: self.hugetlb_total_pages(),
            swap: self.swap.total.into(),
            committed: self.committed,
            admin_reserve: pages(admin),
            user_reserve: pages(user),
            ..CommitState::default()
        };
        if mode == Mode::Heuristic && rules.heuristic != Heuristic::Obvious {
            let sums = self.all();
            state.free = sums.free;
            state.file = sums.get(Stat::FilePages) + sums.get(Stat::SwapCached);
            state.shmem = sums.get(Stat::Shmem);
            state.slab_reclaimable = sums.get(Stat::SlabReclaimable);
            state.swap_free = self.swap.free();
            state.total_reserve = self.total_reserve;
        }
        let total_vm = process.and_then(|process| self.processes.get(process)).map_or(0, |of| of.total_vm);
        largest_request(&rules, mode, limit, &state, &Asker { admin: process.is_none(), total_vm })
    }

    /// Promises pages to a process, or to the administrator (`security_vm_enough_memory_mm`).
    ///
    /// # Errors
    /// [`Stop::Refused`] if the kernel promises no more.
    pub(super) fn account(&mut self, process: Option<usize>, pages: u64) -> Done {
        if self.largest_request(process).is_some_and(|most| pages > most) {
            return Err(Stop::Refused);
        }
        self.committed += pages;
        Ok(())
    }

    /// Whether the pages of a region are promised: it is private and may be written to (`VM_ACCOUNT`).
    pub(super) fn is_accountable(&self, vma: &Vma) -> bool {
        vma.copies.is_some() || self.objects[vma.object].is_private()
    }

    /// Takes back a promise (`vm_unacct_memory`).
    pub(super) fn unaccount(&mut self, pages: u64) {
        self.committed -= pages;
    }

    /// Promises to programs that are not those of the run what is left of `all` pages after the segments that
    /// there are and as many `programs` of the run, which have one thread each.
    pub(crate) fn commit_others(&mut self, all: u64, programs: u64) {
        let ours = self.committed + programs * self.program_pages(1).1;
        self.others_committed = all.saturating_sub(ours);
        self.committed += self.others_committed;
    }

    /// Checks what is promised, and what each process has mapped.
    pub(super) fn check_committed(&self) -> Result<(), String> {
        let mut promised = self.others_committed;
        for (process, space) in self.processes.iter().enumerate() {
            let vmas = || space.vmas.iter().flatten();
            promised += space.own_committed
                + vmas().filter(|vma| self.is_accountable(vma)).map(|vma| u64::from(vma.pages)).sum::<u64>();
            let mapped = space.own_vm + vmas().map(|vma| u64::from(vma.pages)).sum::<u64>();
            if mapped != space.total_vm {
                return Err(format!(
                    "process {process} has {mapped} pages mapped and counts {}",
                    space.total_vm
                ));
            }
        }
        for (_, object) in self.objects.iter().filter(|(_, object)| object.live && object.shmem) {
            promised += match object.sysv {
                true => u64::from(object.pages),
                false => {
                    // A page on swap is one of the file, too.
                    let slots = object.base as usize..(object.base + object.pages) as usize;
                    self.entries[slots].iter().filter(|&&e| e != entry::EMPTY).count() as u64
                }
            };
        }
        if promised != self.committed {
            return Err(format!("{promised} pages are promised, and {} are counted", self.committed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_formulas::overcommit::LimitSetting;
    use lotsfree_kernel_files::counters::meminfo;
    use lotsfree_workload::{Policy, RegionId};

    use super::super::{Config, Cx, Fault, Lack};
    use super::*;
    use crate::Generation;

    const RAM: u64 = 1 << 16;

    fn machine(kernel: &str, mode: Mode, percent: u64, swap: u64) -> (Mm, Cx) {
        let mut config = Config::new(Generation::named(kernel).unwrap(), vec![RAM]);
        (config.tuning.overcommit, config.tuning.commit_limit) = (mode, LimitSetting::Ratio(percent));
        config.swap_pages = swap;
        let mut mm = Mm::new(&config);
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        (mm, Cx::new(task, 0, process, 0))
    }

    /// Asks for regions of `pages` until one is refused; returns how many were not.
    fn regions(mm: &mut Mm, cx: &mut Cx, pages: u32) -> u64 {
        let refused = |region: &u64| {
            mm.map_anon(cx, RegionId(*region as u32), pages)
                .inspect_err(|why| assert_eq!(*why, Stop::Refused))
                .is_err()
        };
        let regions = (0..1000).find(refused).unwrap_or(1000);
        assert_eq!(mm.check(), Ok(()));
        regions
    }

    #[test]
    fn mode_2_refuses_what_is_above_the_limit_less_its_reserves() {
        let (pages, swap) = (1000, 20_000);
        for kernel in ["linux-2.6.32-rhel6", "linux-3.10", "linux-4.4", "linux-6.12"] {
            let (mut mm, mut cx) = machine(kernel, Mode::Never, 50, swap);
            let limit = mm.totalram_pages() / 2 + swap;
            assert_eq!(mm.meminfo().get(meminfo::CommitLimit), Some(4 * limit), "{kernel}");
            // The last region that fits, with a thirty-second of memory kept back for the administrator, and
            // one of what the process has before it.
            let admin = mm.commit_reserves().0 / 4;
            assert_eq!(admin, mm.totalram_pages() / 32, "{kernel}");
            let fits = |n: &u64| n * u64::from(pages) < limit - admin - (n - 1) * u64::from(pages) / 32;
            let expected = (1..).take_while(fits).last().unwrap();
            assert_eq!(regions(&mut mm, &mut cx, pages), expected, "{kernel}");
            mm.unmap(&mut cx, RegionId(0)).unwrap();
            assert_eq!(mm.map_anon(&mut cx, RegionId(0), pages), Ok(()), "{kernel}: there is room again");
            assert_eq!(mm.meminfo().get(meminfo::Committed_AS), Some(4 * expected * u64::from(pages)));
        }
    }

    #[test]
    fn mode_0_judges_each_request_alone_and_mode_1_none() {
        let all = RAM + 5000;
        for (kernel, mode, refused) in [
            ("linux-6.12", Mode::Heuristic, true),
            ("linux-4.4", Mode::Heuristic, true),
            ("linux-2.6.32-rhel6", Mode::Heuristic, true),
            ("linux-6.12", Mode::Always, false),
        ] {
            let (mut mm, mut cx) = machine(kernel, mode, 50, 5000);
            assert_eq!(regions(&mut mm, &mut cx, 10_000), 1000, "{kernel}: {mode:?}");
            assert_eq!(mm.map_anon(&mut cx, RegionId(0), all as u32).is_err(), refused, "{kernel}: {mode:?}");
        }
        // What is in use is there no more, where the kernel estimates.
        let (mut mm, mut cx) = machine("linux-4.4", Mode::Heuristic, 50, 0);
        let before = mm.largest_request(Some(0)).unwrap();
        mm.map_anon(&mut cx, RegionId(0), 9000).unwrap();
        for page in 0..9000 {
            Fault::new(RegionId(0), page, true).poll(&mut mm, &mut cx).unwrap();
        }
        let (less, tables) = (before - mm.largest_request(Some(0)).unwrap(), 9000 / 512);
        assert!((9000..9000 + tables + 500).contains(&less), "{less} pages less");
    }

    #[test]
    fn a_refused_region_leaves_the_one_before_it() {
        let (mut mm, mut cx) = machine("linux-6.12", Mode::Never, 50, 0);
        mm.map_anon(&mut cx, RegionId(0), 100).unwrap();
        assert_eq!(mm.map_anon(&mut cx, RegionId(0), RAM as u32), Err(Stop::Refused));
        assert_eq!(Fault::new(RegionId(0), 99, true).poll(&mut mm, &mut cx), Ok(()));
        mm.exit(&mut cx);
        assert_eq!((mm.committed, mm.check()), (0, Ok(())));
    }

    #[test]
    fn a_segment_counts_in_its_length_and_a_file_of_tmpfs_by_page() {
        let (mut mm, mut cx) = machine("linux-6.12", Mode::Never, 10, 0);
        let most = mm.commit_limit() - 1;
        assert_eq!(mm.create_segment(most as u32 + 1, true), Err(Lack::Promise(most)));
        let segment = mm.create_segment(1000, true).unwrap();
        assert_eq!(mm.committed, 1000);
        mm.remove_segment(&mut cx, segment);
        assert_eq!(mm.committed, 0);
        // Files of tmpfs take what the limit leaves to a process, and then there is no page for it.
        let file = mm.create_segment(RAM as u32, false).unwrap();
        mm.attach(&mut cx, RegionId(0), file).unwrap();
        let mut touch = |page| Fault::new(RegionId(0), page, true).poll(&mut mm, &mut cx);
        let had = (0..).take_while(|page| touch(*page).is_ok()).count() as u64;
        assert_eq!(touch(had as u32), Err(Stop::Bus));
        assert_eq!(mm.committed, had);
        assert_eq!(had, mm.largest_request(Some(0)).unwrap() + had, "nothing is left");
        mm.exit(&mut cx);
        mm.remove_segment(&mut cx, file);
        assert_eq!((mm.committed, mm.check()), (0, Ok(())));
    }
}
