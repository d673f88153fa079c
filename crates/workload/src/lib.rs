//! What loads a machine: processes and threads, and the seeded operations of their actors.
//!
//! An [`Actor`] of a scenario makes the [`Process`]es of a [`Program`]; each [`Thread`] has a [`Stream`] of
//! [`Op`]s. Nothing here knows which machine executes the operations: the model and a real kernel get the
//! same stream.

pub mod actor;
mod memory;
pub mod op;
pub mod program;
pub mod quantity;

pub use actor::Actor;
pub use memory::{Huge, Limit, Limits, Memory};
pub use op::{Advice, COPY_BUFFER, CommandId, FileId, How, Op, PACE_GRAIN_NS, RegionId, SegmentId};
pub use program::{
    CommandSpec, FileSpec, Policy, Process, Program, START_LEAD_NS, SegmentBacking, SegmentSpec, Stream,
    Thread,
};
