//! `/proc/vmstat`; the per-node statistics in `/proc/zoneinfo` and `node*/vmstat` use the same names.

counters! {
    /// The lines of `/proc/vmstat`.
    family Vmstat in vmstat, "/proc/vmstat", separator b' ';
    nr_free_pages, pages, gauge, since "2.6.32", "Free pages in the buddy lists.", "mm/page_alloc.c";
    pgscan_direct, pages, monotonic, since "2.6.32", "Pages that tasks scanned themselves, in direct reclaim or zone reclaim.", "mm/vmscan.c:shrink_inactive_list";
}
