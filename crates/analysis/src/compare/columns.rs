//! What columns are called, and what a reader should know of them.

use std::collections::{BTreeMap, BTreeSet};

use lotsfree_scenario::{CalibrationSpec, MachineSpec, Occupied};
use lotsfree_units::Bytes;
use lotsfree_units::words::{duration, enumeration, plural};

use super::Column;
use super::pairing::{Entry, is_kernel, variant};
use crate::conditions::conditions;
use crate::view::{ended, place};

/// Measured parts whose lengths differ by a larger share are remarked on.
const LENGTHS: f64 = 0.01;
/// Memory in use that differs by a larger share of a machine's makes it another machine.
const TOLD: f64 = 0.01;
/// More settings than this that differ are counted instead of named.
const MOST_KEYS: usize = 6;

/// What tells columns from each other, as short as it can be: those that are called alike get what comes
/// next, until no two are.
pub(super) fn labels(columns: &[&Entry<'_, '_>], one_variant: bool) -> Vec<String> {
    type Trait<'a> = &'a dyn Fn(&Entry<'_, '_>, &[String]) -> String;
    let variant: Trait<'_> = &|entry, _| variant(entry.view).to_owned();
    let machine: Trait<'_> = &|entry, _| place(entry.view.run.facts().machine).to_owned();
    let kernel: Trait<'_> = &|entry, _| entry.view.run.facts().kernel.clone();
    let title: Trait<'_> = &|entry, _| entry.view.run.facts().title.clone();
    let point: Trait<'_> =
        &|entry, _| entry.view.point.as_ref().map(|point| point.label.clone()).unwrap_or_default();
    let settings: Trait<'_> = &|entry, differing| {
        let named = differing.iter().take(2).map(|key| {
            let short = key.strip_prefix("vm.").or_else(|| key.strip_prefix("machine.")).unwrap_or(key);
            format!("{short} {}", setting(entry, key))
        });
        named.collect::<Vec<_>>().join(", ")
    };
    let version: Trait<'_> = &|entry, _| format!("lotsfree {}", entry.view.run.facts().lotsfree);
    let directory: Trait<'_> = &|entry, _| {
        let directory = entry.view.run.directory();
        directory.map(|path| path.display().to_string()).unwrap_or_default()
    };
    let traits = match one_variant {
        true => [machine, kernel, title, settings, variant, point, version, directory],
        false => [variant, machine, kernel, title, point, settings, version, directory],
    };
    let mut labels: Vec<String> = vec![String::new(); columns.len()];
    for read in traits {
        for alike in alike(&labels) {
            let members: Vec<&Entry<'_, '_>> =
                alike.iter().filter_map(|index| columns.get(*index).copied()).collect();
            let differing = differing_keys(&members);
            let said: Vec<String> = members.iter().map(|entry| read(entry, &differing)).collect();
            if said.iter().collect::<BTreeSet<_>>().len() < 2 {
                continue;
            }
            for (index, said) in alike.into_iter().zip(said).filter(|(_, said)| !said.is_empty()) {
                if let Some(label) = labels.get_mut(index) {
                    *label = if label.is_empty() { said } else { format!("{label}, {said}") };
                }
            }
        }
    }
    for alike in alike(&labels) {
        for (number, index) in alike.into_iter().enumerate() {
            if let Some(label) = labels.get_mut(index) {
                *label = format!("{label} #{}", number + 1).trim_start().to_owned();
            }
        }
    }
    labels
}

/// Sets of positions with the same label.
fn alike(labels: &[String]) -> Vec<Vec<usize>> {
    let mut sets: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, label) in labels.iter().enumerate() {
        sets.entry(label).or_default().push(index);
    }
    sets.into_values().filter(|set| set.len() > 1).collect()
}

/// The value of a key of the scenario.
fn setting(entry: &Entry<'_, '_>, key: &str) -> String {
    let value = entry.view.keys.get(key).map(|value| value.trim_matches('"').to_owned());
    value.unwrap_or_else(|| "default".to_owned())
}

/// Keys of the scenario by which columns differ.
fn differing_keys(columns: &[&Entry<'_, '_>]) -> Vec<String> {
    let readable = || columns.iter().map(|entry| &entry.view.keys).filter(|keys| !keys.is_empty());
    let all: BTreeSet<&String> = readable().flat_map(|keys| keys.keys()).collect();
    let differ = |key: &&&String| {
        let values: BTreeSet<Option<&String>> = readable().map(|keys| keys.get(**key)).collect();
        values.len() > 1
    };
    all.iter().filter(differ).map(|key| (*key).clone()).collect()
}

