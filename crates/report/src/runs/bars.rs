//! The pictures that have no time axis: throughput over the sweep, latency percentiles, where time went.

use lotsfree_analysis::measure::nanoseconds;
use lotsfree_analysis::view::{Comparison, Sweep, View, busy, spent, with_each};
use lotsfree_run::Latency;
use lotsfree_units::{Bytes, Percent};

use super::pictures::line_class;
use crate::chart::{self, NARROW, Picture, WIDE, cut};
use crate::stacked::{self, Bar, Part};
use crate::svg::{self, Anchor, LINE, Scale, Svg, Wish, text_width};

/// Rows that a picture has at most.
const MOST_ROWS: usize = 40;

// ---- Throughput over the sweep ----

/// What is shown over a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swept {
    /// Throughput, as a share of the undisturbed one.
    Relative,
    PerSecond,
    /// Requests for memory that the kernel refused.
    Refused,
}

impl Swept {
    /// Refusals where all that is measured asks for memory, else throughput.
    pub(super) fn of(comparison: &Comparison<'_>) -> Self {
        let views = &comparison.views;
        match () {
            () if !views.is_empty() && views.iter().all(View::asks_for_memory) => Swept::Refused,
            () if views.iter().any(|view| view.relative().is_some()) => Swept::Relative,
            () => Swept::PerSecond,
        }
    }

    pub(super) fn value(self, view: &View<'_>) -> Option<f64> {
        let value = match self {
            Swept::Relative => view.relative(),
            Swept::PerSecond => view.per_second(),
            Swept::Refused => Some(view.work.refused as f64),
        };
        value.filter(|value| value.is_finite())
    }

    /// The heading of a table of it.
    pub(super) fn heading(self, sweep: &Sweep) -> String {
        let what = match self {
            Swept::Relative => "Throughput, of the undisturbed,",
            Swept::PerSecond => "Requests per second",
            Swept::Refused => "Requests for memory that were refused,",
        };
        format!("{what} over {}", sweep.said())
    }

    fn axis(self) -> &'static str {
        match self {
            Swept::Relative => "throughput, as a share of the undisturbed",
            Swept::PerSecond => "requests per second",
            Swept::Refused => "requests for memory that were refused",
        }
    }
}

/// Throughput or refusals over the values of the sweep, one line per variant; `None` without a sweep, or
/// where there is none at all.
pub(super) fn over_sweep(comparison: &Comparison<'_>) -> Option<Picture> {
    let sweep = comparison.sweep.as_ref()?;
    let swept = Swept::of(comparison);
    let point = |(at, index): &(f64, usize)| Some((*at, swept.value(comparison.views.get(*index)?)?));
    let lines: Vec<(&str, Vec<(f64, f64)>)> = sweep
        .lines
        .iter()
        .map(|(label, line)| (label.as_str(), line.iter().filter_map(point).collect()))
        .collect();
    let all = || lines.iter().flat_map(|(_, line)| line.iter().copied());
    let most = all().map(|(_, value)| value).fold(0.0, f64::max);
    let last = all().map(|(at, _)| at).fold(f64::NEG_INFINITY, f64::max);
    let first = all().map(|(at, _)| at).fold(f64::INFINITY, f64::min);
    if most <= 0.0 || last <= first {
        return None;
    }
    let message = sweep_message(comparison, &lines, sweep, swept);
    let relative = swept == Swept::Relative;
    let free = free_before(comparison, sweep).filter(|at| *at > first && *at < last);
    let high = if relative { most.max(1.0) * 1.05 } else { chart::round_high(most) };
    // An axis that begins near zero begins at zero.
    let first = if first > 0.0 && first < 0.3 * last { 0.0 } else { first };
    let plot = SweepPlot { sweep, lines: &lines, swept, first, last, high, free };
    let mut caption = String::new();
    if free.is_some() {
        caption = "The vertical line is the memory that was free in the undisturbed part of the first run."
            .to_owned();
    }
    Some(Picture { wide: plot.draw(WIDE, &message), narrow: plot.draw(NARROW, &message), message, caption })
}

