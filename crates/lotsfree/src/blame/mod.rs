//! `lotsfree blame`.

pub(crate) mod accounting;
mod unwatched;
mod whom;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use lotsfree_analysis::blame::{Blame, Who};
use lotsfree_doctor::{Remedy, Severity, bounded_taker, diagnose, taker_apart};
use lotsfree_kernel_files::file::cgroup::{Cgroups, Limit};
use lotsfree_report::TextOptions;
use lotsfree_report::blame::{
    BlameDetails, BlameReport, blame_html, blame_json, blame_markdown, blame_sentence, blame_text,
};
use lotsfree_run::{Event, EventKind, Facts, Memory, Run, RunOn, Sink as _, State};
use lotsfree_snapshot::source::TreeSource;
use lotsfree_snapshot::{Observation, Options, THIS_HOST, collect};
use lotsfree_units::Bytes;
use lotsfree_units::words::duration;
use lotsfree_watch::{BUDGET, Sampler, Seeing, Seen, Watch, WatchError};

use crate::cli::{BlameArgs, BlameFormat};
use crate::output;
use crate::runs::Output;
use crate::signals::Signals;
use accounting::Accounting;
use whom::{Whom, find, is_within};

/// The most remedies that are shown.
const MOST_REMEDIES: usize = 2;

/// Watches this host, or reads a run, and says who lost time to memory and who took it.
pub(crate) fn run(arguments: &BlameArgs) -> anyhow::Result<u8> {
    let report = match &arguments.run {
        Some(directory) => judged(arguments, &Run::open(directory)?, &Programs::new(), |_, details| details)?,
        None => host(arguments)?,
    };
    let text = match if arguments.json { BlameFormat::Json } else { arguments.format } {
        BlameFormat::Text => {
            let page = &arguments.page;
            blame_text(&report, TextOptions { width: page.columns(), color: page.colored(), verbose: false })
        }
        BlameFormat::Json => blame_json(&report)?,
        BlameFormat::Markdown => blame_markdown(&report),
        BlameFormat::Html => blame_html(&report),
    };
    arguments.page.write(&text)?;
    Ok(0)
}

/// The programs of a watch, by the names that they have in its rows.
type Programs = BTreeMap<Arc<str>, Seeing>;

/// Judges a run, of a host with what is known of its programs beside it. `complete` adds to the details what
/// only the host tells.
fn judged(
    arguments: &BlameArgs,
    run: &Run,
    programs: &Programs,
    complete: impl FnOnce(&Blame, BlameDetails) -> BlameDetails,
) -> anyhow::Result<BlameReport> {
    let whom = match &arguments.payer {
        Some(whom) => Some(find(run, programs, &Whom::new(whom))?),
        None if arguments.command.is_empty() => None,
        None => of_command(run, &called(&arguments.command)),
    };
    let whom = whom.as_deref();
    let blame = Blame::of(run, whom);
    let details = BlameDetails { groups: groups(programs), ..BlameDetails::of(run) };
    let details = complete(&blame, details);
    Ok(BlameReport::new(blame, whom, details))
}

/// From this share of what a payer lost on, a taker is to be bounded.
const MAIN: f64 = 0.5;

/// What bounds the taker of most that the first payer lost: its control group, or one of its own where the
/// payer is in that too.
fn bound(blame: &Blame, programs: &Programs, groups: &Cgroups) -> Option<Remedy> {
    let payer = blame.payers.first()?;
    let group = |actor: &str| programs.get(actor).map(|seeing| &*seeing.group).unwrap_or_default();
    let taker =
        payer.taken_by.iter().filter(|charge| charge.share >= MAIN).find_map(|charge| match &charge.who {
            Who::Actor(name) => Some(name.as_str()),
            Who::Itself | Who::Unknown => None,
        })?;
    let its = group(taker);
    if its.len() < 2 {
        return None;
    }
    let holds = |is_counted: &dyn Fn(&str) -> bool| {
        let counted = blame.takers.iter().filter(|other| is_counted(&other.actor));
        Bytes(counted.map(|other| other.held_bytes).sum())
    };
    let name = short(&payer.cost.actor);
    if is_within(group(&payer.cost.actor), its) {
        return taker_apart(groups.version, its, short(taker), name, holds(&|other| other == taker));
    }
    bounded_taker(groups, its, taker, name, holds(&|other| group(other) == its))
}

