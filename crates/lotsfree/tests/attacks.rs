//! Attacks by another user on a lab that root runs, and on the files that it leaves. Needs root; the other
//! user is 65534.
//!
//! `LOTSFREE_PROGRAM` names another program to attack, such as an earlier release, which shows what each
//! attack did to it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is not tested is said")]

mod common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const OTHER: u32 = 65534;
/// How many pages a swap-in reads; harmless to change.
const SETTING: &str = "/proc/sys/vm/page-cluster";

const SCENARIO: &str = "title = \"Short\"\nseed = 1\nduration = \"2 s\"\ninterval = \"500 ms\"\n\
     [machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"256 MiB\"]\n\
     swap = { size = \"16 MiB\", on = \"disk\" }\n\
     [tuning]\n\"vm.page-cluster\" = 5\n\
     [[actor]]\nname = \"app\"\nkind = \"app-server\"\nheap = \"4 MiB\"\nrate = 100\n";

struct Bench {
    directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// `None` without root, after a message.
    fn new() -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested: being another user needs root");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = common::directory();
        fs::write(directory.path().join("short.toml"), SCENARIO).unwrap();
        fs::create_dir(directory.path().join("scratch")).unwrap();
        fs::create_dir(directory.path().join("state")).unwrap();
        Some(Bench { directory, _alone: alone })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let program = std::env::var_os("LOTSFREE_PROGRAM").unwrap_or(env!("CARGO_BIN_EXE_lotsfree").into());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.directory.path()).env("LOTSFREE_STATE", self.path("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn lab(&self) -> Command {
        self.command(&[
            "lab",
            "short.toml",
            "--on",
            "host",
            "--out",
            "runs",
            "--yes-really",
            "--dir",
            self.path("scratch").to_str().unwrap(),
        ])
    }

    fn restore(&self, more: &[&str]) -> Output {
        self.command(&[&["lab", "restore"], more].concat()).output().unwrap()
    }

    /// Asserts that restoring is refused with these words, and that the file stays unchanged.
    fn refuses(&self, file: &Path, words: &[&str]) {
        let before = fs::read(file);
        let output = self.restore(&[]);
        let said = says(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is not in {said}");
        }
        assert!(!said.contains("nothing was left behind"), "{said}");
        if let Ok(before) = before {
            assert_eq!(fs::read(file).unwrap(), before);
        }
    }
}

