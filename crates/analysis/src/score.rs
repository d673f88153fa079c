//! [`Score`]: what the errors of experiments come to, by the reading that says what a model is worth.
//!
//! It is over the counters that are reclaim's own. What flows in must flow out: how many pages are allocated,
//! freed, faulted in, dirtied and written is given by what the programs do, and a model has it right without
//! knowing anything of reclaim.

use lotsfree_scenario::Experiments;
use serde::{Deserialize, Serialize};

use crate::compare::error::{FEW, LITTLE, median_of};
use crate::compare::{Group, Orders, Row, Span, Table, Verdict};
use crate::validation::Validation;

/// Beginnings of counters that conservation alone gets right.
const CONSERVED: [&str; 6] = [
    "vmstat.numa_",
    "vmstat.pgalloc_",
    "vmstat.pgfree",
    "vmstat.pgfault",
    "vmstat.nr_dirtied",
    "vmstat.pgpgout",
];
/// Repeats that are further apart than this share of their median judge no model.
pub const UNSTEADY: f64 = 0.10;

/// A counter's error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// From the median of the kernel's repeats, as a share of it or of the floor.
    pub error: f64,
    /// From the nearest of the repeats: 0 within their range.
    pub beyond: f64,
    /// How far repeats are apart; `None` of a single one.
    pub spread: Option<f64>,
    /// Next to nothing in one, much in the other.
    pub in_kind: bool,
}

/// What the errors of counters come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Counters whose repeats agree.
    pub counters: usize,
    /// The median of their errors.
    pub error: Option<f64>,
    /// The same beyond the spread of repeats.
    pub beyond: Option<f64>,
    /// The median of how far repeats are apart.
    pub spread: Option<f64>,
    /// Counters that differ in kind, whether or not repeats agree.
    pub in_kind: usize,
    /// Counters whose repeats are more than [`UNSTEADY`] apart.
    pub unsteady: usize,
    /// The median of the errors of these.
    pub unsteady_error: Option<f64>,
}

/// What a kernel or its model did in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stratum {
    /// It wrote pages to swap.
    Swaps,
    /// Tasks reclaimed for themselves.
    Direct,
    /// Only kswapd reclaimed.
    Kswapd,
    /// Nobody did.
    Nothing,
}

impl Stratum {
    /// All of them, the hardest first.
    pub const ALL: [Stratum; 4] = [Stratum::Swaps, Stratum::Direct, Stratum::Kswapd, Stratum::Nothing];

    /// In words, after “the kernel”.
    pub fn name(self) -> &'static str {
        match self {
            Stratum::Swaps => "swaps",
            Stratum::Direct => "reclaims directly",
            Stratum::Kswapd => "reclaims in kswapd alone",
            Stratum::Nothing => "reclaims nothing",
        }
    }

    /// By the figures of a run's measures, where they are above their floors.
    pub fn of_figures(figure: impl Fn(&str) -> Option<f64>) -> Self {
        let at_least = |key: &str, floor: f64| figure(key).is_some_and(|figure| figure >= floor);
        match () {
            () if at_least("swap_out_bytes", LITTLE) => Stratum::Swaps,
            () if at_least("direct_scan_pages", FEW) => Stratum::Direct,
            () if at_least("kswapd_scan_pages", FEW) => Stratum::Kswapd,
            () => Stratum::Nothing,
        }
    }

    /// What was done in a column of a table; the reference is column 0.
    pub fn of_column(table: &Table, column: usize) -> Self {
        let row = |key: &str| table.rows.iter().find(|row| row.key == key);
        Stratum::of_figures(|key| Some((*row(key)?.values.get(column)?)?.value))
    }
}

/// Whether a measure is a counter of reclaim's own.
pub fn is_reclaims_own(row: &Row) -> bool {
    row.group == Group::Counters && !CONSERVED.iter().any(|beginning| row.key.starts_with(beginning))
}

/// The counters of reclaim's own by which an experiment judges the model.
pub fn own_rows<'a>(
    experiments: &'a Experiments,
    of: &'a Validation,
    table: &'a Table,
) -> impl Iterator<Item = &'a Row> {
    table.rows.iter().filter(move |row| is_reclaims_own(row) && of.counts(experiments, table, row))
}

