//! [`Intervals`]: between which figures a kernel's lies where the model says some, by how far kernels'
//! figures were from the model's in experiments.
//!
//! Each of the kernel's figures is compared with that of every run of the model, because `sim` states an
//! interval around the figure of a single run.

use std::collections::{BTreeMap, BTreeSet};

use lotsfree_scenario::Experiments;
use serde::{Deserialize, Serialize};

use crate::compare::{Group, Row, Table};
use crate::measure::Unit;
use crate::score::Stratum;
use crate::validation::{MODEL, Validation};

/// An interval leaves out one sixtieth of the ratios at each end. One twentieth would be enough for the
/// experiments that it was found by; others differ more, and with a sixtieth nine of ten figures of an
/// experiment lie in the intervals that all others make.
const ENDS: usize = 60;
/// Fewer figures have no ends.
const FEWEST: usize = 19;
/// Of the kernel's repeats, the smallest and the largest figure count.
const ENDS_OF_A_RANGE: usize = 2;
/// A figure below four floors counts as next to nothing.
const LITTLE: f64 = 4.0;
/// The intervals of the experiments that are recorded.
const SHIPPED: &str = include_str!("../../../lab/intervals.json");

/// An interval around what the model says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The measure's key.
    pub key: String,
    /// What the model does; without it, whatever it does.
    pub doing: Option<Stratum>,
    /// Whether it holds where the model's figure is next to nothing. A ratio found for larger figures would
    /// be useless there.
    pub little: bool,
    /// The measure's floor, which is added to figures before they are multiplied.
    pub floor: f64,
    /// The lower end, as a multiple of the model's figure.
    pub low: f64,
    /// The upper end, as a multiple of the model's figure.
    pub high: f64,
    /// Figures of kernels by which it was found.
    pub figures: usize,
}

/// The intervals of all measures that have one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// Kernels by which they were found, by their models' names.
    pub kernels: BTreeSet<String>,
    /// Variants of experiments by which they were found.
    pub cases: usize,
    /// The intervals.
    pub all: Vec<Interval>,
}

impl Interval {
    /// The ends around a figure of the model.
    pub fn around(&self, figure: f64) -> (f64, f64) {
        let end = |times: f64| ((figure + self.floor) * times - self.floor).max(0.0);
        (end(self.low), end(self.high))
    }

    /// Between all but one of [`ENDS`] at each end of some ratios; `None` if there are too few.
    fn of((key, doing, little): &Place, found: &Found) -> Option<Self> {
        let mut ratios = found.ratios.clone();
        ratios.sort_by(f64::total_cmp);
        let cut = ((ratios.len() + 1) / ENDS).max(1);
        let last = ratios.len().checked_sub(cut)?;
        let (low, high) = (*ratios.get(cut.checked_sub(1)?)?, *ratios.get(last)?);
        let figures = ENDS_OF_A_RANGE * found.cases.len();
        (figures >= FEWEST).then(|| Interval {
            key: key.clone(),
            doing: *doing,
            little: *little,
            floor: found.floor,
            low: rounded(low, f64::floor),
            high: rounded(high, f64::ceil),
            figures,
        })
    }
}

/// A figure of the model, and what the ends of the kernel's range are multiples of it.
type Times = (f64, [f64; ENDS_OF_A_RANGE]);

/// Which interval a figure belongs to: its measure, what the model does, and whether it is next to nothing.
type Place = (String, Option<Stratum>, bool);

/// What was found of such figures.
#[derive(Default)]
struct Found {
    /// The measure's floor.
    floor: f64,
    /// How many times the model's the kernels' figures are.
    ratios: Vec<f64>,
    /// The cases they are of, numbered.
    cases: BTreeSet<usize>,
}

/// To three digits after the point, outwards.
fn rounded(times: f64, to: fn(f64) -> f64) -> f64 {
    to(times * 1000.0) / 1000.0
}

/// Whether a measure has an interval: an amount of what reclaim and devices do. Times and rates have none,
/// because most kernels that were compared ran on an emulated processor; nor has what can be negative.
fn has_interval(row: &Row) -> bool {
    let amount = [Unit::Count, Unit::Bytes].iter().any(|unit| unit.name() == row.unit);
    row.main && row.group == Group::Reclaim && amount && !row.key.starts_with("least_")
}

impl Intervals {
    /// Those that `sim` states.
    pub fn shipped() -> Self {
        serde_json::from_str(SHIPPED).unwrap_or_default()
    }

    /// Of the experiments that are known. What is held out judges them, and has no part in them.
    pub fn of_known(experiments: &Experiments, all: &[Validation]) -> Self {
        let known = all.iter().filter(|of| !experiments.holds_out(&of.experiment));
        Intervals::of(&known.collect::<Vec<_>>())
    }

