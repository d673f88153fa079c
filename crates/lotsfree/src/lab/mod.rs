//! `lotsfree lab`.

mod agent;
mod calibrate;
mod date;
mod kernels;
mod progress;
mod restore;
mod validate;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lotsfree_changes::Outcome;
use lotsfree_lab::vm::Kernel;
use lotsfree_lab::{LabError, Local, Output, Session, Stage, VirtualMachine};
use lotsfree_run::{Event, EventKind, Facts, Memory, Run, Sink, State, WriteError, Writer};
use lotsfree_scenario::Case;

use crate::cli::{LabArgs, LabCommand, LabRunArgs, On};
use crate::signals::Signals;
use crate::{output, places, runs, scenarios};
use progress::Progress;

pub(crate) use agent::run as agent;

/// Requests that take more nanoseconds than this are reported one by one.
const SLOW: u64 = 50_000_000;

/// One run to make.
struct Job {
    case: Case,
    place: PathBuf,
}

/// A virtual machine or this host, on which the cases are executed.
enum Executor {
    Local(Local),
    Virtual(VirtualMachine),
}

/// Executes jobs one after the other. On this host they share the files that they leave alone.
struct Runner<'a> {
    executor: &'a Executor,
    /// Begun with the first job on this host.
    session: Option<Session<'a>>,
}

/// Executes scenarios on a real kernel, or one of the other commands of `lab`.
pub(crate) fn run(arguments: &LabArgs) -> anyhow::Result<u8> {
    match (&arguments.command, &arguments.run) {
        (Some(LabCommand::Restore(arguments)), _) => restore::run(arguments),
        (Some(LabCommand::Calibrate(arguments)), _) => calibrate::run(arguments),
        (Some(LabCommand::Validate(arguments)), _) => validate::run(arguments),
        (Some(LabCommand::Kernel(arguments)), _) => kernels::run(arguments),
        (None, run) => execute(run),
    }
}

fn execute(arguments: &LabRunArgs) -> anyhow::Result<u8> {
    let named = arguments.scenario.as_deref().context("name a scenario (`lotsfree sim --list`)")?;
    let (name, scenario) = scenarios::load(named)?;
    let cases = scenarios::cases(&scenario, &arguments.set, &arguments.variant)?;
    // With --set: who names another generation names it for the scenario.
    let base_generation = cases.first().map(|case| case.machine.generation);
    let machine = Executor::new(arguments)?;
    let named_variants = !arguments.variant.is_empty();
    let cases = machine.able(cases, base_generation, named_variants)?;
    let base = match &arguments.out {
        Some(out) => out.clone(),
        None => default_base(arguments.on).join(places::safe(&name)),
    };
    let jobs = jobs(cases, &base, arguments.repeat);
    if arguments.dry_run {
        return machine.explain(&jobs);
    }
    places::check(&base, jobs.iter().map(|job| job.place.as_path()))?;
    // Without standard output the results would be lost, so nothing is measured.
    output::check_stdout()?;
    machine.warn(&jobs);
    let signals = Signals::watch().context("cannot handle signals")?;
    let (mut runs, mut lost, mut failed) = (Vec::new(), Vec::new(), None);
    let mut runner = machine.runner();
    let mut progress = Progress::new(jobs.iter().map(|job| job.case.duration.ns()).collect(), arguments.json);
    for (number, job) in jobs.iter().enumerate() {
        if signals.came() {
            break;
        }
        let (run, done) = runner.run(job, &signals, &mut |stage| progress.show(number, stage));
        if run.is_none() && done.is_err() {
            lost.push(job.place.strip_prefix(&base).unwrap_or(&job.place).display().to_string());
        }
        runs.extend(run);
        if let Err(error) = done {
            failed = Some(error.context(job.place.display().to_string()));
            break;
        }
    }
    progress.clear();
    let failed = runner.end().err().or(failed);
    let complete = runs.iter().filter(|run| run.state() == State::Complete).count();
    if complete < jobs.len() {
        output::remark(&runs::tally(jobs.len(), runs.len(), complete, &lost));
    }
    runs::show(&runs, &arguments.style, arguments.json, arguments.verbose)?;
    if !runs.is_empty() && !arguments.json {
        output::remark(&format!("runs in {0}; plots: lotsfree report {0} -o report.html", base.display()));
    }
    match (failed, signals.code()) {
        (Some(error), _) => Err(error),
        (None, Some(code)) if complete < jobs.len() => Ok(code),
        (None, _) => Ok(0),
    }
}

/// Path of this program, which is also the agent.
fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program")
}

