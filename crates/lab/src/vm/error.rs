//! [`Error`]: why there is no virtual machine, or no result of it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use lotsfree_scenario::Errors;

/// Why there is no virtual machine, or no result of it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program did not start.
    #[error("{program} did not start ({error}): apt-get install {package}")]
    NotStarted {
        /// Its name.
        program: String,
        /// The Debian package that has it.
        package: String,
        /// What the system says.
        error: io::Error,
    },
    /// A program failed.
    #[error("{program}: {status}: {message}")]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to its standard error.
        message: String,
    },
    /// The system does not let a file be read or written.
    #[error("{path}: {error}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {why}")]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// There is no such kernel.
    #[error("no kernel {name}: {why}")]
    NoKernel {
        /// What was asked for.
        name: String,
        /// Where it was looked for, and how to get one.
        why: String,
    },
    /// The scenario asks for what a virtual machine does not have, or is wrong.
    #[error(transparent)]
    Case(#[from] Errors),
    /// Virtual time has one CPU.
    #[error("{cpus} CPUs: virtual time (icount) works with 1 only; a second one hangs when it comes up")]
    OneCpu {
        /// What the machine has.
        cpus: u32,
    },
    /// QEMU refuses a command.
    #[error("QEMU: {command}: {answer}")]
    Monitor {
        /// The command.
        command: String,
        /// What it says.
        answer: String,
    },
    /// The guest did not end as it should.
    #[error("the virtual machine: {why}; the last lines of its console:\n{console}")]
    Guest {
        /// What happened.
        why: String,
        /// The last lines of its console, and what QEMU said.
        console: String,
    },
    /// The guest's kernel said that it goes no further.
    #[error("the virtual machine: {line}; the last lines of its console:\n{console}")]
    Panic {
        /// What it said.
        line: String,
        /// The last lines of its console until then, and what QEMU said.
        console: String,
    },
    /// The guest was ended.
    #[error("the virtual machine was ended")]
    Stopped,
    /// The archive of packages does not have it.
    #[error(
        "no package {prefix}*-amd64 in the package lists of this machine: run `apt-get update`, and on an \
         older Debian add its backports or security archive"
    )]
    NoPackage {
        /// How its name begins.
        prefix: String,
    },
    /// The kernel has no such module, nor is it built in.
    #[error("{directory}: no kernel module {name}")]
    NoModule {
        /// `lib/modules/RELEASE`.
        directory: PathBuf,
        /// The module.
        name: String,
    },
    /// A file for the initramfs that cannot be in one.
    #[error("{path}: too large for an initramfs, whose files are smaller than 4 GiB")]
    TooLarge {
        /// Path in the initramfs.
        path: String,
    },
    /// It takes longer than it may.
    #[error("not finished after {seconds} s")]
    Late {
        /// How long it was waited for.
        seconds: u64,
    },
}

impl Error {
    /// For `map_err`: the system's error with the file it is about.
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::Io { path: path.as_ref().to_owned(), error }
    }

    /// A file that is not what it should be.
    pub(crate) fn unusable(path: impl AsRef<Path>, why: impl Into<String>) -> Error {
        Error::Unusable { path: path.as_ref().to_owned(), why: why.into() }
    }
}
