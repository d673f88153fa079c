//! [`Running`]: a guest that has been started.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lotsfree_storage::open_regular;

use super::monitor::Monitor;
use super::qemu::{Bounds, Files, Start};
use super::scratch::Scratch;
use super::{Accelerator, Disk, Error, Qemu, qemu};

/// The guest's console, in the scratch directory.
pub(crate) const CONSOLE: &str = "console";

/// Bytes of the console that are read, from its end: a guest may write without end.
const CONSOLE_SHOWN: u64 = 4 << 20;
/// Bytes of QEMU's messages that are shown.
const LOG_SHOWN: u64 = 64 << 10;

/// Time between two checks of the guest.
const LOOK: Duration = Duration::from_millis(100);

/// The signal that no process can handle.
const SIGKILL: i32 = 9;

/// Lines of a console after which nothing more will come.
const ENDS: &[&str] = &["Kernel panic - not syncing", "Out of memory and no killable processes"];

/// The platform of a guest, for a run's facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How the guest's instructions are executed.
    pub accelerator: Accelerator,
    /// First line of `qemu-system-x86_64 --version`.
    pub qemu: String,
    /// The kernel's release.
    pub kernel: String,
    /// QEMU's command line, without directories.
    pub command: String,
    /// Why QEMU runs without its filter for system calls, if it does.
    pub unfiltered: Option<String>,
}

/// QEMU's command line, files and bounds for a guest.
#[derive(Debug)]
pub(crate) struct Boot {
    pub(crate) arguments: Vec<String>,
    pub(crate) files: Files,
    pub(crate) bounds: Bounds,
    /// The directory of the machine, which is removed when it has ended.
    pub(crate) scratch: Scratch,
}

/// A guest that has been started. It ends with this value, and with this process.
#[derive(Debug)]
pub struct Running {
    data: UnixStream,
    /// Taken when the disks are throttled.
    monitor: Mutex<Option<UnixStream>>,
    disks: Vec<Disk>,
    facts: Facts,
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<Result<Ended, Error>>>,
}

/// The result of a guest that powered itself off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Time from the start of QEMU to its end.
    pub elapsed: Duration,
    /// The end of the guest's console, up to 4 MiB.
    pub console: String,
}

impl Running {
    /// Starts QEMU.
    pub(crate) fn start(
        boot: Boot,
        disks: Vec<Disk>,
        facts: Facts,
        limit: Duration,
    ) -> Result<Running, Error> {
        let (data, input) = UnixStream::pair().map_err(Error::io("socket"))?;
        let (monitor, output) = UnixStream::pair().map_err(Error::io("socket"))?;
        let (stop, stopped) = channel();
        let (report, started) = channel();
        let kvm = facts.accelerator == Accelerator::Kvm;
        // The kernel kills QEMU when the thread that started it ends, so that thread has to live as long as
        // QEMU.
        let keep = move || {
            let started = Instant::now();
            let [input, output] = [input, output].map(|end| Stdio::from(OwnedFd::from(end)));
            let Boot { arguments, files, bounds, scratch } = boot;
            let directory = scratch.path();
            let start = Start { arguments: &arguments, directory, input, output, files, bounds, kvm };
            let qemu = match Qemu::start(start) {
                Ok(qemu) => qemu,
                Err(error) => {
                    let _ = report.send(false);
                    return Err(error);
                }
            };
            let _ = report.send(true);
            let ended = watch(qemu, scratch.path(), &stopped, limit);
            let console = console(scratch.path());
            let last = |lines: &str| {
                let log = end_of(&scratch.path().join(qemu::LOG), LOG_SHOWN);
                format!("{}{log}", qemu::tail(lines))
            };
            match (ended, last_words(&console)) {
                (Ok(()), None) => Ok(Ended { elapsed: started.elapsed(), console }),
                (_, Some(line)) => Err(Error::Panic { line, console: last(until_last_words(&console)) }),
                (Err(why), None) => Err(Error::Guest { why, console: last(&console) }),
            }
        };
        let keeper = std::thread::Builder::new().name("qemu".to_owned()).spawn(keep);
        let keeper = keeper.map_err(Error::io("thread"))?;
        let monitor = Mutex::new(Some(monitor));
        let running = Running { data, monitor, disks, facts, stop: Some(stop), keeper: Some(keeper) };
        if started.recv() == Ok(true) {
            Ok(running)
        } else {
            Err(running.wait().err().unwrap_or(Error::Stopped))
        }
    }

