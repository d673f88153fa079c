//! kswapd, one per node (`mm/vmscan.c`: `kswapd`, `balance_pgdat`).
//!
//! A boost of watermarks wakes it even if the node is balanced. It then frees as much as the boost, of pages
//! that need neither be written nor swapped out, and takes the boost back (5.0, 1c30844d2dfe).

use lotsfree_kernel_files::counters::vmstat;

use super::mmzone::{ReclaimFlags, Zone};
use super::page_alloc::{HIGHEST, MAX_RECLAIM_RETRIES};
use super::vmscan::{Reclaimer, ScanControl, ShrinkLruvec};
use super::{Cx, DEF_PRIORITY, Mm, SWAP_CLUSTER_MAX, TENTH, Wait, WaitChannel, WaitReason};
use crate::generation::{KswapdTarget, ZoneFlags};

/// What others see of a node's kswapd.
#[derive(Debug, Default)]
pub(crate) struct KswapdState {
    state: State,
    /// Whether it was woken since it last looked.
    woken: bool,
    failures: u32,
    /// The highest zone of which a caller has wanted pages since the last run (`kswapd_highest_zoneidx`).
    highest: Option<usize>,
    /// The highest zone that the last run reclaimed; `None` before the first.
    last: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Asleep until an allocation finds a zone below its low watermark.
    #[default]
    Asleep,
    /// Balanced, and about to sleep unless it is woken within HZ/10; the nap ends at this time.
    Napping(u64),
    Balancing,
}

/// A run of `balance_pgdat`.
#[derive(Debug)]
struct Run {
    scan: ScanControl,
    /// Pages that are still to be freed for boosts, and the boosts of the node's zones when the run began.
    boost: u64,
    boosts: Vec<u64>,
    shrink: ShrinkLruvec,
    /// The lruvec that is being shrunk, as an index into the node's; `None` before a pass begins.
    at: Option<usize>,
    /// The last zone of the pass, as an index into the node's zones.
    end_zone: usize,
    raise_priority: bool,
    total_scanned: u64,
    /// Pages freed in the whole run.
    freed: u64,
    /// Pages freed in this pass, or, through 3.10, since the priority was last 12.
    freed_in_pass: u64,
    zone_scanned: u64,
}

impl KswapdState {
    /// Whether it is reclaiming now.
    pub(crate) fn is_active(&self) -> bool {
        self.state == State::Balancing
    }
    /// Whether it is not asleep: it reclaims, or has been woken to do so.
    pub(crate) fn is_awake(&self) -> bool {
        self.is_active() || self.woken
    }
    /// Whether it has had sixteen fruitless runs in a row.
    pub(crate) fn gave_up(&self) -> bool {
        self.failures >= MAX_RECLAIM_RETRIES
    }
    /// The highest zone that its next run is to reclaim.
    fn highest(&self) -> usize {
        self.highest.or(self.last).unwrap_or(HIGHEST)
    }
}

/// kswapd of a node.
#[derive(Debug)]
pub struct Kswapd {
    pub(super) node: usize,
    run: Option<Run>,
}

impl Kswapd {
    /// kswapd of this node, asleep.
    pub fn new(node: usize) -> Self {
        Kswapd { node, run: None }
    }

    /// Runs for a slice. Returns the event or time that it waits for after that.
    pub fn poll(&mut self, mm: &mut Mm, cx: &mut Cx) -> Wait {
        mm.generation.policy.background(mm, cx, self)
    }

    /// Balances the node by its watermarks (`kswapd`).
    pub(super) fn run(&mut self, mm: &mut Mm, cx: &mut Cx) -> Wait {
        let node = self.node;
        loop {
            if let Some(run) = &mut self.run {
                if let Err(wait) = mm.balance_pgdat(cx, node, run) {
                    return wait;
                }
                mm.end_balance(cx, node, run);
                self.run = None;
            }
            match mm.kswapd_try_to_sleep(cx, node) {
                Ok(()) => self.run = Some(mm.begin_balance(node)),
                Err(wait) => return wait,
            }
        }
    }
}

impl Mm {
    /// `wakeup_kswapd`, for pages of zones up to `highest`.
    #[cold]
    pub(crate) fn wakeup_kswapd(&mut self, node: usize, highest: usize) {
        let kswapd = &mut self.nodes[node].kswapd;
        kswapd.highest = kswapd.highest.max(Some(highest));
        let deaf = kswapd.state == State::Balancing || kswapd.gave_up();
        if deaf || !self.generation.policy.wants_background(self, node, highest) {
            return;
        }
        let kswapd = &mut self.nodes[node].kswapd;
        if !kswapd.woken {
            kswapd.woken = true;
            self.woken.push(WaitChannel::Kswapd(node));
        }
    }

