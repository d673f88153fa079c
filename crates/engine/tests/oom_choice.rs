//! Compares whom the model's OOM killer chooses with whom kernels chose, in 20 set-ups that were drawn.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lotsfree_run::{EventKind, Memory, State};
use lotsfree_scenario::Scenario;
use serde::Deserialize;

const DRAWS: &str = include_str!("../../../lab/oom-choice.toml");
const VICTIMS: &str = include_str!("../../../lab/oom-choice.victims.toml");

/// What kernels did, by their generation and the variant.
type Kernels = BTreeMap<String, BTreeMap<String, Killed>>;

#[derive(Deserialize)]
struct Killed {
    /// The actors that were killed, in their order.
    victims: Vec<String>,
    /// `machine.kernel` and `machine.reserved`, as the run of that kernel told them.
    kernel: String,
    reserved: String,
}

/// The actors that the model kills in a variant, in their order.
fn killed(generation: &str, variant: &str, like: &Killed) -> Vec<String> {
    let Killed { kernel, reserved, .. } = like;
    let set = [("generation", generation), ("kernel", kernel), ("reserved", reserved)];
    let set = set.map(|(key, value)| (format!("machine.{key}"), format!("'{value}'")));
    let set: Vec<(&str, &str)> = set.iter().map(|(key, value)| (&**key, &**value)).collect();
    let scenario =
        Scenario::parse(DRAWS, "oom-choice.toml").expect("a scenario").with(&set).expect("a kernel");
    let case = scenario.cases(Some(&[variant.to_owned()])).expect("cases").remove(0);
    let mut memory = Memory::default();
    lotsfree_engine::simulate(&case, &mut memory, &mut |_| ControlFlow::Continue(())).expect("a run");
    let run = memory.finish(lotsfree_engine::facts(&case).expect("facts"), case.to_toml(), State::Complete);
    let killed = run.events().iter().filter(|event| event.kind == EventKind::OomKill);
    killed.filter_map(|event| event.actor.clone()).collect()
}

#[test]
fn the_model_kills_whom_kernels_killed() {
    let kernels: Kernels = toml::from_str(VICTIMS).expect("the kernels' victims");
    for (generation, variants) in kernels {
        assert_eq!(variants.len(), 21, "{generation}");
        for (variant, like) in variants {
            assert_eq!(killed(&generation, &variant, &like), like.victims, "{generation}, {variant}");
        }
    }
}
