//! The multi-generational LRU (`mm/vmscan.c`, `include/linux/mm_inline.h`, `mm/workingset.c` of 6.1, 6.8,
//! 6.12 and 6.18). The generations whose name ends in `+mglru` use it; in every other one it is off. Aging
//! begins in `should_run_aging`, eviction in `evict_generation`, and `choose` weighs tiers.
//!
//! Pages of each type are in two to four generations. Aging makes a new one: it walks page tables and
//! promotes pages that were accessed to the generation that was the youngest until then. A promoted page
//! stays on its list until eviction, which takes pages off the oldest generation's list, meets it. Accesses
//! by system calls move no page. They are counted, and the count gives the page's tier. Eviction spares tiers
//! whose pages come back more often than those of the lowest.
//!
//! From 6.14 on (`LruGen::promotes_at_second`) a page is promoted when aging or reclaim finds its accessed
//! bit set for the second time, and then stays marked as part of the working set.
//!
//! Where the model differs from the kernel:
//!
//! - The filter of page tables that are worth a walk is exact, whereas the kernel's is a Bloom filter. A page
//!   table is an aligned run of 512 entries.
//! - Tasks that age at the same time share one walk, entry by entry; in the kernel they share it process by
//!   process.

use std::ops::Range;

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_units::Bytes;
use lotsfree_workload::RegionId;

use super::frame::{Frame, NONE, entry, flag, list};
use super::lru_lock::LockedBatch;
use super::mmap::Vma;
use super::mmzone::{ANON, FILE};
use super::page_alloc::HIGHEST;
use super::policy::{self, Arrival, Kept, Policy, Shadow};
use super::vmscan::{Fate, ReclaimStat, ScanControl, Tally};
use super::vmstat::{ACTIVATE, PGREFILL, REFAULT, RESTORE};
use super::{Cx, DEF_PRIORITY, Device, MS, Mm, SWAP_CLUSTER_MAX, Wait};
use crate::generation::{Generation, LruGen};

/// MIN_NR_GENS: the number of youngest generations that eviction leaves alone.
const MIN_NR_GENS: u64 = 2;
/// MAX_NR_GENS
const MAX_NR_GENS: u64 = 4;
/// MAX_NR_TIERS
const TIERS: usize = 4;
/// LRU_REFS_WIDTH: bits of the access counter, and of a shadow that hold the count.
const REFS_WIDTH: u32 = 2;
/// The largest count of accesses beyond the first, BIT(LRU_REFS_WIDTH): the counter and PG_workingset.
const MOST_REFS: u32 = 1 << REFS_WIDTH;
/// MIN_LRU_BATCH
const MIN_LRU_BATCH: u64 = 64;
/// MAX_LRU_BATCH
const MAX_LRU_BATCH: u64 = 64 * MIN_LRU_BATCH;
/// PAGEVEC_SIZE: below this many young pages, direct reclaim on 6.1 activates them one by one.
const PAGEVEC_SIZE: usize = 15;
/// The fewest slots in a row that belong to one object.
const RUN: u32 = 64;
/// A page table is worth a walk when at least one entry in this many was accessed (`suitable_to_scan`: one
/// per cache line).
const PER_CACHE_LINE: u32 = 8;
/// Sequence numbers that a refault may be away from the youngest generation from 6.14 on.
const RECENT: u64 = MAX_NR_GENS;

/// The type of a page.
fn kind_of(frame: &Frame) -> usize {
    if frame.has(flag::ANON) { ANON } else { FILE }
}

/// The list of a generation.
fn list_of(seq: u64, kind: usize) -> usize {
    list::FIRST_GENERATION + 2 * (seq % MAX_NR_GENS) as usize + kind
}

/// Accesses by system calls (`folio_lru_refs`): those beyond the first, or all where pages are promoted at
/// their second accessed bit.
fn refs_of(rules: &LruGen, frame: &Frame) -> u32 {
    let counter = (frame.flags & flag::REFS) >> flag::REFS_SHIFT;
    match rules.promotes_at_second {
        true if frame.has(flag::REFERENCED) => counter + 1,
        true => 0,
        false => counter + u32::from(frame.has(flag::WORKINGSET)),
    }
}

/// `lru_tier_from_refs`: 0, 1, 2, 2, 3 for 0 to 4 accesses beyond the first; 0, 0, 1, 2, 2 for 0 to 4
/// accesses, and 3 for the working set.
fn tier_of(rules: &LruGen, refs: u32, workingset: bool) -> usize {
    match rules.promotes_at_second {
        true if workingset => TIERS - 1,
        true => refs.max(1).next_power_of_two().ilog2() as usize,
        false => (refs + 1).next_power_of_two().ilog2() as usize,
    }
}

/// Flags of a page's accesses, which are cleared when it changes its generation (LRU_REFS_MASK,
/// LRU_REFS_FLAGS).
fn refs_flags(rules: &LruGen) -> u32 {
    let kept = if rules.promotes_at_second { 0 } else { flag::WORKINGSET };
    flag::REFS | flag::REFERENCED | kept
}

/// Whether a page has as many accesses as can be counted.
fn has_most_refs(rules: &LruGen, frame: &Frame) -> bool {
    let refs = refs_of(rules, frame);
    match rules.promotes_at_second {
        true => frame.has(flag::WORKINGSET) && refs == MOST_REFS,
        false => refs == MOST_REFS,
    }
}

/// An access by a system call (`folio_inc_refs`): PG_referenced first, then PG_workingset, then the counter;
/// where pages are promoted at their second accessed bit, PG_workingset comes last (`lru_gen_inc_refs`).
fn count_access(rules: &LruGen, frame: &mut Frame) {
    if frame.list() == list::UNEVICTABLE {
        return;
    }
    let full = frame.flags & flag::REFS == flag::REFS;
    if !frame.has(flag::REFERENCED) {
        let forgets = if rules.promotes_at_second { flag::REFS } else { 0 };
        frame.flags = (frame.flags & !forgets) | flag::REFERENCED;
    } else if !frame.has(flag::WORKINGSET) && (full || !rules.promotes_at_second) {
        frame.flags |= flag::WORKINGSET;
    } else if !full {
        frame.flags += 1 << flag::REFS_SHIFT;
    }
}

/// Notes an accessed bit of a page, where pages are promoted at the second (`lru_gen_set_refs`). Returns
/// whether it was that.
pub(super) fn set_refs(frame: &mut Frame) -> bool {
    let second = frame.has(flag::REFERENCED | flag::WORKINGSET);
    frame.flags &= !(flag::REFS | flag::REFERENCED);
    frame.flags |= if second { flag::WORKINGSET } else { flag::REFERENCED };
    second
}

/// What became of a page that eviction left where it was or put elsewhere (`sort_folio`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sorted {
    /// It was promoted, spared, culled, or is under writeback.
    Elsewhere,
    /// It is a page of a file that is dirty; `queued` says that it is being written, too.
    Dirty { queued: bool },
}

/// Refaults and evictions of one tier, and the weight of its type (`ctrl_pos`).
#[derive(Clone, Copy, Debug)]
struct Position {
    refaulted: u64,
    total: u64,
    gain: u64,
}

impl Position {
    /// Whether `self` refaults rarely or no more than `than` (`positive_ctrl_err`).
    fn refaults_less(self, than: Position) -> bool {
        self.refaulted < MIN_LRU_BATCH
            || u128::from(self.refaulted) * u128::from(than.total + MIN_LRU_BATCH) * u128::from(than.gain)
                <= u128::from(than.refaulted + 1) * u128::from(self.total) * u128::from(self.gain)
    }
}

/// The page tables that are worth a walk, one bit each; `None` means all.
#[derive(Debug, Default)]
struct Filter {
    now: Option<Vec<u64>>,
    next: Vec<u64>,
}

impl Filter {
    fn has(&self, table: u32) -> bool {
        let bit =
            |bits: &Vec<u64>| bits.get(table as usize / 64).is_some_and(|word| word >> (table % 64) & 1 == 1);
        self.now.as_ref().is_none_or(bit)
    }
    fn set(bits: &mut Vec<u64>, table: u32) {
        let word = table as usize / 64;
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        bits[word] |= 1 << (table % 64);
    }
}

/// The generations of an lruvec (`struct lru_gen_folio`).
#[derive(Debug)]
struct Generations {
    rules: LruGen,
    max_seq: u64,
    /// Anonymous, file.
    min_seq: [u64; 2],
    /// When each generation was made, by sequence modulo 4; nanoseconds of the run.
    born: [u64; MAX_NR_GENS as usize],
    /// Refaults and evictions in the lifetime of the oldest generation, by type and tier, and their running
    /// means over earlier generations, which are halved at each step.
    refaulted: [[u64; TIERS]; 2],
    evicted: [[u64; TIERS]; 2],
    avg_refaulted: [[u64; TIERS]; 2],
    avg_total: [[u64; TIERS]; 2],
    /// Pages spared for their tier, of which there are none of tier 0, and from 6.14 on pages of any tier
    /// whose generation was given up.
    protected: [[u64; TIERS]; 2],
    /// The first entry that the current walk has not visited.
    walk: Option<u32>,
    filter: Filter,
}

impl Default for Generations {
    /// `lru_gen_init_lruvec`. Sequences begin at 4, not 0, so that no shadow is 0; only their remainders
    /// matter.
    fn default() -> Self {
        Generations {
            rules: LruGen::LINUX_6_12,
            max_seq: MAX_NR_GENS + MIN_NR_GENS + 1,
            min_seq: [MAX_NR_GENS; 2],
            born: Default::default(),
            refaulted: Default::default(),
            evicted: Default::default(),
            avg_refaulted: Default::default(),
            avg_total: Default::default(),
            protected: Default::default(),
            walk: None,
            filter: Filter::default(),
        }
    }
}

impl Generations {
    /// The number of generations that a type has (`get_nr_gens`).
    fn count(&self, kind: usize) -> u64 {
        self.max_seq - self.min_seq[kind] + 1
    }

    /// For `check`: whether the numbers of generations are within bounds (`seq_is_valid`).
    fn is_valid(&self) -> bool {
        [ANON, FILE].iter().all(|&kind| (MIN_NR_GENS..=MAX_NR_GENS).contains(&self.count(kind)))
    }

    /// Whether a list is one of the two youngest generations, which count as active (`lru_gen_is_active`).
    fn is_active(&self, which: usize) -> bool {
        let generation = (which - list::FIRST_GENERATION) as u64 / 2;
        generation == self.max_seq % MAX_NR_GENS || generation == (self.max_seq - 1) % MAX_NR_GENS
    }

    /// The list of the oldest generation of a type: 0 anonymous, 1 file.
    fn oldest_list(&self, kind: usize) -> usize {
        list_of(self.min_seq[kind], kind)
    }

    fn youngest_list(&self, kind: usize) -> usize {
        list_of(self.max_seq, kind)
    }

    /// The list for a page that is on none (`lru_gen_add_folio`). `hot` means that a fault brought the page
    /// in, or that reclaim met it in use.
    fn list_for(&self, frame: &Frame, hot: bool) -> usize {
        let kind = kind_of(frame);
        let min = self.min_seq[kind];
        let needs_io = (kind == ANON && !frame.has(flag::SWAPCACHE))
            || (frame.has(flag::RECLAIM) && frame.has(flag::DIRTY | flag::WRITEBACK));
        if self.rules.promotes_at_second {
            // `lru_gen_folio_seq`: the working set is a generation ahead of other pages.
            let workingset = u64::from(frame.has(flag::WORKINGSET));
            let age = match (hot, needs_io) {
                (true, _) => 1 - workingset,
                (false, true) => 1,
                (false, false) => MAX_NR_GENS - 1 - workingset,
            };
            return list_of((self.max_seq - age).max(min), kind);
        }
        let seq = if hot {
            self.max_seq
        } else if needs_io {
            self.max_seq - 1
        } else if min + MIN_NR_GENS >= self.max_seq {
            min
        } else {
            min + 1
        };
        list_of(seq, kind)
    }

