//! All forms of the report hold the same, are well-formed, and let no name from the host become markup or a
//! control sequence.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_doctor::{
    Answer, Consumer, Cost, Evidence, Finding, MemoryMap, Persistent, Remedy, Severity, SkippedRule, Use,
    Verdict, diagnose,
};
use lotsfree_kernel_files::ProblemKind;
use lotsfree_report::{
    HostLine, Report, Series, Source, TextOptions, Unread, html, json, markdown, nagios, schema, text,
};
use lotsfree_snapshot::{Options, observe};
use lotsfree_units::Bytes;
use unicode_width::UnicodeWidthStr;

const WIDTHS: [usize; 6] = [0, 40, 60, 80, 100, 200];

fn fixtures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut files = Vec::new();
    let mut directories = vec![root.join("hosts"), root.join("rules")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            match path.extension() {
                _ if path.is_dir() => directories.push(path),
                Some(extension) if extension == "txt" => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

/// A report of every fixture, and one that is hostile throughout.
fn reports() -> Vec<Report> {
    let of_fixture = |path: PathBuf| {
        let observation = observe(lotsfree_snapshot::source::open(&path).unwrap(), &Options::default());
        let diagnosis = diagnose(&observation);
        Report::new(&observation, diagnosis)
    };
    let mut reports: Vec<Report> = fixtures().into_iter().map(of_fixture).collect();
    assert!(reports.len() > 8 && reports.iter().map(|report| report.findings.len()).sum::<usize>() > 4);
    reports.push(hostile());
    reports.push(long_series());
    reports
}

const NASTY: &str = "<script>alert('x')</script> | a`b``` *c* [d](javascript:e) &lt; \" ]]> \u{1b}]0;f\u{7}\u{1b}[2J \u{9b}1m \
                     \u{202e}g\u{2028}h\r\ti";

fn hostile() -> Report {
    let nasty = || format!("{NASTY}\n# j\n```\n| k |");
    let remedy = Remedy {
        title: nasty(),
        runtime: vec![nasty(), "echo 1 > '/sys/a b/|' && true".to_owned()],
        persistent: vec![Persistent { file: nasty(), lines: vec![nasty()] }],
        undo: vec![nasty()],
        risk: nasty(),
        restart: Some(nasty()),
        verify: vec![nasty()],
        sets: Vec::new(),
    };
    let mut finding = Finding::new("some-rule", Severity::High, nasty(), Cost::risk(nasty()));
    finding
        .because(Evidence::new(nasty(), nasty(), nasty()).of(nasty()).was(nasty()).against(nasty(), nasty()))
        .because(Evidence::new("/proc/meminfo", "PageTables", "2 GiB"))
        .remedy(remedy)
        .note(nasty());
    let parts = [
        (Use::Application, 7),
        (Use::Shared, 3),
        (Use::PageCache, 3),
        (Use::SwapCache, 1),
        (Use::PageTables, 2),
        (Use::Slab, 4),
        (Use::Kernel, 1),
        (Use::HugeUsed, 1),
        (Use::HugeIdle, 2),
        (Use::Free, 7),
        (Use::Other, 1),
    ];
    let parts: Vec<_> = parts.map(|(part, gib)| (part, Bytes::gib(gib))).into();
    let unread = |kind| Unread { file: format!("/{}", nasty()), line: Some(3), kind, detail: nasty() };
    Report {
        schema: "lotsfree.doctor/1",
        lotsfree: "0.0.0",
        source: Source {
            label: nasty(),
            live: true,
            taken_at: Some(1.7e9),
            samples: 4,
            seconds: 15.0,
            files_read: 9,
        },
        blame: Some(nasty()),
        host: HostLine {
            hostname: nasty(),
            kernel: nasty(),
            distribution: Some(nasty()),
            page_size: Bytes::kib(4),
            cpus: Some(1),
            memory: Some(Bytes::gib(32)),
            swap: Some(Bytes::ZERO),
            nodes: Some(2),
            container: Some(nasty()),
            euid: Some(1000),
        },
        verdict: Verdict { answer: Answer::Memory, text: nasty(), collect: Some(nasty()) },
        findings: vec![finding],
        fine: vec!["fine-rule"],
        unknown: vec![SkippedRule { rule: "unknown-rule", why: nasty() }],
        need_samples: vec!["slow-rule"],
        not_applicable: vec![SkippedRule { rule: "other-rule", why: nasty() }],
        unread: [ProblemKind::Denied, ProblemKind::Malformed, ProblemKind::Absent].map(unread).into(),
        series: Some(Series {
            at: vec![0.0, 5.0, 10.0, 15.0],
            memory: parts
                .iter()
                .map(|&(part, bytes)| (part, vec![bytes, Bytes::ZERO, bytes, bytes.scale(0.5)]))
                .collect(),
            rates: vec![
                (nasty(), vec![Some(1.0), None, Some(0.3)]),
                ("major faults".to_owned(), vec![None, None, Some(123_456.0)]),
                ("pages swapped in".to_owned(), vec![Some(0.0); 3]),
            ],
        }),
        memory: Some(MemoryMap { total: parts.iter().map(|(_, bytes)| *bytes).sum(), parts }),
        largest: vec![Consumer { name: nasty(), processes: 3, memory: Bytes::gib(2), of_largest: false }],
        workloads: Vec::new(),
    }
}

/// As many samples as are ever read.
fn long_series() -> Report {
    let mut report = hostile();
    let n = lotsfree_snapshot::source::MOST_SAMPLES;
    let wave = |i: usize, k: usize| ((i * (k + 3)) as f64 / 97.0).sin().abs();
    let uses = report.memory.iter().flat_map(|memory| &memory.parts);
    report.series = Some(Series {
        at: (0..n).map(|i| i as f64 * 10.0).collect(),
        memory: uses
            .enumerate()
            .map(|(k, (part, bytes))| (*part, (0..n).map(|i| bytes.scale(wave(i, k))).collect()))
            .collect(),
        rates: [
            "pages swapped in",
            "pages swapped out",
            "pages scanned by kswapd",
            "pages scanned by tasks",
            "major faults",
            "direct reclaim entries",
        ]
        .into_iter()
        .enumerate()
        .map(|(k, name)| (name.to_owned(), (1..n).map(|i| Some(wave(i, k) * 1e5)).collect()))
        .collect(),
    });
    report
}

fn plain(width: usize, verbose: bool) -> TextOptions {
    TextOptions { width, color: false, verbose }
}

/// A command as every form shows it: in one line, without control characters.
fn shown(command: &str) -> String {
    let mut out = String::new();
    for c in command.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{2028}' | '\u{202e}' => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Commands and lines for files.
fn commands(report: &Report) -> Vec<String> {
    let remedies = report.findings.iter().flat_map(|finding| &finding.remedies);
    let of = |remedy: &Remedy| {
        let kept = remedy.persistent.iter().flat_map(|persistent| &persistent.lines);
        let tested = remedy.undo.iter().chain(&remedy.verify);
        remedy.runtime.iter().chain(kept).chain(tested).map(|line| shown(line)).collect::<Vec<_>>()
    };
    remedies.flat_map(of).collect()
}

/// Without colours.
fn stripped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        out.push_str(before);
        let end = after.find(|c: char| !(c.is_ascii_digit() || c == ';')).unwrap();
        assert_eq!(&after[end..=end], "m", "a sequence that is no colour");
        rest = &after[end + 1..];
    }
    out + rest
}

fn has_control(text: &str) -> bool {
    text.contains(|c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}')
    })
}

