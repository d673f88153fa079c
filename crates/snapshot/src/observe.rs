//! [`Observation`]: the data that rules judge, at one instant or over time.

use lotsfree_kernel_files::counters::{Meminfo, Values, Vmstat};
use lotsfree_kernel_files::file::cpu_times::CpuTimes;
use lotsfree_kernel_files::file::pressure::Pressure;
use lotsfree_units::PageSize;
use serde::Serialize;

use crate::source::Input;
use crate::{Options, Snapshot, collect};

/// One host now and, if known, before.
#[derive(Debug, Serialize)]
pub struct Observation {
    /// Origin of the data, for the report's head: `this host`, a path, `standard input`.
    pub label: String,
    /// The latest snapshot.
    pub now: Snapshot,
    /// The first snapshot of the period, if there were two or more full ones.
    pub before: Option<Box<Snapshot>>,
    /// The counters over time, oldest first; the last sample is that of `now`. Never empty.
    pub samples: Vec<Sample>,
}

/// The label of an observation of the running host.
pub const THIS_HOST: &str = "this host";
/// The label of one that was read from standard input.
pub const STANDARD_INPUT: &str = "standard input";

/// What the label of a run of the model ends with.
pub const SIMULATED: &str = ", simulated";

/// The counters of one instant in a series.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Seconds since the first sample.
    pub at: f64,
    /// `/proc/meminfo`.
    pub meminfo: Option<Values<Meminfo>>,
    /// `/proc/vmstat`.
    pub vmstat: Option<Values<Vmstat>>,
    /// `/proc/pressure/*`.
    pub pressure: Pressure,
    /// `/proc/stat`.
    pub cpu: Option<CpuTimes>,
    /// Free pages per zone: node, zone name, pages.
    pub zone_free: Vec<(u32, Box<str>, u64)>,
}

impl Sample {
    /// The part of a snapshot that a series keeps.
    pub fn of(snapshot: &Snapshot, at: f64) -> Self {
        let free = |zone: &lotsfree_kernel_files::file::zoneinfo::Zone| {
            zone.marks
                .get(lotsfree_kernel_files::counters::zoneinfo::free)
                .map(|free| (zone.node, zone.name.clone(), free))
        };
        Sample {
            at,
            meminfo: snapshot.meminfo.clone(),
            vmstat: snapshot.vmstat.clone(),
            pressure: snapshot.pressure.clone(),
            cpu: snapshot.cpu,
            zone_free: snapshot.zones.iter().flatten().filter_map(free).collect(),
        }
    }
}

impl Observation {
    /// A single instant, from which no rates can be derived.
    pub fn instant(label: impl Into<String>, now: Snapshot) -> Self {
        let samples = vec![Sample::of(&now, 0.0)];
        Observation { label: label.into(), now, before: None, samples }
    }

    /// Two snapshots of the same host, `seconds` apart.
    pub fn pair(label: impl Into<String>, before: Snapshot, now: Snapshot, seconds: f64) -> Self {
        let samples = vec![Sample::of(&before, 0.0), Sample::of(&now, seconds)];
        Observation { label: label.into(), now, before: Some(Box::new(before)), samples }
    }

    /// Seconds between the first and the last sample; 0 for a single instant.
    pub fn seconds(&self) -> f64 {
        self.samples.last().map_or(0.0, |last| last.at)
    }
}

/// Reads an input: the first and the last instant as full snapshots, and the [`Sample`]s of those in between.
/// Each source is dropped once it is read, so that a series of archives is never in memory at once.
pub fn observe(input: Input, options: &Options) -> Observation {
    let Input { label, samples, manifest, .. } = input;
    let taken_at = manifest.as_ref().map(|manifest| manifest.taken_at).filter(|at| *at > 0.0);
    let page_size = manifest.and_then(|manifest| PageSize::new(manifest.page_size));
    let last = samples.len().saturating_sub(1);
    let start = samples.first().map_or(0.0, |(at, _)| *at);
    let mut before = None;
    let mut now = Snapshot::default();
    let mut series = Vec::with_capacity(samples.len());
    for (index, (at, source)) in samples.into_iter().enumerate() {
        let whole = index == 0 || index == last;
        let light = Options { processes: false, ..options.clone() };
        let mut snapshot = collect(&*source, if whole { options } else { &light });
        let at = at - start;
        if snapshot.taken_at.is_none() {
            snapshot.taken_at = taken_at.map(|taken_at| taken_at + at);
        }
        snapshot.host.page_size = page_size.unwrap_or(snapshot.host.page_size);
        series.push(Sample::of(&snapshot, at));
        if index == last {
            now = snapshot;
        } else if index == 0 {
            before = Some(Box::new(snapshot));
        }
    }
    if series.is_empty() {
        series.push(Sample::of(&now, 0.0));
    }
    Observation { label, now, before, samples: series }
}
