//! Runs side by side: every form holds every run, pictures are well-formed, names stay names, and what is
//! missing is said. The pages are left in `target/tmp` to be looked at, and
//! runs for `cargo xtask pictures target/tmp/five`.

#![allow(clippy::unwrap_used)]

mod synthetic;

use std::collections::BTreeSet;
use std::path::Path;

use lotsfree_analysis::explain::{Mechanism, explain};
use lotsfree_report::TextOptions;
use lotsfree_report::runs::{
    runs_html, runs_json, runs_pictures, runs_text, strategies_json, strategies_schema, strategies_text,
};
use lotsfree_run::{Event, EventKind, Facts, Memory, Run, Sample, Sink, State, Toll};
use lotsfree_scenario::{Strategies, Strategy};
use synthetic::{Fate, facts, run, scenario, write};
use unicode_width::UnicodeWidthStr;

const FATES: [(&str, Fate); 5] = [
    ("base", Fate::Swaps),
    ("swappiness 0", Fate::Caches),
    ("direct", Fate::Direct),
    ("zone reclaim", Fate::ZoneReclaim),
    ("dirty limit", Fate::Throttled),
];

fn variants(root: &Path, n: usize) -> Vec<Run> {
    let names: Vec<&str> = FATES.iter().map(|(name, _)| *name).take(n).collect();
    let cases = scenario(&names, &[]);
    cases.iter().zip(FATES).map(|(case, (_, fate))| run(root, case, fate, 8.0)).collect()
}

fn sweep(root: &Path) -> Vec<Run> {
    let sizes = ["0 GiB", "2 GiB", "4 GiB", "8 GiB", "16 GiB"];
    let cases = scenario(&["base", "swappiness 0", "direct"], &sizes);
    let one = |case: &lotsfree_scenario::Case| {
        let fate = FATES.iter().find(|(name, _)| *name == case.variant).unwrap().1;
        run(root, case, fate, case.sweep.as_ref().unwrap().number)
    };
    cases.iter().map(one).collect()
}

fn pictures(page: &str) -> Vec<&str> {
    let end = |at: usize| page[at..].find("</svg>").unwrap() + "</svg>".len();
    page.match_indices("<svg ").map(|(at, _)| &page[at..at + end(at)]).collect()
}

fn plain(width: usize) -> TextOptions {
    TextOptions { width, color: false, verbose: true }
}

/// Pictures are well-formed, name what they show, and hold no number that is none; no two texts overlap and
/// none sticks out when a letter is at most 7.2 px wide. Returns how many there are.
fn check_pictures(page: &str) -> usize {
    let mut ids = BTreeSet::new();
    for picture in pictures(page) {
        for nonsense in ["NaN", "\"inf", " inf", "-inf", "Linf"] {
            assert!(!picture.contains(nonsense), "{nonsense} in {picture}");
        }
        let document = roxmltree::Document::parse(picture).unwrap();
        let root = document.root_element();
        assert_eq!(root.attribute("role"), Some("img"));
        for id in document.descendants().filter_map(|node| node.attribute("id")) {
            assert!(ids.insert(id.to_owned()), "{id} twice");
        }
        let title = root.children().find(|child| child.has_tag_name("title")).unwrap();
        assert!(title.text().is_some_and(|text| text.len() > 10));
        let number =
            |node: roxmltree::Node<'_, '_>, name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
        let width = number(root, "width");
        let mut boxes: Vec<(f64, f64, f64, String)> = Vec::new();
        for node in document.descendants().filter(|node| node.has_tag_name("text")) {
            let text = node.text().unwrap_or_default().to_owned();
            let (x, wide) = (number(node, "x"), text.width() as f64 * 7.2);
            let start = match node.attribute("text-anchor") {
                Some("middle") => x - wide / 2.0,
                Some("end") => x - wide,
                _ => x,
            };
            assert!(start >= -1.0 && start + wide <= width + 1.0, "{text} sticks out");
            boxes.push((number(node, "y"), start, start + wide, text));
        }
        for (i, a) in boxes.iter().enumerate() {
            for b in &boxes[i + 1..] {
                let apart = (a.0 - b.0).abs() >= 12.0 || a.2 <= b.1 + 0.5 || b.2 <= a.1 + 0.5;
                assert!(apart, "{a:?} and {b:?} overlap");
            }
        }
    }
    ids.len() / 2
}

