//! Reads `/proc`, `/sys` and `/etc`, live or saved, into one [`Snapshot`].
//!
//! ```text
//! Source (live /, tree, archive, paste) ── collect ──▶ Snapshot ──▶ Observation (now, before, samples)
//! ```
//!
//! A [`Source`] only returns bytes by path, and [`lotsfree_kernel_files`] parses them. [`collect()`] knows
//! which files there are and puts the results together. A file or line that cannot be read becomes a
//! [`Problem`](lotsfree_kernel_files::Problem), and the rest is kept.

mod collect;
mod observe;
mod snapshot;
pub mod source;

pub use collect::{Options, collect};
pub use observe::{Observation, SIMULATED, STANDARD_INPUT, Sample, THIS_HOST, observe};
pub use snapshot::{Host, Snapshot};
pub use source::{Input, OpenError, ReadError, Source};
