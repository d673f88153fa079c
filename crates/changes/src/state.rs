//! [`StateDirectory`]: the directory with the journals of a user.

use std::io;
use std::path::{Path, PathBuf};

use lotsfree_storage::make_private;

use crate::change::Change;
use crate::changes::Changes;
use crate::error::{ChangeError, at};
use crate::journal::{self, Journal, is_own};
use crate::legacy::{Legacy, parse_legacy};
use crate::territory::Territory;
use crate::undo::{self, Outcome};

/// The journal of the one process that changes this host.
const HOST: &str = "host.journal";
/// The beginning of the names of journals that belong to one process each. Their changes do not concern other
/// processes.
const PROCESS: &str = "process-";
/// The end of the name of every journal.
const SUFFIX: &str = ".journal";
/// The journal of 0.1.0.
const LEGACY: &str = "lab.journal";
/// The longest journal that is read, as in the `journal` module.
const LONGEST: u64 = 16 << 20;

/// The directory with the journals of a user: mode 0700. It is `/var/lib/lotsfree` for root and
/// `~/.local/state/lotsfree` for others, unless `LOTSFREE_STATE` names another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDirectory {
    directory: PathBuf,
    territory: Territory,
}

/// Changes that a journal lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The journal.
    pub journal: PathBuf,
    /// How each change in it would be undone, the last first.
    pub changes: Vec<String>,
    /// The part of the journal that could not be read, with the reason.
    pub problem: Option<String>,
}

impl StateDirectory {
    /// The state directory of the user who runs this. It is not made yet.
    ///
    /// # Errors
    /// If no environment variable says where it is.
    pub fn of_user() -> Result<Self, ChangeError> {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = || {
            let state = named("XDG_STATE_HOME").or_else(|| Some(named("HOME")?.join(".local/state")));
            state.map(|state| state.join("lotsfree"))
        };
        let directory = named("LOTSFREE_STATE").or_else(|| {
            if rustix::process::geteuid().is_root() { Some("/var/lib/lotsfree".into()) } else { home() }
        });
        let why = "no directory for the journal of changes: neither LOTSFREE_STATE nor HOME is set";
        let directory = directory.ok_or_else(|| ChangeError::Refused(why.to_owned()))?;
        let directory = std::path::absolute(&directory).map_err(at(&directory))?;
        Ok(StateDirectory { directory, territory: Territory::host() })
    }

    /// Uses another directory, whose journals may change only what lies within the territory.
    pub fn at(directory: &Path, territory: Territory) -> Self {
        StateDirectory { directory: directory.to_path_buf(), territory }
    }

    /// Begins to change this host; no other process can until the value is dropped. Changes that an earlier
    /// process left behind are undone first, and `report` is called for each of them.
    ///
    /// # Errors
    /// If another process is changing this host, somebody else may have written the journal, a change that
    /// was left behind cannot be undone, or a journal of 0.1.0 has to be confirmed first.
    pub fn host(&self, report: &mut dyn FnMut(&Outcome)) -> Result<Changes, ChangeError> {
        self.make()?;
        let legacy = self.legacy()?;
        if !legacy.is_empty() {
            let (path, number) = (self.directory.join(LEGACY), legacy.len());
            let why = format!(
                "{}: {number} changes of an earlier version of lotsfree; see and undo them by `lotsfree lab restore`",
                path.display()
            );
            return Err(ChangeError::Refused(why));
        }
        let mut changes = self.open_host()?;
        changes.undo_all(report)?;
        self.undo_abandoned(report)?;
        Ok(changes)
    }

    /// Begins changes that concern no other process: directories of this process.
    ///
    /// # Errors
    /// If the journal cannot be made.
    pub fn process(&self) -> Result<Changes, ChangeError> {
        self.make()?;
        loop {
            let id: String = std::iter::repeat_with(fastrand::alphanumeric).take(12).collect();
            let path = self.directory.join(format!("{PROCESS}{id}{SUFFIX}"));
            if let Some((journal, entries)) = Journal::open(&path)? {
                return Ok(Changes::of(journal, entries, self.territory.clone(), true));
            }
        }
    }

    /// Undoes the changes that killed processes left behind.
    ///
    /// # Errors
    /// As [`StateDirectory::host`], but for journals of 0.1.0.
    pub fn restore(&self, report: &mut dyn FnMut(&Outcome)) -> Result<(), ChangeError> {
        if !self.exists()? {
            return Ok(());
        }
        self.make()?;
        let host = self.open_host().and_then(|mut changes| changes.undo_all(report));
        self.undo_abandoned(report).and(host)
    }

    fn open_host(&self) -> Result<Changes, ChangeError> {
        let path = self.directory.join(HOST);
        let opened = Journal::open(&path)?.ok_or_else(|| {
            ChangeError::Refused(format!("{}: another `lotsfree lab` is changing this host", path.display()))
        })?;
        Ok(Changes::of(opened.0, opened.1, self.territory.clone(), false))
    }

