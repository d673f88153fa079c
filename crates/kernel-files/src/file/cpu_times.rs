//! The first lines of `/proc/stat`: what the CPUs did since boot, and how many tasks run and wait for disks.

use std::fmt::Write as _;

use serde::Serialize;

use super::scan::{decimal, trimmed_lines, words};
use crate::{File, Log};

/// Time of all CPUs together since boot, in ticks of `USER_HZ` (a hundredth of a second), and tasks at this
/// instant. `fs/proc/stat.c:show_stat`, 2.6.18 to 6.18.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuTimes {
    /// In programs, those with a nice value above 0 included.
    pub user: u64,
    /// In the kernel, interrupts included.
    pub system: u64,
    /// Idle, with nothing to wait for.
    pub idle: u64,
    /// Idle while a task waited for a disk.
    pub iowait: u64,
    /// Taken by the hypervisor for other guests.
    pub steal: u64,
    /// Tasks that run or want to.
    pub running: Option<u64>,
    /// Tasks that wait for a disk.
    pub blocked: Option<u64>,
}

impl CpuTimes {
    /// All time.
    pub fn total(&self) -> u64 {
        [self.user, self.system, self.idle, self.iowait, self.steal].into_iter().fold(0, u64::saturating_add)
    }
}

impl File for CpuTimes {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut times = CpuTimes::default();
        for (number, line) in trimmed_lines(text) {
            let mut words = words(line);
            match words.next() {
                Some(b"cpu") => {
                    let ticks: Option<Vec<u64>> = words.map(decimal).collect();
                    let Some(ticks) = ticks.filter(|ticks| ticks.len() >= 4) else {
                        log.malformed(number, "not at least four numbers of ticks");
                        continue;
                    };
                    let of = |index: usize| ticks.get(index).copied().unwrap_or(0);
                    // user nice system idle iowait irq softirq steal; guest time is part of user.
                    times.user = of(0).saturating_add(of(1));
                    times.system = of(2).saturating_add(of(5)).saturating_add(of(6));
                    (times.idle, times.iowait, times.steal) = (of(3), of(4), of(7));
                }
                Some(b"procs_running") => times.running = words.next().and_then(decimal),
                Some(b"procs_blocked") => times.blocked = words.next().and_then(decimal),
                _ => {}
            }
        }
        times
    }

    fn print(&self, out: &mut String) {
        let CpuTimes { user, system, idle, iowait, steal, .. } = self;
        let _ = writeln!(out, "cpu  {user} 0 {system} {idle} {iowait} 0 0 {steal} 0 0");
        for (name, tasks) in [("procs_running", self.running), ("procs_blocked", self.blocked)] {
            if let Some(tasks) = tasks {
                let _ = writeln!(out, "{name} {tasks}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, print, settles};

    /// 6.18, two CPUs.
    const TEXT: &str = "cpu  1175 24 890 91250 312 5 40 7 0 0\ncpu0 600 0 400 45600 150 2 20 3 0 0\nintr 5 1 2\n\
                        ctxt 99\nbtime 1700000000\nprocesses 900\nprocs_running 3\nprocs_blocked 1\nsoftirq 1 2 3\n";

    #[test]
    fn reads_the_sum_of_all_cpus() {
        let times: CpuTimes = clean(TEXT);
        assert_eq!(
            (times.user, times.system, times.idle, times.iowait, times.steal),
            (1199, 935, 91_250, 312, 7)
        );
        assert_eq!((times.running, times.blocked, times.total()), (Some(3), Some(1), 93_703));
        assert_eq!(print(&times), "cpu  1199 0 935 91250 312 0 0 7 0 0\nprocs_running 3\nprocs_blocked 1\n");
        // 2.4 has four columns.
        assert_eq!(clean::<CpuTimes>("cpu 1 2 3 4\n").total(), 10);
        assert_eq!(bad_lines::<CpuTimes>(b"cpu 1 2 x 4\n"), [1]);
    }

    proptest! {
        #[test]
        fn settles_after_one_round(text in hostile(TEXT)) {
            settles::<CpuTimes>(&text);
        }
    }

    #[test]
    fn cut_at_any_byte() {
        cut_anywhere::<CpuTimes>(TEXT);
    }
}
