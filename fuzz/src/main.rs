//! Hostile input for every reader of lotsfree, and for the model: one libFuzzer binary with all targets.
//!
//! The environment chooses: `LOTSFREE_FUZZ` names the target, or `list` prints their names;
//! `LOTSFREE_FUZZ_SEEDS=DIR` writes the target's seeds, made from `LOTSFREE_FUZZ_FIXTURES`, into a directory
//! that exists and ends. `README.md` says how to run it.
#![no_main]

mod files;
mod model;
mod seeds;
mod sources;
mod whole;

use std::sync::OnceLock;

/// What one target does with its input, and how its seeds are made from a fixture.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    /// The seeds that one fixture gives.
    seeds: fn(&seeds::Fixture) -> Vec<Vec<u8>>,
}

const TARGETS: &[Target] = &[
    Target { name: "files", run: files::run, seeds: files::seeds },
    Target { name: "values", run: files::values, seeds: files::value_seeds },
    Target { name: "bytes", run: whole::bytes, seeds: whole::byte_seeds },
    Target { name: "archive", run: sources::archive, seeds: sources::archive_seeds },
    Target { name: "text", run: sources::text, seeds: sources::text_seeds },
    Target { name: "open", run: sources::open, seeds: sources::open_seeds },
    Target { name: "oswatcher", run: sources::oswatcher, seeds: sources::oswatcher_seeds },
    Target { name: "sos", run: sources::sos, seeds: sources::sos_seeds },
    Target { name: "redact", run: sources::redact, seeds: sources::redact_seeds },
    Target { name: "doctor", run: whole::doctor, seeds: sources::text_seeds },
    Target { name: "scenario", run: model::scenario, seeds: model::scenario_seeds },
    Target { name: "operations", run: model::operations, seeds: model::operation_seeds },
];

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

fn choose() {
    let name = std::env::var("LOTSFREE_FUZZ").unwrap_or_default();
    if name == "list" {
        for target in TARGETS {
            println!("{}", target.name);
        }
        std::process::exit(0);
    }
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("LOTSFREE_FUZZ={name}: name one of {}", names.join(" "));
        std::process::exit(2);
    };
    if let Some(directory) = std::env::var_os("LOTSFREE_FUZZ_SEEDS") {
        match seeds::write(target.seeds, directory.as_ref()) {
            Ok(()) => std::process::exit(0),
            Err(error) => {
                eprintln!("{name}: {error}");
                std::process::exit(1);
            }
        }
    }
    let _ = CHOSEN.set(target);
}

libfuzzer_sys::fuzz_target!(init: choose(), |data: &[u8]| {
    if let Some(target) = CHOSEN.get() {
        (target.run)(data);
    }
});
