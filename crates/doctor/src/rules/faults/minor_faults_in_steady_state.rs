use lotsfree_kernel_files::counters::vmstat as v;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::Percent;

use crate::applications::{self, Topic};
use crate::latency::{self, WARM_UP_SECONDS, Why};
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, remedies,
};

rule! {
    /// A latency-critical process takes page faults long after it has started.
    ///
    /// # Sees
    /// `minflt` in `/proc/PID/stat` of processes older than ten minutes, over two samples: of real-time
    /// processes (FIFO, round robin, deadline) from one fault a second on; of databases and of processes that
    /// lock more than 8 MiB when the faults take 1 % of a task's time.
    ///
    /// # Hurts
    /// Each first touch of a page enters the kernel, takes a page from the free lists, zeroes it and extends
    /// the page tables: about 1.6 µs on a server, more when the free lists are empty and reclaim comes first.
    /// In a loop with a deadline that is jitter; a program that gives memory back and takes it again pays
    /// over and over.
    ///
    /// # Remedies
    /// `mlockall(MCL_CURRENT | MCL_FUTURE)` before the loop begins, `MAP_POPULATE` for what is mapped later,
    /// and an allocator that keeps what it has: `M_TRIM_THRESHOLD` and `M_MMAP_MAX`.
    ///
    /// # False alarms
    /// Runtimes with a garbage collector touch and release memory by design; Java is left out. After a fork,
    /// parent and child copy each page that they write: processes with a young child of their own name are
    /// left out. Memory that is locked in advance (`MAP_POPULATE`, `MCL_FUTURE`) is counted fault by fault as
    /// well, so a process that only locks is not held to one fault a second. NUMA balancing provokes faults
    /// to see who uses a page; where the host has as many hinting faults, the finding is less sure. Only the
    /// main thread's scheduling policy is seen.
    ///
    /// # References
    /// mm/memory.c:do_anonymous_page (6.12); Linux Embedded, "Overcommit memory in Linux" (1,048,577 faults:
    /// 1.58 µs each on a server, 0.77 µs on a laptop); measured, 6.18: 1.61 µs for 4 KiB, 0.51 µs per 4 KiB
    /// with huge pages.
    pub MinorFaultsInSteadyState = "minor-faults-in-steady-state" in Faults
}

/// Faults a second of a real-time process; fewer are single events.
const PER_SECOND: f64 = 1.0;
/// Part of one task's time that faults of other processes may take.
const SHARE: f64 = 0.01;
/// Seconds per fault, of the article's server.
const FAULT_SECONDS: f64 = 1.58e-6;

impl Rule for MinorFaultsInSteadyState {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let pairs = cx.process_pairs()?;
        let seconds = cx.seconds()?;
        if cx.now().uptime.is_none() {
            return Err(Skip::missing("/proc/uptime"));
        }
        let hints = cx.rate(&[v::numa_hint_faults]).map_or(0.0, |rate| rate.per_second);
        let mut faulting = Vec::new();
        for (before, now) in pairs {
            let Some(why) = latency::why(now) else { continue };
            let rate = now.stat.minor_faults.saturating_sub(before.stat.minor_faults) as f64 / seconds;
            let least = match why {
                Why::RealTime(_) => PER_SECOND,
                Why::Database(_) | Why::Locked(_) => SHARE / FAULT_SECONDS,
            };
            let warm = latency::age(cx, now).is_some_and(|age| age >= WARM_UP_SECONDS);
            let collected = Workload::of_name(&now.stat.name) == Some(Workload::Java);
            if warm && !collected && rate >= least && !latency::has_young_copy(cx, now) {
                faulting.push((rate, now, why));
            }
        }
        faulting.sort_by(|a, b| b.0.total_cmp(&a.0));
        let Some(&(rate, worst, why)) = faulting.first() else { return Ok(Vec::new()) };

        let all: f64 = faulting.iter().map(|(rate, ..)| rate).sum();
        let hinted = hints >= rate;
        let deadline = faulting.iter().any(|(.., why)| matches!(why, Why::RealTime(_)));
        let others = match faulting.len() - 1 {
            0 => String::new(),
            n => format!(", {n} more processes do as well"),
        };
        let mut finding = Finding::new(
            Self::ID,
            if deadline { Severity::Warning } else { Severity::Info },
            format!(
                "{} takes {rate:.0} minor faults/s in steady state{others}",
                latency::subject(worst, why)
            ),
            Cost::faults(all, FAULT_SECONDS, "at 1.58 us each, measured on a server"),
        );
        finding.sure(if hinted { Confidence::Possible } else { cx.rate_confidence() });
        for (rate, process, why) in faulting.iter().take(3) {
            let bound = match why {
                Why::RealTime(_) => {
                    (format!("{PER_SECOND:.0}/s"), "a loop with a deadline takes none".to_owned())
                }
                _ => (
                    format!("{:.0}/s", SHARE / FAULT_SECONDS),
                    format!("{} of a task's time", Percent(SHARE)),
                ),
            };
            finding.because(
                Evidence::new("/proc/PID/stat", "minflt", format!("{rate:.1}/s over {seconds:.0} s"))
                    .of(latency::subject(process, *why))
                    .against(bound.0, bound.1),
            );
        }
        if hints > 0.0 {
            finding.because(Evidence::new("/proc/vmstat", "numa_hint_faults", format!("{hints:.0}/s")));
        }
        if hinted {
            finding.note(
                "NUMA balancing provokes as many faults on this host as this process takes: they may all be \
                 its hints. See kernel.numa_balancing first.",
            );
        }
        add_remedies(&mut finding, worst);

        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, worst: &Process) {
    let lock = Remedy::new(
        "Lock and touch all memory before the work begins: mlockall(MCL_CURRENT | MCL_FUTURE), \
         MAP_POPULATE",
    )
    .keep(remedies::DROP_IN, "LimitMEMLOCK=infinity")
    .risk(
        "With MCL_FUTURE an allocation beyond the limit fails instead of waiting; what is locked is \
         gone for the rest.",
    )
    .restart("the program");
    finding
        .remedy(applications::told(worst, Topic::Locked, lock))
        .remedy(
            Remedy::new("Let the allocator keep what it has")
                .keep(remedies::DROP_IN, "Environment=MALLOC_TRIM_THRESHOLD_=-1 MALLOC_MMAP_MAX_=0")
                .risk("glibc only: freed memory stays with the process, and its size is that of its peak.")
                .restart("the program"),
        )
        .note(format!(
            "The process is older than {:.0} minutes, so this is not its start. Which code faults: perf \
             record -e minor-faults -g -p {}.",
            WARM_UP_SECONDS / 60.0,
            worst.stat.pid
        ));
}
