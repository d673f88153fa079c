//! `/proc/mounts`, with the space of memory-backed file systems where the host is live.

use lotsfree_units::Bytes;
use serde::Serialize;

/// One mount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// What is mounted (`/dev/sda1`, `tmpfs`).
    pub source: String,
    /// Where, with the kernel's octal escapes undone.
    pub target: String,
    /// File system type.
    pub kind: Box<str>,
    /// Options, as printed.
    pub options: String,
    /// Size and used bytes (`statvfs`), for live tmpfs and hugetlbfs mounts only.
    pub space: Option<(Bytes, Bytes)>,
}

impl Mount {
    /// The value of `name=value` among the options, or an empty text for a bare `name`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| match option.split_once('=') {
            Some((key, value)) if key == name => Some(value),
            None if option == name => Some(""),
            _ => None,
        })
    }
}
