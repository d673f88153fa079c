use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_kernel_files::file::node::Node;
use lotsfree_settings::NUMA_BALANCING;
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// A NUMA node has no memory or no CPUs, or far more of one than the others.
    ///
    /// # Sees
    /// `cpulist` and `MemTotal` of each node: CPUs without memory, memory without CPUs, or memory per CPU
    /// that is more than 10 % off the mean of the host.
    ///
    /// # Hurts
    /// Tasks on CPUs without memory reach all of it remotely. With uneven nodes the scheduler spreads threads
    /// by CPUs and their memory follows, so the smaller node fills first and is reclaimed while the other is
    /// free. Databases that split their cache per node size it by the smallest.
    ///
    /// # Remedies
    /// The hypervisor's or the firmware's settings: the guest's virtual nodes, one size each, on real nodes;
    /// DIMMs alike in every slot.
    ///
    /// # False alarms
    /// CXL and persistent memory are nodes without CPUs by design; where tiering is at work they are passed
    /// over. Crash kernel, firmware and page descriptors take from some nodes more than from others:
    /// differences below 1 GiB are not looked at. CPUs that were taken offline count as missing.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/numaperf.rst`; check 2230 of SAP's arp142 (10 %).
    pub TopologyHole = "topology-hole" in Numa
}

/// How far memory per CPU may be off the mean (SAP's check 2230).
const OFF: f64 = 0.1;
/// What crash kernel, firmware and descriptors may take from one node.
const SLACK: Bytes = Bytes::gib(1);
/// Bit of `kernel.numa_balancing` that promotes from slow memory.
const TIERING: u64 = 2;

impl Rule for TopologyHole {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let nodes = cx.several_nodes()?;
        if nodes.iter().all(|node| node.cpus.is_empty()) {
            return Err(Skip::missing("/sys/devices/system/node/node*/cpulist"));
        }
        let mut sizes = Vec::new();
        for node in nodes {
            let total = node.meminfo.as_ref().and_then(|meminfo| meminfo.get(m::MemTotal)).map(Bytes::kib);
            let missing = || Skip::missing(format!("/sys/devices/system/node/node{}/meminfo", node.id));
            sizes.push((node, total.ok_or_else(missing)?));
        }
        let mut findings = Vec::new();
        findings.extend(without_memory(cx, &sizes));
        findings.extend(without_cpus(cx, &sizes));
        findings.extend(uneven(&sizes));
        Ok(findings)
    }
}

fn without_memory(cx: &Context<'_>, sizes: &[(&Node, Bytes)]) -> Option<Finding> {
    let empty: Vec<_> =
        sizes.iter().filter(|(node, total)| !node.cpus.is_empty() && *total == Bytes::ZERO).collect();
    let cpus: usize = empty.iter().map(|(node, _)| node.cpus.len()).sum();
    let all: usize = sizes.iter().map(|(node, _)| node.cpus.len()).sum();
    let (first, _) = empty.first()?;
    let share = cpus as f64 / all.max(1) as f64;
    let title =
        format!("node {} has {} CPUs and no memory: all of theirs is remote", first.id, first.cpus.len());
    let cost =
        Cost::risk(format!("{} of the CPUs reach every page over a link{}", Percent(share), distance(first)));
    let mut finding = Finding::new(TopologyHole::ID, Severity::Warning, title, cost);
    finding.sure(Confidence::Certain).because_all(shape(sizes)).remedy(mend(cx));
    Some(finding)
}

fn distance(node: &Node) -> String {
    let near = node.distance.iter().filter(|distance| **distance > 10).min();
    near.map_or_else(String::new, |near| format!(", at distance {near} of 10 for local"))
}

