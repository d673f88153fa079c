//! min_free_kbytes, the watermarks that follow from it, and what a zone may be emptied to.
//!
//! A zone's free pages pass three marks on their way down: at `low` kswapd is woken, at `min` an allocation
//! must reclaim for itself, and kswapd sleeps again at `high`.

use lotsfree_units::{Bytes, PageSize};

use crate::{mul_div, mul_div_up};

/// Largest value that every kernel with `watermark_scale_factor` accepts, in ten-thousandths (10 % of a
/// zone).
pub const WATERMARK_SCALE_FACTOR_MAX: u64 = 1000;
/// Default of `watermark_scale_factor`, in ten-thousandths of a zone.
pub const WATERMARK_SCALE_FACTOR_DEFAULT: u64 = 10;
/// Default of `watermark_boost_factor`, in ten-thousandths of the high mark.
pub const WATERMARK_BOOST_FACTOR_DEFAULT: u64 = 15_000;
/// Smallest `min_free_kbytes` that the kernel chooses by itself, in KiB.
pub const MIN_FREE_KIB_FLOOR: u64 = 128;

/// How a kernel derives its watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkRules {
    /// `watermark_scale_factor` exists: the gap between marks grows with the zone (4.19 has it, 4.4 does
    /// not).
    pub scale_factor: bool,
    /// Zones share `min_free_kbytes` by managed pages; else by present pages (2.6.32 of RHEL 6).
    pub managed_share: bool,
    /// `extra_free_kbytes` exists: raises low and high, not min (RHEL 6 only).
    pub extra_free: bool,
    /// A fourth mark, `promo`, lies one gap above high (6.1).
    pub promo: bool,
    /// ZONE_MOVABLE is left out of the shares and gets a small fixed min, as ZONE_HIGHMEM always did (6.12
    /// does so, even where the zone is empty; 6.1 was seen to give it its share).
    pub movable_apart: bool,
    /// khugepaged counts ZONE_MOVABLE among the zones when it raises `min_free_kbytes` (through 3.10).
    pub khugepaged_counts_movable: bool,
    /// Watermark boosting exists (5.4 has it, 4.19 does not).
    pub boost: bool,
    /// Largest default of `min_free_kbytes` in KiB: 65536 through 5.4, 262144 in 5.15.
    pub clamp_kib: u64,
    /// The right of a request to go below the mark.
    pub discount: Discount,
    /// The test of requests above order 0.
    pub order_test: OrderTest,
}

/// How a kernel tells whether free memory can serve a request above order 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderTest {
    /// As [`Walk`](OrderTest::Walk), but starting at mark − min, and halving only below a quarter of the
    /// pageblock order (RHEL 6).
    WalkFromGap,
    /// Order by order the smaller blocks are taken off and the mark is halved; what is left must exceed it
    /// (3.0, 3.10).
    Walk,
    /// One free block of the order or larger is enough (4.4).
    AnyBlock,
}

/// How much of a mark the privileged requests may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discount {
    /// High priority takes half of the mark off, not being able to wait a quarter of the rest, each on its
    /// own (read up to 4.19; taken to hold until 6.1).
    Independent,
    /// Half for high priority; only then a quarter of the rest for a request that cannot wait; half of what
    /// remains for a victim of the OOM killer (6.12).
    Nested,
}

/// The zones of x86-64 and 32-bit kernels, in the order of `/proc/zoneinfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneKind {
    /// Below 16 MiB.
    Dma,
    /// Below 4 GiB.
    Dma32,
    /// The rest.
    Normal,
    /// Beyond the kernel's own mapping, 32-bit kernels only.
    HighMem,
    /// Only what can be moved.
    Movable,
    /// Memory of devices; never allocated from.
    Device,
}

/// A zone, as far as its watermarks depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Which zone of its node.
    pub kind: ZoneKind,
    /// `present` of `/proc/zoneinfo`, in pages.
    pub present: u64,
    /// `managed` of `/proc/zoneinfo`, in pages.
    pub managed: u64,
}

/// The sysctls that set watermarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatermarkSettings {
    /// `vm.min_free_kbytes`, in KiB.
    pub min_free_kib: u64,
    /// `vm.watermark_scale_factor`, in ten-thousandths; ignored where the kernel has none.
    pub scale_factor: u64,
    /// `vm.extra_free_kbytes`, in KiB; ignored where the kernel has none.
    pub extra_free_kib: u64,
}

