//! `lotsfree sim`.

mod host;
mod like;
mod list;
mod memory;
mod pool;
mod progress;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use lotsfree_engine::SimulateError;
use lotsfree_engine::machine::End;
use lotsfree_run::{Run, State, WriteError};
use lotsfree_scenario::{Case, Record, Scenario, Strategies};
use lotsfree_units::Bytes;

use crate::cli::SimArgs;
use crate::progress::ProgressLine;
use crate::runs::Output;
use crate::signals::Signals;
use crate::{output, places, runs, scenarios};
use pool::Limits;
use progress::Progress;

/// Time between two lines of progress where nothing can be redrawn.
const LINES: Duration = Duration::from_secs(5);

/// A case to simulate, and the directory for its run.
struct Job {
    case: Case,
    /// Directory of the run; `None` if it is not written.
    place: Option<PathBuf>,
    /// Memory of this host that the simulation takes.
    bytes: u64,
    /// Its number among the repeats; `None` without repeats.
    repeat: Option<u16>,
}

impl Job {
    /// Its variant, its value of the sweep if there is one, and its number if it is repeated.
    fn name(&self) -> String {
        let mut name = self.case.variant.clone();
        if let Some(point) = &self.case.sweep {
            name += &format!(", {}", point.label);
        }
        if let Some(number) = self.repeat {
            name += &format!(" #{number}");
        }
        name
    }
}

/// Runs every case of a scenario on the model and prints the measures side by side.
pub(crate) fn run(arguments: &SimArgs) -> anyhow::Result<u8> {
    if arguments.host || (arguments.scenario.is_none() && arguments.like.is_some()) {
        output::print(&host::scenario(arguments.like.as_deref())?)?;
        return Ok(0);
    }
    let Some(named) = arguments.scenario.as_deref().filter(|_| !arguments.list) else {
        return list::run(arguments);
    };
    if arguments.show {
        output::print(scenarios::text(named)?)?;
        return Ok(0);
    }
    let (name, scenario) = scenarios::load(named)?;
    let table = table(arguments, &name, &scenario)?;
    let variants = match table {
        Some(table) => table.row.iter().flat_map(|row| [&row.variant, &row.without]).cloned().collect(),
        None => arguments.variant.clone(),
    };
    let mut cases = scenarios::cases(&scenario, &arguments.set, &variants)?;
    if let Some(table) = table {
        cases
            .retain(|case| table.wants(&case.variant, case.sweep.as_ref().map(|point| point.label.as_str())));
    }
    let record = arguments.calibration.as_deref().map(Record::load).transpose()?;
    // What a run of the machine says of it goes before what a record says.
    if let Some(path) = &arguments.like {
        like::apply(&mut cases, path, record.as_ref())?;
    }
    if let Some(record) = &record {
        calibrate(&mut cases, record)?;
    }

    let base = arguments.out.clone().unwrap_or_else(|| Path::new("runs").join(places::safe(&name)));
    output::check_stdout()?;
    let signals = Signals::watch().context("cannot handle signals")?;
    let jobs = jobs(cases, &base, arguments)?;
    let done = simulate(&jobs, arguments.threads, arguments.json, &signals);

    let (mut runs, mut failed) = (Vec::new(), Vec::new());
    for (job, result) in jobs.iter().zip(done) {
        match result {
            Some(Ok(run)) => runs.push(run),
            Some(Err(error)) => failed.push((job, error)),
            None => {}
        }
    }
    let complete = runs.iter().filter(|run| run.state() == State::Complete).count();
    if complete < jobs.len() {
        let names: Vec<String> = failed.iter().map(|(job, _)| job.name()).collect();
        output::remark(&runs::tally(jobs.len(), runs.len(), complete, &names));
    }
    let shown = match table {
        Some(table) => runs::show_strategies(table, &runs, &arguments.style, arguments.json),
        None => runs::show(&runs, &arguments.style, arguments.json, arguments.verbose),
    };
    point_to(&base, &jobs, &runs, arguments);
    let mut errors = failed.into_iter().map(|(_, error)| error).chain(shown.err());
    let first = errors.next();
    errors.for_each(|error| output::complain(&error));
    match (first, signals.code()) {
        (Some(error), _) => Err(error),
        (None, Some(code)) if complete < jobs.len() => Ok(code),
        (None, _) => Ok(0),
    }
}

/// The table of strategies that is to be filled.
///
/// # Errors
/// If the scenario has none.
fn table<'a>(
    arguments: &SimArgs,
    name: &str,
    scenario: &'a Scenario,
) -> anyhow::Result<Option<&'a Strategies>> {
    if !arguments.table {
        return Ok(None);
    }
    let why =
        || format!("the scenario {name} has no table of strategies: --table needs its section [strategies]");
    scenario.strategies().with_context(why).map(Some)
}

/// Runs cases on the model, each into its directory. Interrupted runs are left out.
///
/// # Errors
/// The first error, once all runs have ended.
pub(crate) fn simulate_all(cases: Vec<(Case, PathBuf)>, signals: &Signals) -> anyhow::Result<Vec<Run>> {
    let job = |(case, place)| {
        let bytes = lotsfree_engine::bytes(&case)?;
        Ok(Job { case, place: Some(place), bytes, repeat: None })
    };
    let jobs: Vec<Job> = cases.into_iter().map(job).collect::<anyhow::Result<_>>()?;
    simulate(&jobs, None, false, signals).into_iter().flatten().collect()
}

