//! How far simulations have come.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

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
        let left = match share > 0.02 && share < 1.0 {
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

/// `41 s`, `12 min`, `3.5 h`.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 600.0 => format!("{s:.0} s"),
        s if s < 36_000.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
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