/// What holds of every page.
fn check_page(name: &str, runs: &[Run]) -> String {
    let page = runs_html(runs);
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html")), &page).unwrap();
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    let tags: String = page.split('<').skip(1).filter_map(|tag| Some(tag.split_once('>')?.0)).collect();
    assert!(!page.contains("<script") && !page.contains("<link") && !page.contains("<img"));
    let css = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    for reference in ["http:", "https:", "src=", "href=", "url(", "@import", "onload", "xmlns"] {
        assert!(!tags.contains(reference) && !css.contains(reference), "{reference}");
    }
    for custom in css.split("var(").skip(1).map(|rest| rest.split([')', ',']).next().unwrap()) {
        assert!(css.contains(&format!("{custom}:")), "{custom} has no value");
    }
    check_pictures(&page);
    page
}

fn json(runs: &[Run]) -> serde_json::Value {
    serde_json::from_str(&runs_json(runs).unwrap()).unwrap()
}

#[test]
fn every_form_holds_every_run_and_its_mechanism() {
    let runs = variants(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("five"), 5);
    let page = check_page("five", &runs);
    let (text, json) = (runs_text(&runs, plain(120)), json(&runs));
    let expected = [
        Mechanism::Swap,
        Mechanism::CacheOnly,
        Mechanism::NothingReclaimed,
        Mechanism::ZoneReclaim,
        Mechanism::DirtyLimit,
    ];
    for (index, (run, mechanism)) in runs.iter().zip(expected).enumerate() {
        let sentence = explain(run, &runs[0]);
        assert_eq!(sentence.mechanism, mechanism, "{}", sentence.text);
        let label = FATES[index].0;
        let unbroken: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unbroken.contains(&sentence.text), "{label} in\n{text}");
        assert!(page.replace('\u{a0}', " ").contains(&sentence.text), "{label}");
        assert_eq!(json["runs"][index]["label"], label);
        assert_eq!(json["runs"][index]["explanation"], sentence.text.as_str());
        assert_eq!(json["runs"][index]["mechanism"], serde_json::to_value(mechanism).unwrap());
    }
    for row in json["measures"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        assert!(page.contains(name) && text.contains(name), "{name}");
        assert_eq!(row["values"].as_array().unwrap().len(), 5);
        if row["better"].is_null() {
            assert!(row["best"].as_array().unwrap().iter().all(|best| best == false), "{name}");
        }
    }
    // A picture in two widths for each of: throughput, latency, p99, time, free pages, lists, traffic.
    assert_eq!(pictures(&page).len(), 14);
    assert!(page.contains("copy starts") && page.contains("copy: written"), "events are marked");
    let row = |key: &str| page.split(key).nth(1).and_then(|rest| rest.split("</tr>").next()).unwrap_or("");
    assert!(row("actor.copy.how").contains("direct"), "what a variant changes is listed");
    let alone = runs_pictures(&runs);
    assert_eq!(
        alone.iter().map(|picture| picture.name).collect::<Vec<_>>(),
        ["throughput", "latency", "p99", "spent", "free", "lists", "traffic"]
    );
    for picture in alone {
        assert_eq!(check_pictures(&picture.html), 1);
        let svg = pictures(&picture.html)[0];
        assert!(page.contains(svg) && picture.width >= 920, "{}", picture.name);
        let document = roxmltree::Document::parse(svg).unwrap();
        let height: u32 = document.root_element().attribute("height").unwrap().parse().unwrap();
        assert!(picture.height > height + 60, "{}", picture.name);
    }
}

#[test]
fn figures_are_those_of_the_summary() {
    let root = tempfile::tempdir().unwrap();
    let runs = variants(root.path(), 2);
    let json = json(&runs);
    for (index, run) in runs.iter().enumerate() {
        let summary = run.summary();
        let server = summary.measured.actors.iter().find(|actor| actor.actor == "server").unwrap();
        let value = |key: &str| {
            let rows = json["measures"].as_array().unwrap();
            rows.iter().find(|row| row["key"] == key).unwrap()["values"][index].as_f64().unwrap()
        };
        assert_eq!(value("throughput_relative"), server.relative.unwrap());
        assert_eq!(value("throughput_per_second"), server.per_second.unwrap());
        assert_eq!(value("latency_p99_ns"), server.latency.unwrap().p99 as f64);
        assert_eq!(value("kswapd_scan_pages"), summary.measured.moved.kswapd_scan.unwrap() as f64);
        assert_eq!(value("swap_in_bytes"), summary.measured.moved.swap_in.unwrap() as f64 * 4096.0);
    }
}

