//! Nodes, zones, zonelists and watermarks (`mm/mmzone.c`, `mm/page_alloc.c`).

use lotsfree_formulas::lists::Lists;
use lotsfree_formulas::pcp;
use lotsfree_formulas::reserve::{ReserveZone, lowmem_reserve, totalreserve_pages};
use lotsfree_formulas::watermarks::{self, Watermarks, ZoneKind};
use lotsfree_scenario::Costs;
use lotsfree_units::{Bytes, PageSize};

use super::blk::WriteQueues;
use super::frame::{Frames, List, flag, list};
use super::free_area::{FreeArea, MigrateType, Orders};
use super::hugetlb::Hugetlb;
use super::lru_lock::{HoldTimes, LruLocking};
use super::object::Objects;
use super::page_alloc::Watermark;
use super::page_writeback::Writeback;
use super::pcp::PerCpuPages;
use super::policy::Kept;
use super::slab::Slab;
use super::swap::Swap;
use super::vmstat::{Blank, Events, STATS};
use super::workingset::Nodes;
use super::zram::{self, Zram};
use super::zswap::Zswap;
use super::{BLOCK, Config, MOST_FRAMES, Mm};
use crate::generation::{Generation, SECTION};
use crate::tuning::Tuning;

/// End of ZONE_DMA, in pages.
const DMA_END: u64 = 4096;
/// Pages of ZONE_DMA that firmware leaves present, and the number of them that the kernel manages.
const DMA_PRESENT: u64 = 3998;
const DMA_MANAGED: u64 = 3840;
/// The page at which RAM below 4 GiB ends on a PC; the rest lies above the hole for devices.
const HOLE: u64 = 3 << 18;
/// `MIGRATE_TYPES`, those of CMA and of isolated pages included.
const MIGRATE_TYPES: u64 = 6;
/// The address at which RAM begins on an arm64 machine: 1 GiB, as on QEMU's `virt` and on Amazon's servers.
/// Others have it elsewhere, and then less or none of it below 4 GiB.
const ARM_RAM: Bytes = Bytes::gib(1);

/// Counters of a zone about where its pages went (`enum numa_stat_item`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumaStat {
    Hit,
    Miss,
    Foreign,
    Interleave,
    Local,
    Other,
}

/// One counter for each [`NumaStat`], in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumaStats(pub(crate) [u64; 6]);

impl std::ops::Index<NumaStat> for NumaStats {
    type Output = u64;

    fn index(&self, stat: NumaStat) -> &u64 {
        &self.0[stat as usize]
    }
}

impl std::ops::IndexMut<NumaStat> for NumaStats {
    fn index_mut(&mut self, stat: NumaStat) -> &mut u64 {
        &mut self.0[stat as usize]
    }
}

/// A zone.
#[derive(Debug)]
pub(crate) struct Zone {
    pub(crate) kind: ZoneKind,
    /// Its place among the machine's zones.
    pub(super) number: usize,
    pub(crate) node: usize,
    /// The lruvec that its pages are on.
    pub(super) lruvec: usize,
    /// First page frame number on a PC.
    pub(crate) start_pfn: u64,
    pub(crate) present: u64,
    pub(crate) managed: u64,
    pub(crate) watermark: Watermarks,
    /// `watermark_boost`: pages by which all marks are raised for now.
    pub(crate) boost: u64,
    /// Pages by which they can be raised at most; 0 if they never are.
    pub(super) max_boost: u64,
    /// Pageblocks that the scanners of compaction left before them, counted from the first: where the next
    /// compaction starts (`compact_cached_migrate_pfn`, `compact_cached_free_pfn`); `None` at the ends.
    pub(super) compact_cached: Option<(usize, usize)>,
    /// ZONE_BOOSTED_WATERMARK: kswapd is to be woken for a boost.
    pub(super) boosted: bool,
    /// Pages that the zone keeps from an allocation, by the highest zone that the allocation may use.
    pub(crate) reserve: [u64; 5],
    /// Free pages that do not count as dirtyable: its high mark and its largest lowmem reserve.
    pub(super) dirty_reserve: u64,
    /// NR_FREE_PAGES
    pub(crate) free: u64,
    /// The free pages that have a number.
    pub(super) area: FreeArea,
    /// The pages that have no number yet ([`Frames`]).
    pub(super) unnumbered: u64,
    pub(crate) pcp: Vec<PerCpuPages>,
    pub(crate) pcp_batch: u64,
    /// `high`, or `high_min` and `high_max` where the length adapts (6.7 on).
    pub(crate) pcp_high: u64,
    pub(crate) pcp_high_max: u64,
    /// ZONE_BELOW_HIGH: an allocation found the zone below its high mark (6.7 on).
    pub(crate) below_high: bool,
    /// Gauges and node counters, by [`Stat`](super::vmstat::Stat).
    pub(crate) stat: [u64; STATS],
    /// numa_hit, numa_miss, numa_foreign, numa_interleave, numa_local, numa_other
    pub(crate) numa: NumaStats,
    /// Pages scanned since a page of the zone was last freed (through 4.7).
    pub(crate) pages_scanned: u64,
    /// kswapd found nothing to reclaim (through 3.11).
    pub(crate) all_unreclaimable: bool,
    /// Pages left of the zone's fair share (3.12 to 4.7).
    pub(crate) alloc_batch: i64,
    /// Zonelist cache: the time until which the zone counts as full for each node.
    pub(crate) full_until: Vec<u64>,
    pub(crate) min_unmapped: u64,
    pub(crate) min_slab: u64,
    /// LRU pages by classic list (1 to 5), whatever lruvec they are on. Pages of MGLRU's generations count as
    /// inactive.
    pub(crate) lru: [u64; 6],
    /// MGLRU: pages by generation and type, in the order of the lists. Promoted pages are in the generation
    /// that they were promoted to; `lru` has all of them as inactive.
    pub(crate) generations: [u64; 8],
}

