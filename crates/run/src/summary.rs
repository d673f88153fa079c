//! [`Summary`]: the measures that matter.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use lotsfree_kernel_files::counters::{
    Counter, MemoryStat, Values, Vmstat, groups, memory_stat as g, vmstat as v,
};
use serde::{Deserialize, Serialize};

use crate::{Histogram, Run, RunOn, Sample, Samples, Spent, State, Toll, Window};

/// The measures that matter, for the whole run and for the parts that the scenario names. They follow from
/// the rows alone, so that a recorded run gives the same figures as a fresh one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The scenario's title.
    pub title: String,
    /// The variant of the scenario, if it is one.
    pub variant: Option<String>,
    /// Model or kernel.
    pub machine: RunOn,
    /// Generation or release.
    pub kernel: String,
    /// Whether the run came to its end.
    pub state: State,
    /// Tasks that the OOM killer ended.
    pub oom_kills: u64,
    /// The whole run.
    pub whole: Figures,
    /// The undisturbed part, if the scenario names one.
    pub baseline: Option<Figures>,
    /// The part that the scenario measures; the whole run if it names none.
    pub measured: Figures,
}

/// The measures of a part of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The part, in nanoseconds of the run. It is that of the actors' intervals, or of the samples if there
    /// are no intervals. Only whole intervals count, so it may be shorter than the part that was asked for.
    pub window: Window,
    /// By actor and role, in the order in which they first appear in the run.
    pub actors: Vec<ActorFigures>,
    /// Changes of counters.
    pub moved: Moved,
    /// Zones with their watermarks, in file order; those without pages are left out.
    pub zones: Vec<ZoneFigures>,
    /// Sizes of lists and pools, by column name (`vmstat.nr_active_file`), in the counter's unit.
    pub levels: BTreeMap<String, Level>,
}

/// Figures of the threads of one role of one actor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActorFigures {
    /// The actor.
    pub actor: String,
    /// The role of these threads.
    pub role: String,
    /// Requests that ended.
    pub operations: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Requests per second of the window; `None` if the window has no length.
    pub per_second: Option<f64>,
    /// Requests per second, as a share of the baseline's; `None` without a baseline in which requests ended.
    pub relative: Option<f64>,
    /// Durations of requests; `None` if none ended.
    pub latency: Option<Latency>,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// Page faults that did not read from a device.
    pub minor_faults: u64,
    /// The threads' time, by use.
    pub spent: Spent,
}

/// Durations of requests, in nanoseconds. The percentiles are at most 1/32 too high and never too low; mean
/// and maximum are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Half of the requests took no longer.
    pub p50: u64,
    /// 99 in 100 requests took no longer.
    pub p99: u64,
    /// 999 in 1000 requests took no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    /// The figures of a histogram; `None` if it is empty.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        Some(Latency {
            mean: histogram.mean()?,
            p50: histogram.quantile(0.5)?,
            p99: histogram.quantile(0.99)?,
            p999: histogram.quantile(0.999)?,
            max: histogram.max()?,
        })
    }
}

/// Changes of the kernel's monotonic counters; `None` where the kernel does not have them. Counters that some
/// kernels split or renamed are one measure here. For a run in a control group they are the group's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Pages that tasks scanned themselves (`pgscan_direct`): direct and node reclaim.
    pub direct_scan: Option<u64>,
    /// Pages that kswapd scanned.
    pub kswapd_scan: Option<u64>,
    /// Pages that tasks freed themselves.
    pub direct_steal: Option<u64>,
    /// Pages that kswapd freed.
    pub kswapd_steal: Option<u64>,
    /// Times that a task entered direct reclaim; node reclaim is not counted.
    pub allocstall: Option<u64>,
    /// Node reclaim runs that did not free enough.
    pub zone_reclaim_failed: Option<u64>,
    /// Page faults that read from a device.
    pub major_faults: Option<u64>,
    /// Page faults, major ones included.
    pub faults: Option<u64>,
    /// Pages swapped in.
    pub swap_in: Option<u64>,
    /// Pages swapped out.
    pub swap_out: Option<u64>,
    /// KiB read from block devices.
    pub page_in: Option<u64>,
    /// KiB written to block devices.
    pub page_out: Option<u64>,
    /// File pages read again soon after their eviction.
    pub refault_file: Option<u64>,
    /// Anonymous pages read back soon after their eviction.
    pub refault_anon: Option<u64>,
    /// Huge pages split.
    pub thp_split: Option<u64>,
    /// Times that the actors' control group met its limit, at each of which a task of it reclaims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_hits: Option<u64>,
}

