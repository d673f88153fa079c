//! What `/proc/zoneinfo` tells of a zone beside the statistics that it shares with `/proc/vmstat`.

counters! {
    /// Watermarks, sizes, per-CPU lists and flags of one zone.
    ///
    /// The file is no plain list of names and values, and prints two different things as `high`: the
    /// watermark is `high` here, the bound of a CPU's lists `pageset high`. The colons that end some names
    /// are no part of them.
    family Zoneinfo in zoneinfo, "/proc/zoneinfo", separator b' ';
    free, pages, gauge, since "2.6.32", "Free pages of the zone in the buddy lists; printed as `pages free`.", "mm/vmstat.c:zoneinfo_show_print";
    boost, pages, gauge, since "5.0", "Pages by which all watermarks stand higher for now, after an allocation had to break up a pageblock of another type.", "mm/page_alloc.c:boost_watermark";
    min, pages, gauge, since "2.6.32", "Watermark below which only privileged requests are served and others reclaim themselves; printed with the boost included.", "mm/page_alloc.c:__setup_per_zone_wmarks";
    low, pages, gauge, since "2.6.32", "Watermark below which kswapd is woken; node reclaim is tried here too.", "mm/page_alloc.c:__setup_per_zone_wmarks";
    high, pages, gauge, since "2.6.32", "Watermark at which kswapd stops.", "mm/page_alloc.c:__setup_per_zone_wmarks";
    promo, pages, gauge, since "6.12", "Watermark up to which a fast node is freed so that pages can be promoted to it; used since 5.18, printed later.", "mm/page_alloc.c:__setup_per_zone_wmarks";
    scanned, pages, gauge, since "2.6.32" until "4.8", "Pages scanned since the zone last freed one; at six times the reclaimable pages the zone is given up.", "mm/vmstat.c:zoneinfo_show_print";
    node_scanned, pages, gauge, since "4.8" until "4.12", "Pages scanned on the node since it last freed one.", "mm/vmstat.c:zoneinfo_show_print";
    spanned, pages, gauge, since "2.6.32", "Page frames from the zone's first to its last, holes included.", "mm/vmstat.c:zoneinfo_show_print";
    present, pages, gauge, since "2.6.32", "Page frames of the zone that exist.", "mm/vmstat.c:zoneinfo_show_print";
    managed, pages, gauge, since "3.8", "Pages that the page allocator owns: present less what was reserved at boot; watermarks are shares of this.", "mm/vmstat.c:zoneinfo_show_print";
    cma, pages, gauge, since "5.12", "Pages of the zone that belong to CMA areas.", "mm/vmstat.c:zoneinfo_show_print";
    count, pages, gauge, since "2.6.32", "Pages on the lists of one CPU; free, but in no free count.", "mm/vmstat.c:zoneinfo_show_print";
    pageset_high = "pageset high", pages, gauge, since "2.6.32", "Length from which one CPU's lists give pages back; printed as `high:` below `cpu:`, and named apart from the watermark here.", "mm/page_alloc.c:pageset_update";
    batch, pages, gauge, since "2.6.32", "Pages moved at once between one CPU's lists and the buddy lists.", "mm/page_alloc.c:zone_batchsize";
    high_min, pages, gauge, since "6.16", "Lower bound of the self-adjusting `high` of one CPU's lists.", "mm/page_alloc.c:zone_set_pageset_high_and_batch";
    high_max, pages, gauge, since "6.16", "Upper bound of the self-adjusting `high` of one CPU's lists.", "mm/page_alloc.c:zone_set_pageset_high_and_batch";
    vm_stats_threshold = "vm stats threshold", pages, gauge, since "2.6.32", "Change that one CPU may keep to itself before it adds it to the zone's counters; times CPUs it bounds their error.", "mm/vmstat.c:refresh_zone_stat_thresholds";
    all_unreclaimable, number, gauge, since "2.6.32" until "4.8", "1 when the zone was scanned in vain for so long that reclaim gives it up.", "mm/vmstat.c:zoneinfo_show_print";
    node_unreclaimable, number, gauge, since "4.8", "1 when the node is given up; from 4.12 on after 16 runs of kswapd that freed nothing.", "mm/vmstat.c:zoneinfo_show_print";
    prev_priority, number, gauge, since "2.6.32" until "2.6.36", "Scan priority at which the last reclaim ended; 12 is relaxed, 0 scans everything.", "mm/vmstat.c:zoneinfo_show_print";
    start_pfn, number, gauge, since "2.6.32", "Number of the zone's first page frame.", "mm/vmstat.c:zoneinfo_show_print";
    inactive_ratio, number, gauge, since "2.6.32" until "4.8", "Active anonymous pages that each inactive one may stand against before the active list is shrunk.", "mm/vmstat.c:zoneinfo_show_print";
    node_inactive_ratio, number, gauge, since "4.8" until "4.12", "The same ratio when lists had moved to the node.", "mm/vmstat.c:zoneinfo_show_print";
}
