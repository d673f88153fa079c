//! `lotsfree sim --like`: a machine that begins as that of a lab's run did, or as a host whose data were
//! saved.

use std::path::Path;

use lotsfree_analysis::conditions::{conditions, managed_memory};
use lotsfree_run::{Run, RunOn};
use lotsfree_scenario::{Case, Record, Scenario};
use lotsfree_units::Bytes;

use super::host;
use crate::{output, runs};

/// A kernel's run, with the case that it executed.
struct Executed {
    run: Run,
    case: Case,
}

/// Tells each case what the kernel's run of it below `path` began with: that of the same variant and value of
/// the sweep, or else the first on such a machine. Cases for whose machine there is none are reported.
/// `record` says what things cost on that machine. A file is data of a host, as which all begin.
///
/// # Errors
/// If there is no run of a kernel, or none on the machine of any case; if the host is another machine.
pub(super) fn apply(cases: &mut [Case], path: &Path, record: Option<&Record>) -> anyhow::Result<()> {
    if path.is_file() {
        for case in cases {
            case.machine.take(host::conditions(path, &case.machine, case.has_pool())?, record);
        }
        return Ok(());
    }
    let found = runs::open(&[path.to_path_buf()])?;
    let executed: Vec<Executed> = found.into_iter().filter_map(Executed::of).collect();
    anyhow::ensure!(
        !executed.is_empty(),
        "{}: no run of a kernel is there; lotsfree lab makes them",
        path.display()
    );
    let mut without = Vec::new();
    for case in cases.iter_mut() {
        let alike = || executed.iter().filter(|one| one.is_on_machine_of(case));
        match alike().find(|one| one.is_of(case)).or_else(|| alike().next()) {
            Some(one) => {
                one.fits(case)?;
                let told = conditions(&one.run, &case.machine, case.has_pool());
                case.machine.take(told, record);
            }
            None => without.push(case.variant.clone()),
        }
    }
    without.dedup();
    anyhow::ensure!(
        without.len() < cases.len(),
        "{}: its runs are of other machines than the scenario's; generation, CPUs, page size and nodes must be the same",
        path.display()
    );
    if !without.is_empty() {
        output::remark(&format!(
            "{}: no run on the machine of {}, which begins as the model takes it to",
            path.display(),
            without.join(", ")
        ));
    }
    Ok(())
}

impl Executed {
    /// `None` of a run of the model, or one that does not say what it executed.
    fn of(run: Run) -> Option<Self> {
        if run.facts().machine == RunOn::Model {
            return None;
        }
        let case =
            Scenario::parse(run.scenario(), "scenario.toml").ok()?.cases(None).ok()?.into_iter().next()?;
        Some(Executed { run, case })
    }

    fn is_on_machine_of(&self, case: &Case) -> bool {
        let of = |case: &Case| {
            let machine = &case.machine;
            (machine.generation, machine.page(), machine.nodes.clone(), machine.cpus_per_node())
        };
        of(&self.case) == of(case)
    }

    /// Checks that a case's machine has the memory that this kernel manages: on a host the scenario's size
    /// does not count. In a control group it does, and the zones are the host's.
    fn fits(&self, case: &Case) -> anyhow::Result<()> {
        if self.run.facts().machine == RunOn::Cgroup {
            return Ok(());
        }
        let has = case.machine.nodes.iter().map(|node| node.bytes()).sum();
        let managed = managed_memory(&self.run).unwrap_or_default();
        anyhow::ensure!(
            managed.0 <= has,
            "machine.nodes: {} in all, and the kernel of {} manages {managed}; write the memory of that machine",
            Bytes(has),
            self.run.directory().unwrap_or(Path::new("the run")).display()
        );
        Ok(())
    }

    fn is_of(&self, case: &Case) -> bool {
        let label = |case: &Case| case.sweep.as_ref().map(|point| point.label.clone());
        self.case.variant == case.variant && label(&self.case) == label(case)
    }
}
