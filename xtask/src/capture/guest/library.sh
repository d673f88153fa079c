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

# sample MIB: the files named on standard input, to the output disk at that offset. Written past the page
# cache, so that the first sample does not show in the second.
sample() {
    awk -f /guest/dump.awk | dd of=/dev/vdb bs=1M seek="$1" iflag=fullblock oflag=direct conv=sync 2>/dev/null
}
