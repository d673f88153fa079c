//! What loads a machine: the scenario file, and the seeded operations of its actors.
//!
//! Nothing here knows which machine executes the operations: the model and a real kernel get the same stream.

pub mod actor;
pub mod op;
pub mod program;
pub mod quantity;

pub use actor::Actor;
pub use op::{Advice, FileId, How, Op, RegionId};
pub use program::{FileSpec, Policy, Process, Program, Stream, Thread};
