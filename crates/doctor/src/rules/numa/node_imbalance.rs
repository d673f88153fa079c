use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_kernel_files::file::node::Node;
use lotsfree_units::{Bytes, Percent};

use super::balance::{self, SHORT, TIMES};
use crate::finding::subject;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, DIRECT_SCAN, Evidence, Finding, Outcome, Remedy, Rule, Severity};

rule! {
    /// One NUMA node is full while another has free memory.
    ///
    /// # Sees
    /// `MemFree` of each node that has CPUs, without its huge page pools: one node below 10 % even with its
    /// page cache counted as free, another with more than twice as much. Critical once the short node is
    /// below its low watermark, another has twice its high watermark free, and the host swaps or tasks
    /// reclaim. Of `MemFree` alone a tenth of what another node has.
    ///
    /// # Hurts
    /// The host as a whole has memory, so nobody looks. But kswapd works per node: it evicts and swaps out on
    /// the full node what is used every second, next to gigabytes that are free. Memory bound to the full
    /// node cannot go anywhere else, and ends in the OOM killer. Databases that load their cache with one
    /// thread fill one node and leave the other empty.
    ///
    /// # Remedies
    /// Interleave a cache that all nodes use; or bind each instance to a node of its own that is large
    /// enough. A running process can be moved with `migratepages`.
    ///
    /// # False alarms
    /// Page cache that lies on one node: it is dropped when memory is wanted, and is counted as free here.
    /// Memory without CPUs (CXL) is left out. A huge page pool on one node is no shortage by itself.
    ///
    /// # References
    /// mm/vmscan.c:balance_pgdat (6.12); memstate (10 % and twice); PolarDB issue 692, VictoriaMetrics issue
    /// 2656 and ClickHouse issue 34083 (hosts with hundreds of GiB free and full nodes).
    pub NodeImbalance = "node-imbalance" in Numa
}

/// Where only `MemFree` of the nodes is told: how many times as much another node has, and how much that is
/// at least. Our choice.
const FAR_TIMES: f64 = 10.0;
const FAR: Bytes = Bytes::mib(512);

impl Rule for NodeImbalance {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let nodes = match balance::ordinary_nodes(cx) {
            Ok(nodes) => nodes,
            Err(skip) => return by_free_alone(cx).map(|finding| vec![finding]).ok_or(skip),
        };
        let Some((short, ample)) = balance::imbalance(&nodes) else { return Ok(Vec::new()) };
        let swapping = cx.rate(&[v::pswpout]).ok().filter(|rate| rate.total > 0);
        let scanning = cx.rate(DIRECT_SCAN).ok().filter(|rate| rate.total > 0);
        let below = balance::below_low(cx, short.id);
        let suffers = swapping.is_some() || scanning.is_some();
        let severity = match (suffers, &below) {
            (true, Some(_)) => Severity::Critical,
            (true, None) => Severity::High,
            _ => Severity::Warning,
        };
        let cost = if suffers {
            let (read, how) = cx.read_latency();
            let faults = cx.rate(&[v::pgmajfault]).map_or(0.0, |rate| rate.per_second);
            Cost::faults(faults, read, format!("major faults while memory is free elsewhere, at {how}"))
        } else {
            Cost::risk(
                "the next growth on this node is paid for with reclaim and swap, though memory is free",
            )
        };
        let title = format!(
            "node {} has {} free ({}) and node {} {}",
            short.id,
            short.free,
            Percent(short.free_share()),
            ample.id,
            ample.free
        );
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        // Page cache fills a node and is given back: without it in the figures little follows.
        let sure = if short.file.is_some() { Confidence::Likely } else { Confidence::Possible };
        finding.sure(if suffers { cx.rate_confidence() } else { sure }).because(short.saw().against(
            format!("{} free, page cache included, and {TIMES:.0} times as much elsewhere", Percent(SHORT)),
            "memstate",
        ));
        for node in nodes.iter().filter(|node| node.id != short.id) {
            finding.because(node.saw());
        }
        finding.because_all(below);
        finding.because_if(swapping.map(|rate| cx.saw_rate(&[v::pswpout], &rate)));
        if let Some(rate) = scanning {
            finding.because(cx.saw_rate(DIRECT_SCAN, &rate)).because_all(scanned(cx));
        }
        let owners = balance::owners(cx, short.id, 3);
        finding.because_all(balance::saw_owners(&owners, short.id));
        if nodes.iter().any(|node| node.pools > Bytes::ZERO) {
            let pools: Vec<_> = nodes.iter().map(|node| format!("node {} {}", node.id, node.pools)).collect();
            finding.note(format!(
                "Huge page pools, taken off all figures above: {}. An uneven pool can be evened out per \
                 node.",
                pools.join(", ")
            ));
        }
        let mut remedies = vec![balance::interleave("a cache that all nodes use")];
        // Only what leaves the other node with room may be moved there.
        let room = ample.free - ample.total.scale(SHORT);
        if let Some((bytes, process)) = owners.iter().find(|(bytes, _)| *bytes <= room) {
            let (pid, from, to) = (process.stat.pid, short.id, ample.id);
            remedies.push(
                Remedy::new(format!(
                    "Move the pages of {} from node {from} to node {to}",
                    subject(process)
                ))
                .run(format!("migratepages {pid} {from} {to}"))
                .undo_with(format!("migratepages {pid} {to} {from}"))
                .risk(format!(
                    "It moves all {bytes}, stops the process's faults meanwhile, for minutes if it is much, \
                     and its threads may then reach them remotely; the way back takes along what was on \
                     node {to} before. Huge page pools do not move."
                )),
            );
        }
        remedies.push(
            Remedy::new("Bind each instance to a node that holds all of it")
                .run(format!("numactl --cpunodebind={} --preferred={} COMMAND", ample.id, ample.id))
                .risk(
                    "An instance that outgrows its node spills over; with --membind instead of --preferred \
                     it is killed.",
                )
                .restart("the program"),
        );
        for remedy in remedies {
            finding.remedy(remedy);
        }
        finding.note(
            "How to choose: interleave one large instance that runs on all nodes, bind several small ones.",
        );
        Ok(vec![finding])
    }
}

