//! Writing tables.

use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::intervals::NUMBERS;
use crate::{Column, Histogram, Intervals, Samples};

use super::LATENCY;

/// Rows per row group. A reader of a column need not hold more rows of it at once.
const GROUP: usize = 1 << 16;

/// The contents of a column.
enum Cells<'a> {
    Counter(&'a Column),
    /// Numbers, with flags that say which of them are present.
    Optional(&'a [u64], &'a [bool]),
    /// Numbers that are always present.
    Numbers(Vec<u64>),
    /// Texts.
    Texts(Vec<&'a [u8]>),
    /// Bytes that are not text.
    Blobs(Vec<&'a [u8]>),
}

impl Cells<'_> {
    fn rows(&self) -> usize {
        match self {
            Cells::Counter(column) => column.len(),
            Cells::Optional(values, _) => values.len(),
            Cells::Numbers(values) => values.len(),
            Cells::Texts(values) | Cells::Blobs(values) => values.len(),
        }
    }

    fn schema(&self, name: &str) -> Result<Type> {
        let (physical, logical, repetition) = match self {
            Cells::Counter(_) | Cells::Optional(..) => (Physical::INT64, None, Repetition::OPTIONAL),
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
pub(crate) fn write_samples(out: &mut Vec<u8>, samples: &Samples) -> Result<()> {
    let columns = samples.columns().iter().map(|column| (column.name(), Cells::Counter(column)));
    write(out, "samples", &columns.collect::<Vec<_>>())
}

/// Quantiles beside each histogram, for programs that do not know its encoding.
const QUANTILES: [(&str, f64); 4] =
    [("latency_p50", 0.5), ("latency_p99", 0.99), ("latency_p999", 0.999), ("latency_max", 1.0)];

/// Writes the intervals of the actors.
pub(crate) fn write_intervals(out: &mut Vec<u8>, intervals: &Intervals) -> Result<()> {
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
    write(out, "actors", &columns)
}

fn write(out: &mut Vec<u8>, name: &str, columns: &[(&str, Cells<'_>)]) -> Result<()> {
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
            Cells::Counter(_) | Cells::Optional(..) | Cells::Numbers(_) => Encoding::DELTA_BINARY_PACKED,
            Cells::Texts(_) | Cells::Blobs(_) => Encoding::PLAIN,
        };
        builder.set_column_encoding(vec![(*name).to_owned()].into(), encoding)
    };
    let properties = columns.iter().fold(properties, delta).build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let rows = columns.first().map_or(0, |(_, cells)| cells.rows());
    let (mut numbers, mut levels) = (Vec::new(), Vec::new());
    for begin in (0..rows).step_by(GROUP) {
        let part = begin..rows.min(begin + GROUP);
        let mut group = writer.next_row_group()?;
        for (_, cells) in columns {
            let Some(mut column) = group.next_column()? else { break };
            numbers.clear();
            levels.clear();
            match cells {
                Cells::Counter(counter) => {
                    let values = counter.rows(part.clone());
                    levels.extend(values.clone().map(|value| i16::from(value.is_some())));
                    numbers.extend(values.flatten().map(u64::cast_signed));
                    column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None)?;
                }
                Cells::Optional(values, present) => {
                    let (values, present) = (&values[part.clone()], &present[part.clone()]);
                    let there = values.iter().zip(present).filter(|(_, present)| **present);
                    numbers.extend(there.map(|(value, _)| value.cast_signed()));
                    levels.extend(present.iter().map(|present| i16::from(*present)));
                    column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None)?;
                }
                Cells::Numbers(values) => {
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
    writer.close()?;
    Ok(())
}