/// Where the worst line leaves the others, in a sentence.
fn sweep_message(
    comparison: &Comparison<'_>,
    lines: &[(&str, Vec<(f64, f64)>)],
    sweep: &Sweep,
    swept: Swept,
) -> String {
    let unit = sweep.unit.as_deref().map(|unit| format!(" {unit}")).unwrap_or_default();
    match swept {
        Swept::Relative => {}
        Swept::PerSecond => return swept.heading(sweep),
        Swept::Refused => return refusals(comparison).join("; "),
    }
    let least = |line: &[(f64, f64)]| line.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let known = || lines.iter().filter(|(_, line)| !line.is_empty());
    let worst = known().min_by(|a, b| least(&a.1).total_cmp(&least(&b.1)));
    let best = known().max_by(|a, b| least(&a.1).total_cmp(&least(&b.1)));
    let (Some(worst), Some(best)) = (worst, best) else { return format!("Throughput over {}", sweep.said()) };
    if least(&worst.1) >= 0.9 {
        return format!("No run falls below {} of its undisturbed throughput", Percent(least(&worst.1)));
    }
    let from = worst.1.iter().find(|(_, value)| *value < 0.9).map_or(0.0, |(at, _)| *at);
    let falls = format!(
        "{}: below 90 % of its throughput from {}{unit} on, {} at worst",
        worst.0,
        svg::tick_label(from),
        Percent(least(&worst.1))
    );
    if best.0 == worst.0 { falls } else { format!("{falls}; {} keeps {}", best.0, Percent(least(&best.1))) }
}

/// From which value of the sweep on nothing is refused, a sentence without its end for each variant; none
/// where nothing asks for memory.
pub(super) fn refusals(comparison: &Comparison<'_>) -> Vec<String> {
    let Some(sweep) = comparison.sweep.as_ref().filter(|_| Swept::of(comparison) == Swept::Refused) else {
        return Vec::new();
    };
    let said = |(label, line): &(String, Vec<(f64, usize)>)| {
        let views: Vec<&View<'_>> = line.iter().filter_map(|(_, i)| comparison.views.get(*i)).collect();
        let refused = views.iter().rposition(|view| view.work.refused > 0);
        let after = views.get(refused.map_or(0, |last| last + 1));
        match (refused, after.and_then(|view| view.point.as_ref())) {
            (None, _) => format!("{label}: nothing is refused"),
            (Some(_), Some(point)) => format!("{label}: nothing is refused from {} on", point.label),
            (Some(_), None) => format!("{label}: something is refused up to the largest value"),
        }
    };
    sweep.lines.iter().map(said).collect()
}

/// Free memory in the undisturbed part of the first run, in the sweep's unit, if that is one of sizes.
fn free_before(comparison: &Comparison<'_>, sweep: &Sweep) -> Option<f64> {
    let view = comparison.views.first()?;
    let label = view.point.as_ref()?;
    let unit: Bytes = match &sweep.unit {
        Some(unit) => format!("1 {unit}").parse().ok()?,
        // Without a unit sizes are in bytes; their labels say that they are sizes.
        None => label
            .label
            .parse::<Bytes>()
            .ok()
            .filter(|size| size.0 > 0 && size.as_f64() == label.number)
            .map(|_| Bytes(1))?,
    };
    if unit.0 == 0 {
        return None;
    }
    let free = view.summary.baseline.as_ref()?.levels.get("vmstat.nr_free_pages")?;
    Some(free.mean * view.page() / unit.as_f64())
}

struct SweepPlot<'a> {
    sweep: &'a Sweep,
    lines: &'a [(&'a str, Vec<(f64, f64)>)],
    swept: Swept,
    first: f64,
    last: f64,
    high: f64,
    free: Option<f64>,
}

