//! Tables as Parquet, for lotsfree and for any other program that reads Parquet.
//!
//! Numbers are `INT64` columns, delta-encoded; text is `BYTE_ARRAY` marked as UTF-8; pages are compressed
//! with zstd. Nothing in a file depends on when or where it was written.
//!
//! The `parquet` crate writes the tables. It is not used to read them, as a run may come from anybody: the
//! crate trusts declared lengths, and panics on some invalid files. [`read`] understands only the tables that
//! [`mod@write`] makes.

mod read;
mod thrift;
mod write;

pub(crate) use read::{Damage, read_intervals, read_samples};
pub(crate) use write::{write_intervals, write_samples};

/// The encoded histogram.
const LATENCY: &str = "latency";
