//! Writing files whole or not at all, and never through a link that somebody else put there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::fault::{self, Operation, point};

/// Who may read a file that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The owner only, whatever the umask: 0600.
    Private,
    /// Everybody whom the umask allows: 0666 less the umask.
    Umask,
}

impl Access {
    fn mode(self) -> u32 {
        match self {
            Access::Private => 0o600,
            Access::Umask => 0o666,
        }
    }
}

/// A file that is written to. Each write, sync and change of length is a point of [`fault`].
#[derive(Debug)]
pub struct OutFile {
    file: File,
    path: PathBuf,
}

impl OutFile {
    /// Takes a file that is open for writing; its path is for messages and faults.
    pub fn new(file: File, path: &Path) -> Self {
        OutFile { file, path: path.to_path_buf() }
    }

    /// The file, for operations that are not points.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file alone, for a caller that writes to it in another way.
    pub fn into_file(self) -> File {
        self.file
    }

    /// The path at which it was made.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs data and metadata to disk.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> io::Result<()> {
        point(Operation::Sync, &self.path)?;
        self.file.sync_all()
    }

    /// Sets the length.
    ///
    /// # Errors
    /// The system's.
    pub fn set_len(&self, length: u64) -> io::Result<()> {
        point(Operation::Truncate, &self.path)?;
        self.file.set_len(length)
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(fault) = fault::at(Operation::Write, &self.path) else { return self.file.write(bytes) };
        // The fault comes after half of the bytes.
        self.file.write_all(&bytes[..bytes.len() / 2])?;
        Err(fault::happen(fault))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Makes a new file. If anything exists at the path, even a link, it is not used.
///
/// # Errors
/// `AlreadyExists` if anything exists there; the system's.
pub fn create_new(path: &Path, access: Access) -> io::Result<OutFile> {
    point(Operation::Create, path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(access.mode());
    let file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)?;
    if access == Access::Private {
        // The umask may have taken away permissions that the owner needs.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    Ok(OutFile::new(file, path))
}

/// Writes a file as a whole or not at all: it is written under another name beside it, synced, and then
/// renamed. An existing file is replaced. Anything else, such as a link, is not: somebody else may have put
/// it there.
///
/// # Errors
/// The system's. `path` is then as it was, and nothing is left beside it.
pub fn replace(path: &Path, access: Access, contents: &[u8]) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::other("exists and is not a regular file"));
    }
    let directory = parent(path);
    let mut made = temporary_in(directory, access)?;
    let written = made.write_all(contents).and_then(|()| made.sync());
    let done = written.and_then(|()| rename(&made.path, path));
    if let Err(error) = done {
        // If it cannot be removed, its name is hidden and says what it was for.
        let _ = fs::remove_file(&made.path);
        return Err(error);
    }
    sync_dir(directory)
}

/// The directory of a path; `.` for a bare name.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new file with a name that cannot be guessed.
fn temporary_in(directory: &Path, access: Access) -> io::Result<OutFile> {
    loop {
        let path = directory.join(random_name(".lotsfree-", ".tmp"));
        match create_new(&path, access) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
}

/// A name that nobody can guess.
pub(crate) fn random_name(prefix: &str, suffix: &str) -> OsString {
    let mut name = prefix.to_owned();
    name.extend(std::iter::repeat_with(fastrand::alphanumeric).take(12));
    name.push_str(suffix);
    name.into()
}

/// Renames a file or directory.
///
/// # Errors
/// The system's.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    point(Operation::Rename, to)?;
    fs::rename(from, to)
}

/// Exchanges two paths, so that neither is missing at any time. Returns `false` if nothing was done because
/// the file system cannot exchange paths (NFS, FUSE) or the kernel is older than 3.15.
///
/// # Errors
/// The system's.
pub fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    point(Operation::Rename, other)?;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
        exchanged => Ok(exchanged.map(|()| true)?),
    }
}

