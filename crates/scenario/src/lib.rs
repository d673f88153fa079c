//! The scenario file: a machine, what is tuned on it, and the actors that load it.
//!
//! [`Scenario`] reads a file, [`Case`] is one run of it with everything resolved, and [`Case::program`] makes
//! its [`Program`](lotsfree_workload::Program), the processes and threads of its actors. Nothing here knows
//! which machine executes that.

mod case;
mod costs;
mod document;
mod error;
mod experiments;
mod format;
mod generation;
mod machine;
mod random;
mod read;
mod record;
mod reference;
mod scenario;
pub mod shipped;
mod tuning;

pub use case::{CalibrationSpec, Case, MeasureSpec, NamedFile, Placement, ScheduledActor, SweepPoint};
pub use costs::{Costs, MeasuredCosts};
pub use error::{Error, Errors};
pub use experiments::{Cause, Experiment, Experiments, Look, Stand};
pub use format::{Strategies, Strategy};
pub use generation::{Generation, Kernel, UnknownGeneration};
pub use machine::{
    Conditions, Cpus, Disk, Distance, Filesystem, KernelMemory, MachineSpec, Occupied, Swap, SwapOn, Zpool,
    Zswap,
};
pub use random::Random;
pub use record::{Device, Measured, Provenance, Record, Touch, Whole};
pub use reference::{document, schema};
pub use scenario::Scenario;
pub use tuning::TuningSpec;
