//! [`Writer`]: a run that goes to a directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ::parquet::errors::ParquetError;
use lotsfree_storage::{self as storage, Access, OutFile};
use serde::Deserialize;

use crate::journal::{self, Encoder};
use crate::store::{self, Head, PARTIAL, Whole};
use crate::{Event, Facts, Interval, Run, Sample, Sink, State, Timing, WriteError, parquet};

/// Writes a run into a directory, as it goes.
///
/// Until [`Writer::finish`] all of it goes to a journal, so that a process that is killed leaves a run that
/// [`Run::open`] reads up to its last interval. The directory is locked for as long as the writer lives.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    /// Of the directory: locked.
    _lock: File,
    journal: OutFile,
    /// Length of the journal's whole records.
    written: u64,
    encoder: Encoder,
    buffer: Vec<u8>,
    head: Head,
    began: Instant,
    began_at: SystemTime,
}

impl Writer {
    /// Begins a run in `directory`, which is made if need be, and its parents with it. An older run in it is
    /// replaced.
    ///
    /// # Errors
    /// [`WriteError::Occupied`] if there is something that is no run, or a run with files that are not part
    /// of one: neither is touched. [`WriteError::InUse`] while another process writes a run there.
    pub fn create(directory: impl AsRef<Path>, facts: Facts, scenario: &str) -> Result<Self, WriteError> {
        let named = directory.as_ref();
        // A link is followed once, here, so that the directory itself can be renamed and replaced.
        let directory = fs::canonicalize(named).unwrap_or_else(|_| named.to_path_buf());
        let replaced = occupant(&directory)?;
        let name = directory.file_name().ok_or_else(|| WriteError::Occupied {
            path: named.to_path_buf(),
            why: "a path without a name".to_owned(),
        })?;
        let parent = match directory.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        storage::create_dir_all(parent).map_err(at(parent))?;
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(PARTIAL);
        let place = Place { beside: parent.join(beside), directory };
        let lock = place.make()?;
        let begun = place.fill(facts, scenario, replaced.is_some());
        let (journal, head) = begun.inspect_err(|_| {
            // What cannot be removed is emptied by the next writer.
            let _ = remove_files(&place.beside, &place.directory);
            let _ = storage::remove_dir(&place.beside);
        })?;
        Ok(Writer {
            directory: place.directory,
            _lock: lock,
            journal,
            written: journal::MAGIC.len() as u64,
            encoder: Encoder::default(),
            buffer: Vec::new(),
            head,
            began: Instant::now(),
            began_at: SystemTime::now(),
        })
    }

    /// Where the run is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Ends the run: turns the journal into tables, adds the summary, and says how the run ended.
    /// [`State::Running`] is taken for [`State::Interrupted`].
    ///
    /// # Errors
    /// Says what could not be written. The run is then left as an unfinished one and can be read.
    pub fn finish(mut self, state: State) -> Result<Run, WriteError> {
        let state = if state == State::Running { State::Interrupted } else { state };
        let timing = Timing {
            started: self.began_at.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            seconds: self.began.elapsed().as_secs_f64(),
        };
        let journal_at = self.directory.join(store::JOURNAL);
        let changed = || WriteError::Io {
            path: journal_at.clone(),
            error: io::Error::new(io::ErrorKind::InvalidData, "changed by another program"),
        };
        let journal = storage::read_at_most(&journal_at, self.written).map_err(at(&journal_at))?;
        let contents = journal::read(&journal).ok_or_else(changed)?;
        drop(journal);

        self.table(store::SAMPLES, |file| parquet::write_samples(file, &contents.samples))?;
        self.table(store::ACTORS, |file| parquet::write_intervals(file, &contents.intervals))?;
        let mut events = Vec::new();
        for event in &contents.events {
            serde_json::to_writer(&mut events, event)
                .map_err(|error| at(&self.directory.join(store::EVENTS))(error.into()))?;
            events.push(b'\n');
        }
        self.put(store::EVENTS, &events)?;
        let scenario_at = self.directory.join(store::SCENARIO);
        let written = self.head.files.get(store::SCENARIO).map_or(0, |whole| whole.bytes);
        let scenario = storage::read_text_at_most(&scenario_at, written).map_err(at(&scenario_at))?;
        let facts = self.head.facts.clone();
        let mut run = Run::new(facts, scenario, state, contents.samples, contents.intervals, contents.events);
        put_json(&self.directory, store::SUMMARY, &run.summary())?;
        put_json(&self.directory, store::TIMING, &timing)?;
        run.written_to(&self.directory, timing);
        self.head.state = state;
        put_json(&self.directory, store::HEAD, &self.head)?;
        // The rows are not removed before what replaces them stays.
        storage::sync_dir(&self.directory).map_err(at(&self.directory))?;
        storage::remove_file(&journal_at).map_err(at(&journal_at))?;
        Ok(run)
    }

