//! Counters under the kernel's names, and the contents of `/proc` that they result in (`mm/vmstat.c`,
//! `fs/proc/meminfo.c`).
//!
//! A line is printed if the table of counters says that the generation's release has it. Lines about things
//! that the model leaves out (khugepaged, kcompactd, NUMA balancing) are 0, as on a machine
//! where none of it happens. Lines whose true value is unknown are absent: the trees' own nodes, the direct
//! map.

use std::ops::{Index, IndexMut, Range};

use lotsfree_formulas::available::{AvailableInput, mem_available};
use lotsfree_formulas::lists::inactive_ratio;
use lotsfree_formulas::overcommit::LimitSetting;
use lotsfree_formulas::watermarks::{Watermarks, ZoneKind};
use lotsfree_kernel_files::KernelVersion;
use lotsfree_kernel_files::counters::{
    Counter, Family, Meminfo, Numastat, Values, Vmstat, Zoneinfo, meminfo, numastat, vmstat, zoneinfo,
};
use lotsfree_kernel_files::file::zoneinfo::{Pageset, Zone as ZoneText};
use lotsfree_settings::{
    ADMIN_RESERVE_KBYTES, DIRTY_BACKGROUND_BYTES, DIRTY_BACKGROUND_RATIO, DIRTY_BYTES,
    DIRTY_EXPIRE_CENTISECS, DIRTY_RATIO, DIRTY_WRITEBACK_CENTISECS, EXTRA_FREE_KBYTES, LAPTOP_MODE,
    LOWMEM_RESERVE_RATIO, MIN_FREE_KBYTES, MIN_SLAB_RATIO, MIN_UNMAPPED_RATIO, OVERCOMMIT_KBYTES,
    OVERCOMMIT_MEMORY, OVERCOMMIT_RATIO, PAGE_CLUSTER, PAGECACHE_LIMIT_IGNORE_DIRTY, PAGECACHE_LIMIT_MB,
    SWAPPINESS, USER_RESERVE_KBYTES, VFS_CACHE_PRESSURE, WATERMARK_BOOST_FACTOR, WATERMARK_SCALE_FACTOR,
    ZONE_RECLAIM_MODE,
};

use super::Mm;
use super::frame::list;
use super::hugetlb::HugePages;
use super::mmzone::Zone;
use crate::generation::Generation;

/// Gauges and node counters that are kept by zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    AnonPages,
    Mapped,
    FilePages,
    Dirty,
    Writeback,
    SlabReclaimable,
    SlabUnreclaimable,
    Dirtied,
    Written,
    VmscanWrite,
    VmscanImmediate,
    Mlock,
    SwapCached,
    Zspages,
    PageTables,
    Shmem,
    AnonThps,
}

/// The number of [`Stat`]s.
pub(crate) const STATS: usize = 17;

/// The counters of `/proc/vmstat` that only grow: `events[vmstat::pgfault] += 1`. A kernel's release decides
/// which of them it prints; [`SUMS`] are not counted but added up.
#[derive(Clone, Debug)]
pub(crate) struct Events(Box<[u64; Vmstat::ROWS.len()]>);

impl Default for Events {
    fn default() -> Self {
        Events(Box::new([0; Vmstat::ROWS.len()]))
    }
}

impl Index<Counter<Vmstat>> for Events {
    type Output = u64;

    fn index(&self, counter: Counter<Vmstat>) -> &u64 {
        &self.0[counter.row_index()]
    }
}

impl IndexMut<Counter<Vmstat>> for Events {
    fn index_mut(&mut self, counter: Counter<Vmstat>) -> &mut u64 {
        &mut self.0[counter.row_index()]
    }
}

impl Events {
    /// The sum of some counters.
    pub(crate) fn sum(&self, counters: &[Counter<Vmstat>]) -> u64 {
        counters.iter().map(|counter| self[*counter]).sum()
    }
}

/// One counter for each kind of zone: DMA, DMA32, Normal, Movable ([`Zone::index`]).
pub(crate) type ByZone = [Counter<Vmstat>; 4];
/// One counter for anonymous pages and one for file pages.
pub(crate) type ByType = [Counter<Vmstat>; 2];

pub(crate) const PGALLOC: ByZone =
    [vmstat::pgalloc_dma, vmstat::pgalloc_dma32, vmstat::pgalloc_normal, vmstat::pgalloc_movable];
pub(crate) const ALLOCSTALL: ByZone =
    [vmstat::allocstall_dma, vmstat::allocstall_dma32, vmstat::allocstall_normal, vmstat::allocstall_movable];
pub(crate) const PGSKIP: ByZone =
    [vmstat::pgskip_dma, vmstat::pgskip_dma32, vmstat::pgskip_normal, vmstat::pgskip_movable];