/// A zone's free pages against its watermarks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ZoneFigures {
    /// Node.
    pub node: u32,
    /// `DMA32`, `Normal`, `Movable`.
    pub zone: String,
    /// The min watermark in pages, as the last sample has it.
    pub min: u64,
    /// The low watermark, below which kswapd is woken.
    pub low: u64,
    /// The high watermark, at which kswapd stops.
    pub high: u64,
    /// Free pages.
    pub free: Level,
    /// The least that free pages ever stood above the low mark; negative if they fell below it.
    pub least_above_low: i64,
    /// The share of samples with fewer free pages than the low mark.
    pub below_low: f64,
    /// The share of samples with fewer free pages than the min mark.
    pub below_min: f64,
}

/// A level over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// In the first sample.
    pub first: u64,
    /// In the last sample.
    pub last: u64,
    /// The smallest.
    pub min: u64,
    /// The mean of all samples.
    pub mean: f64,
    /// The largest.
    pub max: u64,
}

impl Level {
    /// The levels of a column's values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = u64>) -> Option<Self> {
        let mut values = values.into_iter();
        let first = values.next()?;
        let mut level = Level { first, last: first, min: first, max: first, mean: first as f64 };
        let (mut sum, mut count) = (first as f64, 1.0);
        for value in values {
            level.last = value;
            level.min = level.min.min(value);
            level.max = level.max.max(value);
            sum += value as f64;
            count += 1.0;
        }
        level.mean = sum / count;
        Some(level)
    }
}

/// Counters whose levels a summary has.
const LEVELS: [Counter<Vmstat>; 10] = [
    v::nr_free_pages,
    v::nr_active_anon,
    v::nr_inactive_anon,
    v::nr_active_file,
    v::nr_inactive_file,
    v::nr_unevictable,
    v::nr_dirty,
    v::nr_writeback,
    v::nr_slab_reclaimable,
    v::nr_page_table_pages,
];

/// Columns of the levels of a run in a control group, in bytes: the host's lists hold much else.
const GROUP_LEVELS: [&str; 5] = [
    "cgroup.active_anon",
    "cgroup.inactive_anon",
    "cgroup.active_file",
    "cgroup.inactive_file",
    "cgroup.unevictable",
];

impl Summary {
    /// The measures of a run.
    pub fn of(run: &Run) -> Self {
        let facts = run.facts();
        let baseline = facts.measure.baseline.map(|window| Figures::of(run, Some(window)));
        let mut whole = Figures::of(run, None);
        let mut measured = match facts.measure.window {
            Some(window) => Figures::of(run, Some(window)),
            None => whole.clone(),
        };
        if let Some(baseline) = &baseline {
            whole.relate_to(baseline);
            measured.relate_to(baseline);
        }
        let oom = |event: &&crate::Event| event.kind == crate::EventKind::OomKill;
        Summary {
            title: facts.title.clone(),
            variant: facts.variant.clone(),
            machine: facts.machine,
            kernel: facts.kernel.clone(),
            state: run.state(),
            oom_kills: run.events().iter().filter(oom).count() as u64,
            whole,
            baseline,
            measured,
        }
    }
}

impl Figures {
    /// The measures of a part of a run, or of all of it without a window.
    pub fn of(run: &Run, window: Option<Window>) -> Self {
        let asked = window.unwrap_or(Window { from: 0, to: u64::MAX });
        let (actors, counted) = actors(run, asked);
        let samples = run.samples();
        let rows = samples.rows(asked);
        let times = samples.times().get(rows.clone()).unwrap_or_default();
        let sampled = times.first().zip(times.last()).map(|(from, to)| Window { from: *from, to: *to });
        let in_group = run.facts().machine == RunOn::Cgroup;
        let names: Vec<String> = match in_group {
            true => GROUP_LEVELS.map(str::to_owned).to_vec(),
            false => LEVELS.map(|counter| format!("vmstat.{}", counter.name())).to_vec(),
        };
        let levels = names.into_iter().filter_map(|name| {
            let level = Level::of(present(samples, &name, rows.clone()))?;
            Some((name, level))
        });
        Figures {
            window: counted.or(sampled).unwrap_or_default(),
            actors,
            moved: Moved::between(samples, rows.clone(), in_group),
            // The zones and their watermarks are the host's; a group has none.
            zones: if in_group { Vec::new() } else { zones(samples, rows.clone()) },
            levels: levels.collect(),
        }
    }