fn pictures(page: &str) -> Vec<&str> {
    page.match_indices("<svg ")
        .map(|(at, _)| &page[at..at + page[at..].find("</svg>").unwrap() + "</svg>".len()])
        .collect()
}

#[test]
fn every_form_holds_every_finding_and_every_command() {
    for report in reports() {
        let (text, page, ticket) = (text(&report, plain(100, false)), html(&report), markdown(&report));
        let json = json(&report).unwrap();
        for finding in &report.findings {
            for form in [&text, &page, &ticket, &json] {
                assert!(form.contains(finding.rule), "{}", finding.rule);
            }
        }
        for command in commands(&report) {
            let escaped = command
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;");
            let line_of = |form: &str| form.lines().any(|line| line.trim_end().ends_with(command.trim_end()));
            assert!(line_of(&text), "{command} is missing or wrapped:\n{text}");
            assert!(line_of(&ticket), "{command} is missing in\n{ticket}");
            assert!(page.contains(&escaped), "{command} is missing in the page");
        }
        for part in report.memory.iter().flat_map(|memory| &memory.parts) {
            assert!(page.contains(part.0.name()) && ticket.contains(part.0.name()));
        }
    }
}

#[test]
fn no_name_becomes_markup_or_moves_the_cursor() {
    let report = hostile();
    let (page, ticket, (line, _)) =
        (html(&report), markdown(&report), nagios(&report, Some(Severity::Warning)));
    for form in [&text(&report, plain(80, true)), &text(&report, plain(40, false)), &page, &ticket, &line] {
        assert!(!has_control(form), "{form:?}");
    }
    let colored = text(&report, TextOptions { width: 80, color: true, verbose: true });
    assert!(!has_control(&stripped(&colored)));
    assert!(!page.contains("<script") && !page.contains("]]><"));
    assert_eq!(line.matches('|').count(), 1, "the bar that starts the plugin's figures");
    assert_eq!(line.lines().count(), 1);

    let mut fence: Option<&str> = None;
    let mut cells = None;
    for line in ticket.lines() {
        let bare = line.trim_start();
        if let Some(open) = fence {
            if bare == open {
                fence = None;
            }
            continue;
        }
        if bare.starts_with("```") {
            fence = Some(bare.trim_end_matches(|c: char| c.is_ascii_alphabetic()));
            continue;
        }
        assert!(!line.contains("<script"), "{line}");
        let literal = line.replace("\\\\", "").replace("\\|", "").replace("\\`", "");
        assert!(literal.starts_with("Rule `") || !literal.contains('`'), "a code span opens in {line}");
        assert!(!literal.replace("\\[", "").contains("[d]"), "a link in {line}");
        assert!(literal.starts_with('|') || !literal.contains('|'), "{line}");
        match (literal.starts_with('|'), cells) {
            (true, Some(n)) => assert_eq!(literal.matches('|').count(), n, "{line}"),
            (true, None) => cells = Some(literal.matches('|').count()),
            (false, _) => cells = None,
        }
    }
    assert_eq!(fence, None, "a fence is left open");
}

