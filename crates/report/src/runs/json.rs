//! Runs side by side as JSON.

use lotsfree_analysis::assumed;
use lotsfree_analysis::blame::Blame;
use lotsfree_analysis::compare::Span;
use lotsfree_analysis::explain::{self, Mechanism};
use lotsfree_analysis::measure::measures;
use lotsfree_analysis::nearest::Known;
use lotsfree_analysis::view::{Comparison, View};
use lotsfree_run::{Run, State, Summary};
use lotsfree_units::visible_json;
use serde::Serialize;

use super::expected::Expected;

/// The format's name; raised when a field changes its meaning or goes.
const SCHEMA: &str = "lotsfree.runs/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    lotsfree: &'static str,
    title: String,
    /// The runs in the order given, repeats as one; the first is what the others are compared with.
    runs: Vec<OneRun<'a>>,
    /// That nothing distinguishes any run from the first, and what to vary then; absent if something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    all_alike: Option<String>,
    /// What the model's times rest on and which way they err; absent where no run is on the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<String>,
    /// One row per measure; values are those of the runs with `shown`, in their order.
    measures: Vec<Row>,
}

#[derive(Serialize)]
struct OneRun<'a> {
    label: &'a str,
    directory: Option<String>,
    machine: lotsfree_run::RunOn,
    kernel: &'a str,
    state: State,
    remarks: Vec<String>,
    sweep: Option<Point<'a>>,
    /// Whether the run has a column in `measures`.
    shown: bool,
    throughput_relative: Option<f64>,
    mechanism: Mechanism,
    explanation: String,
    /// Who lost time to memory and who took it; absent where the rows do not tell, or nobody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    blame: Option<Blame>,
    /// Of a run on the model, the experiment that is most like it, with how far off the model is there;
    /// absent where no kernel of its generation was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    nearest: Option<Known>,
    /// Of the run, or of the first of its repeats.
    summary: &'a Summary,
    /// The run and its repeats, if it was repeated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    repeats: Vec<Repeat<'a>>,
}

/// One of the repeats of a run.
#[derive(Serialize)]
struct Repeat<'a> {
    directory: Option<String>,
    seed: Option<u64>,
    summary: &'a Summary,
}

#[derive(Serialize)]
struct Point<'a> {
    key: &'a str,
    label: &'a str,
    value: f64,
    unit: Option<&'a str>,
}

#[derive(Serialize)]
struct Row {
    key: &'static str,
    name: &'static str,
    unit: &'static str,
    /// `higher`, `lower`, or `null` where neither way is better.
    better: Option<&'static str>,
    /// Of repeats the median.
    values: Vec<Option<f64>>,
    /// Of repeats the smallest and the largest value and how many there are; absent where no run was
    /// repeated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spread: Vec<Option<Spread>>,
    best: Vec<bool>,
    /// Relative change against the first run, positive if it is better.
    gain: Vec<Option<f64>>,
    /// Of runs on the model, between which figures a kernel's lies in nine of ten cases; absent where that is
    /// not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    on_kernels: Vec<Option<(f64, f64)>>,
}

/// What the repeats of a run differ by.
#[derive(Serialize)]
struct Spread {
    min: f64,
    max: f64,
    repeats: usize,
}

/// Runs side by side as JSON: each with its summary and the mechanism that made the difference, and the table
/// of measures. Figures are in the unit that their key names.
///
/// # Errors
/// As [`serde_json::to_string_pretty`]; no run that can be read brings one about.
pub fn runs_json(runs: &[Run]) -> serde_json::Result<String> {
    let comparison = Comparison::of(runs);
    let spread =
        |span: &Option<Span>| span.map(|span| Spread { min: span.min, max: span.max, repeats: span.repeats });
    let shown: Vec<&View<'_>> = comparison.columns().collect();
    let measures = measures(&shown);
    let expected = Expected::of(&shown, &measures);
    let nearest = |index: &usize| {
        let column = comparison.shown.iter().position(|shown| shown == index)?;
        expected.as_ref()?.nearest.get(column).cloned().flatten()
    };
    let run = |(index, view)| OneRun { nearest: nearest(&index), ..one(&comparison, index, view) };
    let row = |measure: lotsfree_analysis::measure::Measure| Row {
        on_kernels: expected.as_ref().map(|expected| expected.ends(measure.key)).unwrap_or_default(),
        spread: match comparison.repeated() {
            Some(_) => measure.spans.iter().map(spread).collect(),
            None => Vec::new(),
        },
        key: measure.key,
        name: measure.name,
        unit: measure.unit.name(),
        better: measure.better.name(),
        best: measure.best(),
        gain: measure.gains(),
        values: measure.values,
    };
    let document = Document {
        schema: SCHEMA,
        lotsfree: env!("CARGO_PKG_VERSION"),
        title: comparison.title(),
        runs: comparison.views.iter().enumerate().map(run).collect(),
        all_alike: explain::all_alike(&comparison),
        times: assumed::times(&comparison),
        measures: measures.into_iter().map(row).collect(),
    };
    Ok(visible_json(serde_json::to_string_pretty(&document)? + "\n"))
}

fn one<'a, 'r>(comparison: &'a Comparison<'r>, index: usize, view: &'a View<'r>) -> OneRun<'a> {
    let sentence = explain::of_view(view, comparison);
    let facts = view.run.facts();
    OneRun {
        label: &view.label,
        directory: view.run.directory().map(|path| path.display().to_string()),
        machine: facts.machine,
        kernel: &facts.kernel,
        state: view.run.state(),
        remarks: view.remarks(),
        sweep: view.point.as_ref().map(|point| Point {
            key: &point.key,
            label: &point.label,
            value: point.number,
            unit: point.unit.as_deref(),
        }),
        shown: comparison.shown.contains(&index),
        throughput_relative: view.relative(),
        mechanism: sentence.mechanism,
        explanation: sentence.text,
        blame: super::blame::of_view(view),
        nearest: None,
        summary: &view.summary,
        repeats: match view.repeats.is_empty() {
            true => Vec::new(),
            false => view.all().map(repeat).collect(),
        },
    }
}

fn repeat<'a>(view: &'a View<'_>) -> Repeat<'a> {
    let directory = view.run.directory().map(|path| path.display().to_string());
    Repeat { directory, seed: view.seed, summary: &view.summary }
}