    fn relate_to(&mut self, baseline: &Figures) {
        let named = baseline.actors.iter().map(|actor| ((&*actor.actor, &*actor.role), actor));
        let named: HashMap<_, _> = named.collect();
        for actor in &mut self.actors {
            let before = named.get(&(&*actor.actor, &*actor.role)).and_then(|before| before.per_second);
            actor.relative = (before.filter(|before| *before > 0.0))
                .zip(actor.per_second)
                .map(|(before, now)| now / before);
        }
    }
}

/// The values of a column in some rows, absent ones left out.
fn present<'a>(samples: &'a Samples, name: &str, rows: Range<usize>) -> impl Iterator<Item = u64> + 'a {
    let column = samples.column(name);
    rows.filter_map(move |row| column?.get(row))
}

/// Figures of the actors in the intervals that lie wholly in the window, and the time that these intervals
/// cover.
fn actors(run: &Run, window: Window) -> (Vec<ActorFigures>, Option<Window>) {
    let mut figures: Vec<(ActorFigures, Histogram)> = Vec::new();
    let mut places = HashMap::new();
    let named = run.intervals().actors();
    for (actor, role) in &named {
        let figure = ActorFigures { actor: actor.to_string(), role: role.to_string(), ..Default::default() };
        figures.push((figure, Histogram::default()));
        places.insert((&**actor, &**role), figures.len() - 1);
    }
    let mut counted: Option<Window> = None;
    for interval in run.intervals().iter() {
        if interval.from < window.from || interval.at > window.to {
            continue;
        }
        let all = counted.get_or_insert(Window { from: interval.from, to: interval.at });
        (all.from, all.to) = (all.from.min(interval.from), all.to.max(interval.at));
        let place = places.get(&(&*interval.actor, &*interval.role));
        let Some((figure, latency)) = place.and_then(|place| figures.get_mut(*place)) else { continue };
        let add = |to: &mut u64, what: u64| *to = to.saturating_add(what);
        add(&mut figure.operations, interval.operations);
        add(&mut figure.errors, interval.errors);
        add(&mut figure.major_faults, interval.major_faults);
        add(&mut figure.minor_faults, interval.minor_faults);
        figure.spent.add(&interval.spent);
        latency.merge(&interval.latency);
    }
    let seconds = counted.map(|all| all.to.saturating_sub(all.from) as f64 / 1e9).filter(|s| *s > 0.0);
    let finish = |(mut figure, latency): (ActorFigures, Histogram)| {
        figure.per_second = seconds.map(|seconds| figure.operations as f64 / seconds);
        figure.latency = Latency::of(&latency);
        figure
    };
    (figures.into_iter().map(finish).collect(), counted)
}

impl Moved {
    /// The changes between the first and the last sample of a part of a run.
    pub fn of(run: &Run, window: Window) -> Self {
        let samples = run.samples();
        Moved::between(samples, samples.rows(window), run.facts().machine == RunOn::Cgroup)
    }

    /// The changes between the first and the last of some samples.
    fn between(samples: &Samples, rows: Range<usize>, in_group: bool) -> Self {
        let ends = rows.clone().next().zip(rows.clone().next_back());
        // From one sample nothing is seen to move: its changes are unknown, not zero.
        let ends = ends.filter(|(first, last)| first < last);
        let ends = ends.and_then(|(first, last)| samples.get(first).zip(samples.get(last)));
        let Some((first, last)) = ends else { return Moved::default() };
        // A counter that falls was reset, so its change is not known.
        let moved = |read: &dyn Fn(&Sample) -> Option<u64>| read(&last)?.checked_sub(read(&first)?);
        let limit_hits = moved(&Sample::limit_hits);
        if in_group {
            return Moved {
                limit_hits,
                ..Moved::of_group(&|counter| moved(&|sample| sample.group.get(counter)))
            };
        }
        let change = |read: &dyn Fn(&Values<Vmstat>) -> Option<u64>| moved(&|sample| read(&sample.vmstat));
        let sum = |counters: &'static [Counter<Vmstat>]| change(&|vmstat| vmstat.sum(counters));
        let one = |counter| change(&|vmstat| vmstat.get(counter));
        Moved {
            direct_scan: sum(groups::DIRECT_SCAN),
            kswapd_scan: sum(groups::KSWAPD_SCAN),
            direct_steal: change(&groups::direct_steal),
            kswapd_steal: sum(groups::KSWAPD_STEAL),
            allocstall: sum(groups::ALLOCSTALL),
            zone_reclaim_failed: one(v::zone_reclaim_failed),
            major_faults: one(v::pgmajfault),
            faults: one(v::pgfault),
            swap_in: one(v::pswpin),
            swap_out: one(v::pswpout),
            page_in: one(v::pgpgin),
            page_out: one(v::pgpgout),
            refault_file: sum(groups::REFAULT_FILE),
            refault_anon: sum(groups::REFAULT_ANON),
            thp_split: sum(groups::THP_SPLIT),
            limit_hits,
        }
    }

