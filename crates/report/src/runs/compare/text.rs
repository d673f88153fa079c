//! Runs compared with each other as terminal text.

use anstyle::Style;
use lotsfree_analysis::compare::{self, Compared, Row, Sort, Table, Verdict, described};
use unicode_width::UnicodeWidthStr;

use super::super::text::{BEST, BOLD, Cell, DIM, GAP, PLAIN, Page, WIDEST_NAME, shortened};
use super::grid::{Cells, Grid, KEY, REPEATS, cells, orders_sentence, totals};
use crate::TextOptions;
use crate::words::plural;

/// Of more tables only the totals are shown, unless all is asked for.
const MOST_TABLES: usize = 12;

/// Runs compared with each other as text: for every measure the figures and the relative error, worst first
/// or by group, and how many agree. No line is longer than the width (40 to 200 columns). With `verbose` also
/// the kernel's counters one by one, what is too small to tell, and the ranges of repeats.
pub fn compare_text(compared: &Compared, sort: Sort, options: TextOptions) -> String {
    let mut page = Page::new(options);
    let verbose = options.verbose;
    if compared.tables.is_empty() {
        page.wrapped("There is nothing to compare.", "", PLAIN);
    }
    if let [only] = compared.tables.as_slice() {
        page.wrapped(&only.title, "", BOLD);
    } else if !compared.tables.is_empty() {
        page.wrapped(&plural(compared.tables.len(), "comparison"), "", BOLD);
    }
    if !compared.tables.is_empty() {
        page.wrapped(&compared.reference, "", DIM);
    }
    for remark in &compared.remarks {
        page.wrapped(remark, "", PLAIN);
    }
    let few = compared.tables.len() <= MOST_TABLES || verbose;
    for table in compared.tables.iter().filter(|_| few) {
        if compared.tables.len() > 1 {
            page.blank();
            page.wrapped(&compared.short_title(table), "", BOLD);
        }
        page.compared(table, sort, verbose);
    }
    if compared.tables.len() > 1 {
        page.overview(compared);
        if !few {
            page.wrapped(
                &format!("These are the totals; -v shows all {} tables.", compared.tables.len()),
                "",
                DIM,
            );
        }
    }
    if !compared.orders.is_empty() {
        page.blank();
        for orders in &compared.orders {
            let title = if compared.orders.len() > 1 { format!("{}. ", orders.title) } else { String::new() };
            page.wrapped(&format!("{title}{}", orders_sentence(orders)), "  ", PLAIN);
        }
    }
    if !compared.alone.is_empty() {
        page.blank();
        page.wrapped(&format!("Without a counterpart: {}.", compared.alone.join(", ")), "  ", PLAIN);
    }
    if !compared.tables.is_empty() {
        page.blank();
        page.wrapped(KEY, "", DIM);
        if compared.tables.iter().flat_map(|table| &table.columns).any(|column| column.repeats > 1) {
            page.wrapped(REPEATS, "", DIM);
        }
    }
    page.out
}

impl Page {
    fn compared(&mut self, table: &Table, sort: Sort, verbose: bool) {
        let number = numbered(table);
        for (index, column) in table.columns.iter().enumerate() {
            let reference = if index == 0 { " (the reference)" } else { "" };
            let text = format!("{}{}{reference}: {}", number(index), column.label, described(column));
            self.wrapped(&text, "  ", DIM);
        }
        for remark in &table.remarks {
            self.wrapped(remark, "  ", PLAIN);
        }
        self.blank();
        self.measures(table, &table.shown(false, sort, verbose), sort, verbose);
        if verbose {
            let rows = table.shown(true, sort, false);
            if !rows.is_empty() {
                self.blank();
                if sort == Sort::Worst {
                    self.wrapped("Counters of /proc/vmstat, and means of its levels", "", BOLD);
                }
                self.measures(table, &rows, sort, verbose);
            }
        }
        self.blank();
        for total in totals(table) {
            self.wrapped(&total, "  ", PLAIN);
        }
    }

    fn measures(&mut self, table: &Table, rows: &[&Row], sort: Sort, ranges: bool) {
        if rows.is_empty() {
            self.wrapped("No measure is large enough to tell.", "", PLAIN);
            return;
        }
        let number = numbered(table);
        let parts: Vec<&[&Row]> = match sort {
            Sort::Worst => vec![rows],
            Sort::Group => rows.chunk_by(|a, b| a.group == b.group).collect(),
        };
        for (index, rows) in parts.into_iter().enumerate() {
            if sort == Sort::Group {
                if index > 0 {
                    self.blank();
                }
                self.wrapped(rows.first().map_or("", |row| row.group.name()), "", BOLD);
            }
            let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
            let cells: Vec<Vec<Cells>> = rows.iter().map(|row| cells(row, ranges)).collect();
            let columns = |spreads: bool| -> Vec<Column> {
                let labels = table.columns.iter().enumerate();
                let label =
                    |index: usize, column: &compare::Column| format!("{}{}", number(index), column.label);
                labels.map(|(i, column)| padded(rows, &cells, i, &label(i, column), spreads)).collect()
            };
            let names_width = self.names_width(&names);
            let all = columns(true);
            // One beside the reference must fit; the totals tell how far repeats are apart.
            let fits = |columns: &[Column]| {
                let widest = columns.iter().skip(1).map(Column::width).max().unwrap_or(0);
                names_width + columns.first().map_or(0, Column::width) + widest <= self.width
            };
            let columns = if ranges || fits(&all) { all } else { columns(false) };
            self.beside_reference(&names, &columns);
        }
    }

