//! [`Snapshot`]: one host at one instant.

use lotsfree_kernel_files::counters::{Ksm, Meminfo, Values, Vmstat};
use lotsfree_kernel_files::file::arcstats::Arc;
use lotsfree_kernel_files::file::block::BlockDevice;
use lotsfree_kernel_files::file::buddyinfo::BuddyZone;
use lotsfree_kernel_files::file::cgroup::Cgroups;
use lotsfree_kernel_files::file::cpu_times::CpuTimes;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::kernel_log::KernelLog;
use lotsfree_kernel_files::file::limits_conf::LimitsLine;
use lotsfree_kernel_files::file::lru_gen::LruGen;
use lotsfree_kernel_files::file::mounts::Mount;
use lotsfree_kernel_files::file::node::Node;
use lotsfree_kernel_files::file::pagetypeinfo::PageTypes;
use lotsfree_kernel_files::file::pressure::Pressure;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_kernel_files::file::slabinfo::SlabCache;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::sysctl::{SysctlSetting, Sysctls};
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_kernel_files::file::thp::Thp;
use lotsfree_kernel_files::file::unit::Unit;
use lotsfree_kernel_files::file::unlinked::Unlinked;
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_kernel_files::{KernelVersion, Problem};
use lotsfree_units::{Bytes, PageSize};
use serde::Serialize;

/// The memory of a host at one instant.
///
/// `None` means "could not be read" (the reason is in [`Snapshot::problems`]); an empty list means "read, and
/// there are none". Counters that a file did not have are absent from its [`Values`].
#[derive(Debug, Default, Serialize)]
pub struct Snapshot {
    /// Time of the snapshot in seconds since the epoch, if known.
    pub taken_at: Option<f64>,
    /// Seconds since boot (`/proc/uptime`).
    pub uptime: Option<f64>,
    /// The machine and its system.
    pub host: Host,
    /// `/proc/meminfo`.
    pub meminfo: Option<Values<Meminfo>>,
    /// `/proc/vmstat`.
    pub vmstat: Option<Values<Vmstat>>,
    /// `/proc/zoneinfo`, in file order.
    pub zones: Option<Vec<Zone>>,
    /// `/proc/buddyinfo`.
    pub buddy: Option<Vec<BuddyZone>>,
    /// `/proc/pagetypeinfo` (root only on recent kernels).
    pub page_types: Option<PageTypes>,
    /// `/proc/swaps`.
    pub swaps: Option<Vec<SwapArea>>,
    /// `/proc/pressure/*`.
    pub pressure: Pressure,
    /// `/proc/stat`: times of the CPUs.
    pub cpu: Option<CpuTimes>,
    /// `/proc/spl/kstat/zfs/arcstats`: the cache of ZFS, where it is loaded.
    pub arc: Option<Arc>,
    /// Running values below `/proc/sys`, by their sysctl names (`vm.swappiness`).
    pub sysctl: Sysctls,
    /// Settings in `/etc/sysctl.conf` and the `sysctl.d` directories, in the order in which they are applied.
    pub sysctl_files: Vec<SysctlSetting>,
    /// `/proc/sysvipc/shm`.
    pub shm: Option<Vec<ShmSegment>>,
    /// `/proc/slabinfo` (root only), largest first, at most 32.
    pub slabs: Option<Vec<SlabCache>>,
    /// `/proc/mounts`, only memory-backed and on-disk file systems.
    pub mounts: Option<Vec<Mount>>,
    /// NUMA nodes of `/sys/devices/system/node`.
    pub nodes: Option<Vec<Node>>,
    /// Huge page pools, one per page size, machine-wide.
    pub huge_pools: Option<Vec<HugePool>>,
    /// Transparent huge pages.
    pub thp: Option<Thp>,
    /// Multi-generational LRU; `None` where the kernel was built without it.
    pub lru_gen: Option<LruGen>,
    /// Kernel samepage merging.
    pub ksm: Option<Values<Ksm>>,
    /// `/sys/module/zswap/parameters` and counts of `/sys/kernel/debug/zswap`, by name.
    pub zswap: Option<Vec<(Box<str>, Box<str>)>>,
    /// Whether the kernel has DAMON's sysfs interface.
    pub damon: bool,
    /// Whole block devices except loop and RAM disks, with their queues and counters.
    pub block: Option<Vec<BlockDevice>>,
    /// Memory cgroups: the reader's own, the root, and those that are large, limited or protected.
    pub cgroups: Option<Cgroups>,
    /// `limits.conf` and `limits.d`.
    pub limits_conf: Vec<LimitsLine>,
    /// systemd units of large processes and of the administrator, for their memory settings.
    pub units: Vec<Unit>,
    /// User processes, and those kernel threads whose CPU time is of interest (`kswapd*`, `khugepaged`,
    /// `ksmd`, `kcompactd*`).
    pub processes: Option<Vec<Process>>,
    /// Files in memory that only processes hold. `None` where nobody looked: in data that do not have them,
    /// and on a running machine with hardly any shared memory.
    pub unlinked: Option<Unlinked>,
    /// Memory events in the kernel log.
    pub kernel_log: Option<KernelLog>,
    /// Corrected and uncorrected memory errors (EDAC), summed over controllers.
    pub edac: Option<Edac>,
    /// The active tuned profile, and whether sapconf or saptune are enabled.
    pub tuners: Tuners,
    /// Files and lines that could not be read.
    pub problems: Vec<Problem>,
    /// Number of files that were read.
    pub files_read: u32,
}