/// A machine whose first program is the agent.
fn with_agent(machine: VirtualMachine) -> anyhow::Result<VirtualMachine> {
    let arguments = vec!["agent".to_owned(), "--init".to_owned()];
    Ok(VirtualMachine { init: program()?, arguments, ..machine })
}

/// This host, with files below a directory.
fn local(on: On, directory: Option<&Path>, risky: bool, exec: bool) -> anyhow::Result<Local> {
    let parent = directory.unwrap_or(Path::new("/var/tmp"));
    Ok(Local {
        group: on == On::Cgroup,
        parent: parent.to_path_buf(),
        state: lotsfree_changes::StateDirectory::of_user()?,
        agent: (program()?, vec!["agent".to_owned()]),
        risky,
        slow: SLOW,
        exec,
        blame: false,
    })
}

/// `lab/runs/2026-11-22-vm`
fn default_base(on: On) -> PathBuf {
    let on = match on {
        On::Host => "host",
        On::Cgroup => "cgroup",
        On::Vm => "vm",
    };
    Path::new("lab/runs").join(format!("{}-{on}", date::today()))
}

/// The cases with their directories, each repeated `repeat` times.
fn jobs(cases: Vec<Case>, base: &Path, repeat: u16) -> Vec<Job> {
    let places = places::below(base, &cases);
    let mut jobs = Vec::new();
    // Every case runs once before any runs again, so that changes over time affect all cases alike.
    for number in 1..=repeat {
        for (case, place) in cases.iter().zip(&places) {
            let place = if repeat > 1 { place.join(number.to_string()) } else { place.clone() };
            jobs.push(Job { case: case.clone(), place });
        }
    }
    jobs
}

impl Executor {
    fn new(arguments: &LabRunArgs) -> anyhow::Result<Self> {
        let own = |used: bool, name: &str| {
            anyhow::ensure!(!used, "{name} is for --on vm");
            Ok(())
        };
        if arguments.on != On::Vm {
            own(arguments.kernel.is_some(), "--kernel")?;
            own(arguments.accel.is_some(), "--accel")?;
        }
        match arguments.on {
            On::Vm => Executor::virtual_machine(VirtualMachine {
                kernel: arguments.kernel.clone(),
                accelerator: arguments.accel.map(Into::into),
                scratch: arguments.dir.clone(),
                blame: arguments.blame,
                ..VirtualMachine::default()
            }),
            on => {
                let (directory, risky) = (arguments.dir.as_deref(), arguments.yes_really);
                let local = local(on, directory, risky, arguments.allow_exec)?;
                Ok(Executor::Local(Local { blame: arguments.blame, ..local }))
            }
        }
    }

    fn virtual_machine(machine: VirtualMachine) -> anyhow::Result<Self> {
        Ok(Executor::Virtual(with_agent(machine)?))
    }

    /// The cases for whose kernel generation this machine has a kernel. The others are reported as left out;
    /// if they were requested by name, that is an error.
    fn able(
        &self,
        cases: Vec<Case>,
        base: Option<lotsfree_scenario::Generation>,
        named: bool,
    ) -> anyhow::Result<Vec<Case>> {
        let (mut able, mut unable) = (Vec::new(), Vec::new());
        for case in cases {
            let generation = case.machine.generation;
            let why = match self {
                Executor::Virtual(vm) if vm.kernel.is_none() => {
                    vm.kernel(&case).err().map(|error| error.to_string())
                }
                // One kernel serves all cases.
                _ if Some(generation) == base || named => match self {
                    Executor::Virtual(vm) => vm.kernel(&case).err().map(|error| error.to_string()),
                    Executor::Local(_) => None,
                },
                _ => Some("another kernel than the scenario's base has".to_owned()),
            };
            match why {
                None => able.push(case),
                Some(why) => unable.push((case.variant.clone(), generation, why)),
            }
        }
        unable.dedup_by(|a, b| a.0 == b.0);
        if able.is_empty() || (named && !unable.is_empty()) {
            let (variant, generation, why) = unable.first().context("the scenario has no case")?;
            anyhow::bail!("{variant} ({generation}): {why}");
        }
        if !unable.is_empty() {
            let names: Vec<String> =
                unable.iter().map(|(variant, generation, _)| format!("{variant} ({generation})")).collect();
            output::remark(&format!("left out, as their kernel is not here: {}", names.join("; ")));
        }
        Ok(able)
    }

