//! The formulas against a running kernel: `/proc/zoneinfo`, `/proc/meminfo` and `/proc/vmstat` of one virtual
//! machine with Linux 6.18, two CPUs and THP on `madvise`, read right after each other.
//!
//! The machine brings memory in lazily: `/proc/meminfo` counts all of it as total and free, `/proc/zoneinfo`
//! manages 6 of 24 GB yet. Watermarks and reserves follow from what is managed, `MemAvailable` from
//! `MemFree`.
//!
//! Each file is a moment of its own. The kernel keeps free pages, cache and dirty data in per-CPU deltas of
//! up to the zone's `vm stats threshold` (20 and 24 pages per CPU here), so a figure computed from one file
//! and printed in another may differ by those deltas and by what was allocated in between. The files were
//! read until `/proc/vmstat` before and after them agreed on every counter used, so the figures below are
//! held to be exact.

#![allow(clippy::unwrap_used)]

use lotsfree_formulas::available::{AvailableInput, mem_available};
use lotsfree_formulas::dirty::{DirtyLimit, DirtyLimits, DirtyableInput, dirty_limits, dirtyable};
use lotsfree_formulas::overcommit::{LimitSetting, commit_limit};
use lotsfree_formulas::reserve::{LOWMEM_RESERVE_RATIO, ReserveZone, lowmem_reserve, totalreserve_pages};
use lotsfree_formulas::watermarks::{
    WatermarkSettings, Watermarks, Zone, ZoneKind, khugepaged_min_free_kib, watermarks,
};
use lotsfree_formulas::{Rules, pcp};
use lotsfree_units::PageSize;

const ZONEINFO: &str = include_str!("data/linux-6.18.zoneinfo");
const MEMINFO: &str = include_str!("data/linux-6.18.meminfo");
const VMSTAT: &str = include_str!("data/linux-6.18.vmstat");
const MIN_FREE_KIB: u64 = 67_584;
const CPUS: u64 = 2;

/// What the file prints of one zone.
#[derive(Debug, Default)]
struct Printed {
    kind: Option<ZoneKind>,
    present: u64,
    managed: u64,
    marks: [u64; 4],
    protection: Vec<u64>,
    batch: Option<u64>,
    high_min: Option<u64>,
    high_max: Option<u64>,
}

impl Printed {
    fn zone(&self) -> Zone {
        Zone { kind: self.kind.unwrap(), present: self.present, managed: self.managed }
    }
}

fn printed() -> Vec<Printed> {
    let mut zones = Vec::new();
    for line in ZONEINFO.lines() {
        if let Some((_, name)) = line.split_once(", zone") {
            let kind = match name.trim() {
                "DMA" => ZoneKind::Dma,
                "DMA32" => ZoneKind::Dma32,
                "Normal" => ZoneKind::Normal,
                "Movable" => ZoneKind::Movable,
                "Device" => ZoneKind::Device,
                other => panic!("zone {other}"),
            };
            zones.push(Printed { kind: Some(kind), ..Printed::default() });
            continue;
        }
        let Some(zone) = zones.last_mut() else { continue };
        if let Some(list) = line.trim().strip_prefix("protection: (") {
            zone.protection = list.trim_end_matches(')').split(", ").map(|n| n.parse().unwrap()).collect();
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(word), Some(Ok(number))) = (words.next(), words.next().map(str::parse::<u64>)) else {
            continue;
        };
        match word {
            "present" => zone.present = number,
            "managed" => zone.managed = number,
            "min" => zone.marks[0] = number,
            "low" => zone.marks[1] = number,
            "high" => zone.marks[2] = number,
            "promo" => zone.marks[3] = number,
            "batch:" => zone.batch = Some(number),
            "high_min:" => zone.high_min = Some(number),
            "high_max:" => zone.high_max = Some(number),
            _ => {}
        }
    }
    assert_eq!(zones.len(), 5);
    zones
}

fn meminfo_kib(text: &str, field: &str) -> u64 {
    let line = text.lines().find(|line| line.split(':').next() == Some(field));
    line.and_then(|line| line.split_whitespace().nth(1)).unwrap().parse().unwrap()
}

fn pages(field: &str) -> u64 {
    meminfo_kib(MEMINFO, field) / 4
}

fn vmstat(field: &str) -> u64 {
    let line = VMSTAT.lines().find(|line| line.split(' ').next() == Some(field));
    line.and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap()
}

fn total_reserve() -> u64 {
    totalreserve_pages(printed().iter().map(|zone| ReserveZone {
        managed: zone.managed,
        high: zone.marks[2],
        protection_max: zone.protection.iter().copied().max().unwrap(),
    }))
}

