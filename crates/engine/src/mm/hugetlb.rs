//! The pool of huge pages, and shared memory of them (`mm/hugetlb.c`).
//!
//! A page of the pool is neither free memory nor on any list of reclaim, and it is never swapped. A segment
//! reserves its pages when it is made, so that none of its faults fails unless a policy wants another node.
//!
//! Not modelled: other sizes than that of a PMD, a pool that changes while the machine runs.

use std::ops::Range;

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_workload::RegionId;

use super::frame::{entry, flag};
use super::free_area::{MigrateType, Request};
use super::memory::Fault;
use super::object::Backing;
use super::{Cx, Done, Lack, Mm, Stop, footprint};

/// The pool of huge pages of the size of a PMD (`struct hstate`).
#[derive(Debug, Default)]
pub(crate) struct Hugetlb {
    /// Pages of each, as an order.
    pub(super) order: usize,
    /// The free ones of each node; the last one is the next.
    free: Vec<Vec<u32>>,
    /// All of each node, and those of them that came beyond `vm.nr_hugepages`.
    total: Vec<u64>,
    surplus: Vec<u64>,
    reserved: u64,
    /// `vm.nr_overcommit_hugepages`
    overcommit: u64,
}

/// What `/proc/meminfo` says of the pool, in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// `HugePages_Total`
    pub total: u64,
    /// `HugePages_Free`
    pub free: u64,
    /// `HugePages_Rsvd`
    pub reserved: u64,
    /// `HugePages_Surp`
    pub surplus: u64,
}

impl Hugetlb {
    /// An empty pool of a machine of that many nodes.
    pub(super) fn new(nodes: usize, order: usize, overcommit: u64) -> Self {
        Hugetlb {
            order,
            free: vec![Vec::new(); nodes],
            total: vec![0; nodes],
            surplus: vec![0; nodes],
            reserved: 0,
            overcommit,
        }
    }

    fn all_free(&self) -> u64 {
        self.free.iter().map(|pages| pages.len() as u64).sum()
    }

    /// The pool of some nodes. What is reserved is not of a node.
    pub(super) fn counts(&self, nodes: Range<usize>) -> HugePages {
        HugePages {
            total: self.total[nodes.clone()].iter().sum(),
            free: self.free[nodes.clone()].iter().map(|pages| pages.len() as u64).sum(),
            reserved: self.reserved,
            surplus: self.surplus[nodes].iter().sum(),
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.free.iter().map(footprint::of).sum()
    }
}

impl Mm {
    /// What `/proc/meminfo` says of the pool of huge pages.
    pub fn huge_pages(&self) -> HugePages {
        self.hugetlb.counts(0..self.nodes.len())
    }

    /// Takes pages for the pool, from one node after the other, until there are `wanted` or no node has a
    /// free block (`set_max_huge_pages`). It neither reclaims nor compacts: nothing is in use yet.
    pub(super) fn boot_hugepages(&mut self, wanted: u64) {
        self.grow_pool(|pool| pool.total.iter().sum::<u64>() < wanted, |_, _| ());
    }

    /// Takes pages for the pool, from one node after the other, as long as it `wants` them and a node has a
    /// free block; `took` is told the node of each.
    fn grow_pool(&mut self, wants: impl Fn(&Hugetlb) -> bool, took: impl Fn(&mut Hugetlb, usize)) {
        let (mut node, mut failed) = (0, 0);
        while wants(&self.hugetlb) && failed < self.nodes.len() {
            if self.alloc_huge(node) {
                took(&mut self.hugetlb, node);
                failed = 0;
            } else {
                failed += 1;
            }
            node = (node + 1) % self.nodes.len();
        }
    }

    /// Takes a free block of a node for the pool; `false` if it has none.
    fn alloc_huge(&mut self, node: usize) -> bool {
        let request = Request {
            order: self.hugetlb.order as u8,
            wakes: false,
            ..self.generation.request(self.generation.grouped(MigrateType::Movable))
        };
        let flags = flag::USED | flag::KERNEL | flag::HUGETLB;
        for zone in self.nodes[node].zones.clone().into_iter().rev() {
            let mark = self.zones[zone].watermark.min;
            if let Some(first) = self.take_block(zone, mark, request, flags) {
                self.hugetlb.free[node].push(first);
                self.hugetlb.total[node] += 1;
                self.events[vmstat::htlb_buddy_alloc_success] += 1;
                return true;
            }
        }
        self.events[vmstat::htlb_buddy_alloc_fail] += 1;
        false
    }

