//! Counters under the kernel's names, and what `/proc` would show of them (`mm/vmstat.c`, `fs/proc/meminfo.c`).

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
}

/// How many there are.
pub(crate) const STATS: usize = 12;

/// Event counters. Arrays by zone are DMA, DMA32, Normal, Movable; arrays of two are anonymous and file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    pub(crate) pgpgin: u64,
    pub(crate) pgpgout: u64,
    pub(crate) pswpin: u64,
    pub(crate) pswpout: u64,
    pub(crate) pgalloc: [u64; 4],
    pub(crate) pgfree: u64,
    pub(crate) pgactivate: u64,
    pub(crate) pgdeactivate: u64,
    pub(crate) pgfault: u64,
    pub(crate) pgmajfault: u64,
    pub(crate) pgrefill: [u64; 4],
    pub(crate) pgscan_kswapd: [u64; 4],
    pub(crate) pgscan_direct: [u64; 4],
    pub(crate) pgsteal_kswapd: [u64; 4],
    pub(crate) pgsteal_direct: [u64; 4],
    pub(crate) pgscan_type: [u64; 2],
    pub(crate) pgsteal_type: [u64; 2],
    pub(crate) pgscan_direct_throttle: u64,
    pub(crate) allocstall: [u64; 4],
    pub(crate) pageoutrun: u64,
    pub(crate) kswapd_low_wmark_hit_quickly: u64,
    pub(crate) kswapd_high_wmark_hit_quickly: u64,
    pub(crate) kswapd_skip_congestion_wait: u64,
    pub(crate) zone_reclaim_failed: u64,
    pub(crate) zone_reclaim_success: u64,
    pub(crate) pgrotated: u64,
    pub(crate) workingset_refault: [u64; 2],
    pub(crate) workingset_activate: [u64; 2],
    pub(crate) workingset_restore: [u64; 2],
    pub(crate) swap_ra: u64,
    pub(crate) swap_ra_hit: u64,
    pub(crate) unevictable_pgs_culled: u64,
    pub(crate) drop_pagecache: u64,
    pub(crate) oom_kill: u64,
}
