//! Fuzzes every reader of lotsfree, and the model, with hostile input: one libFuzzer binary with all targets.
//!
//! Environment variables say what to do. `LOTSFREE_FUZZ` names the target; its value `list` prints the names
//! of all targets, with the executions without a new edge that each is to have. `LOTSFREE_FUZZ_SEEDS=DIR`
//! writes the target's seeds, made from `LOTSFREE_FUZZ_FIXTURES`, into an existing directory and exits.
//! Targets that read files keep them in `LOTSFREE_FUZZ_PLACE`. `README.md` says how to run the binary.
#![no_main]

mod files;
mod machines;
mod model;
mod runs;
mod seeds;
mod settings;
mod sources;
mod traces;
mod whole;

use std::sync::OnceLock;

/// A target: the function that takes its input, and the one that makes its seeds.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    /// The seeds that one fixture gives.
    seeds: fn(&seeds::Fixture) -> Vec<Vec<u8>>,
    /// Executions without a new edge that `cargo xtask fuzz settle` asks for.
    settled: u64,
}

/// Executions without a new edge for a target that reads.
const READS: u64 = 10_000_000;
/// Executions without a new edge for a target that executes scenarios, which takes milliseconds each.
const EXECUTES: u64 = 100_000;

const TARGETS: &[Target] = &[
    Target { name: "files", run: files::run, seeds: files::seeds, settled: READS },
    Target { name: "values", run: files::values, seeds: files::value_seeds, settled: READS },
    Target { name: "bytes", run: whole::bytes, seeds: whole::byte_seeds, settled: READS },
    Target { name: "archive", run: sources::archive, seeds: sources::archive_seeds, settled: READS },
    Target { name: "text", run: sources::text, seeds: sources::text_seeds, settled: READS },
    Target { name: "open", run: sources::open, seeds: sources::open_seeds, settled: READS },
    Target { name: "oswatcher", run: sources::oswatcher, seeds: sources::oswatcher_seeds, settled: READS },
    Target { name: "sos", run: sources::sos, seeds: sources::sos_seeds, settled: READS },
    Target { name: "redact", run: sources::redact, seeds: sources::redact_seeds, settled: READS },
    Target { name: "doctor", run: whole::doctor, seeds: sources::text_seeds, settled: READS },
    Target { name: "scenario", run: model::scenario, seeds: model::scenario_seeds, settled: READS },
    Target { name: "operations", run: model::operations, seeds: model::operation_seeds, settled: READS },
    Target { name: "run", run: runs::directory, seeds: runs::directory_seeds, settled: READS },
    Target { name: "journal", run: runs::journal, seeds: runs::journal_seeds, settled: READS },
    Target { name: "tables", run: runs::tables, seeds: runs::table_seeds, settled: READS },
    Target { name: "wire", run: runs::wire, seeds: runs::wire_seeds, settled: READS },
    Target { name: "trace", run: traces::run, seeds: traces::seeds, settled: READS },
    Target { name: "execute", run: machines::run, seeds: machines::seeds, settled: EXECUTES },
    Target { name: "settings", run: settings::run, seeds: settings::seeds, settled: READS },
];

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

fn choose() {
    let name = std::env::var("LOTSFREE_FUZZ").unwrap_or_default();
    if name == "list" {
        for target in TARGETS {
            println!("{} {}", target.name, target.settled);
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
