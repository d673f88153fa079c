//! Memory cgroups, version 1 and 2.

use std::fmt;

use lotsfree_units::{Bytes, GIB, KIB, MIB};
use serde::Serialize;

use super::pressure::Psi;
use super::scan::{cut, decimal, leading_digits, lines};
use crate::counters::{MemoryEvents, MemoryStat, Values, field, memory_events};
use crate::{File, Log, ProblemKind};

/// The cgroup version that has the memory controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum CgroupVersion {
    /// Version 1 (`/sys/fs/cgroup/memory`), pure or hybrid.
    #[default]
    V1,
    /// Version 2 (unified).
    V2,
}

/// The memory cgroups of a host: the reader's own, the root, the large ones, and all with a limit (also on
/// huge pages) or protection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cgroups {
    /// The version that has the memory controller.
    pub version: CgroupVersion,
    /// Path of the reader's own group; only on the running machine.
    pub own: Option<String>,
    /// Whether the v2 hierarchy is mounted with `memory_recursiveprot`.
    pub recursive_protection: bool,
    /// `nr_dying_descendants` of the root's `cgroup.stat` (v2).
    pub dying: Option<u64>,
    /// The groups, parents before children.
    pub groups: Vec<Cgroup>,
    /// Number of groups that were left out because they are small.
    pub left_out: u32,
}

impl Cgroups {
    /// The group at `path`.
    pub fn at(&self, path: &str) -> Option<&Cgroup> {
        self.groups.iter().find(|group| group.path == path)
    }

    /// The groups above `path`, nearest first, the root last.
    pub fn ancestors<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Cgroup> {
        let mut rest = path;
        std::iter::from_fn(move || {
            if rest == "/" || rest.is_empty() {
                return None;
            }
            let cut = rest.rfind('/')?;
            rest = if cut == 0 { "/" } else { &rest[..cut] };
            Some(rest)
        })
        .filter_map(move |path| self.at(path))
    }
}

/// A limit that may be `max`. Version 1's 2^63-ish "no limit" is `Max` as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// No limit.
    #[default]
    Max,
    /// A limit of this many bytes.
    At(Bytes),
}

impl Limit {
    /// The limit in bytes; `None` for `max`.
    pub fn bytes(self) -> Option<Bytes> {
        match self {
            Limit::Max => None,
            Limit::At(bytes) => Some(bytes),
        }
    }

    /// Version 1 has no word for "no limit" and prints the largest number that its counters hold. From 4.0 on
    /// (`PAGE_COUNTER_MAX`) that is 2^63 rounded down to a page, or to a huge page for limits on huge pages;
    /// before (`RES_COUNTER_MAX`) it is 2^63 - 1 or 2^64 - 1. No limit of 4 EiB or more is meant as one.
    const UNLIMITED: u64 = 1 << 62;

    /// Reads `max` or a number of bytes; `None` if it is neither.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        match text.trim_ascii() {
            b"max" => Some(Limit::Max),
            digits => decimal(digits)
                .map(|bytes| if bytes >= Self::UNLIMITED { Limit::Max } else { Limit::At(Bytes(bytes)) }),
        }
    }

    /// Reads a file that holds one limit (`memory.max`, `memory.limit_in_bytes`, `hugetlb.2MB.max`).
    pub fn parse_file(text: &[u8], log: &mut Log) -> Option<Self> {
        let limit = Self::from_text(text);
        if limit.is_none() {
            log.whole(ProblemKind::Malformed, "neither max nor a number of bytes");
        }
        limit
    }
}

/// Prints the limit as version 2 does.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Max => f.pad("max"),
            Limit::At(bytes) => f.pad(&bytes.0.to_string()),
        }
    }
}

/// Reads `memory.stat` of either version. A `hierarchical_*_limit` of version 1 is left out if a counter
/// cannot hold it (2^64 - 1, printed before 4.0 for a group without a limit).
pub fn parse_memory_stat(text: &[u8], log: &mut Log) -> Values<MemoryStat> {
    let mut values = Values::default();
    let mut hint = 0;
    for (number, line) in lines(text) {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match field(line, b' ') {
            Ok((name, value)) => values.record(name, value, &mut hint),
            Err(_) if is_no_limit(line) => {}
            Err(why) => log.malformed(number, why),
        }
    }
    values
}

fn is_no_limit(line: &[u8]) -> bool {
    line.starts_with(b"hierarchical_")
        && cut(line, b' ').is_some_and(|(_, value)| decimal(value.trim_ascii()) == Some(u64::MAX))
}

/// Reads `memory.events` or `memory.events.local` (v2).
pub fn parse_memory_events(text: &[u8], log: &mut Log) -> Values<MemoryEvents> {
    Values::parse(text, |bad| log.malformed(bad.line, bad.why))
}

