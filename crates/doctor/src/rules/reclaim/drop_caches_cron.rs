use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_units::{Bytes, Grouped};

use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, page_cache, remedies,
};

rule! {
    /// Something drops the caches again and again.
    ///
    /// # Sees
    /// `drop_pagecache` or `drop_slab` grow between samples; or they have grown since boot as often as once a
    /// day, ten times at least; or the kernel log names the program that wrote to `/proc/sys/vm/drop_caches`
    /// ten times or more.
    ///
    /// # Hurts
    /// Each time all clean file pages that no process maps are gone, useful or not, and come back from disk
    /// one by one, while inodes and directories are looked up anew. The number that looks better afterwards,
    /// `free`, was no problem: clean cache is given up on demand.
    ///
    /// # Remedies
    /// Remove the job. Bound what fills the cache instead.
    ///
    /// # False alarms
    /// Benchmarks drop the caches between runs so that each starts cold; that is their purpose. A single drop
    /// since boot was somebody trying it out and is not reported.
    ///
    /// # References
    /// `Documentation/admin-guide/sysctl/vm.rst`, drop_caches (for testing and debugging only);
    /// fs/drop_caches.c: drop_caches_sysctl_handler (6.12), which counts and logs each write.
    pub DropCachesCron = "drop-caches-cron" in Reclaim
}

/// Fewer times since boot were somebody trying it out.
const REPEATED: u64 = 10;
/// From once a day on somebody automated it.
const SECONDS_PER_DAY: f64 = 86_400.0;

impl Rule for DropCachesCron {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        // Writing 3 counts in both.
        let counted = cx.vm(v::drop_pagecache).map(|pages| pages.max(cx.vm(v::drop_slab).unwrap_or(0)));
        let log = cx.now().kernel_log.as_ref();
        let counted_by_kernel = counted.is_ok();
        let logged = log.map(|log| log.drop_caches.len() as u64);
        let total = match (counted, logged) {
            (Ok(counted), logged) => counted.max(logged.unwrap_or(0)),
            (Err(_), Some(logged)) => logged,
            (Err(skip), None) => return Err(skip),
        };
        let rate = cx.rate(&[v::drop_pagecache]).ok().filter(|rate| rate.total > 0);
        let slabs = cx.rate(&[v::drop_slab]).ok().filter(|rate| rate.total > 0);
        let during = rate.map_or(0, |rate| rate.total).max(slabs.map_or(0, |rate| rate.total));
        let every = cx.now().uptime.filter(|_| total > 0).map(|uptime| uptime / total as f64);
        let automated = total >= REPEATED && every.is_none_or(|every| every <= SECONDS_PER_DAY);
        if during == 0 && !automated {
            // Without the counters only a whole log tells that nobody did.
            return if counted_by_kernel { Ok(Vec::new()) } else { cx.not_logged() };
        }

        let who = log.and_then(|log| log.drop_caches.last());
        let by = who.map(|(name, pid, _)| format!(" by {name} (pid {pid})")).unwrap_or_default();
        let last = who.map(|_| format!(", the last time{by}")).unwrap_or_default();
        let fallen = page_cache::largest_fall(cx).filter(|fallen| *fallen > Bytes::ZERO);
        let (severity, title) = if during > 0 {
            let seconds = rate.or(slabs).map_or(0.0, |rate| rate.seconds);
            (Severity::Warning, format!("the caches were dropped {} in {seconds:.0} s{by}", times(during)))
        } else {
            let often = every.map(|every| format!(", on average every {}", duration(every)));
            let often = often.unwrap_or_default();
            (
                Severity::Info,
                format!("the caches have been dropped {} times since boot{often}{last}", Grouped(total)),
            )
        };
        let cost = match (during > 0, fallen) {
            (true, Some(fallen)) => Cost::memory(
                fallen,
                cx.total()?,
                format!("of file pages were dropped at once{}", reread(cx, fallen)),
            ),
            _ => Cost::risk("each time, files and directories in use have to be read from disk again"),
        };
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding.sure(if during > 0 || who.is_some() { Confidence::Certain } else { Confidence::Likely });
        if cx.vm(v::drop_pagecache).is_ok() {
            finding.because(
                cx.saw_vm(v::drop_pagecache).against("0", "for testing only (kernel documentation)"),
            );
        }
        finding.because_if(cx.vm(v::drop_slab).is_ok().then(|| cx.saw_vm(v::drop_slab)));
        if let Some((name, pid, value)) = who {
            finding
                .because(Evidence::new("kernel log", "drop_caches", value).of(format!("pid {pid} {name}")));
        }
        finding
            .remedy(
                Remedy::new("Find the job that writes to /proc/sys/vm/drop_caches, and remove it")
                    .run("grep -rs drop_caches /etc/cron* /var/spool/cron /etc/systemd/system /usr/local")
                    .risk(
                        "Monitoring that alarms on a small MemFree will alarm: let it look at MemAvailable.",
                    ),
            )
            .remedy(remedies::bounded_writer(cx))
            .note("A benchmark that wants a cold start does this on purpose; then there is nothing to mend.");
        Ok(vec![finding])
    }
}

/// Seconds to read `bytes` again, from what the busiest device has delivered while it read.
fn reread(cx: &Context<'_>, bytes: Bytes) -> String {
    let devices = cx.now().block.as_deref().unwrap_or_default();
    let busiest = devices.iter().filter_map(|device| device.stats).max_by_key(|stats| stats.sectors_read);
    let bandwidth = busiest
        .filter(|stats| stats.busy_ms > 0)
        .map(|stats| stats.sectors_read as f64 * 512.0 / (stats.busy_ms as f64 / 1e3));
    match bandwidth.filter(|bandwidth| *bandwidth > 0.0) {
        Some(bandwidth) => format!(
            "; to read as much takes {:.0} s at the {}/s that the disk has delivered while busy",
            bytes.as_f64() / bandwidth,
            Bytes(bandwidth as u64)
        ),
        None => String::new(),
    }
}

fn times(n: u64) -> String {
    if n == 1 { "once".to_owned() } else { format!("{} times", Grouped(n)) }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 7200.0 => format!("{:.1} hours", s / 3600.0),
        s if s >= 120.0 => format!("{:.0} minutes", s / 60.0),
        s => format!("{s:.0} seconds"),
    }
}
