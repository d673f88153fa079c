use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::rule::rule;
use crate::swapping::zswap;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// zswap's pool is full, or refuses what does not compress: swap goes to the disk after all.
    ///
    /// # Sees
    /// `Zswap` in `/proc/meminfo` compared with `max_pool_percent` of memory; `pool_limit_hit` and the
    /// `reject_*` counts below `/sys/kernel/debug/zswap` (root, debugfs); `zswpwb` in `/proc/vmstat`.
    ///
    /// # Hurts
    /// A page that the full pool refuses goes straight to the disk, although it is the youngest: the old
    /// pages stay in memory and those that will be wanted next are on the disk. Pages that do not compress
    /// cost their compression on top.
    ///
    /// # Remedies
    /// The shrinker (6.8 and later), which writes old pages out in time; before 6.3 another allocator than
    /// zsmalloc, which does not write back there; a larger pool; less to swap.
    ///
    /// # False alarms
    /// A full pool that nobody reads from does no harm: without writes to the disk this is a remark. Without
    /// `max_pool_percent` the size of the pool is not judged.
    ///
    /// # References
    /// `mm/zswap.c:zswap_store` and zswap_max_pages (6.12); `mm/zpool.c:zpool_shrink` and the drivers of
    /// `mm/zsmalloc.c`, without `shrink`, and `mm/zbud.c` (6.1); `Documentation/admin-guide/mm/zswap.rst`.
    pub ZswapFull = "zswap-full" in Swap
}

/// The pool counts as full from here on; `accept_threshold_percent` is 90.
const FULL: f64 = 0.90;
/// Share of pages refused, of those that were offered, from which on compression is wasted.
const REFUSED: f64 = 0.30;
/// Fewer refusals are noise.
const PAGES: u64 = 10_000;
/// Counts of refusals below `/sys/kernel/debug/zswap`.
const REJECTS: [&str; 4] =
    ["reject_compress_poor", "reject_compress_fail", "reject_alloc_fail", "reject_reclaim_fail"];
const PARAMETER: &str = "/sys/module/zswap/parameters/max_pool_percent";

impl Rule for ZswapFull {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let held = cx.mem(m::Zswap)?;
        if cx.now().zswap.is_none() {
            return Err(Skip::missing("/sys/module/zswap/parameters"));
        }
        let value = |name: &str| zswap(cx, name).and_then(|value| value.parse::<u64>().ok());
        let percent = value("max_pool_percent").ok_or_else(|| Skip::missing(PARAMETER))?;
        let most = cx.total()?.scale(percent as f64 / 100.0);
        let full = held > Bytes::ZERO && held.share_of(most) >= FULL;
        let refused = REJECTS.iter().filter_map(|name| value(name)).fold(0, u64::saturating_add);
        let stored = cx.vm(v::zswpout).unwrap_or(0);
        let poor = refused >= PAGES && refused as f64 >= refused.saturating_add(stored) as f64 * REFUSED;
        if !full && !poor {
            return Ok(Vec::new());
        }
        let written = cx.rate(&[v::pswpout]).ok().filter(|rate| rate.total > 0);
        let title = if full {
            format!(
                "zswap's pool holds {held} of at most {most} ({percent} % of memory): what is swapped out now goes to the disk"
            )
        } else {
            format!(
                "zswap refused {} pages and took {}: what is swapped out does not compress",
                Grouped(refused),
                Grouped(stored)
            )
        };
        let severity = if written.is_some() || poor { Severity::Warning } else { Severity::Info };
        let mut finding = Finding::new(
            Self::ID,
            severity,
            title,
            Cost::risk("pages that are wanted next are read from the disk"),
        );
        finding.sure(if full { Confidence::Certain } else { Confidence::Likely }).because(
            cx.saw_mem(m::Zswap)
                .against(format!("less than {} of {most}", Percent(FULL)), "accept_threshold_percent"),
        );
        finding.because(Evidence::new(PARAMETER, "max_pool_percent", percent));
        for name in REJECTS.iter().chain(&["pool_limit_hit"]) {
            let count = value(name).filter(|count| *count > 0);
            finding.because_if(
                count.map(|count| Evidence::new("/sys/kernel/debug/zswap", *name, Grouped(count))),
            );
        }
        finding.because_if(written.map(|rate| cx.saw_rate(&[v::pswpout], &rate)));
        if full {
            make_room(&mut finding, cx);
        }
        finding.note(
            "How to choose: a larger max_pool_percent where most of what is swapped is wanted again; less to swap, or plain \
             swap without zswap, where it does not compress.",
        );
        Ok(vec![finding])
    }
}

/// How old pages leave the pool: by the shrinker, if the kernel has it, or by an allocator that can write
/// back.
fn make_room(finding: &mut Finding, cx: &Context<'_>) {
    const SHRINKER: &str = "/sys/module/zswap/parameters/shrinker_enabled";
    const ZPOOL: &str = "/sys/module/zswap/parameters/zpool";
    let kernel = &cx.now().host.kernel;
    let old = kernel.is_known() && !kernel.at_least(6, 3);
    match zswap(cx, "zpool") {
        Some(zpool @ "zsmalloc") if old => {
            finding.because(Evidence::new(ZPOOL, "zpool", zpool)).note(
                "Before 6.3 zsmalloc writes nothing back: what the pool took first stays in it until it is used, and \
                 the youngest pages go to the disk from now on.",
            );
            finding.remedy(
                Remedy::new("Take an allocator that writes old pages back")
                    .sysfs(ZPOOL, "zbud", Some("zsmalloc"))
                    .keep("kernel command line", "zswap.zpool=zbud")
                    .risk(
                        "zbud keeps two compressed pages in one, however small they are. What is in the old pool \
                         stays there until it is used.",
                    ),
            );
        }
        _ if zswap(cx, "shrinker_enabled") == Some("Y") || old => {}
        _ => {
            finding.remedy(
                Remedy::new("Let zswap write old pages out before the pool is full (6.8 and later)")
                    .sysfs(SHRINKER, "Y", Some("N"))
                    .keep("kernel command line", "zswap.shrinker_enabled=1")
                    .risk("More writes to the swap device in quiet times."),
            );
        }
    }
}
