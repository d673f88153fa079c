//! `/proc/vmstat`; the per-node statistics in `/proc/zoneinfo` and `node*/vmstat` use the same names.

counters! {
    /// The lines of `/proc/vmstat`.
    family Vmstat in vmstat, "/proc/vmstat", separator b' ';
    nr_free_pages, pages, gauge, since "2.6.32", "Free pages in the buddy lists.", "mm/page_alloc.c";
    pgscan_direct, pages, monotonic, since "2.6.32", "Pages that tasks scanned themselves, in direct reclaim or zone reclaim.", "mm/vmscan.c:shrink_inactive_list";
    allocstall, pages, gauge, since "2.6.32", "x", "y";
    allocstall_device, pages, gauge, since "2.6.32", "x", "y";
    allocstall_dma, pages, gauge, since "2.6.32", "x", "y";
    allocstall_dma32, pages, gauge, since "2.6.32", "x", "y";
    allocstall_movable, pages, gauge, since "2.6.32", "x", "y";
    allocstall_normal, pages, gauge, since "2.6.32", "x", "y";
    pgmajfault, pages, gauge, since "2.6.32", "x", "y";
    pgscan_direct_dma, pages, gauge, since "2.6.32", "x", "y";
    pgscan_direct_dma32, pages, gauge, since "2.6.32", "x", "y";
    pgscan_direct_movable, pages, gauge, since "2.6.32", "x", "y";
    pgscan_direct_normal, pages, gauge, since "2.6.32", "x", "y";
    pgscan_kswapd, pages, gauge, since "2.6.32", "x", "y";
    pgscan_kswapd_dma, pages, gauge, since "2.6.32", "x", "y";
    pgscan_kswapd_dma32, pages, gauge, since "2.6.32", "x", "y";
    pgscan_kswapd_movable, pages, gauge, since "2.6.32", "x", "y";
    pgscan_kswapd_normal, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_direct, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_direct_dma, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_direct_dma32, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_direct_movable, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_direct_normal, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_kswapd, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_kswapd_dma, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_kswapd_dma32, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_kswapd_movable, pages, gauge, since "2.6.32", "x", "y";
    pgsteal_kswapd_normal, pages, gauge, since "2.6.32", "x", "y";
    thp_split, pages, gauge, since "2.6.32", "x", "y";
    thp_split_page, pages, gauge, since "2.6.32", "x", "y";
    workingset_activate, pages, gauge, since "2.6.32", "x", "y";
    workingset_activate_file, pages, gauge, since "2.6.32", "x", "y";
    workingset_refault, pages, gauge, since "2.6.32", "x", "y";
    workingset_refault_anon, pages, gauge, since "2.6.32", "x", "y";
    workingset_refault_file, pages, gauge, since "2.6.32", "x", "y";
    zone_reclaim_failed, pages, gauge, since "2.6.32", "x", "y";
    zone_reclaim_success, pages, gauge, since "2.6.32", "x", "y";
}
