//! A capture of this machine, without private information.
//!
//! It has to run as root. The memory counters and settings are kept; the host's name, the build tag of its
//! kernel, its other control groups and all of its processes are left out. One process and, where memory is
//! under cgroup v1, one group are made for the capture and removed again.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lotsfree_lab::vm::tool;
use lotsfree_snapshot::source::text::TextArchive;

use super::samples::{self, Files};
use super::{Result, month};

/// The script that names the files to capture, the same as in the virtual machine.
pub(super) const PATHS: &str = include_str!("guest/paths.sh");

const MEMORY_V1: &str = "/sys/fs/cgroup/memory";
const GROUP: &str = "/sys/fs/cgroup/memory/lotsfree-capture";

/// Captures this machine. Returns the fixture's name, `6.18-1node-cgroup1`, and its content.
pub(super) fn capture() -> Result<(String, TextArchive)> {
    let release = first_numbers(&read("/proc/sys/kernel/osrelease")?, 3);
    let nodes = fs::read_dir("/sys/devices/system/node")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok()))
        .count();
    let v1 = Path::new(MEMORY_V1).join("memory.limit_in_bytes").exists();
    let name = format!(
        "{}-{nodes}node{}-cgroup{}",
        first_numbers(&release, 2),
        if nodes == 1 { "" } else { "s" },
        if v1 { 1 } else { 2 }
    );

    let group = if v1 { Some(Group::new()?) } else { None };
    let process = Process::new(group.is_some())?;
    std::thread::sleep(Duration::from_secs(2));
    let mut ids = vec![process.0.id().to_string()];
    ids.extend(kswapd());
    let started = Instant::now();
    let first = sample("all", &ids, &release)?;
    std::thread::sleep(Duration::from_secs(5).saturating_sub(started.elapsed()));
    let second = sample("changing", &ids, &release)?;

    let provenance = format!(
        "# One node, no swap{}; plenty of free memory. Kernel {release}.\n\
         # Written by `cargo xtask capture host` in {}; do not edit.\n\
         #\n\
         # A virtual machine in the cloud. Left out: host name, kernel build tag, kernel parameters that do\n\
         # not concern memory, mounts of applications, control groups and processes but the capture's own.\n\
         # The process is dd with a buffer of 40 MiB{}.\n\
         # samples: 0s/ all files, 5s/ those that change; proc/uptime has the exact times\n",
        if v1 { ", memory under cgroup v1" } else { "" },
        month()?,
        if v1 { ", in a group of its own, which is limited to 64 MiB" } else { "" },
    );
    Ok((name, samples::archive(provenance, [(0.0, first), (samples::INTERVAL, second)])))
}

/// A memory control group, removed when dropped. Declared before the process in it, so dropped after.
struct Group;

