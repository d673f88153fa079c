//! The pictures of a report: where memory goes, where it went over time, and what went on meanwhile.

use lotsfree_doctor::{MemoryMap, Use};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::Series;
use crate::svg::{self, Anchor, LINE, Scale, Svg, Wish, text_width};
use crate::words::{self, duration};

/// Width of a picture on a desk, in CSS pixels.
pub(crate) const WIDE: f64 = 920.0;
/// Width of a picture on a phone.
pub(crate) const NARROW: f64 = 336.0;
/// Pixels for a point at least; more samples than fit are drawn together.
const PER_POINT: f64 = 2.4;

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

/// A picture over time: what it says, how it looks at [`WIDE`] and at [`NARROW`], and what else must be known
/// to read it.
pub(crate) struct Timeline {
    pub(crate) message: String,
    pub(crate) wide: String,
    pub(crate) narrow: String,
    pub(crate) caption: String,
}

/// How many samples a point of a picture of `width` stands for.
fn per_point(series: &Series, width: f64) -> usize {
    series.at.len().div_ceil(((width - LEFT - RIGHT) / PER_POINT) as usize).max(1)
}

/// Room for the labels of the axis, and for those at the ends of lines.
const LEFT: f64 = 62.0;
/// See [`LEFT`].
const RIGHT: f64 = 128.0;

/// Vertical lines at round times and their labels below; returns the height that the labels take.
fn time_axis(picture: &mut Svg, time: &Scale, seconds: f64, width: f64, (top, bottom): (f64, f64)) -> f64 {
    let most = ((width - LEFT - RIGHT) / 60.0) as u32;
    let (ticks, unit, scale) = svg::time_ticks(seconds, most.clamp(2, 10));
    for at in ticks {
        let x = time.at(at);
        picture.line("grid", (x, top), (x, bottom));
        let label = format!("{} {unit}", svg::tick_label(at / scale));
        picture.text("dim", Anchor::Middle, x, bottom + LINE + 2.0, &label);
    }
    LINE + 8.0
}

/// Where memory went over time, stacked; `None` if no sample has it.
pub(crate) fn memory_over_time(series: &Series) -> Option<Timeline> {
    let message = memory_message(series)?;
    let draw = |width: f64| stacked(series, &Stack::of(series, per_point(series, width)), &message, width);
    let mut caption = Vec::new();
    if per_point(series, WIDE) > 1 {
        caption.push("There are more samples than points: each point is the mean of several.");
    }
    if Stack::of(series, 1).iter().any(Option::is_none) {
        caption.push("Where the area is interrupted, /proc/meminfo was not recorded.");
    }
    Some(Timeline { wide: draw(WIDE), narrow: draw(NARROW), message, caption: caption.join(" ") })
}

/// What changed most over time, in a sentence; `None` if no two samples tell.
pub(crate) fn memory_message(series: &Series) -> Option<String> {
    let stacks = Stack::of(series, 1);
    let (first, last) = (stacks.iter().flatten().next()?, stacks.iter().flatten().last()?);
    (first.at < last.at).then(|| change(series, first, last))
}

/// The parts of memory at one time, in bytes, in the order of the series.
struct Stack {
    at: f64,
    parts: Vec<f64>,
}

impl Stack {
    /// Means over as many samples as a point stands for; `None` where no part is known.
    fn of(series: &Series, per_point: usize) -> Vec<Option<Stack>> {
        let indices: Vec<usize> = (0..series.at.len()).collect();
        let value = |values: &[Bytes], i: usize| values.get(i).map_or(0.0, |bytes| bytes.as_f64());
        let stack = |indices: &[usize]| {
            let known: Vec<usize> = (indices.iter().copied())
                .filter(|&i| series.memory.iter().any(|(_, values)| value(values, i) > 0.0))
                .collect();
            let mean =
                |of: &dyn Fn(usize) -> f64| known.iter().map(|&i| of(i)).sum::<f64>() / known.len() as f64;
            (!known.is_empty()).then(|| Stack {
                at: mean(&|i| series.at[i]),
                parts: series.memory.iter().map(|(_, values)| mean(&|i| value(values, i))).collect(),
            })
        };
        indices.chunks(per_point).map(stack).collect()
    }

    fn total(&self) -> f64 {
        self.parts.iter().sum()
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
                Use::PageCache => "Page cache",
                Use::SwapCache => "Swap cache",
                Use::PageTables => "Page tables",
                Use::Slab => "Slab",
                Use::Kernel => "Other kernel memory",
                Use::HugeUsed => "Huge pages in use",
                Use::HugeIdle => "Idle huge pages",
                Use::Free => "Free memory",
                Use::Other => "Unaccounted memory",
            };
            let verb = if after > before { "grew" } else { "fell" };
            format!("{name} {verb} from {} to {} in {over}", Bytes(*before as u64), Bytes(*after as u64))
        }
        _ => format!("No part of memory changed by more than 2 % in {over}"),
    }
}

