//! Undoes changes, but only where the host is still as the change left it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::{File as _, Log};
use lotsfree_storage::fault::{Operation, point};
use rustix::fs::OFlags;

use crate::change::{Change, Set};
use crate::error::{ChangeError, at};
use crate::journal::Entry;
use crate::value::{chosen, raw, same};

/// How long killed processes may take to end. Until then they keep a group busy, or write to a directory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of undoing a change. In every case there is nothing left to undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The change was undone; the text says how.
    Undone(String),
    /// The host was as before already.
    AsBefore,
    /// Somebody else has changed it since, or relies on it, so it stays; the text says what was found.
    Left(String),
    /// The change ended with the boot during which it was made.
    Rebooted(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Undone(what) => write!(f, "undone: {what}"),
            Outcome::AsBefore => write!(f, "as before already"),
            Outcome::Left(what) => write!(f, "left as it is: {what}"),
            Outcome::Rebooted(what) => write!(f, "ended with the last boot: {what}"),
        }
    }
}

/// Undoes a change other than a setting.
pub(crate) fn undo(change: &Change, rebooted: bool) -> Result<Outcome, ChangeError> {
    let undone = match change {
        Change::Set(_) | Change::Group { .. } | Change::Controller { .. } if rebooted => {
            return Ok(Outcome::Rebooted(change.path().display().to_string()));
        }
        // A setting is undone together with all other changes of its unit, by `undo_settings`.
        Change::Set(_) => false,
        Change::Directory { path } => remove_directory(path)?,
        Change::Swap { path } => remove_swap(path)?,
        Change::Group { path } => remove_group(path)?,
        Change::Controller { path, name } => return disable(path, name),
    };
    Ok(if undone { Outcome::Undone(change.to_string()) } else { Outcome::AsBefore })
}

/// Undoes all changes of one unit of settings that were made during this boot. `chain` has the oldest first.
///
/// Only the last change that is known to have been made says how lotsfree left the setting. Changes that were
/// noted after it may or may not have been made.
pub(crate) fn undo_settings(chain: &[(&Entry, &Set)]) -> Result<Outcome, ChangeError> {
    let (Some((_, oldest)), Some((_, newest))) = (chain.first(), chain.last()) else {
        return Ok(Outcome::AsBefore);
    };
    let mut live = Vec::new();
    for path in newest.paths() {
        live.push((path, raw(path)?));
    }
    let now = |path: &Path| live.iter().find(|(known, _)| *known == path).map_or("", |(_, value)| value);
    if oldest.unit.iter().all(|key| same(now(&key.path), &key.old)) {
        return Ok(Outcome::AsBefore);
    }
    let last_made = chain.iter().rposition(|(entry, _)| entry.now.is_some()).unwrap_or(0);
    let ours = chain.iter().skip(last_made).any(|(entry, set)| is_as_left(entry, set, &now));
    if !ours {
        return Ok(Outcome::Left(format!(
            "{} is {}, which somebody else set after it was set to {}; before that it was {}",
            newest.path.display(),
            chosen(now(&newest.path)),
            newest.value,
            oldest.unit.iter().find(|key| key.path == newest.path).map_or("?", |key| chosen(&key.old)),
        )));
    }
    let Some(key) = oldest.in_force() else { return Ok(Outcome::AsBefore) };
    lotsfree_storage::set(&key.path, chosen(&key.old)).map_err(at(&key.path))?;
    for key in &oldest.unit {
        let now = raw(&key.path)?;
        if !same(&now, &key.old) {
            let (path, old, now) = (key.path.display(), chosen(&key.old), chosen(&now));
            return Err(ChangeError::Refused(format!(
                "{path}: it was {old}, and is {now} after writing that"
            )));
        }
    }
    Ok(Outcome::Undone(format!("{} back to {}", key.path.display(), chosen(&key.old))))
}

/// Whether settings are as a change left them.
fn is_as_left<'a>(entry: &Entry, set: &Set, now: &impl Fn(&Path) -> &'a str) -> bool {
    let keys = set.unit.iter();
    match &entry.now {
        _ if set.lent => true,
        Some(left) => keys.zip(left).all(|(key, left)| same(now(&key.path), left)),
        // It is not known what the kernel printed after the write; expect the value, and its partner cleared.
        None => keys.into_iter().all(|key| {
            let now = now(&key.path);
            if key.path == set.path { same(now, &set.value) } else { same(now, "0") || same(now, &key.old) }
        }),
    }
}

