//! Refault distance (`mm/workingset.c`).
//!
//! A shadow has 29 bits: whether the page had been active, the lruvec it was evicted from, and the low bits
//! of that lruvec's clock. With MGLRU the clock is the sequence number of the oldest generation and the
//! page's tier.
//!
//! File pages have shadows from the generation linux-4.4 on (3.15, a528910e12ec; `Refault` in
//! `formulas/src/lists.rs` decides what a refault activates), anonymous pages from linux-6.1 on (5.9,
//! aae466b0052e; `Generation::anon_refault`). A shadow lies in the page's own entry, so that the nodes of
//! shadow entries, and the reclaim of them (`workingset_nodereclaim`), are not modelled.

use lotsfree_formulas::lists::{Lists, Refault, refault_activates};

use super::Mm;
use super::frame::{entry, flag, list};
use super::vmstat::{ACTIVATE, REFAULT, RESTORE};

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
    pub(crate) fn workingset_eviction(&mut self, frame: u32) -> u32 {
        let f = self.frames[frame as usize];
        if self.generation.rules.lists.refault == Refault::None {
            // The kernel keeps nothing. The model keeps that the page was evicted.
            return RESERVED;
        }
        let which = self.lruvec_of(f.zone());
        let (bits, anon) = (28 - self.lruvec_bits(), f.has(flag::ANON));
        let lruvec = &mut self.lruvecs[which];
        let clock = if self.generation.mglru {
            lruvec.mglru.evicted(anon, &f)
        } else {
            if anon && !self.generation.anon_refault {
                return 0;
            }
            let clock = lruvec.clock;
            lruvec.clock += 1;
            clock
        };
        let clock = clock as u32 & ((1 << bits) - 1);
        let workingset = if f.has(flag::WORKINGSET) { WORKINGSET } else { 0 };
        (workingset | (which as u32) << bits | clock).clamp(1, RESERVED)
    }

    /// Handles the return of an evicted page: counts the refault, and returns whether the page goes straight
    /// to the active list.
    pub(crate) fn workingset_refault(&mut self, frame: u32, shadow: u32, anon: bool) -> bool {
        if shadow == entry::VALUE || self.generation.rules.lists.refault == Refault::None {
            return false;
        }
        let bits = 28 - self.lruvec_bits();
        let mask = (1u32 << bits) - 1;
        let which = ((shadow & !WORKINGSET) >> bits) as usize;
        if which >= self.lruvecs.len() {
            return false;
        }
        let kind = usize::from(!anon);
        let was_active = shadow & WORKINGSET != 0;
        if self.generation.mglru {
            return self.lru_gen_refault(frame, which, (shadow & mask, bits), was_active);
        }
        self.events[REFAULT[kind]] += 1;
        let lruvec = &self.lruvecs[which];
        let distance = u64::from((lruvec.clock as u32).wrapping_sub(shadow) & mask);
        let lists = Lists {
            inactive_anon: lruvec.len(list::INACTIVE_ANON),
            active_anon: lruvec.len(list::ACTIVE_ANON),
            inactive_file: lruvec.len(list::INACTIVE_FILE),
            active_file: lruvec.len(list::ACTIVE_FILE),
        };
        let swap = self.swap.free() > 0;
        if !refault_activates(&self.generation.rules.lists, &lists, distance, anon, swap) {
            return false;
        }
        self.events[ACTIVATE[kind]] += 1;
        let home = self.lruvec_of_frame(frame);
        let lruvec = &mut self.lruvecs[home];
        lruvec.clock += 1;
        lruvec.refaults[kind] += 1;
        if was_active {
            self.frames[frame as usize].flags |= flag::WORKINGSET;
            self.events[RESTORE[kind]] += 1;
            self.note_cost(home, anon, 1, 0);
        }
        true
    }

    /// Advances the clock after a resident page was activated (`workingset_age_nonresident`).
    pub(crate) fn workingset_activation(&mut self, frame: u32) {
        let lruvec = self.lruvec_of_frame(frame);
        self.lruvecs[lruvec].clock += 1;
    }
}