    /// Makes a segment of huge pages, which are reserved in the pool (`hugetlb_reserve_pages`), and returns
    /// the number of its object. `pages` are the machine's; the size is rounded up.
    ///
    /// # Errors
    /// [`Lack::HugePages`], with how many the pool lacks (`ENOMEM`).
    pub fn create_huge_segment(&mut self, pages: u32) -> Result<u32, Lack> {
        let wanted = pages.div_ceil(1 << self.hugetlb.order);
        let lacks = |pool: &Hugetlb| (pool.reserved + u64::from(wanted)).saturating_sub(pool.all_free());
        // gather_surplus_pages
        let may_grow = |pool: &Hugetlb| pool.surplus.iter().sum::<u64>() < pool.overcommit;
        self.grow_pool(|pool| lacks(pool) > 0 && may_grow(pool), |pool, node| pool.surplus[node] += 1);
        match lacks(&self.hugetlb) {
            0 => {
                self.hugetlb.reserved += u64::from(wanted);
                Ok(self.objects.create(&mut self.entries, wanted, Backing::Hugetlb))
            }
            lacks => {
                self.return_surplus();
                Err(Lack::HugePages(lacks))
            }
        }
    }

    /// Gives back the surplus pages that are free and not reserved (`return_unused_surplus_pages`).
    fn return_surplus(&mut self) {
        for node in 0..self.nodes.len() {
            while self.hugetlb.surplus[node] > 0
                && self.hugetlb.all_free() > self.hugetlb.reserved
                && let Some(first) = self.hugetlb.free[node].pop()
            {
                self.hugetlb.surplus[node] -= 1;
                self.hugetlb.total[node] -= 1;
                for frame in first..first + (1 << self.hugetlb.order) {
                    self.frames[frame as usize].flags &= flag::ZONE | flag::USED;
                }
                self.free_pages(0, first, self.hugetlb.order);
            }
        }
    }

    /// A fault on a segment of huge pages (`hugetlb_fault`).
    pub(super) fn hugetlb_fault(
        &mut self,
        cx: &mut Cx,
        fault: &mut Fault,
        number: u32,
        which: usize,
    ) -> Done {
        let object = &self.objects[number];
        let page = fault.page() >> self.hugetlb.order;
        let slot = object.base + page;
        let e = self.entries[slot as usize];
        if object.is_mapped(which, page, e) {
            return Ok(());
        }
        fault.begin(self, cx);
        let frame = match entry::frame(e) {
            Some(frame) => frame,
            None => {
                let ac = fault.alloc().context(self, cx, Some(page), false);
                let zonelist = self.nodes[ac.preferred].zonelist.iter();
                let mut nodes = zonelist.map(|&zone| self.zones[zone].node);
                let has = |node: &usize| !self.hugetlb.free[*node].is_empty() && ac.allowed >> node & 1 == 1;
                // What is reserved is there, but not where a policy may want it: SIGBUS.
                let node = nodes.find(has).ok_or(Stop::Bus)?;
                let frame = self.hugetlb.free[node].pop().ok_or(Stop::Bus)?;
                self.hugetlb.reserved -= 1;
                cx.spend(self.costs.zero << self.hugetlb.order);
                self.frames[frame as usize].slot = slot;
                self.entries[slot as usize] = entry::RESIDENT | frame;
                frame
            }
        };
        match which {
            0 => {
                self.entries[slot as usize] = entry::MAPPED | entry::ACCESSED | entry::DIRTY | frame;
            }
            _ => self.objects[number].map_elsewhere(which, page),
        }
        Ok(())
    }

    /// Takes a segment of huge pages out of a page table.
    pub(super) fn zap_huge(&mut self, number: u32, which: usize) {
        if which > 0 {
            self.objects[number].take_bits(which);
            return;
        }
        let object = &self.objects[number];
        for slot in object.base..object.base + object.pages {
            let e = &mut self.entries[slot as usize];
            if let Some(frame) = entry::frame(*e) {
                *e = entry::RESIDENT | frame;
            }
        }
    }

    /// Gives the pages of a segment back to the pool, and what it had reserved and not used.
    pub(super) fn drop_huge(&mut self, number: u32) {
        let object = &self.objects[number];
        for slot in object.base..object.base + object.pages {
            let e = std::mem::replace(&mut self.entries[slot as usize], entry::EMPTY);
            match entry::frame(e) {
                Some(frame) => {
                    let node = self.zones[self.frames[frame as usize].zone()].node;
                    self.hugetlb.free[node].push(frame);
                }
                None => self.hugetlb.reserved -= 1,
            }
        }
        self.objects.release(&mut self.entries, number);
        self.return_surplus();
    }

    /// Attaches a segment of huge pages (`shmat`).
    ///
    /// # Errors
    /// [`Stop::Bad`] if there is no room for it.
    pub(super) fn attach_huge(&mut self, cx: &mut Cx, region: RegionId, number: u32) -> Done {
        let pages = self.objects[number].pages << self.hugetlb.order;
        self.add_region(cx, region, number, pages, None)
    }

