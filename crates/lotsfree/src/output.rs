//! Writing: to the terminal, to a file as a whole, and complaints to standard error.

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

/// Columns where the terminal does not say.
const DEFAULT_WIDTH: usize = 100;

impl StyleArgs {
    /// Columns of text that goes to standard output, or elsewhere.
    pub(crate) fn columns(&self, to_stdout: bool) -> usize {
        let asked = self.width.map(usize::from);
        let terminal = || match to_stdout && io::stdout().is_terminal() {
            true => columns_of(io::stdout()),
            false => None,
        };
        asked.or_else(terminal).unwrap_or(DEFAULT_WIDTH)
    }

    /// Whether to colour it.
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

/// The columns of a terminal, if it says.
pub(crate) fn columns_of(terminal: impl rustix::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Whether the terminal can do no more than print.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

impl PageArgs {
    /// Columns of text.
    pub(crate) fn columns(&self) -> usize {
        self.style.columns(self.output.is_none())
    }

    /// Whether to colour.
    pub(crate) fn colored(&self) -> bool {
        self.style.colored(self.output.is_none())
    }

    /// Writes to the file that was asked for, as a whole or not at all, or to standard output.
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

/// Writes a file as a whole or not at all. A Ctrl-C meanwhile takes effect once the file is there.
///
/// # Errors
/// Names the file; [`Interrupted`].
pub(crate) fn save(path: &Path, access: Access, contents: &[u8]) -> anyhow::Result<()> {
    let signals = Signals::watch().context("cannot handle signals")?;
    lotsfree_storage::replace(path, access, contents)
        .with_context(|| format!("cannot write {}", path.display()))?;
    signals.code().map_or(Ok(()), |code| Err(Interrupted { code }.into()))
}

/// Ctrl-C came while a file was written, which is complete.
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
    // Not through `Stdout`, which takes "bad file descriptor" for success.
    let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    out.write_all(bytes).context("cannot write to standard output")
}

/// Refuses a standard output that was closed when the program began, before any work is done for it.
///
/// # Errors
/// If it was.
pub(crate) fn check_stdout() -> anyhow::Result<()> {
    anyhow::ensure!(
        lotsfree_sys::stdout_was_open(),
        "standard output is closed; redirect it to a file, or to /dev/null if nobody is to read it"
    );
    Ok(())
}

/// Prints the help that was asked for, or what is wrong with the arguments, and says with which code to exit.
pub(crate) fn usage(error: &clap::Error) -> u8 {
    let text = error.to_string();
    let printed = match error.use_stderr() {
        // An argument is quoted as it was given, and may be the name of a file.
        true if *visible(&text) != *text => io::stderr().write_all(visible(&text).as_bytes()),
        true => error.print(),
        // Standard output cannot tell whether it was written to, and a terminal can.
        false if io::stdout().is_terminal() => error.print(),
        false => match print(&text) {
            Err(error) if !is_broken_pipe(&error) => {
                complain(&error);
                return UNUSABLE;
            }
            _ => Ok(()),
        },
    };
    // If standard error is gone too there is nobody left to tell.
    drop(printed);
    u8::try_from(error.exit_code()).unwrap_or(UNUSABLE)
}

/// Whether an error only says that the reader of a pipe has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Errors of a scenario, a line each.
#[derive(Debug)]
pub(crate) struct Located(pub(crate) Vec<String>);

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for Located {}

/// Says what went wrong, with its causes, on standard error. Errors of a scenario are a line each, which
/// begins with the place, as editors read it.
pub(crate) fn complain(error: &anyhow::Error) {
    // If standard error is gone too there is nobody left to tell.
    let _ = match error.is::<Errors>() || error.is::<Located>() {
        true => writeln!(io::stderr(), "{}", visible(&error.to_string())),
        false => writeln!(io::stderr(), "lotsfree: {}", visible_line(&format!("{error:#}"))),
    };
}

/// Says something about the input on standard error, beside the report.
pub(crate) fn remark(note: &str) {
    let _ = writeln!(io::stderr(), "lotsfree: {}", visible_line(note));
}

/// Says how far a wait of more than a second has come, to a person only.
pub(crate) fn progress(seconds: f64, note: &str) {
    if seconds > 1.0 && io::stderr().is_terminal() {
        remark(note);
    }
}
