use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_units::{Bytes, Grouped};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Remedy, Rule, Severity, Skip};

rule! {
    /// The memory hardware reports errors.
    ///
    /// # Sees
    /// Corrected and uncorrected errors counted by EDAC, over two samples whether they grow, and
    /// `HardwareCorrupted` in `/proc/meminfo`.
    ///
    /// # Hurts
    /// An uncorrected error destroys a page: the process that uses it is killed, or the host stops. Corrected
    /// errors cost nothing by themselves, but a module that has them gets uncorrected ones far more often
    /// than others, and floods of them slow the host with interrupts. A huge page that is hit loses 2 MiB or
    /// 1 GiB.
    ///
    /// # Remedies
    /// Replace the module; page off what is bad until then.
    ///
    /// # False alarms
    /// `HardwareCorrupted` counts pages that were taken out of use on suspicion (soft offline) and by test
    /// programs as well. Without an EDAC driver (most guests) only `HardwareCorrupted` is looked at. Counters
    /// since boot say that it has happened, not that it goes on.
    ///
    /// # References
    /// `Documentation/admin-guide/RAS/main.rst`; mm/memory-failure.c:memory_failure and soft_offline_page
    /// (6.12); thresholds of netdata's alarms for EDAC.
    pub HardwareErrors = "hardware-errors" in Host
}

impl Rule for HardwareErrors {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let corrupted = cx.mem(m::HardwareCorrupted);
        let edac = cx.now().edac;
        if edac.is_none() && corrupted.is_err() {
            return Err(Skip::Unknown(vec![
                "/proc/meminfo HardwareCorrupted".to_owned(),
                "/sys/devices/system/edac/mc".to_owned(),
            ]));
        }
        let corrupted = corrupted.unwrap_or_default();
        let counts = edac.unwrap_or_default();
        let before = cx.before().ok().and_then(|before| before.edac);
        let grown = |first: Option<u64>, now: u64| {
            Rate::of(&[(0.0, first?), (cx.seconds().ok()?, now)]).filter(|rate| rate.total > 0)
        };
        let mut found = Vec::new();
        if counts.uncorrected > 0 {
            let rate = grown(before.map(|b| b.uncorrected), counts.uncorrected);
            let more = if rate.is_some() { ", and more while it was watched" } else { "" };
            let mut finding = Finding::new(
                Self::ID,
                Severity::Critical,
                format!("memory has had {} since boot{more}", errors(counts.uncorrected, "uncorrected")),
                Cost::risk("each destroys a page: what used it is killed or works with wrong data"),
            );
            finding.sure(Confidence::Certain).because(seen(
                "ue_count",
                counts.uncorrected,
                before.map(|b| b.uncorrected),
            ));
            add_remedies(&mut finding);
            found.push(finding);
        }
        if counts.corrected > 0 {
            let rate = grown(before.map(|b| b.corrected), counts.corrected);
            let how_often = match (rate, cx.now().uptime) {
                (Some(rate), _) => format!(", {:.1} more every minute", rate.per_second * 60.0),
                (None, Some(uptime)) if uptime > 0.0 => {
                    format!(", {:.1} a day", counts.corrected as f64 * 86_400.0 / uptime)
                }
                _ => String::new(),
            };
            let mut finding = Finding::new(
                Self::ID,
                Severity::Warning,
                format!("memory has had {} since boot{how_often}", errors(counts.corrected, "corrected")),
                Cost::risk(
                    "nothing is lost yet; uncorrected errors follow on such modules more often than on others",
                ),
            );
            finding
                .sure(if rate.is_some() { Confidence::Certain } else { Confidence::Likely })
                .because(seen("ce_count", counts.corrected, before.map(|b| b.corrected)));
            add_remedies(&mut finding);
            found.push(finding);
        }
        if corrupted > Bytes::ZERO {
            let cost = match cx.total() {
                Ok(total) => Cost::memory(
                    corrupted,
                    total,
                    "taken out of use, and what was in it was lost if it was in use",
                ),
                Err(_) => Cost::risk(format!("{corrupted} are out of use")),
            };
            let mut finding = Finding::new(
                Self::ID,
                Severity::High,
                format!("{corrupted:#} of memory were taken out of use as faulty"),
                cost,
            );
            finding
                .sure(if counts.uncorrected > 0 { Confidence::Certain } else { Confidence::Likely })
                .because(cx.saw_mem(m::HardwareCorrupted).against("0 kB", "netdata's alarm"))
                .note(
                    "The kernel log says why (\"Memory failure\", \"Soft offlining\"): pages that were \
                     moved away on suspicion lost nothing, those that failed in use killed a process.",
                );
            add_remedies(&mut finding);
            found.push(finding);
        }
        Ok(found)
    }
}

fn seen(field: &str, now: u64, before: Option<u64>) -> Evidence {
    let evidence =
        Evidence::new("/sys/devices/system/edac/mc/mc*", field, Grouped(now)).against("0", "netdata's alarm");
    match before {
        Some(before) => evidence.was(Grouped(before)),
        None => evidence,
    }
}

fn add_remedies(finding: &mut Finding) {
    finding
        .remedy(
            Remedy::new("Find the module and replace it")
                .run("grep . /sys/devices/system/edac/mc/mc*/dimm*/dimm_{label,ce_count,ue_count}")
                .run("ras-mc-ctl --errors")
                .risk("A maintenance window. Until then rasdaemon can take pages with repeated errors out of use.")
                .restart("the host, to change the module"),
        )
        .note("How to choose: uncorrected errors and growing corrected ones are replaced now; a few corrected ones since a long time ago are watched.");
}

fn errors(n: u64, kind: &str) -> String {
    if n == 1 { format!("1 {kind} error") } else { format!("{} {kind} errors", Grouped(n)) }
}
