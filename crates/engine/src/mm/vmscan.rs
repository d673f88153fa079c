//! Reclaim with active and inactive lists (`mm/vmscan.c`).
//!
//! Reclaim can be interrupted: where the kernel would sleep, or a long pass should let others run, a [`Wait`]
//! is returned, and the next poll of the same [`DirectReclaim`] or [`ShrinkLruvec`] goes on from there.
//!
//! Sleeps in reclaim, and the kernels that have them ([`Generation`](crate::Generation) has the switches):
//!
//! - Direct reclaim, while reserves are below half of min (3.6 on): `throttle_direct_reclaim`.
//! - Direct reclaim, between priorities: `congestion_wait`, or from 2.6.37 on `wait_iff_congested` (through
//!   3.10), in `direct_reclaim`.
//! - Direct reclaim, at priority 1 without a page: `VMSCAN_THROTTLE_NOPROGRESS` (5.16 on), in
//!   `direct_reclaim`.
//! - A reclaimer that has processed a batch: `wait_iff_congested` for pages under writeback (3.2 to 3.10),
//!   `congestion_wait` for pages under writeback that are to be reclaimed at once (3.11 to 5.15), for a list
//!   that is all dirty (3.11 to 3.15) and, in direct reclaim, for a congested one (3.11 to 5.15),
//!   `VMSCAN_THROTTLE_WRITEBACK` and `_CONGESTED` (5.16 on), in `stall_after`.
//! - An allocation, between rounds: for the devices (through 4.6), in `page_alloc.rs`.
//! - kswapd: for the devices at priorities below 10 (through 3.0), otherwise only its nap, in `kswapd.rs`.
//!
//! Not modelled: isolation by several reclaimers at once (`too_many_isolated`), executable mappings, memory
//! cgroups, slab shrinkers, the boost of watermarks and kswapd's boosted reclaim.

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_scenario::Filesystem;

use super::frame::{Frame, entry, flag, list};
use super::mmzone::{ANON, FILE};
use super::page_alloc::{AllocContext, HIGHEST};
use super::vmstat::Stat;
use super::vmstat::{
    ALLOCSTALL, PGREFILL, PGSCAN, PGSCAN_DIRECT, PGSCAN_KSWAPD, PGSTEAL, PGSTEAL_DIRECT, PGSTEAL_KSWAPD,
};
use super::wbt::Writer;
use super::{Cx, DEF_PRIORITY, Device, Mm, SWAP_CLUSTER_MAX, TENTH, Wait, WaitChannel, WaitReason};
use crate::generation::{AnonOnly, Balance, FileOnly, FileWrite, ReferenceRule};

/// Per-task state kept between calls.
#[derive(Debug, Default)]
pub(crate) struct TaskState {
    /// Pages dirtied since the last check against the limit (`nr_dirtied`).
    pub(crate) dirtied: u64,
    /// Pages that may be dirtied until the next check (`nr_dirtied_pause`).
    pub(crate) poll_after: u64,
    /// Length of the last pause, which the next one doubles (through 3.1).
    pub(crate) dirty_pause: u64,
    pub(crate) batch: Batch,
    /// When the last pause in `balance_dirty_pages` ended.
    pub(crate) paused_at: Option<u64>,
}

/// Requests that a task may send to a full queue after it has waited for a place in it (`ioc_batching`).
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) waited: bool,
    pub(crate) left: u32,
    pub(crate) until: u64,
}

/// The kinds of reclaimers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaimer {
    Kswapd,
    Direct,
    /// Zone or node reclaim: counts as direct.
    Zone,
    /// SUSE's page-cache limit: counts as its caller.
    Limit,
}

/// One reclaim run (`scan_control`).
#[derive(Clone, Debug)]
pub(crate) struct ScanControl {
    pub(crate) who: Reclaimer,
    pub(crate) priority: u8,
    pub(crate) to_reclaim: u64,
    pub(crate) may_writepage: bool,
    pub(crate) may_unmap: bool,
    pub(crate) may_swap: bool,
    pub(crate) scanned: u64,
    pub(crate) reclaimed: u64,
    pub(crate) force_deactivate: bool,
    pub(crate) skipped_deactivate: bool,
    /// RHEL 6: anonymous pages are scanned although swappiness is 0.
    pub(crate) force_anon: bool,
    /// 6.12: cache_trim_mode has failed before.
    pub(crate) no_cache_trim: bool,
    /// kswapd of 6.1 has to check whether aging is due.
    pub(crate) memcgs_need_aging: bool,
}

