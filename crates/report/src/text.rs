//! Terminal text.

use std::fmt::Write;

use anstyle::{AnsiColor, Color, Effects, Style};
use lotsfree_doctor::{Confidence, Evidence, Finding, Remedy};
use lotsfree_snapshot::ProblemKind;
use lotsfree_units::Percent;
use unicode_width::UnicodeWidthStr;

use crate::palette::{ansi_severity, ansi_use};
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
/// Left margin of a finding's parts.
const MARGIN: usize = 10;

/// The report as text.
pub fn text(report: &Report, options: TextOptions) -> String {
    let width = options.width.clamp(NARROWEST, WIDEST);
    let mut page = Page { out: String::new(), width, color: options.color, verbose: options.verbose };
    page.head(report);
    page.memory(report);
    for finding in &report.findings {
        page.finding(finding);
    }
    page.foot(report);
    page.out
}

struct Page {
    out: String,
    width: usize,
    color: bool,
    verbose: bool,
}

const BOLD: Style = Style::new().effects(Effects::BOLD);
const DIM: Style = Style::new().effects(Effects::DIMMED);
const COMMAND: Style = Style::new().fg_color(Some(Color::Ansi(AnsiColor::Green)));

impl Page {
    fn painted(&self, style: Style, text: &str) -> String {
        if self.color { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    /// A label in the margin and text beside it, wrapped and indented.
    fn labelled(&mut self, label: &str, text: &str, style: Style) {
        self.indented(label, MARGIN, text, style);
    }

    fn indented(&mut self, label: &str, margin: usize, text: &str, style: Style) {
        let options = textwrap::Options::new(self.width.saturating_sub(margin).max(20)).break_words(false);
        let pad = " ".repeat(margin.saturating_sub(label.width() + 1));
        let mut first = true;
        for part in text.lines().flat_map(|line| textwrap::wrap(line, &options)) {
            let part = self.painted(style, &part);
            let line = match std::mem::replace(&mut first, false) {
                true => format!("{pad}{} {part}", self.painted(DIM, label)),
                false => format!("{}{part}", " ".repeat(margin)),
            };
            self.line(&line);
        }
    }

    /// A command: never wrapped, so that it can be pasted.
    fn command(&mut self, label: &str, margin: usize, command: &str) {
        let pad = " ".repeat(margin.saturating_sub(label.width() + 1));
        let line = format!("{pad}{} {}", self.painted(DIM, label), self.painted(COMMAND, command));
        self.line(&line);
    }

    fn head(&mut self, report: &Report) {
        let host = &report.host;
        let mut parts = Vec::new();
        if !host.hostname.is_empty() {
            parts.push(host.hostname.clone());
        }
        if !host.kernel.is_empty() {
            parts.push(format!("Linux {}", host.kernel));
        }
        parts.extend(host.distribution.clone());
        parts.extend(host.cpus.map(|n| plural(n as usize, "CPU")));
        parts.extend(host.memory.map(|memory| format!("{memory} of memory")));
        parts.extend(
            host.swap.map(|swap| if swap.0 == 0 { "no swap".to_owned() } else { format!("{swap} of swap") }),
        );
        parts.extend(host.nodes.map(|n| plural(n, "NUMA node")));
        let samples = match report.source.samples {
            0 | 1 => "one instant".to_owned(),
            n => format!("{n} samples over {}", duration(report.source.seconds)),
        };
        let head = format!(
            "{} {}",
            self.painted(BOLD, &report.source.label),
            self.painted(DIM, &format!("({samples})"))
        );
        self.line(&head);
        if !parts.is_empty() {
            self.indented("", 0, &parts.join(" · "), Style::new());
        }
        if !report.workloads.is_empty() {
            let names: Vec<_> = report.workloads.iter().map(|workload| workload.name()).collect();
            self.indented("", 0, &format!("runs {}", names.join(", ")), Style::new());
        }
        if let Some(container) = &host.container {
            self.indented(
                "",
                0,
                &format!("inside a {container} container: /proc shows the host"),
                Style::new(),
            );
        }
    }

    /// One bar of where memory goes, and its legend.
    fn memory(&mut self, report: &Report) {
        let Some(memory) = report.memory.as_ref().filter(|memory| memory.total.0 > 0) else { return };
        self.line("");
        if self.color {
            let mut bar = String::new();
            let (mut sum, mut drawn) = (0.0, 0usize);
            for (part, bytes) in &memory.parts {
                sum += bytes.share_of(memory.total);
                let end = ((sum * self.width as f64).round() as usize).min(self.width);
                if end > drawn {
                    let style = Style::new().fg_color(Some(ansi_use(*part)));
                    let _ = write!(bar, "{style}{}{style:#}", "█".repeat(end - drawn));
                    drawn = end;
                }
            }
            self.line(&bar);
        }
        let mut column = 0;
        let mut legend = String::new();
        for (part, bytes) in memory.parts.iter().filter(|(_, bytes)| bytes.share_of(memory.total) >= 0.001) {
            let words = format!("{} {bytes} ({})", part.name(), Percent(bytes.share_of(memory.total)));
            let needed = words.width() + 4;
            if column + needed > self.width && column > 0 {
                legend.push('\n');
                column = 0;
            }
            if self.color {
                let style = Style::new().fg_color(Some(ansi_use(*part)));
                let _ = write!(legend, "{style}■{style:#} {words}  ");
            } else {
                let _ = write!(legend, "{words}; ");
            }
            column += needed;
        }
        for line in legend.lines() {
            self.line(line.trim_end_matches("; "));
        }
    }

    fn finding(&mut self, finding: &Finding) {
        self.line("");
        let style = Style::new().fg_color(Some(ansi_severity(finding.severity))).effects(Effects::BOLD);
        let severity = format!("{:?}", finding.severity).to_lowercase();
        let options = textwrap::Options::new(self.width - MARGIN).break_words(false);
        for (i, part) in textwrap::wrap(&finding.title, &options).iter().enumerate() {
            let label =
                if i == 0 { format!("{severity:<width$}", width = MARGIN) } else { " ".repeat(MARGIN) };
            let line = format!("{}{}", self.painted(style, &label), self.painted(BOLD, part));
            self.line(&line);
        }
        let sure = match finding.confidence {
            Confidence::Certain => "certain",
            Confidence::Likely => "likely",
            Confidence::Possible => "possible",
        };
        self.labelled("rule", &format!("{} ({sure}); lotsfree explain {}", finding.rule, finding.rule), DIM);
        self.labelled("costs", &finding.cost.text, Style::new());
        for (i, evidence) in finding.evidence.iter().enumerate() {
            self.labelled(if i == 0 { "because" } else { "" }, &evidence_text(evidence), Style::new());
        }
        for (i, remedy) in finding.remedies.iter().enumerate() {
            self.remedy(i + 1, remedy);
        }
        for note in &finding.notes {
            self.labelled("note", note, Style::new());
        }
    }

    fn remedy(&mut self, number: usize, remedy: &Remedy) {
        const INNER: usize = MARGIN + 9;
        self.labelled("do", &format!("{number}. {}", remedy.title), Style::new());
        for (i, command) in remedy.runtime.iter().enumerate() {
            self.command(if i == 0 { "now" } else { "" }, INNER, command);
        }
        for persistent in &remedy.persistent {
            self.indented("keep", INNER, &format!("in {}:", persistent.file), Style::new());
            for line in &persistent.lines {
                self.command("", INNER + 2, line);
            }
        }
        if let Some(restart) = &remedy.restart {
            self.indented("restart", INNER, restart, Style::new());
        }
        for (i, command) in remedy.undo.iter().enumerate() {
            self.command(if i == 0 { "undo" } else { "" }, INNER, command);
        }
        if !remedy.risk.is_empty() {
            self.indented("risk", INNER, &remedy.risk, Style::new());
        }
    }

    fn foot(&mut self, report: &Report) {
        self.line("");
        let found = match report.findings.len() {
            0 => "Nothing wrong was found.".to_owned(),
            n => format!("{}.", plural(n, "finding")),
        };
        let looked = format!(
            "{found} {} rules were asked, from {} read: {} found nothing, {} do not apply here, {} could not judge{}.",
            report.rules_asked(),
            plural(report.source.files_read as usize, "file"),
            report.fine.len(),
            report.not_applicable.len(),
            report.unknown.len(),
            match report.need_samples.len() {
                0 => String::new(),
                n => format!(", {n} need a second sample"),
            }
        );
        self.indented("", 0, &looked, Style::new());
        if self.verbose || report.findings.is_empty() {
            self.names("fine", report.fine.iter().map(|rule| (*rule).to_owned()));
        }
        if !report.need_samples.is_empty() {
            self.names("two samples needed", report.need_samples.iter().map(|rule| (*rule).to_owned()));
        }
        if self.verbose {
            for rule in &report.not_applicable {
                self.indented("", 0, &format!("does not apply: {}: {}", rule.rule, rule.why), DIM);
            }
            for rule in &report.unknown {
                self.indented(
                    "",
                    0,
                    &format!("could not judge: {}: no {}", rule.rule, rule.why),
                    Style::new(),
                );
            }
        } else if !report.unknown.is_empty() {
            self.names("could not judge", report.unknown.iter().map(|rule| rule.rule.to_owned()));
        }
        self.unread(report);
    }

    fn names(&mut self, label: &str, names: impl Iterator<Item = String>) {
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            self.indented("", 0, &format!("{label}: {}", names.join(", ")), DIM);
        }
    }

    /// What could not be read, by reason: everything denied or broken is named; files that are absent because the kernel or
    /// the data do not have them are named too, together.
    fn unread(&mut self, report: &Report) {
        for (kind, label) in [
            (ProblemKind::Denied, "not readable (permission)"),
            (ProblemKind::Io, "not readable"),
            (ProblemKind::Truncated, "cut short"),
            (ProblemKind::Malformed, "not understood"),
            (ProblemKind::Budget, "left out"),
            (ProblemKind::Absent, "not there"),
        ] {
            let of_kind: Vec<&Unread> = report.unread.iter().filter(|unread| unread.kind == kind).collect();
            if of_kind.is_empty() {
                continue;
            }
            if self.verbose || !matches!(kind, ProblemKind::Denied | ProblemKind::Absent) {
                for unread in of_kind {
                    let line = unread.line.map(|line| format!(", line {line}")).unwrap_or_default();
                    let text = format!("{label}: {}{line}: {}", unread.file, unread.detail);
                    self.indented("", 0, &text, Style::new());
                }
            } else {
                let names = collapse(&of_kind);
                self.indented("", 0, &format!("{label}: {}", names.join(", ")), Style::new());
            }
        }
        if report.unread.iter().any(|unread| unread.kind == ProblemKind::Denied)
            && report.host.euid.is_some_and(|euid| euid != 0)
        {
            self.indented("", 0, "Run as root to read the rest.", Style::new());
        }
    }
}

/// File names with process ids as `PID` and a count, so that a thousand unreadable processes take one entry.
fn collapse(unread: &[&Unread]) -> Vec<String> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for file in unread.iter().map(|unread| unread.file.as_str()) {
        let general: Vec<&str> = file
            .split('/')
            .map(
                |part| {
                    if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) { "PID" } else { part }
                },
            )
            .collect();
        let general = general.join("/");
        match counted.iter_mut().find(|(name, _)| *name == general) {
            Some((_, count)) => *count += 1,
            None => counted.push((general, 1)),
        }
    }
    let entry = |(name, count)| if count > 1 { format!("{name} ({count} times)") } else { name };
    counted.into_iter().map(entry).collect()
}

fn evidence_text(evidence: &Evidence) -> String {
    let mut text = format!("{} {}", evidence.file, evidence.field);
    if let Some(subject) = &evidence.subject {
        let _ = write!(text, " of {subject}");
    }
    let _ = write!(text, " = {}", evidence.value);
    if let Some(before) = &evidence.before {
        let _ = write!(text, ", was {before}");
    }
    if let Some(threshold) = &evidence.threshold {
        let _ = write!(text, "; held against {} ({})", threshold.bound, threshold.source);
    }
    text
}

/// `1 finding`, `2 findings`.
pub(crate) fn plural(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `1 s`, `90 s`, `48 h`.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 2.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 120.0 => format!("{:.1} min", s / 60.0),
        s if s >= 10.0 || s == s.trunc() => format!("{s:.0} s"),
        s => format!("{s:.1} s"),
    }
}
