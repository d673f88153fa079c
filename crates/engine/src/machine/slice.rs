//! One slice of a thread: operations back to back in the thread's own time.

use std::hash::BuildHasher as _;

use lotsfree_run::Spent;
use lotsfree_units::Bytes;
use lotsfree_workload::{FileId, Op, PACE_GRAIN_NS, RegionId};
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::cpus::Stretch;
use super::files::{File, Files};
use super::measure::{Failure, Group, Log};
use super::task::{Stages, Thread};
use crate::mm::readahead::RaState;
use crate::mm::{CopyRange, Cx, Done, Fadvise, Fault, Lock, Madvise, Mm, Read, SetPool, Stop, Wait, Write};

/// Numbers of regions are indexes; larger ones are errors of the stream.
const MOST_REGIONS: u32 = 1 << 20;
/// Nanoseconds that each operation is charged after [`PATIENCE`] operations in a row took no time. Without
/// the charge, a stream of nothing but marks would never let time pass.
const TIMELESS: u64 = 100;
/// Operations in a row that may take no time: more than any actor needs between two that take time.
const PATIENCE: u64 = 4096;

/// Why a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The slice has no time left, or other tasks or devices must be told something.
    Slice,
    /// The thread sleeps until a time that it chose itself.
    Sleep(u64),
    /// The call waits, and is polled again.
    Wait(Wait),
    /// The thread waits until a stage of its process has been signalled `times` times.
    Await { stage: u32, times: u32 },
    /// The thread has signalled a stage.
    Signal(u32),
    /// There is no memory for the call.
    OutOfMemory,
    /// The process gets a `SIGBUS`.
    Bus,
    /// The stream has ended.
    Exit,
}

/// A call into the memory that may have to wait.
#[derive(Debug)]
pub(super) enum Call {
    Fault(Fault),
    Madvise(Madvise),
    Lock(Lock),
    Pool(SetPool),
    File(FileId, FileCall),
}

#[derive(Debug)]
pub(super) enum FileCall {
    Read(Read),
    Write(Write),
    /// The call, and the file that is written.
    Copy(CopyRange, FileId),
    Sync,
    Fadvise(Fadvise),
}

/// A thread on a CPU, and everything that its operations affect.
pub(super) struct Slice<'a> {
    pub(super) mm: &'a mut Mm,
    pub(super) files: &'a mut Files,
    /// The objects of the program's segments.
    pub(super) segments: &'a [Option<u32>],
    pub(super) thread: &'a mut Thread,
    pub(super) group: &'a mut Group,
    pub(super) stages: &'a mut Stages,
    /// Minor and major faults of the process.
    pub(super) faults: &'a mut [u64; 2],
    pub(super) log: &'a mut Log,
    pub(super) cx: Cx,
    /// The thread's time.
    pub(super) at: u64,
    /// Operations begin before this time.
    pub(super) horizon: u64,
    pub(super) stretch: Stretch,
    /// User, system and idle time of the slice. The rest of the elapsed time counts as ready, but without a
    /// CPU.
    pub(super) spent: Spent,
}