    /// Counts an eviction. Returns the value that the shadow keeps: the oldest sequence and the number of
    /// accesses (`lru_gen_eviction`). The number leaves out the access that PG_workingset stands for, which a
    /// shadow records anyway, or the first.
    fn evicted(&mut self, frame: &Frame) -> u64 {
        let kind = kind_of(frame);
        let refs = refs_of(&self.rules, frame);
        self.evicted[kind][tier_of(&self.rules, refs, frame.has(flag::WORKINGSET))] += 1;
        self.min_seq[kind] << REFS_WIDTH | u64::from(refs.saturating_sub(1))
    }

    /// Handles the return of a page with this shadow. A refault is recent
    /// if the generation that the page was evicted from is still the oldest, or, from 6.14 on, if it is less
    /// than four generations older than the youngest. Only a recent one is counted;
    /// the number of accesses that the page had is returned (`lru_gen_test_recent`, `lru_gen_refault`).
    fn refaulted(&mut self, kind: usize, shadow: Shadow) -> Option<u32> {
        let mask = (1u64 << (shadow.bits - REFS_WIDTH)) - 1;
        let seq = u64::from(shadow.clock >> REFS_WIDTH);
        let recent = match self.rules.recent_for_four {
            true => (self.max_seq & mask).abs_diff(seq) < RECENT,
            false => seq == self.min_seq[kind] & mask,
        };
        if !recent {
            return None;
        }
        let first = if self.rules.promotes_at_second { 1 } else { u32::from(shadow.workingset) };
        let refs = (shadow.clock & (MOST_REFS - 1)) + first;
        self.refaulted[kind][tier_of(&self.rules, refs, shadow.workingset)] += 1;
        Some(refs)
    }

    /// `read_ctrl_pos`
    fn position(&self, kind: usize, tier: usize, gain: u64) -> Position {
        Position {
            refaulted: self.avg_refaulted[kind][tier] + self.refaulted[kind][tier],
            total: self.avg_total[kind][tier] + self.evicted[kind][tier] + self.protected[kind][tier],
            gain,
        }
    }

    /// The positions of all tiers of a type in one.
    fn sum_of_tiers(&self, kind: usize, gain: u64) -> Position {
        let positions = (0..TIERS).map(|tier| self.position(kind, tier, gain));
        let (refaulted, total) = positions.fold((0, 0), |(refaulted, total), position| {
            (refaulted + position.refaulted, total + position.total)
        });
        Position { refaulted, total, gain }
    }

    /// The oldest generation of the types that may be evicted (`evictable_min_seq`; through 6.12 that of
    /// anonymous pages if they may, which is never ahead).
    fn evictable_min_seq(&self, can_swap: bool) -> u64 {
        match self.rules.ages_by_generations {
            true if can_swap => self.min_seq[ANON].min(self.min_seq[FILE]),
            _ => self.min_seq[usize::from(!can_swap)],
        }
    }

    /// Makes the next generation of a type the oldest when the oldest is used up (`reset_ctrl_pos`).
    fn step(&mut self, kind: usize) {
        for tier in 0..TIERS {
            let Position { refaulted, total, .. } = self.position(kind, tier, 1);
            self.avg_refaulted[kind][tier] = refaulted / 2;
            self.avg_total[kind][tier] = total / 2;
        }
        self.refaulted[kind] = [0; TIERS];
        self.evicted[kind] = [0; TIERS];
        self.protected[kind] = [0; TIERS];
    }

    /// The highest tier of a type that may be evicted, compared with the position `with` of a lowest tier.
    fn last_tier(&self, kind: usize, gain: u64, with: Position) -> usize {
        let spared = |&tier: &usize| !self.position(kind, tier, gain).refaults_less(with);
        (1..TIERS).find(spared).unwrap_or(TIERS) - 1
    }

    /// The highest tier of a type that may be evicted, compared within the type: a tier is spared if it
    /// refaults about twice as often as the lowest, or, from 6.14 on, half as often again (`get_tier_idx`).
    fn own_last_tier(&self, kind: usize) -> usize {
        let (gain, gain_of_lowest) = if self.rules.type_by_all_tiers { (3, 2) } else { (2, 1) };
        self.last_tier(kind, gain, self.position(kind, 0, gain_of_lowest))
    }

    /// The type to evict from, and the last tier that may be evicted if the choice of the type determined it
    /// (`isolate_folios`, `get_type_to_scan`).
    fn choose(&self, swappiness: u64) -> (usize, Option<usize>) {
        if self.rules.type_by_all_tiers {
            let anon = self.sum_of_tiers(ANON, swappiness);
            let file = self.sum_of_tiers(FILE, 200u64.saturating_sub(swappiness));
            let takes_file = swappiness <= 1 || (swappiness < 200 && file.refaults_less(anon));
            return (if takes_file { FILE } else { ANON }, None);
        }
        match swappiness {
            0 => (FILE, None),
            _ if self.min_seq[ANON] < self.min_seq[FILE] => (ANON, None),
            1 => (FILE, None),
            200 => (ANON, None),
            _ => {
                let gain = [swappiness, 200u64.saturating_sub(swappiness)];
                let lowest = [self.position(ANON, 0, gain[ANON]), self.position(FILE, 0, gain[FILE])];
                let kind = if lowest[FILE].refaults_less(lowest[ANON]) { FILE } else { ANON };
                (kind, Some(self.last_tier(kind, gain[kind], lowest[1 - kind])))
            }
        }
    }
}

/// A pass over one lruvec.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    scanned: u64,
    /// Pages that the reclaim run had freed when the pass began.
    reclaimed_before: u64,
    /// Youngest generation when it began.
    start_seq: u64,
    /// The aging that kswapd does before it evicts is done.
    aged: bool,
    /// Anonymous pages were evicted.
    swapped: bool,
    /// The pass is over; the caller only had to wait for the device.
    over: bool,
    /// File pages taken or found dirty, and the number of them that were dirty and not yet under writeback.
    file_taken: u64,
    unqueued_dirty: u64,
}

/// The result of checking whether aging is due (`should_run_aging`).
#[derive(Clone, Copy, Debug)]
struct Ages {
    needed: bool,
    /// Pages that could be scanned.
    total: u64,
}

/// The policy.
#[derive(Debug)]
pub(crate) struct Mglru;

impl Policy for Mglru {
    fn name(&self) -> &'static str {
        "multi-generational LRU"
    }

    fn lru_gen_enabled(&self) -> u32 {
        7
    }

    fn lists_per_zone(&self) -> usize {
        list::GENERATIONS
    }

    fn state(&self, generation: &Generation, _size: Bytes) -> Box<dyn Kept> {
        Box::new(Generations { rules: generation.lru_gen, ..Generations::default() })
    }

    /// A page that a fault brings in goes to the youngest generation.
    fn insert(&self, mm: &mut Mm, frame: u32, _arrival: Arrival) {
        let lruvec = mm.lruvec_of_frame(frame);
        let to = mm.generations(lruvec).list_for(&mm.frames[frame as usize], mm.in_lru_fault);
        mm.lru_add(frame, to);
    }

    fn touch(&self, mm: &mut Mm, frame: u32) {
        count_access(&mm.generation.lru_gen, &mut mm.frames[frame as usize]);
    }

    fn evicted(&self, mm: &mut Mm, lruvec: usize, frame: u32) -> Option<u64> {
        let f = mm.frames[frame as usize];
        Some(mm.generations_mut(lruvec).evicted(&f))
    }

    /// The page of a recent refault is marked as accessed often if it had been, or if a fault brings it back
    /// (`lru_gen_refault`); from 6.14 on it belongs to the working set if it did, and otherwise has as many
    /// accesses as it had, which its next access by a system call forgets. Nothing is counted if the page
    /// comes back on another node.
    fn refaulted(&self, mm: &mut Mm, frame: u32, shadow: Shadow) -> bool {
        let lruvec = mm.lruvec_of_frame(frame);
        if shadow.lruvec != lruvec {
            return false;
        }
        let kind = kind_of(&mm.frames[frame as usize]);
        let refs = mm.generations_mut(lruvec).refaulted(kind, shadow);
        let rules = mm.generation.lru_gen;
        mm.events[REFAULT[kind]] += u64::from(refs.is_some() || !rules.counts_recent);
        let Some(refs) = refs else { return false };
        if !rules.counts_protected && (mm.in_lru_fault || !rules.promotes_at_second) {
            mm.events[ACTIVATE[kind]] += 1;
        }
        if rules.promotes_at_second {
            let f = &mut mm.frames[frame as usize];
            if shadow.workingset {
                f.flags |= flag::WORKINGSET;
                mm.events[RESTORE[kind]] += 1;
            } else {
                f.flags = (f.flags & !flag::REFS) | (refs - 1) << flag::REFS_SHIFT;
            }
        } else if mm.in_lru_fault || refs >= MOST_REFS - 1 {
            mm.frames[frame as usize].flags |= flag::REFS | flag::WORKINGSET;
            mm.events[RESTORE[kind]] += 1;
        }
        true
    }

    fn list_to_reclaim(&self, mm: &Mm, frame: u32) -> usize {
        mm.generations(mm.lruvec_of_frame(frame)).oldest_list(kind_of(&mm.frames[frame as usize]))
    }

    /// One pass (`lru_gen_shrink_node`, `try_to_shrink_lruvec`).
    fn shrink_lruvec(
        &self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        pass: &mut Option<Box<dyn Kept>>,
    ) -> Result<(), Wait> {
        if mm.generation.lru_gen.all_or_nothing && !(scan.may_writepage && scan.may_unmap) {
            return Ok(());
        }
        let under_way: &mut Pass = policy::under_way(pass, || Pass {
            reclaimed_before: scan.reclaimed,
            start_seq: mm.generations(lruvec).max_seq,
            aged: !scan.is_kswapd(),
            ..Pass::default()
        });
        mm.lru_gen_pass(cx, scan, lruvec, under_way)?;
        let Pass { unqueued_dirty, file_taken, .. } = *under_way;
        if mm.generation.lru_gen.wakes_flushers && unqueued_dirty > 0 && unqueued_dirty == file_taken {
            mm.wakeup_flusher(unqueued_dirty);
        }
        *pass = None;
        Ok(())
    }

    fn first_priority(&self, mm: &Mm, node: usize) -> u8 {
        mm.lru_gen_initial_priority(node)
    }

    fn forgets_failures(&self, mm: &Mm) -> bool {
        mm.generation.lru_gen.kswapd_never_fails
    }

    fn has_enough(&self, mm: &Mm, node: usize) -> bool {
        mm.lru_gen_enough(node)
    }

    fn is_active(&self, mm: &Mm, lruvec: usize, list: usize) -> bool {
        mm.generations(lruvec).is_active(list)
    }

    fn check(&self, mm: &Mm, lruvec: usize) -> Result<(), String> {
        let generations = mm.generations(lruvec);
        match generations.is_valid() {
            true => Ok(()),
            false => Err(format!("lruvec {lruvec} has too many generations or too few: {generations:?}")),
        }
    }
}

impl Mm {
    fn generations(&self, lruvec: usize) -> &Generations {
        self.lruvecs[lruvec].state()
    }

