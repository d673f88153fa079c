//! The page cache, as `/proc/meminfo` shows it.

use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_units::Bytes;

use crate::{Context, Skip};

/// Size of the files on the LRU lists, `Active(file)` and `Inactive(file)`. It excludes shared memory, which
/// `Cached` includes.
///
/// # Errors
/// [`Skip::Unknown`] if either field is missing.
pub(crate) fn file_pages(cx: &Context<'_>) -> Result<Bytes, Skip> {
    Ok(cx.mem(m::Active_file)? + cx.mem(m::Inactive_file)?)
}

/// Growth in bytes of `Cached` without `Shmem` over the period; negative if it shrank.
///
/// # Errors
/// [`Skip::Unknown`] without `Cached`, [`Skip::NeedsSamples`] for a single instant.
pub(crate) fn growth(cx: &Context<'_>) -> Result<f64, Skip> {
    let cached = cx.trend(m::Cached)?;
    let shared = cx.trend(m::Shmem).map_or(0.0, |trend| trend.last - trend.first);
    Ok(cached.last - cached.first - shared)
}

/// The largest fall of [`file_pages`] between two successive samples.
pub(crate) fn largest_fall(cx: &Context<'_>) -> Option<Bytes> {
    let files = cx.samples().iter().filter_map(|sample| {
        let meminfo = sample.meminfo.as_ref()?;
        Some(Bytes::kib(meminfo.get(m::Active_file)?) + Bytes::kib(meminfo.get(m::Inactive_file)?))
    });
    let files: Vec<Bytes> = files.collect();
    files.windows(2).filter_map(|pair| Some(*pair.first()? - *pair.get(1)?)).max()
}
