//! Consistency check of the state: every count is compared with a recount.

use std::collections::BTreeMap;

use super::Mm;
use super::frame::{Frame, NONE, entry, flag, list};
use super::free_area::FreeArea;
use super::mmzone::Zone;
use super::object::RUN;
use super::slab::{is_slab, stat_of};
use super::vmstat::{STATS, Stat};
use super::workingset::Tree;

/// Returns `Err` with a message unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}

/// Where a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Nowhere,
    Free,
    Pcp,
    Lru,
    Kernel,
}

/// Recounted numbers of one zone.
#[derive(Clone, Copy, Default)]
struct Recount {
    stat: [u64; STATS],
    lru: [u64; 6],
    generations: [u64; 8],
}

impl Mm {
    /// Verifies the whole state in O(frames + entries). The state must be consistent between any two calls.
    ///
    /// # Errors
    /// Says what does not agree, with numbers: a frame on no list or on two, a list whose links or length are
    /// wrong, an entry and a frame that do not point at each other, a swap slot without its page, a gauge or
    /// a file's count of dirty pages that differs from a recount, a mapping that names a page that is not
    /// there, a slab, a node or a zspage that counts other objects than it has, a page on swap that nobody
    /// has.
    pub fn check(&self) -> Result<(), String> {
        let mut places = vec![Place::Nowhere; self.frames.len()];
        for zone in 0..self.zones.len() {
            self.check_free(zone, &mut places)?;
        }
        let mut recounts = vec![Recount::default(); self.zones.len()];
        for lruvec in 0..self.lruvecs.len() {
            self.check_lists(lruvec, &mut places, &mut recounts)?;
            self.generation.policy.check(self, lruvec)?;
            self.lruvecs[lruvec].lru_lock.check()?;
            self.lruvecs[lruvec].reclaim_locked.check()?;
        }
        self.check_frames(&mut places, &mut recounts)?;
        for (index, (zone, recount)) in self.zones.iter().zip(&recounts).enumerate() {
            check_zone(index, zone, recount)?;
        }
        self.check_flights()?;
        self.check_entries()?;
        self.check_swap()?;
        self.check_objects()?;
        self.check_regions()?;
        self.check_zpool()?;
        self.check_ext4()?;
        self.check_hugetlb()?;
        self.check_pgtables()?;
        self.check_committed()?;
        self.check_huge_pages()?;
        self.check_slab()
    }

    /// Checks what zram or zswap holds: its frames are those that are marked as such, a slot has no object if
    /// it is free, and what is on swap is somewhere: in an object or, with zswap, on the device.
    fn check_zpool(&self) -> Result<(), String> {
        let marked = |(_, f): &(u32, &Frame)| f.has(flag::KERNEL) && f.has(flag::ZSPAGE | flag::ZBUD);
        let marked: Vec<u32> = (0u32..).zip(self.frames.iter()).filter(marked).map(|(at, _)| at).collect();
        let Some(pool) = &self.zpool else {
            ensure!(marked.is_empty(), "{} frames hold compressed pages, of nobody", marked.len());
            return Ok(());
        };
        let mut frames = pool.check()?;
        frames.sort_unstable();
        ensure!(frames == marked, "the pool has {} frames, and {} are marked", frames.len(), marked.len());
        if let Some(zswap) = &self.zswap {
            zswap.check(pool)?;
        }
        let keeps = |slot| self.zswap.as_ref().map_or(pool.has(slot), |zswap| zswap.keeps(slot));
        for slot in 0..self.swap.total {
            let owner = self.swap.owner_of(slot);
            if owner == NONE {
                ensure!(!keeps(slot), "swap slot {slot} is free and has a page");
                continue;
            }
            let alone = self.entries[owner as usize] == entry::SWAP | slot;
            ensure!(keeps(slot) || !alone, "swap slot {slot} has the only copy of a page, and has lost it");
        }
        for (&frame, &slot) in self.swap.recount().2 {
            let f = &self.frames[frame as usize];
            let clean = self.zswap.is_some() && !f.has(flag::DIRTY);
            ensure!(keeps(slot) || !clean, "frame {frame} is clean, and swap slot {slot} does not have it");
        }
        Ok(())
    }

