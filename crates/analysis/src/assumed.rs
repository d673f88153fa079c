//! [`times`]: what the times of runs on the model rest on.

use std::collections::BTreeSet;

use lotsfree_run::RunOn;
use lotsfree_scenario::{CalibrationSpec, Costs};
use lotsfree_units::words::enumeration;

use crate::view::{Comparison, View};

/// Says where the costs behind the model's times are from, and which way they err; `None` if no run is on the
/// model.
pub fn times(comparison: &Comparison<'_>) -> Option<String> {
    let models: Vec<&View<'_>> =
        comparison.views.iter().filter(|view| view.run.facts().machine == RunOn::Model).collect();
    let first = models.first()?;
    let names: BTreeSet<&str> = (models.iter())
        .filter_map(|view| view.run.facts().calibration.as_ref())
        .map(|calibration| calibration.name.as_str())
        .collect();
    let same = |key: &str| {
        let value = first.keys.get(key)?;
        let all = models.iter().all(|view| view.keys.get(key) == Some(value));
        all.then(|| value.trim_matches('"').to_owned())
    };
    let device = |name: &str| {
        let [latency, bandwidth] = ["latency", "bandwidth"].map(|key| same(&format!("machine.{name}.{key}")));
        Some(format!("{name}: {}, {}", latency?.replace(" us", " µs"), bandwidth?))
    };
    let named: Vec<String> = ["disk", "swap"].into_iter().filter_map(device).collect();
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join("; ")) };
    let devices = format!("devices are as fast as the scenario or its defaults say{named}");
    if names.contains(CalibrationSpec::DEFAULT) || names.is_empty() {
        let stated: Vec<String> = (first.keys.keys())
            .filter_map(|key| key.strip_prefix("calibration.").filter(|cost| *cost != "record"))
            .map(|cost| format!("`{cost}`"))
            .collect();
        let except = match stated.as_slice() {
            [] => String::new(),
            stated => format!(" except for {}, which the scenario states", enumeration(stated)),
        };
        let (least, most) = Costs::optimism();
        return Some(format!(
            "The model's times are optimistic: the costs of the kernel's work are its own estimates{except} (zeroing a page \
             and submitting a request took {least:.0} to {most:.0} times as long on the server where they were measured), and \
             {devices}. `lotsfree lab calibrate -o host.toml` measures a host, and `--calibration host.toml` takes its costs."
        ));
    }
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    Some(format!(
        "The model's times rest on costs that were measured on {}, and {devices}.",
        enumeration(&names)
    ))
}
