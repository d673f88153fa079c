//! The machine as a whole.

use lotsfree_kernel_files::counters::{Meminfo, Values, meminfo, zoneinfo};
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_kernel_files::{File as _, Log};
use lotsfree_scenario::{Provenance, Record};
use lotsfree_units::{Bytes, PageSize};
use lotsfree_workload::quantity::Size;

use super::text;

fn read_meminfo() -> Values<Meminfo> {
    Values::<Meminfo>::parse(&std::fs::read("/proc/meminfo").unwrap_or_default(), |_| ())
}

/// The provenance of a measurement on this machine, without its date.
pub(super) fn provenance() -> Provenance {
    let processors = text("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    // The kernel prints `0x0007` if all of it is switched on; bit 0 is the main switch.
    let generations = text("/sys/kernel/mm/lru_gen/enabled");
    let mglru = u32::from_str_radix(generations.trim_start_matches("0x"), 16).is_ok_and(|bits| bits & 1 != 0);
    Provenance {
        date: String::new(),
        kernel: text("/proc/sys/kernel/osrelease"),
        cpu: model.unwrap_or_default(),
        cpus: std::thread::available_parallelism()
            .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX)),
        memory: Size(Bytes::kib(read_meminfo().get(meminfo::MemTotal).unwrap_or(0))),
        accelerator: None,
        lru: if mglru { "mglru" } else { "active-inactive" }.to_owned(),
        lotsfree: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Measures the memory that the kernel keeps: pages that exist (`present` of `/proc/zoneinfo`) but that the
/// allocator does not manage. On a machine that has just booted, used memory that is neither file cache on
/// the lists of reclaim, reclaimable slab nor anonymous is added; on another, it is unknown how much of that
/// the kernel took when it booted.
pub(super) fn kernel(fresh: bool, record: &mut Record) {
    let zones = Vec::<Zone>::parse(&std::fs::read("/proc/zoneinfo").unwrap_or_default(), &mut Log::default());
    let sum = |counter| zones.iter().filter_map(|zone| zone.marks.get(counter)).sum::<u64>();
    let (present, managed) = (sum(zoneinfo::present), sum(zoneinfo::managed));
    if managed == 0 || present < managed {
        record.absent.insert("machine.kernel".to_owned(), "/proc/zoneinfo does not say".to_owned());
        return;
    }
    let mut kept = PageSize::X86.of(present - managed).0;
    if fresh {
        let memory = read_meminfo();
        let kib = |counter| memory.get(counter).unwrap_or(0);
        let used = kib(meminfo::MemTotal).saturating_sub(kib(meminfo::MemFree));
        let others = kib(meminfo::Active_file)
            + kib(meminfo::Inactive_file)
            + kib(meminfo::SReclaimable)
            + kib(meminfo::AnonPages)
            + kib(meminfo::HugePages_Total) * kib(meminfo::Hugepagesize);
        kept += used.saturating_sub(others) * 1024;
    }
    record.machine.kernel = Some(Size(Bytes(kept)));
}
