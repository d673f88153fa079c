//! Tests that boot virtual machines. They need QEMU and a kernel (`lotsfree lab kernel 6.1`), and without
//! KVM some minutes, so they run only with `LOTSFREE_LAB=1`.
#![allow(clippy::print_stderr, reason = "what is not tested, and what is measured, is said")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lotsfree_changes::{StateDirectory, Territory};
use lotsfree_lab::vm::{Accelerator, Guest, Kernel, Running};
use lotsfree_scenario::{Case, Scenario};

const LIMIT: Duration = Duration::from_secs(120);

fn wanted() -> bool {
    let wanted = std::env::var_os("LOTSFREE_LAB").is_some();
    if !wanted {
        eprintln!("not tested: virtual machines; set LOTSFREE_LAB=1");
    }
    wanted
}

/// The program of the guests, compiled once.
fn init() -> PathBuf {
    static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let compile = || {
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lab-guest-init");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guest/init.rs");
        let options = ["--edition", "2021", "-C", "target-feature=+crt-static", "-C", "opt-level=s"];
        let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
        let status = Command::new(rustc).args(options).arg("-o").arg(&program).arg(source).status();
        assert!(status.expect("rustc").success());
        program
    };
    PROGRAM.get_or_init(compile).clone()
}

fn case(machine: &str) -> Case {
    let text = format!(
        "title = \"x\"\nseed = 1\nduration = \"1 s\"\n[machine]\ngeneration = \"linux-6.1\"\n{machine}\n\
         [[actor]]\nname = \"a\"\nkind = \"file-writer\"\nsize = \"1 MiB\"\nrate = \"1 MiB/s\"\n"
    );
    let scenario = Scenario::parse(&text, "x.toml").expect("a scenario");
    scenario.cases(None).expect("cases").remove(0)
}

fn guest(machine: &str, arguments: &[&str]) -> Guest {
    let case = case(machine);
    let kernel = std::env::var("LOTSFREE_LAB_KERNEL").unwrap_or("linux-6.1".to_owned());
    let mut guest = Guest::new(&case, Kernel::find(&kernel).expect("a kernel"), init()).expect("a guest");
    guest.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    guest
}

/// The guest's messages until it waits for an answer.
fn said(running: &Running) -> String {
    let mut said = Vec::new();
    while !said.ends_with(b"\nend\n") {
        let mut buffer = [0; 4096];
        match running.data().read(&mut buffer).expect("readable") {
            0 => break,
            read => said.extend_from_slice(&buffer[..read]),
        }
    }
    String::from_utf8(said).expect("text")
}

fn look(guest: &Guest) -> String {
    let started = Instant::now();
    let running = guest.start(LIMIT).expect("started");
    let facts = running.facts().clone();
    let said = said(&running);
    eprintln!("{}: {} in {:.1} s\n{said}", facts.kernel, facts.accelerator, started.elapsed().as_secs_f64());
    let order: Vec<u8> = (0..=255).collect();
    // The guest may be gone; then `wait` below says so.
    let _ = running.data().write_all(&order);
    let ended = running.wait().unwrap_or_else(|error| panic!("{error}"));
    eprintln!("powered off after {:.1} s\n{}", ended.elapsed.as_secs_f64(), ended.console);
    said
}

#[test]
fn a_guest_has_the_machine_of_its_scenario() {
    if !wanted() {
        return;
    }
    let guest = guest(
        "cpus = [2, 1]\nnodes = [\"384 MiB\", \"256 MiB\"]\ndistance = 40\n\
         disk = { bandwidth = \"200 MiB/s\", iops = 2000 }\n\
         swap = { size = \"128 MiB\", latency = \"100 us\", bandwidth = \"100 MiB/s\" }",
        &["look"],
    );
    let said = look(&guest);
    for line in [
        "cpus 0-2",
        "node 0: cpus 0-1, distance 10 40",
        "node 1: cpus 2, distance 40 10",
        "files true",
        "swap Some(true)",
        "root rootfs / rootfs rw 0 0",
    ] {
        assert!(said.contains(&format!("{line}\n")), "no {line}: {said}");
    }
    let disk = |name: &str, kib: u64| {
        let mut lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.any(|words| words.ends_with(&[&kib.to_string(), name]))
    };
    assert!(disk("vda", 64 << 20) && disk("vdb", 128 << 10), "{said}");
    assert!(said.contains("/dev/vdb") && said.contains(&(128 * 1024 - 4).to_string()), "{said}");
}

