use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_settings::PAGE_CLUSTER;
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::swapping::{device_of, is_zram, saw_rotational, turns};
use crate::{Context, Cost, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// Swap is read ahead and most of what is read ahead is not used.
    ///
    /// # Sees
    /// `vm.page-cluster` above 0, `pswpin` growing, and `swap_ra_hit` growing by less than half of `swap_ra`,
    /// with no swap area on a rotating disk.
    ///
    /// # Hurts
    /// With `page-cluster` 3 up to seven neighbours are read with each page. On a solid-state disk each of
    /// them costs bandwidth of its own, and every page that is not used takes the place of one that is, which
    /// then has to be swapped in turn.
    ///
    /// # Remedies
    /// `vm.page-cluster = 0`: read only the page that is needed.
    ///
    /// # False alarms
    /// On a rotating disk eight pages in a row cost about as much as one: there nothing is reported. zram is
    /// never read ahead (4.15 and later), so it does not show in these counters.
    ///
    /// # References
    /// `Documentation/admin-guide/sysctl/vm.rst`, page-cluster; `mm/swap_state.c:swap_vma_readahead` and
    /// `swap_cluster_readahead` (6.12).
    pub SwapReadahead = "swap-readahead" in Swap
}

/// Below half, readahead reads more that is not used than that is.
const USED: f64 = 0.5;
/// Fewer pages read ahead over the period say nothing.
const ENOUGH: u64 = 100;

impl Rule for SwapReadahead {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        const NAME: &str = PAGE_CLUSTER;
        let cluster = cx.sysctl(NAME)?;
        if cx.mem(m::SwapTotal)? == Bytes::ZERO {
            return Err(Skip::because("there is no swap"));
        }
        if cluster == 0 {
            return Ok(Vec::new());
        }
        let swapped_in = cx.rate(&[v::pswpin])?;
        let (ahead, used) = (cx.rate(&[v::swap_ra])?, cx.rate(&[v::swap_ra_hit])?);
        let areas = cx.swaps()?;
        let rotating = |area| device_of(cx, area).is_some_and(|device| turns(device) == Some(true));
        let share = used.total as f64 / ahead.total.max(1) as f64;
        if swapped_in.total == 0
            || ahead.total < ENOUGH
            || share >= USED
            || areas.iter().any(|area| !is_zram(area) && rotating(area))
        {
            return Ok(Vec::new());
        }
        let wasted = (ahead.per_second - used.per_second).max(0.0);
        let bandwidth = cx.pages(wasted.round() as u64);
        let text = format!(
            "{wasted:.0} pages/s ({bandwidth}/s) are read from swap and not used, and take the place of \
             pages that are"
        );
        let cost = Cost { bytes: None, faults_per_second: Some(wasted), stalled: None, share: 0.0, text };
        let mut finding = Finding::new(
            Self::ID,
            Severity::Warning,
            format!(
                "only {} of the pages read ahead from swap are used (vm.page-cluster {cluster})",
                Percent(share)
            ),
            cost,
        );
        finding
            .sure(cx.rate_confidence())
            .because(cx.saw_sysctl(NAME).against("0", "for devices without a head to move"))
            .because(cx.saw_rate(&[v::swap_ra], &ahead))
            .because(
                cx.saw_rate(&[v::swap_ra_hit], &used).against(
                    format!("at least {} of swap_ra", Percent(USED)),
                    "half of the reads are of use",
                ),
            )
            .because(cx.saw_rate(&[v::pswpin], &swapped_in));
        for area in areas {
            let Some(device) = device_of(cx, area) else { continue };
            finding.because(saw_rotational(device, &area.path));
        }
        finding
            .remedy(
                Remedy::new("Read only the page that is needed from swap")
                    .sysctl(cx, NAME, 0)
                    .risk("A program that walks its memory in order then waits for each page by itself."),
            )
            .note(format!(
                "2^{cluster} = {} pages are read at most for one that is needed; {} of {} read ahead were \
                 used over {:.0} s.",
                1u64 << cluster.min(16),
                used.total,
                ahead.total,
                ahead.seconds
            ));
        Ok(vec![finding])
    }
}
