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
    /// The package lists of this machine have no kernel of a series.
    #[error("no kernel {series} in the package lists of this machine{}", known_series(known))]
    NoPackage {
        /// The series.
        series: String,
        /// The series that they have.
        known: Vec<String>,
    },
    /// A name is not that of a series of kernels.
    #[error("{name:?} is no series of kernels: write 6.1 or 6.12")]
    NoSeries {
        /// The name.
        name: String,
    },
    /// A package could not be downloaded.
    #[error(
        "{package} was not downloaded; is the network there, and are the package lists of today \
         (`apt-get update`)? apt-get says:\n{message}"
    )]
    NotDownloaded {
        /// Name of the package.
        package: String,
        /// Messages of apt-get.
        message: String,
    },
    /// A package is not the one that the package index has.
    #[error("{package} is not used: {why}")]
    NotVerified {
        /// Name of the package.
        package: String,
        /// The difference.
        why: String,
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

/// What is said of the series that could be had.
fn known_series(known: &[String]) -> String {
    match known {
        [] => {
            ", which have none: run `apt-get update` as root (this needs Debian's package archive)".to_owned()
        }
        known => format!(
            ", which have {}; `apt-get update` as root renews them, and an older Debian has more in its \
             backports and security archives",
            known.join(", ")
        ),
    }
}
