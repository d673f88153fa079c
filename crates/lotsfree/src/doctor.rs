//! `lotsfree doctor`.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use lotsfree_doctor::{Severity, diagnose_with, rules};
use lotsfree_report::{NagiosStatus, Report, TextOptions};
use lotsfree_run::{Run, RunOn};
use lotsfree_snapshot::source::run::{Instants, input};
use lotsfree_snapshot::source::{Input, TreeSource};
use lotsfree_snapshot::{Observation, Options, SIMULATED, THIS_HOST, collect};

use crate::cli::{DoctorArgs, FailOn, Format};
use crate::{blame, output, runs};

/// Judges the host or the saved data and prints the report. A monitoring system takes what cannot be read for
/// unknown, not for critical.
pub(crate) fn run(arguments: &DoctorArgs) -> anyhow::Result<u8> {
    match judge(arguments) {
        Err(error)
            if arguments.format == Format::Nagios && !arguments.json && !output::is_broken_pipe(&error) =>
        {
            arguments.page.write(&lotsfree_report::nagios_unknown(&format!("{error:#}")))?;
            Ok(NagiosStatus::Unknown.code())
        }
        done => done,
    }
}

fn judge(arguments: &DoctorArgs) -> anyhow::Result<u8> {
    let (observation, blame) = observe(arguments)?;
    let asked = |id: &str| match arguments.only.as_slice() {
        [] => !arguments.skip.contains(&id),
        only => only.contains(&id),
    };
    let diagnosis = diagnose_with(&observation, rules::all().filter(|rule| asked(rule.meta().id)));
    let report = Report { blame, ..Report::new(&observation, diagnosis) };

    let format = if arguments.json { Format::Json } else { arguments.format };
    let mut code = u8::from(fails(arguments.fail_on, report.worst()));
    let text = match format {
        Format::Text => lotsfree_report::text(
            &report,
            TextOptions {
                width: arguments.page.columns(),
                color: arguments.page.colored(),
                verbose: arguments.verbose,
            },
        ),
        Format::Json => lotsfree_report::json(&report)?,
        Format::Markdown => lotsfree_report::markdown(&report),
        Format::Html => lotsfree_report::html(&report),
        Format::Nagios => {
            let (line, status) = lotsfree_report::nagios(&report, least(arguments.fail_on));
            code = status.code();
            line
        }
    };
    arguments.page.write(&text)?;
    anyhow::ensure!(
        report.judged() || format == Format::Nagios,
        "nothing could be judged: {} has none of the files that the rules asked for{}",
        report.source.label,
        if arguments.source.is_some() { "" } else { " (is /proc mounted, and readable?)" }
    );
    Ok(code)
}

/// The least severity of a finding that fails; `None` if none does.
fn least(fail_on: FailOn) -> Option<Severity> {
    match fail_on {
        FailOn::Info => Some(Severity::Info),
        FailOn::Warning => Some(Severity::Warning),
        FailOn::High => Some(Severity::High),
        FailOn::Critical => Some(Severity::Critical),
        FailOn::Never => None,
    }
}

fn fails(fail_on: FailOn, worst: Option<Severity>) -> bool {
    least(fail_on).zip(worst).is_some_and(|(least, worst)| worst >= least)
}

/// Observes what is to be judged. Of this host, also who lost time to memory between two samples that are
/// [`WATCHED`] or further apart.
fn observe(arguments: &DoctorArgs) -> anyhow::Result<(Observation, Option<String>)> {
    let options = Options {
        walk_budget: Duration::from_millis(arguments.walk_budget),
        // A single instant has no rates, hence no writers.
        writers: arguments.interval > 0.0,
        ..Options::default()
    };
    if let Some(root) = &arguments.root {
        let source = TreeSource::saved(root).with_context(|| format!("cannot open {}", root.display()))?;
        return Ok((Observation::instant(root.display().to_string(), collect(&source, &options)), None));
    }
    match &arguments.source {
        None => live(&options, arguments.interval),
        Some(path) => {
            let input = open(path)?;
            for note in &input.notes {
                output::remark(note);
            }
            Ok((lotsfree_snapshot::observe(input, &options), None))
        }
    }
}

/// Opens saved data or a run.
pub(crate) fn open(path: &Path) -> anyhow::Result<Input> {
    if lotsfree_run::is_run(path) {
        let run = Run::open(path)?;
        let input = input(&run, Instants::default());
        let mut input =
            input.with_context(|| format!("{}: it ended before its first sample", path.display()))?;
        if run.facts().machine == RunOn::Model {
            input.label += SIMULATED;
        }
        return Ok(input);
    }
    lotsfree_snapshot::source::open(path).map_err(|error| {
        // `sim` writes a directory of runs.
        let runs = if path.is_dir() { runs::find(path).unwrap_or_default() } else { Vec::new() };
        match runs.as_slice() {
            [] => error.into(),
            [first, ..] => anyhow::anyhow!(
                "{} holds {} runs; judge one of them, such as {}",
                path.display(),
                runs.len(),
                first.display()
            ),
        }
    })
}

/// Seconds between two samples from which on the kernel's tracepoints are watched as well. A second has too
/// few windows to tell a share.
const WATCHED: f64 = 3.0;

/// Observes this host: two samples if there is an interval, else one.
fn live(options: &Options, interval: f64) -> anyhow::Result<(Observation, Option<String>)> {
    let source = TreeSource::live().context("cannot open /")?;
    let started = Instant::now();
    let first = collect(&source, options);
    if interval == 0.0 {
        return Ok((Observation::instant(THIS_HOST, first), None));
    }
    output::progress(interval, &format!("one sample taken, the other follows after {interval} s"));
    let left = Duration::from_secs_f64(interval).saturating_sub(started.elapsed());
    let blame = match interval >= WATCHED {
        true => blame::while_waiting(left),
        false => {
            thread::sleep(left);
            None
        }
    };
    let between = started.elapsed();
    let second = collect(&source, options);
    Ok((Observation::pair(THIS_HOST, first, second, between.as_secs_f64()), blame))
}
