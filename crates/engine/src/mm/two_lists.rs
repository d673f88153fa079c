//! The active and inactive lists (`mm/vmscan.c`, `mm/swap.c`, `mm/workingset.c`): the policy of all kernels
//! unless the multi-generational LRU is on.
//!
//! Pages begin on an inactive list, or on an active one, and move between the two. Reclaim takes them off the
//! tail of the inactive ones; it keeps those supplied from the tail of the active ones, and divides its
//! effort between anonymous and file pages by swappiness and by what happened of late.

use lotsfree_formulas::lists::{
    Lists, Refault, inactive_anon_is_low, inactive_file_is_low, refault_activates,
};
use lotsfree_kernel_files::counters::vmstat;
use lotsfree_units::Bytes;

use super::frame::{Frame, flag, list};
use super::lru_lock::LockedBatch;
use super::mmzone::{ANON, FILE, Zone};
use super::policy::{self, Arrival, Kept, Policy, Shadow};
use super::vmscan::{Fate, ReclaimStat, Reclaimer, ScanControl, Tally};
use super::vmstat::{ACTIVATE, PGREFILL, REFAULT, RESTORE};
use super::{Cx, DEF_PRIORITY, Device, Mm, SWAP_CLUSTER_MAX, TENTH, Wait, WaitChannel, WaitReason};
use crate::generation::{AnonOnly, Balance, FileOnly, Generation, ZoneFlags};

/// The policy.
#[derive(Debug)]
pub(crate) struct TwoLists;

/// What is remembered of an lruvec.
#[derive(Debug, Default)]
struct State {
    /// Rotation model: pages scanned and pages rotated, each anonymous and file.
    recent_scanned: [u64; 2],
    recent_rotated: [u64; 2],
    /// Cost model: cost of anonymous and of file pages.
    cost: [u64; 2],
    /// Refault activations, anonymous and file, how many of them reclaim knows of, and how many it knew of at
    /// the last snapshot.
    refaults: [u64; 2],
    refaults_known: [u64; 2],
    refaults_seen: [u64; 2],
    /// Small scans that are saved up, by list (RHEL 6).
    saved_scan: [u64; 5],
    /// Size for the ratio of the anonymous lists, where the ratio is fixed at boot.
    boot_size: Bytes,
}

/// A pass over one lruvec.
#[derive(Debug)]
struct Pass {
    /// Pages left to scan, by list.
    left: [u64; 5],
    /// Pages that were to be scanned, by list.
    target: [u64; 5],
    reclaimed: u64,
    adjusted: bool,
    may_deactivate: [bool; 2],
}

