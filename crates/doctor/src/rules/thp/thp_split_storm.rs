use lotsfree_kernel_files::counters::{ksm, vmstat as v};
use lotsfree_settings::NUMA_BALANCING;
use lotsfree_units::Percent;

use crate::known_bad::has_thp_storm;
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, DIRECT_SCAN, Evidence, Finding, Outcome, REFAULT_FILE, Rate, Rule, Severity,
    THP_SPLIT, advice, thp,
};

rule! {
    /// Huge pages are split by the thousand while tasks reclaim or NUMA balancing moves memory.
    ///
    /// # Sees
    /// Over two samples: splits (`thp_split_page`, `thp_split` before 4.5) times the size of a huge page come
    /// to more than 1 % of memory per minute, and `pgscan_direct` or `numa_pages_migrated` grow. Splits for
    /// swap-out (`thp_swpout_fallback`) are taken off.
    ///
    /// # Hurts
    /// A heap that was in huge pages is broken up, moved page by page and put together again by khugepaged,
    /// and the tasks that own it wait meanwhile. On one service a Java heap of 5 GB was split and moved
    /// between nodes; on kernels of 2025 the same happens when one node is full and a huge page is wanted
    /// from it.
    ///
    /// # Remedies
    /// A repaired kernel where the vendor names one, `defrag=never` until then; transparent huge pages with
    /// `madvise`; `kernel.numa_balancing=0` where the programs place their memory themselves.
    ///
    /// # False alarms
    /// Swap-out splits what it cannot write whole; KSM splits what it merges. Both are known and not this.
    /// Splits of pages that were partly unmapped give memory back, and are no loss.
    ///
    /// # References
    /// mm/huge_memory.c:__folio_split, mm/migrate.c:migrate_pages (6.12); LinkedIn, "Optimizing Linux Memory
    /// Management for Low-latency / High-throughput Databases" (2013); SUSE KB 22286.
    pub ThpSplitStorm = "thp-split-storm" in Thp
}

/// Share of memory that is split per minute. At this rate every huge page of the host is gone in under two
/// hours, far above what freeing and unmapping cause.
const SHARE_PER_MINUTE: f64 = 0.01;
/// PSI of memory from which nohang warns.
const PRESSURE: f64 = 0.1;

impl Rule for ThpSplitStorm {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let splits = cx.rate(THP_SPLIT)?;
        let total = cx.total()?;
        let swapped = cx.rate(&[v::thp_swpout_fallback]).ok();
        let for_swap = swapped.map_or(0.0, |rate| rate.per_second);
        let per_minute = thp::huge_size(cx).scale((splits.per_second - for_swap).max(0.0) * 60.0);
        let share = per_minute.share_of(total);
        if share <= SHARE_PER_MINUTE {
            return Ok(Vec::new());
        }
        let scans = cx.rate(DIRECT_SCAN)?;
        let moved = cx.rate(&[v::numa_pages_migrated]).ok().filter(|rate| rate.total > 0);
        if scans.total == 0 && moved.is_none() {
            return Ok(Vec::new());
        }
        let refaults = cx.rate(REFAULT_FILE).ok();
        let stalled = cx.stalled(false).ok();
        let cost = cost(cx, stalled, refaults);
        let cause = match (scans.total > 0, moved.is_some()) {
            (true, true) => "tasks reclaim and NUMA balancing moves pages",
            (true, false) => "tasks reclaim memory themselves",
            _ => "NUMA balancing moves pages",
        };
        let high = stalled.is_some_and(|share| share >= PRESSURE);
        let merging = cx.now().ksm.as_ref().and_then(|values| values.get(ksm::run)) == Some(1);
        let mut finding = Finding::new(
            Self::ID,
            if high { Severity::High } else { Severity::Warning },
            format!(
                "{per_minute} of huge pages are split per minute ({} of memory) while {cause}",
                Percent(share)
            ),
            cost,
        );
        finding
            .sure(if merging { Confidence::Possible } else { cx.rate_confidence() })
            .because(cx.saw_rate(THP_SPLIT, &splits).against(
                format!("{} of memory per minute", Percent(SHARE_PER_MINUTE)),
                "above what freeing and unmapping cause",
            ))
            .because(cx.saw_rate(DIRECT_SCAN, &scans));
        finding.because_if(moved.map(|rate| cx.saw_rate(&[v::numa_pages_migrated], &rate)));
        finding.because_if(swapped.map(|rate| cx.saw_rate(&[v::thp_swpout_fallback], &rate)));
        if let Ok(deferred) = cx.rate(&[v::thp_deferred_split_page]) {
            finding.because(cx.saw_rate(&[v::thp_deferred_split_page], &deferred)).note(
                "Pages that were partly unmapped wait in a queue (thp_deferred_split_page) and are split \
                 under pressure: as far as both grow alike, splitting frees memory and the pressure is the \
                 cause, not the splits.",
            );
        }
        if merging {
            finding.because(Evidence::new("/sys/kernel/mm/ksm/run", "run", 1)).note(
                "KSM is merging and splits huge pages too: how many of these are its own cannot be told.",
            );
        }
        finding.note(format!(
            "Splits for swap-out are taken off: {:.1}/s of {:.1}/s.",
            for_swap, splits.per_second
        ));
        let release = &cx.now().host.kernel.release;
        if cx.several_nodes().is_ok() && has_thp_storm(release) {
            finding.because(Evidence::new("/proc/sys/kernel/osrelease", "osrelease", release).against(
                "5.14.21-150500.55.136, 6.4.0-150600.23.87, 6.4.0-150700.53.31, 5.14.0-570.127.1.el9_6, \
                 5.14.0-687.13.1.el9_8",
                "repaired builds, SUSE KB 22286",
            ));
        }
        add_remedies(&mut finding, cx, moved.is_some());
        Ok(vec![finding])
    }
}

