use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_units::{Bytes, Percent};

use crate::finding::subject;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload};

rule! {
    /// So much memory is locked or in huge pages that reclaim has next to nothing left.
    ///
    /// # Sees
    /// `Unevictable` (or `Mlocked`, where that is larger) and the huge page pools together against
    /// `MemTotal`.
    ///
    /// # Hurts
    /// Locked pages and huge pages cannot be reclaimed. All that needs memory besides (kernel, page cache,
    /// every program that is not locked) shares the rest, and each shortage there scans the same few pages
    /// again until the OOM killer ends one of those programs, not the one that locked.
    ///
    /// # Remedies
    /// Lock less: the part that is on the critical path, or what is touched (`MCL_ONFAULT`); a smaller pool;
    /// a smaller cache in the program that locks.
    ///
    /// # False alarms
    /// Hosts for virtual machines and packet forwarding give 85 to 95 % of memory to a huge page pool on
    /// purpose: a pool alone is not reported where KVM or DPDK runs. Whether a pool is too large for a
    /// database host is another rule's matter; this one wants a tenth of memory locked besides.
    ///
    /// # References
    /// mm/mlock.c, mm/vmscan.c:folio_evictable (6.12); `Documentation/mm/unevictable-lru.rst`.
    pub Overlocked = "overlocked" in Faults
}

/// Of memory; what is left must hold the kernel, the page cache and everybody else.
const SHARE: f64 = 0.80;
/// A twentieth of memory is what the kernel takes for itself on an ordinary host.
const CRITICAL: f64 = 0.95;
/// Available memory below which it is felt.
const AVAILABLE: f64 = 0.05;
/// Locked part of memory below which the pools alone are the matter.
const LOCKED: f64 = 0.10;

impl Rule for Overlocked {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let total = cx.total()?;
        let unevictable = cx.mem(m::Unevictable)?;
        // SHM_LOCK and ramfs count in Unevictable only; pages locked but not yet moved there in Mlocked only.
        let locked = unevictable.max(cx.mem_or_zero(m::Mlocked));
        let pools = cx.pool_bytes();
        let fixed = locked + pools;
        let share = fixed.share_of(total);
        let pool_host = cx.runs(Workload::Kvm) || cx.runs(Workload::Dpdk);
        if share <= SHARE || locked.share_of(total) < LOCKED {
            return Ok(Vec::new());
        }

        let rest = total - fixed;
        let available = cx.mem(m::MemAvailable).ok();
        let felt = available.is_some_and(|available| available.share_of(total) < AVAILABLE);
        let severity = Severity::ladder(
            &[
                (share > CRITICAL && felt, Severity::Critical),
                (share > CRITICAL || felt, Severity::High),
                (pool_host, Severity::Info),
            ],
            Severity::Warning,
        );
        let mut finding = Finding::new(
            Self::ID,
            severity,
            format!(
                "{} of memory cannot be reclaimed: {locked} locked and {pools} in huge pages leave {rest} \
                 for everything else",
                Percent(share)
            ),
            if felt {
                Cost::memory(fixed, total, "cannot be reclaimed while memory is short")
            } else {
                Cost::risk(format!("a shortage has {rest} to take from, the kernel's own memory included"))
            },
        );
        finding.sure(Confidence::Certain).because(cx.saw_mem(m::Unevictable));
        finding.because_if(cx.mem(m::Mlocked).is_ok().then(|| cx.saw_mem(m::Mlocked)));
        finding
            .because(Evidence::new("/proc/meminfo", "huge page pools", format!("{pools:#}")).against(
                format!("{} of memory with what is locked", Percent(SHARE)),
                "the rest must hold everybody else",
            ))
            .because(cx.saw_mem(m::MemTotal));
        finding.because_if(available.is_some().then(|| cx.saw_mem(m::MemAvailable)));
        let mut lockers: Vec<_> = (cx.processes().unwrap_or_default().iter())
            .map(|process| (process.memory_or_zero(s::VmLck), process))
            .filter(|(bytes, _)| *bytes > Bytes::ZERO)
            .collect();
        lockers.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, process) in lockers.iter().take(3) {
            finding.because(
                Evidence::new("/proc/PID/status", "VmLck", format!("{bytes:#}")).of(subject(process)),
            );
        }
        finding
            .remedy(
                Remedy::new("Lock less: what is on the critical path, or only what is touched (MCL_ONFAULT)")
                    .risk("What is not locked may be evicted and then read from disk.")
                    .restart("the program that locks"),
            )
            .remedy(
                Remedy::new("Make the cache or heap of the program that locks smaller")
                    .risk("It reads more from disk, or collects garbage more often.")
                    .restart("the program that locks"),
            )
            .note(format!("{total} - {locked} - {pools} = {rest}."));
        Ok(vec![finding])
    }
}