    /// Undoes the changes in the journals of processes that are gone. The directory is not made.
    ///
    /// # Errors
    /// If a journal cannot be read, or a directory cannot be removed; the other changes are undone all the
    /// same.
    pub fn undo_abandoned(&self, report: &mut dyn FnMut(&Outcome)) -> Result<(), ChangeError> {
        let mut first = None;
        if !self.exists()? {
            return Ok(());
        }
        for path in self.journals()?.iter().filter(|path| is_named(path, PROCESS)) {
            let undone = match Journal::open(path) {
                Ok(Some((journal, entries))) => {
                    Changes::of(journal, entries, self.territory.clone(), true).undo_all(report)
                }
                // Its process is still running.
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            first = first.or(undone.err());
        }
        first.map_or(Ok(()), Err)
    }

    /// Lists the changes in the journals, without undoing any. For a damaged journal, it lists what can be
    /// read.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Listing>, ChangeError> {
        let mut listed = Vec::new();
        if !self.exists()? {
            return Ok(listed);
        }
        for path in self.journals()? {
            let (mut changes, problem) = match lotsfree_storage::read_at_most(&path, LONGEST) {
                Ok(contents) => readable(&contents, is_named(&path, LEGACY)),
                Err(error) => (Vec::new(), Some(error.to_string())),
            };
            changes.reverse();
            if !changes.is_empty() || problem.is_some() {
                listed.push(Listing { journal: path, changes, problem });
            }
        }
        Ok(listed)
    }

    /// The changes that a journal of 0.1.0 lists, oldest first.
    ///
    /// # Errors
    /// If somebody else may have written it, or a line is not understood.
    pub fn legacy(&self) -> Result<Vec<Legacy>, ChangeError> {
        let path = self.directory.join(LEGACY);
        let metadata = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            metadata => metadata.map_err(at(&path))?,
        };
        is_own(&path, &metadata)?;
        let contents = lotsfree_storage::read_at_most(&path, LONGEST).map_err(at(&path))?;
        parse_legacy(&contents).map_err(|(line, why)| ChangeError::Damaged { path, line, why })
    }

    /// Undoes the changes that a journal of 0.1.0 lists, the last first, and removes the journal. The caller
    /// has shown the list to a user, who agreed.
    ///
    /// # Errors
    /// The first change that cannot be undone; the journal stays.
    pub fn restore_legacy(&self, report: &mut dyn FnMut(&Outcome)) -> Result<(), ChangeError> {
        self.make()?;
        let mut first = None;
        for change in self.legacy()?.iter().rev().map(Legacy::change) {
            let undone =
                self.territory.allows(&change).map_err(ChangeError::Refused).and_then(|()| match &change {
                    Change::Set(set) => undo::write_back(set),
                    other => undo::undo(other, false),
                });
            match undone {
                Ok(Outcome::AsBefore) => {}
                Ok(outcome) => report(&outcome),
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        match first {
            Some(error) => Err(error),
            None => {
                let path = self.directory.join(LEGACY);
                lotsfree_storage::remove_file(&path).map_err(at(&path))
            }
        }
    }

    /// Makes the directory, or tightens the mode of one that belongs to this user.
    fn make(&self) -> Result<(), ChangeError> {
        make_private(&self.directory).map_err(at(&self.directory))
    }

    fn exists(&self) -> Result<bool, ChangeError> {
        self.directory.try_exists().map_err(at(&self.directory))
    }

    fn journals(&self) -> Result<Vec<PathBuf>, ChangeError> {
        let entries = std::fs::read_dir(&self.directory).map_err(at(&self.directory))?;
        let mut journals = Vec::new();
        for entry in entries {
            let path = entry.map_err(at(&self.directory))?.path();
            if path.to_str().is_some_and(|path| path.ends_with(SUFFIX)) {
                journals.push(path);
            }
        }
        journals.sort();
        Ok(journals)
    }
}

fn is_named(path: &Path, prefix: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
}

/// Says how each readable change of a journal would be undone, oldest first, and which part cannot be read.
fn readable(contents: &[u8], legacy: bool) -> (Vec<String>, Option<String>) {
    let parse = |contents: &[u8]| -> Result<Vec<String>, (usize, String)> {
        Ok(match legacy {
            true => parse_legacy(contents)?.iter().map(ToString::to_string).collect(),
            false => journal::parse(contents)?.iter().map(|entry| entry.change.to_string()).collect(),
        })
    };
    match parse(contents) {
        Ok(changes) => (changes, None),
        Err((line, why)) => {
            // The lines before the one that is not understood.
            let before =
                contents.split_inclusive(|byte| *byte == b'\n').take(line - 1).map(<[u8]>::len).sum();
            let changes = contents.get(..before).map(parse).and_then(Result::ok).unwrap_or_default();
            (changes, Some(format!("line {line}: {why}; what follows is not read")))
        }
    }
}
