//! The seam between memory management and the policy that decides which pages stay in memory.
//!
//! ```text
//!  filemap, memory, swap ── insert, touch ──▶ Policy ◀── background pass ── kswapd
//!   swap, workingset ── evicted, refaulted ──▶  │  ◀── may_allocate, stall ── page_alloc
//!                                               │
//!            vmscan: ShrinkLruvec ── shrink_lruvec ──▶ the policy's lists ──▶ vmscan: shrink_page, evict
//! ```
//!
//! A policy is one file with a unit struct that implements [`Policy`]; the constructor of a
//! [`Generation`](crate::Generation) names it. It keeps what it knows of an lruvec in a state of its own
//! ([`Policy::state`]), and how far it has come with one in a pass of its own ([`under_way`]). Everything
//! else asks the policy and never which one it is.
//!
//! Linux has two: the active and inactive lists ([`two_lists`](super::two_lists)) and the multi-generational
//! LRU ([`mglru`](super::mglru)). Two of the textbook's, [`lru`](super::lru) and [`clock`](super::clock), are
//! there to compare these with.

use std::any::Any;
use std::fmt::Debug;

use lotsfree_units::Bytes;

use super::clock::Clock;
use super::frame::{flag, list};
use super::kswapd::Kswapd;
use super::lru::Lru;
use super::mmzone::Lruvec;
use super::page_alloc::{AllocContext, Watermark};
use super::vmscan::{ScanControl, ShrinkLruvec};
use super::vmstat::REFAULT;
use super::{Cx, DEF_PRIORITY, Mm, Wait};
use crate::Generation;

/// The textbook's policies, by name.
pub(crate) const REFERENCES: [&dyn Policy; 2] = [&Lru, &Clock];

/// Something of a policy's that others keep for it.
pub(crate) trait Kept: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> Kept for T {}

/// How a page came into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Anonymous memory that is touched for the first time.
    Touched,
    /// Shared memory that is touched for the first time.
    Shared,
    /// A page of a file that is read or written. `refault` says that its return is recent
    /// ([`Policy::refaulted`]).
    File { refault: bool },
    /// A page that comes from swap.
    SwappedIn { refault: bool },
}

/// What the shadow of an evicted page says (`mm/workingset.c:unpack_shadow`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shadow {
    /// The lruvec that it was evicted from.
    pub(crate) lruvec: usize,
    /// The lowest bits of what [`Policy::evicted`] returned, and the number of these bits.
    pub(crate) clock: u32,
    pub(crate) bits: u32,
    /// The page had been active.
    pub(crate) workingset: bool,
}

/// Decides which pages stay in memory, and who waits for room.
pub(crate) trait Policy: Debug + Sync {
    /// What distinguishes the policy from others.
    fn name(&self) -> &'static str;

    /// `/sys/kernel/mm/lru_gen/enabled`
    fn lru_gen_enabled(&self) -> u32 {
        0
    }

    /// Lists that the policy has for each zone, beside the classic ones of each lruvec.
    fn lists_per_zone(&self) -> usize {
        0
    }

    /// What the policy remembers of an lruvec, as it is after boot of a kernel. `size` is that of the
    /// lruvec's zones.
    fn state(&self, _generation: &Generation, _size: Bytes) -> Box<dyn Kept> {
        Box::new(())
    }

    /// Lets reclaim know what was counted of an lruvec since the last time, where it does not by itself.
    fn flush_stats(&self, _mm: &mut Mm, _lruvec: usize) {}

    /// Puts a page on a list after it has come into memory.
    fn insert(&self, mm: &mut Mm, frame: u32, _arrival: Arrival) {
        mm.lru_add(frame, self.list_to_reclaim(mm, frame));
    }

    /// Whether accesses through page tables are touches too. Otherwise they leave their bit in the entry.
    fn sees_every_access(&self) -> bool {
        false
    }

    /// Notes that a system call has accessed a page (`mm/swap.c:mark_page_accessed`).
    fn touch(&self, mm: &mut Mm, frame: u32);

