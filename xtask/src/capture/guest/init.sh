#!/bin/busybox sh
# First program of the virtual machine. Loads the modules in dependency order, puts the small user
# space on a disk file system, so that the running machine has an ordinary root rather than the tmpfs
# of the initramfs, and continues there.
/bin/busybox mkdir -p /proc /sys /dev /root /tmp
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
mount -t proc proc /proc
while read -r module; do
    insmod "/modules/$module" || echo "capture: insmod $module failed"
done </modules/order
umount /proc
mke2fs -b 4096 /dev/vda >/dev/null && mount -t ext4 /dev/vda /root || echo "capture: no root disk"
mkdir -p /root/proc /root/sys /root/dev /root/tmp /root/run /root/srv /root/mnt
cp -a /bin /lib /lib64 /guest /root
sync
mount -o move /dev /root/dev
exec switch_root /root /bin/sh /guest/main.sh
