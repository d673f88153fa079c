//! `/proc/PID/io`.

use crate::Log;
use crate::file::scan::lines;

/// Bytes read from and written to storage: `read_bytes` and `write_bytes`
/// (`fs/proc/base.c:do_io_accounting`); `None` if either is missing.
pub fn parse_io(text: &[u8], log: &mut Log) -> Option<(u64, u64)> {
    let (mut read, mut written) = (None, None);
    for (number, line) in lines(text) {
        let slot = match line {
            _ if line.starts_with(b"read_bytes:") => &mut read,
            _ if line.starts_with(b"write_bytes:") => &mut written,
            _ => continue,
        };
        match crate::counters::field(line, b':') {
            Ok((_, value)) => *slot = Some(value),
            Err(why) => log.malformed(number, why),
        }
    }
    Some((read?, written?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"rchar: 4292\nwchar: 12\nsyscr: 13\nsyscw: 1\nread_bytes: 8192\nwrite_bytes: 4096\n\
        cancelled_write_bytes: 7\n";

    #[test]
    fn reads_storage_traffic_only() {
        let mut log = Log::default();
        assert_eq!(parse_io(TEXT, &mut log), Some((8192, 4096)));
        assert_eq!(log.problems(), []);
    }

    #[test]
    fn both_lines_are_needed() {
        for cut in 0..TEXT.len() {
            let read = parse_io(&TEXT[..cut], &mut Log::default());
            // A number that is cut short cannot be detected; a missing line can.
            assert!(read.is_none() || cut > 70, "{cut}");
        }
        let mut log = Log::default();
        assert_eq!(parse_io(b"read_bytes: 1\nwrite_bytes: x\n", &mut log), None);
        assert_eq!(log.problems()[0].line, Some(2));
    }
}
