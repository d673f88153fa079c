# The virtual machine's host: control groups of version 2, tmpfs, and the cases.
export PATH=/lotsfree:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LOTSFREE_STATE=/var/tmp/state LC_ALL=C.UTF-8
busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
busybox ifconfig lo 127.0.0.1 up
mkdir -p /dev/shm /tmp /run /var/tmp /root
busybox mount -t tmpfs tmpfs /dev/shm
chmod 1777 /dev/shm /var/tmp
# khugepaged is a culprit only where a case makes it one.
echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
# Few requests have to carry much: the disk serves only so many.
echo 4096 >/sys/block/vda/queue/read_ahead_kb
# Each line of the file is an argument.
IFS='
'
/lotsfree/xtask blame --prepared /prepared $(cat /lotsfree/words) && echo "blame: done"
