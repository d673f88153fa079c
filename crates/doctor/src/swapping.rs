//! Functions that the rules of swap share: who uses swap, on which device it lies, how to add more.

use lotsfree_kernel_files::counters::{Counter, Status, Vmstat, status as s, vmstat as v};
use lotsfree_kernel_files::file::block::BlockDevice;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_units::{Bytes, GIB, PageSize};

use crate::finding::subject;
use crate::{Context, Evidence, Remedy, control_groups};

/// Pages swapped out, to a device or to zswap.
pub(crate) const SWAPPED_OUT: &[Counter<Vmstat>] = &[v::pswpout, v::zswpout];
/// Pages swapped in, from a device or from zswap.
pub(crate) const SWAPPED_IN: &[Counter<Vmstat>] = &[v::pswpin, v::zswpin];
/// File that makes swap areas persistent.
pub(crate) const FSTAB: &str = "/etc/fstab";

/// The `n` processes with the largest values of a field of `status`, largest first, without zeros.
pub(crate) fn largest(processes: &[Process], field: Counter<Status>, n: usize) -> Vec<&Process> {
    let mut found: Vec<&Process> =
        processes.iter().filter(|p| p.memory_or_zero(field) > Bytes::ZERO).collect();
    found.sort_by_key(|p| (std::cmp::Reverse(p.memory_or_zero(field)), p.stat.pid));
    found.truncate(n);
    found
}

/// A field of a process's `status` as evidence.
pub(crate) fn saw(process: &Process, field: Counter<Status>) -> Evidence {
    Evidence::new("/proc/PID/status", field.name(), format!("{:#}", process.memory_or_zero(field)))
        .of(subject(process))
}

/// Why swap must not be turned off, where that would kill: what a group at its limit has in swap comes back
/// into the group, which has no room for it.
pub(crate) fn off_kills(cx: &Context<'_>) -> Option<String> {
    let (group, limit) = *control_groups::overfull(cx).first()?;
    let swapped = group.swap_current.unwrap_or_default();
    Some(format!(
        "swapoff is not proposed: {} has {swapped} in swap, for which its limit of {limit} has no room; a process of it \
         would be killed.",
        group.path
    ))
}

/// Whether a swap area lies in compressed memory.
pub(crate) fn is_zram(area: &SwapArea) -> bool {
    area.path.strip_prefix("/dev/").is_some_and(|name| name.starts_with("zram"))
}

/// Whether all areas are zram, so that a read from them costs only a decompression.
pub(crate) fn all_zram(areas: &[SwapArea]) -> bool {
    !areas.is_empty() && areas.iter().all(is_zram)
}

/// The whole device that a swap area lies on. For a partition or device it follows from the name, for a file
/// from its mount. `None` if names do not tell (`/dev/mapper/…`, a UUID).
pub(crate) fn device_of<'a>(cx: &Context<'a>, area: &SwapArea) -> Option<&'a BlockDevice> {
    match &*area.kind {
        "file" => {
            let mounts = cx.now().mounts.as_deref()?;
            let inside = |target: &str| {
                let target = target.trim_end_matches('/');
                area.path.strip_prefix(target).is_some_and(|rest| rest.starts_with('/'))
            };
            let mount = mounts
                .iter()
                .filter(|m| inside(&m.target))
                .max_by_key(|m| m.target.trim_end_matches('/').len())?;
            device_named(cx, &mount.source)
        }
        _ => device_named(cx, &area.path),
    }
}