fn says(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A line of a journal as 0.1.0 wrote it.
fn written(path: &Path, before: &str) -> String {
    format!("{{\"change\":\"write\",\"path\":\"{}\",\"before\":\"{before}\"}}\n", path.display())
}

#[test]
fn the_labs_directory_is_private_and_swap_is_not_switched_on_by_name() {
    let Some(bench) = Bench::new() else { return };
    // The mode of /var/tmp.
    chmod(&bench.path("scratch"), 0o1777);
    let mut lab = bench.lab().spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let swaps = || fs::read_to_string("/proc/swaps").unwrap();
    while !swaps().contains(bench.path("scratch").to_str().unwrap()) {
        assert!(Instant::now() < deadline, "no swap");
        std::thread::sleep(Duration::from_millis(5));
    }
    let made: Vec<_> =
        fs::read_dir(bench.path("scratch")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [directory] = &made[..] else { panic!("{made:?}") };
    let name = directory.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("lotsfree-lab-") && !name.ends_with(&lab.id().to_string()), "{name}");
    assert_eq!((mode(directory), mode(&directory.join("swap"))), (0o700, 0o600));
    assert_eq!((mode(&bench.path("state")), mode(&bench.path("state/host.journal"))), (0o700, 0o600));
    assert!(lab.wait().unwrap().success());
    assert_eq!(fs::read_dir(bench.path("scratch")).unwrap().count(), 0);
}

#[test]
fn a_place_where_another_user_could_exchange_directories_is_refused() {
    let Some(bench) = Bench::new() else { return };
    let before = fs::read_to_string(SETTING).unwrap();
    for (owner, bits, why) in [(0, 0o777, "not sticky"), (OTHER, 0o755, "belongs to user 65534")] {
        chmod(&bench.path("scratch"), bits);
        chown(bench.path("scratch"), Some(owner), None).unwrap();
        let output = bench.lab().output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(says(&output).contains(why), "{}", says(&output));
        assert_eq!(fs::read_dir(bench.path("scratch")).unwrap().count(), 0);
    }
    assert_eq!(fs::read_to_string(SETTING).unwrap(), before);
}

#[test]
fn a_state_directory_of_another_user_is_refused_and_one_of_roots_tightened() {
    let Some(bench) = Bench::new() else { return };
    let state = bench.path("state");
    chmod(&state, 0o755);
    assert!(bench.restore(&[]).status.success());
    assert_eq!(mode(&state), 0o700);
    chown(&state, Some(OTHER), None).unwrap();
    bench.refuses(&bench.path("none"), &["belongs to user 65534"]);
    assert!(says(&bench.lab().output().unwrap()).contains("belongs to user 65534"));
    fs::remove_dir_all(&state).unwrap();
    fs::create_dir(bench.path("elsewhere")).unwrap();
    symlink(bench.path("elsewhere"), &state).unwrap();
    give(&state);
    assert_eq!(bench.restore(&[]).status.code(), Some(2));
    assert_eq!(fs::read_dir(bench.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_journal_of_another_user_is_not_obeyed() {
    let Some(bench) = Bench::new() else { return };
    let victim = bench.path("victim");
    fs::write(&victim, "mine").unwrap();
    for name in ["host.journal", "lab.journal", "process-1.journal"] {
        let journal = bench.path("state").join(name);
        fs::write(&journal, written(&victim, "theirs")).unwrap();
        give(&journal);
        bench.refuses(&journal, &[name, "belongs to user 65534"]);
        chown(&journal, Some(0), Some(0)).unwrap();
        chmod(&journal, 0o666);
        bench.refuses(&journal, &[name, "others may write to it"]);
        fs::remove_file(&journal).unwrap();
        fs::write(bench.path("theirs"), written(&victim, "theirs")).unwrap();
        symlink(bench.path("theirs"), &journal).unwrap();
        bench.refuses(&journal, &[name]);
        fs::remove_file(&journal).unwrap();
        // A FIFO; a program that opens it as a file hangs.
        rustix::fs::mkfifoat(rustix::fs::CWD, &journal, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        bench.refuses(&bench.path("none"), &[name]);
        fs::remove_file(&journal).unwrap();
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
}

#[test]
fn a_journal_of_roots_leads_to_settings_and_to_own_names_only() {
    let Some(bench) = Bench::new() else { return };
    let (victim, link) = (bench.path("victim"), bench.path("lotsfree-link"));
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "mine").unwrap();
    symlink(&victim, &link).unwrap();
    let journal = bench.path("state/lab.journal");
    let directory = |path: &Path| format!("{{\"change\":\"directory\",\"path\":\"{}\"}}\n", path.display());
    for text in [
        written(&victim.join("file"), "theirs"),
        written(Path::new("/proc/sys/../../etc/lotsfree-test"), "theirs"),
        directory(&victim),
        directory(&link),
        directory(&victim.join("lotsfree-x/..")),
    ] {
        fs::write(&journal, &text).unwrap();
        chmod(&journal, 0o600);
        let output = bench.restore(&["--yes"]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert_eq!(fs::read_to_string(&journal).unwrap(), text);
    }
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "mine");
}

#[test]
fn a_damaged_or_newer_journal_stays_to_the_byte() {
    let Some(bench) = Bench::new() else { return };
    let journal = bench.path("state/host.journal");
    for (text, words) in [
        ("lotsfree changes 2\nnobody knows\n", ["line 1", "version 2"]),
        ("lotsfree changes 1\n0123456789abcdef {}\nmore\n", ["line 2", "checksum"]),
        ("rubbish\n", ["line 1", "a journal begins with"]),
    ] {
        fs::write(&journal, text).unwrap();
        bench.refuses(&journal, &words);
        let output = bench.lab().output().unwrap();
        assert_eq!(output.status.code(), Some(2), "a lab begins beside it");
        assert_eq!(fs::read_to_string(&journal).unwrap(), text);
    }
    fs::remove_file(&journal).unwrap();
    let journal = bench.path("state/lab.journal");
    let text =
        written(Path::new(SETTING), "3") + "{\"change\":\"newer\"}\n" + &written(Path::new(SETTING), "3");
    fs::write(&journal, &text).unwrap();
    bench.refuses(&journal, &["lab.journal, line 2", "by hand"]);
    let listed = bench.restore(&["--list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(&format!("{SETTING} back to 3")) && listed.contains("line 2"), "{listed}");
}

#[test]
fn a_journal_without_a_version_is_undone_only_when_somebody_says_so() {
    let Some(bench) = Bench::new() else { return };
    let before = fs::read_to_string(SETTING).unwrap();
    fs::write(bench.path("state/lab.journal"), written(Path::new(SETTING), before.trim())).unwrap();
    // The modes that 0.1.0 used.
    chmod(&bench.path("state"), 0o755);
    chmod(&bench.path("state/lab.journal"), 0o644);
    // Anybody who could read the file may hold a lock on it.
    let foreign = File::open(bench.path("state/lab.journal")).unwrap();
    foreign.lock().unwrap();
    fs::write(SETTING, "5").unwrap();
    bench.refuses(&bench.path("state/lab.journal"), &["back to", "restore --yes"]);
    let still = fs::read_to_string(SETTING).unwrap();
    let output = bench.restore(&["--yes"]);
    let after = fs::read_to_string(SETTING).unwrap();
    fs::write(SETTING, &before).unwrap();
    assert_eq!((still.trim(), &after), ("5", &before), "{}", says(&output));
    assert!(!bench.path("state/lab.journal").exists());
}

#[test]
fn the_journal_of_0_1_0_can_still_be_read() {
    let Some(bench) = Bench::new() else { return };
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/0.1.0/lab.journal");
    fs::copy(fixture, bench.path("state/lab.journal")).unwrap();
    chmod(&bench.path("state/lab.journal"), 0o644);
    let listed = bench.restore(&["--list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("back to") && !listed.contains("not read"), "{listed}");
}

#[test]
fn nothing_is_written_through_what_another_user_planted() {
    let Some(bench) = Bench::new() else { return };
    let run = |arguments: &[&str]| bench.command(arguments).output().unwrap();
    fs::write(bench.path("tiny.toml"), SCENARIO.replace("swap = { size = \"16 MiB\", on = \"disk\" }\n", ""))
        .unwrap();
    assert!(run(&["sim", "tiny.toml", "-o", "good", "--threads", "1"]).status.success());
    let victim = bench.path("victim");
    // A directory of the other user, who may put anything into it.
    fs::create_dir(bench.path("theirs")).unwrap();
    chmod(&bench.path("theirs"), 0o777);
    give(&bench.path("theirs"));
    let commands: [(&[&str], &str); 6] = [
        (&["doctor", "--interval", "0", "-o", "theirs/page"], "theirs/page"),
        (&["report", "good", "-o", "theirs/page"], "theirs/page"),
        (&["snapshot", "-o", "theirs/page"], "theirs/page"),
        (&["man", "theirs"], "theirs/lotsfree.1"),
        (&["sim", "tiny.toml", "-o", "theirs/runs", "--threads", "1"], "theirs/runs/.base.partial"),
        (&["sim", "tiny.toml", "-o", "theirs/runs", "--threads", "1"], "theirs/runs/base"),
    ];
    for (arguments, planted) in commands {
        for kind in ["link to a file", "link to a directory", "link to nothing", "fifo", "directory"] {
            fs::create_dir_all(victim.join("inside")).unwrap();
            fs::write(victim.join("file"), "mine").unwrap();
            let place = bench.path(planted);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            match kind {
                "link to a file" => symlink(victim.join("file"), &place).unwrap(),
                "link to a directory" => symlink(victim.join("inside"), &place).unwrap(),
                "link to nothing" => symlink(victim.join("made"), &place).unwrap(),
                "fifo" => {
                    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                    rustix::fs::mkfifoat(rustix::fs::CWD, &place, mode).unwrap();
                }
                _ => fs::create_dir(&place).unwrap(),
            }
            give(&place);
            let output = run(arguments);
            let what = format!("{arguments:?}, {kind} at {planted}: {}", says(&output));
            assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "mine", "{what}");
            assert!(!victim.join("made").exists(), "{what}");
            // A run may go where a named link leads; its files then stay together.
            let followed = planted.ends_with("base") && kind == "link to a directory";
            assert!(followed || fs::read_dir(victim.join("inside")).unwrap().count() == 0, "{what}");
            assert!(output.status.success() || output.status.code() == Some(2), "{what}");
            let refused = output.status.code() == Some(2);
            assert!(refused || planted.ends_with("base"), "{what}");
            fs::remove_dir_all(&victim).unwrap();
            let _ = fs::remove_file(&place).or_else(|_| fs::remove_dir_all(&place));
            let _ = fs::remove_dir_all(bench.path("theirs/runs"));
        }
    }
}