    /// Notes that a page is evicted. Returns the time that its shadow keeps, of which the lowest bits are
    /// handed to `refaulted`; `None` if the return of the page is to go unnoticed.
    fn evicted(&self, _mm: &mut Mm, _lruvec: usize, _frame: u32) -> Option<u64> {
        Some(0)
    }

    /// Notes that an evicted page comes back, and counts that. Returns whether the page is to be kept like
    /// one that was accessed often.
    fn refaulted(&self, mm: &mut Mm, frame: u32, _shadow: Shadow) -> bool {
        let kind = usize::from(!mm.frames[frame as usize].has(flag::ANON));
        mm.events[REFAULT[kind]] += 1;
        false
    }

    /// The list at whose tail a page is reclaimed soonest.
    fn list_to_reclaim(&self, mm: &Mm, frame: u32) -> usize {
        list::inactive(mm.frames[frame as usize].has(flag::ANON))
    }

    /// Shrinks an lruvec at the priority of `scan`, or goes on to do so with the pass that is
    /// [`under_way`], which is gone when it is done.
    ///
    /// # Errors
    /// The wait after which it is to be called again.
    fn shrink_lruvec(
        &self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        pass: &mut Option<Box<dyn Kept>>,
    ) -> Result<(), Wait>;

    /// Shrinks the file cache of an lruvec for a caller that does not sleep (`mm/pagecache_limit.rs`); with
    /// `active`, pages in active use too.
    fn shrink_file_cache(
        &self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        _active: bool,
    ) {
        let _ = ShrinkLruvec::default().poll(mm, cx, scan, lruvec);
        mm.end_plug(cx.task);
    }

    /// Ends a run of reclaim over an lruvec.
    fn end_run(&self, _mm: &mut Mm, _lruvec: usize) {}

    /// Whether the background pass of a node has to begin, for requests that may use zones up to `highest`.
    fn wants_background(&self, mm: &Mm, node: usize, highest: usize) -> bool {
        mm.is_wanted(node, highest)
    }

    /// Runs the background pass of a node for a slice. Returns what it waits for after that.
    fn background(&self, mm: &mut Mm, cx: &mut Cx, kswapd: &mut Kswapd) -> Wait {
        kswapd.run(mm, cx)
    }

    /// kswapd's first priority on a node.
    fn first_priority(&self, _mm: &Mm, _node: usize) -> u8 {
        DEF_PRIORITY
    }

    /// Whether kswapd forgets its fruitless runs without having made progress.
    fn forgets_failures(&self, _mm: &Mm) -> bool {
        false
    }

    /// Ages the pages of an lruvec before kswapd looks whether it has to be shrunk.
    fn age(&self, _mm: &mut Mm, _cx: &mut Cx, _scan: &ScanControl, _lruvec: usize) {}

    /// Whether kswapd has freed enough on a node that is not balanced yet.
    fn has_enough(&self, _mm: &Mm, _node: usize) -> bool {
        false
    }

    /// Whether the policy, rather than the zone's watermark, says when an allocation may take a page.
    fn has_own_marks(&self) -> bool {
        false
    }

    /// Whether an allocation may take a page of a zone without making room first, if the policy has its own
    /// marks.
    fn may_allocate(&self, _mm: &Mm, _zone: usize, _wmark: Watermark) -> bool {
        true
    }

    /// Reserves `pages` pages of anonymous memory for a process that is about to map them.
    ///
    /// # Errors
    /// The wait after which it is to be asked again.
    fn reserve(&self, _mm: &mut Mm, _cx: &mut Cx, _pages: u32) -> Result<(), Wait> {
        Ok(())
    }

    /// Frees the reservation of pages that are unmapped.
    fn unreserve(&self, _mm: &mut Mm, _pages: u32) {}

