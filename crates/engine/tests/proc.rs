//! The model's `/proc` has what the kernel prints, and its numbers add up.

use std::collections::BTreeSet;

use lotsfree_engine::mm::{Config, Cx, Fault, Kswapd, Mm, RaState, Read, Stop, Write};
use lotsfree_engine::{Generation, NAMES};
use lotsfree_kernel_files::counters::{
    Family, Meminfo, Values, Vmstat, meminfo as m, vmstat as v, zoneinfo as z,
};
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_kernel_files::{File, Log};
use lotsfree_workload::{How, Policy, RegionId};

const FIXTURE_6_1: &str = include_str!("../../../fixtures/hosts/6.1-2nodes-zone-reclaim.txt");
const FIXTURE_6_12: &str = include_str!("../../../fixtures/hosts/6.12-1node-swap.txt");
const FIXTURE_6_18: &str = include_str!("../../../fixtures/hosts/6.18-1node-cgroup1.txt");

/// A file of a captured host.
fn section<'a>(host: &'a str, path: &str) -> &'a str {
    let head = format!("\n-- 0s/{path} --\n");
    let start = host.find(&head).expect("the host has the file") + head.len();
    let rest = &host[start..];
    &rest[..rest.find("\n-- ").map_or(rest.len(), |end| end + 1)]
}

/// Memory in use: a heap larger than the room in memory, half of it written to swap, and a file.
fn busy(generation: &str, nodes: &[u64]) -> Mm {
    let mut mm = Mm::new(&Config {
        cpus: 2,
        swap_pages: 12_000,
        kernel_pages: Some(vec![300 / nodes.len() as u64; nodes.len()]),
        reserved_pages: None,
        pagesets: Vec::new(),
        instant_reads: true,
        ..Config::new(Generation::named(generation).expect("a generation"), nodes.to_vec())
    });
    let task = mm.create_task();
    let process = mm.create_process(Policy::Local);
    let mut now = 0;
    let kswapd_task = mm.create_task();
    let mut kswapds: Vec<Kswapd> = (0..nodes.len()).map(Kswapd::new).collect();
    let mut until_done = |mm: &mut Mm, call: &mut dyn FnMut(&mut Mm, &mut Cx) -> Result<(), Stop>| {
        loop {
            let mut cx = Cx::new(task, 0, process, now);
            let outcome = call(mm, &mut cx);
            now = cx.now();
            match outcome {
                Err(Stop::Wait(_)) => {}
                outcome => break outcome.unwrap_or_else(|why| panic!("{generation}: {why:?}")),
            }
            now += 10_000_000;
            for kswapd in &mut kswapds {
                let _ = kswapd.poll(mm, &mut Cx::new(kswapd_task, 0, usize::MAX, now));
            }
            let writes: Vec<u64> = mm.take_io().map(|io| io.id).collect();
            for id in writes {
                mm.complete(id, now);
            }
        }
    };
    let total: u64 = nodes.iter().sum();
    let file = mm.declare_file(2000, true);
    let (mut ra, mut read) = (RaState::default(), Read::new(0, 2000 * 4096, How::Buffered));
    until_done(&mut mm, &mut |mm, cx| read.poll(mm, cx, file, &mut ra));
    let mut write = Write::new(0, 40 * 4096, How::Buffered);
    until_done(&mut mm, &mut |mm, cx| write.poll(mm, cx, file));
    until_done(&mut mm, &mut |mm, cx| mm.map_file(cx, RegionId(1), file, 500, true));
    let heap = total as u32;
    until_done(&mut mm, &mut |mm, cx| mm.map_anon(cx, RegionId(0), heap));
    for page in 0..heap {
        let mut fault = Fault::new(RegionId(0), page, true);
        until_done(&mut mm, &mut |mm, cx| fault.poll(mm, cx));
    }
    for page in 0..500 {
        let mut fault = Fault::new(RegionId(1), page, false);
        until_done(&mut mm, &mut |mm, cx| fault.poll(mm, cx));
    }
    mm.check().expect("the state holds together");
    mm
}