/// What a model was not told of the machine of the kernel that it is compared with. Without that they are two
/// machines, and differ by more than the model is off.
fn untold(firsts: &[&Entry<'_, '_>]) -> Vec<String> {
    let mut remarks = Vec::new();
    let Some(kernel) = firsts.iter().find(|entry| is_kernel(entry.view)) else { return remarks };
    let in_use = |occupied: &Occupied, machine: &MachineSpec| -> Bytes {
        machine.per_node(occupied).iter().map(|size| Bytes(size.bytes())).sum()
    };
    for model in firsts.iter().filter(|entry| !is_kernel(entry.view)) {
        let Some(machine) = &model.view.machine else { continue };
        let Some(was) = conditions(kernel.view.run, machine, false).kernel else { continue };
        let was = in_use(&was, machine);
        let tell = "lotsfree sim --like takes it from a lab's run";
        match machine.stated_kernel().map(|told| in_use(told, machine)) {
            None => remarks.push(format!(
                "Not the same machine: the model was not told that {was} of the kernel's memory were in use by \
                 something other than the scenario ({tell})."
            )),
            Some(told) if told.0.abs_diff(was.0) as f64 > TOLD * machine.memory().0 as f64 => {
                remarks.push(format!(
                    "Not the same machine: {was} of the kernel's memory were in use by something other than the \
                     scenario, {told} of the model's ({tell})."
                ));
            }
            Some(_) => {}
        }
        let costs = model.view.run.facts().calibration.as_ref();
        if costs.is_some_and(|costs| costs.name == CalibrationSpec::DEFAULT) {
            remarks.push(
                "The model's costs are its own, and not measured on that machine: lotsfree lab calibrate, and then \
                 sim --calibration."
                    .to_owned(),
            );
        }
    }
    remarks
}

/// What a reader should know: what else columns differ in, and what is not as a whole run is.
pub(super) fn differences(columns: &[Column], members: &[Vec<&Entry<'_, '_>>]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (column, all) in columns.iter().zip(members) {
        for (number, entry) in all.iter().enumerate() {
            let who = match all.len() {
                1 => column.label.clone(),
                _ => format!("{} #{}", column.label, number + 1),
            };
            let ended = ended(entry.view.run.state()).map(|ended| format!("the run is {ended}"));
            let said = entry.view.remarks();
            remarks.extend(
                ended.filter(|_| said.is_empty()).into_iter().chain(said).map(|r| format!("{who}: {r}")),
            );
        }
    }
    let firsts: Vec<&Entry<'_, '_>> = members.iter().filter_map(|all| all.first().copied()).collect();
    let generations: BTreeSet<&String> = columns.iter().filter_map(|c| c.generation.as_ref()).collect();
    let mixed =
        firsts.iter().any(|entry| is_kernel(entry.view)) && firsts.iter().any(|entry| !is_kernel(entry.view));
    if mixed && generations.len() > 1 {
        let names: Vec<String> = generations.into_iter().cloned().collect();
        remarks.push(format!("Not the same generation of the kernel: {}.", enumeration(&names)));
    }
    remarks.extend(untold(&firsts));
    // What a variant changes is what is compared.
    let variants: BTreeSet<&str> = firsts.iter().map(|entry| variant(entry.view)).collect();
    let titles: BTreeSet<&str> = firsts.iter().map(|entry| entry.view.run.facts().title.as_str()).collect();
    let mut keys = differing_keys(&firsts);
    if mixed {
        // Only the model is told what things cost, where a booted machine's memory is, and how fast its
        // devices answer.
        const BOOTED: [&str; 7] = [
            "machine.kernel",
            "machine.reserved",
            "machine.pagesets",
            "machine.committed",
            "machine.page-tables",
            "machine.disk.latency",
            "machine.swap.latency",
        ];
        let told = |key: &str| key.starts_with("calibration.") || BOOTED.contains(&key);
        keys.retain(|key| !told(key));
    }
    if variants.len() == 1 && titles.len() == 1 && !keys.is_empty() {
        let said = |key: &String| {
            let values: Vec<String> = firsts.iter().map(|entry| setting(entry, key)).collect();
            format!("{key} ({})", values.join("; "))
        };
        let named: Vec<String> = keys.iter().take(MOST_KEYS).map(said).collect();
        remarks.push(match keys.len() - named.len() {
            0 => format!("The scenarios differ in {}.", enumeration(&named)),
            more => format!("The scenarios differ in {} and {more} more keys.", named.join(", ")),
        });
    }
    let lengths = || columns.iter().map(|column| column.seconds);
    let (shortest, longest) = (lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max));
    if longest > 0.0 && (longest - shortest) / longest > LENGTHS {
        remarks.push(format!(
            "The measured parts are {} to {} long: counts are compared as they are.",
            duration(shortest),
            duration(longest)
        ));
    }
    let pages: BTreeSet<u64> = firsts.iter().map(|entry| entry.view.page() as u64).collect();
    if pages.len() > 1 {
        remarks.push("Their pages are not of the same size: counts of pages do not compare.".to_owned());
    }
    remarks
}

/// `3 repeats of linux-6.1 (model)`, for the head of a table.
pub fn described(column: &Column) -> String {
    let machine = place(column.machine);
    let what = match column.kernel.as_str() {
        "" => machine.to_owned(),
        kernel if column.label.starts_with(machine) => kernel.to_owned(),
        kernel => format!("{kernel} ({machine})"),
    };
    match column.repeats {
        1 => what,
        n => format!("{what}, {}", plural(n, "repeat")),
    }
}
