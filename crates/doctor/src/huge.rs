//! The huge page pools, and the shared memory that lies or could lie in them.

use std::collections::{BTreeMap, BTreeSet};

use lotsfree_formulas::hugepages::{SCRIPT_MIN, script_pages};
use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_kernel_files::file::process::numa_maps::NumaMapping;
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_settings::NR_HUGEPAGES;
use lotsfree_snapshot::Observation;
use lotsfree_units::{Bytes, Grouped};

use crate::applications::{Application, Topic};
use crate::finding::subject;
use crate::workload::CLUSTER_MANAGERS;
use crate::{Context, Cost, Evidence, Remedy, Skip, Workload, latency};

/// A shared segment of at least this size is a candidate for huge pages whoever owns it: its page tables take
/// up to 8 MiB for each process.
pub(crate) const LARGE: Bytes = Bytes::gib(4);
/// A database's pool counts as unused only after this many seconds, because an instance opens its segment
/// some time after its start.
pub(crate) const STARTED: f64 = 600.0;

/// How often the kernel is asked again for huge pages that it did not make at the first try.
const TRIES: u32 = 50;

/// Kind of a segment's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Huge pages of a pool.
    Huge,
    /// Base pages.
    Base,
    /// The data do not tell.
    Unknown,
}

/// Shared memory that several processes map.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Name of the segment: `shmid 98305`, `shared mapping of postgres`.
    pub(crate) label: String,
    /// For System V the size requested. For others the length of the mapping, or, where no process's `maps`
    /// was read, the most that one process has touched: a lower bound.
    pub(crate) size: Bytes,
    /// Whether the size is no such bound.
    pub(crate) exact: bool,
    /// Its resident bytes, where that is known.
    pub(crate) resident: Option<Bytes>,
    /// Identifier of a System V segment.
    pub(crate) shmid: Option<u64>,
    /// Owner.
    pub(crate) uid: Option<u32>,
    /// The database that it belongs to, recognised by its owner or its processes.
    pub(crate) database: Option<Workload>,
    /// Processes that map it (System V: attachments).
    pub(crate) mappers: u64,
    /// Kind of its pages.
    pub(crate) backing: Backing,
}

impl Segment {
    /// Number of pages that it needs in the pool. Oracle's script counts one extra page for each System V
    /// segment.
    pub(crate) fn pages(&self, huge: Bytes) -> u64 {
        if self.shmid.is_some() { script_pages(self.size, huge) } else { self.size.units_of(huge) }
    }

    /// The reading that shows the segment.
    pub(crate) fn evidence(&self) -> Evidence {
        let (file, field) = match self.shmid {
            Some(_) => ("/proc/sysvipc/shm", "size"),
            None if self.exact => ("/proc/PID/maps", "length"),
            None => ("/proc/PID/numa_maps", "resident"),
        };
        Evidence::new(file, field, format!("{} ({} B)", self.size, Grouped(self.size.0))).of(format!(
            "{}, mapped {}{}",
            self.label,
            times(self.mappers),
            match self.backing {
                Backing::Huge => ", in huge pages",
                Backing::Base => ", in base pages",
                Backing::Unknown => "",
            }
        ))
    }
}

/// The default huge page size: the one that `vm.nr_hugepages` counts, and that a program gets without naming
/// a size.
pub(crate) fn default_size(cx: &Context<'_>) -> Result<Bytes, Skip> {
    match cx.mem(m::Hugepagesize)? {
        Bytes::ZERO => Err(Skip::missing("/proc/meminfo Hugepagesize")),
        size => Ok(size),
    }
}

/// Pools that are not empty.
pub(crate) fn filled(cx: &Context<'_>) -> Result<Vec<HugePool>, Skip> {
    let pools = cx.huge_pools()?;
    Ok(pools.into_iter().filter(|pool| pool.total > 0 && pool.size > Bytes::ZERO).collect())
}

/// Number of pages touched or promised.
pub(crate) fn promised(pool: &HugePool) -> u64 {
    pool.used().saturating_add(pool.reserved)
}

/// Name of a page size's directory, as `/sys` spells it.
pub(crate) fn directory(size: Bytes) -> String {
    format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size.as_kib())
}

