//! [`MachineSpec`]: processors, memory, disk and swap.

use std::borrow::Cow;
use std::fmt;

use lotsfree_settings::Release;
use lotsfree_units::{Bytes, PageSize, TIB};
use lotsfree_workload::quantity::{Bandwidth, Size, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::document::{Node, Place, Table, Value};
use crate::error::Collector;
use crate::generation::{Generation, Kernel};
use crate::read::read;
use crate::record::{Device, Record};

/// Most CPUs of a machine.
const CPUS: u32 = 4096;
/// Most NUMA nodes.
const NODES: usize = 64;
/// Sizes of a page, and the first release that has them: arm64 came with 64 KiB in 3.7, and with 16 KiB in
/// 4.4 ("arm64: Add 16K page size support").
const PAGE_SIZES: [(Bytes, Option<Release>); 3] =
    [(Bytes::kib(4), None), (Bytes::kib(16), Some(Release(4, 4))), (Bytes::kib(64), Some(Release(3, 7)))];
/// Least memory of a node.
const LEAST: Bytes = Bytes::mib(64);
/// Most memory of a machine: twice that of the largest hosts.
const MOST: Bytes = Bytes(64 * TIB);
/// Most that may be swapped to.
const MOST_SWAP: Bytes = Bytes(2 * TIB);
/// Distance of a node to itself, by which ACPI's SLIT counts.
const SELF: u32 = 10;
/// Largest distance; ACPI's 255 means "cannot be reached".
const FARTHEST: u32 = 254;

/// A machine: processors, memory, disk and swap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(rename = "Machine")]
pub struct MachineSpec {
    /// Which kernel runs: its rules in the model, its image in the lab.
    pub generation: Generation,
    /// CPUs: a number, spread over the nodes as evenly as can be, or a list with the number of each node.
    pub cpus: Cpus,
    /// Size of a page: `"4 KiB"`, as on a PC, if left out; `"16 KiB"` (from 4.4 on) and `"64 KiB"` (from 3.10
    /// on) are those of arm64, whose zones, pageblocks and huge pages (32 and 512 MiB) the machine then has.
    /// The model follows the kernel's source there and was compared with no kernel; the lab's machines are
    /// PCs.
    #[serde(default = "four_kib", skip_serializing_if = "is_four_kib")]
    pub page_size: Size,
    /// Memory of each NUMA node; one node for a machine without NUMA. At least 64 MiB each, at most 64 TiB
    /// in all. The model can have 2 TiB in use at once.
    pub nodes: Vec<Size>,
    /// Distance between nodes as in `/sys/devices/system/node/node*/distance`: one number for every pair, or
    /// a matrix with a row per node. 10 is a node's distance to itself; the most is 254.
    #[serde(default)]
    pub distance: Distance,
    /// Memory that the kernel itself occupies after boot, its text, the memory map and tables that are sized
    /// at boot: a size, spread over the nodes by theirs, or a list with the size of each node, or
    /// `"measured"`: what `sim --calibration` or `sim --like` says of the machine. Without it, what the model
    /// takes for a kernel of that size. In the model, slabs for files that are used before measuring begins
    /// are part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelMemory>,
    /// The part of `kernel` that zones do not manage (a node's size less `managed` of its zones in
    /// `/proc/zoneinfo`): image, memory map and what else was taken before there was an allocator. Watermarks
    /// go by what is managed. Written as `kernel` is; without it, the memory map alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Occupied>,
    /// What is promised when the run begins (`Committed_AS` of `/proc/meminfo`), the programs and segments of
    /// the scenario included. Without it, those alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<Size>,
    /// The part of `kernel`, less `reserved`, that page tables of other programs take: `PageTables` of
    /// `/proc/meminfo` starts there. Without it, none. The lab's machines have their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_tables: Option<Size>,
    /// Free memory that CPUs hold back for themselves when the run begins (`count` of the pagesets in
    /// `/proc/zoneinfo`): a list per node with a size per CPU of the machine. Without it, none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pagesets: Option<Vec<Vec<Size>>>,
    /// The disk that holds every file.
    #[serde(default)]
    pub disk: Disk,
    /// Swap; without it there is none.
    #[serde(default)]
    pub swap: Swap,
}

/// A disk or an SSD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Disk {
    /// Time of one request on an idle device, without the transfer.
    pub latency: Time,
    /// What it transfers at most.
    pub bandwidth: Bandwidth,
    /// Requests per second at most; without it, only latency and bandwidth bound them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// For a disk that is not slow but held to its figures, as those of virtual machines are: how long it may
    /// have rested for what it then lets pass at once. QEMU's have "100 ms", and so do those of the lab's
    /// virtual machines, whatever stands here.
    #[serde(skip_serializing_if = "is_none")]
    pub burst: Time,
    /// Its size, which the files must fit; without it there is no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Whether it turns (`/sys/block/*/queue/rotational`): it moves a head, and the kernel places and reads
    /// ahead accordingly.
    pub rotational: bool,
    /// What the files are on: who writes a dirty page that reclaim meets depends on it.
    pub filesystem: Filesystem,
}

