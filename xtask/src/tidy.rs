//! `cargo xtask tidy`: checks that neither rustfmt nor clippy makes.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{deny, docs, layers, literals, seam};

/// The largest file that may be tracked, in bytes: a larger one would make every clone slower.
const LARGEST: u64 = 512 << 10;
/// The most columns of a comment, as rustfmt does not wrap them. Lines with addresses and tables are exempt,
/// as they cannot be broken.
const WIDEST: usize = 110;
/// Crates that read files from others. Their arithmetic is also checked in release builds: a number from a
/// hostile file that overflows ends the program instead of making it answer wrongly.
const PARSERS: [&str; 8] = [
    "lotsfree-changes",
    "lotsfree-kernel-files",
    "lotsfree-formulas",
    "lotsfree-run",
    "lotsfree-scenario",
    "lotsfree-snapshot",
    "lotsfree-units",
    "lotsfree-workload",
];

/// Lists all faults, and fails if there are any.
pub(crate) fn command() -> Result<(), Box<dyn Error>> {
    let files = tracked()?;
    let mut wrong = docs::stale()?;
    for path in &files {
        check_file(path, &mut wrong);
    }
    check_readme(&mut wrong);
    check_fixtures(&files, &mut wrong);
    check_specification(&mut wrong);
    seam::check(&files, &mut wrong);
    check_overflow(&fs::read_to_string(docs::root().join("Cargo.toml"))?, &mut wrong)?;
    layers::check(&mut wrong)?;
    literals::check(&files, &mut wrong);
    deny::check(&mut wrong)?;
    match wrong.as_slice() {
        [] => Ok(()),
        wrong => Err(format!("{} untidy\n{}", wrong.len(), wrong.join("\n")).into()),
    }
}

/// Files that git tracks or would track.
fn tracked() -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(docs::root())
        .output()
        .map_err(|error| format!("git: {error}"))?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut paths: Vec<String> = listed.lines().map(str::to_owned).collect();
    paths.retain(|path| docs::root().join(path).is_file());
    Ok(paths)
}

fn check_file(path: &str, wrong: &mut Vec<String>) {
    let file = docs::root().join(path);
    if fs::metadata(&file).is_ok_and(|metadata| metadata.len() > LARGEST) {
        wrong.push(format!("{path}: larger than {} KiB", LARGEST >> 10));
    }
    let Ok(text) = fs::read_to_string(&file) else { return };
    let code = path.ends_with(".rs");
    // Kernel text is kept as the kernel printed it.
    if !(code || path.ends_with(".md") || path.ends_with(".toml") || path.starts_with(".ci/")) {
        return;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        wrong.push(format!("{path}: no newline at its end"));
    }
    for (line, number) in text.lines().zip(1..) {
        // Samples of kernel text in tests keep what the kernel prints.
        if (line.ends_with(' ') || line.ends_with('\t')) && !path.contains("/src/file/") {
            wrong.push(format!("{path}:{number}: white space at the end"));
        }
        let markers = ["TO".to_owned() + "DO", "FIX".to_owned() + "ME", "XX".to_owned() + "X:"];
        if markers.iter().any(|marker| line.contains(marker.as_str())) {
            wrong.push(format!("{path}:{number}: unfinished"));
        }
        let comment =
            code && line.trim_start().starts_with("//") && !line.contains("http") && !line.contains('|');
        if comment && line.chars().count() > WIDEST {
            wrong.push(format!("{path}:{number}: wider than {WIDEST} columns"));
        }
    }
    // Code that two rules share belongs into a module beside them.
    if path.starts_with("crates/doctor/src/") && text.contains("use crate::rules::") {
        wrong.push(format!("{path}: uses a rule"));
    }
    if code && !path.contains("/rules/") && !text.starts_with("//!") && !text.starts_with("#!") {
        wrong.push(format!("{path}: does not say what it is for"));
    }
}

/// The README promises two set-up commands and no more.
fn check_readme(wrong: &mut Vec<String>) {
    let text = fs::read_to_string(docs::root().join("README.md")).unwrap_or_default();
    let commands: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("cargo ")).collect();
    if commands != ["cargo run --release -- doctor", "cargo test --workspace"] {
        wrong.push(format!("README.md: its set-up commands are {commands:?}"));
    }
}

/// Every host fixture must say where it is from, and every rule fixture what it shows.
fn check_fixtures(files: &[String], wrong: &mut Vec<String>) {
    for path in files.iter().filter(|path| path.starts_with("fixtures/") && path.ends_with(".txt")) {
        let text = fs::read(docs::root().join(path)).unwrap_or_default();
        if text.starts_with(b"-- ") || text.is_empty() {
            wrong.push(format!("{path}: does not say where it is from"));
        }
    }
}

/// Each promise of the specification must name tests that exist, or say that it is pending.
fn check_specification(wrong: &mut Vec<String>) {
    let text = fs::read_to_string(docs::root().join("SPECIFICATION.md")).unwrap_or_default();
    let mut sources = BTreeSet::new();
    for directory in ["crates", "xtask"] {
        collect_tests(&docs::root().join(directory), &mut sources);
    }
    for (line, number) in text.lines().zip(1..) {
        for name in line.split("test:`").skip(1).filter_map(|rest| rest.split('`').next()) {
            if !sources.contains(name) {
                wrong.push(format!("SPECIFICATION.md:{number}: there is no test {name}"));
            }
        }
    }
}

/// The release profile must check the arithmetic of every crate in [`PARSERS`].
fn check_overflow(manifest: &str, wrong: &mut Vec<String>) -> Result<(), toml::de::Error> {
    let manifest: toml::Table = manifest.parse()?;
    for parser in PARSERS {
        let keys = ["profile", "release", "package", parser];
        let mut section = Some(&manifest);
        for key in keys {
            section = section.and_then(|section| section.get(key)?.as_table());
        }
        let checked = section.and_then(|section| section.get("overflow-checks")?.as_bool());
        if checked != Some(true) {
            wrong.push(format!("Cargo.toml: [{}] has no `overflow-checks = true`", keys.join(".")));
        }
    }
    Ok(())
}

fn collect_tests(directory: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect_tests(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let functions =
                text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split('(').next());
            names.extend(functions.map(str::to_owned));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_of_crates_that_parse_is_checked_in_release() {
        let manifest = include_str!("../../Cargo.toml");
        let wrong = |text: &str| {
            let mut wrong = Vec::new();
            check_overflow(text, &mut wrong).unwrap();
            wrong
        };
        assert_eq!(wrong(manifest), [""; 0]);
        assert_eq!(wrong("").len(), PARSERS.len());
        let off = manifest.replacen("overflow-checks = true", "overflow-checks = false", 1);
        let first = PARSERS[0];
        let expected =
            format!("Cargo.toml: [profile.release.package.{first}] has no `overflow-checks = true`");
        assert_eq!(wrong(&off), [expected]);
    }
}
