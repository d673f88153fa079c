//! Scenarios on a real kernel.

pub mod vm;
