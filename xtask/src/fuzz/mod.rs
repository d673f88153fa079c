//! `cargo xtask fuzz`: fuzzes every reader with hostile input, with stable Rust and nothing to install.
//!
//! ```text
//! fuzz [SECONDS] [TARGET…]          every target for that many seconds
//! fuzz settle [SECONDS] [TARGET…]   every target until enough executions brought no new edge
//! fuzz unreached [TARGET…]          lines of the readers that no input of the corpora reaches
//! ```
//!
//! The flags are those that cargo-fuzz passes, without the sanitizers, which need a nightly compiler and
//! would have no unsafe code to check here.

mod instrument;
mod log;
mod settle;
mod unreached;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::docs;
pub(crate) use instrument::become_rustc;
use log::Log;

/// Seconds for which each target runs by default.
const SECONDS: u64 = 30;
/// The longest input, in bytes. It reaches all bounds of the readers that matter for time.
const LONGEST: u32 = 48 << 10;
/// The most memory for an input; a reader that needs more has a bug.
const MEMORY_MIB: u32 = 1024;
/// The most seconds for an input, with a margin for a busy machine; a reader that needs more has a bug.
const TIMEOUT: u32 = 20;

/// Builds the targets and runs the mode that is asked for on those that are named, or on all.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (mode, rest) = match arguments.split_first() {
        Some((first, rest)) if first == "settle" || first == "unreached" => (first.as_str(), rest),
        _ => ("", arguments),
    };
    let (seconds, chosen) = match rest.split_first().map(|(first, rest)| (first.parse(), rest)) {
        Some((Ok(seconds), rest)) if mode != "unreached" => (Some(seconds), rest),
        _ => (None, rest),
    };
    let fuzzer = if mode == "unreached" {
        Fuzzer::build("target/unreached", true)?
    } else {
        Fuzzer::build("target", false)?
    };
    let targets = fuzzer.targets()?;
    if let Some(unknown) = chosen.iter().find(|name| targets.iter().all(|target| target.name != **name)) {
        let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
        return Err(format!("no target {unknown}; there are {}", names.join(", ")).into());
    }
    let wanted = targets.iter().filter(|target| chosen.is_empty() || chosen.contains(&target.name));
    if mode == "unreached" {
        return unreached::command(&fuzzer, &wanted.collect::<Vec<_>>());
    }
    let mut crashes = Vec::new();
    for target in wanted {
        fuzzer.seed(&target.name)?;
        let done = match mode {
            "settle" => settle::target(&fuzzer, target, seconds)?,
            _ => fuzzer.run(&target.name, seconds.unwrap_or(SECONDS), None)?,
        };
        eprintln!("{:10} {}", target.name, done.line());
        crashes.extend(done.crash);
    }
    if crashes.is_empty() { Ok(()) } else { Err(crashes.join("\n").into()) }
}

/// A target of the fuzzer.
struct Target {
    name: String,
    /// Executions without a new edge after which `fuzz settle` ends.
    settled: u64,
}

/// The binary with all targets.
struct Fuzzer {
    binary: PathBuf,
    /// The directory for targets that read files: in memory if possible, and removed at the end.
    place: TempDir,
}

/// Result of running a target.
#[derive(Debug, Default)]
struct Done {
    log: Log,
    /// Executions since the last new edge and those wanted, if they are counted across calls.
    settled: Option<(u64, u64)>,
    /// The crash, and how to reproduce it.
    crash: Option<String>,
}

impl Done {
    fn line(&self) -> String {
        let Log { executions, edges, features, since } = self.log;
        let end = if self.crash.is_some() { "crashed" } else { "no crash" };
        let since = match self.settled {
            Some((since, wanted)) if since >= wanted => format!("{since} without a new edge: settled"),
            Some((since, wanted)) => format!("{since} of {wanted} without a new edge"),
            None => format!("{since} since the last new edge"),
        };
        format!("{executions:>10} executions, {since}, {edges:>6} edges, {features:>6} features, {end}")
    }
}

fn directory() -> PathBuf {
    docs::root().join("fuzz")
}

