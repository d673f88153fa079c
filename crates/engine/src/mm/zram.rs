//! zram: swap that is compressed and kept in memory (`drivers/block/zram/zram_drv.c`), in pages that zsmalloc
//! takes from the zones (`mm/zsmalloc.c`).
//!
//! ```text
//! swap slot ──▶ object ──▶ zspage: 1 to 8 pages, of no zone's lists
//! ```
//!
//! A write compresses at once, on the time of the task that reclaims, and the page is free when it returns; a
//! read decompresses on the time of the task that faults. A write needs pages itself: where no page is free,
//! or zram's `mem_limit` is exceeded, it fails, and the page stays dirty in memory.
//!
//! Every page compresses to the same number of bytes ([`ZramConfig::object_bytes`]), so that there is one
//! size class. Not modelled: pages filled with one value, which take no memory (and with them the zero
//! pages that 6.12 does not even write); handles and descriptors of zspages in slabs, 8 bytes for a page
//! and 56 for a zspage; compaction by zsmalloc's shrinker (`zs_compact`), which moves objects out of
//! nearly empty zspages; writeback of zram's own to a device, and recompression; freed slots that wait in
//! a CPU's cache (`mm/swap_slots.c`) and keep their objects for as long.

use std::collections::BTreeSet;

use lotsfree_kernel_files::counters::vmstat;

use super::frame::{NONE, flag};
use super::free_area::MigrateType;
use super::page_alloc::AllocContext;
use super::vmstat::Stat;
use super::{Config, Cx, Mm, footprint};
use crate::generation::ZspageChain;

/// Bytes of a page.
const PAGE: u32 = 4096;
/// `ZS_HANDLE_SIZE`: bytes that each object has for the way back to its handle.
const HANDLE: u32 = 8;
/// `ZS_MIN_ALLOC_SIZE`
const LEAST: u32 = 32;
/// `ZS_SIZE_CLASS_DELTA`: classes are this many bytes apart.
const DELTA: u32 = 16;
/// Bytes of a slot in zram's table (`struct zram_table_entry`).
const TABLE_ENTRY: u64 = 16;

/// A zram device; its size is [`Config::swap_pages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZramConfig {
    /// Bytes that a page takes after compression.
    pub object_bytes: u32,
    /// `mem_limit` in pages; 0: none.
    pub limit_pages: u64,
}

/// Pages of the table that zram allocates when its size is set (`zram_meta_alloc`).
pub(crate) fn table_pages(slots: u64) -> u64 {
    (slots * TABLE_ENTRY).div_ceil(PAGE.into())
}

/// The form of zspages (`struct size_class`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SizeClass {
    pages: u32,
    objects: u32,
}

impl SizeClass {
    /// The class of compressed pages of this many bytes. One that nearly fills a page is stored as it was,
    /// because it would have a page to itself in any case (`zs_huge_class_size`).
    fn of(chain: ZspageChain, object_bytes: u32) -> SizeClass {
        let shares = |size: &u32| {
            let class = SizeClass::of_size(chain, *size);
            class.pages > 1 && class.objects > 1
        };
        let largest = (LEAST..=PAGE).step_by(DELTA as usize).filter(shares).max().unwrap_or(PAGE);
        if object_bytes >= largest - (HANDLE - 1) {
            return SizeClass::of_size(chain, PAGE);
        }
        let size = (object_bytes + HANDLE).max(LEAST).next_multiple_of(DELTA);
        SizeClass::of_size(chain, size.min(PAGE))
    }

    fn of_size(chain: ZspageChain, size: u32) -> SizeClass {
        let pages = match chain {
            // Of two lengths that use the same percentage, the kernel takes the shorter one.
            ZspageChain::LargestUse => {
                let percent = |pages: u32| (pages * PAGE - pages * PAGE % size) * 100 / (pages * PAGE);
                (1..=4).rev().max_by_key(|pages| percent(*pages)).unwrap_or(1)
            }
            ZspageChain::LeastWaste if size.is_power_of_two() => 1,
            ZspageChain::LeastWaste => (1..=8).min_by_key(|pages| pages * PAGE % size).unwrap_or(1),
        };
        SizeClass { pages, objects: pages * PAGE / size }
    }
}

