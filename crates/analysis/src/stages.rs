//! When a process reached the stages of its work, how many page faults it took there, and what memory it had
//! then.

use lotsfree_run::{Event, EventKind, StageMemory};
use lotsfree_units::Bytes;
use lotsfree_units::words::counted;

use crate::measure::nanoseconds;
use crate::view::View;

/// A stage that a process reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Nanoseconds since the stage before it, or the start of the process.
    pub after_ns: u64,
    /// Page faults since then.
    pub faults: u64,
    /// Memory of the process at the stage; `None` of runs that do not tell.
    pub memory: Option<StageMemory>,
}

/// The stages of the actor that is measured, each when it was reached first. There are none where the run
/// does not tell the faults, or the actor has several processes.
pub fn stages(view: &View<'_>) -> Vec<Stage> {
    let [(actor, _)] = view.measured.as_slice() else { return Vec::new() };
    let its = |event: &&Event| event.actor.as_deref() == Some(&**actor);
    let events: Vec<&Event> = view.run.events().iter().filter(its).collect();
    let mut starts = events.iter().filter(|event| event.kind == EventKind::Start);
    let (Some(start), None) = (starts.next(), starts.next()) else { return Vec::new() };
    let (mut at, mut faults) = (start.at, 0);
    let mut stages: Vec<Stage> = Vec::new();
    for event in events.iter().filter(|event| event.kind == EventKind::Mark) {
        let Some(all) = event.faults else { return Vec::new() };
        if stages.iter().any(|stage| stage.name == event.what) {
            continue;
        }
        stages.push(Stage {
            name: event.what.clone(),
            after_ns: event.at.saturating_sub(at),
            faults: all.saturating_sub(faults),
            memory: event.memory,
        });
        (at, faults) = (event.at, all);
    }
    stages
}

/// What [`stages`] come to, as a sentence without its end; `None` if there are none.
pub fn sentence(view: &View<'_>) -> Option<String> {
    let said =
        stages(view).into_iter().enumerate().map(|(number, Stage { name, after_ns, faults, memory })| {
            let after = nanoseconds(after_ns as f64);
            let faults = match faults {
                0 => "no page fault".to_owned(),
                faults => counted(faults, "page fault"),
            };
            let since = if number == 0 { "after the start" } else { "later" };
            let memory = memory.map_or_else(String::new, |StageMemory { size, resident }| {
                format!(" (VmSize {}, VmRSS {})", Bytes::kib(size), Bytes::kib(resident))
            });
            format!("{name} {after} {since}, with {faults}{memory}")
        });
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use lotsfree_run::{Facts, Histogram, Interval, Memory, Run, Sink as _, Spent, State, Toll};

    use super::*;

    fn run(events: &[(u64, EventKind, &str, Option<u64>)]) -> Run {
        let mut memory = Memory::default();
        for &(at, kind, what, faults) in events {
            let actor = Some("a".to_owned());
            memory.event(&Event { faults, ..Event::new(at, kind, what, actor) }).unwrap();
        }
        let row = Interval {
            from: 0,
            at: 10_000_000,
            actor: "a".into(),
            role: "r".into(),
            operations: 1,
            errors: 0,
            latency: Histogram::default(),
            spent: Spent::default(),
            major_faults: 0,
            minor_faults: 0,
            toll: Toll::default(),
        };
        memory.intervals(&[row]).unwrap();
        memory.finish(Facts::default(), "", State::Complete)
    }

    #[test]
    fn each_stage_is_told_by_what_it_took() {
        let start = (1_000_000, EventKind::Start, "started", None);
        let told = |events: &[_]| sentence(&View::of(&run(events)));
        let mapped = (3_500_000, EventKind::Mark, "mapped", Some(1));
        let touched = (4_750_000, EventKind::Mark, "touched", Some(5001));
        let again = (9_000_000, EventKind::Mark, "touched", Some(5002));
        assert_eq!(
            told(&[start, mapped, touched, again]).as_deref(),
            Some(
                "mapped 2.50 ms after the start, with 1 page fault; touched 1.25 ms later, with 5,000 page faults"
            )
        );
        assert_eq!(told(&[start]), None, "no stage");
        assert_eq!(told(&[start, start, mapped]), None, "several processes");
        assert_eq!(told(&[start, (2, EventKind::Mark, "old", None)]), None, "a run that does not tell");
    }
}
