//! How far the model is from kernels: [`Validation`]s, which are kept.
//!
//! ```text
//! runs of a kernel and of its model ──▶ compare ──▶ Validation (a file) ──▶ the page
//! ```

use std::path::{Path, PathBuf};
use std::{fs, io};

use lotsfree_scenario::{Cause, Experiments};
use serde::{Deserialize, Serialize};

use crate::compare::error::median;
use crate::compare::{Compared, Group, Row, Table, Verdict};

/// The format's name; raised when a field changes its meaning or goes.
const SCHEMA: &str = "lotsfree.validation/1";
/// Bytes of a file that are read; those that are kept have 64 KiB at most.
const MOST_TEXT: u64 = 16 << 20;

/// An experiment on one kernel and on its model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// `lotsfree.validation/1`.
    pub schema: String,
    /// Name of the experiment.
    pub experiment: String,
    /// The model's name.
    pub generation: String,
    /// Release of the kernel.
    pub release: String,
    /// The kernel ran by software emulation: its times say little.
    pub emulated: bool,
    /// The record that the model's costs are from.
    pub calibration: String,
    /// What nobody of the scenario had of each node when measuring began, which the model was told.
    pub occupied: Vec<String>,
    /// What was found, without what is too small to tell.
    pub compared: Compared,
    /// Pictures of it, in the order in which they are shown.
    pub pictures: Vec<Drawn>,
}

/// A picture of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawn {
    /// Name of its file.
    pub file: String,
    /// What it says.
    pub message: String,
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
    /// Of runs that were held against each other; names and facts are filled in by the caller.
    pub fn of(mut compared: Compared) -> Self {
        for table in &mut compared.tables {
            table.rows.retain(|row| row.deviations.iter().flatten().any(|d| d.verdict != Verdict::Small));
            for column in &mut table.columns {
                // They are on the machine that made them.
                column.runs.clear();
            }
        }
        Validation {
            schema: SCHEMA.to_owned(),
            experiment: String::new(),
            generation: String::new(),
            release: String::new(),
            emulated: false,
            calibration: String::new(),
            occupied: Vec::new(),
            compared,
            pictures: Vec::new(),
        }
    }

    /// Reads what [`to_json`](Validation::to_json) wrote.
    ///
    /// # Errors
    /// If the text is something else.
    pub fn parse(text: &str) -> Result<Self, ValidationError> {
        let mut found: Validation = serde_json::from_str(text)?;
        if found.schema != SCHEMA {
            return Err(ValidationError::Schema(found.schema));
        }
        found.compared.tables.iter_mut().flat_map(|table| &mut table.rows).for_each(Row::judge);
        Ok(found)
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
        let read = |path: &PathBuf| {
            let text = lotsfree_storage::read_text_at_most(path, MOST_TEXT).map_err(at(path))?;
            Validation::parse(&text)
                .map_err(|error| ValidationError::File { path: path.clone(), error: Box::new(error) })
        };
        paths.iter().map(read).collect()
    }

    /// As JSON, a line for each measure.
    ///
    /// # Errors
    /// As [`serde_json::to_string`]; no run that can be read brings one about.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string(self)?;
        Ok(text.replace("{\"key\":", "\n{\"key\":").replace("{\"title\":", "\n{\"title\":") + "\n")
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
        let mut spreads: Vec<f64> = counted.filter_map(|row| row.values.first()?.as_ref()?.spread).collect();
        spreads.sort_by(f64::total_cmp);
        median(&spreads)
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
