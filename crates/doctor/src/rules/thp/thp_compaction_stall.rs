use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_units::{Grouped, Percent};

use crate::rule::rule;
use crate::{Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, advice, thp};

rule! {
    /// Tasks compact memory themselves to get huge pages, and mostly in vain.
    ///
    /// # Sees
    /// Over two samples: `compact_stall` grows by more than 1/s, more than half of these end in
    /// `compact_fail`, and more than a fifth of the faults that wanted a huge page fell back to base pages
    /// (`thp_fault_fallback` against `thp_fault_alloc`).
    ///
    /// # Hurts
    /// With `defrag` set to `always` a page fault that finds no free huge page stands still while the task
    /// moves other pages out of the way. Where free memory is scattered this takes milliseconds, fails, and
    /// is tried again at the next fault. The host has free memory and its requests wait for it.
    ///
    /// # Remedies
    /// `defrag` set to `defer+madvise` (`madvise` before 4.11): only faults that asked for huge pages
    /// compact. More memory kept free, so that kcompactd has room to work with.
    ///
    /// # False alarms
    /// The first minutes after boot. Compaction by khugepaged, which nobody waits for
    /// (`thp_collapse_alloc_failed` grows and the fallbacks do not). Large requests other than huge pages
    /// compact as well; those do not move the fallbacks either.
    ///
    /// # References
    /// mm/page_alloc.c:__alloc_pages_direct_compact, mm/huge_memory.c:vma_thp_gfp_mask (6.12);
    /// `Documentation/admin-guide/mm/transhuge.rst`.
    pub ThpCompactionStall = "thp-compaction-stall" in Thp
}

/// Stalls a second: below it each costs a few milliseconds and nobody notices.
const STALLS: f64 = 1.0;
/// Share of the stalls that achieve nothing, from which on compaction is a loss.
const FAILED: f64 = 0.5;
/// Share of huge page faults that fell back, which ties the stalls to huge pages.
const FALLBACK: f64 = 0.2;
/// After boot all of memory is faulted in at once; fragmentation that matters stays beyond that.
const BOOT_SECONDS: f64 = 300.0;
/// PSI of memory from which nohang warns.
const PRESSURE: f64 = 0.1;

impl Rule for ThpCompactionStall {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let stalls = cx.rate(&[v::compact_stall])?;
        if stalls.per_second <= STALLS {
            return Ok(Vec::new());
        }
        let failed = cx.rate(&[v::compact_fail])?;
        let allocated = cx.rate(&[v::thp_fault_alloc])?;
        let fallback = cx.rate(&[v::thp_fault_fallback])?;
        let share_failed = failed.total as f64 / stalls.total as f64;
        let wanted = allocated.total.saturating_add(fallback.total);
        let share_fallback = if wanted == 0 { 0.0 } else { fallback.total as f64 / wanted as f64 };
        if share_failed <= FAILED || share_fallback <= FALLBACK {
            return Ok(Vec::new());
        }
        if let Some(uptime) = cx.now().uptime.filter(|uptime| *uptime < BOOT_SECONDS) {
            return Err(Skip::because(format!("booted {uptime:.0} s ago: memory is being taken into use")));
        }
        let scanned = cx.rate(&[v::compact_migrate_scanned, v::compact_free_scanned]).ok();
        let pages = scanned.map_or_else(String::new, |rate| {
            format!("; {} pages/s looked at to move or to move to", Grouped(rate.per_second as u64))
        });
        let stalled = cx.stalled(false).ok();
        let cost = match stalled {
            Some(share) => {
                Cost::stalled(share, format!("waiting for memory, compaction included (PSI){pages}"))
            }
            None => Cost::risk(format!(
                "{:.0} tasks a second stand still until compaction ends (no PSI here to say how long){pages}",
                stalls.per_second
            )),
        };
        let high = stalled.is_some_and(|share| share >= PRESSURE);
        let mut finding = Finding::new(
            Self::ID,
            if high { Severity::High } else { Severity::Warning },
            format!(
                "tasks compact memory {:.0} times a second for huge pages, {} of it in vain",
                stalls.per_second,
                Percent(share_failed)
            ),
            cost,
        );
        finding
            .sure(cx.rate_confidence())
            .because(
                cx.saw_rate(&[v::compact_stall], &stalls).against("1/s", "each stall is a task that waits"),
            )
            .because(
                cx.saw_rate(&[v::compact_fail], &failed)
                    .against(format!("{} of the stalls", Percent(FAILED)), "beyond it compaction is a loss"),
            )
            .because(cx.saw_rate(&[v::thp_fault_alloc], &allocated))
            .because(cx.saw_rate(&[v::thp_fault_fallback], &fallback).against(
                format!("{} of the faults that wanted a huge page", Percent(FALLBACK)),
                "ties the stalls to huge pages",
            ));
        if let Ok(thp) = cx.thp() {
            let defrag = format!("[{}]", thp.defrag.selected);
            finding.because(Evidence::new(format!("{}/defrag", thp::ROOT), "defrag", defrag));
        }
        finding.because_all(free_blocks(cx));
        add_remedies(&mut finding, cx);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>) {
    if let Some(remedy) = thp::set_defrag(cx) {
        finding.remedy(remedy).note(advice::thp_defrag(cx).contested);
    } else {
        finding.note(
            "defrag is not always: those who wait asked for huge pages with madvise (or are khugepaged). \
             Give them more free memory, or a hugetlb pool.",
        );
    }
    let order = "compacts all free memory now; keeps until it is scattered again";
    finding
        .remedy(
            Remedy::new("Compact memory once, at a quiet time")
                .run("sysctl -w vm.compact_memory=1")
                .risk(format!("It moves pages for seconds and costs CPU time; {order}.")),
        )
        .note("Who stalls: `perf record -e compaction:mm_compaction_begin -ag -- sleep 10`.");
}

/// Free memory of each Normal zone, and how much of it is in blocks of a huge page.
fn free_blocks(cx: &Context<'_>) -> Vec<Evidence> {
    let order = thp::pages_in_huge(cx).max(1).ilog2();
    let zones = cx.now().buddy.iter().flatten().filter(|zone| &*zone.zone == "Normal");
    zones
        .map(|zone| {
            let (all, huge) = (zone.pages_from(0), zone.pages_from(order as usize));
            let value = format!("{} of {} free", cx.pages(huge), cx.pages(all));
            Evidence::new("/proc/buddyinfo", format!("blocks of order {order} and up"), value)
                .of(format!("node {} zone {}", zone.node, zone.zone))
        })
        .collect()
}