/// A file system, as far as reclaim can tell it from another: whether it writes a dirty page when reclaim
/// asks it to, or leaves that to the flusher (`->writepage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Filesystem {
    /// Writes every page.
    Ext3,
    /// Writes pages that have a place on disk; that of new ones is chosen when the flusher writes them. Since
    /// 6.2 it is not asked.
    #[default]
    Ext4,
    /// Writes for kswapd, not for tasks in direct reclaim. Since 6.0 it is not asked.
    Xfs,
    /// Never writes for reclaim.
    Btrfs,
}

impl Filesystem {
    /// Every one.
    pub const ALL: [Filesystem; 4] = [Filesystem::Ext3, Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];
}

impl Default for Disk {
    /// A SATA SSD.
    fn default() -> Disk {
        Disk {
            latency: Time::us(100),
            bandwidth: Bandwidth::mib(500),
            iops: None,
            burst: Time(0),
            size: None,
            rotational: false,
            filesystem: Filesystem::Ext4,
        }
    }
}

/// Where swap is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SwapOn {
    /// A device of its own, which never turns.
    #[default]
    Own,
    /// The disk: swap and files share its queue, and it turns if the disk does.
    Disk,
    /// Memory: a zram device compresses what is swapped out, and keeps it.
    Zram,
}

/// Swap. With a size it is on a device of its own, with latency and bandwidth, or `on = "disk"`, or
/// compressed in memory: `on = "zram"`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Swap {
    /// Its size, at most 2 TiB; "0": no swap. That of zram is zram's `disksize`: what it holds before
    /// compression.
    pub size: Size,
    /// `"own"`: a device of its own, `"disk"`: the disk, whose queue it shares, `"zram"`: memory, where it is
    /// compressed (Linux 3.14 on; in the lab, a virtual machine of 5.10 on).
    pub on: SwapOn,
    /// Time of one request on its own device when that is idle, without the transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Time>,
    /// What its own device transfers at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
    /// Requests per second of its own device at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// As for the disk, of its own device.
    #[serde(skip_serializing_if = "is_none")]
    pub burst: Time,
    /// With zram or zswap: how many times smaller each page becomes, 1 to 100. It is a property of the data,
    /// for which one figure stands: that of all anonymous memory of all actors. In the lab their pages are
    /// filled so that the kernel's default algorithm makes them that much smaller. Without it, 2, which the
    /// kernel's documentation (`admin-guide/blockdev/zram.rst`) expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// With zram: its `mem_limit`, the most memory that it takes; what is to be written beyond stays in
    /// memory as it is. Without it, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_limit: Option<Size>,
    /// zswap: a compressed cache in memory, in front of swap on a disk (Linux 3.11 on; in the lab, a virtual
    /// machine of 5.10 on).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zswap: Option<Zswap>,
}

/// zswap, with the names of its parameters (`/sys/module/zswap/parameters`). It keeps what is swapped out in
/// memory, compressed, until its pool is full; what it has takes a place in swap, too. Its compressor is the
/// kernel's default, `lzo`, as far as `swap.ratio` is to hold in the lab.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Zswap {
    /// Whether it is on, which it is where the section is there.
    pub enabled: bool,
    /// The most memory that the pool takes, in percent of memory, 1 to 100.
    pub max_pool_percent: u32,
    /// The share of that, in percent, that a full pool has to come down to before it takes pages again, 1 to
    /// 100; without it, the kernel's 90 (Linux 5.8 on, and RHEL 8; before, it always takes pages again).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_threshold_percent: Option<u32>,
    /// Where the pool's memory comes from: `"zbud"`, two compressed pages to a page at most, or
    /// `"zsmalloc"`, as many as fit (Linux 3.17 on), which writes nothing back through 6.2. Without it, the
    /// kernel's default: zsmalloc from 6.8 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zpool: Option<Zpool>,
}

impl Default for Zswap {
    fn default() -> Self {
        Zswap { enabled: true, max_pool_percent: 20, accept_threshold_percent: None, zpool: None }
    }
}

