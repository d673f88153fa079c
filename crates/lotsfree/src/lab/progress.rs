//! How far the lab is.

use std::time::Duration;

use lotsfree_lab::Stage;

use crate::progress::ProgressLine;

/// Time between two lines where nothing can be redrawn.
const LINES: Duration = Duration::from_secs(15);

/// Progress of the lab.
#[derive(Debug)]
pub(super) struct Progress {
    /// Of each run, in nanoseconds.
    durations: Vec<u64>,
    /// `None`: nothing is to be shown.
    line: Option<ProgressLine>,
}

impl Progress {
    /// Of runs that take this many nanoseconds each. `silent`: show nothing that would stay.
    pub(super) fn new(durations: Vec<u64>, silent: bool) -> Self {
        let line = Some(ProgressLine::new(true, LINES)).filter(|line| !silent || line.is_redrawn());
        Progress { durations, line }
    }

    /// Shows that a run is at this stage.
    pub(super) fn show(&mut self, run: usize, stage: Stage) {
        let Some(line) = &mut self.line else { return };
        let of = self.durations.get(run).copied().unwrap_or(0) as f64 / 1e9;
        let at = match stage {
            Stage::Preparing => 0.0,
            Stage::At(ns) => ns as f64 / 1e9,
        };
        let (run, runs) = (run as f64, self.durations.len());
        let share = (run + (at / of.max(1e-9)).min(1.0)) / runs.max(1) as f64;
        line.show(share, |_| {
            let what = match stage {
                Stage::Preparing => "getting ready".to_owned(),
                Stage::At(_) => format!("{at:.0} of {of:.0} s"),
            };
            format!("run {} of {runs}: {what}", run + 1.0)
        });
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        if let Some(line) = &self.line {
            line.clear();
        }
    }
}
