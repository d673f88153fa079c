//! `cargo xtask fuzz [SECONDS] [TARGET…]`: hostile input for every reader, with stable Rust and nothing to
//! install.
//!
//! The flags are those that cargo-fuzz passes, without the sanitizers: those need a nightly compiler, and
//! there is no unsafe code here for them to watch.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::docs;

/// What makes the compiler count which branches were taken, and compare what was compared.
const INSTRUMENT: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions=on \
    -Coverflow-checks=on";
/// How long each target runs unless told otherwise.
const SECONDS: u32 = 30;
/// No input is longer than this; all bounds of the readers that matter for time are within reach.
const LONGEST: u32 = 48 << 10;
/// A reader that needs more memory than this for such an input has a bug.
const MEMORY_MIB: u32 = 1024;
/// As for one that needs more seconds, with room for a busy machine.
const TIMEOUT: u32 = 20;

/// Builds the targets and runs them one after the other. Fails if one crashes, hangs or needs too much
/// memory.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (seconds, chosen) = match arguments.split_first().map(|(first, rest)| (first.parse(), rest)) {
        Some((Ok(seconds), rest)) => (seconds, rest),
        _ => (SECONDS, arguments),
    };
    let binary = build()?;
    let listed = Command::new(&binary).env("LOTSFREE_FUZZ", "list").output()?;
    let listed = String::from_utf8(listed.stdout)?;
    let targets: Vec<&str> = listed.lines().collect();
    if let Some(unknown) = chosen.iter().find(|name| !targets.contains(&name.as_str())) {
        return Err(format!("no target {unknown}; there are {}", targets.join(", ")).into());
    }
    let mut crashes = Vec::new();
    for target in
        targets.iter().filter(|target| chosen.is_empty() || chosen.iter().any(|name| name == *target))
    {
        if let Some(crash) = run(&binary, target, seconds)? {
            crashes.push(crash);
        }
    }
    if crashes.is_empty() { Ok(()) } else { Err(crashes.join("\n").into()) }
}

fn directory() -> PathBuf {
    docs::root().join("fuzz")
}

fn build() -> Result<PathBuf, Box<dyn Error>> {
    // With a target named, build scripts and procedural macros are built without the instruments.
    let rustc = Command::new("rustc").arg("-vV").output()?;
    let about = String::from_utf8(rustc.stdout)?;
    let host =
        about.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc does not name its host")?;
    let target_directory = directory().join("target");
    let status = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--locked", "--target", host, "--target-dir"])
        .arg(&target_directory)
        .current_dir(directory())
        .env("RUSTFLAGS", INSTRUMENT)
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()?;
    if !status.success() {
        return Err("the targets do not build".into());
    }
    Ok(target_directory.join(host).join("release/lotsfree-fuzz"))
}

/// Runs one target, prints what it did in one line, and says how to see a crash again if there was one.
fn run(binary: &Path, target: &str, seconds: u32) -> Result<Option<String>, Box<dyn Error>> {
    let corpus = directory().join("corpus").join(target);
    let artifacts = directory().join("artifacts").join(target);
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&artifacts)?;
    let seeded = Command::new(binary)
        .env("LOTSFREE_FUZZ", target)
        .env("LOTSFREE_FUZZ_SEEDS", &corpus)
        .env("LOTSFREE_FUZZ_FIXTURES", docs::root().join("fixtures"))
        .output()?;
    if !seeded.status.success() {
        return Err(format!("no seeds for {target}: {}", String::from_utf8_lossy(&seeded.stderr)).into());
    }
    let output = Command::new(binary)
        .env("LOTSFREE_FUZZ", target)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={LONGEST}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-timeout={TIMEOUT}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", "-reload=0"])
        .arg(&corpus)
        .output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    let executions = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let coverage = log.lines().rev().find_map(|line| line.split_once(" cov: ")?.1.split(' ').next());
    let reproducer = log.lines().find_map(|line| line.split_once("Test unit written to "));
    let crashed = !output.status.success();
    eprintln!(
        "{target:10} {:>9} executions, {:>6} branches covered, {}",
        executions.unwrap_or("?").trim(),
        coverage.unwrap_or("?"),
        if crashed { "crashed" } else { "no crash" }
    );
    if !crashed {
        return Ok(None);
    }
    let why = log.lines().find(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
    fs::write(artifacts.join("log"), &output.stderr)?;
    Ok(Some(match reproducer {
        Some((_, reproducer)) => format!(
            "{target}: {}\n  to see it again: LOTSFREE_FUZZ={target} {} {reproducer}",
            why.unwrap_or("crashed").trim(),
            binary.display()
        ),
        None => format!("{target} failed: see {}", artifacts.join("log").display()),
    }))
}
