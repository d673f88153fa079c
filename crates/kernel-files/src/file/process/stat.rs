//! `/proc/PID/stat`.

use std::fmt::Write;

use lotsfree_units::Bytes;
use serde::Serialize;

use crate::file::scan::{bounded, decimal};
use crate::{File, Log, ProblemKind};

/// The fields that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Name (`comm`) without its parentheses; it may contain spaces, parentheses and line ends. At most 64
    /// bytes: the kernel keeps 15, and prints up to 63 for its workers.
    pub name: Box<str>,
    /// `R`, `S`, `D`, …
    pub state: char,
    /// Parent's process id.
    pub ppid: u32,
    /// `PF_*` flags; bit 21 marks a kernel thread.
    pub flags: u64,
    /// Minor faults.
    pub minor_faults: u64,
    /// Major faults.
    pub major_faults: u64,
    /// User time in clock ticks (100 per second).
    pub user_ticks: u64,
    /// System time in clock ticks.
    pub system_ticks: u64,
    /// Number of threads.
    pub threads: u32,
    /// Start time in clock ticks after boot.
    pub start_ticks: u64,
    /// Virtual size.
    pub virtual_size: Bytes,
    /// Resident pages.
    pub rss_pages: u64,
    /// Real-time priority, 0 for ordinary processes.
    pub rt_priority: u32,
    /// Scheduling policy: 0 other, 1 FIFO, 2 round robin, 3 batch, 5 idle, 6 deadline.
    pub policy: u32,
}

/// A bound on names, in bytes of UTF-8.
const MOST_NAME: usize = 64;
/// Number of fields that kernels since 3.5 print.
const FIELDS: u32 = 52;
/// Number of the last field that is read, `policy`. 2.6.32 has it.
const LAST_READ: u32 = 41;

impl Stat {
    /// Whether it is a kernel thread (`PF_KTHREAD`).
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & 0x0020_0000 != 0
    }
}

impl File for Stat {
    /// Reads the one line of the file. The name ends at the last `)`, because it may itself contain `) R 1`
    /// (`fs/proc/array.c:do_task_stat` escapes line ends and backslashes only on some kernels). Fields that
    /// are missing or malformed are 0 and are reported once.
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut stat = Stat::default();
        let open = text.iter().position(|&b| b == b'(');
        let close = text.iter().rposition(|&b| b == b')');
        let (Some(open), Some(close)) = (open, close) else {
            log.whole(ProblemKind::Malformed, "no process name in parentheses");
            return stat;
        };
        let Some(name) = text.get(open + 1..close) else {
            log.whole(ProblemKind::Malformed, "no process name in parentheses");
            return stat;
        };
        stat.name = bounded(name, MOST_NAME).into();
        let mut bad = None;
        match decimal(text[..open].trim_ascii()).and_then(|pid| u32::try_from(pid).ok()) {
            Some(pid) => stat.pid = pid,
            None => bad = Some(1),
        }
        let mut last = 2;
        // Fields are separated by a single space. Splitting at runs of spaces would read shifted fields if
        // one is missing.
        let fields = text[close + 1..].strip_prefix(b" ").unwrap_or_default();
        for (number, field) in (3u32..=LAST_READ).zip(fields.split(|&b| b == b' ')) {
            let field = if number == LAST_READ { field.trim_ascii_end() } else { field };
            if !stat.take(number, field) {
                bad.get_or_insert(number);
            }
            last = number;
        }
        if let Some(number) = bad {
            log.malformed(1, format!("field {number} of the process's state makes no sense"));
        }
        if last < LAST_READ {
            log.whole(ProblemKind::Truncated, format!("only {last} fields of at least {LAST_READ}"));
        }
        stat
    }

    /// Prints the 52 fields of recent kernels; those that are not kept are 0 (`tpgid` -1, `rsslim`
    /// unlimited).
    fn print(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{} ({})", self.pid, self.name);
        for number in 3..=FIELDS {
            let value = match number {
                3 => {
                    let _ = write!(out, " {}", self.state);
                    continue;
                }
                8 => {
                    out.push_str(" -1");
                    continue;
                }
                4 => u64::from(self.ppid),
                9 => self.flags,
                10 => self.minor_faults,
                12 => self.major_faults,
                14 => self.user_ticks,
                15 => self.system_ticks,
                20 => u64::from(self.threads),
                22 => self.start_ticks,
                23 => self.virtual_size.0,
                24 => self.rss_pages,
                25 => u64::MAX,
                40 => u64::from(self.rt_priority),
                41 => u64::from(self.policy),
                _ => 0,
            };
            let _ = write!(out, " {value}");
        }
        out.push('\n');
    }
}

