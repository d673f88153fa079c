//! Pictures over time, of hosts and of runs: a block for each, panels of a block one above the other on one
//! time axis, blocks side by side with shared axes.

use lotsfree_units::{Bytes, visible_line};

use crate::svg::{self, Anchor, LINE, Scale, Svg, Wish, text_width};

/// Width of a picture on a desk, in CSS pixels.
pub(crate) const WIDE: f64 = 920.0;
/// Width of a picture on a phone.
pub(crate) const NARROW: f64 = 336.0;

/// What an axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Bytes,
    /// Anything per second, or a mere number.
    Count,
    /// 0 to 1 and beyond, in percent.
    Share,
    /// Nanoseconds on a logarithmic axis.
    LogTime,
}

/// Points of a line: seconds and value; `None` interrupts it.
pub(crate) type Points = Vec<Option<(f64, f64)>>;

/// Rates: from, to, and the rate between the two; `None` where it is not known.
pub(crate) type Rates = Vec<(f64, f64, Option<f64>)>;

/// What is drawn in a panel.
#[derive(Clone, Debug)]
pub(crate) enum Layer {
    /// A line, with its name at its end.
    Line { class: String, points: Points, label: Option<String> },
    /// An area down to zero, in a pale shade of the class, and its line.
    Under { class: String, points: Points, label: Option<String> },
    /// An area down to zero, painted over by those that follow, with its name at its end between the height
    /// there and the height that is given.
    Area { class: String, points: Points, label: String, down_to: f64 },
    /// A thin line at one value, with its name at its end.
    Level { value: f64, label: String },
    /// A span, in seconds, of which nothing is known.
    Gap { from: f64, to: f64 },
}

/// One panel of a block.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// What the axis is.
    pub(crate) name: String,
    pub(crate) axis: Axis,
    /// The axis' end; the same in all blocks.
    pub(crate) high: f64,
    /// Its begin: 0 but on a logarithmic axis.
    pub(crate) low: f64,
    pub(crate) height: f64,
    /// Drawn downwards, as the mirror image of the panel above.
    pub(crate) mirrored: bool,
    pub(crate) layers: Vec<Layer>,
}

/// The panels of one run.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The run's name; empty if there is one block only.
    pub(crate) title: String,
    /// Seconds and name.
    pub(crate) events: Vec<(f64, String)>,
    pub(crate) panels: Vec<Panel>,
}

/// A picture in both widths.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    /// What it says.
    pub(crate) message: String,
    pub(crate) wide: String,
    pub(crate) narrow: String,
    /// What else must be known to read it; may be empty.
    pub(crate) caption: String,
}

/// Points that a line of a small picture has at most.
pub(crate) const POINTS: usize = 240;

/// Room for the labels of the axis.
const LEFT: f64 = 66.0;
/// Between two blocks.
const GUTTER: f64 = 20.0;
/// Between the panels of a block.
const GAP: f64 = 12.0;

/// Which blocks stand beside each other, and how wide one is.
struct Layout {
    columns: usize,
    width: f64,
}

/// Draws blocks on a time axis of so many seconds. `id` is unique in the page.
pub(crate) fn over_time(
    blocks: &[Block],
    seconds: f64,
    id: &str,
    message: String,
    caption: String,
) -> Picture {
    let columns = if blocks.len() > 1 { 2 } else { 1 };
    let wide = Layout { columns, width: (WIDE - GUTTER * (columns as f64 - 1.0)) / columns as f64 };
    let draw = |layout: &Layout, width: f64| draw(blocks, seconds, layout, width, id, &message);
    let narrow = draw(&Layout { columns: 1, width: NARROW }, NARROW);
    Picture { wide: draw(&wide, WIDE), narrow, message, caption }
}