impl SweepPlot<'_> {
    fn draw(&self, width: f64, message: &str) -> String {
        const TOP: f64 = 2.0 * LINE + 8.0;
        const LEFT: f64 = 62.0;
        let height = if width < WIDE { 230.0 } else { 320.0 };
        let mut picture = Svg::new(width);
        let longest = self.lines.iter().map(|(label, _)| text_width(label)).fold(0.0, f64::max);
        let right = (longest + 22.0).min(width / 3.0);
        let x = Scale::new((self.first, self.last), (LEFT, width - right));
        let y = Scale::new((0.0, self.high), (TOP + height, TOP));
        let (start, end) = (LEFT, width - right);
        picture.text("dim", Anchor::Start, 0.0, LINE - 3.0, self.swept.axis());
        let relative = self.swept == Swept::Relative;
        let scale = if relative { 100.0 } else { 1.0 };
        for tick in svg::count_ticks(self.high * scale, 5)
            .into_iter()
            .filter(|tick| *tick <= self.high * scale * 1.001)
        {
            let at = y.at(tick / scale);
            picture.line("grid", (start, at), (end, at));
            let label =
                if relative { format!("{} %", svg::tick_label(tick)) } else { chart::short_count(tick) };
            picture.text("dim", Anchor::End, start - 6.0, at + 4.5, &label);
        }
        if relative {
            picture.line("level", (start, y.at(1.0)), (end, y.at(1.0)));
        }
        self.values(&mut picture, &x, TOP + height);
        if let Some(free) = self.free {
            let at = x.at(free);
            picture.line("mark", (at, TOP - 4.0), (at, TOP + height));
            let label = "free memory";
            let half = text_width(label) / 2.0;
            picture.text("", Anchor::Middle, at.clamp(half, width - half), TOP - 9.0, label);
        }
        let mut labels = Vec::new();
        for (index, (label, line)) in self.lines.iter().enumerate() {
            let class = line_class(index);
            let placed: Vec<(f64, f64)> = line.iter().map(|(at, value)| (x.at(*at), y.at(*value))).collect();
            picture.polyline(&format!("line {class}"), placed.iter().copied());
            for (x, y) in &placed {
                picture.circle(&format!("dot {class}"), (*x, *y), 3.0);
            }
            if let Some(last) = placed.last() {
                let what = (*last, class, cut(label, right - 16.0));
                labels.push(Wish { at: last.1, size: LINE - 1.0, weight: -(index as f64), what });
            }
        }
        let (placed, _) = svg::place(labels, (TOP - LINE, TOP + height + LINE / 2.0), 6.0 * LINE);
        for (at, ((from, was), class, label)) in placed {
            let points = [(from + 4.0, was), (end + 5.0, was), (end + 10.0, at), (end + 12.0, at)];
            picture.polyline(&format!("lead {class}"), points.into_iter());
            picture.text("", Anchor::Start, end + 15.0, at + 4.5, &label);
        }
        let unit = self.sweep.unit.as_deref().map(|unit| format!(", {unit}")).unwrap_or_default();
        let below = TOP + height + 2.0 * LINE + 6.0;
        let axis = cut(&format!("{}{unit}", self.sweep.title), width - 8.0);
        let half = text_width(&axis) / 2.0;
        let middle = f64::midpoint(start, end).clamp(half.min(width / 2.0), (width - half).max(width / 2.0));
        picture.text("dim", Anchor::Middle, middle, below, &axis);
        let lines: Vec<&str> = self.lines.iter().map(|(label, _)| *label).collect();
        let description =
            format!("Throughput over {}, a line for each of {}", self.sweep.title, lines.join(", "));
        picture.finish(below + 8.0, &format!("sweep-{width:.0}"), message, &description)
    }

    /// The values of the sweep below the axis, as far as they fit.
    fn values(&self, picture: &mut Svg, x: &Scale, bottom: f64) {
        let mut values: Vec<f64> =
            self.lines.iter().flat_map(|(_, line)| line.iter().map(|(at, _)| *at)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let mut free_from = f64::NEG_INFINITY;
        for value in values {
            let at = x.at(value);
            picture.line("grid", (at, bottom), (at, bottom + 5.0));
            let label = match &self.sweep.unit {
                None if value >= 1024.0 && value % 1024.0 == 0.0 => Bytes(value as u64).to_string(),
                _ => svg::tick_label(value),
            };
            let half = text_width(&label) / 2.0;
            if at - half >= free_from {
                picture.text("dim", Anchor::Middle, at, bottom + LINE + 4.0, &label);
                free_from = at + half + 8.0;
            }
        }
    }
}

// ---- Latency ----

