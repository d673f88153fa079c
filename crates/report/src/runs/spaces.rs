//! The picture of what programs' address spaces take that is on no list: page tables, huge pages, promises.

use lotsfree_analysis::view::{Comparison, HugePool, View, with_each};
use lotsfree_units::Bytes;

use super::pictures::{events, highest, machines, seconds, times, title, values};
use crate::chart::{self, Axis, Block, Layer, Panel, Pick, Picture, Points, thinned};

/// Page tables are drawn where they change by this share of memory. Those of a heap that fills memory are
/// 0.2 % of it, which is not worth a panel.
const NOTICEABLE: f64 = 0.01;
/// Promises are drawn where they change by this share.
const PROMISED: f64 = 0.1;
/// Height of a panel.
const HEIGHT: f64 = 96.0;

/// Reads a part of a pool.
type Part = fn(&HugePool) -> f64;

/// The parts of a pool of huge pages, from the bottom of the stack to its top: class, name, and which.
const POOL: [(&str, &str, Part); 3] = [
    ("q-huge-used", "in use", |pool| pool.used),
    ("q-huge-reserved", "reserved", |pool| pool.reserved),
    ("q-huge-idle", "idle", |pool| pool.idle),
];

/// What is drawn of a run, in bytes over time.
struct Spaces {
    label: String,
    memory: f64,
    tables: Points,
    promised: Points,
    /// The commit limit, if the kernel is held to it.
    limit: Option<f64>,
    /// Each part of the pool.
    pool: [Points; 3],
    idle_pool: Option<f64>,
}

impl Spaces {
    fn of(view: &View<'_>) -> Self {
        let samples = view.run.samples();
        let line = |name: &str| -> Points {
            let Some(column) = samples.column(&format!("meminfo.{name}")) else { return Points::new() };
            let point = |(at, kib): (f64, Option<u64>)| Some((at, kib? as f64 * 1024.0));
            times(samples).zip(column.iter()).map(point).collect()
        };
        let most = |name: &str| highest(values(&line(name)));
        let pool = view.huge_pool();
        let part = |read: Part| -> Points {
            times(samples).zip(&pool).map(|(at, pool)| Some((at, read(pool.as_ref()?)))).collect()
        };
        Spaces {
            label: view.label.clone(),
            memory: most("MemTotal"),
            tables: line("PageTables"),
            promised: line("Committed_AS"),
            limit: view.is_strict().then(|| most("CommitLimit")),
            pool: POOL.map(|(_, _, read)| part(read)),
            idle_pool: view.idle_pool(),
        }
    }

    /// Whether a quantity changes by a share of memory.
    fn moves(&self, quantity: &Points, share: f64) -> bool {
        let least = values(quantity).fold(f64::INFINITY, f64::min);
        self.memory > 0.0 && highest(values(quantity)) - least >= share * self.memory
    }

    /// The parts of the pool up to one of them together.
    fn pool_up_to(&self, part: usize) -> Points {
        let sum = |row: usize| {
            let at = self.pool[0].get(row).copied().flatten()?.0;
            Some((at, self.pool[..=part].iter().filter_map(|part| Some(part.get(row)?.as_ref()?.1)).sum()))
        };
        (0..self.pool[0].len()).map(sum).collect()
    }
}

/// Page tables, huge pages and promises over time, those of them that there is something to see of; `None`
/// if there is none.
pub(super) fn spaces(comparison: &Comparison<'_>) -> Option<Picture> {
    let views = machines(comparison);
    let all: Vec<Spaces> = views.iter().map(|view| Spaces::of(view)).collect();
    let most = |read: &dyn Fn(&Spaces) -> f64| highest(all.iter().map(read));
    let tables_high = most(&|of| highest(values(&of.tables)));
    let pool_high = most(&|of| highest(values(&of.pool_up_to(POOL.len() - 1))));
    let limit_high = most(&|of| of.limit.unwrap_or(0.0));
    let promised_high = limit_high.max(most(&|of| highest(values(&of.promised))));
    let has_tables = all.iter().any(|of| of.moves(&of.tables, NOTICEABLE));
    let has_pool = pool_high > 0.0;
    // Promises move with any program's memory. They matter where they are bounded, or asked for.
    let of_interest = limit_high > 0.0 || views.iter().any(|view| view.asks_for_memory());
    let has_promises = of_interest && all.iter().any(|of| of.moves(&of.promised, PROMISED));
    if !has_tables && !has_pool && !has_promises {
        return None;
    }
    let block = |(view, of): (&&View<'_>, &Spaces)| {
        let mut panels = Vec::new();
        panels.extend(has_tables.then(|| tables_panel(of, tables_high)));
        panels.extend(has_pool.then(|| pool_panel(of, pool_high)));
        panels.extend(has_promises.then(|| promises_panel(of, promised_high)));
        Block { title: title(&views, view), events: events(view), panels }
    };
    let blocks: Vec<Block> = views.iter().zip(&all).map(block).collect();
    let mut caption = Vec::new();
    if views.iter().any(|view| view.run.samples().len() > chart::POINTS) {
        caption.push("There are more samples than points: each point is the mean of several.");
    }
    if has_promises && all.iter().any(|of| of.limit.is_none()) {
        caption.push("Where no limit is drawn, the kernel does not enforce it.");
    }
    let message = message(&all, has_tables, has_pool);
    Some(chart::over_time(&blocks, seconds(&views), "spaces", message, caption.join(" ")))
}

