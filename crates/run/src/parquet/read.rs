//! Reads tables that [`write`](super::write) made, and refuses all others.
//!
//! ```text
//! file   = "PAR1" chunk… footer length u32 "PAR1"
//! footer = the columns, and per group of rows where the chunk of each column is
//! chunk  = page…                       page = header, zstd frame
//! frame  = levels, if the column is optional: length u32, runs of 0 (absent) and 1
//!          values: delta-packed numbers, or texts with a length u32 each
//! ```
//! Nothing is allocated by a declared length alone: rows, columns, pages and texts have bounds, chunks lie
//! within the file, and a page has to decompress to just the length that it declares.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::intervals::{NUMBERS, TOLL};
use crate::store::{MOST_CELLS, MOST_COLUMNS, MOST_INTERVALS, MOST_LATENCY};
use crate::{Column, Intervals, Samples, bytes};

use super::LATENCY;
use super::thrift::Cursor;

/// First and last bytes of a file.
const MAGIC: &[u8; 4] = b"PAR1";
/// The longest footer. A column takes some 150 bytes in each group of 65,536 rows, so this is enough for
/// 100,000 columns for a day.
const MOST_FOOTER: u64 = 32 << 20;
/// The longest chunk of a column. Chunks of numbers have at most 65,536 rows and 1 MiB; a day's histograms of
/// ten roles take some 20 MiB per group.
const MOST_CHUNK: u64 = 256 << 20;
/// The longest page, decompressed. The writer ends a page after 1 MiB, but checks only every 1,024 values,
/// and the largest histogram takes 20 KiB.
const MOST_PAGE: usize = 32 << 20;
/// The most bytes of texts or histograms in one group of 65,536 rows. Most take a few hundred bytes each.
const MOST_TEXTS: usize = 128 << 20;
/// The most decompressed bytes of one file: enough if every number takes all its bytes, or for all
/// histograms. A file with more was made to waste time.
const MOST_DECOMPRESSED: u64 = 10 * MOST_CELLS;

/// Parquet's numbers for the types and encodings that lotsfree writes.
mod code {
    pub(super) const INT64: i64 = 2;
    pub(super) const BYTE_ARRAY: i64 = 6;
    pub(super) const REQUIRED: i64 = 0;
    pub(super) const OPTIONAL: i64 = 1;
    pub(super) const ZSTD: i64 = 6;
    pub(super) const DATA_PAGE: i64 = 0;
    pub(super) const PLAIN: i64 = 0;
    pub(super) const DELTA_BINARY_PACKED: i64 = 5;
}

/// Why a table is refused.
#[derive(Debug)]
pub(crate) enum Damage {
    /// The system's error.
    Io(io::Error),
    /// The fault of the table.
    Wrong(String),
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Self {
        Damage::Io(error)
    }
}

fn wrong(what: &str) -> Damage {
    Damage::Wrong(what.to_owned())
}

type Result<T> = std::result::Result<T, Damage>;

/// A column, as the footer describes it.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    physical: i64,
    optional: bool,
}

/// Position of a column's chunk in a group of rows.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    offset: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

/// A file whose footer was understood.
struct Table {
    file: File,
    length: u64,
    fields: Vec<Field>,
    groups: Vec<Group>,
    rows: usize,
    /// Bytes that may still be decompressed.
    budget: u64,
    decompressor: zstd::bulk::Decompressor<'static>,
}

/// Reads the counters of a run. Columns of other types are skipped.
pub(crate) fn read_samples(file: File) -> Result<Samples> {
    let mut table = Table::open(file)?;
    if table.rows as u64 * table.fields.len() as u64 > MOST_CELLS {
        return Err(wrong("more rows and columns than a run may have"));
    }
    let mut columns = Vec::new();
    for index in 0..table.fields.len() {
        let Field { name, physical, .. } = table.fields[index].clone();
        if physical != code::INT64 {
            continue;
        }
        let (mut values, mut present) = (Vec::with_capacity(table.rows), Vec::with_capacity(table.rows));
        for group in 0..table.groups.len() {
            table.numbers(index, group, &mut values, &mut present)?;
        }
        let values = values.into_iter().zip(present);
        columns.push(Column::new(&name, values.map(|(value, present)| present.then_some(value))));
    }
    Samples::from_columns(columns).ok_or_else(|| wrong("columns of different length, or twice the same"))
}

