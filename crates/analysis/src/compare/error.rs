//! How far two figures are apart: [`Span`], [`Deviation`], [`Tally`].
//!
//! ```text
//! change = (other − reference) / max(|reference|, floor)        error = |change|
//! ```
//!
//! The floor keeps 3 pages against 5 from being an error of 67 %: it is what a measure must reach to be worth
//! a ratio. Which measure has which is in `rows.rs`. Floors are the same for all runs, so that errors of
//! different runs can be compared: [`FEW`], [`FEW_ENTRIES`], [`LITTLE`], [`SHORT`], [`TICK`], [`POINT`] and
//! [`SLOW`]. Of OOM kills and operations that failed one matters.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::Better;

/// Floor of pages, faults and requests: 256 KiB in pages of 4 KiB.
pub const FEW: f64 = 64.0;
/// Floor of entries into reclaim, each of which takes 32 pages at least (`SWAP_CLUSTER_MAX`).
pub const FEW_ENTRIES: f64 = FEW / 32.0;
/// Floor of memory, in bytes: 256 KiB.
pub const LITTLE: f64 = 256.0 * 1024.0;
/// Floor of latencies, in nanoseconds: a timer's resolution and the cost of reading it.
pub const SHORT: f64 = 1_000.0;
/// Floor of time spent, in nanoseconds: what `/proc/PID/stat` counts in (`USER_HZ` is 100).
pub const TICK: f64 = 10_000_000.0;
/// Floor of shares: one percentage point.
pub const POINT: f64 = 0.01;
/// Floor of rates: once per second.
pub const SLOW: f64 = 1.0;

/// An error up to this is close.
pub const CLOSE: f64 = 0.15;
/// Figures closer than this to each other have no order.
pub const TIE: f64 = 0.05;
/// So many floors are many: less than one floor here and this many there is a difference in kind.
pub const MANY: f64 = 10.0;
/// How many times as far apart as the mean of their ranges two medians have to be, by the number of repeats,
/// to be told apart at the 5 % level (two-sided, normal errors; simulated with two million pairs). For means
/// this is the test of E. Lord, "The use of range in place of standard deviation in the t-test", Biometrika
/// 34 (1947): 3.43 and 1.27. That ranges have nothing in common says little of two repeats, of which a third
/// do so by chance, and enough of four (3 %).
const TELLS: [f64; 4] = [0.0, 0.0, 3.42, 1.37];
/// Smaller errors read as none.
const SLIGHT: f64 = 0.005;

/// A figure, or that of several repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Span {
    /// The figure; of repeats their median.
    pub value: f64,
    /// The smallest of the repeats.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many runs have the figure.
    pub repeats: usize,
    /// `max − min` as a share of the median or the floor, whichever is larger; `null` of a single run.
    pub spread: Option<f64>,
}

/// How far a figure is from the reference's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// `|other − reference| / max(|reference|, floor)`.
    pub error: f64,
    /// The same with its sign: positive if the figure is larger than the reference's.
    pub change: f64,
    /// The same, positive if the figure is better than the reference's; `null` where neither way is better.
    pub gain: Option<f64>,
    /// What to make of it.
    pub verdict: Verdict,
    /// The error if the other were the reference, of a smaller figure of the same sign that is not below the
    /// floor; else 0.
    #[serde(skip)]
    turned: f64,
}

/// What to make of a [`Deviation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Both are below the floor: nothing can be told.
    Small,
    /// They read the same.
    Same,
    /// Repeats of one are as far apart.
    WithinSpread,
    /// The error is 15 % at most.
    Close,
    /// The error is larger.
    Off,
    /// Next to nothing in one, much in the other.
    InKind,
}

impl Span {
    /// Of the figures of repeats; `None` if there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>, floor: f64) -> Option<Self> {
        let mut figures: Vec<f64> = figures.into_iter().filter(|figure| figure.is_finite()).collect();
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let value = median(&figures)?;
        let repeats = figures.len();
        let spread = (repeats > 1).then(|| (max - min) / value.abs().max(floor));
        Some(Span { value, min, max, repeats, spread })
    }

    /// Whether the ranges of repeats have something in common. One run alone has no range.
    pub(crate) fn overlaps(&self, other: &Span) -> bool {
        (self.repeats > 1 || other.repeats > 1) && self.min <= other.max && other.min <= self.max
    }

    /// Whether neither is larger: both below the floor, within the spread of repeats, or within [`TIE`].
    pub fn ties(&self, other: &Span, floor: f64) -> bool {
        let (a, b) = (self.value, other.value);
        let largest = a.abs().max(b.abs());
        largest < floor || self.overlaps(other) || (a - b).abs() <= TIE * largest.max(floor)
    }

    /// Whether repeats tell which of the two is larger: they do not tie, and chance alone would hold them so
    /// far apart once in twenty times ([`TELLS`]). Of single runs the figures are all there is.
    pub fn is_told_from(&self, other: &Span, floor: f64) -> bool {
        let mean_range = ((self.max - self.min) + (other.max - other.min)) / 2.0;
        let ranges = TELLS.get(self.repeats.min(other.repeats)).copied().unwrap_or(0.0);
        !self.ties(other, floor) && (self.value - other.value).abs() > ranges * mean_range
    }
}