    /// Whether kswapd of a node was woken since this was last asked.
    pub(super) fn take_wakeup(&mut self, node: usize) -> bool {
        std::mem::take(&mut self.nodes[node].kswapd.woken)
    }

    /// Whether any kswapd is at work.
    pub fn kswapd_active(&self) -> bool {
        self.nodes.iter().any(|node| node.kswapd.state == State::Balancing || node.kswapd.woken)
    }

    /// Whether a zone is more than `gap` pages above its high watermark for requests that may use zones up to
    /// `class` (`zone_balanced`).
    fn zone_balanced(&self, zone: usize, gap: u64, class: usize) -> bool {
        let zone = &self.zones[zone];
        zone.managed == 0 || zone.passes(zone.high_wmark_pages() + gap, class)
    }

    /// Whether there is work for a sleeping kswapd in zones up to `highest`. Through 4.7 there is if a zone
    /// is low for requests of its own class, not counting the zone's reserve against requests that could
    /// have used a higher zone.
    pub(super) fn is_wanted(&self, node: usize, highest: usize) -> bool {
        if self.generation.lru_per_node {
            return !self.is_balanced(node, highest) || self.up_to(node, highest).any(|zone| zone.boost > 0);
        }
        let low = |zone: &Zone| zone.managed > 0 && !zone.passes(zone.low_wmark_pages(), 0);
        self.nodes[node].zones.iter().any(|&zone| low(&self.zones[zone]))
    }

    /// The zones of a node up to one.
    fn up_to(&self, node: usize, highest: usize) -> impl Iterator<Item = &Zone> {
        let zones = self.nodes[node].zones.iter().map(|&zone| &self.zones[zone]);
        zones.take_while(move |zone| zone.index() <= highest)
    }

    /// Whether requests that may use zones up to `highest` find enough (`mm/vmscan.c:pgdat_balanced`).
    fn is_balanced(&self, node: usize, highest: usize) -> bool {
        let zones = &self.nodes[node].zones;
        if self.generation.balanced_by_one {
            self.up_to(node, highest).any(|zone| self.zone_balanced(zone.number, 0, highest))
        } else {
            // Each zone is tested for requests of its own class. A zone that was scanned in vain is left out
            // (`zone_reclaimable`).
            zones.iter().all(|&zone| self.zone_balanced(zone, 0, 0) || self.is_unreclaimable(zone))
        }
    }

    /// Sleeps until there is work (`kswapd_try_to_sleep`).
    fn kswapd_try_to_sleep(&mut self, cx: &Cx, node: usize) -> Result<(), Wait> {
        let sleep = |until| Wait { channel: Some(WaitChannel::Kswapd(node)), until, why: WaitReason::Idle };
        let woken = self.take_wakeup(node);
        if let State::Napping(until) = self.nodes[node].kswapd.state {
            if woken {
                self.events[vmstat::kswapd_low_wmark_hit_quickly] += 1;
                return Ok(());
            }
            if cx.now() < until {
                return Err(sleep(Some(until)));
            }
            if !self.is_balanced(node, self.nodes[node].kswapd.highest()) {
                self.events[vmstat::kswapd_high_wmark_hit_quickly] += 1;
                return Ok(());
            }
            self.nodes[node].kswapd.state = State::Asleep;
        }
        if woken { Ok(()) } else { Err(sleep(None)) }
    }

    fn begin_balance(&mut self, node: usize) -> Run {
        self.events[vmstat::pageoutrun] += 1;
        let mut scan = ScanControl::new(Reclaimer::Kswapd, DEF_PRIORITY, 0);
        scan.may_writepage = self.tuning.laptop_mode == 0;
        scan.priority = self.generation.policy.first_priority(self, node);
        let kswapd = &mut self.nodes[node].kswapd;
        kswapd.state = State::Balancing;
        scan.highest = kswapd.highest();
        (kswapd.highest, kswapd.last) = (None, Some(scan.highest));
        let boosts: Vec<u64> = self.up_to(node, scan.highest).map(|zone| zone.boost).collect();
        Run {
            scan,
            boost: boosts.iter().sum(),
            boosts,
            shrink: ShrinkLruvec::default(),
            at: None,
            end_zone: 0,
            raise_priority: true,
            total_scanned: 0,
            freed: 0,
            freed_in_pass: 0,
            zone_scanned: 0,
        }
    }

