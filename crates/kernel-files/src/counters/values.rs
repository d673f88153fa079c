//! [`Values`]: the counters of one file, indexed by the table.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::version::Release;

/// Unit of a counter, spelled as in the rows of the table.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// KiB, printed as `kB` by the kernel.
    kib,
    /// Bytes.
    bytes,
    /// Base pages of the host.
    pages,
    /// Objects or events.
    count,
    /// Microseconds.
    us,
    /// Milliseconds.
    ms,
    /// A dimensionless number (ratio, mode, flag).
    number,
}

/// Whether a counter is a level or only ever grows, spelled as in the rows of the table.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A level: may go up and down.
    gauge,
    /// Grows from boot (or creation) on; only its change is meaningful.
    monotonic,
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// The kernel's spelling.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: Unit,
    /// Whether it is a level or only grows.
    pub kind: Kind,
    /// First kernel that has it (`2.6.32` stands for "that or earlier").
    pub since: Release,
    /// First kernel that no longer has it, if any.
    pub until: Option<Release>,
    /// Meaning of the counter, in one sentence.
    pub meaning: &'static str,
    /// The kernel file and function that prints or moves it.
    pub source: &'static str,
}

impl Row {
    /// Whether the kernel of a release, given by its numbers, has the counter.
    #[inline]
    pub fn is_in(&self, release: (u32, u32, u32)) -> bool {
        release >= self.since.numbers && self.until.is_none_or(|until| release < until.numbers)
    }
}

/// A file (or kind of file) whose lines are counters of one table.
pub trait Family: Sized + Copy + fmt::Debug + 'static {
    /// Module name in this crate, such as `vmstat`.
    const NAME: &'static str;
    /// Where the kernel shows it, such as `/proc/vmstat`.
    const FILE: &'static str;
    /// The byte that ends a name: `b':'` in `MemTotal: 1 kB`, `b' '` in `nr_free_pages 1`.
    const SEPARATOR: u8;
    /// The rows, in the order in which recent kernels print them.
    const ROWS: &'static [Row];

    /// The lookup table, built at first use.
    fn index() -> &'static Index;
}

/// A counter of family `F`: an index into its rows.
pub struct Counter<F> {
    index: u16,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> Counter<F> {
    /// The counter of row `index`. Only the table itself makes counters.
    #[inline]
    pub(crate) const fn at(index: u16) -> Self {
        Counter { index, family: PhantomData }
    }

    /// The counter that the kernel spells `name`.
    pub fn named(name: &str) -> Option<Self> {
        F::index().find(F::ROWS, name.as_bytes(), 0).map(Self::at)
    }

    /// All counters of the family, in the order of the table.
    #[inline]
    pub fn all() -> impl Iterator<Item = Self> {
        (0u16..).take(F::ROWS.len()).map(Self::at)
    }

    /// Index of its row in the table.
    #[inline]
    pub const fn row_index(self) -> usize {
        self.index as usize
    }

    /// Its row in the table.
    #[inline]
    pub fn row(self) -> &'static Row {
        &F::ROWS[usize::from(self.index)]
    }

    /// The kernel's spelling.
    #[inline]
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

impl<F> Clone for Counter<F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Counter<F> {}
impl<F> PartialEq for Counter<F> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}
impl<F> Eq for Counter<F> {}
impl<F: Family> fmt::Debug for Counter<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", F::NAME, self.name())
    }
}

/// Finds rows by name. Kernels print counters in nearly the order of the table, so looking a few rows past
/// the last hit finds almost every name; the hash map is built only when that fails.
#[derive(Debug, Default)]
pub struct Index {
    map: OnceLock<HashMap<&'static [u8], u16>>,
}

impl Index {
    /// How many rows to look ahead before asking the map. Kernels leave out runs of counters that they were
    /// not built with.
    const AHEAD: usize = 12;

    /// An empty index.
    pub const fn new() -> Self {
        Index { map: OnceLock::new() }
    }

    /// The row named `name`, trying from row `hint` on first.
    fn find(&self, rows: &'static [Row], name: &[u8], hint: usize) -> Option<u16> {
        for (i, row) in rows.iter().enumerate().skip(hint).take(Self::AHEAD) {
            if row.name.as_bytes() == name {
                return Some(i as u16);
            }
        }
        let map = self.map.get_or_init(|| {
            rows.iter().enumerate().map(|(i, row)| (row.name.as_bytes(), i as u16)).collect()
        });
        map.get(name).copied()
    }
}

