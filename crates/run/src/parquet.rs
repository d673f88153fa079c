//! Tables as Parquet, for lotsfree and for whatever else reads Parquet.
//!
//! Numbers are `INT64` columns, delta-encoded; text is `BYTE_ARRAY` marked as UTF-8; pages are compressed
//! with zstd. Nothing in a file depends on when or where it was written.

use std::fs::File;
use std::sync::Arc;

use lotsfree_storage::OutFile;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::intervals::NUMBERS;
use crate::table::{Column, Samples};
use crate::{Histogram, Intervals};

/// Rows per row group: a reader of one column need not hold more of it at once.
const GROUP: usize = 1 << 16;

/// The contents of a column.
enum Cells<'a> {
    /// Numbers, absent where not present.
    Optional(&'a [u64], &'a [bool]),
    /// Numbers that are always there.
    Numbers(Vec<u64>),
    /// Texts.
    Texts(Vec<&'a [u8]>),
    /// Bytes that are no text.
    Blobs(Vec<&'a [u8]>),
}

impl Cells<'_> {
    fn rows(&self) -> usize {
        match self {
            Cells::Optional(values, _) => values.len(),
            Cells::Numbers(values) => values.len(),
            Cells::Texts(values) | Cells::Blobs(values) => values.len(),
        }
    }

    fn schema(&self, name: &str) -> Result<Type> {
        let (physical, logical, repetition) = match self {
            Cells::Optional(..) => (Physical::INT64, None, Repetition::OPTIONAL),
            Cells::Numbers(_) => (Physical::INT64, None, Repetition::REQUIRED),
            Cells::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
            Cells::Blobs(_) => (Physical::BYTE_ARRAY, None, Repetition::REQUIRED),
        };
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()
    }
}

/// Writes the counters of a run.
pub(crate) fn write_samples(file: OutFile, samples: &Samples) -> Result<()> {
    let columns = samples.columns().iter().map(|column| {
        let (values, present) = column.parts();
        (column.name(), Cells::Optional(values, present))
    });
    write(file, "samples", &columns.collect::<Vec<_>>())
}

/// Quantiles beside each histogram, for programs that do not know its encoding.
const QUANTILES: [(&str, f64); 4] =
    [("latency_p50", 0.5), ("latency_p99", 0.99), ("latency_p999", 0.999), ("latency_max", 1.0)];
/// The encoded histogram.
const LATENCY: &str = "latency";

/// Writes what the actors did.
pub(crate) fn write_intervals(file: OutFile, intervals: &Intervals) -> Result<()> {
    let rows = &intervals.rows;
    let mut columns = vec![
        ("actor", Cells::Texts(rows.iter().map(|row| row.actor.as_bytes()).collect())),
        ("role", Cells::Texts(rows.iter().map(|row| row.role.as_bytes()).collect())),
    ];
    for (index, name) in NUMBERS.iter().enumerate() {
        columns.push((name, Cells::Numbers(rows.iter().map(|row| row.numbers[index]).collect())));
    }
    let (mut values, mut present) = (vec![Vec::new(); QUANTILES.len()], Vec::new());
    for row in rows {
        let histogram: Histogram = row.histogram();
        present.push(histogram.count() > 0);
        for (values, (_, share)) in values.iter_mut().zip(QUANTILES) {
            values.push(histogram.quantile(share).unwrap_or(0));
        }
    }
    for (values, (name, _)) in values.iter().zip(QUANTILES) {
        columns.push((name, Cells::Optional(values, &present)));
    }
    columns.push((LATENCY, Cells::Blobs(rows.iter().map(|row| &*row.latency).collect())));
    write(file, "actors", &columns)
}