#[test]
fn the_page_loads_nothing_and_is_small() {
    for report in reports() {
        let page = html(&report);
        assert!(page.len() < 300_000, "{} bytes", page.len());
        let tags: String = page.split('<').skip(1).filter_map(|tag| Some(tag.split_once('>')?.0)).collect();
        assert!(!page.contains("<script") && !page.contains("<link") && !page.contains("<img"));
        let css = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        for reference in ["http:", "https:", "src=", "href=", "url(", "@import", "onload", "xmlns"] {
            assert!(!tags.contains(reference) && !css.contains(reference), "{reference}");
        }
        for custom in css.split("var(").skip(1).map(|rest| rest.split([')', ',']).next().unwrap()) {
            assert!(css.contains(&format!("{custom}:")), "{custom} has no value");
        }
    }
}

#[test]
fn pictures_are_well_formed_and_say_what_they_show() {
    let mut drawn = 0;
    for report in reports() {
        let page = html(&report);
        let mut ids = BTreeSet::new();
        for picture in pictures(&page) {
            drawn += 1;
            assert!(!picture.contains("NaN") && !picture.contains("inf"));
            let document = roxmltree::Document::parse(picture).unwrap();
            let root = document.root_element();
            let child = |name: &str| root.children().find(|child| child.has_tag_name(name)).unwrap();
            assert_eq!(root.attribute("role"), Some("img"));
            let labels = format!(
                "{} {}",
                child("title").attribute("id").unwrap(),
                child("desc").attribute("id").unwrap()
            );
            assert_eq!(root.attribute("aria-labelledby"), Some(labels.as_str()));
            assert!(child("title").text().is_some_and(|text| text.len() > 10));
            for id in document.descendants().filter_map(|node| node.attribute("id")) {
                assert!(ids.insert(id.to_owned()), "{id} twice");
            }
            texts_are_apart(&document);
        }
    }
    assert!(drawn > 20);
}

/// No two texts of one line overlap, and all are inside, when a letter is at most 7.2 px wide.
fn texts_are_apart(document: &roxmltree::Document<'_>) {
    let number =
        |node: roxmltree::Node<'_, '_>, name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
    let width = number(document.root_element(), "width");
    let mut boxes: Vec<(f64, f64, f64, String)> = Vec::new();
    for node in document.descendants().filter(|node| node.has_tag_name("text")) {
        let text = node.text().unwrap_or_default().to_owned();
        let (x, wide) = (number(node, "x"), text.width() as f64 * 7.2);
        let start = match node.attribute("text-anchor") {
            Some("middle") => x - wide / 2.0,
            Some("end") => x - wide,
            _ => x,
        };
        // Names of rates are the program's own, and short.
        if !text.contains("script") {
            assert!(start >= -1.0 && start + wide <= width + 1.0, "{text} sticks out");
        }
        boxes.push((number(node, "y"), start, start + wide, text));
    }
    for (i, a) in boxes.iter().enumerate() {
        for b in &boxes[i + 1..] {
            let apart = (a.0 - b.0).abs() >= 12.0 || a.2 <= b.1 + 0.5 || b.2 <= a.1 + 0.5;
            assert!(apart, "{:?} and {:?} overlap", a, b);
        }
    }
}

