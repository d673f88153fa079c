//! Runs side by side: every form holds every run, pictures are well-formed, names stay names, and what is
//! missing is said. The pages are left in `target/tmp` to be looked at.

#![allow(clippy::unwrap_used)]

mod synthetic;

use std::collections::BTreeSet;
use std::path::Path;

use lotsfree_report::TextOptions;
use lotsfree_report::runs::{Mechanism, explain, runs_html, runs_json, runs_text};
use lotsfree_run::{Event, EventKind, Facts, Memory, Run, Sample, Sink, State};
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

fn keep(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.html"));
    std::fs::write(path, page).unwrap();
}

#[test]
fn pages_are_written() {
    let root = tempfile::tempdir().unwrap();
    for (name, runs) in [
        ("one", variants(&root.path().join("one"), 1)),
        ("three", variants(&root.path().join("three"), 3)),
        ("five", variants(&root.path().join("five"), 5)),
        ("sweep", sweep(&root.path().join("sweep"))),
    ] {
        let page = runs_html(&runs);
        keep(name, &page);
        println!("{name}: {} bytes", page.len());
        println!("{}", runs_text(&runs, TextOptions { width: 100, color: false, verbose: true }));
    }
}
