//! Page frames, page-table entries and the lists that frames are on.
//!
//! A frame takes 12 bytes, its place on a list 4 to 8, and the entry of the page that it holds 4. The entry
//! serves as page table and page cache at once. It has the accessed and dirty bits of a resident page, so
//! that touching the page is one load and one store. When the page is gone, it holds the swap slot or the
//! shadow.

use std::ops::{Deref, DerefMut, Range};

use bytemuck::{Pod, Zeroable};

use super::footprint;
use super::free_area::{MigrateType, Orders};

/// No frame.
pub(crate) const NONE: u32 = u32::MAX;

/// One page frame (`struct page`).
#[derive(Clone, Copy, Debug, Default, Zeroable)]
#[repr(C)]
pub(crate) struct Frame {
    /// Its place on its list; for the first frame of a free block, the next block.
    pub(crate) at: u32,
    /// The slot of the entry that holds it, which is the page's identity; for the first frame of a free
    /// block, the block before; for the first frame of a slab, the number of its objects in use.
    pub(crate) slot: u32,
    /// [`flag`]s, list and zone.
    pub(crate) flags: u32,
}

/// Bits of [`Frame::flags`]. Bits 0 to 3 are the list, 4 to 11 the zone.
pub(crate) mod flag {
    pub(crate) const LIST: u32 = 0xf;
    pub(crate) const ZONE_SHIFT: u32 = 4;
    pub(crate) const ZONE: u32 = 0xff << ZONE_SHIFT;
    /// In use: not on a free list and not on a CPU's list.
    pub(crate) const USED: u32 = 1 << 12;
    /// `PG_referenced`
    pub(crate) const REFERENCED: u32 = 1 << 13;
    /// `PG_dirty`; a mapped page whose entry has the dirty bit has this flag too.
    pub(crate) const DIRTY: u32 = 1 << 14;
    /// `PG_writeback`
    pub(crate) const WRITEBACK: u32 = 1 << 15;
    /// Being read, and not up to date.
    pub(crate) const LOCKED: u32 = 1 << 16;
    /// `PG_swapbacked`: the page belongs on the anonymous lists.
    pub(crate) const ANON: u32 = 1 << 17;
    /// `PG_swapcache`: the page has a swap slot.
    pub(crate) const SWAPCACHE: u32 = 1 << 18;
    /// `PG_reclaim`: the page is to be freed when its write ends.
    pub(crate) const RECLAIM: u32 = 1 << 19;
    /// `PG_readahead`: reading the page starts the next window.
    pub(crate) const READAHEAD: u32 = 1 << 20;
    /// `PG_workingset`: the page had been active.
    pub(crate) const WORKINGSET: u32 = 1 << 21;
    /// `PG_mlocked`
    pub(crate) const MLOCKED: u32 = 1 << 22;
    /// Accessed through another page table than the one in the entry.
    pub(crate) const OTHER: u32 = 1 << 23;
    /// Owned by the kernel itself: on no list, never reclaimed.
    pub(crate) const KERNEL: u32 = 1 << 24;
    /// `PG_slab`: one of the kernel's pages that belongs to a slab (`slab.rs`).
    pub(crate) const SLAB: u32 = WORKINGSET;
    /// A slab that cannot be reclaimed.
    pub(crate) const UNRECLAIMABLE: u32 = REFERENCED;
    /// One of the kernel's pages that holds compressed pages (`zpool.rs`): zsmalloc's, or zbud's.
    pub(crate) const ZSPAGE: u32 = MLOCKED;
    pub(crate) const ZBUD: u32 = OTHER;
    /// One of the kernel's pages that is a page table of a process (`pgtable.rs`), and one that the kernel
    /// does not count.
    pub(crate) const PGTABLE: u32 = SWAPCACHE;
    pub(crate) const UNCOUNTED: u32 = DIRTY;
    /// One of the kernel's pages that belongs to a huge page of the pool (`hugetlb.rs`).
    pub(crate) const HUGETLB: u32 = RECLAIM;
    /// References by system calls, with MGLRU: 0 to 3.
    pub(crate) const REFS_SHIFT: u32 = 25;
    pub(crate) const REFS: u32 = 3 << REFS_SHIFT;
    /// Brought in by swap readahead, and not used yet.
    pub(crate) const SWAP_RA: u32 = 1 << 27;
    /// The generation, modulo 4 and plus 1, that a walk has promoted the page to while it is still on the
    /// list of an older one; 0 if it belongs to the generation of its list.
    pub(crate) const PROMOTED_SHIFT: u32 = 28;
    pub(crate) const PROMOTED: u32 = 7 << PROMOTED_SHIFT;
    /// A page of a file that came back after it was evicted. The kernel has no such flag; who waits for the
    /// page to be read is said to wait for a refault.
    pub(crate) const REFAULTED: u32 = 1 << 31;
    /// `PG_buddy`: the first frame of a free block, which has no other use for the bits from here on. The
    /// block's order and the type of its list are beside it.
    pub(crate) const BUDDY: u32 = SWAP_RA;
    pub(crate) const TYPE_SHIFT: u32 = REFS_SHIFT;
    pub(crate) const ORDER_SHIFT: u32 = PROMOTED_SHIFT;
    pub(crate) const ORDER: u32 = 15 << ORDER_SHIFT;
}

