//! [`Changes`]: the changes of a process, which are undone when the value is dropped.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use lotsfree_storage::PrivateDirectory;
use lotsfree_storage::fault::{Operation, point};

use crate::change::{Change, Key, Set, partner};
use crate::error::{ChangeError, at};
use crate::journal::{Entry, Journal};
use crate::territory::{PREFIX, Territory};
use crate::undo::{self, Outcome};
use crate::value::{chosen, raw, same};

/// Changes of this host, which are undone when the value is dropped.
#[derive(Debug)]
pub struct Changes {
    journal: Option<Journal>,
    /// Changes that are not undone, oldest first.
    entries: Vec<Entry>,
    boot: String,
    /// The files that may be changed; `None`: all of them, on a machine that is gone afterwards.
    territory: Option<Territory>,
    /// The journal belongs to this process alone, and is removed when it is empty.
    own: bool,
    /// Number of the last entry, where there is no journal.
    noted: u64,
}

/// The id of this boot; empty if the kernel does not give one.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Changes {
    /// Continues with a journal and its entries that are not closed.
    pub(crate) fn of(journal: Journal, entries: Vec<Entry>, territory: Territory, own: bool) -> Self {
        Changes {
            journal: Some(journal),
            entries,
            boot: boot_id(),
            territory: Some(territory),
            own,
            noted: 0,
        }
    }

    /// Begins without a journal, on a machine that is gone afterwards.
    pub fn forgotten() -> Self {
        Changes { journal: None, entries: Vec::new(), boot: boot_id(), territory: None, own: false, noted: 0 }
    }

    fn allows(&self, change: &Change) -> Result<(), ChangeError> {
        self.territory
            .as_ref()
            .map_or(Ok(()), |territory| territory.allows(change))
            .map_err(ChangeError::Refused)
    }

    /// A path for a new directory or group that nobody can guess.
    fn new_path(&self, parent: &Path, what: &str) -> Result<PathBuf, ChangeError> {
        let path = match self.territory {
            Some(_) => PrivateDirectory::name_in(parent, &format!("{PREFIX}{what}-")),
            // The machine has no other users.
            None => Ok(parent.join(format!("{PREFIX}{what}"))),
        };
        path.map_err(at(parent))
    }

    fn note(&mut self, change: Change) -> Result<u64, ChangeError> {
        self.allows(&change)?;
        let entry = match &mut self.journal {
            Some(journal) => journal.note(&self.boot, &change)?,
            None => {
                self.noted += 1;
                Entry { number: self.noted, boot: self.boot.clone(), change, now: None }
            }
        };
        let number = entry.number;
        self.entries.push(entry);
        Ok(number)
    }

    fn made(&mut self, number: u64, now: Vec<String>) -> Result<(), ChangeError> {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.number == number) {
            entry.now = Some(now.clone());
        }
        self.journal.as_mut().map_or(Ok(()), |journal| journal.made(number, now))
    }

    /// Notes that a change was not made after all.
    fn not_made(&mut self, number: u64) {
        self.entries.retain(|entry| entry.number != number);
        if let Some(journal) = &mut self.journal {
            // If this is not written, whoever reads the journal finds nothing to undo.
            let _ = journal.close(number);
        }
    }

    /// Notes a change and makes it. If it cannot be made, the note is closed again, so that nothing that
    /// belongs to somebody else is undone.
    fn make<T>(
        &mut self,
        change: Change,
        make: impl FnOnce() -> Result<T, ChangeError>,
    ) -> Result<T, ChangeError> {
        let number = self.note(change)?;
        match make() {
            Ok(made) => self.made(number, Vec::new()).map(|()| made),
            Err(error) => {
                self.not_made(number);
                Err(error)
            }
        }
    }

    /// Writes a setting and reads it back. Nothing is done if it has that value already.
    ///
    /// # Errors
    /// If there is no such setting, if it cannot be written, or if the kernel does not take the value.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<(), ChangeError> {
        let old = raw(path)?;
        if same(&old, value) {
            return Ok(());
        }
        let mut unit = vec![Key { path: path.to_path_buf(), old }];
        if let Some(partner) = partner(path).filter(|partner| partner.exists()) {
            unit.push(Key { old: raw(&partner)?, path: partner });
        }
        let paths: Vec<PathBuf> = unit.iter().map(|key| key.path.clone()).collect();
        let set = Set { path: path.to_path_buf(), value: value.to_owned(), unit: unit.clone(), lent: false };
        let number = self.note(Change::Set(set))?;
        let written = lotsfree_storage::set(path, value).map_err(|error| ChangeError::System {
            what: format!("{}: cannot be set to {value:?}", path.display()),
            error,
        });
        let now = paths.iter().map(|path| raw(path)).collect::<Result<Vec<_>, _>>()?;
        if written.is_err() && unit.iter().zip(&now).all(|(key, now)| key.old == *now) {
            self.not_made(number);
            return written;
        }
        let kernel_says = now.first().map_or(String::new(), |now| chosen(now).to_owned());
        self.made(number, now)?;
        written?;
        if !same(&kernel_says, value) {
            let why = format!("{}: set to {value}, but the kernel says {kernel_says}", path.display());
            return Err(ChangeError::Refused(why));
        }
        Ok(())
    }

    /// Notes that an actor of the lab may write a setting, again and again. Whatever it is in the end, it is
    /// put back as it is now.
    ///
    /// # Errors
    /// If there is no such setting, or the change cannot be noted.
    pub fn lend(&mut self, path: &Path) -> Result<(), ChangeError> {
        let old = raw(path)?;
        let unit = vec![Key { path: path.to_path_buf(), old: old.clone() }];
        let value = chosen(&old).to_owned();
        let number = self.note(Change::Set(Set { path: path.to_path_buf(), value, unit, lent: true }))?;
        self.made(number, vec![old])
    }

    /// Makes a directory below `parent`, for this user only and with a name that nobody can guess. It is
    /// removed with everything in it.
    ///
    /// # Errors
    /// If it cannot be made, or if somebody else could put another in its place.
    pub fn directory(&mut self, parent: &Path, what: &str) -> Result<PathBuf, ChangeError> {
        let path = self.new_path(parent, what)?;
        self.make(Change::Directory { path: path.clone() }, || {
            PrivateDirectory::make(&path).map_err(at(&path))
        })?;
        Ok(path)
    }

    /// Makes a swap file in a directory of [`Changes::directory`] and swaps to it.
    ///
    /// # Errors
    /// If it cannot be made, or the kernel refuses to swap there.
    pub fn swap(&mut self, path: &Path, bytes: u64) -> Result<(), ChangeError> {
        let number = self.note(Change::Swap { path: path.to_path_buf() })?;
        let file = match crate::swap::make_file(path, bytes) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.not_made(number);
                return Err(at(path)(error));
            }
            made => made.map_err(at(path))?,
        };
        point(Operation::Swap, path).map_err(at(path))?;
        // Swap to the file that was made, whatever its name leads to by now.
        lotsfree_sys::swap_on(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
            .map_err(|error| ChangeError::System { what: format!("swapon {}", path.display()), error })?;
        self.made(number, Vec::new())
    }

    /// Makes a control group below `parent`, whose name nobody else uses.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn group(&mut self, parent: &Path, what: &str) -> Result<PathBuf, ChangeError> {
        let path = self.new_path(parent, what)?;
        self.make(Change::Group { path: path.clone() }, || {
            lotsfree_storage::create_dir(&path).map_err(at(&path))
        })?;
        Ok(path)
    }

    /// Switches a controller on for the children of a control group of version 2. Nothing is done if it is on
    /// already.
    ///
    /// # Errors
    /// If it cannot be switched on.
    pub fn controller(&mut self, subtree_control: &Path, name: &str) -> Result<(), ChangeError> {
        if raw(subtree_control)?.split_ascii_whitespace().any(|word| word == name) {
            return Ok(());
        }
        let change = Change::Controller { path: subtree_control.to_path_buf(), name: name.to_owned() };
        self.make(change, || {
            lotsfree_storage::set(subtree_control, &format!("+{name}")).map_err(at(subtree_control))
        })
    }

    /// Undoes everything, the last change first.
    ///
    /// # Errors
    /// The first change that could not be undone; the others are undone all the same, and the journal keeps
    /// those that were not.
    pub fn undo(mut self, report: &mut dyn FnMut(&Outcome)) -> Result<(), ChangeError> {
        self.undo_all(report)
    }

    /// How many changes have been made that are not undone: what [`undo_to`](Changes::undo_to) goes back to.
    pub fn count(&self) -> usize {
        self.entries.len()
    }

    /// Undoes all changes but the first `count`, the last change first.
    ///
    /// # Errors
    /// As [`undo`](Changes::undo).
    pub fn undo_to(&mut self, count: usize, report: &mut dyn FnMut(&Outcome)) -> Result<(), ChangeError> {
        let earlier: Vec<Entry> = self.entries.drain(..count.min(self.entries.len())).collect();
        let undone = self.undo_entries(report);
        self.entries.splice(0..0, earlier);
        undone.and_then(|()| self.finish())
    }

    pub(crate) fn undo_all(&mut self, report: &mut dyn FnMut(&Outcome)) -> Result<(), ChangeError> {
        let undone = self.undo_entries(report);
        if self.entries.is_empty() {
            // Closing an entry may have failed, but nothing is left to undo.
            return self.finish();
        }
        undone
    }

    /// Empties the journal if nothing is left to undo.
    fn finish(&mut self) -> Result<(), ChangeError> {
        if self.entries.is_empty()
            && let Some(journal) = &mut self.journal
        {
            journal.clear()?;
            if self.own {
                lotsfree_storage::remove_file(journal.path()).map_err(at(journal.path()))?;
                self.journal = None;
            }
        }
        Ok(())
    }

    /// Undoes the entries. Those that could not be undone stay.
    fn undo_entries(&mut self, report: &mut dyn FnMut(&Outcome)) -> Result<(), ChangeError> {
        let (mut first, mut kept) = (None, Vec::new());
        while let Some(entry) = self.entries.pop() {
            let together = self.together(entry);
            match self.undo_together(&together) {
                Ok(outcomes) => {
                    outcomes.iter().filter(|outcome| **outcome != Outcome::AsBefore).for_each(&mut *report);
                    if let Some(journal) = &mut self.journal {
                        // If closing fails, the change is undone once more later, which finds the host as it
                        // was before.
                        let closed = together.iter().try_for_each(|entry| journal.close(entry.number));
                        first = first.or(closed.err());
                    }
                }
                Err(error) => {
                    kept.extend(together.into_iter().rev());
                    first.get_or_insert(error);
                }
            }
        }
        kept.reverse();
        // These are tried again when the value is dropped, which must not empty the journal.
        self.entries = kept;
        first.map_or(Ok(()), Err)
    }

    /// Takes all entries of the same unit of settings as `entry` out of the list. Returns them with `entry`,
    /// oldest first.
    fn together(&mut self, entry: Entry) -> Vec<Entry> {
        let Change::Set(set) = &entry.change else { return vec![entry] };
        let of_unit =
            |other: &mut Entry| matches!(&other.change, Change::Set(other) if other.paths() == set.paths());
        let mut together: Vec<Entry> = self.entries.extract_if(.., of_unit).collect();
        together.push(entry);
        together
    }

    fn undo_together(&self, together: &[Entry]) -> Result<Vec<Outcome>, ChangeError> {
        let mut outcomes = Vec::new();
        let mut chain = Vec::new();
        for entry in together {
            let rebooted = !self.boot.is_empty() && !entry.boot.is_empty() && entry.boot != self.boot;
            self.allows(&entry.change)?;
            match &entry.change {
                Change::Set(set) if !rebooted => chain.push((entry, set)),
                change => outcomes.push(undo::undo(change, rebooted)?),
            }
        }
        if !chain.is_empty() {
            outcomes.push(undo::undo_settings(&chain)?);
        }
        Ok(outcomes)
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // A caller that wants to know of errors calls `undo`.
        let _ = self.undo_all(&mut |_| ());
    }
}

#[cfg(test)]
mod tests;
