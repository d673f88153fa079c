//! `cargo xtask fuzz settle`: fuzzes until enough executions have brought no new edge.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::log::Log;
use super::{Done, Fuzzer, Target, corpus, directory};

/// Progress of a target, which is kept beside its corpus so that a later call can continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// Fingerprint of the binary: other code has other edges, so the count begins again.
    binary: u64,
    executions: u64,
    since: u64,
}

impl Progress {
    fn path(target: &str) -> PathBuf {
        directory().join("corpus").join(format!("{target}.progress"))
    }

    /// Reads the progress of an earlier call with the same binary; otherwise there is none.
    fn load(text: &str, binary: u64) -> Self {
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [of, executions, since] if of == binary => Progress { binary, executions, since },
            _ => Progress { binary, ..Progress::default() },
        }
    }

    fn text(&self) -> String {
        format!("{} {} {}\n", self.binary, self.executions, self.since)
    }

    /// Adds a run of which `replayed` executions were of the corpus.
    fn add(&mut self, log: &Log, replayed: u64) {
        let fresh = log.executions.saturating_sub(replayed);
        self.executions += fresh;
        // If the whole run brought no new edge, its executions add to those counted before.
        self.since = if log.since >= fresh { self.since + fresh } else { log.since };
    }
}

/// Runs a target in parts. A part has as many executions as are missing, so that it is the last one unless it
/// brings a new edge.
pub(super) fn target(fuzzer: &Fuzzer, target: &Target, seconds: Option<u64>) -> Result<Done, Box<dyn Error>> {
    let begin = Instant::now();
    let path = Progress::path(&target.name);
    let binary = fingerprint(&fs::read(&fuzzer.binary)?);
    let mut progress = Progress::load(&fs::read_to_string(&path).unwrap_or_default(), binary);
    let mut done = Done::default();
    while done.crash.is_none() && progress.since < target.settled {
        let left = seconds.map(Duration::from_secs).map(|all| all.saturating_sub(begin.elapsed()).as_secs());
        if left == Some(0) {
            break;
        }
        let replayed = inputs(&target.name)?;
        let missing = target.settled - progress.since;
        done = fuzzer.run(&target.name, left.unwrap_or(0), Some(replayed + missing))?;
        progress.add(&done.log, replayed);
        fs::write(&path, progress.text())?;
    }
    done.log.executions = progress.executions;
    done.settled = Some((progress.since, target.settled));
    Ok(done)
}

/// Number of inputs that a run executes before it makes its own: the corpus and the empty input.
fn inputs(target: &str) -> Result<u64, Box<dyn Error>> {
    Ok(fs::read_dir(corpus(target))?.count() as u64 + 1)
}

/// FNV-1a.
fn fingerprint(bytes: &[u8]) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_without_a_new_edge_add_up_over_calls_until_there_is_one() {
        let mut progress = Progress { binary: 7, ..Progress::default() };
        let quiet = Log { executions: 110, since: 100, edges: 5, features: 5 };
        progress.add(&quiet, 10);
        progress.add(&quiet, 10);
        assert_eq!((progress.executions, progress.since), (200, 200));
        progress.add(&Log { executions: 110, since: 30, edges: 6, features: 6 }, 10);
        assert_eq!((progress.executions, progress.since), (300, 30));
        assert_eq!(Progress::load(&progress.text(), 7), progress);
        let rebuilt = Progress { binary: 8, ..Progress::default() };
        assert_eq!(Progress::load(&progress.text(), 8), rebuilt);
        assert_eq!(Progress::load("", 8), rebuilt);
    }
}
