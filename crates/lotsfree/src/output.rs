//! Writing: to the terminal, to a file as a whole, and complaints to standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use anyhow::Context;

use lotsfree_scenario::Errors;

use crate::cli::{Color, PageArgs, StyleArgs};

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
            Some(path) => lotsfree_snapshot::source::archive::write_atomically(path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display())),
        }
    }
}

/// Writes to standard output.
///
/// # Errors
/// If it cannot be written to.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
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
        true => writeln!(io::stderr(), "{error}"),
        false => writeln!(io::stderr(), "lotsfree: {error:#}"),
    };
}

/// Says something about the input on standard error, beside the report.
pub(crate) fn remark(note: &str) {
    let _ = writeln!(io::stderr(), "lotsfree: {note}");
}

/// Says how far a wait of more than a second has come, to a person only.
pub(crate) fn progress(seconds: f64, note: &str) {
    if seconds > 1.0 && io::stderr().is_terminal() {
        remark(note);
    }
}
