//! `cargo xtask attack`: all tests that attack lotsfree from outside, at full length.
//!
//! Most of them are part of `cargo test`, where labs are killed only at every eighth step.

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use crate::docs::root;
use crate::groups::{self, Tests};
use crate::lab;

/// Packages, with the tests of each that are run; all of them if none is named.
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

/// Kills of labs in control groups: some 200 labs, each of which takes some seconds in an emulator.
const KILLS: Tests = Tests {
    name: "kills",
    filter: "in_a_control_group fails_at_a_step",
    time_limit: Duration::from_secs(60 * 60),
    shown: "--on cgroup",
};

/// Runs the attacks one after the other; as root, all of them. If a program is named, such as that of an
/// earlier release, only the attacks on a program are run, and those that succeed against it fail.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    if let Some((first, series)) = arguments.split_first()
        && first == "vm"
    {
        lab::fetch_kernels(series)?;
        return groups::test(&KILLS, series);
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
