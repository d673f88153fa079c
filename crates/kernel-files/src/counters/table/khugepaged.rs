//! `/sys/kernel/mm/transparent_hugepage/khugepaged`.

counters! {
    /// Progress and settings of khugepaged. Each row names a file that holds one number.
    family Khugepaged in khugepaged, "/sys/kernel/mm/transparent_hugepage/khugepaged", separator b' ';
    pages_collapsed, count, monotonic, since "2.6.38", "Huge pages that khugepaged made out of base pages.", "mm/khugepaged.c:khugepaged_scan_mm_slot";
    full_scans, count, monotonic, since "2.6.38", "Times that khugepaged went through all registered processes.", "mm/khugepaged.c:collect_mm_slot";
    pages_to_scan, pages, gauge, since "2.6.38", "Setting: pages that khugepaged looks at before it sleeps.", "mm/khugepaged.c:pages_to_scan_show";
    scan_sleep_millisecs, ms, gauge, since "2.6.38", "Setting: sleep between two such rounds.", "mm/khugepaged.c:scan_sleep_millisecs_show";
    alloc_sleep_millisecs, ms, gauge, since "2.6.38", "Setting: sleep after no huge page could be allocated.", "mm/khugepaged.c:alloc_sleep_millisecs_show";
    defrag, number, gauge, since "2.6.38", "Setting: 1 if khugepaged may reclaim and compact to get a huge page.", "mm/khugepaged.c:defrag_show";
    max_ptes_none, count, gauge, since "2.6.38", "Setting: entries of a range that may be empty; at 511 one touched page can become 2 MiB.", "mm/khugepaged.c:max_ptes_none_show";
    max_ptes_swap, count, gauge, since "4.8", "Setting: entries of a range that may be in swap and are read back.", "mm/khugepaged.c:max_ptes_swap_show";
    max_ptes_shared, count, gauge, since "5.8", "Setting: entries of a range that may be shared with other processes.", "mm/khugepaged.c:max_ptes_shared_show";
}
