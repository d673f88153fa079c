use lotsfree_formulas::hugepages::script_pages;
use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::huge::{self, Backing};
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Finding, Outcome, Rule, Severity};

rule! {
    /// A huge page pool takes a noticeable part of memory: who has it, and what is left.
    ///
    /// # Sees
    /// `HugePages_Total`, `HugePages_Free` and `HugePages_Rsvd` (of every page size where
    /// `/sys/kernel/mm/hugepages` was read): used is total less free, promised is reserved, spare is free
    /// less reserved. Against it the attached System V segments, each rounded up to whole pages, and what
    /// the pool leaves of `MemTotal`.
    ///
    /// # Hurts
    /// Nothing yet: this accounts for the pool. Free huge pages are no free memory: nothing else can use
    /// them, they cannot be swapped or reclaimed, and `MemAvailable` and `CommitLimit` fall by the whole
    /// pool. Free pages that are reserved are a running instance's that it has not touched, not a reserve.
    ///
    /// # Remedies
    /// None by itself; `pool-unused`, `pool-waste`, `pool-too-small` and `pool-too-large` judge the
    /// figures.
    ///
    /// # False alarms
    /// That segments explain the pool is arithmetic, not proof: huge page mappings of other programs
    /// (PostgreSQL, Java, KVM) are not listed in `/proc/sysvipc/shm`.
    ///
    /// # References
    /// `Documentation/admin-guide/mm/hugetlbpage.rst`; mm/hugetlb.c:hugetlb_report_meminfo; Oracle MOS
    /// 401749.1 (`hugepages_settings.sh` counts one page more for each segment).
    pub PoolAccounting = "pool-accounting" in HugePages
}

/// Smaller pools are not worth a paragraph.
const WORTH_TELLING: f64 = 0.05;
/// From this share on the rest of the host is the smaller part, and what it has left is worth saying.
const LARGER_PART: f64 = 0.5;
/// Segments that are listed.
const LISTED: usize = 6;

impl Rule for PoolAccounting {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let pools = huge::filled(cx)?;
        let bytes: Bytes = pools.iter().map(HugePool::bytes).sum();
        let share = cx.total().ok().map(|total| bytes.share_of(total));
        if pools.is_empty() || share.is_some_and(|share| share <= WORTH_TELLING) {
            return Ok(Vec::new());
        }
        let states: Vec<String> = pools.iter().map(|pool| state(pool, pools.len() > 1)).collect();
        let of_memory = cx.total().map(|total| of_memory(bytes, total)).unwrap_or_default();
        let title = format!("the huge page pool takes {bytes}{of_memory}: {}", states.join("; "));
        let left = cx.total().ok().map(|total| total - bytes);
        let cost = match left {
            Some(left) => format!("nothing is lost by this alone; everything else has to live with {left}"),
            None => "nothing is lost by this alone; everything else has to live without it".to_owned(),
        };
        let mut finding = Finding::new(Self::ID, Severity::Info, title, Cost::risk(cost));
        finding.sure(Confidence::Certain);
        for pool in &pools {
            finding.because_all(huge::saw_pool(cx, pool)).note(arithmetic(pool));
        }
        if let Some(left) = left {
            finding.because(cx.saw_mem(m::MemTotal)).note(rest(cx, left));
        }
        if let (Ok(total), Ok(free)) = (cx.mem(m::SwapTotal), cx.mem(m::SwapFree)) {
            let note = match total {
                Bytes::ZERO => "There is no swap.".to_owned(),
                _ => format!("Swap holds {} of {total}; the pool itself is never swapped.", total - free),
            };
            finding.because(cx.saw_mem(m::SwapTotal)).because(cx.saw_mem(m::SwapFree)).note(note);
        }
        finding.note_if(explained(cx, &pools));
        if share.is_some_and(|share| share >= LARGER_PART) {
            finding.note(
                "The rest must hold every process's own memory (for Oracle the PGA of all sessions), page \
                 tables, the kernel and the page cache. When it runs short, the host pages although the \
                 pool is untouched, and new processes start late or not at all (Oracle: ORA-00445, \
                 background process did not start).",
            );
        }
        Ok(vec![finding])
    }
}

