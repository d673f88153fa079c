//! Finds scenarios by name or path, and their cases.

use std::path::Path;

use anyhow::Context;
use lotsfree_scenario::shipped::{self, Shipped};
use lotsfree_scenario::{Case, Scenario};

/// The scenario of a path or a shipped name, and the name under which its runs are filed.
///
/// # Errors
/// If there is no such scenario, or if it has errors.
pub(crate) fn load(named: &str) -> anyhow::Result<(String, Scenario)> {
    if let Some(shipped) = Shipped::named(named) {
        return Ok((shipped.name.to_owned(), shipped.scenario()?));
    }
    anyhow::ensure!(shipped::is_path(named), unknown(named));
    let path = Path::new(named);
    let scenario = Scenario::load(path)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok((stem.into_owned(), scenario))
}

/// The text of a scenario that ships.
///
/// # Errors
/// If no scenario of that name ships.
pub(crate) fn text(named: &str) -> anyhow::Result<&'static str> {
    Ok(Shipped::named(named).with_context(|| unknown(named))?.text)
}

fn unknown(named: &str) -> String {
    let close = Shipped::suggestion(named);
    format!(
        "there is no scenario {named:?}{close} (`lotsfree sim --list` names those that ship; a file is FILE.toml)"
    )
}

/// The cases of a scenario with overrides: those of `variants`, or all if that is empty.
///
/// # Errors
/// If the overrides do not fit the scenario or belie the name of a variant, or it has no such variant.
pub(crate) fn cases(
    scenario: &Scenario,
    set: &[(String, String)],
    variants: &[String],
) -> anyhow::Result<Vec<Case>> {
    let cases = overridden(scenario, set, variants)?;
    scenario.check_names(&pairs(set), wanted(variants))?;
    Ok(cases)
}

/// The same for an experiment, which says what its overrides make of a variant that keeps its name.
///
/// # Errors
/// If the overrides do not fit the scenario, or it has no such variant.
pub(crate) fn overridden(
    scenario: &Scenario,
    set: &[(String, String)],
    variants: &[String],
) -> anyhow::Result<Vec<Case>> {
    let wanted = wanted(variants);
    Ok(match set.is_empty() {
        true => scenario.cases(wanted)?,
        false => scenario.with_for(&pairs(set), wanted)?.cases(wanted)?,
    })
}

fn pairs(set: &[(String, String)]) -> Vec<(&str, &str)> {
    set.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

fn wanted(variants: &[String]) -> Option<&[String]> {
    Some(variants).filter(|names| !names.is_empty())
}
