//! Tests of the measures of runs whose figures are known.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use lotsfree_kernel_files::counters::{Counter, Values, zoneinfo};
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_run::{
    Event, EventKind, Facts, Figures, Histogram, Interval, Measured, Memory, Run, Sample, Sink, Spent, State,
    Summary, Window,
};

use common::facts;

const SECOND: u64 = 1_000_000_000;

/// Samples at 0, 1, …, 10 s. The reader does 100 requests of 1 ms each second up to 4 s, then 25 of 8 ms.
/// Free pages fall by 100 a second from 1000, past low (450) and min (250). `counters` are names in
/// `/proc/vmstat` and their growth per second, from 1000 on.
fn run(measure: Measured, counters: &[(&str, u64)]) -> Run {
    let mut memory = Memory::default();
    for second in 0..=10u64 {
        let mut sample = Sample { at: second * SECOND, ..Sample::default() };
        for (name, rate) in counters {
            sample.vmstat.set(Counter::named(name).unwrap(), 1000 + rate * second);
        }
        sample.vmstat.set(Counter::named("nr_active_file").unwrap(), 10 * second);
        let mut zone = Zone { name: "Normal".into(), ..Zone::default() };
        let marks = [
            (zoneinfo::free, 1000 - 100 * second),
            (zoneinfo::min, 250),
            (zoneinfo::low, 450),
            (zoneinfo::high, 650),
        ];
        marks.into_iter().for_each(|(mark, value)| zone.marks.set(mark, value));
        let mut unmarked = Zone { node: 0, name: "DMA32".into(), ..Zone::default() };
        marks.into_iter().for_each(|(mark, _)| unmarked.marks.set(mark, 0));
        // As Debian's 6.12 prints it.
        let mut empty = Zone { node: 0, name: "Movable".into(), ..Zone::default() };
        marks.into_iter().for_each(|(mark, _)| empty.marks.set(mark, 32));
        [zoneinfo::free, zoneinfo::present].into_iter().for_each(|mark| empty.marks.set(mark, 0));
        sample.zones = vec![zone, unmarked, empty];
        memory.sample(&sample).unwrap();
        if second == 0 {
            continue;
        }
        let (operations, ns) = if second <= 4 { (100, 1_000_000) } else { (25, 8_000_000) };
        let mut latency = Histogram::default();
        latency.record_many(ns, operations);
        let interval = Interval {
            from: (second - 1) * SECOND,
            at: second * SECOND,
            actor: "graphdb".into(),
            role: "reader".into(),
            operations,
            errors: 1,
            latency,
            spent: Spent { io: second, ..Spent::default() },
            major_faults: 3,
            minor_faults: 0,
            toll: lotsfree_run::Toll::default(),
        };
        memory.intervals(&[interval]).unwrap();
    }
    let kill = |at| Event::new(at, EventKind::OomKill, "copy", None);
    memory.event(&kill(9 * SECOND)).unwrap();
    memory.finish(Facts { measure, ..facts() }, "", State::Complete)
}

fn window(from: u64, to: u64) -> Option<Window> {
    Some(Window { from: from * SECOND, to: to * SECOND })
}

#[test]
fn windows_are_measured_and_compared() {
    let measure = Measured { baseline: window(0, 4), window: window(6, 10) };
    let summary = run(measure, &[("pgscan_direct", 7), ("pswpout", 2)]).summary();
    let baseline = summary.baseline.unwrap();
    assert_eq!(baseline.actors[0].per_second, Some(100.0));
    assert_eq!(baseline.actors[0].relative, None);
    let measured = &summary.measured;
    assert_eq!(Some(measured.window), window(6, 10));
    let reader = &measured.actors[0];
    assert_eq!((&*reader.actor, &*reader.role), ("graphdb", "reader"));
    assert_eq!((reader.operations, reader.errors, reader.major_faults), (100, 4, 12));
    assert_eq!((reader.per_second, reader.relative), (Some(25.0), Some(0.25)));
    assert_eq!(reader.spent.io, 7 + 8 + 9 + 10);
    let latency = reader.latency.unwrap();
    assert_eq!(
        (latency.p50, latency.p999, latency.max, latency.mean),
        (8_000_000, 8_000_000, 8_000_000, 8e6)
    );
    assert_eq!((measured.moved.direct_scan, measured.moved.swap_out), (Some(28), Some(8)));
    assert_eq!((measured.moved.kswapd_scan, measured.moved.swap_in), (None, None));
    let active = measured.levels["vmstat.nr_active_file"];
    assert_eq!((active.first, active.last, active.min, active.mean, active.max), (60, 100, 60, 80.0, 100));
    assert_eq!(summary.oom_kills, 1);
    let whole = &summary.whole;
    assert_eq!((whole.actors[0].operations, whole.actors[0].per_second), (4 * 100 + 6 * 25, Some(55.0)));
    assert_eq!(whole.actors[0].relative, Some(0.55));
    assert_eq!(whole.moved.direct_scan, Some(70));
}

