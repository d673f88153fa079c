//! `/proc/PID/*`.
//!
//! `stat` is read for every process, `status` and `oom_score_adj` for every process that has memory of its
//! own. The files for which the kernel walks page tables (`smaps_rollup`, `numa_maps`: milliseconds per GiB
//! of 4 KiB pages, under the mmap lock) are read only for the largest processes and only within a time
//! budget.

pub mod cgroup;
pub mod io;
pub mod limits;
pub mod maps;
pub mod numa_maps;
pub mod smaps_rollup;
pub mod stat;
pub mod statm;
pub mod status;

use lotsfree_units::Bytes;
use serde::Serialize;

use crate::counters::{Counter, SmapsRollup, Status, Values};

pub use limits::ProcessLimits;
pub use maps::Mapping;
pub use numa_maps::NumaMaps;
pub use smaps_rollup::parse_rollup;
pub use stat::Stat;
pub use statm::Statm;
pub use status::{StatusFile, parse_status};

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Process {
    /// `stat`: name, state, faults, times.
    pub stat: Stat,
    /// The `Vm*`, `Rss*` and `HugetlbPages` lines of `status`, in KiB; empty for kernel threads.
    pub status: Values<Status>,
    /// Effective user id.
    pub uid: Option<u32>,
    /// `THP_enabled` of `status` (5.0 and later).
    pub thp_enabled: Option<bool>,
    /// Effective capabilities, `CapEff` of `status`.
    pub capabilities: Option<u64>,
    /// `oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// Files that are read for large processes only.
    pub detail: Option<Box<Detail>>,
}

/// Files of a process that are read for large processes only.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Detail {
    /// `limits`.
    pub limits: Option<ProcessLimits>,
    /// Path of the process's memory cgroup.
    pub cgroup: Option<String>,
    /// `smaps_rollup` (4.14 and later).
    pub rollup: Option<Values<SmapsRollup>>,
    /// `numa_maps`, summed.
    pub numa: Option<NumaMaps>,
    /// Number of mappings (lines of `maps`).
    pub maps: Option<u64>,
    /// The longest mappings of `maps` that may be written and are shared or have no file of their own; empty
    /// where it was not read.
    pub mappings: Vec<Mapping>,
    /// Number of files in `maps` in which Oracle's automatic memory management keeps an instance's memory.
    pub granules: u64,
    /// `io`: bytes read from and written to storage.
    pub io: Option<(u64, u64)>,
}

impl Process {
    /// A field of `status`.
    pub fn memory(&self, field: Counter<Status>) -> Option<Bytes> {
        self.status.get(field).map(Bytes::kib)
    }

    /// A field of `status`, zero where it is absent.
    pub fn memory_or_zero(&self, field: Counter<Status>) -> Bytes {
        self.memory(field).unwrap_or_default()
    }

    /// Whether the process may lock memory and use huge pages regardless of its limit (`CAP_IPC_LOCK`, bit
    /// 14).
    pub fn has_cap_ipc_lock(&self) -> Option<bool> {
        self.capabilities.map(|bits| bits & (1 << 14) != 0)
    }
}
