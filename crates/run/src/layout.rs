//! Conversion between a [`Sample`] and the columns of a row.
//!
//! The files of a run directory are listed in `lib.rs`, the columns of its tables in `table.rs` (samples) and
//! `interval.rs` (actors), the format's version is `store.rs:FORMAT`. A column that is a counter has the
//! counter's unit (`docs/counters.md`); times are nanoseconds. The scenario's `interval` is that of samples.

use std::fmt::Write as _;

use lotsfree_kernel_files::counters::{Counter, Family, Values, Zoneinfo, zoneinfo};
use lotsfree_kernel_files::file::cgroup::Limit;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_kernel_files::file::zoneinfo::{Pageset, Zone};
use lotsfree_units::Bytes;

use crate::{Attached, Column, NodeSample, ProcessSample, Sample};

/// Name of the column of times.
pub(crate) const AT: &str = "at";
/// Name of the column of `memory.failcnt` and `memory.memsw.failcnt`.
const FAILCNT: &str = "cgroup-failcnt";

/// The name of a column, in two parts: most samples have the columns of the one before, for which it is
/// enough to compare.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    place: &'a str,
    counter: &'a str,
}

impl<'a> From<&'a str> for Name<'a> {
    fn from(counter: &'a str) -> Self {
        Name { place: "", counter }
    }
}

impl Name<'_> {
    /// Whether this is the whole name.
    #[inline]
    pub(crate) fn is(self, whole: &str) -> bool {
        let Name { place, counter } = self;
        whole.len() == place.len() + counter.len() && whole.ends_with(counter) && whole.starts_with(place)
    }

    pub(crate) fn whole(self) -> String {
        [self.place, self.counter].concat()
    }
}

