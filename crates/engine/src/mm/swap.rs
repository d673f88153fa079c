//! Swap: slots, swap cache, readahead (`mm/swapfile.c`, `mm/swap_state.c`).
//!
//! There are two simplifications: one area only, and no per-CPU cache of slots (a few hundred slots at most;
//! none from 6.15 on). `swap/slots.rs` says which slot a page gets.

use lotsfree_kernel_files::counters::vmstat;
use rustc_hash::FxHashMap;

use super::frame::{NONE, entry, flag};
use super::page_alloc::Alloc;
use super::policy::Arrival;
use super::slab::Gfp;
use super::vmstat::Stat;
use super::workingset::Change;
use super::{Config, Cx, Device, IoRequest, Mm, Stop, footprint};

mod slots;

use slots::Slots;

/// The swap area.
#[derive(Debug)]
pub(crate) struct Swap {
    pub(crate) total: u32,
    free: u32,
    /// The entry that each slot belongs to, or [`NONE`] if the slot is free.
    owner: Vec<u32>,
    /// Which of the free slots is next.
    slots: Slots,
    /// Shadows of swapped-out pages, by slot; only where refaults of anonymous pages are detected.
    pub(crate) shadow: Vec<u32>,
    /// Slots of the pages in the swap cache.
    cache: FxHashMap<u32, u32>,
    /// Whether seeks cost time: `machine.disk.rotational`, if swap is on the disk (`model.rs:config`); swap
    /// on a device of its own never turns.
    rotational: bool,
    /// State of readahead: hits since the last window, size of that window, and slot of the last fault.
    hits: u32,
    last_window: u32,
    last_slot: u32,
}

impl Swap {
    pub(crate) fn new(config: &Config) -> Self {
        let total = config.swap_pages.min(super::MOST_FRAMES - 2) as u32;
        let cursors = if config.swap_rotational { 1 } else { config.cpus.max(1) as usize };
        Swap {
            total,
            free: total,
            owner: vec![NONE; total as usize],
            slots: Slots::new(config.generation.swap_slots, total, cursors),
            shadow: if config.generation.anon_refault { vec![0; total as usize] } else { Vec::new() },
            cache: FxHashMap::default(),
            rotational: config.swap_rotational,
            hits: 0,
            last_window: 0,
            last_slot: 0,
        }
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        footprint::of(&self.owner)
            + footprint::of(&self.shadow)
            + self.slots.bytes()
            + self.cache.capacity() * size_of::<(u32, u32)>()
    }

    /// Free slots.
    pub(crate) fn free(&self) -> u64 {
        u64::from(self.free)
    }

    /// `vm_swap_full`: fewer than half of the slots are free.
    pub(crate) fn is_half_full(&self) -> bool {
        self.free * 2 < self.total
    }

    /// The slot of a page in the swap cache.
    pub(crate) fn slot_of(&self, frame: u32) -> Option<u32> {
        self.cache.get(&frame).copied()
    }

    /// Notes that a page is in another frame now.
    pub(super) fn moved(&mut self, from: u32, to: u32) {
        if let Some(slot) = self.cache.remove(&from) {
            self.cache.insert(to, slot);
        }
    }

    pub(crate) fn owner_of(&self, slot: u32) -> u32 {
        self.owner[slot as usize]
    }

    pub(crate) fn hit(&mut self) {
        self.hits += 1;
    }

