//! The rows themselves: names, versions, sentences, and agreement with the output of kernels.

use std::collections::BTreeSet;

use lotsfree_kernel_files::counters::*;

/// `6.12` as `[6, 12, 0]`.
fn version(text: &str) -> [u32; 3] {
    let mut parts = [0; 3];
    let mut count = 0;
    for (i, part) in text.split('.').enumerate() {
        parts[i] = part.parse().unwrap_or_else(|_| panic!("{text} is no version"));
        count += 1;
    }
    assert!(count == if parts[0] == 2 { 3 } else { 2 }, "{text} is no kernel release");
    parts
}

/// Whether kernel `at` has `row`.
fn lives(row: &Row, at: &str) -> bool {
    let at = version(at);
    version(row.since.name) <= at && row.until.is_none_or(|until| at < version(until.name))
}

fn rows_are_sound<F: Family>() {
    assert!(!F::ROWS.is_empty());
    let mut names = BTreeSet::new();
    for row in F::ROWS {
        let what = format!("{}::{}", F::NAME, row.name);
        assert!(names.insert(row.name), "{what} twice");
        assert!(row.name.trim() == row.name && !row.name.is_empty(), "{what}");
        assert!(!row.name.contains(char::from(F::SEPARATOR)) || F::NAME == "zoneinfo", "{what}");
        assert!(version(row.since.name) >= version("2.6.32"), "{what} since {}", row.since);
        if let Some(until) = row.until {
            assert!(version(row.since.name) < version(until.name), "{what} until {until}");
        }
        assert!(row.meaning.ends_with('.') && row.meaning.len() > 10, "{what}: {}", row.meaning);
        assert!(!row.meaning.contains(['|', '\n', '<']), "{what} breaks the page: {}", row.meaning);
        let (file, function) = row.source.split_once(':').unwrap_or_else(|| panic!("{what}: {}", row.source));
        assert!(file.ends_with(".c") || file.ends_with(".h"), "{what}: {file}");
        assert!(function.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{what}: {function}");
        let counter = Counter::<F>::named(row.name).unwrap_or_else(|| panic!("{what} is not found"));
        assert_eq!(counter.name(), row.name);
    }
}

#[test]
fn every_row_is_sound() {
    macro_rules! check {
        ($family:ident) => {
            rows_are_sound::<$family>();
        };
    }
    each_family!(check);
}

#[test]
fn typed_names_are_the_kernels() {
    assert_eq!(meminfo::Active_anon.name(), "Active(anon)");
    assert_eq!(vmstat::pgscan_direct.name(), "pgscan_direct");
    assert_eq!(zoneinfo::vm_stats_threshold.name(), "vm stats threshold");
    assert_ne!(zoneinfo::high.name(), zoneinfo::pageset_high.name());
    assert_eq!(memory_stat::total_rss.name(), "total_rss");
    assert_eq!(ksm::pages_sharing.row().kind, Kind::gauge);
    assert_eq!(vmstat::pgpgin.row().unit, Unit::kib);
    assert_eq!(vmstat::nr_kernel_stack.row().unit, Unit::kib);
    assert_eq!(meminfo::HugePages_Total.row().unit, Unit::count);
}

#[test]
fn the_page_has_every_counter() {
    let page = document();
    macro_rules! check {
        ($family:ident) => {
            assert!(page.contains(&format!("\n## {}\n", $family::NAME)), "{}", $family::NAME);
            for row in $family::ROWS {
                assert!(page.contains(&format!("| `{}` | {:?} | {:?} |", row.name, row.unit, row.kind)));
            }
        };
    }
    each_family!(check);
    assert!(
        page.lines().filter(|l| l.starts_with('|')).all(|l| l.matches('|').count() == 7),
        "a cell holds a bar"
    );
}

/// Compares the table with `names`, all counters that kernel `at` can print whatever its configuration: the
/// table must have each, and must not claim more. The lists were taken from the sources of these kernels
/// (6.1.192 and 6.12.117 as Debian ships them; 3.10 and 4.6 for `/proc/vmstat`), ignoring conditional
/// compilation.
fn agrees<F: Family>(at: &str, names: &str) {
    let printed: BTreeSet<&str> = names.lines().collect();
    let claimed: BTreeSet<&str> = F::ROWS.iter().filter(|row| lives(row, at)).map(|row| row.name).collect();
    let missing: Vec<_> = printed.difference(&claimed).collect();
    let extra: Vec<_> = claimed.difference(&printed).collect();
    assert!(missing.is_empty() && extra.is_empty(), "{} {at}: lacks {missing:?}, invents {extra:?}", F::NAME);
}

macro_rules! names {
    ($($test:ident: $family:ident $module:literal $($version:literal)+;)*) => {$(
        #[test]
        fn $test() {
            $(agrees::<$family>($version, include_str!(concat!("data/", $module, "-names-", $version, ".txt")));)+
        }
    )*};
}

names! {
    vmstat_agrees_with_kernels: Vmstat "vmstat" "3.10" "4.6" "6.1" "6.12";
    meminfo_agrees_with_kernels: Meminfo "meminfo" "6.1" "6.12";
    memory_stat_agrees_with_kernels: MemoryStat "memory_stat" "6.1" "6.12";
    memory_events_agree_with_kernels: MemoryEvents "memory_events" "6.1" "6.12";
    smaps_rollup_agrees_with_kernels: SmapsRollup "smaps_rollup" "6.1" "6.12";
    status_agrees_with_kernels: Status "status" "6.1" "6.12";
    ksm_agrees_with_kernels: Ksm "ksm" "6.1" "6.12";
    mthp_stats_agree_with_kernels: MthpStats "mthp_stats" "6.12";
}

/// Parses `text` of kernel 6.18. Every line must be known, and every name alive in that kernel.
fn all_known<F: Family>(text: &str) -> Values<F> {
    let values =
        Values::<F>::parse(text.as_bytes(), |bad| panic!("{} line {}: {}", F::NAME, bad.line, bad.why));
    assert_eq!(values.unknown(), [], "{}", F::NAME);
    assert_eq!(values.iter().count(), text.lines().count(), "{}", F::NAME);
    for (counter, _) in values.iter() {
        assert!(lives(counter.row(), "6.18"), "{counter:?} is said not to be in 6.18");
    }
    values
}

#[test]
fn a_counter_that_was_made_absent_again_is_as_if_never_set() {
    let (mut taken_back, never) = (Values::<Vmstat>::default(), Values::default());
    taken_back.set(vmstat::pgfault, 7);
    assert!(taken_back != never);
    taken_back.set(vmstat::pgfault, u64::MAX);
    assert_eq!(taken_back.iter().count(), 0);
    assert!(taken_back == never);
}

#[test]
fn iter_gives_each_counter_that_is_present_in_table_order() {
    for step in [1, 2, 15, 16, 17, 100] {
        let mut values = Values::<Vmstat>::default();
        let present: Vec<_> = Counter::all().step_by(step).zip(0..).collect();
        for (counter, value) in present.iter().rev() {
            values.set(*counter, *value);
        }
        assert!(values.iter().eq(present), "every {step}th counter");
    }
}

/// Names that the table gives 6.18 and that `values` lacks.
fn absent<F: Family>(values: &Values<F>) -> Vec<&'static str> {
    F::ROWS
        .iter()
        .filter(|row| lives(row, "6.18"))
        .map(|row| row.name)
        .filter(|name| Counter::named(name).is_some_and(|c| values.get(c).is_none()))
        .collect()
}

