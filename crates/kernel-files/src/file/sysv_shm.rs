//! `/proc/sysvipc/shm`: System V shared memory segments.

use std::fmt::Write as _;

use lotsfree_units::Bytes;
use serde::Serialize;

use super::scan::{decimal, decimal32, trimmed_lines, words};
use crate::{File, Log, ProblemKind};

/// At most this many segments are kept: twice the largest `kernel.shmmni` without `ipcmni_extend`.
const MOST: usize = 65_536;

/// One segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ShmSegment {
    /// Key, as printed.
    pub key: i64,
    /// Identifier, for `ipcrm -m`.
    pub shmid: u64,
    /// Permission bits and flags, octal in the file: `1000` is `SHM_DEST`, `2000` is `SHM_LOCKED`.
    /// `SHM_HUGETLB` is not visible: `ipc/shm.c:newseg` keeps only the permissions of the flags that it is
    /// given (measured on 6.18).
    pub perms: u32,
    /// Size in bytes.
    pub size: Bytes,
    /// Process id of the creator.
    pub cpid: u32,
    /// Process id of the last process that attached or detached.
    pub lpid: u32,
    /// Number of attached mappings.
    pub nattch: u64,
    /// Owner's user id.
    pub uid: u32,
    /// Time of the last attach, in seconds since the epoch.
    pub atime: u64,
    /// Time of the last detach, in seconds since the epoch.
    pub dtime: u64,
    /// Time of the last change, in seconds since the epoch.
    pub ctime: u64,
    /// Resident bytes (2.6.36 and later).
    pub rss: Option<Bytes>,
    /// Bytes in swap (2.6.36 and later).
    pub swap: Option<Bytes>,
}

/// `ipc/shm.c:sysvipc_shm_proc_show`, 2.6.32 to 6.18. `gid`, `cuid` and `cgid` are not kept, and are written
/// as 0.
impl File for Vec<ShmSegment> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut segments = Vec::new();
        for (line_number, line) in trimmed_lines(text) {
            if words(line).next() == Some(b"key") {
                continue;
            }
            if segments.len() == MOST {
                log.whole(ProblemKind::Budget, format!("more than {MOST} segments"));
                break;
            }
            match segment(line) {
                Some(segment) => segments.push(segment),
                None => log.malformed(line_number, "not the 14 or 16 numbers of a segment"),
            }
        }
        segments
    }

    fn print(&self, out: &mut String) {
        out.push_str(
            "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
             atime      dtime      ctime",
        );
        let sizes = self.is_empty() || self.iter().any(|segment| segment.rss.is_some());
        out.push_str(if sizes { "                   rss                  swap\n" } else { "\n" });
        for s in self {
            let _ = write!(
                out,
                "{:>10} {:>10}  {:>4o} {:>21} {:>5} {:>5}  {:>5} {:>5} {:>5} {:>5} {:>5} {:>10} {:>10} {:>10}",
                s.key,
                s.shmid,
                s.perms,
                s.size.0,
                s.cpid,
                s.lpid,
                s.nattch,
                s.uid,
                0,
                0,
                0,
                s.atime,
                s.dtime,
                s.ctime,
            );
            if let (Some(rss), Some(swap)) = (s.rss, s.swap) {
                let _ = write!(out, " {:>21} {:>21}", rss.0, swap.0);
            }
            out.push('\n');
        }
    }
}

fn segment(line: &[u8]) -> Option<ShmSegment> {
    let mut words = words(line);
    let key = str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let shmid = decimal(words.next()?)?;
    let perms = octal(words.next()?)?;
    let size = Bytes(decimal(words.next()?)?);
    let (cpid, lpid) = (decimal32(words.next()?)?, decimal32(words.next()?)?);
    let nattch = decimal(words.next()?)?;
    let uid = decimal32(words.next()?)?;
    for _ in ["gid", "cuid", "cgid"] {
        decimal32(words.next()?)?;
    }
    let (atime, dtime, ctime) = (decimal(words.next()?)?, decimal(words.next()?)?, decimal(words.next()?)?);
    let (rss, swap) = match (words.next(), words.next(), words.next()) {
        (None, ..) => (None, None),
        (Some(rss), Some(swap), None) => (Some(Bytes(decimal(rss)?)), Some(Bytes(decimal(swap)?))),
        _ => return None,
    };
    Some(ShmSegment { key, shmid, perms, size, cpid, lpid, nattch, uid, atime, dtime, ctime, rss, swap })
}

