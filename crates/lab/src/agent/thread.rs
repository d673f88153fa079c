//! [`Worker`]: one thread, which executes a stream operation by operation.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lotsfree_run::{Event, EventKind};
use lotsfree_settings::NR_HUGEPAGES;
use lotsfree_sys::{Buffer, Hint, Region, Usage, thread_cpu_time};
use lotsfree_workload::{
    Advice, COPY_BUFFER, CommandId, FileId, How, Huge, Memory, Op, PACE_GRAIN_NS, RegionId, SegmentId, Stream,
};
use rustix::fs::Advice as FileAdvice;
use rustix::io::Errno;

use super::clock::Clock;
use super::command;
use super::files::{self, Open};
use super::process::{Shared, faults_so_far, memory_now};
use super::tally::{Account, Slow, Tally, ns};
use crate::here;

const PAGE: u64 = 4096;
/// Nanoseconds for which a spin checks only the clock, before it checks the CPU time that it used.
const SPIN: u64 = 20_000;
/// Nanoseconds for which a reading of the thread's usage is good enough: a tenth of the time that makes a
/// request slow.
const STALE: u64 = 5_000_000;
/// `ENOENT` and `EINVAL`, for operations of a stream that are wrong.
const NO_SUCH: i32 = 2;
const INVALID: i32 = 22;

/// One thread of an actor.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) tally: Arc<Mutex<Tally>>,
    pub(super) clock: Clock,
    pub(super) marks: Vec<String>,
    /// Regions of the process that this thread has looked up, as they were at `epoch`.
    regions: Vec<Option<Arc<Region>>>,
    epoch: u64,
    open: Open,
    buffer: Option<Buffer>,
    begun: Option<u64>,
    failed: bool,
    date: Option<u64>,
    /// The thread's usage when it was last read, and the time of that reading.
    used: Usage,
    looked: u64,
}

type Done = Result<(), Failure>;

/// A call that failed.
struct Failure {
    what: &'static str,
    error: io::Error,
}

/// Names the call that failed.
fn at<T>(what: &'static str) -> impl FnOnce(io::Error) -> Result<T, Failure> {
    move |error| Err(Failure { what, error })
}

fn errno(what: &'static str, errno: i32) -> Failure {
    Failure { what, error: io::Error::from_raw_os_error(errno) }
}