    fn end_balance(&mut self, cx: &Cx, node: usize, run: &Run) {
        for which in self.lruvecs_of_node(node) {
            self.generation.policy.end_run(self, which);
            self.lruvecs[which].flags = ReclaimFlags::default();
        }
        let highest = run.scan.highest;
        let failed = run.boost > 0 || !self.is_balanced(node, highest);
        for (at, boost) in run.boosts.iter().enumerate() {
            let zone = &mut self.zones[self.nodes[node].zones[at]];
            zone.boost = zone.boost.saturating_sub(*boost);
        }
        let balanced = self.is_balanced(node, highest);
        let gives_up = self.generation.kswapd_failures && !self.generation.policy.forgets_failures(self);
        let kswapd = &mut self.nodes[node].kswapd;
        if run.freed > 0 {
            kswapd.failures = 0;
        } else if gives_up && failed {
            kswapd.failures += 1;
        }
        kswapd.woken = false;
        let failed = kswapd.gave_up();
        if failed {
            kswapd.state = State::Asleep;
        } else if balanced {
            kswapd.state = State::Napping(cx.now() + TENTH);
        } else if run.freed == 0 && !gives_up {
            // kswapd would otherwise go on for ever. The next allocation that finds too little memory wakes
            // it.
            kswapd.state = State::Napping(cx.now() + TENTH);
        } else {
            // The next run begins at once, until kswapd gives up.
            kswapd.state = State::Napping(cx.now());
        }
        self.woken.push(WaitChannel::Pfmemalloc(node));
        self.freed_news(node);
    }

    fn lruvecs_of_node(&self, node: usize) -> Vec<usize> {
        if self.generation.lru_per_node { vec![node] } else { self.nodes[node].zones.clone() }
    }

    /// `balance_pgdat`: runs until the node is balanced or nothing more can be done.
    fn balance_pgdat(&mut self, cx: &mut Cx, node: usize, run: &mut Run) -> Result<(), Wait> {
        loop {
            // At the beginning, which is also where a run of old kernels goes on after progress.
            let begins = run.scan.priority == DEF_PRIORITY
                && (self.generation.kswapd_restarts || run.total_scanned == 0);
            if self.tuning.pagecache_limit_mb > 0 && run.at.is_none() && begins {
                self.pagecache_limit(cx);
            }
            if run.at.is_none() && !self.begin_pass(cx, node, run) {
                return Ok(());
            }
            // The check of the zones takes time even where nothing can be scanned: through 3.10 kswapd may go
            // on for ever, and has to let others run.
            cx.spend(self.costs.scan * self.nodes[node].zones.len() as u64);
            self.shrink_zones(cx, node, run)?;
            run.at = None;
            if self.pfmemalloc_ok(node) {
                self.woken.push(WaitChannel::Pfmemalloc(node));
            }
            if !self.end_pass(node, run) {
                return Ok(());
            }
            if self.generation.kswapd_congestion_wait
                && run.total_scanned > 0
                && run.scan.priority < DEF_PRIORITY - 2
            {
                let zones = &self.nodes[node].zones[..=run.end_zone];
                let class = self.zones[zones[run.end_zone]].index();
                let under_min = |&zone: &usize| {
                    let wmark = self.zones[zone].min_wmark_pages();
                    !self.zones[zone].passes(wmark, class) && !self.is_unreclaimable(zone)
                };
                if zones.iter().any(under_min) {
                    self.events[vmstat::kswapd_skip_congestion_wait] += 1;
                } else {
                    return Err(self.congestion_wait(cx, TENTH));
                }
            }
            if cx.spent >= cx.slice {
                return Err(Wait::YIELD);
            }
        }
    }

