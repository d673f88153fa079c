//! Which processes write most to storage.

use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::Bytes;

use crate::finding::subject;
use crate::{Context, Evidence};

/// The largest writers, at most three, as evidence: over the period if both ends were read, else since their
/// start. Empty if no `/proc/PID/io` was readable.
pub(crate) fn largest_writers(cx: &Context<'_>) -> Vec<Evidence> {
    const LEAST: Bytes = Bytes::mib(1);
    let written = |p: &Process| p.detail.as_ref().and_then(|d| d.io).map(|(_, written)| written);
    let mut over: Vec<(u64, &Process)> = (cx.process_pairs().unwrap_or_default().into_iter())
        .filter_map(|(before, now)| Some((written(now)?.saturating_sub(written(before)?), now)))
        .filter(|(bytes, _)| *bytes >= LEAST.0)
        .collect();
    let seconds = cx.seconds().ok().filter(|_| !over.is_empty());
    if seconds.is_none() {
        over = (cx.processes().unwrap_or_default().iter())
            .filter_map(|p| Some((written(p)?, p)))
            .filter(|(bytes, _)| *bytes >= LEAST.0)
            .collect();
    }
    over.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    over.into_iter()
        .take(3)
        .map(|(bytes, process)| {
            let value = match seconds {
                Some(seconds) => format!("{}/s", Bytes((bytes as f64 / seconds) as u64)),
                None => format!("{} since it started", Bytes(bytes)),
            };
            Evidence::new("/proc/PID/io", "write_bytes", value).of(subject(process))
        })
        .collect()
}
