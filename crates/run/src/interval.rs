//! [`Interval`]: the work of an actor between two samples, and [`Event`]: something that happened at one
//! instant.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// Work of the threads of one role of one actor between two samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Start of the interval, in nanoseconds since the run began.
    pub from: u64,
    /// End of the interval, at which the sample was taken, in nanoseconds since the run began.
    pub at: u64,
    /// The actor's name in the scenario.
    pub actor: Arc<str>,
    /// Role of these threads, such as `reader`.
    pub role: Arc<str>,
    /// Requests that ended in the interval.
    pub operations: u64,
    /// Operations that failed in the interval.
    pub errors: u64,
    /// Durations of the requests that ended in the interval, in nanoseconds.
    pub latency: Histogram,
    /// The time of all these threads together, by use.
    pub spent: Spent,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// Page faults that did not read from a device.
    pub minor_faults: u64,
    /// What memory cost these threads, and what they took of it.
    pub toll: Toll,
}

/// What memory cost threads, and what they took of it. Time that they reclaimed is [`Spent::reclaim`]; the
/// times here are parts of [`Spent::io`] and [`Spent::system`]. Pages are base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toll {
    /// Nanoseconds waiting for pages of files that had been in memory and were evicted.
    pub thrashing: u64,
    /// Nanoseconds waiting for pages to be swapped in.
    pub swap_in: u64,
    /// Nanoseconds compacting memory for their own allocation.
    pub compaction: u64,
    /// Pages read or swapped in again after they were evicted (`workingset_refault`).
    pub refaults: u64,
    /// Pages allocated.
    pub allocated: u64,
    /// Pages that they themselves gave back, by unmapping, truncating or exiting; not by reclaim.
    pub returned: u64,
    /// Pages of their process in memory at the end of the interval that reclaim cannot drop without swap:
    /// anonymous and shared memory. A process whose threads have several roles counts in the row of its
    /// first role only, so that the rows of an actor add up.
    pub held: u64,
}

/// Nanoseconds of threads, by what the threads did or waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// On a CPU, in the program.
    pub user: u64,
    /// On a CPU, in the kernel, without reclaim.
    pub system: u64,
    /// Reclaiming pages for its own allocation (direct reclaim and node reclaim), on a CPU or held back.
    pub reclaim: u64,
    /// Waiting for a device: pages read, swapped in, or synced.
    pub io: u64,
    /// Held back by the dirty limit (`balance_dirty_pages`).
    pub throttled: u64,
    /// Runnable, waiting for a CPU.
    pub runnable: u64,
    /// Sleeping voluntarily.
    pub idle: u64,
}

/// Something that happened at one instant of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds since the run began.
    pub at: u64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Description of the event: the name of the mark, the device that is full.
    pub what: String,
    /// The actor that it happened to; `None` for the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// For a mark: page faults of the actor's process since it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<u64>,
    /// For a mark: memory of the actor's process at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<StageMemory>,
}

impl Event {
    /// An event without what is known of marks alone.
    pub fn new(at: u64, kind: EventKind, what: impl Into<String>, actor: Option<String>) -> Self {
        Event { at, kind, what: what.into(), actor, faults: None, memory: None }
    }
}

/// Memory of a process when it reached a stage, in KiB, as `/proc/PID/status` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageMemory {
    /// What it has mapped.
    #[serde(rename = "VmSize")]
    pub size: u64,
    /// What of it is in memory. Huge pages of the pool are not in it.
    #[serde(rename = "VmRSS")]
    pub resident: u64,
}

/// Kinds of [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// An actor began.
    Start,
    /// An actor ended, by itself or because its time was over.
    Exit,
    /// A thread reached a stage of its work that the scenario names.
    Mark,
    /// The OOM killer ended an actor.
    OomKill,
    /// A disk or swap device is full.
    Full,
    /// An operation failed in a way that was not reported before. Without an actor: the machine failed, and
    /// the run ended with it.
    Error,
    /// A setting changed.
    Setting,
    /// A request took longer than a limit.
    Slow,
    /// Anything else that a reader of the run should know.
    Note,
}
