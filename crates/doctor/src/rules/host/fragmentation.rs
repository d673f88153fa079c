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

/// A zone whose free memory is in pieces.
struct Broken<'a> {
    zone: &'a BuddyZone,
    /// The share of its free memory in small blocks.
    small: f64,
    index: u64,
}

/// Large blocks that were wanted and could not be had.
struct Failures {
    compactions: Option<Rate>,
    huge_faults: Option<Rate>,
    pool_pages: Option<Rate>,
    /// Allocations of several pages in the kernel log.
    logged: u64,
}

impl Failures {
    fn of(cx: &Context<'_>) -> Failures {
        let grown = |counter| cx.rate(&[counter]).ok().filter(|rate| rate.total > 0);
        let given = cx.rate(&[v::thp_fault_alloc]).map_or(0, |rate| rate.total);
        let logged =
            cx.now().kernel_log.as_ref().map_or(0, |log| {
                log.allocation_failures.iter().filter(|(_, order)| *order > 0).count() as u64
            });
        Failures {
            compactions: grown(v::compact_fail),
            huge_faults: grown(v::thp_fault_fallback)
                .filter(|rate| rate.total as f64 / (rate.total + given) as f64 > FALLBACKS),
            pool_pages: grown(v::htlb_buddy_alloc_fail),
            logged,
        }
    }

    fn hurt(&self) -> bool {
        self.compactions.is_some() || self.huge_faults.is_some() || self.pool_pages.is_some()
    }

    fn cost(&self) -> Cost {
        match (&self.compactions, &self.huge_faults, &self.pool_pages) {
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
            _ if self.logged > 0 => {
                Cost::risk(format!("{} allocations of several pages have failed since boot", self.logged))
            }
            _ => Cost::risk("nothing wants large blocks at present; a huge page pool could not grow now"),
        }
    }

    fn add_evidence(&self, finding: &mut Finding, cx: &Context<'_>) {
        let saw = |counter, rate: &Option<Rate>| rate.as_ref().map(|rate| cx.saw_rate(&[counter], rate));
        finding
            .because_if(saw(v::compact_fail, &self.compactions))
            .because_if(saw(v::thp_fault_fallback, &self.huge_faults))
            .because_if(saw(v::htlb_buddy_alloc_fail, &self.pool_pages));
        if self.logged > 0 {
            finding.because(Evidence::new(
                "/dev/kmsg",
                "page allocation failure, order 1 or more",
                Grouped(self.logged),
            ));
        }
    }
}

impl Rule for Fragmentation {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let zones = cx.now().buddy.as_deref().filter(|zones| !zones.is_empty());
        let zones = zones.ok_or_else(|| crate::Skip::missing("/proc/buddyinfo"))?;
        let threshold = cx.sysctl_or_default(EXTFRAG_THRESHOLD)?;
        let broken = broken(cx, zones, threshold);
        let Some(worst) = broken.iter().max_by(|a, b| a.small.total_cmp(&b.small)) else {
            return Ok(Vec::new());
        };
        let failures = Failures::of(cx);
        let hurts = failures.hurt();
        // Whoever shows this file alone asks for large blocks.
        let asked = cx.now().meminfo.is_none() && cx.now().vmstat.is_none() && cx.now().kernel_log.is_none();
        let mut finding = Finding::new(
            Self::ID,
            if hurts || asked { Severity::Warning } else { Severity::Info },
            format!(
                "{} of the {} free in node {} zone {} are in blocks below 64 KiB",
                Percent(worst.small),
                cx.pages(worst.zone.pages_from(0)),
                worst.zone.node,
                worst.zone.zone
            ),
            failures.cost(),
        );
        finding.sure(match (hurts, asked) {
            (true, _) => cx.rate_confidence(),
            (false, true) => Confidence::Possible,
            (false, false) => Confidence::Certain,
        });
        for Broken { zone, small, index } in &broken {
            let subject = format!("node {} zone {}", zone.node, zone.zone);
            finding
                .because(
                    Evidence::new("/proc/buddyinfo", "free pages below order 4", Percent(*small))
                        .of(&subject)
                        .against(format!("at most {}", Percent(SMALL_SHARE)), "memstate"),
                )
                .because(
                    Evidence::new("/proc/buddyinfo", "fragmentation index for order 9", index)
                        .of(&subject)
                        .against(format!("at most {threshold}"), EXTFRAG_THRESHOLD),
                );
        }
        failures.add_evidence(&mut finding, cx);
        finding.note(arithmetic(worst));
        add_remedies(cx, &mut finding);
        Ok(vec![finding])
    }
}

/// The zones with much free memory, nearly all of it in small blocks.
fn broken<'a>(cx: &Context<'_>, zones: &'a [BuddyZone], threshold: u64) -> Vec<Broken<'a>> {
    zones
        .iter()
        .filter(|zone| &*zone.zone == "Normal")
        .filter(|zone| cx.pages(zone.pages_from(0)) >= WORTH)
        .filter_map(|zone| {
            let free = zone.pages_from(0);
            let small = 1.0 - zone.pages_from(SMALL_BELOW) as f64 / free as f64;
            Some(Broken { zone, small, index: index(zone, HUGE_ORDER)? })
        })
        .filter(|broken| broken.small > SMALL_SHARE && broken.index > threshold)
        .collect()
}

/// How the index comes about.
fn arithmetic(Broken { zone, index, .. }: &Broken<'_>) -> String {
    let blocks = zone.blocks.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    format!(
        "Index: 1000 - (1000 + {} free pages x 1000 / 512) / {} blocks = {index}. Towards \
         1000 the pieces are too small, towards 0 memory is short.",
        Grouped(zone.pages_from(0)),
        Grouped(blocks)
    )
}

fn add_remedies(cx: &Context<'_>, finding: &mut Finding) {
    finding
        .remedy(
            Remedy::new("Compact memory once, at a quiet hour, before something large starts")
                .run("echo 1 > /proc/sys/vm/compact_memory")
                .risk("Takes CPU for seconds to minutes on a large host and makes tasks wait for pages that are being moved. Pages that the kernel holds do not move."),
        )
        .remedy(
            Remedy::new("Reserve a huge page pool at boot, when memory is whole")
                .run(cx.size_hugepages())
                .keep("kernel command line", "hugepagesz=2M hugepages=(the figure that lotsfree size prints)")
                .risk("The pool is lost to everything else; only for programs that use huge pages of the pool.")
                .restart("the host")
                .sets(NR_HUGEPAGES, "sized"),
        )
        .note("How to choose: compaction for transparent huge pages, a reservation for a pool; neither if nothing uses huge pages.");
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
