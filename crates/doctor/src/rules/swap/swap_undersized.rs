use lotsfree_formulas::swap;
use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::swapping::add_swap;
use crate::{Confidence, Context, Cost, Finding, Outcome, Rule, Severity, Skip, Workload};

rule! {
    /// There is less swap than the vendor of the installed program asks for.
    ///
    /// # Sees
    /// `SwapTotal` against the row of the program that runs: SAP at least 10 GiB; Oracle 1.5 times memory up
    /// to 2 GiB, as much as memory up to 16 GiB, 16 GiB beyond, where memory is without the huge page pools.
    ///
    /// # Hurts
    /// Nothing by itself: installers and support check it. Memory that nobody touches stays in memory when
    /// swap is full.
    ///
    /// # Remedies
    /// A swap file for the difference.
    ///
    /// # False alarms
    /// Vendors contradict each other (Elasticsearch and Cassandra want none), so only programs that are seen
    /// running count. A partition is a little smaller than its round size: 2 % less are accepted. Whether
    /// more swap would help can only be seen from its use (see swap-exhaustion).
    ///
    /// # References
    /// Oracle Database Installation Guide for Linux, "Server Configuration Checklist"; SAP (10 GiB at least).
    pub SwapUndersized = "swap-undersized" in Swap
}

/// A partition is rounded to cylinders or megabytes, and its first page holds the header.
const TOLERANCE: f64 = 0.02;

impl Rule for SwapUndersized {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        cx.processes()?;
        let have = cx.mem(m::SwapTotal)?;
        let (total, ordinary) = (cx.total()?, cx.total_without_pools()?);
        let sap = cx.runs(Workload::Hana) || cx.runs(Workload::Sap);
        let asked = [
            sap.then(|| (swap::SAP_MIN, "SAP", "at least 10 GiB for any SAP host".to_owned())),
            cx.runs(Workload::Oracle)
                .then(|| swap::oracle(ordinary))
                .flatten()
                .map(|size| (size, "Oracle", oracle_row(ordinary, total))),
        ];
        let Some((wanted, vendor, row)) = asked.into_iter().flatten().max_by_key(|(size, ..)| *size) else {
            return Err(Skip::because("no program runs here whose vendor asks for swap"));
        };
        if have >= wanted.scale(1.0 - TOLERANCE) {
            return Ok(Vec::new());
        }
        let short = wanted - have;
        let mut finding = Finding::new(
            Self::ID,
            Severity::Info,
            format!("{have:#} of swap, {vendor} asks for {wanted}"),
            Cost::risk(format!("a vendor's check fails; {short} less room for memory that nobody touches")),
        );
        finding
            .sure(Confidence::Certain)
            .because(
                cx.saw_mem(m::SwapTotal)
                    .against(format!("at least {wanted:#} (less {})", Percent(TOLERANCE)), &row),
            )
            .because(cx.saw_mem(m::MemTotal))
            .remedy(add_swap(short))
            .note(format!("{vendor}: {row}."))
            .note(format!(
                "More than a device reads back in {} minutes is of no use: a disk of 100 MiB/s makes {} the \
                 most.",
                swap::DRAIN_SECONDS / 60,
                swap::drain_limit(Bytes::mib(100))
            ));
        Ok(vec![finding])
    }
}

fn oracle_row(ordinary: Bytes, total: Bytes) -> String {
    let net = match total - ordinary {
        Bytes::ZERO => String::new(),
        pools => format!(", {pools} of huge pages not counted"),
    };
    format!("for {ordinary} of memory{net}: 1.5 times up to 2 GiB, as much up to 16 GiB, 16 GiB beyond")
}
