use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_settings::NR_HUGEPAGES;
use lotsfree_units::Bytes;

use crate::huge;
use crate::rule::rule;
use crate::{Confidence, Context, Finding, Outcome, Rule, Severity, Skip, Workload, advice};

rule! {
    /// SAP HANA runs on a host with a huge page pool, which it must not have.
    ///
    /// # Sees
    /// Processes of SAP HANA and a pool that is not empty, of any page size.
    ///
    /// # Hurts
    /// HANA never takes pages from the pool. It sizes itself by physical memory (`global_allocation_limit`:
    /// by default 90 % of the first 64 GB and 97 % of the rest), of which the pool is a part: host and
    /// database together want more than there is.
    ///
    /// # Remedies
    /// Release the pool.
    ///
    /// # False alarms
    /// A second database beside HANA may use the pool: then only the spare pages go at once, and HANA's
    /// limit has to be lowered by the rest.
    ///
    /// # References
    /// SAP's checks of HANA hosts call a pool an error; SAP note 2131662 (transparent huge pages on HANA
    /// servers).
    pub PoolOnHana = "pool-on-hana" in HugePages
}

impl Rule for PoolOnHana {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let pools = huge::filled(cx)?;
        cx.processes()?;
        if !cx.runs(Workload::Hana) {
            return Err(Skip::because("SAP HANA does not run"));
        }
        if pools.is_empty() {
            return Ok(Vec::new());
        }
        let bytes: Bytes = pools.iter().map(HugePool::bytes).sum();
        let title = format!("SAP HANA runs beside a huge page pool of {bytes}, which it cannot use");
        let cost = huge::cost(cx, bytes, "that HANA counts as its own and cannot have");
        let why = match advice::huge_pool_allowed(cx) {
            Err(why) => why,
            Ok(()) => "SAP HANA must run without a huge page pool",
        };
        let mut finding = Finding::new(Self::ID, Severity::High, title, cost);
        finding.sure(Confidence::Certain);
        for pool in &pools {
            let name = match huge::default_size(cx) {
                Ok(size) if size == pool.size => NR_HUGEPAGES.to_owned(),
                _ => format!("{}/nr_hugepages", huge::directory(pool.size)),
            };
            finding.because_all(huge::saw_pool(cx, pool)).forbid(name, why).remedy(
                huge::resize(
                    cx,
                    pool,
                    0,
                    format!("Release the pool of {} pages", huge::page_name(pool.size)),
                )
                .risk("Pages in use stay with their program as surplus and go when it ends."),
            );
        }
        if pools.iter().any(|pool| huge::promised(pool) > 0) {
            finding.note(
                "Part of the pool is used or promised: some other program has it. Stop that program or \
                 lower HANA's global_allocation_limit by the pool.",
            );
        }
        finding.note(format!("{why}."));
        Ok(vec![finding])
    }
}