/// The compressed pages.
#[derive(Debug)]
pub(crate) struct Zram {
    class: SizeClass,
    limit_pages: u64,
    /// The zspage with the object of each slot; [`NONE`] if there is none.
    stored: Vec<u32>,
    /// The frames of the zspages, one zspage after another.
    frames: Vec<u32>,
    /// Objects of each zspage.
    inuse: Vec<u32>,
    /// Zspages with room, by the number of their objects.
    partial: BTreeSet<(u32, u32)>,
    /// Numbers of zspages that were given back.
    vacant: Vec<u32>,
    /// `zs_get_total_pages`
    pages: u64,
    /// `failed_writes` of zram's `io_stat`.
    pub(crate) failed_writes: u64,
}

impl Zram {
    /// The device of a machine, without a page yet.
    pub(super) fn new(config: &Config) -> Option<Box<Zram>> {
        let zram = config.zram.filter(|_| config.swap_pages > 0)?;
        Some(Box::new(Zram {
            class: SizeClass::of(config.generation.zspage_chain, zram.object_bytes),
            limit_pages: zram.limit_pages,
            stored: vec![NONE; config.swap_pages.min(super::MOST_FRAMES - 2) as usize],
            frames: Vec::new(),
            inuse: Vec::new(),
            partial: BTreeSet::new(),
            vacant: Vec::new(),
            pages: 0,
            failed_writes: 0,
        }))
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let vecs = footprint::of(&self.stored) + footprint::of(&self.frames) + footprint::of(&self.inuse);
        vecs + footprint::of(&self.vacant) + self.partial.len() * 2 * size_of::<(u32, u32)>()
    }

    /// Whether a slot has an object.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.stored.get(slot as usize).is_some_and(|zspage| *zspage != NONE)
    }

    /// The frames of a zspage.
    fn frames_of(&self, zspage: u32) -> &[u32] {
        let first = (zspage * self.class.pages) as usize;
        &self.frames[first..first + self.class.pages as usize]
    }

    /// Takes an object of the fullest zspage that has one left (`find_get_zspage`). The kernel takes one of a
    /// group that is about as full.
    fn obj_malloc(&mut self) -> Option<u32> {
        let (inuse, zspage) = self.partial.pop_last()?;
        self.set_inuse(zspage, inuse + 1);
        Some(zspage)
    }

    /// Enters a zspage of these frames, with its first object.
    fn insert(&mut self, frames: &[u32]) -> u32 {
        let zspage = self.vacant.pop().unwrap_or_else(|| {
            self.inuse.push(0);
            self.frames.resize(self.frames.len() + frames.len(), NONE);
            self.inuse.len() as u32 - 1
        });
        let first = zspage as usize * frames.len();
        self.frames[first..first + frames.len()].copy_from_slice(frames);
        self.pages += frames.len() as u64;
        self.set_inuse(zspage, 1);
        zspage
    }

    fn set_inuse(&mut self, zspage: u32, inuse: u32) {
        self.inuse[zspage as usize] = inuse;
        if (1..self.class.objects).contains(&inuse) {
            self.partial.insert((inuse, zspage));
        }
    }

    /// Gives an object back. Returns whether its zspage is empty, which then has no number any more.
    fn obj_free(&mut self, zspage: u32) -> bool {
        let inuse = self.inuse[zspage as usize];
        self.partial.remove(&(inuse, zspage));
        self.set_inuse(zspage, inuse - 1);
        if inuse == 1 {
            self.vacant.push(zspage);
            self.pages -= u64::from(self.class.pages);
        }
        inuse == 1
    }

    /// Compares the counts with a recount. Returns the frames of all zspages.
    pub(super) fn check(&self) -> Result<Vec<u32>, String> {
        let mut inuse = vec![0; self.inuse.len()];
        for (slot, &zspage) in self.stored.iter().enumerate().filter(|(_, zspage)| **zspage != NONE) {
            let Some(count) = inuse.get_mut(zspage as usize) else {
                return Err(format!("swap slot {slot} is in zspage {zspage} of {}", self.inuse.len()));
            };
            *count += 1;
        }
        if inuse != self.inuse {
            return Err("zspages count other objects than they have".to_owned());
        }
        let all = 0..self.inuse.len() as u32;
        let has_room = |zspage: &u32| (1..self.class.objects).contains(&inuse[*zspage as usize]);
        let partial = all.clone().filter(has_room).map(|zspage| (inuse[zspage as usize], zspage)).collect();
        let empty = inuse.iter().filter(|inuse| **inuse == 0).count();
        if self.partial != partial || self.vacant.len() != empty {
            return Err(format!("{} zspages have room and {} are vacant", self.partial.len(), empty));
        }
        let held = all.filter(|zspage| inuse[*zspage as usize] > 0);
        let frames: Vec<u32> = held.flat_map(|zspage| self.frames_of(zspage)).copied().collect();
        if frames.len() as u64 != self.pages {
            return Err(format!("zram counts {} pages and has {}", self.pages, frames.len()));
        }
        Ok(frames)
    }
}