impl ScanControl {
    pub(crate) fn new(who: Reclaimer, priority: u8, to_reclaim: u64) -> Self {
        ScanControl {
            who,
            priority,
            to_reclaim,
            may_writepage: true,
            may_unmap: true,
            may_swap: true,
            scanned: 0,
            reclaimed: 0,
            force_deactivate: false,
            skipped_deactivate: false,
            force_anon: false,
            no_cache_trim: false,
            memcgs_need_aging: false,
        }
    }
    pub(crate) fn writer(&self) -> Writer {
        if self.is_kswapd() { Writer::Kswapd } else { Writer::Task }
    }
    pub(crate) fn is_kswapd(&self) -> bool {
        self.who == Reclaimer::Kswapd
    }
}

/// A pass over one lruvec.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Pages left to scan, by list.
    left: [u64; 5],
    /// Pages that were to be scanned, by list.
    target: [u64; 5],
    reclaimed: u64,
    adjusted: bool,
    may_deactivate: [bool; 2],
}

/// The shrinking of one lruvec at the priority of a [`ScanControl`] (`mm/vmscan.c:shrink_lruvec`).
#[derive(Debug, Default)]
pub(crate) struct ShrinkLruvec {
    /// It collects its writes, and has not slept since it began to.
    plugged: bool,
    lists: Option<Pass>,
    generations: Option<super::mglru::Pass>,
}

/// Direct reclaim on behalf of an allocation (`try_to_free_pages`).
#[derive(Debug)]
pub(crate) struct DirectReclaim {
    entry: Entry,
    scan: ScanControl,
    shrink: ShrinkLruvec,
    /// Position among the lruvecs of the zonelist.
    at: usize,
    total_scanned: u64,
    retried: bool,
}

/// Whether a task may reclaim yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    New,
    /// It waits for kswapd (`throttle_direct_reclaim`).
    Throttled,
    Admitted,
}

/// Statistics of one batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReclaimStat {
    pub(crate) taken: u64,
    pub(crate) reclaimed: u64,
    dirty: u64,
    unqueued_dirty: u64,
    congested: u64,
    writeback: u64,
    immediate: u64,
    pub(crate) pageout: u64,
    /// The pages written took a place in the device's queue, rather than joining a request there.
    queued: bool,
    /// The batch consists of anonymous pages.
    anon: bool,
    activated: u64,
    /// Dirty pages that were kept because the device is congested.
    spared: u64,
}

/// The fate of a page at the tail of an inactive list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Freed,
    Keep,
    Activate,
    Cull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum References {
    Reclaim,
    ReclaimClean,
    Keep,
    Activate,
}

/// The response of a file system to a request of reclaim to write a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WritePage {
    /// The file system writes the page.
    Writes,
    /// The file system leaves the page to the flusher; the page stays dirty.
    Redirties,
    /// The file system cannot be asked; the page is activated.
    IsMissing,
}

impl ShrinkLruvec {
    /// Whether it was interrupted because the task has to wait or others have to run. It continues whatever
    /// has become of free memory in the meantime.
    pub(crate) fn is_under_way(&self) -> bool {
        self.lists.is_some() || self.generations.is_some()
    }

    /// Shrinks the lruvec, or goes on to do so.
    ///
    /// # Errors
    /// The wait after which it is to be polled again.
    pub(crate) fn poll(
        &mut self,
        mm: &mut Mm,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
    ) -> Result<(), Wait> {
        if !self.plugged {
            self.plugged = true;
            mm.start_plug();
        }
        let done = if mm.generation.mglru {
            mm.lru_gen_shrink_lruvec(cx, scan, lruvec, &mut self.generations)
        } else {
            let pass = self.lists.get_or_insert_with(|| mm.get_scan_count(scan, lruvec));
            mm.shrink_lists(cx, scan, lruvec, pass).inspect(|()| self.lists = None)
        };
        // A task that sleeps sends the writes that it has collected, one that yields does not.
        self.plugged = done.is_err_and(|wait| wait.why == WaitReason::Yield);
        done
    }
}

