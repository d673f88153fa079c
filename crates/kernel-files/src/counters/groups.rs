//! Counters that kernels have split or renamed, as one quantity each:
//! [`Values::sum`](crate::counters::Values::sum) adds up those that are present.

use crate::counters::{Counter, Values, Vmstat, vmstat as v};

/// Pages scanned by tasks themselves (direct reclaim and zone reclaim). Per zone before 4.8.
pub const DIRECT_SCAN: &[Counter<Vmstat>] = &[
    v::pgscan_direct,
    v::pgscan_direct_dma,
    v::pgscan_direct_dma32,
    v::pgscan_direct_normal,
    v::pgscan_direct_high,
    v::pgscan_direct_movable,
];
/// Pages scanned by kswapd. Per zone before 4.8.
pub const KSWAPD_SCAN: &[Counter<Vmstat>] = &[
    v::pgscan_kswapd,
    v::pgscan_kswapd_dma,
    v::pgscan_kswapd_dma32,
    v::pgscan_kswapd_normal,
    v::pgscan_kswapd_high,
    v::pgscan_kswapd_movable,
];
/// Pages freed by tasks themselves; see [`direct_steal`] for kernels before 3.4.
pub const DIRECT_STEAL: &[Counter<Vmstat>] = &[
    v::pgsteal_direct,
    v::pgsteal_direct_dma,
    v::pgsteal_direct_dma32,
    v::pgsteal_direct_normal,
    v::pgsteal_direct_high,
    v::pgsteal_direct_movable,
];
/// Pages freed by kswapd. Per zone before 4.8, one counter of another name before 3.4.
pub const KSWAPD_STEAL: &[Counter<Vmstat>] = &[
    v::pgsteal_kswapd,
    v::pgsteal_kswapd_dma,
    v::pgsteal_kswapd_dma32,
    v::pgsteal_kswapd_normal,
    v::pgsteal_kswapd_high,
    v::pgsteal_kswapd_movable,
    v::kswapd_steal,
];
/// Pages freed by reclaim, whoever freed them (before 3.4).
pub const STEAL: &[Counter<Vmstat>] =
    &[v::pgsteal_dma, v::pgsteal_dma32, v::pgsteal_normal, v::pgsteal_high, v::pgsteal_movable];
/// Entries into direct reclaim. Per zone from 4.10 on. Zone reclaim is not counted here.
pub const ALLOCSTALL: &[Counter<Vmstat>] = &[
    v::allocstall,
    v::allocstall_dma,
    v::allocstall_dma32,
    v::allocstall_normal,
    v::allocstall_high,
    v::allocstall_movable,
    v::allocstall_device,
];
/// Huge pages split (one counter before 4.5, another since).
pub const THP_SPLIT: &[Counter<Vmstat>] = &[v::thp_split_page, v::thp_split];
/// File pages read again soon after their eviction (one counter for all pages before 5.9).
pub const REFAULT_FILE: &[Counter<Vmstat>] = &[v::workingset_refault_file, v::workingset_refault];
/// Refaults that went straight to the active list (one counter for all pages before 5.9).
pub const ACTIVATE_FILE: &[Counter<Vmstat>] = &[v::workingset_activate_file, v::workingset_activate];
/// Anonymous pages read back soon after their eviction (5.9 and later).
pub const REFAULT_ANON: &[Counter<Vmstat>] = &[v::workingset_refault_anon];
/// Pages moved up to a faster memory tier (5.18 and later).
pub const PROMOTED: &[Counter<Vmstat>] = &[v::pgpromote_success];
/// Pages moved down to a slower memory tier (5.15 and later), whoever moved them.
pub const DEMOTED: &[Counter<Vmstat>] =
    &[v::pgdemote_kswapd, v::pgdemote_direct, v::pgdemote_khugepaged, v::pgdemote_proactive];

/// Quantities that kernels count under different names, each with the name that recent kernels have for it.
/// What [`direct_steal`] has is one more, which is no sum before 3.4.
pub const RENAMED: &[(&str, &[Counter<Vmstat>])] = &[
    ("pgscan_direct", DIRECT_SCAN),
    ("pgscan_kswapd", KSWAPD_SCAN),
    ("pgsteal_kswapd", KSWAPD_STEAL),
    ("allocstall", ALLOCSTALL),
    ("thp_split_page", THP_SPLIT),
    ("workingset_refault_file", REFAULT_FILE),
    ("workingset_activate_file", ACTIVATE_FILE),
];

/// Pages freed by tasks themselves. Kernels before 3.4 count the pages that kswapd freed and those that
/// anyone freed; the result is then the difference.
pub fn direct_steal(vmstat: &Values<Vmstat>) -> Option<u64> {
    let before_3_4 = || Some(vmstat.sum(STEAL)?.saturating_sub(vmstat.get(v::kswapd_steal)?));
    vmstat.sum(DIRECT_STEAL).or_else(before_3_4)
}