/// A page size without decimals: `2 MiB`, `1 GiB`.
pub(crate) fn page_name(size: Bytes) -> String {
    format!("{size}")
}

/// The three numbers of a pool as evidence.
pub(crate) fn saw_pool(cx: &Context<'_>, pool: &HugePool) -> Vec<Evidence> {
    if default_size(cx) == Ok(pool.size) && cx.mem_count(m::HugePages_Total) == Ok(pool.total) {
        let fields = [m::HugePages_Total, m::HugePages_Free, m::HugePages_Rsvd, m::Hugepagesize];
        return fields.into_iter().map(|field| cx.saw_mem(field)).collect();
    }
    let rows =
        [("nr_hugepages", pool.total), ("free_hugepages", pool.free), ("resv_hugepages", pool.reserved)];
    rows.map(|(name, value)| Evidence::new(directory(pool.size), name, Grouped(value))).into()
}

/// A cost of `bytes`, as a share of memory where `MemTotal` is known.
pub(crate) fn cost(cx: &Context<'_>, bytes: Bytes, text: impl Into<String>) -> Cost {
    match cx.total() {
        Ok(total) => Cost::memory(bytes, total, text),
        Err(_) => Cost { bytes: Some(bytes), ..Cost::risk(format!("{bytes}: {}", text.into())) },
    }
}

/// The share of memory that `bytes` are; 0 if `MemTotal` is unknown.
pub(crate) fn share(cx: &Context<'_>, bytes: Bytes) -> f64 {
    cx.total().map_or(0.0, |total| bytes.share_of(total))
}

/// A remedy that resizes `pool` to `pages`: by sysctl for the default size, by the file in `/sys` for others.
pub(crate) fn resize(cx: &Context<'_>, pool: &HugePool, pages: u64, title: impl Into<String>) -> Remedy {
    let remedy = Remedy::new(title);
    let persistent = pool.total.saturating_sub(pool.surplus);
    if default_size(cx) != Ok(pool.size) {
        let path = format!("{}/nr_hugepages", directory(pool.size));
        return remedy.sysfs(&path, &pages.to_string(), Some(&persistent.to_string()));
    }
    let mut remedy = remedy.sysctl(cx, NR_HUGEPAGES, pages);
    if pages > pool.total {
        // The kernel ends at the first page that it cannot make whole, without an error
        // (`mm/hugetlb.c:set_max_huge_pages`), and puts compaction off after each failure
        // (`mm/compaction.c:defer_compaction`). Measured on 6.18 with a page cache that fills memory: 228 of
        // 1,063 pages at the first try, 752 after ten, all after sixteen.
        remedy = remedy.run(format!(
            "for try in $(seq {TRIES}); do [ $(sysctl -n {NR_HUGEPAGES}) -ge {pages} ] || sysctl -q -w \
             {NR_HUGEPAGES}={pages}; done; grep HugePages_Total /proc/meminfo  # {pages}"
        ));
    }
    if cx.now().sysctl.text(NR_HUGEPAGES).is_none() {
        remedy = remedy.undo_with(format!("sysctl -w vm.nr_hugepages={persistent}"));
    }
    if let Some(boot) = boot_pages(cx, pool.size) {
        remedy =
            remedy.keep("kernel command line", format!("hugepages={pages} (in place of hugepages={boot})"));
    }
    remedy
}

