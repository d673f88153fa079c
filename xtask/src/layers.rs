//! Checks that the manifests agree with the table of crates in ARCHITECTURE.md.
//!
//! A crate uses only those above it in the table, so that data flows one way. The table does not have
//! dependencies of tests.

use std::error::Error;
use std::fs;

use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::docs;

/// The document with the table.
const DOCUMENT: &str = "ARCHITECTURE.md";
/// Headings of the columns that are read.
const CRATE: &str = "crate";
const USES: &str = "uses";
/// Beginning of the names of packages that the table leaves out.
const PREFIX: &str = "lotsfree-";

/// A crate and those of the workspace that it uses.
type Row = (String, Vec<String>);

/// Compares the table with the manifests.
///
/// # Errors
/// If the document or the manifests cannot be read.
pub(crate) fn check(wrong: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(docs::root().join(DOCUMENT))?;
    let table = table(&text).ok_or("ARCHITECTURE.md has no table of crates with a column `uses`")?;
    wrong.extend(compare(&table, &manifests()?));
    Ok(())
}

/// The first table in a document that has both columns.
fn table(text: &str) -> Option<Vec<Row>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = text.lines();
    let (name, uses) = lines.find_map(|line| {
        let heads = cells(line);
        let place = |head: &str| heads.iter().position(|found| found == head);
        Some((place(CRATE)?, place(USES)?))
    })?;
    let row = |line: &str| {
        let cells = cells(line);
        let used = cells.get(uses)?.split(", ").filter(|used| *used != "nothing").map(str::to_owned);
        Some((cells.get(name)?.trim_matches('`').to_owned(), used.collect()))
    };
    // The line between the heading and the rows is skipped.
    lines.skip(1).take_while(|line| line.starts_with('|')).map(row).collect()
}

/// The rows that the workspace's manifests imply.
fn manifests() -> Result<Vec<Row>, Box<dyn Error>> {
    let manifest = docs::root().join("Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).no_deps().exec()?;
    let short = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let row = |package: &cargo_metadata::Package| {
        let used = package.dependencies.iter();
        let used = used.filter(|used| used.path.is_some() && used.kind == DependencyKind::Normal);
        (short(&package.name), used.map(|used| short(&used.name)).collect())
    };
    Ok(metadata.packages.iter().map(row).collect())
}

/// Says where the table and the manifests differ, and which row uses a crate below it.
fn compare(table: &[Row], manifests: &[Row]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, uses) in manifests {
        let Some(place) = table.iter().position(|(listed, _)| listed == name) else {
            wrong.push(format!("{DOCUMENT}: the table lacks {name}"));
            continue;
        };
        let (_, listed) = &table[place];
        for used in uses {
            if !listed.contains(used) {
                wrong.push(format!("{DOCUMENT}: {name} uses {used}, which its row does not say"));
            }
            if !table[..place].iter().any(|(above, _)| above == used) {
                wrong.push(format!("{DOCUMENT}: {name} uses {used}, which does not stand above it"));
            }
        }
        let unused = listed.iter().filter(|used| !uses.contains(used));
        wrong.extend(unused.map(|used| format!("{DOCUMENT}: {name} does not use {used}")));
    }
    let gone = table.iter().filter(|(name, _)| manifests.iter().all(|(known, _)| known != name));
    wrong.extend(gone.map(|(name, _)| format!("{DOCUMENT}: there is no crate {name}")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Text\n\n| crate | holds | uses |\n|---|---|---|\n| `units` | bytes | nothing |\n\
         | `run` | rows | units |\n\nmore\n| crate | uses |\n";

    fn row(name: &str, uses: &[&str]) -> Row {
        (name.to_owned(), uses.iter().map(|used| (*used).to_owned()).collect())
    }

    #[test]
    fn a_table_that_says_what_the_manifests_say_is_fine() {
        let table = table(TABLE).unwrap();
        assert_eq!(table, [row("units", &[]), row("run", &["units"])]);
        assert_eq!(compare(&table, &[row("run", &["units"]), row("units", &[])]), [""; 0]);
    }

    #[test]
    fn what_the_table_lacks_invents_or_turns_round_is_named() {
        let table = table(TABLE).unwrap();
        let wrong = compare(&table, &[row("units", &["run"]), row("lab", &[])]);
        let expected = [
            "ARCHITECTURE.md: units uses run, which its row does not say",
            "ARCHITECTURE.md: units uses run, which does not stand above it",
            "ARCHITECTURE.md: the table lacks lab",
            "ARCHITECTURE.md: there is no crate run",
        ];
        assert_eq!(wrong, expected);
        let wrong = compare(&table, &[row("units", &[]), row("run", &[])]);
        assert_eq!(wrong, ["ARCHITECTURE.md: run does not use units"]);
    }
}
