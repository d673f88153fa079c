//! zswap: a compressed cache in memory, in front of the device that swap is on (`mm/zswap.c`, 3.11 on), in
//! pages that zsmalloc or zbud takes from the zones (`zpool.rs`).
//!
//! ```text
//!                        ┌─▶ pool ── load ──▶ page
//! swap_writepage ─ store ┤     └─ writeback of the oldest ─┐
//!                        └─ refused ───────────────────────┴─▶ device
//! ```
//!
//! A store compresses at once, on the time of the task that reclaims, and the page is free when it returns.
//! It is refused, and the page goes to the device, if the pool has more than `max_pool_percent` of memory, if
//! it was full and has not come down to `accept_threshold_percent` of that again, where a page compresses too
//! badly, and where no page is free. A page keeps its slot wherever it is: what zswap holds takes room on the
//! device, too. What goes in and out counts as `zswpout` and `zswpin`, never as `pswpout` and `pswpin`.
//!
//! Who makes room in a full pool differs by release ([`ZswapShrink`]). A page that is written back is first
//! brought into the swap cache, in a page of memory that it has until it is written. Where the allocator does
//! that (read in 6.1 and before), zsmalloc cannot: its full pool only refuses, so that the oldest pages stay
//! in memory and the youngest go to the device.
//!
//! The worker runs when a batch of reclaim is over, and then once, however many of its pages were refused. A
//! kernel's has a CPU for itself and runs more often, which matters where a run gives up soon (6.12).
//!
//! Not modelled: pages filled with one value, which take no memory; `zswap_entry` objects in slabs; a list
//! for each node and control group (there is one for all); `shrinker_enabled` (6.8), which writes entries
//! back before the pool is full; z3fold; the 32 pools of each type that 6.8 spreads objects over; an OOM kill
//! by the kernel's worker, which skips the entry instead; from 6.18 on, pages that do not compress.

use std::collections::BTreeMap;

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_scenario::Zpool as Kind;

use super::frame::{NONE, entry, flag};
use super::free_area::MigrateType;
use super::page_alloc::{Alloc, AllocContext, MAX_RECLAIM_RETRIES};
use super::vmstat::Stat;
use super::zpool::{SizeClass, Zpool};
use super::{Config, Cx, Device, Mm, Stop, Wait, WaitChannel, WaitReason, footprint};
use crate::generation::ZswapShrink;

/// `sizeof(struct zswap_header)`: bytes that an object has, where the allocator writes back, for the way back
/// to its entry.
const HEADER: u32 = 8;
/// Pages of zbud that one call tries to free before it gives up (`zbud_zpool_shrink`).
const ZBUD_RETRIES: u32 = 8;

/// zswap in front of [`Config::swap_pages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZswapConfig {
    /// Bytes that a page takes after compression.
    pub object_bytes: u32,
    /// `zpool`
    pub zpool: Kind,
    /// `max_pool_percent`
    pub max_pool_percent: u32,
    /// `accept_threshold_percent`, from 5.8 on.
    pub accept_threshold_percent: u32,
}

impl ZswapConfig {
    /// The form of the pool's pages; `None` if it takes no page.
    fn class(self, config: &Config) -> Option<SizeClass> {
        let evicts = config.generation.zswap.shrink.is_by_allocator();
        let (page, chain) = (config.page, config.generation.zspage_chain);
        match self.zpool {
            Kind::Zbud => SizeClass::of_zbud(self.object_bytes + if evicts { HEADER } else { 0 }, page),
            // LZO makes more than a page of what does not compress, which is more than zsmalloc's largest
            // object (`ZS_MAX_ALLOC_SIZE`).
            Kind::Zsmalloc if u64::from(self.object_bytes) >= page.bytes().0 => None,
            Kind::Zsmalloc => Some(SizeClass::of_object(chain, self.object_bytes, page)),
        }
    }
}

/// What zswap knows of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Its place in the order of the list; 0 if zswap does not hold the slot.
    at: u64,
    /// It has come in, or was spared, since the shrinker last met it (`referenced`, read in 6.12).
    referenced: bool,
    /// The device has what the slot holds. The kernel has no such flag, because it never asks.
    on_device: bool,
}

