//! Tables worked out by hand: one culprit, two, the payer itself, what is held, nothing, the unknown.

use std::sync::Arc;

use lotsfree_run::{
    Facts, Histogram, Interval, Measured, Memory, Run, Sink as _, Spent, State, Toll, Window,
};

use super::rule::{alpha, weights};
use super::*;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

/// A row: actor, milliseconds of CPU, milliseconds of reclaim, and its toll with times in milliseconds.
type Row = (&'static str, u64, u64, Toll);

/// A run of intervals of one second.
fn run_with(intervals: &[&[Row]], facts: Facts) -> Run {
    let mut memory = Memory::default();
    for (from, rows) in (0..).zip(intervals) {
        let row = |(actor, user, reclaim, toll): &Row| Interval {
            from: from * SECOND,
            at: (from + 1) * SECOND,
            actor: Arc::from(*actor),
            role: Arc::from(""),
            operations: 0,
            errors: 0,
            latency: Histogram::default(),
            spent: Spent {
                user: user * MS,
                reclaim: reclaim * MS,
                io: (toll.thrashing + toll.swap_in) * MS,
                system: toll.compaction * MS,
                ..Spent::default()
            },
            major_faults: 0,
            minor_faults: 0,
            toll: Toll {
                thrashing: toll.thrashing * MS,
                swap_in: toll.swap_in * MS,
                compaction: toll.compaction * MS,
                ..*toll
            },
        };
        memory.intervals(&rows.iter().map(row).collect::<Vec<_>>()).unwrap();
    }
    memory.finish(facts, "", State::Complete)
}

fn run(intervals: &[&[Row]]) -> Run {
    run_with(intervals, Facts { page_size: 4096, ..Facts::default() })
}

/// A run in which every interval is the same.
fn alike(rows: &[Row], intervals: usize) -> Run {
    run(&vec![rows; intervals])
}

/// Who took from the first payer, with shares in thousandths.
fn taken(blame: &Blame) -> Vec<(Who, f64)> {
    let charges = blame.payers.first().map(|payer| payer.taken_by.clone()).unwrap_or_default();
    if !charges.is_empty() {
        assert_eq!(charges.iter().map(|charge| charge.share).sum::<f64>(), 1.0, "exactly");
        assert_eq!(charges.iter().rev().map(|charge| charge.share).sum::<f64>(), 1.0, "in any order");
    }
    charges.into_iter().map(|charge| (charge.who, (charge.share * 1000.0).round())).collect()
}

fn actor(name: &str) -> Who {
    Who::Actor(name.to_owned())
}

fn took(allocated: u64) -> Toll {
    Toll { allocated, ..Toll::default() }
}

#[test]
fn one_culprit_has_all_of_it() {
    let database = Toll { thrashing: 300, allocated: 50, refaults: 50, ..Toll::default() };
    let blame = Blame::of(&alike(&[("db", 600, 100, database), ("copy", 900, 0, took(1000))], 3), None);
    assert_eq!(taken(&blame), [(actor("copy"), 1000.0), (Who::Itself, 0.0), (Who::Unknown, 0.0)]);
    let [payer] = blame.payers.as_slice() else { panic!("{blame:?}") };
    assert_eq!(
        (payer.cost.actor.as_str(), payer.cost.awake_ns, payer.cost.lost_ns),
        ("db", 3000 * MS, 1200 * MS)
    );
    assert_eq!(payer.cost.lost, 0.4);
    let parts = Parts { thrashing: Some(0.3), reclaim: 0.1, compaction: Some(0.0), swap_in: Some(0.0) };
    assert_eq!((payer.cost.parts, payer.cost.refaults), (parts, Some(150)));
    assert_eq!(payer.taken_by[0].error, Some(0.0), "all intervals are alike");
    assert_eq!(blame.spared.iter().map(|cost| cost.actor.as_str()).collect::<Vec<_>>(), ["copy"]);
    let takers: Vec<(&str, u64, u64)> =
        blame.takers.iter().map(|taker| (taker.actor.as_str(), taker.cost_ns, taker.new_bytes)).collect();
    assert_eq!(takers, [("copy", 1200 * MS, 3000 * 4096), ("db", 0, 0)]);
}

#[test]
fn two_culprits_and_the_payer_share_by_what_was_new_at_the_time() {
    // Direct reclaim: 100 ms at 300 : 100 : 100, then 300 ms at 0 : 200 : 0.
    let (first, second) = (("db", 900, 100, took(100)), ("db", 700, 300, took(0)));
    let blame = Blame::of(
        &run(&[
            &[first, ("copy", 1, 0, took(300)), ("leak", 1, 0, took(100))],
            &[second, ("copy", 1, 0, took(0)), ("leak", 1, 0, took(200))],
        ]),
        None,
    );
    // copy 60, leak 20 + 300, itself 20, of 400.
    let expected = [(actor("leak"), 800.0), (actor("copy"), 150.0), (Who::Itself, 50.0), (Who::Unknown, 0.0)];
    assert_eq!(taken(&blame), expected);
    // Residuals of leak: 20 − 0.8 · 100 and 300 − 0.8 · 300, so sqrt(2 / 1 · 2 · 60²) / 400.
    let error = blame.payers[0].taken_by[0].error.unwrap();
    assert!((error - 120.0 / 400.0).abs() < 1e-5, "{error}");
}

#[test]
fn waits_for_what_was_evicted_are_charged_by_all_that_was_taken_until_then() {
    let waits =
        |thrashing, swap_in| Toll { thrashing, swap_in, refaults: 10, allocated: 10, ..Toll::default() };
    let blame = Blame::of(
        &run(&[
            &[("db", 1000, 0, waits(0, 0)), ("copy", 1, 0, took(300)), ("leak", 1, 0, took(100))],
            &[("db", 800, 0, waits(150, 50)), ("leak", 1, 0, took(200))],
            &[("db", 900, 0, waits(100, 0))],
        ]),
        None,
    );
    assert_eq!(
        taken(&blame),
        [(actor("copy"), 500.0), (actor("leak"), 500.0), (Who::Itself, 0.0), (Who::Unknown, 0.0)]
    );
}

#[test]
fn who_comes_back_to_the_room_that_a_program_left_had_lost_it_to_that_program() {
    let waits = |thrashing, back| Toll { thrashing, refaults: back, allocated: back, ..Toll::default() };
    let gave_back = Toll { returned: 1000, ..Toll::default() };
    let blame = Blame::of(
        &run(&[
            &[("db", 1000, 0, waits(0, 0)), ("storm", 1, 0, took(1000))],
            // All that was taken has been given back: 1000, of which 250 are allocated again.
            &[("db", 900, 0, waits(100, 250)), ("storm", 1, 0, gave_back)],
            // 750 : 250, then 500 : 750; nothing of the room is left after that.
            &[("db", 900, 0, waits(100, 0)), ("copy", 1, 0, took(250))],
            &[("db", 900, 0, waits(100, 0)), ("copy", 1, 0, took(500))],
            &[("db", 800, 0, waits(200, 10))],
        ]),
        None,
    );
    // storm 100 + 75 + 40, copy 25 + 60 + 200, of 500.
    assert_eq!(
        taken(&blame),
        [(actor("copy"), 570.0), (actor("storm"), 430.0), (Who::Itself, 0.0), (Who::Unknown, 0.0)]
    );
}

#[test]
fn what_a_program_gives_back_it_had_even_if_nobody_saw_it_take_it() {
    // The storm ends what it had begun before the watch: the database comes back to the room. What it takes
    // after that counts in full.
    let ends = Toll { returned: 495, ..Toll::default() };
    let back = |thrashing| Toll { thrashing, refaults: 495, allocated: 500, ..Toll::default() };
    let blame = Blame::of(
        &run(&[
            &[("db", 900, 0, back(100)), ("storm", 1, 0, ends)],
            &[("db", 900, 0, back(100)), ("storm", 1, 0, took(990))],
        ]),
        None,
    );
    // 495 : 5 of the first half, 990 : 10 of the second.
    assert_eq!(taken(&blame), [(actor("storm"), 990.0), (Who::Itself, 10.0), (Who::Unknown, 0.0)]);
}

#[test]
fn who_holds_more_than_at_first_has_taken_at_least_that() {
    let waits = Toll { thrashing: 100, refaults: 90, allocated: 100, ..Toll::default() };
    // The leak seems to have given back what it took.
    let grows = |held, allocated| Toll { held, allocated, returned: allocated, ..Toll::default() };
    let taken_if = |allocated: u64| {
        let first: [Row; 2] = [("db", 1000, 0, took(0)), ("leak", 1, 0, grows(50, 0))];
        let then: [Row; 2] = [("db", 900, 0, waits), ("leak", 1, 0, grows(1040, allocated))];
        taken(&Blame::of(&run(&[&first, &then]), None))
    };
    assert_eq!(taken_if(990), [(actor("leak"), 990.0), (Who::Itself, 10.0), (Who::Unknown, 0.0)]);
    // A fork seems to hold all that its parent has.
    assert_eq!(taken_if(90), [(actor("leak"), 900.0), (Who::Itself, 100.0), (Who::Unknown, 0.0)]);
}

#[test]
fn who_lives_alone_took_it_itself() {
    let toll = Toll { thrashing: 200, allocated: 500, refaults: 100, held: 9, ..Toll::default() };
    let blame = Blame::of(&alike(&[("db", 700, 100, toll)], 2), Some("db"));
    assert_eq!(taken(&blame), [(Who::Itself, 1000.0), (Who::Unknown, 0.0)]);
    assert_eq!(blame.takers[0].cost_ns, 0, "nobody else paid");
}

#[test]
fn where_pages_only_come_back_those_that_hold_memory_are_charged() {
    let database = Toll { thrashing: 400, allocated: 100, refaults: 100, held: 250, ..Toll::default() };
    let cache = Toll { held: 750, ..Toll::default() };
    let blame = Blame::of(&alike(&[("db", 600, 0, database), ("cache", 1, 0, cache)], 2), None);
    assert_eq!(taken(&blame), [(actor("cache"), 750.0), (Who::Itself, 250.0), (Who::Unknown, 0.0)]);
}

#[test]
fn a_trickle_of_new_pages_is_charged_in_proportion() {
    // 5 of 100 pages are new: half by new (all copy's), half by what is held (1 : 3).
    let database = Toll { swap_in: 400, allocated: 95, refaults: 95, held: 100, ..Toll::default() };
    let copy = Toll { allocated: 5, held: 300, ..Toll::default() };
    let blame = Blame::of(&run(&[&[("db", 600, 0, database), ("copy", 1, 0, copy)]]), None);
    assert_eq!(taken(&blame), [(actor("copy"), 875.0), (Who::Itself, 125.0), (Who::Unknown, 0.0)]);
    assert_eq!(blame.payers[0].taken_by[0].error, None, "one interval has no spread");
    assert_eq!(
        (alpha(5.0, 100.0), alpha(10.0, 100.0), alpha(90.0, 100.0), alpha(0.0, 0.0)),
        (0.5, 1.0, 1.0, 0.0)
    );
}

#[test]
fn without_any_page_that_is_known_nobody_is_charged() {
    assert_eq!(weights(&[0.0, 0.0], &[0.0, 0.0], 0.5), [0.0, 0.0, 1.0]);
    assert_eq!(weights(&[3.0, 1.0], &[0.0, 0.0], 0.5), [0.75, 0.25, 0.0]);
    assert_eq!(weights(&[0.0, 0.0], &[3.0, 1.0], 0.5), [0.75, 0.25, 0.0]);
    let blame = Blame::of(&alike(&[("db", 900, 100, Toll::default())], 2), None);
    assert_eq!(taken(&blame), [(Who::Itself, 0.0), (Who::Unknown, 1000.0)]);
    assert!(!blame.is_toll_known);
    let unknown = Parts { thrashing: None, reclaim: 0.1, compaction: None, swap_in: None };
    assert_eq!((blame.payers[0].cost.parts, blame.payers[0].cost.refaults), (unknown, None));
}

#[test]
fn who_lost_next_to_nothing_is_no_payer() {
    let toll = |thrashing| Toll { thrashing, ..took(1000) };
    let rows: &[Row] = &[("big", 2000, 0, toll(19)), ("small", 1, 0, toll(4)), ("asleep", 0, 0, toll(0))];
    let blame = Blame::of(&run(&[rows; 2]), None);
    assert_eq!(blame.payers, []);
    let spared: Vec<(&str, u64)> =
        blame.spared.iter().map(|cost| (cost.actor.as_str(), cost.lost_ns / MS)).collect();
    assert_eq!(spared, [("big", 38), ("small", 8), ("asleep", 0)], "0.9 % of its time, and 8 ms");
    assert_eq!((blame.intervals, blame.seconds, blame.actors), (2, 2.0, 3));
}

#[test]
fn only_the_actor_that_is_asked_for_is_told_of() {
    let lost = Toll { thrashing: 300, ..took(10) };
    let rows: &[Row] = &[("a", 500, 0, lost), ("b", 500, 0, lost), ("copy", 1, 0, took(80))];
    let blame = Blame::of(&run(&[rows; 2]), Some("b"));
    assert_eq!(blame.payers.iter().map(|payer| payer.cost.actor.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(taken(&blame)[0], (actor("copy"), 800.0));
    assert!(blame.spared.is_empty());
    let nobody = Blame::of(&run(&[rows; 2]), Some("c"));
    assert!(nobody.payers.is_empty() && nobody.spared.is_empty());
}

#[test]
fn what_a_row_without_a_name_took_is_unknown() {
    let rows: &[Row] = &[("db", 900, 100, took(0)), ("copy", 1, 0, took(600)), ("", 0, 0, took(200))];
    let blame = Blame::of(&run(&[rows; 3]), None);
    assert_eq!(taken(&blame), [(actor("copy"), 750.0), (Who::Itself, 0.0), (Who::Unknown, 250.0)]);
    assert!((blame.unseen - 0.25).abs() < 1e-9, "{}", blame.unseen);
    assert_eq!((blame.actors, blame.takers.len()), (2, 1));
}

#[test]
fn two_that_push_each_other_out_blame_each_other() {
    let back = |pages| Toll { thrashing: 300, refaults: pages, allocated: pages, ..Toll::default() };
    let blame = Blame::of(&alike(&[("one", 600, 0, back(500)), ("other", 600, 0, back(400))], 3), None);
    let first: Vec<&Who> = blame.payers.iter().map(|payer| &payer.taken_by[0].who).collect();
    assert_eq!(first, [&actor("other"), &actor("one")]);
    assert!(blame.payers.iter().all(|payer| payer.taken_by[0].share == 1.0));
}

#[test]
fn programs_below_another_limit_have_nothing_to_do_with_it() {
    let lost = Toll { thrashing: 300, refaults: 50, allocated: 50, ..Toll::default() };
    let rows: &[Row] = &[("db", 600, 0, lost), ("copy", 1, 0, took(900)), ("tar", 1, 0, took(100))];
    let limits = |actor: &str| if actor == "copy" { "/backup" } else { "/db" };
    let mut memory = Memory::default();
    let limited: Vec<Interval> = (alike(rows, 3).intervals().iter())
        .map(|row| Interval { role: limits(&row.actor).into(), ..row })
        .collect();
    memory.intervals(&limited).unwrap();
    let blame = Blame::of(&memory.finish(Facts::default(), "", State::Complete), None);
    assert_eq!(taken(&blame), [(actor("tar"), 1000.0), (Who::Itself, 0.0), (Who::Unknown, 0.0)]);
    assert_eq!(blame.payers[0].cost.limited_by, "/db");
}

#[test]
fn only_the_measured_part_counts() {
    let facts = Facts {
        page_size: 4096,
        measure: Measured { baseline: None, window: Some(Window { from: SECOND, to: 2 * SECOND }) },
        ..Facts::default()
    };
    let warm: &[Row] = &[("db", 100, 900, took(100_000))];
    let measured: &[Row] = &[("db", 900, 100, took(0)), ("copy", 1, 0, took(5))];
    let blame = Blame::of(&run_with(&[warm, measured, warm], facts), None);
    assert_eq!((blame.intervals, blame.seconds), (1, 1.0));
    assert_eq!(blame.payers[0].cost.lost, 0.1);
    assert_eq!(taken(&blame)[0], (actor("copy"), 1000.0));
}