impl Frame {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
    pub(crate) fn zone(&self) -> usize {
        ((self.flags & flag::ZONE) >> flag::ZONE_SHIFT) as usize
    }
    pub(crate) fn list(&self) -> usize {
        (self.flags & flag::LIST) as usize
    }
    /// The list in whose count it is: its own, or that of the generation it was promoted to.
    pub(crate) fn counts_in(&self) -> usize {
        match (self.flags & flag::PROMOTED) >> flag::PROMOTED_SHIFT {
            0 => self.list(),
            promoted => list::FIRST_GENERATION + 2 * (promoted as usize - 1) + self.list() % 2,
        }
    }
}

/// Frames of a block as an order, at least: 16 MiB of memory on x86-64. No free block is larger.
const BLOCK_ORDER: u32 = 12;

/// The frames by number. A zone numbers its pages in blocks when they are first used, so that memory that
/// nobody has touched takes none of the simulating host's.
#[derive(Debug)]
pub(crate) struct Frames {
    frames: Vec<Frame>,
    /// Frames of a block, and pages of a pageblock, as orders.
    block_order: u32,
    pageblock_order: u32,
    /// The zone of each block.
    zones: Vec<u8>,
    /// The type of each pageblock.
    types: Vec<MigrateType>,
    /// How many frames may have a number.
    most: u64,
    /// There was no number left for a page.
    pub(crate) exhausted: bool,
}

impl Frames {
    /// The frames of a machine on which none has a number yet, and `most` may get one.
    pub(super) fn new(most: u64, sizes: Orders) -> Self {
        Frames {
            frames: Vec::new(),
            block_order: BLOCK_ORDER.max(sizes.max as u32),
            pageblock_order: sizes.pageblock as u32,
            zones: Vec::new(),
            types: Vec::new(),
            most,
            exhausted: false,
        }
    }

    /// Numbers the next pages of a zone that has `left` without a number. The range is empty if no page or no
    /// number is left.
    #[cold]
    pub(crate) fn number(&mut self, zone: usize, left: u64) -> Range<u32> {
        let (first, block) = (self.frames.len() as u32, 1 << self.block_order);
        if u64::from(first) + u64::from(block) > self.most {
            self.exhausted |= left > 0;
            return 0..0;
        }
        let count = left.min(u64::from(block)) as u32;
        if count > 0 {
            let len = (first + block) as usize;
            if len > self.frames.capacity() {
                self.frames.reserve_exact(len.max(self.frames.len() / 8 * 9) - self.frames.len());
            }
            let flags = (zone as u32) << flag::ZONE_SHIFT;
            self.frames.resize((first + count) as usize, Frame { flags, ..Frame::default() });
            self.frames.resize(len, Frame::default());
            self.zones.push(zone as u8);
            self.types.resize(len >> self.pageblock_order, MigrateType::Movable);
        }
        first..first + count
    }

