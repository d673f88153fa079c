//! [`Gain`]: what a strategy protects and what it costs, by a run with it and one without.

use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo};
use lotsfree_run::EventKind;
use lotsfree_scenario::{Strategies, Strategy};
use schemars::JsonSchema;
use serde::Serialize;

use crate::view::{Comparison, View};

/// What a strategy protects and costs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gain {
    /// What is done.
    pub strategy: String,
    /// What has to be changed for it.
    pub needs: String,
    /// Which kernels have it.
    pub kernels: String,
    /// The variant in which it is done.
    pub variant: String,
    /// The variant that is without it.
    pub without: String,
    /// The value of the sweep; `null` without one.
    pub at: Option<String>,
    /// Throughput as a share of the undisturbed one, without the strategy.
    pub kept_without: Option<f64>,
    /// Throughput as a share of the undisturbed one, with it.
    pub kept: Option<f64>,
    /// Within this number of nanoseconds 99 in 100 requests ended, without it.
    pub p99_without: Option<u64>,
    /// Within this number of nanoseconds 99 in 100 requests ended, with it.
    pub p99: Option<u64>,
    /// The undisturbed throughput with it, as a share of that without it.
    pub undisturbed: Option<f64>,
    /// What the actor that is protected from gets done, as a share of what it gets done without it.
    pub other: Option<f64>,
    /// Bytes more that reclaim cannot have: locked memory and the pool of huge pages.
    pub bound_bytes: i64,
    /// Bytes of memory more that the machine has.
    pub memory_bytes: i64,
    /// The actors that the OOM killer ended.
    pub killed: Vec<String>,
}

/// The rows of a table, by the runs of its variants. A row of which a run is missing is left out.
pub fn gains(table: &Strategies, comparison: &Comparison<'_>) -> Vec<Gain> {
    let find = |variant: &str, point: Option<&str>| {
        let label = |view: &View<'_>| view.point.as_ref().map(|point| point.label.clone());
        comparison.views.iter().find(|view| view.label == variant && label(view).as_deref() == point)
    };
    let gain = |row: &Strategy| {
        let point = table.point(row);
        let (with, without) = (find(&row.variant, point)?, find(&row.without, point)?);
        let before = |view: &View<'_>| view.undisturbed.as_ref().and_then(|work| work.per_second());
        let other = |view: &View<'_>| done(view, table.from.as_deref()?);
        let p99 = |view: &View<'_>| view.work.latency.quantile(0.99);
        Some(Gain {
            strategy: row.name.clone(),
            needs: row.needs.clone(),
            kernels: row.kernels.clone(),
            variant: row.variant.clone(),
            without: row.without.clone(),
            at: point.map(str::to_owned),
            kept_without: without.own_relative(),
            kept: with.own_relative(),
            p99_without: p99(without),
            p99: p99(with),
            undisturbed: share(before(with), before(without)),
            other: share(other(with), other(without)),
            bound_bytes: bound(with) - bound(without),
            memory_bytes: last(with, meminfo::MemTotal) - last(without, meminfo::MemTotal),
            killed: killed(with),
        })
    };
    table.row.iter().filter_map(gain).collect()
}

fn share(with: Option<f64>, without: Option<f64>) -> Option<f64> {
    Some(with? / without.filter(|without| *without > 0.0)?)
}

/// Requests per second of an actor in the part that is measured.
fn done(view: &View<'_>, actor: &str) -> Option<f64> {
    let figures = view.figures().actors.iter().filter(|figures| figures.actor == actor);
    figures.filter_map(|figures| figures.per_second).reduce(|sum, more| sum + more)
}

/// A line of the last sample, in bytes.
fn last(view: &View<'_>, line: Counter<Meminfo>) -> i64 {
    let samples = view.run.samples();
    let sample = samples.len().checked_sub(1).and_then(|row| samples.get(row));
    sample.and_then(|sample| sample.meminfo.get(line)).map_or(0, |kib| (kib << 10).cast_signed())
}

/// The most bytes that were locked or in the pool of huge pages.
fn bound(view: &View<'_>) -> i64 {
    let samples = view.run.samples();
    let at = |row| {
        let meminfo = samples.get(row)?.meminfo;
        let value = |line| meminfo.get(line).unwrap_or(0);
        let pool = value(meminfo::HugePages_Total) * value(meminfo::Hugepagesize);
        Some((value(meminfo::Mlocked) + pool) << 10)
    };
    (0..samples.len()).filter_map(at).max().unwrap_or(0).cast_signed()
}

fn killed(view: &View<'_>) -> Vec<String> {
    let kills = view.run.events().iter().filter(|event| event.kind == EventKind::OomKill);
    let mut actors: Vec<String> = kills.filter_map(|event| event.actor.clone()).collect();
    actors.dedup();
    actors
}
