use std::collections::BTreeMap;

use lotsfree_formulas::pagetables::{ENTRY_BYTES, touched_per_process};
use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Percent};

use crate::finding::subject;
use crate::huge::{self, Backing};
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload, advice,
};

rule! {
    /// Page tables take a noticeable part of memory.
    ///
    /// # Sees
    /// `PageTables` in `/proc/meminfo` as a share of `MemTotal` without the huge page pools; with processes
    /// readable, `VmPTE` of each, added up for the processes that map the same shared memory, and the
    /// attached segments. Where they are little beside the host's memory, those of one program's processes
    /// beside the mapping that they share: 25 % and 64 MiB are worth a word.
    ///
    /// # Hurts
    /// Each process that touches a 2 MiB range of shared memory keeps a page table of its own for it: 2 MiB
    /// per GiB and process. 400 sessions on a 34 GiB SGA can need 26 GiB. The tables cannot be swapped or
    /// reclaimed, reclaim has to walk every one of them to evict a shared page, and they push the useful
    /// entries out of the CPU caches. Private memory alone never needs more than 0.2 % (8 bytes for 4096).
    ///
    /// # Remedies
    /// A huge page pool for the shared segments (one table page maps 1 GiB instead of 2 MiB); fewer
    /// processes (a connection pool); for tmpfs-backed memory `shmem_enabled=advise` with `MADV_HUGEPAGE`.
    ///
    /// # False alarms
    /// Transparent huge pages for private memory are not proposed: the kernel keeps a page table in reserve
    /// for each, so they save none (measured: 2,052 kB per GiB with and without). Thousands of small
    /// processes without shared memory have large tables too: there no huge pages are proposed.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/hugetlbpage.rst`; Oracle MOS 361323.1; measured: 1 GiB attached by 20
    /// processes takes 42,460 kB of page tables with 4 KiB pages and 1,612 kB with 2 MiB pages.
    pub PagetableBloat = "pagetable-bloat" in HugePages
}

/// Above the 0.2 % that private memory can need, with room for libraries that everybody maps (memstate
/// warns here too).
const WARN: f64 = 0.02;
/// From here on it is a cost; below, a remark.
const COSTS: f64 = 0.03;
/// Half of what the two systems of the Oracle article lost.
const HIGH: f64 = 0.05;
/// What those two systems lost: 9.7 % and 9.1 %.
const CRITICAL: f64 = 0.09;
/// Page tables that a process keeps for its own code, heap and stack when shared memory is in huge pages
/// (measured, 6.18).
const OWN_TABLES: Bytes = Bytes::kib(80);
/// Half of the tables: less is not what makes them large.
const MOSTLY: f64 = 0.5;
/// Less than this available is a shortage.
const SHORT: f64 = 0.10;
/// Where the size of memory is not told: 0.2 % of 1 TiB.
const MUCH: Bytes = Bytes::gib(2);
/// Page tables from this share of what is mapped on are worth a word, however little of the host they take:
/// those of 128 processes, each of which has touched all of it.
const MUCH_BESIDE: f64 = 0.25;
/// Less than this is not worth it.
const LEAST_BESIDE: Bytes = Bytes::mib(64);
/// Groups of processes that are shown.
const SHOWN: usize = 3;

/// Whether next to nothing is available: the tables are then what programs lack.
fn short(cx: &Context<'_>) -> bool {
    let available = cx.available();
    available.zip(cx.total().ok()).is_some_and(|(available, total)| available.bytes.share_of(total) < SHORT)
}

