//! [`Glance`]: what `/proc` alone says of who pays for memory and who takes it, to a user who may not watch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_kernel_files::file::pressure::Psi;
use lotsfree_kernel_files::file::process::io::parse_io;
use lotsfree_kernel_files::{File as _, Log};
use lotsfree_sys as sys;

use crate::groups::{OfHost, counters};
use crate::tasks::{Held, Program, Tasks, Times};
use crate::{WatchError, at};

/// Where the pressure of control groups of version 2 is.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A look at the programs of this host, to be followed by another.
#[derive(Debug)]
pub struct Glance {
    tasks: Tasks,
    held: BTreeMap<Program, Held>,
    /// Bytes that each process has read from disks so far. What other users' processes have read is not shown
    /// to everybody, and missing here.
    read: HashMap<u32, u64>,
    host: Host,
    /// The stall of each group so far, in microseconds.
    groups: BTreeMap<Arc<str>, Stall>,
    began: u64,
}

/// Time in which tasks waited for memory, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stall {
    some: u64,
    full: u64,
}

/// What the whole host did so far.
#[derive(Clone, Copy, Debug, Default)]
struct Host {
    stall: Option<Stall>,
    /// Bytes read from disks, swap included (`pgpgin`).
    read: u64,
    /// Pages that came back after they were evicted.
    refaults: u64,
}

/// What was seen between two looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Glimpsed {
    /// How long it took.
    pub length: Duration,
    /// The parts of the time in which some and all tasks of the host waited for memory; `None` if the kernel
    /// does not measure pressure (before 4.20, or `psi=0`).
    pub stalled: Option<(f64, f64)>,
    /// Bytes read from disks, swap included.
    pub read: u64,
    /// Pages that came back after they were evicted.
    pub refaults: u64,
    /// The programs.
    pub programs: Vec<Glimpse>,
}

/// What was seen of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Glimpse {
    /// Its name.
    pub name: Arc<str>,
    /// Its control group; empty without one.
    pub group: Arc<str>,
    /// The part of the time in which some task of its control group waited for memory; `None` if the group
    /// has no pressure (version 1).
    pub stalled: Option<f64>,
    /// Major faults.
    pub major_faults: u64,
    /// Anonymous and shared memory that it holds at the end, in bytes.
    pub held: u64,
    /// How much that grew, in bytes.
    pub grew: i64,
    /// Bytes that it read from disks; `None` if this user may not know.
    pub read: Option<u64>,
}

impl Glance {
    /// Looks for the first time.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn begin() -> Result<Self, WatchError> {
        let began = sys::monotonic();
        let tasks = Tasks::all().map_err(at(Path::new("/proc")))?;
        let held = by_program(&tasks);
        let read = tasks.processes().into_iter().filter_map(|id| Some((id, read_bytes(id)?))).collect();
        let groups = tasks.programs().iter().map(|program| Arc::clone(&program.group)).collect();
        let groups = stalls(&groups);
        Ok(Glance { tasks, held, read, host: Host::so_far(), groups, began })
    }

    /// Looks again, at all processes but one.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn end(self, but: u32) -> Result<Glimpsed, WatchError> {
        let length = Duration::from_nanos(sys::monotonic() - self.began);
        let host = Host::so_far();
        let new = Tasks::all().map_err(at(Path::new("/proc")))?;
        let groups = new.programs().iter().map(|program| Arc::clone(&program.group)).collect();
        let groups = stalls(&groups);
        let mut programs: BTreeMap<Program, (Times, Option<u64>)> = BTreeMap::new();
        for (process, known) in new.known().filter(|(process, _)| *process != but) {
            let (times, read) = programs.entry(known.program.clone()).or_default();
            // Of one that began meanwhile everything counts.
            times.add(&known.last.since(&self.tasks.last(process).unwrap_or_default()));
            if let Some(now) = read_bytes(process) {
                let before = self.read.get(&process).copied().unwrap_or(0);
                *read = Some(read.unwrap_or(0) + now.saturating_sub(before));
            }
        }
        let held = by_program(&new);
        let part = |stall: u64| (stall as f64 / 1e6 / length.as_secs_f64().max(1e-3)).min(1.0);
        let since = |now: Stall, before: Stall| {
            (part(now.some.saturating_sub(before.some)), part(now.full.saturating_sub(before.full)))
        };
        let glimpse = |(program, (times, read)): (Program, (Times, Option<u64>))| {
            let pages = |held: &BTreeMap<Program, Held>| held.get(&program).map_or(0, |held| held.pages());
            let bytes = |pages: u64| pages.saturating_mul(sys::page_size() as u64);
            let (before, now) = (bytes(pages(&self.held)), bytes(pages(&held)));
            let stall = |groups: &BTreeMap<Arc<str>, Stall>| groups.get(&program.group).copied();
            Glimpse {
                stalled: stall(&groups).map(|now| since(now, stall(&self.groups).unwrap_or(now)).0),
                major_faults: times.major_faults,
                held: now,
                grew: now.cast_signed() - before.cast_signed(),
                read,
                name: program.name,
                group: program.group,
            }
        };
        Ok(Glimpsed {
            length,
            stalled: host.stall.zip(self.host.stall).map(|(now, before)| since(now, before)),
            read: host.read.saturating_sub(self.host.read),
            refaults: host.refaults.saturating_sub(self.host.refaults),
            programs: programs.into_iter().map(glimpse).collect(),
        })
    }
}

