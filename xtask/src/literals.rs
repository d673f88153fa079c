//! Checks that code names a setting by its constant of `lotsfree-settings`, not by a string: a misspelled
//! string would be a setting that is always missing.
//!
//! The check is textual. It leaves out comments, and strings that only mention a name.

use std::fs;

use lotsfree_settings::ALL;

use crate::docs;

/// Crates that may spell out names: the table of settings, the readers of files that contain names, and the
/// command line with its examples.
const EXEMPT: [&str; 4] =
    ["crates/settings/", "crates/kernel-files/", "crates/snapshot/", "crates/lotsfree/"];

/// Lists string literals that are the name of a setting.
pub(crate) fn check(files: &[String], wrong: &mut Vec<String>) {
    let looked_at = |path: &&String| {
        path.starts_with("crates/")
            && path.contains("/src/")
            && path.ends_with(".rs")
            && !EXEMPT.iter().any(|exempt| path.starts_with(exempt))
    };
    for path in files.iter().filter(looked_at) {
        let text = fs::read_to_string(docs::root().join(path)).unwrap_or_default();
        wrong.extend(literals(&text).map(|(number, name)| {
            format!("{path}:{number}: name the setting by its constant, not as {name:?}")
        }));
    }
}

/// Line numbers, with the names on those lines.
fn literals(text: &str) -> impl Iterator<Item = (usize, &'static str)> + '_ {
    let code = (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.flat_map(|(number, line)| {
        let named = move |name: &&str| line.split('"').skip(1).step_by(2).any(|literal| literal == *name);
        ALL.iter().map(|setting| setting.name).filter(named).map(move |name| (number, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_that_is_a_name_is_found_and_a_mention_is_not() {
        let text =
            "// \"vm.swappiness\"\ncx.sysctl(\"vm.swappiness\")\nformat!(\"vm.swappiness is {now}\")\n";
        assert_eq!(literals(text).collect::<Vec<_>>(), [(2, "vm.swappiness")]);
    }
}
