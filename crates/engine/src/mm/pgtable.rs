//! The page tables of processes (`mm/memory.c`: `__pte_alloc`, `__pmd_alloc`, `free_pgtables`), and where
//! regions lie in an address space (`mm/mmap.c`).
//!
//! What a page table says of a page is in the page's entry (`frame.rs`) or in the bits of its mapping
//! (`object.rs`). Here are the tables as memory: each is a page of the kernel's, which comes when a page of
//! its range is touched first and goes when nothing is mapped in its range any more, but not when reclaim
//! takes the pages.
//!
//! Not modelled: the root, the fifth level, and tables of huge pages that processes share (`huge_pmd_share`,
//! where a mapping has a whole GiB at the same place of its table).

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Range;

use lotsfree_units::{Bytes, PageSize};
use rustc_hash::FxBuildHasher;

use super::frame::{Frame, entry, flag};
use super::free_area::MigrateType;
use super::mmap::Vma;
use super::page_alloc::Alloc;
use super::slab::{Gfp, is_slab};
use super::vmstat::Stat;
use super::{Cx, Done, Mm};

/// The most levels of tables below the root: of pages, of tables of pages (PMD), and of these (PUD). The root
/// itself is left out; kernels count it from 6.14 on (`__pgd_alloc`).
const LEVELS: usize = 3;
/// `TASK_SIZE` of x86-64 with four levels.
const TASK_SIZE: u64 = (1 << 47) - 4096;

/// What a program has of its own before it maps anything, as `/proc/PID/maps` of the lab's agent shows it: a
/// heap, its text with its data on top of the area for mappings, and a stack. Each thread but the first has a
/// heap of its own, in an arena of glibc.
const HEAP: Bytes = Bytes::kib(276);
const PROGRAM: Bytes = Bytes::mib(16);
const STACK: Bytes = Bytes::kib(132);
const ARENA: Bytes = Bytes::mib(64);
const ARENA_HEAP: Bytes = Bytes::kib(132);
/// The program's data, and the stack of each thread but the first with what glibc keeps beside it: what is
/// promised to it beside heap and stack. An arena is not (`MAP_NORESERVE`).
const DATA: Bytes = Bytes::kib(1044);
const THREAD_STACK: Bytes = Bytes::kib(136);

/// The tables of an address space, and the room that it has for regions. Addresses are numbers of pages.
#[derive(Debug, Default)]
pub(crate) struct PageTables {
    /// The frame of each table, by level and by what its range begins with.
    tables: [BTreeMap<u64, u32>; LEVELS],
    /// The table of pages that was asked for last.
    last: Option<u64>,
    /// Gaps between regions, from their first page to the one after the last.
    gaps: BTreeMap<u64, u64>,
}

impl PageTables {
    /// Pages in tables.
    pub(crate) fn pages(&self) -> u64 {
        self.of_levels(LEVELS)
    }

    /// Pages in tables of the lowest levels.
    pub(super) fn of_levels(&self, levels: usize) -> u64 {
        self.tables.iter().take(levels).map(|level| level.len() as u64).sum()
    }

    /// The frames of all tables.
    pub(super) fn frames(&self) -> impl Iterator<Item = (usize, u32)> {
        (0..).zip(&self.tables).flat_map(|(level, tables)| tables.values().map(move |frame| (level, *frame)))
    }

    /// Takes the highest room for a region of that many pages, whose address is a multiple of `align`
    /// (`vm_unmapped_area`, top down).
    fn place(&mut self, pages: u64, align: u64) -> Option<u64> {
        let fits = |(&first, &end): (&u64, &u64)| {
            let at = end.checked_sub(pages)? / align * align;
            (at >= first).then_some((first, end, at))
        };
        let (first, end, at) = self.gaps.iter().rev().find_map(fits)?;
        self.gaps.remove(&first);
        if at > first {
            self.gaps.insert(first, at);
        }
        if at + pages < end {
            self.gaps.insert(at + pages, end);
        }
        Some(at)
    }

