//! `lotsfree lab` on this host, mostly in cases of failure. Tests that change the host need root.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is not tested is said")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lotsfree_analysis::blame::{Blame, Who};
use lotsfree_lab::vm::Kernel;
use lotsfree_run::{EventKind, Run, State};
use rustix::process::{Pid, Signal, kill_process};

/// A setting that is harmless to change: how many pages a swap-in reads.
const SETTING: &str = "/proc/sys/vm/page-cluster";

const SCENARIO: &str = "title = \"Short\"\nseed = 1\nduration = \"4 s\"\ninterval = \"500 ms\"\n\
     [machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"256 MiB\"]\n\
     [tuning]\n\"vm.page-cluster\" = 5\n\
     [[actor]]\nname = \"app\"\nkind = \"app-server\"\nheap = \"20 MiB\"\nrate = 100\n\
     [[actor]]\nname = \"writer\"\nkind = \"file-writer\"\nsize = \"2 MiB\"\nstart = \"1 s\"\nsync = true\n";

/// A place for one test. It shares nothing of the host except its settings, so one test runs at a time.
struct Bench {
    directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// `None` without root, after a message.
    fn new() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested: changing this host needs root");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = common::directory();
        fs::write(directory.path().join("short.toml"), SCENARIO).unwrap();
        fs::create_dir(directory.path().join("scratch")).unwrap();
        Some(Bench { directory, _alone: alone })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        command.args(arguments).current_dir(self.directory.path());
        command.env("LOTSFREE_STATE", self.path("state")).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn lab(&self, more: &[&str]) -> Command {
        let dir = self.path("scratch");
        let mut arguments =
            vec!["lab", "short.toml", "--on", "host", "--out", "runs", "--yes-really", "--dir"];
        arguments.push(dir.to_str().unwrap());
        arguments.extend(more);
        self.command(&arguments)
    }

    fn run(&self) -> Run {
        Run::open(self.path("runs/base")).unwrap()
    }

    /// Asserts that nothing of a run is left.
    fn is_clean(&self, before: &str) {
        assert_eq!(fs::read_to_string(SETTING).unwrap(), before);
        let left: Vec<_> = fs::read_dir(self.path("scratch")).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(fs::read_to_string(self.path("state/host.journal")).unwrap(), "");
        let journals = fs::read_dir(self.path("state")).unwrap().count();
        assert_eq!(journals, 1, "a journal of a process is left");
    }
}

fn setting() -> String {
    fs::read_to_string(SETTING).unwrap()
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until the run has begun, and returns the ids of its agents, or of QEMU.
fn agents(bench: &Bench, lab: &Child) -> Vec<i32> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !bench.path("runs/base/journal").exists() || bench.run().samples().len() < 3 {
        assert!(Instant::now() < deadline, "the run did not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    // Each thread has children of its own.
    let threads = fs::read_dir(format!("/proc/{}/task", lab.id())).unwrap();
    let children = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("children")));
    let children: String = children.map(Result::unwrap_or_default).collect();
    children.split_ascii_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn kill(id: i32, signal: Signal) {
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[test]
fn a_run_on_this_host_is_complete_and_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let output = bench.lab(&[]).output().unwrap();
    assert!(output.status.success(), "{}", says(&output));
    let run = bench.run();
    assert_eq!(run.state(), State::Complete);
    assert_eq!(run.facts().sysctls["vm.page-cluster"], "5");
    assert_eq!(run.samples().len(), 9);
    let summary = run.summary();
    let app = &summary.whole.actors[0];
    assert!((300..=400).contains(&app.operations) && app.errors == 0, "{app:?}");
    assert!(app.minor_faults >= 20 * 256, "{app:?}");
    let written = run.events().iter().any(|event| event.kind == EventKind::Mark && event.what == "written");
    assert!(written, "{:?}", run.events());
    bench.is_clean(&before);
}

#[test]
fn what_would_be_changed_is_said_and_not_done() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let output = bench.lab(&["--dry-run"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("{SETTING}: {} to 5", before.trim())), "{text}");
    assert!(!bench.path("runs").exists() && !bench.path("state").exists());
    assert_eq!(setting(), before);
}

