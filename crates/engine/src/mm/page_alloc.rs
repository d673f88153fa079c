//! Page allocation: fast path and slow path (`mm/page_alloc.c`). The OOM killer is in `machine/process.rs`,
//! because it chooses among processes.

use lotsfree_workload::Policy;

use super::frame::list;
use super::free_area::{MigrateType, Request};
use super::mmap::AddressSpace;
use super::mmzone::{Node, NumaStat};
use super::node_reclaim::NodeReclaim;
use super::vmscan::DirectReclaim;
use super::vmstat::Stat;
use super::{Cx, Mm, Stop, TENTH, Wait, WaitChannel, WaitReason};
use crate::generation::ZonelistCache;

/// MAX_RECLAIM_RETRIES
pub(crate) const MAX_RECLAIM_RETRIES: u32 = 16;
/// The highest kind of zone: user memory and page cache may come from every zone, so that the reserves
/// against ZONE_MOVABLE apply.
pub(crate) const HIGHEST: usize = 3;
/// Nanoseconds for which the zonelist cache skips a zone that was full (through 4.3).
const ZONELIST_CACHE: u64 = 1_000_000_000;

/// The watermark that an attempt has to respect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watermark {
    Min,
    Low,
    High,
}

/// The purpose of a page to be allocated, and the nodes that it may come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocContext {
    /// Node whose zonelist is walked.
    pub(crate) preferred: usize,
    /// Nodes that may be used (`MPOL_BIND`), as a bit mask.
    pub(crate) allowed: u64,
    /// The page will be written to through the page cache.
    pub(crate) write_cache: bool,
    /// Whether an interleave policy chose the node.
    pub(crate) interleaved: bool,
    pub(crate) kind: MigrateType,
}

/// A pass over the zonelist.
#[derive(Clone, Copy, Debug)]
struct Walk {
    wmark: Watermark,
    request: Request,
    /// Zone reclaim skips zones that the zonelist cache has as full.
    cached: bool,
    /// Nodes whose kswapd is awake are left out.
    idle_nodes: bool,
}

/// The allocation of a page for a user (`__alloc_pages`), which may have to reclaim and to sleep.
#[derive(Debug, Default)]
pub(crate) struct Alloc(Option<Box<SlowPath>>);

/// `__alloc_pages_slowpath`, for which the fast path has found no page.
#[derive(Debug)]
struct SlowPath {
    ac: AllocContext,
    rounds_without_progress: u32,
    reclaim: Option<DirectReclaim>,
}

impl Alloc {
    /// Where the page may come from: what [`Mm::alloc_context`] said at first.
    #[inline]
    pub(crate) fn context(
        &self,
        mm: &mut Mm,
        cx: &Cx,
        offset: Option<u32>,
        write_cache: bool,
    ) -> AllocContext {
        match &self.0 {
            Some(slow) => slow.ac,
            None => mm.alloc_context(cx, offset, write_cache),
        }
    }

    /// Allocates a page, or goes on to do so. The frame is marked as used and is on no list; the value is
    /// then as new.
    ///
    /// # Errors
    /// The wait after which it is to be polled again, or [`Stop::OutOfMemory`].
    #[inline]
    pub(crate) fn poll(&mut self, mm: &mut Mm, cx: &mut Cx, ac: &AllocContext) -> Result<u32, Stop> {
        match self.fast(mm, cx, ac) {
            Some(frame) => Ok(frame),
            None => self.slow(mm, cx),
        }
    }

    /// The fast path, which is tried once.
    #[inline(always)]
    pub(crate) fn fast(&mut self, mm: &mut Mm, cx: &mut Cx, ac: &AllocContext) -> Option<u32> {
        if self.is_under_way() {
            return None;
        }
        cx.spend(mm.costs.alloc);
        let frame = mm.get_page(cx, ac, Watermark::Low);
        if frame.is_none() {
            self.0 = Some(Box::new(SlowPath { ac: *ac, rounds_without_progress: 0, reclaim: None }));
        }
        frame
    }

    /// The slow path, after the fast one.
    ///
    /// # Errors
    /// Those of [`poll`](Self::poll).
    #[cold]
    pub(crate) fn slow(&mut self, mm: &mut Mm, cx: &mut Cx) -> Result<u32, Stop> {
        let frame = match &mut self.0 {
            Some(slow) => slow.poll(mm, cx)?,
            None => None,
        };
        self.forget();
        frame.ok_or(Stop::OutOfMemory)
    }

