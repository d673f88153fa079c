//! Reclaim, whatever the policy (`mm/vmscan.c`): direct reclaim, and what becomes of a page that a policy
//! takes off its lists.
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
//! cgroups, shrinkers other than that of shadow nodes.

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_scenario::Filesystem;

use super::blk::Batch;
use super::frame::{NONE, entry, flag, list};
use super::mglru::set_refs;
use super::mmzone::{Lruvec, MAX_NR_ZONES};
use super::page_alloc::{AllocContext, HIGHEST};
use super::policy::Kept;
use super::vmstat::{
    ALLOCSTALL, ByZone, PGSCAN, PGSCAN_DIRECT, PGSCAN_KSWAPD, PGSKIP, PGSTEAL, PGSTEAL_DIRECT,
    PGSTEAL_KSWAPD, Stat,
};
use super::workingset::Change;
use super::{Cx, DEF_PRIORITY, Mm, SWAP_CLUSTER_MAX, TENTH, Wait, WaitChannel, WaitReason};
use crate::generation::{FileWrite, ReferenceRule, ZoneFlags};

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
    /// The highest zone whose pages are of use (`reclaim_idx`, 4.8 on).
    pub(crate) highest: usize,
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
            highest: HIGHEST,
            scanned: 0,
            reclaimed: 0,
            force_deactivate: false,
            skipped_deactivate: false,
            force_anon: false,
            no_cache_trim: false,
            memcgs_need_aging: false,
        }
    }
    pub(crate) fn is_kswapd(&self) -> bool {
        self.who == Reclaimer::Kswapd
    }
}

/// The shrinking of one lruvec at the priority of a [`ScanControl`] (`mm/vmscan.c:shrink_lruvec`).
#[derive(Debug, Default)]
pub(crate) struct ShrinkLruvec {
    /// How far the policy has come.
    pass: Option<Box<dyn Kept>>,
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
    pub(super) taken: u64,
    pub(super) reclaimed: u64,
    pub(super) dirty: u64,
    pub(super) unqueued_dirty: u64,
    pub(super) congested: u64,
    pub(super) writeback: u64,
    pub(super) immediate: u64,
    pub(super) pageout: u64,
    /// The pages written took a place in the device's queue, rather than joining a request there.
    pub(super) queued: bool,
    /// The batch consists of anonymous pages.
    pub(super) anon: bool,
    pub(super) activated: u64,
    /// Dirty pages that were kept because the device is congested.
    pub(super) spared: u64,
}

/// Pages of one type in a batch, by zone.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The lruvec's first zone.
    first: usize,
    zones: [ZoneTally; MAX_NR_ZONES],
}

#[derive(Clone, Copy, Debug, Default)]
struct ZoneTally {
    scanned: u64,
    freed: u64,
    /// Pages that went to another list.
    moved: u64,
}

impl Tally {
    /// Nothing yet of this lruvec.
    pub(super) fn new(lruvec: &Lruvec) -> Self {
        Tally { first: lruvec.zones[0], zones: [ZoneTally::default(); MAX_NR_ZONES] }
    }
    #[inline]
    fn of(&mut self, zone: usize) -> &mut ZoneTally {
        &mut self.zones[(zone - self.first) % MAX_NR_ZONES]
    }
    /// Counts a page that reclaim takes off a list to decide its fate.
    #[inline]
    pub(super) fn scanned(&mut self, zone: usize) {
        self.of(zone).scanned += 1;
    }
    /// Counts a page that was freed.
    #[inline]
    pub(super) fn freed(&mut self, zone: usize) {
        self.of(zone).freed += 1;
    }
    /// Counts a page that went to another list.
    #[inline]
    pub(super) fn moved(&mut self, zone: usize) {
        self.of(zone).moved += 1;
    }
}