    /// Checks the objects of the kernel: each is in a slab that counts it, and each node has the pages and
    /// shadows that it counts.
    fn check_slab(&self) -> Result<(), String> {
        let mut used: BTreeMap<u32, u32> = BTreeMap::new();
        let buffers = (0u32..).zip(&self.slab.buffers);
        for (buffer, &slab) in buffers.filter(|(_, slab)| **slab != NONE) {
            let frame = buffer / self.blocks();
            let f = &self.frames[frame as usize];
            ensure!(f.has(flag::USED) && !f.has(flag::ANON | flag::KERNEL), "frame {frame} has a buffer");
            *used.entry(slab).or_default() += 1;
        }
        let mut alone = 0;
        let has_nodes = |tree: &Tree| *tree == Tree::Files || !self.generation.swap_table;
        for tree in Tree::ALL.into_iter().filter(has_nodes) {
            for (at, node) in (0u32..).zip(&self.tree.nodes[tree as usize]) {
                let (pages, shadows) = self.held_by_node(tree, at);
                ensure!(
                    (node.holds.pages(), node.holds.shadows()) == (pages, shadows),
                    "node {at} of {tree:?} counts {} pages and {} shadows and has {pages} and {shadows}",
                    node.holds.pages(),
                    node.holds.shadows()
                );
                let counts = tree == Tree::Files || self.generation.swap_shadow_nodes;
                alone += u64::from(counts && pages == 0 && shadows > 0);
                if node.slab != NONE {
                    ensure!(pages > 0 || shadows > 0, "node {at} is empty and in slab {}", node.slab);
                    *used.entry(node.slab).or_default() += 1;
                }
            }
        }
        ensure!(
            alone == self.tree.count,
            "{alone} nodes have shadows alone, {} are counted",
            self.tree.count
        );
        for bio in self.flights.bios() {
            for slab in bio.slabs() {
                *used.entry(slab).or_default() += 1;
            }
        }
        for (&slab, &objects) in &used {
            let f = self.frames.get(slab as usize).filter(|f| is_slab(f));
            ensure!(
                f.is_some_and(|f| f.slot == objects),
                "slab {slab} has {objects} objects and counts {:?}",
                f.map(|f| f.slot)
            );
        }
        Ok(())
    }

    /// The pages and the shadows that belong to a node.
    fn held_by_node(&self, tree: Tree, at: u32) -> (u8, u8) {
        let slots = at * RUN..(at + 1) * RUN;
        let of_file = |slot: u32| {
            let e = self.entries[slot as usize];
            (entry::frame(e).is_some(), self.is_shadow(e))
        };
        let of_swap = |slot: u32| {
            let in_use = slot < self.swap.total && self.swap.owner_of(slot) != NONE;
            let e = if in_use { self.entries[self.swap.owner_of(slot) as usize] } else { entry::EMPTY };
            (entry::frame(e).is_some(), in_use && entry::frame(e).is_none() && self.is_swap_shadow(slot))
        };
        let held: Vec<(bool, bool)> = match tree {
            Tree::Swap => slots.map(of_swap).collect(),
            Tree::Files => {
                let owner = self.objects.get(self.objects.owner(slots.start));
                let lives = owner.is_some_and(|object| object.live && object.file);
                if lives { slots.map(of_file).collect() } else { Vec::new() }
            }
        };
        let count = |of: fn(&(bool, bool)) -> bool| held.iter().filter(|held| of(held)).count() as u8;
        (count(|held| held.0), count(|held| held.1))
    }

    fn settle(&self, places: &mut [Place], frame: u32, zone: usize, place: Place) -> Result<(), String> {
        let Some(at) = places.get_mut(frame as usize) else {
            return Err(format!("frame {frame} of {} is {place:?}", self.frames.len()));
        };
        ensure!(*at == Place::Nowhere, "frame {frame} is {:?} and {place:?}", *at);
        *at = place;
        let f = &self.frames[frame as usize];
        let owner = self.frames.zone_of(frame);
        ensure!(owner == zone, "frame {frame} of zone {owner} is {place:?} in zone {zone}");
        ensure!(f.zone() == zone, "frame {frame} is {place:?} in zone {zone} but names {}", f.zone());
        if matches!(place, Place::Free | Place::Pcp) {
            ensure!(
                !f.has(flag::USED) && f.list() == list::NONE,
                "frame {frame} is {place:?} and has flags {:#x}",
                f.flags
            );
        }
        Ok(())
    }

