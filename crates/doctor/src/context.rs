//! [`Context`]: typed questions about an observation. A missing answer is a [`Skip`], so that rules can use
//! `?`.

use lotsfree_kernel_files::counters::groups::{DIRECT_STEAL, KSWAPD_STEAL, STEAL};
use lotsfree_kernel_files::counters::{Counter, Meminfo, Vmstat, meminfo as m};
use lotsfree_kernel_files::file::block::BlockDevice;
use lotsfree_kernel_files::file::cgroup::Cgroups;
use lotsfree_kernel_files::file::cpu_times::CpuTimes;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::kernel_log::KernelLog;
use lotsfree_kernel_files::file::mounts::Mount;
use lotsfree_kernel_files::file::node::Node;
use lotsfree_kernel_files::file::pressure::{Psi, Stall};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_kernel_files::file::thp::Thp;
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_settings::{NR_OVERCOMMIT_HUGEPAGES, Release};
use lotsfree_snapshot::{Observation, SIMULATED, STANDARD_INPUT, Sample, Snapshot, THIS_HOST};
use lotsfree_units::{Bytes, Grouped};

use crate::huge;
use crate::levels::{self, Available};
use crate::remedy::word;
use crate::{Confidence, Evidence, Outcome, Skip, Workload};

/// An observation, and facts derived from it that all rules use.
#[derive(Debug)]
pub struct Context<'a> {
    observation: &'a Observation,
    workloads: Vec<Workload>,
}

/// What the CPUs did, as shares of their time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuShares {
    /// Idle, with nothing to wait for.
    pub idle: f64,
    /// Idle while a task waited for a disk.
    pub iowait: f64,
    /// Taken by the hypervisor for other guests.
    pub steal: f64,
}

/// Growth rate of a counter, or of a sum of counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Mean growth per second over the whole period.
    pub per_second: f64,
    /// Growth per second in the busiest interval between two samples.
    pub peak: f64,
    /// Share of the intervals in which the counter grew at all.
    pub active: f64,
    /// Growth over the whole period.
    pub total: u64,
    /// Length of the period in seconds.
    pub seconds: f64,
}

/// Development of a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Value at the first sample.
    pub first: f64,
    /// Value at the last sample.
    pub last: f64,
    /// Least-squares slope, per hour.
    pub per_hour: f64,
    /// Smallest value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
    /// Length of the period in seconds.
    pub seconds: f64,
}

/// A rate over at least this many seconds counts as settled; shorter periods catch single events. (The
/// vendors' own guides for reading `sar` and `vmstat` use this interval.)
const SETTLED_SECONDS: f64 = 10.0;
/// Seconds that a random read from a hard disk takes, if no device counter tells: a seek and half a turn.
const ROTATIONAL_READ: f64 = 8e-3;
/// Seconds that a random read from a solid-state disk takes, if no device counter tells: the slow end of
/// SATA, the fast end of a network disk.
const SOLID_READ: f64 = 150e-6;
/// A mean latency needs at least this many reads.
const ENOUGH_READS: u64 = 20;

impl<'a> Context<'a> {
    /// Prepares to answer questions about an observation.
    pub fn new(observation: &'a Observation) -> Self {
        let workloads = observation.now.processes.as_deref().map(Workload::detect).unwrap_or_default();
        Context { observation, workloads }
    }

