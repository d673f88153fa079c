//! [`Processes`]: what the kernel says of some processes, as part of a row of a run.

use std::fs;
use std::path::PathBuf;

use lotsfree_kernel_files::counters::status;
use lotsfree_kernel_files::file::cgroup::Limit;
use lotsfree_kernel_files::file::process::{ProcessLimits, Stat, StatusFile, maps};
use lotsfree_kernel_files::{File as _, Log};
use lotsfree_run::{Attached, Limits, ProcessSample};

/// Processes whose files are read again and again.
#[derive(Debug, Default)]
pub struct Processes(Vec<Known>);

#[derive(Debug)]
struct Known {
    pid: u32,
    name: String,
    directory: PathBuf,
    limits: Option<Limits>,
    attached: Vec<Attached>,
    /// `VmSize` when `maps` was read, which has a line for each mapping: it is read again when that changes.
    mapped: Option<u64>,
}

impl Processes {
    /// Adds a process, under a name that may be another than its own.
    pub fn add(&mut self, pid: u32, name: &str) {
        self.0.push(Known {
            pid,
            name: name.to_owned(),
            directory: PathBuf::from(format!("/proc/{pid}")),
            limits: None,
            attached: Vec::new(),
            mapped: None,
        });
    }

    /// Reads the files of all processes. Those that have ended are forgotten.
    pub fn sample(&mut self) -> Vec<ProcessSample> {
        let mut samples = Vec::with_capacity(self.0.len());
        self.0.retain_mut(|known| {
            let sample = known.sample();
            let there = sample.is_some();
            samples.extend(sample);
            there
        });
        samples
    }
}

impl Known {
    fn sample(&mut self) -> Option<ProcessSample> {
        let mut log = Log::default();
        let read = |file: &str| fs::read(self.directory.join(file)).ok();
        let StatusFile { values: status, capabilities, .. } = StatusFile::parse(&read("status")?, &mut log);
        // One that has ended and was not waited for has no memory.
        let size = status.get(status::VmSize)?;
        let stat = Stat::parse(&read("stat")?, &mut log);
        if self.limits.is_none() {
            self.limits = Some(limits(&ProcessLimits::parse(&read("limits")?, &mut log)));
        }
        if self.mapped != Some(size) {
            self.attached = attached(&read("maps")?);
            self.mapped = Some(size);
        }
        Some(ProcessSample {
            pid: self.pid,
            name: self.name.as_str().into(),
            status,
            capabilities,
            faults: Some([stat.minor_faults, stat.major_faults]),
            limits: self.limits.unwrap_or_default(),
            attached: self.attached.clone(),
        })
    }
}

fn limits(limits: &ProcessLimits) -> Limits {
    let soft = |limit: Option<(Limit, Limit)>| Some(limit?.0);
    Limits {
        memlock: soft(limits.locked_memory),
        address_space: soft(limits.address_space),
        data: soft(limits.data),
    }
}

/// The segments of System V among the mappings. The inode of one is its id (`ipc/shm.c:newseg`).
fn attached(text: &[u8]) -> Vec<Attached> {
    let segments = maps::mappings(text).into_iter().filter(|mapping| mapping.file.starts_with("/SYSV"));
    segments.map(|mapping| Attached { shmid: mapping.id.inode, address: mapping.start }).collect()
}
