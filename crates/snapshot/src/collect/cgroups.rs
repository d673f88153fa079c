//! Memory cgroups: the reader's own, the root, and those that are large, limited (in memory or in huge pages)
//! or protected.

use std::collections::{BTreeSet, VecDeque};

use lotsfree_kernel_files::ProblemKind;
use lotsfree_kernel_files::file::cgroup::{self, Cgroup, CgroupVersion, Cgroups, HugetlbLimit, Limit};
use lotsfree_kernel_files::file::process::cgroup::memory_group;
use lotsfree_units::Bytes;

use super::memory::values;
use super::reader::Reader;
use crate::Snapshot;

/// At most this many directories are looked at; a large container host has a few hundred.
const MOST_VISITED: usize = 1024;
/// At most this many groups are kept.
const MOST_KEPT: usize = 256;
/// A group counts as large if it holds at least this share of memory.
const LARGE: f64 = 0.01;
/// Groups are searched at most this many levels below the root.
const DEEPEST: usize = 12;

pub(super) fn collect(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    let unified = reader.optional_text("sys/fs/cgroup/cgroup.controllers");
    let (version, root) =
        if unified.is_some_and(|controllers| controllers.split(' ').any(|name| name == "memory")) {
            (CgroupVersion::V2, "sys/fs/cgroup")
        } else if reader.exists("sys/fs/cgroup/memory/memory.limit_in_bytes")
            || reader.exists("sys/fs/cgroup/memory/memory.stat")
        {
            (CgroupVersion::V1, "sys/fs/cgroup/memory")
        } else {
            reader.list("sys/fs/cgroup/memory");
            return;
        };
    let own = match reader.is_live() {
        true => reader.optional_bytes("proc/self/cgroup").and_then(|(text, _)| memory_group(text)),
        false => None,
    };
    let mut walk = Walk {
        version,
        root,
        own: own.clone(),
        large: snapshot.mem_total().map_or(Bytes::gib(1), |total| total.scale(LARGE)),
        kept: Vec::new(),
        left_out: 0,
    };
    walk.run(reader);
    let recursive_protection = (snapshot.mounts.iter().flatten())
        .any(|mount| &*mount.kind == "cgroup2" && mount.option("memory_recursiveprot").is_some());
    let dying = reader
        .optional_bytes(&format!("{root}/cgroup.stat"))
        .and_then(|(text, _)| cgroup::dying_descendants(text));
    snapshot.cgroups = Some(Cgroups {
        version,
        own,
        recursive_protection,
        dying,
        groups: walk.kept,
        left_out: walk.left_out,
    });
}

struct Walk<'r> {
    version: CgroupVersion,
    root: &'r str,
    own: Option<String>,
    large: Bytes,
    kept: Vec<Cgroup>,
    left_out: u32,
}

