//! Zone reclaim: an allocation reclaims in a zone that it finds short, before it goes to another node
//! (`mm/vmscan.c`: `zone_reclaim`, from 4.8 on `node_reclaim`).
//!
//! It scans the file and anonymous lists of the zone, or of the node from 4.8 on. Slab is not modelled: where
//! the kernel would shrink slab alone, nothing is freed.
//!
//! The kernel lets one task at a time into a zone's reclaim (not in RHEL 6); others go on to the next zone.
//! In the model a call is atomic and never sleeps. A task on another CPU goes on to the next zone if its own
//! time is between begin and end of the call. Tasks on the same CPU, which in the kernel can meet where the
//! call is preempted, never do.

use lotsfree_kernel_files::counters::vmstat;

use super::frame::list;
use super::mmzone::Zone;
use super::vmscan::{Reclaimer, ScanControl, ShrinkLruvec};
use super::vmstat::Stat;
use super::{Cx, Mm, SWAP_CLUSTER_MAX};

/// Bits of `vm.zone_reclaim_mode`; the lowest bit only turns zone reclaim on.
const WRITE: u64 = 2;
const UNMAP: u64 = 4;
/// `ZONE_RECLAIM_PRIORITY`, `NODE_RECLAIM_PRIORITY`: a sixteenth of each list first.
const PRIORITY: u8 = 4;

/// The result of zone reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeReclaim {
    /// Nothing was scanned, because the zone is not for this caller to reclaim (`NODE_RECLAIM_NOSCAN`).
    NoScan,
    /// Nothing was scanned, because there is too little to reclaim (`NODE_RECLAIM_FULL`).
    Full,
    /// The zone was scanned in vain (`NODE_RECLAIM_SOME`).
    Some,
    /// Pages were freed (`NODE_RECLAIM_SUCCESS`).
    Success,
}

impl Mm {
    /// Reclaims in `zone`, or from 4.8 on in its node, for one page (`get_page_from_freelist`). The caller
    /// tests the zone's watermark again.
    pub(crate) fn node_reclaim(&mut self, cx: &mut Cx, zone: usize) -> NodeReclaim {
        let lruvec = self.lruvec_of(zone);
        let min_unmapped = self.lruvec_sum(lruvec, |zone| zone.min_unmapped);
        let min_slab = self.lruvec_sum(lruvec, |zone| zone.min_slab);
        let slab = self.lruvec_sum(lruvec, |zone| zone.stat[Stat::SlabReclaimable as usize]);
        let cache = self.reclaimable_cache(lruvec);
        let given_up = !self.generation.kswapd_failures && self.is_unreclaimable(lruvec);
        if (cache <= min_unmapped && slab <= min_slab) || given_up {
            return NodeReclaim::Full;
        }
        let node = self.zones[zone].node;
        if self.has_cpus(node) && self.node_of_cpu(cx.cpu) != node {
            return NodeReclaim::NoScan;
        }
        let now = self.lru_locking.now_ns;
        let flag = &mut self.lruvecs[lruvec].reclaim_locked;
        flag.forget(now);
        if self.generation.zone_reclaim_lock && flag.is_held(cx.cpu, cx.now()) {
            return NodeReclaim::NoScan;
        }
        let mut scan = ScanControl::new(Reclaimer::Zone, PRIORITY, SWAP_CLUSTER_MAX);
        let mut shrink = ShrinkLruvec::default();
        scan.may_writepage = self.zone_reclaim_mode & WRITE != 0;
        scan.may_unmap = self.zone_reclaim_mode & UNMAP != 0;
        let before = cx.spent;
        if cache > min_unmapped {
            for priority in (0..=PRIORITY).rev() {
                // Without the lock several tasks may reclaim at once: RHEL 6 stops when fewer pages are left
                // than one task aims at.
                if !self.generation.zone_reclaim_lock && self.reclaimable_cache(lruvec) < scan.to_reclaim {
                    break;
                }
                scan.priority = priority;
                self.shrink_without_sleep(cx, &mut shrink, &mut scan, lruvec);
                if scan.reclaimed > 0 {
                    break;
                }
            }
        }
        cx.reclaim += cx.spent - before;
        if self.generation.zone_reclaim_lock && self.cpus > 1 {
            let flag = &mut self.lruvecs[lruvec].reclaim_locked;
            flag.hold(cx.cpu, cx.start + before, cx.now());
        }
        if scan.reclaimed > 0 {
            self.events[vmstat::zone_reclaim_success] += 1;
            NodeReclaim::Success
        } else {
            self.events[vmstat::zone_reclaim_failed] += 1;
            NodeReclaim::Some
        }
    }

    /// Runs one pass to its end: where it would sleep, it goes on. A pass that no longer scans anything is
    /// abandoned.
    fn shrink_without_sleep(
        &mut self,
        cx: &mut Cx,
        shrink: &mut ShrinkLruvec,
        scan: &mut ScanControl,
        lruvec: usize,
    ) {
        loop {
            let scanned = scan.scanned;
            if shrink.poll(self, cx, scan, lruvec).is_ok() || scan.scanned == scanned {
                return self.end_plug(cx.task);
            }
        }
    }

    /// Pages of the file cache that the mode allows reclaim to take (`zone_pagecache_reclaimable`,
    /// `node_pagecache_reclaimable`).
    fn reclaimable_cache(&self, lruvec: usize) -> u64 {
        let sum = |what: fn(&Zone) -> u64| self.lruvec_sum(lruvec, what);
        let cache = if self.zone_reclaim_mode & UNMAP != 0 {
            sum(|zone| zone.stat[Stat::FilePages as usize] + zone.stat[Stat::SwapCached as usize])
        } else {
            let file = sum(|zone| zone.lru[list::INACTIVE_FILE] + zone.lru[list::ACTIVE_FILE]);
            file.saturating_sub(sum(|zone| zone.stat[Stat::Mapped as usize]))
        };
        let written = self.zone_reclaim_mode & WRITE != 0;
        let dirty = if written { 0 } else { sum(|zone| zone.stat[Stat::Dirty as usize]) };
        cache.saturating_sub(dirty)
    }

    /// Whether a node has CPUs (`N_CPU`).
    fn has_cpus(&self, node: usize) -> bool {
        (0..self.cpus).any(|cpu| self.node_of_cpu(cpu) == node)
    }
}