    /// Writes a table and enters it among the files that are whole.
    fn table(
        &mut self,
        name: &str,
        write: impl FnOnce(OutFile) -> Result<(), ParquetError>,
    ) -> Result<(), WriteError> {
        let path = self.directory.join(name);
        let partial = self.directory.join(format!("{name}{PARTIAL}"));
        let file = storage::create_new(&partial, Access::Umask).map_err(at(&path))?;
        let written = write(file).map_err(|error| parquet_error(&path, error)).and_then(|()| {
            let whole = Whole::of(&partial).map_err(at(&path))?;
            storage::rename(&partial, &path).map_err(at(&path))?;
            Ok(whole)
        });
        // Half a table takes the place that the disk may lack.
        let whole = written.inspect_err(|_| drop(storage::remove_file(&partial)))?;
        self.head.files.insert(name.to_owned(), whole);
        Ok(())
    }

    /// Writes a file and enters it among those that are whole.
    fn put(&mut self, name: &str, contents: &[u8]) -> Result<(), WriteError> {
        let path = self.directory.join(name);
        store::write_whole(&self.directory, name, contents).map_err(at(&path))?;
        self.head.files.insert(name.to_owned(), Whole::of(&path).map_err(at(&path))?);
        Ok(())
    }

    /// Appends the buffer to the journal. What could not be written whole is taken back.
    fn append(&mut self) -> Result<(), WriteError> {
        let appended = self.journal.write_all(&self.buffer);
        match appended {
            Ok(()) => self.written += self.buffer.len() as u64,
            // The reader stops at the torn record if not even that works.
            Err(_) => drop(self.journal.set_len(self.written)),
        }
        self.buffer.clear();
        appended.map_err(at(&self.directory.join(store::JOURNAL)))
    }
}

impl Sink for Writer {
    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        self.encoder.sample(sample, &mut self.buffer);
        self.append()
    }

    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError> {
        Encoder::intervals(intervals, &mut self.buffer);
        self.append()
    }

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        Encoder::event(event, &mut self.buffer);
        self.append()
    }
}

/// Makes an error of what the system says about a path.
fn at(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    |error| WriteError::Io { path: path.to_path_buf(), error }
}

fn put_json<T: serde::Serialize>(directory: &Path, name: &str, value: &T) -> Result<(), WriteError> {
    let written = store::json(value).and_then(|text| store::write_whole(directory, name, &text));
    written.map_err(at(&directory.join(name)))
}

/// What the Parquet writer says: mostly what the system told it.
fn parquet_error(path: &Path, error: ParquetError) -> WriteError {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => at(path)(*error),
            Err(error) => WriteError::Parquet { path: path.to_path_buf(), why: error.to_string() },
        },
        error => WriteError::Parquet { path: path.to_path_buf(), why: error.to_string() },
    }
}

/// A run that is made beside the place that it takes once it can be read.
struct Place {
    /// With a name that others can guess.
    beside: PathBuf,
    /// What was asked for, and what errors name.
    directory: PathBuf,
}

