//! The measures that runs have in common, with the floor of each.

use lotsfree_kernel_files::counters::{
    Counter, Family, Kind, Row, Unit as Counted, Vmstat, groups, vmstat as v,
};
use lotsfree_run::{ActorFigures, Latency, Level, RunOn, Samples, Spent, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{FEW, FEW_ENTRIES, LITTLE, POINT, SHORT, SLOW, TICK};
use super::measured::{Figures, Measure};
use crate::blame::{Blame, Cost, Parts};
use crate::measure::{Better, Unit, measures};
use crate::view::View;

/// Parts of the list of measures, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// What the measured requests were like.
    Requests,
    /// What reclaim and devices did.
    Reclaim,
    /// What each role of each actor did.
    Actors,
    /// How large lists were.
    Levels,
    /// Zones against their watermarks.
    Zones,
    /// How far counters of `/proc/vmstat` moved.
    Counters,
    /// Means of levels in `/proc/vmstat`.
    Gauges,
}

impl Group {
    /// Its heading.
    pub fn name(self) -> &'static str {
        match self {
            Group::Requests => "measured requests",
            Group::Reclaim => "reclaim and devices",
            Group::Actors => "actors",
            Group::Levels => "lists",
            Group::Zones => "zones",
            Group::Counters => "counters of /proc/vmstat",
            Group::Gauges => "levels in /proc/vmstat, mean",
        }
    }

    /// Whether it lists the kernel's counters one by one.
    pub fn is_detail(self) -> bool {
        matches!(self, Group::Counters | Group::Gauges)
    }
}