/// zswap, whose compressed pages are in [`Mm::zpool`].
#[derive(Debug)]
pub(crate) struct Zswap {
    kind: Kind,
    /// Whether the pool takes pages that compress as these do.
    fits: bool,
    /// `zswap_max_pages`, `zswap_accept_thr_pages`
    max_pages: u64,
    accept_pages: u64,
    /// `zswap_pool_reached_full`
    reached_full: bool,
    /// The worker has something to do.
    queued: bool,
    entries: Vec<Entry>,
    /// Slots with an entry, the next to be written back first.
    lru: BTreeMap<u64, u32>,
    last: u64,
    /// `pool_limit_hit` and others of `/sys/kernel/debug/zswap`.
    pub(crate) pool_limit_hit: u64,
    pub(crate) written_back_pages: u64,
    pub(crate) reject_reclaim_fail: u64,
    pub(crate) reject_compress_poor: u64,
    pub(crate) reject_alloc_fail: u64,
}

impl Zswap {
    /// zswap on a machine of `managed` pages (`totalram_pages`).
    pub(super) fn new(config: &Config, managed: u64) -> Option<Box<Zswap>> {
        let zswap = config.zswap.filter(|_| config.swap_pages > 0 && config.zram.is_none())?;
        let max_pages = managed * u64::from(zswap.max_pool_percent) / 100;
        let slots = config.swap_pages.min(super::MOST_FRAMES - 2) as usize;
        Some(Box::new(Zswap {
            kind: zswap.zpool,
            fits: zswap.class(config).is_some(),
            max_pages,
            accept_pages: max_pages * u64::from(zswap.accept_threshold_percent) / 100,
            reached_full: false,
            queued: false,
            entries: vec![Entry::default(); slots],
            lru: BTreeMap::new(),
            last: 0,
            pool_limit_hit: 0,
            written_back_pages: 0,
            reject_reclaim_fail: 0,
            reject_compress_poor: 0,
            reject_alloc_fail: 0,
        }))
    }

    /// The pool of a machine that has zswap, without a page yet.
    pub(super) fn pool(config: &Config) -> Option<Box<Zpool>> {
        let zswap = config.zswap.filter(|_| config.swap_pages > 0 && config.zram.is_none())?;
        let class = zswap.class(config).unwrap_or(SizeClass { pages: 1, objects: 1 });
        Some(Zpool::new(zswap.zpool, class, config.swap_pages))
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        footprint::of(&self.entries) + self.lru.len() * 2 * size_of::<(u64, u32)>()
    }

    /// Whether it holds a slot.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.entries.get(slot as usize).is_some_and(|entry| entry.at > 0)
    }

    /// Puts a slot at the young end (`zswap_lru_add`).
    fn lru_add(&mut self, slot: u32) {
        self.lru_del(slot);
        self.last += 1;
        self.entries[slot as usize].at = self.last;
        self.lru.insert(self.last, slot);
    }

    fn lru_del(&mut self, slot: u32) -> bool {
        let at = std::mem::take(&mut self.entries[slot as usize].at);
        self.lru.remove(&at).is_some()
    }

    /// Notes that the device has a slot's page, or has it no longer.
    pub(super) fn set_on_device(&mut self, slot: u32, is: bool) {
        self.entries[slot as usize].on_device = is;
    }

    /// Compares the list with the pool.
    pub(super) fn check(&self, pool: &Zpool) -> Result<(), String> {
        for (slot, entry) in (0u32..).zip(&self.entries) {
            if self.has(slot) != pool.has(slot) {
                return Err(format!("swap slot {slot} has an entry of zswap or an object, and not both"));
            }
            if entry.at > 0 && self.lru.get(&entry.at) != Some(&slot) {
                return Err(format!("zswap's list does not have swap slot {slot} in its place"));
            }
        }
        if self.lru.len() as u64 != pool.objects() {
            return Err(format!("zswap's list has {} slots of {}", self.lru.len(), pool.objects()));
        }
        Ok(())
    }

    /// Whether the contents of a slot are somewhere outside of memory.
    pub(super) fn keeps(&self, slot: u32) -> bool {
        self.has(slot) || self.entries[slot as usize].on_device
    }
}