/// The whole device of `/dev/sda2`, `/dev/nvme0n1p3` or `/dev/dm-0`.
pub(crate) fn device_named<'a>(cx: &Context<'a>, path: &str) -> Option<&'a BlockDevice> {
    let name = path.strip_prefix("/dev/")?;
    let devices = cx.now().block.as_deref()?;
    let partition_of = |whole: &str| {
        let Some(rest) = name.strip_prefix(whole) else { return false };
        // `nvme0n1p3` is a partition of `nvme0n1`, `sda2` of `sda`, and `nvme0n12` of neither.
        let number = match whole.ends_with(|c: char| c.is_ascii_digit()) {
            true if !rest.is_empty() => rest.strip_prefix('p').unwrap_or("x"),
            _ => rest,
        };
        rest.is_empty() || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    devices.iter().filter(|device| partition_of(&device.name)).max_by_key(|device| device.name.len())
}

/// Whether a device is rotational, as far as can be known. Virtual disks (`vd*`, `xvd*`) report so by default
/// whatever they are.
pub(crate) fn turns(device: &BlockDevice) -> Option<bool> {
    let virtual_disk = device.name.starts_with("vd") || device.name.starts_with("xvd");
    device.rotational.filter(|turns| !(*turns && virtual_disk))
}

/// `queue/rotational` of a device as evidence about `subject`. Names in `/sys` have a `!` for `/`
/// (`cciss!c0d0`).
pub(crate) fn saw_rotational(device: &BlockDevice, subject: &str) -> Evidence {
    let flag = device.rotational.map_or("absent", |turns| if turns { "1" } else { "0" });
    let directory = device.name.replace('/', "!");
    Evidence::new(format!("/sys/block/{directory}/queue/rotational"), "rotational", flag).of(subject)
}

/// A remedy that adds a swap file of `size`, rounded up to whole GiB. The few pages of a header or a
/// partition do not add another GiB.
pub(crate) fn add_swap(size: Bytes) -> Remedy {
    let gib = (size - Bytes::mib(1)).units_of(Bytes(GIB)).max(1);
    Remedy::new(format!("Add {gib} GiB of swap"))
        .run(format!("fallocate -l {gib}G /swapfile-lotsfree && chmod 600 /swapfile-lotsfree"))
        .run("mkswap /swapfile-lotsfree && swapon /swapfile-lotsfree")
        .keep(FSTAB, "/swapfile-lotsfree none swap defaults 0 0")
        .sets("size of /swapfile-lotsfree", format!("{gib} GiB"))
        .undo_with("swapoff /swapfile-lotsfree && rm /swapfile-lotsfree")
        .risk(
            "Takes disk space. Swap absorbs memory that nobody touches; memory that is in use is only \
             made slow by it. A file needs a file system that supports swap (ext4, XFS; not tmpfs, not a \
             copy-on-write file of Btrfs).",
        )
}

/// A parameter of zswap, or one of its counts.
pub(crate) fn zswap<'a>(cx: &Context<'a>, name: &str) -> Option<&'a str> {
    let values = cx.now().zswap.as_deref()?;
    values.iter().find(|(known, _)| &**known == name).map(|(_, value)| &**value)
}

/// The share of used swap that zswap holds in memory; 0 if it is unknown.
pub(crate) fn in_zswap(cx: &Context<'_>) -> f64 {
    use lotsfree_kernel_files::counters::meminfo as m;
    let used = cx.mem_or_zero(m::SwapTotal) - cx.mem_or_zero(m::SwapFree);
    cx.mem_or_zero(m::Zswapped).share_of(used).min(1.0)
}

/// The OOM killer's points for a process, in pages: memory resident, swapped out and in page tables, plus its
/// `oom_score_adj` in thousandths of `total` (RAM and swap). `None` for a process that it never kills
/// (-1000), for process 1 and for kernel threads. Source: `mm/oom_kill.c:oom_badness`, 4.19 and later.
pub(crate) fn oom_points(process: &Process, total: Bytes, page: PageSize) -> Option<i64> {
    let adjustment = i64::from(process.oom_score_adj.unwrap_or(0));
    if adjustment <= -1000 || process.stat.pid == 1 || process.stat.is_kernel_thread() {
        return None;
    }
    let bytes: Bytes = [s::VmRSS, s::VmSwap, s::VmPTE].iter().map(|&f| process.memory_or_zero(f)).sum();
    let held = i64::try_from(page.pages(bytes)).unwrap_or(i64::MAX);
    let share = i64::try_from(page.pages(total) / 1000).unwrap_or(i64::MAX).saturating_mul(adjustment);
    Some(held.saturating_add(share))
}

