//! How far the model is from kernels: [`Validation`]s, which are kept.
//!
//! ```text
//! runs of a kernel and of its model ──▶ compare ──▶ Validation (a record) ──▶ the pages
//! ```
//!
//! A record has the figures and not what follows from them: a measure is described once, and a figure of
//! repeats is the list of what each of them had.

use std::path::{Path, PathBuf};
use std::{fs, io};

use lotsfree_scenario::{Cause, Experiments};
use serde::{Deserialize, Serialize};

use crate::compare::error::median;
use crate::compare::{self, Column, Compared, Group, Orders, Point, Row, Span, Table, Tallies, Verdict};

/// The format's name; raised when a field changes its meaning or goes.
const SCHEMA: &str = "lotsfree.validation/2";
/// The format before, which is read: a whole comparison with its verdicts.
const SCHEMA_1: &str = "lotsfree.validation/1";
/// Bytes of a file that are read; those that are kept have 64 KiB at most.
const MOST_TEXT: u64 = 16 << 20;

/// An experiment on one kernel and on its model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Validation {
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
    /// Memory of each node that was in use by something other than the scenario when measuring began, which
    /// the model was told.
    pub occupied: Vec<String>,
    /// The comparison, without measures that are too small to tell.
    pub compared: Compared,
    /// Pictures that were made with it, in the order in which they are shown. They are not kept.
    #[serde(skip)]
    pub pictures: Vec<Drawn>,
}

/// A picture of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Name of its file.
    pub file: String,
    /// What it says.
    pub message: String,
}

/// A [`Validation`] as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    schema: String,
    experiment: String,
    generation: String,
    release: String,
    emulated: bool,
    calibration: String,
    occupied: Vec<String>,
    lotsfree: String,
    reference: String,
    remarks: Vec<String>,
    alone: Vec<String>,
    orders: Vec<Orders>,
    measures: Vec<Measure>,
    tables: Vec<KeptTable>,
}

/// What the tables have in common of a measure: the fields of [`Row`] of these names.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Measure {
    key: String,
    name: String,
    group: Group,
    unit: String,
    better: Option<String>,
    floor: f64,
    main: bool,
}

/// The fields of [`Table`] of these names.
#[derive(Serialize, Deserialize)]
struct KeptTable {
    title: String,
    scenario: String,
    variant: Option<String>,
    sweep: Option<Point>,
    columns: Vec<Column>,
    remarks: Vec<String>,
    tallies: Vec<Tallies>,
    rows: Vec<KeptRow>,
}

/// Which of the measures it is, and a figure per column.
#[derive(Serialize, Deserialize)]
struct KeptRow(usize, Vec<Option<Figure>>);

/// A figure of repeats.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Figure {
    /// Of up to three: what each of them had, ascending.
    Each(Vec<f64>),
    /// Of more.
    Summary(Span),
}

impl Figure {
    /// Repeats of which the summary says what each of them had.
    const MOST: usize = 3;

    fn of(span: &Span) -> Self {
        match span.repeats {
            1 => Figure::Each(vec![span.value]),
            2 => Figure::Each(vec![span.min, span.max]),
            Figure::MOST => Figure::Each(vec![span.min, span.value, span.max]),
            _ => Figure::Summary(*span),
        }
    }

    fn span(self, floor: f64) -> Option<Span> {
        match self {
            Figure::Each(figures) => Span::of(figures, floor),
            Figure::Summary(span) => Some(span),
        }
    }
}

impl KeptTable {
    fn of(table: &Table, measures: &mut Vec<Measure>) -> Self {
        let mut row = |row: &Row| {
            let Row { key, name, group, unit, better, floor, main, values, deviations: _ } = row.clone();
            let measure = Measure { key, name, group, unit, better, floor, main };
            let known = measures.iter().position(|known| *known == measure);
            let place = known.unwrap_or_else(|| {
                measures.push(measure);
                measures.len() - 1
            });
            KeptRow(place, values.iter().map(|span| span.as_ref().map(Figure::of)).collect())
        };
        let rows = table.rows.iter().map(&mut row).collect();
        let Table { title, scenario, variant, sweep, columns, remarks, tallies, rows: _ } = table.clone();
        KeptTable { title, scenario, variant, sweep, columns, remarks, tallies, rows }
    }

