//! `lotsfree size` as its users run it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
    command.arg("size").args(arguments);
    command
}

fn size(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn fed(arguments: &[&str], input: &str) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn out(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What was said when the question was refused.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name).display().to_string()
}

const SEGMENTS: &str = "
------ Gemeinsamer Speicher: Segmente --------
Schlüssel  shmid      Besitzer   Rechte     Bytes      nattch     Status
0x00000000 98305      oracle     640        8592031744 45
0x1c3f5a88 131074     oracle     640        1612709888 45
0x00000000 5          root       600        4096       1
";

#[test]
fn the_answer_says_which_kernel_it_is_reckoned_for_and_why() {
    let joined = |output: &Output| out(output).split_whitespace().collect::<Vec<_>>().join(" ");
    let rhel_5 = fixture("articles/oracle-system-a.meminfo");
    let of_source =
        |source: &str, more: &[&str]| joined(&size(&[&["watermarks", "--from", source], more].concat()));
    let said = of_source(&rhel_5, &[]);
    assert!(said.contains("Reckoned for linux-2.6.32-rhel6, the newest without Shmem, which"), "{said}");
    // There is no khugepaged either that would raise the reserve.
    assert!(said.contains("default of this host without THP = 16,192 kB"), "{said}");
    let said = of_source(&rhel_5, &["--kernel", "6.1"]);
    assert!(said.contains("Reckoned for linux-6.1, as --kernel says."), "{said}");
    let said = of_source(&fixture("hosts/6.12-1node-swap.txt"), &[]);
    assert!(said.contains("Reckoned for linux-6.12, the rules for the host's 6.12."), "{said}");
    let directory = tempfile::tempdir().unwrap();
    let part = directory.path().join("meminfo");
    fs::write(&part, "MemTotal: 16387608 kB\nMemFree: 105176 kB\n").unwrap();
    let said = of_source(part.to_str().unwrap(), &[]);
    assert!(
        said.contains("Reckoned for linux-6.12, the newest: the source does not tell its kernel"),
        "{said}"
    );
    let said = joined(&size(&["watermarks", "--ram", "64GiB"]));
    assert!(said.contains("Reckoned for linux-6.12, the newest; --kernel RELEASE takes another."), "{said}");
    let said = joined(&size(&["swap", "--ram", "64GiB"]));
    assert!(!said.contains("Reckoned"), "swap depends on no kernel: {said}");
}

#[test]
fn a_size_without_a_unit_is_refused_for_every_option() {
    for (arguments, option) in [
        (&["hugepages", "--segment", "8"][..], "--segment <SIZE>"),
        (&["hugepages", "--jvm", "16"], "--jvm <HEAP"),
        (&["hugepages", "--segment", "8GiB", "--ram", "64"], "--ram <SIZE>"),
        (&["hugepages", "--segment", "8GiB", "--huge-page-size", "2048"], "--huge-page-size <SIZE>"),
        (&["pagetables", "16"], "<SIZE>"),
        (&["swap", "--ram", "64"], "--ram <SIZE>"),
        (&["overcommit", "--ram", "64GiB", "--vm-size", "1.5"], "--vm-size <SIZE>"),
        (&["watermarks", "--ram", "64GiB", "--burst", "2"], "--burst <SIZE>"),
    ] {
        let said = refused(&size(arguments));
        assert!(said.contains(option) && said.contains("has no unit"), "{said}");
        assert!(said.contains("8GiB") && said.contains("8388608kB"), "{said}");
    }
    let said = refused(&size(&["hugepages", "--segment", "8589934592"]));
    assert!(said.contains("or 8589934592B if bytes are meant"), "{said}");
    out(&size(&["hugepages", "--segment", "8589934592B"]));
    out(&size(&["hugepages", "--segment", "8GiB", "--locked", "0"]));
}

#[test]
fn segments_are_read_from_what_ipcs_prints() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ipcs.txt");
    fs::write(&file, SEGMENTS).unwrap();
    for text in [
        out(&fed(&["hugepages", "--ipcs", "-"], SEGMENTS)),
        out(&size(&["hugepages", "--ipcs", file.to_str().unwrap()])),
        out(&size(&["hugepages", "--ipcs-bytes", "8592031744", "--ipcs-bytes", "1612709888"])),
    ] {
        assert!(text.contains("Reserve 4,868 huge pages of 2 MiB"), "{text}");
    }
}

