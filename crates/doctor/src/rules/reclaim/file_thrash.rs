use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v};
use lotsfree_units::{Grouped, Percent};

use crate::finding::subject;
use crate::latency::{self, WARM_UP_SECONDS};
use crate::rule::rule;
use crate::{
    ACTIVATE_FILE, Confidence, Context, Cost, Evidence, Finding, Outcome, REFAULT_FILE, Remedy, Rule,
    Severity, page_cache, remedies,
};

rule! {
    /// Files that are in use do not fit into the page cache and are read again and again.
    ///
    /// # Sees
    /// Over two samples: file pages that come back soon after their eviction (`workingset_refault_file`),
    /// more than half of them so soon that the kernel counts them to the working set
    /// (`workingset_activate_file`), and 500 or more major faults or refaults a second.
    ///
    /// # Hurts
    /// A refault that is activated is a page that would still be there if the cache were a little larger: a
    /// read from disk that need not be. Programs that map their files stop at each one; readers with threads
    /// of their own see latency spikes, although MemAvailable counts all of this cache as available.
    ///
    /// # Remedies
    /// Drop from the cache what is not needed (reuse segments, bound copies), protect the file pages of the
    /// application (`memory.low` counts its cache), lock the files that must stay; only then more memory.
    ///
    /// # False alarms
    /// A program that starts faults in all it maps: faults of processes younger than ten minutes do not
    /// count. Time-series databases that map their files fault all day; where the rate is the host's average
    /// since boot, the finding says so and is less sure. Refaults that are not activated (a scan larger than
    /// memory) are no working set.
    ///
    /// # References
    /// mm/workingset.c:workingset_refault (6.12); node_exporter mixin, NodeMemoryMajorPagesFaults (500/s);
    /// awesome Prometheus alerts (1,000/s); LinkedIn, "Optimizing Linux Memory Management for Low-latency /
    /// High-throughput Databases" (2013).
    pub FileThrash = "file-thrash" in Reclaim
}

/// Of refaults, to call it a working set.
const ACTIVATED: f64 = 0.5;
/// Major faults a second, of the node_exporter mixin; the same for refaults of read(2), which are no faults.
const PER_SECOND: f64 = 500.0;
/// The same, of the awesome Prometheus alerts.
const PER_SECOND_HIGH: f64 = 1000.0;
/// Part of the faults that belongs to processes which warm up, from which on they are the explanation.
const WARMING: f64 = 0.5;
/// Within this factor of the average since boot a rate is the host's ordinary one.
const ORDINARY: f64 = 1.5;

impl Rule for FileThrash {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let refaults = cx.rate(REFAULT_FILE)?;
        let activated = cx.rate(ACTIVATE_FILE)?;
        let majors = cx.rate(&[v::pgmajfault])?;
        if refaults.total == 0 {
            return Ok(Vec::new());
        }
        let share = activated.total as f64 / refaults.total as f64;
        let busiest = majors.per_second.max(refaults.per_second);
        if share <= ACTIVATED || busiest < PER_SECOND || warming(cx).is_some_and(|young| young >= WARMING) {
            return Ok(Vec::new());
        }