fn names<F: Family>(values: &Values<F>) -> BTreeSet<&'static str> {
    values.iter().map(|(counter, _)| counter.name()).collect()
}

fn parsed<F: Family>(text: &str) -> Values<F> {
    Values::parse(text.as_bytes(), |bad| panic!("{bad:?}"))
}

fn reads_back<F: Family + PartialEq>(values: &Values<F>) {
    let mut text = String::new();
    values.print(&mut text);
    assert!(parsed::<F>(&text) == *values, "{text}");
    assert_eq!(values.unknown(), []);
}

#[test]
fn every_generation_s_files_are_read_back() {
    for generation in NAMES {
        let mm = busy(generation, &[9000, 5000]);
        reads_back(&mm.meminfo());
        reads_back(&mm.vmstat());
        for node in 0..2 {
            reads_back(&mm.node_meminfo(node));
            reads_back(&mm.node_vmstat(node));
            reads_back(&mm.numastat(node));
        }
        let zones = mm.zoneinfo();
        let (mut text, mut log) = (String::new(), Log::default());
        zones.print(&mut text);
        assert_eq!(Vec::<Zone>::parse(text.as_bytes(), &mut log), zones, "{generation}");
        assert!(log.problems().is_empty(), "{generation}: {:?}", log.problems());
    }
}

#[test]
fn sums_hold() {
    for generation in NAMES {
        let mm = busy(generation, &[9000, 5000]);
        let (meminfo, vmstat, zones) = (mm.meminfo(), mm.vmstat(), mm.zoneinfo());
        let kib = |counter| meminfo.get(counter).expect("in every meminfo");
        let pages = |counter| vmstat.get(counter).expect("in every vmstat");
        assert_eq!(kib(m::Active), kib(m::Active_anon) + kib(m::Active_file), "{generation}");
        assert_eq!(kib(m::Inactive), kib(m::Inactive_anon) + kib(m::Inactive_file), "{generation}");
        let file = kib(m::Cached) + kib(m::SwapCached) + kib(m::Buffers);
        assert_eq!(file, 4 * pages(v::nr_file_pages), "{generation}");
        assert_eq!(kib(m::MemFree), 4 * pages(v::nr_free_pages), "{generation}");
        assert_eq!(kib(m::Slab), kib(m::SReclaimable) + kib(m::SUnreclaim), "{generation}");
        assert_eq!(kib(m::CommitLimit), kib(m::SwapTotal) + kib(m::MemTotal) / 4 / 2 * 4, "{generation}");
        assert_eq!(kib(m::Committed_AS), 4 * 14_000, "{generation}");
        assert!(kib(m::SwapFree) < kib(m::SwapTotal) && pages(v::pswpout) > 0, "{generation}");
        let on_cpus: u64 = zones.iter().flat_map(|zone| &zone.pagesets).map(|set| set.count).sum();
        let lists = kib(m::Active) + kib(m::Inactive) + kib(m::Unevictable);
        let all = kib(m::MemFree) + 4 * on_cpus + lists + kib(m::Slab) + kib(m::PageTables);
        let lost = kib(m::MemTotal) - all;
        // The process has one table of each upper level, of which old kernels count none and 6.7 all.
        let counted = Generation::named(generation).expect("a generation").counted_page_tables;
        assert_eq!(lost, 4 * u64::from(3 - counted), "{generation}: every page is somewhere");
        let managed: u64 = zones.iter().filter_map(|zone| zone.marks.get(z::managed)).sum();
        if managed > 0 {
            assert_eq!(4 * managed, kib(m::MemTotal), "{generation}");
        }
        for counter in [m::MemTotal, m::MemFree, m::AnonPages, m::Mapped, m::Dirty, m::Active, m::Slab] {
            let nodes: u64 = (0..2).filter_map(|node| mm.node_meminfo(node).get(counter)).sum();
            assert_eq!(nodes, kib(counter), "{generation} {counter:?}");
        }
    }
}