impl Glimpse {
    /// Whether there is anything to say of it.
    pub fn did_anything(&self) -> bool {
        let is_stalled = self.stalled.is_some_and(|part| part > 0.0);
        is_stalled || self.major_faults > 0 || self.grew != 0 || self.read.is_some_and(|bytes| bytes > 0)
    }
}

impl Host {
    fn so_far() -> Self {
        let stat = counters();
        let of = |counter| stat.get(counter).unwrap_or(0);
        Host {
            stall: stall(Path::new("/proc/pressure/memory")),
            // The kernel counts it in KiB.
            read: of(vmstat::pgpgin).saturating_mul(1024),
            refaults: OfHost::of(&stat).refaults.saturating_add(of(vmstat::workingset_refault_anon)),
        }
    }
}

fn by_program(tasks: &Tasks) -> BTreeMap<Program, Held> {
    let mut sums: BTreeMap<Program, Held> = BTreeMap::new();
    tasks.held().for_each(|(program, held)| sums.entry(program.clone()).or_default().add(held));
    sums
}

/// The stall of each group that tells of it.
fn stalls(groups: &BTreeSet<Arc<str>>) -> BTreeMap<Arc<str>, Stall> {
    let of = |group: &Arc<str>| {
        let below = group.strip_prefix('/').filter(|below| !below.is_empty())?;
        let file = ROOTS.iter().map(|root| Path::new(root).join(below).join("memory.pressure"));
        Some((Arc::clone(group), file.into_iter().find_map(|file| stall(&file))?))
    };
    groups.iter().filter_map(of).collect()
}

fn stall(file: &Path) -> Option<Stall> {
    let psi = Psi::parse(&fs::read(file).ok()?, &mut Log::default());
    let total =
        |stall: Option<lotsfree_kernel_files::file::pressure::Stall>| stall.map(|stall| stall.total_us);
    Some(Stall { some: total(psi.some)?, full: total(psi.full).unwrap_or(0) })
}

/// What a process has read from disks so far; `None` if this user may not know.
fn read_bytes(process: u32) -> Option<u64> {
    let text = fs::read(format!("/proc/{process}/io")).ok()?;
    parse_io(&text, &mut Log::default()).map(|(read, _)| read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_grows_is_seen_to() {
        let glance = Glance::begin().unwrap();
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        let glimpsed = glance.end(0).unwrap();
        let own = crate::tasks::name(std::process::id()).unwrap();
        let own: Vec<&Glimpse> = glimpsed.programs.iter().filter(|program| *program.name == *own).collect();
        let has_grown = |program: &&Glimpse| program.grew >= 32 << 20 && program.held >= 64 << 20;
        assert!(own.iter().any(has_grown), "{glimpsed:?}");
        drop(memory);
    }

    #[test]
    fn pressure_is_read_with_and_without_all_tasks() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = "avg10=0.00 avg60=0.00 avg300=0.00 total=";
        fs::write(&file, format!("some {line}7\nfull {line}5\n")).unwrap();
        assert_eq!(stall(file.path()), Some(Stall { some: 7, full: 5 }));
        fs::write(&file, format!("some {line}7\n")).unwrap();
        assert_eq!(stall(file.path()), Some(Stall { some: 7, full: 0 }));
        fs::write(&file, "").unwrap();
        assert_eq!(stall(file.path()), None);
    }
}