impl Zswap {
    /// `accept_threshold_percent`
    pub fn accept_threshold(&self) -> u32 {
        self.accept_threshold_percent.unwrap_or(90)
    }

    /// Where the pool's memory comes from on this kernel.
    pub fn zpool(&self, generation: Generation) -> Zpool {
        let newer = generation.kernel.release() >= ZSMALLOC_IS_DEFAULT;
        self.zpool.unwrap_or(if newer { Zpool::Zsmalloc } else { Zpool::Zbud })
    }
}

/// An allocator of memory for compressed pages (`mm/zpool.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Zpool {
    /// Two compressed pages to a page at most.
    Zbud,
    /// Compressed pages in chains of pages.
    Zsmalloc,
}

/// The first release with zswap.
const ZSWAP_SINCE: Release = Release(3, 11);
/// The first release with `accept_threshold_percent` (45190f01dd40), which RHEL 8 has, too.
const THRESHOLD_SINCE: Release = Release(5, 8);
/// The first release whose zswap can use zsmalloc (`mm/zpool.c`).
const ZPOOL_SINCE: Release = Release(3, 17);
/// The first release read whose `ZSWAP_ZPOOL_DEFAULT` is zsmalloc.
const ZSMALLOC_IS_DEFAULT: Release = Release(6, 8);
/// How many times smaller zram or zswap makes a page, where the scenario does not say.
const RATIO: f64 = 2.0;
/// The largest such figure. zsmalloc's smallest objects have 32 bytes, a 128th of a page.
const MOST_RATIO: f64 = 100.0;
/// The first release with zram, which was a staging driver before (cd67e10ac699).
const ZRAM_SINCE: Release = Release(3, 14);

impl Swap {
    /// Bytes that a page of this size takes after compression.
    pub fn object_bytes(&self, page: PageSize) -> u32 {
        (page.bytes().as_f64() / self.ratio.unwrap_or(RATIO)).ceil() as u32
    }

    /// zswap, if there is swap and zswap is on.
    pub fn zswap(&self) -> Option<Zswap> {
        self.zswap.filter(|zswap| zswap.enabled && self.size.0 > Bytes::ZERO)
    }

    /// Whether what is swapped out is compressed.
    pub fn compresses(&self) -> bool {
        self.is_zram() || self.zswap().is_some()
    }

    /// Whether there is swap, and it is compressed in memory.
    pub fn is_zram(&self) -> bool {
        self.on == SwapOn::Zram && self.size.0 > Bytes::ZERO
    }
}

fn four_kib() -> Size {
    Size(PageSize::X86.bytes())
}

fn is_four_kib(size: &Size) -> bool {
    *size == four_kib()
}

fn is_none(time: &Time) -> bool {
    time.ns() == 0
}

/// What QEMU's throttling lets pass at once (`util/throttle.c`), in nanoseconds' worth: a tenth of a second.
const QEMU_BURST: Time = Time(100_000_000);

/// CPUs of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// So many in all.
    Total(u32),
    /// So many on each node.
    PerNode(Vec<u32>),
}

/// How much of the nodes' memory something occupies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// So much in all.
    Total(Size),
    /// So much of each node.
    PerNode(Vec<Size>),
}

impl Occupied {
    /// So many bytes of each node.
    pub fn per_node(bytes: impl IntoIterator<Item = u64>) -> Self {
        Occupied::PerNode(bytes.into_iter().map(|bytes| Size(Bytes(bytes))).collect())
    }
}

/// Memory that the kernel itself occupies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelMemory {
    /// As it was measured on the machine, which only a record or a run of that machine can tell.
    Measured,
    /// So much.
    Stated(Occupied),
}

impl KernelMemory {
    /// How a scenario writes [`KernelMemory::Measured`].
    const MEASURED: &'static str = "measured";

    /// How much it is, unless that was left to a measurement.
    fn stated(&self) -> Option<&Occupied> {
        match self {
            KernelMemory::Measured => None,
            KernelMemory::Stated(occupied) => Some(occupied),
        }
    }
}

/// What a machine was like when a kernel executed a case: the keys of [`MachineSpec`] that only a machine
/// that has booted can tell. The model is told them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// [`MachineSpec::kernel`]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Occupied>,
    /// [`MachineSpec::reserved`]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Occupied>,
    /// [`MachineSpec::pagesets`]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pagesets: Option<Vec<Vec<Size>>>,
    /// [`MachineSpec::committed`]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<Size>,
    /// [`MachineSpec::page_tables`]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_tables: Option<Size>,
    /// Devices that do not rotate answer as fast as a calibration of the machine says, whatever the case
    /// says, and all let pass at once what they transfer in a tenth of a second: the throttle of a virtual
    /// machine has no latency, and is a leaky bucket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured_latency: bool,
    /// Files and swap were on a disk of the host that executed the case, whatever the case says: it is as
    /// fast as a calibration of that host says. Whether it turns, the case says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured_disk: bool,
}