impl Rule for PagetableBloat {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let tables = cx.mem(m::PageTables)?;
        let ordinary = match cx.total_without_pools() {
            Ok(ordinary) => ordinary,
            Err(_) if tables >= MUCH => return Ok(vec![alone(cx, tables)]),
            Err(skip) => return Err(skip),
        };
        let share = tables.share_of(ordinary);
        if share < WARN {
            return Ok(beside(cx).into_iter().collect());
        }
        let severity = Severity::ladder(
            &[
                (share >= CRITICAL && short(cx), Severity::Critical),
                (share >= HIGH, Severity::High),
                (share >= COSTS, Severity::Warning),
            ],
            Severity::Info,
        );
        let have = match cx.pool_bytes() {
            Bytes::ZERO => "there are no huge pages".to_owned(),
            pool => format!("the huge page pool holds {pool}"),
        };
        let huge_page = huge::page_name(cx.now().host.page_size.pmd_huge());
        let (saved, arithmetic) = saving(cx, tables);
        let listed = listed_tables(cx).filter(|listed| listed.share_of(tables) < MOSTLY);
        let of_what = match cx.pool_bytes() {
            Bytes::ZERO => "of memory",
            _ => "of memory outside the pool",
        };
        let title = format!("page tables take {tables:#}, {} {of_what}, and {have}", Percent(share));
        // A pool takes in shared memory only.
        let shared = shared_tables(cx, tables);
        let private = shared.is_some_and(|shared| shared.share_of(tables) < MOSTLY);
        let cost = match shared.filter(|_| private) {
            Some(shared) => Cost::memory(
                tables,
                cx.total()?,
                format!("mostly of private memory and files: of shared memory are {shared} at most"),
            ),
            None => match listed {
                Some(listed) => Cost::memory(
                    saved,
                    cx.total()?,
                    format!("of which the segments that are listed explain {listed:#} at most"),
                ),
                None => Cost::memory(saved, cx.total()?, format!("{huge_page} pages would free it")),
            },
        };
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding
            .sure(Confidence::Likely)
            .because(cx.saw_mem(m::PageTables).against(
                format!("at least {} of memory", Percent(WARN)),
                "private memory needs 0.2 % at most",
            ))
            .because(cx.saw_mem(m::MemTotal));
        if cx.mem_count(m::HugePages_Total).is_ok() {
            finding.because(cx.saw_mem(m::HugePages_Total));
        }
        let segments = huge::segments(cx).unwrap_or_default();
        let shared = segments.iter().filter(|s| s.backing == Backing::Base && s.mappers > 1);
        for segment in shared.take(SHOWN) {
            finding.because(segment.evidence());
        }
        for evidence in sharers(cx).into_iter().take(SHOWN) {
            finding.because(evidence);
        }
        if private {
            finding
                .remedy(
                    Remedy::new(
                        "Run fewer processes, or let each map less (workers, threads instead of processes)",
                    )
                    .risk("An application change."),
                )
                .note(
                    "Huge pages are no remedy here: a pool takes in shared segments, and transparent huge \
                     pages keep a page table in reserve for each.",
                );
            return Ok(vec![finding]);
        }
        finding.note(arithmetic).note_if(listed.map(|listed| {
            format!(
                "Touched as a whole by all that attach to them, the segments that are listed have {listed:#} of page tables. \
                 The rest is of other memory: another instance, files, or more sessions when the tables were read."
            )
        }));
        add_remedies(&mut finding, cx, tables, ordinary, &segments);
        Ok(vec![finding])
    }
}

/// The most page tables that the listed System V segments can have, where no process was read: all of each,
/// for all that attach to it.
fn listed_tables(cx: &Context<'_>) -> Option<Bytes> {
    let (segments, page) = (cx.shm().ok().filter(|_| cx.processes().is_err())?, cx.now().host.page_size);
    let entries = page.bytes().0 / ENTRY_BYTES;
    let tables = |size: Bytes| page.bytes().times(size.units_of(page.bytes().times(entries)));
    let attached = segments.iter().filter(|segment| segment.nattch > 0);
    let all: Bytes = attached.map(|segment| tables(segment.size).times(segment.nattch)).sum();
    (all > Bytes::ZERO).then_some(all)
}

/// Shared memory whose page tables are much beside it, though little beside the host's memory.
struct Beside<'a> {
    program: &'a str,
    file: &'a str,
    size: Bytes,
    processes: u64,
    tables: Bytes,
}

