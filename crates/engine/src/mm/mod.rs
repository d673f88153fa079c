//! The memory of one machine: state and rules, without time.
//!
//! ```text
//! operation ── memory (faults), filemap (read, write) ──▶ page_alloc (policy) ──▶ vmscan (reclaim)
//!                       │                                                             │
//!                       └── readahead, swap, page_writeback ──▶ wbt ──▶ Io (outbox) ◀─┘
//! ```
//!
//! A task makes every call and hands in its [`Cx`], to which the call adds the CPU time that it cost. A call
//! that may sleep is a value ([`Fault`], [`Read`], [`Write`], [`Fadvise`], [`Kswapd`]) that the caller owns
//! and polls: its progress is its fields. Where it would sleep, a poll returns a [`Wait`], and the caller
//! polls again after it. Requests for devices and the events that wake sleepers are put into outboxes.

pub(crate) mod blk;
pub(crate) mod clock;
pub(crate) mod compaction;
pub(crate) mod evictions;
pub(crate) mod ext4;
pub(crate) mod fadvise;
pub(crate) mod filemap;
pub(crate) mod footprint;
pub(crate) mod frame;
pub(crate) mod free_area;
pub(crate) mod huge_memory;
pub(crate) mod hugetlb;
pub(crate) mod lru;
pub(crate) mod lru_lock;
pub(crate) mod memory;
pub(crate) mod mglru;
pub(crate) mod mlock;
pub(crate) mod mmap;
pub(crate) mod mmzone;
pub(crate) mod node_reclaim;
pub(crate) mod object;
pub(crate) mod oom_kill;
pub(crate) mod overcommit;
pub(crate) mod page_alloc;
pub(crate) mod page_writeback;
pub(crate) mod pagecache_limit;
pub(crate) mod pcp;
pub(crate) mod pgtable;
pub(crate) mod policy;
pub(crate) mod readahead;
pub(crate) mod shmem;
pub(crate) mod slab;
mod splice;
pub(crate) mod swap;
pub(crate) mod task_mmu;
pub(crate) mod two_lists;
pub(crate) mod vmscan;
pub(crate) mod vmstat;
pub(crate) mod wbt;
pub(crate) mod workingset;
pub(crate) mod zpool;
pub(crate) mod zram;
pub(crate) mod zswap;

mod check;
mod kswapd;

use std::collections::{BTreeMap, VecDeque};

pub use fadvise::{Fadvise, Madvise};
pub use filemap::{Read, Write};
pub use hugetlb::{HugePages, SetPool};
pub use kswapd::Kswapd;
use lotsfree_kernel_files::counters;
use lotsfree_scenario::Costs;
use lotsfree_scenario::Filesystem;
use lotsfree_workload::Policy;
pub use memory::Fault;
pub use mlock::Lock;
use mmap::AddressSpace;
use mmzone::{Lruvec, Node, Zone};

use crate::generation::Generation;
use crate::tuning::Tuning;
use lotsfree_units::PageSize;
pub(crate) use mmzone::{Layout, has_transparent_hugepage, kernel_pages, unmanaged};
use object::Objects;
pub use oom_kill::{Badness, OomControl, Rss, Victim};
use page_writeback::Writeback;
pub use readahead::RaState;
pub use splice::CopyRange;
use swap::Swap;
use vmstat::Events;
pub use zram::ZramConfig;
pub use zswap::{ZswapConfig, ZswapWorker};

/// `SWAP_CLUSTER_MAX`: reclaim takes pages off a list in batches of this many.
pub(crate) const SWAP_CLUSTER_MAX: u64 = 32;
/// `DEF_PRIORITY`: reclaim begins by scanning 1/4096 of each list.
pub(crate) const DEF_PRIORITY: u8 = 12;
/// A tenth of a second, the kernel's `HZ/10`.
pub(crate) const TENTH: u64 = 100_000_000;
/// One millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// Bytes of a block of the file system, and the unit in which programs count pages: a page where pages have 4
/// KiB. It is what `mkfs.ext4` and `mkfs.xfs` make, whatever the size of a page.
pub(crate) const BLOCK: u64 = 4096;
/// Frame numbers have 29 bits: 2 TiB of pages of 4 KiB may be in use at once. Memory that nobody has touched
/// has none.
pub const MOST_FRAMES: u64 = 1 << 29;