impl Deviation {
    /// How far one figure is from the reference's.
    pub fn of(reference: &Span, other: &Span, floor: f64, better: Better) -> Self {
        let change = (other.value - reference.value) / reference.value.abs().max(floor);
        let error = change.abs();
        let gain = match better {
            Better::Higher => Some(change),
            // Not −0.
            Better::Lower => Some(0.0 - change),
            Better::Neither => None,
        };
        let (a, b) = (reference.value.abs(), other.value.abs());
        // One repeat that has next to nothing says that there is no difference in kind.
        let nearest = other.value.clamp(reference.min, reference.max).abs();
        let verdict = if a.max(b) < floor {
            Verdict::Small
        } else if error < SLIGHT {
            Verdict::Same
        } else if reference.overlaps(other) {
            Verdict::WithinSpread
        } else if nearest.min(b) < floor && nearest.max(b) >= MANY * floor {
            Verdict::InKind
        } else if error <= CLOSE {
            Verdict::Close
        } else {
            Verdict::Off
        };
        let smaller =
            b >= floor && b < a && reference.value.is_sign_positive() == other.value.is_sign_positive();
        let turned = if smaller { a / b - 1.0 } else { 0.0 };
        Deviation { error, change, gain, verdict, turned }
    }

    /// Worst first: differences in kind, then by the size of the error, whichever of the two is the
    /// reference; what repeats explain, and what is too small, last.
    pub fn rank(&self) -> (u8, f64) {
        let kind = match self.verdict {
            Verdict::InKind => 3,
            Verdict::Off | Verdict::Close | Verdict::Same => 2,
            Verdict::WithinSpread => 1,
            Verdict::Small => 0,
        };
        (kind, self.error.max(self.turned))
    }

    /// How many times smaller than the reference a figure is; `None` if it is at least a tenth, or if one of
    /// them is below the floor.
    pub fn times_smaller(&self) -> Option<f64> {
        Some(self.turned + 1.0).filter(|times| *times >= 10.0)
    }
}

/// How many of some measures agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Measures of which one is above the floor.
    pub compared: usize,
    /// Their median error; `null` if there are none.
    pub median_error: Option<f64>,
    /// Those with an error of 15 % at most, or within the spread of repeats.
    pub close: usize,
    /// Those that differ in kind.
    pub in_kind: usize,
    /// Measures below the floor in both, which are not counted.
    pub small: usize,
}

impl Tally {
    /// Counts how many deviations are of each verdict.
    pub fn of(deviations: impl IntoIterator<Item = Deviation>) -> Self {
        let mut tally = Tally::default();
        let mut errors = Vec::new();
        for deviation in deviations {
            match deviation.verdict {
                Verdict::Small => {
                    tally.small += 1;
                    continue;
                }
                Verdict::Same | Verdict::WithinSpread | Verdict::Close => tally.close += 1,
                Verdict::InKind => tally.in_kind += 1,
                Verdict::Off => {}
            }
            errors.push(deviation.error);
        }
        errors.sort_by(f64::total_cmp);
        tally.compared = errors.len();
        tally.median_error = median(&errors);
        tally
    }
}

/// Of sorted figures; of an even number the mean of those in the middle.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    match sorted.len() % 2 {
        0 => Some((*sorted.get(sorted.len() / 2 - 1)? + upper) / 2.0),
        _ => Some(upper),
    }
}

/// The median of numbers in any order; `None` of no numbers.
pub fn median_of(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    median(&numbers)
}

