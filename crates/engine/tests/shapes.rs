//! The scenarios that ship show the published results.

use std::ops::ControlFlow;

use lotsfree_run::{ActorFigures, Figures, Memory, Run, State};
use lotsfree_scenario::{Case, Scenario};

mod shapes {
    mod daemon_memlock;
    mod memory_hogs;
    mod oracle_sessions;
    mod oracle_systems;
    mod overcommit;
    mod parallelio;
    mod zone_reclaim;
}

/// Measurements of one case of a scenario: a variant, at one value of the sweep, with changes.
fn figures(text: &str, variant: &str, label: Option<&str>, set: &[(&str, &str)]) -> Figures {
    let scenario =
        Scenario::parse(text, "scenario.toml").expect("a scenario").with(set).expect("its changes");
    let cases = scenario.cases(Some(&[variant.to_owned()])).expect("cases");
    let case = cases
        .iter()
        .find(|case| case.sweep.as_ref().map(|sweep| sweep.label.as_str()) == label)
        .expect("a case");
    simulated(case).summary().measured
}

/// The run of a case.
fn simulated(case: &Case) -> Run {
    let mut memory = Memory::default();
    lotsfree_engine::simulate(case, &mut memory, &mut |_| ControlFlow::Continue(())).expect("a run");
    memory.finish(lotsfree_engine::facts(case).expect("facts"), case.to_toml(), State::Complete)
}

/// The case of a variant of a scenario that has no sweep, with changes.
fn case(text: &str, variant: &str, set: &[(&str, &str)]) -> Case {
    let scenario = Scenario::parse(text, "s.toml").expect("a scenario").with(set).expect("its changes");
    scenario.cases(Some(&[variant.to_owned()])).expect("cases").remove(0)
}

/// One actor's figures.
fn of<'a>(figures: &'a Figures, actor: &str) -> &'a ActorFigures {
    figures.actors.iter().find(|figures| figures.actor == actor).expect("an actor")
}
