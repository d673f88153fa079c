//! `cargo xtask real [quick] [APPLICATION…]`: what the doctor proposes, followed to its end.
//!
//! Each [`Trial`] provokes a problem with an application of the distribution, lets `lotsfree doctor` name it,
//! types the first remedy as it is printed, restarts the application with the lines that make it last, asks
//! the application itself what became of it, and undoes everything. A remedy fails if one of its commands
//! does, if the application is not better off, if the doctor still finds the same, or if its undo leaves a
//! setting other than it was. The whole run writes [`PAGE`]; `quick` leaves out what takes minutes, and the
//! page.

pub(crate) mod application;
mod follow;
pub(crate) mod host;
mod java;
mod lmdb;
mod mariadb;
mod memcached;
mod page;
mod postgres;
mod redis;
mod tables;

use std::error::Error;
use std::path::Path;
use std::process::Command;

use lotsfree_changes::{Changes, StateDirectory};

use crate::docs::root;
use application::Application;
use follow::{Followed, follow};
use host::Host;

pub(crate) type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// The page that a whole run writes.
const PAGE: &str = "docs/real.md";

/// An application and what is provoked with it.
pub(crate) struct Trial {
    /// The application and the problem, as the page's heading says them.
    name: &'static str,
    /// Files that the application consists of; a `*` stands for a version.
    programs: &'static [&'static str],
    /// Debian's packages that have them.
    packages: &'static str,
    /// Whether it takes seconds.
    quick: bool,
    /// Settings that are changed; without them it is not tried.
    settings: &'static [&'static str],
    /// Makes what is provoked ready to start, with files below a directory.
    prepare: fn(&Host, &Path, &mut Changes) -> Result<Box<dyn Application>>,
}

const TRIALS: &[Trial] = &[
    postgres::SESSIONS,
    postgres::SHORT_POOL,
    mariadb::SHORT_POOL,
    java::SHORT_POOL,
    redis::SWAPPED,
    memcached::KILLED,
    lmdb::READAHEAD,
];

/// What became of a trial.
enum Outcome {
    Followed(Box<Followed>),
    /// The host does not have what it takes; why.
    NotTried(String),
    Failed(String),
}

/// Tries each application in turn; those whose packages or settings the host lacks are named, not failed.
pub(crate) fn command(arguments: &[String]) -> Result<()> {
    let (quick, names) = match arguments.split_first() {
        Some((first, names)) if first == "quick" => (true, names),
        _ => (false, arguments),
    };
    let named = |trial: &Trial| {
        let application = trial.name.split(':').next().unwrap_or_default();
        names.is_empty() || names.iter().any(|name| name.eq_ignore_ascii_case(application))
    };
    let chosen: Vec<&Trial> = TRIALS.iter().filter(|trial| (trial.quick || !quick) && named(trial)).collect();
    if chosen.is_empty() {
        return Err("usage: cargo xtask real [quick] [postgresql|mariadb|java|redis|memcached|lmdb…]".into());
    }
    build("dev")?;
    let host = Host::new()?;
    let mut outcomes = Vec::new();
    for trial in chosen {
        let outcome = attempt(trial, &host)?;
        match &outcome {
            Outcome::Followed(followed) => eprintln!("{}: {}\n", trial.name, followed.summary()),
            Outcome::NotTried(why) => eprintln!("{}: not tried: {why}\n", trial.name),
            Outcome::Failed(why) => eprintln!("{}: FAILED: {why}\n", trial.name),
        }
        outcomes.push((trial, outcome));
    }
    let failed: Vec<&str> = (outcomes.iter())
        .filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)))
        .map(|(trial, _)| trial.name)
        .collect();
    if !failed.is_empty() {
        return Err(format!("failed: {}", failed.join("; ")).into());
    }
    if !quick && names.is_empty() {
        std::fs::write(root().join(PAGE), page::page(&outcomes)?)?;
    }
    Ok(())
}

/// Builds the program that is tried, as `cargo test` or as users do.
pub(crate) fn build(profile: &str) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    // With the features of the whole workspace, as `cargo test` builds it.
    cargo.args(["build", "--locked", "--workspace", "--bins", "--profile", profile]).current_dir(root());
    let done = cargo.status()?;
    if done.success() { Ok(()) } else { Err(format!("cargo build: {done}").into()) }
}

/// Provokes, follows and undoes one trial. What was changed to provoke it is noted before, and put back also
/// where it fails; after a kill `lotsfree lab restore` does.
fn attempt(trial: &Trial, host: &Host) -> Result<Outcome> {
    if let Some(why) = host.lacks(trial) {
        return Ok(Outcome::NotTried(why));
    }
    eprintln!("{}", trial.name);
    let mut changes = StateDirectory::of_user()?.host(&mut |outcome| eprintln!("{outcome}"))?;
    let place = host.directory(&mut changes)?;
    let outcome = match (trial.prepare)(host, &place, &mut changes) {
        Ok(mut application) => match follow(host, trial.settings, application.as_mut()) {
            Ok(followed) => Outcome::Followed(Box::new(followed)),
            Err(why) => Outcome::Failed(why.to_string()),
        },
        // No swap file on this file system, no control group for this container.
        Err(why) => Outcome::NotTried(format!("this host does not let it be provoked: {why}")),
    };
    changes.undo(&mut |outcome| eprintln!("{outcome}"))?;
    Ok(outcome)
}
