//! A lab that is killed or fails at every step that it reaches: after `lotsfree lab restore` nothing of it is
//! left, and changes that an administrator made in between stay. Needs root.
//!
//! By default every eighth step is tried. With `LOTSFREE_KILLS=every` every step is, with and without a
//! change by an administrator (`cargo xtask attack`). If control groups are of version 2, the memory
//! controller, which a lab switches on, is among the changes that are undone (`cargo xtask attack vm 6.12`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what was done is said")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How many pages a swap-in reads; harmless to change.
const SETTING: &str = "/proc/sys/vm/page-cluster";
/// Two settings that clear each other.
const PAIR: [&str; 2] = ["/proc/sys/vm/dirty_background_ratio", "/proc/sys/vm/dirty_background_bytes"];
/// The root of control groups of version 2, and the file of the controllers that it passes to its children.
const GROUPS: &str = "/sys/fs/cgroup";
const CONTROL: &str = "/sys/fs/cgroup/cgroup.subtree_control";
/// A group that an administrator creates.
const ANOTHER: &str = "/sys/fs/cgroup/another";

/// The scenario without its swap, which needs a file system that can hold a swap file.
const SCENARIO: &str = "title = \"Short\"\nseed = 1\nduration = \"200 ms\"\ninterval = \"100 ms\"\n\
     [machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"256 MiB\"]\n\
     SWAP\n\
     [tuning]\n\"vm.page-cluster\" = 5\n\"vm.dirty_background_bytes\" = 104857600\n\
     [[actor]]\nname = \"app\"\nkind = \"app-server\"\nheap = \"4 MiB\"\nrate = 100\n\
     [[actor]]\nname = \"writer\"\nkind = \"file-writer\"\nsize = \"1 MiB\"\nsync = true\n";

