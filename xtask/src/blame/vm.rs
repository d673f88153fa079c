//! Cases in a virtual machine, whose root is a copy of the programs that they need.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lotsfree_lab::vm::{Initramfs, Kernel};
use lotsfree_units::{Bytes, GIB, MIB};

use super::{Bench, Case, Outcome, SLOW_PACE, attempt, prepared};
use crate::docs::root;
use crate::guest::{self, Guest};
use crate::lab::fetch_kernels;
use crate::real::Result;
use crate::real::application::output;
use crate::real::host::Host;

/// The disk with the root, the prepared files and what cases write.
const DISK: (&str, u64) = ("disk", 16 * GIB);
const MEMORY: Bytes = Bytes::mib(2560);
/// The kernel patches its code when tracepoints are first used, which a second emulated CPU that executes it
/// does not always survive: both of them spin until the machine is ended.
const CPUS: u32 = 1;
/// Requests that the disk serves a second: it is as slow beside the emulated CPUs as a disk beside real ones.
const REQUESTS: u32 = 200;
/// Directories, and empty files in each, that are there to be walked: their inodes fill half of the limit.
const TREE: (u32, u32) = (500, 1000);
/// How long all cases may take in software emulation.
const TIME_LIMIT: Duration = Duration::from_secs(3 * 3600);
/// The programs of the cases. The packages that own them are copied, with all that these need.
const PROGRAMS: &[&str] = &[
    "/usr/lib/postgresql/*/bin/postgres",
    "/usr/lib/postgresql/*/bin/psql",
    "/usr/bin/redis-server",
    "/usr/bin/redis-benchmark",
    "/usr/bin/java",
    "/usr/bin/javac",
    "/usr/bin/perl",
    "/usr/bin/cp",
    "/usr/bin/find",
    "/usr/bin/setpriv",
    "/usr/bin/dash",
];
/// What begins a line of the console with an outcome.
const OUTCOME: &str = "outcome: ";

/// Runs the cases that words choose in a virtual machine with a kernel of the series, which is fetched if it
/// is not there. Returns the heading for the page, and what became of the cases.
pub(super) fn outcomes(series: &str, words: &[String]) -> Result<(String, Vec<Outcome>)> {
    fetch_kernels(&[series.to_owned()])?;
    let kernel = Kernel::find(series)?;
    let modules = kernel.modules.as_deref().ok_or("the kernel has no modules")?;
    let cache = root().join("target/capture");
    fs::create_dir_all(&cache)?;
    let work = tempfile::tempdir_in(&cache)?;
    disk(work.path(), words)?;
    let mut initramfs = Initramfs::default();
    initramfs.character_device("dev/console", (5, 1));
    initramfs.file("bin/busybox", &guest::busybox(&cache)?)?;
    guest::add_modules(&mut initramfs, modules, guest::DISKS)?;
    initramfs.file("init", include_bytes!("init.sh"))?;
    let guest = Guest {
        kernel: &kernel.image,
        initramfs: initramfs.finish(),
        disks: &[DISK],
        memory: MEMORY,
        time_limit: TIME_LIMIT,
    };
    let console = guest.boot(work.path(), "blame: done", |place| {
        let memory = MEMORY.0 / MIB;
        let disk = guest::throttled_disk(DISK.0, place, REQUESTS);
        let line = format!("{} -m {memory}M{disk}", guest::machine(CPUS, place));
        let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        arguments.extend(["-append", "console=ttyS0 quiet panic=-1"].map(str::to_owned));
        arguments
    })?;
    let outcomes = console.lines().filter_map(|line| line.strip_prefix(OUTCOME)).map(serde_json::from_str);
    let outcomes = outcomes.collect::<std::result::Result<Vec<Outcome>, _>>()?;
    outcomes.iter().for_each(Outcome::tell);
    let place =
        format!("Linux {}, a virtual machine without KVM, control groups of version 2", kernel.release);
    Ok((place, outcomes))
}

/// Makes the disk: a root with the packages of the programs, this chore and `lotsfree`, and what is prepared.
fn disk(work: &Path, words: &[String]) -> Result<()> {
    let tree = work.join("root");
    fs::create_dir(&tree)?;
    let mut script = Command::new("sh");
    script.args(["-euc", include_str!("root.sh"), "sh"]).arg(&tree).args(PROGRAMS);
    output(&mut script)?;
    let programs = tree.join("lotsfree");
    fs::create_dir(&programs)?;
    for name in ["xtask", "lotsfree"] {
        fs::copy(super::programs()?.join(name), programs.join(name))?;
    }
    fs::write(programs.join("words"), words.join("\n"))?;
    fs::write(programs.join("run.sh"), include_str!("guest.sh"))?;
    let prepared = tree.join("prepared");
    fs::create_dir(&prepared)?;
    prepared::make(&prepared)?;
    let (directories, files) = TREE;
    prepared::sh(&format!(
        "cd {} && for n in $(seq {directories}); do mkdir -p tree/$n; (cd tree/$n && seq {files} | xargs touch); done",
        prepared.display()
    ))?;
    let image = work.join(DISK.0);
    let mut mkfs = Command::new("mke2fs");
    mkfs.args(["-q", "-t", "ext4", "-b", "4096", "-d"])
        .arg(&tree)
        .arg(&image)
        .arg(format!("{}M", DISK.1 / MIB));
    output(&mut mkfs)?;
    Ok(fs::remove_dir_all(tree)?)
}

/// In the virtual machine: runs the cases, and prints each outcome in a line for [`outcomes`].
pub(super) fn inside(cases: &[&'static Case], prepared: &Path) -> Result<()> {
    let host = Host::new()?;
    let mut bench = Bench { host: &host, pace: SLOW_PACE, prepared, keep: None, alone: BTreeMap::new() };
    for case in cases {
        match attempt(case, &mut bench) {
            Ok(outcome) => writeln!(std::io::stdout(), "{OUTCOME}{}", serde_json::to_string(&outcome)?)?,
            // The others may succeed.
            Err(error) => eprintln!("{}: {error}", case.name()),
        }
    }
    Ok(())
}
