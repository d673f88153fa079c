//! `lotsfree lab validate`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use lotsfree_analysis::compare::Measured;
use lotsfree_analysis::conditions::conditions;
use lotsfree_analysis::validation::{Drawn, Validation};
use lotsfree_lab::VirtualMachine;
use lotsfree_report::runs::{runs_pictures, validation_markdown, validation_tables};
use lotsfree_run::{Run, State};
use lotsfree_scenario::shipped;
use lotsfree_scenario::{Case, Experiment, Experiments, Generation, Record, Scenario, Stand};
use lotsfree_storage::Access;

use super::progress::Progress;
use super::{Executor, Job, Runner, calibrate};
use crate::cli::{On, ValidateArgs};
use crate::signals::Signals;
use crate::{output, places, scenarios, sim};

/// How often a run is tried: an emulated machine may hang while it boots.
const TRIES: u32 = 2;
/// Runs of the model of a case. Where much depends on chance, one says little.
const MODELS: u64 = 5;
/// The most by which a program starts later in one run than in another, in nanoseconds: no two runs of a
/// kernel begin alike.
const APART: u64 = 10_000_000;
/// How much later each does than the one before; a prime, so that no two of them stay together.
const STRIDE: u64 = 7_919_000;
/// Names of the pictures that the tables show of each experiment.
const PICTURES: [&str; 2] = ["free", "lists"];
/// Number of variants whose pictures are shown.
const DRAWN: usize = 2;
/// Directory of the pictures, relative to that of the tables.
const BESIDE: &str = "pictures/validation";

/// Executes experiments on kernels and on their models, and writes how much they differ.
pub(super) fn run(arguments: &ValidateArgs) -> anyhow::Result<u8> {
    let experiments = experiments(arguments)?;
    if let Some(list) = &arguments.list {
        write(list, &experiments.to_toml())?;
        return Ok(0);
    }
    let chosen = if arguments.recorded { Vec::new() } else { chosen(&experiments, &arguments.names)? };
    let (out, page) = (arguments.out(), arguments.page());
    lotsfree_storage::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let signals = Signals::watch().context("cannot handle signals")?;
    let (mut drawn, mut failed) = (Vec::new(), Vec::new());
    for experiment in chosen {
        for generation in experiment.generations.iter().take_while(|_| !signals.came()) {
            let bench = Bench { arguments, experiment, generation: *generation, signals: &signals };
            match bench.validate() {
                Ok(Some(pictures)) => drawn.push((bench.name(), pictures)),
                Ok(None) => output::remark(&format!("{}, {generation}: interrupted", experiment.name)),
                Err(error) => failed.push(error.context(bench.name())),
            }
        }
    }
    if !arguments.kernel_only {
        write_pages(arguments, &experiments, &drawn, &out, &page)?;
    }
    let last = failed.pop();
    failed.iter().for_each(output::complain);
    match last {
        Some(error) => Err(error),
        None => Ok(signals.code().unwrap_or(0)),
    }
}

/// The experiments that are asked for: those of a file, those that are drawn, or those that ship.
fn experiments(arguments: &ValidateArgs) -> anyhow::Result<Experiments> {
    if let Some(path) = &arguments.experiments {
        return Ok(Experiments::load(path)?);
    }
    let shipped = shipped::experiments()?;
    Ok(match arguments.random {
        Some(count) => {
            let drawn = Experiments::random(count, arguments.seed, &arguments.generations);
            // What says nothing of the model says nothing in these either.
            Experiments { left_out: shipped.left_out, ..drawn }
        }
        None => shipped,
    })
}

