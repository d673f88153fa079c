//! Every rule fires on its `fires*.txt` fixtures and is silent, knowingly, on its `quiet*.txt` ones.
//!
//! A fixture is a text archive in `fixtures/rules/<id>/`. Its comment says what it shows and where it is
//! from; a comment line `expect: TEXT` names a text that must occur in the finding (title, evidence, cost,
//! notes or remedies).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_doctor::{Context, Finding, Rule, Skip, rules};
use lotsfree_snapshot::source::open;
use lotsfree_snapshot::source::text::TextArchive;
use lotsfree_snapshot::{Observation, Options, observe};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/rules")
}

fn fixtures(rule: &str, kind: &str) -> Vec<(String, String, Observation)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory().join(rule)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(kind) || !name.ends_with(".txt") {
            continue;
        }
        let archive = TextArchive::parse(&fs::read(entry.path()).unwrap()).unwrap();
        let comment = archive.comment.clone();
        let input = open(&entry.path()).unwrap();
        let observation = observe(input, &Options::default());
        assert!(
            observation.now.problems.iter().all(|p| p.kind != lotsfree_kernel_files::ProblemKind::Malformed),
            "{rule}/{name} has lines that no parser understands: {:?}",
            observation.now.problems
        );
        found.push((name, comment, observation));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn text(finding: &Finding) -> String {
    serde_json::to_string(finding).unwrap().replace("\\\"", "\"")
}

fn check(rule: &dyn Rule) -> Vec<String> {
    let id = rule.meta().id;
    let mut wrong = Vec::new();
    let (fires, quiet) = (fixtures(id, "fires"), fixtures(id, "quiet"));
    if fires.is_empty() || quiet.is_empty() {
        wrong.push(format!("{id}: needs fixtures/rules/{id}/fires*.txt and quiet*.txt"));
    }
    for (name, comment, observation) in &fires {
        match rule.check(&Context::new(observation)) {
            Ok(findings) if findings.is_empty() => wrong.push(format!("{id}/{name}: does not fire")),
            Err(skip) => wrong.push(format!("{id}/{name}: does not fire: {skip:?}")),
            Ok(findings) => {
                for finding in &findings {
                    if finding.rule != id {
                        wrong.push(format!("{id}/{name}: finding of another rule, {}", finding.rule));
                    }
                    if finding.evidence.is_empty() || finding.cost.text.is_empty() {
                        wrong.push(format!("{id}/{name}: a finding without evidence or cost"));
                    }
                    if finding.remedies.is_empty() && finding.notes.is_empty() {
                        wrong.push(format!("{id}/{name}: a finding without remedy or explanation"));
                    }
                }
                let all = findings.iter().map(text).collect::<String>();
                for expected in comment.lines().filter_map(|l| l.trim().strip_prefix("expect: ")) {
                    if !all.contains(expected) {
                        wrong.push(format!("{id}/{name}: expected {expected:?} in {all}"));
                    }
                }
            }
        }
    }
    for (name, _, observation) in &quiet {
        match rule.check(&Context::new(observation)) {
            Ok(findings) if findings.is_empty() => {}
            Err(Skip::NotApplicable(_)) => {}
            Ok(findings) => wrong.push(format!("{id}/{name}: fires: {}", findings[0].title)),
            Err(skip) => wrong.push(format!("{id}/{name}: is not quiet but blind: {skip:?}")),
        }
    }
    wrong
}

#[test]
fn every_rule_fires_and_stays_quiet() {
    let wrong: Vec<String> = rules::all().flat_map(check).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn kills_at_the_limits_of_many_groups_are_one_finding() {
    let input = open(&directory().join("oom-happened/fires-groups.txt")).unwrap();
    let observation = observe(input, &Options::default());
    let rule = rules::find("oom-happened").unwrap();
    let findings = rule.check(&Context::new(&observation)).unwrap();
    let [finding] = findings.as_slice() else { panic!("{} findings", findings.len()) };
    let groups = finding.evidence.iter().filter(|evidence| evidence.field == "kills").count();
    assert_eq!(groups, 5, "the others are counted: {}", text(finding));
}

#[test]
fn every_fixture_belongs_to_a_rule() {
    for entry in fs::read_dir(directory()).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(rules::find(&name).is_some(), "fixtures/rules/{name} belongs to no rule");
    }
}

#[test]
fn rules_are_documented_in_the_same_sections() {
    let mut ids = std::collections::HashSet::new();
    for rule in rules::all() {
        let meta = rule.meta();
        assert!(ids.insert(meta.id), "{} is registered twice", meta.id);
        assert!(
            meta.id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{}",
            meta.id
        );
        assert!(meta.summary().ends_with('.'), "{}: it begins with a sentence", meta.id);
        let sections: Vec<_> = meta.doc.lines().filter_map(|l| l.trim().strip_prefix("# ")).collect();
        assert_eq!(sections, ["Sees", "Hurts", "Remedies", "False alarms", "References"], "{}", meta.id);
    }
}

#[test]
fn a_rule_without_data_is_unknown_never_quiet() {
    let empty = Observation::instant("nothing", lotsfree_snapshot::Snapshot::default());
    for rule in rules::all() {
        let outcome = rule.check(&Context::new(&empty));
        assert!(
            matches!(outcome, Err(Skip::Unknown(_) | Skip::NeedsSamples)),
            "{} says {outcome:?} of a host of which nothing is known",
            rule.meta().id
        );
    }
}
