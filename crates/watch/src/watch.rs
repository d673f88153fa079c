//! [`Watch`]: the programs of this host, interval by interval.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use lotsfree_run::{Histogram, Interval, Spent, Toll};
use lotsfree_sys::{self as sys, Hit, Observed, Tracing};

use crate::delays::Delays;
use crate::duty::{Cost, Duty};
use crate::facts;
use crate::files::{self, Open, Use};
use crate::groups::{Back, Groups, OfHost};
use crate::stack::{Reason, Stacks};
use crate::tally::{CameBack, Counts, Scale, Tally, Window};
use crate::tasks::{self, Held, Program, Tasks, Times};
use crate::taskstats::Account;
use crate::tracepoints::{SET, SETS, STRIDE, Set, Tracepoints};
use crate::{WatchError, at};

/// Watches the programs of this host, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    tracing: Tracing,
    tracepoints: Tracepoints,
    stacks: Stacks,
    tally: Tally,
    tasks: Tasks,
    /// The times that the kernel itself counts, if it does.
    delays: Option<Delays>,
    groups: Groups,
    duties: [Duty; SETS],
    /// The host's pages in the windows of this interval.
    in_windows: OfHost,
    /// CPU time of this thread when the last window ended.
    own: Duration,
    /// When the next window of each set may begin.
    paused_until: [u64; SETS],
    /// End of the last window of each set, if the next follows it at once.
    goes_on_from: [Option<u64>; SETS],
    began: u64,
    /// When the last interval ended.
    last: u64,
    /// What is known of the pages that each program read so far. They are counted over the whole time: at
    /// first every page is new to us.
    known: BTreeMap<Program, CameBack>,
    /// The files that each program brought into the page cache, in pages.
    files: BTreeMap<Program, BTreeMap<(Use, PathBuf), u64>>,
    /// Processes that were among the busiest. Their times are read to the end, also while they do nothing
    /// that a tracepoint shows.
    read: BTreeSet<u32>,
    /// What each program did, by interval, unless it was taken already.
    recorded: Vec<Recorded>,
    seen: Seen,
}

/// An interval that has ended.
#[derive(Debug, Default)]
struct Recorded {
    from: u64,
    at: u64,
    programs: BTreeMap<Program, Sums>,
    back: Back,
    missed: Missed,
}

/// The parts of the pages that came back in an interval that its windows, scaled up, do not have; less than
/// none if they have too many.
#[derive(Clone, Copy, Debug, Default)]
struct Missed {
    file: f64,
    swapped_in: f64,
}

impl Missed {
    /// From what came back in an interval and in its windows.
    fn of(all: OfHost, seen: OfHost, scale: f64) -> Self {
        let part = |all: u64, seen: u64| if all == 0 { 0.0 } else { 1.0 - seen as f64 * scale / all as f64 };
        Missed { file: part(all.refaults, seen.refaults), swapped_in: part(all.swapped_in, seen.swapped_in) }
    }
}

/// What the processes of a program did in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    counts: Counts,
    times: Times,
    held: Held,
    is_kernel_thread: bool,
}

/// How well the programs could be watched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// The parts of the time in which memory and waits were watched, 0 to 1.
    pub on: [f64; SETS],
    /// Records for which the buffers had no room.
    pub lost: u64,
    /// CPU time of watching, reading included, as a part of one CPU: measured for this process, estimated
    /// for the tasks that hit the tracepoints.
    pub cost: f64,
    /// Whether the kernel told of more ended processes than there was room for.
    pub is_ends_lost: bool,
    /// Tracepoints that this kernel has not.
    pub missing: Vec<&'static str>,
    /// Whether the kernel hides its addresses, so that nobody can say what a task waited for.
    pub is_blind: bool,
    /// The programs, by the name that they have in the rows.
    pub programs: BTreeMap<Arc<str>, Seeing>,
}

