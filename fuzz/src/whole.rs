//! Fuzzes amounts of memory, and the whole way from bytes to reports.

use lotsfree_doctor::{Severity, diagnose};
use lotsfree_report::{Report, TextOptions};
use lotsfree_snapshot::source::open_bytes;
use lotsfree_snapshot::{Options, observe};
use lotsfree_units::Bytes;

use crate::seeds::Fixture;

/// Fuzzes amounts of memory as users write them.
pub(crate) fn bytes(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<Bytes>() {
        Err(error) => assert!(error.to_string().len() < 400 + 12 * text.len()),
        Ok(amount) => {
            let exact = amount.0.to_string();
            assert_eq!(exact.parse(), Ok(amount));
            for printed in [amount.to_string(), format!("{amount:#}")] {
                let _ = printed.parse::<Bytes>();
            }
        }
    }
}

/// Seeds: amounts of every kind.
pub(crate) fn byte_seeds(_: &Fixture) -> Vec<Vec<u8>> {
    let amounts =
        ["8GiB", "1.5 G", "512m", "4096", "1591860 kB", "1,591,860 kB", "16 EiB", "18446744073709551615"];
    amounts.iter().map(|amount| amount.as_bytes().to_vec()).collect()
}

/// Fuzzes the way from bytes to instants, findings and every form of report.
pub(crate) fn doctor(data: &[u8]) {
    let Ok(mut input) = open_bytes(data, "fuzz") else { return };
    // Rates need two instants; more than three only take longer.
    if input.samples.len() > 3 {
        let last = input.samples.pop();
        input.samples.truncate(2);
        input.samples.extend(last);
    }
    let observation = observe(input, &Options::default());
    let diagnosis = diagnose(&observation);
    for finding in &diagnosis.findings {
        assert!(finding.cost.share.is_finite(), "{}: a share of {}", finding.rule, finding.cost.share);
        for figure in [finding.cost.faults_per_second, finding.cost.stalled].into_iter().flatten() {
            assert!(figure.is_finite(), "{}: a cost of {figure}", finding.rule);
        }
    }
    let report = Report::new(&observation, diagnosis);
    for width in [0, 80, usize::MAX] {
        let text = lotsfree_report::text(&report, TextOptions { width, color: width == 80, verbose: true });
        assert!(!text.is_empty());
    }
    let json = match lotsfree_report::json(&report) {
        Ok(json) => json,
        Err(error) => panic!("{error}"),
    };
    assert!(json.starts_with('{') && json.ends_with("}\n"));
    let _ = (
        lotsfree_report::markdown(&report),
        lotsfree_report::html(&report),
        lotsfree_report::nagios(&report, Some(Severity::Warning)),
    );
}
