//! `cargo xtask blame [--keep DIRECTORY] [vm SERIES] [WORD…]`: what `lotsfree blame` says of known culprits.
//!
//! Each [`Case`] loads an application of the distribution in a control group with a limit, beside one or more
//! culprits in groups below the same limit, and asks `lotsfree blame` for the application. Then it runs again
//! without each culprit: what the application then no longer loses is what that culprit really took. A case
//! passes if the application is named, if a culprit comes first, and if the shares are within [`WITHIN`] of
//! what switching off gives back. With `vm` the cases run in a virtual machine with a kernel of the series
//! ([`vm`]), with control groups of version 2. A run writes the rows of its cases into [`PAGE`]. `--keep`
//! keeps every watch as a run. `cargo xtask blame cost` measures what watching takes ([`cost`]).

mod cost;
mod culprits;
mod page;
mod prepared;
mod victims;
mod vm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lotsfree_analysis::blame::{Payer, Who};
use lotsfree_changes::{Changes, StateDirectory};
use serde::{Deserialize, Serialize};

use crate::docs::root;
use crate::real::host::{Group, Host};
use crate::real::{Result, build};
use culprits::Culprit;
use victims::Victim;

/// The page that runs write.
const PAGE: &str = "docs/blame-cases.md";
/// How far a share may be from what switching a culprit off gives back.
const WITHIN: f64 = 0.15;

/// How often most cases are run with all of their culprits and without each. What one of them takes is the
/// difference of two runs, and one run of 24 s in a virtual machine differs from the next by up to 25 points.
const ROUNDS: usize = 3;

/// The part of the limit that most cases have in a virtual machine, in percent: the less room it leaves, the
/// sooner slow culprits fill it.
const LESS: u64 = 82;

/// How long things take.
#[derive(Clone, Copy)]
struct Pace {
    /// How long culprits run before the watch begins.
    ahead: Duration,
    /// How long each run is watched.
    watched: Duration,
    /// What watching may take, in percent of one CPU.
    budget: u32,
    /// Whether a case has its [`Case::limit_in_vm`].
    in_vm: bool,
    /// Seconds that the writer to tmpfs pauses between two pieces, so that it has filled memory half-way
    /// through the watch.
    pause: f64,
    /// How many times slower than on a host small culprits grow, so that they grow while they are watched.
    slower: u32,
}

/// On a host, and in a virtual machine without KVM.
const PACE: Pace = Pace {
    ahead: Duration::from_secs(3),
    watched: Duration::from_secs(15),
    budget: 1,
    in_vm: false,
    pause: 0.8,
    slower: 1,
};
const SLOW_PACE: Pace = Pace {
    ahead: Duration::from_secs(8),
    watched: Duration::from_secs(24),
    budget: 10,
    in_vm: true,
    pause: 0.3,
    slower: 3,
};

/// An application and its culprits.
struct Case {
    victim: victims::Kind,
    culprits: &'static [&'static Culprit],
    /// The part of the limit that there is in a virtual machine, in percent.
    limit_in_vm: u64,
}

impl Case {
    /// `PostgreSQL beside cp and dd`.
    fn name(&self) -> String {
        let culprits: Vec<String> = self.culprits.iter().map(|culprit| culprit.what.to_owned()).collect();
        let culprits = lotsfree_units::words::enumeration(&culprits);
        format!("{} beside {}", self.victim.name(), if culprits.is_empty() { "nothing" } else { &culprits })
    }

    /// The part of the limit that there is, in percent.
    fn limit(&self, pace: Pace) -> u64 {
        if pace.in_vm { self.limit_in_vm } else { 100 }
    }

    /// How often it is run with all of its culprits and without each. Of three culprits each takes less, so
    /// that chance is more of the difference; in a virtual machine twice as many rounds would take too long.
    fn rounds(&self, pace: Pace) -> usize {
        if self.culprits.len() > 2 && !pace.in_vm { 2 * ROUNDS } else { ROUNDS }
    }
}

use culprits::{CP, DATABASE, DD, FIND, FORKS, LEAK, SMALL_LEAK, SMALL_TMPFS, SPARSE, TMPFS};
use victims::Kind::{Java, Postgres, Redis};

