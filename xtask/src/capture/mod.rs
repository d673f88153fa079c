//! Captured trees of real kernels: `cargo xtask capture [--list] [NAME…]`.
//!
//! Each [scenario](scenarios) has a machine (kernel, NUMA nodes, swap), a script that runs on it, and
//! conditions that the result must meet. A capture boots the distribution's own kernel in QEMU with an
//! initramfs made here, runs the scenario there, reads `/proc` and `/sys` twice, five seconds apart, and
//! writes one text archive ([`lotsfree_snapshot::source::text`]), `fixtures/hosts/NAME.txt`. Scenarios about
//! watermarks instead change one setting after another, read a few files each time, and write
//! `fixtures/marks/NAME.txt`. A capture that does not meet its scenario's conditions is an error, and leaves
//! the old fixture as it was.
//!
//! Needed on this machine: Debian with `apt-get`, `dpkg`, `xz` and `qemu-system-x86_64`. Packages are
//! downloaded, not installed, and kept unpacked below `target/capture`. Apart from the fixture, nothing is
//! written elsewhere.
//!
//! `host` is the one name without a virtual machine; it captures this machine, see [`host`].

mod host;
mod samples;
mod scenarios;
mod shows;
mod user_space;
mod vm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use lotsfree_lab::vm::packages::KernelPackage;
use lotsfree_lab::vm::tool::output;
use lotsfree_lab::vm::{Packages, qemu};
use lotsfree_snapshot::source::text::TextArchive;

use scenarios::{SCENARIOS, Scenario, Subject};

/// The largest archive that is accepted, in bytes, because people read fixtures.
const SIZE_LIMIT: usize = 250_000;

/// The failure, as one sentence for the person who started the command.
type Error = Box<dyn std::error::Error>;
type Result<T> = std::result::Result<T, Error>;

/// Runs `cargo xtask capture` with its arguments: names of scenarios, none for all of them, or `--list`.
pub(crate) fn command(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == "--list") {
        for scenario in SCENARIOS {
            eprintln!("{:34} {}", scenario.name, scenario.title);
        }
        eprintln!("{:34} this machine", "host");
        return Ok(());
    }
    let mut wanted = Vec::new();
    for name in arguments {
        if name != "host" {
            wanted.push(scenarios::find(name)?);
        }
    }
    if arguments.is_empty() {
        wanted.extend(SCENARIOS);
    }

    let directories = Directories::new()?;
    for scenario in wanted {
        let started = Instant::now();
        let archive =
            in_vm(scenario, &directories.cache).map_err(|error| format!("{}: {error}", scenario.name))?;
        let size = keep(&archive, &directories.fixtures.join(scenario.subject.directory()), scenario.name)?;
        eprintln!("{}: {size} bytes in {} s", scenario.name, started.elapsed().as_secs());
    }
    if arguments.iter().any(|argument| argument == "host") {
        let (name, archive) = host::capture()?;
        let size = keep(&archive, &directories.fixtures.join(Subject::Host.directory()), &name)?;
        eprintln!("{name}: {size} bytes");
    }
    Ok(())
}

/// Directories that this command reads and writes.
struct Directories {
    /// Packages, unpacked trees, disk images: `target/capture`.
    cache: PathBuf,
    /// The result: `fixtures`.
    fixtures: PathBuf,
}

impl Directories {
    fn new() -> Result<Self> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), Into::into);
        let directories = Self { cache: target.join("capture"), fixtures: repository.join("fixtures") };
        fs::create_dir_all(&directories.cache)?;
        for subject in [Subject::Host, Subject::Marks] {
            fs::create_dir_all(directories.fixtures.join(subject.directory()))?;
        }
        Ok(directories)
    }
}

