use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_units::{Grouped, Percent};

use crate::rule::rule;
use crate::{
    ALLOCSTALL, Context, Cost, DIRECT_SCAN, Evidence, Finding, KSWAPD_SCAN, Outcome, Remedy, Rule, Severity,
    remedies,
};

rule! {
    /// Programs reclaim memory themselves in the middle of an allocation.
    ///
    /// # Sees
    /// Over two samples: `allocstall` (entries into direct reclaim) and `pgscan_direct` both grow, and either
    /// tasks stand still for memory for 10 ms a second or more, or direct scans exceed 1 % of memory a
    /// minute. From one instant `since-boot` alone judges such counters, by their totals. Shows how much of
    /// what was scanned could be freed. Tables of `sar -B` alone count from 10,000 pages a second on.
    ///
    /// # Hurts
    /// The thread that wanted one page walks the LRU lists, unmaps, writes and waits until 32 pages are free.
    /// Latency spikes hit whoever allocates, not whoever fills memory. At an efficiency near zero the lists
    /// are full of pages that cannot go (mapped, dirty, just used), and millions of pages a second are
    /// scanned for nothing.
    ///
    /// # Remedies
    /// More room between the min and the low watermark, so that kswapd starts early enough; a bound on what
    /// allocates in bursts; and the cause, where another finding names it.
    ///
    /// # False alarms
    /// Zone reclaim scans directly too but is not counted in `allocstall`: that is another rule. PSI also
    /// counts waits for pages that come back from disk, so it is never taken alone. Reclaim for a cgroup's
    /// own limit is in neither counter.
    ///
    /// # References
    /// mm/vmscan.c:try_to_free_pages, do_try_to_free_pages (6.12); LinkedIn, "Optimizing Linux Memory
    /// Management for Low-latency / High-throughput Databases" (2013): 1 to 5 million scans/s at 0 %
    /// efficiency; sysstat commit a10b43bf (every release to 12.7.9 counts `pgsteal` twice on kernels from
    /// 5.8 on).
    pub DirectReclaim = "direct-reclaim" in Reclaim
}

/// Seconds per second: one task-millisecond in a hundred is what a latency target of 10 ms notices.
const STALLED: f64 = 0.010;
/// From here on a tenth of a task's time is gone.
const STALLED_HIGH: f64 = 0.10;
/// Part of memory scanned by tasks per minute.
const SCANNED_PER_MINUTE: f64 = 0.01;
/// Pages a second that count without the size of memory: 40 MiB/s of small pages.
const SCANNED: f64 = 10_000.0;
/// The lower end of the LinkedIn article's bad hours, pages a second.
const STORM: f64 = 1e6;
/// Scans a second that are felt if most are in vain: at a microsecond each a tenth of a CPU.
const VAIN: f64 = 1e5;
/// Freed of scanned, below which most of the work is in vain.
const CHURN: f64 = 0.3;
/// Available part of memory above which the host as a whole is not short.
const AVAILABLE: f64 = 0.2;

impl Rule for DirectReclaim {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let scans = cx.rate(DIRECT_SCAN)?;
        // sar's table of paging says neither how often tasks had to reclaim nor how much memory there is.
        let stalls = cx.rate(ALLOCSTALL);
        let total = cx.total();
        let scanned = scans.per_second >= SCANNED;
        let stalls = match stalls {
            Ok(stalls) => Some(stalls),
            Err(_) if scanned => None,
            Err(skip) => return Err(skip),
        };
        if scans.total == 0 || stalls.as_ref().is_some_and(|stalls| stalls.total == 0) {
            return Ok(Vec::new());
        }
        let stalled = cx.stalled(false).ok();
        let much = match &total {
            Ok(total) => cx.pages((scans.per_second * 60.0) as u64).share_of(*total) >= SCANNED_PER_MINUTE,
            Err(_) if scanned => true,
            Err(skip) => return Err(skip.clone()),
        };
        if stalled.unwrap_or(0.0) < STALLED && !much {
            return Ok(Vec::new());
        }