/// What the owner of the largest segment has to be told so that it takes the pool, and how to see that it
/// did.
pub(crate) fn adopted(cx: &Context<'_>, remedy: Remedy) -> Remedy {
    let owner = default_size(cx).ok().and_then(|size| candidates(cx, size).ok()?.first()?.database);
    let remedy = match owner {
        // `huge_pages = try`, the default, runs in base pages where the pool is a page too small, and says
        // nothing of it; no memlock is needed (`src/backend/port/sysv_shmem.c:CreateAnonymousSegment`).
        Some(Workload::Postgres) => remedy
            .keep("postgresql.conf", "huge_pages = on")
            .restart("PostgreSQL, which then starts only if the pool holds its whole segment, instead of leaving it idle")
            .verify("su postgres -c \"psql -Atc 'SHOW shared_memory_size_in_huge_pages'\"  # 15 and later: what it needs"),
        Some(Workload::Oracle) => remedy
            .keep("the instance's parameters", "use_large_pages=only")
            .restart("the instance, with memlock at least as large as its SGA; it then starts only in huge pages"),
        Some(Workload::Java) => remedy
            .keep("the command line of Java", "-XX:+UseLargePages")
            .restart("Java; where its heap does not fit, it goes on in base pages after a warning")
            .verify("grep anon_hugepage /proc/$(pgrep -n -x java)/maps"),
        Some(Workload::Mysql) => remedy
            .keep("my.cnf, [mysqld]", "large-pages")
            .restart(
                "the server; MySQL, and MariaDB before 10.5, also need memlock as large as the buffer pool and their group \
                 in vm.hugetlb_shm_group",
            )
            .verify("grep anon_hugepage /proc/$(pgrep -n -x 'mariadbd|mysqld')/maps"),
        Some(Workload::Kvm) => Application::Qemu.tell(Topic::Pool, remedy),
        Some(Workload::Dpdk) => Application::Dpdk.tell(Topic::Pool, remedy),
        Some(_) => remedy.restart("the database, with memlock at least as large as its segment"),
        None if cx.workloads().iter().any(|workload| workload.is_database()) => {
            remedy.restart("the database, with memlock at least as large as its segment")
        }
        None if cx.runs(Workload::Kvm) => Application::Qemu.tell(Topic::Pool, remedy),
        None if cx.runs(Workload::Dpdk) => Application::Dpdk.tell(Topic::Pool, remedy),
        None => remedy.restart("the programs that map them, with memlock at least as large as a segment"),
    };
    remedy.verify("grep -E 'HugePages_(Total|Free|Rsvd)' /proc/meminfo").verify("lotsfree doctor")
}

/// The value of `hugepages=` on the kernel command line for pages of `size`. Each `hugepages=` counts pages
/// of the `hugepagesz=` before it, or of the default size if there is none. The number of one size must never
/// replace that of another: 17,409 pages of 1 GiB instead of 2 MiB leave a host that does not boot.
fn boot_pages<'a>(cx: &Context<'a>, size: Bytes) -> Option<&'a str> {
    let default = default_size(cx).ok()?;
    let (mut counted, mut found) = (default, None);
    for word in cx.now().host.cmdline.as_deref()?.split_ascii_whitespace() {
        match word.split_once('=') {
            Some(("hugepagesz", text)) => counted = text.parse().unwrap_or(Bytes::ZERO),
            Some(("hugepages", text)) if counted == size => found = Some(text),
            _ => {}
        }
    }
    found
}

/// User ids of the databases that run here.
fn database_users(cx: &Context<'_>) -> BTreeMap<u32, Workload> {
    let database = |p: &Process| Some((p.uid?, Workload::database_of(p)?));
    cx.processes().unwrap_or_default().iter().filter_map(database).collect()
}

/// The database process that has run longest.
pub(crate) fn oldest_database<'a>(cx: &Context<'a>) -> Option<&'a Process> {
    let all = cx.processes().ok()?.iter().filter(|p| Workload::database_of(p).is_some());
    all.min_by_key(|p| p.stat.start_ticks)
}

/// The database that has run longest, and for how many seconds.
pub(crate) fn database_age(cx: &Context<'_>) -> Option<(Workload, f64)> {
    let oldest = oldest_database(cx)?;
    Some((Workload::database_of(oldest)?, latency::age(cx, oldest)?))
}

/// The reason why idle huge pages may be intentional: a cluster's standby node, a host of virtual machines,
/// DPDK.
pub(crate) fn held_on_purpose(cx: &Context<'_>) -> Option<String> {
    const MACHINES: &[&str] = &["libvirtd", "virtqemud", "vdsmd", "nova-compute", "virt-handler"];
    let running = |names: &[&str]| {
        let mut all = cx.processes().unwrap_or_default().iter();
        all.find(|p| names.contains(&&*p.stat.name)).map(|p| p.stat.name.to_string())
    };
    if let Some(name) = running(CLUSTER_MANAGERS) {
        return Some(format!(
            "{name} runs: a standby node holds a pool for the database that may fail over to it"
        ));
    }
    if let Some(name) = running(MACHINES) {
        return Some(format!(
            "{name} runs: a host of virtual machines holds a pool for guests not yet started"
        ));
    }
    let workload = [Workload::Kvm, Workload::Dpdk].into_iter().find(|w| cx.runs(*w))?;
    Some(format!("{} runs, which takes its whole memory from such a pool", workload.name()))
}

