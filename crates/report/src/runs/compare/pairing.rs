//! Which runs are repeats of one thing, and which are held against each other.

use std::collections::BTreeSet;

use lotsfree_run::Machine;
use lotsfree_snapshot::KernelVersion;

use super::super::view::View;

/// A run, and the number of the argument that it was found below.
#[derive(Debug)]
pub(super) struct Entry<'v, 'r> {
    pub(super) view: &'v View<'r>,
    pub(super) place: usize,
}

/// Runs of one thing.
pub(super) type Repeats = Vec<usize>;

/// What is held against each other.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Sets of runs of one thing each; the first is the reference of the others.
    pub(super) tables: Vec<Vec<Repeats>>,
    /// Runs that have no counterpart.
    pub(super) alone: Vec<Repeats>,
    pub(super) basis: Basis,
    /// All runs are of the same thing.
    pub(super) one_thing: bool,
}

/// What runs that are held against each other have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Basis {
    /// Scenario, variant and value of the sweep.
    #[default]
    Case,
    /// Variant and value of the sweep.
    Variant,
    /// Scenario and value of the sweep.
    Scenario,
    /// Value of the sweep.
    Point,
    /// Nothing.
    Nothing,
}

impl Plan {
    /// Runs with all they have in common are repeats. Those that have their scenario, variant and value of
    /// the sweep in common are held against each other; where no two do, those that have less in common.
    pub(super) fn of(entries: &[Entry<'_, '_>]) -> Self {
        let mut things: Vec<Repeats> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let same = |thing: &&mut Repeats| {
                let first = thing.first().and_then(|first| entries.get(*first));
                first.is_some_and(|first| same_thing(first.view, entry.view))
            };
            match things.iter_mut().find(same) {
                Some(thing) => thing.push(index),
                None => things.push(vec![index]),
            }
        }
        let one_thing = things.len() == 1;
        let places: BTreeSet<usize> = entries.iter().map(|entry| entry.place).collect();
        let several = |classes: &[Vec<Repeats>]| classes.iter().any(|class| class.len() > 1);
        if !several(&classes(entries, &things, Basis::Case)) {
            let of = |thing: &Repeats| -> BTreeSet<usize> {
                thing.iter().filter_map(|i| entries.get(*i)).map(|entry| entry.place).collect()
            };
            if places.len() > 1 && things.iter().all(|thing| of(thing) == places) {
                // Before and after: the same things in every place.
                let split = |thing: Repeats| {
                    let at = |place: usize| {
                        let here = |i: &usize| entries.get(*i).is_some_and(|entry| entry.place == place);
                        thing.iter().copied().filter(here).collect::<Repeats>()
                    };
                    places.iter().copied().map(at).collect::<Vec<_>>()
                };
                things = things.into_iter().flat_map(split).collect();
            } else if one_thing {
                things = things.into_iter().flatten().map(|index| vec![index]).collect();
            }
        }
        let mut bases = vec![Basis::Case, Basis::Scenario, Basis::Point, Basis::Nothing];
        if places.len() > 1 {
            bases.insert(1, Basis::Variant);
        }
        let mut found = (Basis::Case, Vec::new());
        for basis in bases {
            found = (basis, classes(entries, &things, basis));
            if several(&found.1) {
                break;
            }
        }
        let (basis, classes) = found;
        let mut plan = Plan { basis, one_thing, ..Plan::default() };
        for class in classes.into_iter().flat_map(|class| by_generation(entries, class)) {
            match class.len() {
                1 => plan.alone.extend(class),
                _ => plan.tables.push(reference_first(entries, class)),
            }
        }
        plan
    }
}

fn first<'e, 'v, 'r>(entries: &'e [Entry<'v, 'r>], repeats: &Repeats) -> Option<&'e Entry<'v, 'r>> {
    entries.get(*repeats.first()?)
}

/// Whether two runs are repeats: all that can be set is the same but for the seed.
fn same_thing(a: &View<'_>, b: &View<'_>) -> bool {
    let (of_a, of_b) = (a.run.facts(), b.run.facts());
    let point = |view: &View<'_>| view.point.as_ref().map(|point| (point.key.clone(), point.label.clone()));
    of_a.title == of_b.title
        && variant(a) == variant(b)
        && point(a) == point(b)
        && of_a.machine == of_b.machine
        && (&of_a.kernel, generation(a)) == (&of_b.kernel, generation(b))
        && of_a.lotsfree == of_b.lotsfree
        && of_a.calibration == of_b.calibration
        && (of_a.duration, &of_a.measure) == (of_b.duration, &of_b.measure)
        && a.keys == b.keys
}

