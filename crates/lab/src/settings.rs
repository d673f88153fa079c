//! [`Settings`]: changes of this host that are undone.
//!
//! Before a change is made, what undoes it is written to a journal and synced. It is undone when the value is
//! dropped, whatever happened; if the process is killed before that, by the next lab that starts, or by
//! `lotsfree lab restore`.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lotsfree_snapshot::file::swaps::SwapArea;
use lotsfree_snapshot::{File as _, Log};
use serde::{Deserialize, Serialize};

use crate::error::{LabError, at};

/// A change, with what undoes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
enum Change {
    /// A file of `/proc/sys` or `/sys` was written to.
    Write {
        /// What is written to undo it.
        path: PathBuf,
        /// The text.
        before: String,
    },
    /// A file was made and swapped to.
    Swap {
        /// The file.
        area: PathBuf,
    },
    /// A control group was made.
    Group {
        /// Its directory.
        path: PathBuf,
    },
    /// A directory was made.
    Directory {
        /// Its path.
        path: PathBuf,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Write { path, before } => write!(f, "{} back to {before}", path.display()),
            Change::Swap { area } => write!(f, "swap area {} off and removed", area.display()),
            Change::Group { path } => write!(f, "control group {} removed", path.display()),
            Change::Directory { path } => write!(f, "directory {} removed", path.display()),
        }
    }
}

/// Settings of which writing one clears the other (`mm/page-writeback.c`, `mm/util.c`): what undoes a change
/// of either is to write the one that was in force.
const PAIRS: [(&str, &str); 3] = [
    ("vm/dirty_ratio", "vm/dirty_bytes"),
    ("vm/dirty_background_ratio", "vm/dirty_background_bytes"),
    ("vm/overcommit_ratio", "vm/overcommit_kbytes"),
];

/// How long the processes of a control group may take to go, once they are killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Changes of this host, undone when dropped.
#[derive(Debug)]
pub struct Settings {
    journal: Option<Journal>,
    done: Vec<Change>,
}

#[derive(Debug)]
struct Journal {
    path: PathBuf,
    file: File,
}

/// Where the journal of this host is: `/var/lib/lotsfree/lab.journal`.
pub fn journal_path() -> PathBuf {
    std::env::var_os("LOTSFREE_STATE")
        .map_or_else(|| PathBuf::from("/var/lib/lotsfree"), PathBuf::from)
        .join("lab.journal")
}

