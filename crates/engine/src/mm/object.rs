//! Objects: files and pieces of anonymous memory, and the slots of their pages' entries (`struct inode` with
//! its `address_space`, `struct anon_vma`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// Memory that processes share, which is in the page cache and goes to swap (`shmem.rs`).
    pub(crate) shmem: bool,
    /// Shared memory of System V, not a file of tmpfs: it counts as committed in its whole length, and a
    /// fault maps one page (`ipc/shm.c:shm_vm_ops` has no `map_pages`).
    pub(crate) sysv: bool,
    /// Shared memory of huge pages, which are its pages (`hugetlb.rs`).
    pub(crate) hugetlb: bool,
    /// Pages that were never written are holes and not on disk.
    pub(crate) hole: bool,
    /// Pages from the beginning up to the last one that was written to disk and so has a place there.
    pub(crate) allocated: u32,
    /// Unlinked: removed when nobody maps it any more.
    pub(crate) deleted: bool,
    /// Pages that a device still had when the object was to be removed.
    pub(crate) busy: u32,
    /// Pages of anonymous or shared memory that are in memory.
    pub(crate) held: u32,
    /// The first page of each transparent huge page that it has.
    pub(super) huge: BTreeSet<u32>,
    /// Regions that map it. The first one's bits are in the entries, the others' in bitmaps.
    pub(super) mappings: Vec<Mapping>,
    /// How many mappings other than the first have each page; empty while there is none.
    others: Vec<u32>,
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
    /// Whether the mapping of a number has a page, of which this is the entry.
    #[inline]
    pub(super) fn is_mapped(&self, which: usize, page: u32, e: u32) -> bool {
        match which {
            0 => e & entry::MAPPED != 0,
            _ => self.mappings[which].bits.get(page),
        }
    }

    /// How many mappings other than the first have the page.
    #[inline]
    pub(super) fn mapped_elsewhere(&self, page: u32) -> u32 {
        self.others.get(page as usize).copied().unwrap_or(0)
    }

    /// Whether a mapping other than the first has the page.
    #[inline]
    pub(super) fn is_mapped_elsewhere(&self, page: u32) -> bool {
        self.mapped_elsewhere(page) > 0
    }

    /// Whether it is a file of tmpfs, whose pages are promised one by one.
    pub(super) fn is_tmpfs(&self) -> bool {
        self.shmem && !self.sysv
    }

    /// Whether it is memory of one process alone, which ends with its mapping.
    pub(super) fn is_private(&self) -> bool {
        !(self.file || self.shmem || self.hugetlb)
    }

    /// Adds a mapping, and returns its number.
    pub(super) fn map(&mut self, process: usize, region: u32) -> usize {
        self.mappings.push(Mapping { process, region, bits: PageBits::default() });
        if self.mappings.len() > 1 {
            self.others.resize(self.pages as usize, 0);
        }
        self.mappings.len() - 1
    }

    /// Removes a mapping that has no page any more. The last one takes its number.
    pub(super) fn unmap(&mut self, which: usize) {
        self.mappings.swap_remove(which);
        if self.mappings.len() < 2 {
            self.others = Vec::new();
        }
    }

    /// Enters a page into a mapping other than the first.
    #[inline]
    pub(super) fn map_elsewhere(&mut self, which: usize, page: u32) {
        self.others[page as usize] += u32::from(self.mappings[which].bits.set(page));
    }

    /// Takes all pages out of a mapping other than the first.
    pub(super) fn take_bits(&mut self, which: usize) -> PageBits {
        let bits = std::mem::take(&mut self.mappings[which].bits);
        for page in bits.iter() {
            if let Some(count) = self.others.get_mut(page as usize) {
                *count -= 1;
            }
        }
        bits
    }

    /// Removes a page from all mappings but the first; `true` if one had it.
    #[cold]
    pub(super) fn unmap_elsewhere(&mut self, page: u32) -> bool {
        let Some(count) = self.others.get_mut(page as usize) else { return false };
        let mut left = std::mem::take(count);
        let mapped = left > 0;
        for mapping in self.mappings.iter_mut().skip(1) {
            if left == 0 {
                break;
            }
            left -= u32::from(mapping.bits.clear(page));
        }
        mapped
    }

    /// Checks the counts of mappings.
    pub(super) fn check_others(&self) -> Result<(), String> {
        let mut found = vec![0; self.others.len()];
        for (which, mapping) in self.mappings.iter().enumerate().skip(1) {
            for page in mapping.bits.iter() {
                let Some(count) = found.get_mut(page as usize) else {
                    return Err(format!("mapping {which} has page {page} of {}", self.pages));
                };
                *count += 1;
            }
            let (set, counted) = (mapping.bits.iter().count(), mapping.bits.count());
            if set != counted as usize {
                return Err(format!("mapping {which} has {set} pages and counts {counted}"));
            }
        }
        let wrong = self.others.iter().zip(&found).position(|(counted, found)| counted != found);
        wrong.map_or(Ok(()), |page| {
            Err(format!("page {page} counts {} mappings and has {}", self.others[page], found[page]))
        })
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
    /// Memory that processes share.
    Shmem,
    /// The same of huge pages.
    Hugetlb,
}

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) process: usize,
    pub(crate) region: u32,
    /// Pages that are in its page table; empty for the first mapping.
    pub(crate) bits: PageBits,
}

