//! The formulas against every captured kernel: what it printed follows to the page from what it was given.
//!
//! Where more than the present state counts, that is known. A kernel computes marks and reserves at boot and
//! when a setting changes, and its captured machines were made to compute them again once their zones had
//! their final size. It chooses `min_free_kbytes` from the marks it had before; repeated, the choice settles.
//!
//! `nr_dirty_threshold` follows from counters of its own file, `MemAvailable` from other lines of its own.
#![allow(clippy::unwrap_used)]

mod captured;

use captured::{Host, Sample};
use lotsfree_formulas::available::{AvailableInput, mem_available};
use lotsfree_formulas::dirty::{DirtyLimit, DirtyLimits, DirtyableInput, dirty_limits, dirtyable};
use lotsfree_formulas::overcommit::{LimitSetting, commit_limit};
use lotsfree_formulas::reserve::lowmem_reserve;
use lotsfree_formulas::watermarks::{ZoneKind, khugepaged_min_free_kib, min_free_kib};
use lotsfree_formulas::{Rules, pcp};
use lotsfree_units::{Bytes, PageSize};

/// Runs a check on every sample of every kernel.
fn each(check: impl Fn(&Sample<'_>)) {
    let (hosts, marks) = (Host::all("hosts"), Host::all("marks"));
    assert!(hosts.len() >= 7 && marks.len() >= 4, "{} hosts, {} of marks", hosts.len(), marks.len());
    for host in hosts.iter().chain(&marks) {
        host.samples().iter().for_each(&check);
    }
}

/// Pages that a kernel allocation may use, above their zones' high marks: the printed ones, or `high`.
fn lowmem(sample: &Sample<'_>, high: Option<&[u64]>) -> u64 {
    let zones = sample.zones.iter().enumerate();
    let usable = zones.filter(|(_, zone)| zone.kind < Some(ZoneKind::HighMem));
    usable
        .map(|(index, zone)| {
            let high = high.map_or_else(|| zone.number("high"), |high| high[index]);
            zone.number("managed").saturating_sub(high)
        })
        .sum()
}

/// What the kernel takes for `min_free_kbytes` by itself once it takes the same again, in KiB, and lowmem
/// then.
fn settled(sample: &Sample<'_>) -> (u64, u64) {
    let mut lowmem_pages = lowmem(sample, Some(&vec![0; sample.zones.len()]));
    let mut chosen = 0;
    for _ in 0..3 {
        chosen = min_free_kib(&sample.rules().watermarks, lowmem_pages * 4);
        let high: Vec<u64> = sample.marks(chosen).iter().map(|marks| marks.high).collect();
        lowmem_pages = lowmem(sample, Some(&high));
    }
    assert_eq!(min_free_kib(&sample.rules().watermarks, lowmem_pages * 4), chosen);
    (chosen, lowmem_pages)
}

/// What khugepaged wants at least, in KiB.
fn khugepaged(sample: &Sample<'_>, lowmem_pages: u64) -> u64 {
    let counts = |kind| sample.rules().watermarks.khugepaged_counts_movable || kind < Some(ZoneKind::HighMem);
    let populated =
        sample.zones.iter().filter(|zone| zone.number("present") > 0 && counts(zone.kind)).count() as u64;
    khugepaged_min_free_kib(PageSize::X86, populated, lowmem_pages)
}

fn check_watermarks(sample: &Sample<'_>) {
    let computed = sample.marks(sample.sysctl("min_free_kbytes"));
    for (zone, marks) in sample.zones.iter().zip(computed) {
        let at = format!("{} node {} {:?}", sample.at(), zone.node, zone.kind);
        let shown = [zone.mark("min"), zone.mark("low"), zone.mark("high")];
        assert_eq!([marks.min, marks.low, marks.high], shown, "{at}");
        // 6.1 has the mark but does not print it
        if zone.numbers.contains_key("promo") {
            assert_eq!(marks.promo, Some(zone.mark("promo")), "{at}");
        }
    }
}

#[test]
fn captured_watermarks() {
    each(check_watermarks);
}

fn check_min_free_kbytes(sample: &Sample<'_>) {
    let (own, lowmem_pages) = settled(sample);
    let raised = khugepaged(sample, lowmem_pages);
    let chosen = if sample.thp() == "never" { own } else { own.max(raised) };
    assert_eq!(chosen, sample.sysctl("min_free_kbytes"), "{}", sample.at());
}

#[test]
fn captured_min_free_kbytes() {
    Host::all("hosts").iter().flat_map(Host::samples).for_each(|sample| check_min_free_kbytes(&sample));
}

/// The steps of the scenarios in `fixtures/marks`: each figure from the marks of the step before.
#[test]
fn captured_min_free_kbytes_through_the_settings() {
    for host in Host::all("marks") {
        let samples = host.samples();
        let shown: Vec<u64> = samples.iter().map(|sample| sample.sysctl("min_free_kbytes")).collect();
        let own = |index: usize| {
            let before = &samples[index - 1];
            min_free_kib(&before.rules().watermarks, lowmem(before, None) * 4)
        };
        let raised = |index: usize| khugepaged(&samples[index], lowmem(&samples[index - 1], None));

        assert_eq!((samples[0].thp(), shown[0]), ("always", khugepaged(&samples[0], settled(&samples[0]).1)));
        // Neither huge pages nor a person asks for more: the kernel's own choice.
        assert_eq!((samples[1].thp(), shown[1]), ("never", own(1)), "{}", host.name);
        assert_eq!((samples[2].thp(), shown[2]), ("madvise", raised(2)), "{}", host.name);
        assert!(shown[1] < shown[2], "{}", host.name);
        assert!(shown[3..8].iter().all(|&kib| kib == shown[2]), "{}", host.name);
        // What a person wrote and is more stays, with and without huge pages; what is less stays until
        // khugepaged raises it.
        assert_eq!(shown[8..10], [131_074, 131_074], "{}", host.name);
        assert_eq!((samples[9].thp(), own(9) < 131_074), ("never", true), "{}", host.name);
        assert_eq!((samples[10].thp(), shown[10]), ("never", 16_384), "{}", host.name);
        assert_eq!((samples[11].thp(), shown[11]), ("always", raised(11)), "{}", host.name);
        assert_eq!(samples.len(), 12, "{}", host.name);
    }
}

/// Two nodes with DMA, DMA32 and a Normal each: four zones of eleven pageblocks, whatever is Movable.
#[test]
fn thp_raises_to_the_published_figures() {
    for host in Host::all("marks") {
        let kib = if host.name.contains("2nodes") { 90_112 } else { 67_584 };
        assert_eq!(host.samples()[0].sysctl("min_free_kbytes"), kib, "{}", host.name);
    }
}

fn check_lowmem_reserve(sample: &Sample<'_>) {
    let ratios: Vec<u64> = sample
        .text("proc/sys/vm/lowmem_reserve_ratio")
        .split_whitespace()
        .map(|ratio| ratio.parse().unwrap())
        .collect();
    for node in sample.zones.chunk_by(|a, b| a.node == b.node) {
        let managed: Vec<u64> = node.iter().map(|zone| zone.number("managed")).collect();
        for (zone, row) in node.iter().zip(lowmem_reserve(&managed, &ratios)) {
            let at = format!("{} node {} {:?}", sample.at(), zone.node, zone.kind);
            assert_eq!(row, zone.protection, "{at}");
        }
    }
}

#[test]
fn captured_lowmem_reserves() {
    each(check_lowmem_reserve);
}

fn check_per_cpu_lists(sample: &Sample<'_>) {
    let rules = sample.rules().pcp.unwrap();
    for zone in sample.zones.iter().filter(|zone| zone.number("managed") > 0) {
        let cpus = sample.cpus(&zone.node);
        let managed = zone.number("managed");
        let batch = pcp::batch(&rules, managed, PageSize::X86);
        let at = format!("{} node {} {:?}", sample.at(), zone.node, zone.kind);
        assert_eq!(zone.number("batch:"), batch, "{at}");
        let high = pcp::high(&rules, zone.mark("low"), cpus, managed, PageSize::X86);
        let shown = |name: &str| zone.numbers.get(name).copied();
        if sample.rules() == Rules::linux_6_1() {
            assert_eq!(shown("high:"), Some(high), "{at}");
            continue;
        }
        // Newer kernels let the length move up to a bound, and down to another once it is used; some print
        // both.
        let high_max = pcp::high_max(managed, cpus);
        assert!(shown("high_min:").is_none_or(|shown| shown == high), "{at}");
        assert!(shown("high_max:").is_none_or(|shown| shown == high_max), "{at}");
        assert!(shown("high:").is_some_and(|shown| shown <= high.max(high_max)), "{at}");
    }
}

#[test]
fn captured_per_cpu_lists() {
    each(check_per_cpu_lists);
}

fn check_mem_available(sample: &Sample<'_>) {
    let pages = |field| sample.meminfo(field);
    let input = AvailableInput {
        free: pages("MemFree"),
        active_file: pages("Active(file)"),
        inactive_file: pages("Inactive(file)"),
        slab_reclaimable: pages("SReclaimable"),
        misc_reclaimable: pages("KReclaimable") - pages("SReclaimable"),
        sum_low: sample.zones.iter().map(|zone| zone.number("low")).sum(),
        total_reserve: sample.total_reserve(),
    };
    let computed = mem_available(&sample.rules().available.unwrap(), &input);
    assert_eq!(computed, pages("MemAvailable"), "{}", sample.at());
}

#[test]
fn captured_mem_available() {
    each(check_mem_available);
}

fn check_dirty_thresholds(sample: &Sample<'_>) {
    let rules = sample.rules().dirty.unwrap();
    // A kernel that brings memory in when it is needed, which mainline does not, takes what is still to come
    // for free. Its vmstat does not, and differs by 15 pages when nothing is to come any more.
    let lazy = sample.file("proc/cmdline").is_some_and(|line| line.contains("deferred_init=lazy"));
    let input = DirtyableInput {
        free: if lazy { sample.meminfo("MemFree") } else { sample.vmstat("nr_free_pages") },
        file: sample.vmstat("nr_active_file") + sample.vmstat("nr_inactive_file"),
        reserve: sample.total_reserve(),
        ..DirtyableInput::default()
    };
    let limit = |name: &str| match sample.sysctl(&format!("{name}_bytes")) {
        0 => DirtyLimit::Percent(sample.sysctl(&format!("{name}_ratio"))),
        bytes => DirtyLimit::Bytes(Bytes(bytes)),
    };
    let computed = dirty_limits(
        &rules,
        dirtyable(&rules, &input, 0),
        limit("dirty"),
        limit("dirty_background"),
        PageSize::X86,
        sample.realtime(),
    );
    let shown = DirtyLimits {
        dirty: sample.vmstat("nr_dirty_threshold"),
        background: sample.vmstat("nr_dirty_background_threshold"),
    };
    assert_eq!(computed, shown, "{}", sample.at());
}

#[test]
fn captured_dirty_thresholds() {
    each(check_dirty_thresholds);
}

/// The scenarios in `fixtures/marks` go where they should, or the tests above prove less than they seem to.
#[test]
fn every_form_of_every_limit_is_captured() {
    for host in Host::all("marks") {
        let samples = host.samples();
        let seen = |name: &str, value: u64| samples.iter().any(|sample| sample.sysctl(name) == value);
        assert!(seen("watermark_scale_factor", 10) && seen("watermark_scale_factor", 200), "{}", host.name);
        assert!(seen("dirty_ratio", 20) && seen("dirty_bytes", 629_145_600), "{}", host.name);
        // the background limit above the limit, which halves it
        assert!(seen("dirty_ratio", 37) && seen("dirty_background_ratio", 41), "{}", host.name);
        assert_eq!(samples.iter().filter(|sample| sample.realtime()).count(), 1, "{}", host.name);
        let movable = samples[0]
            .zones
            .iter()
            .any(|zone| zone.kind == Some(ZoneKind::Movable) && zone.number("managed") > 0);
        assert_eq!(movable, host.name.contains("2nodes"), "{}", host.name);
        // of the page cache half is kept, or all low marks, whichever is less
        let half_is_less = |sample: &Sample<'_>| {
            let file = sample.meminfo("Active(file)") + sample.meminfo("Inactive(file)");
            file / 2 < sample.zones.iter().map(|zone| zone.number("low")).sum()
        };
        let halves = samples.iter().filter(|sample| half_is_less(sample)).count();
        assert!((1..samples.len()).contains(&halves), "{}: {halves}", host.name);
    }
}

