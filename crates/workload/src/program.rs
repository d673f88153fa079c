//! [`Program`]: a scenario's actors as processes, threads and streams of operations.

use std::fmt;

use crate::memory::{Limit, Memory};
use crate::op::Op;

/// A seeded generator of operations. It knows no time and no machine: the same stream drives the model and a
/// kernel.
pub trait Stream: Send {
    /// Appends the next operations to `out`, as many as are convenient (tens to hundreds). Nothing appended
    /// means that the thread exits.
    fn fill(&mut self, out: &mut Vec<Op>);
}

/// What a scenario's actors are on a machine.
#[derive(Debug)]
pub struct Program {
    /// Files that have a name in the scenario; a [`FileId`](crate::FileId) below their number means one of
    /// them.
    pub files: Vec<FileSpec>,
    /// Shared segments that processes attach, by the number in [`SegmentId`](crate::SegmentId). They exist
    /// when the run begins, hold nothing but zeros, and take no memory before they are touched.
    pub segments: Vec<SegmentSpec>,
    /// Programs of the host, by the number in [`CommandId`](crate::CommandId).
    pub commands: Vec<CommandSpec>,
    /// The actors.
    pub processes: Vec<Process>,
}

/// A file that the scenario names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Its name.
    pub name: String,
    /// Its size in pages of 4 KiB.
    pub pages: u32,
    /// Whether it is there, with contents on disk and nothing in memory, when the run begins.
    pub exists: bool,
}

/// A program of the host that an actor executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program and its arguments; at least the program.
    pub words: Vec<String>,
    /// The user that it runs as; `None`: one whom nothing belongs to.
    pub user: Option<String>,
}

/// Memory that several processes attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentSpec {
    /// Its name.
    pub name: String,
    /// Its size in pages of 4 KiB.
    pub pages: u32,
    /// What kind of memory it is.
    pub backing: SegmentBacking,
    /// How much the process that makes it may lock; `None`: any amount.
    pub memlock: Option<Limit>,
}

/// What a shared segment consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentBacking {
    /// `shmget`: base pages.
    Shm,
    /// `shmget` with `SHM_HUGETLB`: huge pages of the kernel's default size, from the pool that
    /// `vm.nr_hugepages` reserves. The kernel rounds the size up to whole huge pages.
    ShmHuge {
        /// Whether it is [`Shm`](SegmentBacking::Shm) where the pool has too few.
        or_base: bool,
    },
    /// Files on tmpfs, mapped one behind the other.
    Tmpfs {
        /// Pages of 4 KiB of each file; the last one has what remains.
        granule_pages: u32,
    },
}

/// The memory policy of a process (`set_mempolicy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// `MPOL_DEFAULT`: the node of the CPU that asks.
    #[default]
    Local,
    /// `MPOL_PREFERRED`: this node first.
    Preferred(u32),
    /// `MPOL_BIND`: these nodes only.
    Bind(Vec<u32>),
    /// `MPOL_INTERLEAVE`: these nodes in turn.
    Interleave(Vec<u32>),
}

/// The lab starts a process this many nanoseconds before its actor begins.
pub const START_LEAD_NS: u64 = 2_000_000_000;

/// An address space and its threads: one actor, or one of several processes of an actor.
#[derive(Debug)]
pub struct Process {
    /// The actor's name in the scenario; its processes are measured together.
    pub name: String,
    /// Which of the actor's processes it is, from 0.
    pub instance: u32,
    /// Its memory policy.
    pub policy: Policy,
    /// How it has its memory.
    pub memory: Memory,
    /// `/proc/PID/oom_score_adj`, from -1000 to 1000.
    pub oom_score_adj: i32,
    /// The node whose CPUs run it; `None`: threads are spread over all nodes in turn.
    pub node: Option<u32>,
    /// Nanoseconds after the begin of the run at which it starts.
    pub start: u64,
    /// Nanoseconds after the begin of the run at which it is ended, if its streams have not ended before.
    pub stop: Option<u64>,
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// One thread of an actor.
pub struct Thread {
    /// What it does, such as `reader`; threads of one role are measured together.
    pub role: &'static str,
    /// Names of the stages that its [`Op::Mark`] refer to.
    pub marks: Vec<String>,
    /// What it does.
    pub stream: Box<dyn Stream>,
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread").field("role", &self.role).finish_non_exhaustive()
    }
}
