//! The program as its users run it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
    command.env_remove("NO_COLOR");
    command
}

fn run(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Text with its line breaks taken out, so that wrapping does not matter.
fn flat(output: &Output) -> String {
    out(output).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn doctor(source: &str) -> Output {
    run(&["doctor", fixture(source).to_str().unwrap()])
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} is missing in:\n{text}");
    }
}

#[test]
fn system_a_loses_its_memory_to_page_tables() {
    let output = doctor("articles/oracle-system-a.meminfo");
    assert_eq!(output.status.code(), Some(1));
    says(
        &flat(&output),
        &[
            "page tables take 1,591,860 kB, 9.7 % of memory, and there are no huge pages",
            "1,591,860 kB / 512 = 3,109 kB",
            "1,588,750 kB",
        ],
    );
}

#[test]
fn system_b_loses_12_million_kilobytes() {
    says(&flat(&doctor("articles/oracle-system-b.meminfo")), &["page tables take 12,023,792 kB"]);
}

/// The SGA of 34 GB is mapped; what is left of `Cached` may be page cache.
#[test]
fn shared_memory_of_an_old_kernel_is_not_page_cache() {
    let text = flat(&doctor("articles/oracle-system-b.meminfo"));
    says(&text, &["mapped or shared 32.4 GiB", "page cache 74.7 GiB"]);
}

#[test]
fn sunnys_pool_leaves_six_gibibytes_to_the_rest() {
    let text = flat(&doctor("articles/oracle-sunny.txt"));
    says(
        &text,
        &[
            "59 % of the 16 GiB installed",
            "4,840 pages used, 26 promised, 2 spare",
            "everything else has to live with 6.07 GiB",
        ],
    );
}

#[test]
fn sunnys_segments_explain_4868_pages() {
    let text = flat(&doctor("rules/pool-accounting/fires-sunny.txt"));
    says(&text, &["together 4,866 = used + promised: they explain it", "4,868"]);
}

#[test]
fn the_excerpt_of_zoneinfo_names_its_distances_and_its_origin() {
    let text = flat(&doctor("articles/linkedin-graphdb.zoneinfo"));
    says(
        &text,
        &[
            "3,248 pages (12.7 MiB) above low",
            "vm.min_free_kbytes is 90,112 kB, raised by transparent huge pages",
        ],
    );
}

#[test]
fn size_reproduces_the_articles_pool() {
    let output = run(&["size", "hugepages", "--segment", "8GiB", "--segment", "1.5GiB"]);
    assert_eq!(output.status.code(), Some(0));
    says(&flat(&output), &["4,864", "4,866", "Reserve 4,868 huge pages of 2 MiB", "vm.nr_hugepages = 4868"]);
}

#[test]
fn size_reproduces_and_corrects_the_articles_page_tables() {
    let text = flat(&run(&["size", "pagetables", "16GiB", "--processes", "100", "-v"]));
    says(&text, &["32 MiB", "64 KiB", "3.12 GiB", "not 64", "system page table", "tmpfs pages are swapped"]);
}

#[test]
fn a_sizing_question_without_figures_says_what_to_give() {
    let output = run(&["size", "swap"]);
    assert_eq!(output.status.code(), Some(2));
    says(&String::from_utf8_lossy(&output.stderr), &["--ram SIZE is missing", "--from-host"]);
    let output = run(&["size", "pagetables", "16 parsecs"]);
    assert_eq!(output.status.code(), Some(2));
    says(&String::from_utf8_lossy(&output.stderr), &["not an amount of memory", "1.5 GiB"]);
}