#[test]
fn files_and_swap_can_share_a_disk() {
    if !wanted() {
        return;
    }
    for kind in ["xfs", "btrfs", "ext3", "ext4"] {
        let guest = guest(
            &format!(
                "cpus = 1\nnodes = [\"512 MiB\"]\nswap = {{ size = \"64 MiB\", on = \"disk\" }}\n\
                 disk = {{ latency = \"1 ms\", rotational = true, filesystem = \"{kind}\", size = \"1 GiB\" }}"
            ),
            &["look"],
        );
        match guest.start(Duration::ZERO) {
            Err(lotsfree_lab::vm::Error::NotStarted { program, .. }) => {
                eprintln!("not tested: {kind}, without {program}");
                continue;
            }
            other => drop(other),
        }
        let said = look(&guest);
        assert!(said.contains("files true\n") && said.contains("swap Some(true)\n"), "{said}");
        assert!(said.contains("vda1\n") && said.contains("vda2\n") && !said.contains("vdb"), "{said}");
    }
}

#[test]
fn virtual_time_has_one_cpu() {
    if !wanted() {
        return;
    }
    let mut one = guest("cpus = 1\nnodes = [\"512 MiB\"]", &["spin"]);
    one.accelerator = Some(Accelerator::Icount);
    let microseconds = || {
        let running = one.start(LIMIT).expect("started");
        let mut line = String::new();
        BufReader::new(running.data()).read_line(&mut line).expect("text");
        running.data().write_all(b"x").expect("written");
        running.wait().expect("powered off");
        line.trim().parse::<u64>().expect("a number")
    };
    let (first, second) = (microseconds(), microseconds());
    eprintln!("the same work in virtual time: {first} us, {second} us");
    assert!(first.abs_diff(second) * 100 < first, "{first} {second}");
    let mut two = guest("cpus = 2\nnodes = [\"512 MiB\"]", &["look"]);
    two.accelerator = Some(Accelerator::Icount);
    let error = two.start(LIMIT).unwrap_err().to_string();
    assert!(error.starts_with("2 CPUs: virtual time"), "{error}");
}

#[test]
fn the_data_channel_keeps_every_byte() {
    if !wanted() {
        return;
    }
    let size = 1 << 20;
    let running = guest("cpus = 1\nnodes = [\"512 MiB\"]", &["flood", &size.to_string()]);
    let running = running.start(LIMIT).expect("started");
    let mut bytes = vec![0; size];
    running.data().read_exact(&mut bytes[..1]).expect("data");
    let started = Instant::now();
    running.data().read_exact(&mut bytes[1..]).expect("data");
    let rate = size as f64 / started.elapsed().as_secs_f64();
    eprintln!("{}: {:.0} KiB/s", running.facts().accelerator, rate / 1024.0);
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
    running.data().write_all(b"x").expect("written");
    running.wait().expect("powered off");
}

#[test]
fn a_guest_that_is_lost_says_why() {
    if !wanted() {
        return;
    }
    let machine = "cpus = 1\nnodes = [\"256 MiB\"]";
    let error = guest(machine, &["exit"]).start(LIMIT).expect("started").wait().unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines[0].contains("Kernel panic - not syncing: Attempted to kill init!"), "{error}");
    assert!(lines[0].ends_with("; the last lines of its console:") && lines.len() > 2, "{error}");

    let scratch = tempfile::tempdir().expect("a directory");
    let mut hangs = guest(machine, &["hang"]);
    hangs.scratch = Some(scratch.path().to_owned());
    let running = hangs.start(Duration::from_secs(1)).expect("started");
    let mut nothing = Vec::new();
    running.data().read_to_end(&mut nothing).expect("ends with the guest");
    let error = running.wait().unwrap_err().to_string();
    assert!(error.starts_with("the virtual machine: not finished after 1 s"), "{error}");
    drop(hangs.start(LIMIT).expect("started"));
    assert_eq!(std::fs::read_dir(scratch.path()).expect("there").count(), 0);
}

#[test]
fn disks_are_throttled_when_asked() {
    if !wanted() {
        return;
    }
    let machine = "cpus = 1\nnodes = [\"512 MiB\"]\ndisk = { bandwidth = \"4 MiB/s\" }";
    let mut guest = guest(machine, &["write"]);
    guest.throttled = false;
    let running = guest.start(LIMIT).expect("started");
    let mut lines = BufReader::new(running.data()).lines();
    let mut milliseconds = || lines.next().expect("a line").expect("text").parse::<u64>().expect("a number");
    let fast = milliseconds();
    running.throttle().expect("throttled");
    running.throttle().expect("still");
    running.data().write_all(b"x").expect("written");
    let slow = milliseconds();
    running.data().write_all(b"x").expect("written");
    running.wait().expect("powered off");
    eprintln!("16 MiB: {fast} ms, throttled to 4 MiB/s {slow} ms");
    assert!(fast < slow && (3500..8000).contains(&slow), "{fast} {slow}");
}