    /// Checks the free lists and the CPUs' lists.
    fn check_free(&self, index: usize, places: &mut [Place]) -> Result<(), String> {
        let zone = &self.zones[index];
        let mut free = zone.unnumbered;
        for (first, order, kind) in zone.area.blocks(&self.frames) {
            let f = self.frames.get(first as usize);
            ensure!(
                first.is_multiple_of(1 << order) && f.is_some_and(|f| FreeArea::is_block(f, order, kind)),
                "frame {first} is on the list of free blocks of order {order} and type {kind:?}"
            );
            for frame in first..first + (1 << order) {
                self.settle(places, frame, index, Place::Free)?;
            }
            free += 1 << order;
        }
        ensure!(free == zone.free, "zone {index} counts {} free frames and has {free}", zone.free);
        for (cpu, pcp) in zone.pcp.iter().enumerate() {
            for &frame in pcp.lists.iter().flatten() {
                self.settle(places, frame, index, Place::Pcp)?;
            }
            let count = pcp.lists.iter().map(Vec::len).sum::<usize>() as u64;
            ensure!(
                pcp.count == count,
                "CPU {cpu} counts {} pages of zone {index} and has {count}",
                pcp.count
            );
        }
        ensure!(zone.boost <= zone.max_boost, "zone {index} is boosted by {}", zone.boost);
        Ok(())
    }

    fn check_lists(
        &self,
        index: usize,
        places: &mut [Place],
        recounts: &mut [Recount],
    ) -> Result<(), String> {
        for (place, lru) in self.lruvecs[index].lists.iter().enumerate() {
            let generation = place.checked_sub(list::FIRST_GENERATION);
            let which = generation.map_or(place, |at| list::FIRST_GENERATION + at % list::GENERATIONS);
            let mut len = 0;
            for at in lru.iter() {
                let Some(f) = self.frames.get(at as usize) else {
                    return Err(format!("list {which} of lruvec {index} names frame {at}"));
                };
                let zone = f.zone();
                self.settle(places, at, zone, Place::Lru)?;
                ensure!(lru.is_at(at, f), "frame {at} is not at place {} of list {which}", f.at);
                ensure!(f.list() == which, "frame {at} is on list {which} and names {}", f.list());
                ensure!(
                    self.lruvecs[index].place(which, zone) == place,
                    "frame {at} of zone {zone} is on list {which} of another zone"
                );
                ensure!(f.has(flag::USED), "frame {at} is on list {which} and not in use");
                ensure!(
                    self.lruvec_of(zone) == index,
                    "frame {at} of zone {zone} is on list {which} of lruvec {index}"
                );
                let recount = &mut recounts[zone];
                if which >= list::FIRST_GENERATION {
                    let generation = f.counts_in();
                    let promoted = f.flags & flag::PROMOTED != 0;
                    ensure!(
                        promoted == (generation != which) && generation < list::COUNT,
                        "frame {at} on list {which} has flags {:#x}",
                        f.flags
                    );
                    recount.generations[generation - list::FIRST_GENERATION] += 1;
                    recount.lru[list::inactive(f.has(flag::ANON))] += 1;
                } else {
                    recount.lru[which] += 1;
                }
                let wants_anon = match which {
                    list::NONE | list::UNEVICTABLE => f.has(flag::ANON),
                    list::INACTIVE_ANON | list::ACTIVE_ANON => true,
                    list::INACTIVE_FILE | list::ACTIVE_FILE => false,
                    _ => (which - list::FIRST_GENERATION).is_multiple_of(2),
                };
                ensure!(
                    f.has(flag::ANON) == wants_anon,
                    "frame {at} on list {which} has flags {:#x}",
                    f.flags
                );
                len += 1;
            }
            ensure!(lru.len == len, "list {which} of lruvec {index} counts {} frames and has {len}", lru.len);
        }
        Ok(())
    }

