//! Files below a directory: `/` itself, or a saved tree that looks like it.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lotsfree_kernel_files::File as _;
use lotsfree_kernel_files::file::unlinked as table;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Holder, MOST_TABLE, ReadError, Source, unlinked};

/// A directory that looks like `/`.
///
/// In a saved tree no path leads outside: symbolic links are resolved as if the tree were the root
/// (`openat2(2)` with `RESOLVE_IN_ROOT`, 5.6 and later). Only regular files are opened, and without blocking,
/// so that pipes and devices in a hostile tree have no effect.
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

    /// Path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, ReadError> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let path = if path.is_empty() { "." } else { path };
        if self.live {
            return rustix::fs::openat(&self.directory, path, flags, Mode::empty()).map_err(from_errno);
        }
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), resolve) {
            // `openat2` is not in this kernel, or a container's filter rejects it.
            Err(Errno::NOSYS | Errno::PERM) => self.open_resolved(path, flags),
            opened => opened.map_err(from_errno),
        }
    }

    /// Opens a path without `openat2`: links may lead anywhere, but their target must be below the root.
    fn open_resolved(&self, path: &str, flags: OFlags) -> Result<OwnedFd, ReadError> {
        let resolved = self.root.join(path).canonicalize().map_err(|error| from_io(&error))?;
        let root = self.root.canonicalize().map_err(|error| from_io(&error))?;
        if !resolved.starts_with(root) {
            return Err(ReadError::Absent);
        }
        rustix::fs::open(&resolved, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(from_errno)
    }
}

/// Files of `/proc` arrive in pieces of a page or less; a buffer of this size holds most of them whole.
const CHUNK: usize = 16 << 10;

fn from_errno(errno: Errno) -> ReadError {
    match errno {
        // Reading the files of a process that has ended gives ESRCH.
        Errno::NOENT | Errno::NOTDIR | Errno::SRCH | Errno::NODEV | Errno::NXIO => ReadError::Absent,
        Errno::ACCESS | Errno::PERM => ReadError::Denied,
        errno => ReadError::Io(io::Error::from(errno).to_string()),
    }
}

fn from_io(error: &io::Error) -> ReadError {
    error
        .raw_os_error()
        .map_or_else(|| ReadError::Io(error.to_string()), |raw| from_errno(Errno::from_raw_os_error(raw)))
}

impl Source for TreeSource {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        buffer.clear();
        let file = self.open(path, OFlags::empty())?;
        if !self.live {
            let mode = rustix::fs::fstat(&file).map_err(from_errno)?.st_mode;
            if !FileType::from_raw_mode(mode).is_file() {
                return Err(ReadError::NotRegular);
            }
        }
        loop {
            buffer.reserve(CHUNK);
            match rustix::io::read(&file, rustix::buffer::spare_capacity(buffer)) {
                Ok(0) => return Ok(false),
                Ok(_) if buffer.len() > limit => {
                    buffer.truncate(limit);
                    return Ok(true);
                }
                Ok(_) | Err(Errno::INTR) => {}
                // The kernel log ends with "try again". EPIPE means that the kernel has overwritten the
                // record that was next.
                Err(Errno::AGAIN) if !buffer.is_empty() => return Ok(false),
                Err(Errno::PIPE) => {}
                Err(errno) => return Err(from_errno(errno)),
            }
        }
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        let opened = self.open(directory, OFlags::DIRECTORY)?;
        let entries = rustix::fs::Dir::new(opened).map_err(from_errno)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(from_errno)?;
            match entry.file_name().to_str() {
                Ok("." | "..") | Err(_) => {}
                Ok(name) => names.push(name.to_owned()),
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn unlinked(&self, holders: &[Holder], budget: Duration, buffer: &mut Vec<u8>) -> Result<(), ReadError> {
        if !self.live {
            return self.read(table::PATH, MOST_TABLE, buffer).map(drop);
        }
        let mut text = String::new();
        unlinked::look(holders, budget).print(&mut text);
        buffer.clear();
        buffer.extend_from_slice(text.as_bytes());
        Ok(())
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
