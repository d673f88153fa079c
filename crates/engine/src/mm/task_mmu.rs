//! What a kernel says of the memory of a process (`fs/proc/task_mmu.c`: `task_mem`) and of segments of System
//! V (`ipc/shm.c`: `sysvipc_shm_proc_show`).
//!
//! A program's own text, heap and stack are in `VmSize` and `VmPTE`, but the model has no pages for them:
//! they are not in `VmRSS`.

use lotsfree_kernel_files::counters::{Status, Values, status};
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_run::StageMemory;

use super::frame::entry;
use super::mmap::Vma;
use super::oom_kill::Rss;
use super::vmstat::Lines;
use super::{Mm, object::Object};

impl Mm {
    /// The memory lines of a process's `status`. Those that nobody counts here are left out.
    pub fn status(&self, process: usize) -> Values<Status> {
        let mut lines = Lines::new(self.release());
        let Some(space) = self.processes.get(process) else { return lines.values };
        let vmas = || space.vmas.iter().flatten();
        let Rss { anon, file, shmem, swap } = self.rss(process);
        let [ptes, pmds, all] = [1, 2, usize::MAX].map(|levels| space.tables.of_levels(levels));
        // From the release on that has no line for the tables of the second level, all are in one line
        // (4.15, af5b0f6a09e4).
        let split = status::VmPMD.row().until.is_some_and(|until| self.release() < until.numbers);
        for (line, pages) in [
            (status::VmPeak, space.hiwater_vm),
            (status::VmSize, space.total_vm),
            (status::VmLck, self.locked_vm(process)),
            (status::VmRSS, anon + file + shmem),
            (status::RssAnon, anon),
            (status::RssFile, file),
            (status::RssShmem, shmem),
            (status::VmData, self.data_vm(process)),
            (status::VmPTE, if split { ptes } else { all }),
            (status::VmPMD, pmds - ptes),
            (status::VmSwap, swap),
            (status::HugetlbPages, vmas().map(|vma| self.hugetlb_pages(vma)).sum()),
        ] {
            lines.put(line, self.page.kib(pages));
        }
        lines.values
    }

    /// What a process has mapped, and what of it is in memory.
    pub fn memory_of(&self, process: usize) -> StageMemory {
        let Rss { anon, file, shmem, .. } = self.rss(process);
        let size = self.processes.get(process).map_or(0, |space| space.total_vm);
        StageMemory { size: self.page.kib(size), resident: self.page.kib(anon + file + shmem) }
    }

    /// Pages of the pool that a region has mapped, in base pages (`hugetlb_usage`).
    fn hugetlb_pages(&self, vma: &Vma) -> u64 {
        let object = &self.objects[vma.object];
        if object.hugetlb { self.mapped(object, vma) << self.hugetlb.order } else { 0 }
    }

    /// How many entries of its table a region has.
    pub(super) fn mapped(&self, object: &Object, vma: &Vma) -> u64 {
        match vma.which {
            0 => {
                let pages = (vma.pages >> vma.order).min(object.pages);
                let entries = &self.entries[object.base as usize..(object.base + pages) as usize];
                entries.iter().filter(|e| **e & entry::MAPPED != 0).count() as u64
            }
            which => u64::from(object.mappings[which as usize].bits.count()),
        }
    }

    /// A segment, by the number of its object; `None` if it is a file of tmpfs.
    pub fn shm_segment(&self, number: u32) -> Option<ShmSegment> {
        let object = self.objects.get(number).filter(|object| object.sysv || object.hugetlb)?;
        let (resident, swapped) = match object.hugetlb {
            true => {
                let slots = object.base as usize..(object.base + object.pages) as usize;
                let had = self.entries[slots].iter().filter(|e| entry::frame(**e).is_some()).count();
                ((had as u64) << self.hugetlb.order, 0)
            }
            false => (u64::from(object.held), self.swapped(object)),
        };
        let pages = u64::from(object.pages) << if object.hugetlb { self.hugetlb.order } else { 0 };
        Some(ShmSegment {
            shmid: number.into(),
            // Who may attach: the owner (`SHM_R | SHM_W`).
            perms: 0o600,
            size: self.page.of(pages),
            nattch: object.mappings.len() as u64,
            rss: Some(self.page.of(resident)),
            swap: Some(self.page.of(swapped)),
            ..ShmSegment::default()
        })
    }

    /// Pages of shared memory that are on swap (`shmem_inode_info.swapped`).
    fn swapped(&self, object: &Object) -> u64 {
        if self.swap.total == 0 {
            return 0;
        }
        let slots = object.base as usize..(object.base + object.pages) as usize;
        let on_swap = |e: &&u32| matches!(entry::is(**e), entry::Is::Swap(_));
        self.entries[slots].iter().filter(on_swap).count() as u64
    }