/// A node (`pglist_data`).
#[derive(Debug)]
pub(crate) struct Node {
    /// Its zones, from low to high; those without memory are left out.
    pub(crate) zones: Vec<usize>,
    /// All zones, in the order in which an allocation of this node's CPUs tries them.
    pub(crate) zonelist: Vec<usize>,
    /// The fast path breaks up pageblocks of other types only after the lower zones had no page either: the
    /// first zone of the list is ZONE_NORMAL (`alloc_flags_nofragment`, 5.0 on).
    pub(super) nofragment: bool,
    pub(crate) kswapd: super::kswapd::KswapdState,
    pub(crate) total_reserve: u64,
    pub(crate) distance: Vec<u32>,
}

impl Node {
    /// The zone that an allocation of this node's CPUs tries first (`preferred_zoneref`).
    #[inline]
    pub(super) fn preferred_zone(&self) -> usize {
        self.zonelist[0]
    }
}

/// The most zones of a node: DMA, DMA32, Normal, Movable.
pub(crate) const MAX_NR_ZONES: usize = 4;

/// Types of pages, in the order of lists and counters.
pub(crate) const ANON: usize = 0;
pub(crate) const FILE: usize = 1;

/// What reclaim found in a zone or node (`zone->flags`, `pgdat->flags`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReclaimFlags {
    /// Pages that were to be reclaimed at once are still under writeback.
    pub(crate) writeback: bool,
    /// All pages at the tail were dirty, and not queued.
    pub(crate) dirty: bool,
    /// All dirty pages were of a congested device.
    pub(crate) congested: bool,
}

/// The lists of a zone (through 4.7) or a node, and reclaim's state for them.
#[derive(Debug)]
pub(crate) struct Lruvec {
    /// The classic lists, then the policy's own, zone by zone.
    pub(crate) lists: Vec<List>,
    /// Its zones, the lowest first.
    pub(crate) zones: Vec<usize>,
    pub(crate) node: usize,
    pub(crate) flags: ReclaimFlags,
    pub(super) lru_lock: HoldTimes,
    /// When somebody runs zone reclaim (`ZONE_RECLAIM_LOCKED`, `PGDAT_RECLAIM_LOCKED` from 4.8 on).
    pub(super) reclaim_locked: HoldTimes,
    /// Pages evicted, and pages activated (`nonresident_age`; `inactive_age` before 5.9), if the policy
    /// counts them.
    pub(crate) nonresident_age: u64,
    /// Lengths of the classic lists when the memory controller last collected them, if reclaim goes by that.
    pub(super) flushed: Option<Lists>,
    /// What the policy remembers ([`state`](super::policy::Policy::state)).
    pub(super) state: Box<dyn Kept>,
}

impl Lruvec {
    fn new(generation: &Generation, page: PageSize, zones: Vec<usize>, of: &[Zone]) -> Self {
        let policy = generation.policy;
        let lists = list::FIRST_GENERATION + policy.lists_per_zone() * zones.len();
        let size = page.of(zones.iter().map(|&zone| of[zone].managed).sum());
        Lruvec {
            lists: std::iter::repeat_with(List::default).take(lists).collect(),
            node: of[zones[0]].node,
            zones,
            flags: ReclaimFlags::default(),
            lru_lock: HoldTimes::default(),
            reclaim_locked: HoldTimes::default(),
            nonresident_age: 0,
            flushed: generation.flushed_stats.then(Lists::default),
            state: policy.state(generation, size),
        }
    }
    /// The index in `lists` of the list with that number that holds a zone's pages.
    #[inline]
    pub(crate) fn place(&self, list: usize, zone: usize) -> usize {
        if list < list::FIRST_GENERATION {
            return list;
        }
        list + list::GENERATIONS * (zone - self.zones[0])
    }
    /// The indexes in `lists` of a generation's lists, the lowest zone's first.
    pub(crate) fn places(&self, list: usize) -> std::iter::StepBy<std::ops::Range<usize>> {
        (list..self.lists.len()).step_by(list::GENERATIONS)
    }
    /// Length of a classic list.
    pub(crate) fn len(&self, list: usize) -> u64 {
        self.lists[list].len
    }
    /// Lengths of the classic lists, as reclaim knows them (`lruvec_page_state`).
    pub(crate) fn page_state(&self) -> Lists {
        self.flushed.unwrap_or_else(|| self.classic())
    }
    /// Lengths of the classic lists.
    pub(super) fn classic(&self) -> Lists {
        Lists {
            inactive_anon: self.len(list::INACTIVE_ANON),
            active_anon: self.len(list::ACTIVE_ANON),
            inactive_file: self.len(list::INACTIVE_FILE),
            active_file: self.len(list::ACTIVE_FILE),
        }
    }
    pub(crate) fn anon(&self) -> u64 {
        self.len(list::INACTIVE_ANON) + self.len(list::ACTIVE_ANON) + self.own_len(ANON)
    }
    pub(crate) fn file(&self) -> u64 {
        self.len(list::INACTIVE_FILE) + self.len(list::ACTIVE_FILE) + self.own_len(FILE)
    }
    /// Length of the policy's own lists of a type.
    fn own_len(&self, kind: usize) -> u64 {
        let own = &self.lists[list::FIRST_GENERATION..];
        own.chunks_exact(2).map(|pair| pair[kind].len).sum()
    }
}

