//! [`Error`]: why a virtual machine could not be made, or gave no result.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use lotsfree_scenario::Errors;

/// Why a virtual machine could not be made, or gave no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program did not start.
    #[error("{program} did not start ({error}): apt-get install {package}")]
    NotStarted {
        /// Name of the program.
        program: String,
        /// The Debian package that contains it.
        package: String,
        /// The system's error.
        error: io::Error,
    },
    /// A program failed.
    #[error("{program}: {status}: {message}")]
    Failed {
        /// Name of the program.
        program: String,
        /// Exit status of the program.
        status: ExitStatus,
        /// Standard error of the program.
        message: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file or directory cannot be used.
    #[error("{path}: {why}")]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// No kernel of the given name was found.
    #[error("no kernel {name}: {why}")]
    NoKernel {
        /// The name that was asked for.
        name: String,
        /// The places that were searched, and how to get a kernel.
        why: String,
    },
    /// The scenario is wrong, or asks for something that a virtual machine does not have.
    #[error(transparent)]
    Case(#[from] Errors),
    /// Virtual time works with one CPU only.
    #[error("{cpus} CPUs: virtual time (icount) works with 1 only; a second one hangs when it comes up")]
    OneCpu {
        /// CPUs of the scenario's machine.
        cpus: u32,
    },
    /// QEMU refused a command of its monitor.
    #[error("QEMU: {command}: {answer}")]
    Monitor {
        /// The command.
        command: String,
        /// QEMU's answer.
        answer: String,
    },
    /// The guest did not end as it should.
    #[error("the virtual machine: {why}; the last lines of its console:\n{console}")]
    Guest {
        /// The reason.
        why: String,
        /// The last lines of its console, and QEMU's messages.
        console: String,
    },
    /// The guest's kernel panicked, or ran out of memory with no process left to kill.
    #[error("the virtual machine: {line}; the last lines of its console:\n{console}")]
    Panic {
        /// The line of the console that says so.
        line: String,
        /// The last lines of its console up to then, and QEMU's messages.
        console: String,
    },
    /// The guest was ended from outside.
    #[error("the virtual machine was ended")]
    Stopped,
    /// The package lists of this machine have no such package.
    #[error(
        "no package {prefix}*-amd64 in the package lists of this machine: run `apt-get update`, and on an \
         older Debian add its backports or security archive"
    )]
    NoPackage {
        /// Beginning of the package's name.
        prefix: String,
    },
    /// The kernel has a module neither as a file nor built in.
    #[error("{directory}: no kernel module {name}")]
    NoModule {
        /// `lib/modules/RELEASE`.
        directory: PathBuf,
        /// The module.
        name: String,
    },
    /// A file is too large for an initramfs.
    #[error("{path}: too large for an initramfs, whose files are smaller than 4 GiB")]
    TooLarge {
        /// Path in the initramfs.
        path: String,
    },
    /// QEMU ran longer than it may.
    #[error("not finished after {seconds} s")]
    Late {
        /// The time that it had.
        seconds: u64,
    },
}

impl Error {
    /// For `map_err`: the system's error with the file it is about.
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::Io { path: path.as_ref().to_owned(), error }
    }

    /// The error of a file or directory that cannot be used.
    pub(crate) fn unusable(path: impl AsRef<Path>, why: impl Into<String>) -> Error {
        Error::Unusable { path: path.as_ref().to_owned(), why: why.into() }
    }
}