pub(crate) const PGREFILL: ByZone =
    [vmstat::pgrefill_dma, vmstat::pgrefill_dma32, vmstat::pgrefill_normal, vmstat::pgrefill_movable];
pub(crate) const PGSTEAL_KSWAPD: ByZone = [
    vmstat::pgsteal_kswapd_dma,
    vmstat::pgsteal_kswapd_dma32,
    vmstat::pgsteal_kswapd_normal,
    vmstat::pgsteal_kswapd_movable,
];
pub(crate) const PGSTEAL_DIRECT: ByZone = [
    vmstat::pgsteal_direct_dma,
    vmstat::pgsteal_direct_dma32,
    vmstat::pgsteal_direct_normal,
    vmstat::pgsteal_direct_movable,
];
pub(crate) const PGSCAN_KSWAPD: ByZone = [
    vmstat::pgscan_kswapd_dma,
    vmstat::pgscan_kswapd_dma32,
    vmstat::pgscan_kswapd_normal,
    vmstat::pgscan_kswapd_movable,
];
pub(crate) const PGSCAN_DIRECT: ByZone = [
    vmstat::pgscan_direct_dma,
    vmstat::pgscan_direct_dma32,
    vmstat::pgscan_direct_normal,
    vmstat::pgscan_direct_movable,
];
pub(crate) const PGSCAN: ByType = [vmstat::pgscan_anon, vmstat::pgscan_file];
pub(crate) const PGSTEAL: ByType = [vmstat::pgsteal_anon, vmstat::pgsteal_file];
pub(crate) const REFAULT: ByType = [vmstat::workingset_refault_anon, vmstat::workingset_refault_file];
pub(crate) const ACTIVATE: ByType = [vmstat::workingset_activate_anon, vmstat::workingset_activate_file];
pub(crate) const RESTORE: ByType = [vmstat::workingset_restore_anon, vmstat::workingset_restore_file];

/// Counters that are sums of others; the kernel counts either the sum or the parts.
const SUMS: [(Counter<Vmstat>, &[Counter<Vmstat>]); 11] = [
    (vmstat::allocstall, &ALLOCSTALL),
    (vmstat::pgrefill, &PGREFILL),
    (vmstat::pgsteal_kswapd, &PGSTEAL_KSWAPD),
    (vmstat::pgsteal_direct, &PGSTEAL_DIRECT),
    (vmstat::pgscan_kswapd, &PGSCAN_KSWAPD),
    (vmstat::pgscan_direct, &PGSCAN_DIRECT),
    (vmstat::kswapd_steal, &PGSTEAL_KSWAPD),
    (vmstat::pgsteal_dma, &[vmstat::pgsteal_kswapd_dma, vmstat::pgsteal_direct_dma]),
    (vmstat::pgsteal_dma32, &[vmstat::pgsteal_kswapd_dma32, vmstat::pgsteal_direct_dma32]),
    (vmstat::pgsteal_normal, &[vmstat::pgsteal_kswapd_normal, vmstat::pgsteal_direct_normal]),
    (vmstat::pgsteal_movable, &[vmstat::pgsteal_kswapd_movable, vmstat::pgsteal_direct_movable]),
];

/// Counters of the working set. Kernels print the total before 5.9 (170b04b7ae49), and one counter for each
/// type from then on (`mm/workingset.c`).
const WORKINGSET: [(Counter<Vmstat>, ByType); 3] = [
    (vmstat::workingset_refault, REFAULT),
    (vmstat::workingset_activate, ACTIVATE),
    (vmstat::workingset_restore, RESTORE),
];

/// A kernel release: three numbers.
type Release = (u32, u32, u32);

/// Counters that RHEL 6 prints although mainline got them only after 2.6.32.
const RHEL_6: [Counter<Vmstat>; 4] = [
    vmstat::nr_anon_transparent_hugepages,
    vmstat::kswapd_low_wmark_hit_quickly,
    vmstat::kswapd_high_wmark_hit_quickly,
    vmstat::kswapd_skip_congestion_wait,
];