/// A zone before it is filled in.
struct Plan {
    kind: ZoneKind,
    node: usize,
    start_pfn: u64,
    present: u64,
    managed: u64,
}

/// Where physical memory lies, and which zones it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    page: PageSize,
    arm_zone_dma: bool,
}

impl Layout {
    /// Of a machine with pages of this size: a PC with 4 KiB, else arm64.
    pub(crate) fn of(generation: &Generation, page: PageSize) -> Self {
        Layout { page, arm_zone_dma: generation.arm_zone_dma }
    }

    fn is_pc(self) -> bool {
        self.page == PageSize::X86
    }

    /// The first page frame number.
    fn first(self) -> u64 {
        if self.is_pc() { 0 } else { self.page.pages(ARM_RAM) }
    }

    /// The zone that a page frame is in, and the page frame at which it ends: on a PC 16 MiB of DMA, DMA32 up
    /// to the hole below 4 GiB, and the rest above it (`arch/x86/mm/init.c:zone_sizes_init`). On arm64 there
    /// is no hole, and which zone is below 4 GiB differs by release (`arch/arm64/mm/init.c:zone_sizes_init`).
    fn zone(self, pfn: u64) -> (ZoneKind, u64) {
        let low = self.page.pages(Bytes::gib(4));
        match pfn {
            pfn if self.is_pc() => match pfn {
                pfn if pfn < DMA_END => (ZoneKind::Dma, DMA_END),
                pfn if pfn < HOLE => (ZoneKind::Dma32, HOLE),
                _ => (ZoneKind::Normal, u64::MAX),
            },
            pfn if pfn >= low => (ZoneKind::Normal, u64::MAX),
            _ if self.arm_zone_dma => (ZoneKind::Dma, low),
            _ => (ZoneKind::Dma32, low),
        }
    }

    /// `PAGES_PER_SECTION`: 128 MiB, and with pages of 64 KiB 512 MiB, less than which has no whole pageblock
    /// (`arch/arm64/include/asm/sparsemem.h`, 5.12; 1 GiB before, which is not modelled).
    fn section(self) -> u64 {
        let size = if self.page.pmd_huge() > SECTION { self.page.pmd_huge() } else { SECTION };
        self.page.pages(size)
    }

    /// The pages of the highest zone that are there when the other CPUs come up, of a kernel that has `first`
    /// of memory then: at least a section.
    pub(super) fn first_pages(self, first: Bytes) -> u64 {
        self.page.pages(first).max(self.section())
    }

    /// Pages of the descriptors of this many pages, 64 bytes each (`struct page`).
    fn descriptors(self, pages: u64) -> u64 {
        pages / (self.page.bytes().0 / 64)
    }
}

/// Lays the nodes' memory out. `reserved` are the pages of each node that no zone manages, by default page
/// descriptors alone. Pages beyond the descriptors are taken from the lowest zones, but for a PC's DMA: the
/// kernel's image is there.
fn plan(layout: Layout, nodes: &[u64], reserved: Option<&[u64]>) -> Vec<Plan> {
    let mut zones = Vec::new();
    let mut pfn = layout.first();
    for (node, &pages) in nodes.iter().enumerate() {
        let mut left = pages;
        while left > 0 {
            let (kind, end) = layout.zone(pfn);
            if kind == ZoneKind::Normal && layout.is_pc() && pfn == HOLE {
                pfn = 1 << 20;
            }
            let here = left.min(end - pfn);
            // A descriptor for every page is taken from the zone.
            let (present, managed) = match kind {
                ZoneKind::Dma if layout.is_pc() => (DMA_PRESENT.min(here), DMA_MANAGED.min(here)),
                _ => (here, here - layout.descriptors(here)),
            };
            zones.push(Plan { kind, node, start_pfn: pfn, present, managed });
            pfn += here;
            left -= here;
        }
    }
    for (node, &reserved) in reserved.unwrap_or_default().iter().enumerate() {
        let managed: u64 = zones.iter().filter(|zone| zone.node == node).map(|zone| zone.managed).sum();
        let target = nodes[node].saturating_sub(reserved);
        let (mut less, mut more) = (managed.saturating_sub(target), target.saturating_sub(managed));
        let spared = |zone: &Plan| zone.kind == ZoneKind::Dma && layout.is_pc();
        for zone in zones.iter_mut().filter(|zone| zone.node == node && !spared(zone)) {
            let (taken, given) = (less.min(zone.managed / 2), more.min(zone.present - zone.managed));
            zone.managed = zone.managed - taken + given;
            (less, more) = (less - taken, more - given);
        }
    }
    zones
}

