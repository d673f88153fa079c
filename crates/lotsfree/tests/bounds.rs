//! Bounds on what each command takes of the host that it runs on: memory, open files and CPU time, on good
//! input and on input that was made to take more.
//!
//! The table is SPECIFICATION's. Limits are set by a shell before the program begins, so that exceeding one
//! ends it: a failed allocation by SIGABRT, CPU time by SIGXCPU.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Limits of a command.
#[derive(Clone, Copy)]
struct Bound {
    /// Address space in MiB. It includes 64 MiB for the heap of each thread, which are reserved and not used.
    memory: u64,
    files: u64,
    /// CPU time. Machines are shared, and the tests run an unoptimised program.
    seconds: u64,
}

/// `doctor` on saved data, and `size --from`.
const SAVED: Bound = Bound { memory: 1024, files: 32, seconds: 60 };
/// `doctor` on this host.
const LIVE: Bound = Bound { memory: 256, files: 32, seconds: 60 };
const SNAPSHOT: Bound = Bound { memory: 512, files: 32, seconds: 60 };
/// `report` and `compare` on runs of a few thousand samples; they read at most 4 GiB of any run.
const RUNS: Bound = Bound { memory: 256, files: 32, seconds: 60 };
/// `sim` with one thread, in addition to 0.6 % of the simulated memory.
const SIM: Bound = Bound { memory: 512, files: 32, seconds: 60 };
/// `explain`, `size`, `man`, `completions`, `sim --list`, `--help`.
const WORDS: Bound = Bound { memory: 128, files: 16, seconds: 10 };

const MIB: usize = 1 << 20;