/// Lines of `/proc/vmstat` that x86-64 or usual configurations do not have, or whose value the model does not
/// know.
static LEFT_OUT: [bool; Vmstat::ROWS.len()] = of([
    // No ZONE_HIGHMEM, no shadow call stacks.
    vmstat::pgalloc_high,
    vmstat::allocstall_high,
    vmstat::pgskip_high,
    vmstat::pgrefill_high,
    vmstat::pgsteal_high,
    vmstat::pgsteal_kswapd_high,
    vmstat::pgsteal_direct_high,
    vmstat::pgscan_kswapd_high,
    vmstat::pgscan_direct_high,
    vmstat::nr_shadow_call_stack,
    // CONFIG_CMA, CONFIG_DEBUG_TLBFLUSH, CONFIG_DEBUG_VM_VMACACHE, CONFIG_PER_VMA_LOCK_STATS,
    // CONFIG_DEBUG_STACK_USAGE.
    vmstat::cma_alloc_success,
    vmstat::cma_alloc_fail,
    vmstat::nr_tlb_remote_flush,
    vmstat::nr_tlb_remote_flush_received,
    vmstat::nr_tlb_local_flush_all,
    vmstat::nr_tlb_local_flush_one,
    vmstat::vmacache_find_calls,
    vmstat::vmacache_find_hits,
    vmstat::vmacache_full_flushes,
    vmstat::vma_lock_success,
    vmstat::vma_lock_abort,
    vmstat::vma_lock_retry,
    vmstat::vma_lock_miss,
    vmstat::kstack_1k,
    vmstat::kstack_2k,
    vmstat::kstack_4k,
    vmstat::kstack_8k,
    vmstat::kstack_16k,
    vmstat::kstack_32k,
    vmstat::kstack_64k,
    vmstat::kstack_rest,
    // Unknown.
    vmstat::nr_memmap_boot_pages,
    vmstat::pgreuse,
    vmstat::slabs_scanned,
    vmstat::direct_map_level2_splits,
    vmstat::direct_map_level3_splits,
    vmstat::direct_map_level2_collapses,
    vmstat::direct_map_level3_collapses,
    // These are not printed at the same time as the counters that took their place.
    vmstat::nr_pages_scanned,
    vmstat::nr_indirectly_reclaimable,
]);

/// The rows of some counters.
const fn of<const COUNT: usize>(counters: [Counter<Vmstat>; COUNT]) -> [bool; Vmstat::ROWS.len()] {
    let mut rows = [false; Vmstat::ROWS.len()];
    let mut at = 0;
    while at < COUNT {
        rows[counters[at].row_index()] = true;
        at += 1;
    }
    rows
}

/// Lines of `/proc/meminfo` that are 0 on a machine without the things that they count.
const ZERO: [Counter<Meminfo>; 14] = [
    meminfo::Mlocked,
    meminfo::Zswap,
    meminfo::Zswapped,
    meminfo::KernelStack,
    meminfo::SecPageTables,
    meminfo::NFS_Unstable,
    meminfo::Bounce,
    meminfo::WritebackTmp,
    meminfo::HardwareCorrupted,
    meminfo::ShmemHugePages,
    meminfo::ShmemPmdMapped,
    meminfo::FileHugePages,
    meminfo::FilePmdMapped,
    meminfo::Unaccepted,
];

/// Lines of [`ZERO`] that a node's file does not have.
const ZERO_NOT_IN_NODE: [Counter<Meminfo>; 3] =
    [meminfo::Zswap, meminfo::Zswapped, meminfo::HardwareCorrupted];

/// The lines of a file that is being put together.
pub(super) struct Lines<F> {
    pub(super) values: Values<F>,
    release: Release,
}

impl<F: Family> Lines<F> {
    pub(super) fn new(release: Release) -> Self {
        Lines { values: Values::default(), release }
    }
    #[inline]
    pub(super) fn put(&mut self, counter: Counter<F>, value: u64) {
        if counter.row().is_in(self.release) {
            self.values.set(counter, value);
        }
    }
}

/// The first line that is counted by node, from 4.8 on, and the first after those.
const BY_NODE: [Counter<Vmstat>; 2] = [vmstat::nr_inactive_anon, vmstat::nr_dirty_threshold];

/// What files of `vmstat`'s lines have before anything is counted: a zero for each line of the release.
#[derive(Debug)]
pub(crate) struct Blank {
    release: Release,
    /// `/proc/vmstat`
    vmstat: Values<Vmstat>,
    /// A node's `vmstat`.
    node_vmstat: Values<Vmstat>,
    /// The lines that are counted by zone and those that are counted by node, in `/proc/zoneinfo`.
    zone: Values<Vmstat>,
    node: Values<Vmstat>,
}

impl Blank {
    pub(crate) fn of(generation: &Generation) -> Self {
        let name = generation.name.strip_prefix("linux-").unwrap_or(generation.name);
        let release = KernelVersion::parse(name).map_or((0, 0, 0), |version| version.numbers);
        let [node, totals] = BY_NODE.map(Counter::row_index);
        let zeroes = |rows: Range<usize>| {
            let mut lines = Lines::new(release);
            let rows = Counter::all().skip(rows.start).take(rows.len());
            rows.filter(|counter| !LEFT_OUT[counter.row_index()]).for_each(|counter| lines.put(counter, 0));
            lines.values
        };
        Blank {
            release,
            vmstat: zeroes(0..Vmstat::ROWS.len()),
            node_vmstat: zeroes(0..totals),
            zone: zeroes(0..if generation.lru_per_node { node } else { totals }),
            node: zeroes(node..totals),
        }
    }
}

