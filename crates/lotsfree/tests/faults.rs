//! Every write, sync, rename, creation and removal of a command fails once, and the process is killed or
//! interrupted there once, a method of SQLite. In every case a file is the old one or the new one, a run can
//! be read up to its last whole row, and the next call succeeds.
//!
//! The fault points are those of `lotsfree_storage::fault`. Their number per command is in a table here, so
//! that a new write is noticed and reviewed when it is added.

#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "the number of points is part of a test's output")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lotsfree_run::{Run, State};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

const TINY: &str = r#"
title    = "Tiny"
seed     = 7
duration = "250 ms"
interval = "125 ms"
base     = "as it is"

[machine]
generation = "linux-6.1"
cpus = 1
nodes = ["64 MiB"]
disk = { bandwidth = "200 MiB/s" }

[[actor]]
name = "reader"
kind = "file-reader"
size = "2 MiB"
"#;

const VARIANT: &str = "
[[variant]]
name = \"again\"
actor.reader.size = \"3 MiB\"
";

/// Fault points of `sim` on [`TINY`]: in a new directory, and below in place of a run.
const SIM_NEW: usize = 48;
const SIM_AGAIN: usize = 55;
/// Directory of the run.
const RUN: &str = "runs/as-it-is";
const SIM: [&str; 6] = ["sim", "tiny.toml", "--threads", "1", "-o", "runs"];

/// Commands that write a file: the file, the number of fault points, the arguments. A file takes five: it is
/// created, written, synced and renamed, and its directory is synced.
const WRITERS: [(&str, usize, &[&str]); 12] = [
    ("report", 5, &["doctor", "SOURCE", "-o", "report"]),
    ("report.html", 5, &["doctor", "--format", "html", "SOURCE", "-o", "report.html"]),
    ("snap.zst", 5, &["snapshot", "--samples", "1", "--max-time", "0.1", "-o", "snap.zst"]),
    (
        "snap.txt",
        5,
        &["snapshot", "--format", "text", "--samples", "1", "--max-time", "0.1", "-o", "snap.txt"],
    ),
    ("page.html", 5, &["report", "runs", "-o", "page.html"]),
    ("page.json", 5, &["report", "runs", "--json", "-o", "page.json"]),
    ("page.txt", 5, &["report", "runs", "--format", "text", "-o", "page.txt"]),
    ("table.json", 5, &["compare", "runs", "--json", "-o", "table.json"]),
    ("table.md", 5, &["compare", "runs", "--format", "markdown", "-o", "table.md"]),
    ("answer", 5, &["size", "pagetables", "16GiB", "-o", "answer"]),
    ("rules", 5, &["explain", "-o", "rules"]),
    // 21 pages with five points each.
    ("lotsfree.1", 105, &["man", "."]),
];

/// Fault at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The operation fails.
    Fail,
    /// The operation and all after it fail.
    From,
    /// The process is killed.
    Kill,
    /// Ctrl-C is pressed.
    Interrupt,
}

/// Outcome of a command.
struct Ended {
    output: Output,
    /// Points that the command reached: operation and path.
    points: Vec<String>,
}