    /// Checks every frame in use, and the page that it holds.
    fn check_frames(&self, places: &mut [Place], recounts: &mut [Recount]) -> Result<(), String> {
        for (frame, f) in (0u32..).zip(self.frames.iter()) {
            let zone = f.zone();
            // The last block of a zone may be longer than the zone.
            let complete = self.zones[self.frames.zone_of(frame)].unnumbered == 0;
            if places[frame as usize] == Place::Nowhere && f.flags == 0 && complete {
                continue;
            }
            if places[frame as usize] == Place::Nowhere {
                ensure!(
                    f.has(flag::KERNEL) && f.has(flag::USED) && f.list() == list::NONE,
                    "frame {frame} with flags {:#x} is on no list and not the kernel's",
                    f.flags
                );
                self.settle(places, frame, zone, Place::Kernel)?;
                if let Some(stat) = kernel_stat(f) {
                    recounts[zone].stat[stat as usize] += 1;
                }
            }
            if places[frame as usize] != Place::Lru {
                continue;
            }
            let Some(&e) = self.entries.get(f.slot as usize) else {
                return Err(format!("frame {frame} names slot {} of {}", f.slot, self.entries.len()));
            };
            ensure!(
                entry::frame(e) == Some(frame),
                "frame {frame} names slot {}, which is {:?}",
                f.slot,
                entry::is(e)
            );
            let number = self.objects.owner(f.slot);
            let Some(object) = self.objects.get(number).filter(|object| object.live) else {
                return Err(format!("frame {frame} belongs to object {number}, which is gone"));
            };
            let page = f.slot - object.base;
            ensure!(
                page < object.pages,
                "frame {frame} is page {page} of {} of object {number}",
                object.pages
            );
            let anon = f.has(flag::ANON);
            ensure!(
                object.file != anon,
                "frame {frame} with flags {:#x} belongs to object {number}, file {}",
                f.flags,
                object.file
            );
            let cached = self.swap.slot_of(frame);
            ensure!(
                cached.is_some() == f.has(flag::SWAPCACHE) && (anon || cached.is_none()),
                "frame {frame} with flags {:#x} has swap slot {cached:?}",
                f.flags
            );
            let written_through_entry = e & entry::MAPPED != 0 && e & entry::DIRTY != 0;
            ensure!(
                !written_through_entry || f.has(flag::DIRTY),
                "frame {frame} may be written without a fault, and is clean"
            );
            let mut count = |stat: Stat, holds: bool| {
                recounts[zone].stat[stat as usize] += u64::from(holds);
            };
            let mapped = self.is_mapped(frame);
            let cached = f.has(flag::SWAPCACHE);
            count(Stat::AnonPages, anon && !object.shmem && mapped);
            count(Stat::Mapped, (!anon || object.shmem) && mapped);
            count(Stat::FilePages, !anon || (object.shmem && !cached));
            count(Stat::Shmem, object.shmem && !cached);
            ensure!(
                !object.shmem || !mapped || !cached,
                "frame {frame} of shared memory is mapped and in the swap cache"
            );
            count(Stat::Dirty, !anon && f.has(flag::DIRTY));
            count(Stat::Writeback, f.has(flag::WRITEBACK));
            count(Stat::SwapCached, cached);
            count(Stat::Mlock, f.has(flag::MLOCKED));
        }
        Ok(())
    }

    /// Checks that the pages on their way to or from a device are those that are locked or under writeback.
    fn check_flights(&self) -> Result<(), String> {
        let (mut reading, mut writing) = (0u64, 0u64);
        for flight in self.flights.queue.iter().flatten() {
            let (bit, count) = match flight.io.write {
                true => (flag::WRITEBACK, &mut writing),
                false => (flag::LOCKED, &mut reading),
            };
            for &frame in &flight.frames {
                *count += 1;
                let f = &self.frames[frame as usize];
                ensure!(
                    f.has(bit) && f.has(flag::USED),
                    "frame {frame} with flags {:#x} is in request {:?}",
                    f.flags,
                    flight.io
                );
                let request = self.request_of(frame);
                ensure!(
                    flight.io.write || request == Some(flight.io.id),
                    "frame {frame} is said to be in {request:?}, not {:?}",
                    flight.io
                );
            }
        }
        let has = |bit: u32| self.frames.iter().filter(|f| f.has(flag::USED) && f.has(bit)).count() as u64;
        let (locked, writeback) = (has(flag::LOCKED), has(flag::WRITEBACK));
        ensure!(locked == reading, "{locked} frames are locked and {reading} are being read");
        ensure!(
            writeback == writing,
            "{writeback} frames are under writeback and {writing} are being written"
        );
        Ok(())
    }

