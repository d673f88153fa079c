//! `/sys/devices/system/node/node*`: NUMA nodes.

use std::fmt::Write as _;

use serde::Serialize;

use super::hugepages::HugePool;
use super::scan::{decimal, decimal32, trimmed_lines, words};
use super::zoneinfo::MOST_CPUS;
use crate::Log;
use crate::counters::{Family as _, Meminfo, Numastat, Unit, Values, Vmstat, field};

/// At most this many distances are kept; Linux can be built for 1024 nodes.
const MOST_NODES: usize = 4096;

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Node number.
    pub id: u32,
    /// CPUs of the node, expanded from `cpulist`; empty for a memory-only node.
    pub cpus: Vec<u32>,
    /// `meminfo`, in KiB.
    pub meminfo: Option<Values<Meminfo>>,
    /// `vmstat` (2.6.34 and later).
    pub vmstat: Option<Values<Vmstat>>,
    /// `numastat`, in pages.
    pub numastat: Option<Values<Numastat>>,
    /// `distance` to each online node, in node order.
    pub distance: Vec<u32>,
    /// The node's part of the huge page pools.
    pub huge_pools: Vec<HugePool>,
}

/// Reads `cpulist`: `0-3,8,10-11`, or nothing for a node without CPUs (`lib/vsprintf.c:bitmap_list_string`).
/// The result is ascending. Numbers from 8192 on, which Linux cannot have, are reported and left out.
pub fn parse_cpulist(text: &[u8], log: &mut Log) -> Vec<u32> {
    let mut present = vec![false; MOST_CPUS];
    let mut good = true;
    let text = text.trim_ascii();
    for item in text.split(|&b| b == b',').filter(|_| !text.is_empty()) {
        let range = match item.iter().position(|&b| b == b'-') {
            Some(dash) => decimal(&item[..dash]).zip(decimal(&item[dash + 1..])),
            None => decimal(item).map(|cpu| (cpu, cpu)),
        };
        let range = range.filter(|(first, last)| first <= last);
        let range = range.and_then(|(first, last)| present.get_mut(first as usize..=last as usize));
        match range {
            Some(range) => range.fill(true),
            None => good = false,
        }
    }
    if !good {
        log.malformed(1, "not a list of CPUs such as 0-3,8");
    }
    (0u32..).zip(present).filter(|(_, present)| *present).map(|(cpu, _)| cpu).collect()
}

/// Writes `cpulist` of ascending CPUs.
pub fn print_cpulist(cpus: &[u32], out: &mut String) {
    for (i, run) in cpus.chunk_by(|a, b| a.checked_add(1) == Some(*b)).enumerate() {
        if i > 0 {
            out.push(',');
        }
        let _ = match run {
            [first, .., last] => write!(out, "{first}-{last}"),
            [cpu] => write!(out, "{cpu}"),
            [] => Ok(()),
        };
    }
    out.push('\n');
}

/// Reads `distance`: `10 21`, to each online node in node order (`drivers/base/node.c:distance_show`). The
/// result is empty if any number is malformed, because the others could then not be assigned to nodes.
pub fn parse_distance(text: &[u8], log: &mut Log) -> Vec<u32> {
    let distances: Option<Vec<u32>> = words(text).take(MOST_NODES + 1).map(decimal32).collect();
    match distances {
        Some(distances) if distances.len() <= MOST_NODES => distances,
        _ => {
            log.malformed(1, "not a distance per node");
            Vec::new()
        }
    }
}

/// Writes `distance`.
pub fn print_distance(distances: &[u32], out: &mut String) {
    for (i, distance) in distances.iter().enumerate() {
        let _ = write!(out, "{}{distance}", if i > 0 { " " } else { "" });
    }
    out.push('\n');
}

/// Reads a node's `meminfo`: `Node 0 MemTotal:  123 kB` (`drivers/base/node.c:node_read_meminfo`).
pub fn parse_meminfo(text: &[u8], log: &mut Log) -> Values<Meminfo> {
    let mut values = Values::default();
    let mut hint = 0;
    for (line_number, line) in trimmed_lines(text) {
        let result = without_node(line).ok_or("does not begin with `Node` and its number");
        match result.and_then(|rest| field(rest, Meminfo::SEPARATOR)) {
            Ok((name, value)) => values.record(name, value, &mut hint),
            Err(why) => log.malformed(line_number, why),
        }
    }
    values
}

/// The text after `Node 0 `.
fn without_node(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"Node ")?.trim_ascii_start();
    let end = rest.iter().position(u8::is_ascii_whitespace)?;
    decimal32(&rest[..end])?;
    Some(&rest[end..])
}

/// Writes the `meminfo` of node `id`.
pub fn print_meminfo(id: u32, values: &Values<Meminfo>, out: &mut String) {
    for (counter, value) in values.iter() {
        let name = counter.name();
        let width = 15usize.saturating_sub(name.len());
        let _ = if counter.row().unit == Unit::kib {
            writeln!(out, "Node {id} {name}:{:width$}{value:>8} kB", "")
        } else {
            writeln!(out, "Node {id} {name}:{:width$}{value:>6}", "")
        };
    }
    for (name, value) in values.unknown() {
        let width = 15usize.saturating_sub(name.len());
        let _ = writeln!(out, "Node {id} {name}:{:width$}{value:>8}", "");
    }
}

#[cfg(test)]
mod tests {
    use crate::counters::{meminfo, numastat};
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::hostile;

    /// 6.18.
    const MEMINFO: &str = include_str!("../../tests/data/node0-meminfo-6.18.txt");

