//! [`Account`]: what one payer lost, by whom it is charged to.

use super::table::Table;
use super::{Charge, Who};

/// Shares are multiples of this part of the whole, about a millionth. A power of two, so that they sum to
/// exactly 1 in any order.
const UNITS: f64 = (1 << 20) as f64;

/// What one payer lost, by actor and, last, the unknown one. Sums over intervals are all that is kept.
pub(super) struct Account {
    payer: usize,
    lost: f64,
    charged: Vec<f64>,
    /// Sums of squares and products, from which the error follows.
    charged_squared: Vec<f64>,
    charged_by_lost: Vec<f64>,
    lost_squared: f64,
    /// Number of intervals in which anything was lost.
    intervals: f64,
}

impl Account {
    pub(super) fn new(payer: usize, actors: usize) -> Self {
        let zeros = || vec![0.0; actors + 1];
        Account {
            payer,
            lost: 0.0,
            charged: zeros(),
            charged_squared: zeros(),
            charged_by_lost: zeros(),
            lost_squared: 0.0,
            intervals: 0.0,
        }
    }

    pub(super) fn payer(&self) -> usize {
        self.payer
    }

    /// Adds an interval: nanoseconds that were lost, with the shares that each actor has in them.
    pub(super) fn add(&mut self, parts: [(f64, &[f64]); 2]) {
        let lost: f64 = parts.iter().map(|(ns, _)| ns).sum();
        if lost <= 0.0 {
            return;
        }
        self.lost += lost;
        self.lost_squared += lost * lost;
        self.intervals += 1.0;
        for index in 0..self.charged.len() {
            let charged: f64 = parts.iter().map(|(ns, weights)| ns * weights[index]).sum();
            self.charged[index] += charged;
            self.charged_squared[index] += charged * charged;
            self.charged_by_lost[index] += charged * lost;
        }
    }

    /// Nanoseconds charged to an actor other than the payer.
    pub(super) fn charged_by_another(&self, actor: usize) -> f64 {
        if actor == self.payer { 0.0 } else { self.charged[actor] }
    }

    /// The shares: other actors, largest first, then the payer itself and the unknown.
    pub(super) fn charges(&self, table: &Table) -> Vec<Charge> {
        let shares = self.shares();
        let charge = |index: usize, who: Who| {
            let share = shares[index];
            Charge { who, share, error: self.error(index, share) }
        };
        let is_other =
            |index: &usize| *index != self.payer && shares[*index] > 0.0 && !table.is_nobody(*index);
        let others = (0..table.actors.len()).filter(is_other);
        let mut charges: Vec<Charge> =
            others.map(|index| charge(index, Who::Actor(table.actors[index].name.to_string()))).collect();
        charges.sort_by(|a, b| b.share.total_cmp(&a.share));
        charges.push(charge(self.payer, Who::Itself));
        let mut unknown = charge(table.actors.len(), Who::Unknown);
        let nobody = (0..table.actors.len()).filter(|index| *index != self.payer && table.is_nobody(*index));
        for index in nobody {
            unknown.share += shares[index];
            unknown.error = self.error(index, shares[index]);
        }
        charges.push(unknown);
        charges
    }

    /// The shares in whole units: each is rounded down, and what is left goes to those that were cut most.
    fn shares(&self) -> Vec<f64> {
        let exact: Vec<f64> = self.charged.iter().map(|charged| charged / self.lost * UNITS).collect();
        let mut units: Vec<f64> = exact.iter().map(|exact| exact.floor()).collect();
        let mut most_cut: Vec<usize> = (0..exact.len()).collect();
        most_cut.sort_by(|a, b| (exact[*b] - units[*b]).total_cmp(&(exact[*a] - units[*a])));
        let left = UNITS - units.iter().sum::<f64>();
        for index in most_cut.into_iter().take(left.max(0.0) as usize) {
            units[index] += 1.0;
        }
        units.into_iter().map(|units| units / UNITS).collect()
    }

    /// Standard error of a share as a ratio of two sums over intervals:
    /// `sqrt(n / (n − 1) · Σ (charged − share · lost)²) / Σ lost`.
    fn error(&self, index: usize, share: f64) -> Option<f64> {
        let residuals = self.charged_squared[index] - 2.0 * share * self.charged_by_lost[index]
            + share * share * self.lost_squared;
        let n = self.intervals;
        (n >= 2.0).then(|| (n / (n - 1.0) * residuals.max(0.0)).sqrt() / self.lost)
    }
}
