//! How much of the time the tracepoints are on, so that watching stays cheap.
//!
//! A hit costs the task that makes it some 80 ns, and a record another 250 ns for both sides (6.18 in a
//! virtual machine; `docs/blame.md` has the measurement). What they and this process take together is held
//! below a budget by leaving each set of tracepoints off between its windows.

use std::time::Duration;

use crate::tracepoints::{SETS, Set};

/// The parts of the budget that watching memory and waits may take. A quarter is kept for what the estimate
/// does not know.
const PARTS: [f64; SETS] = [0.5, 0.25];
/// Seconds of CPU time that a hit costs the task that makes it.
const HIT: f64 = 80e-9;
/// Seconds of CPU time that writing a record costs the task that makes the hit. What reading it costs is
/// measured.
const RECORD: f64 = 150e-9;
/// The least part of the time. Below it an interval of a second would have too few windows to tell a share.
const LEAST: f64 = 0.03;
/// The longest from the begin of a window to that of the next. What an interval without a window held, nobody
/// knows.
const CYCLE: Duration = Duration::from_millis(500);
/// The longest window of memory and of waits, and the shortest.
const LONGEST: [Duration; SETS] = [Duration::from_millis(100), Duration::from_millis(30)];
const SHORTEST: Duration = Duration::from_millis(4);

/// What a window cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Hits of all tracepoints.
    pub(crate) hits: u64,
    /// Records that were written.
    pub(crate) records: u64,
    /// Records for which the buffers had no room.
    pub(crate) lost: u64,
    /// CPU time of this process for the records.
    pub(crate) own: Duration,
}

impl Cost {
    /// CPU time of both sides, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.hits as f64 * HIT + self.records as f64 * RECORD + self.own.as_secs_f64()
    }
}

/// The next window, and the pause before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Duty {
    pub(crate) window: Duration,
    pub(crate) pause: Duration,
    /// CPU time and length of the windows so far, in seconds, of which each counts for more than those
    /// before it.
    cost: f64,
    on: f64,
    /// The part of one CPU that it may take.
    most: f64,
    longest: Duration,
    /// The longest from the begin of a window to that of the next.
    cycle: Duration,
}

/// What the windows before count for, beside the last.
const MEMORY: f64 = 0.8;

impl Duty {
    /// The duty of a set at first, where all sets together may take this part of one CPU.
    pub(crate) fn of(set: Set, budget: f64) -> Duty {
        let (most, longest) = (PARTS[set as usize] * budget, LONGEST[set as usize]);
        // The first window is short, as nobody knows yet what it costs.
        let (window, pause) = (Duration::from_millis(10), Duration::ZERO);
        Duty { window, pause, cost: 0.0, on: 0.0, most, longest, cycle: CYCLE }
    }

    /// Has two windows in each interval of a length, at least. In intervals of less than 270 ms they may take
    /// more than the budget.
    pub(crate) fn twice_in(self, interval: Duration) -> Duty {
        Duty { cycle: CYCLE.min(interval / 2), ..self }
    }

    /// The duty after a window that lasted `on` and cost this much.
    pub(crate) fn after(self, on: Duration, cost: Cost) -> Duty {
        let window = if cost.lost == 0 { (self.window * 2).min(self.longest) } else { self.window / 2 };
        let (cost, on) = (self.cost * MEMORY + cost.seconds(), self.on * MEMORY + on.as_secs_f64());
        let load = cost / on.max(1e-6);
        let part = (self.most / load.max(1e-9)).clamp(LEAST, 1.0);
        let window = window.min(self.cycle.mul_f64(part)).max(SHORTEST);
        // Windows that are on for most of the time follow each other: waits go on from one to the next.
        let pause = if part > 0.9 { Duration::ZERO } else { window.mul_f64(1.0 / part - 1.0) };
        let pause = pause.min(self.cycle.saturating_sub(window));
        Duty { window, pause, cost, on, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BUDGET: f64 = 0.01;

    #[test]
    fn a_quiet_host_is_watched_all_the_time() {
        let cost = Cost { hits: 5_000, records: 500, lost: 0, own: Duration::from_millis(1) };
        assert_eq!(Duty::of(Set::Memory, BUDGET).after(SECOND, cost).pause, Duration::ZERO);
    }

    #[test]
    fn a_busy_host_is_watched_for_as_long_as_the_load_allows() {
        let cost = Cost { hits: 300_000, records: 30_000, lost: 0, own: Duration::from_millis(20) };
        let duty = Duty::of(Set::Waits, BUDGET).after(SECOND, cost);
        let part = duty.window.as_secs_f64() / (duty.window + duty.pause).as_secs_f64();
        let load = part * (3e5 * HIT + 3e4 * RECORD + 0.02);
        assert!((load - BUDGET / 4.0).abs() < 1e-4, "{load}");
    }

    #[test]
    fn each_interval_has_two_windows_however_dear_they_are() {
        let dear = Cost { hits: 0, records: 0, lost: 0, own: SECOND };
        for (interval, part) in [(SECOND, LEAST), (SECOND / 2, LEAST), (SECOND / 10, 0.08)] {
            let mut duty = Duty::of(Set::Memory, BUDGET).twice_in(interval);
            for _ in 0..20 {
                duty = duty.after(duty.window, dear);
            }
            assert!(duty.window + duty.pause <= interval / 2, "{duty:?}");
            let on = duty.window.as_secs_f64() / (duty.window + duty.pause).as_secs_f64();
            assert!((on - part).abs() < 1e-3, "{on}");
        }
    }

    #[test]
    fn windows_shrink_while_records_are_lost() {
        let mut duty = Duty { window: LONGEST[0], ..Duty::of(Set::Memory, BUDGET) };
        for _ in 0..20 {
            duty = duty.after(LONGEST[0], Cost { lost: 1, ..Cost::default() });
        }
        assert_eq!(duty.window, SHORTEST);
    }
}
