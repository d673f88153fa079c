//! [`Machine`]: a program on the memory of one machine, in time.
//!
//! ```text
//! Program ── threads ─┐                            ┌─ Submit ─▶ Disk ── Served, Complete ─┐
//!                     ├─ slices ──▶ Mm ── news ────┤                                      │
//! kswapd, flusher ────┘   ▲                        └─ Wake ──┐                            │
//!                         └──── Queue (time, sequence) ◀─────┴────────────────────────────┘
//! ```
//!
//! # What is modelled
//!
//! - **Time** advances from one entry of a queue to the next; entries of the same time keep the order in
//!   which they were entered. There is no other source of order and no chance: the same configuration and
//!   program yield the same run, byte for byte.
//! - **Tasks** (threads of the program, one kswapd per node, one flusher) run in slices: a task executes
//!   operation after operation in its own time, until it blocks or passes the next entry of the queue by more
//!   than a lookahead: [`LOOKAHEAD_IDLE_NS`], or [`LOOKAHEAD_RECLAIM_NS`] while a kswapd is awake, a task
//!   waits for reclaim, or one has just had to spin for a lock. The lookahead is how far the order of two
//!   tasks' accesses to memory can differ from the order of their times. A call that affects others (it has a
//!   request for a device, or a kswapd to wake) ends the slice, so that the consequences happen at their
//!   time.
//! - **CPUs** are shared equally when more tasks want one than there are (`cpus`).
//! - **The LRU lock** of each zone or node is held by one CPU at a time; others spin (`mm/lru_lock.rs`).
//! - **Devices** have a queue with merging and a scheduler, a bandwidth, a rate or a seek time, and a latency
//!   (`device`). Swap has a device of its own or shares the disk.
//! - **Sleeping** ends by an event or at a time. The task runs again after the cost of a wake-up.
//! - **Accounts** are exact: for every thread, user, system, reclaim, io, throttled, runnable and idle time
//!   add up to the time that it lived.
//!
//! # What is not
//!
//! There is no scheduler beyond equal shares: no latency before a busy CPU is given up, no priorities, no run
//! queues per CPU, and no migration but of tasks that wake (`cpus`). There is no contention for caches,
//! memory bandwidth or other locks than the LRU lock. There are no interrupts: the cost of a completion is
//! part of the wake-up. Remote memory is not slower than local memory. A thread that is killed in the middle
//! of a call does not finish the call.

mod bucket;
mod cpus;
mod device;
mod files;
mod measure;
mod process;
mod queue;
mod sched;
mod slice;
mod task;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use cpus::Cpus;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_run::{EventKind, NodeSample, Sample, Sink, WriteError};
use lotsfree_units::words::counted;
use lotsfree_workload::{Program, START_LEAD_NS, SegmentBacking, SegmentSpec};

use crate::mm::{self, Device, HugePages, Io, Kswapd, Lack, Mm, ZswapWorker};
pub use device::DeviceSpec;
use device::{Disk, Scheduler};
use files::Files;
use measure::{Group, Log};
use queue::{Event, Queue};
use task::{Kind, Process, State, Task, Thread, Waiters};

/// How far a task may run past the next entry of the queue, in nanoseconds, while there is no reclaim.
pub const LOOKAHEAD_IDLE_NS: u64 = 1_000_000;
/// How far a task may run past the next entry of the queue, in nanoseconds, while a kswapd is awake, a task
/// waits for reclaim, or one has just had to spin for a lock. Reclaim of 32 pages takes about as long.
pub const LOOKAHEAD_RECLAIM_NS: u64 = 100_000;
/// Longest slice, in nanoseconds, however empty the queue is.
const SLICE_NS: u64 = 10_000_000;
/// Threads on a CPU from which on slices and the lookahead grow with their number, so that a thread does as
/// much work in one as with this many, and the same work is not cut into ever more pieces.
const CROWD: u64 = 20;
/// The least CPU time, in nanoseconds, that a call is given before it should yield, so that it gets
/// somewhere.
const SHORTEST_CALL_NS: u64 = 20_000;
/// The most CPU time, in nanoseconds, that a call is given before it should yield.
const LONGEST_CALL_NS: u64 = 1_000_000;
/// Nanoseconds after which a task that yielded without having used time runs again. The pause doubles each
/// time that the task still finds nothing to do, up to [`POLL`] times 2 to the power of [`POLL_DOUBLINGS`].
const POLL: u64 = 1_000;
const POLL_DOUBLINGS: u32 = 7;
/// `vm.stat_interval`, in nanoseconds.
const STAT_INTERVAL: u64 = 1_000_000_000;
/// `FLUSH_TIME` of the memory controller, in nanoseconds.
const FLUSH_TIME: u64 = 2_000_000_000;
/// Priority of zram as swap, systemd's zram-generator's default.
const ZRAM_PRIORITY: i32 = 100;
/// Entries of the queue that are handled between two calls of `progress`.
const LOOK: u32 = 1 << 16;

