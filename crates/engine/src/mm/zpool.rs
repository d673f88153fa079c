//! Memory for compressed pages, of zram and of zswap: zsmalloc (`mm/zsmalloc.c`) and zbud (`mm/zbud.c`).
//!
//! ```text
//! swap slot ──▶ object ──▶ zspage: 1 to 8 pages, of no zone's lists
//! ```
//!
//! Every page compresses to the same number of bytes, so that there is one size class. zbud's pages are
//! zspages of one page with two objects at most.
//!
//! Not modelled: handles and descriptors of zspages in slabs, 8 bytes for a page and 56 for a zspage;
//! compaction by zsmalloc's shrinker (`zs_compact`), which moves objects out of nearly empty zspages.

use std::collections::BTreeSet;

use lotsfree_scenario::Zpool as Kind;
use lotsfree_units::PageSize;

use super::frame::{NONE, flag};
use super::free_area::MigrateType;
use super::page_alloc::AllocContext;
use super::vmstat::Stat;
use super::{Cx, Mm, footprint};
use crate::generation::ZspageChain;

/// `ZS_HANDLE_SIZE`: bytes that each object has for the way back to its handle.
const HANDLE: u32 = 8;
/// `ZS_MIN_ALLOC_SIZE`
const LEAST: u32 = 32;
/// `CLASS_BITS`: classes are a page divided by two to the power of this apart (`ZS_SIZE_CLASS_DELTA`).
const CLASS_BITS: u32 = 8;
/// `NCHUNKS_ORDER` of zbud: a page has two to the power of this chunks (`CHUNK_SIZE`), to which objects are
/// rounded up, and one of which is its header.
const CHUNKS_ORDER: u32 = 6;

/// The form of zspages (`struct size_class`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeClass {
    pub(super) pages: u32,
    pub(super) objects: u32,
}

impl SizeClass {
    /// The class of zram's compressed pages of this many bytes. One that nearly fills a page is stored as it
    /// was, because it would have a page to itself in any case (`zs_huge_class_size`).
    pub(super) fn of(chain: ZspageChain, object_bytes: u32, page: PageSize) -> SizeClass {
        let (most, delta) = (bytes_of(page), bytes_of(page) >> CLASS_BITS);
        let shares = |size: &u32| {
            let class = SizeClass::of_size(chain, *size, most);
            class.pages > 1 && class.objects > 1
        };
        let largest = (LEAST..=most).step_by(delta as usize).filter(shares).max().unwrap_or(most);
        if object_bytes >= largest - (HANDLE - 1) {
            return SizeClass::of_size(chain, most, most);
        }
        SizeClass::of_object(chain, object_bytes, page)
    }

    /// The class of objects of this many bytes (`zs_malloc`).
    pub(super) fn of_object(chain: ZspageChain, bytes: u32, page: PageSize) -> SizeClass {
        let (most, delta) = (bytes_of(page), bytes_of(page) >> CLASS_BITS);
        let wanted = (bytes + HANDLE).max(LEAST);
        let size = LEAST + (wanted - LEAST).next_multiple_of(delta);
        SizeClass::of_size(chain, size.min(most), most)
    }

    /// The page of zbud with objects of this many bytes; `None` if they leave no room for another object
    /// of the least size (`zbud_alloc`).
    pub(super) fn of_zbud(bytes: u32, page: PageSize) -> Option<SizeClass> {
        let (page, chunk) = (bytes_of(page), bytes_of(page) >> CHUNKS_ORDER);
        let fits = bytes <= page - 2 * chunk;
        let two = 2 * bytes.next_multiple_of(chunk) <= page - chunk;
        fits.then_some(SizeClass { pages: 1, objects: 1 + u32::from(two) })
    }

    fn of_size(chain: ZspageChain, size: u32, page: u32) -> SizeClass {
        let pages = match chain {
            // Of two lengths that use the same percentage, the kernel takes the shorter one.
            ZspageChain::LargestUse => {
                let percent = |pages: u32| (pages * page - pages * page % size) * 100 / (pages * page);
                (1..=4).rev().max_by_key(|pages| percent(*pages)).unwrap_or(1)
            }
            ZspageChain::LeastWaste if size.is_power_of_two() => 1,
            ZspageChain::LeastWaste => (1..=8).min_by_key(|pages| pages * page % size).unwrap_or(1),
        };
        SizeClass { pages, objects: pages * page / size }
    }
}

fn bytes_of(page: PageSize) -> u32 {
    page.bytes().0 as u32
}

/// The pages of compressed pages.
#[derive(Debug)]
pub(crate) struct Zpool {
    kind: Kind,
    class: SizeClass,
    /// The zspage with the object of each slot; [`NONE`] if there is none.
    stored: Vec<u32>,
    /// The slots with an object in each page of zbud, [`NONE`] for what it has room for.
    buddies: Vec<[u32; 2]>,
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
    objects: u64,
}

