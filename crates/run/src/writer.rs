//! [`Writer`]: writes a run to a directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ::parquet::errors::ParquetError;
use lotsfree_storage::{self as storage, Access, OutFile};
use serde::Deserialize;

use crate::journal::{self, Encoder};
use crate::store::{self, Head, PARTIAL, Whole};
use crate::{Event, EventKind, Facts, Interval, Run, Sample, Sink, State, Timing, WriteError, parquet};

/// Writes a run into a directory, as it goes.
///
/// Until [`Writer::finish`] all rows go to a journal, so that a process that is killed leaves a run that
/// [`Run::open`] reads up to its last interval. The directory is locked for as long as the writer lives.
#[derive(Debug)]
pub struct Writer {
    directory: PathBuf,
    /// A path to that directory that stays valid even if somebody renames it and puts another in its place.
    held: PathBuf,
    /// The open directory, which holds the lock.
    _lock: File,
    journal: OutFile,
    /// Length of the journal's whole records.
    written: u64,
    encoder: Encoder,
    buffer: Vec<u8>,
    head: Head,
    /// The file into which the next `run.json` is written before it is renamed. It has room for the reason
    /// why the run did not end.
    spare: Option<OutFile>,
    grown: Grown,
    began: Instant,
    began_at: SystemTime,
}

impl Writer {
    /// Begins a run in `directory`, which is made with its parents if it does not exist. An older run in it
    /// is replaced.
    ///
    /// # Errors
    /// [`WriteError::Occupied`] if the directory holds something other than a run, or other files beside a
    /// run; nothing is touched then. [`WriteError::InUse`] while another process writes a run there.
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
        let held = storage::held(&lock, &place.beside);
        let begun = place.fill(&held, facts, scenario, replaced.as_ref());
        let (journal, spare, head) = begun.inspect_err(|_| {
            // If these cannot be removed, the next writer does it.
            let _ = remove_files(&held, &place.directory);
            let _ = storage::remove_dir(&place.beside);
        })?;
        Ok(Writer {
            directory: place.directory,
            held,
            _lock: lock,
            journal,
            written: journal::MAGIC.len() as u64,
            encoder: Encoder::default(),
            buffer: Vec::new(),
            head,
            spare: Some(spare),
            grown: Grown::default(),
            began: Instant::now(),
            began_at: SystemTime::now(),
        })
    }

    /// The directory of the run.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Ends the run: turns the journal into tables, adds the summary, and says how the run ended.
    /// [`State::Running`] is taken for [`State::Interrupted`].
    ///
    /// # Errors
    /// Says what could not be written. The run then stays unfinished, and can be read.
    pub fn finish(mut self, state: State) -> Result<Run, WriteError> {
        let finished = self.try_finish(state);
        finished.inspect_err(|error| self.note_failure(error))
    }

    fn try_finish(&mut self, state: State) -> Result<Run, WriteError> {
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
        let journal =
            storage::open_regular_itself(&self.held.join(store::JOURNAL)).map_err(at(&journal_at))?;
        let contents = journal::read(journal, self.written).map_err(at(&journal_at))?;
        let contents = contents.filter(|contents| contents.rest == 0).ok_or_else(changed)?;

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
        let scenario = storage::open_regular_itself(&self.held.join(store::SCENARIO));
        let scenario = scenario.and_then(|file| storage::read_open_at_most(file, written));
        let scenario = String::from_utf8(scenario.map_err(at(&scenario_at))?).map_err(|_| changed())?;
        let facts = self.head.facts.clone();
        let mut run = Run::new(facts, scenario, state, contents.samples, contents.intervals, contents.events);
        let summary = store::json(&run.summary()).map_err(at(&self.directory.join(store::SUMMARY)))?;
        self.put(store::SUMMARY, &summary)?;
        // Two runs with the same rows have the same bytes except for this file, so its checksum is in the
        // file itself.
        let text = store::sealed_json(&timing);
        let written = text.and_then(|text| store::write_whole(&self.held, store::TIMING, &text));
        written.map_err(at(&self.directory.join(store::TIMING)))?;
        run.written_to(&self.directory, timing);
        self.head.state = state;
        self.replace_head().map_err(at(&self.directory.join(store::HEAD)))?;
        self.spare = None;
        // The journal is not removed before the tables that replace it are on disk.
        storage::sync_dir(&self.held).map_err(at(&self.directory))?;
        storage::remove_file(&self.held.join(store::JOURNAL)).map_err(at(&journal_at))?;
        Ok(run)
    }

    /// Writes a table and enters it among the files that are whole. The table is made in memory first, where
    /// it takes a tenth of what the rows take, so that only the write can fail.
    fn table(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), ParquetError>,
    ) -> Result<(), WriteError> {
        let mut contents = Vec::new();
        write(&mut contents).map_err(|error| WriteError::Parquet {
            path: self.directory.join(name),
            why: error.to_string(),
        })?;
        self.put(name, &contents)
    }

    /// Writes a file and enters it among those that are whole.
    fn put(&mut self, name: &str, contents: &[u8]) -> Result<(), WriteError> {
        store::write_whole(&self.held, name, contents).map_err(at(&self.directory.join(name)))?;
        self.head.files.insert(name.to_owned(), Whole::of_bytes(contents));
        Ok(())
    }

    /// Writes `run.json` again. Its room on the disk is allocated already, so this works on a full disk, too.
    fn replace_head(&mut self) -> io::Result<()> {
        let Some(spare) = &mut self.spare else { return Ok(()) };
        let text = store::sealed_json(&self.head)?;
        spare.file().rewind()?;
        spare.write_all(&text)?;
        spare.set_len(text.len() as u64)?;
        spare.sync()?;
        storage::rename(&self.held.join(SPARE), &self.held.join(store::HEAD))
    }

    /// Notes in `run.json` why the run did not end, if that is possible. The run stays unfinished.
    fn note_failure(&mut self, error: &WriteError) {
        let (path, why) = match error {
            WriteError::Io { path, error } => (path, error.to_string()),
            WriteError::Parquet { path, why } => (path, why.clone()),
            _ => return,
        };
        let name = path.file_name().unwrap_or_default().display();
        let what = format!("{name} could not be written ({why})");
        self.head.failed = Some(what.chars().take(MOST_REASON).collect());
        self.head.state = State::Running;
        if self.replace_head().is_ok() {
            self.spare = None;
        }
    }

    /// Appends the buffer to the journal. If it cannot be written whole, the journal is cut back.
    fn append(&mut self) -> Result<(), WriteError> {
        let appended = self.try_append();
        self.buffer.clear();
        appended.inspect_err(|error| self.note_failure(error))
    }

    fn try_append(&mut self) -> Result<(), WriteError> {
        let journal_at = self.directory.join(store::JOURNAL);
        let length = self.written.saturating_add(self.buffer.len() as u64);
        if let Some(what) = self.grown.beyond(self.encoder.columns(), length) {
            let why = format!("{what} is more than a run may have: sample less often, or run for less time");
            return Err(at(&journal_at)(io::Error::new(io::ErrorKind::FileTooLarge, why)));
        }
        let appended = self.journal.write_all(&self.buffer);
        match appended {
            Ok(()) => self.written = length,
            // If even this fails, readers stop at the incomplete record.
            Err(_) => drop(self.journal.set_len(self.written)),
        }
        appended.map_err(at(&journal_at))
    }
}

