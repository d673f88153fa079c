//! Every path that a command of root opens, creates, renames or removes, as strace shows it, is in a table.
//! It says who could plant something there and which test does so. Needs root and strace.
//!
//! An operation that is not in the table fails here. `LOTSFREE_KILLS` adds `lab calibrate`, `LOTSFREE_LAB` a
//! virtual machine; both take long.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is not tested is said")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

const SCENARIO: &str = "title = \"Short\"\nseed = 1\nduration = \"200 ms\"\ninterval = \"100 ms\"\n\
     [machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"256 MiB\"]\n\
     swap = { size = \"16 MiB\", on = \"disk\" }\n\
     [tuning]\n\"vm.page-cluster\" = 5\n\
     [[actor]]\nname = \"app\"\nkind = \"app-server\"\nheap = \"4 MiB\"\nrate = 100\n\
     [[actor]]\nname = \"writer\"\nkind = \"file-writer\"\nsize = \"1 MiB\"\nsync = true\n";

const EXPERIMENT: &str = "repeats = 1\n[[experiment]]\nname = \"short\"\nscenario = \"short.toml\"\nGENERATIONS\n\
     about = \"How far the model is from the kernel in a run of a moment.\"\n";

/// Operation on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    Opens,
    Writes,
    Makes,
    Renames,
    Removes,
    Swaps,
}

struct Bench(tempfile::TempDir);

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Executes a command under strace, and adds its operations to `found`.
    fn trace(&self, arguments: &[&str], found: &mut BTreeMap<(String, Done), String>) {
        let log = self.path("strace");
        let mut command = Command::new("strace");
        command.args(["-f", "-y", "-s", "4096", "-e", "trace=%file,swapon,swapoff", "-o"]).arg(&log);
        command.arg(env!("CARGO_BIN_EXE_lotsfree")).args(arguments).current_dir(self.0.path());
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", self.path("home"));
        command.env("LOTSFREE_STATE", self.path("state")).env("TMPDIR", self.path("scratch"));
        command.env("XDG_CACHE_HOME", &*CACHE);
        let output = command.stdin(Stdio::null()).output().unwrap();
        // Exit code 1: the doctor found something.
        let ended = matches!(output.status.code(), Some(0 | 1));
        assert!(ended, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        for line in fs::read_to_string(&log).unwrap_or_default().lines() {
            for (done, path) in calls(line) {
                if let Some(place) = self.place(&path) {
                    found.entry((place, done)).or_insert_with(|| arguments.join(" "));
                }
            }
        }
        fs::remove_file(log).unwrap();
    }

    /// The name of a path in the table; `None` for the program itself.
    fn place(&self, path: &str) -> Option<String> {
        let work = self.0.path().to_str().unwrap();
        if let Some(rest) = path.strip_prefix(work) {
            let rest = rest.trim_start_matches('/');
            let parts: Vec<String> = rest.split('/').map(unlike_others).collect();
            let (first, rest) = parts.split_first()?;
            let rest = rest.join("/");
            return Some(match first.as_str() {
                "state" | "scratch" | "home" => format!("{}/{rest}", first.to_uppercase()),
                "runs" | "lab-runs" | "lab-vm" => format!("OUT/{rest}"),
                "" => "WORK".to_owned(),
                other => format!("WORK/{other}"),
            });
        }
        if work.starts_with(path)
            || path == env!("CARGO_BIN_EXE_lotsfree")
            || path.starts_with("/proc/self/exe")
        {
            return None;
        }
        if let Some(rest) = path.strip_prefix("/sys/fs/cgroup") {
            let own = rest.split('/').position(|part| part.starts_with("lotsfree-"));
            return Some(if own.is_some() { "GROUPS/lotsfree-lab-*" } else { "/sys" }.to_owned());
        }
        let root: String = path.split('/').take(2).collect::<Vec<_>>().join("/");
        Some(match root.as_str() {
            "/lib" | "/lib64" | "/bin" | "/sbin" => "/usr".to_owned(),
            // The cache and the directories above it, whose owners could replace it.
            "/root" | "/home" if path.contains("/.cache/lotsfree") || CACHE.starts_with(path) => {
                "KERNELS".to_owned()
            }
            "/var" if path.starts_with("/var/log") => "/var/log".to_owned(),
            "" => "/".to_owned(),
            _ if MOUNTS.contains(path) => "MOUNTS".to_owned(),
            _ => root,
        })
    }
}

/// Directory of the kernels.
static CACHE: LazyLock<PathBuf> =
    LazyLock::new(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache"));

/// Directories on which file systems are mounted.
static MOUNTS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let text = fs::read_to_string("/proc/self/mounts").unwrap();
    text.lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(|place| place.trim_end_matches('/').to_owned())
        .collect()
});

