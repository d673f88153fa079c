//! What may be promised: `CommitLimit`, and the largest request the three overcommit modes let through.

use lotsfree_units::{Bytes, PageSize};

use crate::{mul_div, mul_div_up};

/// Default of `vm.overcommit_ratio`, in percent.
pub const DEFAULT_RATIO: u64 = 50;
/// Upper bound of the default of `vm.admin_reserve_kbytes`, in KiB.
pub const ADMIN_RESERVE_MAX_KIB: u64 = 8 << 10;
/// Upper bound of the default of `vm.user_reserve_kbytes`, in KiB.
pub const USER_RESERVE_MAX_KIB: u64 = 128 << 10;

/// How a kernel decides on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OvercommitRules {
    /// The test of mode 0.
    pub heuristic: Heuristic,
    /// `vm.overcommit_kbytes` exists.
    pub kbytes: bool,
    /// `vm.user_reserve_kbytes` bounds what mode 2 keeps back per process; else a full 1/32 of the process.
    pub user_reserve: bool,
}

/// The test of mode 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heuristic {
    /// Only a request above RAM and swap fails (5.4).
    Obvious,
    /// The request must be less than free memory, cache and free swap (3.10 to 4.19).
    Estimate,
    /// Cache and free swap are asked first, free memory only when they do not suffice; shared memory counts
    /// as cache (RHEL 6).
    CacheFirst,
}

/// `vm.overcommit_memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// 0: refuse what cannot fit by the kernel's estimate.
    Heuristic,
    /// 1: refuse nothing.
    Always,
    /// 2: refuse what exceeds `CommitLimit`.
    Never,
}

/// The sysctl that sets the limit of mode 2; writing one zeroes the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSetting {
    /// `vm.overcommit_ratio`, in percent of RAM without huge pages.
    Ratio(u64),
    /// `vm.overcommit_kbytes`, in KiB.
    Kbytes(u64),
}

/// What the answer depends on, all in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitState {
    /// `MemTotal`.
    pub ram: u64,
    /// `Hugetlb`: the pools of all sizes.
    pub hugetlb: u64,
    /// `SwapTotal`.
    pub swap: u64,
    /// `Committed_AS` before the request.
    pub committed: u64,
    /// `MemFree`.
    pub free: u64,
    /// `nr_file_pages`: `Cached` + `Buffers` + `SwapCached`, shared memory included.
    pub file: u64,
    /// `Shmem`.
    pub shmem: u64,
    /// `SReclaimable`.
    pub slab_reclaimable: u64,
    /// `SwapFree`.
    pub swap_free: u64,
    /// [`totalreserve_pages`](crate::reserve::totalreserve_pages).
    pub total_reserve: u64,
    /// `vm.admin_reserve_kbytes`.
    pub admin_reserve: u64,
    /// `vm.user_reserve_kbytes`.
    pub user_reserve: u64,
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// Has CAP_SYS_ADMIN.
    pub admin: bool,
    /// `total_vm` of the process, in pages.
    pub total_vm: u64,
}

/// `CommitLimit` in pages: `overcommit_kbytes`, or the ratio of RAM that is not in hugetlb pools; plus all
/// swap.
///
/// Zero KiB means that the ratio of 50 % counts, as does a KiB setting on a kernel that has none. Source:
/// `vm_commit_limit`.
pub const fn commit_limit(
    rules: &OvercommitRules,
    setting: LimitSetting,
    ram_pages: u64,
    hugetlb_pages: u64,
    swap_pages: u64,
    page: PageSize,
) -> u64 {
    let base = ram_pages.saturating_sub(hugetlb_pages);
    let allowed = match setting {
        LimitSetting::Kbytes(kib) if rules.kbytes && kib > 0 => kib / page.bytes().as_kib(),
        LimitSetting::Kbytes(_) => mul_div(base, DEFAULT_RATIO, 100),
        LimitSetting::Ratio(percent) => mul_div(base, percent, 100),
    };
    allowed.saturating_add(swap_pages)
}

