//! Swap areas, mounts, block devices and memory controllers.

use crate::Snapshot;
use crate::file::block::{BlockDevice, DiskStats};
use crate::file::mounts::Mount;
use crate::snapshot::Edac;
use lotsfree_units::Bytes;

use super::reader::Reader;

pub(super) fn collect(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    snapshot.swaps = reader.file("proc/swaps");
    snapshot.mounts = reader.file("proc/mounts").map(|mounts| relevant(mounts, reader.is_live()));
    snapshot.block = block(reader);
    snapshot.edac = edac(reader);
}

/// File systems that take no memory of their own and hold no data.
const VIRTUAL: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tracefs",
];

fn relevant(mut mounts: Vec<Mount>, live: bool) -> Vec<Mount> {
    mounts.retain(|mount| !VIRTUAL.contains(&&*mount.kind));
    for mount in mounts.iter_mut().filter(|mount| live && matches!(&*mount.kind, "tmpfs" | "hugetlbfs")) {
        if let Ok(stat) = rustix::fs::statvfs(mount.target.as_str()) {
            let block = Bytes(stat.f_frsize);
            mount.space =
                Some((block.times(stat.f_blocks), block.times(stat.f_blocks.saturating_sub(stat.f_bfree))));
        }
    }
    mounts
}

/// Devices beyond this are not looked at; only a hostile tree has more.
const MOST_DEVICES: usize = 4096;

fn block(reader: &mut Reader<'_>) -> Option<Vec<BlockDevice>> {
    let names = reader.list("sys/block")?;
    let stats: Vec<(Box<str>, DiskStats)> = reader.file("proc/diskstats").unwrap_or_default();
    let mut devices = Vec::new();
    for name in
        names.iter().filter(|name| !name.starts_with("loop") && !name.starts_with("ram")).take(MOST_DEVICES)
    {
        let mut number = |file: &str| reader.optional_number(&format!("sys/block/{name}/queue/{file}"));
        devices.push(BlockDevice {
            name: name.as_str().into(),
            rotational: number("rotational").map(|flag| flag != 0),
            read_ahead_kb: number("read_ahead_kb"),
            stats: stats.iter().find(|(device, _)| **device == **name).map(|(_, stats)| *stats),
        });
    }
    Some(devices)
}

fn edac(reader: &mut Reader<'_>) -> Option<Edac> {
    let names = reader.optional_list("sys/devices/system/edac/mc");
    let mut sum: Option<Edac> = None;
    for name in names.iter().filter(|name| name.starts_with("mc")) {
        let mut number =
            |file: &str| reader.optional_number(&format!("sys/devices/system/edac/mc/{name}/{file}"));
        if let (Some(corrected), Some(uncorrected)) = (number("ce_count"), number("ue_count")) {
            let sum = sum.get_or_insert_default();
            sum.corrected = sum.corrected.saturating_add(corrected);
            sum.uncorrected = sum.uncorrected.saturating_add(uncorrected);
        }
    }
    sum
}
