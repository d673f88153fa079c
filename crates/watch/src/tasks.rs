//! [`Tasks`]: which program a process is, and what `/proc/PID` says of it.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use lotsfree_kernel_files::counters::status;
use lotsfree_kernel_files::file::process::cgroup::memory_group;
use lotsfree_kernel_files::file::process::{Stat, StatusFile};
use lotsfree_kernel_files::{File as _, Log};

/// A program in a control group: what rows are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Program {
    /// Name of its processes (`comm`), without the numbers of a kernel thread.
    pub(crate) name: Arc<str>,
    /// Its memory cgroup; empty without one.
    pub(crate) group: Arc<str>,
    /// Whether we gave it its name.
    pub(crate) is_called: bool,
}

impl Program {
    /// What nobody knows: interrupts, and processes that ended before they could be read.
    pub(crate) fn unknown() -> Self {
        Program { name: "".into(), group: "".into(), is_called: false }
    }
}

/// A process that was seen.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) program: Program,
    pub(crate) is_kernel_thread: bool,
    /// Its threads when they were last counted.
    pub(crate) threads: u32,
    /// Its times when they were last read.
    pub(crate) last: Times,
    /// Its memory when that was last read.
    held: Held,
}

/// Times of all threads of a process since they began, in nanoseconds, and faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) user: u64,
    pub(crate) system: u64,
    pub(crate) runnable: u64,
    pub(crate) major_faults: u64,
    pub(crate) minor_faults: u64,
}

/// Pages that a process has in memory and reclaim can only swap out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) anonymous: u64,
    pub(crate) shared: u64,
}

impl Times {
    pub(crate) fn add(&mut self, other: &Times) {
        self.user += other.user;
        self.system += other.system;
        self.runnable += other.runnable;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
    }

    pub(crate) fn since(&self, before: &Times) -> Times {
        self.each(before, u64::saturating_sub)
    }

    /// The longer of each.
    fn max(&self, other: &Times) -> Times {
        self.each(other, u64::max)
    }

    fn each(&self, other: &Times, of: impl Fn(u64, u64) -> u64) -> Times {
        Times {
            user: of(self.user, other.user),
            system: of(self.system, other.system),
            runnable: of(self.runnable, other.runnable),
            major_faults: of(self.major_faults, other.major_faults),
            minor_faults: of(self.minor_faults, other.minor_faults),
        }
    }
}

impl Held {
    /// Adds another process of the same program. Shared memory is mostly the same in all of them.
    pub(crate) fn add(&mut self, other: Held) {
        self.anonymous += other.anonymous;
        self.shared = self.shared.max(other.shared);
    }

    pub(crate) fn pages(&self) -> u64 {
        self.anonymous + self.shared
    }
}

/// Nanoseconds of a clock tick; `USER_HZ` is 100 on every architecture that is supported.
const TICK: u64 = 10_000_000;
/// The most processes that are remembered. Beyond it those that did nothing in the last interval go.
const MOST: usize = 1 << 14;
/// The most threads of a process whose waits for a CPU are read.
const MOST_THREADS: usize = 512;

/// The processes of this host.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    known: HashMap<u32, Known>,
}

impl Tasks {
    /// Reads every process once, so that what follows are differences.
    pub(crate) fn all() -> io::Result<Self> {
        let mut tasks = Tasks::default();
        for process in numbers(Path::new("/proc"))? {
            tasks.learn(process);
        }
        Ok(tasks)
    }

    /// The programs that are known.
    pub(crate) fn programs(&self) -> BTreeSet<Program> {
        self.known.values().map(|known| known.program.clone()).collect()
    }

    /// The processes, and what is known of each.
    pub(crate) fn known(&self) -> impl Iterator<Item = (u32, &Known)> {
        self.known.iter().map(|(process, known)| (*process, known))
    }

    /// The processes that are known.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.known.keys().copied().collect()
    }

    /// Whether a process is known.
    pub(crate) fn is_known(&self, process: u32) -> bool {
        self.known.contains_key(&process)
    }

    /// The memory of every process, as it was when the process was last busy.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&Program, Held)> {
        let holds = self.known.values().filter(|known| known.held.pages() > 0);
        holds.map(|known| (&known.program, known.held))
    }

    /// A process, which is read if it was not known. `None` if it has ended unseen.
    pub(crate) fn get(&mut self, process: u32) -> Option<&Known> {
        if !self.known.contains_key(&process) {
            self.learn(process);
        }
        self.known.get(&process)
    }

    fn learn(&mut self, process: u32) {
        let directory = directory(process);
        let Some(stat) = stat(&directory) else { return };
        let is_kernel_thread = stat.is_kernel_thread();
        let group = fs::read(directory.join("cgroup")).ok().and_then(|text| memory_group(&text));
        let program = Program {
            name: plain(&stat.name, is_kernel_thread),
            group: group.unwrap_or_default().into(),
            is_called: false,
        };
        // Of one that began while we watched everything counts; of all others the waits for a CPU so far are
        // read as well.
        let last = times(&directory, &stat);
        let (threads, held) = (stat.threads, held(&directory));
        self.known.insert(process, Known { program, is_kernel_thread, threads, last, held });
    }

    /// Notes that a process has begun: it is its parent's program until it executes another.
    pub(crate) fn forked(&mut self, process: u32, parent: u32) {
        // We may have named it before the kernel tells us that it began.
        let is_called = self.known.get(&process).is_some_and(|known| known.program.is_called);
        if process != parent
            && !is_called
            && let Some(parent) = self.get(parent)
        {
            let (last, held) = (Times::default(), Held::default());
            let child = Known { threads: 1, last, held, ..parent.clone() };
            self.known.insert(process, child);
        }
    }

    /// Notes that a process has another name.
    pub(crate) fn named(&mut self, process: u32, name: &str) {
        if let Some(known) = self.known.get_mut(&process).filter(|known| !known.program.is_called) {
            known.program.name = plain(name, known.is_kernel_thread);
        }
    }

    /// Gives a process, and those that it will start, a name that stays.
    pub(crate) fn call(&mut self, process: u32, name: &str) {
        // It may have joined another group since it was forked.
        self.learn(process);
        if let Some(known) = self.known.get_mut(&process) {
            (known.program.name, known.program.is_called) = (name.into(), true);
        }
    }

    /// What the threads of a process have spent since this was last asked; `None` once it has ended.
    pub(crate) fn spent(&mut self, process: u32) -> Option<Times> {
        let directory = directory(process);
        let Some(stat) = stat(&directory) else {
            self.known.remove(&process);
            return None;
        };
        let now = times(&directory, &stat);
        let known = self.known.get_mut(&process)?;
        (known.threads, known.held) = (stat.threads, held(&directory));
        let before = std::mem::replace(&mut known.last, now);
        Some(now.since(&before))
    }

    /// What the threads of a process had spent in all when it was last read.
    pub(crate) fn last(&self, process: u32) -> Option<Times> {
        self.known.get(&process).map(|known| known.last)
    }

    /// What the threads of a process that has ended had spent since this was last asked, by what they had
    /// spent in all; `None` if it was not known.
    pub(crate) fn ended(&mut self, process: u32, times: &Times) -> Option<Times> {
        let known = self.known.get_mut(&process)?;
        let before = known.last;
        // Its first thread may end before others.
        known.last = before.max(times);
        Some(times.since(&before))
    }

    /// Forgets processes that have ended.
    pub(crate) fn forget_ended(&mut self) {
        if self.known.len() > MOST {
            self.known.retain(|process, _| directory(*process).exists());
        }
    }
}

