//! A line on standard error that says how far something has come.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Nothing is shown before this: most small scenarios are done by then.
const FIRST: Duration = Duration::from_millis(500);
/// Steps of the bar.
const STEPS: u64 = 1000;

/// A bar with a message, which a terminal redraws; elsewhere a new line from time to time.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    began: Instant,
    /// `None` where nothing can be redrawn.
    bar: Option<ProgressBar>,
    /// When the last line was printed.
    printed: Instant,
    /// Time between two lines where nothing can be redrawn.
    pause: Duration,
}

impl ProgressLine {
    /// `redraws`: whether to redraw the line if standard error is a terminal.
    pub(crate) fn new(redraws: bool, pause: Duration) -> Self {
        let now = Instant::now();
        let bar = (redraws && io::stderr().is_terminal() && !output::is_dumb()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:20} {wide_msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("█▌░"))
        });
        ProgressLine { began: now, bar, printed: now, pause }
    }

    /// Whether the line is redrawn, and so leaves nothing behind.
    pub(crate) fn is_redrawn(&self) -> bool {
        self.bar.is_some()
    }

    /// Shows that `share` of all, from 0 to 1, is done, if it is time to. `message` gets the time since the
    /// line was made.
    pub(crate) fn show(&mut self, share: f64, message: impl FnOnce(Duration) -> String) {
        let real = self.began.elapsed();
        match &self.bar {
            Some(bar) if real >= FIRST => {
                bar.set_message(message(real));
                bar.set_position((share * STEPS as f64) as u64);
            }
            Some(_) => {}
            None if self.printed.elapsed() >= self.pause => {
                self.printed = Instant::now();
                output::remark(&message(real));
            }
            None => {}
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `41 s`, `12 min`, `3.5 h`.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 600.0 => format!("{s:.0} s"),
        s if s < 36_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
