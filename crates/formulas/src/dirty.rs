//! Dirty limits: how much written data may wait in memory, and what bounds a job that writes.

use lotsfree_units::{Bytes, MIB, PageSize};

use crate::mul_div;

/// Default of `vm.dirty_expire_centisecs`, in seconds: data older than this is written.
pub const DIRTY_EXPIRE_SECONDS: u64 = 30;

/// What becomes of `totalreserve_pages` (`dirty_balance_reserve` before 4.5), which are never to be had, when
/// dirtyable memory is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// They count as dirtyable (RHEL 6, 3.0).
    Dirtyable,
    /// They are taken from all that is dirtyable (3.2, ab8fabd46f81).
    FromAll,
    /// They are taken from free pages (3.14, a804552b9a15; 3.10.108).
    FromFree,
}

/// How a kernel derives its dirty limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyRules {
    /// What becomes of `totalreserve_pages`.
    pub reserve: Reserve,
    /// `min_free_kbytes` is not dirtyable either, in the sum over all zones (3.9 to 3.13, 75f7ad8e043d;
    /// 3.10.108).
    pub subtract_min_free: bool,
    /// Anonymous LRU pages count as dirtyable while there is swap (through 3.13, a1c3bfb2f67e).
    pub count_anon: bool,
    /// `dirty_ratio` below 5 % acts as 5 % (RHEL 6).
    pub least_five_percent: bool,
    /// A ratio is first turned into parts of a page (20 % of 4096 is 819), then applied; limits come out up
    /// to 0.3 % lower. Seen exactly on 6.18.
    pub parts_of_page: bool,
    /// Real-time tasks get a further 1/32 of the limit on top of the quarter.
    pub realtime_bonus: bool,
}

/// What may be dirtied, all in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyableInput {
    /// `nr_free_pages`.
    pub free: u64,
    /// Active and inactive file pages.
    pub file: u64,
    /// Active and inactive anonymous pages.
    pub anon: u64,
    /// Whether any swap slot exists.
    pub swap: bool,
    /// [`totalreserve_pages`](crate::reserve::totalreserve_pages), or the reserve of the node or zone.
    pub reserve: u64,
}

/// One limit, as the sysctls express it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyLimit {
    /// `dirty_ratio`, `dirty_background_ratio`: percent of dirtyable memory.
    Percent(u64),
    /// `dirty_bytes`, `dirty_background_bytes`.
    Bytes(Bytes),
}

/// The two limits in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyLimits {
    /// `nr_dirty_threshold`: writers are throttled.
    pub dirty: u64,
    /// `nr_dirty_background_threshold`: flushers start.
    pub background: u64,
}

/// Dirtyable memory of a node or zone in pages: what could hold dirty data.
///
/// Source: `node_dirtyable_memory` (6.12), `zone_dirtyable_memory` (3.11).
#[inline]
pub const fn node_dirtyable(rules: &DirtyRules, input: &DirtyableInput) -> u64 {
    let anon = if rules.count_anon && input.swap { input.anon } else { 0 };
    let lists = input.file.saturating_add(anon);
    match rules.reserve {
        Reserve::Dirtyable => input.free.saturating_add(lists),
        Reserve::FromAll => input.free.saturating_add(lists).saturating_sub(input.reserve),
        Reserve::FromFree => input.free.saturating_sub(input.reserve).saturating_add(lists),
    }
}

/// Dirtyable memory of a host in pages, and one page more, so that it is never none; with `min_free` pages of
/// `min_free_kbytes`.
///
/// Source: `global_dirtyable_memory` (6.12, 3.11), `determine_dirtyable_memory` (RHEL 6).
pub const fn dirtyable(rules: &DirtyRules, input: &DirtyableInput, min_free: u64) -> u64 {
    let min_free = if rules.subtract_min_free { min_free } else { 0 };
    node_dirtyable(rules, input).saturating_sub(min_free).saturating_add(1)
}