/// Every measure that some of the runs know.
pub(super) fn read(views: &[&View<'_>]) -> Vec<Figures> {
    let mut rows = main(views);
    actors(views, &mut rows);
    lost(views, &mut rows);
    levels(views, &mut rows);
    zones(views, &mut rows);
    vmstat(views, &mut rows);
    renamed(views, &mut rows);
    rows.retain(|row| row.values.iter().any(Option::is_some));
    rows.sort_by_key(|row| row.measure.group);
    rows
}

/// A measure that is none of the main ones.
fn minor(key: String, name: String, group: Group, (unit, better, floor): (Unit, Better, f64)) -> Measure {
    let (unit, better) = (unit.name().to_owned(), better.name().map(str::to_owned));
    Measure { key, name, group, unit, better, floor, main: false }
}

/// The table of `report`.
fn main(views: &[&View<'_>]) -> Vec<Figures> {
    let row = |measure: crate::measure::Measure| {
        let key = measure.key;
        let starts = |with: &[&str]| with.iter().any(|start| key.starts_with(start));
        let group = if starts(&["throughput_", "latency_", "slower_than_"]) || key == "errors" {
            Group::Requests
        } else if starts(&["active_", "inactive_"]) {
            Group::Levels
        } else {
            Group::Reclaim
        };
        let floor = match (key, measure.unit) {
            ("errors" | "oom_kills", _) => 1.0,
            ("allocstall" | "zone_reclaim_failed", _) => FEW_ENTRIES,
            (_, Unit::Share) => POINT,
            (_, Unit::PerSecond) => SLOW,
            (_, Unit::Nanoseconds) => SHORT,
            (_, Unit::Count) => FEW,
            (_, Unit::Bytes) => LITTLE,
        };
        let name = measure.name.to_owned();
        let of = minor(key.to_owned(), name, group, (measure.unit, measure.better, floor));
        Figures { measure: Measure { main: true, ..of }, values: measure.values }
    };
    measures(views).into_iter().map(row).collect()
}

/// What each role of each actor did. Where one role of one actor is all that is measured, its throughput and
/// latencies are those of the measured requests.
fn actors(views: &[&View<'_>], rows: &mut Vec<Figures>) {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for figures in views.iter().flat_map(|view| &view.figures().actors) {
        let name = (figures.actor.as_str(), figures.role.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let apart: Vec<bool> = views.iter().map(|view| tells_apart(view)).collect();
    for (actor, role) in names {
        let alone = |view: &&View<'_>| {
            let [(one, its)] = view.measured.as_slice() else { return false };
            **one == *actor && **its == *role
        };
        let is_all = views.iter().all(alone);
        let who = if role.is_empty() || role == actor { actor.to_owned() } else { format!("{actor} {role}") };
        let mut push = |key: &str, name: &str, kind: (Unit, Better, f64), values: Vec<Option<f64>>| {
            let (key, name) = (format!("actor.{actor}.{role}.{key}"), format!("{who}: {name}"));
            rows.push(Figures { measure: minor(key, name, Group::Actors, kind), values });
        };
        let of: Vec<Option<&ActorFigures>> = (views.iter())
            .map(|view| {
                view.figures().actors.iter().find(|figures| figures.actor == actor && figures.role == role)
            })
            .collect();
        for row in ACTOR_ROWS.iter().filter(|row| !(is_all && row.is_measured)) {
            let values = of.iter().map(|figures| figures.and_then(row.get)).collect();
            push(row.key, row.name, (row.unit, row.better, row.floor), values);
        }
        for row in SPENT {
            let told = |(figures, apart): (&Option<&ActorFigures>, &bool)| {
                let figures = figures.filter(|_| *apart || !row.is_part)?;
                Some((row.get)(&figures.spent) as f64)
            };
            let values: Vec<Option<f64>> = of.iter().zip(&apart).map(told).collect();
            if row.is_part && values.iter().flatten().all(|ns| *ns == 0.0) {
                continue;
            }
            let kind = (Unit::Nanoseconds, Better::Neither, TICK);
            push(&format!("spent.{}_ns", row.key), row.name, kind, values);
        }
    }
}

/// A part of an actor's time. System time includes reclaim, and the wait for a device includes that at the
/// dirty limit.
struct Time {
    key: &'static str,
    name: &'static str,
    /// It is part of another, from which agents on a kernel that is not watched cannot tell it.
    is_part: bool,
    get: fn(&Spent) -> u64,
}

const fn time(key: &'static str, name: &'static str, is_part: bool, get: fn(&Spent) -> u64) -> Time {
    Time { key, name, is_part, get }
}

const SPENT: [Time; 6] = [
    time("user", "user time", false, |spent| spent.user),
    time("system", "system time", false, |spent| spent.system + spent.reclaim),
    time("reclaim", "of it reclaim", true, |spent| spent.reclaim),
    time("waiting_for_a_device", "waiting for a device", false, |spent| spent.io + spent.throttled),
    time("throttled", "of it throttled", true, |spent| spent.throttled),
    time("waiting_for_a_CPU", "waiting for a CPU", false, |spent| spent.runnable),
];

/// Whether a run tells reclaim from other system time, and the wait at the dirty limit from other waits.
fn tells_apart(view: &View<'_>) -> bool {
    let of_any = |part: fn(&Spent) -> u64| view.figures().actors.iter().any(|one| part(&one.spent) > 0);
    view.run.facts().machine == RunOn::Model
        || of_any(|spent| spent.reclaim)
        || of_any(|spent| spent.throttled)
}

/// What memory cost each actor beside reclaim, all its roles together. Runs that do not tell have no figure.
fn lost(views: &[&View<'_>], rows: &mut Vec<Figures>) {
    type Get = fn(&Parts) -> Option<f64>;
    const PARTS: [(&str, &str, Get); 3] = [
        ("thrashing", "time in thrashing", |parts| parts.thrashing),
        ("compaction", "time in compaction", |parts| parts.compaction),
        ("swap_in", "time in swap-in", |parts| parts.swap_in),
    ];
    let costs: Vec<Vec<Cost>> = views.iter().map(|view| Blame::of(view.run, None).costs()).collect();
    let mut names: Vec<&str> = Vec::new();
    for cost in costs.iter().flatten() {
        if !names.contains(&cost.actor.as_str()) {
            names.push(&cost.actor);
        }
    }
    names.sort_unstable();
    for (actor, (key, what, get)) in names.iter().flat_map(|name| PARTS.map(|part| (*name, part))) {
        let of = |costs: &Vec<Cost>| get(&costs.iter().find(|cost| cost.actor == actor)?.parts);
        let (key, name) = (format!("actor.{actor}.lost.{key}"), format!("{actor}: {what}"));
        let measure = minor(key, name, Group::Actors, (Unit::Share, Better::Lower, POINT));
        rows.push(Figures { measure, values: costs.iter().map(of).collect() });
    }
}

/// A figure of a role of an actor.
struct ActorRow {
    key: &'static str,
    name: &'static str,
    unit: Unit,
    better: Better,
    floor: f64,
    /// One of the measured requests too, where the role is all that is measured.
    is_measured: bool,
    get: fn(&ActorFigures) -> Option<f64>,
}

const fn measured(
    key: &'static str,
    name: &'static str,
    unit: Unit,
    better: Better,
    floor: f64,
    get: fn(&ActorFigures) -> Option<f64>,
) -> ActorRow {
    ActorRow { key, name, unit, better, floor, is_measured: true, get }
}

const fn own(
    key: &'static str,
    name: &'static str,
    unit: Unit,
    better: Better,
    floor: f64,
    get: fn(&ActorFigures) -> Option<f64>,
) -> ActorRow {
    ActorRow { key, name, unit, better, floor, is_measured: false, get }
}

#[rustfmt::skip]
const ACTOR_ROWS: &[ActorRow] = {
    use Better::{Higher, Lower, Neither};
    use Unit::{Count, Nanoseconds, PerSecond, Share};
    &[
        own("operations", "requests", Count, Higher, FEW, |f| Some(f.operations as f64)),
        measured("per_second", "requests per second", PerSecond, Higher, SLOW, |f| f.per_second),
        measured("relative", "relative throughput", Share, Higher, POINT, |f| f.relative),
        measured("errors", "operations that failed", Count, Lower, 1.0, |f| Some(f.errors as f64)),
        own("latency_mean_ns", "latency mean", Nanoseconds, Lower, SHORT, |f| latency(f, |l| l.mean)),
        measured("latency_p50_ns", "latency p50", Nanoseconds, Lower, SHORT, |f| {
            latency(f, |l| l.p50 as f64)
        }),
        measured("latency_p99_ns", "latency p99", Nanoseconds, Lower, SHORT, |f| {
            latency(f, |l| l.p99 as f64)
        }),
        measured("latency_p999_ns", "latency p99.9", Nanoseconds, Lower, SHORT, |f| {
            latency(f, |l| l.p999 as f64)
        }),
        measured("latency_max_ns", "latency max", Nanoseconds, Lower, SHORT, |f| {
            latency(f, |l| l.max as f64)
        }),
        own("major_faults", "major faults", Count, Lower, FEW, |f| Some(f.major_faults as f64)),
        own("minor_faults", "minor faults", Count, Neither, FEW, |f| Some(f.minor_faults as f64)),
    ]
};

fn latency(figures: &ActorFigures, get: fn(&Latency) -> f64) -> Option<f64> {
    figures.latency.as_ref().map(get)
}

/// Levels of the summary that the table of `report` does not have: means, and how they were at the end.
fn levels(views: &[&View<'_>], rows: &mut Vec<Figures>) {
    let mut columns: Vec<&str> = Vec::new();
    for column in views.iter().flat_map(|view| view.figures().levels.keys()) {
        if !columns.contains(&column.as_str()) {
            columns.push(column);
        }
    }
    for column in columns {
        let name = column.strip_prefix("vmstat.").unwrap_or(column);
        // A control group counts its lists in bytes.
        let list = column.strip_prefix("cgroup.");
        let mut row = |what: &str, get: &dyn Fn(&Level) -> f64| {
            let unit = |view: &View<'_>| if list.is_some() { 1.0 } else { view.page() };
            let of = |view: &&View<'_>| view.figures().levels.get(column).map(|l| get(l) * unit(view));
            let (key, name) = (format!("level.{name}.{what}_bytes"), format!("{name}, {what}"));
            let measure = minor(key, name, Group::Levels, (Unit::Bytes, Better::Neither, LITTLE));
            rows.push(Figures { measure, values: views.iter().map(of).collect() });
        };
        // The table of `report` has these.
        let lists = [v::nr_active_anon, v::nr_inactive_anon, v::nr_active_file, v::nr_inactive_file];
        let named = |known: &Counter<Vmstat>| {
            known.name() == name || known.name().strip_prefix("nr_").is_some_and(|known| list == Some(known))
        };
        if !lists.iter().any(named) {
            row("mean", &|level| level.mean);
        }
        row("last", &|level| level.last as f64);
    }
}

/// Zones against their watermarks.
fn zones(views: &[&View<'_>], rows: &mut Vec<Figures>) {
    let mut names: Vec<(u32, &str)> = Vec::new();
    for zone in views.iter().flat_map(|view| &view.figures().zones) {
        if !names.contains(&(zone.node, &zone.zone)) {
            names.push((zone.node, &zone.zone));
        }
    }
    for (node, name) in names {
        type Get<'a> = &'a dyn Fn(&lotsfree_run::ZoneFigures, f64) -> f64;
        let mut row = |key: &str, what: &str, unit, better, floor, get: Get<'_>| {
            let of = |view: &&View<'_>| {
                let zone = view.figures().zones.iter().find(|zone| zone.node == node && zone.zone == name)?;
                Some(get(zone, view.page()))
            };
            let (key, name) = (format!("zone.{node}.{name}.{key}"), format!("node {node} {name}: {what}"));
            let measure = minor(key, name, Group::Zones, (unit, better, floor));
            rows.push(Figures { measure, values: views.iter().map(of).collect() });
        };
        let (bytes, share) = (Unit::Bytes, Unit::Share);
        row("low_bytes", "low mark", bytes, Better::Neither, LITTLE, &|zone, page| zone.low as f64 * page);
        row("free_mean_bytes", "free, mean", bytes, Better::Neither, LITTLE, &|zone, page| {
            zone.free.mean * page
        });
        row("least_above_low_bytes", "least above low", bytes, Better::Higher, LITTLE, &|zone, page| {
            zone.least_above_low as f64 * page
        });
        row("below_low", "time below low", share, Better::Lower, POINT, &|zone, _| zone.below_low);
    }
}

/// What the measure of a counter or level of `/proc/vmstat` is, whose figures are multiplied by the second.
fn counted(known: &Row) -> (Measure, f64) {
    let column = format!("vmstat.{}", known.name);
    let level = known.kind == Kind::gauge;
    let (unit, scale, floor) = match known.unit {
        Counted::kib => (Unit::Bytes, 1024.0, LITTLE),
        Counted::bytes => (Unit::Bytes, 1.0, LITTLE),
        Counted::us => (Unit::Nanoseconds, 1e3, TICK),
        Counted::ms => (Unit::Nanoseconds, 1e6, TICK),
        Counted::pages | Counted::count | Counted::number => (Unit::Count, 1.0, few(known.name)),
    };
    let measure = Measure {
        key: if level { format!("{column}.mean") } else { column },
        name: known.name.to_owned(),
        group: if level { Group::Gauges } else { Group::Counters },
        unit: unit.name().to_owned(),
        better: None,
        floor,
        main: false,
    };
    (measure, scale)
}

impl Measure {
    /// The measure of a counter or level of `/proc/vmstat`, by its key.
    pub(crate) fn of_counter(key: &str) -> Option<Self> {
        let name = key.strip_prefix("vmstat.")?;
        let known = Vmstat::ROWS.iter().find(|row| row.name == name.strip_suffix(".mean").unwrap_or(name))?;
        let (measure, _) = counted(known);
        (measure.key == key).then_some(measure)
    }
}

/// Every counter and level of `/proc/vmstat` that all runs have.
fn vmstat(views: &[&View<'_>], rows: &mut Vec<Figures>) {
    for known in Vmstat::ROWS {
        let column = format!("vmstat.{}", known.name);
        let level = known.kind == Kind::gauge;
        if level && views.iter().any(|view| view.figures().levels.contains_key(&column)) {
            continue;
        }
        let (measure, scale) = counted(known);
        let of = |view: &&View<'_>| {
            let samples = view.run.samples();
            let found = match level {
                true => mean(samples, &column, part(view))?,
                false => moved(samples, &column, part(view))?,
            };
            Some(found * scale)
        };
        let values: Vec<Option<f64>> = views.iter().map(of).collect();
        if values.iter().all(Option::is_some) {
            rows.push(Figures { measure, values });
        }
    }
}

/// Quantities that the kernels of the runs count under different names, so that [`vmstat`] has no counter
/// that all runs have: per zone before 4.8, as one since. Each is the sum of its counters.
fn renamed(views: &[&View<'_>], rows: &mut Vec<Figures>) {
    let column = |counter: &Counter<Vmstat>| format!("vmstat.{}", counter.name());
    let sum = |view: &View<'_>, group: &[Counter<Vmstat>]| -> Option<f64> {
        let one = |counter: &Counter<Vmstat>| moved(view.run.samples(), &column(counter), part(view));
        group.iter().filter_map(one).reduce(|sum, one| sum + one)
    };
    let counted_alike = |group: &[Counter<Vmstat>]| {
        let has = |view: &View<'_>| -> Vec<bool> {
            group.iter().map(|counter| view.run.samples().column(&column(counter)).is_some()).collect()
        };
        views.windows(2).all(|pair| has(pair[0]) == has(pair[1]))
    };
    let mut row = |name: &str, values: Vec<Option<f64>>| {
        if values.iter().all(Option::is_some) {
            let told = (Unit::Count, Better::Neither, few(name));
            let measure = minor(format!("group.{name}"), format!("{name} (sum)"), Group::Counters, told);
            rows.push(Figures { measure, values });
        }
    };
    for (name, group) in groups::RENAMED.iter().filter(|(_, group)| !counted_alike(group)) {
        row(name, views.iter().map(|view| sum(view, group)).collect());
    }
    if !counted_alike(&[groups::DIRECT_STEAL, groups::STEAL].concat()) {
        // Before 3.4 only kswapd's part has a counter of its own.
        let by_tasks = |view: &&View<'_>| {
            let rest = || Some((sum(view, groups::STEAL)? - sum(view, &[v::kswapd_steal])?).max(0.0));
            sum(view, groups::DIRECT_STEAL).or_else(rest)
        };
        row("pgsteal_direct", views.iter().map(by_tasks).collect());
    }
}

/// The part that counts, as [`lotsfree_run::Moved`] has it.
fn part(view: &View<'_>) -> Window {
    view.run.facts().measure.window.unwrap_or(Window { from: 0, to: u64::MAX })
}

/// How many are few.
fn few(counter: &str) -> f64 {
    let is = |one: &Counter<Vmstat>| one.name() == counter;
    if is(&v::oom_kill) {
        1.0
    } else if groups::ALLOCSTALL.iter().any(is) || is(&v::zone_reclaim_failed) {
        FEW_ENTRIES
    } else {
        FEW
    }
}

/// How far a counter moved in a part of a run; `None` if it is not there or was reset.
pub(crate) fn moved(samples: &Samples, column: &str, part: Window) -> Option<f64> {
    let rows = samples.rows(part);
    let column = samples.column(column)?;
    let (first, last) = (column.get(rows.start)?, column.get(rows.end.checked_sub(1)?)?);
    last.checked_sub(first).map(|moved| moved as f64)
}

/// The mean of a level in a part of a run.
fn mean(samples: &Samples, column: &str, part: Window) -> Option<f64> {
    let rows = samples.rows(part);
    let column = samples.column(column)?;
    Level::of(rows.filter_map(|row| column.get(row))).map(|level| level.mean)
}
