//! A case on the running kernel, be it the host's or a guest's: settings, files, facts, then the run itself.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lotsfree_changes::Changes;
use lotsfree_run::{Event, EventKind, Facts, Measured, RunOn, Sink, State, Window, WriteError};
use lotsfree_scenario::Case;
use lotsfree_settings::{self as settings, LRU_GEN_ENABLED, NR_HUGEPAGES, NUMA_BALANCING, Value, find};
use lotsfree_units::PageSize;
use lotsfree_workload::quantity::Time;

use crate::coordinator::{Place, coordinate};
use crate::error::{LabError, at};
use crate::prepare::{Segments, Written};

/// Where a run is written. It begins once the facts of the machine are known.
pub trait Output {
    /// The run begins.
    ///
    /// # Errors
    /// If it cannot be written.
    fn begin(&mut self, facts: Facts) -> Result<(), WriteError>;

    /// The sink for the rows of a run that has begun.
    fn sink(&mut self) -> &mut dyn Sink;
}

/// Called with the progress of a case; its result says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(Stage) -> ControlFlow<()>;

/// Progress of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The machine is being made ready.
    Preparing,
    /// The run has reached this time, in nanoseconds.
    At(u64),
}

/// The file of a scenario's setting. For a setting that each disk has, it is that of the disk that holds
/// `files`.
///
/// # Errors
/// The reason, in words, why there is no such file.
pub(crate) fn setting_path(name: &str, files: &Path) -> Result<PathBuf, String> {
    let setting = find(name).ok_or_else(|| format!("no setting {name} is known"))?;
    let path = match setting.place {
        settings::Place::Block(file) => disk_of(files)?.join(file),
        settings::Place::Sysctl | settings::Place::Sys(_) => PathBuf::from(setting.path()),
    };
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("this kernel has no such setting ({})", path.display()))
    }
}

/// The directory below `/sys` of the disk that holds a path; for a partition, that of the whole disk.
fn disk_of(path: &Path) -> Result<PathBuf, String> {
    let status = rustix::fs::stat(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let (major, minor) = (rustix::fs::major(status.st_dev), rustix::fs::minor(status.st_dev));
    // The links below /sys/dev/block lead to the devices below /sys/devices, which is where settings are
    // written.
    let device = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
        .map_err(|_| format!("{} is on a file system without a disk of its own", path.display()))?;
    let whole = device.parent().filter(|_| device.join("partition").exists());
    Ok(whole.map_or_else(|| device.clone(), Path::to_path_buf))
}

/// The most threads that the lab starts.
const THREADS: u64 = 4096;

/// Whether the kernel of a case uses the multi-generational LRU.
pub(crate) fn wants_lru_gen(case: &Case) -> bool {
    case.machine.generation.name().ends_with("+mglru")
}

/// The boot parameter that makes a setting as well, which kernels have that lack the setting's file:
/// `kernel.numa_balancing` is there since 3.14, and what it switches since 3.8.
pub(crate) fn boot_parameter(name: &str, value: &Value) -> Option<&'static str> {
    (name == NUMA_BALANCING && *value == Value::Number(0)).then_some("numa_balancing=disable")
}

/// Refuses a case of a machine whose pages are not those of the kernel that is to execute it.
///
/// # Errors
/// As it says; `who` is whose pages have the size `here`.
pub(crate) fn check_page_size(case: &Case, here: PageSize, who: &str) -> Result<(), LabError> {
    let wanted = case.machine.page();
    if wanted == here {
        return Ok(());
    }
    let why = format!("{who}, with pages of {}, not of {}; the model has both", here.bytes(), wanted.bytes());
    Err(case.refuse("machine.page-size", why).into())
}

/// Refuses a case of more threads than the lab starts.
///
/// # Errors
/// As it says.
pub(crate) fn check_threads(case: &Case) -> Result<(), LabError> {
    let threads = case.actors.iter().fold(0u64, |sum, actor| sum.saturating_add(actor.kind.thread_count()));
    if threads <= THREADS {
        return Ok(());
    }
    let why = format!(
        "the lab starts at most {THREADS} threads, and this scenario has {threads}; the model executes it"
    );
    Err(case.refuse("actor", why).into())
}

