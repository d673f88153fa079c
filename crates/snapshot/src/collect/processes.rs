//! Processes: a few cheap files of each, and more of the largest.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use lotsfree_kernel_files::ProblemKind;
use lotsfree_kernel_files::counters::{meminfo, status as s};
use lotsfree_kernel_files::file::process::{self, Detail, NumaMaps, Process, Stat, Statm};
use lotsfree_units::{Bytes, PageSize};

use super::Options;
use super::reader::Reader;
use crate::Snapshot;
use crate::source::Holder;

/// Details are read of at most this many processes, the largest.
const LARGEST: usize = 48;
/// Mappings are counted for this many processes, because `maps` has a line for each.
const MAPPINGS_COUNTED: usize = 16;
/// Smaller processes are not looked at closely.
const SMALL: Bytes = Bytes::mib(8);
/// Open files are not looked at while shared memory and huge pages together are below this, the least that a
/// rule names.
const SHARED: Bytes = Bytes::mib(64);
/// A process counts as a writer from this many bytes on (a copy or backup job soon exceeds it).
const WRITER: u64 = 1 << 20;
/// Cost of walking page tables per GiB that is resident in 4 KiB pages (measured on 6.18: 6 ms).
const WALK_PER_GIB: Duration = Duration::from_millis(6);
/// A bound on processes: Linux has no more process ids (`PID_MAX_LIMIT`).
const MOST: usize = 1 << 22;
/// Kernel threads that are kept for their CPU time.
const KERNEL_THREADS: &[&str] = &["kswapd", "khugepaged", "ksmd", "kcompactd"];

pub(super) fn collect(reader: &mut Reader<'_>, snapshot: &mut Snapshot, options: &Options) {
    let Some(names) = reader.list("proc") else { return };
    let pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).take(MOST).collect();
    drop(names);
    if pids.is_empty() {
        return;
    }
    let mut processes = Vec::with_capacity(pids.len());
    let page = snapshot.host.page_size;
    let mut path = String::with_capacity(40);
    for pid in pids {
        if let Some(process) = glance(reader, pid, page, &mut path) {
            processes.push(process);
        }
    }
    processes.shrink_to_fit();
    let huge =
        snapshot.meminfo.as_ref().and_then(|meminfo| meminfo.get(meminfo::Hugepagesize)).map(Bytes::kib);
    look_closely(reader, &mut processes, options, page, huge.unwrap_or_else(|| page.pmd_huge()));
    unlinked(reader, &processes, snapshot, options);
    snapshot.processes = Some(processes);
}

/// Looks at the open files of processes where there is enough shared memory for them to matter, the largest
/// processes first. What only a small process has open is found as well, if the time allows.
fn unlinked(reader: &mut Reader<'_>, processes: &[Process], snapshot: &mut Snapshot, options: &Options) {
    if reader.is_live() && shared(snapshot) < SHARED {
        return;
    }
    let mut order: Vec<&Process> = processes.iter().filter(|p| !p.stat.is_kernel_thread()).collect();
    order.sort_by_key(|process| Reverse(weight(process)));
    let deleted = |process: &Process| {
        let mappings = process.detail.iter().flat_map(|detail| &detail.mappings);
        mappings
            .filter(|mapping| mapping.shared && mapping.file.ends_with(" (deleted)"))
            .filter_map(|mapping| Some((mapping.start, mapping.start.checked_add(mapping.length.0)?)))
            .collect()
    };
    let holders: Vec<Holder> =
        order.iter().map(|process| Holder { pid: process.stat.pid, mappings: deleted(process) }).collect();
    snapshot.unlinked = reader.unlinked(&holders, options.files_budget);
}

/// Shared memory and huge pages that are in use.
fn shared(snapshot: &Snapshot) -> Bytes {
    let pools = snapshot.huge_pools.iter().flatten().map(|pool| pool.size.times(pool.used())).sum::<Bytes>();
    let shmem = snapshot.meminfo.as_ref().and_then(|meminfo| meminfo.get(meminfo::Shmem));
    Bytes::kib(shmem.unwrap_or(0)) + pools
}

fn at<'p>(path: &'p mut String, pid: u32, file: &str) -> &'p str {
    use std::fmt::Write;
    path.clear();
    let _ = write!(path, "proc/{pid}/{file}");
    path
}