    fn generations_mut(&mut self, lruvec: usize) -> &mut Generations {
        self.lruvecs[lruvec].state_mut()
    }

    /// Lengths of the classic lists as `/proc` shows them, by list number: the two youngest generations are
    /// active, the others inactive.
    fn lru_sizes(&self, which: usize) -> [u64; 6] {
        let l = &self.lruvecs[which];
        let mut sizes = [0; 6];
        for (classic, size) in sizes.iter_mut().enumerate().skip(1) {
            *size = l.len(classic);
        }
        for generation in list::FIRST_GENERATION..list::COUNT {
            let active = self.generations(which).is_active(generation);
            let of_type = if active { list::active } else { list::inactive };
            sizes[of_type(generation % 2 == ANON)] += self.nr_pages(which, generation);
        }
        sizes
    }

    /// The number of pages in a generation (`lrugen->nr_pages`), wherever they are: 0 anonymous, 1 file.
    fn nr_pages(&self, lruvec: usize, generation: usize) -> u64 {
        let zones = self.lruvecs[lruvec].zones.iter();
        zones.map(|&zone| self.zones[zone].generations[generation - list::FIRST_GENERATION]).sum()
    }

    /// kswapd's first priority (`set_initial_priority`): it scans the share of pages that the node's target
    /// requires, if all inactive pages can be freed.
    fn lru_gen_initial_priority(&self, node: usize) -> u8 {
        let target = self.node_sum(node, |zone| zone.high_wmark_pages().max(SWAP_CLUSTER_MAX));
        let Some(lowest) = self.generation.lru_gen.initial_priority.filter(|_| target >= MIN_LRU_BATCH)
        else {
            return DEF_PRIORITY;
        };
        let sizes = self.lru_sizes(node);
        let anon = if self.swap.free() > 0 { sizes[list::INACTIVE_ANON] } else { 0 };
        let reclaimable = sizes[list::INACTIVE_FILE] + anon;
        let bits = |value: u64| i64::from(u64::BITS - value.leading_zeros());
        let priority = bits(reclaimable) - 1 - bits(target - 1);
        priority.clamp(i64::from(lowest), i64::from(DEF_PRIORITY)) as u8
    }

    /// Whether kswapd has freed enough: every zone of the node is 64 pages above its high mark
    /// (`should_abort_scan`).
    fn lru_gen_enough(&self, node: usize) -> bool {
        self.generation.lru_gen.stops_at_target
            && self.nodes[node].zones.iter().all(|&zone| {
                let zone = &self.zones[zone];
                zone.managed == 0 || zone.passes(zone.high_wmark_pages() + MIN_LRU_BATCH, HIGHEST)
            })
    }

    fn lru_gen_pass(
        &mut self,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        pass: &mut Pass,
    ) -> Result<(), Wait> {
        if !pass.aged {
            self.lru_gen_age_node(cx, scan, lruvec)?;
            pass.aged = true;
        }
        while !pass.over {
            let swappiness = self.lru_gen_swappiness(scan);
            let (budget, ages) = self.lru_gen_to_scan(cx, scan, lruvec, swappiness)?;
            if budget == 0 {
                return Ok(());
            }
            let (scanned, stall) = self.evict_generation(cx, scan, lruvec, swappiness, pass);
            pass.scanned += scanned;
            pass.over = scanned == 0 || pass.scanned >= budget || self.lru_gen_aborts(scan, lruvec, pass);
            if pass.over && scanned > 0 && !ages.needed {
                scan.memcgs_need_aging &= scan.reclaimed - pass.reclaimed_before < MIN_LRU_BATCH;
            }
            if let Some(wait) = stall {
                return Err(wait);
            }
            if cx.spent >= cx.slice && !pass.over {
                return Err(Wait::YIELD);
            }
        }
        Ok(())
    }

    /// `get_swappiness`: 0 if swap has no room for a batch. Where only the caller's flags forbid swapping,
    /// 6.1 does not forbid it but avoids it.
    fn lru_gen_swappiness(&self, scan: &ScanControl) -> u64 {
        if self.swap.free() < MIN_LRU_BATCH || (!scan.may_swap && self.generation.lru_gen.all_or_nothing) {
            return 0;
        }
        if scan.may_swap { self.tuning.swappiness } else { self.tuning.swappiness.min(1) }
    }

    /// The number of pages that the pass may scan; 0 ends it (`get_nr_to_scan`). Ages if aging is due.
    fn lru_gen_to_scan(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        lruvec: usize,
        swappiness: u64,
    ) -> Result<(u64, Ages), Wait> {
        let ages = self.should_run_aging(lruvec, swappiness > 0);
        let budget = ages.total >> scan.priority;
        if !ages.needed {
            return Ok((budget, ages));
        }
        let rules = self.generation.lru_gen;
        let default = scan.priority == DEF_PRIORITY;
        if !rules.kswapd_ages_first {
            if default {
                return Ok((budget, ages));
            }
            self.try_to_inc_max_seq(cx, lruvec, swappiness > 0)?;
            return Ok((0, ages));
        }
        if !default {
            if scan.is_kswapd() {
                return Ok((0, ages));
            }
            self.try_to_inc_max_seq(cx, lruvec, swappiness > 0)?;
            return Ok((budget, ages));
        }
        let generations = self.generations(lruvec);
        let oldest = generations.min_seq[usize::from(swappiness == 0)];
        Ok((if oldest + MIN_NR_GENS <= generations.max_seq { budget } else { 0 }, ages))
    }

    /// Whether a pass may end before everything was scanned (`should_abort_scan`).
    fn lru_gen_aborts(&self, scan: &mut ScanControl, lruvec: usize, pass: &Pass) -> bool {
        let node = self.lruvecs[lruvec].node;
        if self.generation.lru_gen.stops_at_target {
            return scan.reclaimed >= scan.to_reclaim.max(2)
                || (scan.is_kswapd() && self.lru_gen_enough(node));
        }
        if scan.is_kswapd() {
            if scan.reclaimed - pass.reclaimed_before < scan.to_reclaim {
                return false;
            }
        } else {
            let met = scan.reclaimed >= scan.to_reclaim;
            if self.generations(lruvec).max_seq - pass.start_seq > 1 || (met && pass.swapped) {
                return true;
            }
        }
        if scan.priority > DEF_PRIORITY - 2 {
            return false;
        }
        let above = |&zone: &usize| {
            let zone = &self.zones[zone];
            zone.free >= if scan.is_kswapd() { zone.high_wmark_pages() } else { zone.low_wmark_pages() }
        };
        let safe = self.nodes[node].zones.iter().all(above);
        if safe {
            // As in the kernel, an allocation that finds memory free counts as progress.
            scan.reclaimed += MIN_LRU_BATCH;
        }
        safe
    }

    /// Ages for kswapd before each pass (`lru_gen_age_node`). If min_ttl_ms is set and the oldest generation
    /// is younger than that, or too few pages could be scanned, the kernel invokes the OOM killer; the model
    /// only counts that.
    fn lru_gen_age_node(&mut self, cx: &mut Cx, scan: &mut ScanControl, lruvec: usize) -> Result<(), Wait> {
        let ages_first = self.generation.lru_gen.kswapd_ages_first;
        if ages_first && !scan.memcgs_need_aging {
            scan.memcgs_need_aging = true;
            return Ok(());
        }
        let can_swap = self.lru_gen_swappiness(scan) > 0;
        let ages = self.should_run_aging(lruvec, can_swap);
        let ttl = self.tuning.lru_gen_min_ttl_ms * MS;
        if ttl > 0 && self.generations(lruvec).walk.is_none() {
            let generations = self.generations(lruvec);
            let oldest = match generations.rules.ages_by_generations {
                true => generations.evictable_min_seq(can_swap),
                false => generations.min_seq[FILE],
            };
            let birth = generations.born[(oldest % MAX_NR_GENS) as usize];
            let sizable = self.evictable(lruvec, can_swap) >> scan.priority > 0;
            if birth + ttl >= cx.now() || !sizable {
                self.events[vmstat::oom_kill] += 1;
                return Ok(());
            }
        }
        if ages_first && ages.needed {
            self.try_to_inc_max_seq(cx, lruvec, can_swap)?;
        }
        Ok(())
    }

    fn evictable(&self, lruvec: usize, can_swap: bool) -> u64 {
        self.lruvecs[lruvec].file() + if can_swap { self.lruvecs[lruvec].anon() } else { 0 }
    }

    /// `should_run_aging`
    fn should_run_aging(&self, lruvec: usize, can_swap: bool) -> Ages {
        let generations = self.generations(lruvec);
        let Generations { max_seq, min_seq, rules, .. } = *generations;
        let oldest = generations.evictable_min_seq(can_swap);
        if oldest + MIN_NR_GENS > max_seq {
            return Ages { needed: true, total: 0 };
        }
        let (mut young, mut old, mut total) = (0, 0, 0);
        for (kind, &min) in min_seq.iter().enumerate().skip(usize::from(!can_swap)) {
            for seq in min..=max_seq {
                let size = self.nr_pages(lruvec, list_of(seq, kind));
                total += size;
                young += if seq == max_seq { size } else { 0 };
                old += if seq + MIN_NR_GENS == max_seq { size } else { 0 };
            }
        }
        let uneven = young * MIN_NR_GENS > total || old * (MIN_NR_GENS + 2) < total;
        let uneven = uneven || rules.ages_by_generations;
        Ages { needed: oldest + MIN_NR_GENS == max_seq && uneven, total }
    }

    /// Walks page tables and begins a new generation (`try_to_inc_max_seq`). Continues the current walk if
    /// there is one.
    fn try_to_inc_max_seq(&mut self, cx: &mut Cx, lruvec: usize, can_swap: bool) -> Result<(), Wait> {
        let mut at = match self.generations(lruvec).walk {
            Some(at) => at,
            None => {
                self.generations_mut(lruvec).filter.next.clear();
                0
            }
        };
        let mut young = Vec::new();
        let table = self.ptes();
        while (at as usize) < self.entries.len() {
            if self.generations(lruvec).filter.has(at / table) {
                self.walk_table(cx, lruvec, at, can_swap, &mut young);
            }
            at += table;
            if cx.spent >= cx.slice && (at as usize) < self.entries.len() {
                self.generations_mut(lruvec).walk = Some(at);
                return Err(Wait::YIELD);
            }
        }
        self.inc_max_seq(cx, lruvec, can_swap);
        Ok(())
    }

    /// The zones of an lruvec, from the first to the one after the last.
    fn zones_of(&self, lruvec: usize) -> Range<usize> {
        let zones = &self.lruvecs[lruvec].zones;
        zones[0]..zones[zones.len() - 1] + 1
    }

    /// Whether accesses through any mapping of the object count as use of its pages (`should_skip_vma`).
    /// Those through a mapping that is locked, or was advised to be read at random or in sequence, do not.
    fn has_recency(&self, number: u32) -> bool {
        self.objects[number].mappings.iter().any(|mapping| {
            let process = self.processes.get(mapping.process);
            process.and_then(|process| process.vma(RegionId(mapping.region))).is_some_and(Vma::is_walked)
        })
    }

