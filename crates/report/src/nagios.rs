//! One line and an exit status, as monitoring plugins give them.

use lotsfree_doctor::Severity;
use lotsfree_units::visible_line;

use crate::Report;

/// A plugin's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NagiosStatus {
    /// 0
    Ok,
    /// 1
    Warning,
    /// 2
    Critical,
    /// 3
    Unknown,
}

impl NagiosStatus {
    /// The process exit code.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// The line where nothing could be read, for a status of UNKNOWN.
pub fn nagios_unknown(why: &str) -> String {
    format!("LOTSFREE UNKNOWN - {}\n", visible_line(why).replace('|', " "))
}

/// The line and the status. Warnings and high findings are WARNING, critical ones CRITICAL; if no rule could
/// judge anything the status is UNKNOWN.
pub fn nagios(report: &Report) -> (String, NagiosStatus) {
    let status = match report.worst() {
        Some(Severity::Critical) => NagiosStatus::Critical,
        Some(Severity::High | Severity::Warning) => NagiosStatus::Warning,
        _ if report.fine.is_empty() && report.findings.is_empty() => NagiosStatus::Unknown,
        _ => NagiosStatus::Ok,
    };
    let word = match status {
        NagiosStatus::Ok => "OK",
        NagiosStatus::Warning => "WARNING",
        NagiosStatus::Critical => "CRITICAL",
        NagiosStatus::Unknown => "UNKNOWN",
    };
    let count = |severity| report.findings.iter().filter(|f| f.severity == severity).count();
    let first = match (report.findings.first(), status) {
        (Some(finding), NagiosStatus::Warning | NagiosStatus::Critical) => finding.title.clone(),
        (_, NagiosStatus::Unknown) => "nothing could be judged".to_owned(),
        _ => format!("{} rules found nothing", report.fine.len()),
    };
    let line = format!(
        "LOTSFREE {word} - {} | critical={} high={} warning={} info={}\n",
        visible_line(&first).replace('|', " "),
        count(Severity::Critical),
        count(Severity::High),
        count(Severity::Warning),
        count(Severity::Info)
    );
    (line, status)
}
