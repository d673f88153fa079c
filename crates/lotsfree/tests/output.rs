//! Destination and contents of output: closed and full streams, the umask, signals, hostile names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_lotsfree");

const TINY: &str = r#"
title    = "Tiny"
seed     = 7
duration = "250 ms"
interval = "250 ms"
base     = "as it is"

[machine]
generation = "linux-6.1"
cpus = 1
nodes = ["64 MiB"]
disk = { bandwidth = "200 MiB/s" }

[[actor]]
name = "reader"
kind = "file-reader"
size = "4 MiB"

[[variant]]
name = "again"
actor.reader.size = "5 MiB"
"#;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

/// A directory with two runs below `runs`, in which the program runs.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Place(tempfile::tempdir().unwrap());
        fs::write(place.at("tiny.toml"), TINY).unwrap();
        assert!(place.run(&["sim", "tiny.toml", "-o", "runs"]).status.success());
        place
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.0.path()).env_remove("NO_COLOR");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the program in a shell's script, with a redirection or after another command.
    fn shell(&self, script: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", script, PROGRAM]).args(arguments).current_dir(self.0.path());
        command.output().unwrap()
    }
}

/// Every command that prints, with arguments that make it print, and its exit code if printing succeeds.
fn printing() -> Vec<(Vec<String>, i32)> {
    let source = fixture("articles/oracle-system-a.meminfo");
    let mut commands: Vec<(Vec<String>, i32)> = [
        (&["explain"][..], 0),
        (&["explain", "swap-placement"], 0),
        (&["size", "pagetables", "16GiB"], 0),
        (&["sim", "--list"], 0),
        (&["sim", "--show", "zone-reclaim"], 0),
        (&["sim", "tiny.toml", "--no-runs"], 0),
        (&["report", "runs", "--format", "text"], 0),
        (&["compare", "runs"], 0),
        (&["snapshot", "--samples", "1", "--max-time", "0.2", "-o", "-"], 0),
        (&["completions", "bash"], 0),
        (&["--help"], 0),
        (&["doctor", "--help"], 0),
        (&["--version"], 0),
    ]
    .map(|(arguments, code)| (arguments.iter().map(|&a| a.to_owned()).collect(), code))
    .into();
    commands.push((vec!["doctor".to_owned(), source], 1));
    commands
}

