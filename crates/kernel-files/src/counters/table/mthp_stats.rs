//! `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/stats`.

counters! {
    /// Statistics of transparent huge pages of one size. Each row names a file that holds one number.
    family MthpStats in mthp_stats, "/sys/kernel/mm/transparent_hugepage/hugepages-*/stats", separator b' ';
    anon_fault_alloc, count, monotonic, since "6.10", "Pages of this size given at a fault in anonymous memory.", "mm/memory.c:do_anonymous_page";
    anon_fault_fallback, count, monotonic, since "6.10", "Faults that wanted this size and got a smaller one, for want of memory or of charge.", "mm/memory.c:alloc_anon_folio";
    anon_fault_fallback_charge, count, monotonic, since "6.10", "The part of anon_fault_fallback for which the memory cgroup refused the charge.", "mm/memory.c:alloc_anon_folio";
    zswpout, count, monotonic, since "6.13", "Pages of this size compressed by zswap whole.", "mm/zswap.c:zswap_store";
    swpin, count, monotonic, since "6.13", "Pages of this size read from swap whole.", "mm/page_io.c:swap_read_folio";
    swpin_fallback, count, monotonic, since "6.14", "Swap-ins that wanted this size and got a smaller one.", "mm/memory.c:alloc_swap_folio";
    swpin_fallback_charge, count, monotonic, since "6.14", "The part of swpin_fallback for which the memory cgroup refused the charge.", "mm/memory.c:alloc_swap_folio";
    swpout, count, monotonic, since "6.10", "Pages of this size written to swap whole.", "mm/page_io.c:count_swpout_vm_event";
    swpout_fallback, count, monotonic, since "6.10", "Pages of this size split before swap-out.", "mm/vmscan.c:shrink_folio_list";
    shmem_alloc, count, monotonic, since "6.12", "Pages of this size allocated for tmpfs and shared memory.", "mm/shmem.c:shmem_alloc_and_add_folio";
    shmem_fallback, count, monotonic, since "6.12", "Allocations for shared memory that wanted this size and got a smaller one.", "mm/shmem.c:shmem_alloc_and_add_folio";
    shmem_fallback_charge, count, monotonic, since "6.12", "The part of shmem_fallback for which the memory cgroup refused the charge.", "mm/shmem.c:shmem_alloc_and_add_folio";
    split, count, monotonic, since "6.11", "Pages of this size broken up.", "mm/huge_memory.c:__folio_split";
    split_failed, count, monotonic, since "6.11", "Splits of this size that failed, mostly because the page was pinned.", "mm/huge_memory.c:__folio_split";
    split_deferred, count, monotonic, since "6.11", "Pages of this size queued to be split under pressure.", "mm/huge_memory.c:deferred_split_folio";
    nr_anon, count, gauge, since "6.12", "Anonymous pages of this size that exist now, wholly mapped or not.", "mm/rmap.c:folio_add_new_anon_rmap";
    nr_anon_partially_mapped, count, gauge, since "6.12", "Those that have lost a part of their mapping and are not split yet: memory that is used and cannot be reached.", "mm/huge_memory.c:deferred_split_folio";
}