/// A run of the shrinker.
#[derive(Debug)]
struct Run {
    /// Entries that it had to leave, and entries that it has written back.
    failures: u32,
    written: u32,
    /// Pages of the pool when it began.
    pages: u64,
}

/// The entry that a run deals with next.
enum Next {
    Writeback(u32),
    /// It was spared.
    Spared,
    Done,
}

/// The worker that makes room in the pool (`shrink_worker`), from 5.8 on.
#[derive(Debug, Default)]
pub struct ZswapWorker {
    run: Option<Run>,
    alloc: Alloc,
}

impl ZswapWorker {
    /// Runs for a slice. Returns the event or time that it waits for after that.
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx) -> Wait {
        loop {
            let run = match &mut self.run {
                Some(run) => run,
                None if mm.zswap.as_mut().is_some_and(|zswap| std::mem::take(&mut zswap.queued)) => {
                    self.run.insert(mm.zswap_begin())
                }
                None => {
                    let channel = Some(WaitChannel::Zswap);
                    return Wait { channel, until: None, why: WaitReason::Idle };
                }
            };
            match mm.zswap_next(run) {
                Next::Done => {
                    mm.zswap_end(run);
                    self.run = None;
                    self.alloc.forget();
                }
                Next::Spared => cx.spend(mm.costs.scan),
                Next::Writeback(slot) => {
                    let ac = self.alloc.context(mm, cx, None, false);
                    match self.alloc.poll(mm, cx, &ac) {
                        Ok(frame) => mm.zswap_writeback_entry(cx, run, slot, frame),
                        Err(Stop::Wait(wait)) => return wait,
                        Err(_) => mm.zswap_skip(run, slot),
                    }
                    if mm.flush_pageout(cx, false)
                        && let Some(wait) = mm.pageout_wait(cx, Device::Swap, false)
                    {
                        return wait;
                    }
                }
            }
            if cx.spent >= cx.slice {
                return Wait::YIELD;
            }
        }
    }
}

impl Mm {
    /// Writes a page of the swap cache for reclaim, where swap is compressed in memory in the first place
    /// (`swap_writepage`). Returns whether the page is written when this returns, and thus clean.
    pub(crate) fn swap_writepage(&mut self, cx: &mut Cx, frame: u32) -> bool {
        if self.zram.is_some() {
            return self.zram_writepage(cx, frame);
        }
        let Some(slot) = self.swap.slot_of(frame) else { return false };
        if !self.zswap_store(cx, slot) {
            self.pageout(frame);
            return false;
        }
        self.stat_add(frame, Stat::VmscanWrite);
        if self.generation.zswap.counts_written {
            self.stat_add(frame, Stat::Written);
        }
        self.frames[frame as usize].flags &= !flag::DIRTY;
        true
    }

    /// Compresses the page of a slot into the pool (`zswap_store`). What the pool had of the slot is stale in
    /// any case.
    fn zswap_store(&mut self, cx: &mut Cx, slot: u32) -> bool {
        self.zswap_invalidate(cx, slot);
        let accepts = self.zswap_accepts(cx);
        let Some(zswap) = &mut self.zswap else { return false };
        zswap.set_on_device(slot, false);
        if !accepts {
            return false;
        }
        cx.spend(self.costs.compress);
        let zspage = if zswap.fits { self.zpool_malloc(cx) } else { None };
        let (Some(zswap), Some(pool)) = (&mut self.zswap, &mut self.zpool) else { return false };
        let Some(zspage) = zspage else {
            let refused =
                if zswap.fits { &mut zswap.reject_alloc_fail } else { &mut zswap.reject_compress_poor };
            *refused += 1;
            return false;
        };
        pool.store(slot, zspage);
        // zbud's list is of its pages, and one that gets a second object is young again.
        if self.generation.zswap.shrink.is_by_allocator()
            && let Some(buddy) = pool.buddy_of(slot)
        {
            zswap.lru_add(buddy);
        }
        zswap.lru_add(slot);
        zswap.entries[slot as usize].referenced = true;
        self.events[vmstat::zswpout] += 1;
        true
    }