/// Orders [ranks](Deviation::rank), the worst last.
pub fn rank_order(a: &(u8, f64), b: &(u8, f64)) -> Ordering {
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(figures: &[f64]) -> Span {
        Span::of(figures.iter().copied(), FEW).unwrap_or(Span {
            value: f64::NAN,
            min: 0.0,
            max: 0.0,
            repeats: 0,
            spread: None,
        })
    }

    fn pages(reference: &[f64], other: &[f64]) -> Deviation {
        Deviation::of(&span(reference), &span(other), FEW, Better::Lower)
    }

    #[test]
    fn an_error_is_a_share_of_the_reference_or_of_the_floor() {
        let found = pages(&[1000.0], &[1100.0]);
        assert!((found.change - 0.1).abs() < 1e-12 && found.verdict == Verdict::Close);
        assert_eq!(found.gain, Some(-found.change), "more scans are worse");
        assert_eq!(pages(&[1000.0], &[500.0]).verdict, Verdict::Off);
        assert_eq!(pages(&[1000.0], &[1002.0]).verdict, Verdict::Same);
        // Of 3 and 5 pages nothing can be told, and 5 against 100 is measured by the floor.
        let few = pages(&[3.0], &[5.0]);
        assert!(few.error < 0.04 && few.verdict == Verdict::Small);
        let some = pages(&[5.0], &[100.0]);
        assert!((some.error - 95.0 / 64.0).abs() < 1e-12 && some.verdict == Verdict::Off);
    }

    #[test]
    fn nothing_here_and_much_there_differs_in_kind() {
        assert_eq!(pages(&[0.0], &[640.0]).verdict, Verdict::InKind);
        assert_eq!(pages(&[5000.0], &[60.0]).verdict, Verdict::InKind);
        assert_eq!(pages(&[0.0], &[639.0]).verdict, Verdict::Off);
        assert_eq!(pages(&[60.0, 9000.0], &[0.0]).verdict, Verdict::Off);
        assert_eq!(pages(&[800.0, 9000.0], &[0.0]).verdict, Verdict::InKind);
        assert!(pages(&[0.0], &[640.0]).rank() > pages(&[65.0], &[1e12]).rank());
    }

    #[test]
    fn a_hundredth_is_as_wrong_as_a_hundredfold() {
        let (less, more) = (pages(&[100_000.0], &[1000.0]), pages(&[1000.0], &[100_000.0]));
        assert_eq!((less.error, more.error), (0.99, 99.0));
        assert_eq!(less.rank(), more.rank());
        assert_eq!(less.times_smaller(), Some(100.0));
        assert_eq!(pages(&[1000.0], &[500.0]).times_smaller(), None);
        assert_eq!(pages(&[2000.0], &[60.0]).times_smaller(), None, "60 is below the floor");
    }

    #[test]
    fn what_repeats_differ_by_is_no_deviation() {
        let spread = span(&[900.0, 1000.0, 1200.0]);
        assert_eq!((spread.value, spread.min, spread.max, spread.repeats), (1000.0, 900.0, 1200.0, 3));
        assert_eq!(spread.spread, Some(0.3));
        assert_eq!(span(&[7.0]).spread, None);
        assert_eq!(pages(&[900.0, 1000.0, 1200.0], &[1190.0]).verdict, Verdict::WithinSpread);
        assert_eq!(pages(&[900.0, 1000.0, 1200.0], &[1210.0]).verdict, Verdict::Off);
        assert_eq!(pages(&[0.0, 9000.0], &[8000.0]).verdict, Verdict::WithinSpread);
        assert_eq!(pages(&[1000.0], &[800.0, 1005.0]).verdict, Verdict::WithinSpread);
    }

    #[test]
    fn figures_close_to_each_other_have_no_order() {
        let ties = |a: &[f64], b: &[f64]| span(a).ties(&span(b), FEW);
        assert!(ties(&[1000.0], &[1050.0]) && !ties(&[1000.0], &[1060.0]));
        assert!(ties(&[0.0], &[63.0]), "both are few");
        assert!(ties(&[1000.0, 2000.0], &[1900.0]), "within the spread");
    }

    #[test]
    fn few_repeats_tell_less_than_many() {
        let told = |a: &[f64], b: &[f64]| span(a).is_told_from(&span(b), FEW);
        assert!(told(&[1000.0], &[1100.0]), "a single run has no range");
        let (two, apart) = ([1000.0, 1100.0], [1200.0, 1300.0]);
        assert!(!span(&two).ties(&span(&apart), FEW) && !told(&two, &apart));
        assert!(told(&two, &[1342.1, 1442.1]) && !told(&two, &[1341.9, 1441.9]));
        let (three, four) = ([1000.0, 1050.0, 1100.0], [1000.0, 1050.0, 1060.0, 1100.0]);
        assert!(!told(&three, &[1110.0, 1160.0, 1210.0]) && told(&three, &[1137.1, 1187.1, 1237.1]));
        assert!(told(&four, &[1110.0, 1160.0, 1170.0, 1210.0]), "four whose ranges are apart tell");
        assert!(!told(&three, &[1137.1, 1237.1]), "the fewer repeats count");
    }

    #[test]
    fn a_tally_leaves_out_what_is_small() {
        let all = [(3.0, 5.0), (1000.0, 1100.0), (1000.0, 1300.0), (0.0, 9000.0), (1000.0, 1000.0)];
        let tally = Tally::of(all.map(|(a, b)| pages(&[a], &[b])));
        assert_eq!((tally.compared, tally.close, tally.in_kind, tally.small), (4, 2, 1, 1));
        assert!((tally.median_error.unwrap_or(0.0) - 0.2).abs() < 1e-12);
        assert_eq!(Tally::of([]), Tally::default());
    }

    #[test]
    fn what_is_no_number_is_no_figure() {
        assert_eq!(Span::of([f64::NAN, f64::INFINITY], FEW), None);
        assert_eq!(Span::of([f64::NAN, 4.0], FEW).map(|span| span.repeats), Some(1));
    }
}