/// Reads the intervals of the actors. Tables of older lotsfree lack all columns of the toll.
pub(crate) fn read_intervals(file: File) -> Result<Intervals> {
    let mut table = Table::open(file)?;
    if table.rows > MOST_INTERVALS {
        return Err(wrong("more rows than a run may have"));
    }
    let actor = table.find("actor", code::BYTE_ARRAY)?;
    let role = table.find("role", code::BYTE_ARRAY)?;
    let latency = table.find(LATENCY, code::BYTE_ARRAY)?;
    let has_toll = NUMBERS[TOLL..].iter().any(|name| table.fields.iter().any(|field| field.name == *name));
    let mut numbers = Vec::with_capacity(NUMBERS.len());
    for name in &NUMBERS[..if has_toll { NUMBERS.len() } else { TOLL }] {
        numbers.push(table.find(name, code::INT64)?);
    }
    let senseless = || wrong("a row that makes no sense");
    let mut intervals = Intervals::default();
    if !has_toll && table.rows > 0 {
        intervals.lack_toll();
    }
    let mut kept = 0;
    for group in 0..table.groups.len() {
        let actors = table.texts(actor, group)?;
        let roles = table.texts(role, group)?;
        let latencies = table.texts(latency, group)?;
        let mut columns = Vec::with_capacity(numbers.len());
        for index in &numbers {
            let (mut values, mut present) = (Vec::new(), Vec::new());
            table.numbers(*index, group, &mut values, &mut present)?;
            columns.push(values);
        }
        for row in 0..table.groups[group].rows {
            let mut values = [0; NUMBERS.len()];
            for (value, column) in values.iter_mut().zip(&columns) {
                *value = *column.get(row).ok_or_else(senseless)?;
            }
            let text = |texts: &Texts| str::from_utf8(texts.get(row)?).ok().map(str::to_owned);
            let (actor, role) = (text(&actors).zip(text(&roles))).ok_or_else(senseless)?;
            let latency = latencies.get(row).ok_or_else(senseless)?;
            kept += latency.len() as u64;
            if kept > MOST_LATENCY {
                return Err(wrong("more histograms than a run may have"));
            }
            intervals.push_stored(&actor, &role, values, latency).ok_or_else(senseless)?;
        }
    }
    Ok(intervals)
}

impl Table {
    fn open(file: File) -> Result<Self> {
        let length = file.metadata()?.len();
        let no_end = || wrong("it does not end as a table does");
        // Magic, length of the footer, magic.
        let end = length.checked_sub(8).filter(|end| *end >= 4).ok_or_else(no_end)?;
        let mut last = [0; 8];
        file.read_exact_at(&mut last, end)?;
        let (footer, magic) = last.split_first_chunk().ok_or_else(no_end)?;
        let footer = u64::from(u32::from_le_bytes(*footer));
        let start = end.checked_sub(footer).filter(|start| *start >= 4).ok_or_else(no_end)?;
        if magic != MAGIC || footer > MOST_FOOTER {
            return Err(no_end());
        }
        let mut footer = vec![0; footer as usize];
        file.read_exact_at(&mut footer, start)?;
        let (fields, groups) = parse_footer(&footer).ok_or_else(|| wrong("its footer makes no sense"))?;
        let rows = groups.iter().try_fold(0usize, |sum, group| sum.checked_add(group.rows));
        let rows = rows.filter(|rows| *rows as u64 <= MOST_CELLS).ok_or_else(|| wrong("too many rows"))?;
        if fields.len() > MOST_COLUMNS || groups.iter().any(|group| group.chunks.len() != fields.len()) {
            return Err(wrong("its columns make no sense"));
        }
        let decompressor = zstd::bulk::Decompressor::new()?;
        Ok(Table { file, length, fields, groups, rows, budget: MOST_DECOMPRESSED, decompressor })
    }

    fn find(&self, name: &str, physical: i64) -> Result<usize> {
        let fits = |field: &Field| field.name == name && field.physical == physical;
        self.fields.iter().position(fits).ok_or_else(|| wrong(&format!("no column {name}")))
    }

