//! Changes of a host. Each is noted before it is made, and is undone afterwards, even if the process that
//! made it was killed.
//!
//! ```text
//! Changes ── note ──▶ Journal (a file of the StateDirectory)
//!    │  ▲                │
//!    │  └──── undo ◀─────┘ read again by the next process, or by `lotsfree lab restore`
//!    ▼
//! settings of /proc/sys and /sys, swap files, control groups, directories
//! ```
//!
//! A change is undone only where the host still is as the change left it. If an administrator has changed a
//! setting in the meantime, it stays and is reported. A setting that was made before the last boot is gone
//! with that boot.
//!
//! A journal is trusted only if nobody but the user that runs this can have written it. Even then it can
//! change only settings of the kernel, and files, directories and groups whose names say that they are
//! lotsfree's own ([`Territory`]).

mod change;
mod changes;
mod error;
mod journal;
mod legacy;
mod state;
mod swap;
mod territory;
mod undo;
mod value;

pub use change::{Change, Key, Set};
pub use changes::Changes;
pub use error::ChangeError;
pub use journal::{Entry, parse};
pub use legacy::{Legacy, parse_legacy};
pub use state::{Listing, StateDirectory};
pub use swap::{header as swap_header, make_file as make_swap_file};
pub use territory::{PREFIX, Territory};
pub use undo::Outcome;
pub use value::chosen;