/// Sums over some zones.
pub(super) struct Sums {
    pub(super) free: u64,
    managed: u64,
    stat: [u64; STATS],
    numa: [u64; 6],
    alloc_batch: u64,
    lru: [u64; 6],
}

impl Sums {
    pub(super) fn get(&self, stat: Stat) -> u64 {
        self.stat[stat as usize]
    }
}

/// Kinds of zones that a node has on x86-64, from low to high.
const KINDS: [(ZoneKind, &str); 5] = [
    (ZoneKind::Dma, "DMA"),
    (ZoneKind::Dma32, "DMA32"),
    (ZoneKind::Normal, "Normal"),
    (ZoneKind::Movable, "Movable"),
    (ZoneKind::Device, "Device"),
];

impl Mm {
    /// The kernel's numbers.
    pub(super) fn release(&self) -> Release {
        self.blank.release
    }

    /// The lines of a file, as they are before anything is counted.
    fn lines(&self, blank: &Values<Vmstat>) -> Lines<Vmstat> {
        Lines { values: blank.clone(), release: self.blank.release }
    }

    fn sums(&self, zones: impl Iterator<Item = usize>) -> Sums {
        let mut sums =
            Sums { free: 0, managed: 0, stat: [0; STATS], numa: [0; 6], alloc_batch: 0, lru: [0; 6] };
        for index in zones {
            let zone = &self.zones[index];
            sums.free += zone.free;
            sums.managed += zone.managed;
            sums.alloc_batch += u64::try_from(zone.alloc_batch).unwrap_or(0);
            for (to, from) in sums.stat.iter_mut().zip(zone.stat) {
                *to += from;
            }
            for (to, from) in sums.numa.iter_mut().zip(zone.numa.0) {
                *to += from;
            }
            for (to, from) in sums.lru.iter_mut().zip(self.zone_lru_sizes(index)) {
                *to += from;
            }
        }
        sums
    }

    pub(super) fn all(&self) -> Sums {
        self.sums(0..self.zones.len())
    }

    fn of_node(&self, node: usize) -> Sums {
        self.sums(self.nodes[node].zones.iter().copied())
    }

    /// Enters the lines that are counted by zone.
    fn zone_lines(&self, lines: &mut Lines<Vmstat>, sums: &Sums) {
        lines.put(vmstat::nr_free_pages, sums.free);
        lines.put(vmstat::nr_alloc_batch, sums.alloc_batch);
        lines.put(vmstat::nr_zone_inactive_anon, sums.lru[list::INACTIVE_ANON]);
        lines.put(vmstat::nr_zone_active_anon, sums.lru[list::ACTIVE_ANON]);
        lines.put(vmstat::nr_zone_inactive_file, sums.lru[list::INACTIVE_FILE]);
        lines.put(vmstat::nr_zone_active_file, sums.lru[list::ACTIVE_FILE]);
        lines.put(vmstat::nr_zone_unevictable, sums.lru[list::UNEVICTABLE]);
        lines.put(vmstat::nr_zone_write_pending, sums.get(Stat::Dirty) + sums.get(Stat::Writeback));
        lines.put(vmstat::nr_mlock, sums.get(Stat::Mlock));
        lines.put(vmstat::nr_zspages, sums.get(Stat::Zspages));
        let numa = [
            vmstat::numa_hit,
            vmstat::numa_miss,
            vmstat::numa_foreign,
            vmstat::numa_interleave,
            vmstat::numa_local,
            vmstat::numa_other,
        ];
        for (counter, value) in numa.into_iter().zip(sums.numa) {
            lines.put(counter, value);
        }
    }

