//! Per-CPU lists: free pages of a zone that a CPU keeps for itself (`per_cpu_pages`, `mm/page_alloc.c`).
//!
//! Their pages are not in `NR_FREE_PAGES`. Pages that move between the lists and the zone therefore move free
//! memory relative to the zone's watermarks: 31 or 63 pages at a time, and more where a CPU only frees (5.14
//! on) or only allocates (6.7 on, where the lists' length adapts as well).

use lotsfree_formulas::pcp::PcpRules;
use lotsfree_kernel_files::counters::vmstat;

use super::frame::{Frames, flag};
use super::free_area::{MigrateType, Request, TYPES};
use super::mmzone::Zone;
use super::page_alloc::HIGHEST;
use super::vmstat::PGALLOC;
use super::{Cx, Mm};
use crate::generation::Generation;

/// `CONFIG_PCP_BATCH_SCALE_MAX`: the most doublings of a batch.
const SCALE_MAX: u32 = 5;
/// Refreshes of the counters during which a list of another node's pages is not used before it is drained.
const EXPIRE: u8 = 3;

/// `struct per_cpu_pages`
#[derive(Clone, Debug, Default)]
pub(crate) struct PerCpuPages {
    /// Frame numbers by migrate type; the last frame is allocated next, the first goes back to the zone
    /// first.
    pub(super) lists: [Vec<u32>; TYPES],
    /// Pages on all lists.
    pub(super) count: u64,
    /// `high`, where the length adapts (6.7 on).
    pub(crate) high: u64,
    /// `free_factor`: doublings of the number of pages given back (5.14 to 6.6). `free_count`: pages freed in
    /// a row (6.7 on).
    freed: u64,
    /// `alloc_factor`: doublings of the number of pages fetched (6.7 on).
    alloc_factor: u32,
    /// Refreshes until a list of another node's pages is drained.
    expire: u8,
}

impl Generation {
    /// A request for single pages of a type.
    pub(super) fn request(&self, kind: MigrateType) -> Request {
        Request { kind, order: 0, fallback: self.fallback, nofragment: false, wakes: true }
    }
}

impl Generation {
    /// The type of a request of the kernel's own: where pages are not grouped, all are of the type that users
    /// ask for.
    pub(super) fn grouped(&self, kind: MigrateType) -> MigrateType {
        if self.groups_by_mobility { kind } else { MigrateType::Movable }
    }
}

impl Zone {
    /// Takes a page from a CPU's list, which is refilled from the free lists (`rmqueue_pcplist`).
    #[inline(always)]
    pub(super) fn take_page(
        &mut self,
        frames: &mut Frames,
        rules: &PcpRules,
        cpu: usize,
        request: Request,
    ) -> Option<u32> {
        if self.pcp[cpu].lists[request.kind as usize].is_empty() {
            self.refill(frames, rules, cpu, request);
        }
        let pcp = &mut self.pcp[cpu];
        let frame = pcp.lists[request.kind as usize].pop()?;
        pcp.count -= 1;
        pcp.freed >>= 1;
        pcp.expire = EXPIRE;
        self.alloc_batch -= 1;
        let f = &mut frames[frame as usize];
        debug_assert_eq!(f.flags & !flag::ZONE, 0, "nobody uses a free frame");
        f.flags |= flag::USED;
        Some(frame)
    }

    /// Refills an empty list. Pages are given out in the order in which they come.
    #[cold]
    fn refill(&mut self, frames: &mut Frames, rules: &PcpRules, cpu: usize, request: Request) {
        let count = self.nr_pcp_alloc(rules, cpu);
        let mut pages = std::mem::take(&mut self.pcp[cpu].lists[request.kind as usize]);
        self.rmqueue_bulk(frames, request, count, &mut pages);
        pages.reverse();
        let pcp = &mut self.pcp[cpu];
        pcp.count += pages.len() as u64;
        pcp.lists[request.kind as usize] = pages;
    }

    /// Adds pages that a CPU holds back from boot on. Only the kernel's own requests get them.
    pub(super) fn boot_pageset(
        &mut self,
        frames: &mut Frames,
        generation: &Generation,
        cpu: usize,
        count: u64,
    ) {
        let request = generation.request(generation.grouped(MigrateType::Unmovable));
        let kind = request.kind;
        let mut pages = std::mem::take(&mut self.pcp[cpu].lists[kind as usize]);
        let before = pages.len();
        self.rmqueue_bulk(frames, request, count, &mut pages);
        let pcp = &mut self.pcp[cpu];
        pcp.count += (pages.len() - before) as u64;
        pcp.lists[kind as usize] = pages;
        pcp.high = pcp.high.max(pcp.count);
        pcp.expire = EXPIRE;
    }