fn check_commit_limit(sample: &Sample<'_>) {
    let setting = match sample.sysctl("overcommit_kbytes") {
        0 => LimitSetting::Ratio(sample.sysctl("overcommit_ratio")),
        kib => LimitSetting::Kbytes(kib),
    };
    let pages = |field| sample.meminfo(field);
    let limit = commit_limit(
        &sample.rules().overcommit.unwrap(),
        setting,
        pages("MemTotal"),
        pages("Hugetlb"),
        pages("SwapTotal"),
        PageSize::X86,
    );
    assert_eq!(limit, pages("CommitLimit"), "{}", sample.at());
}

#[test]
fn captured_commit_limits() {
    Host::all("hosts").iter().flat_map(Host::samples).for_each(|sample| check_commit_limit(&sample));
}

/// A machine of any kernel that has computed its marks since its zones have their size; `settle` in
/// `xtask/src/capture/guest/library.sh` makes it. Other tests that run at the same time would change its
/// memory between two lines of a file.
#[test]
#[ignore = "holds the formulas to the machine it runs on"]
fn this_machine_to_the_page() {
    let host = Host::running();
    for sample in host.samples() {
        check_watermarks(&sample);
        check_lowmem_reserve(&sample);
        check_min_free_kbytes(&sample);
        check_per_cpu_lists(&sample);
        check_mem_available(&sample);
        check_dirty_thresholds(&sample);
        check_commit_limit(&sample);
    }
}
