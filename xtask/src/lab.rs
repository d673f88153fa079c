//! `cargo xtask lab [brief] SERIES…`: the tests that need virtual machines.

use std::error::Error;
use std::process::Command;

use crate::docs::root;
use crate::lab_kernel;

/// Tests that compare the model with a kernel.
const BRIEF: &[&str] = &["conformance"];
/// All tests that boot something.
const ALL: &[&str] = &["conformance", "lab", "vm", "paths"];

/// Fetches the kernels of the series that are not in the cache, and runs the tests on each. All tests take a
/// quarter of an hour without KVM; `brief` runs only those of the model's fidelity.
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
                // For the whole workspace, so that the build is the same as that of `cargo test`.
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
