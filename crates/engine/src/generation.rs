//! [`Generation`]: the differences between kernels, as a record of switches. Rules test a switch, never a
//! version; only the contents of `/proc` follow the release.
//!
//! What no generation has (kcompactd, control groups and more) has no switch here:
//! SPECIFICATION.md, "What the model does not have yet", lists it.
//!
//! The closed forms have their own record, [`Rules`], which a generation contains. A release in parentheses
//! is the first that behaves in this way, with the commit where it is known. "Read in" names the oldest tree
//! that was looked at, where it is not known which release brought the change.

use lotsfree_formulas::Rules;
use lotsfree_formulas::dirty::{DirtyRules, Reserve};
use lotsfree_formulas::pcp::PcpRules;
use lotsfree_scenario::Filesystem;
use lotsfree_units::Bytes;

use crate::mm::Badness;
use crate::mm::mglru::Mglru;
use crate::mm::policy::{self, Policy};
use crate::mm::two_lists::TwoLists;

/// A section of memory on x86-64 (`SECTION_SIZE_BITS`).
pub(crate) const SECTION: Bytes = Bytes::mib(128);

/// How an accessed bit found on the inactive list counts (`mm/vmscan.c:page_check_references`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceRule {
    /// Anonymous pages are activated at once, file pages at the second round (2.6.32 of RHEL 6, 3.0).
    SecondRound,
    /// Anonymous pages are activated at once, file pages at the second round or when several page tables have
    /// accessed them (3.3, 34dbc67a644f).
    SwapBackedAtOnce,
    /// One rule for both types: activated at the second round, or when several page tables have accessed them
    /// (5.9, b518154e59aa).
    OneRule,
    /// With the multi-generational LRU: activated when it is not the first accessed bit that reclaim, aging
    /// or looking around has found, or if system calls have read the page (6.14, "mm/mglru: rework workingset
    /// protection"; `lru_gen_set_refs`).
    SecondBit,
}

/// How the pressure on anonymous and file pages is balanced (`mm/vmscan.c:get_scan_count`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Shares follow how many of the scanned pages had to be rotated (through 5.7).
    Rotation,
    /// Shares follow what reclaim and refaults cost, in pages (5.8, 314b57fb0460).
    Cost,
    /// Cost with I/O weighted 32 times a rotation (6.2, 0538a82c39e9; RHEL 8.10).
    WeightedCost,
}

/// Which anonymous regions begin at a multiple of a huge page's size (`mm/mmap.c:__get_unmapped_area`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignsAnon {
    /// None.
    Never,
    /// Those as long as a huge page (6.7, efa7df3e3bb5).
    Long,
    /// Those whose length is a multiple of it (6.12, d4148aeab412).
    Multiple,
}

/// When file pages alone are scanned because enough of them are inactive (`mm/vmscan.c:get_scan_count`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileOnly {
    /// Never (2.6.32 of RHEL 6, 3.0).
    Never,
    /// The inactive list is at least as long as the active one (3.8, e9868505987a).
    AtLeastActive,
    /// The inactive list is not low by the ratio that anonymous pages have (4.7, 59dc76b0d4df).
    NotLow,
    /// `cache_trim_mode` (5.5, b91ac374346b).
    CacheTrim,
}

/// When anonymous pages alone are scanned because the file cache is nearly gone
/// (`mm/vmscan.c:get_scan_count`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnonOnly {
    /// File pages and free pages of the lruvec together do not exceed the high mark (through 4.4).
    Tiny,
    /// File pages and free pages of the node together do not exceed the high mark, inactive anonymous pages
    /// are not low, and there are enough of these to scan (read in 4.19).
    TinyUnlessLow,
    /// `file_is_tiny`: as before, but provided that anonymous pages need not be deactivated (5.5,
    /// 53138cea7f39).
    FileIsTiny,
}

/// Who may write dirty file pages from the LRU (`mm/vmscan.c:shrink_page_list`). With the multi-generational
/// LRU nobody does: `mm/mglru.rs:sort_page` sets such pages aside, and the flusher writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileWrite {
    /// Every reclaimer (3.0).
    Anyone,
    /// kswapd, at a priority below 10 (3.2, ee72886d8ed5; RHEL 6).
    KswapdInNeed,
    /// kswapd, once much of a batch was found to be dirty (SLES 11 SP3, whose d43006d503ac is that of March
    /// 2013).
    KswapdDirtyBatch,
    /// kswapd, for pages that it has met before, once the tail of the list was found to be all dirty (3.11,
    /// d43006d503ac).
    KswapdDirtyTail,
}

/// The flags by which reclaim remembers what the tail of a zone's lists looked like
/// (`mm/vmscan.c:shrink_inactive_list`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneFlags {
    /// CONGESTED alone (through 3.10).
    Congested,
    /// WRITEBACK and DIRTY too: each is set by a part of a batch, which halves with every priority below 12
    /// (SLES 11 SP3, whose 283aba9f9e0e and d43006d503ac are those of March 2013).
    PartOfBatch,
    /// WRITEBACK and DIRTY are set by a whole batch (3.11, 283aba9f9e0e and e2be15f6c3ee).
    WholeBatch,
}

/// How a writer is held to the dirty limit (`mm/page-writeback.c:balance_dirty_pages`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterThrottle {
    /// The writer writes pages itself, then sleeps (RHEL 6, 3.0).
    WritesItself,
    /// The writer sleeps for as long as its rate requires to fit the device (3.2, 143dfe8611a6).
    Paused,
}

/// How many pages kswapd aims at in one pass over an lruvec (`mm/vmscan.c:kswapd_shrink_zone`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KswapdTarget {
    /// No bound (through 3.10).
    Unlimited,
    /// The zone's high mark (3.11, 75485363ce85).
    ZoneHigh,
    /// The sum of the high marks of the node (4.8, 1d82de618ddd).
    NodeHigh,
}

/// Which of the cached pages around a fault count as hits, each of which takes back a miss
/// (`mm/filemap.c:filemap_map_pages`): too many misses end read-around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmapHit {
    /// Those that it maps (3.15 to 4.7).
    Mapped,
    /// All (4.8, bae473a423f6).
    Cached,
    /// All but those that came back after they had been active (6.10, 8001070cfbec).
    Fresh,
}