/// The hardware, kernel and settings that a machine's memory depends on.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kernel.
    pub generation: Generation,
    /// CPUs, spread over the nodes in blocks of equal size.
    pub cpus: u32,
    /// The size of a page: 4 KiB is a PC's, 16 and 64 KiB are those of arm64. All pages here are of this
    /// size.
    pub page: PageSize,
    /// Memory of each node, in pages.
    pub nodes: Vec<u64>,
    /// SLIT distances, a row per node; 10 on the diagonal.
    pub distance: Vec<Vec<u32>>,
    /// Sysctls.
    pub tuning: Tuning,
    /// Swap, in pages.
    pub swap_pages: u64,
    /// Whether the disk is rotational.
    pub rotational: bool,
    /// Whether the swap device has to seek: swap readahead then goes by slots, otherwise by addresses.
    pub swap_rotational: bool,
    /// The file system that files are on.
    pub filesystem: Filesystem,
    /// Swap shares the queue of the disk that files are on.
    pub swap_on_disk: bool,
    /// Swap is compressed and kept in memory; there is no device then.
    pub zram: Option<ZramConfig>,
    /// Swap goes through zswap first, which is of no use in front of zram and not looked at there.
    pub zswap: Option<ZswapConfig>,
    /// Pages that are promised when the run begins, the segments and programs of the run included.
    pub committed: u64,
    /// Pages of the kernel's memory that hold page tables of other programs when the run begins.
    pub others_pgtable_pages: u64,
    /// Pages that the kernel itself uses on each node, of those that the node's zones manage; `None` for the
    /// default.
    pub kernel_pages: Option<Vec<u64>>,
    /// Nanoseconds of the run until which slabs for files take the place of the kernel's pages, which are as
    /// many as it has then.
    pub settled: u64,
    /// Pages of each node that its zones do not manage; `None` for the pages of the page descriptors.
    pub reserved_pages: Option<Vec<u64>>,
    /// Free pages of each node that CPUs hold back when the run begins, by CPU; nodes and CPUs that are not
    /// listed hold none.
    pub pagesets: Vec<Vec<u64>>,
    /// Whether reads take no time: there is no device then, only the cost of the kernel's own work.
    pub instant_reads: bool,
    /// Costs of the kernel's work.
    pub costs: Costs,
}

impl Config {
    /// A machine with nodes of these numbers of pages, at distance 20 from each other, with one CPU, no swap,
    /// ext4 and a kernel that has its default settings.
    pub fn new(generation: Generation, nodes: Vec<u64>) -> Self {
        let count = nodes.len();
        let distance = |from: usize| (0..count).map(|to| if from == to { 10 } else { 20 }).collect();
        Config {
            generation,
            cpus: 1,
            page: PageSize::X86,
            distance: (0..count).map(distance).collect(),
            nodes,
            tuning: Tuning::of(&generation),
            swap_pages: 0,
            rotational: false,
            swap_rotational: false,
            swap_on_disk: false,
            zram: None,
            zswap: None,
            filesystem: Filesystem::Ext4,
            committed: 0,
            others_pgtable_pages: 0,
            kernel_pages: None,
            settled: 0,
            reserved_pages: None,
            pagesets: Vec::new(),
            instant_reads: false,
            costs: Costs::default(),
        }
    }
}

/// The event that a task waits for, if it does not only wait for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitChannel {
    /// A request has completed.
    Io(u64),
    /// kswapd of a node has work.
    Kswapd(usize),
    /// The flusher has work.
    Flusher,
    /// zswap's worker has work.
    Zswap,
    /// kswapd of a node has brought free memory above half of the min watermarks, or gave up.
    Pfmemalloc(usize),
    /// Pages of a node were written or freed: tasks that are held because the node is congested
    /// (`VMSCAN_THROTTLE_CONGESTED`) check again.
    Progress(usize),
    /// A device's queue of writes is no longer congested: `congestion_wait`, or `reclaim_throttle` from 5.16
    /// on.
    Room,
    /// A device's queue accepts write requests again, of a kind of writers.
    Request(usize, usize),
}