/// `TMPFS_MAGIC` and `RAMFS_MAGIC` of `include/uapi/linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let directory = common::directory();
        let file_system = rustix::fs::statfs(directory.path()).unwrap().f_type;
        let swap = if [TMPFS, RAMFS].contains(&file_system) {
            ""
        } else {
            "swap = { size = \"16 MiB\", on = \"disk\" }"
        };
        fs::write(directory.path().join("short.toml"), SCENARIO.replace("SWAP", swap)).unwrap();
        fs::create_dir(directory.path().join("scratch")).unwrap();
        Bench(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lotsfree(&self, arguments: &[&str], environment: &[(&str, String)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        command.args(arguments).current_dir(self.0.path()).env("LOTSFREE_STATE", self.path("state"));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn lab(&self, on: &str, environment: &[(&str, String)]) -> Output {
        let scratch = self.path("scratch");
        let arguments = ["lab", "short.toml", "--on", on, "--out", "runs", "--yes-really", "--dir"];
        self.lotsfree(&[&arguments[..], &[scratch.to_str().unwrap()]].concat(), environment)
    }

    /// The steps of a whole run, as `NUMBER OPERATION PATH`.
    fn steps(&self, on: &str) -> Vec<String> {
        let log = self.path("steps");
        let output = self.lab(on, &[("LOTSFREE_FAULT_LOG", log.display().to_string())]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let steps = fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
        fs::remove_file(log).unwrap();
        steps
    }

    /// Undoes the changes that a lab left, and checks that all of them are gone. With `administrator`,
    /// somebody else first sets the settings that the lab had set or was about to set, and relies on a
    /// controller that the lab switched on.
    fn restore(&self, step: &str, before: &[String; 3], administrator: bool) {
        let mut relies = false;
        if administrator {
            fs::write(SETTING, "7").unwrap();
            fs::write(PAIR[0], "9").unwrap();
            relies = rely_on_controller();
        }
        let restored = self.lotsfree(&["lab", "restore"], &[]);
        if relies {
            assert_eq!(read(&format!("{ANOTHER}/memory.low")), PROTECTED, "{step}");
            fs::remove_dir(ANOTHER).unwrap();
            fs::write(CONTROL, "-memory").unwrap();
        }
        let found = [SETTING, PAIR[0], PAIR[1]].map(read);
        if administrator {
            fs::write(SETTING, &before[0]).unwrap();
            let in_force = usize::from(before[1] == "0");
            fs::write(PAIR[in_force], &before[1 + in_force]).unwrap();
            assert_eq!(found, ["7", "9", "0"], "{step}");
        } else {
            assert_eq!(found, *before, "{step}");
        }
        assert!(restored.status.success(), "{step}: {}", String::from_utf8_lossy(&restored.stderr));
        self.is_clean(step);
        let again = self.lotsfree(&["lab", "restore"], &[]);
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        assert!(said.contains("nothing was left behind"), "{step}: {said}");
    }

    /// Asserts that nothing of a lab is left on this host.
    fn is_clean(&self, step: &str) {
        let left: Vec<_> = fs::read_dir(self.path("scratch")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{step}: {left:?}");
        let swaps = fs::read_to_string("/proc/swaps").unwrap();
        assert!(!swaps.contains(self.0.path().to_str().unwrap()), "{step}: {swaps}");
        let groups = groups().map(fs::read_dir).into_iter().flatten().flatten().flatten();
        let ours = |name: &str| name.starts_with("lotsfree-");
        assert!(!groups.into_iter().any(|entry| entry.file_name().to_str().is_some_and(ours)), "{step}");
        assert!(fs::read_to_string(CONTROL).is_ok_and(|on| !on.contains("memory")) || one(), "{step}");
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Some(id) = agent() {
            assert!(Instant::now() < deadline, "{step}: agent {id} is left");
            std::thread::sleep(Duration::from_millis(10));
        }
        let state = self.path("state");
        let journals = || fs::read_dir(&state).into_iter().flatten().flatten().map(|entry| entry.path());
        assert!(journals().all(|path| fs::read(path).unwrap().is_empty()), "{step}");
    }
}

/// Bytes of a group's memory that an administrator protects.
const PROTECTED: &str = "1048576";

/// Acts as an administrator who creates a group and sets a value in it that needs a controller that a lab
/// switched on. Returns whether the lab had switched it on.
fn rely_on_controller() -> bool {
    if one() || !fs::read_to_string(CONTROL).is_ok_and(|on| on.contains("memory")) {
        return false;
    }
    fs::create_dir(ANOTHER).unwrap();
    fs::write(Path::new(ANOTHER).join("memory.low"), PROTECTED).unwrap();
    true
}

/// Whether the groups that hold memory are of version 1.
fn one() -> bool {
    Path::new(GROUPS).join("memory").is_dir()
}

/// The directory in which groups that hold memory are created; `None` if an administrator uses those of
/// version 2.
fn groups() -> Option<PathBuf> {
    let groups = Path::new(GROUPS);
    if one() {
        return Some(groups.join("memory"));
    }
    let controllers = fs::read_to_string(groups.join("cgroup.controllers")).unwrap_or_default();
    let unused = !fs::read_to_string(CONTROL).is_ok_and(|on| on.contains("memory"));
    (controllers.contains("memory") && unused).then(|| groups.to_owned())
}

/// A process of this program that is an agent and has not ended.
fn agent() -> Option<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_lotsfree"));
    fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let id = entry.file_name().into_string().ok().filter(|name| name.parse::<u32>().is_ok())?;
        let arguments = fs::read(entry.path().join("cmdline")).ok()?;
        let mut arguments = arguments.split(|byte| *byte == 0);
        let is_program = arguments.next().is_some_and(|name| name == program.as_os_str().as_encoded_bytes());
        (is_program && arguments.next() == Some(b"agent")).then_some(id)
    })
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap().trim().to_owned()
}

/// A bench, or `None` after a message if this host cannot be changed. One lab runs at a time, whatever the
/// number of test threads.
fn alone(on: &str) -> Option<(Bench, std::sync::MutexGuard<'static, ()>)> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    if !rustix::process::geteuid().is_root() || (on == "cgroup" && groups().is_none()) {
        eprintln!("not tested: changing this host needs root, and control groups that hold memory");
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Some((Bench::new(), alone))
}

/// The steps that are tried, with their numbers.
fn tried(steps: &[String]) -> impl Iterator<Item = (usize, &String)> {
    let stride = if every() { 1 } else { 8 };
    (1..).zip(steps).skip(stride - 1).step_by(stride)
}

fn every() -> bool {
    std::env::var_os("LOTSFREE_KILLS").is_some_and(|kills| kills == "every")
}

fn kill_at_every_step(on: &str) {
    let Some((bench, _alone)) = alone(on) else { return };
    let before = [SETTING, PAIR[0], PAIR[1]].map(read);
    let steps = bench.steps(on);
    bench.is_clean("the whole run");
    assert_eq!([SETTING, PAIR[0], PAIR[1]].map(read), before);
    let mut kills = 0;
    for (number, step) in tried(&steps) {
        let administrators: &[bool] = if every() { &[false, true] } else { &[number / 8 % 2 == 0] };
        for administrator in administrators {
            let output = bench.lab(on, &[("LOTSFREE_FAULT", format!("kill:{number}"))]);
            // The number of rows of a run depends on its duration, so the last steps may not be reached.
            let killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
            assert!(killed || number + 10 > steps.len(), "{step}: {output:?}");
            kills += usize::from(killed);
            bench.restore(step, &before, *administrator);
        }
    }
    eprintln!("--on {on}: {kills} kills at {} steps", steps.len());
    assert!(kills > 0);
}

#[test]
fn a_lab_on_this_host_can_be_killed_at_every_step() {
    kill_at_every_step("host");
}

#[test]
fn a_lab_in_a_control_group_can_be_killed_at_every_step() {
    kill_at_every_step("cgroup");
}

#[test]
fn a_lab_that_fails_at_a_step_says_so_and_what_it_could_not_undo_is_undone_by_restore() {
    let Some((bench, _alone)) = alone("cgroup") else { return };
    let before = [SETTING, PAIR[0], PAIR[1]].map(read);
    let steps = bench.steps("cgroup");
    let mut failures = 0;
    for (number, step) in tried(&steps) {
        // The step fails once, or it and all later ones fail, as on a full disk.
        for kind in ["fail", "from"] {
            let log = bench.path("reached");
            let environment = [
                ("LOTSFREE_FAULT", format!("{kind}:{number}")),
                ("LOTSFREE_FAULT_LOG", log.display().to_string()),
            ];
            let output = bench.lab("cgroup", &environment);
            let reached = fs::read_to_string(&log).unwrap().lines().count();
            fs::remove_file(log).unwrap();
            assert!(reached >= number || number + 10 > steps.len(), "{kind}:{number} was not reached");
            if reached < number {
                continue;
            }
            failures += 1;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(matches!(output.status.code(), Some(0 | 2)), "{kind} {step}: {said}");
            // A failure without a message was made up for: the journal line that says that a change is
            // undone.
            let told = said.contains("No space left on device");
            assert!(told || output.status.code() == Some(0), "{kind} {step}: {said}");
            bench.restore(step, &before, false);
        }
    }
    eprintln!("{failures} failures at {} steps", steps.len());
    assert!(failures > 0);
}
