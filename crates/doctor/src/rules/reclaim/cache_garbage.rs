use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_units::Percent;

use crate::rule::rule;
use crate::{
    ALLOCSTALL, Context, Cost, Evidence, Finding, Outcome, REFAULT_FILE, Rate, Remedy, Rule, Severity,
    page_cache, remedies, writers,
};

rule! {
    /// The page cache is full of pages that nobody reads again, and useful pages leave with them.
    ///
    /// # Sees
    /// Over two samples: file pages that no process maps fill more than half of memory, reclaim evicts file
    /// pages of which fewer than one in ten is read again, and meanwhile programs lose something: major
    /// faults, stalled allocations, or swap.
    ///
    /// # Hurts
    /// A log-structured store writes new segments and leaves old ones behind; a backup reads each file once.
    /// All of it stays cached until reclaim comes, and reclaim cannot tell this garbage from pages that were
    /// merely not used for a moment: active pages go with it. 9 GB of segments a day fill a 48 GB host in
    /// five days.
    ///
    /// # Remedies
    /// Reuse segment files, drop what will not be read again (`POSIX_FADV_DONTNEED`, direct I/O), bound the
    /// job that leaves it. Never a cron job that drops all caches: it takes the useful pages first.
    ///
    /// # False alarms
    /// A full cache without reclaim, or with reclaim that nobody feels, is memory put to use. A cache whose
    /// evicted pages come back is too small, not garbage. Database files read with read(2) are not mapped and
    /// look like garbage by size alone: only the pages that never return count.
    ///
    /// # References
    /// LinkedIn, "Optimizing Linux Memory Management for Low-latency / High-throughput Databases" (2013),
    /// segment pool; mm/workingset.c (6.12); restic issue 666 (`POSIX_FADV_DONTNEED` drops pages that others
    /// use); `Documentation/admin-guide/sysctl/vm.rst`, drop_caches: for testing.
    pub CacheGarbage = "cache-garbage" in Reclaim
}

/// Unmapped file pages, as a part of memory, from which the cache dominates the host.
const UNMAPPED: f64 = 0.5;
/// Evicted pages that come back, below which nine of ten were garbage.
const RETURNS: f64 = 0.1;
/// Major faults a second that count as harm: at a hard disk's 8 ms they cost a tenth of a task's time.
const MAJOR_FAULTS: f64 = 12.5;

impl Rule for CacheGarbage {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let evicted = evicted_files(cx)?;
        let refaults = cx.rate(REFAULT_FILE)?;
        let total = cx.total()?;
        let files = page_cache::file_pages(cx)?;
        let unmapped = files - cx.mem(m::Mapped)?;
        if evicted.total == 0 || unmapped.share_of(total) <= UNMAPPED {
            return Ok(Vec::new());
        }
        let returns = refaults.total as f64 / evicted.total as f64;
        if returns >= RETURNS {
            return Ok(Vec::new());
        }
        let majors = cx.rate(&[v::pgmajfault]).ok().filter(|rate| rate.per_second >= MAJOR_FAULTS);
        let stalls = cx.rate(ALLOCSTALL).ok().filter(|rate| rate.total > 0);
        let swapped = cx.rate(&[v::pswpout]).ok().filter(|rate| rate.total > 0);
        if majors.is_none() && stalls.is_none() && swapped.is_none() {
            return Ok(Vec::new());
        }

        let rate = cx.pages(evicted.per_second.round() as u64);
        let mut finding = Finding::new(
            Self::ID,
            Severity::Warning,
            format!(
                "{unmapped} of the page cache ({} of memory) is mapped by nobody, and of {rate}/s that are \
                 evicted {} are read again",
                Percent(unmapped.share_of(total)),
                Percent(returns)
            ),
            Cost::memory(
                unmapped.scale(1.0 - returns),
                total,
                "cached, but not read again at the present rate",
            ),
        );
        finding
            .sure(cx.rate_confidence())
            .because(
                Evidence::new(
                    "/proc/meminfo",
                    "Active(file) + Inactive(file) - Mapped",
                    format!("{unmapped:#}"),
                )
                .against(
                    format!("more than {} of memory", Percent(UNMAPPED)),
                    "less does not dominate the host",
                ),
            )
            .because(Evidence::new(
                "/proc/vmstat",
                if cx.vm(v::pgsteal_file).is_ok() { "pgsteal_file" } else { "pgsteal less pswpout" },
                format!("{:.0}/s over {:.0} s", evicted.per_second, evicted.seconds),
            ))
            .because(cx.saw_rate(REFAULT_FILE, &refaults).against(
                format!("fewer than {} of the evicted", Percent(RETURNS)),
                "evicted pages that are in use come back",
            ));
        finding.because_if(majors.as_ref().map(|rate| cx.saw_rate(&[v::pgmajfault], rate)));
        finding.because_if(stalls.as_ref().map(|rate| cx.saw_rate(ALLOCSTALL, rate)));
        finding.because_if(swapped.as_ref().map(|rate| cx.saw_rate(&[v::pswpout], rate)));
        finding
            .because_all(writers::largest_writers(cx))
            .remedy(
                Remedy::new(
                    "Reuse segment files instead of creating new ones and leaving the old ones cached",
                )
                .risk("A change to the application; its files keep their size."),
            )
            .remedy(remedies::uncached_writer())
            .remedy(remedies::bounded_writer(cx))
            .note(
                "Which files it is: lsof +L1 lists deleted files that are still open; fincore FILE \
                 (util-linux) or cachestat(2), from 6.5 on, says how much of a live file is resident. If \
                 the live files are resident, the rest is garbage.",
            )
            .note(
                "From 6.14 on, RWF_DONTCACHE on each write keeps it out of the cache without the alignment \
                 rules of direct I/O, where the file system supports it.",
            )
            .note(
                "Dropping all caches by hand or by cron is not proposed: it takes the pages in use as well.",
            );
        Ok(vec![finding])
    }
}

/// File pages that reclaim freed; before 5.8 all pages that it freed less those that went to swap.
fn evicted_files(cx: &Context<'_>) -> Result<Rate, crate::Skip> {
    if let Ok(rate) = cx.rate(&[v::pgsteal_file]) {
        return Ok(rate);
    }
    let all = cx.freed()?;
    let swapped = cx.rate(&[v::pswpout]).map_or((0, 0.0, 0.0), |r| (r.total, r.per_second, r.peak));
    Ok(Rate {
        total: all.total.saturating_sub(swapped.0),
        per_second: (all.per_second - swapped.1).max(0.0),
        peak: (all.peak - swapped.2).max(0.0),
        ..all
    })
}