/// Writes `vm.nr_hugepages`, and reads how many the pool has then.
fn set_pool(pages: u64) -> Done {
    let path = here::pool();
    lotsfree_storage::set(&path, &pages.to_string()).or_else(at(NR_HUGEPAGES))?;
    let has = std::fs::read_to_string(&path).or_else(at(NR_HUGEPAGES))?;
    if has.trim().parse::<u64>().is_ok_and(|has| has >= pages) {
        return Ok(());
    }
    let error = io::Error::other("the pool got fewer pages than it was to have");
    Err(Failure { what: NR_HUGEPAGES, error })
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        tally: Arc<Mutex<Tally>>,
        clock: Clock,
        marks: Vec<String>,
    ) -> Self {
        Worker {
            shared,
            tally,
            clock,
            marks,
            regions: Vec::new(),
            epoch: 0,
            open: Open::default(),
            buffer: None,
            begun: None,
            failed: false,
            date: None,
            used: Usage::default(),
            looked: 0,
        }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a stream to its end.
    pub(super) fn run(mut self, mut stream: Box<dyn Stream>) {
        let mut ops = Vec::new();
        self.used = Usage::of_thread().unwrap_or_default();
        loop {
            ops.clear();
            stream.fill(&mut ops);
            if ops.is_empty() {
                break;
            }
            for &op in &ops {
                if let Err(failure) = self.execute(op) {
                    self.fail(&failure);
                }
            }
        }
        self.regions.clear();
        let account = Account::of(rustix::thread::gettid().as_raw_nonzero().get());
        self.tally().last = account;
    }

    #[inline]
    fn execute(&mut self, op: Op) -> Done {
        match op {
            Op::Touch { region, page, write } => return self.touch(region, page, write),
            Op::Begin => {
                let now = self.clock.now();
                self.look(now);
                self.begin(now);
            }
            Op::Arrive => {
                let now = self.clock.now();
                self.look(now);
                self.begin(self.date.unwrap_or(now).min(now));
            }
            Op::Done => return self.done(),
            Op::Compute { ns } => self.compute(ns),
            Op::Sleep { ns } => self.sleep_until(self.clock.now().saturating_add(ns)),
            Op::SleepUntil { at } => self.sleep_until(at),
            Op::Pace { ns } => {
                let date = self.date.unwrap_or_else(|| self.clock.now()).saturating_add(ns);
                self.date = Some(date);
                if date > self.clock.now().saturating_add(PACE_GRAIN_NS) {
                    self.sleep_until(date);
                }
            }
            Op::Rest { from, until } => {
                let now = self.clock.now();
                if (from..until).contains(&now) {
                    self.date = self.date.map(|date| date.saturating_add(until - now));
                    self.sleep_until(until);
                }
            }
            Op::Signal { stage } => self.shared.stages.signal(stage),
            Op::Await { stage, times } => self.wait(stage, times),
            Op::Mark { mark } => self.mark(mark),
            other => return self.call(other),
        }
        Ok(())
    }

    #[inline]
    fn touch(&mut self, region: RegionId, page: u32, write: bool) -> Done {
        let epoch = self.shared.regions.epoch();
        if epoch != self.epoch {
            self.regions.clear();
            self.epoch = epoch;
        }
        let place = region.0 as usize;
        let touched = match self.regions.get(place) {
            Some(Some(mapped)) => mapped.touch(page as usize, write),
            _ => self.find(region)?.touch(page as usize, write),
        };
        if touched { Ok(()) } else { Err(errno("access beyond the end of a region", INVALID)) }
    }

    /// Looks up a region, and remembers it.
    #[cold]
    fn find(&mut self, region: RegionId) -> Result<Arc<Region>, Failure> {
        let found = self.shared.regions.get(region).ok_or_else(|| errno("access to a region", NO_SUCH))?;
        let place = region.0 as usize;
        if self.regions.len() <= place {
            self.regions.resize(place + 1, None);
        }
        if let Some(entry) = self.regions.get_mut(place) {
            *entry = Some(Arc::clone(&found));
        }
        Ok(found)
    }

    /// Reads the thread's usage if the last reading is too old. To ask the kernel at every request would cost
    /// more than many requests do.
    #[inline]
    fn look(&mut self, now: u64) {
        if now.saturating_sub(self.looked) >= STALE {
            self.looked = now;
            self.used = Usage::of_thread().unwrap_or(self.used);
        }
    }

    fn begin(&mut self, at: u64) {
        self.begun = Some(at);
        self.failed = false;
    }

    /// Ends a request. If one of its operations failed, it counts only as an error.
    fn done(&mut self) -> Done {
        let now = self.clock.now();
        let failed = std::mem::take(&mut self.failed);
        let Some(begun) = self.begun.take() else {
            return Err(errno("a request ended that had not begun", INVALID));
        };
        if failed {
            return Ok(());
        }
        let elapsed = now.saturating_sub(begun);
        // A command has no time that would be too long for it.
        let slow = (elapsed >= self.shared.slow && self.shared.commands.is_empty()).then(|| {
            let used = Usage::of_thread().unwrap_or(self.used);
            let before = std::mem::replace(&mut self.used, used);
            self.looked = now;
            Slow {
                at: now,
                elapsed,
                user: ns(used.user.saturating_sub(before.user)),
                system: ns(used.system.saturating_sub(before.system)),
                major_faults: used.major_faults.saturating_sub(before.major_faults),
            }
        });
        let mut tally = self.tally();
        tally.operations += 1;
        tally.latency.record(elapsed);
        if let Some(slow) = slow {
            tally.slow(slow);
        }
        Ok(())
    }

    /// Uses CPU time, not only time: what other threads take away meanwhile is made up for.
    fn compute(&self, ns: u64) {
        let begin = thread_cpu_time();
        let wanted = Duration::from_nanos(ns);
        loop {
            let used = thread_cpu_time().saturating_sub(begin);
            let Some(left) = wanted.checked_sub(used).filter(|left| !left.is_zero()) else { return };
            let until = Clock::monotonic() + (left.as_nanos() as u64).min(SPIN.max(ns / 4));
            while Clock::monotonic() < until {
                std::hint::spin_loop();
            }
        }
    }

    fn sleep_until(&mut self, at: u64) {
        let now = self.clock.now();
        if at <= now {
            return;
        }
        self.release();
        self.tally().begin_sleep(now);
        self.clock.sleep_until(at);
        let now = self.clock.now();
        self.tally().end_sleep(now);
    }

    fn wait(&mut self, stage: u32, times: u32) {
        self.release();
        self.tally().begin_sleep(self.clock.now());
        self.shared.stages.wait(stage, times);
        let now = self.clock.now();
        self.tally().end_sleep(now);
    }

    /// Forgets the regions, so that a sleeping thread does not keep a region that another thread unmaps.
    fn release(&mut self) {
        self.regions.clear();
    }

    fn mark(&self, mark: u32) {
        let name = self.marks.get(mark as usize).cloned().unwrap_or_default();
        let actor = Some(self.shared.name.clone());
        let before = self.shared.faults.get().copied().unwrap_or(0);
        let faults = Some(faults_so_far().saturating_sub(before));
        let event = Event::new(self.clock.now(), EventKind::Mark, name, actor);
        self.tally().event(Event { faults, memory: memory_now(), ..event });
    }

    #[cold]
    fn fail(&mut self, failure: &Failure) {
        self.failed = true;
        let Failure { what, error } = failure;
        let at = self.clock.now();
        let kind = match error.kind() {
            io::ErrorKind::StorageFull => EventKind::Full,
            _ => EventKind::Error,
        };
        let actor = Some(self.shared.name.clone());
        let what_then = format!("{what}: {error}");
        let mut tally = self.tally();
        if tally.fail(what, error.raw_os_error().unwrap_or(0)) {
            tally.event(Event::new(at, kind, what_then, actor));
        }
    }

    /// Executes an operation that is a system call of its own.
    fn call(&mut self, op: Op) -> Done {
        match op {
            Op::MapAnon { region, pages } => {
                let Memory { populate, huge, .. } = self.shared.memory;
                let mapped = Region::anonymous_with(bytes(pages), populate, huge == Huge::Pool);
                let mapped = mapped.or_else(at("mmap"))?;
                let hint = match huge {
                    Huge::No if self.shared.base_pages => Some(Hint::NoHugePage),
                    Huge::Transparent => Some(Hint::HugePage),
                    Huge::No | Huge::Pool => None,
                };
                // A kernel without huge pages refuses the advice, and does not need it.
                let _ = hint.map(|hint| mapped.advise(hint));
                let mapped = match self.shared.contents {
                    Some((random, seed)) => {
                        mapped.filled(random, seed.wrapping_add(u64::from(region.0) << 20))
                    }
                    None => mapped,
                };
                self.shared.regions.put(region, mapped);
            }
            Op::MapFile { region, file, pages, shared } => {
                let populate = self.shared.memory.populate;
                let file = self.file("open", file, How::Buffered)?;
                let mapped =
                    Region::file(file, bytes(pages), shared, populate).or_else(at("mmap of a file"))?;
                self.shared.regions.put(region, mapped);
            }
            Op::Attach { region, segment } => self.attach(region, segment)?,
            Op::Unmap { region } => {
                let there = self.shared.regions.remove(region);
                there.then_some(()).ok_or_else(|| errno("munmap", NO_SUCH))?;
            }
            Op::Exec { command } => self.exec(command)?,
            Op::Lock { region } => self.find(region)?.lock().or_else(at("mlock"))?,
            Op::LockAll => lotsfree_sys::lock_all(false).or_else(at("mlockall"))?,
            Op::SetPool { pages } => set_pool(pages)?,
            Op::AdviseRegion { region, advice } => {
                self.find(region)?.advise(hint(advice)).or_else(at("madvise"))?;
            }
            Op::Create { file, pages } => self.create(file, pages)?,
            Op::Delete { file } => {
                self.open.close(file);
                self.shared.versions.replaced(file);
                std::fs::remove_file(files::path(&self.shared.files, file)).or_else(at("unlink"))?;
            }
            Op::Read { file, offset, len, how } => {
                let mut buffer = self.buffer(len)?;
                let read = self.transfer("read", file, how, len, |file, from, to| {
                    let part = buffer.as_mut().get_mut(from..to).unwrap_or_default();
                    file.read_at(part, offset + from as u64)
                });
                self.buffer = Some(buffer);
                read?;
            }
            Op::Write { file, offset, len, how } => {
                let buffer = self.buffer(len)?;
                let written = self.transfer("write", file, how, len, |file, from, to| {
                    let part = buffer.as_ref().get(from..to).unwrap_or_default();
                    file.write_at(part, offset + from as u64)
                });
                self.buffer = Some(buffer);
                written?;
            }
            Op::CopyRange { from, to, offset, len } => self.copy(from, to, offset, len)?,
            Op::Sync { file } => {
                self.file("open", file, How::Buffered)?.sync_data().or_else(at("fdatasync"))?;
            }
            Op::Advise { file, offset, len, advice } => {
                let advice = file_advice(advice).ok_or_else(|| errno("fadvise", INVALID))?;
                let file = self.file("open", file, How::Buffered)?;
                let len = std::num::NonZeroU64::new(u64::from(len));
                rustix::fs::fadvise(file, offset, len, advice)
                    .map_err(io::Error::from)
                    .or_else(at("fadvise"))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn attach(&self, region: RegionId, segment: SegmentId) -> Done {
        let found = self.shared.segments.get(segment.0 as usize);
        let segment = found.ok_or_else(|| errno("attach to a segment", NO_SUCH))?;
        let mapped = segment.attach().or_else(at("shmat"))?;
        self.shared.regions.put(region, mapped);
        Ok(())
    }

    fn exec(&mut self, command: CommandId) -> Done {
        let shared = Arc::clone(&self.shared);
        let found = shared.commands.get(command.0 as usize);
        let found = found.ok_or_else(|| errno("execution of a command", NO_SUCH))?;
        command::execute(found, &self.tally).or_else(at("command"))
    }

    fn create(&mut self, file: FileId, pages: u32) -> Done {
        let path = files::path(&self.shared.files, file);
        let created = std::fs::File::create(path).or_else(at("open with O_CREAT and O_TRUNC"))?;
        created.set_len(u64::from(pages) * PAGE).or_else(at("ftruncate"))
    }

    /// Copies as `cp` does: by reading and writing where the kernel has no `copy_file_range`.
    fn copy(&mut self, from: FileId, to: FileId, offset: u64, len: u32) -> Done {
        const WHAT: &str = "copy_file_range";
        // The copy of the descriptor keeps the readahead state of the open file.
        let source = self.file(WHAT, from, How::Buffered)?.try_clone().or_else(at(WHAT))?;
        let target = self.file(WHAT, to, How::Buffered)?;
        let end = offset + u64::from(len);
        let (mut read, mut written) = (offset, offset);
        while written < end {
            let left = (end - written) as usize;
            match rustix::fs::copy_file_range(&source, Some(&mut read), target, Some(&mut written), left) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::NOSYS) => return self.copy_by_hand(from, to, written, end),
                Err(error) => return Err(Failure { what: WHAT, error: error.into() }),
            }
        }
        Ok(())
    }

    /// Copies the bytes from `offset` to `end` through a buffer.
    fn copy_by_hand(&mut self, from: FileId, to: FileId, mut offset: u64, end: u64) -> Done {
        while offset < end {
            let (how, len) = (How::Buffered, (end - offset).min(COPY_BUFFER.into()) as u32);
            self.call(Op::Read { file: from, offset, len, how })?;
            self.call(Op::Write { file: to, offset, len, how })?;
            offset += u64::from(len);
        }
        Ok(())
    }

    fn file(&mut self, what: &'static str, file: FileId, how: How) -> Result<&std::fs::File, Failure> {
        let Worker { open, shared, .. } = self;
        open.get(&shared.files, &shared.versions, file, how).map_err(|error| Failure { what, error })
    }

    /// A buffer of at least `len` bytes, taken out of the worker.
    fn buffer(&mut self, len: u32) -> Result<Buffer, Failure> {
        match self.buffer.take().filter(|buffer| buffer.as_ref().len() >= len as usize) {
            Some(buffer) => Ok(buffer),
            None => Buffer::new(len as usize).or_else(at("mmap of a buffer")),
        }
    }

    /// Reads or writes until all bytes are done, or the file ends.
    fn transfer(
        &mut self,
        what: &'static str,
        file: FileId,
        how: How,
        len: u32,
        mut call: impl FnMut(&std::fs::File, usize, usize) -> io::Result<usize>,
    ) -> Done {
        let file = self.file(what, file, how)?;
        let (mut from, to) = (0, len as usize);
        while from < to {
            match call(file, from, to) {
                Ok(0) => return Ok(()),
                Ok(count) => from += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure { what, error }),
            }
        }
        Ok(())
    }
}

fn bytes(pages: u32) -> usize {
    pages as usize * PAGE as usize
}

/// `None` for what only regions of memory can be advised.
fn file_advice(advice: Advice) -> Option<FileAdvice> {
    Some(match advice {
        Advice::Normal => FileAdvice::Normal,
        Advice::Sequential => FileAdvice::Sequential,
        Advice::Random => FileAdvice::Random,
        Advice::WillNeed => FileAdvice::WillNeed,
        Advice::DontNeed => FileAdvice::DontNeed,
        Advice::HugePage | Advice::NoHugePage => return None,
    })
}

fn hint(advice: Advice) -> Hint {
    match advice {
        Advice::Normal => Hint::Normal,
        Advice::Sequential => Hint::Sequential,
        Advice::Random => Hint::Random,
        Advice::WillNeed => Hint::WillNeed,
        Advice::DontNeed => Hint::DontNeed,
        Advice::HugePage => Hint::HugePage,
        Advice::NoHugePage => Hint::NoHugePage,
    }
}