/// Sizes of a run that readers bound.
#[derive(Clone, Copy, Debug, Default)]
struct Grown {
    samples: usize,
    intervals: usize,
    /// Bytes of histograms, counted with the rows' numbers and names.
    interval_bytes: u64,
    event_bytes: u64,
}

impl Grown {
    /// Says which size would exceed its bound with a journal of this length.
    fn beyond(&self, columns: usize, journal: u64) -> Option<String> {
        if !store::fits(self.samples, columns) {
            return Some(format!("{} samples of {columns} counters", self.samples));
        }
        if self.intervals > store::MOST_INTERVALS || self.interval_bytes > store::MOST_LATENCY {
            return Some(format!("{} rows of actors", self.intervals));
        }
        (journal > store::MOST_JOURNAL).then(|| format!("a journal of {journal} bytes"))
    }
}

impl Sink for Writer {
    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        self.encoder.sample(sample, &mut self.buffer);
        self.grown.samples += 1;
        self.append()
    }

    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError> {
        Encoder::intervals(intervals, &mut self.buffer);
        self.grown.intervals += intervals.len();
        self.grown.interval_bytes += self.buffer.len() as u64;
        self.append()
    }

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        let before = self.grown.event_bytes;
        if before > store::MOST_EVENTS {
            return Ok(());
        }
        Encoder::event(event, &mut self.buffer);
        self.grown.event_bytes += self.buffer.len() as u64;
        if self.grown.event_bytes > store::MOST_EVENTS - MOST_LAST_EVENT {
            // The last event says that further ones are not kept.
            self.grown.event_bytes = u64::MAX;
            self.buffer.clear();
            let what = format!("no more events are kept than these {before} bytes");
            let last = Event::new(event.at, EventKind::Note, what, None);
            Encoder::event(&last, &mut self.buffer);
        }
        self.append()
    }
}

