//! The kernel's release.

use std::fmt;

use serde::Serialize;

use crate::counters::{Counter, Meminfo, Values, meminfo as m};

/// Lines of `/proc/meminfo` that every kernel prints from some release on, oldest first, each with the newest
/// release that does not.
const LINES: [(Counter<Meminfo>, &str); 4] =
    [(m::Shmem, "2.6.31"), (m::MemAvailable, "3.13"), (m::KReclaimable, "4.19"), (m::SecPageTables, "6.0")];

/// The newest release whose `/proc/meminfo` can look like this, and the line that it lacks; `None` if it
/// lacks none, or if this is not the whole file. Distributions print some lines in older kernels, too.
pub fn newest_without_a_line(meminfo: &Values<Meminfo>) -> Option<(&'static str, &'static str)> {
    // The first line, one in the middle and one near the end.
    let whole = [m::MemTotal, m::Committed_AS, m::VmallocTotal];
    if whole.iter().any(|line| meminfo.get(*line).is_none()) {
        return None;
    }
    let lacking = LINES.iter().find(|(line, _)| meminfo.get(*line).is_none());
    lacking.map(|(line, release)| (*release, line.name()))
}

/// A release of the mainline kernel, such as 2.6.32 or 6.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The kernel's spelling.
    pub name: &'static str,
    /// Its numbers, zero where the name has none.
    pub numbers: (u32, u32, u32),
}

impl Release {
    /// The release of a name that consists of up to three numbers with points between them.
    pub const fn named(name: &'static str) -> Self {
        let mut numbers = [0; 3];
        let (mut place, mut at) = (0, 0);
        while at < name.len() {
            match name.as_bytes()[at] {
                b'.' => place += 1,
                digit => numbers[place] = numbers[place] * 10 + (digit - b'0') as u32,
            }
            at += 1;
        }
        Release { name, numbers: (numbers[0], numbers[1], numbers[2]) }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// A kernel release such as `6.12.43+deb13-amd64` or `2.6.32-642.6.2.el6.x86_64`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelVersion {
    /// The three leading numbers, zero where unknown.
    pub numbers: (u32, u32, u32),
    /// The whole release.
    pub release: String,
}

impl KernelVersion {
    /// Parses a release; `None` if it does not begin with `number.number`.
    pub fn parse(release: &str) -> Option<Self> {
        let mut parts = release.trim().splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let leading = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse::<u32>().ok()
        };
        let minor = leading(parts.next()?)?;
        let patch = parts.next().and_then(leading).unwrap_or(0);
        Some(KernelVersion { numbers: (major, minor, patch), release: release.trim().to_owned() })
    }

    /// Whether the release is known at all.
    pub fn is_known(&self) -> bool {
        self.numbers.0 > 0
    }

    /// Whether this is `major.minor` or later; `false` if the release is unknown. Distribution kernels carry
    /// backports, so prefer asking for a counter or a file over asking for a version.
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.numbers.0, self.numbers.1) >= (major, minor)
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.release.is_empty() { "unknown" } else { &self.release })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_meminfo_tell_how_new_a_kernel_can_be() {
        let mut meminfo = Values::default();
        meminfo.set(m::MemTotal, 1 << 20);
        assert_eq!(newest_without_a_line(&meminfo), None, "a part of the file");
        meminfo.set(m::Committed_AS, 1);
        meminfo.set(m::VmallocTotal, 1);
        for (line, newest) in LINES {
            assert_eq!(newest_without_a_line(&meminfo), Some((newest, line.name())));
            meminfo.set(line, 1);
        }
        assert_eq!(newest_without_a_line(&meminfo), None);
    }
}
