# paths.sh all|changing PID…: names of the files to capture, one a line, relative to the current directory,
# which is the root. "changing" are those that a second sample needs.
which=$1
shift

present() {
    for path in "$@"; do
        [ -r "$path" ] && echo "$path"
    done
}

present proc/uptime proc/meminfo proc/vmstat proc/zoneinfo proc/buddyinfo proc/swaps proc/stat proc/loadavg \
    proc/diskstats proc/pressure/cpu proc/pressure/io proc/pressure/memory
find sys/devices/system/node/node* -type f \( -name meminfo -o -name numastat -o -name vmstat \)
find sys/fs/cgroup -type f -perm -0400 -name 'memory.*'
for process in "$@"; do
    present proc/$process/stat proc/$process/statm proc/$process/status
    [ -e proc/$process/exe ] && present proc/$process/smaps_rollup
done
[ "$which" = all ] || exit 0

present proc/pagetypeinfo proc/cmdline proc/mounts proc/version proc/sysvipc/shm proc/slabinfo proc/cgroups \
    proc/filesystems
# Reading stat_refresh folds the per-CPU counters, which no observer should do.
find proc/sys/vm -type f -perm -0400 ! -name stat_refresh
for name in shmmax shmall shmmni sem osrelease hostname numa_balancing \
    numa_balancing_promote_rate_limit_MBps sched_rt_runtime_us; do
    present proc/sys/kernel/$name
done
present sys/devices/system/cpu/online sys/devices/system/cpu/possible
for name in online possible has_memory has_normal_memory has_cpu; do
    present sys/devices/system/node/$name
done
find sys/devices/system/node/node* -type f -perm -0400 \
    \( -name distance -o -name cpulist -o -path '*/hugepages/*' \)
for directory in hugepages transparent_hugepage ksm lru_gen numa swap mempolicy; do
    [ -d sys/kernel/mm/$directory ] && find sys/kernel/mm/$directory -type f -perm -0400
done
present sys/module/zswap/parameters/*
for disk in sys/block/*; do
    case $disk in
        */loop* | */ram*) ;;
        *) present "$disk/queue/rotational" "$disk/queue/read_ahead_kb" ;;
    esac
done
find sys/fs/cgroup -type f -perm -0400 \( -name cgroup.controllers -o -name cgroup.subtree_control \
    -o -name cgroup.procs -o -name cgroup.stat -o -name cgroup.events \
    -o -name cpuset.mems -o -name cpuset.mems.effective \)
for process in "$@"; do
    present proc/$process/comm proc/$process/cgroup proc/$process/oom_score_adj
    [ -e proc/$process/exe ] && present proc/$process/limits proc/$process/numa_maps
done
