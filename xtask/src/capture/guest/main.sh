# Second program of the virtual machine, on the root disk: mounts, the scenario, two samples, power off.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm /dev/hugepages
mount -t tmpfs tmpfs /dev/shm
mount -t hugetlbfs hugetlbfs /dev/hugepages
mount -t tmpfs -o size=1m tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec >/dev/console 2>&1 </dev/null
hostname vm
echo '+memory +cpuset' >/sys/fs/cgroup/cgroup.subtree_control
dd if=/dev/urandom of=/srv/pattern bs=1M count=1 2>/dev/null
. /guest/library.sh
cd /
settle

. /guest/scenario.sh

if [ $looks -gt 0 ]; then
    echo "capture: done"
    poweroff -f
fi
cd /
echo "capture: first sample"
processes=$(user_processes)
sleep 5 &
interval=$!
sh /guest/paths.sh all $processes | sample 0
wait $interval
echo "capture: second sample"
sh /guest/paths.sh changing $processes | sample 8
sync
echo "capture: done"
poweroff -f
