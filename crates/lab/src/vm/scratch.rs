//! [`Scratch`]: the directory of a virtual machine, which is removed with it.
//!
//! A machine's disks take gigabytes, and this process may be killed before it removes them. The directory is
//! therefore treated as a change of this host: it is noted in a journal of this process before it is made. If
//! this process is killed, the directory is removed by the next machine that starts, or by `lotsfree lab
//! restore`.

use std::path::{Path, PathBuf};

use lotsfree_changes::{ChangeError, Changes, StateDirectory};
use lotsfree_storage::{self as storage, Access};

use super::Error;

/// A private directory that is removed with this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    _changes: Changes,
}

impl Scratch {
    /// Makes a directory in `parent`. Those that killed processes left are removed first.
    ///
    /// # Errors
    /// If somebody else could exchange what is made in `parent`, or if `parent` or the state directory cannot
    /// be written to.
    pub(crate) fn make(parent: &Path) -> Result<Scratch, Error> {
        let refused = |error: ChangeError| Error::unusable(parent, error.to_string());
        let state = StateDirectory::of_user().map_err(refused)?;
        // A directory that cannot be removed is no obstacle here; `restore` says why.
        let _ = state.undo_abandoned(&mut |_| ());
        let mut changes = state.process().map_err(refused)?;
        let path = changes.directory(parent, "vm").map_err(|error| {
            Error::unusable(parent, format!("{error}; name another directory with --dir or TMPDIR"))
        })?;
        Ok(Scratch { path, _changes: changes })
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file in the directory that no other user may read.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn file(&self, name: &str) -> Result<storage::OutFile, Error> {
        let path = self.path().join(name);
        storage::create_new(&path, Access::Private).map_err(Error::io(path))
    }
}