    /// Takes a free slot.
    fn take(&mut self, cpu: usize, owner: u32) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let at = self.slots.take(cpu, &self.owner)?;
        self.owner[at as usize] = owner;
        self.free -= 1;
        Some(at)
    }

    /// Gives a slot back.
    fn release(&mut self, slot: u32) {
        debug_assert_ne!(self.owner[slot as usize], NONE);
        self.owner[slot as usize] = NONE;
        self.slots.release(slot);
        self.free += 1;
    }

    /// The size of the kernel's readahead window (`swapin_nr_pages`), up to `largest`.
    fn window(&mut self, slot: u32, largest: u32) -> u32 {
        if largest <= 1 {
            return 1;
        }
        let hits = std::mem::take(&mut self.hits);
        let wanted = if hits == 0 {
            if slot == self.last_slot.wrapping_add(1) || slot == self.last_slot.wrapping_sub(1) {
                2
            } else {
                1
            }
        } else {
            (hits + 2).next_power_of_two().max(4)
        };
        let window = wanted.min(largest).max(self.last_window / 2);
        self.last_window = window;
        window
    }

    /// For `check`: the count of free slots, the owner of each slot, and the cache.
    pub(crate) fn recount(&self) -> (u32, &[u32], &FxHashMap<u32, u32>) {
        (self.free, &self.owner, &self.cache)
    }

    /// Verifies what is remembered for choosing slots.
    ///
    /// # Errors
    /// Says what is not as it has to be.
    pub(crate) fn check_slots(&self) -> Result<(), String> {
        self.slots.check(&self.owner)
    }
}

impl Mm {
    /// Gives an anonymous page a slot and enters it into the swap cache (`add_to_swap`). One of shared
    /// memory, which is in no page table any more, leaves the page cache for it (`shmem_writepage`).
    pub(crate) fn add_to_swap(&mut self, cx: &mut Cx, frame: u32) -> bool {
        let owner = self.frames[frame as usize].slot;
        let Some(slot) = self.swap.take(cx.cpu, owner) else { return false };
        if self.objects.at(owner).shmem {
            self.stat_sub(frame, Stat::FilePages);
            self.stat_sub(frame, Stat::Shmem);
        }
        self.update_swap_node(cx, slot, Change::Added { shadow: false }, Gfp::High);
        self.swap.cache.insert(frame, slot);
        self.stat_add(frame, Stat::SwapCached);
        self.frames[frame as usize].flags |= flag::SWAPCACHE | flag::DIRTY;
        true
    }

    /// Removes a page from the swap cache and frees its slot (`delete_from_swap_cache`).
    pub(crate) fn delete_from_swap_cache(&mut self, cx: &mut Cx, frame: u32) {
        if let Some(slot) = self.swap.cache.remove(&frame) {
            self.stat_sub(frame, Stat::SwapCached);
            self.update_swap_node(cx, slot, Change::Removed { shadow: false }, Gfp::Kernel);
            self.swap_slot_free_notify(cx, slot);
            self.swap.release(slot);
        }
        self.frames[frame as usize].flags &= !(flag::SWAPCACHE | flag::SWAP_RA);
    }

    /// Removes a page from memory; its contents stay on swap (`__remove_mapping` of a swap cache page).
    pub(crate) fn leave_to_swap(&mut self, cx: &mut Cx, frame: u32, shadow: u32) {
        if let Some(slot) = self.swap.cache.remove(&frame) {
            self.stat_sub(frame, Stat::SwapCached);
            let owner = self.frames[frame as usize].slot;
            self.objects.at_mut(owner).held -= 1;
            self.entries[owner as usize] = entry::SWAP | slot;
            if let Some(place) = self.swap.shadow.get_mut(slot as usize) {
                *place = shadow;
            }
            let shadow = self.is_swap_shadow(slot);
            self.update_swap_node(cx, slot, Change::Removed { shadow }, Gfp::Kernel);
        }
        self.frames[frame as usize].flags &= !(flag::SWAPCACHE | flag::SWAP_RA);
    }

    /// Gives back the slot of a page that is not in memory (`swap_free`).
    pub(crate) fn free_swap(&mut self, cx: &mut Cx, slot: u32) {
        self.forget_swap_shadow(cx, slot);
        self.swap_slot_free_notify(cx, slot);
        self.swap.release(slot);
    }

    /// Ends an allocation for a page that has come into memory since it began: the reclaim of that very
    /// allocation may write it back from zswap.
    pub(super) fn drop_alloc(&mut self, cx: &mut Cx, alloc: &mut Alloc) -> Result<(), Stop> {
        if self.zswap.is_some() && alloc.is_under_way() {
            let ac = alloc.context(self, cx, None, false);
            let frame = alloc.poll(self, cx, &ac)?;
            self.free_page(cx.cpu, frame);
        }
        Ok(())
    }

