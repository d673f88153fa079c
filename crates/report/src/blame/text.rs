//! Blame as terminal text.

use super::tables::{self, Grid};
use super::{BlameReport, words};
use crate::TextOptions;
use crate::runs::text::{BOLD, Cell, DIM, PLAIN, Page};

/// Who lost time to memory and who took it as text: the answer, then for a named program what each taker did,
/// else the tables of who paid and who took; how sure that is, what was not seen, what would help. No line is
/// longer than the width (40 to 200 columns) but commands, which are never wrapped.
pub fn blame_text(report: &BlameReport, options: TextOptions) -> String {
    let mut page = Page::new(options);
    page.wrapped(&report.answer, "", BOLD);
    page.wrapped(&words::looked_at(report), "", DIM);
    match (&report.asked, report.blame.payers.as_slice()) {
        (_, []) => {}
        (Some(_), [payer, ..]) => {
            page.blank();
            words::takers(report, payer).iter().for_each(|taker| page.wrapped(taker, "  ", PLAIN));
        }
        (None, _) => grid(&mut page, &tables::payers(report).with_groups()),
    }
    if let Some(unwatched) = &report.unwatched {
        grid(&mut page, &unwatched.grid().with_groups());
    }
    let is_whole = report.asked.is_none() || options.verbose;
    if is_whole && !report.blame.payers.is_empty() && !report.blame.takers.is_empty() {
        grid(&mut page, &tables::takers(report));
        if report.asked.is_none() {
            doing(&mut page, report);
        }
    }
    if let Some(sure) = words::sure(&report.blame) {
        page.blank();
        page.wrapped(&sure, "", PLAIN);
    }
    if !report.details.not_seen.is_empty() {
        page.blank();
        page.wrapped("Not seen:", "", BOLD);
        let unseen = report.details.not_seen.iter();
        unseen.for_each(|what| page.wrapped(&format!("- {what}"), "  ", PLAIN));
    }
    if !report.details.remedies.is_empty() {
        page.blank();
        page.wrapped("What would help:", "", BOLD);
        page.out.push_str(&crate::text::remedies(&report.details.remedies, options));
    }
    page.out
}

/// What the takers of the table were doing.
fn doing(page: &mut Page, report: &BlameReport) {
    let shown = report.blame.takers.iter().take(tables::MOST_ROWS);
    for (name, doing) in shown.filter_map(|taker| report.details.doing.get_key_value(&taker.actor)) {
        page.wrapped(&format!("{name}: {doing}"), "  ", DIM);
    }
}

fn grid(page: &mut Page, grid: &Grid) {
    page.blank();
    page.wrapped(grid.title, "", BOLD);
    let names: Vec<String> = grid.rows.iter().map(|(name, _)| name.clone()).collect();
    let heads: Vec<String> = grid.heads.iter().skip(1).map(|head| (*head).to_owned()).collect();
    let cell = |cells: &Vec<String>, column: usize| Cell {
        text: cells.get(column).cloned().unwrap_or_default(),
        style: PLAIN,
    };
    let column = |column: usize| grid.rows.iter().map(|(_, cells)| cell(cells, column)).collect();
    let columns: Vec<Vec<Cell>> = (0..heads.len()).map(column).collect();
    page.columns(&names, &heads, &columns);
    if let Some(note) = grid.note() {
        page.wrapped(&note, "", DIM);
    }
}
