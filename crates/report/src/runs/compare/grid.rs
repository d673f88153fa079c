//! Tables of words, which text and Markdown share.

use std::cmp::Ordering;

use lotsfree_units::{Grouped, Percent};

use super::super::measure::Better;
use super::error::median;
use super::{Compared, Deviation, Orders, Row, Span, Table, Tally, Verdict};
use crate::markdown;
use crate::words::{enumeration, plural};

/// Of more orders than this that are not preserved only the measures are named.
const MOST_EXPLAINED: usize = 3;

/// Which measures come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Those that differ in kind, then those with the largest errors.
    #[default]
    Worst,
    /// Those of one group together.
    Group,
}

/// A table of words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// Heads of the columns.
    pub head: Vec<String>,
    /// Whether a column holds numbers.
    pub numbers: Vec<bool>,
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    /// As Markdown. Names are escaped; columns without any word are left out.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let head: Vec<String> = self.head.iter().map(|head| markdown::escaped(head)).collect();
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        markdown::table(&mut out, &head, &self.numbers, &self.rows);
        out
    }
}

/// What one column says of one measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Cells {
    pub(in super::super) value: String,
    /// Of repeats.
    pub(in super::super) spread: String,
    /// Against the reference.
    pub(in super::super) error: String,
}

impl Table {
    /// The measures to show: the kernel's counters one by one, or all others. Without `all`, what is small in
    /// every column is left out.
    pub(super) fn shown(&self, details: bool, sort: Sort, all: bool) -> Vec<&Row> {
        let tells = |row: &Row| {
            let told = |d: &Option<Deviation>| d.is_none_or(|d| d.verdict != Verdict::Small);
            all || row.deviations.iter().any(told)
        };
        let mut rows: Vec<&Row> =
            self.rows.iter().filter(|row| row.group.is_detail() == details && tells(row)).collect();
        let worst = |row: &Row| {
            let ranks = row.deviations.iter().flatten().map(Deviation::rank);
            ranks.max_by(rank_order).unwrap_or((0, -1.0))
        };
        if sort == Sort::Worst {
            rows.sort_by(|a, b| rank_order(&worst(b), &worst(a)));
        }
        rows
    }

    /// What each column says of a measure.
    pub(in super::super) fn cells(row: &Row, ranges: bool) -> Vec<Cells> {
        let deviations = std::iter::once(None).chain(row.deviations.iter().map(Some));
        let cell = |(span, deviation): (&Option<Span>, Option<&Option<Deviation>>)| {
            let Some(span) = span else { return Cells { value: "–".to_owned(), ..Cells::default() } };
            let (min, max) = (row.text(span.min), row.text(span.max));
            let spread = match span.spread {
                Some(_) if min == max => String::new(),
                Some(_) if ranges => format!("{min} to {max}"),
                Some(spread) => Percent(spread).to_string(),
                None => String::new(),
            };
            let error = deviation.copied().flatten().map(|d| error(row, &d)).unwrap_or_default();
            Cells { value: row.text(span.value), spread, error }
        };
        row.values.iter().zip(deviations).map(cell).collect()
    }

    /// Every measure with its relative error: a column for the reference, two for each of the others, one
    /// more where there are repeats. With `details` the kernel's counters one by one instead.
    pub fn grid(&self, details: bool, sort: Sort, all: bool) -> Grid {
        let mut grid = Grid { head: vec!["measure".to_owned()], numbers: vec![false], ..Grid::default() };
        for (index, column) in self.columns.iter().enumerate() {
            grid.head.extend([column.label.clone(), "range".to_owned()]);
            grid.numbers.extend([true, true]);
            if index > 0 {
                grid.head.push("error".to_owned());
                grid.numbers.push(false);
            }
        }
        for row in self.shown(details, sort, all) {
            let mut line = vec![row.name.clone()];
            for (index, Cells { value, spread, error }) in Table::cells(row, true).into_iter().enumerate() {
                line.extend([value, spread]);
                if index > 0 {
                    line.push(error);
                }
            }
            grid.rows.push(line);
        }
        grid
    }

    /// How many measures agree, for each column but the reference, and how far repeats are apart.
    pub fn totals(&self) -> Vec<String> {
        let apart = |(index, column): (usize, &super::Column)| {
            let of = |row: &Row| row.values.get(index).copied().flatten()?.spread;
            let told = self.shown(false, Sort::Group, false);
            let mut spreads: Vec<f64> = told.into_iter().filter_map(of).collect();
            spreads.sort_by(f64::total_cmp);
            let (middle, last) = (median(&spreads)?, spreads.last()?);
            Some(format!(
                "{}: {} are {} apart in the median measure, {} in the widest.",
                column.label,
                plural(column.repeats, "repeat"),
                size(middle),
                size(*last)
            ))
        };
        let apart: Vec<String> = self.columns.iter().enumerate().filter_map(apart).collect();
        let one = |(column, tallies): (&super::Column, &super::Tallies)| {
            let mut text = format!("{}: {}", column.label, total(&tallies.measures, "measure"));
            if tallies.vmstat.compared > 0 {
                text += &format!(" /proc/vmstat: {}", total(&tallies.vmstat, "counter"));
            }
            text
        };
        self.columns.iter().skip(1).zip(&self.tallies).map(one).chain(apart).collect()
    }
}