#[test]
fn the_parts_of_the_bar_add_up() {
    for report in reports() {
        let Some(memory) = &report.memory else { continue };
        let sum: Bytes = memory.parts.iter().map(|(_, bytes)| *bytes).sum();
        assert!(sum >= memory.total, "{sum:?} of {:?}", memory.total);
        if sum > memory.total {
            continue;
        }
        let page = html(&report);
        for picture in pictures(&page).into_iter().filter(|picture| picture.contains("id=\"memory-")) {
            let document = roxmltree::Document::parse(picture).unwrap();
            let bars = document.descendants().filter(|node| node.has_tag_name("rect"));
            let widths: f64 = bars.map(|bar| bar.attribute("width").unwrap().parse::<f64>().unwrap()).sum();
            let whole: f64 = document.root_element().attribute("width").unwrap().parse().unwrap();
            assert!((widths - whole).abs() < 1.0, "{widths} of {whole}");
        }
    }
}

#[test]
fn text_keeps_to_its_width_and_colour_changes_no_word() {
    for report in reports() {
        let commands = commands(&report);
        for (width, verbose) in WIDTHS.into_iter().flat_map(|width| [(width, false), (width, true)]) {
            let page = text(&report, plain(width, verbose));
            let limit = width.clamp(40, 120);
            for line in page.lines() {
                assert_eq!(line, line.trim_end(), "trailing space");
                let pasted = commands.iter().any(|command| line.ends_with(command.trim_end()));
                assert!(pasted || line.width() <= limit, "{} columns of {limit}: {line}", line.width());
            }
            let margins = page.lines().filter(|line| line.starts_with(' ') && !line.starts_with("  "));
            assert_eq!(margins.collect::<Vec<_>>(), [""; 0], "a line begins with a lone space");

            let colored = stripped(&text(&report, TextOptions { width, color: true, verbose }));
            let findings = |page: &str| {
                let start = report.findings.first().and_then(|_| page.find("\n\n")).unwrap_or(0);
                page[start..].split("     rule ").skip(1).collect::<String>()
            };
            assert_eq!(findings(&page), findings(&colored));
            assert!(colored.lines().all(|line| line == line.trim_end()));
        }
    }
}

#[test]
fn reports_follow_the_schema() {
    let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    let validator = jsonschema::validator_for(&schema).unwrap();
    for report in reports() {
        let mut value: serde_json::Value = serde_json::from_str(&json(&report).unwrap()).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", report.source.label);
        value.as_object_mut().unwrap().remove("findings");
        assert!(!validator.is_valid(&value), "findings are required");
    }
}

#[test]
fn what_is_unknown_is_drawn_as_a_gap() {
    let page = html(&hostile());
    let pictures = pictures(&page);
    let rates = pictures.iter().find(|picture| picture.contains("rates-920")).unwrap();
    assert_eq!(rates.matches("class=\"gap\"").count(), 2, "one in each rate that is drawn");
    let stack = pictures.iter().find(|picture| picture.contains("stack-920")).unwrap();
    // The first sample stands alone before the gap; the area goes on after it.
    assert_eq!(stack.matches("<path class=\"u-free\"").count(), 2);
    assert!(page.contains("Zero throughout: pages swapped in."));
    assert!(page.contains("was not recorded"));
}

#[test]
fn files_that_a_partial_copy_lacks_are_counted_and_named_on_request() {
    let mut report = hostile();
    report.source.live = false;
    report.unread = (0..27)
        .map(|i| Unread {
            file: format!("/proc/file-{i}"),
            line: None,
            kind: ProblemKind::Absent,
            detail: "no such file".into(),
        })
        .collect();
    let short = text(&report, plain(100, false));
    assert!(short.contains("27 files, such as /proc/file-0, /proc/file-1 (--verbose names them)"), "{short}");
    assert!(text(&report, plain(100, true)).contains("/proc/file-26"));
    report.source.live = true;
    assert!(text(&report, plain(100, false)).contains("/proc/file-26"));
}
