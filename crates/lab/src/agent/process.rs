//! [`Process`]: the state that the threads of a process share, and the reports about them.

use std::fs::File;
use std::io::{self, Read as _};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;

use lotsfree_run::wire::Sender;
use lotsfree_run::{Event, EventKind, Histogram, Interval, Sink as _, Spent, StageMemory, Toll};
use lotsfree_scenario::Case;
use lotsfree_settings::TRANSPARENT_HUGEPAGE_ENABLED;
use lotsfree_sys::{Policy, Region, SharedMemory, Usage};
use lotsfree_units::PageSize;
use lotsfree_workload as workload;
use lotsfree_workload::RegionId;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::clock::Clock;
use super::command;
use super::files::Versions;
use super::tally::{Account, Tally};
use super::thread::Worker;
use super::{AgentError, Order, Segment, kernel, privileges};
use crate::command::Exec;

/// Numbers of regions and stages are indices of tables. A number beyond this is an error of the stream.
const MOST_REGIONS: usize = 1 << 20;
/// Timer slack of the threads, in nanoseconds; the kernel's default is 50 000.
const SLACK: Option<NonZeroU64> = NonZeroU64::new(1000);
/// Size of the stacks of threads that execute operations, or listen to agents; they need little.
pub(crate) const STACK: usize = 128 << 10;

/// State that all threads of a process share.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) files: PathBuf,
    pub(super) versions: Versions,
    pub(super) regions: Regions,
    pub(super) stages: Stages,
    pub(super) segments: Vec<Attachable>,
    pub(super) commands: Vec<Exec>,
    /// Requests that take at least this many nanoseconds are slow.
    pub(super) slow: u64,
    /// Page faults of the process before it was started.
    pub(super) faults: OnceLock<u64>,
    /// How the process has its memory.
    pub(super) memory: workload::Memory,
    /// Whether anonymous regions are kept to base pages, as the model's are, because the scenario does not
    /// set transparent huge pages.
    pub(super) base_pages: bool,
    /// With compressed swap: bytes of each anonymous page that do not compress, and the seed of their
    /// contents.
    pub(super) contents: Option<(usize, u64)>,
}

/// Bytes that do not compress in a page of which zram's `lzo-rle` makes this number of bytes: LZO1X looks
/// for a match at every 32nd part of the bytes that it has found none in, and has to see a run twice, so
/// that it copies a 16th more than is random; then come some 12 bytes for the lengths (liblzo2 2.10: 1454
/// bytes of 1365 random ones, 2213 of 2048).
fn random_bytes(object_bytes: u32) -> usize {
    (object_bytes.saturating_sub(12) as usize * 16 / 17).max(8)
}

/// The mappings of a process, by the numbers of its streams.
#[derive(Default)]
pub(super) struct Regions {
    table: RwLock<Vec<Option<Arc<Region>>>>,
    /// Counts replacements and removals, so that a thread knows when a region that it has looked up may be
    /// outdated.
    epoch: AtomicU64,
}

impl Regions {
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    pub(super) fn get(&self, region: RegionId) -> Option<Arc<Region>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(region.0 as usize)?.clone()
    }

    /// Enters a region. If one of that number exists, it is replaced atomically, so that no thread finds none
    /// in between.
    pub(super) fn put(&self, region: RegionId, mapped: Region) {
        let place = region.0 as usize;
        if place >= MOST_REGIONS {
            return;
        }
        let old = {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            if table.len() <= place {
                table.resize(place + 1, None);
            }
            table.get_mut(place).and_then(|entry| entry.replace(Arc::new(mapped)))
        };
        self.epoch.fetch_add(1, Ordering::Release);
        // The old region is unmapped without holding the lock, because unmapping takes long.
        drop(old);
    }

    /// Removes a region, which is unmapped once no thread uses it. Returns whether there was one.
    pub(super) fn remove(&self, region: RegionId) -> bool {
        let taken = {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            table.get_mut(region.0 as usize).and_then(Option::take)
        };
        self.epoch.fetch_add(1, Ordering::Release);
        taken.is_some()
    }
}

