//! [`Tally`]: counts and events of one thread since the last report, and the kernel's [`Account`] of it.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use lotsfree_run::{Event, EventKind, Histogram};
use lotsfree_sys::Usage;

/// The most slow requests of a thread that are kept per interval; the slowest are.
const SLOWEST: usize = 3;
/// Nanoseconds of a tick of `USER_HZ`.
const TICK: u64 = 10_000_000;
/// The most events of a thread that wait for the next report; further ones are dropped.
const EVENTS: usize = 1000;

/// Counts and events of a thread since the last report.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) operations: u64,
    pub(super) errors: u64,
    pub(super) latency: Histogram,
    /// Nanoseconds that the thread slept voluntarily, without the sleep that [`sleeping`](Self::sleeping) is
    /// about.
    idle: u64,
    /// The time since which the thread has been sleeping voluntarily, or since the last report if that is
    /// later.
    sleeping: Option<u64>,
    pub(super) events: Vec<Event>,
    slow: Vec<Slow>,
    /// Errors that were reported already, by call and `errno`.
    seen: HashSet<(&'static str, i32)>,
    /// The thread's account when it ended.
    pub(super) last: Option<Account>,
    /// The process that is executing a command of the thread.
    pub(super) command: Option<u32>,
    /// What commands used that have ended.
    pub(super) commands: Account,
}

/// A slow request, with the thread's usage meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slow {
    pub(super) at: u64,
    pub(super) elapsed: u64,
    pub(super) user: u64,
    pub(super) system: u64,
    pub(super) major_faults: u64,
}

impl Slow {
    /// The event of a slow request, which says where its time went, in the form that the simulator of
    /// "Optimizing Linux Memory Management for Low-latency / High-throughput Databases" prints.
    pub(super) fn event(&self, actor: &str, role: &str) -> Event {
        let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
        let faults = match self.major_faults {
            0 => String::new(),
            1 => ", 1 major fault".to_owned(),
            number => format!(", {number} major faults"),
        };
        let what = format!(
            "a request of {role} took {}: user {}, system {}{faults}",
            ms(self.elapsed),
            ms(self.user),
            ms(self.system)
        );
        Event::new(self.at, EventKind::Slow, what, Some(actor.to_owned()))
    }
}

impl Tally {
    pub(super) fn begin_sleep(&mut self, now: u64) {
        self.sleeping = Some(now);
    }

    pub(super) fn end_sleep(&mut self, now: u64) {
        if let Some(since) = self.sleeping.take() {
            self.idle += now.saturating_sub(since);
        }
    }

    /// Nanoseconds that the thread slept voluntarily since the last call.
    pub(super) fn take_idle(&mut self, now: u64) -> u64 {
        if let Some(since) = &mut self.sleeping {
            self.idle += now.saturating_sub(*since);
            *since = now.max(*since);
        }
        std::mem::take(&mut self.idle)
    }

    pub(super) fn event(&mut self, event: Event) {
        if self.events.len() < EVENTS {
            self.events.push(event);
        }
    }

    pub(super) fn slow(&mut self, slow: Slow) {
        self.slow.push(slow);
        if self.slow.len() > SLOWEST {
            self.slow.sort_by_key(|slow| std::cmp::Reverse(slow.elapsed));
            self.slow.truncate(SLOWEST);
        }
    }

    pub(super) fn take_slow(&mut self) -> Vec<Slow> {
        std::mem::take(&mut self.slow)
    }

    /// Counts an operation that failed; true if it is the first failure of this call with this `errno`.
    pub(super) fn fail(&mut self, what: &'static str, errno: i32) -> bool {
        self.errors += 1;
        self.seen.insert((what, errno))
    }
}

/// The kernel's account of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Nanoseconds of CPU time.
    pub(super) user: u64,
    /// Nanoseconds of CPU time.
    pub(super) system: u64,
    /// Nanoseconds that the thread was runnable, without a CPU.
    pub(super) runnable: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

