//! The sentences, names and figures that every form of the report shares.

use std::fmt::Write;

use lotsfree_doctor::{Confidence, Evidence, MemoryMap, Severity, Use, Verdict};
use lotsfree_kernel_files::ProblemKind;
pub(crate) use lotsfree_units::words::{duration, enumeration, plural};
use lotsfree_units::{Bytes, Percent};

use crate::{Report, Unread};

/// Parts of memory below this share are left out of legends and tables.
const NEGLIGIBLE: f64 = 0.0005;

/// Puts no-break spaces between numbers and their units, and before the dot between facts.
pub(crate) fn glued(text: &str) -> String {
    const UNITS: [&str; 14] =
        ["B", "kB", "KiB", "MiB", "GiB", "TiB", "%", "s", "ms", "µs", "ns", "min", "h", "d"];
    let mut out = String::with_capacity(text.len());
    let mut after_number = false;
    for (i, word) in text.split(' ').enumerate() {
        if i > 0 {
            let unit = word.trim_end_matches([',', '.', ';', ':', ')']).trim_end_matches("/s");
            let stays = after_number && UNITS.contains(&unit) || word == "·";
            out.push(if stays { '\u{a0}' } else { ' ' });
        }
        out.push_str(word);
        after_number = word.ends_with(|c: char| c.is_ascii_digit());
    }
    out
}

/// Its name in a report.
pub(crate) fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "critical",
        Severity::High => "high",
        Severity::Warning => "warning",
        Severity::Info => "info",
    }
}

/// Its name in a report.
pub(crate) fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Certain => "certain",
        Confidence::Likely => "likely",
        Confidence::Possible => "possible",
    }
}

/// When the latest sample was taken, in UTC: `2026-11-21 01:44:09 UTC`.
pub(crate) fn taken_at(report: &Report) -> Option<String> {
    let at = report.source.taken_at.filter(|at| at.is_finite() && *at > 0.0)?;
    let at = jiff::Timestamp::from_second(at as i64).ok()?;
    Some(format!("{} UTC", at.strftime("%Y-%m-%d %H:%M:%S")))
}

/// `one instant`, or how many samples over how long.
pub(crate) fn samples(report: &Report) -> String {
    match report.source.samples {
        0 | 1 => "one instant".to_owned(),
        n => format!("{n} samples over {}", duration(report.source.seconds)),
    }
}

/// Host name, kernel, distribution, CPUs, memory, swap, NUMA nodes, as far as they are known.
pub(crate) fn host_facts(report: &Report) -> Vec<String> {
    let host = &report.host;
    let mut facts = Vec::new();
    if !host.hostname.is_empty() {
        facts.push(host.hostname.clone());
    }
    if !host.kernel.is_empty() {
        facts.push(format!("Linux {}", host.kernel));
    }
    facts.extend(host.distribution.clone());
    facts.extend(host.cpus.map(|n| plural(n as usize, "CPU")));
    facts.extend(host.memory.map(|memory| format!("{memory} of memory")));
    let swap = |swap: Bytes| if swap.0 == 0 { "no swap".to_owned() } else { format!("{swap} of swap") };
    facts.extend(host.swap.map(swap));
    facts.extend(host.nodes.map(|n| plural(n, "NUMA node")));
    facts
}

/// What else is known of the host: the servers that run on it, the container around the reader.
pub(crate) fn host_remarks(report: &Report) -> Vec<String> {
    let mut remarks = Vec::new();
    if !report.workloads.is_empty() {
        let names: Vec<_> = report.workloads.iter().map(|workload| workload.name()).collect();
        remarks.push(format!("runs {}", names.join(", ")));
    }
    if let Some(container) = &report.host.container {
        remarks.push(format!("inside a {container} container: /proc shows the host"));
    }
    remarks
}

/// Who lost time to memory, where that was seen, the answer to "is it memory?", and what to run where that is
/// still open.
pub(crate) fn verdict(report: &Report) -> String {
    let Verdict { text, collect, .. } = &report.verdict;
    let text = match &report.blame {
        Some(blame) => format!("{blame} {text}"),
        None => text.clone(),
    };
    match collect {
        Some(command) if report.source.live => format!("{text} `{command}` would tell more."),
        Some(command) => format!("{text} On that host, `{command}` would tell more."),
        None => text,
    }
}