/// What a request takes that finds no free page of its migrate type (`mm/page_alloc.c:__rmqueue_fallback`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The largest free block of another type, all of it, and what else of its pageblock is free; a movable
    /// page takes the smallest block if the largest is less than 16 pages (through 6.9).
    Remainder,
    /// A whole pageblock if most of it may be had, otherwise no more than what was asked for, out of the
    /// smallest block (6.10, c0cd6f557b90, as mended in 6.15 and 6.12.29, c2f6ea38fc1b; then the other pages
    /// of the same batch are taken in this way too, a14efee04796).
    BlockOrPage,
}

/// Who makes room in zswap's pool when it is full (`mm/zswap.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZswapShrink {
    /// The task that stores: the allocator frees one of its pages, by writing back the oldest, and the store
    /// goes on (`zswap_shrink`, 3.11 to 5.7).
    InStore,
    /// A worker, likewise; the store is refused, and so are others until the pool has come down to the
    /// threshold (5.8, 45190f01dd40).
    Worker,
    /// A worker, which writes back the oldest entries, whatever the allocator, until the pool has come down
    /// to the threshold or it has given up (`shrink_worker`, read in 6.8).
    Entries,
    /// As before, but an entry that the worker meets for the first time is spared, which counts as a failure;
    /// 16 end its run (`shrink_memcg_cb`, read in 6.12). The pool is full at its limit, not beyond.
    SecondChance,
}

impl ZswapShrink {
    /// Whether the allocator keeps the order of its pages, and writes back what is in one of them.
    pub(crate) fn is_by_allocator(self) -> bool {
        matches!(self, ZswapShrink::InStore | ZswapShrink::Worker)
    }
}

/// What zswap does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZswapRules {
    /// Who makes room in a full pool.
    pub shrink: ZswapShrink,
    /// What is read leaves zswap, and is dirty in memory (c2e2ba770200, read in 6.12; before, the
    /// parameter `exclusive_loads` is off). Otherwise it is in memory twice.
    pub exclusive_loads: bool,
    /// A page that zswap takes counts in `nr_written` (`mm/page_io.c:swap_writepage`; read in 6.8, no longer
    /// in 6.12).
    pub counts_written: bool,
}

impl ZswapRules {
    pub(crate) const LINUX_3_11: ZswapRules =
        ZswapRules { shrink: ZswapShrink::InStore, exclusive_loads: false, counts_written: true };
    pub(crate) const LINUX_5_8: ZswapRules =
        ZswapRules { shrink: ZswapShrink::Worker, ..ZswapRules::LINUX_3_11 };
    pub(crate) const LINUX_6_8: ZswapRules =
        ZswapRules { shrink: ZswapShrink::Entries, ..ZswapRules::LINUX_3_11 };
    pub(crate) const LINUX_6_12: ZswapRules =
        ZswapRules { shrink: ZswapShrink::SecondChance, exclusive_loads: true, counts_written: false };
}

/// How many pages zsmalloc chains to one zspage, which holds compressed pages of one size (`mm/zsmalloc.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZspageChain {
    /// As many, up to 4, as use the largest part of the zspage in whole percents (`get_pages_per_zspage`;
    /// read in 6.1).
    LargestUse,
    /// As many as leave the fewest bytes over (`calculate_zspage_chain_size`; read in 6.12), up to 8, the
    /// default of `CONFIG_ZSMALLOC_CHAIN_SIZE`.
    LeastWaste,
}

/// Which slot of swap a page gets (`mm/swapfile.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapSlots {
    /// The one after the last as long as its cluster of 256 lasts, then one of the next cluster that is
    /// wholly free, then the first of the next that is not full (`scan_swap_map`; through 6.11, and how
    /// linux-6.12 is modelled, which has the lists below but takes free clusters first).
    NextFree,
    /// The next free one of the CPU's cluster of 512, or of the device's where seeks cost time. After that
    /// the clusters come from lists: those that lost a slot since they were used, the oldest first, then
    /// those that are free, then those that were used and have slots left (`cluster_alloc_swap_entry`,
    /// read in 7.0; in this order from 6.18 on, "mm, swap: prefer nonfull over free clusters").
    Clusters,
}

/// How many swap slots are read at a fault (`mm/swap_state.c:swapin_nr_pages`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapReadahead {
    /// The whole aligned block of 2^page-cluster slots (through 3.13).
    Block,
    /// A window that grows with its hits (3.14, 579f82901f6f).
    Adaptive,
}

/// Zones that the zonelist cache takes for full after zone reclaim, and that are skipped for a second
/// (`get_page_from_freelist`, `zlc_mark_zone_full`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonelistCache {
    /// Zones that are still below the mark (2.6.32, 3.0).
    BelowMark,
    /// Zones that are still below the mark; an allocation at the low mark counts them as full only if zone
    /// reclaim freed nothing (3.10; `get_page_from_freelist` of kernels derived from it).
    BelowMinOrNoProgress,
}