impl Compared {
    /// One row per table and column: how much agrees.
    pub fn overview(&self) -> Grid {
        let head = [
            "compared",
            "against the reference",
            "median error",
            "within 15 %",
            "in kind",
            "/proc/vmstat: median error",
            "within 15 %",
            "in kind",
        ];
        let mut grid = Grid {
            head: head.map(str::to_owned).to_vec(),
            numbers: (0..head.len()).map(|column| column > 1).collect(),
            rows: Vec::new(),
        };
        for table in &self.tables {
            for (column, tallies) in table.columns.iter().skip(1).zip(&table.tallies) {
                let mut line = vec![self.short_title(table), column.label.clone()];
                for tally in [&tallies.measures, &tallies.vmstat] {
                    line.extend([
                        tally.median_error.map_or_else(|| "–".to_owned(), size),
                        format!("{} of {}", tally.close, tally.compared),
                        tally.in_kind.to_string(),
                    ]);
                }
                grid.rows.push(line);
            }
        }
        grid
    }

    /// A table's title; without the scenario's if all have the same.
    pub(super) fn short_title(&self, table: &Table) -> String {
        let several = self.tables.iter().any(|other| other.scenario != table.scenario);
        let rest = table.title.strip_prefix(&table.scenario).and_then(|rest| rest.strip_prefix(": "));
        match rest {
            Some(rest) if !several => rest.to_owned(),
            _ => table.title.clone(),
        }
    }
}

impl Orders {
    /// `orders preserved: 11 of 12; not: latency p99 (base and direct tie).`
    pub fn sentence(&self) -> String {
        let preserved = self.measures.iter().filter(|order| order.is_preserved()).count();
        let mut text = format!(
            "Orders of {} preserved in {}: {preserved} of {}",
            plural(self.variants.len(), "variant"),
            self.other,
            self.measures.len()
        );
        let pairs = |pairs: &[[String; 2]], how: &str| {
            let named: Vec<String> = pairs.iter().map(|[a, b]| format!("{a} and {b}")).collect();
            (!named.is_empty()).then(|| format!("{} {how}", named.join(", ")))
        };
        let lost: Vec<String> = self
            .measures
            .iter()
            .filter(|order| !order.is_preserved())
            .map(|order| {
                let how = [pairs(&order.reversed, "are reversed"), pairs(&order.tied, "tie")];
                match preserved + MOST_EXPLAINED < self.measures.len() {
                    true => order.name.clone(),
                    false => format!(
                        "{} ({})",
                        order.name,
                        how.into_iter().flatten().collect::<Vec<_>>().join("; ")
                    ),
                }
            })
            .collect();
        if !lost.is_empty() {
            text += &format!("; not: {}", enumeration(&lost));
        }
        text + "."
    }
}

/// `30 % worse`, `12 % more`, `51 times less`, `in kind, more`.
fn error(row: &Row, deviation: &Deviation) -> String {
    let (more, less) = Better::words(row.better.as_deref());
    let word = if deviation.change > 0.0 { more } else { less };
    match deviation.verdict {
        Verdict::Small => "too small".to_owned(),
        Verdict::Same => "same".to_owned(),
        Verdict::WithinSpread => "within spread".to_owned(),
        Verdict::InKind => format!("in kind, {word}"),
        Verdict::Close | Verdict::Off => match deviation.times_smaller() {
            Some(times) => format!("{} times {word}", Grouped(times.round() as u64)),
            None => format!("{} {word}", size(deviation.error)),
        },
    }
}

/// `12 %`; `51 times` where percentages stop being readable.
pub(in super::super) fn size(error: f64) -> String {
    match error {
        e if e >= 10.0 => format!("{} times", Grouped((1.0 + e).round() as u64)),
        e => Percent(e).to_string(),
    }
}

fn total(tally: &Tally, noun: &str) -> String {
    let Some(median) = tally.median_error else {
        return format!("{} compared.", plural(0, noun));
    };
    let mut text = format!(
        "{} compared, median error {}; {} within 15 %, {} in kind",
        plural(tally.compared, noun),
        size(median),
        tally.close,
        match tally.in_kind {
            0 => "none differs".to_owned(),
            1 => "1 differs".to_owned(),
            n => format!("{n} differ"),
        }
    );
    if tally.small > 0 {
        let are = if tally.small == 1 { "is" } else { "are" };
        text += &format!("; {} more {are} too small in both to tell", tally.small);
    }
    text + "."
}

pub(in super::super) fn rank_order(a: &(u8, f64), b: &(u8, f64)) -> Ordering {
    a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
}

/// What the words of a table mean.
pub(super) const KEY: &str = "An error is a share of the reference's figure, or of a floor where that is larger. \
     better, worse: for those whom the machine serves; more, less: neither way is better; in kind: next to nothing \
     in one, much in the other.";
/// The same of repeats.
pub(super) const REPEATS: &str = "Of repeats the median is shown, and how far the largest is from the smallest; within spread: repeats are as \
     far apart.";