#[test]
fn an_interrupt_ends_the_run_early_and_puts_everything_back() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let lab = bench.lab(&[]).spawn().unwrap();
    agents(&bench, &lab);
    kill(lab.id().cast_signed(), Signal::INT);
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", says(&output));
    let run = bench.run();
    assert_eq!(run.state(), State::Interrupted);
    assert!(run.samples().len() >= 3);
    bench.is_clean(&before);
}

#[test]
fn an_agent_that_is_killed_is_an_event_and_the_run_goes_on() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let lab = bench.lab(&[]).spawn().unwrap();
    let agent = agents(&bench, &lab)[0];
    kill(agent, Signal::KILL);
    let output = lab.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", says(&output));
    let run = bench.run();
    assert_eq!(run.state(), State::Complete);
    let told = run.events().iter().any(|event| event.what == "ended by signal 9");
    assert!(told, "{:?}", run.events());
    bench.is_clean(&before);
}

#[test]
fn agents_have_no_privilege_but_to_lock_memory() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let lab = bench.lab(&[]).env("LOTSFREE_SECRET", "planted").spawn().unwrap();
    let agents = agents(&bench, &lab);
    assert_eq!(agents.len(), 2);
    for agent in agents {
        let read = |name: &str| fs::read_to_string(format!("/proc/{agent}/{name}")).unwrap();
        let (status, limits) = (read("status"), read("limits"));
        // CAP_IPC_LOCK is the 14th.
        for line in [
            "NoNewPrivs:\t1",
            "CapInh:\t0000000000000000",
            "CapPrm:\t0000000000004000",
            "CapEff:\t0000000000004000",
            "CapBnd:\t0000000000000000",
            "CapAmb:\t0000000000000000",
        ] {
            assert!(status.contains(&format!("{line}\n")), "no {line}: {status}");
        }
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
        assert_eq!(read("environ"), "");
    }
    kill(lab.id().cast_signed(), Signal::INT);
    lab.wait_with_output().unwrap();
    bench.is_clean(&before);
}

/// Every operation of an agent works with the few capabilities that it has: locked memory beyond any limit,
/// and both kinds of shared memory that the lab holds.
#[test]
fn locked_and_shared_memory_work_without_other_privileges() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let mut scenario = SCENARIO.to_owned();
    for backing in ["shm", "tmpfs"] {
        scenario += &format!(
            "[[actor]]\nname = \"{backing}\"\nkind = \"sessions\"\nprocesses = 2\nsegment = \"8 MiB\"\n\
             backing = \"{backing}\"\n"
        );
    }
    for locked in ["before", "region"] {
        scenario += &format!(
            "[[actor]]\nname = \"{locked}\"\nkind = \"page-toucher\"\nsize = \"24 MiB\"\nlocked = \"{locked}\"\n"
        );
    }
    fs::write(bench.path("short.toml"), scenario).unwrap();
    // The limit without the capability is 64 KiB.
    let lab = bench.lab(&[]);
    let mut limited = Command::new("prlimit");
    limited.arg("--memlock=65536").arg(lab.get_program()).args(lab.get_args());
    limited.current_dir(bench.path("")).env("LOTSFREE_STATE", bench.path("state"));
    let output = limited.output().unwrap();
    assert!(output.status.success(), "{}", says(&output));
    let run = bench.run();
    assert_eq!(run.state(), State::Complete);
    let errors: Vec<_> = run.events().iter().filter(|event| event.kind == EventKind::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    bench.is_clean(&before);
}

/// A command that shows what it is given, and leaves a process behind.
const COMMAND: &str = "[[actor]]\nname = \"backup\"\nkind = \"exec\"\ntimes = 2\ncommand = [\"sh\", \"-c\", \
     \"sleep 600 & touch left; cat /proc/self/status; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; \
     echo \\\"$(id -u) $(pwd) $(ls) $(grep -c Cap.*0000000000000000 /proc/self/status) ${LOTSFREE_SECRET:-none}\\\" >&2; exit 3\"]\n";

