//! Free pages by order and migrate type (`struct free_area`; `mm/page_alloc.c`: `__rmqueue`,
//! `__free_one_page`).
//!
//! The pages of a pageblock are of one type: pages that can be moved, which are all pages of users, the
//! kernel's pages that can be reclaimed, or those that cannot. A request for which its own type has no free
//! page takes one of another type, from the largest free block, and if it can the whole pageblock
//! (`__rmqueue_fallback`). Whenever it cannot have a free block of a whole pageblock, the zone's watermarks
//! are boosted, so that kswapd keeps more free and the next such request finds one (5.0, 1c30844d2dfe).
//!
//! Of the kernel's own requests there are those for slabs (`slab.rs`). Not modelled: page tables, network
//! buffers, descriptors of the device's requests and whatever else the kernel takes while programs run;
//! the high-atomic reserve. ZONE_DMA is boosted less often than in a kernel.

use lotsfree_units::PageSize;

use super::frame::{Frame, Frames, NONE, flag, list};
use super::mmzone::Zone;
use crate::generation::Fallback;

/// The most orders that any page size has: those of arm64 with 64 KiB.
const ORDERS: usize = 14;

/// Sizes of free blocks, as orders, which follow from the size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orders {
    /// `MAX_PAGE_ORDER`: the largest free block.
    pub(super) max: usize,
    /// `pageblock_order`: the pages that are of one migrate type, which are those of a huge page.
    pub(super) pageblock: usize,
}

impl Orders {
    /// A pageblock has 2 MiB on x86-64, where blocks of twice that are kept. On arm64 with pages of 16 and 64
    /// KiB it has 32 and 512 MiB, and no block is larger (`ARCH_FORCE_MAX_ORDER` of `arch/arm64/Kconfig`, 11
    /// and 13; `FORCE_MAX_ZONEORDER` counts one more).
    pub(super) const fn of(page: PageSize) -> Self {
        let pageblock = page.pages(page.pmd_huge()).trailing_zeros() as usize;
        let max = if page.shift() == PageSize::X86.shift() { 10 } else { pageblock };
        Orders { max, pageblock }
    }

    /// `pageblock_nr_pages`
    pub(super) const fn pageblock_pages(self) -> u32 {
        1 << self.pageblock
    }
}

/// `enum migratetype`, as far as there are lists for each CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MigrateType {
    Unmovable,
    Movable,
    Reclaimable,
}

/// The number of types.
pub(super) const TYPES: usize = 3;

impl MigrateType {
    pub(super) const ALL: [MigrateType; TYPES] =
        [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];

    /// The types from which a request takes pages that its own lacks, the first one first (`fallbacks`).
    fn fallbacks(self) -> [MigrateType; 2] {
        use MigrateType::{Movable, Reclaimable, Unmovable};
        match self {
            Unmovable => [Reclaimable, Movable],
            Movable => [Reclaimable, Unmovable],
            Reclaimable => [Unmovable, Movable],
        }
    }

    fn of(bits: u32) -> Self {
        Self::ALL[bits as usize % TYPES]
    }
}

/// A request for pages as the free lists see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: MigrateType,
    pub(super) order: u8,
    /// What a request does that finds no page of its own type.
    pub(super) fallback: Fallback,
    /// It takes no more than whole pageblocks from other types (`ALLOC_NOFRAGMENT`).
    pub(super) nofragment: bool,
    /// kswapd is woken if it boosts the watermarks (`ALLOC_KSWAPD`).
    pub(super) wakes: bool,
}

/// The free lists of a zone. A free block is on its list by its first frame, which names the frames before
/// and after it, its order and the list's type.
#[derive(Debug)]
pub(crate) struct FreeArea {
    pub(super) sizes: Orders,
    heads: [[u32; ORDERS]; TYPES],
    tails: [[u32; ORDERS]; TYPES],
    /// By type, the orders of which there are blocks, as bits.
    orders: [u16; TYPES],
}

/// The order of a free block and the type of its list, if the frame is the block's first.
#[inline]
fn block(f: &Frame) -> Option<(usize, MigrateType)> {
    let order = (f.flags >> flag::ORDER_SHIFT) as usize;
    let free = f.flags & (flag::BUDDY | flag::USED) == flag::BUDDY;
    free.then(|| (order, MigrateType::of(f.flags >> flag::TYPE_SHIFT & 3)))
}

