//! [`ChangeError`]: why a change could not be made, noted or undone.

use std::io;
use std::path::{Path, PathBuf};

/// Why a change could not be made, noted or undone.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// The action that failed, or the file that it was about.
        what: String,
        /// The system's error.
        error: io::Error,
    },
    /// A change was refused because it would be dangerous, or because something is in use.
    #[error("{0}")]
    Refused(String),
    /// A line of a journal is not understood. The file is left as it was.
    #[error(
        "{path}, line {line}: {why}; nothing was undone and the file is as it was. `lotsfree lab restore --list` \
         shows what can be read; undo that by hand, then remove the file"
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The fault of the line.
        why: String,
    },
}

/// Makes a [`ChangeError`] of the system's error about a file.
pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> ChangeError {
    let what = path.display().to_string();
    |error| ChangeError::System { what, error }
}