impl Slice<'_> {
    /// Executes operations until the horizon, or until one blocks.
    pub(super) fn run(&mut self) -> After {
        let touch = self.mm.costs.touch;
        let touch_elapsed = self.stretch.elapsed(touch);
        if std::mem::take(&mut self.thread.slept) {
            self.awoken();
        }
        loop {
            if self.at >= self.horizon {
                return After::Slice;
            }
            if self.thread.call.is_some() {
                match self.poll() {
                    Some(after) => return after,
                    None => continue,
                }
            }
            let Some(&op) = self.thread.ops.get(self.thread.cursor) else {
                if !self.refill() {
                    return After::Exit;
                }
                continue;
            };
            let after = match op {
                Op::Touch { region, page, write } => {
                    if !self.touch_mapped(region, touch, touch_elapsed) {
                        self.thread.call = Some(Call::Fault(Fault::new(region, page, write)));
                    }
                    continue;
                }
                Op::Begin => self.next(|thread, at| thread.begin(at)),
                Op::Arrive => self.next(|thread, at| thread.begin(thread.date.unwrap_or(at).min(at))),
                Op::Done => {
                    match self.thread.begun.take() {
                        // One that failed counts only as an error.
                        Some(_) if std::mem::take(&mut self.thread.failed) => {}
                        Some(begun) => {
                            self.group.operations += 1;
                            self.group.latency.record(self.at - begun);
                        }
                        None => self.fail(Failure::Unbegun),
                    }
                    self.next(|_, _| {})
                }
                Op::Compute { ns } => self.compute(ns),
                Op::Sleep { ns } => self.sleep_until(self.at.saturating_add(ns)),
                Op::SleepUntil { at } => self.sleep_until(at),
                Op::Pace { ns } => {
                    let date = self.thread.date.unwrap_or(self.at).saturating_add(ns);
                    self.thread.date = Some(date);
                    let due = date.saturating_sub(PACE_GRAIN_NS);
                    if due > self.at { self.sleep_until(date) } else { self.next(|_, _| {}) }
                }
                Op::Rest { from, until } => {
                    if (from..until).contains(&self.at) {
                        let slept = until - self.at;
                        self.thread.date = self.thread.date.map(|date| date.saturating_add(slept));
                        self.sleep_until(until)
                    } else {
                        self.next(|_, _| {})
                    }
                }
                Op::Mark { mark } => {
                    self.mark(mark);
                    self.next(|_, _| {})
                }
                Op::Signal { stage } => {
                    self.thread.cursor += 1;
                    if self.stages.signal(stage) {
                        Some(After::Signal(stage))
                    } else {
                        self.fail(Failure::Bad);
                        None
                    }
                }
                Op::Await { stage, times } => {
                    if self.stages.reached(stage, times) {
                        self.next(|_, _| {})
                    } else {
                        Some(After::Await { stage, times })
                    }
                }
                Op::Read { file, offset, len, how } => {
                    self.begin(file, FileCall::Read(Read::new(offset, len, how)))
                }
                Op::Write { file, offset, len, how } => {
                    self.begin_write(file, offset, len, file, FileCall::Write(Write::new(offset, len, how)))
                }
                Op::CopyRange { from, to, offset, len } => {
                    self.begin_write(to, offset, len, from, FileCall::Copy(CopyRange::new(offset, len), to))
                }
                Op::Sync { file } => self.begin(file, FileCall::Sync),
                Op::Advise { file, offset, len, advice } => {
                    self.begin(file, FileCall::Fadvise(Fadvise::new(offset, len.into(), advice)))
                }
                Op::MapAnon { region, pages } if valid(region).is_ok() => {
                    self.lock(Lock::mmap(region, pages))
                }
                Op::MapFile { region, file, pages, shared } => self.map_file(region, file, pages, shared),
                Op::Attach { region, segment } => {
                    let object = self.segments.get(segment.0 as usize).copied().flatten();
                    match object.filter(|_| valid(region).is_ok()) {
                        Some(object) => self.lock(Lock::attach(region, object)),
                        None => self.called(Err(Stop::Bad)),
                    }
                }
                Op::Lock { region } => self.lock(Lock::mlock(region)),
                Op::LockAll => self.lock(Lock::mlockall()),
                Op::SetPool { pages } => {
                    self.thread.call = Some(Call::Pool(SetPool::new(pages)));
                    None
                }
                Op::AdviseRegion { region, advice } => {
                    self.thread.call = Some(Call::Madvise(Madvise::new(region, advice)));
                    None
                }
                _ => {
                    self.cx.start = self.at;
                    let done = self.call(op);
                    self.called(done)
                }
            };
            if let Some(after) = after {
                return after;
            }
        }
    }

    /// Executes the next touches of a region, as many as fit into the slice and need nothing but the page
    /// table. Returns `false` if even the first needs more.
    #[inline]
    fn touch_mapped(&mut self, region: RegionId, cost: u64, elapsed: u64) -> bool {
        let (horizon, mut at) = (self.horizon, self.at);
        let ops = self.thread.ops.get(self.thread.cursor..).unwrap_or_default();
        let touches = ops.iter().map_while(|&op| match op {
            Op::Touch { region: same, page, write } if same == region && at < horizon => {
                at += elapsed;
                Some((page, write))
            }
            _ => None,
        });
        let touched = self.mm.touch_mapped(self.cx.process, region, touches) as u64;
        if touched == 0 {
            return false;
        }
        self.thread.cursor += touched as usize;
        self.spent.user += touched * cost;
        self.at += touched * elapsed;
        true
    }

    /// Fetches the stream's next operations; `false` if it has ended.
    fn refill(&mut self) -> bool {
        let thread = &mut *self.thread;
        let passed = thread.ops.len() as u64;
        thread.timeless = if thread.filled_at == self.at { thread.timeless + passed } else { 0 };
        if thread.timeless >= PATIENCE {
            let charge = passed.saturating_mul(TIMELESS);
            self.spent.user += charge;
            self.at += self.stretch.elapsed(charge);
            self.group.fail(Failure::Timeless, self.at, self.log);
        }
        let thread = &mut *self.thread;
        thread.filled_at = self.at;
        thread.cursor = 0;
        thread.ops.clear();
        thread.stream.fill(&mut thread.ops);
        let blocks = self.mm.blocks();
        if blocks > 1 {
            thread.ops.iter_mut().for_each(|op| *op = op.in_pages_of(blocks));
        }
        self.mm.look_ahead_at(self.cx.process, &thread.ops);
        !thread.ops.is_empty()
    }

    /// Goes on to the next operation.
    #[inline]
    fn next(&mut self, with: impl FnOnce(&mut Thread, u64)) -> Option<After> {
        with(self.thread, self.at);
        self.thread.cursor += 1;
        None
    }

    fn fail(&mut self, failure: Failure) {
        self.thread.failed = true;
        self.group.fail(failure, self.at, self.log);
    }

    fn mark(&mut self, mark: u32) {
        match self.thread.marks.get(mark as usize) {
            Some(name) => {
                let faults = self.faults.iter().sum();
                let memory = self.mm.memory_of(self.cx.process);
                self.log.mark(self.at, name.clone(), &self.group.actor, faults, memory);
            }
            None => self.fail(Failure::Bad),
        }
    }

    /// Sleeps, within the slice if the thread runs again before the slice ends.
    #[inline]
    fn sleep_until(&mut self, until: u64) -> Option<After> {
        self.thread.cursor += 1;
        if until <= self.at {
            return None;
        }
        let until = until.saturating_add(self.late());
        let runs = until.saturating_add(self.mm.costs.wakeup);
        if runs > self.horizon {
            self.thread.slept = true;
            return Some(After::Sleep(until));
        }
        self.spent.idle += until - self.at;
        self.at = runs;
        self.awoken();
        None
    }

    /// How much later than asked the sleep that begins now ends: the slack on average. Timers within each
    /// other's slack expire at one interrupt, so it is anything from nothing to twice that.
    fn late(&self) -> u64 {
        let slack = self.mm.costs.slack;
        if slack == 0 {
            return 0;
        }
        let draw = FxBuildHasher.hash_one((self.at, self.thread.task)) >> 32;
        (draw * (2 * slack + 1)) >> 32
    }

    /// Accounts for what a sleep costs the thread that has slept.
    fn awoken(&mut self) {
        let cpu = self.mm.costs.sleep;
        self.spent.system += cpu;
        self.at += self.stretch.elapsed(cpu);
    }

    /// Uses the CPU until the work is done or the slice ends.
    #[inline]
    fn compute(&mut self, ns: u64) -> Option<After> {
        let left = self.thread.left.take().unwrap_or(ns);
        let now = left.min(self.stretch.cpu(self.horizon - self.at));
        self.spent.user += now;
        self.at += self.stretch.elapsed(now);
        if now < left {
            self.thread.left = Some(left - now);
            return Some(After::Slice);
        }
        self.thread.cursor += 1;
        None
    }

    /// Accounts the cost of a call into the memory model, and decides whether the thread goes on.
    fn called(&mut self, done: Done) -> Option<After> {
        if done == Err(Stop::Bad) && self.cx.spent == 0 {
            self.cx.spent = self.mm.costs.syscall.max(1);
        }
        let cpu = std::mem::take(&mut self.cx.spent);
        let reclaim = std::mem::take(&mut self.cx.reclaim).min(cpu);
        self.spent.system += cpu - reclaim;
        self.spent.reclaim += reclaim;
        self.at += self.stretch.elapsed(cpu);
        let [minor, major] =
            [&mut self.cx.minor, &mut self.cx.major].map(|faults| u64::from(std::mem::take(faults)));
        self.group.minor_faults += minor;
        self.group.major_faults += major;
        let [all_minor, all_major] = &mut *self.faults;
        *all_minor += minor;
        *all_major += major;
        self.group.took(std::mem::take(&mut self.cx.pages));
        match done {
            Ok(()) => {}
            Err(Stop::Wait(wait)) => return Some(After::Wait(wait)),
            Err(Stop::OutOfMemory) => return Some(After::OutOfMemory),
            Err(Stop::Bus) => return Some(After::Bus),
            Err(Stop::Refused) => self.fail(Failure::Refused),
            Err(Stop::Memlock) => self.fail(Failure::Memlock),
            Err(Stop::Pool) => self.fail(Failure::Pool),
            Err(Stop::Bad) => self.fail(Failure::Bad),
        }
        self.thread.call = None;
        self.thread.cursor += 1;
        self.mm.has_news().then_some(After::Slice)
    }

    /// Begins a call that maps or locks memory.
    fn lock(&mut self, lock: Lock) -> Option<After> {
        self.thread.call = Some(Call::Lock(lock));
        None
    }

    /// Begins a call that maps a file, if there is room on the disk for what may be written to it.
    fn map_file(&mut self, region: RegionId, file: FileId, pages: u32, shared: bool) -> Option<After> {
        if shared && !self.files.reserve(file, u64::from(pages)) {
            let done = self.disk_full();
            return self.called(done);
        }
        match self.files.get(file).filter(|_| valid(region).is_ok()) {
            Some(file) => self.lock(Lock::map_file(region, file.object, pages, shared)),
            None => self.called(Err(Stop::Bad)),
        }
    }

    /// Begins a call on a file.
    fn begin(&mut self, file: FileId, call: FileCall) -> Option<After> {
        self.thread.call = Some(Call::File(file, call));
        None
    }

    /// Begins a call on `file` that writes this range of `target`, if there is room for that on the disk.
    fn begin_write(
        &mut self,
        target: FileId,
        offset: u64,
        len: u32,
        file: FileId,
        call: FileCall,
    ) -> Option<After> {
        let end = self.mm.page.pages_for(Bytes(offset.saturating_add(u64::from(len))));
        if self.files.reserve(target, end) {
            self.begin(file, call)
        } else {
            let done = self.disk_full();
            self.called(done)
        }
    }

    /// Gives the next call what is left of the slice.
    fn allot(&mut self) {
        let left = self.stretch.cpu(self.horizon - self.at);
        self.cx.slice = left.clamp(super::SHORTEST_CALL_NS, super::LONGEST_CALL_NS);
    }

    /// Polls the thread's call, which has just begun or has waited.
    #[inline(never)]
    fn poll(&mut self) -> Option<After> {
        self.cx.start = self.at;
        if let Some(Call::File(..) | Call::Madvise(_) | Call::Lock(_) | Call::Pool(_)) = self.thread.call {
            self.allot();
        }
        let Thread { call, ra, .. } = &mut *self.thread;
        let done = match call.as_mut()? {
            Call::Fault(fault) => {
                let done = fault.poll(self.mm, &mut self.cx);
                if done.is_ok() {
                    let touch = self.mm.costs.touch;
                    self.spent.user += touch;
                    self.at += self.stretch.elapsed(touch);
                }
                done
            }
            Call::Madvise(madvise) => madvise.poll(self.mm, &mut self.cx),
            Call::Lock(lock) => lock.poll(self.mm, &mut self.cx),
            Call::Pool(set) => set.poll(self.mm, &mut self.cx),
            Call::File(id, call) => {
                let (mm, cx) = (&mut *self.mm, &mut self.cx);
                match (self.files.get(*id), call) {
                    (None, _) => Err(Stop::Bad),
                    (Some(file), FileCall::Read(read)) => {
                        read.poll(mm, cx, file.object, readahead_state(ra, *id, file))
                    }
                    (Some(file), FileCall::Write(write)) => write.poll(mm, cx, file.object),
                    (Some(file), FileCall::Copy(copy, to)) => match self.files.get(*to) {
                        None => Err(Stop::Bad),
                        Some(target) => {
                            let ra = readahead_state(ra, *id, file);
                            copy.poll(mm, cx, file.object, target.object, ra)
                        }
                    },
                    (Some(file), FileCall::Sync) => mm.sync(cx, file.object),
                    (Some(file), FileCall::Fadvise(fadvise)) => {
                        fadvise.poll(mm, cx, file.object, readahead_state(ra, *id, file))
                    }
                }
            }
        };
        self.called(done)
    }

    /// Makes a call that does not wait.
    #[inline(never)]
    fn call(&mut self, op: Op) -> Done {
        self.allot();
        let cx = &mut self.cx;
        match op {
            Op::Unmap { region } => self.mm.unmap(cx, region),
            Op::Create { file, pages } => {
                let object = match self.files.get(file) {
                    Some(old) => self.mm.truncate(cx, old.object, pages),
                    None => {
                        cx.spend(self.mm.costs.syscall);
                        self.mm.create(cx, pages)
                    }
                };
                self.files.create(file, object);
                Ok(())
            }
            Op::Delete { file } => {
                let object = self.files.get(file).ok_or(Stop::Bad)?.object;
                self.mm.delete_file(cx, object)?;
                self.files.remove(file);
                self.thread.ra.remove(&file.0);
                Ok(())
            }
            // The others are no calls, or need a host.
            _ => Err(Stop::Bad),
        }
    }

    /// Counts `ENOSPC`, after which the thread goes on.
    fn disk_full(&mut self) -> Done {
        self.cx.spend(self.mm.costs.syscall);
        self.fail(Failure::Full);
        Ok(())
    }
}

/// A thread's readahead state of a file, which begins anew with a new version of the file.
fn readahead_state(states: &mut FxHashMap<u32, (u64, RaState)>, id: FileId, file: File) -> &mut RaState {
    let (version, ra) = states.entry(id.0).or_default();
    if *version != file.version {
        (*version, *ra) = (file.version, RaState::default());
    }
    ra
}

/// A region's number, if it can be an index.
fn valid(region: RegionId) -> Result<RegionId, Stop> {
    if region.0 < MOST_REGIONS { Ok(region) } else { Err(Stop::Bad) }
}
