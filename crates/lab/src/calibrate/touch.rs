//! Touches of resident pages.
//!
//! Loads the first byte of one random page after the other, as actors do, each page chosen with what the load
//! before it gave, so that no two overlap. It includes the TLB miss, the cache miss, and the few instructions
//! that choose the page. The model's `touch` is that of the largest footprint: its workloads are larger than
//! caches are.

use lotsfree_kernel_files::counters::{Meminfo, Values, meminfo};
use lotsfree_scenario::{Record, Touch};
use lotsfree_sys::{Hint, Region};
use lotsfree_units::{Bytes, MIB};
use lotsfree_workload::quantity::Size;

use super::{Effort, PAGE, Random, cpu, keep, repeated};

/// The smallest footprint.
const LEAST: u64 = MIB;
/// Each is so many times the one before.
const STEP: u64 = 4;
/// The share of `MemAvailable` that may be touched.
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
    // Without huge pages there is nothing to advise.
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
        // Brings what fits into the caches.
        walk();
        last = repeated(effort, || Ok(cpu(&mut walk) / f64::from(effort.calls)));
        if let Ok(ns) = last {
            record.touch.push(Touch { footprint: Size(Bytes(bytes)), ns });
        }
    }
    keep(record, "costs.touch", last, |record| &mut record.costs.touch);
}
