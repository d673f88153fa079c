//! Runs that nothing distinguishes: how near they are to each other, and what to vary where all of them are.

use std::collections::BTreeSet;

use lotsfree_units::Percent;
use lotsfree_units::words::enumeration;

use super::tail::{self, Percentiles, Tail};
use super::{Account, COUNT_NOISE, FEW, RATE_NOISE, count, freed};
use crate::view::{Comparison, View};

/// Keys by which variants differ are named up to this many.
const MOST_KEYS: usize = 3;

/// By which shares runs differ that nothing distinguishes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Nearness {
    throughput: Option<f64>,
    p99: Option<f64>,
    /// One of the runs was in a control group, whose version 1 counts neither scans nor swapping.
    in_group: bool,
}

/// How near a run is to another; `None` if something distinguishes them, or if one of them has no measured
/// part to compare. Of repeats, what lies within their ranges does not.
pub(super) fn nearness(run: &Account, base: &Account) -> Option<Nearness> {
    let is_none = |one: &Account| {
        one.oom_kills > 0 || one.work.refused > 0 || !one.is_measured() || one.unreached.is_some()
    };
    if run.all().chain(base.all()).any(is_none) || run.idle_pool.is_some() != base.idle_pool.is_some() {
        return None;
    }
    let both = |read: &dyn Fn(&Account) -> Option<f64>| {
        [run, base].map(|account| account.all().filter_map(read).collect::<Vec<f64>>())
    };
    let rates = both(&|account| account.work.per_second());
    let known = rates.iter().all(|rates| !rates.is_empty());
    let counts: [&dyn Fn(&Account) -> u64; 6] = [
        &|account| count(account.moved.direct_scan),
        &|account| count(account.moved.kswapd_scan),
        &|account| count(account.moved.swap_in),
        &|account| count(account.moved.swap_out),
        &|account| account.major_faults(),
        &|account| count(account.moved.limit_hits),
    ];
    let same_count = |read: &dyn Fn(&Account) -> u64| {
        let [a, b] = both(&|account| Some(read(account) as f64));
        !tail::differ(&a, &b, COUNT_NOISE, FEW as f64)
    };
    let same = !tail::differ(&rates[0], &rates[1], RATE_NOISE, 0.0)
        && !matches!(tail::compare(&run.percentiles(), &base.percentiles(), ""), Tail::Differs(_))
        && (known || run.sampled)
        && counts.into_iter().all(same_count);
    let apart = |[a, b]: [Vec<f64>; 2]| {
        let (a, b) = (tail::middle(&a)?, tail::middle(&b)?);
        Some((a - b).abs() / a.abs().max(b.abs()).max(f64::MIN_POSITIVE))
    };
    let p99 = both(&|account| Percentiles::of(&account.work.latency).p99());
    let in_group = run.in_group || base.in_group;
    same.then(|| Nearness { throughput: apart(rates), p99: apart(p99), in_group })
}

impl Nearness {
    pub(super) fn text(self) -> String {
        let apart = |what: &str, by: f64| {
            // Percentages have at least a hundredth.
            if by < 0.00005 { format!("equal {what}") } else { format!("{what} within {}", Percent(by)) }
        };
        let mut differences = Vec::new();
        differences.extend(self.throughput.map(|by| apart("throughput", by)));
        differences.extend(self.p99.map(|by| apart("p99 latency", by)));
        let counted =
            if self.in_group { "faults and meetings with the limit" } else { "scans, faults and swapping" };
        differences.push(format!("{counted} within {}", Percent(COUNT_NOISE)));
        differences.join(", ")
    }

    /// Of both the larger difference.
    fn or_further(self, other: Nearness) -> Nearness {
        let larger = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (one, other) => one.or(other),
        };
        Nearness {
            throughput: larger(self.throughput, other.throughput),
            p99: larger(self.p99, other.p99),
            in_group: self.in_group || other.in_group,
        }
    }
}

/// What to say once where nothing distinguishes any run from the first at its value of the sweep, and what to
/// vary then; `None` if something does, if a run ended before its measured part, or if there is only one run
/// to show.
pub fn all_alike(comparison: &Comparison<'_>) -> Option<String> {
    if comparison.views.iter().flat_map(View::all).any(|view| view.unreached().is_some()) {
        return None;
    }
    let mut all: Option<Nearness> = None;
    for view in &comparison.views {
        let Some(base) = comparison.baseline(view) else { continue };
        let (run, base) = (Account::of(view), Account::of(base));
        let near = nearness(&run, &base)?;
        all = Some(all.map_or(near, |all| all.or_further(near)));
    }
    let views: Vec<&View<'_>> = comparison.columns().collect();
    let near = all.filter(|_| views.len() > 1)?;
    let everywhere = if comparison.sweep.is_some() { ", at every value of the sweep" } else { "" };
    let which = match views.len() {
        2 => "Both runs".to_owned(),
        n => format!("All {n} runs"),
    };
    // What is outside of the measured part is not compared, and may differ.
    let outside = |view: &View<'_>| {
        view.outside.as_ref().is_some_and(|(before, after)| freed(before) >= FEW || freed(after) >= FEW)
    };
    let part = if comparison.views.iter().any(outside) { " in the measured part" } else { "" };
    Some(format!(
        "{which} came out alike{part}{everywhere}: {}. {}.",
        near.text(),
        to_vary(comparison, &views)
    ))
}

/// What to vary so that runs might differ, by what happened in them.
fn to_vary(comparison: &Comparison<'_>, views: &[&View<'_>]) -> String {
    let keys = differing_keys(views);
    let setting = match keys.as_slice() {
        [] => "another setting".to_owned(),
        keys if keys.len() > MOST_KEYS => "another setting than those that the variants change".to_owned(),
        keys => format!("another setting than {}", enumeration(keys)),
    };
    // A kernel that does not count scans may have reclaimed.
    let calm = |view: &View<'_>| {
        let moved = &view.summary.whole.moved;
        moved
            .direct_scan
            .zip(moved.kswapd_scan)
            .is_some_and(|(direct, kswapd)| direct.saturating_add(kswapd) < FEW)
    };
    if !comparison.views.iter().flat_map(View::all).all(calm) {
        return format!(
            "To see a difference, try a longer run (`duration` and `measure.window`), less memory (`machine.nodes`) \
             or {setting}"
        );
    }
    format!(
        "No run looked for memory, so that {setting} cannot make a difference either: take less memory \
         (`machine.nodes`), a larger workload or a longer run (`duration` and `measure.window`)"
    )
}

/// Keys of the scenario by which the runs that are shown differ.
fn differing_keys(views: &[&View<'_>]) -> Vec<String> {
    let all: BTreeSet<&String> = views.iter().flat_map(|view| view.keys.keys()).collect();
    let differ = |key: &&&String| {
        let values: BTreeSet<Option<&String>> = views.iter().map(|view| view.keys.get(**key)).collect();
        values.len() > 1
    };
    all.iter().filter(differ).map(|key| format!("`{key}`")).collect()
}