fn stacked(series: &Series, stacks: &[Option<Stack>], message: &str, width: f64) -> String {
    const HEIGHT: f64 = 280.0;
    const TOP: f64 = 8.0;
    let mut picture = Svg::new(width);
    let seconds = series.at.last().copied().unwrap_or(0.0);
    let highest = stacks.iter().flatten().map(Stack::total).fold(0.0, f64::max);
    let time = Scale::new((0.0, seconds), (LEFT, width - RIGHT));
    let bytes = Scale::new((0.0, highest), (TOP + HEIGHT, TOP));
    let mut labels = Vec::new();
    // Each part reaches down to the axis and is painted over by those below it.
    for (index, (part, _)) in series.memory.iter().enumerate().rev() {
        let below = |stack: &Stack| stack.parts[..index].iter().sum::<f64>();
        let above = |stack: &Stack| stack.parts[..=index].iter().sum::<f64>();
        // Each uninterrupted run of samples is a shape of its own.
        for run in stacks.split(Option::is_none) {
            let (Some(Some(first)), Some(Some(last))) = (run.first(), run.last()) else { continue };
            let upper = run.iter().flatten().map(|stack| (time.at(stack.at), bytes.at(above(stack))));
            let base = [(time.at(last.at), bytes.at(0.0)), (time.at(first.at), bytes.at(0.0))];
            picture.area(&class(*part), upper.chain(base));
        }
        if let Some(last) = stacks.iter().flatten().last() {
            let (low, high) = (bytes.at(below(last)), bytes.at(above(last)));
            if low - high >= 1.5 {
                let middle = (low + high) / 2.0;
                labels.push(Wish { at: middle, size: LINE, weight: low - high, what: (middle, *part) });
            }
        }
    }
    for tick in svg::byte_ticks(Bytes(highest as u64), 4) {
        let y = bytes.at(tick.as_f64());
        picture.line("grid", (LEFT, y), (width - RIGHT, y));
        picture.text("dim", Anchor::End, LEFT - 6.0, y + 4.5, &tick.to_string());
    }
    let below = time_axis(&mut picture, &time, seconds, width, (TOP, TOP + HEIGHT));
    let edge = stacks.iter().flatten().last().map_or(width - RIGHT, |last| time.at(last.at));
    let (placed, _) = svg::place(labels, (0.0, TOP + HEIGHT + LINE / 2.0), 2.0 * LINE);
    for (y, (at, part)) in placed {
        picture.polyline(
            &format!("lead {}", class(part)),
            [(edge, at), (edge + 6.0, y), (edge + 10.0, y)].into_iter(),
        );
        picture.text("", Anchor::Start, edge + 13.0, y + 4.5, part.name());
    }
    let description =
        "Uses of memory stacked over time, from applications at the bottom to free memory at the top.";
    picture.finish(TOP + HEIGHT + below, &format!("stack-{width:.0}"), message, description)
}

/// The class that gives a line the colour of a rate.
pub(crate) fn rate_class(name: &str) -> String {
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    format!("r-{}", letters.collect::<String>())
}

/// A rate between two times; `None` where it is not known.
struct Step {
    from: f64,
    to: f64,
    rate: Option<f64>,
}

/// The rates one above the other on one time axis; `None` if none was ever above zero.
pub(crate) fn rates_over_time(series: &Series) -> Option<Timeline> {
    let (still, moving): (Vec<_>, Vec<_>) =
        series.rates.iter().partition(|(_, rates)| rates.iter().flatten().all(|rate| *rate <= 0.0));
    if moving.is_empty() {
        return None;
    }
    let panels = |per_point: usize| -> Vec<(&str, Vec<Step>)> {
        moving.iter().map(|(name, rates)| (name.as_str(), Step::of(&series.at, rates, per_point))).collect()
    };
    let every = panels(1);
    let message = went_on(&every, &series.rates);
    let draw = |width: f64| multiples(series, &panels(per_point(series, width)), &message, width);
    let mut caption = Vec::new();
    if per_point(series, WIDE) > 1 {
        caption
            .push("There are more samples than points: each step is the highest rate of several.".to_owned());
    }
    if every.iter().any(|(_, steps)| steps.iter().any(|step| step.rate.is_none())) {
        caption.push("In the grey spans a counter was not recorded or was reset.".to_owned());
    }
    if !still.is_empty() {
        let names: Vec<&str> = still.iter().map(|(name, _)| name.as_str()).collect();
        caption.push(format!("Zero throughout: {}.", names.join(", ")));
    }
    Some(Timeline { wide: draw(WIDE), narrow: draw(NARROW), message, caption: caption.join(" ") })
}

