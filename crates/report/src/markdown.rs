//! Markdown (GitHub's dialect) for tickets: the same content as the other forms, readable as it stands.

use std::fmt::Write;

use lotsfree_doctor::{Evidence, Finding, MemoryMap, Remedy, SkippedRule};
use lotsfree_kernel_files::ProblemKind;
use lotsfree_units::{Bytes, Grouped, Percent, visible_line};

use crate::words;
use crate::{Report, Series, Unread};

/// The report as Markdown. Everything from the host is escaped, so that no name becomes markup.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    if let Some(memory) = report.memory.as_ref().filter(|memory| memory.total > Bytes::ZERO) {
        self::memory(&mut out, report, memory);
    }
    if let Some(series) = &report.series {
        self::series(&mut out, series);
    }
    if !report.findings.is_empty() {
        line(&mut out, "## Findings\n");
        for (i, finding) in report.findings.iter().enumerate() {
            self::finding(&mut out, i + 1, finding);
        }
    }
    rest(&mut out, report);
    out
}

/// Text that Markdown takes literally, in one line. A character that means something only at the start of a
/// line or a word is escaped only there, so that `vm.nr_hugepages` stays readable.
pub(crate) fn escaped(text: &str) -> String {
    let text = visible_line(text);
    let mut out = String::with_capacity(text.len() + 8);
    let mut before = ' ';
    let mut letters = text.chars().peekable();
    // Digits at the start, then `.` or `)`, would begin a list.
    let mut at_start = true;
    while let Some(c) = letters.next() {
        let after = letters.peek().copied().unwrap_or(' ');
        let marks = match c {
            '\\' | '`' | '*' | '[' | ']' | '|' | '~' | '$' => true,
            '_' => !(before.is_alphanumeric() && after.is_alphanumeric()),
            '#' | '+' | '-' | '=' => before == ' ' && out.trim_start().is_empty(),
            '.' | ')' => at_start && before.is_ascii_digit() && after == ' ',
            _ => false,
        };
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' if after == '#' || after.is_ascii_alphanumeric() => out.push_str("&amp;"),
            c => {
                if marks {
                    out.push('\\');
                }
                out.push(c);
            }
        }
        at_start &= c.is_ascii_digit();
        before = c;
    }
    out
}

pub(crate) fn line(out: &mut String, text: &str) {
    out.push_str(text.trim_end_matches(' '));
    out.push('\n');
}

/// Lines that are taken as they are; the fence is longer than any run of backticks in them.
fn fenced(out: &mut String, indent: &str, language: &str, lines: &[String]) {
    let lines: Vec<_> = lines.iter().map(|line| visible_line(line)).collect();
    let longest = lines.iter().flat_map(|line| line.split(|c| c != '`')).map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    line(out, &format!("\n{indent}{fence}{language}"));
    for command in lines {
        line(out, &format!("{indent}{command}"));
    }
    line(out, &format!("{indent}{fence}\n"));
}

/// A table; columns of which all cells are empty are left out.
pub(crate) fn table(out: &mut String, head: &[&str], numbers: &[bool], rows: &[Vec<String>]) {
    let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
    let used: Vec<usize> =
        (0..head.len()).filter(|&column| rows.iter().any(|row| !cell(row, column).is_empty())).collect();
    let number = |column: usize| numbers.get(column).copied().unwrap_or(false);
    let cells = |of: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = used.iter().map(|&column| of(column)).collect();
        format!("| {} |", cells.join(" | "))
    };
    line(out, &cells(&|column| head[column].to_owned()));
    line(out, &cells(&|column| if number(column) { "--:" } else { "---" }.to_owned()));
    for row in rows {
        line(out, &cells(&|column| escaped(&cell(row, column))));
    }
    line(out, "");
}

