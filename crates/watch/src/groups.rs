//! Control groups: refaults of each, and which of them are at their limit; pages swapped in, of the host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lotsfree_kernel_files::Log;
use lotsfree_kernel_files::counters::{MemoryStat, Values, Vmstat, memory_stat, vmstat};
use lotsfree_kernel_files::file::cgroup::{flat_keyed, parse_memory_stat};

/// Pages that came back.
#[derive(Debug, Default)]
pub(crate) struct Back {
    /// Refaults of files by group; of a group that is asked for first, none. The group named `""` and the
    /// root are what is left of the host's.
    pub(crate) refaults: BTreeMap<Arc<str>, u64>,
    /// Pages swapped in on the host.
    pub(crate) swapped_in: u64,
    /// The group whose transparent huge pages grew most: khugepaged charges what it allocates to it.
    pub(crate) collapsed: Option<Arc<str>>,
}

/// Pages of all programs of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OfHost {
    /// Refaults of files.
    pub(crate) refaults: u64,
    /// Pages swapped in. Refaults of anonymous pages leave out those that readahead brought.
    pub(crate) swapped_in: u64,
    /// Pages allocated.
    pub(crate) allocated: u64,
    /// Pages freed.
    pub(crate) freed: u64,
}

/// The host's counters.
pub(crate) fn counters() -> Values<Vmstat> {
    Values::parse(&fs::read("/proc/vmstat").unwrap_or_default(), |_| ())
}

impl OfHost {
    /// Those since the host booted.
    pub(crate) fn so_far() -> Self {
        Self::of(&counters())
    }

    /// Those in the host's counters.
    pub(crate) fn of(stat: &Values<Vmstat>) -> Self {
        let file = stat.get(vmstat::workingset_refault_file).or_else(|| stat.get(vmstat::workingset_refault));
        let zones = [
            vmstat::pgalloc_dma,
            vmstat::pgalloc_dma32,
            vmstat::pgalloc_normal,
            vmstat::pgalloc_high,
            vmstat::pgalloc_movable,
            vmstat::pgalloc_device,
        ];
        OfHost {
            refaults: file.unwrap_or(0),
            swapped_in: stat.get(vmstat::pswpin).unwrap_or(0),
            allocated: zones.iter().filter_map(|zone| stat.get(*zone)).sum(),
            freed: stat.get(vmstat::pgfree).unwrap_or(0),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        OfHost {
            refaults: self.refaults.saturating_sub(before.refaults),
            swapped_in: self.swapped_in.saturating_sub(before.swapped_in),
            allocated: self.allocated.saturating_sub(before.allocated),
            freed: self.freed.saturating_sub(before.freed),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        let OfHost { refaults, swapped_in, allocated, freed } = other;
        self.refaults += refaults;
        self.swapped_in += swapped_in;
        self.allocated += allocated;
        self.freed += freed;
    }
}

/// The control groups of the programs that were seen.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Where groups with memory counters are; `None` without such a hierarchy.
    root: Option<PathBuf>,
    /// Each group as last read, and the host.
    last: BTreeMap<Arc<str>, OfGroup>,
    host: OfHost,
    /// How often each group, or one above it, had met its limit when it was first seen.
    hits: BTreeMap<String, u64>,
}

/// What is read of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OfGroup {
    /// Refaults of files.
    refaults: u64,
    /// Bytes in transparent huge pages.
    huge: u64,
}

/// Hierarchies with memory counters: version 1, version 2.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];

impl Groups {
    /// Finds the hierarchy.
    pub(crate) fn find() -> Self {
        let has = |root: &&str| {
            Path::new(root).join("memory.limit_in_bytes").exists()
                || fs::read_to_string(Path::new(root).join("cgroup.controllers"))
                    .is_ok_and(|text| text.split_ascii_whitespace().any(|name| name == "memory"))
        };
        let root = ROOTS.iter().find(|root| has(root)).map(PathBuf::from);
        Groups { root, host: OfHost::so_far(), ..Groups::default() }
    }

    /// What moved on the host since this was last asked.
    pub(crate) fn host_since(&mut self) -> OfHost {
        let now = OfHost::so_far();
        now.since(std::mem::replace(&mut self.host, now))
    }

    /// What came back to groups since this was last asked, of what moved on the host.
    pub(crate) fn since(&mut self, host: OfHost, groups: &BTreeSet<&Arc<str>>) -> Back {
        let mut moved = BTreeMap::new();
        let mut rest = host.refaults;
        let (mut without, mut collapsed) = (Vec::new(), None);
        for group in groups {
            let Some(now) = self.read(group) else {
                without.push(Arc::clone(group));
                continue;
            };
            if !self.last.contains_key(*group) {
                self.note_hits(group);
            }
            let before = self.last.insert(Arc::clone(group), now).unwrap_or(now);
            let own = now.refaults.saturating_sub(before.refaults);
            let grown = now.huge.saturating_sub(before.huge);
            if grown > collapsed.as_ref().map_or(0, |(most, _)| *most) {
                collapsed = Some((grown, Arc::clone(group)));
            }
            rest = rest.saturating_sub(own);
            moved.insert(Arc::clone(group), own);
        }
        for group in without {
            moved.insert(group, rest);
        }
        Back { refaults: moved, swapped_in: host.swapped_in, collapsed: collapsed.map(|(_, group)| group) }
    }

