//! What is kept of an experiment, and the page that is made of it.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "each test file uses a part")]
mod synthetic;

use std::path::Path;

use lotsfree_analysis::compare::Measured;
use lotsfree_analysis::validation::{Drawn, Trial, Validation};
use lotsfree_report::runs::{validation_markdown, validation_tables};
use lotsfree_run::{Facts, Run, RunOn, State};
use lotsfree_scenario::{Conditions, Experiments, Occupied, Record};
use synthetic::{Fate, facts, scenario, write};

const RELEASE: &str = "3.10.0-1160.el7.x86_64";

const EXPERIMENTS: &str = r#"
[[experiment]]
name        = "copy"
scenario    = "memory-hogs"
generations = ["linux-3.10"]
set         = { duration = "60 s" }
about       = "A copy beside a server."

[[experiment.cause]]
measures    = ["swapped_out", "vmstat.pswpout"]
variants    = ["base"]
why         = "The model's copy is larger."

[[experiment]]
name        = "other"
scenario    = "memory-hogs"
generations = ["linux-3.10"]
about       = "Not made yet."
"#;

fn runs(root: &Path, name: &str, gib: f64, change: impl Fn(&mut Facts)) -> Vec<Run> {
    let cases = scenario(&["base", "direct"], &[]);
    let one = |(case, fate): (&lotsfree_scenario::Case, Fate)| {
        let directory = root.join(name).join(&case.variant);
        let mut facts = facts(&case.variant, fate);
        change(&mut facts);
        write(&directory, facts, &case.to_toml(), fate, gib, 240).finish(State::Complete).unwrap()
    };
    cases.iter().zip([Fate::Swaps, Fate::Direct]).map(one).collect()
}

/// A model whose copy is larger than the kernel's.
fn validation(emulated: bool) -> Validation {
    let root = tempfile::tempdir().unwrap();
    let kernel = runs(root.path(), "kernel", 4.0, |facts| {
        facts.machine = RunOn::Vm;
        facts.kernel = RELEASE.to_owned();
        facts.osrelease = RELEASE.to_owned();
    });
    let model = runs(root.path(), "model", 9.0, |_| {});
    let mut costs = Record { name: "a record".to_owned(), ..Record::default() };
    costs.provenance.accelerator = emulated.then(|| "tcg".to_owned());
    let mut validation = Validation::of("copy".to_owned(), "linux-3.10".to_owned(), costs, Vec::new());
    for (number, (run, case)) in kernel.iter().zip(scenario(&["base", "direct"], &[])).enumerate() {
        validation.add(number, run, &case, conditions()).unwrap();
    }
    for (trial, run) in validation.trials.iter_mut().zip(&model) {
        trial.model = Measured::of(std::slice::from_ref(run));
    }
    let Validation { experiment, generation, release, costs, trials, .. } = validation;
    let pictures = vec![Drawn { file: "copy-free.svg".to_owned(), message: "Much is free".to_owned() }];
    Validation { release, pictures, ..Validation::of(experiment, generation, costs, trials) }
}

fn conditions() -> Conditions {
    Conditions { kernel: Some(Occupied::PerNode(vec!["60 MiB".parse().unwrap()])), ..Conditions::default() }
}

#[test]
fn what_is_kept_reads_back() {
    let validation = Validation { pictures: Vec::new(), ..validation(false) };
    let text = validation.to_json().unwrap();
    assert!(Validation::parse(&text).unwrap() == validation);
    assert!(!text.contains(std::env::temp_dir().to_str().unwrap()), "no path of the machine that made it");
    assert!(validation.compared.tables.iter().flat_map(|table| &table.rows).count() > 10);
    let other = text.replace("validation/3", "validation/4");
    assert!(Validation::parse(&other).unwrap_err().to_string().contains("validation/4"));
    let unknown = text.replacen("\"measures\":[\n{", "\"measures\":[],\"other\":[{", 2);
    assert!(Validation::parse(&unknown).is_err(), "rows of no measure");
    assert!(Validation::parse("{}").is_err());
}

#[test]
fn a_title_cannot_break_a_record() {
    let mut validation = Validation { pictures: Vec::new(), ..validation(false) };
    validation.trials[0].case += "# ]],[ \"rows\":[ {\"key\":";
    assert!(Validation::parse(&validation.to_json().unwrap()).unwrap() == validation);
}

