use crate::advice::Advice;
use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_settings::WATERMARK_SCALE_FACTOR;
use lotsfree_units::{Grouped, Percent};

use crate::rule::rule;
use crate::{
    ALLOCSTALL, Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Rule, Severity, remedies,
};

rule! {
    /// kswapd falls behind: it is woken again as soon as it rests, or tasks must reclaim although memory is
    /// available.
    ///
    /// # Sees
    /// Over two samples: `kswapd_low_wmark_hit_quickly` against `pageoutrun` (how often kswapd was woken
    /// again within the tenth of a second that it naps), or `allocstall` growing while `MemAvailable` is
    /// above 20 % of memory.
    ///
    /// # Hurts
    /// kswapd frees from the low to the high watermark. With the default gap of 0.1 % of a node, a burst uses
    /// that up before kswapd runs, and the tasks that allocate have to wait in direct reclaim although
    /// gigabytes could be freed.
    ///
    /// # Remedies
    /// `vm.watermark_scale_factor`: a gap that holds what the host allocates until kswapd has run.
    ///
    /// # False alarms
    /// Allocations of huge pages stall for contiguous memory, which watermarks do not give: where
    /// `compact_stall` makes up half of the stalls or more, they are not counted. Too few runs of kswapd make
    /// no ratio. Kernels before 3.11 count each pass of kswapd as a run, so the ratio there is too low, never
    /// too high.
    ///
    /// # References
    /// mm/vmscan.c:kswapd_try_to_sleep, balance_pgdat (6.12); `Documentation/admin-guide/sysctl/vm.rst`,
    /// watermark_scale_factor, which names both counters.
    pub KswapdBehind = "kswapd-behind" in Reclaim
}

/// Our choice: part of kswapd's runs that ended in a wake-up during the nap.
const AGAIN: f64 = 0.3;
/// Our choice: fewer runs do not make a ratio.
const ENOUGH_RUNS: u64 = 10;
/// Our choice: one stalled allocation a second; fewer are single events.
const STALLS_PER_SECOND: f64 = 1.0;
/// Our choice: available part of memory above which a stall is kswapd's fault, not a shortage.
const AVAILABLE: f64 = 0.2;

impl Rule for KswapdBehind {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let again = cx.rate(&[v::kswapd_low_wmark_hit_quickly]);
        let runs = cx.rate(&[v::pageoutrun]);
        let stalls = cx.rate(ALLOCSTALL);
        let available = cx.mem(m::MemAvailable).and_then(|available| Ok(available.share_of(cx.total()?)));
        let by_naps = again.and_then(|again| Ok((again, runs?)));
        let by_stalls = stalls.and_then(|stalls| Ok((stalls, available?)));
        if let (Err(skip), Err(_)) = (&by_naps, &by_stalls) {
            return Err(skip.clone());
        }

        let ratio = (by_naps.as_ref().ok())
            .filter(|(_, runs)| runs.total >= ENOUGH_RUNS)
            .map(|(again, runs)| again.total as f64 / runs.total as f64)
            .filter(|ratio| *ratio > AGAIN);
        let contiguous = cx.rate(&[v::compact_stall]).map_or(0, |rate| rate.total);
        let stalling = (by_stalls.as_ref().ok()).filter(|(stalls, available)| {
            stalls.per_second >= STALLS_PER_SECOND
                && *available > AVAILABLE
                && contiguous.saturating_mul(2) < stalls.total
        });
        let title = match (&stalling, ratio) {
            (Some((stalls, available)), _) => format!(
                "{:.1} allocations/s reclaim for themselves although {} of memory is available",
                stalls.per_second,
                Percent(*available)
            ),
            (None, Some(ratio)) => {
                format!(
                    "kswapd is woken again within a tenth of a second after {} of its runs",
                    Percent(ratio)
                )
            }
            (None, None) => return Ok(Vec::new()),
        };
        let cost = cost(cx, stalling);
        let severity = if stalling.is_some() { Severity::Warning } else { Severity::Info };
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding.sure(match stalling {
            Some(_) => cx.rate_confidence(),
            None => Confidence::Possible,
        });
        if let Ok((again, runs)) = &by_naps {
            finding
                .because(cx.saw_rate(&[v::kswapd_low_wmark_hit_quickly], again).against(
                    format!("more than {} of pageoutrun", Percent(AGAIN)),
                    "a rested kswapd sleeps longer than its nap",
                ))
                .because(cx.saw_rate(&[v::pageoutrun], runs));
        }
        if let Ok((stalls, available)) = &by_stalls {
            finding.because(cx.saw_rate(ALLOCSTALL, stalls)).because(
                Evidence::new("/proc/meminfo", "MemAvailable", Percent(*available))
                    .against(format!("more than {}", Percent(AVAILABLE)), "memory is not short"),
            );
        }
        let advice = crate::advice::watermark_scale_factor(cx);
        add_remedies(&mut finding, cx, &advice);

        Ok(vec![finding])
    }
}

fn cost(cx: &Context<'_>, stalling: Option<&(Rate, f64)>) -> Cost {
    match (cx.stalled(false), stalling) {
        (Ok(stalled), Some(_)) if stalled > 0.0 => {
            Cost::stalled(stalled, "some task stood still for memory (/proc/pressure/memory)")
        }
        (_, Some((stalls, _))) => Cost::risk(format!(
            "{} allocations in {:.0} s waited in direct reclaim",
            Grouped(stalls.total),
            stalls.seconds
        )),
        _ => Cost::risk("the next larger burst has to be reclaimed by the tasks that allocate"),
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, advice: &Advice<u64>) {
    match remedies::wider_watermarks(cx) {
        Ok(remedy) => finding.remedy(remedy).note(advice.contested),
        Err(why) => finding.note(why),
    };
    if cx.sysctl(WATERMARK_SCALE_FACTOR).is_ok() {
        finding.because(cx.saw_sysctl(WATERMARK_SCALE_FACTOR));
    }
    finding.note(
        "One node may be short while another is not: compare the free pages of each zone with its \
         watermarks, and allocations bound to a node with that node's memory.",
    );
}
