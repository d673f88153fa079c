//! The records of `lotsfree lab validate`, which docs/validation.md is made of.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Experiments that the model executes in a second or two, on kernels from 3.10 to MGLRU.
const SHORT: [&str; 4] = ["overnight", "random-1009", "random-1104", "random-1304"];

#[test]
fn the_figures_of_the_model_in_the_records_are_those_of_this_model() {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/validation");
    let directory = TempDir::new().unwrap();
    let kept = fs::read_dir(records).unwrap().map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        SHORT.iter().any(|short| name.starts_with(&format!("{short}-")) && name.ends_with(".json"))
    });
    let kept: Vec<_> = kept.collect();
    assert!(kept.len() > SHORT.len(), "overnight is of two kernels, and there are {kept:?}");
    for record in &kept {
        fs::copy(record, directory.path().join(record.file_name().unwrap())).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_lotsfree"))
        .args(["lab", "validate", "--model-only", "--page", "page.md", "-o", "."])
        .args(SHORT)
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for record in &kept {
        let name = record.file_name().unwrap();
        assert!(
            fs::read(record).unwrap() == fs::read(directory.path().join(name)).unwrap(),
            "{}: the model has changed since; `lotsfree lab validate --model-only` writes the records anew",
            name.display()
        );
    }
}