#[test]
fn what_ipcs_did_not_print_is_refused_with_its_line() {
    let limits = "------ Shared Memory Limits --------\nmax number of segments = 4096\n";
    let said = refused(&fed(&["hugepages", "--ipcs", "-"], limits));
    assert!(said.contains("--ipcs standard input: line 2: ") && said.contains("ipcs -lm"), "{said}");
    let said = refused(&size(&["hugepages", "--ipcs", "/nonexistent"]));
    assert!(said.contains("cannot read /nonexistent"), "{said}");
    let said = refused(&size(&["hugepages", "--ipcs-bytes", "8GiB"]));
    assert!(said.contains("expected whole bytes, as ipcs -m prints them"), "{said}");
}

#[test]
fn amm_is_refused_also_with_figures_of_a_host() {
    for more in [&["--segment", "8GiB"][..], &["--from-host"]] {
        let said = refused(&size(&[&["hugepages", "--amm"], more].concat()));
        assert!(said.contains("cannot use huge pages") && said.contains("memory_target=0"), "{said}");
        assert!(said.contains("Then: lotsfree size hugepages --segment "), "{said}");
    }
}

#[test]
fn the_verdict_comes_first_and_counts_the_hosts_own_memory() {
    let source = fixture("rules/page-size-mixup/fires-1g.txt");
    let text = out(&size(&["hugepages", "--from", &source]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[1].starts_with("It fits: pool 8.00 GiB of 23.5 GiB; the host's own anonymous memory 1.24"),
        "{text}"
    );
    assert!(text.contains("pools of other huge page sizes 9 GiB"), "{text}");
    // The segment of 8 GiB lies in base pages today: its share of Shmem is not counted a second time.
    assert!(!text.contains("shared memory"), "{text}");
    let source = fixture("rules/no-hugepages-for-big-shm/fires-system-b.txt");
    let text = out(&size(&["hugepages", "--from", &source]));
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("It fits as far as is known: pool 34.0 GiB of 126 GiB;"), "{text}");
    assert!(
        flat.contains("Not known, and not counted: shared memory in base pages, kernel stacks"),
        "{text}"
    );
}

#[test]
fn every_answer_begins_with_its_verdict() {
    let source = fixture("hosts/6.12-2nodes-cgroup.txt");
    for (question, verdict) in [
        (&["hugepages", "--segment", "64MiB", "--from", &source][..], "It fits: pool 68 MiB of"),
        (
            &["pagetables", "64MiB", "-n", "2", "--from", &source],
            "It fits: a mapping of 64 MiB and its tables,",
        ),
        (&["pagetables", "16GiB", "-n", "100"], "Whether it fits is not known:"),
        (&["pagetables", "16GiB", "--ram", "8GiB"], "It does not fit:"),
        (&["swap", "--from", &source], "It does not suffice: the host has 256 MiB of swap,"),
        (&["swap", "--ram", "8GiB", "--current", "20GiB"], "It suffices: the host has 20 GiB of swap."),
        (&["swap", "--ram", "8GiB"], "Whether the host has enough is not known:"),
        (&["overcommit", "--from", &source], "It fits:"),
        (&["overcommit", "--ram", "8GiB"], "Whether the limit of 4 GiB suffices is not known:"),
        (&["watermarks", "--from", &source], "It fits: vm.min_free_kbytes is"),
        (&["watermarks", "--ram", "8GiB"], "Whether the host's reserve fits is not known:"),
        (&["watermarks", "--ram", "8GiB", "--burst", "2GiB"], "It does not fit: the burst takes"),
    ] {
        let text = out(&size(question));
        assert!(text.lines().nth(1).unwrap().starts_with(verdict), "{verdict}: {text}");
        let json: serde_json::Value =
            serde_json::from_str(&out(&size(&[question, &["--json"]].concat()))).unwrap();
        let known = !verdict.starts_with("Whether");
        assert_eq!(json["fit"]["fits"].is_boolean(), known, "{json}");
    }
}

#[test]
fn a_database_that_forks_is_sized_without_system_v_segments() {
    // A real PostgreSQL of 2 GB that needed 1,064 pages and fell back to base pages.
    let source = fixture("rules/pool-too-small/fires-postgres-fell-back.txt");
    let text = out(&size(&["hugepages", "--from", &source]));
    assert!(text.contains("Reserve 1,064 huge pages of 2 MiB"), "{text}");
    assert!(text.contains("2,178,528 kB / 2,048 kB") && text.contains("memlock: none"), "{text}");
    let source = fixture("rules/no-hugepages-for-big-shm/fires-postgres.txt");
    let text = out(&size(&["hugepages", "--from", &source]));
    assert!(text.contains("Reserve 8,243 huge pages of 2 MiB"), "{text}");
}

