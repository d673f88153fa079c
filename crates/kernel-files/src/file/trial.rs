//! Checks that the tests of every file apply to its parser, and generators of their input.

use std::fmt::Debug;

use proptest::prelude::*;

use crate::{File, Log, Problem};

pub(super) fn parse<T: File>(text: &[u8]) -> (T, Vec<Problem>) {
    let mut log = Log::default();
    let parsed = T::parse(text, &mut log);
    (parsed, log.into_problems())
}

pub(super) fn clean<T: File>(text: &str) -> T {
    let (parsed, problems) = parse(text.as_bytes());
    assert_eq!(problems, []);
    parsed
}

pub(super) fn print<T: File>(value: &T) -> String {
    let mut out = String::new();
    value.print(&mut out);
    out
}

/// The line numbers of the problems that have one.
pub(super) fn bad_lines<T: File>(text: &[u8]) -> Vec<u32> {
    parse::<T>(text).1.iter().filter_map(|problem| problem.line).collect()
}

/// Parses any bytes, prints the result and parses that: the values must be the same, without problems.
pub(super) fn settles<T: File + PartialEq + Debug>(text: &[u8]) {
    let (once, _) = parse::<T>(text);
    let printed = print(&once);
    let (twice, problems) = parse::<T>(printed.as_bytes());
    assert_eq!(once, twice, "printed as {printed:?}");
    assert_eq!(problems, [], "printed as {printed:?}");
}

/// Checks [`settles`] on `sample` cut after each of its bytes.
pub(super) fn cut_anywhere<T: File + PartialEq + Debug>(sample: &str) {
    for end in 0..sample.len() {
        settles::<T>(&sample.as_bytes()[..end]);
    }
}

/// Random bytes, and `sample` with lines dropped, doubled, swapped and overwritten.
pub(super) fn hostile(sample: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let lines: Vec<&str> = sample.lines().collect();
    let mixed = proptest::collection::vec(0..lines.len(), 0..40);
    let edits = proptest::collection::vec((any::<prop::sample::Index>(), byte()), 0..6);
    let mixed = (mixed, edits).prop_map(move |(order, edits)| {
        let text: Vec<&str> = order.into_iter().map(|line| lines[line]).collect();
        let mut text = text.join("\n").into_bytes();
        for (at, byte) in edits.iter().filter(|_| !text.is_empty()).collect::<Vec<_>>() {
            let at = at.index(text.len());
            text[at] = *byte;
        }
        text
    });
    prop_oneof![1 => proptest::collection::vec(any::<u8>(), 0..200), 9 => mixed]
}

/// Any byte, but preferably one with a meaning to the parsers.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), prop::sample::select(b" \t\r\n\\[]():,=#>-.0197\x0b\xff".to_vec())]
}

/// A name without white space.
pub(super) fn name() -> impl Strategy<Value = Box<str>> {
    "[a-zA-Z_./!é][a-zA-Z0-9_./!:,é-]{0,12}".prop_map(Into::into)
}

/// Asserts that the printed form of `value` reads back as `value`, without problems.
pub(super) fn round_trip<T: File + PartialEq + Debug>(value: &T) {
    let mut printed = String::new();
    value.print(&mut printed);
    let mut log = Log::default();
    let again = T::parse(printed.as_bytes(), &mut log);
    assert_eq!(*value, again, "printed as {printed:?}, problems {:?}", log.problems());
}

/// Random bytes, and `sample` cut off, with some bytes replaced by random ones, and doubled.
pub(super) fn corrupted(sample: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let spots = proptest::collection::vec((0..sample.len(), any::<u8>()), 0..12);
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
    prop_oneof![4 => mutated, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}