/// A line that is not `name value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Line number, from 1.
    pub line: u32,
    /// The fault in it.
    pub why: &'static str,
}

/// The counters of one file at one instant.
///
/// A counter that the file did not have is absent, never zero. Lines with names that the table lacks (newer
/// kernels, vendor patches) are kept in [`Values::unknown`].
#[derive(Clone)]
pub struct Values<F> {
    /// A value for each row of the table; none at all as long as every counter is absent.
    values: Box<[u64]>,
    unknown: Vec<(Box<str>, u64)>,
    family: PhantomData<fn() -> F>,
}

/// Marks an absent value; the kernel never prints it in these files.
const ABSENT: u64 = u64::MAX;
/// A bound on the lines with unknown names that are kept, so that hostile input cannot fill memory.
const MOST_UNKNOWN: usize = 4096;
/// A bound on the length of a name; the kernel's longest has about forty bytes.
const LONGEST_NAME: usize = 256;

impl<F: Family> Default for Values<F> {
    fn default() -> Self {
        Values { values: Box::default(), unknown: Vec::new(), family: PhantomData }
    }
}

impl<F: Family> PartialEq for Values<F> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter()) && self.unknown == other.unknown
    }
}

impl<F: Family> Eq for Values<F> {}

impl<F: Family> Values<F> {
    /// The value of `counter` in its own unit, or `None` where the file did not have it.
    #[inline]
    pub fn get(&self, counter: Counter<F>) -> Option<u64> {
        self.values.get(usize::from(counter.index)).copied().filter(|value| *value != ABSENT)
    }

    /// Sets `counter`; `u64::MAX` cannot be held and makes it absent.
    #[inline]
    pub fn set(&mut self, counter: Counter<F>, value: u64) {
        self.set_row(counter.index, value);
    }

    #[inline]
    fn set_row(&mut self, row: u16, value: u64) {
        if self.values.is_empty() {
            self.values = vec![ABSENT; F::ROWS.len()].into();
        }
        self.values[usize::from(row)] = value;
    }

    /// The sum of those of `counters` that are present, `None` if none is: a quantity that kernels have split
    /// or renamed (see [`groups`](crate::counters::groups)). Saturating.
    pub fn sum(&self, counters: &[Counter<F>]) -> Option<u64> {
        let present = counters.iter().filter_map(|&counter| self.get(counter));
        present.reduce(u64::saturating_add)
    }

    /// Lines whose names the table lacks, in file order.
    pub fn unknown(&self) -> &[(Box<str>, u64)] {
        &self.unknown
    }

    /// Whether nothing at all was read.
    pub fn is_empty(&self) -> bool {
        self.unknown.is_empty() && self.values.iter().all(|&v| v == ABSENT)
    }

