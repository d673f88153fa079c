//! The kernel's memory files, from 2.6.32 on: what is in them, how they are read and written.
//!
//! Each file of `/proc`, `/sys` and `/etc` has one module in [`mod@file`] with its type, its parser and its
//! printer. Files that are lines of `name value` are [`counters`], declared in one table. A parser never
//! fails: what it cannot read becomes a [`Problem`] and the rest is kept.
//!
//! # Why not the `procfs` crates
//!
//! `procfs-core` 0.18 parses many of these files well, but a whole file is lost on the first line that it
//! does not expect, fields of newer kernels are dropped, there are no printers, and page size and tick rate
//! are those of the machine it runs on, while a saved tree is usually another host's. Its maps of owned
//! strings also cost several times the reading of a file, where the whole of `doctor` may cost twice that. So
//! the parsers here are our own.

pub mod counters;
pub mod file;
mod problem;
mod version;

pub use problem::{Log, Problem, ProblemKind};
pub use version::KernelVersion;

/// A file's parser and printer.
///
/// `parse(print(x))` gives `x` back for every `x` that a parser can return.
pub trait File: Sized {
    /// Reads `text`. Lines that make no sense are reported to `log` and passed over; the rest is kept.
    fn parse(text: &[u8], log: &mut Log) -> Self;

    /// Writes what `parse` reads, in the kernel's layout.
    fn print(&self, out: &mut String);
}