/// Whether transparent huge pages are on when all zones manage this much. Below 512 MiB they are off
/// unless they are asked for (`mm/huge_memory.c:hugepage_init`, 2.6.38 on).
pub(crate) fn has_transparent_hugepage(tuning: &Tuning, managed: Bytes) -> bool {
    tuning.transparent_hugepage.unwrap_or(managed >= Bytes::mib(512))
}

/// Costs on a machine with pages of this size, of those of 4 KiB: what is done to every byte of a page takes
/// as long as the page is large. A copy may be of a part of a page, and is charged by the block.
fn of_page(costs: Costs, page: PageSize) -> Costs {
    let times = page.bytes().0 / BLOCK;
    Costs {
        zero: costs.zero * times,
        compress: costs.compress * times,
        decompress: costs.decompress * times,
        ..costs
    }
}

/// Pages of each node that its zones do not manage, given the pages that are `reserved`.
pub(crate) fn unmanaged(layout: Layout, nodes: &[u64], reserved: Option<&[u64]>) -> Vec<u64> {
    let mut left = nodes.to_vec();
    for part in plan(layout, nodes, reserved) {
        left[part.node] -= part.managed;
    }
    left
}

/// The kernel's own memory on each node, in pages. The default is 24 MiB for its image and boot allocations,
/// and 1/256 of memory for slab, stacks and page tables of the kernel's own (estimate), spread by the nodes'
/// sizes; with zram also its table of slots.
pub(crate) fn kernel_pages(config: &Config) -> Vec<u64> {
    config.kernel_pages.clone().unwrap_or_else(|| {
        let memory = config.nodes.iter().sum::<u64>();
        let table = if config.zram.is_some() { zram::table_pages(config.swap_pages, config.page) } else { 0 };
        let pages = config.page.pages(Bytes::mib(24)) + memory / 256 + table;
        let share = |node: &u64| u128::from(pages) * u128::from(*node) / u128::from(memory.max(1));
        config.nodes.iter().map(|node| share(node) as u64).collect()
    })
}

fn index(kind: ZoneKind) -> usize {
    match kind {
        ZoneKind::Dma => 0,
        ZoneKind::Dma32 => 1,
        ZoneKind::Movable => 3,
        _ => 2,
    }
}

impl Zone {
    /// Position among the zones of a node: DMA, DMA32, Normal, Movable.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        index(self.kind)
    }
    #[inline]
    pub(crate) fn wmark_pages(&self, wmark: Watermark) -> u64 {
        match wmark {
            Watermark::Min => self.min_wmark_pages(),
            Watermark::Low => self.low_wmark_pages(),
            Watermark::High => self.high_wmark_pages(),
        }
    }
    pub(crate) fn min_wmark_pages(&self) -> u64 {
        self.watermark.min + self.boost
    }
    pub(crate) fn low_wmark_pages(&self) -> u64 {
        self.watermark.low + self.boost
    }
    pub(crate) fn high_wmark_pages(&self) -> u64 {
        self.watermark.high + self.boost
    }
    /// Counts pages that enter or leave a list (`update_lru_size`). Which generations are active is decided
    /// only when the counts are printed.
    #[inline]
    fn update_lru_size(&mut self, which: usize, anon: bool, pages: i64) {
        let mut classic = which;
        if which >= list::FIRST_GENERATION {
            let size = &mut self.generations[which - list::FIRST_GENERATION];
            *size = size.wrapping_add_signed(pages);
            classic = list::inactive(anon);
        }
        self.lru[classic] = self.lru[classic].wrapping_add_signed(pages);
    }
    /// Managed pages that are there when the other CPUs come up, if all pages of this zone but the `first`
    /// ones are deferred. Pages that are not managed are the kernel's image, which lies below them, and page
    /// descriptors, which are at the other end.
    pub(crate) fn first_managed(&self, first: u64, layout: Layout) -> u64 {
        // The first boundary of a section that has at least `first` pages of the zone before it.
        let end = (self.start_pfn + first).next_multiple_of(layout.section());
        let image = (self.present - self.managed).saturating_sub(layout.descriptors(self.present));
        self.managed.min((end - self.start_pfn).saturating_sub(image))
    }
    /// Whether an order-0 request may take a page at this watermark, if `highest` is the highest zone that it
    /// may use.
    #[inline]
    pub(crate) fn passes(&self, wmark: u64, highest: usize) -> bool {
        self.free > wmark + self.reserve[highest]
    }
}

