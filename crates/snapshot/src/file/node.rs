//! `/sys/devices/system/node/node*`: NUMA nodes.

use std::fmt::Write as _;

use lotsfree_counters::{Family as _, Meminfo, Numastat, Unit, Values, Vmstat, field};
use serde::Serialize;

use super::hugepages::HugePool;
use super::zoneinfo::{MOST_CPUS, lines, number, number32, words};
use crate::Log;

/// At most this many distances are kept; Linux can be built for 1024 nodes.
const MOST_NODES: usize = 4096;

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its number.
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

/// Reads `cpulist`: `0-3,8,10-11`, or nothing for a node without CPUs (`lib/vsprintf.c:bitmap_list_string`). The
/// result is ascending. CPUs from 8192 on, which Linux cannot have, are reported and left out.
pub fn parse_cpulist(text: &[u8], log: &mut Log) -> Vec<u32> {
    let mut present = vec![false; MOST_CPUS];
    let mut good = true;
    let text = text.trim_ascii();
    for item in text.split(|&b| b == b',').filter(|_| !text.is_empty()) {
        let range = match item.iter().position(|&b| b == b'-') {
            Some(dash) => number(&item[..dash]).zip(number(&item[dash + 1..])),
            None => number(item).map(|cpu| (cpu, cpu)),
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

/// Reads `distance`: `10 21`, to each online node in node order (`drivers/base/node.c:distance_show`). Empty if
/// any of it makes no sense, as the rest could not be told to belong to which node.
pub fn parse_distance(text: &[u8], log: &mut Log) -> Vec<u32> {
    let distances: Option<Vec<u32>> = words(text).take(MOST_NODES + 1).map(number32).collect();
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
    for (line_number, line) in lines(text) {
        let result = without_node(line).ok_or("does not begin with `Node` and its number");
        match result.and_then(|rest| field(rest, Meminfo::SEPARATOR)) {
            Ok((name, value)) => values.record(name, value, &mut hint),
            Err(why) => log.malformed(line_number, why),
        }
    }
    values
}

/// What follows `Node 0 `.
fn without_node(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"Node ")?.trim_ascii_start();
    let end = rest.iter().position(u8::is_ascii_whitespace)?;
    number32(&rest[..end])?;
    Some(&rest[end..])
}

/// Writes the `meminfo` of node `id`.
pub fn print_meminfo(id: u32, values: &Values<Meminfo>, out: &mut String) {
    for (counter, value) in values.iter() {
        let name = format_args!("{}:", counter.name());
        let _ = if counter.row().unit == Unit::kib {
            writeln!(out, "Node {id} {name:<15} {value:>8} kB")
        } else {
            writeln!(out, "Node {id} {name:<15} {value:>5}")
        };
    }
    for (name, value) in values.unknown() {
        let _ = writeln!(out, "Node {id} {:<15} {value:>8}", format_args!("{name}:"));
    }
}

/// Reads a node's `numastat`, in pages (`drivers/base/node.c:node_read_numastat`).
pub fn parse_numastat(text: &[u8], log: &mut Log) -> Values<Numastat> {
    Values::parse(text, |bad| log.malformed(bad.line, bad.why))
}

/// Writes a node's `numastat`.
pub fn print_numastat(values: &Values<Numastat>, out: &mut String) {
    values.print(out);
}

/// Reads a node's `vmstat` (`drivers/base/node.c:node_read_vmstat`, 2.6.34 and later).
pub fn parse_vmstat(text: &[u8], log: &mut Log) -> Values<Vmstat> {
    Values::parse(text, |bad| log.malformed(bad.line, bad.why))
}

/// Writes a node's `vmstat`.
pub fn print_vmstat(values: &Values<Vmstat>, out: &mut String) {
    values.print(out);
}
