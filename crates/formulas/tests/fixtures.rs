//! The formulas against every captured host: what the kernel printed must follow from what it was given.
//!
//! Marks and reserves are computed at boot and when a setting changes. What the kernel frees after boot (its
//! initial file system, its initialisation code) is managed from then on but had no part in them: on these
//! small machines a zone has grown by up to 7 % since. So marks are held to that, and to each other exactly.
//!
//! `MemAvailable` follows from the other lines of its file to the page; only a zone's boost may have changed
//! before `/proc/zoneinfo` was read. The dirty thresholds are printed in `/proc/vmstat`, a moment after the
//! counters: on a host at rest they follow to a few pages, on one that reclaims all the time to 1 % of
//! memory.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::Path;

use lotsfree_formulas::available::{AvailableInput, mem_available};
use lotsfree_formulas::dirty::{DirtyLimit, DirtyableInput, dirty_limits, dirtyable};
use lotsfree_formulas::overcommit::{LimitSetting, commit_limit};
use lotsfree_formulas::reserve::{ReserveZone, lowmem_reserve, totalreserve_pages};
use lotsfree_formulas::watermarks::{
    Tuning, Zone, ZoneKind, khugepaged_min_free_kib, min_free_kib, scale_gap, watermarks,
};
use lotsfree_formulas::{Rules, pcp};
use lotsfree_units::PageSize;

/// Share by which zones have grown since their marks were computed.
const GROWTH: f64 = 0.07;
/// Share of all pages by which counters move between two files.
const DRIFT: f64 = 0.01;

/// Holds that `computed`, from what a zone manages now, lies at most [`GROWTH`] from `shown`, and a page for
/// rounding.
fn within_growth(computed: u64, shown: u64, at: &str) {
    assert!(
        computed.abs_diff(shown) as f64 <= shown as f64 * GROWTH + 1.0,
        "{at}: {computed}, shown {shown}"
    );
}

/// One captured host: path to content.
struct Host {
    name: String,
    files: HashMap<String, String>,
}

impl Host {
    fn text(&self, path: &str) -> &str {
        self.files.get(path).unwrap_or_else(|| panic!("{}: no {path}", self.name))
    }

    fn sysctl(&self, name: &str) -> u64 {
        self.text(&format!("0s/proc/sys/vm/{name}")).trim().parse().unwrap()
    }

    fn rules(&self) -> Rules {
        Rules::of_release(self.text("0s/proc/sys/kernel/osrelease").trim()).unwrap()
    }

    /// A field of `meminfo` in pages.
    fn meminfo(&self, sample: &str, field: &str) -> u64 {
        let text = self.text(&format!("{sample}/proc/meminfo"));
        let line = text.lines().find(|line| line.split(':').next() == Some(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 4
    }

    fn vmstat(&self, sample: &str, field: &str) -> u64 {
        let text = self.text(&format!("{sample}/proc/vmstat"));
        let line = text.lines().find(|line| line.split(' ').next() == Some(field)).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// CPUs of a node, from its list of ranges.
    fn cpus(&self, node: &str) -> u64 {
        let list = self.text(&format!("0s/sys/devices/system/node/node{node}/cpulist")).trim();
        let count = |range: &str| match range.split_once('-') {
            Some((first, last)) => last.parse::<u64>().unwrap() - first.parse::<u64>().unwrap() + 1,
            None => 1,
        };
        list.split(',').filter(|range| !range.is_empty()).map(count).sum()
    }
}

fn hosts() -> Vec<Host> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    let mut hosts = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut files: HashMap<String, String> = HashMap::new();
        let mut current = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --")) {
                current = Some(files.entry(name.to_owned()).or_default());
            } else if let Some(file) = &mut current {
                file.push_str(line);
                file.push('\n');
            }
        }
        hosts.push(Host { name: path.file_stem().unwrap().to_string_lossy().into_owned(), files });
    }
    assert!(hosts.len() >= 7, "{} hosts", hosts.len());
    hosts
}

/// One zone as `/proc/zoneinfo` prints it.
#[derive(Default)]
struct Printed {
    node: String,
    kind: Option<ZoneKind>,
    numbers: HashMap<String, u64>,
    protection: Vec<u64>,
}

impl Printed {
    fn number(&self, name: &str) -> u64 {
        self.numbers[name]
    }

    /// A mark without the boost that `/proc/zoneinfo` adds to each.
    fn mark(&self, name: &str) -> u64 {
        self.number(name) - self.number("boost")
    }

    fn zone(&self) -> Zone {
        Zone { kind: self.kind.unwrap(), present: self.number("present"), managed: self.number("managed") }
    }
}

