//! [`Reader`]: the records of a trace, one by one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::{Access, OracleRecord, table::Shape};

/// How a trace is read.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The shape of a table; else the trace is oracleGeneral.
    pub(crate) csv: Option<Shape>,
}

/// The first bytes of a zstd frame (RFC 8878, 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

type Bytes = Box<dyn Read + Send>;

/// Reads a trace from its beginning to its end, in constant memory.
pub(crate) struct Reader {
    records: Records,
    /// Records read.
    count: u64,
    /// The file, for errors.
    name: String,
}

enum Records {
    Table { shape: Shape, reader: csv::Reader<Bytes>, record: csv::ByteRecord },
    Oracle(BufReader<Bytes>),
}

impl Reader {
    /// Opens a trace, compressed or not.
    pub(crate) fn open(path: &Path, settings: &Settings) -> Result<Reader, String> {
        let name = path.display().to_string();
        let bytes = bytes(path).map_err(|error| format!("{name}: {error}"))?;
        let records = match &settings.csv {
            None => Records::Oracle(BufReader::with_capacity(1 << 16, bytes)),
            Some(shape) => Records::Table {
                shape: shape.clone(),
                reader: csv::ReaderBuilder::new()
                    .has_headers(shape.header)
                    .delimiter(shape.delimiter)
                    .comment(Some(b'#'))
                    .flexible(true)
                    .buffer_capacity(1 << 16)
                    .from_reader(bytes),
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
            Records::Table { shape, reader, record } => match reader.read_byte_record(record) {
                Ok(false) => Ok(None),
                Ok(true) => shape.access(record).map(Some),
                Err(error) => Err(match error.into_kind() {
                    csv::ErrorKind::Io(error) => error.to_string(),
                    other => format!("{other:?}"),
                }),
            },
        };
        access.map_err(|error| format!("{}: {error}", self.place()))
    }

    /// The record that was read last, as an error names it.
    pub(crate) fn place(&self) -> String {
        let line = match &self.records {
            Records::Table { record, .. } => record.position().map(csv::Position::line),
            Records::Oracle(_) => None,
        };
        match line {
            Some(line) => format!("{}: record {}, line {line}", self.name, self.count),
            None => format!("{}: record {}", self.name, self.count),
        }
    }
}

fn bytes(path: &Path) -> io::Result<Bytes> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    Ok(if file.fill_buf()?.starts_with(&ZSTD) {
        Box::new(zstd::Decoder::with_buffer(file)?)
    } else {
        Box::new(file)
    })
}

/// A record, none at the end, and an error where the file ends within one.
fn oracle(reader: &mut impl BufRead) -> Result<Option<Access>, String> {
    let mut record = [0; OracleRecord::LEN];
    let mut filled = 0;
    while let Some(rest) = record.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match reader.read(rest) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(format!("the file ends after {filled} of its {} bytes", OracleRecord::LEN)),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let OracleRecord { clock_time, object, size, .. } = OracleRecord::from_bytes(record);
    Ok(Some(Access { time: clock_time.into(), place: object, size: size.into(), write: None }))
}
