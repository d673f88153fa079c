//! The page of runs: what made the difference, the measures, the pictures.

use lotsfree_analysis::explain::Headline;
use lotsfree_analysis::measure::{Measure, gain_text, measures, nanoseconds};
use lotsfree_analysis::view::{Comparison, View, busy, ended, spent};
use lotsfree_analysis::{assumed, explain, stages};
use lotsfree_doctor::{Severity, Use};
use lotsfree_run::{Event, Latency, Level, Run, RunOn, Spent, State};
use lotsfree_units::{Bytes, Grouped, Percent, visible};
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use super::bars::{self, Swept};
use super::expected::{self, Expected};
use super::pictures::{self, LISTS, MOST_BLOCKS, TRAFFIC, line_class};
use super::{blame, spaces};
use crate::chart::{Picture, WIDE};
use crate::palette::{self, of_rate, of_run, of_severity, of_use};
use crate::svg::text_width;
use crate::{sheet, words};

/// Columns that a table has at most: more than this nobody compares by eye, and `runs_json` has all.
const MOST_COLUMNS: usize = 24;
/// Events that are listed for each run.
const MOST_EVENTS: usize = 100;

/// Runs side by side as one self-contained HTML page: no network, no script, light and dark, phone width and
/// print. The first run is what the others are compared with. Names from scenarios and directories are
/// escaped. A run that is incomplete, or no run at all, gives a page that says so.
pub fn runs_html(runs: &[Run]) -> String {
    let comparison = Comparison::of(runs);
    let title = comparison.title();
    let main = markup! {
        (head(&comparison, &title))
        (over_sweep(&comparison))
        (table(&comparison))
        (blamed(&comparison))
        (plots(&comparison))
        (about(&comparison))
        footer { "Written by lotsfree " (env!("CARGO_PKG_VERSION")) "." }
    };
    sheet::page(&title, &style(), &main)
}

/// One picture as a page of its own, to be photographed.
#[derive(Clone, Debug)]
pub struct PicturePage {
    /// `sweep`, `throughput`, `latency`, `p99`, `spent`, `free`, `lists`, `spaces` or `traffic`.
    pub name: &'static str,
    /// What it says.
    pub message: String,
    /// The picture alone, as an SVG file.
    pub svg: String,
    /// The page: the picture's message and the picture.
    pub html: String,
    /// Width of the page in CSS pixels.
    pub width: u32,
    /// Height of the page in CSS pixels.
    pub height: u32,
}

/// Around a picture that is a page of its own.
const FRAME: f64 = 20.0;

/// The pictures of [`runs_html`], each as a page of its own, in the same order. Those that there is nothing
/// to show in are left out.
pub fn runs_pictures(runs: &[Run]) -> Vec<PicturePage> {
    let comparison = Comparison::of(runs);
    let all = [
        ("sweep", bars::over_sweep(&comparison)),
        ("throughput", pictures::throughput(&comparison)),
        ("latency", bars::latency(&comparison)),
        ("p99", pictures::p99(&comparison)),
        ("spent", bars::time_spent(&comparison)),
        ("free", pictures::free_and_scans(&comparison)),
        ("lists", pictures::lists(&comparison)),
        ("spaces", spaces::spaces(&comparison)),
        ("traffic", pictures::traffic(&comparison)),
    ];
    all.into_iter().filter_map(|(name, picture)| Some(alone(name, &picture?))).collect()
}

fn alone(name: &'static str, picture: &Picture) -> PicturePage {
    // Of the heading: 18.4 px, bold, where labels have 13 px.
    const LARGER: f64 = 1.5;
    const LINE: f64 = 25.0;
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(sheet::POLICY);
                title { (picture.message) }
                style {
                    (PreEscaped(style()))
                    (PreEscaped(format!("main{{padding:{FRAME}px}}h2{{margin:0 0 14px}}")))
                }
            }
            body { main { h2 { (words::glued(&picture.message)) } (PreEscaped(&picture.wide)) } }
        }
    };
    let lines = (LARGER * text_width(&picture.message) / WIDE).ceil().max(1.0);
    let height = picture.wide.split("height=\"").nth(1).and_then(|rest| rest.split('"').next());
    let height: f64 = height.and_then(|height| height.parse().ok()).unwrap_or(WIDE);
    PicturePage {
        name,
        message: picture.message.clone(),
        svg: standalone(&picture.wide),
        html: visible(&page.into_string()).into_owned(),
        width: (WIDE + 2.0 * FRAME) as u32,
        height: (height + LINE * lines + 14.0 + 2.0 * FRAME) as u32,
    }
}