    /// Enters the lines that are counted by node from 4.8 on, and by zone before.
    fn node_lines(&self, lines: &mut Lines<Vmstat>, sums: &Sums, whole: bool) {
        lines.put(vmstat::nr_inactive_anon, sums.lru[list::INACTIVE_ANON]);
        lines.put(vmstat::nr_active_anon, sums.lru[list::ACTIVE_ANON]);
        lines.put(vmstat::nr_inactive_file, sums.lru[list::INACTIVE_FILE]);
        lines.put(vmstat::nr_active_file, sums.lru[list::ACTIVE_FILE]);
        lines.put(vmstat::nr_unevictable, sums.lru[list::UNEVICTABLE]);
        lines.put(vmstat::nr_slab_reclaimable, sums.get(Stat::SlabReclaimable));
        lines.put(vmstat::nr_slab_unreclaimable, sums.get(Stat::SlabUnreclaimable));
        lines.put(vmstat::nr_anon_pages, sums.get(Stat::AnonPages));
        lines.put(vmstat::nr_mapped, sums.get(Stat::Mapped));
        lines.put(vmstat::nr_file_pages, sums.get(Stat::FilePages) + sums.get(Stat::SwapCached));
        lines.put(vmstat::nr_shmem, sums.get(Stat::Shmem));
        lines.put(vmstat::nr_dirty, sums.get(Stat::Dirty));
        lines.put(vmstat::nr_writeback, sums.get(Stat::Writeback));
        lines.put(vmstat::nr_vmscan_write, sums.get(Stat::VmscanWrite));
        lines.put(vmstat::nr_vmscan_immediate_reclaim, sums.get(Stat::VmscanImmediate));
        lines.put(vmstat::nr_dirtied, sums.get(Stat::Dirtied));
        lines.put(vmstat::nr_written, sums.get(Stat::Written));
        lines.put(vmstat::nr_page_table_pages, sums.get(Stat::PageTables));
        lines.put(vmstat::nr_anon_transparent_hugepages, sums.get(Stat::AnonThps));
        lines.put(vmstat::nr_swapcached, sums.get(Stat::SwapCached));
        // The model does not know on which node the slabs of these are.
        lines.put(vmstat::workingset_nodes, if whole { self.tree.count } else { u64::MAX });
        for (total, by_type) in WORKINGSET {
            for counter in by_type {
                // Refaults are not counted by node.
                lines.put(counter, if whole { self.events[counter] } else { u64::MAX });
            }
            lines.put(total, if whole { self.events.sum(&by_type) } else { u64::MAX });
        }
    }

    /// `/proc/vmstat`
    pub fn vmstat(&self) -> Values<Vmstat> {
        let sums = self.all();
        let mut lines = self.lines(&self.blank.vmstat);
        self.zone_lines(&mut lines, &sums);
        self.node_lines(&mut lines, &sums, true);
        let limits = self.dirty_limits();
        lines.put(vmstat::nr_dirty_threshold, limits.dirty);
        lines.put(vmstat::nr_dirty_background_threshold, limits.background);
        if !self.generation.lru_per_node && lines.release >= (3, 17, 0) {
            let scanned = self.zones.iter().map(|zone| zone.pages_scanned).sum();
            lines.put(vmstat::nr_pages_scanned, scanned);
        }
        self.event_lines(&mut lines);
        if lines.release < (2, 6, 33) {
            self.rhel_6_lines(&mut lines.values);
        }
        lines.values
    }

    fn rhel_6_lines(&self, values: &mut Values<Vmstat>) {
        for counter in RHEL_6 {
            values.set(counter, self.events[counter]);
        }
    }

    fn event_lines(&self, lines: &mut Lines<Vmstat>) {
        // Counters of events that did not happen were set to 0 with the other lines.
        let counted = Counter::all().map(|counter| (counter, self.events[counter]));
        let sums = SUMS.iter().map(|(counter, parts)| (*counter, self.events.sum(parts)));
        for (counter, value) in counted.chain(sums).filter(|(_, value)| *value > 0) {
            lines.put(counter, value);
        }
    }

    /// `/sys/devices/system/node/node*/vmstat`
    pub fn node_vmstat(&self, node: usize) -> Values<Vmstat> {
        let sums = self.of_node(node);
        let mut lines = self.lines(&self.blank.node_vmstat);
        self.zone_lines(&mut lines, &sums);
        self.node_lines(&mut lines, &sums, self.nodes.len() == 1);
        lines.values
    }

    /// Enters the lines that `/proc/meminfo` and a node's `meminfo` share.
    fn shared_meminfo(&self, lines: &mut Lines<Meminfo>, sums: &Sums) {
        let kib = |pages: u64| self.page.kib(pages);
        let lru = |which: usize| kib(sums.lru[which]);
        use meminfo as m;
        let values = [
            (m::MemTotal, kib(sums.managed)),
            (m::MemFree, kib(sums.free)),
            (m::SwapCached, kib(sums.get(Stat::SwapCached))),
            (m::Active, lru(list::ACTIVE_ANON) + lru(list::ACTIVE_FILE)),
            (m::Inactive, lru(list::INACTIVE_ANON) + lru(list::INACTIVE_FILE)),
            (m::Active_anon, lru(list::ACTIVE_ANON)),
            (m::Inactive_anon, lru(list::INACTIVE_ANON)),
            (m::Active_file, lru(list::ACTIVE_FILE)),
            (m::Inactive_file, lru(list::INACTIVE_FILE)),
            (m::Unevictable, lru(list::UNEVICTABLE)),
            (m::Mlocked, kib(sums.get(Stat::Mlock))),
            (m::Dirty, kib(sums.get(Stat::Dirty))),
            (m::Writeback, kib(sums.get(Stat::Writeback))),
            (m::AnonPages, kib(sums.get(Stat::AnonPages))),
            (m::Mapped, kib(sums.get(Stat::Mapped))),
            (m::Shmem, kib(sums.get(Stat::Shmem))),
            (m::AnonHugePages, sums.get(Stat::AnonThps) * self.page.pmd_huge().as_kib()),
            (m::PageTables, kib(sums.get(Stat::PageTables))),
            (m::KReclaimable, kib(sums.get(Stat::SlabReclaimable))),
            (m::Slab, kib(sums.get(Stat::SlabReclaimable) + sums.get(Stat::SlabUnreclaimable))),
            (m::SReclaimable, kib(sums.get(Stat::SlabReclaimable))),
            (m::SUnreclaim, kib(sums.get(Stat::SlabUnreclaimable))),
        ];
        for (counter, value) in values {
            lines.put(counter, value);
        }
    }