impl WatermarkSettings {
    /// The default tuning around one `min_free_kbytes`.
    pub const fn with_min_free(min_free_kib: u64) -> Self {
        WatermarkSettings { min_free_kib, scale_factor: WATERMARK_SCALE_FACTOR_DEFAULT, extra_free_kib: 0 }
    }
}

/// The marks of one zone, in pages, without boost. `/proc/zoneinfo` adds the zone's `boost` to each that it
/// prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it, allocations reclaim for themselves.
    pub min: u64,
    /// Below it, kswapd is woken.
    pub low: u64,
    /// At it, kswapd stops.
    pub high: u64,
    /// With memory tiering, kswapd frees up to here to make room for promotions; `None` where the mark does
    /// not exist.
    pub promo: Option<u64>,
}

/// `4·√lowmem` before clamping, in KiB.
///
/// `lowmem_kib` is the sum of managed − high over the zones a kernel allocation may use. When the kernel
/// computes its default at boot the marks are still zero, so all managed memory counts.
pub const fn min_free_raw_kib(lowmem_kib: u64) -> u64 {
    match lowmem_kib.checked_mul(16) {
        Some(product) => product.isqrt(),
        None => lowmem_kib.isqrt().saturating_mul(4),
    }
}

/// The default of `vm.min_free_kbytes`, in KiB: [`min_free_raw_kib`] clamped to 128 KiB and the kernel's
/// limit.
///
/// Source: `init_per_zone_wmark_min` (2.6.32 to 5.15), `calculate_min_free_kbytes` (6.1, 6.12).
pub const fn min_free_kib(rules: &WatermarkRules, lowmem_kib: u64) -> u64 {
    let raw = min_free_raw_kib(lowmem_kib);
    if raw < MIN_FREE_KIB_FLOOR {
        MIN_FREE_KIB_FLOOR
    } else if raw > rules.clamp_kib {
        rules.clamp_kib
    } else {
        raw
    }
}

/// What khugepaged raises `vm.min_free_kbytes` to when THP is enabled, in KiB; the larger value wins.
///
/// Eleven pageblocks per zone: two, and one for each pair of the three migrate types that can steal from each
/// other; at most 5 % of lowmem, which is managed memory above the high marks in force before the raise.
/// `zones` counts populated zones: all of them where
/// [`khugepaged_counts_movable`](WatermarkRules::khugepaged_counts_movable), else those that user allocations
/// of unmovable type can use. Source: `set_recommended_min_free_kbytes` (huge_memory.c to 3.10, khugepaged.c
/// 6.12).
pub const fn khugepaged_min_free_kib(page: PageSize, zones: u64, lowmem_pages: u64) -> u64 {
    let pageblock = page.pmd_huge().0 / page.bytes().0;
    let recommended = pageblock.saturating_mul(zones).saturating_mul(2 + 3 * 3);
    let cap = lowmem_pages / 20;
    let pages = if recommended < cap { recommended } else { cap };
    pages.saturating_mul(page.bytes().as_kib())
}

/// The watermarks of all zones of a host, in the order of `zones`.
///
/// `zones` must hold every zone of every node: a zone's share depends on the sum. The kernel computes the
/// marks at boot and when a setting or memory changes; what it frees of itself after boot is managed later
/// but has no part in them, which makes the marks of small machines a few per cent larger than their zones
/// imply. Source: `__setup_per_zone_wmarks`. For `extra_free_kbytes` RHEL 6 divides by `vm_total_pages`,
/// which equals the sum used here within the pages lost to rounding at boot.
pub fn watermarks(
    rules: &WatermarkRules,
    tuning: &WatermarkSettings,
    zones: &[Zone],
    page: PageSize,
) -> Vec<Watermarks> {
    let weight = |zone: &Zone| if rules.managed_share { zone.managed } else { zone.present };
    let apart = |zone: &Zone| match zone.kind {
        ZoneKind::HighMem => true,
        ZoneKind::Movable => rules.movable_apart,
        _ => false,
    };
    let lowmem =
        zones.iter().filter(|zone| !apart(zone)).fold(0u64, |sum, zone| sum.saturating_add(weight(zone)));
    let page_kib = page.bytes().as_kib();
    let min_pages = tuning.min_free_kib / page_kib;
    let extra_pages = if rules.extra_free { tuning.extra_free_kib / page_kib } else { 0 };

    zones
        .iter()
        .map(|zone| {
            let share = mul_div(min_pages, weight(zone), lowmem);
            let extra = mul_div(extra_pages, weight(zone), lowmem);
            let min = if apart(zone) { (zone.managed / 1024).clamp(32, 128) } else { share };
            let (low_gap, high_gap) = if rules.scale_factor {
                let gap = scale_gap(share, zone.managed, tuning.scale_factor);
                (gap, gap.saturating_mul(2))
            } else {
                (share / 4, share / 2)
            };
            // A Device zone manages nothing; its marks are zero whatever the others are.
            let promo = rules.promo.then(|| min.saturating_add(low_gap.saturating_mul(3)));
            Watermarks {
                min,
                low: min.saturating_add(low_gap).saturating_add(extra),
                high: min.saturating_add(high_gap).saturating_add(extra),
                promo,
            }
        })
        .collect()
}