/// The percentiles, from the shortest to the longest: name and value.
fn percentiles(latency: &Latency) -> [(&'static str, f64); 4] {
    let Latency { mean: _, p50, p99, p999, max } = *latency;
    [("p50", p50 as f64), ("p99", p99 as f64), ("p99.9", p999 as f64), ("max", max as f64)]
}

/// Latency percentiles of each run on a logarithmic axis; `None` if no request ended.
pub(super) fn latency(comparison: &Comparison<'_>) -> Option<Picture> {
    let of = |view: &View<'_>| Some((view.label.clone(), Latency::of(&view.work.latency)?));
    let rows: Vec<(String, Latency)> = comparison.columns().filter_map(of).take(MOST_ROWS).collect();
    let (low, high) =
        chart::decades_around(rows.iter().flat_map(|(_, latency)| percentiles(latency).map(|(_, ns)| ns)))?;
    let by = |read: fn(&Latency) -> u64| {
        let least = rows.iter().min_by_key(|(_, latency)| read(latency))?;
        let most = rows.iter().max_by_key(|(_, latency)| read(latency))?;
        Some((least, most))
    };
    let (least, most) = by(|latency| latency.p99)?;
    let message = if rows.len() == 1 || most.1.p99 as f64 <= 1.1 * least.1.p99 as f64 {
        format!("99 in 100 requests take at most {}", nanoseconds(most.1.p99 as f64))
    } else {
        let pair =
            with_each((nanoseconds(least.1.p99 as f64), &least.0), (nanoseconds(most.1.p99 as f64), &most.0));
        format!("99 in 100 requests take at most {pair}")
    };
    let draw = |width: f64| draw_latency(&rows, (low, high), width, &message);
    let caption = "The axis is logarithmic. From left to right: half of the requests, 99 in 100, 999 in 1000 and all of \
                   them took no longer.";
    Some(Picture {
        wide: draw(WIDE),
        narrow: draw(NARROW),
        message: message.clone(),
        caption: caption.to_owned(),
    })
}

fn draw_latency(rows: &[(String, Latency)], (low, high): (f64, f64), width: f64, message: &str) -> String {
    const ROW: f64 = 56.0;
    const MARGIN: f64 = 34.0;
    /// How much the label of each percentile is wanted where there is no room for all.
    const WEIGHTS: [f64; 4] = [2.0, 4.0, 1.0, 3.0];
    let mut picture = Svg::new(width);
    let x = Scale::new((low.log10(), high.log10()), (MARGIN, width - MARGIN));
    let at = |ns: f64| x.at(ns.max(1.0).log10());
    let bottom = rows.len() as f64 * ROW;
    let mut free_from = f64::NEG_INFINITY;
    for decade in chart::decades(low, high) {
        picture.line("grid", (at(decade), 0.0), (at(decade), bottom + 4.0));
        let label = chart::decade_label(decade);
        let half = text_width(&label) / 2.0;
        if at(decade) - half >= free_from {
            picture.text("dim", Anchor::Middle, at(decade), bottom + LINE + 4.0, &label);
            free_from = at(decade) + half + 6.0;
        }
    }
    for (index, (label, latency)) in rows.iter().enumerate() {
        let top = index as f64 * ROW;
        let y = top + LINE + 10.0;
        picture.text("strong head", Anchor::Start, 0.0, top + LINE - 2.0, &cut(label, width / 1.15));
        let all = percentiles(latency);
        picture.line("range", (at(all[0].1), y), (at(all[3].1), y));
        for (step, (_, ns)) in all.into_iter().enumerate() {
            picture.circle(&format!("dot p-{step}"), (at(ns), y), 4.5);
        }
        let mut wishes = Vec::new();
        let mut step = 0;
        // Percentiles that read the same share a label.
        for same in all.chunk_by(|a, b| nanoseconds(a.1) == nanoseconds(b.1)) {
            let (Some((first, ns)), Some((last, _))) = (same.first(), same.last()) else { continue };
            let name = if first == last { (*first).to_owned() } else { format!("{first} to {last}") };
            let label = format!("{name} {}", nanoseconds(*ns));
            // The tail is what is asked for; the median comes next.
            let weights = WEIGHTS.get(step..step + same.len()).unwrap_or_default();
            step += same.len();
            let weight = weights.iter().copied().fold(0.0, f64::max);
            wishes.push(Wish { at: at(*ns), size: text_width(&label) + 16.0, weight, what: label });
        }
        let (placed, _) = svg::place(wishes, (0.0, width), width / 5.0);
        for (centre, label) in placed {
            picture.text("dim", Anchor::Middle, centre, y + LINE + 4.0, &label);
        }
    }
    let description: Vec<String> = rows
        .iter()
        .map(|(label, latency)| {
            format!(
                "{label}: {}",
                percentiles(latency).map(|(name, ns)| format!("{name} {}", nanoseconds(ns))).join(", ")
            )
        })
        .collect();
    picture.finish(bottom + LINE + 10.0, &format!("latency-{width:.0}"), message, &description.join("; "))
}

// ---- Where time went ----

/// Classes of the parts of a request's time, in the order of [`spent`].
pub(super) const SPENT: [&str; 6] = ["t-user", "t-system", "t-reclaim", "t-throttled", "t-io", "t-runnable"];

/// The wait for a CPU among them.
const CPU_WAIT: usize = 5;

/// Where the time of requests went, a bar per run; `None` if it is not known of any.
pub(super) fn time_spent(comparison: &Comparison<'_>) -> Option<Picture> {
    let known: Vec<&View<'_>> =
        comparison.columns().filter(|view| busy(&view.work.spent) > 0.0).take(MOST_ROWS).collect();
    let share =
        |view: &View<'_>, part: usize| spent(&view.work.spent)[part].1 as f64 / busy(&view.work.spent);
    // Waking up is part of every request: of the wait for a CPU counts what the run with the least does not
    // have.
    let each = |view: &View<'_>, part: usize| {
        spent(&view.work.spent)[part].1 as f64 / view.work.operations.max(1) as f64
    };
    let least = known.iter().map(|view| each(view, CPU_WAIT)).fold(f64::INFINITY, f64::min);
    let weight = |view: &View<'_>, part: usize| match part {
        CPU_WAIT if known.len() > 1 => {
            share(view, part) * (1.0 - least / each(view, part).max(f64::MIN_POSITIVE))
        }
        _ => share(view, part),
    };
    // Time on a CPU in the program is what one hopes for; the greatest other part is the message.
    let worst = known
        .iter()
        .flat_map(|view| (1..6).map(move |part| (*view, part)))
        .max_by(|a, b| weight(a.0, a.1).total_cmp(&weight(b.0, b.1)))?;
    let (name, _) = spent(&worst.0.work.spent)[worst.1];
    let taken = match name {
        "system" => "the kernel takes",
        "reclaim" => "reclaim takes",
        "throttled" => "being throttled takes",
        "waiting for a device" => "waiting for devices takes",
        _ => "waiting for a CPU takes",
    };
    let with = if known.len() > 1 { format!("With {}, ", worst.0.label) } else { String::new() };
    let mut message = format!("{with}{taken} {} of the requests' time", Percent(share(worst.0, worst.1)));
    if let Some(first) = message.get(..1).map(str::to_uppercase) {
        message.replace_range(..1, &first);
    }
    let draw = |width: f64| draw_spent(&known, width, &message);
    let caption = "Time of the measured threads, sleep by their own wish left out.".to_owned();
    Some(Picture { wide: draw(WIDE), narrow: draw(NARROW), message: message.clone(), caption })
}

fn draw_spent(views: &[&View<'_>], width: f64, message: &str) -> String {
    let bar = |view: &&View<'_>| {
        let whole = busy(&view.work.spent);
        let part = |((name, ns), class): ((&str, u64), &str)| Part {
            class: class.to_owned(),
            name: name.to_owned(),
            share: ns as f64 / whole,
        };
        Bar {
            label: view.label.clone(),
            note: match view.work.operations {
                0 => String::new(),
                n => format!("{} a request", nanoseconds(whole / n as f64)),
            },
            parts: spent(&view.work.spent).into_iter().zip(SPENT).map(part).collect(),
        }
    };
    let bars: Vec<Bar> = views.iter().map(bar).collect();
    stacked::draw(&bars, 1.0, width, "spent", message)
}