    /// Enters the lines about the pool of huge pages that a node's file has too.
    fn hugepage_lines(lines: &mut Lines<Meminfo>, pool: HugePages) {
        lines.put(meminfo::HugePages_Total, pool.total);
        lines.put(meminfo::HugePages_Free, pool.free);
        lines.put(meminfo::HugePages_Surp, pool.surplus);
    }

    /// `/proc/meminfo`. All memory that the kernel keeps for itself is in `SUnreclaim`, but for what zram and
    /// zswap hold: no line has that of zram, and none before 5.19 that of zswap.
    pub fn meminfo(&self) -> Values<Meminfo> {
        let sums = self.all();
        let mut lines = Lines::new(self.blank.release);
        for counter in ZERO {
            lines.put(counter, 0);
        }
        self.shared_meminfo(&mut lines, &sums);
        if let Some(rules) = &self.generation.rules.available {
            let sum_low = (0..self.nodes.len())
                .flat_map(|node| KINDS.map(|(kind, _)| self.printed_watermarks(node, kind).0.low))
                .sum();
            let input = AvailableInput {
                free: sums.free,
                active_file: sums.lru[list::ACTIVE_FILE],
                inactive_file: sums.lru[list::INACTIVE_FILE],
                slab_reclaimable: sums.get(Stat::SlabReclaimable),
                misc_reclaimable: 0,
                sum_low,
                total_reserve: self.total_reserve,
            };
            lines.put(meminfo::MemAvailable, self.page.kib(mem_available(rules, &input)));
        }
        let buffers = self.buffers();
        lines.put(meminfo::Buffers, self.page.kib(buffers));
        lines.put(meminfo::Cached, self.page.kib(sums.get(Stat::FilePages) - buffers));
        if let (Some(_), Some(pool)) = (&self.zswap, &self.zpool) {
            lines.put(meminfo::Zswap, self.page.kib(pool.pages()));
            lines.put(meminfo::Zswapped, self.page.kib(pool.objects()));
        }
        lines.put(meminfo::SwapTotal, self.page.kib(u64::from(self.swap.total)));
        lines.put(meminfo::SwapFree, self.page.kib(self.swap.free()));
        let pool = self.huge_pages();
        let huge = pool.total << self.hugetlb.order;
        lines.put(meminfo::CommitLimit, self.page.kib(self.commit_limit()));
        lines.put(meminfo::Committed_AS, self.page.kib(self.committed));
        Self::hugepage_lines(&mut lines, pool);
        lines.put(meminfo::HugePages_Rsvd, pool.reserved);
        lines.put(meminfo::Hugepagesize, self.page.pmd_huge().as_kib());
        lines.put(meminfo::Hugetlb, self.page.kib(huge));
        lines.values
    }

    /// `/sys/devices/system/node/node*/meminfo`
    pub fn node_meminfo(&self, node: usize) -> Values<Meminfo> {
        let sums = self.of_node(node);
        let mut lines = Lines::new(self.blank.release);
        for counter in ZERO.into_iter().filter(|counter| !ZERO_NOT_IN_NODE.contains(counter)) {
            lines.put(counter, 0);
        }
        self.shared_meminfo(&mut lines, &sums);
        Self::hugepage_lines(&mut lines, self.hugetlb.counts(node..node + 1));
        lines.put(meminfo::MemUsed, self.page.kib(sums.managed - sums.free));
        lines.put(meminfo::FilePages, self.page.kib(sums.get(Stat::FilePages) + sums.get(Stat::SwapCached)));
        if !vmstat::nr_swapcached.row().is_in(lines.release) {
            // A node's file has this line only if the node counts it.
            lines.values.set(meminfo::SwapCached, u64::MAX);
        }
        lines.values
    }

    /// `/sys/devices/system/node/node*/numastat`
    pub fn numastat(&self, node: usize) -> Values<Numastat> {
        let counters = [
            numastat::numa_hit,
            numastat::numa_miss,
            numastat::numa_foreign,
            numastat::interleave_hit,
            numastat::local_node,
            numastat::other_node,
        ];
        let mut values = Values::default();
        for (counter, value) in counters.into_iter().zip(self.of_node(node).numa) {
            values.set(counter, value);
        }
        values
    }