/// Anonymous and shared memory of a process; none of a kernel thread.
fn held(directory: &Path) -> Held {
    let text = fs::read(directory.join("status")).unwrap_or_default();
    let StatusFile { values, .. } = StatusFile::parse(&text, &mut Log::default());
    let pages = |counter| values.get(counter).map(|kib| kib * 1024 / lotsfree_sys::page_size() as u64);
    // Before 4.5 only the sum is there.
    let anonymous = pages(status::RssAnon).or_else(|| pages(status::VmRSS)).unwrap_or(0);
    Held { anonymous, shared: pages(status::RssShmem).unwrap_or(0) }
}

/// The name that a process has now.
pub(crate) fn name(process: u32) -> Option<String> {
    let text = fs::read_to_string(directory(process).join("comm")).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

/// Names of kernel threads without what tells one from the next: `kworker/0:1H` is `kworker`.
fn plain(name: &str, is_kernel_thread: bool) -> Arc<str> {
    match is_kernel_thread {
        true => name
            .split(['/', ':'])
            .next()
            .unwrap_or(name)
            .trim_end_matches(|c: char| c.is_ascii_digit())
            .into(),
        false => name.into(),
    }
}

fn directory(process: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}"))
}

fn stat(directory: &Path) -> Option<Stat> {
    let text = fs::read(directory.join("stat")).ok()?;
    Some(Stat::parse(&text, &mut Log::default()))
}

fn times(directory: &Path, stat: &Stat) -> Times {
    Times {
        user: stat.user_ticks.saturating_mul(TICK),
        system: stat.system_ticks.saturating_mul(TICK),
        runnable: if stat.is_kernel_thread() { 0 } else { waited_for_a_cpu(directory) },
        major_faults: stat.major_faults,
        minor_faults: stat.minor_faults,
    }
}

/// Nanoseconds that the threads of a process have waited for a CPU: the second number of each `schedstat`
/// (`CONFIG_SCHED_INFO`).
fn waited_for_a_cpu(directory: &Path) -> u64 {
    let tasks = directory.join("task");
    let threads = numbers(&tasks).unwrap_or_default().into_iter().take(MOST_THREADS);
    let waited = threads.filter_map(|thread| {
        let text = fs::read_to_string(tasks.join(thread.to_string()).join("schedstat")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    waited.sum()
}

fn numbers(directory: &Path) -> io::Result<Vec<u32>> {
    let names = fs::read_dir(directory)?.filter_map(Result::ok);
    Ok(names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_of_one_kind_are_one_program() {
        assert_eq!(&*plain("kworker/0:1H", true), "kworker");
        assert_eq!(&*plain("kswapd0", true), "kswapd");
        assert_eq!(&*plain("python3", false), "python3");
    }

    #[test]
    fn a_name_that_we_gave_is_that_of_children_too_and_stays() {
        let mut tasks = Tasks::default();
        let own = std::process::id();
        let child = u32::MAX;
        tasks.call(own, "actor");
        tasks.forked(child, own);
        tasks.named(child, "sh");
        // The kernel tells of the fork after we gave the name.
        tasks.forked(own, 1);
        for process in [own, child] {
            let program = &tasks.get(process).unwrap().program;
            assert!(&*program.name == "actor" && program.is_called, "{program:?}");
        }
    }

    #[test]
    fn this_process_is_known_and_spends_time() {
        let mut tasks = Tasks::all().unwrap();
        let own = std::process::id();
        assert!(!tasks.get(own).unwrap().program.name.is_empty());
        let mut sum = 0u64;
        let spent = loop {
            (0..1_000_000u64).for_each(|n| sum = sum.wrapping_add(std::hint::black_box(n)));
            let spent = tasks.spent(own).unwrap();
            if spent.user > 0 {
                break spent;
            }
        };
        assert!(spent.user < 60_000_000_000, "{spent:?}");
        assert!(held(&directory(own)).anonymous > 0);
    }
}
