//! Block devices: `/sys/block/*/queue` and `/proc/diskstats`.

use serde::Serialize;

/// One whole device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockDevice {
    /// `sda`, `nvme0n1`, `zram0`.
    pub name: Box<str>,
    /// `queue/rotational`.
    pub rotational: Option<bool>,
    /// `queue/read_ahead_kb`.
    pub read_ahead_kb: Option<u64>,
    /// Its line in `/proc/diskstats`.
    pub stats: Option<DiskStats>,
}

/// The fields of `/proc/diskstats` that say how long an access takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskStats {
    /// Reads completed.
    pub reads: u64,
    /// Sectors (512 bytes) read.
    pub sectors_read: u64,
    /// Milliseconds spent by all reads together.
    pub read_ms: u64,
    /// Writes completed.
    pub writes: u64,
    /// Sectors (512 bytes) written.
    pub sectors_written: u64,
    /// Milliseconds spent by all writes together.
    pub write_ms: u64,
    /// Milliseconds during which anything was in flight.
    pub busy_ms: u64,
}