impl Mm {
    /// An idle machine after boot. `config` must have been validated: nodes with memory.
    pub fn new(config: &Config) -> Self {
        let (page, sizes) = (config.page, Orders::of(config.page));
        let layout = Layout::of(&config.generation, page);
        // A PC's six pageblocks have 12 MiB, less than any machine.
        let memory = config.nodes.iter().sum::<u64>();
        let enough = layout.is_pc() || memory >= MIGRATE_TYPES * u64::from(sizes.pageblock_pages());
        let groups_by_mobility = config.generation.groups_by_mobility && enough;
        let generation = Generation { groups_by_mobility, ..config.generation };
        let mut zones = Vec::new();
        for part in plan(layout, &config.nodes, config.reserved_pages.as_deref()) {
            zones.push(Zone {
                kind: part.kind,
                number: zones.len(),
                node: part.node,
                lruvec: if generation.lru_per_node { part.node } else { zones.len() },
                start_pfn: part.start_pfn,
                present: part.present,
                managed: part.managed,
                watermark: Watermarks { min: 0, low: 0, high: 0, promo: None },
                boost: 0,
                max_boost: 0,
                compact_cached: None,
                boosted: false,
                reserve: [0; 5],
                dirty_reserve: 0,
                free: part.managed,
                area: FreeArea::new(sizes),
                unnumbered: part.managed,
                pcp: vec![PerCpuPages::default(); config.cpus.max(1) as usize],
                pcp_batch: 0,
                pcp_high: 0,
                pcp_high_max: 0,
                below_high: false,
                stat: [0; STATS],
                numa: NumaStats::default(),
                pages_scanned: 0,
                all_unreclaimable: false,
                alloc_batch: 0,
                full_until: vec![0; config.nodes.len()],
                min_unmapped: 0,
                min_slab: 0,
                lru: [0; 6],
                generations: [0; 8],
            });
        }
        let nodes: Vec<Node> = (0..config.nodes.len())
            .map(|node| Node {
                zones: (0..zones.len()).filter(|&zone| zones[zone].node == node).collect(),
                zonelist: Vec::new(),
                nofragment: false,
                kswapd: Default::default(),
                total_reserve: 0,
                distance: config.distance[node].clone(),
            })
            .collect();
        let lruvecs: Vec<Lruvec> = if generation.lru_per_node {
            nodes.iter().map(|node| Lruvec::new(&generation, page, node.zones.clone(), &zones)).collect()
        } else {
            (0..zones.len()).map(|zone| Lruvec::new(&generation, page, vec![zone], &zones)).collect()
        };
        let far = config.distance.iter().flatten().any(|&distance| distance > generation.reclaim_distance);
        let zone_reclaim_mode =
            config.tuning.zone_reclaim_mode.unwrap_or(u64::from(generation.zone_reclaim_auto && far));
        let managed = zones.iter().map(|zone| zone.managed).sum();
        let mut mm = Mm {
            page,
            generation,
            tuning: config.tuning.clone(),
            costs: of_page(config.costs, page),
            cpus: config.cpus.max(1) as usize,
            frames: Frames::new(MOST_FRAMES, sizes),
            entries: Default::default(),
            zones,
            nodes,
            lruvecs,
            lru_locking: LruLocking::new(config.cpus.max(1) as usize),
            total_reserve: 0,
            zone_reclaim_mode,
            min_free_kbytes: 0,
            objects: Objects::default(),
            processes: Vec::new(),
            tasks: Vec::new(),
            swap: Swap::new(config),
            zpool: Zram::pool(config).or_else(|| Zswap::pool(config)),
            zram: Zram::new(config),
            zswap: Zswap::new(config, managed),
            writeback: Writeback::new(page),
            events: Events::default(),
            blank: Blank::of(&config.generation),
            instant_reads: config.instant_reads,
            own_marks: generation.policy.has_own_marks(),
            queues: WriteQueues::new(config),
            filesystem: config.filesystem,
            ext4: None,
            slab: Slab::new(config),
            hugetlb: Hugetlb::new(config.nodes.len(), sizes.pageblock, config.tuning.nr_overcommit_hugepages),
            committed: 0,
            others_committed: 0,
            others_pgtables: Vec::new(),
            tables_taken: 0,
            tree: Nodes::of(config),
            flights: Default::default(),
            outbox: Vec::new(),
            woken: Vec::new(),
            in_lru_fault: false,
            evictions: None,
        };
        mm.setup_min_free_kbytes();
        mm.setup_per_zone_wmarks();
        mm.build_zonelists();
        mm.boot_kernel(&kernel_pages(config));
        mm.boot_pgtables(config.others_pgtable_pages);
        mm.boot_pagesets(&config.pagesets);
        mm.boot_hugepages(config.tuning.nr_hugepages);
        for zone in &mut mm.zones {
            zone.alloc_batch = (zone.watermark.high - zone.watermark.low) as i64;
        }
        mm.writeback_set_ratelimit();
        mm
    }

    /// Sets `min_free_kbytes`, which khugepaged raises.
    fn setup_min_free_kbytes(&mut self) {
        let (rules, page) = (&self.generation.rules.watermarks, self.page);
        let lowmem = self.totalram_pages();
        self.min_free_kbytes = self.tuning.min_free_kbytes.unwrap_or_else(|| {
            let default = watermarks::min_free_kib(rules, page.kib(lowmem));
            if has_transparent_hugepage(&self.tuning, page.of(lowmem)) {
                default.max(watermarks::khugepaged_min_free_kib(page, self.zones.len() as u64, lowmem))
            } else {
                default
            }
        });
    }

