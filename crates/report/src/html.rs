//! One self-contained page: no network, no script. It follows the reader's light or dark scheme, narrows to a
//! phone and prints.

use lotsfree_doctor::{Evidence, Finding, MemoryMap, Remedy, Severity, Use};
use lotsfree_units::{Bytes, Percent, visible_line};
use maud::{Markup, PreEscaped, html as markup};

use crate::chart::{self, Picture};
use crate::palette::{of_rate, of_severity, of_use};
use crate::plots;
use crate::{Report, Series, Unread};
use crate::{sheet, words};

/// More files than this are folded away.
const MOST_NAMES: usize = 12;

/// The report as one HTML page. Everything from the host is escaped, and control characters are spelled out.
pub fn html(report: &Report) -> String {
    let name = match report.host.hostname.as_str() {
        "" => report.source.label.as_str(),
        hostname => hostname,
    };
    let main = markup! {
        (head(report, name))
        (memory(report))
        (series(report))
        (findings(report))
        (rest(report))
        footer { "Written by lotsfree " (report.lotsfree) ", format " (report.schema) "." }
    };
    sheet::page(name, &style(report), &main)
}

/// The style sheet with the colours that the report's pictures use.
fn style(report: &Report) -> String {
    let mut tones = Vec::new();
    let in_series = report.series.iter().flat_map(|series| series.memory.iter().map(|(part, _)| *part));
    let in_memory = report.memory.iter().flat_map(|memory| memory.parts.iter().map(|(part, _)| *part));
    let uses: std::collections::BTreeSet<Use> = in_memory.chain(in_series).collect();
    for part in uses {
        tones.push((plots::class(part), of_use(part), sheet::AREA));
    }
    for (name, _) in report.series.iter().flat_map(|series| &series.rates) {
        tones.push((plots::rate_class(name), of_rate(name), sheet::RATE));
    }
    for severity in [Severity::Critical, Severity::High, Severity::Warning, Severity::Info] {
        tones.push((words::severity(severity).to_owned(), of_severity(severity), ".@ --mark:var(--@)"));
    }
    sheet::sheet(&tones)
}

fn head(report: &Report, name: &str) -> Markup {
    let mut facts = words::host_facts(report);
    if !report.host.hostname.is_empty() {
        facts.remove(0);
    }
    let mark = report.worst().map_or("", words::severity);
    markup! {
        header {
            h1 { (name) }
            @if !facts.is_empty() { p.facts { (words::glued(&facts.join(" · "))) } }
            @for remark in words::host_remarks(report) { p.facts { (remark) } }
            p.facts.dim {
                @if name != report.source.label { (report.source.label) ", " }
                (words::samples(report))
                @if let Some(at) = words::taken_at(report) { ", " (at) }
            }
            p class={ "verdict " (mark) } { (words::glued(&words::verdict(report))) }
            @if let Some(counts) = words::counts(report) { p.facts { (counts) } }
        }
    }
}

fn memory(report: &Report) -> Markup {
    let Some(memory) = report.memory.as_ref().filter(|memory| memory.total > Bytes::ZERO) else {
        return Markup::default();
    };
    let subject = words::subject(report);
    let message = words::memory_message(report).unwrap_or_else(|| "Where memory goes".to_owned());
    let bar = |width| plots::memory_bar(memory, subject, &message, width);
    markup! {
        section {
            h2 { (words::glued(&message)) }
            figure {
                div.wide { (PreEscaped(bar(chart::WIDE))) }
                div.narrow { (PreEscaped(bar(chart::NARROW))) }
            }
            @if let Some(largest) = words::largest(report) { p { (words::glued(&largest)) } }
            (memory_table(memory))
        }
    }
}

fn memory_table(memory: &MemoryMap) -> Markup {
    markup! {
        details open {
            summary.dim { "The figures" }
            table.figures {
                thead { tr { th { "use of memory" } th.number { "kB" } th.number { "size" } th.number { "share" } } }
                tbody {
                    @for (part, bytes) in &memory.parts {
                        tr {
                            td { span class={ "swatch " (plots::class(*part)) } {} (part.name()) }
                            td.number { (lotsfree_units::Grouped(bytes.as_kib())) }
                            td.number { (bytes) }
                            td.number { (Percent(bytes.share_of(memory.total))) }
                        }
                    }
                    tr {
                        td { "all (MemTotal)" }
                        td.number { (lotsfree_units::Grouped(memory.total.as_kib())) }
                        td.number { (memory.total) }
                        td.number { "100 %" }
                    }
                }
            }
        }
    }
}

