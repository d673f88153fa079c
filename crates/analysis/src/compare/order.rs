//! [`Orders`]: whether variants stand in the same order by a measure here and there.

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Row, Span, Table};

/// Whether the variants of a scenario stand in the same order by the main measures in the reference and in
/// what is compared with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Orders {
    /// Scenario and value of the sweep.
    pub title: String,
    /// The reference.
    pub reference: String,
    /// What is compared with it.
    pub other: String,
    /// Variants that both have.
    pub variants: Vec<String>,
    /// Measures by which at least two variants have an order in the reference.
    pub measures: Vec<Order>,
}

/// The order of variants by one measure. Figures below the measure's floor, within the spread of repeats, or
/// within 5 % of each other are ties, which are no order; in the reference also those that its repeats do not
/// tell apart ([`Span::is_told_from`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    /// The measure's key.
    pub key: String,
    /// Its name.
    pub name: String,
    /// Pairs of variants that have an order in the reference.
    pub pairs: usize,
    /// Pairs that stand the other way round in the other.
    pub reversed: Vec<[String; 2]>,
    /// Pairs that tie in the other.
    pub tied: Vec<[String; 2]>,
}

impl Order {
    /// Whether all that have an order in the reference have the same in the other.
    pub fn is_preserved(&self) -> bool {
        self.reversed.is_empty() && self.tied.is_empty()
    }
}

/// The order of two figures.
fn order(a: &Span, b: &Span) -> Ordering {
    a.value.total_cmp(&b.value)
}

/// The orders of tables that show one variant each: of each set that has the scenario, the value of the sweep
/// and the columns in common.
pub(super) fn orders(tables: &[Table]) -> Vec<Orders> {
    let mut sets: Vec<Vec<&Table>> = Vec::new();
    for table in tables {
        let alike = |set: &&mut Vec<&Table>| {
            set.first().is_some_and(|first| {
                let machines = |table: &Table| table.columns.iter().map(|c| c.machine).collect::<Vec<_>>();
                first.scenario == table.scenario
                    && first.sweep == table.sweep
                    && machines(first) == machines(table)
            })
        };
        match sets.iter_mut().find(alike) {
            Some(set) => set.push(table),
            None => sets.push(vec![table]),
        }
    }
    let columns = |set: &[&Table]| set.first().map_or(0, |first| first.columns.len());
    let several = sets.iter().filter(|set| set.len() > 1);
    several.flat_map(|set| (1..columns(set)).filter_map(|other| of_set(set, other))).collect()
}

fn of_set(set: &[&Table], other: usize) -> Option<Orders> {
    let first = set.first()?;
    let name = |table: &Table| table.variant.clone().unwrap_or_default();
    let mut measures = Vec::new();
    for main in first.rows.iter().filter(|row| row.main) {
        let figures: Vec<(String, Span, Span)> = set
            .iter()
            .filter_map(|table| {
                let row: &Row = table.rows.iter().find(|row| row.key == main.key)?;
                Some((name(table), (*row.values.first()?)?, (*row.values.get(other)?)?))
            })
            .collect();
        let (key, title) = (main.key.clone(), main.name.clone());
        let mut found = Order { key, name: title, pairs: 0, reversed: Vec::new(), tied: Vec::new() };
        for (index, (a, here_a, there_a)) in figures.iter().enumerate() {
            for (b, here_b, there_b) in figures.iter().skip(index + 1) {
                if !here_a.is_told_from(here_b, main.floor) {
                    continue;
                }
                found.pairs += 1;
                let pair = || [a.clone(), b.clone()];
                if there_a.ties(there_b, main.floor) {
                    found.tied.push(pair());
                } else if order(there_a, there_b) != order(here_a, here_b) {
                    found.reversed.push(pair());
                }
            }
        }
        if found.pairs > 0 {
            measures.push(found);
        }
    }
    let label = |column: usize| first.columns.get(column).map(|column| column.label.clone());
    let title = match (&first.scenario, &first.sweep) {
        (scenario, Some(point)) => format!("{scenario}, {}", point.label),
        (scenario, None) => scenario.clone(),
    };
    Some(Orders {
        title,
        reference: label(0)?,
        other: label(other)?,
        variants: set.iter().map(|table| name(table)).collect(),
        measures,
    })
}
