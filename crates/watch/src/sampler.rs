//! [`Sampler`]: the kernel's counters, as a row of a run.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use lotsfree_kernel_files::counters::{Meminfo, MemoryEvents, MemoryStat, Numastat, Values, Vmstat, vmstat};
use lotsfree_kernel_files::file::cgroup::parse_memory_stat;
use lotsfree_kernel_files::file::node::parse_meminfo;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::sysv_shm::ShmSegment;
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_kernel_files::{File as _, Log};
use lotsfree_run::{NodeSample, Sample};

use crate::{WatchError, at};

/// A charge meets the limit of memory and swap together first, where that is as low as the limit of memory:
/// where the group may not swap (`mm/memcontrol.c:try_charge_memcg`).
const FAILCNT: [&str; 2] = ["memory.failcnt", "memory.memsw.failcnt"];

/// A sample has at most this many segments of System V: more than any host with databases has.
const MOST_SEGMENTS: usize = 256;

/// A file that is read again and again.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    file: File,
    text: Vec<u8>,
}

impl Watched {
    fn open(path: impl Into<PathBuf>) -> Result<Self, WatchError> {
        let path = path.into();
        let file = File::open(&path).map_err(at(&path))?;
        Ok(Watched { path, file, text: vec![0; 1 << 16] })
    }

    fn read(&mut self) -> Result<&[u8], WatchError> {
        let mut length = 0;
        loop {
            let rest = self.text.get_mut(length..).unwrap_or_default();
            match self.file.read_at(rest, length as u64) {
                Ok(0) => return Ok(self.text.get(..length).unwrap_or_default()),
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(at(&self.path)(error)),
            }
            if length == self.text.len() {
                self.text.resize(length * 2, 0);
            }
        }
    }
}

/// Reads the counters of the running kernel.
#[derive(Debug)]
pub struct Sampler {
    meminfo: Watched,
    vmstat: Watched,
    zoneinfo: Watched,
    swaps: Option<Watched>,
    segments: Option<Watched>,
    nodes: Vec<(u32, Watched, Watched)>,
    group: Option<Watched>,
    /// `memory.events` of the group, which only version 2 has.
    events: Option<Watched>,
    /// The files of [`FAILCNT`] that the group has; only version 1 has any.
    failcnt: Vec<Watched>,
    /// Whether both limits of the group are the same: charges then meet that of memory and swap together,
    /// which 6.18 does not count, so that 0 means nothing.
    is_blind: bool,
}

impl Sampler {
    /// Opens the files. `group` is the directory of a control group whose counters are read as well.
    ///
    /// # Errors
    /// Names the file that cannot be opened.
    pub fn new(nodes: &[u32], group: Option<&Path>) -> Result<Self, WatchError> {
        let node = |id: &u32| {
            let directory = PathBuf::from(format!("/sys/devices/system/node/node{id}"));
            Ok((*id, Watched::open(directory.join("meminfo"))?, Watched::open(directory.join("numastat"))?))
        };
        Ok(Sampler {
            meminfo: Watched::open("/proc/meminfo")?,
            vmstat: Watched::open("/proc/vmstat")?,
            zoneinfo: Watched::open("/proc/zoneinfo")?,
            // A kernel without CONFIG_SWAP does not have this file.
            swaps: Watched::open("/proc/swaps").ok(),
            // One without CONFIG_SYSVIPC does not have this one.
            segments: Watched::open("/proc/sysvipc/shm").ok(),
            nodes: nodes.iter().map(node).collect::<Result<_, WatchError>>()?,
            group: group.map(|group| Watched::open(group.join("memory.stat"))).transpose()?,
            events: group.and_then(|group| Watched::open(group.join("memory.events")).ok()),
            failcnt: match group {
                Some(group) => {
                    FAILCNT.iter().filter_map(|name| Watched::open(group.join(name)).ok()).collect()
                }
                None => Vec::new(),
            },
            is_blind: group.is_some_and(|group| {
                let limit = |name: &str| std::fs::read_to_string(group.join(name)).ok();
                let together = limit("memory.memsw.limit_in_bytes");
                together.is_some() && together == limit("memory.limit_in_bytes")
            }),
        })
    }

