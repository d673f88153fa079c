//! [`Source`] and its kinds: where bytes come from.
//!
//! ```text
//! path or - ──▶ open ──▶ Input { samples: (seconds, Source)… } ──▶ observe ──▶ Observation
//! live host ──▶ Recorder (redacted copy of what is read) ──▶ ArchiveWriter | TextArchive
//! ```
//!
//! # What [`open`] accepts
//!
//! | named | recognised by | gives |
//! |---|---|---|
//! | a directory that looks like `/` | `proc/` or `sys/` in it | one instant |
//! | a sos report, or a directory that holds nothing else | `sos_commands/` in it | one instant, gaps filled from commands |
//! | an OSWatcher archive, its `oswmeminfo` or `oswvmstat`, or one `.dat` | file names, `zzz` lines | a series |
//! | a directory of snapshots | children with a number or a time in their names: trees, archives, `meminfo.1` | a series |
//! | a directory of plain files | files named as in `/proc`, or texts such as the output of `ipcs` | one instant; a series if one of them has times |
//! | a tar archive, plain or zstd, with one of the above in it | its header's checksum | one instant or a series |
//! | a text archive ([`mod@text`]) | a line `-- PATH --` | one instant or a series |
//! | a saved file of `/proc`, or text that holds lines of several | the shape of lines, the file's name | one instant |
//! | `-` | | any of the files, from standard input |
//!
//! The times of a directory of snapshots come from the archives' manifests, `proc/uptime`, the names, or the
//! modification times of the files: the first of these that all instants have and that ascends. If there is
//! none, only the last snapshot is read.
//!
//! Pipes, devices and sockets are refused, except as standard input. Input is assumed to be hostile: nothing
//! is written to disk, links in archives are not followed, and every size is bounded.

pub mod archive;
mod containers;
mod deadline;
mod detect;
mod listing;
mod memory;
mod numa;
mod oswatcher;
mod paste;
mod process;
mod recorder;
pub mod redact;
pub mod run;
mod samples;
mod sos;
mod tables;
pub mod text;
mod tree;
mod unlinked;
mod wrapped;

use std::time::Duration;

use lotsfree_kernel_files::file::unlinked as table;

pub use deadline::Deadline;
pub use detect::{Input, Kind, OpenError, live, open, open_bytes};
pub use memory::MemorySource;
pub use recorder::{RecordLimits, Recorded, Recorder};
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
    /// Reading failed with another error of the system.
    #[error("{0}")]
    Io(String),
}

/// Returns files by path. Paths have no leading slash: `proc/meminfo`.
pub trait Source {
    /// Reads at most `limit` bytes of the file into `buffer`, which is cleared first. `Ok(true)` means that
    /// the file is longer than `limit`.
    ///
    /// # Errors
    /// Says why nothing was read.
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError>;

    /// The names in a directory, sorted, without `.` and `..`.
    ///
    /// # Errors
    /// Says why the directory cannot be listed.
    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError>;

    /// Writes into `buffer` the table of files that only processes hold (`kernel_files::file::unlinked`). The
    /// running machine makes it by looking at `holders`, in this order, for at most `budget`; saved data have
    /// it or not.
    ///
    /// # Errors
    /// Says why there is no table.
    fn unlinked(
        &self,
        _holders: &[Holder],
        _budget: Duration,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        self.read(table::PATH, MOST_TABLE, buffer).map(drop)
    }

    /// Whether this is the running machine, so that its clock, page size and own process are meaningful.
    fn is_live(&self) -> bool {
        false
    }
}

/// A bound on the table of files that only processes hold, in bytes.
const MOST_TABLE: usize = 2 << 20;

/// A process that may hold files, and those of its mappings that may be of such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// First address of each mapping, and the address after its last.
    pub mappings: Vec<(u64, u64)>,
}
