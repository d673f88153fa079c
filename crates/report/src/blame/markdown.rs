//! Blame as Markdown, for tickets.

use super::tables::{self, Grid};
use super::{BlameReport, words};
use crate::markdown::{escaped, line, remedy, table};

/// Who lost time to memory and who took it as Markdown (GitHub's dialect). Every name is escaped.
pub fn blame_markdown(report: &BlameReport) -> String {
    let mut out = String::new();
    line(&mut out, &format!("# {}\n", escaped(&words::title(report))));
    line(&mut out, &format!("**{}**\n", escaped(&report.answer)));
    line(&mut out, &format!("{}\n", escaped(&words::looked_at(report))));
    if !report.blame.payers.is_empty() {
        line(&mut out, "## Who paid\n");
        rows(&mut out, &tables::payers(report).with_groups());
        line(&mut out, "## Who took\n");
        let named = if report.asked.is_some() { 1 } else { 0 };
        for taker in report.blame.payers.iter().take(named).flat_map(|payer| words::takers(report, payer)) {
            line(&mut out, &format!("- {}", escaped(&taker)));
        }
        for (name, doing) in report.details.doing.iter().filter(|_| named == 0) {
            line(&mut out, &format!("- {}: {}", escaped(name), escaped(doing)));
        }
        line(&mut out, "");
        if !report.blame.takers.is_empty() {
            rows(&mut out, &tables::takers(report));
        }
    }
    if let Some(unwatched) = &report.unwatched {
        line(&mut out, "## What each program did\n");
        rows(&mut out, &unwatched.grid().with_groups());
    }
    if let Some(sure) = words::sure(&report.blame) {
        line(&mut out, &format!("{}\n", escaped(&sure)));
    }
    if !report.details.not_seen.is_empty() {
        line(&mut out, "## What was not seen\n");
        for what in &report.details.not_seen {
            line(&mut out, &format!("- {}", escaped(what)));
        }
        line(&mut out, "");
    }
    if !report.details.remedies.is_empty() {
        line(&mut out, "## What would help\n");
        for (number, one) in (1..).zip(&report.details.remedies) {
            remedy(&mut out, number, one);
        }
    }
    out
}

fn rows(out: &mut String, grid: &Grid) {
    let row = |(name, cells): &(String, Vec<String>)| {
        std::iter::once(name.clone()).chain(cells.iter().cloned()).collect()
    };
    let rows: Vec<Vec<String>> = grid.rows.iter().map(row).collect();
    let numbers: Vec<bool> = (0..grid.heads.len()).map(|column| column > 0).collect();
    table(out, &grid.heads, &numbers, &rows);
    if let Some(note) = grid.note() {
        line(out, &format!("{note}\n"));
    }
}