/// The kind of a wait, which the measurements distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// For a device, on behalf of this task.
    Io,
    /// For a page of a file that comes back after it was evicted.
    Refault,
    /// For a page that is swapped in.
    SwapIn,
    /// Reclaim holds the task back.
    Reclaim,
    /// The dirty limit holds the task back.
    Dirty,
    /// Nothing to do.
    Idle,
    /// The slice is over and others may run.
    Yield,
}

/// A wait of a call that could not finish. The caller sleeps until the event or the time, whichever is first,
/// and then polls the call again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The event that wakes the caller.
    pub channel: Option<WaitChannel>,
    /// The time, in nanoseconds of the run, at which the caller wakes at the latest.
    pub until: Option<u64>,
    /// The reason for the wait.
    pub why: WaitReason,
}

impl Wait {
    pub(crate) fn io(id: u64) -> Self {
        Wait::request(id, WaitReason::Io)
    }
    pub(crate) fn request(id: u64, why: WaitReason) -> Self {
        Wait { channel: Some(WaitChannel::Io(id)), until: None, why }
    }
    pub(crate) fn until(until: u64, why: WaitReason) -> Self {
        Wait { channel: None, until: Some(until), why }
    }
    pub(crate) const YIELD: Wait = Wait { channel: None, until: Some(0), why: WaitReason::Yield };
}

/// Why an operation ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The operation continues after this wait.
    Wait(Wait),
    /// There is no memory for it, and reclaim has given up.
    OutOfMemory,
    /// The kernel refuses memory that was asked for (`ENOMEM`).
    Refused,
    /// The process may not lock that much: `ENOMEM` of `mlock`, `EAGAIN` of `mmap`, `EPERM` if it may lock
    /// nothing.
    Memlock,
    /// The pool of huge pages got fewer than it was to have.
    Pool,
    /// There is no page where a region has one, and the process gets a `SIGBUS`.
    Bus,
    /// The file, region or page does not exist.
    Bad,
}

impl From<Wait> for Stop {
    fn from(wait: Wait) -> Self {
        Stop::Wait(wait)
    }
}

/// Why a segment cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The pool is short of this many huge pages.
    HugePages(u64),
    /// The kernel would promise at most this many pages.
    Promise(u64),
    /// The process that makes it may not use huge pages, or the segment is larger than its limit allows.
    Permission,
}

/// Result of an operation.
pub type Done = Result<(), Stop>;

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// The disk that files are on.
    Disk,
    /// The device that swap is on.
    Swap,
}

/// A request to a device. Devices know nothing of the size of a page: they count in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Its number; [`WaitChannel::Io`] says that it has completed.
    pub id: u64,
    /// The device that it goes to.
    pub device: Device,
    /// Whether it is a write.
    pub write: bool,
    /// Whether somebody waits for it.
    pub sync: bool,
    /// First block on the device; consecutive requests need no seek.
    pub start: u64,
    /// Number of blocks.
    pub pages: u32,
}

/// The caller's side of a call: who makes it, when, and its cost up to now.
#[derive(Clone, Copy, Debug)]
pub struct Cx {
    /// Nanoseconds of the run at which the call was made; [`Cx::now`] adds the time spent since.
    pub start: u64,
    /// CPU time that the call took.
    pub spent: u64,
    /// The part of it that went into direct reclaim and node reclaim.
    pub reclaim: u64,
    /// The calling task: an index into the machine's tasks.
    pub task: usize,
    /// The CPU that the task runs on.
    pub cpu: usize,
    /// The task's address space.
    pub process: usize,
    /// CPU time after which a long call should yield.
    pub slice: u64,
    /// Minor and major faults of the call.
    pub minor: u32,
    /// Faults that had to wait for a device.
    pub major: u32,
    /// Pages that the call took and gave back.
    pub pages: Turnover,
}

