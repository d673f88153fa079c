//! What an ordinary user can see, who may not watch the kernel.

use std::ffi::OsString;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Context;
use lotsfree_doctor::Remedy;
use lotsfree_report::blame::{BlameDetails, BlameReport, Unwatched, UnwatchedProgram};
use lotsfree_sys::Usage;
use lotsfree_watch::{Glance, Glimpse, Glimpsed};

use super::whom::Whom;
use super::{called, start};
use crate::cli::BlameArgs;
use crate::signals::Signals;

/// How often one looks whether a command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A host whose tasks waited for a smaller part of the time did not wait for memory to speak of.
const NOTICEABLE: f64 = 0.01;

/// What was seen of the host, and of the command that was started.
pub(super) struct Looked {
    host: Glimpsed,
    command: Option<Usage>,
}

/// Looks at what an ordinary user can see, until the time is over or the command ends.
pub(super) fn look(arguments: &BlameArgs, signals: &Signals) -> anyhow::Result<Looked> {
    let (glance, began) = (Glance::begin()?, Instant::now());
    let mut child = start(&arguments.command)?;
    let is_over = |child: &mut Option<Child>| -> anyhow::Result<bool> {
        Ok(match child {
            Some(command) => command.try_wait()?.is_some(),
            None => began.elapsed() >= arguments.length,
        })
    };
    while !is_over(&mut child)? && !signals.came() {
        std::thread::sleep(LOOK);
    }
    // It is the only child that this process has had.
    let command = child.is_some().then(Usage::of_ended_children).transpose()?;
    // Whoever looks is not part of the picture.
    Ok(Looked { host: glance.end(std::process::id())?, command })
}

/// The report of that, on a kernel of this release. `refused` is why there is no more.
pub(super) fn report(
    arguments: &BlameArgs,
    release: &str,
    looked: &Looked,
    refused: &anyhow::Error,
    remedies: Vec<Remedy>,
) -> anyhow::Result<BlameReport> {
    let Looked { host, command } = looked;
    let asked = arguments.payer.as_deref().map(|whom| find(host, &Whom::new(whom))).transpose()?;
    let is_told = |glimpse: &&Glimpse| glimpse.did_anything() || asked == Some(*glimpse);
    let told = host.programs.iter().filter(is_told);
    let programs = told.map(|glimpse| program(glimpse, asked == Some(glimpse)));
    let command = command.map(|usage| of_command(&arguments.command, &usage));
    let unwatched = Unwatched {
        seconds: host.length.as_secs_f64(),
        stalled: host.stalled.map(|(some, _)| some),
        stalled_all: host.stalled.map(|(_, all)| all),
        read_bytes: host.read,
        refaults: host.refaults,
        programs: programs.chain(command).collect(),
    };
    let not_seen = vec![
        format!("Whom memory cost how much, and who took it: {refused}."),
        "Who read what into the page cache; what other users' programs read.".to_owned(),
    ];
    // Where nothing waited, nothing needs help. Of a kernel that does not tell, nobody knows.
    let is_waiting = host.stalled.is_none_or(|(some, _)| some >= NOTICEABLE);
    let remedies = if is_waiting { remedies } else { Vec::new() };
    let source = format!("this host, Linux {release}");
    let details = BlameDetails { source, not_seen, remedies, ..BlameDetails::default() };
    Ok(BlameReport::unwatched(unwatched, details))
}

/// The program that is asked about; of several the one that faulted most.
fn find<'h>(host: &'h Glimpsed, whom: &Whom<'_>) -> anyhow::Result<&'h Glimpse> {
    let meant = host.programs.iter().filter(|program| whom.is(&program.name, &program.group));
    let holding = host.programs.iter().filter(|program| program.held > 0);
    let most = meant.max_by_key(|program| program.major_faults);
    most.with_context(|| whom.unknown(holding.map(|program| &*program.name)))
}

fn program(glimpse: &Glimpse, is_asked: bool) -> UnwatchedProgram {
    UnwatchedProgram {
        program: glimpse.name.to_string(),
        group: glimpse.group.to_string(),
        stalled: glimpse.stalled,
        major_faults: glimpse.major_faults,
        grew_bytes: glimpse.grew,
        held_bytes: glimpse.held,
        read_bytes: glimpse.read,
        is_asked,
    }
}

/// A command that has ended, with all that it started and waited for.
fn of_command(command: &[OsString], usage: &Usage) -> UnwatchedProgram {
    UnwatchedProgram {
        program: called(command),
        major_faults: usage.major_faults,
        held_bytes: usage.largest,
        read_bytes: Some(usage.read),
        is_asked: true,
        ..UnwatchedProgram::default()
    }
}