/// The process that a global OOM would kill first.
pub(crate) fn first_victim(processes: &[Process], total: Bytes, page: PageSize) -> Option<&Process> {
    let points = |process: &&Process| oom_points(process, total, page);
    processes.iter().filter(|p| points(p).is_some()).max_by_key(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lotsfree_kernel_files::file::mounts::Mount;
    use lotsfree_snapshot::{Observation, Snapshot};

    #[test]
    fn a_partition_belongs_to_its_whole_device() {
        let device = |name: &str| BlockDevice { name: name.into(), ..BlockDevice::default() };
        let mount = |source: &str, target: &str| Mount {
            source: source.into(),
            target: target.into(),
            ..Mount::default()
        };
        let now = Snapshot {
            block: Some(vec![
                device("sda"),
                device("sdaa"),
                device("nvme0n1"),
                device("dm-1"),
                device("dm-10"),
            ]),
            mounts: Some(vec![mount("/dev/sda1", "/"), mount("/dev/nvme0n1p1", "/var")]),
            ..Snapshot::default()
        };
        let observation = Observation::instant("test", now);
        let cx = Context::new(&observation);
        let of = |path: &str, kind: &str| {
            let area = SwapArea { path: path.into(), kind: kind.into(), ..SwapArea::default() };
            device_of(&cx, &area).map(|device| device.name.to_string())
        };
        assert_eq!(of("/dev/sda2", "partition").as_deref(), Some("sda"));
        assert_eq!(of("/dev/sdaa2", "partition").as_deref(), Some("sdaa"));
        assert_eq!(of("/dev/nvme0n1p3", "partition").as_deref(), Some("nvme0n1"));
        assert_eq!(of("/dev/nvme0n12", "partition"), None);
        assert_eq!(of("/dev/dm-10", "partition").as_deref(), Some("dm-10"));
        assert_eq!(of("/dev/mapper/vg-swap", "partition"), None);
        assert_eq!(of("/swapfile", "file").as_deref(), Some("sda"));
        assert_eq!(of("/var/swap/a", "file").as_deref(), Some("nvme0n1"));
        assert_eq!(of("/various/a", "file").as_deref(), Some("sda"));
    }

    #[test]
    fn slashes_of_device_names_are_escaped_in_sys() {
        let device = BlockDevice { name: "cciss/c0d0".into(), ..BlockDevice::default() };
        let evidence = saw_rotational(&device, &device.name);
        assert_eq!(evidence.file, "/sys/block/cciss!c0d0/queue/rotational");
        assert_eq!(evidence.subject.as_deref(), Some("cciss/c0d0"));
    }

    #[test]
    fn points_follow_the_kernel() {
        let mut process = Process { oom_score_adj: Some(0), ..Process::default() };
        process.stat.pid = 812;
        let mut hint = 0;
        for (name, kib) in [(&b"VmRSS"[..], 400_000), (b"VmSwap", 4_000), (b"VmPTE", 800)] {
            process.status.record(name, kib, &mut hint);
        }
        let total = Bytes::kib(16_000_000);
        assert_eq!(oom_points(&process, total, PageSize::X86), Some(101_200));
        let large = PageSize::new(64 << 10).unwrap();
        assert_eq!(oom_points(&process, total, large), Some(101_200 / 16));
        process.oom_score_adj = Some(-100);
        assert_eq!(oom_points(&process, total, PageSize::X86), Some(101_200 - 400_000));
        process.oom_score_adj = Some(-1000);
        assert_eq!(oom_points(&process, total, PageSize::X86), None);
    }
}
