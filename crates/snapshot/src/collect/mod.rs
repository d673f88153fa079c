//! Knows which files there are, and builds a [`Snapshot`] from them.

mod cgroups;
mod config;
mod devices;
mod memory;
mod processes;
mod reader;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lotsfree_kernel_files::KernelVersion;
use lotsfree_kernel_files::counters::{
    Counter, Meminfo, Values, Vmstat, meminfo as m, vmstat as v, zoneinfo as z,
};
use lotsfree_kernel_files::file::kernel_log::KernelLog;
use lotsfree_kernel_files::file::node;
use lotsfree_kernel_files::file::os_release::OsRelease;
use lotsfree_units::{Bytes, PageSize};

use crate::{Snapshot, Source};
use reader::Reader;

/// Selection of the files to read, and limits on their cost.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether to read processes at all.
    pub processes: bool,
    /// Time for the files for which the kernel walks page tables (`smaps_rollup`, `numa_maps`), for the
    /// largest processes. Saved data cost no such walk and are read whole.
    pub walk_budget: Duration,
    /// Time for looking at the open files of processes, on the running machine only.
    pub files_budget: Duration,
    /// Whether to look for small processes that write much (by reading `io` of each one), so that findings
    /// about rates can name them.
    pub writers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            processes: true,
            walk_budget: Duration::from_millis(50),
            files_budget: Duration::from_millis(50),
            writers: true,
        }
    }
}

/// Reads everything that the rules need from `source`. Never fails: files that could not be read are in
/// [`Snapshot::problems`].
pub fn collect(source: &dyn Source, options: &Options) -> Snapshot {
    let mut reader = Reader::new(source);
    let mut snapshot = Snapshot::default();
    host(&mut reader, &mut snapshot);
    memory::collect(&mut reader, &mut snapshot);
    snapshot.host.page_size = page_size(source, &snapshot);
    devices::collect(&mut reader, &mut snapshot);
    if options.processes {
        processes::collect(&mut reader, &mut snapshot, options);
    }
    cgroups::collect(&mut reader, &mut snapshot);
    config::collect(&mut reader, &mut snapshot);
    snapshot.kernel_log = reader.file::<KernelLog>("dev/kmsg");
    snapshot.files_read = reader.files_read();
    snapshot.problems = reader.into_problems();
    snapshot
}

fn host(reader: &mut Reader<'_>, snapshot: &mut Snapshot) {
    let host = &mut snapshot.host;
    host.live = reader.is_live();
    if host.live {
        host.euid = Some(rustix::process::geteuid().as_raw());
        snapshot.taken_at = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|d| d.as_secs_f64());
    }
    snapshot.uptime = reader.text("proc/uptime").and_then(|text| text.split(' ').next()?.parse().ok());
    host.hostname = reader.text("proc/sys/kernel/hostname").unwrap_or_default();
    host.kernel = reader
        .text("proc/sys/kernel/osrelease")
        .and_then(|text| KernelVersion::parse(&text))
        .or_else(|| {
            // "Linux version 6.12.43+deb13-amd64 (…) …"
            let version = reader.optional_text("proc/version")?;
            KernelVersion::parse(version.split_ascii_whitespace().nth(2)?)
        })
        .unwrap_or_default();
    host.cmdline = reader.text("proc/cmdline");
    host.cpus = reader
        .bytes("sys/devices/system/cpu/online")
        .map(|(text, log)| node::parse_cpulist(text, log).len() as u32)
        .filter(|&cpus| cpus > 0);
    host.distribution = reader.file::<OsRelease>("etc/os-release").and_then(OsRelease::into_pair);
    host.container = container(reader);
}

/// The container runtime around the reader. It is only looked for on the running machine, because a saved
/// tree shows a host.
fn container(reader: &mut Reader<'_>) -> Option<String> {
    if !reader.is_live() {
        return None;
    }
    if reader.exists("run/.containerenv") {
        return Some("podman".to_owned());
    }
    if reader.exists(".dockerenv") {
        return Some("docker".to_owned());
    }
    std::env::var("container").ok().filter(|name| !name.is_empty())
}

