//! `/proc/slabinfo` (version 2.x, root only).

use std::fmt::Write as _;

use lotsfree_units::Bytes;
use serde::Serialize;

use super::zoneinfo::{lines, name_of, number, words};
use crate::{File, Log, ProblemKind};

/// At most this many caches are read; kernels before 5.9 have one per cache and cgroup, some ten thousand.
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

/// `mm/slab_common.c:cache_show`, 2.6.32 to 6.18. Tunables and active slabs are not kept; they are written as SLUB
/// writes them: zero, and all slabs.
impl File for Vec<SlabCache> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut caches = Vec::new();
        for (line_number, line) in lines(text) {
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
    let _active: u64 = number(right.next()?)?;
    let slabs = number(right.next()?)?;
    // Names may hold blanks, so the numbers are taken from the right.
    let mut left = left.trim_ascii_end();
    let mut last = || {
        let start = left.iter().rposition(u8::is_ascii_whitespace)?;
        let value = number(&left[start + 1..])?;
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
