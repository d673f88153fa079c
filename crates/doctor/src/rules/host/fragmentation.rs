use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_kernel_files::file::buddyinfo::BuddyZone;
use lotsfree_settings::{EXTFRAG_THRESHOLD, NR_HUGEPAGES};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Remedy, Rule, Severity};

rule! {
    /// Free memory is in pieces too small for huge pages and large kernel allocations.
    ///
    /// # Sees
    /// `/proc/buddyinfo`: the share of a zone's free memory in blocks below 64 KiB (order 4), and the
    /// kernel's fragmentation index for a huge page, which tells fragmentation from plain lack of memory.
    /// Over two samples, compaction that fails, huge pages that could not be had, and allocation failures in
    /// the kernel log.
    ///
    /// # Hurts
    /// There is free memory, but no piece large enough: transparent huge pages fall back to small ones, a
    /// huge page pool cannot grow without a reboot, and tasks that want one compact memory themselves and
    /// wait. Network and disk drivers that need several pages in a row fail now and then.
    ///
    /// # Remedies
    /// Compaction at a quiet hour, proactive compaction, and huge pages reserved at boot.
    ///
    /// # False alarms
    /// Free memory always breaks up on a host that uses its memory for page cache, and nothing is lost unless
    /// somebody wants large blocks: without failing compaction or fallbacks this is a remark. Where little is
    /// free at all, the index is low and the rule is silent. Small zones (DMA) are left out.
    ///
    /// # References
    /// mm/vmstat.c:__fragmentation_index, mm/compaction.c:compaction_suitable (6.12);
    /// `Documentation/admin-guide/sysctl/vm.rst`, extfrag_threshold; memstate for the share.
    pub Fragmentation = "fragmentation" in Host
}

/// memstate warns here.
const SMALL_SHARE: f64 = 0.95;
/// Blocks of 64 KiB: what memstate counts as not fragmented.
const SMALL_BELOW: usize = 4;
/// A huge page of 2 MiB in pages of 4 KiB.
const HUGE_ORDER: u32 = 9;
/// Zones with less free memory cannot give one huge page a second anyway.
const WORTH: Bytes = Bytes::mib(16);
/// Fallbacks to small pages in this share of huge page faults hurt (as in the rule for compaction stalls).
const FALLBACKS: f64 = 0.2;

/// Whether free pages are missing (towards 0) or in too small pieces (towards 1000) for a block of `order`;
/// `None` if there is such a block, or nothing free.
fn index(zone: &BuddyZone, order: u32) -> Option<u64> {
    let blocks = zone.blocks.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    let suitable = zone.pages_from(order as usize) > 0;
    if suitable || blocks == 0 {
        return None;
    }
    let free = u128::from(zone.pages_from(0));
    let wanted = 1u128 << order;
    let lacking = (1000 + free * 1000 / wanted) / u128::from(blocks);
    Some(1000u64.saturating_sub(lacking as u64))
}

