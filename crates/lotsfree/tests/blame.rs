//! `lotsfree blame`: of a run of the model, of this host where the kernel lets it, and when it is killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what a host does not let be tested is said")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

fn lotsfree(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lotsfree")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether the kernel lets this user watch it.
fn may_watch() -> bool {
    let output = lotsfree(&["blame", "--for", "1s"]);
    match output.status.code() {
        Some(0) => true,
        code => {
            assert_eq!(code, Some(2), "{}", said(&output));
            assert!(said(&output).contains("tracepoint"), "{}", said(&output));
            eprintln!("not tested: {}", said(&output));
            false
        }
    }
}

#[test]
fn a_run_of_the_model_says_who_took() {
    let place = tempfile::tempdir().unwrap();
    let runs = place.path().join("runs");
    let runs = runs.to_str().unwrap();
    let output = lotsfree(&["sim", "quickstart", "--variant", "as-it-is", "-o", runs]);
    assert!(output.status.success(), "{}", said(&output));
    let run = format!("{runs}/as-it-is");
    let output = lotsfree(&["blame", "--run", &run, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "lotsfree.blame/1");
    let payer = &report["payers"][0];
    let shares: f64 =
        payer["taken_by"].as_array().unwrap().iter().map(|charge| charge["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{payer}");
    let name = payer["actor"].as_str().unwrap();
    let text = lotsfree(&["blame", "--run", &run, name]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with(&format!("{name} lost")), "{text}");
    let all = lotsfree(&["blame", "--run", &run]);
    let all = String::from_utf8(all.stdout).unwrap();
    assert!(all.contains("Who paid") && all.contains("Who took"), "{all}");
    let page = lotsfree(&["blame", "--run", &run, "--format", "html"]);
    assert!(String::from_utf8(page.stdout).unwrap().contains("</html>"));
    let output = lotsfree(&["blame", "--run", &run, "nobody-of-that-name"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains(name), "it names those that were seen: {}", said(&output));
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    for time in ["0", "0.5s", "2h", "-3", "soon", "", "1e9", "nan"] {
        let output = lotsfree(&["blame", &format!("--for={time}")]);
        assert_eq!(output.status.code(), Some(2), "{time}");
        assert!(said(&output).contains("from 1s to 1h"), "{time}: {}", said(&output));
    }
}

#[test]
fn a_command_is_watched_from_its_start_to_its_end() {
    if !may_watch() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let kept = place.path().join("kept");
    let output = Command::new(env!("CARGO_BIN_EXE_lotsfree"))
        .args(["blame", "--json", "--keep"])
        .arg(&kept)
        .args(["--", "sh", "-c", "sleep 0.5; echo done"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (of_command, report) = text.split_once('\n').unwrap();
    assert_eq!(of_command, "done");
    let report: Value = serde_json::from_str(report).unwrap();
    assert_eq!(report["payers"].as_array().unwrap().len(), 0, "{report}");
    for command in [&["report", "--json"][..], &["blame", "--run"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_lotsfree")).args(command).arg(&kept).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", said(&output));
    }
}

#[test]
fn a_kill_at_any_moment_leaves_the_host_as_it_was() {
    if !may_watch() {
        return;
    }
    let state = || {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let settings = ["task_delayacct", "perf_event_paranoid", "sched_schedstats", "ftrace_enabled"];
        let mut state = vec![read("/proc/self/mounts")];
        state.extend(settings.iter().map(|name| read(&format!("/proc/sys/kernel/{name}"))));
        state.push(format!("{:?}", fs::read_dir("/sys/kernel/tracing").map(Iterator::count).ok()));
        let events = Path::new("/sys/kernel/tracing/events/enable");
        state.push(fs::read_to_string(events).unwrap_or_default());
        state
    };
    let before = state();
    for wait in [0, 1, 3, 10, 30, 60, 100, 200, 400, 900] {
        let mut child =
            Command::new(env!("CARGO_BIN_EXE_lotsfree")).args(["blame", "--for", "30s"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(), before, "killed after {wait} ms");
    }
}
