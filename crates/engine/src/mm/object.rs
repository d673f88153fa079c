//! Objects: files and pieces of anonymous memory, and the slots of their pages' entries (`struct inode` with
//! its `address_space`, `struct anon_vma`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};

use super::frame::{Entries, NONE, entry};
use super::{Stop, footprint};

/// Slots are assigned in runs of a multiple of this many.
pub(super) const RUN: u32 = 64;

/// A file or a piece of anonymous memory: a run of entries.
#[derive(Debug, Default)]
pub(crate) struct Object {
    pub(crate) base: u32,
    pub(crate) pages: u32,
    pub(crate) live: bool,
    pub(crate) file: bool,
    /// Pages that were never written are holes and not on disk.
    pub(crate) hole: bool,
    /// Pages from the beginning up to the last one that was written to disk and so has a place there.
    pub(crate) allocated: u32,
    /// Unlinked: removed when nobody maps it any more.
    pub(crate) deleted: bool,
    /// Pages that a device still had when the object was to be removed.
    pub(crate) busy: u32,
    /// Pages of anonymous memory that are in memory.
    pub(crate) held: u32,
    /// Regions that map it. The first one's bits are in the entries, the others' in bitmaps.
    pub(crate) mappings: Vec<Mapping>,
    /// Runs of pages that became dirty, in the order in which they did; they may include pages that were
    /// cleaned since.
    pub(crate) dirty_runs: VecDeque<(u32, u32)>,
    pub(crate) dirty: u64,
    pub(crate) under_writeback: u64,
    /// The last request that writes pages of the object.
    pub(crate) last_write: u64,
    /// Groups of the disk in which it has blocks, and the last transaction in which it has got some
    /// (`ext4.rs`).
    pub(crate) groups: Vec<u32>,
    pub(crate) datasync_tid: u64,
    /// When its oldest dirty page became dirty.
    pub(crate) dirtied_at: u64,
}

impl Object {
    /// Which of its mappings a region is.
    pub(super) fn mapping(&self, process: usize, region: u32) -> Option<usize> {
        self.mappings.iter().position(|mapping| mapping.process == process && mapping.region == region)
    }

    /// Whether the mapping of a number has a page, of which this is the entry.
    #[inline]
    pub(super) fn is_mapped(&self, which: usize, page: u32, e: u32) -> bool {
        match which {
            0 => e & entry::MAPPED != 0,
            _ => self.mappings[which].bits[(page / 64) as usize] >> (page % 64) & 1 == 1,
        }
    }

    /// Whether a mapping other than the first has the page.
    #[inline]
    pub(super) fn is_mapped_elsewhere(&self, page: u32) -> bool {
        let others = self.mappings.get(1..).unwrap_or_default();
        others.iter().any(|mapping| {
            mapping.bits.get((page / 64) as usize).is_some_and(|bits| bits >> (page % 64) & 1 == 1)
        })
    }

    /// Removes a page from all mappings but the first; `true` if one had it.
    #[cold]
    pub(super) fn unmap_elsewhere(&mut self, page: u32) -> bool {
        let mut mapped = false;
        for mapping in self.mappings.iter_mut().skip(1) {
            let word = &mut mapping.bits[(page / 64) as usize];
            mapped |= *word >> (page % 64) & 1 == 1;
            *word &= !(1 << (page % 64));
        }
        mapped
    }
}

/// What a new object consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Anonymous memory.
    Anon,
    /// A file with contents.
    Disk,
    /// A file of which nothing has been written yet.
    Hole,
}

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) process: usize,
    pub(crate) region: u32,
    /// Pages that are in its page table; empty for the first mapping.
    pub(crate) bits: Vec<u64>,
}

/// The objects by number, and the slots that they have.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    objects: Vec<Object>,
    /// Numbers that no object has.
    free: Vec<u32>,
    /// Runs of slots that no object has, by length.
    free_runs: BTreeMap<u32, Vec<u32>>,
    /// The object of each run of [`RUN`] slots.
    owners: Vec<u32>,
}

impl Index<u32> for Objects {
    type Output = Object;

    #[inline]
    fn index(&self, number: u32) -> &Object {
        &self.objects[number as usize]
    }
}

impl IndexMut<u32> for Objects {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Object {
        &mut self.objects[number as usize]
    }
}

impl Objects {
    /// Creates an object with all pages untouched, and returns its number.
    pub(super) fn create(&mut self, entries: &mut Entries, pages: u32, backing: Backing) -> u32 {
        let length = pages.max(1).next_multiple_of(RUN);
        let base = match self.free_runs.get_mut(&length).and_then(Vec::pop) {
            Some(base) => base,
            None => {
                let base = entries.len() as u32;
                entries.grow(length as usize);
                self.owners.resize(entries.len() / RUN as usize, NONE);
                base
            }
        };
        let (file, hole) = (backing != Backing::Anon, backing != Backing::Disk);
        let object = Object { base, pages, live: true, file, hole, ..Object::default() };
        let number = match self.free.pop() {
            Some(number) => {
                self[number] = object;
                number
            }
            None => {
                self.objects.push(object);
                self.objects.len() as u32 - 1
            }
        };
        self.owners[(base / RUN) as usize..((base + length) / RUN) as usize].fill(number);
        number
    }

    /// Gives back the number of an object that has no pages any more, and its slots.
    pub(super) fn release(&mut self, entries: &mut Entries, number: u32) {
        let object = std::mem::take(&mut self[number]);
        let (base, length) = (object.base, object.pages.max(1).next_multiple_of(RUN));
        entries[base as usize..(base + length) as usize].fill(entry::EMPTY);
        self.owners[(base / RUN) as usize..((base + length) / RUN) as usize].fill(NONE);
        self.free_runs.entry(length).or_default().push(base);
        self.free.push(number);
    }

    /// The number of the object that a slot belongs to.
    #[inline]
    pub(super) fn owner(&self, slot: u32) -> u32 {
        self.owners[(slot / RUN) as usize]
    }

    /// The object that a slot belongs to.
    #[inline]
    pub(super) fn at(&self, slot: u32) -> &Object {
        &self[self.owner(slot)]
    }

    /// The object that a slot belongs to.
    #[inline]
    pub(super) fn at_mut(&mut self, slot: u32) -> &mut Object {
        let number = self.owner(slot);
        &mut self[number]
    }

    pub(super) fn get(&self, number: u32) -> Option<&Object> {
        self.objects.get(number as usize)
    }

    /// The file with that number.
    ///
    /// # Errors
    /// [`Stop::Bad`] if there is none.
    pub(super) fn file(&self, number: u32) -> Result<&Object, Stop> {
        self.get(number).filter(|object| object.live && object.file).ok_or(Stop::Bad)
    }

    /// All objects with their numbers, those too that were released.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Object)> {
        (0u32..).zip(&self.objects)
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let of = |object: &Object| {
            let bits: usize = object.mappings.iter().map(|mapping| footprint::of(&mapping.bits)).sum();
            let runs = object.dirty_runs.capacity() * size_of::<(u32, u32)>();
            footprint::of(&object.mappings) + footprint::of(&object.groups) + bits + runs
        };
        let slots = footprint::of(&self.owners) + self.free_runs.values().map(footprint::of).sum::<usize>();
        footprint::of(&self.objects) + slots + self.objects.iter().map(of).sum::<usize>()
    }
}