fn zones(host: &Host, sample: &str) -> Vec<Printed> {
    let mut zones: Vec<Printed> = Vec::new();
    for line in host.text(&format!("{sample}/proc/zoneinfo")).lines() {
        if let Some((node, name)) = line.split_once(", zone") {
            let kind = match name.trim() {
                "DMA" => ZoneKind::Dma,
                "DMA32" => ZoneKind::Dma32,
                "Normal" => ZoneKind::Normal,
                "Movable" => ZoneKind::Movable,
                "Device" => ZoneKind::Device,
                other => panic!("zone {other}"),
            };
            let node = node.trim_start_matches("Node ").to_owned();
            zones.push(Printed { node, kind: Some(kind), ..Printed::default() });
        } else if let Some(zone) = zones.last_mut() {
            let line = line.trim();
            if let Some(list) = line.strip_prefix("protection: (") {
                zone.protection =
                    list.trim_end_matches(')').split(", ").map(|n| n.parse().unwrap()).collect();
            } else if let [name, number] = line.split_whitespace().collect::<Vec<_>>()[..]
                && let Ok(number) = number.parse()
            {
                // The first CPU's figures stand for all; a zone's own come before them.
                zone.numbers.entry(name.to_owned()).or_insert(number);
            }
        }
    }
    zones
}

/// Runs a check on every host and sample.
fn each(check: impl Fn(&Host, &str, &[Printed])) {
    for host in hosts() {
        for sample in ["0s", "5s"] {
            check(&host, sample, &zones(&host, sample));
        }
    }
}

fn total_reserve(zones: &[Printed]) -> u64 {
    totalreserve_pages(zones.iter().map(|zone| ReserveZone {
        managed: zone.number("managed"),
        high: zone.mark("high"),
        protection_max: zone.protection.iter().copied().max().unwrap(),
    }))
}

#[test]
fn watermarks_follow_from_the_zones() {
    each(|host, sample, printed| {
        let tuning = Tuning {
            min_free_kib: host.sysctl("min_free_kbytes"),
            scale_factor: host.sysctl("watermark_scale_factor"),
            extra_free_kib: 0,
        };
        let list: Vec<Zone> = printed.iter().map(Printed::zone).collect();
        for (zone, marks) in
            printed.iter().zip(watermarks(&host.rules().watermarks, &tuning, &list, PageSize::X86))
        {
            let (min, low, high) = (zone.mark("min"), zone.mark("low"), zone.mark("high"));
            let at = format!("{} {sample} node {} {:?}", host.name, zone.node, zone.kind);
            within_growth(marks.min, min, &at);
            within_growth(marks.low, low, &at);
            within_growth(marks.high, high, &at);
            if zone.kind != Some(ZoneKind::Movable) {
                let gap = scale_gap(min, zone.number("managed"), tuning.scale_factor);
                assert_eq!((low, high), (min + gap, min + 2 * gap), "{at}");
            }
            // 6.1 has the mark but does not print it
            if zone.numbers.contains_key("promo") {
                let promo = zone.mark("promo");
                assert_eq!(promo - high, high - low, "{at}");
                within_growth(marks.promo.unwrap(), promo, &at);
            }
        }
    });
}

#[test]
fn min_free_kbytes_as_the_kernel_chose() {
    each(|host, sample, printed| {
        let thp = host.text("0s/sys/kernel/mm/transparent_hugepage/enabled");
        let populated = printed.iter().filter(|zone| zone.number("present") > 0).count() as u64;
        let rules = host.rules().watermarks;
        let list: Vec<Zone> = printed.iter().map(Printed::zone).collect();
        let managed: u64 = list.iter().map(|zone| zone.managed).sum();
        let own = min_free_kib(&rules, managed * 4);
        // khugepaged counts what lies above the marks of the kernel's own choice.
        let marks = watermarks(&rules, &Tuning::with_min_free(own), &list, PageSize::X86);
        let lowmem = managed - marks.iter().map(|marks| marks.high).sum::<u64>();
        let raised = khugepaged_min_free_kib(PageSize::X86, populated, lowmem);
        let chosen = if thp.contains("[never]") { own } else { own.max(raised) };
        within_growth(chosen, host.sysctl("min_free_kbytes"), &format!("{} {sample}", host.name));
    });
}

