//! When an LRU list counts as too short, and whether a page that comes back is taken as hot.

use lotsfree_units::{Bytes, GIB};

/// How a kernel balances its active and inactive lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRules {
    /// The ratio for anonymous memory follows the present lists; else the zone's size at boot (through 4.7).
    pub ratio_from_lists: bool,
    /// The file lists obey the same ratio; else inactive is low as soon as it is the shorter one (through
    /// 4.7).
    pub file_ratio: bool,
    /// Who competes with a refaulting page.
    pub refault: Refault,
}

/// Which lists a refault distance is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refault {
    /// No shadow entries: nothing is recognised.
    None,
    /// File pages only, against the active file list (RHEL 7, 4.4 to 5.4).
    ActiveFile,
    /// Both types, against everything that could have been evicted instead (5.15).
    Workingset,
}

/// Lengths of the evictable lists of one lruvec, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// `Inactive(anon)`.
    pub inactive_anon: u64,
    /// `Active(anon)`.
    pub active_anon: u64,
    /// `Inactive(file)`.
    pub inactive_file: u64,
    /// `Active(file)`.
    pub active_file: u64,
}

/// How many active pages the kernel wants per inactive one: `√(10 × GiB)` rounded down, at least 1.
///
/// `size` is the zone at boot or the two lists together ([`ListRules::ratio_from_lists`]). Source:
/// `calculate_zone_inactive_ratio`, `inactive_is_low`.
pub const fn inactive_ratio(size: Bytes) -> u64 {
    let ratio = (size.0 / GIB * 10).isqrt();
    if ratio == 0 { 1 } else { ratio }
}

/// Whether the inactive anonymous list is low, so that active pages are deactivated.
///
/// `ratio_size` as for [`inactive_ratio`]. Without swap the answer is always no. Source:
/// `inactive_anon_is_low`, `inactive_is_low`.
pub const fn inactive_anon_is_low(lists: &Lists, ratio_size: Bytes, swap: bool) -> bool {
    swap && lists.inactive_anon.saturating_mul(inactive_ratio(ratio_size)) < lists.active_anon
}

/// Whether the inactive file list is low. `page` converts the lists to bytes where the ratio applies.
pub const fn inactive_file_is_low(rules: &ListRules, lists: &Lists, page: lotsfree_units::PageSize) -> bool {
    if !rules.file_ratio {
        return lists.active_file > lists.inactive_file;
    }
    let size = page.of(lists.active_file.saturating_add(lists.inactive_file));
    lists.inactive_file.saturating_mul(inactive_ratio(size)) < lists.active_file
}

/// Whether a refaulting page goes straight to the active list.
///
/// `distance` is the number of evictions and activations since the page was evicted, `anon` its type, `swap`
/// whether slots are left. Source: `workingset_refault`, `workingset_test_recent`.
pub const fn refault_activates(
    rules: &ListRules,
    lists: &Lists,
    distance: u64,
    anon: bool,
    swap: bool,
) -> bool {
    let competing = match rules.refault {
        Refault::None => return false,
        Refault::ActiveFile => {
            if anon {
                return false;
            }
            lists.active_file
        }
        Refault::Workingset => {
            let mut sum = lists.active_file;
            if anon {
                sum = sum.saturating_add(lists.inactive_file);
            }
            if swap {
                sum = sum.saturating_add(lists.active_anon);
                if !anon {
                    sum = sum.saturating_add(lists.inactive_anon);
                }
            }
            sum
        }
    };
    distance <= competing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;
    use lotsfree_units::PageSize;

    #[test]
    fn the_ratio_grows_with_the_root_of_the_size() {
        for (gib, ratio) in
            [(0, 1), (1, 3), (10, 10), (16, 12), (48, 21), (64, 25), (100, 31), (256, 50), (1024, 101)]
        {
            assert_eq!(inactive_ratio(Bytes::gib(gib)), ratio, "{gib} GiB");
        }
    }

    #[test]
    fn low_means_short_of_the_ratio_and_only_with_swap() {
        let lists = Lists { inactive_anon: 100, active_anon: 301, inactive_file: 100, active_file: 101 };
        assert!(inactive_anon_is_low(&lists, Bytes::gib(1), true));
        assert!(!inactive_anon_is_low(&lists, Bytes::gib(1), false));
        assert!(!inactive_anon_is_low(&lists, Bytes::gib(2), true));
        assert!(inactive_file_is_low(&Rules::linux_4_4().lists, &lists, PageSize::X86));
        let large = Lists { inactive_file: 262_144, active_file: 786_433, ..lists };
        assert!(!inactive_file_is_low(&Rules::linux_6_12().lists, &large, PageSize::X86));
        assert!(inactive_file_is_low(&Rules::linux_4_4().lists, &large, PageSize::X86));
    }

    #[test]
    fn a_refault_competes_with_what_could_have_been_evicted() {
        let lists = Lists { inactive_anon: 4, active_anon: 30, inactive_file: 200, active_file: 1000 };
        let old = Rules::linux_5_4().lists;
        let new = Rules::linux_6_12().lists;
        assert!(refault_activates(&old, &lists, 1000, false, true));
        assert!(!refault_activates(&old, &lists, 1001, false, true));
        assert!(!refault_activates(&old, &lists, 0, true, true));
        assert!(refault_activates(&new, &lists, 1034, false, true));
        assert!(!refault_activates(&new, &lists, 1035, false, true));
        assert!(!refault_activates(&new, &lists, 1001, false, false));
        assert!(refault_activates(&new, &lists, 1230, true, true));
        assert!(!refault_activates(&new, &lists, 1231, true, true));
        assert!(!refault_activates(&Rules::linux_3_10().lists, &lists, 0, false, true));
    }
}