/// Makes a frame the first of a free block between two others.
#[inline]
fn mark(f: &mut Frame, order: usize, kind: MigrateType, (after, before): (u32, u32)) {
    f.flags |= flag::BUDDY | (order as u32) << flag::ORDER_SHIFT | (kind as u32) << flag::TYPE_SHIFT;
    (f.at, f.slot) = (after, before);
}

impl FreeArea {
    /// The lists of a zone without free pages.
    pub(super) fn new(sizes: Orders) -> Self {
        let (heads, tails) = ([[NONE; ORDERS]; TYPES], [[NONE; ORDERS]; TYPES]);
        FreeArea { sizes, heads, tails, orders: [0; TYPES] }
    }

    /// Adds a free block to the head of its list.
    #[inline]
    fn add(&mut self, frames: &mut Frames, frame: u32, order: usize, kind: MigrateType) {
        let after = std::mem::replace(&mut self.heads[kind as usize][order], frame);
        if after == NONE {
            self.orders[kind as usize] |= 1 << order;
            self.tails[kind as usize][order] = frame;
        } else {
            frames[after as usize].slot = frame;
        }
        mark(&mut frames[frame as usize], order, kind, (after, NONE));
    }

    /// Adds a free block to the tail of its list.
    #[inline]
    fn add_tail(&mut self, frames: &mut Frames, frame: u32, order: usize, kind: MigrateType) {
        let before = std::mem::replace(&mut self.tails[kind as usize][order], frame);
        if before == NONE {
            self.orders[kind as usize] |= 1 << order;
            self.heads[kind as usize][order] = frame;
        } else {
            frames[before as usize].at = frame;
        }
        mark(&mut frames[frame as usize], order, kind, (NONE, before));
    }

    /// Takes the block at the head of a list off it.
    #[inline]
    fn pop(&mut self, frames: &mut Frames, order: usize, kind: MigrateType) -> u32 {
        let frame = self.heads[kind as usize][order];
        let f = &mut frames[frame as usize];
        f.flags &= flag::ZONE;
        let after = f.at;
        self.heads[kind as usize][order] = after;
        if after == NONE {
            self.orders[kind as usize] &= !(1 << order);
            self.tails[kind as usize][order] = NONE;
        } else {
            frames[after as usize].slot = NONE;
        }
        frame
    }

    /// Takes a free block, of which this is the first frame, off its list.
    #[inline]
    fn del(&mut self, frames: &mut Frames, frame: u32) {
        let f = &mut frames[frame as usize];
        let Some((order, kind)) = block(f) else { return };
        let (after, before) = (f.at, f.slot);
        if before == NONE {
            self.pop(frames, order, kind);
            return;
        }
        f.flags &= flag::ZONE;
        frames[before as usize].at = after;
        match after {
            NONE => self.tails[kind as usize][order] = before,
            after => frames[after as usize].slot = before,
        }
    }

    /// The smallest order of at least `order` of which a type has a block.
    #[inline]
    fn smallest(&self, kind: MigrateType, order: usize) -> Option<usize> {
        let orders = self.orders[kind as usize] >> order;
        (orders != 0).then(|| order + orders.trailing_zeros() as usize)
    }

    /// The type that a request of `kind` falls back to in blocks of an order (`find_suitable_fallback`).
    fn other(&self, kind: MigrateType, order: usize) -> Option<MigrateType> {
        kind.fallbacks().into_iter().find(|&other| self.orders[other as usize] >> order & 1 == 1)
    }

    /// Splits off the first `count` pages of a free block that is on no list (`expand`).
    #[inline]
    fn expand(&mut self, frames: &mut Frames, frame: u32, order: usize, count: u32, kind: MigrateType) {
        let mut at = count;
        while at < 1 << order {
            let part = at.trailing_zeros() as usize;
            self.add(frames, frame + at, part, kind);
            at += 1 << part;
        }
    }

    /// Adds pages that have just got their numbers.
    fn add_fresh(&mut self, frames: &mut Frames, fresh: std::ops::Range<u32>) {
        let mut at = fresh.start;
        while at < fresh.end {
            let fits = (fresh.end - at).ilog2() as usize;
            let order = fits.min(at.trailing_zeros() as usize).min(self.sizes.max);
            self.add_tail(frames, at, order, MigrateType::Movable);
            at += 1 << order;
        }
    }