    /// Sets up watermarks, lowmem reserves and per-CPU lists.
    fn setup_per_zone_wmarks(&mut self) {
        let (rules, page) = (self.generation.rules.watermarks, self.page);
        let tuning = watermarks::WatermarkSettings {
            min_free_kib: self.min_free_kbytes,
            scale_factor: self.tuning.watermark_scale_factor,
            extra_free_kib: self.tuning.extra_free_kbytes,
        };
        let as_given: Vec<watermarks::Zone> = (self.zones.iter())
            .map(|zone| watermarks::Zone { kind: zone.kind, present: zone.present, managed: zone.managed })
            .collect();
        let computed = watermarks::watermarks(&rules, &tuning, &as_given, page);
        for (zone, watermark) in self.zones.iter_mut().zip(computed) {
            zone.watermark = watermark;
            // Small zones are not boosted.
            let pageblock = u64::from(zone.area.sizes.pageblock_pages());
            if rules.boost && zone.managed >= 4 * pageblock {
                let factor = self.tuning.watermark_boost_factor;
                zone.max_boost = watermarks::boost_max(watermark.high, factor, pageblock);
            }
        }
        let mut everything = 0;
        for node in 0..self.nodes.len() {
            let mut managed = [0u64; 4];
            for &zone in &self.nodes[node].zones {
                managed[self.zones[zone].index()] = self.zones[zone].managed;
            }
            let reserves = lowmem_reserve(&managed, &self.tuning.lowmem_reserve_ratio);
            for &zone in &self.nodes[node].zones {
                let zone = &mut self.zones[zone];
                for (to, from) in zone.reserve.iter_mut().zip(&reserves[index(zone.kind)]) {
                    *to = *from;
                }
                // ZONE_DEVICE, which has no pages, is above ZONE_MOVABLE.
                let [.., movable, device] = &mut zone.reserve;
                *device = *movable;
                let largest = zone.reserve.iter().copied().max().unwrap_or(0);
                zone.dirty_reserve = (zone.watermark.high + largest).min(zone.managed);
            }
            let zones = self.nodes[node].zones.iter().map(|&zone| {
                let zone = &self.zones[zone];
                let protection_max = zone.reserve.iter().copied().max().unwrap_or(0);
                ReserveZone { managed: zone.managed, high: zone.watermark.high, protection_max }
            });
            let reserve = totalreserve_pages(zones);
            self.nodes[node].total_reserve = reserve;
            everything += reserve;
        }
        self.total_reserve = everything;
        let cpus_of_node = (self.cpus / self.nodes.len()).max(1) as u64;
        for zone in &mut self.zones {
            zone.pcp_batch = pcp::batch(&self.generation.pcp, zone.managed, page);
            zone.pcp_high =
                pcp::high(&self.generation.pcp, zone.watermark.low, cpus_of_node, zone.managed, page);
            zone.pcp_high_max = pcp::high_max(zone.managed, cpus_of_node).max(zone.pcp_high);
            if let Some(share) = zone.managed.checked_div(self.tuning.percpu_pagelist_high_fraction) {
                zone.pcp_high = (share / cpus_of_node).max(4 * zone.pcp_batch);
                zone.pcp_high_max = zone.pcp_high;
            }
            zone.min_unmapped = zone.managed * self.tuning.min_unmapped_ratio / 100;
            zone.min_slab = zone.managed * self.tuning.min_slab_ratio / 100;
        }
    }

    /// Whether zonelists are in zone order: the Normal zones of all nodes come before any DMA32 zone
    /// (`mm/page_alloc.c:default_zonelist_order`).
    fn has_zone_order(&self) -> bool {
        let size = |zones: &[usize]| {
            let present = |&zone: &usize| self.zones[zone].present;
            let low = |zone: &&usize| matches!(self.zones[**zone].kind, ZoneKind::Dma | ZoneKind::Dma32);
            (zones.iter().filter(low).map(present).sum::<u64>(), zones.iter().map(present).sum::<u64>())
        };
        let nodes: Vec<(u64, u64)> = self.nodes.iter().map(|node| size(&node.zones)).collect();
        let (low, all) = nodes.iter().fold((0, 0), |sum, node| (sum.0 + node.0, sum.1 + node.1));
        let average = all / (nodes.len() as u64 + 1);
        let no_normal = |&(low, all): &(u64, u64)| low == all;
        let mostly_low = |&(low, all): &(u64, u64)| all > average && low * 10 > all * 7;
        self.generation.zonelist_order
            && low > 0
            && low <= all / 2
            && !nodes.iter().any(|node| no_normal(node) || mostly_low(node))
    }

