//! The seam where tests let a step fail: every write, rename, sync, creation, removal and setting is a
//! *point*.
//!
//! Points are numbered from 1 in the order in which a process reaches them. Tests ask for a fault by
//! environment variables of a program that was built with debug assertions; a release build does not have
//! this code.
//!
//! ```text
//! LOTSFREE_FAULT=fail:N    the N-th point fails as a full disk does, a write after half of its bytes
//! LOTSFREE_FAULT=from:N    as do all after it
//! LOTSFREE_FAULT=kill:N    the process is killed before the N-th point, a write after half of its bytes
//! LOTSFREE_FAULT=stop:N    the process is stopped before the N-th point; SIGCONT lets it go on
//! LOTSFREE_FAULT_LOG=FILE  a line for each point: its number, operation and path
//! ```

use std::io;
use std::path::Path;

/// The operation at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A file is made.
    Create,
    /// Bytes are written to a file.
    Write,
    /// A file's length is changed.
    Truncate,
    /// A file or directory is synced to disk.
    Sync,
    /// A file or directory is renamed.
    Rename,
    /// A file or directory is removed.
    Remove,
    /// A directory is made.
    MakeDirectory,
    /// A file or directory gets another mode or owner.
    Owner,
    /// A setting of the kernel is written.
    Set,
    /// The kernel begins or ends to swap to a file.
    Swap,
}

/// The fault that a test wants at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(debug_assertions), allow(dead_code, reason = "a release build has no faults"))]
pub(crate) enum Fault {
    /// The operation fails.
    Fail,
    /// The process is killed.
    Kill,
}

/// Marks a point. On success, the caller performs the operation.
///
/// # Errors
/// `ENOSPC`, if a test wants it.
pub fn point(operation: Operation, path: &Path) -> io::Result<()> {
    match at(operation, path) {
        None => Ok(()),
        Some(fault) => Err(happen(fault)),
    }
}

/// Makes a fault happen. Returns only if the fault is a failure.
pub(crate) fn happen(fault: Fault) -> io::Error {
    if fault == Fault::Kill {
        // Nothing is dropped or flushed, as when another process kills this one.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    rustix::io::Errno::NOSPC.into()
}

#[cfg(not(debug_assertions))]
pub(crate) fn at(_operation: Operation, _path: &Path) -> Option<Fault> {
    None
}

#[cfg(debug_assertions)]
pub(crate) use wanted::at;

#[cfg(debug_assertions)]
mod wanted {
    use std::fs::File;
    use std::io::Write as _;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, OnceLock, PoisonError};

    use super::{Fault, Operation};

    /// The fault that the environment asks for.
    #[derive(Debug, Default)]
    struct Wish {
        fault: Option<(Fault, u64)>,
        /// The fault also happens at all later points.
        sticky: bool,
        /// The process is stopped instead, so that a test can send it a signal at this point.
        stop: bool,
        log: Option<Mutex<File>>,
    }

    static REACHED: AtomicU64 = AtomicU64::new(0);

    fn wish() -> &'static Wish {
        static WISH: OnceLock<Wish> = OnceLock::new();
        WISH.get_or_init(|| {
            let mut wish = Wish::default();
            let asked = std::env::var("LOTSFREE_FAULT").unwrap_or_default();
            if let Some((kind, number)) = asked.split_once(':') {
                let fault = if kind == "kill" { Fault::Kill } else { Fault::Fail };
                wish.fault = number.parse().ok().map(|number| (fault, number));
                wish.sticky = kind == "from";
                wish.stop = kind == "stop";
            }
            wish.log = std::env::var_os("LOTSFREE_FAULT_LOG")
                .and_then(|path| File::options().append(true).create(true).open(path).ok())
                .map(Mutex::new);
            wish
        })
    }

    /// Counts a point, and returns the fault that a test wants there.
    pub(crate) fn at(operation: Operation, path: &Path) -> Option<Fault> {
        let wish = wish();
        let number = REACHED.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(log) = &wish.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            // An error is ignored here: the test that misses the line fails.
            let _ = writeln!(log, "{number} {operation:?} {}", path.display());
        }
        let (fault, from) = wish.fault?;
        if wish.stop && number == from {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
            return None;
        }
        (number == from || (wish.sticky && number > from)).then_some(fault)
    }
}
