//! `/sys/kernel/mm/lru_gen`: the multi-generational LRU (6.1 and later).

use std::fmt::Write as _;

use serde::Serialize;

use crate::Log;

/// Settings of the multi-generational LRU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LruGen {
    /// `enabled`, hexadecimal in the file. Bit 0 is the core, bit 1 leaf batches, bit 2 non-leaf entries.
    pub enabled: u32,
    /// `min_ttl_ms`: the OOM killer runs rather than evict pages younger than this; 0 is off.
    pub min_ttl_ms: u64,
}

/// Reads `enabled`: `0x0007`. `mm/vmscan.c:enabled_show`, 6.1 and later.
pub fn parse_enabled(text: &[u8], log: &mut Log) -> Option<u32> {
    let word = text.trim_ascii();
    let digits = word.strip_prefix(b"0x").filter(|digits| !digits.is_empty());
    let digit = |value: u32, &b: &u8| {
        let digit = char::from(b).to_digit(16)?;
        if value >> 28 == 0 { Some(value << 4 | digit) } else { None }
    };
    let enabled = digits.and_then(|digits| digits.iter().try_fold(0, digit));
    if enabled.is_none() {
        log.malformed(1, "not a hexadecimal number such as 0x0007");
    }
    enabled
}

/// Writes `enabled`.
pub fn print_enabled(enabled: u32, out: &mut String) {
    let _ = writeln!(out, "{enabled:#06x}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &[u8]) -> (Option<u32>, usize) {
        let mut log = Log::default();
        (
            parse_enabled(text, &mut log),
            log.problems().iter().filter(|problem| problem.line == Some(1)).count(),
        )
    }

    #[test]
    fn reads_the_kernels_hexadecimal() {
        assert_eq!(parse(b"0x0007\n"), (Some(7), 0));
        assert_eq!(parse(b"0x0000\n"), (Some(0), 0));
        assert_eq!(parse(b"0xffffffff"), (Some(u32::MAX), 0));
        for text in [b"".as_slice(), b"0x", b"7", b"0x100000000", b"0x00g7", b"y\n", b"\xff"] {
            assert_eq!(parse(text), (None, 1), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(enabled: u32) {
            let mut out = String::new();
            print_enabled(enabled, &mut out);
            prop_assert_eq!(parse(out.as_bytes()), (Some(enabled), 0));
        }

        #[test]
        fn survives(text: Vec<u8>) {
            let (value, problems) = parse(&text);
            prop_assert_eq!(value.is_none(), problems == 1);
        }
    }
}