#[test]
fn what_is_asked_about_a_saved_source_is_never_asked_of_this_host() {
    let directory = tempfile::tempdir().unwrap();
    let saved = directory.path().join("meminfo.txt");
    fs::write(&saved, "MemTotal: 16000000 kB\nMemFree: 100000 kB\nPageTables: 2000000 kB\n").unwrap();
    let saved = saved.to_str().unwrap();
    for (question, missing) in [
        (&["hugepages", "--segment", "1GiB"][..], "Not known, and not counted: anonymous memory,"),
        (&["pagetables", "1GiB"], "Not known, and not counted: anonymous memory,"),
        (&["swap"], "the source does not tell its swap (give --current SIZE)"),
        (&["overcommit"], "the source does not tell Committed_AS (give --committed SIZE)"),
        (&["overcommit", "--kernel", "4.4.0"], "which the source does not tell"),
        (&["watermarks"], "the source does not tell vm.min_free_kbytes (give --min-free SIZE)"),
    ] {
        let text = out(&size(&[question, &["--from", saved, "-v"]].concat()));
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(missing) && !flat.contains("--from-host"), "{text}");
    }
    let empty = directory.path().join("uptime.txt");
    fs::write(&empty, "MemFree: 100000 kB\nPageTables: 2000000 kB\n").unwrap();
    let said = refused(&size(&["swap", "--from", empty.to_str().unwrap()]));
    assert!(said.contains("--ram SIZE is missing; give it: the source does not tell MemTotal"), "{said}");

    let doctor = Command::new(env!("CARGO_BIN_EXE_lotsfree")).arg("doctor").arg(saved).output().unwrap();
    let report = String::from_utf8(doctor.stdout).unwrap();
    let flat = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&format!("lotsfree size hugepages --from {saved}")), "{report}");
}

#[test]
fn one_screen_by_default_and_all_of_it_with_verbose_and_in_json() {
    let source = fixture("hosts/6.12-2nodes-cgroup.txt");
    for question in [
        &["hugepages", "--segment", "64MiB", "--from", &source][..],
        &["hugepages", "--postgres-pages", "64", "--from", &source],
        &["pagetables", "16GiB", "--processes", "100", "--from", &source],
        &["swap", "--from", &source],
        &["overcommit", "--from", &source, "--wanted", "600MiB"],
        &["watermarks", "--from", &source],
        &["watermarks", "--ram", "1TiB", "--nodes", "4", "--burst", "2GiB"],
    ] {
        let brief = out(&size(question));
        assert!(brief.lines().count() <= 25, "{} lines:\n{brief}", brief.lines().count());
        assert!(brief.lines().last().unwrap().contains("more."), "{brief}");
        let whole = out(&size(&[question, &["-v"]].concat()));
        assert!(!whole.contains("With -v"), "{whole}");
        assert!(whole.lines().count() > brief.lines().count());
        let json: serde_json::Value =
            serde_json::from_str(&out(&size(&[question, &["--json"]].concat()))).unwrap();
        let flat = whole.split_whitespace().collect::<Vec<_>>().join(" ");
        for warning in json["warnings"].as_array().unwrap() {
            let warning = warning.as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(&warning), "{warning}");
        }
        for width in ["80", "100"] {
            let text = out(&size(&[question, &["--width", width]].concat()));
            let prose = text.lines().filter(|line| !line.starts_with("    ") && !line.contains("/etc/"));
            let widest = prose.map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width.parse().unwrap(), "{widest}:\n{text}");
        }
    }
}

#[test]
fn lines_to_reserve_a_pool_that_does_not_fit_are_not_offered() {
    let question = ["hugepages", "--segment", "8GiB", "--ram", "12GiB", "--others", "5GiB"];
    let text = out(&size(&question));
    assert!(text.lines().nth(1).unwrap().starts_with("It does not fit: pool 8.00 GiB of 12 GiB;"), "{text}");
    assert!(text.contains("Make the pool 1.60 GiB smaller, or add memory"), "{text}");
    assert!(!text.contains("vm.nr_hugepages ="), "{text}");
    assert!(out(&size(&[&question[..], &["-v"]].concat())).contains("vm.nr_hugepages = 4098"));
}
