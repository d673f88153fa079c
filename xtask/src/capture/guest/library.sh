# Words in which the scenarios are written.

fail() {
    echo "capture: failed: $*"
    poweroff -f
}

# swap_on: all of the second data disk.
swap_on() {
    mkswap /dev/vdc >/dev/null && swapon /dev/vdc || fail "swap"
}

# hold NAME MIB OPTION…: a process of that name that holds that much memory, see hold.pl. Returns once it
# does.
hold() {
    hold_in /sys/fs/cgroup "$@"
}

# hold_in CGROUP NAME MIB OPTION…: the same, in a control group.
hold_in() {
    sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec perl /guest/hold.pl "$@"' sh "$@" &
    wait_for "/run/$2"
}

# wait_for FILE: until it exists, for a minute at most.
wait_for() {
    waited=0
    until [ -e "$1" ]; do
        sleep 0.2
        waited=$((waited + 1))
        [ $waited -lt 300 ] || fail "$1 did not appear"
    done
}

# group NAME KEY=VALUE…: a control group with these interface files written.
group() {
    directory=/sys/fs/cgroup/$1
    mkdir "$directory"
    shift
    for pair in "$@"; do
        echo "${pair#*=}" >"$directory/${pair%%=*}" || fail "$pair"
    done
}

# file NAME MIB: a file on the root disk, written through the page cache.
file() {
    i=0
    while [ $i -lt "$2" ]; do
        cat /srv/pattern
        i=$((i + 1))
    done >"/srv/$1"
}

# Ids of the processes that have a user address space, without the shell that runs this; the last one is a
# kernel thread, kswapd of node 0.
user_processes() {
    read -r self rest </proc/self/stat
    for directory in /proc/[0-9]*; do
        [ -e "$directory/exe" ] && [ "$directory" != "/proc/$self" ] && echo "${directory#/proc/}"
    done
    for directory in /proc/[0-9]*; do
        read -r comm <"$directory/comm"
        [ "$comm" = kswapd0 ] && echo "${directory#/proc/}"
    done
}

# sample MIB OPTION…: the files named on standard input, to the output disk at that offset. The options are those
# of dump.pl. Written past the page cache, so that a sample does not show in the next.
sample() {
    at=$1
    shift
    perl /guest/dump.pl "$@" |
        dd of=/dev/vdb bs=1M seek="$at" iflag=fullblock oflag=direct conv=sync 2>/dev/null
}

# look OPTION…: a sample of what watermarks and limits follow from, and of what follows. A scenario that looks takes
# all of its samples itself.
looks=0
look() {
    sleep 1
    for path in proc/sys/vm/min_free_kbytes proc/sys/vm/watermark_scale_factor proc/sys/vm/lowmem_reserve_ratio \
        proc/sys/vm/dirty_ratio proc/sys/vm/dirty_background_ratio proc/sys/vm/dirty_bytes \
        proc/sys/vm/dirty_background_bytes proc/sys/kernel/osrelease sys/kernel/mm/transparent_hugepage/enabled \
        sys/devices/system/node/node0/cpulist sys/devices/system/node/node1/cpulist \
        proc/meminfo proc/vmstat proc/zoneinfo proc/self/stat; do
        [ -r $path ] && echo $path
    done | sample $((looks * 8)) marks "$@"
    looks=$((looks + 1))
}

# thp SETTING: transparent huge pages. Whatever is written, the kernel derives min_free_kbytes and all marks again.
thp() {
    echo "$1" >/sys/kernel/mm/transparent_hugepage/enabled || fail "thp"
}

# settle: the kernel computed min_free_kbytes, the marks and the reserves while it booted, before it gave back the
# memory of its initramfs and of its own start. Makes it derive them from what its zones manage now, under the
# settings that it has. A min_free_kbytes depends on the marks before it; the third one no longer does.
settle() {
    setting=$(cat /sys/kernel/mm/transparent_hugepage/enabled)
    setting=${setting#*[}
    for round in 1 2 3; do
        thp never
    done
    thp "${setting%]*}"
    ratios=$(cat /proc/sys/vm/lowmem_reserve_ratio)
    echo "$ratios" >/proc/sys/vm/lowmem_reserve_ratio || fail "lowmem_reserve_ratio"
}
