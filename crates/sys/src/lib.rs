//! Safe functions for the system calls by which lotsfree loads a real kernel, and for a check that runs
//! before `main`.
//!
//! This is the only crate with unsafe code. Calls that have no safe form elsewhere are wrapped here, in
//! blocks small enough to be checked by eye. Nothing here knows scenarios or runs.

mod buffer;
mod cachestat;
mod confine;
mod namespace;
mod numa;
mod perf;
mod region;
mod segment;
mod streams;
mod swap;
mod usage;

pub use buffer::Buffer;
pub use cachestat::Cachestat;
pub use confine::{Confinement, Limit, User, next_process_apart};
pub use namespace::mount_for_this_thread;
pub use numa::{Policy, set_policy};
pub use perf::{Hit, Observed, TracepointEvent, Tracing};
pub use region::{Hint, Region, lock_all};
pub use segment::SharedMemory;
pub use streams::stdout_was_open;
pub use swap::{swap_off, swap_on, swap_on_with_priority};
pub use usage::{Usage, monotonic, thread_cpu_time};

/// Bytes of a base page.
pub fn page_size() -> usize {
    rustix::param::page_size()
}
