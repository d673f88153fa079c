//! [`Run`]: the results of a scenario.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};

use lotsfree_storage as storage;
use serde::de::IgnoredAny;

use crate::parquet::{self, Damage};
use crate::store::{self, Head, Seal, State, Whole};
use crate::{Event, EventKind, Facts, Intervals, Samples, Summary, Timing, journal};

/// The results of a scenario on a machine, whole in memory.
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
        /// The path as the caller named it.
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
        /// Evidence of the damage.
        why: String,
    },
    /// The run was written by another version of the format.
    #[error("{path}: a run of format {found}; this lotsfree reads format {}", store::FORMAT)]
    Format {
        /// `run.json`.
        path: PathBuf,
        /// The run's format.
        found: u32,
    },
    /// A file could not be read.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Whether a path is a directory with a `run.json`. That may be anything: [`Run::open`] refuses one that is
/// not a file.
pub fn is_run(path: &Path) -> bool {
    path.join(store::HEAD).symlink_metadata().is_ok()
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
            let broken = |event: &&Event| event.kind == EventKind::Error && event.actor.is_none();
            run.remarks.push(match run.events.iter().rev().find(broken) {
                Some(event) => format!("the run broke off {}: {}", run.end(), event.what),
                None => format!("the run was interrupted {}", run.end()),
            });
        }
        run
    }

    /// Notes the directory of the run, once it is written.
    pub(crate) fn written_to(&mut self, directory: &Path, timing: Timing) {
        self.directory = Some(directory.to_path_buf());
        self.timing = Some(timing);
    }

    /// Reads a run from its directory. One that was not finished is read up to the last row that is whole;
    /// [`Run::remarks`] says so.
    ///
    /// # Errors
    /// Names the file that is missing, damaged or of another format.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, OpenError> {
        let directory = directory.as_ref();
        let (head, sealed) = read_head(directory)?;
        only_files(directory)?;
        let scenario = check(directory, &head, store::SCENARIO, store::MOST_SCENARIO)?;
        let scenario = String::from_utf8(scenario)
            .map_err(|_| damaged(&directory.join(store::SCENARIO), "not UTF-8"))?;
        let mut remarks = Vec::new();
        if !sealed {
            remarks.push(format!("it was written without a checksum of {}, as 0.1.0 did", store::HEAD));
        }
        let timing = timing(directory, &mut remarks)?;
        check_summary(directory, &head, &mut remarks)?;
        let mut run = match head.state {
            State::Running => Run::unfinished(directory, head, scenario)?,
            _ => Run::finished(directory, head, scenario)?,
        };
        run.remarks.append(&mut remarks);
        run.directory = Some(directory.to_path_buf());
        run.timing = timing;
        Ok(run)
    }

    /// Reads the journal of a run that did not end.
    fn unfinished(directory: &Path, head: Head, scenario: String) -> Result<Self, OpenError> {
        let path = directory.join(store::JOURNAL);
        let (file, length) = open(&path, store::MOST_JOURNAL)?;
        let contents = journal::read(file, length).map_err(|error| io_error(&path, error))?;
        let contents = contents.ok_or_else(|| damaged(&path, "it does not begin as a journal does"))?;
        let journal::Contents { samples, intervals, events, rest, .. } = contents;
        let who = who(directory, head.failed.as_deref());
        let mut run = Run::new(head.facts, scenario, State::Running, samples, intervals, events);
        run.remarks.push(format!("the run is incomplete: {who}, {}", run.end()));
        if rest > 0 {
            let end =
                format!("the last {rest} bytes of {} are no whole row and are left out", store::JOURNAL);
            run.remarks.push(end);
        }
        Ok(run)
    }

    /// Reads the tables of a run that ended.
    fn finished(directory: &Path, head: Head, scenario: String) -> Result<Self, OpenError> {
        let samples = table(directory, &head, store::SAMPLES, parquet::read_samples)?;
        let intervals = table(directory, &head, store::ACTORS, parquet::read_intervals)?;
        let events_at = directory.join(store::EVENTS);
        let events = check(directory, &head, store::EVENTS, store::MOST_EVENTS)?;
        let lines = events.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        let events = lines.map(serde_json::from_slice).collect::<Result<_, _>>();
        let events = events.map_err(|error| damaged(&events_at, error.to_string()))?;
        Ok(Run::new(head.facts, scenario, head.state, samples, intervals, events))
    }

    /// The directory that it was read from or written to; `None` for a run in memory.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Facts that stayed the same during the run.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The scenario as it was executed, with its variant and settings applied, as TOML.
    pub fn scenario(&self) -> &str {
        &self.scenario
    }

    /// Whether the run came to its end.
    pub fn state(&self) -> State {
        self.state
    }

    /// The kernel's counters.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The work of the actors.
    pub fn intervals(&self) -> &Intervals {
        &self.intervals
    }

    /// The events, in the order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The real time that the run took, once it has ended. It is not a measure, as it differs from run to
    /// run.
    pub fn timing(&self) -> Option<&Timing> {
        self.timing.as_ref()
    }

    /// Remarks for a reader of the run: that it is incomplete, or which part was left out.
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

