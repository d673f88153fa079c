//! [`Run`]: what a scenario yielded.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::store::{self, Head, State, Whole};
use crate::{Event, Facts, Intervals, Samples, Summary, Timing, journal, parquet};

/// What a scenario yielded on a machine, whole in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    directory: Option<PathBuf>,
    facts: Facts,
    scenario: String,
    state: State,
    samples: Samples,
    intervals: Intervals,
    events: Vec<Event>,
    timing: Option<Timing>,
    remarks: Vec<String>,
}

/// Why a run could not be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no `run.json`.
    #[error("{path}: not a run (no {} in it)", store::HEAD)]
    NotARun {
        /// As named.
        path: PathBuf,
    },
    /// A file of the run is missing.
    #[error("{path}: missing; the run cannot be read without it")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file of the run is not as it was written.
    #[error("{path}: damaged ({why})")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How that was seen.
        why: String,
    },
    /// Written by a later lotsfree.
    #[error("{path}: a run of format {found}; this lotsfree reads format {}", store::FORMAT)]
    Format {
        /// `run.json`.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The system does not let it be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// Whether a path is a directory that says of itself that it is a run: with `run.json` in it.
pub fn is_run(path: &Path) -> bool {
    path.join(store::HEAD).is_file()
}

impl Run {
    pub(crate) fn new(
        facts: Facts,
        scenario: String,
        state: State,
        samples: Samples,
        intervals: Intervals,
        events: Vec<Event>,
    ) -> Self {
        let mut run = Run { facts, scenario, state, samples, intervals, events, ..Run::default() };
        if state == State::Interrupted {
            run.remarks.push(format!("the run was interrupted {}", run.end()));
        }
        run
    }

    /// Notes where it is, once it is there.
    pub(crate) fn written_to(&mut self, directory: &Path, timing: Timing) {
        self.directory = Some(directory.to_path_buf());
        self.timing = Some(timing);
    }

    /// Reads a run from its directory. One that was not finished is read up to the last row that is whole;
    /// [`Run::remarks`] says so.
    ///
    /// # Errors
    /// Names the file that is missing, damaged or of a later format.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, OpenError> {
        let directory = directory.as_ref();
        let head = read_head(directory)?;
        let scenario = check(directory, &head, store::SCENARIO)?;
        let scenario = String::from_utf8(scenario)
            .map_err(|_| damaged(&directory.join(store::SCENARIO), "not UTF-8"))?;
        let timing = fs::read(directory.join(store::TIMING)).ok();
        let timing = timing.and_then(|text| serde_json::from_slice(&text).ok());
        let mut run = if head.state == State::Running {
            let journal_at = directory.join(store::JOURNAL);
            let journal = read(&journal_at)?;
            let contents = journal::read(&journal)
                .ok_or_else(|| damaged(&journal_at, "it does not begin as a journal does"))?;
            let journal::Contents { samples, intervals, events, rest } = contents;
            let mut run = Run::new(head.facts, scenario, State::Running, samples, intervals, events);
            run.remarks.push(format!("the run is incomplete: {}, {}", who(directory), run.end()));
            if rest > 0 {
                let end =
                    format!("the last {rest} bytes of {} are no whole row and are left out", store::JOURNAL);
                run.remarks.push(end);
            }
            run
        } else {
            let samples = table(directory, &head, store::SAMPLES, parquet::read_samples)?;
            let intervals = table(directory, &head, store::ACTORS, parquet::read_intervals)?;
            let events_at = directory.join(store::EVENTS);
            let events = check(directory, &head, store::EVENTS)?;
            let lines = events.split(|b| *b == b'\n').filter(|line| !line.is_empty());
            let events = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
            let events = events.map_err(|error| damaged(&events_at, error.to_string()))?;
            Run::new(head.facts, scenario, head.state, samples, intervals, events)
        };
        run.directory = Some(directory.to_path_buf());
        run.timing = timing;
        Ok(run)
    }

    /// Where it was read from or written to; `None` for a run in memory.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// What stayed the same.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The scenario as it was executed, with its variant and settings applied, as TOML.
    pub fn scenario(&self) -> &str {
        &self.scenario
    }

    /// Whether it came to its end.
    pub fn state(&self) -> State {
        self.state
    }

    /// The kernel's counters.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// What the actors did.
    pub fn intervals(&self) -> &Intervals {
        &self.intervals
    }

    /// What happened, in the order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How long it took in real time, once it has ended. No measure: it differs from run to run.
    pub fn timing(&self) -> Option<&Timing> {
        self.timing.as_ref()
    }

    /// What a reader should know of the run as such: that it is incomplete, what was left out.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// The measures that matter.
    pub fn summary(&self) -> Summary {
        Summary::of(self)
    }

    /// `after 12.5 s`, for remarks.
    fn end(&self) -> String {
        match self.samples.times().last() {
            Some(at) => format!("after {} s", (*at as f64 / 1e8).round() / 10.0),
            None => "before its first sample".to_owned(),
        }
    }
}