    /// Whether the page is yet to come.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.is_some()
    }

    /// Gives up: somebody else has brought the page.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

impl SlowPath {
    /// Reclaims until there is a page, without compaction between reclaim and the next try: every allocation
    /// is of a single page. Those of huge pages for the pool are in `hugetlb.rs`.
    fn poll(&mut self, mm: &mut Mm, cx: &mut Cx) -> Result<Option<u32>, Wait> {
        let ac = &self.ac;
        loop {
            // Reclaim that was interrupted is finished, whatever has become free in the meantime.
            if self.reclaim.is_none() {
                mm.wake_kswapds(ac);
                if let Some(frame) = mm.get_page(cx, ac, Watermark::Min) {
                    return Ok(Some(frame));
                }
                if let Some(wait) = mm.generation.policy.stall(mm, cx, ac) {
                    return Err(wait);
                }
            }
            let freed = self.reclaim.get_or_insert_default().poll(mm, cx, ac)?;
            self.reclaim = None;
            if let Some(frame) = mm.get_page(cx, ac, Watermark::Min) {
                return Ok(Some(frame));
            }
            if freed == 0 {
                mm.drain_all();
                if let Some(frame) = mm.get_page(cx, ac, Watermark::Min) {
                    return Ok(Some(frame));
                }
            }
            self.rounds_without_progress = if freed > 0 { 0 } else { self.rounds_without_progress + 1 };
            if !mm.should_reclaim_retry(ac, freed, self.rounds_without_progress) {
                // The last attempt, at the high mark (`__alloc_pages_may_oom`). If it fails,
                // `machine/process.rs` kills a process.
                return Ok(mm.get_page(cx, ac, Watermark::High));
            }
            let preferred = mm.lruvec_of(mm.nodes[ac.preferred].preferred_zone());
            let waits = mm.generation.alloc_congestion_wait
                || (mm.lruvecs[preferred].flags.congested && mm.queues.is_congested());
            if !mm.generation.reclaim_retries && freed > 0 && waits {
                return Err(Wait::until(cx.now() + TENTH / 5, WaitReason::Reclaim));
            }
            if cx.spent >= cx.slice {
                return Err(Wait::YIELD);
            }
        }
    }
}

/// The bit mask of some nodes.
pub(super) fn nodemask(nodes: &[u32]) -> u64 {
    nodes.iter().fold(0, |mask, &node| mask | 1 << node.min(63))
}

impl Mm {
    /// Whether an allocation goes on after a round of reclaim; before 4.7 one round without progress is
    /// enough to give up.
    fn should_reclaim_retry(&self, ac: &AllocContext, freed: u64, rounds_without_progress: u32) -> bool {
        if !self.generation.reclaim_retries {
            return freed > 0;
        }
        if rounds_without_progress > MAX_RECLAIM_RETRIES {
            return false;
        }
        let swap = self.swap.free() > 0;
        self.nodes[ac.preferred].zonelist.iter().any(|&zone| {
            let zone = &self.zones[zone];
            let anon = if swap { zone.lru[list::INACTIVE_ANON] + zone.lru[list::ACTIVE_ANON] } else { 0 };
            let available = zone.free + zone.lru[list::INACTIVE_FILE] + zone.lru[list::ACTIVE_FILE] + anon;
            ac.allowed >> zone.node & 1 == 1 && available > zone.min_wmark_pages() + zone.reserve[HIGHEST]
        })
    }

    /// Takes a free block of a zone, and sets `flags` for each of its frames; `None` if that would leave less
    /// than `mark` pages, or there is no such block.
    pub(super) fn take_block(
        &mut self,
        index: usize,
        mark: u64,
        request: Request,
        flags: u32,
    ) -> Option<u32> {
        let (zone, pages) = (&mut self.zones[index], 1 << request.order);
        if !zone.passes(mark + u64::from(pages) - 1, HIGHEST) {
            return None;
        }
        let first = zone.rmqueue(&mut self.frames, request)?;
        for f in &mut self.frames[first as usize..(first + pages) as usize] {
            f.flags |= flags;
        }
        Some(first)
    }

    /// Where the policy of a process puts a page (`mm/mempolicy.c:policy_node`). `offset` is the page's place
    /// in a shared object, `None` for anonymous memory.
    #[inline]
    pub(crate) fn alloc_context(&mut self, cx: &Cx, offset: Option<u32>, write_cache: bool) -> AllocContext {
        let local = self.node_of_cpu(cx.cpu);
        let ac = AllocContext {
            preferred: local,
            allowed: u64::MAX,
            write_cache,
            interleaved: false,
            kind: MigrateType::Movable,
        };
        match self.processes.get(cx.process) {
            None | Some(AddressSpace { policy: Policy::Local, .. }) => ac,
            Some(_) => self.mempolicy_context(cx.process, offset, ac),
        }
    }

