//! Files in memory that only processes hold: memfds, and files of tmpfs and hugetlbfs that were deleted.
//!
//! The kernel has no list of them. The table is ours, written on the running machine from the links in
//! `/proc/PID/fd` and `/proc/PID/map_files` and what `stat` says of their targets, so that an archive can
//! hold it. A line is a process, a place below `/proc/PID`, the type of the file system, device, inode, size
//! and allocated bytes, and the name:
//!
//! ```text
//! 1234 fd/5 tmpfs 00:01 1070 1610612736 1610612736 /memfd:big (deleted)
//! 1300 map_files/7f0000000000-7f0060000000 tmpfs 00:1b 12 1610612736 1610612736 /dev/shm/x (deleted)
//! denied 37
//! late 2
//! ```
//!
//! The last two lines say how many processes were not looked at, for lack of permission, and how many not at
//! all or not to the end, for lack of time.

use std::fmt::{self, Write};

use lotsfree_units::Bytes;
use serde::Serialize;

use super::scan::{bounded, cut, decimal, decimal32, hexadecimal, trimmed_lines};
use crate::{File, Log, ProblemKind};

/// Where an archive keeps the table.
pub const PATH: &str = "lotsfree/unlinked";

/// At most this many lines are kept.
const MOST: usize = 4096;
/// A bound on a name, in bytes.
const MOST_NAME: usize = 255;

/// Files in memory that only processes hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unlinked {
    /// One for each open file and mapping; several may be of one file.
    pub holds: Vec<Hold>,
    /// Processes whose files the reader may not see.
    pub denied: u64,
    /// Processes that were not looked at, or not to the end, for lack of time.
    pub late: u64,
}

/// A file that a process holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hold {
    /// The process.
    pub pid: u32,
    /// How it holds the file.
    pub place: Place,
    /// Whether the file is in huge pages of a pool (hugetlbfs); else in tmpfs.
    pub hugetlb: bool,
    /// Identity of the file.
    pub id: FileId,
    /// Its length.
    pub size: Bytes,
    /// What it has in memory and in swap (`st_blocks`).
    pub allocated: Bytes,
    /// Its last name, as the link has it: `/memfd:big (deleted)`.
    pub name: Box<str>,
}

/// Device and inode of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FileId {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Number of the inode.
    pub inode: u64,
}

/// A link below `/proc/PID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Place {
    /// An open file, `fd/5`.
    Open(u32),
    /// A mapping, `map_files/START-END`.
    Mapped(u64, u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Open(number) => write!(f, "fd/{number}"),
            Place::Mapped(start, end) => write!(f, "map_files/{start:x}-{end:x}"),
        }
    }
}

impl Place {
    fn parse(word: &[u8]) -> Option<Place> {
        if let Some(number) = word.strip_prefix(b"fd/") {
            return decimal32(number).map(Place::Open);
        }
        let (start, end) = cut(word.strip_prefix(b"map_files/")?, b'-')?;
        Some(Place::Mapped(hexadecimal(start)?, hexadecimal(end)?))
    }
}

impl FileId {
    /// `00:1b`, `1070`, as in `/proc/PID/maps`.
    pub(crate) fn parse(device: &[u8], inode: &[u8]) -> Option<FileId> {
        let (major, minor) = cut(device, b':')?;
        let number = |digits| u32::try_from(hexadecimal(digits)?).ok();
        Some(FileId { device: (number(major)?, number(minor)?), inode: decimal(inode)? })
    }
}

/// A file may be called anything, also something with line ends.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn hold(line: &[u8]) -> Option<Hold> {
    let mut words = line.splitn(8, |&b| b == b' ');
    let (pid, place, kind) = (words.next()?, words.next()?, words.next()?);
    let (device, inode, size, allocated) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let name = printable(&bounded(words.next()?.trim_ascii(), MOST_NAME));
    Some(Hold {
        pid: decimal32(pid)?,
        place: Place::parse(place)?,
        hugetlb: match kind {
            b"tmpfs" => false,
            b"hugetlbfs" => true,
            _ => return None,
        },
        id: FileId::parse(device, inode)?,
        size: Bytes(decimal(size)?),
        allocated: Bytes(decimal(allocated)?),
        // A name that was cut off may end in a space.
        name: Some(name.trim_ascii()).filter(|name| !name.is_empty())?.into(),
    })
}