fn panel(name: &str, high: f64, layers: Vec<Layer>) -> Panel {
    let name = name.to_owned();
    Panel { name, axis: Axis::Bytes, high, low: 0.0, height: HEIGHT, mirrored: false, layers }
}

fn under(class: &str, points: &Points) -> Layer {
    Layer::Under { class: class.to_owned(), points: thinned(points.clone(), Pick::Mean), label: None }
}

fn tables_panel(of: &Spaces, high: f64) -> Panel {
    panel("page tables", high, vec![under("q-tables", &of.tables)])
}

fn pool_panel(of: &Spaces, high: f64) -> Panel {
    let last = |points: &Points| points.iter().flatten().last().map_or(0.0, |(_, bytes)| *bytes);
    let mut layers = Vec::new();
    let mut below = 0.0;
    for (part, (class, label, _)) in POOL.iter().enumerate() {
        if highest(values(&of.pool[part])) <= 0.0 {
            continue;
        }
        layers.push(Layer::Area {
            class: (*class).to_owned(),
            points: thinned(of.pool_up_to(part), Pick::Mean),
            label: (*label).to_owned(),
            down_to: below,
        });
        below += last(&of.pool[part]);
    }
    layers.reverse();
    let none = if layers.is_empty() { ": none" } else { "" };
    panel(&format!("huge pages{none}"), high, layers)
}

fn promises_panel(of: &Spaces, high: f64) -> Panel {
    let mut layers = vec![under("q-promised", &of.promised)];
    layers.extend(of.limit.map(|value| Layer::Level { value, label: "limit".to_owned() }));
    panel("promised", high, layers)
}

/// The most that a quantity was: with the runs in which that is most and least, where they are apart.
fn peaks(all: &[Spaces], of: fn(&Spaces) -> &Points) -> String {
    let peaks = || all.iter().map(|one| (highest(values(of(one))), one.label.as_str()));
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
fn message(all: &[Spaces], has_tables: bool, has_pool: bool) -> String {
    let tables = has_tables.then(|| format!("Page tables take up to {}", peaks(all, |of| &of.tables)));
    // Nobody uses these, and nothing else may.
    let unused = all.iter().find_map(|of| Some((of.idle_pool?, of.label.as_str())));
    let unused = unused.map(|(idle, label)| {
        let with = if all.len() > 1 { format!(" with {label}") } else { String::new() };
        format!("{} of huge pages lie idle{with}", Bytes(idle as u64))
    });
    match (tables, unused) {
        (Some(tables), Some(unused)) => format!("{tables}; {unused}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) if has_pool => format!("Huge pages in use: up to {}", peaks(all, |of| &of.pool[0])),
        (None, None) => format!("The kernel promises up to {}", peaks(all, |of| &of.promised)),
    }
}

/// The figures of the picture: what of a run, then the least and the most.
pub(super) fn numbers(view: &View<'_>) -> Vec<Vec<String>> {
    let of = Spaces::of(view);
    let mut rows = Vec::new();
    let mut row = |name: String, points: &Points| {
        let ends = values(points).map(|value| (value, value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        if let Some((least, most)) = ends.filter(|(_, most)| *most > 0.0) {
            rows.push(vec![name, Bytes(least as u64).to_string(), Bytes(most as u64).to_string()]);
        }
    };
    row("page tables".to_owned(), &of.tables);
    row("promised".to_owned(), &of.promised);
    for ((_, name, _), points) in POOL.iter().zip(&of.pool) {
        row(format!("huge pages {name}"), points);
    }
    rows
}