    /// The columns that names of measures take.
    fn names_width(&self, names: &[String]) -> usize {
        names.iter().map(|name| name.width()).max().unwrap_or(0).min(self.width / 2)
    }

    /// As many columns as fit, each time with the reference before them.
    fn beside_reference(&mut self, names: &[String], columns: &[Column]) {
        let Some((reference, mut others)) = columns.split_first() else { return };
        let names_width = self.names_width(names);
        loop {
            let mut used = names_width + reference.width();
            let fits = others.iter().take_while(|column| {
                used += column.width();
                used <= self.width
            });
            let (now, rest) = others.split_at(fits.count().max(1).min(others.len()));
            let shown = || std::iter::once(reference).chain(now);
            let heads: Vec<String> = shown().map(|column| column.head.clone()).collect();
            let cells: Vec<Vec<Cell>> = shown().map(|column| column.cells.clone()).collect();
            self.columns(names, &heads, &cells);
            others = rest;
            if others.is_empty() {
                break;
            }
            self.blank();
        }
    }

    fn overview(&mut self, compared: &Compared) {
        let grid = Grid::overview(compared);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let one_other = compared.tables.iter().all(|table| table.columns.len() == 2);
        let name = |row: &Vec<String>| match one_other {
            true => cell(row, 0),
            false => format!("{}: {}", cell(row, 0), cell(row, 1)),
        };
        let names: Vec<String> = grid.rows.iter().map(name).collect();
        let plain = |text: String| Cell { text, style: PLAIN };
        let columns: Vec<Vec<Cell>> =
            (2..5).map(|column| grid.rows.iter().map(|row| plain(cell(row, column))).collect()).collect();
        self.blank();
        self.wrapped("How many measures agree", "", BOLD);
        let heads: Vec<String> = grid.head.iter().skip(2).take(3).cloned().collect();
        self.columns(&names, &heads, &columns);
    }
}

/// Numbers for columns whose names are cut.
fn numbered(table: &Table) -> impl Fn(usize) -> String {
    let cut = table.columns.iter().any(|column| column.label.width() > WIDEST_NAME);
    move |index| if cut { format!("{}: ", index + 1) } else { String::new() }
}

/// A column of the table, ready to be written.
struct Column {
    head: String,
    cells: Vec<Cell>,
}

impl Column {
    /// With the gap before it.
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.text.width()).max().unwrap_or(0);
        GAP + cells.max(self.head.width())
    }
}

/// The head and the cells of one column: figures to the right, what is said of them to the left.
fn padded(rows: &[&Row], cells: &[Vec<Cells>], column: usize, label: &str, with_spreads: bool) -> Column {
    let all: Vec<Cells> = cells.iter().map(|row| row.get(column).cloned().unwrap_or_default()).collect();
    let widest = |read: &dyn Fn(&Cells) -> &str| all.iter().map(|c| read(c).width()).max().unwrap_or(0);
    let (values, spreads, errors) =
        (widest(&|cells| &cells.value), widest(&|cells| &cells.spread), widest(&|cells| &cells.error));
    let space = |text: &str, width: usize| " ".repeat(width.saturating_sub(text.width()));
    let cell = |(row, cells): (&&Row, &Cells)| {
        let mut text = format!("{}{}", space(&cells.value, values), cells.value);
        if spreads > 0 && with_spreads {
            let spread = if cells.spread.is_empty() { String::new() } else { format!("({})", cells.spread) };
            text += &format!(" {}{spread}", space(&spread, spreads + 2));
        }
        if errors > 0 {
            text += &format!("  {}{}", cells.error, space(&cells.error, errors));
        }
        let deviation = column.checked_sub(1).and_then(|other| row.deviations.get(other).copied().flatten());
        Cell { text, style: deviation.map_or(PLAIN, |deviation| style(deviation.verdict)) }
    };
    let cells: Vec<Cell> = rows.iter().zip(&all).map(cell).collect();
    let label = shortened(label, WIDEST_NAME);
    let all = cells.iter().map(|cell| cell.text.width()).max().unwrap_or(0);
    // Above the figures, as far as it fits there.
    let head = format!("{}{label}", space(&label, values));
    Column { head: format!("{head}{}", space(&head, all)), cells }
}

fn style(verdict: Verdict) -> Style {
    match verdict {
        Verdict::InKind => BOLD,
        Verdict::Same | Verdict::Close => BEST,
        Verdict::Small | Verdict::WithinSpread => DIM,
        Verdict::Off => PLAIN,
    }
}
