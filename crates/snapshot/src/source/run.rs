//! A run presented as files of `/proc` and `/sys`, for the doctor.

use std::sync::Arc;

use lotsfree_kernel_files::File as _;
use lotsfree_kernel_files::counters::{Values, Vmstat, status};
use lotsfree_kernel_files::file::node::{print_cpulist, print_distance, print_meminfo};
use lotsfree_kernel_files::file::process::{ProcessLimits, Stat, StatusFile};
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_run::{Attached, Event, EventKind, Facts, ProcessSample, Run, Sample, Window};
use lotsfree_units::Bytes;

use super::{Input, Kind, MOST_SAMPLES, MemorySource, Source};

/// The name of the control group of a run's actors, without the random letters that the lab gives it.
const GROUP: &str = "lotsfree-lab-run";

/// Selection of the samples of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instants {
    /// The samples of the window that the scenario measures; the last two if it names none.
    #[default]
    Measured,
    /// The last two samples: the state at the end.
    LastTwo,
    /// The samples of a window of the run, and the last one before it.
    Window(Window),
    /// All samples.
    All,
}

/// The run as files that a collector reads, at several instants; `None` if there is no sample. A run with
/// more than [`MOST_SAMPLES`] samples is thinned evenly.
pub fn input(run: &Run, instants: Instants) -> Option<Input> {
    let times = run.samples().times();
    let last_two = || times.len().saturating_sub(2)..times.len();
    let rows = match instants {
        Instants::All => 0..times.len(),
        Instants::LastTwo => last_two(),
        Instants::Window(window) => run.samples().rows(window),
        Instants::Measured => match run.facts().measure.window {
            Some(window) => run.samples().rows(window),
            None => last_two(),
        },
    };
    // The run never reached the window.
    let rows = if rows.is_empty() { last_two() } else { rows };
    let count = rows.len();
    let kept = count.min(MOST_SAMPLES);
    let start = *times.get(rows.start)?;
    let common = Arc::new(common(run));
    let instant = |number: usize| {
        let row = rows.start + if kept < 2 { 0 } else { number * (count - 1) / (kept - 1) };
        let sample = run.samples().get(row)?;
        let seconds = sample.at.saturating_sub(start) as f64 / 1e9;
        let source = files(&sample, run.facts()).lie_over(Arc::clone(&common));
        Some((seconds, Box::new(source) as Box<dyn Source>))
    };
    let mut notes = run.remarks().to_vec();
    if kept < count {
        notes.push(format!("{kept} of {count} samples are looked at, evenly spaced"));
    }
    let label = run.directory().map_or_else(|| run.facts().title.clone(), |d| d.display().to_string());
    Some(Input {
        label,
        kind: Kind::Series,
        samples: (0..kept).filter_map(instant).collect(),
        notes,
        manifest: None,
    })
}

/// The text that a printer writes.
fn text(print: impl FnOnce(&mut String)) -> String {
    let mut out = String::new();
    print(&mut out);
    out
}

/// The files that are the same at every instant.
fn common(run: &Run) -> MemorySource {
    let facts = run.facts();
    let mut source = MemorySource::default();
    let log = kernel_log(run);
    if !log.is_empty() {
        source.insert("dev/kmsg", log);
    }
    for (path, contents) in &facts.files {
        source.insert(path.as_str(), contents.as_bytes());
    }
    for (name, value) in &facts.sysctls {
        source.insert(format!("proc/sys/{}", name.replace('.', "/")), format!("{value}\n"));
    }
    if !facts.osrelease.is_empty() {
        source.insert("proc/sys/kernel/osrelease", format!("{}\n", facts.osrelease));
    }
    let online = match facts.cpus {
        0 | 1 => "0\n".to_owned(),
        cpus => format!("0-{}\n", cpus - 1),
    };
    source.insert("sys/devices/system/cpu/online", online);
    for node in &facts.nodes {
        let directory = format!("sys/devices/system/node/node{}", node.id);
        source.insert(format!("{directory}/cpulist"), text(|out| print_cpulist(&node.cpus, out)));
        source.insert(format!("{directory}/distance"), text(|out| print_distance(&node.distance, out)));
    }
    source
}

/// The kernel log of a run of the model, whose kernel says whom it kills. What became of an actor of the lab
/// is told in other words.
fn kernel_log(run: &Run) -> String {
    let begin = (run.facts().uptime * 1e6) as u64;
    const BEGIN: [&str; 4] = ["Out of memory", "Killed process ", "oom-kill:", "Kernel panic"];
    let is_message = |event: &&Event| {
        matches!(event.kind, EventKind::OomKill | EventKind::Note | EventKind::Error)
            && BEGIN.iter().any(|begin| event.what.starts_with(begin))
    };
    let messages = run.events().iter().filter(is_message);
    let lines = messages.enumerate().map(|(number, event)| {
        let at = begin.saturating_add(event.at / 1000);
        format!("3,{number},{at},-;{}\n", event.what)
    });
    lines.collect()
}

