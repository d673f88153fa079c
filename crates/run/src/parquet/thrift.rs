//! Thrift's compact protocol, as far as Parquet's footer and page headers need it.
//!
//! The reader is a cursor over existing bytes: nothing is allocated by a declared length, and invalid data
//! give `None`.

use crate::bytes;

/// The deepest nesting that is skipped; Parquet's own structures have six levels.
const DEEPEST: u32 = 16;

/// The type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(u8);

impl Kind {
    const TRUE: Kind = Kind(1);
    const FALSE: Kind = Kind(2);
    const BYTE: Kind = Kind(3);
    const DOUBLE: Kind = Kind(7);
    const BINARY: Kind = Kind(8);
    const LIST: Kind = Kind(9);
    const SET: Kind = Kind(10);
    const MAP: Kind = Kind(11);
    const STRUCT: Kind = Kind(12);
}

/// The bytes that are still to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn zigzag(&mut self) -> Option<i64> {
        Some(bytes::unzigzag(bytes::take(&mut self.rest)?).cast_signed())
    }

    /// Reads a struct. Calls `take` for each field, which reads the field's value from the cursor, or returns
    /// false to have it skipped.
    pub(super) fn fields(
        &mut self,
        mut take: impl FnMut(&mut Self, i64, Kind) -> Option<bool>,
    ) -> Option<()> {
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            let kind = Kind(head & 0x0f);
            if kind.0 == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => self.zigzag()?,
                step => id.checked_add(step.into())?,
            };
            if !take(self, id, kind)? {
                self.pass_over(kind, 0)?;
            }
        }
    }

    /// A number of up to 64 bits.
    pub(super) fn number(&mut self, kind: Kind) -> Option<i64> {
        (4..=6).contains(&kind.0).then(|| self.zigzag())?
    }

    /// A number that is a length or a position.
    pub(super) fn length(&mut self, kind: Kind) -> Option<u64> {
        u64::try_from(self.number(kind)?).ok()
    }

    /// A text.
    pub(super) fn text(&mut self, kind: Kind) -> Option<&'a str> {
        if kind != Kind::BINARY {
            return None;
        }
        bytes::take_text(&mut self.rest)
    }

    /// Reads a list of structs: `item` is called for each and reads it.
    pub(super) fn structs(
        &mut self,
        kind: Kind,
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if kind != Kind::LIST {
            return None;
        }
        let (length, kind) = self.list()?;
        (kind == Kind::STRUCT).then_some(())?;
        (0..length).try_for_each(|_| item(self))
    }

    /// The length of a list, which is at most the number of bytes left, and the type of its items.
    fn list(&mut self) -> Option<(usize, Kind)> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => usize::try_from(bytes::take(&mut self.rest)?).ok()?,
            length => length.into(),
        };
        (length <= self.rest.len()).then_some((length, Kind(head & 0x0f)))
    }

    fn pass_over(&mut self, kind: Kind, depth: u32) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match kind {
            // The value is in the field's header.
            Kind::TRUE | Kind::FALSE => {}
            Kind::BYTE => drop(self.byte()?),
            Kind(4..=6) => drop(bytes::take(&mut self.rest)?),
            Kind::DOUBLE => self.rest = self.rest.get(8..)?,
            Kind::BINARY => drop(bytes::take_bytes(&mut self.rest)?),
            Kind::LIST | Kind::SET => {
                let (length, of) = self.list()?;
                (0..length).try_for_each(|_| self.pass_over_item(of, depth + 1))?;
            }
            Kind::MAP => {
                let length = usize::try_from(bytes::take(&mut self.rest)?).ok()?;
                if length > 0 {
                    let kinds = self.byte()?;
                    for _ in 0..length.min(self.rest.len() + 1) {
                        self.pass_over_item(Kind(kinds >> 4), depth + 1)?;
                        self.pass_over_item(Kind(kinds & 0x0f), depth + 1)?;
                    }
                }
            }
            Kind::STRUCT => {
                let mut inner = *self;
                inner.fields_over(depth + 1)?;
                *self = inner;
            }
            _ => return None,
        }
        Some(())
    }

    /// Skips an item of a list or map, where a Boolean takes a byte.
    fn pass_over_item(&mut self, kind: Kind, depth: u32) -> Option<()> {
        match kind {
            Kind::TRUE | Kind::FALSE => self.byte().map(drop),
            kind => self.pass_over(kind, depth),
        }
    }

    fn fields_over(&mut self, depth: u32) -> Option<()> {
        loop {
            let head = self.byte()?;
            let kind = Kind(head & 0x0f);
            if kind.0 == 0 {
                return Some(());
            }
            if head >> 4 == 0 {
                self.zigzag()?;
            }
            self.pass_over(kind, depth)?;
        }
    }

    /// Reads a struct within a struct.
    pub(super) fn structure(
        &mut self,
        kind: Kind,
        take: impl FnMut(&mut Self, i64, Kind) -> Option<bool>,
    ) -> Option<()> {
        if kind != Kind::STRUCT {
            return None;
        }
        self.fields(take)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_nesting_that_nobody_needs_is_refused() {
        // A struct whose first field is a struct, and so on.
        let deep = [0x1c; 1 << 20];
        assert_eq!(Cursor::new(&deep).fields(|_, _, _| Some(false)), None);
    }

    #[test]
    fn a_list_is_no_longer_than_what_is_left() {
        // Field 1: a list of 2^28 structs.
        let long = [0x19, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x01, 0, 0];
        let mut seen = 0;
        let read = Cursor::new(&long).fields(|cursor, _, kind| {
            cursor.structs(kind, |_| {
                seen += 1;
                Some(())
            })?;
            Some(true)
        });
        assert_eq!((read, seen), (None, 0));
    }

    proptest! {
        #[test]
        fn hostile_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200)) {
            let _ = Cursor::new(&bytes).fields(|_, _, _| Some(false));
        }
    }
}