/// The largest single request in pages that succeeds now; `None` when nothing is refused.
///
/// `limit_pages` is [`commit_limit`]; only mode 2 reads it. Mode 0 judges each request alone, so that several
/// in a row may exceed memory. Source: `__vm_enough_memory` (2.6.32 of RHEL 6, 3.10, 4.19, 6.12).
pub const fn largest_request(
    rules: &OvercommitRules,
    mode: Mode,
    limit_pages: u64,
    state: &CommitState,
    asker: &Asker,
) -> Option<u64> {
    let admin_reserve = if asker.admin { 0 } else { state.admin_reserve };
    match mode {
        Mode::Always => None,
        Mode::Never => {
            let part = asker.total_vm / 32;
            let own = if rules.user_reserve && state.user_reserve < part { state.user_reserve } else { part };
            let limit = limit_pages.saturating_sub(admin_reserve).saturating_sub(own);
            // Committed_AS with the request included must stay below the limit.
            Some(limit.saturating_sub(state.committed).saturating_sub(1))
        }
        Mode::Heuristic => Some(match rules.heuristic {
            Heuristic::Obvious => state.ram.saturating_add(state.swap),
            Heuristic::Estimate => state
                .free
                .saturating_add(state.file.saturating_sub(state.shmem))
                .saturating_add(state.swap_free)
                .saturating_add(state.slab_reclaimable)
                .saturating_sub(state.total_reserve)
                .saturating_sub(admin_reserve)
                .saturating_sub(1),
            Heuristic::CacheFirst => {
                let cache = state
                    .file
                    .saturating_add(state.swap_free)
                    .saturating_add(state.slab_reclaimable)
                    .saturating_sub(admin_reserve);
                let free = state.free.saturating_sub(state.total_reserve);
                let all = cache.saturating_add(free);
                let all = if asker.admin { all } else { all - all / 32 };
                (if cache > all { cache } else { all }).saturating_sub(1)
            }
        }),
    }
}

/// Defaults of `vm.admin_reserve_kbytes` and `vm.user_reserve_kbytes` in KiB: 1/32 of what is free at boot,
/// at most 8 MiB and 128 MiB.
pub const fn default_reserves_kib(free_at_boot_kib: u64) -> (u64, u64) {
    let part = free_at_boot_kib / 32;
    (
        if part < ADMIN_RESERVE_MAX_KIB { part } else { ADMIN_RESERVE_MAX_KIB },
        if part < USER_RESERVE_MAX_KIB { part } else { USER_RESERVE_MAX_KIB },
    )
}

/// `vm.overcommit_kbytes` for a `CommitLimit` of `wanted`, in KiB; `None` when swap alone exceeds it.
pub const fn kbytes_for_limit(wanted: Bytes, swap: Bytes) -> Option<u64> {
    match wanted.0.checked_sub(swap.0) {
        Some(bytes) => Some(bytes.div_ceil(1024)),
        None => None,
    }
}

/// The smallest `vm.overcommit_ratio` for a `CommitLimit` of at least `wanted`, in percent.
///
/// May exceed 100. `None` when swap alone exceeds the wish, or no RAM remains beside the hugetlb pools.
pub const fn ratio_for_limit(wanted: Bytes, ram: Bytes, hugetlb: Bytes, swap: Bytes) -> Option<u64> {
    let base = ram.0.saturating_sub(hugetlb.0);
    match wanted.0.checked_sub(swap.0) {
        Some(bytes) if base > 0 => Some(mul_div_up(bytes, 100, base)),
        _ => None,
    }
}