    /// Gives back the room of a region, and returns the gap that it lies in now.
    fn displace(&mut self, region: Range<u64>) -> Range<u64> {
        let before = self.gaps.range(..region.start).next_back().map(|(&first, &end)| (first, end));
        let first = match before {
            Some((first, end)) if end == region.start => first,
            _ => region.start,
        };
        let end = self.gaps.remove(&region.end).unwrap_or(region.end);
        self.gaps.insert(first, end);
        first..end
    }

    /// Takes out the tables whose whole range is in a gap.
    fn take(&mut self, bits: u32, gap: &Range<u64>) -> Vec<(usize, u32)> {
        self.last = None;
        let mut taken = Vec::new();
        for (level, tables) in self.tables.iter_mut().enumerate() {
            let shift = bits * (level as u32 + 1);
            let (first, end) = (gap.start.div_ceil(1 << shift), gap.end >> shift);
            if first < end {
                let inside: Vec<u64> = tables.range(first..end).map(|(&at, _)| at).collect();
                taken.extend(inside.into_iter().filter_map(|at| Some((level, tables.remove(&at)?))));
            }
        }
        taken
    }

    /// Bytes allocated, about: a map's nodes are two thirds full.
    pub(super) fn bytes(&self) -> usize {
        (self.pages() as usize * 12 + self.gaps.len() * 16) * 3 / 2
    }
}

/// Bits of an address that a table translates: its entries have 8 bytes.
fn bits(page: PageSize) -> u32 {
    page.shift() - 3
}

/// Levels of tables below the root, with addresses of 48 bits.
fn levels(page: PageSize) -> usize {
    (48 - page.shift()).div_ceil(bits(page)) as usize - 1
}

impl Mm {
    /// The levels of tables that `PageTables` of `/proc/meminfo` counts.
    fn counted_levels(&self) -> usize {
        usize::from(self.generation.counted_page_tables)
    }

    /// Starts a program of that many threads in an address space in which nothing was mapped yet (`execve`):
    /// it has its own memory, of which the tables are all that is modelled.
    pub fn exec(&mut self, cx: &mut Cx, threads: usize) {
        let own = self.program_pages(threads as u64);
        let Some(process) = self.processes.get_mut(cx.process) else { return };
        if !process.tables.gaps.is_empty() {
            return;
        }
        // Where things lie is random (`randomize_va_space`), and the same in each run.
        let random = |what: u64, pages: u64| FxBuildHasher.hash_one((cx.process as u64, what)) % pages.max(1);
        let page = self.page;
        let pages = |bytes: Bytes| page.pages_for(bytes);
        let top = page.pages(Bytes(TASK_SIZE));
        let stack = top - pages(STACK) - random(0, pages(Bytes::gib(16)));
        let mapped =
            top - pages(Bytes::gib(16)) - pages(Bytes::mib(8)) - random(1, pages(Bytes::gib(1 << 10)));
        let heap = top / 3 * 2 + random(2, pages(Bytes::gib(1 << 10)));
        (process.own_vm, process.own_committed) = own;
        // The heaps of arenas may be written to and are not promised.
        process.own_data = own.1 - self.page.pages_for(STACK)
            + threads.saturating_sub(1) as u64 * self.page.pages_for(ARENA_HEAP);
        process.grow(own.0);
        self.committed += process.own_committed;
        process.tables.gaps.insert(pages(Bytes::mib(1)), heap);
        process.tables.gaps.insert(heap + pages(HEAP), mapped);
        let mut own = vec![(heap, pages(HEAP)), (stack, pages(STACK))];
        own.extend(process.tables.place(pages(PROGRAM), 1).map(|at| (at, pages(PROGRAM))));
        for _ in 1..threads {
            let arena = process.tables.place(pages(ARENA), pages(ARENA));
            own.extend(arena.map(|at| (at, pages(ARENA_HEAP))));
        }
        for (first, size) in own {
            let ranges = (first..first + size).step_by(1 << bits(page)).chain([first + size - 1]);
            for at in ranges {
                while let Some(level) = self.missing_table(cx.process, at, 0) {
                    let Some(frame) = self.alloc_own_table(cx) else { return };
                    self.enter_table(cx, at, level, frame);
                }
            }
        }
    }

