//! Fuzzes the parser of every file: it must not panic, and a value that is printed must parse to the same
//! value.

use std::fmt::Debug;

use lotsfree_kernel_files::counters::*;
use lotsfree_kernel_files::file::arcstats::Arc;
use lotsfree_kernel_files::file::block::DiskStats;
use lotsfree_kernel_files::file::buddyinfo::BuddyZone;
use lotsfree_kernel_files::file::cgroup::{self, Limit};
use lotsfree_kernel_files::file::hugepages;
use lotsfree_kernel_files::file::kernel_log::KernelLog;
use lotsfree_kernel_files::file::limits_conf::LimitsLine;
use lotsfree_kernel_files::file::lru_gen;
use lotsfree_kernel_files::file::mounts::Mount;
use lotsfree_kernel_files::file::node;
use lotsfree_kernel_files::file::os_release::OsRelease;
use lotsfree_kernel_files::file::pagetypeinfo::PageTypes;
use lotsfree_kernel_files::file::pressure::Psi;
use lotsfree_kernel_files::file::process::numa_maps::NumaLine;
use lotsfree_kernel_files::file::process::smaps_rollup::{parse_rollup, print_rollup};
use lotsfree_kernel_files::file::process::{
    NumaMaps, Process, ProcessLimits, Stat, Statm, StatusFile, parse_status,
};
use lotsfree_kernel_files::file::process::{cgroup as process_cgroup, io};
use lotsfree_kernel_files::file::slabinfo::SlabCache;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::sysctl::{self, SysctlSetting, Sysctls};
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_kernel_files::file::thp::Choice;
use lotsfree_kernel_files::file::unit::{self, Unit};
use lotsfree_kernel_files::file::unlinked::Unlinked;
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_kernel_files::{File, KernelVersion, Log};
use lotsfree_units::{Bytes, PageSize};

use crate::seeds::Fixture;

/// A parser, and the ends of the paths of the files that it reads.
struct Parser {
    paths: &'static [&'static str],
    run: fn(&[u8]),
}

macro_rules! parsers {
    ($($paths:expr => $run:expr;)*) => { &[$(Parser { paths: &$paths, run: $run }),*] };
}

/// The parsers, of which the first byte of an input chooses one. New ones go to the end, so that a corpus
/// keeps its meaning.
const PARSERS: &[Parser] = parsers! {
    ["proc/zoneinfo"] => file::<Vec<Zone>>;
    ["proc/buddyinfo"] => file::<Vec<BuddyZone>>;
    ["proc/pagetypeinfo"] => file::<PageTypes>;
    ["proc/diskstats"] => file::<Vec<(Box<str>, DiskStats)>>;
    ["proc/slabinfo"] => file::<Vec<SlabCache>>;
    ["proc/mounts"] => file::<Vec<Mount>>;
    ["proc/swaps"] => file::<Vec<SwapArea>>;
    ["proc/sysvipc/shm"] => file::<Vec<ShmSegment>>;
    ["memory.max", "memory.high", "memory.limit_in_bytes"] => file::<Limit>;
    ["dev/kmsg"] => file::<KernelLog>;
    ["etc/os-release"] => file::<OsRelease>;
    ["pressure/memory", "pressure/io", "pressure/cpu", "memory.pressure"] => file::<Psi>;
    ["/limits"] => file::<ProcessLimits>;
    ["/stat"] => file::<Stat>;
    ["/status"] => status;
    ["sysctl_-a", "sysctl.conf"] => file::<Sysctls>;
    ["enabled", "defrag", "shmem_enabled"] => file::<Choice>;
    ["/numa_maps"] => numa_maps;
    ["/smaps_rollup"] => |text| round_trip(text, parse_rollup, print_rollup);
    ["/io"] => |text| { let _ = io::parse_io(text, &mut Log::default()); };
    ["/cgroup"] => |text| drop(process_cgroup::memory_group(text));
    ["cpulist", "cpu/online", "node/online"] => |text| {
        round_trip(text, node::parse_cpulist, |cpus, out| node::print_cpulist(cpus, out));
    };
    ["distance"] => |text| round_trip(text, node::parse_distance, |all, out| node::print_distance(all, out));
    ["node0/meminfo", "node1/meminfo"] => |text| {
        round_trip(text, node::parse_meminfo, |values, out| node::print_meminfo(1, values, out));
    };
    ["lru_gen/enabled"] => |text| {
        let print = |enabled: &Option<u32>, out: &mut String| {
            if let Some(enabled) = enabled {
                lru_gen::print_enabled(*enabled, out);
            }
        };
        round_trip(text, lru_gen::parse_enabled, print);
    };
    ["memory.stat"] => |text| {
        round_trip(text, cgroup::parse_memory_stat, |values, out| values.print(out));
    };
    ["memory.events"] => |text| {
        round_trip(text, cgroup::parse_memory_events, |values, out| values.print(out));
    };
    ["memory.oom_control", "cgroup.stat"] => |text| {
        drop(cgroup::parse_oom_control(text));
        cgroup::dying_descendants(text);
    };
    ["memory.low", "memory.min"] => |text| { let _ = Limit::parse_file(text, &mut Log::default()); };
    ["etc/sysctl.conf"] => |text| {
        let parse = |text: &[u8], log: &mut Log| SysctlSetting::parse_file("f", text, log);
        round_trip(text, parse, |settings, out| SysctlSetting::print_file(settings, out));
        let settings = parse(text, &mut Log::default());
        sysctl::winner(&settings, "vm.swappiness");
    };
    ["limits.conf"] => |text| {
        let parse = |text: &[u8], log: &mut Log| LimitsLine::parse_file("f", text, log);
        round_trip(text, parse, |lines, out| LimitsLine::print_file(lines, out));
        for line in parse(text, &mut Log::default()) {
            let _ = line.kib();
        }
    };
    [".service"] => unit;
    ["hugepages-2048kB"] => names;
    ["/statm"] => file::<Statm>;
    ["zfs/arcstats"] => file::<Arc>;
    ["lotsfree/unlinked"] => file::<Unlinked>;
};