/// Every setting that a case asks for, as a file and its value. `files` is on the disk that the actors use.
///
/// # Errors
/// If the running kernel lacks a setting, or has pages of another size than the case's machine, or the case
/// wants the multi-generational LRU and the kernel has none.
pub(crate) fn wanted(case: &Case, files: &Path) -> Result<Vec<(PathBuf, String)>, LabError> {
    let mut settings = Vec::new();
    let page = PageSize::new(lotsfree_sys::page_size() as u64).unwrap_or_default();
    check_page_size(case, page, "this kernel runs")?;
    check_threads(case)?;
    // The case's generation says whether it wants the multi-generational LRU.
    match (wants_lru_gen(case), setting_path(LRU_GEN_ENABLED, files)) {
        (true, Err(why)) => {
            let why = format!("this kernel has no multi-generational LRU: {why}");
            return Err(case.refuse("machine.generation", why).into());
        }
        (true, Ok(path)) => settings.push((path, "7".to_owned())),
        (false, Ok(path)) => settings.push((path, "0".to_owned())),
        (false, Err(_)) => {}
    }
    let booted = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    for (name, value) in case.tuning.iter() {
        if boot_parameter(name, value).is_some_and(|word| booted.split(' ').any(|one| one.trim() == word)) {
            continue;
        }
        let path = setting_path(name, files).map_err(|why| case.refuse(&format!("tuning.{name}"), why))?;
        settings.push((path, value.to_string()));
    }
    Ok(settings)
}

/// Executes a case; its settings have been made already. `written` are the files in its place.
///
/// # Errors
/// As [`coordinate`]; if files or segments cannot be made.
pub(crate) fn execute(
    case: &Case,
    place: &Place,
    machine: RunOn,
    remarks: Vec<String>,
    written: &mut Written,
    output: &mut dyn Output,
    watch: Watch<'_>,
) -> Result<State, LabError> {
    let program = case.program()?;
    if written.files(&program, &place.files, &mut || watch(Stage::Preparing))?.is_break() {
        return Ok(State::Interrupted);
    }
    let segments = Segments::new(&program.segments)?;
    drop(program);
    output.begin(facts(case, machine, remarks))?;
    for what in &segments.notes {
        let (kind, what) = (EventKind::Note, what.clone());
        output.sink().event(&Event::new(0, kind, what, None))?;
    }
    coordinate(case, &segments.names, place, output.sink(), &mut |at| watch(Stage::At(at)))
}

/// Facts about the running kernel, and about the case that it is going to execute.
fn facts(case: &Case, machine: RunOn, remarks: Vec<String>) -> Facts {
    let window = |(from, to): (Time, Time)| Window { from: from.ns(), to: to.ns() };
    Facts {
        title: case.title.clone(),
        variant: Some(case.variant.clone()),
        interval: case.interval.ns(),
        duration: case.duration.ns(),
        measure: Measured {
            baseline: case.measure.baseline.map(window),
            window: Some(window(case.measure.window)),
        },
        ..lotsfree_watch::facts(machine, remarks)
    }
}

/// The value of a setting, trimmed. For a choice such as `always [madvise] never`, the word in brackets.
pub(crate) fn current(path: &Path) -> Result<String, LabError> {
    let text = std::fs::read_to_string(path).map_err(at(path))?;
    Ok(lotsfree_changes::chosen(&text).to_owned())
}

/// The file of `vm.nr_hugepages`.
pub(crate) fn pool() -> PathBuf {
    find(NR_HUGEPAGES).map(|setting| setting.path().into()).unwrap_or_default()
}

/// The setting that an actor of a case writes while the run goes on, with the actor's name.
pub(crate) fn set_by_actor(case: &Case) -> Option<(PathBuf, &str)> {
    let actor = case.actors.iter().find(|actor| actor.kind.sets_pool())?;
    Some((pool(), &actor.name))
}

/// Makes the settings of a case, and notes the one that an actor will write.
///
/// # Errors
/// As [`Changes::set`] and [`Changes::lend`].
pub(crate) fn tune(case: &Case, wanted: &[(PathBuf, String)], changes: &mut Changes) -> Result<(), LabError> {
    wanted.iter().try_for_each(|(path, value)| changes.set(path, value))?;
    Ok(set_by_actor(case).map_or(Ok(()), |(path, _)| changes.lend(&path))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lotsfree_settings::{READ_AHEAD_KB, SWAPPINESS};

    #[test]
    fn settings_are_where_the_kernel_has_them() {
        let swappiness = setting_path(SWAPPINESS, Path::new("/")).unwrap();
        assert_eq!(swappiness, Path::new("/proc/sys/vm/swappiness"));
        assert!(setting_path("vm.acme", Path::new("/")).is_err());
    }

    #[test]
    fn a_setting_of_disks_is_that_of_the_disk_below_the_files() {
        let without = setting_path(READ_AHEAD_KB, Path::new("/proc")).unwrap_err();
        assert_eq!(without, "/proc is on a file system without a disk of its own");
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let disks = mounts.lines().filter_map(|line| line.strip_prefix("/dev/")?.split(' ').nth(1));
        for mounted in disks {
            let path = setting_path(READ_AHEAD_KB, Path::new(mounted)).unwrap();
            assert!(path.starts_with("/sys/devices") && path.ends_with("queue/read_ahead_kb"), "{path:?}");
            assert!(current(&path).unwrap().parse::<u64>().is_ok());
        }
    }
}