impl File for Unlinked {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut table = Unlinked::default();
        for (number, line) in trimmed_lines(text) {
            let count = |rest: &[u8]| decimal(rest.trim_ascii());
            let read = if let Some(rest) = line.strip_prefix(b"denied ") {
                count(rest).map(|n| table.denied = n)
            } else if let Some(rest) = line.strip_prefix(b"late ") {
                count(rest).map(|n| table.late = n)
            } else if table.holds.len() == MOST {
                log.whole(ProblemKind::Budget, format!("more than {MOST} files"));
                break;
            } else {
                hold(line).map(|hold| table.holds.push(hold))
            };
            if read.is_none() {
                log.malformed(number, "not a process, a place, a type, a file, its sizes and its name");
            }
        }
        table
    }

    fn print(&self, out: &mut String) {
        // The counts come first: a parser stops at too many files. Writing to a String cannot fail.
        for (word, number) in [("denied", self.denied), ("late", self.late)] {
            if number > 0 {
                let _ = writeln!(out, "{word} {number}");
            }
        }
        for hold in &self.holds {
            let Hold { pid, place, id: FileId { device: (major, minor), inode }, .. } = hold;
            let kind = if hold.hugetlb { "hugetlbfs" } else { "tmpfs" };
            let (size, allocated) = (hold.size.0, hold.allocated.0);
            let name = printable(&hold.name);
            let _ = writeln!(
                out,
                "{pid} {place} {kind} {major:02x}:{minor:02x} {inode} {size} {allocated} {name}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, round_trip, settles};

    const TEXT: &str = "denied 37\nlate 2\n\
        1234 fd/5 tmpfs 00:01 1070 1610612736 1073741824 /memfd:big (deleted)\n\
        1300 map_files/7f0000000000-7f0060000000 hugetlbfs 00:1b 12 4 0 /dev/hugepages/a b (deleted)\n";

    #[test]
    fn a_line_is_a_process_a_place_and_a_file() {
        let table: Unlinked = clean(TEXT);
        assert_eq!((table.denied, table.late, table.holds.len()), (37, 2, 2));
        let [memfd, huge] = &table.holds[..] else { panic!("{table:?}") };
        assert_eq!((memfd.pid, memfd.place, memfd.hugetlb), (1234, Place::Open(5), false));
        assert_eq!((memfd.size, memfd.allocated), (Bytes::mib(1536), Bytes::gib(1)));
        assert_eq!(
            (memfd.id, &*memfd.name),
            (FileId { device: (0, 1), inode: 1070 }, "/memfd:big (deleted)")
        );
        assert_eq!(huge.place, Place::Mapped(0x7f00_0000_0000, 0x7f00_6000_0000));
        assert_eq!((huge.hugetlb, &*huge.name), (true, "/dev/hugepages/a b (deleted)"));
        round_trip(&table);
    }

    #[test]
    fn lines_of_another_form_are_reported() {
        let bad =
            "denied many\n1 fd/x tmpfs 00:01 1 1 1 a\n1 fd/1 ext4 00:01 1 1 1 a\n1 fd/1 tmpfs 00:01 1 1 1\n";
        assert_eq!(bad_lines::<Unlinked>(bad.as_bytes()), [1, 2, 3, 4]);
        cut_anywhere::<Unlinked>(TEXT);
    }

    #[test]
    fn a_name_with_line_ends_stays_one_line() {
        let mut table: Unlinked = clean(TEXT);
        table.holds[0].name = "/tmp/a\nb (deleted)".into();
        let mut printed = String::new();
        table.print(&mut printed);
        assert_eq!(clean::<Unlinked>(&printed).holds[0].name, "/tmp/a?b (deleted)".into());
    }

    proptest! {
        #[test]
        fn survives_hostile_input(text in hostile(TEXT)) {
            settles::<Unlinked>(&text);
        }
    }
}