#[test]
fn where_requests_have_a_rate_the_headline_is_their_latency() {
    let root = tempfile::tempdir().unwrap();
    let case = scenario(&["base"], &[]).remove(0);
    let first = |name: &str, text: &str| {
        let directory = root.path().join(name);
        let writer = write(&directory, facts("base", Fate::Caches), text, Fate::Caches, 8.0, 240);
        let run = [writer.finish(State::Complete).unwrap()];
        let text = runs_text(&run, plain(100));
        text.lines().find(|line| line.starts_with("base (")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let free = case.to_toml();
    let paced = free.replacen("heap = ", "rate = 1100.0\nheap = ", 1);
    assert_ne!(free, paced);
    assert!(first("free", &free).starts_with("base (100 %): "), "{}", first("free", &free));
    assert!(
        first("paced", &paced).starts_with("base (latency as undisturbed): "),
        "{}",
        first("paced", &paced)
    );
}

#[test]
fn a_sweep_shows_every_value_once_and_details_at_the_largest() {
    let root = tempfile::tempdir().unwrap();
    let runs = sweep(root.path());
    let page = check_page("sweep", &runs);
    let drawn = pictures(&page);
    let wide = drawn.iter().find(|picture| picture.contains("id=\"sweep-920")).unwrap();
    assert_eq!(wide.matches("<circle ").count(), 15, "a dot for each run");
    assert!(wide.contains("free memory"));
    assert!(page.contains("base: below 90\u{a0}% of its throughput from 8\u{a0}GiB on"));
    let text = runs_text(&runs, plain(100));
    assert!(text.contains("\nThe runs at 16 GiB, of the sweep over "), "{text}");
    let shown: Vec<bool> =
        json(&runs)["runs"].as_array().unwrap().iter().map(|run| run["shown"] == true).collect();
    assert_eq!(shown.iter().filter(|shown| **shown).count(), 3);
    assert_eq!(runs_html(&runs), page, "the same runs give the same page");
}

#[test]
fn a_table_of_strategies_is_as_its_schema_says_and_leaves_out_what_did_not_run() {
    let root = tempfile::tempdir().unwrap();
    let runs = variants(root.path(), 2);
    let labels: Vec<String> = runs.iter().map(|run| run.facts().variant.clone().unwrap()).collect();
    let row = |variant: &str| Strategy {
        name: format!("as {variant}"),
        variant: variant.to_owned(),
        without: labels[0].clone(),
        needs: "nothing".to_owned(),
        kernels: "all".to_owned(),
        at: None,
    };
    let table = Strategies {
        title: "What helps".to_owned(),
        from: None,
        at: None,
        row: vec![row(&labels[1]), row("never run")],
    };
    let schema: serde_json::Value = serde_json::from_str(&strategies_schema()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&strategies_json(&table, &runs).unwrap()).unwrap();
    assert!(jsonschema::is_valid(&schema, &json), "{json}");
    assert_eq!(json["strategies"].as_array().unwrap().len(), 1);
    for width in [40, 100] {
        let text = strategies_text(&table, &runs, plain(width));
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        assert!(text.contains("What helps") && !text.contains("never run"), "{text}");
    }
}

#[test]
fn one_run_is_a_page_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let page = check_page("one", &variants(root.path(), 1));
    assert!(page.contains("What happened") && !page.contains("positive is always better"));
    assert!(page.contains("kswapd swapped out"));
    check_page("three", &variants(&root.path().join("three"), 3));
}

/// Ten requests of a server in the second that ends at the given one, of `ns` nanoseconds each.
fn ten_requests(at: u64, ns: u64, spent: lotsfree_run::Spent) -> lotsfree_run::Interval {
    let mut latency = lotsfree_run::Histogram::default();
    latency.record_many(ns, 10);
    lotsfree_run::Interval {
        from: at.saturating_sub(1) * 1_000_000_000,
        at: at * 1_000_000_000,
        actor: "server".into(),
        role: "server".into(),
        operations: 10,
        errors: 0,
        latency,
        spent,
        major_faults: 0,
        minor_faults: 0,
        toll: Toll::default(),
    }
}

/// A run in memory of three intervals of a second with ten requests each, which spent so much together and
/// took so many nanoseconds each. The first interval is not measured.
fn brief(label: &str, spent: lotsfree_run::Spent, latencies: [u64; 3]) -> Run {
    let mut memory = Memory::default();
    let second = 1_000_000_000;
    for (at, ns) in (1..).zip(latencies) {
        memory.event(&Event::new(at * second, EventKind::Mark, "written", Some("copy".into()))).unwrap();
        memory.intervals(&[ten_requests(at, ns, spent)]).unwrap();
    }
    let measure = lotsfree_run::Measured {
        window: Some(lotsfree_run::Window { from: second, to: 3 * second }),
        ..Default::default()
    };
    let facts = Facts { variant: Some(label.to_owned()), measure, ..Facts::default() };
    memory.finish(facts, String::new(), State::Complete)
}

#[test]
fn titles_tell_what_differs_in_the_measured_part() {
    let spent = |io| lotsfree_run::Spent { user: 1000, runnable: 8000, io, ..Default::default() };
    let runs = [
        brief("off", spent(0), [9_000_000_000, 1000, 1000]),
        brief("on, direct", spent(1000), [9_000_000_000, 5_000_000, 2_000_000]),
    ];
    let page = check_page("brief", &runs).replace('\u{a0}', " ");
    // Both wait as long for a CPU with every request.
    for title in [
        "With on, direct, waiting for devices takes 10 % of the requests' time",
        "The slowest 1 % of requests takes up to 5.00 ms with on, direct; 1.00 µs with off",
        "copy: written (first)",
    ] {
        assert!(page.contains(title), "{title}");
    }
}

#[test]
fn runs_that_came_out_alike_say_so_once_and_what_to_vary() {
    let spent = lotsfree_run::Spent { user: 1000, runnable: 8000, ..Default::default() };
    let run = |label, ns| brief(label, spent, [9_000_000_000, ns, ns]);
    let alike = [run("60", 1000), run("30", 1000), run("0", 1030)];
    let said = "All 3 runs came out alike: equal throughput, scans, faults and swapping within 10 %. To see a difference, try a longer run (`duration` and `measure.window`), less memory \
                (`machine.nodes`) or another setting.";
    let text = runs_text(&alike, plain(200)).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.ends_with(said), "{text}");
    assert!(!text.contains("not distinguishable"), "{text}");
    let page = check_page("alike", &alike).replace('\u{a0}', " ");
    assert!(page.contains(said) && !page.contains("not distinguishable"));
    assert_eq!(json(&alike)["all_alike"], said);

    let one_differs = [run("60", 1000), run("30", 1000), run("0", 9_000_000)];
    let text = runs_text(&one_differs, plain(200));
    assert!(text.contains("30: not distinguishable from 60") && !text.contains("came out alike"), "{text}");
    assert!(json(&one_differs).get("all_alike").is_none());
    assert!(!runs_text(&alike[..1], plain(200)).contains("came out alike"), "there is one run only");
}