/// The finding about the mapping whose page tables are largest, where they reach [`MUCH_BESIDE`] of its size.
fn beside(cx: &Context<'_>) -> Option<Finding> {
    let most = mapped_by_many(cx).into_iter().max_by_key(|found| found.tables)?;
    let Beside { program, file, size, processes, tables } = most;
    let share = Percent(tables.share_of(size));
    let file = huge::shared_name(file);
    let mut finding = Finding::new(
        PagetableBloat::ID,
        if tables.share_of(cx.total().ok()?) >= COSTS { Severity::Warning } else { Severity::Info },
        format!(
            "{processes} processes of {program} have {tables} of page tables for the {size} of {file}, {share} of it"
        ),
        Cost::memory(tables, cx.total().ok()?, "it grows with each further process"),
    );
    finding
        .sure(Confidence::Likely)
        .because(
            Evidence::new("/proc/PID/status", "VmPTE", format!("{tables:#}"))
                .of(format!("{processes} processes of {program}"))
                .against(
                    format!("at most {} of what they share", Percent(MUCH_BESIDE)),
                    "128 processes in base pages",
                ),
        )
        .because(Evidence::new("/proc/PID/maps", "length", format!("{size:#}")).of(file));
    if file.starts_with("/dev/shm/") {
        finding.remedy(huge_tmpfs(file));
    } else if advice::huge_pool_allowed(cx).is_ok() && Workload::of_name(program).is_some() {
        finding.remedy(pooled(cx));
    }
    finding.remedy(
        Remedy::new("Let fewer processes map it")
            .risk("An application change; page tables shrink in proportion to the processes."),
    );
    Some(finding)
}

/// Mappings that several processes of one program share in base pages. Of the largest processes the mappings
/// are known, of all others of that name the page tables.
fn mapped_by_many<'a>(cx: &Context<'a>) -> Vec<Beside<'a>> {
    let processes = cx.processes().unwrap_or_default();
    let mut mappers: BTreeMap<(&str, &str), (Bytes, u64)> = BTreeMap::new();
    for process in processes {
        // A process may map a file more than once, whole or in parts.
        let mut own: BTreeMap<&str, Bytes> = BTreeMap::new();
        for mapping in process.detail.iter().flat_map(|detail| &detail.mappings) {
            if mapping.shared && !mapping.is_huge() && !mapping.file.is_empty() {
                let longest = own.entry(&mapping.file).or_default();
                *longest = (*longest).max(mapping.length);
            }
        }
        for (file, length) in own {
            let found = mappers.entry((&process.stat.name, file)).or_default();
            *found = (found.0.max(length), found.1 + 1);
        }
    }
    let beside = |((program, file), (size, known)): ((&'a str, &'a str), (Bytes, u64))| {
        let named = processes.iter().filter(|process| &*process.stat.name == program);
        let own = |process: &Process| process.memory_or_zero(s::VmPTE) - OWN_TABLES;
        let tables: Vec<Bytes> = named.map(own).filter(|tables| *tables > Bytes::ZERO).collect();
        Beside {
            program,
            file,
            size,
            processes: (tables.len() as u64).max(known),
            tables: tables.into_iter().sum(),
        }
    };
    let mut found: Vec<Beside<'a>> =
        mappers.into_iter().filter(|(_, (_, known))| *known > 1).map(beside).collect();
    found.retain(|found| found.tables >= LEAST_BESIDE && found.tables.share_of(found.size) >= MUCH_BESIDE);
    found
}

/// Page tables alone, of a host whose size is not told.
fn alone(cx: &Context<'_>, tables: Bytes) -> Finding {
    let mut finding = Finding::new(
        PagetableBloat::ID,
        Severity::High,
        format!("page tables take {tables}: many processes map the same memory in small pages"),
        Cost::risk("memory that neither programs nor the page cache have"),
    );
    finding
        .sure(Confidence::Likely)
        .because(cx.saw_mem(m::PageTables).against(format!("at most {MUCH}"), "0.2 % of 1 TiB"))
        .note("How much of memory that is, MemTotal would tell.")
        .remedy(
            Remedy::new("Put the memory that they share into huge pages, or let fewer processes map it")
                .run("grep -E 'MemTotal|HugePages|PageTables' /proc/meminfo; ipcs -m")
                .run(cx.size_hugepages())
                .risk("None: these only read."),
        );
    finding
}

