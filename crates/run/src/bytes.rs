//! Encodes numbers and texts as bytes. Numbers are LEB128, so that small ones take one byte.

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a text or bytes with their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes a number off the front; `None` if there is none or it needs more than 64 bits.
pub(crate) fn take(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Takes bytes off the front that [`put_bytes`] put there.
pub(crate) fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes)
}

/// Like [`take_bytes`], for text.
pub(crate) fn take_text<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    str::from_utf8(take_bytes(from)?).ok()
}

/// Encodes a change that may be negative as a number that is small if the change is small (zigzag).
pub(crate) fn zigzag(change: u64) -> u64 {
    (change << 1) ^ ((change.cast_signed() >> 63).cast_unsigned())
}

/// Decodes a number of [`zigzag`] to the change.
pub(crate) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(take(&mut &largest[..]), Some(u64::MAX));
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..]), None);
        assert_eq!(take_bytes(&mut &[5, 1, 2][..]), None);
    }

    proptest! {
        #[test]
        fn round_trip(value: u64, text in ".{0,40}") {
            let mut out = Vec::new();
            put(&mut out, value);
            put_bytes(&mut out, text.as_bytes());
            let mut from = &out[..];
            prop_assert_eq!((take(&mut from), take_text(&mut from)), (Some(value), Some(&*text)));
            prop_assert!(from.is_empty());
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
