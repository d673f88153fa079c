//! Small readers of bytes that the parsers share. They neither allocate, panic nor overflow.

/// A decimal number that fills all of `text`; `None` if the text is empty, contains another byte or exceeds
/// 64 bits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &b| match b {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

/// Like [`decimal`], for numbers that fit in 32 bits.
pub(super) fn decimal32(text: &[u8]) -> Option<u32> {
    decimal(text)?.try_into().ok()
}

/// Like [`decimal`], in base 16, without a prefix.
pub(super) fn hexadecimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0u64, |value, &b| {
        let digit = (b as char).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// The digits at the start of `text`, and the rest.
pub(super) fn leading_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len()))
}

/// Splits at the first `byte`, which is in neither part.
pub(super) fn cut(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&b| b == byte)?;
    Some((&text[..at], &text[at + 1..]))
}

/// Words between runs of white space.
pub(super) fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Lines, with their numbers from 1.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    (1u32..).zip(text.split(|&b| b == b'\n'))
}

/// The lines that are not blank, trimmed, with their numbers from 1.
pub(super) fn trimmed_lines(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    lines(text).map(|(number, line)| (number, line.trim_ascii())).filter(|(_, line)| !line.is_empty())
}

/// A name; bytes that are not UTF-8 become U+FFFD.
pub(super) fn name_of(word: &[u8]) -> Box<str> {
    String::from_utf8_lossy(word).into()
}

/// `text` as UTF-8, with U+FFFD for invalid bytes, cut to at most `most` bytes. The function is idempotent.
pub(super) fn bounded(text: &[u8], most: usize) -> String {
    let mut text = String::from_utf8_lossy(&text[..text.len().min(most)]).into_owned();
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_are_none() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(decimal(b"18446744073709551616"), None);
        assert_eq!((decimal(b""), decimal(b"-1"), decimal(b"1 ")), (None, None, None));
        assert_eq!(hexadecimal(b"000001fffeffffff"), Some(0x1ff_feff_ffff));
        assert_eq!(
            (hexadecimal(b""), hexadecimal(b"10000000000000000"), hexadecimal(b"0x1")),
            (None, None, None)
        );
    }

    #[test]
    fn bounded_text_is_stable() {
        let once = bounded(&[0xff; 100], 64);
        assert!(once.len() <= 64 && !once.is_empty());
        assert_eq!(bounded(once.as_bytes(), 64), once);
        assert_eq!(bounded("aé".as_bytes(), 2), "a");
    }
}
