//! Where bytes come from: [`Source`] and its kinds.

pub mod archive;
mod detect;
mod memory;
mod oswatcher;
mod paste;
mod samples;
mod sos;
pub mod text;
mod tree;

pub use detect::{Input, Kind, OpenError, live, open};
pub use memory::MemorySource;
pub use samples::MOST_SAMPLES;
pub use sos::Layered;
pub use tree::TreeSource;

/// Why a file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is no such file.
    #[error("no such file")]
    Absent,
    /// Permission was refused.
    #[error("permission denied")]
    Denied,
    /// It is a device, a pipe, a socket or a directory; those are never read.
    #[error("not a regular file")]
    NotRegular,
    /// The system says something else.
    #[error("{0}")]
    Io(String),
}

/// Hands out files by path. Paths have no leading slash: `proc/meminfo`.
pub trait Source {
    /// Reads at most `limit` bytes of the file into `buffer`, which is cleared first. `Ok(true)` says that the
    /// file is longer than that.
    ///
    /// # Errors
    /// Says why nothing was read.
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError>;

    /// The names in a directory, sorted, without `.` and `..`.
    ///
    /// # Errors
    /// Says why the directory cannot be listed.
    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError>;

    /// Whether this is the running machine, so that its clock, page size and own process mean something.
    fn is_live(&self) -> bool {
        false
    }
}
