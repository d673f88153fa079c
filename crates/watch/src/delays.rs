//! [`Delays`]: the times that the kernel itself counts, for the processes for which it does.
//!
//! The kernel counts the delays of a task if delay accounting was on when the task was forked
//! (`kernel/delayacct.c:delayacct_tsk_init`). Up to 5.13 it is on unless the kernel was started with
//! `nodelayacct`; from 5.14 on only with `delayacct`, or for what is forked while `kernel.task_delayacct` is
//! 1.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use lotsfree_kernel_files::KernelVersion;

use crate::taskstats::{Account, Delay, Taskstats};

/// `kernel.task_delayacct`; there from 5.14 on.
pub const DELAY_ACCOUNTING: &str = "/proc/sys/kernel/task_delayacct";

/// Whose delays the kernel counts.
#[derive(Debug)]
enum Counted {
    Everyone,
    /// The processes that were forked since we watch.
    New(HashSet<u32>),
}

/// The most processes that are remembered. Beyond it those that have ended go.
const MOST: usize = 1 << 15;

/// What the kernel counts of the processes of this host.
#[derive(Debug)]
pub(crate) struct Delays {
    taskstats: Taskstats,
    counted: Counted,
    /// What each process had waited when it was last asked for, and when that was (`CLOCK_MONOTONIC`, in
    /// nanoseconds).
    last: HashMap<u32, (u64, Delay)>,
    /// When we began.
    began: u64,
    /// What has ended since it was last taken. Of a process with several threads the account of the first
    /// thread may come before that of all.
    ended: BTreeMap<u32, Account>,
    /// Whether the ends of some were missed.
    pub(crate) is_lost: bool,
    /// Whether delay accounting has been switched off meanwhile.
    is_off: bool,
}

impl Delays {
    /// Begins to ask for delays; `None` where the kernel counts none, or does not tell this user.
    pub(crate) fn begin(cpus: &[u32], processes: &[u32]) -> Option<Self> {
        let began = lotsfree_sys::monotonic();
        let read = |path: &str| fs::read_to_string(path).ok();
        let counted = counted(
            &read("/proc/cmdline").unwrap_or_default(),
            KernelVersion::parse(&read("/proc/sys/kernel/osrelease").unwrap_or_default())?,
            read(DELAY_ACCOUNTING).as_deref().map(str::trim),
        )?;
        let taskstats = Taskstats::connect(cpus).ok()?;
        let last = match counted {
            Counted::New(_) => HashMap::new(),
            Counted::Everyone => {
                let accounts: Vec<Account> =
                    processes.iter().filter_map(|process| taskstats.process(*process)).collect();
                // A kernel that was built without delay accounting answers all the same.
                if accounts.iter().all(|account| account.block_waits == 0) {
                    return None;
                }
                accounts.iter().map(|account| (account.id, (began, account.delay))).collect()
            }
        };
        let is_lost = !taskstats.tells_ends();
        Some(Delays { taskstats, counted, last, began, ended: BTreeMap::new(), is_lost, is_off: false })
    }

    /// Notes that a process was forked, and when.
    pub(crate) fn forked(&mut self, process: u32, time: u64) {
        // Another may have had its number.
        self.last.insert(process, (time, Delay::default()));
        if let Counted::New(processes) = &mut self.counted {
            processes.insert(process);
        }
    }

    /// Reads what has ended.
    pub(crate) fn drain(&mut self) {
        let (ended, is_lost) = self.taskstats.ended();
        self.is_lost |= is_lost;
        for account in ended {
            match account.is_process {
                // That of the last thread, which comes with it, has its own times only.
                true => drop(self.ended.insert(account.id, account)),
                false => drop(self.ended.entry(account.id).or_insert(account)),
            }
        }
    }

    /// The tasks and processes that have ended since this was last asked, by id.
    pub(crate) fn take_ended(&mut self) -> BTreeMap<u32, Account> {
        // What is forked from now on has no counters.
        self.is_off |= fs::read_to_string(DELAY_ACCOUNTING).is_ok_and(|value| value.trim() == "0");
        std::mem::take(&mut self.ended)
    }

    /// Whether waits for pages to be swapped in are among the waits for blocks.
    pub(crate) fn has_swap_in_in_blocks(&self) -> bool {
        self.taskstats.has_swap_in_in_blocks()
    }

    /// What a process has waited since this was last asked, and for how long each of its threads can have
    /// waited meanwhile; `None` if the kernel does not count it, or does not say. A process that has ended
    /// has its account.
    pub(crate) fn spent(&mut self, process: u32, ended: Option<&Account>, at: u64) -> Option<(Delay, u64)> {
        let is_counted = match &self.counted {
            Counted::Everyone => true,
            Counted::New(processes) => processes.contains(&process),
        };
        if !is_counted || self.is_off {
            return None;
        }
        // The kernel answers for a process that is not reaped yet, but its threads count no more.
        let alive = self.taskstats.process(process).map(|account| account.delay);
        let ended = ended.map(|account| account.delay);
        let now = alive.into_iter().chain(ended).reduce(|one, other| one.max(&other))?;
        let (since, before) = self.last.get(&process).copied().unwrap_or((self.began, Delay::default()));
        let now = before.max(&now);
        self.last.insert(process, (at, now));
        Some((now.since(&before), at.saturating_sub(since)))
    }

    /// Forgets processes that have ended.
    pub(crate) fn forget_ended(&mut self) {
        let is_there = |process: &u32| Path::new("/proc").join(process.to_string()).exists();
        if self.last.len() > MOST {
            self.last.retain(|process, _| is_there(process));
        }
        if let Counted::New(processes) = &mut self.counted
            && processes.len() > MOST
        {
            processes.retain(is_there);
        }
    }
}

/// Whose delays a kernel of this release counts, started with this command line, where the setting
/// [`DELAY_ACCOUNTING`] has this value, if it is there; `None` if nobody's.
fn counted(command_line: &str, release: KernelVersion, setting: Option<&str>) -> Option<Counted> {
    let has = |word| command_line.split_ascii_whitespace().any(|other| other == word);
    match setting {
        None => (!release.at_least(5, 14) && !has("nodelayacct")).then_some(Counted::Everyone),
        Some("1") if has("delayacct") => Some(Counted::Everyone),
        Some("1") => Some(Counted::New(HashSet::new())),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_delays_are_counted_depends_on_the_kernel_and_how_it_was_started() {
        let says = |command_line: &str, release: &str, setting| {
            counted(command_line, KernelVersion::parse(release).unwrap(), setting)
        };
        assert!(matches!(says("quiet", "4.18.0-553.el8_10.x86_64", None), Some(Counted::Everyone)));
        assert!(says("quiet nodelayacct", "3.10.0-1160.el7.x86_64", None).is_none());
        assert!(matches!(says("delayacct quiet", "6.12.0", Some("1")), Some(Counted::Everyone)));
        assert!(matches!(says("quiet", "6.12.0", Some("1")), Some(Counted::New(_))));
        assert!(says("delayacct", "6.12.0", Some("0")).is_none());
        assert!(says("quiet", "6.12.0", None).is_none());
    }
}
