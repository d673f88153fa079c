//! Transparent huge pages of regions that ask for them (`MADV_HUGEPAGE`; `mm/huge_memory.c`).
//!
//! A store to such a region takes a free block of the size of a PMD and maps all of it in one fault. The
//! pages of the block are frames like others: reclaim takes them one by one, and with the first of them the
//! huge page is split. A table of base pages is deposited with each huge page, so that it saves no memory.
//!
//! Not modelled: `enabled = always` for regions that do not ask, reclaim and compaction for a block (where no
//! block is free, base pages take its place), khugepaged, the huge zero page, swap of whole huge pages, and
//! that a range whose base pages were given up (`MADV_DONTNEED`) has a table and gets no huge page.

use lotsfree_kernel_files::counters::vmstat;

use super::frame::{entry, flag};
use super::free_area::{MigrateType, Request};
use super::memory::Fault;
use super::mmap::Vma;
use super::mmzone::has_transparent_hugepage;
use super::page_alloc::AllocContext;
use super::vmstat::{PGALLOC, Stat};
use super::{Cx, Mm};

impl Mm {
    /// Base pages of a huge page, as an order.
    fn pmd_order(&self) -> u32 {
        self.hugetlb.order as u32
    }

    /// Whether a region that asks for huge pages can get them
    /// (`/sys/kernel/mm/transparent_hugepage/enabled`).
    fn has_huge_pages(&self) -> bool {
        has_transparent_hugepage(&self.tuning, self.page.of(self.totalram_pages()))
    }

    /// The first page of the huge page that a region may have at a page: its addresses are aligned and within
    /// the region, and none of it was touched.
    fn transhuge_first(&self, vma: &Vma, page: u32) -> Option<u32> {
        let pages = 1u64 << self.pmd_order();
        let at = (vma.start + u64::from(page)) & !(pages - 1);
        let first = u32::try_from(at.checked_sub(vma.start)?).ok()?;
        let end = first.checked_add(pages as u32).filter(|end| *end <= vma.pages)?;
        let base = self.objects[vma.object].base;
        let entries = &self.entries[(base + first) as usize..(base + end) as usize];
        entries.iter().all(|e| *e == entry::EMPTY).then_some(first)
    }

    /// Brings in a huge page for a store to an untouched page (`do_huge_pmd_anonymous_page`); `false` if the
    /// region has none there.
    pub(super) fn huge_anon_fault(&mut self, cx: &mut Cx, fault: &mut Fault, number: u32) -> bool {
        let Some(vma) = self.processes[cx.process].vma(fault.region()) else { return false };
        if !vma.huge || vma.object != number || fault.alloc().is_under_way() || !self.has_huge_pages() {
            return false;
        }
        let page = fault.page();
        let Some(first) = self.transhuge_first(vma, page) else { return false };
        let ac = fault.alloc().context(self, cx, Some(page >> self.pmd_order()), false);
        cx.spend(self.costs.alloc);
        let Some(block) = self.alloc_block(cx, &ac) else {
            self.events[vmstat::thp_fault_fallback] += 1;
            return false;
        };
        self.events[vmstat::thp_fault_alloc] += 1;
        let pages = 1 << self.pmd_order();
        cx.spend(self.costs.zero * u64::from(pages));
        cx.pages.allocated += pages;
        let base = self.objects[number].base + first;
        for (slot, frame) in (base..).zip(block..block + pages) {
            self.map_new_anon(slot, frame);
        }
        self.batch_lru_add(cx, block);
        self.stat_add(block, Stat::AnonThps);
        self.objects[number].huge.insert(first);
        true
    }