fn draw(blocks: &[Block], seconds: f64, layout: &Layout, width: f64, id: &str, message: &str) -> String {
    let mut picture = Svg::new(width);
    let right = right_margin(blocks, layout.width);
    let mut top = 0.0;
    for row in blocks.chunks(layout.columns) {
        let mut lowest: f64 = top;
        for (column, block) in row.iter().enumerate() {
            let left = column as f64 * (layout.width + GUTTER);
            lowest = lowest.max(block.draw(&mut picture, (left, top), (layout.width, right), seconds));
        }
        top = lowest + 2.0 * GAP;
    }
    let names: Vec<String> = blocks
        .first()
        .map_or(Vec::new(), |block| block.panels.iter().map(|panel| panel.name.clone()).collect());
    let runs: Vec<&str> =
        blocks.iter().map(|block| block.title.as_str()).filter(|title| !title.is_empty()).collect();
    let mut description = format!("Over time: {}", names.join("; "));
    if !runs.is_empty() {
        description += &format!(". A block for each of {}", runs.join(", "));
    }
    picture.finish(top - GAP, &format!("{id}-{width:.0}"), message, &description)
}

/// Room for the labels at the ends of lines: as much as the longest needs, at most a third of the block.
fn right_margin(blocks: &[Block], width: f64) -> f64 {
    let panels = blocks.iter().flat_map(|block| &block.panels);
    let labels = panels.flat_map(|panel| panel.layers.iter().filter_map(|layer| layer.label_in(panel)));
    let longest = labels.map(|label| text_width(&label)).fold(0.0, f64::max);
    (longest + 16.0).min(width / 3.0).max(14.0)
}

/// `text` as a picture shows it, cut so that it is at most so wide.
pub(crate) fn cut(text: &str, width: f64) -> String {
    let text = visible_line(text);
    if text_width(&text) <= width {
        return text.into_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        if text_width(&out) + text_width(c.encode_utf8(&mut [0; 4])) + text_width("…") > width {
            break;
        }
        out.push(c);
    }
    if out.is_empty() { out } else { out.trim_end().to_owned() + "…" }
}

impl Layer {
    /// Its name as a panel shows it: with an arrow where its line ends above the panel.
    fn label_in(&self, panel: &Panel) -> Option<String> {
        match self {
            Layer::Line { label, points, .. } | Layer::Under { label, points, .. } => {
                let label = label.as_deref()?;
                let end = points.iter().rev().flatten().next();
                Some(match end {
                    Some((_, value)) if *value > panel.high => format!("{label} ↑"),
                    _ => label.to_owned(),
                })
            }
            Layer::Area { label, .. } | Layer::Level { label, .. } => Some(label.clone()),
            Layer::Gap { .. } => None,
        }
    }
}

impl Block {
    /// Draws it below `top` and returns where it ends.
    fn draw(
        &self,
        picture: &mut Svg,
        (left, top): (f64, f64),
        (width, right): (f64, f64),
        seconds: f64,
    ) -> f64 {
        let time = Scale::new((0.0, seconds), (left + LEFT, left + width - right));
        let mut y = top;
        if !self.title.is_empty() {
            y += LINE;
            picture.text("strong", Anchor::Start, left, y - 3.0, &cut(&self.title, width / 1.15));
        }
        let begin = y;
        if !self.events.is_empty() {
            y += LINE + 2.0;
        }
        let mut first = None;
        let mut heads = Vec::new();
        let mut previous_bottom = y;
        for (index, panel) in self.panels.iter().enumerate() {
            if panel.mirrored && index > 0 {
                // Hangs below the panel above, with its name between the two.
                y = previous_bottom;
                heads.push((left + LEFT + 4.0, y + LINE - 1.0, cut(&panel.name, width - LEFT - right - 8.0)));
                y += LINE + 6.0;
            } else {
                y += if index > 0 { GAP } else { 0.0 } + LINE;
                heads.push((left, y - 3.0, cut(&panel.name, width)));
                y += 7.0;
            }
            first.get_or_insert(y);
            panel.draw(picture, &time, (left, width, right), (y, y + panel.height));
            y += panel.height;
            previous_bottom = y;
        }
        let from = first.unwrap_or(y);
        self.mark_events(picture, &time, (left, width), (begin, from, y));
        let most = ((width - LEFT - right) / 62.0) as u32;
        let (ticks, unit, scale) = svg::time_ticks(seconds, most.clamp(2, 10));
        for at in ticks {
            let x = time.at(at);
            picture.line("grid", (x, from), (x, y));
            let label = format!("{} {unit}", svg::tick_label(at / scale));
            picture.text("dim", Anchor::Middle, x, y + LINE + 2.0, &label);
        }
        // Names stand on the lines that would cross them.
        for (x, y, name) in heads {
            picture.text("dim head", Anchor::Start, x, y, &name);
        }
        y + LINE + 8.0
    }