const CASES: &[Case] = &[
    Case { victim: Postgres, culprits: &[&CP], limit_in_vm: LESS },
    Case { victim: Postgres, culprits: &[&DD], limit_in_vm: LESS },
    Case { victim: Postgres, culprits: &[&TMPFS], limit_in_vm: 75 },
    Case { victim: Postgres, culprits: &[&LEAK], limit_in_vm: LESS },
    Case { victim: Postgres, culprits: &[&FIND], limit_in_vm: LESS },
    Case { victim: Postgres, culprits: &[&FORKS], limit_in_vm: LESS },
    Case { victim: Postgres, culprits: &[&SPARSE], limit_in_vm: LESS },
    Case { victim: Postgres, culprits: &[&DATABASE], limit_in_vm: LESS },
    Case { victim: Redis, culprits: &[&LEAK], limit_in_vm: LESS },
    Case { victim: Java, culprits: &[&LEAK], limit_in_vm: LESS },
    Case { victim: Postgres, culprits: &[&CP, &LEAK], limit_in_vm: 100 },
    Case { victim: Postgres, culprits: &[&SMALL_LEAK, &SMALL_TMPFS], limit_in_vm: LESS },
    Case { victim: Postgres, culprits: &[&FIND, &SMALL_LEAK, &SMALL_TMPFS], limit_in_vm: 100 },
];

/// What `lotsfree blame --json` said of the application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

impl Said {
    /// The mean of several answers, in the words of the last. The shares are those of all that was lost, so
    /// that an answer counts by what it says was lost.
    fn mean(all: &[Said]) -> Said {
        let part = 1.0 / all.len().max(1) as f64;
        let lost: f64 = all.iter().map(|said| said.lost).sum();
        let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
        for said in all.iter().filter(|said| said.lost > 0.0) {
            for (name, share) in &said.shares {
                *shares.entry(name).or_default() += share * said.lost / lost;
            }
        }
        let mut shares: Vec<_> = shares.into_iter().map(|(name, share)| (name.to_owned(), share)).collect();
        shares.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        Said {
            rate: all.iter().map(|said| said.rate).sum::<f64>() * part,
            lost: lost * part,
            shares,
            answer: all.last().map(|said| said.answer.clone()).unwrap_or_default(),
        }
    }
}

/// A case, and what became of it.
#[derive(Serialize, Deserialize)]
struct Outcome {
    name: String,
    alone: Said,
    with: Said,
    culprits: Vec<Judged>,
}

/// A culprit, and what became of it.
#[derive(Serialize, Deserialize)]
struct Judged {
    what: String,
    /// The share that was charged to it.
    blamed: f64,
    /// Whether the largest share is one of its programs'.
    is_first: bool,
    /// What was said without it.
    without: Said,
    /// The part of what all culprits take that switching it off gives back.
    back: f64,
}

impl Outcome {
    /// Says what came of it.
    fn tell(&self) {
        eprintln!("{}: {}", self.name, self.with.answer);
        for complaint in self.complaints() {
            eprintln!("  FAILED: {complaint}");
        }
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
        if !self.culprits.iter().any(|culprit| culprit.is_first) {
            let first = self.with.shares.first().map(|(name, _)| name.as_str()).unwrap_or("nobody");
            complaints.push(format!("{first} comes first"));
        }
        for Judged { what, blamed, back, .. } in &self.culprits {
            if (blamed - back).abs() > WITHIN {
                let (blamed, back) = (blamed * 100.0, back * 100.0);
                complaints.push(format!("{what} has {blamed:.0} %, without it {back:.0} % come back"));
            }
        }
        complaints
    }
}

/// What the chore was asked for.
#[derive(Default)]
struct Options<'a> {
    keep: Option<&'a Path>,
    /// The directory of [`prepared`], in a virtual machine.
    prepared: Option<&'a Path>,
    /// The kernel of a virtual machine.
    series: Option<&'a str>,
    words: &'a [String],
}

impl<'a> Options<'a> {
    fn read(mut arguments: &'a [String]) -> Self {
        let mut options = Options::default();
        while let [option, value, rest @ ..] = arguments {
            match option.as_str() {
                "--keep" => options.keep = Some(Path::new(value)),
                "--prepared" => options.prepared = Some(Path::new(value)),
                "vm" => options.series = Some(value),
                _ => break,
            }
            arguments = rest;
        }
        options.words = arguments;
        options
    }