    /// Pages of a program's own memory, and those of them that are promised.
    pub(super) fn program_pages(&self, threads: u64) -> (u64, u64) {
        let pages = |bytes: Bytes| self.page.pages_for(bytes);
        let (both, others) = (pages(HEAP) + pages(STACK), threads.saturating_sub(1));
        let stacks = others * pages(THREAD_STACK);
        (both + pages(PROGRAM) + others * pages(ARENA) + stacks, both + pages(DATA) + stacks)
    }

    /// A page for a table of the program's own memory.
    fn alloc_own_table(&mut self, cx: &mut Cx) -> Option<u32> {
        if let Some(frame) = self.take_settled_page(cx) {
            return Some(frame);
        }
        let mine = cx.pages;
        let frame = self.alloc_kernel_pages(cx, 0, MigrateType::Unmovable, Gfp::Kernel);
        cx.pages = mine;
        self.tables_taken += u64::from(frame.is_some());
        frame
    }

    /// Makes page tables of other programs of pages of the kernel, from each node as it has them. There may
    /// be fewer than are asked for: [`Mm::others_pgtables`] has those that there are.
    pub(super) fn boot_pgtables(&mut self, pages: u64) {
        let node_of = |mm: &Mm, range: &std::ops::Range<u32>| mm.zones[mm.frames.zone_of(range.start)].node;
        let mut had = vec![0; self.nodes.len()];
        for range in &self.slab.boot {
            had[node_of(self, range)] += u64::from(range.end - range.start);
        }
        let all: u64 = had.iter().sum();
        let mut wanted: Vec<u64> = had
            .iter()
            .map(|had| (u128::from(pages) * u128::from(*had)).div_ceil(u128::from(all.max(1))) as u64)
            .collect();
        for index in 0..self.slab.boot.len() {
            let node = node_of(self, &self.slab.boot[index]);
            while wanted[node] > 0
                && (self.others_pgtables.len() as u64) < pages
                && let Some(frame) = self.slab.boot[index].next()
            {
                wanted[node] -= 1;
                self.stat_sub(frame, Stat::SlabUnreclaimable);
                self.stat_add(frame, Stat::PageTables);
                self.frames[frame as usize].flags |= flag::PGTABLE;
                self.others_pgtables.push(frame);
            }
        }
    }

    /// Takes room for a region of the caller's process; `None` if there is none.
    pub(super) fn get_unmapped_area(&mut self, cx: &Cx, pages: u64, align: u64) -> Option<u64> {
        let tables = &mut self.processes.get_mut(cx.process)?.tables;
        if tables.gaps.is_empty() && tables.pages() == 0 {
            // No program was started: all is free.
            tables.gaps.insert(0, self.page.pages(Bytes(1 << 47)));
        }
        tables.place(pages.max(1), align)
    }

    /// Gives back the room of a region, and frees the tables in whose range nothing is mapped any more
    /// (`free_pgtables`).
    pub(super) fn free_pgtables(&mut self, cx: &mut Cx, region: Range<u64>) {
        let bits = bits(self.page);
        let Some(process) = self.processes.get_mut(cx.process) else { return };
        let gap = process.tables.displace(region);
        let taken = process.tables.take(bits, &gap);
        cx.spend(self.costs.free * taken.len() as u64);
        self.free_tables(cx, taken);
    }

    /// Frees all tables of the caller's process, which ends (`exit_mmap`).
    pub(super) fn exit_pgtables(&mut self, cx: &mut Cx) {
        let Some(process) = self.processes.get_mut(cx.process) else { return };
        let tables = std::mem::take(&mut process.tables);
        self.free_tables(cx, tables.frames().collect());
    }

    fn free_tables(&mut self, cx: &mut Cx, tables: Vec<(usize, u32)>) {
        for (level, frame) in tables {
            if level < self.counted_levels() {
                self.stat_sub(frame, Stat::PageTables);
            }
            self.frames[frame as usize].flags &= flag::ZONE | flag::USED;
            self.free_page(cx.cpu, frame);
        }
    }

