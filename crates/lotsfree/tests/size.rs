//! `lotsfree size` as its users run it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
    command.arg("size").args(arguments);
    command
}

fn size(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What was said when the question was refused.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_size_without_a_unit_is_refused_for_every_option() {
    for (arguments, option) in [
        (&["hugepages", "--segment", "8"][..], "--segment <SIZE>"),
        (&["hugepages", "--jvm", "16"], "--jvm <HEAP"),
        (&["hugepages", "--segment", "8GiB", "--ram", "64"], "--ram <SIZE>"),
        (&["hugepages", "--segment", "8GiB", "--huge-page-size", "2048"], "--huge-page-size <SIZE>"),
        (&["pagetables", "16"], "<SIZE>"),
        (&["swap", "--ram", "64"], "--ram <SIZE>"),
        (&["overcommit", "--ram", "64GiB", "--vm-size", "1.5"], "--vm-size <SIZE>"),
        (&["watermarks", "--ram", "64GiB", "--burst", "2"], "--burst <SIZE>"),
    ] {
        let said = refused(&size(arguments));
        assert!(said.contains(option) && said.contains("has no unit"), "{said}");
        assert!(said.contains("8GiB") && said.contains("8388608kB"), "{said}");
    }
    let said = refused(&size(&["hugepages", "--segment", "8589934592"]));
    assert!(said.contains("or 8589934592B if bytes are meant"), "{said}");
    out(&size(&["hugepages", "--segment", "8589934592B"]));
    out(&size(&["hugepages", "--segment", "8GiB", "--locked", "0"]));
}
