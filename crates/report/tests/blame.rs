//! Who lost time to memory and who took it: every form says the same, names stay names, pictures are
//! well-formed, and what is not known is no zero. The pages are left in `target/tmp` to be looked at.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lotsfree_analysis::blame::Blame;
use lotsfree_doctor::Remedy;
use lotsfree_report::TextOptions;
use lotsfree_report::blame::{
    BlameDetails, BlameReport, Unwatched, UnwatchedProgram, blame_html, blame_json, blame_markdown,
    blame_schema, blame_text,
};
use lotsfree_report::runs::{runs_html, runs_json, runs_text};
use lotsfree_run::{Facts, Histogram, Interval, Memory, Run, Sink as _, Spent, State, Toll};
use lotsfree_units::Bytes;
use unicode_width::UnicodeWidthStr;

const MS: u64 = 1_000_000;
const MIB: u64 = 256;

/// A program in one second: its name, milliseconds on a CPU and reclaiming, and its toll with times in
/// milliseconds.
type Row = (&'static str, u64, u64, Toll);

/// A run of `seconds` seconds, each a little different from the others.
fn run(rows: &[Row], seconds: u64) -> Run {
    let mut memory = Memory::default();
    for second in 0..seconds {
        // 90, 100 or 110 per cent of it.
        let varied = |what: u64, of: u64| what * (90 + (second + of) % 3 * 10) / 100;
        let row = |(actor, user, reclaim, toll): &Row| Interval {
            from: second * 1000 * MS,
            at: (second + 1) * 1000 * MS,
            spent: Spent {
                user: user * MS,
                reclaim: varied(*reclaim, 0) * MS,
                io: (varied(toll.thrashing, 1) + toll.swap_in) * MS,
                system: toll.compaction * MS,
                ..Spent::default()
            },
            toll: Toll {
                thrashing: varied(toll.thrashing, 1) * MS,
                swap_in: toll.swap_in * MS,
                compaction: toll.compaction * MS,
                allocated: varied(toll.allocated, actor.len() as u64),
                ..*toll
            },
            ..self::row(actor, Toll::default())
        };
        memory.intervals(&rows.iter().map(row).collect::<Vec<_>>()).unwrap();
    }
    let facts = Facts { page_size: 4096, title: "A database beside a backup".to_owned(), ..Facts::default() };
    memory.finish(facts, "", State::Complete)
}

fn row(actor: &str, toll: Toll) -> Interval {
    Interval {
        from: 0,
        at: 0,
        actor: Arc::from(actor),
        role: Arc::from(""),
        operations: 0,
        errors: 0,
        latency: Histogram::default(),
        spent: Spent::default(),
        major_faults: 0,
        minor_faults: 0,
        toll,
    }
}

/// A database that a backup evicts, beside a program that leaks.
fn evicted() -> Run {
    let database = Toll {
        thrashing: 220,
        compaction: 70,
        swap_in: 3,
        refaults: 4 * MIB,
        allocated: 5 * MIB,
        held: 900 * MIB,
        ..Toll::default()
    };
    let backup = Toll { allocated: 120 * MIB, held: 2 * MIB, ..Toll::default() };
    let leak = Toll {
        allocated: 30 * MIB,
        returned: 4 * MIB,
        thrashing: 12,
        refaults: MIB,
        held: 700 * MIB,
        ..Toll::default()
    };
    run(
        &[
            ("postgres", 587, 120, database),
            ("rsync", 300, 0, backup),
            ("java <b>&", 500, 2, leak),
            ("sshd", 3, 0, Toll { allocated: 9, returned: 9, held: MIB, ..Toll::default() }),
        ],
        30,
    )
}

fn details() -> BlameDetails {
    BlameDetails {
        source: "this host".to_owned(),
        doing: [("rsync".to_owned(), "reading /backup/a.tar".to_owned())].into(),
        groups: [("postgres".to_owned(), "/system.slice/postgresql.service".to_owned())].into(),
        not_seen: vec!["Tasks that lived for less than a second between two samples.".to_owned()],
        remedies: vec![Remedy {
            title: "Keep the backup's pages from evicting others'".to_owned(),
            runtime: vec!["systemctl set-property backup.service MemoryHigh=512M".to_owned()],
            persistent: Vec::new(),
            undo: vec!["systemctl revert backup.service".to_owned()],
            risk: "The backup reads more slowly.".to_owned(),
            restart: None,
            verify: Vec::new(),
            sets: Vec::new(),
        }],
        ..BlameDetails::default()
    }
}

fn report(run: &Run, asked: Option<&str>) -> BlameReport {
    BlameReport::new(Blame::of(run, asked), asked, details())
}

fn plain(width: usize) -> TextOptions {
    TextOptions { width, color: false, verbose: false }
}

fn keep(name: &str, page: &str) {
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), page).unwrap();
}

