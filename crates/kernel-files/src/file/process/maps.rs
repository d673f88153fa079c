//! `/proc/PID/maps`: the lengths of mappings, which `numa_maps` does not print.

use lotsfree_units::{Bytes, MIB};
use serde::Serialize;

use crate::file::scan::{cut, hexadecimal, lines, words};
use crate::file::unlinked::FileId;

/// A mapping that may be written and is shared, anonymous or in huge pages of a pool: what a program needs of
/// a pool, however little it has touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// Start address.
    pub start: u64,
    /// Its length.
    pub length: Bytes,
    /// Whether it is shared with other processes.
    pub shared: bool,
    /// Identity of the file, by which mappings of several processes are known to be of one.
    pub id: FileId,
    /// What is mapped: `/dev/zero (deleted)` in base pages, `/anon_hugepage (deleted)` in huge ones, a file;
    /// empty for private anonymous memory.
    pub file: Box<str>,
}

impl Mapping {
    /// Whether it is anonymous memory in huge pages of a pool (`fs/hugetlbfs/inode.c:hugetlb_file_setup`).
    pub fn is_huge(&self) -> bool {
        self.file.starts_with("/anon_hugepage")
    }
}

/// At most this many of each kind are kept, the longest.
const MOST: usize = 32;
/// A bound on a name that is kept, in bytes.
const MOST_NAME: usize = 255;
/// Private mappings below this length are the business of `malloc`.
const PRIVATE: Bytes = Bytes(MIB);

/// Reads the mappings of `maps` (`fs/proc/task_mmu.c:show_map_vma`) that may be written and are shared, or
/// private without a file, longest first; lines of another form are passed over. Private mappings that follow
/// each other without a gap count as the first: Java maps parts of a file into its heap.
pub fn mappings(text: &[u8]) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for mapping in lines(text).filter_map(|(_, line)| mapping(line)) {
        let continued = |last: &&mut Mapping| {
            let private = !(last.shared || mapping.shared || last.is_huge() || mapping.is_huge());
            private && last.file.is_empty() && last.start.checked_add(last.length.0) == Some(mapping.start)
        };
        match found.last_mut().filter(continued) {
            Some(last) => last.length = last.length + mapping.length,
            None => found.push(mapping),
        }
    }
    found.retain(|mapping| {
        mapping.shared || mapping.is_huge() || (mapping.file.is_empty() && mapping.length >= PRIVATE)
    });
    found.sort_by_key(|mapping| (std::cmp::Reverse(mapping.length), mapping.start));
    let mut left = [MOST; 2];
    found.retain(|mapping| {
        let left = &mut left[usize::from(mapping.shared)];
        let keep = *left > 0;
        *left -= usize::from(keep);
        keep
    });
    found
}

/// `7f75b962f000-7f763e5a7000 rw-s 00000000 00:01 1070  /dev/zero (deleted)`.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = cut(line.trim_ascii(), b' ')?;
    let (start, end) = cut(range, b'-')?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let shared = match rest {
        [_, b'w', _, b's', b' ', ..] => true,
        [_, b'w', _, b'p', b' ', ..] => false,
        _ => return None,
    };
    let length = Bytes(end.checked_sub(start).filter(|length| *length > 0)?);
    // Permissions, offset, device and inode stand before the name.
    let name = rest.splitn(5, |&b| b == b' ').nth(4).unwrap_or_default().trim_ascii();
    let mut numbers = words(rest).skip(2);
    let id = numbers.next().zip(numbers.next()).and_then(|(device, inode)| FileId::parse(device, inode));
    let file = String::from_utf8_lossy(&name[..name.len().min(MOST_NAME)]);
    Some(Mapping { start, length, shared, id: id.unwrap_or_default(), file: file.into() })
}

/// The number of files in which an Oracle instance has its memory with automatic memory management, one for
/// each granule (`/dev/shm/ora_SID_ID_N`). The kernel prints a file once for each of its mappings, in the
/// order of their addresses.
pub fn granules(text: &[u8]) -> u64 {
    let mut names: Vec<&[u8]> = lines(text)
        .filter_map(|(_, line)| {
            let name = line.trim_ascii().rsplit(|&b| b == b' ').next()?;
            name.starts_with(b"/dev/shm/ora_").then_some(name)
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_may_be_written_and_have_no_file_of_their_own_count() {
        let text = b"55d000000000-55d000100000 r-xp 00000000 fe:01 12 /usr/lib/postgresql/15/bin/postgres\n\
            7f75b962f000-7f763e5a7000 rw-s 00000000 00:01 1070 /dev/zero (deleted)\n\
            7f7640a1f000-7f7640a2d000 rw-s 00000000 00:1b 121242 /dev/shm/PostgreSQL.3128629608\n\
            7f7650000000-7f7650001000 r--s 00000000 fe:01 13 /etc/localtime\n\
            80000000-ffe00000 rw-p 00000000 00:00 0 \n\
            ffe00000-ffe75000 rw-p 00c77000 fe:00 315149     /usr/lib/jvm/lib/server/classes.jsa\n\
            ffe75000-100000000 rw-p 00000000 00:00 0 \n\
            7f7660000000-7f7660200000 rw-p 00000000 00:11 3122   /anon_hugepage (deleted)\n\
            55d000200000-55d000900000 rw-p 00000000 00:00 0      [heap]\n\
            7f7670000000-7f7670010000 rw-p 00000000 00:00 0 \n\
            nonsense\n7f76-7f75 rw-s 0 0 0\n";
        let mappings = mappings(text);
        let found: Vec<_> = mappings.iter().map(|m| (m.start, m.length.0, m.shared, &*m.file)).collect();
        assert_eq!(
            found,
            [
                (0x7f75_b962_f000, 0x84f7_8000, true, "/dev/zero (deleted)"),
                (0x8000_0000, 0x8000_0000, false, ""),
                (0x7f76_6000_0000, 0x20_0000, false, "/anon_hugepage (deleted)"),
                (0x7f76_40a1_f000, 0xe000, true, "/dev/shm/PostgreSQL.3128629608"),
            ]
        );
        assert_eq!(mappings[3].id, FileId { device: (0, 0x1b), inode: 121_242 });
    }

    #[test]
    fn a_granule_that_is_mapped_twice_is_one_file() {
        let text = b"60000000-60001000 r--s 00000000 00:12 99 /dev/shm/ora_PROD_163840_0\n\
            60001000-61000000 rw-s 00001000 00:12 99 /dev/shm/ora_PROD_163840_0\n\
            61000000-62000000 rw-s 00000000 00:12 100 /dev/shm/ora_PROD_163840_1\n\
            70000000-70001000 rw-s 00000000 00:12 101 /dev/shm/JOXSHM_EXT_0_PROD_163840\n";
        assert_eq!(granules(text), 2);
        assert_eq!(granules(b""), 0);
    }
}
