//! [`Sample`]: the kernel's counters at one instant.

use lotsfree_kernel_files::counters::{
    Meminfo, MemoryEvents, MemoryStat, Numastat, Status, Values, Vmstat, memory_events,
};
use lotsfree_kernel_files::file::cgroup::Limit;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_kernel_files::file::zoneinfo::Zone;

/// Counters of the machine's kernel at one instant of the run. Monotonic counters count from the machine's
/// boot, as the kernel's do, so only their change has a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since the run began.
    pub at: u64,
    /// `/proc/meminfo`.
    pub meminfo: Values<Meminfo>,
    /// `/proc/vmstat`.
    pub vmstat: Values<Vmstat>,
    /// `/proc/zoneinfo`, in file order. The node's statistics are in the node's first populated zone, as 4.8
    /// and later print them.
    pub zones: Vec<Zone>,
    /// Counters of each NUMA node below `/sys/devices/system/node`, ascending; empty if nodes are not
    /// sampled.
    pub nodes: Vec<NodeSample>,
    /// `/proc/swaps`, in file order; empty where there is no swap.
    pub swaps: Vec<SwapArea>,
    /// `memory.stat` of the actors' control group; empty if they have no group of their own.
    pub group: Values<MemoryStat>,
    /// `memory.events` of that group; empty for one of version 1, which does not have this file.
    pub events: Values<MemoryEvents>,
    /// `memory.failcnt` and `memory.memsw.failcnt` of that group together, the times that it met either
    /// limit; `None` for one of version 2.
    pub failcnt: Option<u64>,
    /// Processes of the actors, those that [`Sample::processes_of`] names.
    pub processes: Vec<ProcessSample>,
    /// `/proc/sysvipc/shm`: id, size, owner, how often it is attached, and what of it is in memory and on
    /// swap. The other fields are not kept.
    pub segments: Vec<ShmSegment>,
}

impl Sample {
    /// The most processes whose files a sample has.
    const MOST_PROCESSES: u64 = 512;
    /// Columns of a process.
    const COLUMNS: u64 = 24;

    /// Which processes the samples of a run have, as places in `instances`, which says of each process of the
    /// program which of its actor's it is. They are those of each actor in turn. A long run has fewer: the
    /// number of cells of a table is bounded.
    pub fn processes_of(instances: impl IntoIterator<Item = u32>, samples: u64) -> Vec<usize> {
        let cells = crate::store::MOST_CELLS / 4;
        let most = (cells / samples.max(1) / Self::COLUMNS).clamp(1, Self::MOST_PROCESSES);
        let mut places: Vec<(u32, usize)> = instances.into_iter().zip(0..).collect();
        places.sort_unstable();
        places.truncate(most as usize);
        let mut places: Vec<usize> = places.into_iter().map(|(_, place)| place).collect();
        places.sort_unstable();
        places
    }

    /// The times that the actors' control group met its limit since it was made; `None` without a group.
    pub fn limit_hits(&self) -> Option<u64> {
        self.failcnt.or_else(|| self.events.get(memory_events::max))
    }
}

/// One directory `/proc/PID`, of a process of an actor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSample {
    /// The process id.
    pub pid: u32,
    /// The actor's name. In the lab all programs have that of the agent.
    pub name: Box<str>,
    /// The memory lines of `status`, in KiB.
    pub status: Values<Status>,
    /// Its effective capabilities (`CapEff` of `status`).
    pub capabilities: Option<u64>,
    /// Its minor and major faults up to now (`stat`).
    pub faults: Option<[u64; 2]>,
    /// What it may have at most (`limits`).
    pub limits: Limits,
    /// The shared segments that it has attached, and where (`maps`).
    pub attached: Vec<Attached>,
}

/// Soft limits of a process; `None` where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `RLIMIT_MEMLOCK`
    pub memlock: Option<Limit>,
    /// `RLIMIT_AS`
    pub address_space: Option<Limit>,
    /// `RLIMIT_DATA`
    pub data: Option<Limit>,
}

/// A segment that a process has attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Its `shmid`.
    pub shmid: u64,
    /// Where it begins in the address space.
    pub address: u64,
}

/// One directory `/sys/devices/system/node/node*`. Files that do not change during a run (CPUs, distances)
/// are in [`NodeFacts`](crate::NodeFacts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSample {
    /// The node's number.
    pub id: u32,
    /// `meminfo`, in KiB.
    pub meminfo: Values<Meminfo>,
    /// `numastat`.
    pub numastat: Values<Numastat>,
}
