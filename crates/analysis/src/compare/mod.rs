//! Runs compared with each other: every measure with its relative error, model against kernel or variant
//! against variant.
//!
//! ```text
//! runs by place ──▶ Views ──▶ Plan (repeats, tables) ──▶ Compared (rows, errors, tallies, orders)
//!                                                          └──▶ text · Markdown · JSON (`report`)
//! ```
//!
//! The arithmetic is in [`error`]. [`Compared`] is complete: its JSON form is the published schema, and text
//! and Markdown are renderings of it.

mod columns;
pub mod error;
mod measured;
mod order;
mod pairing;
mod rows;
mod shown;

use std::collections::BTreeSet;

use lotsfree_run::{Run, RunOn};
use lotsfree_units::words::enumeration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::{Better, Unit};
use crate::view::View;
pub use columns::described;
use columns::{differences, labels};
pub use error::{Deviation, Span, Tally, Verdict, rank_order};
pub use measured::{Figures, Measure, Measured};
pub use order::{Order, Orders};
pub(crate) use pairing::same_thing;
use pairing::{Basis, Entry, Plan, Repeats, generation, variant};
pub use rows::Group;
pub use shown::Sort;

/// The format's name; raised when a field changes its meaning or goes.
pub(crate) const SCHEMA: &str = "lotsfree.compare/1";

/// Runs compared with each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// `lotsfree.compare/1`.
    pub schema: String,
    /// Version of lotsfree that compared.
    pub lotsfree: String,
    /// Which run the others are compared with, and why.
    pub reference: String,
    /// What a reader should know of all of it.
    pub remarks: Vec<String>,
    /// What is compared with each other, in the order in which the runs were given.
    pub tables: Vec<Table>,
    /// Runs without a counterpart.
    pub alone: Vec<String>,
    /// Whether the variants stand in the same order here and there; empty with fewer than two on both sides.
    pub orders: Vec<Orders>,
}

/// One thing in several columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// What the columns have in common, in words.
    pub title: String,
    /// Title of the scenario, of the reference.
    pub scenario: String,
    /// The variant, if all columns have the same.
    pub variant: Option<String>,
    /// The value of the sweep, if all columns have the same.
    pub sweep: Option<Point>,
    /// The columns; the first is the reference.
    pub columns: Vec<Column>,
    /// What a reader should know of these runs: what else they differ in, which are incomplete.
    pub remarks: Vec<String>,
    /// The measures.
    pub rows: Vec<Row>,
    /// How many agree: one per column but the reference.
    pub tallies: Vec<Tallies>,
}

/// A value of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// The key.
    pub key: String,
    /// The value as the scenario writes it.
    pub label: String,
    /// The value in its unit.
    pub value: f64,
}

/// One thing that ran, once or several times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// What tells it from the other columns.
    pub label: String,
    /// What executed it.
    #[schemars(with = "String")]
    pub machine: RunOn,
    /// Generation or release.
    pub kernel: String,
    /// The same as scenarios name generations; `null` if the release says nothing.
    pub generation: Option<String>,
    /// Its variant.
    pub variant: String,
    /// Directories of the repeats; empty for runs in memory.
    pub runs: Vec<String>,
    /// How many repeats there are.
    pub repeats: usize,
    /// Length of the measured part in seconds, of the first repeat.
    pub seconds: f64,
}

/// One measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Its name for programs; memory is in bytes, time in nanoseconds, whatever the kernel counts in.
    pub key: String,
    /// Its name for people.
    pub name: String,
    /// The part of the list that it is in.
    pub group: Group,
    /// `share`, `per second`, `nanoseconds`, `count` (the kernel's pages too) or `bytes`.
    pub unit: String,
    /// `higher`, `lower`, or `null` where neither way is better.
    pub better: Option<String>,
    /// Below this a figure is too small to be a ratio's denominator.
    pub floor: f64,
    /// Whether the order of variants by it is looked at.
    pub main: bool,
    /// One per column; `null` where it is not known.
    pub values: Vec<Option<Span>>,
    /// One per column but the reference; `null` where one of the two is not known.
    pub deviations: Vec<Option<Deviation>>,
}

