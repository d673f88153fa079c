//! How far the model is from kernels: [`Validation`]s, which are kept.
//!
//! ```text
//! a kernel's runs ───▶ Measured ─┐
//!                                ├──▶ Trial, with its conditions ──▶ Validation (a record) ──▶ the pages
//! its model's runs ──▶ Measured ─┘
//! ```
//!
//! A record has what each run of the kernel measured and all that the model has to be told. A later model is
//! compared with it without the kernel, and more repeats of the kernel are added to it. Programs start
//! a little apart in each of the model's runs: where much depends on chance, one run says little, and their
//! median is compared.

use std::path::{Path, PathBuf};
use std::{fs, io};

use lotsfree_run::Run;
use lotsfree_scenario::{Case, Cause, Conditions, Experiments, Record, Scenario};
use serde::{Deserialize, Serialize};
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::compare::error::median_of;
use crate::compare::{Column, Compared, Figures, Group, Measure, Measured, Point, Row, Table};

/// The format's name; raised when a field changes its meaning or goes.
const SCHEMA: &str = "lotsfree.validation/3";
/// The column of a validation's tables that has the model's figures; the kernel's are the first.
pub(crate) const MODEL: usize = 1;
/// Bytes of a file that are read; those that are kept have 64 KiB or so.
const MOST_TEXT: u64 = 16 << 20;

/// An experiment on one kernel and on its model.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// Name of the experiment.
    pub experiment: String,
    /// The model's name.
    pub generation: String,
    /// Release of the kernel.
    pub release: String,
    /// The kernel ran by software emulation: its times say little.
    pub emulated: bool,
    /// What the kernel's work costs on that machine.
    pub costs: Record,
    /// The variants.
    pub trials: Vec<Trial>,
    /// The kernel compared with the median of the model's runs, as far as those are there.
    pub compared: Compared,
    /// Pictures that were made with it, in the order in which they are shown. They are not kept.
    pub pictures: Vec<Drawn>,
}

/// One variant of an experiment on a kernel and on its model.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The case as the kernel executed it: [`Case::to_toml`].
    pub case: String,
    /// What the machine was like, which the model is told.
    pub conditions: Conditions,
    /// What each of the kernel's runs measured.
    pub kernel: Measured,
    /// What each of the model's runs measured; `None` until it has run.
    pub model: Option<Measured>,
}

/// A picture of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Name of its file.
    pub file: String,
    /// What it says.
    pub message: String,
}

/// A [`Validation`] as it is kept: a measure is described once.
#[derive(Serialize, Deserialize)]
struct Kept {
    schema: String,
    experiment: String,
    generation: String,
    release: String,
    emulated: bool,
    costs: Record,
    measures: Vec<KeptMeasure>,
    trials: Vec<KeptTrial>,
}

/// A measure; of a counter or level of `/proc/vmstat` its key says what it is.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum KeptMeasure {
    Counter(String),
    Other(Measure),
}

impl KeptMeasure {
    fn of(measure: Measure) -> Self {
        match Measure::of_counter(&measure.key) {
            Some(counter) if counter == measure => KeptMeasure::Counter(measure.key),
            _ => KeptMeasure::Other(measure),
        }
    }

    /// `None` if there is no such counter.
    fn measure(self) -> Option<Measure> {
        match self {
            KeptMeasure::Counter(key) => Measure::of_counter(&key),
            KeptMeasure::Other(measure) => Some(measure),
        }
    }
}

/// The fields of [`Trial`] of these names.
#[derive(Serialize, Deserialize)]
struct KeptTrial {
    case: String,
    conditions: Conditions,
    kernel: KeptMeasured,
    model: Option<KeptMeasured>,
}

/// The fields of [`Measured`] of these names.
#[derive(Serialize, Deserialize)]
struct KeptMeasured {
    title: String,
    scenario: String,
    variant: Option<String>,
    sweep: Option<Point>,
    column: Column,
    remarks: Vec<String>,
    rows: Vec<KeptRow>,
}

/// Which of the measures it is, and its figure of each run.
#[derive(Serialize, Deserialize)]
struct KeptRow(usize, Vec<Option<Number>>);

/// A figure, without `.0` where it is whole.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Part(f64),
}

impl Number {
    /// Up to here whole numbers of an `f64` are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;

    fn of(value: f64) -> Self {
        let whole = value.fract() == 0.0 && value.abs() < Self::EXACT;
        if whole { Number::Whole(value as i64) } else { Number::Part(value) }
    }

    fn value(self) -> f64 {
        match self {
            Number::Whole(value) => value as f64,
            Number::Part(value) => value,
        }
    }
}

impl KeptMeasured {
    fn of(measured: &Measured, known: &mut Vec<Measure>) -> Self {
        let mut row = |Figures { measure, values }: &Figures| {
            let place = known.iter().position(|known| known == measure).unwrap_or_else(|| {
                known.push(measure.clone());
                known.len() - 1
            });
            KeptRow(place, values.iter().map(|value| value.map(Number::of)).collect())
        };
        let rows = measured.measures.iter().map(&mut row).collect();
        let Measured { title, scenario, variant, sweep, column, remarks, measures: _ } = measured.clone();
        KeptMeasured { title, scenario, variant, sweep, column, remarks, rows }
    }

