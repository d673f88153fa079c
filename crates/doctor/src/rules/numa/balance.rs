//! How memory is spread over the nodes, for several rules.

use lotsfree_kernel_files::counters::{meminfo as m, zoneinfo as z};
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_kernel_files::file::node::Node;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Percent};

use crate::finding::subject;
use crate::remedies::DROP_IN;
use crate::{Context, Evidence, Remedy, Skip};

/// Free share of a node below which it is short (memstate).
pub(super) const SHORT: f64 = 0.1;
/// How many times as much another node has free (memstate).
pub(super) const TIMES: f64 = 2.0;

/// One node's memory, without its huge page pools: what ordinary pages share.
#[derive(Clone, Debug)]
pub(super) struct NodeMemory {
    /// Node number.
    pub(super) id: u32,
    /// `MemTotal` less the pools.
    pub(super) total: Bytes,
    /// `MemFree`.
    pub(super) free: Bytes,
    /// Page cache on the lists, which reclaim can take at once: `Active(file)` and `Inactive(file)`.
    /// `None` where that is not told.
    pub(super) file: Option<Bytes>,
    /// Pools of huge pages.
    pub(super) pools: Bytes,
}

impl NodeMemory {
    fn of(node: &Node) -> Option<NodeMemory> {
        let meminfo = node.meminfo.as_ref()?;
        let kib = |field| meminfo.get(field).map(Bytes::kib);
        let pools: Bytes = node.huge_pools.iter().map(HugePool::bytes).sum();
        let lists =
            kib(m::Active_file).zip(kib(m::Inactive_file)).map(|(active, inactive)| active + inactive);
        let file = lists.or_else(|| kib(m::FilePages));
        Some(NodeMemory {
            id: node.id,
            total: kib(m::MemTotal)? - pools,
            free: kib(m::MemFree)?,
            file,
            pools,
        })
    }

    /// Share that is free.
    pub(super) fn free_share(&self) -> f64 {
        self.free.share_of(self.total)
    }

    /// Share that is free or page cache.
    pub(super) fn usable_share(&self) -> f64 {
        (self.free + self.file.unwrap_or_default()).share_of(self.total)
    }

    /// As evidence.
    pub(super) fn saw(&self) -> Evidence {
        let value = format!(
            "{:#}, {} of {}; {} of page cache",
            self.free,
            Percent(self.free_share()),
            self.total,
            self.file.map_or_else(|| "an unknown amount".to_owned(), |file| file.to_string())
        );
        Evidence::new(format!("/sys/devices/system/node/node{}/meminfo", self.id), "MemFree", value)
            .of(format!("node {}", self.id))
    }
}

/// The nodes that have CPUs and memory. Memory without CPUs (CXL, persistent memory) is filled and emptied by
/// tiering and is not judged with them.
///
/// # Errors
/// [`Skip::NotApplicable`] if fewer than two are such; [`Skip::Unknown`] if their `meminfo` was not read.
pub(super) fn ordinary_nodes(cx: &Context<'_>) -> Result<Vec<NodeMemory>, Skip> {
    let nodes = cx.several_nodes()?;
    let mut found = Vec::new();
    // No host has CPUs nowhere: then nothing says where they are.
    let told = nodes.iter().any(|node| !node.cpus.is_empty());
    for node in nodes.iter().filter(|node| !told || !node.cpus.is_empty()) {
        let memory = NodeMemory::of(node)
            .ok_or_else(|| Skip::missing(format!("/sys/devices/system/node/node{}/meminfo", node.id)))?;
        if memory.total > Bytes::ZERO {
            found.push(memory);
        }
    }
    match found.as_slice() {
        [] | [_] => Err(Skip::because("one NUMA node with CPUs and memory")),
        _ => Ok(found),
    }
}

/// The node that is short although another has more than twice as much free, and that other node. Page cache
/// is not what makes a node short: it can be dropped.
pub(super) fn imbalance(nodes: &[NodeMemory]) -> Option<(&NodeMemory, &NodeMemory)> {
    let short = nodes.iter().min_by(|a, b| a.free_share().total_cmp(&b.free_share()))?;
    let ample = nodes.iter().max_by_key(|node| node.free)?;
    let uneven = ample.free.as_f64() > short.free.as_f64() * TIMES;
    (short.id != ample.id && uneven && short.free_share() < SHORT && short.usable_share() < SHORT)
        .then_some((short, ample))
}

/// Whether the largest zone of `node` is below its low watermark, and another has twice its high watermark
/// free.
pub(super) fn below_low(cx: &Context<'_>, short: u32) -> Option<Evidence> {
    let zones = cx.zones().ok()?;
    let marks = |zone: &lotsfree_kernel_files::file::zoneinfo::Zone| {
        Some((zone.marks.get(z::free)?, zone.marks.get(z::low)?, zone.marks.get(z::high)?))
    };
    let normal = |zone: &&lotsfree_kernel_files::file::zoneinfo::Zone| &*zone.name == "Normal";
    let own = zones.iter().filter(normal).find(|zone| zone.node == short)?;
    let (free, low, _) = marks(own)?;
    let ample = zones.iter().filter(normal).filter(|zone| zone.node != short).filter_map(marks);
    let other = ample.into_iter().any(|(free, _, high)| free > high.saturating_mul(2));
    (free < low && other).then(|| {
        Evidence::new("/proc/zoneinfo", "pages free", format!("{free} pages"))
            .of(format!("node {short} zone Normal"))
            .against(format!("low watermark {low}"), "/proc/zoneinfo")
    })
}

/// What a process has on each node; empty where `numa_maps` was not read.
pub(super) fn on_nodes(process: &Process) -> &[Bytes] {
    process.detail.as_ref().and_then(|detail| detail.numa.as_ref()).map_or(&[], |numa| &numa.nodes)
}

/// The processes with the most memory on `node`, at most `most`.
pub(super) fn owners<'a>(cx: &Context<'a>, node: u32, most: usize) -> Vec<(Bytes, &'a Process)> {
    let on = |process: &Process| on_nodes(process).get(node as usize).copied().unwrap_or_default();
    let mut owners: Vec<_> = (cx.processes().unwrap_or_default().iter())
        .map(|process| (on(process), process))
        .filter(|(bytes, _)| *bytes > Bytes::ZERO)
        .collect();
    owners.sort_by_key(|(bytes, process)| (std::cmp::Reverse(*bytes), process.stat.pid));
    owners.truncate(most);
    owners
}

/// The owners as evidence.
pub(super) fn saw_owners(owners: &[(Bytes, &Process)], node: u32) -> Vec<Evidence> {
    let evidence = |(bytes, process): &(Bytes, &Process)| {
        let all: Bytes = on_nodes(process).iter().copied().sum();
        Evidence::new("/proc/PID/numa_maps", format!("N{node}"), format!("{bytes} of its {all}"))
            .of(subject(process))
    };
    owners.iter().map(evidence).collect()
}

/// A cache that all nodes use is spread over them.
pub(super) fn interleave(what: &str) -> Remedy {
    Remedy::new(format!("Interleave {what} over the nodes"))
        .run("numactl --interleave=all COMMAND")
        .keep(DROP_IN, "NUMAPolicy=interleave")
        .keep(DROP_IN, "NUMAMask=all")
        .risk("Programs that place their memory themselves lose locality.")
        .restart("the program")
}

/// Node numbers as `numactl` and `migratepages` take them.
pub(super) fn list(ids: impl Iterator<Item = u32>) -> String {
    ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
}