#[test]
fn this_host_is_judged_at_one_instant_and_over_time() {
    for interval in ["0", "0.2"] {
        let output = run(&["doctor", "--json", "--interval", interval]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        assert_eq!(report["schema"], "lotsfree.doctor/1");
        assert_eq!(report["source"]["samples"], if interval == "0" { 1 } else { 2 });
        assert!(report["source"]["files_read"].as_u64().unwrap() > 20);
    }
}

#[test]
fn standard_input_is_a_source() {
    let mut child = command()
        .args(["doctor", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let meminfo = fs::read(fixture("articles/oracle-system-a.meminfo")).unwrap();
    child.stdin.take().unwrap().write_all(&meminfo).unwrap();
    let output = child.wait_with_output().unwrap();
    says(&flat(&output), &["standard input", "page tables take 1,591,860 kB"]);
}

#[test]
fn a_tree_is_judged_as_root_or_as_source() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("proc")).unwrap();
    fs::copy(fixture("articles/oracle-system-a.meminfo"), tree.path().join("proc/meminfo")).unwrap();
    for arguments in [vec!["doctor", "--root"], vec!["doctor"]] {
        let output = command().args(arguments).arg(tree.path()).output().unwrap();
        says(&flat(&output), &["page tables take 1,591,860 kB"]);
    }
}

#[test]
fn nonsense_is_refused_with_what_would_be_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nonsense");
    fs::write(&file, "the quick brown fox\n").unwrap();
    for arguments in [
        vec!["doctor", file.to_str().unwrap()],
        vec!["doctor", "/nonexistent"],
        vec!["doctor", "--only", "no-such-rule"],
        vec!["doctor", "--interval", "-1"],
        vec!["doctor", "--root", file.to_str().unwrap()],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_tree_without_anything_to_judge_is_unusable() {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("proc")).unwrap();
    let output = command().args(["doctor", "--root"]).arg(tree.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    says(&flat(&output), &["Nothing could be judged."]);
    says(&String::from_utf8_lossy(&output.stderr), &["is /proc mounted"]);
}

#[test]
fn the_exit_code_follows_fail_on() {
    let source = fixture("articles/oracle-system-a.meminfo");
    for (fail_on, code) in [("info", 1), ("high", 1), ("critical", 0), ("never", 0)] {
        let output = command().args(["doctor", "--fail-on", fail_on]).arg(&source).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{fail_on}");
    }
    let critical = fixture("rules/memory-exhaustion/fires-swap-full.txt");
    let output = command().args(["doctor", "--format", "nagios"]).arg(&critical).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    says(&out(&output), &["LOTSFREE CRITICAL - only 295 MiB", "| critical=1"]);
}

#[test]
fn nagios_takes_findings_below_fail_on_for_ok_and_counts_them() {
    let high = fixture("articles/oracle-system-a.meminfo");
    for (fail_on, code, said) in [
        ("info", 1, "LOTSFREE WARNING - page tables take"),
        ("high", 1, "LOTSFREE WARNING - page tables take"),
        ("critical", 0, "LOTSFREE OK - 1 finding below what is asked for | critical=0 high=1"),
        ("never", 0, "LOTSFREE OK - 1 finding below what is asked for | critical=0 high=1"),
    ] {
        let arguments = ["doctor", "--format", "nagios", "--fail-on", fail_on];
        let output = command().args(arguments).arg(&high).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{fail_on}");
        says(&out(&output), &[said]);
    }
    let critical = fixture("rules/memory-exhaustion/fires-swap-full.txt");
    let arguments = ["doctor", "--format", "nagios", "--fail-on", "critical"];
    let output = command().args(arguments).arg(&critical).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_source_that_cannot_be_read_is_unknown_to_nagios_not_critical() {
    let output = command().args(["doctor", "--format", "nagios", "/no/such/file"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    says(&out(&output), &["LOTSFREE UNKNOWN - /no/such/file"]);
}

#[test]
fn validation_without_records_leaves_the_page_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("docs")).unwrap();
    let page = directory.path().join("docs/validation.md");
    std::fs::write(&page, "measured").unwrap();
    let output =
        command().args(["lab", "validate", "--recorded"]).current_dir(directory.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    says(&String::from_utf8_lossy(&output.stderr), &["no experiment is recorded here"]);
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "measured");
}

#[test]
fn only_and_skip_choose_rules() {
    let source = fixture("articles/oracle-system-a.meminfo");
    let count = |arguments: &[&str]| {
        let output = command().args(["doctor", "--json"]).args(arguments).arg(&source).output().unwrap();
        let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        report["findings"].as_array().unwrap().len()
    };
    assert_eq!(count(&["--only", "pagetable-bloat"]), 1);
    assert_eq!(count(&["--only", "zone-reclaim"]), 0);
    assert_eq!(count(&["--skip", "pagetable-bloat"]) + 1, count(&[]));
}

#[test]
fn colour_is_for_terminals_and_those_who_ask() {
    let source = fixture("articles/oracle-system-a.meminfo");
    let colored = |color: &str| {
        let output = command().args(["doctor", "--color", color]).arg(&source).output().unwrap();
        out(&output).contains('\u{1b}')
    };
    assert!(!colored("auto"), "standard output is a pipe");
    assert!(colored("always"));
}

#[test]
fn text_keeps_to_its_width() {
    let source = fixture("hosts/6.12-2nodes-cgroup.txt");
    for width in ["60", "80", "120"] {
        let output = command().args(["doctor", "--width", width, "-v"]).arg(&source).output().unwrap();
        let widest = out(&output).lines().map(|line| line.chars().count()).max().unwrap();
        // Commands and lines to configure are never broken.
        assert!(widest <= width.parse::<usize>().unwrap().max(110), "{widest}");
    }
}

#[test]
fn a_report_is_written_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("report.html");
    let source = fixture("articles/oracle-system-a.meminfo");
    let output =
        command().args(["doctor", "--format", "html", "-o"]).arg(&page).arg(&source).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    says(&fs::read_to_string(&page).unwrap(), &["<!DOCTYPE html>", "1,591,860 kB"]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left there");
    let nowhere = directory.path().join("missing/report.html");
    let output = command().args(["doctor", "-o"]).arg(&nowhere).arg(&source).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child =
        command().args(["explain"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn every_rule_can_be_explained() {
    let list = run(&["explain", "--json"]);
    let rules: serde_json::Value = serde_json::from_str(&out(&list)).unwrap();
    for rule in rules.as_array().unwrap() {
        let id = rule["id"].as_str().unwrap();
        let text = out(&run(&["explain", id]));
        says(&text, &[id, "Sees", "Hurts", "Remedies", "False alarms", "References"]);
    }
}

#[test]
fn a_snapshot_is_judged_like_its_host() {
    let directory = tempfile::tempdir().unwrap();
    for format in ["archive", "text"] {
        let path = directory.path().join(format);
        let output = command()
            .args(["snapshot", "--samples", "2", "--interval", "0.2", "--format", format, "-o"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "others cannot read it");
        let output = command().args(["doctor", "--json"]).arg(&path).output().unwrap();
        let report: serde_json::Value = serde_json::from_str(&out(&output)).unwrap();
        assert_eq!(report["source"]["samples"], 2);
        assert_eq!(report["source"]["live"], false);
        assert!(report["host"]["memory"].as_u64().unwrap() > 0);
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        says(
            &out(&run(&["completions", shell])),
            &["doctor", "snapshot", "fail-on", "sim", "variant", "report"],
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let output = command().arg("man").arg(directory.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for page in [
        "lotsfree.1",
        "lotsfree-doctor.1",
        "lotsfree-size-hugepages.1",
        "lotsfree-snapshot.1",
        "lotsfree-sim.1",
    ] {
        assert!(directory.path().join(page).is_file(), "{page}");
    }
}
