//! What `lotsfree snapshot` replaces before an archive is mailed does not change what the rules find.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_doctor::diagnose;
use lotsfree_snapshot::source::redact::{Redaction, Redactor};
use lotsfree_snapshot::source::{RecordLimits, Recorder, open};
use lotsfree_snapshot::{Input, Observation, Options, Source, collect, observe};

fn fixtures(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            fixtures(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            found.push(path);
        }
    }
}

/// The same input as an archive of it would have it.
fn redacted(input: Input, options: &Options) -> Input {
    let mut redactor = Redactor::new(Redaction::Standard);
    let mut samples: Vec<(f64, Box<dyn Source>)> = Vec::new();
    for (at, source) in input.samples {
        let recorder = Recorder::new(source, RecordLimits::default(), redactor);
        collect(&recorder, options);
        let recorded = recorder.finish();
        redactor = recorded.redactor;
        samples.push((at, Box::new(recorded.source)));
    }
    Input { samples, ..input }
}

fn found(observation: &Observation) -> Vec<(&'static str, String)> {
    let findings = diagnose(observation).findings;
    findings.iter().map(|finding| (finding.rule, format!("{:?}", finding.severity))).collect()
}

#[test]
fn a_redacted_archive_has_the_same_findings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut paths = Vec::new();
    fixtures(&root.join("hosts"), &mut paths);
    fixtures(&root.join("rules"), &mut paths);
    assert!(paths.len() > 150, "{}", paths.len());
    let options = Options::default();
    let mut wrong = Vec::new();
    for path in paths {
        let plain = found(&observe(open(&path).unwrap(), &options));
        let hidden = found(&observe(redacted(open(&path).unwrap(), &options), &options));
        if plain != hidden {
            wrong.push(format!("{}: {plain:?} became {hidden:?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}