/// Pages that a call took and gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// Pages allocated.
    pub allocated: u32,
    /// Pages freed by unmapping, truncating, deleting or dropping them on advice; not by reclaim.
    pub returned: u32,
    /// Of those allocated, pages that came back from a file or from swap after they were evicted.
    pub refaults: u32,
}

impl Cx {
    /// A caller at a given time.
    pub fn new(task: usize, cpu: usize, process: usize, start: u64) -> Self {
        Cx {
            start,
            spent: 0,
            reclaim: 0,
            task,
            cpu,
            process,
            slice: MS,
            minor: 0,
            major: 0,
            pages: Turnover::default(),
        }
    }
    /// The caller's time.
    pub fn now(&self) -> u64 {
        self.start + self.spent
    }
    pub(crate) fn spend(&mut self, ns: u64) {
        self.spent += ns;
    }
}

/// The memory of a machine.
#[derive(Debug)]
pub struct Mm {
    pub(crate) page: PageSize,
    pub(crate) generation: Generation,
    pub(crate) tuning: Tuning,
    pub(crate) costs: Costs,
    pub(crate) cpus: usize,
    pub(crate) frames: frame::Frames,
    pub(crate) entries: frame::Entries,
    pub(crate) zones: Vec<Zone>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) lruvecs: Vec<Lruvec>,
    pub(crate) lru_locking: lru_lock::LruLocking,
    pub(crate) total_reserve: u64,
    pub(crate) zone_reclaim_mode: u64,
    pub(crate) min_free_kbytes: u64,
    pub(crate) objects: Objects,
    pub(crate) processes: Vec<AddressSpace>,
    pub(crate) tasks: Vec<vmscan::TaskState>,
    pub(crate) swap: Swap,
    /// The compressed pages, of zram or of zswap.
    pub(crate) zpool: Option<Box<zpool::Zpool>>,
    /// The device, if swap is zram.
    pub(crate) zram: Option<zram::Zram>,
    /// zswap in front of the device, if it is on.
    pub(crate) zswap: Option<Box<zswap::Zswap>>,
    pub(crate) writeback: Writeback,
    pub(crate) events: Events,
    pub(crate) blank: vmstat::Blank,
    pub(crate) instant_reads: bool,
    /// [`policy::Policy::has_own_marks`]
    pub(crate) own_marks: bool,
    pub(crate) queues: blk::WriteQueues,
    pub(crate) filesystem: Filesystem,
    /// The file system that is mounted, if its metadata are modelled.
    pub(crate) ext4: Option<Box<ext4::Ext4>>,
    pub(crate) slab: slab::Slab,
    pub(crate) hugetlb: hugetlb::Hugetlb,
    /// Pages that are promised (`vm_committed_as`), and those of them that are nobody's here.
    pub(crate) committed: u64,
    pub(crate) others_committed: u64,
    /// The page tables of other programs.
    pub(crate) others_pgtables: Vec<u32>,
    /// Pages that were ever allocated for page tables.
    pub(crate) tables_taken: u64,
    /// The nodes of the files' trees.
    pub(crate) tree: workingset::Nodes,
    pub(crate) flights: Flights,
    pub(crate) outbox: Vec<Io>,
    pub(crate) woken: Vec<WaitChannel>,
    /// Whether a fault brings in the pages that come in now, on a mapping whose accesses count as use
    /// (`current->in_lru_fault`).
    pub(crate) in_lru_fault: bool,
    /// Books on evicted pages, if somebody wants them.
    pub(crate) evictions: Option<Box<evictions::Evictions>>,
}

/// A request on its way to a device, and its pages.
#[derive(Debug)]
struct Flight {
    io: Io,
    /// When it was sent.
    since: u64,
    queued: Queued,
    frames: Vec<u32>,
    bio: Option<slab::Bio>,
}

