//! `lotsfree lab validate`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use lotsfree_analysis::compare::compare;
use lotsfree_analysis::validation::{Drawn, Validation};
use lotsfree_lab::{VirtualMachine, occupied, pagesets, reserved};
use lotsfree_report::runs::{runs_pictures, validation_markdown, validation_tables};
use lotsfree_run::{Run, Sample, State};
use lotsfree_scenario::{Case, Experiment, Experiments, Generation, Occupied, Record, Scenario, Stand};
use lotsfree_storage::Access;

use super::progress::Progress;
use super::{Executor, Job, calibrate};
use crate::cli::{On, ValidateArgs};
use crate::signals::Signals;
use crate::{output, places, scenarios, sim};

/// The experiments that ship.
const EXPERIMENTS: &str = include_str!("../../../../lab/validation.toml");
/// Names of the pictures that the tables show of each experiment.
const PICTURES: [&str; 2] = ["free", "lists"];
/// Number of variants whose pictures are shown.
const DRAWN: usize = 2;
/// Directory of the pictures, relative to that of the tables.
const BESIDE: &str = "pictures/validation";

/// Executes experiments on kernels and on their models, and writes how much they differ.
pub(super) fn run(arguments: &ValidateArgs) -> anyhow::Result<u8> {
    let experiments = match (&arguments.experiments, arguments.random) {
        (_, Some(count)) => Experiments::random(count, arguments.seed, &arguments.generations),
        (Some(path), None) => Experiments::load(path)?,
        (None, None) => Experiments::parse(EXPERIMENTS, "lab/validation.toml")?,
    };
    if let Some(list) = &arguments.list {
        write(list, &experiments.to_toml())?;
        return Ok(0);
    }
    let chosen = if arguments.recorded { Vec::new() } else { chosen(&experiments, &arguments.names)? };
    lotsfree_storage::create_dir_all(&arguments.out).with_context(|| arguments.out.display().to_string())?;
    let signals = Signals::watch().context("cannot handle signals")?;
    let mut made: Vec<Validation> = Vec::new();
    for experiment in chosen {
        for generation in experiment.generations.iter().take_while(|_| !signals.came()) {
            let bench = Bench { arguments, experiment, generation: *generation, signals: &signals };
            match bench.validate(experiments.repeats)? {
                Some(validation) => {
                    bench.keep(&validation)?;
                    made.push(validation);
                }
                None => output::remark(&format!("{}, {generation}: interrupted", experiment.name)),
            }
        }
    }
    let mut all = Validation::load_all(&arguments.out)?;
    anyhow::ensure!(
        !all.is_empty(),
        "{}: no experiment is recorded here (--out names another directory); {} stays as it is",
        arguments.out.display(),
        arguments.page.display()
    );
    for one in &mut all {
        let of =
            |made: &&Validation| (&made.experiment, &made.generation) == (&one.experiment, &one.generation);
        if let Some(made) = made.iter().find(of) {
            one.pictures.clone_from(&made.pictures);
        }
    }
    write(&arguments.page, &validation_markdown(&experiments, &all))?;
    if let Some(tables) = &arguments.tables {
        write(tables, &validation_tables(&experiments, &all, BESIDE))?;
    }
    output::remark(&format!("{}: {} experiments", arguments.page.display(), all.len()));
    Ok(signals.code().unwrap_or(0))
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

/// The sample from which on a run is measured.
fn first_measured(run: &Run) -> Option<Sample> {
    let row = run.facts().measure.window.map_or(0, |window| run.samples().rows(window).start);
    run.samples().get(row)
}

/// One experiment on one kernel.
struct Bench<'a> {
    arguments: &'a ValidateArgs,
    experiment: &'a Experiment,
    generation: Generation,
    signals: &'a Signals,
}

