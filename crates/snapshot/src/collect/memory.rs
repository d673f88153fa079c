//! The machine-wide memory files of `/proc` and `/sys`.

use lotsfree_kernel_files::Log;
use lotsfree_kernel_files::counters::{Counter, Family, Ksm, Meminfo, Values, meminfo as m};
use lotsfree_kernel_files::file::hugepages::{self, HugePool};
use lotsfree_kernel_files::file::lru_gen::LruGen;
use lotsfree_kernel_files::file::node::{self, Node};
use lotsfree_kernel_files::file::pressure::Pressure;
use lotsfree_kernel_files::file::slabinfo::SlabCache;
use lotsfree_kernel_files::file::sysctl::Sysctls;
use lotsfree_kernel_files::file::thp::{Choice, Thp, ThpSize};
use lotsfree_units::Bytes;

use super::reader::Reader;
use crate::Snapshot;

pub(super) fn collect(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    snapshot.meminfo = values(reader.bytes("proc/meminfo"));
    if let Some(own) = snapshot.meminfo.as_ref().and_then(of_container) {
        snapshot.meminfo = Some(own);
        snapshot.host.container.get_or_insert_with(|| "lxcfs".to_owned());
    }
    snapshot.vmstat = values(reader.bytes("proc/vmstat"));
    snapshot.zones = reader.file("proc/zoneinfo");
    snapshot.buddy = reader.file("proc/buddyinfo");
    snapshot.page_types = reader.file("proc/pagetypeinfo");
    snapshot.slabs = reader.file("proc/slabinfo").map(largest_slabs);
    snapshot.pressure = Pressure {
        memory: reader.file("proc/pressure/memory"),
        io: reader.file("proc/pressure/io"),
        cpu: reader.file("proc/pressure/cpu"),
    };
    snapshot.cpu = reader.optional_file("proc/stat");
    snapshot.arc = reader.optional_file("proc/spl/kstat/zfs/arcstats");
    snapshot.shm = reader.file("proc/sysvipc/shm");
    snapshot.sysctl = sysctls(reader);
    snapshot.nodes = nodes(reader);
    snapshot.huge_pools = huge_pools(reader, "sys/kernel/mm/hugepages");
    snapshot.thp = thp(reader);
    snapshot.lru_gen = lru_gen(reader);
    snapshot.ksm = ksm(reader);
    snapshot.zswap = zswap(reader);
    snapshot.damon = !reader.optional_list("sys/kernel/mm/damon/admin").is_empty();
}

/// Fields that lxcfs replaces by a container's own; it passes on the host's others.
const REPLACED: [Counter<Meminfo>; 22] = [
    m::MemTotal,
    m::MemFree,
    m::MemAvailable,
    m::Buffers,
    m::Cached,
    m::SwapCached,
    m::Active,
    m::Inactive,
    m::Active_anon,
    m::Inactive_anon,
    m::Active_file,
    m::Inactive_file,
    m::Unevictable,
    m::SwapTotal,
    m::SwapFree,
    m::Shmem,
    m::Slab,
    m::SReclaimable,
    m::SUnreclaim,
    m::Dirty,
    m::Writeback,
    m::Hugepagesize,
];

/// The container's own fields, if lxcfs made the file: the kernel maps half as much again as the memory
/// that it shows, and 4 GiB more (holes of a virtual machine are mapped too). A share of the host's page
/// tables by a container's total would mean nothing.
fn of_container(meminfo: &Values<Meminfo>) -> Option<Values<Meminfo>> {
    let direct = [m::DirectMap4k, m::DirectMap2M, m::DirectMap4M, m::DirectMap1G];
    let mapped = Bytes::kib(meminfo.sum(&direct)?);
    let total = Bytes::kib(meminfo.get(m::MemTotal)?);
    if mapped <= total.scale(1.5) || mapped <= total + Bytes::gib(4) {
        return None;
    }
    let mut own = Values::default();
    for field in REPLACED {
        if let Some(value) = meminfo.get(field) {
            own.set(field, value);
        }
    }
    Some(own)
}

/// At most this many slab caches are kept.
const MOST_SLABS: usize = 32;