impl Cell {
    /// The error of a measure; `None` where both figures are below the floor, or one is not known.
    pub fn of(row: &Row) -> Option<Self> {
        let deviation = row.deviations.first().copied().flatten()?;
        let (kernel, model): (Span, Span) = (row.values.first().copied()??, row.values.get(1).copied()??);
        if deviation.verdict == Verdict::Small {
            return None;
        }
        let outside = (kernel.min - model.value).max(model.value - kernel.max).max(0.0);
        Some(Cell {
            error: deviation.error,
            beyond: outside / kernel.value.abs().max(row.floor),
            spread: kernel.spread,
            in_kind: deviation.verdict == Verdict::InKind,
        })
    }

    fn is_steady(&self) -> bool {
        self.spread.is_none_or(|spread| spread <= UNSTEADY)
    }
}

impl Score {
    /// Of these counters.
    pub fn of(cells: impl IntoIterator<Item = Cell>) -> Self {
        let (steady, unsteady): (Vec<Cell>, Vec<Cell>) = cells.into_iter().partition(Cell::is_steady);
        let middle = |cells: &[Cell], get: &dyn Fn(&Cell) -> Option<f64>| {
            median_of(cells.iter().filter_map(get).collect())
        };
        Score {
            counters: steady.len(),
            error: middle(&steady, &|cell| Some(cell.error)),
            beyond: middle(&steady, &|cell| Some(cell.beyond)),
            spread: middle(&steady, &|cell| cell.spread),
            in_kind: steady.iter().chain(&unsteady).filter(|cell| cell.in_kind).count(),
            unsteady: unsteady.len(),
            unsteady_error: middle(&unsteady, &|cell| Some(cell.error)),
        }
    }
}

/// How often the model has the sign of what a variant changes right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directions {
    /// Pairs of variants that the kernel's repeats can tell apart.
    pub told: usize,
    /// Those that stand the same way round in the model.
    pub right: usize,
}

/// The measures by which a user decides: throughput, the tail, and major faults.
pub const DECIDING: [&str; 3] = ["throughput_per_second", "latency_p99_ns", "major_faults"];

impl Directions {
    /// Adds what some experiment says.
    pub fn add(&mut self, validation: &Validation) {
        let orders = validation.compared.orders.iter().flat_map(|Orders { measures, .. }| measures);
        for order in orders.filter(|order| DECIDING.contains(&order.key.as_str())) {
            self.told += order.pairs;
            self.right += order.pairs - order.reversed.len() - order.tied.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, kernel: &[f64], model: f64) -> Row {
        let spans = vec![Span::of(kernel.iter().copied(), 64.0), Span::of([model], 64.0)];
        let mut row = Row {
            key: key.to_owned(),
            name: key.to_owned(),
            group: Group::Counters,
            unit: "count".to_owned(),
            better: None,
            floor: 64.0,
            main: false,
            values: spans,
            deviations: Vec::new(),
        };
        row.judge();
        row
    }

    #[test]
    fn an_error_beyond_the_repeats_counts_from_the_nearest() {
        let cell = Cell::of(&row("vmstat.pswpout", &[950.0, 1000.0, 1040.0], 1240.0)).unwrap();
        assert_eq!((cell.error, cell.beyond), (0.24, 0.2));
        let within = Cell::of(&row("vmstat.pswpout", &[950.0, 1000.0, 1040.0], 960.0)).unwrap();
        assert_eq!(within.beyond, 0.0);
        assert_eq!(Cell::of(&row("vmstat.pswpout", &[10.0, 20.0], 30.0)), None);
    }

    #[test]
    fn counters_whose_repeats_are_apart_are_told_by_themselves() {
        let cells = [
            row("vmstat.pswpout", &[1000.0, 1010.0], 1105.5),
            row("vmstat.pswpin", &[1000.0, 2000.0], 3000.0),
            row("vmstat.pgmajfault", &[0.0, 0.0], 1000.0),
        ];
        let score = Score::of(cells.iter().filter_map(Cell::of));
        assert_eq!((score.counters, score.unsteady, score.in_kind), (2, 1, 1));
        assert_eq!(score.unsteady_error, Some(1.0));
    }

    #[test]
    fn what_conservation_gets_right_is_not_reclaim_s_own() {
        let own = |key: &str| is_reclaims_own(&row(key, &[1.0], 1.0));
        assert!(own("vmstat.pgscan_kswapd") && own("vmstat.workingset_refault_file"));
        assert!(!own("vmstat.pgalloc_normal") && !own("vmstat.pgfault") && !own("vmstat.numa_hit"));
    }
}