/// The file in which the next `run.json` is written.
const SPARE: &str = "run.json.partial";
/// Characters that are kept of the reason why a run did not end.
const MOST_REASON: usize = 300;
/// Room for what is added to `run.json` in the end: the reason why the run did not end, in JSON, or the
/// checksums of the other files.
const SPARE_ROOM: usize = 6 * MOST_REASON + 512;
/// Bytes at most of the event that says that no more are kept.
const MOST_LAST_EVENT: u64 = 512;

/// Makes a [`WriteError`] of the system's error about a path.
fn at(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    |error| WriteError::Io { path: path.to_path_buf(), error }
}

/// The paths of a run that is made under another name, and gets its own name once it can be read.
struct Place {
    /// The path where it is made, which others can guess.
    beside: PathBuf,
    /// The path that was asked for, which errors name.
    directory: PathBuf,
}

impl Place {
    /// Makes the directory `beside`, empty and locked.
    fn make(&self) -> Result<File, WriteError> {
        let abandoned = match storage::create_dir(&self.beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            made => made.map(|()| false).map_err(at(&self.directory))?,
        };
        // A directory that exists was left behind by a process that was killed while it began a run, or is
        // somebody else's.
        let directory = storage::open_own_dir(&self.beside).map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => {
                WriteError::Occupied { path: self.beside.clone(), why: error.to_string() }
            }
            _ => at(&self.directory)(error),
        })?;
        let lock = locked(directory, &self.directory)?;
        if abandoned {
            remove_files(&storage::held(&lock, &self.beside), &self.directory)?;
        }
        Ok(lock)
    }

    /// Writes a run without rows into the directory that is held, and gives it its own name. Returns its
    /// journal, the file for its next head, and its head.
    fn fill(
        &self,
        held: &Path,
        facts: Facts,
        scenario: &str,
        replaced: Option<&File>,
    ) -> Result<(OutFile, OutFile, Head), WriteError> {
        let mut head = Head { format: store::FORMAT, state: State::Running, facts, ..Head::default() };
        let create = |name: &str, contents: &[u8]| {
            let made = storage::create_new(&held.join(name), Access::Umask);
            let written = made.and_then(|mut file| file.write_all(contents).map(|()| file));
            written.map_err(at(&self.directory.join(name.strip_suffix(PARTIAL).unwrap_or(name))))
        };
        create(store::SCENARIO, scenario.as_bytes())?;
        head.files.insert(store::SCENARIO.to_owned(), Whole::of_bytes(scenario.as_bytes()));
        let journal = create(store::JOURNAL, journal::MAGIC)?;
        let head_at = self.directory.join(store::HEAD);
        let text = store::sealed_json(&head).map_err(at(&head_at))?;
        store::write_whole(held, store::HEAD, &text).map_err(at(&head_at))?;
        let spare = create(SPARE, &vec![b' '; text.len() + SPARE_ROOM])?;
        // Allocate its room on the disk now.
        spare.sync().map_err(at(&head_at))?;
        if let Some(replaced) = replaced {
            let older = storage::held(replaced, &self.directory);
            if storage::exchange(&self.beside, &self.directory).map_err(at(&self.directory))? {
                // The new run is in its place. If any part of the older one is left, the next writer removes
                // it.
                let _ = remove_files(&older, &self.directory);
                let _ = storage::remove_dir(&self.beside);
                return Ok((journal, spare, head));
            }
            remove_files(&older, &self.directory)?;
        }
        // The rename also replaces an empty directory.
        storage::rename(&self.beside, &self.directory).map_err(at(&self.directory))?;
        Ok((journal, spare, head))
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

/// The run that is in the directory already, locked; `None` if there is no directory or it is empty.
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
    let head = storage::open_regular_itself(&directory.join(store::HEAD));
    let head = head.and_then(|file| storage::read_open_at_most(file, store::MOST_HEAD)).ok();
    if head.and_then(|head| serde_json::from_slice::<AnyFormat>(&head).ok()).is_none() {
        return Err(occupied(format!("no {} of a run", store::HEAD)));
    }
    locked(storage::open_dir(directory).map_err(at(directory))?, directory).map(Some)
}

/// Removes the files of a run, `run.json` last, because a run is recognised by it. Errors name the files
/// below `named`.
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
