//! Reading kernels and modules, with checks of their owners and lengths.
//!
//! The kernel that boots decides what a run measures, and it runs inside a program of this user. If that is
//! root, a kernel is taken only from a place where nobody else could have put or changed it; other users
//! decide for themselves. Every file is read as if somebody else had made it: only regular files, and none
//! without a bound.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use lotsfree_storage::{is_exchangeable, open_regular, read_at_most};
use lotsfree_units::{Bytes, MIB};

use super::Error;

/// Bound for a compressed kernel. Debian's has 8 MiB, one with everything built in some 60.
pub(crate) const IMAGE: u64 = 256 * MIB;
/// Bound for a kernel that is not compressed. Debian's has 50 to 80 MiB.
pub(crate) const VMLINUX: u64 = 1024 * MIB;
/// Bound for a module that is not compressed. With debugging information ext4 has some 20 MiB, btrfs 40.
pub(crate) const MODULE: u64 = 256 * MIB;
/// Bound for a list of modules.
pub(crate) const LIST: u64 = 16 * MIB;
/// Bound for a program, with debugging information.
pub(crate) const PROGRAM: u64 = 1024 * MIB;

/// Checks whether root may use this file as a kernel or a part of one. For other users there is no check.
/// Links are followed.
///
/// # Errors
/// If somebody else could exchange it; the error says who, and what to do.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let canonical = fs::canonicalize(path).map_err(Error::io(path))?;
    match is_exchangeable(&canonical).map_err(Error::io(path))? {
        None => Ok(()),
        Some(why) => Err(Error::unusable(
            path,
            format!(
                "root boots no kernel that somebody else could exchange ({why}); copy it to a directory that \
                 only root may write to, or run this as that user: a virtual machine needs no root"
            ),
        )),
    }
}

/// Opens a file of a kernel that is at most `limit` bytes long.
///
/// # Errors
/// As [`check`]; also if it is not a regular file, or is longer.
pub(crate) fn open(path: &Path, limit: u64) -> Result<File, Error> {
    check(path)?;
    let file = open_regular(path).map_err(Error::io(path))?;
    let length = file.metadata().map_err(Error::io(path))?.len();
    if length > limit { Err(too_long(path, limit)) } else { Ok(file) }
}

/// Reads a file of a kernel that is at most `limit` bytes long.
///
/// # Errors
/// As [`open`].
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    check(path)?;
    read_bounded(path, limit)
}

/// Reads a file that is at most `limit` bytes long, whoever owns it.
///
/// # Errors
/// If it is not a regular file, or is longer.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    read_at_most(path, limit).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => too_long(path, limit),
        _ => Error::io(path)(error),
    })
}

/// Reads at most `limit` bytes from a decompressor.
///
/// # Errors
/// The decompressor's; if there is more.
pub(crate) fn decompressed(path: &Path, from: impl io::Read, limit: u64) -> Result<Vec<u8>, Error> {
    let mut contents = Vec::new();
    from.take(limit + 1).read_to_end(&mut contents).map_err(Error::io(path))?;
    if contents.len() as u64 > limit { Err(too_long(path, limit)) } else { Ok(contents) }
}

/// The error for a file that is longer than it may be, when it is decompressed.
pub(crate) fn too_long(path: &Path, limit: u64) -> Error {
    Error::unusable(path, format!("longer than {}, so it is no kernel and no part of one", Bytes(limit)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    #[test]
    fn what_somebody_else_could_exchange_is_not_for_root() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().expect("a directory");
        let (directory, link) = (root.path().join("kernels"), root.path().join("link"));
        let file = directory.join("vmlinuz");
        fs::create_dir(&directory).expect("made");
        fs::write(&file, "x").expect("written");
        symlink(&file, &link).expect("linked");
        assert_eq!(read(&link, 1).expect("root's own"), b"x");
        for (path, mode) in [(&directory, 0o777), (&directory, 0o775), (&file, 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
            let error = read(&link, 1).unwrap_err().to_string();
            assert!(error.contains("root boots no kernel") && error.contains("others may write"), "{error}");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
        }
        chown(&file, Some(1000), None).expect("given");
        let error = open(&link, 1).unwrap_err().to_string();
        assert!(error.contains("vmlinuz belongs to user 1000"), "{error}");
    }

    #[test]
    fn what_is_too_long_or_no_file_is_not_read() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("vmlinuz");
        File::create(&path).expect("made").set_len(100 << 30).expect("sparse");
        for error in [read(&path, IMAGE).unwrap_err(), open(&path, IMAGE).unwrap_err()] {
            assert!(
                error
                    .to_string()
                    .ends_with("vmlinuz: longer than 256 MiB, so it is no kernel and no part of one"),
                "{error}"
            );
        }
        fs::remove_file(&path).expect("removed");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).expect("made");
        let error = read(&path, IMAGE).unwrap_err().to_string();
        assert!(error.ends_with("vmlinuz: a FIFO, not a regular file"), "{error}");
        assert!(decompressed(&path, io::repeat(0), 4096).is_err());
        assert_eq!(decompressed(&path, io::repeat(0).take(4096), 4096).expect("short").len(), 4096);
    }
}
