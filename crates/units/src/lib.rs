//! Quantities of memory, with the kernel's units and the spellings that people type, and how other people's
//! text is printed.
//!
//! Everything that counts memory in this workspace is a [`Bytes`]; what the kernel counts in pages or KiB is
//! converted where it is read, with the page size of the host that it was read *from*.

mod bytes;
mod number;
mod page;
mod visible;
pub mod words;

pub use bytes::{Bytes, ParseBytesError};
pub use number::{Grouped, Percent};
pub use page::PageSize;
pub use visible::{visible, visible_json, visible_line};

/// One kibibyte, the unit that `/proc` spells `kB`.
pub const KIB: u64 = 1 << 10;
/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;
/// One tebibyte.
pub const TIB: u64 = 1 << 40;