/// The shared segments that are attached: System V, and the shared mappings of database servers that fork.
///
/// # Errors
/// [`Skip::Unknown`] if neither `/proc/sysvipc/shm` nor processes were read.
pub(crate) fn segments(cx: &Context<'_>) -> Result<Vec<Segment>, Skip> {
    if cx.shm().is_err() && cx.processes().is_err() {
        return Err(Skip::Unknown(vec!["/proc/sysvipc/shm".to_owned(), "/proc/PID/numa_maps".to_owned()]));
    }
    let users = database_users(cx);
    let mapped = mapped_keys(cx);
    let pools = cx.huge_pools().ok();
    let attached: Vec<&ShmSegment> = (cx.shm().unwrap_or_default().iter()).filter(|s| s.nattch > 0).collect();
    let explained = pools.as_deref().is_some_and(|pools| explain(pools, attached.iter().copied()));
    let sysv = attached.iter().map(|segment| Segment {
        label: format!("shmid {}", segment.shmid),
        size: segment.size,
        exact: true,
        resident: segment.rss,
        shmid: Some(segment.shmid),
        uid: Some(segment.uid),
        database: users.get(&segment.uid).copied(),
        mappers: segment.nattch,
        backing: backing(segment, &mapped, pools.as_deref(), explained),
    });
    let mut found: Vec<Segment> = sysv.chain(forked(cx)).collect();
    found.sort_by_key(|segment| std::cmp::Reverse(segment.size));
    Ok(found)
}

/// Shared memory that a pool could hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Its size.
    pub size: Bytes,
    /// Its resident bytes, where that is known.
    pub resident: Option<Bytes>,
    /// Processes that map it.
    pub mappers: u64,
    /// Whether it is a System V segment; else a database's processes share it by fork.
    pub sysv: bool,
    /// Whether it lies in base pages, where that is known.
    pub in_base_pages: Option<bool>,
}

/// All shared memory of an observation that a pool could hold: attached System V segments, and the mappings
/// that database servers share by fork. `None` if neither could be read.
pub fn shared_memory(observation: &Observation) -> Option<Vec<Shared>> {
    let found = segments(&Context::new(observation)).ok()?;
    let shared = found.into_iter().map(|segment| Shared {
        size: segment.size,
        resident: segment.resident,
        mappers: segment.mappers,
        sysv: segment.shmid.is_some(),
        in_base_pages: match segment.backing {
            Backing::Huge => Some(false),
            Backing::Base => Some(true),
            Backing::Unknown => None,
        },
    });
    Some(shared.collect())
}

/// Whether the attached segments together have exactly the number of pages that some pool has promised.
fn explain<'s>(pools: &[HugePool], segments: impl Iterator<Item = &'s ShmSegment> + Clone) -> bool {
    pools.iter().any(|pool| {
        let pages = |s: &ShmSegment| if s.size < pool.size { 0 } else { s.size.units_of(pool.size) };
        promised(pool) > 0 && segments.clone().map(pages).sum::<u64>() == promised(pool)
    })
}

/// Kinds of pages with which processes map System V keys: key → (huge, base).
fn mapped_keys(cx: &Context<'_>) -> BTreeMap<u32, (bool, bool)> {
    let mut keys: BTreeMap<u32, (bool, bool)> = BTreeMap::new();
    for mapping in mappings(cx).map(|(_, mapping)| mapping) {
        let key = mapping.file.strip_prefix("/SYSV").and_then(|rest| rest.get(..8));
        if let Some(key) = key.and_then(|key| u32::from_str_radix(key, 16).ok()) {
            let kinds = keys.entry(key).or_default();
            if mapping.huge {
                kinds.0 = true;
            } else {
                kinds.1 = true;
            }
        }
    }
    keys
}

