use lotsfree_kernel_files::file::kernel_log::OomKill;
use lotsfree_units::Bytes;

use super::balance;
use crate::finding::subject;
use crate::kernel_report::Judged;
use crate::remedies::DROP_IN;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity};

rule! {
    /// The OOM killer struck because memory was bound to nodes that were full.
    ///
    /// # Sees
    /// `constraint=CONSTRAINT_MEMORY_POLICY` or `CONSTRAINT_CPUSET` in the kernel log's `oom-kill:` lines
    /// (4.19 and later), which processes are bound (`numa_maps`), and what each node has free now.
    ///
    /// # Hurts
    /// `numactl --membind`, `NUMAPolicy=bind` and `cpuset.mems` forbid all other nodes. When those allowed
    /// are full and nothing can be reclaimed, a process is killed, however much is free elsewhere. Swap and
    /// page cache of other nodes do not help.
    ///
    /// # Remedies
    /// `--preferred` or `--interleave` instead of `--membind`; more nodes in `cpuset.mems`; less memory for
    /// the bound program.
    ///
    /// # False alarms
    /// A limit of a memory cgroup is another constraint and not this. Strict binding is deliberate where a
    /// job must fail rather than be slow.
    ///
    /// # References
    /// mm/oom_kill.c:constrained_alloc and dump_oom_summary (6.12);
    /// `Documentation/admin-guide/mm/numa_memory_policy.rst`.
    pub ConstraintOom = "constraint-oom" in Numa
}

/// A kill this long ago or less counts as going on.
const RECENT_SECONDS: f64 = 3600.0;

impl Rule for ConstraintOom {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let log = cx.kernel_log()?;
        let bound = |kill: &&OomKill| {
            matches!(kill.constraint.as_str(), "CONSTRAINT_MEMORY_POLICY" | "CONSTRAINT_CPUSET")
        };
        let kills: Vec<&OomKill> = log.ooms.iter().filter(bound).collect();
        let Some(last) = kills.last() else { return cx.not_logged() };
        let ago = last.at.zip(cx.now().uptime).map(|(at, uptime)| uptime - at as f64);
        let recent = ago.is_some_and(|ago| (0.0..=RECENT_SECONDS).contains(&ago));
        let when = ago.map_or_else(String::new, |ago| format!(", {:.1} h ago", ago.max(0.0) / 3600.0));
        let policy = last.constraint == "CONSTRAINT_MEMORY_POLICY";
        let what = if policy { "a memory policy" } else { "a cpuset" };
        let memory = last.anon_rss.unwrap_or_default();
        let count = if kills.len() == 1 {
            "a process was".to_owned()
        } else {
            format!("{} processes were", kills.len())
        };
        let cost = Cost::risk(format!("{count} killed, the last with {memory} of its own memory"));
        let report = log.reports.iter().rev().find(|report| report.kills.contains(last));
        let beyond = report.and_then(|report| Judged::of(report).beyond());
        let nodes = match beyond {
            Some((zone, free)) => {
                format!(
                    "nodes whose free memory ({free:#}) is in zone {zone}, which the request could not use"
                )
            }
            None => "nodes that were full".to_owned(),
        };
        let mut finding = Finding::new(
            Self::ID,
            if recent { Severity::Critical } else { Severity::High },
            format!("{} was killed because {what} allowed only {nodes}{when}", last.name),
            cost,
        );
        finding.sure(Confidence::Certain);
        for kill in kills.iter().rev().take(3) {
            let mut value = kill.constraint.clone();
            if let Some(bytes) = kill.anon_rss.filter(|bytes| *bytes > Bytes::ZERO) {
                value.push_str(&format!(", anon-rss {bytes:#}"));
            }
            finding.because(
                Evidence::new("/dev/kmsg", "oom-kill: constraint", value)
                    .of(format!("pid {} {}", kill.pid, kill.name)),
            );
        }
        for node in balance::ordinary_nodes(cx).unwrap_or_default() {
            finding.because(node.saw());
        }
        finding.because_all(bound_processes(cx));
        add_remedies(&mut finding, cx, policy);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, policy: bool) {
    if policy {
        finding.remedy(
            Remedy::new("Prefer nodes instead of binding to them")
                .run("numactl --preferred=NODE COMMAND")
                .keep(DROP_IN, "NUMAPolicy=preferred")
                .keep(DROP_IN, "NUMAMask=NODE")
                .risk("Once the node is full the rest comes from others and is reached more slowly.")
                .restart("the program"),
        );
        finding.remedy(balance::interleave("the program"));
    } else {
        let nodes = balance::list(cx.nodes().unwrap_or_default().iter().map(|node| node.id));
        let nodes = if nodes.is_empty() { "NODES".to_owned() } else { nodes };
        finding.remedy(
            Remedy::new("Allow the cgroup more nodes")
                .run(format!("systemctl set-property --runtime UNIT AllowedMemoryNodes={nodes}"))
                .keep(DROP_IN, format!("AllowedMemoryNodes={nodes}"))
                .undo_with("systemctl set-property --runtime UNIT AllowedMemoryNodes=OLD_NODES")
                .risk("Memory may then come from other nodes and be reached more slowly."),
        );
    }
    finding
        .remedy(
            Remedy::new("Give the bound program less memory than its nodes have")
                .risk("A smaller cache; leave room for page cache and the kernel on the same nodes.")
                .restart("the program"),
        )
        .note(
            "The free memory above is of now; at the time of the kill the allowed nodes had none left, as \
             the constraint says.",
        );
}

/// Processes that are bound to nodes, the largest first.
fn bound_processes(cx: &Context<'_>) -> Vec<Evidence> {
    let evidence = |process: &lotsfree_kernel_files::file::process::Process| {
        let numa = process.detail.as_ref()?.numa.as_ref()?;
        let own = numa.mappings.iter().map(|mapping| &mapping.policy);
        let policy =
            std::iter::once(&numa.first_policy).chain(own).find(|policy| policy.starts_with("bind"))?;
        Some(Evidence::new("/proc/PID/numa_maps", "policy", policy).of(subject(process)))
    };
    cx.processes().unwrap_or_default().iter().filter_map(evidence).take(3).collect()
}