    /// The zone that a number belongs to.
    #[inline]
    pub(crate) fn zone_of(&self, frame: u32) -> usize {
        self.zones[(frame >> self.block_order) as usize].into()
    }

    /// The type of the pageblock that a frame is in (`get_pageblock_migratetype`).
    #[inline]
    pub(super) fn migrate_type(&self, frame: u32) -> MigrateType {
        self.types[(frame >> self.pageblock_order) as usize]
    }

    /// Sets the type of whole pageblocks, the first of which a frame is in (`change_pageblock_range`).
    pub(super) fn set_migrate_type(&mut self, frame: u32, pages: u32, kind: MigrateType) {
        let first = (frame >> self.pageblock_order) as usize;
        self.types[first..first + (pages >> self.pageblock_order) as usize].fill(kind);
    }

    /// The first frames of a zone's pageblocks, from low to high.
    pub(super) fn pageblocks_of(&self, zone: usize) -> impl Iterator<Item = u32> {
        let blocks = (0u32..).zip(&self.zones).filter(move |(_, of)| usize::from(**of) == zone);
        blocks.flat_map(|(block, _)| {
            let first = block << self.block_order;
            (first..first + (1 << self.block_order)).step_by(1 << self.pageblock_order)
        })
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        footprint::of(&self.frames) + footprint::of(&self.zones) + footprint::of(&self.types)
    }
}

impl Deref for Frames {
    type Target = [Frame];
    #[inline]
    fn deref(&self) -> &[Frame] {
        &self.frames
    }
}

impl DerefMut for Frames {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Frame] {
        &mut self.frames
    }
}

/// A page-table entry and page-cache slot.
pub(crate) mod entry {
    /// In a page table: the highest bit.
    pub(crate) const MAPPED: u32 = 1 << MAPPED_BIT;
    pub(crate) const MAPPED_BIT: u32 = 31;
    /// Accessed since the bit was last cleared; only if mapped.
    pub(crate) const ACCESSED: u32 = 1 << 30;
    /// May be written, and has been; only if mapped.
    pub(crate) const DIRTY: u32 = 1 << 29;
    /// Frame number, swap slot or shadow.
    pub(crate) const VALUE: u32 = (1 << 29) - 1;
    const KIND: u32 = 3 << 29;
    /// Evicted; the value is a [`workingset`](super::super::workingset) shadow.
    pub(crate) const SHADOW: u32 = 1 << 29;
    /// Swapped out; the value is the slot.
    pub(crate) const SWAP: u32 = 2 << 29;
    /// In memory, but in no page table.
    pub(crate) const RESIDENT: u32 = 3 << 29;
    /// On disk; nothing is known about its eviction.
    pub(crate) const ON_DISK: u32 = SHADOW | VALUE;
    /// Never touched: the contents are zeroes.
    pub(crate) const EMPTY: u32 = 0;

    /// The meaning of an entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Is {
        Empty,
        Shadow(u32),
        Swap(u32),
        Resident(u32),
        Mapped(u32),
    }

    pub(crate) fn is(entry: u32) -> Is {
        let value = entry & VALUE;
        if entry & MAPPED != 0 {
            return Is::Mapped(value);
        }
        match entry & KIND {
            SHADOW => Is::Shadow(value),
            SWAP => Is::Swap(value),
            RESIDENT => Is::Resident(value),
            _ => Is::Empty,
        }
    }

    /// In memory, but not in the first page table.
    pub(crate) fn is_unmapped(entry: u32) -> bool {
        entry & (MAPPED | KIND) == RESIDENT
    }

    /// Swapped out, or of the swap cache: that counts as on swap until it is mapped again (`do_swap_page`).
    pub(crate) fn is_on_swap(entry: u32) -> bool {
        entry & (MAPPED | SWAP) == SWAP
    }

    /// Notes an access that needs nothing but the page table; returns `false` if it needs a fault.
    #[inline]
    pub(crate) fn access(entry: &mut u32, write: bool) -> bool {
        let wanted = if write { MAPPED | DIRTY } else { MAPPED };
        let has = *entry & wanted == wanted;
        if has {
            *entry |= ACCESSED;
        }
        has
    }

    /// The frame, if the page is in memory.
    pub(crate) fn frame(entry: u32) -> Option<u32> {
        (entry & MAPPED != 0 || entry & KIND == RESIDENT).then_some(entry & VALUE)
    }
}