/// Requests on their way, by number.
#[derive(Debug)]
pub(crate) struct Flights {
    first: u64,
    queue: VecDeque<Option<Flight>>,
    /// Reads of pages, by their first page on the device.
    reads: BTreeMap<(Device, u64), u64>,
    /// Emptied vectors, for reuse.
    spare: Vec<Vec<u32>>,
}

impl Default for Flights {
    fn default() -> Self {
        Flights { first: 1, queue: VecDeque::new(), reads: BTreeMap::new(), spare: Vec::new() }
    }
}

impl Flights {
    fn launch(&mut self, flight: Flight) {
        let Io { id, device, write, start, .. } = flight.io;
        if !write && !flight.frames.is_empty() {
            self.reads.insert((device, start), id);
        }
        self.queue.push_back(Some(flight));
    }
    fn next(&self) -> u64 {
        self.first + self.queue.len() as u64
    }
    fn land(&mut self, id: u64) -> Option<Flight> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        let flight = self.queue.get_mut(index)?.take();
        if let Some(Flight { io: Io { device, start, .. }, .. }) = flight
            && self.reads.get(&(device, start)) == Some(&id)
        {
            self.reads.remove(&(device, start));
        }
        while let Some(None) = self.queue.front() {
            self.queue.pop_front();
            self.first += 1;
        }
        flight
    }
    /// Whether a request is still under way.
    pub(crate) fn contains(&self, id: u64) -> bool {
        id.checked_sub(self.first)
            .is_some_and(|index| matches!(self.queue.get(index as usize), Some(Some(_))))
    }
    /// The request that reads a page from its place on a device.
    pub(crate) fn reading(&self, frame: u32, device: Device, place: u64) -> Option<u64> {
        let (_, &id) = self.reads.range((device, 0)..=(device, place)).next_back()?;
        let flight = self.queue.get((id - self.first) as usize)?.as_ref()?;
        flight.frames.contains(&frame).then_some(id)
    }
    /// What the block layer has for the requests.
    fn bios(&self) -> impl Iterator<Item = slab::Bio> {
        self.queue.iter().flatten().filter_map(|flight| flight.bio)
    }
    /// An empty vector for the frames of a request.
    pub(crate) fn frames(&mut self) -> Vec<u32> {
        self.spare.pop().unwrap_or_default()
    }
}

