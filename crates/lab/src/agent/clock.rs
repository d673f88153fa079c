//! [`Clock`]: the time of a run.

use std::time::Duration;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};

/// The time of a run, in nanoseconds since it began. All processes of a run share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// `CLOCK_MONOTONIC` when the run begins.
    begin: u64,
}

impl Clock {
    /// The clock of a run that begins at this time of [`Clock::monotonic`].
    #[must_use]
    pub fn beginning(self, begin: u64) -> Self {
        Clock { begin }
    }

    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub fn monotonic() -> u64 {
        lotsfree_sys::monotonic()
    }

    /// The time of the run; 0 before it begins.
    pub fn now(self) -> u64 {
        Self::monotonic().saturating_sub(self.begin)
    }

    /// Sleeps until a time of the run.
    pub fn sleep_until(self, at: u64) {
        let at = Duration::from_nanos(self.begin.saturating_add(at).min(i64::MAX.cast_unsigned()));
        let at = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(at.subsec_nanos()),
        };
        // Sleep on after a signal; the date is absolute.
        while clock_nanosleep_absolute(ClockId::Monotonic, &at) == Err(rustix::io::Errno::INTR) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_that_has_passed_is_not_waited_for() {
        let clock = Clock::default().beginning(Clock::monotonic());
        clock.sleep_until(0);
        clock.sleep_until(2_000_000);
        assert!(clock.now() >= 2_000_000);
        let later = Clock::default().beginning(Clock::monotonic() + 1_000_000_000_000);
        assert_eq!(later.now(), 0);
    }
}