    /// Notes how often a group and those above it have met their limits.
    fn note_hits(&mut self, group: &str) {
        for above in upwards(group) {
            if !self.hits.contains_key(above)
                && let Some(hits) = self.limit_hits(above)
            {
                self.hits.insert(above.to_owned(), hits);
            }
        }
    }

    /// The nearest group at or above this one that has met its limit since it was first seen: reclaim for
    /// what is charged to it takes pages of nobody outside. `None`: the whole host shares its memory.
    pub(crate) fn limited<'a>(&self, group: &'a str) -> Option<&'a str> {
        upwards(group).find(|above| {
            let before = self.hits.get(*above);
            before.zip(self.limit_hits(above)).is_some_and(|(before, now)| now > *before)
        })
    }

    /// How often a group has met its limit: `memory.failcnt` of version 1, `max` and `high` of
    /// `memory.events.local` of version 2.
    fn limit_hits(&self, group: &str) -> Option<u64> {
        let directory = self.root.as_ref()?.join(group.strip_prefix('/')?);
        let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
        if let Some(events) = read("memory.events.local").or_else(|| read("memory.events")) {
            let count = |key| flat_keyed(events.as_bytes(), key).unwrap_or(0);
            return Some(count("max").saturating_add(count("high")));
        }
        let hits = ["memory.failcnt", "memory.memsw.failcnt"].map(read);
        let hits: Vec<u64> = hits.iter().flatten().filter_map(|text| text.trim().parse().ok()).collect();
        (!hits.is_empty()).then(|| hits.iter().sum())
    }

    fn read(&self, group: &str) -> Option<OfGroup> {
        let below = group.strip_prefix('/').filter(|below| !below.is_empty())?;
        let text = fs::read(self.root.as_ref()?.join(below).join("memory.stat")).ok()?;
        Some(of_group(&parse_memory_stat(&text, &mut Log::default())))
    }
}

/// A group and those above it, without the root.
fn upwards(group: &str) -> impl Iterator<Item = &str> {
    let group = Some(group.trim_end_matches('/')).filter(|group| group.starts_with('/'));
    std::iter::successors(group, |group| group.rsplit_once('/').map(|(above, _)| above))
        .filter(|group| !group.is_empty())
}

/// The counter of refaults was one, of files only, before 5.9; huge pages have another name in version 1.
fn of_group(stat: &Values<MemoryStat>) -> OfGroup {
    let file = stat.get(memory_stat::workingset_refault_file);
    let huge = stat.get(memory_stat::anon_thp).or_else(|| stat.get(memory_stat::rss_huge));
    OfGroup {
        refaults: file.or_else(|| stat.get(memory_stat::workingset_refault)).unwrap_or(0),
        huge: huge.unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_above_a_group_come_nearest_first() {
        let above = |group| upwards(group).collect::<Vec<_>>();
        assert_eq!(above("/a/b/c"), ["/a/b/c", "/a/b", "/a"]);
        assert!(above("/").is_empty() && above("").is_empty());
    }

    #[test]
    fn the_nearest_group_that_met_its_limit_is_the_one_that_counts() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("a/memory.events", "low 0\nhigh 0\nmax 3\noom 0\n");
        put("a/b/memory.events", "low 0\nhigh 0\nmax 0\noom 0\n");
        put("a/b/memory.stat", "workingset_refault_file 10\n");
        let mut groups = Groups { root: Some(root.path().to_path_buf()), ..Groups::default() };
        let group: Arc<str> = "/a/b".into();
        groups.since(OfHost::default(), &BTreeSet::from([&group]));
        assert_eq!(groups.limited("/a/b"), None);
        put("a/memory.events", "low 0\nhigh 0\nmax 9\noom 0\n");
        put("a/b/memory.stat", "workingset_refault_file 17\n");
        assert_eq!(groups.limited("/a/b"), Some("/a"));
        let moved = groups.since(OfHost::default(), &BTreeSet::from([&group]));
        assert_eq!(moved.refaults[&group], 7);
        assert_eq!(moved.collapsed, None);
        put("a/b/memory.stat", "workingset_refault_file 17\nanon_thp 4194304\n");
        let back = groups.since(OfHost::default(), &BTreeSet::from([&group]));
        assert_eq!(back.collapsed.as_deref(), Some("/a/b"));
        put("a/b/memory.events", "low 0\nhigh 5\nmax 0\noom 0\n");
        assert_eq!(groups.limited("/a/b"), Some("/a/b"));
    }
}