    /// Thin vertical lines at events, and the names of those that fit.
    fn mark_events(
        &self,
        picture: &mut Svg,
        time: &Scale,
        (left, width): (f64, f64),
        (top, from, to): (f64, f64, f64),
    ) {
        let mut wishes = Vec::new();
        for (index, (at, name)) in self.events.iter().enumerate() {
            let x = time.at(*at);
            picture.line("mark", (x, from), (x, to));
            let name = cut(name, width * 0.6);
            let weight = -(index as f64);
            wishes.push(Wish { at: x, size: text_width(&name) + 10.0, weight, what: (x, name) });
        }
        let (placed, _) = svg::place(wishes, (left, left + width), width / 5.0);
        for (centre, (x, name)) in placed {
            picture.text("", Anchor::Middle, centre, top + LINE - 3.0, &name);
            picture
                .polyline("mark", [(centre, top + LINE + 1.0), (x, top + LINE + 6.0), (x, from)].into_iter());
        }
    }
}

impl Panel {
    /// Where values lie.
    fn scale(&self, (top, bottom): (f64, f64)) -> Scale {
        let ends = if self.mirrored { (top, bottom) } else { (bottom, top) };
        match self.axis {
            Axis::LogTime => Scale::new((self.low.max(1.0).log10(), self.high.max(1.0).log10()), ends),
            _ => Scale::new((0.0, self.high), ends),
        }
    }

    fn at(&self, scale: &Scale, value: f64) -> f64 {
        if self.axis == Axis::LogTime { scale.at(value.max(1.0).log10()) } else { scale.at(value) }
    }

    fn draw(
        &self,
        picture: &mut Svg,
        time: &Scale,
        (left, width, right): (f64, f64, f64),
        (top, bottom): (f64, f64),
    ) {
        let mut plot = Plot {
            panel: self,
            time,
            scale: self.scale((top, bottom)),
            start: left + LEFT,
            end: left + width - right,
            top,
            bottom,
            label_width: right - 15.0,
            labels: Vec::new(),
        };
        // Areas are below the grid's lines, lines above them.
        plot.draw_areas(picture);
        plot.draw_grid(picture);
        plot.draw_lines(picture);
        plot.draw_labels(picture);
    }
}

/// A panel at its place in the picture, and the labels that its layers ask for.
struct Plot<'a> {
    panel: &'a Panel,
    time: &'a Scale,
    scale: Scale,
    /// Ends of the time axis.
    start: f64,
    end: f64,
    top: f64,
    bottom: f64,
    label_width: f64,
    labels: Vec<Wish<Label>>,
}

/// The name of a layer, and the point that it belongs to.
struct Label {
    at: (f64, f64),
    class: String,
    text: String,
}

