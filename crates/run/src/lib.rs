//! What a scenario yields on either machine, as one directory.

mod facts;
mod histogram;
mod interval;
mod sample;
mod sink;

pub use facts::{Calibration, Facts, Machine, Measure, NodeFacts, Timing, Window};
pub use histogram::Histogram;
pub use interval::{Event, EventKind, Interval, Spent};
pub use sample::{NodeSample, Sample};
pub use sink::{Sink, WriteError};