impl Policy for TwoLists {
    fn name(&self) -> &'static str {
        "active and inactive lists"
    }

    fn state(&self, _generation: &Generation, boot_size: Bytes) -> Box<dyn Kept> {
        Box::new(State { boot_size, ..State::default() })
    }

    /// Anonymous pages start on the inactive list from 5.9 on (b518154e59aa), and on the active list before;
    /// see `map_swapped_in` for those that were swapped in (`lru_cache_add_inactive_or_unevictable`).
    fn insert(&self, mm: &mut Mm, frame: u32, arrival: Arrival) {
        let (anon, active) = match arrival {
            Arrival::Touched => (true, !mm.generation.anon_starts_inactive),
            Arrival::Shared => (true, false),
            Arrival::File { refault } => (false, refault),
            Arrival::SwappedIn { refault } => (true, refault),
        };
        mm.lru_add(frame, if active { list::active(anon) } else { list::inactive(anon) });
        if !matches!(arrival, Arrival::SwappedIn { .. }) {
            mm.note_added(frame, active);
        }
    }

    fn touch(&self, mm: &mut Mm, frame: u32) {
        let f: &mut Frame = &mut mm.frames[frame as usize];
        if !f.has(flag::REFERENCED) {
            f.flags |= flag::REFERENCED;
            return;
        }
        let from = f.list();
        if from == list::INACTIVE_ANON || from == list::INACTIVE_FILE {
            f.flags &= !flag::REFERENCED;
            let anon = f.has(flag::ANON);
            mm.lru_move(frame, list::active(anon), false);
            mm.events[vmstat::pgactivate] += 1;
            mm.note_added(frame, true);
            // workingset_age_nonresident
            let lruvec = mm.lruvec_of_frame(frame);
            mm.lruvecs[lruvec].nonresident_age += 1;
        }
    }

    fn evicted(&self, mm: &mut Mm, lruvec: usize, frame: u32) -> Option<u64> {
        if mm.frames[frame as usize].has(flag::ANON) && !mm.generation.anon_refault {
            return None;
        }
        let age = &mut mm.lruvecs[lruvec].nonresident_age;
        *age += 1;
        Some(*age - 1)
    }

    /// The page is activated if fewer pages were evicted since it was than are in memory
    /// (`workingset_refault`).
    fn refaulted(&self, mm: &mut Mm, frame: u32, shadow: Shadow) -> bool {
        let Shadow { lruvec, clock, bits, workingset } = shadow;
        let anon = mm.frames[frame as usize].has(flag::ANON);
        let kind = usize::from(!anon);
        mm.events[REFAULT[kind]] += 1;
        let from = &mm.lruvecs[lruvec];
        let mask = (1u32 << bits) - 1;
        let distance = u64::from((from.nonresident_age as u32).wrapping_sub(clock) & mask);
        let swap = mm.swap.free() > 0;
        if !refault_activates(&mm.generation.rules.lists, &from.page_state(), distance, anon, swap) {
            return false;
        }
        mm.events[ACTIVATE[kind]] += 1;
        let home = mm.lruvec_of_frame(frame);
        mm.lruvecs[home].nonresident_age += 1;
        let known = mm.lruvecs[home].flushed.is_none();
        let state: &mut State = mm.lruvecs[home].state_mut();
        state.refaults[kind] += 1;
        state.refaults_known[kind] += u64::from(known);
        if workingset {
            mm.frames[frame as usize].flags |= flag::WORKINGSET;
            mm.events[RESTORE[kind]] += 1;
            mm.note_cost(home, anon, 1, 0);
        }
        true
    }

    fn shrink_lruvec(
        &self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        pass: &mut Option<Box<dyn Kept>>,
    ) -> Result<(), Wait> {
        let lists = policy::under_way(pass, || mm.get_scan_count(scan, lruvec));
        mm.shrink_lists(cx, scan, lruvec, lists)?;
        *pass = None;
        Ok(())
    }

    fn shrink_file_cache(
        &self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        active: bool,
    ) {
        for which in [list::ACTIVE_FILE, list::INACTIVE_FILE] {
            if which == list::ACTIVE_FILE && !active {
                continue;
            }
            let mut left = (mm.lruvecs[lruvec].len(which) >> scan.priority) + 1;
            while left > 0 && scan.reclaimed < scan.to_reclaim {
                let batch = left.min(SWAP_CLUSTER_MAX);
                left -= batch;
                if which == list::ACTIVE_FILE {
                    mm.shrink_active_list(cx, scan, lruvec, which, batch);
                } else {
                    // Reclaim for the limit never stalls.
                    let _ = mm.shrink_inactive_list(cx, scan, lruvec, which, batch);
                }
            }
        }
    }

    /// Refaults after this count as new (`snapshot_refaults`).
    fn end_run(&self, mm: &mut Mm, lruvec: usize) {
        let state: &mut State = mm.lruvecs[lruvec].state_mut();
        state.refaults_seen = state.refaults_known;
    }

    fn flush_stats(&self, mm: &mut Mm, lruvec: usize) {
        let state: &mut State = mm.lruvecs[lruvec].state_mut();
        state.refaults_known = state.refaults;
    }

    /// Keeps the inactive anonymous list supplied (`age_active_anon`).
    fn age(&self, mm: &mut Mm, cx: &mut Cx, scan: &ScanControl, lruvec: usize) {
        if mm.anon_low(lruvec) {
            mm.shrink_active_list(cx, scan, lruvec, list::ACTIVE_ANON, SWAP_CLUSTER_MAX);
        }
    }
}