/// Applies the costs of a record to the cases, and reports the costs that the record lacks.
fn calibrate(cases: &mut [Case], record: &Record) -> anyhow::Result<()> {
    let mut refused = BTreeSet::new();
    for case in cases.iter_mut() {
        if let Err(errors) = case.calibrate(record) {
            refused.extend(errors.to_string().lines().map(str::to_owned));
        }
    }
    if !refused.is_empty() {
        return Err(output::Located(refused.into_iter().collect()).into());
    }
    let compresses = cases.iter().any(|case| case.machine.swap.compresses());
    let matters = |name: &str| compresses || !matches!(name, "compress" | "decompress");
    for (name, why) in record.lacks().filter(|(name, _)| matters(name)) {
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        let (times, like) = record.costs.times(name);
        let like = like.unwrap_or("the others");
        output::remark(&format!(
            "{}: {name} was not measured{why}; {times:.1} times the model's own is taken, as of {like}",
            record.name
        ));
    }
    Ok(())
}

/// The cases with their directories, checked as far as possible before anything is written.
fn jobs(cases: Vec<Case>, base: &Path, arguments: &SimArgs) -> anyhow::Result<Vec<Job>> {
    let places: Vec<Option<PathBuf>> = match arguments.no_runs {
        true => vec![None; cases.len()],
        false => places::below(base, &cases).into_iter().map(Some).collect(),
    };
    let (mut jobs, mut refused) = (Vec::new(), BTreeSet::new());
    for number in 1..=arguments.repeat {
        for (case, place) in cases.iter().zip(&places) {
            match lotsfree_engine::bytes(case) {
                Ok(bytes) => jobs.push(job(case, place.as_deref(), bytes, number, arguments.repeat)),
                Err(errors) => refused.extend(errors.to_string().lines().map(str::to_owned)),
            }
        }
    }
    if !refused.is_empty() {
        return Err(output::Located(refused.into_iter().collect()).into());
    }
    places::check(base, jobs.iter().filter_map(|job| job.place.as_deref()))?;
    Ok(jobs)
}

/// The job of a case that is run `of` times. Each repeat has the seed after the last one's, and a directory
/// below the case's that is named after its number.
fn job(case: &Case, place: Option<&Path>, bytes: u64, number: u16, of: u16) -> Job {
    let mut case = case.clone();
    // A scenario's numbers have 63 bits.
    case.seed = case.seed.wrapping_add(u64::from(number) - 1) & i64::MAX as u64;
    let repeat = (of > 1).then_some(number);
    let place = place.map(|place| match repeat {
        Some(number) => place.join(number.to_string()),
        None => place.to_path_buf(),
    });
    Job { case, place, bytes, repeat }
}

/// Runs all cases, as many in parallel as threads and memory allow.
fn simulate(
    jobs: &[Job],
    threads: Option<u16>,
    silent: bool,
    signals: &Signals,
) -> Vec<Option<anyhow::Result<Run>>> {
    let cpus = || thread::available_parallelism().map_or(1, usize::from);
    let limits = Limits { threads: threads.map_or_else(cpus, usize::from), bytes: memory::available() };
    if let Some(job) = jobs.iter().find(|job| job.bytes > limits.bytes) {
        output::remark(&format!(
            "a run of {} takes about {} and this host has {} to spare: it runs alone, and may swap",
            job.case.variant,
            Bytes(job.bytes),
            Bytes(limits.bytes)
        ));
    }
    let progress = Progress::new(jobs.iter().map(|job| job.case.duration.ns()));
    let mut display = ProgressLine::new(!silent, LINES);
    let failed = AtomicBool::new(false);
    let stop = || signals.came() || failed.load(Ordering::Relaxed);
    let done = pool::each(
        jobs,
        limits,
        |job| job.bytes,
        stop,
        |_, job| {
            progress.begin();
            let output = begin(job);
            // This is stored before another job can begin.
            failed.fetch_or(output.is_err(), Ordering::Relaxed);
            output
        },
        |index, job, output| {
            let run = output.and_then(|output| {
                simulate_into(output, &job.case, &mut |now| {
                    progress.at(index, now);
                    if stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
            });
            progress.end();
            failed.fetch_or(run.is_err(), Ordering::Relaxed);
            run
        },
        || display.show(progress.share(), |real| progress.line(real)),
    );
    display.clear();
    done
}

/// Begins the run of a job.
fn begin(job: &Job) -> anyhow::Result<Output> {
    Output::begin(job.place.as_deref(), lotsfree_engine::facts(&job.case)?, job.case.to_toml())
}

/// Runs a case on the model to its end, or until `progress` stops it.
fn simulate_into(
    mut output: Output,
    case: &Case,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> anyhow::Result<Run> {
    let end = lotsfree_engine::simulate(case, output.sink(), progress).map_err(plain)?;
    output.finish(match end {
        End::Complete => State::Complete,
        End::Stopped(_) => State::Interrupted,
    })
}

/// Unwraps errors of the scenario, so that they are printed with their places.
fn plain(error: SimulateError) -> anyhow::Error {
    match error {
        SimulateError::Scenario(errors) => errors.into(),
        SimulateError::Write(error) => WriteError::into(error),
        other => other.into(),
    }
}

/// Prints the place of the runs, and the commands to use them.
fn point_to(base: &Path, jobs: &[Job], runs: &[Run], arguments: &SimArgs) {
    if arguments.no_runs || arguments.json || runs.is_empty() {
        return;
    }
    let number = match runs.len() {
        1 => "one run".to_owned(),
        number => format!("{number} runs"),
    };
    output::remark(&format!("{number} in {0}; plots: lotsfree report {0} -o report.html", base.display()));
    let older = runs::find(base).unwrap_or_default();
    let older = older.iter().filter(|run| !jobs.iter().any(|job| job.place.as_ref() == Some(run))).count();
    if older > 0 {
        let are = if older == 1 { "one older is".to_owned() } else { format!("{older} older are") };
        output::remark(&format!("{are} beside them: remove what should not be in the report"));
    }
}
