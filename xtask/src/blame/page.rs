//! The page of runs, `docs/blame-cases.md`: a part for each kernel.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::{CASES, Case, Outcome, Result, Said};

const HEAD: &str = "\
# Known culprits

`cargo xtask blame` writes the part of this page that is about a host, `cargo xtask blame vm SERIES` that about a
virtual machine; with words after it, only the rows of the cases that these choose. Each application runs in a control
group with a limit, first alone, then beside culprits in groups below the same limit, and then without each of them in
turn, for 15 s each; all that three times, on a host six times beside three culprits, of which the mean is shown, and of
the shares the mean by what was lost each time. In a virtual machine, which is emulated, each run lasts 24 s with
`--budget 10`, most limits are a sixth to a quarter smaller, and small culprits grow three times more slowly. *Lost* is
the part of its time that `lotsfree blame` says the application lost to memory, *blamed* the share that it charges to a
culprit, and *gives back* what the application no longer loses without that culprit, as a part of what all of them give
back. A case fails if the application is not named, if no culprit comes first, or if a share is more than 15 points from
what is given back.
";

/// The head of a part's table.
const TABLE: &str = "\
| | alone | with culprits | lost alone | lost | culprit | blamed | gives back | |
|---|--:|--:|--:|--:|---|--:|--:|---|
";
/// What begins the heading of a part.
const PART: &str = "\n## ";

/// The heading of this host's part.
pub(super) fn this_host() -> Result<String> {
    let cpus = std::thread::available_parallelism()?;
    let groups = if Path::new("/sys/fs/cgroup/memory").exists() { 1 } else { 2 };
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let release: String = release.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    Ok(format!("Linux {release}, a host with {cpus} CPUs, control groups of version {groups}"))
}

/// Writes rows of the cases that were asked for into the part of a place, one per culprit, and leaves other
/// cases and parts as they are.
pub(super) fn write(path: &Path, place: &str, asked: &[&Case], outcomes: &[Outcome]) -> Result<()> {
    let before = match fs::read_to_string(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        read => read.unwrap_or_default(),
    };
    // The minor version says little: a part takes the place of the one before it of the same series.
    let series = |heading: &str| heading.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    let mut parts: Vec<&str> = before.split(PART).skip(1).collect();
    let old = parts.iter().position(|part| series(part) == series(place));
    let mut rows = old.map(|old| rows_of(parts[old])).unwrap_or_default();
    rows.retain(|(name, _)| asked.iter().all(|case| case.name() != *name));
    for outcome in outcomes {
        rows.push((outcome.name.clone(), row(outcome)?));
    }
    let mut new = format!("{place}\n\n{TABLE}");
    for case in CASES {
        new.extend(rows.iter().filter(|(name, _)| *name == case.name()).map(|(_, text)| text.as_str()));
    }
    match old {
        Some(old) => parts[old] = &new,
        None => parts.push(&new),
    }
    parts.sort_by_key(|part| !part.contains("a host"));
    let mut page = HEAD.to_owned();
    parts.iter().for_each(|part| page += &format!("{PART}{}\n", part.trim_end()));
    fs::write(path, page)?;
    Ok(())
}

/// The rows of each case in a part, by the case's name, which begins the first of them.
fn rows_of(part: &str) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for line in part.lines().skip_while(|line| !line.starts_with("|---")).skip(1) {
        let name = line.trim_start_matches("| ").split(" |").next().unwrap_or_default();
        match rows.last_mut() {
            Some((_, text)) if name.is_empty() => *text += &format!("{line}\n"),
            _ => rows.push((name.to_owned(), format!("{line}\n"))),
        }
    }
    rows
}

fn row(outcome: &Outcome) -> Result<String> {
    let mut row = String::new();
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let Outcome { name, alone, with, culprits } = outcome;
    let verdict = match outcome.complaints() {
        complaints if complaints.is_empty() => String::new(),
        complaints => format!("**{}**", complaints.join("; ")),
    };
    for (number, culprit) in culprits.iter().enumerate() {
        let shown = |text: String| if number == 0 { text } else { String::new() };
        writeln!(
            row,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            shown(name.clone()),
            shown(rate(alone)),
            shown(rate(with)),
            shown(percent(alone.lost)),
            shown(percent(with.lost)),
            culprit.what,
            percent(culprit.blamed),
            percent(culprit.back),
            shown(verdict.clone())
        )?;
    }
    Ok(row)
}

fn rate(said: &Said) -> String {
    format!("{}/s", lotsfree_units::Grouped(said.rate as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::Judged;

    #[test]
    fn a_run_of_some_cases_replaces_their_rows_alone() {
        let page = tempfile::NamedTempFile::new().unwrap();
        let all: Vec<&Case> = CASES.iter().collect();
        let outcome = |case: &Case, lost: f64| Outcome {
            name: case.name(),
            alone: Said::default(),
            with: Said { lost, shares: vec![("cp".to_owned(), 1.0)], ..Said::default() },
            culprits: (case.culprits.iter())
                .map(|culprit| Judged {
                    what: culprit.what.to_owned(),
                    blamed: 1.0,
                    is_first: true,
                    without: Said::default(),
                    back: 1.0,
                })
                .collect(),
        };
        let outcomes: Vec<Outcome> = all.iter().map(|case| outcome(case, 0.5)).collect();
        write(page.path(), "Linux 6.1.5, a virtual machine", &all, &outcomes).unwrap();
        write(page.path(), "Linux 6.12.1, a virtual machine", &all, &outcomes).unwrap();
        let before = fs::read_to_string(page.path()).unwrap();

        let two = &all[10..12];
        let again: Vec<Outcome> = two.iter().map(|case| outcome(case, 0.25)).collect();
        write(page.path(), "Linux 6.1.9, a virtual machine", two, &again).unwrap();
        let after = fs::read_to_string(page.path()).unwrap();
        let changed: Vec<(&str, &str)> =
            before.lines().zip(after.lines()).filter(|(before, after)| before != after).collect();
        assert_eq!(before.lines().count(), after.lines().count());
        assert_eq!(changed.len(), 3, "the heading and the first rows of two cases: {changed:?}");
        assert!(changed[1].0.contains("50 %") && changed[1].1.contains("25 %"), "{changed:?}");
        // A case that did not come to an end has no row.
        write(page.path(), "Linux 6.1.9, a virtual machine", two, &[]).unwrap();
        assert!(!fs::read_to_string(page.path()).unwrap().contains("25 %"));
    }
}