impl Account {
    /// Reads the account of a thread of this process from `/proc`. `schedstat` has the CPU time to the
    /// nanosecond; it is split into user and system time in the ratio of their ticks in `stat`
    /// (`fs/proc/array.c:do_task_stat`, `fs/proc/base.c:proc_pid_schedstat`).
    pub(super) fn of(tid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/self/task/{tid}/stat")).ok()?;
        let schedstat = fs::read(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
        Self::parse(&stat, &schedstat)
    }

    /// Reads the account of a process, with that of its children that have ended, and the number of its
    /// parent. The time without a CPU is that of its main thread.
    pub(super) fn of_process(id: u32) -> Option<(u32, Self)> {
        let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
        let fields = fields(&stat)?;
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let schedstat = fs::read_to_string(format!("/proc/{id}/schedstat")).unwrap_or_default();
        let runnable = schedstat.split_ascii_whitespace().nth(1).and_then(|time| time.parse().ok());
        let both = |own: usize, children: usize| Some(field(own)? + field(children)?);
        let account = Account {
            user: both(14, 16)? * TICK,
            system: both(15, 17)? * TICK,
            runnable: runnable.unwrap_or(0),
            minor_faults: both(10, 11)?,
            major_faults: both(12, 13)?,
        };
        Some((u32::try_from(field(4)?).ok()?, account))
    }

    /// The account of processes that have ended.
    pub(super) fn of_usage(usage: &Usage) -> Self {
        Account {
            user: ns(usage.user),
            system: ns(usage.system),
            runnable: 0,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
        }
    }

    /// The sum of two accounts.
    pub(super) fn and(&self, other: &Account) -> Account {
        Account {
            user: self.user + other.user,
            system: self.system + other.system,
            runnable: self.runnable + other.runnable,
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
        }
    }

    fn parse(stat: &[u8], schedstat: &[u8]) -> Option<Self> {
        let fields = fields(stat)?;
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let (user_ticks, system_ticks) = (field(14)?, field(15)?);
        let mut times = str::from_utf8(schedstat).ok()?.split_ascii_whitespace().map(str::parse::<u64>);
        let (user, system, runnable) = match (times.next(), times.next()) {
            (Some(Ok(cpu)), Some(Ok(runnable))) => {
                let ticks = u128::from(user_ticks + system_ticks).max(1);
                let user = (u128::from(cpu) * u128::from(user_ticks) / ticks) as u64;
                (user, cpu - user, runnable)
            }
            // Without CONFIG_SCHED_INFO.
            _ => (user_ticks * TICK, system_ticks * TICK, 0),
        };
        Some(Account { user, system, runnable, minor_faults: field(10)?, major_faults: field(12)? })
    }

    /// The difference to an earlier account.
    pub(super) fn since(&self, before: &Account) -> Account {
        Account {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            runnable: self.runnable.saturating_sub(before.runnable),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
        }
    }
}

/// Nanoseconds of a time.
pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The fields of `/proc/PID/stat` from field 3 of proc(5) on.
fn fields(stat: &[u8]) -> Option<Vec<&str>> {
    // The name may contain blanks and brackets, so the fields are counted from the last bracket.
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let text = str::from_utf8(stat.get(close + 1..)?).ok()?;
    Some(text.split_ascii_whitespace().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_whatever_its_name() {
        let stat = b"7 (a) b (c) R 1 7 7 0 -1 4194304 120 0 3 0 30 10 0 0 20 0 1 0 900 1 2\n";
        let account = Account::parse(stat, b"4000000000 77 12\n").unwrap();
        assert_eq!(
            account,
            Account {
                user: 3_000_000_000,
                system: 1_000_000_000,
                runnable: 77,
                minor_faults: 120,
                major_faults: 3
            }
        );
        assert_eq!(Account::parse(stat, b"").unwrap().user, 300_000_000);
        assert_eq!(Account::parse(b"7 (a) R 1", b""), None);
        assert!(Account::of(rustix::thread::gettid().as_raw_nonzero().get()).is_some());
    }

    #[test]
    fn sleep_is_counted_up_to_each_look() {
        let mut tally = Tally::default();
        tally.begin_sleep(10);
        assert_eq!(tally.take_idle(30), 20);
        tally.end_sleep(45);
        assert_eq!(tally.take_idle(50), 15);
        assert_eq!(tally.take_idle(60), 0);
    }

    #[test]
    fn the_slowest_requests_are_kept() {
        let mut tally = Tally::default();
        for elapsed in [5, 9, 1, 7, 8] {
            tally.slow(Slow { at: 0, elapsed, user: 0, system: 0, major_faults: 0 });
        }
        let kept: Vec<u64> = tally.take_slow().iter().map(|slow| slow.elapsed).collect();
        assert_eq!(kept, [9, 8, 7]);
    }
}
