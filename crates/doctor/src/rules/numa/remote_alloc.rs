use lotsfree_kernel_files::counters::{numastat as n, vmstat as v};
use lotsfree_settings::NUMA_STAT;
use lotsfree_units::{Grouped, Percent};

use super::balance;
use crate::rule::rule;
use crate::{Context, Cost, Evidence, Finding, Outcome, Rule, Severity, Skip, remedies};

rule! {
    /// Memory is allocated on another node than wanted, because the wanted one is full.
    ///
    /// # Sees
    /// Over two samples: more than 5 % of allocations are `numa_miss` (served by a node that was not wanted),
    /// in most intervals. `numa_foreign` of each node says which one was short.
    ///
    /// # Hurts
    /// Nobody is told that the memory is remote: each cache miss in it goes over the link between the
    /// sockets, for as long as the page lives. The same program is fast after one start and slow after
    /// another, depending on what filled the node before it.
    ///
    /// # Remedies
    /// Find what fills the short node (page cache of a backup, another instance); interleave what all nodes
    /// use; start the program when its node has room.
    ///
    /// # False alarms
    /// Interleaved memory: its pages count as wanted where they are placed, only `numa_other` is high, which
    /// is not looked at. `vm.numa_stat=0` stops the counters; the rule then says that it does not know.
    ///
    /// # References
    /// mm/page_alloc.c:zone_statistics (6.12); `Documentation/admin-guide/numastat.rst`.
    pub RemoteAlloc = "remote-alloc" in Numa
}

/// Share of allocations that miss their node.
const SHARE: f64 = 0.05;
/// Part of the intervals in which it happened: a single burst is no state.
const ACTIVE: f64 = 0.5;
/// Misses a second below which the pages concerned come to less than half a MiB a second.
const LEAST: f64 = 100.0;
/// ACPI's SLIT gives a node's own memory as 10 and others in proportion.
const LOCAL_DISTANCE: f64 = 10.0;

impl Rule for RemoteAlloc {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let nodes = cx.several_nodes()?;
        let misses = cx.rate(&[v::numa_miss])?;
        let hits = cx.rate(&[v::numa_hit])?;
        if cx.sysctl(NUMA_STAT) == Ok(0) {
            return Err(Skip::missing(
                "/proc/vmstat numa_miss (vm.numa_stat is 0: the counters stand still)",
            ));
        }
        let all = misses.total.saturating_add(hits.total);
        let share = if all == 0 { 0.0 } else { misses.total as f64 / all as f64 };
        if share <= SHARE || misses.active < ACTIVE || misses.per_second < LEAST {
            return Ok(Vec::new());
        }
        let total = cx.total()?;
        let bytes = cx.pages(misses.total);
        let farthest = nodes.iter().flat_map(|node| node.distance.iter().copied()).max().unwrap_or(0);
        let ratio = f64::from(farthest) / LOCAL_DISTANCE;
        let distance = if ratio > 1.0 {
            format!(
                "reached {ratio:.1} times as slowly by the firmware's distances (measure it: the true ratio \
                 differs)"
            )
        } else {
            "reached over the link between the nodes".to_owned()
        };
        let mut finding = Finding::new(
            Self::ID,
            Severity::Warning,
            format!("{} of allocations land on another node than wanted", Percent(share)),
            Cost::memory(
                bytes,
                total,
                format!("at least, taken within {:.0} s and {distance}", misses.seconds),
            ),
        );
        finding
            .sure(cx.rate_confidence())
            .because(cx.saw_rate(&[v::numa_miss], &misses).against(
                format!("{} of numa_hit + numa_miss", Percent(SHARE)),
                "the wanted node serves all while it has room",
            ))
            .because(cx.saw_rate(&[v::numa_hit], &hits));
        let short = foreign(cx);
        for (id, count) in &short {
            let file = format!("/sys/devices/system/node/node{id}/numastat");
            finding.because(
                Evidence::new(file, "numa_foreign", format!("{} more", Grouped(*count)))
                    .of(format!("node {id}")),
            );
        }
        for memory in balance::ordinary_nodes(cx).unwrap_or_default() {
            finding.because(memory.saw());
        }
        if farthest > 0 {
            let distances =
                nodes.iter().map(|node| format!("{:?}", node.distance)).collect::<Vec<_>>().join(" ");
            finding.because(Evidence::new("/sys/devices/system/node/node*/distance", "distance", distances));
        }
        if let Some((id, _)) = short.first() {
            let owners = balance::owners(cx, *id, 3);
            finding.because_all(balance::saw_owners(&owners, *id)).note(format!(
                "Node {id} is the one that is short: most allocations that wanted it went elsewhere."
            ));
        }
        add_remedies(&mut finding, cx);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>) {
    finding
        .remedy(balance::interleave("what all nodes use"))
        .remedy(remedies::bounded_writer(cx))
        .note("A huge page counts as one allocation, so the bytes are the least that is remote.")
        .note(
            "vm.zone_reclaim_mode is no remedy: it would drop page cache on the node instead and wait for \
             the disk.",
        );
}

/// Nodes by how many allocations wanted them in vain over the period, most first.
fn foreign(cx: &Context<'_>) -> Vec<(u32, u64)> {
    let before = cx.before().ok().and_then(|before| before.nodes.as_deref()).unwrap_or_default();
    let count = |node: &lotsfree_kernel_files::file::node::Node| node.numastat.as_ref()?.get(n::numa_foreign);
    let mut found: Vec<(u32, u64)> = (cx.nodes().unwrap_or_default().iter())
        .filter_map(|node| {
            let first = before.iter().find(|first| first.id == node.id).and_then(count)?;
            Some((node.id, count(node)?.checked_sub(first)?))
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    found.sort_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
    found
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::file::node::Node;
    use lotsfree_snapshot::{Observation, Snapshot};
    use lotsfree_units::Bytes;

    use super::*;

    #[test]
    fn the_least_rate_is_less_than_half_a_mib_a_second() {
        assert!(Bytes::kib(4).times(LEAST as u64) < Bytes::kib(512));
    }

    #[test]
    fn counters_that_stand_still_say_nothing() {
        let snapshot = || {
            let mut snapshot =
                Snapshot { nodes: Some(vec![Node::default(), Node::default()]), ..Snapshot::default() };
            let vmstat = snapshot.vmstat.get_or_insert_default();
            vmstat.set(v::numa_hit, 5);
            vmstat.set(v::numa_miss, 1);
            snapshot.sysctl.0.insert(NUMA_STAT.into(), "0".into());
            snapshot
        };
        let observation = Observation::pair("constructed", snapshot(), snapshot(), 10.0);
        let outcome = RemoteAlloc.check(&Context::new(&observation));
        let frozen = |missing: &[String]| missing.iter().any(|field| field.contains("vm.numa_stat is 0"));
        assert!(matches!(&outcome, Err(Skip::Unknown(missing)) if frozen(missing)), "{outcome:?}");
    }
}
