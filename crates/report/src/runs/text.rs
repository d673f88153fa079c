//! Runs side by side as terminal text.

use anstyle::{AnsiColor, Color, Effects, Style};
use lotsfree_analysis::explain::Headline;
use lotsfree_analysis::measure::{Measure, gain_text, measures};
use lotsfree_analysis::view::{Comparison, View, ended};
use lotsfree_analysis::{assumed, explain, stages};
use lotsfree_run::Run;
use lotsfree_units::{Percent, visible_line};
use unicode_width::UnicodeWidthStr;

use super::bars::{self, Swept};
use super::blame;
use super::expected::{self, Expected};
use super::page::{facts, measured_part, repeats_note, shown_at};
use crate::TextOptions;
use crate::chart;
use crate::words::glued;

/// See [`TextOptions::width`].
const WIDTHS: (usize, usize) = (40, 200);
/// Between two columns.
pub(super) const GAP: usize = 2;
/// A column's name is cut to so many columns of the terminal.
pub(super) const WIDEST_NAME: usize = 22;

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const BOLD: Style = Style::new().effects(Effects::BOLD);
pub(crate) const DIM: Style = Style::new().effects(Effects::DIMMED);
pub(super) const BEST: Style =
    Style::new().fg_color(Some(Color::Ansi(AnsiColor::Green))).effects(Effects::BOLD);

/// Runs side by side as text: the table of measures with the best marked, throughput over the sweep if there
/// is one, and one sentence per run. No line is longer than the width (40 to 200 columns): what does not fit
/// beside each other is written below. With `verbose`, the change of every measure against the first run too.
pub fn runs_text(runs: &[Run], options: TextOptions) -> String {
    let comparison = Comparison::of(runs);
    let mut page = Page::new(options);
    page.wrapped(&comparison.title(), "", BOLD);
    if let Some(facts) = facts(&comparison) {
        page.wrapped(&facts, "", DIM);
    }
    if runs.is_empty() {
        page.wrapped("There is no run to show.", "", PLAIN);
        return page.out;
    }
    for view in &comparison.views {
        for remark in view.remarks() {
            page.wrapped(&format!("{}: {remark}", view.label), "", PLAIN);
        }
    }
    page.sweep(&comparison);
    page.table(&comparison, options.verbose);
    for view in comparison.columns() {
        if let Some(stages) = stages::sentence(view) {
            page.wrapped(&format!("{}: {stages}.", view.label), "  ", PLAIN);
        }
    }
    page.blank();
    let alike = explain::all_alike(&comparison);
    // What happened is the same in all of them.
    let told = if alike.is_some() { 1 } else { usize::MAX };
    for view in comparison.columns().take(told) {
        let sentence = explain::of_view(view, &comparison);
        let figure = match explain::headline(view) {
            Some(Headline::Throughput(relative)) => format!(" ({})", Percent(relative)),
            Some(Headline::Latency(latency)) => format!(" ({latency})"),
            None => String::new(),
        };
        page.wrapped(&format!("{}{figure}: {}.", view.label, sentence.text), "  ", PLAIN);
    }
    if let Some(alike) = alike {
        page.wrapped(&alike, "  ", PLAIN);
    }
    page.blame(&comparison);
    page.out
}

/// Text that is being written.
pub(crate) struct Page {
    pub(crate) out: String,
    pub(super) width: usize,
    color: bool,
}

/// One cell: what it says, and how.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) style: Style,
}

impl Page {
    pub(crate) fn new(options: TextOptions) -> Self {
        let width = options.width.clamp(WIDTHS.0, WIDTHS.1);
        Page { out: String::new(), width, color: options.color }
    }