impl Plot<'_> {
    fn y(&self, value: f64) -> f64 {
        self.panel.at(&self.scale, value)
    }

    /// The runs of points that are within the panel, in the picture's coordinates.
    fn place(&self, points: &[Option<(f64, f64)>]) -> Vec<Vec<(f64, f64)>> {
        let place = |(at, value): (f64, f64)| (self.time.at(at), self.y(value));
        let runs = runs(points, self.panel.high).into_iter();
        runs.map(|run| run.into_iter().map(place).collect()).collect()
    }

    /// An area from a run of points down to the axis.
    fn draw_down(&self, picture: &mut Svg, class: &str, run: &[(f64, f64)]) {
        let base = self.y(self.panel.low);
        let ends = run.first().zip(run.last()).map(|(first, last)| [(last.0, base), (first.0, base)]);
        picture.area(class, run.iter().copied().chain(ends.into_iter().flatten()));
    }

    fn wish(&mut self, at: (f64, f64), weight: f64, class: &str, text: &str) {
        let what = Label { at, class: class.to_owned(), text: cut(text, self.label_width) };
        self.labels.push(Wish { at: at.1, size: LINE - 1.0, weight, what });
    }

    fn draw_areas(&mut self, picture: &mut Svg) {
        for layer in &self.panel.layers {
            match layer {
                Layer::Area { class, points, label, down_to } => {
                    let placed = self.place(points);
                    for run in &placed {
                        self.draw_down(picture, class, run);
                    }
                    if let Some(&(x, high)) = placed.last().and_then(|run| run.last()) {
                        let low = self.y(*down_to);
                        if low - high >= 1.5 {
                            self.wish((x, f64::midpoint(low, high)), low - high, class, label);
                        }
                    }
                }
                Layer::Under { class, points, .. } => {
                    // Where the line is above the picture, the area reaches its top.
                    let clamped = |(at, value): (f64, f64)| (at, value.min(self.panel.high));
                    let points: Points = points.iter().map(|point| point.map(clamped)).collect();
                    for run in self.place(&points) {
                        self.draw_down(picture, &format!("under {class}"), &run);
                    }
                }
                Layer::Gap { from, to } => {
                    let (from, to) = (self.time.at(*from), self.time.at(*to));
                    picture.rect("gap", from, self.top, to - from, self.bottom - self.top);
                }
                Layer::Line { .. } | Layer::Level { .. } => {}
            }
        }
    }

    fn draw_grid(&self, picture: &mut Svg) {
        let Panel { axis, low, high, height, .. } = *self.panel;
        let mut before = f64::INFINITY;
        for (value, label) in ticks(axis, low, high, height) {
            let y = self.y(value);
            if (y - before).abs() < LINE {
                continue;
            }
            before = y;
            picture.line("grid", (self.start, y), (self.end, y));
            picture.text("dim", Anchor::End, self.start - 6.0, y + 4.5, &label);
        }
    }

    fn draw_lines(&mut self, picture: &mut Svg) {
        let Panel { low, high, .. } = *self.panel;
        for layer in &self.panel.layers {
            match layer {
                Layer::Line { class, points, .. } | Layer::Under { class, points, .. } => {
                    let placed = self.place(points);
                    for run in &placed {
                        picture.polyline(&format!("line {class}"), run.iter().copied());
                    }
                    let Some(label) = layer.label_in(self.panel) else { continue };
                    let end = points.iter().rev().flatten().next();
                    match (placed.last().and_then(|run| run.last()), end) {
                        // It ends above the picture.
                        (_, Some((at, value))) if *value > high => {
                            let at = (self.time.at(*at), self.y(high));
                            self.wish(at, 1000.0, class, &label);
                        }
                        (Some(last), _) => self.wish(*last, 1000.0, class, &label),
                        (None, _) => {}
                    }
                }
                Layer::Level { value, label } if *value >= low && *value <= high => {
                    let y = self.y(*value);
                    picture.line("level", (self.start, y), (self.end, y));
                    self.wish((self.end, y), 10.0, "level", label);
                }
                Layer::Level { .. } | Layer::Area { .. } | Layer::Gap { .. } => {}
            }
        }
    }

    fn draw_labels(&mut self, picture: &mut Svg) {
        /// The farthest that a label may stand from its line: enough for five lines that end in one point.
        const MOST_SLIP: f64 = 4.0 * LINE;
        let (edge, span) = (self.end, (self.top - LINE / 2.0, self.bottom + LINE / 2.0));
        let (placed, _) = svg::place(std::mem::take(&mut self.labels), span, MOST_SLIP);
        for (y, Label { at: (x, at), class, text }) in placed {
            let points = [(x.min(edge), at), (edge + 2.0, at), (edge + 6.0, y), (edge + 9.0, y)];
            // A line that ends before the edge is not continued by its lead.
            let skip = usize::from(x < edge);
            picture.polyline(&format!("lead {class}"), points.into_iter().skip(skip));
            picture.text("", Anchor::Start, edge + 12.0, y + 4.5, &text);
        }
    }
}

