use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_units::{Grouped, Percent};

use crate::rule::rule;
use crate::{
    ALLOCSTALL, Confidence, Context, Cost, DIRECT_SCAN, Evidence, Finding, KSWAPD_SCAN, Outcome, Remedy,
    Rule, Severity, Skip,
};

rule! {
    /// Counters since boot say that memory was short, or in pieces, at some time.
    ///
    /// # Sees
    /// One reading of `/proc/vmstat`: how often compaction failed and huge pages could not be had; how much
    /// of all scanning tasks did themselves (`pgscan_direct` beside `pgscan_kswapd`), and how often they
    /// had to (`allocstall`); whether kswapd runs without scanning anything (`pageoutrun`).
    ///
    /// # Hurts
    /// Whatever hurt, did so at some time since boot: the counters do not say when. Two samples tell
    /// whether it goes on.
    ///
    /// # Remedies
    /// Look again over time, while the host is slow; other rules then name the cause.
    ///
    /// # False alarms
    /// One large job months ago leaves such counters behind. With two samples this rule is silent, because
    /// rates say more.
    ///
    /// # References
    /// `mm/vmstat.c:vmstat_text` (6.12); `Documentation/admin-guide/mm/transhuge.rst`, monitoring usage.
    pub SinceBoot = "since-boot" in Reclaim
}

/// Fewer events since boot are noise.
const EVENTS: u64 = 10_000;
/// Compactions that failed, and huge page faults that fell back, from which on memory is in pieces.
const FAILED: f64 = 0.5;
const FALLBACK: f64 = 0.2;
/// Runs of kswapd from which on it is a loop, if each scanned less than a page.
const RUNS: u64 = 10_000_000;
/// Share of scanning that tasks did themselves.
const DIRECT: f64 = 0.1;
/// Pages that tasks scanned themselves: 4 GiB of small pages.
const SCANNED: u64 = 1 << 20;

impl Rule for SinceBoot {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        if cx.seconds().is_ok() {
            return Err(Skip::because("two samples tell more than counters since boot"));
        }
        if cx.now().vmstat.is_none() {
            return Err(Skip::missing("/proc/vmstat"));
        }
        Ok([compaction(cx), direct(cx), spinning(cx)].into_iter().flatten().collect())
    }
}

fn compaction(cx: &Context<'_>) -> Option<Finding> {
    let (stalls, failed) = (cx.vm(v::compact_stall).ok()?, cx.vm(v::compact_fail).ok()?);
    let share = failed as f64 / stalls.max(1) as f64;
    let (given, fallback) =
        (cx.vm(v::thp_fault_alloc).unwrap_or(0), cx.vm(v::thp_fault_fallback).unwrap_or(0));
    let wanted = given.saturating_add(fallback);
    let fell = fallback as f64 / wanted.max(1) as f64;
    if stalls < EVENTS || share < FAILED || wanted > 0 && fell < FALLBACK {
        return None;
    }
    let huge = match wanted {
        0 => String::new(),
        _ => format!(", and {} of the faults that wanted a huge page got none", Percent(fell)),
    };
    let mut finding = Finding::new(
        SinceBoot::ID,
        Severity::Warning,
        format!(
            "since boot tasks compacted memory {} times, {} of it in vain{huge}",
            Grouped(stalls),
            Percent(share)
        ),
        Cost::risk("each time a task stood still; when that was, these counters do not say"),
    );
    finding.sure(Confidence::Possible);
    for counter in [v::compact_stall, v::compact_fail, v::thp_fault_alloc, v::thp_fault_fallback] {
        finding.because_if(cx.vm(counter).is_ok().then(|| cx.saw_vm(counter)));
    }
    again(&mut finding);
    Some(finding)
}

fn direct(cx: &Context<'_>) -> Option<Finding> {
    let (direct, kswapd) = (cx.vm_sum(DIRECT_SCAN).ok()?, cx.vm_sum(KSWAPD_SCAN).ok()?);
    let share = direct as f64 / direct.saturating_add(kswapd).max(1) as f64;
    if direct < SCANNED || share < DIRECT {
        return None;
    }
    let stalls = cx.vm_sum(ALLOCSTALL).ok().filter(|stalls| *stalls > 0);
    let times = stalls.map_or_else(String::new, |stalls| format!(" in {} stalls", Grouped(stalls)));
    let mut finding = Finding::new(
        SinceBoot::ID,
        Severity::Warning,
        format!(
            "since boot tasks did {} of all page scanning themselves{times}: kswapd was not fast enough",
            Percent(share)
        ),
        Cost::risk("each stall made a task wait for reclaim; when that was, these counters do not say"),
    );
    finding
        .sure(Confidence::Possible)
        .because(Evidence::new("/proc/vmstat", "pgscan_direct*", Grouped(direct)))
        .because(Evidence::new("/proc/vmstat", "pgscan_kswapd*", Grouped(kswapd)))
        .because_if(stalls.map(|stalls| Evidence::new("/proc/vmstat", "allocstall*", Grouped(stalls))));
    again(&mut finding);
    Some(finding)
}

/// kswapd that runs again and again and finds nothing to scan.
fn spinning(cx: &Context<'_>) -> Option<Finding> {
    let (runs, scanned) = (cx.vm(v::pageoutrun).ok()?, cx.vm_sum(KSWAPD_SCAN).ok()?);
    if runs < RUNS || scanned / runs > 0 {
        return None;
    }
    let mut finding = Finding::new(
        SinceBoot::ID,
        Severity::High,
        format!(
            "since boot kswapd ran {} times and scanned {} pages: it turns in a loop without reclaiming",
            Grouped(runs),
            Grouped(scanned)
        ),
        Cost::risk("a whole CPU, for as long as it goes on"),
    );
    finding
        .sure(Confidence::Likely)
        .because(cx.saw_vm(v::pageoutrun))
        .because(Evidence::new("/proc/vmstat", "pgscan_kswapd*", Grouped(scanned)))
        .note(
            "A defect of this kernel: kswapd takes a node for unbalanced in which there is nothing to reclaim. A later \
             release, or more free memory in its smallest zone, ends it.",
        );
    again(&mut finding);
    Some(finding)
}

fn again(finding: &mut Finding) {
    finding.remedy(
        Remedy::new("Look over time, while the host is slow")
            .run("lotsfree doctor --interval 60")
            .risk("None: it only reads."),
    );
}
