//! Runs from elsewhere: hostile ones, and those that lotsfree 0.1.0 wrote.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/0.1.0")
}

/// Runs the program in a directory with an address space of 1 GiB. A command that takes more ends without an
/// error message of the program.
fn bounded(directory: &Path, arguments: &[&str]) -> Output {
    let begun = Instant::now();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 1048576; exec timeout 60 \"$0\" \"$@\"", env!("CARGO_BIN_EXE_lotsfree")])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(50), "{arguments:?} took {:?}", begun.elapsed());
    output
}

fn copy(from: &str, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(fixtures().join("runs").join(from)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn fifo(at: &Path) {
    assert!(Command::new("mkfifo").arg(at).status().unwrap().success());
}

/// A file of `bytes` bytes that takes no room on disk.
fn sparse(at: &Path, bytes: u64) {
    let file = File::options().write(true).create(true).truncate(false).open(at).unwrap();
    file.set_len(bytes).unwrap();
}

/// Puts something where a file should be.
type Put<'a> = &'a dyn Fn(&Path);

const GIB: u64 = 1 << 30;

#[test]
fn hostile_runs_are_refused_by_doctor_report_and_compare() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    copy("complete", &at("good"));
    let files =
        ["run.json", "scenario.toml", "samples.parquet", "actors.parquet", "events.jsonl", "timing.json"];
    let mut hostile: Vec<(String, &str)> = Vec::new();
    for name in files.into_iter().chain(["summary.json", "journal"]) {
        let put: [(&str, Put<'_>); 5] = [
            ("fifo", &|path| fifo(path)),
            ("directory", &|path| fs::create_dir(path).unwrap()),
            ("device", &|path| symlink("/dev/zero", path).unwrap()),
            ("link", &|path| symlink("/etc/shadow", path).unwrap()),
            ("sparse", &|path| sparse(path, 8 * GIB)),
        ];
        for (kind, put) in put {
            // A damaged summary is left out, with a message; 0.1.0 has no checksum of it.
            if (kind, name) == ("sparse", "summary.json") || (kind, name) == ("sparse", "timing.json") {
                continue;
            }
            let run = format!("{kind}-{name}");
            copy(if name == "journal" { "killed" } else { "complete" }, &at(&run));
            let _ = fs::remove_file(at(&run).join(name));
            put(&at(&run).join(name));
            hostile.push((run, name));
        }
    }
    for (run, name) in &hostile {
        for arguments in
            [&["doctor", run][..], &["report", run], &["report", "--json", run], &["compare", run, "good"]]
        {
            let output = bounded(place.path(), arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(&format!("{run}/{name}: ")), "{run}: {said}");
            assert!(output.stdout.is_empty() && !said.contains("panicked"), "{run}: {said}");
        }
    }
}

#[test]
fn a_sparse_journal_takes_no_memory() {
    let place = tempfile::tempdir().unwrap();
    copy("killed", &place.path().join("run"));
    sparse(&place.path().join("run/journal"), 2 * GIB);
    for arguments in [&["doctor", "run"][..], &["report", "--json", "run"], &["compare", "run", "run"]] {
        let said = bounded(place.path(), arguments);
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(!text.contains("panicked") && said.status.code().is_some_and(|code| code < 100), "{text}");
    }
}

/// The measures of runs, without the remarks, what 0.1.0 did not say of their times and of what kernels do,
/// and the version of the program.
fn measures(text: &[u8]) -> Value {
    let mut told: Value = serde_json::from_slice(text).unwrap();
    for key in ["lotsfree", "times"] {
        told.as_object_mut().unwrap().remove(key);
    }
    for run in told["runs"].as_array_mut().unwrap() {
        for key in ["remarks", "nearest"] {
            run.as_object_mut().unwrap().remove(key);
        }
    }
    for measure in told["measures"].as_array_mut().unwrap() {
        measure.as_object_mut().unwrap().remove("on_kernels");
    }
    told
}

#[test]
fn runs_of_0_1_0_open_with_the_same_measures_and_a_remark() {
    let unchecked = "it was written without a checksum of run.json, as 0.1.0 did";
    for (name, remarks) in [
        ("complete", vec![unchecked]),
        ("interrupted", vec!["the run was interrupted after 2 s", unchecked]),
        (
            "killed",
            vec![
                "the run is incomplete: whoever wrote it was killed or could not write, after 2 s",
                unchecked,
            ],
        ),
    ] {
        let run = format!("runs/{name}");
        let output = bounded(&fixtures(), &["report", &run, "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let expected = fs::read(fixtures().join(format!("expected/{name}.json"))).unwrap();
        assert_eq!(measures(&output.stdout), measures(&expected), "{name}");
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["runs"][0]["remarks"], Value::from(remarks), "{name}");
        let doctor = bounded(&fixtures(), &["doctor", &run]);
        let said = String::from_utf8_lossy(&doctor.stderr);
        assert!(doctor.status.code().is_some_and(|code| code < 2) && said.contains(unchecked), "{said}");
    }
}

#[test]
fn an_archive_of_0_1_0_opens_with_the_same_findings() {
    let output = bounded(&fixtures(), &["doctor", "snapshot.tar.zst", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = fs::read(fixtures().join("expected/snapshot.doctor.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    for key in ["schema", "source", "host", "memory"] {
        assert_eq!(told[key], expected[key], "{key}");
    }
    let findings = |told: &Value| -> Vec<(Value, Value, Value)> {
        let findings = told["findings"].as_array().unwrap().iter();
        findings
            .map(|finding| (finding["rule"].clone(), finding["severity"].clone(), finding["title"].clone()))
            .collect()
    };
    assert!(!findings(&expected).is_empty());
    // Later rules may find more.
    let told = findings(&told);
    assert!(findings(&expected).iter().all(|finding| told.contains(finding)), "{told:?}");
}

#[test]
fn what_is_no_file_is_refused_wherever_a_file_is_named() {
    let place = tempfile::tempdir().unwrap();
    fifo(&place.path().join("fifo.toml"));
    symlink("/dev/zero", place.path().join("zero.toml")).unwrap();
    sparse(&place.path().join("sparse.toml"), 8 * GIB);
    for (name, what) in [("fifo.toml", "FIFO"), ("zero.toml", "device"), ("sparse.toml", "")] {
        let path = format!("./{name}");
        for arguments in [
            &["sim", &path, "--no-runs"][..],
            &["sim", "quickstart", "--no-runs", "--calibration", &path],
            &["doctor", &path],
        ] {
            let output = bounded(place.path(), arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && said.contains(name), "{arguments:?}: {said}");
            let named = arguments[0] == "doctor" || said.contains(what);
            assert!(named && !said.contains("panicked"), "{arguments:?}: {said}");
        }
    }
}