    /// Where a policy other than the local one puts a page that is wanted on node `ac.preferred`.
    fn mempolicy_context(
        &mut self,
        process: usize,
        offset: Option<u32>,
        mut ac: AllocContext,
    ) -> AllocContext {
        let (count, local) = (self.nodes.len(), ac.preferred);
        let process = &mut self.processes[process];
        match &process.policy {
            Policy::Local => {}
            Policy::Preferred(node) => ac.preferred = (*node as usize).min(count - 1),
            Policy::Bind(nodes) => {
                ac.allowed = nodemask(nodes);
                if !nodes.contains(&(local as u32)) {
                    let distance = |node: &u32| self.nodes[local].distance.get(*node as usize).copied();
                    if let Some(&nearest) = nodes.iter().min_by_key(|node| (distance(node), **node)) {
                        ac.preferred = (nearest as usize).min(count - 1);
                    }
                }
            }
            Policy::Interleave(nodes) if !nodes.is_empty() => {
                let turn = match offset {
                    Some(offset) => offset as usize,
                    None => {
                        process.interleave += 1;
                        process.interleave
                    }
                };
                ac.preferred = (nodes[turn % nodes.len()] as usize).min(count - 1);
                ac.interleaved = true;
            }
            Policy::Interleave(_) => {}
        }
        ac
    }

    /// Allocates a page that the caller can do without, as for readahead: the caller does not reclaim.
    pub(crate) fn alloc_page_light(&mut self, cx: &mut Cx, ac: &AllocContext) -> Option<u32> {
        cx.spend(self.costs.alloc);
        if let Some(frame) = self.get_page(cx, ac, Watermark::Low) {
            return Some(frame);
        }
        self.wake_kswapds(ac);
        self.get_page(cx, ac, Watermark::Min)
    }

    /// Allocates a page that reclaim itself needs (`PF_MEMALLOC`): it does not reclaim in turn, and in
    /// the end no watermark holds it back (`__gfp_pfmemalloc_flags`), so that it fails only where no page
    /// is free.
    pub(crate) fn alloc_page_memalloc(&mut self, cx: &mut Cx, ac: &AllocContext) -> Option<u32> {
        cx.spend(self.costs.alloc);
        for wmark in [Some(Watermark::Low), Some(Watermark::Min), None] {
            if wmark == Some(Watermark::Min) {
                self.wake_kswapds(ac);
            }
            let request = self.request(ac, wmark.unwrap_or(Watermark::Min));
            for at in 0..self.nodes[ac.preferred].zonelist.len() {
                let index = self.nodes[ac.preferred].zonelist[at];
                if wmark.is_some_and(|wmark| !self.is_open(index, wmark)) {
                    continue;
                }
                if let Some(frame) = self.take_from(cx, ac, index, request) {
                    return Some(frame);
                }
            }
        }
        None
    }

    pub(super) fn wake_kswapds(&mut self, ac: &AllocContext) {
        let mut seen = 0u64;
        for i in 0..self.nodes[ac.preferred].zonelist.len() {
            let node = self.zones[self.nodes[ac.preferred].zonelist[i]].node;
            if ac.allowed >> node & 1 == 1 && seen >> node & 1 == 0 {
                seen |= 1 << node;
                self.wakeup_kswapd(node, HIGHEST);
            }
        }
    }

    /// `get_page_from_freelist`. The fast path is that which keeps the low watermark.
    #[inline(always)]
    fn get_page(&mut self, cx: &mut Cx, ac: &AllocContext, wmark: Watermark) -> Option<u32> {
        // Most pages come from the first zone at once.
        let first = self.nodes[ac.preferred].preferred_zone();
        if !self.is_fair(wmark)
            && !self.spreads_dirty(ac, wmark)
            && ac.allowed >> self.zones[first].node & 1 == 1
            && !self.avoids_awake_nodes(ac)
            && self.is_open(first, wmark)
        {
            let frame = self.take_from(cx, ac, first, self.request(ac, wmark));
            if frame.is_some() {
                return frame;
            }
        }
        self.get_page_slow(cx, ac, wmark)
    }

