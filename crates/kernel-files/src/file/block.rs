//! Block devices: `/sys/block/*/queue` and `/proc/diskstats`.

use std::fmt::Write as _;

use serde::Serialize;

use super::scan::{decimal, name_of, trimmed_lines, words};
use crate::{File, Log, ProblemKind};

/// At most this many lines of `/proc/diskstats` are kept.
const MOST: usize = 65_536;

/// One whole device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockDevice {
    /// `sda`, `nvme0n1`, `zram0`, `cciss/c0d0`: the name in `/dev` and `/proc/diskstats`. `/sys/block` has a
    /// `!` for the slash.
    pub name: Box<str>,
    /// `queue/rotational`.
    pub rotational: Option<bool>,
    /// `queue/read_ahead_kb`.
    pub read_ahead_kb: Option<u64>,
    /// The device's line in `/proc/diskstats`.
    pub stats: Option<DiskStats>,
}

/// The fields of `/proc/diskstats` from which the duration of an access can be computed.
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
    /// Milliseconds during which any request was in flight.
    pub busy_ms: u64,
}

/// `/proc/diskstats`: devices and partitions by name, in file order. `block/genhd.c:diskstats_show`, 2.6.32
/// to 6.18.
///
/// A `/` in a device's name (`cciss/c0d0`) is a `!` in `/sys/block`; this file and its parser have the `/`.
/// Device numbers, merges and the columns after the time in flight are not kept, and are written as 0.
impl File for Vec<(Box<str>, DiskStats)> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut devices = Vec::new();
        for (line_number, line) in trimmed_lines(text) {
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
    decimal(words.next()?)?;
    decimal(words.next()?)?;
    let name = name_of(words.next()?);
    let mut columns = [0u64; 11];
    for column in &mut columns {
        *column = decimal(words.next()?)?;
    }
    let [reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms, _] = columns;
    if !words.all(|word| decimal(word).is_some()) {
        return None;
    }
    Some((name, DiskStats { reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms }))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, name, parse, print, settles};

    /// Lines of 6.18, and one line with the 14 columns of 2.6.32.
    const SAMPLE: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 83103 22921 3816666 12318 13737 38046 4402736 11379 0 7300 24121 4569 25 301064 402 953 21
 104       0 cciss/c0d0 83103 22921 3816666 12318 13737 38046 4402736 11379 0 7300 24121
";

    type Devices = Vec<(Box<str>, DiskStats)>;

    #[test]
    fn reads_old_and_new_lines() {
        let devices: Devices = clean(SAMPLE);
        let vda = DiskStats {
            reads: 83103,
            sectors_read: 3_816_666,
            read_ms: 12318,
            writes: 13737,
            sectors_written: 4_402_736,
            write_ms: 11379,
            busy_ms: 7300,
        };
        let expected = [("loop0", DiskStats::default()), ("vda", vda), ("cciss/c0d0", vda)];
        assert_eq!(devices, expected.map(|(name, stats)| (name.into(), stats)));
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text = b"8 0 sda 1 2 3\n8 1 sda1 1 2 3 4 5 6 7 8 9 10 11\n8 2 \xff 1 2 3 4 5 6 7 8 9 10 x\n8 3";
        assert_eq!(bad_lines::<Devices>(text), [1, 3, 4]);
        assert_eq!(parse::<Devices>(text).0.len(), 1);
    }

    #[test]
    fn is_bounded() {
        let text = "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n".repeat(MOST + 2);
        let (devices, problems) = parse::<Devices>(text.as_bytes());
        assert_eq!((devices.len(), problems.len(), problems[0].kind), (MOST, 1, ProblemKind::Budget));
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<Devices>(""), []);
        cut_anywhere::<Devices>(SAMPLE);
    }

    proptest! {
        #[test]
        fn round_trip(devices in vec((name(), any::<[u64; 7]>()), 0..9)) {
            let stats = |[reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms]: [u64; 7]| {
                DiskStats { reads, sectors_read, read_ms, writes, sectors_written, write_ms, busy_ms }
            };
            let devices: Devices = devices.into_iter().map(|(name, numbers)| (name, stats(numbers))).collect();
            prop_assert_eq!(clean::<Devices>(&print(&devices)), devices);
        }

        #[test]
        fn settles_whatever_it_reads(text in hostile(SAMPLE)) {
            settles::<Devices>(&text);
        }
    }
}