    /// Starts to read the slot and its window. Returns the number of the request that reads the slot itself;
    /// `None` if its page has come into memory while room was made for it (`__read_swap_cache_async`).
    ///
    /// On a device that does not turn, and only there, the window is of neighbours in the address space. The
    /// kernel does so from 4.14 on (ec560175c0b6); the model has no switch of its own for it, so that
    /// linux-4.4 does it too.
    pub(crate) fn swapin_readahead(
        &mut self,
        cx: &mut Cx,
        alloc: &mut Alloc,
        number: u32,
        own: u32,
        swap: u32,
    ) -> Result<Option<u64>, Stop> {
        let ac = alloc.context(self, cx, None, false);
        let frame = alloc.poll(self, cx, &ac)?;
        if self.entries[own as usize] != entry::SWAP | swap {
            self.free_page(cx.cpu, frame);
            return Ok(None);
        }
        let mut batch = vec![(swap, frame)];
        for slot in self.swapin_window(number, own, swap) {
            if slot != swap {
                let Some(frame) = self.alloc_page_light(cx, &ac) else { break };
                batch.push((slot, frame));
                self.events[vmstat::swap_ra] += 1;
            }
        }
        batch.sort_unstable();
        for &(slot, frame) in &batch {
            self.enter_swap_cache(cx, frame, slot, slot == swap);
            if let Some(evictions) = &mut self.evictions {
                evictions.refaulted(cx.process, self.swap.owner_of(slot));
            }
        }
        let read = batch.len();
        if self.zswap.is_some() {
            // What zswap has is decompressed at once, and asks no device.
            batch.retain(|&(slot, frame)| !self.zswap_load(cx, slot, frame));
        }
        let mut target = 0;
        for run in batch.chunk_by(|a, b| a.0 + 1 == b.0) {
            let frames: Vec<u32> = run.iter().map(|&(_, frame)| frame).collect();
            let start = u64::from(run[0].0);
            let request = IoRequest {
                device: Device::Swap,
                write: false,
                sync: true,
                start,
                pages: run.len() as u32,
                queued: super::Queued::Apart,
            };
            let id = self.submit(cx, request, frames);
            for &(slot, _) in run {
                if slot == swap {
                    target = id;
                }
            }
        }
        self.events[vmstat::pswpin] += batch.len() as u64;
        cx.pages.refaults += read as u32;
        Ok(Some(target))
    }

    /// The slots on swap that are read with one: neighbours in the address space, or on a device that turns.
    fn swapin_window(&mut self, number: u32, own: u32, swap: u32) -> Vec<u32> {
        let largest = 1u32 << self.tuning.page_cluster.min(10);
        let adaptive = self.generation.swap_readahead == crate::generation::SwapReadahead::Adaptive;
        let window = if adaptive { self.swap.window(swap, largest) } else { largest };
        self.swap.last_slot = swap;
        let mut wanted: Vec<u32> = Vec::with_capacity(window as usize);
        if adaptive && !self.swap.rotational && !self.objects[number].shmem {
            // The window consists of neighbours in the address space, within one page table.
            let object = &self.objects[number];
            let (base, page) = (object.base, own - object.base);
            let table = self.ptes() - 1;
            let first = page.saturating_sub(window / 2).max(page & !table);
            let last = (first + window).min(object.pages).min((page | table) + 1);
            for near in first..last {
                if let entry::Is::Swap(slot) = entry::is(self.entries[(base + near) as usize]) {
                    wanted.push(slot);
                }
            }
        } else {
            let first = swap & !(window - 1);
            wanted.extend((first..first + window).filter(|&slot| {
                slot < self.swap.total && {
                    let owner = self.swap.owner_of(slot);
                    owner != NONE && self.entries[owner as usize] == (entry::SWAP | slot)
                }
            }));
        }
        wanted
    }

