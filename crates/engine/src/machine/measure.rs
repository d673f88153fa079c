//! Measurements between two samples, and the log of events.

use std::sync::Arc;

use lotsfree_run::{Event, EventKind, Histogram, Interval, Spent, StageMemory, Toll};

use crate::mm::{Turnover, WaitReason};

/// The threads of one role of one actor.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) actor: Arc<str>,
    role: Arc<str>,
    pub(super) operations: u64,
    errors: u64,
    pub(super) latency: Histogram,
    pub(super) spent: Spent,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    toll: Toll,
    /// Kinds of errors that have already been recorded as events.
    seen: [bool; Failure::ALL],
}

/// Ways in which an operation can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The file, region or page does not exist, or the number is out of range.
    Bad,
    /// No space on disk.
    Full,
    /// The kernel refuses memory.
    Refused,
    /// The process may not lock that much.
    Memlock,
    /// The pool of huge pages is smaller than it was to be.
    Pool,
    /// `Done` without `Begin`.
    Unbegun,
    /// Not a failure, but recorded like one: operations that take no time.
    Timeless,
}

impl Failure {
    const ALL: usize = 7;

    fn describe(self) -> (EventKind, &'static str) {
        match self {
            Failure::Bad => (
                EventKind::Error,
                "an operation was invalid, or named a file, a region or a page that does not exist",
            ),
            Failure::Full => (EventKind::Full, "no space on disk (ENOSPC)"),
            Failure::Refused => (EventKind::Error, "the kernel refuses memory that was asked for (ENOMEM)"),
            Failure::Memlock => (
                EventKind::Error,
                "its RLIMIT_MEMLOCK does not allow it to lock that much (mlock: ENOMEM, mmap: EAGAIN)",
            ),
            Failure::Pool => {
                (EventKind::Error, "vm.nr_hugepages: the pool got fewer pages than it was to have")
            }
            Failure::Unbegun => (EventKind::Error, "a request ended that had not begun"),
            Failure::Timeless => (EventKind::Note, "operations that take no time are charged 100 ns each"),
        }
    }
}

impl Group {
    pub(super) fn new(actor: Arc<str>, role: &str) -> Self {
        Group {
            actor,
            role: role.into(),
            operations: 0,
            errors: 0,
            latency: Histogram::default(),
            spent: Spent::default(),
            minor_faults: 0,
            major_faults: 0,
            toll: Toll::default(),
            seen: [false; Failure::ALL],
        }
    }

    /// Whether this is the group of a role of an actor.
    pub(super) fn is(&self, actor: &str, role: &str) -> bool {
        *self.actor == *actor && *self.role == *role
    }

    /// Counts a failed operation, and records the first of its kind.
    #[cold]
    pub(super) fn fail(&mut self, failure: Failure, at: u64, log: &mut Log) {
        if failure != Failure::Timeless {
            self.errors += 1;
        }
        if !std::mem::replace(&mut self.seen[failure as usize], true) {
            let (kind, what) = failure.describe();
            log.add(at, kind, what.to_owned(), Some(&self.actor));
        }
    }

    /// Counts the pages that a call took and gave back.
    pub(super) fn took(&mut self, pages: Turnover) {
        let Turnover { allocated, returned, refaults } = pages;
        self.toll.allocated += u64::from(allocated);
        self.toll.returned += u64::from(returned);
        self.toll.refaults += u64::from(refaults);
    }

    /// Counts the time of a wait that the threads owe to the eviction of a page.
    pub(super) fn waited(&mut self, why: WaitReason, ns: u64) {
        match why {
            WaitReason::Refault => self.toll.thrashing += ns,
            WaitReason::SwapIn => self.toll.swap_in += ns,
            _ => {}
        }
    }

    /// Adds pages that a process of the threads holds when the interval ends.
    pub(super) fn hold(&mut self, pages: u64) {
        self.toll.held += pages;
    }

    /// Returns the row for the time since the last sample, and starts counting anew.
    pub(super) fn take(&mut self, from: u64, at: u64) -> Interval {
        Interval {
            from,
            at,
            actor: self.actor.clone(),
            role: self.role.clone(),
            operations: std::mem::take(&mut self.operations),
            errors: std::mem::take(&mut self.errors),
            latency: std::mem::take(&mut self.latency),
            spent: std::mem::take(&mut self.spent),
            major_faults: std::mem::take(&mut self.major_faults),
            minor_faults: std::mem::take(&mut self.minor_faults),
            toll: std::mem::take(&mut self.toll),
        }
    }
}

