//! The pictures that are drawn over time. What each says is computed from what it shows.

use lotsfree_analysis::measure::nanoseconds;
use lotsfree_analysis::view::{Comparison, View, vmstat, with_each};
use lotsfree_kernel_files::counters::{Counter, Vmstat, groups, vmstat as v};
use lotsfree_run::{EventKind, RunOn, Samples, ZoneFigures};
use lotsfree_units::{Grouped, Percent};

use crate::chart::{
    self, Axis, Block, Layer, Panel, Pick, Picture, Points, Rates, short_count, steps, thinned,
};

/// Runs that pictures with one block per run show; the tables have all.
pub(super) const MOST_BLOCKS: usize = 12;
/// Runs that one picture has a line each for.
const MOST_LINES: usize = 4;
/// Events that one block marks.
const MOST_EVENTS: usize = 8;
/// Zones that one block shows: those that come nearest to their low mark.
const MOST_ZONES: usize = 2;

/// The runs that are drawn.
fn drawn<'a, 'r>(comparison: &'a Comparison<'r>) -> Vec<&'a View<'r>> {
    comparison.columns().take(MOST_BLOCKS).collect()
}

/// The runs of pictures of the machine's memory. Runs in a control group are left out: the counters that
/// these pictures show are the host's, whatever else it does.
pub(super) fn machines<'a, 'r>(comparison: &'a Comparison<'r>) -> Vec<&'a View<'r>> {
    let mut views = drawn(comparison);
    views.retain(|view| view.run.facts().machine != RunOn::Cgroup);
    views
}

/// The name of a block: none where there is only one.
pub(super) fn title(views: &[&View<'_>], view: &View<'_>) -> String {
    if views.len() > 1 { view.label.clone() } else { String::new() }
}

/// The longest of the runs.
pub(super) fn seconds(views: &[&View<'_>]) -> f64 {
    views.iter().map(|view| view.seconds()).fold(0.0, f64::max)
}

/// Follows the name of an event that happens again.
const FIRST: &str = " (first)";

/// What happened in a run: marks and troubles, then begin and end of actors,
/// each only once.
pub(super) fn events(view: &View<'_>) -> Vec<(f64, String)> {
    let mut marks: Vec<(f64, String)> = Vec::new();
    let mut times: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    let weighty = |kind: EventKind| {
        matches!(
            kind,
            EventKind::Mark | EventKind::OomKill | EventKind::Full | EventKind::Setting | EventKind::Note
        )
    };
    let end = view.seconds();
    for first in [true, false] {
        for event in view.run.events().iter().filter(|event| weighty(event.kind) == first) {
            let at = event.at as f64 / 1e9;
            // All actors of a scenario begin with it and end with it; that is no news.
            if !first && (at < 0.01 * end || at > 0.99 * end) {
                continue;
            }
            let name = event_name(event);
            let times = times.entry(name.clone()).or_default();
            *times += 1;
            if *times == 1 && marks.len() < MOST_EVENTS {
                marks.push((at, name));
            }
        }
    }
    for (_, name) in &mut marks {
        if times.get(name).is_some_and(|times| *times > 1) {
            *name += FIRST;
        }
    }
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    marks
}

/// An event in a few words.
pub(super) fn event_name(event: &lotsfree_run::Event) -> String {
    let who = event.actor.as_deref().unwrap_or("");
    let what = event.what.trim();
    let said = |verb: &str| {
        let named = if who.is_empty() || what.contains(who) { what.to_owned() } else { who.to_owned() };
        if what.is_empty() || named == who { format!("{who} {verb}") } else { named }
    };
    let text = match event.kind {
        EventKind::Start => said("starts"),
        EventKind::Exit => said("ends"),
        EventKind::OomKill => format!("OOM kill: {}", if who.is_empty() { what } else { who }),
        _ if who.is_empty() || what.contains(who) => what.to_owned(),
        _ => format!("{who}: {what}"),
    };
    text.trim().to_owned()
}

/// Times of the samples in seconds.
pub(super) fn times(samples: &Samples) -> impl Iterator<Item = f64> + '_ {
    samples.times().iter().map(|at| *at as f64 / 1e9)
}

/// The rates of some counters between samples, times `unit`: from, to, per second. A counter that was absent
/// or fell is not known.
pub(super) fn rates(view: &View<'_>, counters: &[Counter<Vmstat>], unit: f64) -> Rates {
    let samples = view.run.samples();
    let (at, values): (Vec<f64>, _) = (times(samples).collect(), vmstat(samples, counters));
    at.windows(2)
        .zip(values.windows(2))
        .map(|(at, values)| {
            let (from, to) = (at[0], at[1]);
            let moved = values[0].zip(values[1]).and_then(|(was, is)| is.checked_sub(was));
            (from, to, moved.filter(|_| to > from).map(|moved| moved as f64 * unit / (to - from)))
        })
        .collect()
}

fn known(rates: &[(f64, f64, Option<f64>)]) -> impl Iterator<Item = f64> + '_ {
    rates.iter().filter_map(|(_, _, rate)| *rate)
}

