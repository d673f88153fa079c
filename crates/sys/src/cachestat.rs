//! What the page cache has of a file, and what it had.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// The call's number, the same on every architecture but Alpha; `libc` has it for few.
const SYS_CACHESTAT: libc::c_long = 451;

/// Pages of a range of a file (`struct cachestat`, include/uapi/linux/mman.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cachestat {
    /// Pages in the page cache.
    pub cache: u64,
    /// Those of them that are dirty.
    pub dirty: u64,
    /// Those of them that are being written back.
    pub writeback: u64,
    /// Pages that reclaim evicted, as far as the kernel remembers.
    pub evicted: u64,
    /// Those of them whose return would show that memory is short.
    pub recently_evicted: u64,
}

/// A range of a file in bytes (`struct cachestat_range`).
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

impl Cachestat {
    /// Counts the pages of `length` bytes of a file from `offset` on (`cachestat(2)`, Linux 6.5). A length of
    /// 0 means all that follows.
    ///
    /// # Errors
    /// `ENOSYS` before 6.5, `EOPNOTSUPP` for pages of hugetlbfs, `EPERM` if the caller neither owns the file
    /// nor may write it (since 6.15).
    pub fn of(file: &File, offset: u64, length: u64) -> io::Result<Self> {
        let range = Range { offset, length };
        let mut pages = Cachestat::default();
        // SAFETY: the kernel reads `range` and writes `pages`, which have its layouts and outlive the call.
        let result = unsafe {
            libc::syscall(
                SYS_CACHESTAT,
                file.as_raw_fd(),
                &raw const range,
                &raw mut pages,
                0 as libc::c_uint,
            )
        };
        if result == 0 { Ok(pages) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn pages_just_written_are_in_the_cache() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 5 * 4096]).unwrap();
        match Cachestat::of(&file, 4096, 2 * 4096) {
            Ok(pages) => assert_eq!((pages.cache, pages.evicted), (2, 0)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
    }
}