/// Differences between kernels with the multi-generational LRU (`mm/vmscan.c`, read in 6.1, 6.8, 6.12 and
/// 6.18). The series of 6.14 is told by the titles of its patches, all of which begin with `mm/mglru`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LruGen {
    /// kswapd ages before it evicts and not in between, and direct reclaim that has aged goes on to evict
    /// (6.1). Otherwise a reclaimer that has aged ends its pass (read in 6.8).
    pub kswapd_ages_first: bool,
    /// A pass ends when the target is reclaimed, and a pass of kswapd also when all zones are 64 pages above
    /// high (read in 6.8). Otherwise a pass ends early only at a priority of 10 and below, when the zones are
    /// above their marks, or, in direct reclaim, after swapping or when others have aged meanwhile (6.1).
    pub stops_at_target: bool,
    /// kswapd starts at the priority that suits its target, but not below this one: 0 (read in 6.8), 6 (read
    /// in 6.12; `set_initial_priority`). `None`: it starts at 12 (6.1).
    pub initial_priority: Option<u8>,
    /// kswapd forgets its fruitless runs at each pass and never sleeps on their account (read in 6.8;
    /// `lru_gen_shrink_node`). Otherwise only progress makes it forget them.
    pub kswapd_never_fails: bool,
    /// Reclaim that may not unmap or may not write leaves the lists alone, and reclaim that may not swap
    /// takes no anonymous page (read in 6.8). Otherwise such pages are skipped, and anonymous pages come
    /// last.
    pub all_or_nothing: bool,
    /// The flushers are woken when all file pages that a pass met were dirty (read in 6.12, not in 6.8).
    pub wakes_flushers: bool,
    /// Only recent refaults are counted as refaults (6.1), otherwise all are.
    pub counts_recent: bool,
    /// Pages that are spared for their tier count as `workingset_activate` (6.1), otherwise recent refaults
    /// do.
    pub counts_protected: bool,
    /// A reclaimer that looks around a page marks the page as referenced, so that it is activated (through
    /// 6.8; `lru_gen_look_around`, `folio_update_gen`). Otherwise the page is kept (read in 6.12).
    pub marks_looked_at: bool,
    /// Direct reclaim that looks around a page activates the neighbours in use only if they are fewer than 15
    /// (6.1). Otherwise it activates all of them (read in 6.8).
    pub activates_few: bool,
    /// Dirty and locked pages and those under writeback move to the next generation when eviction meets
    /// them in the oldest (6.1, 6.8; without the locked ones 6.18). Otherwise they are isolated and
    /// activated, which takes them to the youngest (read in 6.12.117).
    pub sets_unclean_aside: bool,
    /// An accessed bit promotes a page if it is not the first, and PG_workingset marks the pages that were
    /// promoted; until then they are in the second youngest generation if a fault brought them in, in the
    /// oldest if not (6.14, "rework workingset protection"). Otherwise the first accessed bit promotes, and
    /// PG_workingset is a part of the count of accesses by system calls.
    pub promotes_at_second: bool,
    /// A refault is recent for four generations (6.14, "rework refault detection"), otherwise as long as the
    /// generation that the page was evicted from is the oldest.
    pub recent_for_four: bool,
    /// All tiers together decide which type is evicted, and a tier is spared if it refaults half as often
    /// again as the lowest (6.14, "rework type selection", 37a260870f2c). Otherwise the lowest tiers decide,
    /// unless anonymous pages are a generation behind, and a tier is spared at twice as often.
    pub type_by_all_tiers: bool,
    /// Aging is due when a type that may be evicted has three generations left, each of which may have its
    /// own number (6.14, "rework aging feedback"). Otherwise only if these are also of unequal size, and
    /// the oldest file pages are never older than the oldest anonymous ones.
    pub ages_by_generations: bool,
}

impl LruGen {
    /// 6.1.
    pub const LINUX_6_1: Self = LruGen {
        kswapd_ages_first: true,
        stops_at_target: false,
        initial_priority: None,
        kswapd_never_fails: false,
        all_or_nothing: false,
        wakes_flushers: false,
        counts_recent: true,
        counts_protected: true,
        marks_looked_at: true,
        activates_few: true,
        sets_unclean_aside: true,
        promotes_at_second: false,
        recent_for_four: false,
        type_by_all_tiers: false,
        ages_by_generations: false,
    };
    /// 6.8.
    pub const LINUX_6_8: Self = LruGen {
        kswapd_ages_first: false,
        stops_at_target: true,
        initial_priority: Some(0),
        kswapd_never_fails: true,
        all_or_nothing: true,
        counts_recent: false,
        counts_protected: false,
        activates_few: false,
        ..Self::LINUX_6_1
    };
    /// 6.12.
    pub const LINUX_6_12: Self = LruGen {
        initial_priority: Some(6),
        kswapd_never_fails: false,
        wakes_flushers: true,
        marks_looked_at: false,
        sets_unclean_aside: false,
        ..Self::LINUX_6_8
    };
    /// 6.18.
    pub const LINUX_6_18: Self = LruGen {
        sets_unclean_aside: true,
        promotes_at_second: true,
        recent_for_four: true,
        type_by_all_tiers: true,
        ages_by_generations: true,
        ..Self::LINUX_6_12
    };
}

