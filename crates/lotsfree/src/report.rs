//! `lotsfree report`.

use std::io::{self, IsTerminal};

use lotsfree_report::TextOptions;
use lotsfree_report::runs::{runs_html, runs_json, runs_text};
use lotsfree_run::Run;

use crate::cli::{ReportArgs, RunFormat};
use crate::{output, runs};

/// Draws runs on one page, or writes their measures.
pub(crate) fn run(arguments: &ReportArgs) -> anyhow::Result<u8> {
    let format = if arguments.json { RunFormat::Json } else { arguments.format };
    anyhow::ensure!(
        format != RunFormat::Html || arguments.page.output.is_some() || !io::stdout().is_terminal(),
        "a page does not belong on a terminal; use -o FILE, or --format text"
    );
    let runs = runs::open(&arguments.runs)?;
    remark(&runs);
    let text = match format {
        RunFormat::Html => runs_html(&runs),
        RunFormat::Json => runs_json(&runs)?,
        RunFormat::Text => {
            let options = TextOptions {
                width: arguments.page.columns(),
                color: arguments.page.colored(),
                verbose: arguments.verbose,
            };
            runs_text(&runs, options)
        }
    };
    arguments.page.write(&text)?;
    Ok(0)
}

/// Prints the remarks on the runs.
fn remark(runs: &[Run]) {
    for run in runs {
        let place = run.directory().map(|place| format!("{}: ", place.display())).unwrap_or_default();
        for note in run.remarks() {
            output::remark(&format!("{place}{note}"));
        }
    }
}
