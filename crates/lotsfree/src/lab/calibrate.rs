//! `lotsfree lab calibrate`.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use lotsfree_changes::StateDirectory;
use lotsfree_lab::{Calibration, Effort, LabError, VirtualMachine};
use lotsfree_scenario::{Case, Generation, Record, Scenario};
use lotsfree_storage::Access;

use super::{date, plain};
use crate::cli::{CalibrateArgs, Measured};
use crate::signals::Signals;
use crate::{output, scenarios};

/// The virtual machine that is measured by default, without a scenario.
const MACHINE: &str = r#"
title = "A machine to be measured"
duration = "60 s"

[machine]
generation = "linux-6.1"
cpus = 2
nodes = ["1 GiB"]
swap = { size = "256 MiB", on = "disk" }
"#;

/// Measures the costs of the kernel's work, and writes the record.
pub(super) fn run(arguments: &CalibrateArgs) -> anyhow::Result<u8> {
    let on_vm = arguments.on == Measured::Vm;
    for (used, name) in [
        (arguments.kernel.is_some(), "--kernel"),
        (arguments.accel.is_some(), "--accel"),
        (arguments.scenario.is_some(), "--scenario"),
    ] {
        anyhow::ensure!(on_vm || !used, "{name} is for --on vm");
    }
    let signals = Signals::watch().context("cannot handle signals")?;
    let record =
        if on_vm { on_machine(arguments, &signals)? } else { here(arguments.dir.as_deref(), &signals)? };
    let Some(mut record) = record else {
        output::remark("interrupted, nothing was written");
        return Ok(signals.code().unwrap_or(crate::UNUSABLE));
    };
    if let Some(name) = &arguments.name {
        record.name.clone_from(name);
    }
    let text = match arguments.json {
        true => lotsfree_units::visible_json(serde_json::to_string_pretty(&record)? + "\n"),
        false => record.to_toml(),
    };
    match &arguments.output {
        None => output::print(&text)?,
        Some(path) => {
            output::save(path, Access::Umask, text.as_bytes())?;
            let absent = match record.absent.len() {
                0 => String::new(),
                1 => "; one value is absent, the record says why".to_owned(),
                number => format!("; {number} values are absent, the record says why"),
            };
            output::remark(&format!(
                "{0}: {1}{absent}; use it: lotsfree sim SCENARIO --calibration {0}",
                path.display(),
                record.name
            ));
        }
    }
    Ok(0)
}

/// Adds the day and a name to the record.
fn named(mut record: Record) -> Record {
    record.provenance.date = date::today();
    record.name = name(&record);
    record
}

/// The default name of a record: `tcg, Linux 6.1.0-56-amd64, QEMU TCG CPU version 2.5+, 2026-11-22`
fn name(record: &Record) -> String {
    let provenance = &record.provenance;
    let accelerator = provenance.accelerator.clone().unwrap_or_default();
    let kernel = format!("Linux {}", provenance.kernel);
    let parts = [accelerator, kernel, provenance.cpu.clone(), provenance.date.clone()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Measures this host, with files below a directory.
pub(super) fn here(directory: Option<&Path>, signals: &Signals) -> anyhow::Result<Option<Record>> {
    let parent = directory.unwrap_or(Path::new("/var/tmp"));
    let calibration = Calibration {
        parent: parent.to_path_buf(),
        helper: (super::program()?, vec!["agent".to_owned(), "--reclaim".to_owned()]),
        fresh: false,
        effort: Effort::default(),
    };
    let state = StateDirectory::of_user()?;
    let changes = match rustix::process::geteuid().is_root() {
        true => state.host(&mut |outcome| output::remark(&outcome.to_string()))?,
        // This makes a directory, and changes nothing else.
        false => state.process()?,
    };
    let began = Instant::now();
    let mut told = String::new();
    let record = calibration.measure(changes, &mut |what| {
        if told != what {
            what.clone_into(&mut told);
            output::progress(began.elapsed().as_secs_f64(), &format!("measuring {what}"));
        }
        going(signals)
    });
    Ok(record?.map(named))
}

/// Measures a virtual machine with the kernel of a generation.
pub(super) fn of_generation(generation: Generation, signals: &Signals) -> anyhow::Result<Option<Record>> {
    let scenario = Scenario::parse(MACHINE, "the machine to be measured")?;
    let case = first(&scenario.with(&[("generation", generation.name())])?)?;
    measure(&super::with_agent(VirtualMachine::default())?, &case, signals)
}

/// Measures a virtual machine.
fn on_machine(arguments: &CalibrateArgs, signals: &Signals) -> anyhow::Result<Option<Record>> {
    let case = match &arguments.scenario {
        Some(named) => first(&scenarios::load(named)?.1)?,
        None => first(&Scenario::parse(MACHINE, "the machine to be measured")?)?,
    };
    let machine = super::with_agent(VirtualMachine {
        kernel: arguments.kernel.clone(),
        accelerator: arguments.accel.map(Into::into),
        scratch: arguments.dir.clone(),
        ..VirtualMachine::default()
    })?;
    measure(&machine, &case, signals)
}

fn measure(machine: &VirtualMachine, case: &Case, signals: &Signals) -> anyhow::Result<Option<Record>> {
    // The calibration takes its own time, whatever the duration of the case.
    let (began, mut told) = (Instant::now(), 0);
    let record = machine.calibrate(case, &mut |_| {
        let seconds = began.elapsed().as_secs();
        if seconds >= told + PAUSE {
            told = seconds;
            output::progress(seconds as f64, &format!("measuring the virtual machine, for {seconds} s"));
        }
        going(signals)
    });
    match record {
        Err(error @ LabError::Scenario(_)) => Err(plain(error)),
        record => Ok(record?.map(named)),
    }
}

/// Seconds between two messages that the measurement is still running.
const PAUSE: u64 = 5;

/// The first case of a scenario, without a choice of variants.
fn first(scenario: &Scenario) -> anyhow::Result<Case> {
    scenario.cases(None)?.into_iter().next().context("the scenario has no case")
}

fn going(signals: &Signals) -> ControlFlow<()> {
    if signals.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_machine_is_one() {
        let case = first(&Scenario::parse(MACHINE, "m").unwrap_or_else(|errors| panic!("{errors}"))).unwrap();
        assert_eq!(case.machine.memory(), lotsfree_units::Bytes::gib(1));
        assert!(case.actors.is_empty());
    }

    #[test]
    fn a_record_is_called_after_its_machine() {
        let mut record = Record::default();
        record.provenance.kernel = "6.1.0".to_owned();
        record.provenance.date = "2026-11-22".to_owned();
        assert_eq!(name(&record), "Linux 6.1.0, 2026-11-22");
        record.provenance.accelerator = Some("kvm".to_owned());
        record.provenance.cpu = "Some CPU".to_owned();
        assert_eq!(name(&record), "kvm, Linux 6.1.0, Some CPU, 2026-11-22");
    }
}
