//! Runs compared with each other: every form holds every measure, the kernel is the reference, repeats are no
//! deviation, and JSON follows its schema.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "each test file uses a part")]
mod synthetic;

use std::path::Path;

use lotsfree_analysis::compare::{Compared, Sort, Table, Verdict, compare};
use lotsfree_report::TextOptions;
use lotsfree_report::runs::compare::{
    Grid, MarkdownOptions, compare_json, compare_markdown, compare_schema, compare_text, orders_sentence,
};
use lotsfree_run::{Facts, Histogram, Interval, Memory, Run, RunOn, Sample, Sink, Spent, State, Toll};
use synthetic::{Fate, facts, scenario, write};
use unicode_width::UnicodeWidthStr;

/// Repeats of two variants on a kernel; their noise follows from the size of the copy.
fn kernel(root: &Path, sizes: &[f64]) -> Vec<Run> {
    runs(root, "kernel", sizes, |facts| {
        facts.machine = RunOn::Vm;
        facts.kernel = "3.10.0-1160.el7.x86_64".to_owned();
    })
}

fn runs(root: &Path, name: &str, sizes: &[f64], change: impl Fn(&mut Facts)) -> Vec<Run> {
    let cases = scenario(&["base", "direct"], &[]);
    let mut runs = Vec::new();
    for (case, fate) in cases.iter().zip([Fate::Swaps, Fate::Direct]) {
        for (repeat, gib) in sizes.iter().enumerate() {
            let directory = root.join(name).join(format!("{}-{repeat}", case.variant));
            let mut facts = facts(&case.variant, fate);
            change(&mut facts);
            let writer = write(&directory, facts, &case.to_toml(), fate, *gib, 240);
            runs.push(writer.finish(State::Complete).unwrap());
        }
    }
    runs
}