    /// The changes that `memory.stat` tells. Version 1 does not say how much reclaim scanned and freed, and
    /// its `pgpgin` and `pgpgout` are charges; what is read and written no version says here.
    fn of_group(change: &dyn Fn(Counter<MemoryStat>) -> Option<u64>) -> Self {
        Moved {
            direct_scan: change(g::pgscan_direct),
            kswapd_scan: change(g::pgscan_kswapd),
            direct_steal: change(g::pgsteal_direct),
            kswapd_steal: change(g::pgsteal_kswapd),
            major_faults: change(g::pgmajfault),
            faults: change(g::pgfault),
            swap_in: change(g::pswpin),
            swap_out: change(g::pswpout),
            refault_file: change(g::workingset_refault_file).or_else(|| change(g::workingset_refault)),
            refault_anon: change(g::workingset_refault_anon),
            ..Moved::default()
        }
    }
}

fn zones(samples: &Samples, rows: Range<usize>) -> Vec<ZoneFigures> {
    let mut zones = Vec::new();
    for column in samples.columns() {
        let Some(prefix) = column.name().strip_suffix(".free") else { continue };
        let mut parts = prefix.split('.');
        let (Some("zoneinfo"), Some(node), Some(zone), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let Ok(node) = node.parse() else { continue };
        let mark = |name: &str| samples.column(&format!("{prefix}.{name}"));
        let (Some(min), Some(low)) = (mark("min"), mark("low")) else { continue };
        let last = |mark: Option<&crate::Column>| {
            mark.and_then(|mark| rows.clone().rev().find_map(|row| mark.get(row))).unwrap_or(0)
        };
        let rows_of =
            || rows.clone().filter_map(|row| Some((column.get(row)?, min.get(row)?, low.get(row)?)));
        let Some(free) = Level::of(rows_of().map(|(free, ..)| free)) else { continue };
        let (min, low, high) = (last(Some(min)), last(Some(low)), last(mark("high")));
        // A zone without pages is left out. Its watermarks are 0; Debian's 6.12 gives an empty Movable zone
        // 32 pages each, which it would always be short of.
        let is_empty = mark("present").is_some() && last(mark("present")) == 0;
        if high == 0 || is_empty {
            continue;
        }
        let count = rows_of().count() as f64;
        let above = |(free, _, low): (u64, u64, u64)| free.cast_signed().saturating_sub(low.cast_signed());
        zones.push(ZoneFigures {
            node,
            zone: zone.to_owned(),
            min,
            low,
            high,
            free,
            least_above_low: rows_of().map(above).min().unwrap_or(0),
            below_low: rows_of().filter(|(free, _, low)| free < low).count() as f64 / count,
            below_min: rows_of().filter(|(free, min, _)| free < min).count() as f64 / count,
        });
    }
    zones
}

impl Spent {
    /// Adds what `other` spent. Saturating.
    pub fn add(&mut self, other: &Spent) {
        let Spent { user, system, reclaim, io, throttled, runnable, idle } = other;
        let add = |to: &mut u64, what: &u64| *to = to.saturating_add(*what);
        add(&mut self.user, user);
        add(&mut self.system, system);
        add(&mut self.reclaim, reclaim);
        add(&mut self.io, io);
        add(&mut self.throttled, throttled);
        add(&mut self.runnable, runnable);
        add(&mut self.idle, idle);
    }
}

impl Toll {
    /// Adds what memory cost other threads of the same actor, and what they took. Saturating.
    pub fn add(&mut self, other: &Toll) {
        let Toll { thrashing, swap_in, compaction, refaults, allocated, returned, held } = other;
        let add = |to: &mut u64, what: &u64| *to = to.saturating_add(*what);
        add(&mut self.thrashing, thrashing);
        add(&mut self.swap_in, swap_in);
        add(&mut self.compaction, compaction);
        add(&mut self.refaults, refaults);
        add(&mut self.allocated, allocated);
        add(&mut self.returned, returned);
        add(&mut self.held, held);
    }
}