    /// Of some experiments.
    pub fn of(all: &[&Validation]) -> Self {
        let mut found = Intervals::default();
        let mut places: BTreeMap<Place, Found> = BTreeMap::new();
        for of in all.iter().filter(|of| !of.compared.tables.is_empty()) {
            found.kernels.insert(of.generation.clone());
            for case in of.of_single_runs() {
                found.cases += 1;
                for (row, doing, (model, times)) in case.iter().flat_map(figures) {
                    for doing in [None, Some(doing)] {
                        let place = (row.key.clone(), doing, model < LITTLE * row.floor);
                        let of = places.entry(place).or_default();
                        of.floor = row.floor;
                        of.ratios.extend(times);
                        of.cases.insert(found.cases);
                    }
                }
            }
        }
        found.all = places.iter().filter_map(|(place, of)| Interval::of(place, of)).collect();
        found
    }

    /// The interval around a figure of a model that does so.
    pub fn find(&self, key: &str, doing: Stratum, figure: f64) -> Option<&Interval> {
        let of = |doing: Option<Stratum>| {
            let mut its = self.all.iter().filter(|one| one.key == key && one.doing == doing);
            its.find(|one| one.little == (figure < LITTLE * one.floor))
        };
        of(Some(doing)).or_else(|| of(None))
    }

    /// Pairs of a kernel's figure and a run of the model in an experiment for which there is an interval, and
    /// in how many of them the figure lies in it.
    pub fn coverage(&self, of: &Validation) -> (usize, usize) {
        let (mut all, mut within) = (0, 0);
        for case in of.of_single_runs() {
            for (row, doing, (model, times)) in case.iter().flat_map(figures) {
                let Some(interval) = self.find(&row.key, doing, model) else { continue };
                for times in times {
                    all += 1;
                    within += usize::from((interval.low..=interval.high).contains(&times));
                }
            }
        }
        (all, within)
    }

    /// As a file.
    ///
    /// # Errors
    /// As [`serde_json::to_string`].
    pub fn to_json(&self) -> serde_json::Result<String> {
        let mut text = String::new();
        let head = serde_json::json!({ "kernels": self.kernels, "cases": self.cases });
        let head = head.to_string();
        text += head.strip_suffix('}').unwrap_or(&head);
        text += ",\"all\":[";
        for (place, one) in self.all.iter().enumerate() {
            text += if place == 0 { "\n" } else { ",\n" };
            text += &serde_json::to_string(one)?;
        }
        Ok(text + "\n]}\n")
    }
}

/// The rows of a table that have an interval, with what the model does in it.
fn figures(table: &Table) -> impl Iterator<Item = (&Row, Stratum, Times)> {
    let doing = Stratum::of_column(table, MODEL);
    table.rows.iter().filter_map(move |row| Some((row, doing, times(row)?)))
}

/// The model's figure, and how many times that the smallest and the largest of the kernel's are.
fn times(row: &Row) -> Option<Times> {
    let (kernel, model) = (row.values.first().copied()??, row.values.get(MODEL).copied()??);
    let times = |figure: f64| (figure + row.floor) / (model.value + row.floor);
    has_interval(row).then(|| (model.value, [times(kernel.min), times(kernel.max)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_leaves_out_its_ends() {
        let place = ("swap_in_bytes".to_owned(), None, false);
        let of = |ratios: u32, cases: usize| {
            let ratios = (1..=ratios).map(f64::from).collect();
            Interval::of(&place, &Found { floor: 10.0, ratios, cases: (0..cases).collect() })
        };
        let found = of(179, 10).unwrap();
        assert_eq!((found.low, found.high, found.figures), (3.0, 177.0, 20));
        let few = of(19, 10).unwrap();
        assert_eq!((few.low, few.high), (1.0, 19.0));
        assert_eq!(of(179, 9), None, "however many runs of the model there are");
    }

    #[test]
    fn the_floor_is_not_multiplied_away() {
        let interval = Interval { floor: 64.0, low: 0.5, high: 2.0, ..interval() };
        assert_eq!(interval.around(0.0), (0.0, 64.0));
        assert_eq!(interval.around(936.0), (436.0, 1936.0));
    }

    fn interval() -> Interval {
        Interval {
            key: "major_faults".to_owned(),
            doing: None,
            little: false,
            floor: 1.0,
            low: 1.0,
            high: 1.0,
            figures: 20,
        }
    }

    #[test]
    fn what_the_model_does_comes_first() {
        let swaps = Interval { doing: Some(Stratum::Swaps), high: 3.0, ..interval() };
        let little = Interval { little: true, high: 7.0, ..interval() };
        let found = Intervals { all: vec![interval(), swaps, little], ..Intervals::default() };
        let high = |doing: Stratum, figure: f64| found.find("major_faults", doing, figure).unwrap().high;
        assert_eq!([high(Stratum::Swaps, 5.0), high(Stratum::Nothing, 5.0)], [3.0, 1.0]);
        assert_eq!(high(Stratum::Swaps, 0.0), 7.0);
        assert_eq!(found.find("swap_in_bytes", Stratum::Swaps, 5.0), None);
        let again: Intervals = serde_json::from_str(&found.to_json().unwrap()).unwrap();
        assert_eq!(again, found);
    }

    #[test]
    fn what_ships_can_be_read() {
        let shipped = Intervals::shipped();
        assert!(shipped.kernels.contains("linux-6.1") && shipped.cases > 50, "{shipped:?}");
        for one in &shipped.all {
            assert!(one.low <= one.high && one.figures >= FEWEST, "{one:?}");
        }
    }
}