/// Lines whose values the model does not know.
const UNKNOWN: [&str; 15] = [
    "DirectMap1G",
    "DirectMap2M",
    "DirectMap4k",
    "Percpu",
    "VmallocChunk",
    "VmallocTotal",
    "VmallocUsed",
    "direct_map_level2_collapses",
    "direct_map_level2_splits",
    "direct_map_level3_collapses",
    "direct_map_level3_splits",
    "nr_memmap_boot_pages",
    "pgreuse",
    "slabs_scanned",
    "workingset_nodes",
];

#[test]
fn prints_the_lines_that_kernels_print() {
    for (generation, host) in [("linux-6.1", FIXTURE_6_1), ("linux-6.12", FIXTURE_6_12)] {
        let mm = busy(generation, &[14_000]);
        let vmstat: Values<Vmstat> = parsed(section(host, "proc/vmstat"));
        let meminfo: Values<Meminfo> = parsed(section(host, "proc/meminfo"));
        let unknown = BTreeSet::from(UNKNOWN);
        let missing: Vec<_> = names(&vmstat).difference(&names(&mm.vmstat())).copied().collect();
        assert!(missing.iter().all(|name| unknown.contains(name)), "{generation}: {missing:?}");
        let more: Vec<_> = names(&mm.vmstat()).difference(&names(&vmstat)).copied().collect();
        assert!(more.is_empty(), "{generation}: {more:?}");
        let missing: Vec<_> = names(&meminfo).difference(&names(&mm.meminfo())).copied().collect();
        assert!(missing.iter().all(|name| unknown.contains(name)), "{generation}: {missing:?}");
        let more: Vec<_> = names(&mm.meminfo()).difference(&names(&meminfo)).copied().collect();
        assert!(more.is_empty(), "{generation}: {more:?}");
        let mut log = Log::default();
        let zones = Vec::<Zone>::parse(section(host, "proc/zoneinfo").as_bytes(), &mut log);
        for (zone, printed) in zones.iter().filter(|zone| zone.node == 0).zip(mm.zoneinfo()) {
            assert_eq!(zone.name, printed.name);
            assert_eq!(names(&zone.stats), names(&printed.stats), "{generation} {}", zone.name);
            assert_eq!(names(&zone.marks), names(&printed.marks), "{generation} {}", zone.name);
            assert_eq!(zone.protection.len(), printed.protection.len());
            let node = |zone: &Zone| zone.node_stats.as_ref().map(|stats| names(stats)).unwrap_or_default();
            let missing: Vec<_> = node(zone).difference(&node(&printed)).copied().collect();
            assert!(missing.iter().all(|name| unknown.contains(name)), "{generation}: {missing:?}");
        }
    }
}

/// The captured host of 6.18 is built without CONFIG_UNACCEPTED_MEMORY, which distributions set.
#[test]
fn linux_6_18_counts_what_a_host_of_6_18_counts() {
    let host: Values<Vmstat> = parsed(section(FIXTURE_6_18, "proc/vmstat"));
    for generation in ["linux-6.18", "linux-6.18+mglru"] {
        let model = busy(generation, &[14_000]).vmstat();
        let missing: Vec<_> = names(&host).difference(&names(&model)).copied().collect();
        assert!(missing.iter().all(|name| UNKNOWN.contains(name)), "{generation}: {missing:?}");
        let more: Vec<_> = names(&model).difference(&names(&host)).copied().collect();
        assert_eq!(more, ["nr_unaccepted"], "{generation}");
    }
}

/// A zone without memory has watermarks where the kernel sets some.
#[test]
fn empty_zones_are_printed_as_the_kernel_prints_them() {
    for (generation, min) in [("linux-6.1", 0), ("linux-6.12", 32)] {
        let zones = busy(generation, &[9000]).zoneinfo();
        let movable = zones.iter().find(|zone| &*zone.name == "Movable").expect("a movable zone");
        assert_eq!(movable.marks.get(z::min), Some(min));
        assert_eq!(movable.marks.get(z::managed), Some(0));
        assert!(movable.stats.is_empty() && movable.pagesets.is_empty());
    }
    let old = busy("linux-3.10", &[9000]).zoneinfo();
    assert!(old.iter().all(|zone| zone.marks.get(z::managed) > Some(0)));
}
