//! Scenarios on a real kernel: this host, a control group of it, a virtual machine.
//!
//! ```text
//! Local: Changes ──────────────────────┐
//! VirtualMachine: QEMU ── guest::init ─┴─▶ coordinate ── agents (one process per actor) ──▶ Output
//!                                             └────── Sampler (/proc, /sys) ──────────────▲
//! ```

pub mod agent;
pub mod calibrate;
mod command;
mod coordinator;
mod error;
mod group;
pub mod guest;
mod here;
mod local;
mod prepare;
mod toll;
mod virtual_machine;
pub mod vm;

pub use calibrate::{Calibration, Effort};
pub use coordinator::{Place, coordinate};
pub use error::LabError;
pub use here::{Output, Stage, Watch};
pub use local::{Local, Plan, Session};
pub use virtual_machine::VirtualMachine;
