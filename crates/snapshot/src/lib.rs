//! From `/proc`, `/sys` and `/etc`, live or saved, to one [`Snapshot`].
//!
//! ```text
//! Source (live /, tree, archive, paste) ── collect ──▶ Snapshot ──▶ Observation (now, before, samples)
//! ```
//!
//! A [`Source`] only hands out bytes by path; [`lotsfree_kernel_files`] reads them. [`collect`] knows which
//! files there are and puts them together. What cannot be read becomes a
//! [`Problem`](lotsfree_kernel_files::Problem) and the rest is kept.

mod collect;
mod observe;
mod snapshot;
pub mod source;

pub use collect::{Options, collect};
pub use observe::{Observation, Sample, observe};
pub use snapshot::{Host, Snapshot};
pub use source::{Input, OpenError, ReadError, Source};