/// The mappings of all processes whose `numa_maps` was read.
pub(crate) fn mappings<'a>(cx: &Context<'a>) -> impl Iterator<Item = (&'a Process, &'a NumaMapping)> {
    let detail = |p: &'a Process| Some((p, p.detail.as_ref()?.numa.as_ref()?));
    let all = cx.processes().unwrap_or_default().iter().filter_map(detail);
    all.flat_map(|(process, maps)| maps.mappings.iter().map(move |mapping| (process, mapping)))
}

/// Whether a mapped file is shared memory: System V, shared anonymous, POSIX or AMM in `/dev/shm`.
pub(crate) fn is_shared(file: &str) -> bool {
    ["/SYSV", "/dev/zero", "/dev/shm/", "/run/shm/", "/memfd:"].iter().any(|name| file.starts_with(name))
}

/// The name by which mappings of shared memory are grouped: all granules of an instance that uses AMM
/// (`/dev/shm/ora_SID_ID_N`) have the same one.
pub(crate) fn shared_name(file: &str) -> &str {
    match file.strip_prefix("/dev/shm/ora_").and_then(|_| file.rsplit_once('_')) {
        Some((instance, _)) => instance,
        None => file.strip_suffix(" (deleted)").unwrap_or(file),
    }
}

/// Kind of a System V segment's pages. The mode bits of `/proc/sysvipc/shm` do not tell (`SHM_HUGETLB` is not
/// kept).
fn backing(
    segment: &ShmSegment,
    mapped: &BTreeMap<u32, (bool, bool)>,
    pools: Option<&[HugePool]>,
    explained: bool,
) -> Backing {
    let free = |pools: &[HugePool]| pools.iter().all(|pool| promised(pool) == 0);
    if pools.is_some_and(free) {
        return Backing::Base;
    }
    match mapped.get(&(segment.key as u32)) {
        Some((true, false)) => return Backing::Huge,
        Some((false, true)) => return Backing::Base,
        _ => {}
    }
    // Recent kernels multiply the resident pages of such a segment by the huge page size once too often
    // (measured on 6.18: 2 GiB for two pages of 2 MiB).
    let largest = pools.and_then(|pools| pools.iter().map(|pool| pool.size).max()).unwrap_or_default();
    if largest > Bytes::ZERO && segment.rss.is_some_and(|rss| rss > segment.size + largest) {
        return Backing::Huge;
    }
    // System V segments reserve all their huge pages when they are created.
    let fits =
        |pool: &HugePool| pool.size > Bytes::ZERO && segment.size.units_of(pool.size) <= promised(pool);
    match pools {
        Some(pools) if !pools.iter().any(fits) => Backing::Base,
        _ if explained => Backing::Huge,
        _ => Backing::Unknown,
    }
}

/// Shared anonymous mappings that database servers inherit over `fork` at the same address: their lengths
/// from `maps`, what was touched from `numa_maps`, of which either may be missing.
fn forked(cx: &Context<'_>) -> Vec<Segment> {
    let mut found: BTreeMap<(u64, Workload), Segment> = BTreeMap::new();
    let processes = cx.processes().unwrap_or_default();
    let new = |process: &Process, database: Workload, huge: bool| Segment {
        label: format!("shared mapping of {}", process.stat.name),
        size: Bytes::ZERO,
        exact: false,
        resident: None,
        shmid: None,
        uid: process.uid,
        database: Some(database),
        mappers: processes.iter().filter(|other| other.stat.name == process.stat.name).count() as u64,
        backing: if huge { Backing::Huge } else { Backing::Base },
    };
    for (process, mapping) in mappings(cx) {
        let Some(database) = Workload::database_of(process) else { continue };
        if ["/dev/zero", "/anon_hugepage", "/memfd:"].iter().any(|name| mapping.file.starts_with(name)) {
            let key = (mapping.start, database);
            let segment = found.entry(key).or_insert_with(|| new(process, database, mapping.huge));
            segment.size = segment.size.max(mapping.resident);
        }
    }
    for process in processes {
        let Some(database) = Workload::database_of(process) else { continue };
        let mappings = process.detail.iter().flat_map(|detail| &detail.mappings);
        for mapping in mappings.filter(|mapping| mapping.shared) {
            let huge = mapping.is_huge();
            if huge || mapping.file.starts_with("/dev/zero") {
                let key = (mapping.start, database);
                let segment = found.entry(key).or_insert_with(|| new(process, database, huge));
                if mapping.length >= segment.size {
                    (segment.size, segment.exact) = (mapping.length, true);
                }
            }
        }
    }
    found.into_values().collect()
}

