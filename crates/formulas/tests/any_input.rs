//! No input panics, and what must hold for every input holds.

#![allow(clippy::unwrap_used)]

use lotsfree_formulas::overcommit::{Asker, CommitState, LimitSetting, Mode, commit_limit, largest_request};
use lotsfree_formulas::pagetables::{Levels, Mapping, shared_hugetlb_tables, tables};
use lotsfree_formulas::reserve::{ReserveZone, lowmem_reserve, totalreserve_pages};
use lotsfree_formulas::watermarks::{self, WatermarkSettings, Zone, ZoneKind, watermarks};
use lotsfree_formulas::{
    Rules, dirty, faults, hugepages, jvm, lists, memlock, overcommit, pcp, protection, swap, vendors,
};
use lotsfree_units::{Bytes, PageSize};
use proptest::prelude::*;

fn kinds() -> impl Strategy<Value = ZoneKind> {
    use ZoneKind::*;
    prop::sample::select(vec![Dma, Dma32, Normal, HighMem, Movable, Device])
}

fn rules() -> impl Strategy<Value = Rules> {
    prop::sample::select(Rules::ALL.to_vec())
}

fn page() -> impl Strategy<Value = PageSize> {
    prop::sample::select([4096, 16384, 65536].map(|bytes| PageSize::new(bytes).unwrap()).to_vec())
}

