//! What the tests of these parsers share.

use std::fmt::Debug;

use proptest::prelude::*;

use crate::{File, Log};

/// Asserts that what is printed reads back as the same, without problems.
pub(in crate::file) fn round_trip<T: File + PartialEq + Debug>(value: &T) {
    let mut printed = String::new();
    value.print(&mut printed);
    let mut log = Log::default();
    let again = T::parse(printed.as_bytes(), &mut log);
    assert_eq!(*value, again, "printed as {printed:?}, problems {:?}", log.problems());
}

/// Random bytes, and `sample` cut off, with random bytes in place of some of its own, and doubled.
pub(in crate::file) fn hostile(sample: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let spots = prop::collection::vec((0..sample.len(), any::<u8>()), 0..12);
    let mutated = (spots, 0..=sample.len(), any::<bool>()).prop_map(move |(spots, cut, twice)| {
        let mut text = sample.to_vec();
        for (at, byte) in spots {
            text[at] = byte;
        }
        text.truncate(cut);
        if twice {
            text.extend_from_slice(&text.clone());
        }
        text
    });
    prop_oneof![4 => mutated, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}
