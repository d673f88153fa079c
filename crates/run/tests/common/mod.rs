//! Runs for the tests.
#![allow(dead_code, reason = "each test file uses a part")]

use std::path::Path;
use std::sync::Arc;

use lotsfree_kernel_files::counters::{Counter, Family, Values, status, zoneinfo};
use lotsfree_kernel_files::file::cgroup::Limit;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_kernel_files::file::zoneinfo::{Pageset, Zone};
use lotsfree_run::{
    Attached, Event, EventKind, Facts, Histogram, Interval, Limits, NodeSample, ProcessSample, Sample, Sink,
    Spent, StageMemory, Toll,
};
use lotsfree_units::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

/// The rows of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) samples: Vec<Sample>,
    pub(crate) intervals: Vec<Vec<Interval>>,
    pub(crate) events: Vec<Event>,
}

impl Rows {
    pub(crate) fn write(&self, sink: &mut impl Sink) {
        self.events.iter().for_each(|event| sink.event(event).unwrap());
        for (index, sample) in self.samples.iter().enumerate() {
            sink.sample(sample).unwrap();
            if let Some(rows) = self.intervals.get(index) {
                sink.intervals(rows).unwrap();
            }
        }
    }
}

/// A run of a few rows that has one of everything, in few bytes.
pub(crate) fn small(rows: u64) -> Rows {
    let mut all = Rows::default();
    for row in 0..rows {
        let mut sample = Sample { at: row * 1_000_000_000, ..Sample::default() };
        let set = |values: &mut Values<_>, name, value| values.set(Counter::named(name).unwrap(), value);
        set(&mut sample.vmstat, "pgscan_direct", row * row * 1000);
        set(&mut sample.vmstat, "pgfault", 10 + row);
        sample.meminfo.set(Counter::named("MemFree").unwrap(), 1_000_000 - row);
        let mut zone = Zone { name: "Normal".into(), protection: vec![0, 0], ..Zone::default() };
        zone.marks.set(zoneinfo::free, 100 + row);
        zone.marks.set(zoneinfo::present, 5000);
        zone.node_stats = Some(Values::parse(b"nr_inactive_file 7\nnr_from_the_future 1\n", |_| {}));
        if row > 0 {
            sample.swaps.push(SwapArea {
                path: "/swap.img".into(),
                kind: "file".into(),
                size: Bytes::mib(64),
                used: Bytes(4096 * row),
                priority: -1,
            });
        }
        sample.zones.push(zone);
        all.samples.push(sample);
        let mut latency = Histogram::default();
        (0..row).for_each(|n| latency.record(1000 + n * 777));
        all.intervals.push(vec![Interval {
            from: row.saturating_sub(1) * 1_000_000_000,
            at: row * 1_000_000_000,
            actor: "graphdb".into(),
            role: "reader".into(),
            operations: row,
            errors: 0,
            latency,
            spent: Spent { user: row, io: 3, ..Spent::default() },
            major_faults: 1,
            minor_faults: 2,
            toll: Toll { thrashing: 2, refaults: row, held: 1000 + row, ..Toll::default() },
        }]);
    }
    let (kind, what) = (EventKind::Mark, "copy begins".to_owned());
    let mark = Event::new(5, kind, what, Some("copy".to_owned()));
    let memory = Some(StageMemory { size: 4096, resident: 1024 });
    all.events.push(Event { faults: Some(9), memory, ..mark });
    all
}

pub(crate) fn facts() -> Facts {
    Facts {
        lotsfree: "0.1.0".to_owned(),
        title: "A test".to_owned(),
        kernel: "linux-6.1".to_owned(),
        osrelease: "6.1.0".to_owned(),
        cpus: 2,
        page_size: 4096,
        interval: 1_000_000_000,
        duration: 10_000_000_000,
        uptime: 60.0,
        ..Facts::default()
    }
}

/// The contents of a directory, by name.
pub(crate) fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// Some counters of a family, and now and then one that the table does not have.
fn values<F: Family>() -> impl Strategy<Value = Values<F>> {
    let known = vec((0..F::ROWS.len(), number()), 0..6);
    (known, prop::option::of(0u64..9)).prop_map(|(known, unknown)| {
        let mut values = Values::default();
        for (index, value) in known {
            values.set(Counter::named(F::ROWS[index].name).unwrap(), value);
        }
        if let Some(value) = unknown {
            values.record(b"nr_from_the_future", value, &mut 0);
        }
        values
    })
}

/// Numbers of all magnitudes, except the one value that no counter can have.
fn number() -> impl Strategy<Value = u64> {
    (0u32..64, 0..u64::MAX).prop_map(|(shift, value)| value >> shift)
}

fn zone(node: u32, name: &'static str) -> impl Strategy<Value = Zone> {
    let marks = vec((0..lotsfree_kernel_files::counters::Zoneinfo::ROWS.len(), number()), 0..5);
    let pagesets = vec((number(), number(), number()), 0..3);
    (marks, values(), vec(number(), 0..4), pagesets, number()).prop_map(
        move |(marks, stats, protection, pagesets, free)| {
            let mut zone = Zone { node, name: name.into(), stats, protection, ..Zone::default() };
            for (index, value) in marks {
                zone.marks.set(
                    Counter::named(lotsfree_kernel_files::counters::Zoneinfo::ROWS[index].name).unwrap(),
                    value,
                );
            }
            zone.marks.set(zoneinfo::free, free);
            let set = |(cpu, (count, high, batch))| Pageset { cpu, count, high, batch };
            zone.pagesets = (0..).zip(pagesets).map(set).collect();
            zone
        },
    )
}