impl Place {
    /// Makes the directory beside, empty and locked.
    fn make(&self) -> Result<File, WriteError> {
        let abandoned = match storage::create_dir(&self.beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            made => made.map(|()| false).map_err(at(&self.directory))?,
        };
        // One that is there was left behind by a process that was killed while it began, or is somebody else's.
        let directory = storage::open_own_dir(&self.beside).map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => {
                WriteError::Occupied { path: self.beside.clone(), why: error.to_string() }
            }
            _ => at(&self.directory)(error),
        })?;
        let lock = locked(directory, &self.directory)?;
        if abandoned {
            remove_files(&self.beside, &self.directory)?;
        }
        Ok(lock)
    }

    /// Writes a run without rows and puts it where it belongs; its journal and head.
    fn fill(&self, facts: Facts, scenario: &str, replaces: bool) -> Result<(OutFile, Head), WriteError> {
        let mut head = Head { format: store::FORMAT, state: State::Running, facts, ..Head::default() };
        let create = |name: &str, contents: &[u8]| {
            let made = storage::create_new(&self.beside.join(name), Access::Umask);
            let written = made.and_then(|mut file| file.write_all(contents).map(|()| file));
            written.map_err(at(&self.directory.join(name)))
        };
        create(store::SCENARIO, scenario.as_bytes())?;
        head.files.insert(store::SCENARIO.to_owned(), Whole::of_bytes(scenario.as_bytes()));
        let journal = create(store::JOURNAL, journal::MAGIC)?;
        let written =
            store::json(&head).and_then(|text| store::write_whole(&self.beside, store::HEAD, &text));
        written.map_err(at(&self.directory.join(store::HEAD)))?;
        if replaces {
            remove_files(&self.directory, &self.directory)?;
        }
        // Takes the place of an empty directory.
        storage::rename(&self.beside, &self.directory).map_err(at(&self.directory))?;
        Ok((journal, head))
    }
}

/// Locks a directory.
fn locked(directory: File, path: &Path) -> Result<File, WriteError> {
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => Err(WriteError::InUse { path: path.to_path_buf() }),
        // Some network file systems have no locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(directory),
        Err(TryLockError::Error(error)) => Err(at(path)(error)),
    }
}

/// The run that is there already, locked; `None` where there is nothing or an empty directory.
fn occupant(directory: &Path) -> Result<Option<File>, WriteError> {
    let occupied = |why: String| WriteError::Occupied { path: directory.to_path_buf(), why };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(occupied("a file".to_owned()));
        }
        Err(error) => return Err(at(directory)(error)),
    };
    let mut empty = true;
    for entry in entries {
        let entry = entry.map_err(at(directory))?;
        empty = false;
        let name = entry.file_name();
        let ours = name.to_str().map(|name| name.strip_suffix(PARTIAL).unwrap_or(name));
        if !ours.is_some_and(|name| store::FILES.contains(&name)) {
            return Err(occupied(format!("it holds {}", name.display())));
        }
    }
    if empty {
        return Ok(None);
    }
    #[derive(Deserialize)]
    #[allow(dead_code)]
    struct AnyFormat {
        format: u32,
        state: State,
    }
    let head = fs::read(directory.join(store::HEAD)).ok();
    if head.and_then(|head| serde_json::from_slice::<AnyFormat>(&head).ok()).is_none() {
        return Err(occupied(format!("no {} of a run", store::HEAD)));
    }
    locked(storage::open_dir(directory).map_err(at(directory))?, directory).map(Some)
}

/// Removes the files of a run, the one by which it is known last. Errors name them below `named`.
fn remove_files(directory: &Path, named: &Path) -> Result<(), WriteError> {
    let whole = store::FILES.into_iter().rev().map(str::to_owned);
    let partial = store::FILES.into_iter().map(|name| format!("{name}{PARTIAL}"));
    for name in partial.chain(whole) {
        let path = directory.join(&name);
        if fs::symlink_metadata(&path).is_ok() {
            storage::remove_file(&path).map_err(at(&named.join(name)))?;
        }
    }
    Ok(())
}
