//! The multi-generational LRU (`mm/vmscan.c`, `include/linux/mm_inline.h`, `mm/workingset.c` of 6.1 and 6.12;
//! section 3.10).
//!
//! Pages of each type are in two to four generations. Aging makes a new one: it walks page tables and moves what
//! was accessed to the generation that was the youngest so far. Eviction takes pages off the oldest. Accesses by
//! system calls move nothing; they count, the count gives a tier, and tiers whose pages come back after eviction
//! more often than those of the lowest are spared.
//!
//! Where the model differs from the kernel:
//!
//! - A walk moves a page to its new generation at once. The kernel writes the number down and moves the page when
//!   eviction meets it. The pages and `pgrefill` come out the same; the kernel counts such meetings against the
//!   pages that a pass may scan, the model does not.
//! - One list per generation and type, not one per zone: reclaim on behalf of user memory may take all of them.
//! - The filter that says which page tables are worth a walk is exact, the kernel's is a Bloom filter; a page
//!   table is an aligned run of 512 entries.
//! - Tasks that age at once share one walk, entry by entry; the kernel's share it process by process.

use super::frame::{Frame, NONE, entry, flag, list};
use super::page_alloc::HIGHEST;
use super::vmscan::{Fate, Met, Scan};
use super::{Cx, DEF_PRIORITY, MS, Mm, SWAP_CLUSTER_MAX, Wait, Why};

/// MIN_NR_GENS: eviction leaves so many generations alone.
const MIN_NR_GENS: u64 = 2;
/// MAX_NR_GENS
const MAX_NR_GENS: u64 = 4;
/// MAX_NR_TIERS
const TIERS: usize = 4;
/// LRU_REFS_WIDTH: bits of the access counter, and of a shadow that say the count.
const REFS_WIDTH: u32 = 2;
/// The largest count of accesses beyond the first, BIT(LRU_REFS_WIDTH): the counter and PG_workingset.
const MOST_REFS: u32 = 1 << REFS_WIDTH;
/// MIN_LRU_BATCH
const MIN_LRU_BATCH: u64 = 64;
/// MAX_LRU_BATCH
const MAX_LRU_BATCH: u64 = 64 * MIN_LRU_BATCH;
/// Entries of a page table.
const TABLE: u32 = 512;
/// Slots that belong to one object at least.
const RUN: u32 = 64;
/// A page table is worth a walk when one entry in so many was accessed (`suitable_to_scan`: one per cache line).
const PER_CACHE_LINE: u32 = 8;
/// `lru_gen` flags that go when a page changes its generation (LRU_REFS_MASK, LRU_REFS_FLAGS).
const REFS_FLAGS: u32 = flag::REFS | flag::REFERENCED | flag::WORKINGSET;

/// Types of pages, in the order of lists and counters.
const ANON: usize = 0;
const FILE: usize = 1;

/// The type of a page.
fn kind_of(frame: &Frame) -> usize {
    if frame.has(flag::ANON) { ANON } else { FILE }
}

/// The list of a generation.
fn list_of(seq: u64, kind: usize) -> usize {
    list::FIRST_GENERATION + 2 * (seq % MAX_NR_GENS) as usize + kind
}

/// Accesses by system calls beyond the first (`folio_lru_refs`).
fn refs_of(frame: &Frame) -> u32 {
    ((frame.flags & flag::REFS) >> flag::REFS_SHIFT) + u32::from(frame.has(flag::WORKINGSET))
}

/// `lru_tier_from_refs`: 0, 1, 2, 2, 3 for 0 to 4.
fn tier_of(refs: u32) -> usize {
    (refs + 1).next_power_of_two().ilog2() as usize
}