    /// The highest level at which a page of a process has no table yet; `leaf` is the level of the table that
    /// has the page's entry.
    #[inline]
    fn missing_table(&mut self, process: usize, at: u64, leaf: usize) -> Option<usize> {
        let (bits, levels) = (bits(self.page), levels(self.page));
        let tables = &mut self.processes.get_mut(process)?.tables;
        let own = at >> bits;
        if leaf == 0 && tables.last == Some(own) {
            return None;
        }
        let missing =
            |level: &usize| !tables.tables[*level].contains_key(&(at >> (bits * (*level as u32 + 1))));
        let level = (leaf..levels).rev().find(missing);
        if leaf == 0 && level.is_none() {
            tables.last = Some(own);
        }
        level
    }

    fn enter_table(&mut self, cx: &Cx, at: u64, level: usize, frame: u32) {
        let shift = bits(self.page) * (level as u32 + 1);
        let f = &mut self.frames[frame as usize];
        f.flags |= flag::USED | flag::KERNEL | flag::PGTABLE;
        if level < self.counted_levels() {
            self.stat_add(frame, Stat::PageTables);
        } else {
            self.frames[frame as usize].flags |= flag::UNCOUNTED;
        }
        self.processes[cx.process].tables.tables[level].insert(at >> shift, frame);
    }

    /// Allocates the tables that the entry of a page needs, or goes on to do so. `at` is the page's address,
    /// `leaf` the level of the table that has its entry: 0, or 1 for a huge page of the size of a PMD.
    ///
    /// # Errors
    /// The wait after which it is to be polled again; out of memory.
    #[inline]
    pub(super) fn alloc_tables(&mut self, cx: &mut Cx, alloc: &mut Alloc, at: u64, leaf: usize) -> Done {
        while let Some(level) = self.missing_table(cx.process, at, leaf) {
            self.alloc_table(cx, alloc, at, level)?;
        }
        Ok(())
    }

    #[cold]
    fn alloc_table(&mut self, cx: &mut Cx, alloc: &mut Alloc, at: u64, level: usize) -> Done {
        if !alloc.is_under_way()
            && let Some(frame) = self.take_settled_page(cx)
        {
            cx.spend(self.costs.alloc + self.costs.zero);
            self.enter_table(cx, at, level, frame);
            return Ok(());
        }
        let mut ac = alloc.context(self, cx, None, false);
        ac.kind = self.generation.grouped(MigrateType::Unmovable);
        // The page is the kernel's, not the task's.
        let mine = cx.pages;
        let frame = alloc.poll(self, cx, &ac);
        cx.pages = mine;
        let frame = frame?;
        cx.spend(self.costs.zero);
        self.tables_taken += 1;
        self.enter_table(cx, at, level, frame);
        Ok(())
    }

    /// Checks the tables: each frame that is marked as one is one table of one process, what is mapped has
    /// the tables that it needs, and regions and gaps share out the addresses.
    pub(super) fn check_pgtables(&self) -> Result<(), String> {
        let mut found = self.others_pgtables.clone();
        for (process, space) in self.processes.iter().enumerate() {
            let tables = &space.tables;
            for (level, frame) in tables.frames() {
                found.push(frame);
                let uncounted = self.frames[frame as usize].has(flag::UNCOUNTED);
                if uncounted != (level >= self.counted_levels()) {
                    return Err(format!(
                        "table {frame} of level {level} of process {process} counts wrongly"
                    ));
                }
            }
            let mut taken: Vec<(u64, u64)> = tables.gaps.iter().map(|(&first, &end)| (first, end)).collect();
            for (id, vma) in (0u32..).zip(&space.vmas) {
                let Some(vma) = vma else { continue };
                taken.push((vma.start, vma.start + vma.room.max(1)));
                let (leaf, shift) = match vma.order {
                    0 => (0, bits(self.page)),
                    _ => (1, 2 * bits(self.page)),
                };
                for page in self.mapped_pages(vma) {
                    let at = vma.start + (u64::from(page) << vma.order);
                    if !tables.tables[leaf].contains_key(&(at >> shift)) {
                        return Err(format!("page {page} of region {id} of process {process} has no table"));
                    }
                }
            }
            taken.sort_unstable();
            if let Some(pair) = taken.windows(2).find(|pair| pair[0].1 > pair[1].0) {
                return Err(format!("regions and gaps of process {process} overlap: {pair:?}"));
            }
        }
        found.sort_unstable();
        let is_table = |f: &&(u32, &Frame)| f.1.has(flag::KERNEL) && !is_slab(f.1) && f.1.has(flag::PGTABLE);
        let frames = (0u32..).zip(self.frames.iter());
        let marked: Vec<u32> = frames.filter(|f| is_table(&f)).map(|(frame, _)| frame).collect();
        if found != marked {
            let (found, marked) = (found.len(), marked.len());
            return Err(format!(
                "processes have {found} page tables, and {marked} frames are marked as such"
            ));
        }
        Ok(())
    }