    /// The number of pages with which an empty list is refilled (`nr_pcp_alloc`).
    fn nr_pcp_alloc(&mut self, rules: &PcpRules, cpu: usize) -> u64 {
        let batch = self.pcp_batch.max(1);
        if !rules.adapts {
            return batch;
        }
        let pcp = &mut self.pcp[cpu];
        pcp.high = pcp.high.clamp(self.pcp_high, self.pcp_high_max);
        if pcp.high < batch {
            return 1;
        }
        let wanted = batch << pcp.alloc_factor;
        if self.pcp_high < self.pcp_high_max && !self.below_high {
            pcp.high = (pcp.high + wanted).min(self.pcp_high_max);
        }
        let most = pcp.high.saturating_sub(pcp.count + batch).max(batch);
        if wanted <= most && pcp.alloc_factor < SCALE_MAX {
            pcp.alloc_factor += 1;
        }
        wanted.min(most)
    }

    /// Adds a page to a CPU's list, which gives pages back when it is full (`free_unref_page_commit`).
    /// `reclaim` says that kswapd is at work (`ZONE_RECLAIM_ACTIVE`).
    #[inline]
    fn free_page(&mut self, frames: &mut Frames, rules: &PcpRules, cpu: usize, frame: u32, reclaim: bool) {
        let batch = self.pcp_batch.max(1);
        let kind = frames.migrate_type(frame);
        let pcp = &mut self.pcp[cpu];
        pcp.lists[kind as usize].push(frame);
        pcp.count += 1;
        pcp.expire = EXPIRE;
        let high = if rules.adapts {
            pcp.alloc_factor >>= 1;
            pcp.freed += u64::from(pcp.freed < batch << SCALE_MAX);
            self.nr_pcp_high(cpu, reclaim)
        } else if reclaim {
            self.pcp_high.min(4 * self.pcp_batch)
        } else {
            self.pcp_high
        };
        if self.pcp[cpu].count >= high.max(1) {
            let count = self.nr_pcp_free(rules, cpu, high);
            self.give_back(frames, cpu, count, kind);
            if self.below_high && self.passes(self.high_wmark_pages(), HIGHEST) {
                self.below_high = false;
            }
        }
    }

    /// The length at which a list that adapts is full (`nr_pcp_high`).
    fn nr_pcp_high(&mut self, cpu: usize, reclaim: bool) -> u64 {
        let (least, most, batch) = (self.pcp_high, self.pcp_high_max, self.pcp_batch);
        let pcp = &mut self.pcp[cpu];
        let high = pcp.high.clamp(least, most);
        let shorter = high.saturating_sub(pcp.freed.max(batch)).max(least);
        let count = pcp.count;
        pcp.high = high;
        if reclaim {
            pcp.high = shorter;
            return shorter.min(4 * batch);
        }
        if least == most {
            return high;
        }
        if self.below_high {
            pcp.high = shorter;
            return count.max(least);
        }
        if count >= high && high < pcp.freed + batch {
            pcp.high = (pcp.freed + batch).clamp(least, most);
        }
        high
    }

    /// The number of pages that a full list gives back (`nr_pcp_free`).
    fn nr_pcp_free(&mut self, rules: &PcpRules, cpu: usize, high: u64) -> u64 {
        let batch = self.pcp_batch.max(1);
        let pcp = &mut self.pcp[cpu];
        if !rules.high_from_mark {
            return batch;
        }
        if high < batch {
            return 1;
        }
        let most = (high - batch).max(batch);
        if rules.adapts {
            return pcp.freed.clamp(batch, most);
        }
        let wanted = batch << pcp.freed;
        pcp.freed += u64::from(wanted < most);
        wanted.clamp(batch, most)
    }

    /// Gives the oldest pages back to the zone (`free_pcppages_bulk`): from the list of a type, then from the
    /// next.
    #[cold]
    fn give_back(&mut self, frames: &mut Frames, cpu: usize, count: u64, first: MigrateType) {
        let mut left = count as usize;
        for kind in MigrateType::ALL.into_iter().cycle().skip(first as usize).take(TYPES) {
            let list = &mut self.pcp[cpu].lists[kind as usize];
            let part = left.min(list.len());
            for frame in list.drain(..part) {
                self.area.free_one(frames, frame, 0, kind);
            }
            left -= part;
        }
        let given = count - left as u64;
        self.pcp[cpu].count -= given;
        self.free += given;
        self.pages_scanned = 0;
        self.all_unreclaimable = false;
    }