    /// Takes a free block of the size of a huge page for a user, where that keeps the low watermark.
    fn alloc_block(&mut self, cx: &Cx, ac: &AllocContext) -> Option<u32> {
        let order = self.pmd_order();
        let kind = self.generation.grouped(MigrateType::Movable);
        let request = Request { order: order as u8, ..self.generation.request(kind) };
        for at in 0..self.nodes[ac.preferred].zonelist.len() {
            let index = self.nodes[ac.preferred].zonelist[at];
            if ac.allowed >> self.zones[index].node & 1 == 0 {
                continue;
            }
            let mark = self.zones[index].low_wmark_pages();
            if let Some(block) = self.take_block(index, mark, request, flag::USED) {
                self.events[PGALLOC[self.zones[index].index()]] += 1 << order;
                self.count_numa(cx, ac, index);
                return Some(block);
            }
        }
        None
    }

    /// Splits the huge page that a page of an object belongs to, as that goes (`split_huge_page`).
    #[cold]
    pub(super) fn split_huge_page(&mut self, number: u32, page: u32) {
        let pages = 1 << self.pmd_order();
        let Some(&first) = self.objects[number].huge.range(..=page).next_back() else { return };
        if page - first >= pages {
            return;
        }
        self.forget_huge_page(number, first);
        for event in [vmstat::thp_split_page, vmstat::thp_split_pmd, vmstat::thp_split] {
            self.events[event] += 1;
        }
    }

    /// Forgets all huge pages of an object that goes.
    pub(super) fn zap_huge_pages(&mut self, number: u32) {
        while let Some(&first) = self.objects[number].huge.first() {
            self.forget_huge_page(number, first);
        }
    }

    fn forget_huge_page(&mut self, number: u32, first: u32) {
        let object = &mut self.objects[number];
        object.huge.remove(&first);
        if let Some(frame) = entry::frame(self.entries[(object.base + first) as usize]) {
            self.stat_sub(frame, Stat::AnonThps);
        }
    }