#[test]
fn lowmem_reserve_follows_from_the_zones() {
    each(|host, sample, printed| {
        let ratios: Vec<u64> = host
            .text("0s/proc/sys/vm/lowmem_reserve_ratio")
            .split_whitespace()
            .map(|ratio| ratio.parse().unwrap())
            .collect();
        for node in printed.chunk_by(|a, b| a.node == b.node) {
            let managed: Vec<u64> = node.iter().map(|zone| zone.number("managed")).collect();
            for (zone, row) in node.iter().zip(lowmem_reserve(&managed, &ratios)) {
                let at = format!("{} {sample} node {} {:?}", host.name, zone.node, zone.kind);
                for (computed, &shown) in row.into_iter().zip(&zone.protection) {
                    within_growth(computed, shown, &at);
                }
            }
        }
    });
}

#[test]
fn per_cpu_lists_follow_from_the_zones() {
    each(|host, sample, printed| {
        let rules = host.rules().pcp.unwrap();
        for zone in printed.iter().filter(|zone| zone.number("managed") > 0) {
            let cpus = host.cpus(&zone.node);
            let managed = zone.number("managed");
            let batch = pcp::batch(&rules, managed, PageSize::X86);
            let at = format!("{} {sample} node {} {:?}", host.name, zone.node, zone.kind);
            assert_eq!(zone.number("batch:"), batch, "{at}");
            let high = pcp::high(&rules, zone.mark("low"), cpus, batch);
            if let Some(&high_min) = zone.numbers.get("high_min:") {
                // newer kernels print the bounds between which the length moves
                assert_eq!(high_min, high, "{at}");
                assert_eq!(zone.number("high_max:"), pcp::high_max(managed, cpus), "{at}");
            } else if host.rules() == Rules::linux_6_1() {
                assert_eq!(zone.number("high:"), high, "{at}");
            }
        }
    });
}

#[test]
fn mem_available_follows_from_its_parts() {
    each(|host, sample, printed| {
        let pages = |field| host.meminfo(sample, field);
        let input = AvailableInput {
            free: pages("MemFree"),
            active_file: pages("Active(file)"),
            inactive_file: pages("Inactive(file)"),
            slab_reclaimable: pages("SReclaimable"),
            misc_reclaimable: pages("KReclaimable") - pages("SReclaimable"),
            sum_low: printed.iter().map(|zone| zone.number("low")).sum(),
            total_reserve: total_reserve(printed),
        };
        let computed = mem_available(&host.rules().available.unwrap(), &input);
        let shown = pages("MemAvailable");
        // The only thing that moves it between the two files is a zone's boost, which grows by whole
        // pageblocks.
        let boosted =
            ["0s", "5s"].iter().any(|sample| zones(host, sample).iter().any(|zone| zone.number("boost") > 0));
        let difference = computed.abs_diff(shown);
        let whole_blocks = boosted && difference <= 2 * 512 && difference.is_multiple_of(512);
        assert!(difference == 0 || whole_blocks, "{} {sample}: {computed}, shown {shown}", host.name);
    });
}

#[test]
fn dirty_thresholds_follow_from_the_counters() {
    each(|host, sample, printed| {
        let rules = host.rules().dirty.unwrap();
        let input = DirtyableInput {
            free: host.meminfo(sample, "MemFree"),
            file: host.vmstat(sample, "nr_active_file") + host.vmstat(sample, "nr_inactive_file"),
            total_reserve: total_reserve(printed),
            ..DirtyableInput::default()
        };
        let limits = dirty_limits(
            &rules,
            dirtyable(&rules, &input),
            DirtyLimit::Percent(host.sysctl("dirty_ratio")),
            DirtyLimit::Percent(host.sysctl("dirty_background_ratio")),
            PageSize::X86,
            false,
        );
        for (computed, field) in
            [(limits.dirty, "nr_dirty_threshold"), (limits.background, "nr_dirty_background_threshold")]
        {
            let shown = host.vmstat(sample, field);
            // a threshold moves by its ratio of what the counters move by
            let drift = computed.abs_diff(shown) as f64;
            assert!(
                drift <= host.meminfo(sample, "MemTotal") as f64 * DRIFT,
                "{} {sample} {field}: {computed} {shown}",
                host.name
            );
        }
    });
}

#[test]
fn commit_limit_to_the_page() {
    each(|host, sample, _| {
        let setting = match host.sysctl("overcommit_kbytes") {
            0 => LimitSetting::Ratio(host.sysctl("overcommit_ratio")),
            kib => LimitSetting::Kbytes(kib),
        };
        let pages = |field| host.meminfo(sample, field);
        let limit = commit_limit(
            &host.rules().overcommit.unwrap(),
            setting,
            pages("MemTotal"),
            pages("Hugetlb"),
            pages("SwapTotal"),
            PageSize::X86,
        );
        assert_eq!(limit, pages("CommitLimit"), "{} {sample}", host.name);
    });
}