/// A name without the parts that are different each time.
fn unlike_others(name: &str) -> String {
    let is_random = |part: &str| part.len() == 12 && part.chars().all(|c| c.is_ascii_alphanumeric());
    let parts: Vec<&str> = name.split('-').collect();
    match parts.as_slice() {
        ["", "lotsfree", rest] | [".lotsfree", rest] if rest.ends_with(".tmp") => {
            ".lotsfree-*.tmp".to_owned()
        }
        ["lotsfree", what, rest] if is_random(rest) => format!("lotsfree-{what}-*"),
        ["process", rest] if rest.ends_with(".journal") => "process-*.journal".to_owned(),
        _ if name.chars().all(|c| c.is_ascii_digit()) && !name.is_empty() => "N".to_owned(),
        _ => name.to_owned(),
    }
}

/// The operation in a line of strace's output, with its paths.
fn calls(line: &str) -> Vec<(Done, String)> {
    let Some((call, rest)) = line.split_once('(') else { return Vec::new() };
    let name = call.rsplit(' ').next().unwrap_or_default();
    let paths = paths(rest);
    let flags = |flag: &str| rest.contains(flag);
    let done = match name {
        "open" | "openat" | "openat2" if flags("O_CREAT") => Done::Makes,
        "open" | "openat" | "openat2" if flags("O_WRONLY") || flags("O_RDWR") => Done::Writes,
        "open" | "openat" | "openat2" | "execve" | "statx" | "stat" | "lstat" | "newfstatat" | "readlink"
        | "readlinkat" | "access" | "faccessat" | "faccessat2" | "statfs" | "chdir" => Done::Opens,
        "mkdir" | "mkdirat" | "symlink" | "symlinkat" | "link" | "linkat" | "mknod" | "mknodat" | "creat" => {
            Done::Makes
        }
        "rename" | "renameat" | "renameat2" => Done::Renames,
        "unlink" | "unlinkat" | "rmdir" => Done::Removes,
        "chmod" | "fchmodat" | "chown" | "lchown" | "fchownat" | "truncate" | "utimensat" => Done::Writes,
        "swapon" | "swapoff" => Done::Swaps,
        _ => return Vec::new(),
    };
    paths.into_iter().map(|path| (done, path)).collect()
}

/// The paths among the arguments of a call: `DIRECTORY<PATH>, "NAME"` or `"PATH"`.
fn paths(arguments: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut directory, mut rest) = (None, arguments);
    while let Some(at) = rest.find(['<', '"', ')']) {
        let (mark, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        match mark {
            b'<' => {
                let Some((path, after)) = after.split_once('>') else { break };
                directory = Some(path.to_owned());
                rest = after;
            }
            b'"' => {
                let Some((path, after)) = after.split_once('"') else { break };
                let path = match (&directory, path.starts_with('/')) {
                    (Some(directory), false) => format!("{directory}/{path}"),
                    _ => path.to_owned(),
                };
                if path.starts_with('/') {
                    found.push(path.trim_end_matches('/').to_owned());
                }
                rest = after;
            }
            _ => break,
        }
    }
    found
}

/// Places that commands of root use, who could plant something there, and the test that does so.
const TABLE: &[(&str, &str, &str)] = &[
    ("/", "nobody: only root may put anything there", ""),
    ("/dev", "nobody: only root may put anything there", ""),
    ("/etc", "nobody: only root may put anything there", ""),
    ("/usr", "nobody: only root may put anything there", ""),
    ("/run", "nobody: only root may put anything there", ""),
    ("/boot", "nobody: only root may put anything there", ""),
    ("/selinux", "nobody: only root may put anything there", ""),
    ("/var/log", "nobody: only root may put anything there", ""),
    ("/proc", "nobody: the kernel's", ""),
    ("/sys", "nobody: the kernel's", ""),
    ("MOUNTS", "who owns a mount point; it is looked at by statfs, never opened", ""),
    (
        "GROUPS",
        "nobody: only root may make groups; one that root made is not taken",
        "what_somebody_else_made_is_not_undone",
    ),
    (
        "STATE",
        "who owns or may write to the directory that is named",
        "a_state_directory_of_another_user_is_refused_and_one_of_roots_tightened",
    ),
    ("STATE", "whose journal it is", "a_journal_of_another_user_is_not_obeyed"),
    (
        "SCRATCH",
        "who could exchange what is made there",
        "a_place_where_another_user_could_exchange_directories_is_refused",
    ),
    (
        "SCRATCH/lotsfree-lab-*",
        "nobody: private and new",
        "the_labs_directory_is_private_and_swap_is_not_switched_on_by_name",
    ),
    (
        "OUT",
        "who may write to the directory that a run goes to",
        "nothing_is_written_through_what_another_user_planted",
    ),
    ("OUT", "who wrote the run that is read", "hostile_runs_are_refused_by_doctor_report_and_compare"),
    (
        "WORK",
        "who may write to the directory of a file that is made",
        "nothing_is_written_through_what_another_user_planted",
    ),
    ("WORK", "who wrote the file that is named", "what_is_no_file_is_refused_wherever_a_file_is_named"),
    ("HOME", "who may write there", "nothing_is_written_through_what_another_user_planted"),
    ("KERNELS", "who could exchange a kernel", "root_boots_no_kernel_that_somebody_else_could_exchange"),
];