impl Seen {
    /// What was not seen, a sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let [memory, waits] = self.on.map(|on| (1.0 - on) * 100.0);
        let mut remarks = vec![format!(
            "What took memory during {memory:.0} % of the time, and what waited during {waits:.0} %: watching \
             pauses to stay within its budget, and took {:.1} % of one CPU.",
            self.cost * 100.0
        )];
        if self.lost > 0 {
            remarks.push(format!("Records for which the buffers had no room: {}.", self.lost));
        }
        if self.is_ends_lost {
            remarks.push("What some processes spent that ended meanwhile.".to_owned());
        }
        if self.is_blind {
            remarks.push(
                "What tasks waited for, hence thrashing and swap-in: the kernel hides its addresses \
                 (kernel.kptr_restrict)."
                    .to_owned(),
            );
        }
        if !self.missing.is_empty() {
            remarks.push(format!("What needs {}, which this kernel has not.", self.missing.join(", ")));
        }
        remarks.push(
            "Waits without a context switch, such as for zram or zswap, unless the kernel counts delays; huge pages \
             of the pool."
                .to_owned(),
        );
        remarks
    }
}

/// What else was seen of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeing {
    /// Its memory cgroup; empty without one.
    pub group: Arc<str>,
    /// What it was doing: "reading /backup/a.tar".
    pub doing: Option<String>,
}

/// The part of one CPU that watching may take on a host that has work to do.
pub const BUDGET: f64 = 0.01;
/// Bytes of all buffers together, and of one at most and at least.
const BUFFERS: usize = 16 << 20;
const MOST_BUFFER: usize = 1 << 20;
const LEAST_BUFFER: usize = 32 << 10;
/// The least pages read twice from which the refaults of a group are shared among its programs. With fewer
/// the pages read at all decide.
const ENOUGH_AGAIN: u64 = 16 * STRIDE;
/// The least pages that the kernel was asked about from which they say how many of a program's pages came
/// back.
const ENOUGH_ASKED: u64 = 16;
/// No window is shorter.
const SLIVER: Duration = Duration::from_millis(2);
/// The most files of a program that are remembered by name.
const MOST_NAMES: usize = 4096;
/// The most processes whose times are read in an interval: the busiest.
const MOST_READ: usize = 256;

impl Watch {
    /// Begins to watch. It may take `budget`, a part of one CPU; [`BUDGET`] is what users are promised. The
    /// smaller it is, the less of the time the tracepoints are on.
    ///
    /// # Errors
    /// [`WatchError::Refused`] without the right to, [`WatchError::Missing`] on a kernel without tracepoints,
    /// [`WatchError::Tracepoints`] if they cannot be opened.
    pub fn begin(budget: f64) -> Result<Self, WatchError> {
        let tracepoints = Tracepoints::find()?;
        let kallsyms = Path::new("/proc/kallsyms");
        let stacks = Stacks::new(&fs::read(kallsyms).map_err(at(kallsyms))?);
        let cpus = facts::cpus();
        let buffer = (BUFFERS / cpus.len().max(1)).clamp(LEAST_BUFFER, MOST_BUFFER);
        let buffer = 1 << buffer.ilog2();
        let tracing = Tracing::open(&cpus, &tracepoints.events, buffer).map_err(WatchError::opening)?;
        let proc = Path::new("/proc");
        let tasks = Tasks::all().map_err(at(proc))?;
        let delays = Delays::begin(&cpus, &tasks.processes());
        let mut groups = Groups::find();
        let named = tasks.programs();
        groups.since(OfHost::default(), &named.iter().map(|program| &program.group).collect());
        let seen =
            Seen { missing: tracepoints.missing.clone(), is_blind: stacks.are_blind(), ..Seen::default() };
        let began = sys::monotonic();
        Ok(Watch {
            tracing,
            tracepoints,
            stacks,
            tally: Tally::default(),
            tasks,
            delays,
            groups,
            duties: SET.map(|set| Duty::of(set, budget)),
            in_windows: OfHost::default(),
            own: sys::thread_cpu_time(),
            paused_until: [0; SETS],
            goes_on_from: [None; SETS],
            began,
            last: began,
            known: BTreeMap::new(),
            files: BTreeMap::new(),
            read: BTreeSet::new(),
            recorded: Vec::new(),
            seen,
        })
    }