    /// The objects that a process has mapped, each with the address in bytes at which it begins.
    pub fn mapped_objects(&self, process: usize) -> impl Iterator<Item = (u32, u64)> {
        let vmas = self.processes.get(process).map_or(&[][..], |space| &space.vmas);
        vmas.iter().flatten().map(|vma| (vma.object, self.page.of(vma.start).0))
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_workload::{Policy, RegionId};

    use super::super::{Config, Cx, Fault, Lock};
    use super::*;
    use crate::Generation;

    /// Lines of a process that has 1,000 pages of its own, of which 100 were touched, and a segment of 4 MiB,
    /// of which the second process has touched 600 pages.
    fn lines(kernel: &str, huge: bool) -> [Values<Status>; 2] {
        let mut config = Config::new(Generation::named(kernel).unwrap(), vec![1 << 16]);
        config.tuning.nr_hugepages = 8;
        let mut mm = Mm::new(&config);
        let segment = if huge { mm.create_huge_segment(1024) } else { mm.create_segment(1024, true) };
        let segment = segment.unwrap();
        let mut lines = Vec::new();
        for touched in [0, 600] {
            let process = mm.create_process(Policy::Local);
            let mut cx = Cx::new(mm.create_task(), 0, process, 0);
            mm.map_anon(&mut cx, RegionId(0), 1000).unwrap();
            mm.attach(&mut cx, RegionId(1), segment).unwrap();
            mm.map_anon(&mut cx, RegionId(2), 5000).unwrap();
            mm.unmap(&mut cx, RegionId(2)).unwrap();
            for (region, page) in (0..100).map(|page| (0, page)).chain((0..touched).map(|page| (1, page))) {
                Fault::new(RegionId(region), page, true).poll(&mut mm, &mut cx).unwrap();
            }
            lines.push(mm.status(process));
        }
        let of = mm.shm_segment(segment).unwrap();
        let resident = if huge { 1024 } else { 600 };
        assert_eq!((of.size.as_kib(), of.nattch, of.rss.unwrap().as_kib()), (4096, 2, 4 * resident));
        let attached: Vec<u32> = mm.mapped_objects(1).map(|(object, _)| object).collect();
        assert!(attached.contains(&segment) && attached.len() == 2);
        assert_eq!(mm.check(), Ok(()));
        lines.try_into().unwrap()
    }

    #[test]
    fn status_says_what_is_mapped_and_what_of_it_is_there() {
        let all = |values: &Values<Status>, names: &[_]| -> Vec<Option<u64>> {
            names.iter().map(|name| values.get(*name)).collect()
        };
        let sizes = [status::VmPeak, status::VmSize, status::VmRSS];
        let parts = [status::RssAnon, status::RssShmem, status::HugetlbPages];
        for kernel in ["linux-6.1", "linux-6.12+mglru"] {
            let [first, second] = lines(kernel, false);
            let size = 4 * (1000 + 1024);
            assert_eq!(all(&first, &sizes), [size + 20_000, size, 400].map(Some), "{kernel}");
            assert_eq!(all(&second, &sizes), [size + 20_000, size, 2800].map(Some), "{kernel}");
            assert_eq!(all(&second, &parts), [400, 2400, 0].map(Some), "{kernel}");
            let [_, second] = lines(kernel, true);
            assert_eq!(all(&second, &parts), [400, 0, 4096].map(Some), "{kernel}");
        }
        // One table of the own pages, two of the segment's, and one and two above them.
        let tables = [status::VmPTE, status::VmPMD];
        assert_eq!(all(&lines("linux-3.10", false)[1], &tables), [Some(12), None]);
        assert_eq!(all(&lines("linux-4.4", false)[1], &tables), [Some(12), Some(4)]);
        assert_eq!(all(&lines("linux-5.4", false)[1], &tables), [Some(20), None]);
        assert_eq!(all(&lines("linux-3.10", false)[1], &parts), [None; 3]);
    }

    #[test]
    fn what_is_locked_and_what_is_on_swap_is_told() {
        let mut config = Config::new(Generation::linux_6_1(), vec![1 << 16]);
        config.swap_pages = 1000;
        let mut mm = Mm::new(&config);
        let process = mm.create_process(Policy::Local);
        let mut cx = Cx::new(mm.create_task(), 0, process, 0);
        mm.map_anon(&mut cx, RegionId(0), 300).unwrap();
        let lock = &mut Lock::mlock(RegionId(0));
        while lock.poll(&mut mm, &mut cx).is_err() {}
        let status = mm.status(process);
        assert_eq!(
            [status::VmLck, status::VmRSS, status::VmSwap].map(|line| status.get(line)),
            [Some(1200), Some(1200), Some(0)]
        );
    }
}