/// The caches that take the most pages, largest first; caches of equal size stay in the order of the file.
fn largest_slabs(mut caches: Vec<SlabCache>) -> Vec<SlabCache> {
    caches.sort_by_key(|cache| std::cmp::Reverse(cache.slabs.saturating_mul(cache.pages_per_slab)));
    caches.truncate(MOST_SLABS);
    caches.shrink_to_fit();
    caches
}

/// Parses a file of counters.
pub(super) fn values<F: Family>(read: Option<(&[u8], &mut Log)>) -> Option<Values<F>> {
    let (text, log) = read?;
    Some(Values::parse(text, |bad| log.malformed(bad.line, bad.why)))
}

/// Files below `proc/sys/vm` that can only be written.
const WRITE_ONLY: &[&str] = &["compact_memory", "drop_caches", "stat_refresh"];
/// Files outside of `vm` that are read below `proc/sys`.
const OTHERS: &[&str] = &[
    "kernel/shmmax",
    "kernel/shmall",
    "kernel/shmmni",
    "kernel/sem",
    "kernel/numa_balancing",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/pid_max",
    "kernel/threads-max",
    "fs/dentry-state",
    "fs/procfs-drop-fd-dentries",
    "fs/file-max",
    "fs/aio-max-nr",
];

fn sysctls(reader: &mut Reader<'_>) -> Sysctls {
    let mut sysctls = Sysctls::default();
    let names = reader.list("proc/sys/vm").unwrap_or_default();
    let vm =
        names.iter().filter(|name| !WRITE_ONLY.contains(&name.as_str())).map(|name| format!("vm/{name}"));
    for name in vm.chain(OTHERS.iter().map(|name| (*name).to_owned())) {
        if let Some(value) = reader.optional_text(&format!("proc/sys/{name}")) {
            sysctls.0.insert(name.replace('/', ".").into(), value.into());
        }
    }
    sysctls
}

/// A bound on node numbers; Linux cannot have more (`MAX_NUMNODES` is 1024).
const MOST_NODES: usize = 1024;

fn nodes(reader: &mut Reader<'_>) -> Option<Vec<Node>> {
    let names = reader.list("sys/devices/system/node")?;
    let mut ids: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
    ids.sort_unstable();
    ids.truncate(MOST_NODES);
    let node = |id: u32| {
        let at = |file: &str| format!("sys/devices/system/node/node{id}/{file}");
        Node {
            id,
            cpus: reader
                .bytes(&at("cpulist"))
                .map(|(text, log)| node::parse_cpulist(text, log))
                .unwrap_or_default(),
            meminfo: reader.bytes(&at("meminfo")).map(|(text, log)| node::parse_meminfo(text, log)),
            vmstat: values(reader.optional_bytes(&at("vmstat"))),
            numastat: values(reader.bytes(&at("numastat"))),
            distance: reader
                .bytes(&at("distance"))
                .map(|(text, log)| node::parse_distance(text, log))
                .unwrap_or_default(),
            huge_pools: huge_pools(reader, &at("hugepages")).unwrap_or_default(),
        }
    };
    Some(ids.into_iter().map(node).collect())
}

fn huge_pools(reader: &mut Reader<'_>, directory: &str) -> Option<Vec<HugePool>> {
    let names = reader.list(directory)?;
    let mut pools = Vec::new();
    for name in names {
        let Some(size) = hugepages::directory_size(&name) else { continue };
        let mut get = |file: &str| reader.optional_number(&format!("{directory}/{name}/{file}")).unwrap_or(0);
        pools.push(HugePool {
            size,
            total: get("nr_hugepages"),
            free: get("free_hugepages"),
            reserved: get("resv_hugepages"),
            surplus: get("surplus_hugepages"),
            overcommit: get("nr_overcommit_hugepages"),
        });
    }
    pools.sort_by_key(|pool| pool.size);
    Some(pools)
}

const THP: &str = "sys/kernel/mm/transparent_hugepage";