    /// Visits one page table (`walk_pte_range`): clears accessed bits of the lruvec's pages and moves these
    /// pages to the youngest generation.
    fn walk_table(&mut self, cx: &mut Cx, lruvec: usize, first: u32, can_swap: bool, young: &mut Vec<u32>) {
        let zones = self.zones_of(lruvec);
        let of_generations = self.generation.lru_gen.promotes_at_second;
        young.clear();
        let table = self.ptes();
        let end = (first + table).min(self.entries.len() as u32);
        let mut seen = 0;
        for run in (first..end).step_by(RUN as usize) {
            let number = self.objects.owner(run);
            if number == NONE || !self.has_recency(number) {
                continue;
            }
            let object = &self.objects[number];
            if object.hugetlb || (!object.file && !can_swap) {
                continue;
            }
            let shared = object.mappings.len();
            cx.spent += self.costs.walk * u64::from(RUN) * shared as u64;
            seen += RUN;
            for e in &mut self.entries[run as usize..(run + RUN) as usize] {
                let Some(frame) = entry::frame(*e) else { continue };
                if !zones.contains(&self.frames.zone_of(frame)) {
                    continue;
                }
                if of_generations && self.frames[frame as usize].list() < list::FIRST_GENERATION {
                    continue;
                }
                let own = *e & entry::MAPPED != 0 && *e & entry::ACCESSED != 0;
                let other = shared > 1 && self.frames[frame as usize].has(flag::OTHER);
                if own {
                    *e &= !entry::ACCESSED;
                }
                if other {
                    self.frames[frame as usize].flags &= !flag::OTHER;
                }
                if own || other {
                    young.push(frame);
                }
            }
        }
        for &frame in &*young {
            self.promote(lruvec, frame);
        }
        if young.len() as u32 * PER_CACHE_LINE >= seen && seen > 0 {
            Filter::set(&mut self.generations_mut(lruvec).filter.next, first / table);
        }
    }

    /// Moves a page that was accessed through a page table to the youngest generation, while it stays on its
    /// list (`folio_update_gen`). Returns whether it was in another generation. From 6.14 on the first access
    /// is only noted.
    fn promote(&mut self, lruvec: usize, frame: u32) -> bool {
        let rules = self.generation.lru_gen;
        let f = &mut self.frames[frame as usize];
        let (from, kind) = (f.counts_in(), kind_of(f));
        if from < list::FIRST_GENERATION || (rules.promotes_at_second && !set_refs(f)) {
            return false;
        }
        f.flags &= !refs_flags(&rules);
        let generations: &Generations = self.lruvecs[lruvec].state();
        let to = generations.youngest_list(kind);
        if from == to {
            return false;
        }
        f.flags &= !flag::PROMOTED;
        if f.list() != to {
            f.flags |= ((to - list::FIRST_GENERATION) as u32 / 2 + 1) << flag::PROMOTED_SHIFT;
        }
        let zone = &mut self.zones[f.zone()];
        zone.generations[from - list::FIRST_GENERATION] -= 1;
        zone.generations[to - list::FIRST_GENERATION] += 1;
        true
    }

    /// Begins a new generation (`inc_max_seq`). A type that has four gives up its oldest: pages go to the
    /// next one. If they are anonymous and cannot be swapped, they stay on their list, which becomes that of
    /// the youngest.
    fn inc_max_seq(&mut self, cx: &mut Cx, lruvec: usize, can_swap: bool) {
        let began_ns = cx.now();
        let mut moved = 0;
        for kind in [FILE, ANON] {
            if self.generations(lruvec).count(kind) < MAX_NR_GENS {
                continue;
            }
            let min = self.generations(lruvec).min_seq[kind];
            if kind == FILE || can_swap {
                for place in self.lruvecs[lruvec].places(list_of(min, kind)) {
                    while self.lruvecs[lruvec].lists[place].len > 0 {
                        let frame = self.lruvecs[lruvec].lists[place].oldest();
                        cx.spend(self.costs.scan);
                        moved += 1;
                        self.give_up(lruvec, frame, kind, min);
                    }
                }
            }
            let generations = self.generations_mut(lruvec);
            generations.step(kind);
            generations.min_seq[kind] += 1;
        }
        self.lock_batch(cx, lruvec, LockedBatch { began_ns, isolated: moved, skipped: 0, returned: 0 });
        let generations = self.generations_mut(lruvec);
        generations.max_seq += 1;
        generations.born[(generations.max_seq % MAX_NR_GENS) as usize] = cx.now();
        generations.walk = None;
        generations.filter.now = Some(std::mem::take(&mut generations.filter.next));
    }

    /// Moves a page of the oldest generation, which is given up, to the next one, unless it was promoted
    /// (`inc_min_seq`). From 6.14 on it counts as spared for its tier.
    fn give_up(&mut self, lruvec: usize, frame: u32, kind: usize, min: u64) {
        let rules = self.generation.lru_gen;
        let f = &mut self.frames[frame as usize];
        let before = *f;
        let mut to = f.counts_in();
        if to == list_of(min, kind) {
            f.flags &= !refs_flags(&rules);
            to = list_of(min + 1, kind);
        }
        self.lru_move(frame, to, true);
        if rules.type_by_all_tiers && !has_most_refs(&rules, &before) {
            let tier = tier_of(&rules, refs_of(&rules, &before), before.has(flag::WORKINGSET));
            self.generations_mut(lruvec).protected[kind][tier] += 1;
        }
    }

    /// Gives up generations that have become empty (`try_to_inc_min_seq`) and returns whether there were any.
    /// While there is swap, the oldest generation of file pages does not run ahead of that of anonymous
    /// pages; from 6.14 on each type may, but it keeps its third youngest generation, though empty, while the
    /// other has four.
    fn try_to_inc_min_seq(&mut self, lruvec: usize, can_swap: bool) -> bool {
        let max_seq = self.generations(lruvec).max_seq;
        let before = self.generations(lruvec).min_seq;
        let mut min = before;
        for (kind, min) in min.iter_mut().enumerate().skip(usize::from(!can_swap)) {
            let is_empty = |seq: u64| {
                let mut places = self.lruvecs[lruvec].places(list_of(seq, kind));
                places.all(|place| self.lruvecs[lruvec].lists[place].len == 0)
            };
            while *min + MIN_NR_GENS <= max_seq && is_empty(*min) {
                *min += 1;
            }
        }
        let generations = self.generations_mut(lruvec);
        if can_swap && generations.rules.ages_by_generations {
            let third = max_seq - MIN_NR_GENS;
            for kind in 0..2 {
                if min[kind] > third && min[1 - kind] < third {
                    min[kind] = third.max(before[kind]);
                }
            }
        } else if can_swap {
            min[ANON] = min[ANON].min(min[FILE]);
            min[FILE] = min[ANON].max(before[FILE]);
        }
        for kind in 0..2 {
            if min[kind] != before[kind] {
                generations.step(kind);
                generations.min_seq[kind] = min[kind];
            }
        }
        min != before
    }

    /// Evicts a batch from the oldest generation (`evict_folios`). Returns how many pages were looked at, and
    /// the wait for the device if there has to be one.
    fn evict_generation(
        &mut self,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        swappiness: u64,
        pass: &mut Pass,
    ) -> (u64, Option<Wait>) {
        let (first, tier) = self.generations(lruvec).choose(swappiness);
        let mut met = ReclaimStat::default();
        let mut scanned = self.evict_type(cx, scan, lruvec, (first, tier), &mut met, pass);
        if scanned == 0 && swappiness > 0 {
            scanned = self.evict_type(cx, scan, lruvec, (1 - first, None), &mut met, pass);
        }
        self.flush_pageout(cx, scan.is_kswapd());
        pass.unqueued_dirty += met.unqueued_dirty;
        if met.reclaimed > 0 {
            scan.reclaimed += met.reclaimed;
            self.freed_news(self.lruvecs[lruvec].node);
        }
        scanned += u64::from(self.try_to_inc_min_seq(lruvec, swappiness > 0));
        let generations = self.generations(lruvec);
        let out_of_cold = generations.evictable_min_seq(swappiness > 0) + MIN_NR_GENS > generations.max_seq;
        let sent = met.pageout > 0;
        let stall = sent.then(|| self.pageout_wait(cx, Device::Swap, scan.is_kswapd())).flatten();
        (if out_of_cold { 0 } else { scanned }, stall)
    }

    /// Evicts a batch of one type (`scan_folios`, and `shrink_folio_list` for the pages that it isolates): at
    /// most 64 pages that may be evicted, of at most 4096 pages scanned.
    fn evict_type(
        &mut self,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        (kind, tier): (usize, Option<usize>),
        met: &mut ReclaimStat,
        pass: &mut Pass,
    ) -> u64 {
        let generations = self.generations(lruvec);
        if generations.count(kind) == MIN_NR_GENS {
            return 0;
        }
        let last_tier = tier.unwrap_or_else(|| generations.own_last_tier(kind));
        let from = generations.oldest_list(kind);
        let (mut scanned, mut isolated, mut freed) = (0, 0, 0);
        let began_ns = cx.now();
        let mut tally = Tally::new(&self.lruvecs[lruvec]);
        // Looking around leaves pages alone that are off their lists, which matters where the accessed bit
        // that it clears does not save a page.
        let (isolates, mut batch) = (self.generation.lru_gen.promotes_at_second, Vec::new());
        // Pages of the highest zone are evicted first.
        let zones =
            self.lruvecs[lruvec].zones.iter().filter(|&&zone| self.zones[zone].index() <= scan.highest);
        for place in self.lruvecs[lruvec].places(from).take(zones.count()).rev() {
            let mut skipped = 0;
            while scanned < MAX_LRU_BATCH && isolated < MIN_LRU_BATCH && skipped < MIN_LRU_BATCH {
                let frame = self.lruvecs[lruvec].lists[place].oldest();
                if frame == NONE || skipped == self.lruvecs[lruvec].lists[place].len {
                    break;
                }
                scanned += 1;
                cx.spend(self.costs.scan);
                let zone = self.frames[frame as usize].zone();
                if let Some(sorted) = self.sort_page(lruvec, frame, kind, last_tier) {
                    self.events[PGREFILL[self.zones[zone].index()]] += 1;
                    if let Sorted::Dirty { queued } = sorted {
                        pass.file_taken += 1;
                        pass.unqueued_dirty += u64::from(!queued);
                    }
                } else if self.is_inhibited(scan, frame) {
                    skipped += 1;
                    self.lru_move(frame, from, false);
                } else {
                    isolated += 1;
                    tally.scanned(zone);
                    if isolates {
                        self.lru_remove(frame);
                        batch.push(frame);
                    } else if self.evict_page(cx, scan, lruvec, frame, met) {
                        tally.freed(zone);
                        freed += 1;
                    }
                }
            }
        }
        freed += self.evict_batch(cx, scan, lruvec, &batch, met, &mut tally);
        let returned = isolated - freed;
        self.lock_batch(cx, lruvec, LockedBatch { began_ns, isolated: scanned, skipped: 0, returned });
        self.note_scanned(scan, kind, &tally);
        if kind == FILE {
            pass.file_taken += isolated;
        } else {
            pass.swapped |= isolated > 0;
        }
        if isolated > 0 || scanned == MAX_LRU_BATCH { scanned } else { 0 }
    }

    /// Evicts pages that were taken off their lists (`shrink_folio_list`). Returns how many were freed.
    fn evict_batch(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        lruvec: usize,
        batch: &[u32],
        met: &mut ReclaimStat,
        tally: &mut Tally,
    ) -> u64 {
        let mut freed = 0;
        for &frame in batch {
            let zone = self.frames[frame as usize].zone();
            if self.evict_page(cx, scan, lruvec, frame, met) {
                tally.freed(zone);
                freed += 1;
            }
        }
        freed
    }