/// The rows of the table for a place: those with the longest matching beginning.
fn rows(place: &str) -> Vec<usize> {
    let within =
        |row: &str| place == row || place.strip_prefix(row).is_some_and(|rest| rest.starts_with('/'));
    let longest = TABLE.iter().filter(|(row, ..)| within(row)).map(|(row, ..)| row.len()).max();
    (0..TABLE.len()).filter(|&row| within(TABLE[row].0) && Some(TABLE[row].0.len()) == longest).collect()
}

/// The operations of commands of root, as `Done PLACE`.
fn traced(bench: &Bench) -> BTreeMap<(String, Done), String> {
    fs::create_dir(bench.path("scratch")).unwrap();
    fs::create_dir(bench.path("home")).unwrap();
    fs::create_dir(bench.path("man")).unwrap();
    fs::write(bench.path("short.toml"), SCENARIO).unwrap();
    let scratch = bench.path("scratch").display().to_string();
    let mut found = BTreeMap::new();
    let mut trace = |arguments: &[&str]| bench.trace(arguments, &mut found);
    trace(&["doctor", "--interval", "0"]);
    trace(&["doctor", "--interval", "0", "--format", "html", "-o", "doctor.html"]);
    trace(&["explain"]);
    trace(&["size", "swap", "--from-host"]);
    trace(&["completions", "bash"]);
    trace(&["man", "man"]);
    trace(&["snapshot", "-o", "snapshot.tar.zst"]);
    trace(&["doctor", "snapshot.tar.zst"]);
    trace(&["sim", "short.toml", "-o", "runs", "--threads", "1"]);
    trace(&["sim", "short.toml", "-o", "runs", "--threads", "1"]);
    trace(&["report", "runs", "-o", "report.html"]);
    for on in ["host", "cgroup"] {
        trace(&["lab", "short.toml", "--on", on, "--out", "lab-runs", "--yes-really", "--dir", &scratch]);
    }
    trace(&["compare", "runs", "lab-runs"]);
    if std::env::var_os("LOTSFREE_KILLS").is_some() {
        trace(&["lab", "calibrate", "--dir", &scratch, "-o", "record.toml"]);
    }
    if std::env::var_os("LOTSFREE_LAB").is_some() {
        let kernel = std::env::var("LOTSFREE_LAB_KERNEL").unwrap_or("6.1".to_owned());
        trace(&["lab", "short.toml", "--kernel", &kernel, "--out", "lab-vm", "--dir", &scratch]);
        let generations = format!("generations = [\"linux-{kernel}\"]");
        fs::write(bench.path("experiments.toml"), EXPERIMENT.replace("GENERATIONS", &generations)).unwrap();
        let places = ["--runs", "lab-vm/validation", "--out", "validation", "--page", "validation/page.md"];
        trace(&[&["lab", "validate", "--experiments", "experiments.toml"][..], &places].concat());
    }
    trace(&["lab", "restore"]);
    trace(&["lab", "restore", "--list"]);
    found
}

#[test]
fn every_path_of_a_command_of_root_is_in_the_table() {
    if !rustix::process::geteuid().is_root() || Command::new("strace").arg("-V").output().is_err() {
        eprintln!("not tested: needs root and strace");
        return;
    }
    let bench = Bench(common::directory());
    let found = traced(&bench);
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for ((place, done), command) in &found {
        let rows = rows(place);
        let Some(first) = rows.first() else {
            wrong.push(format!("{done:?} {place} by lotsfree {command}: who could be in the way there?"));
            continue;
        };
        // Places of root or the kernel alone are only opened; the kernel's settings are also written.
        let kernels = ["/proc", "/sys", "GROUPS"].contains(&TABLE[*first].0);
        let only_opened = TABLE[*first].1.starts_with("nobody: only") && !kernels;
        // Writing to a device leaves its directory unchanged.
        let to_device = place == "/dev" && *done == Done::Writes;
        if only_opened && *done != Done::Opens && !to_device {
            wrong.push(format!("{done:?} {place} by lotsfree {command}"));
        }
        eprintln!("{done:?}\t{place}\t{}", TABLE[*first].2);
        used.extend(rows);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for name in ["STATE", "SCRATCH", "OUT", "WORK", "GROUPS", "/proc", "/sys"] {
        assert!(used.iter().any(|&row| TABLE[row].0 == name), "nothing was done in {name}: is it traced?");
    }
    let tests = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    for (place, _, test) in TABLE.iter().filter(|(_, _, test)| !test.is_empty()) {
        assert!(tests.contains(&format!("fn {test}()")), "{place}: there is no test {test}");
    }
}

/// The text of all Rust files below a directory.
fn sources(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && entry.file_name() != "target" {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(&path).unwrap();
        }
    }
    text
}