    /// Checks the pool: its pages are free, or in a segment, and are marked as such.
    pub(super) fn check_hugetlb(&self) -> Result<(), String> {
        let pages = 1u64 << self.hugetlb.order;
        let mut found = vec![0; self.nodes.len()];
        let mut unused = 0;
        let node_of = |frame: u32| self.zones[self.frames[frame as usize].zone()].node;
        for (node, free) in self.hugetlb.free.iter().enumerate() {
            found[node] += free.len() as u64;
            if let Some(frame) = free.iter().find(|frame| node_of(**frame) != node) {
                return Err(format!("huge page {frame} is free on node {node}"));
            }
        }
        for (_, object) in self.objects.iter().filter(|(_, object)| object.live && object.hugetlb) {
            for slot in object.base..object.base + object.pages {
                match entry::frame(self.entries[slot as usize]) {
                    Some(frame) => found[node_of(frame)] += 1,
                    None => unused += 1,
                }
            }
        }
        if found != self.hugetlb.total {
            return Err(format!("the pool has {found:?} huge pages and counts {:?}", self.hugetlb.total));
        }
        if unused != self.hugetlb.reserved || self.hugetlb.all_free() < unused {
            let (counted, free) = (self.hugetlb.reserved, self.hugetlb.all_free());
            return Err(format!("{unused} huge pages are yet to come, {counted} are reserved, {free} free"));
        }
        let is_huge = |f: &&super::frame::Frame| f.has(flag::KERNEL) && f.has(flag::HUGETLB);
        let marked = self.frames.iter().filter(is_huge).count() as u64;
        let total: u64 = found.iter().sum();
        if marked != total * pages {
            return Err(format!("{marked} frames are marked as those of {total} huge pages"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::meminfo;
    use lotsfree_workload::Policy;

    use super::super::Config;
    use super::*;
    use crate::Generation;

    fn machine(pool: u64, overcommit: u64) -> Mm {
        let mut config = Config::new(Generation::linux_6_12(), vec![1 << 16, 1 << 16]);
        (config.tuning.nr_hugepages, config.tuning.nr_overcommit_hugepages) = (pool, overcommit);
        Mm::new(&config)
    }

    fn pool(mm: &Mm) -> [u64; 4] {
        assert_eq!(mm.check(), Ok(()));
        let HugePages { total, free, reserved, surplus } = mm.huge_pages();
        [total, free, reserved, surplus]
    }

    #[test]
    fn a_segment_reserves_uses_and_gives_back() {
        let mut mm = machine(20, 0);
        let free = mm.zones.iter().map(|zone| zone.free).sum::<u64>();
        assert_eq!(pool(&mm), [20, 20, 0, 0]);
        // A page more than eight huge ones.
        let segment = mm.create_huge_segment(8 * 512 + 1).unwrap();
        assert_eq!(pool(&mm), [20, 20, 9, 0]);
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 0);
        mm.attach(&mut cx, RegionId(0), segment).unwrap();
        for page in [0, 5, 511, 512, 8 * 512] {
            Fault::new(RegionId(0), page, true).poll(&mut mm, &mut cx).unwrap();
        }
        assert_eq!((pool(&mm), cx.minor), ([20, 17, 6, 0], 3));
        assert_eq!(mm.rss(process).total(), 0, "huge pages of the pool are no resident memory");
        mm.exit(&mut cx);
        assert_eq!(pool(&mm), [20, 17, 6, 0], "the segment is still there");
        mm.remove_segment(&mut cx, segment);
        assert_eq!(pool(&mm), [20, 20, 0, 0]);
        mm.drain_all();
        assert_eq!(mm.zones.iter().map(|zone| zone.free).sum::<u64>(), free);
        let nodes = [0, 1].map(|node| mm.node_meminfo(node).get(meminfo::HugePages_Total));
        assert_eq!(nodes, [Some(10); 2]);
    }

    #[test]
    fn a_segment_of_one_page_too_many_fails_unless_there_may_be_surplus() {
        let mut mm = machine(8, 0);
        assert_eq!(mm.create_huge_segment(9 * 512), Err(Lack::HugePages(1)));
        assert_eq!(pool(&mm), [8, 8, 0, 0]);
        let mut mm = machine(8, 1);
        assert_eq!(mm.create_huge_segment(10 * 512), Err(Lack::HugePages(1)));
        assert_eq!(pool(&mm), [8, 8, 0, 0], "what was had in vain is given back");
        let segment = mm.create_huge_segment(9 * 512).unwrap();
        assert_eq!(pool(&mm), [9, 9, 9, 1]);
        mm.remove_segment(&mut Cx::new(0, 0, 0, 0), segment);
        assert_eq!(pool(&mm), [8, 8, 0, 0]);
    }

    #[test]
    fn a_pool_gets_what_is_free_in_one_piece() {
        let mut mm = machine(1 << 20, 0);
        let [total, free, ..] = pool(&mm);
        assert_eq!(total, free);
        assert!((200..256).contains(&total), "{total} of 256 huge pages");
        assert!(mm.create_huge_segment(total as u32 * 512 + 1).is_err());
    }
}
