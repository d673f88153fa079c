//! The system calls that a real kernel is loaded with, and what must be known before `main`, as safe
//! functions.
//!
//! The only crate with unsafe code: what has no safe form elsewhere is wrapped here, so small that each block
//! can be checked by eye. Nothing here knows scenarios or runs.

mod buffer;
mod confine;
mod numa;
mod region;
mod segment;
mod streams;
mod swap;
mod usage;

pub use buffer::Buffer;
pub use confine::{Confinement, Limit, User};
pub use numa::{Policy, set_policy};
pub use region::{Hint, Region, lock_all};
pub use segment::SharedMemory;
pub use streams::stdout_was_open;
pub use swap::{swap_off, swap_on};
pub use usage::{Usage, thread_cpu_time};

/// Bytes of a base page.
pub fn page_size() -> usize {
    rustix::param::page_size()
}