/// The gap between two marks of a zone in pages: a quarter of its share of `min_free_kbytes`, or
/// `managed × watermark_scale_factor / 10000` when that is more.
pub const fn scale_gap(share_pages: u64, managed_pages: u64, scale_factor: u64) -> u64 {
    let quarter = share_pages / 4;
    let scaled = mul_div(managed_pages, scale_factor, 10_000);
    if quarter > scaled { quarter } else { scaled }
}

/// The smallest `watermark_scale_factor` whose gap lasts `wake_ms` milliseconds at `burst` bytes per second.
///
/// The gap between low and min is what allocations may take between kswapd's wake-up and the moment when they
/// must reclaim for themselves. Rounded up; not limited to [`WATERMARK_SCALE_FACTOR_MAX`], so that the caller
/// can tell a burst no setting can absorb. At least 1; `None` when the node is empty.
pub const fn scale_factor_for_burst(burst: Bytes, wake_ms: u64, node: Bytes) -> Option<u64> {
    if node.0 == 0 {
        return None;
    }
    // ten-thousandths per second and milliseconds: 10^4 / 10^3 = 10
    let needed = mul_div_up(burst.0, wake_ms.saturating_mul(10), node.0);
    Some(if needed == 0 { 1 } else { needed })
}

/// What allocations may take within one gap of a node under `scale_factor`.
pub const fn scale_gap_bytes(node: Bytes, scale_factor: u64) -> Bytes {
    Bytes(mul_div(node.0, scale_factor, 10_000))
}

/// The largest boost of a zone in pages: `high × watermark_boost_factor / 10000`, at least one pageblock.
///
/// A fallback to another migrate type adds one pageblock at a time up to this; all marks read higher by the
/// boost until kswapd has reclaimed it. Zero when the factor is 0. Source: `boost_watermark` (6.12).
pub const fn boost_max(high_pages: u64, boost_factor: u64, pageblock_pages: u64) -> u64 {
    if boost_factor == 0 {
        return 0;
    }
    let max = mul_div(high_pages, boost_factor, 10_000);
    if max < pageblock_pages { pageblock_pages } else { max }
}

/// What a request is allowed, as far as a watermark test asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Order of the block wanted.
    pub order: u32,
    /// `__GFP_HIGH`.
    pub high_priority: bool,
    /// Cannot wait: atomic, or a real-time task on older kernels.
    pub non_blocking: bool,
    /// A victim of the OOM killer.
    pub oom_victim: bool,
}

/// The mark that counts for `request`, in pages, from the mark it was tested against.
///
/// Source: `__zone_watermark_ok`.
pub const fn allowed_mark(rules: &WatermarkRules, mark_pages: u64, request: &Request) -> u64 {
    let mut mark = mark_pages;
    if request.high_priority {
        mark -= mark / 2;
    }
    match rules.discount {
        Discount::Independent => {
            if request.non_blocking {
                mark -= mark / 4;
            }
        }
        Discount::Nested => {
            if request.high_priority && request.non_blocking {
                mark -= mark / 4;
            }
            if request.oom_victim {
                mark -= mark / 2;
            }
        }
    }
    mark
}

