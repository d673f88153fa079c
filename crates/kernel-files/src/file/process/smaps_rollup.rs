//! `/proc/PID/smaps_rollup` (4.14 and later).

use std::fmt::Write;

use crate::counters::{SmapsRollup, Values, field};

use crate::Log;
use crate::file::scan::{cut, lines, words};

/// Reads the sums over all mappings. The first line, the range of addresses, is skipped; a process without
/// memory has an empty file.
pub fn parse_rollup(text: &[u8], log: &mut Log) -> Values<SmapsRollup> {
    let mut values = Values::default();
    let mut hint = 0;
    for (number, line) in lines(text) {
        if line.iter().all(u8::is_ascii_whitespace) || (number == 1 && is_range(line)) {
            continue;
        }
        match field(line, b':') {
            Ok((name, value)) => values.record(name, value, &mut hint),
            Err(why) => log.malformed(number, why),
        }
    }
    values
}

/// Whether `line` begins with `start-end`, two hexadecimal addresses.
fn is_range(line: &[u8]) -> bool {
    let hexadecimal = |b: &u8| b.is_ascii_hexdigit();
    words(line).next().and_then(|word| cut(word, b'-')).is_some_and(|(start, end)| {
        !start.is_empty() && !end.is_empty() && start.iter().all(hexadecimal) && end.iter().all(hexadecimal)
    })
}

/// Prints the sums in the columns of `fs/proc/task_mmu.c:show_smaps_rollup`, below a dummy range of
/// addresses.
pub fn print_rollup(values: &Values<SmapsRollup>, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{:<73}[rollup]", "00000000-00000000 ---p 00000000 00:00 0");
    let known = values.iter().map(|(counter, value)| (counter.name(), value));
    let unknown = values.unknown().iter().map(|(name, value)| (&**name, *value));
    for (name, value) in known.chain(unknown) {
        let width = 23usize.saturating_sub(name.len()).max(8);
        let _ = writeln!(out, "{name}:{value:width$} kB");
    }
}

#[cfg(test)]
mod tests {
    use crate::counters::smaps_rollup;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::corrupted;

    const TEXT: &[u8] = b"55d1f0720000-7ffec51a7000 ---p 00000000 00:00 0                          [rollup]\n\
        Rss:                1740 kB\nPss:                 343 kB\nPss_Dirty:           112 kB\n\
        Anonymous:           112 kB\nAnonHugePages:         0 kB\nShared_Hugetlb:     2048 kB\nLocked:                0 kB\n";

    fn read_back(values: &Values<SmapsRollup>) {
        let mut printed = String::new();
        print_rollup(values, &mut printed);
        let mut log = Log::default();
        assert_eq!(*values, parse_rollup(printed.as_bytes(), &mut log), "{printed}");
        assert_eq!(log.problems(), [], "{printed}");
    }

    #[test]
    fn reads_the_sums() {
        let mut log = Log::default();
        let values = parse_rollup(TEXT, &mut log);
        assert_eq!(log.problems(), []);
        assert_eq!(values.get(smaps_rollup::Rss), Some(1740));
        assert_eq!(values.iter().count() + values.unknown().len(), 7);
        read_back(&values);
        assert!(parse_rollup(b"", &mut log).is_empty());
    }

    #[test]
    fn prints_the_kernels_columns() {
        let mut values = Values::default();
        values.set(smaps_rollup::Rss, 1740);
        let mut printed = String::new();
        print_rollup(&values, &mut printed);
        assert_eq!(printed.lines().nth(1), Some("Rss:                1740 kB"));
        assert_eq!(printed.lines().next().and_then(|line| line.find('[')), Some(73));
    }

    #[test]
    fn a_range_is_passed_over_only_as_the_first_line() {
        let mut log = Log::default();
        parse_rollup(b"Rss: 1 kB\n55d1f0720000-7ffec51a7000 ---p 00000000 00:00 0 [rollup]\n", &mut log);
        assert_eq!(log.problems()[0].line, Some(2));
    }

    proptest! {
        #[test]
        fn survives_hostile_input(text in corrupted(TEXT)) {
            read_back(&parse_rollup(&text, &mut Log::default()));
        }
    }
}
