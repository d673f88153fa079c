//! [`Sampler`]: the kernel's counters, as a row of a run.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use lotsfree_kernel_files::counters::{Meminfo, MemoryStat, Numastat, Values, Vmstat, vmstat};
use lotsfree_kernel_files::file::cgroup::parse_memory_stat;
use lotsfree_kernel_files::file::node::parse_meminfo;
use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::file::zoneinfo::Zone;
use lotsfree_kernel_files::{File as _, Log};
use lotsfree_run::{NodeSample, Sample};

use crate::error::{LabError, at};

/// A file that is read again and again.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    file: File,
    text: Vec<u8>,
}

impl Watched {
    fn open(path: impl Into<PathBuf>) -> Result<Self, LabError> {
        let path = path.into();
        let file = File::open(&path).map_err(at(&path))?;
        Ok(Watched { path, file, text: vec![0; 1 << 16] })
    }

    fn read(&mut self) -> Result<&[u8], LabError> {
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
pub(crate) struct Sampler {
    meminfo: Watched,
    vmstat: Watched,
    zoneinfo: Watched,
    swaps: Option<Watched>,
    nodes: Vec<(u32, Watched, Watched)>,
    group: Option<Watched>,
}

impl Sampler {
    /// Opens the files. `group` is the directory of the actors' control group.
    pub(crate) fn new(nodes: &[u32], group: Option<&Path>) -> Result<Self, LabError> {
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
            nodes: nodes.iter().map(node).collect::<Result<_, LabError>>()?,
            group: group.map(|group| Watched::open(group.join("memory.stat"))).transpose()?,
        })
    }

    /// Reads the counters into a row with this time.
    pub(crate) fn sample(&mut self, time: u64) -> Result<Sample, LabError> {
        let mut log = Log::default();
        let meminfo = Values::<Meminfo>::parse(self.meminfo.read()?, |_| ());
        let vmstat = Values::<Vmstat>::parse(self.vmstat.read()?, |_| ());
        let zones = Vec::<Zone>::parse(self.zoneinfo.read()?, &mut log);
        let swaps = match &mut self.swaps {
            Some(swaps) => Vec::<SwapArea>::parse(swaps.read()?, &mut log),
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
        Ok(Sample { at: time, meminfo, vmstat, zones, nodes, swaps, group })
    }

    /// How many tasks the OOM killer has ended since boot.
    pub(crate) fn oom_kills(&mut self) -> u64 {
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
}
