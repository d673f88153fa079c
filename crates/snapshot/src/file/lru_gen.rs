//! `/sys/kernel/mm/lru_gen`: the multi-generational LRU (6.1 and later).

use std::fmt::Write as _;

use serde::Serialize;

use super::zoneinfo::number;
use crate::Log;

/// Its settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LruGen {
    /// `enabled`, hexadecimal in the file: bit 0 core, bit 1 leaf batches, bit 2 non-leaf.
    pub enabled: u32,
    /// `min_ttl_ms`: the OOM killer runs rather than evict anything younger; 0 is off.
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

/// Reads `min_ttl_ms`, milliseconds. `mm/vmscan.c:min_ttl_ms_show`, 6.1 and later.
pub fn parse_min_ttl_ms(text: &[u8], log: &mut Log) -> Option<u64> {
    let value = number(text.trim_ascii());
    if value.is_none() {
        log.malformed(1, "not a number of milliseconds");
    }
    value
}

/// Writes `min_ttl_ms`.
pub fn print_min_ttl_ms(min_ttl_ms: u64, out: &mut String) {
    let _ = writeln!(out, "{min_ttl_ms}");
}
