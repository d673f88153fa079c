//! `cargo xtask blame cost`: what watching takes from those that are watched.
//!
//! Each load runs in pairs, once beside `lotsfree blame` and once without, in turns of their order. What is
//! compared is what the load gets done in the same time; the figure is the median over the pairs.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lotsfree_changes::{Changes, StateDirectory};
use lotsfree_units::Bytes;

use super::victims::{Kind, Victim};
use super::{PACE, Place, prepared};
use crate::real::Result;
use crate::real::application::kilobytes;
use crate::real::host::{Group, Host};

const PAIRS: usize = 8;
/// How long each load runs.
const LENGTH: Duration = Duration::from_secs(6);
/// A file without blocks, and the limit of the group that reads it: next to every page that is read evicts
/// another.
const HOLE: Bytes = Bytes::mib(64 << 10);
const LIMIT: Bytes = Bytes::mib(256);

/// Measures both loads, and prints what they lost.
pub(super) fn command(host: &Host) -> Result<()> {
    let mut changes = StateDirectory::of_user()?.host(&mut |outcome| eprintln!("{outcome}"))?;
    let done = measure(host, &mut changes);
    changes.undo(&mut |_| {})?;
    done
}

fn measure(host: &Host, changes: &mut Changes) -> Result<()> {
    let files = host.directory(changes)?;
    prepared::make(&files)?;
    let group = Group::new(changes, Kind::Postgres.limit(100))?;
    let victim = group.below(changes, "victim")?;
    let place = Place { host, pace: PACE, prepared: files.clone(), files, group, victim, keep: None };
    let mut postgres = Kind::Postgres.start(&place, changes)?;
    postgres.warm()?;
    pairs("PostgreSQL with all of its data in memory", host, || of_victim(&mut *postgres))?;
    drop(postgres);
    let reader = Group::new(changes, LIMIT)?;
    let hole = place.files.join("hole");
    fs::File::create(&hole)?.set_len(HOLE.0)?;
    pairs("a reader that evicts a page for each that it reads", host, || {
        let read = format!("timeout {} cat {}", LENGTH.as_secs(), hole.display());
        let before = freed()?;
        let began = Instant::now();
        // Its end is that of its time, which is no success.
        reader.command(&read).stdout(Stdio::null()).status()?;
        Ok((freed()? - before) / began.elapsed().as_secs_f64())
    })
}

fn of_victim(victim: &mut dyn Victim) -> Result<f64> {
    let load = victim.load(LENGTH)?;
    victim.rate(load)
}

/// Pages that were freed on this host: reclaim for a group counts in no `pgsteal` of the host.
fn freed() -> Result<f64> {
    let text = fs::read_to_string("/proc/vmstat")?;
    let freed = text.lines().find_map(|line| line.strip_prefix("pgfree ")?.parse().ok());
    Ok(freed.ok_or("/proc/vmstat has no pgfree")?)
}

/// Runs a load in pairs.
fn pairs(what: &str, host: &Host, mut load: impl FnMut() -> Result<f64>) -> Result<()> {
    let (mut ratios, mut alone, mut memory, mut said) = (Vec::new(), Vec::new(), 0, Vec::new());
    for pair in 0..PAIRS {
        let mut rates = [0.0; 2];
        for turn in 0..2 {
            let watched = (pair + turn) % 2;
            let watch = if watched == 1 { Some(Watch::start(host)?) } else { None };
            rates[watched] = load()?;
            if let Some(watch) = watch {
                let (peak, remark) = watch.end()?;
                memory = memory.max(peak);
                said.push(remark);
            }
        }
        let [without, with] = rates;
        ratios.push(with / without);
        alone.push(without);
    }
    let median = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        (figures[PAIRS / 2 - 1] + figures[PAIRS / 2]) / 2.0
    };
    let (middle, rate) = (median(&mut ratios), median(&mut alone));
    eprintln!(
        "{what}: {rate:.0} a second without, {:+.1} % beside lotsfree blame (median of {PAIRS} pairs from {:+.1} % to \
         {:+.1} %); blame had {} MiB. {}",
        (middle - 1.0) * 100.0,
        (ratios[0] - 1.0) * 100.0,
        (ratios[PAIRS - 1] - 1.0) * 100.0,
        memory / 1024,
        said.last().map(String::as_str).unwrap_or_default()
    );
    Ok(())
}

/// `lotsfree blame` beside a load.
struct Watch {
    child: Child,
    /// The most memory that it had, in kB.
    peak: u64,
}

impl Watch {
    /// Starts it, and waits until it watches.
    fn start(host: &Host) -> Result<Self> {
        let command = format!("exec lotsfree blame --json --for {}s", LENGTH.as_secs() + 1);
        let mut shell: Command = host.shell(&command, &[]);
        let child = shell.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        sleep(Duration::from_millis(700));
        Ok(Watch { child, peak: 0 })
    }

    /// Waits for its end: the most memory that it had, and what it says of its own cost.
    fn end(mut self) -> Result<(u64, String)> {
        let status = format!("/proc/{}/status", self.child.id());
        while self.child.try_wait()?.is_none() {
            // It may end meanwhile.
            self.peak = kilobytes(&status, "VmHWM").unwrap_or(self.peak);
            sleep(Duration::from_millis(50));
        }
        let report = self.child.wait_with_output()?.stdout;
        let report: serde_json::Value = serde_json::from_slice(&report)?;
        let remark = report["not_seen"].as_array().and_then(|remarks| remarks.first()?.as_str());
        Ok((self.peak, remark.unwrap_or_default().to_owned()))
    }
}