/// Private memory of processes that have other memory in huge pages: they ask for them, and the longest
/// mapping, which the pool's spare pages cannot hold, got base pages. MariaDB and the Java virtual machine
/// fall back so, one mapping at a time and mostly without a word.
fn fallen_back(cx: &Context<'_>, huge: Bytes) -> Vec<Segment> {
    let spare = cx
        .huge_pools()
        .unwrap_or_default()
        .into_iter()
        .find(|pool| pool.size == huge)
        .map_or(0, |p| p.idle());
    let fallen = |process: &Process| {
        let mappings = &process.detail.as_ref()?.mappings;
        mappings.iter().find(|mapping| mapping.is_huge() && !mapping.shared)?;
        let largest = mappings.iter().find(|mapping| mapping.file.is_empty())?;
        (largest.length.units_of(huge) > spare && largest.length >= SCRIPT_MIN).then(|| Segment {
            label: format!("the largest mapping of {}", subject(process)),
            size: largest.length,
            exact: true,
            resident: None,
            shmid: None,
            uid: process.uid,
            database: Workload::of_name(&process.stat.name),
            mappers: 1,
            backing: Backing::Base,
        })
    };
    cx.processes().unwrap_or_default().iter().filter_map(fallen).collect()
}

/// How many pages the pool of the default size lacks that was made for a segment of System V and is a little
/// too small: nobody has a page of it, and it has at least nine tenths of what the segment needs. A segment
/// gets all of its huge pages or none.
fn just_missed(pool: &HugePool, segment: &Segment) -> Option<u64> {
    let needed = segment.size.units_of(pool.size);
    let idle = promised(pool) == 0 && segment.shmid.is_some() && segment.backing == Backing::Base;
    let lacks = needed.checked_sub(pool.total).filter(|lacks| *lacks > 0 && idle)?;
    (lacks.saturating_mul(10) <= needed).then_some(lacks)
}

/// The segment that the pool of a size was made for and is a little too small for, and how many pages it
/// lacks.
pub(crate) fn missed(cx: &Context<'_>, pool: &HugePool) -> Option<(Segment, u64)> {
    if default_size(cx) != Ok(pool.size) {
        return None;
    }
    segments(cx).ok()?.into_iter().find_map(|segment| {
        let lacks = just_missed(pool, &segment)?;
        Some((segment, lacks))
    })
}

/// Memory in base pages that belongs into a huge page pool: segments of at least 4 GiB, all segments of a
/// database that has one of at least 100 MiB, and what the pool was asked to hold and could not.
pub(crate) fn candidates(cx: &Context<'_>, huge: Bytes) -> Result<Vec<Segment>, Skip> {
    let all = segments(cx)?;
    let users: BTreeSet<u32> = (all.iter())
        .filter(|s| s.backing == Backing::Base && s.database.is_some() && s.size >= SCRIPT_MIN)
        .filter_map(|s| s.uid)
        .collect();
    let pools = cx.huge_pools().unwrap_or_default();
    let pool = pools.iter().find(|pool| pool.size == huge);
    let wanted = |s: &Segment| {
        let of_database = s.database.is_some() && s.uid.is_some_and(|uid| users.contains(&uid));
        let missed = pool.and_then(|pool| just_missed(pool, s)).is_some();
        s.backing == Backing::Base && s.size >= huge && (s.size >= LARGE || of_database || missed)
    };
    let mut found: Vec<Segment> = all.into_iter().filter(wanted).chain(fallen_back(cx, huge)).collect();
    found.sort_by_key(|segment| std::cmp::Reverse(segment.size));
    Ok(found)
}

/// `once`, `2 times`, with grouped thousands.
pub(crate) fn times(n: u64) -> String {
    if n == 1 { "once".to_owned() } else { format!("{} times", Grouped(n)) }
}

