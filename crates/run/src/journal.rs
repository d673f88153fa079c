//! The journal: the rows of a run, in the order in which they come.
//!
//! The file only grows, by one `write` per call of the sink, so that a process that is killed leaves all rows
//! but the one that it was writing. When the run ends, the journal is turned into Parquet, and removed.
//!
//! ```text
//! file    = "lotsfree journal 1\n" record…
//! record  = length u32 · FNV-1a of the payload, low half u32 · payload          little-endian
//! payload = 1 · name…                columns of samples that follow those known so far
//!         | 2 · bitmap · change…     a sample: its columns, and their changes since they were last present
//!         | 3 · row…                 intervals without their toll, which older lotsfree wrote
//!         | 4 · JSON                 an event
//!         | 5 · text                 between processes only (`wire`)
//!         | 6 · row…                 intervals
//! row     = actor · role · number… · histogram      13 numbers without the toll, 20 with it
//! ```
//! Numbers are LEB128, and changes are zigzag-encoded. A sample mostly takes one or two bytes per counter.

use std::io::{self, BufReader, Read};

use lotsfree_storage::Fnv1a;

use crate::bytes;
use crate::intervals::{NUMBERS, TOLL};
use crate::table::Samples;
use crate::{Event, Interval, Intervals, Sample, intervals, layout, store};

/// First bytes of a journal.
pub(crate) const MAGIC: &[u8] = b"lotsfree journal 1\n";

const COLUMNS: u8 = 1;
const SAMPLE: u8 = 2;
const INTERVALS_WITHOUT_TOLL: u8 = 3;
const EVENT: u8 = 4;
const TEXT: u8 = 5;
const INTERVALS: u8 = 6;

/// Encodes records. It keeps the columns and their last values.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// Only the names are used: no row is ever ended.
    columns: Samples,
    last: Vec<u64>,
    row: Vec<Option<u64>>,
}

impl Encoder {
    /// Number of columns that the samples have had.
    pub(crate) fn columns(&self) -> usize {
        self.last.len()
    }

    /// The records of a sample.
    pub(crate) fn sample(&mut self, sample: &Sample, out: &mut Vec<u8>) {
        let known = self.last.len();
        let mut next = 0;
        self.row.clear();
        self.row.resize(known, None);
        layout::visit(sample, &mut |name, value| {
            let place = self.columns.place(name, next);
            next = place + 1;
            if place >= self.row.len() {
                self.row.resize(place + 1, None);
            }
            self.row[place].get_or_insert(value);
        });
        if self.row.len() > known {
            record(out, |out| {
                out.push(COLUMNS);
                for column in self.columns.columns().iter().skip(known) {
                    bytes::put_bytes(out, column.name().as_bytes());
                }
            });
            self.last.resize(self.row.len(), 0);
        }
        record(out, |out| {
            out.push(SAMPLE);
            for eight in self.row.chunks(8) {
                let bit = |(index, cell): (usize, &Option<u64>)| u8::from(cell.is_some()) << index;
                out.push(eight.iter().enumerate().map(bit).sum());
            }
            for (cell, last) in self.row.iter().zip(&mut self.last) {
                if let Some(value) = cell {
                    bytes::put(out, bytes::zigzag(value.wrapping_sub(*last)));
                    *last = *value;
                }
            }
        });
    }

    /// The record of intervals.
    pub(crate) fn intervals(rows: &[Interval], out: &mut Vec<u8>) {
        record(out, |out| {
            out.push(INTERVALS);
            rows.iter().for_each(|row| intervals::encode(row, out));
        });
    }

    /// The record of a text.
    pub(crate) fn text(text: &str, out: &mut Vec<u8>) {
        record(out, |out| {
            out.push(TEXT);
            out.extend_from_slice(text.as_bytes());
        });
    }

    /// The record of an event.
    pub(crate) fn event(event: &Event, out: &mut Vec<u8>) {
        record(out, |out| {
            out.push(EVENT);
            // Numbers and text always have a JSON form.
            let _ = serde_json::to_writer(out, event);
        });
    }
}

/// Bytes of length and checksum before the payload.
const HEADER: usize = 8;

/// Appends a record whose payload `fill` writes.
fn record(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let head = out.len();
    out.extend_from_slice(&[0; 8]);
    fill(out);
    let payload = &out[head + 8..];
    let (length, check) = (payload.len() as u32, Fnv1a::of(payload) as u32);
    out[head..head + 4].copy_from_slice(&length.to_le_bytes());
    out[head + 4..head + 8].copy_from_slice(&check.to_le_bytes());
}

/// Contents of a journal.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) samples: Samples,
    pub(crate) intervals: Intervals,
    pub(crate) events: Vec<Event>,
    /// Bytes at the end that are not a whole record.
    pub(crate) rest: u64,
    /// Bytes of events and of histograms.
    event_bytes: u64,
    latency_bytes: u64,
}