    fn cases(&self) -> Result<Vec<&'static Case>> {
        let is_chosen = |case: &&Case| {
            self.words.is_empty() || self.words.iter().any(|word| case.name().contains(word.as_str()))
        };
        let chosen: Vec<&Case> = CASES.iter().filter(is_chosen).collect();
        match chosen.is_empty() {
            true => Err("no such case; cases have names such as “PostgreSQL beside a leak”".into()),
            false => Ok(chosen),
        }
    }
}

/// Runs the cases here or in a virtual machine, and judges them.
pub(crate) fn command(arguments: &[String]) -> Result<()> {
    let options = Options::read(arguments);
    if options.words == ["cost"] {
        build("release")?;
        return cost::command(&Host::with(programs()?)?);
    }
    let cases = options.cases()?;
    if let Some(prepared) = options.prepared {
        return vm::inside(&cases, prepared);
    }
    // What watching costs is that of the program that users have.
    build("release")?;
    let (place, outcomes) = match options.series {
        Some(series) => vm::outcomes(series, options.words)?,
        None => (page::this_host()?, here(&cases, options.keep)?),
    };
    let mut failed = Vec::new();
    for case in cases.iter().filter(|case| outcomes.iter().all(|outcome| outcome.name != case.name())) {
        failed.push(format!("{}: it did not come to an end", case.name()));
    }
    for outcome in &outcomes {
        let complaints = outcome.complaints();
        if !complaints.is_empty() {
            failed.push(format!("{}: {}", outcome.name, complaints.join("; ")));
        }
    }
    page::write(&root().join(PAGE), &place, &cases, &outcomes)?;
    if failed.is_empty() { Ok(()) } else { Err(format!("failed:\n{}", failed.join("\n")).into()) }
}

/// The directory of the programs that users have.
fn programs() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    Ok(here.parent().ok_or("no directory of programs")?.with_file_name("release"))
}

/// Runs cases on this host.
fn here(cases: &[&'static Case], keep: Option<&Path>) -> Result<Vec<Outcome>> {
    let host = Host::with(programs()?)?;
    let mut changes = StateDirectory::of_user()?.process()?;
    let made = host.directory(&mut changes).and_then(|prepared| prepared::make(&prepared).map(|()| prepared));
    let outcomes = made.and_then(|prepared| {
        let mut bench = Bench { host: &host, pace: PACE, prepared: &prepared, keep, alone: BTreeMap::new() };
        cases.iter().map(|case| attempt(case, &mut bench)).collect()
    });
    changes.undo(&mut |outcome| eprintln!("{outcome}"))?;
    outcomes
}

/// What the cases of a run share.
struct Bench<'a> {
    host: &'a Host,
    pace: Pace,
    /// The directory of [`prepared`].
    prepared: &'a Path,
    keep: Option<&'a Path>,
    /// What was said of each application without culprits.
    alone: BTreeMap<victims::Kind, Said>,
}

/// Where a case runs.
struct Place<'a> {
    host: &'a Host,
    pace: Pace,
    /// A directory on a disk.
    files: PathBuf,
    /// The group that has the limit.
    group: Group,
    /// The application's, below it.
    victim: Group,
    /// The directory of [`prepared`].
    prepared: PathBuf,
    /// Where the watches of this case are kept as runs.
    keep: Option<PathBuf>,
}

/// Provokes a case, says what came of it, and undoes it; after a kill `lotsfree lab restore` does.
fn attempt(case: &Case, bench: &mut Bench<'_>) -> Result<Outcome> {
    let Bench { host, pace, prepared, keep, .. } = *bench;
    let mut changes = StateDirectory::of_user()?.host(&mut |outcome| eprintln!("{outcome}"))?;
    let keep = keep.map(|directory| directory.join(case.name().replace(' ', "-")));
    let files = host.directory(&mut changes);
    let place = files.and_then(|files| {
        let group = Group::new(&mut changes, case.victim.limit(case.limit(pace)))?;
        let victim = group.below(&mut changes, "victim")?;
        Ok(Place { host, pace, files, group, victim, prepared: prepared.to_owned(), keep })
    });
    let outcome = place.and_then(|place| provoke(case, &place, &mut bench.alone, &mut changes));
    changes.undo(&mut |_| {})?;
    let outcome = outcome?;
    outcome.tell();
    Ok(outcome)
}