    /// `None` if a row is of a measure that there is not.
    fn measured(self, known: &[Measure]) -> Option<Measured> {
        let figures = |KeptRow(place, values): KeptRow| {
            let values = values.into_iter().map(|value| value.map(Number::value)).collect();
            Some(Figures { measure: known.get(place)?.clone(), values })
        };
        let KeptMeasured { title, scenario, variant, sweep, column, remarks, rows } = self;
        let measures = rows.into_iter().map(figures).collect::<Option<_>>()?;
        Some(Measured { title, scenario, variant, sweep, column, remarks, measures })
    }
}

impl Trial {
    /// Its case; `None` if an older lotsfree wrote it with keys that are no more.
    pub fn case(&self) -> Option<Case> {
        let cases = Scenario::parse(&self.case, "a recorded case").ok()?.cases(None).ok()?;
        cases.into_iter().next()
    }
}

impl KeptTrial {
    fn of(trial: &Trial, known: &mut Vec<Measure>) -> Self {
        let Trial { case, conditions, kernel, model } = trial;
        KeptTrial {
            case: case.clone(),
            conditions: conditions.clone(),
            kernel: KeptMeasured::of(kernel, known),
            model: model.as_ref().map(|model| KeptMeasured::of(model, known)),
        }
    }

    /// `None` if a row is of a measure that there is not.
    fn trial(self, known: &[Measure]) -> Option<Trial> {
        let KeptTrial { case, conditions, kernel, model } = self;
        let model = match model {
            Some(model) => Some(model.measured(known)?),
            None => None,
        };
        Some(Trial { case, conditions, kernel: kernel.measured(known)?, model })
    }
}

impl Kept {
    fn of(validation: &Validation) -> Self {
        let mut measures = Vec::new();
        let trials = validation.trials.iter().map(|trial| KeptTrial::of(trial, &mut measures)).collect();
        let Validation { experiment, generation, release, emulated, costs, .. } = validation.clone();
        let measures = measures.into_iter().map(KeptMeasure::of).collect();
        let schema = SCHEMA.to_owned();
        Kept { schema, experiment, generation, release, emulated, costs, measures, trials }
    }

    fn validation(self) -> Result<Validation, ValidationError> {
        let Kept { schema: _, experiment, generation, release, emulated, costs, measures, trials } = self;
        let measures = measures.into_iter().map(KeptMeasure::measure).collect::<Option<Vec<_>>>();
        let measures = measures.ok_or(ValidationError::Measure)?;
        let trials = trials.into_iter().map(|trial| trial.trial(&measures)).collect::<Option<_>>();
        let trials = trials.ok_or(ValidationError::Measure)?;
        Ok(Validation { release, emulated, ..Validation::of(experiment, generation, costs, trials) })
    }
}

/// Writes JSON with a line for each measure, each trial and each row.
#[derive(Default)]
struct Lines {
    /// Lists and objects that what is written next is in.
    depth: u8,
}

impl Lines {
    /// Where `measures` and `trials` are.
    const OF_A_RECORD: u8 = 2;
    /// Where the rows of a trial are.
    const OF_A_TRIAL: u8 = 5;

    fn begin(&mut self, out: &mut (impl io::Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth = self.depth.saturating_add(1);
        out.write_all(bracket)
    }

    fn end(&mut self, out: &mut (impl io::Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth = self.depth.saturating_sub(1);
        out.write_all(bracket)
    }
}

impl Formatter for Lines {
    fn begin_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_array_value<W: io::Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b"," })?;
        let line = matches!(self.depth, Self::OF_A_RECORD | Self::OF_A_TRIAL);
        out.write_all(if line { b"\n" } else { b"" })
    }
}

/// The format of a record, before the rest of it is read.
#[derive(Deserialize)]
struct Schema {
    schema: String,
}

/// Why a file is not a [`Validation`].
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    /// It is not the JSON that it should be.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It is of another format.
    #[error("of format {0:?}; this lotsfree reads {SCHEMA:?}")]
    Schema(String),
    /// A measure is of a counter that no kernel has, or a row names one by a number that none has.
    #[error("it has a row of a measure that is not described, or a measure of an unknown counter")]
    Measure,
    /// Runs of one kernel are added to those of another.
    #[error("runs of {recorded} are recorded and this one is of {other}; --fresh repeats them all")]
    Release {
        /// Release of the kernel whose runs are there.
        recorded: String,
        /// Release of the other.
        other: String,
    },
    /// A run is added to a trial that cannot be there yet.
    #[error("a run of a trial before which another has not run")]
    Trial,
    /// The system does not let it be read.
    #[error("{path}: {error}")]
    Io {
        /// The file, or the directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The same of a file.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<ValidationError>,
    },
}