/// Switches of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its name in scenarios, such as `linux-6.1`.
    pub name: &'static str,
    /// Switches of the closed forms.
    pub rules: Rules,
    /// Rules of per-CPU lists; a default stands where [`Rules::pcp`] is unknown.
    pub pcp: PcpRules,
    /// Rules of dirty limits; a default stands where [`Rules::dirty`] is unknown.
    pub dirty: DirtyRules,
    /// What an arm64 machine has below 4 GiB is ZONE_DMA (3.17 to 4.15; again from 5.11 on, 2b8652936f0c,
    /// which 5.10 has taken, unless firmware tells of devices that reach less), otherwise ZONE_DMA32 (again
    /// from 4.16 on, ad67f5a6545f). From 5.5 until then the first GiB was ZONE_DMA and the rest ZONE_DMA32
    /// (1a8e1cef7603).
    pub arm_zone_dma: bool,
    /// Pageblocks are of one migrate type. `Mm::new` takes that from a machine with less memory than six
    /// pageblocks, as one may be whose pageblocks have 512 MiB (`page_group_by_mobility_disabled`).
    pub groups_by_mobility: bool,
    /// What a request takes that finds no free page of its migrate type.
    pub fallback: Fallback,
    /// The slabs of the page cache are modelled. Older kernels have them too, but for those they were not
    /// compared with a kernel yet.
    pub cache_slabs: bool,
    /// ext4's metadata are pages of the cache (`mm/ext4.rs`). Kernels through 3.1, whose writers write pages
    /// themselves, have them too; the model leaves them out there, because with them its 3.0 keeps 0.74 of a
    /// server beside a large file (memory-hogs) instead of 0.42, and it is not known why.
    pub ext4_metadata: bool,
    /// Nodes of swap that hold shadows alone are counted and reclaimed with those of files (6.3,
    /// 5649d113ffce).
    pub swap_shadow_nodes: bool,
    /// A table of one page holds what a cluster of swap has in memory and the shadows of the rest, as long as
    /// a slot of the cluster is in use (6.18, `mm/swap_table.h`). The model leaves out these tables, which
    /// are not reclaimed. Otherwise swap has nodes as files do.
    pub swap_table: bool,
    /// Levels of page tables that `PageTables` counts: those of pages alone, from 5.9 on those above them
    /// too (`include/linux/mm.h:pgtable_pmd_page_ctor`, b2b29d6d0119), from 6.7 on three
    /// (`pagetable_pud_ctor`).
    pub counted_page_tables: u8,
    /// How the OOM killer compares processes.
    pub oom_badness: Badness,
    /// Levels of page tables that count there: those of pages alone, those above them too (4.0,
    /// dc6c9a35b66b), or all (4.15, af5b0f6a09e4).
    pub oom_page_tables: u8,
    /// Of two processes that are equally bad, the OOM killer takes the later one and not the first. What it
    /// says is one message then, too (4.19 to 5.3).
    pub oom_later_wins: bool,
    /// `RLIMIT_DATA` limits private mappings too, and not only the heap of `brk` (`may_expand_vm`, 4.7).
    pub limits_data: bool,
    /// Which anonymous regions begin where a huge page could.
    pub aligns_anon: AlignsAnon,
    /// Nodes with shadows alone are reclaimed when they are more than an eighth of the pages on the lists and
    /// in slabs (read in 5.4), otherwise when they are more than a sixteenth of the node's pages (read in
    /// 4.4).
    pub shadow_nodes_by_lists: bool,
    /// What reclaim and refaults compare of an lruvec's counters (`lruvec_page_state`) is what a work item of
    /// the memory controller collected, at most 2 s ago (read in 6.12), otherwise what is. 6.1 and 6.8
    /// collect when reclaim looks, unless next to nothing has changed (`mem_cgroup_flush_stats`).
    pub flushed_stats: bool,
    /// LRU lists belong to the node, otherwise to the zone (4.8, 599d0c954f91).
    pub lru_per_node: bool,
    /// Pages that a CPU collects before it takes the LRU lock to put them on their lists (`PAGEVEC_SIZE`):
    /// 14, 15 (4.16; read in 5.10 and 6.1), 31 (read in 6.12).
    pub pagevec_size: u32,
    /// The policy that decides which pages stay in memory.
    pub(crate) policy: &'static dyn Policy,
    /// Rules of the multi-generational LRU, used if it is on.
    pub lru_gen: LruGen,
    /// New anonymous pages start on the inactive list (5.9, b518154e59aa; read in 5.15): `insert` of
    /// `mm/two_lists.rs` and `map_swapped_in` of `mm/memory.rs` act on it.
    pub anon_starts_inactive: bool,
    /// How accessed bits count.
    pub reference: ReferenceRule,
    /// A swap-backed page without accessed bits that a system call has marked as referenced is reclaimed only
    /// if it is clean, as file pages are (RHEL 6).
    pub reclaim_clean_any: bool,
    /// How reclaim divides the pressure between anonymous and file pages.
    pub balance: Balance,
    /// When reclaim scans file pages alone.
    pub file_only: FileOnly,
    /// When reclaim scans anonymous pages alone.
    pub anon_only: AnonOnly,
    /// At priority 0 with swappiness above 0 every list is scanned without weights (read in 3.10).
    pub equal_at_priority_zero: bool,
    /// swappiness 0 keeps anonymous pages from being scanned (3.5, fe35004fbf9e; RHEL 6 from 2.6.32-303 on;
    /// SLES 11 SP2, `mm-avoid-swapping-out-with-swappiness-0.patch`). Before that, 1 is added to both
    /// weights.
    pub swappiness_zero_forbids: bool,
    /// Weights are whole percents (through 2.6.35, 76a33fc380c9).
    pub percent: bool,
    /// Scans below 32 pages are saved up until they reach 32 (through 2.6.39, 246e87a93934).
    pub save_small_scans: bool,
    /// kswapd scans at least 32 pages of a list that is too short for the priority (3.0, 246e87a93934). Later
    /// it does so only in zones that it has given up (3.3, b95a2f2d486d; 3.0.39), which the model leaves out.
    pub force_scan: bool,
    /// Direct reclaim that frees nothing at priority 0 with swappiness 0 then swaps after all (RHEL 6.8; not
    /// in 2.6.32-504).
    pub oom_force_anon: bool,
    /// `may_deactivate` decides whether active lists are scanned, otherwise each list decides for itself
    /// (5.5, b91ac374346b).
    pub may_deactivate: bool,
    /// A pass that has met its target goes on in proportion, otherwise it ends (3.11, e82e0561dae9).
    pub proportional: bool,
    /// Direct reclaim ends a pass as soon as its target is met, and waits for a list that is all dirty
    /// (3.11 to 3.15, e82e0561dae9 to 1a501907bbea).
    pub direct_stops: bool,
    /// The most pages that kswapd aims at in one pass.
    pub kswapd_target: KswapdTarget,
    /// kswapd starts again at priority 12 whenever a pass freed 32 pages, and lowers the priority at every
    /// pass (through 3.10). Otherwise it lowers the priority only when less than the target was scanned
    /// (3.11, b8e83b942a16).
    pub kswapd_restarts: bool,
    /// kswapd's last priority: 0, or 1 (3.11, 9aa41348a8d1; RHEL 6 from 2.6.32-464 on; SLES 11 SP3).
    pub kswapd_last_priority: u8,
    /// A node counts as balanced when one zone is, otherwise when all of them are (4.8, 1d82de618ddd).
    pub balanced_by_one: bool,
    /// A zone is reclaimed beyond its high mark by the balance gap (2.6.39 to 4.7; RHEL 6).
    pub balance_gap: bool,
    /// The part of the highest zone of each node that is there when the other CPUs come up; the zone also has
    /// the memory from there to the end of a section of 128 MiB, and gets the rest later (`defer_init`; 2 GiB
    /// from 4.2 to 4.15, one section from 4.16 on, with `CONFIG_DEFERRED_STRUCT_PAGE_INIT`, which
    /// distributions set). `None`: all memory is there.
    pub first_pages: Option<Bytes>,
    /// The multi-queue block layer is used: it has a queue of 256 requests that is never congested, of which
    /// writes take three quarters at most, and writeback throttling (5.0 on; throttling exists from 4.10 on).
    pub blk_mq: bool,
    /// Blocks of 4 KiB of the largest request: `max_sectors_kb` is 512, or 1280 from 4.3 on
    /// (`BLK_DEF_MAX_SECTORS`).
    pub request_pages: u32,
    /// Requests that a task collects before it sends them: 16, or 32 from 5.16 on (`BLK_MAX_REQUEST_COUNT`).
    pub plug_requests: u32,
    /// Writeback throttling favours whoever writes to swap (`block/blk-wbt.c:get_limit`; read in 6.12, not in
    /// 6.8), otherwise kswapd.
    pub swap_is_favoured: bool,
    /// Sixteen fruitless runs put kswapd to sleep (4.12, c73322d098e4). Otherwise a zone is given up after
    /// six times its reclaimable pages were scanned in vain.
    pub kswapd_failures: bool,
    /// kswapd marks a zone that was scanned in vain, until a page of it is freed (through 3.11;
    /// `zone->all_unreclaimable`). Otherwise each reclaimer computes it when needed (3.12, 6e543d5780e3).
    pub unreclaimable_mark: bool,
    /// Who may write dirty file pages from the LRU.
    pub file_write: FileWrite,
    /// File systems that reclaim does not ask to write pages: they have no `->writepage` (XFS from 6.0 on,
    /// ext3 and ext4 from 6.2 on).
    pub without_writepage: &'static [Filesystem],
    /// What sets the flags of a zone.
    pub zone_flags: ZoneFlags,
    /// Only kswapd and zone reclaim write file pages to a congested device (through 5.17, fe55d563d417;
    /// `may_write_to_queue`). From 5.0 on no queue of requests is ever congested.
    pub spares_congested: bool,
    /// Dirty pages and pages under writeback that reclaim meets are activated until they are clean (4.11,
    /// c55e8d035b28; read in 5.4), otherwise they stay inactive.
    pub dirty_activates: bool,
    /// `reclaim_throttle` took the place of `congestion_wait` (5.16, 8cd7c588decf; RHEL 8.7).
    pub reclaim_throttle: bool,
    /// Direct reclaim is held while free memory is below half of the min marks (3.6, 5515061d22f0).
    pub pfmemalloc_throttle: bool,
    /// kswapd waits for the device at priorities below 10 (read in RHEL 6 and 3.0, gone in 3.10).
    pub kswapd_congestion_wait: bool,
    /// Direct reclaim wakes the flushers for as many pages as it scanned (through 4.10, bbef938429f5).
    pub direct_wakes_flushers: bool,
    /// `should_reclaim_retry`: sixteen fruitless rounds before OOM, otherwise one (4.7, 0a0337e0d1d1).
    pub reclaim_retries: bool,
    /// zone_reclaim_mode is 1 at boot if a node is farther than RECLAIM_DISTANCE (through 3.15,
    /// 4f9b16a64753).
    pub zone_reclaim_auto: bool,
    /// RECLAIM_DISTANCE (`include/linux/topology.h`): 20 in RHEL 6 through 2.6.32-463, otherwise 30.
    pub reclaim_distance: u32,
    /// Only nodes within RECLAIM_DISTANCE are reclaimed by zone reclaim (3.8, 957f822a0ab9).
    pub zone_reclaim_near: bool,
    /// Zone reclaim skips mapped pages when it isolates, otherwise it keeps them when it meets them (3.2,
    /// f80c0673610e).
    pub isolate_unmapped: bool,
    /// Only one task at a time may run zone reclaim in a zone (not in RHEL 6 from 2.6.32-411 on).
    pub zone_reclaim_lock: bool,
    /// After zone reclaim has succeeded, the zone is tested at the min mark (RHEL 6 from 2.6.32-411 on).
    pub zone_reclaim_relaxed: bool,
    /// An allocation waits for the devices between rounds whatever their state (RHEL 6, `congestion_wait`),
    /// otherwise only if the zone is flagged as congested (2.6.37, 0e093d99763e; `wait_iff_congested`).
    pub alloc_congestion_wait: bool,
    /// Rotating disks have the CFQ scheduler (default through 4.20), otherwise deadline.
    pub cfq: bool,
    /// The zonelist cache (through 4.3, f77cf4e4cc9d).
    pub zonelist_cache: Option<ZonelistCache>,
    /// Zonelists are in zone order where little memory is low (through 3.17, 3193913ce62c).
    pub zonelist_order: bool,
    /// Zones take turns in batches (3.12 to 4.7, 81c0a2bb515f to e6cbd7f2efb4).
    pub fair_zones: bool,
    /// On several nodes, pages of users and of their files first come from nodes whose kswapd sleeps, then
    /// from any in the usual order (6.18, "mm: page_alloc: avoid kswapd thrashing due to NUMA
    /// restrictions").
    pub idle_nodes_first: bool,
    /// `copy_file_range` is there (4.5, 29732938a628). `cp` reads and writes instead where it is not.
    pub copy_file_range: bool,
    /// Which slot of swap a page gets.
    pub swap_slots: SwapSlots,
    /// How many swap slots are read at a fault.
    pub swap_readahead: SwapReadahead,
    /// A read that is larger than the window is read in requests of the disk's size
    /// (`mm/readahead.c`, 4.10 on, 9491ae4aade6).
    pub readahead_io_pages: bool,
    /// A window that is read ahead ends at a multiple of the size that its folios may have, which grows from
    /// window to window (6.17, "mm/readahead: terminate async readahead on natural boundary"). The model has
    /// the end, not the folios.
    pub aligns_readahead: bool,
    /// A read fault maps up to 16 cached pages (3.15, 8c6e50b0290c). Which of them speak for read-around.
    pub fault_around: Option<MmapHit>,
    /// A task counts a fault as major that had to be retried, because it met a locked page or started
    /// readahead (`mm/memory.c:mm_account_fault`, 5.9 on). With locks per VMA (6.4 on) most are not retried.
    pub retried_is_major: bool,
    /// Each try of a fault counts as `pgfault` (read in 5.10 and 6.1), otherwise only its end (read in 6.8).
    /// Older kernels count each try too, but for these it was not compared with a kernel yet.
    pub counts_retries: bool,
    /// A write fault that has dirtied a page of a file gives up its lock while the writer is throttled, and
    /// is retried (5.5, 89b15332af7c). In 6.0 and RHEL 8.10 it is complete then (d92725256b4f).
    pub dirty_fault_retries: bool,
    /// The flusher writes for a tenth of a second before it looks at the limit again
    /// (`fs/fs-writeback.c:writeback_sb_inodes`, 3.2 on, e6fb6da2e107).
    pub flusher_passes: bool,
    /// `vm.dirty_ratio` at boot: 20, or 40 (SLES 11, `mm-tune-dirty-limits.patch`).
    pub dirty_ratio: u64,
    /// An idle device's share of the dirty limit is at least an eighth of what is left below the limit, and
    /// never more than the limit (read in 6.18, not in 6.12; `__wb_calc_thresh`). Otherwise it is at least an
    /// eighth of what is left below a limit that follows a falling one slowly (`wb_position_ratio`).
    pub share_within_limit: bool,
    /// How writers are held to the dirty limit.
    pub writers: WriterThrottle,
    /// Dirty spreading: pages for writing avoid zones (nodes from 4.8 on) that are over their dirty limit
    /// (3.3, a756cf5908530).
    pub dirty_spreading: bool,
    /// Refaults of anonymous pages are detected too, and the nonresident clock serves both types (5.9,
    /// 170b04b7ae49, aae466b0052e).
    pub anon_refault: bool,
    /// A fault on a page that a synchronous device has (zram) reads that page alone, past the swap cache, and
    /// gives its slot back at once (`SWP_SYNCHRONOUS_IO` in `mm/memory.c:do_swap_page`; 4.15, 0bcac06f27d7).
    /// Otherwise it reads ahead, and page and slot are kept.
    pub skips_swap_cache: bool,
    /// A page that is read past the swap cache is mapped writable although the fault was a load
    /// (`mm/memory.c:do_swap_page`; read in 6.12, not in 6.1). Otherwise the first store faults again.
    pub swapin_is_writable: bool,
    /// Swap hands zram single pages without a bio (`bdev_write_page`; read in 5.10 and 6.1, gone in 6.12), so
    /// that `pgpgin` and `pgpgout`, which `submit_bio` counts, leave them out.
    pub swap_rw_page: bool,
    /// How many pages a zspage has.
    pub zspage_chain: ZspageChain,
    /// What zswap does; before 3.11 there is none.
    pub zswap: ZswapRules,
    /// Counters are printed per zone (`pgscan_direct_normal`), through 4.7 (599d0c954f91).
    pub zone_counters: bool,
}

