//! Terminal text.

use std::fmt::Write;

use anstyle::{AnsiColor, Color, Effects, Style};
use lotsfree_doctor::{Finding, MemoryMap, Remedy};
use lotsfree_kernel_files::ProblemKind;
use lotsfree_units::{Bytes, Percent, visible, visible_line};
use unicode_width::UnicodeWidthStr;

use crate::palette::{ansi_severity, ansi_use};
use crate::words;
use crate::{Report, Unread};

/// How to write it.
#[derive(Clone, Copy, Debug)]
pub struct TextOptions {
    /// Columns.
    pub width: usize,
    /// Whether to colour.
    pub color: bool,
    /// Whether to name every rule and file instead of counting them.
    pub verbose: bool,
}

/// Text narrower than this is not readable, wider than [`WIDEST`] is not comfortable.
const NARROWEST: usize = 40;
/// See [`NARROWEST`].
const WIDEST: usize = 120;
/// Left margin of a finding's parts; labels stand in it.
const MARGIN: usize = 10;
/// Below this width the parts of a remedy are not indented further.
const ROOMY: usize = 70;
/// More names than this are counted instead, unless all are asked for.
const MOST_NAMES: usize = 12;
/// More absent files than this in saved data are counted instead.
const MOST_ABSENT: usize = 8;

/// The report as text. No line is longer than the width (40 to 120 columns), except commands and lines for
/// configuration files, which are never wrapped.
pub fn text(report: &Report, options: TextOptions) -> String {
    let mut page = Page::new(options);
    page.head(report);
    page.memory(report);
    for finding in &report.findings {
        page.finding(finding);
    }
    page.foot(report);
    page.out
}

/// What to do, best first, as [`text`] writes it below a finding.
pub(crate) fn remedies(remedies: &[Remedy], options: TextOptions) -> String {
    let mut page = Page::new(options);
    for (number, remedy) in (1..).zip(remedies) {
        page.remedy(number, remedy);
    }
    page.out
}

struct Page {
    out: String,
    width: usize,
    color: bool,
    verbose: bool,
}

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().effects(Effects::BOLD);
const DIM: Style = Style::new().effects(Effects::DIMMED);
const COMMAND: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Green)));

impl Page {
    fn new(options: TextOptions) -> Self {
        let width = options.width.clamp(NARROWEST, WIDEST);
        Page { out: String::new(), width, color: options.color, verbose: options.verbose }
    }

