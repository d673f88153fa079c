//! `cargo xtask blame [CASE…]`: what `lotsfree blame` says of culprits that are known.
//!
//! Each [`Case`] loads an application of the distribution in a control group with a limit, beside one or more
//! culprits in groups below the same limit, and asks `lotsfree blame` for the application. Then it runs again
//! without each culprit: what the application then no longer loses is what that culprit really took. A case
//! passes if the application is named, if a culprit comes first, and if the shares are within [`WITHIN`] of
//! what switching off gives back. A whole run writes [`PAGE`]. `--keep DIRECTORY` keeps every watch as a run.

mod culprits;
mod page;
mod victims;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lotsfree_analysis::blame::{Payer, Who};
use lotsfree_changes::{Changes, StateDirectory};
use serde::Deserialize;

use crate::docs::root;
use crate::real::host::{Group, Host};
use crate::real::{Result, build};
use culprits::Culprit;
use victims::Victim;

/// The page that a whole run writes.
const PAGE: &str = "docs/blame-cases.md";
/// How far a share may be from what switching a culprit off gives back.
const WITHIN: f64 = 0.15;
/// How long each run is watched.
const WATCHED: Duration = Duration::from_secs(15);
/// How long culprits run before the watch begins.
const AHEAD: Duration = Duration::from_secs(3);

/// An application and its culprits.
struct Case {
    victim: victims::Kind,
    culprits: &'static [&'static Culprit],
}

impl Case {
    /// `PostgreSQL beside cp and dd`.
    fn name(&self) -> String {
        let culprits: Vec<String> = self.culprits.iter().map(|culprit| culprit.what.to_owned()).collect();
        let culprits = lotsfree_units::words::enumeration(&culprits);
        format!("{} beside {}", self.victim.name(), if culprits.is_empty() { "nothing" } else { &culprits })
    }
}

use culprits::{CP, DATABASE, DD, FIND, FORKS, LEAK, SMALL_LEAK, SMALL_TMPFS, TMPFS};
use victims::Kind::{Java, Postgres, Redis};

const CASES: &[Case] = &[
    Case { victim: Postgres, culprits: &[&CP] },
    Case { victim: Postgres, culprits: &[&DD] },
    Case { victim: Postgres, culprits: &[&TMPFS] },
    Case { victim: Postgres, culprits: &[&LEAK] },
    Case { victim: Postgres, culprits: &[&FIND] },
    Case { victim: Postgres, culprits: &[&FORKS] },
    Case { victim: Postgres, culprits: &[&DATABASE] },
    Case { victim: Redis, culprits: &[&LEAK] },
    Case { victim: Java, culprits: &[&LEAK] },
    Case { victim: Postgres, culprits: &[&CP, &LEAK] },
    Case { victim: Postgres, culprits: &[&SMALL_LEAK, &SMALL_TMPFS] },
    Case { victim: Postgres, culprits: &[&FIND, &SMALL_LEAK, &SMALL_TMPFS] },
];

/// What `lotsfree blame --json` said of the application.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    /// What the load got done, in operations a second.
    rate: f64,
    /// The part of its time that the application lost.
    lost: f64,
    /// Shares by the name of the taker, most first.
    shares: Vec<(String, f64)>,
    /// The answer in a sentence.
    answer: String,
}

/// A case, and what became of it.
struct Outcome {
    name: String,
    alone: Said,
    with: Said,
    /// Each culprit, with what was said without it, and its part of what that gives back.
    without: Vec<(&'static Culprit, Said, f64)>,
}

impl Outcome {
    /// The share that was charged to a culprit.
    fn share(&self, culprit: &Culprit) -> f64 {
        self.with.shares.iter().filter(|(name, _)| culprit.is(name)).map(|(_, share)| share).sum()
    }

    /// Why it fails; nothing if it does not.
    fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.with.shares.is_empty() {
            complaints.push("the application is not named".to_owned());
        }
        if self.alone.lost > 0.05 {
            complaints.push(format!("alone it lost {:.0} %", self.alone.lost * 100.0));
        }
        let first = self.with.shares.first().map(|(name, _)| name.as_str()).unwrap_or_default();
        if !self.without.iter().any(|(culprit, ..)| culprit.is(first)) {
            complaints.push(format!("{first} comes first"));
        }
        for (culprit, _, back) in &self.without {
            let share = self.share(culprit);
            if (share - back).abs() > WITHIN {
                let (share, back) = (share * 100.0, back * 100.0);
                complaints
                    .push(format!("{} has {share:.0} %, without it {back:.0} % come back", culprit.what));
            }
        }
        complaints
    }
}