/// Syncs a directory, so that files made, renamed or removed in it stay so after a crash.
///
/// # Errors
/// The system's.
pub fn sync_dir(directory: &Path) -> io::Result<()> {
    point(Operation::Sync, directory)?;
    crate::open_dir(directory)?.sync_all()
}

/// Makes a new directory, with the mode that the umask leaves.
///
/// # Errors
/// `AlreadyExists`; the system's.
pub fn create_dir(path: &Path) -> io::Result<()> {
    point(Operation::MakeDirectory, path)?;
    fs::DirBuilder::new().mode(0o777).create(path)
}

/// Lets others into a directory: gives it a mode, and a user and a group if it is to be theirs.
///
/// # Errors
/// The system's.
pub fn share_dir(path: &Path, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
    point(Operation::Owner, path)?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    if let Some((user, group)) = owner {
        std::os::unix::fs::lchown(path, Some(user), Some(group))?;
    }
    Ok(())
}

/// Makes a directory and its parents; those that exist stay as they are.
///
/// # Errors
/// The system's.
pub fn create_dir_all(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_dir_all(parent)?;
    }
    match create_dir(path) {
        // Somebody else made the directory in between.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// Removes a file, or a link itself.
///
/// # Errors
/// The system's.
pub fn remove_file(path: &Path) -> io::Result<()> {
    point(Operation::Remove, path)?;
    fs::remove_file(path)
}

/// Removes an empty directory.
///
/// # Errors
/// The system's.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    point(Operation::Remove, path)?;
    fs::remove_dir(path)
}

/// Removes a directory with everything in it. Links in it are removed, not followed.
///
/// # Errors
/// The system's.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    point(Operation::Remove, path)?;
    fs::remove_dir_all(path)
}

/// Writes a setting of the kernel: one `write` to an existing file of `/proc/sys`, `/sys` or a control group.
///
/// # Errors
/// The system's, among them `ELOOP` if the last component is a link.
pub fn set(path: &Path, value: &str) -> io::Result<()> {
    point(Operation::Set, path)?;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a setting"));
    }
    // Settings of the kernel have no length; files that stand for them in tests do.
    let _ = file.set_len(0);
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_with_the_access_that_was_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report");
        replace(&path, Access::Umask, b"one").unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
        assert_eq!(mode(&path), 0o666 & !u32::from_str_radix(umask.trim(), 8).unwrap());
        replace(&path, Access::Private, b"two").unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o600, b"two".to_vec()));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        assert!(replace(&at("directory"), Access::Umask, b"x").is_err());
        assert!(replace(Path::new("/dev/null"), Access::Umask, b"x").is_err());
        fs::write(at("file"), "x").unwrap();
        symlink(at("file"), at("link")).unwrap();
        assert!(replace(&at("link"), Access::Umask, b"y").is_err());
        assert_eq!(fs::read(at("file")).unwrap(), b"x");
    }

    #[test]
    fn two_directories_are_exchanged() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("one")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("one/file"), "x").unwrap();
        if exchange(&at("one"), &at("other")).unwrap() {
            assert!(at("other/file").exists() && !at("one/file").exists());
        }
        assert!(exchange(&at("one"), &at("none")).is_err());
    }

    #[test]
    fn nothing_that_is_there_is_taken_for_a_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        symlink(at("elsewhere"), at("link")).unwrap();
        assert_eq!(create_new(&at("link"), Access::Umask).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(!at("elsewhere").exists());
    }

    #[test]
    fn a_setting_is_a_file_that_is_there_and_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        assert!(set(&at("setting"), "1").is_err() && !at("setting").exists());
        fs::write(at("setting"), "0").unwrap();
        set(&at("setting"), "1").unwrap();
        symlink(at("setting"), at("link")).unwrap();
        assert!(set(&at("link"), "2").is_err());
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RWXU).unwrap();
        assert!(set(&at("fifo"), "2").is_err());
        assert_eq!(fs::read(at("setting")).unwrap(), b"1");
    }
}