    /// Frees a block, which grows as long as the other half of the next larger one is free too
    /// (`__free_one_page`).
    #[inline(always)]
    pub(super) fn free_one(&mut self, frames: &mut Frames, frame: u32, order: usize, kind: MigrateType) {
        // A PC's sizes are known when this is compiled.
        const PC: Orders = Orders::of(PageSize::X86);
        match self.sizes {
            PC => self.free_one_of(frames, frame, order, (kind, PC)),
            sizes => self.free_one_of(frames, frame, order, (kind, sizes)),
        }
    }

    #[inline(always)]
    fn free_one_of(
        &mut self,
        frames: &mut Frames,
        mut frame: u32,
        mut order: usize,
        (kind, Orders { max, pageblock }): (MigrateType, Orders),
    ) {
        let is_free = |frames: &Frames, frame: u32, order: usize| {
            let wanted = flag::BUDDY | (order as u32) << flag::ORDER_SHIFT;
            frames[frame as usize].flags & (flag::BUDDY | flag::ORDER | flag::USED) == wanted
        };
        while order < max {
            let buddy = frame ^ 1 << order;
            if !is_free(frames, buddy, order) {
                break;
            }
            self.del(frames, buddy);
            frame &= !(1 << order);
            order += 1;
        }
        if order >= pageblock {
            frames.set_migrate_type(frame, 1 << order, kind);
        }
        // A block whose next larger one may soon be free is given out last (`buddy_merge_likely`).
        let larger = (frame & !(1 << order)) ^ 1 << (order + 1);
        if order + 1 < max && is_free(frames, larger, order + 1) {
            self.add_tail(frames, frame, order, kind);
        } else {
            self.add(frames, frame, order, kind);
        }
    }

    /// Whether a type has a free block of at least a pageblock.
    pub(super) fn has_pageblock(&self, kind: MigrateType) -> bool {
        self.orders[kind as usize] >> self.sizes.pageblock != 0
    }

    /// Moves a free block to the list of a type (`move_to_free_list`).
    fn move_to(&mut self, frames: &mut Frames, frame: u32, order: usize, kind: MigrateType) {
        self.del(frames, frame);
        self.add_tail(frames, frame, order, kind);
    }

    /// Moves the free blocks of a pageblock to the lists of a type (`move_freepages_block`), if `to` names
    /// one. Returns the numbers of its free pages and of its pages on LRU lists.
    fn pageblock(&mut self, frames: &mut Frames, frame: u32, to: Option<MigrateType>) -> (u32, u32) {
        let pages = self.sizes.pageblock_pages();
        let first = frame & !(pages - 1);
        let (mut at, mut free, mut movable) = (first, 0, 0);
        while at < first + pages {
            let f = &frames[at as usize];
            let Some((order, _)) = block(f) else {
                movable += u32::from(f.list() != list::NONE);
                at += 1;
                continue;
            };
            if let Some(kind) = to {
                self.move_to(frames, at, order, kind);
            }
            free += 1 << order;
            at += 1 << order;
        }
        (free, movable)
    }

    /// The free blocks as their first frames, orders and types, list by list.
    pub(super) fn blocks<'a>(
        &'a self,
        frames: &'a Frames,
    ) -> impl Iterator<Item = (u32, usize, MigrateType)> + 'a {
        let lists = MigrateType::ALL.into_iter().flat_map(|kind| (0..ORDERS).map(move |order| (kind, order)));
        lists.flat_map(move |(kind, order)| {
            let next = |frame: &u32| frames.get(*frame as usize).map(|f| f.at).filter(|&next| next != NONE);
            let first = Some(self.heads[kind as usize][order]).filter(|&first| first != NONE);
            std::iter::successors(first, next).map(move |frame| (frame, order, kind))
        })
    }

    /// Whether a frame is the first of a free block of that order on the list of that type.
    pub(super) fn is_block(f: &Frame, order: usize, kind: MigrateType) -> bool {
        block(f) == Some((order, kind))
    }
}

