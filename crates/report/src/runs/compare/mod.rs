//! Runs held against each other: every measure with its relative error, model against kernel or variant
//! against variant.
//!
//! ```text
//! runs by place ──▶ Views ──▶ Plan (repeats, tables) ──▶ Compared (rows, errors, tallies, orders)
//!                                                          └──▶ text · Markdown · JSON
//! ```
//!
//! The arithmetic is in [`error`]. [`Compared`] is complete: its JSON form is the published schema, and text
//! and Markdown are renderings of it.

pub mod error;
mod grid;
mod markdown;
mod order;
mod pairing;
mod rows;
mod text;

use std::collections::BTreeSet;

use lotsfree_run::{Machine, Run};
use schemars::JsonSchema;
use serde::Serialize;

use super::measure::{Better, Unit};
use super::view::{View, ended, place};
use crate::words::{duration, enumeration, plural};
pub use error::{Deviation, Span, Tally, Verdict};
pub use grid::{Grid, Sort};
pub use markdown::{MarkdownOptions, compare_markdown};
pub use order::{Order, Orders};
use pairing::{Basis, Entry, Plan, Repeats, generation, is_kernel, variant};
pub use rows::Group;
pub use text::compare_text;

/// The format's name; raised when a field changes its meaning or goes.
const SCHEMA: &str = "lotsfree.compare/1";
/// Measured parts whose lengths differ by a larger share are remarked on.
const LENGTHS: f64 = 0.01;
/// More settings than this that differ are counted instead of named.
const MOST_KEYS: usize = 6;

/// Runs held against each other.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Compared {
    /// `lotsfree.compare/1`.
    pub schema: String,
    /// Version of lotsfree that compared.
    pub lotsfree: String,
    /// Which run the others are held against, and why.
    pub reference: String,
    /// What a reader should know of all of it.
    pub remarks: Vec<String>,
    /// What is held against each other, in the order in which the runs were given.
    pub tables: Vec<Table>,
    /// Runs without a counterpart.
    pub alone: Vec<String>,
    /// Whether the variants stand in the same order here and there; empty with fewer than two on both sides.
    pub orders: Vec<Orders>,
}

/// One thing in several columns.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Point {
    /// The key.
    pub key: String,
    /// The value as the scenario writes it.
    pub label: String,
    /// The value in its unit.
    pub value: f64,
}

/// One thing that ran, once or several times.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Column {
    /// What tells it from the other columns.
    pub label: String,
    /// What executed it.
    #[schemars(with = "String")]
    pub machine: Machine,
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
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
    #[serde(skip)]
    written: Written,
}

/// How the figures of a row are written.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Written(Unit);

/// How many measures of a column agree with the reference's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tallies {
    /// Everything but single counters of the kernel.
    pub measures: Tally,
    /// Counters and levels of `/proc/vmstat`.
    pub vmstat: Tally,
}

/// Holds runs against each other. `places` are the runs by the place (a directory, mostly) that was named
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

/// As JSON, indented; `docs/schema/compare-1.json` is its schema.
///
/// # Errors
/// As [`serde_json::to_string_pretty`]; no run that can be read brings one about.
pub fn compare_json(compared: &Compared) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(compared)? + "\n")
}

/// The JSON Schema (draft 2020-12) of [`compare_json`]'s output.
pub fn compare_schema() -> String {
    crate::json::schema_of::<Compared>()
}

