//! [`Op`]: what an actor's thread does next.
//!
//! The model executes operations in `crates/engine/src/machine/slice.rs`; on a kernel an agent makes the
//! system calls, in `crates/lab/src/agent/thread.rs`.

/// A file, by its number in the [`Program`](crate::Program): first the declared files in their order, then
/// numbers that the streams hand out for the files that they create. A number may be used again after its
/// file was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A program of the host, by its number in the [`Program`](crate::Program).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u32);

/// A mapping of a process, by a number that its streams choose (small and dense: an index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// A shared segment, by its number in the [`Program`](crate::Program): every process that attaches it has the
/// same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

/// How a file is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// `read`, `write`: through the page cache.
    Buffered,
    /// `O_DIRECT`.
    Direct,
}

/// `posix_fadvise` and `madvise`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// `POSIX_FADV_NORMAL`
    Normal,
    /// `POSIX_FADV_SEQUENTIAL`: twice the readahead window.
    Sequential,
    /// `POSIX_FADV_RANDOM`: no readahead.
    Random,
    /// `POSIX_FADV_WILLNEED`: read now.
    WillNeed,
    /// `POSIX_FADV_DONTNEED`: start to write what is dirty, drop what is clean.
    DontNeed,
    /// `MADV_HUGEPAGE`: transparent huge pages are wanted. For regions only.
    HugePage,
    /// `MADV_NOHUGEPAGE`: base pages only. For regions only.
    NoHugePage,
}

/// A date of [`Op::Pace`] that is due within this many nanoseconds is not slept for: to sleep and wake takes
/// about as long.
pub const PACE_GRAIN_NS: u64 = 50_000;

/// Bytes that `cp` of coreutils reads and writes at a time (`src/ioblksize.h` of 8.32).
pub const COPY_BUFFER: u32 = 128 << 10;