/// A batch of pages that reclaim has taken off the tail of a list. They are on no list, but still in the
/// counts of their own.
#[derive(Debug)]
pub(crate) struct Isolated {
    frames: [u32; SWAP_CLUSTER_MAX as usize],
    len: usize,
    /// Pages of no use that were in the way, by zone of the lruvec.
    skipped: [u64; MAX_NR_ZONES],
    /// Pages that go back to the list are at the beginning of `frames`.
    kept: usize,
}

impl Isolated {
    pub(super) fn len(&self) -> usize {
        self.len
    }
    /// The page at a place, the oldest first.
    #[inline]
    pub(super) fn frame(&self, at: usize) -> u32 {
        self.frames[at]
    }
    /// The pages that were kept.
    pub(super) fn kept(&self) -> &[u32] {
        &self.frames[..self.kept]
    }
    /// Keeps a page that has been looked at for [`Mm::putback_lru_pages`].
    #[inline]
    pub(super) fn keep(&mut self, frame: u32) {
        self.frames[self.kept] = frame;
        self.kept += 1;
    }
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
        self.pass.is_some()
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
        mm.queues.plug(cx.task);
        let freed = mm.slab.freed;
        let done = mm.generation.policy.shrink_lruvec(mm, cx, scan, lruvec, &mut self.pass);
        if done.is_ok() && scan.who != Reclaimer::Limit {
            mm.shrink_shadow_nodes(cx, lruvec, scan.priority);
        }
        scan.reclaimed += mm.slab.freed - freed;
        // A task that sleeps sends the writes that it has collected, one that yields does not.
        if !done.is_err_and(|wait| wait.why == WaitReason::Yield) {
            mm.end_plug(cx.task);
        }
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
    /// Reclaim of more pages than a batch, as for a large block.
    pub(super) fn of_pages(pages: u64) -> Self {
        let scan = ScanControl::new(Reclaimer::Direct, DEF_PRIORITY, pages.max(SWAP_CLUSTER_MAX));
        DirectReclaim { scan, ..DirectReclaim::default() }
    }

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
                lruvecs.iter().for_each(|&which| mm.generation.policy.end_run(mm, which));
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
        mm.wakeup_kswapd(node, HIGHEST);
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
                let flagged = mm.generation.zone_flags != ZoneFlags::WholeBatch
                    && mm.lruvecs[lruvecs[0]].flags.congested
                    && mm.queues.is_congested();
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
    /// Sends the writes that a task has collected, if it has. A caller that gives up a call that is under way
    /// says so with this.
    pub fn end_plug(&mut self, task: usize) {
        self.queues.unplug(task, &mut self.outbox);
    }

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
                min += zone.min_wmark_pages();
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

    /// Takes a batch of pages off the tail of a list that all zones of the lruvec share
    /// (`isolate_lru_pages`).
    ///
    /// It loads the entries of these pages, and the frames of the next batch, so that they are in the caches
    /// when they are looked at one by one. Here the waits for memory overlap; there they would not.
    pub(super) fn isolate_lru_pages(
        &mut self,
        scan: &ScanControl,
        lruvec: usize,
        which: usize,
        count: u64,
    ) -> Isolated {
        debug_assert!(which < list::FIRST_GENERATION);
        let mut frames = [NONE; SWAP_CLUSTER_MAX as usize];
        let count = count.min(SWAP_CLUSTER_MAX) as usize;
        let mut skipped = [0; MAX_NR_ZONES];
        if self.is_restricted(scan, lruvec) {
            skipped = self.skip_lru_pages(scan, lruvec, which, count);
        }
        let list = &mut self.lruvecs[lruvec].lists[which];
        let len = list.take_tail(&mut frames[..count]);
        let entries: &[u32] = &self.entries;
        let mut seen = 0;
        for &frame in &frames[..len] {
            let f = &mut self.frames[frame as usize];
            f.flags &= !flag::LIST;
            seen ^= entries[f.slot as usize];
        }
        let mut left = SWAP_CLUSTER_MAX as usize;
        for part in list.places() {
            let near = &part[..part.len().min(left)];
            left -= near.len();
            for &frame in near {
                if let Some(f) = self.frames.get(frame as usize) {
                    seen ^= f.slot;
                }
            }
        }
        std::hint::black_box(seen);
        Isolated { frames, len, skipped, kept: 0 }
    }