/// How far nodes are from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Every pair of nodes is so far apart.
    Uniform(u32),
    /// A row per node.
    Matrix(Vec<Vec<u32>>),
}

impl Default for Distance {
    /// What firmware reports for two sockets.
    fn default() -> Distance {
        Distance::Uniform(20)
    }
}

impl MachineSpec {
    /// Takes the conditions of a machine that has booted, in place of what it says itself. `record` is of
    /// that machine.
    pub fn take(&mut self, conditions: Conditions, record: Option<&Record>) {
        if let Some(record) = record.filter(|_| conditions.measured_latency && !self.disk.rotational) {
            let answer = |device: &Device| record.answer(device).map(Time);
            self.disk.latency = answer(&record.disk).unwrap_or(self.disk.latency);
            self.swap.latency = self.swap.latency.map(|latency| answer(&record.swap).unwrap_or(latency));
        }
        if conditions.measured_latency {
            self.disk.burst = QEMU_BURST;
            if self.swap.on == SwapOn::Own {
                self.swap.burst = QEMU_BURST;
            }
        }
        if conditions.measured_disk {
            self.take_disk(record);
        }
        let Conditions {
            kernel,
            reserved,
            pagesets,
            committed,
            page_tables,
            measured_latency: _,
            measured_disk: _,
        } = conditions;
        // A run that does not say how much the kernel kept leaves the question open.
        let open = self.kernel.take().filter(|kernel| *kernel == KernelMemory::Measured);
        self.kernel = kernel.map(KernelMemory::Stated).or(open);
        (self.reserved, self.pagesets, self.committed) = (reserved, pagesets, committed);
        self.page_tables = page_tables;
    }

    /// Has files and swap on one disk, which is as fast as `record` says where it says so.
    fn take_disk(&mut self, record: Option<&Record>) {
        if self.swap.on == SwapOn::Own {
            self.swap = Swap { size: self.swap.size, on: SwapOn::Disk, ..Swap::default() };
        }
        let Some(record) = record else { return };
        let Device { bandwidth, iops, .. } = &record.disk;
        self.disk.latency = record.answer(&record.disk).map_or(self.disk.latency, Time);
        self.disk.bandwidth = bandwidth
            .map_or(self.disk.bandwidth, |mib| Bandwidth(Bytes((mib.median * (1 << 20) as f64) as u64)));
        self.disk.iops = iops.map(|iops| iops.median as u64).or(self.disk.iops);
    }

    /// Takes the kernel's memory from a record of this machine, if it was left to be measured.
    ///
    /// # Errors
    /// With the reason, if the record is of a machine of another size.
    pub fn take_kernel(&mut self, record: &Record) -> Result<(), String> {
        if self.kernel != Some(KernelMemory::Measured) {
            return Ok(());
        }
        let Some(kernel) = record.machine.kernel else { return Ok(()) };
        let (total, memory) = (record.provenance.memory.0, self.memory());
        if total > memory || total.0 < memory.0 / 4 * 3 {
            return Err(format!(
                "the record {:?} is of a machine whose kernel manages {total}, and this one has {}; calibrate on a \
                 machine of that size, or write a size",
                record.name,
                Size(memory)
            ));
        }
        self.kernel = Some(KernelMemory::Stated(Occupied::Total(kernel)));
        Ok(())
    }

    /// How much memory the kernel occupies, where the scenario or a measurement has said it.
    pub fn stated_kernel(&self) -> Option<&Occupied> {
        self.kernel.as_ref().and_then(KernelMemory::stated)
    }

    /// The size of a page.
    pub fn page(&self) -> PageSize {
        PageSize::new(self.page_size.bytes()).unwrap_or_default()
    }

    /// Memory of all nodes.
    pub fn memory(&self) -> Bytes {
        self.nodes.iter().map(|size| size.0).sum()
    }

