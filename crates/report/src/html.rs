//! html.

use crate::Report;

/// The report.
pub fn html(report: &Report) -> String {
    let _ = report;
    String::new()
}