    /// Watches for an interval.
    ///
    /// # Errors
    /// The kernel's, if it takes the tracepoints away.
    pub fn interval(&mut self, length: Duration) -> Result<(), WatchError> {
        self.expect(length);
        self.until(self.last + length.as_nanos() as u64)?;
        self.close();
        Ok(())
    }

    /// Says how long the intervals will be, so that there are windows in each. It is a second unless somebody
    /// says so.
    pub fn expect(&mut self, interval: Duration) {
        self.duties = self.duties.map(|duty| duty.twice_in(interval));
    }

    /// Watches up to a time, in nanoseconds of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// The kernel's, if it takes the tracepoints away.
    pub fn until(&mut self, end: u64) -> Result<(), WatchError> {
        while sys::monotonic() < end {
            self.window(end).map_err(WatchError::Tracepoints)?;
        }
        Ok(())
    }

    /// Ends an interval, and begins the next.
    pub fn close(&mut self) {
        let (from, at) = (self.last, sys::monotonic());
        self.record(from, at);
        self.last = at;
    }

    /// Gives a process, and all that it will start, a name that no `exec` changes.
    pub fn call(&mut self, process: u32, name: &str) {
        self.tasks.call(process, name);
        self.read.insert(process);
    }

    /// The rows of the intervals since they were last taken, in nanoseconds of `CLOCK_MONOTONIC`, as far as
    /// one can tell by now who brought back what.
    pub fn take(&mut self) -> Vec<Vec<Interval>> {
        let recorded = std::mem::take(&mut self.recorded);
        let names = names(recorded.iter().flat_map(|recorded| recorded.programs.keys()), &self.groups);
        recorded.iter().map(|recorded| recorded.rows(&self.known, &names)).collect()
    }

    /// Switches the sets that are due on for a window, and counts what it held.
    fn window(&mut self, end: u64) -> std::io::Result<()> {
        let now = sys::monotonic();
        let is_due = self.paused_until.map(|until| until <= now);
        let next = self.paused_until.into_iter().filter(|until| *until > now).min().unwrap_or(end).min(end);
        let left = |end: u64| Duration::from_nanos(end.saturating_sub(sys::monotonic()));
        if !is_due.contains(&true) || left(end) < SLIVER {
            // What so short a window holds says nothing of an interval.
            thread::sleep(left(if is_due.contains(&true) { end } else { next }));
            return Ok(());
        }
        let lengths = self.duties.iter().zip(is_due).filter(|(_, is_due)| *is_due);
        let length = lengths.map(|(duty, _)| duty.window).min().unwrap_or(SLIVER);
        // The other set begins when it is due.
        let length = length.min(left(next)).max(SLIVER);
        let host = OfHost::so_far();
        let before = sys::monotonic();
        for set in SET.into_iter().filter(|set| is_due[*set as usize]) {
            self.tracing.switch(set as usize, true)?;
        }
        thread::sleep(length);
        for set in SET {
            self.tracing.switch(set as usize, false)?;
        }
        let to = sys::monotonic();
        if is_due[Set::Memory as usize] {
            self.in_windows.add(OfHost::so_far().since(host));
        }
        let (hits, lost) = self.drain();
        let mut from = [None; SETS];
        for (set, from) in from.iter_mut().enumerate().filter(|(set, _)| is_due[*set]) {
            *from = Some(self.goes_on_from[set].unwrap_or(before));
        }
        self.tally.window(Window { from, to }, &hits, &self.tracepoints.known, &self.stacks);
        self.settle(Duration::from_nanos(to - before), to, is_due, lost);
        Ok(())
    }

