//! Which requests took longer than others: the percentiles of two parts compared.
//!
//! Means and medians hide what one request in a thousand meets, so a sentence about a cost looks at the
//! median, at p99, at p99.9 and at the slowest request, and names the one from which on they differ.

use lotsfree_run::Histogram;

use crate::compare::error::{SHORT, Span};
use crate::measure::nanoseconds;

/// A percentile counts only with at least this many requests beyond it: fewer are chance.
const BEYOND: f64 = 5.0;
/// A tail is mentioned by itself only if it is at least this many times the median.
const LONG: f64 = 10.0;
/// It must also be at least this many nanoseconds.
const NOTICEABLE: f64 = 1e6;

/// A percentile, and by which share two of it must differ to be told apart.
struct Percentile {
    quantile: f64,
    who: &'static str,
    /// Who did not notice if this is the first percentile that differs.
    others: &'static str,
    noise: f64,
}

/// Ten percent are three buckets of the histogram. Tails vary with nothing but the seed: over eight seeds
/// each, p99 of quickstart by a quarter around its median, p99.9 and the slowest request of the scenarios
/// that ship mostly by less than a factor of two, and by up to seven where few requests meet a fault. A
/// single run therefore cannot tell more than these bounds; `--repeat` can.
const PERCENTILES: [Percentile; 4] = [
    Percentile { quantile: 0.5, who: "the median request", others: "", noise: 0.10 },
    Percentile { quantile: 0.99, who: "one in a hundred", others: "the median request", noise: 0.25 },
    Percentile { quantile: 0.999, who: "one in a thousand", others: "99 in 100 requests", noise: 0.50 },
    Percentile { quantile: 1.0, who: "the slowest", others: "999 in 1,000 requests", noise: 0.50 },
];

/// The place of the slowest request among them.
const SLOWEST: usize = 3;

/// The percentiles of a part, in nanoseconds, one after the other as in [`PERCENTILES`]; `None` where too few
/// requests ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Percentiles([Option<f64>; 4]);

/// What a comparison of two parts tells.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tail {
    /// One of the parts has too few requests.
    Unknown,
    /// No percentile differs.
    Same,
    /// The medians of one differ, and the repeats of both do not tell whether that is chance.
    Unsure(String),
    /// Some do, and this is how.
    Differs(String),
}

impl Tail {
    /// The clause to append to a sentence.
    pub(super) fn clause(&self) -> String {
        match self {
            Tail::Differs(text) | Tail::Unsure(text) => format!("; {text}"),
            Tail::Unknown | Tail::Same => String::new(),
        }
    }
}

impl Percentiles {
    pub(super) fn of(latency: &Histogram) -> Self {
        let count = latency.count() as f64;
        Percentiles(PERCENTILES.map(|Percentile { quantile, .. }| {
            let whole = quantile == 1.0;
            let enough = whole || count * (1.0 - quantile) >= BEYOND;
            let value = if whole { latency.max() } else { latency.quantile(quantile) };
            value.filter(|_| enough).map(|ns| ns as f64)
        }))
    }

    pub(super) fn p99(&self) -> Option<f64> {
        let [_, p99, ..] = self.0;
        p99
    }

    /// The clause of a part that nothing can be compared with: how far its tail is from its median.
    pub(super) fn alone(&self) -> String {
        let [Some(median), hundredth, thousandth, _] = self.0 else { return String::new() };
        let long = |ns: &f64| *ns >= LONG * median && *ns >= NOTICEABLE;
        let named = [(hundredth, "one in a hundred"), (thousandth, "one in a thousand")];
        let named: Vec<String> = (named.into_iter())
            .filter_map(|(ns, who)| Some(format!("{who} {}", nanoseconds(ns.filter(long)?))))
            .collect();
        if named.is_empty() {
            return String::new();
        }
        format!("; the median request took {}, {}", nanoseconds(median), named.join(", "))
    }
}

/// The first percentile that differs from the undisturbed part's: `p99.9 13.6 ms, undisturbed 3.71 µs`.
pub(super) fn headline(now: &[Percentiles], undisturbed: &[Percentiles]) -> String {
    let differs = |(index, percentile): (usize, &Percentile)| {
        let span = |all: &[Percentiles]| {
            Span::of(all.iter().filter_map(|one| one.0.get(index).copied().flatten()), SHORT)
        };
        let (a, b) = span(now).zip(span(undisturbed))?;
        let name = if index == SLOWEST {
            "latency max".to_owned()
        } else {
            format!("latency p{}", percentile.quantile * 100.0)
        };
        let text = || format!("{name} {}, undisturbed {}", nanoseconds(a.value), nanoseconds(b.value));
        (apart(&a, &b, percentile.noise, SHORT) && !a.overlaps(&b)).then(text)
    };
    let first = PERCENTILES.iter().enumerate().find_map(differs);
    first.unwrap_or_else(|| "latency as undisturbed".to_owned())
}