/// Pages left of `usable_free_pages` once the request is served, but for one; RHEL 6 counts two more.
const fn remaining(rules: &WatermarkRules, usable_free_pages: u64, request: &Request) -> u64 {
    let order = if request.order < 62 { request.order } else { 62 };
    let block = 1u64 << order;
    usable_free_pages.saturating_sub(match rules.order_test {
        OrderTest::WalkFromGap => block + 1,
        OrderTest::Walk | OrderTest::AnyBlock => block - 1,
    })
}

/// Whether a zone passes the mark for `request`, leaving aside whether a block of its order exists.
///
/// `usable_free_pages` is `NR_FREE_PAGES` less the highatomic reserve and free CMA pages that the request may
/// not use; `reserve_pages` is the lowmem reserve of the zone against the request's highest zone.
pub const fn passes_mark(
    rules: &WatermarkRules,
    usable_free_pages: u64,
    mark_pages: u64,
    reserve_pages: u64,
    request: &Request,
) -> bool {
    remaining(rules, usable_free_pages, request)
        > allowed_mark(rules, mark_pages, request).saturating_add(reserve_pages)
}

/// Whether free blocks can serve a request that has passed the mark ([`passes_mark`]).
///
/// `blocks[o]` counts the free blocks of order `o` that the request may use; orders beyond the slice are
/// empty. `min_pages` is the zone's min mark, `pageblock_order` 9 on x86-64; only RHEL 6 reads them. Source:
/// `__zone_watermark_ok`.
pub fn passes_order(
    rules: &WatermarkRules,
    usable_free_pages: u64,
    mark_pages: u64,
    min_pages: u64,
    pageblock_order: u32,
    blocks: &[u64],
    request: &Request,
) -> bool {
    let order = request.order as usize;
    if order == 0 {
        return true;
    }
    let mut mark = allowed_mark(rules, mark_pages, request);
    let halve_below = match rules.order_test {
        OrderTest::AnyBlock => return blocks.iter().skip(order).any(|&n| n > 0),
        OrderTest::Walk => u32::MAX,
        OrderTest::WalkFromGap => {
            mark = mark.saturating_sub(min_pages);
            pageblock_order / 4
        }
    };
    let mut free = remaining(rules, usable_free_pages, request);
    for (o, &n) in (0u32..).zip(blocks.iter().take(order)) {
        free = free.saturating_sub(n.saturating_mul(1u64.checked_shl(o).unwrap_or(u64::MAX)));
        if o < halve_below {
            mark /= 2;
        }
        if free <= mark {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;
    use lotsfree_units::{GIB, KIB, TIB};

    #[test]
    fn default_min_free_is_four_roots_of_lowmem_within_the_clamp() {
        let new = Rules::linux_6_12().watermarks;
        for (gib, kib) in [
            (1, 4096),
            (4, 8192),
            (8, 11585),
            (16, 16384),
            (48, 28377),
            (64, 32768),
            (128, 46340),
            (256, 65536),
            (1024, 131_072),
            (4096, 262_144),
            (8192, 262_144),
        ] {
            assert_eq!(min_free_kib(&new, gib * GIB / KIB), kib, "{gib} GiB");
        }
        let old = Rules::linux_5_4().watermarks;
        assert_eq!(min_free_kib(&old, TIB / KIB), 65536);
        assert_eq!(min_free_kib(&old, 256 * GIB / KIB), 65536);
        assert_eq!(min_free_kib(&old, 0), 128);
    }

    #[test]
    fn khugepaged_raises_by_eleven_pageblocks_per_zone() {
        let plenty = 12_388_000;
        for (zones, kib) in [(3, 67584), (4, 90112), (5, 112_640), (10, 225_280)] {
            assert_eq!(khugepaged_min_free_kib(PageSize::X86, zones, plenty), kib);
        }
        // 256 MiB: 5 % of 65536 pages is 3276 pages, less than 3 zones' 16896.
        assert_eq!(khugepaged_min_free_kib(PageSize::X86, 3, 65536), 3276 * 4);
        // 64 KiB pages: one pageblock is 512 MiB, so the 5 % cap decides: 819 MB of 16 GB.
        let arm = PageSize::new(65536).unwrap();
        assert_eq!(khugepaged_min_free_kib(arm, 2, 16 * GIB / 65536), 838_848);
        // MemTotal 15,849,216 kB of ScyllaDB issue 14721, whose reporter found "~800 MB".
        assert_eq!(khugepaged_min_free_kib(arm, 2, 15_849_216 / 64), 792_448);
        // With 16 KiB a pageblock is 32 MiB, and a host of 64 GiB stays below the cap.
        let pages_16k = PageSize::new(16_384).unwrap();
        assert_eq!(khugepaged_min_free_kib(pages_16k, 2, 64 * GIB / 16_384), 2 * 11 * 32 * 1024);
    }

    #[test]
    fn marks_of_an_arm64_host_are_in_its_own_pages() {
        // Node 3 of OpenZFS issue 9814: pages of 64 KiB, managed 16,760,512 kB, min 284,096 kB, low
        // 355,072 kB and high 426,112 kB, from before watermark_scale_factor or with a factor that does not
        // matter.
        let arm = PageSize::new(65536).unwrap();
        let pages = 16_760_512 / 64;
        let zones = [Zone { kind: ZoneKind::Normal, present: pages, managed: pages }];
        let tuning = WatermarkSettings::with_min_free(284_096);
        let marks = watermarks(&Rules::linux_4_4().watermarks, &tuning, &zones, arm)[0];
        assert_eq!([marks.min, marks.low, marks.high].map(|mark| arm.kib(mark)), [284_096, 355_072, 426_112]);
    }

    #[test]
    fn graph_store_host_shows_thps_raise() {
        // Node 1 Normal: min 11284, low 14105, high 16926, present 6205440. Its share of 22528 pages makes
        // 12.39 M pages in all: 47.3 GiB, on a host of 48 GB with four zones. The other three fill up to
        // that.
        let zones = [
            Zone { kind: ZoneKind::Dma, present: 3_840, managed: 3_840 },
            Zone { kind: ZoneKind::Dma32, present: 770_000, managed: 770_000 },
            Zone { kind: ZoneKind::Normal, present: 5_408_720, managed: 5_408_720 },
            Zone { kind: ZoneKind::Normal, present: 6_205_440, managed: 6_205_440 },
        ];
        let tuning = WatermarkSettings::with_min_free(90_112);
        for rules in [Rules::rhel_6(), Rules::linux_3_0(), Rules::linux_3_10(), Rules::linux_4_4()] {
            let marks = watermarks(&rules.watermarks, &tuning, &zones, PageSize::X86);
            assert_eq!(marks[3], Watermarks { min: 11284, low: 14105, high: 16926, promo: None });
        }
        // Where the scale factor exists, 0.1 % of the zone (6205 pages) exceeds a quarter of the share.
        let marks = watermarks(&Rules::linux_4_19().watermarks, &tuning, &zones, PageSize::X86);
        assert_eq!(marks[3], Watermarks { min: 11284, low: 17489, high: 23694, promo: None });
        let marks = watermarks(&Rules::linux_6_1().watermarks, &tuning, &zones, PageSize::X86);
        assert_eq!(marks[3].promo, Some(11284 + 3 * 6205));
    }

    #[test]
    fn extra_free_raises_low_and_high_but_not_min() {
        let zones = [Zone { kind: ZoneKind::Normal, present: 1_000_000, managed: 990_000 }];
        let tuning = WatermarkSettings { min_free_kib: 40_000, scale_factor: 10, extra_free_kib: 400_000 };
        let marks = watermarks(&Rules::rhel_6().watermarks, &tuning, &zones, PageSize::X86);
        assert_eq!(
            marks[0],
            Watermarks { min: 10_000, low: 12_500 + 100_000, high: 15_000 + 100_000, promo: None }
        );
        let marks = watermarks(&Rules::linux_3_10().watermarks, &tuning, &zones, PageSize::X86);
        assert_eq!(marks[0], Watermarks { min: 10_000, low: 12_500, high: 15_000, promo: None });
    }

    #[test]
    fn movable_zone_stands_apart_in_newer_kernels() {
        let zones = [
            Zone { kind: ZoneKind::Normal, present: 1_000_000, managed: 1_000_000 },
            Zone { kind: ZoneKind::Movable, present: 1_000_000, managed: 1_000_000 },
        ];
        let tuning = WatermarkSettings::with_min_free(40_000);
        let new = watermarks(&Rules::linux_6_12().watermarks, &tuning, &zones, PageSize::X86);
        assert_eq!((new[0].min, new[1].min, new[1].low), (10_000, 128, 128 + 2_500));
        let old = watermarks(&Rules::linux_5_4().watermarks, &tuning, &zones, PageSize::X86);
        assert_eq!((old[0].min, old[1].min), (5_000, 5_000));
    }

    #[test]
    fn scale_factor_follows_burst_and_wake_time() {
        // 1 GiB/s for 100 ms needs a gap of 102.4 MiB; of a 64 GiB node that is 15.6 ten-thousandths.
        assert_eq!(scale_factor_for_burst(Bytes::gib(1), 100, Bytes::gib(64)), Some(16));
        assert!(scale_gap_bytes(Bytes::gib(64), 16) >= Bytes(GIB / 10));
        assert!(scale_gap_bytes(Bytes::gib(64), 15) < Bytes(GIB / 10));
        assert_eq!(scale_factor_for_burst(Bytes::ZERO, 500, Bytes::gib(1)), Some(1));
        assert_eq!(scale_factor_for_burst(Bytes::gib(1), 500, Bytes::ZERO), None);
    }

    #[test]
    fn boost_is_at_least_a_pageblock_and_can_be_off() {
        assert_eq!(boost_max(15440, WATERMARK_BOOST_FACTOR_DEFAULT, 512), 23160);
        assert_eq!(boost_max(75, WATERMARK_BOOST_FACTOR_DEFAULT, 512), 512);
        assert_eq!(boost_max(75, 0, 512), 0);
    }

    #[test]
    fn privileged_requests_go_below_the_mark() {
        let new = Rules::linux_6_12().watermarks;
        let old = Rules::linux_4_4().watermarks;
        let atomic = Request { high_priority: true, non_blocking: true, ..Request::default() };
        assert_eq!(allowed_mark(&new, 1000, &Request::default()), 1000);
        assert_eq!(allowed_mark(&new, 1000, &atomic), 375);
        assert_eq!(allowed_mark(&old, 1000, &atomic), 375);
        let impatient = Request { non_blocking: true, ..Request::default() };
        assert_eq!(allowed_mark(&new, 1000, &impatient), 1000);
        assert_eq!(allowed_mark(&old, 1000, &impatient), 750);
        let victim = Request { oom_victim: true, ..atomic };
        assert_eq!(allowed_mark(&new, 1000, &victim), 188);
        // The test is strict: free pages equal to the mark fail, and a huge page counts as one page short.
        assert!(!passes_mark(&new, 1100, 1000, 100, &Request::default()));
        assert!(passes_mark(&new, 1101, 1000, 100, &Request::default()));
        let huge = Request { order: 9, ..Request::default() };
        assert!(!passes_mark(&new, 1511, 1000, 0, &huge));
        assert!(passes_mark(&new, 1512, 1000, 0, &huge));
    }

    #[test]
    fn orders_are_walked_or_looked_up() {
        let order_2 = Request { order: 2, ..Request::default() };
        // 1000 single pages, 100 pairs, 20 fours: 1280 pages
        let blocks = [1000, 100, 20];
        let ok = |rules: Rules, mark, blocks: &[u64]| {
            passes_order(&rules.watermarks, 1280, mark, 100, 9, blocks, &order_2)
        };
        assert!(ok(Rules::linux_6_12(), 1000, &blocks));
        assert!(!ok(Rules::linux_6_12(), 1000, &[1000, 140]));
        // after order 0: 277 against mark/2; after order 1: 77 against mark/4
        assert!(ok(Rules::linux_3_10(), 307, &blocks));
        assert!(!ok(Rules::linux_3_10(), 308, &blocks));
        // mark - min, halved at orders 0 and 1; 1275 pages to begin with: 275, then 75
        assert!(ok(Rules::rhel_6(), 100 + 299, &blocks));
        assert!(!ok(Rules::rhel_6(), 100 + 304, &blocks));
        // RHEL 6 asks for two pages more already at order 0
        let one = Request::default();
        assert!(passes_mark(&Rules::linux_3_10().watermarks, 101, 100, 0, &one));
        assert!(!passes_mark(&Rules::rhel_6().watermarks, 102, 100, 0, &one));
        assert!(passes_mark(&Rules::rhel_6().watermarks, 103, 100, 0, &one));
    }
}
