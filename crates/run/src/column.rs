//! [`Column`]: the values of one counter, packed.
//!
//! Most counters of a run stand still for most of it, and the others move little in a few minutes. So every
//! 128 rows become a block: one value if all are the same, or else the least value and how far each row is
//! above it, in as few bytes as that takes.

use std::ops::Range;

/// Rows of a block.
const BLOCK: usize = 128;

/// One column of [`Samples`](crate::Samples).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    name: Box<str>,
    blocks: Vec<Block>,
    /// The rows after the last block.
    open: Vec<Option<u64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Block {
    /// All rows have the same value, or none.
    Same(Option<u64>),
    Bytes(u64, Box<[u8; BLOCK]>),
    Words(u64, Box<[u16; BLOCK]>),
    Long(u64, Box<[u32; BLOCK]>),
    /// Rows that lie too far apart, or of which some have no value.
    Plain(Box<[Option<u64>; BLOCK]>),
}

impl Column {
    /// A column of a name that has no value in its first rows.
    pub(crate) fn absent(name: &str, rows: usize) -> Self {
        let blocks = vec![Block::Same(None); rows / BLOCK];
        Column { name: name.into(), blocks, open: vec![None; rows % BLOCK] }
    }

    pub(crate) fn new(name: &str, values: impl IntoIterator<Item = Option<u64>>) -> Self {
        let mut column = Column::absent(name, 0);
        values.into_iter().for_each(|value| column.push(value));
        column
    }

    /// The column's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value in one row; `None` if it is absent.
    pub fn get(&self, row: usize) -> Option<u64> {
        match self.blocks.get(row / BLOCK) {
            Some(block) => block.get(row % BLOCK),
            None => *self.open.get(row - self.blocks.len() * BLOCK)?,
        }
    }

    /// The values, row by row.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<u64>> + '_ {
        self.rows(0..self.len())
    }

    /// The values of some rows.
    pub(crate) fn rows(&self, rows: Range<usize>) -> impl ExactSizeIterator<Item = Option<u64>> + Clone + '_ {
        rows.map(|row| self.get(row))
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len() * BLOCK + self.open.len()
    }

    /// Adds a row.
    #[inline]
    pub(crate) fn push(&mut self, value: Option<u64>) {
        self.open.push(value);
        if self.open.len() == BLOCK {
            self.pack();
        }
    }

    fn pack(&mut self) {
        if let Some(rows) = self.open.as_array() {
            self.blocks.push(Block::of(rows));
            self.open.clear();
        }
    }

    /// Forgets the rows.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.open.clear();
    }
}

impl Block {
    fn of(rows: &[Option<u64>; BLOCK]) -> Self {
        if rows.iter().all(|row| *row == rows[0]) {
            return Block::Same(rows[0]);
        }
        let least = rows.iter().copied().reduce(|a, b| Some(a?.min(b?))).flatten();
        let most = rows.iter().flatten().max();
        match least.zip(most).map(|(least, most)| (least, most - least)) {
            Some((least, 0..=0xff)) => Block::Bytes(least, above(rows, least)),
            Some((least, 0..=0xffff)) => Block::Words(least, above(rows, least)),
            Some((least, 0..=0xffff_ffff)) => Block::Long(least, above(rows, least)),
            _ => Block::Plain(Box::new(*rows)),
        }
    }

    fn get(&self, row: usize) -> Option<u64> {
        match self {
            Block::Same(value) => *value,
            Block::Bytes(least, rows) => Some(least + u64::from(rows[row])),
            Block::Words(least, rows) => Some(least + u64::from(rows[row])),
            Block::Long(least, rows) => Some(least + u64::from(rows[row])),
            Block::Plain(rows) => rows[row],
        }
    }
}

/// How far each row is above the least value; all rows have one, and the distances fit.
fn above<T: TryFrom<u64> + Default>(rows: &[Option<u64>; BLOCK], least: u64) -> Box<[T; BLOCK]> {
    Box::new(rows.map(|row| T::try_from(row.unwrap_or(least) - least).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_block_keeps_its_rows() {
        let of = |row: fn(u64) -> Option<u64>| (0..300).map(row).collect::<Vec<_>>();
        let kinds = [
            of(|_| None),
            of(|_| Some(7)),
            of(|row| Some((1 << 60) + row % 256)),
            of(|row| Some(row * 500)),
            of(|row| Some(row << 20)),
            of(|row| Some(row << 50)),
            of(|row| (row % 3 > 0).then_some(row)),
            of(|row| Some(u64::MAX - row)),
        ];
        for rows in kinds {
            let column = Column::new("a", rows.iter().copied());
            assert_eq!(column.iter().collect::<Vec<_>>(), rows);
            assert_eq!((column.len(), column.blocks.len(), column.get(300)), (300, 2, None));
        }
        assert_eq!(Column::absent("a", 300), Column::new("a", vec![None; 300]));
    }
}