fn octal(word: &[u8]) -> Option<u32> {
    let digit = |value: u32, b: &u8| match b {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u32::from(b - b'0')),
        _ => None,
    };
    word.iter().try_fold(0, digit)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, parse, print, settles};

    /// The layout of 2.6.36 and later, with resident and swapped bytes.
    const NEW: &str = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap
         0          3  1600               4194304  2101  2101      2  1000     0     0     0 1700000000 1700000001 1700000002               8192                     0
-559038737      98309 14640          536870912000  4000  5000     50    54     0     0     0 1700000000          0 1700000002          536870912000                 4096
";
    /// The layout of 2.6.32, without resident and swapped bytes.
    const OLD: &str = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime
         0          0  0600                393216  2101  2101      2     0     0     0     0 1286266124 1286266124 1286266124
";

    #[test]
    fn reads_both_layouts() {
        let segments: Vec<ShmSegment> = clean(NEW);
        let second = ShmSegment {
            key: -559_038_737,
            shmid: 98309,
            perms: 0o14640,
            size: Bytes(536_870_912_000),
            cpid: 4000,
            lpid: 5000,
            nattch: 50,
            uid: 54,
            atime: 1_700_000_000,
            dtime: 0,
            ctime: 1_700_000_002,
            rss: Some(Bytes(536_870_912_000)),
            swap: Some(Bytes(4096)),
        };
        assert_eq!((segments[0].perms, segments[1]), (0o1600, second));
        let segments: Vec<ShmSegment> = clean(OLD);
        assert_eq!((segments[0].perms, segments[0].rss, segments[0].swap), (0o600, None, None));
        let heading = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
                       atime      dtime      ctime                   rss                  swap\n";
        assert_eq!(print(&Vec::<ShmSegment>::new()), heading);
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text = b"key\n0 1 0600 1 1 1 1 1 1 1 1 1 1\n0 1 0680 1 1 1 1 1 1 1 1 1 1 1\n0 1 0600 1 1 1 1 1 1 1 1 1 1 1 7\n\
                     0 1 0600 1 1 1 1 1 1 1 1 1 1 1 7 8 9\n0 1 \xff 1 1 1 1 1 1 1 1 1 1 1\n0 9 0600 1 1 1 1 1 1 1 1 1 1 1";
        assert_eq!(bad_lines::<Vec<ShmSegment>>(text), [2, 3, 4, 5, 6]);
        assert_eq!(parse::<Vec<ShmSegment>>(text).0[0].shmid, 9);
    }

    #[test]
    fn is_bounded() {
        let text = "0 9 0600 1 1 1 1 1 1 1 1 1 1 1\n".repeat(MOST + 2);
        let (segments, problems) = parse::<Vec<ShmSegment>>(text.as_bytes());
        assert_eq!((segments.len(), problems.len(), problems[0].kind), (MOST, 1, ProblemKind::Budget));
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<Vec<ShmSegment>>(""), []);
        cut_anywhere::<Vec<ShmSegment>>(NEW);
        cut_anywhere::<Vec<ShmSegment>>(OLD);
    }

    proptest! {
        #[test]
        fn round_trip(
            segments in vec((any::<i64>(), any::<[u32; 4]>(), any::<[u64; 6]>(), any::<Option<[u64; 2]>>()), 0..9)
        ) {
            let segment = |(key, small, large, space): (i64, [u32; 4], [u64; 6], Option<[u64; 2]>)| {
                let [perms, cpid, lpid, uid] = small;
                let [shmid, size, nattch, atime, dtime, ctime] = large;
                let (size, rss, swap) = (Bytes(size), space.map(|[rss, _]| Bytes(rss)), space.map(|[_, s]| Bytes(s)));
                ShmSegment { key, shmid, perms, size, cpid, lpid, nattch, uid, atime, dtime, ctime, rss, swap }
            };
            let segments: Vec<ShmSegment> = segments.into_iter().map(segment).collect();
            prop_assert_eq!(clean::<Vec<ShmSegment>>(&print(&segments)), segments);
        }

        #[test]
        fn settles_whatever_it_reads(new in hostile(NEW), old in hostile(OLD)) {
            settles::<Vec<ShmSegment>>(&new);
            settles::<Vec<ShmSegment>>(&old);
        }
    }
}