    /// Warns once of each setting that acts on a control group otherwise than on a machine.
    fn warn(&self, jobs: &[Job]) {
        let Executor::Local(local) = self else { return };
        let mut said = BTreeSet::new();
        // What cannot be planned is an error when it is executed.
        for plan in jobs.iter().filter_map(|job| local.plan(&job.case).ok()) {
            for warning in plan.warnings {
                if said.insert(warning.clone()) {
                    output::remark(&warning);
                }
            }
        }
    }

    /// Says what would be changed, and changes nothing.
    fn explain(&self, jobs: &[Job]) -> anyhow::Result<u8> {
        let mut text = String::new();
        let mut refused = false;
        for job in jobs {
            text += &format!("{} → {}\n", job.case.variant, job.place.display());
            match self {
                Executor::Local(local) => {
                    let plan = local.plan(&job.case)?;
                    refused |= !plan.refusals.is_empty();
                    for (title, lines) in [
                        ("would change, and put back afterwards", &plan.changes),
                        ("differs from the scenario", &plan.remarks),
                        ("acts on the group otherwise than on the scenario's machine", &plan.warnings),
                        ("would be refused", &plan.refusals),
                    ] {
                        if !lines.is_empty() {
                            text += &format!("  {title}:\n");
                            lines.iter().for_each(|line| text += &format!("    {line}\n"));
                        }
                    }
                }
                Executor::Virtual(vm) => {
                    let guest = vm.guest(&job.case)?;
                    let Kernel { release, image, .. } = &guest.kernel;
                    text += &format!("  boots {release} ({})\n", image.display());
                    text +=
                        &format!("  takes {} of this host's memory, and changes nothing\n", guest.memory());
                }
            }
        }
        output::print(&text)?;
        Ok(if refused { 2 } else { 0 })
    }

    fn runner(&self) -> Runner<'_> {
        Runner { executor: self, session: None }
    }
}

impl Runner<'_> {
    /// Executes a job. Returns the run as far as it was written, and how the execution ended.
    fn run(
        &mut self,
        job: &Job,
        signals: &Signals,
        show: &mut dyn FnMut(Stage),
    ) -> (Option<Run>, anyhow::Result<()>) {
        let mut output = Directory { job, writer: None, lost: Memory::default() };
        let mut reached = 0;
        let watch = &mut |stage| {
            if let Stage::At(ns) = stage {
                reached = ns;
            }
            show(stage);
            if signals.came() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let done = match self.executor {
            Executor::Local(local) => match self.session.take().map_or_else(|| local.begin(&mut told), Ok) {
                Ok(session) => self.session.insert(session).execute(&job.case, &mut output, &mut told, watch),
                Err(error) => Err(error),
            },
            Executor::Virtual(vm) => vm.execute(&job.case, &mut output, watch),
        };
        let state = match &done {
            Ok(state) => *state,
            Err(error) => {
                output.broke_off(reached, error);
                State::Interrupted
            }
        };
        let done = done.map(|_| ()).map_err(plain);
        match output.writer.map(|writer| writer.finish(state)).transpose() {
            Ok(run) => (run, done),
            Err(error) => (None, done.and(Err(error.into()))),
        }
    }

    /// Puts back what the jobs shared.
    fn end(self) -> anyhow::Result<()> {
        self.session.map_or(Ok(()), |session| Ok(session.end(&mut told)?))
    }
}

/// Says what was undone.
fn told(outcome: &Outcome) {
    output::remark(&outcome.to_string());
}

/// A run's directory, created once it is known on what the run is executed.
struct Directory<'a> {
    job: &'a Job,
    writer: Option<Writer>,
    /// Rows of a run that has not begun; no machine produces any.
    lost: Memory,
}

impl Directory<'_> {
    /// Notes in the run what ended it, so that whoever reads it later learns it too.
    fn broke_off(&mut self, at: u64, error: &LabError) {
        let Some(writer) = &mut self.writer else { return };
        // If the output is what failed, it cannot take this either.
        let _ = writer.event(&Event::new(at, EventKind::Error, error.brief(), None));
    }
}

impl Output for Directory<'_> {
    fn begin(&mut self, facts: Facts) -> Result<(), WriteError> {
        self.writer = Some(Writer::create(&self.job.place, facts, &self.job.case.to_toml())?);
        Ok(())
    }

    fn sink(&mut self) -> &mut dyn Sink {
        match &mut self.writer {
            Some(writer) => writer,
            None => &mut self.lost,
        }
    }
}

/// Unwraps errors of the scenario, so that they are printed with their places.
fn plain(error: LabError) -> anyhow::Error {
    match error {
        LabError::Scenario(errors) => errors.into(),
        other => other.into(),
    }
}