/// Makes the pages from the records of a directory; `drawn` are the pictures that were made now.
fn write_pages(
    arguments: &ValidateArgs,
    experiments: &Experiments,
    drawn: &[(String, Vec<Drawn>)],
    out: &Path,
    page: &Path,
) -> anyhow::Result<()> {
    let mut all = Validation::load_all(out)?;
    anyhow::ensure!(
        !all.is_empty(),
        "{}: no experiment is recorded here (--out names another directory); {} stays as it is",
        out.display(),
        page.display()
    );
    for one in &mut all {
        let made = drawn.iter().find(|(name, _)| *name == name_of(&one.experiment, &one.generation));
        if let Some((_, pictures)) = made {
            one.pictures.clone_from(pictures);
        }
    }
    write(page, &validation_markdown(experiments, &all))?;
    if let Some(tables) = &arguments.tables {
        write(tables, &validation_tables(experiments, &all, BESIDE))?;
    }
    output::remark(&format!("{}: {} experiments", page.display(), all.len()));
    Ok(())
}

/// What the record and the runs of an experiment on a kernel are filed under: `zone-reclaim-6.1`.
fn name_of(experiment: &str, generation: &str) -> String {
    let kernel = generation.strip_prefix("linux-").unwrap_or(generation);
    places::safe(&format!("{experiment}-{kernel}"))
}

/// The experiments with these names; all of them if no name is given. For one kernel alone `--experiments`
/// names a copy of lab/validation.toml that has only that one in `generations`; then `--page` should name
/// another file, because the page shows what is in that copy.
fn chosen<'e>(experiments: &'e Experiments, names: &[String]) -> anyhow::Result<Vec<&'e Experiment>> {
    if names.is_empty() {
        return Ok(experiments.all.iter().collect());
    }
    let named = |name: &String| {
        experiments.all.iter().find(|experiment| experiment.name == *name).with_context(|| {
            let known: Vec<&str> =
                experiments.all.iter().map(|experiment| experiment.name.as_str()).collect();
            format!("there is no experiment {name:?}; there are {}", known.join(", "))
        })
    };
    names.iter().map(named).collect()
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        lotsfree_storage::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    output::save(path, Access::Umask, text.as_bytes())
}

/// The case whose programs start a little later, each by another part of [`APART`]. All else is the same: a
/// seed says which pages programs touch, and kernels' repeats have the same seed.
fn apart(case: &Case, number: u64) -> Case {
    let mut case = case.clone();
    for (place, actor) in (1..).zip(&mut case.actors) {
        actor.start.0 += number * place * STRIDE % APART;
    }
    case
}

/// One experiment on one kernel.
struct Bench<'a> {
    arguments: &'a ValidateArgs,
    experiment: &'a Experiment,
    generation: Generation,
    signals: &'a Signals,
}