pub(super) fn highest(of: impl Iterator<Item = f64>) -> f64 {
    of.fold(0.0, f64::max)
}

/// The values of a column in bytes.
fn column(view: &View<'_>, name: &str) -> Points {
    let samples = view.run.samples();
    match samples.column(name) {
        Some(column) => times(samples)
            .zip(column.iter())
            .map(|(at, pages)| Some((at, pages? as f64 * view.page())))
            .collect(),
        None => Points::new(),
    }
}

pub(super) fn values(points: &Points) -> impl Iterator<Item = f64> + '_ {
    points.iter().flatten().map(|(_, value)| *value)
}

// ---- Free pages, watermarks and scans ----

/// The zones that matter: of those that hold a twentieth at least of what the largest holds back, the ones
/// that come nearest to their low mark in any run.
fn zones(views: &[&View<'_>]) -> Vec<(u32, String)> {
    let all = || views.iter().flat_map(|view| &view.summary.whole.zones);
    let largest = all().map(|zone| zone.high).max().unwrap_or(0);
    let nearness = |zone: &ZoneFigures| zone.free.min as f64 / zone.low.max(1) as f64;
    let mut near: Vec<(u32, String, f64)> = Vec::new();
    for zone in all().filter(|zone| zone.high.saturating_mul(20) >= largest) {
        match near.iter_mut().find(|(node, name, _)| *node == zone.node && *name == zone.zone) {
            Some((_, _, least)) => *least = least.min(nearness(zone)),
            None => near.push((zone.node, zone.zone.clone(), nearness(zone))),
        }
    }
    near.sort_by(|a, b| a.2.total_cmp(&b.2));
    near.truncate(MOST_ZONES);
    near.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    near.into_iter().map(|(node, zone, _)| (node, zone)).collect()
}

/// Free pages against the watermarks, and below them, as a mirror image, who scanned for pages; `None` if no
/// run has a zone.
pub(super) fn free_and_scans(comparison: &Comparison<'_>) -> Option<Picture> {
    let views = machines(comparison);
    let zones = zones(&views);
    // Far more than the marks would flatten what happens near them.
    let clip = zones.iter().filter_map(|(node, zone)| {
        let of = |view: &&View<'_>| {
            let figures = figures_of(view, *node, zone)?;
            Some((figures.high as f64 * view.page(), figures.free.max as f64 * view.page()))
        };
        views.iter().filter_map(of).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
    });
    let (high_mark, most) = clip.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
    let clipped = most > 4.0 * high_mark;
    let high = if clipped { 4.0 * high_mark } else { most.max(1.25 * high_mark) };
    let scans: Vec<[Rates; 2]> = views
        .iter()
        .map(|view| [rates(view, groups::DIRECT_SCAN, 1.0), rates(view, groups::KSWAPD_SCAN, 1.0)])
        .collect();
    let direct_most = highest(scans.iter().flat_map(|[direct, _]| known(direct)));
    let kswapd_most = highest(scans.iter().flat_map(|[_, kswapd]| known(kswapd)));
    let mut blocks = Vec::new();
    for (view, scans) in views.iter().zip(&scans) {
        let mut panels: Vec<Panel> =
            zones.iter().map(|(node, zone)| free_panel(view, *node, zone, high)).collect();
        if direct_most.max(kswapd_most) > 0.0 {
            panels.push(scan_panel(scans, chart::round_high(direct_most.max(kswapd_most))));
        }
        blocks.push(Block { title: title(&views, view), events: events(view), panels });
    }
    let mut caption = Vec::new();
    if clipped {
        caption.push(format!(
            "Where the line leaves the picture at its top, more is free: up to {}.",
            lotsfree_units::Bytes(most as u64)
        ));
    }
    if views.iter().any(|view| view.run.samples().len() > chart::POINTS) {
        caption.push(
            "There are more samples than points: free memory is the least of several, scans the most."
                .to_owned(),
        );
    }
    let message = scan_message(&views, &scans, &zones, (direct_most, kswapd_most));
    Some(chart::over_time(&blocks, seconds(&views), "free", message, caption.join(" ")))
}