    /// The request for a page, which on the fast path may spare the pageblocks of other types.
    #[inline]
    fn request(&self, ac: &AllocContext, wmark: Watermark) -> Request {
        let nofragment = wmark == Watermark::Low && self.nodes[ac.preferred].nofragment;
        Request { nofragment, ..self.generation.request(ac.kind) }
    }

    /// Whether only zones that have a share left are tried at first (3.12 to 4.7).
    #[inline]
    fn is_fair(&self, wmark: Watermark) -> bool {
        self.generation.fair_zones && wmark == Watermark::Low
    }

    /// Whether nodes over their dirty limit are left to the slow path, which requires less free memory. On a
    /// machine of one node, pages of files that are written go there whenever much is dirty.
    ///
    /// The kernel treats zones in the same way (3.3 to 4.7), but for them the model gives up the limit
    /// instead (SPECIFICATION.md says why).
    #[inline]
    fn spreads_dirty(&self, ac: &AllocContext, wmark: Watermark) -> bool {
        ac.write_cache && self.generation.dirty_spreading && wmark == Watermark::Low
    }

    #[cold]
    fn get_page_slow(&mut self, cx: &mut Cx, ac: &AllocContext, wmark: Watermark) -> Option<u32> {
        let request = self.request(ac, wmark);
        let frame = self.walk_zonelists(cx, ac, wmark, request);
        if frame.is_none() && request.nofragment {
            return self.walk_zonelists(cx, ac, wmark, Request { nofragment: false, ..request });
        }
        frame
    }

    /// Whether an allocation first looks for a node whose kswapd sleeps: on a machine of several nodes, where
    /// kswapd of one that it may use is awake.
    #[inline]
    fn avoids_awake_nodes(&self, ac: &AllocContext) -> bool {
        let awake = |(at, node): (usize, &Node)| ac.allowed >> at & 1 == 1 && node.kswapd.is_awake();
        self.generation.idle_nodes_first && self.nodes.len() > 1 && self.nodes.iter().enumerate().any(awake)
    }

    /// The passes over the zonelist that an attempt has.
    fn walk_zonelists(
        &mut self,
        cx: &mut Cx,
        ac: &AllocContext,
        wmark: Watermark,
        request: Request,
    ) -> Option<u32> {
        let walk = Walk { wmark, request, cached: true, idle_nodes: false };
        if self.is_fair(wmark) {
            let mut skipped = false;
            if let Some(frame) = self.walk_zonelist(cx, ac, walk, Some(&mut skipped)) {
                return Some(frame);
            }
            if skipped {
                for zone in self.nodes[ac.preferred].zones.clone() {
                    let zone = &mut self.zones[zone];
                    zone.alloc_batch = (zone.watermark.high - zone.watermark.low) as i64;
                }
                if let Some(frame) = self.walk_zonelist(cx, ac, walk, Some(&mut skipped)) {
                    return Some(frame);
                }
            }
        }
        if self.avoids_awake_nodes(ac) {
            let page = self.walk_zonelist(cx, ac, Walk { idle_nodes: true, ..walk }, None);
            if page.is_some() {
                return page;
            }
        }
        let page = self.walk_zonelist(cx, ac, walk, None);
        if page.is_none() && self.zone_reclaim_mode != 0 && self.generation.zonelist_cache.is_some() {
            // Zones that the cache left out are tried before the walk counts as failed.
            return self.walk_zonelist(cx, ac, Walk { cached: false, ..walk }, None);
        }
        page
    }

    /// One pass over the zonelist. With `fair`, only local zones that have a share left take part.
    fn walk_zonelist(
        &mut self,
        cx: &mut Cx,
        ac: &AllocContext,
        Walk { wmark, mut request, cached, idle_nodes }: Walk,
        mut fair: Option<&mut bool>,
    ) -> Option<u32> {
        let spread = self.spreads_dirty(ac, wmark);
        for pass in 0..2 {
            let mut skipped_dirty = false;
            for i in 0..self.nodes[ac.preferred].zonelist.len() {
                let index = self.nodes[ac.preferred].zonelist[i];
                let zone = &self.zones[index];
                if ac.allowed >> zone.node & 1 == 0 {
                    continue;
                }
                if let Some(skipped) = fair.as_deref_mut() {
                    if zone.node != ac.preferred {
                        break;
                    }
                    if zone.alloc_batch <= 0 {
                        *skipped = true;
                        continue;
                    }
                }
                if spread && pass == 0 && !self.dirty_ok(index) {
                    skipped_dirty = true;
                    continue;
                }
                if idle_nodes && self.nodes[self.zones[index].node].kswapd.is_awake() {
                    continue;
                }
                if !self.is_open(index, wmark) && !self.makes_room(cx, ac, index, wmark, cached) {
                    continue;
                }
                // Locality matters more than whole pageblocks.
                request.nofragment &= self.zones[index].node == ac.preferred;
                let frame = self.take_from(cx, ac, index, request);
                if frame.is_some() {
                    return frame;
                }
            }
            if !skipped_dirty || self.generation.lru_per_node {
                break;
            }
        }
        None
    }

