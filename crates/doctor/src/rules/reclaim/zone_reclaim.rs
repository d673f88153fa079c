use std::collections::BTreeMap;

use lotsfree_kernel_files::counters::{vmstat as v, zoneinfo as z};
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_settings::ZONE_RECLAIM_MODE;

use crate::rule::rule;
use crate::{
    ALLOCSTALL, Confidence, Context, Cost, DIRECT_SCAN, Evidence, Finding, Outcome, Remedy, Rule, Severity,
};

rule! {
    /// The kernel reclaims on the local node although other nodes have free memory.
    ///
    /// # Sees
    /// `vm.zone_reclaim_mode` other than 0 on a host with several NUMA nodes. Proof over two samples:
    /// `zone_reclaim_failed` or `zone_reclaim_success` grow, or `pgscan_direct` grows while `allocstall` does
    /// not (zone reclaim is counted as direct scan but not as a stall), while another node is free above its
    /// high watermark.
    ///
    /// # Hurts
    /// Every allocation that finds the local zone at its low watermark scans lists itself, before kswapd is
    /// even woken. With mapped files it scans millions of pages a second and frees next to none, moves the
    /// active set to the inactive list, and the next reader waits for the disk. One service saw its error
    /// rate fall to a quarter when this was turned off. As long as there are file pages that nobody uses any
    /// more, zone reclaim frees those, and a test that ends before they are used up shows no harm: look at
    /// how many of the scanned pages are freed.
    ///
    /// # Remedies
    /// `vm.zone_reclaim_mode = 0`, and interleaved memory for a cache that all nodes use.
    ///
    /// # False alarms
    /// Partitioned jobs (one job per node, each smaller than the node) gain from locality and may want it on.
    /// Hosts with one node, or booted with `numa=off`, never reclaim this way.
    ///
    /// # References
    /// `Documentation/admin-guide/sysctl/vm.rst`, zone_reclaim_mode; mm/vmscan.c:node_reclaim and
    /// mm/page_alloc.c:get_page_from_freelist (6.12); LinkedIn, "Optimizing Linux Memory Management for
    /// Low-latency / High-throughput Databases" (2013).
    pub ZoneReclaim = "zone-reclaim" in Reclaim
}

impl Rule for ZoneReclaim {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let mode = cx.sysctl(ZONE_RECLAIM_MODE)?;
        if mode == 0 {
            return Ok(Vec::new());
        }
        let nodes = cx.several_nodes()?.len();
        let attempts = cx.rate(&[v::zone_reclaim_failed, v::zone_reclaim_success]).ok();
        let scans = cx.rate(DIRECT_SCAN).ok();
        let stalls = cx.rate(ALLOCSTALL).ok();
        let scanning = scans.is_some_and(|r| r.total > 0);
        let reclaims =
            attempts.is_some_and(|r| r.total > 0) || (scanning && stalls.is_some_and(|r| r.total == 0));
        let proven = reclaims && room_elsewhere(cx);

        let (severity, cost) = match (proven, scans) {
            (true, Some(scan)) => {
                let (read, how) = cx.read_latency();
                let faults = cx.rate(&[v::pgmajfault]).map_or(0.0, |r| r.per_second);
                let text = format!(
                    "major faults while pages are reclaimed locally, at {how}; {:.0} pages/s scanned by tasks",
                    scan.per_second
                );
                (Severity::High, Cost::faults(faults, read, text))
            }
            _ => (
                Severity::Warning,
                Cost::risk(
                    "each allocation at a node's low watermark scans lists itself once memory fills up",
                ),
            ),
        };
        let state = if proven { "and does so now" } else { "once a node runs low" };
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!(
                "zone reclaim is on (mode {mode}) with {nodes} nodes: tasks reclaim local page cache instead of using the other node, {state}"
            ),
            cost,
        );
        finding
            .sure(if proven { Confidence::Certain } else { Confidence::Likely })
            .because(cx.saw_sysctl(ZONE_RECLAIM_MODE).against("0", "kernel default since 3.16"));
        finding.because_if(scans.filter(|_| proven).map(|rate| cx.saw_rate(DIRECT_SCAN, &rate)));
        if let Some(rate) = attempts.filter(|_| proven) {
            finding.because(cx.saw_rate(&[v::zone_reclaim_failed, v::zone_reclaim_success], &rate));
        }
        finding.because_if(stalls.filter(|_| proven).map(|rate| cx.saw_rate(ALLOCSTALL, &rate)));
        for zone in cx.zones().unwrap_or_default().iter().filter(|zone| &*zone.name == "Normal") {
            let (Some(free), Some(low)) = (zone.marks.get(z::free), zone.marks.get(z::low)) else { continue };
            finding.because(
                Evidence::new("/proc/zoneinfo", "pages free", free)
                    .of(format!("node {} zone {}", zone.node, zone.name))
                    .against(format!("low watermark {low}"), "/proc/zoneinfo"),
            );
        }
        add_remedies(&mut finding, cx);

        Ok(vec![finding])
    }
}

/// Whether the largest zone of a node has more free than its high watermark; true where zones were not read.
fn room_elsewhere(cx: &Context<'_>) -> bool {
    let mut largest: BTreeMap<u32, &Zone> = BTreeMap::new();
    for zone in cx.zones().unwrap_or_default() {
        let size = |zone: &Zone| zone.marks.get(z::managed);
        let known = largest.entry(zone.node).or_insert(zone);
        if size(zone) > size(known) {
            *known = zone;
        }
    }
    let roomy = |zone: &&Zone| zone.marks.get(z::free) > zone.marks.get(z::high);
    largest.is_empty() || largest.values().any(roomy)
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>) {
    finding
        .remedy(
            Remedy::new("Turn zone reclaim off")
                .sysctl(cx, ZONE_RECLAIM_MODE, 0)
                .risk("Memory may come from another node: a remote access costs tens of nanoseconds, a page read again from disk some 100 us or more."),
        )
        .remedy(
            Remedy::new("Interleave the cache that all nodes use")
                .run("numactl --interleave=all COMMAND")
                .keep("the unit's drop-in, [Service]", "NUMAPolicy=interleave")
                .keep("the unit's drop-in, [Service]", "NUMAMask=all")
                .risk("Programs that place their memory themselves lose locality.")
                .restart("the program"),
        )
        .note("How to choose: keep it on only where each job fits into one node and reads no shared files; a cache larger than a node wants it off.");
}