fn thp(reader: &mut Reader<'_>) -> Option<Thp> {
    let enabled: Choice = reader.file(&format!("{THP}/enabled"))?;
    let mut khugepaged = Vec::new();
    for name in reader.optional_list(&format!("{THP}/khugepaged")) {
        if let Some(value) = reader.optional_number(&format!("{THP}/khugepaged/{name}")) {
            khugepaged.push((name.into(), value));
        }
    }
    let mut sizes = Vec::new();
    for name in reader.optional_list(THP) {
        if let Some(size) = hugepages::directory_size(&name) {
            sizes.push(thp_size(reader, size, &format!("{THP}/{name}")));
        }
    }
    sizes.sort_by_key(|size| size.size);
    Some(Thp {
        enabled,
        defrag: reader.file(&format!("{THP}/defrag")).unwrap_or_default(),
        shmem_enabled: reader.optional_file(&format!("{THP}/shmem_enabled")),
        use_zero_page: reader.optional_number(&format!("{THP}/use_zero_page")),
        pmd_size: reader.optional_number(&format!("{THP}/hpage_pmd_size")).map(Bytes),
        shrink_underused: reader.optional_number(&format!("{THP}/shrink_underused")),
        khugepaged,
        sizes,
    })
}

fn thp_size(reader: &mut Reader<'_>, size: Bytes, directory: &str) -> ThpSize {
    let stats = format!("{directory}/stats");
    let names = reader.optional_list(&stats);
    ThpSize {
        size,
        enabled: reader.optional_file(&format!("{directory}/enabled")).unwrap_or_default(),
        shmem_enabled: reader.optional_file(&format!("{directory}/shmem_enabled")),
        stats: (!names.is_empty()).then(|| one_value_files(reader, &stats, &names)),
    }
}

/// Reads the files of a directory that hold one number each and are counters.
fn one_value_files<F: Family>(reader: &mut Reader<'_>, directory: &str, names: &[String]) -> Values<F> {
    let (mut values, mut hint) = (Values::default(), 0);
    for name in names {
        if let Some(value) = reader.optional_number(&format!("{directory}/{name}")) {
            values.record(name.as_bytes(), value, &mut hint);
        }
    }
    values
}

fn lru_gen(reader: &mut Reader<'_>) -> Option<LruGen> {
    let (text, log) = reader.bytes("sys/kernel/mm/lru_gen/enabled")?;
    let enabled = lotsfree_kernel_files::file::lru_gen::parse_enabled(text, log)?;
    let min_ttl_ms = reader.optional_number("sys/kernel/mm/lru_gen/min_ttl_ms").unwrap_or(0);
    Some(LruGen { enabled, min_ttl_ms })
}

/// Files of KSM that do not hold one natural number.
const KSM_WORDS: &[&str] = &["advisor_mode", "general_profit"];

fn ksm(reader: &mut Reader<'_>) -> Option<Values<Ksm>> {
    const DIRECTORY: &str = "sys/kernel/mm/ksm";
    let mut names = reader.list(DIRECTORY)?;
    names.retain(|name| !KSM_WORDS.contains(&name.as_str()));
    Some(one_value_files(reader, DIRECTORY, &names))
}

/// What zswap refused, and how often its pool was full (`mm/zswap.c:zswap_debugfs_init`).
const ZSWAP_COUNTS: &[&str] = &[
    "pool_limit_hit",
    "reject_alloc_fail",
    "reject_compress_fail",
    "reject_compress_poor",
    "reject_reclaim_fail",
];

fn zswap(reader: &mut Reader<'_>) -> Option<Vec<(Box<str>, Box<str>)>> {
    let names = reader.list("sys/module/zswap/parameters")?;
    let mut parameters = Vec::new();
    for name in names {
        if let Some(value) = reader.optional_text(&format!("sys/module/zswap/parameters/{name}")) {
            parameters.push((name.into(), value.into()));
        }
    }
    // debugfs, for root only.
    for name in ZSWAP_COUNTS {
        if let Some(value) = reader.optional_text(&format!("sys/kernel/debug/zswap/{name}")) {
            parameters.push(((*name).into(), value.into()));
        }
    }
    Some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_slab_caches_are_kept() {
        let cache = |slabs| SlabCache { slabs, pages_per_slab: 2, ..SlabCache::default() };
        let kept = largest_slabs((1..=100).chain([u64::MAX]).map(cache).collect());
        assert_eq!((kept.len(), kept[0].slabs, kept[31].slabs), (MOST_SLABS, u64::MAX, 70));
    }
}