/// A run in which kswapd frees `pages` pages in the first second, before the measured part.
fn reclaimed_before(label: &str, pages: u64) -> Run {
    use lotsfree_kernel_files::counters::vmstat as v;
    let second = 1_000_000_000;
    let mut memory = Memory::default();
    for at in 0..=3 {
        let mut sample = Sample { at: at * second, ..Default::default() };
        for counter in [v::pgscan_direct, v::pgscan_kswapd, v::pgsteal_direct] {
            sample.vmstat.set(counter, 0);
        }
        sample.vmstat.set(v::pgsteal_kswapd, if at > 0 { pages } else { 0 });
        memory.sample(&sample).unwrap();
    }
    let window = Some(lotsfree_run::Window { from: second, to: 3 * second });
    let measure = lotsfree_run::Measured { window, ..Default::default() };
    let facts = Facts { variant: Some(label.to_owned()), measure, ..Facts::default() };
    memory.finish(facts, String::new(), State::Complete)
}

#[test]
fn runs_that_differ_outside_of_the_measured_part_are_alike_in_it_only() {
    let said = |pages| json(&[reclaimed_before("a", pages), reclaimed_before("b", 0)])["all_alike"].clone();
    assert!(said(50_000).as_str().unwrap().starts_with("Both runs came out alike in the measured part: "));
    assert!(said(0).as_str().unwrap().starts_with("Both runs came out alike: "));
}

/// A run that was killed after five seconds, and of which the part from `from` to 40 s counts.
fn killed_at_5_s(from: u64) -> Run {
    use lotsfree_kernel_files::counters::vmstat as v;
    let second = 1_000_000_000;
    let mut memory = Memory::default();
    for at in 0..=5 {
        let mut sample = Sample { at: at * second, ..Sample::default() };
        for counter in [v::pgscan_direct, v::pgscan_kswapd, v::pgsteal_direct, v::pgsteal_kswapd] {
            sample.vmstat.set(counter, 7);
        }
        memory.sample(&sample).unwrap();
    }
    let what = "QEMU was killed".to_owned();
    memory.event(&Event::new(5 * second, EventKind::Error, what, None)).unwrap();
    let window = lotsfree_run::Window { from: from * second, to: 40 * second };
    let measure = lotsfree_run::Measured { window: Some(window), ..Default::default() };
    let facts = Facts { variant: Some("base".to_owned()), measure, ..Facts::default() };
    memory.finish(facts, String::new(), State::Interrupted)
}

