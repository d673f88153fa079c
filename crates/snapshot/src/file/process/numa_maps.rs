//! `/proc/PID/numa_maps`, summed while it is read: the file has a line per mapping.

use lotsfree_units::Bytes;
use serde::Serialize;

/// Where a process's pages are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NumaMaps {
    /// Policy of the first line: `default`, `bind:0`, `interleave:0-1`, `prefer:1`.
    pub first_policy: Box<str>,
    /// Bytes on each node, by node number, each mapping counted with its own page size.
    pub nodes: Vec<Bytes>,
    /// Mappings that matter, largest first, at most 32: shared memory and files in `/dev/shm` and hugetlbfs, and
    /// anonymous memory from 64 MiB on.
    pub mappings: Vec<NumaMapping>,
    /// Number of lines.
    pub lines: u64,
}

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NumaMapping {
    /// Start address.
    pub start: u64,
    /// Policy.
    pub policy: Box<str>,
    /// `file=`, with the kernel's octal escapes undone; `heap`, `stack`, or empty for anonymous memory.
    pub file: Box<str>,
    /// The `huge` word: a hugetlb mapping.
    pub huge: bool,
    /// `kernelpagesize_kB` (3.14 and later; 4 KiB where it is absent).
    pub page_size: Bytes,
    /// Resident bytes.
    pub resident: Bytes,
}