/// The page size of the host that the data are from. On the running machine it is this machine's. Else it is
/// the size that most of the quantities shown both in KiB and in pages agree on, or that of a node and its
/// zones; else it follows from the size of its huge pages, which is page²/8.
fn page_size(source: &dyn Source, snapshot: &Snapshot) -> PageSize {
    const SIZES: [u64; 3] = [4096, 16384, 65536];
    if source.is_live() {
        return PageSize::new(rustix::param::page_size() as u64).unwrap_or_default();
    }
    // A single pair may mislead: the two files are read one after the other, and a guest that initialises its
    // memory lazily counts pages as free in one file and not in the other.
    const PAIRS: [(Counter<Meminfo>, Counter<Vmstat>); 6] = [
        (m::Mapped, v::nr_mapped),
        (m::PageTables, v::nr_page_table_pages),
        (m::Shmem, v::nr_shmem),
        (m::Unevictable, v::nr_unevictable),
        (m::SReclaimable, v::nr_slab_reclaimable),
        (m::MemFree, v::nr_free_pages),
    ];
    let vote = |meminfo: &Values<Meminfo>,
                vmstat: &Values<Vmstat>,
                (kib, pages): (Counter<Meminfo>, Counter<Vmstat>)| {
        let exact = meminfo.get(kib)?.checked_mul(1024)?.checked_div(vmstat.get(pages)?)?;
        SIZES.into_iter().find(|size| exact.abs_diff(*size) < size / 8)
    };
    let by_votes = snapshot.meminfo.as_ref().zip(snapshot.vmstat.as_ref()).and_then(|(meminfo, vmstat)| {
        let votes: Vec<u64> = PAIRS.into_iter().filter_map(|pair| vote(meminfo, vmstat, pair)).collect();
        let count = |size: u64| votes.iter().filter(|&&vote| vote == size).count();
        SIZES.into_iter().rev().max_by_key(|&size| count(size)).filter(|&size| count(size) > 0)
    });
    let by_huge_page = || {
        let size = Bytes::kib(snapshot.meminfo.as_ref()?.get(m::Hugepagesize)?);
        SIZES.into_iter().find(|&page| PageSize::new(page).is_some_and(|p| p.pmd_huge() == size))
    };
    // What a node has in KiB and in the pages of its zones.
    let by_zones = || {
        let nodes = snapshot.nodes.as_deref().unwrap_or_default().iter();
        nodes
            .filter_map(|node| {
                let total = node.meminfo.as_ref()?.get(m::MemTotal)?.checked_mul(1024)?;
                let zones = snapshot.zones.iter().flatten().filter(|zone| zone.node == node.id);
                let pages: u64 = zones.filter_map(|zone| zone.marks.get(z::managed)).sum();
                let exact = total.checked_div(pages)?;
                SIZES.into_iter().find(|size| exact.abs_diff(*size) < size / 8)
            })
            .max()
    };
    by_votes.or_else(by_zones).or_else(by_huge_page).and_then(PageSize::new).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::MemorySource;

    fn size_of(meminfo: &str, vmstat: &str) -> u64 {
        let mut source = MemorySource::default();
        source.insert("proc/meminfo", meminfo);
        source.insert("proc/vmstat", vmstat);
        collect(&source, &Options::default()).host.page_size.bytes().0
    }

    #[test]
    fn the_page_size_is_what_most_quantities_agree_on() {
        // A guest that initialises its memory lazily: MemFree is four times nr_free_pages.
        let lazy = "MemFree: 16000 kB\nMapped: 4000 kB\nPageTables: 400 kB\nHugepagesize: 2048 kB\n";
        assert_eq!(size_of(lazy, "nr_free_pages 1000\nnr_mapped 1000\nnr_page_table_pages 100\n"), 4096);
        let arm = "MemFree: 64000 kB\nMapped: 6400 kB\nHugepagesize: 524288 kB\n";
        assert_eq!(size_of(arm, "nr_free_pages 1000\nnr_mapped 100\n"), 65536);
        assert_eq!(size_of(arm, ""), 65536);
        assert_eq!(size_of("MemTotal: 1 kB\n", ""), 4096);
        // `numactl -H` and `/proc/zoneinfo` of one node.
        let mut source = MemorySource::default();
        source.insert("sys/devices/system/node/node3/meminfo", "Node 3 MemTotal: 15704064 kB\n");
        source.insert(
            "proc/zoneinfo",
            "Node 3, zone      DMA\n  pages free     2951\n        min      2821\n        managed  245388\n",
        );
        assert_eq!(collect(&source, &Options::default()).host.page_size.bytes().0, 65536);
    }
}