    /// Checks that the pages of huge pages are there, side by side.
    pub(super) fn check_huge_pages(&self) -> Result<(), String> {
        let pages = 1 << self.pmd_order();
        let mut found = vec![0; self.zones.len()];
        for (number, object) in self.objects.iter().filter(|(_, object)| object.live) {
            for &first in &object.huge {
                let slots = (object.base + first) as usize..(object.base + first + pages) as usize;
                let frames: Option<Vec<u32>> = self.entries[slots].iter().map(|e| entry::frame(*e)).collect();
                let frames = frames.unwrap_or_default();
                let together = frames.windows(2).all(|pair| pair[1] == pair[0] + 1);
                let Some(&block) = frames.first().filter(|block| together && *block % pages == 0) else {
                    return Err(format!("object {number} has no huge page at page {first}"));
                };
                found[self.frames[block as usize].zone()] += 1;
            }
        }
        for (index, (zone, found)) in self.zones.iter().zip(found).enumerate() {
            let counted = zone.stat[Stat::AnonThps as usize];
            if counted != found {
                return Err(format!("zone {index} counts {counted} transparent huge pages and has {found}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::meminfo;
    use lotsfree_workload::{Advice, Policy, RegionId};

    use super::super::{Config, Madvise};
    use super::*;
    use crate::Generation;

    fn machine(kernel: &str, pages: u64) -> (Mm, Cx) {
        let mut mm = Mm::new(&Config::new(Generation::named(kernel).unwrap(), vec![pages]));
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        (mm, Cx::new(task, 0, process, 0))
    }

    fn touch(mm: &mut Mm, cx: &mut Cx, pages: u32) -> u32 {
        let before = cx.minor;
        for page in 0..pages {
            Fault::new(RegionId(0), page, true).poll(mm, cx).unwrap();
        }
        assert_eq!(mm.check(), Ok(()));
        cx.minor - before
    }

    #[test]
    fn a_store_brings_512_pages_where_the_region_asks_for_it() {
        let pages = 20 * 512;
        for kernel in ["linux-3.10", "linux-6.1", "linux-6.12", "linux-6.12+mglru"] {
            let (mut mm, mut cx) = machine(kernel, 1 << 18);
            mm.map_anon(&mut cx, RegionId(0), pages).unwrap();
            Madvise::new(RegionId(0), Advice::HugePage).poll(&mut mm, &mut cx).unwrap();
            let faults = touch(&mut mm, &mut cx, pages);
            // Where a kernel does not align the region, base pages fill its ends.
            let huge = mm.events[vmstat::thp_fault_alloc];
            assert!(huge == 20 || huge == 19, "{kernel}: {huge}");
            assert_eq!(u64::from(faults), huge + u64::from(pages) - 512 * huge, "{kernel}");
            let line = |line| mm.meminfo().get(line).unwrap();
            assert_eq!(line(meminfo::AnonHugePages), huge * 2048, "{kernel}");
            assert_eq!(line(meminfo::AnonPages), u64::from(pages) * 4, "{kernel}");
            assert!(line(meminfo::PageTables) >= 20 * 4, "{kernel}: tables are deposited");
            mm.unmap(&mut cx, RegionId(0)).unwrap();
            assert_eq!((mm.check(), mm.meminfo().get(meminfo::AnonHugePages)), (Ok(()), Some(0)));
            assert_eq!(mm.events[vmstat::thp_split_page], 0, "{kernel}");
        }
    }

    #[test]
    fn base_pages_take_the_place_of_a_block_that_is_not_there() {
        let (mut mm, mut cx) = machine("linux-6.12", 1 << 15);
        // Two regions are touched in turn. When one goes, what is free lies between pages of the other.
        for region in 0..2 {
            mm.map_anon(&mut cx, RegionId(region), 12_000).unwrap();
        }
        for touch in 0..24_000 {
            Fault::new(RegionId(touch % 2), touch / 2, true).poll(&mut mm, &mut cx).unwrap();
        }
        mm.unmap(&mut cx, RegionId(0)).unwrap();
        mm.tuning.transparent_hugepage = Some(true);
        mm.map_anon(&mut cx, RegionId(0), 16 * 512).unwrap();
        Madvise::new(RegionId(0), Advice::HugePage).poll(&mut mm, &mut cx).unwrap();
        let faults = touch(&mut mm, &mut cx, 16 * 512);
        let [huge, without] =
            [vmstat::thp_fault_alloc, vmstat::thp_fault_fallback].map(|event| mm.events[event] as u32);
        assert!(huge < 16 && without > 0, "{huge} huge pages, {without} times none");
        assert_eq!(faults, huge + 512 * (16 - huge));
        // Where huge pages are switched off, nobody gets any.
        mm.tuning.transparent_hugepage = Some(false);
        mm.map_anon(&mut cx, RegionId(0), 512).unwrap();
        Madvise::new(RegionId(0), Advice::HugePage).poll(&mut mm, &mut cx).unwrap();
        assert_eq!(touch(&mut mm, &mut cx, 512), 512);
    }

    #[test]
    fn reclaim_splits_a_huge_page_with_the_first_page_that_it_takes() {
        let (mut mm, mut cx) = machine("linux-6.12", 1 << 18);
        mm.map_anon(&mut cx, RegionId(0), 4 * 512).unwrap();
        Madvise::new(RegionId(0), Advice::HugePage).poll(&mut mm, &mut cx).unwrap();
        touch(&mut mm, &mut cx, 4 * 512);
        let huge = mm.events[vmstat::thp_fault_alloc];
        let base = mm.objects[mm.processes[0].vma(RegionId(0)).unwrap().object].base;
        for page in [700, 701] {
            mm.unmap_page(entry::frame(mm.entries[(base + page) as usize]).unwrap());
        }
        assert_eq!(mm.events[vmstat::thp_split_page], 1);
        assert_eq!(mm.meminfo().get(meminfo::AnonHugePages), Some((huge - 1) * 2048));
        assert_eq!(mm.check_huge_pages(), Ok(()));
    }
}
