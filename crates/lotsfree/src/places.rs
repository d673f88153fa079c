//! Directories for the runs of cases.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lotsfree_scenario::Case;

/// The longest directory name, in characters, that is made from a name in the scenario.
const LONGEST: usize = 60;

/// The directory of each case below `base`: `VARIANT`, and with a sweep `VARIANT/VALUE`. All are different,
/// even on file systems that do not distinguish upper and lower case.
pub(crate) fn below(base: &Path, cases: &[Case]) -> Vec<PathBuf> {
    let mut taken = BTreeSet::new();
    let mut variants: Vec<(&str, String)> = Vec::new();
    let mut places = Vec::new();
    for case in cases {
        let known = variants.iter().find(|(variant, _)| *variant == case.variant);
        let variant = match known {
            Some((_, name)) => name.clone(),
            None => {
                let name = unlike(&mut taken, "", &case.variant);
                variants.push((&case.variant, name.clone()));
                name
            }
        };
        places.push(match &case.sweep {
            Some(point) => {
                let value = unlike(&mut taken, &format!("{variant}/"), &point.label);
                base.join(variant).join(value)
            }
            None => base.join(variant),
        });
    }
    places
}

/// A file name that no other below `parent` has.
fn unlike(taken: &mut BTreeSet<String>, parent: &str, name: &str) -> String {
    let safe = safe(name);
    let mut candidate = safe.clone();
    let mut number = 2;
    while !taken.insert(format!("{parent}{}", candidate.to_lowercase())) {
        candidate = format!("{safe}-{number}");
        number += 1;
    }
    candidate
}

/// A name that all file systems accept and that needs no quotes in shells: letters, digits and `.+=-_%`. Each
/// run of other characters becomes one `-`.
pub(crate) fn safe(name: &str) -> String {
    let mut out = String::new();
    for c in name.trim().chars() {
        let keep = c.is_alphanumeric() || ".+=_%".contains(c);
        match keep {
            true => out.push(c),
            false if out.ends_with('-') => {}
            false => out.push('-'),
        }
    }
    let trimmed = out.trim_start_matches(['.', '-']).trim_end_matches('-');
    let short: String = trimmed.chars().take(LONGEST).collect();
    if short.is_empty() { "run".to_owned() } else { short }
}

/// Refuses places that lie within another run, before anything is written, and creates `base`. Nothing is
/// created if there are no places.
///
/// # Errors
/// Names the run, or the directory that cannot be created.
pub(crate) fn check<'a>(base: &Path, places: impl Iterator<Item = &'a Path>) -> anyhow::Result<()> {
    let mut places = places.peekable();
    if places.peek().is_none() {
        return Ok(());
    }
    for place in places {
        let parents = place.ancestors().skip(1).take_while(|parent| parent.starts_with(base));
        if let Some(run) =
            parents.filter(|parent| !parent.as_os_str().is_empty()).find(|p| lotsfree_run::is_run(p))
        {
            anyhow::bail!(
                "{} is itself a run; name another directory with --out, or remove it",
                run.display()
            );
        }
    }
    lotsfree_storage::create_dir_all(base).with_context(|| format!("cannot write to {}", base.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_for_files() {
        for (name, file) in [
            ("as it is", "as-it-is"),
            ("direct I/O", "direct-I-O"),
            ("linux-6.12+mglru", "linux-6.12+mglru"),
            ("../../etc", "etc"),
            ("..", "run"),
            ("-rf", "rf"),
            ("\"1 GiB\"", "1-GiB"),
            ("0.5", "0.5"),
            ("größer", "größer"),
            ("", "run"),
        ] {
            assert_eq!(safe(name), file, "{name:?}");
        }
        assert_eq!(safe(&"x".repeat(4000)).len(), LONGEST);
    }

    #[test]
    fn no_two_names_are_the_same_file() {
        let mut taken = BTreeSet::new();
        let names = ["a b", "a-b", "A b", "a  b", "other"].map(|name| unlike(&mut taken, "", name));
        assert_eq!(names, ["a-b", "a-b-2", "A-b-3", "a-b-4", "other"]);
        assert_eq!(unlike(&mut taken, "other/", "a b"), "a-b");
    }
}
