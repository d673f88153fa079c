//! `cargo xtask attack vm SERIES…`: kills labs in control groups of version 2, which a virtual machine has.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use cargo_metadata::Message;
use lotsfree_lab::vm::{Initramfs, Kernel, Packages, tool::output};
use lotsfree_units::{Bytes, MIB};

use crate::docs::root;
use crate::guest::{self, Guest};
use crate::lab;

/// Time for some 200 labs, each of which takes some seconds in an emulator.
const TIME_LIMIT: Duration = Duration::from_secs(60 * 60);
/// A disk with room for a swap file and runs.
const DISK: (&str, u64) = ("disk", 256 * MIB);
const MEMORY: Bytes = Bytes::mib(1536);

/// Kills labs on the kernel of each series, at every step that they reach.
pub(super) fn command(series: &[String]) -> Result<(), Box<dyn Error>> {
    lab::fetch_kernels(series)?;
    let programs = Programs::build()?;
    let cache = root().join("target/capture");
    fs::create_dir_all(&cache)?;
    let packages = Packages::new(&cache, |package| eprintln!("downloading {package}"));
    let busybox = packages.fetch("busybox-static")?.tree;
    let busybox = [busybox.join("bin/busybox"), busybox.join("usr/bin/busybox")];
    let busybox = busybox.iter().find(|path| path.is_file()).ok_or("busybox-static has no busybox")?;
    for series in series {
        let kernel = Kernel::find(series)?;
        let modules = kernel.modules.as_deref().ok_or("the kernel has no modules")?;
        let mut initramfs = Initramfs::default();
        initramfs.character_device("dev/console", (5, 1));
        initramfs.file("bin/busybox", &fs::read(busybox)?)?;
        guest::add_modules(&mut initramfs, modules, guest::DISKS)?;
        programs.add(&mut initramfs)?;
        initramfs.file("init", include_bytes!("init.sh"))?;
        let work = tempfile::tempdir_in(&cache)?;
        let guest = Guest {
            kernel: &kernel.image,
            initramfs: initramfs.finish(),
            disks: &[DISK],
            memory: MEMORY,
            time_limit: TIME_LIMIT,
        };
        let console = guest.boot(work.path(), "attack: done", |place| {
            let memory = MEMORY.0 / MIB;
            let line = format!("{} -m {memory}M{}", guest::machine(place), guest::disk(DISK.0, place));
            let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            arguments.extend(["-append", "console=ttyS0 quiet panic=-1"].map(str::to_owned));
            arguments
        })?;
        for line in console.lines().filter(|line| line.contains("--on cgroup") || line.starts_with("test ")) {
            eprintln!("{}: {}", kernel.release, line.trim());
        }
    }
    Ok(())
}

/// The tests, the program that they start with the path by which they know it, and the libraries of both.
struct Programs {
    tests: PathBuf,
    program: PathBuf,
    libraries: Vec<PathBuf>,
}

impl Programs {
    fn build() -> Result<Self, Box<dyn Error>> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--locked", "--workspace", "--test", "kills", "--no-run"]);
        cargo.arg("--message-format=json-render-diagnostics").current_dir(root()).stderr(Stdio::inherit());
        let messages = cargo.output()?.stdout;
        let find = |name: &str| {
            Message::parse_stream(messages.as_slice())
                .filter_map(Result::ok)
                .find_map(|message| match message {
                    Message::CompilerArtifact(artifact) if artifact.target.name == name => {
                        artifact.executable.map(PathBuf::from)
                    }
                    _ => None,
                })
                .ok_or_else(|| format!("cargo did not build {name}"))
        };
        let (tests, program) = (find("kills")?, find("lotsfree")?);
        let mut libraries = Vec::new();
        for path in [&tests, &program] {
            let listed = output(Command::new("ldd").arg(path))?;
            let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
            libraries.extend(paths.map(PathBuf::from));
        }
        libraries.sort();
        libraries.dedup();
        Ok(Programs { tests, program, libraries })
    }

    fn add(&self, initramfs: &mut Initramfs) -> Result<(), Box<dyn Error>> {
        initramfs.file("kills", &fs::read(&self.tests)?)?;
        for path in self.libraries.iter().chain([&self.program]) {
            let inside = path.to_str().ok_or("a path is not UTF-8")?.trim_start_matches('/');
            initramfs.file(inside, &fs::read(path)?)?;
        }
        Ok(())
    }
}
