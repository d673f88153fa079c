//! Writing to a file through the page cache.
//!
//! `write`: CPU time of writing a new file in pieces of 1 MiB, per page, less `copy` and `alloc`. The file is
//! small enough not to reach the dirty limits of the machine. `writeback`: CPU time of the thread in
//! `fdatasync` of that file, per page, less `submit` for every request of the largest size. The completion of
//! the requests is not included: it interrupts whichever thread runs then.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use lotsfree_scenario::Record;
use lotsfree_units::Bytes;

use super::{Effort, PAGE, Value, cpu_of, keep, less, of};

/// The largest file that is written.
const LARGEST: Bytes = Bytes::mib(32);
/// Bytes per write call.
const PIECE: usize = 1 << 20;
/// Pages of the largest request (`max_sectors_kb` is 512).
const REQUEST: f64 = 128.0;

pub(super) fn measure(path: &Path, bytes: Bytes, effort: &Effort, record: &mut Record) {
    let pieces = (bytes.0.min(LARGEST.0) / PIECE as u64).max(1);
    let (write, sync) = match new_files(path, pieces, effort) {
        Ok(both) => both,
        Err(error) => {
            let why = format!("{}: {error}", path.display());
            (Err(why.clone()), Err(why))
        }
    };
    let known = |cost: Option<lotsfree_scenario::Measured>| cost.map_or(0.0, |cost| cost.median);
    let (copy, alloc) = (known(record.costs.copy), known(record.costs.alloc));
    let submit = known(record.costs.submit) / REQUEST;
    let write = write.and_then(|whole| less(whole, copy + alloc));
    let writeback = sync.and_then(|whole| less(whole, submit));
    keep(record, "costs.write", write, |record| &mut record.costs.write);
    keep(record, "costs.writeback", writeback, |record| &mut record.costs.writeback);
}

/// Nanoseconds of CPU time to write a page of a new file, and to sync it.
fn new_files(path: &Path, pieces: u64, effort: &Effort) -> io::Result<(Value, Value)> {
    let piece = vec![1; PIECE];
    let pages = pieces as f64 * (PIECE / PAGE) as f64;
    let (mut writes, mut syncs) = (Vec::new(), Vec::new());
    for _ in 0..effort.repetitions {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let written = measure_one(&file, &piece, pieces);
        std::fs::remove_file(path)?;
        let (write, sync) = written?;
        writes.push(write / pages);
        syncs.push(sync / pages);
    }
    Ok((of(&writes), of(&syncs)))
}

fn measure_one(file: &File, piece: &[u8], pieces: u64) -> io::Result<(f64, f64)> {
    let write = || (0..pieces).try_for_each(|number| file.write_all_at(piece, number * PIECE as u64));
    Ok((cpu_of(write)?, cpu_of(|| file.sync_data())?))
}