fn damaged(path: &Path, why: impl Into<String>) -> OpenError {
    OpenError::Damaged { path: path.to_path_buf(), why: why.into() }
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    fs::read(path).map_err(|error| io_error(path, error))
}

fn io_error(path: &Path, error: io::Error) -> OpenError {
    let path = path.to_path_buf();
    match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path },
        _ => OpenError::Io { path, error },
    }
}

fn read_head(directory: &Path) -> Result<Head, OpenError> {
    #[derive(serde::Deserialize)]
    struct AnyFormat {
        format: u32,
    }
    let path = directory.join(store::HEAD);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(OpenError::NotARun { path: directory.to_path_buf() });
        }
        Err(error) => return Err(OpenError::Io { path, error }),
    };
    let bad = |error: serde_json::Error| damaged(&path, error.to_string());
    let AnyFormat { format } = serde_json::from_slice(&text).map_err(bad)?;
    if format != store::FORMAT {
        return Err(OpenError::Format { path, found: format });
    }
    serde_json::from_slice(&text).map_err(bad)
}

/// Who left a run unfinished.
fn who(directory: &Path) -> &'static str {
    let lock = File::open(directory).map(|directory| directory.try_lock_shared());
    match lock {
        Ok(Err(TryLockError::WouldBlock)) => "it is still being written",
        _ => "whoever wrote it was killed",
    }
}

/// Says whether a file is as it was written.
fn compare(path: &Path, found: &Whole, head: &Head, name: &str) -> Result<(), OpenError> {
    let Some(written) = head.files.get(name) else {
        return Err(damaged(path, format!("{} does not mention it", store::HEAD)));
    };
    if found.bytes != written.bytes {
        return Err(damaged(path, format!("{} bytes instead of {}", found.bytes, written.bytes)));
    }
    if found.fnv1a != written.fnv1a {
        return Err(damaged(path, "its checksum is another one"));
    }
    Ok(())
}

/// Reads a file that is held in memory whole.
fn check(directory: &Path, head: &Head, name: &str) -> Result<Vec<u8>, OpenError> {
    let path = directory.join(name);
    let contents = read(&path)?;
    compare(&path, &Whole::of_bytes(&contents), head, name)?;
    Ok(contents)
}

/// Reads a table.
fn table<T>(
    directory: &Path,
    head: &Head,
    name: &str,
    read: impl FnOnce(File) -> ::parquet::errors::Result<T>,
) -> Result<T, OpenError> {
    let path = directory.join(name);
    let whole = Whole::of(&path).map_err(|error| io_error(&path, error))?;
    compare(&path, &whole, head, name)?;
    let file = File::open(&path).map_err(|error| io_error(&path, error))?;
    read(file).map_err(|error| damaged(&path, error.to_string()))
}