#[test]
fn a_command_runs_as_nobody_only_if_it_is_allowed_and_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    fs::write(bench.path("short.toml"), format!("{SCENARIO}{COMMAND}")).unwrap();
    let output = bench.lab(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(says(&output).contains("; allow it with --allow-exec"), "{}", says(&output));
    assert!(!bench.path("runs/base").exists());

    let output = bench.lab(&["--allow-exec"]).env("LOTSFREE_SECRET", "planted").output().unwrap();
    assert!(output.status.success(), "{}", says(&output));
    let run = bench.run();
    let told = run.events().iter().find(|event| event.kind == EventKind::Error).unwrap();
    let (user, said) =
        told.what.strip_prefix("command: sh exited with 3: ").unwrap().split_once(' ').unwrap();
    assert!(user.parse::<u32>().unwrap() > 1000, "{user}");
    assert!(said.contains("/lotsfree-exec-") && said.ends_with("/work left 5 none"), "{said}");
    let summary = run.summary();
    let backup = summary.whole.actors.iter().find(|actor| actor.actor == "backup").unwrap();
    assert_eq!((backup.operations, backup.errors), (0, 2), "{backup:?}");
    assert!(backup.spent.user > 0 && backup.minor_faults > 100, "{backup:?}");
    bench.is_clean(&before);
}

#[test]
fn a_command_and_its_processes_end_with_the_lab() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let command = "[[actor]]\nname = \"backup\"\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \
         \"setsid sleep 7654 & wait\"]\n";
    fs::write(bench.path("short.toml"), format!("{SCENARIO}{command}")).unwrap();
    let sleeping = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
        lines.filter(|line| line.starts_with(b"sleep\x007654")).count()
    };
    let mut lab = bench.lab(&["--allow-exec"]).spawn().unwrap();
    agents(&bench, &lab);
    assert_eq!(sleeping(), 1);
    lab.kill().unwrap();
    lab.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while sleeping() > 0 {
        assert!(Instant::now() < deadline, "a process of the command outlives the lab");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(bench.command(&["lab", "restore"]).output().unwrap().status.success());
    bench.is_clean(&before);
}

#[test]
fn after_a_kill_the_next_lab_or_restore_puts_everything_back() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let mut lab = bench.lab(&[]).spawn().unwrap();
    let agents = agents(&bench, &lab);
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert_eq!(setting().trim(), "5");
    // The agents ended with the lab.
    let deadline = Instant::now() + Duration::from_secs(10);
    while agents.iter().any(|id| is_alive(*id)) {
        assert!(Instant::now() < deadline, "agents outlive the lab");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The part of the run that was written can be read.
    assert!(bench.run().samples().len() >= 3);
    let output = bench.command(&["lab", "restore"]).output().unwrap();
    assert!(output.status.success());
    assert!(says(&output).contains(&format!("{SETTING} back to {}", before.trim())), "{}", says(&output));
    bench.is_clean(&before);
    let again = bench.command(&["lab", "restore"]).output().unwrap();
    assert!(says(&again).contains("nothing was left behind"), "{}", says(&again));
}

/// Whether a process runs. A zombie does not: nobody may wait for one whose parent is gone.
fn is_alive(id: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn files_in_memory_are_refused() {
    let Some(bench) = Bench::new() else { return };
    if !Path::new("/dev/shm").is_dir() {
        return;
    }
    let arguments =
        ["lab", "short.toml", "--on", "host", "--out", "runs", "--yes-really", "--dir", "/dev/shm"];
    let output = bench.command(&arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(says(&output).contains("keeps files in memory; name a directory on a disk with --dir"));
}

#[test]
fn without_qemu_the_error_says_what_to_install() {
    let Some(bench) = Bench::new() else { return };
    let kernel = bench.path("vmlinuz");
    fs::write(&kernel, image()).unwrap();
    let kernel = kernel.to_str().unwrap();
    let arguments =
        ["lab", "short.toml", "--on", "vm", "--out", "runs", "--kernel", kernel, "--accel", "tcg"];
    let output = bench.command(&arguments).env("PATH", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(says(&output).contains("apt-get install"), "{}", says(&output));
}

/// The header of a kernel's image, and nothing else.
fn image() -> Vec<u8> {
    let mut image = vec![0; 0x400];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x80_u16.to_le_bytes());
    image[0x280..0x286].copy_from_slice(b"6.1.0\0");
    image
}

/// Puts a program that everybody may execute in the place of QEMU; returns the `PATH` where it is found.
fn instead_of_qemu(bench: &Bench, script: &str) -> std::ffi::OsString {
    let programs = bench.path("programs");
    fs::create_dir(&programs).unwrap();
    let program = programs.join("qemu-system-x86_64");
    fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    let everybody = rustix::fs::Mode::from_raw_mode(0o755);
    rustix::fs::chmod(&program, everybody).unwrap();
    rustix::fs::chmod(bench.directory.path(), everybody).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path))).unwrap()
}