/// Reads `oom_kill` of version 1's `memory.oom_control` (4.13 and later). The other lines of that file are
/// switches, not events (`mm/memcontrol-v1.c:mem_cgroup_oom_control_read`).
pub fn parse_oom_control(text: &[u8]) -> Option<Values<MemoryEvents>> {
    let kills = flat_keyed(text, "oom_kill")?;
    let mut events = Values::default();
    events.set(memory_events::oom_kill, kills);
    Some(events)
}

/// The number after `key` in a file of `key number` lines: `nr_dying_descendants` of `cgroup.stat`, `max` of
/// `hugetlb.2MB.events`.
pub fn flat_keyed(text: &[u8], key: &str) -> Option<u64> {
    text.split(|&b| b == b'\n').find_map(|line| {
        let (name, value) = cut(line, b' ')?;
        if name == key.as_bytes() { decimal(value.trim_ascii()) } else { None }
    })
}

/// `nr_dying_descendants` of `cgroup.stat` (v2, 4.14 and later): groups that were removed but still hold
/// memory.
pub fn dying_descendants(text: &[u8]) -> Option<u64> {
    flat_keyed(text, "nr_dying_descendants")
}

/// Reads a huge page size as the files of the hugetlb controller have it in their names: `64KB`, `2MB`, `1GB`
/// (powers of 1024, `mm/hugetlb_cgroup.c:mem_fmt`).
pub fn hugetlb_size(name: &str) -> Option<Bytes> {
    let (digits, unit) = leading_digits(name.as_bytes());
    let unit = match unit {
        b"KB" => KIB,
        b"MB" => MIB,
        b"GB" => GIB,
        _ => return None,
    };
    decimal(digits)?.checked_mul(unit).filter(|&bytes| bytes > 0).map(Bytes)
}

/// Prints a huge page size as [`hugetlb_size`] reads it, in the largest unit that it reaches.
pub fn hugetlb_size_name(size: Bytes) -> String {
    match size.0 {
        bytes if bytes >= GIB => format!("{}GB", bytes / GIB),
        bytes if bytes >= MIB => format!("{}MB", bytes / MIB),
        bytes => format!("{}KB", bytes / KIB),
    }
}

/// Splits the name of a file of the hugetlb controller: `hugetlb.2MB.rsvd.max` is 2 MiB and `rsvd.max`.
pub fn hugetlb_file(name: &str) -> Option<(Bytes, &str)> {
    let (size, file) = name.strip_prefix("hugetlb.")?.split_once('.')?;
    Some((hugetlb_size(size)?, file))
}

/// A file that holds one limit; it parses as `max` if it cannot be read.
impl File for Limit {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        Limit::parse_file(text, log).unwrap_or_default()
    }

    fn print(&self, out: &mut String) {
        out.push_str(&self.to_string());
        out.push('\n');
    }
}

/// One group. Fields that its version or kernel lacks are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cgroup {
    /// Path from the hierarchy's root, `/` for the root itself.
    pub path: String,
    /// `memory.current`, v1 `memory.usage_in_bytes`.
    pub current: Option<Bytes>,
    /// `memory.max`, v1 `memory.limit_in_bytes`.
    pub max: Option<Limit>,
    /// `memory.high` (v2).
    pub high: Option<Limit>,
    /// `memory.low` (v2).
    pub low: Option<Limit>,
    /// `memory.min` (v2).
    pub min: Option<Limit>,
    /// `memory.soft_limit_in_bytes` (v1).
    pub soft_limit: Option<Limit>,
    /// `memory.peak`, v1 `memory.max_usage_in_bytes`.
    pub peak: Option<Bytes>,
    /// `memory.swap.current`; v1: memsw usage less memory usage.
    pub swap_current: Option<Bytes>,
    /// `memory.swap.max`; v1: `memory.memsw.limit_in_bytes` (memory and swap together).
    pub swap_max: Option<Limit>,
    /// `memory.swappiness` (v1).
    pub swappiness: Option<u64>,
    /// `memory.failcnt` (v1).
    pub failcnt: Option<u64>,
    /// `memory.oom.group` (v2).
    pub oom_group: Option<bool>,
    /// `memory.stat`.
    pub stat: Option<Values<MemoryStat>>,
    /// `memory.events` (v2), v1 `memory.oom_control`'s `oom_kill`.
    pub events: Option<Values<MemoryEvents>>,
    /// `memory.pressure` (v2).
    pub pressure: Option<Psi>,
    /// Limits on huge pages, per page size.
    pub hugetlb: Vec<HugetlbLimit>,
}

/// `hugetlb.<size>.*` of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HugetlbLimit {
    /// Page size.
    pub size: Bytes,
    /// `current`, v1 `usage_in_bytes`.
    pub current: Option<Bytes>,
    /// `max`, v1 `limit_in_bytes`: checked at fault, where failing means SIGBUS.
    pub max: Limit,
    /// `rsvd.max`, v1 `rsvd.limit_in_bytes`: checked at mmap, where failing means ENOMEM.
    pub reserved_max: Option<Limit>,
    /// `events`: how often `max` was hit; v1 `failcnt`.
    pub events_max: Option<u64>,
}