/// Writes back the value from a journal of 0.1.0, whatever the setting is now.
pub(crate) fn write_back(set: &Set) -> Result<Outcome, ChangeError> {
    let Some(key) = set.in_force() else { return Ok(Outcome::AsBefore) };
    if same(&raw(&key.path)?, &key.old) {
        return Ok(Outcome::AsBefore);
    }
    lotsfree_storage::set(&key.path, chosen(&key.old)).map_err(at(&key.path))?;
    Ok(Outcome::Undone(format!("{} back to {}", key.path.display(), chosen(&key.old))))
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Removes a directory and its contents; `false` if it was gone. Killed processes may add files to it for a
/// moment longer.
fn remove_directory(path: &Path) -> Result<bool, ChangeError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match lotsfree_storage::remove_dir_all(path) {
            Ok(()) => return Ok(true),
            Err(error) if is_gone(&error) && !path.exists() => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(at(path)(error)),
        }
    }
}

/// Ends swapping to a file and removes it; `false` if it was gone.
fn remove_swap(path: &Path) -> Result<bool, ChangeError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path) {
        Err(error) if is_gone(&error) => return Ok(false),
        opened => opened.map_err(at(path))?,
    };
    point(Operation::Swap, path).map_err(at(path))?;
    match swap_off(&file) {
        Err(error) if is_swapped_to(path) => {
            return Err(ChangeError::System { what: format!("swapoff {}", path.display()), error });
        }
        // The kernel did not swap to the file, or no longer does.
        _ => {}
    }
    match lotsfree_storage::remove_file(path) {
        Err(error) if !is_gone(&error) => Err(at(path)(error)),
        _ => Ok(true),
    }
}

/// Ends swapping to the open file, whatever its name leads to.
fn swap_off(file: &File) -> io::Result<()> {
    lotsfree_sys::swap_off(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
}

/// Whether the kernel swaps to a file; assumed if `/proc/swaps` cannot be read.
fn is_swapped_to(path: &Path) -> bool {
    let Ok(text) = fs::read("/proc/swaps") else { return true };
    // The kernel names the file itself, not a link on the way to it.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let areas = Vec::<SwapArea>::parse(&text, &mut Log::default());
    areas.iter().any(|known| Path::new(&known.path) == path)
}

/// Kills the processes in a control group of lotsfree's, and removes it; `false` if it was gone.
fn remove_group(path: &Path) -> Result<bool, ChangeError> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match lotsfree_storage::remove_dir(path) {
            Ok(()) => return Ok(true),
            Err(error) if is_gone(&error) => return Ok(false),
            // There are processes in it.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {}
            Err(error) => return Err(at(path)(error)),
        }
        let procs = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for id in procs.lines().filter_map(|line| rustix::process::Pid::from_raw(line.trim().parse().ok()?)) {
            // The process may have ended by itself.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Limits and protections which show, if they are set, that somebody relies on a group's memory controller;
/// each with its default (`mm/memcontrol.c:memory_files`).
const RELIED_ON: [(&str, &str); 5] = [
    ("memory.max", "max"),
    ("memory.high", "max"),
    ("memory.swap.max", "max"),
    ("memory.min", "0"),
    ("memory.low", "0"),
];

/// Switches off a controller for the children of a group, unless one of them relies on it by now.
fn disable(path: &Path, name: &str) -> Result<Outcome, ChangeError> {
    if !raw(path)?.split_ascii_whitespace().any(|word| word == name) {
        return Ok(Outcome::AsBefore);
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    for child in fs::read_dir(parent).map_err(at(parent))?.filter_map(Result::ok) {
        let relied = RELIED_ON.iter().find(|(file, untouched)| {
            raw(&child.path().join(file)).is_ok_and(|value| value.trim() != *untouched)
        });
        if let Some((file, _)) = relied {
            let child = child.path().join(file);
            return Ok(Outcome::Left(format!("{name} in {}: {} is set", path.display(), child.display())));
        }
    }
    match lotsfree_storage::set(path, &format!("-{name}")) {
        // A group further below uses it.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            Ok(Outcome::Left(format!("{name} in {}: a group below uses it", path.display())))
        }
        written => {
            written.map_err(at(path))?;
            Ok(Outcome::Undone(format!("controller {name} off in {}", path.display())))
        }
    }
}
