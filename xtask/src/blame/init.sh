#!/bin/busybox sh
# First program of the virtual machine: mounts the disk and goes on there.
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
exec >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
while read -r module; do
    insmod "/modules/$module" || echo "blame: insmod $module failed"
done </modules/order
mount -t ext4 /dev/vda /root || echo "blame: no disk"
cp /bin/busybox /root/lotsfree/busybox
for place in dev proc sys; do
    mount --move "/$place" "/root/$place"
done
chroot /root /lotsfree/busybox sh /lotsfree/run.sh
poweroff -f
