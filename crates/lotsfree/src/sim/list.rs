//! `lotsfree sim --list`.

use std::fmt::Write;

use anstyle::Style;
use lotsfree_scenario::shipped::SHIPPED;
use lotsfree_scenario::{Case, Errors};
use lotsfree_units::visible_json;
use serde_json::json;

use crate::cli::SimArgs;
use crate::output;

/// Prints the scenarios that ship, with their titles and what they show.
pub(crate) fn run(arguments: &SimArgs) -> anyhow::Result<u8> {
    let mut entries = Vec::new();
    let mut text = String::new();
    let width = arguments.style.columns(true);
    let style = if arguments.style.colored(true) { Style::new().bold() } else { Style::new() };
    for shipped in SHIPPED {
        let scenario = shipped.scenario()?;
        let all = scenario.cases(None)?;
        let refused = refused(&all);
        let cases = all.len();
        let variants: Vec<&str> = scenario.variants().collect();
        let _ = writeln!(text, "{}{style}{}{style:#}", if text.is_empty() { "" } else { "\n" }, shipped.name);
        // A name may have a comma in it.
        let names = variants.join(if variants.iter().any(|name| name.contains(',')) { "; " } else { ", " });
        let runs = match cases {
            1 => "One run.".to_owned(),
            _ if cases == variants.len() => format!("{cases} runs: {names}."),
            _ => format!("{cases} runs, at {} values each: {names}.", cases / variants.len().max(1)),
        };
        let not_here = refused.as_ref().map(|why| format!("Not on the model: {why}."));
        for part in [&scenario.title(), shipped.shows, &runs].into_iter().chain(not_here.as_deref()) {
            let options = textwrap::Options::new(width).initial_indent("  ").subsequent_indent("  ");
            let _ = writeln!(text, "{}", textwrap::fill(part, options.break_words(false)));
        }
        entries.push(json!({
            "name": shipped.name, "title": scenario.title(), "shows": shipped.shows, "variants": variants, "runs": cases,
            "refused": refused,
        }));
    }
    match arguments.json {
        true => output::print(&visible_json(serde_json::to_string_pretty(&entries)? + "\n"))?,
        false => output::print(&text)?,
    }
    Ok(0)
}

/// Which of these cases the model does not run, and why not the first of them.
fn refused(cases: &[Case]) -> Option<String> {
    let errors: Vec<Errors> = cases.iter().filter_map(|case| lotsfree_engine::config(case).err()).collect();
    let why = errors.first()?.iter().next()?.message();
    match errors.len() {
        all if all == cases.len() => Some(why.to_owned()),
        some => Some(format!("{some} of the runs: {why}")),
    }
}