impl Ended {
    /// Whether a point is the removal of a run that has been replaced.
    fn removes_what_was_replaced(&self, point: usize) -> bool {
        let (before, rest) = self.points.split_at(point - 1);
        let exchanged =
            before.iter().any(|point| point.starts_with("Rename ") && point.ends_with("/as-it-is"));
        exchanged && rest[0].starts_with("Remove ") && !rest[0].ends_with("/journal")
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// A directory in which the program runs.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        // The directory is in memory, where syncing costs nothing; the test is whether syncs are requested.
        let memory = TempDir::new_in("/dev/shm");
        let place = Place(memory.or_else(|_| tempfile::tempdir()).unwrap());
        fs::write(place.at("tiny.toml"), TINY).unwrap();
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/articles/oracle-system-a.meminfo");
        command.args(arguments.iter().map(|&argument| if argument == "SOURCE" { source } else { argument }));
        command.current_dir(self.0.path()).env("LOTSFREE_FAULT_LOG", self.at(".log"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command, with a fault at a point or without one.
    fn run(&self, arguments: &[&str], fault: Option<(Fault, usize)>) -> Ended {
        let mut command = self.command(arguments);
        let Some((fault, point)) = fault else {
            let output = command.output().unwrap();
            return Ended { output, points: self.points() };
        };
        let kind = match fault {
            Fault::Fail => "fail",
            Fault::From => "from",
            Fault::Kill => "kill",
            Fault::Interrupt => "stop",
        };
        let child = command.env("LOTSFREE_FAULT", format!("{kind}:{point}")).spawn().unwrap();
        if fault == Fault::Interrupt {
            let pid = Pid::from_child(&child);
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
            assert!(status.stopped(), "{arguments:?} point {point}: {status:?}");
            kill_process(pid, Signal::INT).unwrap();
            kill_process(pid, Signal::CONT).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        Ended { output, points: self.points() }
    }

    /// The points that the last command reached; they are numbered from 1.
    fn points(&self) -> Vec<String> {
        let log = fs::read_to_string(self.at(".log")).unwrap_or_default();
        let _ = fs::remove_file(self.at(".log"));
        let point = |(line, number): (&str, usize)| {
            let (first, point) = line.split_once(' ').unwrap();
            assert_eq!(first, number.to_string(), "{log}");
            point.to_owned()
        };
        log.lines().zip(1..).map(point).collect()
    }

    /// Every file below the place with its contents, except the one with the duration of a run.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut directories = vec![self.0.path().to_path_buf()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.0.path()).unwrap().to_str().unwrap().to_owned();
                if path.is_dir() {
                    directories.push(path);
                } else if !name.ends_with("/timing.json") {
                    files.insert(name, fs::read(path).unwrap());
                }
            }
        }
        files
    }
}

/// Checks the exit code of a command after a fault, that the fault happened, and that the message names the
/// file and the reason.
#[track_caller]
fn check_end(what: &str, fault: Fault, point: usize, asked_for: &str, ended: &Ended) {
    let (said, code) = (ended.said(), ended.output.status.code());
    assert!(!said.contains("panicked"), "{what}: {said}");
    assert!(ended.points.len() >= point, "{what}: it came to {} points", ended.points.len());
    match fault {
        // The next writer removes the rest of the older run, once the new one is in its place.
        Fault::Fail if ended.removes_what_was_replaced(point) => assert_eq!(code, Some(0), "{what}: {said}"),
        Fault::Fail | Fault::From => {
            assert_eq!(code, Some(2), "{what}: {said}");
            assert!(said.contains(asked_for), "{what}: {said}");
            assert!(said.contains("No space left on device"), "{what}: {said}");
            assert!(!said.contains(".lotsfree-") && !said.contains(".partial"), "{what}: {said}");
        }
        Fault::Kill => {
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&ended.output.status),
                Some(9),
                "{what}"
            );
            assert_eq!(ended.points.len(), point, "{what}");
        }
        Fault::Interrupt => assert!(matches!(code, Some(0..=1 | 130)), "{what}: {code:?}: {said}"),
    }
}

/// Whether a snapshot is whole; each is different.
fn is_snapshot(path: &Path) -> bool {
    lotsfree_snapshot::source::open(path).is_ok()
}

