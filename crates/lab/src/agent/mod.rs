//! The agent: executes the operations of actors with real system calls.
//!
//! One process per [`Process`](lotsfree_workload::Process) of the program, one thread per thread. It gets an
//! [`Order`] as a line of JSON on its standard input, says `ready` on its standard output, gets the time at
//! which the run begins, and then streams what its threads do ([`lotsfree_run::wire`]) until the run or its
//! own time is over. It never knows which machine it is on.

mod clock;
mod files;
pub(crate) mod privileges;
mod process;
mod tally;
mod thread;

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use lotsfree_run::wire::Sender;
use lotsfree_scenario::{Case, Scenario};
use serde::{Deserialize, Serialize};

pub use clock::Clock;
pub(crate) use files::path as file_path;

/// What an agent is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// A scenario of one case ([`Case::to_toml`]).
    pub case: PathBuf,
    /// Which process of the program.
    pub process: usize,
    /// Where the files are; each is called by its number.
    pub files: PathBuf,
    /// The shared segments, in the order of the program.
    pub segments: Vec<Segment>,
    /// The CPUs that each node's threads run on; empty where threads are not bound.
    pub cpus: Vec<Vec<u32>>,
    /// Threads of the processes before this one: threads are spread over the nodes in turn.
    pub threads_before: usize,
    /// Requests that take longer than this are reported one by one, in nanoseconds.
    pub slow: u64,
}

/// How a shared segment is found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Segment {
    /// By the id of System V shared memory.
    SharedMemory(i32),
    /// Files, each of so many bytes.
    Files {
        /// Their paths.
        paths: Vec<PathBuf>,
        /// Bytes of each.
        granule: u64,
    },
}

/// Why an agent cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// It was not started as an agent.
    #[error("this command is started by `lotsfree lab`: {0}")]
    Order(String),
    /// The case cannot be read, or has no such process.
    #[error("the case cannot be executed: {0}")]
    Case(String),
    /// The kernel refuses.
    #[error("{what}: {error}")]
    Kernel {
        /// What was tried.
        what: String,
        /// What the kernel says.
        error: io::Error,
    },
}

/// What the agent says when it is ready to begin.
pub const READY: &str = "ready";
/// How a text begins with which the agent says that it cannot go on.
pub const FAILED: &str = "failed: ";

/// Executes one process of a case, as `input` orders it. Ends the process when its time is over.
///
/// # Errors
/// Before it begins; afterwards failures are part of what it reports.
pub fn run() -> Result<(), AgentError> {
    let mut input = BufReader::new(io::stdin());
    // Not `stdout()`, which buffers lines and is flushed at exit.
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
    // Nobody shall outlive the lab, whatever ends it.
    let killed = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    killed.map_err(|error| kernel("prctl", error.into()))?;
    privileges::gain_none().map_err(|error| kernel("no new privileges", error))?;
    let order: Order =
        serde_json::from_str(&line(input)?).map_err(|error| AgentError::Order(error.to_string()))?;
    let case = read_case(&order.case)?;
    // Opens what the lab holds for it.
    let process = process::Process::new(&case, order)?;
    privileges::keep(privileges::LOCK).map_err(|error| kernel("capset", error))?;
    Ok((process, Clock::default()))
}

/// The one case of a scenario that [`Case::to_toml`] wrote.
pub(crate) fn read_case(path: &std::path::Path) -> Result<Case, AgentError> {
    let scenario = Scenario::load(path).map_err(|errors| AgentError::Case(errors.to_string()))?;
    let cases = scenario.cases(None).map_err(|errors| AgentError::Case(errors.to_string()))?;
    cases.into_iter().next().ok_or_else(|| AgentError::Case("it has no case".to_owned()))
}

fn kernel(what: impl Into<String>, error: io::Error) -> AgentError {
    AgentError::Kernel { what: what.into(), error }
}

/// Tells an agent its order.
///
/// # Errors
/// The stream's.
pub(crate) fn give(order: &Order, to: &mut dyn Write) -> io::Result<()> {
    let mut text = serde_json::to_vec(order)?;
    text.push(b'\n');
    to.write_all(&text)?;
    to.flush()
}