impl Group {
    fn new() -> Result<Self> {
        // A group that an interrupted capture left is empty, and can be removed.
        let _ = fs::remove_dir(GROUP);
        fs::create_dir(GROUP).map_err(|error| format!("{GROUP}: {error}"))?;
        let group = Self;
        for (file, value) in [
            ("memory.limit_in_bytes", "64M"),
            ("memory.soft_limit_in_bytes", "48M"),
            ("memory.swappiness", "10"),
        ] {
            fs::write(Path::new(GROUP).join(file), value).map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(GROUP) {
            eprintln!("{GROUP}: {error}: remove it by hand");
        }
    }
}

/// A process that holds 40 MiB, ended when dropped.
struct Process(Child);

impl Process {
    fn new(in_group: bool) -> Result<Self> {
        let join = if in_group { format!("echo $$ >{GROUP}/cgroup.procs && ") } else { String::new() };
        let script = format!("{join}exec dd if=/dev/zero of=/dev/null bs=40M");
        let child = Command::new("sh")
            .args(["-c", &script])
            .current_dir("/")
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| tool::not_started("sh", error))?;
        Ok(Self(child))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The kill fails only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Id of the kernel thread that reclaims node 0, if it can be seen.
fn kswapd() -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    let mut ids = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    ids.find(|id| read(&format!("/proc/{id}/comm")).is_ok_and(|comm| comm.trim() == "kswapd0"))
}

fn read(path: &str) -> Result<String> {
    let bytes = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn sample(which: &str, ids: &[String], release: &str) -> Result<Files> {
    let mut files = Files::new();
    for path in paths(which, ids)? {
        if !is_kept(&path) {
            continue;
        }
        // Some files can be opened but not read. They are left out, as in the virtual machine.
        let Ok(content) = read(&format!("/{path}")) else { continue };
        let content = redact(&path, content, release).into_bytes();
        files.push((path, content));
    }
    Ok(files)
}

fn paths(which: &str, ids: &[String]) -> Result<Vec<String>> {
    let mut shell = Command::new("sh")
        .args(["-s", which])
        .args(ids)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| tool::not_started("sh", error))?;
    if let Some(mut input) = shell.stdin.take() {
        input.write_all(PATHS.as_bytes())?;
    }
    let output = shell.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Whether a path is kept: of the control groups, only the root and the capture's own are.
fn is_kept(path: &str) -> bool {
    let absolute = PathBuf::from(format!("/{path}"));
    let parent = absolute.parent().unwrap_or(Path::new("/"));
    !path.starts_with("sys/fs/cgroup/")
        || (parent == Path::new(MEMORY_V1) || parent == Path::new(GROUP))
            && !path.ends_with("cgroup.procs")
            && !path.ends_with("memory.kmem.slabinfo")
        || path.starts_with("sys/fs/cgroup/memory/lotsfree-capture/") && path.ends_with("cgroup.procs")
}

fn redact(path: &str, content: String, release: &str) -> String {
    const PARAMETERS: &[&str] = &[
        "psi=",
        "hugepages",
        "hugepagesz=",
        "default_hugepagesz=",
        "transparent_hugepage=",
        "numa",
        "mem=",
        "swiotlb=",
        "deferred_init=",
        "page_reporting.",
    ];
    const FILE_SYSTEMS: &[&str] =
        &["proc", "sysfs", "devtmpfs", "ext4", "xfs", "btrfs", "cgroup", "cgroup2", "hugetlbfs"];
    match path {
        "proc/sys/kernel/hostname" => "host\n".to_owned(),
        "proc/sys/kernel/osrelease" => format!("{release}\n"),
        "proc/version" => format!("Linux version {release} #1 SMP PREEMPT_DYNAMIC\n"),
        "proc/cmdline" => {
            let kept = |word: &&str| PARAMETERS.iter().any(|parameter| word.starts_with(parameter));
            content.split_whitespace().filter(kept).collect::<Vec<_>>().join(" ") + "\n"
        }
        "proc/mounts" => {
            let kept = |line: &&str| {
                let mut words = line.split(' ');
                let (point, kind) = (words.nth(1).unwrap_or_default(), words.next().unwrap_or_default());
                let known =
                    ["/proc", "/sys", "/dev"].iter().any(|root| point.starts_with(root)) || point == "/";
                known && (FILE_SYSTEMS.contains(&kind) || point == "/dev/shm" || point == "/sys/fs/cgroup")
            };
            content.lines().filter(kept).map(|line| format!("{line}\n")).collect()
        }
        _ => content,
    }
}

/// The first numbers of a release: `6.18.44` of `6.18.44-vendor-1` for a count of three.
fn first_numbers(release: &str, count: usize) -> String {
    let plain = release.trim().split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
    plain.split('.').take(count).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_groups_are_left_out() {
        assert!(is_kept("proc/meminfo"));
        assert!(is_kept("sys/fs/cgroup/memory/memory.stat"));
        assert!(is_kept("sys/fs/cgroup/memory/lotsfree-capture/cgroup.procs"));
        assert!(!is_kept("sys/fs/cgroup/memory/cgroup.procs"));
        assert!(!is_kept("sys/fs/cgroup/memory/customer/memory.stat"));
        assert!(!is_kept("sys/fs/cgroup/memory/lotsfree-capture/x/memory.stat"));
        assert!(!is_kept("sys/fs/cgroup/pids/memory.stat"));
    }

    #[test]
    fn names_and_parameters_are_redacted() {
        let redact = |path: &str, content: &str| redact(path, content.to_owned(), "6.18.44");
        assert_eq!(redact("proc/sys/kernel/hostname", "db17.example.org\n"), "host\n");
        assert_eq!(redact("proc/sys/kernel/osrelease", "6.18.44-vendor-1\n"), "6.18.44\n");
        assert_eq!(
            redact("proc/cmdline", "root=/dev/vda psi=1 token=secret hugepages=4\n"),
            "psi=1 hugepages=4\n"
        );
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nnas:/home /home nfs rw 0 0\n\
                      tool /mnt/tool tmpfs ro 0 0\n";
        assert_eq!(redact("proc/mounts", mounts), "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n");
        assert_eq!(redact("proc/vmstat", "pswpin 1\n"), "pswpin 1\n");
    }

    #[test]
    fn a_release_is_cut_at_its_tag() {
        assert_eq!(first_numbers("6.18.44-vendor-v445\n", 3), "6.18.44");
        assert_eq!(first_numbers("6.18.44-vendor-v445\n", 2), "6.18");
        assert_eq!(first_numbers("6.12.117+deb12-amd64\n", 3), "6.12.117");
    }
}
