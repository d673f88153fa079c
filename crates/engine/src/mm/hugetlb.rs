//! The pool of huge pages, and shared memory of them (`mm/hugetlb.c`).
//!
//! A page of the pool is neither free memory nor on any list of reclaim, and it is never swapped. A segment
//! reserves its pages when it is made, so that none of its faults fails unless a policy wants another node.
//!
//! A pool that is set while the machine runs takes what is free in one piece, and then what reclaim and
//! compaction make so, node by node, until no node has any more (`set_max_huge_pages`).
//!
//! Not modelled: other sizes than that of a PMD; kswapd and kcompactd, which a search for a huge page wakes.

use std::ops::Range;

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_workload::RegionId;

use super::compaction::Compaction;
use super::frame::{entry, flag};
use super::free_area::{MigrateType, Request};
use super::memory::Fault;
use super::object::Backing;
use super::page_alloc::AllocContext;
use super::vmscan::DirectReclaim;
use super::{Cx, Done, Lack, Mm, Stop, Wait, footprint};

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

/// The pool gets another size (`set_max_huge_pages`).
#[derive(Debug)]
pub struct SetPool {
    wanted: u64,
    begun: bool,
    /// The node that is asked next, and how many in a row have had no page.
    node: usize,
    failed: usize,
    /// Nodes on which reclaim and compaction found none (`node_alloc_noretry`).
    no_retry: u64,
    search: Search,
}

/// The search for a huge page on a node (`__alloc_pages_slowpath`).
#[derive(Debug, Default)]
enum Search {
    #[default]
    Free,
    Reclaim(Box<DirectReclaim>),
    /// Zones that are to be compacted after this one.
    Compact(Compaction, Vec<usize>),
}

impl SetPool {
    /// The pool is to have this many pages.
    pub fn new(wanted: u64) -> Self {
        SetPool { wanted, begun: false, node: 0, failed: 0, no_retry: 0, search: Search::Free }
    }

    /// Sets the pool, or goes on to do so.
    ///
    /// # Errors
    /// The wait after which it is to be polled again; [`Stop::Pool`] if it has fewer pages in the end.
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx) -> Done {
        if !std::mem::replace(&mut self.begun, true) {
            cx.spend(mm.costs.syscall);
            mm.adopt_surplus(self.wanted);
            mm.shrink_pool(self.wanted);
        }
        while mm.hugetlb.persistent() < self.wanted {
            if self.failed == mm.nodes.len() {
                return Err(Stop::Pool);
            }
            let hard = self.no_retry >> self.node & 1 == 0;
            if self.search.poll(mm, cx, self.node, hard)? {
                (self.failed, self.no_retry) = (0, self.no_retry & !(1 << self.node));
            } else {
                (self.failed, self.no_retry) = (self.failed + 1, self.no_retry | 1 << self.node);
            }
            self.node = (self.node + 1) % mm.nodes.len();
            if cx.spent >= cx.slice {
                return Err(Wait::YIELD.into());
            }
        }
        Ok(())
    }
}

impl Search {
    /// Takes a huge page of a node for the pool, or goes on to do so; `false` if there is none. With `hard`
    /// it makes room for one (`__GFP_RETRY_MAYFAIL`): it gives up when reclaim frees nothing, or when a zone
    /// has been compacted in vain.
    fn poll(&mut self, mm: &mut Mm, cx: &mut Cx, node: usize, hard: bool) -> Result<bool, Wait> {
        let ac = AllocContext {
            preferred: node,
            allowed: 1 << node,
            write_cache: false,
            interleaved: false,
            kind: MigrateType::Movable,
        };
        loop {
            match self {
                Search::Free => {
                    cx.spend(mm.costs.alloc);
                    if mm.alloc_huge(node) {
                        return Ok(true);
                    }
                    mm.wake_kswapds(&ac);
                    if !hard {
                        return self.fail(mm);
                    }
                    // What is free is compacted before anything is reclaimed.
                    *self = Search::compact(mm, node).unwrap_or_else(|| Search::reclaim(mm, node));
                }
                Search::Reclaim(reclaim) => {
                    let freed = reclaim.poll(mm, cx, &ac)?;
                    mm.drain_all();
                    if mm.alloc_huge(node) {
                        *self = Search::Free;
                        return Ok(true);
                    }
                    *self = match Search::compact(mm, node) {
                        Some(compaction) => compaction,
                        None if freed > 0 => Search::reclaim(mm, node),
                        None => return self.fail(mm),
                    };
                }
                Search::Compact(compaction, others) => {
                    let is_done = compaction.poll(mm, cx)?;
                    if is_done && mm.alloc_huge(node) {
                        mm.events[vmstat::compact_success] += 1;
                        *self = Search::Free;
                        return Ok(true);
                    }
                    let Some(zone) = others.pop() else {
                        mm.events[vmstat::compact_fail] += 1;
                        return self.fail(mm);
                    };
                    *compaction = Compaction::of(mm, zone);
                }
            }
        }
    }

