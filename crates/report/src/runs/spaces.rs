//! The picture of what programs' address spaces take that is on no list: page tables, huge pages, promises.

use lotsfree_analysis::view::{Comparison, View, huge_pages, with_each};
use lotsfree_run::Samples;
use lotsfree_units::Bytes;

use super::pictures::{events, highest, machines, seconds, times, title, values};
use crate::chart::{self, Axis, Block, Layer, Panel, Pick, Picture, Points, thinned};

/// Page tables are drawn where they change by this share of memory: those of a heap are a fifth of it at
/// most.
const NOTICEABLE: f64 = 0.01;
/// So are promises where they change by this share.
const PROMISED: f64 = 0.1;

/// The parts of a pool of huge pages, from the bottom of the stack to its top: class and name.
pub(super) const POOL: [(&str, &str); 3] =
    [("q-huge-used", "in use"), ("q-huge-reserved", "reserved"), ("q-huge-idle", "idle")];

/// A line of `/proc/meminfo` that counts KiB, at one sample, in bytes.
fn bytes(samples: &Samples, row: usize, name: &str) -> Option<f64> {
    Some(samples.column(&format!("meminfo.{name}"))?.get(row)? as f64 * 1024.0)
}

/// A quantity over time.
fn over_time(view: &View<'_>, read: impl Fn(&Samples, usize) -> Option<f64>) -> Points {
    let samples = view.run.samples();
    times(samples).enumerate().map(|(row, at)| Some((at, read(samples, row)?))).collect()
}

