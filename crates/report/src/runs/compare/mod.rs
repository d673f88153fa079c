//! Runs compared, as text, Markdown and JSON.

mod grid;
mod markdown;
mod text;

pub use grid::{Grid, orders_sentence};
pub(super) use grid::{KEY, REPEATS, cells, size};
use lotsfree_analysis::compare::Compared;
pub use markdown::{MarkdownOptions, compare_markdown, table_markdown};
pub use text::compare_text;

/// As JSON, indented; `docs/schema/compare-1.json` is its schema.
///
/// # Errors
/// As [`serde_json::to_string_pretty`]; no run that can be read brings one about.
pub fn compare_json(compared: &Compared) -> serde_json::Result<String> {
    Ok(lotsfree_units::visible_json(serde_json::to_string_pretty(compared)? + "\n"))
}

/// The JSON Schema (draft 2020-12) of [`compare_json`]'s output.
pub fn compare_schema() -> String {
    crate::json::schema_of::<Compared>()
}