    /// How many CPUs each node has. A total is spread evenly; what remains goes to the first nodes.
    pub fn cpus_per_node(&self) -> Vec<u32> {
        match &self.cpus {
            Cpus::PerNode(cpus) => cpus.clone(),
            Cpus::Total(total) => {
                let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).max(1);
                (0..nodes).map(|node| total / nodes + u32::from(node < total % nodes)).collect()
            }
        }
    }

    /// How much of each node is [`kernel`](MachineSpec::kernel) or [`reserved`](MachineSpec::reserved). A
    /// total is spread by the nodes' sizes.
    pub fn per_node(&self, occupied: &Occupied) -> Vec<Size> {
        match occupied {
            Occupied::PerNode(sizes) => sizes.clone(),
            Occupied::Total(total) => {
                let memory = u128::from(self.memory().0.max(1));
                let share = |node: &Size| u128::from(total.bytes()) * u128::from(node.bytes()) / memory;
                self.nodes.iter().map(|node| Size(Bytes(share(node) as u64))).collect()
            }
        }
    }

    /// The distance from one node to another; `None` if there is no such node.
    pub fn distance(&self, from: usize, to: usize) -> Option<u32> {
        if from >= self.nodes.len() || to >= self.nodes.len() {
            return None;
        }
        match &self.distance {
            Distance::Uniform(_) if from == to => Some(SELF),
            Distance::Uniform(distance) => Some(*distance),
            Distance::Matrix(rows) => rows.get(from)?.get(to).copied(),
        }
    }
}

/// Reads `[machine]` and checks that there can be such a machine.
pub(crate) fn machine(node: &Node, errors: &mut Collector) -> Option<MachineSpec> {
    let machine: Option<MachineSpec> = read(node, "machine", errors);
    let table = node.table()?;
    let machine = machine?;
    let before = errors.count();
    let mut check = Check { table, errors };
    check.memory(&machine);
    check.page_size(&machine);
    check.cpus(&machine);
    check.distances(&machine);
    check.disk(&machine.disk);
    check.swap(&machine);
    (errors.count() == before).then_some(machine)
}

struct Check<'a> {
    table: &'a Table,
    errors: &'a mut Collector,
}