/// The least and the most of what a line says.
fn ends(view: &View<'_>, name: &str) -> Option<(f64, f64)> {
    let points = over_time(view, |samples, row| bytes(samples, row, name));
    values(&points).map(|value| (value, value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Whether a line changes by a share of memory in some run.
fn moves(views: &[&View<'_>], name: &str, share: f64) -> bool {
    views.iter().any(|view| {
        let total = ends(view, "MemTotal").map_or(f64::INFINITY, |(_, total)| total);
        ends(view, name).is_some_and(|(least, most)| most - least >= share * total)
    })
}

/// The most that a line says in any run.
fn highest_of(views: &[&View<'_>], name: &str) -> f64 {
    highest(views.iter().filter_map(|view| Some(ends(view, name)?.1)))
}

/// Page tables, huge pages and promises over time, those of them that there is something to see of; `None`
/// if there is none.
pub(super) fn spaces(comparison: &Comparison<'_>) -> Option<Picture> {
    let views = machines(comparison);
    let has_tables = moves(&views, "PageTables", NOTICEABLE);
    let has_pool = highest_of(&views, "HugePages_Total") > 0.0;
    // Promises move with any program's memory. They matter where they are bounded, or asked for.
    let strict = views.iter().any(|view| view.is_strict());
    let of_interest = strict || views.iter().any(|view| view.asks_for_memory());
    let has_promises = of_interest && moves(&views, "Committed_AS", PROMISED);
    if !has_tables && !has_pool && !has_promises {
        return None;
    }
    let pools = |view: &View<'_>| {
        let rows = 0..view.run.samples().len();
        highest(rows.filter_map(|row| Some(huge_pages(view.run.samples(), row)?.iter().sum())))
    };
    let pool_high = highest(views.iter().map(|view| pools(view)));
    let mut blocks = Vec::new();
    for view in &views {
        let mut panels = Vec::new();
        if has_tables {
            panels.push(tables_panel(view, highest_of(&views, "PageTables")));
        }
        if has_pool {
            panels.push(pool_panel(view, pool_high));
        }
        if has_promises {
            panels.push(promises_panel(view, &views));
        }
        blocks.push(Block { title: title(&views, view), events: events(view), panels });
    }
    let mut caption = Vec::new();
    if views.iter().any(|view| view.run.samples().len() > chart::POINTS) {
        caption.push("There are more samples than points: each point is the mean of several.");
    }
    if has_promises && !strict {
        caption.push("The limit of promises is not drawn: the kernel is not held to it.");
    }
    let message = message(&views, has_tables, has_pool);
    Some(chart::over_time(&blocks, seconds(&views), "spaces", message, caption.join(" ")))
}

fn panel(name: &str, high: f64, height: f64, layers: Vec<Layer>) -> Panel {
    Panel { name: name.to_owned(), axis: Axis::Bytes, high, low: 0.0, height, mirrored: false, layers }
}

fn tables_panel(view: &View<'_>, high: f64) -> Panel {
    let points = over_time(view, |samples, row| bytes(samples, row, "PageTables"));
    let layer =
        Layer::Under { class: "q-tables".to_owned(), points: thinned(points, Pick::Mean), label: None };
    panel("page tables", high, 96.0, vec![layer])
}

fn pool_panel(view: &View<'_>, high: f64) -> Panel {
    let samples = view.run.samples();
    let last = (0..samples.len()).rev().find_map(|row| huge_pages(samples, row)).unwrap_or_default();
    let mut layers = Vec::new();
    for (index, (class, label)) in POOL.iter().enumerate() {
        let own = over_time(view, |samples, row| Some(huge_pages(samples, row)?[index]));
        if highest(values(&own)) <= 0.0 {
            continue;
        }
        let up_to = over_time(view, |samples, row| Some(huge_pages(samples, row)?[..=index].iter().sum()));
        layers.push(Layer::Area {
            class: (*class).to_owned(),
            points: thinned(up_to, Pick::Mean),
            label: (*label).to_owned(),
            down_to: last[..index].iter().sum(),
        });
    }
    layers.reverse();
    let none = if layers.is_empty() { ": none" } else { "" };
    panel(&format!("huge pages{none}"), high, 96.0, layers)
}

fn promises_panel(view: &View<'_>, views: &[&View<'_>]) -> Panel {
    let points = over_time(view, |samples, row| bytes(samples, row, "Committed_AS"));
    let mut layers = vec![Layer::Under {
        class: "q-promised".to_owned(),
        points: thinned(points, Pick::Mean),
        label: None,
    }];
    let limit =
        |view: &View<'_>| ends(view, "CommitLimit").filter(|_| view.is_strict()).map(|(_, limit)| limit);
    layers.extend(limit(view).map(|value| Layer::Level { value, label: "limit".to_owned() }));
    let high = highest_of(views, "Committed_AS").max(highest(views.iter().filter_map(|view| limit(view))));
    panel("promised", high, 96.0, layers)
}

/// The most that a line says: with the runs in which that is most and least, where they are apart.
fn peaks(views: &[&View<'_>], name: &str) -> String {
    let peaks = || views.iter().filter_map(|view| Some((ends(view, name)?.1, view.label.as_str())));
    let least = peaks().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    // Of equals, the one that stands first.
    let most = peaks().rev().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    let size = |bytes: f64| Bytes(bytes as u64);
    match least.0 < 0.95 * most.0 {
        true => with_each((size(most.0), most.1), (size(least.0), least.1)),
        false => size(most.0).to_string(),
    }
}

/// What the gravest of the panels says.
fn message(views: &[&View<'_>], has_tables: bool, has_pool: bool) -> String {
    let tables = has_tables.then(|| format!("Page tables take up to {}", peaks(views, "PageTables")));
    // Nobody uses these, and nothing else may.
    let unused = views.iter().find_map(|view| Some((view.idle_pool()?, view.label.as_str())));
    let unused = unused.map(|(idle, label)| {
        let with = if views.len() > 1 { format!(" with {label}") } else { String::new() };
        format!("{} of huge pages lie idle{with}", Bytes(idle as u64))
    });
    match (tables, unused) {
        (Some(tables), Some(unused)) => format!("{tables}; {unused}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) if has_pool => "Huge pages over time".to_owned(),
        (None, None) => format!("The kernel promises up to {}", peaks(views, "Committed_AS")),
    }
}

/// The figures of the picture: what of a run, then the least and the most.
pub(super) fn numbers(view: &View<'_>) -> Vec<Vec<String>> {
    let row = |name: &str, (least, most): (f64, f64)| {
        vec![name.to_owned(), Bytes(least as u64).to_string(), Bytes(most as u64).to_string()]
    };
    let mut rows: Vec<Vec<String>> = [("page tables", "PageTables"), ("promised", "Committed_AS")]
        .iter()
        .filter_map(|(name, line)| Some(row(name, ends(view, line)?)))
        .collect();
    for (index, (_, name)) in POOL.iter().enumerate() {
        let points = over_time(view, |samples, row| Some(huge_pages(samples, row)?[index]));
        let ends = values(&points).map(|value| (value, value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        rows.extend(
            ends.filter(|(_, most)| *most > 0.0).map(|ends| row(&format!("huge pages {name}"), ends)),
        );
    }
    rows
}
