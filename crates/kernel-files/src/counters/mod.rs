//! The one table of kernel memory counters, and everything that is derived from it.
//!
//! A row of the table ([`Row`]) says how the kernel spells a counter, its unit, whether it is a level or only
//! ever grows, which kernels have it, what it means and which kernel function prints or moves it. From the
//! rows come the typed names (`vmstat::pgscan_direct`), the parser and printer ([`Values`]), the JSON form
//! and `docs/counters.md`. Nothing else in the workspace spells a counter's name in a string.
//!
//! Names are the kernel's own, case and all; where the kernel's spelling is not an identifier
//! (`Active(anon)`) the parentheses become an underscore (`meminfo::Active_anon`).

pub mod groups;
mod markdown;
mod table;
mod values;

pub use crate::each_family;
pub use markdown::document;
pub use table::*;
pub use values::{BadLine, Counter, Family, Index, Kind, Row, Unit, Values, field};
