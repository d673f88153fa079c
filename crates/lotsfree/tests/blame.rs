//! `lotsfree blame`: of a run of the model, of this host where the kernel lets it, and when it is killed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what a host does not let be tested is said")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

fn lotsfree(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lotsfree")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether the kernel lets this user watch it.
fn may_watch() -> bool {
    let output = lotsfree(&["blame", "--for", "1s", "--json"]);
    match output.status.code() {
        Some(0) => {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let may = report["unwatched"].is_null();
            if !may {
                eprintln!("not tested: {}", report["not_seen"]);
            }
            may
        }
        code => {
            assert_eq!(code, Some(2), "{}", said(&output));
            assert!(said(&output).contains("tracepoint"), "{}", said(&output));
            eprintln!("not tested: {}", said(&output));
            false
        }
    }
}

#[test]
fn a_run_of_the_model_says_who_took() {
    let place = tempfile::tempdir().unwrap();
    let runs = place.path().join("runs");
    let runs = runs.to_str().unwrap();
    let output = lotsfree(&["sim", "quickstart", "--variant", "as-it-is", "-o", runs]);
    assert!(output.status.success(), "{}", said(&output));
    let run = format!("{runs}/as-it-is");
    let output = lotsfree(&["blame", "--run", &run, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "lotsfree.blame/1");
    let payer = &report["payers"][0];
    let shares: f64 =
        payer["taken_by"].as_array().unwrap().iter().map(|charge| charge["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{payer}");
    let name = payer["actor"].as_str().unwrap();
    let text = lotsfree(&["blame", "--run", &run, name]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with(&format!("{name} lost")), "{text}");
    let all = lotsfree(&["blame", "--run", &run]);
    let all = String::from_utf8(all.stdout).unwrap();
    assert!(all.contains("Who paid") && all.contains("Who took"), "{all}");
    let page = lotsfree(&["blame", "--run", &run, "--format", "html"]);
    assert!(String::from_utf8(page.stdout).unwrap().contains("</html>"));
    let output = lotsfree(&["blame", "--run", &run, "nobody-of-that-name"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains(name), "it names those that were seen: {}", said(&output));
}

#[test]
fn a_time_that_makes_no_sense_is_refused() {
    for time in ["0", "0.5s", "2h", "-3", "soon", "", "1e9", "nan"] {
        let output = lotsfree(&["blame", &format!("--for={time}")]);
        assert_eq!(output.status.code(), Some(2), "{time}");
        assert!(said(&output).contains("from 1s to 1h"), "{time}: {}", said(&output));
    }
}

#[test]
fn a_command_is_watched_from_its_start_to_its_end() {
    let _alone = ACCOUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    if !may_watch() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let kept = place.path().join("kept");
    let output = Command::new(env!("CARGO_BIN_EXE_lotsfree"))
        .args(["blame", "--json", "--keep"])
        .arg(&kept)
        .args(["--", "sh", "-c", "sleep 0.5; echo done"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (of_command, report) = text.split_once('\n').unwrap();
    assert_eq!(of_command, "done");
    let report: Value = serde_json::from_str(report).unwrap();
    assert_eq!(report["payers"].as_array().unwrap().len(), 0, "{report}");
    for command in [&["report", "--json"][..], &["blame", "--run"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_lotsfree")).args(command).arg(&kept).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", said(&output));
    }
}

/// What the report on a program says of it, and whether it lost anything.
fn verdict(report: &Value, program: &str) -> (bool, f64) {
    let named = |list: &Value| {
        let list = list.as_array().unwrap().clone();
        list.into_iter().find(|cost| cost["actor"].as_str().unwrap().starts_with(program))
    };
    let (paid, spared) = (named(&report["payers"]), named(&report["spared"]));
    let cost = paid.as_ref().or(spared.as_ref()).unwrap_or_else(|| panic!("{program}: {report}"));
    (paid.is_some(), cost["awake_ns"].as_f64().unwrap() / 1e9)
}

#[test]
fn an_ordinary_user_is_told_what_proc_says() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root can run a program as another user");
        return;
    }
    const NOBODY: u32 = 65534;
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("lotsfree");
    fs::copy(env!("CARGO_BIN_EXE_lotsfree"), &program).unwrap();
    for path in [place.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("blame").args(arguments).current_dir("/").uid(NOBODY).gid(NOBODY).output()
    };
    let Ok(output) = as_nobody(&["--json", "--for", "1s"]) else {
        eprintln!("not tested: an ordinary user cannot run programs there");
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    if report["unwatched"].is_null() {
        eprintln!("not tested: this host lets an ordinary user watch");
        return;
    }
    assert!(report["payers"].as_array().unwrap().is_empty(), "{report}");
    assert!(report["not_seen"][0].as_str().unwrap().contains("root"), "{report}");
    assert!(report["unwatched"]["seconds"].as_f64() >= Some(1.0), "{report}");
    let output = as_nobody(&["--", "sh", "-c", "echo done"]).unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(text.starts_with("done\n") && text.contains("; sh had"), "{text}{}", said(&output));
    let output = as_nobody(&["--for", "1s", "nobody-of-that-name"]).unwrap();
    assert!(
        output.status.code() == Some(2) && said(&output).contains("no such program"),
        "{}",
        said(&output)
    );
    // A run has rows of the tracepoints.
    let kept = place.path().join("kept");
    let output = as_nobody(&["--for", "1s", "--keep", kept.to_str().unwrap()]).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("tracepoints") && !kept.exists());
}

/// The kernel's delay accounting, which can be switched from 5.14 on.
const DELAY_ACCOUNTING: &str = "/proc/sys/kernel/task_delayacct";

/// Held while a command is watched, which switches delay accounting.
static ACCOUNTING: Mutex<()> = Mutex::new(());

/// Whether this user can switch delay accounting, which is off.
fn may_account() -> bool {
    let value = fs::read_to_string(DELAY_ACCOUNTING).unwrap_or_default();
    let may = value.trim() == "0" && rustix::process::geteuid().is_root() && may_watch();
    if !may {
        eprintln!("not tested: delay accounting cannot be switched on here");
    }
    may
}

#[test]
fn what_a_command_starts_counts_however_short_it_lives() {
    let _alone = ACCOUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    if !may_account() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let shell = renamed("sh", place.path(), "lf-many");
    let short = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
    // Some are the children of children, which are gone, too.
    let script = format!("for n in 1 2 3 4 5; do ( {short} ); ( ( {short} ); : ); done; times");
    let output = Command::new(env!("CARGO_BIN_EXE_lotsfree"))
        .args(["blame", "--json", "--"])
        .arg(&shell)
        .args(["-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_to_string(DELAY_ACCOUNTING).unwrap().trim(), "0", "it is put back");
    let text = String::from_utf8(output.stdout).unwrap();
    let (times, report) = text.split_at(text.find('{').unwrap());
    // `0m0.00s 0m0.00s` of the shell, then of its children.
    let times = times.split_ascii_whitespace().map(|time| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    });
    let spent: f64 = times.sum();
    let (_, awake) = verdict(&serde_json::from_str(report).unwrap(), "lf-many");
    assert!(spent > 0.1 && awake > 0.9 * spent, "awake for {awake} s, spent {spent} s");
}

/// Copies a program of the system under a name that nothing else on this host has.
fn renamed(program: &str, place: &Path, name: &str) -> std::path::PathBuf {
    let copy = place.join(name);
    fs::copy(format!("/bin/{program}"), &copy).unwrap();
    copy
}

#[test]
fn waiting_for_a_cpu_is_not_blamed_on_memory() {
    if !may_watch() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let spinner = renamed("sh", place.path(), "lf-spinner");
    let cpus = std::thread::available_parallelism().unwrap().get();
    let spin = || Command::new(&spinner).args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut spinners: Vec<_> = (0..2 * cpus).map(|_| spin()).collect();
    let output = lotsfree(&["blame", "lf-spinner", "--for", "3s", "--json"]);
    for spinner in &mut spinners {
        spinner.kill().unwrap();
        spinner.wait().unwrap();
    }
    assert!(output.status.success(), "{}", said(&output));
    let (paid, awake) = verdict(&serde_json::from_slice(&output.stdout).unwrap(), "lf-spinner");
    assert!(!paid && awake > 1.0, "awake for {awake} s, of which most waiting for a CPU");
}

#[test]
fn a_program_s_own_reads_of_new_data_are_not_blamed_on_memory() {
    let _alone = ACCOUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    if !may_watch() {
        return;
    }
    // Not in /tmp, which may be in memory.
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = place.path().join("new");
    fs::write(&file, vec![1; 128 << 20]).unwrap();
    let opened = fs::File::open(&file).unwrap();
    opened.sync_all().unwrap();
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let shell = renamed("sh", place.path(), "lf-reads");
    let script = format!("dd if={} of=/dev/null bs=64k 2>/dev/null; sleep 1", file.display());
    // The reading takes a tenth of a second, which with a smaller budget falls between two windows.
    let command = ["--", shell.to_str().unwrap(), "-c", &script];
    let output = lotsfree(&[&["blame", "--json", "--budget", "100"], &command[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let takers = report["takers"].as_array().unwrap();
    let taken = takers.iter().find(|taker| taker["actor"] == "lf-reads").unwrap_or(&Value::Null);
    assert!(taken["allocated_bytes"].as_f64() > Some(f64::from(32 << 20)), "it was read from disk: {report}");
    let payers = report["payers"].as_array().unwrap();
    assert!(!payers.iter().any(|payer| payer["actor"] == "lf-reads"), "{report}");
}

#[test]
fn a_kill_at_any_moment_leaves_the_host_as_it_was() {
    let _alone = ACCOUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    if !may_watch() {
        return;
    }
    let state = || {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let settings = ["task_delayacct", "perf_event_paranoid", "sched_schedstats", "ftrace_enabled"];
        let mut state = vec![read("/proc/self/mounts")];
        state.extend(settings.iter().map(|name| read(&format!("/proc/sys/kernel/{name}"))));
        state.push(format!("{:?}", fs::read_dir("/sys/kernel/tracing").map(Iterator::count).ok()));
        let events = Path::new("/sys/kernel/tracing/events/enable");
        state.push(fs::read_to_string(events).unwrap_or_default());
        state
    };
    let before = state();
    let kill_after = |arguments: &[&str], wait: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
        let mut child = command.arg("blame").args(arguments).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let moments = [0, 1, 3, 10, 30, 60, 100, 200, 400, 900];
    for wait in moments {
        kill_after(&["--for", "30s"], wait);
        assert_eq!(state(), before, "killed after {wait} ms");
    }
    for wait in moments {
        kill_after(&["--", "sleep", "3"], wait);
        // What puts delay accounting back is another process.
        let looks = std::iter::repeat_n(Duration::from_millis(50), 600);
        let is_back = || state() == before;
        assert!(looks.inspect(|time| std::thread::sleep(*time)).any(|_| is_back()), "{:?}", state());
    }
}
