//! `MemAvailable`: what could be given to programs without swapping, as the kernel estimates it.

/// How a kernel estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailableRules {
    /// Free memory counts less `totalreserve_pages` (4.19); else less the sum of the low marks (4.4, RHEL 6).
    pub total_reserve: bool,
    /// Reclaimable kernel memory outside slab counts with the slab (5.4).
    pub misc_reclaimable: bool,
}

/// What the estimate is made of, all in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvailableInput {
    /// `MemFree`.
    pub free: u64,
    /// `Active(file)`.
    pub active_file: u64,
    /// `Inactive(file)`.
    pub inactive_file: u64,
    /// `SReclaimable`.
    pub slab_reclaimable: u64,
    /// `KReclaimable` − `SReclaimable`, which is `nr_kernel_misc_reclaimable`.
    pub misc_reclaimable: u64,
    /// Sum of `low` over all zones of all nodes, empty ones included, as printed: with the boost.
    pub sum_low: u64,
    /// [`totalreserve_pages`](crate::reserve::totalreserve_pages).
    pub total_reserve: u64,
}

/// `MemAvailable` in pages.
///
/// Of the file cache and of reclaimable slab the kernel leaves the smaller of one half and the sum of the low
/// marks. Shared memory, anonymous pages and the hugetlb pool never count. Source: `meminfo_proc_show` (4.4
/// and RHEL 6), `si_mem_available` (4.19 and newer).
pub const fn mem_available(rules: &AvailableRules, input: &AvailableInput) -> u64 {
    let kept = if rules.total_reserve { input.total_reserve } else { input.sum_low };
    let file = input.active_file.saturating_add(input.inactive_file);
    let misc = if rules.misc_reclaimable { input.misc_reclaimable } else { 0 };
    let slab = input.slab_reclaimable.saturating_add(misc);
    let cache =
        input.free.saturating_add(usable(file, input.sum_low)).saturating_add(usable(slab, input.sum_low));
    cache.saturating_sub(kept)
}

/// Pages of a cache that can go: all but the smaller of its half and `sum_low`.
const fn usable(pages: u64, sum_low: u64) -> u64 {
    let half = pages / 2;
    pages - if half < sum_low { half } else { sum_low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    const INPUT: AvailableInput = AvailableInput {
        free: 100_000,
        active_file: 30_000,
        inactive_file: 50_000,
        slab_reclaimable: 4_000,
        misc_reclaimable: 1_000,
        sum_low: 5_000,
        total_reserve: 9_000,
    };

    #[test]
    fn the_three_forms_differ_in_what_they_keep_and_count() {
        let old = Rules::linux_4_4().available.unwrap();
        assert_eq!(mem_available(&old, &INPUT), 95_000 + 75_000 + 2_000);
        let middle = Rules::linux_4_19().available.unwrap();
        assert_eq!(mem_available(&middle, &INPUT), 91_000 + 75_000 + 2_000);
        let new = Rules::linux_6_12().available.unwrap();
        assert_eq!(mem_available(&new, &INPUT), 91_000 + 75_000 + 2_500);
        assert_eq!(Rules::linux_3_10().available, None);
    }

    #[test]
    fn never_below_zero() {
        let rules = Rules::linux_6_12().available.unwrap();
        assert_eq!(
            mem_available(&rules, &AvailableInput { total_reserve: 5, ..AvailableInput::default() }),
            0
        );
    }
}