/// A directory in which the program runs.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command under its bound. The command must exit by itself.
    #[track_caller]
    fn run(&self, bound: Bound, arguments: &[&str]) -> Output {
        let Bound { memory, files, seconds } = bound;
        let script = format!(
            "ulimit -c 0 && ulimit -v {} && ulimit -n {files} && ulimit -t {seconds} && exec \"$0\" \"$@\"",
            memory << 10
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_lotsfree")]).args(arguments);
        let output = command.current_dir(self.0.path()).stdin(Stdio::null()).output().unwrap();
        assert!(matches!(output.status.code(), Some(0..=2)), "{arguments:?}: {output:?}");
        output
    }

    #[track_caller]
    fn succeeds(&self, bound: Bound, arguments: &[&str]) {
        let output = self.run(bound, arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    }

    #[track_caller]
    fn refuses(&self, bound: Bound, arguments: &[&str]) {
        let output = self.run(bound, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.is_empty() && !said.contains("panicked"), "{arguments:?}: {said}");
    }

    /// A compressed archive of files, each with its contents.
    fn archive(&self, name: &str, files: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let compressed = zstd::stream::write::Encoder::new(File::create(self.at(name)).unwrap(), 1).unwrap();
        let mut tar = tar::Builder::new(compressed);
        for (path, contents) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(contents.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, format!("saved/{path}"), &contents[..]).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
    }

    /// A file of 8 GiB that takes no room on disk.
    fn sparse(&self, name: &str) {
        File::create(self.at(name)).unwrap().set_len(8 << 30).unwrap();
    }
}

/// A line repeated up to just below the longest file that an archive may hold.
fn repeated(line: &str) -> Vec<u8> {
    line.repeat((16 * MIB - 4096) / line.len()).into_bytes()
}

#[test]
fn what_only_prints_stays_within_its_bound() {
    let place = Place::new();
    for arguments in [
        &["explain"][..],
        &["explain", "--json"],
        &["size", "pagetables", "16GiB"],
        &["size", "hugepages", "--segment", "8GiB"],
        &["completions", "zsh"],
        &["man", "."],
        &["sim", "--list"],
        &["--help"],
    ] {
        place.succeeds(WORDS, arguments);
    }
}

#[test]
fn this_host_is_judged_and_captured_within_bounds() {
    let place = Place::new();
    place.run(LIVE, &["doctor", "--interval", "0.1"]);
    place.run(LIVE, &["doctor", "--interval", "0", "--format", "html"]);
    place.succeeds(SNAPSHOT, &["snapshot", "--samples", "2", "--interval", "0.1", "-o", "snapshot"]);
    place.run(SAVED, &["doctor", "snapshot"]);
    place.succeeds(SAVED, &["size", "pagetables", "16GiB", "--from", "snapshot"]);
}

#[test]
fn saved_data_is_judged_within_its_bound() {
    let place = Place::new();
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    for entry in fs::read_dir(hosts).unwrap() {
        let path = entry.unwrap().path();
        for format in ["text", "json", "html"] {
            place.run(SAVED, &["doctor", "--format", format, path.to_str().unwrap()]);
        }
    }
}

#[test]
fn hostile_archives_are_refused_or_judged_within_the_bound() {
    let place = Place::new();
    place.archive("bomb", (1..=20).map(|pid| (format!("proc/{pid}/smaps"), vec![0; 16 * MIB - 1])));
    place.refuses(SAVED, &["doctor", "bomb"]);

    // 240 MiB of valid lines.
    let zone = "Node 0, zone   Normal\n  pages free     4\n        min      1\n  cpu: 0\n    count: 1\n";
    let files = [
        ("proc/meminfo", "MemTotal: 16000000 kB\n"),
        ("proc/vmstat", "pgscan_direct 1234\n"),
        ("proc/zoneinfo", zone),
        ("proc/buddyinfo", "Node 0, zone      DMA      0      0 1 1 1 1 1 1 1 1 1\n"),
        (
            "proc/pagetypeinfo",
            "Node    0, zone      DMA, type    Unmovable      1      0 1 1 1 1 1 1 1 1 1\n",
        ),
        ("proc/slabinfo", "a 1 2 3 4 5 : tunables 1 1 1 : slabdata 1 1 1\n"),
        ("proc/swaps", "/dev/sda file 1 2 3\n"),
        ("proc/mounts", "/dev/sda / ext4 rw 0 0\n"),
        ("proc/diskstats", "8 0 sda 1 1 1 1 1 1 1 1 1 1 1\n"),
        ("proc/sysvipc/shm", "0 1 600 4096 1 1 0 0 0 0 0 0 0 0 4096 0\n"),
        ("proc/1/numa_maps", "7f0000000000 default anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n"),
        ("proc/1/smaps", "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \nRss: 4 kB\nSwap: 4 kB\n"),
        ("proc/1/status", "Name:\tx\nVmRSS:\t99 kB\n"),
        ("proc/1/stat", "1 (x) S 1 1 1 0 -1 0 1 0 1 0 1 1 1 1 20 0 1 0 1 1 1 1\n"),
        ("etc/sysctl.conf", "vm.swappiness = 10\n"),
    ];
    place.archive("large", files.map(|(path, line)| (path.to_owned(), repeated(line))));
    place.run(SAVED, &["doctor", "large"]);
    place.run(SAVED, &["size", "pagetables", "16GiB", "--from", "large"]);

    let processes = (1..20_000).flat_map(|pid| {
        let stat = format!("{pid} (x) S 1 1 1 0 -1 0 1 0 1 0 1 1 1 1 20 0 1 0 1 1 1 1\n");
        let status = format!("Name:\tx\nVmRSS:\t{pid} kB\n");
        [(format!("proc/{pid}/stat"), stat.into_bytes()), (format!("proc/{pid}/status"), status.into_bytes())]
    });
    place.archive("processes", processes);
    place.run(SAVED, &["doctor", "processes"]);

    let groups = (0..20_000).flat_map(|group| {
        let at = format!("sys/fs/cgroup/g{group}");
        [
            (format!("{at}/memory.current"), b"999999\n".to_vec()),
            (format!("{at}/memory.max"), b"1000000\n".to_vec()),
        ]
    });
    place.archive("groups", groups);
    place.run(SAVED, &["doctor", "groups"]);
}

#[test]
fn hostile_text_and_special_files_are_refused_within_the_bound() {
    let place = Place::new();
    fs::write(place.at("line"), vec![b'x'; 60 * MIB]).unwrap();
    place.refuses(SAVED, &["doctor", "line"]);
    // 23 MiB: an unoptimised program takes half a minute for them.
    let zones = "Node 0, zone   Normal\n  pages free     4\n".repeat(MIB / 2);
    fs::write(place.at("zones"), zones).unwrap();
    place.run(SAVED, &["doctor", "zones"]);
    let mut samples = "# Many instants.\n".to_owned();
    for at in 0..4096 {
        let _ = write!(
            samples,
            "-- {at}s/proc/vmstat --\npgscan_direct {at}\n-- {at}s/proc/meminfo --\nMemFree: 1 kB\n"
        );
    }
    fs::write(place.at("samples"), samples).unwrap();
    place.run(SAVED, &["doctor", "--format", "html", "samples"]);

    place.sparse("sparse");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, place.at("fifo"), mode).unwrap();
    for source in ["sparse", "fifo", "/dev/zero", "/dev/stdin", "/proc/self/mem"] {
        place.refuses(SAVED, &["doctor", source]);
        place.refuses(SAVED, &["size", "pagetables", "16GiB", "--from", source]);
        place.refuses(SIM, &["sim", if source.starts_with('/') { source } else { "./sparse" }]);
    }
    for scenario in ["sparse", "fifo"] {
        fs::rename(place.at(scenario), place.at(&format!("{scenario}.toml"))).unwrap();
        place.refuses(SIM, &["sim", &format!("./{scenario}.toml")]);
    }
}

