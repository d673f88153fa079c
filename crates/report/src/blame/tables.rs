//! The tables of who paid and who took, which all forms share.

use lotsfree_analysis::blame::{Charge, Payer, Taker, Who};
use lotsfree_analysis::measure::nanoseconds;
use lotsfree_units::{Bytes, Grouped};

use super::BlameReport;
use super::words::{known, share, who};

/// Rows that a table has at most; JSON has all.
pub(super) const MOST_ROWS: usize = 20;

/// A table: heads, rows of a name and cells, and how many rows are left out.
pub(super) struct Grid {
    pub(super) title: &'static str,
    pub(super) heads: Vec<&'static str>,
    pub(super) rows: Vec<(String, Vec<String>)>,
    /// The control group of each row; empty if none is known.
    pub(super) groups: Vec<String>,
    pub(super) left_out: usize,
}

/// Who paid, worst first.
pub(super) fn payers(report: &BlameReport) -> Grid {
    let payers = &report.blame.payers;
    let has_groups = payers.iter().any(|payer| report.details.groups.contains_key(&payer.cost.actor));
    let row = |payer: &Payer| {
        let cost = &payer.cost;
        let mut cells = vec![known(Some(cost.lost))];
        cells.extend(cost.parts.named().map(|(_, share)| known(share)));
        cells.push(nanoseconds(cost.lost_ns as f64));
        cells.push(most(&payer.taken_by));
        (cost.actor.clone(), cells)
    };
    let group = |payer: &Payer| report.details.groups.get(&payer.cost.actor).cloned().unwrap_or_default();
    let groups = payers.iter().take(MOST_ROWS).filter(|_| has_groups).map(group).collect();
    Grid {
        title: "Who paid",
        heads: vec![
            "program",
            "lost",
            "thrashing",
            "reclaim",
            "compaction",
            "swap-in",
            "time",
            "most taken by",
        ],
        groups,
        rows: payers.iter().take(MOST_ROWS).map(row).collect(),
        left_out: payers.len().saturating_sub(MOST_ROWS),
    }
}

/// The largest share: `rsync 78 % (±4)`.
fn most(charges: &[Charge]) -> String {
    let most = charges.iter().max_by(|a, b| a.share.total_cmp(&b.share));
    most.map(|charge| match &charge.who {
        Who::Unknown if charge.share >= 1.0 => "unknown".to_owned(),
        taker => format!("{} {}", who(taker), share(charge)),
    })
    .unwrap_or_default()
}

/// Who took, those that cost the payers most first.
pub(super) fn takers(report: &BlameReport) -> Grid {
    let row = |taker: &&Taker| {
        let cells = vec![
            if taker.cost_ns == 0 { "–".to_owned() } else { nanoseconds(taker.cost_ns as f64) },
            bytes(taker.allocated_bytes),
            bytes(taker.returned_bytes),
            change(taker.net_bytes),
            bytes(taker.new_bytes),
            count(taker.refaults),
            bytes(taker.held_bytes),
        ];
        (taker.actor.clone(), cells)
    };
    let takers = &report.blame.takers;
    Grid {
        title: "Who took",
        heads: vec!["program", "cost others", "allocated", "gave back", "net", "new", "pages back", "holds"],
        groups: Vec::new(),
        rows: takers.iter().take(MOST_ROWS).collect::<Vec<_>>().iter().map(row).collect(),
        left_out: takers.len().saturating_sub(MOST_ROWS),
    }
}

/// Bytes in a cell.
pub(super) fn bytes(bytes: u64) -> String {
    if bytes == 0 { "–".to_owned() } else { Bytes(bytes).to_string() }
}

/// More or fewer bytes in a cell.
pub(super) fn change(change: i64) -> String {
    let sign = if change < 0 { "−" } else { "" };
    format!("{sign}{}", bytes(change.unsigned_abs()))
}

/// A number in a cell.
pub(super) fn count(count: u64) -> String {
    if count == 0 { "–".to_owned() } else { Grouped(count).to_string() }
}

impl Grid {
    /// With the control groups as a column of their own, where any is known.
    pub(super) fn with_groups(mut self) -> Self {
        if !self.groups.is_empty() {
            self.heads.push("control group");
            let rows = self.rows.iter_mut().zip(self.groups.drain(..));
            rows.for_each(|((_, cells), group)| cells.push(group));
        }
        self
    }

    /// That there is more.
    pub(super) fn note(&self) -> Option<String> {
        (self.left_out > 0).then(|| format!("And {} more; --json has all.", self.left_out))
    }
}