    /// Checks that every entry points at something that points back.
    fn check_entries(&self) -> Result<(), String> {
        let (_, owners, _) = self.swap.recount();
        for (slot, &e) in (0u32..).zip(self.entries.iter()) {
            let number = self.objects.owner(slot);
            let object = if number == NONE { None } else { self.objects.get(number) };
            let inside = object.filter(|object| object.live && slot - object.base < object.pages);
            let Some(object) = inside else {
                ensure!(e == entry::EMPTY, "slot {slot} belongs to nobody and is {:?}", entry::is(e));
                continue;
            };
            match entry::is(e) {
                entry::Is::Mapped(frame) | entry::Is::Resident(frame) => {
                    let f = self.frames.get(frame as usize);
                    let listed =
                        |f: &Frame| f.list() != list::NONE || (object.hugetlb && f.has(flag::HUGETLB));
                    ensure!(
                        f.is_some_and(|f| f.slot == slot && f.has(flag::USED) && listed(f)),
                        "slot {slot} has frame {frame}, which is {f:?}"
                    );
                    ensure!(
                        e & entry::MAPPED == 0 || !object.mappings.is_empty(),
                        "slot {slot} is mapped and nobody maps object {number}"
                    );
                }
                entry::Is::Swap(swap) => {
                    let owner = owners.get(swap as usize).copied();
                    ensure!(
                        owner == Some(slot),
                        "slot {slot} is on swap at {swap}, which belongs to {owner:?}"
                    );
                    ensure!(!object.file, "slot {slot} of file {number} is on swap at {swap}");
                }
                entry::Is::Shadow(_) | entry::Is::Empty => {}
            }
        }
        Ok(())
    }

    fn check_swap(&self) -> Result<(), String> {
        let (free, owners, cache) = self.swap.recount();
        let mut found = 0;
        for (slot, &owner) in (0u32..).zip(owners) {
            if owner == NONE {
                found += 1;
                continue;
            }
            let Some(&e) = self.entries.get(owner as usize) else {
                return Err(format!("swap slot {slot} belongs to entry {owner} of {}", self.entries.len()));
            };
            let held = e == entry::SWAP | slot
                || entry::frame(e).is_some_and(|frame| cache.get(&frame) == Some(&slot));
            ensure!(held, "swap slot {slot} belongs to entry {owner}, which is {:?}", entry::is(e));
        }
        ensure!(found == free, "swap counts {free} free slots and has {found}");
        self.swap.check_slots()?;
        for (&frame, &slot) in cache {
            let f = &self.frames[frame as usize];
            let owner = owners.get(slot as usize);
            ensure!(
                f.has(flag::SWAPCACHE) && owner == Some(&f.slot),
                "the swap cache has frame {frame} of slot {} for {slot}, which belongs to {owner:?}",
                f.slot
            );
        }
        Ok(())
    }

    /// Checks the counts that files keep of their own pages, and the mappings that have no entries.
    fn check_objects(&self) -> Result<(), String> {
        let mut all_under_writeback = 0;
        for (number, object) in self.objects.iter().filter(|(_, object)| object.live) {
            let last = object.base + object.pages.max(1) - 1;
            let owners = (self.objects.owner(object.base), self.objects.owner(last));
            ensure!(owners == (number, number), "the slots of object {number} belong to {owners:?}");
            let mut listed = vec![false; object.pages as usize];
            for &(start, len) in &object.dirty_runs {
                let run = listed.get_mut(start as usize..(start + len) as usize);
                let Some(run) = run else {
                    return Err(format!(
                        "object {number} has {len} dirty pages from {start} of {}",
                        object.pages
                    ));
                };
                run.fill(true);
            }
            let (mut dirty, mut under_writeback, mut held) = (0, 0, 0);
            for page in 0..object.pages {
                let Some(frame) = entry::frame(self.entries[(object.base + page) as usize]) else { continue };
                let f = &self.frames[frame as usize];
                if object.file && f.has(flag::DIRTY) {
                    dirty += 1;
                    ensure!(listed[page as usize], "page {page} of file {number} is dirty and not listed");
                }
                under_writeback += u64::from(object.file && f.has(flag::WRITEBACK));
                held += u32::from(!object.file && !object.hugetlb);
            }
            ensure!(
                held == object.held,
                "object {number} counts {} pages of anonymous memory and has {held}",
                object.held
            );
            ensure!(
                dirty == object.dirty,
                "file {number} counts {} dirty pages and has {dirty}",
                object.dirty
            );
            ensure!(
                under_writeback == object.under_writeback,
                "file {number} counts {} pages under writeback and has {under_writeback}",
                object.under_writeback
            );
            all_under_writeback += under_writeback;
            object.check_others().map_err(|what| format!("object {number}: {what}"))?;
            for (which, mapping) in object.mappings.iter().enumerate() {
                ensure!(
                    which > 0 || mapping.bits.is_empty(),
                    "the first mapping of object {number} has bits of its own"
                );
                for page in mapping.bits.iter() {
                    let resident = page < object.pages
                        && entry::frame(self.entries[(object.base + page) as usize]).is_some();
                    ensure!(
                        resident,
                        "mapping {which} of object {number} has page {page}, which is not in memory"
                    );
                }
            }
        }
        ensure!(
            all_under_writeback == self.writeback.under_writeback(),
            "{} pages of files are under writeback, {} are counted",
            all_under_writeback,
            self.writeback.under_writeback()
        );
        Ok(())
    }