impl Mm {
    /// Writes a page of the swap cache to zram for reclaim (`pageout`, `swap_writepage`). Returns whether
    /// it is written, and thus clean. After an error it is dirty as before (`end_swap_bio_write`); it
    /// counts as written to swap all the same.
    pub(crate) fn zram_writepage(&mut self, cx: &mut Cx, frame: u32) -> bool {
        let Some(slot) = self.swap.slot_of(frame) else { return false };
        self.stat_add(frame, Stat::VmscanWrite);
        self.events[vmstat::pswpout] += 1;
        if !self.generation.swap_rw_page {
            self.events[vmstat::pgpgout] += 4;
        }
        let written = self.zram_store(cx, slot);
        self.stat_add(frame, Stat::Written);
        if written {
            self.frames[frame as usize].flags &= !flag::DIRTY;
        }
        written
    }

    /// Compresses the page of a slot, and takes the place of what the slot had (`zram_bvec_write`).
    fn zram_store(&mut self, cx: &mut Cx, slot: u32) -> bool {
        cx.spend(self.costs.compress);
        let zspage = self.zs_malloc(cx);
        let Some(zram) = &mut self.zram else { return false };
        let Some(zspage) = zspage else {
            zram.failed_writes += 1;
            return false;
        };
        if zram.limit_pages > 0 && zram.pages > zram.limit_pages {
            zram.failed_writes += 1;
            self.zs_free(cx, zspage);
            return false;
        }
        let old = std::mem::replace(&mut zram.stored[slot as usize], zspage);
        self.zs_free(cx, old);
        true
    }

    /// Charges and counts the reading of pages of zram (`zram_bvec_read`).
    pub(super) fn zram_read(&mut self, cx: &mut Cx, pages: u32) {
        cx.spend(self.costs.decompress * u64::from(pages));
        if !self.generation.swap_rw_page {
            self.events[vmstat::pgpgin] += u64::from(pages) * 4;
        }
    }

    /// Frees the object of a slot that is given back (`zram_slot_free_notify`).
    pub(super) fn swap_slot_free_notify(&mut self, cx: &mut Cx, slot: u32) {
        if let Some(zram) = &mut self.zram {
            let zspage = std::mem::replace(&mut zram.stored[slot as usize], NONE);
            self.zs_free(cx, zspage);
        }
    }

    /// An object for a compressed page, and its zspage (`zs_malloc`).
    fn zs_malloc(&mut self, cx: &mut Cx) -> Option<u32> {
        if let Some(zspage) = self.zram.as_mut()?.obj_malloc() {
            return Some(zspage);
        }
        let count = self.zram.as_ref()?.class.pages as usize;
        let mine = cx.pages;
        let ac = AllocContext {
            preferred: self.node_of_cpu(cx.cpu),
            allowed: u64::MAX,
            write_cache: false,
            interleaved: false,
            kind: MigrateType::Movable,
        };
        let mut frames = Vec::with_capacity(count);
        while frames.len() < count {
            let Some(frame) = self.alloc_page_memalloc(cx, &ac) else { break };
            frames.push(frame);
        }
        // These are the kernel's pages, not the caller's.
        cx.pages = mine;
        if frames.len() < count {
            frames.into_iter().for_each(|frame| self.free_page(cx.cpu, frame));
            return None;
        }
        for &frame in &frames {
            self.frames[frame as usize].flags |= flag::KERNEL | flag::ZSPAGE;
            self.stat_add(frame, Stat::Zspages);
        }
        Some(self.zram.as_mut()?.insert(&frames))
    }

    /// Gives an object back, and its zspage if that was the last one (`zs_free`).
    fn zs_free(&mut self, cx: &mut Cx, zspage: u32) {
        let Some(zram) = self.zram.as_mut().filter(|_| zspage != NONE) else { return };
        if !zram.obj_free(zspage) {
            return;
        }
        let frames = zram.frames_of(zspage).to_vec();
        for frame in frames {
            self.stat_sub(frame, Stat::Zspages);
            cx.spend(self.costs.free);
            self.free_page(cx.cpu, frame);
        }
    }
}

#[cfg(test)]
mod tests;
