//! `/proc/PID/stat`.

use lotsfree_units::Bytes;
use serde::Serialize;

/// The fields that matter here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Name (`comm`), without its parentheses.
    pub name: Box<str>,
    /// `R`, `S`, `D`, …
    pub state: char,
    /// Parent.
    pub ppid: u32,
    /// `PF_*` flags; bit 21 marks a kernel thread.
    pub flags: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
    /// User time, clock ticks (100 per second).
    pub user_ticks: u64,
    /// System time, clock ticks.
    pub system_ticks: u64,
    /// Threads.
    pub threads: u32,
    /// Start, clock ticks after boot.
    pub start_ticks: u64,
    /// Virtual size.
    pub virtual_size: Bytes,
    /// Resident pages.
    pub rss_pages: u64,
    /// Real-time priority, 0 for ordinary processes.
    pub rt_priority: u32,
    /// Scheduling policy: 0 other, 1 FIFO, 2 round robin, 3 batch, 5 idle, 6 deadline.
    pub policy: u32,
}

impl Stat {
    /// Whether it is a kernel thread (`PF_KTHREAD`).
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & 0x0020_0000 != 0
    }
}