    /// Reclaim of what a zone of a node lacks for compaction.
    fn reclaim(mm: &Mm, node: usize) -> Search {
        let lacks = mm.nodes[node].zones.iter().map(|zone| mm.zones[*zone].lacks_for(mm.hugetlb.order));
        Search::Reclaim(Box::new(DirectReclaim::of_pages(lacks.min().unwrap_or(0))))
    }

    /// Compaction of the zones of a node that have enough free pages for it, the highest first; `None` if
    /// none has.
    fn compact(mm: &mut Mm, node: usize) -> Option<Search> {
        let is_suitable = |zone: &usize| mm.zones[*zone].lacks_for(mm.hugetlb.order) == 0;
        let mut zones: Vec<usize> = mm.nodes[node].zones.iter().copied().filter(is_suitable).collect();
        let first = zones.pop()?;
        mm.events[vmstat::compact_stall] += 1;
        Some(Search::Compact(Compaction::of(mm, first), zones))
    }

    /// Gives up: there is none.
    fn fail(&mut self, mm: &mut Mm) -> Result<bool, Wait> {
        *self = Search::Free;
        mm.events[vmstat::htlb_buddy_alloc_fail] += 1;
        Ok(false)
    }
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

    /// Pages that are there whether or not anybody needs them (`persistent_huge_pages`).
    fn persistent(&self) -> u64 {
        self.total.iter().sum::<u64>() - self.surplus.iter().sum::<u64>()
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
                self.events[vmstat::htlb_buddy_alloc_fail] += 1;
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
        false
    }

    /// Makes surplus pages ordinary ones, as far as the pool is to have more.
    fn adopt_surplus(&mut self, wanted: u64) {
        for node in 0..self.nodes.len() {
            let more = wanted.saturating_sub(self.hugetlb.persistent());
            let adopted = more.min(self.hugetlb.surplus[node]);
            self.hugetlb.surplus[node] -= adopted;
        }
    }

    /// Gives back pages that are neither used nor reserved, as far as the pool is to have fewer. The others
    /// become surplus.
    fn shrink_pool(&mut self, wanted: u64) {
        let count = self.nodes.len();
        let mut nodes = (0..count).cycle();
        let is_ordinary = |pool: &Hugetlb, node: usize| pool.total[node] > pool.surplus[node];
        while self.hugetlb.persistent() > wanted && self.hugetlb.all_free() > self.hugetlb.reserved {
            let pool = &self.hugetlb;
            let has_free = |node: &usize| is_ordinary(pool, *node) && !pool.free[*node].is_empty();
            let Some(node) = nodes.by_ref().take(count).find(has_free) else { break };
            self.free_huge(node);
        }
        while self.hugetlb.persistent() > wanted
            && let Some(node) = nodes.by_ref().find(|node| is_ordinary(&self.hugetlb, *node))
        {
            self.hugetlb.surplus[node] += 1;
        }
    }

    /// Gives a free page of a node's pool back (`update_and_free_hugetlb_folio`).
    fn free_huge(&mut self, node: usize) {
        let Some(first) = self.hugetlb.free[node].pop() else { return };
        self.hugetlb.total[node] -= 1;
        for frame in first..first + (1 << self.hugetlb.order) {
            self.frames[frame as usize].flags &= flag::ZONE | flag::USED;
        }
        self.free_pages(0, first, self.hugetlb.order);
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
                && !self.hugetlb.free[node].is_empty()
            {
                self.hugetlb.surplus[node] -= 1;
                self.free_huge(node);
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
    fn a_pool_that_shrinks_keeps_what_is_reserved_as_surplus() {
        let mut mm = machine(8, 0);
        let segment = mm.create_huge_segment(5 * 512).unwrap();
        let mut cx = Cx::new(mm.create_task(), 0, mm.create_process(Policy::Local), 0);
        assert_eq!(SetPool::new(2).poll(&mut mm, &mut cx), Ok(()));
        assert_eq!(pool(&mm), [5, 5, 5, 3]);
        assert_eq!(SetPool::new(8).poll(&mut mm, &mut cx), Ok(()));
        assert_eq!(pool(&mm), [8, 8, 5, 0], "surplus pages become ordinary ones before others are taken");
        SetPool::new(0).poll(&mut mm, &mut cx).unwrap();
        assert_eq!(pool(&mm), [5, 5, 5, 5]);
        mm.remove_segment(&mut cx, segment);
        assert_eq!(pool(&mm), [0, 0, 0, 0]);
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