    fn painted(&self, style: Style, text: &str) -> String {
        if self.color && style != PLAIN && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn blank(&mut self) {
        self.out.push('\n');
    }

    /// A paragraph; lines after the first are indented.
    pub(crate) fn wrapped(&mut self, text: &str, indent: &str, style: Style) {
        let text = visible_line(text);
        let options = textwrap::Options::new(self.width)
            .subsequent_indent(indent)
            .break_words(true)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        for line in textwrap::wrap(&glued(&text), &options) {
            let line = line.replace('\u{a0}', " ");
            let line = self.painted(style, line.trim_end());
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    /// The measures, as many runs beside each other as fit.
    fn table(&mut self, comparison: &Comparison<'_>, verbose: bool) {
        let views: Vec<&View<'_>> = comparison.columns().collect();
        let rows = measures(&views);
        self.blank();
        if rows.is_empty() {
            self.wrapped("Nothing was measured.", "", PLAIN);
            return;
        }
        if let Some(at) = shown_at(comparison) {
            self.wrapped(&at, "", BOLD);
        }
        let names: Vec<String> = rows.iter().map(|row| row.name.to_owned()).collect();
        let heads = views.iter().map(|view| match ended(view.run.state()) {
            Some(ended) => format!("{} ({ended})", view.label),
            None => view.label.clone(),
        });
        let columns: Vec<Vec<Cell>> = (0..views.len()).map(|index| column(&rows, index, verbose)).collect();
        let heads: Vec<String> = heads.map(|head| shortened(&head, WIDEST_NAME)).collect();
        self.columns(&names, &heads, &columns);
        if let Some(part) = measured_part(&views) {
            self.wrapped(&part, "", DIM);
        }
        let notes = [repeats_note(comparison), assumed::times(comparison)];
        notes.into_iter().flatten().for_each(|note| self.wrapped(&note, "", DIM));
        if views.len() > 1 {
            let mut key = "* best".to_owned();
            if comparison.repeated().is_some() {
                key += ", or not told from it by the repeats";
            }
            if verbose {
                key += &format!(
                    "; in brackets the change against {}: positive is always better",
                    views[0].label
                );
            }
            self.wrapped(&format!("{key}."), "", DIM);
        }
        if let Some(expected) = Expected::of(&views, &rows) {
            let (names, cells) = expected.table();
            self.blank();
            if !names.is_empty() {
                self.wrapped(expected::HEADING, "", BOLD);
                let plain = |text: String| Cell { text, style: PLAIN };
                let columns: Vec<Vec<Cell>> =
                    cells.into_iter().map(|column| column.into_iter().map(plain).collect()).collect();
                self.columns(&names, &heads, &columns);
            }
            self.wrapped(&expected.note, "", DIM);
            if let Some(note) = expected.nearest_note(&views) {
                self.wrapped(&note, "", DIM);
            }
        }
    }

    fn blame(&mut self, comparison: &Comparison<'_>) {
        let several = comparison.columns().nth(1).is_some();
        let mut heading = Some(blame::HEADING);
        for view in comparison.columns() {
            for sentence in blame::sentences(view) {
                if let Some(heading) = heading.take() {
                    self.blank();
                    self.wrapped(heading, "", BOLD);
                }
                let label = if several { format!("{}: ", view.label) } else { String::new() };
                self.wrapped(&format!("{label}{sentence}"), "  ", PLAIN);
            }
        }
    }

    fn sweep(&mut self, comparison: &Comparison<'_>) {
        let Some(sweep) = &comparison.sweep else { return };
        let swept = Swept::of(comparison);
        let mut values: Vec<(f64, String)> = comparison
            .views
            .iter()
            .filter_map(|view| view.point.as_ref().map(|point| (point.number, point.label.clone())))
            .collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        values.dedup_by(|a, b| a.0 == b.0);
        self.blank();
        self.wrapped(&swept.heading(sweep), "", BOLD);
        let names: Vec<String> = values.iter().map(|(_, label)| label.clone()).collect();
        let heads: Vec<String> = sweep.lines.iter().map(|(label, _)| shortened(label, WIDEST_NAME)).collect();
        let cell = |line: &[(f64, usize)], at: f64| {
            let view =
                line.iter().find(|(value, _)| *value == at).and_then(|(_, i)| comparison.views.get(*i));
            let text = match view.and_then(|view| swept.value(view)) {
                Some(value) if swept == Swept::Relative => Percent(value).to_string(),
                Some(value) => chart::short_count(value),
                None => "–".to_owned(),
            };
            Cell { text, style: PLAIN }
        };
        let columns: Vec<Vec<Cell>> = sweep
            .lines
            .iter()
            .map(|(_, line)| values.iter().map(|(at, _)| cell(line, *at)).collect())
            .collect();
        self.columns(&names, &heads, &columns);
        bars::refusals(comparison).iter().for_each(|said| self.wrapped(&format!("{said}."), "", PLAIN));
    }

    /// Columns right-aligned after the rows' names, in as many parts as the width asks for.
    pub(crate) fn columns(&mut self, names: &[String], heads: &[String], columns: &[Vec<Cell>]) {
        let names: Vec<String> = names.iter().map(|name| shortened(name, self.width / 2)).collect();
        let margin = names.iter().map(|name| name.width()).max().unwrap_or(0);
        let room = self.width.saturating_sub(margin + GAP);
        let widths: Vec<usize> = columns
            .iter()
            .zip(heads)
            .map(|(cells, head)| {
                let cells = cells.iter().map(|cell| cell.text.width()).max().unwrap_or(0);
                cells.max(head.width()).min(room)
            })
            .collect();
        let mut first = 0;
        while first < columns.len() {
            let mut used = margin;
            let fits = widths[first..].iter().take_while(|width| {
                used += GAP + **width;
                used <= self.width
            });
            let last = first + fits.count().max(1);
            let mut line = |name: &str, cells: &mut dyn Iterator<Item = (Cell, usize)>| {
                let mut text = format!("{name}{}", " ".repeat(margin.saturating_sub(name.width())));
                for (cell, width) in cells {
                    let cut = shortened(&cell.text, width);
                    text += &" ".repeat(GAP + width.saturating_sub(cut.width()));
                    text += &self.painted(cell.style, &cut);
                }
                self.out.push_str(text.trim_end());
                self.out.push('\n');
            };
            let all = || (first..last).map(|index| (index, widths[index]));
            line("", &mut all().map(|(i, width)| (Cell { text: heads[i].clone(), style: BOLD }, width)));
            for (row, name) in names.iter().enumerate() {
                line(name, &mut all().map(|(i, width)| (columns[i][row].clone(), width)));
            }
            first = last;
            if first < columns.len() {
                self.blank();
            }
        }
    }
}

/// The cells of one run.
fn column(rows: &[Measure], index: usize, verbose: bool) -> Vec<Cell> {
    let cell = |row: &Measure| {
        let best = row.best().get(index).copied().unwrap_or(false);
        let mut text = row.text(row.values.get(index).copied().flatten());
        // The mark stands in a column of its own, so that figures stay below each other.
        text.push(if best { '*' } else { ' ' });
        let gain = row.gains().get(index).copied().flatten().filter(|_| verbose);
        let gain = gain.map(|gain| format!(" ({})", gain_text(gain))).unwrap_or_default();
        let range = row.range(index).map(|range| format!(" [{range}]")).unwrap_or_default();
        (text, range + &gain, if best { BEST } else { PLAIN })
    };
    let cells: Vec<(String, String, Style)> = rows.iter().map(cell).collect();
    let widest = cells.iter().map(|(_, gain, _)| gain.width()).max().unwrap_or(0);
    let padded = |(text, gain, style): (String, String, Style)| {
        let space = " ".repeat(widest.saturating_sub(gain.width()));
        Cell { text: format!("{text}{gain}{space}"), style }
    };
    cells.into_iter().map(padded).collect()
}

/// `text` in one line without control characters, cut to so many columns.
pub(super) fn shortened(text: &str, columns: usize) -> String {
    let text = visible_line(text);
    if text.width() <= columns {
        return text.into_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        if out.width() + unicode_width::UnicodeWidthChar::width(c).unwrap_or(0) + 1 > columns {
            break;
        }
        out.push(c);
    }
    out + "…"
}
