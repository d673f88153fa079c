//! Whom the OOM killer chooses (`mm/oom_kill.c`). The machine ends the victim (`machine/process.rs`).
//!
//! Not modelled: what programs have in memory of their own, control groups, CPU sets, and the reaper: a
//! victim frees its memory when it runs.

use lotsfree_kernel_files::file::node::print_cpulist;
use lotsfree_workload::Policy;

use super::Mm;
use super::frame::entry;
use super::mmap::Vma;
use super::page_alloc::nodemask;

/// Bytes of a process's name, with the zero at its end.
const TASK_COMM_LEN: usize = 16;

/// `OOM_SCORE_ADJ_MIN`: a process that is never chosen.
const UNKILLABLE: i32 = -1000;

/// The measure by which the OOM killer compares processes (`oom_badness`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Badness {
    /// Thousandths of memory and swap, at least one (2.6.36 to 3.5, and RHEL 6).
    Thousandths,
    /// Pages, at least one (3.6, a7f638f999ff).
    Positive,
    /// Pages, which `oom_score_adj` may take below zero (5.9, 9066e5cfb73c).
    Signed,
}

/// Pages of a process, by what they are (`get_mm_counter`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// Anonymous memory, copies of a private file's pages included.
    pub anon: u64,
    /// Pages of files.
    pub file: u64,
    /// Shared memory.
    pub shmem: u64,
    /// Anonymous memory on swap, or in memory on its way there and back.
    pub swap: u64,
}

impl Rss {
    /// All of them.
    pub fn total(self) -> u64 {
        let Rss { anon, file, shmem, swap } = self;
        anon + file + shmem + swap
    }
}

/// The process that the OOM killer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim<'a> {
    /// Its number among the address spaces.
    pub process: usize,
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: &'a str,
    /// `/proc/PID/oom_score_adj`
    pub oom_score_adj: i32,
    /// Whether it has asked for the memory itself (`vm.oom_kill_allocating_task`).
    pub asked: bool,
}

/// Where memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomControl {
    /// The nodes that the allocation was bound to, as a bit mask; `None` if it was to none.
    nodes: Option<u64>,
    /// Their memory and all swap, in pages (`oc->totalpages`).
    total: u64,
}

impl Mm {
    /// The pages that a process has in memory and on swap. Huge pages of the pool are none.
    pub fn rss(&self, process: usize) -> Rss {
        let mut rss = Rss::default();
        let vmas = self.processes.get(process).map_or(&[][..], |process| &process.vmas);
        for vma in vmas.iter().flatten() {
            self.add_rss(&mut rss, vma.object, vma);
            if let Some(copies) = vma.copies {
                self.add_rss(&mut rss, copies, vma);
            }
        }
        rss
    }

    fn add_rss(&self, rss: &mut Rss, number: u32, vma: &Vma) {
        let object = &self.objects[number];
        match object {
            object if object.hugetlb => {}
            object if object.file => rss.file += self.mapped(object, vma),
            object if object.shmem => rss.shmem += self.mapped(object, vma),
            // With nothing on swap all that is in memory is mapped.
            object if self.swap.free() == u64::from(self.swap.total) => rss.anon += u64::from(object.held),
            _ => {
                let base = object.base as usize;
                let entries = &self.entries[base..base + vma.pages.min(object.pages) as usize];
                // Sums without a branch, of several entries at a time: samples look at all of them.
                rss.anon += u64::from(entries.iter().map(|e| e >> entry::MAPPED_BIT).sum::<u32>());
                rss.swap += u64::from(entries.iter().map(|e| u32::from(entry::is_on_swap(*e))).sum::<u32>());
            }
        }
    }

    /// The bit mask of all nodes (`node_states[N_MEMORY]`).
    fn all_nodes(&self) -> u64 {
        u64::MAX >> (u64::BITS as usize - self.nodes.len())
    }

    /// The circumstances under which a process ran out of memory (`constrained_alloc`).
    pub fn oom_control(&self, process: usize) -> OomControl {
        let policy = self.processes.get(process).map(|process| &process.policy);
        let all = self.all_nodes();
        let nodes = match policy {
            Some(Policy::Bind(nodes)) => Some(nodemask(nodes)).filter(|mask| mask & all != all),
            _ => None,
        };
        let ram: u64 = match nodes {
            Some(mask) => {
                let bound = self.zones.iter().filter(|zone| mask >> zone.node & 1 == 1);
                bound.map(|zone| zone.present).sum()
            }
            None => self.totalram_pages(),
        };
        OomControl { nodes, total: ram + u64::from(self.swap.total) }
    }