fn add_remedies(
    finding: &mut Finding,
    cx: &Context<'_>,
    tables: Bytes,
    ordinary: Bytes,
    segments: &[huge::Segment],
) {
    // A table of base pages maps as many of them as it has entries.
    let entries = cx.now().host.page_size.bytes().0 / ENTRY_BYTES;
    let times = tables.as_f64() * entries as f64 / ordinary.as_f64();
    finding.note(format!(
        "The tables could map all ordinary memory {times:.0} times: the same pages are mapped by many \
         processes."
    ));
    if let Some(segment) = segments.iter().find(|s| s.backing == Backing::Base) {
        let touched = touched_per_process(tables, segment.mappers, cx.now().host.page_size);
        if let Some(touched) = touched.filter(|touched| *touched <= segment.size) {
            finding.note(format!(
                "Were they all for {} ({}, mapped {}), each process would have touched {touched} of it, {}.",
                segment.label,
                segment.size,
                huge::times(segment.mappers),
                Percent(touched.share_of(segment.size))
            ));
        }
    }
    if let Some(file) = tmpfs_file(cx, segments) {
        finding.remedy(huge_tmpfs(&file)).remedy(
            Remedy::new("Let fewer processes map the file")
                .risk("An application change; page tables shrink in proportion to the processes."),
        );
        return;
    }
    match advice::huge_pool_allowed(cx) {
        Ok(()) => finding.remedy(pooled(cx)),
        Err(why) => finding.note(format!("A huge page pool is not proposed: {why}.")),
    };
    finding.remedy(
        Remedy::new("Let fewer processes map the segment (a connection pool, shared server)")
            .risk("An application change; page tables shrink in proportion to the sessions."),
    );
}

/// The file in `/dev/shm` that most processes map, where no System V segment is shared: a pool does not
/// take it in.
fn tmpfs_file(cx: &Context<'_>, segments: &[huge::Segment]) -> Option<String> {
    if segments.iter().any(|segment| segment.backing == Backing::Base && segment.mappers > 1) {
        return None;
    }
    let mut mappers: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, mapping) in huge::mappings(cx).filter(|(_, mapping)| mapping.file.starts_with("/dev/shm/")) {
        *mappers.entry(&mapping.file).or_default() += 1;
    }
    let (file, count) = mappers.into_iter().max_by_key(|(_, count)| *count)?;
    (count > 1).then(|| file.to_owned())
}

/// Huge pages for the files of a tmpfs, from 4.8 on.
fn huge_tmpfs(file: &str) -> Remedy {
    Remedy::new(format!("Let {file} have transparent huge pages, which a pool cannot give it"))
        .run("mount -o remount,huge=within_size /dev/shm")
        .keep("/etc/fstab", "tmpfs /dev/shm tmpfs defaults,huge=within_size 0 0")
        .undo_with("mount -o remount,huge=never /dev/shm")
        .risk("It counts for what is written from then on: the file has to be made anew. Files take whole huge pages.")
        .restart("the programs that map it")
}

/// How much of `tables` can be of shared memory: no process has more tables for it than it has pages of it,
/// since each table maps at least one. `None` where the processes that were read do not account for the
/// tables, or the kernel does not count shared pages by process (before 4.5).
fn shared_tables(cx: &Context<'_>, tables: Bytes) -> Option<Bytes> {
    let processes = cx.processes().ok()?;
    let all: Bytes = processes.iter().map(|p| p.memory_or_zero(s::VmPTE)).sum();
    if all.share_of(tables) < MOSTLY || processes.iter().all(|p| p.memory(s::RssShmem).is_none()) {
        return None;
    }
    // Shared memory that was swapped out keeps its tables: none of that is seen by process.
    if cx.shm().unwrap_or_default().iter().any(|segment| segment.swap.is_some_and(|swap| swap > Bytes::ZERO))
    {
        return None;
    }
    Some(processes.iter().map(|p| p.memory_or_zero(s::VmPTE).min(p.memory_or_zero(s::RssShmem))).sum())
}