    fn zone_of_kind(&self, node: usize, kind: ZoneKind) -> Option<&Zone> {
        self.nodes[node].zones.iter().map(|&zone| &self.zones[zone]).find(|zone| zone.kind == kind)
    }

    /// Watermarks of a zone as printed, with the boost, and the boost itself. Zones without memory have
    /// watermarks too.
    fn printed_watermarks(&self, node: usize, kind: ZoneKind) -> (Watermarks, u64) {
        match self.zone_of_kind(node, kind) {
            Some(zone) => {
                let promo = zone.watermark.promo.map(|promo| promo + zone.boost);
                let (min, low, high) =
                    (zone.min_wmark_pages(), zone.low_wmark_pages(), zone.high_wmark_pages());
                (Watermarks { min, low, high, promo }, zone.boost)
            }
            None => (self.empty_marks(kind), 0),
        }
    }

    fn empty_marks(&self, kind: ZoneKind) -> Watermarks {
        use lotsfree_formulas::watermarks;
        let tuning = watermarks::WatermarkSettings {
            min_free_kib: self.min_free_kbytes,
            scale_factor: self.tuning.watermark_scale_factor,
            extra_free_kib: self.tuning.extra_free_kbytes,
        };
        let zones = (self.zones.iter()).map(|zone| watermarks::Zone {
            kind: zone.kind,
            present: zone.present,
            managed: zone.managed,
        });
        let zones: Vec<_> = zones.chain([watermarks::Zone { kind, present: 0, managed: 0 }]).collect();
        let computed = watermarks::watermarks(&self.generation.rules.watermarks, &tuning, &zones, self.page);
        computed.last().copied().unwrap_or(Watermarks { min: 0, low: 0, high: 0, promo: None })
    }

    /// `/proc/zoneinfo`. From 4.12 on, zones without memory are shown too, and there is a zone for devices.
    /// Statistics of a node are in its first zone with memory.
    pub fn zoneinfo(&self) -> Vec<ZoneText> {
        let release = self.blank.release;
        let empty_too = release >= (4, 12, 0);
        let kinds = if empty_too { &KINDS[..] } else { &KINDS[..4] };
        let mut zones = Vec::new();
        for node in 0..self.nodes.len() {
            let mut first = true;
            for &(kind, name) in kinds {
                let zone = self.zone_of_kind(node, kind);
                if zone.is_none() && !empty_too {
                    continue;
                }
                let mut text = ZoneText { node: node as u32, name: name.into(), ..ZoneText::default() };
                let mut marks = Lines::new(release);
                self.mark_lines(&mut marks, node, kind);
                text.protection = match zone {
                    Some(zone) => zone.reserve[..kinds.len()].to_vec(),
                    None => vec![0; kinds.len()],
                };
                if let Some(zone) = zone {
                    self.populated_lines(&mut text, &mut marks, zone, first);
                    first = false;
                }
                text.marks = marks.values;
                zones.push(text);
            }
        }
        zones
    }

    /// The `pages` block.
    fn mark_lines(&self, lines: &mut Lines<Zoneinfo>, node: usize, kind: ZoneKind) {
        let (marks, boost) = self.printed_watermarks(node, kind);
        let zone = self.zone_of_kind(node, kind);
        let of = |what: fn(&Zone) -> u64| zone.map_or(0, what);
        lines.put(zoneinfo::free, of(|zone| zone.free));
        lines.put(zoneinfo::boost, boost);
        lines.put(zoneinfo::min, marks.min);
        lines.put(zoneinfo::low, marks.low);
        lines.put(zoneinfo::high, marks.high);
        if let Some(promo) = marks.promo {
            lines.put(zoneinfo::promo, promo);
        }
        lines.put(zoneinfo::scanned, of(|zone| zone.pages_scanned));
        lines.put(zoneinfo::spanned, of(spanned));
        lines.put(zoneinfo::present, of(|zone| zone.present));
        lines.put(zoneinfo::managed, of(|zone| zone.managed));
        lines.put(zoneinfo::cma, 0);
    }