/// The uninterrupted runs of points, cut where they leave the picture above `high`.
fn runs(points: &[Option<(f64, f64)>], high: f64) -> Vec<Vec<(f64, f64)>> {
    let mut all = Vec::new();
    let mut run: Vec<(f64, f64)> = Vec::new();
    let mut before: Option<(f64, f64)> = None;
    for point in points {
        let finite = point.filter(|(at, value)| at.is_finite() && value.is_finite());
        let crossing = |a: (f64, f64), b: (f64, f64)| {
            let share = (high - a.1) / (b.1 - a.1);
            (a.0 + share * (b.0 - a.0), high)
        };
        match (before, finite) {
            (_, None) => all.push(std::mem::take(&mut run)),
            (None, Some(now)) => {
                if now.1 <= high {
                    run.push(now);
                }
            }
            (Some(was), Some(now)) => match (was.1 <= high, now.1 <= high) {
                (true, true) => run.push(now),
                (true, false) => {
                    run.push(crossing(was, now));
                    all.push(std::mem::take(&mut run));
                }
                (false, true) => run.extend([crossing(was, now), now]),
                (false, false) => {}
            },
        }
        before = finite;
    }
    all.push(run);
    all.retain(|run| !run.is_empty());
    all
}

/// A count in few letters: `950`, `12 k`, `3.4 M`.
pub(crate) fn short_count(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        v if v >= 1e15 => return format!("{value:.1e}"),
        v if v >= 1e12 => (value / 1e12, " T"),
        v if v >= 1e9 => (value / 1e9, " G"),
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    if value.abs() >= 100.0 {
        format!("{}{suffix}", svg::tick_label(value.round()))
    } else {
        format!("{}{suffix}", svg::tick_label((value * 100.0).round() / 100.0))
    }
}

/// Ticks and their labels.
fn ticks(axis: Axis, low: f64, high: f64, height: f64) -> Vec<(f64, String)> {
    let most = ((height / 28.0) as u32).clamp(1, 5);
    match axis {
        Axis::Bytes => {
            let ticks = svg::byte_ticks(Bytes(high as u64), most).into_iter();
            ticks.map(|bytes| (bytes.as_f64(), byte_label(bytes))).collect()
        }
        Axis::Count => svg::count_ticks(high, most)
            .into_iter()
            .filter(|t| *t <= high * 1.001)
            .map(|t| (t, short_count(t)))
            .collect(),
        Axis::Share => svg::count_ticks(high * 100.0, most)
            .into_iter()
            .filter(|t| *t <= high * 100.1)
            .map(|t| (t / 100.0, format!("{} %", svg::tick_label(t))))
            .collect(),
        Axis::LogTime => decades(low, high).into_iter().map(|ns| (ns, decade_label(ns))).collect(),
    }
}

/// Whole multiples of a unit need no fraction on an axis.
fn byte_label(bytes: Bytes) -> String {
    use lotsfree_units::{GIB, KIB, MIB, TIB};
    let unit = [(1 << 60, "EiB"), (1 << 50, "PiB"), (TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    match unit.into_iter().find(|(size, _)| bytes.0 >= *size) {
        Some((size, name)) => format!("{} {name}", svg::tick_label(bytes.0 as f64 / size as f64)),
        None => bytes.0.to_string(),
    }
}

/// The axis' end for values up to `high`: the last of round ticks.
pub(crate) fn round_high(high: f64) -> f64 {
    svg::count_ticks(high, 4).last().copied().unwrap_or(1.0)
}

/// Powers of ten from `low` to `high`.
pub(crate) fn decades(low: f64, high: f64) -> Vec<f64> {
    let (from, to) = (low.max(1.0).log10().round() as i32, high.max(1.0).log10().round() as i32);
    (from..=to.min(from + 20)).map(|power| 10f64.powi(power)).collect()
}

/// The powers of ten around some values above zero; a decade at least.
pub(crate) fn decades_around(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let known = values.filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) =
        known.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    (high > 0.0).then(|| {
        let low = 10f64.powf(low.max(1.0).log10().floor());
        (low, 10f64.powf(high.max(1.0).log10().ceil()).max(low * 10.0))
    })
}

/// `10 µs`.
pub(crate) fn decade_label(ns: f64) -> String {
    match ns {
        n if n >= 1e15 => format!("{:.0e} s", n / 1e9),
        n if n >= 1e9 => format!("{:.0} s", n / 1e9),
        n if n >= 1e6 => format!("{:.0} ms", n / 1e6),
        n if n >= 1e3 => format!("{:.0} µs", n / 1e3),
        n => format!("{n:.0} ns"),
    }
}

/// How points are put together where there are more than fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    Least,
    Mean,
    Most,
}