/// An access by a system call (`folio_inc_refs`): PG_referenced first, then PG_workingset, then the counter.
pub(crate) fn count_access(frame: &mut Frame) {
    if frame.list() == list::UNEVICTABLE {
        return;
    }
    if !frame.has(flag::REFERENCED) {
        frame.flags |= flag::REFERENCED;
    } else if !frame.has(flag::WORKINGSET) {
        frame.flags |= flag::WORKINGSET;
    } else if frame.flags & flag::REFS != flag::REFS {
        frame.flags += 1 << flag::REFS_SHIFT;
    }
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

/// Which page tables are worth a walk, one bit each; `None` means all.
#[derive(Debug, Default)]
struct Filter {
    now: Option<Vec<u64>>,
    next: Vec<u64>,
}

impl Filter {
    fn has(&self, table: u32) -> bool {
        let bit = |bits: &Vec<u64>| bits.get(table as usize / 64).is_some_and(|word| word >> (table % 64) & 1 == 1);
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
pub(crate) struct Generations {
    max_seq: u64,
    /// Anonymous, file.
    min_seq: [u64; 2],
    /// When each generation was made, by sequence modulo 4; nanoseconds of the run.
    born: [u64; MAX_NR_GENS as usize],
    /// Refaults and evictions in the lifetime of the oldest generation, by type and tier, and what remains of
    /// those before: a mean that is halved at each step.
    refaulted: [[u64; TIERS]; 2],
    evicted: [[u64; TIERS]; 2],
    avg_refaulted: [[u64; TIERS]; 2],
    avg_total: [[u64; TIERS]; 2],
    /// Pages spared for their tier; none of tier 0.
    protected: [[u64; TIERS]; 2],
    /// The first entry that the walk under way has not seen.
    walk: Option<u32>,
    filter: Filter,
}

impl Default for Generations {
    /// `lru_gen_init_lruvec`. Sequences begin at 4, not 0, so that no shadow is 0; only their remainders matter.
    fn default() -> Self {
        Generations {
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
    /// How many generations a type has (`get_nr_gens`).
    fn count(&self, kind: usize) -> u64 {
        self.max_seq - self.min_seq[kind] + 1
    }

    /// For `check`: whether the numbers of generations are within bounds (`seq_is_valid`).
    pub(crate) fn is_valid(&self) -> bool {
        [ANON, FILE].iter().all(|&kind| (MIN_NR_GENS..=MAX_NR_GENS).contains(&self.count(kind)))
    }

    /// Whether a list is one of the two youngest generations, which count as active (`lru_gen_is_active`).
    pub(crate) fn is_active(&self, which: usize) -> bool {
        let generation = (which - list::FIRST_GENERATION) as u64 / 2;
        generation == self.max_seq % MAX_NR_GENS || generation == (self.max_seq - 1) % MAX_NR_GENS
    }

    /// The list of the oldest generation of a type: 0 anonymous, 1 file.
    pub(crate) fn oldest_list(&self, kind: usize) -> usize {
        list_of(self.min_seq[kind], kind)
    }

    fn youngest_list(&self, kind: usize) -> usize {
        list_of(self.max_seq, kind)
    }

    /// Where a page goes that is on no list (`lru_gen_add_folio`). `hot`: a fault brought it in, or reclaim met
    /// it in use.
    pub(crate) fn list_for(&self, frame: &Frame, hot: bool) -> usize {
        let kind = kind_of(frame);
        let min = self.min_seq[kind];
        let needs_io = (kind == ANON && !frame.has(flag::SWAPCACHE))
            || (frame.has(flag::RECLAIM) && frame.has(flag::DIRTY | flag::WRITEBACK));
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

    /// Counts an eviction; what the shadow keeps: the oldest sequence and the number of accesses
    /// (`lru_gen_eviction`). That there were any is PG_workingset, which a shadow has anyway.
    pub(crate) fn evicted(&mut self, anon: bool, frame: &Frame) -> u64 {
        let kind = if anon { ANON } else { FILE };
        let refs = refs_of(frame);
        self.evicted[kind][tier_of(refs)] += 1;
        self.min_seq[kind] << REFS_WIDTH | u64::from(refs.saturating_sub(1))
    }

    /// A page is back whose shadow had `value` in its lowest `bits` bits. Counts the refault if it is recent,
    /// that is, if the generation the page was evicted from is still the oldest, and says how many accesses
    /// the page had (`lru_gen_test_recent`, `lru_gen_refault`).
    fn refaulted(&mut self, kind: usize, (value, bits): (u32, u32), workingset: bool) -> Option<u32> {
        let mask = (1u64 << (bits - REFS_WIDTH)) - 1;
        if u64::from(value >> REFS_WIDTH) != self.min_seq[kind] & mask {
            return None;
        }
        let refs = (value & (MOST_REFS - 1)) + u32::from(workingset);
        self.refaulted[kind][tier_of(refs)] += 1;
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

    /// The oldest generation of a type is used up: the next one is the oldest (`reset_ctrl_pos`).
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

    /// The highest tier of a type that may be evicted, given that of the lowest to compare with.
    fn last_tier(&self, kind: usize, gain: u64, with: Position) -> usize {
        let spared = |&tier: &usize| !self.position(kind, tier, gain).refaults_less(with);
        (1..TIERS).find(spared).unwrap_or(TIERS) - 1
    }

    /// The same within one type: tiers have to refault about twice as often as the lowest (`get_tier_idx`).
    fn own_last_tier(&self, kind: usize) -> usize {
        self.last_tier(kind, 2, self.position(kind, 0, 1))
    }

    /// The type to evict from, and the last tier that may go if that was part of the choice
    /// (`isolate_folios`, `get_type_to_scan`).
    fn choose(&self, swappiness: u64) -> (usize, Option<usize>) {
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

/// What a pass keeps when it is interrupted, and kswapd's between passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GenScan {
    pass: Option<Pass>,
    /// kswapd of 6.1 has to look whether aging is due (`memcgs_need_aging`).
    need_aging: bool,
}

/// A pass over one lruvec.
#[derive(Clone, Copy, Debug)]
struct Pass {
    scanned: u64,
    /// Pages that the run had freed when the pass began.
    reclaimed_before: u64,
    /// Youngest generation when it began.
    start_seq: u64,
    /// What kswapd does before it evicts is done.
    aged: bool,
    /// Anonymous pages were evicted.
    swapped: bool,
    /// File pages taken or found dirty, and those of them that were dirty and not yet being written.
    file_taken: u64,
    unqueued_dirty: u64,
}

/// What aging would find (`should_run_aging`).
#[derive(Clone, Copy, Debug)]
struct Ages {
    needed: bool,
    /// Pages that could be scanned.
    total: u64,
}

impl Mm {
    /// Judges a refault (`lru_gen_refault`): whether it is recent. A page that was used much, or comes back by a
    /// fault, is marked as such. Nothing is counted if it comes back on another node.
    pub(crate) fn lru_gen_refault(
        &mut self,
        frame: u32,
        which: usize,
        shadow: (u32, u32),
        workingset: bool,
    ) -> bool {
        if which != self.lruvec_of_frame(frame) {
            return false;
        }
        let kind = kind_of(&self.frames[frame as usize]);
        self.events.workingset_refault[kind] += 1;
        let Some(refs) = self.lruvecs[which].mglru.refaulted(kind, shadow, workingset) else { return false };
        if self.in_lru_fault {
            self.events.workingset_activate[kind] += 1;
        }
        if self.in_lru_fault || refs >= MOST_REFS - 1 {
            self.frames[frame as usize].flags |= flag::REFS | flag::WORKINGSET;
            self.events.workingset_restore[kind] += 1;
        }
        true
    }

    /// Lengths of the classic lists as `/proc` shows them, by list number: the two youngest generations are
    /// active, the others inactive.
    pub(crate) fn lru_sizes(&self, which: usize) -> [u64; 6] {
        let l = &self.lruvecs[which];
        let mut sizes = [0; 6];
        for (classic, size) in sizes.iter_mut().enumerate().skip(1) {
            *size = l.len(classic);
        }
        for which in list::FIRST_GENERATION..list::COUNT {
            sizes[list::classic(which % 2 == ANON, l.mglru.is_active(which))] += l.len(which);
        }
        sizes
    }

    /// The same for one zone.
    pub(crate) fn zone_lru_sizes(&self, zone: usize) -> [u64; 6] {
        let generations = &self.lruvecs[self.lruvec_of(zone)].mglru;
        let zone = &self.zones[zone];
        let mut sizes = zone.lru;
        for (which, &pages) in (list::FIRST_GENERATION..).zip(&zone.generations) {
            if generations.is_active(which) {
                let anon = which % 2 == ANON;
                sizes[list::classic(anon, true)] += pages;
                sizes[list::classic(anon, false)] -= pages;
            }
        }
        sizes
    }

    /// kswapd's first priority (`set_initial_priority`): the share of pages that has to be scanned for the
    /// node's target, if as many can be freed as are inactive.
    pub(crate) fn lru_gen_initial_priority(&self, node: usize) -> u8 {
        let target = self.node_sum(node, |zone| zone.mark_high().max(SWAP_CLUSTER_MAX));
        if !self.generation.lru_gen.initial_priority || target < MIN_LRU_BATCH {
            return DEF_PRIORITY;
        }
        let sizes = self.lru_sizes(node);
        let anon = if self.swap.free() > 0 { sizes[list::INACTIVE_ANON] } else { 0 };
        let reclaimable = sizes[list::INACTIVE_FILE] + anon;
        let bits = |value: u64| i64::from(u64::BITS - value.leading_zeros());
        let priority = bits(reclaimable) - 1 - bits(target - 1);
        priority.clamp(i64::from(DEF_PRIORITY / 2), i64::from(DEF_PRIORITY)) as u8
    }

    /// Whether kswapd has freed enough: every zone of the node is 64 pages above its high mark
    /// (`should_abort_scan`).
    pub(crate) fn lru_gen_enough(&self, node: usize) -> bool {
        self.generation.lru_gen.stops_at_target
            && self.nodes[node].zones.iter().all(|&zone| {
                let zone = &self.zones[zone];
                zone.managed == 0 || zone.passes(zone.mark_high() + MIN_LRU_BATCH, HIGHEST)
            })
    }

    /// One pass over an lruvec (`lru_gen_shrink_node`, `try_to_shrink_lruvec`).
    pub(crate) fn lru_gen_shrink_lruvec(
        &mut self,
        cx: &mut Cx,
        scan: &mut Scan,
        lruvec: usize,
    ) -> Result<(), Wait> {
        if self.generation.lru_gen.all_or_nothing && !(scan.may_writepage && scan.may_unmap) {
            return Ok(());
        }
        let mut pass = scan.lru_gen.pass.take().unwrap_or(Pass {
            scanned: 0,
            reclaimed_before: scan.reclaimed,
            start_seq: self.lruvecs[lruvec].mglru.max_seq,
            aged: !scan.is_kswapd(),
            swapped: false,
            file_taken: 0,
            unqueued_dirty: 0,
        });
        let result = self.lru_gen_pass(cx, scan, lruvec, &mut pass);
        if result.is_err() {
            scan.lru_gen.pass = Some(pass);
        } else if self.generation.lru_gen.wakes_flushers
            && pass.unqueued_dirty > 0
            && pass.unqueued_dirty == pass.file_taken
        {
            self.wakeup_flusher(pass.unqueued_dirty);
        }
        result
    }

    fn lru_gen_pass(
        &mut self,
        cx: &mut Cx,
        scan: &mut Scan,
        lruvec: usize,
        pass: &mut Pass,
    ) -> Result<(), Wait> {
        if !pass.aged {
            self.lru_gen_age_node(cx, scan, lruvec)?;
            pass.aged = true;
        }
        loop {
            let swappiness = self.lru_gen_swappiness(scan);
            let (budget, ages) = self.lru_gen_to_scan(cx, scan, lruvec, swappiness)?;
            if budget == 0 {
                return Ok(());
            }
            let (scanned, stall) = self.evict_generation(cx, scan, lruvec, swappiness, pass);
            pass.scanned += scanned;
            let ends = scanned == 0 || pass.scanned >= budget || self.lru_gen_aborts(scan, lruvec, pass);
            if ends {
                let freed = scan.reclaimed - pass.reclaimed_before;
                if scanned > 0 && freed >= MIN_LRU_BATCH && !ages.needed {
                    scan.lru_gen.need_aging = false;
                }
            }
            // A pass that had to wait begins anew.
            if let Some(wait) = stall {
                return Err(wait);
            }
            if ends {
                return Ok(());
            }
            if cx.spent >= cx.slice {
                return Err(Wait::YIELD);
            }
        }
    }

    /// `get_swappiness`: 0 without room for a batch in swap. 6.1 does not forbid to swap what only the caller's
    /// flags forbid: it is avoided.
    fn lru_gen_swappiness(&self, scan: &Scan) -> u64 {
        if self.swap.free() < MIN_LRU_BATCH || (!scan.may_swap && self.generation.lru_gen.all_or_nothing) {
            return 0;
        }
        if scan.may_swap { self.tuning.swappiness } else { self.tuning.swappiness.min(1) }
    }

    /// How many pages the pass may scan; 0 ends it (`get_nr_to_scan`). Ages if that is due.
    fn lru_gen_to_scan(
        &mut self,
        cx: &mut Cx,
        scan: &Scan,
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
        let generations = &self.lruvecs[lruvec].mglru;
        let oldest = generations.min_seq[usize::from(swappiness == 0)];
        Ok((if oldest + MIN_NR_GENS <= generations.max_seq { budget } else { 0 }, ages))
    }

    /// Whether a pass may end before all was scanned (`should_abort_scan`).
    fn lru_gen_aborts(&self, scan: &mut Scan, lruvec: usize, pass: &Pass) -> bool {
        let node = self.lruvecs[lruvec].node;
        if self.generation.lru_gen.stops_at_target {
            return scan.reclaimed >= scan.to_reclaim.max(2) || (scan.is_kswapd() && self.lru_gen_enough(node));
        }
        if scan.is_kswapd() {
            if scan.reclaimed - pass.reclaimed_before < scan.to_reclaim {
                return false;
            }
        } else {
            let met = scan.reclaimed >= scan.to_reclaim;
            if self.lruvecs[lruvec].mglru.max_seq - pass.start_seq > 1 || (met && pass.swapped) {
                return true;
            }
        }
        if scan.priority > DEF_PRIORITY - 2 {
            return false;
        }
        let above = |&zone: &usize| {
            let zone = &self.zones[zone];
            zone.free >= if scan.is_kswapd() { zone.mark_high() } else { zone.mark_low() }
        };
        let safe = self.nodes[node].zones.iter().all(above);
        if safe {
            // As the kernel has it: an allocation that finds memory free counts as progress.
            scan.reclaimed += MIN_LRU_BATCH;
        }
        safe
    }

    /// What kswapd does before each pass (`lru_gen_age_node`). Where min_ttl_ms is set and the oldest generation
    /// is younger, or there is too little to be of help, the kernel invokes the OOM killer; that is counted.
    fn lru_gen_age_node(&mut self, cx: &mut Cx, scan: &mut Scan, lruvec: usize) -> Result<(), Wait> {
        let ages_first = self.generation.lru_gen.kswapd_ages_first;
        if ages_first && !scan.lru_gen.need_aging {
            scan.lru_gen.need_aging = true;
            return Ok(());
        }
        let can_swap = self.lru_gen_swappiness(scan) > 0;
        let ages = self.should_run_aging(lruvec, can_swap);
        let ttl = self.tuning.lru_gen_min_ttl_ms * MS;
        if ttl > 0 && self.lruvecs[lruvec].mglru.walk.is_none() {
            let generations = &self.lruvecs[lruvec].mglru;
            let birth = generations.born[(generations.min_seq[FILE] % MAX_NR_GENS) as usize];
            let sizable = self.evictable(lruvec, can_swap) >> scan.priority > 0;
            if birth + ttl >= cx.now() || !sizable {
                self.events.oom_kill += 1;
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
        let l = &self.lruvecs[lruvec];
        let Generations { max_seq, min_seq, .. } = l.mglru;
        let oldest = min_seq[usize::from(!can_swap)];
        if oldest + MIN_NR_GENS > max_seq {
            return Ages { needed: true, total: 0 };
        }
        let (mut young, mut old, mut total) = (0, 0, 0);
        for kind in usize::from(!can_swap)..2 {
            for seq in min_seq[kind]..=max_seq {
                let size = l.len(list_of(seq, kind));
                total += size;
                young += if seq == max_seq { size } else { 0 };
                old += if seq + MIN_NR_GENS == max_seq { size } else { 0 };
            }
        }
        let uneven = young * MIN_NR_GENS > total || old * (MIN_NR_GENS + 2) < total;
        Ages { needed: oldest + MIN_NR_GENS == max_seq && uneven, total }
    }

    /// Walks page tables and begins a new generation (`try_to_inc_max_seq`); goes on with the walk that is under
    /// way, if one is.
    fn try_to_inc_max_seq(&mut self, cx: &mut Cx, lruvec: usize, can_swap: bool) -> Result<(), Wait> {
        let mut at = match self.lruvecs[lruvec].mglru.walk {
            Some(at) => at,
            None => {
                self.lruvecs[lruvec].mglru.filter.next.clear();
                0
            }
        };
        let mut young = Vec::new();
        while (at as usize) < self.entries.len() {
            if self.lruvecs[lruvec].mglru.filter.has(at / TABLE) {
                self.walk_table(cx, lruvec, at, can_swap, &mut young);
            }
            at += TABLE;
            if cx.spent >= cx.slice && (at as usize) < self.entries.len() {
                self.lruvecs[lruvec].mglru.walk = Some(at);
                return Err(Wait::YIELD);
            }
        }
        self.inc_max_seq(cx, lruvec, can_swap);
        Ok(())
    }

    /// First frame of an lruvec and the one after its last.
    fn lruvec_frames(&self, lruvec: usize) -> std::ops::Range<u32> {
        let zones = &self.lruvecs[lruvec].zones;
        let first = zones.first().map_or(0, |&zone| self.zones[zone].start);
        let end = zones.last().map_or(0, |&zone| self.zones[zone].start + self.zones[zone].managed as u32);
        first..end
    }

    /// Whether a mapping of the object tells of its pages' use: none that was advised to be read at random or in
    /// sequence does.
    fn has_recency(&self, number: u32) -> bool {
        self.objects[number as usize].mappings.iter().any(|mapping| {
            let regions = self.processes.get(mapping.process).map(|process| &process.regions);
            let region = regions.and_then(|regions| regions.get(mapping.region as usize)?.as_ref());
            region.is_some_and(super::memory::Region::has_recency)
        })
    }

    /// Looks at one page table (`walk_pte_range`): accessed bits of the lruvec's pages are cleared, the pages go
    /// to the youngest generation.
    fn walk_table(&mut self, cx: &mut Cx, lruvec: usize, first: u32, can_swap: bool, young: &mut Vec<u32>) {
        let frames = self.lruvec_frames(lruvec);
        young.clear();
        let end = (first + TABLE).min(self.entries.len() as u32);
        let mut seen = 0;
        for run in (first..end).step_by(RUN as usize) {
            let number = self.object_of(run);
            if number == NONE || !self.has_recency(number) {
                continue;
            }
            let object = &self.objects[number as usize];
            if !object.file && !can_swap {
                continue;
            }
            let shared = object.mappings.len();
            cx.spent += self.costs.walk * u64::from(RUN) * shared as u64;
            seen += RUN;
            for e in &mut self.entries[run as usize..(run + RUN) as usize] {
                let Some(frame) = entry::frame(*e) else { continue };
                if !frames.contains(&frame) {
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
            self.promote(cx, lruvec, frame);
        }
        if young.len() as u32 * PER_CACHE_LINE >= seen && seen > 0 {
            Filter::set(&mut self.lruvecs[lruvec].mglru.filter.next, first / TABLE);
        }
    }

    /// A page that was accessed through a page table goes to the youngest generation (`folio_update_gen`).
    /// `true` if it was in another.
    fn promote(&mut self, cx: &mut Cx, lruvec: usize, frame: u32) -> bool {
        let f = &mut self.frames[frame as usize];
        let (from, kind, zone) = (f.list(), kind_of(f), f.zone());
        if from < list::FIRST_GENERATION {
            return false;
        }
        f.flags &= !REFS_FLAGS;
        let to = self.lruvecs[lruvec].mglru.youngest_list(kind);
        if from == to {
            return false;
        }
        cx.spend(self.costs.scan);
        self.events.pgrefill[self.zones[zone].index()] += 1;
        self.lru_move(frame, to, false);
        true
    }

    /// A new generation begins (`inc_max_seq`). A type that has four gives its oldest up: pages go to the next
    /// one, or, if they are anonymous and cannot be swapped, become the youngest as they are.
    fn inc_max_seq(&mut self, cx: &mut Cx, lruvec: usize, can_swap: bool) {
        for kind in [FILE, ANON] {
            if self.lruvecs[lruvec].mglru.count(kind) < MAX_NR_GENS {
                continue;
            }
            let min = self.lruvecs[lruvec].mglru.min_seq[kind];
            if kind == FILE || can_swap {
                loop {
                    let frame = self.lruvecs[lruvec].lists[list_of(min, kind)].tail;
                    if frame == NONE {
                        break;
                    }
                    cx.spend(self.costs.scan);
                    self.frames[frame as usize].flags &= !REFS_FLAGS;
                    self.lru_move(frame, list_of(min + 1, kind), true);
                }
            }
            let generations = &mut self.lruvecs[lruvec].mglru;
            generations.step(kind);
            generations.min_seq[kind] += 1;
        }
        let generations = &mut self.lruvecs[lruvec].mglru;
        generations.max_seq += 1;
        generations.born[(generations.max_seq % MAX_NR_GENS) as usize] = cx.now();
        generations.walk = None;
        generations.filter.now = Some(std::mem::take(&mut generations.filter.next));
    }

    /// Gives up generations that have become empty (`try_to_inc_min_seq`); whether there was one. While there is
    /// swap, that of file pages does not run ahead of that of anonymous pages.
    fn try_to_inc_min_seq(&mut self, lruvec: usize, can_swap: bool) -> bool {
        let l = &mut self.lruvecs[lruvec];
        let max_seq = l.mglru.max_seq;
        let before = l.mglru.min_seq;
        let mut min = before;
        for (kind, min) in min.iter_mut().enumerate().skip(usize::from(!can_swap)) {
            while *min + MIN_NR_GENS <= max_seq && l.lists[list_of(*min, kind)].len == 0 {
                *min += 1;
            }
        }
        if can_swap {
            min[ANON] = min[ANON].min(min[FILE]);
            min[FILE] = min[ANON].max(before[FILE]);
        }
        for kind in 0..2 {
            if min[kind] != before[kind] {
                l.mglru.step(kind);
                l.mglru.min_seq[kind] = min[kind];
            }
        }
        min != before
    }

    /// Takes a batch off the oldest generation (`evict_folios`): how many pages were looked at, and whether the
    /// caller has to wait for the device.
    fn evict_generation(
        &mut self,
        cx: &mut Cx,
        scan: &mut Scan,
        lruvec: usize,
        swappiness: u64,
        pass: &mut Pass,
    ) -> (u64, Option<Wait>) {
        let (first, tier) = self.lruvecs[lruvec].mglru.choose(swappiness);
        let mut met = Met::default();
        let mut scanned = self.evict_type(cx, scan, lruvec, (first, tier), &mut met, pass);
        if scanned == 0 && swappiness > 0 {
            scanned = self.evict_type(cx, scan, lruvec, (1 - first, None), &mut met, pass);
        }
        self.flush_pageout(cx);
        if met.reclaimed > 0 {
            scan.reclaimed += met.reclaimed;
            self.freed_news(self.lruvecs[lruvec].node);
        }
        scanned += u64::from(self.try_to_inc_min_seq(lruvec, swappiness > 0));
        let out_of_cold = self.lruvecs[lruvec].mglru.count(usize::from(swappiness == 0)) == MIN_NR_GENS;
        let stall = (met.pageout > 0 && self.queue_full()).then(|| self.wait_for_room(cx, Why::Io));
        (if out_of_cold { 0 } else { scanned }, stall)
    }

    /// A batch of one type (`scan_folios`, and `shrink_folio_list` for what it isolates): at most 64 pages that
    /// may go, 4096 in all.
    fn evict_type(
        &mut self,
        cx: &mut Cx,
        scan: &mut Scan,
        lruvec: usize,
        (kind, tier): (usize, Option<usize>),
        met: &mut Met,
        pass: &mut Pass,
    ) -> u64 {
        let generations = &self.lruvecs[lruvec].mglru;
        if generations.count(kind) == MIN_NR_GENS {
            return 0;
        }
        let last_tier = tier.unwrap_or_else(|| generations.own_last_tier(kind));
        let from = generations.oldest_list(kind);
        let (mut scanned, mut isolated, mut skipped) = (0, 0, 0);
        while scanned < MAX_LRU_BATCH && isolated < MIN_LRU_BATCH && skipped < MIN_LRU_BATCH {
            let frame = self.lruvecs[lruvec].lists[from].tail;
            if frame == NONE || skipped == self.lruvecs[lruvec].lists[from].len {
                break;
            }
            scanned += 1;
            cx.spend(self.costs.scan);
            if self.sort_page(lruvec, frame, kind, last_tier, pass) {
                let zone = self.frames[frame as usize].zone();
                self.events.pgrefill[self.zones[zone].index()] += 1;
            } else if self.is_inhibited(scan, frame) {
                skipped += 1;
                self.lru_move(frame, from, false);
            } else {
                isolated += 1;
                self.evict_page(cx, scan, lruvec, frame, met);
            }
        }
        if kind == FILE {
            pass.file_taken += isolated;
        } else {
            pass.swapped |= isolated > 0;
        }
        if isolated > 0 || scanned == MAX_LRU_BATCH { scanned } else { 0 }
    }

    /// Puts a page where it belongs if it may not go now (`sort_folio`): protected by its tier, not to be had
    /// without waiting, or not evictable at all.
    fn sort_page(&mut self, lruvec: usize, frame: u32, kind: usize, last_tier: usize, pass: &mut Pass) -> bool {
        let f = self.frames[frame as usize];
        if f.has(flag::MLOCKED) {
            self.events.unevictable_pgs_culled += 1;
            self.lru_move(frame, list::UNEVICTABLE, false);
            return true;
        }
        let refs = refs_of(&f);
        let tier = tier_of(refs);
        let next = list_of(self.lruvecs[lruvec].mglru.min_seq[kind] + 1, kind);
        if tier > last_tier || refs == MOST_REFS {
            self.frames[frame as usize].flags &= !REFS_FLAGS;
            self.lru_move(frame, next, true);
            self.lruvecs[lruvec].mglru.protected[kind][tier] += 1;
            return true;
        }
        let dirty = kind == FILE && f.has(flag::DIRTY);
        if dirty {
            pass.file_taken += 1;
            pass.unqueued_dirty += u64::from(!f.has(flag::WRITEBACK));
        }
        if dirty || f.has(flag::LOCKED | flag::WRITEBACK) {
            let f = &mut self.frames[frame as usize];
            f.flags = (f.flags & !REFS_FLAGS) | flag::RECLAIM;
            self.lru_move(frame, next, false);
            return true;
        }
        false
    }

    /// Whether this reclaimer may not have the page (`isolate_folio`; 6.1, whose zone reclaim comes so far).
    fn is_inhibited(&self, scan: &Scan, frame: u32) -> bool {
        let f = self.frames[frame as usize];
        let needs_write = f.has(flag::DIRTY) || (f.has(flag::ANON) && !f.has(flag::SWAPCACHE));
        (!scan.may_writepage && needs_write) || (!scan.may_unmap && self.is_mapped(frame))
    }

    /// One page off the tail of the oldest generation: it goes, or is rejected and put elsewhere.
    fn evict_page(&mut self, cx: &mut Cx, scan: &mut Scan, lruvec: usize, frame: u32, met: &mut Met) {
        let f = &mut self.frames[frame as usize];
        if !f.has(flag::REFERENCED) {
            f.flags &= !REFS_FLAGS;
        }
        f.flags &= !(flag::RECLAIM | flag::REFERENCED);
        let (kind, zone, slot) = (kind_of(f), f.zone(), f.slot);
        let index = self.zones[zone].index();
        let by_kswapd = scan.is_kswapd();
        if by_kswapd {
            self.events.pgscan_kswapd[index] += 1;
        } else {
            self.events.pgscan_direct[index] += 1;
        }
        self.events.pgscan_type[kind] += 1;
        scan.scanned += 1;
        met.taken += 1;
        if self.entries[slot as usize] & entry::MAPPED != 0 && self.entries[slot as usize] & entry::ACCESSED != 0 {
            if self.has_recency(self.object_of(slot)) {
                self.look_around(cx, lruvec, slot, by_kswapd);
            } else {
                self.entries[slot as usize] &= !entry::ACCESSED;
            }
        }
        match self.shrink_page(cx, scan, lruvec, frame, met) {
            Fate::Freed => {
                met.reclaimed += 1;
                self.events.pgsteal_type[kind] += 1;
                if by_kswapd {
                    self.events.pgsteal_kswapd[index] += 1;
                } else {
                    self.events.pgsteal_direct[index] += 1;
                }
            }
            Fate::Cull => {
                self.events.unevictable_pgs_culled += 1;
                self.lru_move(frame, list::UNEVICTABLE, false);
            }
            fate => {
                self.events.pgactivate += u64::from(fate == Fate::Activate);
                let f = &mut self.frames[frame as usize];
                let waits = fate == Fate::Keep
                    && f.has(flag::RECLAIM)
                    && f.has(flag::DIRTY | flag::WRITEBACK);
                if !waits {
                    f.flags &= !REFS_FLAGS;
                } else if f.has(flag::WORKINGSET) {
                    f.flags |= flag::REFERENCED;
                }
                let f = *f;
                let to = self.lruvecs[lruvec].mglru.list_for(&f, !waits);
                self.lru_move(frame, to, false);
            }
        }
    }

    /// The reverse mapping found an accessed bit: those around it in the page table are looked at too
    /// (`lru_gen_look_around`), 64 entries of one page table and object.
    fn look_around(&mut self, cx: &mut Cx, lruvec: usize, slot: u32, by_kswapd: bool) {
        const WINDOW: u32 = MIN_LRU_BATCH as u32;
        let object = &self.objects[self.object_of(slot) as usize];
        let table = slot - slot % TABLE;
        let (low, high) = (table.max(object.base), (table + TABLE).min(object.base + object.pages));
        let first = slot.saturating_sub(WINDOW / 2).min(high.saturating_sub(WINDOW)).max(low);
        let end = (first + WINDOW).min(high);
        let frames = self.lruvec_frames(lruvec);
        cx.spend(self.costs.walk * u64::from(end - first));
        let mut young = 1;
        for near in (first..end).filter(|&near| near != slot) {
            let e = &mut self.entries[near as usize];
            let frame = *e & entry::VALUE;
            if *e & entry::MAPPED == 0 || *e & entry::ACCESSED == 0 || !frames.contains(&frame) {
                continue;
            }
            *e &= !entry::ACCESSED;
            young += 1;
            // Direct reclaim has no walk whose batch the page could join: it is activated.
            let moved = self.promote(cx, lruvec, frame);
            self.events.pgactivate += u64::from(moved && !by_kswapd);
        }
        if young * PER_CACHE_LINE >= end - first
            && let Some(now) = &mut self.lruvecs[lruvec].mglru.filter.now
        {
            Filter::set(now, slot / TABLE);
        }
    }
}