/// What 2 MiB pages would save of `tables`, and how that is worked out.
fn saving(cx: &Context<'_>, tables: Bytes) -> (Bytes, String) {
    let entries = cx.now().host.page_size.bytes().0 / ENTRY_BYTES;
    let huge_page = huge::page_name(cx.now().host.page_size.pmd_huge());
    // One PMD entry takes the place of a page table.
    let upper = Bytes(tables.0 / entries);
    let heavy = |p: &&Process| p.memory_or_zero(s::VmPTE) > OWN_TABLES.times(2);
    let Ok(processes) = cx.processes() else {
        let saved = tables - upper;
        let text = format!(
            "{tables:#} / {entries} = {upper:#} of PMD entries: {huge_page} pages would free up to \
             {tables:#} - {upper:#} = {saved:#} ({saved}), less some {OWN_TABLES:#} per process for its own \
             code, heap and stack"
        );
        return (saved, text);
    };
    let n = processes.iter().filter(heavy).count() as u64;
    let remaining = upper + OWN_TABLES.times(n);
    let saved = tables - remaining;
    let text = format!(
        "{tables:#} / {entries} = {upper:#} of PMD entries, plus {n} processes x {OWN_TABLES:#} for their \
         own code, heap and stack: {huge_page} pages would free {tables:#} - {remaining:#} = {saved:#} \
         ({saved})"
    );
    (saved, text)
}

/// `VmPTE` of the processes that map the same shared memory in base pages, largest sum first; of single
/// processes where no `numa_maps` was read.
fn sharers(cx: &Context<'_>) -> Vec<Evidence> {
    let mut groups: BTreeMap<&str, BTreeMap<u32, Bytes>> = BTreeMap::new();
    for (process, mapping) in huge::mappings(cx) {
        if !mapping.huge && huge::is_shared(&mapping.file) {
            let tables = process.memory_or_zero(s::VmPTE);
            groups.entry(huge::shared_name(&mapping.file)).or_default().insert(process.stat.pid, tables);
        }
    }
    let mut sums: Vec<(Bytes, String)> = (groups.into_iter())
        .filter(|(_, tables)| tables.len() > 1)
        .map(|(file, tables)| {
            (
                tables.values().copied().sum(),
                format!("the {} largest processes that map {file}", tables.len()),
            )
        })
        .collect();
    if sums.is_empty() {
        let large =
            cx.processes().unwrap_or_default().iter().filter(|p| p.memory_or_zero(s::VmPTE) > OWN_TABLES);
        sums = large.map(|p| (p.memory_or_zero(s::VmPTE), subject(p))).collect();
    }
    sums.sort_by_key(|(tables, _)| std::cmp::Reverse(*tables));
    let evidence = |(tables, of)| Evidence::new("/proc/PID/status", "VmPTE", format!("{tables:#}")).of(of);
    sums.into_iter().map(evidence).collect()
}

/// The pool that would take the shared segments in.
fn pooled(cx: &Context<'_>) -> Remedy {
    let title = "Put the shared segments into a huge page pool";
    let pool = huge::default_size(cx).ok().and_then(|size| {
        let pools = cx.huge_pools().ok()?;
        Some(pools.into_iter().find(|p| p.size == size).unwrap_or(HugePool { size, ..HugePool::default() }))
    });
    let remedy = match (advice::nr_hugepages(cx), pool) {
        (Ok(advice), Some(pool)) if advice.value > pool.total => huge::resize(cx, &pool, advice.value, title),
        // The segments were not read, or are too large for a pool: no figure without them.
        _ => Remedy::new(title).run(cx.size_hugepages()),
    };
    let risk = "The pool is lost to everything else at once; too large a pool makes the host swap.";
    huge::adopted(cx, remedy.risk(risk))
}
