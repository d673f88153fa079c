//! Decides which processes count as latency-critical, from what they do.

use lotsfree_kernel_files::counters::status as s;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::Bytes;

use crate::{Context, Workload, finding};

/// A process younger than this many seconds is still warming up: it maps libraries, reads its files and fills
/// its caches. Operators of in-memory databases plan ten minutes for a warm start.
pub(crate) const WARM_UP_SECONDS: f64 = 600.0;
/// Locked memory that any process may have by default (`RLIMIT_MEMLOCK` since 5.16). Somebody decided on any
/// larger amount.
pub(crate) const LOCKED_ON_PURPOSE: Bytes = Bytes::mib(8);
/// `USER_HZ`: ticks of `/proc/PID/stat` per second, on every architecture that matters here.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// Reason why a process counts as latency-critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Its scheduling policy is FIFO, round robin or deadline.
    RealTime(&'static str),
    /// It locks more memory than the default limit allows.
    Locked(Bytes),
    /// It is a database.
    Database(Workload),
}

impl Why {
    /// The reason in words, for an evidence's subject.
    pub(crate) fn text(self) -> String {
        match self {
            Why::RealTime(policy) => format!("scheduled {policy}"),
            Why::Locked(bytes) => format!("{bytes:#} locked"),
            Why::Database(workload) => workload.name().to_owned(),
        }
    }
}

/// Seconds since `process` started; `None` if the uptime is unknown.
pub(crate) fn age(cx: &Context<'_>, process: &Process) -> Option<f64> {
    Some(cx.now().uptime? - process.stat.start_ticks as f64 / TICKS_PER_SECOND)
}

/// The reason why `process` counts as latency-critical, if it does. Kernel threads never do.
pub(crate) fn why(process: &Process) -> Option<Why> {
    if process.stat.is_kernel_thread() {
        return None;
    }
    match process.stat.policy {
        1 => return Some(Why::RealTime("SCHED_FIFO")),
        2 => return Some(Why::RealTime("SCHED_RR")),
        6 => return Some(Why::RealTime("SCHED_DEADLINE")),
        _ => {}
    }
    let locked = process.memory_or_zero(s::VmLck);
    if locked > LOCKED_ON_PURPOSE {
        return Some(Why::Locked(locked));
    }
    Workload::database_of(process).map(Why::Database)
}

/// Name of a process in evidence, with the reason.
pub(crate) fn subject(process: &Process, why: Why) -> String {
    format!("{} ({})", finding::subject(process), why.text())
}

/// Whether `process` has a child of the same name that is still warming up. After a fork, memory that either
/// writes is copied, at one minor fault per page.
pub(crate) fn has_young_copy(cx: &Context<'_>, process: &Process) -> bool {
    cx.processes().unwrap_or_default().iter().any(|child| {
        child.stat.ppid == process.stat.pid
            && child.stat.name == process.stat.name
            && age(cx, child).is_none_or(|age| age < WARM_UP_SECONDS)
    })
}