fn cost(cx: &Context<'_>, stalled: Option<f64>, refaults: Option<Rate>) -> Cost {
    match (stalled, refaults) {
        (Some(share), _) => {
            Cost::stalled(share, "waiting for memory while it is split, moved and reclaimed (PSI)")
        }
        (None, Some(rate)) => {
            let (read, how) = cx.read_latency();
            Cost::faults(rate.per_second, read, format!("pages read again, at {how}"))
        }
        (None, None) => Cost::risk("no PSI and no refault counter here to say what it costs"),
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, moved: bool) {
    // khugepaged joins in the storm of those kernels and is stopped from it as well.
    if let Some(mut remedy) = thp::set_defrag(cx) {
        let own = cx.thp().ok().and_then(|thp| thp.khugepaged("defrag"));
        if advice::thp_defrag(cx).value == "never"
            && let Some(now) = own.filter(|now| *now != 0)
        {
            let path = format!("{}/khugepaged/defrag", thp::ROOT);
            remedy = remedy.sysfs(&path, "0", Some(&now.to_string()));
        }
        finding.remedy(remedy);
    }
    let mode = thp::mode(cx).ok();
    let advised = advice::thp_enabled(cx);
    if let Some(mode) = mode.filter(|mode| mode.word == "always" && advised.value != "always") {
        finding.because(mode.saw()).remedy(mode.set(cx, advised.value)).note(advised.contested);
    }
    let balancing = advice::numa_balancing(cx);
    let on = cx.sysctl(NUMA_BALANCING).is_ok_and(|now| now != balancing.value);
    if moved && on && balancing.value & 1 == 0 {
        finding.because(cx.saw_sysctl(NUMA_BALANCING)).remedy(
            crate::Remedy::new("Turn NUMA balancing off")
                .sysctl(cx, NUMA_BALANCING, balancing.value)
                .risk("Unpinned virtual machines and programs that do not place their memory lose locality."),
        );
    }
    if finding.remedies.is_empty() {
        finding.note(
            "The settings are as advised already: look for the cause of the reclaim (its own findings) or \
             of the migration.",
        );
    }
}

#[cfg(test)]
mod tests {
    use lotsfree_units::Bytes;

    use super::*;

    #[test]
    fn one_per_cent_of_16_gib_is_82_huge_pages_a_minute() {
        let needed = Bytes::gib(16).scale(SHARE_PER_MINUTE).units_of(Bytes::mib(2));
        assert!((81..=82).contains(&needed), "{needed}");
    }
}