    /// Lets a list that grew become shorter (6.7 on).
    fn decay_pcp_high(&mut self, frames: &mut Frames, cpu: usize) {
        let (least, batch) = (self.pcp_high, self.pcp_batch.max(1));
        let pcp = &mut self.pcp[cpu];
        let count = pcp.count;
        let floor = count.saturating_sub(batch << SCALE_MAX).max(least);
        if pcp.high > least {
            pcp.high = floor.max(pcp.high - pcp.high / 8);
        }
        let excess = count.saturating_sub(pcp.high.max(least));
        if excess > 0 {
            self.give_back(frames, cpu, excess, MigrateType::Unmovable);
        }
    }

    /// Lets a list that was not used for a while give back a batch.
    fn drain_zone_pages(&mut self, frames: &mut Frames, cpu: usize) {
        let pcp = &mut self.pcp[cpu];
        if pcp.expire == 0 || pcp.count == 0 {
            return;
        }
        pcp.expire -= 1;
        if pcp.expire == 0 {
            // Draining changes the zone's counters, which counts as use.
            pcp.expire = EXPIRE;
            self.give_back(frames, cpu, self.pcp_batch.max(1), MigrateType::Unmovable);
        }
    }
}

impl Mm {
    /// Takes a page of a zone for a CPU.
    #[inline(always)]
    pub(super) fn take_page(&mut self, cx: &Cx, index: usize, request: Request) -> Option<u32> {
        let cpu = self.list_of_cpu(cx.cpu);
        let zone = &mut self.zones[index];
        let frame = zone.take_page(&mut self.frames, &self.generation.pcp, cpu, request)?;
        self.events[PGALLOC[zone.index()]] += 1;
        Some(frame)
    }

    /// Frees a page to the CPU's list.
    #[inline]
    pub(crate) fn free_page(&mut self, cpu: usize, frame: u32) {
        let cpu = self.list_of_cpu(cpu);
        self.events[vmstat::pgfree] += 1;
        let f = &mut self.frames[frame as usize];
        debug_assert!(f.list() == 0 && f.has(flag::USED));
        let index = f.zone();
        f.flags &= flag::ZONE;
        let (zone, rules) = (&mut self.zones[index], &self.generation.pcp);
        let reclaim = rules.high_from_mark && self.nodes[zone.node].kswapd.is_active();
        zone.free_page(&mut self.frames, rules, cpu, frame, reclaim);
    }

    /// Frees a block, of which all frames are in use and on no list. One of several pages goes to the zone at
    /// once.
    pub(super) fn free_pages(&mut self, cpu: usize, frame: u32, order: usize) {
        if order == 0 {
            return self.free_page(cpu, frame);
        }
        for frame in frame..frame + (1 << order) {
            self.frames[frame as usize].flags &= flag::ZONE;
        }
        self.events[vmstat::pgfree] += 1 << order;
        let zone = &mut self.zones[self.frames[frame as usize].zone()];
        zone.free_one_page(&mut self.frames, frame, order);
    }

    /// Gives all pages of all lists back (`drain_all_pages`).
    pub(crate) fn drain_all(&mut self) {
        for zone in &mut self.zones {
            for cpu in 0..self.cpus {
                let count = zone.pcp[cpu].count;
                if count > 0 {
                    zone.give_back(&mut self.frames, cpu, count, MigrateType::Unmovable);
                }
            }
        }
    }

    /// Maintains the lists of all CPUs every `vm.stat_interval` (`refresh_cpu_vm_stats`, `mm/vmstat.c`):
    /// lists that grew become shorter (`decay_pcp_high`, 6.7 on), and lists that hold pages of another node
    /// and were not used for a while give back a batch (`drain_zone_pages`).
    pub(crate) fn refresh_cpu_vm_stats(&mut self) {
        for index in 0..self.zones.len() {
            for cpu in 0..self.cpus {
                let local = self.node_of_cpu(cpu) == self.zones[index].node;
                let zone = &mut self.zones[index];
                if self.generation.pcp.adapts {
                    zone.decay_pcp_high(&mut self.frames, cpu);
                }
                if !local {
                    zone.drain_zone_pages(&mut self.frames, cpu);
                }
            }
        }
    }