impl Mm {
    /// Requests for devices made since the last call.
    pub fn take_io(&mut self) -> std::vec::Drain<'_, Io> {
        self.outbox.drain(..)
    }

    /// Whether more memory was to be used than frames have numbers ([`MOST_FRAMES`]).
    pub fn is_exhausted(&self) -> bool {
        self.frames.exhausted
    }

    /// Whether there are requests in the outbox or sleepers to wake.
    pub fn has_news(&self) -> bool {
        !self.outbox.is_empty() || !self.woken.is_empty()
    }

    /// Events that happened since the last call.
    pub fn take_events(&mut self) -> std::vec::Drain<'_, WaitChannel> {
        self.woken.drain(..)
    }

    /// A new address space.
    pub fn create_process(&mut self, policy: Policy) -> usize {
        self.processes.push(AddressSpace::new(policy));
        self.processes.len() - 1
    }

    /// Registers a task and returns its number, which [`Cx::task`] holds.
    pub fn create_task(&mut self) -> usize {
        self.tasks.push(vmscan::TaskState::default());
        self.tasks.len() - 1
    }

    /// The node of a CPU.
    #[inline]
    pub fn node_of_cpu(&self, cpu: usize) -> usize {
        match self.nodes.len() {
            1 => 0,
            count => (cpu * count / self.cpus.max(1)).min(count - 1),
        }
    }

    pub(crate) fn submit(&mut self, cx: &mut Cx, io: IoRequest, frames: Vec<u32>) -> u64 {
        let id = self.flights.next();
        let IoRequest { device, write, sync, start, pages, queued } = io;
        // A request without frames is one past the page cache, and in blocks already.
        let blocks = if frames.is_empty() { 1 } else { self.blocks() };
        let io = Io { id, device, write, sync, start, pages };
        let mut flight = Flight { io, since: cx.now(), queued, frames, bio: None };
        let io = Io { start: start * u64::from(blocks), pages: pages * blocks, ..io };
        let kib = u64::from(io.pages) * (BLOCK >> 10);
        if self.instant_reads && !write {
            self.read_at_once(cx, kib);
            self.arrive(flight);
            return 0;
        }
        if self.zram.is_some() && device == Device::Swap {
            self.zram_read(cx, pages);
            self.arrive(flight);
            return 0;
        }
        // What joins a request that is being collected takes no more of the block layer.
        if !matches!(queued, Queued::Merged(_)) {
            cx.spend(self.costs.submit);
        }
        if write {
            self.events[counters::vmstat::pgpgout] += kib;
        } else {
            self.events[counters::vmstat::pgpgin] += kib;
        }
        flight.bio = Some(self.bio_alloc(cx, io.pages.div_ceil(self.blocks()), write));
        self.flights.launch(flight);
        match queued {
            Queued::Apart => {
                if let Some(throttle) = self.queues.throttle(device) {
                    throttle.asked(id, !write, cx.now());
                }
                self.outbox.push(io);
            }
            Queued::Merged(writer) | Queued::Write(writer) if self.generation.blk_mq => {
                self.queues.hold(io, queued, writer, cx.task, cx.now(), &mut self.outbox);
            }
            Queued::Merged(_) | Queued::Write(_) => self.outbox.push(io),
        }
        id
    }

    /// Accounts a read that takes no time.
    pub(crate) fn read_at_once(&mut self, cx: &mut Cx, kib: u64) {
        cx.spend(self.costs.submit);
        self.events[counters::vmstat::pgpgin] += kib;
    }

    /// Blocks of a page.
    #[inline]
    pub(crate) fn blocks(&self) -> u32 {
        1 << (self.page.shift() - PageSize::X86.shift())
    }

    /// The most pages of a request to a device (`max_sectors_kb`).
    pub(crate) fn request_pages(&self) -> u32 {
        (self.generation.request_pages >> (self.page.shift() - PageSize::X86.shift())).max(1)
    }

    /// Ends a request that has completed.
    pub fn complete(&mut self, id: u64, now: u64) {
        let Some(flight) = self.flights.land(id) else { return };
        let Flight { io, since, queued, bio, .. } = flight;
        if let Some(bio) = bio {
            self.bio_free(bio);
        }
        self.arrive(flight);
        self.woken.push(WaitChannel::Io(id));
        match queued {
            Queued::Write(writer) => {
                self.queues.complete(io.device, writer, now, &mut self.outbox, &mut self.woken);
                // With the multi-queue layer, a completion does not wake tasks that sleep in congestion_wait.
                // Those that sleep in reclaim_throttle are woken after some pages were written.
                if self.generation.blk_mq && self.generation.reclaim_throttle {
                    self.woken.push(WaitChannel::Room);
                }
            }
            Queued::Merged(_) => {}
            Queued::Apart => {
                if let Some(throttle) = self.queues.throttle(io.device) {
                    throttle.answered(id, !io.write, since, now);
                }
            }
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let Flight { io, mut frames, .. } = flight;
        for &frame in &frames {
            if io.write {
                self.end_writeback(frame);
            } else {
                self.end_read(frame);
            }
        }
        frames.clear();
        self.flights.spare.push(frames);
    }
}

/// A request before it has a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoRequest {
    pub(crate) device: Device,
    pub(crate) write: bool,
    pub(crate) sync: bool,
    pub(crate) start: u64,
    pub(crate) pages: u32,
    pub(crate) queued: Queued,
}

/// Whether a request counts in the device's queue of buffered writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// It does not: a read, or a write past the page cache.
    Apart,
    /// It was merged into a counted request of this writer.
    Merged(wbt::Writer),
    /// It counts, for this writer.
    Write(wbt::Writer),
}