    /// Enters the lines that only a zone with memory has.
    fn populated_lines(&self, text: &mut ZoneText, marks: &mut Lines<Zoneinfo>, zone: &Zone, first: bool) {
        let index = self.zones.iter().position(|other| std::ptr::eq(other, zone));
        let mut stats = self.lines(&self.blank.zone);
        let sums = self.sums(index.into_iter());
        self.zone_lines(&mut stats, &sums);
        if !self.generation.lru_per_node {
            self.node_lines(&mut stats, &sums, false);
        } else if first {
            let mut lines = self.lines(&self.blank.node);
            self.node_lines(&mut lines, &self.of_node(zone.node), self.nodes.len() == 1);
            text.node_stats = Some(lines.values);
        }
        text.stats = stats.values;
        text.pagesets = (0u32..)
            .zip(&zone.pcp)
            .map(|(cpu, pcp)| Pageset {
                cpu,
                count: pcp.count,
                high: if self.generation.pcp.adapts { pcp.high.max(zone.pcp_high) } else { zone.pcp_high },
                batch: zone.pcp_batch,
            })
            .collect();
        let unreclaimable = index.is_some_and(|zone| self.is_unreclaimable(self.lruvec_of(zone)));
        marks.put(zoneinfo::all_unreclaimable, u64::from(unreclaimable && zone.pages_scanned > 0));
        marks.put(zoneinfo::node_unreclaimable, u64::from(self.nodes[zone.node].kswapd.gave_up()));
        // The first page frame of a PC does not belong to the allocator.
        marks.put(zoneinfo::start_pfn, zone.start_pfn.max(1));
        marks.put(zoneinfo::inactive_ratio, inactive_ratio(self.page.of(zone.managed)));
    }
}

/// Page frames from the zone's first to its last. Only a PC's ZONE_DMA has holes: its first page and the
/// firmware's.
fn spanned(zone: &Zone) -> u64 {
    let holes = zone.kind == ZoneKind::Dma && zone.start_pfn == 0 && zone.managed < zone.present;
    if holes { 4095 } else { zone.present }
}

impl Mm {
    /// Sysctls of the machine, as the kernel would print them.
    pub fn sysctls(&self) -> std::collections::BTreeMap<String, String> {
        use lotsfree_formulas::dirty::DirtyLimit;
        let t = &self.tuning;
        let (ratio, bytes) = match t.dirty {
            DirtyLimit::Percent(percent) => (percent, 0),
            DirtyLimit::Bytes(bytes) => (0, bytes.0),
        };
        let (background_ratio, background_bytes) = match t.dirty_background {
            DirtyLimit::Percent(percent) => (percent, 0),
            DirtyLimit::Bytes(bytes) => (0, bytes.0),
        };
        let mut sysctls = vec![
            (SWAPPINESS, t.swappiness),
            (MIN_FREE_KBYTES, self.min_free_kbytes),
            (ZONE_RECLAIM_MODE, self.zone_reclaim_mode),
            (MIN_UNMAPPED_RATIO, t.min_unmapped_ratio),
            (MIN_SLAB_RATIO, t.min_slab_ratio),
            (DIRTY_RATIO, ratio),
            (DIRTY_BYTES, bytes),
            (DIRTY_BACKGROUND_RATIO, background_ratio),
            (DIRTY_BACKGROUND_BYTES, background_bytes),
            (DIRTY_EXPIRE_CENTISECS, t.dirty_expire_centisecs),
            (DIRTY_WRITEBACK_CENTISECS, t.dirty_writeback_centisecs),
            (PAGE_CLUSTER, t.page_cluster),
            (LAPTOP_MODE, t.laptop_mode),
            (VFS_CACHE_PRESSURE, 100),
        ];
        let (ratio, kbytes) = match t.commit_limit {
            LimitSetting::Ratio(percent) => (percent, 0),
            LimitSetting::Kbytes(kib) => (0, kib),
        };
        sysctls.extend([(OVERCOMMIT_MEMORY, t.overcommit as u64), (OVERCOMMIT_RATIO, ratio)]);
        if let Some(rules) = self.generation.rules.overcommit {
            if rules.kbytes {
                sysctls.push((OVERCOMMIT_KBYTES, kbytes));
            }
            if rules.user_reserve {
                let (admin, user) = self.commit_reserves();
                sysctls.extend([(ADMIN_RESERVE_KBYTES, admin), (USER_RESERVE_KBYTES, user)]);
            }
        }
        let rules = &self.generation.rules.watermarks;
        if rules.scale_factor {
            sysctls.push((WATERMARK_SCALE_FACTOR, t.watermark_scale_factor));
        }
        if rules.boost {
            sysctls.push((WATERMARK_BOOST_FACTOR, t.watermark_boost_factor));
        }
        if rules.extra_free {
            sysctls.push((EXTRA_FREE_KBYTES, t.extra_free_kbytes));
        }
        if t.pagecache_limit_mb > 0 {
            sysctls.push((PAGECACHE_LIMIT_MB, t.pagecache_limit_mb));
            sysctls.push((PAGECACHE_LIMIT_IGNORE_DIRTY, t.pagecache_limit_ignore_dirty));
        }
        let mut sysctls: std::collections::BTreeMap<String, String> =
            sysctls.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect();
        let ratios: Vec<String> = t.lowmem_reserve_ratio.iter().map(u64::to_string).collect();
        sysctls.insert(LOWMEM_RESERVE_RATIO.to_owned(), ratios.join("\t"));
        sysctls
    }
}