/// How many findings of which severity.
pub(crate) fn counts(report: &Report) -> Option<String> {
    let counts = [Severity::Critical, Severity::High, Severity::Warning, Severity::Info].map(|level| {
        let n = report.findings.iter().filter(|finding| finding.severity == level).count();
        let noun = match level {
            Severity::Critical => "critical finding",
            Severity::High => "high finding",
            Severity::Warning => "warning",
            Severity::Info => "remark",
        };
        (n > 0).then(|| plural(n, noun))
    });
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    (!counts.is_empty()).then(|| format!("{}.", enumeration(&counts)))
}

/// How many rules were asked and what became of them.
pub(crate) fn tally(report: &Report) -> String {
    let mut parts = Vec::new();
    let rules: std::collections::BTreeSet<_> = report.findings.iter().map(|finding| finding.rule).collect();
    let outcomes = [
        (rules.len(), "found something"),
        (report.fine.len(), "found nothing wrong"),
        (report.not_applicable.len(), "did not apply here"),
        (report.unknown.len(), "could not judge"),
        (report.need_samples.len(), "needed a second sample"),
    ];
    parts.extend(outcomes.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    format!(
        "{} asked, from {} read: {}.",
        plural(report.rules_asked(), "rule"),
        plural(report.source.files_read as usize, "file"),
        enumeration(&parts)
    )
}

/// The parts of memory that a legend or table names, with their shares.
pub(crate) fn parts(memory: &MemoryMap) -> impl Iterator<Item = (Use, Bytes, f64)> + '_ {
    memory
        .parts
        .iter()
        .map(|(part, bytes)| (*part, *bytes, bytes.share_of(memory.total)))
        .filter(|(_, _, share)| *share >= NEGLIGIBLE)
}

/// The part of memory that matters most: what the first finding that concerns a part speaks of, else the
/// largest part that is too large by the common rules of thumb, else the largest.
pub(crate) fn subject(report: &Report) -> Option<Use> {
    let memory = report.memory.as_ref().filter(|memory| memory.total > Bytes::ZERO)?;
    let share = |part| memory.get(part).share_of(memory.total);
    let bounds = [
        (Use::PageTables, 0.02),
        (Use::HugeIdle, 0.05),
        (Use::Slab, 0.2),
        (Use::Kernel, 0.1),
        (Use::Other, 0.1),
    ];
    let of_evidence = |evidence: &Evidence| {
        let part = match (evidence.file.as_str(), evidence.field.as_str()) {
            ("/proc/meminfo", "PageTables" | "SecPageTables") => Use::PageTables,
            ("/proc/meminfo", "HugePages_Free") => Use::HugeIdle,
            ("/proc/meminfo", "Slab" | "SUnreclaim" | "SReclaimable") => Use::Slab,
            ("/proc/meminfo", "Shmem") => Use::Shared,
            ("/proc/meminfo", "Percpu" | "VmallocUsed" | "KernelStack") => Use::Kernel,
            _ => return None,
        };
        // What evidence mentions counts where it is half of what would be named without it.
        let bound = bounds.iter().find(|(other, _)| *other == part).map_or(0.1, |(_, bound)| *bound);
        (share(part) >= bound / 2.0).then_some(part)
    };
    let weighty = report.findings.iter().filter(|finding| finding.severity > Severity::Info);
    let found = weighty.flat_map(|finding| &finding.evidence).find_map(of_evidence);
    let excess = || bounds.iter().find(|(part, bound)| share(*part) >= *bound).map(|(part, _)| *part);
    let largest = || memory.parts.iter().max_by_key(|(_, bytes)| *bytes).map(|(part, _)| *part);
    found.or_else(excess).or_else(largest)
}

