use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_settings::NR_HUGEPAGES;
use lotsfree_units::{Bytes, Grouped};

use crate::finding::subject;
use crate::huge;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// A NUMA node has no huge pages left, or far fewer than another, for processes that stay on it.
    ///
    /// # Sees
    /// `free_hugepages` and `nr_hugepages` of each node that has CPUs and memory. A process bound to nodes
    /// without a free page (its policy in `/proc/PID/numa_maps`), or one node with more than twice the
    /// pages of another while huge pages are mapped with the local policy.
    ///
    /// # Hurts
    /// Bound processes get ENOMEM, or SIGBUS at the first touch if the reservation was made elsewhere: the
    /// kernel reserves machine-wide, not per node. Others silently get remote pages.
    ///
    /// # Remedies
    /// Write the number for each node, or interleave the segment.
    ///
    /// # False alarms
    /// Interleaved segments fill the nodes evenly whatever their order. A pool on one node for processes
    /// bound to it (DPDK beside its network card) is meant so.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/hugetlbpage.rst` (per-node attributes);
    /// mm/hugetlb.c:dequeue_hugetlb_folio_vma (6.12); atop pull request 287.
    pub HugePageNodeSkew = "huge-page-node-skew" in HugePages
}

/// A node with more than twice the pages of another: what one rounding or one failed allocation never
/// explains.
const UNEVEN: u64 = 2;

/// One node's part of a pool.
struct Part {
    node: u32,
    total: u64,
    free: u64,
}

impl Rule for HugePageNodeSkew {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let nodes = cx.several_nodes()?;
        if nodes.iter().all(|node| node.huge_pools.is_empty()) {
            return Err(Skip::missing("/sys/devices/system/node/node*/hugepages"));
        }
        let has_memory = |node: &lotsfree_kernel_files::file::node::Node| {
            node.meminfo.as_ref().is_none_or(|meminfo| meminfo.get(m::MemTotal) != Some(0))
        };
        let mut sizes: Vec<Bytes> = nodes.iter().flat_map(|n| n.huge_pools.iter().map(|p| p.size)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut findings = Vec::new();
        for size in sizes {
            let parts: Vec<Part> = (nodes.iter())
                .filter(|node| !node.cpus.is_empty() && has_memory(node))
                .filter_map(|node| {
                    let pool = node.huge_pools.iter().find(|pool| pool.size == size)?;
                    Some(Part { node: node.id, total: pool.total, free: pool.free })
                })
                .collect();
            if parts.len() > 1 && parts.iter().any(|part| part.total > 0) {
                findings.extend(judge(cx, size, &parts));
            }
        }
        Ok(findings)
    }
}

fn judge(cx: &Context<'_>, size: Bytes, parts: &[Part]) -> Option<Finding> {
    let empty = |node: u32| parts.iter().any(|part| part.node == node && part.free == 0);
    let elsewhere: u64 = parts.iter().map(|part| part.free).sum();
    let bound = huge::mappings(cx).filter(|(_, mapping)| mapping.huge && mapping.page_size == size).find(
        |(_, mapping)| {
            let nodes = bound_to(&mapping.policy);
            !nodes.is_empty() && nodes.iter().all(|&node| empty(node))
        },
    );
    let most = parts.iter().max_by_key(|part| part.total)?;
    let least = parts.iter().min_by_key(|part| part.total)?;
    let uneven = most.total > UNEVEN.saturating_mul(least.total);
    let local: Vec<_> = huge::mappings(cx)
        .filter(|(_, mapping)| mapping.huge && mapping.page_size == size)
        .filter(|(_, mapping)| !mapping.policy.contains("interleave") && bound_to(&mapping.policy).is_empty())
        .collect();
    let (title, severity, cost) = match (bound.filter(|_| elsewhere > 0), local.first()) {
        (Some((process, mapping)), _) => (
            format!(
                "{} is bound to {}, where no huge page is free, while other nodes have {}",
                subject(process),
                mapping.policy,
                huge::count(elsewhere)
            ),
            Severity::High,
            "the next huge page that it touches there ends in SIGBUS, the next mapping in ENOMEM",
        ),
        (None, Some(_)) if uneven => (
            format!(
                "node {} has {} of {}, node {} has {}, and huge pages are mapped with the local policy",
                most.node,
                huge::count(most.total),
                huge::page_name(size),
                least.node,
                Grouped(least.total)
            ),
            Severity::Warning,
            "processes on the node with few pages get remote ones: every access goes over the interconnect",
        ),
        _ => return None,
    };
    let mut finding = Finding::new(HugePageNodeSkew::ID, severity, title, Cost::risk(cost));
    finding.sure(Confidence::Likely);
    for part in parts {
        let directory = node_directory(part.node, size);
        finding
            .because(
                Evidence::new(&directory, "nr_hugepages", Grouped(part.total))
                    .of(format!("node {}", part.node)),
            )
            .because(
                Evidence::new(&directory, "free_hugepages", Grouped(part.free))
                    .of(format!("node {}", part.node)),
            );
    }
    if let Some((process, mapping)) = bound.or(local.first().copied()) {
        finding.because(
            Evidence::new("/proc/PID/numa_maps", "policy", format!("{} {}", mapping.policy, mapping.file))
                .of(subject(process)),
        );
    }
    add_remedies(&mut finding, size, parts);
    Some(finding)
}

fn add_remedies(finding: &mut Finding, size: Bytes, parts: &[Part]) {
    let total: u64 = parts.iter().map(|part| part.total).sum();
    let even = lotsfree_formulas::hugepages::split(total, parts.len() as u32);
    let mut remedy = Remedy::new("Spread the pool evenly, node by node");
    for (part, pages) in parts.iter().zip(even) {
        let path = format!("{}/nr_hugepages", node_directory(part.node, size));
        remedy = remedy.sysfs(&path, &pages.to_string(), Some(&part.total.to_string()));
    }
    finding
        .remedy(remedy.risk(
            "A node gives back free pages only, and gets fewer than asked if its memory is fragmented: read \
             the numbers back.",
        ))
        .remedy(
            Remedy::new("Interleave the segment over the nodes")
                .run("numactl --interleave=all COMMAND")
                .risk("Half of the accesses are remote on two nodes, evenly.")
                .restart("the program"),
        )
        .forbid(NR_HUGEPAGES, "it grows and shrinks all nodes at once: spread the pages over the nodes first")
        .note(
            "Reservations (HugePages_Rsvd) are counted for the machine, not for a node: a promise can be \
             kept elsewhere only.",
        );
}

fn node_directory(node: u32, size: Bytes) -> String {
    format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{}kB", size.as_kib())
}

/// The nodes of a `bind:0-1,3` policy; none for any other policy (`prefer` falls back to other nodes).
fn bound_to(policy: &str) -> Vec<u32> {
    let Some((_, list)) = policy.split_once(':').filter(|(mode, _)| mode.starts_with("bind")) else {
        return Vec::new();
    };
    let mut nodes = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            // No architecture has more nodes.
            nodes.extend(first..=last.min(first.saturating_add(1023)));
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::bound_to;

    #[test]
    fn only_bind_keeps_a_process_on_its_nodes() {
        assert_eq!(bound_to("bind:0-1,3"), [0, 1, 3]);
        assert_eq!(bound_to("bind=static:2"), [2]);
        for policy in ["default", "prefer:1", "interleave:0-1", "bind", "bind:x"] {
            assert!(bound_to(policy).is_empty(), "{policy}");
        }
        // Nonsense is bounded.
        assert_eq!(bound_to("bind:0-4294967295").len(), 1024);
    }
}
