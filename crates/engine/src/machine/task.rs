//! Tasks: what runs on the CPUs, and what it waits for.

use std::ops::Range;

use lotsfree_run::Spent;
use lotsfree_workload::{Memory, Op, Stream};
use rustc_hash::FxHashMap;

use super::slice::Call;
use crate::mm::readahead::RaState;
use crate::mm::{WaitChannel, WaitReason};

/// The kinds of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A thread of the program, by its number.
    Thread(usize),
    /// `kswapd` of a node.
    Kswapd(usize),
    /// The flusher.
    Flusher,
    /// zswap's worker.
    Zswap,
}

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not started.
    New,
    /// On a CPU or ready for one: one entry in the queue says at which time it runs.
    Ready,
    /// Asleep until an event, a time, or a stage of its process.
    Asleep {
        /// The event of the memory that wakes it.
        channel: Option<WaitChannel>,
        /// The reason, which decides where the time is accounted.
        why: WaitReason,
    },
    /// Ended.
    Dead,
}

/// Anything that runs on a CPU.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) kind: Kind,
    pub(super) state: State,
    /// Its number in the memory model.
    pub(super) number: usize,
    /// Number of its current sleep: a timer that was set for an earlier sleep wakes nobody.
    pub(super) sleep: u64,
    /// Its own time, up to which everything is accounted for.
    pub(super) at: u64,
    /// kswapd: CPU time that it may use, for having slept, before it shares CPUs with others
    /// ([`Cpus::sleeper_credit`](super::cpus::Cpus::sleeper_credit)).
    pub(super) credit: u64,
    /// Whether it is counted among the tasks that require the short lookahead.
    pub(super) in_reclaim: bool,
    /// How many times in a row it has yielded without having used time.
    pub(super) polls: u32,
}

impl Task {
    pub(super) fn new(kind: Kind, number: usize) -> Self {
        Task { kind, state: State::New, number, sleep: 0, at: 0, credit: 0, in_reclaim: false, polls: 0 }
    }
}

/// A thread of the program.
pub(super) struct Thread {
    pub(super) task: usize,
    /// Its process among the machine's.
    pub(super) process: usize,
    /// Its group of measures.
    pub(super) group: usize,
    pub(super) marks: Vec<String>,
    pub(super) stream: Box<dyn Stream>,
    /// Operations that the stream gave, and the index of the next one.
    pub(super) ops: Vec<Op>,
    pub(super) cursor: usize,
    /// The thread's time when it fetched them from the stream.
    pub(super) filled_at: u64,
    /// Operations in a row that took no time, up to then.
    pub(super) timeless: u64,
    /// When its current request began.
    pub(super) begun: Option<u64>,
    /// Whether an operation has failed since it began.
    pub(super) failed: bool,
    /// The date that its last `Pace` set.
    pub(super) date: Option<u64>,
    /// Whether it has slept for some time and not run since.
    pub(super) slept: bool,
    /// Nanoseconds left of the current `Compute`.
    pub(super) left: Option<u64>,
    /// The call into the memory that has begun and not ended.
    pub(super) call: Option<Call>,
    /// Readahead state of the files that it has read, with the version of the file.
    pub(super) ra: FxHashMap<u32, (u64, RaState)>,
    pub(super) started: u64,
    pub(super) spent: Spent,
}

impl Thread {
    /// Begins a request.
    pub(super) fn begin(&mut self, at: u64) {
        self.begun = Some(at);
        self.failed = false;
    }
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Thread")
            .field("task", &self.task)
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

/// An actor.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    /// Its number in the memory model.
    pub(super) number: usize,
    pub(super) oom_score_adj: i32,
    /// Its threads, as indexes into the machine's.
    pub(super) threads: Range<usize>,
    pub(super) alive: usize,
    /// Why it ends, once it is being ended.
    pub(super) dying: Option<Death>,
    pub(super) stages: Stages,
    /// How it has its memory.
    pub(super) memory: Memory,
    /// Which of its actor's processes it is.
    pub(super) instance: u32,
    /// Its minor and its major faults.
    pub(super) faults: [u64; 2],
    /// Tasks that wait for a stage, each with the stage and the number of signals that it waits for, in the
    /// order in which they began to wait.
    pub(super) waiting: Vec<(usize, u32, u32)>,
}

/// Why a process is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    /// Its time is over.
    Stopped,
    /// The OOM killer chose it.
    OomKilled,
    /// It got a `SIGBUS`.
    Bus,
}

/// How often each stage of a process was signalled.
#[derive(Debug, Default)]
pub(super) struct Stages(Vec<u32>);

impl Stages {
    /// The most stages of a process; larger numbers are errors of the stream.
    const MOST: u32 = 1 << 20;

    /// Counts a signal; `false` if there is no such stage.
    pub(super) fn signal(&mut self, stage: u32) -> bool {
        if stage >= Self::MOST {
            return false;
        }
        let index = stage as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = self.0[index].saturating_add(1);
        true
    }

    /// Whether a stage was signalled at least `times` times.
    pub(super) fn reached(&self, stage: u32, times: u32) -> bool {
        self.0.get(stage as usize).copied().unwrap_or(0) >= times
    }
}

/// Tasks that wait for an event, in the order in which they began to wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_channel: FxHashMap<WaitChannel, Vec<usize>>,
    /// Emptied lists, for reuse.
    spare: Vec<Vec<usize>>,
}

impl Waiters {
    pub(super) fn add(&mut self, channel: WaitChannel, task: usize) {
        let spare = &mut self.spare;
        self.by_channel.entry(channel).or_insert_with(|| spare.pop().unwrap_or_default()).push(task);
    }

    /// Removes a task that no longer waits.
    pub(super) fn remove(&mut self, channel: WaitChannel, task: usize) {
        if let Some(tasks) = self.by_channel.get_mut(&channel) {
            tasks.retain(|waiter| *waiter != task);
        }
    }

    /// Removes and returns all tasks that wait for an event. Give the list back with [`Waiters::recycle`].
    pub(super) fn take(&mut self, channel: WaitChannel) -> Option<Vec<usize>> {
        self.by_channel.remove(&channel)
    }

    pub(super) fn recycle(&mut self, mut tasks: Vec<usize>) {
        tasks.clear();
        self.spare.push(tasks);
    }
}
