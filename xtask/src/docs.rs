//! `cargo xtask docs`: pages that are generated from code.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use lotsfree_analysis::validation::Validation;
use lotsfree_report::runs::validation_markdown;
use lotsfree_scenario::Experiments;

/// The generated files: path below the repository's root, contents.
fn generated() -> Result<Vec<(&'static str, String)>, Box<dyn Error>> {
    Ok(vec![
        ("docs/counters.md", lotsfree_kernel_files::counters::document()),
        ("docs/rules.md", lotsfree_doctor::document()),
        ("docs/scenario.md", lotsfree_scenario::document()),
        ("docs/schema/compare-1.json", lotsfree_report::runs::compare::compare_schema()),
        ("docs/schema/doctor-1.json", lotsfree_report::schema()),
        ("docs/schema/scenario-1.json", lotsfree_scenario::schema()),
        ("docs/validation.md", validation()?),
    ])
}

/// The page of what `lotsfree lab validate` kept.
fn validation() -> Result<String, Box<dyn Error>> {
    let experiments = Experiments::load(&root().join("lab/validation.toml"))?;
    let all = Validation::load_all(&root().join("lab/validation"))?;
    Ok(validation_markdown(&experiments, &all))
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

/// Generated pages that are not what the code says.
///
/// # Errors
/// If what they are made of cannot be read.
pub(crate) fn stale() -> Result<Vec<String>, Box<dyn Error>> {
    let differs = |(path, text): (&'static str, String)| {
        (fs::read_to_string(root().join(path)).ok() != Some(text))
            .then(|| format!("{path} is stale: run `cargo xtask docs`"))
    };
    Ok(generated()?.into_iter().filter_map(differs).collect())
}