    /// Whether pages of the lruvec's highest zone are of no use to the reclaimer.
    pub(super) fn is_restricted(&self, scan: &ScanControl, lruvec: usize) -> bool {
        let zones = &self.lruvecs[lruvec].zones;
        self.generation.lru_per_node && self.zones[zones[zones.len() - 1]].index() > scan.highest
    }

    /// Moves pages of no use to the head of a list, as far as they are in the way of the next `count` others
    /// (`isolate_lru_pages`, `pgskip_*`). Returns their numbers by zone of the lruvec.
    #[cold]
    fn skip_lru_pages(
        &mut self,
        scan: &ScanControl,
        lruvec: usize,
        which: usize,
        count: usize,
    ) -> [u64; MAX_NR_ZONES] {
        let first = self.lruvecs[lruvec].zones[0];
        let (mut numbers, mut skipped, mut found) = ([0; MAX_NR_ZONES], Vec::new(), 0);
        for frame in self.lruvecs[lruvec].lists[which].iter() {
            if found == count {
                break;
            }
            let zone = &self.zones[self.frames[frame as usize].zone()];
            if zone.index() > scan.highest {
                self.events[PGSKIP[zone.index()]] += 1;
                numbers[(zone.number - first) % MAX_NR_ZONES] += 1;
                skipped.push(frame);
            } else {
                found += 1;
            }
        }
        let list = &mut self.lruvecs[lruvec].lists[which];
        for frame in skipped {
            list.remove(&mut self.frames, frame);
            list.push_head(&mut self.frames, frame);
        }
        numbers
    }

    /// Puts the pages of a batch that were kept to the head of their list (`move_pages_to_lru`), takes the
    /// others out of its count, and counts what was scanned and freed.
    pub(super) fn putback_lru_pages(
        &mut self,
        scan: &mut ScanControl,
        (lruvec, which): (usize, usize),
        batch: &Isolated,
        tally: &Tally,
    ) {
        self.lru_add_all(lruvec, which, batch.kept());
        for (zone, tally) in self.zones[tally.first..].iter_mut().zip(&tally.zones) {
            zone.lru[which] -= tally.freed + tally.moved;
        }
        let kind = usize::from(which == list::INACTIVE_FILE || which == list::ACTIVE_FILE);
        self.note_scanned(scan, kind, tally);
        let scans = if scan.is_kswapd() { PGSCAN_KSWAPD } else { PGSCAN_DIRECT };
        self.events[PGSCAN[kind]] += self.count_skipped(lruvec, batch, scans);
    }

    /// Counts the pages of a batch that were skipped as scanned, as the kernel does where it shows numbers
    /// but not where it compares with a target. Returns how many they are.
    pub(super) fn count_skipped(&mut self, lruvec: usize, batch: &Isolated, scans: ByZone) -> u64 {
        let first = self.lruvecs[lruvec].zones[0];
        for (zone, &skipped) in self.zones[first..].iter().zip(&batch.skipped) {
            self.events[scans[zone.index()]] += skipped;
        }
        batch.skipped.iter().sum()
    }

    /// Puts pages that are on no list to the head of one that all zones share, without counting them there.
    pub(super) fn lru_add_all(&mut self, lruvec: usize, which: usize, frames: &[u32]) {
        let list = &mut self.lruvecs[lruvec].lists[which];
        for &frame in frames {
            self.frames[frame as usize].flags |= which as u32;
            list.push_head(&mut self.frames, frame);
        }
    }

