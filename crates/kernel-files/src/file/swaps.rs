//! `/proc/swaps`.

use std::fmt::Write as _;

use lotsfree_units::{Bytes, KIB};
use serde::Serialize;

use super::mounts::{columns, escape, unescape};
use super::scan::{decimal, name_of, trimmed_lines};
use crate::{File, Log, ProblemKind};

/// At most this many areas are kept; the kernel allows 32 (`MAX_SWAPFILES`).
const MOST: usize = 1024;

/// One swap area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SwapArea {
    /// Device or file, with the kernel's octal escapes undone.
    pub path: String,
    /// `partition` or `file`.
    pub kind: Box<str>,
    /// Size of the area.
    pub size: Bytes,
    /// Bytes in use.
    pub used: Bytes,
    /// Priority; areas with a higher one are used first.
    pub priority: i32,
}

/// `mm/swapfile.c:swap_show`, 2.6.32 to 6.18.
impl File for Vec<SwapArea> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut areas = Vec::new();
        for (line_number, line) in trimmed_lines(text) {
            let mut words = columns(line);
            if words.next() == Some(b"Filename") && words.next() == Some(b"Type") {
                continue;
            }
            if areas.len() == MOST {
                log.whole(ProblemKind::Budget, format!("more than {MOST} swap areas"));
                break;
            }
            match area(line) {
                Some(area) => areas.push(area),
                None => log.malformed(line_number, "not path, type, size, used and priority"),
            }
        }
        areas
    }

    fn print(&self, out: &mut String) {
        out.push_str("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
        for area in self {
            let start = out.len();
            escape(&area.path, "", out);
            let width = 40usize.saturating_sub(out.len() - start).max(1);
            let kind = if &*area.kind == "file" { "file\t" } else { &*area.kind };
            let (size, used) = (area.size.as_kib(), area.used.as_kib());
            let tab = |kib| if kib < 10_000_000 { "\t" } else { "" };
            let _ = writeln!(
                out,
                "{:width$}{kind}\t{size}\t{}{used}\t{}{}",
                "",
                tab(size),
                tab(used),
                area.priority
            );
        }
    }
}

fn area(line: &[u8]) -> Option<SwapArea> {
    let mut words = columns(line);
    let (path, kind) = (words.next()?, words.next()?);
    let mut kib = || decimal(words.next()?)?.checked_mul(KIB).map(Bytes);
    let (size, used) = (kib()?, kib()?);
    let priority = str::from_utf8(words.next()?).ok()?.parse().ok()?;
    if words.next().is_some() {
        return None;
    }
    Some(SwapArea { path: unescape(path), kind: name_of(kind), size, used, priority })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, parse, print, settles};

    /// The layout of 5.x and later: two tabs after a short number.
    const NEW: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/zram0                              partition\t8388604\t\t0\t\t100
/swap\\040file                           file\t\t16777212\t52\t\t-2
/swapfile\\040(deleted)                  file\t\t1048572\t\t1024\t\t-3
";
    /// The layout of 2.6.32: single tabs.
    const OLD: &str = "Filename\t\t\t\tType\t\tSize\tUsed\tPriority
/dev/dm-1                               partition\t4128760\t0\t-1
";

    #[test]
    fn reads_and_prints_the_kernels_text() {
        let areas: Vec<SwapArea> = clean(NEW);
        let zram = SwapArea {
            path: "/dev/zram0".into(),
            kind: "partition".into(),
            size: Bytes::kib(8_388_604),
            used: Bytes::ZERO,
            priority: 100,
        };
        assert_eq!(areas[0], zram);
        assert_eq!((&*areas[1].path, &*areas[1].kind, areas[1].priority), ("/swap file", "file", -2));
        assert_eq!(areas[2].path, "/swapfile (deleted)");
        assert_eq!(print(&areas), NEW);
        let areas: Vec<SwapArea> = clean(OLD);
        assert_eq!((&*areas[0].path, areas[0].size), ("/dev/dm-1", Bytes::kib(4_128_760)));
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text = b"Filename Type\n/a file 1 2\n/b file 1 2 3 4\n/c file 99999999999999999 0 0\n/d file 1 -2 0\n/\xff file 1 2 3";
        assert_eq!(bad_lines::<Vec<SwapArea>>(text), [2, 3, 4, 5]);
        assert_eq!(parse::<Vec<SwapArea>>(text).0[0].path, "/\u{fffd}");
    }

    #[test]
    fn is_bounded() {
        let (areas, problems) = parse::<Vec<SwapArea>>("/a file 1 2 3\n".repeat(MOST + 2).as_bytes());
        assert_eq!((areas.len(), problems.len(), problems[0].kind), (MOST, 1, ProblemKind::Budget));
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<Vec<SwapArea>>(""), []);
        cut_anywhere::<Vec<SwapArea>>(NEW);
        cut_anywhere::<Vec<SwapArea>>(OLD);
    }

    proptest! {
        #[test]
        fn round_trip(areas in vec(("(?s).{1,60}", "[a-z]{1,9}", 0..1u64 << 54, 0..1u64 << 54, any::<i32>()), 0..9)) {
            let area = |(path, kind, size, used, priority): (String, String, u64, u64, i32)| {
                SwapArea { path, kind: kind.into(), size: Bytes::kib(size), used: Bytes::kib(used), priority }
            };
            let areas: Vec<SwapArea> = areas.into_iter().map(area).collect();
            prop_assert_eq!(clean::<Vec<SwapArea>>(&print(&areas)), areas);
        }

        #[test]
        fn settles_whatever_it_reads(new in hostile(NEW), old in hostile(OLD)) {
            settles::<Vec<SwapArea>>(&new);
            settles::<Vec<SwapArea>>(&old);
        }
    }
}
