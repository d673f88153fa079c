//! The files of a run, each of which is named by its number.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use lotsfree_workload::{FileId, How};
use rustix::fs::OFlags;

/// The path of a file.
pub(crate) fn path(directory: &Path, file: FileId) -> PathBuf {
    directory.join(format!("{:05}", file.0))
}

/// Opens a file for reading and writing.
pub(crate) fn open(path: &Path, how: How) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if how == How::Direct {
        options.custom_flags(OFlags::DIRECT.bits() as i32);
    }
    options.open(path)
}

/// How often each file was replaced by another of the same number, for all threads of a process.
#[derive(Debug, Default)]
pub(super) struct Versions(Mutex<HashMap<u32, u64>>);

impl Versions {
    fn of(&self, file: FileId) -> u64 {
        let versions = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        versions.get(&file.0).copied().unwrap_or(0)
    }

    /// Notes that a file was deleted: a thread that has it open must open it again.
    pub(super) fn replaced(&self, file: FileId) {
        let mut versions = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *versions.entry(file.0).or_default() += 1;
    }
}

/// The files that a thread has open. Each thread opens its own, because readahead state belongs to the open
/// file, and each thread of the model has its own.
#[derive(Debug, Default)]
pub(super) struct Open(HashMap<(FileId, bool), (u64, File)>);

/// The most files that a thread keeps open; when it needs another, it closes them all.
const MOST: usize = 256;

impl Open {
    /// Returns the file, after opening it if it is not open yet or was replaced.
    pub(super) fn get(
        &mut self,
        directory: &Path,
        versions: &Versions,
        file: FileId,
        how: How,
    ) -> io::Result<&File> {
        let version = versions.of(file);
        let key = (file, how == How::Direct);
        let fresh = self.0.get(&key).is_some_and(|(known, _)| *known == version);
        if !fresh {
            if self.0.len() >= MOST {
                self.0.clear();
            }
            let opened = open(&path(directory, file), how)?;
            self.0.insert(key, (version, opened));
        }
        let entry = self.0.get(&key).map(|(_, file)| file);
        entry.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Closes a file.
    pub(super) fn close(&mut self, file: FileId) {
        self.0.retain(|(open, _), _| *open != file);
    }
}