    /// Whether a zone has pages for an attempt that has to respect a watermark.
    #[inline]
    fn is_open(&mut self, index: usize, wmark: Watermark) -> bool {
        let zone = &mut self.zones[index];
        if self.generation.pcp.adapts {
            zone.below_high |= !zone.passes(zone.high_wmark_pages(), HIGHEST);
        }
        if self.own_marks {
            return self.generation.policy.may_allocate(self, index, wmark);
        }
        zone.passes(zone.wmark_pages(wmark), HIGHEST)
    }

    /// Wakes kswapd for a zone whose watermarks an allocation has just boosted.
    #[inline(always)]
    pub(super) fn wake_for_boost(&mut self, index: usize) {
        let zone = &mut self.zones[index];
        if zone.boosted {
            zone.boosted = false;
            let (node, highest) = (zone.node, zone.index());
            self.wakeup_kswapd(node, highest);
        }
    }

    /// Takes a page of a zone, and counts it (`rmqueue`).
    #[inline(always)]
    fn take_from(&mut self, cx: &mut Cx, ac: &AllocContext, index: usize, request: Request) -> Option<u32> {
        let frame = self.take_page(cx, index, request)?;
        cx.pages.allocated += 1;
        self.wake_for_boost(index);
        self.count_numa(cx, ac, index);
        Some(frame)
    }

    /// Runs zone reclaim on a zone that is below a mark, and returns whether the zone passes then.
    #[cold]
    fn makes_room(
        &mut self,
        cx: &mut Cx,
        ac: &AllocContext,
        index: usize,
        wmark: Watermark,
        cached: bool,
    ) -> bool {
        if self.zone_reclaim_mode == 0 || !self.reclaims_here(ac.preferred, index) {
            return false;
        }
        if cached && self.zones[index].full_until[ac.preferred] > cx.now() {
            return false;
        }
        let outcome = self.node_reclaim(cx, index);
        if outcome == NodeReclaim::NoScan {
            return false;
        }
        let success = outcome == NodeReclaim::Success;
        let relaxed = success && self.generation.zone_reclaim_relaxed;
        let zone = &mut self.zones[index];
        let value = zone.wmark_pages(if relaxed { Watermark::Min } else { wmark });
        if zone.passes(value, HIGHEST) {
            return true;
        }
        let full = match self.generation.zonelist_cache {
            None => false,
            Some(ZonelistCache::BelowMark) => true,
            Some(ZonelistCache::BelowMinOrNoProgress) => wmark == Watermark::Min || !success,
        };
        if full {
            zone.full_until[ac.preferred] = cx.now() + ZONELIST_CACHE;
        }
        false
    }

    /// Whether zone reclaim of `zone` is allowed for an allocation that prefers `node`
    /// (`zone_allows_reclaim`).
    fn reclaims_here(&self, node: usize, zone: usize) -> bool {
        let distance = self.nodes[node].distance[self.zones[zone].node];
        !self.generation.zone_reclaim_near || distance <= self.generation.reclaim_distance
    }

    #[inline(always)]
    pub(super) fn count_numa(&mut self, cx: &Cx, ac: &AllocContext, zone: usize) {
        let node = self.zones[zone].node;
        let local = self.node_of_cpu(cx.cpu);
        let hit = node == ac.preferred;
        let numa = &mut self.zones[zone].numa;
        numa[if hit { NumaStat::Hit } else { NumaStat::Miss }] += 1;
        numa[NumaStat::Interleave] += u64::from(hit && ac.interleaved);
        numa[if node == local { NumaStat::Local } else { NumaStat::Other }] += 1;
        if !hit {
            let wanted = self.nodes[ac.preferred].preferred_zone();
            self.zones[wanted].numa[NumaStat::Foreign] += 1;
        }
    }

