//! `cargo xtask docs`: pages that are generated from code.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_analysis::interval::Intervals;
use lotsfree_analysis::nearest::Nearest;
use lotsfree_analysis::validation::Validation;
use lotsfree_report::runs::validation_markdown;
use lotsfree_scenario::shipped::{self, SHIPPED};
use lotsfree_scenario::{Case, Errors, Experiments};
use serde_json::json;

use crate::accuracy;

/// The generated files: path below the repository's root, contents.
fn generated() -> Result<Vec<(&'static str, String)>, Box<dyn Error>> {
    let (experiments, all) = recorded()?;
    Ok(vec![
        ("docs/accuracy.md", accuracy::page()?),
        ("docs/incidents.md", accuracy::incidents()?),
        ("docs/counters.md", lotsfree_kernel_files::counters::document()),
        ("docs/rules.md", lotsfree_doctor::document()),
        ("docs/scenario.md", lotsfree_scenario::document()),
        ("docs/schema/blame-1.json", lotsfree_report::blame::blame_schema()),
        ("docs/schema/strategies-1.json", lotsfree_report::runs::strategies_schema()),
        ("docs/schema/compare-1.json", lotsfree_report::runs::compare::compare_schema()),
        ("docs/schema/doctor-1.json", lotsfree_report::schema()),
        ("docs/schema/scenario-1.json", lotsfree_scenario::schema()),
        ("docs/validation.md", validation_markdown(&experiments, &all)),
        ("lab/intervals.json", Intervals::of_known(&experiments, &all).to_json()?),
        ("lab/nearest.json", Nearest::of_known(&experiments, &all).to_json()?),
        ("crates/lotsfree/src/sim/list.json", scenarios()?),
    ])
}

/// The list of the scenarios that ship, for `lotsfree sim --list`.
fn scenarios() -> Result<String, Box<dyn Error>> {
    let mut entries = Vec::new();
    for shipped in SHIPPED {
        let scenario = shipped.scenario().map_err(|errors| errors.to_string())?;
        let cases = scenario.cases(None).map_err(|errors| errors.to_string())?;
        entries.push(json!({
            "name": shipped.name,
            "title": scenario.title(),
            "shows": shipped.shows,
            "variants": scenario.variants().collect::<Vec<_>>(),
            "runs": cases.len(),
            "refused": refused(&cases),
        }));
    }
    Ok(serde_json::to_string_pretty(&entries)? + "\n")
}

/// Says how many of these cases the model does not run, and why it does not run the first of them.
fn refused(cases: &[Case]) -> Option<String> {
    let errors: Vec<Errors> = cases.iter().filter_map(|case| lotsfree_engine::config(case).err()).collect();
    let why = errors.first()?.iter().next()?.message();
    match errors.len() {
        all if all == cases.len() => Some(why.to_owned()),
        some => Some(format!("{some} of the runs: {why}")),
    }
}

/// What `lotsfree lab validate` has kept.
fn recorded() -> Result<(Experiments, Vec<Validation>), Box<dyn Error>> {
    Ok((shipped::experiments()?, Validation::load_all(&root().join("lab/validation"))?))
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Writes the generated pages.
pub(crate) fn command() -> Result<(), Box<dyn Error>> {
    for (path, text) in generated()? {
        let file = root().join(path);
        if let Some(directory) = file.parent() {
            fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        fs::write(&file, text).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// Generated pages that differ from what the code would generate now.
///
/// # Errors
/// If their sources cannot be read.
pub(crate) fn stale() -> Result<Vec<String>, Box<dyn Error>> {
    let differs = |(path, text): (&'static str, String)| {
        (fs::read_to_string(root().join(path)).ok() != Some(text))
            .then(|| format!("{path} is stale: run `cargo xtask docs`"))
    };
    Ok(generated()?.into_iter().filter_map(differs).collect())
}