/// The hardware, kernel and settings of a machine.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// Memory, CPUs, kernel, sysctls and costs.
    pub mm: mm::Config,
    /// The disk that files are on.
    pub disk: DeviceSpec,
    /// Its size in the machine's pages.
    pub disk_pages: u64,
    /// The device that swap is on; its size is [`mm::Config::swap_pages`].
    pub swap: SwapDevice,
    /// Nanoseconds between samples; 0 counts as 1.
    pub interval: u64,
}

/// The device that swap is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapDevice {
    /// A device of its own.
    Own(DeviceSpec),
    /// The disk that files are on, behind them.
    Disk,
    /// None: [`mm::Config::zram`] keeps pages in memory.
    Zram,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The run reached its end.
    Complete,
    /// The run was told to stop, needs more memory than the model has ([`Mm::is_exhausted`]), or its kernel
    /// has panicked, at this time in nanoseconds. The sink's data are valid up to that time.
    Stopped(u64),
}

/// A program on the memory of one machine.
#[derive(Debug)]
pub struct Machine {
    mm: Mm,
    queue: Queue,
    tasks: Vec<Task>,
    threads: Vec<Thread>,
    /// kswapd of each node.
    kswapds: Vec<Kswapd>,
    zswap: ZswapWorker,
    processes: Vec<Process>,
    groups: Vec<Group>,
    files: Files,
    /// The objects of the program's segments.
    segments: Vec<Option<u32>>,
    /// The first segment that cannot be made, and why.
    lacks: Option<(String, Lack)>,
    cpus: Cpus,
    waiters: Waiters,
    /// The disk, then the device of swap if that is another one.
    disks: Vec<Disk>,
    /// First block of swap on the disk.
    swap_at: u64,
    log: Log,
    /// Tasks for which the lookahead is [`LOOKAHEAD_RECLAIM_NS`].
    reclaiming: usize,
    nodes: usize,
    now: u64,
    interval: u64,
    /// Times of the last sample, of the next one and of the end of the run. No slice goes beyond the next
    /// sample or the end.
    sampled: Option<u64>,
    next_sample: u64,
    until: u64,
    /// The processes whose files the samples have.
    sampled_processes: Vec<usize>,
    /// Ends of the intervals up to now.
    interval_ends: Vec<u64>,
    /// The kernel has panicked.
    panicked: bool,
}

/// Pages that were evicted and came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Return {
    /// The actor that brought them back.
    pub actor: String,
    /// End of the interval in which they were evicted, in nanoseconds since the beginning.
    pub evicted: u64,
    /// End of the interval in which they came back.
    pub returned: u64,
    /// The number of pages.
    pub pages: u64,
}