/// Numbers of the processes whose current directory is below this one.
fn processes_below(scratch: &Path) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("there").flatten();
    let below = |process: &std::fs::DirEntry| {
        let directory = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
        directory != scratch && directory.starts_with(scratch)
    };
    processes.filter(below).filter_map(|process| process.file_name().to_string_lossy().parse().ok()).collect()
}

/// A figure of `/proc/PID/status` in MiB.
fn mib(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

#[test]
fn qemu_may_do_little_and_takes_little_beside_the_memory_of_the_guest() {
    if !wanted() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let mut guest = guest(
        "cpus = [1, 1]\nnodes = [\"384 MiB\", \"256 MiB\"]\n\
         swap = { size = \"128 MiB\", latency = \"100 us\", bandwidth = \"100 MiB/s\" }",
        &["look"],
    );
    guest.scratch = Some(scratch.path().to_owned());
    let running = guest.start(LIMIT).expect("started");
    assert!(running.facts().unfiltered.is_none(), "{:?}", running.facts().unfiltered);
    said(&running);
    let process = processes_below(scratch.path());
    assert_eq!(process.len(), 1);
    let proc = PathBuf::from(format!("/proc/{}", process[0]));
    let read = |path: &Path| std::fs::read_to_string(path).expect("readable");
    for task in std::fs::read_dir(proc.join("task")).expect("there").flatten() {
        let status = read(&task.path().join("status"));
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
            assert!(status.contains(line), "no {line}: {status}");
        }
    }
    let (status, limits) = (read(&proc.join("status")), read(&proc.join("limits")));
    if rustix::process::geteuid().is_root() {
        let user = (1_879_048_192 + std::process::id()).to_string();
        let lines = ["Uid:", "Gid:"].map(|name| format!("{name}\t{user}\t{user}\t{user}\t{user}\n"));
        for line in lines.iter().map(String::as_str).chain(["Groups:\t \n", "CapBnd:\t0000000000000000"]) {
            assert!(status.contains(line), "no {line}: {status}");
        }
    }
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], words[1], "{line}");
        words[0].parse::<u64>().expect("a number")
    };
    assert_eq!((limit("Max core file size"), limit("Max open files")), (0, 256));
    assert_eq!(limit("Max file size"), 64 << 30);
    let (bound, memory) = (limit("Max address space") >> 20, 640);
    let (peak, resident) = (mib(&status, "VmPeak:"), mib(&status, "VmHWM:"));
    eprintln!(
        "QEMU: {memory} MiB for the guest, address space {peak} of {bound} MiB, resident {resident} MiB"
    );
    assert!(peak <= bound && bound <= memory + 3072, "{peak} {bound}");
    let environment = read(&proc.join("environ"));
    let names: Vec<&str> =
        environment.split_terminator('\0').filter_map(|set| set.split('=').next()).collect();
    assert!(names.iter().all(|name| ["PATH", "MALLOC_ARENA_MAX"].contains(name)), "{names:?}");
    let _ = running.data().write_all(&(0..=255).collect::<Vec<u8>>());
    running.wait().unwrap_or_else(|error| panic!("{error}"));
}

/// Started as another process by the next test.
#[test]
fn a_guest_that_hangs() {
    let Some(scratch) = std::env::var_os("LOTSFREE_LAB_HANGS") else { return };
    let mut guest = guest("cpus = 1\nnodes = [\"256 MiB\"]", &["hang"]);
    guest.accelerator = Some(Accelerator::Tcg);
    guest.scratch = Some(scratch.into());
    let _ = guest.start(LIMIT).expect("started").wait();
}

#[test]
fn a_guest_dies_with_the_process_that_started_it_and_its_disks_can_be_swept() {
    if !wanted() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let state = scratch.path().join("state");
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "a_guest_that_hangs"])
        .env("LOTSFREE_LAB_HANGS", scratch.path())
        .env("LOTSFREE_STATE", &state)
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    until(|| processes_below(scratch.path()).len() == 1);
    child.kill().expect("killed");
    child.wait().expect("ended");
    until(|| processes_below(scratch.path()).is_empty());
    let count = |path: &Path| std::fs::read_dir(path).expect("there").count();
    // The state directory, and the disks.
    assert_eq!((count(scratch.path()), count(&state)), (2, 1));
    let mut swept = 0;
    StateDirectory::at(&state, Territory::host()).undo_abandoned(&mut |_| swept += 1).expect("swept");
    assert_eq!((count(scratch.path()), count(&state), swept), (1, 0, 1));
}

fn until(holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "not in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}