/// The machine and its system.
#[derive(Debug, Default, Serialize)]
pub struct Host {
    /// `/proc/sys/kernel/hostname`, empty if redacted or unknown.
    pub hostname: String,
    /// `/proc/sys/kernel/osrelease`.
    pub kernel: KernelVersion,
    /// `ID` and `VERSION_ID` of `/etc/os-release` (`rhel`, `9.6`).
    pub distribution: Option<(String, String)>,
    /// Base page size.
    pub page_size: PageSize,
    /// Online CPUs.
    pub cpus: Option<u32>,
    /// The kernel's command line.
    pub cmdline: Option<String>,
    /// The container runtime around the reader, if any.
    pub container: Option<String>,
    /// Effective user id of the reader; `None` for saved data.
    pub euid: Option<u32>,
    /// Whether this is the running machine.
    pub live: bool,
}

impl Host {
    /// The value of `name=value` (or an empty text for a bare `name`) on the kernel's command line; the last
    /// one wins, as it does in the kernel.
    pub fn boot_parameter(&self, name: &str) -> Option<&str> {
        let cmdline = self.cmdline.as_deref()?;
        cmdline.split_ascii_whitespace().rev().find_map(|word| match word.split_once('=') {
            Some((key, value)) if key == name => Some(value),
            None if word == name => Some(""),
            _ => None,
        })
    }
}

/// Memory errors counted by EDAC (`/sys/devices/system/edac/mc/mc*/{ce,ue}_count`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Edac {
    /// Corrected errors.
    pub corrected: u64,
    /// Uncorrected errors.
    pub uncorrected: u64,
}

/// Programs that set kernel parameters by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tuners {
    /// `/etc/tuned/active_profile`, if tuned has one.
    pub tuned_profile: Option<String>,
    /// Whether `sapconf.service` is enabled.
    pub sapconf: bool,
    /// Whether `saptune.service` is enabled.
    pub saptune: bool,
    /// Whether `systemd-oomd.service` is enabled.
    pub systemd_oomd: bool,
    /// Whether `earlyoom.service` is enabled.
    pub earlyoom: bool,
}

impl Snapshot {
    /// Size of memory, `MemTotal`.
    pub fn mem_total(&self) -> Option<Bytes> {
        self.meminfo.as_ref()?.get(lotsfree_kernel_files::counters::meminfo::MemTotal).map(Bytes::kib)
    }
}