fn provoke(
    case: &Case,
    place: &Place<'_>,
    alone: &mut BTreeMap<victims::Kind, Said>,
    changes: &mut Changes,
) -> Result<Outcome> {
    for name in case.culprits.iter().filter_map(|culprit| culprit.database) {
        prepared::database(&place.prepared, &place.files.join(name))?;
    }
    let mut victim = case.victim.start(place, changes)?;
    let mut ask =
        |culprits: &[&'static Culprit], changes: &mut Changes| said(place, &mut *victim, culprits, changes);
    let alone = match alone.get(&case.victim) {
        Some(alone) => alone.clone(),
        None => alone.entry(case.victim).or_insert(ask(&[], changes)?).clone(),
    };
    let others = |culprit: &Culprit| -> Vec<&'static Culprit> {
        case.culprits.iter().copied().filter(|other| other.what != culprit.what).collect()
    };
    let (mut with, mut without) = (Vec::new(), vec![Vec::new(); case.culprits.len()]);
    for _ in 0..case.rounds(place.pace) {
        with.push(ask(case.culprits, changes)?);
        if let Some(Said { rate, answer, .. }) = with.last() {
            eprintln!("  {rate:.0}/s: {answer}");
        }
        for (culprit, without) in case.culprits.iter().zip(&mut without) {
            let others = others(culprit);
            without.push(if others.is_empty() { alone.clone() } else { ask(&others, changes)? });
        }
    }
    let with = Said::mean(&with);
    let mut culprits = Vec::new();
    for (culprit, without) in case.culprits.iter().zip(&without) {
        let without = Said::mean(without);
        let its = |(name, _): &&(String, f64)| culprit.is(name);
        culprits.push(Judged {
            what: culprit.what.to_owned(),
            blamed: with.shares.iter().filter(its).fold(0.0, |sum, (_, share)| sum + share),
            is_first: with.shares.first().is_some_and(|first| its(&first)),
            back: (with.lost - without.lost).max(0.0),
            without,
        });
    }
    let all: f64 = culprits.iter().map(|culprit| culprit.back).sum();
    culprits.iter_mut().for_each(|culprit| culprit.back /= all.max(f64::MIN_POSITIVE));
    Ok(Outcome { name: case.name(), alone, with, culprits })
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
    let Pace { ahead, watched, budget, .. } = place.pace;
    std::thread::sleep(ahead);
    let load = victim.load(ahead + watched)?;
    std::thread::sleep(Duration::from_secs(1));
    // By its group, as a culprit may have the same name.
    let whom = place.victim.shown();
    let mut command = format!("lotsfree blame {whom} --json --for {}s --budget {budget}", watched.as_secs());
    if let Some(directory) = &place.keep {
        let beside: Vec<&str> = culprits.iter().map(|culprit| culprit.what).collect();
        let name = format!("beside {}", beside.join(" and ")).replace(' ', "-");
        // One for each round.
        let mut names = (1..).map(|round| directory.join(format!("{name}-{round}")));
        let run = names.find(|run| !run.exists()).unwrap_or_default();
        std::fs::create_dir_all(directory)?;
        command += &format!(" --keep {}", run.display());
    }
    let mut blame = place.host.shell(&command, &[]);
    let text = crate::real::application::output(&mut blame)?;
    let rate = victim.rate(load)?;
    for culprit in running {
        culprit.end()?;
    }
    read(&text, rate)
}

/// What is read of the report.
#[derive(Deserialize)]
struct Document {
    answer: String,
    payers: Vec<Payer>,
}

fn read(text: &str, rate: f64) -> Result<Said> {
    let Document { answer, payers } = serde_json::from_str(text)?;
    let payer = payers.first();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_by_what_it_says_was_lost() {
        let said = |lost: f64, shares: &[(&str, f64)]| Said {
            rate: 10.0,
            lost,
            shares: shares.iter().map(|&(name, share)| (name.to_owned(), share)).collect(),
            answer: String::new(),
        };
        let mean = Said::mean(&[said(0.0, &[]), said(0.3, &[("cp", 1.0)]), said(0.1, &[("tee", 1.0)])]);
        assert!((mean.lost - 0.4 / 3.0).abs() < 1e-9 && (mean.rate - 10.0).abs() < 1e-9);
        let shares: Vec<_> = mean.shares.iter().map(|(name, share)| (name.as_str(), *share)).collect();
        assert!(shares[0].0 == "cp" && (shares[0].1 - 0.75).abs() < 1e-9, "{shares:?}");
        assert!(shares[1].0 == "tee" && (shares[1].1 - 0.25).abs() < 1e-9, "{shares:?}");
        assert_eq!(Said::mean(&[said(0.0, &[])]).shares, []);
    }
}