impl Zone {
    /// Takes single pages off the free lists, as many of `count` as there are (`rmqueue_bulk`). Those that
    /// were one block come in the order of addresses.
    pub(super) fn rmqueue_bulk(
        &mut self,
        frames: &mut Frames,
        request: Request,
        count: u64,
        taken: &mut Vec<u32>,
    ) {
        debug_assert_eq!(request.order, 0);
        let mut left = count as u32;
        // Once a page had to be taken from another type's pageblock, so are the others.
        let mut steals = false;
        while left > 0 {
            let own = if steals { None } else { self.smallest(frames, request) };
            let Some(order) = own else {
                let Some(frame) = self.fallback(frames, request, &mut steals) else { break };
                if steals {
                    taken.push(frame);
                    left -= 1;
                }
                continue;
            };
            let frame = self.area.pop(frames, order, request.kind);
            if order == 0 {
                taken.push(frame);
                left -= 1;
                continue;
            }
            let part = left.min(1 << order);
            self.area.expand(frames, frame, order, part, request.kind);
            taken.extend(frame..frame + part);
            left -= part;
        }
        self.free -= count - u64::from(left);
    }

    /// Frees a block past the CPUs' lists (`free_one_page`).
    pub(super) fn free_one_page(&mut self, frames: &mut Frames, frame: u32, order: usize) {
        let kind = frames.migrate_type(frame);
        self.area.free_one(frames, frame, order, kind);
        self.free += 1 << order;
    }

    /// Takes the free pages of a movable pageblock off the lists, one by one, unless all of it is free
    /// (`isolate_freepages_block`).
    pub(super) fn isolate_free_pages(&mut self, frames: &mut Frames, first: u32, taken: &mut Vec<u32>) {
        if frames.migrate_type(first) != MigrateType::Movable {
            return;
        }
        let pages = self.area.sizes.pageblock_pages();
        let mut at = first;
        while at < first + pages {
            match block(&frames[at as usize]) {
                Some((order, _)) if 1 << order >= pages => return,
                Some((order, _)) => {
                    self.area.del(frames, at);
                    self.free -= 1 << order;
                    taken.extend(at..at + (1 << order));
                    at += 1 << order;
                }
                None => at += 1,
            }
        }
    }

    /// Takes a block off the free lists (`__rmqueue`).
    pub(super) fn rmqueue(&mut self, frames: &mut Frames, request: Request) -> Option<u32> {
        let mut steals = false;
        loop {
            let Some(order) = self.smallest(frames, request) else {
                let frame = self.fallback(frames, request, &mut steals)?;
                if steals {
                    self.free -= 1 << request.order;
                    return Some(frame);
                }
                continue;
            };
            let frame = self.area.pop(frames, order, request.kind);
            self.area.expand(frames, frame, order, 1 << request.order, request.kind);
            self.free -= 1 << request.order;
            return Some(frame);
        }
    }

    /// The order of the smallest block of its own type that a request can have. All pages that were never
    /// used are movable.
    #[inline]
    fn smallest(&mut self, frames: &mut Frames, request: Request) -> Option<usize> {
        let least = request.order.into();
        let order = self.area.smallest(request.kind, least);
        if order.is_none() && request.kind == MigrateType::Movable && self.grow(frames) {
            return self.area.smallest(request.kind, least);
        }
        order
    }

    /// Adds the next pages without a number to the free lists; `false` if there are none.
    #[cold]
    fn grow(&mut self, frames: &mut Frames) -> bool {
        let fresh = frames.number(self.number, self.unnumbered);
        self.unnumbered -= u64::from(fresh.end - fresh.start);
        self.area.add_fresh(frames, fresh.clone());
        !fresh.is_empty()
    }

    /// Lets a request have a block of another type (`__rmqueue_fallback`): moves it, and what else of its
    /// pageblock may be had, to the lists of the request's type, or, where the pageblock stays what it is,
    /// takes the request's pages alone off the lists and sets `steals`. Returns the block's first frame.
    #[cold]
    fn fallback(&mut self, frames: &mut Frames, request: Request, steals: &mut bool) -> Option<u32> {
        let Request { kind, fallback, nofragment, .. } = request;
        let order = usize::from(request.order);
        let Orders { max, pageblock } = self.area.sizes;
        if self.area.orders[MigrateType::Movable as usize] >> max == 0 {
            // The largest blocks are those that were never used.
            self.grow(frames);
        }
        let least = if nofragment { pageblock } else { order };
        // A movable page that falls back does no lasting harm, and takes little (`can_steal_fallback`).
        let claims = |order: usize| order >= pageblock / 2 || kind != MigrateType::Movable;
        let mut largest = (least..=max).rev();
        match fallback {
            Fallback::Remainder => {
                let (mut of, mut other) = largest.find_map(|of| Some((of, self.area.other(kind, of)?)))?;
                if !claims(of) {
                    (of, other) = (order..=max).find_map(|of| Some((of, self.area.other(kind, of)?)))?;
                }
                let frame = self.area.heads[other as usize][of];
                self.steal_suitable_fallback(frames, frame, of, request, claims(of));
                Some(frame)
            }
            Fallback::BlockOrPage => {
                if !*steals {
                    for of in largest {
                        let Some(other) = self.area.other(kind, of) else { continue };
                        if !claims(of) {
                            break;
                        }
                        let frame = self.area.heads[other as usize][of];
                        if self.try_to_claim_block(frames, frame, of, request) {
                            return Some(frame);
                        }
                    }
                }
                if nofragment {
                    return None;
                }
                let (of, other) = (order..=max).find_map(|of| Some((of, self.area.other(kind, of)?)))?;
                let frame = self.area.heads[other as usize][of];
                self.area.del(frames, frame);
                self.area.expand(frames, frame, of, 1 << order, other);
                *steals = true;
                Some(frame)
            }
        }
    }

