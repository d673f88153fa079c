//! CPU time and page faults of a thread, and of children.

use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time and page faults (`getrusage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode. The kernel splits an exact sum in the proportion of ticks.
    pub user: Duration,
    /// CPU time in the kernel.
    pub system: Duration,
    /// Page faults without a device.
    pub minor_faults: u64,
    /// Page faults that waited for a device.
    pub major_faults: u64,
    /// Bytes read from disks.
    pub read: u64,
    /// The most memory that a process had at once, in bytes; of several the largest.
    pub largest: u64,
}

impl Usage {
    /// Reads the usage of the calling thread since it began (`RUSAGE_THREAD`).
    ///
    /// # Errors
    /// None on Linux since 2.6.26.
    pub fn of_thread() -> io::Result<Self> {
        Self::of(libc::RUSAGE_THREAD)
    }

    /// Reads the usage of this process, all threads together (`RUSAGE_SELF`).
    ///
    /// # Errors
    /// None.
    pub fn of_process() -> io::Result<Self> {
        Self::of(libc::RUSAGE_SELF)
    }

    /// Reads the usage of all children of this process that have ended, and of theirs that had ended
    /// (`RUSAGE_CHILDREN`).
    ///
    /// # Errors
    /// None.
    pub fn of_ended_children() -> io::Result<Self> {
        Self::of(libc::RUSAGE_CHILDREN)
    }

    fn of(whom: libc::c_int) -> io::Result<Self> {
        // SAFETY: all-zero is a valid `rusage`, and the kernel fills it.
        let (result, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::getrusage(whom, &raw mut usage), usage)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let time = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec.cast_unsigned())
                + Duration::from_micros(time.tv_usec.cast_unsigned())
        };
        Ok(Usage {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            minor_faults: usage.ru_minflt.cast_unsigned(),
            major_faults: usage.ru_majflt.cast_unsigned(),
            // In blocks of 512 bytes, and in KiB.
            read: usage.ru_inblock.cast_unsigned().saturating_mul(512),
            largest: usage.ru_maxrss.cast_unsigned().saturating_mul(1024),
        })
    }
}

/// CPU time of the calling thread, to the nanosecond.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// `CLOCK_MONOTONIC`, which samples of tracepoints have as well, in nanoseconds.
pub fn monotonic() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_counted() {
        let region = crate::Region::anonymous(64 * 4096).unwrap();
        region.advise(crate::Hint::NoHugePage).unwrap();
        let before = Usage::of_thread().unwrap();
        (0..64).for_each(|page| assert!(region.touch(page, true)));
        let after = Usage::of_thread().unwrap();
        assert!(after.minor_faults - before.minor_faults >= 64);
        assert!(thread_cpu_time() > Duration::ZERO);
    }
}
