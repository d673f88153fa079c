//! What address spaces cost on this host's kernel and on its model: one scenario, executed by both. Needs
//! root, and some GiB of memory that nobody uses.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is not tested is said")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use lotsfree_kernel_files::counters::{meminfo, status};
use lotsfree_run::{EventKind, Run};

/// Fifty processes on 1 GiB, one that touches 65,536 pages, and one that maps, touches and gives back huge
/// pages step by step. Nodes and generation are this host's.
const SCENARIO: &str = r#"
title    = "Address spaces of this host"
duration = "10 s"
interval = "250 ms"
base     = "4K"

[machine]
generation = "GENERATION"
cpus       = 2
nodes      = ["MEMORY GiB"]
swap       = { size = "0" }

[tuning]
"vm.nr_hugepages"      = 128
"vm.overcommit_memory" = 2
"vm.overcommit_ratio"  = 60

[[actor]]
name      = "sessions"
kind      = "sessions"
processes = 50
segment   = "1 GiB"
touch     = 1.0
stride    = "64 KiB"
idle      = "1 s"

[[actor]]
name = "toucher"
kind = "page-toucher"
size = "256 MiB"

[[actor]]
name     = "steps"
kind     = "allocator"
size     = "256 MiB"
chunk    = "64 MiB"
touch    = 0.5
touching = "at-the-end"
pause    = "1 s"
hold     = "1 s"
huge     = "2M"
start    = "1 s"

[[variant]]
name = "2M"
actor.sessions.backing = "shm-huge"
"vm.nr_hugepages" = 640
"#;

/// `Total`, `Free`, `Rsvd` and `Surp` of the pool whenever they changed.
fn pools(run: &Run) -> Vec<[u64; 4]> {
    let lines =
        [meminfo::HugePages_Total, meminfo::HugePages_Free, meminfo::HugePages_Rsvd, meminfo::HugePages_Surp];
    let samples = run.samples();
    let mut all: Vec<[u64; 4]> = (0..samples.len())
        .map(|row| lines.map(|line| samples.get(row).unwrap().meminfo.get(line).unwrap()))
        .collect();
    all.dedup();
    all
}

/// `PageTables` that came with the scenario, and the middle one of the sessions' `VmPTE`, both in KiB, at
/// their highest.
fn page_tables(run: &Run) -> (u64, u64) {
    let samples = run.samples();
    let tables = |row: usize| samples.get(row).unwrap().meminfo.get(meminfo::PageTables).unwrap();
    let most = (0..samples.len()).max_by_key(|row| tables(*row)).unwrap();
    let sample = samples.get(most).unwrap();
    let mut each: Vec<u64> =
        sample.processes.iter().filter_map(|one| one.status.get(status::VmPTE)).collect();
    each.sort_unstable();
    let own: u64 =
        samples.get(0).unwrap().processes.iter().filter_map(|one| one.status.get(status::VmPTE)).sum();
    (tables(most) - (tables(0) - own), each[each.len() / 2])
}

/// Faults between the two stages of the process that touches.
fn faults(run: &Run) -> u64 {
    let at = |stage: &str| {
        let marks = run.events().iter().filter(|event| event.kind == EventKind::Mark);
        let mut of = marks.filter(|event| event.actor.as_deref() == Some("toucher") && event.what == stage);
        of.next().and_then(|event| event.faults).unwrap()
    };
    at("touched") - at("mapped")
}

fn assert_close(what: &str, model: u64, kernel: u64) {
    let off = (model as f64 / kernel as f64 - 1.0).abs();
    assert!(off <= 0.02, "{what}: the model has {model} and this kernel {kernel}");
    eprintln!("{what}: the model {model}, this kernel {kernel}");
}

#[test]
fn the_model_of_this_host_has_the_page_tables_faults_and_pools_of_its_kernel() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: changing this host needs root");
        return;
    }
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let line = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let free = line("MemAvailable:");
    let nodes = Path::new("/sys/devices/system/node/node1").exists();
    if free < 6 << 20 || nodes || line("Hugepagesize:") != 2048 || line("HugePages_Total:") > 0 {
        eprintln!("not tested: it takes 6 GiB, one node, and no huge pages that are in use");
        return;
    }
    let directory = common::directory();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let (generation, _) = lotsfree_scenario::Generation::for_kernel(release.trim());
    let text = SCENARIO
        .replace("GENERATION", &generation.to_string())
        .replace("MEMORY", &(line("MemTotal:") >> 20).saturating_add(1).to_string());
    fs::write(directory.path().join("spaces.toml"), text).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        command
            .args(arguments)
            .current_dir(directory.path())
            .env("LOTSFREE_STATE", directory.path().join("state"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["lab", "spaces.toml", "--on", "host", "--yes-really", "--dir", ".", "-o", "kernel"]);
    run(&["sim", "spaces.toml", "--like", "kernel", "-o", "model"]);
    let open = |of: &str, variant: &str| Run::open(directory.path().join(of).join(variant)).unwrap();
    let both = |variant: &str| (open("model", variant), open("kernel", variant));
    for variant in ["4K", "2M"] {
        let (model, kernel) = both(variant);
        assert_close("faults of 65,536 pages", faults(&model), faults(&kernel));
        let limit = |run: &Run| run.samples().get(5).unwrap().meminfo.get(meminfo::CommitLimit);
        assert_eq!(limit(&model), limit(&kernel), "{variant}: CommitLimit in mode 2");
    }
    // What a program has beside the segment depends on how it was built.
    let (base, huge) = (both("4K"), both("2M"));
    let [model, kernel] = [(&base.0, &huge.0), (&base.1, &huge.1)].map(|(base, huge)| {
        let ((all, each), (all_huge, each_huge)) = (page_tables(base), page_tables(huge));
        assert!(each_huge < 200, "{each_huge} KiB in huge pages");
        (all - all_huge, each - each_huge)
    });
    assert_close("KiB of page tables that huge pages save, of all", model.0, kernel.0);
    assert_close("of one session", model.1, kernel.1);
    // 1 GiB has 512 tables of a page.
    assert!((2040..=2060).contains(&kernel.1), "{} KiB", kernel.1);
    // The kernel's pool takes every step that the model's takes, in their order, and others between.
    let (steps, all) = (pools(&base.0), pools(&base.1));
    let mut rest = all.iter();
    let is_there = steps.iter().all(|step| rest.any(|other| other == step));
    assert!(is_there, "the model's pool: {steps:?}; this kernel's: {all:?}");
    assert!(steps.contains(&[128, 128, 128, 0]) && steps.contains(&[128, 64, 64, 0]), "{steps:?}");
}