impl Settings {
    /// Begins with nothing changed. What an earlier process left behind is undone first; `report` is told of
    /// each.
    ///
    /// # Errors
    /// If another process is using the journal, or something that was left behind cannot be undone.
    pub fn journaled(path: &Path, report: &mut dyn FnMut(&str)) -> Result<Self, LabError> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory).map_err(at(directory))?;
        let options = || OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = options().map_err(at(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = format!("{}: another `lotsfree lab` is changing this host", path.display());
                return Err(LabError::Refused(why));
            }
            Err(TryLockError::Error(error)) => return Err(at(path)(error)),
        }
        let left = read(&file, path)?;
        let mut settings = Settings { journal: Some(Journal { path: path.to_path_buf(), file }), done: left };
        settings.undo_all(report)?;
        Ok(settings)
    }

    /// Begins with nothing changed, without a journal: on a machine that is gone afterwards.
    pub fn forgotten() -> Self {
        Settings { journal: None, done: Vec::new() }
    }

    fn note(&mut self, change: Change) -> Result<(), LabError> {
        if let Some(Journal { path, file }) = &mut self.journal {
            let mut line = serde_json::to_vec(&change).map_err(|error| at(path)(error.into()))?;
            line.push(b'\n');
            file.write_all(&line).and_then(|()| file.sync_data()).map_err(at(path))?;
        }
        self.done.push(change);
        Ok(())
    }

    /// Writes a setting and reads it back.
    ///
    /// # Errors
    /// If there is no such setting, if it cannot be written, or if the kernel does not take the value.
    pub fn write(&mut self, path: &Path, value: &str) -> Result<(), LabError> {
        let before = current(path)?;
        if same(&before, value) {
            return Ok(());
        }
        let undo = undo_by(path, before)?;
        self.note(undo)?;
        fs::write(path, value).map_err(|error| LabError::System {
            what: format!("{}: cannot be set to {value:?}", path.display()),
            error,
        })?;
        let now = current(path)?;
        if !same(&now, value) {
            let why = format!("{}: set to {value}, but the kernel says {now}", path.display());
            return Err(LabError::Refused(why));
        }
        Ok(())
    }

    /// Makes a swap file and swaps to it.
    ///
    /// # Errors
    /// If it cannot be made, or the kernel refuses to swap there.
    pub fn swap(&mut self, area: &Path, bytes: u64) -> Result<(), LabError> {
        self.note(Change::Swap { area: area.to_path_buf() })?;
        crate::swap::make_file(area, bytes).map_err(at(area))?;
        lotsfree_sys::swap_on(area)
            .map_err(|error| LabError::System { what: format!("swapon {}", area.display()), error })
    }

    /// Makes a control group.
    ///
    /// # Errors
    /// If it cannot be made, or is there already.
    pub fn group(&mut self, path: &Path) -> Result<(), LabError> {
        self.note(Change::Group { path: path.to_path_buf() })?;
        fs::create_dir(path).map_err(at(path))
    }

    /// Makes a directory, which is removed with everything in it.
    ///
    /// # Errors
    /// If it cannot be made, or is there already.
    pub fn directory(&mut self, path: &Path) -> Result<(), LabError> {
        if path.exists() {
            return Err(at(path)(io::ErrorKind::AlreadyExists.into()));
        }
        self.note(Change::Directory { path: path.to_path_buf() })?;
        fs::create_dir_all(path).map_err(at(path))
    }

    /// Undoes everything, the last change first.
    ///
    /// # Errors
    /// The first change that could not be undone; the others are undone all the same, and the journal keeps
    /// those that were not.
    pub fn undo(mut self) -> Result<(), LabError> {
        self.undo_all(&mut |_| ())
    }

    fn undo_all(&mut self, report: &mut dyn FnMut(&str)) -> Result<(), LabError> {
        let (mut first, mut kept) = (None, Vec::new());
        while let Some(change) = self.done.pop() {
            match undo(&change) {
                Ok(()) => report(&change.to_string()),
                Err(error) => {
                    kept.push(change);
                    first.get_or_insert(error);
                }
            }
        }
        kept.reverse();
        // They stay to be tried again when this is dropped, which must not empty the journal.
        self.done = kept;
        self.rewrite()?;
        first.map_or(Ok(()), Err)
    }

    /// Empties the journal but for what could not be undone.
    fn rewrite(&mut self) -> Result<(), LabError> {
        let Some(Journal { path, file }) = &mut self.journal else { return Ok(()) };
        let text = self.done.iter().map(|change| serde_json::to_string(change).map(|line| line + "\n"));
        let text = text.collect::<Result<String, _>>().map_err(|error| at(path)(error.into()))?;
        // Appending: what is cut off was undone, what is written again was not.
        let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        written.and_then(|()| file.sync_data()).map_err(at(path))
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // Whoever wants to know calls `undo`.
        let _ = self.undo_all(&mut |_| ());
    }
}

/// The changes of a journal. A line that was cut off belongs to a change that was not made.
fn read(file: &File, path: &Path) -> Result<Vec<Change>, LabError> {
    let mut changes = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(at(path))?;
        match serde_json::from_str(&line) {
            Ok(change) => changes.push(change),
            Err(_) => break,
        }
    }
    Ok(changes)
}

/// What a setting is, trimmed. Of a choice such as `always [madvise] never`, the one in brackets.
pub(crate) fn current(path: &Path) -> Result<String, LabError> {
    let text = fs::read_to_string(path).map_err(at(path))?;
    let text = text.trim();
    let chosen = text.split_ascii_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Ok(chosen.unwrap_or(text).to_owned())
}

/// Whether two texts are the same value: white space counts for nothing, and `0x0007` is 7.
fn same(one: &str, other: &str) -> bool {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let equal = |(a, b): (&str, &str)| a == b || number(a).is_some_and(|a: u64| number(b) == Some(a));
    let words = |text: &'_ str| text.split_ascii_whitespace().count();
    words(one) == words(other) && one.split_ascii_whitespace().zip(other.split_ascii_whitespace()).all(equal)
}

fn undo_by(path: &Path, before: String) -> Result<Change, LabError> {
    let partner = PAIRS.iter().find_map(|(one, other)| {
        let (one, other) = (Path::new("/proc/sys").join(one), Path::new("/proc/sys").join(other));
        [(&one, &other), (&other, &one)].into_iter().find(|(this, _)| *this == path).map(|(_, o)| o.clone())
    });
    // The other of the pair is in force.
    if before == "0"
        && let Some(partner) = partner
    {
        let before = current(&partner)?;
        return Ok(Change::Write { path: partner, before });
    }
    Ok(Change::Write { path: path.to_path_buf(), before })
}