impl Mm {
    /// One pass over the active and inactive lists of an lruvec.
    fn shrink_lists(
        &mut self,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        pass: &mut Pass,
    ) -> Result<(), Wait> {
        use list::{ACTIVE_ANON, ACTIVE_FILE, INACTIVE_ANON, INACTIVE_FILE};
        while pass.left[INACTIVE_ANON] + pass.left[ACTIVE_FILE] + pass.left[INACTIVE_FILE] > 0 {
            for which in [INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE] {
                let batch = pass.left[which].min(SWAP_CLUSTER_MAX);
                if batch == 0 {
                    continue;
                }
                pass.left[which] -= batch;
                if list::is_active(which) {
                    self.shrink_active_if(cx, scan, lruvec, which, batch, pass);
                    continue;
                }
                let (reclaimed, stall) = self.shrink_inactive_list(cx, scan, lruvec, which, batch);
                pass.reclaimed += reclaimed;
                if let Some(wait) = stall {
                    return Err(wait);
                }
            }
            if pass.reclaimed >= scan.to_reclaim && self.target_met(scan, pass) {
                break;
            }
            if cx.spent >= cx.slice {
                return Err(Wait::YIELD);
            }
        }
        if self.anon_low(lruvec) {
            self.shrink_active_list(cx, scan, lruvec, ACTIVE_ANON, SWAP_CLUSTER_MAX);
        }
        Ok(())
    }

    /// Decides how a pass goes on after its target was met; `true` ends the pass
    /// (`mm/vmscan.c:shrink_lruvec`).
    fn target_met(&self, scan: &ScanControl, pass: &mut Pass) -> bool {
        use list::{ACTIVE_ANON, ACTIVE_FILE, INACTIVE_ANON, INACTIVE_FILE};
        if !self.generation.proportional {
            return scan.priority < DEF_PRIORITY;
        }
        let direct = scan.who == Reclaimer::Direct;
        if direct && self.generation.direct_stops {
            return true;
        }
        if pass.adjusted {
            return false;
        }
        if direct && scan.priority == DEF_PRIORITY {
            pass.adjusted = true;
            return false;
        }
        let anon = pass.left[INACTIVE_ANON] + pass.left[ACTIVE_ANON];
        let file = pass.left[INACTIVE_FILE] + pass.left[ACTIVE_FILE];
        if (anon == 0 || file == 0) && !self.generation.direct_stops {
            return true;
        }
        let (small, big, left) = if file > anon {
            ([INACTIVE_ANON, ACTIVE_ANON], [INACTIVE_FILE, ACTIVE_FILE], anon)
        } else {
            ([INACTIVE_FILE, ACTIVE_FILE], [INACTIVE_ANON, ACTIVE_ANON], file)
        };
        let target = pass.target[small[0]] + pass.target[small[1]] + 1;
        let percent = left * 100 / target;
        for which in small {
            pass.left[which] = 0;
        }
        for which in big {
            let done = pass.target[which] - pass.left[which];
            pass.left[which] = (pass.target[which] * (100 - percent.min(100)) / 100).saturating_sub(done);
        }
        pass.adjusted = self.generation.balance != Balance::WeightedCost;
        false
    }