impl Default for DirectReclaim {
    fn default() -> Self {
        DirectReclaim {
            entry: Entry::New,
            scan: ScanControl::new(Reclaimer::Direct, DEF_PRIORITY, SWAP_CLUSTER_MAX),
            shrink: ShrinkLruvec::default(),
            at: 0,
            total_scanned: 0,
            retried: false,
        }
    }
}

impl DirectReclaim {
    /// Reclaims, or goes on to do so, and returns the number of pages freed.
    ///
    /// # Errors
    /// The wait after which it is to be polled again.
    pub(crate) fn poll(&mut self, mm: &mut Mm, cx: &mut Cx, ac: &AllocContext) -> Result<u64, Wait> {
        let before = cx.spent;
        let outcome = self.reclaim(mm, cx, ac);
        cx.reclaim += cx.spent - before;
        outcome
    }

    fn reclaim(&mut self, mm: &mut Mm, cx: &mut Cx, ac: &AllocContext) -> Result<u64, Wait> {
        if self.entry != Entry::Admitted {
            self.throttle(mm, cx, ac)?;
            self.entry = Entry::Admitted;
            // User memory and files may use the highest possible zone, ZONE_MOVABLE.
            mm.events[ALLOCSTALL[HIGHEST]] += 1;
        }
        let lruvecs = mm.lruvecs_of(ac);
        loop {
            self.try_lruvecs(mm, cx, &lruvecs)?;
            let scan = &mut self.scan;
            if mm.generation.lru_per_node {
                lruvecs.iter().for_each(|&which| mm.snapshot_refaults(which));
            }
            // Direct reclaim starts once more from the beginning, with forced deactivation or with RHEL 6's
            // last resort for swappiness 0.
            let force_anon = mm.generation.oom_force_anon && mm.tuning.swappiness == 0 && mm.swap.free() > 0;
            let retries = (mm.generation.may_deactivate && scan.skipped_deactivate) || force_anon;
            if scan.reclaimed > 0 || self.retried || !retries {
                break;
            }
            self.retried = true;
            scan.force_deactivate = true;
            scan.force_anon = force_anon;
            scan.priority = DEF_PRIORITY;
        }
        // Through 4.6 a run that freed nothing counts as progress until every zone was scanned in vain six
        // times over (`all_unreclaimable`). A run that had nothing to scan does not count as progress.
        let hopeful = self.total_scanned > 0
            && !mm.generation.reclaim_retries
            && !lruvecs.iter().all(|&which| mm.is_unreclaimable(which));
        Ok(self.scan.reclaimed.max(u64::from(hopeful)))
    }

    /// `mm/vmscan.c:throttle_direct_reclaim`.
    fn throttle(&mut self, mm: &mut Mm, cx: &mut Cx, ac: &AllocContext) -> Result<(), Wait> {
        let node = ac.preferred;
        if !mm.generation.pfmemalloc_throttle || mm.pfmemalloc_ok(node) {
            return Ok(());
        }
        if self.entry == Entry::New {
            self.entry = Entry::Throttled;
            mm.events[vmstat::pgscan_direct_throttle] += 1;
        }
        mm.wakeup_kswapd(node);
        let until = Some(cx.now() + 10 * TENTH);
        Err(Wait { channel: Some(WaitChannel::Pfmemalloc(node)), until, why: WaitReason::Reclaim })
    }

