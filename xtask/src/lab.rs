//! `cargo xtask lab [brief] SERIES…`: the tests that need virtual machines.

use std::error::Error;
use std::process::Command;

use crate::docs::root;
use crate::lab_kernel;

/// Tests that ask the same of the model and of a kernel.
const BRIEF: &[&str] = &["conformance"];
/// All that boot something.
const ALL: &[&str] = &["conformance", "lab", "vm", "paths"];

/// Fetches the kernel of each series that is not there, and runs the tests on it: all of them, which takes a
/// quarter of an hour without KVM, or with `brief` those of the fidelity of the model.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (tests, series) = match arguments.split_first() {
        Some((first, rest)) if first == "brief" => (BRIEF, rest),
        _ => (ALL, arguments),
    };
    lab_kernel::missing(series)?;
    for series in series {
        for test in tests {
            eprintln!("{test}, Linux {series}");
            let done = Command::new(env!("CARGO"))
                // Of the whole workspace, so that what is built is what `cargo test` builds.
                .args(["test", "--locked", "--workspace", "--test", test])
                .env("LOTSFREE_LAB", "1")
                .env("LOTSFREE_LAB_KERNEL", series)
                .env("LOTSFREE_STATE", root().join("target/lab-state"))
                .current_dir(root())
                .status()?;
            if !done.success() {
                return Err(format!("{test}, Linux {series}: {done}").into());
            }
        }
    }
    Ok(())
}