/// Every generation's name, oldest first.
pub const NAMES: [&str; 21] = [
    "linux-2.6.32-rhel6.4",
    "linux-2.6.32-rhel6",
    "linux-3.0",
    "linux-3.0-sles11sp2",
    "linux-3.0-sles11sp3",
    "linux-3.10",
    "linux-3.10.108",
    "linux-3.11",
    "linux-4.4",
    "linux-4.18-rhel8",
    "linux-5.4",
    "linux-5.10",
    "linux-5.15",
    "linux-6.1",
    "linux-6.1+mglru",
    "linux-6.8",
    "linux-6.8+mglru",
    "linux-6.12",
    "linux-6.12+mglru",
    "linux-6.18",
    "linux-6.18+mglru",
];

const OLD_PCP: PcpRules = PcpRules { batch_cap: Bytes::kib(512), high_from_mark: false, adapts: false };

/// Dirty limits of RHEL 6, also the default where a kernel's are unknown.
const RHEL_6_DIRTY: DirtyRules = DirtyRules {
    reserve: Reserve::Dirtyable,
    subtract_min_free: false,
    count_anon: true,
    least_five_percent: true,
    parts_of_page: false,
    realtime_bonus: false,
};

impl Generation {
    /// The generation of a name.
    pub fn named(name: &str) -> Option<Generation> {
        Some(match name {
            "linux-2.6.32-rhel6.4" => Self::rhel_6_4(),
            "linux-2.6.32-rhel6" => Self::rhel_6(),
            "linux-3.0" => Self::linux_3_0(),
            "linux-3.0-sles11sp2" => Self::sles_11_sp2(),
            "linux-3.0-sles11sp3" => Self::sles_11_sp3(),
            "linux-3.10" => Self::linux_3_10(),
            "linux-3.10.108" => Self::linux_3_10_108(),
            "linux-3.11" => Self::linux_3_11(),
            "linux-4.4" => Self::linux_4_4(),
            "linux-4.18-rhel8" => Self::rhel_8(),
            "linux-5.4" => Self::linux_5_4(),
            "linux-5.10" => Self::linux_5_10(),
            "linux-5.15" => Self::linux_5_15(),
            "linux-6.1" => Self::linux_6_1(),
            "linux-6.1+mglru" => Generation { name: "linux-6.1+mglru", policy: &Mglru, ..Self::linux_6_1() },
            "linux-6.8" => Self::linux_6_8(),
            "linux-6.8+mglru" => Generation { name: "linux-6.8+mglru", policy: &Mglru, ..Self::linux_6_8() },
            "linux-6.12" => Self::linux_6_12(),
            "linux-6.12+mglru" => {
                Generation { name: "linux-6.12+mglru", policy: &Mglru, ..Self::linux_6_12() }
            }
            "linux-6.18" => Self::linux_6_18(),
            "linux-6.18+mglru" => {
                let reference = ReferenceRule::SecondBit;
                Generation { name: "linux-6.18+mglru", policy: &Mglru, reference, ..Self::linux_6_18() }
            }
            _ => return None,
        })
    }

