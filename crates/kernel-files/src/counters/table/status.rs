//! The memory lines of `/proc/PID/status`.

counters! {
    /// The memory lines of `/proc/PID/status`; kernel threads have none of them.
    ///
    /// The other lines of the file are neither numbers in kB nor counters: pick out lines by name before
    /// parsing.
    family Status in status, "/proc/PID/status", separator b':';
    VmPeak, kib, gauge, since "2.6.32", "Largest VmSize so far.", "fs/proc/task_mmu.c:task_mem";
    VmSize, kib, gauge, since "2.6.32", "Address space mapped, touched or not, hugetlb mappings included.", "fs/proc/task_mmu.c:task_mem";
    VmLck, kib, gauge, since "2.6.32", "Address space in locked mappings, whether its pages are in memory or not; SHM_LOCK segments are not in it.", "fs/proc/task_mmu.c:task_mem";
    VmPin, kib, gauge, since "3.2", "Pages that drivers pinned on behalf of the process (RDMA and the like).", "fs/proc/task_mmu.c:task_mem";
    VmHWM, kib, gauge, since "2.6.32", "Largest VmRSS so far; can be reset through clear_refs.", "fs/proc/task_mmu.c:task_mem";
    VmRSS, kib, gauge, since "2.6.32", "Pages mapped: RssAnon plus RssFile plus RssShmem; shared pages count in full for each process and hugetlb pages not at all.", "fs/proc/task_mmu.c:task_mem";
    RssAnon, kib, gauge, since "4.5", "Anonymous pages mapped, private copies of file pages included.", "fs/proc/task_mmu.c:task_mem";
    RssFile, kib, gauge, since "4.5", "File pages mapped, without tmpfs and shared memory.", "fs/proc/task_mmu.c:task_mem";
    RssShmem, kib, gauge, since "4.5", "Pages of System V shared memory, tmpfs and shared anonymous mappings that this process has touched.", "fs/proc/task_mmu.c:task_mem";
    VmData, kib, gauge, since "2.6.32", "Private writable address space without stack; heap and anonymous mappings, touched or not.", "fs/proc/task_mmu.c:task_mem";
    VmStk, kib, gauge, since "2.6.32", "Address space of growing stacks; those of other threads are ordinary mappings and count in VmData.", "fs/proc/task_mmu.c:task_mem";
    VmExe, kib, gauge, since "2.6.32", "Address space of the program's own code.", "fs/proc/task_mmu.c:task_mem";
    VmLib, kib, gauge, since "2.6.32", "Executable address space other than VmExe: libraries and generated code.", "fs/proc/task_mmu.c:task_mem";
    VmPTE, kib, gauge, since "2.6.32", "Page tables of the process: the last level only up to 4.14, all levels from 4.15 on.", "fs/proc/task_mmu.c:task_mem";
    VmPMD, kib, gauge, since "4.0" until "4.15", "PMD tables of the process; part of VmPTE afterwards.", "fs/proc/task_mmu.c:task_mem";
    VmSwap, kib, gauge, since "2.6.34", "Anonymous pages of the process that are in swap; swapped shared memory is not in it.", "fs/proc/task_mmu.c:task_mem";
    HugetlbPages, kib, gauge, since "4.4", "Hugetlb pages mapped; not part of VmRSS.", "mm/hugetlb.c:hugetlb_report_usage";
}
