//! [`Rules`]: what differs between kernels, one record per source tree that was read.

use lotsfree_units::Bytes;

use crate::available::AvailableRules;
use crate::dirty::{DirtyRules, Reserve};
use crate::lists::{ListRules, Refault};
use crate::memlock::MemlockRules;
use crate::overcommit::{Heuristic, OvercommitRules};
use crate::pagetables::PageTableRules;
use crate::pcp::PcpRules;
use crate::watermarks::{Discount, OrderTest, WatermarkRules};

/// The switches of one kernel.
///
/// A part is `None` where that kernel lacks the feature or its source was not read. A host may differ by a
/// backport: what a snapshot shows (a sysctl that exists, a field of `/proc/zoneinfo`) may overwrite a
/// switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Name as on the command line, such as `linux-6.1`.
    pub name: &'static str,
    /// Watermarks and `min_free_kbytes`.
    pub watermarks: WatermarkRules,
    /// Per-CPU lists; `None` for 4.19, whose functions were not read.
    pub pcp: Option<PcpRules>,
    /// `MemAvailable`; `None` where the kernel prints none, or its form was not read (RHEL 7).
    pub available: Option<AvailableRules>,
    /// Overcommit; `None` for 3.0, whose function was not read.
    pub overcommit: Option<OvercommitRules>,
    /// Page-table counters.
    pub page_tables: PageTableRules,
    /// Dirty limits; `None` for RHEL 7, whose functions were not read.
    pub dirty: Option<DirtyRules>,
    /// LRU lists.
    pub lists: ListRules,
    /// `SHM_HUGETLB`.
    pub memlock: MemlockRules,
}

impl Rules {
    /// RHEL 6.8: 2.6.32-642.
    pub const fn rhel_6() -> Self {
        Rules {
            name: "linux-2.6.32-rhel6",
            watermarks: WatermarkRules {
                scale_factor: false,
                managed_share: false,
                extra_free: true,
                promo: false,
                movable_apart: false,
                khugepaged_counts_movable: true,
                boost: false,
                clamp_kib: 64 << 10,
                discount: Discount::Independent,
                order_test: OrderTest::WalkFromGap,
            },
            pcp: Some(PcpRules { batch_cap: Bytes::kib(512), high_from_mark: false, adapts: false }),
            available: Some(AvailableRules { total_reserve: false, misc_reclaimable: false }),
            overcommit: Some(OvercommitRules {
                heuristic: Heuristic::CacheFirst,
                kbytes: false,
                user_reserve: false,
            }),
            page_tables: PageTableRules { counts_pmd: false, counts_pud: false },
            dirty: Some(DirtyRules {
                reserve: Reserve::Dirtyable,
                subtract_min_free: false,
                count_anon: true,
                least_five_percent: true,
                parts_of_page: false,
                realtime_bonus: false,
            }),
            lists: ListRules { ratio_from_lists: false, file_ratio: false, refault: Refault::None },
            memlock: MemlockRules { rlimit_allows_hugetlb: true, default_limit: Some(Bytes::kib(64)) },
        }
    }

    /// RHEL 6.4: 2.6.32-358, before the changes of 2.6.32-411 to higher orders and to zone reclaim.
    pub const fn rhel_6_4() -> Self {
        let mut rules = Self::rhel_6();
        rules.name = "linux-2.6.32-rhel6.4";
        // zone_watermark_ok halves the whole mark, not its distance from the min mark.
        rules.watermarks.order_test = OrderTest::Walk;
        rules.available = None;
        rules
    }

    /// 3.0, the base of SLES 11 SP2 and SP3.
    pub const fn linux_3_0() -> Self {
        let mut rules = Self::rhel_6();
        rules.name = "linux-3.0";
        rules.memlock.default_limit = None;
        rules.watermarks.managed_share = true;
        rules.watermarks.extra_free = false;
        rules.watermarks.order_test = OrderTest::Walk;
        rules.available = None;
        rules.overcommit = None;
        // determine_dirtyable_memory: anonymous pages count while there is swap, the reserve does not.
        rules.dirty = Some(DirtyRules {
            reserve: Reserve::Dirtyable,
            subtract_min_free: false,
            count_anon: true,
            least_five_percent: false,
            parts_of_page: false,
            realtime_bonus: true,
        });
        rules
    }

    /// 3.10, 3.11 and 3.12, which these formulas do not tell apart.
    pub const fn linux_3_10() -> Self {
        let mut rules = Self::linux_3_0();
        rules.name = "linux-3.10";
        rules.overcommit =
            Some(OvercommitRules { heuristic: Heuristic::Estimate, kbytes: false, user_reserve: true });
        // global_dirtyable_memory: anonymous pages stopped counting in 3.14.
        rules.dirty = Some(DirtyRules {
            reserve: Reserve::FromAll,
            subtract_min_free: true,
            count_anon: true,
            least_five_percent: false,
            parts_of_page: false,
            realtime_bonus: true,
        });
        rules
    }