    fn painted(&self, style: Style, text: &str) -> String {
        if self.color && style != PLAIN && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn wrapped(&self, text: &str, width: usize) -> Vec<String> {
        let options = textwrap::Options::new(width.max(1))
            .break_words(true)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        let text = visible(text);
        let lines = text.lines().flat_map(|line| {
            textwrap::wrap(&words::glued(line), &options).into_iter().map(unglued).collect::<Vec<_>>()
        });
        lines.collect()
    }

    /// A paragraph from the left edge.
    fn paragraph(&mut self, text: &str, style: Style) {
        for line in self.wrapped(text, self.width) {
            let line = self.painted(style, &line);
            self.line(&line);
        }
    }

    /// A label at the right edge of the margin and text beside it, wrapped and indented.
    fn labelled(&mut self, label: &str, margin: usize, text: &str) {
        self.hanging(label, margin, 0, text);
    }

    /// [`Page::labelled`], with the second and later lines indented further.
    fn hanging(&mut self, label: &str, margin: usize, hang: usize, text: &str) {
        for (i, part) in self.wrapped(text, self.width - margin - hang).into_iter().enumerate() {
            let margin = if i == 0 { self.margin(label, margin) } else { " ".repeat(margin + hang) };
            self.line(&format!("{margin}{part}"));
        }
    }

    /// A command: never wrapped, so that it can be pasted.
    fn command(&mut self, label: &str, margin: usize, command: &str) {
        let line = format!("{}{}", self.margin(label, margin), self.painted(COMMAND, &visible_line(command)));
        self.line(&line);
    }

    /// `label` and a space, aligned to the right of `margin` columns.
    fn margin(&self, label: &str, margin: usize) -> String {
        if label.is_empty() {
            return " ".repeat(margin);
        }
        let pad = margin.saturating_sub(label.width() + 1);
        format!("{}{} ", " ".repeat(pad), self.painted(DIM, label))
    }

    fn head(&mut self, report: &Report) {
        let when = match words::taken_at(report) {
            Some(at) if !report.source.live => format!("{}, {at}", words::samples(report)),
            _ => words::samples(report),
        };
        let label = visible_line(&report.source.label).into_owned();
        if label.width() + when.width() + 3 <= self.width {
            let head = format!("{} {}", self.painted(BOLD, &label), self.painted(DIM, &format!("({when})")));
            self.line(&head);
        } else {
            self.paragraph(&label, BOLD);
            self.paragraph(&when, DIM);
        }
        let facts = words::host_facts(report);
        if !facts.is_empty() {
            let facts: Vec<String> = facts.iter().map(|fact| fact.replace(' ', "\u{a0}")).collect();
            self.paragraph(&facts.join(" · "), PLAIN);
        }
        for remark in words::host_remarks(report) {
            self.paragraph(&remark, PLAIN);
        }
        self.line("");
        self.paragraph(&words::verdict(report), BOLD);
    }

    /// Where memory goes: what it says, one bar, and the figures in columns.
    fn memory(&mut self, report: &Report) {
        let Some(memory) = report.memory.as_ref().filter(|memory| memory.total > Bytes::ZERO) else { return };
        self.line("");
        if let Some(message) = words::memory_message(report) {
            self.paragraph(&format!("{message}."), BOLD);
        }
        if self.color {
            let bar = bar(memory, self.width);
            self.line(&bar);
        }
        self.legend(memory);
        if let Some(largest) = words::largest(report) {
            self.paragraph(&largest, PLAIN);
        }
    }

    fn legend(&mut self, memory: &MemoryMap) {
        const GAP: usize = 3;
        let rows: Vec<_> = words::parts(memory)
            .map(|(part, bytes, share)| (part, bytes.to_string(), Percent(share).to_string()))
            .collect();
        let widest = |of: fn(&(_, String, String)) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let name = rows.iter().map(|(part, _, _)| part.name().width()).max().unwrap_or(0);
        let (bytes, share) = (widest(|row| row.1.width()), widest(|row| row.2.width()));
        let mark = if self.color { 2 } else { 0 };
        let cell = mark + name + 2 + bytes + 2 + share;
        let columns = ((self.width + GAP) / (cell + GAP)).clamp(1, 3);
        // Down the columns, as a list is read.
        let height = rows.len().div_ceil(columns);
        for row in 0..height {
            let mut line = String::new();
            for (part, amount, percent) in (0..columns).filter_map(|column| rows.get(column * height + row)) {
                if !line.is_empty() {
                    line.push_str(&" ".repeat(GAP));
                }
                if self.color {
                    let style = Style::new().fg_color(Some(ansi_use(*part)));
                    let _ = write!(line, "{style}■{style:#} ");
                }
                let _ = write!(line, "{:<name$}  {amount:>bytes$}  {percent:>share$}", part.name());
            }
            self.line(&line);
        }
    }

    fn finding(&mut self, finding: &Finding) {
        self.line("");
        let style = Style::new().fg_color(Some(ansi_severity(finding.severity))).effects(Effects::BOLD);
        let severity = words::severity(finding.severity);
        for (i, part) in self.wrapped(&finding.title, self.width - MARGIN).into_iter().enumerate() {
            let label = match i {
                0 => format!("{}{}", self.painted(style, severity), " ".repeat(MARGIN - severity.len())),
                _ => " ".repeat(MARGIN),
            };
            let line = format!("{label}{}", self.painted(BOLD, &part));
            self.line(&line);
        }
        let sure = words::confidence(finding.confidence);
        self.labelled("rule", MARGIN, &format!("{} ({sure})", finding.rule));
        self.labelled("costs", MARGIN, &finding.cost.text);
        for (i, evidence) in finding.evidence.iter().enumerate() {
            self.hanging(if i == 0 { "because" } else { "" }, MARGIN, 2, &words::evidence(evidence));
        }
        for note in &finding.notes {
            self.labelled("note", MARGIN, note);
        }
        for (i, remedy) in finding.remedies.iter().enumerate() {
            self.remedy(i + 1, remedy);
        }
    }

    fn remedy(&mut self, number: usize, remedy: &Remedy) {
        let inner = if self.width < ROOMY { MARGIN } else { MARGIN + 11 };
        self.labelled("do", MARGIN, &format!("{number}. {}", remedy.title));
        for (i, command) in remedy.runtime.iter().enumerate() {
            self.command(if i == 0 { "now" } else { "" }, inner, command);
        }
        for persistent in &remedy.persistent {
            self.labelled("keep", inner, &format!("in {}:", persistent.file));
            for line in &persistent.lines {
                self.command("", inner + 2, line);
            }
        }
        if let Some(restart) = &remedy.restart {
            self.labelled("restart", inner, restart);
        }
        for (i, command) in remedy.verify.iter().enumerate() {
            self.command(if i == 0 { "check" } else { "" }, inner, command);
        }
        for (i, command) in remedy.undo.iter().enumerate() {
            self.command(if i == 0 { "undo" } else { "" }, inner, command);
        }
        if !remedy.risk.is_empty() {
            self.labelled("risk", inner, &remedy.risk);
        }
    }

    fn foot(&mut self, report: &Report) {
        self.line("");
        let found = match report.findings.len() {
            0 if !report.judged() => "Nothing could be judged.".to_owned(),
            0 => "No finding.".to_owned(),
            n => format!("{}.", words::plural(n, "finding")),
        };
        self.paragraph(&format!("{found} {}", words::tally(report)), PLAIN);
        if self.verbose || report.findings.is_empty() {
            self.names("fine", &report.fine);
        }
        self.names("two samples needed", &report.need_samples);
        if self.verbose {
            for rule in &report.not_applicable {
                self.paragraph(&format!("does not apply: {}: {}", rule.rule, rule.why), DIM);
            }
            for rule in &report.unknown {
                self.paragraph(&format!("could not judge: {}: no {}", rule.rule, rule.why), PLAIN);
            }
        } else {
            let rules: Vec<&str> = report.unknown.iter().map(|skipped| skipped.rule).collect();
            self.names("could not judge", &rules);
        }
        self.unread(report);
        if !report.findings.is_empty() {
            self.paragraph(
                "lotsfree explain RULE says what a rule sees, why it hurts and when it is mistaken.",
                DIM,
            );
        }
    }

    /// Names after a label. Too many are left to the count above them, unless all are asked for.
    fn names(&mut self, label: &str, names: &[&str]) {
        if names.is_empty() {
            return;
        }
        let text = match names.len() {
            n if n > MOST_NAMES && !self.verbose => format!("{label}: {n} rules (--verbose names them)"),
            _ => format!("{label}: {}", names.join(", ")),
        };
        self.paragraph(&text, DIM);
    }

    /// What could not be read, by reason: everything denied or broken is named; files that are absent because
    /// the kernel or the data do not have them are named together, or counted where the data are a part of a
    /// host.
    fn unread(&mut self, report: &Report) {
        for (kind, label) in words::UNREAD_KINDS {
            let of_kind: Vec<&Unread> = report.unread.iter().filter(|unread| unread.kind == kind).collect();
            if of_kind.is_empty() {
                continue;
            }
            if self.verbose || !matches!(kind, ProblemKind::Denied | ProblemKind::Absent) {
                for unread in of_kind {
                    let line = unread.line.map(|line| format!(", line {line}")).unwrap_or_default();
                    self.paragraph(&format!("{label}: {}{line}: {}", unread.file, unread.detail), PLAIN);
                }
                continue;
            }
            let names = words::collapse(&of_kind);
            let text = if kind == ProblemKind::Absent && !report.source.live && names.len() > MOST_ABSENT {
                let some: Vec<&str> = names.iter().take(2).map(String::as_str).collect();
                format!(
                    "not in these data: {} files, such as {} (--verbose names them)",
                    of_kind.len(),
                    some.join(", ")
                )
            } else {
                format!("{label}: {}", names.join(", "))
            };
            self.paragraph(&text, if kind == ProblemKind::Absent { DIM } else { PLAIN });
        }
        if words::root_would_help(report) {
            self.paragraph("Run as root to read the rest.", PLAIN);
        }
    }
}

/// One bar, a column for each so many bytes, in the colours of the parts.
fn bar(memory: &MemoryMap, width: usize) -> String {
    let mut bar = String::new();
    let (mut sum, mut drawn) = (0.0, 0usize);
    for (part, bytes) in &memory.parts {
        sum += bytes.share_of(memory.total);
        let end = ((sum * width as f64).round() as usize).min(width);
        if end > drawn {
            let style = Style::new().fg_color(Some(ansi_use(*part)));
            let _ = write!(bar, "{style}{}{style:#}", "█".repeat(end - drawn));
            drawn = end;
        }
    }
    bar
}

/// With ordinary spaces again, and none at the start of a line.
fn unglued(line: std::borrow::Cow<'_, str>) -> String {
    line.trim_start_matches('\u{a0}').replace('\u{a0}', " ")
}