fn io_error(path: &Path, error: io::Error) -> OpenError {
    let path = path.to_path_buf();
    match error.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path },
        io::ErrorKind::FileTooLarge => OpenError::Damaged { path, why: error.to_string() },
        _ => OpenError::Io { path, error },
    }
}

/// Opens a file of the run, and returns it with its length. A link is refused like anything else that is not
/// a file: in a run from somebody else, it may lead to a file that only the reader can read.
fn open(path: &Path, limit: u64) -> Result<(File, u64), OpenError> {
    let opened = storage::open_regular_itself(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (length, file) = opened.map_err(|error| io_error(path, error))?;
    if length > limit {
        return Err(damaged(path, format!("{length} bytes; at most {limit} are read")));
    }
    Ok((file, length))
}

/// Reads a file that has no checksum in `run.json`.
fn read(path: &Path, limit: u64) -> Result<Vec<u8>, OpenError> {
    let (file, _) = open(path, limit)?;
    storage::read_open_at_most(file, limit).map_err(|error| io_error(path, error))
}

/// Refuses a directory in which one of a run's names belongs to anything but a regular file, even if that is
/// not read.
fn only_files(directory: &Path) -> Result<(), OpenError> {
    for name in store::FILES {
        let path = directory.join(name);
        if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            // The error says what it is.
            open(&path, u64::MAX)?;
        }
    }
    Ok(())
}

/// Reads `run.json`. Also returns whether it has a checksum.
fn read_head(directory: &Path) -> Result<(Head, bool), OpenError> {
    #[derive(serde::Deserialize)]
    struct AnyFormat {
        format: u32,
    }
    let path = directory.join(store::HEAD);
    let text = match read(&path, store::MOST_HEAD) {
        Err(OpenError::Missing { .. }) => {
            return Err(OpenError::NotARun { path: directory.to_path_buf() });
        }
        Err(OpenError::Io { error, .. }) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(OpenError::NotARun { path: directory.to_path_buf() });
        }
        text => text?,
    };
    let bad = |error: serde_json::Error| damaged(&path, error.to_string());
    let AnyFormat { format } = serde_json::from_slice(&text).map_err(bad)?;
    if format != store::FORMAT {
        return Err(OpenError::Format { path, found: format });
    }
    let seal = Seal::of(&text);
    if seal == Seal::Broken {
        return Err(damaged(&path, "its checksum is another one"));
    }
    if seal == Seal::Absent {
        // A `run.json` of 0.1.0 has no other keys, so any other key is that of the checksum, damaged.
        let keys: BTreeMap<String, IgnoredAny> = serde_json::from_slice(&text).map_err(bad)?;
        if !keys.keys().all(|key| Head::UNSEALED_KEYS.contains(&key.as_str())) {
            return Err(damaged(&path, "its checksum is damaged itself"));
        }
    }
    Ok((serde_json::from_slice(&text).map_err(bad)?, seal == Seal::Whole))
}