impl Walk<'_> {
    fn run(&mut self, reader: &mut Reader<'_>) {
        let mut queue = VecDeque::from(["/".to_owned()]);
        let mut visited = 0;
        let mut parents = BTreeSet::new();
        while let Some(path) = queue.pop_front() {
            visited += 1;
            if visited > MOST_VISITED || self.kept.len() >= MOST_KEPT {
                reader.log().enter(self.root);
                reader.log().whole(
                    ProblemKind::Budget,
                    format!("looked at {visited} groups, {} more were not", queue.len() + 1),
                );
                self.left_out += queue.len() as u32 + 1;
                break;
            }
            let directory = self.directory(&path);
            let names = reader.optional_list(&directory);
            if path.matches('/').count() < DEEPEST {
                let children = names.iter().filter(|name| !is_file(name));
                queue.extend(children.map(|name| format!("{}/{name}", path.trim_end_matches('/'))));
            }
            let group = self.read(reader, &path, &directory, &names);
            if self.matters(&group, &names) {
                let mut up = path.as_str();
                while let Some(cut) = up.rfind('/').filter(|cut| *cut > 0) {
                    up = &up[..cut];
                    parents.insert(up.to_owned());
                }
                self.kept.push(group);
            } else {
                self.left_out += 1;
            }
        }
        // Protection and limits are inherited: a kept group without its ancestors could not be judged.
        for path in parents {
            if !self.kept.iter().any(|group| group.path == path) {
                let directory = self.directory(&path);
                let names = reader.optional_list(&directory);
                let group = self.read(reader, &path, &directory, &names);
                self.kept.push(group);
                self.left_out = self.left_out.saturating_sub(1);
            }
        }
        self.kept.sort_by(|a, b| a.path.cmp(&b.path));
    }

    fn directory(&self, path: &str) -> String {
        format!("{}{}", self.root, path.trim_end_matches('/'))
    }

    /// Whether a group is kept. Of a group in which there are only a few saved files, all is.
    fn matters(&self, group: &Cgroup, names: &[String]) -> bool {
        let saved = names.iter().any(|name| name.starts_with("memory."))
            && !["cgroup.procs", "memory.current", "memory.usage_in_bytes"]
                .iter()
                .any(|own| names.iter().any(|name| name == own));
        let bounded = |limit: Option<Limit>| limit.and_then(Limit::bytes).is_some();
        let protected = |limit: Option<Limit>| limit.is_some_and(|limit| limit.bytes() != Some(Bytes::ZERO));
        saved
            || group.path == "/"
            || self.own.as_deref() == Some(&group.path)
            || group.current.is_some_and(|current| current >= self.large)
            || bounded(group.max)
            || bounded(group.high)
            || bounded(group.soft_limit)
            || protected(group.low)
            || protected(group.min)
            || group.hugetlb.iter().any(|limit| bounded(Some(limit.max)) || bounded(limit.reserved_max))
            || group.swap_current.is_some_and(|swap| swap >= self.large)
    }

    fn read(&self, reader: &mut Reader<'_>, path: &str, directory: &str, names: &[String]) -> Cgroup {
        let at = |file: &str| format!("{directory}/{file}");
        let hugetlb = hugetlb(reader, self.version, path, directory, names);
        let mut group = Cgroup { path: path.to_owned(), hugetlb, ..Cgroup::default() };
        match self.version {
            CgroupVersion::V2 => {
                group.current = reader.optional_number(&at("memory.current")).map(Bytes);
                group.max = limit(reader, &at("memory.max"));
                group.high = limit(reader, &at("memory.high"));
                group.low = limit(reader, &at("memory.low"));
                group.min = limit(reader, &at("memory.min"));
                group.swap_current = reader.optional_number(&at("memory.swap.current")).map(Bytes);
                if self.matters(&group, names) {
                    group.swap_max = limit(reader, &at("memory.swap.max"));
                    group.peak = reader.optional_number(&at("memory.peak")).map(Bytes);
                    group.oom_group = reader.optional_number(&at("memory.oom.group")).map(|flag| flag != 0);
                    group.stat = reader
                        .optional_bytes(&at("memory.stat"))
                        .map(|(text, log)| cgroup::parse_memory_stat(text, log));
                    group.events = values(reader.optional_bytes(&at("memory.events")));
                    group.pressure = reader.optional_file(&at("memory.pressure"));
                }
            }
            CgroupVersion::V1 => {
                group.current = reader.optional_number(&at("memory.usage_in_bytes")).map(Bytes);
                group.max = limit(reader, &at("memory.limit_in_bytes"));
                group.soft_limit = limit(reader, &at("memory.soft_limit_in_bytes"));
                if self.matters(&group, names) {
                    group.peak = reader.optional_number(&at("memory.max_usage_in_bytes")).map(Bytes);
                    let both = reader.optional_number(&at("memory.memsw.usage_in_bytes")).map(Bytes);
                    group.swap_current = both.zip(group.current).map(|(both, memory)| both - memory);
                    group.swap_max = limit(reader, &at("memory.memsw.limit_in_bytes"));
                    group.swappiness = reader.optional_number(&at("memory.swappiness"));
                    group.failcnt = reader.optional_number(&at("memory.failcnt"));
                    group.stat = reader
                        .optional_bytes(&at("memory.stat"))
                        .map(|(text, log)| cgroup::parse_memory_stat(text, log));
                    group.events = reader
                        .optional_bytes(&at("memory.oom_control"))
                        .and_then(|(text, _)| cgroup::parse_oom_control(text));
                }
            }
        }
        group
    }
}

