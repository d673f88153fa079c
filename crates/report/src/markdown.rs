//! markdown.

use crate::Report;

/// The report.
pub fn markdown(report: &Report) -> String {
    let _ = report;
    String::new()
}
