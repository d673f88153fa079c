//! The results of a scenario on either machine, as one directory.
//!
//! ```text
//! machine ── Sample, Interval, Event ──▶ Sink: Writer (a directory) | Memory ──▶ Run ──▶ Summary
//! ```
//!
//! # The directory
//!
//! | file | holds |
//! |---|---|
//! | `run.json` | format version, how the run ended, [`Facts`], lengths and checksums of all files |
//! | `scenario.toml` | the scenario as it was executed |
//! | `samples.parquet` | a row per sample, one each `interval` of the scenario (1 s by default, [`Facts::interval`]); a column per counter ([`Samples`] says how they are named) |
//! | `actors.parquet` | a row per [`Interval`]: counts, times in nanoseconds, its [`Toll`], histogram, and its quantiles `latency_p50`, `latency_p99`, `latency_p999`, `latency_max` |
//! | `events.jsonl` | an [`Event`] per line |
//! | `summary.json` | the [`Summary`]; nothing reads it back, as it follows from the rows |
//! | `timing.json` | the real time spent ([`Timing`]), and its own checksum |
//! | `journal` | the rows of a run that has not ended, instead of the tables |
//!
//! Until a run ends, its rows are in its journal, which only grows. Whatever happens to the process, all rows
//! but the one being written are there, and [`Run::remarks`] says that the run is incomplete. When the run
//! ends, every file is written under a temporary name, synced and renamed, `run.json` last, and then the
//! journal is removed. At each step the directory is either the unfinished run or the finished one. A writer
//! that fails says so in `run.json`, for which it keeps room on the disk (`run.json.partial`).
//!
//! A run may come from anybody. Only regular files are read, not links; each has a longest length (`store`);
//! and a length that a file declares is believed only as far as the file has bytes.
//!
//! Two runs with the same rows and facts have the same bytes, except for `timing.json`.

mod bytes;
mod column;
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
mod store;
mod summary;
mod table;
pub mod wire;
mod writer;

pub use column::Column;
pub use facts::{CalibrationFacts, Facts, Measured, NodeFacts, RunOn, Timing, Window};
pub use histogram::Histogram;
pub use interval::{Event, EventKind, Interval, Spent, StageMemory, Toll};
pub use intervals::Intervals;
pub use memory::Memory;
pub use run::{OpenError, Run, is_run};
pub use sample::{Attached, Limits, NodeSample, ProcessSample, Sample};
pub use sink::{Sink, WriteError};
pub use store::State;
pub use summary::{ActorFigures, Figures, Latency, Level, Moved, Summary, ZoneFigures};
pub use table::Samples;
pub use writer::Writer;
