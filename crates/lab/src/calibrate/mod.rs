//! Measures what the kernel's work costs on this machine, as a [`Record`].
//!
//! | group | measures |
//! |---|---|
//! | [`faults`] | `fault` `alloc` `zero` `free`, huge faults |
//! | [`touch`] | `touch`, by the size of the memory that is touched |
//! | [`calls`] | `syscall` `copy` `wakeup`, cached reads |
//! | [`device`] | `submit`, disk and swap area |
//! | [`written`] | `write` `writeback` |
//! | [`reclaim`] | `scan` `rmap` |
//! | [`machine`] | provenance, memory that the kernel keeps |
//!
//! Work is measured in CPU time of its thread, so that other load on the machine counts only by what it
//! evicts from caches. Operations that wait are measured in real time.

mod calls;
mod device;
mod faults;
mod machine;
mod reclaim;
mod touch;
mod written;

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lotsfree_changes::Changes;
use lotsfree_scenario::{Measured, Record};
use lotsfree_sys::thread_cpu_time;
use lotsfree_units::{Bytes, MIB};

use crate::error::{LabError, at};
use crate::prepare;

pub use reclaim::helper;

/// Bytes of a base page.
const PAGE: usize = 4096;

/// How much is done to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How often each value is measured.
    pub repetitions: u32,
    /// Calls, loads or wake-ups of one repetition.
    pub calls: u32,
    /// Pages that are faulted in, zeroed or reclaimed in one repetition.
    pub pages: usize,
    /// The most memory that is touched; a quarter of `MemAvailable` if that is less.
    pub footprint: Bytes,
    /// Size of the file that is read.
    pub file: Bytes,
    /// Time for each figure of a device.
    pub time: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Effort {
            repetitions: 9,
            calls: 50_000,
            pages: 16_384,
            footprint: Bytes::gib(16),
            file: Bytes::mib(128),
            time: Duration::from_secs(1),
        }
    }
}

/// Measures the machine that it runs on.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The directory in which one is made for a file; that one is removed afterwards.
    pub parent: PathBuf,
    /// The program that runs [`helper`], with its arguments.
    pub helper: (PathBuf, Vec<String>),
    /// The machine has just booted, and only for this measurement.
    pub fresh: bool,
    /// How much is done.
    pub effort: Effort,
}

