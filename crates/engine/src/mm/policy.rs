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
//! Kernels have two: the active and inactive lists ([`two_lists`](super::two_lists)) and the multi-generational
//! LRU ([`mglru`](super::mglru)).

use std::any::Any;
use std::fmt::Debug;

use super::frame::list;
use super::kswapd::Kswapd;
use super::mmzone::Lruvec;
use super::page_alloc::{AllocContext, HIGHEST, Watermark};
use super::vmscan::ScanControl;
use super::{Cx, DEF_PRIORITY, Mm, Wait};

/// Something of a policy's that others keep for it.
pub(crate) trait Kept: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> Kept for T {}

/// How a page came into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Anonymous memory that is touched for the first time.
    Touched,
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

    /// What the policy remembers of an lruvec of so many pages, when the machine has booted.
    fn state(&self, pages: u64) -> Box<dyn Kept>;

    /// Puts a page on a list after it has come into memory.
    fn insert(&self, mm: &mut Mm, frame: u32, arrival: Arrival);

    /// Notes that a system call has accessed a page (`mm/swap.c:mark_page_accessed`). Accesses through page
    /// tables leave their bit in the entry.
    fn touch(&self, mm: &mut Mm, frame: u32);

    /// Notes that a page is evicted. Returns the time that its shadow keeps, of which the lowest bits are
    /// handed to `refaulted`; `None` if the return of the page is to go unnoticed.
    fn evicted(&self, mm: &mut Mm, lruvec: usize, frame: u32) -> Option<u64>;

    /// Notes that an evicted page comes back, and counts that. Returns whether the page is to be kept like
    /// one that was accessed often.
    fn refaulted(&self, mm: &mut Mm, frame: u32, shadow: Shadow) -> bool;

    /// The list at whose tail a page is reclaimed soonest.
    fn list_to_reclaim(&self, mm: &Mm, frame: u32) -> usize;

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
        active: bool,
    );

    /// Ends a run of reclaim over an lruvec.
    fn end_run(&self, _mm: &mut Mm, _lruvec: usize) {}

    /// Whether the background pass of a node has to begin.
    fn wants_background(&self, mm: &Mm, node: usize) -> bool {
        mm.is_wanted(node)
    }

    /// Runs the background pass of a node for a slice. Returns what it waits for after that.
    fn background(&self, mm: &mut Mm, cx: &mut Cx, kswapd: &mut Kswapd) -> Wait {
        kswapd.run(mm, cx)
    }

    /// kswapd's first priority on a node.
    fn first_priority(&self, _mm: &Mm, _node: usize) -> u8 {
        DEF_PRIORITY
    }

    /// Ages the pages of an lruvec before kswapd looks whether it has to be shrunk.
    fn age(&self, _mm: &mut Mm, _cx: &mut Cx, _scan: &ScanControl, _lruvec: usize) {}

    /// Whether kswapd has freed enough on a node that is not balanced yet.
    fn has_enough(&self, _mm: &Mm, _node: usize) -> bool {
        false
    }

    /// Whether an allocation may take a page of a zone without making room first.
    #[inline]
    fn may_allocate(&self, mm: &Mm, zone: usize, wmark: Watermark) -> bool {
        let zone = &mm.zones[zone];
        zone.passes(zone.mark(wmark), HIGHEST)
    }

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
