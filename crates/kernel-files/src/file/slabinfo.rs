//! `/proc/slabinfo` (version 2.x, root only).

use std::fmt::Write as _;

use lotsfree_units::Bytes;
use serde::Serialize;

use super::scan::{decimal, name_of, trimmed_lines, words};
use crate::{File, Log, ProblemKind};

/// At most this many caches are read; hosts have a few hundred.
const MOST: usize = 65_536;

/// One cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlabCache {
    /// Name, such as `dentry`.
    pub name: Box<str>,
    /// Objects in use.
    pub active_objects: u64,
    /// Objects allocated.
    pub objects: u64,
    /// Bytes per object.
    pub object_size: Bytes,
    /// Objects per slab.
    pub objects_per_slab: u64,
    /// Pages per slab.
    pub pages_per_slab: u64,
    /// Slabs allocated.
    pub slabs: u64,
}

/// `mm/slab_common.c:cache_show` (`s_show` of each allocator before 3.9), 2.6.32 to 6.18. Tunables and active
/// slabs are not kept. They are written as SLUB prints them: tunables as zero, and all slabs as active.
impl File for Vec<SlabCache> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut caches = Vec::new();
        for (line_number, line) in trimmed_lines(text) {
            if line.starts_with(b"#") {
                continue;
            }
            if let Some(version) = line.strip_prefix(b"slabinfo - version:") {
                if !version.trim_ascii().starts_with(b"2.") {
                    log.malformed(line_number, "a version of slabinfo other than 2");
                }
                continue;
            }
            if caches.len() == MOST {
                log.whole(ProblemKind::Budget, format!("more than {MOST} slab caches"));
                break;
            }
            match cache(line) {
                Some(cache) => caches.push(cache),
                None => log.malformed(line_number, "not a name, five numbers, tunables and slabdata"),
            }
        }
        caches
    }

    fn print(&self, out: &mut String) {
        out.push_str(
            "slabinfo - version: 2.1\n\
             # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : \
             tunables <limit> <batchcount> <sharedfactor> : \
             slabdata <active_slabs> <num_slabs> <sharedavail>\n",
        );
        for cache in self {
            let _ = writeln!(
                out,
                "{:<17} {:>6} {:>6} {:>6} {:>4} {:>4} : tunables {:>4} {:>4} {:>4} : slabdata {:>6} {:>6} {:>6}",
                cache.name,
                cache.active_objects,
                cache.objects,
                cache.object_size.0,
                cache.objects_per_slab,
                cache.pages_per_slab,
                0,
                0,
                0,
                cache.slabs,
                cache.slabs,
                0,
            );
        }
    }
}

fn cache(line: &[u8]) -> Option<SlabCache> {
    let tunables = b" : tunables ";
    let middle = line.windows(tunables.len()).rposition(|window| window == tunables)?;
    let (left, right) = (&line[..middle], &line[middle + tunables.len()..]);
    let mut right = words(right).skip_while(|word| *word != b"slabdata").skip(1);
    let _active: u64 = decimal(right.next()?)?;
    let slabs = decimal(right.next()?)?;
    // Names may contain blanks, so the numbers are taken from the right.
    let mut left = left.trim_ascii_end();
    let mut last = || {
        let start = left.iter().rposition(u8::is_ascii_whitespace)?;
        let value = decimal(&left[start + 1..])?;
        left = left[..start].trim_ascii_end();
        Some(value)
    };
    let (pages_per_slab, objects_per_slab, object_size, objects, active_objects) =
        (last()?, last()?, last()?, last()?, last()?);
    if left.is_empty() {
        return None;
    }
    Some(SlabCache {
        name: name_of(left),
        active_objects,
        objects,
        object_size: Bytes(object_size),
        objects_per_slab,
        pages_per_slab,
        slabs,
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, parse, print, settles};

    /// 6.18 (SLUB).
    const NEW: &str = "slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>
btrfs_delayed_node      0      0    312   13    1 : tunables    0    0    0 : slabdata      0      0      0
bio-312               12     12    320   12    1 : tunables    0    0    0 : slabdata      1      1      0
";
    /// The layout of 2.6.32 (SLAB): tunables, and fewer active slabs than slabs.
    const OLD: &str = "dentry             90210  91100    192   20    1 : tunables  120   60    8 : slabdata   4511   4555      0\n";

    #[test]
    fn reads_and_prints_the_kernels_text() {
        let caches: Vec<SlabCache> = clean(NEW);
        let bio = SlabCache {
            name: "bio-312".into(),
            active_objects: 12,
            objects: 12,
            object_size: Bytes(320),
            objects_per_slab: 12,
            pages_per_slab: 1,
            slabs: 1,
        };
        assert_eq!((caches.len(), &caches[1]), (2, &bio));
        assert_eq!(print(&caches), NEW);
        let caches: Vec<SlabCache> = clean(OLD);
        assert_eq!((caches[0].active_objects, caches[0].objects, caches[0].slabs), (90210, 91100, 4555));
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text = b"slabinfo - version: 1.1\nkmem_cache 59 78 100 2 2 1\n1 2 3 4 5 : tunables 0 0 0 : slabdata 1 2 3\n\
                     a b\xff 1 2 3 4 5 : tunables 0 0 0 : slabdata 1 2 3\nc 1 2 3 4 x : tunables 0 0 0 : slabdata 1 2 3";
        assert_eq!(bad_lines::<Vec<SlabCache>>(text), [1, 2, 3, 5]);
        assert_eq!(&*parse::<Vec<SlabCache>>(text).0[0].name, "a b\u{fffd}");
    }

    #[test]
    fn is_bounded() {
        let (caches, problems) = parse::<Vec<SlabCache>>(OLD.repeat(MOST + 2).as_bytes());
        assert_eq!((caches.len(), problems.len(), problems[0].kind), (MOST, 1, ProblemKind::Budget));
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<Vec<SlabCache>>(""), []);
        cut_anywhere::<Vec<SlabCache>>(NEW);
        cut_anywhere::<Vec<SlabCache>>(OLD);
    }

    proptest! {
        #[test]
        fn round_trip(caches in vec(("[a-z]([a-z0-9 :()#-]{0,30}[a-z)])?", any::<[u64; 6]>()), 0..9)) {
            let cache = |(name, numbers): (String, [u64; 6])| {
                let [active_objects, objects, object_size, objects_per_slab, pages_per_slab, slabs] = numbers;
                let (name, object_size) = (name.into(), Bytes(object_size));
                SlabCache { name, active_objects, objects, object_size, objects_per_slab, pages_per_slab, slabs }
            };
            let caches: Vec<SlabCache> = caches.into_iter().map(cache).collect();
            prop_assert_eq!(clean::<Vec<SlabCache>>(&print(&caches)), caches);
        }

        #[test]
        fn settles_whatever_it_reads(new in hostile(NEW), old in hostile(OLD)) {
            settles::<Vec<SlabCache>>(&new);
            settles::<Vec<SlabCache>>(&old);
        }
    }
}
