//! Levels of memory that old kernels do not print and that follow from others: what is available, shared, or
//! unreclaimable.

use lotsfree_kernel_files::counters::{Meminfo, Values, meminfo as m};
use lotsfree_units::Bytes;

/// Share of memory below which what is available is little.
pub(crate) const LITTLE: f64 = 0.05;
/// The same beside full swap: earlyoom acts at 10 % of both.
pub(crate) const LITTLE_WITH_FULL_SWAP: f64 = 0.10;
/// Swap counts as full from here on; earlyoom's bound for its last signal is 5 %.
pub(crate) const SWAP_FULL: f64 = 0.05;
/// Available memory from which on it is not short.
pub(crate) const ENOUGH: f64 = 0.10;
/// The same beside a kswapd that waits for a disk.
pub(crate) const ENOUGH_WITH_KSWAPD: f64 = 0.20;
/// CPUs that wait for disks this share of the time: the disks are slow, or asked for too much.
pub(crate) const WAITING: f64 = 0.25;
/// More than this is room for a good while on any host.
pub(crate) const ROOM: Bytes = Bytes::gib(8);

/// What programs can still have without swapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    pub(crate) bytes: Bytes,
    /// Whether the kernel says so itself (`MemAvailable`, 3.14 and later).
    pub(crate) told: bool,
}

/// `MemAvailable`, or what it would be about: free memory, files and half of the reclaimable slab. An
/// estimate from `Cached` without `Shmem` may be too large; it is then an upper bound.
pub(crate) fn available(meminfo: &Values<Meminfo>) -> Option<Available> {
    let kib = |field| meminfo.get(field).map(Bytes::kib);
    if let Some(bytes) = kib(m::MemAvailable) {
        return Some(Available { bytes, told: true });
    }
    let free = kib(m::MemFree)?;
    let files = match (kib(m::Active_file), kib(m::Inactive_file)) {
        (Some(active), Some(inactive)) => active + inactive,
        _ => kib(m::Cached)? + kib(m::Buffers).unwrap_or_default() - kib(m::Shmem).unwrap_or_default(),
    };
    let slab = kib(m::SReclaimable).unwrap_or_default().scale(0.5);
    Some(Available { bytes: free + files + slab, told: false })
}

/// `Shmem`; before 2.6.32 what of `Cached` is not on the lists of files.
pub(crate) fn shared(meminfo: &Values<Meminfo>) -> Option<Bytes> {
    let kib = |field| meminfo.get(field).map(Bytes::kib);
    if let Some(shared) = kib(m::Shmem) {
        return Some(shared);
    }
    let files = kib(m::Active_file)? + kib(m::Inactive_file)? + kib(m::Unevictable).unwrap_or_default();
    Some(kib(m::Cached)? + kib(m::Buffers).unwrap_or_default() - files)
}

/// `Hugepagesize`, or what `Hugetlb` has for each of `HugePages_Total`, if that is a power of two.
pub(crate) fn huge_page_size(meminfo: &Values<Meminfo>) -> Option<Bytes> {
    let told = meminfo.get(m::Hugepagesize).map(Bytes::kib);
    told.or_else(|| {
        let size = meminfo.get(m::Hugetlb)?.checked_div(meminfo.get(m::HugePages_Total)?)?;
        size.is_power_of_two().then(|| Bytes::kib(size))
    })
}

/// `SUnreclaim`, or what of `Slab` is not reclaimable.
pub(crate) fn slab_unreclaimable(meminfo: &Values<Meminfo>) -> Option<Bytes> {
    let kib = |field| meminfo.get(field).map(Bytes::kib);
    kib(m::SUnreclaim).or_else(|| Some(kib(m::Slab)? - kib(m::SReclaimable)?))
}

/// Anonymous memory in RAM: `AnonPages`, or the lists of anonymous pages without shared memory.
pub(crate) fn anonymous(meminfo: &Values<Meminfo>) -> Option<Bytes> {
    let kib = |field| meminfo.get(field).map(Bytes::kib);
    let lists = || Some(kib(m::Active_anon)? + kib(m::Inactive_anon)? - shared(meminfo).unwrap_or_default());
    kib(m::AnonPages).or_else(lists)
}