/// Calls `cell` for every column of a sample, in the order of the columns.
pub(crate) fn visit(sample: &Sample, cell: &mut impl FnMut(Name<'_>, u64)) {
    cell(AT.into(), sample.at);
    values(&sample.meminfo, "meminfo.", cell);
    values(&sample.vmstat, "vmstat.", cell);
    let mut place = String::with_capacity(80);
    for zone in &sample.zones {
        named(&mut place, format_args!("zoneinfo.{}.{}.", zone.node, zone.name));
        values(&zone.marks, &place, cell);
        values(&zone.stats, &place, cell);
        let zone_ends = place.len();
        place.push_str("protection.");
        for (index, value) in zone.protection.iter().enumerate() {
            cell(Name { place: &place, counter: &index.to_string() }, *value);
        }
        for Pageset { cpu, count, high, batch } in &zone.pagesets {
            place.truncate(zone_ends);
            let _ = write!(place, "cpu.{cpu}.");
            for (counter, value) in [("count", count), ("high", high), ("batch", batch)] {
                cell(Name { place: &place, counter }, *value);
            }
        }
        if let Some(stats) = &zone.node_stats {
            named(&mut place, format_args!("node.{}.", zone.node));
            values(stats, &place, cell);
        }
    }
    for node in &sample.nodes {
        named(&mut place, format_args!("node.{}.meminfo.", node.id));
        values(&node.meminfo, &place, cell);
        named(&mut place, format_args!("node.{}.numastat.", node.id));
        values(&node.numastat, &place, cell);
    }
    for area in &sample.swaps {
        named(&mut place, format_args!("swap.{}.{}.", area.kind, area.path));
        let parts = [("size", area.size.0), ("used", area.used.0), ("priority", bits(area.priority))];
        for (counter, value) in parts {
            cell(Name { place: &place, counter }, value);
        }
    }
    values(&sample.group, "cgroup.", cell);
    values(&sample.events, "cgroup-events.", cell);
    if let Some(failcnt) = sample.failcnt {
        cell(FAILCNT.into(), failcnt);
    }
    for process in &sample.processes {
        named(&mut place, format_args!("process.{}.{}.", process.pid, process.name));
        values(&process.status, &place, cell);
        parts(&PROCESS, process, &place, cell);
        place.push_str("shm.");
        for Attached { shmid, address } in &process.attached {
            cell(Name { place: &place, counter: &shmid.to_string() }, *address);
        }
    }
    for segment in &sample.segments {
        named(&mut place, format_args!("shm.{}.", segment.shmid));
        parts(&SEGMENT, segment, &place, cell);
    }
}

/// A column of a process or of a segment: its name, and how its value is read and set.
struct Part<T> {
    name: &'static str,
    get: fn(&T) -> Option<u64>,
    put: fn(&mut T, u64),
}

/// The columns of a process that are no lines of its `status` in KiB.
static PROCESS: [Part<ProcessSample>; 6] = [
    Part { name: "CapEff", get: |of| of.capabilities, put: |of, bits| of.capabilities = Some(bits) },
    Part {
        name: "minflt",
        get: |of| of.faults.map(|[minor, _]| minor),
        put: |of, faults| of.faults.get_or_insert_default()[0] = faults,
    },
    Part {
        name: "majflt",
        get: |of| of.faults.map(|[_, major]| major),
        put: |of, faults| of.faults.get_or_insert_default()[1] = faults,
    },
    Part {
        name: "limit.memlock",
        get: |of| of.limits.memlock.map(rlim),
        put: |of, bytes| of.limits.memlock = Some(limit(bytes)),
    },
    Part {
        name: "limit.as",
        get: |of| of.limits.address_space.map(rlim),
        put: |of, bytes| of.limits.address_space = Some(limit(bytes)),
    },
    Part {
        name: "limit.data",
        get: |of| of.limits.data.map(rlim),
        put: |of, bytes| of.limits.data = Some(limit(bytes)),
    },
];

/// The columns of a segment.
static SEGMENT: [Part<ShmSegment>; 5] = [
    Part { name: "size", get: |of| Some(of.size.0), put: |of, bytes| of.size = Bytes(bytes) },
    Part { name: "uid", get: |of| Some(of.uid.into()), put: |of, uid| of.uid = uid as u32 },
    Part { name: "nattch", get: |of| Some(of.nattch), put: |of, times| of.nattch = times },
    Part { name: "rss", get: |of| Some(of.rss?.0), put: |of, bytes| of.rss = Some(Bytes(bytes)) },
    Part { name: "swap", get: |of| Some(of.swap?.0), put: |of, bytes| of.swap = Some(Bytes(bytes)) },
];

/// A limit as `struct rlimit64` has it, in which `RLIM64_INFINITY` is none.
fn rlim(limit: Limit) -> u64 {
    limit.bytes().map_or(u64::MAX, |bytes| bytes.0)
}

fn limit(rlim: u64) -> Limit {
    if rlim == u64::MAX { Limit::Max } else { Limit::At(Bytes(rlim)) }
}

fn parts<T>(parts: &[Part<T>], of: &T, place: &str, cell: &mut impl FnMut(Name<'_>, u64)) {
    for Part { name: counter, get, .. } in parts {
        if let Some(value) = get(of) {
            cell(Name { place, counter }, value);
        }
    }
}

/// Replaces a text.
fn named(place: &mut String, name: std::fmt::Arguments<'_>) {
    place.clear();
    let _ = place.write_fmt(name);
}

/// Extends a negative priority to 64 bits, so that it is the same number in a signed column.
fn bits(priority: i32) -> u64 {
    i64::from(priority).cast_unsigned()
}

fn values<F: Family>(values: &Values<F>, place: &str, cell: &mut impl FnMut(Name<'_>, u64)) {
    values.iter().for_each(|(counter, value)| cell(Name { place, counter: counter.name() }, value));
    for (counter, value) in values.unknown() {
        cell(Name { place, counter }, *value);
    }
}

/// A counter, either one that the table of counters has or an unknown one.
enum Line<F> {
    Known(Counter<F>),
    Unknown(Box<str>),
}

impl<F: Family> Line<F> {
    fn of(name: &str) -> Self {
        Counter::named(name).map_or_else(|| Line::Unknown(name.into()), Line::Known)
    }

    fn put(&self, values: &mut Values<F>, value: u64) {
        match self {
            Line::Known(counter) => values.set(*counter, value),
            Line::Unknown(name) => values.record(name.as_bytes(), value, &mut 0),
        }
    }
}

/// The part of a sample that a column's values belong to. Zones, nodes and swap areas are numbered in the
/// order in which columns name them.
enum Target {
    At,
    Meminfo(Line<lotsfree_kernel_files::counters::Meminfo>),
    Vmstat(Line<lotsfree_kernel_files::counters::Vmstat>),
    Mark(usize, Counter<Zoneinfo>),
    Stat(usize, Line<lotsfree_kernel_files::counters::Vmstat>),
    Protection(usize, usize),
    Pageset(usize, u32, PagesetPart),
    NodeStat(usize, Line<lotsfree_kernel_files::counters::Vmstat>),
    NodeMeminfo(usize, Line<lotsfree_kernel_files::counters::Meminfo>),
    Numastat(usize, Line<lotsfree_kernel_files::counters::Numastat>),
    Swap(usize, SwapPart),
    Group(Line<lotsfree_kernel_files::counters::MemoryStat>),
    GroupEvents(Line<lotsfree_kernel_files::counters::MemoryEvents>),
    Failcnt,
    Status(usize, Line<lotsfree_kernel_files::counters::Status>),
    Process(usize, &'static Part<ProcessSample>),
    /// A segment that a process has attached, by its id.
    Attached(usize, u64),
    Segment(usize, &'static Part<ShmSegment>),
    /// A column that something else wrote.
    Foreign,
}

impl Target {
    /// Whether the values are counters.
    fn is_counter(&self) -> bool {
        match self {
            Target::Meminfo(_)
            | Target::Vmstat(_)
            | Target::Mark(..)
            | Target::Stat(..)
            | Target::NodeStat(..)
            | Target::NodeMeminfo(..)
            | Target::Numastat(..)
            | Target::Group(_)
            | Target::GroupEvents(_)
            | Target::Status(..)
            | Target::Failcnt => true,
            Target::At
            | Target::Protection(..)
            | Target::Pageset(..)
            | Target::Swap(..)
            | Target::Process(..)
            | Target::Attached(..)
            | Target::Segment(..)
            | Target::Foreign => false,
        }
    }
}

#[derive(Clone, Copy)]
enum PagesetPart {
    Count,
    High,
    Batch,
}

#[derive(Clone, Copy)]
enum SwapPart {
    Size,
    Used,
    Priority,
}

/// The most zones in a lowmem reserve; no kernel has more.
const MOST_PROTECTED: usize = 64;

/// Meaning of the columns of a table.
#[derive(Default)]
pub(crate) struct Layout {
    targets: Vec<Target>,
    /// Node and name.
    zones: Vec<(u32, Box<str>)>,
    nodes: Vec<u32>,
    /// Kind and path.
    swaps: Vec<(Box<str>, String)>,
    /// Id and name.
    processes: Vec<(u32, Box<str>)>,
    /// Ids.
    segments: Vec<u64>,
}

/// The most zones, nodes, swap areas, processes or segments that are told apart: 1,024 nodes have four zones
/// each. Each column searches all of them.
const MOST_PLACES: usize = 4096;

/// The position of `item`, which is added if it is new; `None` if there are too many.
fn position<T: PartialEq>(list: &mut Vec<T>, item: T) -> Option<usize> {
    let known = list.iter().position(|known| *known == item);
    known.or_else(|| {
        (list.len() < MOST_PLACES).then(|| {
            list.push(item);
            list.len() - 1
        })
    })
}

impl Layout {
    pub(crate) fn of(columns: &[Column]) -> Self {
        let mut layout = Layout::default();
        for column in columns {
            let target = layout.target(column.name()).unwrap_or(Target::Foreign);
            layout.targets.push(target);
        }
        layout
    }

    fn target(&mut self, name: &str) -> Option<Target> {
        if name == AT {
            return Some(Target::At);
        }
        if name == FAILCNT {
            return Some(Target::Failcnt);
        }
        let (file, rest) = name.split_once('.')?;
        Some(match file {
            "meminfo" => Target::Meminfo(Line::of(rest)),
            "vmstat" => Target::Vmstat(Line::of(rest)),
            "cgroup" => Target::Group(Line::of(rest)),
            "cgroup-events" => Target::GroupEvents(Line::of(rest)),
            "zoneinfo" => {
                let (node, rest) = rest.split_once('.')?;
                let (zone, rest) = rest.split_once('.')?;
                let zone = position(&mut self.zones, (node.parse().ok()?, zone.into()))?;
                in_zone(zone, rest)?
            }
            "node" => {
                let (node, rest) = rest.split_once('.')?;
                let node = position(&mut self.nodes, node.parse().ok()?)?;
                match rest.split_once('.') {
                    Some(("meminfo", name)) => Target::NodeMeminfo(node, Line::of(name)),
                    Some(("numastat", name)) => Target::Numastat(node, Line::of(name)),
                    _ => Target::NodeStat(node, Line::of(rest)),
                }
            }
            "swap" => {
                let (kind, rest) = rest.split_once('.')?;
                let (path, part) = rest.rsplit_once('.')?;
                let part = match part {
                    "size" => SwapPart::Size,
                    "used" => SwapPart::Used,
                    "priority" => SwapPart::Priority,
                    _ => return None,
                };
                Target::Swap(position(&mut self.swaps, (kind.into(), path.to_owned()))?, part)
            }
            "process" => {
                let (pid, rest) = rest.split_once('.')?;
                let (name, rest) = rest.split_once('.')?;
                let process = position(&mut self.processes, (pid.parse().ok()?, name.into()))?;
                match (rest.strip_prefix("shm."), PROCESS.iter().find(|part| part.name == rest)) {
                    (Some(shmid), _) => Target::Attached(process, shmid.parse().ok()?),
                    (None, Some(part)) => Target::Process(process, part),
                    (None, None) => Target::Status(process, Line::of(rest)),
                }
            }
            "shm" => {
                let (shmid, rest) = rest.split_once('.')?;
                let part = SEGMENT.iter().find(|part| part.name == rest)?;
                Target::Segment(position(&mut self.segments, shmid.parse().ok()?)?, part)
            }
            _ => return None,
        })
    }

    /// The zone that is being assembled; `index` is one of [`Layout::zones`].
    fn zone<'z>(&self, zones: &'z mut [Option<Zone>], index: usize) -> &'z mut Zone {
        zones[index].get_or_insert_with(|| {
            let (node, name) = &self.zones[index];
            Zone { node: *node, name: name.clone(), ..Zone::default() }
        })
    }

    /// The node that is being assembled; `index` is one of [`Layout::nodes`].
    fn node<'n>(&self, nodes: &'n mut [Option<NodeSample>], index: usize) -> &'n mut NodeSample {
        nodes[index].get_or_insert_with(|| NodeSample { id: self.nodes[index], ..NodeSample::default() })
    }

    /// The process that is being assembled; `index` is one of [`Layout::processes`].
    fn process<'p>(&self, processes: &'p mut [Option<ProcessSample>], index: usize) -> &'p mut ProcessSample {
        processes[index].get_or_insert_with(|| {
            let (pid, name) = &self.processes[index];
            ProcessSample { pid: *pid, name: name.clone(), ..ProcessSample::default() }
        })
    }

    /// Assembles the sample of a row.
    pub(crate) fn sample(&self, columns: &[Column], row: usize) -> Sample {
        let mut sample = Sample::default();
        let mut zones: Vec<Option<Zone>> = vec![None; self.zones.len()];
        let mut nodes: Vec<Option<NodeSample>> = vec![None; self.nodes.len()];
        let mut stats: Vec<Option<Values<_>>> = vec![None; self.nodes.len()];
        let mut swaps: Vec<Option<SwapArea>> = vec![None; self.swaps.len()];
        let mut processes: Vec<Option<ProcessSample>> = vec![None; self.processes.len()];
        let mut segments: Vec<Option<ShmSegment>> = vec![None; self.segments.len()];
        for (target, column) in self.targets.iter().zip(columns) {
            let Some(value) = column.get(row) else { continue };
            // No counter can have this value ([`Values::set`]). If it were not skipped, a zone with nothing
            // else would appear without a value.
            if value == u64::MAX && target.is_counter() {
                continue;
            }
            match target {
                Target::At => sample.at = value,
                Target::Meminfo(name) => name.put(&mut sample.meminfo, value),
                Target::Vmstat(name) => name.put(&mut sample.vmstat, value),
                Target::Mark(index, counter) => self.zone(&mut zones, *index).marks.set(*counter, value),
                Target::Stat(index, name) => name.put(&mut self.zone(&mut zones, *index).stats, value),
                Target::Protection(index, position) => {
                    let protection = &mut self.zone(&mut zones, *index).protection;
                    protection.resize(protection.len().max(position + 1), 0);
                    protection[*position] = value;
                }
                Target::Pageset(index, cpu, part) => {
                    let set = pageset(&mut self.zone(&mut zones, *index).pagesets, *cpu);
                    match part {
                        PagesetPart::Count => set.count = value,
                        PagesetPart::High => set.high = value,
                        PagesetPart::Batch => set.batch = value,
                    }
                }
                Target::NodeStat(index, name) => name.put(stats[*index].get_or_insert_default(), value),
                Target::NodeMeminfo(index, name) => {
                    name.put(&mut self.node(&mut nodes, *index).meminfo, value)
                }
                Target::Numastat(index, name) => name.put(&mut self.node(&mut nodes, *index).numastat, value),
                Target::Swap(index, part) => {
                    let area = swaps[*index].get_or_insert_with(|| {
                        let (kind, path) = &self.swaps[*index];
                        SwapArea { path: path.clone(), kind: kind.clone(), ..SwapArea::default() }
                    });
                    match part {
                        SwapPart::Size => area.size = Bytes(value),
                        SwapPart::Used => area.used = Bytes(value),
                        // The value was extended from 32 bits.
                        SwapPart::Priority => area.priority = value.cast_signed() as i32,
                    }
                }
                Target::Group(name) => name.put(&mut sample.group, value),
                Target::GroupEvents(name) => name.put(&mut sample.events, value),
                Target::Failcnt => sample.failcnt = Some(value),
                Target::Status(index, name) => {
                    name.put(&mut self.process(&mut processes, *index).status, value)
                }
                Target::Process(index, part) => (part.put)(self.process(&mut processes, *index), value),
                Target::Attached(index, shmid) => {
                    let attached = Attached { shmid: *shmid, address: value };
                    self.process(&mut processes, *index).attached.push(attached)
                }
                Target::Segment(index, part) => {
                    let shmid = self.segments[*index];
                    let segment = segments[*index].get_or_insert_with(|| ShmSegment {
                        shmid,
                        perms: 0o600,
                        ..ShmSegment::default()
                    });
                    (part.put)(segment, value)
                }
                Target::Foreign => {}
            }
        }
        sample.zones = zones.into_iter().flatten().collect();
        for (id, stats) in self.nodes.iter().zip(stats) {
            if let (Some(stats), Some(zone)) = (stats, first_populated(&mut sample.zones, *id)) {
                zone.node_stats = Some(stats);
            }
        }
        sample.nodes = nodes.into_iter().flatten().collect();
        sample.nodes.sort_by_key(|node| node.id);
        sample.swaps = swaps.into_iter().flatten().collect();
        sample.processes = processes.into_iter().flatten().collect();
        sample.segments = segments.into_iter().flatten().collect();
        sample
    }
}

