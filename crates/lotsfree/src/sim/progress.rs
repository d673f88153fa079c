//! How far simulations have come.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::progress::seconds;

/// No time left is estimated before this: a short simulation is done by then.
const FIRST_ESTIMATE: Duration = Duration::from_secs(3);

/// Progress of simulations: they record it, and one thread shows it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// For each case, the nanoseconds that it has simulated and its duration.
    cases: Vec<(AtomicU64, u64)>,
    running: AtomicUsize,
    finished: AtomicUsize,
}

impl Progress {
    /// Progress of cases with these durations, in nanoseconds.
    pub(crate) fn new(durations: impl IntoIterator<Item = u64>) -> Self {
        let cases = durations.into_iter().map(|duration| (AtomicU64::new(0), duration)).collect();
        Progress { cases, running: AtomicUsize::new(0), finished: AtomicUsize::new(0) }
    }

    /// Records that a case begins.
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the time that a case has reached.
    pub(crate) fn at(&self, case: usize, ns: u64) {
        if let Some((now, _)) = self.cases.get(case) {
            now.store(ns, Ordering::Relaxed);
        }
    }

    /// Records that a case has ended.
    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// The share of all simulated time that is done, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        let (mut done, mut all) = (0.0, 0.0);
        for (now, duration) in &self.cases {
            done += now.load(Ordering::Relaxed).min(*duration) as f64;
            all += *duration as f64;
        }
        if all > 0.0 { done / all } else { 1.0 }
    }

    /// `2 of 6 runs · 41 s of 120 s simulated · 3.0 s real, about 6.0 s left · 2 running`.
    pub(crate) fn line(&self, real: Duration) -> String {
        let share = self.share();
        let all = self.cases.iter().map(|(_, duration)| *duration as f64 / 1e9).sum::<f64>();
        // The first simulated seconds are those before anything happens, and say little of the rest.
        let left = match real >= FIRST_ESTIMATE && share > 0.02 && share < 1.0 {
            true => format!(", about {} left", seconds(real.as_secs_f64() * (1.0 - share) / share)),
            false => String::new(),
        };
        format!(
            "{} of {} runs · {} of {} simulated · {} real{left} · {} running",
            self.finished.load(Ordering::Relaxed),
            self.cases.len(),
            seconds(all * share),
            seconds(all),
            seconds(real.as_secs_f64()),
            self.running.load(Ordering::Relaxed)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_all_have_come() {
        let progress = Progress::new([60_000_000_000, 60_000_000_000]);
        assert_eq!(
            progress.line(Duration::ZERO),
            "0 of 2 runs · 0.0 s of 120 s simulated · 0.0 s real · 0 running"
        );
        progress.begin();
        progress.at(0, 60_000_000_000);
        progress.end();
        progress.begin();
        let early = progress.line(Duration::from_millis(400));
        assert_eq!(early, "1 of 2 runs · 60 s of 120 s simulated · 0.4 s real · 1 running");
        let real = Duration::from_secs(15);
        assert_eq!(
            progress.line(real),
            "1 of 2 runs · 60 s of 120 s simulated · 15 s real, about 15 s left · 1 running"
        );
        // A run may say a time past its end; nothing is more than done.
        progress.at(1, u64::MAX);
        assert_eq!(progress.share(), 1.0);
        assert_eq!(Progress::new([]).share(), 1.0);
    }
}
