//! `/proc/PID/limits`.

use std::fmt::Write;

use lotsfree_units::Bytes;
use serde::Serialize;

use crate::file::cgroup::Limit;
use crate::file::scan::{decimal, lines, words};
use crate::{File, Log};

/// Soft and hard limits of the rows that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessLimits {
    /// `Max locked memory`, bytes: soft, hard.
    pub locked_memory: Option<(Limit, Limit)>,
    /// `Max address space`, bytes.
    pub address_space: Option<(Limit, Limit)>,
    /// `Max data size`, bytes.
    pub data: Option<(Limit, Limit)>,
    /// `Max stack size`, bytes.
    pub stack: Option<(Limit, Limit)>,
    /// `Max resident set`, bytes (not enforced by Linux).
    pub resident: Option<(Limit, Limit)>,
    /// `Max open files`: soft, hard. The kernel lets nobody have `unlimited` of them.
    pub open_files: Option<(u64, u64)>,
}

const OPEN_FILES: &str = "Max open files";

impl ProcessLimits {
    /// The kept rows in the kernel's order.
    fn rows(&mut self) -> [(&'static str, &mut Option<(Limit, Limit)>); 5] {
        [
            ("Max data size", &mut self.data),
            ("Max stack size", &mut self.stack),
            ("Max resident set", &mut self.resident),
            ("Max locked memory", &mut self.locked_memory),
            ("Max address space", &mut self.address_space),
        ]
    }
}

/// `unlimited` is `RLIM_INFINITY`, all bits set; a number that large means the same.
fn limit(word: &[u8]) -> Option<Limit> {
    match word {
        b"unlimited" => Some(Limit::Max),
        digits => {
            decimal(digits).map(|bytes| if bytes == u64::MAX { Limit::Max } else { Limit::At(Bytes(bytes)) })
        }
    }
}

impl File for ProcessLimits {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut limits = ProcessLimits::default();
        for (number, line) in lines(text) {
            if let Some(rest) = line.strip_prefix(OPEN_FILES.as_bytes()) {
                let mut values = words(rest).map(decimal);
                match (values.next().flatten(), values.next().flatten()) {
                    (Some(soft), Some(hard)) if rest.first().is_some_and(u8::is_ascii_whitespace) => {
                        limits.open_files = Some((soft, hard));
                    }
                    _ => log.malformed(number, format!("{OPEN_FILES} lacks a soft and a hard limit")),
                }
            }
            for (name, slot) in limits.rows() {
                let Some(rest) = line.strip_prefix(name.as_bytes()) else { continue };
                let mut values = words(rest).map(limit);
                match (values.next().flatten(), values.next().flatten()) {
                    (Some(soft), Some(hard)) if rest.first().is_some_and(u8::is_ascii_whitespace) => {
                        *slot = Some((soft, hard))
                    }
                    _ => log.malformed(number, format!("{name} lacks a soft and a hard limit")),
                }
                break;
            }
        }
        limits
    }

    /// Prints the known rows, in the columns of `fs/proc/base.c:proc_pid_limits`.
    fn print(&self, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:<25} {:<20} {:<20} {:<10}", "Limit", "Soft Limit", "Hard Limit", "Units");
        let text = |limit: Limit| match limit {
            Limit::Max => "unlimited".to_owned(),
            Limit::At(bytes) => bytes.0.to_string(),
        };
        for (name, values) in { *self }.rows() {
            if let Some((soft, hard)) = *values {
                let _ = writeln!(out, "{name:<25} {:<20} {:<20} {:<10}", text(soft), text(hard), "bytes");
            }
        }
        if let Some((soft, hard)) = self.open_files {
            let _ = writeln!(out, "{OPEN_FILES:<25} {soft:<20} {hard:<20} {:<10}", "files");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{corrupted, round_trip};

    const TEXT: &[u8] = b"\
Limit                     Soft Limit           Hard Limit           Units     \n\
Max cpu time              unlimited            unlimited            seconds   \n\
Max data size             unlimited            unlimited            bytes     \n\
Max stack size            8388608              unlimited            bytes     \n\
Max core file size        0                    unlimited            bytes     \n\
Max resident set          unlimited            unlimited            bytes     \n\
Max open files            1024                 65536                files     \n\
Max locked memory         65536                67108864             bytes     \n\
Max address space         unlimited            unlimited            bytes     \n\
Max file locks            unlimited            unlimited            locks     \n";

    #[test]
    fn reads_the_rows_of_memory() {
        let mut log = Log::default();
        let limits = ProcessLimits::parse(TEXT, &mut log);
        assert_eq!(log.problems(), []);
        let at = |bytes| Limit::At(Bytes(bytes));
        assert_eq!(limits.locked_memory, Some((at(65536), at(67_108_864))));
        assert_eq!(limits.stack, Some((at(8_388_608), Limit::Max)));
        assert_eq!(limits.data, Some((Limit::Max, Limit::Max)));
        assert!(limits.resident.is_some() && limits.address_space.is_some());
        assert_eq!(limits.open_files, Some((1024, 65_536)));
    }

    #[test]
    fn prints_the_kernels_columns() {
        let mut printed = String::new();
        ProcessLimits::parse(TEXT, &mut Log::default()).print(&mut printed);
        let text = String::from_utf8_lossy(TEXT);
        assert_eq!(printed.lines().count(), 7);
        assert!(printed.lines().all(|line| text.lines().any(|expected| expected == line)), "{printed}");
    }

    #[test]
    fn bad_rows_are_reported() {
        let mut log = Log::default();
        let text = b"Max locked memory 1\nMax data size x y bytes\nMax stack size\nMax resident set1 1\nMax open files 1 x files\n";
        assert_eq!(ProcessLimits::parse(text, &mut log), ProcessLimits::default());
        assert_eq!(log.problems().len(), 5);
    }

    fn value() -> impl Strategy<Value = Option<(Limit, Limit)>> {
        let one = || {
            any::<Option<u64>>()
                .prop_map(|n| limit(&n.map_or(b"unlimited".into(), |n| n.to_string().into_bytes())))
        };
        (one(), one()).prop_map(|(soft, hard)| soft.zip(hard)).boxed().prop_union(Just(None).boxed())
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(
            locked_memory in value(), address_space in value(), data in value(), stack in value(),
            resident in value(), open_files in any::<Option<(u64, u64)>>(),
        ) {
            round_trip(&ProcessLimits { locked_memory, address_space, data, stack, resident, open_files });
        }

        #[test]
        fn survives_hostile_input(text in corrupted(TEXT)) {
            round_trip(&ProcessLimits::parse(&text, &mut Log::default()));
        }
    }
}