/// The entries of 16 pages of an object, which on x86-64 are 64 KiB. They share one cache line, which has all
/// that a fault looks at when it maps the pages around its own.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
struct Around([u32; 16]);

/// The entries of all objects, by slot.
#[derive(Debug, Default)]
pub(crate) struct Entries(Vec<Around>);

impl Entries {
    /// The entries of the 16 pages that a slot is in.
    #[inline]
    pub(crate) fn around(&self, slot: u32) -> &[u32; 16] {
        &self.0[slot as usize / 16].0
    }
    /// Adds `count` empty entries, a multiple of 16.
    pub(crate) fn grow(&mut self, count: usize) {
        debug_assert_eq!((count % 16, entry::EMPTY), (0, 0));
        self.0.resize(self.0.len() + count / 16, Around::zeroed());
    }
    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Around>()
    }
}

impl Deref for Entries {
    type Target = [u32];
    #[inline]
    fn deref(&self) -> &[u32] {
        bytemuck::cast_slice(&self.0)
    }
}

impl DerefMut for Entries {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Lists of an lruvec; 0 means "on none".
pub(crate) mod list {
    pub(crate) const NONE: usize = 0;
    pub(crate) const INACTIVE_ANON: usize = 1;
    pub(crate) const ACTIVE_ANON: usize = 2;
    pub(crate) const INACTIVE_FILE: usize = 3;
    pub(crate) const ACTIVE_FILE: usize = 4;
    pub(crate) const UNEVICTABLE: usize = 5;
    /// MGLRU: generation `g` (sequence modulo 4) of type `t` (0 anonymous, 1 file) is list 6 + 2g + t, of
    /// which each zone has one of its own.
    pub(crate) const FIRST_GENERATION: usize = 6;
    /// The number of lists.
    pub(crate) const COUNT: usize = 14;
    /// The number of lists of generations.
    pub(crate) const GENERATIONS: usize = COUNT - FIRST_GENERATION;

    /// The inactive list of anonymous or of file pages.
    #[inline]
    pub(crate) fn inactive(anon: bool) -> usize {
        if anon { INACTIVE_ANON } else { INACTIVE_FILE }
    }
    /// The active list of anonymous or of file pages.
    #[inline]
    pub(crate) fn active(anon: bool) -> usize {
        if anon { ACTIVE_ANON } else { ACTIVE_FILE }
    }
    pub(crate) fn is_active(list: usize) -> bool {
        list == ACTIVE_ANON || list == ACTIVE_FILE
    }
}

/// A list of frames: pages enter at the head and are reclaimed from the tail.
///
/// The kernel links its lists through `struct page`. Here a list is a ring of places that frames are written
/// to. The frames near the tail are therefore known without a look at any frame, and the waits for several of
/// them overlap. A frame knows its place. A frame that leaves from within the list leaves its place empty.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) len: u64,
    /// The ring; [`NONE`] where there is no frame, which is the case at least at `end`.
    places: Vec<u32>,
    /// The place of the frame at the tail.
    tail: u32,
    /// The place for the next frame at the head.
    end: u32,
}

/// Empty places that a list may have in addition to one for each of its frames.
const SPARE: u64 = 256;

impl List {
    fn after(&self, at: u32) -> u32 {
        if at as usize + 1 >= self.places.len() { 0 } else { at + 1 }
    }

    fn before(&self, at: u32) -> u32 {
        if at == 0 { (self.places.len() as u32).saturating_sub(1) } else { at - 1 }
    }

    /// The frame at the tail, or [`NONE`].
    #[inline]
    pub(crate) fn oldest(&self) -> u32 {
        if self.len == 0 { NONE } else { self.places[self.tail as usize] }
    }

