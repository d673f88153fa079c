//! [`Interval`]: what an actor did between two samples, and [`Event`]: what happened at one instant.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// What the threads of one role of one actor did between two samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Its begin, in nanoseconds since the run began.
    pub from: u64,
    /// Its end, likewise: when the sample was taken.
    pub at: u64,
    /// The actor's name in the scenario.
    pub actor: Arc<str>,
    /// What these threads of it do, such as `reader`.
    pub role: Arc<str>,
    /// Requests that ended in the interval.
    pub operations: u64,
    /// Operations that failed in the interval.
    pub errors: u64,
    /// How long the requests took that ended in the interval, in nanoseconds.
    pub latency: Histogram,
    /// Where the threads' time went, of all threads together.
    pub spent: Spent,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
}

/// Nanoseconds of threads, by what they did or waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// On a CPU, in the program.
    pub user: u64,
    /// On a CPU, in the kernel, reclaim left out.
    pub system: u64,
    /// Reclaiming pages for its own allocation (direct reclaim and node reclaim), on a CPU or held back.
    pub reclaim: u64,
    /// Waiting for a device: pages read, swapped in, or synced.
    pub io: u64,
    /// Held back by the dirty limit (`balance_dirty_pages`).
    pub throttled: u64,
    /// Ready, waiting for a CPU.
    pub runnable: u64,
    /// Asleep by its own wish.
    pub idle: u64,
}

/// Something that happened at one instant of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds since the run began.
    pub at: u64,
    /// What kind of thing.
    pub kind: EventKind,
    /// What, in words: the name of the mark, the device that is full.
    pub what: String,
    /// Whom it happened to; `None` for the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
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
    /// An operation failed for the first time in this way.
    Error,
    /// A setting changed.
    Setting,
    /// A request took long.
    Slow,
    /// Anything else that a reader of the run should know.
    Note,
}