impl Check<'_> {
    /// An error at a key below `machine`, or at the nearest table above it.
    fn wrong(&mut self, path: &[&str], message: String) {
        let key = format!("machine.{}", path.join("."));
        let at = place(self.table, path).unwrap_or_default();
        self.errors.add(at, key, message);
    }

    fn memory(&mut self, machine: &MachineSpec) {
        let nodes = machine.nodes.len();
        if nodes == 0 || nodes > NODES {
            return self.wrong(&["nodes"], format!("{nodes} nodes; write the memory of 1 to {NODES} nodes"));
        }
        for (number, size) in machine.nodes.iter().enumerate() {
            if size.0 < LEAST {
                let message = match size.0 {
                    Bytes::ZERO => format!("node {number} has no memory; write at least {LEAST}"),
                    _ => format!("node {number} has {size}; write at least {LEAST}"),
                };
                let at = element(self.table, "nodes", number);
                self.errors.add(at, format!("machine.nodes[{number}]"), message);
            }
        }
        let memory = machine.memory();
        if machine.nodes.iter().any(|size| size.0 < LEAST) {
            return;
        }
        if memory > MOST {
            let message = format!("{} in all; write at most {MOST}", Size(memory));
            return self.wrong(&["nodes"], message);
        }
        self.occupied(machine, "kernel", machine.stated_kernel());
        self.occupied(machine, "reserved", machine.reserved.as_ref());
        self.pagesets(machine);
    }

    fn page_size(&mut self, machine: &MachineSpec) {
        let page = machine.page_size;
        let since = PAGE_SIZES.iter().find(|(size, _)| *size == page.0).map(|(_, since)| *since);
        let Some(since) = since else {
            let message =
                format!("{page} is not the size of a page; write \"4 KiB\", \"16 KiB\" or \"64 KiB\"");
            return self.wrong(&["page-size"], message);
        };
        let release = machine.generation.kernel.release();
        if since.is_some_and(|since| release < since) {
            let name = machine.generation.name();
            let message = format!("{name} has no pages of {page}; write \"4 KiB\", or a later generation");
            return self.wrong(&["page-size"], message);
        }
        for (number, size) in machine.nodes.iter().enumerate() {
            if !size.bytes().is_multiple_of(page.bytes().max(1)) && !is_four_kib(&page) {
                let message = format!("node {number} has {size}, which are no whole pages of {page}");
                let at = element(self.table, "nodes", number);
                self.errors.add(at, format!("machine.nodes[{number}]"), message);
            }
        }
    }

    fn pagesets(&mut self, machine: &MachineSpec) {
        let Some(nodes) = &machine.pagesets else { return };
        if nodes.len() != machine.nodes.len() {
            let message =
                format!("lists for {} nodes, but the machine has {}", nodes.len(), machine.nodes.len());
            return self.wrong(&["pagesets"], message);
        }
        let cpus: u64 = machine.cpus_per_node().iter().map(|cpus| u64::from(*cpus)).sum();
        for (number, (sizes, node)) in nodes.iter().zip(&machine.nodes).enumerate() {
            let held = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(size.bytes()));
            let message = if sizes.len() as u64 != cpus {
                format!("{} sizes, but the machine has {cpus} CPUs; write one for each", sizes.len())
            } else if held >= node.bytes() {
                format!("CPUs hold {} of the {node} of node {number}; write less", Size(Bytes(held)))
            } else {
                continue;
            };
            let at = element(self.table, "pagesets", number);
            self.errors.add(at, format!("machine.pagesets[{number}]"), message);
        }
    }

    fn occupied(&mut self, machine: &MachineSpec, key: &'static str, occupied: Option<&Occupied>) {
        let memory = machine.memory();
        match occupied {
            Some(Occupied::Total(kernel)) if kernel.0 >= memory => {
                let message =
                    format!("the kernel occupies all of the {} of memory; write less", Size(memory));
                self.wrong(&[key], message);
            }
            Some(Occupied::PerNode(sizes)) => self.occupied_of_nodes(machine, key, sizes),
            _ => {}
        }
    }

    fn occupied_of_nodes(&mut self, machine: &MachineSpec, key: &'static str, sizes: &[Size]) {
        if sizes.len() != machine.nodes.len() {
            let message = format!(
                "a list for {} nodes, but the machine has {}; write one size per node, or one for all",
                sizes.len(),
                machine.nodes.len()
            );
            return self.wrong(&[key], message);
        }
        for (number, (kernel, node)) in sizes.iter().zip(&machine.nodes).enumerate() {
            if kernel >= node {
                let message = format!("the kernel occupies all of the {node} of node {number}; write less");
                let at = element(self.table, key, number);
                self.errors.add(at, format!("machine.{key}[{number}]"), message);
            }
        }
    }

    fn cpus(&mut self, machine: &MachineSpec) {
        let total: u64 = machine.cpus_per_node().iter().map(|cpus| u64::from(*cpus)).sum();
        if let Cpus::PerNode(cpus) = &machine.cpus
            && cpus.len() != machine.nodes.len()
        {
            let message = format!(
                "a list for {} nodes, but the machine has {}; write one number per node, or one for all",
                cpus.len(),
                machine.nodes.len()
            );
            return self.wrong(&["cpus"], message);
        }
        if total == 0 || total > u64::from(CPUS) {
            self.wrong(&["cpus"], format!("{total} CPUs; write 1 to {CPUS}"));
        }
    }

    fn distances(&mut self, machine: &MachineSpec) {
        let accepted = SELF..=FARTHEST;
        let rows = match &machine.distance {
            Distance::Uniform(distance) if accepted.contains(distance) => return,
            Distance::Uniform(distance) => {
                let message = format!("{distance} is not a distance; write {SELF} to {FARTHEST}");
                return self.wrong(&["distance"], message);
            }
            Distance::Matrix(rows) => rows,
        };
        let nodes = machine.nodes.len();
        if rows.len() != nodes || rows.iter().any(|row| row.len() != nodes) {
            let message =
                format!("not a matrix of {nodes} rows of {nodes} numbers, which {nodes} nodes need");
            return self.wrong(&["distance"], message);
        }
        for (from, row) in rows.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                if from == to && *distance != SELF {
                    let message = format!("node {from} is {distance} from itself; write {SELF}");
                    self.wrong(&["distance"], message);
                } else if !accepted.contains(distance) {
                    let message =
                        format!("node {from} is {distance} from node {to}; write {SELF} to {FARTHEST}");
                    self.wrong(&["distance"], message);
                }
            }
        }
    }

    fn disk(&mut self, disk: &Disk) {
        self.device("disk", Some(disk.bandwidth), disk.iops);
        if disk.size == Some(Size::default()) {
            self.wrong(&["disk", "size"], "a disk of size 0; leave it out for one without bound".to_owned());
        }
    }

    fn device(&mut self, name: &str, bandwidth: Option<Bandwidth>, iops: Option<u64>) {
        if bandwidth == Some(Bandwidth::default()) {
            self.wrong(&[name, "bandwidth"], "0 transfers nothing; write more than 0".to_owned());
        }
        if iops == Some(0) {
            self.wrong(&[name, "iops"], "0 serves nothing; write 1 or more".to_owned());
        }
    }

    fn swap(&mut self, machine: &MachineSpec) {
        let swap = &machine.swap;
        if swap.size.0 > MOST_SWAP {
            self.wrong(&["swap", "size"], format!("{} of swap; write at most {MOST_SWAP}", swap.size));
        }
        self.device("swap", swap.bandwidth, swap.iops);
        match swap.on {
            SwapOn::Own => self.own_swap(swap),
            SwapOn::Disk => {
                self.no_device(swap, "swap on the disk has the disk's; leave it out, or write on = \"own\"");
                if machine.disk.size.is_some_and(|disk| swap.size > disk) {
                    let message = format!("{} of swap are larger than the disk that holds it", swap.size);
                    self.wrong(&["swap", "size"], message);
                }
            }
            SwapOn::Zram => {
                self.no_device(
                    swap,
                    "zram is memory, and takes as long as `compress` and `decompress` of [calibration] say; \
                     leave it out",
                );
                self.zram(machine);
            }
        }
        if swap.on != SwapOn::Zram && swap.mem_limit.is_some() {
            let message = "only zram has it; leave it out, or write on = \"zram\"".to_owned();
            self.wrong(&["swap", "mem-limit"], message);
        }
        if swap.on != SwapOn::Zram && swap.zswap.is_none() && swap.ratio.is_some() {
            let message = "only zram and zswap compress; leave it out, or write on = \"zram\" or zswap = {}";
            self.wrong(&["swap", "ratio"], message.to_owned());
        }
        if let Some(ratio) = swap.ratio
            && !(1.0..=MOST_RATIO).contains(&ratio)
        {
            self.wrong(&["swap", "ratio"], format!("{ratio} is no ratio; write 1 to {MOST_RATIO}"));
        }
        if let Some(zswap) = swap.zswap.filter(|zswap| zswap.enabled) {
            self.zswap(machine, zswap);
        }
    }

    fn zswap(&mut self, machine: &MachineSpec, zswap: Zswap) {
        let (generation, name) = (machine.generation, machine.generation.name());
        if generation.kernel.release() < ZSWAP_SINCE {
            let message = format!("{name} has no zswap, which came with Linux 3.11");
            self.wrong(&["swap", "zswap"], message);
        }
        if machine.swap.on == SwapOn::Zram {
            let message = "zram compresses already, and zswap in front of it compresses each page twice; leave it out, \
                           or write on = \"own\" or \"disk\"";
            self.wrong(&["swap", "zswap"], message.to_owned());
        } else if machine.swap.size.0 == Bytes::ZERO {
            let message = "zswap is a cache in front of swap, and there is none; write swap.size".to_owned();
            self.wrong(&["swap", "zswap"], message);
        }
        if zswap.zpool == Some(Zpool::Zsmalloc) && generation.kernel.release() < ZPOOL_SINCE {
            let message = format!("{name} has zbud alone; other allocators came with Linux 3.17");
            self.wrong(&["swap", "zswap", "zpool"], message);
        }
        let has_threshold =
            generation.kernel.release() >= THRESHOLD_SINCE || generation.kernel == Kernel::Rhel8;
        if zswap.accept_threshold_percent.is_some() && !has_threshold {
            let message = format!("{name} has no threshold, which came with Linux 5.8; leave it out");
            self.wrong(&["swap", "zswap", "accept-threshold-percent"], message);
        }
        let percents = [
            ("max-pool-percent", zswap.max_pool_percent),
            ("accept-threshold-percent", zswap.accept_threshold()),
        ];
        for (key, percent) in percents.into_iter().filter(|(_, percent)| !(1..=100).contains(percent)) {
            self.wrong(&["swap", "zswap", key], format!("{percent} %; write 1 to 100"));
        }
    }

    /// Swap that is not on a device of its own has no figures of one.
    fn no_device(&mut self, swap: &Swap, why: &str) {
        let given = [
            ("latency", swap.latency.is_some()),
            ("bandwidth", swap.bandwidth.is_some()),
            ("iops", swap.iops.is_some()),
            ("burst", swap.burst.ns() > 0),
        ];
        for (key, _) in given.iter().filter(|(_, given)| *given) {
            self.wrong(&["swap", key], why.to_owned());
        }
    }

    fn own_swap(&mut self, swap: &Swap) {
        if swap.size.0 == Bytes::ZERO {
            return;
        }
        for (key, missing) in [("latency", swap.latency.is_none()), ("bandwidth", swap.bandwidth.is_none())] {
            if missing {
                let message =
                    "missing; a swap device of its own needs it (or write on = \"disk\")".to_owned();
                self.wrong(&["swap", key], message);
            }
        }
    }

    fn zram(&mut self, machine: &MachineSpec) {
        let swap = &machine.swap;
        if machine.generation.kernel.release() < ZRAM_SINCE {
            let message = format!("{} has no zram, which came with Linux 3.14", machine.generation.name());
            self.wrong(&["swap", "on"], message);
        }
        if swap.mem_limit == Some(Size::default()) {
            let message = "0 holds nothing; leave it out for a zram without limit".to_owned();
            self.wrong(&["swap", "mem-limit"], message);
        }
    }
}