/// The files of one instant, as the kernel prints them.
fn files(sample: &Sample, facts: &Facts) -> MemorySource {
    let Sample { at, meminfo, vmstat, zones, nodes, swaps, processes, segments, .. } = sample;
    let mut source = MemorySource::default();
    source.insert("proc/meminfo", text(|out| meminfo.print(out)));
    source.insert("proc/vmstat", text(|out| vmstat.print(out)));
    source.insert("proc/zoneinfo", text(|out| zones.print(out)));
    source.insert("proc/swaps", text(|out| Vec::<SwapArea>::print(swaps, out)));
    source.insert("proc/uptime", format!("{:.2}\n", facts.uptime + *at as f64 / 1e9));
    for node in nodes {
        let directory = format!("sys/devices/system/node/node{}", node.id);
        source.insert(format!("{directory}/meminfo"), text(|out| print_meminfo(node.id, &node.meminfo, out)));
        source.insert(format!("{directory}/numastat"), text(|out| node.numastat.print(out)));
        let vmstat = node_vmstat(zones, node.id);
        if !vmstat.is_empty() {
            source.insert(format!("{directory}/vmstat"), text(|out| vmstat.print(out)));
        }
    }
    if !sample.group.is_empty() {
        in_group(sample, &mut source);
    }
    for process in processes {
        of_process(process, segments, facts, &mut source);
    }
    // A run of an older lotsfree has neither, and knows nothing of segments.
    if !(processes.is_empty() && segments.is_empty()) {
        source.insert("proc/sysvipc/shm", text(|out| segments.print(out)));
    }
    source
}

/// The files of a process. Root owns it, and it sleeps.
fn of_process(process: &ProcessSample, segments: &[ShmSegment], facts: &Facts, source: &mut MemorySource) {
    let ProcessSample { pid, name, status, capabilities, faults, limits, attached } = process;
    let directory = format!("proc/{pid}");
    let [minor_faults, major_faults] = faults.unwrap_or_default();
    let size = |counter| Bytes::kib(status.get(counter).unwrap_or(0));
    let stat = Stat {
        pid: *pid,
        name: name.clone(),
        state: 'S',
        ppid: 1,
        threads: 1,
        minor_faults,
        major_faults,
        start_ticks: (facts.uptime * 100.0) as u64,
        virtual_size: size(status::VmSize),
        rss_pages: size(status::VmRSS).0 / facts.page_size.max(1),
        ..Stat::default()
    };
    source.insert(format!("{directory}/stat"), text(|out| stat.print(out)));
    let status = StatusFile {
        values: status.clone(),
        uid: Some(0),
        capabilities: *capabilities,
        ..StatusFile::default()
    };
    source.insert(format!("{directory}/status"), text(|out| status.print(out)));
    // Hard limits are not recorded.
    let [locked_memory, address_space, data] =
        [limits.memlock, limits.address_space, limits.data].map(|soft| Some((soft?, soft?)));
    if locked_memory.is_some() {
        let limits = ProcessLimits { locked_memory, address_space, data, ..ProcessLimits::default() };
        source.insert(format!("{directory}/limits"), text(|out| limits.print(out)));
    }
    let mapping = |of: &Attached| {
        let ShmSegment { key, shmid, size, .. } =
            segments.iter().find(|segment| segment.shmid == of.shmid)?;
        let end = of.address.checked_add(size.0)?;
        Some(format!("{:x}-{end:x} rw-s 00000000 00:01 {shmid} /SYSV{key:08x} (deleted)\n", of.address))
    };
    let maps: String = attached.iter().filter_map(mapping).collect();
    source.insert(format!("{directory}/maps"), maps);
}

/// The files of the control group in which the actors were, of the version that its counters show.
fn in_group(sample: &Sample, source: &mut MemorySource) {
    let Sample { group, events, failcnt, .. } = sample;
    let root = if failcnt.is_some() { "sys/fs/cgroup/memory" } else { "sys/fs/cgroup" };
    let directory = format!("{root}/{GROUP}");
    source.insert(format!("{directory}/memory.stat"), text(|out| group.print(out)));
    match failcnt {
        Some(hits) => {
            source.insert(format!("{root}/memory.stat"), "");
            source.insert(format!("{directory}/memory.failcnt"), format!("{hits}\n"));
        }
        None => {
            source.insert("sys/fs/cgroup/cgroup.controllers", "memory\n");
            source.insert(format!("{directory}/memory.events"), text(|out| events.print(out)));
        }
    }
}

/// A node's `vmstat`: the sums of its zones' statistics, and the node's own
/// (`drivers/base/node.c:node_read_vmstat`).
fn node_vmstat(zones: &[Zone], node: u32) -> Values<Vmstat> {
    let mut sum = Values::default();
    for zone in zones.iter().filter(|zone| zone.node == node) {
        for (counter, value) in zone.stats.iter() {
            sum.set(counter, sum.get(counter).unwrap_or(0).saturating_add(value));
        }
        for (counter, value) in zone.node_stats.iter().flat_map(Values::iter) {
            sum.set(counter, value);
        }
    }
    sum
}