/// Says which column is the reference.
fn reference(tables: &[Table]) -> String {
    let kernel = |column: &Column| column.machine != Machine::Model;
    let one_kernel = |table: &Table| {
        table.columns.first().is_some_and(kernel) && !table.columns.iter().skip(1).any(kernel)
    };
    if !tables.is_empty() && tables.iter().all(one_kernel) {
        "The kernel's run is the reference that the model is held against.".to_owned()
    } else {
        "The first run is the reference that the others are held against.".to_owned()
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
        let title = match (&variant, &sweep) {
            (Some(variant), Some(point)) => format!("{scenario}: {variant}, {}", point.label),
            (Some(variant), None) => format!("{scenario}: {variant}"),
            (None, Some(point)) => format!("{scenario}: {}", point.label),
            (None, None) => scenario.clone(),
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
        let rows = rows(&members, &views);
        let tally = |other: usize, detail: bool| {
            let of = |row: &Row| row.deviations.get(other).copied().flatten();
            Tally::of(rows.iter().filter(|row| row.group.is_detail() == detail).filter_map(of))
        };
        let tallies = (0..columns.len().saturating_sub(1))
            .map(|other| Tallies { measures: tally(other, false), vmstat: tally(other, true) })
            .collect();
        let remarks = differences(&columns, &members);
        Table { title, scenario, variant, sweep, columns, remarks, rows, tallies }
    }
}

/// The measures of columns of repeats.
fn rows(members: &[Vec<&Entry<'_, '_>>], views: &[&View<'_>]) -> Vec<Row> {
    let one = |read: rows::Read| {
        let mut figures = read.values.iter().copied();
        let spans: Vec<Option<Span>> = members
            .iter()
            .map(|all| Span::of(figures.by_ref().take(all.len()).flatten(), read.floor))
            .collect();
        let reference = spans.first().copied().flatten();
        let deviation =
            |other: &Option<Span>| Some(Deviation::of(&reference?, &(*other)?, read.floor, read.better));
        Row {
            deviations: spans.iter().skip(1).map(deviation).collect(),
            key: read.key,
            name: read.name,
            group: read.group,
            unit: read.unit.name().to_owned(),
            better: read.better.name().map(str::to_owned),
            floor: read.floor,
            main: read.main,
            values: spans,
            written: Written(read.unit),
        }
    };
    rows::read(views).into_iter().map(one).collect()
}

impl Row {
    /// A figure of it in words.
    fn text(&self, value: f64) -> String {
        self.written.0.text(value)
    }
}

/// What tells columns from each other, as short as it can be.
fn labels(columns: &[&Entry<'_, '_>], one_variant: bool) -> Vec<String> {
    let differing: Vec<String> = differing_keys(columns);
    let settings = |entry: &Entry<'_, '_>| {
        let named = differing.iter().filter(|key| *key != "generation").take(2).map(|key| {
            let value = entry.view.keys.get(key).map_or("default", |value| value.trim_matches('"'));
            format!("{} {value}", key.strip_prefix("vm.").unwrap_or(key))
        });
        named.collect::<Vec<_>>().join(", ")
    };
    type Trait<'a> = &'a dyn Fn(&Entry<'_, '_>) -> String;
    let variant: Trait<'_> = &|entry| variant(entry.view).to_owned();
    let machine: Trait<'_> = &|entry| place(entry.view.run.facts().machine).to_owned();
    let kernel: Trait<'_> = &|entry| entry.view.run.facts().kernel.clone();
    let title: Trait<'_> = &|entry| entry.view.run.facts().title.clone();
    let point: Trait<'_> =
        &|entry| entry.view.point.as_ref().map(|point| point.label.clone()).unwrap_or_default();
    let version: Trait<'_> = &|entry| format!("lotsfree {}", entry.view.run.facts().lotsfree);
    let directory: Trait<'_> = &|entry| {
        let directory = entry.view.run.directory();
        directory.map(|path| path.display().to_string()).unwrap_or_default()
    };
    let traits = match one_variant {
        true => [machine, kernel, &settings, variant, point, title, version, directory],
        false => [variant, machine, kernel, point, &settings, title, version, directory],
    };
    let mut labels: Vec<String> = vec![String::new(); columns.len()];
    for read in traits {
        let distinct: BTreeSet<&String> = labels.iter().collect();
        if distinct.len() == labels.len() && labels.iter().all(|label| !label.is_empty()) {
            break;
        }
        let said: Vec<String> = columns.iter().map(|entry| read(entry)).collect();
        if said.iter().collect::<BTreeSet<_>>().len() > 1 {
            for (label, said) in labels.iter_mut().zip(said).filter(|(_, said)| !said.is_empty()) {
                *label = if label.is_empty() { said } else { format!("{label}, {said}") };
            }
        }
    }
    for index in 0..labels.len() {
        let earlier = labels[..index].iter().filter(|label| **label == labels[index]).count();
        if earlier > 0 || labels[index].is_empty() {
            let label = format!("{} #{}", labels[index], index + 1);
            labels[index] = label.trim_start().to_owned();
        }
    }
    labels
}

/// Keys of the scenario by which columns differ.
fn differing_keys(columns: &[&Entry<'_, '_>]) -> Vec<String> {
    let readable = || columns.iter().map(|entry| &entry.view.keys).filter(|keys| !keys.is_empty());
    let all: BTreeSet<&String> = readable().flat_map(|keys| keys.keys()).collect();
    let differ = |key: &&&String| {
        let values: BTreeSet<Option<&String>> = readable().map(|keys| keys.get(**key)).collect();
        values.len() > 1
    };
    all.iter().filter(differ).map(|key| (*key).clone()).collect()
}

/// What a reader should know: what else columns differ in, and what is not as a whole run is.
fn differences(columns: &[Column], members: &[Vec<&Entry<'_, '_>>]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (column, all) in columns.iter().zip(members) {
        for (number, entry) in all.iter().enumerate() {
            let who = match all.len() {
                1 => column.label.clone(),
                _ => format!("{} #{}", column.label, number + 1),
            };
            let ended = ended(entry.view.run.state()).map(|ended| format!("the run is {ended}"));
            let said = entry.view.remarks();
            remarks.extend(ended.filter(|_| said.is_empty()).into_iter().chain(said).map(|r| format!("{who}: {r}")));
        }
    }
    let firsts: Vec<&Entry<'_, '_>> = members.iter().filter_map(|all| all.first().copied()).collect();
    let generations: BTreeSet<&String> = columns.iter().filter_map(|c| c.generation.as_ref()).collect();
    let mixed = firsts.iter().any(|entry| is_kernel(entry.view))
        && firsts.iter().any(|entry| !is_kernel(entry.view));
    if mixed && generations.len() > 1 {
        let names: Vec<String> = generations.into_iter().cloned().collect();
        remarks.push(format!("Not the same generation of the kernel: {}.", enumeration(&names)));
    }
    // What a variant changes is what is compared.
    let variants: BTreeSet<&str> = firsts.iter().map(|entry| variant(entry.view)).collect();
    let titles: BTreeSet<&str> = firsts.iter().map(|entry| entry.view.run.facts().title.as_str()).collect();
    let keys = differing_keys(&firsts);
    if variants.len() == 1 && titles.len() == 1 && !keys.is_empty() {
        let said = |key: &String| {
            let value = |entry: &&Entry<'_, '_>| match entry.view.keys.get(key) {
                Some(value) => value.trim_matches('"').to_owned(),
                None => "default".to_owned(),
            };
            format!("{key} ({})", firsts.iter().map(value).collect::<Vec<_>>().join("; "))
        };
        let named: Vec<String> = keys.iter().take(MOST_KEYS).map(said).collect();
        remarks.push(match keys.len() - named.len() {
            0 => format!("The scenarios differ in {}.", enumeration(&named)),
            more => format!("The scenarios differ in {} and {more} more keys.", named.join(", ")),
        });
    }
    let lengths = || columns.iter().map(|column| column.seconds);
    let (shortest, longest) = (lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max));
    if longest > 0.0 && (longest - shortest) / longest > LENGTHS {
        remarks.push(format!(
            "The measured parts are {} to {} long: counts are compared as they are.",
            duration(shortest),
            duration(longest)
        ));
    }
    let pages: BTreeSet<u64> = firsts.iter().map(|entry| entry.view.page() as u64).collect();
    if pages.len() > 1 {
        remarks.push("Their pages are not of the same size: counts of pages do not compare.".to_owned());
    }
    remarks
}

/// `3 repeats of linux-6.1 (model)`, for the head of a table.
fn described(column: &Column) -> String {
    let machine = place(column.machine);
    let what = match column.kernel.as_str() {
        "" => machine.to_owned(),
        kernel if column.label.starts_with(machine) => kernel.to_owned(),
        kernel => format!("{kernel} ({machine})"),
    };
    match column.repeats {
        1 => what,
        n => format!("{what}, {}", plural(n, "repeat")),
    }
}

impl Better {
    /// The words for more and less of a measure.
    fn words(better: Option<&str>) -> (&'static str, &'static str) {
        match better {
            Some("higher") => ("better", "worse"),
            Some("lower") => ("worse", "better"),
            _ => ("more", "less"),
        }
    }
}