/// The limits that `dirtyable_pages` and the sysctls give; `realtime` for a real-time or
/// per-thread-privileged writer. A background limit at or above the dirty limit becomes half of it. Source:
/// `domain_dirty_limits` (6.12), `get_dirty_limits` (RHEL 6).
pub const fn dirty_limits(
    rules: &DirtyRules,
    dirtyable_pages: u64,
    dirty: DirtyLimit,
    background: DirtyLimit,
    page: PageSize,
    realtime: bool,
) -> DirtyLimits {
    let dirty_pages = match dirty {
        DirtyLimit::Percent(ratio) if rules.least_five_percent && ratio < 5 => {
            share(rules, dirtyable_pages, 5, page)
        }
        DirtyLimit::Percent(ratio) => share(rules, dirtyable_pages, ratio, page),
        DirtyLimit::Bytes(bytes) => bytes.units_of(page.bytes()),
    };
    let background_pages = match background {
        DirtyLimit::Percent(ratio) => share(rules, dirtyable_pages, ratio, page),
        DirtyLimit::Bytes(bytes) => bytes.units_of(page.bytes()),
    };
    let background_pages = if background_pages >= dirty_pages { dirty_pages / 2 } else { background_pages };
    if !realtime {
        return DirtyLimits { dirty: dirty_pages, background: background_pages };
    }
    let bonus = if rules.realtime_bonus { dirty_pages / 32 } else { 0 };
    DirtyLimits {
        dirty: dirty_pages.saturating_add(dirty_pages / 4).saturating_add(bonus),
        background: background_pages.saturating_add(background_pages / 4).saturating_add(bonus),
    }
}

/// `percent` of `pages`, in the kernel's rounding.
const fn share(rules: &DirtyRules, pages: u64, percent: u64, page: PageSize) -> u64 {
    if rules.parts_of_page {
        let unit = page.bytes().0;
        mul_div(pages, mul_div(percent, unit, 100), unit)
    } else {
        mul_div(pages, percent, 100)
    }
}

/// Up to here writers are not slowed at all: the middle of the two limits, in pages (3.2 and newer).
pub const fn freerun_pages(limits: DirtyLimits) -> u64 {
    limits.dirty / 2 + limits.background / 2 + (limits.dirty & limits.background & 1)
}

/// How long `waiting` takes to reach a device that sustains `bandwidth` bytes per second, in milliseconds
/// rounded up; `None` when nothing is written.
pub const fn flush_ms(waiting: Bytes, bandwidth: Bytes) -> Option<u64> {
    if bandwidth.0 == 0 { None } else { Some(crate::mul_div_up(waiting.0, 1000, bandwidth.0)) }
}

/// `vm.dirty_bytes` that a device of `bandwidth` bytes per second writes in `seconds`; one to three is the
/// recommendation.
pub const fn dirty_bytes_for(bandwidth: Bytes, seconds: u64) -> Bytes {
    bandwidth.times(seconds)
}

/// Smallest `memory.high` for a copy job that [`bounded_copy_high`] gives.
pub const BOUNDED_COPY_MIN: Bytes = Bytes::mib(256);
/// Largest `memory.high` for a copy job that [`bounded_copy_high`] gives.
pub const BOUNDED_COPY_MAX: Bytes = Bytes::gib(1);

/// `memory.high` for a copy or backup job that writes `rate` bytes per second.
///
/// Twice what the job writes before the kernel expires it (30 s), between 256 MiB and 1 GiB: more buys no
/// throughput and takes memory from the rest, less throttles the job on its own dirty pages.
pub const fn bounded_copy_high(rate: Bytes) -> Bytes {
    let wanted = rate.times(2 * DIRTY_EXPIRE_SECONDS);
    if wanted.0 < BOUNDED_COPY_MIN.0 {
        BOUNDED_COPY_MIN
    } else if wanted.0 > BOUNDED_COPY_MAX.0 {
        BOUNDED_COPY_MAX
    } else {
        wanted
    }
}