/// An actor's name without its group, which only tells programs of one name apart.
fn short(actor: &str) -> &str {
    actor.split(" (").next().unwrap_or_default()
}

/// Watches this host, or looks at what an ordinary user can see, and asks the doctor what helps.
fn host(arguments: &BlameArgs) -> anyhow::Result<BlameReport> {
    let signals = Signals::watch()?;
    let source = TreeSource::live().context("cannot open /")?;
    let (options, began) = (Options::default(), Instant::now());
    let first = collect(&source, &options);
    if arguments.command.is_empty() {
        let seconds = arguments.length.as_secs_f64();
        output::progress(seconds, &format!("watching for {}", duration(seconds)));
    }
    let watched = watch(arguments, &signals);
    let looked = match &watched {
        Err(error) if is_refused(error) && arguments.keep.is_none() => {
            Some(unwatched::look(arguments, &signals)?)
        }
        _ => None,
    };
    let between = began.elapsed().as_secs_f64();
    let observation = Observation::pair(THIS_HOST, first, collect(&source, &options), between);
    let of_doctor = diagnose(&observation).findings.into_iter();
    let of_doctor = of_doctor.filter(|finding| finding.severity >= Severity::Warning);
    let of_doctor = of_doctor.filter_map(|finding| finding.remedies.into_iter().next());
    match (looked, watched) {
        (Some(looked), Err(refused)) => {
            let release = &observation.now.host.kernel.release;
            unwatched::report(arguments, release, &looked, &refused, first_of(of_doctor))
        }
        (_, watched) => {
            let (run, seen) = watched?;
            let groups = observation.now.cgroups.as_ref();
            judged(arguments, &run, &seen.programs, |blame, details| {
                if blame.payers.is_empty() {
                    return details;
                }
                let bound = groups.and_then(|groups| bound(blame, &seen.programs, groups));
                let limits = groups.map(|groups| limits(blame, groups)).unwrap_or_default();
                BlameDetails { limits, remedies: first_of(bound.into_iter().chain(of_doctor)), ..details }
            })
        }
    }
}

/// The first remedies, each once.
fn first_of(remedies: impl Iterator<Item = Remedy>) -> Vec<Remedy> {
    let mut first: Vec<Remedy> = Vec::new();
    for remedy in remedies {
        if first.len() < MOST_REMEDIES && first.iter().all(|other| other.title != remedy.title) {
            first.push(remedy);
        }
    }
    first
}

/// The limits that payers met.
fn limits(blame: &Blame, groups: &Cgroups) -> BTreeMap<String, Bytes> {
    let limit = |path: &String| {
        let group = groups.at(path)?;
        let limits = [group.max, group.high].into_iter().flatten().filter_map(Limit::bytes);
        Some((path.clone(), limits.min()?))
    };
    blame.payers.iter().filter_map(|payer| limit(&payer.cost.limited_by)).collect()
}

/// The control group of each program.
fn groups(programs: &Programs) -> BTreeMap<String, String> {
    let named = programs.iter().filter(|(name, seeing)| seeing.group.len() > 1 && !name.contains(" ("));
    named.map(|(name, seeing)| (name.to_string(), seeing.group.to_string())).collect()
}

/// What a command is called: the name of its program.
fn called(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).unwrap_or(Path::new(""));
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

/// The actor that a command is. `None` if it ended before it did anything.
fn of_command(run: &Run, called: &str) -> Option<String> {
    let mut names = run.intervals().actors().into_iter().map(|(actor, _)| actor);
    names.find(|actor| **actor == *called).map(|actor| actor.to_string())
}

/// The most intervals of a watch: their rows are kept in memory until it ends.
const MOST_INTERVALS: u32 = 240;

