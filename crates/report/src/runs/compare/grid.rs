//! Tables of words, which text and Markdown share.

use lotsfree_analysis::compare::error::median;
use lotsfree_analysis::compare::{
    Column, Compared, Deviation, Orders, Row, Sort, Span, Table, Tallies, Tally, Verdict,
};
use lotsfree_units::{Grouped, Percent};

use crate::markdown;
use crate::words::{enumeration, plural};

/// Of more orders than this that are not preserved only the measures are named.
const MOST_EXPLAINED: usize = 3;

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

    /// Every measure with its relative error: a column for the reference, two for each of the others, one
    /// more where there are repeats. With `details` the kernel's counters one by one instead.
    pub fn of_table(table: &Table, details: bool, sort: Sort, all: bool) -> Grid {
        let mut grid = Grid { head: vec!["measure".to_owned()], numbers: vec![false], ..Grid::default() };
        for (index, column) in table.columns.iter().enumerate() {
            grid.head.extend([column.label.clone(), "range".to_owned()]);
            grid.numbers.extend([true, true]);
            if index > 0 {
                grid.head.push("error".to_owned());
                grid.numbers.push(false);
            }
        }
        for row in table.shown(details, sort, all) {
            let mut line = vec![row.name.clone()];
            for (index, Cells { value, spread, error }) in cells(row, true).into_iter().enumerate() {
                line.extend([value, spread]);
                if index > 0 {
                    line.push(error);
                }
            }
            grid.rows.push(line);
        }
        grid
    }

    /// One row per table and column: how much agrees.
    pub fn overview(compared: &Compared) -> Grid {
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
        for table in &compared.tables {
            for (column, tallies) in table.columns.iter().skip(1).zip(&table.tallies) {
                let mut line = vec![compared.short_title(table), column.label.clone()];
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

/// How many measures agree, for each column but the reference, and how far repeats are apart.
pub(super) fn totals(table: &Table) -> Vec<String> {
    let apart = |(index, column): (usize, &Column)| {
        let of = |row: &Row| row.values.get(index).copied().flatten()?.spread;
        let told = table.shown(false, Sort::Group, false);
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
    let apart: Vec<String> = table.columns.iter().enumerate().filter_map(apart).collect();
    let one = |(column, tallies): (&Column, &Tallies)| {
        let mut text = format!("{}: {}", column.label, total(&tallies.measures, "measure"));
        if tallies.vmstat.compared > 0 {
            text += &format!(" /proc/vmstat: {}", total(&tallies.vmstat, "counter"));
        }
        text
    };
    table.columns.iter().skip(1).zip(&table.tallies).map(one).chain(apart).collect()
}

/// `orders preserved: 11 of 12; not: latency p99 (base and direct tie).`
pub fn orders_sentence(orders: &Orders) -> String {
    let preserved = orders.measures.iter().filter(|order| order.is_preserved()).count();
    let mut text = format!(
        "Orders of {} preserved in {}: {preserved} of {}",
        plural(orders.variants.len(), "variant"),
        orders.other,
        orders.measures.len()
    );
    let pairs = |pairs: &[[String; 2]], how: &str| {
        let named: Vec<String> = pairs.iter().map(|[a, b]| format!("{a} and {b}")).collect();
        (!named.is_empty()).then(|| format!("{} {how}", named.join(", ")))
    };
    let lost: Vec<String> = orders
        .measures
        .iter()
        .filter(|order| !order.is_preserved())
        .map(|order| {
            let how = [pairs(&order.reversed, "are reversed"), pairs(&order.tied, "tie")];
            match preserved + MOST_EXPLAINED < orders.measures.len() {
                true => order.name.clone(),
                false => {
                    format!("{} ({})", order.name, how.into_iter().flatten().collect::<Vec<_>>().join("; "))
                }
            }
        })
        .collect();
    if !lost.is_empty() {
        text += &format!("; not: {}", enumeration(&lost));
    }
    text + "."
}

/// `30 % worse`, `12 % more`, `51 times less`, `in kind, more`.
fn error(row: &Row, deviation: &Deviation) -> String {
    let (more, less) = words(row.better.as_deref());
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

/// The words for more and less of a measure.
fn words(better: Option<&str>) -> (&'static str, &'static str) {
    match better {
        Some("higher") => ("better", "worse"),
        Some("lower") => ("worse", "better"),
        _ => ("more", "less"),
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

/// What the words of a table mean.
pub(in super::super) const KEY: &str = "An error is a share of the reference's figure, or of a floor where that is larger. \
     better, worse: for those whom the machine serves; more, less: neither way is better; in kind: next to nothing \
     in one, much in the other.";
/// The same of repeats.
pub(in super::super) const REPEATS: &str = "Of repeats the median is shown, and how far the largest is from the smallest; within spread: repeats are as \
     far apart.";
