//! [`Qemu`]: the process of a virtual machine, and its confinement.
//!
//! The guest's kernel, its disks and their contents may come from anybody, and QEMU has had security holes.
//! QEMU therefore
//!
//! - runs without any capability and, if this process is root's, as a user that owns nothing;
//! - gets its files already open, so that it needs no permission to any path of this user;
//! - has a filter for system calls (`-sandbox`), if it was built with one;
//! - has no more address space than the guest's memory and [its own overhead](OVERHEAD), writes no file
//!   longer than the largest disk, and leaves no core dump;
//! - has no environment variables but `PATH` and `MALLOC_ARENA_MAX`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lotsfree_storage::{self as storage, Access};
use lotsfree_sys::{Confinement, Limit};
use lotsfree_units::Bytes;

use super::{Error, tool, user};

/// Name of the program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// The file in its directory to which QEMU writes its own messages.
pub const LOG: &str = "qemu.log";

/// QEMU's filter for system calls. It denies those that are obsolete, change the user, start a program, or
/// change priorities.
pub const SANDBOX: [&str; 2] =
    ["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"];

/// Address space that QEMU needs beside the guest's memory. Measured with QEMU 7.2, 2 CPUs and two disks:
/// 1457 MiB, of which 1024 are for translated code (software emulation takes an eighth of the host's memory
/// for that, at most 1 GiB) and the rest is program, libraries, devices and [`ARENAS`]. Disks may have up to
/// 64 threads with stacks of 8 MiB, which are another 512 MiB and fill the arenas.
const OVERHEAD: Bytes = Bytes::mib(2560);
/// Further address space for each CPU: its thread's stack, and the emulator's state.
const PER_CPU: Bytes = Bytes::mib(16);
/// Arenas of the C library's allocator (`MALLOC_ARENA_MAX`). Each takes 64 MiB of address space, 128 while it
/// is made. Without this limit there would be up to eight for each CPU of the host.
const ARENAS: &str = "4";
/// Limit of open files. QEMU has some 30 open, and two more for each disk.
const FILES: u64 = 256;

/// Time between two checks of whether it has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Files that QEMU gets already open.
#[derive(Debug, Default)]
pub struct Files {
    files: Vec<OwnedFd>,
    /// An `-add-fd` option for each file that QEMU opens as `/dev/fdset/N`.
    options: Vec<String>,
    sets: u32,
}

impl Files {
    /// Adds a kernel or an initramfs, which QEMU opens again and only reads. The file's mode has to let
    /// everybody read it, as QEMU may run as another user. Returns its name for the command line.
    pub fn read(&mut self, file: File) -> String {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        self.files.push(file.into());
        path
    }

    /// Adds a file that is open only for writing. Returns its name for the command line.
    pub fn write(&mut self, file: File) -> String {
        self.set([file])
    }

    /// Adds a disk's image, open once for reading and once for writing, because QEMU opens it to read before
    /// a device says that it writes. Returns its name for the command line.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn disk(&mut self, path: &Path) -> Result<String, Error> {
        let open = |write| File::options().read(true).write(write).open(path).map_err(Error::io(path));
        Ok(self.set([open(false)?, open(true)?]))
    }

    /// Adds a set of open files. QEMU takes the one whose access mode it needs, and needs no permission for
    /// it.
    fn set<const COUNT: usize>(&mut self, files: [File; COUNT]) -> String {
        self.sets += 1;
        let set = self.sets;
        for file in files {
            self.options.extend(["-add-fd".to_owned(), format!("fd={},set={set}", file.as_raw_fd())]);
            self.files.push(file.into());
        }
        format!("/dev/fdset/{set}")
    }
}

/// Resources that a QEMU may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The guest's memory.
    pub memory: Bytes,
    /// The guest's CPUs.
    pub cpus: u32,
    /// Length of the longest file that it writes.
    pub file: Bytes,
}

impl Bounds {
    fn limits(self) -> Vec<(Limit, u64)> {
        let space = self.memory.0.saturating_add(OVERHEAD.0 + PER_CPU.0 * u64::from(self.cpus));
        vec![
            (Limit::AddressSpace, space),
            (Limit::Core, 0),
            (Limit::FileSize, self.file.0),
            (Limit::Files, FILES),
        ]
    }
}