    /// Splits a scan between anonymous and file pages by swappiness (`mm/vmscan.c:get_scan_count`; with MGLRU
    /// `mglru.rs:choose`). swappiness 0 means almost no anonymous pages through 3.4, where 1 is added to both
    /// weights; from 3.5 on and in RHEL 6 it means none unless file pages are nearly gone. Which values a
    /// kernel accepts is `SWAPPINESS` in `settings/src/table.rs`. The rest of the split is
    /// `generation.balance` (`Balance` in `generation.rs`): pages scanned and rotated of late through 5.7,
    /// costs from 5.8 on.
    fn get_scan_count(&mut self, scan: &ScanControl, which: usize) -> Pass {
        use list::{ACTIVE_ANON, ACTIVE_FILE, INACTIVE_ANON, INACTIVE_FILE};
        enum Plan {
            Equal,
            File,
            Anon,
            Fractions([u64; 2], u64),
        }
        let generation = self.generation;
        let priority = u32::from(scan.priority);
        let swap = self.swap.free() > 0 && scan.may_swap;
        let may_deactivate = self.may_deactivate(scan, which);
        let free = self.lruvec_sum(which, |zone| zone.free);
        let high = self.lruvec_sum(which, |zone| zone.high_wmark_pages());
        let (anon, file, sizes) = {
            let l = &self.lruvecs[which];
            let mut sizes =
                [0, l.len(INACTIVE_ANON), l.len(ACTIVE_ANON), l.len(INACTIVE_FILE), l.len(ACTIVE_FILE)];
            if self.is_restricted(scan, which) {
                let of_use = |zone: &Zone| zone.index() <= scan.highest;
                sizes = std::array::from_fn(|list| {
                    self.lruvec_sum(which, |zone| if of_use(zone) { zone.lru[list] } else { 0 })
                });
            }
            (l.anon(), l.file(), sizes)
        };
        let swappiness = self.tuning.swappiness;
        let global = scan.who != Reclaimer::Limit;
        let enough_anon = sizes[INACTIVE_ANON] >> priority > 0;
        let tiny = global && file + free <= high;
        let file_is_gone = match generation.anon_only {
            AnonOnly::Tiny => tiny,
            AnonOnly::TinyUnlessLow => tiny && !self.anon_low(which) && enough_anon,
            AnonOnly::FileIsTiny => tiny && !may_deactivate[ANON] && enough_anon,
        };
        let file_is_plenty = match generation.file_only {
            FileOnly::Never => false,
            FileOnly::AtLeastActive => sizes[INACTIVE_FILE] >= sizes[ACTIVE_FILE],
            FileOnly::NotLow => !self.file_low(which) && sizes[INACTIVE_FILE] >> priority > 0,
            FileOnly::CacheTrim => {
                let inactive = self.lruvecs[which].page_state().inactive_file;
                !scan.no_cache_trim && !may_deactivate[FILE] && inactive >> priority > 0
            }
        };
        let plan = if !swap {
            Plan::File
        } else if generation.equal_at_priority_zero && priority == 0 && swappiness != 0 {
            Plan::Equal
        } else if file_is_gone {
            Plan::Anon
        } else if file_is_plenty {
            Plan::File
        } else if !generation.equal_at_priority_zero
            && priority == 0
            && (swappiness != 0 || !generation.swappiness_zero_forbids || scan.force_anon)
        {
            Plan::Equal
        } else {
            let extra = u64::from(!generation.swappiness_zero_forbids);
            let (s, f) = (swappiness + extra, 200u64.saturating_sub(swappiness) + extra);
            let s = if scan.force_anon { s.max(1) } else { s };
            match generation.balance {
                Balance::Rotation => {
                    let l: &mut State = self.lruvecs[which].state_mut();
                    for (kind, size) in [(0, anon), (1, file)] {
                        if l.recent_scanned[kind] > size / 4 {
                            l.recent_scanned[kind] /= 2;
                            l.recent_rotated[kind] /= 2;
                        }
                    }
                    let weight = |base: u64, kind: usize| {
                        base * (l.recent_scanned[kind] + 1) / (l.recent_rotated[kind] + 1)
                    };
                    let (a, f) = (weight(s, 0), weight(f, 1));
                    if generation.percent {
                        let percent = 100 * a / (a + f + 1);
                        Plan::Fractions([percent, 100 - percent], 100)
                    } else {
                        Plan::Fractions([a, f], a + f + 1)
                    }
                }
                Balance::Cost | Balance::WeightedCost => {
                    let [a, c] = self.lruvecs[which].state::<State>().cost;
                    let total = a + c;
                    let (a, c) = (total + a, total + c);
                    let total = a + c;
                    let (a, f) = (s * (total + 1) / (a + 1), f * (total + 1) / (c + 1));
                    Plan::Fractions([a, f], (a + f).max(1))
                }
            }
        };
        let force = generation.force_scan && scan.is_kswapd() && (anon + file) >> priority < SWAP_CLUSTER_MAX;
        let mut left = [0; 5];
        for list in [INACTIVE_ANON, ACTIVE_ANON, INACTIVE_FILE, ACTIVE_FILE] {
            let size = sizes[list];
            let is_file = list >= INACTIVE_FILE;
            let mut count = size >> priority;
            if count == 0 && force {
                count = SWAP_CLUSTER_MAX.min(size);
            }
            count = match plan {
                Plan::Equal => count,
                Plan::File if is_file => count,
                Plan::Anon if !is_file => count,
                Plan::File | Plan::Anon => 0,
                Plan::Fractions(weights, sum) => {
                    (u128::from(count) * u128::from(weights[usize::from(is_file)]) / u128::from(sum)) as u64
                }
            };
            if generation.save_small_scans {
                let saved = &mut self.lruvecs[which].state_mut::<State>().saved_scan[list];
                *saved += count;
                count = if *saved >= SWAP_CLUSTER_MAX { std::mem::take(saved) } else { 0 };
            }
            left[list] = count.min(size);
        }
        Pass { left, target: left, reclaimed: 0, adjusted: false, may_deactivate }
    }