#[test]
fn a_run_that_ended_before_its_measured_part_is_not_judged_and_says_what_ended_it() {
    for from in [5, 10] {
        let text = runs_text(&[killed_at_5_s(from)], plain(200));
        assert!(text.contains("base: the run broke off after 5 s: QEMU was killed"), "{text}");
        let why = format!("base: it ended before {from} s, from which on it is measured.");
        assert!(text.contains(&why), "{text}");
        for wrong in ["Measured from", "nothing was reclaimed", "pages scanned"] {
            assert!(!text.contains(wrong), "{wrong}: {text}");
        }
        assert_eq!(explain(&killed_at_5_s(from), &killed_at_5_s(from)).mechanism, Mechanism::Unmeasured);
    }
    let text = runs_text(&[killed_at_5_s(2)], plain(200));
    assert!(text.contains("Measured from 2 s to 5 s instead of 40 s"), "{text}");
    assert!(text.contains("nothing was reclaimed"), "{text}");
    let both = [killed_at_5_s(10), killed_at_5_s(10)];
    let text = runs_text(&both, plain(200));
    assert_eq!(text.matches("it ended before 10 s").count(), 2, "{text}");
    assert!(!text.contains("alike"), "{text}");
    assert!(json(&both).get("all_alike").is_none());
}

#[test]
fn runs_are_not_called_alike_where_one_of_them_did_not_reach_its_measured_part() {
    let root = tempfile::tempdir().unwrap();
    let mut runs: Vec<Run> = Vec::new();
    for case in scenario(&["base", "swappiness 0"], &["2 GiB", "4 GiB", "8 GiB"]) {
        let gib = case.sweep.as_ref().unwrap().number;
        if gib < 5.0 {
            runs.push(run(root.path(), &case, Fate::Direct, gib));
        }
    }
    assert!(runs_text(&runs, plain(200)).contains("Both runs came out alike"));
    // Nothing is there at 8 GiB to compare it with.
    let case = &scenario(&["base"], &["8 GiB"])[0];
    let directory = root.path().join("ended");
    let facts = facts("base", Fate::Direct);
    let ended = write(&directory, facts, &case.to_toml(), Fate::Direct, 8.0, 60).finish(State::Interrupted);
    runs.push(ended.unwrap());
    let text = runs_text(&runs, plain(200));
    assert!(text.contains("broke off") || text.contains("interrupted"), "{text}");
    assert!(!text.contains("came out alike"), "{text}");
}

#[test]
fn repeats_on_a_kernel_have_one_seed_and_are_one_column_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    let cases = scenario(&["base", "direct"], &[]);
    let mut runs = Vec::new();
    for (number, gib) in [("1", 4.0), ("2", 8.0), ("3", 12.0)] {
        for (case, (_, fate)) in cases.iter().zip([FATES[0], FATES[2]]) {
            let directory = root.path().join(&case.variant).join(number);
            let machine = lotsfree_run::RunOn::Vm;
            let facts = Facts { machine, ..facts(&case.variant, fate) };
            let writer = write(&directory, facts, &case.to_toml(), fate, gib, 240);
            runs.push(writer.finish(State::Complete).unwrap());
        }
    }
    let text = runs_text(&runs, plain(120));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let heads = text.lines().find(|line| line.starts_with("   ")).unwrap();
    assert!(heads.split_whitespace().eq(["base", "direct"]), "{text}");
    let note = "Each figure is the median of 3 runs; in brackets the smallest and the largest of them.";
    assert!(words.contains("6 runs") && words.contains(note), "{text}");
    let throughput = text.lines().find(|line| line.starts_with("requests per second")).unwrap();
    assert!(throughput.contains(" to ") && throughput.contains('['), "{text}");
}

/// A run in a control group of version 1 that met its limit 30,028 times on a host that reclaims for others;
/// in its undisturbed second a fifth of the time went to waiting for a CPU.
fn in_a_group() -> Run {
    use lotsfree_kernel_files::counters::{memory_stat as g, vmstat as v};
    let spent = lotsfree_run::Spent { user: 4000, runnable: 1000, ..Default::default() };
    let second = 1_000_000_000;
    let mut memory = Memory::default();
    for at in 0..=3 {
        let mut sample = Sample { at: at * second, ..Sample::default() };
        sample.failcnt = Some([0, 0, 7, 30_028][at as usize]);
        sample.vmstat.set(v::pgscan_kswapd, at * 1_000_000);
        sample.vmstat.set(v::nr_inactive_file, 2_346_189);
        sample.vmstat.set(v::pgpgin, at * 1_000_000);
        sample.group.set(g::inactive_file, 64 << 20);
        sample.group.set(g::pgmajfault, at * 3);
        sample.group.set(g::pgpgin, at * 9);
        memory.sample(&sample).unwrap();
        memory.intervals(&[ten_requests(at, 1000, spent)]).unwrap();
    }
    let window = |from: u64, to: u64| Some(lotsfree_run::Window { from: from * second, to: to * second });
    let measure = lotsfree_run::Measured { baseline: window(0, 1), window: window(1, 3) };
    let machine = lotsfree_run::RunOn::Cgroup;
    let facts = Facts { variant: Some("base".to_owned()), machine, measure, ..Facts::default() };
    memory.finish(facts, String::new(), State::Complete)
}