    /// Goes over the lruvecs at one priority after another, until enough is freed or none is left
    /// (`do_try_to_free_pages`).
    fn try_lruvecs(&mut self, mm: &mut Mm, cx: &mut Cx, lruvecs: &[usize]) -> Result<(), Wait> {
        loop {
            while let Some(&lruvec) = lruvecs.get(self.at) {
                let skip = !mm.generation.lru_per_node
                    && !self.shrink.is_under_way()
                    && self.scan.priority != DEF_PRIORITY
                    && mm.is_unreclaimable(lruvec);
                if !skip {
                    self.shrink.poll(mm, cx, &mut self.scan, lruvec)?;
                }
                self.at += 1;
            }
            self.at = 0;
            let scan = &mut self.scan;
            self.total_scanned += std::mem::take(&mut scan.scanned);
            if scan.reclaimed >= scan.to_reclaim {
                return Ok(());
            }
            if mm.generation.direct_wakes_flushers
                && self.total_scanned > SWAP_CLUSTER_MAX + SWAP_CLUSTER_MAX / 2
            {
                mm.wakeup_flusher(self.total_scanned);
            }
            let stall = if mm.generation.reclaim_throttle {
                // VMSCAN_THROTTLE_NOPROGRESS
                (scan.priority == 1 && scan.reclaimed == 0).then_some(TENTH / 25)
            } else {
                // 2.6.32 sleeps for the devices; 3.0 to 3.10 do so only if the preferred zone is flagged.
                let low = self.total_scanned > 0 && scan.priority < DEF_PRIORITY - 2;
                let flagged = !mm.generation.reclaim_flags
                    && mm.lruvecs[lruvecs[0]].flags.congested
                    && mm.is_congested();
                (low && (mm.generation.alloc_congestion_wait || flagged)).then_some(TENTH)
            };
            if scan.priority == 0 {
                return Ok(());
            }
            scan.priority -= 1;
            if let Some(ns) = stall {
                return Err(mm.congestion_wait(cx, ns));
            }
        }
    }
}

impl Mm {
    /// The lruvecs of a zonelist, each once, in the order of the list.
    fn lruvecs_of(&self, ac: &AllocContext) -> Vec<usize> {
        let mut lruvecs = Vec::new();
        for &zone in &self.nodes[ac.preferred].zonelist {
            let lruvec = self.lruvec_of(zone);
            if ac.allowed >> self.zones[zone].node & 1 == 1 && !lruvecs.contains(&lruvec) {
                lruvecs.push(lruvec);
            }
        }
        lruvecs
    }

    /// `allow_direct_reclaim`: more than half of the min watermarks is free, or kswapd has given up.
    pub(crate) fn pfmemalloc_ok(&self, node: usize) -> bool {
        let (mut free, mut min) = (0, 0);
        for &zone in &self.nodes[node].zones {
            let zone = &self.zones[zone];
            if zone.lru[list::INACTIVE_ANON..=list::ACTIVE_FILE].iter().sum::<u64>() > 0 {
                free += zone.free;
                min += zone.marks.min;
            }
        }
        min == 0 || free > min / 2 || self.nodes[node].kswapd.gave_up()
    }

    /// `congestion_wait`: sleeps until a device is no longer congested, for at most `ns`.
    pub(crate) fn congestion_wait(&mut self, cx: &Cx, ns: u64) -> Wait {
        Wait { channel: Some(WaitChannel::Room), until: Some(cx.now() + ns), why: WaitReason::Reclaim }
    }

    /// Whether a zone counts as having nothing that can be reclaimed (through 4.7).
    pub(crate) fn is_unreclaimable(&self, lruvec: usize) -> bool {
        if self.generation.unreclaimable_mark {
            return self.zones[lruvec].all_unreclaimable;
        }
        self.was_scanned_in_vain(lruvec)
    }

    /// Whether a zone was scanned six times over since a page of it was last freed (`zone_reclaimable`).
    pub(crate) fn was_scanned_in_vain(&self, lruvec: usize) -> bool {
        let swap = self.swap.free() > 0;
        let lists = &self.lruvecs[lruvec];
        let reclaimable = lists.file() + if swap { lists.anon() } else { 0 };
        self.lruvec_sum(lruvec, |zone| zone.pages_scanned) >= reclaimable * 6
    }

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
        let high = self.lruvec_sum(which, |zone| zone.mark_high());
        let (anon, file, sizes) = {
            let l = &self.lruvecs[which];
            let sizes =
                [0, l.len(INACTIVE_ANON), l.len(ACTIVE_ANON), l.len(INACTIVE_FILE), l.len(ACTIVE_FILE)];
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
                !scan.no_cache_trim && !may_deactivate[FILE] && sizes[INACTIVE_FILE] >> priority > 0
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
                    let l = &mut self.lruvecs[which];
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
                    let [a, c] = self.lruvecs[which].cost;
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
                let saved = &mut self.lruvecs[which].saved_scan[list];
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
        let l = &mut self.lruvecs[which];
        let mut may = [false; 2];
        for kind in 0..2 {
            may[kind] = l.refaults[kind] != l.refaults_seen[kind] || lows[kind];
        }
        may
    }