/// `vm.pagecache_limit_mb` of SLES 11 and 12 for an SAP host, in MiB: 2 % of RAM beyond 256 GiB, else 4096.
///
/// Vendors ship the limit switched off and recommend to leave it so.
pub const fn pagecache_limit_mib(ram: Bytes) -> u64 {
    if ram.0 > 256 << 30 { ram.0 / 50 / MIB } else { 4096 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    const DEFAULTS: (DirtyLimit, DirtyLimit) = (DirtyLimit::Percent(20), DirtyLimit::Percent(10));

    fn limits(rules: &DirtyRules, pages: u64, realtime: bool) -> DirtyLimits {
        dirty_limits(rules, pages, DEFAULTS.0, DEFAULTS.1, PageSize::X86, realtime)
    }

    #[test]
    fn a_fifth_and_a_tenth_in_either_rounding() {
        let old = Rules::rhel_6().dirty.unwrap();
        let new = Rules::linux_6_12().dirty.unwrap();
        assert_eq!(limits(&old, 1_000_000, false), DirtyLimits { dirty: 200_000, background: 100_000 });
        // 819/4096 and 409/4096
        assert_eq!(limits(&new, 1_000_000, false), DirtyLimits { dirty: 199_951, background: 99_853 });
        let one_tib = 1 << 28;
        let threshold = PageSize::X86.of(limits(&new, one_tib, false).dirty);
        assert!(threshold > Bytes::gib(204) && threshold < Bytes::gib(205));
    }

    #[test]
    fn bytes_beat_ratios_and_background_stays_below() {
        let new = Rules::linux_6_12().dirty.unwrap();
        let sles = dirty_limits(
            &new,
            1 << 28,
            DirtyLimit::Bytes(Bytes(629_145_600)),
            DirtyLimit::Bytes(Bytes(314_572_800)),
            PageSize::X86,
            false,
        );
        assert_eq!(sles, DirtyLimits { dirty: 153_600, background: 76_800 });
        let odd = dirty_limits(
            &new,
            1 << 28,
            DirtyLimit::Bytes(Bytes(4097)),
            DirtyLimit::Percent(10),
            PageSize::X86,
            false,
        );
        assert_eq!(odd, DirtyLimits { dirty: 2, background: 1 });
        assert_eq!(freerun_pages(sles), 115_200);
    }

    #[test]
    fn real_time_writers_get_a_quarter_more() {
        let old = Rules::rhel_6().dirty.unwrap();
        assert_eq!(limits(&old, 1_000_000, true), DirtyLimits { dirty: 250_000, background: 125_000 });
        let new = Rules::linux_6_12().dirty.unwrap();
        assert_eq!(limits(&new, 1_000_000, true).dirty, 199_951 + 49_987 + 6_248);
    }

    #[test]
    fn something_is_always_dirtyable() {
        let new = Rules::linux_6_12().dirty.unwrap();
        let input = DirtyableInput { free: 1000, reserve: 2000, ..DirtyableInput::default() };
        assert_eq!(dirtyable(&new, &input, 0), 1);
    }

    #[test]
    fn rhel_6_counts_anon_and_never_goes_below_five_percent() {
        let old = Rules::rhel_6().dirty.unwrap();
        let new = Rules::linux_6_12().dirty.unwrap();
        let input = DirtyableInput { free: 1000, file: 500, anon: 300, swap: true, reserve: 100 };
        assert_eq!(dirtyable(&old, &input, 0), 1801);
        assert_eq!(dirtyable(&old, &DirtyableInput { swap: false, ..input }, 0), 1501);
        assert_eq!(dirtyable(&new, &input, 0), 1401);
        let one =
            dirty_limits(&old, 1000, DirtyLimit::Percent(1), DirtyLimit::Percent(0), PageSize::X86, false);
        assert_eq!(one, DirtyLimits { dirty: 50, background: 0 });
    }

    #[test]
    fn kernels_take_the_reserve_from_all_or_from_free_pages() {
        let input = DirtyableInput { free: 1000, file: 500, anon: 300, swap: true, reserve: 1200 };
        for (rules, all, of_a_zone) in [
            (Rules::linux_3_0(), 1801, 1800),
            (Rules::linux_3_10(), 351, 600),
            (Rules::linux_3_10_108(), 251, 500),
            (Rules::linux_4_4(), 501, 500),
        ] {
            let dirty = rules.dirty.unwrap();
            assert_eq!(dirtyable(&dirty, &input, 250), all, "{}", rules.name);
            assert_eq!(node_dirtyable(&dirty, &input), of_a_zone, "{}", rules.name);
        }
    }

    #[test]
    fn jobs_are_bounded_between_a_quarter_and_one_gib() {
        assert_eq!(bounded_copy_high(Bytes::mib(1)), Bytes::mib(256));
        assert_eq!(bounded_copy_high(Bytes::mib(10)), Bytes::mib(600));
        assert_eq!(bounded_copy_high(Bytes::mib(500)), Bytes::gib(1));
        assert_eq!(flush_ms(Bytes::gib(200), Bytes::mib(200)), Some(1_024_000));
        assert_eq!(flush_ms(Bytes::gib(200), Bytes::ZERO), None);
        assert_eq!(dirty_bytes_for(Bytes::mib(200), 3), Bytes::mib(600));
        assert_eq!(pagecache_limit_mib(Bytes::gib(256)), 4096);
        assert_eq!(pagecache_limit_mib(Bytes::gib(1000)), 20_480);
    }
}