#[test]
fn the_answer_names_the_control_group_whose_limit_is_the_reason() {
    let mut limited = Memory::default();
    let rows: Vec<Interval> =
        (evicted().intervals().iter()).map(|row| Interval { role: "/apps".into(), ..row }).collect();
    limited.intervals(&rows).unwrap();
    let facts = Facts { page_size: 4096, ..Facts::default() };
    let run = limited.finish(facts, "", State::Complete);
    let answer = |limits| {
        let details = BlameDetails { limits, ..BlameDetails::default() };
        BlameReport::new(Blame::of(&run, Some("postgres")), Some("postgres"), details).answer
    };
    let said = " The control group /apps was at its limit";
    let why = ", so memory that is free elsewhere does not help.";
    assert!(answer(BTreeMap::new()).ends_with(&format!("{said}{why}")));
    let limits = [("/apps".to_owned(), Bytes::gib(1))].into();
    assert!(answer(limits).ends_with(&format!("{said} of 1 GiB{why}")));
    assert!(!report(&evicted(), Some("postgres")).answer.contains("control group"));
}

#[test]
fn the_answer_names_payer_parts_and_takers() {
    let run = evicted();
    let text = blame_text(&report(&run, Some("postgres")), plain(100));
    let expected = "\
postgres lost 41 % of its time to memory: 22 % waiting for pages it had lost (thrashing), 12 %
reclaiming, 7.0 % compaction, 0.3 % swap-in; 82 % of that was taken by rsync (reading /backup/a.tar)
and 18 % by java <b>&.
this host · control group /system.slice/postgresql.service · 4 programs · 30 s in 30 intervals

rsync took 82 %, reading /backup/a.tar: it allocated 3.52 GiB and holds 2 MiB.
java <b>& took 18 %: it allocated 900 MiB (750 MiB of it new, the rest came back), gave back 120 MiB
  and holds 700 MiB.
postgres itself took 0.7 %: it allocated 150 MiB (30 MiB of it new, the rest came back) and holds
  900 MiB.

Another watch would give the same shares to within ±1 point (standard error over 30 intervals in
30 s).

Not seen:
- Tasks that lived for less than a second between two samples.

What would help:
       do 1. Keep the backup's pages from evicting others'
                 now systemctl set-property backup.service MemoryHigh=512M
                undo systemctl revert backup.service
                risk The backup reads more slowly.
";
    assert_eq!(text, expected);
}

#[test]
fn without_a_name_a_table_says_who_paid_and_one_who_took() {
    let text = blame_text(&report(&evicted(), None), plain(120));
    let expected = "\
2 of 4 programs lost time to memory, postgres most: it lost 41 % of its time to memory: 22 % waiting for pages it had
lost (thrashing), 12 % reclaiming, 7.0 % compaction, 0.3 % swap-in; 82 % of that was taken by rsync (reading
/backup/a.tar) and 18 % by java <b>&.
this host · 4 programs · 30 s in 30 intervals

Who paid
            lost  thrashing  reclaim  compaction  swap-in    time  most taken by                     control group
postgres    41 %       22 %     12 %       7.0 %    0.3 %  12.4 s     rsync 82 %  /system.slice/postgresql.service
java <b>&  2.6 %      2.3 %    0.3 %           –        –  400 ms     rsync 80 %
";
    assert!(text.starts_with(expected), "{text}");
    assert!(
        text.contains(
            "sshd           5.47 µs   1.02 MiB   1.05 MiB   −40 KiB         –           –    1 MiB\n"
        )
    );
    assert!(text.contains("rsync: reading /backup/a.tar\n"));
}

