//! How far the lab is.

use std::time::{Duration, Instant};

use lotsfree_lab::Stage;

use crate::progress::{ProgressLine, seconds};

/// Time between two lines where nothing can be redrawn.
const LINES: Duration = Duration::from_secs(15);

/// Progress of the lab.
#[derive(Debug)]
pub(super) struct Progress {
    plan: Plan,
    /// `None`: nothing is to be shown.
    line: Option<ProgressLine>,
    /// The run that was shown last, and when that was first done.
    run: usize,
    begun: Instant,
    /// Whether that run has been made ready.
    is_ready: bool,
}

impl Progress {
    /// Of runs that take this many nanoseconds each. `silent`: show nothing that would stay.
    pub(super) fn new(durations: Vec<u64>, silent: bool) -> Self {
        let line = Some(ProgressLine::new(true, LINES)).filter(|line| !silent || line.is_redrawn());
        let durations = durations.into_iter().map(|ns| ns as f64 / 1e9).collect();
        let plan = Plan { durations, preparations: Vec::new() };
        Progress { plan, line, run: 0, begun: Instant::now(), is_ready: false }
    }

    /// Shows that a run is at this stage.
    pub(super) fn show(&mut self, run: usize, stage: Stage) {
        if run != self.run {
            (self.run, self.begun, self.is_ready) = (run, Instant::now(), false);
        }
        let elapsed = self.begun.elapsed().as_secs_f64();
        let at = match stage {
            Stage::Preparing => None,
            Stage::At(ns) => Some(ns as f64 / 1e9),
        };
        if let (Some(at), false) = (at, self.is_ready) {
            self.is_ready = true;
            self.plan.preparations.push((elapsed - at).max(0.0));
        }
        let plan = &self.plan;
        if let Some(line) = &mut self.line {
            line.show(plan.share(run, at, elapsed), |_| plan.line(run, at, elapsed));
        }
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        if let Some(line) = &self.line {
            line.clear();
        }
    }
}

/// What has to be done, and how long making ready has taken so far. All in seconds. A kernel takes as long
/// for a run as the scenario says; only making ready (booting, writing files) is not known before it was done
/// once.
#[derive(Debug)]
struct Plan {
    durations: Vec<f64>,
    preparations: Vec<f64>,
}

impl Plan {
    /// The time that making a run ready takes; 0 if that is not known yet.
    fn preparation(&self) -> f64 {
        self.preparations.iter().sum::<f64>() / self.preparations.len().max(1) as f64
    }

    /// The time that is left when a run has reached `at`, or has been made ready for `elapsed` seconds.
    fn left(&self, run: usize, at: Option<f64>, elapsed: f64) -> f64 {
        let own = self.durations.get(run).copied().unwrap_or(0.0);
        let own = match at {
            Some(at) => (own - at).max(0.0),
            None => (self.preparation() - elapsed).max(0.0) + own,
        };
        let later = self.durations.iter().skip(run + 1);
        own + later.map(|duration| self.preparation() + duration).sum::<f64>()
    }

    fn share(&self, run: usize, at: Option<f64>, elapsed: f64) -> f64 {
        let all: f64 = self.durations.iter().map(|duration| self.preparation() + duration).sum();
        (1.0 - self.left(run, at, elapsed) / all.max(1e-9)).clamp(0.0, 1.0)
    }

    /// `run 2 of 6: 12 of 40 s, about 5 min left`.
    fn line(&self, run: usize, at: Option<f64>, elapsed: f64) -> String {
        let what = match at {
            Some(at) => {
                format!("{at:.0} of {}", seconds(self.durations.get(run).copied().unwrap_or(0.0)))
            }
            None => format!("getting ready for {elapsed:.0} s"),
        };
        let left = seconds(self.left(run, at, elapsed));
        // The first run's preparation may take any time, so only the rest is known.
        let left =
            if self.preparations.is_empty() { format!("then {left}") } else { format!("about {left} left") };
        format!("run {} of {}: {what}, {left}", run + 1, self.durations.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_long_a_guest_has_been_getting_ready_and_what_is_left() {
        let mut plan = Plan { durations: vec![75.0, 75.0], preparations: Vec::new() };
        assert_eq!(plan.line(0, None, 45.0), "run 1 of 2: getting ready for 45 s, then 150 s");
        assert_eq!(plan.share(0, None, 45.0), 0.0);
        plan.preparations.push(103.0);
        // A third of the run: 50 s of it, and another one with what it takes to be made ready.
        assert_eq!(plan.line(0, Some(25.0), 128.0), "run 1 of 2: 25 of 75 s, about 228 s left");
        assert_eq!(plan.line(1, None, 3.0), "run 2 of 2: getting ready for 3 s, about 175 s left");
        assert_eq!(plan.line(1, Some(75.0), 200.0), "run 2 of 2: 75 of 75 s, about 0.0 s left");
        assert_eq!(plan.share(1, Some(75.0), 200.0), 1.0);
    }
}
