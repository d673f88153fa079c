use lotsfree_kernel_files::counters::status as s;
use lotsfree_kernel_files::file::cgroup::Limit;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Percent};

use crate::applications::{self, Topic};
use crate::latency::{self, WARM_UP_SECONDS, Why};
use crate::rule::rule;
use crate::{Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, remedies};

rule! {
    /// A latency-critical process waits for its own pages to come back from disk.
    ///
    /// # Sees
    /// `majflt` in `/proc/PID/stat` of processes older than ten minutes, over two samples: any major fault of
    /// a real-time process or of one that locks more than 8 MiB; of a database from 1 % of a task's time on.
    /// Says whether part of it is in swap.
    ///
    /// # Hurts
    /// The thread stops until the page has been read: a hundred microseconds on a fast disk, ten milliseconds
    /// on a slow one, a thousand times a minor fault. The page was its code, its libraries or its heap,
    /// evicted because others needed memory while it was quiet.
    ///
    /// # Remedies
    /// Lock what must stay, code included; protect its memory cgroup; keep it out of swap.
    ///
    /// # False alarms
    /// Databases that map their data files read them this way: where most of the resident memory is files and
    /// nothing is in swap, the process is left out (the rule on file pages read again sees it). Processes
    /// that warm up are left out. Only the main thread's scheduling policy is seen.
    ///
    /// # References
    /// mm/filemap.c:filemap_fault, mm/memory.c:do_swap_page (6.12); `mlockall(2)`.
    pub MajorFaults = "major-faults" in Faults
}

/// Part of one task's time that a database may wait.
const DATABASE_SHARE: f64 = 0.01;
/// A thousandth of a task's time; below it only a deadline can miss it.
const NOTICED: f64 = 0.001;
/// From here on the process is mostly waiting or about to be.
const HIGH_SHARE: f64 = 0.10;

impl Rule for MajorFaults {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let pairs = cx.process_pairs()?;
        let seconds = cx.seconds()?;
        if cx.now().uptime.is_none() {
            return Err(Skip::missing("/proc/uptime"));
        }
        let (read, how) = cx.read_latency();
        let mut faulting = Vec::new();
        for (before, now) in pairs {
            let Some(why) = latency::why(now) else { continue };
            let faults = now.stat.major_faults.saturating_sub(before.stat.major_faults);
            let rate = faults as f64 / seconds;
            let enough = match why {
                Why::Database(_) => rate * read >= DATABASE_SHARE,
                Why::RealTime(_) | Why::Locked(_) => faults > 0,
            };
            let own = now.memory_or_zero(s::RssAnon) + now.memory_or_zero(s::RssShmem);
            let maps_files =
                now.memory_or_zero(s::RssFile) > own && now.memory_or_zero(s::VmSwap) == Bytes::ZERO;
            let reads_data = matches!(why, Why::Database(_)) && maps_files;
            let warm = latency::age(cx, now).is_some_and(|age| age >= WARM_UP_SECONDS);
            if enough && warm && !reads_data {
                faulting.push((rate, now, why));
            }
        }
        faulting.sort_by(|a, b| b.0.total_cmp(&a.0));
        let Some(&(rate, worst, why)) = faulting.first() else { return Ok(Vec::new()) };

        let all: f64 = faulting.iter().map(|(rate, ..)| rate).sum();
        let others = match faulting.len() - 1 {
            0 => String::new(),
            n => format!(", {n} more processes do as well"),
        };
        let deadline = faulting.iter().any(|(.., why)| matches!(why, Why::RealTime(_)));
        let lost = all * read;
        let severity = Severity::ladder(
            &[(lost >= HIGH_SHARE, Severity::High), (lost >= NOTICED || deadline, Severity::Warning)],
            Severity::Info,
        );
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!("{} waits for {rate:.1} major faults/s{others}", latency::subject(worst, why)),
            Cost::faults(all, read, format!("major faults, at {how}")),
        );
        finding.sure(cx.rate_confidence());
        for (rate, process, why) in faulting.iter().take(3) {
            let bound = match why {
                Why::Database(_) => (
                    format!("{:.0}/s", DATABASE_SHARE / read),
                    format!("{} of a task's time", Percent(DATABASE_SHARE)),
                ),
                _ => ("0".to_owned(), "a loop with a deadline takes none".to_owned()),
            };
            finding.because(
                Evidence::new("/proc/PID/stat", "majflt", format!("{rate:.1}/s over {seconds:.0} s"))
                    .of(latency::subject(process, *why))
                    .against(bound.0, bound.1),
            );
        }
        add_remedies(&mut finding, cx, worst, why);
        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, worst: &Process, why: Why) {
    let swapped = worst.memory_or_zero(s::VmSwap);
    for field in [s::VmSwap, s::VmLck, s::RssFile, s::RssAnon] {
        if let Some(bytes) = worst.memory(field) {
            finding.because(
                Evidence::new("/proc/PID/status", field.name(), format!("{bytes:#}"))
                    .of(latency::subject(worst, why)),
            );
        }
    }
    let lock = Remedy::new(
        "Lock what must stay resident, code and libraries included: mlockall(MCL_CURRENT | MCL_FUTURE)",
    )
    .keep(remedies::DROP_IN, "LimitMEMLOCK=infinity")
    .risk("What is locked is gone for the rest; with MCL_FUTURE an allocation beyond the limit fails.")
    .restart("the program");
    finding.remedy(applications::told(worst, Topic::Locked, lock));
    if let Some(remedy) = remedies::protected_group(cx, "its memory") {
        finding.remedy(if swapped > Bytes::ZERO {
            let group = worst.detail.as_ref().and_then(|detail| detail.cgroup.as_deref());
            let cap = group.and_then(|path| cx.cgroups().ok()?.at(path)?.swap_max);
            let before = match cap {
                Some(Limit::At(bytes)) => bytes.0.to_string(),
                Some(Limit::Max) => "infinity".to_owned(),
                None => "BEFORE".to_owned(),
            };
            let remedy = match cap {
                Some(_) => remedy,
                // Read first what the undo has to write.
                None => remedy.run("systemctl show UNIT -p MemorySwapMax"),
            };
            remedy
                .run("systemctl set-property --runtime UNIT MemorySwapMax=0")
                .keep(remedies::DROP_IN, "MemorySwapMax=0")
                .undo_with(format!("systemctl set-property --runtime UNIT MemorySwapMax={before}"))
        } else {
            remedy
        });
    }
    finding.note(if swapped > Bytes::ZERO {
        format!(
            "{swapped} of it are in swap: these faults are at least in part pages that come back from \
             there."
        )
    } else {
        "Nothing of it is in swap: these are file pages, its code, libraries or mapped data.".to_owned()
    });
    finding.note(format!(
        "Which code faults: perf record -e major-faults -g -p {}. What evicted the pages is for the \
         findings on reclaim to say.",
        worst.stat.pid
    ));
}
