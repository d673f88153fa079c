//! [`Disk`]: a disk of a guest, made from a scenario's machine.

use lotsfree_scenario::{Filesystem, MachineSpec, SwapOn};
use lotsfree_units::Bytes;

/// Size of a disk for which the scenario gives none. Its image is sparse, so it takes only what is written.
const UNBOUND: Bytes = Bytes::gib(64);
/// Room of a file system beside the files that exist at the beginning.
const ROOM: Bytes = Bytes::gib(1);
/// The smallest file system. `mkfs.xfs` makes none below this size, and `mkfs.btrfs` none far below.
const LEAST: Bytes = Bytes::mib(512);

/// A disk of a guest: its contents and its speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Name of the disk's image, in the scratch directory.
    pub name: &'static str,
    /// Kind and size of the disk's file system, if it has one.
    pub files: Option<(Filesystem, Bytes)>,
    /// Size of the disk's swap area, if it has one. With a file system on the same disk, both are partitions.
    pub swap: Option<Bytes>,
    /// The disk's speed.
    pub throttle: Throttle,
}

/// Limits of a disk, for reads and writes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Bytes per second.
    pub bandwidth: Bytes,
    /// Requests per second; `None`: as many as the host does.
    pub iops: Option<u64>,
}

impl Throttle {
    /// QEMU's throttle for a scenario's figures.
    ///
    /// QEMU's throttle has no latency. The latency of a rotational disk is the time that its heads take,
    /// during which it does nothing else, so it bounds the requests per second. Unlike such a disk, QEMU also
    /// counts requests that start where the last one ended, so the rate of a sequential stream depends on the
    /// size of its requests. The latency of other disks overlaps with the requests that follow and is left
    /// out: it is whatever the host takes.
    fn new(latency: Option<u64>, bandwidth: Bytes, iops: Option<u64>, rotational: bool) -> Throttle {
        let heads = latency.filter(|latency| rotational && *latency > 0);
        let heads = heads.map(|latency| (1_000_000_000 / latency).max(1));
        let iops = [iops, heads].into_iter().flatten().min();
        Throttle { bandwidth, iops }
    }

    /// The throttle as options of `-drive`, each after a comma.
    pub(crate) fn options(&self) -> String {
        let mut options = format!(",throttling.bps-total={}", self.bandwidth.0);
        if let Some(iops) = self.iops {
            options += &format!(",throttling.iops-total={iops}");
        }
        options
    }
}

/// The disks of a machine, in the order of their names in the guest: vda, vdb. `files` is the size of the
/// files that exist when it boots.
pub(crate) fn disks(machine: &MachineSpec, files: Bytes) -> Vec<Disk> {
    let disk = &machine.disk;
    let swap = Some(machine.swap.size.0).filter(|size| *size > Bytes::ZERO);
    let (own, shared) = match machine.swap.on {
        SwapOn::Own => (swap, None),
        SwapOn::Disk => (None, swap),
        // The guest's own memory has it.
        SwapOn::Zram => (None, None),
    };
    // A file system has overhead, so it needs more room than its files.
    let needed = files.scale(1.1) + ROOM;
    let size = disk.size.map_or(UNBOUND.max(needed), |size| size.0).max(LEAST);
    let mut disks = vec![Disk {
        name: "disk",
        files: Some((disk.filesystem, size)),
        swap: shared,
        throttle: Throttle::new(Some(disk.latency.ns()), disk.bandwidth.0, disk.iops, disk.rotational),
    }];
    if let Some(size) = own {
        let bandwidth = machine.swap.bandwidth.unwrap_or(disk.bandwidth);
        disks.push(Disk {
            name: "swap",
            files: None,
            swap: Some(size),
            throttle: Throttle::new(None, bandwidth.0, machine.swap.iops, false),
        });
    }
    disks
}

