//! [`Measured`]: the figures of one thing by themselves, which can be kept and compared later.

use lotsfree_run::Run;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pairing::Entry;
use super::rows::{self, Group};
use super::{Column, Compared, Point, Row, SCHEMA, Span, Table, order, reference};
use crate::view::{View, place};

/// One thing that ran, once or several times, with what each run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// As [`Table::title`].
    pub title: String,
    /// Title of the scenario.
    pub scenario: String,
    /// The variant.
    pub variant: Option<String>,
    /// The value of the sweep.
    pub sweep: Option<Point>,
    /// What ran. It names no directories: they are on the machine that ran it.
    pub column: Column,
    /// What a reader should know of these runs.
    pub remarks: Vec<String>,
    /// The measures, in the order in which they are shown.
    pub measures: Vec<Figures>,
}

/// What a measure is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// As [`Row::key`].
    pub key: String,
    /// As [`Row::name`].
    pub name: String,
    /// As [`Row::group`].
    pub group: Group,
    /// As [`Row::unit`].
    pub unit: String,
    /// As [`Row::better`].
    pub better: Option<String>,
    /// As [`Row::floor`].
    pub floor: f64,
    /// As [`Row::main`].
    pub main: bool,
}

/// A measure, with its figure of each run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Which it is.
    pub measure: Measure,
    /// One per run; `None` where it is not known.
    pub values: Vec<Option<f64>>,
}

impl Measured {
    /// What runs of one thing measured; `None` of no run.
    pub fn of(runs: &[Run]) -> Option<Self> {
        let views: Vec<View<'_>> = runs.iter().map(View::of).collect();
        let entries: Vec<Entry<'_, '_>> = views.iter().map(|view| Entry { view, place: 0 }).collect();
        let Table { title, scenario, variant, sweep, columns, remarks, rows: _, tallies: _ } =
            Table::head(&[entries.iter().collect()]);
        let mut column = columns.into_iter().next()?;
        column.label = place(column.machine).to_owned();
        column.runs.clear();
        let views: Vec<&View<'_>> = views.iter().collect();
        let measures = rows::read(&views);
        Some(Measured { title, scenario, variant, sweep, column, remarks, measures })
    }

    /// The same with the median of the runs as the only figure of each measure.
    pub fn middle(&self) -> Self {
        self.reduced(|figures| Some(figures.span()?.value))
    }

    /// What the run at this place measured; no figures if there are fewer runs.
    pub fn of_run(&self, place: usize) -> Self {
        self.reduced(|figures| figures.values.get(place).copied().flatten())
    }

    fn reduced(&self, one: impl Fn(&Figures) -> Option<f64>) -> Self {
        let reduce = |of: &Figures| Figures { measure: of.measure.clone(), values: vec![one(of)] };
        Measured { measures: self.measures.iter().map(reduce).collect(), ..self.clone() }
    }

    /// Adds repeats of the same thing.
    pub fn extend(&mut self, more: Measured) {
        let (had, new) = (self.column.repeats, more.column.repeats);
        for figures in &mut self.measures {
            let found = more.measures.iter().find(|one| one.measure.key == figures.measure.key);
            figures.values.extend(found.map_or_else(|| vec![None; new], |found| found.values.clone()));
        }
        for mut figures in more.measures {
            if !self.measures.iter().any(|one| one.measure.key == figures.measure.key) {
                figures.values.splice(0..0, vec![None; had]);
                self.measures.push(figures);
            }
        }
        self.column.repeats += new;
        self.remarks.extend(more.remarks);
    }
}

impl Figures {
    fn span(&self) -> Option<Span> {
        Span::of(self.values.iter().copied().flatten(), self.measure.floor)
    }
}

impl Table {
    /// Two things side by side: the measures that both have, by the first as the reference.
    pub(crate) fn beside(reference: &Measured, other: &Measured) -> Self {
        let row = |of: &Figures| {
            let found = other.measures.iter().find(|one| one.measure.key == of.measure.key)?;
            Some(Row::of(of.measure.clone(), vec![of.span(), found.span()]))
        };
        let mut table = Table {
            title: reference.title.clone(),
            scenario: reference.scenario.clone(),
            variant: reference.variant.clone(),
            sweep: reference.sweep.clone(),
            columns: vec![reference.column.clone(), other.column.clone()],
            remarks: reference.remarks.iter().chain(&other.remarks).cloned().collect(),
            rows: reference.measures.iter().filter_map(row).collect(),
            tallies: Vec::new(),
        };
        table.tally_all();
        table
    }
}

impl Compared {
    /// Things compared with each other two by two, each with the first as the reference.
    pub fn of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a Measured, &'a Measured)>) -> Self {
        let tables: Vec<Table> = pairs.into_iter().map(|(one, other)| Table::beside(one, other)).collect();
        Compared {
            schema: SCHEMA.to_owned(),
            lotsfree: env!("CARGO_PKG_VERSION").to_owned(),
            reference: reference(&tables),
            remarks: Vec::new(),
            orders: order::orders(&tables),
            tables,
            alone: Vec::new(),
        }
    }
}