#[test]
fn khugepaged_chose_min_free_kbytes() {
    let zones = printed();
    // Populated zones; 5 % of what lies above the high marks does not limit the raise here.
    let populated = zones.iter().filter(|zone| zone.present > 0).count() as u64;
    let lowmem = zones.iter().map(|zone| zone.managed.saturating_sub(zone.marks[2])).sum();
    assert_eq!(khugepaged_min_free_kib(PageSize::X86, populated, lowmem), MIN_FREE_KIB);
}

#[test]
fn watermarks_to_the_page() {
    let printed = printed();
    let zones: Vec<Zone> = printed.iter().map(Printed::zone).collect();
    let computed = watermarks(
        &Rules::linux_6_12().watermarks,
        &WatermarkSettings::with_min_free(MIN_FREE_KIB),
        &zones,
        PageSize::X86,
    );
    for (zone, marks) in printed.iter().zip(computed) {
        let [min, low, high, promo] = zone.marks;
        assert_eq!(marks, Watermarks { min, low, high, promo: Some(promo) }, "{:?}", zone.kind);
    }
}

#[test]
fn lowmem_reserve_to_the_page() {
    let printed = printed();
    let managed: Vec<u64> = printed.iter().map(|zone| zone.managed).collect();
    let reserve = lowmem_reserve(&managed, &LOWMEM_RESERVE_RATIO);
    for (zone, row) in printed.iter().zip(reserve) {
        assert_eq!(zone.protection, row, "{:?}", zone.kind);
    }
}

#[test]
fn per_cpu_lists_to_the_page() {
    let rules = Rules::linux_6_12().pcp.unwrap();
    for zone in printed().iter().filter(|zone| zone.managed > 0) {
        let batch = pcp::batch(&rules, zone.managed, PageSize::X86);
        assert_eq!(zone.batch, Some(batch), "{:?}", zone.kind);
        assert_eq!(zone.high_max, Some(pcp::high_max(zone.managed, CPUS)), "{:?}", zone.kind);
        let high = pcp::high(&rules, zone.marks[1], CPUS, zone.managed, PageSize::X86);
        assert_eq!(zone.high_min, Some(high), "{:?}", zone.kind);
    }
}

#[test]
fn mem_available_to_the_page() {
    let input = AvailableInput {
        free: pages("MemFree"),
        active_file: pages("Active(file)"),
        inactive_file: pages("Inactive(file)"),
        slab_reclaimable: pages("SReclaimable"),
        misc_reclaimable: pages("KReclaimable") - pages("SReclaimable"),
        sum_low: printed().iter().map(|zone| zone.marks[1]).sum(),
        total_reserve: total_reserve(),
    };
    let rules = Rules::linux_6_12().available.unwrap();
    assert_eq!(mem_available(&rules, &input), pages("MemAvailable"));
}

#[test]
fn dirty_thresholds_to_the_page() {
    let rules = Rules::linux_6_12().dirty.unwrap();
    let input = DirtyableInput {
        free: pages("MemFree"),
        file: vmstat("nr_active_file") + vmstat("nr_inactive_file"),
        anon: 0,
        swap: false,
        reserve: total_reserve(),
    };
    let limits = dirty_limits(
        &rules,
        dirtyable(&rules, &input, 0),
        DirtyLimit::Percent(20),
        DirtyLimit::Percent(10),
        PageSize::X86,
        false,
    );
    let printed = DirtyLimits {
        dirty: vmstat("nr_dirty_threshold"),
        background: vmstat("nr_dirty_background_threshold"),
    };
    assert_eq!(limits, printed);
}

#[test]
fn commit_limit_to_the_page() {
    let rules = Rules::linux_6_12().overcommit.unwrap();
    let limit = commit_limit(
        &rules,
        LimitSetting::Ratio(50),
        pages("MemTotal"),
        pages("Hugetlb"),
        pages("SwapTotal"),
        PageSize::X86,
    );
    assert_eq!(limit, pages("CommitLimit"));
}

#[test]
fn commit_limits_of_two_oracle_hosts_to_the_page() {
    for text in [include_str!("data/oracle-system-a.meminfo"), include_str!("data/oracle-system-b.meminfo")] {
        let rules = Rules::rhel_6().overcommit.unwrap();
        let kib = |field| meminfo_kib(text, field);
        let limit = commit_limit(
            &rules,
            LimitSetting::Ratio(50),
            kib("MemTotal") / 4,
            0,
            kib("SwapTotal") / 4,
            PageSize::X86,
        );
        assert_eq!(limit * 4, kib("CommitLimit"));
    }
}