/// The longest record that is read, in bytes. A sample of thousands of CPUs takes some 100 KiB.
pub(crate) const LONGEST: usize = 1 << 26;

/// Reads a journal of `length` bytes up to its last whole record. If its first line is cut off, the journal
/// is empty; if it begins in another way, the result is `None`. Only one record is in memory at a time,
/// beside the contents of those before it.
pub(crate) fn read(journal: impl Read, length: u64) -> io::Result<Option<Contents>> {
    let mut journal = BufReader::with_capacity(1 << 16, journal);
    let mut contents = Contents { rest: length, ..Contents::default() };
    let mut record = Vec::new();
    (&mut journal).take(MAGIC.len() as u64).read_to_end(&mut record)?;
    if record != MAGIC {
        return Ok(MAGIC.starts_with(&record).then_some(contents));
    }
    let mut last = Vec::new();
    loop {
        contents.rest = contents.rest.saturating_sub(record.len() as u64);
        if !read_record(&mut journal, &mut record)? {
            break;
        }
        let whole = next(&record).and_then(|(payload, _)| contents.add(payload, &mut last));
        if whole.is_none() {
            break;
        }
    }
    Ok(Some(contents))
}

/// Reads the next record undecoded; false if there is none, or if it is incomplete. No more memory is
/// allocated than the record has bytes.
fn read_record(journal: &mut impl Read, record: &mut Vec<u8>) -> io::Result<bool> {
    record.clear();
    journal.take(HEADER as u64).read_to_end(record)?;
    let Some(length) = record.first_chunk().filter(|_| record.len() == HEADER) else { return Ok(false) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > LONGEST {
        return Ok(false);
    }
    journal.take(length as u64).read_to_end(record)?;
    Ok(record.len() == HEADER + length)
}

/// The payload of the first record, if it is whole, and the bytes that follow it.
pub(crate) fn next(from: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, from) = from.split_first_chunk()?;
    let (check, from) = from.split_first_chunk()?;
    let (payload, rest) = from.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    (Fnv1a::of(payload) as u32 == u32::from_le_bytes(*check)).then_some((payload, rest))
}

/// The text of a record of [`Encoder::text`], or `Some(None)` if it is not UTF-8; `None` for any other
/// record.
pub(crate) fn as_text(payload: &[u8]) -> Option<Option<&str>> {
    let text = payload.strip_prefix(&[TEXT])?;
    Some(str::from_utf8(text).ok())
}

impl Contents {
    /// Resets the count of bytes that are kept, for a caller that takes the rows out.
    pub(crate) fn forget_sizes(&mut self) {
        (self.event_bytes, self.latency_bytes) = (0, 0);
    }

    /// Adds a record; `None` if it is invalid, or would be more than a run may have.
    pub(crate) fn add(&mut self, payload: &[u8], last: &mut Vec<u64>) -> Option<()> {
        let (kind, mut from) = payload.split_first()?;
        match *kind {
            COLUMNS => {
                while !from.is_empty() {
                    let name = bytes::take_text(&mut from)?;
                    (last.len() < store::MOST_COLUMNS).then_some(())?;
                    (self.samples.place(name.into(), last.len()) == last.len()).then_some(())?;
                    last.push(0);
                }
            }
            SAMPLE => {
                let (bitmap, mut from) = from.split_at_checked(last.len().div_ceil(8))?;
                let mut row = Vec::with_capacity(last.len());
                for (index, last) in last.iter().enumerate() {
                    let present = bitmap.get(index / 8)? >> (index % 8) & 1 == 1;
                    let change = if present { Some(bytes::take(&mut from)?) } else { None };
                    row.push(change.map(|change| last.wrapping_add(bytes::unzigzag(change))));
                }
                let number = self.samples.len();
                (from.is_empty() && store::fits(number + 1, last.len())).then_some(())?;
                for (place, (cell, last)) in row.into_iter().zip(last).enumerate() {
                    if let Some(value) = cell {
                        self.samples.set(place, number, value);
                        *last = value;
                    }
                }
                self.samples.end_row();
            }
            INTERVALS | INTERVALS_WITHOUT_TOLL => {
                let stored = if *kind == INTERVALS { NUMBERS.len() } else { TOLL };
                while !from.is_empty() {
                    (self.intervals.len() < store::MOST_INTERVALS).then_some(())?;
                    let latency = intervals::decode(&mut from, stored, &mut self.intervals)?;
                    if stored < NUMBERS.len() {
                        self.intervals.lack_toll();
                    }
                    self.latency_bytes += latency as u64;
                    (self.latency_bytes <= store::MOST_LATENCY).then_some(())?;
                }
            }
            EVENT => {
                self.event_bytes += from.len() as u64;
                (self.event_bytes <= store::MOST_EVENTS).then_some(())?;
                self.events.push(serde_json::from_slice(from).ok()?);
            }
            _ => return None,
        }
        Some(())
    }
}
