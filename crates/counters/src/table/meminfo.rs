//! `/proc/meminfo`, and per node `/sys/devices/system/node/node*/meminfo`.

counters! {
    /// The fields of `/proc/meminfo`; the per-node files repeat most of them.
    family Meminfo in meminfo, "/proc/meminfo", separator b':';
    MemTotal, kib, gauge, since "2.6.32", "Memory that the page allocator manages: RAM less what firmware and the kernel image keep.", "fs/proc/meminfo.c:meminfo_proc_show";
    MemFree, kib, gauge, since "2.6.32", "Free pages in the buddy lists, without those on per-CPU lists.", "fs/proc/meminfo.c:meminfo_proc_show";
    Active_anon = "Active(anon)", kib, gauge, since "2.6.32", "Active anonymous list, tmpfs and System V shared memory included.", "mm/vmscan.c";
    PageTables, kib, gauge, since "2.6.32", "Pages that hold page tables (PTE pages only up to 5.4, PMD pages too from 5.15).", "fs/proc/meminfo.c:meminfo_proc_show";
    AnonPages, kib, gauge, since "2.6.32", "x", "y";
    Buffers, kib, gauge, since "2.6.32", "x", "y";
    Cached, kib, gauge, since "2.6.32", "x", "y";
    HugePages_Free, count, gauge, since "2.6.32", "x", "y";
    HugePages_Rsvd, count, gauge, since "2.6.32", "x", "y";
    HugePages_Surp, count, gauge, since "2.6.32", "x", "y";
    HugePages_Total, count, gauge, since "2.6.32", "x", "y";
    Hugepagesize, kib, gauge, since "2.6.32", "x", "y";
    KReclaimable, kib, gauge, since "2.6.32", "x", "y";
    KernelStack, kib, gauge, since "2.6.32", "x", "y";
    Percpu, kib, gauge, since "2.6.32", "x", "y";
    SecPageTables, kib, gauge, since "2.6.32", "x", "y";
    Shmem, kib, gauge, since "2.6.32", "x", "y";
    Slab, kib, gauge, since "2.6.32", "x", "y";
    SwapCached, kib, gauge, since "2.6.32", "x", "y";
    VmallocUsed, kib, gauge, since "2.6.32", "x", "y";
}
