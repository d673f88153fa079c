//! The journal of changes. The data to undo a change are on disk before it is made.
//!
//! ```text
//! file    = "lotsfree changes 1\n" line…
//! line    = FNV-1a of the record, 16 hexadecimal digits · space · record, one line of JSON · "\n"
//! record  = {"record":"noted","number":N,"boot":ID,"change":{…}}  before a change is made
//!         | {"record":"made","number":N,"now":[VALUE,…]}          after it; keys as the kernel prints them
//!         | {"record":"closed","number":N}                        undone, never made, or another's by now
//! ```
//! The file only grows, and is emptied when all its changes are closed. A last line without a line feed was
//! not written completely, and is cut off. Any other line that is not understood is an error, and the file
//! stays as it is.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lotsfree_storage::{Access, Fnv1a, OutFile};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::error::{ChangeError, at};

const MAGIC: &str = "lotsfree changes 1\n";
/// The beginning of the first line in every version.
const ANY_VERSION: &str = "lotsfree changes ";
/// The longest journal that is read. A run makes a few dozen changes of some hundred bytes each, so a longer
/// file is not a journal of lotsfree's.
const LONGEST: u64 = 16 << 20;

/// A change that may still have to be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The change's number in the journal, from 1.
    pub number: u64,
    /// The boot during which it was made (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// The change.
    pub change: Change,
    /// The text that the kernel printed for each key of a setting's unit after the write. `None` if the
    /// process ended before it noted that; it is then unknown whether the change was made.
    pub now: Option<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "record", deny_unknown_fields)]
enum Record {
    Noted { number: u64, boot: String, change: Change },
    Made { number: u64, now: Vec<String> },
    Closed { number: u64 },
}

/// A journal that is open and locked.
#[derive(Debug)]
pub(crate) struct Journal {
    file: OutFile,
    /// Number of changes noted so far.
    noted: u64,
    empty: bool,
}

impl Journal {
    /// Opens or makes a journal and locks it. Returns its entries that are not closed, in the order in which
    /// they were noted. `None` if another process holds the journal.
    ///
    /// # Errors
    /// If somebody else may have written it, or a line is not understood.
    pub(crate) fn open(path: &Path) -> Result<Option<(Self, Vec<Entry>)>, ChangeError> {
        loop {
            match lotsfree_storage::create_new(path, Access::Private) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(at(path)(error)),
                _ => {}
            }
            let Some(file) = open_own(path)? else { continue };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(at(path)(error)),
            }
            // The previous holder may have removed the journal, or put another one there, before it gave up
            // the lock.
            let there = std::fs::symlink_metadata(path).ok();
            let held = file.metadata().map_err(at(path))?;
            if there.is_some_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
                return Journal::read(file, path).map(Some);
            }
        }
    }

    fn read(file: File, path: &Path) -> Result<(Self, Vec<Entry>), ChangeError> {
        let contents = lotsfree_storage::read_at_most(path, LONGEST).map_err(at(path))?;
        let Parsed { entries, noted, whole } = parse_all(&contents).map_err(damaged(path))?;
        let file = OutFile::new(file, path);
        if whole < contents.len() {
            // Otherwise the next line would be appended to the incomplete one.
            file.set_len(whole as u64).map_err(at(path))?;
        }
        Ok((Journal { file, noted, empty: whole == 0 }, entries))
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Notes a change that is about to be made; the note is on disk when this returns.
    pub(crate) fn note(&mut self, boot: &str, change: &Change) -> Result<Entry, ChangeError> {
        let (number, boot) = (self.noted + 1, boot.to_owned());
        self.append(&Record::Noted { number, boot: boot.clone(), change: change.clone() })?;
        self.noted = number;
        Ok(Entry { number, boot, change: change.clone(), now: None })
    }

    /// Notes that a change was made.
    pub(crate) fn made(&mut self, number: u64, now: Vec<String>) -> Result<(), ChangeError> {
        self.append(&Record::Made { number, now })
    }

    /// Notes that nothing of a change is left to undo.
    pub(crate) fn close(&mut self, number: u64) -> Result<(), ChangeError> {
        self.append(&Record::Closed { number })
    }

    fn append(&mut self, record: &Record) -> Result<(), ChangeError> {
        let path = self.file.path().to_path_buf();
        let record = serde_json::to_string(record).map_err(|error| at(&path)(error.into()))?;
        let magic = if self.empty { MAGIC } else { "" };
        let line = format!("{magic}{:016x} {record}\n", Fnv1a::of(record.as_bytes()));
        let before = self.file.file().metadata().map_err(at(&path))?.len();
        if let Err(error) = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync()) {
            // An incomplete line would spoil the next one. If even cutting it off fails, the reader does it.
            let _ = self.file.set_len(before);
            return Err(at(&path)(error));
        }
        self.empty = false;
        Ok(())
    }

    /// Empties the journal, once all its changes are closed.
    pub(crate) fn clear(&mut self) -> Result<(), ChangeError> {
        let path = self.file.path().to_path_buf();
        self.file.set_len(0).and_then(|()| self.file.sync()).map_err(at(&path))?;
        (self.noted, self.empty) = (0, true);
        Ok(())
    }
}