impl Machine {
    /// A machine that has just booted, and a program that has not begun.
    pub fn new(config: MachineConfig, mut program: Program) -> Self {
        let MachineConfig { mm: memory, disk, disk_pages, swap, interval } = config;
        let (nodes, cpus) = (memory.nodes.len(), memory.cpus);
        let mut mm = Mm::new(&memory);
        mm.mount(disk_pages);
        for file in &mut program.files {
            file.pages = file.pages.div_ceil(mm.blocks());
        }
        let files = Files::new(&program.files, disk_pages, |file| mm.declare_file(file.pages, file.exists));
        let blocks = mm.blocks();
        let (mut lacks, mut log) = (None, Log::default());
        let mut segment = |of: &SegmentSpec| {
            let pages = of.pages.div_ceil(blocks);
            let made = match of.backing {
                SegmentBacking::ShmHuge { or_base } => {
                    let made = match mm.may_use_huge_pages(of.memlock, pages) {
                        true => mm.create_huge_segment(pages),
                        false => Err(Lack::Permission),
                    };
                    match made {
                        Err(lack) if or_base => {
                            let why = match lack {
                                Lack::Permission => "its process may use no huge pages (EPERM)".to_owned(),
                                Lack::HugePages(lacks) | Lack::Promise(lacks) => {
                                    format!("the pool lacks {}", counted(lacks, "huge page"))
                                }
                            };
                            let what = format!("{}: {why}; base pages instead", of.name);
                            log.add(0, EventKind::Note, what, None);
                            mm.create_segment(pages, true)
                        }
                        made => made,
                    }
                }
                backing => mm.create_segment(pages, backing == SegmentBacking::Shm),
            };
            made.inspect_err(|lack| _ = lacks.get_or_insert((of.name.clone(), *lack))).ok()
        };
        let segments = program.segments.iter().map(&mut segment).collect();
        // In the lab these are there when the run begins.
        let there = program.processes.iter().filter(|process| process.start <= START_LEAD_NS).count();
        mm.commit_others(memory.committed, there as u64);
        let cfq = memory.generation.cfq;
        let blk_mq = memory.generation.blk_mq;
        // CFQ idles only where the heads would have to move. A device has a queue for each CPU if it can; one
        // with a single queue gets a scheduler (`elevator_get_default`).
        let scheduler = |spec: DeviceSpec| match spec.seek {
            Some(_) if cfq => Scheduler::Cfq,
            None if blk_mq && cpus > 1 => Scheduler::None,
            _ => Scheduler::Deadline,
        };
        let disk_of = |spec| Disk::new(spec, scheduler(spec), memory.generation.request_pages);
        let mut disks = vec![disk_of(disk)];
        if let SwapDevice::Own(spec) = swap {
            disks.push(disk_of(spec));
        }
        let mut machine = Machine {
            cpus: Cpus::new(&mm, nodes, cpus),
            swap_at: disk_pages.saturating_mul(mm.blocks().into()),
            mm,
            queue: Queue::default(),
            tasks: Vec::new(),
            threads: Vec::new(),
            kswapds: (0..nodes).map(Kswapd::new).collect(),
            zswap: ZswapWorker::default(),
            processes: Vec::new(),
            groups: Vec::new(),
            files,
            segments,
            lacks,
            waiters: Waiters::default(),
            disks,
            log,
            reclaiming: 0,
            nodes,
            now: 0,
            interval: interval.max(1),
            sampled: None,
            next_sample: 0,
            until: 0,
            sampled_processes: Vec::new(),
            interval_ends: Vec::new(),
            panicked: false,
        };
        machine.queue.push(0, Event::Sample);
        machine.queue.push(STAT_INTERVAL, Event::Refresh);
        if memory.generation.flushed_stats {
            machine.queue.push(FLUSH_TIME, Event::Flush);
        }
        for node in 0..nodes {
            machine.start_kernel_task(Kind::Kswapd(node), node as u32);
        }
        machine.start_kernel_task(Kind::Flusher, 0);
        if machine.mm.has_zswap_worker() {
            machine.start_kernel_task(Kind::Zswap, 0);
        }
        program.processes.into_iter().for_each(|process| machine.add_process(process));
        machine
    }

