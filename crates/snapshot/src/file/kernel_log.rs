//! What the kernel log (`/dev/kmsg`, a saved `dmesg`) says of memory. Other lines are never kept.

use lotsfree_units::Bytes;
use serde::Serialize;

/// The memory events of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelLog {
    /// Kills by the OOM killer, oldest first.
    pub ooms: Vec<OomKill>,
    /// Writes to `/proc/sys/vm/drop_caches`: process name, pid, value.
    pub drop_caches: Vec<(String, u32, u32)>,
    /// `page allocation failure` lines: process name, order.
    pub allocation_failures: Vec<(String, u32)>,
    /// The lines that the above were read from, as printed, for saving.
    pub lines: Vec<String>,
}

/// One kill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OomKill {
    /// Seconds since boot, if the line said so.
    pub at: Option<u64>,
    /// `CONSTRAINT_NONE`, `CONSTRAINT_MEMCG`, `CONSTRAINT_MEMORY_POLICY`, `CONSTRAINT_CPUSET`; empty on kernels
    /// before 4.19, which do not say.
    pub constraint: String,
    /// cgroup of the victim (`oom_memcg` or `task_memcg`), if printed.
    pub cgroup: Option<String>,
    /// Victim's process id.
    pub pid: u32,
    /// Victim's name.
    pub name: String,
    /// Its anonymous memory.
    pub anon_rss: Option<Bytes>,
    /// Its page tables.
    pub page_tables: Option<Bytes>,
    /// Its oom_score_adj.
    pub oom_score_adj: Option<i32>,
}
