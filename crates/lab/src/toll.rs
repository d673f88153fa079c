//! [`TollKeeper`]: what memory costs the actors of a run and what they take, by the kernel's tracepoints.
//!
//! A thread watches the kernel ([`lotsfree_watch`]) from the start of the run on, in the run's intervals, and
//! passes on a row for each actor. The coordinator adds them to the rows of the agents, who cannot know that.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lotsfree_run::Interval;
use lotsfree_watch::{Watch, WatchError};

use crate::error::{LabError, calling};

/// The longest time without a look at what the coordinator says.
const LOOK: Duration = Duration::from_millis(100);

/// What the thread is told.
enum Told {
    /// The process of an actor.
    Process(u32, String),
    /// `CLOCK_MONOTONIC` at the start of the run, and the length of its intervals.
    Begin(u64, u64),
}

/// Watches what memory costs the actors, until it is dropped.
pub(crate) struct TollKeeper {
    tell: Option<Sender<Told>>,
    rows: Receiver<Vec<Interval>>,
    thread: Option<JoinHandle<Result<(), WatchError>>>,
}

impl TollKeeper {
    /// Begins to watch with a budget, a part of one CPU.
    ///
    /// # Errors
    /// If the kernel has no tracepoints for this user.
    pub(crate) fn start(budget: f64) -> Result<Self, LabError> {
        let (tell, told) = channel();
        let (pass, rows) = channel();
        let (report, begun) = channel();
        let watch = move || {
            let watch = match Watch::begin(budget) {
                Ok(watch) => watch,
                Err(error) => {
                    let _ = report.send(Err(error));
                    return Ok(());
                }
            };
            // The coordinator waits for this.
            let _ = report.send(Ok(()));
            Watching { watch, told, pass, actors: HashSet::new() }.run()
        };
        let thread = std::thread::Builder::new().name("toll".to_owned()).spawn(watch);
        let thread = Some(thread.map_err(calling("thread"))?);
        let keeper = TollKeeper { tell: Some(tell), rows, thread };
        match begun.recv() {
            Ok(Ok(())) => Ok(keeper),
            Ok(Err(error)) => Err(LabError::Refused(format!("what memory costs cannot be seen: {error}"))),
            Err(_) => Err(LabError::Refused("what memory costs cannot be seen".to_owned())),
        }
    }

    /// Says which process an actor is.
    pub(crate) fn process(&self, id: u32, actor: &str) {
        self.say(Told::Process(id, actor.to_owned()));
    }

    /// Says when the run begins, in nanoseconds of `CLOCK_MONOTONIC`, and how long its intervals are.
    pub(crate) fn begin(&self, begin: u64, interval: u64) {
        self.say(Told::Begin(begin, interval));
    }

    fn say(&self, told: Told) {
        if let Some(tell) = &self.tell {
            // If the thread has ended, `rows` says so.
            let _ = tell.send(told);
        }
    }

    /// The rows of intervals that have ended since this was last asked, after at most `patience`.
    ///
    /// # Errors
    /// If the kernel takes its tracepoints away.
    pub(crate) fn rows(&mut self, patience: Duration) -> Result<Vec<Interval>, LabError> {
        let mut rows = match self.rows.recv_timeout(patience) {
            Ok(rows) => rows,
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => {
                let ended = self.thread.take().map(JoinHandle::join);
                return match ended {
                    Some(Ok(Err(error))) => Err(LabError::Refused(error.to_string())),
                    _ => Ok(Vec::new()),
                };
            }
        };
        rows.extend(self.rows.try_iter().flatten());
        Ok(rows)
    }
}

impl Drop for TollKeeper {
    fn drop(&mut self) {
        self.tell = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's own.
struct Watching {
    watch: Watch,
    told: Receiver<Told>,
    pass: Sender<Vec<Interval>>,
    actors: HashSet<String>,
}

impl Watching {
    fn run(mut self) -> Result<(), WatchError> {
        let Some((begin, interval)) = self.beginning() else { return Ok(()) };
        self.watch.until(begin)?;
        self.watch.close();
        self.watch.take();
        self.watch.expect(Duration::from_nanos(interval));
        let mut end = begin;
        loop {
            end += interval;
            while lotsfree_sys::monotonic() < end {
                self.watch.until(end.min(lotsfree_sys::monotonic() + LOOK.as_nanos() as u64))?;
                if self.listen().is_none() {
                    return Ok(());
                }
            }
            self.watch.close();
            let mut rows: Vec<Interval> = self.watch.take().into_iter().flatten().collect();
            rows.retain(|row| self.actors.contains(&*row.actor));
            for row in &mut rows {
                (row.from, row.at) = (row.from.saturating_sub(begin), row.at.saturating_sub(begin));
            }
            if self.pass.send(rows).is_err() {
                return Ok(());
            }
        }
    }

    /// Waits until the beginning of the run is known; `None` if there will be none.
    fn beginning(&mut self) -> Option<(u64, u64)> {
        loop {
            match self.told.recv().ok()? {
                Told::Process(id, actor) => self.process(id, actor),
                Told::Begin(begin, interval) => return Some((begin, interval.max(1))),
            }
        }
    }

    /// Takes what the coordinator has said meanwhile; `None` once it has ended.
    fn listen(&mut self) -> Option<()> {
        loop {
            match self.told.try_recv() {
                Ok(Told::Process(id, actor)) => self.process(id, actor),
                Ok(Told::Begin(..)) => {}
                Err(TryRecvError::Empty) => return Some(()),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
    }

    fn process(&mut self, id: u32, actor: String) {
        self.watch.call(id, &actor);
        self.actors.insert(actor);
    }
}