/// Injects a fault at every point of each command that writes a file.
fn write_with(fault: Fault) {
    let place = Place::new();
    assert!(place.run(&SIM, None).output.status.success());
    let second = ["sim", "tiny.toml", "--threads", "1", "-o", "runs/second"];
    assert!(place.run(&second, None).output.status.success());
    for (file, points, arguments) in WRITERS {
        let target = place.at(file);
        let undisturbed = place.run(arguments, None);
        let reached = undisturbed.points.len();
        eprintln!("lotsfree {}: {reached} points", arguments.join(" "));
        assert_eq!(reached, points, "{arguments:?}: look at what was added, and count it here");
        let (whole, mut around) = (fs::read(&target).unwrap(), place.files());
        around.remove(file);
        let asked_for = if arguments[0] == "man" { "lotsfree.1" } else { file };
        for point in 1..=points.min(5) {
            for old in [None, Some("old\n")] {
                let what = format!("{fault:?} {point} of {arguments:?}, over {old:?}");
                let _ = fs::remove_file(&target);
                old.iter().for_each(|old| fs::write(&target, old).unwrap());
                let ended = place.run(arguments, Some((fault, point)));
                check_end(&what, fault, point, asked_for, &ended);

                let mut after = place.files();
                let now = after.remove(file);
                let is_new = now.as_deref().is_some_and(|now| {
                    if file.starts_with("snap") { is_snapshot(&target) } else { now == whole }
                });
                assert!(is_new || now.as_deref() == old.map(str::as_bytes), "{what}: neither old nor new");
                assert!(is_new || fault != Fault::Interrupt, "{what}: what was begun is finished");
                if fault == Fault::Kill {
                    // The killed process could not remove it; its name tells what it is.
                    for name in after.extract_if(.., |name, _| name.ends_with(".tmp")).map(|(name, _)| name) {
                        assert!(name.starts_with(".lotsfree-"), "{what}: {name}");
                        fs::remove_file(place.at(&name)).unwrap();
                    }
                }
                let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
                assert_eq!(names(&after), names(&around), "{what}");
                assert!(after == around, "{what}: another file was changed");
            }
        }
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_file_is_old_or_new_whichever_step_fails() {
    write_with(Fault::Fail);
}

#[test]
fn a_file_is_old_or_new_from_whichever_step_on_the_disk_is_full() {
    write_with(Fault::From);
}

#[test]
fn a_file_is_old_or_new_wherever_the_process_is_killed() {
    write_with(Fault::Kill);
}

#[test]
fn a_file_is_new_wherever_the_process_is_interrupted() {
    write_with(Fault::Interrupt);
}

/// Injects a fault at every point of `sim`, in a new directory and in place of a run.
fn simulate_with(fault: Fault) {
    let reference = Place::new();
    for points in [SIM_NEW, SIM_AGAIN] {
        let undisturbed = reference.run(&SIM, None);
        let reached = undisturbed.points.len();
        eprintln!("lotsfree {}: {reached} points", SIM.join(" "));
        assert_eq!(reached, points, "look at what was added, and count it here: {:#?}", undisturbed.points);
    }
    let whole = reference.files();
    let rows = Run::open(reference.at(RUN)).unwrap().samples().times().to_vec();
    for (again, points) in [(false, SIM_NEW), (true, SIM_AGAIN)] {
        for point in 1..=points {
            let what = format!("{fault:?} {point} of sim, {}", if again { "again" } else { "anew" });
            let place = Place::new();
            if again {
                fs::create_dir_all(place.at(RUN)).unwrap();
                for name in
                    ["timing.json"].into_iter().chain(whole.keys().filter_map(|name| name.strip_prefix(RUN)))
                {
                    let name = format!("{RUN}/{}", name.trim_start_matches('/'));
                    fs::copy(reference.at(&name), place.at(&name)).unwrap();
                }
            }
            let ended = place.run(&SIM, Some((fault, point)));
            check_end(&what, fault, point, "runs", &ended);
            check_run(&what, fault, &place, &rows);
            let next = place.run(&SIM, None);
            assert!(next.output.status.success(), "{what}: the next sim: {}", next.said());
            let names: Vec<_> = place.files().into_keys().collect();
            assert_eq!(names, whole.keys().cloned().collect::<Vec<_>>(), "{what}: after the next sim");
            assert!(place.files() == whole, "{what}: the next sim wrote something else");
        }
    }
}

/// Checks that a run can be read and describes itself correctly, if it exists.
#[track_caller]
fn check_run(what: &str, fault: Fault, place: &Place, rows: &[u64]) {
    let directory = place.at(RUN);
    if !lotsfree_run::is_run(&directory) {
        return;
    }
    let run = Run::open(&directory).unwrap_or_else(|error| panic!("{what}: {error}"));
    let times = run.samples().times();
    assert_eq!(times, &rows[..times.len()], "{what}");
    match run.state() {
        State::Complete => assert_eq!((times, run.remarks()), (rows, &[][..]), "{what}"),
        State::Interrupted => assert_eq!(fault, Fault::Interrupt, "{what}"),
        State::Running => {
            let remark = &run.remarks()[0];
            assert!(remark.contains("the run is incomplete"), "{what}: {remark}");
            let why = match fault {
                Fault::Fail => "could not be written (No space left on device",
                // If nothing can be written, neither can the reason.
                Fault::From => "could not",
                Fault::Kill => "killed",
                Fault::Interrupt => panic!("{what}: {remark}"),
            };
            assert!(remark.contains(why), "{what}: {remark}");
        }
    }
}

#[test]
fn a_run_can_be_read_whichever_step_fails() {
    simulate_with(Fault::Fail);
}

#[test]
fn a_run_can_be_read_from_whichever_step_on_the_disk_is_full() {
    simulate_with(Fault::From);
}

#[test]
fn a_run_can_be_read_wherever_the_process_is_killed() {
    simulate_with(Fault::Kill);
}

#[test]
fn a_run_can_be_read_wherever_the_process_is_interrupted() {
    simulate_with(Fault::Interrupt);
}

#[test]
fn after_a_full_disk_every_run_is_counted_once_and_the_one_that_failed_is_named() {
    let tally = |point: usize| {
        let place = Place::new();
        fs::write(place.at("tiny.toml"), format!("{TINY}{VARIANT}")).unwrap();
        let ended = place.run(&SIM, Some((Fault::From, point)));
        assert_eq!(ended.output.status.code(), Some(2));
        ended.said()
    };
    // A fault in the first run, after rows are written, and one in the second run.
    let said = tally(SIM_NEW - 10);
    let first = "of 2 runs 0 are complete, 0 are incomplete, 1 failed (as it is), 1 was not begun";
    assert!(said.contains(first), "{said}");
    let said = tally(2 * SIM_NEW - 10);
    let second = "of 2 runs 1 is complete, 0 are incomplete, 1 failed (again), 0 were not begun";
    assert!(said.contains(second), "{said}");
    assert!(said.contains("runs/again"), "{said}");

    let place = Place::new();
    let said = place.run(&SIM, Some((Fault::From, SIM_NEW - 10))).said();
    let only = "of 1 run 0 are complete, 0 are incomplete, 1 failed (as it is), 0 were not begun";
    assert!(said.contains(only), "{said}");
}
