//! The kernel's memory files, from 2.6.32 on: their contents, parsers and printers.
//!
//! Each file of `/proc`, `/sys` and `/etc` has one module in [`mod@file`] with its type, its parser and its
//! printer. Files made of `name value` lines are [`counters`], declared in one table. A parser never fails:
//! what it cannot read becomes a [`Problem`], and the rest is kept.
//!
//! # Why not the `procfs` crates
//!
//! `procfs-core` 0.18 parses many of these files well, but loses a whole file on the first unexpected line,
//! drops fields of newer kernels and has no printers. It also takes page size and tick rate from the machine
//! it runs on, while a saved tree is usually another host's. Its maps of owned strings cost several times the
//! reading of a file, where the whole of `doctor` may cost twice that. The parsers here are therefore our
//! own.

pub mod counters;
pub mod file;
mod problem;
mod version;

pub use problem::{Log, Problem, ProblemKind};
pub use version::{KernelVersion, Release, newest_without_a_line};

/// A file's parser and printer.
///
/// `parse(print(x))` gives `x` back for every `x` that a parser can return.
pub trait File: Sized {
    /// Reads `text`. Malformed lines are reported to `log` and skipped; the rest is kept.
    fn parse(text: &[u8], log: &mut Log) -> Self;

    /// Writes a text that `parse` reads, in the kernel's layout.
    fn print(&self, out: &mut String);
}
