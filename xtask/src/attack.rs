//! `cargo xtask attack [PROGRAM]`: everything that attacks lotsfree from outside, at full length.
//!
//! Most of it is part of `cargo test`, in which labs are killed at every eighth step only.

use std::error::Error;
use std::process::Command;

use crate::docs::root;

/// What is run: a package, and the tests of it whose names contain the word; the whole package without one.
const ATTACKS: &[(&str, &[&str])] = &[
    ("lotsfree-storage", &[]),
    ("lotsfree-changes", &[]),
    ("lotsfree-run", &[]),
    ("lotsfree-snapshot", &["redact"]),
    ("lotsfree", &["--test", "attacks"]),
    ("lotsfree", &["--test", "kills"]),
    ("lotsfree", &["--test", "paths"]),
];

/// Runs the attacks one after the other, as root all of them. With a program, such as that of an earlier
/// release, only those on a program: what they did to it is what fails.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
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