    /// The counters that are present, in table order.
    pub fn iter(&self) -> impl Iterator<Item = (Counter<F>, u64)> + '_ {
        // Most files have a part of the table. What they lack is passed over in strides.
        const STRIDE: usize = 16;
        let strides = (0u16..).step_by(STRIDE).zip(self.values.chunks(STRIDE));
        let present = strides.filter(|(_, values)| values.iter().fold(ABSENT, |all, v| all & v) != ABSENT);
        present.flat_map(|(first, values)| {
            let rows = (first..).zip(values).filter(|(_, v)| **v != ABSENT);
            rows.map(|(i, &v)| (Counter::at(i), v))
        })
    }

    /// Records one `name value` pair. `hint` is the row after the previous hit, and is moved past this one.
    /// At most 4096 unknown names are kept.
    pub fn record(&mut self, name: &[u8], value: u64, hint: &mut usize) {
        self.keep(name, value, hint);
    }

    /// Like [`Values::record`]; returns `false` if there are already too many unknown names to keep another.
    fn keep(&mut self, name: &[u8], value: u64, hint: &mut usize) -> bool {
        match F::index().find(F::ROWS, name, *hint) {
            Some(i) => {
                self.set_row(i, value);
                *hint = usize::from(i) + 1;
            }
            None if self.unknown.len() < MOST_UNKNOWN => {
                // A byte that is not valid UTF-8 becomes three bytes; the name must not outgrow what can be
                // read back.
                let name = String::from_utf8_lossy(name);
                let name = name[..name.floor_char_boundary(LONGEST_NAME)].trim_ascii_end();
                self.unknown.push((name.into(), value));
            }
            None => return false,
        }
        true
    }

    /// Reads a whole file of `name value [kB]` lines. Other lines are handed to `bad` and skipped.
    pub fn parse(text: &[u8], mut bad: impl FnMut(BadLine)) -> Self {
        let mut values = Self::default();
        let mut hint = 0;
        for (line, number) in text.split(|&b| b == b'\n').zip(1u32..) {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match field(line, F::SEPARATOR) {
                Ok((name, value)) => {
                    if !values.keep(name, value, &mut hint) {
                        bad(BadLine { line: number, why: "more unknown names than are kept" });
                    }
                }
                Err(why) => bad(BadLine { line: number, why }),
            }
        }
        values
    }

    /// Prints what [`Values::parse`] reads: the present counters in table order, then the unknown ones.
    pub fn print(&self, out: &mut String) {
        for (counter, value) in self.iter() {
            // Only `name: value kB` files print a unit; pgpgin of /proc/vmstat is in KiB and bare.
            let kib = F::SEPARATOR == b':' && counter.row().unit == Unit::kib;
            print_field(out, F::SEPARATOR, counter.name(), value, kib);
        }
        for (name, value) in &self.unknown {
            print_field(out, F::SEPARATOR, name, *value, false);
        }
    }
}

fn print_field(out: &mut String, separator: u8, name: &str, value: u64, kib: bool) {
    out.push_str(name);
    if separator == b':' {
        out.push(':');
    }
    out.push(' ');
    out.push_str(&value.to_string());
    out.push_str(if kib { " kB\n" } else { "\n" });
}

/// Splits `  name: 123 kB` or `name 123` into its name and number.
///
/// With separator `b' '` (which stands for a tab as well) the name ends at the first blank that is followed
/// by a digit, so that it may contain blanks itself: `vm stats threshold 4`.
///
/// # Errors
/// Says what is wrong: no name, no separator, no number, a number that 64 bits do not hold, something behind
/// it.
pub fn field(line: &[u8], separator: u8) -> Result<(&[u8], u64), &'static str> {
    let line = line.trim_ascii();
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let end = if separator == b' ' {
        let number = line.windows(2).position(|w| blank(&w[0]) && w[1].is_ascii_digit());
        match number {
            Some(end) => Some(end),
            None if line.iter().any(blank) => return Err("no number after the name"),
            None => None,
        }
    } else {
        line.iter().position(|&b| b == separator)
    };
    let end = end.ok_or("no separator between a name and a number")?;
    let (name, rest) = (line[..end].trim_ascii(), &line[end + 1..]);
    if name.is_empty() {
        return Err("a number without a name");
    }
    if name.len() > LONGEST_NAME {
        return Err("a name longer than any counter has");
    }
    let rest = rest.trim_ascii_start();
    let mut value = 0u64;
    let mut digits = 0;
    for &b in rest {
        if !b.is_ascii_digit() {
            break;
        }
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(u64::from(b - b'0')))
            .ok_or("a number larger than 64 bits hold")?;
        digits += 1;
    }
    match &rest[digits..] {
        _ if digits == 0 => Err("no number after the name"),
        _ if value == ABSENT => Err("a number larger than any counter"),
        [] => Ok((name, value)),
        [b, unit @ ..] if b.is_ascii_whitespace() && matches!(unit.trim_ascii(), b"" | b"kB" | b"KB") => {
            Ok((name, value))
        }
        _ => Err("something other than kB after the number"),
    }
}

impl<F: Family> fmt::Debug for Values<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        map.entries(self.iter().map(|(c, v)| (c.name(), v)));
        map.entries(self.unknown.iter().map(|(n, v)| (n, v))).finish()
    }
}

impl<F: Family> Serialize for Values<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (counter, value) in self.iter() {
            map.serialize_entry(counter.name(), &value)?;
        }
        for (name, value) in &self.unknown {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
