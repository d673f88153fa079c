//! The running kernel, as rows of a run: who allocates memory, who reclaims and waits for it, and for how
//! long.
//!
//! ```text
//! tracefs ─▶ tracepoints ─▶ sys::Tracing ─▶ hits of a window ─▶ Tally, per process ─┐
//! taskstats ─▶ Delays, of the processes whose delays the kernel counts ──────────────┤
//! /proc/PID, memory.stat ─▶ Tasks, refaults by group ────────────────────────────────┴─▶ Intervals
//!
//! /proc and pressure alone ─▶ Glance ─▶ Glimpsed, for a user who may not watch
//! ```
//!
//! Tracepoints are read through `perf_event_open`, which leaves nothing behind however the process ends: no
//! file of tracefs is written, no sysctl is set. They are on in windows ([`duty`]); what a window holds is
//! scaled up to the interval.
//!
//! | what | from |
//! |---|---|
//! | pages allocated and given back, by task | `kmem:mm_page_alloc`, `kmem:mm_page_free` |
//! | pages read into the page cache | `filemap:mm_filemap_add_to_page_cache` |
//! | time reclaiming | `vmscan:mm_vmscan_{direct,memcg,node}_reclaim_{begin,end}` |
//! | time compacting | `compaction:mm_compaction_{begin,end}` |
//! | waits, and what for | `sched:sched_switch` with the kernel's call chain, `sched:sched_wakeup` |
//! | all of these times, for some processes | delay accounting (`taskstats`) |
//! | refaults | `workingset_refault_*` of each group's `memory.stat`, of `/proc/vmstat` for the rest |
//! | pages of files that were evicted before they were read | `cachestat` (6.5) |
//!
//! The kernel has no tracepoint for a refault. It counts those of a group, and we share them among the
//! group's programs. [`probes`] asks the kernel about some pages before they are read: the more of a
//! program's pages had been evicted, the more of the refaults are its own. Without answers the pages decide
//! that a program read into the page cache twice while we looked: between the two, such a page was evicted.

mod delays;
mod duty;
mod facts;
mod files;
mod glance;
mod groups;
mod probes;
mod processes;
mod sampler;
mod stack;
mod tally;
mod tasks;
mod taskstats;
mod tracepoints;
mod watch;

use std::io;
use std::path::{Path, PathBuf};

pub use delays::DELAY_ACCOUNTING;
pub use facts::{facts, nodes};
pub use glance::{Glance, Glimpse, Glimpsed};
pub use processes::Processes;
pub use sampler::Sampler;
pub use watch::{BUDGET, Seeing, Seen, Watch};

/// Why a kernel cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// A file could not be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The kernel lets this user watch no tracepoints.
    #[error("the kernel refuses its tracepoints ({0}); run as root, or with CAP_PERFMON and CAP_SYS_ADMIN")]
    Refused(io::Error),
    /// Tracepoints cannot be opened, switched or read.
    #[error("tracepoints of the kernel: {0}")]
    Tracepoints(io::Error),
    /// The kernel has not the tracepoints that are needed.
    #[error("this kernel has no tracepoint {0}, without which nobody can be blamed")]
    Missing(&'static str),
}

impl WatchError {
    /// Why tracepoints cannot be opened.
    fn opening(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => WatchError::Refused(error),
            _ => WatchError::Tracepoints(error),
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> WatchError + '_ {
    move |error| WatchError::Io { path: path.to_path_buf(), error }
}
