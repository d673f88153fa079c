//! Opening, making, renaming and removing files: everything that lotsfree does in a file system goes through
//! here.
//!
//! ```text
//! read       regular files only, and no more of them than the caller is ready for
//! write      whole or not at all; new files never follow a link and never take what is there
//! directory  directories that nobody else can look into or exchange
//! checksum   finds damage
//! fault      the seam where tests let the n-th step fail, or kill the process there
//! ```
//!
//! The crate knows neither formats nor kernels. It has to deal with other people's files as much as with
//! lotsfree's own: a path that a user names may lead to a FIFO, a device, a link that somebody else planted,
//! or a file that is larger than memory.

mod checksum;
mod directory;
pub mod fault;
mod read;
mod write;

pub use checksum::Fnv1a;
pub use directory::{PrivateDirectory, held, is_exchangeable, make_private, open_dir, open_own_dir};
pub use read::{open_regular, open_regular_itself, read_at_most, read_open_at_most, read_text_at_most};
pub use write::{
    Access, OutFile, create_dir, create_dir_all, create_new, exchange, remove_dir, remove_dir_all,
    remove_file, rename, replace, set, share_dir, sync_dir,
};