/// The stages that threads of the process signal and await.
#[derive(Default)]
pub(super) struct Stages {
    counts: Mutex<Vec<u32>>,
    changed: Condvar,
}

impl Stages {
    fn counts(&self) -> MutexGuard<'_, Vec<u32>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn signal(&self, stage: u32) {
        let mut counts = self.counts();
        let place = stage as usize;
        if place >= MOST_REGIONS {
            return;
        }
        if counts.len() <= place {
            counts.resize(place + 1, 0);
        }
        if let Some(count) = counts.get_mut(place) {
            *count += 1;
        }
        self.changed.notify_all();
    }

    pub(super) fn wait(&self, stage: u32, times: u32) {
        let reached = |counts: &Vec<u32>| counts.get(stage as usize).copied().unwrap_or(0) >= times;
        let mut counts = self.counts();
        while !reached(&counts) {
            counts = self.changed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A shared segment that can be attached.
pub(super) enum Attachable {
    SharedMemory(SharedMemory, usize),
    Files(Vec<File>, usize),
}

impl Attachable {
    fn new(segment: &Segment, bytes: usize) -> Result<Self, AgentError> {
        Ok(match segment {
            Segment::SharedMemory(id) => Attachable::SharedMemory(SharedMemory(*id), bytes),
            Segment::Files { paths, granule } => {
                let open = |path: &PathBuf| {
                    let file = File::options().read(true).write(true).open(path);
                    file.map_err(|error| kernel(path.display().to_string(), error))
                };
                let files = paths.iter().map(open).collect::<Result<_, _>>()?;
                Attachable::Files(files, usize::try_from(*granule).unwrap_or(usize::MAX))
            }
        })
    }

    pub(super) fn attach(&self) -> io::Result<Region> {
        match self {
            Attachable::SharedMemory(segment, bytes) => Region::segment(*segment, *bytes),
            Attachable::Files(files, granule) => Region::granules(files, *granule),
        }
    }
}

/// A thread that runs, with its tally.
struct Running {
    role: &'static str,
    tally: Arc<Mutex<Tally>>,
    tid: i32,
    handle: JoinHandle<()>,
    /// The thread's account at the last report.
    before: Account,
}

/// One process of a program, ready to begin.
pub(super) struct Process {
    shared: Arc<Shared>,
    threads: Vec<workload::Thread>,
    /// The CPUs of each thread; empty: any.
    cpus: Vec<Vec<u32>>,
    start: u64,
    stop: u64,
    interval: u64,
}

impl Process {
    pub(super) fn new(case: &Case, order: Order) -> Result<Self, AgentError> {
        let program = case.program().map_err(|errors| AgentError::Case(errors.to_string()))?;
        let workload::Program { processes, segments, .. } = program;
        let number = processes.len();
        let process = processes.into_iter().nth(order.process);
        let missing = || AgentError::Case(format!("it has {number} processes, and none {}", order.process));
        let workload::Process { name, policy, memory, node, start, stop, threads, .. } =
            process.ok_or_else(missing)?;
        lotsfree_sys::set_policy(&kernel_policy(policy)).map_err(|error| kernel("set_mempolicy", error))?;
        privileges::limit(&memory.limits).map_err(|error| kernel("setrlimit", error))?;
        let segments = (segments.iter().zip(&order.segments))
            .map(|(spec, segment)| Attachable::new(segment, spec.pages as usize * 4096))
            .collect::<Result<_, _>>()?;
        let nodes = order.cpus.len();
        let cpus_of = |thread: usize| {
            let node =
                node.map_or_else(|| (order.threads_before + thread) % nodes.max(1), |node| node as usize);
            order.cpus.get(node).cloned().unwrap_or_default()
        };
        let actor = case.actors.iter().find(|actor| actor.name == name);
        let executes = actor.is_some_and(|actor| actor.kind.executes());
        let shared = Shared {
            name,
            files: order.files,
            versions: Versions::default(),
            regions: Regions::default(),
            stages: Stages::default(),
            segments,
            commands: if executes { order.commands } else { Vec::new() },
            slow: order.slow,
            faults: OnceLock::new(),
            memory,
            base_pages: case.tuning.get(TRANSPARENT_HUGEPAGE_ENABLED).is_none(),
            contents: case.machine.swap.compresses().then(|| {
                let seed = case.seed.wrapping_add(order.process as u64) << 32;
                (random_bytes(case.machine.swap.object_bytes(PageSize::X86)), seed)
            }),
        };
        Ok(Process {
            shared: Arc::new(shared),
            cpus: (0..threads.len()).map(cpus_of).collect(),
            threads,
            start,
            stop: stop.unwrap_or(u64::MAX).min(case.duration.ns()),
            interval: case.interval.ns().max(1),
        })
    }

    /// Whether it may lock memory whatever its limit says.
    pub(super) fn may_lock_all(&self) -> bool {
        self.shared.memory.limits.memlock.is_none()
    }

    /// Whether it executes commands.
    pub(super) fn executes(&self) -> bool {
        !self.shared.commands.is_empty()
    }

    /// Runs the threads and reports at each multiple of the interval, until all have ended or time is over.
    pub(super) fn run(self, clock: Clock, mut sender: Sender<File>) -> Result<(), AgentError> {
        let Process { shared, threads, cpus, start, stop, interval } = self;
        clock.sleep_until(start);
        let _ = shared.faults.set(faults_so_far());
        event(&mut sender, clock.now(), EventKind::Start, "started", &shared.name);
        if shared.memory.locked
            && let Err(error) = lotsfree_sys::lock_all(false)
        {
            let what = format!("mlockall: {error}; it goes on without");
            event(&mut sender, clock.now(), EventKind::Error, &what, &shared.name);
        }
        let mut running = Vec::new();
        for (thread, cpus) in threads.into_iter().zip(cpus) {
            running.push(begin(&shared, clock, thread, cpus)?);
        }
        let mut at = start;
        loop {
            let from = at;
            at = (at / interval + 1).saturating_mul(interval).min(stop);
            wait_for(&running, clock, at);
            let ended = running.iter().all(|thread| thread.handle.is_finished());
            let now = clock.now();
            report(&shared, &mut running, from, at.min(now), now, &mut sender);
            if ended || at >= stop {
                let what = if ended { "ended" } else { "its time was over" };
                event(&mut sender, now.min(stop), EventKind::Exit, what, &shared.name);
                // Exit without waiting for threads that are in a system call.
                std::process::exit(0);
            }
        }
    }
}

/// Page faults of this process.
pub(super) fn faults_so_far() -> u64 {
    Usage::of_process().map_or(0, |used| used.minor_faults.saturating_add(used.major_faults))
}

/// Memory of this process (`/proc/self/statm`). Reading it takes no memory, which would be a page fault of
/// the next stage.
pub(super) fn memory_now() -> Option<StageMemory> {
    let mut text = [0; 128];
    let length = File::open("/proc/self/statm").ok()?.read(&mut text).ok()?;
    let mut pages = str::from_utf8(text.get(..length)?).ok()?.split_ascii_whitespace();
    let mut next = || pages.next()?.parse::<u64>().ok();
    let kib = |pages: u64| pages * (lotsfree_sys::page_size() as u64 >> 10);
    Some(StageMemory { size: kib(next()?), resident: kib(next()?) })
}

/// Sleeps until a time of the run, or until all threads have ended.
fn wait_for(running: &[Running], clock: Clock, at: u64) {
    const LOOK: u64 = 20_000_000;
    loop {
        let now = clock.now();
        if now >= at || running.iter().all(|thread| thread.handle.is_finished()) {
            return;
        }
        clock.sleep_until(at.min(now + LOOK.max((at - now) / 2)));
    }
}

fn event(sender: &mut Sender<File>, at: u64, kind: EventKind, what: &str, actor: &str) {
    // An error means that nobody listens any more: the parent has ended, and the kernel kills this process.
    let _ = sender.event(&Event::new(at, kind, what, Some(actor.to_owned())));
}

fn begin(
    shared: &Arc<Shared>,
    clock: Clock,
    thread: workload::Thread,
    cpus: Vec<u32>,
) -> Result<Running, AgentError> {
    let workload::Thread { role, marks, stream } = thread;
    let tally = Arc::new(Mutex::new(Tally::default()));
    let worker = Worker::new(Arc::clone(shared), Arc::clone(&tally), clock, marks);
    let (tell, told) = std::sync::mpsc::channel();
    let work = move || {
        bind(&cpus);
        let _ = rustix::thread::set_current_timer_slack(SLACK);
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let _ = tell.send((tid, Account::of(tid).unwrap_or_default()));
        worker.run(stream);
    };
    let handle = std::thread::Builder::new().stack_size(STACK).spawn(work);
    let handle = handle.map_err(|error| kernel("start of a thread", error))?;
    let (tid, before) = told.recv().unwrap_or_default();
    Ok(Running { role, tally, tid, handle, before })
}

/// Keeps this thread on some CPUs. If the kernel refuses, the thread may run on any CPU.
fn bind(cpus: &[u32]) {
    let mut set = CpuSet::new();
    cpus.iter().map(|cpu| *cpu as usize).filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    if set.count() > 0 {
        let _ = sched_setaffinity(None, &set);
    }
}

/// Reports what the threads did since the last report, in one row per role.
fn report(shared: &Shared, running: &mut [Running], from: u64, at: u64, now: u64, sender: &mut Sender<File>) {
    let mut rows: Vec<Interval> = Vec::new();
    let mut events = Vec::new();
    for thread in running {
        let mut tally = thread.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let own = tally.last.or_else(|| Account::of(thread.tid));
        let account = own.map_or(thread.before, |own| {
            let running = tally.command.map(command::account).unwrap_or_default();
            own.and(&tally.commands).and(&running)
        });
        let alive = tally.last.is_none();
        let moved = account.since(&thread.before);
        thread.before = account;
        let idle = tally.take_idle(now);
        let Account { user, system, runnable, minor_faults, major_faults } = moved;
        // The rest of the time is reported as I/O: the kernel does not tell apart waiting for a device, in
        // reclaim or at the dirty limit.
        let life = if alive { now.saturating_sub(from) } else { 0 };
        let io = life.saturating_sub(user + system + runnable + idle);
        let spent = Spent { user, system, reclaim: 0, io, throttled: 0, runnable, idle };
        let (operations, errors) = (std::mem::take(&mut tally.operations), std::mem::take(&mut tally.errors));
        let latency: Histogram = std::mem::take(&mut tally.latency);
        events.append(&mut tally.events);
        events.extend(tally.take_slow().iter().map(|slow| slow.event(&shared.name, thread.role)));
        drop(tally);
        if let Some(row) = rows.iter_mut().find(|row| *row.role == *thread.role) {
            row.operations += operations;
            row.errors += errors;
            row.latency.merge(&latency);
            row.spent.add(&spent);
            row.major_faults += major_faults;
            row.minor_faults += minor_faults;
        } else {
            rows.push(Interval {
                from,
                at,
                actor: shared.name.as_str().into(),
                role: thread.role.into(),
                operations,
                errors,
                latency,
                spent,
                major_faults,
                minor_faults,
                toll: Toll::default(),
            });
        }
    }
    events.sort_by_key(|event| event.at);
    // An error means that nobody listens any more: the parent has ended, and the kernel kills this process.
    let sent = events.iter().try_for_each(|event| sender.event(event)).and_then(|()| sender.intervals(&rows));
    drop(sent);
}

fn kernel_policy(policy: workload::Policy) -> Policy {
    match policy {
        workload::Policy::Local => Policy::Default,
        workload::Policy::Preferred(node) => Policy::Preferred(node),
        workload::Policy::Bind(nodes) => Policy::Bind(nodes),
        workload::Policy::Interleave(nodes) => Policy::Interleave(nodes),
    }
}