    /// Lets time pass up to `until`, in nanoseconds since the beginning. A further call with a later time
    /// continues the run.
    ///
    /// The sink gets a sample at time 0, after every interval, and at the end. With each sample but the first
    /// it gets the intervals since the sample before. `progress` gets the time, at each sample and now and
    /// then in between, and says whether to go on. A run that stops takes a last sample at that time.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn run(
        &mut self,
        until: u64,
        sink: &mut dyn Sink,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<End, WriteError> {
        self.until = until;
        let instances = self.processes.iter().map(|process| process.instance);
        self.sampled_processes = Sample::processes_of(instances, until / self.interval);
        let mut entries = 0u32;
        while self.queue.next_at() < until
            && let Some((now, happening)) = self.queue.pop()
        {
            debug_assert!(now >= self.now, "time went back from {} to {now}", self.now);
            self.now = now;
            self.mm.advance(now);
            let look = match happening {
                Event::Sample => {
                    self.sample(sink)?;
                    self.next_sample = now.saturating_add(self.interval);
                    self.queue.push(self.next_sample, Event::Sample);
                    true
                }
                _ => {
                    self.happen(happening);
                    entries = entries.wrapping_add(1);
                    entries.is_multiple_of(LOOK)
                }
            };
            if self.mm.is_exhausted() || self.panicked || (look && progress(now).is_break()) {
                self.sample(sink)?;
                return Ok(End::Stopped(now));
            }
        }
        self.now = until;
        self.sample(sink)?;
        Ok(End::Complete)
    }

    /// Compares the whole state with recounts: memory as [`Mm::check`] does, and the accounts of every thread
    /// with the time that it has lived.
    ///
    /// # Errors
    /// Says what does not agree.
    pub fn check(&self) -> Result<(), String> {
        self.mm.check()?;
        for task in &self.tasks {
            let Kind::Thread(thread) = task.kind else { continue };
            let Thread { spent, started, .. } = &self.threads[thread];
            let lived = task.at.saturating_sub(*started);
            let accounted = measure::total(spent);
            if task.state != State::New && lived > 0 && accounted != lived {
                return Err(format!(
                    "{accounted} ns of thread {thread} are accounted for; it lived {lived} ns"
                ));
            }
        }
        Ok(())
    }

    /// The first segment that cannot be made, and why.
    pub fn lacks(&self) -> Option<(&str, Lack)> {
        self.lacks.as_ref().map(|(name, lack)| (name.as_str(), *lack))
    }

    /// Pages that hold page tables of other programs.
    pub fn others_pgtables(&self) -> u64 {
        self.mm.others_pgtables.len() as u64
    }

    /// [`Mm::huge_pages`]
    pub fn huge_pages(&self) -> HugePages {
        self.mm.huge_pages()
    }

    /// [`Mm::is_exhausted`]
    pub fn is_exhausted(&self) -> bool {
        self.mm.is_exhausted()
    }

    /// Keeps exact books on evicted pages from now on, which [`Machine::returns`] reads. Call it before the
    /// run.
    pub fn follow_evictions(&mut self) {
        self.mm.follow_evictions();
    }

    /// Pages that were evicted and came back up to the last sample, by actor and intervals. There are none
    /// without [`Machine::follow_evictions`].
    pub fn returns(&self) -> Vec<Return> {
        let end = |interval: u32| self.interval_ends.get(interval as usize).copied();
        let named = |((number, evicted, returned), pages)| {
            let process = self.processes.iter().find(|process| process.number == number)?;
            let actor = process.name.clone();
            Some(Return { actor, evicted: end(evicted)?, returned: end(returned)?, pages })
        };
        self.mm.returns().filter_map(named).collect()
    }

    fn happen(&mut self, happening: Event) {
        let now = self.now;
        match happening {
            Event::Sample => {}
            Event::Refresh => {
                self.mm.refresh_cpu_vm_stats();
                self.queue.push(now.saturating_add(STAT_INTERVAL), Event::Refresh);
            }
            Event::Flush => {
                self.mm.flush_stats();
                self.queue.push(now.saturating_add(FLUSH_TIME), Event::Flush);
            }
            Event::Run(task) => self.run_task(task),
            Event::Timer { task, sleep } => {
                if self.tasks[task].sleep == sleep {
                    self.wake(task);
                }
            }
            Event::OffCpu { task, sleep } => {
                if self.tasks[task].sleep == sleep {
                    self.cpus.set(task, 0);
                }
            }
            Event::Submit(io) => {
                let (disk, io) = self.route(io);
                if let Some(at) = self.disks[disk].submit(&io, now) {
                    self.queue.push(at, Event::Served(disk));
                }
            }
            Event::Served(disk) => {
                let queue = &mut self.queue;
                let complete = |id, at| queue.push(at, Event::Complete(id));
                if let Some(at) = self.disks[disk].served(now, complete) {
                    self.queue.push(at, Event::Served(disk));
                }
            }
            Event::Complete(id) => {
                self.mm.complete(id, now);
                self.tell(now);
            }
            Event::Wake(event) => {
                if let Some(tasks) = self.waiters.take(event) {
                    tasks.iter().for_each(|&task| self.wake(task));
                    self.waiters.recycle(tasks);
                }
            }
            Event::Stage { process, stage } => self.wake_stage(process, stage),
            Event::Start(process) => self.start(process),
            Event::Stop(process) => self.stop(process),
        }
    }

