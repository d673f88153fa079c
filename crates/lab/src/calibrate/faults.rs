//! Page faults on anonymous memory.
//!
//! `zero`: storing zeros to a page of memory that is in no cache but possibly the last, as the kernel does
//! before it hands out a page. `free`: unmapping, per page; it includes taking down page tables and flushing
//! the TLB in batches. The first store to a page costs `fault` + `alloc` + `zero`. No interface tells `fault`
//! and `alloc` apart, so the cost less `zero` is divided between them in the ratio of their defaults. Huge
//! fault: the first store to 2 MiB that get a huge page; most of it is zeroing.

use std::io;

use lotsfree_kernel_files::Log;
use lotsfree_kernel_files::counters::smaps_rollup;
use lotsfree_kernel_files::file::process::smaps_rollup::parse_rollup;
use lotsfree_scenario::{Costs, Record};
use lotsfree_sys::{Buffer, Hint, Region};

use super::{Effort, PAGE, Value, cpu, keep, less, of, repeated};

/// Base pages of a huge page.
const HUGE: usize = 512;
/// Zeroing walks over this many times the pages of a repetition, so that caches do not hold the pages.
const COLD: usize = 2;

pub(super) fn measure(effort: &Effort, record: &mut Record) {
    let (whole, free) = match store_and_free(effort) {
        Ok(both) => both,
        Err(error) => (Err(error.to_string()), Err(error.to_string())),
    };
    let zero = zero(effort);
    let rest = match (&whole, &zero) {
        (Ok(whole), Ok(zero)) => less(*whole, zero.median),
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
    };
    let default = Costs::default();
    let share = |cost: u64| {
        let share = cost as f64 / (default.fault + default.alloc) as f64;
        rest.clone().map(|rest| rest.map(|ns| ns * share))
    };
    keep(record, "costs.fault", share(default.fault), |record| &mut record.costs.fault);
    keep(record, "costs.alloc", share(default.alloc), |record| &mut record.costs.alloc);
    keep(record, "costs.zero", zero, |record| &mut record.costs.zero);
    keep(record, "costs.free", free, |record| &mut record.costs.free);
    keep(record, "huge-fault", huge(effort), |record| &mut record.huge_fault);
}

/// Nanoseconds of CPU time for the first store to a page, and for unmapping it.
fn store_and_free(effort: &Effort) -> io::Result<(Value, Value)> {
    let pages = effort.pages;
    let (mut stores, mut frees) = (Vec::new(), Vec::new());
    for _ in 0..effort.repetitions {
        let region = Region::anonymous(pages * PAGE)?;
        // A kernel without huge pages refuses the advice, and does not need it.
        let _ = region.advise(Hint::NoHugePage);
        stores.push(cpu(|| (0..pages).for_each(|page| touch(&region, page))) / pages as f64);
        frees.push(cpu(|| drop(region)) / pages as f64);
    }
    Ok((of(&stores), of(&frees)))
}

fn zero(effort: &Effort) -> Value {
    let pages = COLD * effort.pages;
    let mut buffer = Buffer::new(pages * PAGE).map_err(|error| error.to_string())?;
    repeated(effort, || {
        let fill =
            || buffer.as_mut().chunks_exact_mut(PAGE).for_each(|page| std::hint::black_box(page).fill(0));
        Ok(cpu(fill) / pages as f64)
    })
}

/// Nanoseconds of CPU time for the first store to a huge page.
fn huge(effort: &Effort) -> Value {
    // The first huge page is not measured: the region may begin in the middle of one, as the kernel aligns
    // them.
    let huge = (effort.pages / HUGE).max(2);
    let (mut values, mut all) = (Vec::new(), true);
    for _ in 0..effort.repetitions {
        let region = Region::anonymous(huge * HUGE * PAGE).map_err(|error| error.to_string())?;
        region.advise(Hint::HugePage).map_err(|error| format!("MADV_HUGEPAGE: {error}"))?;
        let before = huge_pages_kib();
        touch(&region, 0);
        let ns = cpu(|| (1..huge).for_each(|number| touch(&region, number * HUGE)));
        let got = huge_pages_kib().saturating_sub(before);
        all &= got >= ((huge - 1) * HUGE * PAGE / 1024) as u64;
        values.push(ns / (huge - 1) as f64);
    }
    if all { of(&values) } else { Err("the kernel gave no huge pages, or not enough".to_owned()) }
}

fn touch(region: &Region, page: usize) {
    let there = region.touch(page, true);
    debug_assert!(there, "no page {page}");
}

/// `AnonHugePages` of this process, in KiB.
fn huge_pages_kib() -> u64 {
    let text = std::fs::read("/proc/self/smaps_rollup").unwrap_or_default();
    parse_rollup(&text, &mut Log::default()).get(smaps_rollup::AnonHugePages).unwrap_or(0)
}
