//! [`Reader`]: the records of a trace, one by one.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use lotsfree_storage as storage;

use super::{Access, OracleRecord, table::Shape};

/// How a trace is read.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The shape of a table; else the trace is oracleGeneral.
    pub(crate) csv: Option<Shape>,
}

/// The first bytes of a zstd frame (RFC 8878, 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Bytes of a table between the begins of two records, comments and blank lines among them. Lines of traces
/// have some 50; a file that has no line ends, or a quote that is never closed, would be read into memory
/// whole.
const MOST_BYTES: u64 = 1 << 20;

/// What a trace holds, decompressed.
struct Bytes {
    from: Box<dyn Read + Send>,
    /// What may still be read before the next record.
    left: u64,
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        let too_long = || io::Error::other(format!("more than {MOST_BYTES} bytes without a record"));
        self.left = self.left.checked_sub(read as u64).ok_or_else(too_long)?;
        Ok(read)
    }
}

/// Reads a trace from its beginning to its end, in constant memory.
pub(crate) struct Reader {
    records: Records,
    /// Records read.
    count: u64,
    /// The file, for errors.
    name: String,
}

/// A table, with a line end at its end.
type Table = csv::Reader<io::Chain<Bytes, &'static [u8]>>;

enum Records {
    Table { shape: Shape, reader: Table, record: csv::ByteRecord },
    Oracle(BufReader<Box<dyn Read + Send>>),
}

impl Reader {
    /// Opens a trace, compressed or not.
    pub(crate) fn open(path: &Path, settings: &Settings) -> Result<Reader, String> {
        let name = path.display().to_string();
        let bytes = bytes(path).map_err(|error| format!("{name}: {error}"))?;
        let records = match &settings.csv {
            None => Records::Oracle(BufReader::with_capacity(1 << 16, bytes.from)),
            Some(shape) => Records::Table {
                shape: shape.clone(),
                reader: csv::ReaderBuilder::new()
                    .has_headers(shape.header)
                    .delimiter(shape.delimiter)
                    .comment(Some(b'#'))
                    .flexible(true)
                    .terminator(csv::Terminator::Any(b'\n'))
                    .buffer_capacity(1 << 16)
                    .from_reader(bytes.chain(&b"\n"[..])),
                record: csv::ByteRecord::new(),
            },
        };
        Ok(Reader { records, count: 0, name })
    }

    /// The next record. An error names the file and the record.
    pub(crate) fn next(&mut self) -> Result<Option<Access>, String> {
        self.count += 1;
        let access = match &mut self.records {
            Records::Oracle(reader) => oracle(reader),
            Records::Table { shape, reader, record } => match read_line(reader, record) {
                Ok(false) => Ok(None),
                Ok(true) => shape.access(record).map(Some),
                Err(error) => Err(match error.into_kind() {
                    csv::ErrorKind::Io(error) => {
                        // The reader stands within the line, not behind it.
                        let line = reader.position().line();
                        return Err(format!("{}: record {}, line {line}: {error}", self.name, self.count));
                    }
                    other => format!("{other:?}"),
                }),
            },
        };
        access.map_err(|error| format!("{}: {error}", self.place()))
    }

    /// The record that was read last, as an error names it.
    pub(crate) fn place(&self) -> String {
        let line = match &self.records {
            // The reader stands behind the line's end, which there always is.
            Records::Table { reader, .. } => Some(reader.position().line().saturating_sub(1)),
            Records::Oracle(_) => None,
        };
        match line {
            Some(line) => format!("{}: record {}, line {line}", self.name, self.count),
            None => format!("{}: record {}", self.name, self.count),
        }
    }
}

/// Reads the next record that is not blank; false at the end. A carriage return is part of the last column.
fn read_line(reader: &mut Table, record: &mut csv::ByteRecord) -> csv::Result<bool> {
    // What the reader holds already is 64 KiB at most.
    reader.get_mut().get_mut().0.left = MOST_BYTES;
    while reader.read_byte_record(record)? {
        if record.len() > 1 || record.get(0).is_some_and(|field| !field.trim_ascii().is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn bytes(path: &Path) -> io::Result<Bytes> {
    let mut file = BufReader::with_capacity(1 << 16, storage::open_regular(path)?);
    let from: Box<dyn Read + Send> = if file.fill_buf()?.starts_with(&ZSTD) {
        Box::new(zstd::Decoder::with_buffer(file)?)
    } else {
        Box::new(file)
    };
    Ok(Bytes { from, left: MOST_BYTES })
}

/// A record, none at the end, and an error where the file ends within one.
#[inline]
fn oracle(reader: &mut impl BufRead) -> Result<Option<Access>, String> {
    const LEN: usize = OracleRecord::LEN;
    let buffered = reader.fill_buf().map_err(|error| error.to_string())?;
    if let Some(record) = buffered.first_chunk::<LEN>() {
        let access = of_oracle(*record);
        reader.consume(LEN);
        return Ok(Some(access));
    }
    if buffered.is_empty() {
        return Ok(None);
    }
    // A record that lies across two buffers.
    let mut record = Vec::with_capacity(LEN);
    reader.take(LEN as u64).read_to_end(&mut record).map_err(|error| error.to_string())?;
    match record.first_chunk::<LEN>() {
        Some(record) => Ok(Some(of_oracle(*record))),
        None => Err(format!("the file ends after {} of its {LEN} bytes", record.len())),
    }
}

fn of_oracle(record: [u8; OracleRecord::LEN]) -> Access {
    let OracleRecord { clock_time, object, size, .. } = OracleRecord::from_bytes(record);
    Access { time: clock_time.into(), place: object, size: size.into(), write: None }
}
