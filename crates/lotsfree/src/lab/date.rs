//! The date, for names of directories.

/// Today in UTC, as `2026-11-22`.
pub(crate) fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}