/// Whether figures of one thing differ from those of another: their medians by more than `noise` of the
/// larger and by more than `floor`, and the ranges of their repeats, if there are any, have nothing in
/// common.
pub(super) fn differ(a: &[f64], b: &[f64], noise: f64, floor: f64) -> bool {
    let spans = Span::of(a.iter().copied(), floor).zip(Span::of(b.iter().copied(), floor));
    spans.is_some_and(|(a, b)| apart(&a, &b, noise, floor) && !a.overlaps(&b))
}

/// Whether medians differ by more than `noise` of the larger and by more than `floor`.
fn apart(a: &Span, b: &Span, noise: f64, floor: f64) -> bool {
    let apart = (a.value - b.value).abs();
    apart > floor && apart > noise * a.value.abs().max(b.value.abs())
}

/// Compares the percentiles of the repeats of one thing with those of another, which `than` names: `before`,
/// `with base`.
pub(super) fn compare(now: &[Percentiles], then: &[Percentiles], than: &str) -> Tail {
    let read = |all: &[Percentiles], index: usize| -> Vec<f64> {
        all.iter().filter_map(|one| one.0.get(index).copied().flatten()).collect()
    };
    let (mut known, mut unsure) = (false, None);
    // Of each percentile that differs: its place, and the medians of both.
    let mut differences: Vec<(usize, f64, f64)> = Vec::new();
    for (index, percentile) in PERCENTILES.iter().enumerate() {
        let span = |all| Span::of(read(all, index), SHORT);
        let Some((a, b)) = span(now).zip(span(then)) else { continue };
        known = true;
        match (apart(&a, &b, percentile.noise, SHORT), a.overlaps(&b)) {
            (true, false) => differences.push((index, a.value, b.value)),
            // Of the slowest request nothing follows then.
            (true, true) if index < SLOWEST => unsure = unsure.or(Some((percentile.who, a, b))),
            _ => {}
        }
    }
    let Some((first, rest)) = differences.split_first() else {
        return match unsure {
            Some((who, a, b)) => Tail::Unsure(format!(
                "the repeats do not tell whether {who} differs: {} against {} {than}, in ranges that overlap",
                nanoseconds(a.value),
                nanoseconds(b.value)
            )),
            None if known => Tail::Same,
            None => Tail::Unknown,
        };
    };
    let ratio = |(_, now, then): &(usize, f64, f64)| (now.max(1.0) / then.max(1.0)).ln();
    let Some(percentile) = PERCENTILES.get(first.0) else { return Tail::Unknown };
    let worse = ratio(first) > 0.0;
    let mut text = String::new();
    if first.0 > 0 && !read(now, first.0 - 1).is_empty() && !read(then, first.0 - 1).is_empty() {
        let others = if worse { "did not notice" } else { "took as long" };
        text = format!("{} {others}, ", percentile.others);
    }
    let times = |(_, now, then): &(usize, f64, f64)| (nanoseconds(*now), nanoseconds(*then));
    let (is, was) = times(first);
    text += &format!("{} took {is} instead of {was} {than}", percentile.who);
    // What is further out is named if it differs by twice as much, or the other way. Of the slowest request
    // alone nothing follows.
    let further = rest.iter().filter(|one| one.0 < SLOWEST).filter(|one| {
        let (here, there) = (ratio(first), ratio(one));
        (here > 0.0) != (there > 0.0) || there.abs() >= here.abs() + 2f64.ln()
    });
    if let Some(one) = further.max_by(|a, b| ratio(a).abs().total_cmp(&ratio(b).abs())) {
        let but = if (ratio(one) > 0.0) == worse { "" } else { "but " };
        let (is, was) = times(one);
        let who = PERCENTILES.get(one.0).map_or("", |percentile| percentile.who);
        text += &format!(", {but}{who} {is} instead of {was}");
    }
    Tail::Differs(text)
}

