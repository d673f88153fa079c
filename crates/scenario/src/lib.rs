//! What loads a machine: the scenario file, and the seeded operations of its actors.
//!
//! [`Scenario`] reads a file, [`Case`] is one run of it with everything resolved, and [`Case::program`] makes
//! the processes and threads. Nothing here knows which machine executes the operations: the model and a real
//! kernel get the same stream.

pub mod actor;
mod case;
mod costs;
mod document;
mod error;
mod experiments;
mod format;
mod generation;
mod machine;
pub mod op;
pub mod program;
pub mod quantity;
mod read;
mod record;
mod reference;
mod scenario;
pub mod shipped;
mod tuning;

pub use actor::Actor;
pub use case::{Calibration, Case, Measure, NamedFile, Placement, ScheduledActor, SweepPoint};
pub use costs::{Costs, MeasuredCosts};
pub use error::{Error, Errors};
pub use experiments::{Cause, Experiment, Experiments, Stand};
pub use generation::{Generation, Kernel, UnknownGeneration};
pub use machine::{Cpus, Disk, Distance, Filesystem, Machine, Occupied, Swap, SwapOn};
pub use op::{Advice, FileId, How, Op, RegionId, SegmentId};
pub use program::{FileSpec, Policy, Process, Program, SegmentBacking, SegmentSpec, Stream, Thread};
pub use record::{Device, Measured, Provenance, Record, Touch, Whole};
pub use reference::{document, schema};
pub use scenario::Scenario;
pub use tuning::{Setting, Tuning};
