//! Names and beginnings of tasks, as the kernel tells them without any tracepoint.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::process::Command;

use lotsfree_sys::{Observed, Tracing};

#[test]
fn a_process_that_begins_and_executes_another_program_is_told_of() {
    let cpus: Vec<u32> = (0..std::thread::available_parallelism().unwrap().get() as u32).collect();
    let mut tracing = match Tracing::open(&cpus, &[], 1 << 16) {
        Ok(tracing) => tracing,
        Err(error) => {
            eprintln!("not tested: {error}");
            return;
        }
    };
    let child = Command::new("sleep").arg("0").spawn().unwrap();
    let id = child.id();
    child.wait_with_output().unwrap();
    let (mut forked, mut named) = (None, Vec::new());
    tracing.drain(|observed| match observed {
        Observed::Forked { process, parent, .. } if process == id => forked = Some(parent),
        Observed::Named { process, name, .. } if process == id => named.push(name),
        _ => {}
    });
    assert_eq!(forked, Some(std::process::id()));
    assert_eq!(named, ["sleep"]);
}