fn head(out: &mut String, report: &Report) {
    let mut facts = words::host_facts(report);
    let name = match report.host.hostname.as_str() {
        "" => report.source.label.clone(),
        _ => facts.remove(0),
    };
    line(out, &format!("# lotsfree doctor: {}\n", escaped(&name)));
    line(out, &format!("**{}**\n", escaped(&words::verdict(report))));
    if let Some(counts) = words::counts(report) {
        line(out, &format!("{counts}\n"));
    }
    if !facts.is_empty() {
        line(out, &format!("- host: {}", escaped(&facts.join(" · "))));
    }
    for remark in words::host_remarks(report) {
        line(out, &format!("- {}", escaped(&remark)));
    }
    let when = words::taken_at(report).map(|at| format!(", {at}")).unwrap_or_default();
    line(
        out,
        &format!(
            "- source: {}, {}{when}; lotsfree {}\n",
            escaped(&report.source.label),
            words::samples(report),
            report.lotsfree
        ),
    );
}

fn memory(out: &mut String, report: &Report, memory: &MemoryMap) {
    line(out, "## Where memory goes\n");
    if let Some(message) = words::memory_message(report) {
        line(out, &format!("{}.\n", escaped(&message)));
    }
    if let Some(largest) = words::largest(report) {
        line(out, &format!("{}\n", escaped(&largest)));
    }
    let row = |name: &str, bytes: Bytes| {
        vec![
            name.to_owned(),
            Grouped(bytes.as_kib()).to_string(),
            bytes.to_string(),
            Percent(bytes.share_of(memory.total)).to_string(),
        ]
    };
    let mut rows: Vec<_> = memory.parts.iter().map(|(part, bytes)| row(part.name(), *bytes)).collect();
    rows.push(row("all (MemTotal)", memory.total));
    table(out, &["use of memory", "kB", "size", "share"], &[false, true, true, true], &rows);
}

fn series(out: &mut String, series: &Series) {
    line(out, "## Over time\n");
    if let Some(message) = crate::plots::memory_message(series) {
        line(out, &format!("{}.\n", escaped(&message)));
    }
    let show = |bytes: Option<&Bytes>| bytes.map(Bytes::to_string).unwrap_or_default();
    let rows: Vec<_> = series
        .memory
        .iter()
        .map(|(part, values)| {
            let ends = [values.first(), values.last(), values.iter().min(), values.iter().max()];
            std::iter::once(part.name().to_owned()).chain(ends.map(show)).collect()
        })
        .collect();
    let numbers = [false, true, true, true, true];
    if !rows.is_empty() {
        table(out, &["use of memory", "first", "last", "least", "most"], &numbers, &rows);
    }
    let show = |rate: Option<f64>| rate.map_or_else(|| "not known".to_owned(), |rate| format!("{rate:.1}"));
    let rows: Vec<_> = series
        .rates
        .iter()
        .map(|(name, rates)| {
            let rates = words::Range::of(rates);
            vec![name.clone(), show(rates.least), show(rates.mean), show(rates.most)]
        })
        .collect();
    if !rows.is_empty() {
        table(out, &["per second", "least", "mean", "most"], &numbers, &rows);
    }
}

