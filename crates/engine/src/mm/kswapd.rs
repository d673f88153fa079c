//! kswapd, one per node (`mm/vmscan.c`: `kswapd`, `balance_pgdat`).
//!
//! Watermarks are never boosted here (`Zone::boost` is always 0, and `tuning.rs` refuses a
//! `vm.watermark_boost_factor` above 0; a run records the kernel's default, which acts on nothing). Therefore
//! there is no boosted reclaim and no boost to take back.

use lotsfree_kernel_files::counters::vmstat;

use super::mmzone::{ReclaimFlags, Zone};
use super::page_alloc::{HIGHEST, MAX_RECLAIM_RETRIES};
use super::vmscan::{Reclaimer, ScanControl, ShrinkLruvec};
use super::{Cx, DEF_PRIORITY, Mm, SWAP_CLUSTER_MAX, TENTH, Wait, WaitChannel, WaitReason};
use crate::generation::KswapdTarget;

/// What others see of a node's kswapd.
#[derive(Debug, Default)]
pub(crate) struct KswapdState {
    state: State,
    /// Whether it was woken since it last looked.
    woken: bool,
    failures: u32,
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
    /// Whether it has had sixteen fruitless runs in a row.
    pub(crate) fn gave_up(&self) -> bool {
        self.failures >= MAX_RECLAIM_RETRIES
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
    /// `wakeup_kswapd`
    pub(crate) fn wakeup_kswapd(&mut self, node: usize) {
        let awake = self.nodes[node].kswapd.state == State::Balancing;
        if awake || self.nodes[node].kswapd.gave_up() || !self.generation.policy.wants_background(self, node)
        {
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

    /// Whether there is work for a sleeping kswapd. Through 4.7 there is if a zone is low for requests of its
    /// own class, not counting the zone's reserve against requests that could have used a higher zone.
    pub(super) fn is_wanted(&self, node: usize) -> bool {
        if self.generation.lru_per_node {
            return !self.is_balanced(node);
        }
        let low = |zone: &Zone| zone.managed > 0 && !zone.passes(zone.low_wmark_pages(), 0);
        self.nodes[node].zones.iter().any(|&zone| low(&self.zones[zone]))
    }

    /// `mm/vmscan.c:pgdat_balanced`.
    fn is_balanced(&self, node: usize) -> bool {
        let zones = &self.nodes[node].zones;
        if self.generation.balanced_by_one {
            zones.iter().any(|&zone| self.zone_balanced(zone, 0, HIGHEST))
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
            if !self.is_balanced(node) {
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
        self.nodes[node].kswapd.state = State::Balancing;
        Run {
            scan,
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
        let balanced = self.is_balanced(node);
        let kswapd = &mut self.nodes[node].kswapd;
        if run.freed > 0 {
            kswapd.failures = 0;
        } else if self.generation.kswapd_failures && !balanced {
            kswapd.failures += 1;
        }
        kswapd.woken = false;
        let failed = kswapd.gave_up();
        if failed {
            kswapd.state = State::Asleep;
        } else if balanced {
            kswapd.state = State::Napping(cx.now() + TENTH);
        } else if run.freed == 0 && !self.generation.kswapd_failures {
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
            if self.tuning.pagecache_limit_mb > 0 {
                self.pagecache_limit_kswapd(cx);
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

    /// Looks for the highest zone that lacks pages; returns `false` if there is none.
    fn begin_pass(&mut self, cx: &mut Cx, node: usize, run: &mut Run) -> bool {
        if self.is_balanced(node) {
            return false;
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
            let class = if self.generation.lru_per_node { HIGHEST } else { 0 };
            if !self.zone_balanced(zone, 0, class) {
                end = Some(index);
                break;
            }
            if !self.generation.lru_per_node {
                let l = &mut self.lruvecs[zone];
                l.flags = ReclaimFlags { writeback: l.flags.writeback, ..ReclaimFlags::default() };
            }
        }
        let Some(end) = end else { return false };
        run.end_zone = end;
        run.at = Some(0);
        run.raise_priority = true;
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
                run.scan.to_reclaim = self.kswapd_target(node, which);
                let before = (run.scan.scanned, run.scan.reclaimed);
                let result = run.shrink.poll(self, cx, &mut run.scan, which);
                let (scanned, freed) = (run.scan.scanned - before.0, run.scan.reclaimed - before.1);
                run.total_scanned += scanned;
                run.freed += freed;
                run.freed_in_pass += freed;
                result?;
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

    /// Whether an lruvec is shrunk in this pass. From 4.8 on it is while the node is not balanced; before,
    /// zones are that are not well above their high watermark.
    fn wants_shrinking(&self, node: usize, which: usize, run: &Run) -> bool {
        if self.generation.lru_per_node {
            return !self.is_balanced(node);
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

    fn kswapd_target(&self, node: usize, which: usize) -> u64 {
        match self.generation.kswapd_target {
            KswapdTarget::Unlimited => u64::MAX,
            KswapdTarget::ZoneHigh => self.zones[which].high_wmark_pages().max(SWAP_CLUSTER_MAX),
            KswapdTarget::NodeHigh => {
                self.node_sum(node, |zone| zone.high_wmark_pages().max(SWAP_CLUSTER_MAX))
            }
        }
    }

    /// Chooses the next priority after a pass; `false` ends the run.
    fn end_pass(&mut self, node: usize, run: &mut Run) -> bool {
        if self.is_balanced(node) || self.generation.policy.has_enough(self, node) {
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
    use lotsfree_workload::{How, Policy};

    use super::super::filemap::Read;
    use super::super::readahead::RaState;
    use super::super::vmstat::PGSCAN_KSWAPD;
    use super::super::{Config, WaitReason};
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