#[test]
fn a_run_in_a_group_tells_the_groups_figures_and_none_of_the_hosts() {
    let text = runs_text(&[in_a_group()], plain(200));
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for row in ["times at the group's limit 30,028", "inactive file, mean 64 MiB", "major faults 6"] {
        assert!(text.contains(row), "{row}: {text}");
    }
    assert!(text.contains("base (100 %): the group met its limit 30,028 times; no wait"), "{text}");
    assert!(
        text.contains(
            "base: already in its undisturbed part, 20 % of the requests' time went to waiting for a CPU"
        ),
        "{text}"
    );
    let page = runs_html(&[in_a_group()]);
    for wrong in ["8.95 GiB", "pages scanned", "read from devices", "nothing was reclaimed", "swapped in"] {
        assert!(!text.contains(wrong) && !page.contains(wrong), "{wrong}: {text}");
    }
}

/// A run in a control group of version 2: `memory.events` has how often it met its limit, and `memory.stat`
/// what reclaim scanned, as Linux 6.12 counts them. `operations`: requests of each of its two seconds.
fn in_a_group_of_version_2(operations: u64) -> Run {
    use lotsfree_kernel_files::counters::{memory_events as e, memory_stat as g, vmstat as v};
    let second = 1_000_000_000;
    let mut memory = Memory::default();
    for at in 0..=2 {
        let mut sample = Sample { at: at * second, ..Sample::default() };
        sample.vmstat.set(v::pgscan_direct, at * 1_000_000);
        sample.vmstat.set(v::pswpin, at * 1_000_000);
        sample.group.set(g::pgscan_direct, at * 60_741);
        sample.group.set(g::pgscan_kswapd, 0);
        sample.group.set(g::pgsteal_direct, at * 40_388);
        sample.group.set(g::pgsteal_kswapd, 0);
        sample.events.set(e::max, at * 850);
        memory.sample(&sample).unwrap();
        let requests = ten_requests(at, 1000, lotsfree_run::Spent::default());
        let latency =
            if operations > 0 { requests.latency.clone() } else { lotsfree_run::Histogram::default() };
        memory.intervals(&[lotsfree_run::Interval { operations, latency, ..requests }]).unwrap();
    }
    let facts = Facts { machine: lotsfree_run::RunOn::Cgroup, ..Facts::default() };
    memory.finish(facts, String::new(), State::Complete)
}

#[test]
fn a_run_in_a_group_of_version_2_tells_what_reclaim_for_its_limit_scanned() {
    let text = runs_text(&[in_a_group_of_version_2(10)], plain(200));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for row in [
        "pages scanned by tasks 121,482",
        "freed of those scanned 66 %",
        "times at the group's limit 1,700",
        "the group met its limit 1,700 times",
    ] {
        assert!(words.contains(row), "{row}: {text}");
    }
    // 6.12 does not count what a group swaps.
    assert!(!text.contains("swapped in"), "{text}");
}

#[test]
fn a_run_whose_measured_part_saw_no_request_end_says_so() {
    let said = |operations| runs_text(&[in_a_group_of_version_2(operations)], plain(200));
    let text = said(0);
    assert!(text.contains("no request of server ended in the part that is measured"), "{text}");
    assert!(!said(1).contains("no request of"), "{text}");
}

const NASTY: &str =
    "<script>alert('x')</script> | a`b \" ]]> &lt; \u{1b}]0;f\u{7}\u{1b}[2J \u{202e}g\u{2028}h\r\ti\n# j";

