//! `lotsfree lab --on cgroup` tells the group's own figures, and leaves nothing of it, whichever version the
//! control groups are of. Needs root.
//!
//! `cargo test` sees this host's version; `cargo xtask lab group 6.12` runs the same tests in a virtual
//! machine whose groups are of version 2.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is not tested, and what is measured, is said")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lotsfree_run::{Run, RunOn, State};

const ONE: &str = "/sys/fs/cgroup/memory";
const TWO: &str = "/sys/fs/cgroup";
const CONTROL: &str = "/sys/fs/cgroup/cgroup.subtree_control";
/// Settings that the scenario changes.
const SETTINGS: [&str; 3] =
    ["/proc/sys/vm/page-cluster", "/proc/sys/vm/dirty_bytes", "/proc/sys/vm/watermark_scale_factor"];
const LIMIT: u64 = 96 << 20;

/// A reader whose file is larger than the group, so that the group meets its limit whatever the speed.
const SCENARIO: &str = "title = \"Short\"\nseed = 1\nduration = \"4 s\"\ninterval = \"500 ms\"\n\
     [machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"96 MiB\"]\n\
     [tuning]\n\"vm.page-cluster\" = 5\n\"vm.dirty_bytes\" = 104857600\n\"vm.watermark_scale_factor\" = 15\n\
     [[actor]]\nname = \"app\"\nkind = \"app-server\"\nheap = \"16 MiB\"\nrate = 100\n\
     [[actor]]\nname = \"check\"\nkind = \"file-reader\"\nsize = \"128 MiB\"\nrepeat = 0\n\
     [measure]\nactor = \"app\"\nwindow = [\"1 s\", \"4 s\"]\n";

struct Bench {
    directory: tempfile::TempDir,
    before: Vec<String>,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// `None`, after a message, where no lab in a group can run.
    fn new() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let has_groups = is_one() || read(&Path::new(TWO).join("cgroup.controllers")).contains("memory");
        if !rustix::process::geteuid().is_root() || !has_groups {
            eprintln!("not tested: needs root, and control groups that hold memory");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = common::directory();
        fs::write(directory.path().join("short.toml"), SCENARIO).unwrap();
        fs::create_dir(directory.path().join("scratch")).unwrap();
        Some(Bench { directory, before: as_it_is(), _alone: alone })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn lotsfree(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        command.args(arguments).current_dir(self.directory.path()).env("LOTSFREE_STATE", self.path("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A lab whose run has begun, and the directory of its group.
    fn begun(&self) -> (Child, PathBuf) {
        let scratch = self.path("scratch").display().to_string();
        let arguments =
            ["lab", "short.toml", "--on", "cgroup", "--out", "runs", "--yes-really", "--dir", &scratch];
        let lab = self.lotsfree(&arguments).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(100);
        while !self.path("runs/base/journal").exists() || self.run().samples().len() < 3 {
            assert!(Instant::now() < deadline, "the run did not begin");
            std::thread::sleep(Duration::from_millis(50));
        }
        let [group] = &groups()[..] else { panic!("one group: {:?}", groups()) };
        (lab, group.clone())
    }

    fn run(&self) -> Run {
        Run::open(self.path("runs/base")).unwrap()
    }

    fn is_clean(&self) {
        assert_eq!(groups(), Vec::<PathBuf>::new());
        assert_eq!(as_it_is(), self.before);
        assert_eq!(fs::read_dir(self.path("scratch")).unwrap().count(), 0);
    }
}

fn is_one() -> bool {
    Path::new(ONE).join("memory.limit_in_bytes").exists()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// What a lab changes on this host.
fn as_it_is() -> Vec<String> {
    SETTINGS.iter().chain([&CONTROL]).map(|path| read(Path::new(path))).collect()
}

/// Groups that labs made.
fn groups() -> Vec<PathBuf> {
    let root = if is_one() { ONE } else { TWO };
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap());
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("lotsfree-lab-"));
    ours.map(|entry| entry.path()).collect()
}

#[test]
fn a_lab_in_a_group_of_either_version_tells_the_groups_figures() {
    let Some(bench) = Bench::new() else { return };
    let (lab, group) = bench.begun();
    let limit = if is_one() { "memory.limit_in_bytes" } else { "memory.max" };
    assert_eq!(read(&group.join(limit)), LIMIT.to_string());
    assert_eq!(read(&group.join("cgroup.procs")).lines().count(), 2, "both actors are in the group");
    let output = lab.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("vm.watermark_scale_factor has no effect on the group"), "{said}");
    assert_eq!(said.contains("vm.dirty_bytes acts on the group in proportion"), !is_one(), "{said}");

    let run = bench.run();
    assert_eq!((run.state(), run.facts().machine), (State::Complete, RunOn::Cgroup));
    let measured = run.summary().measured;
    let moved = &measured.moved;
    eprintln!("the group: {moved:?}");
    assert!(moved.limit_hits.is_some_and(|hits| hits > 0), "{moved:?}");
    // Version 1 does not say how much reclaim scanned, and neither says what devices read.
    assert_eq!(moved.direct_scan.is_some_and(|pages| pages > 0), !is_one(), "{moved:?}");
    assert_eq!(moved.kswapd_scan.is_some(), !is_one(), "{moved:?}");
    assert_eq!((moved.page_in, moved.allocstall), (None, None), "{moved:?}");
    assert!(measured.zones.is_empty(), "the zones are the host's: {:?}", measured.zones);
    assert!(measured.levels.contains_key("cgroup.inactive_file"), "{:?}", measured.levels);
    for (name, level) in &measured.levels {
        assert!(name.starts_with("cgroup.") && level.max <= LIMIT, "{name}: {level:?}");
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("the group met its limit"), "{text}");
    bench.is_clean();
}

#[test]
fn a_killed_lab_in_a_group_is_undone_by_restore() {
    let Some(bench) = Bench::new() else { return };
    let (mut lab, group) = bench.begun();
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert!(group.exists() && as_it_is() != bench.before);
    let restored = bench.lotsfree(&["lab", "restore"]).output().unwrap();
    let said = String::from_utf8(restored.stderr).unwrap();
    assert!(restored.status.success() && said.contains(&format!("{} removed", group.display())), "{said}");
    bench.is_clean();
}