    fn with_log<T>(parse: impl Fn(&[u8], &mut Log) -> T, text: &[u8]) -> (T, Vec<u32>) {
        let mut log = Log::default();
        let parsed = parse(text, &mut log);
        (parsed, log.problems().iter().filter_map(|problem| problem.line).collect())
    }

    fn printed(print: impl Fn(&mut String)) -> String {
        let mut out = String::new();
        print(&mut out);
        out
    }

    #[test]
    fn reads_cpu_lists() {
        let list = |text: &str| with_log(parse_cpulist, text.as_bytes());
        assert_eq!(list("0-3,8,10-11\n"), (vec![0, 1, 2, 3, 8, 10, 11], vec![]));
        assert_eq!(list("\n"), (vec![], vec![]));
        assert_eq!(list("7"), (vec![7], vec![]));
        assert_eq!(list("0-8191").0.len(), MOST_CPUS);
        assert_eq!(list("0-18446744073709551615,3"), (vec![3], vec![1]));
        assert_eq!(list("3-1,8192,x,,5-,2"), (vec![2], vec![1]));
    }

    #[test]
    fn reads_distances() {
        assert_eq!(with_log(parse_distance, b"10 21 31 31\n"), (vec![10, 21, 31, 31], vec![]));
        assert_eq!(with_log(parse_distance, b"10 far"), (vec![], vec![1]));
        assert_eq!(with_log(parse_distance, "10 ".repeat(MOST_NODES + 1).as_bytes()), (vec![], vec![1]));
    }

    #[test]
    fn reads_meminfo_of_a_node() {
        let (values, problems) = with_log(parse_meminfo, MEMINFO.as_bytes());
        assert_eq!(problems, [0; 0]);
        assert_eq!(values.iter().count() + values.unknown().len(), MEMINFO.lines().count());
        let total = MEMINFO.lines().next().and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
        assert!(total.is_some());
        assert_eq!(values.get(meminfo::MemTotal), total);
        // Two fields of RHEL 6 (2.6.32), one line of another file, and one that was cut.
        let old =
            b"Node 1 MemTotal:      25149440 kB\nNode 1 HugePages_Free:     12\nMemFree: 3 kB\nNode 1 MemF";
        let (values, problems) = with_log(parse_meminfo, old);
        assert_eq!(problems, [3, 4]);
        assert_eq!(values.get(meminfo::MemTotal), Some(25_149_440));
        assert_eq!(values.get(meminfo::HugePages_Free), Some(12));
        assert_eq!(values.iter().count(), 2);
    }

    #[test]
    fn prints_meminfo_in_the_kernels_columns() {
        let (values, _) = with_log(parse_meminfo, MEMINFO.as_bytes());
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&printed(|out| print_meminfo(0, &values, out))), sorted(MEMINFO));
    }

    #[test]
    fn numastat_is_names_and_values() {
        let text =
            b"numa_hit 6743749\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 1119\nlocal_node 6743749\nother";
        let mut bad = Vec::new();
        let values = Values::<Numastat>::parse(text, |line| bad.push(line.line));
        assert_eq!(values.get(numastat::interleave_hit), Some(1119));
        assert_eq!((values.get(numastat::other_node), bad), (None, vec![6]));
        assert_eq!(
            Values::parse(printed(|out| values.print(out)).as_bytes(), |bad| panic!("{bad:?}")),
            values
        );
    }

    proptest! {
        #[test]
        fn cpulist_round_trip(cpus in btree_set(0..MOST_CPUS as u32, 0..200), from in 0u32..8000) {
            let mut cpus = cpus;
            cpus.extend(from..from + 100);
            let cpus: Vec<u32> = cpus.into_iter().collect();
            let text = printed(|out| print_cpulist(&cpus, out));
            prop_assert_eq!(with_log(parse_cpulist, text.as_bytes()), (cpus, vec![]));
        }

        #[test]
        fn distance_round_trip(distances in vec(any::<u32>(), 0..64)) {
            let text = printed(|out| print_distance(&distances, out));
            prop_assert_eq!(with_log(parse_distance, text.as_bytes()), (distances, vec![]));
        }

        #[test]
        fn meminfo_settles(text in hostile(MEMINFO), id: u32) {
            let (values, _) = with_log(parse_meminfo, &text);
            let again = printed(|out| print_meminfo(id, &values, out));
            prop_assert_eq!(with_log(parse_meminfo, again.as_bytes()), (values, vec![]));
        }

        #[test]
        fn meminfo_round_trip(pairs in vec((0..Meminfo::ROWS.len(), 0..u64::MAX), 0..40), other: u32, id: u32) {
            let (mut values, mut hint) = (Values::<Meminfo>::default(), 0);
            for (row, value) in pairs {
                values.record(Meminfo::ROWS[row].name.as_bytes(), value, &mut hint);
            }
            values.record(b"ZzNew(anon)", u64::from(other), &mut hint);
            let text = printed(|out| print_meminfo(id, &values, out));
            prop_assert_eq!(with_log(parse_meminfo, text.as_bytes()), (values, vec![]));
        }

        #[test]
        fn survives_any_bytes(text in hostile("0-3,8,10-11\n10 21\n0-8191")) {
            let (cpus, _) = with_log(parse_cpulist, &text);
            prop_assert!(cpus.len() <= MOST_CPUS && cpus.is_sorted());
            let again = printed(|out| print_cpulist(&cpus, out));
            prop_assert_eq!(with_log(parse_cpulist, again.as_bytes()), (cpus, vec![]));
            let (distances, problems) = with_log(parse_distance, &text);
            prop_assert!(problems.is_empty() || distances.is_empty());
        }
    }
}