    /// Checks that regions and mappings name each other.
    fn check_regions(&self) -> Result<(), String> {
        let mut named = 0;
        for (process, state) in self.processes.iter().enumerate() {
            for (id, vma) in (0u32..).zip(&state.vmas) {
                let Some(vma) = vma else { continue };
                for number in [Some(vma.object), vma.copies].into_iter().flatten() {
                    named += 1;
                    let object = self.objects.get(number).filter(|object| object.live);
                    let which = if number == vma.object { vma.which as usize } else { 0 };
                    let mapping = object.and_then(|object| object.mappings.get(which));
                    let mapping = mapping.filter(|of| (of.process, of.region) == (process, id));
                    ensure!(
                        mapping.is_some(),
                        "region {id} of process {process} maps object {number}, which does not know"
                    );
                    let first = number == vma.object
                        && which == 0
                        && vma.copies.is_none()
                        && !self.generation.policy.sees_every_access();
                    let direct = object.is_some_and(|object| vma.base == object.base);
                    ensure!(
                        number != vma.object || first == direct,
                        "region {id} of process {process} is mapping {which} of object {number}; its base \
                         is {}",
                        vma.base
                    );
                }
            }
        }
        let mappings: usize = self.objects.iter().map(|(_, object)| object.mappings.len()).sum();
        ensure!(mappings == named, "{mappings} mappings belong to {named} regions");
        Ok(())
    }
}

/// What counts a page of the kernel's; nothing counts zbud's and huge pages, nor the upper page tables on
/// some kernels.
fn kernel_stat(f: &Frame) -> Option<Stat> {
    match f {
        f if is_slab(f) => Some(stat_of(f)),
        f if f.has(flag::ZSPAGE) => Some(Stat::Zspages),
        f if f.has(flag::ZBUD) => None,
        f if f.has(flag::HUGETLB) => None,
        f if f.has(flag::PGTABLE) => (!f.has(flag::UNCOUNTED)).then_some(Stat::PageTables),
        _ => Some(Stat::SlabUnreclaimable),
    }
}

fn check_zone(index: usize, zone: &Zone, recount: &Recount) -> Result<(), String> {
    let gauges = [
        Stat::AnonPages,
        Stat::Mapped,
        Stat::FilePages,
        Stat::Dirty,
        Stat::Writeback,
        Stat::SlabUnreclaimable,
        Stat::SwapCached,
        Stat::Mlock,
        Stat::Zspages,
        Stat::PageTables,
        Stat::Shmem,
    ];
    for stat in gauges {
        let (counted, found) = (zone.stat[stat as usize], recount.stat[stat as usize]);
        ensure!(counted == found, "zone {index} counts {stat:?} {counted} and has {found}");
    }
    ensure!(
        zone.lru == recount.lru && zone.generations == recount.generations,
        "zone {index} counts lists {:?} and generations {:?}, and has {:?} and {:?}",
        zone.lru,
        zone.generations,
        recount.lru,
        recount.generations
    );
    Ok(())
}