impl Bench<'_> {
    /// `zone-reclaim-6.1`
    fn name(&self) -> String {
        let generation = self.generation.name();
        let kernel = generation.strip_prefix("linux-").unwrap_or(generation);
        places::safe(&format!("{}-{kernel}", self.experiment.name))
    }

    /// Directory of its runs.
    fn directory(&self) -> PathBuf {
        self.arguments.runs.join(self.name())
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

    /// Executes the runs that are missing, simulates, and compares; `None` if it was interrupted.
    fn validate(&self, repeats: u16) -> anyhow::Result<Option<Validation>> {
        let cases = self.cases()?;
        let Some(record) = self.record()? else { return Ok(None) };
        let Some(kernels) = self.kernel_runs(&cases, repeats)? else { return Ok(None) };
        let (mut jobs, mut told) = (Vec::new(), Vec::new());
        let places = places::below(&self.directory().join("model"), &cases);
        for ((mut case, place), runs) in cases.into_iter().zip(places).zip(&kernels) {
            case.calibrate(&record)?;
            let first = runs.first().and_then(|run| run.samples().get(0));
            let measured = runs.first().and_then(first_measured);
            let kernel = first
                .as_ref()
                .zip(measured)
                .and_then(|(first, measured)| occupied(first, &measured, &case.machine.nodes));
            if let Some(Occupied::PerNode(sizes)) = &kernel
                && told.is_empty()
            {
                told = sizes.iter().map(ToString::to_string).collect();
            }
            case.machine.kernel = kernel;
            case.machine.reserved = first.as_ref().and_then(|sample| reserved(sample, &case.machine.nodes));
            let (nodes, cpus) = (case.machine.nodes.len(), case.machine.cpus_per_node().iter().sum());
            case.machine.pagesets = first.and_then(|sample| pagesets(&sample, nodes, cpus));
            jobs.push((case, place));
        }
        let models = sim::simulate_all(jobs, self.signals)?;
        if self.signals.came() {
            return Ok(None);
        }
        let pictures = self.draw(&kernels, &models)?;
        let facts = kernels.iter().flatten().next().map(Run::facts).cloned().unwrap_or_default();
        let runs: Vec<Vec<Run>> = kernels.into_iter().chain([models]).collect();
        Ok(Some(Validation {
            experiment: self.experiment.name.clone(),
            generation: self.generation.name().to_owned(),
            release: facts.osrelease,
            emulated: record.provenance.accelerator.is_some_and(|accelerator| accelerator != "kvm"),
            calibration: record.name,
            occupied: told,
            pictures,
            ..Validation::of(compare(&runs))
        }))
    }

    /// The costs of the kernel's work there: the record of an earlier measurement, or a new one.
    fn record(&self) -> anyhow::Result<Option<Record>> {
        let file = format!("calibration-{}.toml", places::safe(self.generation.name()));
        let path = self.arguments.runs.join(file);
        if path.exists() && !self.arguments.fresh {
            return Ok(Some(Record::load(&path)?));
        }
        let record = match self.experiment.on {
            Stand::Vm => calibrate::of_generation(self.generation, self.signals)?,
            Stand::Host => calibrate::here(None, self.signals)?,
        };
        if let Some(record) = &record {
            write(&path, &record.to_toml())?;
        }
        Ok(record)
    }

    /// The kernel's runs of each case. Runs that exist and are complete are not repeated.
    fn kernel_runs(&self, cases: &[Case], repeats: u16) -> anyhow::Result<Option<Vec<Vec<Run>>>> {
        let machine = match self.experiment.on {
            Stand::Vm => Executor::virtual_machine(VirtualMachine::default())?,
            Stand::Host => Executor::Local(super::local(On::Host, None, self.arguments.yes_really, false)?),
        };
        let places = places::below(&self.directory().join("kernel"), cases);
        let durations = cases.iter().map(|case| case.duration.ns());
        let durations: Vec<u64> = (0..repeats).flat_map(|_| durations.clone()).collect();
        let mut runner = machine.runner();
        let mut progress = Progress::new(durations, false);
        let mut runs: Vec<Vec<Run>> = cases.iter().map(|_| Vec::new()).collect();
        // Every case runs once before any runs again, so that changes over time affect all cases alike.
        let all = (1..=repeats).flat_map(|repeat| (0..cases.len()).map(move |index| (repeat, index)));
        for (number, (repeat, index)) in all.enumerate() {
            let (Some(case), Some(place), Some(of)) =
                (cases.get(index), places.get(index), runs.get_mut(index))
            else {
                continue;
            };
            let job = Job { case: case.clone(), place: place.join(repeat.to_string()) };
            let run = match self.known(&job) {
                Some(run) => run,
                None => {
                    output::remark(&format!("{}: {}, the kernel's run {repeat}", self.name(), case.variant));
                    let (run, done) =
                        runner.run(&job, self.signals, &mut |stage| progress.show(number, stage));
                    progress.clear();
                    done.with_context(|| job.place.display().to_string())?;
                    match run.filter(|run| run.state() == State::Complete) {
                        Some(run) => run,
                        None => return Ok(None),
                    }
                }
            };
            of.push(run);
        }
        runner.end()?;
        Ok(Some(runs))
    }

    /// An earlier complete run of the same case. A change of the scenario makes it stale; one of the agent,
    /// of the calibration or of the kernel's package (6.1.0-N) is not seen here, and `--fresh` repeats the
    /// run.
    fn known(&self, job: &Job) -> Option<Run> {
        let run = Run::open(&job.place).ok().filter(|_| !self.arguments.fresh)?;
        (run.state() == State::Complete && run.scenario() == job.case.to_toml()).then_some(run)
    }

    /// Draws the first variants, the kernel's above the model's, and returns the files with their
    /// descriptions.
    fn draw(&self, kernels: &[Vec<Run>], models: &[Run]) -> anyhow::Result<Vec<Drawn>> {
        let Some(tables) = &self.arguments.tables else { return Ok(Vec::new()) };
        let above = kernels.iter().filter_map(|runs| runs.first()).take(DRAWN);
        let runs: Vec<Run> = above.chain(models.iter().take(DRAWN)).cloned().collect();
        let beside = tables.parent().unwrap_or(Path::new("")).join(BESIDE);
        let mut drawn = Vec::new();
        for picture in runs_pictures(&runs).into_iter().filter(|picture| PICTURES.contains(&picture.name)) {
            let file = format!("{}-{}.svg", self.name(), picture.name);
            write(&beside.join(&file), &picture.svg)?;
            drawn.push(Drawn { file, message: picture.message });
        }
        Ok(drawn)
    }

    /// Writes the result to a file of its own.
    fn keep(&self, validation: &Validation) -> anyhow::Result<()> {
        write(&self.arguments.out.join(format!("{}.json", self.name())), &validation.to_json()?)
    }
}