#[test]
fn who_lost_nothing_is_told_so_with_what_was_looked_at() {
    let run = evicted();
    let answer = |run: &Run, asked| report(run, asked).answer;
    let sshd = "sshd lost no time to memory to speak of: none of the 90.0 ms that it was awake, in 30 s.";
    assert_eq!(answer(&run, Some("sshd")), sshd);
    let nginx = "No program named nginx was seen in the 30 s that were looked at.";
    assert_eq!(answer(&run, Some("nginx")), nginx);
    let took = Toll { allocated: 10, thrashing: 10, ..Toll::default() };
    let calm = self::run(&[("a", 2490, 0, took), ("b", 500, 0, Toll::default())], 9);
    let nobody = "Nobody lost time to memory to speak of: 2 programs over 9 s were looked at, and the most was a (0.4 % of its time).";
    assert_eq!(answer(&calm, None), nobody);
    let asleep = self::run(&[("a", 0, 0, Toll::default()), ("b", 1, 0, took)], 2);
    assert_eq!(
        answer(&asleep, Some("a")),
        "a slept through the 2 s that were looked at, so memory cost it nothing."
    );
    let empty = self::run(&[], 0);
    assert_eq!(answer(&empty, None), "There is nothing to look at: no interval tells what programs did.");
}

#[test]
fn what_a_run_does_not_tell_is_unknown_and_no_zero() {
    let old = run(&[("db", 900, 100, Toll::default())], 9);
    let told = "db lost at least 10 % of its time to memory: 10 % reclaiming; what thrashing, compaction and swap-in \
                cost is unknown, and so is who took the memory.";
    let report = report(&old, None);
    assert_eq!(report.answer, told);
    for form in [blame_text(&report, plain(120)), blame_markdown(&report), blame_html(&report)] {
        assert!(form.contains("unknown") && !form.contains("0 % swap-in"), "{form}");
    }
    let json: serde_json::Value = serde_json::from_str(&blame_json(&report).unwrap()).unwrap();
    assert!(json["payers"][0]["parts"]["thrashing"].is_null());
    let runs = [old];
    assert!(!runs_text(&runs, plain(100)).contains("Who lost time"));
    assert!(!runs_text(&runs, plain(100)).contains("thrashing"));
    assert!(!runs_html(&runs).contains("Who lost time"));
}

#[test]
fn large_errors_and_unknown_shares_are_told() {
    // Of 1000 pages in each second nobody knows who took 200; the takers of the others alternate.
    let took = |allocated| Toll { allocated, ..Toll::default() };
    let mut memory = Memory::default();
    for second in 0..8 {
        let of = |a, b| if second % 2 == 0 { a } else { b };
        let row = |actor: &str, reclaim: u64, toll| Interval {
            from: second * 1000 * MS,
            at: (second + 1) * 1000 * MS,
            spent: Spent { user: 900 * MS, reclaim: reclaim * MS, ..Spent::default() },
            ..self::row(actor, toll)
        };
        let rows = [
            row("db", 100, took(0)),
            row("cp", 0, took(of(600, 200))),
            row("find", 0, took(of(200, 600))),
            row("", 0, took(200)),
        ];
        memory.intervals(&rows).unwrap();
    }
    let run = memory.finish(Facts { page_size: 4096, ..Facts::default() }, "", State::Complete);
    let report = report(&run, Some("db"));
    let told = "db lost 10 % of its time to memory: 10 % reclaiming; 40 % (±8) of that was taken by cp and 40 % (±8) by find; \
                who took 20 % is unknown.";
    assert_eq!(report.answer, told);
    let unknown =
        "Unknown is who took 20 %: 20 % of the pages went to interrupts, or to programs that ended unseen.";
    assert!(blame_text(&report, plain(120)).contains(unknown), "{}", blame_text(&report, plain(120)));
}