/// The range of `CommitLimit` that PostgreSQL's advice gives for a database host in mode 2: swap and 80 to
/// 95 % of RAM outside the hugetlb pools.
pub const fn postgres_limit(ram: Bytes, hugetlb: Bytes, swap: Bytes) -> (Bytes, Bytes) {
    let base = ram.0.saturating_sub(hugetlb.0);
    (
        Bytes(mul_div(base, 80, 100).saturating_add(swap.0)),
        Bytes(mul_div(base, 95, 100).saturating_add(swap.0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    fn pages(kib: u64) -> u64 {
        kib / 4
    }

    fn limit_kib(rules: &Rules, ram_kib: u64, hugetlb_kib: u64, swap_kib: u64) -> u64 {
        commit_limit(
            &rules.overcommit.unwrap(),
            LimitSetting::Ratio(50),
            pages(ram_kib),
            pages(hugetlb_kib),
            pages(swap_kib),
            PageSize::X86,
        ) * 4
    }

    #[test]
    fn oracle_systems_a_and_b_to_the_kilobyte() {
        let rules = Rules::rhel_6();
        assert_eq!(limit_kib(&rules, 16_387_608, 0, 8_393_952), 16_587_756);
        assert_eq!(limit_kib(&rules, 132_102_884, 0, 8_393_952), 74_445_392);
    }

    #[test]
    fn huge_pages_shrink_the_limit_by_the_ratio() {
        let rules = Rules::linux_6_12();
        let ram = 24_682_416;
        // a pool of 1 GiB takes 524288 kB off the limit
        assert_eq!(limit_kib(&rules, ram, 0, 0) - limit_kib(&rules, ram, 1 << 20, 0), 524_288);
        // 800 of 1024 GiB leave 112 GiB; of 1000 GiB they leave 100
        let gib = 1 << 20;
        assert_eq!(limit_kib(&rules, 1024 * gib, 800 * gib, 0), 112 * gib);
        assert_eq!(limit_kib(&rules, 1000 * gib, 800 * gib, 0), 100 * gib);
    }

    #[test]
    fn kbytes_replace_the_ratio_where_they_exist() {
        let limit = |rules: Rules| {
            commit_limit(
                &rules.overcommit.unwrap(),
                LimitSetting::Kbytes(4000),
                1_000_000,
                0,
                7,
                PageSize::X86,
            )
        };
        assert_eq!(limit(Rules::linux_6_12()), 1007);
        assert_eq!(limit(Rules::rhel_6()), 500_007);
        assert_eq!(kbytes_for_limit(Bytes::gib(100), Bytes::gib(16)), Some(84 << 20));
        assert_eq!(kbytes_for_limit(Bytes::gib(10), Bytes::gib(16)), None);
        assert_eq!(
            ratio_for_limit(Bytes::gib(212), Bytes::gib(1024), Bytes::gib(800), Bytes::gib(16)),
            Some(88)
        );
        assert_eq!(
            postgres_limit(Bytes::gib(120), Bytes::gib(20), Bytes::gib(4)),
            (Bytes::gib(84), Bytes::gib(99))
        );
        assert_eq!(ratio_for_limit(Bytes::gib(1), Bytes::gib(8), Bytes::gib(8), Bytes::ZERO), None);
    }

    const STATE: CommitState = CommitState {
        ram: 1_000_000,
        hugetlb: 0,
        swap: 100_000,
        committed: 300_000,
        free: 50_000,
        file: 400_000,
        shmem: 150_000,
        slab_reclaimable: 20_000,
        swap_free: 90_000,
        total_reserve: 10_000,
        admin_reserve: 2_048,
        user_reserve: 32_768,
    };

    #[test]
    fn mode_0_by_era() {
        let ask = |rules: Rules, admin| {
            let asker = Asker { admin, total_vm: 0 };
            largest_request(&rules.overcommit.unwrap(), Mode::Heuristic, 0, &STATE, &asker)
        };
        assert_eq!(ask(Rules::linux_6_12(), false), Some(1_100_000));
        assert_eq!(ask(Rules::linux_5_4(), true), Some(1_100_000));
        assert_eq!(ask(Rules::linux_4_19(), true), Some(50_000 + 250_000 + 90_000 + 20_000 - 10_000 - 1));
        assert_eq!(ask(Rules::linux_4_19(), false), Some(400_000 - 2_048 - 1));
        assert_eq!(ask(Rules::rhel_6(), true), Some(510_000 + 40_000 - 1));
        let all = 510_000 - 2_048 + 40_000;
        assert_eq!(ask(Rules::rhel_6(), false), Some(all - all / 32 - 1));
    }

    #[test]
    fn mode_2_keeps_reserves_back() {
        let new = Rules::linux_6_12().overcommit.unwrap();
        let old = Rules::rhel_6().overcommit.unwrap();
        let asker = Asker { admin: false, total_vm: 3_200_000 };
        assert_eq!(
            largest_request(&new, Mode::Never, 600_000, &STATE, &asker),
            Some(600_000 - 2_048 - 32_768 - 300_000 - 1)
        );
        assert_eq!(
            largest_request(&old, Mode::Never, 600_000, &STATE, &asker),
            Some(600_000 - 2_048 - 100_000 - 300_000 - 1)
        );
        assert_eq!(largest_request(&new, Mode::Never, 200_000, &STATE, &asker), Some(0));
        assert_eq!(largest_request(&new, Mode::Always, 0, &STATE, &asker), None);
    }

    #[test]
    fn reserves_are_a_thirty_second_of_free_memory() {
        // 6.18, user_reserve_kbytes 100269: between 3208608 and 3208639 kB were free at boot
        assert_eq!(default_reserves_kib(3_208_608), (8192, 100_269));
        assert_eq!(default_reserves_kib(1 << 40), (8192, 131_072));
        assert_eq!(default_reserves_kib(64 << 10), (2048, 2048));
    }
}