/// `1 page`, `2 pages`, with grouped thousands.
pub(crate) fn count(pages: u64) -> String {
    format!("{} {}", Grouped(pages), if pages == 1 { "page" } else { "pages" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(total: u64, free: u64, reserved: u64) -> HugePool {
        HugePool { size: Bytes::mib(2), total, free, reserved, ..HugePool::default() }
    }

    fn segment(size: Bytes) -> ShmSegment {
        ShmSegment { key: 0x40, size, nattch: 1, ..ShmSegment::default() }
    }

    #[test]
    fn a_segments_pages_follow_from_what_maps_it_or_from_arithmetic() {
        let judge = |segment: &ShmSegment, mapped: &[(u32, (bool, bool))], pool: HugePool, explained| {
            backing(segment, &mapped.iter().copied().collect(), Some(&[pool]), explained)
        };
        let gib = segment(Bytes::gib(1));
        // No page is promised, so none is huge, whatever else is mapped with that key.
        assert_eq!(judge(&gib, &[(0x40, (true, false))], pool(1024, 1024, 0), false), Backing::Base);
        assert_eq!(judge(&gib, &[(0x40, (true, false))], pool(1024, 600, 0), false), Backing::Huge);
        assert_eq!(judge(&gib, &[(0x40, (false, true))], pool(1024, 100, 0), false), Backing::Base);
        // 424 pages are promised; the segment would need 512.
        assert_eq!(judge(&gib, &[], pool(1024, 700, 100), false), Backing::Base);
        assert_eq!(judge(&gib, &[], pool(1024, 400, 0), false), Backing::Unknown);
        assert_eq!(judge(&gib, &[], pool(1024, 512, 0), true), Backing::Huge);
        // 6.18 prints 2 GiB for two pages of 2 MiB.
        let small = ShmSegment { rss: Some(Bytes::gib(2)), ..segment(Bytes::mib(5)) };
        assert_eq!(judge(&small, &[], pool(4, 2, 1), false), Backing::Huge);
        assert_eq!(backing(&gib, &BTreeMap::new(), None, false), Backing::Unknown);
    }

    #[test]
    fn a_boot_parameter_of_another_size_is_left_alone() {
        let boot = |cmdline: &str, size: Bytes| {
            let mut now = lotsfree_snapshot::Snapshot::default();
            now.host.cmdline = Some(cmdline.to_owned());
            let mut meminfo = lotsfree_kernel_files::counters::Values::default();
            meminfo.set(m::Hugepagesize, 2048);
            now.meminfo = Some(meminfo);
            let observation = lotsfree_snapshot::Observation::instant("test", now);
            boot_pages(&Context::new(&observation), size).map(str::to_owned)
        };
        let (small, large) = (Bytes::mib(2), Bytes::gib(1));
        assert_eq!(boot("ro hugepagesz=1G hugepages=4 quiet", small), None);
        assert_eq!(boot("ro hugepagesz=1G hugepages=4 quiet", large).as_deref(), Some("4"));
        assert_eq!(boot("hugepages=64 hugepagesz=1G hugepages=4", small).as_deref(), Some("64"));
        assert_eq!(boot("hugepagesz=2M hugepages=0:5,1:6", small).as_deref(), Some("0:5,1:6"));
    }

    #[test]
    fn segments_explain_a_pool_only_exactly() {
        let all = [segment(Bytes::mib(8194)), segment(Bytes::mib(1538)), segment(Bytes::kib(4))];
        assert!(explain(&[pool(4868, 28, 26)], all.iter()));
        assert!(!explain(&[pool(4868, 28, 25)], all.iter()));
        assert!(!explain(&[pool(0, 0, 0)], [].iter()));
    }

    #[test]
    fn granules_of_one_instance_are_one_name() {
        assert_eq!(shared_name("/dev/shm/ora_PROD_163840_17"), "/dev/shm/ora_PROD_163840");
        assert_eq!(shared_name("/SYSV40000001 (deleted)"), "/SYSV40000001");
        assert_eq!(shared_name("/dev/shm/PostgreSQL.1"), "/dev/shm/PostgreSQL.1");
    }
}