#[test]
fn json_is_as_its_schema_says_and_holds_all() {
    let schema: serde_json::Value = serde_json::from_str(&blame_schema()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for (run, asked) in [(evicted(), None), (evicted(), Some("postgres")), (run(&[], 0), None)] {
        let json: serde_json::Value =
            serde_json::from_str(&blame_json(&report(&run, asked)).unwrap()).unwrap();
        let errors: Vec<String> = schema.iter_errors(&json).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn markdown_and_pages_hold_names_as_names() {
    let run = evicted();
    for (name, asked) in [("all", None), ("postgres", Some("postgres")), ("sshd", Some("sshd"))] {
        let report = report(&run, asked);
        let (page, markdown) = (blame_html(&report), blame_markdown(&report));
        keep(&format!("blame-{name}.html"), &page);
        assert!(!page.contains("<b>&<") && !markdown.contains("<b>"), "a name became markup");
        assert!(!page.contains("<script") && !page.contains("<link") && !page.contains("href="));
        let css = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        for custom in css.split("var(").skip(1).map(|rest| rest.split([')', ',']).next().unwrap()) {
            assert!(css.contains(&format!("{custom}:")), "{custom} has no value");
        }
        let expected = if asked == Some("sshd") { 0 } else { 4 };
        assert_eq!(pictures(&page), expected, "two pictures in two widths");
    }
}

/// Pictures are well-formed, and no text sticks out when a letter is 7.2 px wide. Returns how many there are.
fn pictures(page: &str) -> usize {
    let mut count = 0;
    for (at, _) in page.match_indices("<svg ") {
        let picture = &page[at..at + page[at..].find("</svg>").unwrap() + "</svg>".len()];
        assert!(!picture.contains("NaN") && !picture.contains("inf\""), "{picture}");
        let document = roxmltree::Document::parse(picture).unwrap();
        let number =
            |node: roxmltree::Node<'_, '_>, name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
        let width = number(document.root_element(), "width");
        for node in document.descendants().filter(|node| node.has_tag_name("text")) {
            let (x, wide) = (number(node, "x"), node.text().unwrap_or_default().width() as f64 * 7.2);
            let start = match node.attribute("text-anchor") {
                Some("middle") => x - wide / 2.0,
                Some("end") => x - wide,
                _ => x,
            };
            assert!(start >= -1.0 && start + wide <= width + 1.0, "{:?} sticks out", node.text());
        }
        count += 1;
    }
    count
}

#[test]
fn no_line_is_longer_than_the_terminal() {
    let run = evicted();
    for (width, asked) in
        [40, 60, 80, 120].into_iter().flat_map(|width| [(width, None), (width, Some("postgres"))])
    {
        let text = blame_text(&report(&run, asked), plain(width));
        let long = text.lines().find(|line| line.width() > width && !line.contains("systemctl"));
        assert_eq!(long, None, "{width}");
    }
}

#[test]
fn a_run_with_losses_has_a_few_sentences_in_its_report() {
    let runs = [evicted()];
    let text = runs_text(&runs, plain(120));
    let expected = "Who lost time to memory\npostgres lost 41 % of its time to memory: 22 % waiting";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("java <b>& lost 2.6 % of its time"), "{text}");
    let page = runs_html(&runs);
    assert!(page.contains("<h2>Who lost time to memory</h2>"));
    keep("blame-run.html", &page);
    let json: serde_json::Value = serde_json::from_str(&runs_json(&runs).unwrap()).unwrap();
    assert_eq!(json["runs"][0]["blame"]["payers"][0]["actor"], "postgres");
}

#[test]
fn what_an_ordinary_user_sees_says_what_it_cannot() {
    let glimpse = |program: &str, stalled, grew_bytes: i64, read_bytes| UnwatchedProgram {
        program: program.to_owned(),
        group: format!("/system.slice/{program}.service"),
        stalled,
        major_faults: 1204,
        grew_bytes,
        held_bytes: 3 << 30,
        read_bytes,
        is_asked: program == "postgres",
    };
    let unwatched = Unwatched {
        seconds: 30.0,
        stalled: Some(0.43),
        stalled_all: Some(0.1),
        read_bytes: 9 << 30,
        refaults: 70_000,
        programs: vec![
            glimpse("perl <b>&", None, 1 << 30, None),
            glimpse("rsync", Some(0.1), -4096, Some(5 << 30)),
            glimpse("postgres", Some(0.41), 0, None),
        ],
    };
    let report = BlameReport::unwatched(unwatched, details());
    assert_eq!(
        report.answer,
        "This host waited for memory in 43 % of 30 s; postgres had 1,204 major faults, and its control group \
         /system.slice/postgres.service waited in 41 % of it. Meanwhile perl <b>& grew by 1 GiB and 9 GiB were read \
         from disks, 5 GiB of them by rsync. Whose time that was and who took the memory is \
         not to be seen without the kernel's tracepoints."
    );
    let text = blame_text(&report, plain(100));
    assert!(text.lines().all(|line| line.width() <= 100), "{text}");
    let order = ["postgres ", "rsync ", "perl "].map(|name| text.find(&format!("\n{name}")).unwrap());
    assert!(order.is_sorted() && text.contains("30 s\n"), "{text}");
    let page = blame_html(&report);
    assert!(page.contains("perl &lt;b&gt;&amp;") && !page.contains("perl <b>"));
    assert!(blame_markdown(&report).contains("| postgres | 41 % | 1,204 |"));
    keep("blame-unwatched.html", &page);
}