/// Pages that tasks scanned on each node over the period, from the nodes' own counters.
fn scanned(cx: &Context<'_>) -> Vec<Evidence> {
    let before = cx.before().ok().and_then(|before| before.nodes.as_deref()).unwrap_or_default();
    let sum = |node: &lotsfree_kernel_files::file::node::Node| {
        let vmstat = node.vmstat.as_ref()?;
        let present = DIRECT_SCAN.iter().filter_map(|counter| vmstat.get(*counter));
        present.reduce(u64::saturating_add)
    };
    let evidence = |node: &lotsfree_kernel_files::file::node::Node| {
        let first = before.iter().find(|first| first.id == node.id).and_then(sum)?;
        let pages = sum(node)?.saturating_sub(first);
        let file = format!("/sys/devices/system/node/node{}/vmstat", node.id);
        Some(Evidence::new(file, "pgscan_direct", format!("{pages} more")).of(format!("node {}", node.id)))
    };
    cx.nodes().unwrap_or_default().iter().filter_map(evidence).collect()
}

/// Judges nodes of which nothing but `MemFree` is known.
fn by_free_alone(cx: &Context<'_>) -> Option<Finding> {
    let nodes = cx.several_nodes().ok()?;
    let free = |node: &Node| {
        let meminfo = node.meminfo.as_ref()?;
        meminfo.get(m::MemTotal).is_none().then_some(())?;
        Some((node.id, Bytes::kib(meminfo.get(m::MemFree)?)))
    };
    let known: Option<Vec<(u32, Bytes)>> = nodes.iter().map(free).collect();
    let known = known?;
    let (short, least) = known.iter().min_by_key(|(_, free)| *free)?;
    let (ample, most) = known.iter().max_by_key(|(_, free)| *free)?;
    if *most < FAR || most.as_f64() < least.as_f64() * FAR_TIMES {
        return None;
    }
    let mut finding = Finding::new(
        NodeImbalance::ID,
        Severity::Warning,
        format!(
            "node {short} has only {least} free, node {ample} {most}: one node is full while another is not"
        ),
        Cost::risk("a full node reclaims and swaps although the other has memory"),
    );
    finding.sure(Confidence::Possible);
    for (id, free) in &known {
        let path = format!("/sys/devices/system/node/node{id}/meminfo");
        finding.because(Evidence::new(path, "MemFree", format!("{free:#}")).of(format!("node {id}")));
    }
    finding
        .note("Whether page cache fills the node, which it gives back, the other lines of these files would tell.")
        .remedy(balance::interleave("a cache that all nodes use"));
    Some(finding)
}
