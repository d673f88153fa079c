//! `cargo xtask lab [brief|group] SERIES…`: the tests that need virtual machines.

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use lotsfree_lab::vm::{self, Kernel, kernel, store};

use crate::docs::root;
use crate::groups::{self, Tests};

/// Tests that compare the model with a kernel.
const BRIEF: &[&str] = &["conformance"];
/// All tests that boot something.
const ALL: &[&str] = &["conformance", "lab", "vm", "paths"];
/// A lab in a control group of version 2, in a virtual machine that is its host.
const GROUP: Tests =
    Tests { name: "group", filter: "", time_limit: Duration::from_secs(300), shown: "the group" };

/// Fetches the kernels of the series that are not in the cache, and runs the tests on each. All tests take a
/// quarter of an hour without KVM; `brief` runs only those of the model's fidelity, and `group` only the lab
/// in a control group, which takes 20 seconds.
pub(crate) fn command(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (part, series) = match arguments.split_first() {
        Some((first, rest)) if ["brief", "group"].contains(&first.as_str()) => (first.as_str(), rest),
        _ => ("all", arguments),
    };
    let tests = match part {
        "brief" => BRIEF,
        "group" => &[],
        _ => ALL,
    };
    fetch_kernels(series)?;
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
        if part != "brief" {
            eprintln!("{}, Linux {series}", GROUP.name);
            groups::test(&GROUP, std::slice::from_ref(series))?;
        }
    }
    Ok(())
}

/// Downloads the kernels of the series that are not in the cache.
pub(crate) fn fetch_kernels(series: &[String]) -> Result<(), Box<dyn Error>> {
    let cache = kernel::cache();
    let fetch = |series: &str| store::fetch(series, &cache, |package| eprintln!("downloading {package}"));
    for series in series.iter().filter(|series| Kernel::find(series).is_err()) {
        match fetch(series) {
            // A machine that was just installed has no package lists.
            Err(vm::Error::NoPackage { .. }) if update_lists()? => fetch(series)?,
            fetched => fetched?,
        };
    }
    Ok(())
}

/// Runs `apt-get update` as root, and returns whether that succeeded.
fn update_lists() -> Result<bool, Box<dyn Error>> {
    eprintln!("apt-get update");
    let status = Command::new("apt-get").args(["--quiet", "--quiet", "update"]).status();
    Ok(status.map_err(|error| format!("apt-get: {error}"))?.success())
}
