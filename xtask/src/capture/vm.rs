//! The virtual machine of a capture: its files, its devices, its run, and its output.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lotsfree_lab::vm::Initramfs;
use lotsfree_lab::vm::packages::KernelPackage;
use lotsfree_lab::vm::qemu::{self, quoted};
use lotsfree_units::Bytes;

use super::samples::Files;
use super::scenarios::Scenario;
use super::{Error, Result};
use crate::guest::{self, Guest};

/// Limit for a capture, which takes about 25 s on an idle machine, and several times that with software
/// emulation on a busy one.
const TIME_LIMIT: Duration = Duration::from_secs(150);

const MIB: u64 = 1 << 20;

/// Each sample begins at a multiple of this on the output disk, in bytes; `guest/main.sh` and
/// `guest/library.sh` have the same figure.
const SAMPLE: u64 = 8 * MIB;

/// A finished run.
pub(super) struct Run {
    /// The command line, without directories.
    pub command: String,
    /// The files of each sample; a later sample has only those that change.
    pub samples: Vec<Files>,
}

/// Boots the scenario in an empty directory `work`, and returns what it has written when it has powered
/// itself off.
///
/// # Errors
///
/// If QEMU fails, or the guest reports a failure or does not finish in time. The error ends with the last
/// lines of the guest's console.
pub(super) fn run(
    scenario: &Scenario,
    kernel: &KernelPackage,
    user_space: &[(String, PathBuf)],
    work: &Path,
) -> Result<Run> {
    if work.exists() {
        fs::remove_dir_all(work)?;
    }
    fs::create_dir_all(work)?;
    let disks = disks(scenario);
    let guest = Guest {
        kernel: &kernel.image,
        initramfs: initramfs(scenario, kernel, user_space)?,
        disks: &disks,
        memory: Bytes::mib(scenario.nodes.iter().sum()),
        time_limit: TIME_LIMIT,
    };
    guest.boot(work, "capture: done", |place| arguments(scenario, &disks, place))?;

    let disk = fs::read(work.join("output"))?;
    let written = disk.chunks(usize::try_from(SAMPLE)?).take_while(|chunk| chunk.starts_with(b"F "));
    let samples = written.map(parse).collect::<Result<Vec<Files>>>()?;
    if samples.len() != scenario.samples() {
        return Err(format!("{} samples instead of {}", samples.len(), scenario.samples()).into());
    }
    let image = kernel.image.file_name().unwrap_or_default();
    let image = image.to_string_lossy();
    let shown = |name: &str| if name == "kernel" { image.to_string() } else { name.to_owned() };
    let arguments = arguments(scenario, &disks, &shown);
    Ok(Run { command: format!("{} {}", qemu::PROGRAM, quoted(&arguments)), samples })
}

/// Disk images in the order of their names in the guest (vda, vdb, …), with their sizes in bytes.
fn disks(scenario: &Scenario) -> Vec<(&'static str, u64)> {
    let mut disks = vec![("root", 512 * MIB), ("output", scenario.samples() as u64 * SAMPLE)];
    if scenario.swap > 0 {
        disks.push(("swap", scenario.swap * MIB));
    }
    disks
}

/// The command line; `place` gives the path of a file by its name.
fn arguments(scenario: &Scenario, disks: &[(&str, u64)], place: &dyn Fn(&str) -> String) -> Vec<String> {
    let memory: u64 = scenario.nodes.iter().sum();
    let mut line = guest::machine(2, place);
    let _ = write!(line, " -m {memory}M");
    for (node, size) in scenario.nodes.iter().enumerate() {
        let cpus = if scenario.nodes.len() == 1 { "0-1".to_owned() } else { node.to_string() };
        let _ = write!(
            line,
            " -object memory-backend-ram,id=m{node},size={size}M \
             -numa node,nodeid={node},cpus={cpus},memdev=m{node}"
        );
    }
    if let [_, _] = scenario.nodes {
        let _ = write!(line, " -numa dist,src=0,dst=1,val={}", scenario.distance);
    }
    for (name, _) in disks {
        line += &guest::disk(name, place);
    }
    let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    arguments.extend(["-append".to_owned(), format!("console=ttyS0 quiet panic=-1{}", scenario.parameters)]);
    arguments
}

fn initramfs(
    scenario: &Scenario,
    kernel: &KernelPackage,
    user_space: &[(String, PathBuf)],
) -> Result<Vec<u8>> {
    let mut initramfs = Initramfs::default();
    initramfs.character_device("dev/console", (5, 1));
    for (path, here) in user_space {
        initramfs.file(path, &fs::read(here).map_err(|error| format!("{}: {error}", here.display()))?)?;
    }
    guest::add_modules(&mut initramfs, &kernel.modules, guest::DISKS)?;
    initramfs.file("init", include_bytes!("guest/init.sh"))?;
    initramfs.file("guest/main.sh", include_bytes!("guest/main.sh"))?;
    initramfs.file("guest/library.sh", include_bytes!("guest/library.sh"))?;
    initramfs.file("guest/paths.sh", super::host::PATHS.as_bytes())?;
    initramfs.file("guest/dump.pl", include_bytes!("guest/dump.pl"))?;
    initramfs.file("guest/hold.pl", include_bytes!("guest/hold.pl"))?;
    initramfs.file("guest/scenario.sh", scenario.script.as_bytes())?;
    Ok(initramfs.finish())
}

/// Parses the output of `guest/dump.pl`: `F PATH`, lines behind a bar, `E` at the end.
fn parse(bytes: &[u8]) -> Result<Files> {
    let mut files = Files::new();
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if let Some(path) = line.strip_prefix(b"F ") {
            files.push((String::from_utf8(path.trim_ascii_end().to_vec())?, Vec::new()));
        } else if let (Some(text), Some((_, content))) = (line.strip_prefix(b"|"), files.last_mut()) {
            content.extend_from_slice(text);
        } else if line == b"E\n" {
            return Ok(files);
        } else {
            break;
        }
    }
    Err(Error::from("a sample is incomplete"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_read_to_its_end_mark() {
        let files = parse(b"F proc/a\n|one\n|F two\n|\nF proc/empty\nE\n\0\0").expect("complete");
        let file = |path: &str, content: &str| (path.to_owned(), content.as_bytes().to_vec());
        assert_eq!(files, [file("proc/a", "one\nF two\n\n"), file("proc/empty", "")]);
        assert!(parse(b"F proc/a\n|one\n\0\0").is_err());
        assert!(parse(b"").is_err());
    }

    #[test]
    fn nodes_share_memory_and_cpus() {
        let scenario = super::super::scenarios::find("6.1-2nodes-zone-reclaim").expect("known");
        let line = quoted(&arguments(scenario, &disks(scenario), &|name| name.to_owned()));
        assert!(line.contains(" -m 512M "), "{line}");
        assert!(
            line.contains("-numa node,nodeid=1,cpus=1,memdev=m1 -numa dist,src=0,dst=1,val=40 "),
            "{line}"
        );
        assert!(line.ends_with("-append 'console=ttyS0 quiet panic=-1'"), "{line}");
    }
}
