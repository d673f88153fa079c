//! An executable model of the memory management of Linux.
//!
//! [`mm`] is the state of memory and the kernel's rules, without time. The rules differ by [`Generation`], a
//! record of switches. [`Costs`] says what operations cost in time, and [`Tuning`] holds the sysctls.

mod generation;
pub mod machine;
pub mod mm;
mod model;
mod tuning;

pub use generation::{Generation, NAMES};
pub use lotsfree_scenario::Costs;
pub use model::{SimulateError, bytes, config, facts, simulate};
pub use tuning::Tuning;
