//! Values of settings: as the kernel prints them, and as they are written.

use std::path::Path;

use crate::error::{ChangeError, at};

/// The most bytes that are read of a setting; the kernel prints at most a page.
const LONGEST: u64 = 64 << 10;

/// A setting as the kernel prints it.
pub(crate) fn raw(path: &Path) -> Result<String, ChangeError> {
    lotsfree_storage::read_text_at_most(path, LONGEST).map_err(at(path))
}

/// The value of a setting as the kernel prints it, trimmed. For a choice such as `always [madvise] never`,
/// the word in brackets.
pub fn chosen(raw: &str) -> &str {
    let text = raw.trim();
    let chosen = text.split_ascii_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    chosen.unwrap_or(text)
}

/// Whether two texts are the same value: the amount of white space does not matter, and `0x0007` equals 7.
pub(crate) fn same(one: &str, other: &str) -> bool {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let equal = |(a, b): (&str, &str)| a == b || number(a).is_some_and(|a: u64| number(b) == Some(a));
    let (one, other) = (chosen(one).split_ascii_whitespace(), chosen(other).split_ascii_whitespace());
    one.clone().count() == other.clone().count() && one.zip(other).all(equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_values() {
        assert!(same("256 256 32", "256\t256\t32\n"));
        assert!(same("0x0007", "7"));
        assert!(!same("1", "10"));
        assert!(!same("1 2", "1"));
        assert!(same("always [madvise] never\n", "madvise"));
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
    }
}