    /// Puts a page where it belongs if it may not be evicted now (`sort_folio`): promoted, protected by its
    /// tier, not available without waiting, or not evictable at all.
    fn sort_page(&mut self, lruvec: usize, frame: u32, kind: usize, last_tier: usize) -> Option<Sorted> {
        let rules = self.generation.lru_gen;
        let f = self.frames[frame as usize];
        if f.has(flag::MLOCKED) {
            self.events[vmstat::unevictable_pgs_culled] += 1;
            self.lru_move(frame, list::UNEVICTABLE, false);
            return Some(Sorted::Elsewhere);
        }
        if f.counts_in() != f.list() {
            self.lru_move(frame, f.counts_in(), false);
            return Some(Sorted::Elsewhere);
        }
        let tier = tier_of(&rules, refs_of(&rules, &f), f.has(flag::WORKINGSET));
        let most = has_most_refs(&rules, &f);
        let next = list_of(self.generations(lruvec).min_seq[kind] + 1, kind);
        if tier > last_tier || most {
            self.frames[frame as usize].flags &= !refs_flags(&rules);
            self.lru_move(frame, next, !rules.promotes_at_second);
            if !most || !rules.promotes_at_second {
                self.generations_mut(lruvec).protected[kind][tier] += 1;
            }
            if rules.counts_protected {
                self.events[ACTIVATE[kind]] += 1;
            }
            return Some(Sorted::Elsewhere);
        }
        if !rules.sets_unclean_aside {
            return None;
        }
        let dirty = kind == FILE && f.has(flag::DIRTY);
        let locked = f.has(flag::LOCKED) && !rules.promotes_at_second;
        if dirty || locked || f.has(flag::WRITEBACK) {
            let f = &mut self.frames[frame as usize];
            f.flags = (f.flags & !refs_flags(&rules)) | flag::RECLAIM;
            let queued = f.has(flag::WRITEBACK);
            self.lru_move(frame, next, false);
            return Some(if dirty { Sorted::Dirty { queued } } else { Sorted::Elsewhere });
        }
        None
    }

    /// Whether the reclaimer's restrictions forbid it to take the page (`isolate_folio`), as in zone reclaim
    /// of 6.1. On 6.12 a reclaimer with restrictions does not get this far (`all_or_nothing`).
    fn is_inhibited(&self, scan: &ScanControl, frame: u32) -> bool {
        let f = self.frames[frame as usize];
        let needs_write = f.has(flag::DIRTY) || (f.has(flag::ANON) && !f.has(flag::SWAPCACHE));
        (!scan.may_writepage && needs_write) || (!scan.may_unmap && self.is_mapped(frame))
    }

    /// Tries to evict one page at the tail of the oldest generation; a page that is rejected is put
    /// elsewhere. Returns whether it was freed.
    fn evict_page(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        lruvec: usize,
        frame: u32,
        met: &mut ReclaimStat,
    ) -> bool {
        let rules = self.generation.lru_gen;
        let f = &mut self.frames[frame as usize];
        if !f.has(flag::REFERENCED) {
            f.flags &= !(refs_flags(&rules) & !flag::REFERENCED);
        }
        if !rules.promotes_at_second {
            f.flags &= !flag::REFERENCED;
        }
        if rules.sets_unclean_aside {
            f.flags &= !flag::RECLAIM;
        }
        let slot = f.slot;
        met.taken += 1;
        if self.entries[slot as usize] & entry::MAPPED != 0
            && self.entries[slot as usize] & entry::ACCESSED != 0
        {
            if self.has_recency(self.objects.owner(slot)) {
                self.look_around(cx, lruvec, slot, scan.is_kswapd());
            } else {
                self.entries[slot as usize] &= !entry::ACCESSED;
            }
        }
        let fate = self.shrink_page(cx, scan, lruvec, frame, met);
        match fate {
            Fate::Freed => met.reclaimed += 1,
            Fate::Cull => {
                self.events[vmstat::unevictable_pgs_culled] += 1;
                self.lru_move(frame, list::UNEVICTABLE, false);
            }
            Fate::Keep | Fate::Activate => {
                self.events[vmstat::pgactivate] += u64::from(fate == Fate::Activate);
                let to = match rules.promotes_at_second {
                    true => self.place_of_rejected(lruvec, frame, fate == Fate::Activate),
                    false => self.place_by_state(lruvec, frame, fate == Fate::Activate),
                };
                self.lru_move(frame, to, false);
            }
        }
        fate == Fate::Freed
    }

    /// The list for a page that eviction could not free: the youngest, unless it waits for its write
    /// (`evict_folios` through 6.12).
    fn place_by_state(&mut self, lruvec: usize, frame: u32, activated: bool) -> usize {
        let flags = refs_flags(&self.generation.lru_gen);
        let f = &mut self.frames[frame as usize];
        let unclean = f.has(flag::RECLAIM) && f.has(flag::DIRTY | flag::WRITEBACK);
        let active = !unclean || activated;
        match (unclean, active) {
            (false, _) => f.flags &= !flags,
            (true, true) => f.flags &= !(flag::REFS | flag::REFERENCED),
            (true, false) if f.has(flag::WORKINGSET) => f.flags |= flag::REFERENCED,
            (true, false) => {}
        }
        let f = *f;
        self.generations(lruvec).list_for(&f, active)
    }

    /// The list for a page that eviction could not free: the one for such a page, but not the oldest again
    /// (`evict_folios` from 6.14 on).
    fn place_of_rejected(&mut self, lruvec: usize, frame: u32, activated: bool) -> usize {
        let f = self.frames[frame as usize];
        let generations = self.generations(lruvec);
        let to = generations.list_for(&f, activated);
        if to != generations.oldest_list(kind_of(&f)) {
            return to;
        }
        let f = &mut self.frames[frame as usize];
        f.flags &= !(flag::REFS | flag::REFERENCED);
        let f = *f;
        self.generations(lruvec).list_for(&f, true)
    }

    /// After the reverse mapping has found an accessed bit, looks at the bits around it
    /// (`lru_gen_look_around`), in 64 entries of one page table and object.
    fn look_around(&mut self, cx: &mut Cx, lruvec: usize, slot: u32, by_kswapd: bool) {
        const WINDOW: u32 = MIN_LRU_BATCH as u32;
        let object = self.objects.at(slot);
        let ptes = self.ptes();
        let table = slot - slot % ptes;
        let (low, high) = (table.max(object.base), (table + ptes).min(object.base + object.pages));
        let first = slot.saturating_sub(WINDOW / 2).min(high.saturating_sub(WINDOW)).max(low);
        let end = (first + WINDOW).min(high);
        let zones = self.zones_of(lruvec);
        let of_generations = self.generation.lru_gen.promotes_at_second;
        cx.spend(self.costs.walk * u64::from(end - first));
        let mut young = Vec::new();
        for near in (first..end).filter(|&near| near != slot) {
            let e = &mut self.entries[near as usize];
            let frame = *e & entry::VALUE;
            if *e & entry::MAPPED == 0
                || *e & entry::ACCESSED == 0
                || !zones.contains(&self.frames.zone_of(frame))
                || (of_generations && self.frames[frame as usize].list() < list::FIRST_GENERATION)
            {
                continue;
            }
            *e &= !entry::ACCESSED;
            young.push(frame);
        }
        let seen = young.len() as u32 + 1;
        match self.generation.lru_gen.promotes_at_second {
            true => self.note_neighbours(lruvec, &young, by_kswapd),
            false => self.promote_neighbours(lruvec, slot, young, by_kswapd),
        }
        if seen * PER_CACHE_LINE >= end - first
            && let Some(now) = &mut self.generations_mut(lruvec).filter.now
        {
            Filter::set(now, slot / ptes);
        }
    }

    /// What looking around a page makes of its neighbours in use, through 6.12.
    fn promote_neighbours(&mut self, lruvec: usize, slot: u32, mut young: Vec<u32>, by_kswapd: bool) {
        let youngest = self.generations(lruvec).max_seq;
        let is_older =
            |f: &Frame| f.list() >= list::FIRST_GENERATION && f.counts_in() != list_of(youngest, kind_of(f));
        young.retain(|&frame| is_older(&self.frames[frame as usize]));
        // Direct reclaim has no walk whose batch the pages could join, so they are activated. On 6.1 that is
        // done only if they are too few to take the lock of the lists for.
        let rules = self.generation.lru_gen;
        let activates = !by_kswapd && (!rules.activates_few || young.len() < PAGEVEC_SIZE);
        if rules.marks_looked_at {
            // The page itself is off its list and therefore counts as a page without a generation.
            let frame = self.entries[slot as usize] & entry::VALUE;
            self.frames[frame as usize].flags |= flag::REFERENCED;
        }
        for frame in young {
            self.promote(lruvec, frame);
            if activates {
                self.lru_move(frame, self.frames[frame as usize].counts_in(), false);
                self.events[vmstat::pgactivate] += 1;
            }
        }
    }