fn finding(out: &mut String, number: usize, finding: &Finding) {
    line(out, &format!("### {number}. {}: {}\n", words::severity(finding.severity), escaped(&finding.title)));
    line(out, &format!("Rule `{}` ({}).", finding.rule, words::confidence(finding.confidence)));
    line(out, &format!("Costs {}\n", escaped(&finding.cost.text)));
    let row = |evidence: &Evidence| {
        let held = |held: &lotsfree_doctor::Threshold| format!("{} ({})", held.bound, held.source);
        vec![
            evidence.file.clone(),
            evidence.field.clone(),
            evidence.subject.clone().unwrap_or_default(),
            evidence.before.clone().unwrap_or_default(),
            evidence.value.clone(),
            evidence.threshold.as_ref().map(held).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = finding.evidence.iter().map(row).collect();
    if !rows.is_empty() {
        let head = ["file", "field", "of", "before", "value", "compared with"];
        table(out, &head, &[false, false, false, true, true, false], &rows);
    }
    for note in &finding.notes {
        line(out, &format!("- {}", escaped(note)));
    }
    if !finding.notes.is_empty() {
        line(out, "");
    }
    for (i, remedy) in finding.remedies.iter().enumerate() {
        self::remedy(out, i + 1, remedy);
    }
}

pub(crate) fn remedy(out: &mut String, number: usize, remedy: &Remedy) {
    // What belongs to a remedy is indented, so that it stays part of its item.
    let marker = format!("{number}. ");
    let indent = " ".repeat(marker.len());
    line(out, &format!("{marker}**{}**", escaped(&remedy.title)));
    let labelled = |out: &mut String, label: &str, text: &str| {
        line(out, &format!("{indent}- {label}{text}"));
    };
    let inner = format!("{indent}  ");
    if !remedy.runtime.is_empty() {
        labelled(out, "now:", "");
        fenced(out, &inner, "sh", &remedy.runtime);
    }
    for persistent in &remedy.persistent {
        labelled(out, "keep, in ", &format!("{}:", escaped(&persistent.file)));
        fenced(out, &inner, "", &persistent.lines);
    }
    if let Some(restart) = &remedy.restart {
        labelled(out, "restart: ", &escaped(restart));
    }
    if !remedy.verify.is_empty() {
        labelled(out, "check:", "");
        fenced(out, &inner, "sh", &remedy.verify);
    }
    if !remedy.undo.is_empty() {
        labelled(out, "undo:", "");
        fenced(out, &inner, "sh", &remedy.undo);
    }
    if !remedy.risk.is_empty() {
        labelled(out, "risk: ", &escaped(&remedy.risk));
    }
    line(out, "");
}

fn rest(out: &mut String, report: &Report) {
    line(out, "## What was looked at\n");
    line(out, &format!("{}\n", words::tally(report)));
    let names = |out: &mut String, label: &str, names: &[&str]| {
        if !names.is_empty() {
            line(out, &format!("- {label}: {}", names.join(", ")));
        }
    };
    names(out, "fine", &report.fine);
    names(out, "needed a second sample", &report.need_samples);
    let skipped = |out: &mut String, label: &str, lacked: &str, rules: &[SkippedRule]| {
        for (why, rules) in words::by_reason(rules) {
            line(out, &format!("- {label}: {} ({lacked}{})", rules.join(", "), escaped(why)));
        }
    };
    skipped(out, "could not be judged", "no ", &report.unknown);
    skipped(out, "did not apply here", "", &report.not_applicable);
    for (kind, label) in words::UNREAD_KINDS {
        let of_kind: Vec<&Unread> = report.unread.iter().filter(|unread| unread.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        if matches!(kind, ProblemKind::Denied | ProblemKind::Absent) {
            line(out, &format!("- {label}: {}", escaped(&words::collapse(&of_kind).join(", "))));
            continue;
        }
        for unread in of_kind {
            let mut text = unread.file.clone();
            if let Some(line) = unread.line {
                let _ = write!(text, ", line {line}");
            }
            let _ = write!(text, ": {}", unread.detail);
            line(out, &format!("- {label}: {}", escaped(&text)));
        }
    }
    if words::root_would_help(report) {
        line(out, "- Run as root to read the rest.");
    }
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn escapes_what_means_something_and_nothing_else() {
        for (text, expected) in [
            ("vm.nr_hugepages = 512 (5 % of /proc/meminfo)", "vm.nr_hugepages = 512 (5 % of /proc/meminfo)"),
            ("_x_ *y* `z` a|b ~q~", "\\_x\\_ \\*y\\* \\`z\\` a\\|b \\~q\\~"),
            ("<script>&lt;a && b</script>", "&lt;script&gt;&amp;lt;a && b&lt;/script&gt;"),
            ("[a](javascript:b)", "\\[a\\](javascript:b)"),
            ("# a # b", "\\# a # b"),
            ("- a - b", "\\- a - b"),
            ("12. a 3. b", "12\\. a 3. b"),
            ("1.5 GiB", "1.5 GiB"),
            ("a\\|b\nc", "a\\\\\\|b\\\\nc"),
            ("\u{1b}[0m", "\\\\x1b\\[0m"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }
}