    /// The same kernel with one of the textbook's policies: `lru` or `clock`.
    pub fn with_reference(self, policy: &str) -> Option<Generation> {
        let policy = *policy::REFERENCES.iter().find(|reference| reference.name() == policy)?;
        Some(Generation { policy, ..self })
    }

    /// RHEL 6.8.
    pub const fn rhel_6() -> Self {
        let rules = Rules::rhel_6();
        Generation {
            name: "linux-2.6.32-rhel6",
            rules,
            pcp: OLD_PCP,
            dirty: RHEL_6_DIRTY,
            arm_zone_dma: false,
            groups_by_mobility: true,
            fallback: Fallback::Remainder,
            cache_slabs: false,
            ext4_metadata: false,
            swap_shadow_nodes: false,
            swap_table: false,
            counted_page_tables: 1,
            oom_badness: Badness::Thousandths,
            oom_page_tables: 1,
            oom_later_wins: false,
            limits_data: false,
            aligns_anon: AlignsAnon::Never,
            shadow_nodes_by_lists: false,
            flushed_stats: false,
            lru_per_node: false,
            pagevec_size: 14,
            policy: &TwoLists,
            lru_gen: LruGen::LINUX_6_1,
            anon_starts_inactive: false,
            reference: ReferenceRule::SecondRound,
            reclaim_clean_any: true,
            balance: Balance::Rotation,
            file_only: FileOnly::Never,
            anon_only: AnonOnly::Tiny,
            equal_at_priority_zero: false,
            swappiness_zero_forbids: true,
            percent: true,
            save_small_scans: true,
            force_scan: false,
            oom_force_anon: true,
            may_deactivate: false,
            proportional: false,
            direct_stops: false,
            kswapd_target: KswapdTarget::Unlimited,
            kswapd_restarts: true,
            kswapd_last_priority: 1,
            balanced_by_one: false,
            balance_gap: true,
            first_pages: None,
            blk_mq: false,
            request_pages: 128,
            plug_requests: 16,
            swap_is_favoured: false,
            kswapd_failures: false,
            file_write: FileWrite::KswapdInNeed,
            unreclaimable_mark: true,
            without_writepage: &[],
            zone_flags: ZoneFlags::Congested,
            spares_congested: true,
            dirty_activates: false,
            reclaim_throttle: false,
            pfmemalloc_throttle: false,
            kswapd_congestion_wait: true,
            direct_wakes_flushers: true,
            reclaim_retries: false,
            zone_reclaim_auto: true,
            reclaim_distance: 30,
            zone_reclaim_near: false,
            isolate_unmapped: false,
            zone_reclaim_lock: false,
            zone_reclaim_relaxed: true,
            alloc_congestion_wait: true,
            cfq: true,
            zonelist_cache: Some(ZonelistCache::BelowMark),
            zonelist_order: true,
            fair_zones: false,
            idle_nodes_first: false,
            copy_file_range: false,
            swap_slots: SwapSlots::NextFree,
            swap_readahead: SwapReadahead::Block,
            readahead_io_pages: false,
            aligns_readahead: false,
            fault_around: None,
            retried_is_major: false,
            counts_retries: false,
            dirty_fault_retries: false,
            flusher_passes: false,
            dirty_ratio: 20,
            share_within_limit: false,
            writers: WriterThrottle::WritesItself,
            dirty_spreading: false,
            anon_refault: false,
            skips_swap_cache: false,
            swapin_is_writable: false,
            swap_rw_page: true,
            zspage_chain: ZspageChain::LargestUse,
            zswap: ZswapRules::LINUX_3_11,
            zone_counters: true,
        }
    }