    /// `None` if a row is of a measure that there is not.
    fn table(self, measures: &[Measure]) -> Option<Table> {
        let row = |KeptRow(place, figures): KeptRow| {
            let Measure { key, name, group, unit, better, floor, main } = measures.get(place)?.clone();
            let values = figures.into_iter().map(|figure| figure.and_then(|figure| figure.span(floor)));
            let values = values.collect();
            let mut row = Row { key, name, group, unit, better, floor, main, values, deviations: Vec::new() };
            row.judge();
            Some(row)
        };
        let rows = self.rows.into_iter().map(row).collect::<Option<_>>()?;
        let KeptTable { title, scenario, variant, sweep, columns, remarks, tallies, rows: _ } =
            KeptTable { rows: Vec::new(), ..self };
        Some(Table { title, scenario, variant, sweep, columns, remarks, tallies, rows })
    }
}

impl Kept {
    fn of(validation: &Validation) -> Self {
        let Validation { experiment, generation, release, emulated, calibration, occupied, .. } =
            validation.clone();
        let compared = &validation.compared;
        let mut measures = Vec::new();
        let tables = compared.tables.iter().map(|table| KeptTable::of(table, &mut measures)).collect();
        let Compared { lotsfree, reference, remarks, alone, orders, .. } = compared.clone();
        let schema = SCHEMA.to_owned();
        Kept {
            schema,
            experiment,
            generation,
            release,
            emulated,
            calibration,
            occupied,
            lotsfree,
            reference,
            remarks,
            alone,
            orders,
            measures,
            tables,
        }
    }

    fn validation(self) -> Result<Validation, ValidationError> {
        let tables = self.tables.into_iter().map(|table| table.table(&self.measures));
        let tables = tables.collect::<Option<_>>().ok_or(ValidationError::Measure)?;
        Ok(Validation {
            experiment: self.experiment,
            generation: self.generation,
            release: self.release,
            emulated: self.emulated,
            calibration: self.calibration,
            occupied: self.occupied,
            compared: Compared {
                schema: compare::SCHEMA.to_owned(),
                lotsfree: self.lotsfree,
                reference: self.reference,
                remarks: self.remarks,
                tables,
                alone: self.alone,
                orders: self.orders,
            },
            pictures: Vec::new(),
        })
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
    #[error("of format {0:?}; this lotsfree reads {SCHEMA:?} and {SCHEMA_1:?}")]
    Schema(String),
    /// A row of a table names a measure by a number that none has.
    #[error("a table has a row of a measure that is not described")]
    Measure,
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
    /// Of runs that were compared with each other; names and facts are filled in by the caller.
    pub fn of(mut compared: Compared) -> Self {
        for table in &mut compared.tables {
            table.rows.retain(|row| row.deviations.iter().flatten().any(|d| d.verdict != Verdict::Small));
            for column in &mut table.columns {
                // They are on the machine that made them.
                column.runs.clear();
            }
        }
        Validation {
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
        let Schema { schema } = serde_json::from_str(text)?;
        match schema.as_str() {
            SCHEMA => serde_json::from_str::<Kept>(text)?.validation(),
            SCHEMA_1 => {
                let mut found: Validation = serde_json::from_str(text)?;
                found.compared.tables.iter_mut().flat_map(|table| &mut table.rows).for_each(Row::judge);
                Ok(found)
            }
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
        let read = |path: &PathBuf| {
            let text = lotsfree_storage::read_text_at_most(path, MOST_TEXT).map_err(at(path))?;
            Validation::parse(&text)
                .map_err(|error| ValidationError::File { path: path.clone(), error: Box::new(error) })
        };
        paths.iter().map(read).collect()
    }

    /// As JSON, a line for each measure and each row of a table.
    ///
    /// # Errors
    /// As [`serde_json::to_string`]; no run that can be read brings one about.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string(&Kept::of(self))?;
        let lines =
            [("{\"key\":", "\n{\"key\":"), ("{\"title\":", "\n{\"title\":"), ("\"rows\":[", "\"rows\":[\n")];
        let text = lines.iter().fold(text, |text, (from, to)| text.replace(from, to));
        Ok(text.replace("]],[", "]],\n[") + "\n")
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