    /// Counts the pages of one type that a batch has scanned and freed.
    pub(super) fn note_scanned(&mut self, scan: &mut ScanControl, kind: usize, tally: &Tally) {
        let (scans, steals) =
            if scan.is_kswapd() { (PGSCAN_KSWAPD, PGSTEAL_KSWAPD) } else { (PGSCAN_DIRECT, PGSTEAL_DIRECT) };
        for (zone, tally) in self.zones[tally.first..].iter().zip(&tally.zones) {
            self.events[scans[zone.index()]] += tally.scanned;
            self.events[steals[zone.index()]] += tally.freed;
            self.events[PGSCAN[kind]] += tally.scanned;
            self.events[PGSTEAL[kind]] += tally.freed;
            scan.scanned += tally.scanned;
        }
    }

    /// Shrinks an lruvec whose policy has one list of each type, until enough is freed or the lists have been
    /// scanned as far as the priority says. `prepare` sees each page before its fate is decided; one that has
    /// to stay goes to the head.
    pub(super) fn shrink_single_lists(
        &mut self,
        cx: &mut Cx,
        scan: &mut ScanControl,
        lruvec: usize,
        mut prepare: impl FnMut(&mut Mm, &mut Cx, u32),
    ) {
        for which in [list::INACTIVE_ANON, list::INACTIVE_FILE] {
            let anon = which == list::INACTIVE_ANON;
            if anon && (!scan.may_swap || self.swap.free() == 0) {
                continue;
            }
            let mut left = self.lruvecs[lruvec].len(which).div_ceil(1 << scan.priority);
            let mut met = ReclaimStat { anon, ..ReclaimStat::default() };
            let mut tally = Tally::new(&self.lruvecs[lruvec]);
            while left > 0 && scan.reclaimed < scan.to_reclaim {
                left -= 1;
                let frame = self.lruvecs[lruvec].lists[which].oldest();
                let zone = self.frames[frame as usize].zone();
                prepare(self, cx, frame);
                tally.scanned(zone);
                cx.spend(self.costs.scan);
                match self.shrink_page(cx, scan, lruvec, frame, &mut met) {
                    Fate::Freed => {
                        scan.reclaimed += 1;
                        tally.freed(zone);
                    }
                    Fate::Keep | Fate::Activate => self.lru_move(frame, which, false),
                    Fate::Cull => self.lru_move(frame, list::UNEVICTABLE, false),
                }
            }
            self.note_scanned(scan, usize::from(!anon), &tally);
            self.flush_pageout(cx, scan.is_kswapd());
        }
        self.freed_news(self.lruvecs[lruvec].node);
    }

    /// Clears the accessed bits of a page, and returns how many page tables had accessed it
    /// (`page_referenced`).
    #[inline]
    pub(crate) fn test_clear_young(&mut self, cx: &mut Cx, frame: u32) -> u32 {
        let f = &mut self.frames[frame as usize];
        let e = &mut self.entries[f.slot as usize];
        let mut young = 0;
        if *e & entry::MAPPED != 0 {
            young += u32::from(*e & entry::ACCESSED != 0);
            *e &= !entry::ACCESSED;
            cx.spent += self.costs.rmap;
        }
        if f.has(flag::OTHER) {
            f.flags &= !flag::OTHER;
            young += 1;
            let object = self.objects.at(f.slot);
            cx.spent += self.costs.rmap * u64::from(object.mapped_elsewhere(f.slot - object.base));
        }
        young
    }

