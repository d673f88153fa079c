//! Files below a directory: `/` itself, or a saved tree that looks like it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{ReadError, Source};

/// A directory that looks like `/`.
///
/// In a saved tree no path leads outside: symbolic links are resolved as if the tree were the root
/// (`openat2(2)` with `RESOLVE_IN_ROOT`, 5.6 and later). Only regular files are opened, without blocking, so that
/// pipes and devices in a hostile tree do nothing.
#[derive(Debug)]
pub struct TreeSource {
    root: PathBuf,
    directory: File,
    live: bool,
}

impl TreeSource {
    /// The running machine.
    ///
    /// # Errors
    /// If `/` cannot be opened.
    pub fn live() -> io::Result<Self> {
        Ok(TreeSource { root: "/".into(), directory: File::open("/")?, live: true })
    }

    /// A saved tree.
    ///
    /// # Errors
    /// If `root` is not a directory that can be opened.
    pub fn saved(root: &Path) -> io::Result<Self> {
        let directory = File::open(root)?;
        if !directory.metadata()?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        Ok(TreeSource { root: root.to_owned(), directory, live: false })
    }

    /// Its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<File, ReadError> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = if self.live {
            rustix::fs::openat(&self.directory, path, flags, Mode::empty())
        } else {
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            let path = if path.is_empty() { "." } else { path };
            rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), resolve)
        };
        opened.map(File::from).map_err(|errno| from_io(&errno.into()))
    }
}

fn from_io(error: &io::Error) -> ReadError {
    match error.kind() {
        // A process that ends while its files are read shows as ESRCH (3).
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::Absent,
        io::ErrorKind::PermissionDenied => ReadError::Denied,
        _ if error.raw_os_error() == Some(3) => ReadError::Absent,
        _ => ReadError::Io(error.to_string()),
    }
}

impl Source for TreeSource {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        buffer.clear();
        let mut file = self.open(path, OFlags::empty())?;
        if !self.live && !file.metadata().map_err(|e| from_io(&e))?.is_file() {
            return Err(ReadError::NotRegular);
        }
        // One read usually suffices: files of /proc are short, and a short read there means the end.
        let mut chunk = buffer.capacity().clamp(16 << 10, 1 << 20);
        loop {
            let start = buffer.len();
            buffer.resize(start + chunk, 0);
            let read = match file.read(&mut buffer[start..]) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    buffer.truncate(start);
                    continue;
                }
                Err(error) => {
                    buffer.truncate(start);
                    return Err(from_io(&error));
                }
            };
            buffer.truncate(start + read);
            if read == 0 {
                return Ok(false);
            }
            if buffer.len() > limit {
                buffer.truncate(limit);
                return Ok(true);
            }
            chunk = chunk.saturating_mul(2).min(1 << 20);
        }
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        let opened = self.open(directory, OFlags::DIRECTORY)?;
        let entries = rustix::fs::Dir::new(opened).map_err(|errno| from_io(&errno.into()))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|errno| from_io(&errno.into()))?;
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn is_live(&self) -> bool {
        self.live
    }
}

/// Whether `path` looks like a directory that can be a saved tree.
pub(crate) fn looks_like_root(path: &Path) -> bool {
    fs::metadata(path.join("proc")).is_ok_and(|m| m.is_dir())
        || fs::metadata(path.join("sys")).is_ok_and(|m| m.is_dir())
}