/// The pageset of a CPU, which is added if it is new. The columns of one CPU are next to each other.
fn pageset(pagesets: &mut Vec<Pageset>, cpu: u32) -> &mut Pageset {
    let place = match pagesets.last() {
        Some(last) if last.cpu == cpu => pagesets.len() - 1,
        _ => pagesets.iter().position(|set| set.cpu == cpu).unwrap_or_else(|| {
            pagesets.push(Pageset { cpu, ..Pageset::default() });
            pagesets.len() - 1
        }),
    };
    &mut pagesets[place]
}

/// The zone that shows its node's statistics (`mm/vmstat.c:is_zone_first_populated`); the node's first zone
/// if none is populated.
fn first_populated(zones: &mut [Zone], node: u32) -> Option<&mut Zone> {
    let populated = |zone: &Zone| zone.marks.get(zoneinfo::present).is_some_and(|pages| pages > 0);
    let of_node = |zone: &&Zone| zone.node == node;
    let place = (zones.iter().position(|zone| of_node(&zone) && populated(zone)))
        .or_else(|| zones.iter().position(|zone| of_node(&zone)))?;
    zones.get_mut(place)
}

fn in_zone(zone: usize, rest: &str) -> Option<Target> {
    if let Some(position) = rest.strip_prefix("protection.") {
        let position = position.parse().ok().filter(|position| *position < MOST_PROTECTED)?;
        return Some(Target::Protection(zone, position));
    }
    if let Some((cpu, part)) = rest.strip_prefix("cpu.").and_then(|rest| rest.split_once('.')) {
        let part = match part {
            "count" => PagesetPart::Count,
            "high" => PagesetPart::High,
            "batch" => PagesetPart::Batch,
            _ => return None,
        };
        return Some(Target::Pageset(zone, cpu.parse().ok()?, part));
    }
    Some(match Counter::named(rest) {
        Some(mark) => Target::Mark(zone, mark),
        None => Target::Stat(zone, Line::of(rest)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What people read who open the Parquet files.
    #[test]
    fn every_column_of_the_tables_is_documented_with_its_unit() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sim-and-lab.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("## The columns of a run").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rows: Vec<Vec<&str>> = section
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        let unit = |name: &str| {
            let row = rows.iter().find(|row| row[1].split(", ").any(|known| known.trim_matches('`') == name));
            row.unwrap_or_else(|| panic!("{name} is not documented"))[2]
        };
        for name in crate::intervals::NUMBERS {
            assert!(matches!(unit(name), "ns" | "requests" | "faults" | "pages"), "{name}");
        }
        for name in [
            AT,
            FAILCNT,
            "meminfo.NAME",
            "vmstat.NAME",
            "zoneinfo.NODE.ZONE.NAME",
            "zoneinfo.NODE.ZONE.protection.N",
            "zoneinfo.NODE.ZONE.cpu.CPU.count",
            "node.NODE.NAME",
            "node.NODE.meminfo.NAME",
            "node.NODE.numastat.NAME",
            "swap.KIND.PATH.size",
            "swap.KIND.PATH.priority",
            "cgroup.NAME",
            "cgroup-events.NAME",
            "process.PID.ACTOR.NAME",
            "process.PID.ACTOR.shm.SHMID",
        ] {
            assert!(!unit(name).is_empty(), "{name}");
        }
        let short = |name: &str| format!(".{}", name.rsplit_once("t.").map_or(name, |(_, rest)| rest));
        for name in PROCESS.iter().map(|part| part.name).chain(SEGMENT.iter().map(|part| part.name)) {
            assert!(section.contains(&short(name)), "{name} is not documented");
        }
        assert_eq!((unit(AT), unit("latency_p99")), ("ns", "ns"));
    }

    #[test]
    fn a_value_that_no_counter_holds_makes_no_zone_and_no_node() {
        let names = ["at", "zoneinfo.0.DMA.present", "zoneinfo.1.DMA.present", "node.0.meminfo.MemTotal"];
        let column = |name: &&str| Column::new(name, [Some(7), Some(u64::MAX)]);
        let columns: Vec<Column> = names.iter().map(column).collect();
        let layout = Layout::of(&columns);
        let counted = |row: usize| {
            let sample = layout.sample(&columns, row);
            (sample.at, sample.zones.len(), sample.nodes.len())
        };
        assert_eq!(counted(0), (7, 2, 1));
        assert_eq!(counted(1), (u64::MAX, 0, 0));
    }
}