/// Reads `stat` of a process. For one with memory of its own it also reads `status` (`statm` if saved data
/// have no `status`) and `oom_score_adj`. A process that ends meanwhile is not a problem.
fn glance(reader: &mut Reader<'_>, pid: u32, page: PageSize, path: &mut String) -> Option<Process> {
    let mut process = Process::default();
    let live = reader.is_live();
    match reader.optional_file::<Stat>(at(path, pid, "stat")) {
        Some(stat) => process.stat = stat,
        None if live => return None,
        None => {}
    }
    process.stat.pid = pid;
    if process.stat.is_kernel_thread() {
        let kept = KERNEL_THREADS.iter().any(|name| process.stat.name.starts_with(name));
        return kept.then_some(process);
    }
    match reader.optional_bytes(at(path, pid, "status")) {
        Some((text, log)) => process::parse_status(text, &mut process, log),
        None if live => return None,
        None => {
            let statm = reader.optional_file::<Statm>(at(path, pid, "statm"))?;
            process.status.set(s::VmSize, page.of(statm.size).as_kib());
            process.status.set(s::VmRSS, page.of(statm.resident).as_kib());
        }
    }
    let adjustment = reader.optional_bytes(at(path, pid, "oom_score_adj"));
    process.oom_score_adj =
        adjustment.and_then(|(text, _)| std::str::from_utf8(text).ok()?.trim().parse().ok());
    Some(process)
}

/// Bytes read from and written to storage.
fn io(reader: &mut Reader<'_>, pid: u32, path: &mut String) -> Option<(u64, u64)> {
    let (text, log) = reader.optional_bytes(at(path, pid, "io"))?;
    process::io::parse_io(text, log)
}

/// Size of a process: memory resident, swapped out, in huge pages, and in page tables.
fn weight(process: &Process) -> Bytes {
    [s::VmRSS, s::VmSwap, s::VmPTE, s::HugetlbPages].iter().map(|&field| process.memory_or_zero(field)).sum()
}

fn look_closely(
    reader: &mut Reader<'_>,
    processes: &mut [Process],
    options: &Options,
    page: PageSize,
    huge: Bytes,
) {
    let mut order: Vec<usize> = (0..processes.len()).filter(|&i| weight(&processes[i]) >= SMALL).collect();
    order.sort_by_key(|&i| Reverse(weight(&processes[i])));
    let (started, mut not_walked) = (Instant::now(), 0u32);
    let mut path = String::with_capacity(40);
    for (rank, &i) in order.iter().take(LARGEST).enumerate() {
        let process = &mut processes[i];
        let pid = process.stat.pid;
        let mut detail = Detail {
            limits: reader.optional_file(at(&mut path, pid, "limits")),
            io: io(reader, pid, &mut path),
            ..Detail::default()
        };
        detail.cgroup = reader
            .optional_bytes(at(&mut path, pid, "cgroup"))
            .and_then(|(text, _)| process::cgroup::memory_group(text));
        if rank < MAPPINGS_COUNTED
            && let Some((text, _)) = reader.optional_bytes(at(&mut path, pid, "maps"))
        {
            detail.maps = Some(text.iter().filter(|&&b| b == b'\n').count() as u64);
            detail.mappings = process::maps::mappings(text);
            detail.granules = process::maps::granules(text);
        }
        let resident = process.memory_or_zero(s::VmRSS);
        let cost = WALK_PER_GIB.mul_f64(resident.share_of(Bytes::gib(1)).min(1e6) * 2.0);
        if !reader.is_live() || started.elapsed() + cost <= options.walk_budget {
            detail.rollup = reader
                .optional_bytes(at(&mut path, pid, "smaps_rollup"))
                .map(|(text, log)| process::parse_rollup(text, log));
            detail.numa = reader
                .optional_bytes(at(&mut path, pid, "numa_maps"))
                .map(|(text, log)| NumaMaps::parse(text, page, huge, log));
        } else {
            not_walked += 1;
        }
        process.detail = Some(Box::new(detail));
    }
    if options.writers {
        for process in processes.iter_mut().filter(|p| p.detail.is_none() && !p.stat.is_kernel_thread()) {
            let io = io(reader, process.stat.pid, &mut path);
            if io.is_some_and(|(_, written)| written >= WRITER) {
                process.detail = Some(Box::new(Detail { io, ..Detail::default() }));
            }
        }
    }
    if not_walked > 0 {
        reader.log().enter("proc/PID/smaps_rollup");
        let detail = format!(
            "{not_walked} of the largest processes: walking their page tables would take longer than {} ms",
            options.walk_budget.as_millis()
        );
        reader.log().whole(ProblemKind::Budget, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect;
    use crate::source::MemorySource;

    #[test]
    fn statm_stands_in_where_a_saved_tree_has_no_status() {
        let mut source = MemorySource::default();
        source.insert("proc/42/statm", "5000 3000 100 5 0 2000 0\n");
        let snapshot = collect(&source, &Options::default());
        let processes = snapshot.processes.unwrap_or_default();
        assert_eq!(processes.len(), 1);
        assert_eq!(processes[0].memory(s::VmRSS), Some(Bytes::kib(12_000)));
        assert_eq!(processes[0].memory(s::VmSwap), None);
    }
}