/// A run in memory whose every name is hostile, and whose figures are at the ends of what can be counted.
fn hostile(label: &str) -> Run {
    let mut memory = Memory::default();
    let nasty = format!("{label}{NASTY}");
    for row in 0..9_u64 {
        let kind = if row == 3 { EventKind::OomKill } else { EventKind::Mark };
        memory.event(&Event::new(row * 7, kind, nasty.clone(), Some(nasty.clone()))).unwrap();
        let mut sample = Sample { at: row * 10, ..Sample::default() };
        for (name, value) in [
            ("nr_free_pages", u64::MAX >> row),
            ("pgscan_direct", u64::MAX >> (9 - row)),
            ("pswpin", 9 - row),
        ] {
            sample.vmstat.set(lotsfree_kernel_files::counters::Counter::named(name).unwrap(), value);
        }
        memory.sample(&sample).unwrap();
        let mut latency = lotsfree_run::Histogram::default();
        [0, 1, u64::MAX].iter().for_each(|ns| latency.record_many(*ns, row));
        let interval = lotsfree_run::Interval {
            from: (row * 10).saturating_sub(10),
            at: row * 10,
            actor: nasty.as_str().into(),
            role: nasty.as_str().into(),
            operations: u64::MAX >> row,
            errors: u64::MAX,
            latency,
            spent: lotsfree_run::Spent { io: u64::MAX, reclaim: u64::MAX, ..Default::default() },
            major_faults: u64::MAX,
            minor_faults: 0,
            toll: Toll::default(),
        };
        memory.intervals(&[interval]).unwrap();
    }
    let facts = Facts {
        title: nasty.clone(),
        variant: Some(nasty.clone()),
        kernel: nasty.clone(),
        sysctls: [(nasty.clone(), nasty.clone())].into(),
        ..Facts::default()
    };
    memory.finish(facts, nasty, State::Interrupted)
}

fn has_control(text: &str) -> bool {
    text.contains(|c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}')
    })
}

#[test]
fn no_name_becomes_markup_or_moves_the_cursor() {
    for runs in [vec![hostile("a")], vec![hostile("a"), hostile("b")], (0..7).map(|_| hostile("a")).collect()]
    {
        let page = check_page("hostile", &runs);
        assert!(!page.contains("<script") && !page.contains("]]><") && !has_control(&page));
        assert!(page.contains("&lt;script&gt;"));
        for width in [0, 40, 80, 200] {
            assert!(!has_control(&runs_text(&runs, plain(width))));
        }
        assert_eq!(json(&runs)["runs"].as_array().unwrap().len(), runs.len());
    }
    let same: Vec<Run> = (0..3).map(|_| hostile("a")).collect();
    let labels: BTreeSet<String> =
        json(&same)["runs"].as_array().unwrap().iter().map(|run| run["label"].to_string()).collect();
    assert_eq!(labels.len(), 3, "runs that are the same in all have names of their own");
}

#[test]
fn what_is_missing_is_said() {
    let nothing = check_page("nothing", &[]);
    assert!(nothing.contains("There is no run to show."));
    assert!(runs_text(&[], plain(80)).contains("There is no run to show."));
    assert_eq!(json(&[])["runs"], serde_json::json!([]));

    let empty = Memory::default().finish(facts("base", Fate::Swaps), "", State::Running);
    let runs = [empty];
    let page = check_page("empty", &runs);
    assert!(page.contains("it holds no sample and no interval") && page.contains("nothing was measured"));
    assert!(pictures(&page).is_empty());
    assert!(runs_text(&runs, plain(80)).contains("it holds no sample and no interval"));
    assert_eq!(json(&runs)["runs"][0]["mechanism"], "unmeasured");

    // Killed in the middle: the journal is all there is.
    let root = tempfile::tempdir().unwrap();
    let case = &scenario(&["base"], &[])[0];
    drop(write(&root.path().join("cut"), facts("base", Fate::Swaps), &case.to_toml(), Fate::Swaps, 8.0, 150));
    let whole = run(root.path(), case, Fate::Swaps, 8.0);
    let runs = [whole, Run::open(root.path().join("cut")).unwrap()];
    let page = check_page("incomplete", &runs);
    assert!(page.contains("the run is incomplete") && page.contains("<small>incomplete</small>"));
    assert!(runs_text(&runs, plain(100)).contains("the run is incomplete"));
    assert_eq!(json(&runs)["runs"][1]["state"], "running");
}

#[test]
fn counters_without_actors_and_actors_without_counters() {
    let whole = hostile("a");
    let mut samples = Memory::default();
    whole.samples().iter().for_each(|sample| samples.sample(&sample).unwrap());
    let mut actors = Memory::default();
    whole.intervals().iter().for_each(|interval| actors.intervals(&[interval]).unwrap());
    let runs = [
        samples.finish(Facts::default(), "", State::Complete),
        actors.finish(Facts::default(), "", State::Complete),
    ];
    let page = check_page("halves", &runs);
    assert!(pictures(&page).len() >= 6, "{}", pictures(&page).len());
}