    /// Takes what the buffers hold: hits in the order of their time, and how many records were lost.
    fn drain(&mut self) -> (Vec<Hit>, u64) {
        let (mut hits, mut lost): (Vec<Hit>, u64) = (Vec::new(), 0);
        let (mut forked, mut named) = (Vec::new(), Vec::new());
        self.tracing.drain(|observed| match observed {
            Observed::Hit(hit) => hits.push(hit),
            Observed::Named { process, task, name } if process == task => named.push((process, name)),
            Observed::Named { .. } => {}
            Observed::Forked { process, parent, time } => forked.push((time, process, parent)),
            Observed::Lost(records) => lost += records,
        });
        hits.sort_by_key(|hit| hit.time);
        // CPUs are drained one after the other: a child may come before its parent, a name before the task
        // that has it.
        forked.sort_unstable();
        for (time, process, parent) in &forked {
            self.tasks.forked(*process, *parent);
            if let Some(delays) = &mut self.delays {
                delays.forked(*process, *time);
            }
        }
        for (process, name) in &named {
            // Which of several names came last, the records of several CPUs do not say.
            let is_only = named.iter().filter(|(other, _)| other == process).count() == 1;
            let now = if is_only { None } else { tasks::name(*process) };
            self.tasks.named(*process, now.as_deref().unwrap_or(name));
        }
        if let Some(delays) = &mut self.delays {
            delays.drain();
        }
        (hits, lost)
    }

    /// Says when the next windows are, after what this one cost.
    fn settle(&mut self, on: Duration, to: u64, was_on: [bool; SETS], lost: u64) {
        let hits = self.tally.hits();
        let now = sys::thread_cpu_time();
        let own = now.saturating_sub(std::mem::replace(&mut self.own, now));
        let all: u64 = hits.iter().map(|(_, records)| *records).sum();
        self.seen.lost += lost;
        for which in SET.into_iter().filter(|set| was_on[*set as usize]) {
            let set = which as usize;
            let (hits, records) = hits[set];
            // Where there are no records, switching is what costs.
            let part = match all {
                0 => 1.0 / was_on.iter().filter(|on| **on).count() as f64,
                _ => records as f64 / all as f64,
            };
            let cost = Cost { hits, records, lost, own: own.mul_f64(part) };
            self.seen.cost += cost.seconds();
            self.duties[set] = self.duties[set].after(on, cost);
            self.paused_until[set] = to + self.duties[set].pause.as_nanos() as u64;
            // After a loss nobody knows what tasks are in the middle of.
            self.goes_on_from[set] = (self.duties[set].pause.is_zero() && lost == 0).then_some(to);
            if self.goes_on_from[set].is_none() {
                self.tally.stop(which);
            }
        }
    }

    /// Ends an interval: scales what its windows held, and adds what `/proc` says.
    fn record(&mut self, from: u64, at: u64) {
        // What was forked and what ended since the last window; the tracepoints are off.
        self.seen.lost += self.drain().1;
        let (counts, on) = self.tally.take();
        let in_windows = std::mem::take(&mut self.in_windows);
        // Where there was no window, there is nothing to be scaled.
        let factors = on.map(|on| if on == 0 { 0.0 } else { (at - from) as f64 / on as f64 });
        let host = self.groups.host_since();
        let scale = Scale::new(factors, host, in_windows, self.tally.seen());
        for (sum, on) in self.seen.on.iter_mut().zip(on) {
            *sum += on as f64 / 1e9;
        }
        let mut busiest: Vec<_> =
            counts.iter().map(|(process, counts)| (counts.weight(), *process)).collect();
        busiest.sort_unstable_by_key(|(weight, _)| std::cmp::Reverse(*weight));
        let room = MOST_READ.saturating_sub(self.read.len());
        self.read.extend(busiest.iter().take(room).map(|(_, process)| *process));
        let mut programs = self.sums(&counts, &scale, at);
        for (program, sums) in programs.iter().filter(|(_, sums)| sums.counts.back != CameBack::default()) {
            self.known.entry(program.clone()).or_default().add(&sums.counts.back);
        }
        for process in std::mem::take(&mut self.read) {
            let Some(program) = self.tasks.get(process).map(|known| known.program.clone()) else { continue };
            if let Some(times) = self.tasks.spent(process) {
                programs.entry(program).or_default().times.add(&times);
                self.read.insert(process);
            }
        }
        for (program, held) in self.tasks.held() {
            programs.entry(program.clone()).or_default().held.add(held);
        }
        self.look_at_files();
        let back = self.groups.since(host, &programs.keys().map(|program| &program.group).collect());
        self.tasks.forget_ended();
        if let Some(delays) = &mut self.delays {
            delays.forget_ended();
        }
        let missed = Missed::of(host, in_windows, scale.memory);
        self.recorded.push(Recorded { from, at, programs, back, missed });
        // Reading /proc is no part of the next window.
        let own = sys::thread_cpu_time();
        self.seen.cost += own.saturating_sub(std::mem::replace(&mut self.own, own)).as_secs_f64();
    }