    /// The entries of a region that its page table has, by their place in it.
    fn mapped_pages(&self, vma: &Vma) -> Vec<u32> {
        let of = |number: u32, which: usize| -> Vec<u32> {
            let object = &self.objects[number];
            match which {
                0 => {
                    let entries = (vma.pages >> vma.order).min(object.pages);
                    let mapped =
                        |page: &u32| self.entries[(object.base + page) as usize] & entry::MAPPED != 0;
                    (0..entries).filter(mapped).collect()
                }
                _ => object.mappings[which].bits.iter().collect(),
            }
        };
        let mut pages = of(vma.object, vma.which as usize);
        pages.extend(vma.copies.map_or(Vec::new(), |copies| of(copies, 0)));
        pages
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::meminfo;
    use lotsfree_workload::{Policy, RegionId};

    use super::super::{Config, Fault};
    use super::*;
    use crate::Generation;

    /// Pages of the tables of a process that its kernel counts.
    fn counted(mm: &Mm, process: usize) -> u64 {
        let tables = &mm.processes[process].tables.tables[..mm.counted_levels()];
        tables.iter().map(|level| level.len() as u64).sum()
    }

    fn touch(mm: &mut Mm, cx: &mut Cx, pages: impl Iterator<Item = u32>) {
        for page in pages {
            Fault::new(RegionId(0), page, true).poll(mm, cx).unwrap();
        }
    }

    /// The tables that count, after the first page of each 2 MiB of 1 GiB of shared memory was touched.
    fn tables_of_a_gib(kernel: &str, huge: bool) -> u64 {
        let generation = Generation::named(kernel).unwrap();
        let mut config = Config::new(generation, vec![1 << 19]);
        config.tuning.nr_hugepages = 512;
        let mut mm = Mm::new(&config);
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 0);
        let segment = if huge {
            mm.create_huge_segment(1 << 18).unwrap()
        } else {
            mm.create_segment(1 << 18, true).unwrap()
        };
        mm.attach(&mut cx, RegionId(0), segment).unwrap();
        touch(&mut mm, &mut cx, (0..1 << 18).step_by(512));
        assert_eq!(mm.check(), Ok(()), "{kernel}");
        counted(&mm, process)
    }

    #[test]
    fn a_gib_of_base_pages_takes_512_tables_and_one_of_huge_pages_none() {
        for (kernel, upper) in [("linux-5.4", 0), ("linux-6.1", 1), ("linux-6.12", 2)] {
            assert_eq!(tables_of_a_gib(kernel, false), 512 + upper, "{kernel}");
            assert_eq!(tables_of_a_gib(kernel, true), upper, "{kernel}");
        }
    }

