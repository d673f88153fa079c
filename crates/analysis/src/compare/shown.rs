//! Which measures of a table are shown, and in which order.

use super::error::rank_order;
use super::{Compared, Deviation, Row, Table, Verdict};

/// Which measures come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Those that differ in kind, then those with the largest errors.
    #[default]
    Worst,
    /// Those of one group together.
    Group,
}

impl Table {
    /// The measures to show: the kernel's counters one by one, or all others. Without `all`, what is small in
    /// every column is left out.
    pub fn shown(&self, details: bool, sort: Sort, all: bool) -> Vec<&Row> {
        let tells = |row: &Row| {
            let told = |d: &Option<Deviation>| d.is_none_or(|d| d.verdict != Verdict::Small);
            all || row.deviations.iter().any(told)
        };
        let mut rows: Vec<&Row> =
            self.rows.iter().filter(|row| row.group.is_detail() == details && tells(row)).collect();
        let worst = |row: &Row| {
            let ranks = row.deviations.iter().flatten().map(Deviation::rank);
            ranks.max_by(rank_order).unwrap_or((0, -1.0))
        };
        if sort == Sort::Worst {
            rows.sort_by(|a, b| rank_order(&worst(b), &worst(a)));
        }
        rows
    }
}

impl Compared {
    /// A table's title; without the scenario's if all have the same.
    pub fn short_title(&self, table: &Table) -> String {
        let several = self.tables.iter().any(|other| other.scenario != table.scenario);
        let rest = table.title.strip_prefix(&table.scenario).and_then(|rest| rest.strip_prefix(": "));
        match rest {
            Some(rest) if !several => rest.to_owned(),
            _ => table.title.clone(),
        }
    }
}
