//! The table. Ranges and defaults are those of the kernel's source, and where one changed, the commit. A
//! scenario's values are checked in `crates/scenario/src/tuning.rs`.

use crate::{Accepts, Initial, Place, Release, Setting, Unit};
use Accepts::{Numbers, Range, Words};
use Initial::{Computed, Number, Text};
use Release as From;

const ANY: Release = Release::ANY;
const INT: u64 = i32::MAX as u64;
const LONG: u64 = i64::MAX as u64;

/// A sysctl of every kernel, which a scenario may set.
const fn sysctl(
    name: &'static str,
    accepts: &'static [(Release, Accepts)],
    default: &'static [(Release, Initial)],
    about: &'static str,
) -> Setting {
    Setting {
        name,
        place: Place::Sysctl,
        unit: Unit::None,
        accepts,
        default,
        since: None,
        until: None,
        only: None,
        twin: None,
        in_scenarios: true,
        about,
        note: None,
    }
}

impl Setting {
    const fn in_unit(self, unit: Unit) -> Self {
        Setting { unit, ..self }
    }
    const fn since(self, major: u32, minor: u32) -> Self {
        Setting { since: Some(Release(major, minor)), ..self }
    }
    const fn until(self, major: u32, minor: u32) -> Self {
        Setting { until: Some(Release(major, minor)), ..self }
    }
    const fn only(self, distribution: &'static str) -> Self {
        Setting { only: Some(distribution), ..self }
    }
    const fn twin(self, twin: &'static str) -> Self {
        Setting { twin: Some(twin), ..self }
    }
    const fn note(self, note: &'static str) -> Self {
        Setting { note: Some(note), ..self }
    }
    const fn at(self, place: Place) -> Self {
        Setting { place, ..self }
    }
    const fn not_in_scenarios(self) -> Self {
        Setting { in_scenarios: false, ..self }
    }
}

