//! `lotsfree sim` and the commands that use its runs, called as users do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lotsfree_run::{Run, RunOn, Sink, State, Writer};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// A machine of 128 MiB that is too small for its application and reader; four runs.
const TINY: &str = r#"
title    = "Tiny"
seed     = 7
duration = "3 s"
interval = "250 ms"
base     = "as-it-is"

[machine]
generation = "linux-6.1"
cpus  = 2
nodes = ["128 MiB"]
disk  = { bandwidth = "200 MiB/s" }
swap  = { size = "64 MiB", on = "disk" }

[[actor]]
name = "app"
kind = "app-server"
heap = "72 MiB"
think = "1 ms"
locality = { hot-cold = { memory = 0.2, touches = 0.99 } }

[[actor]]
name = "reader"
kind = "file-reader"
start = "1 s"
size = "64 MiB"
repeat = 0

[measure]
actor = "app"
window = ["1 s", "3 s"]
baseline = ["500 ms", "1 s"]

[[variant]]
name = "direct reads"
actor.reader.how = "direct"

[sweep]
key = "actor.reader.size"
values = ["16 MiB", "64 MiB"]
"#;

/// A directory with a scenario in it, in which the program runs.
struct Place(TempDir);

impl Place {
    fn new(scenario: &str) -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        fs::write(place.at("tiny.toml"), scenario).unwrap();
        place
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        command.args(arguments).current_dir(self.0.path()).env_remove("NO_COLOR");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Simulates; fails if that does not succeed.
    #[track_caller]
    fn sim(&self, arguments: &[&str]) -> String {
        let output = self.run(&[&["sim"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        out(&output)
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Every file below a directory with its contents, except the one with the duration of the run.
    fn files(&self, below: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut directories = vec![self.at(below)];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.file_name().unwrap() != "timing.json" {
                    let name = path.strip_prefix(self.0.path()).unwrap().to_path_buf();
                    files.insert(name, fs::read(path).unwrap());
                }
            }
        }
        files
    }
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} is missing in:\n{text}");
    }
}

/// Waits for a condition that must become true.
#[track_caller]
fn until(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} never came");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn where_no_variant_ran_short_of_memory_that_is_said_once() {
    let roomy =
        TINY.replace("128 MiB", "1 GiB").replace("actor.reader.how = \"direct\"", "\"vm.swappiness\" = 10");
    let place = Place::new(&roomy);
    let text = place.sim(&["tiny.toml", "--no-runs"]).split_whitespace().collect::<Vec<_>>().join(" ");
    says(
        &text,
        &[
            "as-it-is (100 %): nothing was reclaimed.",
            "Both runs came out alike, at every value of the sweep: equal throughput, equal p99 latency, scans, faults and \
             swapping within 10 %. No run looked for memory, so that another setting than `vm.swappiness` cannot make a \
             difference either: take less memory (`machine.nodes`), a larger workload or a longer run",
        ],
    );
    assert!(!text.contains("not distinguishable"), "{text}");
}

#[test]
fn where_times_are_printed_it_is_said_what_they_rest_on() {
    let place = Place::new(TINY);
    let one = ["tiny.toml", "--variant", "as-it-is", "--no-runs"];
    let said = |extra: &[&str]| {
        let text = place.sim(&[&one[..], extra].concat()).split_whitespace().collect::<Vec<_>>().join(" ");
        let json = json(&place.sim(&[&one[..], extra, &["--json"]].concat()));
        let times = json["times"].as_str().unwrap().to_owned();
        says(&text, &[&times]);
        times
    };
    assert_eq!(
        said(&[]),
        "The model's times are optimistic: the costs of the kernel's work are its own estimates (zeroing a page and \
         submitting a request took 3 to 5 times as long on the server where they were measured), and devices are as fast as \
         the scenario or its defaults say (disk: 100 µs, 200 MiB/s). `lotsfree lab calibrate -o host.toml` measures a host, and \
         `--calibration host.toml` takes its costs."
    );
    says(
        &said(&["--set", "calibration.zero=900", "--set", "calibration.scan=800"]),
        &["its own estimates except for `scan` and `zero`, which the scenario states (zeroing"],
    );
}

