//! `/sys/kernel/mm/ksm`.

counters! {
    /// Progress and settings of KSM. Each row names a file that holds one number.
    ///
    /// Two files have no row because they hold no natural number: `general_profit` may be negative, and
    /// `advisor_mode` is a word.
    family Ksm in ksm, "/sys/kernel/mm/ksm", separator b' ';
    run, number, gauge, since "2.6.32", "Setting: 0 stopped, 1 merging, 2 stopped and everything unmerged.", "mm/ksm.c:run_show";
    pages_to_scan, pages, gauge, since "2.6.32", "Setting: pages that ksmd looks at before it sleeps.", "mm/ksm.c:pages_to_scan_show";
    sleep_millisecs, ms, gauge, since "2.6.32", "Setting: sleep between two such rounds.", "mm/ksm.c:sleep_millisecs_show";
    max_kernel_pages, pages, gauge, since "2.6.32" until "2.6.33", "Setting: bound on merged pages, while they could not be swapped.", "mm/ksm.c:max_kernel_pages_show";
    merge_across_nodes, number, gauge, since "3.9", "Setting: 1 if pages of different NUMA nodes are merged, which makes some accesses remote.", "mm/ksm.c:merge_across_nodes_show";
    use_zero_pages, number, gauge, since "4.12", "Setting: 1 if zero-filled pages are merged with the kernel's zero page.", "mm/ksm.c:use_zero_pages_show";
    max_page_sharing, count, gauge, since "4.13", "Setting: mappings that one merged page may have before another copy is kept.", "mm/ksm.c:max_page_sharing_show";
    stable_node_chains_prune_millisecs, ms, gauge, since "4.13", "Setting: how often stale copies in chains are looked for.", "mm/ksm.c:stable_node_chains_prune_millisecs_show";
    smart_scan, number, gauge, since "6.7", "Setting: 1 if pages that were not merged lately are passed over for some rounds.", "mm/ksm.c:smart_scan_show";
    advisor_max_cpu, number, gauge, since "6.8", "Setting: per cent of a CPU that the scan-time advisor lets ksmd use.", "mm/ksm.c:advisor_max_cpu_show";
    advisor_min_pages_to_scan, pages, gauge, since "6.8", "Setting: lower bound of pages_to_scan under the advisor.", "mm/ksm.c:advisor_min_pages_to_scan_show";
    advisor_max_pages_to_scan, pages, gauge, since "6.8", "Setting: upper bound of pages_to_scan under the advisor.", "mm/ksm.c:advisor_max_pages_to_scan_show";
    advisor_target_scan_time, number, gauge, since "6.8", "Setting: seconds in which the advisor wants one full scan done.", "mm/ksm.c:advisor_target_scan_time_show";
    pages_scanned, pages, monotonic, since "6.6", "Pages that ksmd has looked at.", "mm/ksm.c:pages_scanned_show";
    pages_shared, pages, gauge, since "2.6.32", "Merged pages that exist, each standing for several.", "mm/ksm.c:pages_shared_show";
    pages_sharing, pages, gauge, since "2.6.32", "Further mappings of merged pages; about the pages saved.", "mm/ksm.c:pages_sharing_show";
    pages_unshared, pages, gauge, since "2.6.32", "Pages looked at again and again and found unique; large against pages_sharing means wasted effort.", "mm/ksm.c:pages_unshared_show";
    pages_volatile, pages, gauge, since "2.6.32", "Pages that change too fast to be tried.", "mm/ksm.c:pages_volatile_show";
    pages_skipped, pages, monotonic, since "6.7", "Looks that smart_scan saved.", "mm/ksm.c:pages_skipped_show";
    ksm_zero_pages, pages, gauge, since "6.6", "Zero-filled pages replaced by the kernel's zero page; not in pages_sharing.", "mm/ksm.c:ksm_zero_pages_show";
    full_scans, count, monotonic, since "2.6.32", "Times that ksmd went through all registered memory.", "mm/ksm.c:full_scans_show";
    stable_node_chains, count, gauge, since "4.13", "Merged pages that exist in several copies because of max_page_sharing.", "mm/ksm.c:stable_node_chains_show";
    stable_node_dups, count, gauge, since "4.13", "Those copies.", "mm/ksm.c:stable_node_dups_show";
}