    /// `prepare_scan_control`: decides which active lists may be scanned (5.5 on).
    fn may_deactivate(&mut self, scan: &ScanControl, which: usize) -> [bool; 2] {
        if !self.generation.may_deactivate {
            return [true; 2];
        }
        if scan.force_deactivate {
            return [true; 2];
        }
        let lows = [self.anon_low(which), self.file_low_by_ratio(which)];
        let l: &State = self.lruvecs[which].state();
        let mut may = [false; 2];
        for kind in 0..2 {
            may[kind] = l.refaults_known[kind] != l.refaults_seen[kind] || lows[kind];
        }
        may
    }

    /// `inactive_anon_is_low`; the list is never low without swap.
    fn anon_low(&self, which: usize) -> bool {
        let l = &self.lruvecs[which];
        let lists = l.page_state();
        let size = if self.generation.rules.lists.ratio_from_lists {
            self.page.of(lists.inactive_anon + lists.active_anon)
        } else {
            l.state::<State>().boot_size
        };
        inactive_anon_is_low(&lists, size, self.swap.total > 0)
    }

    fn file_low_by_ratio(&self, which: usize) -> bool {
        let lists = self.lruvecs[which].page_state();
        inactive_file_is_low(&self.generation.rules.lists, &lists, self.page)
    }

    /// `inactive_file_is_low`. Refault activations make the list low whatever its length (4.19, 5.4).
    fn file_low(&self, which: usize) -> bool {
        let l = &self.lruvecs[which];
        let State { refaults_known, refaults_seen, .. }: &State = l.state();
        let refaulted = self.generation.rules.lists.file_ratio && refaults_known[FILE] != refaults_seen[FILE];
        (refaulted && l.len(list::ACTIVE_FILE) > 0) || self.file_low_by_ratio(which)
    }

    fn shrink_active_if(
        &mut self,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        which: usize,
        batch: u64,
        pass: &Pass,
    ) {
        let kind = usize::from(which == list::ACTIVE_FILE);
        let scans = if self.generation.may_deactivate {
            pass.may_deactivate[kind]
        } else if kind == 0 {
            self.anon_low(lruvec)
        } else {
            self.file_low(lruvec)
        };
        if scans {
            self.shrink_active_list(cx, scan, lruvec, which, batch);
        } else {
            scan.skipped_deactivate = true;
        }
    }

    /// Moves pages from an active list to the inactive one (`mm/vmscan.c:shrink_active_list`).
    fn shrink_active_list(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        lruvec: usize,
        which: usize,
        batch: u64,
    ) {
        let anon = which == list::ACTIVE_ANON;
        let to = list::inactive(anon);
        let (mut taken, mut referenced) = (0, 0);
        let began_ns = cx.now();
        let mut batch = self.isolate_lru_pages(scan, lruvec, which, batch);
        self.count_skipped(lruvec, &batch, PGREFILL);
        for at in 0..batch.len() {
            let frame = batch.frame(at);
            let zone = self.frames[frame as usize].zone();
            self.events[PGREFILL[self.zones[zone].index()]] += 1;
            if !scan.may_unmap && self.generation.isolate_unmapped && self.is_mapped(frame) {
                cx.spend(self.costs.skip);
                batch.keep(frame);
                continue;
            }
            cx.spend(self.costs.scan);
            taken += 1;
            self.zones[zone].lru[which] -= 1;
            if self.test_clear_young(cx, frame) > 0 {
                referenced += 1;
            }
            if self.generation.rules.lists.refault != Refault::None {
                self.frames[frame as usize].flags |= flag::WORKINGSET;
            }
            self.lru_add(frame, to);
        }
        self.lru_add_all(lruvec, which, batch.kept());
        let skipped = batch.len() as u64 - taken;
        self.lock_batch(cx, lruvec, LockedBatch { began_ns, isolated: taken, skipped, returned: taken });
        self.events[vmstat::pgdeactivate] += taken;
        let kind = usize::from(!anon);
        let l: &mut State = self.lruvecs[lruvec].state_mut();
        l.recent_scanned[kind] += taken;
        l.recent_rotated[kind] += referenced;
    }

