//! Output to the terminal and to files, and messages on standard error.

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::Context;
use lotsfree_scenario::Errors;
use lotsfree_storage::Access;
use lotsfree_units::{visible, visible_line};

use crate::UNUSABLE;
use crate::cli::{Color, PageArgs, StyleArgs};
use crate::signals::Signals;

/// Width in columns if the terminal does not report one.
const DEFAULT_WIDTH: usize = 100;

impl StyleArgs {
    /// Width in columns of text, for standard output or for another destination.
    pub(crate) fn columns(&self, to_stdout: bool) -> usize {
        let asked = self.width.map(usize::from);
        let terminal = || match to_stdout && io::stdout().is_terminal() {
            true => columns_of(io::stdout()),
            false => None,
        };
        asked.or_else(terminal).unwrap_or(DEFAULT_WIDTH)
    }

    /// Whether to colour the text.
    pub(crate) fn colored(&self, to_stdout: bool) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || is_dumb();
                to_stdout && io::stdout().is_terminal() && !plain
            }
        }
    }
}

/// The width of a terminal in columns, if it reports one.
pub(crate) fn columns_of(terminal: impl rustix::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Whether the terminal can only print, not move the cursor.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

impl PageArgs {
    /// Width of the text in columns.
    pub(crate) fn columns(&self) -> usize {
        self.style.columns(self.output.is_none())
    }

    /// Whether to colour the text.
    pub(crate) fn colored(&self) -> bool {
        self.style.colored(self.output.is_none())
    }

    /// Writes to the requested file, completely or not at all, or to standard output.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        match &self.output {
            None => print(text),
            Some(path) => save(path, Access::Umask, text.as_bytes()),
        }
    }
}

/// Writes a file, completely or not at all. A Ctrl-C in the meantime takes effect once the file is complete.
///
/// # Errors
/// Names the file; [`Interrupted`].
pub(crate) fn save(path: &Path, access: Access, contents: &[u8]) -> anyhow::Result<()> {
    let signals = Signals::watch().context("cannot handle signals")?;
    lotsfree_storage::replace(path, access, contents)
        .with_context(|| format!("cannot write {}", path.display()))?;
    signals.code().map_or(Ok(()), |code| Err(Interrupted { code }.into()))
}

/// Ctrl-C came while a file was written; the file is complete.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted {
    pub(crate) code: u8,
}

/// Writes text to standard output.
///
/// # Errors
/// As [`print_bytes`].
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes to standard output.
///
/// # Errors
/// If it is closed or cannot be written to.
pub(crate) fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    check_stdout()?;
    // `Stdout` is not used, because it treats "bad file descriptor" as success.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    out.write_all(bytes).context("cannot write to standard output")
}

/// Refuses to continue if standard output was closed when the program began, before any work is done for it.
///
/// # Errors
/// If standard output was closed.
pub(crate) fn check_stdout() -> anyhow::Result<()> {
    anyhow::ensure!(
        lotsfree_sys::stdout_was_open(),
        "standard output is closed; redirect it to a file, or to /dev/null if nobody is to read it"
    );
    Ok(())
}

/// Prints the requested help or the error in the arguments, and returns the exit code.
pub(crate) fn usage(error: &clap::Error) -> u8 {
    let text = error.to_string();
    let printed = match error.use_stderr() {
        // An argument is quoted as it was given, and may be the name of a hostile file.
        true if *visible(&text) != *text => io::stderr().write_all(visible(&text).as_bytes()),
        true => error.print(),
        // Writing help to standard output reports no errors, so it is used only on a terminal.
        false if io::stdout().is_terminal() => error.print(),
        false => match print(&text) {
            Err(error) if !is_broken_pipe(&error) => {
                complain(&error);
                return UNUSABLE;
            }
            _ => Ok(()),
        },
    };
    // If standard error is gone too, the error cannot be reported.
    drop(printed);
    u8::try_from(error.exit_code()).unwrap_or(UNUSABLE)
}

/// Whether an error only says that the reader of a pipe has closed it.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Errors of a scenario, one per line.
#[derive(Debug)]
pub(crate) struct Located(pub(crate) Vec<String>);

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Located {}

/// Prints an error with its causes on standard error. Errors of a scenario are one per line, each beginning
/// with its place, in the form that editors read.
pub(crate) fn complain(error: &anyhow::Error) {
    // If standard error is gone too, the error cannot be reported.
    let _ = match error.is::<Errors>() || error.is::<Located>() {
        true => writeln!(io::stderr(), "{}", visible(&error.to_string())),
        false => writeln!(io::stderr(), "lotsfree: {}", visible_line(&format!("{error:#}"))),
    };
}

/// Prints a note about the input on standard error, beside the report.
pub(crate) fn remark(note: &str) {
    let _ = writeln!(io::stderr(), "lotsfree: {}", visible_line(note));
}

/// Prints the progress of a wait of more than a second, if standard error is a terminal.
pub(crate) fn progress(seconds: f64, note: &str) {
    if seconds > 1.0 && io::stderr().is_terminal() {
        remark(note);
    }
}