#[test]
fn vmstat_of_6_18() {
    let values = all_known::<Vmstat>(include_str!("data/vmstat-6.18.txt"));
    // Exactly the counters that this kernel's configuration and architecture leave out.
    assert_eq!(
        absent(&values).join(" "),
        "nr_unaccepted nr_shadow_call_stack pgalloc_high allocstall_high pgskip_high cma_alloc_success cma_alloc_fail \
         nr_tlb_remote_flush nr_tlb_remote_flush_received nr_tlb_local_flush_all nr_tlb_local_flush_one \
         vma_lock_success vma_lock_abort vma_lock_retry vma_lock_miss kstack_1k kstack_2k kstack_4k kstack_8k \
         kstack_16k kstack_32k kstack_64k kstack_rest"
    );
    all_known::<Vmstat>(include_str!("data/node0-vmstat-6.18.txt"));
}

#[test]
fn meminfo_of_6_18() {
    let text = include_str!("data/meminfo-6.18.txt");
    let values = all_known::<Meminfo>(text);
    assert_eq!(values.get(meminfo::MemTotal), Some(24_682_416));
    assert_eq!(
        absent(&values).join(" "),
        "MemUsed HighTotal HighFree LowTotal LowFree MmapCopy FilePages ShadowCallStack EarlyMemtestBad \
         HardwareCorrupted CmaTotal CmaFree Unaccepted DirectMap64k DirectMap1M DirectMap4M DirectMap2G"
    );
    let node = include_str!("data/node0-meminfo-6.18.txt").replace("Node 0 ", "");
    let node = all_known::<Meminfo>(&node);
    let get = |c| node.get(c).unwrap_or_else(|| panic!("{c:?}"));
    assert_eq!(get(meminfo::MemUsed), get(meminfo::MemTotal) - get(meminfo::MemFree));
}

