//! The header of a swap area, and swap files.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use lotsfree_storage::{Access, OutFile, create_new};
use rustix::fs::{FallocateFlags, fallocate};

const PAGE: u64 = 4096;

/// The first page of a swap area of `bytes` bytes (`include/linux/swap.h:union swap_header`): version 1, the
/// number of the last page, no bad pages, and the signature at the page's end.
pub fn header(bytes: u64) -> io::Result<[u8; PAGE as usize]> {
    let last = (bytes / PAGE).checked_sub(1).filter(|last| *last >= 9);
    let last = last.and_then(|last| u32::try_from(last).ok());
    let last = last.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "a swap area has 10 to 4,294,967,296 pages of 4 KiB")
    })?;
    let mut page = [0; PAGE as usize];
    page[1024..1028].copy_from_slice(&1_u32.to_le_bytes());
    page[1028..1032].copy_from_slice(&last.to_le_bytes());
    page[4086..].copy_from_slice(b"SWAPSPACE2");
    Ok(page)
}

/// Makes a new file that can be swapped to: without holes, and for its owner only. It is returned open, so
/// that the caller can swap to this file even if its name leads elsewhere by then.
///
/// # Errors
/// The system's, above all that the disk is full. The file may exist after an error.
pub fn make_file(path: &Path, bytes: u64) -> io::Result<File> {
    let header = header(bytes)?;
    let mut made = create_new(path, Access::Private)?;
    match fallocate(made.file(), FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        Err(rustix::io::Errno::OPNOTSUPP) => fill(&mut made, bytes)?,
        Err(error) => return Err(error.into()),
    }
    made.file().seek(SeekFrom::Start(0))?;
    made.write_all(&header)?;
    made.sync()?;
    Ok(made.into_file())
}

fn fill(file: &mut OutFile, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let now = left.min(zeros.len() as u64);
        file.write_all(zeros.get(..now as usize).unwrap_or_default())?;
        left -= now;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_how_long_the_area_is() {
        let header = header(1 << 20).unwrap();
        assert_eq!(&header[1024..1036], [1, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&header[4086..], b"SWAPSPACE2");
        let used = |at: usize| (1024..1036).contains(&at) || at >= 4086;
        assert!((0..4096).filter(|at| !used(*at)).all(|at| header[at] == 0));
        // An incomplete page at the end is not used.
        assert_eq!(super::header((1 << 20) + 2048).unwrap()[1028], 255);
        assert!(super::header(39 << 10).is_err() && super::header(40 << 10).is_ok());
        assert!(super::header(1 << 45).is_err() && super::header(u64::MAX).is_err());
    }

    #[test]
    fn a_file_has_no_holes() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("swap");
        make_file(&path, 1 << 20).unwrap();
        let data = std::fs::metadata(&path).unwrap();
        assert_eq!((data.len(), data.mode() & 0o777), (1 << 20, 0o600));
        assert!(data.blocks() * 512 >= 1 << 20);
        assert!(make_file(&path, 1 << 20).is_err());
    }
}