    /// What each program did in an interval that ended then, by what the windows had and by what the kernel
    /// counts.
    fn sums(&mut self, counts: &BTreeMap<u32, Counts>, scale: &Scale, at: u64) -> BTreeMap<Program, Sums> {
        let ended = self.delays.as_mut().map(Delays::take_ended).unwrap_or_default();
        // Of threads there are accounts, too.
        let ended: BTreeMap<u32, Account> =
            ended.into_iter().filter(|(process, _)| self.tasks.is_known(*process)).collect();
        let mut programs: BTreeMap<Program, Sums> = BTreeMap::new();
        let processes: BTreeSet<u32> = counts.keys().chain(&self.read).chain(ended.keys()).copied().collect();
        for process in processes {
            let mut counts = counts.get(&process).map(|counts| counts.scaled(scale)).unwrap_or_default();
            let ended = ended.get(&process);
            if let Some(delays) = &mut self.delays
                && (ended.is_some() || self.read.contains(&process))
                && let Some((delay, time)) = delays.spent(process, ended, at)
            {
                let threads = self.tasks.get(process).map_or(1, |known| known.threads.max(1));
                let possible = time.saturating_mul(threads.into());
                counts.correct(&delay, possible, delays.has_swap_in_in_blocks());
            }
            let known = self.tasks.get(process);
            let program = known.map_or_else(Program::unknown, |known| known.program.clone());
            let sums = programs.entry(program).or_default();
            sums.is_kernel_thread = known.is_none_or(|known| known.is_kernel_thread);
            sums.counts.add(&counts);
            let times = ended.and_then(|ended| ended.times);
            if let Some(times) = times.and_then(|times| self.tasks.ended(process, &times)) {
                sums.times.add(&times);
            }
        }
        programs
    }

    /// Reads the times of the processes that were never among the busiest. What they spent is told in the
    /// last interval.
    fn read_all(&mut self) {
        let Some(recorded) = self.recorded.last_mut() else { return };
        for process in self.tasks.processes() {
            let Some(program) = self.tasks.get(process).map(|known| known.program.clone()) else { continue };
            if let Some(times) = self.tasks.spent(process).filter(|times| *times != Times::default()) {
                recorded.programs.entry(program).or_default().times.add(&times);
            }
        }
    }

    /// Looks for the names of the files that were most read in an interval, while they are still open, and
    /// asks the kernel what it knows of their pages.
    fn look_at_files(&mut self) {
        self.tally.probes.begin();
        for (process, file, pages) in self.tally.busiest_files() {
            let Some(known) = self.tasks.get(process) else { continue };
            let Some(Open { name, how, descriptor }) = files::find(process, file) else { continue };
            self.tally.probes.ask(file, &descriptor);
            let files = self.files.entry(known.program.clone()).or_default();
            if files.len() < MOST_NAMES {
                *files.entry((how, name)).or_default() += pages;
            }
        }
    }