/// The guest's devices of the file system and of the swap area.
pub(crate) fn devices(disks: &[Disk]) -> (Option<String>, Option<String>) {
    let mut found = (None, None);
    for (disk, letter) in disks.iter().zip('a'..='z') {
        let parts = disk.files.is_some() && disk.swap.is_some();
        let device = |part: u32| {
            if parts { format!("/dev/vd{letter}{part}") } else { format!("/dev/vd{letter}") }
        };
        if disk.files.is_some() {
            found.0 = Some(device(1));
        }
        if disk.swap.is_some() {
            found.1 = Some(device(2));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use lotsfree_scenario::Disk as Figures;
    use lotsfree_scenario::{Cpus, Distance, Generation, Swap};
    use lotsfree_workload::quantity::{Bandwidth, Size, Time};

    use super::*;

    fn machine(disk: Figures, swap: Swap) -> MachineSpec {
        MachineSpec {
            generation: "linux-6.1".parse::<Generation>().expect("known"),
            cpus: Cpus::Total(1),
            page_size: Size::kib(4),
            nodes: vec![Size::mib(512)],
            distance: Distance::default(),
            kernel: None,
            reserved: None,
            committed: None,
            page_tables: None,
            pagesets: None,
            disk,
            swap,
        }
    }

    #[test]
    fn a_disk_that_turns_is_bounded_by_its_heads() {
        let slow = Figures { latency: Time::ms(8), rotational: true, ..Figures::default() };
        let disk = disks(&machine(slow.clone(), Swap::default()), Bytes::ZERO).remove(0);
        assert_eq!(disk.throttle, Throttle { bandwidth: Bytes::mib(500), iops: Some(125) });
        assert_eq!(disk.throttle.options(), ",throttling.bps-total=524288000,throttling.iops-total=125");
        assert_eq!(disk.files, Some((Filesystem::Ext4, Bytes::gib(64))));
        let fewer = Figures { iops: Some(100), ..slow };
        let disk = disks(&machine(fewer, Swap::default()), Bytes::ZERO).remove(0);
        assert_eq!(disk.throttle.iops, Some(100));
        let flash = disks(&machine(Figures::default(), Swap::default()), Bytes::gib(100)).remove(0);
        assert_eq!(flash.throttle.options(), ",throttling.bps-total=524288000");
        assert_eq!(flash.files, Some((Filesystem::Ext4, Bytes::gib(111))));
    }

    #[test]
    fn swap_is_a_disk_or_a_part_of_one() {
        let figures = Figures { size: Some(Size::gib(10)), ..Figures::default() };
        let swap = Swap { size: Size::gib(1), on: SwapOn::Disk, ..Swap::default() };
        let shared = disks(&machine(figures.clone(), swap.clone()), Bytes::ZERO);
        assert_eq!(shared.len(), 1);
        assert_eq!(shared[0].swap, Some(Bytes::gib(1)));
        assert_eq!(shared[0].files, Some((Filesystem::Ext4, Bytes::gib(10))));
        assert_eq!(devices(&shared), (Some("/dev/vda1".to_owned()), Some("/dev/vda2".to_owned())));

        let bandwidth = Some(Bandwidth::mib(100));
        let swap = Swap { on: SwapOn::Own, bandwidth, latency: Some(Time::us(1)), iops: Some(9), ..swap };
        let own = disks(&machine(figures.clone(), swap), Bytes::ZERO);
        assert_eq!(own[0].swap, None);
        assert_eq!(own[1].swap, Some(Bytes::gib(1)));
        assert_eq!(own[1].throttle, Throttle { bandwidth: Bytes::mib(100), iops: Some(9) });
        assert_eq!(devices(&own), (Some("/dev/vda".to_owned()), Some("/dev/vdb".to_owned())));
        let zram = Swap { size: Size::gib(1), on: SwapOn::Zram, ..Swap::default() };
        let memory = disks(&machine(figures.clone(), zram), Bytes::ZERO);
        assert_eq!(devices(&memory), (Some("/dev/vda".to_owned()), None), "zram is no disk");
        let none = disks(&machine(figures, Swap::default()), Bytes::ZERO);
        assert_eq!(devices(&none), (Some("/dev/vda".to_owned()), None));
    }
}
