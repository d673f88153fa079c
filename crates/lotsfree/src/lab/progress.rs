//! How far the lab is, on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use lotsfree_lab::Stage;

use crate::output;

/// Between two lines where nothing can be redrawn.
const LINES: Duration = Duration::from_secs(15);
/// Between two looks where it can.
const REDRAW: Duration = Duration::from_millis(200);

/// How far the lab is.
#[derive(Debug)]
pub(super) struct Progress {
    durations: Vec<u64>,
    shown: Option<Instant>,
    redraws: bool,
    silent: bool,
}

impl Progress {
    /// Of runs that take so many nanoseconds each.
    pub(super) fn new(durations: Vec<u64>, silent: bool) -> Self {
        let redraws = io::stderr().is_terminal() && !output::is_dumb();
        Progress { durations, shown: None, redraws, silent: silent && !redraws }
    }

    /// A run is at this stage.
    pub(super) fn show(&mut self, run: usize, stage: Stage) {
        let pause = if self.redraws { REDRAW } else { LINES };
        if self.silent || self.shown.is_some_and(|shown| shown.elapsed() < pause) {
            return;
        }
        self.shown = Some(Instant::now());
        let of = self.durations.get(run).copied().unwrap_or(0) as f64 / 1e9;
        let what = match stage {
            Stage::Preparing => "getting ready".to_owned(),
            Stage::At(ns) => format!("{:.0} of {of:.0} s", ns as f64 / 1e9),
        };
        let line = format!("run {} of {}: {what}", run + 1, self.durations.len());
        // What cannot be shown is not worth an error.
        let _ = match self.redraws {
            true => write!(io::stderr(), "\r\x1b[K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.redraws && self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
