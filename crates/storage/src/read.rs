//! Reading files that somebody else may have put there.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file. A FIFO without a writer does not hang, and a terminal does not become the
/// controlling one. A link is followed.
///
/// # Errors
/// The system's; `InvalidInput`, which says what the path leads to, if that is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open(path, OFlags::empty())
}

/// Opens a regular file, but not through a link. It is for files in a directory from somebody else, where a
/// link may lead to a file that its maker cannot read but this process can.
///
/// # Errors
/// As [`open_regular`].
pub fn open_regular_itself(path: &Path) -> io::Result<File> {
    match open(path, OFlags::NOFOLLOW) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a link, not a regular file"))
        }
        opened => opened,
    }
}

fn open(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = match opened {
        // The error that the system gives for a socket.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket, not a regular file"));
        }
        opened => opened?,
    };
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
/// As [`open_regular`]; `FileTooLarge` for a longer file, of which nothing is read if its metadata show the
/// length.
pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_open_at_most(open_regular(path)?, limit)
}

/// Reads the rest of an open file of at most `limit` bytes.
///
/// # Errors
/// As [`read_at_most`].
pub fn read_open_at_most(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let too_large = |length: String| {
        let why = format!("{length} bytes; at most {limit} are read");
        io::Error::new(io::ErrorKind::FileTooLarge, why)
    };
    if length > limit {
        return Err(too_large(length.to_string()));
    }
    let mut contents = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // Read one byte more than the limit: a file may grow while it is read, and files of /proc have length 0.
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
        let (fifo, socket) = (directory.path().join("fifo"), directory.path().join("socket"));
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        for (path, what) in [
            (fifo.as_path(), "a FIFO"),
            (socket.as_path(), "a socket"),
            (directory.path(), "a directory"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let error = open_regular(path).unwrap_err();
            assert_eq!(error.to_string(), format!("{what}, not a regular file"));
            let error = open_regular_itself(path).unwrap_err();
            assert_eq!(error.to_string(), format!("{what}, not a regular file"));
        }
    }

    #[test]
    fn a_link_is_followed_only_where_it_may_be() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        assert!(open_regular(&at("link")).is_ok() && open_regular_itself(&at("file")).is_ok());
        let error = open_regular_itself(&at("link")).unwrap_err();
        assert_eq!(error.to_string(), "a link, not a regular file");
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
        // Its length is 0, but it has contents.
        assert!(read_at_most(Path::new("/proc/self/status"), 16).is_err());
        assert!(read_text_at_most(Path::new("/proc/self/status"), 1 << 16).unwrap().starts_with("Name:"));
    }
}
