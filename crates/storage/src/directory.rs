//! Directories that no other user can look into or exchange.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::fault::{Operation, point};
use crate::write::random_name;

/// A directory that this process has made: mode 0700, with a name that nobody could guess, held open.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    directory: File,
}

impl PrivateDirectory {
    /// A name for a directory in `parent` that nobody can guess. Nothing is made.
    ///
    /// # Errors
    /// The system's, if `parent` is not there; `PermissionDenied` if somebody else could exchange files in
    /// it, as [`is_exchangeable`] says.
    pub fn name_in(parent: &Path, prefix: &str) -> io::Result<PathBuf> {
        let parent = fs::canonicalize(parent)?;
        if let Some(why) = is_exchangeable(&parent)? {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(parent.join(random_name(prefix, "")))
    }

    /// Makes the directory. One that exists already is not used, whoever owns it.
    ///
    /// # Errors
    /// `AlreadyExists`; the system's; `PermissionDenied` if another directory has taken the place of the one
    /// that was made.
    pub fn make(path: &Path) -> io::Result<Self> {
        point(Operation::MakeDirectory, path)?;
        fs::DirBuilder::new().mode(0o700).create(path)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
        let metadata = directory.metadata()?;
        let own = rustix::process::geteuid().as_raw();
        if metadata.uid() != own || metadata.mode() & 0o077 != 0 {
            let why = "somebody else put another directory there";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(PrivateDirectory { path: path.to_path_buf(), directory })
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path to the directory that was made, whatever its name leads to now.
    pub fn held(&self) -> PathBuf {
        held(&self.directory, &self.path)
    }
}

/// A path to an open directory, whatever the name by which it was opened leads to now. Without `/proc`, it is
/// that name.
pub fn held(directory: &File, name: &Path) -> PathBuf {
    let held = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    if held.is_dir() { held } else { name.to_path_buf() }
}

/// Opens a directory, to sync, lock or list it. Anything else of that name is not opened, so that a FIFO does
/// not hang. A link is followed.
///
/// # Errors
/// `NotADirectory`; the system's.
pub fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// Opens a directory that belongs to the user that runs this, but not through a link. It is for a directory
/// that an earlier call left behind under a name that others can guess.
///
/// # Errors
/// `NotADirectory` for a link, too; `PermissionDenied` if it belongs to somebody else; the system's.
pub fn open_own_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let (owner, own) = (directory.metadata()?.uid(), rustix::process::geteuid().as_raw());
    if owner != own {
        let why = format!("it belongs to user {owner}, not to user {own}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(directory)
}

/// Says who could exchange files in a directory, other than root and the user that runs this: the owner of
/// the directory or one of its parents, or anybody who may write to one of them that is not sticky. `None` if
/// there is nobody. `path` is canonical.
///
/// # Errors
/// The system's, if a parent cannot be looked at.
pub fn is_exchangeable(path: &Path) -> io::Result<Option<String>> {
    let own = rustix::process::geteuid().as_raw();
    for directory in path.ancestors() {
        let metadata = fs::symlink_metadata(directory)?;
        let (owner, mode) = (metadata.uid(), metadata.mode());
        if owner != 0 && owner != own {
            return Ok(Some(format!(
                "{} belongs to user {owner}, who could exchange it",
                directory.display()
            )));
        }
        if mode & 0o022 != 0 && mode & 0o1000 == 0 {
            let why =
                "others may write to it and it is not sticky, so that they could exchange what is in it";
            return Ok(Some(format!("{}: {why}", directory.display())));
        }
    }
    Ok(None)
}

/// Makes a directory for this user only, or tightens the mode of one that exists and belongs to this user.
///
/// # Errors
/// `PermissionDenied` if it belongs to somebody else, is a link, or somebody else could exchange it; the
/// system's.
pub fn make_private(path: &Path) -> io::Result<()> {
    let denied = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        crate::create_dir_all(parent)?;
        if let Some(why) = is_exchangeable(&fs::canonicalize(parent)?)? {
            return Err(denied(why));
        }
    }
    point(Operation::MakeDirectory, path)?;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = directory.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own {
        return Err(denied(format!("it belongs to user {}, not to user {own}", metadata.uid())));
    }
    if metadata.mode() & 0o7777 != 0o700 {
        directory.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_there_is_not_taken_for_a_private_directory() {
        let parent = tempfile::tempdir().unwrap();
        let path = PrivateDirectory::name_in(parent.path(), "lab-").unwrap();
        assert_ne!(PrivateDirectory::name_in(parent.path(), "lab-").unwrap(), path);
        let made = PrivateDirectory::make(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        fs::write(path.join("file"), "x").unwrap();
        assert_eq!(fs::read(made.held().join("file")).unwrap(), b"x");
        assert_eq!(PrivateDirectory::make(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let link = parent.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(PrivateDirectory::make(&link).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_directory_that_others_could_exchange_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let inner = parent.path().join("inner");
        fs::create_dir(&inner).unwrap();
        assert_eq!(is_exchangeable(&inner).unwrap(), None);
        chmod(parent.path(), 0o777);
        assert!(is_exchangeable(&inner).unwrap().unwrap().contains("not sticky"));
        assert!(PrivateDirectory::name_in(&inner, "x").is_err());
        chmod(parent.path(), 0o1777);
        assert_eq!(is_exchangeable(&inner).unwrap(), None);
        if rustix::process::geteuid().is_root() {
            chown(parent.path(), Some(65534), None).unwrap();
            assert!(is_exchangeable(&inner).unwrap().unwrap().contains("user 65534"));
        }
    }

    #[test]
    fn only_directories_are_opened_as_such_and_of_ones_own_no_link() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        symlink(at("directory"), at("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RWXU).unwrap();
        assert!(open_dir(&at("directory")).is_ok() && open_dir(&at("link")).is_ok());
        assert_eq!(open_dir(&at("fifo")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert!(open_own_dir(&at("directory")).is_ok());
        for other in ["link", "fifo"] {
            assert_eq!(open_own_dir(&at(other)).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        }
        if rustix::process::geteuid().is_root() {
            chown(at("directory"), Some(65534), None).unwrap();
            let error = open_own_dir(&at("directory")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    fn a_directory_of_ones_own_is_tightened_and_any_other_refused() {
        let parent = tempfile::tempdir().unwrap();
        let state = parent.path().join("a/state");
        make_private(&state).unwrap();
        assert_eq!(mode(&state), 0o700);
        chmod(&state, 0o755);
        make_private(&state).unwrap();
        assert_eq!(mode(&state), 0o700);
        let link = parent.path().join("link");
        symlink(&state, &link).unwrap();
        assert!(make_private(&link).is_err());
        if rustix::process::geteuid().is_root() {
            chown(&state, Some(65534), None).unwrap();
            let error = make_private(&state).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