    /// Ends a reclaim run of kswapd, or from 4.12 on of a task: refaults after this count as new
    /// (`snapshot_refaults`).
    pub(crate) fn snapshot_refaults(&mut self, which: usize) {
        let l = &mut self.lruvecs[which];
        l.refaults_seen = l.refaults;
    }

    /// `inactive_anon_is_low`; the list is never low without swap.
    pub(crate) fn anon_low(&self, which: usize) -> bool {
        use lotsfree_units::PageSize;
        let l = &self.lruvecs[which];
        let lists = lotsfree_formulas::lists::Lists {
            inactive_anon: l.len(list::INACTIVE_ANON),
            active_anon: l.len(list::ACTIVE_ANON),
            inactive_file: 0,
            active_file: 0,
        };
        let size = if self.generation.rules.lists.ratio_from_lists {
            PageSize::X86.of(lists.inactive_anon + lists.active_anon)
        } else {
            l.boot_size
        };
        lotsfree_formulas::lists::inactive_anon_is_low(&lists, size, self.swap.total > 0)
    }

    fn file_low_by_ratio(&self, which: usize) -> bool {
        let l = &self.lruvecs[which];
        let lists = lotsfree_formulas::lists::Lists {
            inactive_file: l.len(list::INACTIVE_FILE),
            active_file: l.len(list::ACTIVE_FILE),
            ..Default::default()
        };
        let rules = &self.generation.rules.lists;
        lotsfree_formulas::lists::inactive_file_is_low(rules, &lists, lotsfree_units::PageSize::X86)
    }

