//! `/proc/pressure/{memory,io,cpu}` and a cgroup's `memory.pressure`: pressure stall information (4.20 and later,
//! `psi=1` on some distributions).

use serde::Serialize;

/// The three files of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// `memory`.
    pub memory: Option<Psi>,
    /// `io`.
    pub io: Option<Psi>,
    /// `cpu`.
    pub cpu: Option<Psi>,
}

/// One resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Psi {
    /// At least one task stalled.
    pub some: Option<Stall>,
    /// All non-idle tasks stalled at once (absent for cpu before 5.13).
    pub full: Option<Stall>,
}

/// Averages in percent and the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stall {
    /// Share of the last 10 s, in percent.
    pub avg10: f64,
    /// Share of the last 60 s, in percent.
    pub avg60: f64,
    /// Share of the last 300 s, in percent.
    pub avg300: f64,
    /// Microseconds since boot.
    pub total_us: u64,
}