    /// 3.10.108, with what was taken back from 3.14 (`global_dirtyable_memory`, a1c3bfb2f67e).
    pub const fn linux_3_10_108() -> Self {
        let mut rules = Self::linux_3_10();
        rules.name = "linux-3.10.108";
        rules.dirty = Some(DirtyRules {
            reserve: Reserve::FromFree,
            subtract_min_free: true,
            count_anon: false,
            least_five_percent: false,
            parts_of_page: false,
            realtime_bonus: true,
        });
        rules
    }

    /// RHEL 7: 3.10.0-1160, with refault detection.
    pub const fn rhel_7() -> Self {
        let mut rules = Self::linux_3_10();
        rules.name = "linux-3.10-rhel7";
        rules.lists.refault = Refault::ActiveFile;
        rules.dirty = None;
        rules
    }

    /// 4.4.
    pub const fn linux_4_4() -> Self {
        let mut rules = Self::rhel_7();
        rules.name = "linux-4.4";
        rules.watermarks.order_test = OrderTest::AnyBlock;
        rules.available = Some(AvailableRules { total_reserve: false, misc_reclaimable: false });
        rules.overcommit =
            Some(OvercommitRules { heuristic: Heuristic::Estimate, kbytes: true, user_reserve: true });
        rules.dirty = Some(DirtyRules {
            reserve: Reserve::FromFree,
            subtract_min_free: false,
            count_anon: false,
            least_five_percent: false,
            parts_of_page: true,
            realtime_bonus: true,
        });
        rules
    }

    /// 4.19.
    pub const fn linux_4_19() -> Self {
        let mut rules = Self::linux_4_4();
        rules.name = "linux-4.19";
        rules.pcp = None;
        rules.watermarks.scale_factor = true;
        rules.watermarks.khugepaged_counts_movable = false;
        rules.available = Some(AvailableRules { total_reserve: true, misc_reclaimable: false });
        rules.lists.ratio_from_lists = true;
        rules.lists.file_ratio = true;
        rules
    }

    /// RHEL 8.10: 4.18.0-553, whose closed forms are those of 5.10 but for the heuristic of overcommit.
    /// Builds from 305 on (8.4) get them; 240 (8.3) has no boost of watermarks yet.
    pub const fn rhel_8() -> Self {
        let mut rules = Self::linux_5_10();
        rules.name = "linux-4.18-rhel8";
        rules.overcommit = Self::linux_4_19().overcommit;
        rules
    }

    /// 5.4.
    pub const fn linux_5_4() -> Self {
        let mut rules = Self::linux_4_19();
        rules.name = "linux-5.4";
        rules.pcp = Some(PcpRules { batch_cap: Bytes::mib(1), high_from_mark: false, adapts: false });
        rules.watermarks.boost = true;
        rules.available = Some(AvailableRules { total_reserve: true, misc_reclaimable: true });
        rules.overcommit =
            Some(OvercommitRules { heuristic: Heuristic::Obvious, kbytes: true, user_reserve: true });
        rules
    }

    /// 5.10.
    pub const fn linux_5_10() -> Self {
        let mut rules = Self::linux_5_4();
        rules.name = "linux-5.10";
        rules.watermarks.clamp_kib = 256 << 10;
        rules.page_tables.counts_pmd = true;
        rules.lists.refault = Refault::Workingset;
        rules
    }

    /// 5.15.
    pub const fn linux_5_15() -> Self {
        let mut rules = Self::linux_5_10();
        rules.name = "linux-5.15";
        rules.pcp = Some(PcpRules { batch_cap: Bytes::mib(1), high_from_mark: true, adapts: false });
        rules
    }

    /// 6.1.
    pub const fn linux_6_1() -> Self {
        let mut rules = Self::linux_5_15();
        rules.name = "linux-6.1";
        rules.watermarks.promo = true;
        rules.memlock.rlimit_allows_hugetlb = false;
        rules
    }

    /// 6.12; 6.8 was read and has the same, 6.18 was seen to agree.
    pub const fn linux_6_12() -> Self {
        let mut rules = Self::linux_6_1();
        rules.name = "linux-6.12";
        rules.pcp = Some(PcpRules { batch_cap: Bytes::mib(1), high_from_mark: true, adapts: true });
        rules.memlock.default_limit = Some(Bytes::mib(8));
        rules.watermarks.movable_apart = true;
        rules.watermarks.discount = Discount::Nested;
        rules.page_tables.counts_pud = true;
        rules
    }