fn process() -> impl Strategy<Value = ProcessSample> {
    let some = || prop::option::of(any::<u64>());
    let bound = || any::<u64>().prop_map(|bytes| Limit::At(Bytes(bytes & !1)));
    let limit = move || prop::option::of(prop_oneof![Just(Limit::Max), bound()]);
    let faults = prop::option::of([any::<u64>(), any::<u64>()]);
    (values(), some(), faults, limit(), limit(), limit(), vec(any::<u64>(), 0..3)).prop_map(
        |(mut status, capabilities, faults, memlock, address_space, data, addresses)| {
            // A process without a value leaves no column that shows that it was there.
            status.set(status::VmSize, 7);
            let limits = Limits { memlock, address_space, data };
            let attached = (0..).zip(addresses).map(|(shmid, address)| Attached { shmid, address }).collect();
            ProcessSample { pid: 0, name: "db".into(), status, capabilities, faults, limits, attached }
        },
    )
}

fn segment() -> impl Strategy<Value = ShmSegment> {
    let some = || prop::option::of(any::<u64>().prop_map(Bytes));
    (any::<u64>(), any::<u32>(), any::<u64>(), some(), some()).prop_map(|(size, uid, nattch, rss, swap)| {
        ShmSegment { size: Bytes(size), perms: 0o600, uid, nattch, rss, swap, ..ShmSegment::default() }
    })
}

fn sample() -> impl Strategy<Value = Sample> {
    let zones = (zone(0, "DMA"), zone(0, "Normal"), zone(1, "Normal"));
    let swap = prop::option::of((number(), number(), any::<i32>()));
    let group = (values(), values(), prop::option::of(number()));
    let spaces = (vec(process(), 0..3), vec(segment(), 0..3));
    let more = (group, spaces);
    (values(), values(), zones, vec(prop::option::of(values()), 2), vec((values(), values()), 2), swap, more)
        .prop_map(
            |(
                meminfo,
                vmstat,
                zones,
                node_stats,
                nodes,
                swap,
                ((group, events, failcnt), (processes, segments)),
            )| {
                let mut zones = vec![zones.0, zones.1, zones.2];
                for (node, stats) in (0u32..).zip(node_stats) {
                    let populated =
                        |zone: &&mut Zone| zone.marks.get(zoneinfo::present).is_some_and(|pages| pages > 0);
                    let place = match zones.iter_mut().filter(|zone| zone.node == node).find(populated) {
                        Some(zone) => zone,
                        None => zones.iter_mut().find(|zone| zone.node == node).unwrap(),
                    };
                    // A block without a counter leaves no column that shows that it was there.
                    place.node_stats = stats.filter(|stats: &Values<_>| !stats.is_empty());
                }
                let nodes =
                    (0..).zip(nodes).map(|(id, (meminfo, numastat))| NodeSample { id, meminfo, numastat });
                let nodes = nodes.filter(|node| !(node.meminfo.is_empty() && node.numastat.is_empty()));
                let swaps = swap.map(|(size, used, priority)| SwapArea {
                    path: "/dev/disk.1/swap space".into(),
                    kind: "partition".into(),
                    size: Bytes(size),
                    used: Bytes(used),
                    priority,
                });
                Sample {
                    at: 0,
                    meminfo,
                    vmstat,
                    zones,
                    nodes: nodes.collect(),
                    swaps: swaps.into_iter().collect(),
                    group,
                    events,
                    failcnt,
                    // A number is given once.
                    processes: (100..)
                        .zip(processes)
                        .map(|(pid, process)| ProcessSample { pid, ..process })
                        .collect(),
                    segments: (0..)
                        .zip(segments)
                        .map(|(shmid, segment)| ShmSegment { shmid, ..segment })
                        .collect(),
                }
            },
        )
}

fn interval() -> impl Strategy<Value = Interval> {
    (prop::sample::select(vec!["a", "b.c", "ü"]), "[a-z]{0,3}", vec(any::<u64>(), 18), vec(number(), 0..9))
        .prop_map(|(actor, role, numbers, latencies)| {
            let mut latency = Histogram::default();
            latencies.into_iter().for_each(|value| latency.record(value));
            Interval {
                from: 0,
                at: 0,
                actor: Arc::from(actor),
                role: Arc::from(role),
                operations: numbers[0],
                errors: numbers[1],
                latency,
                spent: Spent {
                    user: numbers[2],
                    system: numbers[3],
                    reclaim: numbers[4],
                    io: numbers[5],
                    throttled: numbers[6],
                    runnable: numbers[7],
                    idle: numbers[8],
                },
                major_faults: numbers[9],
                minor_faults: numbers[10],
                toll: Toll {
                    thrashing: numbers[11],
                    swap_in: numbers[12],
                    compaction: numbers[13],
                    refaults: numbers[14],
                    allocated: numbers[15],
                    returned: numbers[16],
                    held: numbers[17],
                },
            }
        })
}

/// Rows with any contents, in the order of time.
pub(crate) fn rows() -> impl Strategy<Value = Rows> {
    let kind = prop::sample::select(vec![EventKind::Mark, EventKind::OomKill, EventKind::Note]);
    let event = (any::<u64>(), kind, "(?s).{0,20}", prop::option::of("[a-z\n]{0,5}"))
        .prop_map(|(at, kind, what, actor)| Event::new(at, kind, what, actor));
    (vec((sample(), vec(interval(), 0..3)), 0..6), vec(event, 0..3)).prop_map(|(rows, events)| {
        let mut all = Rows { events, ..Rows::default() };
        for (at, (mut sample, mut intervals)) in (0..).step_by(250).zip(rows) {
            sample.at = at;
            for interval in &mut intervals {
                (interval.from, interval.at) = (at.saturating_sub(250), at);
            }
            all.samples.push(sample);
            all.intervals.push(intervals);
        }
        all
    })
}
