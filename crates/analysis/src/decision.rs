//! [`Decision`]: which way a change of a setting moves what users decide by, on kernels and on their models.

use std::collections::{BTreeMap, BTreeSet};

use lotsfree_settings::{Release, SWAPPINESS};

use crate::compare::error::median_of;
use crate::compare::{Row, Span, Table};
use crate::score::DECIDING;
use crate::validation::Validation;

/// So many machines have to have told something of a change before it is judged.
pub const MACHINES: usize = 3;
/// The share of directions that has to be right for the model to be trusted with a change.
pub const RIGHT: f64 = 0.95;
/// Up to this, swappiness takes files for no dearer than anonymous pages; above, for dearer.
const EVEN: f64 = 100.0;

/// What a change does to the figures by which users decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The change: `vm.zone_reclaim_mode set`.
    pub change: String,
    /// Machines on which it was tried, each by its experiment and kernel.
    pub tried: BTreeSet<String>,
    /// Those on which the kernel's repeats tell a direction of some figure.
    pub told_on: BTreeSet<String>,
    /// What it does to each of [`DECIDING`].
    pub effects: [Effect; DECIDING.len()],
}

/// What a change does to a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    /// How many times as large kernels' figures become, where their repeats tell.
    pub kernel: Vec<f64>,
    /// The same of the models in these places.
    pub model: Vec<f64>,
    /// How often both have the same direction.
    pub right: usize,
}

/// Whether the model can be asked what a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It has [`RIGHT`] of the directions right.
    Yes,
    /// It has not.
    No,
    /// Fewer than [`MACHINES`] tell a direction.
    Unknown,
}

impl Effect {
    /// The median of the kernels' changes, and of the models'.
    pub fn size(&self) -> Option<(f64, f64)> {
        Some((median_of(self.kernel.clone())?, median_of(self.model.clone())?))
    }

    /// Adds a figure before and after the change, if the kernel's repeats tell a direction; says whether they
    /// do.
    fn add(&mut self, before: &Row, after: &Row) -> bool {
        let floor = before.floor;
        let pair = |column: usize| -> Option<(Span, Span)> {
            Some(((*before.values.get(column)?)?, (*after.values.get(column)?)?))
        };
        let (Some(kernel), Some(model)) = (pair(0), pair(1)) else { return false };
        if !kernel.0.is_told_from(&kernel.1, floor) {
            return false;
        }
        let grows = |(a, b): (Span, Span)| b.value > a.value;
        self.right += usize::from(grows(kernel) == grows(model) && !model.0.ties(&model.1, floor));
        let times = |(a, b): (Span, Span)| (b.value + floor) / (a.value + floor);
        self.kernel.push(times(kernel));
        self.model.push(times(model));
        true
    }
}

impl Decision {
    /// Directions that kernels tell.
    pub fn told(&self) -> usize {
        self.effects.iter().map(|effect| effect.kernel.len()).sum()
    }

    /// Those that the model has right.
    pub fn right(&self) -> usize {
        self.effects.iter().map(|effect| effect.right).sum()
    }

    /// Whether the model can be asked.
    pub fn trust(&self) -> Trust {
        match self.right() as f64 >= RIGHT * self.told() as f64 {
            _ if self.told_on.len() < MACHINES => Trust::Unknown,
            true => Trust::Yes,
            false => Trust::No,
        }
    }

    fn add<'t>(&mut self, machine: String, before: &'t Table, after: &'t Table) {
        let mut told = false;
        for (effect, key) in self.effects.iter_mut().zip(DECIDING) {
            let row = |table: &'t Table| table.rows.iter().find(|row| row.key == key);
            if let (Some(before), Some(after)) = (row(before), row(after)) {
                told |= effect.add(before, after);
            }
        }
        if told {
            self.told_on.insert(machine.clone());
        }
        self.tried.insert(machine);
    }
}

/// What each change does that some experiments make: between two variants that differ by one key, and between
/// a kernel's two lists and its MGLRU. In the order of their names.
pub fn decisions(all: &[&Validation]) -> Vec<Decision> {
    let mut found: BTreeMap<String, Decision> = BTreeMap::new();
    let mut add = |change: String, machine: String, before: &Table, after: &Table| {
        let decision = found.entry(change.clone()).or_default();
        decision.change = change;
        decision.add(machine, before, after);
    };
    for of in all {
        let variants = variants(of);
        for (place, (before, table)) in variants.iter().enumerate() {
            for (after, other) in &variants[place + 1..] {
                let machine = format!("{} {}", of.experiment, of.kernel());
                match change(before, after) {
                    Some((change, false)) => add(change, machine, table, other),
                    Some((change, true)) => add(change, machine, other, table),
                    None => {}
                }
            }
        }
        let mglru = format!("{}+mglru", of.generation);
        let Some(other) =
            all.iter().find(|other| other.experiment == of.experiment && other.generation == mglru)
        else {
            continue;
        };
        for (table, after) in of.compared.tables.iter().zip(&other.compared.tables) {
            if table.variant == after.variant {
                let machine = format!(
                    "{} {} {}",
                    of.experiment,
                    of.kernel(),
                    table.variant.clone().unwrap_or_default()
                );
                add("MGLRU for two lists".to_owned(), machine, table, after);
            }
        }
    }
    found.into_values().collect()
}

type Keys = BTreeMap<String, String>;

/// The variants of an experiment that the model has executed, with what each says.
fn variants(of: &Validation) -> Vec<(Keys, &Table)> {
    of.executed().filter_map(|(trial, table)| Some((trial.case()?.keys(), table))).collect()
}

