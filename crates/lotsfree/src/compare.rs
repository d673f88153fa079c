//! `lotsfree compare`.

use anyhow::bail;
use lotsfree_analysis::compare::{Sort, compare};
use lotsfree_report::TextOptions;
use lotsfree_report::runs::compare::{MarkdownOptions, compare_json, compare_markdown, compare_text};

use crate::cli::{CompareArgs, CompareFormat, CompareSort};
use crate::runs;

/// Compares runs.
pub(crate) fn run(arguments: &CompareArgs) -> anyhow::Result<u8> {
    let places = runs::open_each(&arguments.runs)?;
    if let [only] = places.iter().flatten().collect::<Vec<_>>().as_slice() {
        let place = only.directory().map(|place| place.display().to_string()).unwrap_or_default();
        bail!("{place}: only this run; name another one to compare it with");
    }
    let compared = compare(&places);
    let sort = match arguments.sort {
        CompareSort::Worst => Sort::Worst,
        CompareSort::Group => Sort::Group,
    };
    let format = if arguments.json { CompareFormat::Json } else { arguments.format };
    let text = match format {
        CompareFormat::Json => compare_json(&compared)?,
        CompareFormat::Markdown => {
            compare_markdown(&compared, MarkdownOptions { sort, verbose: arguments.verbose })
        }
        CompareFormat::Text => {
            let options = TextOptions {
                width: arguments.page.columns(),
                color: arguments.page.colored(),
                verbose: arguments.verbose,
            };
            compare_text(&compared, sort, options)
        }
    };
    arguments.page.write(&text)?;
    Ok(0)
}
