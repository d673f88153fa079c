//! `/proc/sysvipc/shm`: System V shared memory segments.

use lotsfree_units::Bytes;
use serde::Serialize;

/// One segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShmSegment {
    /// Key, as printed.
    pub key: i64,
    /// Identifier, for `ipcrm -m`.
    pub shmid: u64,
    /// Permission bits and flags, octal in the file (`1600` = `SHM_DEST`, `10000` = locked, `4000` = huge pages).
    pub perms: u32,
    /// Size.
    pub size: Bytes,
    /// Creator's process.
    pub cpid: u32,
    /// Last process that attached or detached.
    pub lpid: u32,
    /// Attached mappings.
    pub nattch: u64,
    /// Owner.
    pub uid: u32,
    /// Seconds since the epoch: last attach.
    pub atime: u64,
    /// Seconds since the epoch: last detach.
    pub dtime: u64,
    /// Seconds since the epoch: last change.
    pub ctime: u64,
    /// Resident bytes (2.6.36 and later).
    pub rss: Option<Bytes>,
    /// Bytes in swap (2.6.36 and later).
    pub swap: Option<Bytes>,
}