/// The median.
pub(super) fn middle(figures: &[f64]) -> Option<f64> {
    Span::of(figures.iter().copied(), SHORT).map(|span| span.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many requests of each duration.
    fn part(durations: &[(u64, u64)]) -> [Percentiles; 1] {
        let mut latency = Histogram::default();
        durations.iter().for_each(|(ns, requests)| latency.record_many(*ns, *requests));
        [Percentiles::of(&latency)]
    }

    fn said(now: &[(u64, u64)], then: &[(u64, u64)]) -> String {
        match compare(&part(now), &part(then), "with off") {
            Tail::Differs(text) => text,
            other => format!("{other:?}"),
        }
    }

    const FLAT: &[(u64, u64)] = &[(3_000, 100_000)];

    #[test]
    fn the_first_percentile_that_differs_is_named_and_who_did_not_notice() {
        assert_eq!(
            said(&[(3_000, 99_800), (172_000_000, 200)], &[(3_000, 99_800), (459_000, 200)]),
            "99 in 100 requests did not notice, one in a thousand took 172 ms instead of 459 µs with off"
        );
        assert_eq!(
            said(&[(3_000, 98_000), (2_000_000, 2_000)], FLAT),
            "the median request did not notice, one in a hundred took 2.00 ms instead of 3.00 µs with off"
        );
        assert_eq!(
            said(&[(3_000, 99_990), (9_000_000, 10)], FLAT),
            "999 in 1,000 requests did not notice, the slowest took 9.00 ms instead of 3.00 µs with off"
        );
        assert_eq!(said(FLAT, FLAT), "Same");
    }

    #[test]
    fn a_tail_that_is_further_off_than_the_median_is_named_beside_it() {
        assert_eq!(
            said(&[(6_000, 99_800), (172_000_000, 200)], FLAT),
            "the median request took 6.01 µs instead of 3.00 µs with off, one in a thousand 172 ms instead of 3.00 µs"
        );
        assert_eq!(
            said(&[(6_000, 100_000)], &[(3_000, 99_800), (172_000_000, 200)]),
            "the median request took 6.00 µs instead of 3.01 µs with off, but one in a thousand 6.00 µs instead of \
             172 ms"
        );
    }

    #[test]
    fn a_headline_names_the_first_percentile_that_differs_from_the_undisturbed_part() {
        let late = part(&[(3_000, 99_800), (172_000_000, 200)]);
        assert_eq!(headline(&late, &part(FLAT)), "latency p99.9 172 ms, undisturbed 3.00 µs");
        assert_eq!(
            headline(&part(&[(6_000, 100_000)]), &part(FLAT)),
            "latency p50 6.00 µs, undisturbed 3.00 µs"
        );
        assert_eq!(headline(&part(FLAT), &part(FLAT)), "latency as undisturbed");
    }

    #[test]
    fn who_is_better_off_did_not_fail_to_notice() {
        let better = compare(
            &part(&[(3_000, 99_800), (459_000, 200)]),
            &part(&[(3_000, 99_800), (172_000_000, 200)]),
            "with on",
        );
        assert_eq!(
            better.clause(),
            "; 99 in 100 requests took as long, one in a thousand took 459 µs instead of 172 ms with on"
        );
    }

    #[test]
    fn a_percentile_that_rests_on_few_requests_says_nothing() {
        assert_eq!(compare(&part(&[]), &part(FLAT), "before"), Tail::Unknown);
        let few = Percentiles::of(&{
            let mut latency = Histogram::default();
            latency.record_many(3_000, 400);
            latency
        });
        assert_eq!(few.0.map(|value| value.is_some()), [true, false, false, true]);
    }

    #[test]
    fn what_lies_within_the_spread_of_repeats_does_not_differ() {
        assert!(differ(&[100.0, 110.0, 120.0], &[200.0, 210.0, 220.0], 0.1, 1.0));
        assert!(!differ(&[100.0, 110.0, 205.0], &[200.0, 210.0, 220.0], 0.1, 1.0), "the ranges overlap");
        assert!(!differ(&[100.0], &[105.0], 0.1, 1.0));
        assert!(!differ(&[100.0], &[900.0], 0.1, 1000.0), "below the floor");
        let slow = part(&[(3_000, 99_800), (172_000_000, 200)]);
        let fast = part(FLAT);
        assert_eq!(
            compare(&[slow[0], slow[0], fast[0]], &[fast[0], fast[0]], "before"),
            Tail::Unsure(
                "the repeats do not tell whether one in a thousand differs: 172 ms against 3.00 µs before, in ranges \
                 that overlap"
                    .to_owned()
            )
        );
        assert_eq!(compare(&[slow[0], fast[0], fast[0]], &[fast[0], fast[0]], "before"), Tail::Same);
    }

    #[test]
    fn a_long_tail_is_told_where_there_is_nothing_to_compare_with() {
        let alone = |durations: &[(u64, u64)]| part(durations)[0].alone();
        assert_eq!(
            alone(&[(3_000, 99_800), (172_000_000, 200)]),
            "; the median request took 3.01 µs, one in a thousand 172 ms"
        );
        assert_eq!(alone(FLAT), "");
        assert_eq!(alone(&[(3_000, 99_800), (500_000, 200)]), "", "half a millisecond");
    }
}
