//! Block devices: `/sys/block/*/queue` and `/proc/diskstats`.

use std::fmt::Write as _;

use serde::Serialize;

use super::zoneinfo::{lines, name_of, number, words};
use crate::{File, Log, ProblemKind};

/// At most this many lines of `/proc/diskstats` are kept.
const MOST: usize = 65_536;

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

/// `/proc/diskstats`: devices and partitions by name, in file order. `block/genhd.c:diskstats_show`, 2.6.32 to 6.18.
///
/// A device that has a `/` in its name (`cciss/c0d0`) is a directory with `!` for it in `/sys/block`. Device
/// numbers, merges and the columns after the time in flight are not kept and written as 0.
impl File for Vec<(Box<str>, DiskStats)> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut devices = Vec::new();
        for (line_number, line) in lines(text) {
            if devices.len() == MOST {
                log.whole(ProblemKind::Budget, format!("more than {MOST} devices"));
                break;
            }
            match device(line) {
                Some(device) => devices.push(device),
                None => log.malformed(line_number, "not two numbers, a name and at least eleven numbers"),
            }
        }
        devices
    }

    fn print(&self, out: &mut String) {
        for (name, s) in self {
            let _ = writeln!(
                out,
                "{:>4} {:>7} {name} {} 0 {} {} {} 0 {} {} 0 {} 0",
                0, 0, s.reads, s.sectors_read, s.read_ms, s.writes, s.sectors_written, s.write_ms, s.busy_ms
            );
        }
    }
}

fn device(line: &[u8]) -> Option<(Box<str>, DiskStats)> {
    let mut words = words(line);
    number(words.next()?)?;
    number(words.next()?)?;
    let name = name_of(words.next()?);
    let mut columns = [0u64; 11];
    for column in &mut columns {
        *column = number(words.next()?)?;
    }
    let [reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms, _] = columns;
    if !words.all(|word| number(word).is_some()) {
        return None;
    }
    Some((name, DiskStats { reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms }))
}