/// Watches this host, until the time is over or the command ends.
fn watch(arguments: &BlameArgs, signals: &Signals) -> anyhow::Result<(Run, Seen)> {
    // Before anything is started: a kernel that refuses does so here.
    let accounting = if arguments.command.is_empty() { Ok(None) } else { Accounting::begin() };
    let accounting = accounting.unwrap_or_else(|error| {
        output::remark(&format!("the kernel's delay accounting stays off: {error:#}"));
        None
    });
    let watched = Watch::begin(arguments.budget / 100.0);
    let done = watched.map_err(Into::into).and_then(|watch| watch_with(watch, arguments, signals));
    if let Some(accounting) = accounting {
        accounting.end();
    }
    done
}

fn watch_with(mut watch: Watch, arguments: &BlameArgs, signals: &Signals) -> anyhow::Result<(Run, Seen)> {
    let interval = Duration::from_secs(1).max(arguments.length / MOST_INTERVALS);
    let facts = Facts {
        title: "blame".to_owned(),
        interval: interval.as_nanos() as u64,
        duration: arguments.length.as_nanos() as u64,
        ..lotsfree_watch::facts(RunOn::Host, Vec::new())
    };
    let nodes: Vec<u32> = facts.nodes.iter().map(|node| node.id).collect();
    let mut output = Output::begin(arguments.keep.as_deref(), facts, String::new())?;
    let mut sampler = Sampler::new(&nodes, None)?;
    let began = Instant::now();
    let mut now = |output: &mut Output| -> anyhow::Result<()> {
        let sample = sampler.sample(began.elapsed().as_nanos() as u64)?;
        Ok(output.sink().sample(&sample)?)
    };
    now(&mut output)?;
    let mut child = start(&arguments.command)?;
    if let Some(child) = &child {
        // All that it starts is the command, too.
        watch.call(child.id(), &called(&arguments.command));
    }
    let mut state = State::Complete;
    while child.is_some() || began.elapsed() < arguments.length {
        watch.interval(interval)?;
        now(&mut output)?;
        if signals.came() {
            state = State::Interrupted;
            break;
        }
        if let Some(command) = &mut child
            && command.try_wait()?.is_some()
        {
            break;
        }
    }
    let (rows, seen) = watch.finish();
    for event in notes(&seen, began.elapsed()) {
        output.sink().event(&event)?;
    }
    for row in &rows {
        output.sink().intervals(row)?;
    }
    Ok((output.finish(state)?, seen))
}

/// Whether the kernel does not let this user watch it.
fn is_refused(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(WatchError::Refused(_)))
}

/// Who lost most time to memory while `length` passes, and who took it. `None` if nobody lost any, or this
/// user may not watch; the time passes either way.
pub(crate) fn while_waiting(length: Duration) -> Option<String> {
    let began = Instant::now();
    let left = || length.saturating_sub(began.elapsed());
    let sentence = (|| {
        let mut watch = Watch::begin(BUDGET).ok()?;
        while left() > Duration::ZERO {
            watch.interval(left().min(Duration::from_secs(1))).ok()?;
        }
        let (rows, seen) = watch.finish();
        let mut memory = Memory::default();
        notes(&seen, length).iter().try_for_each(|event| memory.event(event)).ok()?;
        rows.iter().try_for_each(|row| memory.intervals(row)).ok()?;
        let facts = lotsfree_watch::facts(RunOn::Host, Vec::new());
        let run = memory.finish(facts, "", State::Complete);
        blame_sentence(&Blame::of(&run, None), &BlameDetails::of(&run))
    })();
    std::thread::sleep(left());
    sentence
}

/// What cannot be told from the rows, as events of the run: what each program was doing and where, and how
/// well all of them were seen.
fn notes(seen: &Seen, after: Duration) -> Vec<Event> {
    let at = after.as_nanos() as u64;
    let note = |what: String, actor: Option<&Arc<str>>| {
        Event::new(at, EventKind::Note, what, actor.map(|actor| actor.to_string()))
    };
    let doing = |(actor, seeing): (&Arc<str>, &Seeing)| Some(note(seeing.doing.clone()?, Some(actor)));
    let mut notes: Vec<Event> = seen.programs.iter().filter_map(doing).collect();
    notes.extend(seen.remarks().into_iter().map(|remark| note(remark, None)));
    notes
}

/// Starts the command to be blamed for.
fn start(command: &[OsString]) -> anyhow::Result<Option<Child>> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(arguments).spawn();
    Ok(Some(child.with_context(|| format!("cannot start {}", program.display()))?))
}