    /// How bad a process is, which has that `oom_score_adj` (`oom_badness`); `None` if it may not be killed,
    /// or has nothing where memory ran out.
    pub fn oom_badness(&self, control: &OomControl, process: usize, adj: i32) -> Option<i64> {
        let space = self.processes.get(process).filter(|_| adj != UNKILLABLE)?;
        if let (Some(mask), Policy::Bind(nodes)) = (control.nodes, &space.policy)
            && nodemask(nodes) & mask == 0
        {
            return None;
        }
        let tables = space.tables.of_levels(self.generation.oom_page_tables.into());
        let pages = (self.rss(process).total() + tables) as i64;
        let (total, adj) = (control.total.max(1) as i64, i64::from(adj));
        Some(match self.generation.oom_badness {
            Badness::Thousandths => (pages * 1000 / total + adj).clamp(1, 1000),
            Badness::Positive => (pages + adj * (total / 1000)).max(1),
            Badness::Signed => pages + adj * (total / 1000),
        })
    }

    /// Whether a process that is as bad as the worst before it takes its place.
    pub fn oom_later_wins(&self) -> bool {
        self.generation.oom_later_wins
    }

    /// What the kernel says when it kills a process (`dump_oom_summary`, `oom_kill_process`): two messages,
    /// of which one begins with `Out of memory`. RHEL 6 puts the user before the name, which is left out.
    pub fn oom_messages(&self, control: &OomControl, victim: Victim<'_>) -> Vec<String> {
        let Victim { process, pid, name, oom_score_adj: adj, asked } = victim;
        let name: String = name.chars().take(TASK_COMM_LEN - 1).collect();
        let why = if asked { "Out of memory (oom_kill_allocating_task)" } else { "Out of memory" };
        let kib = |pages: u64| self.page.kib(pages);
        let rss = self.rss(process);
        let (vm, tables) = self
            .processes
            .get(process)
            .map_or((0, 0), |space| (space.total_vm, space.tables.of_levels(usize::MAX)));
        let sizes =
            format!("total-vm:{}kB, anon-rss:{}kB, file-rss:{}kB", kib(vm), kib(rss.anon), kib(rss.file));
        if self.generation.oom_later_wins {
            let (constraint, nodes) = match control.nodes {
                Some(mask) => ("MEMORY_POLICY", nodes_in(mask)),
                None => ("NONE", "(null)".to_owned()),
            };
            let all = nodes_in(self.all_nodes());
            let summary = format!(
                "oom-kill:constraint=CONSTRAINT_{constraint},nodemask={nodes},cpuset=/,mems_allowed={all},global_oom,\
                 task_memcg=/,task={name},pid={pid},uid=0"
            );
            let killed = format!(
                "{why}: Killed process {pid} ({name}) {sizes}, shmem-rss:{}kB, UID:0 pgtables:{}kB oom_score_adj:{adj}",
                kib(rss.shmem),
                kib(tables)
            );
            return vec![summary, killed];
        }
        let points = self.oom_badness(control, process, adj).unwrap_or(0);
        let score = match self.generation.oom_badness {
            Badness::Thousandths => points,
            _ => points * 1000 / control.total.max(1) as i64,
        };
        vec![
            format!("{why}: Kill process {pid} ({name}) score {score} or sacrifice child"),
            format!("Killed process {pid} ({name}) {sizes}"),
        ]
    }
}