/// At most [`POINTS`] points of a line. A group of which nothing is known is a gap.
pub(crate) fn thinned(points: Points, pick: Pick) -> Points {
    let group = points.len().div_ceil(POINTS).max(1);
    if group == 1 {
        return points;
    }
    let one = |group: &[Option<(f64, f64)>]| {
        let known: Vec<(f64, f64)> = group.iter().flatten().copied().collect();
        let n = known.len() as f64;
        let at = known.iter().map(|(at, _)| at).sum::<f64>() / n;
        let values = known.iter().map(|(_, value)| *value);
        let value = match pick {
            Pick::Least => values.reduce(f64::min)?,
            Pick::Most => values.reduce(f64::max)?,
            Pick::Mean => values.sum::<f64>() / n,
        };
        (!known.is_empty()).then_some((at, value))
    };
    points.chunks(group).map(one).collect()
}

/// Rates as steps: the value of each interval from its begin to its end.
pub(crate) fn steps(rates: &[(f64, f64, Option<f64>)]) -> Points {
    // The most of each group: a burst must not vanish.
    let group = rates.len().div_ceil(POINTS / 2).max(1);
    let mut points = Points::new();
    for group in rates.chunks(group) {
        let rate = group.iter().filter_map(|(_, _, rate)| *rate).reduce(f64::max);
        match (rate, group.first(), group.last()) {
            (Some(rate), Some(first), Some(last)) => {
                points.extend([Some((first.0, rate)), Some((last.1, rate))])
            }
            _ => points.push(None),
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_leaves_the_picture_where_it_crosses_its_top() {
        let points = [
            Some((0.0, 4.0)),
            Some((1.0, 0.0)),
            Some((2.0, 4.0)),
            None,
            Some((3.0, 1.0)),
            Some((4.0, f64::NAN)),
        ];
        assert_eq!(runs(&points, 2.0), [vec![(0.5, 2.0), (1.0, 0.0), (1.5, 2.0)], vec![(3.0, 1.0)]]);
    }

    #[test]
    fn thinning_keeps_the_extremes_that_matter() {
        let points: Points =
            (0..10_000).map(|i| Some((f64::from(i), if i == 777 { -5.0 } else { 1.0 }))).collect();
        let thin = thinned(points.clone(), Pick::Least);
        assert!(thin.len() <= POINTS && thin.iter().flatten().any(|(_, value)| *value == -5.0));
        assert!(thinned(points, Pick::Most).iter().flatten().all(|(_, value)| *value == 1.0));
        let rates: Vec<_> =
            (0..10_000).map(|i| (f64::from(i), f64::from(i + 1), (i != 3).then_some(f64::from(i)))).collect();
        let steps = steps(&rates);
        assert!(steps.len() <= POINTS && steps.last() == Some(&Some((10_000.0, 9999.0))));
    }

    #[test]
    fn counts_are_short() {
        assert_eq!(
            [0.0, 950.0, 12_000.0, 3_400_000.0, 2.5e9].map(short_count),
            ["0", "950", "12 k", "3.4 M", "2.5 G"]
        );
        assert_eq!(decades_around([0.0, 1500.0, 2e6].into_iter()), Some((1e3, 1e7)));
        assert_eq!(decades_around([0.0].into_iter()), None);
        assert_eq!(cut("a long label", 50.0), "a lon…");
    }
}