fn in_a_virtual_machine(bench: &Bench, kernel: &str) -> Command {
    let scratch = bench.path("scratch");
    fs::create_dir_all(&scratch).unwrap();
    let scratch = scratch.to_str().unwrap();
    let arguments =
        ["lab", "short.toml", "--out", "runs", "--accel", "tcg", "--kernel", kernel, "--dir", scratch];
    bench.command(&arguments)
}

/// A program in the place of QEMU that prints its identity and limits; its messages are part of the error.
const TELLS: &str = "\
    case \"$*\" in *--version*) echo fake; exit 0;; *'-machine help') exit 0;; esac\n\
    exec >&2\n\
    cat /proc/self/status /proc/self/limits\n\
    env\n\
    ls .\n\
    echo \"arguments: $*\"\n\
    for word; do case $word in /proc/self/fd/*) echo \"begins: $(head -c 6 $word)\";; esac; done\n\
    exit 3\n";

#[test]
fn qemu_is_no_user_s_and_needs_no_path() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("vmlinuz"), image()).unwrap();
    let path = instead_of_qemu(&bench, TELLS);
    let kernel = bench.path("vmlinuz");
    let mut lab = in_a_virtual_machine(&bench, kernel.to_str().unwrap());
    let output = lab.env("PATH", &path).env("LOTSFREE_SECRET", "planted").output().unwrap();
    // Messages escape special characters.
    let text = says(&output).replace("\\n", "\n").replace("\\t", "\t");
    assert!(text.contains("exit status: 3"), "{text}");
    for line in [
        "NoNewPrivs:\t1",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "begins: 070701",
        "arguments: -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny -add-fd ",
        "Permission denied",
    ] {
        assert!(text.contains(line), "no {line}: {text}");
    }
    let user = text.lines().find_map(|line| line.strip_prefix("Uid:\t")).unwrap();
    let user: u32 = user.split('\t').next().unwrap().parse().unwrap();
    assert!(user == 65_533 || (1_879_048_192..1_883_242_496).contains(&user), "{user}");
    assert!(text.contains("Groups:\t \n"), "{text}");
    assert!(!text.contains("planted") && !text.contains("HOME="), "{text}");
    let words: Vec<&str> =
        text.lines().find(|line| line.contains("arguments: ")).unwrap().split(' ').collect();
    let paths: Vec<&&str> =
        words.iter().filter(|word| word.contains(bench.path("").to_str().unwrap())).collect();
    assert!(paths.is_empty(), "{paths:?}");
    // 256 MiB, the need of QEMU, and two CPUs.
    let limit = text.lines().find(|line| line.contains("Max address space")).unwrap();
    let limit: u64 = limit.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((256 << 20..4 << 30).contains(&limit), "{limit}");
    assert_eq!(fs::read_dir(bench.path("scratch")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(bench.path("state")).unwrap().count(), 0);
}

#[test]
fn a_qemu_that_only_root_may_execute_is_an_error_that_says_so() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("vmlinuz"), image()).unwrap();
    instead_of_qemu(&bench, TELLS);
    rustix::fs::chmod(bench.directory.path(), rustix::fs::Mode::RWXU).unwrap();
    let kernel = bench.path("vmlinuz");
    // A `PATH` without another QEMU.
    let path = bench.path("programs");
    let output = in_a_virtual_machine(&bench, kernel.to_str().unwrap()).env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(says(&output).contains("only root may execute it"), "{}", says(&output));
}