#[test]
fn repeats_differ_in_the_seed_and_are_one_column_with_its_range() {
    let place = Place::new(TINY);
    let sized = ["tiny.toml", "--set", "actor.reader.size=64 MiB", "--repeat", "3"];
    let no_sweep = TINY.split("[sweep]").next().unwrap();
    fs::write(place.at("tiny.toml"), no_sweep).unwrap();
    let text = place.sim(&sized).split_whitespace().collect::<Vec<_>>().join(" ");
    says(
        &text,
        &[
            "6 runs · linux-6.1 (model)",
            "as-it-is direct reads",
            "Each figure is the median of 3 runs, which differ in nothing but the seed; in brackets the smallest and the \
             largest of them.",
            "* best, or not told from it by the repeats.",
            "so in all 3 runs",
        ],
    );
    assert!(!text.contains("#2"), "{text}");

    let repeated = json(&place.sim(&[&sized[..], &["--json", "--no-runs"]].concat()));
    let runs = repeated["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    let seeds: Vec<u64> =
        runs[0]["repeats"].as_array().unwrap().iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [7, 8, 9]);

    // Each repeat is what its seed alone gives, and the figures of the table are the median and the range.
    let faults = |text: &str| {
        let all = json(text);
        let row = |row: &&Value| row["key"] == "major_faults";
        all["measures"].as_array().unwrap().iter().find(row).unwrap().clone()
    };
    let mut alone: Vec<f64> = ["7", "8", "9"]
        .map(|seed| {
            let set = format!("seed={seed}");
            let text = place.sim(&[&sized[..3], &["--set", &set, "--json", "--no-runs"]].concat());
            let row = faults(&text);
            assert!(row.get("spread").is_none());
            row["values"][0].as_f64().unwrap()
        })
        .to_vec();
    alone.sort_by(f64::total_cmp);
    let row = faults(&place.sim(&[&sized[..], &["--json", "--no-runs"]].concat()));
    assert!(alone[0] < alone[2], "seeds make no difference: {alone:?}");
    assert_eq!(row["values"][0], alone[1]);
    assert_eq!(row["spread"][0], serde_json::json!({"min": alone[0], "max": alone[2], "repeats": 3}));

    // On disk they stand beside each other, and other commands read them as repeats too.
    for run in ["as-it-is/1", "as-it-is/3", "direct-reads/2"] {
        assert!(place.at("runs/tiny").join(run).join("run.json").is_file(), "{run}");
    }
    assert_eq!(place.run(&["report", "runs/tiny", "-o", "tiny.html"]).status.code(), Some(0));
    let page = fs::read_to_string(place.at("tiny.html")).unwrap();
    assert!(page.contains("Each figure is the median of 3 runs"), "{page}");
}

#[test]
fn one_thread_and_two_give_the_same_bytes() {
    let (one, two) = (Place::new(TINY), Place::new(TINY));
    let first = one.sim(&["tiny.toml", "--threads", "1"]);
    assert_eq!(first, two.sim(&["tiny.toml", "--threads", "2"]));
    let files = one.files("runs/tiny");
    assert_eq!(files, two.files("runs/tiny"));
    let runs: Vec<&Path> = (files.keys())
        .filter(|path| path.file_name().unwrap() == "run.json")
        .map(|path| path.parent().unwrap())
        .collect();
    let expected = ["as-it-is/16-MiB", "as-it-is/64-MiB", "direct-reads/16-MiB", "direct-reads/64-MiB"];
    assert_eq!(runs, expected.map(|run| Path::new("runs/tiny").join(run)));
    // The printed text follows from the written files.
    let again = one.run(&["report", "runs/tiny", "--format", "text"]);
    assert_eq!(out(&again), first);
    // A run that replaces another one is the same.
    one.sim(&["tiny.toml"]);
    assert_eq!(one.files("runs/tiny"), files);
}

#[test]
fn json_has_every_run_with_its_measures() {
    let place = Place::new(TINY);
    let document = json(&place.sim(&["tiny.toml", "--json", "--no-runs", "--variant", "direct reads"]));
    assert_eq!(document["schema"], "lotsfree.runs/1");
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!((&run["label"], &run["state"]), (&"direct reads".into(), &"complete".into()));
        assert_eq!(run["directory"], Value::Null);
        assert!(run["summary"]["measured"]["actors"][0]["operations"].as_u64().unwrap() > 100);
        assert!(!run["explanation"].as_str().unwrap().is_empty());
    }
    assert!(!document["measures"].as_array().unwrap().is_empty());
    assert!(!place.at("runs").exists(), "--no-runs writes nothing");
}

#[test]
fn overrides_count_in_every_variant() {
    let place = Place::new(TINY);
    let arguments = ["tiny.toml", "--json", "--set", "vm.swappiness=0", "--set", "sweep.values=['24 MiB']"];
    let document = json(&place.sim(&[&arguments[..], &["-o", "elsewhere"]].concat()));
    let directories: Vec<&str> =
        document["runs"].as_array().unwrap().iter().map(|run| run["directory"].as_str().unwrap()).collect();
    assert_eq!(directories.len(), 2);
    for directory in directories {
        says(directory, &["elsewhere/", "/24-MiB"]);
        let head = json(&fs::read_to_string(place.0.path().join(directory).join("run.json")).unwrap());
        assert_eq!(head["facts"]["sysctls"]["vm.swappiness"], "0");
    }
    assert!(!place.at("runs").exists());
}

