//! [`Scratch`]: the directory of a virtual machine, which does not outlive it.
//!
//! A machine's disks take gigabytes, and this process may be killed before it removes them. So each directory
//! is noted before it is made, in a file of the same name below the [state directory](notes), which is locked
//! as long as the machine is there. A note that nobody locks names a directory that nobody uses:
//! [`sweep`] removes both.
//!
//! ```text
//! note made ─ locked ─ path written ─ directory made ─ … ─ directory removed ─ note removed
//! ```
//!
//! Killed at any of these steps, what is left is a note with or without a directory, never a directory
//! without a note.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lotsfree_storage::{self as storage, Access, PrivateDirectory};

use super::Error;

/// How the directories' names begin; twelve letters and digits follow.
const PREFIX: &str = "lotsfree-vm-";
/// Bytes of a path.
const PATH_MAX: u64 = 4096;

/// A private directory that is removed with this value, or by [`sweep`] if this process is killed.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: PrivateDirectory,
    note: PathBuf,
    /// What is locked.
    _lock: File,
}

impl Scratch {
    /// Makes one in `parent`, and notes it.
    ///
    /// # Errors
    /// If somebody else could exchange what is made in `parent`, or neither it nor the state directory can be
    /// written to.
    pub(crate) fn make(parent: &Path) -> Result<Scratch, Error> {
        Scratch::noted(parent, &notes()?)
    }