    /// The device that a request goes to, and the request with its place on that device.
    fn route(&self, io: Io) -> (usize, Io) {
        match io.device {
            Device::Disk => (0, io),
            Device::Swap if self.disks.len() > 1 => (1, io),
            Device::Swap => (0, Io { start: io.start.saturating_add(self.swap_at), ..io }),
        }
    }

    /// Ends the run, as nobody is left who may be killed.
    fn panic(&mut self) {
        self.panicked = true;
        let what = "Kernel panic - not syncing: System is deadlocked on memory";
        self.log.add(self.now, EventKind::Error, what.to_owned(), None);
    }

    /// Enters the requests and wake-ups that a call at time `at` has produced into the queue.
    fn tell(&mut self, at: u64) {
        for io in self.mm.take_io() {
            self.queue.push(at, Event::Submit(io));
        }
        for event in self.mm.take_events() {
            self.queue.push(at, Event::Wake(event));
        }
    }

    /// Gives the sink the events up to now, a sample, and the intervals since the sample before. There is
    /// never a second sample of the same time.
    fn sample(&mut self, sink: &mut dyn Sink) -> Result<(), WriteError> {
        let now = self.now;
        for event in self.log.take(now) {
            sink.event(&event)?;
        }
        let from = match self.sampled {
            Some(last) if last == now => return Ok(()),
            last => last,
        };
        self.sampled = Some(now);
        sink.sample(&self.counters())?;
        self.settle();
        if let Some(from) = from {
            self.count_held();
            let rows: Vec<_> = self.groups.iter_mut().map(|group| group.take(from, now)).collect();
            sink.intervals(&rows)?;
            self.interval_ends.push(now);
            self.mm.end_interval();
        }
        Ok(())
    }

    /// Counts what each process holds, in the group of its first thread: a process whose threads are in
    /// several groups counts once.
    fn count_held(&mut self) {
        for process in &self.processes {
            if let Some(first) = self.threads.get(process.threads.start).filter(|_| process.alive > 0) {
                self.groups[first.group].hold(self.mm.held(process.number));
            }
        }
    }

    /// The kernel's counters.
    fn counters(&self) -> Sample {
        let node = |node: usize| NodeSample {
            id: node as u32,
            meminfo: self.mm.node_meminfo(node),
            numastat: self.mm.numastat(node),
        };
        let total = u64::from(self.mm.swap.total);
        // The lab gives zram the priority that distributions give it, too.
        let (path, priority) = match self.mm.zram {
            Some(_) => ("/dev/zram0", ZRAM_PRIORITY),
            None if self.disks.len() > 1 => ("/dev/sdb", -2),
            None => ("/dev/sda2", -2),
        };
        let swap = (total > 0).then(|| SwapArea {
            path: path.to_owned(),
            kind: "partition".into(),
            size: self.mm.page.of(total),
            used: self.mm.page.of(total - self.mm.swap.free()),
            priority,
        });
        Sample {
            at: self.now,
            meminfo: self.mm.meminfo(),
            vmstat: self.mm.vmstat(),
            zones: self.mm.zoneinfo(),
            nodes: (0..self.nodes).map(node).collect(),
            swaps: swap.into_iter().collect(),
            processes: self
                .sampled_processes
                .iter()
                .filter_map(|&index| self.process_sample(index))
                .collect(),
            segments: self.segments.iter().flatten().filter_map(|&of| self.mm.shm_segment(of)).collect(),
            ..Sample::default()
        }
    }
}