/// Declares each setting once: the constant is its name, and [`ALL`] has the rows in this order.
macro_rules! settings {
    ($($constant:ident = $function:ident($name:literal $(, $argument:expr)* $(,)?) $(.$method:ident($($value:expr),*))*;)*) => {
        $(#[doc = concat!("The name `", $name, "`.")] pub const $constant: &str = $name;)*

        /// Every setting, in the order of the reference page.
        pub const ALL: &[Setting] = &[$($function($name $(, $argument)*) $(.$method($($value),*))*),*];
    };
}

settings! {
    // 200 from 5.8 on (c843966c556d). What 0 means before and after 3.5: `get_scan_count` in the engine's
    // `mm/vmscan.rs`.
    SWAPPINESS = sysctl(
        "vm.swappiness",
        &[(ANY, Range(0, 100)), (From(5, 8), Range(0, 200))],
        &[(ANY, Number(60))],
        "how readily anonymous pages are reclaimed rather than file pages",
    );
    // On by itself on hosts with far nodes before 3.16 (4f9b16a64753).
    ZONE_RECLAIM_MODE = sysctl(
        "vm.zone_reclaim_mode",
        &[(ANY, Range(0, 7))],
        &[(ANY, Computed("1 if nodes are far apart, else 0")), (From(3, 16), Number(0))],
        "reclaim on the local node before another is used: 1 on, 2 may write, 4 may unmap",
    );
    MIN_UNMAPPED_RATIO = sysctl(
        "vm.min_unmapped_ratio",
        &[(ANY, Range(0, 100))],
        &[(ANY, Number(1))],
        "unmapped cache below which zone reclaim stays off",
    ).in_unit(Unit::Percent);
    MIN_SLAB_RATIO = sysctl(
        "vm.min_slab_ratio",
        &[(ANY, Range(0, 100))],
        &[(ANY, Number(5))],
        "reclaimable slab above which zone reclaim shrinks it",
    ).in_unit(Unit::Percent);
    MIN_FREE_KBYTES = sysctl(
        "vm.min_free_kbytes",
        &[(ANY, Range(0, INT))],
        &[(ANY, Computed("4 times the square root of low memory in KiB, more with transparent huge pages"))],
        "from which the watermarks follow",
    ).in_unit(Unit::Kib);
    // 4.6 (795ae7a0de6b); 3000 from 5.17 on (39c65a94cd96).
    WATERMARK_SCALE_FACTOR = sysctl(
        "vm.watermark_scale_factor",
        &[(ANY, Range(1, 1000)), (From(5, 17), Range(1, 3000))],
        &[(ANY, Number(10))],
        "gap between the watermarks, in 1/10000 of a zone",
    ).since(4, 6);
    // 5.0 (1c30844d2dfe).
    WATERMARK_BOOST_FACTOR = sysctl(
        "vm.watermark_boost_factor",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(15_000))],
        "raise of the marks after a fallback to another migrate type, in 1/10000 of the high mark",
    ).since(5, 0);
    EXTRA_FREE_KBYTES = sysctl(
        "vm.extra_free_kbytes",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "raises the low and high marks",
    ).in_unit(Unit::Kib).until(2, 6).only("RHEL 6");
    LOWMEM_RESERVE_RATIO = sysctl(
        "vm.lowmem_reserve_ratio",
        &[(ANY, Numbers(5, 0, INT))],
        &[(ANY, Text("256 256 32 0"))],
        "memory of lower zones kept from requests for higher ones: 1/ratio",
    );
    // Until 4.14 (c9bff3eebc09).
    NUMA_ZONELIST_ORDER = sysctl(
        "vm.numa_zonelist_order",
        &[(ANY, Words(&["default", "node", "zone"]))],
        &[(ANY, Text("default"))],
        "whether zones are tried node by node or zone by zone",
    ).until(4, 13);
    DIRTY_RATIO = sysctl(
        "vm.dirty_ratio",
        &[(ANY, Range(0, 100))],
        &[(ANY, Number(20))],
        "dirty pages at which writers wait, in percent of what may be dirty",
    ).twin(DIRTY_BYTES);
    DIRTY_BYTES = sysctl(
        "vm.dirty_bytes",
        &[(ANY, Range(8192, LONG))],
        &[(ANY, Number(0))],
        "the same in bytes; replaces vm.dirty_ratio",
    ).twin(DIRTY_RATIO);
    DIRTY_BACKGROUND_RATIO = sysctl(
        "vm.dirty_background_ratio",
        &[(ANY, Range(0, 100))],
        &[(ANY, Number(10))],
        "dirty pages at which the flusher begins",
    ).in_unit(Unit::Percent).twin(DIRTY_BACKGROUND_BYTES);
    DIRTY_BACKGROUND_BYTES = sysctl(
        "vm.dirty_background_bytes",
        &[(ANY, Range(1, LONG))],
        &[(ANY, Number(0))],
        "the same in bytes; replaces vm.dirty_background_ratio",
    ).twin(DIRTY_BACKGROUND_RATIO);
    DIRTY_EXPIRE_CENTISECS = sysctl(
        "vm.dirty_expire_centisecs",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(3000))],
        "age at which a dirty page is written",
    ).in_unit(Unit::Centiseconds);
    DIRTY_WRITEBACK_CENTISECS = sysctl(
        "vm.dirty_writeback_centisecs",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(500))],
        "how often the flusher looks",
    ).in_unit(Unit::Centiseconds).note("0: never");
    OVERCOMMIT_MEMORY = sysctl(
        "vm.overcommit_memory",
        &[(ANY, Range(0, 2))],
        &[(ANY, Number(0))],
        "which requests for memory are refused: 0 what could never be there, 1 none, 2 what is above the commit limit",
    );
    OVERCOMMIT_RATIO = sysctl(
        "vm.overcommit_ratio",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(50))],
        "RAM that counts towards the commit limit, in percent; swap comes on top",
    ).twin(OVERCOMMIT_KBYTES);
    // 3.14 (49f0ce5f9232).
    OVERCOMMIT_KBYTES = sysctl(
        "vm.overcommit_kbytes",
        &[(ANY, Range(0, LONG))],
        &[(ANY, Number(0))],
        "the same in KiB; replaces vm.overcommit_ratio unless 0",
    ).since(3, 14).twin(OVERCOMMIT_RATIO);
    // 3.10 (4eeab4f5580d): 3 % of free memory, at most 8 MiB.
    ADMIN_RESERVE_KBYTES = sysctl(
        "vm.admin_reserve_kbytes",
        &[(ANY, Range(0, LONG))],
        &[(ANY, Computed("3 % of free memory, at most 8192"))],
        "part of the commit limit that only root may use",
    ).in_unit(Unit::Kib).since(3, 10);
    // 3.10 (c9b1d0981fcc): 3 % of free memory, at most 128 MiB.
    USER_RESERVE_KBYTES = sysctl(
        "vm.user_reserve_kbytes",
        &[(ANY, Range(0, LONG))],
        &[(ANY, Computed("3 % of free memory, at most 131072"))],
        "part of the commit limit that no single process may use",
    ).in_unit(Unit::Kib).since(3, 10);
    NR_HUGEPAGES = sysctl(
        "vm.nr_hugepages",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "huge pages of the default size that are reserved",
    );
    NR_OVERCOMMIT_HUGEPAGES = sysctl(
        "vm.nr_overcommit_hugepages",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "huge pages that may be had beyond those, from memory that is free",
    );
    // 5.9 (facdaa917c4d).
    COMPACTION_PROACTIVENESS = sysctl(
        "vm.compaction_proactiveness",
        &[(ANY, Range(0, 100))],
        &[(ANY, Number(20))],
        "how eagerly kcompactd makes large pages before they are wanted; 0: not at all",
    ).since(5, 9);
    // Without a limit from 3.16 on (060028bac94b).
    SHMMAX = sysctl(
        "kernel.shmmax",
        &[(ANY, Range(0, LONG))],
        &[(ANY, Number(32 << 20)), (From(3, 16), Number(u64::MAX - (1 << 24)))],
        "largest System V segment",
    ).in_unit(Unit::Bytes);
    SHMALL = sysctl(
        "kernel.shmall",
        &[(ANY, Range(0, LONG))],
        &[(ANY, Number(2 << 20)), (From(3, 16), Number(u64::MAX - (1 << 24)))],
        "all System V segments together",
    ).in_unit(Unit::Pages);
    // 5.14 (74f44822097c).
    PERCPU_PAGELIST_HIGH_FRACTION = sysctl(
        "vm.percpu_pagelist_high_fraction",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "share of a zone that per-CPU lists may hold: 1/fraction, at least 8; 0: as the watermarks say",
    ).since(5, 14);
    LAPTOP_MODE = sysctl(
        "vm.laptop_mode",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "delay of writeback while the disk is idle",
    ).in_unit(Unit::Seconds).note("0: off");
    PAGE_CLUSTER = sysctl(
        "vm.page-cluster",
        &[(ANY, Range(0, 31))],
        &[(ANY, Number(3))],
        "pages that a swap-in reads at once, as a power of 2",
    );
    VFS_CACHE_PRESSURE = sysctl(
        "vm.vfs_cache_pressure",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(100))],
        "how readily dentries and inodes are reclaimed",
    ).in_unit(Unit::Percent);
    PAGECACHE_LIMIT_MB = sysctl(
        "vm.pagecache_limit_mb",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "SUSE's bound for unmapped cache",
    ).in_unit(Unit::Mib).note("0: off").since(3, 0).until(4, 4).only("SLES");
    PAGECACHE_LIMIT_IGNORE_DIRTY = sysctl(
        "vm.pagecache_limit_ignore_dirty",
        &[(ANY, Range(0, 2))],
        &[(ANY, Number(1))],
        "whether dirty pages count towards that bound: 0 all, 1 none, 2 part",
    ).since(3, 0).until(4, 4).only("SLES");
    // 3.14, and 3.10 of RHEL 7. 2 promotes from slow nodes (5.18, c574bbe91703), whose check
    // lets 4 pass.
    NUMA_BALANCING = sysctl(
        "kernel.numa_balancing",
        &[(ANY, Range(0, 1)), (From(5, 18), Range(0, 4))],
        &[(ANY, Computed("1 with several nodes, else 0"))],
        "whether pages follow the tasks that use them",
    ).since(3, 10);
    TRANSPARENT_HUGEPAGE_ENABLED = sysctl(
        "kernel.mm.transparent_hugepage.enabled",
        &[(ANY, Words(&["always", "madvise", "never"]))],
        &[(ANY, Computed("as the kernel was built; never below 512 MiB"))],
        "who gets transparent huge pages (/sys/kernel/mm/transparent_hugepage/enabled)",
    ).at(Place::Sys("kernel/mm/transparent_hugepage/enabled"));
    // `defer` 4.6 (444eb2a449ef), `defer+madvise` 4.11 (21440d7eb904).
    TRANSPARENT_HUGEPAGE_DEFRAG = sysctl(
        "kernel.mm.transparent_hugepage.defrag",
        &[
            (ANY, Words(&["always", "madvise", "never"])),
            (From(4, 6), Words(&["always", "defer", "madvise", "never"])),
            (From(4, 11), Words(&["always", "defer", "defer+madvise", "madvise", "never"])),
        ],
        &[(ANY, Text("always")), (From(4, 6), Text("madvise"))],
        "who reclaims and compacts for one (/sys/kernel/mm/transparent_hugepage/defrag)",
    ).at(Place::Sys("kernel/mm/transparent_hugepage/defrag"));
    // 6.1 (354ed5974429).
    LRU_GEN_ENABLED = sysctl(
        "kernel.mm.lru_gen.enabled",
        &[(ANY, Range(0, 7))],
        &[(ANY, Computed("as the kernel was built: 0 or 7"))],
        "the multi-generational LRU: 1 on, 2 clear accessed bits in batches, 4 also in upper tables (/sys/kernel/mm/lru_gen/enabled)",
    ).at(Place::Sys("kernel/mm/lru_gen/enabled")).since(6, 1);
    LRU_GEN_MIN_TTL_MS = sysctl(
        "kernel.mm.lru_gen.min_ttl_ms",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "age below which pages are not evicted, in ms (/sys/kernel/mm/lru_gen/min_ttl_ms)",
    ).at(Place::Sys("kernel/mm/lru_gen/min_ttl_ms")).since(6, 1);
    READ_AHEAD_KB = sysctl(
        "block.queue.read_ahead_kb",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(128))],
        "readahead window of the disk, in KiB (/sys/block/*/queue/read_ahead_kb)",
    ).at(Place::Block("queue/read_ahead_kb"));

    // Settings that rules know and scenarios do not.
    MAX_MAP_COUNT = sysctl(
        "vm.max_map_count",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(65_530))],
        "mappings that a process may have",
    ).not_in_scenarios();
    HUGETLB_SHM_GROUP = sysctl(
        "vm.hugetlb_shm_group",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "group whose members may have shared memory of huge pages",
    ).not_in_scenarios();
    // 5.19 (78f39084b41d).
    HUGETLB_OPTIMIZE_VMEMMAP = sysctl(
        "vm.hugetlb_optimize_vmemmap",
        &[(ANY, Range(0, 1))],
        &[(ANY, Computed("as the kernel was built: 0 or 1"))],
        "whether the memory map of huge pages is given back",
    ).since(5, 19).not_in_scenarios();
    OOM_KILL_ALLOCATING_TASK = sysctl(
        "vm.oom_kill_allocating_task",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "whether the task that asks for memory is killed when there is none, and not the worst",
    );
    PANIC_ON_OOM = sysctl(
        "vm.panic_on_oom",
        &[(ANY, Range(0, 2))],
        &[(ANY, Number(0))],
        "whether the kernel panics where it would kill a process",
    ).not_in_scenarios();
    MEMORY_FAILURE_EARLY_KILL = sysctl(
        "vm.memory_failure_early_kill",
        &[(ANY, Range(0, 1))],
        &[(ANY, Number(0))],
        "whether processes learn of broken memory before they touch it",
    ).not_in_scenarios();
    // 4.14 (4518085e127d).
    NUMA_STAT = sysctl(
        "vm.numa_stat",
        &[(ANY, Range(0, 1))],
        &[(ANY, Number(1))],
        "whether allocations are counted per node",
    ).since(4, 14).not_in_scenarios();
    EXTFRAG_THRESHOLD = sysctl(
        "vm.extfrag_threshold",
        &[(ANY, Range(0, 1000))],
        &[(ANY, Number(500))],
        "fragmentation index above which a failing allocation compacts instead of reclaiming",
    ).not_in_scenarios();
    PANIC = sysctl(
        "kernel.panic",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(0))],
        "time after which a kernel that panicked boots again",
    ).in_unit(Unit::Seconds).note("0: it stays").not_in_scenarios();
    PANIC_ON_OOPS = sysctl(
        "kernel.panic_on_oops",
        &[(ANY, Range(0, INT))],
        &[(ANY, Computed("as the kernel was built: 0 or 1"))],
        "whether the kernel panics after an error of its own",
    ).not_in_scenarios();
    SHMMNI = sysctl(
        "kernel.shmmni",
        &[(ANY, Range(0, 32_768))],
        &[(ANY, Number(4096))],
        "how many System V segments there may be",
    ).not_in_scenarios();
    SEM = sysctl(
        "kernel.sem",
        &[(ANY, Numbers(4, 0, INT))],
        &[(ANY, Text("250 32000 32 128")), (From(3, 17), Text("32000 1024000000 500 32000"))],
        "System V semaphores: in a set, in all, operations at once, sets",
    ).not_in_scenarios();
    // 6.1 (c6833e10008f).
    NUMA_BALANCING_PROMOTE_RATE_LIMIT = sysctl(
        "kernel.numa_balancing_promote_rate_limit_MBps",
        &[(ANY, Range(0, INT))],
        &[(ANY, Number(65_536))],
        "how much is promoted to a faster node",
    ).in_unit(Unit::MegabytesPerSecond).since(6, 1).not_in_scenarios();
}
