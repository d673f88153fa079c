//! `/proc/swaps`.

use std::fmt::Write as _;

use lotsfree_units::{Bytes, KIB};
use serde::Serialize;

use super::mounts::{columns, escape, unescape};
use super::zoneinfo::{lines, name_of, number};
use crate::{File, Log, ProblemKind};

/// At most this many areas are kept; the kernel can have 32 (`MAX_SWAPFILES`).
const MOST: usize = 1024;

/// One swap area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SwapArea {
    /// Device or file, with the kernel's octal escapes undone.
    pub path: String,
    /// `partition` or `file`.
    pub kind: Box<str>,
    /// Its size.
    pub size: Bytes,
    /// How much is in use.
    pub used: Bytes,
    /// Higher is used first.
    pub priority: i32,
}

/// `mm/swapfile.c:swap_show`, 2.6.32 to 6.18.
impl File for Vec<SwapArea> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut areas = Vec::new();
        for (line_number, line) in lines(text) {
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
            escape(&area.path, out);
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
    let mut kib = || number(words.next()?)?.checked_mul(KIB).map(Bytes);
    let (size, used) = (kib()?, kib()?);
    let priority = str::from_utf8(words.next()?).ok()?.parse().ok()?;
    if words.next().is_some() {
        return None;
    }
    Some(SwapArea { path: unescape(path), kind: name_of(kind), size, used, priority })
}