    /// Reads the bytes of a column in a group of rows.
    fn chunk(&self, index: usize, group: usize) -> Result<Vec<u8>> {
        let Chunk { offset, bytes } = self.groups[group].chunks[index];
        let within = offset.checked_add(bytes).is_some_and(|end| end <= self.length);
        if !within || bytes > MOST_CHUNK {
            return Err(wrong("a column that lies outside of the file"));
        }
        let mut chunk = vec![0; bytes as usize];
        self.file.read_exact_at(&mut chunk, offset)?;
        Ok(chunk)
    }

    /// Calls `page` with the number of rows, the encoding and the contents of each page. Together the pages
    /// must have all rows of the group.
    fn pages(
        &mut self,
        index: usize,
        group: usize,
        mut page: impl FnMut(usize, i64, &[u8]) -> Option<()>,
    ) -> Result<()> {
        let name = self.fields[index].name.clone();
        let senseless = || wrong(&format!("the column {name} makes no sense"));
        let chunk = self.chunk(index, group)?;
        let mut left = self.groups[group].rows;
        let (mut rest, mut contents) = (chunk.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (header, after) = PageHeader::parse(rest).ok_or_else(senseless)?;
            let (frame, after) = after.split_at_checked(header.compressed).ok_or_else(senseless)?;
            let fits = header.rows > 0 && header.rows <= left && header.decompressed <= MOST_PAGE;
            let budget = self.budget.checked_sub(header.decompressed as u64).filter(|_| fits);
            self.budget = budget.ok_or_else(senseless)?;
            // The contents must be exactly as long as declared.
            contents.resize(header.decompressed, 0);
            let length = self.decompressor.decompress_to_buffer(frame, contents.as_mut_slice());
            if length.ok() != Some(header.decompressed) {
                return Err(senseless());
            }
            page(header.rows, header.encoding, &contents).ok_or_else(senseless)?;
            left -= header.rows;
            rest = after;
        }
        if left > 0 { Err(senseless()) } else { Ok(()) }
    }

    /// Appends a column of numbers, with flags that say which of them are present.
    fn numbers(
        &mut self,
        index: usize,
        group: usize,
        values: &mut Vec<u64>,
        present: &mut Vec<bool>,
    ) -> Result<()> {
        let optional = self.fields[index].optional;
        self.pages(index, group, |rows, encoding, mut page| {
            (encoding == code::DELTA_BINARY_PACKED).then_some(())?;
            let first = present.len();
            let mut there = rows;
            if optional {
                let (length, rest) = page.split_first_chunk()?;
                let (runs, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                levels(runs, rows, present)?;
                there = present[first..].iter().filter(|present| **present).count();
                page = rest;
            } else {
                present.resize(first + rows, true);
            }
            let mut numbers = Deltas::new(page, there)?;
            for present in &present[first..] {
                values.push(if *present { numbers.next()? } else { 0 });
            }
            Some(())
        })
    }

    /// Reads a column of texts or bytes in one group of rows.
    fn texts(&mut self, index: usize, group: usize) -> Result<Texts> {
        if self.fields[index].optional {
            return Err(wrong("a text that may be absent"));
        }
        let mut texts = Texts::default();
        self.pages(index, group, |rows, encoding, mut page| {
            (encoding == code::PLAIN).then_some(())?;
            for _ in 0..rows {
                let (length, rest) = page.split_first_chunk()?;
                let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                texts.bytes.extend_from_slice(text);
                texts.ends.push(texts.bytes.len());
                page = rest;
            }
            (texts.bytes.len() <= MOST_TEXTS).then_some(())
        })?;
        Ok(texts)
    }
}

/// Texts, one behind the other.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Texts {
    fn get(&self, row: usize) -> Option<&[u8]> {
        let begin = row.checked_sub(1).map_or(Some(&0), |before| self.ends.get(before))?;
        self.bytes.get(*begin..*self.ends.get(row)?)
    }
}