#[cfg(test)]
mod tests {
    use crate::counters::memory_stat;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{corrupted, round_trip};

    #[test]
    fn every_spelling_of_no_limit() {
        let texts = [
            "max\n",
            "9223372036854771712\n",  // 4 KiB pages
            "9223372036854710272\n",  // 64 KiB pages
            "9223372035781033984\n",  // hugetlb.1GB.limit_in_bytes
            "9223372036854775807\n",  // 2.6.32, 3.10
            "18446744073709551615\n", // 3.13
        ];
        for text in texts {
            assert_eq!(Limit::from_text(text.as_bytes()), Some(Limit::Max), "{text}");
        }
        assert_eq!(Limit::from_text(b"1073741824\n"), Some(Limit::At(Bytes::gib(1))));
        assert_eq!(Limit::from_text(b"0\n"), Some(Limit::At(Bytes::ZERO)));
        for text in ["", "\n", "-1", "maximum", "1 2", "99999999999999999999"] {
            let mut log = Log::default();
            assert_eq!(Limit::parse_file(text.as_bytes(), &mut log), None, "{text}");
            assert_eq!(log.problems().len(), 1);
        }
    }

    #[test]
    fn memory_stat_of_3_13_without_a_limit() {
        let text = b"cache 4096\nanon 8192\nhierarchical_memory_limit 18446744073709551615\n\
            total_cache 99999999999999999999\n";
        let mut log = Log::default();
        let stat = parse_memory_stat(text, &mut log);
        assert_eq!(stat.get(memory_stat::anon), Some(8192));
        let lines: Vec<_> = log.problems().iter().map(|p| p.line).collect();
        assert_eq!(lines, [Some(4)]);
    }

    #[test]
    fn events_of_either_version() {
        let mut log = Log::default();
        let v2 =
            parse_memory_events(b"low 0\nhigh 7\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n", &mut log);
        assert_eq!(v2.get(memory_events::oom_kill), Some(1));
        let v1 = parse_oom_control(b"oom_kill_disable 0\nunder_oom 1\noom_kill 5\n");
        assert_eq!(v1.and_then(|events| events.get(memory_events::oom_kill)), Some(5));
        assert_eq!(parse_oom_control(b"oom_kill_disable 0\nunder_oom 0\n"), None);
        assert_eq!(log.problems(), []);
    }

    #[test]
    fn keyed_numbers() {
        let text = b"nr_descendants 41\nnr_subsys_memory 40\nnr_dying_descendants 1203\n";
        assert_eq!(dying_descendants(text), Some(1203));
        assert_eq!(dying_descendants(b"nr_descendants 41\nnr_dying_descendants"), None);
        assert_eq!(flat_keyed(b"max 17\n", "max"), Some(17));
        assert_eq!(flat_keyed(b"", "max"), None);
    }

    #[test]
    fn names_of_huge_page_sizes() {
        for (name, size) in [("64KB", Bytes::kib(64)), ("2MB", Bytes::mib(2)), ("1GB", Bytes::gib(1))] {
            assert_eq!(hugetlb_size(name), Some(size));
            assert_eq!(hugetlb_size_name(size), name);
        }
        for name in ["", "MB", "2", "2mb", "0KB", "2MBB", "99999999999999999999GB", "18446744073709551615GB"]
        {
            assert_eq!(hugetlb_size(name), None, "{name}");
        }
        assert_eq!(hugetlb_file("hugetlb.2MB.rsvd.max"), Some((Bytes::mib(2), "rsvd.max")));
        assert_eq!(hugetlb_file("hugetlb.1GB.limit_in_bytes"), Some((Bytes::gib(1), "limit_in_bytes")));
        assert_eq!(hugetlb_file("memory.max"), None);
    }

    proptest! {
        #[test]
        fn prints_what_it_reads(bytes in proptest::option::of(0..Limit::UNLIMITED)) {
            round_trip(&bytes.map_or(Limit::Max, |bytes| Limit::At(Bytes(bytes))));
        }

        #[test]
        fn huge_page_sizes_round_trip(order in 10u32..40) {
            let size = Bytes(1 << order);
            prop_assert_eq!(hugetlb_size(&hugetlb_size_name(size)), Some(size));
        }

        #[test]
        fn survives_hostile_input(text in corrupted(b"cache 1\nhierarchical_memory_limit 18446744073709551615\noom_kill 3\n")) {
            let mut log = Log::default();
            parse_memory_stat(&text, &mut log);
            parse_memory_events(&text, &mut log);
            parse_oom_control(&text);
            Limit::parse_file(&text, &mut log);
        }
    }
}
