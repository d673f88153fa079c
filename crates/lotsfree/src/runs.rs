//! Finds and opens runs on disk, and begins those that are made.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lotsfree_report::TextOptions;
use lotsfree_report::runs::{runs_json, runs_text, strategies_json, strategies_text};
use lotsfree_run::{Facts, Memory, Run, Sink, State, Writer};
use lotsfree_scenario::Strategies;

use crate::cli::StyleArgs;
use crate::output;

/// The deepest level of directories that is searched, below the start of the search.
const DEEPEST: usize = 8;

/// Destination of a run that is made: a directory, or nowhere.
pub(crate) enum Output {
    /// Into a directory, as it goes.
    Directory(Box<Writer>),
    /// Nowhere: it is kept in memory, with the facts and the scenario that it begins with.
    Nowhere(Box<(Memory, Facts, String)>),
}

impl Output {
    /// Begins a run; `None` for its directory keeps it in memory.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub(crate) fn begin(place: Option<&Path>, facts: Facts, scenario: String) -> anyhow::Result<Self> {
        Ok(match place {
            Some(place) => Output::Directory(Box::new(Writer::create(place, facts, &scenario)?)),
            None => Output::Nowhere(Box::new((Memory::default(), facts, scenario))),
        })
    }

    /// Takes its rows.
    pub(crate) fn sink(&mut self) -> &mut dyn Sink {
        match self {
            Output::Directory(writer) => &mut **writer,
            Output::Nowhere(kept) => &mut kept.0,
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub(crate) fn finish(self, state: State) -> anyhow::Result<Run> {
        match self {
            Output::Directory(writer) => Ok(writer.finish(state)?),
            Output::Nowhere(kept) => {
                let (memory, facts, scenario) = *kept;
                Ok(memory.finish(facts, scenario, state))
            }
        }
    }
}

/// The directories of runs at or below a path, sorted. Links are not followed, and the directory of a run is
/// not searched.
///
/// # Errors
/// Names the directory that cannot be read.
pub(crate) fn find(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    search(path, 0, &mut found)?;
    Ok(found)
}

fn search(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if lotsfree_run::is_run(path) {
        found.push(path.to_path_buf());
        return Ok(());
    }
    let cannot = || format!("cannot read {}", path.display());
    let mut below = Vec::new();
    for entry in fs::read_dir(path).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        // A hidden directory is another program's, or the beginning of a run whose process was killed.
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && entry.file_type().with_context(cannot)?.is_dir() {
            below.push(entry.path());
        }
    }
    below.sort();
    if depth < DEEPEST {
        below.iter().try_for_each(|path| search(path, depth + 1, found))?;
    }
    Ok(())
}

/// Opens the named runs and those below the named directories, each once. Runs below a directory come in the
/// order in which they began, which is that of their scenario's variants.
///
/// # Errors
/// If there is none, or one cannot be read.
pub(crate) fn open(paths: &[PathBuf]) -> anyhow::Result<Vec<Run>> {
    Ok(open_each(paths)?.into_iter().flatten().collect())
}

/// Like [`open`], with the runs of each path separately.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_each(paths: &[PathBuf]) -> anyhow::Result<Vec<Vec<Run>>> {
    let mut seen = BTreeSet::new();
    let mut runs = Vec::new();
    for path in paths {
        let found = match path.is_dir() {
            true => find(path)?,
            // Opening it reports the error.
            false => vec![path.clone()],
        };
        anyhow::ensure!(!found.is_empty(), "{}: no run there, and none below it", path.display());
        let mut below = Vec::new();
        for place in found {
            if seen.insert(fs::canonicalize(&place).unwrap_or_else(|_| place.clone())) {
                below.push(Run::open(&place)?);
            }
        }
        // Runs of killed processes do not know when they began.
        let began = |run: &Run| run.timing().map_or(f64::MAX, |timing| timing.started);
        below.sort_by(|a, b| began(a).total_cmp(&began(b)));
        runs.push(below);
    }
    Ok(runs)
}

/// Prints the measures of runs side by side.
///
/// # Errors
/// If standard output cannot be written to.
pub(crate) fn show(runs: &[Run], style: &StyleArgs, json: bool, verbose: bool) -> anyhow::Result<()> {
    if json {
        return output::print(&runs_json(runs)?);
    }
    if runs.is_empty() {
        return Ok(());
    }
    let options = TextOptions { width: style.columns(true), color: style.colored(true), verbose };
    output::print(&runs_text(runs, options))
}

/// Prints what each strategy of a table protects and costs.
///
/// # Errors
/// If standard output cannot be written to.
pub(crate) fn show_strategies(
    table: &Strategies,
    runs: &[Run],
    style: &StyleArgs,
    json: bool,
) -> anyhow::Result<()> {
    if json {
        return output::print(&strategies_json(table, runs)?);
    }
    if runs.is_empty() {
        return Ok(());
    }
    let options = TextOptions { width: style.columns(true), color: style.colored(true), verbose: false };
    output::print(&strategies_text(table, runs, options))
}

/// `of 4 runs 1 is complete, 0 are incomplete, 1 failed (as it is, 64 MiB), 2 were not begun`: each run is
/// counted once. `ended` is the number of runs that can be read.
pub(crate) fn tally(all: usize, ended: usize, complete: usize, failed: &[String]) -> String {
    let are = |number| if number == 1 { "1 is".to_owned() } else { format!("{number} are") };
    let were = |number| if number == 1 { "1 was".to_owned() } else { format!("{number} were") };
    let failed_text = match failed {
        [] => String::new(),
        names => format!(", {} failed ({})", names.len(), names.join("; ")),
    };
    format!(
        "of {} {} complete, {} incomplete{failed_text}, {} not begun",
        if all == 1 { "1 run".to_owned() } else { format!("{all} runs") },
        are(complete),
        are(ended - complete),
        were(all - ended - failed.len())
    )
}