#[test]
fn free_pages_are_compared_with_the_marks() {
    let summary = run(Measured::default(), &[]).summary();
    assert_eq!(summary.measured, summary.whole);
    assert_eq!(summary.baseline, None);
    let [zone] = &summary.whole.zones[..] else { panic!("one zone has pages: {:?}", summary.whole.zones) };
    assert_eq!((zone.node, &*zone.zone, zone.min, zone.low, zone.high), (0, "Normal", 250, 450, 650));
    assert_eq!((zone.free.min, zone.free.max, zone.least_above_low), (0, 1000, -450));
    // Of the eleven samples, 400, 300, 200, 100 and 0 are below low, and 200, 100 and 0 below min.
    assert_eq!((zone.below_low, zone.below_min), (5.0 / 11.0, 3.0 / 11.0));
}

#[test]
fn only_whole_intervals_count() {
    let window = Window { from: SECOND / 2, to: 3 * SECOND + SECOND / 2 };
    let figures = Figures::of(&run(Measured::default(), &[("pgfault", 1)]), Some(window));
    assert_eq!(figures.window, Window { from: SECOND, to: 3 * SECOND });
    assert_eq!(figures.actors[0].per_second, Some(100.0));
    // The change from the last sample before the window, at 0 s, to the last one in it, at 3 s.
    assert_eq!(figures.moved.faults, Some(3));
    let beyond =
        Figures::of(&run(Measured::default(), &[]), Some(Window { from: 20 * SECOND, to: 30 * SECOND }));
    assert_eq!((beyond.actors[0].per_second, beyond.actors[0].latency), (None, None));
}

#[test]
fn counters_of_all_kernels_give_the_same_measures() {
    let moved = |counters: &[(&str, u64)]| run(Measured::default(), counters).summary().whole.moved;
    let new = moved(&[
        ("pgscan_direct", 6),
        ("pgsteal_direct", 3),
        ("pgsteal_kswapd", 5),
        ("allocstall_normal", 1),
    ]);
    let middle = moved(&[
        ("pgscan_direct_dma", 1),
        ("pgscan_direct_normal", 2),
        ("pgscan_direct_high", 3),
        ("pgsteal_direct_dma32", 3),
        ("pgsteal_kswapd_normal", 1),
        ("pgsteal_kswapd_movable", 4),
        ("allocstall", 1),
    ]);
    // Kernels before 3.4 show only the sum of both and kswapd's part.
    let old = moved(&[
        ("pgscan_direct_normal", 6),
        ("pgsteal_normal", 6),
        ("pgsteal_dma", 2),
        ("kswapd_steal", 5),
        ("allocstall", 1),
    ]);
    assert_eq!(new, middle);
    assert_eq!(new, old);
    assert_eq!((new.direct_scan, new.direct_steal, new.kswapd_steal), (Some(60), Some(30), Some(50)));
}

#[test]
fn a_run_without_rows_has_a_summary() {
    let empty = Memory::default().finish(facts(), "", State::Interrupted);
    assert_eq!(empty.remarks(), ["the run was interrupted before its first sample"]);
    let summary = empty.summary();
    assert_eq!(summary.whole, Figures::default());
    let text = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
}

#[test]
fn counters_that_were_reset_are_unknown() {
    let mut memory = Memory::default();
    for (at, text) in [(0, "pgfault 10\npswpin 1\n"), (1, "pgfault 3\npswpin 4\n")] {
        let vmstat = Values::parse(text.as_bytes(), |bad| panic!("{bad:?}"));
        memory.sample(&Sample { at, vmstat, ..Sample::default() }).unwrap();
    }
    let moved = memory.finish(facts(), "", State::Complete).summary().whole.moved;
    assert_eq!((moved.faults, moved.swap_in), (None, Some(3)));
}
