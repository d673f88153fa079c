//! [`SharedMemory`]: a segment of System V shared memory.

use std::io;
use std::ptr;

/// A segment of System V shared memory, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemory(
    /// The id, which `ipcs -m` calls `shmid`.
    pub i32,
);

impl SharedMemory {
    /// Makes a segment that nobody else can find by a key (`shmget`), of 4 KiB pages or of the default huge
    /// pages (`SHM_HUGETLB`).
    ///
    /// # Errors
    /// The kernel's: `ENOMEM` where the pool has too few huge pages, `EPERM` without the right to them,
    /// `EINVAL` beyond `kernel.shmmax`.
    pub fn create(bytes: usize, huge: bool) -> io::Result<Self> {
        let flags = libc::IPC_CREAT | 0o600 | if huge { libc::SHM_HUGETLB } else { 0 };
        // SAFETY: takes numbers only.
        match unsafe { libc::shmget(libc::IPC_PRIVATE, bytes, flags) } {
            -1 => Err(io::Error::last_os_error()),
            id => Ok(SharedMemory(id)),
        }
    }

    /// Marks the segment for removal. It is removed with the last process that has it attached, and can be
    /// attached until then.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(self) -> io::Result<()> {
        // SAFETY: `IPC_RMID` reads and writes no buffer.
        match unsafe { libc::shmctl(self.0, libc::IPC_RMID, ptr::null_mut()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn a_removed_segment_can_be_attached_while_somebody_holds_it() {
        let segment = SharedMemory::create(8192, false).unwrap();
        let first = Region::segment(segment, 8192).unwrap();
        segment.remove().unwrap();
        assert!(first.touch(1, true));
        let second = Region::segment(segment, 8192).unwrap();
        drop(first);
        assert!(second.touch(0, false));
        drop(second);
        assert!(Region::segment(segment, 8192).is_err());
    }
}
