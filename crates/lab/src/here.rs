//! A case on the kernel that runs here, whichever that is: settings, files, facts, then the run itself.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lotsfree_changes::Changes;
use lotsfree_run::{Facts, Machine, Sink, State, WriteError};
use lotsfree_scenario::Case;

use crate::conduct::{Place, conduct};
use crate::error::{LabError, at};
use crate::facts;
use crate::prepare::{self, Segments};

/// Where a run goes, once it is known on what it is made.
pub trait Output {
    /// The run begins.
    ///
    /// # Errors
    /// If it cannot be written.
    fn begin(&mut self, facts: Facts) -> Result<(), WriteError>;

    /// Where its rows go, once it has begun.
    fn sink(&mut self) -> &mut dyn Sink;
}

/// Says how far a case is, and hears whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(Stage) -> ControlFlow<()>;

/// How far a case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The machine is being made ready.
    Preparing,
    /// The run is at this time, in nanoseconds.
    At(u64),
}

/// The setting that a generation with the multi-generational LRU stands for.
const LRU_GEN: &str = "/sys/kernel/mm/lru_gen/enabled";

/// The file of a setting of a scenario: `vm.swappiness`, `kernel.mm.lru_gen.min_ttl_ms`.
pub(crate) fn setting_path(name: &str) -> PathBuf {
    let root = if name.starts_with("kernel.mm.") { "/sys" } else { "/proc/sys" };
    Path::new(root).join(name.replace('.', "/"))
}

/// Whether the kernel of a case uses the multi-generational LRU.
pub(crate) fn wants_lru_gen(case: &Case) -> bool {
    case.machine.generation.name().ends_with("+mglru")
}

/// Every setting that a case asks for: the file and the value.
///
/// # Errors
/// If the kernel that runs here has no multi-generational LRU and the case wants it.
pub(crate) fn wanted(case: &Case) -> Result<Vec<(PathBuf, String)>, LabError> {
    let mut settings = Vec::new();
    let lru_gen = Path::new(LRU_GEN);
    match (wants_lru_gen(case), lru_gen.exists()) {
        (true, false) => {
            let why = format!("this kernel has no multi-generational LRU ({LRU_GEN})");
            return Err(case.refuse("machine.generation", why).into());
        }
        (true, true) => settings.push((lru_gen.to_path_buf(), "7".to_owned())),
        (false, true) => settings.push((lru_gen.to_path_buf(), "0".to_owned())),
        (false, false) => {}
    }
    for (name, value) in case.tuning.iter() {
        let path = setting_path(name);
        if !path.exists() {
            let why = format!("this kernel has no such setting ({})", path.display());
            return Err(case.refuse(&format!("tuning.{name}"), why).into());
        }
        settings.push((path, value.to_string()));
    }
    Ok(settings)
}

/// Executes a case under settings that have been made.
///
/// # Errors
/// As [`conduct`]; if files or segments cannot be made.
pub(crate) fn execute(
    case: &Case,
    place: &Place,
    machine: Machine,
    remarks: Vec<String>,
    output: &mut dyn Output,
    watch: Watch<'_>,
) -> Result<State, LabError> {
    let program = case.program()?;
    if prepare::files(&program, &place.files, &mut || watch(Stage::Preparing))?.is_break() {
        return Ok(State::Interrupted);
    }
    let segments = Segments::new(&program.segments)?;
    drop(program);
    output.begin(facts::facts(case, machine, remarks))?;
    conduct(case, &segments.names, place, output.sink(), &mut |at| watch(Stage::At(at)))
}

/// What a setting is, trimmed. Of a choice such as `always [madvise] never`, the one in brackets.
pub(crate) fn current(path: &Path) -> Result<String, LabError> {
    let text = std::fs::read_to_string(path).map_err(at(path))?;
    Ok(lotsfree_changes::chosen(&text).to_owned())
}

/// Makes the settings of a case.
///
/// # Errors
/// As [`Changes::set`].
pub(crate) fn tune(wanted: &[(PathBuf, String)], changes: &mut Changes) -> Result<(), LabError> {
    Ok(wanted.iter().try_for_each(|(path, value)| changes.set(path, value))?)
}