/// Pages of a range of [`PageBits`].
const RANGE: u32 = 512;

/// A bit for each page of an object. 512 pages of which none is set take 8 bytes.
#[derive(Debug, Default)]
pub(crate) struct PageBits {
    ranges: Vec<Option<Box<[u64; RANGE as usize / 64]>>>,
    /// How many bits are set.
    count: u32,
}

impl PageBits {
    #[inline]
    fn place(page: u32) -> (usize, usize, u64) {
        ((page / RANGE) as usize, (page % RANGE / 64) as usize, 1 << (page % 64))
    }

    #[inline]
    pub(super) fn get(&self, page: u32) -> bool {
        let (range, word, bit) = Self::place(page);
        self.ranges.get(range).and_then(Option::as_ref).is_some_and(|words| words[word] & bit != 0)
    }

    /// Sets a bit, and returns whether it was clear.
    #[inline]
    fn set(&mut self, page: u32) -> bool {
        let (range, word, bit) = Self::place(page);
        if self.ranges.len() <= range {
            self.ranges.resize_with(range + 1, || None);
        }
        let words = self.ranges[range].get_or_insert_default();
        let clear = words[word] & bit == 0;
        words[word] |= bit;
        self.count += u32::from(clear);
        clear
    }

    /// Clears a bit, and returns whether it was set.
    #[inline]
    fn clear(&mut self, page: u32) -> bool {
        let (range, word, bit) = Self::place(page);
        let Some(words) = self.ranges.get_mut(range).and_then(Option::as_mut) else { return false };
        let set = words[word] & bit != 0;
        words[word] &= !bit;
        self.count -= u32::from(set);
        set
    }

    /// The pages whose bits are set, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let ranges = (0..).step_by(RANGE as usize).zip(&self.ranges);
        let words = ranges
            .filter_map(|(first, words)| Some((first, words.as_ref()?)))
            .flat_map(|(first, words): (u32, _)| (first..).step_by(64).zip(words.iter().copied()));
        words.flat_map(|(first, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        })
    }

    /// How many bits are set.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes allocated.
    fn bytes(&self) -> usize {
        let ranges = self.ranges.iter().flatten().count();
        footprint::of(&self.ranges) + ranges * size_of::<[u64; RANGE as usize / 64]>()
    }
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
        let (file, hole) = (matches!(backing, Backing::Disk | Backing::Hole), backing != Backing::Disk);
        let (shmem, hugetlb) = (backing == Backing::Shmem, backing == Backing::Hugetlb);
        let object = Object { base, pages, live: true, file, shmem, hugetlb, hole, ..Object::default() };
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
            let bits: usize = object.mappings.iter().map(|mapping| mapping.bits.bytes()).sum();
            let bits = bits + footprint::of(&object.others);
            let runs = object.dirty_runs.capacity() * size_of::<(u32, u32)>();
            footprint::of(&object.mappings) + footprint::of(&object.groups) + bits + runs
        };
        let slots = footprint::of(&self.owners) + self.free_runs.values().map(footprint::of).sum::<usize>();
        footprint::of(&self.objects) + slots + self.objects.iter().map(of).sum::<usize>()
    }
}