#[test]
fn a_standard_output_that_takes_nothing_is_an_error_of_every_command_that_prints() {
    let place = Place::new();
    for (arguments, _) in printing() {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        for (redirection, why) in [
            (">&-", "standard output is closed"),
            (">/dev/full", "No space left on device"),
            ("1</dev/null", "Bad file descriptor"),
        ] {
            let output = place.shell(&format!("exec \"$0\" \"$@\" {redirection}"), &arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{arguments:?} {redirection}: {said}");
            assert!(said.contains(why), "{arguments:?} {redirection}: {said}");
        }
    }
    // The command is refused before anything is simulated.
    let output = place.shell("exec \"$0\" \"$@\" >&-", &["sim", "tiny.toml", "-o", "new"]);
    assert_eq!((output.status.code(), place.at("new").exists()), (Some(2), false));
}

#[test]
fn a_dev_null_that_the_caller_opened_is_no_closed_output() {
    let place = Place::new();
    for (arguments, code) in printing() {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // daemon(3) and Python open /dev/null in this way; Rust's runtime does the same for a closed stream.
        for redirection in [">/dev/null", "1<>/dev/null"] {
            let output = place.shell(&format!("exec \"$0\" \"$@\" {redirection}"), &arguments);
            assert_eq!(output.status.code(), Some(code), "{arguments:?} {redirection}: {output:?}");
        }
    }
}

#[test]
fn a_command_that_prints_nothing_needs_no_standard_output() {
    let place = Place::new();
    let source = fixture("articles/oracle-system-a.meminfo");
    for (arguments, code) in [
        (&["doctor", source.as_str(), "-o", "report"][..], 1),
        (&["report", "runs", "-o", "page"], 0),
        (&["snapshot", "--samples", "1", "--max-time", "0.2", "-o", "archive"], 0),
        (&["man", "."], 0),
    ] {
        let output = place.shell("exec \"$0\" \"$@\" >&- 2>&-", arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

/// Commands that write a file, with the name of the file.
fn writing() -> Vec<(Vec<String>, &'static str)> {
    let source = fixture("articles/oracle-system-a.meminfo");
    let mut all = Vec::new();
    for format in ["text", "json", "markdown", "html", "nagios"] {
        all.push((vec!["doctor", "--format", format, source.as_str(), "-o", "report"], "report"));
    }
    for format in ["text", "json", "html"] {
        all.push((vec!["report", "--format", format, "runs", "-o", "page"], "page"));
    }
    for format in ["text", "json", "markdown"] {
        all.push((vec!["compare", "--format", format, "runs", "-o", "table"], "table"));
    }
    all.push((vec!["size", "pagetables", "16GiB", "-o", "answer"], "answer"));
    all.push((vec!["explain", "-o", "rules"], "rules"));
    all.push((vec!["man", "."], "lotsfree-sim.1"));
    for format in ["archive", "text"] {
        let snapshot =
            ["snapshot", "--format", format, "--samples", "1", "--max-time", "0.2", "-o", "archive"];
        all.push((snapshot.to_vec(), "archive"));
    }
    all.into_iter().map(|(words, name)| (words.into_iter().map(str::to_owned).collect(), name)).collect()
}

#[test]
fn reports_follow_the_umask_and_snapshots_are_private() {
    let place = Place::new();
    for (arguments, file) in writing() {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        for umask in [0o027, 0o000] {
            let output = place.shell(&format!("umask {umask:04o} && exec \"$0\" \"$@\""), &arguments);
            assert!(matches!(output.status.code(), Some(0..=2)), "{output:?}");
            let mode = fs::metadata(place.at(file)).unwrap().permissions().mode() & 0o7777;
            let wanted = if file == "archive" { 0o600 } else { 0o666 & !umask };
            assert_eq!(mode, wanted, "{arguments:?}, umask {umask:o}: {mode:o}");
            fs::remove_file(place.at(file)).unwrap();
        }
    }
}

#[test]
fn a_write_error_names_the_file_that_was_asked_for() {
    let place = Place::new();
    fs::create_dir(place.at("directory")).unwrap();
    for (mut arguments, _) in writing() {
        for bad in ["missing/x", "directory", "tiny.toml/x", "/dev/full"] {
            let man = arguments[0] == "man";
            if man && matches!(bad, "directory" | "/dev/full") {
                continue;
            }
            *arguments.last_mut().unwrap() = bad.to_owned();
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = place.run(&words);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
            assert!(said.contains(&format!("cannot write {bad}")), "{words:?}: {said}");
            assert!(!said.contains(".lotsfree-") && !said.contains(".tmp"), "{words:?}: {said}");
        }
    }
}

/// Names of files below a directory.
fn listed(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[cfg(debug_assertions)]
#[test]
fn ctrl_c_while_a_report_is_written_leaves_it_whole() {
    let place = Place::new();
    let source = fixture("articles/oracle-system-a.meminfo");
    let arguments = ["doctor", &source, "-o", "report"];
    place.run(&arguments);
    let whole = fs::read(place.at("report")).unwrap();
    let before = listed(place.0.path());
    for signal in [Signal::INT, Signal::TERM] {
        for point in 1..=5 {
            fs::write(place.at("report"), "old").unwrap();
            let mut command = place.command(&arguments);
            let mut child =
                command.env("LOTSFREE_FAULT", format!("stop:{point}")).stderr(Stdio::null()).spawn().unwrap();
            let pid = Pid::from_child(&child);
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
            assert!(status.stopped(), "point {point}: {status:?}");
            kill_process(pid, signal).unwrap();
            kill_process(pid, Signal::CONT).unwrap();
            let code = child.wait().unwrap().code();
            assert_eq!(code, Some(128 + signal.as_raw()), "point {point}");
            assert!(fs::read(place.at("report")).unwrap() == whole, "point {point}");
            assert_eq!(listed(place.0.path()), before, "point {point}");
        }
    }
}

/// A C1 control sequence introducer, an override and an isolate that reverse the text after them, a line
/// separator, DEL, and a zero-width character.
const HOSTILE: &str = "x\u{9b}31m\u{202e}\u{2066}\u{2028}\u{7f}\u{200b}";

fn is_hidden(c: char) -> bool {
    c.is_control() && c != '\n'
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
}

/// Asserts that output shows the hostile name only in escaped form, and that it does show it if `named`.
#[track_caller]
fn spelled_out(what: &str, bytes: &[u8], named: bool) {
    let text = std::str::from_utf8(bytes).unwrap();
    if let Some(at) = text.find(is_hidden) {
        let from = text[..at].char_indices().rev().nth(60).map_or(0, |(at, _)| at);
        panic!("{what}: {:?}", text[from..].chars().take(100).collect::<String>());
    }
    // The second is in Markdown, where a backslash is escaped by another one.
    let spelled = ["x\\x9b31m", "x\\\\x9b31m", "x\\u{9b}31m", "x\\u009b31m"];
    assert!(!named || spelled.iter().any(|name| text.contains(name)), "{what} does not name it:\n{text}");
}

#[test]
fn names_on_a_host_are_spelled_out_in_every_form_of_the_report() {
    let place = Place::new();
    // The names of two groups, of a process, and of a kernel.
    for (source, renamed) in [
        ("rules/limit-near/fires-v2-killed.txt", "postgresql"),
        ("rules/cache-garbage/fires-log-structured.txt", "graphdb"),
        ("rules/protected-app-swapped/fires-group.txt", "db"),
        ("hosts/6.12-2nodes-cgroup.txt", "6.12.117+deb12-amd64"),
    ] {
        let text = fs::read_to_string(fixture(source)).unwrap();
        assert!(text.contains(renamed), "{source}");
        fs::write(place.at("host.txt"), text.replace(renamed, &format!("{renamed}{HOSTILE}"))).unwrap();
        for format in ["text", "json", "markdown", "html", "nagios"] {
            let mut arguments = vec!["doctor", "--format", format, "host.txt"];
            if format == "text" {
                arguments.push("-v");
            }
            let output = place.run(&arguments);
            assert!(matches!(output.status.code(), Some(0..=2)), "{output:?}");
            spelled_out(&format!("{source} {format}"), &output.stdout, format != "nagios");
            spelled_out(&format!("{source} {format}, errors"), &output.stderr, false);
        }
        let output = place.run(&["size", "pagetables", "16GiB", "--from", "host.txt"]);
        spelled_out(source, &output.stdout, false);
        let output = place.run(&["size", "pagetables", "16GiB", "--json", "--from", "host.txt"]);
        spelled_out(source, &output.stdout, false);
    }
}

#[test]
fn names_in_a_scenario_and_of_runs_are_spelled_out_in_every_form() {
    let place = Place::new();
    let escaped = "x\\u009b31m\\u202e\\u2028\\u007f";
    let scenario = TINY
        .replace("\"Tiny\"", &format!("\"{escaped}\""))
        .replace("\"again\"", "\"again\\u202e\\u2028\\u2066\"");
    let (file, runs) = (format!("{HOSTILE}.toml"), format!("runs{HOSTILE}"));
    fs::write(place.at(&file), scenario).unwrap();
    let commands: &[&[&str]] = &[
        &["sim", &file, "-o", &runs],
        &["sim", &file, "-o", &runs, "--json"],
        &["report", &runs, "--format", "text"],
        &["report", &runs, "--format", "json"],
        &["report", &runs, "--format", "html"],
        &["compare", &runs, "--format", "text", "-v"],
        &["compare", &runs, "--format", "json"],
        &["compare", &runs, "--format", "markdown", "-v"],
    ];
    for arguments in commands {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let names = [&output.stdout[..], &output.stderr].concat();
        spelled_out(&arguments.join(" "), &names, arguments[0] != "compare");
    }
}

#[test]
fn messages_spell_out_names_and_keep_to_one_line_each() {
    let place = Place::new();
    let bad = TINY
        .replace("file-reader", "x\\u009b31m\\u202e")
        .replace("base     =", "\"x\\u009b31m\\u202e\\n\" = 1\nbase     =");
    fs::write(place.at("bad.toml"), bad).unwrap();
    let line = &format!("{HOSTILE}\nlotsfree: nothing is wrong");
    let toml = &format!("./{line}.toml");
    let set = &format!("{line}=1");
    let commands: &[&[&str]] = &[
        &["sim", "bad.toml"],
        &["sim", toml],
        &["sim", line],
        &["sim", "tiny.toml", "--set", set],
        &["sim", "tiny.toml", "--variant", line],
        &["report", line],
        &["compare", line, "runs"],
        &["doctor", line],
        &["doctor", "--root", line],
        &["doctor", &fixture("articles/oracle-system-a.meminfo"), "-o", &format!("missing/{line}")],
        &["size", "pagetables", "16GiB", "--from", line],
        &["snapshot", "--samples", "1", "--max-time", "0.2", "-o", &format!("missing/{line}")],
        &["man", &format!("missing/{line}")],
    ];
    for arguments in commands {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        spelled_out(&format!("{arguments:?}"), &output.stderr, true);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.lines().any(|line| line == "lotsfree: nothing is wrong"), "{arguments:?}: {said}");
    }
    // Arguments that the parser refuses.
    for arguments in [&[HOSTILE][..], &["doctor", "--width", HOSTILE], &["explain", HOSTILE]] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        spelled_out(&format!("{arguments:?}"), &output.stderr, true);
    }
}
