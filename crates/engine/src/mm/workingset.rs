//! Shadows of evicted pages (`mm/workingset.c`).
//!
//! A shadow has 29 bits: whether the page had been active, the lruvec it was evicted from, and the low bits
//! of a time that the policy chooses: the lruvec's clock, or with MGLRU the sequence number of the oldest
//! generation and the page's tier. What a refault means is the policy's to say.
//!
//! File pages have shadows from the generation linux-4.4 on (3.15, a528910e12ec; `Refault` in
//! `formulas/src/lists.rs` decides what a refault activates), anonymous pages from linux-6.1 on (5.9,
//! aae466b0052e; `Generation::anon_refault`). A shadow lies in the page's own entry, so that the nodes of
//! shadow entries, and the reclaim of them (`workingset_nodereclaim`), are not modelled.

use lotsfree_formulas::lists::Refault;

use super::Mm;
use super::frame::{entry, flag};
use super::policy::Shadow;

/// The page had been active.
const WORKINGSET: u32 = 1 << 28;
/// Values that [`entry::ON_DISK`] and the zero page take.
const RESERVED: u32 = entry::VALUE - 2;

impl Mm {
    fn lruvec_bits(&self) -> u32 {
        usize::BITS - (self.lruvecs.len() - 1).leading_zeros()
    }

    /// Returns the shadow of a page that is being evicted, and advances the clock. The shadow is 0 only for
    /// an anonymous page on a kernel that does not detect refaults of anonymous pages.
    #[inline(always)]
    pub(crate) fn workingset_eviction(&mut self, frame: u32) -> u32 {
        let f = self.frames[frame as usize];
        if self.generation.rules.lists.refault == Refault::None {
            // The kernel keeps nothing. The model keeps that the page was evicted.
            return RESERVED;
        }
        let which = self.lruvec_of(f.zone());
        let bits = 28 - self.lruvec_bits();
        let Some(clock) = self.generation.policy.evicted(self, which, frame) else { return 0 };
        let clock = clock as u32 & ((1 << bits) - 1);
        let workingset = if f.has(flag::WORKINGSET) { WORKINGSET } else { 0 };
        (workingset | (which as u32) << bits | clock).clamp(1, RESERVED)
    }

    /// Handles the return of an evicted page. Returns whether the policy is to keep it like one that was
    /// accessed often.
    pub(crate) fn workingset_refault(&mut self, frame: u32, shadow: u32) -> bool {
        if shadow == entry::VALUE || self.generation.rules.lists.refault == Refault::None {
            return false;
        }
        let bits = 28 - self.lruvec_bits();
        let lruvec = ((shadow & !WORKINGSET) >> bits) as usize;
        if lruvec >= self.lruvecs.len() {
            return false;
        }
        let clock = shadow & ((1u32 << bits) - 1);
        let shadow = Shadow { lruvec, clock, bits, workingset: shadow & WORKINGSET != 0 };
        self.generation.policy.refaulted(self, frame, shadow)
    }
}