/// Opens a journal that only this user can have written; `None` if the caller has to try again.
fn open_own(path: &Path) -> Result<Option<File>, ChangeError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).append(true).custom_flags(flags.bits() as i32);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(at(path))?,
    };
    let metadata = file.metadata().map_err(at(path))?;
    is_own(path, &metadata)?;
    if metadata.mode() & 0o077 != 0 {
        // Somebody else may have the file open and hold a lock on it for ever, so a new file takes its place.
        let contents = lotsfree_storage::read_at_most(path, LONGEST).map_err(at(path))?;
        lotsfree_storage::replace(path, Access::Private, &contents).map_err(at(path))?;
        return Ok(None);
    }
    Ok(Some(file))
}

/// Refuses a journal that another user can have written or put there.
pub(crate) fn is_own(path: &Path, metadata: &std::fs::Metadata) -> Result<(), ChangeError> {
    let own = rustix::process::geteuid().as_raw();
    let why = match () {
        () if !metadata.is_file() => "not a regular file".to_owned(),
        () if metadata.uid() != own => format!("belongs to user {}, not to user {own}", metadata.uid()),
        () if metadata.mode() & 0o022 != 0 => "others may write to it".to_owned(),
        () if metadata.nlink() > 1 => "has another name elsewhere".to_owned(),
        () => return Ok(()),
    };
    let path = path.display();
    let what = "nothing in it is undone. Look at what it lists, undo that by hand, and remove it";
    Err(ChangeError::Refused(format!("{path}: {why}; {what}")))
}

fn damaged(path: &Path) -> impl FnOnce((usize, String)) -> ChangeError {
    let path: PathBuf = path.to_path_buf();
    |(line, why)| ChangeError::Damaged { path, line, why }
}

struct Parsed {
    /// Changes that are not closed.
    entries: Vec<Entry>,
    noted: u64,
    /// Bytes of whole lines.
    whole: usize,
}

/// Reads the text of a journal, and returns the changes that are not closed.
///
/// # Errors
/// The number of the first line that is not understood, from 1, and the reason. A last line without a line
/// feed is left out.
pub fn parse(contents: &[u8]) -> Result<Vec<Entry>, (usize, String)> {
    parse_all(contents).map(|parsed| parsed.entries)
}

fn parse_all(contents: &[u8]) -> Result<Parsed, (usize, String)> {
    let whole = contents.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut parsed = Parsed { entries: Vec::new(), noted: 0, whole };
    let lines = contents.get(..whole).unwrap_or_default().split_inclusive(|byte| *byte == b'\n');
    for (line, number) in lines.zip(1..) {
        let line = str::from_utf8(line).map_err(|_| (number, "not UTF-8".to_owned()))?;
        match number {
            1 => first_line(line),
            _ => parsed.line(line),
        }
        .map_err(|why| (number, why))?;
    }
    Ok(parsed)
}

fn first_line(line: &str) -> Result<(), String> {
    match line.strip_prefix(ANY_VERSION) {
        _ if line == MAGIC => Ok(()),
        Some(version) if version.trim().chars().all(|c| c.is_ascii_digit()) => {
            Err(format!("a journal of version {}; this lotsfree reads version 1", version.trim()))
        }
        _ => Err(format!("a journal begins with {:?}", MAGIC.trim())),
    }
}

impl Parsed {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let (check, record) = line.trim_end_matches('\n').split_once(' ').ok_or("no checksum")?;
        if check != format!("{:016x}", Fnv1a::of(record.as_bytes())) {
            return Err("its checksum is another one".to_owned());
        }
        let record = serde_json::from_str(record).map_err(|error| format!("not understood ({error})"))?;
        let entry = |entries: &mut Vec<Entry>, number| {
            let place = entries.iter().position(|entry| entry.number == number);
            place.ok_or_else(|| format!("change {number} is not open"))
        };
        match record {
            Record::Noted { number, boot, change } => {
                if number != self.noted + 1 {
                    return Err(format!("change {number} follows change {}", self.noted));
                }
                self.noted = number;
                self.entries.push(Entry { number, boot, change, now: None });
            }
            Record::Made { number, now } => {
                let place = entry(&mut self.entries, number)?;
                let keys = match &self.entries[place].change {
                    Change::Set(set) => set.unit.len(),
                    _ => 0,
                };
                if now.len() != keys {
                    return Err(format!("{} values of {keys} settings", now.len()));
                }
                self.entries[place].now = Some(now);
            }
            Record::Closed { number } => {
                let place = entry(&mut self.entries, number)?;
                self.entries.remove(place);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