impl Rule for Fragmentation {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let zones = cx.now().buddy.as_deref().filter(|zones| !zones.is_empty());
        let zones = zones.ok_or_else(|| crate::Skip::missing("/proc/buddyinfo"))?;
        let threshold = cx.sysctl_or_default(EXTFRAG_THRESHOLD)?;
        let broken: Vec<(&BuddyZone, f64, u64)> = zones
            .iter()
            .filter(|zone| &*zone.zone == "Normal")
            .filter(|zone| cx.pages(zone.pages_from(0)) >= WORTH)
            .filter_map(|zone| {
                let free = zone.pages_from(0);
                let small = 1.0 - zone.pages_from(SMALL_BELOW) as f64 / free as f64;
                Some((zone, small, index(zone, HUGE_ORDER)?))
            })
            .filter(|(_, small, index)| *small > SMALL_SHARE && *index > threshold)
            .collect();
        let Some((worst, share, worst_index)) = broken.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
            return Ok(Vec::new());
        };
        let failed = cx.rate(&[v::compact_fail]).ok().filter(|rate| rate.total > 0);
        let fallback = cx.rate(&[v::thp_fault_fallback]).ok().filter(|rate| rate.total > 0);
        let given = cx.rate(&[v::thp_fault_alloc]).map_or(0, |rate| rate.total);
        let falls_back = fallback.filter(|rate| rate.total as f64 / (rate.total + given) as f64 > FALLBACKS);
        let pool = cx.rate(&[v::htlb_buddy_alloc_fail]).ok().filter(|rate| rate.total > 0);
        let log =
            cx.now().kernel_log.as_ref().map_or(0, |log| {
                log.allocation_failures.iter().filter(|(_, order)| *order > 0).count() as u64
            });
        let hurts = failed.is_some() || falls_back.is_some() || pool.is_some();
        let severity = if hurts { Severity::Warning } else { Severity::Info };
        let free = cx.pages(worst.pages_from(0));
        let cost = cost(failed.as_ref(), falls_back.as_ref(), pool.as_ref(), log);
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!(
                "{} of the {free} free in node {} zone {} are in blocks below 64 KiB",
                Percent(*share),
                worst.node,
                worst.zone
            ),
            cost,
        );
        finding.sure(if hurts { cx.rate_confidence() } else { Confidence::Certain });
        for (zone, share, index) in &broken {
            let subject = format!("node {} zone {}", zone.node, zone.zone);
            finding
                .because(
                    Evidence::new("/proc/buddyinfo", "free pages below order 4", Percent(*share))
                        .of(&subject)
                        .against(format!("at most {}", Percent(SMALL_SHARE)), "memstate"),
                )
                .because(
                    Evidence::new("/proc/buddyinfo", "fragmentation index for order 9", index)
                        .of(&subject)
                        .against(format!("at most {threshold}"), EXTFRAG_THRESHOLD),
                );
        }
        finding.because_if(failed.as_ref().map(|rate| cx.saw_rate(&[v::compact_fail], rate)));
        finding.because_if(falls_back.as_ref().map(|rate| cx.saw_rate(&[v::thp_fault_fallback], rate)));
        finding.because_if(pool.as_ref().map(|rate| cx.saw_rate(&[v::htlb_buddy_alloc_fail], rate)));
        if log > 0 {
            finding.because(Evidence::new(
                "/dev/kmsg",
                "page allocation failure, order 1 or more",
                Grouped(log),
            ));
        }
        add_remedies(&mut finding, worst, *worst_index);
        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, worst: &BuddyZone, worst_index: u64) {
    let blocks = worst.blocks.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    finding
            .note(format!(
                "Index: 1000 - (1000 + {} free pages x 1000 / 512) / {} blocks = {worst_index}. Towards \
                 1000 the pieces are too small, towards 0 memory is short.",
                Grouped(worst.pages_from(0)),
                Grouped(blocks)
            ))
            .remedy(
                Remedy::new("Compact memory once, at a quiet hour, before something large starts")
                    .run("echo 1 > /proc/sys/vm/compact_memory")
                    .risk("Takes CPU for seconds to minutes on a large host and makes tasks wait for pages that are being moved. Pages that the kernel holds do not move."),
            )
            .remedy(
                Remedy::new("Reserve a huge page pool at boot, when memory is whole")
                    .run("lotsfree size hugepages --from-host")
                    .keep("kernel command line", "hugepagesz=2M hugepages=(the figure that lotsfree size prints)")
                    .risk("The pool is lost to everything else; only for programs that use huge pages of the pool.")
                    .restart("the host")
                    .sets(NR_HUGEPAGES, "sized"),
            )
            .note("How to choose: compaction for transparent huge pages, a reservation for a pool; neither if nothing uses huge pages.");
}

fn cost(failed: Option<&Rate>, falls_back: Option<&Rate>, pool: Option<&Rate>, log: u64) -> Cost {
    match (failed, falls_back, pool) {
        (Some(rate), _, _) => {
            Cost::risk(format!("{:.1} compactions a second by waiting tasks fail", rate.per_second))
        }
        (None, Some(rate), _) => Cost::risk(format!(
            "{:.1} page faults a second get small pages instead of a huge one",
            rate.per_second
        )),
        (None, None, Some(rate)) => {
            Cost::risk(format!("{} huge pages for a pool could not be had", Grouped(rate.total)))
        }
        _ if log > 0 => Cost::risk(format!("{log} allocations of several pages have failed since boot")),
        _ => Cost::risk("nothing wants large blocks at present; a huge page pool could not grow now"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(blocks: &[u64]) -> BuddyZone {
        BuddyZone { node: 0, zone: "Normal".into(), blocks: blocks.to_vec() }
    }

    #[test]
    fn the_index_tells_pieces_from_shortage() {
        // 100,000 single pages: (1000 + 195,312) / 100,000 = 1.
        assert_eq!(index(&zone(&[100_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), 9), Some(999));
        // Four blocks of 256 pages are two huge pages in pieces: (1000 + 2000) / 4 = 750.
        assert_eq!(index(&zone(&[0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0]), 9), Some(250));
        // One page: all that is missing is memory.
        assert_eq!(index(&zone(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), 9), Some(0));
        assert_eq!(index(&zone(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]), 9), None);
        assert_eq!(index(&zone(&[0; 11]), 9), None);
        assert!(index(&zone(&[u64::MAX; 9]), 9).is_some(), "counts that no host has do not overflow");
    }
}