/// Whether a name in a cgroup directory is a file: those have a controller's prefix, child groups do not.
fn is_file(name: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "memory.",
        "cgroup.",
        "cpu.",
        "cpuacct.",
        "cpuset.",
        "io.",
        "blkio.",
        "pids.",
        "hugetlb.",
        "misc.",
        "rdma.",
        "devices.",
        "freezer.",
        "net_cls.",
        "net_prio.",
        "perf_event.",
        "irq.",
        "dmem.",
    ];
    const NAMES: &[&str] = &["tasks", "notify_on_release", "release_agent"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn limit(reader: &mut Reader<'_>, path: &str) -> Option<Limit> {
    let (text, log) = reader.optional_bytes(path)?;
    Limit::parse_file(text, log)
}

/// Reads the limits on huge pages; version 1 keeps them in a hierarchy of their own.
fn hugetlb(
    reader: &mut Reader<'_>,
    version: CgroupVersion,
    path: &str,
    directory: &str,
    names: &[String],
) -> Vec<HugetlbLimit> {
    let (directory, names, suffixes) = match version {
        CgroupVersion::V2 => (directory.to_owned(), names.to_vec(), ["current", "max", "rsvd.max"]),
        CgroupVersion::V1 => {
            let directory = format!("sys/fs/cgroup/hugetlb{}", path.trim_end_matches('/'));
            let names = reader.optional_list(&directory);
            (directory, names, ["usage_in_bytes", "limit_in_bytes", "rsvd.limit_in_bytes"])
        }
    };
    let [current, max, reserved] = suffixes;
    let mut limits = Vec::new();
    for name in &names {
        let Some((size, _)) = cgroup::hugetlb_file(name).filter(|(_, file)| *file == max) else { continue };
        let Some(stem) = name.strip_suffix(max) else { continue };
        let at = |file: &str| format!("{directory}/{stem}{file}");
        let Some(max) = limit(reader, &at(max)) else { continue };
        limits.push(HugetlbLimit {
            size,
            current: reader.optional_number(&at(current)).map(Bytes),
            max,
            reserved_max: limit(reader, &at(reserved)),
            events_max: match version {
                CgroupVersion::V1 => reader.optional_number(&at("failcnt")),
                CgroupVersion::V2 => {
                    reader.optional_bytes(&at("events")).and_then(|(text, _)| cgroup::flat_keyed(text, "max"))
                }
            },
        });
    }
    limits
}

#[cfg(test)]
mod tests {
    use crate::source::MemorySource;
    use crate::{Options, collect};

    #[test]
    fn a_group_that_is_limited_only_in_huge_pages_is_kept() {
        let mut source = MemorySource::default();
        source.insert("sys/fs/cgroup/cgroup.controllers", "memory hugetlb\n");
        for (group, max, reserved) in
            [("faulted", "2097152", "max"), ("reserved", "max", "4194304"), ("free", "max", "max")]
        {
            let at = |file: &str| format!("sys/fs/cgroup/{group}/{file}");
            source.insert(at("memory.current"), "4096\n");
            source.insert(at("hugetlb.2MB.max"), format!("{max}\n"));
            source.insert(at("hugetlb.2MB.rsvd.max"), format!("{reserved}\n"));
        }
        let groups = collect(&source, &Options::default()).cgroups.unwrap();
        let paths: Vec<&str> = groups.groups.iter().map(|group| group.path.as_str()).collect();
        assert_eq!((paths, groups.left_out), (vec!["/", "/faulted", "/reserved"], 1));
    }

    #[test]
    fn version_1_keeps_huge_page_limits_in_a_hierarchy_of_their_own() {
        let mut source = MemorySource::default();
        source.insert("sys/fs/cgroup/memory/memory.stat", "cache 0\n");
        source.insert("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "4096\n");
        source.insert("sys/fs/cgroup/hugetlb/jobs/hugetlb.2MB.limit_in_bytes", "2097152\n");
        source.insert("sys/fs/cgroup/hugetlb/jobs/hugetlb.2MB.rsvd.limit_in_bytes", "9223372036853727232\n");
        source.insert("sys/fs/cgroup/hugetlb/jobs/hugetlb.2MB.failcnt", "3\n");
        let groups = collect(&source, &Options::default()).cgroups.unwrap();
        let [limit] = &groups.at("/jobs").unwrap().hugetlb[..] else { panic!("one limit: {groups:?}") };
        assert_eq!((limit.max.to_string().as_str(), limit.events_max), ("2097152", Some(3)));
        assert_eq!(limit.reserved_max, Some(lotsfree_kernel_files::file::cgroup::Limit::Max));
    }
}