    /// Decides the fate of one page (`mm/vmscan.c:shrink_page_list`).
    #[inline(always)]
    pub(crate) fn shrink_page(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        lruvec: usize,
        frame: u32,
        met: &mut ReclaimStat,
    ) -> Fate {
        let f = self.frames[frame as usize];
        if f.has(flag::LOCKED | flag::MLOCKED) {
            return if f.has(flag::LOCKED) { Fate::Keep } else { Fate::Cull };
        }
        let mapped = self.is_mapped_at(f.slot);
        if mapped && !scan.may_unmap {
            return Fate::Keep;
        }
        if f.has(flag::DIRTY | flag::WRITEBACK)
            && let Some(fate) = self.check_dirty_writeback(scan, lruvec, frame, met)
        {
            return fate;
        }
        let anon = f.has(flag::ANON);
        let references = self.check_references(cx, frame, anon);
        match references {
            References::Activate => return Fate::Activate,
            References::Keep => return Fate::Keep,
            References::Reclaim | References::ReclaimClean => {}
        }
        if anon && !f.has(flag::SWAPCACHE) {
            if self.objects.at(f.slot).shmem {
                return self.shrink_shmem(cx, scan, frame, references, met);
            }
            if !scan.may_swap || !self.add_to_swap(cx, frame) {
                return Fate::Activate;
            }
        }
        if mapped {
            let object = self.objects.at(f.slot);
            let others = object.mapped_elsewhere(f.slot - object.base);
            cx.spend(self.costs.rmap * u64::from(others.max(1)));
            self.unmap_page(frame);
        }
        if self.frames[frame as usize].has(flag::DIRTY) {
            return self.shrink_dirty(cx, scan, lruvec, frame, references, met);
        }
        if !anon && self.ext4.as_ref().is_some_and(|ext4| ext4.holds(f.slot)) {
            // Its buffer is in use (`filemap_release_folio`).
            return Fate::Activate;
        }
        self.evict(cx, frame);
        Fate::Freed
    }

    /// Decides the fate of a page of shared memory that is in the page cache: it is unmapped first, and gets
    /// a slot of swap only when it is to be written (`shmem_writepage`). One that was only read has nothing
    /// to write.
    fn shrink_shmem(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        frame: u32,
        references: References,
        met: &mut ReclaimStat,
    ) -> Fate {
        let slot = self.frames[frame as usize].slot;
        let object = self.objects.at(slot);
        let mapped = u32::from(self.entries[slot as usize] & entry::MAPPED != 0)
            + object.mapped_elsewhere(slot - object.base);
        cx.spend(self.costs.rmap * u64::from(mapped));
        self.unmap_page(frame);
        if !self.frames[frame as usize].has(flag::DIRTY) {
            self.drop_page(cx, frame);
            cx.pages.returned -= 1;
            return Fate::Freed;
        }
        if references == References::ReclaimClean || !scan.may_writepage {
            return Fate::Keep;
        }
        if !scan.may_swap || !self.add_to_swap(cx, frame) {
            return Fate::Activate;
        }
        self.write_to_swap(cx, frame, met)
    }

    /// Writes a page of the swap cache. What is compressed is written when this returns, and freed in the
    /// same pass.
    fn write_to_swap(&mut self, cx: &mut Cx, frame: u32, met: &mut ReclaimStat) -> Fate {
        met.pageout += 1;
        if self.zpool.is_none() {
            self.pageout(frame);
        } else if self.swap_writepage(cx, frame) {
            self.evict(cx, frame);
            return Fate::Freed;
        }
        Fate::Keep
    }

    /// Counts a page that is dirty or under writeback (`page_check_dirty_writeback`), and decides the fate of
    /// one that is being written.
    fn check_dirty_writeback(
        &mut self,
        scan: &ScanControl,
        lruvec: usize,
        frame: u32,
        met: &mut ReclaimStat,
    ) -> Option<Fate> {
        let f = &mut self.frames[frame as usize];
        let (anon, writeback) = (f.has(flag::ANON), f.has(flag::WRITEBACK));
        // Anonymous pages do not count, because no flusher writes them (3.11).
        if !anon && self.generation.zone_flags == ZoneFlags::WholeBatch {
            met.dirty += 1;
            met.unqueued_dirty += u64::from(!writeback);
            let reclaim = f.has(flag::RECLAIM);
            met.congested += u64::from(self.queues.is_congested() || (writeback && reclaim));
        }
        if !writeback {
            return None;
        }
        let f = &mut self.frames[frame as usize];
        if self.generation.zone_flags != ZoneFlags::Congested
            && scan.is_kswapd()
            && f.has(flag::RECLAIM)
            && self.lruvecs[lruvec].flags.writeback
        {
            met.immediate += 1;
        } else {
            f.flags |= flag::RECLAIM;
            met.writeback += 1;
        }
        Some(if self.generation.dirty_activates { Fate::Activate } else { Fate::Keep })
    }