/// Where memory goes, in one sentence about its [`subject`].
pub(crate) fn memory_message(report: &Report) -> Option<String> {
    let memory = report.memory.as_ref()?;
    let part = subject(report)?;
    let bytes = memory.get(part);
    let share = Percent(bytes.share_of(memory.total));
    let free = memory.get(Use::Free);
    let told = memory.parts.iter().any(|(part, _)| *part == Use::Free);
    let beside_free = match free.share_of(memory.total) {
        _ if !told => String::new(),
        s if s >= NEGLIGIBLE => format!("; {free} ({}) is free", Percent(s)),
        _ => "; nothing is free".to_owned(),
    };
    let beside_applications = match fraction(bytes.share_of(memory.get(Use::Application))) {
        Some(fraction) => format!(", {fraction} what applications use"),
        None => String::new(),
    };
    Some(match part {
        Use::Application => format!("Applications use {bytes}, {share} of memory{beside_free}"),
        Use::Shared => format!("Shared memory takes {bytes}, {share} of memory{beside_free}"),
        Use::Mapped => format!("Shared memory and mapped files take {bytes}, {share} of memory{beside_free}"),
        Use::Cached => format!("Page cache or shared memory takes {bytes}, {share} of memory{beside_free}"),
        Use::PageCache => format!("The page cache holds {bytes}, {share} of memory{beside_free}"),
        Use::SwapCache => format!("The swap cache holds {bytes}, {share} of memory{beside_free}"),
        Use::Compressed => format!("Compressed swap takes {bytes}, {share} of memory{beside_free}"),
        Use::PageTables => format!("Page tables take {bytes}, {share} of memory{beside_applications}"),
        Use::Slab => format!("Slab takes {bytes}, {share} of memory{beside_applications}"),
        Use::Kernel => {
            format!("The kernel takes {bytes} beside slab, {share} of memory{beside_applications}")
        }
        Use::HugeUsed => format!("Huge pages in use take {bytes}, {share} of memory{beside_free}"),
        Use::HugeIdle => format!("{bytes} of huge pages lie idle, {share} of memory{beside_free}"),
        Use::Free => format!("{bytes} is free, {share} of memory"),
        Use::Untold => format!("These data do not tell of {bytes}, {share} of memory{beside_free}"),
        Use::Other => format!("No counter accounts for {bytes}, {share} of memory{beside_free}"),
    })
}

/// Who holds most of memory, in one line: `Most memory: java 4.2 GiB, postgres 2.1 GiB in 87 processes.`
pub(crate) fn largest(report: &Report) -> Option<String> {
    let each = report.largest.iter().map(|one| match (one.processes, one.of_largest) {
        (0 | 1, _) => format!("{} {}", one.name, one.memory),
        (n, false) => format!("{} {} in {n} processes", one.name, one.memory),
        (n, true) => format!("{} {} in the largest of {n} processes", one.name, one.memory),
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("Most memory: {}.", each.join(", ")))
}

/// `about a third of`, where a ratio is within 4 % of a simple one that has a name.
fn fraction(ratio: f64) -> Option<String> {
    const NAMED: [(f64, &str); 9] = [
        (0.1, "about a tenth of"),
        (0.2, "about a fifth of"),
        (0.25, "about a quarter of"),
        (1.0 / 3.0, "about a third of"),
        (0.5, "about half of"),
        (2.0 / 3.0, "about two thirds of"),
        (0.75, "about three quarters of"),
        (1.0, "about as much as"),
        (2.0, "about twice"),
    ];
    let near = NAMED.iter().find(|(named, _)| (ratio / named - 1.0).abs() <= 0.04);
    match near {
        Some((_, words)) => Some((*words).to_owned()),
        None if (2.5..1000.0).contains(&ratio) => Some(format!("{ratio:.0} times")),
        None => None,
    }
}

/// One reading in words.
pub(crate) fn evidence(evidence: &Evidence) -> String {
    let mut text = format!("{} {}", evidence.file, evidence.field);
    if let Some(subject) = &evidence.subject {
        let _ = write!(text, " of {subject}");
    }
    let _ = write!(text, " = {}", evidence.value);
    if let Some(before) = &evidence.before {
        let _ = write!(text, ", was {before}");
    }
    if let Some(threshold) = &evidence.threshold {
        let _ = write!(text, "; compared with {} ({})", threshold.bound, threshold.source);
    }
    text
}

/// Least, mean and most of the rates that are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Range {
    pub(crate) least: Option<f64>,
    pub(crate) mean: Option<f64>,
    pub(crate) most: Option<f64>,
}