    /// How long an allocation that found no page has to wait, instead of reclaiming itself.
    fn stall(&self, _mm: &mut Mm, _cx: &Cx, _ac: &AllocContext) -> Option<Wait> {
        None
    }

    /// Whether pages of a list count as active where `/proc` knows active and inactive pages only.
    fn is_active(&self, _mm: &Mm, _lruvec: usize, list: usize) -> bool {
        list::is_active(list)
    }

    /// Verifies the state of an lruvec.
    ///
    /// # Errors
    /// Says what is not as it has to be.
    fn check(&self, _mm: &Mm, _lruvec: usize) -> Result<(), String> {
        Ok(())
    }
}

impl PartialEq for dyn Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Policy {}

/// The pass that is under way, which begins if there is none.
pub(super) fn under_way<T: Kept>(pass: &mut Option<Box<dyn Kept>>, begin: impl FnOnce() -> T) -> &mut T {
    let pass: &mut dyn Any = &mut **pass.get_or_insert_with(|| Box::new(begin()));
    pass.downcast_mut().expect("a pass goes on under the policy that began it")
}

impl Lruvec {
    /// What the policy remembers of the lruvec.
    #[inline]
    pub(super) fn state<T: Kept>(&self) -> &T {
        let state: &dyn Any = &*self.state;
        state.downcast_ref().expect("a machine has one policy")
    }

    #[inline]
    pub(super) fn state_mut<T: Kept>(&mut self) -> &mut T {
        let state: &mut dyn Any = &mut *self.state;
        state.downcast_mut().expect("a machine has one policy")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use lotsfree_workload::{Advice, Policy as NodePolicy, RegionId};

    use super::super::frame::entry;
    use super::super::page_alloc::HIGHEST;
    use super::super::vmscan::{Fate, ReclaimStat, Reclaimer, Tally};
    use super::super::vmstat::PGSCAN;
    use super::super::{Config, Fault, Madvise, Stop, WaitChannel, WaitReason};
    use super::*;

    const REGION: RegionId = RegionId(0);
    const PAGES: u32 = 20_000;

    /// A machine whose file is mapped and read at random.
    struct Host {
        mm: Mm,
        cx: Cx,
        kswapd: Kswapd,
        file: u32,
        /// Waits of faults for others to make room.
        stalls: u32,
    }

    impl Host {
        fn new(policy: &'static dyn Policy) -> Self {
            let generation = Generation { policy, ..Generation::linux_6_12() };
            let config = Config { instant_reads: true, ..Config::new(generation, vec![8192]) };
            let mut mm = Mm::new(&config);
            let (process, task) = (mm.create_process(NodePolicy::Local), mm.create_task());
            let mut cx = Cx::new(task, 0, process, 0);
            let file = mm.declare_file(PAGES, true);
            mm.map_file(&mut cx, REGION, file, PAGES, true).unwrap();
            Madvise::new(REGION, Advice::Random).poll(&mut mm, &mut cx).unwrap();
            Host { mm, cx, kswapd: Kswapd::new(0), file, stalls: 0 }
        }

        fn access(&mut self, page: u32) {
            if self.mm.touch_mapped(self.cx.process, REGION, [(page, false)]) == 1 {
                return;
            }
            let mut fault = Fault::new(REGION, page, false);
            while let Err(stop) = fault.poll(&mut self.mm, &mut self.cx) {
                let Stop::Wait(wait) = stop else { panic!("{stop:?}") };
                self.stalls += u32::from(wait.channel == Some(WaitChannel::Progress(0)));
                self.kswapd();
            }
        }

        /// Lets kswapd run until it sleeps, if it was woken.
        fn kswapd(&mut self) {
            let woken: Vec<_> = self.mm.take_events().collect();
            if woken.contains(&WaitChannel::Kswapd(0)) {
                while self.kswapd.poll(&mut self.mm, &mut self.cx).why == WaitReason::Yield {
                    self.cx.spent = 0;
                }
            }
        }

        fn resident(&self) -> BTreeSet<u32> {
            let base = self.mm.objects[self.file].base;
            (0..PAGES)
                .filter(|page| entry::frame(self.mm.entries[(base + page) as usize]).is_some())
                .collect()
        }
    }

    /// Pages of which some are accessed much more often than others.
    fn trace(accesses: usize) -> impl Iterator<Item = u32> {
        let mut random = 88_172_645_463_325_252_u64;
        std::iter::repeat_with(move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let share = (random >> 11) as f64 / (1u64 << 53) as f64;
            (f64::from(PAGES).powf(share) - 1.0) as u32
        })
        .take(accesses)
    }

