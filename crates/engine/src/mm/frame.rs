//! Page frames, page-table entries and the lists that frames are on.
//!
//! A frame takes 16 bytes and the entry of the page that it holds 4. The entry is page table and page cache
//! at once: the accessed and dirty bits of a resident page are in it, so that touching the page is one load
//! and one store; when the page is gone it holds the swap slot or the shadow.

use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, Zeroable};

/// "No frame" at the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// One page frame (`struct page`).
#[derive(Clone, Copy, Debug, Default, Zeroable)]
#[repr(C)]
pub(crate) struct Frame {
    /// Towards the tail of its list; for a free frame the next free one plus 1.
    pub(crate) next: u32,
    /// Towards the head of its list.
    pub(crate) prev: u32,
    /// Which entry holds it: the page's identity.
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
    /// `PG_dirty`; for mapped pages the entry's bit is added to it when the page is unmapped.
    pub(crate) const DIRTY: u32 = 1 << 14;
    /// `PG_writeback`
    pub(crate) const WRITEBACK: u32 = 1 << 15;
    /// Being read: not up to date.
    pub(crate) const LOCKED: u32 = 1 << 16;
    /// `PG_swapbacked`: belongs to the anonymous lists.
    pub(crate) const ANON: u32 = 1 << 17;
    /// `PG_swapcache`: has a swap slot.
    pub(crate) const SWAPCACHE: u32 = 1 << 18;
    /// `PG_reclaim`: to be freed when its write ends.
    pub(crate) const RECLAIM: u32 = 1 << 19;
    /// `PG_readahead`: reading it starts the next window.
    pub(crate) const READAHEAD: u32 = 1 << 20;
    /// `PG_workingset`: had been active.
    pub(crate) const WORKINGSET: u32 = 1 << 21;
    /// `PG_mlocked`
    pub(crate) const MLOCKED: u32 = 1 << 22;
    /// Accessed through another page table than the one in the entry.
    pub(crate) const OTHER: u32 = 1 << 23;
    /// Owned by the kernel itself: on no list, never reclaimed.
    pub(crate) const KERNEL: u32 = 1 << 24;
    /// References by system calls with MGLRU, 0 to 3.
    pub(crate) const REFS_SHIFT: u32 = 25;
    pub(crate) const REFS: u32 = 3 << REFS_SHIFT;
    /// Brought in by swap readahead and not used yet.
    pub(crate) const SWAP_RA: u32 = 1 << 27;
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
}

/// A page-table entry and page-cache slot.
pub(crate) mod entry {
    /// In a page table.
    pub(crate) const MAPPED: u32 = 1 << 31;
    /// Accessed since the bit was cleared last; only if mapped.
    pub(crate) const ACCESSED: u32 = 1 << 30;
    /// May be written, and has been; only if mapped.
    pub(crate) const DIRTY: u32 = 1 << 29;
    /// Frame number, swap slot or shadow.
    pub(crate) const VALUE: u32 = (1 << 29) - 1;
    const KIND: u32 = 3 << 29;
    /// Gone; the value is a [`workingset`](super::super::workingset) shadow.
    pub(crate) const SHADOW: u32 = 1 << 29;
    /// Swapped out; the value is the slot.
    pub(crate) const SWAP: u32 = 2 << 29;
    /// In memory, in no page table.
    pub(crate) const RESIDENT: u32 = 3 << 29;
    /// On disk, and nothing is known about its eviction.
    pub(crate) const ON_DISK: u32 = SHADOW | VALUE;
    /// Never touched: zeroes.
    pub(crate) const EMPTY: u32 = 0;

    /// What an entry says.
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

    /// The frame, if the page is in memory.
    pub(crate) fn frame(entry: u32) -> Option<u32> {
        (entry & MAPPED != 0 || entry & KIND == RESIDENT).then_some(entry & VALUE)
    }
}

/// Entries of 64 KiB of an object: what a fault looks around at is in one line of the caches.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
struct Around([u32; 16]);

/// The entries of all objects, by slot.
#[derive(Debug, Default)]
pub(crate) struct Entries(Vec<Around>);

impl Entries {
    /// Adds `count` empty ones, a multiple of 16.
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
    /// MGLRU: generation `g` (sequence modulo 4) of type `t` (0 anonymous, 1 file) is list 6 + 2g + t.
    pub(crate) const FIRST_GENERATION: usize = 6;
    /// How many there are.
    pub(crate) const COUNT: usize = 14;

    pub(crate) fn classic(anon: bool, active: bool) -> usize {
        match (anon, active) {
            (true, false) => INACTIVE_ANON,
            (true, true) => ACTIVE_ANON,
            (false, false) => INACTIVE_FILE,
            (false, true) => ACTIVE_FILE,
        }
    }
    pub(crate) fn is_active(list: usize) -> bool {
        list == ACTIVE_ANON || list == ACTIVE_FILE
    }
}

/// A doubly linked list of frames: pages enter at the head and are reclaimed from the tail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) len: u64,
}

impl Default for List {
    fn default() -> Self {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

impl List {
    pub(crate) fn push_head(&mut self, frames: &mut [Frame], frame: u32) {
        let head = self.head;
        let f = &mut frames[frame as usize];
        f.next = head;
        f.prev = NONE;
        if head == NONE {
            self.tail = frame;
        } else {
            frames[head as usize].prev = frame;
        }
        self.head = frame;
        self.len += 1;
    }

    pub(crate) fn push_tail(&mut self, frames: &mut [Frame], frame: u32) {
        let tail = self.tail;
        let f = &mut frames[frame as usize];
        f.prev = tail;
        f.next = NONE;
        if tail == NONE {
            self.head = frame;
        } else {
            frames[tail as usize].next = frame;
        }
        self.tail = frame;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, frames: &mut [Frame], frame: u32) {
        let Frame { next, prev, .. } = frames[frame as usize];
        if prev == NONE {
            self.head = next;
        } else {
            frames[prev as usize].next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            frames[next as usize].prev = prev;
        }
        self.len -= 1;
    }
}