/// Boots the scenario, and returns the capture if it meets the scenario's conditions.
fn in_vm(scenario: &Scenario, cache: &Path) -> Result<TextArchive> {
    let qemu = qemu::version()?;
    let packages = Packages::new(cache, |package| eprintln!("downloading {package}"));
    let kernel = packages.kernel(scenario.kernel)?;
    let user_space = user_space::user_space(&packages)?;
    let work = cache.join("work").join(scenario.name);
    let run = vm::run(scenario, &kernel, &user_space, &work)?;
    let comment = provenance(scenario, &kernel, &qemu, &run.command)?;
    let archive = samples::archive(comment, scenario.times().zip(run.samples));
    shows::check(scenario.shows, &archive)?;
    fs::remove_dir_all(&work)?;
    Ok(archive)
}

fn provenance(scenario: &Scenario, kernel: &KernelPackage, qemu: &str, command: &str) -> Result<String> {
    Ok(format!(
        "# {title}\n\
         # Written by `cargo xtask capture {name}` in {month}; do not edit.\n\
         #\n\
         # kernel: Debian package {package} {version}\n\
         # machine: {qemu}\n\
         # {command}\n\
         # user space: busybox and perl from Debian on an ext2 file system; no init system, no udev\n\
         # the script begins when the kernel has derived its marks again, see `settle` in guest/library.sh\n\
         # samples: {samples}\n\
         #\n\
         {script}",
        title = scenario.title,
        name = scenario.name,
        month = month()?,
        package = kernel.package,
        version = kernel.version,
        samples = scenario.subject.samples(),
        script = comment(scenario.script),
    ))
}

fn comment(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect()
}

/// The current month, as `2026-11`.
fn month() -> Result<String> {
    Ok(output(Command::new("date").args(["-u", "+%Y-%m"]))?.trim().to_owned())
}

/// Writes the archive beside its place, reads it back, and moves it there. Returns its size in bytes.
fn keep(archive: &TextArchive, directory: &Path, name: &str) -> Result<usize> {
    let text = archive.print();
    if TextArchive::parse(&text)?.print() != text {
        return Err(format!("{name}: the archive does not read back as it was written").into());
    }
    if text.len() > SIZE_LIMIT {
        return Err(format!("{name}: {} bytes, more than {}", text.len(), SIZE_LIMIT).into());
    }
    let unfinished = directory.join(format!(".{name}.txt"));
    fs::write(&unfinished, &text)?;
    fs::rename(&unfinished, directory.join(format!("{name}.txt")))?;
    Ok(text.len())
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::{Problem, ProblemKind};
    use lotsfree_snapshot::{Options, collect};

    use super::*;

    fn fixture(subject: Subject, name: &str) -> (Vec<u8>, TextArchive) {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
        let text =
            fs::read(fixtures.join(subject.directory()).join(format!("{name}.txt"))).expect("a fixture");
        let archive = TextArchive::parse(&text).expect("an archive");
        (text, archive)
    }

    /// A fixture that no longer fits its scenario, because one of them was changed alone, must be captured
    /// again.
    #[test]
    fn every_fixture_shows_what_its_scenario_promises() {
        for scenario in SCENARIOS {
            let name = scenario.name;
            let (text, archive) = fixture(scenario.subject, name);
            assert!(text.len() <= SIZE_LIMIT, "{name} is too large");
            assert!(archive.print() == text, "{name} is not as it would be printed");
            assert!(archive.comment.starts_with(&format!("# {}\n", scenario.title)), "{name}: title");
            assert!(archive.comment.ends_with(&comment(scenario.script)), "{name}: script");
            assert!(archive.comment.lines().all(|line| line.starts_with('#')), "{name}: comment");
            if let Err(error) = shows::check(scenario.shows, &archive) {
                panic!("{name}: {error}");
            }
        }
    }

    #[test]
    fn every_fixture_is_understood_to_the_last_line() {
        let vms = SCENARIOS.iter().map(|scenario| (scenario.subject, scenario.name));
        for (subject, name) in vms.chain([(Subject::Host, "6.18-1node-cgroup1")]) {
            let (_, archive) = fixture(subject, name);
            for (at, source) in &archive.samples {
                let problems = collect(source, &Options::default()).problems;
                let malformed: Vec<&Problem> =
                    problems.iter().filter(|problem| problem.kind == ProblemKind::Malformed).collect();
                assert!(malformed.is_empty(), "{name} at {at} s: {malformed:?}");
            }
        }
    }
}