#[test]
fn root_boots_no_kernel_that_somebody_else_could_exchange() {
    let Some(bench) = Bench::new() else { return };
    let kernels = bench.path("kernels");
    fs::create_dir_all(kernels.join("6.1.0/lib/modules/6.1.0")).unwrap();
    fs::write(kernels.join("6.1.0/vmlinuz"), image()).unwrap();
    rustix::fs::chmod(&kernels, rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    let mut lab = bench.command(&["lab", "short.toml", "--out", "runs", "--accel", "tcg"]);
    let output = lab.env("LOTSFREE_LAB_KERNELS", &kernels).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = says(&output);
    assert!(text.contains("root boots no kernel that somebody else could exchange"), "{text}");
    assert!(text.contains("not sticky") && text.contains("a virtual machine needs no root"), "{text}");
}

#[test]
fn a_kernel_without_end_or_that_is_a_fifo_is_an_error() {
    let Some(bench) = Bench::new() else { return };
    let (long, fifo) = (bench.path("long"), bench.path("fifo"));
    fs::write(&long, image()).unwrap();
    fs::File::options().write(true).open(&long).unwrap().set_len(100 << 30).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    for (kernel, why) in [(long, "longer than 256 MiB"), (fifo, "a FIFO, not a regular file")] {
        let output = in_a_virtual_machine(&bench, kernel.to_str().unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(says(&output).contains(why), "{}", says(&output));
    }
}

#[test]
fn a_kernel_that_is_not_there_is_an_error_that_says_how_to_get_one() {
    let Some(bench) = Bench::new() else { return };
    let arguments = ["lab", "short.toml", "--out", "runs"];
    let output = bench.command(&arguments).env("LOTSFREE_LAB_KERNELS", bench.path("none")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(says(&output).contains("lotsfree lab kernel 6.1"), "{}", says(&output));
}

#[test]
fn who_names_a_kernel_and_another_generation_for_the_scenario_gets_a_run_and_no_refusal() {
    let directory = common::directory();
    fs::write(directory.path().join("short.toml"), SCENARIO).unwrap();
    let kernel = directory.path().join("kernel");
    fs::create_dir_all(kernel.join("lib/modules/6.1.0")).unwrap();
    fs::write(kernel.join("vmlinuz"), image()).unwrap();
    let lab = |set: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        command.args(["lab", "short.toml", "--dry-run", "--kernel"]).arg(&kernel).args(set);
        let output = command.current_dir(directory.path()).output().unwrap();
        (says(&output), String::from_utf8(output.stdout).unwrap())
    };
    let (before, after) = (lab(&[]), lab(&["--set", "generation=linux-6.12"]));
    assert!(format!("{before:?}").contains("6.1.0"), "{before:?}");
    assert_eq!(after, before);
}

#[test]
fn the_kernels_that_are_there_are_listed_and_none_is_downloaded_for_a_name_that_is_no_series() {
    let directory = common::directory();
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        command.args(["lab", "kernel"]).args(arguments);
        command.env("LOTSFREE_LAB_KERNELS", directory.path().join("kernels")).output().unwrap()
    };
    let none = lab(&[]);
    assert!(none.status.success() && none.stdout.is_empty(), "{none:?}");
    assert!(says(&none).contains("lotsfree lab kernel 6.1 downloads one"), "{}", says(&none));
    assert_eq!(lab(&["--json"]).stdout, b"[]\n");
    let kernel = directory.path().join("kernels/6.1.0");
    fs::create_dir_all(kernel.join("lib/modules/6.1.0")).unwrap();
    fs::write(kernel.join("vmlinuz"), image()).unwrap();
    fs::create_dir(directory.path().join("kernels/6.1.0-rc8")).unwrap();
    let listed = lab(&[]);
    let text = String::from_utf8(listed.stdout.clone()).unwrap();
    assert_eq!(text, format!("6.1.0: {}\n", kernel.display()));
    assert!(says(&listed).contains("6.1.0-rc8: no kernel: neither vmlinuz"), "{}", says(&listed));
    let wrong = lab(&["6.1.0-9-amd64"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(says(&wrong).contains("is no series of kernels: write 6.1 or 6.12"), "{}", says(&wrong));
}

/// A file system in memory of a given size in KiB, unmounted on drop.
struct Small(PathBuf);

impl Small {
    /// `None` if nothing can be mounted, after a message.
    fn new(place: PathBuf, kib: u32) -> Option<Self> {
        fs::create_dir(&place).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "lotsfree-test"]).arg(&place);
        match mount.status() {
            Ok(status) if status.success() => Some(Small(place)),
            _ => {
                eprintln!("not tested: nothing can be mounted here");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_ends_the_run_and_what_there_is_can_be_read() {
    let Some(bench) = Bench::new() else { return };
    let Some(full) = Small::new(bench.path("runs"), 96) else { return };
    let before = setting();
    let output = bench.lab(&["--set", "duration=60 s", "--set", "interval=100 ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", says(&output));
    assert!(says(&output).contains("No space left on device"), "{}", says(&output));
    assert!(bench.run().samples().len() >= 3);
    assert_ne!(bench.run().state(), State::Complete);
    bench.is_clean(&before);
    drop(full);
}

/// Runs the lab without a capability that it needs.
fn without(capability: &str, bench: &Bench, more: &[&str]) -> Output {
    let lab = bench.lab(more);
    let mut command = Command::new("setpriv");
    command.args([format!("--bounding-set=-{capability}"), format!("--inh-caps=-{capability}")]);
    command.arg(lab.get_program()).args(lab.get_args()).current_dir(bench.path(""));
    command.env("LOTSFREE_STATE", bench.path("state")).output().unwrap()
}

#[test]
fn swap_that_cannot_be_had_is_an_error_and_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let output =
        without("sys_admin", &bench, &["--set", "machine.swap={ size = \"64 MiB\", on = \"disk\" }"]);
    assert_eq!(output.status.code(), Some(2), "{}", says(&output));
    let text = says(&output);
    assert!(text.contains("swapon") && text.contains("Operation not permitted"), "{text}");
    assert!(!bench.path("runs/base").exists(), "nothing was run");
    bench.is_clean(&before);
}

#[test]
fn without_permission_nothing_is_changed() {
    let Some(_alone) = Bench::new() else { return };
    // The program may lie where only root can look; everybody may use a copy.
    let program = std::env::temp_dir().join(format!("lotsfree-{}", std::process::id()));
    fs::copy(env!("CARGO_BIN_EXE_lotsfree"), &program).unwrap();
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(home.path().join("short.toml"), SCENARIO).unwrap();
    rustix::fs::chmod(home.path(), rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
    let before = setting();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    command.args(["lab", "short.toml", "--on", "host", "--out", "runs", "--yes-really", "--dir"]);
    command.arg(home.path()).current_dir(home.path()).env("LOTSFREE_STATE", home.path().join("state"));
    let output = command.output().unwrap();
    fs::remove_file(&program).unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", says(&output));
    assert!(says(&output).contains("root"), "{}", says(&output));
    assert!(!home.path().join("runs/base").exists());
    assert_eq!(setting(), before);
}

/// The kernel for tests of virtual machines; `None` if they are not requested.
fn virtual_machines() -> Option<String> {
    if std::env::var_os("LOTSFREE_LAB").is_none() {
        eprintln!("not tested: virtual machines; set LOTSFREE_LAB=1");
        return None;
    }
    Some(std::env::var("LOTSFREE_LAB_KERNEL").unwrap_or("6.1".to_owned()))
}

/// Starts a virtual machine that runs the scenario for a minute, and waits until the run has begun.
fn begun(bench: &Bench, kernel: &str) -> (Child, i32) {
    let scratch = bench.path("scratch");
    let dir = scratch.to_str().unwrap();
    let arguments =
        ["lab", "short.toml", "--kernel", kernel, "--set", "duration=60 s", "--out", "runs", "--dir", dir];
    let lab = bench.command(&arguments).spawn().unwrap();
    let guests = agents(bench, &lab);
    assert_eq!(guests.len(), 1);
    (lab, guests[0])
}

#[test]
fn a_virtual_machine_that_is_interrupted_tells_what_it_has() {
    let (Some(bench), Some(kernel)) = (Bench::new(), virtual_machines()) else { return };
    let (lab, guest) = begun(&bench, &kernel);
    kill(lab.id().cast_signed(), Signal::INT);
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", says(&output));
    assert_eq!(bench.run().state(), State::Interrupted);
    assert!(bench.run().samples().len() >= 3 && !is_alive(guest));
    assert_eq!(fs::read_dir(bench.path("scratch")).unwrap().count(), 0);
}

#[test]
fn a_virtual_machine_that_loses_power_leaves_a_run_that_can_be_read() {
    let (Some(bench), Some(kernel)) = (Bench::new(), virtual_machines()) else { return };
    let (lab, guest) = begun(&bench, &kernel);
    kill(guest, Signal::KILL);
    let output = lab.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", says(&output));
    assert!(says(&output).contains("SIGKILL"), "{}", says(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("was killed from outside"), "{text}");
    let run = bench.run();
    assert_eq!(run.state(), State::Interrupted);
    assert!(run.samples().len() >= 3);
    let (end, last) = (*run.samples().times().last().unwrap(), run.events().last().unwrap());
    assert_eq!((last.kind, last.actor.as_deref(), last.at), (EventKind::Error, None, end));
    assert!(run.remarks()[0].starts_with("the run broke off after"), "{:?}", run.remarks());
    assert_eq!(fs::read_dir(bench.path("scratch")).unwrap().count(), 0);
}

/// A program that reads at random a file that fits into memory, and a backup that does not.
const BESIDE: &str = "title = \"Beside a backup\"\nseed = 1\nduration = \"30 s\"\n\
     [machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"512 MiB\"]\n\
     disk = { latency = \"200 us\", bandwidth = \"200 MiB/s\" }\n\
     [[file]]\nname = \"data\"\nsize = \"240 MiB\"\n\
     [[actor]]\nname = \"db\"\nkind = \"file-reader\"\nfile = \"data\"\nchunk = \"16 KiB\"\norder = \"random\"\n\
     repeat = 0\nthink = \"100 us\"\n\
     [[actor]]\nname = \"backup\"\nkind = \"file-reader\"\nsize = \"2 GiB\"\nstart = \"12 s\"\nrepeat = 0\n\
     [measure]\nwindow = [\"12 s\", \"30 s\"]\n";

#[test]
fn a_lab_says_who_took_memory_as_the_model_does() {
    let (Some(bench), Some(kernel)) = (Bench::new(), virtual_machines()) else { return };
    fs::write(bench.path("beside.toml"), BESIDE).unwrap();
    let scratch = bench.path("scratch");
    let lab = ["lab", "beside.toml", "--blame", "--kernel", &kernel, "--out", "lab", "--dir"];
    let sim = ["sim", "beside.toml", "--out", "sim"];
    let commands = [bench.command(&lab).arg(&scratch).output(), bench.command(&sim).output()];
    for output in commands.map(Result::unwrap) {
        assert!(output.status.success(), "{}", says(&output));
    }
    for place in ["lab/base", "sim/base"] {
        let blame = Blame::of(&Run::open(bench.path(place)).unwrap(), Some("db"));
        let payer = blame.payers.first().unwrap_or_else(|| panic!("{place}: {blame:?}"));
        let first = payer.taken_by.first().unwrap();
        assert_eq!(first.who, Who::Actor("backup".to_owned()), "{place}: {blame:?}");
        assert!(first.share > 0.9, "{place}: {blame:?}");
    }
}

#[test]
fn a_lab_on_this_host_counts_what_its_actors_take() {
    let Some(bench) = Bench::new() else { return };
    // On a host that is busy meanwhile, the watch looks for 3 % of the time, in parts of up to 100 ms, and
    // may look away for three seconds on end: what it saw little of is done again, twice at most.
    let for_long = [
        "duration=\"14 s\"",
        "actor.writer.size=\"512 MiB\"",
        "actor.writer.rate=\"48 MiB/s\"",
        "actor.writer.sync=false",
    ];
    for again in [true, true, false] {
        let output = bench.lab(&["--blame"]).args(for_long.iter().flat_map(|set| ["--set", set])).output();
        let output = output.unwrap();
        if says(&output).contains("what memory costs cannot be seen") {
            eprintln!("not tested: {}", says(&output));
            return;
        }
        assert!(output.status.success(), "{}", says(&output));
        let run = bench.run();
        let taken = |actor: &str| -> u64 {
            let rows = run.intervals().iter().filter(|row| *row.actor == *actor);
            rows.map(|row| row.toll.allocated).sum()
        };
        // A write is of one MiB. The server's heap is filled before the run begins.
        let (writer, app) = (taken("writer"), taken("app"));
        let rows = run.intervals().iter().filter(|row| *row.actor == *"writer");
        let wrote = rows.map(|row| row.operations).sum::<u64>() * 256;
        if again && writer < wrote / 4 {
            eprintln!("{writer} pages of {wrote}: once more");
            fs::remove_dir_all(bench.path("runs")).unwrap();
            continue;
        }
        assert!(wrote > 0 && app < writer, "{wrote}, {writer} and {app}");
        assert!((wrote / 4..wrote * 3).contains(&writer), "{writer} pages of {wrote}");
        return;
    }
}

/// Makes a tree of links to the files of another one, except files whose names begin with `without`.
fn linked(from: &Path, to: &Path, without: &str) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            linked(&entry.path(), &to, without);
        } else if !entry.file_name().to_string_lossy().starts_with(without) {
            std::os::unix::fs::symlink(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_kernel_without_the_file_system_is_an_error_before_it_boots() {
    let (Some(bench), Some(kernel)) = (Bench::new(), virtual_machines()) else { return };
    let Kernel { image, release, modules, .. } = Kernel::find(&kernel).unwrap();
    let at = bench.path("kernel");
    linked(&modules.unwrap(), &at.join("lib/modules").join(&release), "xfs.ko");
    std::os::unix::fs::symlink(image, at.join("vmlinuz")).unwrap();
    let arguments =
        ["lab", "short.toml", "--out", "runs", "--set", "machine.disk.filesystem=xfs", "--kernel"];
    let output = bench.command(&arguments).arg(&at).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", says(&output));
    assert!(says(&output).contains("xfs"), "{}", says(&output));
    assert!(!bench.path("runs/base").exists());
}

#[test]
fn the_disks_of_a_virtual_machine_whose_lab_was_killed_go_with_the_next() {
    let (Some(bench), Some(kernel)) = (Bench::new(), virtual_machines()) else { return };
    let (mut lab, guest) = begun(&bench, &kernel);
    lab.kill().unwrap();
    lab.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_alive(guest) {
        assert!(Instant::now() < deadline, "QEMU outlives the lab");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_dir(bench.path("scratch")).unwrap().count(), 1);
    fs::remove_dir_all(bench.path("runs")).unwrap();
    // A QEMU without a filter for system calls, which is reported.
    let real = ["/usr/local/bin", "/usr/bin", "/bin"]
        .map(|directory| Path::new(directory).join("qemu-system-x86_64"));
    let real = real.iter().find(|path| path.exists()).unwrap().display();
    let path = instead_of_qemu(
        &bench,
        &format!(
            "case \"$*\" in *-sandbox*) echo '-sandbox support is not enabled' >&2; exit 1;; esac\n\
             exec {real} \"$@\"\n"
        ),
    );
    let output = in_a_virtual_machine(&bench, &kernel).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", says(&output));
    assert_eq!(fs::read_dir(bench.path("scratch")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(bench.path("state")).unwrap().count(), 0);
    let remarks = bench.run().facts().remarks.join("\n");
    assert!(
        remarks.contains("QEMU runs without a filter for its system calls: -sandbox support"),
        "{remarks}"
    );
}