    /// Builds each node's zonelist: its own zones from high to low, then those of the next best node. In zone
    /// order, all zones of one kind come before those of the next.
    fn build_zonelists(&mut self) {
        let count = self.nodes.len();
        let zone_order = self.has_zone_order();
        let mut load = vec![0u64; count];
        for own in 0..count {
            let mut order = vec![own];
            while order.len() < count {
                let score = |node: usize| {
                    let distance = u64::from(self.nodes[own].distance[node]);
                    let behind = u64::from(node < own);
                    // The penalty for CPUs is the same for all nodes, because every node has some.
                    ((distance + behind + 1) * 1024 + load[node], node)
                };
                let Some(best) = (0..count).filter(|node| !order.contains(node)).min_by_key(|&n| score(n))
                else {
                    break;
                };
                let previous = order[order.len() - 1];
                if self.nodes[own].distance[best] != self.nodes[own].distance[previous] {
                    load[best] += (count - order.len()) as u64;
                }
                order.push(best);
            }
            let zones = order.iter().flat_map(|&node| self.nodes[node].zones.iter().rev().copied());
            let mut zonelist: Vec<usize> = zones.collect();
            if zone_order {
                zonelist.sort_by_key(|&zone| std::cmp::Reverse(self.zones[zone].index()));
            }
            let first = &self.zones[zonelist[0]];
            let lower = count == 1 || self.nodes[first.node].zones.len() > 1;
            self.nodes[own].nofragment =
                self.generation.rules.watermarks.boost && first.kind == ZoneKind::Normal && lower;
            self.nodes[own].zonelist = zonelist;
        }
    }

    /// Takes the kernel's own memory from the highest zones of each node, but at most half of the node.
    fn boot_kernel(&mut self, pages: &[u64]) {
        for (node, &pages) in pages.iter().enumerate().take(self.nodes.len()) {
            let managed: u64 = self.nodes[node].zones.iter().map(|&zone| self.zones[zone].managed).sum();
            let mut left = pages.min(managed / 2);
            for zone in self.nodes[node].zones.clone().into_iter().rev() {
                let keep = self.zones[zone].watermark.high * 2;
                let take = left.min(self.zones[zone].free.saturating_sub(keep));
                let mut taken = Vec::new();
                let request = self.generation.request(self.generation.grouped(MigrateType::Unmovable));
                self.zones[zone].rmqueue_bulk(&mut self.frames, request, take, &mut taken);
                for frame in taken {
                    self.frames[frame as usize].flags |= flag::USED | flag::KERNEL;
                    match self.slab.boot.last_mut() {
                        Some(last) if last.end == frame => last.end += 1,
                        _ => self.slab.boot.push(frame..frame + 1),
                    }
                }
                self.zones[zone].stat[super::vmstat::Stat::SlabUnreclaimable as usize] += take;
                left -= take;
            }
        }
    }

    /// Fills the CPUs' lists from the highest zone of each node, but keeps the zone above its high watermark.
    fn boot_pagesets(&mut self, nodes: &[Vec<u64>]) {
        for (node, cpus) in nodes.iter().enumerate().take(self.nodes.len()) {
            let Some(&zone) = self.nodes[node].zones.last() else { continue };
            for (cpu, &pages) in cpus.iter().enumerate().take(self.cpus) {
                let keep = self.zones[zone].watermark.high;
                let take = pages.min(self.zones[zone].free.saturating_sub(keep));
                self.zones[zone].boot_pageset(&mut self.frames, &self.generation, cpu, take);
            }
        }
    }

    #[inline]
    pub(crate) fn lruvec_of(&self, zone: usize) -> usize {
        self.zones[zone].lruvec
    }

    pub(crate) fn lruvec_of_frame(&self, frame: u32) -> usize {
        self.lruvec_of(self.frames[frame as usize].zone())
    }

    /// The sum of `what` over a node's zones.
    pub(crate) fn node_sum(&self, node: usize, what: impl Fn(&Zone) -> u64) -> u64 {
        self.nodes[node].zones.iter().map(|&zone| what(&self.zones[zone])).sum()
    }

    /// Sum of `what` over the zones of an lruvec.
    pub(crate) fn lruvec_sum(&self, lruvec: usize, what: impl Fn(&Zone) -> u64) -> u64 {
        self.lruvecs[lruvec].zones.iter().map(|&zone| what(&self.zones[zone])).sum()
    }

    /// Collects the counters of each lruvec for reclaim (`mm/memcontrol.c:flush_memcg_stats_dwork`).
    pub(crate) fn flush_stats(&mut self) {
        for index in 0..self.lruvecs.len() {
            let now = self.lruvecs[index].classic();
            if let Some(flushed) = &mut self.lruvecs[index].flushed {
                *flushed = now;
                self.generation.policy.flush_stats(self, index);
            }
        }
    }

    /// Puts a frame that is on no list on one, at the head.
    #[inline(always)]
    pub(crate) fn lru_add(&mut self, frame: u32, to: usize) {
        let f = &mut self.frames[frame as usize];
        debug_assert_eq!((f.list(), f.flags & flag::PROMOTED), (list::NONE, 0));
        f.flags |= to as u32;
        let anon = f.has(flag::ANON);
        let zone = &mut self.zones[f.zone()];
        zone.update_lru_size(to, anon, 1);
        let lruvec = &mut self.lruvecs[zone.lruvec];
        let place = lruvec.place(to, zone.number);
        lruvec.lists[place].push_head(&mut self.frames, frame);
    }

    /// Pages that all zones manage (`totalram_pages`).
    pub(super) fn totalram_pages(&self) -> u64 {
        self.zones.iter().map(|zone| zone.managed).sum()
    }