fn file<T: File + Debug>(text: &[u8]) {
    round_trip(text, T::parse, T::print);
}

/// Parses, prints and parses again. Debug forms are compared, so that a NaN equals itself.
fn round_trip<T: Debug>(text: &[u8], parse: impl Fn(&[u8], &mut Log) -> T, print: impl Fn(&T, &mut String)) {
    let mut log = Log::default();
    let read = parse(text, &mut log);
    assert!(log.problems().len() <= 8, "{} problems of one file", log.problems().len());
    let mut printed = String::new();
    print(&read, &mut printed);
    let again = parse(printed.as_bytes(), &mut Log::default());
    assert_eq!(format!("{read:?}"), format!("{again:?}"), "{printed}");
}

fn status(text: &[u8]) {
    file::<StatusFile>(text);
    parse_status(text, &mut Process::default(), &mut Log::default());
}

fn numa_maps(text: &[u8]) {
    let page = PageSize::default();
    let maps = NumaMaps::parse(text, page, Bytes::mib(2), &mut Log::default());
    assert!(maps.mappings.len() <= 32, "{} mappings", maps.mappings.len());
    // A node's number has sixteen bits.
    assert!(maps.nodes.len() <= 1 << 16, "{} nodes", maps.nodes.len());
    for line in text.split(|&b| b == b'\n') {
        let Some(read) = NumaLine::parse(line) else { continue };
        let mut printed = String::new();
        read.print(&mut printed);
        // Counts that the parser skips are not printed, so the printed forms are compared.
        let Some(again) = NumaLine::parse(printed.as_bytes()) else { panic!("{printed}") };
        let mut twice = String::new();
        again.print(&mut twice);
        assert_eq!(printed, twice);
    }
}

fn unit(text: &[u8]) {
    let parse = |text: &[u8], log: &mut Log| {
        let mut unit = Unit { name: "x.service".into(), ..Unit::default() };
        unit.add_file("f", text, log);
        unit
    };
    round_trip(text, parse, |unit, out| unit.print_file("f", out));
    for setting in parse(text, &mut Log::default()).settings {
        let _ = (unit::parse_size(&setting.value), unit::parse_rlimit(&setting.value));
    }
}

/// Fuzzes the parsers of names that contain numbers.
fn names(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let _ = hugepages::directory_size(&text);
    if let Some(size) = cgroup::hugetlb_size(&text) {
        // Names have only whole numbers of the largest unit that fits.
        assert!(cgroup::hugetlb_size(&cgroup::hugetlb_size_name(size)).is_some_and(|again| again <= size));
    }
    let _ = cgroup::hugetlb_file(&text);
    let _ = unit::parse_size(&text);
    let _ = unit::parse_rlimit(&text);
    let _ = unit::drop_in_directories(&text);
    let _ = unit::unit_paths(&text).count();
    let _ = KernelVersion::parse(&text);
}

/// Runs the parser that the first byte chooses.
pub(crate) fn run(data: &[u8]) {
    if let Some((&choice, text)) = data.split_first() {
        (PARSERS[usize::from(choice) % PARSERS.len()].run)(text);
    }
}

/// Seeds: each file of the fixture, for each parser that reads it.
pub(crate) fn seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (path, contents) in fixture.files() {
        for (choice, _) in (0u8..).zip(PARSERS).filter(|(_, p)| p.paths.iter().any(|end| path.ends_with(end)))
        {
            seeds.push([&[choice][..], contents].concat());
        }
    }
    seeds.push([&[(PARSERS.len() - 1) as u8][..], b"hugetlb.2MB.rsvd.max"].concat());
    seeds
}

fn family<F: Family>(text: &[u8]) {
    let read = Values::<F>::parse(text, |_| ());
    let mut printed = String::new();
    read.print(&mut printed);
    let again = Values::<F>::parse(printed.as_bytes(), |_| ());
    assert_eq!(format!("{read:?}"), format!("{again:?}"), "{printed}");
    // Unknown counters are kept, but their number is bounded: each takes a line of its own.
    assert!(read.unknown().len() <= text.len() / 2 + 1);
}

/// Fuzzes the counters of every family.
pub(crate) fn values(data: &[u8]) {
    let Some((&choice, text)) = data.split_first() else { return };
    let mut index = 0;
    macro_rules! visit {
        ($family:ty) => {
            if index == choice % 11 {
                family::<$family>(text);
            }
            index += 1;
        };
    }
    lotsfree_kernel_files::each_family!(visit);
    assert_eq!(index, 11, "a family was added: choose among as many");
    for line in text.split(|&b| b == b'\n') {
        for separator in [b':', b' '] {
            let _ = field(line, separator);
        }
    }
}

/// Seeds: files that hold counters, once for each family whose file they resemble.
pub(crate) fn value_seeds(fixture: &Fixture) -> Vec<Vec<u8>> {
    let choices: &[(&str, u8)] = &[
        ("proc/meminfo", 0),
        ("proc/vmstat", 1),
        ("zoneinfo", 2),
        ("numastat", 3),
        ("/status", 4),
        ("smaps_rollup", 5),
        ("memory.stat", 6),
        ("memory.events", 7),
    ];
    let mut seeds = Vec::new();
    for (path, contents) in fixture.files() {
        for (_, choice) in choices.iter().filter(|(end, _)| path.ends_with(end)) {
            seeds.push([&[*choice][..], contents].concat());
        }
    }
    seeds
}