    /// RHEL 6.4, read in 2.6.32-358. What changed until 6.8 is told by the changelog of the package.
    ///
    /// Its lists are per memory control group, and a group's file pages alone are compared with the zone's
    /// high mark (`get_scan_ratio`, 2.6.32-342 to 2.6.32-494; mainline corrected it in 3.17, 2ab051e11bfa).
    /// The model has one group, for which that makes no difference.
    pub const fn rhel_6_4() -> Self {
        Generation {
            name: "linux-2.6.32-rhel6.4",
            rules: Rules::rhel_6_4(),
            oom_force_anon: false,
            kswapd_last_priority: 0,
            reclaim_distance: 20,
            zone_reclaim_lock: true,
            zone_reclaim_relaxed: false,
            ..Self::rhel_6()
        }
    }

    /// 3.0, the base of SLES 11 SP2.
    pub const fn linux_3_0() -> Self {
        Generation {
            name: "linux-3.0",
            rules: Rules::linux_3_0(),
            dirty: known_dirty(&Rules::linux_3_0()),
            reclaim_clean_any: false,
            swappiness_zero_forbids: false,
            percent: false,
            save_small_scans: false,
            force_scan: true,
            oom_force_anon: false,
            kswapd_last_priority: 0,
            file_write: FileWrite::Anyone,
            zone_reclaim_lock: true,
            zone_reclaim_relaxed: false,
            alloc_congestion_wait: false,
            ..Self::rhel_6()
        }
    }

    /// SLES 11 SP2 as of the end of 2012: 3.0.53 with the patches of `series.conf` (kernel-source). The
    /// stable release took back the reclaim of 3.1 to 3.3 (3.0.39), SUSE that of 3.2 to 3.7.
    pub const fn sles_11_sp2() -> Self {
        Generation {
            name: "linux-3.0-sles11sp2",
            reference: ReferenceRule::SwapBackedAtOnce,
            swappiness_zero_forbids: true,
            force_scan: false,
            file_write: FileWrite::KswapdInNeed,
            isolate_unmapped: true,
            dirty_ratio: 40,
            ..Self::linux_3_0()
        }
    }

    /// SLES 11 SP3: SP2 with the series "Reduce system disruption due to kswapd" as it was in March 2013
    /// (bnc#754690), and with the file pages first of 3.8 (SUSE's document 000021196).
    pub const fn sles_11_sp3() -> Self {
        Generation {
            name: "linux-3.0-sles11sp3",
            file_only: FileOnly::AtLeastActive,
            proportional: true,
            direct_stops: true,
            kswapd_target: KswapdTarget::ZoneHigh,
            kswapd_restarts: false,
            kswapd_last_priority: 1,
            kswapd_congestion_wait: false,
            file_write: FileWrite::KswapdDirtyBatch,
            zone_flags: ZoneFlags::PartOfBatch,
            ..Self::sles_11_sp2()
        }
    }

    /// 3.10, the last without the series that bounds kswapd.
    pub const fn linux_3_10() -> Self {
        Generation {
            name: "linux-3.10",
            oom_badness: Badness::Positive,
            rules: Rules::linux_3_10(),
            dirty: known_dirty(&Rules::linux_3_10()),
            reference: ReferenceRule::SwapBackedAtOnce,
            file_only: FileOnly::AtLeastActive,
            equal_at_priority_zero: true,
            swappiness_zero_forbids: true,
            force_scan: false,
            file_write: FileWrite::KswapdInNeed,
            pfmemalloc_throttle: true,
            kswapd_congestion_wait: false,
            zone_reclaim_near: true,
            isolate_unmapped: true,
            zonelist_cache: Some(ZonelistCache::BelowMinOrNoProgress),
            writers: WriterThrottle::Paused,
            ext4_metadata: true,
            dirty_spreading: true,
            flusher_passes: true,
            ..Self::linux_3_0()
        }
    }

    /// 3.10.108, the last of its series, to which later fixes were taken back.
    pub const fn linux_3_10_108() -> Self {
        let rules = Rules::linux_3_10_108();
        Generation { name: "linux-3.10.108", rules, dirty: known_dirty(&rules), ..Self::linux_3_10() }
    }

    /// 3.11, with the series "Reduce system disruption due to kswapd" (linux-mm, May 2013).
    pub const fn linux_3_11() -> Self {
        Generation {
            name: "linux-3.11",
            proportional: true,
            direct_stops: true,
            kswapd_target: KswapdTarget::ZoneHigh,
            kswapd_restarts: false,
            kswapd_last_priority: 1,
            file_write: FileWrite::KswapdDirtyTail,
            zone_flags: ZoneFlags::WholeBatch,
            ..Self::linux_3_10()
        }
    }

    /// 4.4.
    pub const fn linux_4_4() -> Self {
        Generation {
            name: "linux-4.4",
            oom_page_tables: 2,
            cache_slabs: true,
            unreclaimable_mark: false,
            rules: Rules::linux_4_4(),
            dirty: known_dirty(&Rules::linux_4_4()),
            direct_stops: false,
            zone_reclaim_auto: false,
            zonelist_cache: None,
            zonelist_order: false,
            arm_zone_dma: true,
            first_pages: Some(Bytes::gib(2)),
            request_pages: 320,
            fair_zones: true,
            swap_readahead: SwapReadahead::Adaptive,
            fault_around: Some(MmapHit::Mapped),
            ..Self::linux_3_11()
        }
    }

