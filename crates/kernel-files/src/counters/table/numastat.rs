//! `/sys/devices/system/node/node*/numastat`.

counters! {
    /// Where the allocations of one node went; the same events as `numa_*` in `/proc/vmstat`.
    family Numastat in numastat, "/sys/devices/system/node/node*/numastat", separator b' ';
    numa_hit, count, monotonic, since "2.6.32", "Allocations that wanted this node and got it; a huge page counts as one.", "mm/page_alloc.c:zone_statistics";
    numa_miss, count, monotonic, since "2.6.32", "Allocations served here that had wanted another node, which was short.", "mm/page_alloc.c:zone_statistics";
    numa_foreign, count, monotonic, since "2.6.32", "Allocations that wanted this node and were served by another one; each is a numa_miss there.", "mm/page_alloc.c:zone_statistics";
    interleave_hit, count, monotonic, since "2.6.32", "Allocations that an interleave policy meant for this node and placed here.", "mm/mempolicy.c:alloc_pages_mpol";
    local_node, count, monotonic, since "2.6.32", "Allocations served here to a task that ran on this node.", "mm/page_alloc.c:zone_statistics";
    other_node, count, monotonic, since "2.6.32", "Allocations served here to a task that ran on another node; high values with numa_hit point to a policy that binds memory away from the CPU.", "mm/page_alloc.c:zone_statistics";
}
