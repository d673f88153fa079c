//! Tests of labs in control groups of version 2, which a virtual machine has: `cargo xtask attack vm SERIES…`
//! kills labs there, and `cargo xtask lab SERIES…` looks at the figures of one.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use cargo_metadata::Message;
use lotsfree_lab::vm::{Initramfs, Kernel, tool::output};
use lotsfree_units::{Bytes, MIB};

use crate::docs::root;
use crate::guest::{self, Guest};

/// Tests that run in the virtual machine.
pub(crate) struct Tests {
    /// The file of `crates/lotsfree/tests`, without its ending.
    pub name: &'static str,
    /// Parts of the names of the tests that are run; empty for all of them.
    pub filter: &'static str,
    pub time_limit: Duration,
    /// The lines of the tests' output with this text are printed, beside those that name a test.
    pub shown: &'static str,
}

/// A disk with room for a swap file and runs.
const DISK: (&str, u64) = ("disk", 256 * MIB);
const MEMORY: Bytes = Bytes::mib(1536);

/// Runs the tests on the kernel of each series, which are in the cache.
pub(crate) fn test(tests: &Tests, series: &[String]) -> Result<(), Box<dyn Error>> {
    let programs = Programs::build(tests.name)?;
    let cache = root().join("target/capture");
    fs::create_dir_all(&cache)?;
    let busybox = guest::busybox(&cache)?;
    for series in series {
        let kernel = Kernel::find(series)?;
        let modules = kernel.modules.as_deref().ok_or("the kernel has no modules")?;
        let mut initramfs = Initramfs::default();
        initramfs.character_device("dev/console", (5, 1));
        initramfs.file("bin/busybox", &busybox)?;
        guest::add_modules(&mut initramfs, modules, guest::DISKS)?;
        programs.add(&mut initramfs)?;
        initramfs.file("filter", tests.filter.as_bytes())?;
        initramfs.file("init", include_bytes!("groups/init.sh"))?;
        let work = tempfile::tempdir_in(&cache)?;
        let guest = Guest {
            kernel: &kernel.image,
            initramfs: initramfs.finish(),
            disks: &[DISK],
            memory: MEMORY,
            time_limit: tests.time_limit,
        };
        let console = guest.boot(work.path(), "tests: done", |place| {
            let memory = MEMORY.0 / MIB;
            let line = format!("{} -m {memory}M{}", guest::machine(2, place), guest::disk(DISK.0, place));
            let mut arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            arguments.extend(["-append", "console=ttyS0 quiet panic=-1"].map(str::to_owned));
            arguments
        })?;
        for line in console.lines().filter(|line| line.contains(tests.shown) || line.starts_with("test ")) {
            eprintln!("{}: {}", kernel.release, line.trim());
        }
    }
    Ok(())
}

/// The compiled tests, the program that they start with the path by which they know it, and the libraries of
/// both.
struct Programs {
    tests: PathBuf,
    program: PathBuf,
    libraries: Vec<PathBuf>,
}

impl Programs {
    fn build(test: &str) -> Result<Self, Box<dyn Error>> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--locked", "--workspace", "--test", test, "--no-run"]);
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
        let (tests, program) = (find(test)?, find("lotsfree")?);
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
        initramfs.file("tests", &fs::read(&self.tests)?)?;
        for path in self.libraries.iter().chain([&self.program]) {
            let inside = path.to_str().ok_or("a path is not UTF-8")?.trim_start_matches('/');
            initramfs.file(inside, &fs::read(path)?)?;
        }
        Ok(())
    }
}