/// How many measures of a column agree with the reference's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tallies {
    /// Everything but single counters of the kernel.
    pub measures: Tally,
    /// Counters and levels of `/proc/vmstat`.
    pub vmstat: Tally,
}

/// Compares runs. `places` are the runs by the place (a directory, mostly) that was named
/// for them: runs of the same thing are repeats, unless nothing but the place tells them apart.
pub fn compare(places: &[Vec<Run>]) -> Compared {
    let views: Vec<(usize, View<'_>)> = places
        .iter()
        .enumerate()
        .flat_map(|(place, runs)| runs.iter().map(move |run| (place, View::of(run))))
        .collect();
    let entries: Vec<Entry<'_, '_>> =
        views.iter().map(|(place, view)| Entry { view, place: *place }).collect();
    let plan = Plan::of(&entries);
    let tables: Vec<Table> = plan.tables.iter().map(|columns| Table::of(&entries, columns)).collect();
    let orders = match plan.basis {
        Basis::Case | Basis::Variant => order::orders(&tables),
        Basis::Scenario | Basis::Point | Basis::Nothing => Vec::new(),
    };
    let alone = plan.alone.iter().flatten().filter_map(|index| entries.get(*index));
    Compared {
        schema: SCHEMA.to_owned(),
        lotsfree: env!("CARGO_PKG_VERSION").to_owned(),
        reference: reference(&tables),
        remarks: remarks(&entries, &plan),
        tables,
        alone: alone.map(|entry| whole_name(entry.view)).collect(),
        orders,
    }
}

/// Says which column is the reference.
fn reference(tables: &[Table]) -> String {
    let kernel = |column: &Column| column.machine != RunOn::Model;
    let one_kernel = |table: &Table| {
        table.columns.first().is_some_and(kernel) && !table.columns.iter().skip(1).any(kernel)
    };
    if !tables.is_empty() && tables.iter().all(one_kernel) {
        "The kernel's run is the reference that the model is compared with.".to_owned()
    } else {
        "The first run is the reference that the others are compared with.".to_owned()
    }
}

/// Where a run is, or what it is called.
fn whole_name(view: &View<'_>) -> String {
    match view.run.directory() {
        Some(directory) => directory.display().to_string(),
        None => format!("{}, {}", variant(view), view.machine()),
    }
}

fn remarks(entries: &[Entry<'_, '_>], plan: &Plan) -> Vec<String> {
    let mut remarks = Vec::new();
    let title = |entry: &Entry<'_, '_>| entry.view.run.facts().title.clone();
    let across = |table: &Vec<Repeats>| {
        table.iter().flatten().filter_map(|i| entries.get(*i)).map(title).collect::<BTreeSet<_>>()
    };
    if let Some(titles) = plan.tables.iter().map(across).find(|titles| titles.len() > 1) {
        let titles: Vec<String> = titles.iter().map(|title| format!("“{title}”")).collect();
        remarks.push(format!(
            "The scenarios differ: {}. What they have in common is compared.",
            enumeration(&titles)
        ));
    }
    if plan.one_thing {
        remarks.push("All runs are of the same thing: what differs is what repeats differ by.".to_owned());
    }
    remarks
}

impl Table {
    fn of(entries: &[Entry<'_, '_>], columns: &[Repeats]) -> Self {
        let members: Vec<Vec<&Entry<'_, '_>>> = columns
            .iter()
            .map(|repeats| repeats.iter().filter_map(|index| entries.get(*index)).collect())
            .collect();
        let views: Vec<&View<'_>> = members.iter().flatten().map(|entry| entry.view).collect();
        let mut table = Table { rows: rows(&members, &views), ..Table::head(&members) };
        table.tally_all();
        table
    }

    /// A table of these columns, each of repeats, without its rows.
    fn head(members: &[Vec<&Entry<'_, '_>>]) -> Self {
        let firsts: Vec<&Entry<'_, '_>> = members.iter().filter_map(|all| all.first().copied()).collect();
        let views: Vec<&View<'_>> = members.iter().flatten().map(|entry| entry.view).collect();
        let same = |read: &dyn Fn(&View<'_>) -> Option<String>| {
            let first = read(views.first()?)?;
            views.iter().all(|view| read(view).as_ref() == Some(&first)).then_some(first)
        };
        let scenario = views.first().map(|view| view.run.facts().title.clone()).unwrap_or_default();
        let variant = same(&|view| Some(variant(view).to_owned()));
        let label = same(&|view| Some(view.point.as_ref()?.label.clone()));
        let point = views.first().and_then(|view| view.point.as_ref()).filter(|_| label.is_some());
        let sweep = point.map(|point| Point {
            key: point.key.clone(),
            label: point.label.clone(),
            value: point.number,
        });
        let one = same(&|view| Some(view.run.facts().title.clone()));
        let whole = if one.is_some() { scenario.as_str() } else { "Several scenarios" };
        let title = match (&variant, &sweep) {
            (Some(variant), Some(point)) => format!("{whole}: {variant}, {}", point.label),
            (Some(variant), None) => format!("{whole}: {variant}"),
            (None, Some(point)) => format!("{whole}: {}", point.label),
            (None, None) => whole.to_owned(),
        };
        let labels = labels(&firsts, variant.is_some());
        let column = |(all, label): (&Vec<&Entry<'_, '_>>, String)| {
            let view = all.first()?.view;
            let facts = view.run.facts();
            let window = view.figures().window;
            Some(Column {
                label,
                machine: facts.machine,
                kernel: facts.kernel.clone(),
                generation: generation(view),
                variant: self::variant(view).to_owned(),
                runs: (all.iter().filter_map(|entry| entry.view.run.directory()))
                    .map(|path| path.display().to_string())
                    .collect(),
                repeats: all.len(),
                seconds: window.to.saturating_sub(window.from) as f64 / 1e9,
            })
        };
        let columns: Vec<Column> = members.iter().zip(labels).filter_map(column).collect();
        let remarks = differences(&columns, members);
        let (rows, tallies) = (Vec::new(), Vec::new());
        Table { title, scenario, variant, sweep, columns, remarks, rows, tallies }
    }

    fn tally_all(&mut self) {
        let tally = |other: usize, detail: bool| self.tally(other, |row| row.group.is_detail() == detail);
        self.tallies = (0..self.columns.len().saturating_sub(1))
            .map(|other| Tallies { measures: tally(other, false), vmstat: tally(other, true) })
            .collect();
    }

    /// How many of some measures agree with the reference's, in the column that is `other` after it.
    fn tally(&self, other: usize, counts: impl Fn(&Row) -> bool) -> Tally {
        let of = |row: &Row| row.deviations.get(other).copied().flatten();
        Tally::of(self.rows.iter().filter(|row| counts(row)).filter_map(of))
    }
}

/// The measures of columns of repeats.
fn rows(members: &[Vec<&Entry<'_, '_>>], views: &[&View<'_>]) -> Vec<Row> {
    let one = |Figures { measure, values }: Figures| {
        let mut values = values.into_iter();
        let floor = measure.floor;
        let span = |all: &Vec<_>| Span::of(values.by_ref().take(all.len()).flatten(), floor);
        Row::of(measure, members.iter().map(span).collect())
    };
    rows::read(views).into_iter().map(one).collect()
}

impl Row {
    /// A measure with its figures, compared with the first.
    fn of(measure: Measure, values: Vec<Option<Span>>) -> Self {
        let Measure { key, name, group, unit, better, floor, main } = measure;
        let mut row = Row { key, name, group, unit, better, floor, main, values, deviations: Vec::new() };
        row.judge();
        row
    }

    /// A figure of it in words.
    pub fn text(&self, value: f64) -> String {
        Unit::named(&self.unit).text(value)
    }

    /// Compares its figures with the reference's.
    pub fn judge(&mut self) {
        let reference = self.values.first().copied().flatten();
        let (floor, better) = (self.floor, Better::named(self.better.as_deref()));
        let deviation = |other: &Option<Span>| Some(Deviation::of(&reference?, &(*other)?, floor, better));
        self.deviations = self.values.iter().skip(1).map(deviation).collect();
    }
}