/// The columns of a table, and the positions of their chunks.
fn parse_footer(footer: &[u8]) -> Option<(Vec<Field>, Vec<Group>)> {
    let (mut fields, mut groups) = (Vec::new(), Vec::new());
    let mut root = true;
    Cursor::new(footer).fields(|cursor, id, kind| {
        match id {
            2 => cursor.structs(kind, |cursor| {
                let field = parse_field(cursor)?;
                // The first element of the schema is the table itself.
                match (std::mem::take(&mut root), field) {
                    (true, None) => {}
                    (false, Some(field)) => fields.push(field),
                    _ => return None,
                }
                Some(())
            })?,
            4 => cursor.structs(kind, |cursor| {
                groups.push(parse_group(cursor)?);
                Some(())
            })?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some((fields, groups))
}

/// A column; `Some(None)` for an element of the schema that holds others.
fn parse_field(cursor: &mut Cursor<'_>) -> Option<Option<Field>> {
    let (mut name, mut physical, mut repetition) = (None, None, None);
    cursor.fields(|cursor, id, kind| {
        match id {
            1 => physical = Some(cursor.number(kind)?),
            3 => repetition = Some(cursor.number(kind)?),
            4 => name = Some(cursor.text(kind)?.to_owned()),
            _ => return Some(false),
        }
        Some(true)
    })?;
    let Some(physical) = physical else { return Some(None) };
    let optional = match repetition? {
        code::REQUIRED => false,
        code::OPTIONAL => true,
        _ => return None,
    };
    Some(Some(Field { name: name?, physical, optional }))
}

fn parse_group(cursor: &mut Cursor<'_>) -> Option<Group> {
    let (mut rows, mut chunks) = (None, Vec::new());
    cursor.fields(|cursor, id, kind| {
        match id {
            1 => cursor.structs(kind, |cursor| {
                chunks.push(parse_chunk(cursor)?);
                Some(())
            })?,
            3 => rows = Some(usize::try_from(cursor.length(kind)?).ok()?),
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(Group { rows: rows.filter(|rows| *rows > 0)?, chunks })
}

fn parse_chunk(cursor: &mut Cursor<'_>) -> Option<Chunk> {
    let (mut codec, mut bytes, mut offset) = (None, None, None);
    cursor.fields(|cursor, id, kind| {
        if id != 3 {
            return Some(false);
        }
        cursor.structure(kind, |cursor, id, kind| {
            match id {
                4 => codec = Some(cursor.number(kind)?),
                7 => bytes = Some(cursor.length(kind)?),
                9 => offset = Some(cursor.length(kind)?),
                _ => return Some(false),
            }
            Some(true)
        })?;
        Some(true)
    })?;
    (codec? == code::ZSTD).then_some(Chunk { offset: offset?, bytes: bytes? })
}

struct PageHeader {
    compressed: usize,
    decompressed: usize,
    rows: usize,
    encoding: i64,
}

impl PageHeader {
    /// The header of a page and the bytes that follow it.
    fn parse(from: &[u8]) -> Option<(Self, &[u8])> {
        let mut cursor = Cursor::new(from);
        let (mut kind_of_page, mut compressed, mut decompressed) = (None, None, None);
        let (mut rows, mut encoding) = (None, None);
        cursor.fields(|cursor, id, kind| {
            match id {
                1 => kind_of_page = Some(cursor.number(kind)?),
                2 => decompressed = Some(usize::try_from(cursor.length(kind)?).ok()?),
                3 => compressed = Some(usize::try_from(cursor.length(kind)?).ok()?),
                5 => cursor.structure(kind, |cursor, id, kind| {
                    match id {
                        1 => rows = Some(usize::try_from(cursor.length(kind)?).ok()?),
                        2 => encoding = Some(cursor.number(kind)?),
                        _ => return Some(false),
                    }
                    Some(true)
                })?,
                _ => return Some(false),
            }
            Some(true)
        })?;
        (kind_of_page? == code::DATA_PAGE).then_some(())?;
        let after = from.get(from.len() - cursor.left()..)?;
        let header = PageHeader {
            compressed: compressed?,
            decompressed: decompressed?,
            rows: rows?,
            encoding: encoding?,
        };
        Some((header, after))
    }
}

/// Reads runs of levels of one bit each. There must be exactly `rows` levels, not counting padding.
fn levels(mut runs: &[u8], rows: usize, present: &mut Vec<bool>) -> Option<()> {
    let end = present.len().checked_add(rows)?;
    while present.len() < end {
        let head = bytes::take(&mut runs)?;
        let count = usize::try_from(head >> 1).ok().filter(|count| *count > 0)?;
        if head & 1 == 0 {
            // A level that is repeated.
            let (&level, rest) = runs.split_first()?;
            runs = rest;
            (level <= 1 && count <= end - present.len()).then_some(())?;
            present.resize(present.len() + count, level == 1);
        } else {
            // Levels in groups of eight.
            let (groups, rest) = runs.split_at_checked(count)?;
            runs = rest;
            let levels = groups.iter().flat_map(|group| (0..8).map(move |bit| group >> bit & 1 == 1));
            present.extend(levels.take(end - present.len()));
        }
    }
    Some(())
}

/// Decodes numbers of `DELTA_BINARY_PACKED`. A block has the smallest change between successive numbers, and
/// each change less the smallest, in as few bits as the largest in a part of the block needs.
struct Deltas<'a> {
    from: &'a [u8],
    /// Numbers per part of a block, and parts per block.
    part: usize,
    parts: usize,
    /// The next number, and the count of those left.
    next: u64,
    left: usize,
    /// The block's smallest change, and the widths of its parts to come.
    smallest: u64,
    widths: &'a [u8],
    /// The part's bits, the width of a change, and the count of those read.
    bits: &'a [u8],
    width: usize,
    read: usize,
}

impl<'a> Deltas<'a> {
    /// Begins to decode exactly `count` numbers.
    fn new(mut from: &'a [u8], count: usize) -> Option<Self> {
        let mut deltas = Deltas {
            from: &[],
            part: 0,
            parts: 0,
            next: 0,
            left: count,
            smallest: 0,
            widths: &[],
            bits: &[],
            width: 0,
            read: 0,
        };
        if count == 0 {
            return Some(deltas);
        }
        let block = usize::try_from(bytes::take(&mut from)?).ok()?;
        deltas.parts = usize::try_from(bytes::take(&mut from)?).ok()?;
        (bytes::take(&mut from)? == count as u64).then_some(())?;
        deltas.next = bytes::unzigzag(bytes::take(&mut from)?);
        // The format demands this; a multiple of 8 keeps parts on whole bytes.
        deltas.part = block.checked_div(deltas.parts)?;
        (deltas.part > 0 && deltas.part.is_multiple_of(8) && block <= 1 << 16).then_some(())?;
        // The first part has still to be read.
        (deltas.from, deltas.read) = (from, deltas.part);
        Some(deltas)
    }

    /// The next number; `None` if it is missing.
    fn next(&mut self) -> Option<u64> {
        let value = self.next;
        self.left = self.left.checked_sub(1)?;
        if self.left > 0 {
            if self.read == self.part {
                self.next_part()?;
            }
            let change = self.change()?;
            self.next = value.wrapping_add(self.smallest).wrapping_add(change);
        }
        Some(value)
    }

    fn next_part(&mut self) -> Option<()> {
        if self.widths.is_empty() {
            self.smallest = bytes::unzigzag(bytes::take(&mut self.from)?);
            (self.widths, self.from) = self.from.split_at_checked(self.parts)?;
        }
        let (&width, widths) = self.widths.split_first()?;
        self.widths = widths;
        self.width = usize::from(width);
        (self.width <= 64).then_some(())?;
        (self.bits, self.from) = self.from.split_at_checked(self.part / 8 * self.width)?;
        self.read = 0;
        Some(())
    }

    /// The next change of the part, less the smallest.
    fn change(&mut self) -> Option<u64> {
        let (first, width) = (self.read * self.width, self.width);
        self.read += 1;
        if width == 0 {
            return Some(0);
        }
        // 64 bits that begin anywhere lie in nine bytes.
        let bytes = self.bits.get(first / 8..(first + width).div_ceil(8))?;
        let mut sixteen = [0; 16];
        sixteen.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let bits = u128::from_le_bytes(sixteen) >> (first % 8);
        Some((bits & ((1u128 << width) - 1)) as u64)
    }
}
