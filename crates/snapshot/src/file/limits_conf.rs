//! `/etc/security/limits.conf` and `limits.d/*.conf` (pam_limits).

use serde::Serialize;

/// One line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitsLine {
    /// The file, without a leading slash.
    pub file: String,
    /// Line, counted from 1.
    pub line: u32,
    /// User, `@group`, `*`, or a uid range.
    pub domain: String,
    /// `soft`, `hard` or `-` (both).
    pub kind: Box<str>,
    /// `memlock`, `nofile`, …
    pub item: Box<str>,
    /// The value as written; memlock is in KiB, `unlimited`, `infinity` and `-1` mean none.
    pub value: Box<str>,
}