fn figures_of<'v>(view: &'v View<'_>, node: u32, zone: &str) -> Option<&'v ZoneFigures> {
    view.summary.whole.zones.iter().find(|z| z.node == node && z.zone == zone)
}

/// Free pages of a zone against its watermarks.
fn free_panel(view: &View<'_>, node: u32, zone: &str, high: f64) -> Panel {
    let free = column(view, &format!("zoneinfo.{node}.{zone}.free"));
    let mut layers = vec![Layer::Under {
        class: "q-free".to_owned(),
        points: thinned(free, Pick::Least),
        label: Some("free".to_owned()),
    }];
    if let Some(marks) = figures_of(view, node, zone) {
        for (label, pages) in [("high", marks.high), ("low", marks.low), ("min", marks.min)] {
            layers.push(Layer::Level { value: pages as f64 * view.page(), label: label.to_owned() });
        }
    }
    let name = format!("free in zone {zone} of node {node}");
    Panel { name, axis: Axis::Bytes, high, low: 0.0, height: 116.0, mirrored: false, layers }
}

/// Pages that tasks and kswapd scanned, drawn downwards; the larger is behind the smaller.
fn scan_panel([direct, kswapd]: &[Rates; 2], high: f64) -> Panel {
    let under = |class: &str, rates: &Rates, label: &str| Layer::Under {
        class: class.to_owned(),
        points: steps(rates),
        label: Some(label.to_owned()),
    };
    let mut layers = vec![under("q-kswapd", kswapd, "by kswapd"), under("q-direct", direct, "by tasks")];
    if highest(known(direct)) > highest(known(kswapd)) {
        layers.reverse();
    }
    layers.retain(|layer| match layer {
        Layer::Under { points, .. } => values(points).any(|rate| rate > 0.0),
        _ => true,
    });
    let none = if layers.is_empty() { ": none" } else { ", down" };
    let name = format!("pages scanned/s{none}");
    Panel { name, axis: Axis::Count, high, low: 0.0, height: 84.0, mirrored: true, layers }
}