/// The directory that keeps a target's inputs between calls.
fn corpus(target: &str) -> PathBuf {
    directory().join("corpus").join(target)
}

impl Fuzzer {
    /// Builds the targets into a directory below that of the fuzzer.
    fn build(target_directory: &str, every_block: bool) -> Result<Self, Box<dyn Error>> {
        // With `--target`, cargo builds build scripts and procedural macros without the instrumentation.
        let rustc = Command::new("rustc").arg("-vV").output()?;
        let about = String::from_utf8(rustc.stdout)?;
        let host = about.lines().find_map(|line| line.strip_prefix("host: "));
        let host = host.ok_or("rustc does not name its host")?;
        let target_directory = directory().join(target_directory);
        let status = Command::new("cargo")
            .args(["build", "--quiet", "--release", "--locked", "--target", host, "--target-dir"])
            .arg(&target_directory)
            .current_dir(directory())
            .envs(instrument::environment(every_block)?)
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .status()?;
        if !status.success() {
            return Err("the targets do not build".into());
        }
        let memory = Path::new("/dev/shm");
        let mut prefix = tempfile::Builder::new();
        prefix.prefix("lotsfree-fuzz-");
        let place = prefix.tempdir_in(memory).or_else(|_| prefix.tempdir())?;
        Ok(Fuzzer { binary: target_directory.join(host).join("release/lotsfree-fuzz"), place })
    }

    fn targets(&self) -> Result<Vec<Target>, Box<dyn Error>> {
        let listed = self.command("list").output()?;
        let listed = String::from_utf8(listed.stdout)?;
        let target = |line: &str| {
            let (name, settled) = line.split_once(' ')?;
            Some(Target { name: name.to_owned(), settled: settled.parse().ok()? })
        };
        let targets: Option<Vec<Target>> = listed.lines().map(target).collect();
        Ok(targets.ok_or("the targets are not listed as they should be")?)
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(&self.binary);
        command.env("LOTSFREE_FUZZ", target).env("LOTSFREE_FUZZ_PLACE", self.place.path());
        command
    }

    /// Adds the seeds to a target's corpus.
    fn seed(&self, target: &str) -> Result<(), Box<dyn Error>> {
        let corpus = corpus(target);
        fs::create_dir_all(&corpus)?;
        let seeded = self
            .command(target)
            .env("LOTSFREE_FUZZ_SEEDS", &corpus)
            .env("LOTSFREE_FUZZ_FIXTURES", docs::root().join("fixtures"))
            .output()?;
        if !seeded.status.success() {
            return Err(format!("no seeds for {target}: {}", String::from_utf8_lossy(&seeded.stderr)).into());
        }
        Ok(())
    }

    /// Runs a target for `seconds` seconds, or until it has done `executions` executions.
    fn run(&self, target: &str, seconds: u64, executions: Option<u64>) -> Result<Done, Box<dyn Error>> {
        let artifacts = directory().join("artifacts").join(target);
        fs::create_dir_all(&artifacts)?;
        let mut command = self.command(target);
        command
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={LONGEST}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .arg(format!("-timeout={TIMEOUT}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args(["-print_final_stats=1", "-reload=0"])
            .arg(corpus(target));
        if let Some(executions) = executions {
            command.arg(format!("-runs={executions}"));
        }
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let crash = if output.status.success() { None } else { Some(self.crash(target, &text)?) };
        Ok(Done { log: Log::parse(&text), settled: None, crash })
    }

    /// Keeps the log of a target that crashed, and says how to reproduce the crash.
    fn crash(&self, target: &str, log: &str) -> Result<String, Box<dyn Error>> {
        let kept = directory().join("artifacts").join(target).join("log");
        fs::write(&kept, log)?;
        let reproducer = log.lines().find_map(|line| line.split_once("Test unit written to "));
        let why = log.lines().find(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
        Ok(match reproducer {
            Some((_, reproducer)) => format!(
                "{target}: {}\n  to see it again: LOTSFREE_FUZZ={target} {} {reproducer}",
                why.unwrap_or("crashed").trim(),
                self.binary.display()
            ),
            None => format!("{target} failed: see {}", kept.display()),
        })
    }
}