impl Calibration {
    /// Measures everything. `watch` is told what is measured next, and says whether to go on; if not, the
    /// result is `None`. The record has no name and no date yet. A value that cannot be measured is absent,
    /// with the reason.
    ///
    /// # Errors
    /// If the directory or the file in it cannot be made, or a change of this machine cannot be undone.
    pub fn measure(
        &self,
        changes: Changes,
        watch: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<Option<Record>, LabError> {
        let mut changes = changes;
        let mut record = Record { provenance: machine::provenance(), ..Record::default() };
        let done = self.groups(&mut record, &mut changes, watch);
        let undone = changes.undo(&mut |_| ());
        let done = done?;
        undone?;
        Ok(done.is_continue().then_some(record))
    }

    fn groups(
        &self,
        record: &mut Record,
        changes: &mut Changes,
        watch: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, LabError> {
        let effort = &self.effort;
        // This comes first, before other measurements have used memory.
        machine::kernel(self.fresh, record);
        let mut going = |what: &str| watch(what);
        if going("page faults").is_break() {
            return Ok(ControlFlow::Break(()));
        }
        faults::measure(effort, record);
        if going("touches").is_break() {
            return Ok(ControlFlow::Break(()));
        }
        touch::measure(effort, record);
        if going("calls").is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let directory = changes.directory(&self.parent, "calibrate")?;
        let path = directory.join("file");
        let bytes = room(&directory)?.min(effort.file);
        if prepare::file(&path, bytes.0, &mut || watch("the disk"))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let file = File::open(&path).map_err(at(&path))?;
        calls::measure(&file, bytes, effort, record);
        if watch("the disk").is_break() {
            return Ok(ControlFlow::Break(()));
        }
        drop(file);
        device::disk(&path, bytes, effort, record);
        if watch("written files").is_break() {
            return Ok(ControlFlow::Break(()));
        }
        written::measure(&directory.join("written"), bytes, effort, record);
        if watch("the swap area").is_break() {
            return Ok(ControlFlow::Break(()));
        }
        device::swap(effort, record);
        if watch("reclaim").is_break() {
            return Ok(ControlFlow::Break(()));
        }
        reclaim::measure(self, (&path, bytes), changes, record);
        Ok(ControlFlow::Continue(()))
    }
}

/// A quarter of a file system's free space, in whole MiB.
fn room(directory: &Path) -> Result<Bytes, LabError> {
    let there = rustix::fs::statvfs(directory).map_err(|error| at(directory)(error.into()))?;
    let room = there.f_bavail.saturating_mul(there.f_frsize) / 4 / MIB * MIB;
    if room == 0 {
        let why = format!("{}: no room for a file to read", directory.display());
        return Err(LabError::Refused(why));
    }
    Ok(Bytes(room))
}

/// A measurement, or the reason why there is none.
type Value = Result<Measured, String>;

/// Puts a value into its place in a record, or the reason for its absence.
fn keep(
    record: &mut Record,
    name: &str,
    value: Value,
    place: impl FnOnce(&mut Record) -> &mut Option<Measured>,
) {
    match value {
        Ok(value) => *place(record) = Some(value),
        Err(why) => drop(record.absent.insert(name.to_owned(), why)),
    }
}

/// The median of the values of `once`, which is called as often as the effort says.
fn repeated(effort: &Effort, mut once: impl FnMut() -> io::Result<f64>) -> Value {
    let values: io::Result<Vec<f64>> = (0..effort.repetitions).map(|_| once()).collect();
    of(&values.map_err(|error| error.to_string())?)
}

/// The median of values that were measured.
fn of(values: &[f64]) -> Value {
    Measured::of(values).ok_or_else(|| "no value came of it".to_owned())
}

/// A value less a known part of it, or the reason why nothing is left.
fn less(value: Measured, part: f64) -> Value {
    let rest = value.map(|value| (value - part).max(0.0));
    if rest.median > 0.0 {
        Ok(rest)
    } else {
        Err(format!("{} ns in all, less than a part of it, {part} ns", value.median))
    }
}

/// CPU time of this thread for some work, in nanoseconds.
fn cpu(work: impl FnOnce()) -> f64 {
    let before = thread_cpu_time();
    work();
    thread_cpu_time().saturating_sub(before).as_nanos() as f64
}

/// CPU time of this thread for some work that may fail, in nanoseconds.
fn cpu_of(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let mut done = Ok(());
    let ns = cpu(|| done = work());
    done.map(|()| ns)
}

/// Random numbers that are the same in every calibration (xorshift).
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1)
    }

    /// The next number below a bound; `with` is mixed in.
    fn below(&mut self, bound: u64, with: u64) -> u64 {
        self.0 = (self.0 ^ with).max(1);
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

/// The text of a file, trimmed; empty if it cannot be read.
fn text(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_calibration_is_sane() {
        let parent = tempfile::tempdir().unwrap();
        let calibration = Calibration {
            parent: parent.path().to_path_buf(),
            // Without a helper, the values that need one are absent.
            helper: (PathBuf::from("/nonexistent/helper"), Vec::new()),
            fresh: false,
            effort: Effort {
                repetitions: 2,
                calls: 50,
                pages: 64,
                footprint: Bytes::mib(2),
                file: Bytes::mib(1),
                time: Duration::from_millis(5),
            },
        };
        let mut told = Vec::new();
        let watch = &mut |what: &str| {
            told.push(what.to_owned());
            ControlFlow::Continue(())
        };
        let mut record = calibration.measure(Changes::forgotten(), watch).unwrap().unwrap();
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        assert!(told.len() > 4, "{told:?}");
        for (name, value) in record.costs.entries() {
            match value {
                Some(value) => assert!(value.median > 0.0 && value.median.is_finite(), "{name}: {value:?}"),
                None => assert!(record.absent.contains_key(&format!("costs.{name}")), "{name}: no reason"),
            }
        }
        for name in ["touch", "syscall", "zero", "copy", "free", "wakeup"] {
            assert!(record.costs.entries().any(|(cost, value)| cost == name && value.is_some()), "{name}");
        }
        assert!(record.touch.len() >= 2 && record.provenance.cpus > 0);
        record.name = "this host".to_owned();
        record.provenance.date = "2026-11-22".to_owned();
        assert_eq!(Record::parse(&record.to_toml(), "r").unwrap(), record);
    }

    #[test]
    fn who_is_asked_to_stop_stops() {
        let parent = tempfile::tempdir().unwrap();
        let calibration = Calibration {
            parent: parent.path().to_path_buf(),
            helper: (PathBuf::new(), Vec::new()),
            fresh: false,
            effort: Effort::default(),
        };
        let measured = calibration.measure(Changes::forgotten(), &mut |_| ControlFlow::Break(()));
        assert_eq!(measured.unwrap(), None);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn random_numbers_are_below_their_bound() {
        let mut random = Random::new(7);
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|with| random.below(10, with)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    }
}