impl Range {
    /// Of a series in which some are not known.
    pub(crate) fn of(rates: &[Option<f64>]) -> Range {
        let known = || rates.iter().copied().flatten();
        let n = known().count();
        Range {
            least: known().reduce(f64::min),
            mean: (n > 0).then(|| known().sum::<f64>() / n as f64),
            most: known().reduce(f64::max),
        }
    }
}

/// Why something was not read, in the order in which a report names it.
pub(crate) const UNREAD_KINDS: [(ProblemKind, &str); 6] = [
    (ProblemKind::Denied, "not readable (permission)"),
    (ProblemKind::Io, "not readable"),
    (ProblemKind::Truncated, "cut short"),
    (ProblemKind::Malformed, "not understood"),
    (ProblemKind::Budget, "left out"),
    (ProblemKind::Absent, "not there"),
];

/// Whether a reader without privileges could see more as root.
pub(crate) fn root_would_help(report: &Report) -> bool {
    report.host.euid.is_some_and(|euid| euid != 0)
        && report.unread.iter().any(|unread| unread.kind == ProblemKind::Denied)
}

/// File names; those of several processes as one entry with `PID` and how many, so that a thousand unreadable
/// processes take one.
pub(crate) fn collapse(unread: &[&Unread]) -> Vec<String> {
    // The general name, the first file of it, and how many there are.
    let mut counted: Vec<(String, &str, usize)> = Vec::new();
    for file in unread.iter().map(|unread| unread.file.as_str()) {
        let is_id = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let general: Vec<&str> = file.split('/').map(|part| if is_id(part) { "PID" } else { part }).collect();
        let general = general.join("/");
        match counted.iter_mut().find(|(name, ..)| *name == general) {
            Some((.., count)) => *count += 1,
            None => counted.push((general, file, 1)),
        }
    }
    let entry = |(name, first, count): (String, &str, usize)| match count {
        1 => first.to_owned(),
        count => format!("{name} ({count} processes)"),
    };
    counted.into_iter().map(entry).collect()
}

/// Rules that lacked something, together by what they lacked, in order of appearance.
pub(crate) fn by_reason(skipped: &[lotsfree_doctor::SkippedRule]) -> Vec<(&str, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Vec<&'static str>)> = Vec::new();
    for skipped in skipped {
        match groups.iter_mut().find(|(why, _)| *why == skipped.why) {
            Some((_, rules)) => rules.push(skipped.rule),
            None => groups.push((&skipped.why, vec![skipped.rule])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_with_its_unit() {
        assert_eq!(
            glued("takes 5 MiB, 3 % of 7 pages · b"),
            "takes 5\u{a0}MiB, 3\u{a0}% of 7 pages\u{a0}· b"
        );
    }

    #[test]
    fn a_file_of_one_process_keeps_its_number_and_those_of_several_are_counted() {
        let unread = |file: &str| Unread {
            file: file.to_owned(),
            line: None,
            kind: ProblemKind::Denied,
            detail: String::new(),
        };
        let all = ["/proc/1/maps", "/proc/1/io", "/proc/77/io", "/dev/kmsg"].map(unread);
        let entries = collapse(&all.iter().collect::<Vec<_>>());
        assert_eq!(entries, ["/proc/1/maps", "/proc/PID/io (2 processes)", "/dev/kmsg"]);
    }

    #[test]
    fn only_ratios_that_are_near_have_a_name() {
        assert_eq!(fraction(0.34).as_deref(), Some("about a third of"));
        assert_eq!(fraction(0.29), None);
        assert_eq!(fraction(1.4), None);
        assert_eq!(fraction(6.2).as_deref(), Some("6 times"));
        assert_eq!(fraction(0.0), None);
        assert_eq!(fraction(f64::NAN), None);
    }
}