    /// Whether the pool has room, which a store may have to make itself (`zswap_is_full`,
    /// `zswap_can_accept`; `zswap_check_limits` in 6.12).
    fn zswap_accepts(&mut self, cx: &mut Cx) -> bool {
        let shrink = self.generation.zswap.shrink;
        if self.zswap_is_full() {
            if let Some(zswap) = &mut self.zswap {
                zswap.pool_limit_hit += 1;
                zswap.reached_full = shrink != ZswapShrink::InStore;
            }
            if shrink == ZswapShrink::InStore {
                return self.zswap_shrink(cx) && !self.zswap_is_full();
            }
            self.zswap_queue_work();
            return false;
        }
        let accepts = self.zswap_can_accept();
        let Some(zswap) = &mut self.zswap else { return false };
        zswap.reached_full &= !accepts;
        let refuses = zswap.reached_full;
        if refuses && !shrink.is_by_allocator() {
            self.zswap_queue_work();
        }
        !refuses
    }

    fn zswap_is_full(&self) -> bool {
        let (Some(zswap), Some(pool)) = (&self.zswap, &self.zpool) else { return true };
        let at_limit = self.generation.zswap.shrink == ZswapShrink::SecondChance;
        pool.pages() > zswap.max_pages || (at_limit && pool.pages() == zswap.max_pages)
    }

    /// Whether the pool has come down far enough after it was full.
    fn zswap_can_accept(&self) -> bool {
        let (Some(zswap), Some(pool)) = (&self.zswap, &self.zpool) else { return false };
        let at_limit = self.generation.zswap.shrink == ZswapShrink::SecondChance;
        pool.pages() < zswap.accept_pages || (at_limit && pool.pages() == zswap.accept_pages)
    }

    fn zswap_queue_work(&mut self) {
        if let Some(zswap) = &mut self.zswap
            && !std::mem::replace(&mut zswap.queued, true)
        {
            self.woken.push(WaitChannel::Zswap);
        }
    }

    /// Reads a page from the pool, if it has it (`zswap_load`).
    pub(super) fn zswap_load(&mut self, cx: &mut Cx, slot: u32, frame: u32) -> bool {
        let Some(zswap) = self.zswap.as_mut().filter(|zswap| zswap.has(slot)) else { return false };
        cx.spend(self.costs.decompress);
        self.events[vmstat::zswpin] += 1;
        if self.generation.zswap.exclusive_loads {
            self.zswap_invalidate(cx, slot);
            self.frames[frame as usize].flags |= flag::DIRTY;
        } else if !self.generation.zswap.shrink.is_by_allocator() {
            zswap.lru_add(slot);
        }
        self.end_read(frame);
        true
    }

    /// Drops what the pool has of a slot (`zswap_invalidate`).
    fn zswap_invalidate(&mut self, cx: &mut Cx, slot: u32) {
        if self.zswap.as_mut().is_some_and(|zswap| zswap.lru_del(slot)) {
            self.zpool_free_slot(cx, slot);
        }
    }

    /// Frees what is kept of a slot that is given back (`zram_slot_free_notify`, `zswap_invalidate`).
    pub(super) fn swap_slot_free_notify(&mut self, cx: &mut Cx, slot: u32) {
        if let Some(zswap) = &mut self.zswap {
            zswap.lru_del(slot);
            zswap.set_on_device(slot, false);
        }
        self.zpool_free_slot(cx, slot);
    }

    /// Whether there is zswap, and a worker makes room in it.
    pub(crate) fn has_zswap_worker(&self) -> bool {
        self.zswap.is_some() && self.generation.zswap.shrink != ZswapShrink::InStore
    }

    fn zswap_begin(&self) -> Run {
        Run { failures: 0, written: 0, pages: self.zpool.as_ref().map_or(0, |pool| pool.pages()) }
    }