impl Bench<'_> {
    fn name(&self) -> String {
        name_of(&self.experiment.name, self.generation.name())
    }

    /// Directory of its runs.
    fn directory(&self) -> PathBuf {
        self.arguments.runs.join(self.name())
    }

    /// File of its record.
    fn file(&self) -> PathBuf {
        self.arguments.out().join(format!("{}.json", self.name()))
    }

    /// Its cases.
    fn cases(&self) -> anyhow::Result<Vec<Case>> {
        let scenario = match &self.experiment.text {
            Some(text) => Scenario::parse(text, &self.experiment.scenario)?,
            None => scenarios::load(&self.experiment.scenario)?.1,
        };
        let mut set: Vec<(String, String)> =
            self.experiment.set.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        set.push(("generation".to_owned(), self.generation.name().to_owned()));
        scenarios::overridden(&scenario, &set, &self.experiment.variants)
    }

    /// Executes the runs of the kernel that its record lacks, simulates, and records both; returns the
    /// pictures, or `None` if it was interrupted.
    fn validate(&self) -> anyhow::Result<Option<Vec<Drawn>>> {
        let cases = self.cases()?;
        let recorded = self.recorded(&cases)?;
        let kernel = match (recorded, self.arguments.model_only) {
            (Some(recorded), true) => recorded,
            (None, true) => anyhow::bail!("{}: no record of the kernel's runs", self.file().display()),
            (recorded, false) => match self.kernel_runs(&cases, recorded)? {
                Some(kernel) => kernel,
                None => return Ok(None),
            },
        };
        if self.arguments.kernel_only {
            return Ok(Some(Vec::new()));
        }
        let places = places::below(&self.directory().join("model"), &cases);
        let mut jobs = Vec::new();
        for ((mut case, place), trial) in cases.iter().cloned().zip(places).zip(&kernel.trials) {
            case.machine.generation = case.machine.generation.on(&kernel.release);
            case.calibrate(&kernel.costs)?;
            case.machine.take(trial.conditions.clone(), Some(&kernel.costs));
            jobs.extend(
                (0..MODELS).map(|number| (apart(&case, number), place.join((number + 1).to_string()))),
            );
        }
        let models = sim::simulate_all(jobs, self.signals)?;
        if self.signals.came() {
            return Ok(None);
        }
        let mut validation = kernel;
        for (trial, runs) in validation.trials.iter_mut().zip(models.chunks(MODELS as usize)) {
            trial.model = Measured::of(runs);
        }
        self.keep(&validation)?;
        Ok(Some(self.draw(&cases, &models)?))
    }

    /// The record of earlier runs of these cases; `None` if there is none, or if the experiment has changed
    /// since.
    fn recorded(&self, cases: &[Case]) -> anyhow::Result<Option<Validation>> {
        let file = self.file();
        if self.arguments.fresh || !file.exists() {
            return Ok(None);
        }
        let recorded = Validation::load(&file)?;
        let same = recorded.trials.len() <= cases.len()
            && recorded.trials.iter().zip(cases).all(|(trial, case)| case.is_written_as(&trial.case));
        if !same {
            output::remark(&format!(
                "{}: of other cases than the experiment has now; made again",
                file.display()
            ));
        }
        let whole = !self.arguments.model_only || recorded.trials.len() == cases.len();
        Ok(Some(recorded).filter(|_| same && whole))
    }

    /// The costs of the kernel's work there: the record of an earlier measurement, or a new one where that
    /// lacks a cost.
    fn record(&self) -> anyhow::Result<Option<Record>> {
        let file = format!("calibration-{}.toml", places::safe(self.generation.name()));
        let path = self.arguments.runs.join(file);
        if path.exists() && !self.arguments.fresh {
            let earlier = Record::load(&path)?;
            if !earlier.is_of_fewer_costs() {
                return Ok(Some(earlier));
            }
        }
        output::remark(&format!("{}: what the kernel's work costs", self.name()));
        let record = match self.experiment.on {
            Stand::Vm => calibrate::of_generation(self.generation, self.signals)?,
            Stand::Host => calibrate::here(None, self.signals)?,
        };
        if let Some(record) = &record {
            write(&path, &record.to_toml())?;
        }
        Ok(record)
    }

    /// What the kernel's runs of each case measured: those of a record, and those that it lacks. Each is
    /// recorded when it has ended, so that an interruption loses one.
    fn kernel_runs(
        &self,
        cases: &[Case],
        recorded: Option<Validation>,
    ) -> anyhow::Result<Option<Validation>> {
        let mut kernel = match recorded {
            Some(recorded) => recorded,
            None => {
                let Some(costs) = self.record()? else { return Ok(None) };
                let (experiment, generation) = (&self.experiment.name, self.generation.name());
                Validation::of(experiment.clone(), generation.to_owned(), costs, Vec::new())
            }
        };
        if kernel.costs.is_of_fewer_costs() {
            let Some(later) = self.record()? else { return Ok(None) };
            kernel.costs.complete(&later);
            self.keep(&kernel)?;
        }
        let places = places::below(&self.directory().join("kernel"), cases);
        // Every case runs once before any runs again, so that changes over time affect all cases alike.
        let all = (1..=self.experiment.repeats).flat_map(|repeat| {
            cases.iter().zip(&places).enumerate().map(move |(index, (case, place))| {
                (repeat, index, Job { case: case.clone(), place: place.join(repeat.to_string()) })
            })
        });
        let lacks = |(repeat, index, _): &(u16, usize, Job)| {
            kernel.trials.get(*index).is_none_or(|trial| trial.kernel.column.repeats < usize::from(*repeat))
        };
        let missing: Vec<(u16, usize, Job)> = all.filter(lacks).collect();
        let machine = match (self.experiment.on, missing.is_empty()) {
            (_, true) => return Ok(Some(kernel)),
            (Stand::Vm, _) => Executor::virtual_machine(VirtualMachine::default())?,
            (Stand::Host, _) => {
                Executor::Local(super::local(On::Host, None, self.arguments.yes_really, false)?)
            }
        };
        let mut runner = machine.runner();
        let durations = missing.iter().map(|(_, _, job)| job.case.duration.ns()).collect();
        let mut progress = Progress::new(durations, false);
        for (number, (repeat, index, job)) in missing.iter().enumerate() {
            let run = match self.known(job) {
                Some(run) => run,
                None => {
                    let what = format!("{}: {}, the kernel's run {repeat}", self.name(), job.case.variant);
                    output::remark(&what);
                    match self.execute(&mut runner, job, number, &mut progress)? {
                        Some(run) => run,
                        None => return Ok(None),
                    }
                }
            };
            kernel.add(*index, &run, &job.case, conditions(&run, &job.case.machine, job.case.has_pool()))?;
            self.keep(&kernel)?;
        }
        runner.end()?;
        Ok(Some(kernel))
    }

    /// Executes a case once more if it fails; `None` if it was interrupted.
    fn execute(
        &self,
        runner: &mut Runner<'_>,
        job: &Job,
        number: usize,
        progress: &mut Progress,
    ) -> anyhow::Result<Option<Run>> {
        for attempt in 1.. {
            let (run, done) = runner.run(job, self.signals, &mut |stage| progress.show(number, stage));
            progress.clear();
            match done.with_context(|| job.place.display().to_string()) {
                Ok(()) => return Ok(run.filter(|run| run.state() == State::Complete)),
                Err(error) if attempt < TRIES && !self.signals.came() => output::complain(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// An earlier complete run of the same case. A change of the scenario makes it stale; one of the agent,
    /// of the calibration or of the kernel's package (6.1.0-N) is not seen here, and `--fresh` repeats the
    /// run.
    fn known(&self, job: &Job) -> Option<Run> {
        let run = Run::open(&job.place).ok().filter(|_| !self.arguments.fresh)?;
        (run.state() == State::Complete && job.case.is_written_as(run.scenario())).then_some(run)
    }

    /// Draws the first variants, the kernel's above the model's as far as its runs are there, and returns the
    /// files with their descriptions.
    fn draw(&self, cases: &[Case], models: &[Run]) -> anyhow::Result<Vec<Drawn>> {
        let Some(tables) = &self.arguments.tables else { return Ok(Vec::new()) };
        let places = places::below(&self.directory().join("kernel"), cases);
        let above = cases.iter().zip(places).take(DRAWN);
        let above =
            above.filter_map(|(case, place)| self.known(&Job { case: case.clone(), place: place.join("1") }));
        let first = models.iter().step_by(MODELS as usize).take(DRAWN);
        let runs: Vec<Run> = above.chain(first.cloned()).collect();
        let beside = tables.parent().unwrap_or(Path::new("")).join(BESIDE);
        let mut drawn = Vec::new();
        for picture in runs_pictures(&runs).into_iter().filter(|picture| PICTURES.contains(&picture.name)) {
            let file = format!("{}-{}.svg", self.name(), picture.name);
            write(&beside.join(&file), &picture.svg)?;
            drawn.push(Drawn { file, message: picture.message });
        }
        Ok(drawn)
    }

    /// Writes the record.
    fn keep(&self, validation: &Validation) -> anyhow::Result<()> {
        write(&self.file(), &validation.to_json()?)
    }
}
