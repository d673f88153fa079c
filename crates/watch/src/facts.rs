//! Facts about a kernel that are known before a run begins.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lotsfree_kernel_files::Log;
use lotsfree_kernel_files::file::node::{parse_cpulist, parse_distance};
use lotsfree_run::{Facts, NodeFacts, RunOn};

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
pub fn nodes() -> Vec<NodeFacts> {
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

/// The CPUs that are online; at least one.
pub(crate) fn cpus() -> Vec<u32> {
    let text = fs::read("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpulist(text.trim_ascii(), &mut Log::default());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Facts about the running kernel. What a run is about is left empty: title, variant, interval, duration and
/// what is measured.
pub fn facts(machine: RunOn, remarks: Vec<String>) -> Facts {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = text("/proc/sys/kernel/osrelease");
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
    Facts {
        lotsfree: env!("CARGO_PKG_VERSION").to_owned(),
        machine,
        kernel: release.clone(),
        osrelease: release,
        cpus: u32::try_from(cpus().len()).unwrap_or(u32::MAX),
        page_size: lotsfree_sys::page_size() as u64,
        nodes: nodes(),
        sysctls,
        files: FILES.iter().filter_map(|path| file(path)).collect(),
        remarks,
        uptime: text("/proc/uptime").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0),
        ..Facts::default()
    }
}
