use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, REFAULT_ANON, Rate, Rule, Severity, Skip,
    page_cache, remedies, writers,
};

rule! {
    /// Programs are swapped out although the page cache could have given way.
    ///
    /// # Sees
    /// Over two samples: pages swapped out (`pswpout`, or `pgsteal_anon` where swap is compressed in memory)
    /// at 5 a second or more, while `Cached` without `Shmem` grows and files take more than 10 % of memory.
    /// Strong when pages come back (`pswpin`, `workingset_refault_anon`): they were in use.
    ///
    /// # Hurts
    /// A backup or a copy reads or writes each page once, yet the cache of it grows until reclaim takes pages
    /// of the application instead. The copy gains nothing; the application waits for the disk on its next
    /// touch of each page, up to the next morning. How much it loses depends on the size of the copied file,
    /// not on how busy the application is.
    ///
    /// # Remedies
    /// Bound the job: a memory cgroup of its own, direct I/O, or `POSIX_FADV_DONTNEED` behind itself. Protect
    /// the application: `memory.low`, locked memory, huge pages. A lower `vm.swappiness` helps on kernels
    /// from 3.11 on.
    ///
    /// # False alarms
    /// Swap in use is no sign: cold pages belong there. Compressed swap (zram) takes pages at a few hundred a
    /// second in ordinary operation and is judged from 1,000 on. A memory cgroup at its own limit swaps too,
    /// but then neither kswapd nor direct reclaim frees pages.
    ///
    /// # References
    /// A. Hass, W. Nüßer, "Memory Hogs" (application server beside a file copy); mm/vmscan.c:get_scan_count
    /// (6.12); PCP, pmie rule for paging (5 pages/s in 30 % of samples); Netdata, swap I/O alert (20 % of
    /// memory in 30 minutes).
    pub PagecacheDisplacesAnon = "pagecache-displaces-anon" in Reclaim
}

/// Pages a second, of PCP's paging rule.
const PAGES_PER_SECOND: f64 = 5.0;
/// Part of the samples in which pages went out, of the same rule.
const ACTIVE: f64 = 0.3;
/// Part of memory swapped in half an hour, of Netdata's alert.
const HALF_HOUR_SHARE: f64 = 0.2;
/// Compressed swap: above what administrators of zram see in ordinary operation (some 230 a second; their
/// alerts were refitted to this).
const ZRAM_PAGES_PER_SECOND: f64 = 1000.0;
/// Below this share of memory the cache has little left to give.
const FILE_SHARE: f64 = 0.1;

impl Rule for PagecacheDisplacesAnon {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        // Without swap `pgsteal_anon` counts pages that went down to slower memory (CXL).
        if cx.mem(m::SwapTotal) == Ok(Bytes::ZERO) {
            return Err(Skip::because("there is no swap"));
        }
        let swapped = cx.rate(&[v::pswpout])?;
        let total = cx.total()?;
        let files = page_cache::file_pages(cx)?;
        let growth = page_cache::growth(cx)?;
        let stolen = cx.rate(&[v::pgsteal_anon]).ok();
        let out = stolen.filter(|stolen| stolen.per_second > swapped.per_second).unwrap_or(swapped);

        let zram = cx.swaps().is_ok_and(|areas| {
            !areas.is_empty()
                && areas.iter().all(|area| area.path.trim_start_matches("/dev/").starts_with("zram"))
        });
        let least = if zram { ZRAM_PAGES_PER_SECOND } else { PAGES_PER_SECOND };
        let half_hour = cx.pages((out.per_second * 1800.0) as u64).share_of(total);
        let often = out.per_second >= least && out.active >= ACTIVE;
        let much = !zram && half_hour > HALF_HOUR_SHARE;
        if !(often || much) || growth <= 0.0 || files.share_of(total) <= FILE_SHARE {
            return Ok(Vec::new());
        }
        // Reclaim for a cgroup's own limit counts in pswpout, but not in pgsteal_kswapd and pgsteal_direct.
        let host = cx.freed().ok();
        if host.is_some_and(|rate| rate.total == 0) {
            return Ok(Vec::new());
        }

        let back = cx.rate(&[v::pswpin]).ok().filter(|rate| rate.total > 0);
        let refaults = cx.rate(REFAULT_ANON).ok().filter(|rate| rate.total > 0);
        let strong = back.is_some() || refaults.is_some();
        let moved = cx.pages(out.total);
        let grown = Bytes(growth as u64);
        let mut finding = Finding::new(
            Self::ID,
            if strong { Severity::High } else { Severity::Warning },
            format!(
                "{moved} of programs went to swap in {:.0} s while the page cache grew by {grown} to {} of \
                 memory",
                out.seconds,
                Percent(files.share_of(total))
            ),
            cost(cx, &out, back.as_ref(), total),
        );
        finding.sure(if strong {
            cx.rate_confidence()
        } else {
            Confidence::Possible.max(cx.rate_confidence())
        });
        let counter = if out == swapped { v::pswpout } else { v::pgsteal_anon };
        finding.because(cx.saw_rate(&[counter], &out).against(
            format!("at least {least:.0} pages/s in {} of the samples", Percent(ACTIVE)),
            if zram { "alerts refitted for zram" } else { "PCP pmie" },
        ));
        finding.because_if(back.as_ref().map(|rate| cx.saw_rate(&[v::pswpin], rate)));
        finding.because_if(refaults.as_ref().map(|rate| cx.saw_rate(REFAULT_ANON, rate)));
        if let Ok(trend) = cx.trend(m::Cached) {
            finding.because(cx.saw_mem(m::Cached).was(format!("{:#}", Bytes(trend.first as u64))));
        }
        add_remedies(&mut finding, cx, files, strong);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, files: Bytes, strong: bool) {
    finding
        .because(
            Evidence::new("/proc/meminfo", "Active(file) + Inactive(file)", format!("{files:#}"))
                .against(format!("more than {} of memory", Percent(FILE_SHARE)), "less is not worth taking"),
        )
        .because(cx.saw_mem(m::Dirty))
        .because_all(writers::largest_writers(cx))
        .remedy(remedies::bounded_writer(cx))
        .remedy(remedies::uncached_writer());
    if let Some(remedy) = remedies::protected_group(cx, "the application") {
        finding.remedy(remedy);
    }
    if let Some(remedy) = remedies::lower_swappiness(cx) {
        finding.remedy(remedy);
    }
    if !strong {
        finding.note(
            "Nothing has come back from swap yet: if these pages were cold, nothing is lost. The next touch \
             of the application decides.",
        );
    }
    finding.note(
        "How to choose: bounding the job costs the application nothing and is right wherever the job is \
         known; protect the application where jobs come and go. More memory is not a remedy: the cache of \
         the copy grows into it.",
    );
}

/// Tasks stalled where PSI says so, else pages read back at the disk's latency, else the bytes that went out.
fn cost(cx: &Context<'_>, out: &Rate, back: Option<&Rate>, total: Bytes) -> Cost {
    if let Some(stalled) = cx.stalled(false).ok().filter(|stalled| *stalled > 0.0) {
        return Cost::stalled(stalled, "some task stood still for memory (/proc/pressure/memory)");
    }
    match back {
        Some(rate) => {
            let (read, how) = cx.read_latency();
            Cost::faults(rate.per_second, read, format!("pages read back from swap, at {how}"))
        }
        None => Cost::memory(cx.pages(out.total), total, "must be read from swap when it is next used"),
    }
}