    /// `inactive_file_is_low`. Refault activations make the list low whatever its length (4.19, 5.4).
    fn file_low(&self, which: usize) -> bool {
        let l = &self.lruvecs[which];
        let refaulted = self.generation.rules.lists.file_ratio && l.refaults[FILE] != l.refaults_seen[FILE];
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
    pub(crate) fn shrink_active_list(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        lruvec: usize,
        which: usize,
        batch: u64,
    ) {
        let anon = which == list::ACTIVE_ANON;
        let to = list::classic(anon, false);
        let (mut taken, mut referenced) = (0, 0);
        self.look_ahead(lruvec, which);
        for _ in 0..batch {
            let frame = self.lruvecs[lruvec].lists[which].oldest();
            if frame == super::frame::NONE {
                break;
            }
            let zone = &self.zones[self.frames[frame as usize].zone()];
            self.events[PGREFILL[zone.index()]] += 1;
            if !scan.may_unmap && self.generation.isolate_unmapped && self.is_mapped(frame) {
                cx.spend(self.costs.skip);
                self.lru_move(frame, which, false);
                continue;
            }
            cx.spend(self.costs.scan);
            taken += 1;
            if self.test_clear_young(cx, frame) > 0 {
                referenced += 1;
            }
            if self.generation.rules.lists.refault != lotsfree_formulas::lists::Refault::None {
                self.frames[frame as usize].flags |= flag::WORKINGSET;
            }
            self.lru_move(frame, to, false);
            self.events[vmstat::pgdeactivate] += 1;
        }
        let kind = usize::from(!anon);
        let l = &mut self.lruvecs[lruvec];
        l.recent_scanned[kind] += taken;
        l.recent_rotated[kind] += referenced;
    }

    /// Clears the accessed bits of a page, and returns how many page tables had accessed it
    /// (`page_referenced`).
    pub(crate) fn test_clear_young(&mut self, cx: &mut Cx, frame: u32) -> u32 {
        let f = &mut self.frames[frame as usize];
        let e = &mut self.entries[f.slot as usize];
        let mut young = 0;
        if *e & entry::MAPPED != 0 {
            young += u32::from(*e & entry::ACCESSED != 0);
            *e &= !entry::ACCESSED;
            cx.spent += self.costs.rmap;
        }
        if f.flags & flag::OTHER != 0 {
            f.flags &= !flag::OTHER;
            young += 1;
        }
        young
    }

    /// Accounts the cost of reclaim (`mm/swap.c:lru_note_cost`).
    pub(crate) fn note_cost(&mut self, lruvec: usize, anon: bool, io: u64, rotated: u64) {
        let cost = match self.generation.balance {
            Balance::Rotation => return,
            Balance::Cost => io,
            Balance::WeightedCost => io * SWAP_CLUSTER_MAX + rotated,
        };
        let l = &mut self.lruvecs[lruvec];
        l.cost[usize::from(!anon)] += cost;
        if l.cost.iter().sum::<u64>() > (l.anon() + l.file()) / 4 {
            l.cost = l.cost.map(|cost| cost / 2);
        }
    }

    /// Accounts a page that enters a list or moves between them (`update_page_reclaim_stat`, through 5.7).
    pub(crate) fn note_added(&mut self, frame: u32, active: bool) {
        if self.generation.balance == Balance::Rotation {
            let lruvec = self.lruvec_of_frame(frame);
            let kind = usize::from(!self.frames[frame as usize].has(flag::ANON));
            let l = &mut self.lruvecs[lruvec];
            l.recent_scanned[kind] += 1;
            l.recent_rotated[kind] += u64::from(active);
        }
    }

    /// Takes a batch off the tail of an inactive list and frees what can be freed (`shrink_inactive_list`).
    pub(crate) fn shrink_inactive_list(
        &mut self,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        which: usize,
        batch: u64,
    ) -> (u64, Option<Wait>) {
        let anon = which == list::INACTIVE_ANON;
        let mut met = ReclaimStat { anon, ..ReclaimStat::default() };
        let batch = batch.min(self.lruvecs[lruvec].lists[which].len);
        self.look_ahead(lruvec, which);
        for _ in 0..batch {
            let frame = self.lruvecs[lruvec].lists[which].oldest();
            let zone = self.frames[frame as usize].zone();
            self.zones[zone].pages_scanned += 1;
            let index = self.zones[zone].index();
            if scan.is_kswapd() {
                self.events[PGSCAN_KSWAPD[index]] += 1;
            } else {
                self.events[PGSCAN_DIRECT[index]] += 1;
            }
            scan.scanned += 1;
            if !scan.may_unmap && self.generation.isolate_unmapped && self.is_mapped(frame) {
                cx.spend(self.costs.skip);
                self.lru_move(frame, which, false);
                continue;
            }
            cx.spend(self.costs.scan);
            met.taken += 1;
            let fate = self.shrink_page(cx, scan, lruvec, frame, &mut met);
            match fate {
                Fate::Freed => {
                    met.reclaimed += 1;
                    if scan.is_kswapd() {
                        self.events[PGSTEAL_KSWAPD[index]] += 1;
                    } else {
                        self.events[PGSTEAL_DIRECT[index]] += 1;
                    }
                }
                Fate::Keep => self.lru_move(frame, which, false),
                Fate::Activate => {
                    met.activated += 1;
                    self.events[vmstat::pgactivate] += 1;
                    self.lru_move(frame, list::classic(anon, true), false);
                    if self.generation.anon_refault {
                        self.workingset_activation(frame);
                    }
                }
                Fate::Cull => {
                    self.events[vmstat::unevictable_pgs_culled] += 1;
                    self.lru_move(frame, list::UNEVICTABLE, false);
                }
            }
        }
        met.queued = self.flush_pageout(cx, scan.writer());
        let kind = usize::from(!anon);
        self.events[PGSCAN[kind]] += batch;
        self.events[PGSTEAL[kind]] += met.reclaimed;
        let l = &mut self.lruvecs[lruvec];
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
        if met.queued && self.pageout_waits(cx, device, scan.writer()) {
            return Some(self.wait_for_room(cx, WaitReason::Io));
        }
        if !self.generation.reclaim_flags {
            let l = &mut self.lruvecs[lruvec];
            // wait_iff_congested waits only for a zone that is flagged as congested. A zone is flagged when
            // direct reclaim has spared all dirty file pages of a batch because the device is congested: 3.0.
            l.flags.congested |= met.spared > 0 && met.spared == met.dirty;
            // At a lower priority, fewer pages of the batch have to be under writeback (3.2 to 3.10).
            let enough = met.writeback > 0 && met.writeback >= met.taken >> (DEF_PRIORITY - scan.priority);
            let waits = l.flags.congested && enough && self.is_congested();
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
            if scan.who == Reclaimer::Direct && congested && self.writeback.pending() > 0 {
                return wait(TENTH / 25);
            }
            return None;
        }
        if met.immediate > 0 || (all_dirty && self.generation.direct_stops) {
            return Some(self.congestion_wait(cx, TENTH));
        }
        if scan.who == Reclaimer::Direct && congested && self.is_congested() {
            return Some(self.congestion_wait(cx, TENTH));
        }
        None
    }

    /// Decides the fate of one page (`mm/vmscan.c:shrink_page_list`).
    pub(crate) fn shrink_page(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        lruvec: usize,
        frame: u32,
        met: &mut ReclaimStat,
    ) -> Fate {
        let f = self.frames[frame as usize];
        let anon = f.has(flag::ANON);
        if f.has(flag::LOCKED) {
            return Fate::Keep;
        }
        if f.has(flag::MLOCKED) {
            return Fate::Cull;
        }
        let mapped = self.is_mapped(frame);
        if mapped && !scan.may_unmap {
            return Fate::Keep;
        }
        let writeback = f.has(flag::WRITEBACK);
        let dirty = f.has(flag::DIRTY) && (!anon || f.has(flag::SWAPCACHE));
        // Anonymous pages do not count, because no flusher writes them (`page_check_dirty_writeback`, 3.11).
        if (dirty || writeback) && !anon && self.generation.reclaim_flags {
            met.dirty += 1;
            met.unqueued_dirty += u64::from(!writeback);
            met.congested += u64::from(self.is_congested() || (writeback && f.has(flag::RECLAIM)));
        }
        if writeback {
            if self.generation.reclaim_flags
                && scan.is_kswapd()
                && f.has(flag::RECLAIM)
                && self.lruvecs[lruvec].flags.writeback
            {
                met.immediate += 1;
            } else {
                self.frames[frame as usize].flags |= flag::RECLAIM;
                met.writeback += 1;
            }
            return if self.generation.dirty_activates { Fate::Activate } else { Fate::Keep };
        }
        let references = self.check_references(cx, frame, anon);
        match references {
            References::Activate => return Fate::Activate,
            References::Keep => return Fate::Keep,
            References::Reclaim | References::ReclaimClean => {}
        }
        if anon && !f.has(flag::SWAPCACHE) && (!scan.may_swap || !self.add_to_swap(cx, frame)) {
            return Fate::Activate;
        }
        if mapped {
            cx.spend(self.costs.rmap);
            self.unmap_page(frame);
        }
        if self.frames[frame as usize].has(flag::DIRTY) {
            // Through 3.10, a page counts here if only its being dirty keeps it from being freed.
            met.dirty += u64::from(!self.generation.reclaim_flags);
            if !anon && !self.may_write_file(scan, lruvec, frame) {
                self.stat_add(frame, Stat::VmscanImmediate);
                self.frames[frame as usize].flags |= flag::RECLAIM;
                return if self.generation.dirty_activates { Fate::Activate } else { Fate::Keep };
            }
            if references == References::ReclaimClean || !scan.may_writepage {
                return Fate::Keep;
            }
            // Swap never counts as congested, because its address space has no device of its own.
            let pushes = anon || matches!(scan.who, Reclaimer::Kswapd | Reclaimer::Zone);
            if self.generation.spares_congested && !pushes && self.is_congested() {
                met.spared += 1;
                return Fate::Keep;
            }
            match if anon { WritePage::Writes } else { self.writepage(scan, frame) } {
                WritePage::Writes => {
                    self.pageout(frame);
                    met.pageout += 1;
                }
                WritePage::Redirties => self.stat_add(frame, Stat::VmscanWrite),
                WritePage::IsMissing => return Fate::Activate,
            }
            return Fate::Keep;
        }
        self.evict(cx, frame);
        Fate::Freed
    }

    /// `mm/vmscan.c:page_check_references`.
    fn check_references(&mut self, cx: &mut Cx, frame: u32, anon: bool) -> References {
        let young = self.test_clear_young(cx, frame);
        let f = &mut self.frames[frame as usize];
        let referenced = f.has(flag::REFERENCED);
        f.flags &= !flag::REFERENCED;
        if young > 0 {
            let at_once = match self.generation.reference {
                ReferenceRule::SecondRound | ReferenceRule::SwapBackedAtOnce => anon,
                ReferenceRule::OneRule => false,
            };
            let several = self.generation.reference != ReferenceRule::SecondRound && young > 1;
            if at_once {
                return References::Activate;
            }
            f.flags |= flag::REFERENCED;
            return if referenced || several { References::Activate } else { References::Keep };
        }
        if referenced && (!anon || self.generation.reclaim_clean_any) {
            References::ReclaimClean
        } else {
            References::Reclaim
        }
    }

    /// Whether this reclaimer may write this dirty file page (`mm/vmscan.c:shrink_page_list`). Which kernel
    /// lets whom is in `generation.rs`: `FileWrite` through 6.12, and `without_writepage`, by which the
    /// flusher alone writes (XFS on 6.1, every file system on 6.12).
    fn may_write_file(&self, scan: &ScanControl, lruvec: usize, frame: u32) -> bool {
        match self.generation.file_write {
            FileWrite::Anyone => true,
            FileWrite::KswapdInNeed => scan.is_kswapd() && scan.priority < DEF_PRIORITY - 2,
            FileWrite::KswapdDirtyTail => {
                scan.is_kswapd()
                    && self.lruvecs[lruvec].flags.dirty
                    && self.frames[frame as usize].has(flag::RECLAIM)
            }
        }
    }

    /// The response of the file system when reclaim asks it to write a page (`->writepage`).
    fn writepage(&self, scan: &ScanControl, frame: u32) -> WritePage {
        if self.generation.without_writepage.contains(&self.filesystem) {
            return WritePage::IsMissing;
        }
        let refuses = match self.filesystem {
            Filesystem::Ext3 => false,
            Filesystem::Ext4 => self.is_delayed(self.frames[frame as usize].slot),
            Filesystem::Xfs => !scan.is_kswapd(),
            Filesystem::Btrfs => true,
        };
        if refuses { WritePage::Redirties } else { WritePage::Writes }
    }

    /// Frees a clean page that is in no page table. Its entry keeps what is needed to find the page again.
    pub(crate) fn evict(&mut self, cx: &mut Cx, frame: u32) {
        let f = self.frames[frame as usize];
        if let Some(evictions) = &mut self.evictions {
            evictions.evicted(f.slot);
        }
        let shadow = self.workingset_eviction(frame);
        if f.has(flag::ANON) {
            self.leave_to_swap(frame, shadow);
        } else {
            self.entries[f.slot as usize] = entry::SHADOW | shadow;
        }
        self.forget_page(cx, frame);
    }

    /// `mm/swap.c:mark_page_accessed`.
    pub(crate) fn mark_page_accessed(&mut self, frame: u32) {
        let f: &mut Frame = &mut self.frames[frame as usize];
        if self.generation.mglru {
            super::mglru::count_access(f);
            return;
        }
        if !f.has(flag::REFERENCED) {
            f.flags |= flag::REFERENCED;
            return;
        }
        let from = f.list();
        if from == list::INACTIVE_ANON || from == list::INACTIVE_FILE {
            f.flags &= !flag::REFERENCED;
            let anon = f.has(flag::ANON);
            self.lru_move(frame, list::classic(anon, true), false);
            self.events[vmstat::pgactivate] += 1;
            self.note_added(frame, true);
            self.workingset_activation(frame);
        }
    }

    pub(crate) fn stat_add(&mut self, frame: u32, stat: Stat) {
        let zone = self.frames[frame as usize].zone();
        self.zones[zone].stat[stat as usize] += 1;
    }

    pub(crate) fn stat_sub(&mut self, frame: u32, stat: Stat) {
        let zone = self.frames[frame as usize].zone();
        self.zones[zone].stat[stat as usize] -= 1;
    }
}
