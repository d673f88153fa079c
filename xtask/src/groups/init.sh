#!/bin/busybox sh
# First program of the virtual machine: a host with control groups of version 2 and a disk, on which tests run.
/bin/busybox mkdir -p /proc /sys /dev /root /tmp /var/tmp
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root LOTSFREE_KILLS=every
mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
while read -r module; do
    insmod "/modules/$module" || echo "tests: insmod $module failed"
done </modules/order
mke2fs -b 4096 /dev/vda >/dev/null && mount -t ext4 /dev/vda /var/tmp || echo "tests: no disk"
# The words of /filter are arguments, without quotes.
/tests $(cat /filter) --test-threads 1 --nocapture && echo "tests: done"
poweroff -f
