//! What a scenario yields on either machine, as one directory.

mod bytes;
mod facts;
mod histogram;
mod interval;
mod intervals;
mod journal;
mod layout;
mod memory;
mod parquet;
mod run;
mod sample;
mod sink;
mod source;
mod store;
mod summary;
mod table;
mod writer;

pub use facts::{Calibration, Facts, Machine, Measure, NodeFacts, Timing, Window};
pub use histogram::Histogram;
pub use interval::{Event, EventKind, Interval, Spent};
pub use intervals::Intervals;
pub use memory::Memory;
pub use run::{OpenError, Run, is_run};
pub use sample::{NodeSample, Sample};
pub use sink::{Sink, WriteError};
pub use source::{Instants, input};
pub use store::State;
pub use summary::{ActorFigures, Figures, Latency, Level, Moved, Summary, ZoneFigures};
pub use table::{Column, Samples};
pub use writer::Writer;
