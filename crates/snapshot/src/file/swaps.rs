//! `/proc/swaps`.

use lotsfree_units::Bytes;
use serde::Serialize;

/// One swap area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SwapArea {
    /// Device or file, with the kernel's octal escapes undone.
    pub path: String,
    /// `partition` or `file`.
    pub kind: Box<str>,
    /// Its size.
    pub size: Bytes,
    /// How much is in use.
    pub used: Bytes,
    /// Higher is used first.
    pub priority: i32,
}