fn plain(width: usize, verbose: bool) -> TextOptions {
    TextOptions { width, color: false, verbose }
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The other's verdict and change by a measure.
fn by(table: &Table, key: &str) -> (Verdict, f64) {
    let row = table.rows.iter().find(|row| row.key == key).unwrap();
    let deviation = row.deviations[0].unwrap();
    (deviation.verdict, deviation.change)
}

#[test]
fn the_model_is_compared_with_repeats_of_a_kernel() {
    let root = tempfile::tempdir().unwrap();
    let model = runs(root.path(), "model", &[8.5], |_| {});
    let compared = compare(&[model, kernel(root.path(), &[8.0, 9.0, 10.0])]);
    assert!(compared.reference.contains("kernel"));
    assert_eq!((compared.tables.len(), compared.alone.len()), (2, 0));
    let table = &compared.tables[0];
    let columns: Vec<(&str, usize, Option<&str>)> = table
        .columns
        .iter()
        .map(|column| (column.label.as_str(), column.repeats, column.generation.as_deref()))
        .collect();
    let generation = Some("linux-3.10");
    assert_eq!(columns, [("virtual machine", 3, generation), ("model", 1, generation)]);
    // What grows with the size of the copy lies between the repeats.
    let within = |row: &&lotsfree_analysis::compare::Row| {
        row.deviations[0].is_some_and(|deviation| deviation.verdict == Verdict::WithinSpread)
    };
    assert!(table.rows.iter().filter(within).count() > 2);
    for tallies in compared.tables.iter().flat_map(|table| &table.tallies) {
        assert_eq!(tallies.measures.in_kind, 0);
        assert!(tallies.measures.compared > 20 && tallies.vmstat.compared > 0);
    }
    let [orders] = compared.orders.as_slice() else { panic!("{:?}", compared.orders) };
    assert_eq!(orders.variants, ["base", "direct"]);
    assert!(orders.measures.iter().any(|order| order.key == "throughput_per_second"));
    let kept = orders.measures.len();
    assert!(
        orders_sentence(orders).contains(&format!("preserved in model: {kept} of {kept}.")),
        "{orders:?}"
    );
}

#[test]
fn variants_of_one_place_are_compared_with_the_first() {
    let root = tempfile::tempdir().unwrap();
    let compared = compare(&[runs(root.path(), "model", &[8.0], |_| {})]);
    let [table] = compared.tables.as_slice() else { panic!("one table") };
    let labels: Vec<&str> = table.columns.iter().map(|column| column.label.as_str()).collect();
    assert_eq!(labels, ["base", "direct"]);
    assert_eq!(by(table, "swap_out_bytes"), (Verdict::InKind, -1.0));
    assert!(compared.orders.is_empty() && compared.reference.contains("first run"));
    let text = compare_text(&compared, Sort::Worst, plain(80, false));
    let line = text.lines().find(|line| line.starts_with("swapped out")).unwrap();
    assert!(line.ends_with("in kind, better"), "{text}");
    let at = |name: &str| text.lines().position(|line| line.starts_with(name)).unwrap();
    assert!(at("swapped out") < at("requests per second"), "worst first");
}

/// A run in memory of one actor and a few counters.
fn brief(variant: &str, machine: RunOn, operations: u64, pages: [u64; 2]) -> Run {
    let mut memory = Memory::default();
    for (row, scanned) in (0..).zip([0, pages[0]]) {
        let mut sample = Sample { at: row * 1_000_000_000, ..Sample::default() };
        for (name, value) in [("pgscan_direct", scanned), ("pswpout", row * pages[1]), ("oom_kill", row)] {
            sample.vmstat.set(lotsfree_kernel_files::counters::Counter::named(name).unwrap(), value);
        }
        memory.sample(&sample).unwrap();
    }
    let mut latency = Histogram::default();
    latency.record_many(1_000_000_000 / operations, operations);
    let interval = Interval {
        from: 0,
        at: 1_000_000_000,
        actor: "app".into(),
        role: "server".into(),
        operations,
        errors: 0,
        latency,
        spent: Spent { user: 500_000_000, ..Spent::default() },
        major_faults: 3,
        minor_faults: 5,
        toll: Toll::default(),
    };
    memory.intervals(&[interval]).unwrap();
    let facts = Facts {
        title: "Brief".to_owned(),
        variant: Some(variant.to_owned()),
        machine,
        kernel: if machine == RunOn::Model { "linux-6.1" } else { "6.1.0-49-amd64" }.to_owned(),
        page_size: 4096,
        ..Facts::default()
    };
    memory.finish(facts, "", State::Complete)
}

#[test]
fn what_a_kernel_does_not_tell_apart_is_compared_as_a_whole() {
    let spent = |machine, spent| {
        let mut memory = Memory::default();
        let interval = Interval {
            from: 0,
            at: 1_000_000_000,
            actor: "app".into(),
            role: "server".into(),
            operations: 0,
            errors: 0,
            latency: Histogram::default(),
            spent,
            major_faults: 0,
            minor_faults: 0,
            toll: Toll::default(),
        };
        memory.sample(&Sample::default()).unwrap();
        memory.sample(&Sample { at: 1_000_000_000, ..Sample::default() }).unwrap();
        memory.intervals(&[interval]).unwrap();
        let facts = Facts { machine, page_size: 4096, ..Facts::default() };
        memory.finish(facts, "", State::Complete)
    };
    let ms = 1_000_000;
    let model =
        Spent { system: 300 * ms, reclaim: 200 * ms, io: 100 * ms, throttled: 50 * ms, ..Spent::default() };
    let told = |of: Spent| {
        let compared = compare(&[[spent(RunOn::Model, model)].into(), [spent(RunOn::Vm, of)].into()]);
        let row = |key: &str| {
            let key = format!("actor.app.server.spent.{key}_ns");
            let row = compared.tables[0].rows.iter().find(|row| row.key == key).unwrap();
            [&row.values[0], &row.values[1]].map(|span| span.as_ref().map(|span| span.value / ms as f64))
        };
        ["system", "reclaim", "waiting_for_a_device", "throttled"].map(row)
    };
    let agents = Spent { system: 520 * ms, io: 140 * ms, ..Spent::default() };
    let all =
        [[Some(520.0), Some(500.0)], [None, Some(200.0)], [Some(140.0), Some(150.0)], [None, Some(50.0)]];
    assert_eq!(told(agents), all);
    let watched = Spent { system: 320 * ms, reclaim: 200 * ms, io: 140 * ms, ..Spent::default() };
    assert_eq!(told(watched)[1], [Some(200.0); 2]);
}

#[test]
fn the_text_is_as_expected() {
    let model = [brief("a", RunOn::Model, 900, [1_000_000, 0])];
    let kernel = [brief("a", RunOn::Vm, 1000, [800_000, 100_000])];
    let text = compare_text(&compare(&[model.into(), kernel.into()]), Sort::Worst, plain(80, false));
    let expected = "\
Brief: a
The kernel's run is the reference that the model is compared with.
virtual machine (the reference): 6.1.0-49-amd64
model: linux-6.1

                          virtual machine      model
swapped out                       391 MiB        0 B  in kind, better
pages scanned by tasks            800,000  1,000,000  25 % worse
requests per second                 1,000        900  10 % worse
app server: requests                1,000        900  10 % worse
latency p50                       1.00 ms    1.11 ms  11 % worse
";
    assert!(text.starts_with(expected), "{text}");
    let said = joined(&text);
    assert!(
        said.contains("model: 11 measures compared, median error 11 %; 9 within 15 %, 1 differs in kind")
    );
    // 3 of 3 faults are neither right nor wrong.
    assert!(!said.contains("major faults") && said.contains("more are too small in both to tell"), "{text}");
}

/// A run of a kernel that has counters of such names.
fn counted(kernel: &str, counters: &[(&str, u64)]) -> Run {
    let mut memory = Memory::default();
    for row in [0, 1] {
        let mut sample = Sample { at: row * 1_000_000_000, ..Sample::default() };
        for (name, value) in counters {
            let counter = lotsfree_kernel_files::counters::Counter::named(name).unwrap();
            sample.vmstat.set(counter, row * value);
        }
        memory.sample(&sample).unwrap();
    }
    let facts = Facts { kernel: kernel.to_owned(), page_size: 4096, ..Facts::default() };
    memory.finish(facts, "", State::Complete)
}

#[test]
fn quantities_that_one_kernel_counts_per_zone_are_compared_as_their_sums() {
    let old = counted(
        "linux-3.10",
        &[
            ("pgscan_kswapd_dma32", 1000),
            ("pgscan_kswapd_normal", 5000),
            ("pgsteal_direct_normal", 2000),
            ("allocstall", 90),
            ("pswpout", 700),
        ],
    );
    let older = counted(
        "linux-2.6.32-rhel6",
        &[
            ("pgscan_kswapd_normal", 9000),
            ("pgsteal_normal", 4000),
            ("kswapd_steal", 3000),
            ("allocstall", 80),
            ("pswpout", 500),
        ],
    );
    let new = counted(
        "linux-6.1",
        &[("pgscan_kswapd", 3000), ("pgsteal_direct", 1500), ("allocstall_normal", 40), ("pswpout", 600)],
    );
    let compared = compare(&[vec![new], vec![old], vec![older]]);
    let [table] = compared.tables.as_slice() else { panic!("{:?}", compared.tables) };
    let of = |key: &str| {
        let row = table.rows.iter().find(|row| row.key == key);
        row.map(|row| row.values.iter().map(|span| span.unwrap().value).collect::<Vec<f64>>())
    };
    assert_eq!(of("group.pgscan_kswapd"), Some(vec![3000.0, 6000.0, 9000.0]));
    assert_eq!(of("group.pgsteal_direct"), Some(vec![1500.0, 2000.0, 1000.0]));
    assert_eq!(of("group.allocstall"), Some(vec![40.0, 90.0, 80.0]));
    assert_eq!((of("group.pgscan_direct"), of("group.thp_split_page")), (None, None), "nobody counts them");
    assert_eq!(of("vmstat.pswpout"), Some(vec![600.0, 700.0, 500.0]));
    let text = compare_text(&compared, Sort::Worst, plain(100, true));
    assert!(text.contains("\npgscan_kswapd (sum) "), "{text}");
}

#[test]
fn orders_that_are_lost_are_named() {
    let model = [
        brief("a", RunOn::Model, 1000, [50_000, 0]),
        brief("b", RunOn::Model, 1010, [10_000, 0]),
        brief("c", RunOn::Model, 400, [9_000, 0]),
    ];
    let kernel = [
        brief("a", RunOn::Vm, 1000, [50_000, 0]),
        brief("b", RunOn::Vm, 500, [10_000, 0]),
        brief("c", RunOn::Vm, 200, [12_000, 0]),
    ];
    let compared = compare(&[model.into(), kernel.into()]);
    let [orders] = compared.orders.as_slice() else { panic!("{:?}", compared.orders) };
    let of = |key: &str| orders.measures.iter().find(|order| order.key == key).unwrap();
    let pair = |a: &str, b: &str| vec![[a.to_owned(), b.to_owned()]];
    let throughput = of("throughput_per_second");
    assert_eq!((throughput.pairs, &throughput.reversed), (3, &vec![]));
    assert_eq!(throughput.tied, pair("a", "b"));
    assert_eq!(of("direct_scan_pages").reversed, pair("b", "c"));
    assert!(orders.measures.iter().all(|order| order.key != "swap_out_bytes"), "all tie: no order");
}

/// Everything that is compared, in all forms.
fn forms(compared: &Compared) -> [String; 3] {
    [
        compare_text(compared, Sort::Group, plain(120, true)),
        compare_markdown(compared, MarkdownOptions { sort: Sort::Group, verbose: true }),
        compare_json(compared).unwrap(),
    ]
}

#[test]
fn every_form_holds_every_measure() {
    let root = tempfile::tempdir().unwrap();
    let model = runs(root.path(), "model", &[9.0], |_| {});
    let compared = compare(&[model, kernel(root.path(), &[8.0, 10.0])]);
    let [text, markdown, json] = forms(&compared);
    for table in &compared.tables {
        for row in table.rows.iter().filter(|row| !row.group.is_detail()) {
            assert!(text.contains(&row.name), "{}", row.name);
            assert!(markdown.contains(&format!("| {} |", row.name)), "{}", row.name);
            assert!(json.contains(&row.key), "{}", row.key);
        }
        assert!(markdown.contains(&format!("## {}", table.title)));
        assert!(markdown.contains(&Grid::of_table(table, true, Sort::Group, false).markdown()));
    }
    assert!(markdown.contains(&Grid::overview(&compared).markdown()));
    assert!(text.contains("2 repeats") && markdown.contains("| range |"));
    let schema: serde_json::Value = serde_json::from_str(&compare_schema()).unwrap();
    let document: serde_json::Value = serde_json::from_str(&json).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&document), "{:?}", validator.iter_errors(&document).collect::<Vec<_>>());
}