    /// 5.4.
    pub const fn linux_5_4() -> Self {
        Generation {
            name: "linux-5.4",
            oom_page_tables: 3,
            limits_data: true,
            oom_later_wins: true,
            rules: Rules::linux_5_4(),
            pcp: known_pcp(&Rules::linux_5_4()),
            dirty: known_dirty(&Rules::linux_5_4()),
            shadow_nodes_by_lists: true,
            lru_per_node: true,
            pagevec_size: 15,
            file_only: FileOnly::NotLow,
            anon_only: AnonOnly::TinyUnlessLow,
            kswapd_target: KswapdTarget::NodeHigh,
            balanced_by_one: true,
            balance_gap: false,
            arm_zone_dma: false,
            first_pages: Some(SECTION),
            blk_mq: true,
            kswapd_failures: true,
            dirty_activates: true,
            direct_wakes_flushers: false,
            reclaim_retries: true,
            cfq: false,
            fair_zones: false,
            copy_file_range: true,
            readahead_io_pages: true,
            fault_around: Some(MmapHit::Cached),
            skips_swap_cache: true,
            zone_counters: false,
            ..Self::linux_4_4()
        }
    }

    /// 5.10.
    pub const fn linux_5_10() -> Self {
        Generation {
            name: "linux-5.10",
            oom_badness: Badness::Signed,
            counted_page_tables: 2,
            zswap: ZswapRules::LINUX_5_8,
            rules: Rules::linux_5_10(),
            pcp: known_pcp(&Rules::linux_5_10()),
            dirty: known_dirty(&Rules::linux_5_10()),
            arm_zone_dma: true,
            anon_starts_inactive: true,
            reference: ReferenceRule::OneRule,
            balance: Balance::Cost,
            file_only: FileOnly::CacheTrim,
            anon_only: AnonOnly::FileIsTiny,
            may_deactivate: true,
            anon_refault: true,
            retried_is_major: true,
            counts_retries: true,
            dirty_fault_retries: true,
            ..Self::linux_5_4()
        }
    }

    /// RHEL 8.10: 4.18.0-553, read in 553.66.1. It has the reclaim of 5.10, the weights of 6.2 and the
    /// throttle of 5.16, on the multi-queue block layer. Its OOM killer was not read, and is that of 5.10.
    pub const fn rhel_8() -> Self {
        let rules = Rules::rhel_8();
        Generation {
            name: "linux-4.18-rhel8",
            rules,
            pcp: known_pcp(&rules),
            dirty: known_dirty(&rules),
            balance: Balance::WeightedCost,
            reclaim_throttle: true,
            dirty_fault_retries: false,
            ..Self::linux_5_10()
        }
    }

    /// 5.15.
    pub const fn linux_5_15() -> Self {
        let rules = Rules::linux_5_15();
        Generation { name: "linux-5.15", rules, pcp: known_pcp(&rules), ..Self::linux_5_10() }
    }

    /// 6.1.
    pub const fn linux_6_1() -> Self {
        Generation {
            name: "linux-6.1",
            without_writepage: &[Filesystem::Xfs],
            rules: Rules::linux_6_1(),
            pcp: known_pcp(&Rules::linux_6_1()),
            dirty: known_dirty(&Rules::linux_6_1()),
            reclaim_throttle: true,
            spares_congested: false,
            dirty_fault_retries: false,
            plug_requests: 32,
            ..Self::linux_5_15()
        }
    }

    /// 6.8, the kernel of Ubuntu 24.04. The closed forms are those of 6.12.
    pub const fn linux_6_8() -> Self {
        let rules = Rules::linux_6_12();
        Generation {
            name: "linux-6.8",
            counted_page_tables: 3,
            aligns_anon: AlignsAnon::Long,
            without_writepage: &Filesystem::ALL,
            rules,
            pcp: known_pcp(&rules),
            dirty: known_dirty(&rules),
            swap_shadow_nodes: true,
            balance: Balance::WeightedCost,
            lru_gen: LruGen::LINUX_6_8,
            retried_is_major: false,
            counts_retries: false,
            swap_rw_page: false,
            zspage_chain: ZspageChain::LeastWaste,
            zswap: ZswapRules::LINUX_6_8,
            ..Self::linux_6_1()
        }
    }

    /// 6.12.
    pub const fn linux_6_12() -> Self {
        Generation {
            name: "linux-6.12",
            aligns_anon: AlignsAnon::Multiple,
            zswap: ZswapRules::LINUX_6_12,
            fallback: Fallback::BlockOrPage,
            flushed_stats: true,
            pagevec_size: 31,
            swap_is_favoured: true,
            lru_gen: LruGen::LINUX_6_12,
            fault_around: Some(MmapHit::Fresh),
            swapin_is_writable: true,
            ..Self::linux_6_8()
        }
    }

    /// 6.18, read in 6.18.26 and, for swap's clusters and the walks of the multi-generational LRU, in 7.0
    /// with an eye on what came after 6.18. The closed forms are those of 6.12.
    pub const fn linux_6_18() -> Self {
        Generation {
            name: "linux-6.18",
            lru_gen: LruGen::LINUX_6_18,
            swap_table: true,
            idle_nodes_first: true,
            swap_slots: SwapSlots::Clusters,
            aligns_readahead: true,
            share_within_limit: true,
            ..Self::linux_6_12()
        }
    }
}

const fn known_pcp(rules: &Rules) -> PcpRules {
    match rules.pcp {
        Some(pcp) => pcp,
        None => OLD_PCP,
    }
}

const fn known_dirty(rules: &Rules) -> DirtyRules {
    match rules.dirty {
        Some(dirty) => dirty,
        None => RHEL_6_DIRTY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_record() {
        for name in NAMES {
            assert_eq!(Generation::named(name).map(|generation| generation.name), Some(name));
        }
        assert_eq!(Generation::named("linux-7.0"), None);
        let in_scenarios: Vec<_> =
            lotsfree_scenario::Generation::all().map(lotsfree_scenario::Generation::name).collect();
        assert_eq!(in_scenarios, NAMES, "a scenario may name each, and no other");
    }
}
