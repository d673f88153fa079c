//! Runs compared with each other as Markdown, for tickets and for pages of documentation.

use lotsfree_analysis::compare::{Compared, Sort, Table, described};

use super::grid::{Grid, KEY, REPEATS, orders_sentence, totals};
use crate::markdown::{escaped, line};

/// How to write it.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarkdownOptions {
    /// Which measures come first.
    pub sort: Sort,
    /// Whether to list the kernel's counters one by one, and what is too small to tell.
    pub verbose: bool,
}

/// Runs compared with each other as Markdown (GitHub's dialect). Its parts are there singly:
/// [`Grid::overview`], [`table_markdown`], [`orders_sentence`].
pub fn compare_markdown(compared: &Compared, options: MarkdownOptions) -> String {
    let mut out = String::new();
    line(&mut out, "# Runs compared\n");
    line(&mut out, &format!("{}\n", escaped(&compared.reference)));
    for remark in &compared.remarks {
        line(&mut out, &format!("{}\n", escaped(remark)));
    }
    if compared.tables.len() > 1 {
        out.push_str(&Grid::overview(compared).markdown());
    }
    for orders in &compared.orders {
        line(&mut out, &format!("- {}. {}", escaped(&orders.title), escaped(&orders_sentence(orders))));
    }
    if !compared.orders.is_empty() {
        line(&mut out, "");
    }
    for table in &compared.tables {
        line(&mut out, &format!("## {}\n", escaped(&table.title)));
        out.push_str(&table_markdown(table, options));
    }
    if !compared.alone.is_empty() {
        line(&mut out, "Without a counterpart:\n");
        for run in &compared.alone {
            line(&mut out, &format!("- {}", escaped(run)));
        }
        line(&mut out, "");
    }
    line(&mut out, &escaped(KEY));
    if compared.tables.iter().flat_map(|table| &table.columns).any(|column| column.repeats > 1) {
        line(&mut out, &escaped(REPEATS));
    }
    out
}

/// Columns, measures and totals as Markdown, without a heading.
pub fn table_markdown(table: &Table, options: MarkdownOptions) -> String {
    let mut out = String::new();
    for (index, column) in table.columns.iter().enumerate() {
        let reference = if index == 0 { " (the reference)" } else { "" };
        line(&mut out, &format!("- {}{reference}: {}", escaped(&column.label), escaped(&described(column))));
    }
    for remark in &table.remarks {
        line(&mut out, &format!("- {}", escaped(remark)));
    }
    line(&mut out, "");
    out.push_str(&Grid::of_table(table, false, options.sort, options.verbose).markdown());
    if options.verbose {
        line(&mut out, "Counters of `/proc/vmstat`, and means of its levels:\n");
        out.push_str(&Grid::of_table(table, true, options.sort, false).markdown());
    }
    for total in totals(table) {
        line(&mut out, &format!("{}\n", escaped(&total)));
    }
    out
}
