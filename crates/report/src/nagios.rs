//! One line and an exit status, as monitoring plugins give them.

use lotsfree_doctor::Severity;
use lotsfree_units::visible_line;
use lotsfree_units::words::plural;

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

/// The line and the status. Findings of at least the severity `from` are WARNING, critical ones CRITICAL;
/// with `None` no finding is. If no rule could judge anything the status is UNKNOWN. The counts are of all
/// findings.
pub fn nagios(report: &Report, from: Option<Severity>) -> (String, NagiosStatus) {
    let status = match report.worst().filter(|worst| from.is_some_and(|from| *worst >= from)) {
        Some(Severity::Critical) => NagiosStatus::Critical,
        Some(_) => NagiosStatus::Warning,
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
        (Some(_), NagiosStatus::Ok) => {
            format!("{} below what is asked for", plural(report.findings.len(), "finding"))
        }
        (None, _) => format!("{} rules found nothing", report.fine.len()),
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
