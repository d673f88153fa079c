//! [`Sink`]: where a machine puts what it measures.

use crate::{Event, Interval, Sample};

/// Takes what a machine yields, in the order of time. A machine calls, for each instant, first
/// [`event`](Sink::event) for what happened since the last one, then [`sample`](Sink::sample), then
/// [`intervals`](Sink::intervals) for the time since the last sample.
pub trait Sink {
    /// One row of counters.
    ///
    /// # Errors
    /// Says why it could not be kept.
    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError>;

    /// One row per role of each actor.
    ///
    /// # Errors
    /// Says why they could not be kept.
    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError>;

    /// Something that happened.
    ///
    /// # Errors
    /// Says why it could not be kept.
    fn event(&mut self, event: &Event) -> Result<(), WriteError>;
}

/// Why a run could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The system says so.
    #[error("{path}: {error}")]
    Io {
        /// Which file or directory.
        path: std::path::PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// There is something else of that name.
    #[error("{path}: not a run ({why}); it is left alone, name another directory")]
    Occupied {
        /// The directory.
        path: std::path::PathBuf,
        /// How that was seen.
        why: String,
    },
    /// Another process is writing a run there.
    #[error("{path}: another process is writing this run")]
    InUse {
        /// The directory.
        path: std::path::PathBuf,
    },
    /// The Parquet writer says so.
    #[error("{path}: {why}")]
    Parquet {
        /// Which file.
        path: std::path::PathBuf,
        /// What it says.
        why: String,
    },
}
