//! `lotsfree sim --list`.
//!
//! Titles and descriptions of the scenarios that ship are in `list.json`, which `cargo xtask docs` generates,
//! so that listing them parses no scenario.

use std::fmt::Write;

use anstyle::Style;
use serde::Deserialize;

use crate::cli::SimArgs;
use crate::output;

/// The list as JSON, indented.
const LIST: &str = include_str!("list.json");

/// A scenario that ships.
#[derive(Deserialize)]
struct Entry<'a> {
    name: &'a str,
    title: &'a str,
    shows: &'a str,
    variants: Vec<&'a str>,
    /// Number of runs.
    runs: usize,
    /// The reason why the model refuses the scenario or some of its runs.
    refused: Option<&'a str>,
}

impl Entry<'_> {
    /// `3 runs: base, direct, capped.`
    fn runs(&self) -> String {
        let variants = &self.variants;
        // A name may contain a comma.
        let names = variants.join(if variants.iter().any(|name| name.contains(',')) { "; " } else { ", " });
        match self.runs {
            1 => "One run.".to_owned(),
            runs if runs == variants.len() => format!("{runs} runs: {names}."),
            runs => format!("{runs} runs, at {} values each: {names}.", runs / variants.len().max(1)),
        }
    }
}

/// Prints the scenarios that ship, with their titles and what they show.
pub(crate) fn run(arguments: &SimArgs) -> anyhow::Result<u8> {
    if arguments.json {
        output::print(LIST)?;
        return Ok(0);
    }
    let mut text = String::new();
    let width = arguments.style.columns(true);
    let style = if arguments.style.colored(true) { Style::new().bold() } else { Style::new() };
    for entry in serde_json::from_str::<Vec<Entry<'_>>>(LIST)? {
        let _ = writeln!(text, "{}{style}{}{style:#}", if text.is_empty() { "" } else { "\n" }, entry.name);
        let refused = entry.refused.map(|why| format!("Not on the model: {why}."));
        for part in [entry.title, entry.shows, &entry.runs()].into_iter().chain(refused.as_deref()) {
            let options = textwrap::Options::new(width).initial_indent("  ").subsequent_indent("  ");
            let _ = writeln!(text, "{}", textwrap::fill(part, options.break_words(false)));
        }
    }
    output::print(&text)?;
    Ok(0)
}
