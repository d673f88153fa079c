//! Writing: to the terminal, to a file as a whole, and complaints to standard error.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;

use crate::cli::{Color, PageArgs};

/// Columns where the terminal does not say.
const DEFAULT_WIDTH: usize = 100;

impl PageArgs {
    /// Columns of text.
    pub(crate) fn columns(&self) -> usize {
        let asked = self.width.map(usize::from);
        let terminal = || match self.output.is_none() && io::stdout().is_terminal() {
            true => rustix::termios::tcgetwinsize(io::stdout())
                .ok()
                .map(|size| usize::from(size.ws_col))
                .filter(|&n| n > 0),
            false => None,
        };
        asked.or_else(terminal).unwrap_or(DEFAULT_WIDTH)
    }

    /// Whether to colour.
    pub(crate) fn colored(&self) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
                    || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
                self.output.is_none() && io::stdout().is_terminal() && !plain
            }
        }
    }

    /// Writes to the file that was asked for, as a whole or not at all, or to standard output.
    ///
    /// # Errors
    /// Names the file.
    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        match &self.output {
            None => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()?;
                Ok(())
            }
            Some(path) => lotsfree_snapshot::source::archive::write_atomically(path, text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display())),
        }
    }
}

/// Whether an error only says that the reader of a pipe has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Says what went wrong, with its causes, on standard error.
pub(crate) fn complain(error: &anyhow::Error) {
    // If standard error is gone too there is nobody left to tell.
    let _ = writeln!(io::stderr(), "lotsfree: {error:#}");
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