        let by_fault = majors.per_second >= PER_SECOND;
        let (read, how) = cx.read_latency();
        let cost = if by_fault {
            Cost::faults(majors.per_second, read, format!("major faults, at {how}"))
        } else {
            Cost::faults(
                refaults.per_second,
                read,
                format!("pages read again, at {how} if each were a read of its own; readahead makes it less"),
            )
        };
        let average = (cx.now().uptime.filter(|uptime| *uptime > 0.0))
            .zip(cx.vm(v::pgmajfault).ok())
            .map(|(uptime, total)| total as f64 / uptime);
        let ordinary = by_fault && average.is_some_and(|average| majors.per_second <= ORDINARY * average);
        let reread = cx.pages(refaults.per_second.round() as u64);
        let mut finding = Finding::new(
            Self::ID,
            if busiest >= PER_SECOND_HIGH && !ordinary { Severity::High } else { Severity::Warning },
            format!(
                "{} file pages/s ({reread}/s) are read again soon after they were evicted, {} of them from \
                 the working set, with {} major faults/s",
                Grouped(refaults.per_second.round() as u64),
                Percent(share),
                Grouped(majors.per_second.round() as u64)
            ),
            cost,
        );
        finding
            .sure(if ordinary { Confidence::Possible } else { cx.rate_confidence() })
            .because(cx.saw_rate(REFAULT_FILE, &refaults))
            .because(cx.saw_rate(ACTIVATE_FILE, &activated).against(
                format!("more than {} of the refaults", Percent(ACTIVATED)),
                "fewer are a scan, no working set",
            ))
            .because(
                cx.saw_rate(&[v::pgmajfault], &majors)
                    .against(format!("{PER_SECOND:.0}/s"), "node_exporter mixin"),
            );
        if let Ok(files) = page_cache::file_pages(cx) {
            finding.because(Evidence::new(
                "/proc/meminfo",
                "Active(file) + Inactive(file)",
                format!("{files:#}"),
            ));
        }
        for (process, faults) in largest_faulters(cx) {
            finding
                .because(Evidence::new("/proc/PID/stat", "majflt", format!("{:.0}/s", faults)).of(process));
        }
        add_remedies(&mut finding, cx);
        add_notes(&mut finding, cx, ordinary);
        Ok(vec![finding])
    }
}

fn add_notes(finding: &mut Finding, cx: &Context<'_>, ordinary: bool) {
    if ordinary {
        finding.note(
            "The rate of major faults is what this host has had on average since boot: a program that reads \
             through a mapping may work this way on purpose. Compare latencies before changing anything.",
        );
    }
    if cx.mem(m::MemAvailable).is_ok() {
        finding.because(cx.saw_mem(m::MemAvailable)).note(
            "MemAvailable counts half of the file cache at least as available, also where it is in use as \
             here.",
        );
    }
    finding.note(
        "More memory helps only if the files in use are bounded; a cache of files that are written and \
         never read again grows into any size. Random readers of mapped files gain from MADV_RANDOM: no \
         neighbours are read that nobody asked for.",
    );
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>) {
    if let Some(remedy) = remedies::protected_group(cx, "the reader's file pages") {
        finding.remedy(remedy);
    }
    finding
        .remedy(
            Remedy::new(
                "Keep what is not read again out of the cache: reuse segment files, bound copies and \
                 backups",
            )
            .run("systemd-run --scope -p MemoryHigh=1G COMMAND")
            .risk("A job that is bounded too tightly is slowed down."),
        )
        .remedy(
            Remedy::new("Lock the files that must stay resident")
                .run("vmtouch -dl FILES")
                .risk("What is locked is gone for everybody else, also when it turns out to be cold.")
                .restart("nothing; the locks last as long as the process that holds them"),
        );
}

/// The part of all major faults of the period that belongs to processes younger than the warm-up time; `None`
/// where processes were not read twice or none faulted.
fn warming(cx: &Context<'_>) -> Option<f64> {
    let (mut young, mut all) = (0u64, 0u64);
    for (before, now) in cx.process_pairs().ok()? {
        let faults = now.stat.major_faults.saturating_sub(before.stat.major_faults);
        all = all.saturating_add(faults);
        if latency::age(cx, now).is_some_and(|age| age < WARM_UP_SECONDS) {
            young = young.saturating_add(faults);
        }
    }
    (all > 0).then(|| young as f64 / all as f64)
}

/// The three processes with most major faults, and how many a second.
fn largest_faulters(cx: &Context<'_>) -> Vec<(String, f64)> {
    let Ok(seconds) = cx.seconds() else { return Vec::new() };
    let mut faulters: Vec<_> = (cx.process_pairs().unwrap_or_default().into_iter())
        .map(|(before, now)| (now.stat.major_faults.saturating_sub(before.stat.major_faults), now))
        .filter(|(faults, _)| *faults > 0)
        .collect();
    faulters.sort_by_key(|(faults, _)| std::cmp::Reverse(*faults));
    let named = |(faults, p): &(u64, &lotsfree_kernel_files::file::process::Process)| {
        (subject(p), *faults as f64 / seconds)
    };
    faulters.iter().take(3).map(named).collect()
}