    /// Enters a page that is being read from swap into the swap cache.
    pub(super) fn enter_swap_cache(&mut self, cx: &mut Cx, frame: u32, slot: u32, wanted: bool) {
        let owner = self.swap.owner_of(slot);
        self.swap.cache.insert(frame, slot);
        self.stat_add(frame, Stat::SwapCached);
        let readahead = if wanted { 0 } else { flag::SWAP_RA };
        self.frames[frame as usize].slot = owner;
        self.frames[frame as usize].flags |= flag::ANON | flag::SWAPCACHE | flag::LOCKED | readahead;
        self.entries[owner as usize] = entry::RESIDENT | frame;
        self.objects.at_mut(owner).held += 1;
        let shadow = self.swap.shadow.get_mut(slot as usize).map_or(0, std::mem::take);
        self.update_swap_node(cx, slot, Change::Added { shadow: shadow != 0 }, Gfp::Kernel);
        let refault = shadow != 0 && self.workingset_refault(frame, shadow);
        self.generation.policy.insert(self, frame, Arrival::SwappedIn { refault });
        self.batch_lru_add(cx, frame);
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_workload::{Policy, RegionId};

    use super::super::workingset::Tree;
    use super::super::{Fault, Kswapd, Wait};
    use super::*;
    use crate::Generation;

    /// A machine of 32 MiB whose process has written twice as much.
    fn swapped(kernel: &str) -> Mm {
        let generation = Generation::named(kernel).unwrap();
        let mut mm = Mm::new(&Config { swap_pages: 20_000, ..Config::new(generation, vec![1 << 13]) });
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let (reclaimer, mut kswapd) = (mm.create_task(), Kswapd::new(0));
        let mut cx = Cx::new(task, 0, process, 0);
        mm.map_anon(&mut cx, RegionId(0), 1 << 14).unwrap();
        for page in 0..1 << 14 {
            let mut fault = Fault::new(RegionId(0), page, true);
            while let Err(stop) = fault.poll(&mut mm, &mut cx) {
                let Stop::Wait(Wait { .. }) = stop else { panic!("{kernel}: {stop:?}") };
                kswapd.poll(&mut mm, &mut Cx::new(reclaimer, 0, usize::MAX, cx.now()));
                (cx.start, cx.spent) = (cx.now() + 1_000_000, 0);
                let sent: Vec<u64> = mm.take_io().map(|io| io.id).collect();
                sent.into_iter().for_each(|id| mm.complete(id, cx.start));
            }
        }
        assert_eq!(mm.check(), Ok(()));
        mm
    }

    #[test]
    fn shadows_of_swap_are_in_nodes_or_in_tables_that_take_no_slab() {
        for (kernel, has_nodes) in [("linux-6.12", true), ("linux-6.18", false), ("linux-6.18+mglru", false)]
        {
            let mm = swapped(kernel);
            let nodes = mm.tree.nodes[Tree::Swap as usize].iter();
            let held = nodes.filter(|node| node.holds.pages() > 0 || node.holds.shadows() > 0).count();
            assert_eq!(held > 0, has_nodes, "{kernel}: {held} nodes");
            assert!((0..mm.swap.total).any(|slot| mm.is_swap_shadow(slot)), "{kernel} keeps shadows");
        }
    }

    #[test]
    fn what_is_swapped_out_in_order_has_slots_in_order() {
        for kernel in ["linux-6.12", "linux-6.18"] {
            let mm = swapped(kernel);
            let slots = mm.entries[..4000].iter().filter_map(|&e| match entry::is(e) {
                entry::Is::Swap(slot) => Some(slot),
                _ => None,
            });
            let slots: Vec<u32> = slots.collect();
            let in_order = slots.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
            assert!(slots.len() > 3000, "{kernel}: {} of the first pages are on swap", slots.len());
            assert!(in_order * 10 > slots.len() * 9, "{kernel}: {in_order} of {}", slots.len());
        }
    }
}