impl Zpool {
    /// A pool without a page yet, for the pages of this many swap slots.
    pub(super) fn new(kind: Kind, class: SizeClass, slots: u64) -> Box<Zpool> {
        Box::new(Zpool {
            kind,
            class,
            stored: vec![NONE; slots.min(super::MOST_FRAMES - 2) as usize],
            buddies: Vec::new(),
            frames: Vec::new(),
            inuse: Vec::new(),
            partial: BTreeSet::new(),
            vacant: Vec::new(),
            pages: 0,
            objects: 0,
        })
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let vecs = footprint::of(&self.stored) + footprint::of(&self.frames) + footprint::of(&self.inuse);
        let rest = footprint::of(&self.vacant) + footprint::of(&self.buddies);
        vecs + rest + self.partial.len() * 2 * size_of::<(u32, u32)>()
    }

    /// Pages that it has.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Compressed pages that it holds.
    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// Whether a slot has an object.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.stored.get(slot as usize).is_some_and(|zspage| *zspage != NONE)
    }

    /// The other slot with an object in the same page of zbud.
    pub(super) fn buddy_of(&self, slot: u32) -> Option<u32> {
        let buddies = self.buddies.get(self.stored[slot as usize] as usize)?;
        buddies.iter().copied().find(|buddy| *buddy != NONE && *buddy != slot)
    }

    /// The flag of its frames, which are the kernel's.
    fn mark(&self) -> u32 {
        match self.kind {
            Kind::Zsmalloc => flag::ZSPAGE,
            Kind::Zbud => flag::ZBUD,
        }
    }

    /// Gives a slot, which has none, an object that was allocated in a zspage.
    pub(super) fn store(&mut self, slot: u32, zspage: u32) {
        self.stored[slot as usize] = zspage;
        self.objects += 1;
        if self.kind == Kind::Zbud {
            let place = zspage as usize;
            if self.buddies.len() <= place {
                self.buddies.resize(place + 1, [NONE; 2]);
            }
            let [first, last] = &mut self.buddies[place];
            *(if *first == NONE { first } else { last }) = slot;
        }
    }

    /// Takes a slot's object away. Returns its zspage, or [`NONE`].
    pub(super) fn take(&mut self, slot: u32) -> u32 {
        let zspage = std::mem::replace(&mut self.stored[slot as usize], NONE);
        self.objects -= u64::from(zspage != NONE);
        if let Some(buddies) = self.buddies.get_mut(zspage as usize) {
            buddies.iter_mut().filter(|buddy| **buddy == slot).for_each(|buddy| *buddy = NONE);
        }
        zspage
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
        let objects = inuse.iter().map(|inuse| u64::from(*inuse)).sum::<u64>();
        if objects != self.objects {
            return Err(format!("the pool counts {} objects and has {objects}", self.objects));
        }
        let apart = |(zspage, slots): (usize, &[u32; 2])| {
            let wrong = |slot: &&u32| **slot != NONE && self.stored[**slot as usize] != zspage as u32;
            slots.iter().find(wrong).copied()
        };
        if let Some(slot) = self.buddies.iter().enumerate().find_map(apart) {
            return Err(format!("swap slot {slot} is in another page than zbud's page says"));
        }
        let named = self.buddies.iter().flatten().filter(|slot| **slot != NONE).count() as u64;
        if self.kind == Kind::Zbud && named != objects {
            return Err(format!("zbud's pages name {named} objects of {objects}"));
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
            return Err(format!("the pool counts {} pages and has {}", self.pages, frames.len()));
        }
        Ok(frames)
    }
}

impl Mm {
    /// An object for a compressed page, and its zspage (`zs_malloc`, `zbud_alloc`).
    pub(super) fn zpool_malloc(&mut self, cx: &mut Cx) -> Option<u32> {
        if let Some(zspage) = self.zpool.as_mut()?.obj_malloc() {
            return Some(zspage);
        }
        let pool = self.zpool.as_ref()?;
        let (count, mark) = (pool.class.pages as usize, pool.mark());
        let mine = cx.pages;
        let ac = AllocContext {
            preferred: self.node_of_cpu(cx.cpu),
            allowed: u64::MAX,
            write_cache: false,
            interleaved: false,
            kind: if mark == flag::ZSPAGE { MigrateType::Movable } else { MigrateType::Unmovable },
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
            self.frames[frame as usize].flags |= flag::KERNEL | mark;
            // No counter has zbud's pages.
            if mark == flag::ZSPAGE {
                self.stat_add(frame, Stat::Zspages);
            }
        }
        Some(self.zpool.as_mut()?.insert(&frames))
    }

    /// Gives an object back, and its zspage if that was the last one (`zs_free`, `zbud_free`).
    pub(super) fn zpool_free(&mut self, cx: &mut Cx, zspage: u32) {
        let Some(pool) = self.zpool.as_mut().filter(|_| zspage != NONE) else { return };
        if !pool.obj_free(zspage) {
            return;
        }
        let counts = pool.mark() == flag::ZSPAGE;
        let frames = pool.frames_of(zspage).to_vec();
        for frame in frames {
            if counts {
                self.stat_sub(frame, Stat::Zspages);
            }
            cx.spend(self.costs.free);
            self.free_page(cx.cpu, frame);
        }
    }

    /// Frees the object of a slot, if it has one.
    pub(super) fn zpool_free_slot(&mut self, cx: &mut Cx, slot: u32) {
        if let Some(pool) = &mut self.zpool {
            let zspage = pool.take(slot);
            self.zpool_free(cx, zspage);
        }
    }
}

#[cfg(test)]
pub(super) mod host;