/// Adds the time of a wait to the account that its reason belongs to.
pub(super) fn waited(spent: &mut Spent, why: WaitReason, ns: u64) {
    let place = match why {
        WaitReason::Io | WaitReason::Refault | WaitReason::SwapIn => &mut spent.io,
        WaitReason::Reclaim => &mut spent.reclaim,
        WaitReason::Dirty => &mut spent.throttled,
        WaitReason::Idle => &mut spent.idle,
        WaitReason::Yield => &mut spent.runnable,
    };
    *place += ns;
}

/// The sum of all accounts of a thread, in nanoseconds.
pub(super) fn total(spent: &Spent) -> u64 {
    let Spent { user, system, reclaim, io, throttled, runnable, idle } = *spent;
    user + system + reclaim + io + throttled + runnable + idle
}

/// Adds one thread's time to that of others.
pub(super) fn add(to: &mut Spent, from: &Spent) {
    let Spent { user, system, reclaim, io, throttled, runnable, idle } = *from;
    to.user += user;
    to.system += system;
    to.reclaim += reclaim;
    to.io += io;
    to.throttled += throttled;
    to.runnable += runnable;
    to.idle += idle;
}

/// Events that were not yet given to the sink. Threads run ahead of each other and therefore enter them out
/// of order.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: Vec<Event>,
    /// Events beyond [`MOST_EVENTS`], which were not kept.
    left_out: u64,
}

/// The most events that wait for the sink: a stream of nothing but marks must not fill a disk.
const MOST_EVENTS: usize = 1 << 16;

impl Log {
    pub(super) fn add(&mut self, at: u64, kind: EventKind, what: String, actor: Option<&str>) {
        self.push(Event::new(at, kind, what, actor.map(str::to_owned)));
    }

    /// Records that a thread has reached a stage. Its process has had `faults` page faults by then.
    pub(super) fn mark(&mut self, at: u64, stage: String, actor: &str, faults: u64, memory: StageMemory) {
        let event = Event::new(at, EventKind::Mark, stage, Some(actor.to_owned()));
        self.push(Event { faults: Some(faults), memory: Some(memory), ..event });
    }

    fn push(&mut self, event: Event) {
        if self.events.len() < MOST_EVENTS {
            self.events.push(event);
        } else {
            self.left_out += 1;
        }
    }

    /// Takes the events up to a time, in order; those of the same time come as they were entered.
    pub(super) fn take(&mut self, until: u64) -> Vec<Event> {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let what = format!("{left_out} events more than can be kept between two samples");
            self.events.push(Event::new(until, EventKind::Note, what, None));
        }
        self.events.sort_by_key(|event| event.at);
        let later = self.events.partition_point(|event| event.at <= until);
        let rest = self.events.split_off(later);
        std::mem::replace(&mut self.events, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_in_the_order_of_time() {
        let mut log = Log::default();
        for (at, what) in [(5, "c"), (2, "a"), (9, "e"), (5, "d"), (2, "b")] {
            log.add(at, EventKind::Note, what.to_owned(), None);
        }
        let told = |events: Vec<Event>| events.into_iter().map(|event| event.what).collect::<String>();
        assert_eq!(told(log.take(5)), "abcd");
        assert_eq!(told(log.take(9)), "e");
    }

    #[test]
    fn too_many_events_are_counted() {
        let mut log = Log::default();
        (0..MOST_EVENTS + 5).for_each(|at| log.add(at as u64, EventKind::Mark, String::new(), None));
        let told = log.take(u64::MAX);
        assert_eq!(told.len(), MOST_EVENTS + 1);
        assert_eq!(told[MOST_EVENTS].what, "5 events more than can be kept between two samples");
        assert!(log.take(u64::MAX).is_empty());
    }

    #[test]
    fn a_kind_of_failure_is_counted_always_and_recorded_once() {
        let mut log = Log::default();
        let mut group = Group::new("a".into(), "r");
        (0..3).for_each(|at| group.fail(Failure::Full, at, &mut log));
        group.fail(Failure::Bad, 3, &mut log);
        assert_eq!(
            log.take(9).iter().map(|e| (e.at, e.kind)).collect::<Vec<_>>(),
            [(0, EventKind::Full), (3, EventKind::Error)]
        );
        assert_eq!((group.take(0, 9).errors, group.take(9, 9).errors), (4, 0));
    }
}