    /// The data channel, from which data that the guest writes are read, and the reverse. Reading ends when
    /// the guest does; [`wait`](Running::wait) says why it ended.
    pub fn data(&self) -> &UnixStream {
        &self.data
    }

    /// The platform that the guest runs on.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Throttles the disks to the scenario's speed, if they are [not throttled yet](super::Guest::throttled).
    ///
    /// # Errors
    /// If QEMU is gone, or refuses the command.
    pub fn throttle(&self) -> Result<(), Error> {
        let stream = self.monitor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(stream) = stream else { return Ok(()) };
        let mut monitor = Monitor::new(stream)?;
        self.disks.iter().try_for_each(|disk| monitor.throttle(disk))
    }

    /// Waits until the guest has powered itself off. Read the data channel before, or in another thread
    /// (`data().try_clone()`): a guest blocks when nobody takes its data.
    ///
    /// # Errors
    /// If QEMU failed, the kernel panicked, or the guest took too long. The error ends with the last lines of
    /// the console.
    pub fn wait(mut self) -> Result<Ended, Error> {
        match self.keeper.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) | None => Err(Error::Stopped),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The keeper sees that the sender is gone, and ends QEMU.
        self.stop = None;
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Waits for the end of a guest; the error says why it was not an ordinary end.
fn watch(mut qemu: Qemu, scratch: &Path, stopped: &Receiver<()>, limit: Duration) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let ended = qemu.ended().map_err(|error| error.to_string())?;
        match ended {
            // The guest is lost; nothing more will come.
            _ if last_words(&console(scratch)).is_some() => return Ok(()),
            Some(status) if status.success() => return Ok(()),
            Some(status) if status.signal() == Some(SIGKILL) => return Err(killed()),
            Some(status) => return Err(format!("{}: {status}", qemu::PROGRAM)),
            None if started.elapsed() > limit => {
                return Err(format!("not finished after {} s", limit.as_secs_f64()));
            }
            None => {}
        }
        if stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
            return Err("stopped".to_owned());
        }
    }
}

/// Whoever killed QEMU leaves no reason with it.
fn killed() -> String {
    format!(
        "{} was killed from outside (SIGKILL), by somebody or by the OOM killer of this host (its kernel log \
         says so)",
        qemu::PROGRAM
    )
}

/// The line of a guest's console that says that the guest is lost.
fn last_words(console: &str) -> Option<String> {
    let line = console.lines().find(|line| ENDS.iter().any(|end| line.contains(end)))?;
    Some(line.trim().to_owned())
}

/// A console up to the line of [`last_words`]. The cause is in the lines before it; the stack that follows
/// says little.
fn until_last_words(console: &str) -> &str {
    let end = ENDS.iter().filter_map(|end| console.find(end)).min().unwrap_or(console.len());
    console[end..].find('\n').map_or(console, |rest| &console[..end + rest])
}

pub(crate) fn console(scratch: &Path) -> String {
    end_of(&scratch.join(CONSOLE), CONSOLE_SHOWN)
}

/// Returns the last `bytes` bytes of a file, or an empty text if it cannot be read.
fn end_of(path: &Path, bytes: u64) -> String {
    let read = || {
        let mut file = open_regular(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes)))?;
        let mut end = Vec::new();
        file.take(bytes).read_to_end(&mut end)?;
        Ok::<_, io::Error>(end)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_guest_is_known_by_its_console() {
        let console =
            "[    1.0] systemd\r\n[    2.0] Kernel panic - not syncing: VFS: no root\r\n[    2.1] CPU: 0\r\n";
        let line = "[    2.0] Kernel panic - not syncing: VFS: no root";
        assert_eq!(last_words(console).as_deref(), Some(line));
        assert!(until_last_words(console).ends_with("no root\r"));
        assert_eq!(until_last_words("a\nb\n"), "a\nb\n");
        assert!(last_words("Out of memory and no killable processes...\n").is_some());
        assert_eq!(last_words("Out of memory: Killed process 7 (graphdb)\n"), None);
    }

    #[test]
    fn of_a_console_without_end_the_end_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(CONSOLE);
        assert_eq!(console(directory.path()), "");
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(100 << 30).expect("sparse");
        std::os::unix::fs::FileExt::write_all_at(&file, b"the end", (100 << 30) - 7).expect("written");
        let console = console(directory.path());
        assert_eq!(console.len() as u64, CONSOLE_SHOWN);
        assert!(console.ends_with("the end"));
    }
}