    /// Looks for the highest zone that lacks pages; returns `false` if there is none, nor any boost.
    fn begin_pass(&mut self, cx: &mut Cx, node: usize, run: &mut Run) -> bool {
        if self.is_balanced(node, run.scan.highest) {
            if run.boost == 0 {
                return false;
            }
        } else if std::mem::take(&mut run.boost) > 0 {
            // What is missing goes before what was boosted.
            run.scan.priority = self.generation.policy.first_priority(self, node);
        }
        let zones = self.nodes[node].zones.clone();
        let hopeless = |mm: &Mm, zone| {
            !mm.generation.lru_per_node && run.scan.priority < DEF_PRIORITY && mm.is_unreclaimable(zone)
        };
        let mut end = None;
        for (index, &zone) in zones.iter().enumerate().rev() {
            if hopeless(self, zone) {
                continue;
            }
            self.generation.policy.age(self, cx, &run.scan, self.lruvec_of(zone));
            if self.generation.lru_per_node || !self.zone_balanced(zone, 0, 0) {
                end = Some(index);
                break;
            }
            let l = &mut self.lruvecs[zone];
            l.flags = ReclaimFlags { writeback: l.flags.writeback, ..ReclaimFlags::default() };
        }
        let Some(end) = end else { return false };
        if self.generation.lru_per_node {
            // For a boost, nothing is written or swapped out, and the priority does not go below 10.
            let least = DEF_PRIORITY - 2;
            let may_write = self.tuning.laptop_mode == 0 && run.boost == 0;
            run.scan.may_writepage = may_write || run.scan.priority < least;
            run.scan.may_swap = run.boost == 0;
        }
        run.end_zone = end;
        run.at = Some(0);
        run.raise_priority = !(run.boost > 0 && run.scan.priority == DEF_PRIORITY - 2);
        run.scan.scanned = 0;
        if !self.generation.kswapd_restarts {
            run.freed_in_pass = 0;
        }
        run.scan.reclaimed = 0;
        run.zone_scanned = 0;
        true
    }

    /// One pass over the lruvecs of the node up to the end zone.
    fn shrink_zones(&mut self, cx: &mut Cx, node: usize, run: &mut Run) -> Result<(), Wait> {
        let lruvecs = self.lruvecs_of_node(node);
        let last = if self.generation.lru_per_node { 0 } else { run.end_zone };
        while let Some(at) = run.at
            && at <= last
        {
            let which = lruvecs[at];
            if run.shrink.is_under_way() || self.wants_shrinking(node, which, run) {
                run.scan.to_reclaim = self.kswapd_target(node, which, run.scan.highest);
                let before = (run.scan.scanned, run.scan.reclaimed);
                let result = run.shrink.poll(self, cx, &mut run.scan, which);
                let (scanned, freed) = (run.scan.scanned - before.0, run.scan.reclaimed - before.1);
                run.total_scanned += scanned;
                run.freed += freed;
                run.freed_in_pass += freed;
                result?;
                // kswapd_shrink_zone
                if self.generation.zone_flags == ZoneFlags::PartOfBatch {
                    self.lruvecs[which].flags.writeback = false;
                }
                if self.generation.unreclaimable_mark && self.was_scanned_in_vain(which) {
                    self.zones[which].all_unreclaimable = true;
                }
                let met = if self.generation.lru_per_node {
                    run.scan.scanned.max(run.scan.reclaimed)
                } else {
                    run.scan.scanned
                };
                if met >= run.scan.to_reclaim {
                    run.raise_priority = false;
                }
            }
            run.at = Some(at + 1);
        }
        Ok(())
    }

    /// Whether an lruvec is shrunk in this pass. From 4.8 on it is; before, zones are that are not well above
    /// their high watermark.
    fn wants_shrinking(&self, node: usize, which: usize, run: &Run) -> bool {
        if self.generation.lru_per_node {
            return true;
        }
        if run.scan.priority < DEF_PRIORITY && self.is_unreclaimable(which) {
            return false;
        }
        let zone = &self.zones[which];
        let gap =
            if self.generation.balance_gap { zone.watermark.low.min(zone.managed.div_ceil(100)) } else { 0 };
        let class = self.zones[self.nodes[node].zones[run.end_zone]].index();
        !self.zone_balanced(which, gap, class)
    }

    fn kswapd_target(&self, node: usize, which: usize, highest: usize) -> u64 {
        match self.generation.kswapd_target {
            KswapdTarget::Unlimited => u64::MAX,
            KswapdTarget::ZoneHigh => self.zones[which].high_wmark_pages().max(SWAP_CLUSTER_MAX),
            KswapdTarget::NodeHigh => {
                self.up_to(node, highest).map(|zone| zone.high_wmark_pages().max(SWAP_CLUSTER_MAX)).sum()
            }
        }
    }

