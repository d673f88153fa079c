//! [`Observation`]: what is judged, at one instant or over time.

use lotsfree_counters::{Meminfo, Values, Vmstat};
use serde::Serialize;

use crate::file::pressure::Pressure;
use crate::{Options, Snapshot, Source, collect};

/// One host, now and (where known) before.
#[derive(Debug, Serialize)]
pub struct Observation {
    /// Where it came from, for the report's head: `this host`, a path, `standard input`.
    pub label: String,
    /// The latest snapshot.
    pub now: Snapshot,
    /// The first snapshot of the period, where there were two or more full ones.
    pub before: Option<Box<Snapshot>>,
    /// The counters over time, oldest first; the last one is `now`'s. Never empty.
    pub samples: Vec<Sample>,
}

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
    /// Free pages per zone: node, zone name, pages.
    pub zone_free: Vec<(u32, Box<str>, u64)>,
}

impl Sample {
    /// The part of a snapshot that a series keeps.
    pub fn of(snapshot: &Snapshot, at: f64) -> Self {
        let free = |zone: &crate::file::zoneinfo::Zone| {
            zone.marks.get(lotsfree_counters::zoneinfo::free).map(|free| (zone.node, zone.name.clone(), free))
        };
        Sample {
            at,
            meminfo: snapshot.meminfo.clone(),
            vmstat: snapshot.vmstat.clone(),
            pressure: snapshot.pressure.clone(),
            zone_free: snapshot.zones.iter().flatten().filter_map(free).collect(),
        }
    }
}

impl Observation {
    /// A single instant: nothing about rates can be said.
    pub fn instant(label: impl Into<String>, now: Snapshot) -> Self {
        let samples = vec![Sample::of(&now, 0.0)];
        Observation { label: label.into(), now, before: None, samples }
    }

    /// Two snapshots of the same host, `seconds` apart.
    pub fn pair(label: impl Into<String>, before: Snapshot, now: Snapshot, seconds: f64) -> Self {
        let samples = vec![Sample::of(&before, 0.0), Sample::of(&now, seconds)];
        Observation { label: label.into(), now, before: Some(Box::new(before)), samples }
    }

    /// The same host at several instants, oldest first: the first and the last are kept whole, of those between only
    /// the counters. `None` without any source.
    pub fn of_sources<'s>(
        label: impl Into<String>,
        sources: impl IntoIterator<Item = (f64, &'s dyn Source)>,
        options: &Options,
    ) -> Option<Self> {
        let mut sources = sources.into_iter();
        let (start, source) = sources.next()?;
        let first = collect(source, options);
        let mut observation = Observation::instant(label, first);
        for (at, source) in sources {
            let snapshot = collect(source, options);
            observation.samples.push(Sample::of(&snapshot, at - start));
            let previous = std::mem::replace(&mut observation.now, snapshot);
            observation.before.get_or_insert_with(|| Box::new(previous));
        }
        Some(observation)
    }

    /// Seconds between the first and the last sample; 0 for a single instant.
    pub fn seconds(&self) -> f64 {
        self.samples.last().map_or(0.0, |last| last.at)
    }
}
