//! [`Expected`]: between which figures a kernel's lie where the model says those that are shown, and how far
//! off the model is in the experiment that is most like each run.

use lotsfree_analysis::interval::Intervals;
use lotsfree_analysis::measure::{Measure, Unit};
use lotsfree_analysis::nearest::{Known, Nearest, Traits};
use lotsfree_analysis::score::Stratum;
use lotsfree_analysis::view::View;
use lotsfree_run::RunOn;
use lotsfree_units::words::enumeration;

use super::compare::size;

/// Above the table.
pub(super) const HEADING: &str = "On a kernel, in 9 of 10 cases";

/// The ends of an interval.
type Ends = (f64, f64);

/// What is expected of kernels beside some runs on the model.
pub(super) struct Expected {
    /// The ends for each run, of the measures that have some.
    rows: Vec<Row>,
    /// What they are worth.
    pub(super) note: String,
    /// The experiment that is most like each run.
    pub(super) nearest: Vec<Option<Known>>,
}

/// Whether kernels with pages of the run's size were compared: those of PCs.
fn has_known_pages(view: &View<'_>) -> bool {
    view.page() == 4096.0
}

struct Row {
    key: &'static str,
    name: &'static str,
    unit: Unit,
    ends: Vec<Option<Ends>>,
}

impl Expected {
    /// `None` if a run is a kernel's.
    pub(super) fn of(views: &[&View<'_>], measures: &[Measure]) -> Option<Self> {
        let is_model = |view: &&View<'_>| view.run.facts().machine == RunOn::Model;
        if views.is_empty() || !views.iter().all(is_model) {
            return None;
        }
        let shipped = Intervals::shipped();
        let known = |view: &View<'_>| {
            let generation = view.keys.get("generation").map(|name| name.trim_matches('"'));
            has_known_pages(view) && generation.is_some_and(|name| shipped.kernels.contains(name))
        };
        let doing = |index: usize| {
            Stratum::of_figures(|key| {
                *measures.iter().find(|measure| measure.key == key)?.values.get(index)?
            })
        };
        let row = |measure: &Measure| {
            let of = |(index, view): (usize, &&View<'_>)| {
                let figure = measure.values.get(index).copied().flatten().filter(|_| known(view))?;
                Some(shipped.find(measure.key, doing(index), figure)?.around(figure))
            };
            let ends: Vec<Option<Ends>> = views.iter().enumerate().map(of).collect();
            let Measure { key, name, unit, .. } = *measure;
            ends.iter().any(Option::is_some).then_some(Row { key, name, unit, ends })
        };
        let rows: Vec<Row> = measures.iter().filter_map(row).collect();
        let note = match rows.is_empty() {
            true => {
                "How far off these figures are is not known: no kernel of this generation, with such pages, was \
                     compared with the model."
                    .to_owned()
            }
            false => format!(
                "By {} cases that kernels executed (docs/validation.md). Times and rates are not validated: \
                 most of these kernels ran on an emulated processor.",
                shipped.cases
            ),
        };
        let experiments = Nearest::shipped();
        let nearest = |(index, view): (usize, &&View<'_>)| {
            let traits = Traits::of(&view.keys, view.machine.as_ref()?, doing(index));
            experiments.find(&traits).filter(|_| has_known_pages(view)).cloned()
        };
        let nearest = views.iter().enumerate().map(nearest).collect();
        Some(Expected { rows, note, nearest })
    }