proptest! {
    #[test]
    fn marks_are_ordered(
        rules in rules(),
        page in page(),
        zones in prop::collection::vec((kinds(), any::<u64>(), any::<u64>()), 0..8),
        (min, scale, extra) in any::<(u64, u64, u64)>(),
    ) {
        let zones: Vec<Zone> =
            zones.into_iter().map(|(kind, present, managed)| Zone { kind, present, managed }).collect();
        let tuning = WatermarkSettings { min_free_kib: min, scale_factor: scale, extra_free_kib: extra };
        let marks = watermarks(&rules.watermarks, &tuning, &zones, page);
        prop_assert_eq!(marks.len(), zones.len());
        for mark in &marks {
            prop_assert!(mark.min <= mark.low && mark.low <= mark.high);
            prop_assert!(mark.promo.is_none_or(|promo| promo >= mark.high || rules.watermarks.extra_free));
        }
        let managed: Vec<u64> = zones.iter().map(|zone| zone.managed).collect();
        let reserve = lowmem_reserve(&managed, &[256, 256, 32, 0, scale]);
        for row in &reserve {
            prop_assert!(row.is_sorted());
        }
        let zones = zones.iter().zip(&marks).map(|(zone, mark)| ReserveZone {
            managed: zone.managed,
            high: mark.high,
            protection_max: extra,
        });
        let all = managed.iter().fold(0u64, |sum, &pages| sum.saturating_add(pages));
        prop_assert!(totalreserve_pages(zones) <= all);
    }

    #[test]
    fn requests_stay_below_the_limit(
        rules in rules(),
        (ram, hugetlb, swap, committed, free, file, vm) in any::<(u64, u64, u64, u64, u64, u64, u64)>(),
        admin in any::<bool>(),
        percent in any::<u64>(),
    ) {
        let Some(rules) = rules.overcommit else { return Ok(()) };
        let state = CommitState { ram, hugetlb, swap, committed, free, file, ..CommitState::default() };
        let asker = Asker { admin, total_vm: vm };
        let limit = commit_limit(&rules, LimitSetting::Ratio(percent), ram, hugetlb, swap, PageSize::X86);
        let n = largest_request(&rules, Mode::Never, limit, &state, &asker).unwrap();
        prop_assert!(n == 0 || committed.saturating_add(n) < limit);
        prop_assert!(largest_request(&rules, Mode::Heuristic, limit, &state, &asker).is_some());
    }

    #[test]
    fn tables_never_shrink_with_smaller_pages(bytes in any::<u64>(), n in any::<u64>(), page in page()) {
        for levels in [Levels::Four, Levels::Five] {
            let [base, thp, pmd, pud] = [Mapping::Base, Mapping::Thp, Mapping::Pmd, Mapping::Pud]
                .map(|mapping| tables(Bytes(bytes), mapping, page, levels));
            prop_assert_eq!(base, thp);
            prop_assert!(base.total() >= pmd.total() && pmd.total() >= pud.total());
            let shared = shared_hugetlb_tables(Bytes(bytes), n, page, levels);
            prop_assert!(shared.total() <= pmd.times(n).total());
        }
    }

    #[test]
    fn nothing_else_panics(
        (a, b, c, d) in any::<(u64, u64, u64, u64)>(),
        nodes in 0u32..2048,
        page in page(),
        rules in rules(),
    ) {
        let (ba, bb, bc, bd) = (Bytes(a), Bytes(b), Bytes(c), Bytes(d));
        prop_assert_eq!(hugepages::split(a, nodes).iter().map(|&n| u128::from(n)).sum::<u128>(),
            if nodes == 0 { 0 } else { u128::from(a) });
        hugepages::script_pages(ba, bb);
        prop_assert!(hugepages::sga_pages(ba, bb) >= hugepages::segment_pages(ba, bb));
        for (_, collector) in jvm::Collector::ALL {
            let areas = jvm::Areas { heap: ba, metaspace: bb, code_cache: bc, collector };
            prop_assert!(jvm::pages(&areas, bd).total() >= ba.units_of(bd));
        }
        hugepages::hvo_saving(ba, page);
        let pool = hugepages::Pool { total: a, free: b, rsvd: c, surp: d };
        prop_assert!(pool.promised() >= pool.used());
        pool.reservable(a);
        pool.surplus_needed(a);
        watermarks::min_free_kib(&rules.watermarks, a);
        watermarks::khugepaged_min_free_kib(page, a, b);
        watermarks::boost_max(a, b, c);
        if let Some(factor) = watermarks::scale_factor_for_burst(ba, b % 10_000, bc) {
            prop_assert!(factor >= 1);
        }
        if let Some(rules) = rules.pcp {
            let batch = pcp::batch(&rules, a, page);
            prop_assert!((1..=255).contains(&batch));
            pcp::high(&rules, a, b, c, page);
        }
        let request = watermarks::Request { order: (c % 80) as u32, ..watermarks::Request::default() };
        watermarks::passes_mark(&rules.watermarks, a, b, c, &request);
        watermarks::passes_order(&rules.watermarks, a, b, c, 9, &[d; 80], &request);
        prop_assert!(protection::memory_low(ba) >= ba);
        prop_assert!(protection::low_budget(ba, bb, bc) <= ba);
        let (low, high) = overcommit::postgres_limit(ba, bb, bc);
        prop_assert!(low <= high);
        vendors::max_map_count(a);
        pcp::high_max(a, b);
        prop_assert!(lists::inactive_ratio(ba) >= 1);
        if let Some(dirty_rules) = rules.dirty {
            let limits = dirty::dirty_limits(&dirty_rules, a, dirty::DirtyLimit::Percent(b),
                dirty::DirtyLimit::Bytes(bc), page, d % 2 == 0);
            prop_assert!(limits.background <= limits.dirty);
            prop_assert!(dirty::freerun_pages(limits) <= limits.dirty);
        }
        dirty::flush_ms(ba, bb);
        dirty::pagecache_limit_mib(ba);
        prop_assert!((Bytes::mib(256)..=Bytes::gib(1)).contains(&dirty::bounded_copy_high(ba)));
        swap::oracle(ba);
        swap::rhel(ba);
        swap::solaris(ba);
        prop_assert!(swap::for_cold_memory(ba, bb) <= ba);
        vendors::oracle_min_free_kib(ba, b);
        vendors::sap_min_free_kib(ba);
        memlock::memlock_kib(ba, bb);
        memlock::oracle_memlock_kib(ba);
        faults::fault_ns(a, b, c);
        faults::first_touch_faults(a, b);
    }
}
