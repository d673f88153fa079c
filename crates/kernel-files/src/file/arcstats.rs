//! `/proc/spl/kstat/zfs/arcstats`: the cache of ZFS, which is in no counter of `/proc/meminfo`.

use std::fmt::Write as _;

use lotsfree_units::Bytes;
use serde::Serialize;

use super::scan::{decimal, trimmed_lines, words};
use crate::{File, Log};

/// The adaptive replacement cache of ZFS. OpenZFS 0.6.5 to 2.3, `module/zfs/arc.c:arc_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Arc {
    /// What it takes now (`size`).
    pub size: Option<Bytes>,
    /// What it does not shrink below (`c_min`).
    pub min: Option<Bytes>,
    /// What it does not grow beyond (`c_max`).
    pub max: Option<Bytes>,
}

impl Arc {
    /// What it gives back when memory is short.
    pub fn reclaimable(&self) -> Bytes {
        self.size.unwrap_or_default() - self.min.unwrap_or_default()
    }
}

/// Lines of name, type and value, as every kstat has them; other names are left out.
impl File for Arc {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut arc = Arc::default();
        for (number, line) in trimmed_lines(text) {
            let mut words = words(line);
            let field = match words.next() {
                Some(b"size") => &mut arc.size,
                Some(b"c_min") => &mut arc.min,
                Some(b"c_max") => &mut arc.max,
                _ => continue,
            };
            match words.nth(1).and_then(decimal) {
                Some(bytes) => *field = Some(Bytes(bytes)),
                None => log.malformed(number, "not a name, a type and a number"),
            }
        }
        arc
    }

    fn print(&self, out: &mut String) {
        for (name, value) in [("c_min", self.min), ("c_max", self.max), ("size", self.size)] {
            if let Some(Bytes(value)) = value {
                let _ = writeln!(out, "{name:<31} 4    {value}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, settles};

    /// The layout of OpenZFS 2.1.
    const TEXT: &str = "13 1 0x01 123 33456 4021513123 1800012345678\nname                            type data\n\
                        hits                            4    9001\nc                               4    4000000000\n\
                        c_min                           4    1000000000\nc_max                           4    8000000000\n\
                        size                            4    3900000000\nmemory_direct_count             4    12\n";

    #[test]
    fn reads_what_it_takes_and_gives_back() {
        let arc: Arc = clean(TEXT);
        assert_eq!((arc.size, arc.max), (Some(Bytes(3_900_000_000)), Some(Bytes(8_000_000_000))));
        assert_eq!(arc.reclaimable(), Bytes(2_900_000_000));
        assert_eq!(Arc::default().reclaimable(), Bytes::ZERO);
        assert_eq!(bad_lines::<Arc>(b"size 4 x\n"), [1]);
    }

    proptest! {
        #[test]
        fn settles_after_one_round(text in hostile(TEXT)) {
            settles::<Arc>(&text);
        }
    }

    #[test]
    fn cut_at_any_byte() {
        cut_anywhere::<Arc>(TEXT);
    }
}