    fn noted(parent: &Path, notes: &Path) -> Result<Scratch, Error> {
        let refused = |error| Error::unusable(parent, format!("{error}; name another directory with TMPDIR"));
        storage::make_private(notes).map_err(|error| {
            let why = format!("{error}; disks are noted there: name another directory with LOTSFREE_STATE");
            Error::unusable(notes, why)
        })?;
        loop {
            let path = PrivateDirectory::name_in(parent, PREFIX).map_err(refused)?;
            let note = notes.join(path.file_name().unwrap_or_default());
            let mut file = match storage::create_new(&note, Access::Private) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                made => made.map_err(Error::io(&note))?,
            };
            file.file().lock().map_err(Error::io(&note))?;
            if file.file().metadata().map_err(Error::io(&note))?.nlink() == 0 {
                // Swept between the two.
                continue;
            }
            let written = file.write_all(path.as_os_str().as_bytes()).and_then(|()| file.sync());
            let made = match written.map_err(Error::io(&note)) {
                Ok(()) => PrivateDirectory::make(&path).map_err(Error::io(&path)),
                Err(error) => Err(error),
            };
            return match made {
                Ok(directory) => Ok(Scratch { directory, note, _lock: file.into_file() }),
                Err(error) => {
                    // An empty note, or one of a directory that is not there, is swept.
                    let _ = storage::remove_file(&note);
                    match error {
                        Error::Io { error, .. } if error.kind() == ErrorKind::AlreadyExists => continue,
                        error => Err(error),
                    }
                }
            };
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes a file in it that nobody else may read.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn file(&self, name: &str) -> Result<storage::OutFile, Error> {
        let path = self.path().join(name);
        storage::create_new(&path, Access::Private).map_err(Error::io(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays noted.
        if storage::remove_dir_all(self.path()).is_ok() {
            let _ = storage::remove_file(&self.note);
        }
    }
}

/// Where directories are noted: `machines` below `$LOTSFREE_STATE`, else below `/var/lib/lotsfree` for root and
/// below `lotsfree` in the directory for the state of a user's programs
/// ([`XDG_STATE_HOME`](https://specifications.freedesktop.org/basedir-spec/latest/)) for others.
fn notes() -> Result<PathBuf, Error> {
    let named = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    let root = || rustix::process::geteuid().is_root().then(|| PathBuf::from("/var/lib/lotsfree"));
    let user = || {
        let own = named("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let own = own.or_else(|| Some(Path::new(&named("HOME")?).join(".local/state")));
        Some(own?.join("lotsfree"))
    };
    let state = named("LOTSFREE_STATE").map(PathBuf::from).or_else(root).or_else(user);
    let state = state.ok_or_else(|| {
        Error::unusable(
            "LOTSFREE_STATE",
            "neither it nor HOME is set: name a directory for disks to be noted in",
        )
    })?;
    storage::make_private(&state).map_err(|error| {
        let why = format!("{error}; disks are noted there: name another directory with LOTSFREE_STATE");
        Error::unusable(&state, why)
    })?;
    Ok(state.join("machines"))
}

/// Removes the directories of virtual machines whose process was killed, of this user. `report` is told of
/// each.
///
/// # Errors
/// If one cannot be removed, or a note names what is no such directory: that stays, and the others are
/// removed all the same.
pub fn sweep(report: &mut dyn FnMut(&Path)) -> Result<(), Error> {
    sweep_noted(&notes()?, report)
}

fn sweep_noted(notes: &Path, report: &mut dyn FnMut(&Path)) -> Result<(), Error> {
    let entries = match fs::read_dir(notes) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(Error::io(notes))?,
    };
    let mut done = Ok(());
    for entry in entries {
        let entry = entry.map_err(Error::io(notes))?;
        if is_name(entry.file_name().as_bytes()) {
            let swept = sweep_one(&entry.path(), report);
            done = done.and(swept);
        }
    }
    done
}

fn is_name(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX.as_bytes())
        .is_some_and(|rest| rest.len() == 12 && rest.iter().all(u8::is_ascii_alphanumeric))
}

/// Removes what one note names, and the note, if nobody uses it.
fn sweep_one(note: &Path, report: &mut dyn FnMut(&Path)) -> Result<(), Error> {
    let file = match storage::open_regular(note) {
        // Its machine has ended.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(Error::io(note))?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(Error::io(note)(error)),
    }
    if file.metadata().map_err(Error::io(note))?.nlink() == 0 {
        return Ok(());
    }
    let path = storage::read_at_most(note, PATH_MAX).map_err(Error::io(note))?;
    let path = PathBuf::from(std::ffi::OsString::from_vec(path));
    // One that was cut off names no directory: none was made.
    let named = path.is_absolute() && path.file_name() == note.file_name();
    if named && is_ours(&path).map_err(|why| refused(&path, note, why))? {
        storage::remove_dir_all(&path).map_err(Error::io(&path))?;
        report(&path);
    }
    storage::remove_file(note).map_err(Error::io(note))
}

fn refused(path: &Path, note: &Path, why: String) -> Error {
    let what = format!("{why}; look at it, remove what is yours, then remove {}", note.display());
    Error::unusable(path, what)
}

/// Whether a directory is there, and one that was made here; an error says what else it is.
fn is_ours(path: &Path) -> Result<bool, String> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        metadata => metadata.map_err(|error| error.to_string())?,
    };
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != own || metadata.mode() & 0o777 != 0o700 {
        return Err(
            "noted as the disks of a virtual machine that was killed, and is no private directory of \
                    this user"
                .to_owned(),
        );
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    let parent = fs::canonicalize(parent).map_err(|error: io::Error| error.to_string())?;
    match storage::is_exchangeable(&parent).map_err(|error| error.to_string())? {
        None => Ok(true),
        Some(why) => Err(why),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    struct Bench {
        root: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Bench {
            let root = tempfile::tempdir().expect("a directory");
            fs::create_dir(root.path().join("parent")).expect("made");
            Bench { root }
        }

        fn parent(&self) -> PathBuf {
            self.root.path().join("parent")
        }

        fn notes(&self) -> PathBuf {
            self.root.path().join("notes")
        }

        fn make(&self) -> Result<Scratch, Error> {
            Scratch::noted(&self.parent(), &self.notes())
        }

        fn swept(&self) -> (Vec<PathBuf>, Result<(), Error>) {
            let mut swept = Vec::new();
            let done = sweep_noted(&self.notes(), &mut |path| swept.push(path.to_path_buf()));
            (swept, done)
        }

        fn count(&self, directory: &Path) -> usize {
            fs::read_dir(directory).expect("there").count()
        }
    }

    /// As if this process were killed: nothing is removed, and the lock goes.
    fn kill(scratch: Scratch) -> (PathBuf, PathBuf) {
        let paths = (scratch.path().to_path_buf(), scratch.note.clone());
        // A second lock by another description of the same file would wait; this one is given up.
        scratch._lock.unlock().expect("unlocked");
        std::mem::forget(scratch);
        paths
    }

    #[test]
    fn a_machine_leaves_neither_directory_nor_note() {
        let bench = Bench::new();
        let scratch = bench.make().expect("made");
        fs::write(scratch.path().join("disk"), "x").expect("written");
        let mode = fs::metadata(scratch.path()).expect("there").mode();
        assert_eq!(mode & 0o7777, 0o700);
        assert_eq!((bench.count(&bench.parent()), bench.count(&bench.notes())), (1, 1));
        drop(scratch);
        assert_eq!((bench.count(&bench.parent()), bench.count(&bench.notes())), (0, 0));
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_is_in_use_is_not() {
        let bench = Bench::new();
        assert!(bench.swept().1.is_ok(), "no state directory yet");
        let used = bench.make().expect("made");
        let (left, note) = kill(bench.make().expect("made"));
        fs::write(left.join("disk"), "x").expect("written");
        symlink("/etc", left.join("link")).expect("linked");
        let (swept, done) = bench.swept();
        done.expect("swept");
        assert_eq!(swept, std::slice::from_ref(&left));
        assert!(!left.exists() && !note.exists() && used.path().exists());
        assert_eq!(bench.swept().0.len(), 0);
    }

    #[test]
    fn killed_at_any_step_nothing_stays() {
        let bench = Bench::new();
        // The note was made; it was written in part; it was written; the directory was removed.
        for length in [0, 5, usize::MAX] {
            let (left, note) = kill(bench.make().expect("made"));
            fs::remove_dir(&left).expect("removed");
            let path = left.as_os_str().as_bytes();
            fs::write(&note, &path[..length.min(path.len())]).expect("written");
        }
        let (swept, done) = bench.swept();
        done.expect("swept");
        assert!(swept.is_empty());
        assert_eq!(bench.count(&bench.notes()), 0);
    }

    #[test]
    fn a_note_that_names_something_else_removes_nothing() {
        let bench = Bench::new();
        let (left, note) = kill(bench.make().expect("made"));
        // Not private any more, and a link in its place.
        fs::set_permissions(&left, fs::Permissions::from_mode(0o755)).expect("set");
        let error = bench.swept().1.unwrap_err().to_string();
        assert!(error.contains("no private directory of this user"), "{error}");
        assert!(error.contains(&note.display().to_string()), "{error}");
        fs::rename(&left, bench.parent().join("elsewhere")).expect("renamed");
        symlink(bench.parent().join("elsewhere"), &left).expect("linked");
        assert!(bench.swept().1.is_err());
        assert!(bench.parent().join("elsewhere").is_dir() && note.exists());
        // A path whose name is not the note's: no directory was made under it.
        let precious = bench.root.path().join("precious");
        fs::create_dir(&precious).expect("made");
        fs::write(&note, precious.as_os_str().as_bytes()).expect("written");
        bench.swept().1.expect("only the note goes");
        assert!(precious.is_dir() && !note.exists());
        if rustix::process::geteuid().is_root() {
            let (left, _) = kill(bench.make().expect("made"));
            chown(&left, Some(65534), None).expect("given");
            assert!(bench.swept().1.is_err() && left.is_dir());
        }
    }

    #[test]
    fn a_place_that_somebody_else_could_exchange_is_refused() {
        let bench = Bench::new();
        fs::set_permissions(bench.parent(), fs::Permissions::from_mode(0o777)).expect("set");
        let error = bench.make().unwrap_err().to_string();
        assert!(error.contains("not sticky") && error.contains("TMPDIR"), "{error}");
        fs::set_permissions(bench.parent(), fs::Permissions::from_mode(0o755)).expect("set");
        fs::remove_dir_all(bench.notes()).expect("removed");
        symlink("/", bench.notes()).expect("linked");
        let error = bench.make().unwrap_err().to_string();
        assert!(error.contains("LOTSFREE_STATE"), "{error}");
        assert_eq!(bench.count(&bench.parent()), 0);
    }
}