fn without_cpus(cx: &Context<'_>, sizes: &[(&Node, Bytes)]) -> Option<Finding> {
    let tiering = cx.sysctl(NUMA_BALANCING).is_ok_and(|mode| mode & TIERING != 0)
        || [v::pgpromote_success, v::pgdemote_kswapd, v::pgdemote_direct]
            .iter()
            .any(|counter| cx.vm(*counter).is_ok_and(|count| count > 0));
    let lone = sizes.iter().find(|(node, total)| node.cpus.is_empty() && *total > Bytes::ZERO);
    let (node, total) = lone.filter(|_| !tiering)?;
    let title = format!("node {} has {total} of memory and no CPUs", node.id);
    let cost = Cost::risk(format!("every access to it is remote{}", distance(node)));
    let mut finding = Finding::new(TopologyHole::ID, Severity::Info, title, cost);
    finding.sure(Confidence::Possible).because_all(shape(sizes)).remedy(mend(cx)).note(
        "CXL and persistent memory look like this by design. Neither promotion nor demotion has been \
         counted here, so if it is such memory, nothing moves hot pages out of it (kernel.numa_balancing \
         with bit 1, /sys/kernel/mm/numa/demotion_enabled).",
    );
    Some(finding)
}

fn uneven(sizes: &[(&Node, Bytes)]) -> Option<Finding> {
    let whole: Vec<_> =
        sizes.iter().filter(|(node, total)| !node.cpus.is_empty() && *total > Bytes::ZERO).collect();
    let cpus: usize = whole.iter().map(|(node, _)| node.cpus.len()).sum();
    let memory: Bytes = whole.iter().map(|(_, total)| *total).sum();
    let per_cpu = memory.as_f64() / cpus.max(1) as f64;
    let expected = |node: &Node| Bytes((per_cpu * node.cpus.len() as f64) as u64);
    let off = |(node, total): &(&Node, Bytes)| {
        let expected = expected(node);
        let difference = (*total - expected) + (expected - *total);
        if difference > SLACK { difference.share_of(expected) } else { 0.0 }
    };
    let worst = whole.iter().max_by(|a, b| off(a).total_cmp(&off(b)))?;
    let share = off(worst);
    if share <= OFF {
        return None;
    }
    let (node, total) = worst;
    let more = if *total > expected(node) { "more" } else { "less" };
    let title = format!("node {} has {} {more} memory per CPU than the host's mean", node.id, Percent(share));
    let cost =
        Cost::risk("the node with less memory per CPU fills first and is reclaimed while the other is free");
    let mut finding = Finding::new(TopologyHole::ID, Severity::Info, title, cost);
    finding
        .sure(Confidence::Certain)
        .because_all(shape(sizes))
        .remedy(
            Remedy::new(
                "Give each node memory in proportion to its CPUs: DIMMs, or the guest's virtual nodes",
            )
            .risk("The machine has to be switched off."),
        )
        .note(format!(
            "Expected on node {}: {} for {} of {cpus} CPUs; it has {total}. More than {} and {SLACK} off \
             counts (SAP's check 2230).",
            node.id,
            expected(node),
            node.cpus.len(),
            Percent(OFF)
        ));
    Some(finding)
}

/// The nodes as evidence.
fn shape(sizes: &[(&Node, Bytes)]) -> Vec<Evidence> {
    let evidence = |(node, total): &(&Node, Bytes)| {
        let value = format!("{} CPUs, {total}", node.cpus.len());
        Evidence::new(format!("/sys/devices/system/node/node{}", node.id), "cpulist, MemTotal", value)
            .of(format!("node {}", node.id))
    };
    sizes.iter().map(evidence).collect()
}

fn mend(cx: &Context<'_>) -> Remedy {
    let remedy = Remedy::new(
        "Give the node its part: the guest's virtual NUMA nodes in the hypervisor, or memory in the \
         sockets' own slots",
    )
    .risk("The machine has to be switched off.");
    if cx.now().host.boot_parameter("numa").is_some() {
        remedy.keep("kernel command line", "(without numa=, which changes what the firmware says)")
    } else {
        remedy
    }
}