    /// Says what the nearest experiments are, and how far off the model is there; `None` if there are none.
    pub(super) fn nearest_note(&self, views: &[&View<'_>]) -> Option<String> {
        let mut found: Vec<(&Known, Vec<String>)> = Vec::new();
        for (known, view) in self.nearest.iter().zip(views) {
            let Some(known) = known else { continue };
            match found.iter_mut().find(|(other, _)| *other == known) {
                Some((_, labels)) => labels.push(view.label.clone()),
                None => found.push((known, vec![view.label.clone()])),
            }
        }
        let one = |(known, labels): &(&Known, Vec<String>)| {
            format!("for {}: {}, {}", enumeration(labels), named(known), off(known))
        };
        let all: Vec<String> = found.iter().map(one).collect();
        let experiments = if all.len() == 1 { "experiment" } else { "experiments" };
        (!all.is_empty()).then(|| {
            format!("Nearest {experiments}, with the median error of reclaim's counters: {}.", all.join("; "))
        })
    }

    /// Names of the measures, and what each run's column says of them.
    pub(super) fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let runs = self.rows.first().map_or(0, |row| row.ends.len());
        let cell = |row: &Row, index: usize| {
            let ends = row.ends.get(index).copied().flatten();
            ends.map_or_else(|| "–".to_owned(), |ends| said(row.unit, ends))
        };
        let column = |index: usize| self.rows.iter().map(|row| cell(row, index)).collect();
        (self.rows.iter().map(|row| row.name.to_owned()).collect(), (0..runs).map(column).collect())
    }

    /// The ends of a measure for each run; none of a measure that has no interval.
    pub(super) fn ends(&self, key: &str) -> Vec<Option<Ends>> {
        self.rows.iter().find(|row| row.key == key).map(|row| row.ends.clone()).unwrap_or_default()
    }
}

/// `memory-hogs on 6.1, swappiness 200`
fn named(known: &Known) -> String {
    let generation = &known.traits.generation;
    let kernel = generation.strip_prefix("linux-").unwrap_or(generation);
    format!("{} on {kernel}, {}", known.experiment, known.variant)
}

/// `4.9 % (46 % where a kernel's repeats differ)`
fn off(known: &Known) -> String {
    match (known.error, known.unsteady_error) {
        (Some(error), Some(unsteady)) => {
            format!("{} ({} where a kernel's repeats differ)", size(error), size(unsteady))
        }
        (Some(error), None) => size(error),
        (None, Some(unsteady)) => format!("{}, and a kernel's repeats differ", size(unsteady)),
        (None, None) => "nothing was reclaimed there".to_owned(),
    }
}

/// A figure with two digits, outwards.
fn two_digits(figure: f64, to: fn(f64) -> f64) -> f64 {
    let unit = 10_f64.powf((figure.max(1.0).log10().floor() - 1.0).max(0.0));
    to(figure / unit) * unit
}

/// `190 to 830`, `at most 64`.
fn said(unit: Unit, (low, high): Ends) -> String {
    let (low, high) = match unit {
        // Sizes have three digits in any case.
        Unit::Bytes => (low.floor(), high.ceil()),
        _ => (two_digits(low, f64::floor), two_digits(high, f64::ceil)),
    };
    if low <= 0.0 {
        return if high <= 0.0 { unit.text(0.0) } else { format!("at most {}", unit.text(high)) };
    }
    unit.range(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_off_an_experiment_is_tells_steady_counters_from_others() {
        let known =
            |error, unsteady_error| Known { error, unsteady_error, ..Nearest::shipped().0[0].clone() };
        assert_eq!(off(&known(Some(0.049), Some(0.46))), "4.9 % (46 % where a kernel's repeats differ)");
        assert_eq!(off(&known(Some(0.049), None)), "4.9 %");
        assert_eq!(off(&known(None, Some(0.46))), "46 %, and a kernel's repeats differ");
        assert_eq!(off(&known(None, None)), "nothing was reclaimed there");
    }

    #[test]
    fn ends_are_said_with_one_unit() {
        assert_eq!(said(Unit::Count, (189.5, 830.2)), "180 to 840");
        assert_eq!(said(Unit::Count, (2_125_143.0, 6_711_583.0)), "2,100,000 to 6,800,000");
        assert_eq!([said(Unit::Count, (0.0, 0.0)), said(Unit::Count, (1.5, 9.0))], ["0", "1 to 9"]);
        assert_eq!(said(Unit::Count, (0.0, 64.0)), "at most 64");
        assert_eq!(said(Unit::Bytes, (1_048_576.0, 3_145_728.0)), "1 to 3 MiB");
        assert_eq!(said(Unit::Bytes, (1024.0, 3_145_728.0)), "1 KiB to 3 MiB");
    }
}