/// Everything to start a QEMU with.
#[derive(Debug)]
pub struct Start<'a> {
    /// The command line, without the options that confine QEMU.
    pub arguments: &'a [String],
    /// The current directory, where [`LOG`] is made.
    pub directory: &'a Path,
    /// The standard input.
    pub input: Stdio,
    /// The standard output.
    pub output: Stdio,
    /// Files that QEMU gets.
    pub files: Files,
    /// Resources that it may use.
    pub bounds: Bounds,
    /// Whether it uses KVM: it is then put into the group that may open KVM.
    pub kvm: bool,
}

/// A running QEMU. It outlives neither this value nor the thread that started it, and so not this process
/// either: if this process is killed, the kernel kills QEMU
/// ([`PR_SET_PDEATHSIG`](https://man7.org/linux/man-pages/man2/pr_set_pdeathsig.2const.html)). Signals of the
/// terminal do not reach it.
#[derive(Debug)]
pub struct Qemu(Child);

impl Qemu {
    /// Starts QEMU. Its messages go to [`LOG`].
    ///
    /// # Errors
    /// If there is no QEMU, or only root may use it.
    pub fn start(start: Start<'_>) -> Result<Qemu, Error> {
        let Start { arguments, directory, input, output, files, bounds, kvm } = start;
        let filtered = unfiltered()?.is_none();
        let log = directory.join(LOG);
        let log = storage::create_new(&log, Access::Private).map_err(Error::io(log))?.into_file();
        let mut command = Command::new(PROGRAM);
        if filtered {
            command.args(SANDBOX);
        }
        command.args(files.options).args(arguments).current_dir(directory).process_group(0);
        command.stdin(input).stdout(output).stderr(log);
        command.env_clear().env("MALLOC_ARENA_MAX", ARENAS);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let user = user::user(kvm);
        let other = user.is_some();
        Confinement { user, limits: bounds.limits(), files: files.files }.apply(&mut command);
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied if other => Error::unusable(
                PROGRAM,
                "only root may execute it, and it does not run as root: let others execute it, in a directory \
                 that they may look into",
            ),
            _ => tool::not_started(PROGRAM, error),
        })?;
        Ok(Qemu(child))
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.0.try_wait().map_err(Error::io(PROGRAM))
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// If it fails, or runs longer than the limit; it is killed then.
    pub fn wait(mut self, limit: Duration) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                let program = PROGRAM.to_owned();
                return if status.success() {
                    Ok(())
                } else {
                    Err(Error::Failed { program, status, message: String::new() })
                };
            }
            if started.elapsed() > limit {
                return Err(Error::Late { seconds: limit.as_secs() });
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // The kill fails only if QEMU has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// First line of `qemu-system-x86_64 --version`.
///
/// # Errors
/// If there is no QEMU; the error names the package.
pub fn version() -> Result<String, Error> {
    let text = tool::output(Command::new(PROGRAM).arg("--version"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// The reason why QEMU runs without its filter for system calls; `None`: it has the filter. QEMU is asked
/// once per process.
///
/// # Errors
/// If there is no QEMU; the error names the package.
pub(crate) fn unfiltered() -> Result<Option<String>, Error> {
    static ANSWER: OnceLock<Option<String>> = OnceLock::new();
    if let Some(answer) = ANSWER.get() {
        return Ok(answer.clone());
    }
    // QEMU sets up the filter, lists its machines, and exits.
    let answer = match tool::output_bytes(Command::new(PROGRAM).args(SANDBOX).args(["-machine", "help"])) {
        Ok(_) => None,
        Err(Error::Failed { message, .. }) => Some(message.lines().next().unwrap_or_default().to_owned()),
        Err(error) => return Err(error),
    };
    Ok(ANSWER.get_or_init(|| answer).clone())
}

/// The last 15 lines of a console, each after two spaces.
pub fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(15)..].iter().map(|line| format!("  {}\n", line.trim_end())).collect()
}

/// A command line that can be pasted into a shell.
pub fn quoted(arguments: &[String]) -> String {
    let quote = |argument: &String| {
        if argument.contains(' ') { format!("'{argument}'") } else { argument.clone() }
    };
    arguments.iter().map(quote).collect::<Vec<_>>().join(" ")
}