    /// Ends watching: the rows of each interval, from the beginning on, and how well they were seen.
    pub fn finish(mut self) -> (Vec<Vec<Interval>>, Seen) {
        let length = self.last.saturating_sub(self.began).max(1) as f64 / 1e9;
        self.read_all();
        let named = names(self.recorded.iter().flat_map(|recorded| recorded.programs.keys()), &self.groups);
        let mut seen = std::mem::take(&mut self.seen);
        seen.is_ends_lost = self.delays.as_ref().is_some_and(|delays| delays.is_lost);
        (seen.on, seen.cost) = (seen.on.map(|on| (on / length).min(1.0)), seen.cost / length);
        for (program, name) in &named {
            let doing = self.files.get(program).and_then(files::phrase);
            let seeing = Seeing { group: Arc::clone(&program.group), doing };
            seen.programs.insert(Arc::clone(&name.actor), seeing);
        }
        drop(named);
        let mut rows = self.take();
        for row in rows.iter_mut().flatten() {
            (row.from, row.at) = (row.from - self.began, row.at - self.began);
        }
        (rows, seen)
    }
}

/// What a program is called in rows.
#[derive(Debug)]
struct Name {
    /// Its own name, with its group if another program of that name is in another group.
    actor: Arc<str>,
    /// The group whose limit it shares, or nothing where it shares the whole host's memory.
    role: Arc<str>,
}

fn names<'a>(programs: impl Iterator<Item = &'a Program>, groups: &Groups) -> BTreeMap<&'a Program, Name> {
    let programs: BTreeSet<&Program> = programs.collect();
    let is_alone =
        |program: &Program| programs.iter().filter(|other| other.name == program.name).count() == 1;
    let name = |program: &Program| Name {
        actor: match program.is_called || is_alone(program) {
            true => Arc::clone(&program.name),
            false => format!("{} ({})", program.name, program.group).into(),
        },
        role: groups.limited(&program.group).unwrap_or_default().into(),
    };
    programs.iter().map(|program| (*program, name(program))).collect()
}

impl Recorded {
    fn rows(&self, known: &BTreeMap<Program, CameBack>, names: &BTreeMap<&Program, Name>) -> Vec<Interval> {
        let rows = self.programs.iter().filter(|(_, sums)| sums.is_worth_a_row());
        rows.filter_map(|(program, sums)| {
            let name = names.get(program)?;
            let back = self.brought_back(program, sums, known);
            Some(Interval {
                from: self.from,
                at: self.at,
                actor: Arc::clone(&name.actor),
                role: Arc::clone(self.limited_by(program, sums, names).unwrap_or(&name.role)),
                operations: 0,
                errors: 0,
                latency: Histogram::default(),
                spent: sums.spent(),
                major_faults: sums.times.major_faults,
                minor_faults: sums.times.minor_faults,
                toll: sums.toll(back, self.missed),
            })
        })
        .collect()
    }

    /// The group whose limit what khugepaged takes counts against; `None` for every other program, which is
    /// charged itself.
    fn limited_by<'n>(
        &self,
        program: &Program,
        sums: &Sums,
        names: &'n BTreeMap<&Program, Name>,
    ) -> Option<&'n Arc<str>> {
        let group = self.back.collapsed.as_ref()?;
        let is_khugepaged = sums.is_kernel_thread && *program.name == *"khugepaged";
        let inside = names.iter().find(|(other, _)| is_khugepaged && other.group == *group);
        inside.map(|(_, name)| &name.role)
    }

    /// Pages that a program brought back: its part of the refaults of its group ([`refaults`]), and of the
    /// pages that the host swapped in, by the time that each waited for such pages.
    fn brought_back(
        &self,
        program: &Program,
        sums: &Sums,
        known: &BTreeMap<Program, CameBack>,
    ) -> BroughtBack {
        let all = self.back.refaults.get(&program.group).copied().unwrap_or(0);
        let others = self.programs.iter().filter(|(other, _)| other.group == program.group);
        let read = |program: &Program, sums: &Sums| Read {
            added: sums.counts.added,
            known: known.get(program).copied().unwrap_or_default(),
        };
        let group: Vec<Read> = others.map(|(other, sums)| read(other, sums)).collect();
        let file = refaults(read(program, sums), &group, all);
        // Swap in memory (zram) is read without a wait.
        let waits = self.programs.values().any(|sums| sums.counts.wait(Reason::SwapIn) > 0);
        let swap = |sums: &Sums| match waits {
            true => sums.counts.wait(Reason::SwapIn) as f64,
            false => sums.times.major_faults as f64,
        };
        let swapped_in = share(swap(sums), self.programs.values().map(swap), self.back.swapped_in);
        BroughtBack { file, swapped_in }
    }
}