impl Stat {
    /// Reads one field by its number in proc(5); `false` if it is malformed. Fields that are not kept are
    /// ignored.
    fn take(&mut self, number: u32, field: &[u8]) -> bool {
        let slot = match number {
            3 => {
                return match field {
                    [state] if state.is_ascii() => {
                        self.state = char::from(*state);
                        true
                    }
                    _ => false,
                };
            }
            4 => return narrow(&mut self.ppid, field),
            20 => return narrow(&mut self.threads, field),
            40 => return narrow(&mut self.rt_priority, field),
            41 => return narrow(&mut self.policy, field),
            9 => &mut self.flags,
            10 => &mut self.minor_faults,
            12 => &mut self.major_faults,
            14 => &mut self.user_ticks,
            15 => &mut self.system_ticks,
            22 => &mut self.start_ticks,
            23 => &mut self.virtual_size.0,
            24 => &mut self.rss_pages,
            _ => return true,
        };
        match decimal(field) {
            Some(value) => {
                *slot = value;
                true
            }
            None => false,
        }
    }
}

fn narrow(slot: &mut u32, field: &[u8]) -> bool {
    match decimal(field).and_then(|value| u32::try_from(value).ok()) {
        Some(value) => {
            *slot = value;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{corrupted, round_trip};

    /// 6.18, x86-64.
    const CAT: &[u8] =
        b"9978 (cat) R 9976 9976 8548 0 -1 4194304 102 0 0 0 3 4 0 0 20 0 1 0 148091 3133440 414 \
        18446744073709551615 94376220098560 94376220118441 140721218057632 0 0 0 0 0 0 0 0 0 17 1 50 1 0 0 0 \
        94376220134448 94376220136064 94377148579840 140721218058717 140721218058791 140721218058791 \
        140721218060267 0\n";
    /// 2.6.32, 44 fields.
    const OLD: &[u8] = b"2291 (oracle) S 1 2291 2291 0 -1 4202496 3320 0 17 0 12 34 0 0 20 0 1 0 8812 1712345088 \
        6143 18446744073709551615 4194304 177422340 140736627437232 140736627433048 235084714160 0 0 16781312 \
        134219008 18446744071579755771 0 0 17 3 0 0 2 0 0\n";

    #[test]
    fn reads_recent_and_old_kernels() {
        let mut log = Log::default();
        let cat = Stat::parse(CAT, &mut log);
        assert_eq!((cat.pid, &*cat.name, cat.state, cat.ppid), (9978, "cat", 'R', 9976));
        assert_eq!((cat.flags, cat.minor_faults, cat.major_faults), (4_194_304, 102, 0));
        assert_eq!((cat.user_ticks, cat.system_ticks, cat.threads, cat.start_ticks), (3, 4, 1, 148_091));
        assert_eq!((cat.virtual_size, cat.rss_pages), (Bytes(3_133_440), 414));
        assert_eq!((cat.rt_priority, cat.policy), (50, 1));
        assert!(!cat.is_kernel_thread());
        let old = Stat::parse(OLD, &mut log);
        assert_eq!((&*old.name, old.major_faults, old.rss_pages, old.policy), ("oracle", 17, 6143, 0));
        assert_eq!(log.problems(), []);
    }

    #[test]
    fn the_last_parenthesis_ends_the_name() {
        let mut log = Log::default();
        let text = String::from_utf8_lossy(CAT).replace("(cat)", "(a) R 1\n((b )) )");
        let stat = Stat::parse(text.as_bytes(), &mut log);
        assert_eq!((&*stat.name, stat.ppid), ("a) R 1\n((b )) ", 9976));
        assert_eq!(log.problems(), []);
    }

    #[test]
    fn truncated_and_random_input_is_reported_not_fatal() {
        for cut in 0..CAT.len() {
            let mut log = Log::default();
            let stat = Stat::parse(&CAT[..cut], &mut log);
            round_trip(&stat);
            // A cut within the name, or after it and before the policy, must be reported.
            assert!(cut > 160 || !log.problems().is_empty(), "{cut}");
        }
        let mut log = Log::default();
        Stat::parse(b") 1 (", &mut log);
        assert_eq!(log.problems().len(), 1);
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(
            ids in any::<[u32; 5]>(), numbers in any::<[u64; 8]>(), state in proptest::char::range('A', 'Z'),
            name in "[ -~()\nä]{0,15}",
        ) {
            round_trip(&Stat {
                pid: ids[0], name: name.into(), state, ppid: ids[1], flags: numbers[0], minor_faults: numbers[1],
                major_faults: numbers[2], user_ticks: numbers[3], system_ticks: numbers[4], threads: ids[2],
                start_ticks: numbers[5], virtual_size: Bytes(numbers[6]), rss_pages: numbers[7],
                rt_priority: ids[3], policy: ids[4],
            });
        }

        #[test]
        fn survives_hostile_input(text in corrupted(CAT)) {
            round_trip(&Stat::parse(&text, &mut Log::default()));
        }
    }
}
