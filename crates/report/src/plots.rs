//! The pictures of a report: where memory goes, where it went over time, and what went on meanwhile.

use lotsfree_doctor::{MemoryMap, Use};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::Series;
use crate::chart::{self, Axis, Block, Layer, Panel, Pick, Picture, Rates, thinned};
use crate::svg::{self, Anchor, LINE, Scale, Svg, Wish, text_width};
use crate::words::{self, duration};

/// The class that gives a shape the colour of a use.
pub(crate) fn class(part: Use) -> String {
    format!("u-{}", part.name().replace(' ', "-"))
}

/// A part of the bar and what is written below it.
struct Part {
    part: Use,
    /// Middle of its part of the bar.
    middle: f64,
    weight: f64,
    amount: String,
}

impl Part {
    fn width(&self) -> f64 {
        text_width(self.part.name()).max(text_width(&self.amount)) + 12.0
    }
}

/// One bar of where memory goes with its labels below; `message` is what it says, `subject` is set in bold.
pub(crate) fn memory_bar(memory: &MemoryMap, subject: Option<Use>, message: &str, width: f64) -> String {
    const BAR: f64 = 40.0;
    /// From the bar to the first row of labels, and between the rows.
    const LEAD: f64 = 14.0;
    let mut picture = Svg::new(width);
    let scale = Scale::new((0.0, memory.total.as_f64()), (0.0, width));
    let mut unlabelled = Vec::new();
    let mut sum = Bytes::ZERO;
    for (part, bytes) in &memory.parts {
        let (start, end) = (scale.at(sum.as_f64()), scale.at((sum + *bytes).as_f64()));
        sum = sum + *bytes;
        let share = bytes.share_of(memory.total);
        let amount = format!("{bytes} · {}", Percent(share));
        let title = format!("{}: {amount}", part.name());
        picture.rect_with_title(&format!("part {}", class(*part)), (start, 0.0, end - start, BAR), &title);
        if end - start >= 1.0 {
            // How much is free is asked of every host.
            let wanted = if *part == Use::Free { 0.05 } else { 0.0 };
            let weight = share + wanted + f64::from(u8::from(subject == Some(*part)));
            unlabelled.push(Part { part: *part, middle: (start + end) / 2.0, weight, amount });
        }
    }
    // What does not fit into the first row goes to the second, if its line can pass between the labels above.
    let mut bottom = BAR;
    let mut above: Vec<(f64, f64)> = Vec::new();
    for _ in 0..2 {
        let passes = |part: &Part| above.iter().all(|(at, half)| (part.middle - at).abs() > half + 2.0);
        let (able, unable): (Vec<_>, Vec<_>) = unlabelled.into_iter().partition(passes);
        unlabelled = unable;
        let wishes = able
            .into_iter()
            .map(|part| Wish { at: part.middle, size: part.width(), weight: part.weight, what: part })
            .collect();
        let (placed, left) = svg::place(wishes, (0.0, width), width / 8.0);
        unlabelled.extend(left);
        if placed.is_empty() {
            break;
        }
        let top = bottom + LEAD;
        for (centre, Part { part, middle, amount, .. }) in &placed {
            let lead = format!("lead {}", class(*part));
            picture.polyline(&lead, [(*middle, BAR), (*middle, bottom + 3.0), (*centre, top)].into_iter());
            let strong = if subject == Some(*part) { "strong" } else { "" };
            picture.text(strong, Anchor::Middle, *centre, top + LINE - 3.0, part.name());
            picture.text(&format!("dim {strong}"), Anchor::Middle, *centre, top + 2.0 * LINE - 3.0, amount);
        }
        above.extend(placed.iter().map(|(centre, part)| (*centre, part.width() / 2.0)));
        bottom = top + 2.0 * LINE;
    }
    let description: Vec<String> = words::parts(memory)
        .map(|(part, bytes, share)| format!("{} {bytes} ({})", part.name(), Percent(share)))
        .collect();
    picture.finish(bottom + 4.0, &format!("memory-{width:.0}"), message, &description.join(", "))
}