/// Nodes of a mask as the kernel lists them: `0`, `0-1`, `0,2`.
fn nodes_in(mask: u64) -> String {
    let nodes: Vec<u32> = (0..u64::BITS).filter(|node| mask >> node & 1 == 1).collect();
    let mut list = String::new();
    print_cpulist(&nodes, &mut list);
    list.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use lotsfree_workload::RegionId;

    use super::super::{Config, Cx, Fault};
    use super::*;
    use crate::Generation;

    /// A machine of 256 MiB with 64 MiB of swap, and a process for each number of pages, which it has
    /// touched.
    fn machine(kernel: &str, pages: &[u32]) -> Mm {
        let mut config = Config::new(Generation::named(kernel).unwrap(), vec![1 << 16]);
        config.swap_pages = 1 << 14;
        let mut mm = Mm::new(&config);
        let task = mm.create_task();
        for pages in pages {
            let process = mm.create_process(Policy::Local);
            let mut cx = Cx::new(task, 0, process, 0);
            mm.map_anon(&mut cx, RegionId(0), *pages).unwrap();
            for page in 0..*pages {
                Fault::new(RegionId(0), page, true).poll(&mut mm, &mut cx).unwrap();
            }
        }
        mm
    }

    #[test]
    fn what_is_in_memory_and_in_tables_counts_and_the_adjustment_is_a_share_of_all() {
        for (kernel, tables) in [("linux-3.10", 6), ("linux-4.4", 7), ("linux-6.12", 8)] {
            let mm = machine(kernel, &[3000]);
            let control = mm.oom_control(0);
            let total = control.total as i64;
            assert_eq!(control.total, mm.totalram_pages() + (1 << 14));
            let badness = |adj| mm.oom_badness(&control, 0, adj);
            assert_eq!(badness(0), Some(3000 + tables), "{kernel}");
            assert_eq!(badness(100), Some(3000 + tables + total / 1000 * 100), "{kernel}");
            assert_eq!(badness(-1000), None, "{kernel}");
            let least = if kernel == "linux-6.12" { 3000 + tables - total / 1000 * 500 } else { 1 };
            assert_eq!(badness(-500), Some(least), "{kernel}");
        }
        let mm = machine("linux-2.6.32-rhel6", &[3000]);
        let control = mm.oom_control(0);
        assert_eq!(mm.oom_badness(&control, 0, 0), Some(3006 * 1000 / control.total as i64));
        assert_eq!(mm.oom_badness(&control, 0, 2000), Some(1000));
        assert_eq!(mm.oom_badness(&control, 0, -999), Some(1));
    }

    #[test]
    fn what_is_on_swap_or_on_its_way_counts_as_much_as_what_is_in_memory() {
        let mut mm = machine("linux-6.12", &[3000]);
        let before = mm.rss(0);
        assert_eq!(before, Rss { anon: 3000, ..Rss::default() });
        // Some pages leave the page table for the swap cache, and one of them memory.
        let mut cx = Cx::new(0, 0, usize::MAX, 0);
        for page in 0..10 {
            let base = mm.objects[mm.processes[0].vma(RegionId(0)).unwrap().object].base;
            let frame = entry::frame(mm.entries[(base + page) as usize]).unwrap();
            assert!(mm.add_to_swap(&mut cx, frame));
            mm.unmap_page(frame);
        }
        assert_eq!((mm.rss(0), mm.check()), (Rss { anon: 2990, swap: 10, ..Rss::default() }, Ok(())));
        let control = mm.oom_control(0);
        assert_eq!(mm.oom_badness(&control, 0, 0), Some(3008));
    }

    #[test]
    fn a_process_that_is_bound_elsewhere_is_left_alone() {
        let mut mm = Mm::new(&Config::new(Generation::linux_6_12(), vec![1 << 14, 1 << 15]));
        for policy in [Policy::Bind(vec![0]), Policy::Bind(vec![1]), Policy::Local] {
            mm.create_process(policy);
        }
        let control = mm.oom_control(0);
        assert_eq!(control.nodes, Some(1));
        assert!((16_000..=16_384).contains(&control.total), "{} pages of node 0", control.total);
        let eligible = [0, 1, 2].map(|process| mm.oom_badness(&control, process, 0).is_some());
        assert_eq!(eligible, [true, false, true]);
        let both = mm.create_process(Policy::Bind(vec![0, 1]));
        assert_eq!(mm.oom_control(both), mm.oom_control(2), "bound to all nodes is not bound");
        let anywhere = mm.oom_control(2);
        assert!([0, 1, 2].iter().all(|process| mm.oom_badness(&anywhere, *process, 0).is_some()));
    }

    #[test]
    fn the_messages_are_those_of_the_kernel() {
        let victim = Victim { process: 0, pid: 1000, name: "hog", oom_score_adj: 7, asked: false };
        let new = machine("linux-6.1", &[1000]);
        let control = new.oom_control(0);
        assert_eq!(
            new.oom_messages(&control, victim),
            [
                "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,\
              task_memcg=/,task=hog,pid=1000,uid=0",
                "Out of memory: Killed process 1000 (hog) total-vm:4000kB, anon-rss:4000kB, file-rss:0kB, \
              shmem-rss:0kB, UID:0 pgtables:16kB oom_score_adj:7"
            ]
        );
        let old = machine("linux-3.10", &[8000]);
        let control = old.oom_control(0);
        assert_eq!(
            old.oom_messages(&control, Victim { oom_score_adj: 0, asked: true, ..victim }),
            [
                "Out of memory (oom_kill_allocating_task): Kill process 1000 (hog) score 99 or sacrifice child",
                "Killed process 1000 (hog) total-vm:32000kB, anon-rss:32000kB, file-rss:0kB"
            ]
        );
    }
}
