//! `lotsfree explain`.

use std::fmt::Write;

use anstyle::Style;
use lotsfree_doctor::{Meta, rules};
use lotsfree_units::visible_json;

use crate::cli::ExplainArgs;

/// Prints a rule's documentation, or the list of rules.
pub(crate) fn run(arguments: &ExplainArgs) -> anyhow::Result<u8> {
    let wanted = |meta: &&'static Meta| arguments.rule.is_none_or(|id| id == meta.id);
    let metas: Vec<&'static Meta> = rules::all().map(|rule| rule.meta()).filter(wanted).collect();
    let text = match (arguments.json, arguments.rule) {
        (true, _) => json(&metas)?,
        (false, Some(_)) => metas.iter().map(|meta| page(meta, arguments)).collect(),
        (false, None) => list(&metas, arguments),
    };
    arguments.page.write(&text)?;
    Ok(0)
}

fn json(metas: &[&Meta]) -> anyhow::Result<String> {
    let entries: Vec<_> = (metas.iter())
        .map(|meta| {
            let doc = meta.lines().collect::<Vec<_>>().join("\n");
            serde_json::json!({ "id": meta.id, "group": meta.group.title(), "summary": meta.summary(), "doc": doc })
        })
        .collect();
    Ok(visible_json(serde_json::to_string_pretty(&entries)? + "\n"))
}

fn page(meta: &Meta, arguments: &ExplainArgs) -> String {
    let width = arguments.page.columns().min(100);
    let style = if arguments.page.colored() { Style::new().bold() } else { Style::new() };
    let bold = |text: &str| format!("{style}{text}{style:#}");
    let mut out = format!("{}\n\n", bold(meta.id));
    let mut paragraph = String::new();
    for line in meta.lines().chain([""]) {
        match line.strip_prefix("# ") {
            Some(heading) => _ = writeln!(out, "\n{}", bold(heading)),
            None if line.is_empty() => {
                for wrapped in wrap(&paragraph, width) {
                    let _ = writeln!(out, "{wrapped}");
                }
                paragraph.clear();
            }
            None => {
                paragraph.push_str(line);
                paragraph.push(' ');
            }
        }
    }
    out
}

fn list(metas: &[&Meta], arguments: &ExplainArgs) -> String {
    let width = arguments.page.columns();
    let longest = metas.iter().map(|meta| meta.id.len()).max().unwrap_or(0);
    let mut out = String::new();
    let mut group = None;
    for meta in metas {
        if group.replace(meta.group) != Some(meta.group) {
            let _ = writeln!(out, "{}{}", if out.is_empty() { "" } else { "\n" }, meta.group.title());
        }
        for (i, line) in wrap(&meta.summary(), width.saturating_sub(longest + 4).max(30)).iter().enumerate() {
            let id = if i == 0 { meta.id } else { "" };
            let _ = writeln!(out, "  {id:<longest$}  {line}");
        }
    }
    out
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    textwrap::wrap(text.trim(), textwrap::Options::new(width).break_words(false))
        .into_iter()
        .map(Into::into)
        .collect()
}