    /// Reads the counters into a row with this time.
    ///
    /// # Errors
    /// Names the file that cannot be read.
    pub fn sample(&mut self, time: u64) -> Result<Sample, WatchError> {
        let mut log = Log::default();
        let meminfo = Values::<Meminfo>::parse(self.meminfo.read()?, |_| ());
        let vmstat = Values::<Vmstat>::parse(self.vmstat.read()?, |_| ());
        let zones = Vec::<Zone>::parse(self.zoneinfo.read()?, &mut log);
        let swaps = match &mut self.swaps {
            Some(swaps) => Vec::<SwapArea>::parse(swaps.read()?, &mut log),
            None => Vec::new(),
        };
        let segments = match &mut self.segments {
            Some(segments) => Vec::<ShmSegment>::parse(segments.read()?, &mut log),
            None => Vec::new(),
        };
        let mut nodes = Vec::new();
        for (id, meminfo, numastat) in &mut self.nodes {
            nodes.push(NodeSample {
                id: *id,
                meminfo: parse_meminfo(meminfo.read()?, &mut log),
                numastat: Values::<Numastat>::parse(numastat.read()?, |_| ()),
            });
        }
        let group: Values<MemoryStat> = match &mut self.group {
            Some(group) => parse_memory_stat(group.read()?, &mut log),
            None => Values::default(),
        };
        let events = match &mut self.events {
            Some(events) => Values::<MemoryEvents>::parse(events.read()?, |_| ()),
            None => Values::default(),
        };
        let mut failcnt = None;
        for file in &mut self.failcnt {
            let text = std::str::from_utf8(file.read()?).unwrap_or_default();
            failcnt = Some(failcnt.unwrap_or(0) + text.trim().parse::<u64>().unwrap_or(0));
        }
        let failcnt = failcnt.filter(|hits| *hits > 0 || !self.is_blind);
        let segments = segments.into_iter().take(MOST_SEGMENTS).collect();
        let processes = Vec::new();
        Ok(Sample {
            at: time,
            meminfo,
            vmstat,
            zones,
            nodes,
            swaps,
            group,
            events,
            failcnt,
            processes,
            segments,
        })
    }

    /// How many tasks the OOM killer has ended since boot.
    pub fn oom_kills(&mut self) -> u64 {
        let text = self.vmstat.read().unwrap_or_default();
        Values::<Vmstat>::parse(text, |_| ()).get(vmstat::oom_kill).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lotsfree_kernel_files::counters::meminfo;

    #[test]
    fn this_host_is_read_again_and_again() {
        let mut sampler = Sampler::new(&[0], None).unwrap();
        let first = sampler.sample(0).unwrap();
        let second = sampler.sample(1).unwrap();
        assert!(first.meminfo.get(meminfo::MemTotal) == second.meminfo.get(meminfo::MemTotal));
        assert!(second.vmstat.get(vmstat::pgfault) >= first.vmstat.get(vmstat::pgfault));
        assert_eq!(second.nodes.len(), 1);
        assert!(!second.zones.is_empty());
    }

    #[test]
    fn the_times_that_a_group_met_either_limit_are_read() {
        let group = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        put("memory.stat", "cache 8192\n");
        let hits = || Sampler::new(&[], Some(group.path())).unwrap().sample(0).unwrap().limit_hits();
        assert_eq!(hits(), None);
        put("memory.failcnt", "28\n");
        assert_eq!(hits(), Some(28));
        put("memory.memsw.failcnt", "30000\n");
        assert_eq!(hits(), Some(30_028));
        put("memory.failcnt", "0\n");
        put("memory.memsw.failcnt", "0\n");
        put("memory.limit_in_bytes", "4096\n");
        put("memory.memsw.limit_in_bytes", "8192\n");
        assert_eq!(hits(), Some(0));
        put("memory.memsw.limit_in_bytes", "4096\n");
        assert_eq!(hits(), None, "6.18 does not count what meets both limits at once");
        for version_1 in FAILCNT {
            std::fs::remove_file(group.path().join(version_1)).unwrap();
        }
        put("memory.events", "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n");
        assert_eq!(hits(), Some(7));
    }
}