/// What a program read into the page cache in an interval, and what is known of all that it read.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    added: u64,
    known: CameBack,
}

impl Read {
    /// The pages of those it read that came back, by those that the kernel was asked about.
    fn evicted(self) -> Option<f64> {
        let CameBack { asked, evicted, .. } = self.known;
        (asked >= ENOUGH_ASKED).then(|| self.added as f64 * evicted as f64 / asked as f64)
    }
}

/// The part of a program in the refaults of its group. What the kernel was asked about decides; the programs
/// of whose pages it was asked too little share the rest by the pages that each read twice.
fn refaults(own: Read, group: &[Read], all: u64) -> u64 {
    let sure: f64 = group.iter().filter_map(|read| read.evicted()).sum();
    let unsure = || group.iter().filter(|read| read.evicted().is_none());
    let again: u64 = unsure().map(|read| read.known.again).sum();
    // The program's part of all pages that were read twice.
    let often =
        |read: &Read| if again >= ENOUGH_AGAIN { read.known.again as f64 / again as f64 } else { 1.0 };
    let weights: f64 = unsure().map(|read| read.added as f64 * often(read)).sum();
    let left = (all as f64 - sure).max(0.0);
    let part = |read: &Read| match read.evicted() {
        Some(pages) => pages,
        None if weights > 0.0 => (left * read.added as f64 * often(read) / weights).min(read.added as f64),
        None => 0.0,
    };
    share(part(&own), group.iter().map(part), all)
}

/// Pages that a program brought back after they were evicted.
#[derive(Clone, Copy, Debug)]
struct BroughtBack {
    file: u64,
    swapped_in: u64,
}

/// The part of a total that falls to a weight among all weights.
fn share(weight: f64, all: impl Iterator<Item = f64>, total: u64) -> u64 {
    let sum: f64 = all.sum();
    if sum > 0.0 { (total as f64 * weight / sum) as u64 } else { 0 }
}

impl Sums {
    /// Whether the program did anything that a reader could ask for: a thousand idle ones are on every host.
    fn is_worth_a_row(&self) -> bool {
        let Counts { allocated, returned, added, .. } = self.counts;
        let is_awake = self.times.user + self.times.system > 0;
        allocated + returned + added > 0 || self.counts.waited() > 0 || is_awake || self.held.pages() > 256
    }

    /// What waits cost the program. A kernel thread reclaims and compacts for others, and waits for nothing
    /// of its own.
    fn paid(&self) -> Counts {
        let Counts { allocated, returned, added, back, .. } = self.counts;
        match self.is_kernel_thread {
            true => Counts { allocated, returned, added, back, ..Counts::default() },
            false => self.counts,
        }
    }

    fn spent(&self) -> Spent {
        let counts = &self.paid();
        let reclaim = counts.reclaim + counts.wait(Reason::OverHigh);
        Spent {
            user: self.times.user,
            // The kernel counts the CPU time of reclaim as system time.
            system: self.times.system.saturating_sub(counts.reclaim),
            reclaim,
            io: [Reason::FilePage, Reason::SwapIn, Reason::Other].iter().map(|why| counts.wait(*why)).sum(),
            throttled: counts.wait(Reason::Dirty),
            runnable: self.times.runnable,
            idle: 0,
        }
    }