/// What leads from one variant to the other, and whether it leads the other way; `None` if more than one key
/// differs.
fn change(before: &Keys, after: &Keys) -> Option<(String, bool)> {
    let both: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut differ = both.into_iter().filter(|key| before.get(*key) != after.get(*key));
    let (key, None) = (differ.next()?, differ.next()) else { return None };
    let (before, after) = (before.get(key).map(String::as_str), after.get(key).map(String::as_str));
    match key.strip_prefix("actor.").and_then(|key| key.split_once('.')) {
        Some((_, key)) => of_program(key, before?, after?),
        None => Some(of_setting(key, before, after)),
    }
}

/// How a program reads or writes.
fn of_program(key: &str, before: &str, after: &str) -> Option<(String, bool)> {
    let special = |value: &str| !matches!(value, "\"buffered\"" | "\"mmap\"" | "\"none\"" | "false");
    let (value, back) = match (special(before), special(after)) {
        (false, true) => (after, false),
        (true, false) => (before, true),
        _ => return None,
    };
    Some((format!("{key} = {value}"), back))
}

/// A setting, from its default if it is not there.
fn of_setting(key: &str, before: Option<&str>, after: Option<&str>) -> (String, bool) {
    let default = lotsfree_settings::find(key).and_then(|known| known.default_number(Release::NEWEST));
    let number = |text: Option<&str>| match text {
        Some(text) => text.parse::<f64>().ok(),
        None => default.map(|default| default as f64),
    };
    let (from, to) = (number(before), number(after));
    let back = matches!((from, to), (Some(from), Some(to)) if to < from);
    let lower = if back { to } else { from };
    let upper = if back { from } else { to };
    // Of most settings 0 says that they are off.
    let off = default == Some(0) && lower == Some(0.0);
    let what = match upper {
        _ if off => "set",
        Some(upper) if key == SWAPPINESS && upper > EVEN => "raised, above 100",
        Some(_) if key == SWAPPINESS => "raised, up to 100",
        _ => "raised",
    };
    (format!("{key} {what}"), back)
}

#[cfg(test)]
mod tests {
    use lotsfree_settings::{DIRTY_BYTES, MIN_FREE_KBYTES, ZONE_RECLAIM_MODE};

    use super::*;
    use crate::compare::Group;

    fn keys(pairs: &[(&str, &str)]) -> Keys {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_change_is_named_and_has_a_direction() {
        let of = |before: &[(&str, &str)], after: &[(&str, &str)]| change(&keys(before), &keys(after));
        let is = |name: &str, back: bool| Some((name.to_owned(), back));
        assert_eq!(of(&[], &[(SWAPPINESS, "0")]), is("vm.swappiness raised, up to 100", true));
        assert_eq!(of(&[], &[(SWAPPINESS, "200")]), is("vm.swappiness raised, above 100", false));
        let zone = ZONE_RECLAIM_MODE;
        assert_eq!(of(&[(zone, "1")], &[(zone, "0")]), is("vm.zone_reclaim_mode set", true));
        assert_eq!(of(&[], &[(DIRTY_BYTES, "8")]), is("vm.dirty_bytes set", false));
        assert_eq!(of(&[], &[(MIN_FREE_KBYTES, "8192")]), is("vm.min_free_kbytes raised", false));
        let how = "actor.reader.how";
        assert_eq!(of(&[(how, "\"mmap\"")], &[(how, "\"direct\"")]), is("how = \"direct\"", false));
        assert_eq!(of(&[(how, "\"dontneed\"")], &[(how, "\"buffered\"")]), is("how = \"dontneed\"", true));
        assert_eq!(of(&[(how, "\"dontneed\"")], &[(how, "\"direct\"")]), None);
        assert_eq!(of(&[], &[]), None);
        assert_eq!(of(&[], &[(SWAPPINESS, "0"), (zone, "1")]), None);
    }

    fn row(kernel: &[f64], model: f64) -> Row {
        let spans = vec![Span::of(kernel.iter().copied(), 10.0), Span::of([model], 10.0)];
        Row {
            key: DECIDING[0].to_owned(),
            name: String::new(),
            group: Group::Requests,
            unit: "per second".to_owned(),
            better: None,
            floor: 10.0,
            main: true,
            values: spans,
            deviations: Vec::new(),
        }
    }

    #[test]
    fn what_repeats_do_not_tell_is_not_judged() {
        let mut effect = Effect::default();
        assert!(!effect.add(&row(&[90.0, 120.0], 90.0), &row(&[110.0, 130.0], 200.0)));
        assert!(effect.add(&row(&[90.0, 92.0], 90.0), &row(&[190.0, 192.0], 190.0)));
        assert!(effect.add(&row(&[90.0, 92.0], 90.0), &row(&[190.0, 192.0], 91.0)));
        assert_eq!((effect.kernel.len(), effect.right), (2, 1));
        let (kernel, model) = effect.size().unwrap();
        assert!((kernel - 2.0).abs() < 0.05 && (1.4..1.6).contains(&model), "{kernel} {model}");
    }

    #[test]
    fn a_change_is_trusted_after_some_machines() {
        let told = |machines: usize, right: usize| {
            let mut decision = Decision::default();
            for machine in 0..machines {
                decision.told_on.insert(machine.to_string());
                decision.effects[0].kernel.push(2.0);
            }
            decision.effects[0].right = right;
            decision.trust()
        };
        assert_eq!(told(2, 2), Trust::Unknown);
        assert_eq!((told(3, 3), told(3, 2)), (Trust::Yes, Trust::No));
        assert_eq!((told(20, 19), told(20, 18)), (Trust::Yes, Trust::No));
    }
}