    /// Whether a zone (a node from 4.8 on) may take more pages that will be dirty
    /// (`mm/page-writeback.c:zone_dirty_ok`, `node_dirty_ok`).
    fn dirty_ok(&self, zone: usize) -> bool {
        let lruvec = self.lruvec_of(zone);
        let dirty =
            self.lruvec_sum(lruvec, |z| z.stat[Stat::Dirty as usize] + z.stat[Stat::Writeback as usize]);
        dirty <= self.lruvec_dirty_limit(lruvec)
    }

    /// Tells waiters that pages of a node became free.
    pub(crate) fn freed_news(&mut self, node: usize) {
        self.woken.push(WaitChannel::Progress(node));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::Generation;

    /// Free pages of ZONE_DMA32, above its low and above its min mark, when an allocation first gets a page
    /// of ZONE_DMA, on a machine of 1 GiB where nothing can be reclaimed.
    fn when_dma_is_used(kernel: &str, dirty: bool, write_cache: bool) -> (i64, i64) {
        let mut mm = Mm::new(&Config::new(Generation::named(kernel).unwrap(), vec![1 << 18]));
        let cx = &mut Cx::new(mm.create_task(), 0, mm.create_process(Policy::Local), 0);
        if dirty {
            mm.zones.iter_mut().for_each(|zone| zone.stat[Stat::Dirty as usize] = zone.managed);
        }
        let ac = AllocContext {
            preferred: 0,
            allowed: u64::MAX,
            write_cache,
            interleaved: false,
            kind: MigrateType::Movable,
        };
        loop {
            let frame = Alloc::default().poll(&mut mm, cx, &ac).expect("ZONE_DMA has pages");
            let zone = &mm.zones[1];
            let above = |mark: u64| zone.free as i64 - mark as i64;
            if mm.frames[frame as usize].zone() == 0 {
                return (above(zone.low_wmark_pages()), above(zone.min_wmark_pages()));
            }
        }
    }

    /// The most pages that a CPU fetches at a time, which may go beyond the mark (6.12).
    const FETCHED: i64 = 2016;

    #[test]
    fn what_is_written_while_much_is_dirty_is_content_with_less() {
        for kernel in ["linux-5.4", "linux-6.1", "linux-6.12+mglru"] {
            for (dirty, write_cache) in [(false, false), (false, true), (true, false)] {
                let (low, _) = when_dma_is_used(kernel, dirty, write_cache);
                assert!((-FETCHED..=0).contains(&low), "{kernel}, {dirty}, {write_cache}: {low}");
            }
            let (low, min) = when_dma_is_used(kernel, true, true);
            assert!(low < -FETCHED && (-FETCHED..=0).contains(&min), "{kernel}: {low}, {min}");
        }
        // Kernels before 3.3 have no dirty limit for a zone.
        let (low, _) = when_dma_is_used("linux-3.0", true, true);
        assert!((-FETCHED..=0).contains(&low), "{low}");
    }

    /// The nodes of pages that a process on node 0 of two gets while kswapd of node 0 is awake.
    fn nodes_beside_an_awake_kswapd(kernel: &str, allowed: u64) -> Vec<usize> {
        let mut mm = Mm::new(&Config::new(Generation::named(kernel).unwrap(), vec![1 << 15; 2]));
        let cx = &mut Cx::new(mm.create_task(), 0, mm.create_process(Policy::Local), 0);
        let kind = MigrateType::Movable;
        let ac = AllocContext { preferred: 0, allowed, write_cache: false, interleaved: false, kind };
        let mut node_of_next = |mm: &mut Mm| {
            let frame = Alloc::default().poll(mm, cx, &ac).expect("memory is free");
            mm.zones[mm.frames[frame as usize].zone()].node
        };
        let mut nodes = vec![node_of_next(&mut mm)];
        for node in [0, 1] {
            // A boost gives kswapd work although there is memory.
            let zone = mm.nodes[node].preferred_zone();
            mm.zones[zone].boost = 1;
            mm.wakeup_kswapd(node, HIGHEST);
            assert!(mm.nodes[node].kswapd.is_awake());
            nodes.push(node_of_next(&mut mm));
        }
        nodes
    }

    #[test]
    fn pages_come_from_the_node_whose_kswapd_sleeps_if_there_is_one() {
        assert_eq!(nodes_beside_an_awake_kswapd("linux-6.18", u64::MAX), [0, 1, 0]);
        assert_eq!(nodes_beside_an_awake_kswapd("linux-6.18", 1), [0, 0, 0], "a policy has to be kept");
        assert_eq!(nodes_beside_an_awake_kswapd("linux-6.12", u64::MAX), [0, 0, 0]);
    }
}
