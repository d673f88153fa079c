//! [`ChangeError`]: why a change could not be made, noted or undone.

use std::io;
use std::path::{Path, PathBuf};

/// Why a change could not be made, noted or undone.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The system refuses.
    #[error("{what}: {error}")]
    System {
        /// What was tried, with the file if there is one.
        what: String,
        /// What the system says.
        error: io::Error,
    },
    /// What would be dangerous, or is in use.
    #[error("{0}")]
    Refused(String),
    /// A line of a journal that is not understood. The file is as it was.
    #[error(
        "{path}, line {line}: {why}; nothing was undone and the file is as it was. `lotsfree lab restore --list` \
         shows what can be read; undo that by hand, then remove the file"
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// Makes an error of what the system says about a file.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> ChangeError {
    let what = path.display().to_string();
    |error| ChangeError::System { what, error }
}
