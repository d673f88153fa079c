//! `/proc/PID/maps`: the lengths of shared mappings, which `numa_maps` does not print.

use lotsfree_units::Bytes;
use serde::Serialize;

use crate::file::scan::{cut, hexadecimal, lines};

/// A mapping that is shared and may be written: what a program needs of a pool, however little it has
/// touched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SharedMapping {
    /// Start address.
    pub start: u64,
    /// Its length.
    pub length: Bytes,
    /// What is mapped: `/dev/zero (deleted)` in base pages, `/anon_hugepage (deleted)` in huge ones, a file.
    pub file: Box<str>,
}

/// At most this many are kept, the longest.
const MOST: usize = 32;
/// A bound on a name that is kept, in bytes.
const MOST_NAME: usize = 255;

/// Reads the shared, writable mappings of `maps` (`fs/proc/task_mmu.c:show_map_vma`), longest first; lines of
/// another form are passed over.
pub fn shared(text: &[u8]) -> Vec<SharedMapping> {
    let mut found: Vec<SharedMapping> = lines(text).filter_map(|(_, line)| mapping(line)).collect();
    found.sort_by_key(|mapping| (std::cmp::Reverse(mapping.length), mapping.start));
    found.truncate(MOST);
    found
}

/// `7f75b962f000-7f763e5a7000 rw-s 00000000 00:01 1070  /dev/zero (deleted)`.
fn mapping(line: &[u8]) -> Option<SharedMapping> {
    let (range, rest) = cut(line.trim_ascii(), b' ')?;
    let (start, end) = cut(range, b'-')?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    let shared = matches!(rest, [_, b'w', _, b's', b' ', ..]);
    // Permissions, offset, device and inode stand before the name.
    let file =
        rest.splitn(2, |&b| b == b'/').nth(1).map_or(&b""[..], |name| &name[..name.len().min(MOST_NAME)]);
    let file = if file.is_empty() { String::new() } else { format!("/{}", String::from_utf8_lossy(file)) };
    (shared && end > start).then(|| SharedMapping { start, length: Bytes(end - start), file: file.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_mappings_that_may_be_written_count() {
        let text = b"55d000000000-55d000100000 r-xp 00000000 fe:01 12 /usr/lib/postgresql/15/bin/postgres\n\
            7f75b962f000-7f763e5a7000 rw-s 00000000 00:01 1070 /dev/zero (deleted)\n\
            7f7640a1f000-7f7640a2d000 rw-s 00000000 00:1b 121242 /dev/shm/PostgreSQL.3128629608\n\
            7f7650000000-7f7650001000 r--s 00000000 fe:01 13 /etc/localtime\n\
            nonsense\n7f76-7f75 rw-s 0 0 0\n";
        let shared = shared(text);
        let found: Vec<_> = shared.iter().map(|m| (m.start, m.length.0, &*m.file)).collect();
        assert_eq!(
            found,
            [
                (0x7f75_b962_f000, 0x84f7_8000, "/dev/zero (deleted)"),
                (0x7f76_40a1_f000, 0xe000, "/dev/shm/PostgreSQL.3128629608")
            ]
        );
    }
}