/// A machine of 1 GiB that is filled.
const SCENARIO: &str = r#"
title    = "Fill"
seed     = 7
duration = "2 s"
interval = "100 ms"
base     = "as it is"

[machine]
generation = "linux-6.1"
cpus = 2
nodes = ["1 GiB"]
disk = { bandwidth = "2 GiB/s" }
swap = { size = "256 MiB", on = "disk" }

[[actor]]
name = "reader"
kind = "file-reader"
size = "1 GiB"

[[variant]]
name = "direct reads"
actor.reader.how = "direct"
"#;

#[test]
fn runs_are_made_and_compared_within_bounds_and_hostile_ones_refused() {
    let place = Place::new();
    fs::write(place.at("fill.toml"), SCENARIO).unwrap();
    place.succeeds(SIM, &["sim", "fill.toml", "--threads", "1", "-o", "runs"]);
    for format in ["text", "json", "html"] {
        place.succeeds(RUNS, &["report", "--format", format, "runs", "-o", "report"]);
    }
    place.succeeds(RUNS, &["compare", "runs"]);
    place.run(SAVED, &["doctor", "runs/as-it-is"]);

    let names = ["run.json", "scenario.toml", "samples.parquet", "actors.parquet", "events.jsonl"];
    for name in names {
        let file = format!("runs/as-it-is/{name}");
        fs::rename(place.at(&file), place.at("kept")).unwrap();
        for hostile in ["sparse", "fifo"] {
            match hostile {
                "sparse" => place.sparse(&file),
                _ => rustix::fs::mkfifoat(rustix::fs::CWD, place.at(&file), rustix::fs::Mode::RUSR).unwrap(),
            }
            for command in [&["report", "runs/as-it-is", "--format", "text"][..], &["compare", "runs"]] {
                // A FIFO in place of the head makes the directory no run.
                let none = (name, hostile) == ("run.json", "fifo");
                if !none || command[0] == "report" {
                    place.refuses(RUNS, command);
                }
            }
            fs::remove_file(place.at(&file)).unwrap();
        }
        fs::rename(place.at("kept"), place.at(&file)).unwrap();
    }
    place.succeeds(RUNS, &["compare", "runs"]);
}