/// One operation of a thread.
///
/// Sizes and offsets in bytes are multiples of nothing in particular; pages have 4 KiB whatever the machine's
/// have, and are counted from the beginning of the mapping. An operation on a file or region that does not
/// exist is an error of the thread: it is counted and the stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A request begins: its latency is measured from here.
    Begin,
    /// The request that began last ends and counts as one operation of the thread.
    Done,
    /// Map `pages` of anonymous memory; a region that exists under that number is unmapped first.
    MapAnon {
        /// The new region.
        region: RegionId,
        /// Its length.
        pages: u32,
    },
    /// Map a file from its beginning; a region that exists under that number is unmapped first.
    MapFile {
        /// The new region.
        region: RegionId,
        /// What is mapped.
        file: FileId,
        /// Its length; at most the file's.
        pages: u32,
        /// `MAP_SHARED`; else `MAP_PRIVATE`, and writes copy.
        shared: bool,
    },
    /// Attach a shared segment in its whole length (`shmat`; `mmap` of each file of
    /// [`Tmpfs`](crate::SegmentBacking::Tmpfs)); a region that exists under that number is unmapped first.
    Attach {
        /// The new region.
        region: RegionId,
        /// What is attached.
        segment: SegmentId,
    },
    /// Unmap a region.
    Unmap {
        /// The region.
        region: RegionId,
    },
    /// Load from, or store to, one page.
    Touch {
        /// The region.
        region: RegionId,
        /// Page of the region.
        page: u32,
        /// A store.
        write: bool,
    },
    /// Create a file, or truncate the one of that number to nothing and give it this size. The size is what
    /// it may grow to: no page exists before it is written.
    Create {
        /// The file.
        file: FileId,
        /// Pages that it will have.
        pages: u32,
    },
    /// Unlink a file. Its pages leave the page cache once nobody maps it.
    Delete {
        /// The file.
        file: FileId,
    },
    /// `pread`
    Read {
        /// The file.
        file: FileId,
        /// From byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// Through the page cache or past it.
        how: How,
    },
    /// `pwrite`
    Write {
        /// The file.
        file: FileId,
        /// From byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// Through the page cache or past it.
        how: How,
    },
    /// `copy_file_range` to the same place of another file, again until all is copied. Where the kernel has
    /// no such call, the file is read and written [`COPY_BUFFER`] at a time.
    CopyRange {
        /// The file that is read.
        from: FileId,
        /// The file that is written.
        to: FileId,
        /// From byte, in both.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// `fdatasync`
    Sync {
        /// The file.
        file: FileId,
    },
    /// `posix_fadvise` on a range; `len` 0 means to the end.
    Advise {
        /// The file.
        file: FileId,
        /// From byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// What is advised.
        advice: Advice,
    },
    /// `madvise` on a whole region.
    AdviseRegion {
        /// The region.
        region: RegionId,
        /// What is advised.
        advice: Advice,
    },
    /// `mlock` of a whole region: every page is brought into memory and stays there.
    Lock {
        /// The region.
        region: RegionId,
    },
    /// `mlockall(MCL_CURRENT | MCL_FUTURE)`: the same for all that the process has mapped and will map.
    LockAll,
    /// Write `vm.nr_hugepages`: the pool is to have this many huge pages of the kernel's default size. It is
    /// an error if it gets fewer.
    SetPool {
        /// Huge pages.
        pages: u64,
    },
    /// Execute a program and wait for its end. The model has none.
    Exec {
        /// The program.
        command: CommandId,
    },
    /// Use a CPU for so many nanoseconds.
    Compute {
        /// Nanoseconds of one CPU.
        ns: u64,
    },
    /// Sleep for so many nanoseconds.
    Sleep {
        /// Nanoseconds.
        ns: u64,
    },
    /// Sleep until this time of the run; nothing if it has passed. Keeps a rate without drifting.
    SleepUntil {
        /// Nanoseconds since the run began.
        at: u64,
    },
    /// Sleep until the thread's next date, which is `ns` nanoseconds after the one before; the first date
    /// counts from where the thread is now. Nothing is slept if the date has passed, but the dates stay where
    /// they were: a thread that was held up catches up, and its rate does not drift. A date within
    /// [`PACE_GRAIN_NS`] is not slept for.
    Pace {
        /// Nanoseconds after the date before.
        ns: u64,
    },
    /// A request begins, as with [`Op::Begin`], but its latency is measured from the date of the thread's
    /// last [`Op::Pace`]: in an open workload a request that waits because the one before it took long is
    /// late.
    Arrive,
    /// Sleep until `until` if the time of the run is at or after `from` and before `until`; nothing else. The
    /// dates of [`Op::Pace`] move on by what was slept. A thread that does this before every request rests
    /// for a phase of the scenario without knowing the time.
    Rest {
        /// Nanoseconds since the run began.
        from: u64,
        /// Nanoseconds since the run began; `u64::MAX`: for the remainder of the run.
        until: u64,
    },
    /// Say to the other threads of the process that this one has done its part of a stage.
    Signal {
        /// The stage, by a number that the streams of the process choose (small and dense: an index).
        stage: u32,
    },
    /// Wait until threads of the process have done [`Op::Signal`] for this stage so many times, counted since
    /// the process started; nothing if they have.
    Await {
        /// The stage.
        stage: u32,
        /// How often it must have been signalled.
        times: u32,
    },
    /// Say that the thread has reached a stage of its work (a phase of the scenario): the run records when.
    Mark {
        /// Index into the thread's [`marks`](crate::Thread::marks).
        mark: u32,
    },
}

impl Op {
    /// The operation on a machine whose pages have `parts` times 4 KiB, a power of two: an access goes to the
    /// page that holds its 4 KiB, and lengths are rounded up.
    #[must_use]
    pub const fn in_pages_of(self, parts: u32) -> Self {
        match self {
            Op::MapAnon { region, pages } => Op::MapAnon { region, pages: pages.div_ceil(parts) },
            Op::MapFile { region, file, pages, shared } => {
                Op::MapFile { region, file, pages: pages.div_ceil(parts), shared }
            }
            Op::Touch { region, page, write } => Op::Touch { region, page: page / parts, write },
            Op::Create { file, pages } => Op::Create { file, pages: pages.div_ceil(parts) },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_goes_to_the_page_that_holds_it() {
        let (region, file) = (RegionId(0), FileId(0));
        let touch = |page| Op::Touch { region, page, write: true };
        assert_eq!([0, 15, 16, 31].map(|page| touch(page).in_pages_of(16)), [0, 0, 1, 1].map(touch));
        assert_eq!(touch(17).in_pages_of(1), touch(17));
        let map = |pages| Op::MapAnon { region, pages };
        assert_eq!([1, 16, 17].map(|pages| map(pages).in_pages_of(16)), [1, 1, 2].map(map));
        let create = |pages| Op::Create { file, pages };
        assert_eq!(create(33).in_pages_of(16), create(3));
        let read = Op::Read { file, offset: 4096, len: 4096, how: How::Direct };
        assert_eq!(read.in_pages_of(16), read, "bytes stay bytes");
    }
}