/// Where the value of a key is, or of the nearest key above it that is written.
fn place(table: &Table, path: &[&str]) -> Option<Place> {
    let (first, rest) = path.split_first()?;
    let node = table.get(first)?;
    let inner = node.table().and_then(|inner| place(inner, rest));
    Some(inner.unwrap_or(node.at))
}

/// Where an element of a list is.
fn element(table: &Table, key: &str, number: usize) -> Place {
    match table.get(key).map(|node| (&node.value, node.at)) {
        Some((Value::List(nodes), at)) => nodes.get(number).map_or(at, |node| node.at),
        Some((_, at)) => at,
        None => Place::default(),
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cpus::Total(total) => serializer.serialize_u32(*total),
            Cpus::PerNode(cpus) => cpus.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cpus, D::Error> {
        struct Reader;
        impl<'de> de::Visitor<'de> for Reader {
            type Value = Cpus;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or a list of whole numbers, one per node")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cpus, E> {
                // What is too large for the type is too large for a machine, which is said with the bound.
                Ok(Cpus::Total(u32::try_from(number).unwrap_or(u32::MAX)))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Cpus, E> {
                Err(E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Cpus, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(list)).map(Cpus::PerNode)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for Cpus {
    fn schema_name() -> Cow<'static, str> {
        "Cpus".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": CPUS },
            { "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": CPUS } }
        ] })
    }
}