    #[test]
    fn lru_keeps_the_pages_that_were_accessed_last() {
        let mut host = Host::new(&Lru);
        let mut order: VecDeque<u32> = VecDeque::new();
        for (number, page) in trace(60_000).enumerate() {
            host.access(page);
            if let Some(at) = order.iter().rposition(|&other| other == page) {
                order.remove(at);
            }
            order.push_back(page);
            host.kswapd();
            if number % 1000 == 999 {
                let resident = host.resident();
                let last = order.iter().rev().take(resident.len()).copied().collect();
                assert!(resident == last, "after {number} accesses");
                assert_eq!(host.mm.check(), Ok(()));
            }
        }
        assert!(host.resident().len() < 8192, "pages were evicted");
        assert!(host.mm.events.sum(&REFAULT) > 1000, "{}", host.mm.events.sum(&REFAULT));
    }

    #[test]
    fn clock_s_hand_passes_the_pages_in_the_textbook_s_order() {
        let mut host = Host::new(&Clock);
        // Pages with their bits, the hand at the front.
        let mut ring: VecDeque<(u32, bool)> = VecDeque::new();
        let scanned = |host: &Host| host.mm.events.sum(&PGSCAN);
        let mut evicted = 0;
        for (number, page) in trace(60_000).enumerate() {
            let before = scanned(&host);
            host.access(page);
            for _ in before..scanned(&host) {
                match ring.pop_front().unwrap() {
                    (other, true) => ring.push_back((other, false)),
                    (_, false) => evicted += 1,
                }
            }
            match ring.iter_mut().find(|(other, _)| *other == page) {
                Some((_, bit)) => *bit = true,
                None => ring.push_back((page, true)),
            }
            if number % 1000 == 999 {
                let kept = ring.iter().map(|&(page, _)| page).collect();
                assert!(host.resident() == kept, "after {number} accesses");
                assert_eq!(host.mm.check(), Ok(()));
            }
        }
        assert!(evicted > 10_000, "{evicted}");
    }

    /// A clock whose two hands pass over frames rather than lists, with a threshold of its own below which
    /// allocations sleep, and a reservation of anonymous memory that makes callers sleep too.
    #[derive(Debug)]
    struct TwoHands;

    #[derive(Debug, Default)]
    struct Hands {
        front: u32,
        promised: u64,
    }

    impl TwoHands {
        /// Free pages below which the hands move, and below which allocations sleep.
        const LOTSFREE: u64 = 400;
        const THROTTLEFREE: u64 = 100;
        /// Frames between the hands.
        const HANDSPREAD: u32 = 512;
        /// Pages that may be promised.
        const MOST: u64 = 1000;

        fn free(mm: &Mm) -> u64 {
            mm.zones.iter().map(|zone| zone.free).sum()
        }
    }