    /// Accounts the cost of reclaim (`mm/swap.c:lru_note_cost`).
    fn note_cost(&mut self, lruvec: usize, anon: bool, io: u64, rotated: u64) {
        let cost = match self.generation.balance {
            Balance::Rotation => return,
            Balance::Cost => io,
            Balance::WeightedCost => io * SWAP_CLUSTER_MAX + rotated,
        };
        let l = &mut self.lruvecs[lruvec];
        let Lists { inactive_anon, active_anon, inactive_file, active_file } = l.page_state();
        let pages = inactive_anon + active_anon + inactive_file + active_file;
        let l: &mut State = l.state_mut();
        l.cost[usize::from(!anon)] += cost;
        if l.cost.iter().sum::<u64>() > pages / 4 {
            l.cost = l.cost.map(|cost| cost / 2);
        }
    }

    /// Accounts a page that enters a list or moves between them (`update_page_reclaim_stat`, through 5.7).
    #[inline(always)]
    fn note_added(&mut self, frame: u32, active: bool) {
        if self.generation.balance == Balance::Rotation {
            let lruvec = self.lruvec_of_frame(frame);
            let kind = usize::from(!self.frames[frame as usize].has(flag::ANON));
            let l: &mut State = self.lruvecs[lruvec].state_mut();
            l.recent_scanned[kind] += 1;
            l.recent_rotated[kind] += u64::from(active);
        }
    }

    /// Takes a batch off the tail of an inactive list and frees what can be freed (`shrink_inactive_list`).
    fn shrink_inactive_list(
        &mut self,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        which: usize,
        batch: u64,
    ) -> (u64, Option<Wait>) {
        let anon = which == list::INACTIVE_ANON;
        let mut met = ReclaimStat { anon, ..ReclaimStat::default() };
        let mut tally = Tally::new(&self.lruvecs[lruvec]);
        let began_ns = cx.now();
        let mut batch = self.isolate_lru_pages(scan, lruvec, which, batch);
        for at in 0..batch.len() {
            let frame = batch.frame(at);
            let zone = self.frames[frame as usize].zone();
            if !self.generation.lru_per_node {
                self.zones[zone].pages_scanned += 1;
            }
            tally.scanned(zone);
            if !scan.may_unmap && self.generation.isolate_unmapped && self.is_mapped(frame) {
                cx.spend(self.costs.skip);
                batch.keep(frame);
                continue;
            }
            cx.spend(self.costs.scan);
            met.taken += 1;
            match self.shrink_page(cx, scan, lruvec, frame, &mut met) {
                Fate::Freed => {
                    met.reclaimed += 1;
                    tally.freed(zone);
                }
                Fate::Keep => batch.keep(frame),
                Fate::Activate => {
                    met.activated += 1;
                    tally.moved(zone);
                    self.lru_add(frame, list::active(anon));
                    if self.generation.anon_refault {
                        self.lruvecs[lruvec].nonresident_age += 1;
                    }
                }
                Fate::Cull => {
                    self.events[vmstat::unevictable_pgs_culled] += 1;
                    tally.moved(zone);
                    self.lru_add(frame, list::UNEVICTABLE);
                }
            }
        }
        self.events[vmstat::pgactivate] += met.activated;
        self.putback_lru_pages(scan, (lruvec, which), &batch, &tally);
        let skipped = batch.len() as u64 - met.taken;
        let returned = met.taken - met.reclaimed;
        self.lock_batch(cx, lruvec, LockedBatch { began_ns, isolated: met.taken, skipped, returned });
        met.queued = self.flush_pageout(cx, scan.is_kswapd());
        let kind = usize::from(!anon);
        let l: &mut State = self.lruvecs[lruvec].state_mut();
        l.recent_scanned[kind] += met.taken;
        l.recent_rotated[kind] += met.activated;
        if self.generation.balance != Balance::Rotation {
            self.note_cost(lruvec, anon, met.pageout, met.taken - met.reclaimed);
        }
        scan.reclaimed += met.reclaimed;
        if met.reclaimed > 0 {
            self.freed_news(self.lruvecs[lruvec].node);
        }
        (met.reclaimed, self.stall_after(cx, scan, lruvec, met))
    }