impl Validation {
    /// Of trials; pictures are added by the caller. `costs` says on what machine the kernel runs.
    pub fn of(experiment: String, generation: String, costs: Record, trials: Vec<Trial>) -> Self {
        let emulated = costs.provenance.accelerator.as_ref().is_some_and(|accelerator| accelerator != "kvm");
        let middle = |trial: &Trial| Some(trial.model.as_ref()?.middle());
        let models: Vec<Option<Measured>> = trials.iter().map(middle).collect();
        let pairs = trials.iter().zip(&models);
        let compared =
            Compared::of_pairs(pairs.filter_map(|(trial, model)| Some((&trial.kernel, model.as_ref()?))));
        let (release, pictures) = (String::new(), Vec::new());
        Validation { experiment, generation, release, emulated, costs, trials, compared, pictures }
    }

    /// The trials that the model has executed, with their tables.
    pub fn executed(&self) -> impl Iterator<Item = (&Trial, &Table)> {
        self.trials.iter().filter(|trial| trial.model.is_some()).zip(&self.compared.tables)
    }

    /// The kernel of each trial beside every single run of its model.
    pub fn of_single_runs(&self) -> impl Iterator<Item = Vec<Table>> {
        self.trials.iter().filter_map(|trial| {
            let model = trial.model.as_ref()?;
            let beside = |place| Table::beside(&trial.kernel, &model.of_run(place));
            Some((0..model.column.repeats).map(beside).collect())
        })
    }

    /// Adds a run of the kernel to a trial, or as the next trial. The first run of a trial says what the
    /// model is told.
    ///
    /// # Errors
    /// If the other runs are of another kernel, or if a trial before it has not run.
    pub fn add(
        &mut self,
        trial: usize,
        run: &Run,
        case: &Case,
        conditions: Conditions,
    ) -> Result<(), ValidationError> {
        let release = &run.facts().osrelease;
        if self.trials.is_empty() {
            self.release.clone_from(release);
        } else if self.release != *release {
            return Err(ValidationError::Release { recorded: self.release.clone(), other: release.clone() });
        }
        let kernel = Measured::of(std::slice::from_ref(run)).ok_or(ValidationError::Trial)?;
        let next = self.trials.len();
        match self.trials.get_mut(trial) {
            Some(known) => known.kernel.extend(kernel),
            None if trial == next => {
                self.trials.push(Trial { case: case.to_toml(), conditions, kernel, model: None });
            }
            None => return Err(ValidationError::Trial),
        }
        Ok(())
    }

    /// Reads what [`to_json`](Validation::to_json) wrote.
    ///
    /// # Errors
    /// If the text is something else.
    pub fn parse(text: &str) -> Result<Self, ValidationError> {
        let Schema { schema } = serde_json::from_str(text)?;
        match schema.as_str() {
            SCHEMA => serde_json::from_str::<Kept>(text)?.validation(),
            _ => Err(ValidationError::Schema(schema)),
        }
    }

    /// Reads all files `*.json` of a directory, in the order of their names.
    ///
    /// # Errors
    /// Names the file that cannot be read.
    pub fn load_all(directory: &Path) -> Result<Vec<Self>, ValidationError> {
        let at = |path: &Path| {
            let path = path.to_path_buf();
            |error| ValidationError::Io { path, error }
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory).map_err(at(directory))? {
            let path = entry.map_err(at(directory))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| Validation::load(path)).collect()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Name the file.
    pub fn load(path: &Path) -> Result<Self, ValidationError> {
        let at = || path.to_path_buf();
        let text = lotsfree_storage::read_text_at_most(path, MOST_TEXT)
            .map_err(|error| ValidationError::Io { path: at(), error })?;
        Validation::parse(&text).map_err(|error| ValidationError::File { path: at(), error: Box::new(error) })
    }

    /// As JSON, a line for each measure and each row of a table.
    ///
    /// # Errors
    /// As [`serde_json::to_string`]; no run that can be read brings one about.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let mut out = Vec::new();
        Kept::of(self).serialize(&mut Serializer::with_formatter(&mut out, Lines::default()))?;
        out.push(b'\n');
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Whether a figure depends on how fast instructions are executed.
    fn is_time(&self, row: &Row) -> bool {
        row.unit == "nanoseconds" || row.unit == "per second" || row.group == Group::Requests
    }

    /// Whether a measure of the kernel says something of the model.
    pub fn counts(&self, experiments: &Experiments, table: &Table, row: &Row) -> bool {
        let variant = variant(table);
        let is_of = |cause: &Cause| cause.is_of(&row.key, &variant, &self.generation);
        let left_out = experiments.left_out.iter().any(is_of);
        let slowed = self.emulated && self.is_time(row);
        !left_out && !slowed
    }

    /// The median of how far repeats of the kernel are apart; `None` without repeats.
    pub fn spread(&self, experiments: &Experiments, table: &Table) -> Option<f64> {
        let counted = table.rows.iter().filter(|row| self.counts(experiments, table, row));
        median_of(counted.filter_map(|row| row.values.first()?.as_ref()?.spread).collect())
    }

    /// What the kernel is called beside others.
    pub fn kernel(&self) -> &str {
        self.generation.strip_prefix("linux-").unwrap_or(&self.generation)
    }
}

/// A table's variant, as far as all columns have the same.
pub fn variant(table: &Table) -> String {
    table.variant.clone().unwrap_or_default()
}
