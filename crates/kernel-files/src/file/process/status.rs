//! `/proc/PID/status`.

use std::fmt::Write;

use serde::Serialize;

use super::Process;
use crate::counters::{Status, Values, field};
use crate::file::scan::{decimal, hexadecimal, lines, words};
use crate::{File, Log};

/// The lines of `status` that are kept (`fs/proc/array.c:proc_pid_status`).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StatusFile {
    /// The `Vm*`, `Rss*` and `HugetlbPages` lines, in KiB; empty for kernel threads.
    pub values: Values<Status>,
    /// Effective user id: the second number of `Uid`.
    pub uid: Option<u32>,
    /// `THP_enabled` (5.0 and later).
    pub thp_enabled: Option<bool>,
    /// Effective capabilities, `CapEff`.
    pub capabilities: Option<u64>,
}

/// Reads `status` into the fields of `process` that come from it.
pub fn parse_status(text: &[u8], process: &mut Process, log: &mut Log) {
    let StatusFile { values, uid, thp_enabled, capabilities } = StatusFile::parse(text, log);
    process.status = values;
    process.uid = uid;
    process.thp_enabled = thp_enabled;
    process.capabilities = capabilities;
}

impl File for StatusFile {
    /// Reads up to `CapEff`, which every kernel since 2.6.32 prints after all other lines that are kept;
    /// about half of the file follows it. Other lines are neither parsed nor kept as unknown.
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut status = StatusFile::default();
        let mut hint = 0;
        for (number, line) in lines(text) {
            match line {
                [b'V', b'm', ..] | [b'R', b's', b's', ..] | [b'H', b'u', b'g', ..] => match field(line, b':')
                {
                    Ok((name, value)) => status.values.record(name, value, &mut hint),
                    Err(why) => log.malformed(number, why),
                },
                [b'U', b'i', b'd', b':', ids @ ..] => {
                    let uid = words(ids).nth(1).and_then(decimal).and_then(|uid| u32::try_from(uid).ok());
                    match uid {
                        Some(uid) => status.uid = Some(uid),
                        None => log.malformed(number, "no effective user id"),
                    }
                }
                [b'T', b'H', b'P', b'_', b'e', rest @ ..] if rest.starts_with(b"nabled:") => {
                    match rest[b"nabled:".len()..].trim_ascii() {
                        b"0" => status.thp_enabled = Some(false),
                        b"1" => status.thp_enabled = Some(true),
                        _ => log.malformed(number, "THP_enabled is neither 0 nor 1"),
                    }
                }
                [b'C', b'a', b'p', b'E', b'f', b'f', b':', bits @ ..] => {
                    status.capabilities = hexadecimal(bits.trim_ascii());
                    if status.capabilities.is_none() {
                        log.malformed(number, "CapEff is not a hexadecimal number");
                    }
                    break;
                }
                _ => {}
            }
        }
        status
    }

    /// Prints the lines that are kept, aligned as by the kernel. The effective user is printed in all four
    /// columns of `Uid`.
    fn print(&self, out: &mut String) {
        // Writing to a String cannot fail.
        if let Some(uid) = self.uid {
            let _ = writeln!(out, "Uid:\t{uid}\t{uid}\t{uid}\t{uid}");
        }
        let known = self.values.iter().map(|(counter, value)| (counter.name(), value));
        let unknown = self.values.unknown().iter().map(|(name, value)| (&**name, *value));
        for (name, value) in known.chain(unknown) {
            let _ = writeln!(out, "{name}:\t{value:8} kB");
        }
        if let Some(enabled) = self.thp_enabled {
            let _ = writeln!(out, "THP_enabled:\t{}", u8::from(enabled));
        }
        if let Some(bits) = self.capabilities {
            let _ = writeln!(out, "CapEff:\t{bits:016x}");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::counters::status;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{corrupted, round_trip};

    /// `status` of 6.18, shortened only after `CapBnd`.
    const RECENT: &[u8] = b"Name:\tpostgres\nUmask:\t0077\nState:\tS (sleeping)\nTgid:\t812\nNgid:\t0\nPid:\t812\n\
        PPid:\t1\nTracerPid:\t0\nUid:\t0\t1001\t1002\t1003\nGid:\t0\t0\t0\t0\nFDSize:\t256\nGroups:\t \nNStgid:\t812\n\
        NSpid:\t812\nNSpgid:\t812\nNSsid:\t812\nKthread:\t0\nVmPeak:\t    3060 kB\nVmSize:\t    3060 kB\n\
        VmLck:\t       4 kB\nVmPin:\t       0 kB\nVmHWM:\t    1768 kB\nVmRSS:\t    1769 kB\nRssAnon:\t     112 kB\n\
        RssFile:\t    1656 kB\nRssShmem:\t       0 kB\nVmData:\t     360 kB\nVmStk:\t     132 kB\nVmExe:\t      20 kB\n\
        VmLib:\t    1528 kB\nVmPTE:\t      48 kB\nVmSwap:\t       5 kB\nHugetlbPages:\t    2048 kB\nCoreDumping:\t0\n\
        THP_enabled:\t1\nuntag_mask:\t0xffffffffffffffff\nThreads:\t1\nSigQ:\t0/96343\nSigPnd:\t0000000000000000\n\
        CapInh:\t0000000000000000\nCapPrm:\t000001fffeffffff\nCapEff:\t000001fffeffffff\nCapBnd:\t000001fffeffffff\n";
    /// 2.6.32 (RHEL 6): no `VmPin`, `Rss*`, `HugetlbPages` or `THP_enabled`.
    const OLD: &[u8] = b"Name:\toracle\nState:\tS (sleeping)\nTgid:\t2291\nPid:\t2291\nPPid:\t1\nTracerPid:\t0\n\
        Uid:\t500\t500\t500\t500\nGid:\t501\t501\t501\t501\nUtrace:\t0\nFDSize:\t256\nGroups:\t501 502 \n\
        VmPeak:\t 1672212 kB\nVmSize:\t 1672212 kB\nVmLck:\t       0 kB\nVmHWM:\t   24572 kB\nVmRSS:\t   24572 kB\n\
        VmData:\t    1380 kB\nVmStk:\t     104 kB\nVmExe:\t  169168 kB\nVmLib:\t   13432 kB\nVmPTE:\t     328 kB\n\
        VmSwap:\t       0 kB\nThreads:\t1\nSigQ:\t0/62834\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n\
        CapEff:\t0000000000000000\nCapBnd:\tffffffffffffffff\nCpus_allowed:\tf\n";

    #[test]
    fn reads_a_recent_kernel() {
        let mut log = Log::default();
        let mut process = Process::default();
        parse_status(RECENT, &mut process, &mut log);
        assert_eq!(log.problems(), []);
        assert_eq!((process.uid, process.thp_enabled), (Some(1001), Some(true)));
        assert_eq!(process.has_cap_ipc_lock(), Some(true));
        let get = |counter| process.status.get(counter);
        assert_eq!((get(status::VmRSS), get(status::RssAnon)), (Some(1769), Some(112)));
        assert_eq!(
            (get(status::VmPTE), get(status::VmSwap), get(status::VmLck)),
            (Some(48), Some(5), Some(4))
        );
    }

    #[test]
    fn reads_2_6_32() {
        let mut log = Log::default();
        let old = StatusFile::parse(OLD, &mut log);
        assert_eq!(log.problems(), []);
        assert_eq!(old.values.get(status::VmPTE), Some(328));
        assert_eq!(old.values.get(status::RssAnon), None);
        assert_eq!((old.uid, old.thp_enabled, old.capabilities), (Some(500), None, Some(0)));
    }

    #[test]
    fn other_lines_are_not_kept() {
        let text =
            b"Name:\tx\nThreads:\t1\nSigQ:\t0/1\nTHP_enabledx:\t1\nHandles:\t3\nCapEff:\t0\nVmRSS:\t9 kB\n";
        let mut log = Log::default();
        let status = StatusFile::parse(text, &mut log);
        assert!(status.values.is_empty() && log.problems().is_empty());
    }

    #[test]
    fn bad_lines_are_reported_and_the_rest_is_kept() {
        let text =
            b"Uid:\t5\nVmRSS:\t 7 kB\nVmPTE:\t99999999999999999999 kB\nTHP_enabled:\t2\nCapEff:\txyz\n";
        let mut log = Log::default();
        let status = StatusFile::parse(text, &mut log);
        assert_eq!(status.values.get(status::VmRSS), Some(7));
        assert_eq!((status.uid, status.thp_enabled, status.capabilities), (None, None, None));
        let lines: Vec<_> = log.problems().iter().map(|p| p.line).collect();
        assert_eq!(lines, [Some(1), Some(3), Some(4), Some(5)]);
    }

    #[test]
    fn truncated_at_every_byte() {
        for text in [RECENT, OLD] {
            for cut in 0..=text.len() {
                round_trip(&StatusFile::parse(&text[..cut], &mut Log::default()));
            }
        }
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(
            uid in any::<Option<u32>>(), thp_enabled in any::<Option<bool>>(),
            capabilities in any::<Option<u64>>(), values in any::<[u64; 5]>(),
        ) {
            let mut file = StatusFile { uid, thp_enabled, capabilities, ..StatusFile::default() };
            let rows = [status::VmPTE, status::VmSwap, status::VmRSS, status::VmLck, status::RssAnon];
            for (counter, value) in rows.into_iter().zip(values) {
                file.values.set(counter, value);
            }
            round_trip(&file);
        }

        #[test]
        fn survives_hostile_input(text in corrupted(RECENT)) {
            round_trip(&StatusFile::parse(&text, &mut Log::default()));
        }
    }
}
