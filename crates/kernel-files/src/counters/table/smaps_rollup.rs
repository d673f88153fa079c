//! `/proc/PID/smaps_rollup`.

counters! {
    /// The sums over the mappings of one process; `since` is for this file, `smaps` has most fields earlier.
    ///
    /// The first line of the file is the address range and has to be left out.
    family SmapsRollup in smaps_rollup, "/proc/PID/smaps_rollup", separator b':';
    Rss, kib, gauge, since "4.14", "Pages mapped, shared ones in full; hugetlb pages are not in it.", "fs/proc/task_mmu.c:__show_smap";
    Pss, kib, gauge, since "4.14", "Pages mapped, each divided by the number of processes that map it; sums up over processes.", "fs/proc/task_mmu.c:__show_smap";
    Pss_Dirty, kib, gauge, since "6.0", "The part of Pss that is dirty.", "fs/proc/task_mmu.c:__show_smap";
    Pss_Anon, kib, gauge, since "5.4", "The part of Pss that is anonymous; only in the rollup.", "fs/proc/task_mmu.c:__show_smap";
    Pss_File, kib, gauge, since "5.4", "The part of Pss that is in files; only in the rollup.", "fs/proc/task_mmu.c:__show_smap";
    Pss_Shmem, kib, gauge, since "5.4", "The part of Pss that is tmpfs and shared memory; only in the rollup.", "fs/proc/task_mmu.c:__show_smap";
    Shared_Clean, kib, gauge, since "4.14", "Clean pages that other processes map as well.", "fs/proc/task_mmu.c:__show_smap";
    Shared_Dirty, kib, gauge, since "4.14", "Dirty pages that other processes map as well.", "fs/proc/task_mmu.c:__show_smap";
    Private_Clean, kib, gauge, since "4.14", "Clean pages that this process alone maps.", "fs/proc/task_mmu.c:__show_smap";
    Private_Dirty, kib, gauge, since "4.14", "Dirty pages that this process alone maps; what its end would free for certain, but for swap.", "fs/proc/task_mmu.c:__show_smap";
    Referenced, kib, gauge, since "4.14", "Pages marked as accessed since reclaim or clear_refs last cleared the marks.", "fs/proc/task_mmu.c:__show_smap";
    Anonymous, kib, gauge, since "4.14", "Pages that belong to no file, private copies of file pages included.", "fs/proc/task_mmu.c:__show_smap";
    KSM, kib, gauge, since "6.7", "Pages that KSM has merged, without its zero pages.", "fs/proc/task_mmu.c:__show_smap";
    LazyFree, kib, gauge, since "4.14", "Pages marked with madvise(MADV_FREE) and not dropped yet; still counted in Rss.", "fs/proc/task_mmu.c:__show_smap";
    AnonHugePages, kib, gauge, since "4.14", "Anonymous memory mapped with PMDs.", "fs/proc/task_mmu.c:__show_smap";
    ShmemPmdMapped, kib, gauge, since "4.14", "Shared memory mapped with PMDs.", "fs/proc/task_mmu.c:__show_smap";
    FilePmdMapped, kib, gauge, since "5.4", "File memory mapped with PMDs.", "fs/proc/task_mmu.c:__show_smap";
    Shared_Hugetlb, kib, gauge, since "4.14", "Hugetlb pages that other processes map as well; not part of Rss or Pss.", "fs/proc/task_mmu.c:__show_smap";
    Private_Hugetlb, kib, gauge, since "4.14", "Hugetlb pages that this process alone maps; not part of Rss or Pss.", "fs/proc/task_mmu.c:__show_smap";
    Swap, kib, gauge, since "4.14", "Pages in swap that the process would fault in, swapped shared memory of its mappings included.", "fs/proc/task_mmu.c:__show_smap";
    SwapPss, kib, gauge, since "4.14", "Swap, each page divided by the number of its users; shared memory in swap is not in it.", "fs/proc/task_mmu.c:__show_smap";
    Locked, kib, gauge, since "4.14", "The part of Pss that lies in locked mappings; divided as Pss is, so smaller than VmLck for shared memory.", "fs/proc/task_mmu.c:__show_smap";
}