/// Where memory went over time, stacked; `None` if no sample has it.
pub(crate) fn memory_over_time(series: &Series) -> Option<Picture> {
    let message = memory_message(series)?;
    let stacks = Stack::of(series);
    let last = stacks.iter().flatten().last()?;
    // Each part reaches down to the axis and is painted over by those below it.
    let area = |(index, (part, _)): (usize, &(Use, Vec<Bytes>))| Layer::Area {
        class: class(*part),
        points: thinned(stacks.iter().map(|stack| stack.as_ref()?.up_to(index)).collect(), Pick::Mean),
        label: part.name().to_owned(),
        down_to: last.parts[..index].iter().sum(),
    };
    let panel = Panel {
        name: "memory by use".to_owned(),
        axis: Axis::Bytes,
        high: stacks.iter().flatten().map(Stack::total).fold(0.0, f64::max),
        low: 0.0,
        height: 280.0,
        mirrored: false,
        layers: series.memory.iter().enumerate().rev().map(area).collect(),
    };
    let mut caption = Vec::new();
    if stacks.len() > chart::POINTS {
        caption.push("There are more samples than points: each point is the mean of several.");
    }
    if stacks.iter().any(Option::is_none) {
        caption.push("Where the area is interrupted, /proc/meminfo was not recorded.");
    }
    Some(draw(series, vec![panel], "stack", message, caption.join(" ")))
}

/// Panels of one host on one time axis.
fn draw(series: &Series, panels: Vec<Panel>, id: &str, message: String, caption: String) -> Picture {
    let block = Block { title: String::new(), events: Vec::new(), panels };
    chart::over_time(&[block], series.at.last().copied().unwrap_or(0.0), id, message, caption)
}

/// What changed most over time, in a sentence; `None` if no two samples tell.
pub(crate) fn memory_message(series: &Series) -> Option<String> {
    let stacks = Stack::of(series);
    let (first, last) = (stacks.iter().flatten().next()?, stacks.iter().flatten().last()?);
    (first.at < last.at).then(|| change(series, first, last))
}

/// The parts of memory at one time, in bytes, in the order of the series.
struct Stack {
    at: f64,
    parts: Vec<f64>,
}

impl Stack {
    /// One for each sample; `None` where no part is known.
    fn of(series: &Series) -> Vec<Option<Stack>> {
        let stack = |(i, at): (usize, &f64)| {
            let part = |(_, values): &(Use, Vec<Bytes>)| values.get(i).map_or(0.0, |bytes| bytes.as_f64());
            let parts: Vec<f64> = series.memory.iter().map(part).collect();
            parts.iter().any(|bytes| *bytes > 0.0).then_some(Stack { at: *at, parts })
        };
        series.at.iter().enumerate().map(stack).collect()
    }

    fn total(&self) -> f64 {
        self.parts.iter().sum()
    }

    /// The time, and the height of the parts to `index` together.
    fn up_to(&self, index: usize) -> Option<(f64, f64)> {
        Some((self.at, self.parts.get(..=index)?.iter().sum()))
    }
}

/// The part that changed most, in a sentence.
fn change(series: &Series, first: &Stack, last: &Stack) -> String {
    let over = duration(last.at - first.at);
    let changes = series.memory.iter().zip(first.parts.iter().zip(&last.parts));
    let most = changes.max_by(|(_, (a, b)), (_, (c, d))| (*a - *b).abs().total_cmp(&(*c - *d).abs()));
    match most {
        Some(((part, _), (before, after))) if (after - before).abs() >= 0.02 * last.total() => {
            let name = match part {
                Use::Application => "Application memory",
                Use::Shared => "Shared memory",
                Use::Mapped => "Shared memory or mapped files",
                Use::Cached => "Page cache or shared memory",
                Use::PageCache => "Page cache",
                Use::SwapCache => "Swap cache",
                Use::Compressed => "Compressed swap",
                Use::PageTables => "Page tables",
                Use::Slab => "Slab",
                Use::Kernel => "Other kernel memory",
                Use::HugeUsed => "Huge pages in use",
                Use::HugeIdle => "Idle huge pages",
                Use::Free => "Free memory",
                Use::Other => "Unaccounted memory",
                Use::Untold => "Memory of which these data do not tell",
            };
            let verb = if after > before { "grew" } else { "fell" };
            format!("{name} {verb} from {} to {} in {over}", Bytes(*before as u64), Bytes(*after as u64))
        }
        _ => format!("No part of memory changed by more than 2 % in {over}"),
    }
}

/// The class that gives a line the colour of a rate.
pub(crate) fn rate_class(name: &str) -> String {
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    format!("r-{}", letters.collect::<String>())
}

