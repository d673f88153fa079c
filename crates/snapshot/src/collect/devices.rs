//! Swap areas, mounts, block devices and memory controllers.

use lotsfree_kernel_files::file::block::{BlockDevice, DiskStats};
use lotsfree_kernel_files::file::mounts::Mount;
use lotsfree_units::Bytes;

use super::reader::Reader;
use crate::Snapshot;
use crate::snapshot::Edac;

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

/// A bound on the devices that are looked at; only a hostile tree has more.
const MOST_DEVICES: usize = 4096;

fn block(reader: &mut Reader<'_>) -> Option<Vec<BlockDevice>> {
    let names = reader.list("sys/block")?;
    let stats: Vec<(Box<str>, DiskStats)> = reader.file("proc/diskstats").unwrap_or_default();
    let mut devices = Vec::new();
    let real = |name: &&String| !name.starts_with("loop") && !name.starts_with("ram");
    for directory in names.iter().filter(real).take(MOST_DEVICES) {
        let mut number = |file: &str| reader.optional_number(&format!("sys/block/{directory}/queue/{file}"));
        // A name in sysfs cannot contain a slash: `lib/kobject.c:kobject_set_name_vargs` replaces it by a
        // `!`.
        let name = directory.replace('!', "/");
        devices.push(BlockDevice {
            rotational: number("rotational").map(|flag| flag != 0),
            read_ahead_kb: number("read_ahead_kb"),
            stats: stats.iter().find(|(device, _)| **device == *name).map(|(_, stats)| *stats),
            name: name.into(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySource;
    use crate::{Options, collect};

    #[test]
    fn a_device_with_a_slash_in_its_name_is_found_in_both_places() {
        let mut source = MemorySource::default();
        source.insert("sys/block/cciss!c0d0/queue/rotational", "1\n");
        source.insert("sys/block/loop0/queue/rotational", "0\n");
        source.insert("proc/diskstats", " 104       0 cciss/c0d0 83 0 3816 12 137 0 4402 113 0 73 125\n");
        let stats = DiskStats {
            reads: 83,
            sectors_read: 3816,
            read_ms: 12,
            writes: 137,
            sectors_written: 4402,
            write_ms: 113,
            busy_ms: 73,
        };
        let expected = BlockDevice {
            name: "cciss/c0d0".into(),
            rotational: Some(true),
            read_ahead_kb: None,
            stats: Some(stats),
        };
        assert_eq!(collect(&source, &Options::default()).block, Some(vec![expected]));
    }
}