    /// The latest snapshot.
    pub fn now(&self) -> &'a Snapshot {
        &self.observation.now
    }

    /// The command that sizes `what` (`hugepages`, `watermarks`, …) by the figures that were judged here:
    /// those of this host only where this host was judged.
    pub(crate) fn size_command(&self, what: &str) -> String {
        match self.observation.label.as_str() {
            THIS_HOST => format!("lotsfree size {what} --from-host"),
            STANDARD_INPUT => format!("lotsfree size {what} --from -"),
            saved => format!("lotsfree size {what} --from {}", word(saved.trim_end_matches(SIMULATED))),
        }
    }

    /// The command that sizes a pool of huge pages. Where the data are saved and have no segments, it asks
    /// for their list, without which there is nothing to size.
    pub(crate) fn size_hugepages(&self) -> String {
        let label = self.observation.label.as_str();
        let segments = huge::segments(self).unwrap_or_default();
        match label {
            THIS_HOST => self.size_command("hugepages"),
            _ if !segments.is_empty() => self.size_command("hugepages"),
            STANDARD_INPUT => "ipcs -m | lotsfree size hugepages --ipcs -  # on that host".to_owned(),
            _ => format!("ipcs -m | {} --ipcs -  # ipcs on that host", self.size_command("hugepages")),
        }
    }

    /// The first full snapshot of the period.
    ///
    /// # Errors
    /// [`Skip::NeedsSamples`] if there is only one.
    pub fn before(&self) -> Result<&'a Snapshot, Skip> {
        self.observation.before.as_deref().ok_or(Skip::NeedsSamples)
    }

    /// All samples, oldest first.
    pub fn samples(&self) -> &'a [Sample] {
        &self.observation.samples
    }

    /// Length of the period in seconds.
    ///
    /// # Errors
    /// [`Skip::NeedsSamples`] for a single instant.
    pub fn seconds(&self) -> Result<f64, Skip> {
        let seconds = self.observation.seconds();
        if seconds > 0.0 { Ok(seconds) } else { Err(Skip::NeedsSamples) }
    }

    /// Confidence in a rate over this period: `Possible` below ten seconds, else `Likely`.
    pub fn rate_confidence(&self) -> Confidence {
        if self.observation.seconds() < SETTLED_SECONDS { Confidence::Possible } else { Confidence::Likely }
    }

    /// The server programs that run here.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// Whether `workload` runs here.
    pub fn runs(&self, workload: Workload) -> bool {
        self.workloads.contains(&workload)
    }

    // ── /proc/meminfo
    // ──────────────────────────────────────────────────────────────────────────────────────────

    /// A field of `/proc/meminfo` in bytes.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if the file did not have it.
    pub fn mem(&self, field: Counter<Meminfo>) -> Result<Bytes, Skip> {
        self.mem_count(field).map(Bytes::kib)
    }

    /// A field of `/proc/meminfo` in bytes, zero where the kernel does not have it.
    pub fn mem_or_zero(&self, field: Counter<Meminfo>) -> Bytes {
        self.mem(field).unwrap_or_default()
    }

    /// A field of `/proc/meminfo` that counts pages (`HugePages_*`).
    ///
    /// # Errors
    /// [`Skip::Unknown`] if the file did not have it.
    pub fn mem_count(&self, field: Counter<Meminfo>) -> Result<u64, Skip> {
        let value = self.now().meminfo.as_ref().and_then(|meminfo| meminfo.get(field));
        value.ok_or_else(|| Skip::missing(format!("/proc/meminfo {}", field.name())))
    }

    /// `MemTotal`.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if it is unknown or zero.
    pub fn total(&self) -> Result<Bytes, Skip> {
        match self.mem(m::MemTotal)? {
            Bytes::ZERO => Err(Skip::missing("/proc/meminfo MemTotal")),
            total => Ok(total),
        }
    }

    /// The share of memory that is available (`MemAvailable`, or an estimate on kernels before 3.14);
    /// `None` if it is unknown.
    pub fn available_share(&self) -> Option<f64> {
        Some(self.available()?.bytes.share_of(self.total().ok()?))
    }

    /// What is available, and what ZFS's cache gives back besides, which `MemAvailable` does not count.
    pub(crate) fn available(&self) -> Option<Available> {
        let Available { bytes, told } = levels::available(self.now().meminfo.as_ref()?)?;
        Some(Available { bytes: bytes + self.cache_of_zfs(), told })
    }

    /// Whether there is swap, and next to nothing of it is free.
    pub(crate) fn swap_is_full(&self) -> bool {
        let swap = self.mem(m::SwapTotal).ok().zip(self.mem(m::SwapFree).ok());
        swap.is_some_and(|(total, free)| total > Bytes::ZERO && free.share_of(total) < levels::SWAP_FULL)
    }

    /// Whether so little is available that memory-exhaustion says so; `None` if it is unknown.
    pub(crate) fn is_exhausted(&self) -> Option<bool> {
        let available = self.available()?.bytes;
        let least = if self.swap_is_full() { levels::LITTLE_WITH_FULL_SWAP } else { levels::LITTLE };
        Some(available.share_of(self.total().ok()?) < least && available < levels::ROOM)
    }

    /// The share of the time that CPUs wait for disks, where next to nothing is available and programs' own
    /// pages are what comes back from them.
    pub(crate) fn reads_programs_back(&self) -> Option<f64> {
        let available = self.available()?.bytes;
        let share = available.share_of(self.total().ok()?);
        let kswapd_waits = || {
            let processes = self.processes().unwrap_or_default();
            processes
                .iter()
                .any(|process| process.stat.name.starts_with("kswapd") && process.stat.state == 'D')
        };
        let little = share < levels::ENOUGH || share < levels::ENOUGH_WITH_KSWAPD && kswapd_waits();
        let swap = self.mem(m::SwapTotal);
        let swapped = swap.is_ok_and(|swap| swap == Bytes::ZERO || self.mem_or_zero(m::SwapFree) < swap);
        let waits = self.cpu_shares()?.iowait;
        (available < levels::ROOM && little && swapped && waits >= levels::WAITING).then_some(waits)
    }

    /// What ZFS's cache gives back when memory is short.
    pub(crate) fn cache_of_zfs(&self) -> Bytes {
        self.now().arc.map(|arc| arc.reclaimable()).unwrap_or_default()
    }

    /// `MemTotal` less all huge page pools: the memory that is left for ordinary pages.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if `MemTotal` is unknown.
    pub fn total_without_pools(&self) -> Result<Bytes, Skip> {
        Ok(self.total()? - self.pool_bytes())
    }

    /// Bytes in all huge page pools; zero where none is known.
    pub fn pool_bytes(&self) -> Bytes {
        self.huge_pools().map(|pools| pools.iter().map(HugePool::bytes).sum()).unwrap_or_default()
    }

    /// A reading of `/proc/meminfo` as evidence, in the kernel's KiB.
    pub fn saw_mem(&self, field: Counter<Meminfo>) -> Evidence {
        let value = match self.mem_count(field) {
            Ok(value) if field.row().unit == lotsfree_kernel_files::counters::Unit::kib => {
                format!("{:#}", Bytes::kib(value))
            }
            Ok(value) => Grouped(value).to_string(),
            Err(_) => "absent".to_owned(),
        };
        Evidence::new("/proc/meminfo", field.name(), value)
    }

    /// Trend of a field of `/proc/meminfo`, in bytes.
    ///
    /// # Errors
    /// [`Skip::NeedsSamples`] for a single instant, [`Skip::Unknown`] if the field is missing.
    pub fn trend(&self, field: Counter<Meminfo>) -> Result<Trend, Skip> {
        self.mem_count(field)?;
        let value = |sample: &Sample| Some(Bytes::kib(sample.meminfo.as_ref()?.get(field)?).as_f64());
        let points = self.samples().iter().filter_map(|s| Some((s.at, value(s)?))).collect::<Vec<_>>();
        Trend::of(&points).ok_or(Skip::NeedsSamples)
    }

    // ── /proc/vmstat
    // ───────────────────────────────────────────────────────────────────────────────────────────

    /// A line of `/proc/vmstat`, in its own unit.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if the file did not have it.
    pub fn vm(&self, counter: Counter<Vmstat>) -> Result<u64, Skip> {
        let value = self.now().vmstat.as_ref().and_then(|vmstat| vmstat.get(counter));
        value.ok_or_else(|| Skip::missing(format!("/proc/vmstat {}", counter.name())))
    }

    /// The sum of those of `counters` that are present now.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if none is.
    pub fn vm_sum(&self, counters: &[Counter<Vmstat>]) -> Result<u64, Skip> {
        let vmstat = self.now().vmstat.as_ref();
        vmstat.and_then(|vmstat| vmstat.sum(counters)).ok_or_else(|| missing(counters))
    }

    /// Growth rate of the sum of those of `counters` that are present (see [`crate::DIRECT_SCAN`] and similar
    /// lists). Intervals in which the sum fell, because the host was rebooted, are left out. From a single
    /// instant only `since-boot` judges such counters, by their totals. The report's words for a [`Skip`] are
    /// in `report/src/words.rs`.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if none is present, [`Skip::NeedsSamples`] for a single instant.
    pub fn rate(&self, counters: &[Counter<Vmstat>]) -> Result<Rate, Skip> {
        self.vm_sum(counters)?;
        let points = (self.samples().iter())
            .filter_map(|sample| Some((sample.at, sample.vmstat.as_ref()?.sum(counters)?)))
            .collect::<Vec<_>>();
        Rate::of(&points).ok_or(Skip::NeedsSamples)
    }

    /// The rate of pages that reclaim freed, by kswapd and by tasks. Before 3.4 `kswapd_steal` is a part of
    /// `pgsteal_<zone>`, which counts both.
    ///
    /// # Errors
    /// As [`Context::rate`].
    pub fn freed(&self) -> Result<Rate, Skip> {
        if self.vm_sum(DIRECT_STEAL).is_err() && self.vm_sum(STEAL).is_ok() {
            return self.rate(STEAL);
        }
        self.rate(&[KSWAPD_STEAL, DIRECT_STEAL].concat())
    }

    /// The rate of counters as evidence.
    pub fn saw_rate(&self, counters: &[Counter<Vmstat>], rate: &Rate) -> Evidence {
        let present = |c: &&Counter<Vmstat>| self.vm(**c).is_ok();
        let names = counters.iter().filter(present).map(|c| c.name()).collect::<Vec<_>>().join(" + ");
        let value = format!("{}/s over {:.0} s", rate_text(rate.per_second), rate.seconds);
        Evidence::new("/proc/vmstat", names, value)
    }

    /// A line of `/proc/vmstat` as evidence.
    pub fn saw_vm(&self, counter: Counter<Vmstat>) -> Evidence {
        let value = self.vm(counter).map_or_else(|_| "absent".to_owned(), |v| Grouped(v).to_string());
        Evidence::new("/proc/vmstat", counter.name(), value)
    }

    // ── pressure
    // ───────────────────────────────────────────────────────────────────────────────────────────────

    /// `/proc/pressure/memory`.
    ///
    /// # Errors
    /// [`Skip::Unknown`] without PSI.
    pub fn memory_pressure(&self) -> Result<&'a Psi, Skip> {
        self.now().pressure.memory.as_ref().ok_or_else(|| Skip::missing("/proc/pressure/memory"))
    }

    /// Seconds per second in which at least one task (`full == false`) or all of them were stalled for lack
    /// of memory, from the totals of the first and the last sample.
    ///
    /// # Errors
    /// [`Skip::Unknown`] without PSI, [`Skip::NeedsSamples`] for a single instant.
    pub fn stalled(&self, full: bool) -> Result<f64, Skip> {
        let total = |psi: &Psi| -> Option<Stall> { if full { psi.full } else { psi.some } };
        total(self.memory_pressure()?).ok_or_else(|| Skip::missing("/proc/pressure/memory"))?;
        let points = (self.samples().iter())
            .filter_map(|s| Some((s.at, total(s.pressure.memory.as_ref()?)?.total_us)))
            .collect::<Vec<_>>();
        Rate::of(&points).map(|rate| rate.per_second / 1e6).ok_or(Skip::NeedsSamples)
    }

    // ── CPUs
    // ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// What the CPUs did over the period, as shares of their time; `None` without two samples of
    /// `/proc/stat`.
    pub fn cpu_shares(&self) -> Option<CpuShares> {
        let times = || self.samples().iter().filter_map(|sample| sample.cpu);
        let (first, last) = (times().next()?, times().next_back()?);
        let total = last.total().checked_sub(first.total()).filter(|total| *total > 0)? as f64;
        let share = |of: fn(&CpuTimes) -> u64| of(&last).saturating_sub(of(&first)) as f64 / total;
        Some(CpuShares {
            idle: share(|times| times.idle),
            iowait: share(|times| times.iowait),
            steal: share(|times| times.steal),
        })
    }

    /// The part of the time in which the CPUs were least idle, and that in which most of them waited for
    /// disks: the mean shares of the worst third of the samples. `None` for few samples.
    pub fn worst_cpu_shares(&self) -> Option<(CpuShares, CpuShares)> {
        let samples: Vec<CpuTimes> = self.samples().iter().filter_map(|sample| sample.cpu).collect();
        let between = |pair: &[CpuTimes]| {
            let [first, last] = pair else { return None };
            let total = last.total().checked_sub(first.total()).filter(|total| *total > 0)? as f64;
            let share = |of: fn(&CpuTimes) -> u64| of(last).saturating_sub(of(first)) as f64 / total;
            Some(CpuShares {
                idle: share(|times| times.idle),
                iowait: share(|times| times.iowait),
                steal: share(|times| times.steal),
            })
        };
        let mut periods: Vec<CpuShares> = samples.windows(2).filter_map(between).collect();
        let third = periods.len() / 3;
        if third < 2 {
            return None;
        }
        let mut worst = |by: fn(&CpuShares) -> f64| {
            periods.sort_by(|a, b| by(a).total_cmp(&by(b)));
            let mean =
                |of: fn(&CpuShares) -> f64| periods[..third].iter().map(of).sum::<f64>() / third as f64;
            CpuShares {
                idle: mean(|share| share.idle),
                iowait: mean(|share| share.iowait),
                steal: mean(|share| share.steal),
            }
        };
        Some((worst(|share| share.idle + share.iowait), worst(|share| -share.iowait)))
    }

    /// The disk that was busy for most of the period, and for which share of it.
    pub fn busiest_disk(&self) -> Option<(&'a str, f64)> {
        let seconds = self.seconds().ok()?;
        let (first, last) = (self.before().ok()?.block.as_deref()?, self.now().block.as_deref()?);
        let share = |disk: &'a BlockDevice| {
            let before = first.iter().find(|before| before.name == disk.name)?.stats?;
            let busy = disk.stats?.busy_ms.checked_sub(before.busy_ms)?;
            Some((&*disk.name, busy as f64 / 1000.0 / seconds))
        };
        last.iter().filter_map(share).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    // ── settings
    // ───────────────────────────────────────────────────────────────────────────────────────────────

    /// A running sysctl that is one number.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if it is missing or not a number.
    pub fn sysctl(&self, name: &str) -> Result<u64, Skip> {
        self.now().sysctl.number(name).ok_or_else(|| Skip::missing(sysctl_path(name)))
    }

    /// A running sysctl that is one number; if it was not read, this kernel's default.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if the default depends on the machine or is not in the table.
    pub fn sysctl_or_default(&self, name: &str) -> Result<u64, Skip> {
        let (major, minor, _) = self.now().host.kernel.numbers;
        let initially = || lotsfree_settings::find(name)?.default_number(Release(major, minor));
        self.sysctl(name).or_else(|missing| initially().ok_or(missing))
    }

    /// A running sysctl as evidence.
    pub fn saw_sysctl(&self, name: &str) -> Evidence {
        let value = self.now().sysctl.text(name).unwrap_or("absent").to_owned();
        Evidence::new(sysctl_path(name), name, value)
    }

    /// `/sys/kernel/mm/transparent_hugepage`.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if it was not read.
    pub fn thp(&self) -> Result<&'a Thp, Skip> {
        self.now().thp.as_ref().ok_or_else(|| Skip::missing("/sys/kernel/mm/transparent_hugepage/enabled"))
    }

    // ── the rest
    // ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Zones of `/proc/zoneinfo`.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if it was not read.
    pub fn zones(&self) -> Result<&'a [Zone], Skip> {
        self.now().zones.as_deref().ok_or_else(|| Skip::missing("/proc/zoneinfo"))
    }

    /// NUMA nodes.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if they were not read.
    pub fn nodes(&self) -> Result<&'a [Node], Skip> {
        self.now().nodes.as_deref().ok_or_else(|| Skip::missing("/sys/devices/system/node"))
    }

    /// NUMA nodes, where there is more than one.
    ///
    /// # Errors
    /// [`Skip::NotApplicable`] on a host with one node, [`Skip::Unknown`] if they were not read.
    pub fn several_nodes(&self) -> Result<&'a [Node], Skip> {
        match self.nodes()? {
            [] | [_] => Err(Skip::because("one NUMA node")),
            nodes => Ok(nodes),
        }
    }

    /// Huge page pools of all sizes; from `/proc/meminfo` (default size only) if `/sys` was not read.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if neither has them.
    pub fn huge_pools(&self) -> Result<Vec<HugePool>, Skip> {
        if let Some(pools) = &self.now().huge_pools {
            return Ok(pools.clone());
        }
        Ok(vec![HugePool {
            size: (self.now().meminfo.as_ref().and_then(levels::huge_page_size))
                .ok_or_else(|| Skip::missing("/proc/meminfo Hugepagesize"))?,
            total: self.mem_count(m::HugePages_Total)?,
            free: self.mem_count(m::HugePages_Free)?,
            reserved: self.mem_count(m::HugePages_Rsvd).unwrap_or(0),
            surplus: self.mem_count(m::HugePages_Surp).unwrap_or(0),
            overcommit: self.now().sysctl.number(NR_OVERCOMMIT_HUGEPAGES).unwrap_or(0),
        }])
    }

    /// System V shared memory segments.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if they were not read.
    pub fn shm(&self) -> Result<&'a [ShmSegment], Skip> {
        self.now().shm.as_deref().ok_or_else(|| Skip::missing("/proc/sysvipc/shm"))
    }

    /// User processes.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if they were not read.
    pub fn processes(&self) -> Result<&'a [Process], Skip> {
        self.now().processes.as_deref().ok_or_else(|| Skip::missing("/proc/PID/status"))
    }

    /// Each process that is in both full snapshots, as (before, now).
    ///
    /// # Errors
    /// [`Skip::NeedsSamples`] or [`Skip::Unknown`].
    pub fn process_pairs(&self) -> Result<Vec<(&'a Process, &'a Process)>, Skip> {
        let before = self.before()?.processes.as_deref().ok_or_else(|| Skip::missing("/proc/PID/stat"))?;
        let earlier: std::collections::HashMap<_, _> =
            before.iter().map(|p| ((p.stat.pid, p.stat.start_ticks), p)).collect();
        let now = self.processes()?.iter();
        Ok(now.filter_map(|p| Some((*earlier.get(&(p.stat.pid, p.stat.start_ticks))?, p))).collect())
    }

    /// The kernel log.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if it was not read.
    pub fn kernel_log(&self) -> Result<&'a KernelLog, Skip> {
        self.now().kernel_log.as_ref().ok_or_else(|| Skip::missing("/dev/kmsg"))
    }

    /// That the kernel log has nothing of a kind: no finding, if it reaches back to the boot.
    ///
    /// # Errors
    /// [`Skip`] if its beginning is missing: what stood there is unknown.
    pub fn not_logged(&self) -> Outcome {
        match self.kernel_log()?.from_boot {
            true => Ok(Vec::new()),
            false => Err(Skip::Unknown(vec!["the kernel log from the boot on".to_owned()])),
        }
    }

    /// Swap areas.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if they were not read.
    pub fn swaps(&self) -> Result<&'a [SwapArea], Skip> {
        self.now().swaps.as_deref().ok_or_else(|| Skip::missing("/proc/swaps"))
    }

    /// Mounts.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if they were not read.
    pub fn mounts(&self) -> Result<&'a [Mount], Skip> {
        self.now().mounts.as_deref().ok_or_else(|| Skip::missing("/proc/mounts"))
    }

    /// Memory cgroups.
    ///
    /// # Errors
    /// [`Skip::Unknown`] if they were not read.
    pub fn cgroups(&self) -> Result<&'a Cgroups, Skip> {
        self.now().cgroups.as_ref().ok_or_else(|| Skip::missing("/sys/fs/cgroup memory files"))
    }

    /// The size of `pages` base pages of this host.
    pub fn pages(&self, pages: u64) -> Bytes {
        self.now().host.page_size.of(pages)
    }

    /// Memory that compressed swap takes.
    pub fn compressed(&self) -> Bytes {
        let now = self.now();
        crate::memory_map::compressed(now.meminfo.as_ref(), now.vmstat.as_ref(), now.host.page_size)
    }

    /// Seconds that one random read takes on the devices that hold swap and file systems, and the source of
    /// that figure: `/proc/diskstats` (over the period if it had enough reads, else since boot), else the
    /// kind of device.
    pub fn read_latency(&self) -> (f64, String) {
        let devices = self.now().block.as_deref().unwrap_or_default();
        let earlier = self.observation.before.as_ref().and_then(|b| b.block.as_deref()).unwrap_or_default();
        let over = |before: &[BlockDevice]| {
            let (mut reads, mut ms) = (0u64, 0u64);
            for device in
                devices.iter().filter(|d| !d.name.starts_with("zram") && !d.name.starts_with("loop"))
            {
                let Some(stats) = device.stats else { continue };
                let base =
                    before.iter().find(|b| b.name == device.name).and_then(|b| b.stats).unwrap_or_default();
                reads = reads.saturating_add(stats.reads.saturating_sub(base.reads));
                ms = ms.saturating_add(stats.read_ms.saturating_sub(base.read_ms));
            }
            (reads >= ENOUGH_READS && ms > 0).then(|| ms as f64 / reads as f64 / 1e3)
        };
        let during = if earlier.is_empty() { None } else { over(earlier) };
        if let Some(seconds) = during {
            return (
                seconds,
                format!("{} per read in /proc/diskstats over the period", milliseconds(seconds)),
            );
        }
        if let Some(seconds) = over(&[]) {
            return (seconds, format!("{} per read in /proc/diskstats since boot", milliseconds(seconds)));
        }
        if devices.iter().any(|d| d.rotational == Some(true)) {
            return (
                ROTATIONAL_READ,
                format!("{} assumed for a rotating disk", milliseconds(ROTATIONAL_READ)),
            );
        }
        (SOLID_READ, format!("{} assumed for a solid-state disk", milliseconds(SOLID_READ)))
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

fn rate_text(rate: f64) -> String {
    if rate >= 10.0 { Grouped(rate.round() as u64).to_string() } else { format!("{rate:.1}") }
}

fn missing(counters: &[Counter<Vmstat>]) -> Skip {
    Skip::missing(format!("/proc/vmstat {}", counters.first().map_or("", |c| c.name())))
}

fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

impl Rate {
    /// Rate of a growing counter from (seconds, value) points; `None` with fewer than two usable points.
    pub fn of(points: &[(f64, u64)]) -> Option<Rate> {
        let (mut total, mut seconds, mut peak, mut active, mut intervals) = (0u64, 0.0, 0f64, 0u32, 0u32);
        for pair in points.windows(2) {
            let [(t0, v0), (t1, v1)] = pair else { continue };
            if t1 <= t0 || v1 < v0 {
                continue;
            }
            total = total.saturating_add(v1 - v0);
            seconds += t1 - t0;
            peak = peak.max((v1 - v0) as f64 / (t1 - t0));
            active += u32::from(v1 > v0);
            intervals += 1;
        }
        let per_second = total as f64 / seconds;
        let active = f64::from(active) / f64::from(intervals);
        (intervals > 0).then_some(Rate { per_second, peak, active, total, seconds })
    }
}

impl Trend {
    /// Trend of a level from (seconds, value) points; `None` with fewer than two points.
    pub fn of(points: &[(f64, f64)]) -> Option<Trend> {
        let (first, last) = (points.first()?, points.last()?);
        let n = points.len() as f64;
        let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
        let (mean_t, mean_v) = (mean(|p| p.0), mean(|p| p.1));
        let variance: f64 = points.iter().map(|(t, _)| (t - mean_t).powi(2)).sum();
        let covariance: f64 = points.iter().map(|(t, v)| (t - mean_t) * (v - mean_v)).sum();
        (last.0 > first.0 && variance > 0.0).then(|| Trend {
            first: first.1,
            last: last.1,
            per_hour: covariance / variance * 3600.0,
            least: points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min),
            most: points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max),
            seconds: last.0 - first.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_leaves_out_the_interval_of_a_reboot() {
        let rate = Rate::of(&[(0.0, 100), (10.0, 300), (20.0, 5), (30.0, 5), (40.0, 105)]).unwrap();
        assert_eq!(rate.total, 300);
        assert_eq!(rate.seconds, 30.0);
        assert_eq!(rate.peak, 20.0);
        assert!((rate.active - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(Rate::of(&[(0.0, 1)]), None);
    }

    #[test]
    fn a_trend_is_a_slope_per_hour() {
        let trend = Trend::of(&[(0.0, 0.0), (1800.0, 5.0), (3600.0, 10.0)]).unwrap();
        assert!((trend.per_hour - 10.0).abs() < 1e-9);
        assert_eq!((trend.least, trend.most), (0.0, 10.0));
    }
}
