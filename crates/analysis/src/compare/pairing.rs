//! Which runs are repeats of one thing, and which are compared with each other.

use std::collections::BTreeSet;

use lotsfree_kernel_files::KernelVersion;
use lotsfree_run::RunOn;

use crate::view::View;

/// A run, and the number of the argument that it was found below.
#[derive(Debug)]
pub(super) struct Entry<'v, 'r> {
    pub(super) view: &'v View<'r>,
    pub(super) place: usize,
}

/// Runs of one thing.
pub(super) type Repeats = Vec<usize>;

/// What is compared with each other.
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

/// What runs that are compared with each other have in common.
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
    /// the sweep in common are compared with each other; where no two do, those that have less in common.
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
pub(crate) fn same_thing(a: &View<'_>, b: &View<'_>) -> bool {
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
    view.run.facts().machine != RunOn::Model
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

#[cfg(test)]
mod tests {
    use super::*;
    use lotsfree_run::{Facts, Memory, Run, State};

    fn run(machine: RunOn, kernel: &str, variant: &str, title: &str) -> Run {
        let facts = Facts {
            title: title.to_owned(),
            variant: Some(variant.to_owned()),
            machine,
            kernel: kernel.to_owned(),
            ..Facts::default()
        };
        Memory::default().finish(facts, "", State::Complete)
    }

    fn model(kernel: &str, variant: &str) -> Run {
        run(RunOn::Model, kernel, variant, "t")
    }

    fn vm(kernel: &str, variant: &str) -> Run {
        run(RunOn::Vm, kernel, variant, "t")
    }

    /// The tables and what is left over, as positions among the runs.
    fn plan(places: &[&[Run]]) -> (Vec<Vec<Repeats>>, Vec<Repeats>, Basis) {
        let views: Vec<(usize, View<'_>)> = (0..)
            .zip(places)
            .flat_map(|(place, runs)| runs.iter().map(move |run| (place, View::of(run))))
            .collect();
        let entries: Vec<Entry<'_, '_>> =
            views.iter().map(|(place, view)| Entry { view, place: *place }).collect();
        let plan = Plan::of(&entries);
        (plan.tables, plan.alone, plan.basis)
    }

    #[test]
    fn a_release_is_of_the_generation_that_models_have() {
        let of = |run: &Run| generation(&View::of(run)).unwrap_or_default();
        for (release, name) in [
            ("6.1.0-49-amd64", "linux-6.1"),
            ("6.12.43+deb13-amd64", "linux-6.12"),
            ("3.0.101-0.47.71-default", "linux-3.0"),
            ("2.6.32-642.el6.x86_64", "linux-2.6.32"),
        ] {
            assert_eq!(of(&vm(release, "a")), name);
        }
        assert_eq!(of(&model("linux-6.12+mglru", "a")), "linux-6.12+mglru");
        assert_eq!(of(&model("linux-2.6.32-rhel6", "a")), "linux-2.6.32");
        assert_eq!(of(&model("solaris", "a")), "");
        for (mask, name) in [("0x0007\n", "linux-6.12+mglru"), ("0x0000\n", "linux-6.12")] {
            let facts = Facts {
                machine: RunOn::Host,
                kernel: "6.12.43".to_owned(),
                files: [("sys/kernel/mm/lru_gen/enabled".to_owned(), mask.to_owned())].into(),
                ..Facts::default()
            };
            assert_eq!(of(&Memory::default().finish(facts, "", State::Complete)), name);
        }
    }

    #[test]
    fn variants_of_a_directory_are_compared_with_the_first() {
        let runs = [model("linux-6.1", "a"), model("linux-6.1", "b"), model("linux-6.1", "c")];
        assert_eq!(plan(&[&runs]), (vec![vec![vec![0], vec![1], vec![2]]], vec![], Basis::Scenario));
    }

    #[test]
    fn the_kernel_is_the_reference_of_models_and_repeats_are_one_column() {
        let models = [model("linux-6.1", "a"), model("linux-6.1", "b")];
        let kernels = [vm("6.1.0-49", "b"), vm("6.1.0-49", "a"), vm("6.1.0-49", "a"), vm("6.1.0-49", "z")];
        let (tables, alone, basis) = plan(&[&models, &kernels]);
        assert_eq!(tables, [vec![vec![3, 4], vec![0]], vec![vec![2], vec![1]]]);
        assert_eq!((alone, basis), (vec![vec![5]], Basis::Case));
    }

    #[test]
    fn each_kernel_is_compared_with_the_model_of_its_generation() {
        let runs = [model("linux-6.1", "a"), model("linux-6.12", "a"), vm("6.12.9", "a"), vm("6.1.0", "a")];
        assert_eq!(plan(&[&runs]).0, [vec![vec![3], vec![0]], vec![vec![2], vec![1]]]);
        // Without a model of its own it is compared with what there is.
        assert_eq!(plan(&[&runs[..3]]).0, [vec![vec![2], vec![0], vec![1]]]);
    }

    #[test]
    fn only_the_place_tells_before_from_after() {
        let both = || [model("linux-6.1", "a"), model("linux-6.1", "b")];
        let (tables, alone, _) = plan(&[&both(), &both()]);
        assert_eq!((tables, alone), (vec![vec![vec![0], vec![2]], vec![vec![1], vec![3]]], vec![]));
        let repeats = [model("linux-6.1", "a"), model("linux-6.1", "a"), model("linux-6.1", "a")];
        assert_eq!(plan(&[&repeats]).0, [[[0], [1], [2]]]);
    }

    #[test]
    fn runs_of_different_scenarios_are_paired_by_variant_or_as_they_come() {
        let other = |variant| run(RunOn::Model, "linux-6.1", variant, "u");
        let (tables, alone, basis) =
            plan(&[&[model("linux-6.1", "a"), model("linux-6.1", "b")], &[other("a"), other("c")]]);
        assert_eq!((tables, basis), (vec![vec![vec![0], vec![2]]], Basis::Variant));
        assert_eq!(alone, [[1], [3]]);
        let (tables, _, basis) = plan(&[&[model("linux-6.1", "a")], &[other("c")]]);
        assert_eq!((tables, basis), (vec![vec![vec![0], vec![1]]], Basis::Point));
        assert_eq!(plan(&[&[model("linux-6.1", "a")]]).0, Vec::<Vec<Repeats>>::new());
    }
}
