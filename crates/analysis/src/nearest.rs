//! [`Nearest`]: the experiment that is most like a run on the model, and how far off the model is there.

use std::collections::{BTreeMap, BTreeSet};

use lotsfree_scenario::{Experiments, MachineSpec};
use lotsfree_settings::{Release, SWAPPINESS};
use serde::{Deserialize, Serialize};

use crate::compare::Table;
use crate::score::{Cell, Score, Stratum, own_rows};
use crate::validation::{MODEL, Trial, Validation, variant};

/// The experiments that are recorded.
const SHIPPED: &str = include_str!("../../../lab/nearest.json");

/// What a case is, as far as it makes one like another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traits {
    /// The model's name.
    pub generation: String,
    /// What the model does.
    pub doing: Stratum,
    /// Kinds of its actors.
    pub kinds: BTreeSet<String>,
    /// Memory of the machine, in bytes.
    pub memory: u64,
    /// `vm.swappiness`
    pub swappiness: f64,
}

/// A variant of an experiment, which a kernel executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Name of the experiment.
    pub experiment: String,
    /// The variant.
    pub variant: String,
    /// What it is like.
    pub traits: Traits,
    /// Counters of reclaim's own on which the kernel's repeats agree, and the median of the model's errors.
    pub counters: usize,
    /// See `counters`; `None` if there are none.
    pub error: Option<f64>,
    /// Counters whose repeats are apart, and the median of the model's errors.
    pub unsteady: usize,
    /// See `unsteady`; `None` if there are none.
    pub unsteady_error: Option<f64>,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nearest(pub Vec<Known>);

impl Traits {
    /// Of a case in which the model does so: the keys that a variant can change, and its machine.
    pub fn of(keys: &BTreeMap<String, String>, machine: &MachineSpec, doing: Stratum) -> Self {
        let swappiness = keys.get(SWAPPINESS).and_then(|value| value.parse().ok());
        let default = || Some(lotsfree_settings::find(SWAPPINESS)?.default_number(Release::NEWEST)? as f64);
        let kinds = keys.iter().filter(|(key, _)| key.starts_with("actor.") && key.ends_with(".kind"));
        Traits {
            generation: machine.generation.name().to_owned(),
            doing,
            kinds: kinds.map(|(_, kind)| kind.trim_matches('"').to_owned()).collect(),
            memory: machine.memory().0,
            swappiness: swappiness.or_else(default).unwrap_or_default(),
        }
    }

    /// How unlike another case is of the same kernel. What the model does weighs most, then which programs
    /// run, how swappiness is set, and how large the machine is.
    fn distance(&self, other: &Traits) -> (bool, usize, f64, f64) {
        let apart = (self.swappiness - other.swappiness).abs();
        let size = |traits: &Traits| (traits.memory.max(1) as f64).ln();
        (
            self.doing != other.doing,
            self.kinds.symmetric_difference(&other.kinds).count(),
            apart,
            (size(self) - size(other)).abs(),
        )
    }
}

/// To four digits after the point.
fn rounded(error: f64) -> f64 {
    (error * 1e4).round() / 1e4
}

impl Known {
    fn of(experiments: &Experiments, of: &Validation, trial: &Trial, table: &Table) -> Option<Self> {
        let case = trial.case()?;
        let score = Score::of(own_rows(experiments, of, table).filter_map(Cell::of));
        Some(Known {
            experiment: of.experiment.clone(),
            variant: variant(table),
            traits: Traits::of(&case.keys(), &case.machine, Stratum::of_column(table, MODEL)),
            counters: score.counters,
            error: score.error.map(rounded),
            unsteady: score.unsteady,
            unsteady_error: score.unsteady_error.map(rounded),
        })
    }
}

impl Nearest {
    /// Those that `sim` names.
    pub fn shipped() -> Self {
        serde_json::from_str(SHIPPED).unwrap_or_default()
    }

    /// Of the experiments that are known; what is held out says how far off the model is elsewhere.
    pub fn of_known(experiments: &Experiments, all: &[Validation]) -> Self {
        let known = all.iter().filter(|of| !experiments.holds_out(&of.experiment));
        let cases = known.flat_map(|of| {
            of.executed().filter_map(|(trial, table)| Known::of(experiments, of, trial, table))
        });
        Nearest(cases.collect())
    }

    /// The one that is most like a case; `None` if no kernel of its generation was compared.
    pub fn find(&self, like: &Traits) -> Option<&Known> {
        let same = self.0.iter().filter(|known| known.traits.generation == like.generation);
        same.min_by(|a, b| {
            let (a, b) = (like.distance(&a.traits), like.distance(&b.traits));
            (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)).then(a.3.total_cmp(&b.3))
        })
    }

    /// As a file.
    ///
    /// # Errors
    /// As [`serde_json::to_string`].
    pub fn to_json(&self) -> serde_json::Result<String> {
        let lines: Vec<String> = self.0.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
        Ok(format!("[\n{}\n]\n", lines.join(",\n")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traits(doing: Stratum, kinds: &[&str], swappiness: f64, memory: u64) -> Traits {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        Traits { generation: "linux-6.1".to_owned(), doing, kinds, memory, swappiness }
    }

    fn known(experiment: &str, traits: Traits) -> Known {
        Known {
            experiment: experiment.to_owned(),
            variant: String::new(),
            traits,
            counters: 1,
            error: Some(0.1),
            unsteady: 0,
            unsteady_error: None,
        }
    }

    #[test]
    fn what_the_model_does_weighs_more_than_programs_settings_and_size() {
        let (server, both) = (["app-server"], ["app-server", "file-writer"]);
        let all = Nearest(vec![
            known("kswapd", traits(Stratum::Kswapd, &both, 60.0, 1 << 30)),
            known("one", traits(Stratum::Swaps, &server, 60.0, 1 << 30)),
            known("200", traits(Stratum::Swaps, &both, 200.0, 1 << 30)),
            known("100, small", traits(Stratum::Swaps, &both, 100.0, 1 << 28)),
            known("100", traits(Stratum::Swaps, &both, 100.0, 1 << 29)),
        ]);
        let nearest = |like: &Traits| all.find(like).map(|known| known.experiment.as_str());
        assert_eq!(nearest(&traits(Stratum::Swaps, &both, 60.0, 1 << 30)), Some("100"));
        assert_eq!(nearest(&traits(Stratum::Swaps, &both, 180.0, 1 << 28)), Some("200"));
        assert_eq!(nearest(&traits(Stratum::Swaps, &server, 200.0, 1 << 28)), Some("one"));
        assert_eq!(nearest(&traits(Stratum::Kswapd, &server, 200.0, 1 << 28)), Some("kswapd"));
        let other = Traits { generation: "linux-3.10".to_owned(), ..traits(Stratum::Swaps, &both, 60.0, 1) };
        assert_eq!(nearest(&other), None);
        let again: Nearest = serde_json::from_str(&all.to_json().unwrap()).unwrap();
        assert_eq!(again, all);
    }

    #[test]
    fn what_ships_can_be_read() {
        let shipped = Nearest::shipped();
        assert!(shipped.0.len() > 50);
        for known in &shipped.0 {
            assert_eq!(shipped.find(&known.traits).map(|found| &found.traits), Some(&known.traits));
        }
    }
}