/// Its variant.
pub(super) fn variant<'v>(view: &'v View<'_>) -> &'v str {
    &view.label
}

/// The kernel as scenarios name generations: `linux-6.1` both for the model of that name and for
/// `6.1.0-49-amd64`; `+mglru` where the multi-generational LRU is on.
pub(super) fn generation(view: &View<'_>) -> Option<String> {
    let facts = view.run.facts();
    let named = facts.kernel.strip_prefix("linux-");
    let version = KernelVersion::parse(named.unwrap_or(&facts.kernel))?;
    let switch = facts.files.get("sys/kernel/mm/lru_gen/enabled").map(|file| file.trim());
    let on = match named {
        Some(name) => name.ends_with("+mglru"),
        None => switch.is_some_and(|mask| !matches!(mask, "" | "0" | "0x0000")),
    };
    let (major, minor, patch) = version.numbers;
    // The third number is a patch level from 3.0 on.
    let patch = if major < 3 { format!(".{patch}") } else { String::new() };
    Some(format!("linux-{major}.{minor}{patch}{}", if on { "+mglru" } else { "" }))
}

/// Whether a kernel executed it.
pub(super) fn is_kernel(view: &View<'_>) -> bool {
    view.run.facts().machine != Machine::Model
}

/// Things that have as much in common, in the order in which they were given.
fn classes(entries: &[Entry<'_, '_>], things: &[Repeats], basis: Basis) -> Vec<Vec<Repeats>> {
    let key = |thing: &Repeats| {
        let view = first(entries, thing)?.view;
        let point = || view.point.as_ref().map(|point| (point.key.as_str(), point.number.to_bits()));
        let title = || view.run.facts().title.as_str();
        Some(match basis {
            Basis::Case => (Some(title()), Some(variant(view)), point()),
            Basis::Variant => (None, Some(variant(view)), point()),
            Basis::Scenario => (Some(title()), None, point()),
            Basis::Point => (None, None, point()),
            Basis::Nothing => (None, None, None),
        })
    };
    let mut classes: Vec<(_, Vec<Repeats>)> = Vec::new();
    for thing in things {
        let key = key(thing);
        match classes.iter_mut().find(|(known, _)| *known == key) {
            Some((_, class)) => class.push(thing.clone()),
            None => classes.push((key, vec![thing.clone()])),
        }
    }
    classes.into_iter().map(|(_, class)| class).collect()
}

/// Kernels and models of several generations, each kernel with the model of its own, if each has one.
fn by_generation(entries: &[Entry<'_, '_>], class: Vec<Repeats>) -> Vec<Vec<Repeats>> {
    let mut parts: Vec<(Option<String>, Vec<Repeats>)> = Vec::new();
    for thing in &class {
        let generation = first(entries, thing).and_then(|entry| generation(entry.view));
        match parts.iter_mut().find(|(known, _)| *known == generation) {
            Some((_, part)) => part.push(thing.clone()),
            None => parts.push((generation, vec![thing.clone()])),
        }
    }
    let kernels = |part: &[Repeats]| {
        part.iter().filter_map(|thing| first(entries, thing)).filter(|entry| is_kernel(entry.view)).count()
    };
    let mixed = |(_, part): &(Option<String>, Vec<Repeats>)| (1..part.len()).contains(&kernels(part));
    if parts.len() > 1 && parts.iter().all(mixed) {
        parts.into_iter().map(|(_, part)| part).collect()
    } else {
        vec![class]
    }
}

/// One kernel among models is their reference; else whatever comes first is.
fn reference_first(entries: &[Entry<'_, '_>], mut class: Vec<Repeats>) -> Vec<Repeats> {
    let kernel = |thing: &Repeats| first(entries, thing).is_some_and(|entry| is_kernel(entry.view));
    if class.iter().filter(|thing| kernel(thing)).count() == 1
        && let Some(at) = class.iter().position(kernel)
    {
        class[..=at].rotate_right(1);
    }
    class
}
