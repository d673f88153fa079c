//! [`Facts`]: the facts of a run, which stay the same while it lasts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The machine, kernel, settings and scenario of a run.
///
/// Nothing here may differ between two runs of the same scenario, seed, machine and version: real time is
/// kept apart, in [`Timing`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Version of lotsfree that made the run.
    pub lotsfree: String,
    /// The scenario's title.
    pub title: String,
    /// The variant of the scenario; `None` for the scenario as it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Model or kernel.
    pub machine: RunOn,
    /// The generation whose rules the model follows, such as `linux-6.1`; for a kernel, its release.
    pub kernel: String,
    /// `/proc/sys/kernel/osrelease`, such as `6.1.0` for a model of 6.1.
    pub osrelease: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Bytes of a base page.
    pub page_size: u64,
    /// NUMA nodes, ascending.
    pub nodes: Vec<NodeFacts>,
    /// Settings in force when the run began, by sysctl name (`vm.swappiness`), as the kernel prints them.
    pub sysctls: BTreeMap<String, String>,
    /// Other files of `/proc`, `/sys` and `/etc` that did not change during the run, by path without a
    /// leading slash: `sys/kernel/mm/lru_gen/enabled`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Costs of operations on the model; `None` on a kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<CalibrationFacts>,
    /// Further remarks on the machine: how it is emulated, and how it differs from the scenario's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Seconds since the machine's boot when the run began.
    pub uptime: f64,
    /// Nanoseconds between samples.
    pub interval: u64,
    /// Duration that the scenario asks for, in nanoseconds.
    pub duration: u64,
    /// The parts of the run that are measured.
    pub measure: Measured,
}

/// The machine that executed the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOn {
    /// The model.
    #[default]
    Model,
    /// The kernel of a host.
    Host,
    /// A memory control group of a host.
    Cgroup,
    /// A virtual machine.
    Vm,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The node's number.
    pub id: u32,
    /// The node's CPUs, ascending; none for a node with memory only.
    pub cpus: Vec<u32>,
    /// Distance to each node, in node order; 10 to itself.
    pub distance: Vec<u32>,
}

/// Costs of operations on the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationFacts {
    /// Name of the record: of a shipped one, or of the machine that it was measured on.
    pub name: String,
    /// The costs by name; the unit is part of the name (`minor_fault_ns`).
    pub costs: BTreeMap<String, f64>,
}

/// The scenario's `[measure]`: the parts of a run that count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The undisturbed part that throughput is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Window>,
    /// The part that is judged; `None`: the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Start of the part, in nanoseconds since the run began.
    pub from: u64,
    /// End of the part, in nanoseconds since the run began.
    pub to: u64,
}

/// The real time that a run took. It differs from run to run, so it has a file of its own (`timing.json`),
/// which comparisons leave out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Seconds since the epoch when the run began.
    pub started: f64,
    /// Real seconds that the run took.
    pub seconds: f64,
}
