//! Facts about a kernel that are known before a run begins.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lotsfree_kernel_files::Log;
use lotsfree_kernel_files::file::node::{parse_cpulist, parse_distance};
use lotsfree_run::{Facts, Measured, NodeFacts, RunOn, Window};
use lotsfree_scenario::Case;
use lotsfree_workload::quantity::Time;

/// Files of `/proc/sys/vm` that are left out, because they are commands or belong to the observer.
const COMMANDS: [&str; 4] = ["drop_caches", "compact_memory", "stat_refresh", "block_dump"];
/// Other files that decide how the kernel manages memory.
const FILES: [&str; 11] = [
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/shmmax",
    "proc/sys/kernel/shmall",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "sys/kernel/mm/lru_gen/enabled",
    "sys/kernel/mm/lru_gen/min_ttl_ms",
    "sys/module/zswap/parameters/enabled",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "proc/cmdline",
];

/// The NUMA nodes of the running kernel.
pub(crate) fn nodes() -> Vec<NodeFacts> {
    let read = |path: String| fs::read(path).unwrap_or_default();
    let mut log = Log::default();
    let online = parse_cpulist(&read("/sys/devices/system/node/online".to_owned()), &mut log);
    let node = |id| {
        let directory = format!("/sys/devices/system/node/node{id}");
        NodeFacts {
            id,
            cpus: parse_cpulist(&read(format!("{directory}/cpulist")), &mut Log::default()),
            distance: parse_distance(&read(format!("{directory}/distance")), &mut Log::default()),
        }
    };
    online.into_iter().map(node).collect()
}

/// Facts about the running kernel, and about the case that it is going to execute.
pub(crate) fn facts(case: &Case, machine: RunOn, remarks: Vec<String>) -> Facts {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = text("/proc/sys/kernel/osrelease");
    let nodes = nodes();
    let cpus = parse_cpulist(text("/sys/devices/system/cpu/online").as_bytes(), &mut Log::default());
    let mut sysctls = BTreeMap::new();
    for entry in fs::read_dir("/proc/sys/vm").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !COMMANDS.contains(&&*name)
            && let Ok(value) = fs::read_to_string(entry.path())
        {
            sysctls.insert(format!("vm.{name}"), value.trim().to_owned());
        }
    }
    let file = |path: &str| {
        let text = fs::read_to_string(Path::new("/").join(path)).ok()?;
        Some((path.to_owned(), text))
    };
    let window = |(from, to): (Time, Time)| Window { from: from.ns(), to: to.ns() };
    Facts {
        lotsfree: env!("CARGO_PKG_VERSION").to_owned(),
        title: case.title.clone(),
        variant: Some(case.variant.clone()),
        machine,
        kernel: release.clone(),
        osrelease: release,
        cpus: u32::try_from(cpus.len()).unwrap_or(u32::MAX),
        page_size: lotsfree_sys::page_size() as u64,
        nodes,
        sysctls,
        files: FILES.iter().filter_map(|path| file(path)).collect(),
        calibration: None,
        remarks,
        uptime: text("/proc/uptime").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
        interval: case.interval.ns(),
        duration: case.duration.ns(),
        measure: Measured {
            baseline: case.measure.baseline.map(window),
            window: Some(window(case.measure.window)),
        },
    }
}