/// A picture as a file of its own: with its style sheet, on its own ground.
fn standalone(svg: &str) -> String {
    const ALONE: &str = "svg{background:var(--ground)}";
    let style = format!("<style>{}{ALONE}</style>", style());
    let Some((open, rest)) = svg.split_once('>') else { return String::new() };
    let open = open.replacen("<svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"", 1);
    visible(&format!("{open}>{style}{rest}\n")).into_owned()
}

/// The palette as far as pictures of runs use it.
fn style() -> String {
    const FILL: &str = ".@ fill:var(--@);background:var(--@)|.lead.@ fill:none;stroke:var(--@);background:none|\
                        .under.@ fill:var(--@)|.line.@ fill:none;stroke:var(--@);background:none";
    let mut tones = vec![
        ("q-free".to_owned(), of_use(Use::Free), FILL),
        ("q-active-anon".to_owned(), of_use(Use::Application), FILL),
        ("q-active-file".to_owned(), of_use(Use::PageCache), FILL),
        ("q-direct".to_owned(), of_rate("pages scanned by tasks"), FILL),
        ("q-kswapd".to_owned(), of_rate("pages scanned by kswapd"), FILL),
        ("q-major".to_owned(), of_rate("major faults"), FILL),
        ("q-swap-in".to_owned(), of_rate("pages swapped in"), FILL),
        ("q-swap-out".to_owned(), of_rate("pages swapped out"), FILL),
        ("q-tables".to_owned(), of_use(Use::PageTables), FILL),
        ("q-huge-used".to_owned(), of_use(Use::HugeUsed), FILL),
        ("q-huge-idle".to_owned(), of_use(Use::HugeIdle), FILL),
        ("q-promised".to_owned(), of_use(Use::Shared), FILL),
        ("t-user".to_owned(), of_use(Use::Application), FILL),
        ("t-reclaim".to_owned(), of_rate("pages scanned by tasks"), FILL),
        ("t-throttled".to_owned(), of_use(Use::Slab), FILL),
        ("t-io".to_owned(), of_rate("major faults"), FILL),
        ("warning".to_owned(), of_severity(Severity::Warning), ".@ --mark:var(--@)"),
    ];
    tones.extend(palette::OF_RUNS.map(|(class, tone)| (class.to_owned(), tone, FILL)));
    tones.extend((0..palette::RUNS).map(|index| (line_class(index), of_run(index), FILL)));
    format!("{}{}", sheet::sheet(&tones), include_str!("runs.css"))
}

fn head(comparison: &Comparison<'_>, title: &str) -> Markup {
    let views: Vec<&View<'_>> = comparison.columns().collect();
    let remarks: Vec<(&str, Vec<String>)> = (comparison.views.iter())
        .map(|view| (view.label.as_str(), view.remarks()))
        .filter(|(_, remarks)| !remarks.is_empty())
        .collect();
    let alike = explain::all_alike(comparison);
    let told = if alike.is_some() { 1 } else { MOST_COLUMNS };
    let reached: Vec<(&View<'_>, String)> =
        (views.iter().take(MOST_COLUMNS)).filter_map(|view| Some((*view, stages::sentence(view)?))).collect();
    markup! {
        header {
            h1 { (title) }
            @if let Some(facts) = facts(comparison) { p.facts { (words::glued(&facts)) } }
            @if comparison.views.is_empty() { p.verdict { "There is no run to show." } }
            @if !remarks.is_empty() {
                div.remarks {
                    @for (label, remarks) in remarks.iter().take(MOST_COLUMNS) {
                        p { @if views.len() > 1 { b { (label) } ": " } (remarks.join("; ")) "." }
                    }
                    @if remarks.len() > MOST_COLUMNS { p { "And " (remarks.len() - MOST_COLUMNS) " more runs." } }
                }
            }
            @if !views.is_empty() {
                h2 { @if views.len() > 1 { "What made the difference" } @else { "What happened" } }
                @if let Some(at) = shown_at(comparison) { p.dim { (at) } }
                ul.sentences {
                    @for view in views.iter().take(told) {
                        li {
                            @if views.len() > 1 { b { (view.label) } }
                            @if let Some(figure) = headline(view) {
                                span.dim[views.len() > 1] {
                                    @if views.len() > 1 { ", " } (words::glued(&figure))
                                }
                            }
                            @if views.len() > 1 || view.relative().is_some() { ": " }
                            (words::glued(&explain::of_view(view, comparison).text)) "."
                        }
                    }
                    @if let Some(alike) = &alike { li { (words::glued(alike)) } }
                }
                @if !reached.is_empty() {
                    h2 { "Stages" }
                    ul.sentences {
                        @for (view, sentence) in &reached {
                            li { @if views.len() > 1 { b { (view.label) } ": " } (words::glued(sentence)) "." }
                        }
                    }
                }
            }
        }
    }
}

/// The figure before a run's sentence.
fn headline(view: &View<'_>) -> Option<String> {
    Some(match explain::headline(view)? {
        Headline::Throughput(relative) => format!("{} of the undisturbed throughput", Percent(relative)),
        Headline::Latency(latency) => latency,
    })
}

/// What all runs were made on, as far as it is the same.
pub(super) fn facts(comparison: &Comparison<'_>) -> Option<String> {
    let first = comparison.views.first()?;
    let facts = first.run.facts();
    let mut parts = vec![words::plural(comparison.runs(), "run")];
    let same =
        |read: &dyn Fn(&View<'_>) -> String| comparison.views.iter().all(|view| read(view) == read(first));
    if same(&|view| view.machine()) {
        parts.push(first.machine());
    }
    if same(&|view| view.run.facts().cpus.to_string()) && facts.cpus > 0 {
        parts.push(words::plural(facts.cpus as usize, "CPU"));
    }
    if same(&|view| view.run.facts().nodes.len().to_string()) && facts.nodes.len() > 1 {
        parts.push(words::plural(facts.nodes.len(), "NUMA node"));
    }
    let seconds = first.seconds();
    if same(&|view| format!("{:.0}", view.seconds())) && seconds > 0.0 {
        parts.push(format!("{} each", words::duration(seconds)));
    }
    Some(parts.join(" · "))
}

/// What a figure of repeats is, if there are repeats.
pub(super) fn repeats_note(comparison: &Comparison<'_>) -> Option<String> {
    let model = comparison.views.iter().all(|view| view.run.facts().machine == RunOn::Model);
    let why = if model { ", which differ in nothing but the seed" } else { "" };
    let runs = comparison.repeated()?;
    Some(format!(
        "Each figure is the median of {runs}{why}; in brackets the smallest and the largest of them."
    ))
}

/// At which value of the sweep the columns are.
pub(super) fn shown_at(comparison: &Comparison<'_>) -> Option<String> {
    let sweep = comparison.sweep.as_ref()?;
    Some(match &sweep.shown {
        Some(label) => format!("The runs at {label}, of the sweep over {}", sweep.said()),
        None => format!("Each variant's run at its largest value, of the sweep over {}", sweep.said()),
    })
}

/// What is left out of a picture or a table of at most so many runs.
fn left_out(comparison: &Comparison<'_>, most: usize) -> Option<String> {
    let n = comparison.shown.len();
    (n > most).then(|| format!("Shown are the first {most} of {n} runs."))
}

fn table(comparison: &Comparison<'_>) -> Markup {
    let all: Vec<&View<'_>> = comparison.columns().collect();
    let rows = measures(&all);
    let views: Vec<&View<'_>> = all.iter().copied().take(MOST_COLUMNS).collect();
    if rows.is_empty() {
        return markup! {
            @if !views.is_empty() { section { h2 { "The measures" } p { "Nothing was measured." } } }
        };
    }
    let several = views.len() > 1;
    markup! {
        section {
            h2 { "The measures" }
            @if let Some(at) = shown_at(comparison) { p.dim { (at) } }
            div.scroll {
                table.measures {
                    thead { tr { th { "" } @for view in &views { th.number { (view.label) @if let Some(ended) = ended(view.run.state()) { small { (ended) } } } } } }
                    tbody { @for row in &rows { (measure(row, views.len())) } }
                }
            }
            @if several {
                p.dim {
                    "★ marks the best. Below a value is its change against " (views[0].label) ": positive is always better, whichever way the measure goes."
                    " Measures without a star only say what happened."
                }
            }
            @if let Some(note) = measured_part(&views) { p.dim { (note) } }
            @if let Some(note) = repeats_note(comparison) {
                p.dim { (note) " Pictures are of the first of them." }
            }
            @if let Some(note) = assumed::times(comparison) { p.dim { (words::glued(&note)) } }
            @if let Some(note) = left_out(comparison, MOST_COLUMNS) { p.dim { (note) } }
            @if let Some(expected) = Expected::of(&views, &rows) { (on_kernels(&expected, &views)) }
        }
    }
}

fn on_kernels(expected: &Expected, views: &[&View<'_>]) -> Markup {
    let (names, columns) = expected.table();
    markup! {
        @if !names.is_empty() {
            h3 { (expected::HEADING) }
            div.scroll {
                table.measures {
                    thead { tr { th { "" } @for view in views { th.number { (view.label) } } } }
                    tbody {
                        @for (row, name) in names.iter().enumerate() {
                            tr { td { (name) } @for column in &columns { td.number { (column[row]) } } }
                        }
                    }
                }
            }
        }
        p.dim { (words::glued(&expected.note)) }
        @if let Some(note) = expected.nearest_note(views) { p.dim { (words::glued(&note)) } }
    }
}

fn measure(row: &Measure, columns: usize) -> Markup {
    let cells = row.values.iter().zip(row.best()).zip(row.gains()).take(columns).enumerate();
    markup! {
        tr {
            td { (row.name) }
            @for (index, ((value, best), gain)) in cells {
                td.number {
                    @if best { span.best { (row.text(*value)) } } @else { (row.text(*value)) }
                    @if let Some(range) = row.range(index) { small { "[" (range) "]" } }
                    @if let Some(gain) = gain { small { (gain_text(gain)) } }
                }
            }
        }
    }
}

/// Which part of the runs counts, if the scenario says.
pub(super) fn measured_part(views: &[&View<'_>]) -> Option<String> {
    let first = views.first()?;
    let window = |from: u64, to: u64| {
        format!("{} to {}", words::duration(from as f64 / 1e9), words::duration(to as f64 / 1e9))
    };
    let figures = first.figures();
    let measured = first.run.facts().measure.window.map(|asked| {
        if let Some(begin) = first.unreached() {
            return format!("{} ended before {begin} s, from which on it is measured", first.label);
        }
        let mut text = format!("Measured from {}", window(figures.window.from, figures.window.to));
        if first.run.state() != State::Complete && figures.window.to < asked.to {
            text += &format!(" instead of {}", words::duration(asked.to as f64 / 1e9));
        }
        text
    });
    let before =
        first.summary.baseline.as_ref().map(|figures| window(figures.window.from, figures.window.to));
    match (measured, before) {
        (Some(measured), Some(before)) => Some(format!("{measured}; the undisturbed part is {before}.")),
        (Some(measured), None) => Some(format!("{measured}.")),
        (None, Some(before)) => Some(format!("All of the run counts; the undisturbed part is {before}.")),
        (None, None) => None,
    }
}

/// Who lost time to memory, a few sentences of each run that tells.
fn blamed(comparison: &Comparison<'_>) -> Markup {
    let views: Vec<&View<'_>> = comparison.columns().take(MOST_COLUMNS).collect();
    let said: Vec<(&View<'_>, String)> = (views.iter())
        .flat_map(|view| blame::sentences(view).into_iter().map(|sentence| (*view, sentence)))
        .collect();
    markup! {
        @if !said.is_empty() {
            section {
                h2 { (blame::HEADING) }
                ul.sentences {
                    @for (view, sentence) in &said {
                        li { @if views.len() > 1 { b { (view.label) } ": " } (words::glued(sentence)) }
                    }
                }
            }
        }
    }
}

/// The picture of a sweep: what the runs were made for.
fn over_sweep(comparison: &Comparison<'_>) -> Markup {
    let picture = bars::over_sweep(comparison);
    picture.map_or_else(Markup::default, |picture| section(&picture, None, sweep_numbers(comparison)))
}

fn plots(comparison: &Comparison<'_>) -> Markup {
    let none = || Markup::default();
    let blocks = left_out(comparison, MOST_BLOCKS);
    let over_time = |picture: Option<Picture>, numbers: &dyn Fn() -> Markup| {
        picture.map_or_else(none, |picture| section(&picture, blocks.as_deref(), numbers()))
    };
    let whole = |picture: Option<Picture>, numbers: &dyn Fn() -> Markup| {
        picture.map_or_else(none, |picture| section(&picture, None, numbers()))
    };
    markup! {
        (over_time(pictures::throughput(comparison), &|| pace_numbers(comparison)))
        (whole(bars::latency(comparison), &|| latency_numbers(comparison)))
        (over_time(pictures::p99(comparison), &none))
        (whole(bars::time_spent(comparison), &|| spent_numbers(comparison)))
        (over_time(pictures::free_and_scans(comparison), &|| zone_numbers(comparison)))
        (over_time(pictures::lists(comparison), &|| list_numbers(comparison)))
        (over_time(spaces::spaces(comparison), &|| space_numbers(comparison)))
        (over_time(pictures::traffic(comparison), &|| traffic_numbers(comparison)))
    }
}

fn section(picture: &Picture, note: Option<&str>, numbers: Markup) -> Markup {
    let mut caption = picture.caption.clone();
    if let Some(note) = note {
        caption = format!("{caption} {note}").trim().to_owned();
    }
    let numbers = numbers.into_string();
    markup! {
        section {
            h2 { (words::glued(&picture.message)) }
            figure {
                div.wide { (PreEscaped(&picture.wide)) }
                div.narrow { (PreEscaped(&picture.narrow)) }
                @if !caption.is_empty() { figcaption { (words::glued(&caption)) } }
            }
            @if !numbers.is_empty() {
                details { summary.dim { "The figures" } div.scroll { (PreEscaped(numbers)) } }
            }
        }
    }
}

/// A table of figures: heads, then rows whose first cells are names.
fn figures(heads: &[String], rows: &[(String, Vec<String>)]) -> Markup {
    markup! {
        table.figures {
            thead { tr { @for (i, head) in heads.iter().enumerate() { th.number[i > 0] { (head) } } } }
            tbody {
                @for (name, cells) in rows {
                    tr { td { (name) } @for cell in cells { td.number { (cell) } } }
                }
            }
        }
    }
}

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn sweep_numbers(comparison: &Comparison<'_>) -> Markup {
    let Some(sweep) = &comparison.sweep else { return Markup::default() };
    let swept = Swept::of(comparison);
    let mut values: Vec<(f64, String)> = comparison
        .views
        .iter()
        .filter_map(|view| view.point.as_ref().map(|point| (point.number, point.label.clone())))
        .collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    values.dedup_by(|a, b| a.0 == b.0);
    let mut heads = vec![sweep.title.clone()];
    heads.extend(sweep.lines.iter().map(|(label, _)| label.clone()));
    let cell = |line: &[(f64, usize)], at: f64| {
        let view =
            line.iter().find(|(value, _)| *value == at).and_then(|(_, index)| comparison.views.get(*index));
        match view.and_then(|view| swept.value(view)) {
            Some(value) if swept == Swept::Relative => Percent(value).to_string(),
            Some(value) if swept == Swept::Refused => Grouped(value as u64).to_string(),
            Some(value) => format!("{value:.1}"),
            None => "–".to_owned(),
        }
    };
    let rows: Vec<(String, Vec<String>)> = values
        .into_iter()
        .map(|(at, label)| (label, sweep.lines.iter().map(|(_, line)| cell(line, at)).collect()))
        .collect();
    figures(&heads, &rows)
}

fn each_view(
    comparison: &Comparison<'_>,
    heads: &[String],
    cells: impl Fn(&View<'_>) -> Vec<Vec<String>>,
) -> Markup {
    let mut rows = Vec::new();
    for view in comparison.columns().take(MOST_COLUMNS) {
        for mut row in cells(view) {
            let name = if row.is_empty() { String::new() } else { row.remove(0) };
            let name = if name.is_empty() { view.label.clone() } else { format!("{}: {name}", view.label) };
            rows.push((name, row));
        }
    }
    figures(heads, &rows)
}

fn pace_numbers(comparison: &Comparison<'_>) -> Markup {
    let heads = heads(&["requests per second", "undisturbed", "least", "mean", "most"]);
    each_view(comparison, &heads, |view| {
        let rate = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.1}"));
        let all = || view.pace.iter().map(|pace| pace.per_second);
        let before = view.undisturbed.as_ref().and_then(lotsfree_analysis::view::Work::per_second);
        let mean = view.work.per_second();
        vec![vec![
            String::new(),
            rate(before),
            rate(all().reduce(f64::min)),
            rate(mean),
            rate(all().reduce(f64::max)),
        ]]
    })
}

fn latency_numbers(comparison: &Comparison<'_>) -> Markup {
    let heads = heads(&["latency", "requests", "mean", "p50", "p99", "p99.9", "max"]);
    each_view(comparison, &heads, |view| {
        let count = Grouped(view.work.latency.count()).to_string();
        let mut cells = vec![String::new(), count];
        match Latency::of(&view.work.latency) {
            Some(Latency { mean, p50, p99, p999, max }) => {
                cells.push(nanoseconds(mean));
                cells.extend([p50, p99, p999, max].map(|ns| nanoseconds(ns as f64)));
            }
            None => cells.extend(["–"; 5].map(str::to_owned)),
        }
        vec![cells]
    })
}

fn spent_numbers(comparison: &Comparison<'_>) -> Markup {
    let names = spent(&Spent::default()).map(|(name, _)| name);
    let mut heads = vec!["time per request".to_owned()];
    heads.extend(names.map(str::to_owned));
    each_view(comparison, &heads, |view| {
        let whole = busy(&view.work.spent);
        let requests = view.work.operations;
        let cell = |ns: u64| match requests {
            0 => "–".to_owned(),
            n => format!("{} ({})", nanoseconds(ns as f64 / n as f64), Percent(ns as f64 / whole.max(1.0))),
        };
        let mut cells = vec![String::new()];
        cells.extend(spent(&view.work.spent).map(|(_, ns)| cell(ns)));
        vec![cells]
    })
}

fn zone_numbers(comparison: &Comparison<'_>) -> Markup {
    let heads = heads(&[
        "pages",
        "min",
        "low",
        "high",
        "least free",
        "mean free",
        "most free",
        "samples below low",
        "below min",
    ]);
    each_view(comparison, &heads, |view| {
        let pages = |pages: u64| Grouped(pages).to_string();
        let zones = view.summary.whole.zones.iter().map(|zone| {
            let free = zone.free;
            vec![
                format!("node {}, {}", zone.node, zone.zone),
                pages(zone.min),
                pages(zone.low),
                pages(zone.high),
                pages(free.min),
                pages(free.mean as u64),
                pages(free.max),
                Percent(zone.below_low).to_string(),
                Percent(zone.below_min).to_string(),
            ]
        });
        zones.collect()
    })
}

fn list_numbers(comparison: &Comparison<'_>) -> Markup {
    let heads = heads(&["list", "first", "last", "least", "mean", "most"]);
    each_view(comparison, &heads, |view| {
        let bytes = |pages: f64| Bytes((pages * view.page()) as u64).to_string();
        let row = |(counter, _, label): &(&str, &str, &str)| {
            let Level { first, last, min, mean, max } = *view.summary.whole.levels.get(*counter)?;
            let all = [first as f64, last as f64, min as f64, mean, max as f64];
            Some(std::iter::once((*label).to_owned()).chain(all.map(bytes)).collect())
        };
        LISTS.iter().filter_map(row).collect()
    })
}

fn space_numbers(comparison: &Comparison<'_>) -> Markup {
    each_view(comparison, &heads(&["", "least", "most"]), spaces::numbers)
}

fn traffic_numbers(comparison: &Comparison<'_>) -> Markup {
    let heads = heads(&["per second", "mean", "most"]);
    each_view(comparison, &heads, |view| {
        let row = |&(_, name, counter, counted): &(&str, &str, _, pictures::Counted)| {
            let rates = pictures::rates(view, &[counter], counted.unit(view));
            let known = || rates.iter().filter_map(|(from, to, rate)| Some((to - from, (*rate)?)));
            let seconds: f64 = known().map(|(seconds, _)| seconds).sum();
            let mean = known().map(|(seconds, rate)| seconds * rate).sum::<f64>() / seconds;
            let most = known().map(|(_, rate)| rate).reduce(f64::max)?;
            let text = |rate: f64| match counted {
                pictures::Counted::Events => format!("{rate:.1}"),
                _ => Bytes(rate as u64).to_string(),
            };
            Some(vec![name.trim_end_matches(" per second").to_owned(), text(mean), text(most)])
        };
        TRAFFIC.iter().filter_map(row).collect()
    })
}

/// What the runs are: where, when, with which settings; and what happened in them.
fn about(comparison: &Comparison<'_>) -> Markup {
    let views: Vec<&View<'_>> = comparison.columns().take(MOST_COLUMNS).collect();
    let different = settings(&views);
    markup! {
        @if !views.is_empty() {
            section {
                h2 { "The runs" }
                @if !different.is_empty() {
                    div.scroll {
                        table {
                            thead { tr { th { "setting that differs" } @for view in &views { th { (view.label) } } } }
                            tbody {
                                @for (name, values) in &different {
                                    tr { td { code { (name) } } @for value in values { td { (value) } } }
                                }
                            }
                        }
                    }
                }
                @for view in &views {
                    details {
                        summary { b { (view.label) } ": " (view.machine()) @if let Some(ended) = ended(view.run.state()) { ", " (ended) } }
                        @if let Some(directory) = view.run.directory() { p.dim { "Directory " code { (directory.display()) } } }
                        p.dim {
                            "lotsfree " (view.run.facts().lotsfree) ", " (words::plural(view.run.samples().len(), "sample"))
                            ", " (words::duration(view.seconds()))
                            @if let Some(calibration) = &view.run.facts().calibration { ", costs as of " (calibration.name) }
                        }
                        (event_list(view.run.events()))
                    }
                }
            }
        }
    }
}

fn event_list(events: &[Event]) -> Markup {
    markup! {
        @if !events.is_empty() {
            ul {
                @for event in events.iter().take(MOST_EVENTS) {
                    li { (format!("{:.1} s", event.at as f64 / 1e9)) " " (pictures::event_name(event)) }
                }
                @if events.len() > MOST_EVENTS { li { "and " (events.len() - MOST_EVENTS) " more" } }
            }
        }
    }
}

/// Generation and settings that are not the same in all runs.
fn settings(views: &[&View<'_>]) -> Vec<(String, Vec<String>)> {
    let names: std::collections::BTreeSet<&String> =
        views.iter().flat_map(|view| view.run.facts().sysctls.keys()).collect();
    let mut rows = vec![("kernel".to_owned(), views.iter().map(|view| view.machine()).collect::<Vec<_>>())];
    rows.extend(names.into_iter().map(|name| {
        let value = |view: &&View<'_>| {
            view.run.facts().sysctls.get(name).map_or("–", |value| value.trim()).to_owned()
        };
        (name.clone(), views.iter().map(value).collect())
    }));
    // Settings and the kernel are there already, as the machine had them.
    let keys: std::collections::BTreeSet<&String> = views.iter().flat_map(|view| view.keys.keys()).collect();
    let keys = keys.into_iter().filter(|key| {
        ["actor.", "machine.", "file.", "calibration."].iter().any(|head| key.starts_with(head))
            && !key.ends_with(".name")
    });
    rows.extend(keys.map(|key| {
        let value = |view: &&View<'_>| match view.keys.get(key) {
            Some(value) => value.trim_matches('"').to_owned(),
            None => "–".to_owned(),
        };
        (key.clone(), views.iter().map(value).collect())
    }));
    rows.retain(|(_, values)| values.iter().any(|value| Some(value) != values.first()));
    rows
}