    /// The frame at the head, or [`NONE`].
    #[inline]
    pub(crate) fn newest(&self) -> u32 {
        if self.len == 0 { NONE } else { self.places[self.before(self.end) as usize] }
    }

    /// The frames from the tail to the head in two parts, with [`NONE`] where one has left.
    #[inline]
    pub(crate) fn places(&self) -> [&[u32]; 2] {
        let (tail, end) = (self.tail as usize, self.end as usize);
        if tail <= end { [&self.places[tail..end], &[]] } else { [&self.places[tail..], &self.places[..end]] }
    }

    /// The frames from the tail to the head.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let [first, second] = self.places();
        first.iter().chain(second).copied().filter(|&frame| frame != NONE)
    }

    #[inline]
    pub(crate) fn push_head(&mut self, frames: &mut [Frame], frame: u32) {
        let mut next = self.after(self.end);
        if next == self.tail {
            self.resize(frames);
            next = self.after(self.end);
        }
        let at = std::mem::replace(&mut self.end, next);
        self.put(frames, frame, at);
    }

    pub(crate) fn push_tail(&mut self, frames: &mut [Frame], frame: u32) {
        if self.before(self.tail) == self.end {
            self.resize(frames);
        }
        self.tail = self.before(self.tail);
        self.put(frames, frame, self.tail);
    }

    #[inline]
    fn put(&mut self, frames: &mut [Frame], frame: u32, at: u32) {
        self.places[at as usize] = frame;
        frames[frame as usize].at = at;
        self.len += 1;
    }

    /// Takes a frame off the list. It is usually the one at the tail.
    #[inline]
    pub(crate) fn remove(&mut self, frames: &mut [Frame], frame: u32) {
        let at = frames[frame as usize].at;
        self.places[at as usize] = NONE;
        self.len -= 1;
        if at == self.tail {
            self.skip_empty_tail();
        } else if self.after(at) == self.end {
            self.end = at;
            while self.places[self.before(self.end) as usize] == NONE {
                self.end = self.before(self.end);
            }
        }
        if self.places.len() as u64 > 2 * self.len + SPARE {
            self.resize(frames);
        }
    }

    /// Moves the tail past empty places, to the next frame.
    #[inline]
    fn skip_empty_tail(&mut self) {
        while self.tail != self.end && self.places[self.tail as usize] == NONE {
            self.tail = self.after(self.tail);
        }
    }

    /// Takes the frames at the tail off, as many as there is room for in `taken`; returns their number.
    pub(crate) fn take_tail(&mut self, taken: &mut [u32]) -> usize {
        let count = taken.len().min(self.len as usize);
        let (mut at, mut found) = (self.tail, 0);
        while found < count {
            let frame = std::mem::replace(&mut self.places[at as usize], NONE);
            at = self.after(at);
            if frame != NONE {
                taken[found] = frame;
                found += 1;
            }
        }
        self.tail = at;
        self.skip_empty_tail();
        self.len -= count as u64;
        count
    }

    /// Gives the frames new places, with no empty ones between them and some in reserve.
    #[cold]
    fn resize(&mut self, frames: &mut [Frame]) {
        let room = self.len + self.len / 2 + SPARE / 2;
        if self.tail == 0 && u64::from(self.end) == self.len && room as usize > self.places.len() {
            // The frames are in good order and stay where they are.
            self.places.reserve_exact(room as usize - self.places.len());
            self.places.resize(room as usize, NONE);
            return;
        }
        let mut places = Vec::with_capacity(room as usize);
        places.extend(self.iter());
        for (at, &frame) in (0..).zip(&places) {
            frames[frame as usize].at = at;
        }
        (self.tail, self.end) = (0, places.len() as u32);
        places.resize(room as usize, NONE);
        self.places = places;
    }

    /// Whether a frame is at the place that it names.
    pub(crate) fn is_at(&self, frame: u32, f: &Frame) -> bool {
        self.places.get(f.at as usize) == Some(&frame)
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<u32>()
    }
}