/// Who scanned, and whether free pages stood near the marks meanwhile.
fn scan_message(
    views: &[&View<'_>],
    scans: &[[Rates; 2]],
    zones: &[(u32, String)],
    (direct_most, kswapd_most): (f64, f64),
) -> String {
    if direct_most.max(kswapd_most) == 0.0 {
        let counted = scans.iter().flatten().any(|rates| known(rates).next().is_some());
        return if counted {
            "Nobody had to look for free pages"
        } else {
            "Free pages against the watermarks"
        }
        .to_owned();
    }
    // Of the intervals in which pages were scanned, those that begin or end below a high mark.
    let (mut near, mut all) = (0_u32, 0_u32);
    for (view, [direct, kswapd]) in views.iter().zip(scans) {
        let samples = view.run.samples();
        let below: Vec<bool> = (0..samples.len())
            .map(|row| {
                zones.iter().any(|(node, zone)| {
                    let get =
                        |what: &str| samples.column(&format!("zoneinfo.{node}.{zone}.{what}"))?.get(row);
                    get("free").zip(get("high")).is_some_and(|(free, high)| free <= high)
                })
            })
            .collect();
        for (index, (direct, kswapd)) in direct.iter().zip(kswapd).enumerate() {
            if direct.2.unwrap_or(0.0) + kswapd.2.unwrap_or(0.0) > 0.0 {
                all += 1;
                let ends = [below.get(index), below.get(index + 1)];
                near += u32::from(ends.into_iter().flatten().any(|below| *below));
            }
        }
    }
    // Where some runs leave it to kswapd and others do not, that is the message.
    let scanned = |rates: &[(f64, f64, Option<f64>)]| known(rates).map(|rate| rate.max(0.0)).sum::<f64>();
    let mut by_tasks = Vec::new();
    let mut by_kswapd = Vec::new();
    for (view, [direct, kswapd]) in views.iter().zip(scans) {
        match (scanned(direct), scanned(kswapd)) {
            (direct, kswapd) if direct > kswapd => by_tasks.push(view.label.as_str()),
            (direct, kswapd) if kswapd > 0.0 && direct < 0.1 * kswapd => by_kswapd.push(view.label.as_str()),
            _ => {}
        }
    }
    let who = match (by_tasks.as_slice(), by_kswapd.as_slice()) {
        ([task, ..], [kswapd, ..]) => {
            format!("Tasks look for pages themselves with {task}, kswapd does with {kswapd},")
        }
        _ if kswapd_most <= 0.0 => "Tasks look for pages themselves".to_owned(),
        _ if direct_most <= 0.0 => "kswapd looks for pages".to_owned(),
        _ => "Tasks and kswapd look for pages".to_owned(),
    };
    match f64::from(near) / f64::from(all.max(1)) {
        share if share >= 0.8 => format!("{who} where free pages meet the watermarks"),
        share if share <= 0.2 => {
            format!("{who} although free pages are above the watermarks in most samples")
        }
        _ => format!(
            "{}: up to {} pages a second",
            who.trim_end_matches(','),
            short_count(direct_most.max(kswapd_most))
        ),
    }
}

// ---- Lists ----

/// The lists, from the bottom of the stack to its top: counter, class, name.
pub(super) const LISTS: [(&str, &str, &str); 5] = [
    ("vmstat.nr_active_anon", "q-active-anon", "active anon"),
    ("vmstat.nr_inactive_anon", "q-inactive-anon", "inactive anon"),
    ("vmstat.nr_active_file", "q-active-file", "active file"),
    ("vmstat.nr_inactive_file", "q-inactive-file", "inactive file"),
    ("vmstat.nr_free_pages", "q-free", "free"),
];

/// Sizes of the lists over time, stacked; `None` if no run counts them.
pub(super) fn lists(comparison: &Comparison<'_>) -> Option<Picture> {
    let views = machines(comparison);
    let mut highest_stack = 0.0_f64;
    let mut blocks = Vec::new();
    for view in &views {
        let lists: Vec<Points> =
            LISTS.iter().map(|(name, ..)| thinned(column(view, name), Pick::Mean)).collect();
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        let value =
            |list: usize, i: usize| lists.get(list).and_then(|points| points.get(i)).copied().flatten();
        let mut layers = Vec::new();
        for (index, (_, class, label)) in LISTS.iter().enumerate() {
            if lists[index].iter().flatten().next().is_none() {
                continue;
            }
            let sum = |i: usize, lists: std::ops::RangeInclusive<usize>| {
                let at = lists.clone().find_map(|list| value(list, i))?.0;
                Some((at, lists.filter_map(|list| value(list, i)).map(|(_, bytes)| bytes).sum::<f64>()))
            };
            let points: Points = (0..longest).map(|i| sum(i, 0..=index)).collect();
            highest_stack = highest_stack.max(highest(values(&points)));
            let last = points.iter().rposition(Option::is_some);
            let own = last.and_then(|i| value(index, i)).map_or(0.0, |(_, bytes)| bytes);
            let down_to = last.and_then(|i| points[i]).map_or(0.0, |(_, top)| top - own);
            layers.push(Layer::Area {
                class: (*class).to_owned(),
                points,
                label: (*label).to_owned(),
                down_to,
            });
        }
        layers.reverse();
        let panel = Panel {
            name: "memory on each list".to_owned(),
            axis: Axis::Bytes,
            high: 0.0,
            low: 0.0,
            height: 190.0,
            mirrored: false,
            layers,
        };
        blocks.push(Block { title: title(&views, view), events: events(view), panels: vec![panel] });
    }
    if highest_stack <= 0.0 {
        return None;
    }
    blocks.iter_mut().flat_map(|block| &mut block.panels).for_each(|panel| panel.high = highest_stack);
    let caption = if views.iter().any(|view| view.run.samples().len() > chart::POINTS) {
        "There are more samples than points: each point is the mean of several.".to_owned()
    } else {
        String::new()
    };
    Some(chart::over_time(&blocks, seconds(&views), "lists", list_message(&views), caption))
}

/// `Active anonymous pages` for `active anon`.
fn pages_of(label: &str) -> String {
    let mut text = format!("{} pages", label.replace("anon", "anonymous"));
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    text
}

/// The list in which the runs differ most, or that has changed most in the only run.
fn list_message(views: &[&View<'_>]) -> String {
    let lists = &LISTS[..4];
    let bytes = |pages: f64, view: &View<'_>| lotsfree_units::Bytes((pages.max(0.0) * view.page()) as u64);
    if let [view] = views {
        let change = |name: &str| {
            let level = view.summary.whole.levels.get(name)?;
            Some((level.last.abs_diff(level.first), level.first as f64, level.last as f64))
        };
        let most =
            lists.iter().filter_map(|(name, _, label)| Some((change(name)?, label))).max_by_key(|(c, _)| c.0);
        return match most {
            Some(((moved, first, last), label)) if moved > 0 => {
                let verb = if last > first { "grow" } else { "shrink" };
                let (from, to) = (bytes(first, view), bytes(last, view));
                format!("{} {verb} from {from} to {to}", pages_of(label))
            }
            _ => "The lists keep their sizes".to_owned(),
        };
    }
    let of = |name: &str| {
        let mean = |view: &&View<'_>| {
            Some((view.figures().levels.get(name)?.mean * view.page(), view.label.clone()))
        };
        let means: Vec<(f64, String)> = views.iter().filter_map(mean).collect();
        let least = means.iter().min_by(|a, b| a.0.total_cmp(&b.0))?.clone();
        let most = means.iter().max_by(|a, b| a.0.total_cmp(&b.0))?.clone();
        Some((least, most))
    };
    let spread = lists.iter().filter_map(|(name, _, label)| Some((of(name)?, label)));
    let widest = spread.max_by(|a, b| (a.0.1.0 - a.0.0.0).total_cmp(&(b.0.1.0 - b.0.0.0)));
    match widest {
        Some(((least, most), label)) if most.0 > least.0 * 1.02 => {
            let bytes = |bytes: f64| lotsfree_units::Bytes(bytes as u64);
            let pair = with_each((bytes(least.0), &least.1), (bytes(most.0), &most.1));
            format!("{}: {pair}", pages_of(label))
        }
        _ => "The lists are as large in every run".to_owned(),
    }
}

// ---- Throughput ----

/// The class of a run's line where runs share a picture.
pub(super) fn line_class(index: usize) -> String {
    format!("v-{}", index % crate::palette::RUNS)
}

/// The throughput of a run from interval to interval, relative to its undisturbed part or else per second.
fn pace(view: &View<'_>, relative: bool) -> Points {
    let before = view.undisturbed.as_ref().and_then(lotsfree_analysis::view::Work::per_second);
    let unit = if relative { before.filter(|before| *before > 0.0) } else { Some(1.0) };
    let Some(unit) = unit else { return Points::new() };
    let middle = |from: f64, to: f64| f64::midpoint(from, to);
    let points = view.pace.iter().map(|pace| Some((middle(pace.from, pace.to), pace.per_second / unit)));
    thinned(points.collect(), Pick::Mean)
}

/// One line per run in one picture, or a block per run if there are many.
struct Lines {
    name: String,
    axis: Axis,
    low: f64,
    high: f64,
    levels: Vec<(f64, String)>,
    lines: Vec<Points>,
}

impl Lines {
    fn draw(self, views: &[&View<'_>], id: &str, message: String, caption: String) -> Picture {
        let panel = |layers: Vec<Layer>, height: f64| {
            let levels =
                self.levels.iter().map(|(value, label)| Layer::Level { value: *value, label: label.clone() });
            Panel {
                name: self.name.clone(),
                axis: self.axis,
                low: self.low,
                high: self.high,
                height,
                mirrored: false,
                layers: levels.chain(layers).collect(),
            }
        };
        let line = |index: usize, points: &Points, label: Option<String>| Layer::Line {
            class: line_class(index),
            points: points.clone(),
            label,
        };
        let blocks = if views.len() <= MOST_LINES {
            let layers =
                views.iter().zip(&self.lines).enumerate().map(|(i, (view, points))| {
                    line(i, points, (views.len() > 1).then(|| view.label.clone()))
                });
            // An event is marked if all runs have it at the same time.
            let mut marks = views.first().map(|view| events(view)).unwrap_or_default();
            let plain = |name: &str| name.trim_end_matches(FIRST).to_owned();
            let near = |(at, name): &(f64, String), view: &View<'_>| {
                events(view).iter().any(|(other, same)| {
                    plain(same) == plain(name) && (at - other).abs() <= 0.02 * seconds(views)
                })
            };
            marks.retain(|mark| views.iter().all(|view| near(mark, view)));
            vec![Block { title: String::new(), events: marks, panels: vec![panel(layers.collect(), 230.0)] }]
        } else {
            let blocks = views.iter().zip(&self.lines).map(|(view, points)| Block {
                title: view.label.clone(),
                events: events(view),
                panels: vec![panel(vec![line(0, points, None)], 96.0)],
            });
            blocks.collect()
        };
        chart::over_time(&blocks, seconds(views), id, message, caption)
    }
}

/// Throughput over time; `None` if no request ended in any run.
pub(super) fn throughput(comparison: &Comparison<'_>) -> Option<Picture> {
    let views = drawn(comparison);
    let relative = views.iter().any(|view| view.undisturbed.is_some());
    let lines: Vec<Points> = views.iter().map(|view| pace(view, relative)).collect();
    let most = highest(lines.iter().flat_map(values));
    if most <= 0.0 {
        return None;
    }
    let message = if relative { relative_message(&views) } else { rate_message(&views) };
    let without: Vec<&str> = views
        .iter()
        .filter(|view| relative && view.undisturbed.is_none())
        .map(|view| view.label.as_str())
        .collect();
    let mut caption = String::new();
    if !without.is_empty() {
        caption = format!("Without a line, as they have no undisturbed part: {}.", without.join(", "));
    }
    let lines = if relative {
        Lines {
            name: "throughput, of the undisturbed".to_owned(),
            axis: Axis::Share,
            low: 0.0,
            high: most.max(1.0) * 1.05,
            levels: vec![(1.0, "undisturbed".to_owned())],
            lines,
        }
    } else {
        let name = "requests per second".to_owned();
        Lines { name, axis: Axis::Count, low: 0.0, high: chart::round_high(most), levels: Vec::new(), lines }
    };
    Some(lines.draw(&views, "throughput", message, caption))
}

fn extremes<'v>(
    views: &[&'v View<'_>],
    read: impl Fn(&View<'_>) -> Option<f64>,
) -> Option<[(f64, &'v str); 2]> {
    let mut all: Vec<(f64, &str)> = views
        .iter()
        .filter_map(|view| Some((read(view).filter(|n| n.is_finite())?, view.label.as_str())))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some([*all.first()?, *all.last()?])
}

fn relative_message(views: &[&View<'_>]) -> String {
    let Some([least, most]) = extremes(views, |view| view.relative()) else {
        return "Throughput over time".to_owned();
    };
    match views.len() {
        1 if least.0 >= 0.97 => format!("Throughput stays at {} of the undisturbed", Percent(least.0)),
        1 => format!("Throughput falls to {} of the undisturbed", Percent(least.0)),
        _ if most.0 - least.0 < 0.03 => {
            format!(
                "Throughput is {} of the undisturbed in every run",
                Percent(f64::midpoint(least.0, most.0))
            )
        }
        _ => {
            let worst = format!("{} of the undisturbed", Percent(least.0));
            format!("Throughput is {}", with_each((worst, least.1), (Percent(most.0), most.1)))
        }
    }
}

fn rate_message(views: &[&View<'_>]) -> String {
    let Some([least, most]) = extremes(views, |view| view.work.per_second()) else {
        return "Throughput over time".to_owned();
    };
    let rate = |rate: f64| Grouped(rate.round() as u64);
    if views.len() == 1 || most.0 - least.0 <= 0.03 * most.0 {
        return format!("{} requests a second", rate(most.0));
    }
    with_each((format!("{} requests a second", rate(least.0)), least.1), (rate(most.0), most.1))
}

/// The 99th percentile over time; `None` if no request ended.
pub(super) fn p99(comparison: &Comparison<'_>) -> Option<Picture> {
    let views = drawn(comparison);
    let of = |view: &&View<'_>| {
        let points = view.pace.iter().map(|pace| Some((f64::midpoint(pace.from, pace.to), pace.p99?)));
        thinned(points.collect(), Pick::Most)
    };
    let lines: Vec<Points> = views.iter().map(of).collect();
    let (low, high) = chart::decades_around(lines.iter().flat_map(values))?;
    // What is measured counts; the start of a run seldom is.
    let worst = |points: &Points, view: &View<'_>| {
        let window = view.figures().window;
        let (from, to) = (window.from as f64 / 1e9, window.to as f64 / 1e9);
        let measured = points.iter().flatten().filter(|(at, _)| (from..=to).contains(at));
        measured.map(|(_, value)| *value).reduce(f64::max)
    };
    let peaks: Vec<(f64, &str)> = lines
        .iter()
        .zip(&views)
        .filter_map(|(line, view)| Some((worst(line, view)?, view.label.as_str())))
        .collect();
    let least = peaks.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let most = peaks.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let message = match least.zip(most) {
        Some((least, most)) if peaks.len() > 1 && most.0 >= 1.1 * least.0 => {
            let pair = with_each((nanoseconds(most.0), most.1), (nanoseconds(least.0), least.1));
            format!("The slowest 1 % of requests takes up to {pair}")
        }
        Some((_, most)) => format!("The slowest 1 % of requests takes up to {}", nanoseconds(most.0)),
        None => "Latency over time".to_owned(),
    };
    let name = "p99 latency of each interval".to_owned();
    let lines = Lines { name, axis: Axis::LogTime, low, high, levels: Vec::new(), lines };
    let caption = "One in a hundred requests of an interval takes longer. The axis is logarithmic.";
    Some(lines.draw(&views, "p99", message, caption.to_owned()))
}

// ---- Faults, reads and swapping ----

/// What is read in and swapped: class, name, counters, and whether they count pages, KiB or events.
pub(super) const TRAFFIC: [(&str, &str, Counter<Vmstat>, Counted); 4] = [
    ("q-major", "major faults per second", v::pgmajfault, Counted::Events),
    ("q-swap-in", "swapped in per second", v::pswpin, Counted::Pages),
    ("q-swap-out", "swapped out per second", v::pswpout, Counted::Pages),
    ("q-page-in", "read from devices per second", v::pgpgin, Counted::Kib),
];

/// What one step of a counter stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Events,
    Pages,
    Kib,
}

impl Counted {
    /// Bytes per step, or 1.
    pub(super) fn unit(self, view: &View<'_>) -> f64 {
        match self {
            Counted::Events => 1.0,
            Counted::Pages => view.page(),
            Counted::Kib => 1024.0,
        }
    }
}

/// Major faults, swapping and reads over time; `None` if none of them ever happened.
pub(super) fn traffic(comparison: &Comparison<'_>) -> Option<Picture> {
    let views = machines(comparison);
    let all = |counter: Counter<Vmstat>, counted: Counted| -> Vec<Rates> {
        views.iter().map(|view| rates(view, &[counter], counted.unit(view))).collect()
    };
    let mut blocks: Vec<Block> = views
        .iter()
        .map(|view| Block { title: title(&views, view), events: events(view), panels: Vec::new() })
        .collect();
    let mut still = Vec::new();
    let mut swap_high = 0.0_f64;
    for (_, _, counter, counted) in TRAFFIC.iter().filter(|(.., counted)| *counted == Counted::Pages) {
        swap_high = swap_high.max(highest(all(*counter, *counted).iter().flat_map(|rates| known(rates))));
    }
    for (class, name, counter, counted) in TRAFFIC {
        let each = all(counter, counted);
        let most = highest(each.iter().flat_map(|rates| known(rates)));
        if most <= 0.0 {
            still.push(name.trim_end_matches(" per second"));
            continue;
        }
        let (axis, high) = match counted {
            Counted::Events => (Axis::Count, chart::round_high(most)),
            // In and out have one scale.
            Counted::Pages => (Axis::Bytes, swap_high),
            Counted::Kib => (Axis::Bytes, most),
        };
        for (block, rates) in blocks.iter_mut().zip(&each) {
            let layer = Layer::Under { class: class.to_owned(), points: steps(rates), label: None };
            let name = name.to_owned();
            block.panels.push(Panel {
                name,
                axis,
                high,
                low: 0.0,
                height: 58.0,
                mirrored: false,
                layers: vec![layer],
            });
        }
    }
    if blocks.iter().all(|block| block.panels.is_empty()) {
        return None;
    }
    let mut caption = Vec::new();
    if !still.is_empty() {
        caption.push(format!("None in any run, or not counted: {}.", still.join(", ")));
    }
    if views.iter().any(|view| view.run.samples().len() > chart::POINTS / 2) {
        caption
            .push("There are more samples than points: each step is the highest rate of several.".to_owned());
    }
    Some(chart::over_time(&blocks, seconds(&views), "traffic", traffic_message(&views), caption.join(" ")))
}

fn traffic_message(views: &[&View<'_>]) -> String {
    let faults = |view: &View<'_>| view.figures().moved.major_faults.map(|n| n as f64);
    let number = |n: f64| Grouped(n as u64);
    match extremes(views, faults) {
        Some([least, most]) if most.0 > 0.0 => match views.len() {
            1 => format!("{} page faults had to read from a device", number(most.0)),
            _ if most.0 - least.0 <= 0.1 * most.0 => {
                format!("About {} page faults had to read from a device in every run", number(most.0))
            }
            _ => {
                let worst = format!("{} page faults had to read from a device", number(most.0));
                with_each((worst, most.1), (number(least.0), least.1))
            }
        },
        Some(_) => "No page fault had to read from a device".to_owned(),
        None => "What was read and swapped".to_owned(),
    }
}