fn series(report: &Report) -> Markup {
    let Some(series) = &report.series else { return Markup::default() };
    let (stack, rates) = (plots::memory_over_time(series), plots::rates_over_time(series));
    markup! {
        @if let Some(stack) = stack { section { (figure(&stack)) (stack_table(series)) } }
        @match rates {
            Some(rates) => section { (figure(&rates)) (rate_table(series)) },
            None => {
                @if !series.rates.is_empty() { section { h2 { "Nothing was reclaimed, swapped or read in meanwhile" } } }
            }
        }
    }
}

pub(crate) fn figure(picture: &Picture) -> Markup {
    markup! {
        h2 { (words::glued(&picture.message)) }
        figure {
            div.wide { (PreEscaped(&picture.wide)) }
            div.narrow { (PreEscaped(&picture.narrow)) }
            @if !picture.caption.is_empty() { figcaption { (picture.caption) } }
        }
    }
}

fn stack_table(series: &Series) -> Markup {
    markup! {
        details {
            summary.dim { "The figures" }
            table.figures {
                thead { tr { th { "use of memory" } @for head in ["first", "last", "least", "most"] { th.number { (head) } } } }
                tbody {
                    @for (part, values) in &series.memory {
                        tr {
                            td { span class={ "swatch " (plots::class(*part)) } {} (part.name()) }
                            @for value in [values.first(), values.last(), values.iter().min(), values.iter().max()] {
                                td.number { @if let Some(bytes) = value { (bytes) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn rate_table(series: &Series) -> Markup {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "not known".to_owned(), |rate| format!("{rate:.1}"));
    markup! {
        details {
            summary.dim { "The figures" }
            table.figures {
                thead { tr { th { "per second" } th.number { "least" } th.number { "mean" } th.number { "most" } } }
                tbody {
                    @for (name, rates) in &series.rates {
                        @let range = words::Range::of(rates);
                        tr {
                            td { (name) }
                            td.number { (rate(range.least)) }
                            td.number { (rate(range.mean)) }
                            td.number { (rate(range.most)) }
                        }
                    }
                }
            }
        }
    }
}

fn findings(report: &Report) -> Markup {
    markup! {
        @if !report.findings.is_empty() {
            section {
                h2 { (words::plural(report.findings.len(), "finding")) @if report.findings.len() > 1 { ", worst first" } }
                @for finding in &report.findings { (card(finding)) }
            }
        }
    }
}

fn card(finding: &Finding) -> Markup {
    let severity = words::severity(finding.severity);
    markup! {
        article class=(severity) {
            p.meta {
                span.badge { (severity) }
                span { (words::confidence(finding.confidence)) }
                code { (finding.rule) }
            }
            h3 { (words::glued(&finding.title)) }
            p.cost { span.dim { "Costs " } (words::glued(&finding.cost.text)) }
            (evidence(&finding.evidence))
            @if !finding.notes.is_empty() {
                ul { @for note in &finding.notes { li { (words::glued(note)) } } }
            }
            @for (i, remedy) in finding.remedies.iter().enumerate() { (card_remedy(i + 1, remedy)) }
        }
    }
}

fn evidence(evidence: &[Evidence]) -> Markup {
    let with_subject = evidence.iter().any(|evidence| evidence.subject.is_some());
    let with_before = evidence.iter().any(|evidence| evidence.before.is_some());
    let with_threshold = evidence.iter().any(|evidence| evidence.threshold.is_some());
    markup! {
        @if !evidence.is_empty() {
            table.evidence {
                thead {
                    tr {
                        th { "file" }
                        th { "field" }
                        @if with_subject { th { "of" } }
                        @if with_before { th.number { "before" } }
                        th.number { "value" }
                        @if with_threshold { th { "compared with" } }
                    }
                }
                tbody {
                    @for reading in evidence {
                        tr {
                            td { code { (reading.file) } }
                            td { code { (reading.field) } }
                            @if with_subject { (cell("of", reading.subject.as_deref(), false)) }
                            @if with_before { (cell("before", reading.before.as_deref(), true)) }
                            td.number data-label="value" { (reading.value) }
                            @if with_threshold {
                                @match &reading.threshold {
                                    Some(held) => td data-label="compared with" { (held.bound) span.dim { " (" (held.source) ")" } },
                                    None => td {},
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A cell that a phone labels, or an empty one.
fn cell(label: &str, text: Option<&str>, number: bool) -> Markup {
    markup! {
        @match text {
            Some(text) => td.number[number] data-label=(label) { (text) },
            None => td {},
        }
    }
}

pub(crate) fn card_remedy(number: usize, remedy: &Remedy) -> Markup {
    markup! {
        div.remedy {
            h3 { (number) ". " (remedy.title) }
            dl {
                @if !remedy.runtime.is_empty() { dt { "now" } dd { (commands(&remedy.runtime)) } }
                @for persistent in &remedy.persistent {
                    dt { "keep" }
                    dd { "in " code { (persistent.file) } (commands(&persistent.lines)) }
                }
                @if let Some(restart) = &remedy.restart { dt { "restart" } dd { (restart) } }
                @if !remedy.verify.is_empty() { dt { "check" } dd { (commands(&remedy.verify)) } }
                @if !remedy.undo.is_empty() { dt { "undo" } dd { (commands(&remedy.undo)) } }
                @if !remedy.risk.is_empty() { dt { "risk" } dd { (words::glued(&remedy.risk)) } }
            }
        }
    }
}

/// Lines to be copied; one click selects them all.
fn commands(lines: &[String]) -> Markup {
    let lines: Vec<_> = lines.iter().map(|line| visible_line(line)).collect();
    markup! { pre { (lines.join("\n")) } }
}

fn rest(report: &Report) -> Markup {
    markup! {
        section {
            h2 { "What was looked at" }
            p { (words::tally(report)) }
            (folded("Fine", &report.fine.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>()))
            (folded("Needed a second sample", &report.need_samples.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>()))
            (skipped("Could not be judged", "no ", &report.unknown))
            (skipped("Did not apply here", "", &report.not_applicable))
            (unread(report))
        }
    }
}

/// Names after a label; many are folded away.
fn folded(label: &str, names: &[String]) -> Markup {
    markup! {
        @match names.len() {
            0 => {}
            n if n <= MOST_NAMES => p { b { (label) } ": " (names.join(", ")) },
            n => details { summary { b { (label) } ": " (n) } p.dim { (names.join(", ")) } },
        }
    }
}

fn skipped(label: &str, lacked: &str, rules: &[lotsfree_doctor::SkippedRule]) -> Markup {
    markup! {
        @if !rules.is_empty() {
            details {
                summary { b { (label) } ": " (rules.len()) }
                ul {
                    @for (why, rules) in words::by_reason(rules) {
                        li { (lacked) (why) span.dim { ": " (rules.join(", ")) } }
                    }
                }
            }
        }
    }
}

fn unread(report: &Report) -> Markup {
    markup! {
        @for (kind, label) in words::UNREAD_KINDS {
            @let of_kind: Vec<&Unread> = report.unread.iter().filter(|unread| unread.kind == kind).collect();
            @if matches!(kind, lotsfree_kernel_files::ProblemKind::Denied | lotsfree_kernel_files::ProblemKind::Absent) {
                (folded(&format!("Files {label}"), &words::collapse(&of_kind)))
            } @else if !of_kind.is_empty() {
                details {
                    summary { b { "Files " (label) } ": " (of_kind.len()) }
                    ul {
                        @for unread in of_kind {
                            li {
                                code { (unread.file) }
                                @if let Some(line) = unread.line { ", line " (line) }
                                ": " (unread.detail)
                            }
                        }
                    }
                }
            }
        }
        @if words::root_would_help(report) { p { "Run as root to read the rest." } }
    }
}
