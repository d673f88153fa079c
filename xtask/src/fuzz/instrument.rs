//! Instruments lotsfree's own code for libFuzzer, but not its dependencies.
//!
//! libFuzzer checks every counter after every execution. Dependencies would add many more counters, whose
//! counts (which table zstd chose) would make inputs look new that are the same to lotsfree. `RUSTFLAGS`
//! reaches every crate, so cargo calls this program in place of `rustc` (`RUSTC_WRAPPER`), and it removes the
//! flags for dependencies. As the flags are in `RUSTFLAGS`, cargo still rebuilds when they change.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Makes the compiler count the branches that are taken, and report the values that are compared.
pub(super) const COUNT: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];
/// Also counts the blocks whose execution follows from that of others. It makes the search slower, but the
/// list of lines exact.
pub(super) const EVERY_BLOCK: &str = "-Cllvm-args=-sanitizer-coverage-prune-blocks=0";
/// Checks that stay on in every crate, to find bugs there, too.
const CHECK: &[&str] = &["--cfg", "fuzzing", "-Cdebug-assertions=on", "-Coverflow-checks=on"];
/// The environment variable that tells this program that cargo calls it in place of `rustc`.
const WRAPPER: &str = "LOTSFREE_RUSTC_WRAPPER";

/// The environment of a build that counts.
///
/// # Errors
/// If this program does not know its own path.
pub(super) fn environment(every_block: bool) -> std::io::Result<[(&'static str, OsString); 3]> {
    let mut flags = [COUNT, CHECK].concat();
    flags.extend(every_block.then_some(EVERY_BLOCK));
    let program: PathBuf = std::env::current_exe()?;
    Ok([("RUSTFLAGS", flags.join(" ").into()), ("RUSTC_WRAPPER", program.into()), (WRAPPER, "1".into())])
}

/// Becomes `rustc`, if cargo called this program in its place.
pub(crate) fn become_rustc() -> Option<ExitCode> {
    std::env::var_os(WRAPPER)?;
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let mut arguments = std::env::args_os().skip(1);
    let rustc = arguments.next()?;
    let kept = arguments.filter(|argument| is_kept(argument.to_str().unwrap_or_default(), &package));
    let error = Command::new(&rustc).args(kept).exec();
    eprintln!("{}: {error}", rustc.display());
    Some(ExitCode::FAILURE)
}

/// Whether an argument of `rustc` is kept where it compiles this package.
fn is_kept(argument: &str, package: &str) -> bool {
    let counts = COUNT.contains(&argument) || argument == EVERY_BLOCK;
    !counts || package.starts_with("lotsfree")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crates_of_lotsfree_are_counted_and_all_are_checked() {
        for count in COUNT.iter().chain([&EVERY_BLOCK]) {
            assert!(is_kept(count, "lotsfree-run"));
            assert!(!is_kept(count, "parquet"));
            assert!(!is_kept(count, ""));
        }
        for check in CHECK.iter().chain([&"-Copt-level=2"]) {
            assert!(is_kept(check, "lotsfree-run") && is_kept(check, "parquet"));
        }
    }
}
