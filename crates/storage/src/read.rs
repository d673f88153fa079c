//! Reading what somebody else may have put there.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file. A FIFO without a writer does not hang, and a terminal does not become the controlling
/// one. A link is followed.
///
/// # Errors
/// The system's, and `InvalidInput` that says what the path leads to if that is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let kind = file.metadata()?.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(file),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_block_device() || kind.is_char_device() => "a device",
        () => "something else",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{what}, not a regular file")))
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// As [`open_regular`]; `FileTooLarge` for a longer file, of which nothing is read if it says so itself.
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let length = file.metadata()?.len();
    let too_large = |length: String| {
        let why = format!("{length} bytes; at most {limit} are read");
        io::Error::new(io::ErrorKind::FileTooLarge, why)
    };
    if length > limit {
        return Err(too_large(length.to_string()));
    }
    let mut contents = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // One byte more, as a file may grow while it is read, and files of /proc say that they are empty.
    file.take(limit.saturating_add(1)).read_to_end(&mut contents)?;
    if contents.len() as u64 > limit {
        return Err(too_large(format!("more than {limit}")));
    }
    Ok(contents)
}

/// Reads a regular file of UTF-8 of at most `limit` bytes.
///
/// # Errors
/// As [`read_at_most`]; `InvalidData` if it is not UTF-8.
pub fn read_text_at_most(path: &Path, limit: u64) -> io::Result<String> {
    let contents = read_at_most(path, limit)?;
    String::from_utf8(contents).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_hangs() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        for (path, what) in [
            (fifo.as_path(), "a FIFO"),
            (directory.path(), "a directory"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let error = open_regular(path).unwrap_err();
            assert_eq!(error.to_string(), format!("{what}, not a regular file"));
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let error = read_at_most(&path, 1 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        file.set_len(1 << 20).unwrap();
        assert_eq!(read_at_most(&path, 1 << 20).unwrap().len(), 1 << 20);
        // Says that it has no bytes, and has some.
        assert!(read_at_most(Path::new("/proc/self/status"), 16).is_err());
        assert!(read_text_at_most(Path::new("/proc/self/status"), 1 << 16).unwrap().starts_with("Name:"));
    }
}
