//! The agent: executes the operations of actors with real system calls.
//!
//! One process per [`Process`](lotsfree_workload::Process) of the program, one thread per thread. It gets an
//! [`Order`] as a line of JSON on its standard input, reports `ready` on its standard output, gets the time
//! at which the run begins, and then streams what its threads do ([`lotsfree_run::wire`]) until the run or
//! its own time is over. It does not know which machine it is on.

mod clock;
mod command;
mod files;
pub(crate) mod privileges;
mod process;
mod tally;
mod thread;

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use lotsfree_run::wire::Sender;
use lotsfree_scenario::{Case, Scenario};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use crate::command::Exec;

pub use clock::Clock;
pub(crate) use files::path as file_path;
pub(crate) use process::STACK;

/// The order that an agent gets: which process of which case to execute, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The file of a scenario of one case ([`Case::to_toml`]).
    pub case: PathBuf,
    /// The number of the process in the program.
    pub process: usize,
    /// The directory of the files, each of which is named by its number.
    pub files: PathBuf,
    /// The shared segments, in the order of the program.
    pub segments: Vec<Segment>,
    /// The commands, in the order of the program.
    pub commands: Vec<Exec>,
    /// The CPUs that each node's threads run on; empty where threads are not bound.
    pub cpus: Vec<Vec<u32>>,
    /// Number of threads of the processes before this one. Threads of all processes are spread over the nodes
    /// in turn.
    pub threads_before: usize,
    /// Requests that take at least this many nanoseconds are reported one by one.
    pub slow: u64,
}

/// How a shared segment is found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Segment {
    /// The id of System V shared memory.
    SharedMemory(i32),
    /// Files of equal size.
    Files {
        /// Their paths.
        paths: Vec<PathBuf>,
        /// Bytes of each file.
        granule: u64,
    },
}

/// Why an agent cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// It was not started as an agent.
    #[error("this command is started by `lotsfree lab`: {0}")]
    Order(String),
    /// The case cannot be read, or does not have the process of the order.
    #[error("the case cannot be executed: {0}")]
    Case(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    Kernel {
        /// The call that failed, or the file that it was about.
        what: String,
        /// The kernel's error.
        error: io::Error,
    },
}

/// The text that an agent sends when it is ready to begin.
pub const READY: &str = "ready";
/// The beginning of the text with which an agent reports that it cannot begin.
pub const FAILED: &str = "failed: ";

/// Executes one process of a case, as the [`Order`] on standard input says. Exits when its time is over.
///
/// # Errors
/// Reasons why it cannot begin. Later failures are part of what it reports.
pub fn run() -> Result<(), AgentError> {
    let mut input = BufReader::new(io::stdin());
    // `stdout()` would not do: it buffers lines and is flushed at exit.
    let output = rustix::io::dup(io::stdout()).map(std::fs::File::from);
    let output = output.map_err(|error| kernel("dup", error.into()))?;
    let mut sender = Sender::new(output);
    match prepare(&mut input) {
        Ok((process, clock)) => {
            let told = sender.text(READY);
            let begin =
                told.map_err(|error| AgentError::Order(error.to_string())).and_then(|()| line(&mut input))?;
            let begin = begin.trim().parse().map_err(|_| AgentError::Order("no time to begin".to_owned()))?;
            process.run(clock.beginning(begin), sender)
        }
        Err(error) => {
            let _ = sender.text(&format!("{FAILED}{error}"));
            Err(error)
        }
    }
}

fn line(input: &mut dyn BufRead) -> Result<String, AgentError> {
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(0) => Err(AgentError::Order("its input ended".to_owned())),
        Ok(_) => Ok(line),
        Err(error) => Err(AgentError::Order(error.to_string())),
    }
}

fn prepare(input: &mut dyn BufRead) -> Result<(process::Process, Clock), AgentError> {
    // No agent may outlive the lab, however that ends.
    let killed = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    killed.map_err(|error| kernel("prctl", error.into()))?;
    privileges::gain_none().map_err(|error| kernel("no new privileges", error))?;
    let order: Order =
        serde_json::from_str(&line(input)?).map_err(|error| AgentError::Order(error.to_string()))?;
    let case = read_case(&order.case)?;
    // This opens the segments that the lab holds.
    let process = process::Process::new(&case, order)?;
    let mut kept = CapabilitySet::empty();
    kept.set(privileges::LOCK, process.may_lock_all());
    kept.set(privileges::EXECUTE, process.executes());
    privileges::keep(kept).map_err(|error| kernel("capset", error))?;
    Ok((process, Clock::default()))
}

/// Reads the one case of a scenario that [`Case::to_toml`] wrote.
pub(crate) fn read_case(path: &std::path::Path) -> Result<Case, AgentError> {
    let scenario = Scenario::load(path).map_err(|errors| AgentError::Case(errors.to_string()))?;
    let cases = scenario.cases(None).map_err(|errors| AgentError::Case(errors.to_string()))?;
    cases.into_iter().next().ok_or_else(|| AgentError::Case("it has no case".to_owned()))
}

fn kernel(what: impl Into<String>, error: io::Error) -> AgentError {
    AgentError::Kernel { what: what.into(), error }
}

/// Writes an order to an agent's standard input.
///
/// # Errors
/// The stream's.
pub(crate) fn give(order: &Order, to: &mut dyn Write) -> io::Result<()> {
    let mut text = serde_json::to_vec(order)?;
    text.push(b'\n');
    to.write_all(&text)?;
    to.flush()
}
