//! Tables as Parquet, for lotsfree and for whatever else reads Parquet.
//!
//! Numbers are `INT64` columns, delta-encoded; text is `BYTE_ARRAY` marked as UTF-8; pages are compressed
//! with zstd. Nothing in a file depends on when or where it was written.
//!
//! The `parquet` crate writes. Reading is ours, as a run may come from anybody: the crate takes declared
//! lengths at their word and panics on some of what cannot be. [`read`] knows only what [`write`] makes.

mod read;
mod thrift;
mod write;

pub(crate) use read::{Damage, read_intervals, read_samples};
pub(crate) use write::{write_intervals, write_samples};

/// The encoded histogram.
const LATENCY: &str = "latency";
