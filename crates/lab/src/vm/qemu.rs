//! [`Qemu`]: the process.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::{Error, tool};

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// Where the process writes its own messages, below its directory.
pub const LOG: &str = "qemu.log";

/// Between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(50);

/// A running QEMU, which outlives neither this value nor the thread that started it, and so not this process
/// either: should that be killed, the kernel kills QEMU, where `setpriv` can ask for it
/// ([`PR_SET_PDEATHSIG`](https://man7.org/linux/man-pages/man2/pr_set_pdeathsig.2const.html), of util-linux
/// since 2.33). Signals of the terminal do not reach it.
#[derive(Debug)]
pub struct Qemu(Child);

impl Qemu {
    /// Starts it with this command line, current directory, standard input and output. Its messages go to
    /// [`LOG`] there.
    ///
    /// # Errors
    /// If there is no QEMU.
    pub fn start(
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        directory: &Path,
        input: Stdio,
        output: Stdio,
    ) -> Result<Qemu, Error> {
        let log = directory.join(LOG);
        let log = File::create(&log).map_err(Error::io(log))?;
        let mut command = if dies_with_us() {
            // What setpriv cannot start would look like a failure of QEMU.
            version()?;
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", PROGRAM]);
            command
        } else {
            Command::new(PROGRAM)
        };
        let child = command
            .args(arguments)
            .current_dir(directory)
            .process_group(0)
            .stdin(input)
            .stdout(output)
            .stderr(log)
            .spawn()
            .map_err(|error| tool::not_started(PROGRAM, error))?;
        Ok(Qemu(child))
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.0.try_wait().map_err(Error::io(PROGRAM))
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// If it fails, or runs longer than the limit: then it is killed.
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
        // Fails only when it has ended already.
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

/// The last lines of a console, each after two spaces.
pub fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(15)..].iter().map(|line| format!("  {}\n", line.trim_end())).collect()
}

/// A command line as a shell takes it.
pub fn quoted(arguments: &[String]) -> String {
    let quote = |argument: &String| {
        if argument.contains(' ') { format!("'{argument}'") } else { argument.clone() }
    };
    arguments.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Whether `setpriv` can have a process killed with us.
fn dies_with_us() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| {
        tool::output_bytes(Command::new("setpriv").args(["--pdeathsig", "KILL", "true"])).is_ok()
    })
}