    /// Moves a free block to the lists of a type, and the other free pages of its pageblock with it if
    /// `whole`. The pageblock changes its type if most of it is free or of the new type already.
    fn steal_suitable_fallback(
        &mut self,
        frames: &mut Frames,
        frame: u32,
        order: usize,
        Request { kind, wakes, .. }: Request,
        whole: bool,
    ) {
        let old = frames.migrate_type(frame);
        if order >= self.area.sizes.pageblock {
            frames.set_migrate_type(frame, 1 << order, kind);
        } else {
            self.boost_watermark(wakes);
            if whole {
                let (free, movable) = self.area.pageblock(frames, frame, Some(kind));
                let pages = self.area.sizes.pageblock_pages();
                if is_mostly(pages, (free, movable), old, kind) {
                    frames.set_migrate_type(frame, pages, kind);
                }
                return;
            }
        }
        self.area.move_to(frames, frame, order, kind);
    }

    /// Turns the pageblock of a free block into one of a type, if most of it is free or of that type already.
    fn try_to_claim_block(
        &mut self,
        frames: &mut Frames,
        frame: u32,
        order: usize,
        Request { kind, wakes, .. }: Request,
    ) -> bool {
        let old = frames.migrate_type(frame);
        if order >= self.area.sizes.pageblock {
            frames.set_migrate_type(frame, 1 << order, kind);
            self.area.move_to(frames, frame, order, kind);
            return true;
        }
        self.boost_watermark(wakes);
        let (free, movable) = self.area.pageblock(frames, frame, None);
        let pages = self.area.sizes.pageblock_pages();
        let claims = is_mostly(pages, (free, movable), old, kind);
        if claims {
            self.area.pageblock(frames, frame, Some(kind));
            frames.set_migrate_type(frame, pages, kind);
        }
        claims
    }

    /// Raises the watermarks by a pageblock, up to a limit (`boost_watermark`).
    fn boost_watermark(&mut self, wakes: bool) {
        if self.max_boost > 0 {
            self.boost = (self.boost + u64::from(self.area.sizes.pageblock_pages())).min(self.max_boost);
            self.boosted |= wakes;
        }
    }
}