fn undo(change: &Change) -> Result<(), LabError> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match change {
        Change::Write { path, before } => {
            if same(&current(path)?, before) {
                return Ok(());
            }
            fs::write(path, before).map_err(at(path))?;
            let now = current(path)?;
            if same(&now, before) {
                return Ok(());
            }
            let why = format!("{}: it was {before}, and is {now} after writing that", path.display());
            Err(LabError::Refused(why))
        }
        Change::Swap { area } => {
            match lotsfree_sys::swap_off(area) {
                Err(error) if is_swapped_to(area) => {
                    return Err(LabError::System { what: format!("swapoff {}", area.display()), error });
                }
                // It was not, or is no more.
                _ => {}
            }
            fs::remove_file(area).or_else(|error| if gone(&error) { Ok(()) } else { Err(at(area)(error)) })
        }
        Change::Group { path } => remove_group(path),
        Change::Directory { path } => {
            fs::remove_dir_all(path).or_else(|error| if gone(&error) { Ok(()) } else { Err(at(path)(error)) })
        }
    }
}

/// Whether the kernel swaps to a file; taken for granted if it does not say.
fn is_swapped_to(area: &Path) -> bool {
    let Ok(text) = fs::read("/proc/swaps") else { return true };
    // The kernel names the file itself, not a link on the way to it.
    let area = fs::canonicalize(area).unwrap_or_else(|_| area.to_path_buf());
    let areas = Vec::<SwapArea>::parse(&text, &mut Log::default());
    areas.iter().any(|known| Path::new(&known.path) == area)
}

/// Kills what is in a control group of ours, and removes it.
fn remove_group(path: &Path) -> Result<(), LabError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(at(path)(error)),
            Err(_) => {}
        }
        let procs = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for id in procs.lines().filter_map(|line| rustix::process::Pid::from_raw(line.trim().parse().ok()?)) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path, text: &str) -> PathBuf {
        let path = directory.join("setting");
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_was_changed_is_undone_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, setting) = (directory.path().join("journal"), file(directory.path(), "60\n"));
        let mut settings = Settings::journaled(&journal, &mut |_| ()).unwrap();
        settings.write(&setting, "0").unwrap();
        settings.write(&setting, "100").unwrap();
        let made = directory.path().join("a/b");
        settings.directory(&made).unwrap();
        fs::write(made.join("file"), "x").unwrap();
        assert_eq!(fs::read_to_string(&setting).unwrap(), "100");
        drop(settings);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "60");
        assert!(!made.exists());
        assert_eq!(fs::read_to_string(&journal).unwrap(), "");
    }

    #[test]
    fn what_a_killed_process_left_is_undone_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, setting) = (directory.path().join("journal"), file(directory.path(), "60\n"));
        let mut settings = Settings::journaled(&journal, &mut |_| ()).unwrap();
        settings.write(&setting, "0").unwrap();
        // As a kill leaves it: the journal stays, the lock goes; and a line of a change that was not made.
        settings.done.clear();
        let kept = fs::read_to_string(&journal).unwrap();
        drop(settings);
        fs::write(&journal, kept + "{\"change\":\"wri").unwrap();
        let mut told = Vec::new();
        let settings = Settings::journaled(&journal, &mut |what| told.push(what.to_owned())).unwrap();
        assert_eq!(fs::read_to_string(&setting).unwrap(), "60");
        assert_eq!(told, [format!("{} back to 60", setting.display())]);
        assert_eq!(fs::read_to_string(&journal).unwrap(), "");
        drop(settings);
    }

    #[test]
    fn two_labs_at_a_time_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let journal = directory.path().join("journal");
        let first = Settings::journaled(&journal, &mut |_| ()).unwrap();
        let second = Settings::journaled(&journal, &mut |_| ()).unwrap_err().to_string();
        assert!(second.ends_with("another `lotsfree lab` is changing this host"), "{second}");
        drop(first);
        Settings::journaled(&journal, &mut |_| ()).unwrap();
    }

    #[test]
    fn what_cannot_be_undone_stays_in_the_journal() {
        let directory = tempfile::tempdir().unwrap();
        let (journal, setting) = (directory.path().join("journal"), file(directory.path(), "60\n"));
        let mut settings = Settings::journaled(&journal, &mut |_| ()).unwrap();
        settings.write(&setting, "0").unwrap();
        fs::remove_file(&setting).unwrap();
        assert!(settings.undo().is_err());
        assert!(fs::read_to_string(&journal).unwrap().contains("\"before\":\"60\""));
    }

    #[test]
    fn values_are_compared_as_values() {
        assert!(same("256 256 32", "256\t256\t32"));
        assert!(same("0x0007", "7"));
        assert!(!same("1", "10"));
        assert!(!same("1 2", "1"));
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(current(&file(directory.path(), "always [madvise] never\n")).unwrap(), "madvise");
    }
}