#[test]
fn repeats_are_added_to_what_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let kernel = |release: &str, gib: f64| {
        let runs = runs(root.path(), release, gib, |facts| facts.osrelease = release.to_owned());
        runs.into_iter().next().unwrap()
    };
    let cases = scenario(&["base", "direct"], &[]);
    let mut kept = validation(false);
    kept.add(0, &kernel(RELEASE, 8.0), &cases[0], conditions()).unwrap();
    let figures = |kept: &Validation| {
        let of = &kept.trials[0].kernel;
        let found = of.measures.iter().find(|one| one.measure.key == "swap_out_bytes");
        (of.column.repeats, found.unwrap_or_else(|| panic!("{of:?}")).values.clone())
    };
    let (repeats, values) = figures(&kept);
    assert!(repeats == 2 && values.len() == 2 && values[0] != values[1], "{values:?}");
    let again = Validation::parse(&kept.to_json().unwrap()).unwrap();
    assert_eq!(figures(&again), (repeats, values));
    let other = kept.add(1, &kernel("6.1.0", 4.0), &cases[1], conditions()).unwrap_err().to_string();
    assert!(other.contains("6.1.0") && other.contains("--fresh"), "{other}");
    assert!(kept.add(3, &kernel(RELEASE, 3.0), &cases[1], conditions()).is_err(), "a trial is missing");
}

#[test]
fn the_page_has_the_bad_ones_first_and_says_why() {
    let experiments = Experiments::parse(EXPERIMENTS, "e.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let all = [validation(false)];
    let page = validation_markdown(&experiments, &all);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text:?} in\n{page}"));
    let (short, worst, chapter) =
        (place("## Experiments that are known"), place("## The worst"), place("**copy**"));
    assert!(short < worst && worst < chapter);
    let cause = place("1. The model's copy is larger.");
    assert!(worst < cause && cause < chapter);
    let tables = validation_tables(&experiments, &all, "pictures/validation");
    assert!(tables.contains("![Much is free](pictures/validation/copy-free.svg)"));
    assert!(tables.contains("| swapped out |") && !page.contains("<details>"));
    for text in [&page, &tables] {
        assert!(text.contains("`--set duration='60 s'`") && text.contains("60 MiB"));
        assert!(!text.contains("Not made yet."), "what was not made has no chapter");
    }
    let empty = validation_markdown(&experiments, &[]);
    assert!(empty.contains("Nothing has been measured yet."));
}

#[test]
fn times_of_an_emulated_kernel_do_not_count() {
    let experiments = Experiments::parse(EXPERIMENTS, "e.toml").unwrap_or_else(|errors| panic!("{errors}"));
    let worst = |emulated: bool| {
        let page = validation_markdown(&experiments, &[validation(emulated)]);
        let rest = page.split_once("## The worst\n").unwrap().1;
        rest.split_once("\n## ").unwrap().0.to_owned()
    };
    assert!(worst(false).contains("latency p99"));
    assert!(!worst(true).contains("latency p99"));
    assert!(worst(true).contains("swapped out"));
}

#[test]
fn what_is_left_out_is_so_in_its_variants_only() {
    let worst = |left_out: &str| {
        let text = format!("{left_out}{EXPERIMENTS}");
        let experiments = Experiments::parse(&text, "e.toml").unwrap_or_else(|errors| panic!("{errors}"));
        let page = validation_markdown(&experiments, &[validation(false)]);
        let rest = page.split_once("## The worst\n").unwrap().1;
        rest.split_once("\n## ").unwrap().0.contains("| pswpout |")
    };
    let of = |variant: &str| {
        format!("[[left-out]]\nmeasures = [\"vmstat.pswpout\"]\nvariants = [\"{variant}\"]\nwhy = \"w\"\n")
    };
    assert!(worst("") && worst(&of("direct")));
    assert!(!worst(&of("base")));
}

#[test]
fn what_is_held_out_is_told_apart_and_only_once_the_model_has_run() {
    let held_out = EXPERIMENTS.replacen("set ", "seed = 3\nset ", 1);
    let page = |text: &str, of: &Validation| {
        let experiments = Experiments::parse(text, "e.toml").unwrap_or_else(|errors| panic!("{errors}"));
        validation_markdown(&experiments, std::slice::from_ref(of))
    };
    let both = validation(true);
    let told = page(&held_out, &both);
    assert!(told.contains("Kernels have executed 1 of 1 experiments, and the model 1."), "{told}");
    assert!(
        told.contains("| 3.10 | in all | 2 |") && !told.contains("## Experiments that are known"),
        "{told}"
    );
    let trials = both.trials.iter().cloned().map(|trial| Trial { model: None, ..trial }).collect();
    let Validation { experiment, generation, costs, .. } = both.clone();
    let untold = page(&held_out, &Validation::of(experiment, generation, costs, trials));
    assert!(untold.contains("Kernels have executed 1 of 1 experiments, and the model 0. Nobody"), "{untold}");
    assert!(!untold.contains("in all"), "{untold}");
    let taught = held_out.replacen("set ", "taught = \"a rule\"\nset ", 1);
    let known = page(&taught, &both);
    assert!(known.contains("## Experiments that are known") && known.contains("a rule"), "{known}");
    assert!(!known.contains("What a prediction is worth"), "{known}");
    let looks = format!("[[look]]\ndate = \"2026-11-30\"\nwhy = \"at last\"\n{held_out}");
    assert!(page(&looks, &both).contains("What came of them was looked at once: 2026-11-30 (at last)"));
}