        let all_scans = cx.rate(&[DIRECT_SCAN, KSWAPD_SCAN].concat())?;
        let efficiency = (cx.freed().ok())
            .filter(|_| all_scans.total > 0)
            .map(|freed| (freed.total as f64 / all_scans.total as f64).min(1.0));
        let churn = efficiency.is_some_and(|efficiency| efficiency < CHURN);
        let vain = churn && scans.per_second >= VAIN;
        let high = stalled.is_some_and(|s| s >= STALLED_HIGH) || scans.per_second >= STORM || vain;
        let cost = match stalled {
            Some(stalled) => {
                Cost::stalled(stalled, "some task stood still for memory (/proc/pressure/memory)")
            }
            None => Cost::risk(match &stalls {
                Some(stalls) => format!(
                    "{:.0} allocations a second had to reclaim for themselves; how long each waited is not \
                     known without /proc/pressure/memory",
                    stalls.per_second
                ),
                None => "how often tasks had to reclaim, and how long they waited, these tables do not say"
                    .to_owned(),
            }),
        };
        let result = match efficiency {
            Some(efficiency) => format!("{} of all scanned pages could be freed", Percent(efficiency)),
            None => "how many could be freed is not known".to_owned(),
        };
        let mut finding = Finding::new(
            Self::ID,
            if high { Severity::High } else { Severity::Warning },
            format!(
                "tasks scan {} pages/s themselves{}; {result}",
                Grouped(scans.per_second.round() as u64),
                stalls
                    .as_ref()
                    .map_or_else(String::new, |stalls| format!(" in {:.1} allocations/s", stalls.per_second))
            ),
            cost,
        );
        finding
            .sure(cx.rate_confidence())
            .because(
                cx.saw_rate(DIRECT_SCAN, &scans).against(
                    match &total {
                        Ok(_) => format!("{} of memory a minute", Percent(SCANNED_PER_MINUTE)),
                        Err(_) => format!("{}/s", Grouped(SCANNED as u64)),
                    },
                    "less is not felt",
                ),
            )
            .because_if(stalls.as_ref().map(|stalls| {
                cx.saw_rate(ALLOCSTALL, stalls).against("0", "zone reclaim does not count here")
            }))
            .note_if(stalls.is_none().then_some(
                "Whether that is zone reclaim (vm.zone_reclaim_mode), and how often tasks waited, /proc/vmstat and \
                 /proc/pressure/memory of the host tell: lotsfree doctor --interval 10.",
            ));
        if let Some(stalled) = stalled {
            finding.because(
                Evidence::new("/proc/pressure/memory", "some total", format!("{:.1} ms/s", stalled * 1e3))
                    .against(format!("{:.0} ms/s", STALLED * 1e3), "a latency target of 10 ms notices it"),
            );
        }
        if let Some(efficiency) = efficiency {
            finding.because(
                Evidence::new("/proc/vmstat", "pgsteal / pgscan, kswapd and direct", Percent(efficiency))
                    .against(Percent(CHURN), "below it most scans are in vain"),
            );
        }
        let available = cx.mem(m::MemAvailable).ok().zip(total.ok());
        let available = available.map(|(available, total)| available.share_of(total));
        finding.because_if(available.is_some().then(|| cx.saw_mem(m::MemAvailable)));
        add_remedies(&mut finding, cx, available, churn);
        Ok(vec![finding])
    }
}

/// What widens the room for kswapd, and what the figures say of the cause.
fn add_remedies(finding: &mut Finding, cx: &Context<'_>, available: Option<f64>, churn: bool) {
    let short = available.is_some_and(|available| available <= AVAILABLE);
    match remedies::wider_watermarks(cx) {
        Ok(remedy) => finding.remedy(remedy),
        // A table of rates does not have the host's settings.
        Err(why) => finding.note_if(cx.total().is_ok().then_some(why)),
    };
    finding.remedy(
        Remedy::new("Bound what allocates in bursts: a memory cgroup with MemoryHigh")
            .run("systemctl set-property --runtime UNIT MemoryHigh=SIZE")
            .keep(remedies::DROP_IN, "MemoryHigh=SIZE")
            .undo_with("systemctl set-property --runtime UNIT MemoryHigh=infinity")
            .risk("The group then reclaims from itself and is slowed down at its bound."),
    );
    if churn {
        finding.note(
            "So little is freed because the lists hold pages that cannot go: mapped and just used, dirty, \
             or locked. More scanning does not help; fewer such pages do.",
        );
    }
    finding.note(match (available.is_some(), short) {
        (true, false) => {
            "Memory as a whole is not short: allocations outrun kswapd for moments, or one zone or node is \
             short."
        }
        (true, true) => {
            "Memory as a whole is short as well: wider watermarks soften the spikes, they do not add \
             memory."
        }
        _ => "Whether memory as a whole is short is not known: MemAvailable is not in these data.",
    });
    if cx.rate(&[v::compact_stall]).is_ok_and(|rate| rate.total > 0) {
        finding.note(
            "Tasks compact memory as well (compact_stall grows): part of the stalls is a search for \
             contiguous pages, not for free ones.",
        );
    }
    finding
        .note(
            "Which tasks wait, and how long each time: drsnoop of the bcc tools, or the delay accounting of \
             getdelays.",
        )
        .note(
            "Old sar files: %vmeff shows up to twice this efficiency, because sysstat to 12.7.9 adds \
             pgsteal_anon and pgsteal_file to the counters of which they are parts.",
        );
}
