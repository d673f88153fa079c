//! How far simulations have come, on standard error.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::output;

/// Time between two lines where nothing can be redrawn, and until the first.
const LINES: Duration = Duration::from_secs(5);
/// Nothing is shown before: most small scenarios are done by then.
const PATIENCE: Duration = Duration::from_millis(500);
/// Columns of the bar.
const BAR: usize = 20;

/// How far simulations have come; they tell, one thread shows.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Nanoseconds that each case has simulated, and that it will.
    cases: Vec<(AtomicU64, u64)>,
    running: AtomicUsize,
    finished: AtomicUsize,
}

impl Progress {
    /// Of cases that will simulate so many nanoseconds each.
    pub(crate) fn new(durations: impl IntoIterator<Item = u64>) -> Self {
        let cases = durations.into_iter().map(|duration| (AtomicU64::new(0), duration)).collect();
        Progress { cases, running: AtomicUsize::new(0), finished: AtomicUsize::new(0) }
    }

    /// A case begins.
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// A case has come to this time.
    pub(crate) fn at(&self, case: usize, ns: u64) {
        if let Some((now, _)) = self.cases.get(case) {
            now.store(ns, Ordering::Relaxed);
        }
    }

    /// A case has ended.
    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    /// The share of all simulated time that is done, from 0 to 1.
    fn share(&self) -> f64 {
        let (mut done, mut all) = (0.0, 0.0);
        for (now, duration) in &self.cases {
            done += now.load(Ordering::Relaxed).min(*duration) as f64;
            all += *duration as f64;
        }
        if all > 0.0 { done / all } else { 1.0 }
    }

    /// `2 of 6 runs done, 2 running · 41 of 120 s simulated · 3 s real, about 6 s left`, in so many columns.
    fn line(&self, real: Duration, columns: usize) -> String {
        let share = self.share();
        let all = self.cases.iter().map(|(_, duration)| *duration as f64 / 1e9).sum::<f64>();
        let finished = self.finished.load(Ordering::Relaxed);
        let mut parts = vec![format!("{finished} of {} runs", self.cases.len())];
        parts.push(format!("{} of {} simulated", seconds(all * share), seconds(all)));
        let mut clock = format!("{} real", seconds(real.as_secs_f64()));
        if share > 0.02 && share < 1.0 {
            clock += &format!(", about {} left", seconds(real.as_secs_f64() * (1.0 - share) / share));
        }
        parts.push(clock);
        parts.push(format!("{} running", self.running.load(Ordering::Relaxed)));
        while parts.len() > 1 && parts.join(" · ").chars().count() > columns {
            parts.pop();
        }
        parts.join(" · ").chars().take(columns).collect()
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

/// Shows progress: a line that is redrawn on a terminal, elsewhere a new one every few seconds.
#[derive(Debug)]
pub(crate) struct Display {
    began: Instant,
    /// Whether the line is redrawn.
    redraw: bool,
    /// When the last line was printed.
    last: Instant,
    /// Whether there is a line to be removed.
    drawn: bool,
}

impl Display {
    /// `lines`: never redraw.
    pub(crate) fn new(lines: bool) -> Self {
        let now = Instant::now();
        let redraw = !lines && io::stderr().is_terminal() && !output::is_dumb();
        Display { began: now, redraw, last: now, drawn: false }
    }

    /// Shows how far all have come, if it is time to.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let real = self.began.elapsed();
        // If standard error is gone there is nobody to show it to.
        if self.redraw {
            if real < PATIENCE {
                return;
            }
            let columns = output::columns_of(io::stderr()).unwrap_or(80).saturating_sub(1);
            let mut line = String::new();
            if columns >= 60 {
                let filled = ((progress.share() * BAR as f64) as usize).min(BAR);
                line = format!("{}{} ", "█".repeat(filled), "░".repeat(BAR - filled));
            }
            line += &progress.line(real, columns.saturating_sub(line.chars().count()));
            let _ = write!(io::stderr(), "\r{line}\u{1b}[K").and_then(|()| io::stderr().flush());
            self.drawn = true;
        } else if self.last.elapsed() >= LINES {
            self.last = Instant::now();
            output::remark(&progress.line(real, 200));
        }
    }

    /// Removes the line.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\u{1b}[K").and_then(|()| io::stderr().flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_all_have_come() {
        let progress = Progress::new([60_000_000_000, 60_000_000_000]);
        assert_eq!(
            progress.line(Duration::ZERO, 200),
            "0 of 2 runs · 0.0 s of 120 s simulated · 0.0 s real · 0 running"
        );
        progress.begin();
        progress.at(0, 60_000_000_000);
        progress.end();
        progress.begin();
        let real = Duration::from_secs(15);
        assert_eq!(
            progress.line(real, 200),
            "1 of 2 runs · 60 s of 120 s simulated · 15 s real, about 15 s left · 1 running"
        );
        assert_eq!(progress.line(real, 45), "1 of 2 runs · 60 s of 120 s simulated");
        assert_eq!(progress.line(real, 6), "1 of 2");
        // A run may say a time past its end; nothing is more than done.
        progress.at(1, u64::MAX);
        assert_eq!(progress.share(), 1.0);
        assert_eq!(Progress::new([]).share(), 1.0);
    }
}