    #[test]
    fn a_program_has_as_many_tables_as_the_lab_s_agent() {
        let mut mm = Mm::new(&Config::new(Generation::linux_6_18(), vec![1 << 16]));
        let mut pages = 0;
        for _ in 0..50 {
            let process = mm.create_process(Policy::Local);
            mm.exec(&mut Cx::new(0, 0, process, 0), 2);
            pages += counted(&mm, process);
        }
        // An agent with two threads has 68 to 72 KiB of them on 6.18.
        assert!((50 * 17..=50 * 18).contains(&pages), "{pages} tables of 50 programs");
        assert_eq!(mm.check(), Ok(()));
        for process in 0..50 {
            mm.exit(&mut Cx::new(0, 0, process, 0));
        }
        assert_eq!((mm.meminfo().get(meminfo::PageTables), mm.check()), (Some(0), Ok(())));
    }

    #[test]
    fn tables_of_other_programs_are_pages_of_the_kernel() {
        let mut config = Config::new(Generation::linux_6_1(), vec![1 << 16, 1 << 15]);
        config.kernel_pages = Some(vec![2000, 1000]);
        let free = Mm::new(&config).meminfo().get(meminfo::MemFree);
        config.others_pgtable_pages = 300;
        let mm = Mm::new(&config);
        let meminfo = mm.meminfo();
        assert_eq!((meminfo.get(meminfo::PageTables), meminfo.get(meminfo::MemFree)), (Some(1200), free));
        assert_eq!(mm.check(), Ok(()));
        let of_nodes = [0, 1].map(|node| mm.node_meminfo(node).get(meminfo::PageTables));
        assert_eq!(of_nodes, [Some(800), Some(400)]);
        config.others_pgtable_pages = 5000;
        let mm = Mm::new(&config);
        assert_eq!((mm.others_pgtables.len(), mm.check()), (3000, Ok(())), "no more than the kernel has");
    }

    #[test]
    fn a_table_goes_with_the_last_region_in_its_range() {
        let mut mm = Mm::new(&Config::new(Generation::linux_6_1(), vec![1 << 16]));
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 0);
        // Two neighbours of 1 MiB share the table of the 2 MiB that they lie in.
        for region in 0..2 {
            mm.map_anon(&mut cx, RegionId(region), 255).unwrap();
            Fault::new(RegionId(region), 0, true).poll(&mut mm, &mut cx).unwrap();
        }
        let both = counted(&mm, process);
        mm.unmap(&mut cx, RegionId(0)).unwrap();
        assert_eq!((both, counted(&mm, process)), (2, 2), "one of pages, one above it");
        mm.unmap(&mut cx, RegionId(1)).unwrap();
        assert_eq!((counted(&mm, process), mm.check()), (0, Ok(())));
    }

    #[test]
    fn regions_fill_the_addresses_from_the_top_and_fill_gaps() {
        let mut tables = PageTables::default();
        tables.gaps.insert(16, 1000);
        let a = tables.place(100, 1).unwrap();
        let b = tables.place(64, 64).unwrap();
        let c = tables.place(300, 1).unwrap();
        assert_eq!((a, b, c), (900, 832, 532));
        assert_eq!(tables.displace(b..b + 64), 832..900);
        assert_eq!(tables.place(68, 1), Some(832), "what fits goes into the gap");
        assert_eq!(tables.place(600, 1), None);
        assert_eq!(tables.displace(832..900), 832..900);
        assert_eq!(tables.displace(c..c + 300), 16..900);
        assert_eq!(tables.displace(a..a + 100), 16..1000);
        assert_eq!(tables.gaps.len(), 1);
    }

    #[test]
    fn what_is_unmapped_takes_no_table_of_the_program_with_it() {
        let mut mm = Mm::new(&Config::new(Generation::linux_6_12(), vec![1 << 16]));
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 0);
        mm.exec(&mut cx, 3);
        let own = counted(&mm, process);
        for pages in [1, 17, 5000] {
            mm.map_anon(&mut cx, RegionId(0), pages).unwrap();
            touch(&mut mm, &mut cx, 0..pages);
            assert!(counted(&mm, process) >= own);
            mm.unmap(&mut cx, RegionId(0)).unwrap();
            assert_eq!((counted(&mm, process), mm.check()), (own, Ok(())), "after {pages} pages");
        }
    }
}
