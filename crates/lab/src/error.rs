//! [`LabError`]: why a case could not be executed.

use std::io;
use std::path::Path;

use lotsfree_run::WriteError;
use lotsfree_scenario::Errors;

/// Why a case could not be executed on a kernel.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The scenario asks for what this machine does not have.
    #[error(transparent)]
    Scenario(#[from] Errors),
    /// The run could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A change of this host could not be made, noted or undone.
    #[error(transparent)]
    Change(#[from] lotsfree_changes::ChangeError),
    /// The system refuses.
    #[error("{what}: {error}")]
    System {
        /// What was tried, with the file if there is one.
        what: String,
        /// What the system says.
        error: io::Error,
    },
    /// Something that the lab needs is not there, or would be dangerous.
    #[error("{0}")]
    Refused(String),
    /// A virtual machine could not be made, or did not end well.
    #[error(transparent)]
    Vm(#[from] crate::vm::Error),
    /// An agent could not do its part.
    #[error("the agent of {actor}: {why}")]
    Agent {
        /// Which actor.
        actor: String,
        /// What it says.
        why: String,
    },
}

/// Makes an error of what the system says about a file.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let what = path.display().to_string();
    |error| LabError::System { what, error }
}

/// Makes an error of what the system says about a call.
pub(crate) fn calling(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    |error| LabError::System { what, error }
}