/// The rates one above the other on one time axis; `None` if none was ever above zero.
pub(crate) fn rates_over_time(series: &Series) -> Option<Picture> {
    let (still, moving): (Vec<_>, Vec<_>) =
        series.rates.iter().partition(|(_, rates)| rates.iter().flatten().all(|rate| *rate <= 0.0));
    if moving.is_empty() {
        return None;
    }
    let timed = |rates: &[Option<f64>]| -> Rates {
        series.at.windows(2).zip(rates).map(|(at, rate)| (at[0], at[1], *rate)).collect()
    };
    let moving: Vec<(&str, Rates)> =
        moving.iter().map(|(name, rates)| (name.as_str(), timed(rates))).collect();
    // In and out, kswapd and tasks: quantities of one kind have one scale.
    let kind = |name: &str| name.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let panel = |(name, rates): &(&str, Rates)| {
        let of_kind = moving.iter().filter(|(other, _)| kind(other) == kind(name));
        let most = of_kind.map(|(_, rates)| highest(rates)).fold(0.0, f64::max);
        let last = rates.iter().rev().find_map(|(.., rate)| *rate);
        let line = Layer::Under {
            class: rate_class(name),
            points: chart::steps(rates),
            label: last.map(|rate| format!("{}/s", rate_label(rate))),
        };
        Panel {
            name: format!("{name}, per second"),
            axis: Axis::Count,
            high: chart::round_high(most),
            low: 0.0,
            height: 64.0,
            mirrored: false,
            layers: gaps(rates).chain([line]).collect(),
        }
    };
    let panels = moving.iter().map(panel).collect();
    let message = went_on(&moving, &series.rates);
    let mut caption = Vec::new();
    if series.at.len() > chart::POINTS / 2 {
        caption
            .push("There are more samples than points: each step is the highest rate of several.".to_owned());
    }
    if moving.iter().any(|(_, rates)| gaps(rates).next().is_some()) {
        caption.push("In the grey spans a counter was not recorded or was reset.".to_owned());
    }
    if !still.is_empty() {
        let names: Vec<&str> = still.iter().map(|(name, _)| name.as_str()).collect();
        caption.push(format!("Zero throughout: {}.", names.join(", ")));
    }
    Some(draw(series, panels, "rates", message, caption.join(" ")))
}

/// The spans of which a rate is not known.
fn gaps(rates: &[(f64, f64, Option<f64>)]) -> impl Iterator<Item = Layer> + '_ {
    rates.chunk_by(|a, b| a.2.is_some() == b.2.is_some()).filter_map(|run| {
        match (run.first()?, run.last()?) {
            ((from, _, None), (_, to, None)) => Some(Layer::Gap { from: *from, to: *to }),
            _ => None,
        }
    })
}

fn highest(rates: &[(f64, f64, Option<f64>)]) -> f64 {
    rates.iter().filter_map(|(.., rate)| *rate).fold(0.0, f64::max)
}

/// A rate with the digits it deserves.
fn rate_label(rate: f64) -> String {
    match rate {
        r if r >= 10.0 => Grouped(r.round() as u64).to_string(),
        0.0 => "0".to_owned(),
        r => svg::tick_label((r * 100.0).ceil() / 100.0),
    }
}

/// The gravest thing that went on, in a sentence.
fn went_on(moving: &[(&str, Rates)], all: &[(String, Vec<Option<f64>>)]) -> String {
    let peak = |wanted: &str| {
        moving.iter().find(|(name, _)| *name == wanted).map(|(_, rates)| rate_label(highest(rates)))
    };
    let known = |wanted: &str| all.iter().any(|(name, _)| name == wanted);
    if let Some(rate) = peak("pages scanned by tasks") {
        return format!("Tasks had to look for free memory themselves: they scanned up to {rate} pages/s");
    }
    if let Some(rate) = peak("pages scanned by kswapd") {
        let but = if known("pages scanned by tasks") { ", no task had to" } else { "" };
        return format!("kswapd scanned up to {rate} pages/s{but}");
    }
    if let Some(rate) = peak("pages swapped in") {
        return format!("Up to {rate} pages/s came back from swap");
    }
    if let Some(rate) = peak("major faults") {
        return format!("Up to {rate} faults/s had to read from disk");
    }
    let (name, rates) = &moving[0];
    format!("Up to {} {name} per second", rate_label(highest(rates)))
}