/// Whether at least half of a pageblock of `pages` pages is free or compatible with a type, given its free
/// pages and those on LRU lists. Others may be of any type but movable.
fn is_mostly(pages: u32, (free, movable): (u32, u32), old: MigrateType, kind: MigrateType) -> bool {
    let alike = match (kind, old) {
        (MigrateType::Movable, _) => movable,
        (_, MigrateType::Movable) => pages - free - movable,
        _ => 0,
    };
    free + alike >= pages / 2
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Mm};
    use super::*;
    use crate::Generation;

    const PAGEBLOCK: u32 = Orders::of(PageSize::X86).pageblock_pages();
    const KINDS: [MigrateType; 2] = [MigrateType::Movable, MigrateType::Reclaimable];

    /// A machine of 1 GiB whose ZONE_DMA32 has all its pages in the hands of users but the `free` first ones
    /// of a pageblock, none of which was ever free for another type than movable.
    fn nearly_full(kernel: &str, free: u32) -> (Mm, u32) {
        let mut config = Config::new(Generation::named(kernel).unwrap(), vec![1 << 18]);
        config.kernel_pages = Some(vec![0]);
        let mut mm = Mm::new(&config);
        let request = mm.generation.request(MigrateType::Movable);
        let (zone, mut taken) = (&mut mm.zones[1], Vec::new());
        zone.rmqueue_bulk(&mut mm.frames, request, zone.free, &mut taken);
        assert_eq!((zone.free, taken.len() as u64), (0, zone.managed));
        let first = taken[5000] & !(PAGEBLOCK - 1);
        for frame in &taken {
            mm.frames[*frame as usize].flags |= flag::USED | list::INACTIVE_FILE as u32;
        }
        for frame in first..first + free {
            mm.frames[frame as usize].flags &= flag::ZONE;
            zone.free_one_page(&mut mm.frames, frame, 0);
        }
        (mm, first)
    }

    /// Takes `count` reclaimable pages of ZONE_DMA32, and returns them.
    fn reclaimable(mm: &mut Mm, count: u64) -> Vec<u32> {
        let (request, mut taken) = (mm.generation.request(MigrateType::Reclaimable), Vec::new());
        mm.zones[1].rmqueue_bulk(&mut mm.frames, request, count, &mut taken);
        taken
    }

    #[test]
    fn free_neighbours_become_one_block_again() {
        let (mm, first) = nearly_full("linux-6.1", 300);
        let blocks: Vec<_> = mm.zones[1].area.blocks(&mm.frames).collect();
        // 256 and 32 and 8 and 4 pages.
        let expected =
            [(296, 2), (288, 3), (256, 5), (0, 8)].map(|(at, order)| (first + at, order, KINDS[0]));
        assert_eq!(blocks, expected);
    }

    #[test]
    fn a_whole_pageblock_changes_hands_without_a_boost() {
        for kernel in ["linux-6.1", "linux-6.12"] {
            let (mut mm, first) = nearly_full(kernel, PAGEBLOCK);
            assert_eq!(reclaimable(&mut mm, 1), [first], "{kernel}");
            assert_eq!((mm.frames.migrate_type(first), mm.zones[1].boost), (KINDS[1], 0), "{kernel}");
            let others = mm.zones[1].area.blocks(&mm.frames).all(|(_, _, kind)| kind == KINDS[1]);
            assert!(others, "{kernel}: the other pages go with it");
        }
    }

    #[test]
    fn less_than_a_pageblock_boosts_the_watermarks() {
        // With half of it free, the pageblock becomes reclaimable. With less, 6.1 takes its free pages and
        // 6.12 the one that it needs.
        for (kernel, free, becomes, left) in [
            ("linux-6.1", 256, KINDS[1], KINDS[1]),
            ("linux-6.12", 256, KINDS[1], KINDS[1]),
            ("linux-6.1", 255, KINDS[0], KINDS[1]),
            ("linux-6.12", 255, KINDS[0], KINDS[0]),
        ] {
            let (mut mm, first) = nearly_full(kernel, free);
            let low = mm.zones[1].low_wmark_pages();
            reclaimable(&mut mm, 1);
            let zone = &mm.zones[1];
            assert_eq!(mm.frames.migrate_type(first), becomes, "{kernel}, {free}");
            assert!(zone.area.blocks(&mm.frames).all(|(_, _, kind)| kind == left), "{kernel}, {free}");
            assert!(zone.boosted && zone.boost >= u64::from(PAGEBLOCK), "{kernel}, {free}: {}", zone.boost);
            assert_eq!(zone.low_wmark_pages(), low + zone.boost, "{kernel}, {free}");
            assert!(zone.boost <= zone.max_boost, "{kernel}, {free}");
        }
        // Kernels before 5.0 do not boost.
        let (mut mm, _) = nearly_full("linux-4.4", 255);
        reclaimable(&mut mm, 1);
        assert!(!mm.zones[1].boosted && mm.zones[1].boost == 0);
    }

    #[test]
    fn a_request_that_spares_pageblocks_finds_nothing_less_than_one() {
        for kernel in ["linux-6.1", "linux-6.12"] {
            let (mut mm, _) = nearly_full(kernel, PAGEBLOCK - 1);
            let request = Request { nofragment: true, ..mm.generation.request(KINDS[1]) };
            let zone = &mut mm.zones[1];
            assert_eq!((zone.rmqueue(&mut mm.frames, request), zone.boost), (None, 0), "{kernel}");
            let request = Request { nofragment: false, ..request };
            assert!(zone.rmqueue(&mut mm.frames, request).is_some(), "{kernel}");
        }
    }
}