/// In printed order a name is nearly always within a few rows of the previous one; that order of the rows is
/// what makes reading fast.
#[test]
fn rows_stand_in_the_order_of_the_file() {
    fn ordered<F: Family>(text: &str) {
        let position = |name: &str| F::ROWS.iter().position(|row| row.name == name);
        let positions: Vec<_> = text
            .lines()
            .map(|l| l.split([':', ' ']).next().unwrap_or_default())
            .filter_map(position)
            .collect();
        assert!(positions.len() > 5 && positions.is_sorted(), "{}", F::NAME);
    }
    ordered::<Vmstat>(include_str!("data/vmstat-6.18.txt"));
    ordered::<Meminfo>(include_str!("data/meminfo-6.18.txt"));
    ordered::<Numastat>(include_str!("data/node0-numastat-6.18.txt"));
    ordered::<SmapsRollup>(include_str!("data/smaps_rollup-6.18.txt"));
}

#[test]
fn zoneinfo_of_6_18() {
    let mut missing = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for line in include_str!("data/zoneinfo-6.18.txt").lines() {
        let line = line.trim();
        if ["Node ", "per-node stats", "pagesets", "cpu:", "protection:"].iter().any(|h| line.starts_with(h))
        {
            continue;
        }
        let line = line.strip_prefix("pages ").unwrap_or(line);
        let (name, _) = field(line.as_bytes(), b' ').unwrap_or_else(|why| panic!("{line}: {why}"));
        let name = std::str::from_utf8(name).unwrap_or_default();
        // `high` is a watermark, `high:` the bound of a CPU's lists.
        let name = if name == "high:" { "pageset high" } else { name.trim_end_matches(':') };
        let row = match (Counter::<Zoneinfo>::named(name), Counter::<Vmstat>::named(name)) {
            (Some(own), None) => own.row(),
            (None, Some(shared)) => shared.row(),
            _ => {
                missing.insert(name.to_owned());
                continue;
            }
        };
        assert!(lives(row, "6.18"), "{name}");
        seen.insert(row.name);
    }
    assert_eq!(missing, BTreeSet::new());
    for row in Zoneinfo::ROWS.iter().filter(|row| lives(row, "6.18")) {
        assert!(seen.contains(row.name), "{} is not in the file", row.name);
    }
}

#[test]
fn other_files_of_6_18() {
    let numa = all_known::<Numastat>(include_str!("data/node0-numastat-6.18.txt"));
    assert_eq!(absent(&numa), [""; 0]);

    let rollup = include_str!("data/smaps_rollup-6.18.txt");
    let (_, rollup) = rollup.split_once('\n').unwrap_or_default();
    assert_eq!(absent(&all_known::<SmapsRollup>(rollup)), [""; 0]);

    let status: String = include_str!("data/status-6.18.txt")
        .split_inclusive('\n')
        .filter(|l| l.split(':').next().is_some_and(|n| Counter::<Status>::named(n).is_some()))
        .collect();
    assert_eq!(absent(&all_known::<Status>(&status)), [""; 0]);

    assert_eq!(absent(&all_known::<MthpStats>(include_str!("data/mthp_stats-6.18.txt"))), [""; 0]);
    assert_eq!(absent(&all_known::<Khugepaged>(include_str!("data/khugepaged-6.18.txt"))), [""; 0]);

    let ksm: String = include_str!("data/ksm-6.18.txt")
        .split_inclusive('\n')
        .filter(|l| !l.starts_with("advisor_mode ") && !l.starts_with("general_profit "))
        .collect();
    assert_eq!(absent(&all_known::<Ksm>(&ksm)), [""; 0]);

    let group = all_known::<MemoryStat>(include_str!("data/memory.stat-v1-6.18.txt"));
    assert!(group.get(memory_stat::total_rss) >= group.get(memory_stat::rss));
    assert_eq!(group.get(memory_stat::hierarchical_memory_limit), Some(9_223_372_036_854_771_712));
}