    /// Has a dirty page written if this reclaimer may do that, and decides its fate.
    fn shrink_dirty(
        &mut self,
        cx: &mut Cx,
        scan: &ScanControl,
        lruvec: usize,
        frame: u32,
        references: References,
        met: &mut ReclaimStat,
    ) -> Fate {
        let anon = self.frames[frame as usize].has(flag::ANON);
        // Through 3.10, a page counts here if only its being dirty keeps it from being freed.
        met.dirty += u64::from(self.generation.zone_flags != ZoneFlags::WholeBatch);
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
        if self.generation.spares_congested && !pushes && self.queues.is_congested() {
            met.spared += 1;
            return Fate::Keep;
        }
        match if anon { WritePage::Writes } else { self.writepage(scan, frame) } {
            WritePage::Writes if anon => return self.write_to_swap(cx, frame, met),
            WritePage::Writes => {
                self.pageout(frame);
                met.pageout += 1;
            }
            WritePage::Redirties => self.stat_add(frame, Stat::VmscanWrite),
            WritePage::IsMissing => return Fate::Activate,
        }
        Fate::Keep
    }

    /// `mm/vmscan.c:page_check_references`.
    #[inline]
    fn check_references(&mut self, cx: &mut Cx, frame: u32, anon: bool) -> References {
        let young = self.test_clear_young(cx, frame);
        let f = &mut self.frames[frame as usize];
        if self.generation.reference == ReferenceRule::SecondBit {
            return match young > 0 {
                true if set_refs(f) => References::Activate,
                true => References::Keep,
                false => References::Reclaim,
            };
        }
        let referenced = f.has(flag::REFERENCED);
        f.flags &= !flag::REFERENCED;
        if young > 0 {
            let at_once = match self.generation.reference {
                ReferenceRule::SecondRound | ReferenceRule::SwapBackedAtOnce => anon,
                ReferenceRule::OneRule | ReferenceRule::SecondBit => false,
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
    pub(super) fn may_write_file(&self, scan: &ScanControl, lruvec: usize, frame: u32) -> bool {
        match self.generation.file_write {
            FileWrite::Anyone => true,
            FileWrite::KswapdInNeed => scan.is_kswapd() && scan.priority < DEF_PRIORITY - 2,
            FileWrite::KswapdDirtyBatch => scan.is_kswapd() && self.lruvecs[lruvec].flags.dirty,
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
    #[inline(always)]
    pub(crate) fn evict(&mut self, cx: &mut Cx, frame: u32) {
        let f = self.frames[frame as usize];
        if let Some(evictions) = &mut self.evictions {
            evictions.evicted(f.slot);
        }
        let shadow = self.workingset_eviction(frame);
        if f.has(flag::ANON) {
            self.leave_to_swap(cx, frame, shadow);
        } else {
            self.entries[f.slot as usize] = entry::SHADOW | shadow;
            let shadow = self.keeps_shadows();
            self.update_node(cx, f.slot, Change::Removed { shadow });
        }
        self.forget_page(cx, frame);
    }

    #[inline(always)]
    pub(crate) fn stat_add(&mut self, frame: u32, stat: Stat) {
        let zone = self.frames[frame as usize].zone();
        self.zones[zone].stat[stat as usize] += 1;
    }

    #[inline(always)]
    pub(crate) fn stat_sub(&mut self, frame: u32, stat: Stat) {
        let zone = self.frames[frame as usize].zone();
        self.zones[zone].stat[stat as usize] -= 1;
    }
}