/// Runs the cases; one that this host cannot provoke is named, not failed.
pub(crate) fn command(arguments: &[String]) -> Result<()> {
    let (keep, arguments) = match arguments {
        [option, directory, words @ ..] if option == "--keep" => (Some(Path::new(directory)), words),
        words => (None, words),
    };
    let chosen: Vec<&Case> = CASES
        .iter()
        .filter(|case| {
            arguments.is_empty() || arguments.iter().any(|word| case.name().contains(word.as_str()))
        })
        .collect();
    if chosen.is_empty() {
        return Err(
            "usage: cargo xtask blame [--keep DIRECTORY] [WORD…], words of a case such as Redis".into()
        );
    }
    build()?;
    let host = Host::new()?;
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    for case in chosen {
        let outcome = attempt(case, &host, keep)?;
        let complaints = outcome.complaints();
        eprintln!("{}: {}", outcome.name, outcome.with.answer);
        if !complaints.is_empty() {
            eprintln!("  FAILED: {}", complaints.join("; "));
            failed.push(outcome.name.clone());
        }
        outcomes.push(outcome);
    }
    if arguments.is_empty() {
        page::write(&root().join(PAGE), &outcomes)?;
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join("; ")).into()) }
}

/// Where a case runs.
struct Place<'a> {
    host: &'a Host,
    /// A directory on a disk.
    files: PathBuf,
    /// The group that has the limit.
    group: Group,
    /// Where the watches of this case are kept as runs.
    keep: Option<PathBuf>,
}

/// Provokes a case and undoes it; after a kill `lotsfree lab restore` does.
fn attempt(case: &Case, host: &Host, keep: Option<&Path>) -> Result<Outcome> {
    let mut changes = StateDirectory::of_user()?.host(&mut |outcome| eprintln!("{outcome}"))?;
    let keep = keep.map(|directory| directory.join(case.name().replace(' ', "-")));
    let outcome = provoke(case, host, keep, &mut changes);
    changes.undo(&mut |outcome| eprintln!("{outcome}"))?;
    outcome
}

fn provoke(case: &Case, host: &Host, keep: Option<PathBuf>, changes: &mut Changes) -> Result<Outcome> {
    let files = host.directory(changes)?;
    let group = Group::new(changes, case.victim.limit())?;
    let place = Place { host, files, group, keep };
    culprits::prepare(&place.files)?;
    let mut victim = case.victim.start(&place, changes)?;
    let mut ask =
        |culprits: &[&'static Culprit], changes: &mut Changes| said(&place, &mut *victim, culprits, changes);
    let alone = ask(&[], changes)?;
    let with = ask(case.culprits, changes)?;
    let mut without = Vec::new();
    for culprit in case.culprits {
        let others: Vec<&'static Culprit> =
            case.culprits.iter().copied().filter(|other| other.what != culprit.what).collect();
        let said = if others.is_empty() { alone.clone() } else { ask(&others, changes)? };
        let back = (with.lost - said.lost).max(0.0);
        without.push((*culprit, said, back));
    }
    let all: f64 = without.iter().map(|(.., back)| back).sum();
    without.iter_mut().for_each(|(.., back)| *back /= all.max(f64::MIN_POSITIVE));
    Ok(Outcome { name: case.name(), alone, with, without })
}

/// Runs the application's load beside culprits, and asks who took its time.
fn said(
    place: &Place<'_>,
    victim: &mut dyn Victim,
    culprits: &[&'static Culprit],
    changes: &mut Changes,
) -> Result<Said> {
    // What others had read before is charged to their groups, and would not be read again.
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3")?;
    victim.warm()?;
    let running = culprits.iter().map(|culprit| culprit.start(place, changes)).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(AHEAD);
    let load = victim.load(AHEAD + WATCHED)?;
    std::thread::sleep(Duration::from_secs(1));
    let mut command = format!("lotsfree blame {} --json --for {}s", victim.program(), WATCHED.as_secs());
    if let Some(directory) = &place.keep {
        let beside: Vec<&str> = culprits.iter().map(|culprit| culprit.what).collect();
        let run = directory.join(format!("beside {}", beside.join(" and ")).replace(' ', "-"));
        std::fs::create_dir_all(directory)?;
        command += &format!(" --keep {}", run.display());
    }
    let mut blame = place.host.shell(&command, &[]);
    let text = crate::real::application::output(&mut blame)?;
    let rate = victim.rate(load)?;
    for culprit in running {
        culprit.end()?;
    }
    read(&text, victim.program(), rate)
}

/// What is read of the report.
#[derive(Deserialize)]
struct Document {
    answer: String,
    payers: Vec<Payer>,
}

fn read(text: &str, program: &str, rate: f64) -> Result<Said> {
    let Document { answer, payers } = serde_json::from_str(text)?;
    let payer = payers.iter().find(|payer| payer.cost.actor.split(" (").next() == Some(program));
    let shares = payer.map(|payer| {
        let name = |who: &Who| match who {
            Who::Actor(name) => name.clone(),
            Who::Itself => "itself".to_owned(),
            Who::Unknown => "unknown".to_owned(),
        };
        let shares = payer.taken_by.iter().map(|charge| (name(&charge.who), charge.share));
        let mut shares: Vec<(String, f64)> = shares.collect();
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        shares
    });
    Ok(Said {
        rate,
        lost: payer.map_or(0.0, |payer| payer.cost.lost),
        shares: shares.unwrap_or_default(),
        answer,
    })
}