    fn toll(&self, back: BroughtBack, missed: Missed) -> Toll {
        let counts = &self.paid();
        // What a program took beyond what it brought back is the difference of two large numbers, of which
        // one is counted and the other estimated. With as many pages added as the windows missed of those
        // that came back, the estimate's error is that of the difference only.
        let unseen = back.file as f64 * missed.file + back.swapped_in as f64 * missed.swapped_in;
        let allocated = (counts.allocated as f64 + unseen).max(0.0);
        let part = back.file as f64 / counts.added.max(1) as f64;
        Toll {
            thrashing: ((counts.wait(Reason::FilePage) as f64 * part.min(1.0)) as u64).max(counts.thrashing),
            swap_in: counts.wait(Reason::SwapIn),
            compaction: counts.compaction,
            refaults: back.file + back.swapped_in,
            allocated: allocated as u64,
            returned: counts.returned,
            held: self.held.pages(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_was_asked_about_decides_who_brought_pages_back() {
        let read = |added, again, asked, evicted| Read { added, known: CameBack { again, asked, evicted } };
        let all = |group: &[Read], pages| -> Vec<u64> {
            group.iter().map(|own| refaults(*own, group, pages)).collect()
        };
        // A reader of a large file comes by again sooner than a database that reads here and there.
        let (reader, database) = (read(400_000, 50_000, 500, 500), read(2000, 0, 100, 100));
        assert_eq!(all(&[reader, database], 402_000), [400_000, 2000]);
        let copy = read(400_000, 0, 500, 0);
        assert_eq!(all(&[copy, database], 1990), [0, 1990]);
        // Whoever's files nobody could ask about has at most the rest.
        let find = read(1000, 16 * STRIDE, 0, 0);
        assert_eq!(all(&[reader, database, find], 402_500), [400_000, 2000, 500]);
        assert_eq!(all(&[copy, find], 5000), [0, 5000]);
        // Without answers the pages that were seen twice decide, or all that were read.
        let unasked = |read: Read| Read { known: CameBack { asked: 0, evicted: 0, ..read.known }, ..read };
        assert_eq!(all(&[unasked(copy), find], 800), [0, 800]);
        assert_eq!(all(&[unasked(copy), unasked(database)], 402), [400, 2]);
    }

    #[test]
    fn what_the_windows_missed_of_what_came_back_was_allocated_too() {
        let all = OfHost { refaults: 1000, ..OfHost::default() };
        // The windows, a quarter of the time, saw a fifth of it.
        let missed = Missed::of(all, OfHost { refaults: 200, ..OfHost::default() }, 4.0);
        let counts = Counts { allocated: 900, added: 900, ..Counts::default() };
        let sums = Sums { counts, ..Sums::default() };
        let toll = sums.toll(BroughtBack { file: 500, swapped_in: 300 }, missed);
        assert_eq!((toll.allocated, toll.refaults), (900 + 500 / 5, 800));
    }

    #[test]
    fn khugepaged_counts_against_the_group_that_it_works_for() {
        let program =
            |name: &str, group: &str| Program { name: name.into(), group: group.into(), is_called: false };
        let (daemon, sparse) = (program("khugepaged", "/"), program("sparse", "/limited/sparse"));
        let name = |actor: &str, role: &str| Name { actor: actor.into(), role: role.into() };
        let names =
            BTreeMap::from([(&daemon, name("khugepaged", "")), (&sparse, name("sparse", "/limited"))]);
        let counts = Counts { allocated: 512, ..Counts::default() };
        let sums = |is_kernel_thread| Sums { counts, is_kernel_thread, ..Sums::default() };
        let mut recorded = Recorded {
            programs: BTreeMap::from([(daemon.clone(), sums(true)), (sparse.clone(), sums(false))]),
            ..Recorded::default()
        };
        let roles = |recorded: &Recorded| -> Vec<String> {
            recorded.rows(&BTreeMap::new(), &names).iter().map(|row| row.role.to_string()).collect()
        };
        assert_eq!(roles(&recorded), ["", "/limited"]);
        recorded.back.collapsed = Some("/limited/sparse".into());
        assert_eq!(roles(&recorded), ["/limited", "/limited"]);
    }
}