/// The share of what the kernel manages and, where that is a little less than a common size, of what is
/// installed: firmware and the kernel image keep the difference, and people reckon with the larger figure.
fn of_memory(pool: Bytes, total: Bytes) -> String {
    let share = format!(", {} of memory", Percent(pool.share_of(total)));
    let installed = installed(total);
    match installed > total && pool < installed {
        true => format!("{share} ({} of the {installed} installed)", Percent(pool.share_of(installed))),
        false => share,
    }
}

/// Memory modules come in powers of two: the next multiple of a sixteenth of the largest power of two in
/// `total`, at least 1 GiB.
fn installed(total: Bytes) -> Bytes {
    let step = Bytes(1 << total.0.max(1).ilog2().saturating_sub(4)).max(Bytes::gib(1));
    step.times(total.units_of(step))
}

fn state(pool: &HugePool, several: bool) -> String {
    let size = if several { format!("{}: ", huge::page_name(pool.size)) } else { String::new() };
    format!(
        "{size}{} used, {} promised, {} spare",
        huge::count(pool.used()),
        Grouped(pool.reserved),
        Grouped(pool.idle())
    )
}

fn arithmetic(pool: &HugePool) -> String {
    format!(
        "{} of {} = {:#}. Used = total - free = {} - {} = {}; promised, not yet touched = reserved = {}; \
         spare = free - reserved = {} - {} = {} ({}).",
        huge::count(pool.total),
        huge::page_name(pool.size),
        pool.bytes(),
        Grouped(pool.total),
        Grouped(pool.free),
        Grouped(pool.used()),
        Grouped(pool.reserved),
        Grouped(pool.free),
        Grouped(pool.reserved),
        Grouped(pool.idle()),
        pool.size.times(pool.idle())
    )
}

/// What remains of memory, and what is in it.
fn rest(cx: &Context<'_>, left: Bytes) -> String {
    let Ok(free) = cx.mem(m::MemFree) else {
        return format!("What remains for everything else is {left}.");
    };
    let shared = cx.mem_or_zero(m::Shmem);
    let cache = cx.mem_or_zero(m::Buffers) + cx.mem_or_zero(m::Cached) - shared;
    format!(
        "What remains for everything else is {left} ({:#}), of which {free} are free, {cache} are page \
         cache and {} belong to processes, page tables and the kernel.",
        left,
        left - free - cache
    )
}

/// Which segments account for the pool.
fn explained(cx: &Context<'_>, pools: &[HugePool]) -> Option<String> {
    let segments: Vec<_> =
        huge::segments(cx).ok()?.into_iter().filter(|s| s.backing == Backing::Huge).collect();
    let [pool] = pools else { return None };
    if segments.is_empty() {
        return None;
    }
    let terms = segments.iter().take(LISTED).map(|segment| {
        format!(
            "{} has {} B = {}",
            segment.label,
            Grouped(segment.size.0),
            huge::count(segment.size.units_of(pool.size))
        )
    });
    let terms = terms.collect::<Vec<_>>().join(", ");
    let sum: u64 = segments.iter().map(|segment| segment.size.units_of(pool.size)).sum();
    let promised = huge::promised(pool);
    let verdict = if sum == promised {
        let script: u64 = segments.iter().map(|segment| script_pages(segment.size, pool.size)).sum();
        let asked = if script == pool.total {
            format!(
                " Oracle's script counts one page more for each segment, {}: the pool is as large as its \
                 segments ask; to make it smaller, make the segments (the SGAs) smaller.",
                Grouped(script)
            )
        } else {
            String::new()
        };
        format!("together {} = used + promised: they explain it.{asked}", Grouped(sum))
    } else {
        format!("together {} of {} used or promised.", Grouped(sum), Grouped(promised))
    };
    let more = segments.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("Segments in the pool: {terms}{more}; {verdict}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_memory_is_the_next_common_size() {
        assert_eq!(installed(Bytes::kib(16_337_920)), Bytes::gib(16));
        assert_eq!(installed(Bytes::kib(24_682_416)), Bytes::gib(24));
        assert_eq!(installed(Bytes::kib(132_102_884)), Bytes::gib(128));
        assert_eq!(installed(Bytes::gib(64)), Bytes::gib(64));
    }
}