    /// Frees a page of the pool on the time of a task that reclaims (`zswap_shrink`, through 5.7). Returns
    /// whether it did.
    fn zswap_shrink(&mut self, cx: &mut Cx) -> bool {
        let mut run = self.zswap_begin();
        // The pages are the kernel's, not the caller's.
        let mine = cx.pages;
        while let Next::Writeback(slot) = self.zswap_next(&mut run) {
            let ac = AllocContext {
                preferred: self.node_of_cpu(cx.cpu),
                allowed: u64::MAX,
                write_cache: false,
                interleaved: false,
                kind: MigrateType::Movable,
            };
            match self.alloc_page_memalloc(cx, &ac) {
                Some(frame) => self.zswap_writeback_entry(cx, &mut run, slot, frame),
                None => self.zswap_skip(&mut run, slot),
            }
        }
        cx.pages = mine;
        self.zswap_end(&run)
    }

    /// Ends a run. Returns whether the pool became smaller.
    fn zswap_end(&mut self, run: &Run) -> bool {
        let shrunk = self.zpool.as_ref().is_some_and(|pool| pool.pages() < run.pages);
        if let Some(zswap) = self.zswap.as_mut()
            && self.generation.zswap.shrink.is_by_allocator()
            && !shrunk
        {
            zswap.reject_reclaim_fail += 1;
        }
        shrunk
    }

    /// The entry that a run of the shrinker is to write back next. The answer stays the same until that is
    /// done, or others take the entry away.
    fn zswap_next(&mut self, run: &mut Run) -> Next {
        let accepts = self.zswap_can_accept();
        let (Some(zswap), Some(pool)) = (&mut self.zswap, &self.zpool) else { return Next::Done };
        let shrink = self.generation.zswap.shrink;
        let done = match shrink {
            // The allocator frees one of its pages, which zsmalloc cannot.
            ZswapShrink::InStore | ZswapShrink::Worker => {
                zswap.kind == Kind::Zsmalloc || pool.pages() < run.pages || run.failures >= ZBUD_RETRIES
            }
            // Each round over the control groups counts as failed (`mem_cgroup_iter` returns none at its
            // end), and the model has one group.
            ZswapShrink::Entries => {
                run.failures + run.written >= MAX_RECLAIM_RETRIES || (run.written > 0 && accepts)
            }
            ZswapShrink::SecondChance => run.failures >= MAX_RECLAIM_RETRIES || (run.written > 0 && accepts),
        };
        let Some((_, &slot)) = zswap.lru.first_key_value().filter(|_| !done) else { return Next::Done };
        let referenced = std::mem::take(&mut zswap.entries[slot as usize].referenced);
        if shrink == ZswapShrink::SecondChance && referenced {
            run.failures += 1;
            zswap.lru_add(slot);
            return Next::Spared;
        }
        let owner = self.swap.owner_of(slot);
        if owner == NONE || self.entries[owner as usize] != entry::SWAP | slot {
            // The page is in the swap cache, and may be in use again.
            self.zswap_skip(run, slot);
            return Next::Spared;
        }
        Next::Writeback(slot)
    }

    /// Leaves an entry where it is, because it is in use or there is no page for it: it is young again.
    fn zswap_skip(&mut self, run: &mut Run, slot: u32) {
        run.failures += 1;
        let by_allocator = self.generation.zswap.shrink.is_by_allocator();
        let (Some(zswap), Some(pool)) = (&mut self.zswap, &self.zpool) else { return };
        if by_allocator && let Some(buddy) = pool.buddy_of(slot) {
            zswap.lru_add(buddy);
        }
        zswap.lru_add(slot);
        zswap.reject_reclaim_fail += u64::from(!by_allocator);
    }

    /// Writes the oldest entry back to the device, from this frame, in which the page stays in the swap cache
    /// until it is written (`zswap_writeback_entry`).
    fn zswap_writeback_entry(&mut self, cx: &mut Cx, run: &mut Run, slot: u32, frame: u32) {
        self.enter_swap_cache(cx, frame, slot, true);
        self.end_read(frame);
        cx.spend(self.costs.decompress);
        self.zswap_invalidate(cx, slot);
        self.swap_writeback(frame);
        run.written += 1;
        self.events[vmstat::zswpwb] += 1;
        if let Some(zswap) = &mut self.zswap {
            zswap.written_back_pages += 1;
        }
    }
}

#[cfg(test)]
mod tests;