impl Serialize for Occupied {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Occupied::Total(size) => size.serialize(serializer),
            Occupied::PerNode(sizes) => sizes.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Occupied {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Occupied, D::Error> {
        struct Reader;
        impl<'de> de::Visitor<'de> for Reader {
            type Value = Occupied;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"24 MiB\", or a list of sizes, one per node")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Occupied, E> {
                Size::deserialize(de::value::StrDeserializer::new(text)).map(Occupied::Total)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Occupied, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(list)).map(Occupied::PerNode)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for Occupied {
    fn schema_name() -> Cow<'static, str> {
        "Occupied".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let size = Size::json_schema(generator);
        json_schema!({ "anyOf": [size, { "type": "array", "items": size }] })
    }
}

impl Serialize for KernelMemory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            KernelMemory::Measured => serializer.serialize_str(Self::MEASURED),
            KernelMemory::Stated(occupied) => occupied.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for KernelMemory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KernelMemory, D::Error> {
        struct Reader;
        impl<'de> de::Visitor<'de> for Reader {
            type Value = KernelMemory;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"24 MiB\", a list of sizes, one per node, or \"measured\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<KernelMemory, E> {
                if text == KernelMemory::MEASURED {
                    return Ok(KernelMemory::Measured);
                }
                Occupied::deserialize(de::value::StrDeserializer::new(text)).map(KernelMemory::Stated)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<KernelMemory, A::Error> {
                Occupied::deserialize(de::value::SeqAccessDeserializer::new(list)).map(KernelMemory::Stated)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for KernelMemory {
    fn schema_name() -> Cow<'static, str> {
        "KernelMemory".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        // Texts and lists of texts, of which "measured" is one.
        Occupied::json_schema(generator)
    }
}

impl Serialize for Distance {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Distance::Uniform(distance) => serializer.serialize_u32(*distance),
            Distance::Matrix(rows) => rows.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Distance {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Distance, D::Error> {
        struct Reader;
        impl<'de> de::Visitor<'de> for Reader {
            type Value = Distance;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 10 to 254, or a matrix with a row per node")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Distance, E> {
                Ok(Distance::Uniform(u32::try_from(number).unwrap_or(u32::MAX)))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Distance, E> {
                Err(E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Distance, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(list)).map(Distance::Matrix)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl JsonSchema for Distance {
    fn schema_name() -> Cow<'static, str> {
        "Distance".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let number = json_schema!({ "type": "integer", "minimum": SELF, "maximum": FARTHEST });
        json_schema!({ "anyOf": [
            number,
            { "type": "array", "items": { "type": "array", "items": number } }
        ] })
    }
}