    #[inline]
    pub(super) fn list_of_cpu(&self, cpu: usize) -> usize {
        if cpu < self.cpus { cpu } else { cpu % self.cpus }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::Generation;
    use crate::mm::Config;

    fn machine(kernel: &str, nodes: &[u64]) -> Mm {
        let generation = Generation::named(kernel).expect("known");
        Mm::new(&Config { cpus: nodes.len() as u32, ..Config::new(generation, nodes.to_vec()) })
    }

    /// Takes `count` pages of a zone on a CPU. Returns them, and by how many pages the zone's free memory
    /// shrank each time.
    fn take(mm: &mut Mm, zone: usize, cpu: usize, count: u32) -> (Vec<u32>, Vec<u64>) {
        let cx = Cx::new(0, cpu, 0, 0);
        let mut steps = Vec::new();
        let take = |_| {
            let before = mm.zones[zone].free;
            let request = mm.generation.request(MigrateType::Movable);
            let frame = mm.take_page(&cx, zone, request).expect("there are enough");
            steps.extend(Some(before - mm.zones[zone].free).filter(|step| *step > 0));
            frame
        };
        let frames = (0..count).map(take).collect();
        (frames, steps)
    }

    /// Frees pages on a CPU. Returns by how many pages the zone's free memory grew each time.
    fn free(mm: &mut Mm, zone: usize, cpu: usize, frames: &[u32]) -> Vec<u64> {
        let mut steps = Vec::new();
        for &frame in frames {
            let before = mm.zones[zone].free;
            mm.free_page(cpu, frame);
            steps.extend(Some(mm.zones[zone].free - before).filter(|step| *step > 0));
        }
        steps
    }

    #[test]
    fn a_cpu_that_only_frees_gives_back_twice_as_much_each_time() {
        let mut mm = machine("linux-6.1", &[1 << 18]);
        let zone = mm.zones.len() - 1;
        let (frames, fetched) = take(&mut mm, zone, 0, 63_000);
        assert!(fetched.iter().all(|&step| step == 63), "{fetched:?}");
        let most = mm.zones[zone].pcp_high - 63;
        let steps = free(&mut mm, zone, 0, &frames);
        assert_eq!(steps[..4], [63, 126, 252, 504]);
        assert!(steps.iter().all(|&step| step <= most), "{steps:?}, at most {most}");
        assert_eq!(mm.check(), Ok(()));

        let mut old = machine("linux-4.4", &[1 << 18]);
        let zone = old.zones.len() - 1;
        let (frames, _) = take(&mut old, zone, 0, 3100);
        let steps = free(&mut old, zone, 0, &frames);
        assert!(steps.len() > 50 && steps.iter().all(|&step| step == 31), "{steps:?}");
    }

    #[test]
    fn lists_adapt_to_a_cpu_that_only_allocates_and_shrink_when_it_stops() {
        let mut mm = machine("linux-6.12", &[1 << 18]);
        let zone = mm.zones.len() - 1;
        let (_, steps) = take(&mut mm, zone, 0, 20_000);
        assert_eq!(steps[..6], [63, 126, 252, 504, 1008, 2016]);
        assert!(steps[6..].iter().all(|&step| step == 2016), "{steps:?}");
        let grown = mm.zones[zone].pcp[0].high;
        assert_eq!(grown, mm.zones[zone].pcp_high_max, "as long as the zone is above its high mark");
        mm.refresh_cpu_vm_stats();
        assert_eq!(mm.zones[zone].pcp[0].high, grown - grown / 8);
        (0..40).for_each(|_| mm.refresh_cpu_vm_stats());
        assert_eq!(mm.zones[zone].pcp[0].high, mm.zones[zone].pcp_high);

        // Below the high mark the lists do not grow.
        mm.zones[zone].below_high = true;
        take(&mut mm, zone, 0, 20_000);
        assert_eq!(mm.zones[zone].pcp[0].high, mm.zones[zone].pcp_high);
    }

    #[test]
    fn pages_of_another_node_go_back_batch_by_batch() {
        for kernel in ["linux-3.10", "linux-6.1", "linux-6.12"] {
            let mut mm = machine(kernel, &[1 << 17, 1 << 17]);
            let far = mm.zones.len() - 1;
            for cpu in [0, 1] {
                mm.zones[far].boot_pageset(&mut mm.frames, &mm.generation, cpu, 100);
            }
            let free = mm.zones[far].free;
            let batch = mm.zones[far].pcp_batch;
            let given_back: Vec<u64> = (0..9)
                .map(|_| {
                    mm.refresh_cpu_vm_stats();
                    mm.zones[far].free - free
                })
                .collect();
            let expected = [0, 0, 1, 1, 1, 2, 2, 2, 3].map(|batches| batches * batch);
            assert_eq!(given_back, expected, "{kernel}");
            // Requests of users do not get the pages that were held back at boot.
            assert_eq!(mm.zones[far].pcp[1].count, 100, "{kernel}");
            let (frames, _) = take(&mut mm, far, 1, 10);
            assert_eq!(mm.zones[far].pcp[1].lists[MigrateType::Unmovable as usize].len(), 100, "{kernel}");
            self::free(&mut mm, far, 1, &frames);
            assert_eq!(mm.check(), Ok(()), "{kernel}");
        }
    }
}
