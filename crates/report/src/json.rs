//! JSON and its schema.

use lotsfree_units::visible_json;

use crate::Report;

/// The report as JSON, indented.
///
/// # Errors
/// If a number is not finite, which no finding's is.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    Ok(visible_json(serde_json::to_string_pretty(report)? + "\n"))
}

/// The JSON Schema (draft 2020-12) of [`json`]'s output.
pub fn schema() -> String {
    schema_of::<Report>()
}

/// The JSON Schema of a document.
pub(crate) fn schema_of<T: schemars::JsonSchema>() -> String {
    // For what is written: what may be left out is not required.
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}
