use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::huge::{self, STARTED};
use crate::pool_requests;
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
};

rule! {
    /// More of the huge page pool is spare than a host can afford to leave idle.
    ///
    /// # Sees
    /// Free less reserved pages of all pools above 2 % of memory; where a database runs, only after it has
    /// been up for ten minutes. Less sure in the first hour after boot.
    ///
    /// # Hurts
    /// Spare huge pages are lost to everything else: no process, no page cache, not even a swapping host
    /// gets them. `MemAvailable` falls by every byte of the pool.
    ///
    /// # Remedies
    /// Write the number of pages that are used or promised into `vm.nr_hugepages`: only free, unreserved
    /// pages go, nothing that is in use is touched.
    ///
    /// # False alarms
    /// A standby node holds pages for a database that may fail over to it, a host of virtual machines for
    /// guests not yet started: severity is lowered and the finding says so. If a segment in base pages
    /// would fit into the spare pages, they are not to be released but used.
    ///
    /// # References
    /// mm/hugetlb.c:set_max_huge_pages (6.12); measured: 512 pages more lower `MemAvailable` by 1,048,072
    /// kB.
    pub PoolWaste = "pool-waste" in HugePages
}

/// Pages that a script's rounding leaves over are far below this.
const WASTE: f64 = 0.02;
/// A tenth of memory.
const HIGH: f64 = 0.10;
/// Services of a host that has just booted have not all started.
const BOOTED: f64 = 3600.0;

impl Rule for PoolWaste {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let mut pools = huge::filled(cx)?;
        if pools.is_empty() {
            return Err(Skip::because("no huge page pool"));
        }
        // Of a pool that nobody uses at all pool-unused speaks.
        pools.retain(|pool| pool.used() > 0 || pool.reserved > 0);
        if cx.runs(Workload::Hana) {
            return Err(Skip::because("SAP HANA runs: pool-on-hana judges its pool"));
        }
        let total = cx.total()?;
        let spare: Bytes = pools.iter().map(|pool| pool.size.times(pool.idle())).sum();
        let share = spare.share_of(total);
        if share <= WASTE {
            return Ok(Vec::new());
        }
        let booted = cx.now().uptime.is_none_or(|uptime| uptime < BOOTED);
        if huge::database_age(cx).is_some_and(|(_, seconds)| seconds < STARTED) {
            return Ok(Vec::new());
        }
        let size = huge::default_size(cx)?;
        let wanted = huge::candidates(cx, size).unwrap_or_default();
        let reservable = pools.iter().find(|p| p.size == size).map_or(0, |p| p.idle());
        if wanted.first().is_some_and(|segment| segment.size.units_of(size) > reservable) {
            return Err(Skip::because(
                "a segment in base pages needs more than what is spare: see pool-too-small",
            ));
        }
        let purpose = huge::held_on_purpose(cx);
        let severity = Severity::ladder(
            &[(purpose.is_some(), Severity::Info), (share >= HIGH, Severity::High)],
            Severity::Warning,
        );
        let title = format!(
            "{spare} of huge pages, {} of memory, are spare: neither used nor promised",
            Percent(share)
        );
        let cost = Cost::memory(spare, total, "in the pool, for nobody");
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding.sure(if purpose.is_some() || booted { Confidence::Possible } else { Confidence::Likely });
        for pool in pools.iter().filter(|pool| pool.idle() > 0) {
            finding.because_all(huge::saw_pool(cx, pool)).note(format!(
                "Spare of {} pages: free {} - reserved {} = {} ({}).",
                huge::page_name(pool.size),
                Grouped(pool.free),
                Grouped(pool.reserved),
                Grouped(pool.idle()),
                pool.size.times(pool.idle())
            ));
        }
        finding.because(
            Evidence::new("/proc/meminfo", "spare / MemTotal", Percent(share))
                .against(format!("at most {}", Percent(WASTE)), "more than what rounding up leaves over"),
        );
        add_remedies(&mut finding, cx, &pools, &wanted, size);
        finding.note_if(purpose.map(|purpose| format!("Perhaps meant so: {purpose}.")));
        if booted {
            finding.note(
                "The host booted less than an hour ago, or it is not known when: services that want the \
                 pages may not have started yet.",
            );
        }
        Ok(vec![finding])
    }
}

fn add_remedies(
    finding: &mut Finding,
    cx: &Context<'_>,
    pools: &[HugePool],
    wanted: &[huge::Segment],
    size: Bytes,
) {
    if let Some(segment) = wanted.first() {
        finding.because(segment.evidence()).remedy(
            Remedy::new("Restart the database, whose segment would fit into the spare pages")
                .risk(
                    "An outage; find first what kept it out (see memlock-too-low and amm-blocks-hugepages).",
                )
                .restart("the database"),
        );
    }
    for pool in pools.iter().filter(|pool| pool.idle() > 0) {
        let pages = match advice::nr_hugepages(cx) {
            Ok(advice) if pool.size == size => advice.value,
            _ => huge::promised(pool),
        };
        if let Some(asked) = pool_requests::asked_for_more(cx, pool) {
            finding.note(asked);
        } else if pages < pool.total {
            let title =
                format!("Give back {} of {}", huge::count(pool.total - pages), huge::page_name(pool.size));
            finding.remedy(
                huge::resize(cx, pool, pages, title)
                    .risk("Only free pages go. A later request for more has to find unfragmented memory."),
            );
        }
    }
}