    /// Takes a frame off its list.
    #[inline(always)]
    pub(crate) fn lru_remove(&mut self, frame: u32) {
        let f = &mut self.frames[frame as usize];
        let from = f.list();
        if from == list::NONE {
            return;
        }
        let (counted, anon) = (f.counts_in(), f.has(flag::ANON));
        let zone = &mut self.zones[f.zone()];
        f.flags &= !(flag::LIST | flag::PROMOTED);
        zone.update_lru_size(counted, anon, -1);
        let lruvec = &mut self.lruvecs[zone.lruvec];
        let place = lruvec.place(from, zone.number);
        lruvec.lists[place].remove(&mut self.frames, frame);
    }

    /// Moves a frame to the head or tail of a list, which may be its own.
    #[inline]
    pub(crate) fn lru_move(&mut self, frame: u32, to: usize, tail: bool) {
        let f = &mut self.frames[frame as usize];
        let (from, counted, anon) = (f.list(), f.counts_in(), f.has(flag::ANON));
        f.flags = (f.flags & !(flag::LIST | flag::PROMOTED)) | to as u32;
        let zone = &mut self.zones[f.zone()];
        let lruvec = &mut self.lruvecs[zone.lruvec];
        if from != list::NONE {
            let place = lruvec.place(from, zone.number);
            lruvec.lists[place].remove(&mut self.frames, frame);
        }
        let place = lruvec.place(to, zone.number);
        if tail {
            lruvec.lists[place].push_tail(&mut self.frames, frame);
        } else {
            lruvec.lists[place].push_head(&mut self.frames, frame);
        }
        if counted == to {
            return;
        }
        if counted != list::NONE {
            zone.update_lru_size(counted, anon, -1);
        }
        zone.update_lru_size(to, anon, 1);
    }

    /// Lengths of the classic lists of one zone, as `/proc` shows them: pages on the policy's own lists count
    /// as active if the policy says so.
    pub(crate) fn zone_lru_sizes(&self, zone: usize) -> [u64; 6] {
        let lruvec = self.lruvec_of(zone);
        let zone = &self.zones[zone];
        let mut sizes = zone.lru;
        for (which, &pages) in (list::FIRST_GENERATION..).zip(&zone.generations) {
            if pages > 0 && self.generation.policy.is_active(self, lruvec, which) {
                let anon = which % 2 == ANON;
                sizes[list::active(anon)] += pages;
                sizes[list::inactive(anon)] -= pages;
            }
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;

    /// Names of the zones in the zonelist of a node, on a machine of two nodes with `gib` GiB each.
    fn zonelist(generation: &str, gib: u64, node: usize) -> Vec<String> {
        let mm = Mm::new(&Config::new(Generation::named(generation).unwrap(), vec![gib << 18; 2]));
        let name = |&zone: &usize| format!("{:?} {}", mm.zones[zone].kind, mm.zones[zone].node);
        mm.nodes[node].zonelist.iter().map(name).collect()
    }

    #[test]
    fn a_small_machine_has_no_transparent_huge_pages_unless_asked() {
        let kbytes = |mib: u64, transparent_hugepage| {
            let tuning = Tuning { transparent_hugepage, ..Tuning::default() };
            let config = Config::new(Generation::linux_6_1(), vec![mib << 8]);
            Mm::new(&Config { tuning, ..config }).min_free_kbytes
        };
        // The zones manage 503 and 590 MiB; min_free_kbytes is the square root of 16 times that many KiB, or
        // 5 % of it.
        assert_eq!((kbytes(512, None), kbytes(512, Some(true))), (2871, 25_764));
        assert_eq!((kbytes(600, None), kbytes(600, Some(false))), (30_200, 3108));
    }

    #[test]
    fn rhel_6_4_reclaims_its_zones_already_from_a_distance_of_21_on() {
        let mode = |generation: &str, distance: u32| {
            let of = |from: usize| (0..2).map(|to| if from == to { 10 } else { distance }).collect();
            let config = Config::new(Generation::named(generation).unwrap(), vec![1 << 18; 2]);
            Mm::new(&Config { distance: (0..2).map(of).collect(), ..config }).zone_reclaim_mode
        };
        for (generation, expected) in [("linux-2.6.32-rhel6.4", [0, 1, 1]), ("linux-2.6.32-rhel6", [0, 0, 1])]
        {
            assert_eq!([20, 21, 31].map(|distance| mode(generation, distance)), expected, "{generation}");
        }
    }

    #[test]
    fn old_kernels_spare_low_memory_where_there_is_little_of_it() {
        let zone_order = ["Normal 0", "Normal 1", "Dma32 0", "Dma 0"];
        let node_order = ["Normal 0", "Dma32 0", "Dma 0", "Normal 1"];
        assert_eq!(zonelist("linux-3.10", 8, 0), zone_order);
        assert_eq!(zonelist("linux-3.10", 8, 1), ["Normal 1", "Normal 0", "Dma32 0", "Dma 0"]);
        assert_eq!(zonelist("linux-4.4", 8, 0), node_order);
        // DMA and DMA32 take more than seven tenths of the first node.
        assert_eq!(zonelist("linux-3.10", 4, 0), node_order);
        // A node lacks a Normal zone.
        assert_eq!(zonelist("linux-3.10", 3, 1), ["Normal 1", "Dma32 0", "Dma 0"]);
        assert_eq!(zonelist("linux-3.10", 1, 0), ["Dma32 0", "Dma 0", "Dma32 1"]);
    }
}