    /// Notes what a batch shows about the devices, and decides whether the reclaimer has to wait
    /// (`mm/vmscan.c:shrink_inactive_list`).
    fn stall_after(&mut self, cx: &Cx, scan: &ScanControl, lruvec: usize, met: ReclaimStat) -> Option<Wait> {
        if scan.who == Reclaimer::Limit {
            return None;
        }
        let device = if met.anon { Device::Swap } else { Device::Disk };
        if met.queued
            && let Some(wait) = self.pageout_wait(cx, device, scan.is_kswapd())
        {
            return Some(wait);
        }
        if self.generation.zone_flags != ZoneFlags::WholeBatch {
            let l = &mut self.lruvecs[lruvec];
            // wait_iff_congested waits only for a zone that is flagged as congested. A zone is flagged when
            // direct reclaim has spared all dirty file pages of a batch because the device is congested: 3.0.
            l.flags.congested |= met.spared > 0 && met.spared == met.dirty;
            // At a lower priority, fewer pages of the batch have to be under writeback (3.2 to 3.10).
            let part = met.taken >> (DEF_PRIORITY - scan.priority);
            let enough = met.writeback > 0 && met.writeback >= part;
            let waits = l.flags.congested && enough && self.queues.is_congested();
            if self.generation.zone_flags == ZoneFlags::PartOfBatch {
                // kswapd waits for the page that it met, here as long as 3.11 does, and looks again.
                let waits = waits || met.immediate > 0;
                l.flags.writeback = enough || (l.flags.writeback && met.immediate == 0);
                l.flags.dirty |= met.dirty > 0 && met.dirty >= part;
                return waits.then(|| self.congestion_wait(cx, TENTH));
            }
            return waits.then(|| self.congestion_wait(cx, TENTH));
        }
        let l = &mut self.lruvecs[lruvec];
        if met.writeback > 0 && met.writeback == met.taken {
            l.flags.writeback = true;
        }
        l.flags.congested |= met.dirty > 0 && met.dirty == met.congested;
        let all_dirty = met.taken > 0 && met.unqueued_dirty == met.taken;
        l.flags.dirty |= all_dirty;
        let congested = l.flags.congested;
        // From 4.11 on (726d061fbd36); before that direct reclaim wakes them by what it scanned.
        if all_dirty && !self.generation.direct_wakes_flushers {
            self.wakeup_flusher(met.taken);
        }
        if self.generation.reclaim_throttle {
            let node = self.lruvecs[lruvec].node;
            let wait = |ns| {
                Some(Wait {
                    channel: Some(WaitChannel::Progress(node)),
                    until: Some(cx.now() + ns),
                    why: WaitReason::Reclaim,
                })
            };
            if met.immediate > 0 {
                return Some(self.congestion_wait(cx, TENTH));
            }
            if scan.who == Reclaimer::Direct && congested && self.queues.pending() > 0 {
                return wait(TENTH / 25);
            }
            return None;
        }
        if met.immediate > 0 || (all_dirty && self.generation.direct_stops) {
            return Some(self.congestion_wait(cx, TENTH));
        }
        if scan.who == Reclaimer::Direct && congested && self.queues.is_congested() {
            return Some(self.congestion_wait(cx, TENTH));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_workload::{How, Policy as Placement};

    use super::super::{Config, RaState, Read};
    use super::*;
    use crate::Generation;

    /// The flags WRITEBACK and DIRTY of a zone after a batch of 32 pages, and whether kswapd waits then.
    fn after_a_batch(kernel: &str, priority: u8, met: ReclaimStat) -> (bool, bool, bool) {
        let mut mm = Mm::new(&Config::new(Generation::named(kernel).unwrap(), vec![1 << 14]));
        let cx = Cx::new(mm.create_task(), 0, usize::MAX, 0);
        let scan = ScanControl::new(Reclaimer::Kswapd, priority, SWAP_CLUSTER_MAX);
        mm.lruvecs[0].flags.writeback = met.immediate > 0;
        let waits = mm.stall_after(&cx, &scan, 0, ReclaimStat { taken: 32, ..met }).is_some();
        (mm.lruvecs[0].flags.writeback, mm.lruvecs[0].flags.dirty, waits)
    }

    #[test]
    fn a_part_of_a_batch_that_halves_with_the_priority_flags_the_zone_on_sles_11_sp3() {
        let sp3 = "linux-3.0-sles11sp3";
        let met =
            |dirty, writeback| ReclaimStat { dirty, unqueued_dirty: dirty, writeback, ..Default::default() };
        for (priority, part) in [(12, 32), (11, 16), (9, 4)] {
            assert_eq!(after_a_batch(sp3, priority, met(part, 0)), (false, true, false), "{priority}");
            assert_eq!(after_a_batch(sp3, priority, met(part - 1, 0)), (false, false, false), "{priority}");
            assert_eq!(after_a_batch(sp3, priority, met(0, part)), (true, false, false), "{priority}");
            assert_eq!(after_a_batch(sp3, priority, met(0, part - 1)), (false, false, false), "{priority}");
        }
        assert_eq!(after_a_batch("linux-3.11", 9, met(31, 0)), (false, false, false));
        assert!(after_a_batch("linux-3.11", 12, met(32, 0)).1);
        assert_eq!(after_a_batch("linux-3.0-sles11sp2", 9, met(32, 32)), (false, false, false));
        // kswapd waits for a page that it has met before, and looks again whether there are many.
        let immediate = ReclaimStat { immediate: 1, ..ReclaimStat::default() };
        assert_eq!(after_a_batch(sp3, 12, immediate), (false, false, true));
        assert_eq!(after_a_batch("linux-3.11", 12, immediate), (true, false, true));
    }

    #[test]
    fn kswapd_of_sles_11_sp3_writes_dirty_pages_at_the_first_meeting() {
        for (kernel, writes) in [("linux-3.0-sles11sp3", true), ("linux-3.11", false)] {
            let mut mm = Mm::new(&Config::new(Generation::named(kernel).unwrap(), vec![1 << 14]));
            let may = |mm: &mut Mm, who, dirty| {
                mm.lruvecs[0].flags.dirty = dirty;
                mm.may_write_file(&ScanControl::new(who, DEF_PRIORITY, SWAP_CLUSTER_MAX), 0, 0)
            };
            assert_eq!(may(&mut mm, Reclaimer::Kswapd, true), writes, "{kernel}");
            assert!(!may(&mut mm, Reclaimer::Kswapd, false), "{kernel}");
            assert!(!may(&mut mm, Reclaimer::Direct, true), "{kernel}");
        }
    }

    #[test]
    fn reclaim_of_6_12_knows_what_was_collected() {
        for (kernel, at_once) in [("linux-6.1", true), ("linux-6.12", false)] {
            let generation = Generation::named(kernel).unwrap();
            let mut mm = Mm::new(&Config { instant_reads: true, ..Config::new(generation, vec![1 << 14]) });
            let (process, task) = (mm.create_process(Placement::Local), mm.create_task());
            let (mut cx, mut ra) = (Cx::new(task, 0, process, 0), RaState::default());
            let file = mm.declare_file(64, true);
            let mut read = Read::new(0, 64 * 4096, How::Buffered);
            while read.poll(&mut mm, &mut cx, file, &mut ra).is_err() {}
            let frame = mm.lruvecs[0].lists[list::INACTIVE_FILE].oldest();
            let bits = 28;
            let shadow =
                Shadow { lruvec: 0, clock: mm.lruvecs[0].nonresident_age as u32, bits, workingset: false };
            let known = |mm: &Mm| {
                let state: &State = mm.lruvecs[0].state();
                (mm.lruvecs[0].page_state().inactive_file, state.refaults_known[FILE])
            };
            assert!(TwoLists.refaulted(&mut mm, frame, shadow), "{kernel}");
            assert_eq!(known(&mm), if at_once { (64, 1) } else { (0, 0) }, "{kernel}");
            mm.flush_stats();
            assert_eq!(known(&mm), (64, 1), "{kernel}");
            // What reclaim knows is what a snapshot keeps.
            TwoLists.end_run(&mut mm, 0);
            let state: &State = mm.lruvecs[0].state();
            assert_eq!(state.refaults_seen[FILE], 1, "{kernel}");
        }
    }
}
