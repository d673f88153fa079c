//! `cargo xtask attack`: everything that attacks lotsfree from outside, at full length.
//!
//! Most of it is part of `cargo test`, in which labs are killed at every eighth step only.

mod vm;

use std::error::Error;
use std::process::Command;

use crate::docs::root;

/// A package, and which tests of it are run; all of them if none is named.
const ATTACKS: &[(&str, &[&str])] = &[
    ("lotsfree-storage", &[]),
    ("lotsfree-changes", &[]),
    ("lotsfree-run", &[]),
    ("lotsfree-doctor", &["--test", "redaction"]),
    ("lotsfree", &["--test", "attacks"]),
    ("lotsfree", &["--test", "kills"]),
    ("lotsfree", &["--test", "faults"]),
    ("lotsfree", &["--test", "runs"]),
    ("lotsfree", &["--test", "output"]),
    ("lotsfree", &["--test", "bounds"]),
    ("lotsfree", &["--test", "paths"]),
];

/// Runs the attacks one after the other, as root all of them. With a program, such as that of an earlier
/// release, only those on a program: what they did to it is what fails.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    if let Some((first, series)) = arguments.split_first()
        && first == "vm"
    {
        return vm::command(series);
    }
    let program = arguments.first();
    let on_program = |tests: &[&str]| tests.contains(&"attacks");
    for (package, tests) in ATTACKS.iter().filter(|(_, tests)| program.is_none() || on_program(tests)) {
        eprintln!("{package} {}", tests.join(" "));
        let mut test = Command::new(env!("CARGO"));
        test.args(["test", "--locked", "--package", package]).args(*tests).current_dir(root());
        test.env("LOTSFREE_KILLS", "every");
        if let Some(program) = program {
            test.env("LOTSFREE_PROGRAM", std::path::absolute(program)?);
        }
        let done = test.status()?;
        if !done.success() {
            return Err(format!("{package} {}: {done}", tests.join(" ")).into());
        }
    }
    Ok(())
}