fn write(file: OutFile, name: &str, columns: &[(&str, Cells<'_>)]) -> Result<()> {
    let fields = columns.iter().map(|(name, cells)| cells.schema(name).map(Arc::new));
    let schema = Type::group_type_builder(name).with_fields(fields.collect::<Result<_>>()?).build()?;
    let properties = WriterProperties::builder()
        .set_created_by("lotsfree".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_enabled(false)
        .set_offset_index_disabled(true);
    let delta = |builder: parquet::file::properties::WriterPropertiesBuilder, (name, cells): &(&str, _)| {
        let encoding = match cells {
            Cells::Optional(..) | Cells::Numbers(_) => Encoding::DELTA_BINARY_PACKED,
            Cells::Texts(_) | Cells::Blobs(_) => Encoding::PLAIN,
        };
        builder.set_column_encoding(vec![(*name).to_owned()].into(), encoding)
    };
    let properties = columns.iter().fold(properties, delta).build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let rows = columns.first().map_or(0, |(_, cells)| cells.rows());
    let (mut numbers, mut levels) = (Vec::new(), Vec::new());
    for begin in (0..rows).step_by(GROUP) {
        let part = begin..rows.min(begin + GROUP);
        let mut group = writer.next_row_group()?;
        for (_, cells) in columns {
            let Some(mut column) = group.next_column()? else { break };
            match cells {
                Cells::Optional(values, present) => {
                    let (values, present) = (&values[part.clone()], &present[part.clone()]);
                    let there = values.iter().zip(present).filter(|(_, present)| **present);
                    numbers.clear();
                    numbers.extend(there.map(|(value, _)| value.cast_signed()));
                    levels.clear();
                    levels.extend(present.iter().map(|present| i16::from(*present)));
                    column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None)?;
                }
                Cells::Numbers(values) => {
                    numbers.clear();
                    numbers.extend(values[part.clone()].iter().map(|value| value.cast_signed()));
                    column.typed::<Int64Type>().write_batch(&numbers, None, None)?;
                }
                Cells::Texts(values) | Cells::Blobs(values) => {
                    let values: Vec<ByteArray> =
                        values[part.clone()].iter().map(|value| ByteArray::from(value.to_vec())).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
    }
    writer.into_inner()?.sync()?;
    Ok(())
}

/// Reads the counters of a run. Columns of other types are passed over.
pub(crate) fn read_samples(file: File) -> Result<Samples> {
    let reader = SerializedFileReader::new(file)?;
    let mut columns = Vec::new();
    for (index, column) in reader.metadata().file_metadata().schema_descr().columns().iter().enumerate() {
        if column.physical_type() != Physical::INT64 || column.max_rep_level() > 0 {
            continue;
        }
        let (values, present) = numbers(&reader, index, column.max_def_level())?;
        let name = column.path().parts().join(".");
        columns.push(Column::new(&name, values, present));
    }
    Samples::from_columns(columns)
        .ok_or_else(|| ParquetError::General("columns of different length, or twice the same".to_owned()))
}

/// Reads what the actors did.
pub(crate) fn read_intervals(file: File) -> Result<Intervals> {
    let reader = SerializedFileReader::new(file)?;
    let descriptor = reader.metadata().file_metadata().schema_descr();
    let find = |name: &str, physical: Physical| {
        let fits = |column: &parquet::schema::types::ColumnDescPtr| {
            column.name() == name && column.physical_type() == physical && column.max_rep_level() == 0
        };
        let missing = || ParquetError::General(format!("no column {name} of type {physical}"));
        descriptor.columns().iter().position(fits).ok_or_else(missing)
    };
    let texts = |name| bytes(&reader, find(name, Physical::BYTE_ARRAY)?);
    let (actors, roles, latencies) = (texts("actor")?, texts("role")?, texts(LATENCY)?);
    let mut columns = Vec::with_capacity(NUMBERS.len());
    for name in NUMBERS {
        let index = find(name, Physical::INT64)?;
        columns.push(numbers(&reader, index, descriptor.column(index).max_def_level())?.0);
    }
    let wrong = || ParquetError::General("a row that makes no sense".to_owned());
    let mut intervals = Intervals::default();
    for (row, latency) in latencies.iter().enumerate() {
        let mut values = [0; NUMBERS.len()];
        for (value, column) in values.iter_mut().zip(&columns) {
            *value = *column.get(row).ok_or_else(wrong)?;
        }
        let text = |column: &[ByteArray]| {
            let cell = column.get(row).and_then(|cell| str::from_utf8(cell.data()).ok());
            cell.map(str::to_owned).ok_or_else(wrong)
        };
        let (actor, role) = (text(&actors)?, text(&roles)?);
        intervals.push_stored(&actor, &role, values, latency.data()).ok_or_else(wrong)?;
    }
    Ok(intervals)
}

/// The rows of a row group.
fn group_rows(reader: &SerializedFileReader<File>, group: usize) -> Result<usize> {
    let rows = reader.metadata().row_group(group).num_rows();
    usize::try_from(rows).map_err(|_| ParquetError::General("a row group of negative length".to_owned()))
}

/// A column of numbers, and which of them are there.
fn numbers(
    reader: &SerializedFileReader<File>,
    index: usize,
    highest_level: i16,
) -> Result<(Vec<u64>, Vec<bool>)> {
    let (mut values, mut present) = (Vec::new(), Vec::new());
    for group in 0..reader.num_row_groups() {
        let rows = group_rows(reader, group)?;
        let ColumnReader::Int64ColumnReader(mut column) =
            reader.get_row_group(group)?.get_column_reader(index)?
        else {
            return Err(ParquetError::General("a column that is no number".to_owned()));
        };
        let (mut numbers, mut levels) = (Vec::new(), Vec::new());
        column.read_records(rows, Some(&mut levels), None, &mut numbers)?;
        let mut numbers = numbers.into_iter().map(i64::cast_unsigned);
        if highest_level == 0 {
            values.extend(numbers);
        } else {
            for level in levels {
                let value = if level == highest_level { numbers.next() } else { None };
                values.push(value.unwrap_or(0));
                present.push(value.is_some());
            }
        }
    }
    present.resize(values.len(), true);
    Ok((values, present))
}

/// A column of texts or bytes.
fn bytes(reader: &SerializedFileReader<File>, index: usize) -> Result<Vec<ByteArray>> {
    let mut values = Vec::new();
    for group in 0..reader.num_row_groups() {
        let rows = group_rows(reader, group)?;
        let ColumnReader::ByteArrayColumnReader(mut column) =
            reader.get_row_group(group)?.get_column_reader(index)?
        else {
            return Err(ParquetError::General("a column that is no text".to_owned()));
        };
        let mut levels = Vec::new();
        column.read_records(rows, Some(&mut levels), None, &mut values)?;
    }
    Ok(values)
}