#[test]
fn many_runs_of_many_samples_stay_below_the_limit() {
    let root = tempfile::tempdir().unwrap();
    let case = &scenario(&["base"], &[])[0];
    let long = |i: usize| {
        let directory = root.path().join(format!("run-{i}"));
        let writer = write(
            &directory,
            facts(&format!("variant {i}"), FATES[i % 5].1),
            &case.to_toml(),
            FATES[i % 5].1,
            8.0,
            500,
        );
        writer.finish(State::Complete).unwrap()
    };
    let runs: Vec<Run> = (0..26).map(long).collect();
    let page = check_page("many", &runs);
    assert!(
        page.contains("Shown are the first 12 of 26 runs.")
            && page.contains("Shown are the first 24 of 26 runs.")
    );
    assert!(page.contains("There are more samples than points"));
}

#[test]
fn text_keeps_to_its_width_and_colour_changes_no_word() {
    let root = tempfile::tempdir().unwrap();
    for runs in [variants(&root.path().join("five"), 5), sweep(&root.path().join("sweep"))] {
        for width in [40, 60, 80, 100, 160] {
            let page = runs_text(&runs, plain(width));
            for line in page.lines() {
                assert!(line.width() <= width, "{} columns of {width}: {line}", line.width());
                assert_eq!(line, line.trim_end());
            }
            let colored = runs_text(&runs, TextOptions { width, color: true, verbose: true });
            assert!(colored.contains('\u{1b}'));
            let mut plain = String::new();
            let mut rest = colored.as_str();
            while let Some((before, after)) = rest.split_once("\u{1b}[") {
                plain.push_str(before);
                rest = after.split_once('m').unwrap().1;
            }
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&(plain + rest)), words(&page));
        }
    }
}

/// A run of ten seconds on 4 GiB. Its page tables grow from nothing to `tables` MiB, and what is promised
/// grows too. `pool` is, of 512 huge pages, how many are free and how many of these are reserved.
fn with_pool(label: &str, tables: u64, pool: Option<(u64, u64)>, mode: &str) -> Run {
    let mut memory = Memory::default();
    for second in 0..=10 {
        let mut sample = Sample { at: second * 1_000_000_000, ..Sample::default() };
        let mut set = |name: &str, value: u64| {
            sample.meminfo.set(lotsfree_kernel_files::counters::Counter::named(name).unwrap(), value);
        };
        set("MemTotal", 4 << 20);
        set("PageTables", tables * 1024 * second / 10);
        set("Committed_AS", (1 << 20) + second * 100_000);
        set("CommitLimit", 3 << 20);
        if let Some((free, reserved)) = pool {
            set("Hugepagesize", 2048);
            set("HugePages_Total", 512);
            set("HugePages_Free", free);
            set("HugePages_Rsvd", reserved);
        }
        memory.sample(&sample).unwrap();
    }
    let sysctls = [("vm.overcommit_memory".to_owned(), mode.to_owned())].into();
    let facts = Facts { variant: Some(label.to_owned()), page_size: 4096, sysctls, ..Facts::default() };
    memory.finish(facts, "", State::Complete)
}

#[test]
fn page_tables_pools_and_promises_are_drawn_where_they_matter() {
    let message = |runs: &[Run]| {
        let picture = runs_pictures(runs).into_iter().find(|picture| picture.name == "spaces")?;
        assert_eq!(check_pictures(&picture.html), 1);
        Some(picture)
    };
    let said = |runs: &[Run]| message(runs).map(|picture| picture.message);
    let two = [with_pool("idle", 200, Some((512, 0)), "0"), with_pool("used", 8, Some((100, 60)), "0")];
    assert_eq!(
        said(&two).unwrap(),
        "Page tables take up to 200 MiB with idle, 8 MiB with used; 1 GiB of huge pages lie idle with idle"
    );
    let svg = message(&two).unwrap().svg;
    for name in ["page tables", "huge pages", "in use", "reserved", "idle"] {
        assert!(svg.contains(&format!(">{name}</text>")), "{name} in {svg}");
    }
    assert!(!svg.contains(">promised</text>"), "{svg}");
    let used = [with_pool("used", 8, Some((100, 60)), "0")];
    assert_eq!(said(&used).unwrap(), "Huge pages in use: up to 824 MiB");
    let strict = [with_pool("strict", 8, None, "2"), with_pool("heuristic", 8, None, "0")];
    assert_eq!(said(&strict).unwrap(), "The kernel promises up to 1.95 GiB");
    let picture = message(&strict).unwrap();
    assert!(picture.svg.contains(">limit</text>") && picture.svg.contains(">promised</text>"));
    // Promises that nothing bounds, and page tables of a heap, are no news.
    assert_eq!(said(&[with_pool("heuristic", 8, None, "0")]), None);
}
