//! The table of strategies of a scenario, as text and JSON.

use lotsfree_analysis::assumed;
use lotsfree_analysis::measure::nanoseconds;
use lotsfree_analysis::strategies::{Gain, gains};
use lotsfree_analysis::view::Comparison;
use lotsfree_run::Run;
use lotsfree_scenario::Strategies;
use lotsfree_units::{Bytes, Percent};
use schemars::JsonSchema;
use serde::Serialize;

use super::text::{BOLD, Cell, DIM, PLAIN, Page};
use crate::TextOptions;
use crate::words::enumeration;

/// The format's name; raised when a field changes its meaning or goes.
const SCHEMA: &str = "lotsfree.strategies/1";

/// A table of strategies with its figures.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct StrategiesReport {
    /// `lotsfree.strategies/1`.
    schema: &'static str,
    /// Version of lotsfree that wrote it.
    lotsfree: &'static str,
    /// What the table shows.
    title: String,
    /// The actor that the measured one is protected from; `null` if the table names none.
    from: Option<String>,
    /// The rows, in the scenario's order.
    strategies: Vec<Gain>,
}

/// What each strategy protects and costs, by runs of its variants, as JSON;
/// `docs/schema/strategies-1.json` is its schema.
///
/// # Errors
/// As [`serde_json::to_string_pretty`]; no run that can be read brings one about.
pub fn strategies_json(table: &Strategies, runs: &[Run]) -> serde_json::Result<String> {
    let report = StrategiesReport {
        schema: SCHEMA,
        lotsfree: env!("CARGO_PKG_VERSION"),
        title: table.title.clone(),
        from: table.from.clone(),
        strategies: gains(table, &Comparison::of(runs)),
    };
    Ok(lotsfree_units::visible_json(serde_json::to_string_pretty(&report)? + "\n"))
}

/// The JSON Schema (draft 2020-12) of [`strategies_json`]'s output.
pub fn strategies_schema() -> String {
    crate::json::schema_of::<StrategiesReport>()
}

/// The same as text: the figures, then what each strategy needs and which kernels have it.
pub fn strategies_text(table: &Strategies, runs: &[Run], options: TextOptions) -> String {
    let comparison = Comparison::of(runs);
    let gains = gains(table, &comparison);
    let mut page = Page::new(options);
    page.wrapped(&table.title, "", BOLD);
    page.blank();
    let names: Vec<String> = gains.iter().map(|gain| gain.strategy.clone()).collect();
    let other = table.from.clone().unwrap_or_default();
    let share = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| Percent(share).to_string());
    let time = |ns: Option<u64>| ns.map_or_else(|| "–".to_owned(), |ns| nanoseconds(ns as f64));
    let kept = |gain: &Gain| format!("{} → {}", share(gain.kept_without), share(gain.kept));
    let p99 = |gain: &Gain| format!("{} → {}", time(gain.p99_without), time(gain.p99));
    let mut heads = vec!["throughput", "p99", "alone"];
    let mut cells: Vec<Vec<String>> = vec![
        gains.iter().map(kept).collect(),
        gains.iter().map(p99).collect(),
        gains.iter().map(|gain| share(gain.undisturbed)).collect(),
    ];
    if table.from.is_some() {
        heads.push(&other);
        cells.push(gains.iter().map(|gain| share(gain.other)).collect());
    }
    heads.push("cost");
    cells.push(gains.iter().map(cost).collect());
    let heads: Vec<String> = heads.into_iter().map(str::to_owned).collect();
    let plain = |cells: Vec<String>| cells.into_iter().map(|text| Cell { text, style: PLAIN }).collect();
    let columns: Vec<Vec<Cell>> = cells.into_iter().map(plain).collect();
    page.columns(&names, &heads, &columns);
    page.wrapped(&legend(table), "", DIM);
    page.blank();
    for gain in &gains {
        let at = gain.at.as_ref().filter(|at| table.at.as_ref() != Some(*at));
        let at = at.map_or_else(String::new, |at| format!("; at {at}"));
        let Gain { strategy, variant, needs, kernels, .. } = gain;
        page.wrapped(&format!("{strategy} ({variant}{at}): {needs}. Kernels: {kernels}."), "  ", PLAIN);
    }
    if let Some(remark) = assumed::times(&comparison) {
        page.blank();
        page.wrapped(&remark, "", DIM);
    }
    page.out
}

/// Memory that a strategy takes from everybody else, and whom it cost.
fn cost(gain: &Gain) -> String {
    /// Less is a matter of what the kernel keeps for itself.
    const NOTICEABLE: i64 = 16 << 20;
    let bytes = |bytes: i64| Bytes(bytes.unsigned_abs());
    let mut parts = Vec::new();
    if gain.bound_bytes >= NOTICEABLE {
        parts.push(format!("{} bound", bytes(gain.bound_bytes)));
    }
    if gain.memory_bytes >= NOTICEABLE {
        parts.push(format!("{} of RAM", bytes(gain.memory_bytes)));
    }
    if !gain.killed.is_empty() {
        parts.push(format!("{} killed", enumeration(&gain.killed)));
    }
    if parts.is_empty() { "–".to_owned() } else { parts.join(", ") }
}

/// What the columns are.
fn legend(table: &Strategies) -> String {
    let other = table.from.as_ref().map(|other| format!("; {other}: what it gets done, of that without"));
    let point = table.at.as_ref().map(|at| format!(" At {at} of the sweep, where nothing else is said."));
    format!(
        "throughput: of the undisturbed, without the strategy and with it; p99: within what time 99 in 100 requests \
         ended, likewise; alone: throughput before anything disturbs, of that without{}; cost: memory that reclaim cannot \
         have, memory that was bought, and who was killed.{}",
        other.unwrap_or_default(),
        point.unwrap_or_default()
    )
}
