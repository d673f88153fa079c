use lotsfree_kernel_files::file::process::{NumaMaps, Process};
use lotsfree_units::{Bytes, Percent};

use super::balance;
use crate::finding::subject;
use crate::rule::rule;
use crate::{Context, Cost, Evidence, Finding, Outcome, Rule, Severity, Skip, Workload};

rule! {
    /// A database whose cache all nodes use has it on the node that is full.
    ///
    /// # Sees
    /// One node short and another free (see `node-imbalance`), and on the short one most memory of a MongoDB,
    /// MySQL or PostgreSQL server whose `numa_maps` shows no interleave policy, neither in its first line,
    /// which is what mongod itself looks at, nor on its large mappings.
    ///
    /// # Hurts
    /// The default policy takes memory from the node of the thread that touches it first. One thread that
    /// loads the cache, or a start on one socket, fills that node; then the database is swapped out there
    /// although the host has memory, and half of the threads reach all of the cache remotely.
    ///
    /// # Remedies
    /// `numactl --interleave=all` for the server; `innodb_numa_interleave=ON` for MySQL, which interleaves
    /// the buffer pool alone.
    ///
    /// # False alarms
    /// Without an imbalance the policy does no harm and nothing is said. Servers that place memory themselves
    /// (Oracle, SAP HANA, SQL Server) are left alone, and so are instances bound to a node on purpose.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/numa_memory_policy.rst`; mongod's start-up check of `numa_maps`; MySQL
    /// manual, innodb_numa_interleave.
    pub PolicyNotInterleave = "policy-not-interleave" in Numa
}

/// Share of its memory on the short node from which on the server is what fills it; even spreading gives
/// 1/nodes.
const MOST: f64 = 0.6;
/// Share of the node that the server has to hold to be the cause.
const LARGE: f64 = 0.2;

impl Rule for PolicyNotInterleave {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let nodes = balance::ordinary_nodes(cx)?;
        let processes = cx.processes()?;
        let servers: Vec<(&Process, Workload)> =
            processes.iter().filter_map(|process| Some((process, shares_cache(process)?))).collect();
        if servers.is_empty() {
            return Err(Skip::because("no database with a cache that all nodes use runs here"));
        }
        let Some((short, ample)) = balance::imbalance(&nodes) else { return Ok(Vec::new()) };
        let maps = |process: &'_ Process| -> Option<NumaMaps> { process.detail.as_ref()?.numa.clone() };
        if servers.iter().all(|(process, _)| maps(process).is_none()) {
            return Err(Skip::missing("/proc/PID/numa_maps"));
        }
        let largest = servers
            .iter()
            .filter_map(|(process, workload)| Some((*process, *workload, maps(process)?)))
            .max_by_key(|(.., numa)| numa.nodes.get(short.id as usize).copied());
        let Some((process, workload, numa)) = largest else { return Ok(Vec::new()) };
        let on_short = numa.nodes.get(short.id as usize).copied().unwrap_or_default();
        let all: Bytes = numa.nodes.iter().copied().sum();
        let placed = |policy: &str| policy.contains("interleave") || policy.starts_with("bind");
        let placed =
            placed(&numa.first_policy) || numa.mappings.iter().any(|mapping| placed(&mapping.policy));
        if placed || on_short.share_of(all) <= MOST || on_short.share_of(short.total) <= LARGE {
            return Ok(Vec::new());
        }
        let even = Bytes(all.0 / nodes.len() as u64);
        let total = cx.total()?;
        let share = Percent(on_short.share_of(all));
        let cost = format!(
            "more on node {} than an even share of {even}, while node {} has {} free",
            short.id, ample.id, ample.free
        );
        let mut finding = Finding::new(
            Self::ID,
            Severity::Warning,
            format!("{} has {share} of its memory on node {}, which is full", workload.name(), short.id),
            Cost::memory(on_short - even, total, cost),
        );
        finding.because(
            Evidence::new("/proc/PID/numa_maps", "policy of the first line", &numa.first_policy)
                .of(subject(process))
                .against("interleave", "mongod's own check"),
        );
        for (id, bytes) in numa.nodes.iter().enumerate() {
            finding
                .because(Evidence::new("/proc/PID/numa_maps", format!("N{id}"), bytes).of(subject(process)));
        }
        finding.because(short.saw()).because(ample.saw());
        if workload == Workload::Mysql {
            finding.remedy(
                crate::Remedy::new("Let InnoDB interleave its buffer pool")
                    .keep("my.cnf, [mysqld]", "innodb_numa_interleave=ON")
                    .risk(
                        "Nothing but the remote half of a pool that all threads use; needs MySQL 5.6.27 or \
                         later built with libnuma.",
                    )
                    .restart("mysqld"),
            );
        }
        finding.remedy(balance::interleave(workload.name())).note(
            "How to choose: several small instances are better bound to a node each; one large one is \
             interleaved.",
        );
        Ok(vec![finding])
    }
}

/// The database, if it is one whose threads or processes on all nodes use one cache and that leaves placing
/// to the kernel.
fn shares_cache(process: &Process) -> Option<Workload> {
    let workload = Workload::of_name(&process.stat.name)?;
    matches!(workload, Workload::Mongo | Workload::Mysql | Workload::Postgres).then_some(workload)
}
