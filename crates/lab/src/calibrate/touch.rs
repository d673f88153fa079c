//! Touches of resident pages.
//!
//! Loads the first byte of one random page after the other, as actors do. Each page depends on the value that
//! the previous load returned, so that no two loads overlap. The cost includes the TLB miss, the cache miss,
//! and the few instructions that choose the page. The model's `touch` is the cost for the largest footprint,
//! because its workloads are larger than caches are.

use lotsfree_kernel_files::counters::{Meminfo, Values, meminfo};
use lotsfree_scenario::{Record, Touch};
use lotsfree_sys::{Hint, Region};
use lotsfree_units::{Bytes, MIB};
use lotsfree_workload::quantity::Size;

use super::{Effort, PAGE, Random, cpu, keep, repeated};

/// The smallest footprint.
const LEAST: u64 = MIB;
/// Each footprint is this many times the one before.
const STEP: u64 = 4;
/// A footprint is at most `MemAvailable` divided by this.
const SHARE: u64 = 4;

pub(super) fn measure(effort: &Effort, record: &mut Record) {
    let text = std::fs::read("/proc/meminfo").unwrap_or_default();
    let available = Values::<Meminfo>::parse(&text, |_| ()).get(meminfo::MemAvailable).unwrap_or(0) * 1024;
    let most = (available / SHARE).min(effort.footprint.0).max(LEAST) / LEAST * LEAST;
    let region = match Region::anonymous(most as usize) {
        Ok(region) => region,
        Err(error) => {
            record.absent.insert("costs.touch".to_owned(), format!("{}: {error}", Bytes(most)));
            return;
        }
    };
    // A kernel without huge pages refuses the advice, and does not need it.
    let _ = region.advise(Hint::NoHugePage);
    for page in 0..most as usize / PAGE {
        region.touch(page, true);
    }
    let mut footprints: Vec<u64> = std::iter::successors(Some(LEAST), |bytes| bytes.checked_mul(STEP))
        .take_while(|bytes| *bytes < most)
        .collect();
    footprints.push(most);
    let mut last = Err("nothing could be touched".to_owned());
    for bytes in footprints {
        let pages = bytes / PAGE as u64;
        let mut random = Random::new(bytes);
        let mut walk = || {
            let mut seen = 0;
            for _ in 0..effort.calls {
                let page = random.below(pages, seen);
                seen = u64::from(region.load(page as usize).unwrap_or(0));
            }
        };
        // The first walk brings what fits into the caches.
        walk();
        last = repeated(effort, || Ok(cpu(&mut walk) / f64::from(effort.calls)));
        if let Ok(ns) = last {
            record.touch.push(Touch { footprint: Size(Bytes(bytes)), ns });
        }
    }
    keep(record, "costs.touch", last, |record| &mut record.costs.touch);
}