#[test]
fn an_interrupted_run_is_kept_and_can_be_read() {
    let place = Place::new(TINY);
    let endless = ["--set", "duration=2000000 s", "--set", "sweep.values=['64 MiB']", "--threads", "1"];
    let mut child = place.spawn(&[&["sim", "tiny.toml"], &endless[..]].concat());
    let journal = place.at("runs/tiny/as-it-is/64-MiB/journal");
    until("a journal of a few samples", || fs::metadata(&journal).is_ok_and(|file| file.len() > 100_000));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    until("the end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    says(&err(&output), &["of 2 runs 0 are complete, 1 is incomplete, 1 was not begun", "runs/tiny"]);
    says(&out(&output), &["as-it-is", "interrupted"]);
    assert!(!place.at("runs/tiny/direct-reads").exists());

    let run = "runs/tiny/as-it-is/64-MiB";
    assert_eq!(json(&fs::read_to_string(place.at(run).join("run.json")).unwrap())["state"], "interrupted");
    let doctor = place.run(&["doctor", run]);
    assert!(matches!(doctor.status.code(), Some(0 | 1)), "{doctor:?}");
    says(&out(&doctor), &["64-MiB, simulated", "rules asked"]);
    says(&err(&doctor), &["the run was interrupted after"]);
    let report = place.run(&["report", "runs", "-o", "page.html"]);
    assert_eq!(report.status.code(), Some(0), "{report:?}");
    says(&err(&report), &["the run was interrupted after"]);
    says(&fs::read_to_string(place.at("page.html")).unwrap(), &["<!DOCTYPE html>", "as-it-is"]);
}

#[test]
fn a_killed_run_can_be_read() {
    let place = Place::new(TINY);
    let mut child =
        place.spawn(&["sim", "tiny.toml", "--set", "duration=2000000 s", "--variant", "as-it-is"]);
    let journal = place.at("runs/tiny/as-it-is/64-MiB/journal");
    until("a journal of a few samples", || fs::metadata(&journal).is_ok_and(|file| file.len() > 100_000));
    child.kill().unwrap();
    child.wait().unwrap();
    for arguments in [&["doctor", "runs/tiny/as-it-is/64-MiB"][..], &["report", "--format", "text", "runs"]] {
        let output = place.run(arguments);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        says(&err(&output), &["the run is incomplete: whoever wrote it was killed"]);
    }
    // The incomplete run does not hinder the next one.
    place.sim(&["tiny.toml"]);
}

#[test]
fn scenario_errors_are_a_line_each_with_their_places() {
    let wrong = TINY.replace("cpus  = 2", "cpus  = 0").replace("think = ", "thunk = ");
    let place = Place::new(&wrong);
    let output = place.run(&["sim", "tiny.toml"]);
    assert_eq!(output.status.code(), Some(2));
    let text = err(&output);
    let at = |what: &str| {
        let line = wrong.lines().position(|line| line.contains(what)).unwrap() + 1;
        format!("tiny.toml:{line}:")
    };
    says(&text, &[&at("cpus  = 0"), &at("thunk"), "did you mean \"think\"?"]);
    assert!(text.lines().all(|line| line.starts_with("tiny.toml:")), "{text}");
    assert!(output.stdout.is_empty() && !place.at("runs").exists());
}

#[test]
fn wrong_words_are_refused_with_what_would_be_accepted() {
    let place = Place::new(TINY);
    fs::write(place.at("file"), "").unwrap();
    fs::create_dir_all(place.at("occupied/as-it-is")).unwrap();
    fs::write(place.at("occupied/as-it-is/letter.txt"), "keep me").unwrap();
    let plain = TINY.split("[sweep]").next().unwrap();
    fs::write(place.at("plain.toml"), plain).unwrap();
    let command = format!("{plain}\n[[actor]]\nname = \"dump\"\nkind = \"exec\"\ncommand = [\"true\"]\n");
    fs::write(place.at("command.toml"), command).unwrap();
    let pool = "title = 't'\nduration = '1 s'\n[machine]\ngeneration = 'linux-6.1'\ncpus = 1\nnodes = ['64 MiB']\n\
                [tuning]\n'vm.nr_hugepages' = 3\n[[actor]]\nname = 's'\nkind = 'sessions'\nprocesses = 1\n\
                segment = '8 MiB'\nbacking = 'shm-huge'\n";
    fs::write(place.at("pool.toml"), pool).unwrap();
    for (arguments, expected) in [
        (&["sim", "command.toml"][..], "actor.dump.kind: the model executes no real command"),
        (&["lab", "command.toml"], "actor.dump.kind: a virtual machine has no programs to execute"),
        (&["sim", "quikstart"], "did you mean \"quickstart\"?"),
        (&["sim", "nothing-like-it"], "lotsfree sim --list"),
        (
            &["sim", "tiny.toml", "--set", "vm.compaction_proactiveness=0"],
            "the model does not know vm.compaction_proactiveness",
        ),
        (&["sim", "pool.toml"], "s/segment: shmget fails, as the pool of huge pages lacks 1: of the 3 that"),
        (
            &["sim", "pool.toml", "--set", "actor.s.backing='shm'", "--set", "actor.s.segment='1 GiB'"],
            "s/segment: shmget fails, as at most 62.2 MiB may be promised where `vm.overcommit_memory` is 0",
        ),
        (&["sim", "missing.toml"], "missing.toml: No such file"),
        (&["sim"], "<SCENARIO>"),
        (&["sim", "tiny.toml", "--set", "vm.swapiness=0"], "did you mean \"vm.swappiness\""),
        (&["sim", "tiny.toml", "--set", "actor.ap.heap=1 MiB"], "did you mean \"app\"?"),
        (&["sim", "tiny.toml", "--set", "swappiness"], "expected KEY=VALUE"),
        (
            &["sim", "quickstart", "--set", "vm.swappiness=60"],
            "\"swappiness-0\" sets vm.swappiness to 0, and would run with 60 under that name; leave it out (--variant \
             as-it-is --variant direct)",
        ),
        (
            &["lab", "quickstart", "--set", "vm.swappiness=60", "--on", "vm"],
            "\"swappiness-0\" sets vm.swappiness to 0",
        ),
        (&["sim", "tiny.toml", "--set", "machine.cpus=-1"], "--set machine.cpus=-1: machine.cpus: "),
        (&["sim", "tiny.toml", "--variant", "direct-reads"], "did you mean \"direct reads\"?"),
        (&["sim", "tiny.toml", "--threads", "0"], "--threads"),
        (&["sim", "tiny.toml", "-o", "file/below"], "file/below"),
        (&["sim", "plain.toml", "-o", "occupied"], "it holds letter.txt"),
        (&["sim", "--show", "tiny.toml"], "there is no scenario"),
        (&["sim", "tiny.toml", "--set", "calibration.no-such=1"], "--set calibration.no-such=1: "),
        (&["report", "missing"], "missing: not a run"),
        (&["report", "occupied"], "no run there, and none below it"),
        (&["report"], "<RUN>"),
        (&["compare", "missing", "file"], "missing: not a run"),
        (&["compare", "occupied"], "no run there, and none below it"),
        (&["compare"], "<RUN>"),
        (&["compare", "file", "--sort", "best"], "[possible values: worst, group]"),
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        says(&err(&output), &[expected]);
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
    assert_eq!(fs::read_to_string(place.at("occupied/as-it-is/letter.txt")).unwrap(), "keep me");
}

#[test]
fn a_run_does_not_go_into_another() {
    let place = Place::new(TINY.split("[sweep]").next().unwrap());
    place.sim(&["tiny.toml", "--variant", "as-it-is"]);
    fs::write(place.at("tiny.toml"), TINY).unwrap();
    let output = place.run(&["sim", "tiny.toml"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    says(&err(&output), &["runs/tiny/as-it-is is itself a run"]);
}

/// Makes runs look as if a kernel had produced them.
fn as_a_kernel(place: &Place, below: &str) {
    for (path, contents) in place.files(below) {
        if path.file_name().unwrap() == "run.json" {
            let mut head: Value = serde_json::from_slice(&contents).unwrap();
            // A head as written by a lotsfree without checksums.
            head.as_object_mut().unwrap().remove("check");
            let facts = head["facts"].as_object_mut().unwrap();
            facts.remove("calibration");
            facts.insert("machine".to_owned(), "vm".into());
            facts.insert("kernel".to_owned(), "6.1.0-49-amd64".into());
            fs::write(place.at("").join(path), head.to_string()).unwrap();
        }
    }
}

/// `quickstart`, the introductory scenario, shortened so that it ends quickly.
const BRIEF: [&str; 12] = [
    "quickstart",
    "--set",
    "duration=3 s",
    "--set",
    "actor.check.start=1 s",
    "--set",
    "measure.window=['1 s', '3 s']",
    "--set",
    "measure.baseline=['0', '1 s']",
    "--variant",
    "as-it-is",
    "--variant",
];

#[test]
fn runs_are_compared_variant_by_variant() {
    let place = Place::new(TINY);
    let sim = |out: &str, more: &[&str]| place.sim(&[&BRIEF[..], &["direct", "--out", out], more].concat());
    sim("model", &[]);
    for seed in ["2", "3"] {
        sim(&format!("kernel/{seed}"), &["--set", &format!("seed={seed}")]);
    }
    as_a_kernel(&place, "kernel");
    let compare = |arguments: &[&str]| {
        let output = place.run(&[&["compare"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        out(&output)
    };

    let document = json(&compare(&["model", "kernel", "--json"]));
    assert_eq!(document["schema"], "lotsfree.compare/1");
    let tables = document["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 2);
    for (table, variant) in tables.iter().zip(["as-it-is", "direct"]) {
        assert_eq!(table["variant"], variant);
        let columns = table["columns"].as_array().unwrap();
        assert_eq!(
            columns[0]["runs"],
            serde_json::json!([format!("kernel/2/{variant}"), format!("kernel/3/{variant}")])
        );
        assert_eq!(columns[0]["generation"], columns[1]["generation"]);
        assert_eq!(columns[1]["runs"], serde_json::json!([format!("model/{variant}")]));
    }
    let orders = &document["orders"][0];
    assert_eq!(orders["variants"], serde_json::json!(["as-it-is", "direct"]));
    // The same model is on both sides, so the order of the variants is the same.
    let reversed = |order: &Value| !order["reversed"].as_array().unwrap().is_empty();
    assert!(!orders["measures"].as_array().unwrap().iter().any(reversed), "{orders}");

    for width in ["80", "120"] {
        let text = compare(&["model", "kernel", "--width", width]);
        says(
            &text,
            &["2 comparisons", "The kernel's run is the reference", "2 repeats", "Orders of 2 variants"],
        );
        assert!(text.lines().all(|line| line.chars().count() <= width.parse().unwrap()), "{text}");
    }
    let verbose = compare(&["model", "kernel", "-v", "--sort", "group"]);
    says(&verbose, &["measured requests", "counters of /proc/vmstat", "pgscan_kswapd", "too small"]);
    compare(&["model", "kernel", "--format", "markdown", "-o", "page.md"]);
    let page = fs::read_to_string(place.at("page.md")).unwrap();
    says(&page, &["# Runs compared", ": as-it-is\n", "| measure | virtual machine |"]);

    // Variants of one directory; one variant of each of two; the same variants before and after.
    let text = compare(&["model"]);
    says(
        &text,
        &["The first run is the reference", "as-it-is (the reference): linux-6.1 (model)", "% better"],
    );
    says(&compare(&["kernel/2/direct", "kernel/3/as-it-is"]), &["direct (the reference)"]);
    says(&compare(&["kernel/2", "kernel/3"]), &["2 comparisons", "kernel/2/direct (the reference)"]);
    let text = compare(&["kernel/2/direct", "kernel/3/direct"]);
    says(&text, &["All runs are of the same thing"]);

    // Two different scenarios are compared by the measures that they have in common.
    place.sim(&["tiny.toml", "--variant", "as-it-is"]);
    let text = compare(&["model/as-it-is", "runs/tiny/as-it-is/64-MiB"]);
    says(&text, &["The scenarios differ: ", "“Tiny”", "requests per second"]);
    // A variant without a counterpart is named.
    says(&compare(&["model", "kernel/2/direct"]), &["Without a counterpart: model/as-it-is."]);

    for one in [&["model/direct"][..], &["model/direct", "model/direct"]] {
        let output = place.run(&[&["compare"], one].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        says(&err(&output), &["model/direct: only this run; name another one"]);
        assert!(output.stdout.is_empty());
    }
    fs::write(place.at("model/direct/samples.parquet"), "broken").unwrap();
    let output = place.run(&["compare", "model", "kernel"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    says(&err(&output), &["model/direct/samples.parquet: damaged"]);
}

#[test]
fn older_runs_beside_the_new_ones_are_named() {
    let place = Place::new(TINY.split("[sweep]").next().unwrap());
    let first = place.run(&["sim", "tiny.toml", "--variant", "as-it-is"]);
    says(&err(&first), &["one run in runs/tiny; plots: lotsfree report runs/tiny -o report.html"]);
    assert!(!err(&first).contains("older"));
    let second = place.run(&["sim", "tiny.toml", "--variant", "direct reads"]);
    says(&err(&second), &["one older is beside them"]);
    // Each run appears once, in the order in which they began.
    let document = json(&out(&place.run(&["report", "--json", "runs", "runs/tiny/as-it-is"])));
    let labels: Vec<&str> =
        document["runs"].as_array().unwrap().iter().map(|run| run["label"].as_str().unwrap()).collect();
    assert_eq!(labels, ["as-it-is", "direct reads"]);
}

#[test]
fn doctor_judges_a_run_and_not_a_directory_of_them() {
    let place = Place::new(TINY);
    place.sim(&["tiny.toml"]);
    let output = place.run(&["doctor", "runs/tiny"]);
    assert_eq!(output.status.code(), Some(2));
    says(&err(&output), &["runs/tiny holds 4 runs; judge one of them, such as runs/tiny/as-it-is/16-MiB"]);
    let judge = |run: &str| {
        let output = place.run(&["doctor", "--json", run]);
        let report = json(&out(&output));
        assert_eq!(report["source"]["label"], format!("{run}, simulated"));
        assert_eq!(report["source"]["live"], false);
        let findings = report["findings"].as_array().unwrap().iter();
        findings.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Reads through the cache put the application into swap, direct reads do not.
    let displaced = "pagecache-displaces-anon".to_owned();
    let buffered = judge("runs/tiny/as-it-is/64-MiB");
    assert!(buffered.contains(&displaced), "{buffered:?}");
    let direct = judge("runs/tiny/direct-reads/64-MiB");
    assert!(!direct.contains(&displaced), "{direct:?}");
}

#[test]
fn page_faults_are_told_by_the_stage_in_which_they_happened() {
    let place = Place::new(TINY);
    let small = ["--set", "machine.nodes=['1 GiB']", "--set", "actor.toucher.size='64 MiB'"];
    let text = place.sim(&[&["page-faults"][..], &small].concat());
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    says(
        &joined,
        &[
            "page faults 16,384 16,384 16,384",
            "time in the kernel per fault",
            "after the start, with no page fault (VmSize 145 MiB, VmRSS 0 B); touched",
            "later, with 16,384 page faults (VmSize 145 MiB, VmRSS 64 MiB).",
            "after the start, with 16,384 page faults (VmSize 145 MiB, VmRSS 64 MiB); touched",
            "later, with no page fault (VmSize 145 MiB, VmRSS 64 MiB).",
        ],
    );
    place.run(&["report", "runs/page-faults", "-o", "page.html"]);
    says(
        &fs::read_to_string(place.at("page.html")).unwrap(),
        &["<h2>Stages</h2>", "with no page fault (VmSize "],
    );
}

#[test]
fn doctor_finds_what_ran_out_in_a_run() {
    let place = Place::new(TINY);
    let found = |run: &str, rule: &str| {
        let report = json(&out(&place.run(&["doctor", "--json", run])));
        let findings = report["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["rule"] == rule).unwrap_or_else(|| panic!("{report}"))
    };
    place.sim(&["commit-limits", "--variant", "mode 2, ratio 50"]);
    let refused = found("runs/commit-limits/mode-2-ratio-50", "commit-exhaustion");
    says(&refused.to_string(), &["The largest request that succeeds now", "910,976 kB"]);
    place.sim(&["oom-choice", "--variant", "a small thing that is adjusted"]);
    let killed = found("runs/oom-choice/a-small-thing-that-is-adjusted", "oom-happened");
    says(&killed.to_string(), &["cache", "CONSTRAINT_NONE", "oom_score_adj 700"]);
}

#[test]
fn a_sweep_of_who_asks_for_memory_says_from_where_on_nothing_is_refused() {
    let place = Place::new(TINY);
    let text = place.sim(&["commit-ratio", "--width", "120"]);
    let said = "as it is: nothing is refused from 78 on.\nmore swap: nothing is refused from 10 on.";
    says(&text, &["Requests for memory that were refused, over vm.overcommit_ratio", said]);
    place.run(&["report", "runs/commit-ratio", "-o", "page.html"]);
    let page = fs::read_to_string(place.at("page.html")).unwrap();
    says(&page, &["requests for memory that were refused", "more swap: nothing is refused from 10 on</h2>"]);
    let none = place.sim(&["commit-ratio", "--set", "sweep.values=[80, 90]", "--width", "120"]);
    says(&none, &["as it is: nothing is refused.\n"]);
    let all = place.sim(&["commit-ratio", "--set", "sweep.values=[0, 5]", "--width", "120"]);
    says(&all, &["as it is: something is refused up to the largest value.\n"]);
}

#[test]
fn a_table_of_strategies_is_filled_with_what_was_measured() {
    let place = Place::new(
        "title = 't'\nduration = '6 s'\nbase = 'plain'\n[machine]\ngeneration = 'linux-6.1'\ncpus = 1\n\
         nodes = ['128 MiB']\nswap = { size = '64 MiB', on = 'disk' }\n\
         [[actor]]\nname = 'app'\nkind = 'app-server'\nheap = '40 MiB'\nthink = '1 ms'\n\
         [[actor]]\nname = 'hog'\nkind = 'allocator'\nsize = '0'\nchunk = '4 MiB'\ntouch = 1.0\nstart = '3 s'\n\
         oom-score-adj = -1000\n\
         [[variant]]\nname = 'pinned'\nactor.app.locked = true\n\
         [[variant]]\nname = 'no swap'\nmachine.swap = { size = '0' }\n\
         [sweep]\nkey = 'actor.hog.size'\nvalues = ['0', '120 MiB']\n\
         [measure]\nactor = 'app'\nwindow = ['3 s', 'end']\nbaseline = ['1 s', '3 s']\n\
         [strategies]\ntitle = 'How to stay'\nfrom = 'hog'\nat = '0'\n\
         [[strategies.row]]\nname = 'pinning'\nvariant = 'pinned'\nwithout = 'plain'\nneeds = 'mlockall'\nkernels = 'all'\n\
         [[strategies.row]]\nname = 'no swap at all'\nvariant = 'no swap'\nwithout = 'plain'\nneeds = 'swapoff'\n\
         kernels = 'all'\nat = '120 MiB'\n",
    );
    let text = place.sim(&["tiny.toml", "--table", "-o", "runs", "--width", "120"]);
    says(
        &text,
        &[
            "How to stay",
            "100 % → 100 %",
            "40 MiB bound",
            "app killed",
            "pinning (pinned): mlockall. Kernels: all.",
        ],
    );
    says(&text, &["no swap at all (no swap; at 120 MiB): swapoff."]);
    // Only what the table compares was run.
    let runs = ["plain/0", "plain/120-MiB", "pinned/0", "pinned/120-MiB", "no-swap/0", "no-swap/120-MiB"];
    let there = runs.map(|run| place.at(&format!("runs/{run}")).exists());
    assert_eq!(there, [true, true, true, false, false, true]);
    let json = place.sim(&["tiny.toml", "--table", "--no-runs", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = &json["strategies"][0];
    assert_eq!((row["strategy"].as_str(), row["bound_bytes"].as_u64()), (Some("pinning"), Some(40 << 20)));
    assert_eq!(json["strategies"][1]["killed"], serde_json::json!(["app"]));
    let refused = place.run(&["sim", "quickstart", "--table"]);
    says(&err(&refused), &["quickstart has no table of strategies: --table needs its section [strategies]"]);
}

#[test]
fn a_pool_that_is_a_page_short_is_seen_to_lie_idle() {
    let place = Place::new(
        "title = 't'\nduration = '5 s'\nbase = 'short'\n[machine]\ngeneration = 'linux-6.1'\ncpus = 1\n\
         nodes = ['128 MiB']\npage-tables = '1 MiB'\n[tuning]\n'vm.nr_hugepages' = 7\n[[actor]]\nname = 's'\n\
         kind = 'sessions'\nprocesses = 40\nsegment = '16 MiB'\nbacking = 'shm-huge-or-base'\n\
         [[variant]]\nname = 'enough'\n'vm.nr_hugepages' = 8\n",
    );
    let text = place.sim(&["tiny.toml", "-o", "runs", "--width", "200"]);
    let line = |text: &str, name: &str| -> Vec<String> {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line[name.len()..].split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(line(&text, "huge pages in use, most"), ["0", "B", "16", "MiB"]);
    assert_eq!(line(&text, "idle huge pages, most"), ["14", "MiB", "0", "B*"]);
    says(&text, &["; 14 MiB of huge pages lie idle"]);
    assert_eq!(place.run(&["report", "runs", "-o", "page.html"]).status.code(), Some(0));
    let page = fs::read_to_string(place.at("page.html")).unwrap().replace('\u{a0}', " ");
    says(&page, &["<h2>Page tables take up to ", "; 14 MiB of huge pages lie idle with short</h2>"]);
    let doctor = out(&place.run(&["doctor", "runs/short"]));
    says(&doctor, &["rule pool-unused", "rule pagetable-bloat"]);
    let doctor = out(&place.run(&["doctor", "runs/enough"]));
    assert!(!doctor.contains("pool-unused"), "{doctor}");
    // More page tables than the kernel has memory.
    let more = place.run(&["sim", "tiny.toml", "--set", "machine.page-tables='200 MiB'"]);
    says(&err(&more), &["machine.page-tables: is 200 MiB, and only "]);
}

#[test]
fn the_list_names_what_ships_and_each_can_be_shown() {
    let place = Place::new(TINY);
    let entries = json(&place.sim(&["--list", "--json"]));
    let text = place.sim(&["--list", "--width", "80"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for entry in entries.as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        says(&text, &[name]);
        let shown = place.sim(&["--show", name]);
        says(&shown, &[entry["title"].as_str().unwrap()]);
        // The shown scenario is valid: only the override is wrong.
        fs::write(place.at("shown.toml"), shown).unwrap();
        let output = place.run(&["sim", "shown.toml", "--set", "vm.no_such=1"]);
        assert!(err(&output).lines().all(|line| line.starts_with("--set vm.no_such")), "{output:?}");
    }
    assert_eq!(entries[0]["name"], "quickstart");
    let refused = |entry: &&serde_json::Value| !entry["refused"].is_null();
    assert_eq!(entries.as_array().unwrap().iter().find(refused), None, "the model executes what ships");
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    says(&joined, &["3.0, swappiness 0; 3.0, swappiness 10;", "as-it-is, swappiness-0, direct."]);
}

#[test]
fn text_keeps_to_its_width_and_is_coloured_on_request_only() {
    let place = Place::new(TINY);
    let text = place.sim(&["tiny.toml", "--width", "80"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    says(&text, &["as-it-is", "direct reads"]);
    assert!(!text.contains('\u{1b}'), "standard output is a pipe");
    let report = |color: &str| {
        let mut command = place.command(&["report", "--format", "text", "runs", "--color", color]);
        out(&command.env("NO_COLOR", "1").output().unwrap()).contains('\u{1b}')
    };
    assert!(!report("auto") && !report("never"));
    assert!(report("always"));
}

#[test]
fn a_closed_pipe_is_no_error_and_keeps_the_runs() {
    let place = Place::new(TINY);
    let mut child = place.spawn(&["sim", "tiny.toml"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for run in ["as-it-is/16-MiB", "direct-reads/64-MiB"] {
        let head = place.at("runs/tiny").join(run).join("run.json");
        assert_eq!(json(&fs::read_to_string(head).unwrap())["state"], "complete");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_the_runs_are_kept() {
    let place = Place::new(TINY);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = place.command(&["sim", "tiny.toml"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    says(&err(&output), &["No space left on device"]);
    assert!(place.at("runs/tiny/direct-reads/64-MiB/run.json").is_file());
}

#[test]
fn a_disk_that_fills_up_ends_all_runs_and_leaves_what_is_there() {
    let place = Place::new(TINY);
    let limited = format!(
        "trap '' XFSZ; ulimit -f 32; exec {} sim tiny.toml --threads 1 --set 'duration=2000000 s'",
        env!("CARGO_BIN_EXE_lotsfree")
    );
    let output = Command::new("bash").args(["-c", &limited]).current_dir(place.0.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = err(&output);
    says(
        &said,
        &[
            "as-it-is/16-MiB/journal: File too large",
            "0 are complete, 0 are incomplete, 1 failed (as-it-is, 16 MiB), 3 were not begun",
        ],
    );
    let doctor = place.run(&["doctor", "runs/tiny/as-it-is/16-MiB"]);
    says(&err(&doctor), &["the run is incomplete"]);
    says(&out(&doctor), &["rules asked"]);
}

/// A record with one measured cost.
const RECORD: &str = r#"
name = "a slow host"
[provenance]
date = "2026-11-22"
kernel = "6.1.0"
cpu = "Some CPU"
cpus = 2
memory = "1 GiB"
lru = "active-inactive"
lotsfree = "0.1.0"
[costs]
touch = { median = 5000.0, lower = 4000.0, upper = 6000.0, repetitions = 9 }
[absent]
"costs.walk" = "no such thing here"
"#;

#[test]
fn a_calibration_is_taken_and_named() {
    let place = Place::new(TINY);
    fs::write(place.at("slow.toml"), RECORD).unwrap();
    let own =
        ["tiny.toml", "--variant", "as-it-is", "--set", "sweep.values=['16 MiB']", "--json", "--no-runs"];
    let arguments = [&["sim"], &own[..], &["--calibration", "slow.toml"]].concat();
    let output = place.run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    says(
        &err(&output),
        &[
            "a slow host: syscall was not measured; 50.0 times the model's own is taken",
            "a slow host: walk was not measured (no such thing here); 50.0 times the model's own is taken",
        ],
    );
    assert!(!err(&output).contains("touch"), "{}", err(&output));
    assert_ne!(out(&output), place.sim(&own));
    says(
        &out(&output),
        &["The model's times rest on costs that were measured on a slow host, and devices are as fast as"],
    );

    fs::write(place.at("slow.toml"), RECORD.replace("upper = 6000.0", "upper = 60.0")).unwrap();
    let output = place.run(&arguments);
    assert_eq!(output.status.code(), Some(2));
    says(
        &err(&output),
        &["slow.toml:12:20: costs.touch.median: 5000 is not between lower, 4000, and upper, 60"],
    );
    let other = TINY.replace("[machine]", "[calibration]\nrecord = \"fast\"\n[machine]");
    fs::write(place.at("tiny.toml"), other).unwrap();
    fs::write(place.at("slow.toml"), RECORD).unwrap();
    let output = place.run(&arguments);
    assert_eq!(output.status.code(), Some(2));
    says(
        &err(&output),
        &["tiny.toml:9:10: calibration.record: there is no calibration record \"fast\"; there are \"a slow"],
    );
}

/// Writes a run of the model once more, as that of a kernel that executed a scenario of this memory.
fn as_a_kernel_s(from: &Path, to: &Path, memory: &str) {
    let run = Run::open(from).unwrap();
    let mut facts = run.facts().clone();
    (facts.machine, facts.kernel, facts.calibration) = (RunOn::Vm, "6.1.0-test".to_owned(), None);
    let mut writer = Writer::create(to, facts, &run.scenario().replace("128 MiB", memory)).unwrap();
    for row in 0..run.samples().len() {
        writer.sample(&run.samples().get(row).unwrap()).unwrap();
    }
    writer.finish(State::Complete).unwrap();
}

#[test]
fn a_run_can_begin_as_the_kernel_s_did_and_compare_says_when_it_does_not() {
    let place = Place::new(TINY.split_once("[sweep]").unwrap().0);
    let tiny = ["sim", "tiny.toml", "--variant", "as-it-is"];
    let sim = |more: &[&str]| place.run(&[&tiny[..], more].concat());
    assert_eq!(sim(&["-o", "model"]).status.code(), Some(0));
    as_a_kernel_s(&place.at("model/as-it-is"), &place.at("kernel"), "128 MiB");

    let untold = "the model was not told that";
    says(&out(&place.run(&["compare", "kernel", "model"])), &["Not the same machine", untold, "--like"]);
    assert_eq!(sim(&["-o", "told", "--like", "kernel"]).status.code(), Some(0));
    let scenario = fs::read_to_string(place.at("told/as-it-is/scenario.toml")).unwrap();
    says(&scenario, &["kernel = [", "reserved = [", "pagesets = ["]);
    let compared = out(&place.run(&["compare", "kernel", "told"]));
    assert!(!compared.contains("Not the same machine"), "{compared}");

    let refused = |arguments: &[&str], why: &str| {
        let output = sim(&[arguments, &["-o", "refused"]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        says(&err(&output), &[why]);
    };
    refused(&["--like", "model"], "no run of a kernel is there");
    refused(&["--like", "kernel", "--set", "machine.cpus=1"], "its runs are of other machines");
    // On a host the size that the scenario says does not count.
    as_a_kernel_s(&place.at("model/as-it-is"), &place.at("small"), "100 MiB");
    refused(
        &["--like", "small", "--set", "machine.nodes=[\"100 MiB\"]"],
        "machine.nodes: 100 MiB in all, and the kernel of small manages ",
    );
}

#[test]
fn a_scenario_of_a_host_is_printed_and_its_machine_is_begun_with() {
    let place = Place::new(TINY);
    let here = place.sim(&["--host"]);
    assert!(here.starts_with("# Made by lotsfree"), "{here}");
    let saved = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/6.12-1node-swap.txt");
    let saved = saved.to_str().unwrap();
    let printed = place.sim(&["--like", saved]);
    says(&printed, &["generation = \"linux-6.12+mglru\"", "kernel     = [", "name        = \"copy\""]);
    // The same without what is in use, which the data of the host then say.
    let bare = printed.lines().filter(|line| !line.starts_with("kernel ") && !line.starts_with("reserved "));
    fs::write(place.at("bare.toml"), bare.collect::<Vec<_>>().join("\n")).unwrap();
    place.sim(&["bare.toml", "--variant", "as it is", "--like", saved, "-o", "told"]);
    let scenario = fs::read_to_string(place.at("told/as-it-is/scenario.toml")).unwrap();
    says(&scenario, &["kernel = [", "reserved = ["]);

    let other = place.run(&["sim", "tiny.toml", "--like", saved]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    says(&err(&other), &[": a host with one node of ", "; the scenario's machine has one node of 128 MiB"]);
    for refused in [&["sim", "quickstart", "--host"][..], &["sim", "--host", "--no-runs"]] {
        assert_eq!(place.run(refused).status.code(), Some(2), "{refused:?}");
    }
}