#[test]
fn comparisons_keep_to_their_width_and_colour_changes_no_word() {
    let root = tempfile::tempdir().unwrap();
    let model = runs(root.path(), "model", &[9.0], |_| {});
    let set =
        runs(root.path(), "set", &[9.0], |facts| facts.lotsfree = "a version of a long name".to_owned());
    let compared = compare(&[model, set, kernel(root.path(), &[8.0, 10.0])]);
    for width in [40, 60, 80, 120, 200] {
        for sort in [Sort::Worst, Sort::Group] {
            let page = compare_text(&compared, sort, plain(width, true));
            for line in page.lines() {
                assert!(line.width() <= width, "{} columns of {width}: {line}", line.width());
                assert_eq!(line, line.trim_end());
            }
            let mut rest = compare_text(&compared, sort, TextOptions { width, color: true, verbose: true });
            assert!(rest.contains('\u{1b}'));
            while let Some(begin) = rest.find("\u{1b}[") {
                let end = begin + rest[begin..].find('m').unwrap();
                rest.replace_range(begin..=end, "");
            }
            assert_eq!(joined(&rest), joined(&page));
        }
    }
}

#[test]
fn names_stay_names_and_nothing_is_something_to_say() {
    let nasty = "<b>|`x` \u{1b}[2J\u{202e}\n# y";
    let hostile = |machine| {
        let run = brief(nasty, machine, 7, [u64::MAX / 2, u64::MAX / 3]);
        let facts = Facts { title: nasty.to_owned(), kernel: nasty.to_owned(), ..run.facts().clone() };
        let mut memory = Memory::default();
        run.samples().iter().for_each(|sample| memory.sample(&sample).unwrap());
        memory.finish(facts, nasty, State::Interrupted)
    };
    let compared = compare(&[vec![hostile(RunOn::Model)], vec![hostile(RunOn::Host)]]);
    assert_eq!(compared.tables.len(), 1);
    let [text, markdown, json] = forms(&compared);
    let hidden = |text: &str| text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}');
    assert!(!hidden(&text) && !hidden(&markdown) && !markdown.contains("<b>") && !markdown.contains("\n# y"));
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    assert!(joined(&text).contains("interrupted"), "{text}");

    let nothing = compare(&[]);
    assert!(compare_text(&nothing, Sort::Worst, plain(80, false)).contains("nothing to compare"));
    let empty = || Memory::default().finish(Facts::default(), "", State::Complete);
    let [text, ..] = forms(&compare(&[vec![empty()], vec![empty()]]));
    assert!(text.contains("No measure is large enough") && text.contains("no sample"), "{text}");
}
