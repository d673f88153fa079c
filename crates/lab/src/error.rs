//! [`LabError`]: why a case could not be executed.

use std::io;
use std::path::Path;

use lotsfree_run::WriteError;
use lotsfree_scenario::Errors;

use crate::vm;

/// Why a case could not be executed on a kernel.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The scenario asks for something that this machine does not have.
    #[error(transparent)]
    Scenario(#[from] Errors),
    /// The run could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A change of this host could not be made, noted or undone.
    #[error(transparent)]
    Change(#[from] lotsfree_changes::ChangeError),
    /// The counters of this kernel could not be read.
    #[error(transparent)]
    Watch(#[from] lotsfree_watch::WatchError),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// The action that failed, or the file that it was about.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// Something that the lab needs is not there, or would be dangerous.
    #[error("{0}")]
    Refused(String),
    /// A virtual machine could not be made, or did not end as it should.
    #[error(transparent)]
    Vm(#[from] vm::Error),
    /// An agent could not do its part.
    #[error("the agent of {actor}: {why}")]
    Agent {
        /// Name of the actor.
        actor: String,
        /// The reason that the agent gives.
        why: String,
    },
}

impl LabError {
    /// The error in one line, without a guest's console.
    pub fn brief(&self) -> String {
        match self {
            LabError::Vm(vm::Error::Guest { why, .. }) => format!("the virtual machine: {why}"),
            LabError::Vm(vm::Error::Panic { line, .. }) => format!("the virtual machine: {line}"),
            other => other.to_string().lines().collect::<Vec<_>>().join("; "),
        }
    }
}

/// Makes a [`LabError`] of the system's error about a file.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let what = path.display().to_string();
    |error| LabError::System { what, error }
}

/// Makes a [`LabError`] of the system's error about a call.
pub(crate) fn calling(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    |error| LabError::System { what, error }
}