    /// Every record, oldest first.
    pub const ALL: [Rules; 14] = [
        Self::rhel_6_4(),
        Self::rhel_6(),
        Self::linux_3_0(),
        Self::linux_3_10(),
        Self::linux_3_10_108(),
        Self::rhel_7(),
        Self::linux_4_4(),
        Self::linux_4_19(),
        Self::rhel_8(),
        Self::linux_5_4(),
        Self::linux_5_10(),
        Self::linux_5_15(),
        Self::linux_6_1(),
        Self::linux_6_12(),
    ];

    /// The record of that [`name`](Rules::name).
    pub fn named(name: &str) -> Option<Rules> {
        Self::ALL.into_iter().find(|rules| rules.name == name)
    }

    /// The record for a release as `uname -r` prints it.
    ///
    /// A release between two trees gets the newer one's record once the switches whose first release is known
    /// had arrived: refault detection in 3.15, the scale factor in 4.6 and lists per node in 4.8, the simple
    /// test of mode 0 in 5.2, refaults of anonymous memory in 5.9, the 256 MiB clamp in 5.10 and per-CPU
    /// lists that adapt in 6.7. Else it gets the older one's. Distributions backport: what a host shows
    /// counts for more.
    ///
    /// RHEL 6 is told by its build: the walk over orders and zone reclaim changed with 2.6.32-411, between
    /// 6.4 and 6.5.
    ///
    /// `None` when the text does not begin with a version, or the version is older than every tree.
    pub fn of_release(release: &str) -> Option<Rules> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        let major = numbers.next()?.ok()?;
        let minor = numbers.next()?.ok()?;
        let rules = match (major, minor) {
            (2, 6) if release.contains(".el6") && rhel_build(release) < 411 => Self::rhel_6_4(),
            (2, 6) if release.contains(".el6") => Self::rhel_6(),
            (..=2, _) => return None,
            (4, 18) if release.contains(".el8") && rhel_build(release) >= 305 => Self::rhel_8(),
            (3, 10) if release.contains(".el7") => Self::rhel_7(),
            (3, 10) if numbers.next() == Some(Ok(108)) => Self::linux_3_10_108(),
            (3, ..10) => Self::linux_3_0(),
            (3, ..15) => Self::linux_3_10(),
            (3, _) | (4, ..8) => Self::linux_4_4(),
            (4, _) | (5, ..2) => Self::linux_4_19(),
            (5, ..10) => Self::linux_5_4(),
            (5, ..14) => Self::linux_5_10(),
            (5, _) | (6, ..1) => Self::linux_5_15(),
            (6, ..8) => Self::linux_6_1(),
            _ => Self::linux_6_12(),
        };
        Some(rules)
    }
}

/// The build of a kernel of RHEL: 358 of `2.6.32-358.el6`.
fn rhel_build(release: &str) -> u32 {
    let build = release.split_once('-').and_then(|(_, build)| build.split('.').next());
    build.and_then(|build| build.parse().ok()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_find_their_tree() {
        for (release, name) in [
            ("2.6.32-642.6.2.el6.x86_64", Some("linux-2.6.32-rhel6")),
            ("2.6.32-431.el6.x86_64", Some("linux-2.6.32-rhel6")),
            ("2.6.32-358.23.2.el6.x86_64", Some("linux-2.6.32-rhel6.4")),
            ("2.6.18-194.el5", None),
            ("3.0.101-0.47.71-default", Some("linux-3.0")),
            ("3.11.0", Some("linux-3.10")),
            ("3.10.108-grsec", Some("linux-3.10.108")),
            ("3.10.0-1160.el7.x86_64", Some("linux-3.10-rhel7")),
            ("4.3.0", Some("linux-4.4")),
            ("4.15.0-213-generic", Some("linux-4.19")),
            ("4.18.0-240.el8.x86_64", Some("linux-4.19")),
            ("4.18.0-553.el8_10.x86_64", Some("linux-4.18-rhel8")),
            ("5.1.0", Some("linux-4.19")),
            ("5.8.0", Some("linux-5.4")),
            ("5.14.0-427.el9.x86_64", Some("linux-5.15")),
            ("5.10.0-30-amd64", Some("linux-5.10")),
            ("5.13.0", Some("linux-5.10")),
            ("6.0.0", Some("linux-5.15")),
            ("6.1.0-18-amd64", Some("linux-6.1")),
            ("6.4.0-150600.23.25-default", Some("linux-6.1")),
            ("6.8.0-45-generic", Some("linux-6.12")),
            ("6.18.44-fc", Some("linux-6.12")),
            ("7.0", Some("linux-6.12")),
            ("", None),
            ("six", None),
            ("6", None),
        ] {
            assert_eq!(Rules::of_release(release).map(|rules| rules.name), name, "{release:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        for rules in Rules::ALL {
            assert_eq!(Rules::named(rules.name), Some(rules));
        }
        assert_eq!(Rules::named("linux-1.0"), None);
    }
}