impl Step {
    /// The highest rates of each `per_point` intervals.
    fn of(at: &[f64], rates: &[Option<f64>], per_point: usize) -> Vec<Step> {
        let intervals: Vec<_> = at.windows(2).zip(rates).collect();
        let step = |together: &[(&[f64], &Option<f64>)]| Step {
            from: together.first().map_or(0.0, |(times, _)| times[0]),
            to: together.last().map_or(0.0, |(times, _)| times[1]),
            rate: together.iter().filter_map(|(_, rate)| **rate).reduce(f64::max),
        };
        intervals.chunks(per_point).map(step).collect()
    }
}

fn highest(steps: &[Step]) -> f64 {
    steps.iter().filter_map(|step| step.rate).fold(0.0, f64::max)
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
fn went_on(panels: &[(&str, Vec<Step>)], all: &[(String, Vec<Option<f64>>)]) -> String {
    let peak = |wanted: &str| {
        panels.iter().find(|(name, _)| *name == wanted).map(|(_, steps)| rate_label(highest(steps)))
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
    let (name, steps) = &panels[0];
    format!("Up to {} {name} per second", rate_label(highest(steps)))
}

fn multiples(series: &Series, panels: &[(&str, Vec<Step>)], message: &str, width: f64) -> String {
    const HEIGHT: f64 = 64.0;
    const TITLE: f64 = 30.0;
    const GAP: f64 = 14.0;
    let mut picture = Svg::new(width);
    let seconds = series.at.last().copied().unwrap_or(0.0);
    let time = Scale::new((0.0, seconds), (LEFT, width - RIGHT));
    let height = panels.len() as f64 * (TITLE + HEIGHT + GAP) - GAP;
    let axis = time_axis(&mut picture, &time, seconds, width, (TITLE, height));
    // In and out, kswapd and tasks: quantities of one kind have one scale.
    let kind = |name: &str| name.split(' ').take(2).collect::<Vec<_>>().join(" ");
    for (i, (name, steps)) in panels.iter().enumerate() {
        let title = i as f64 * (TITLE + HEIGHT + GAP) + LINE;
        let (top, bottom) = (title + TITLE - LINE, title + TITLE - LINE + HEIGHT);
        let high =
            panels.iter().filter(|(other, _)| kind(other) == kind(name)).map(|(_, steps)| highest(steps));
        let ticks = svg::count_ticks(high.fold(0.0, f64::max), 2);
        let rate = Scale::new((0.0, ticks.last().copied().unwrap_or(1.0)), (bottom, top));
        let what = format!("{name}, per second");
        // Bold letters are wider. What is too long beside the axis' labels begins above them.
        let left = if LEFT + 1.2 * text_width(&what) <= width { LEFT } else { 0.0 };
        picture.text("strong", Anchor::Start, left, title, &what);
        for tick in ticks {
            let y = rate.at(tick);
            picture.line("grid", (LEFT, y), (width - RIGHT, y));
            picture.text("dim", Anchor::End, LEFT - 6.0, y + 4.5, &svg::tick_label(tick));
        }
        let class = rate_class(name);
        for run in steps.chunk_by(|a, b| a.rate.is_some() == b.rate.is_some()) {
            let (from, to) = (run.first().map_or(0.0, |s| s.from), run.last().map_or(0.0, |s| s.to));
            let (start, end) = (time.at(from), time.at(to));
            if run.iter().all(|step| step.rate.is_none()) {
                picture.rect("gap", start, top, end - start, HEIGHT);
                continue;
            }
            let line: Vec<(f64, f64)> = run
                .iter()
                .flat_map(|step| {
                    let y = rate.at(step.rate.unwrap_or(0.0));
                    [(time.at(step.from), y), (time.at(step.to), y)]
                })
                .collect();
            picture.area(
                &format!("under {class}"),
                line.iter().copied().chain([(end, bottom), (start, bottom)]),
            );
            picture.polyline(&format!("line {class}"), line.into_iter());
        }
        if let Some((to, last)) = steps.iter().rev().find_map(|step| Some((step.to, step.rate?))) {
            let label = format!("{}/s", rate_label(last));
            picture.text(
                &format!("end {class}"),
                Anchor::Start,
                time.at(to) + 6.0,
                rate.at(last) + 4.5,
                &label,
            );
        }
    }
    let description: Vec<String> = panels
        .iter()
        .map(|(name, steps)| format!("{name}: at most {} per second", rate_label(highest(steps))))
        .collect();
    picture.finish(height + axis, &format!("rates-{width:.0}"), message, &description.join("; "))
}