    /// What looking around a page makes of its neighbours in use, from 6.14 on (`walk_update_folio`): kswapd
    /// promotes them as aging does, direct reclaim activates those that were in use before.
    fn note_neighbours(&mut self, lruvec: usize, young: &[u32], by_kswapd: bool) {
        for &frame in young {
            if by_kswapd {
                self.promote(lruvec, frame);
                continue;
            }
            let f = &mut self.frames[frame as usize];
            let (second, kind, from) = (set_refs(f), kind_of(f), f.counts_in());
            let to = list_of(self.generations(lruvec).max_seq, kind);
            if second && from != to {
                self.lru_move(frame, to, false);
                self.events[vmstat::pgactivate] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_workload::{Advice, How, Policy, RegionId};
    use proptest::prelude::*;

    use super::super::readahead::RaState;
    use super::super::vmscan::Reclaimer;
    use super::super::vmstat::{PGSCAN, PGSCAN_DIRECT, PGSCAN_KSWAPD, PGSTEAL};
    use super::super::{Config, Done, Fault, Kswapd, Read, Stop, WaitChannel, WaitReason, Write};
    use super::*;
    use crate::tuning::Tuning;

    /// A machine whose devices answer at once.
    struct Machine {
        mm: Mm,
        cx: Cx,
        kswapd: usize,
        kswapds: Vec<Kswapd>,
        /// CPU time after which calls are interrupted.
        slice: u64,
    }

    impl Machine {
        /// Touches the first pages, ages, and counts the anonymous pages of each generation, the youngest
        /// first.
        fn age_after(&mut self, touched: u32) -> [u64; 4] {
            for page in 0..touched {
                self.touch(0, page, true);
            }
            self.mm.try_to_inc_max_seq(&mut self.cx, 0, true).unwrap();
            self.check();
            let youngest = self.mm.generations(0).max_seq;
            [0, 1, 2, 3].map(|age| self.mm.nr_pages(0, list_of(youngest - age, ANON)))
        }

        fn new(generation: &str, pages: u64, swap_pages: u64, swappiness: u64) -> Self {
            Self::with(generation, &[pages], swap_pages, Tuning { swappiness, ..Tuning::default() })
        }

        fn with(generation: &str, nodes: &[u64], swap_pages: u64, tuning: Tuning) -> Self {
            let config = Config {
                tuning: Tuning {
                    transparent_hugepage: Some(false),
                    read_ahead_kb: 0,
                    page_cluster: 0,
                    ..tuning
                },
                swap_pages,
                kernel_pages: Some(vec![0; nodes.len()]),
                reserved_pages: None,
                pagesets: Vec::new(),
                ..Config::new(Generation::named(generation).unwrap(), nodes.to_vec())
            };
            let mut mm = Mm::new(&config);
            let process = mm.create_process(Policy::Local);
            let task = mm.create_task();
            let kswapd = mm.create_task();
            let kswapds = (0..nodes.len()).map(Kswapd::new).collect();
            Machine { mm, cx: Cx::new(task, 0, process, 1), kswapd, kswapds, slice: MS }
        }

        /// Completes requests and lets everybody run who was woken.
        fn others(&mut self) {
            loop {
                let ios: Vec<_> = self.mm.take_io().collect();
                let woken: Vec<_> = self.mm.take_events().collect();
                if ios.is_empty() && woken.is_empty() {
                    break;
                }
                for io in ios {
                    self.mm.complete(io.id, 0);
                }
                let start = self.cx.now();
                for event in woken {
                    match event {
                        WaitChannel::Kswapd(node) => {
                            let mut cx = Cx::new(self.kswapd, 0, usize::MAX, start);
                            cx.slice = self.slice;
                            for _ in 0..10_000 {
                                let wait = self.kswapds[node].poll(&mut self.mm, &mut cx);
                                if wait.why == WaitReason::Idle {
                                    break;
                                }
                                let ios: Vec<_> = self.mm.take_io().collect();
                                for io in ios {
                                    self.mm.complete(io.id, 0);
                                }
                                (cx.start, cx.spent) = (cx.now(), 0);
                            }
                        }
                        WaitChannel::Flusher => {
                            let mut cx = Cx::new(self.kswapd, 0, usize::MAX, start);
                            self.mm.flusher(&mut cx);
                        }
                        _ => {}
                    }
                }
            }
        }

        /// Runs an operation to its end; returns `false` if there was no memory for it.
        fn run(&mut self, mut operation: impl FnMut(&mut Mm, &mut Cx) -> Done) -> bool {
            self.cx.slice = self.slice;
            for _ in 0..100_000 {
                match operation(&mut self.mm, &mut self.cx) {
                    Ok(()) => {
                        self.others();
                        (self.cx.start, self.cx.spent) = (self.cx.now(), 0);
                        return true;
                    }
                    Err(Stop::Wait(wait)) => {
                        self.others();
                        let until = wait.until.unwrap_or(0).max(self.cx.now() + 1000);
                        (self.cx.start, self.cx.spent) = (until, 0);
                    }
                    Err(Stop::OutOfMemory) => return false,
                    Err(stop) => panic!("{stop:?}: the test asks for something that there is not"),
                }
            }
            panic!("the operation does not end");
        }

        fn touch(&mut self, region: u32, page: u32, write: bool) -> bool {
            let mut fault = Fault::new(RegionId(region), page, write);
            self.run(|mm, cx| fault.poll(mm, cx))
        }

        fn read(&mut self, file: u32, page: u32) {
            let mut ra = RaState { advice: Advice::Random, ..RaState::default() };
            let mut read = Read::new(u64::from(page) * 4096, 4096, How::Buffered);
            let ok = self.run(|mm, cx| read.poll(mm, cx, file, &mut ra));
            assert!(ok, "a read finds no memory");
        }

        fn map_anon(&mut self, region: u32, pages: u32) {
            self.mm.map_anon(&mut self.cx, RegionId(region), pages).unwrap();
        }

        fn map_file(&mut self, region: u32, pages: u32) -> u32 {
            let file = self.mm.declare_file(pages, true);
            self.mm.map_file(&mut self.cx, RegionId(region), file, pages, true).unwrap();
            file
        }

        fn resident(&self, object: u32) -> usize {
            let object = &self.mm.objects[object];
            let (first, end) = (object.base as usize, (object.base + object.pages) as usize);
            self.mm.entries[first..end].iter().filter(|&&e| entry::frame(e).is_some()).count()
        }

        /// Checks that every page is on the list that its flags name, that counts equal a recount, and that
        /// numbers of generations are within their bounds.
        fn check(&self) {
            assert_eq!(self.mm.check(), Ok(()));
            let mut zones = vec![[0u64; 8]; self.mm.zones.len()];
            for (which, l) in self.mm.lruvecs.iter().enumerate() {
                let generations: &Generations = l.state();
                assert!(generations.is_valid(), "{generations:?}");
                for classic in 1..list::UNEVICTABLE {
                    assert_eq!(l.len(classic), 0, "with generations nothing is on the classic lists");
                }
                for (place, lru) in l.lists.iter().enumerate().skip(list::FIRST_GENERATION) {
                    let mut len = 0;
                    for at in lru.iter() {
                        let f = &self.mm.frames[at as usize];
                        assert_eq!(kind_of(f), place % 2);
                        assert_eq!(l.place(f.list(), f.zone()), place);
                        assert_eq!(self.mm.lruvec_of(f.zone()), which);
                        assert_eq!(entry::frame(self.mm.entries[f.slot as usize]), Some(at));
                        zones[f.zone()][f.counts_in() - list::FIRST_GENERATION] += 1;
                        len += 1;
                    }
                    assert_eq!(lru.len, len);
                }
                let mut sum = [0; 6];
                for &zone in &l.zones {
                    let sizes = self.mm.zone_lru_sizes(zone);
                    sum.iter_mut().zip(sizes).for_each(|(sum, size)| *sum += size);
                }
                assert_eq!(sum, self.mm.lru_sizes(which));
            }
            for (zone, counted) in self.mm.zones.iter().zip(zones) {
                assert_eq!(zone.generations, counted);
            }
            let e = &self.mm.events;
            for kind in 0..2 {
                assert!(e[PGSTEAL[kind]] <= e[PGSCAN[kind]]);
            }
            let scanned = e.sum(&PGSCAN_KSWAPD) + e.sum(&PGSCAN_DIRECT);
            assert_eq!(scanned, e.sum(&PGSCAN));
        }
    }

    const KERNELS: [&str; 4] = ["linux-6.1+mglru", "linux-6.8+mglru", "linux-6.12+mglru", "linux-6.18+mglru"];
    const OLD: LruGen = LruGen::LINUX_6_12;
    const NEW: LruGen = LruGen::LINUX_6_18;

    fn reworked() -> Generations {
        Generations { rules: NEW, ..Generations::default() }
    }

    #[test]
    fn accesses_make_tiers() {
        let mut frame = Frame::default();
        let tiers: Vec<(u32, usize)> = (0..7)
            .map(|_| {
                count_access(&OLD, &mut frame);
                (refs_of(&OLD, &frame), tier_of(&OLD, refs_of(&OLD, &frame), frame.has(flag::WORKINGSET)))
            })
            .collect();
        // Five accesses reach the last tier, where the counter stays.
        assert_eq!(tiers, [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (4, 3), (4, 3)]);
    }

    #[test]
    fn new_pages_go_where_the_kernel_puts_them() {
        let anon = Frame { flags: flag::ANON, ..Frame::default() };
        let cached = Frame { flags: flag::ANON | flag::SWAPCACHE, ..Frame::default() };
        let file = Frame::default();
        let written = Frame { flags: flag::RECLAIM | flag::WRITEBACK, ..file };
        let mut generations = Generations::default();
        let ages = |generations: &Generations| {
            let seqs = (generations.max_seq - 3)..=generations.max_seq;
            let age = |frame: &Frame, hot| {
                let list = generations.list_for(frame, hot);
                seqs.clone().position(|seq| list_of(seq, kind_of(frame)) == list).unwrap()
            };
            [
                age(&file, true),
                age(&anon, true),
                age(&anon, false),
                age(&written, false),
                age(&cached, false),
                age(&file, false),
            ]
        };
        // Age 0 is the oldest of four generations: a page that was read starts in the second oldest.
        assert_eq!(ages(&generations), [3, 3, 2, 2, 1, 1]);
        // With three and with two generations, the page starts in the oldest there is.
        generations.min_seq = [generations.max_seq - 2; 2];
        assert_eq!(ages(&generations), [3, 3, 2, 2, 1, 1]);
        generations.min_seq = [generations.max_seq - 1; 2];
        assert_eq!(ages(&generations), [3, 3, 2, 2, 2, 2]);
    }

    #[test]
    fn the_type_is_chosen_by_refaults_and_swappiness() {
        let mut g = Generations::default();
        // Without refaults file pages go, whatever the swappiness between the ends.
        assert_eq!([0, 1, 60, 199, 200].map(|s| g.choose(s).0), [FILE, FILE, FILE, FILE, ANON]);
        g.evicted[ANON][0] = 10_000;
        g.evicted[FILE][0] = 10_000;
        g.refaulted[FILE][0] = 1000;
        g.refaulted[ANON][0] = 1000;
        // 1000 (10000 + 64) s <= 1001 10000 (200 - s): up to 99.
        assert_eq!([2, 60, 99, 100, 101, 199].map(|s| g.choose(s).0), [FILE, FILE, FILE, ANON, ANON, ANON]);
        // File pages that come back more often are worth more.
        g.refaulted[FILE][0] = 4000;
        assert_eq!([1, 20, 60, 200].map(|s| g.choose(s).0), [FILE, FILE, ANON, ANON]);
        // Below 64 refaults nothing is concluded from them.
        g.refaulted[FILE][0] = 63;
        g.refaulted[ANON][0] = 0;
        assert_eq!(g.choose(199).0, FILE);
        g.refaulted[FILE][0] = 64;
        assert_eq!(g.choose(199).0, ANON);
        // Anonymous pages that are a generation behind go first, but never with swappiness 0.
        g.min_seq[FILE] += 1;
        assert_eq!([0, 1, 60, 200].map(|s| g.choose(s).0), [FILE, ANON, ANON, ANON]);
    }

    #[test]
    fn tiers_that_refault_twice_as_often_are_spared() {
        let mut g = Generations::default();
        g.evicted[FILE] = [10_000, 1000, 1000, 0];
        g.refaulted[FILE] = [1000, 198, 202, 0];
        // 198 10064 <= 1001 1000 2, but 202 is more.
        assert_eq!(g.own_last_tier(FILE), 1);
        g.refaulted[FILE][1] = 200;
        assert_eq!(g.own_last_tier(FILE), 0);
        g.refaulted[FILE] = [1000, 63, 63, 63];
        assert_eq!(g.own_last_tier(FILE), TIERS - 1);
        // A step halves the means.
        g.protected[FILE][1] = 500;
        g.step(FILE);
        assert_eq!((g.avg_refaulted[FILE], g.avg_total[FILE]), ([500, 31, 31, 31], [5000, 750, 500, 0]));
        assert_eq!(g.evicted[FILE], [0; TIERS]);
    }

    #[test]
    fn a_refault_is_recent_while_its_generation_is_the_oldest() {
        let mut g = Generations::default();
        let mut frame = Frame::default();
        for _ in 0..4 {
            count_access(&OLD, &mut frame);
        }
        let shadow = Shadow { lruvec: 0, clock: g.evicted(&frame) as u32, bits: 27, workingset: true };
        assert_eq!(g.evicted[FILE], [0, 0, 1, 0]);
        assert_eq!(g.refaulted(FILE, shadow), Some(3));
        assert_eq!(g.refaulted[FILE], [0, 0, 1, 0]);
        g.min_seq[FILE] += 1;
        assert_eq!(g.refaulted(FILE, shadow), None);
    }

    #[test]
    fn aging_promotes_what_was_accessed_where_it_pays_to_look() {
        let mut m = Machine::new("linux-6.12+mglru", 8192, 1000, 60);
        m.map_anon(0, 1000);
        let mut age = |touched: u32| m.age_after(touched);
        // From the youngest generation on: all pages are new, then the accessed ones move on.
        assert_eq!(age(1000), [0, 1000, 0, 0]);
        assert_eq!(age(300), [0, 300, 700, 0]);
        // The second page table had no accessed entry in the last walk and is skipped.
        assert_eq!(age(1000), [0, 512, 0, 488]);
        // Its accessed bits stay because the walk does not look at it; a type that has four generations gives
        // up the oldest.
        assert_eq!(age(0), [0, 0, 512, 488]);
        let accessed = m.mm.entries[..1000].iter().filter(|&&e| e & entry::ACCESSED != 0).count();
        assert_eq!(accessed, 488);
    }

    #[test]
    fn a_look_around_marks_the_page_and_activates_its_neighbours_as_the_kernel_does() {
        for (kernel, marks, activated) in
            [("linux-6.1+mglru", true, 0), ("linux-6.8+mglru", true, 39), ("linux-6.12+mglru", false, 39)]
        {
            let mut m = Machine::new(kernel, 8192, 1000, 60);
            m.map_anon(0, 512);
            for page in 0..512 {
                m.touch(0, page, true);
            }
            m.mm.try_to_inc_max_seq(&mut m.cx, 0, true).unwrap();
            for page in 0..40 {
                m.touch(0, page, true);
            }
            let before = m.mm.events[vmstat::pgactivate];
            m.mm.look_around(&mut m.cx, 0, 20, false);
            let page = m.mm.frames[(m.mm.entries[20] & entry::VALUE) as usize];
            assert_eq!(page.has(flag::REFERENCED), marks, "{kernel}");
            assert_eq!(m.mm.events[vmstat::pgactivate] - before, activated, "{kernel}");
        }
    }

    #[test]
    fn what_was_promoted_moves_when_eviction_meets_it() {
        for kernel in KERNELS {
            // New pages begin in the youngest generation, from 6.14 on in the second youngest.
            let age = if kernel == "linux-6.18+mglru" { 3 } else { 2 };
            let mut m = Machine::new(kernel, 8192, 1000, 200);
            m.map_anon(0, 1000);
            for page in 0..1000 {
                m.touch(0, page, true);
            }
            m.mm.try_to_inc_max_seq(&mut m.cx, 0, true).unwrap();
            for page in 0..300 {
                m.touch(0, page, true);
            }
            m.mm.try_to_inc_max_seq(&mut m.cx, 0, true).unwrap();
            let (from, to) = {
                let l = &m.mm.lruvecs[0];
                let from = list_of(l.state::<Generations>().max_seq - age, ANON);
                // It belongs to the younger generation and is still on the list of the older one.
                let to = list_of(l.state::<Generations>().max_seq - 1, ANON);
                let len = |which| m.mm.lruvecs[0].places(which).map(|place| l.lists[place].len).sum::<u64>();
                assert_eq!((len(from), len(to)), (1000, 0), "{kernel}");
                (from, to)
            };
            assert_eq!((m.mm.nr_pages(0, from), m.mm.nr_pages(0, to)), (700, 300), "{kernel}");
            assert_eq!(m.mm.events.sum(&PGREFILL), 0, "{kernel}");
            let mut pass = Pass { aged: true, ..Pass::default() };
            let mut met = ReclaimStat::default();
            m.mm.generations_mut(0).min_seq[ANON] = m.mm.generations(0).max_seq - age;
            let mut scan = ScanControl::new(Reclaimer::Direct, DEF_PRIORITY, MIN_LRU_BATCH);
            let scanned = m.mm.evict_type(&mut m.cx, &mut scan, 0, (ANON, None), &mut met, &mut pass);
            let left: u64 = m.mm.lruvecs[0].places(from).map(|place| m.mm.lruvecs[0].lists[place].len).sum();
            assert_eq!(left, 1000 - 300 - MIN_LRU_BATCH, "{kernel}");
            assert_eq!(m.mm.events.sum(&PGREFILL), 300, "{kernel}");
            assert_eq!((scanned, met.taken), (300 + MIN_LRU_BATCH, MIN_LRU_BATCH), "{kernel}");
            m.mm.flush_pageout(&mut m.cx, scan.is_kswapd());
            m.check();
        }
    }

    #[test]
    fn a_scan_does_not_drive_out_what_is_in_use() {
        for kernel in KERNELS {
            let mut m = Machine::new(kernel, 8192, 0, 60);
            let hot = m.map_file(0, 3000);
            let stream = m.mm.declare_file(80_000, true);
            for page in 0..3000 {
                m.touch(0, page, false);
            }
            let mut faults = 0;
            for page in 0..80_000 {
                m.read(stream, page);
                if page % 1000 == 0 {
                    let before = m.mm.events[vmstat::pgmajfault];
                    for page in 0..3000 {
                        m.touch(0, page, false);
                    }
                    faults += m.mm.events[vmstat::pgmajfault] - before;
                }
            }
            m.check();
            let evicted = m.mm.events[PGSTEAL[FILE]];
            assert!(evicted > 60_000, "{kernel}: {evicted} pages of the stream had to go");
            assert_eq!(m.resident(hot), 3000, "{kernel}");
            assert!(faults <= 30, "{kernel}: {faults} faults on 240,000 accesses to hot pages");
        }
    }

    #[test]
    fn a_mapping_advised_for_random_access_protects_nothing() {
        let mut m = Machine::new("linux-6.12+mglru", 8192, 0, 60);
        m.map_file(0, 3000);
        for vma in m.mm.processes.iter_mut().flat_map(|process| process.vmas.iter_mut().flatten()) {
            vma.advice = Advice::Random;
        }
        let stream = m.mm.declare_file(40_000, true);
        for page in 0..40_000 {
            m.read(stream, page);
            m.touch(0, page % 3000, false);
        }
        m.check();
        let faults = m.mm.events[vmstat::pgmajfault];
        assert!(faults > 10_000, "{faults} of 40,000 accesses");
    }

    /// Anonymous memory of 5000 pages, each written once, then a file of 4000 pages read four times, in 6400
    /// pages of memory. Returns the pages swapped out, and the resident pages of the file. The watermarks are
    /// as far apart as on a larger machine, so that kswapd needs more than one batch and reaches priorities
    /// at which it ages.
    fn balance(kernel: &str, swappiness: u64) -> (u64, usize) {
        // On a machine as small as this, a boost of 512 pages would decide.
        let (watermark_scale_factor, watermark_boost_factor) = (500, 0);
        let tuning =
            Tuning { swappiness, watermark_scale_factor, watermark_boost_factor, ..Tuning::default() };
        let mut m = Machine::with(kernel, &[6400], 20_000, tuning);
        m.map_anon(0, 5000);
        let file = m.mm.declare_file(4000, true);
        for page in 0..5000 {
            m.touch(0, page, true);
        }
        for _ in 0..4 {
            for page in 0..4000 {
                m.read(file, page);
            }
        }
        m.check();
        (m.mm.events[vmstat::pswpout], m.resident(file))
    }

    #[test]
    fn swappiness_0_and_1_spare_anonymous_memory_and_200_takes_it() {
        for kernel in &KERNELS[..3] {
            let [never, last, first] = [0, 1, 200].map(|swappiness| balance(kernel, swappiness));
            assert_eq!(never.0, 0, "{kernel}: pages swapped with swappiness 0");
            // 6.8 may start at a priority below 6, and so ages more often and swaps what is old.
            let most = if *kernel == "linux-6.8+mglru" { 700 } else { 400 };
            assert!(last.0 < most, "{kernel}: {} pages swapped with swappiness 1", last.0);
            assert!(first.0 > 1500, "{kernel}: {} pages swapped with swappiness 200", first.0);
            assert!(first.1 > never.1 + 1000, "{kernel}: {} and {} pages of the file", first.1, never.1);
        }
    }

    #[test]
    fn from_6_14_on_anonymous_memory_is_not_aged_while_the_oldest_files_last() {
        // What is read joins the oldest generation of files, so that there are four: no aging is due, and
        // anonymous pages stay in the second youngest, which is not evicted.
        for swappiness in [0, 1, 60, 200] {
            assert_eq!(balance("linux-6.18+mglru", swappiness).0, 0, "with swappiness {swappiness}");
        }
        // Without files it is.
        let mut m = Machine::new("linux-6.18+mglru", 6400, 20_000, 60);
        m.map_anon(0, 9000);
        for page in 0..9000 {
            assert!(m.touch(0, page, true));
        }
        m.check();
        assert!(m.mm.events[vmstat::pswpout] > 2600, "{} pages swapped", m.mm.events[vmstat::pswpout]);
    }

    /// Reads a file of 2000 pages round and round, each page `times` in a row, beside a stream that is read
    /// once. Returns the mean number of the file's pages that are resident.
    fn kept(kernel: &str, times: u32) -> usize {
        let mut m = Machine::new(kernel, 6400, 0, 60);
        let (again, stream) = (m.mm.declare_file(2000, true), m.mm.declare_file(120_000, true));
        let mut resident = 0;
        for page in 0..120_000u32 {
            m.read(stream, page);
            if page % 4 == 0 {
                for _ in 0..times {
                    m.read(again, (page / 4) % 2000);
                }
            }
            if page >= 60_000 && page % 5000 == 0 {
                resident += m.resident(again);
            }
        }
        m.check();
        resident / 12
    }

    #[test]
    fn pages_read_more_than_once_survive_those_read_once() {
        for kernel in KERNELS {
            let [once, twice, five] = [1, 2, 5].map(|times| kept(kernel, times));
            assert!(twice > once + once / 10, "{kernel}: {once} pages read once, {twice} read twice");
            assert!(five > once + once / 10, "{kernel}: {once} pages read once, {five} read five times");
        }
    }

    #[test]
    fn sizes_follow_the_youngest_two_generations() {
        let mut m = Machine::new("linux-6.12+mglru", 8192, 1000, 60);
        m.map_anon(0, 500);
        for page in 0..500 {
            m.touch(0, page, true);
        }
        let file = m.mm.declare_file(700, true);
        for page in 0..700 {
            m.read(file, page);
        }
        assert_eq!(m.mm.lru_sizes(0), [0, 0, 500, 700, 0, 0]);
        m.check();
    }

    #[test]
    fn kswapd_starts_at_the_priority_that_its_target_calls_for() {
        let mut m = Machine::new("linux-6.12+mglru", 65_536, 0, 60);
        assert_eq!(m.mm.lru_gen_initial_priority(0), 6, "nothing to reclaim");
        let file = m.mm.declare_file(32_768, true);
        for page in 0..32_768 {
            m.read(file, page);
        }
        let target = m.mm.node_sum(0, |zone| zone.high_wmark_pages().max(SWAP_CLUSTER_MAX));
        assert!((513..=1024).contains(&target), "{target}");
        // log2 of 32768 inactive pages, less the bits of the target.
        assert_eq!(m.mm.lru_gen_initial_priority(0), 6, "15 - 10, but not below 6");
        m.mm.generation = Generation::named("linux-6.8+mglru").unwrap();
        assert_eq!(m.mm.lru_gen_initial_priority(0), 5, "6.8 has no lower limit");
        m.mm.generation = Generation::named("linux-6.1+mglru").unwrap();
        assert_eq!(m.mm.lru_gen_initial_priority(0), DEF_PRIORITY);
    }

    #[test]
    fn min_ttl_is_reported_when_the_working_set_does_not_fit() {
        let killed = |min_ttl| {
            let tuning = Tuning { lru_gen_min_ttl_ms: min_ttl, ..Tuning::default() };
            let mut m = Machine::with("linux-6.12+mglru", &[6400], 0, tuning);
            let file = m.mm.declare_file(12_000, true);
            for page in 0..12_000 {
                m.read(file, page);
            }
            m.mm.events[vmstat::oom_kill]
        };
        assert_eq!(killed(0), 0);
        assert!(killed(3_600_000) > 0);
    }

    #[test]
    fn two_nodes_age_on_their_own() {
        let tuning = Tuning { watermark_scale_factor: 500, ..Tuning::default() };
        let mut m = Machine::with("linux-6.12+mglru", &[8192, 8192], 0, tuning);
        let hot = m.map_file(0, 2000);
        m.map_file(1, 6000);
        for (node, region, pages) in [(1, 0, 2000), (0, 1, 6000)] {
            m.mm.processes[0].policy = Policy::Bind(vec![node]);
            for page in 0..pages {
                m.touch(region, page, false);
            }
        }
        let stream = m.mm.declare_file(40_000, true);
        for page in 0..40_000 {
            m.read(stream, page);
        }
        m.check();
        let seqs = [m.mm.generations(0).max_seq, m.mm.generations(1).max_seq];
        assert!(seqs[0] > seqs[1], "{seqs:?}");
        let object = &m.mm.objects[hot];
        let bits = &m.mm.entries[object.base as usize..(object.base + 2000) as usize];
        assert!(
            bits.iter().all(|e| e & entry::ACCESSED != 0),
            "node 0 cleared accessed bits of node 1's pages"
        );
    }

    #[test]
    fn from_6_14_on_the_fifth_access_by_a_system_call_makes_the_working_set() {
        let mut frame = Frame::default();
        let tiers: Vec<(u32, usize, bool)> = (0..6)
            .map(|_| {
                count_access(&NEW, &mut frame);
                let workingset = frame.has(flag::WORKINGSET);
                let refs = refs_of(&NEW, &frame);
                (refs, tier_of(&NEW, refs, workingset), has_most_refs(&NEW, &frame))
            })
            .collect();
        let expected =
            [(1, 0, false), (2, 1, false), (3, 2, false), (4, 2, false), (4, 3, true), (4, 3, true)];
        assert_eq!(tiers, expected);
    }

    #[test]
    fn from_6_14_on_the_working_set_starts_a_generation_ahead() {
        let mut generations = reworked();
        let age = |generations: &Generations, flags: u32, hot: bool| {
            let frame = Frame { flags, ..Frame::default() };
            let list = generations.list_for(&frame, hot);
            (0..4).position(|age| list_of(generations.max_seq - age, kind_of(&frame)) == list).unwrap()
        };
        let ages = |generations: &Generations| {
            [
                (flag::WORKINGSET, true),
                (0, true),
                (flag::ANON | flag::WORKINGSET, true),
                (flag::ANON, true),
                (flag::ANON, false),
                (flag::RECLAIM | flag::DIRTY, false),
                (flag::WORKINGSET, false),
                (flag::ANON | flag::SWAPCACHE, false),
                (0, false),
            ]
            .map(|(flags, hot)| age(generations, flags, hot))
        };
        // Age 0 is the youngest of four generations: what a system call has read starts in the oldest.
        assert_eq!(ages(&generations), [0, 1, 0, 1, 1, 1, 2, 3, 3]);
        generations.min_seq = [generations.max_seq - 1; 2];
        assert_eq!(ages(&generations), [0, 1, 0, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn from_6_14_on_all_tiers_together_choose_the_type() {
        let mut g = reworked();
        assert_eq!(
            [0, 1, 60, 199, 200].map(|s| g.choose(s)),
            [FILE, FILE, FILE, FILE, ANON].map(|k| (k, None))
        );
        g.evicted[ANON] = [2000, 3000, 5000, 0];
        g.evicted[FILE] = [10_000, 0, 0, 0];
        g.refaulted[FILE] = [500, 300, 200, 0];
        g.refaulted[ANON] = [0, 0, 0, 1000];
        // 1000 (10000 + 64) s <= 1001 10000 (200 - s): up to 99.
        assert_eq!([2, 60, 99, 100, 101, 199].map(|s| g.choose(s).0), [FILE, FILE, FILE, ANON, ANON, ANON]);
        // Anonymous pages that are a generation behind do not go first for that.
        g.min_seq[FILE] += 1;
        assert_eq!([0, 1, 60, 200].map(|s| g.choose(s).0), [FILE, FILE, FILE, ANON]);
    }

    #[test]
    fn from_6_14_on_tiers_that_refault_half_as_often_again_are_spared() {
        let mut g = reworked();
        g.evicted[FILE] = [10_000, 1000, 1000, 0];
        g.refaulted[FILE] = [1000, 149, 150, 0];
        // 149 10064 2 <= 1001 1000 3, but 150 is more.
        assert_eq!(g.own_last_tier(FILE), 1);
        g.refaulted[FILE][1] = 150;
        assert_eq!(g.own_last_tier(FILE), 0);
    }

    #[test]
    fn from_6_14_on_a_refault_is_recent_for_four_generations() {
        let mut g = reworked();
        let mut frame = Frame::default();
        for _ in 0..3 {
            count_access(&NEW, &mut frame);
        }
        let shadow = Shadow { lruvec: 0, clock: g.evicted(&frame) as u32, bits: 27, workingset: false };
        assert_eq!(g.evicted[FILE], [0, 0, 1, 0]);
        g.min_seq[FILE] += 1;
        assert_eq!(g.refaulted(FILE, shadow), Some(3), "whether or not its generation is the oldest");
        assert_eq!(g.refaulted(FILE, Shadow { workingset: true, ..shadow }), Some(3));
        assert_eq!(g.refaulted[FILE], [0, 0, 1, 1]);
        g.max_seq += 1;
        assert_eq!(g.refaulted(FILE, shadow), None);
    }

    #[test]
    fn from_6_14_on_aging_promotes_what_it_finds_accessed_for_the_second_time() {
        let mut m = Machine::new("linux-6.18+mglru", 8192, 1000, 60);
        m.map_anon(0, 1000);
        let mut age = |touched: u32| m.age_after(touched);
        // From the youngest generation on. New pages begin in the second, and their first bit is only noted.
        assert_eq!(age(1000), [0, 0, 1000, 0]);
        assert_eq!(age(300), [0, 300, 0, 700]);
        // The second page table had no accessed entry in the last walk and is skipped.
        assert_eq!(age(1000), [0, 512, 0, 488]);
    }

    #[test]
    fn from_6_14_on_direct_reclaim_activates_neighbours_that_were_in_use_before() {
        let mut m = Machine::new("linux-6.18+mglru", 8192, 1000, 60);
        m.map_anon(0, 512);
        let mut activated = |page: u32| {
            for page in 0..512 {
                m.touch(0, page, true);
            }
            let before = m.mm.events[vmstat::pgactivate];
            m.mm.look_around(&mut m.cx, 0, page, false);
            m.check();
            m.mm.events[vmstat::pgactivate] - before
        };
        assert_eq!(activated(100), 0);
        // The window is of 64 pages from 32 before the page on.
        assert_eq!(activated(100), 63);
        // Those of them that are near this page too are in the youngest generation, the others are new.
        assert_eq!(activated(110), 0);
        assert_eq!(activated(110), 11);
    }

    #[test]
    fn from_6_14_on_a_page_found_in_use_once_is_kept_but_a_neighbour_s_bit_saves_it_only_once() {
        let mut m = Machine::new("linux-6.18+mglru", 8192, 1000, 200);
        m.map_anon(0, 100);
        for page in 0..100 {
            m.touch(0, page, true);
        }
        m.mm.inc_max_seq(&mut m.cx, 0, true);
        let max_seq = m.mm.generations(0).max_seq;
        m.mm.generations_mut(0).min_seq[ANON] = max_seq - 2;
        let evict = |m: &mut Machine| {
            let mut scan = ScanControl::new(Reclaimer::Direct, DEF_PRIORITY, MIN_LRU_BATCH);
            let (mut pass, mut met) = (Pass::default(), ReclaimStat::default());
            m.mm.evict_type(&mut m.cx, &mut scan, 0, (ANON, None), &mut met, &mut pass);
            m.mm.flush_pageout(&mut m.cx, false);
            m.check();
            (met.taken, met.pageout)
        };
        assert_eq!(evict(&mut m), (64, 0), "all were in use");
        assert_eq!(m.mm.nr_pages(0, list_of(max_seq - 1, ANON)), 64);
        // Of the others, 31 were in the windows around those, and were not used again.
        assert_eq!(evict(&mut m), (36, 31));
    }

    #[test]
    fn from_6_14_on_dirty_pages_are_set_aside_and_counted_for_the_flushers() {
        let mut m = Machine::new("linux-6.18+mglru", 8192, 0, 60);
        let file = m.mm.declare_file(200, true);
        for page in 0..200u64 {
            let mut write = Write::new(page * 4096, 4096, How::Buffered);
            m.run(|mm, cx| write.poll(mm, cx, file));
        }
        let min_seq = m.mm.generations(0).min_seq[FILE];
        assert_eq!(m.mm.nr_pages(0, list_of(min_seq, FILE)), 200);
        let mut scan = ScanControl::new(Reclaimer::Direct, DEF_PRIORITY, MIN_LRU_BATCH);
        let (mut pass, mut met) = (Pass::default(), ReclaimStat::default());
        m.mm.evict_type(&mut m.cx, &mut scan, 0, (FILE, None), &mut met, &mut pass);
        assert_eq!((met.taken, pass.file_taken, pass.unqueued_dirty), (0, 200, 200));
        assert_eq!(m.mm.nr_pages(0, list_of(min_seq + 1, FILE)), 200);
        m.check();
    }

    #[test]
    fn from_6_14_on_a_type_keeps_its_third_generation_while_the_other_has_four() {
        let mut m = Machine::new("linux-6.18+mglru", 8192, 1000, 60);
        let file = m.mm.declare_file(10, true);
        m.read(file, 0);
        let max_seq = m.mm.generations(0).max_seq;
        assert!(m.mm.try_to_inc_min_seq(0, true));
        assert_eq!(m.mm.generations(0).min_seq, [max_seq - 2, max_seq - 3]);
        assert!(!m.mm.try_to_inc_min_seq(0, true));
        // Aging is due once the oldest of both is the third, of whatever size its generations are.
        assert!(!m.mm.should_run_aging(0, true).needed);
        m.mm.generations_mut(0).min_seq[FILE] += 1;
        assert!(m.mm.should_run_aging(0, true).needed);
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Touch(u32, u32, bool),
        Read(u32),
        Write(u32),
        Stream(u32, u32),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            4 => (0..2u32, 0..1500u32, any::<bool>()).prop_map(|(r, p, w)| Operation::Touch(r, p, w)),
            2 => (0..3000u32).prop_map(Operation::Read),
            2 => (0..3000u32).prop_map(Operation::Write),
            1 => (0..2000u32, 1..1000u32).prop_map(|(first, count)| Operation::Stream(first, count)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_state_holds_together(
            kernel in prop::sample::select(&KERNELS[..]),
            swappiness in prop::sample::select(vec![0, 1, 60, 199, 200]),
            swap in prop::sample::select(vec![0, 100, 4000]),
            slice in prop::sample::select(vec![500, MS]),
            operations in prop::collection::vec(operation(), 1..300),
        ) {
            let mut m = Machine::new(kernel, 3000, swap, swappiness);
            m.slice = slice;
            m.map_anon(0, 1500);
            let file = m.map_file(1, 3000);
            for operation in operations {
                match operation {
                    Operation::Touch(region, page, write) => {
                        for page in page..(page + 64).min(1500) {
                            m.touch(region, page, write);
                        }
                    }
                    Operation::Read(page) => m.read(file, page),
                    Operation::Write(page) => {
                        let mut write = Write::new(u64::from(page) * 4096, 4096, How::Buffered);
                        m.run(|mm, cx| write.poll(mm, cx, file));
                    }
                    Operation::Stream(first, count) => {
                        for page in first..first + count {
                            m.read(file, page);
                        }
                    }
                }
                m.check();
            }
        }
    }
}