    impl Policy for TwoHands {
        fn name(&self) -> &'static str {
            "two hands"
        }
        fn state(&self, _generation: &Generation, _size: Bytes) -> Box<dyn Kept> {
            Box::new(Hands::default())
        }
        fn touch(&self, mm: &mut Mm, frame: u32) {
            mm.frames[frame as usize].flags |= flag::OTHER;
        }
        fn shrink_lruvec(
            &self,
            _mm: &mut Mm,
            _cx: &mut Cx,
            _scan: &mut ScanControl,
            _lruvec: usize,
            _pass: &mut Option<Box<dyn Kept>>,
        ) -> Result<(), Wait> {
            panic!("only the hands reclaim");
        }
        fn wants_background(&self, mm: &Mm, _node: usize, _highest: usize) -> bool {
            Self::free(mm) < Self::LOTSFREE
        }
        fn background(&self, mm: &mut Mm, cx: &mut Cx, kswapd: &mut Kswapd) -> Wait {
            let node = kswapd.node;
            mm.take_wakeup(node);
            if !self.wants_background(mm, node, HIGHEST) {
                return Wait { channel: Some(WaitChannel::Kswapd(node)), until: None, why: WaitReason::Idle };
            }
            let frames = mm.frames.len() as u32;
            let mut scan = ScanControl::new(Reclaimer::Kswapd, 0, u64::MAX);
            for _ in 0..32 {
                let hands: &mut Hands = mm.lruvecs[0].state_mut();
                let front = hands.front;
                hands.front = (front + 1) % frames;
                let on_list = |mm: &Mm, frame: u32| mm.frames[frame as usize].list() != list::NONE;
                if on_list(mm, front) {
                    mm.test_clear_young(cx, front);
                }
                let back = (front + frames - Self::HANDSPREAD) % frames;
                if on_list(mm, back) {
                    let f = mm.frames[back as usize];
                    let mut tally = Tally::new(&mm.lruvecs[0]);
                    tally.scanned(f.zone());
                    let fate = mm.shrink_page(cx, &scan, 0, back, &mut ReclaimStat::default());
                    if fate == Fate::Freed {
                        tally.freed(f.zone());
                    }
                    mm.note_scanned(&mut scan, usize::from(!f.has(flag::ANON)), &tally);
                }
            }
            mm.freed_news(node);
            Wait::YIELD
        }
        fn has_own_marks(&self) -> bool {
            true
        }
        fn may_allocate(&self, mm: &Mm, zone: usize, wmark: Watermark) -> bool {
            let zone = &mm.zones[zone];
            zone.free > 0 && (wmark == Watermark::Min || Self::free(mm) > Self::THROTTLEFREE)
        }
        fn stall(&self, _mm: &mut Mm, _cx: &Cx, ac: &AllocContext) -> Option<Wait> {
            Some(Wait {
                channel: Some(WaitChannel::Progress(ac.preferred)),
                until: None,
                why: WaitReason::Reclaim,
            })
        }
        fn reserve(&self, mm: &mut Mm, cx: &mut Cx, pages: u32) -> Result<(), Wait> {
            let hands: &mut Hands = mm.lruvecs[0].state_mut();
            if hands.promised + u64::from(pages) > Self::MOST {
                return Err(Wait::until(cx.now() + 1_000_000, WaitReason::Reclaim));
            }
            hands.promised += u64::from(pages);
            Ok(())
        }
        fn unreserve(&self, mm: &mut Mm, pages: u32) {
            mm.lruvecs[0].state_mut::<Hands>().promised -= u64::from(pages);
        }
    }

    #[test]
    fn two_hands_with_thresholds_and_reservations_fit() {
        let mut host = Host::new(&TwoHands);
        for page in trace(60_000) {
            host.access(page);
        }
        assert!(host.stalls > 0, "allocations slept");
        assert!(TwoHands::free(&host.mm) < TwoHands::LOTSFREE, "{}", TwoHands::free(&host.mm));
        assert_eq!(host.mm.check(), Ok(()));

        let Host { mm, cx, .. } = &mut host;
        assert_eq!(mm.map_anon(cx, RegionId(1), 900), Ok(()));
        let asleep = mm.map_anon(cx, RegionId(2), 200);
        assert!(matches!(asleep, Err(Stop::Wait(_))), "{asleep:?}");
        assert_eq!(mm.unmap(cx, RegionId(1)), Ok(()));
        assert_eq!(mm.map_anon(cx, RegionId(2), 200), Ok(()));
    }
}