/// Reads the real time that the run took. It is not a measure, so if it is damaged, a remark says so.
fn timing(directory: &Path, remarks: &mut Vec<String>) -> Result<Option<Timing>, OpenError> {
    let path = directory.join(store::TIMING);
    let text = match read(&path, store::MOST_TIMING) {
        Err(OpenError::Missing { .. }) => return Ok(None),
        Err(OpenError::Damaged { .. }) => None,
        text => Some(text?),
    };
    let whole = text.filter(|text| Seal::of(text) != Seal::Broken);
    let timing = whole.and_then(|text| serde_json::from_slice(&text).ok());
    if timing.is_none() {
        remarks.push(format!("{} is damaged and left out", store::TIMING));
    }
    Ok(timing)
}

/// Adds a remark if the summary is not as it was written. The run is read without it.
fn check_summary(directory: &Path, head: &Head, remarks: &mut Vec<String>) -> Result<(), OpenError> {
    let path = directory.join(store::SUMMARY);
    let Some(written) = head.files.get(store::SUMMARY) else { return Ok(()) };
    let whole = match open(&path, u64::MAX) {
        Err(OpenError::Missing { .. }) => return Ok(()),
        Err(error) => return Err(error),
        Ok((file, length)) if length == written.bytes => {
            Whole::of_file(&file).map_err(|error| io_error(&path, error))? == *written
        }
        Ok(_) => false,
    };
    if !whole {
        remarks.push(format!("{} is damaged; nothing here is read from it", store::SUMMARY));
    }
    Ok(())
}

/// The reason why a run is unfinished.
fn who(directory: &Path, failed: Option<&str>) -> String {
    let lock = storage::open_dir(directory).map(|directory| directory.try_lock_shared());
    match (lock, failed) {
        (Ok(Err(TryLockError::WouldBlock)), _) => "it is still being written".to_owned(),
        (_, Some(what)) => what.to_owned(),
        _ => "whoever wrote it was killed or could not write".to_owned(),
    }
}

/// Length and checksum of a file according to `run.json`. A file of another length is refused before any of
/// it is read.
fn written<'h>(path: &Path, length: u64, head: &'h Head, name: &str) -> Result<&'h Whole, OpenError> {
    let Some(written) = head.files.get(name) else {
        return Err(damaged(path, format!("{} does not mention it", store::HEAD)));
    };
    if length != written.bytes {
        return Err(damaged(path, format!("{length} bytes instead of {}", written.bytes)));
    }
    Ok(written)
}

fn compare(path: &Path, found: &Whole, written: &Whole) -> Result<(), OpenError> {
    if found.bytes != written.bytes {
        return Err(damaged(path, format!("{} bytes instead of {}", found.bytes, written.bytes)));
    }
    if found.fnv1a != written.fnv1a {
        return Err(damaged(path, "its checksum is another one"));
    }
    Ok(())
}

/// Reads a file that is held in memory whole.
fn check(directory: &Path, head: &Head, name: &str, limit: u64) -> Result<Vec<u8>, OpenError> {
    let path = directory.join(name);
    let (file, length) = open(&path, u64::MAX)?;
    let written = written(&path, length, head, name)?;
    if length > limit {
        return Err(damaged(&path, format!("{length} bytes; at most {limit} are read")));
    }
    let contents = storage::read_open_at_most(file, length).map_err(|error| io_error(&path, error))?;
    compare(&path, &Whole::of_bytes(&contents), written)?;
    Ok(contents)
}

/// Reads a table.
fn table<T>(
    directory: &Path,
    head: &Head,
    name: &str,
    read: impl FnOnce(File) -> Result<T, Damage>,
) -> Result<T, OpenError> {
    let path = directory.join(name);
    let (mut file, length) = open(&path, u64::MAX)?;
    let written = written(&path, length, head, name)?;
    if length > store::MOST_TABLE {
        return Err(damaged(&path, format!("{length} bytes; at most {} are read", store::MOST_TABLE)));
    }
    let whole = Whole::of_file(&file).map_err(|error| io_error(&path, error))?;
    compare(&path, &whole, written)?;
    file.rewind().map_err(|error| io_error(&path, error))?;
    read(file).map_err(|damage| match damage {
        Damage::Io(error) => io_error(&path, error),
        Damage::Wrong(why) => damaged(&path, why),
    })
}
