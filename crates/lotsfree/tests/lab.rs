//! `lotsfree lab` on this host, above all when things go wrong. What changes the host needs root.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is not tested is said")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lotsfree_run::{EventKind, Run, State};
use rustix::process::{Pid, Signal, kill_process};

/// A setting that is harmless to change: how many pages a swap-in reads.
const SETTING: &str = "/proc/sys/vm/page-cluster";

const SCENARIO: &str = "title = \"Short\"\nseed = 1\nduration = \"4 s\"\ninterval = \"500 ms\"\n\
     [machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"256 MiB\"]\n\
     [tuning]\n\"vm.page-cluster\" = 5\n\
     [[actor]]\nname = \"app\"\nkind = \"app-server\"\nheap = \"20 MiB\"\nrate = 100\n\
     [[actor]]\nname = \"writer\"\nkind = \"file-writer\"\nsize = \"2 MiB\"\nstart = \"1 s\"\nsync = true\n";

/// A place for one test, in which nothing of the host is shared but its settings: one test at a time.
struct Bench {
    directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// `None` without root, which is said.
    fn new() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested: changing this host needs root");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(directory.path().join("short.toml"), SCENARIO).unwrap();
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

    /// Nothing of a run is left.
    fn is_clean(&self, before: &str) {
        assert_eq!(fs::read_to_string(SETTING).unwrap(), before);
        let left: Vec<_> = fs::read_dir(self.path("scratch")).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(fs::read_to_string(self.path("state/lab.journal")).unwrap(), "");
    }
}

fn setting() -> String {
    fs::read_to_string(SETTING).unwrap()
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until the run has begun, and returns the ids of its agents.
fn agents(bench: &Bench, lab: &Child) -> Vec<i32> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !bench.path("runs/base/journal").exists() || bench.run().samples().len() < 3 {
        assert!(Instant::now() < deadline, "the run did not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    let children = format!("/proc/{0}/task/{0}/children", lab.id());
    let children = fs::read_to_string(children).unwrap_or_default();
    children.split_ascii_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn kill(id: i32, signal: Signal) {
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[test]
fn a_run_on_this_host_is_complete_and_leaves_nothing_behind() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    fs::create_dir(bench.path("scratch")).unwrap();
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
fn after_a_kill_the_next_lab_or_restore_puts_everything_back() {
    let Some(bench) = Bench::new() else { return };
    let before = setting();
    let mut lab = bench.lab(&[]).spawn().unwrap();
    let agents = agents(&bench, &lab);
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert_eq!(setting().trim(), "5");
    // The agents went with it.
    let deadline = Instant::now() + Duration::from_secs(10);
    while agents.iter().any(|id| is_alive(*id)) {
        assert!(Instant::now() < deadline, "agents outlive the lab");
        std::thread::sleep(Duration::from_millis(20));
    }
    // What there is of the run can be read.
    assert!(bench.run().samples().len() >= 3);
    let output = bench.command(&["lab", "restore"]).output().unwrap();
    assert!(output.status.success());
    assert!(says(&output).contains(&format!("{SETTING} back to {}", before.trim())), "{}", says(&output));
    bench.is_clean(&before);
    let again = bench.command(&["lab", "restore"]).output().unwrap();
    assert!(says(&again).contains("nothing was left behind"), "{}", says(&again));
}

/// Ended processes whose parent is gone may be waited for by nobody.
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
    let mut image = vec![0; 0x400];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x80_u16.to_le_bytes());
    image[0x280..0x286].copy_from_slice(b"6.1.0\0");
    fs::write(&kernel, image).unwrap();
    let kernel = kernel.to_str().unwrap();
    let arguments =
        ["lab", "short.toml", "--on", "vm", "--out", "runs", "--kernel", kernel, "--accel", "tcg"];
    let output = bench.command(&arguments).env("PATH", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(says(&output).contains("apt-get install"), "{}", says(&output));
}

#[test]
fn a_kernel_that_is_not_there_is_an_error_that_says_how_to_get_one() {
    let Some(bench) = Bench::new() else { return };
    let arguments = ["lab", "short.toml", "--out", "runs"];
    let output = bench.command(&arguments).env("LOTSFREE_LAB_KERNELS", bench.path("none")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(says(&output).contains("cargo xtask lab-kernel 6.1"), "{}", says(&output));
}