    /// Chooses the next priority after a pass; `false` ends the run.
    fn end_pass(&mut self, node: usize, run: &mut Run) -> bool {
        if run.boost > 0 {
            run.boost = run.boost.saturating_sub(run.freed_in_pass);
            if run.boost > 0 && run.freed_in_pass == 0 {
                return false;
            }
        }
        let balanced = self.is_balanced(node, run.scan.highest);
        if run.boost == 0 && (balanced || self.generation.policy.has_enough(self, node)) {
            return false;
        }
        if self.generation.kswapd_restarts {
            // After progress, or at the lowest priority, the run starts from the beginning, for as long as it
            // takes.
            if run.freed_in_pass >= SWAP_CLUSTER_MAX
                || run.scan.priority <= self.generation.kswapd_last_priority
            {
                let hopeless = run.freed_in_pass == 0;
                run.freed_in_pass = 0;
                run.scan.priority = DEF_PRIORITY;
                self.events[vmstat::pageoutrun] += u64::from(!hopeless);
                return !(hopeless
                    && self.lruvecs_of_node(node).iter().all(|&which| self.is_unreclaimable(which)));
            }
            run.scan.priority -= 1;
            return true;
        }
        if run.raise_priority || run.freed_in_pass == 0 {
            if run.scan.priority <= self.generation.kswapd_last_priority {
                return false;
            }
            run.scan.priority -= 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_workload::{How, Policy, RegionId};

    use super::super::filemap::Read;
    use super::super::frame::list;
    use super::super::readahead::RaState;
    use super::super::vmstat::{PGSCAN_KSWAPD, PGSTEAL_KSWAPD};
    use super::super::{Config, Fault, WaitReason};
    use super::*;
    use crate::Generation;

    /// On a machine of 256 MiB, reads a file until kswapd is woken. Returns the pages that kswapd then scans
    /// and frees until it sleeps, if it is interrupted every `slice` nanoseconds.
    fn run_of_kswapd(generation: Generation, slice: u64) -> (u64, u64) {
        let config = Config { instant_reads: true, ..Config::new(generation, vec![1 << 16]) };
        let mut mm = Mm::new(&config);
        let (process, task, number) = (mm.create_process(Policy::Local), mm.create_task(), mm.create_task());
        let file = mm.declare_file(1 << 16, true);
        let (mut cx, mut ra) = (Cx::new(task, 0, process, 0), RaState::default());
        for page in 0u64..1 << 16 {
            Read::new(page * 4096, 4096, How::Buffered).poll(&mut mm, &mut cx, file, &mut ra).unwrap();
            if mm.kswapd_active() {
                break;
            }
        }
        let free = |mm: &Mm| mm.zones.iter().map(|zone| zone.free).sum::<u64>();
        let (before, mut cx) = (free(&mm), Cx::new(number, 0, usize::MAX, 0));
        let mut kswapd = Kswapd::new(0);
        loop {
            cx.slice = slice;
            let wait = kswapd.poll(&mut mm, &mut cx);
            if wait.why == WaitReason::Idle {
                return (mm.events.sum(&PGSCAN_KSWAPD), free(&mm) - before);
            }
            (cx.start, cx.spent) = (cx.now(), 0);
        }
    }

    /// A machine of 256 MiB with 32 MiB of anonymous memory, which reads a file for as long as `goes_on`.
    fn reading(generation: Generation, goes_on: impl Fn(&Mm) -> bool) -> Mm {
        let swap_pages = 1 << 14;
        let config = Config { instant_reads: true, swap_pages, ..Config::new(generation, vec![1 << 16]) };
        let mut mm = Mm::new(&config);
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let (mut cx, mut ra) = (Cx::new(task, 0, process, 0), RaState::default());
        mm.map_anon(&mut cx, RegionId(0), 8192).unwrap();
        for page in 0..8192 {
            Fault::new(RegionId(0), page, true).poll(&mut mm, &mut cx).unwrap();
        }
        let file = mm.declare_file(1 << 16, true);
        for page in 0u64..1 << 16 {
            if !goes_on(&mm) {
                break;
            }
            Read::new(page * 4096, 4096, How::Buffered).poll(&mut mm, &mut cx, file, &mut ra).unwrap();
        }
        mm
    }

    /// Boosts ZONE_DMA32 of a balanced machine by a pageblock. Returns the machine after kswapd has run, and
    /// how many pages that has freed.
    fn boosted(kernel: &str) -> (Mm, u64) {
        let has_room = |mm: &Mm| mm.zones[1].passes(mm.zones[1].high_wmark_pages() + 1100, HIGHEST);
        let mut mm = reading(Generation::named(kernel).unwrap(), has_room);
        assert!(!mm.kswapd_active(), "{kernel}: the node is balanced");
        (mm.zones[1].boost, mm.zones[1].boosted) = (512, true);
        mm.wake_for_boost(1);
        assert!(mm.kswapd_active(), "{kernel}: a boost wakes it all the same");
        let task = mm.create_task();
        let mut cx = Cx::new(task, 0, usize::MAX, 0);
        let mut kswapd = Kswapd::new(0);
        while kswapd.poll(&mut mm, &mut cx).why != WaitReason::Idle {
            (cx.start, cx.spent) = (cx.now(), 0);
        }
        assert_eq!(mm.check(), Ok(()));
        let freed = mm.events.sum(&PGSTEAL_KSWAPD);
        (mm, freed)
    }

    #[test]
    fn a_boost_is_reclaimed_from_clean_files_and_taken_back() {
        for kernel in ["linux-5.4", "linux-6.1", "linux-6.12"] {
            let (mm, freed) = boosted(kernel);
            assert_eq!(mm.zones[1].boost, 0, "{kernel}");
            // A pass goes on until it has scanned what it aims at, which may be more than the boost.
            let target: u64 = mm.zones.iter().map(Zone::high_wmark_pages).sum();
            assert!((512..=512 + target).contains(&freed), "{kernel}: {freed}, {target}");
            assert_eq!(mm.events[vmstat::pswpout], 0, "{kernel}");
        }
        // The multi-generational LRU of 6.12 frees nothing where it may not write.
        let (mm, freed) = boosted("linux-6.12+mglru");
        assert_eq!((mm.zones[1].boost, freed), (0, 0));
    }

    #[test]
    fn sixteen_fruitless_runs_end_kswapd_but_not_with_generations_on_6_8() {
        for (kernel, gives_up) in
            [("linux-6.8", true), ("linux-6.8+mglru", false), ("linux-6.12+mglru", true)]
        {
            // Without a free page the node is never balanced.
            let mut mm = reading(Generation::named(kernel).unwrap(), |_| false);
            mm.zones.iter_mut().for_each(|zone| zone.free = 0);
            let cx = Cx::new(0, 0, usize::MAX, 0);
            for _ in 0..16 {
                assert!(!mm.nodes[0].kswapd.gave_up(), "{kernel}");
                let run = mm.begin_balance(0);
                mm.end_balance(&cx, 0, &run);
            }
            assert_eq!(mm.nodes[0].kswapd.gave_up(), gives_up, "{kernel}");
        }
    }

    #[test]
    fn pages_of_higher_zones_are_skipped_for_a_low_one() {
        // Files come to ZONE_DMA when ZONE_DMA32 is below its low mark.
        let mut mm = reading(Generation::linux_6_1(), |mm| mm.zones[0].lru[list::INACTIVE_FILE] < 40);
        let mut scan = ScanControl::new(Reclaimer::Kswapd, DEF_PRIORITY, 32);
        scan.highest = 0;
        let batch = mm.isolate_lru_pages(&scan, 0, list::INACTIVE_FILE, 32);
        let zones: Vec<usize> =
            (0..batch.len()).map(|at| mm.frames[batch.frame(at) as usize].zone()).collect();
        assert_eq!(zones, [0; 32]);
        let skipped = mm.events[vmstat::pgskip_dma32];
        assert!(skipped > 20_000, "{skipped}");
        // They are at the head now, so that they are not in the way of the next batch.
        let batch = mm.isolate_lru_pages(&scan, 0, list::INACTIVE_FILE, 8);
        assert_eq!((batch.len(), mm.events[vmstat::pgskip_dma32]), (8, skipped));
    }

    #[test]
    fn a_pass_that_was_interrupted_is_finished() {
        for kernel in
            ["linux-2.6.32-rhel6", "linux-3.10", "linux-4.4", "linux-6.1", "linux-6.12", "linux-6.12+mglru"]
        {
            let of = |slice| run_of_kswapd(Generation::named(kernel).unwrap(), slice);
            let at_once = of(u64::MAX);
            assert!(at_once.1 > 32, "{kernel}: {at_once:?}");
            assert_eq!(of(10_000), at_once, "{kernel}");
        }
    }
}
