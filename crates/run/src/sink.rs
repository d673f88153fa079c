//! [`Sink`]: takes the results of a machine.

use crate::{Event, Interval, Sample};

/// Takes the results of a machine in the order of time. For each sample, a machine first calls
/// [`event`](Sink::event) for each event since the last one, then [`sample`](Sink::sample), and then
/// [`intervals`](Sink::intervals) for the time since the last sample.
pub trait Sink {
    /// Takes one row of counters.
    ///
    /// # Errors
    /// Says why the row could not be kept.
    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError>;

    /// Takes one row per role of each actor.
    ///
    /// # Errors
    /// Says why the rows could not be kept.
    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError>;

    /// Takes an event.
    ///
    /// # Errors
    /// Says why the row could not be kept.
    fn event(&mut self, event: &Event) -> Result<(), WriteError>;
}

/// Why a run could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A system call failed.
    #[error("{path}: {error}")]
    Io {
        /// The file or directory.
        path: std::path::PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Something other than a run has that name.
    #[error("{path}: not a run ({why}); it is left alone, name another directory")]
    Occupied {
        /// The directory.
        path: std::path::PathBuf,
        /// The reason why it is not a run.
        why: String,
    },
    /// Another process is writing a run there.
    #[error("{path}: another process is writing this run")]
    InUse {
        /// The directory.
        path: std::path::PathBuf,
    },
    /// The Parquet writer failed.
    #[error("{path}: {why}")]
    Parquet {
        /// The file.
        path: std::path::PathBuf,
        /// The writer's error.
        why: String,
    },
}
