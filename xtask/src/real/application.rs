//! [`Application`]: a program of the distribution that can be started, asked and stopped.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lotsfree_lab::vm::tool;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::Result;
use super::host::User;

/// How long a server may take to start, to answer or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A program and its load, in the state that a trial provokes.
pub(crate) trait Application {
    /// Name and version, as the application prints them.
    fn version(&self) -> Result<String>;
    /// What is provoked, in one sentence.
    fn provoked(&self) -> String;
    /// The rule that has to name it.
    fn rule(&self) -> &'static str;
    /// What the finding's remedy has in it. Others that the same rule finds on this host are not followed.
    fn subject(&self) -> String {
        String::new()
    }
    /// Whether the finding tells what has happened, and stays when its cause is gone.
    fn has_happened(&self) -> bool {
        false
    }
    /// Variables with which commands reach the application.
    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// Starts it with the lines that a remedy makes last, and loads it.
    fn start(&mut self, kept: &[Lines]) -> Result<()>;
    /// What the application itself says of its memory.
    fn answer(&mut self) -> Result<Answer>;
    /// What the model says that the figure of the answer will be once the remedy is followed, with nothing
    /// but the state before to go by; `None` where it is not asked.
    fn expected(&self) -> Result<Option<Expected>> {
        Ok(None)
    }
    /// Whether it is better off: the figures of the two answers.
    fn is_better(&self, before: f64, after: f64) -> bool;
    /// Ends it; does nothing if it does not run.
    fn stop(&mut self) -> Result<()>;
}

/// Lines of a configuration file that a remedy names.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Lines {
    pub file: String,
    pub lines: Vec<String>,
}

/// The lines for a file, one below the other.
pub(crate) fn lines_for(kept: &[Lines], file: &str) -> String {
    let of_file = kept.iter().filter(|kept| kept.file == file).flat_map(|kept| &kept.lines);
    of_file.map(|line| format!("{line}\n")).collect()
}

/// What an application said.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// How it was asked.
    pub asked: String,
    /// Its words.
    pub said: String,
    /// The memory that the problem costs, in words.
    pub memory: String,
    /// What is compared; its unit is the application's own.
    pub figure: f64,
}

/// What the model says that an answer's figure will be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub figure: f64,
    /// What it is a number of.
    pub of: &'static str,
}

/// A process that is ended with the value.
pub(crate) struct Server {
    child: Child,
    name: String,
}

impl Server {
    /// Starts a program of which output and errors go to a file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        Ok(Server { child, name })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Result<Option<String>> {
        Ok(self.child.try_wait()?.map(|status| format!("{}: {status}", self.name)))
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    /// If the process ends before, or is not ready in time.
    pub(crate) fn wait_for(&mut self, mut ready: impl FnMut() -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !ready()? {
            if let Some(ended) = self.ended()? {
                return Err(ended.into());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} was not ready after {} s", self.name, PATIENCE.as_secs()).into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Asks it to end, and waits for that.
    pub(crate) fn end(mut self) -> Result<()> {
        if self.ended()?.is_none() {
            let id = i32::try_from(self.id())?;
            kill_process(Pid::from_raw(id).ok_or("no process id")?, Signal::TERM)?;
            let begun = Instant::now();
            while self.ended()?.is_none() {
                if begun.elapsed() > PATIENCE {
                    return Err(format!("{} does not end", self.name).into());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The kill fails only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs as another user.
pub(crate) fn command_as(program: impl AsRef<Path>, user: &User) -> Command {
    let mut command = Command::new(program.as_ref());
    command.uid(user.uid).gid(user.gid);
    command
}

/// What a command prints, without white space around it.
///
/// # Errors
/// If it fails; the error has what it wrote to standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    Ok(tool::output(command.stdin(Stdio::null()))?.trim().to_owned())
}

/// A field of `/proc/PID/status` or `/proc/meminfo`, in kB.
pub(crate) fn kilobytes(file: &str, field: &str) -> Result<u64> {
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("{file}: no {field}").into())
}

/// How much of a process is mapped in pages of a pool, touched or not, in kB.
pub(crate) fn huge_mappings(id: u32) -> Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{id}/maps"))?;
    let length = |line: &str| -> Option<u64> {
        let (first, last) = line.split_ascii_whitespace().next()?.split_once('-')?;
        Some((u64::from_str_radix(last, 16).ok()? - u64::from_str_radix(first, 16).ok()?) / 1024)
    };
    Ok(maps.lines().filter(|line| line.contains("anon_hugepage")).filter_map(length).sum())
}
