use lotsfree_kernel_files::counters::status as s;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Percent};

use crate::applications::{self, Topic};
use crate::finding::subject;
use crate::latency::LOCKED_ON_PURPOSE;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, remedies};

rule! {
    /// A process that locks its memory has locked only a part of it.
    ///
    /// # Sees
    /// `VmLck` of `/proc/PID/status` above 8 MiB and at most 95 % of `VmRSS`: where half or more of the
    /// process is locked and more than 32 MiB are not, or where what is locked reaches up to the limit "Max
    /// locked memory" of a process without `CAP_IPC_LOCK`.
    ///
    /// # Hurts
    /// The rest can be evicted like any other page: the program believes that it never waits for a disk, and
    /// does. A tool that locks files for others and stops at its limit leaves the files that came last
    /// unprotected.
    ///
    /// # Remedies
    /// A limit above what it needs (`LimitMEMLOCK`, `limits.conf`), and `MCL_FUTURE` so that what comes later
    /// is locked as well.
    ///
    /// # False alarms
    /// Programs that lock a few pages for keys or DMA (up to 8 MiB), or a chosen buffer below half of their
    /// memory, do so on purpose. `MCL_ONFAULT` locks more than is resident, never less. Huge pages and
    /// segments locked with `SHM_LOCK` are not in `VmLck`: neither are they in question, so shared memory is
    /// left out of what should be locked.
    ///
    /// # References
    /// mm/mlock.c:do_mlock, apply_mlockall_flags (6.12); `mlockall(2)`; vmtouch issue 107 (locking stops at 1
    /// GiB).
    pub PartialLock = "partial-lock" in Faults
}

/// What a program that locks one large buffer keeps besides: code, libraries, stacks.
const LEAST_OPEN: Bytes = Bytes::mib(32);
/// Locked part of a process from which on it meant to lock all.
const MEANT_ALL: f64 = 0.5;
/// Locked part that is as good as all: mappings of devices and the like cannot be locked.
const ALL: f64 = 0.95;
/// Locked part of the limit from which on the next lock of any size fails.
const AT_LIMIT: f64 = 0.98;

/// One process that locked a part.
struct Partial<'a> {
    process: &'a Process,
    locked: Bytes,
    resident: Bytes,
    limit: Option<Bytes>,
}

impl Partial<'_> {
    fn open(&self) -> Bytes {
        self.resident - self.locked
    }
}

impl Rule for PartialLock {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let processes = cx.processes()?;
        if processes.iter().all(|process| process.memory(s::VmLck).is_none()) {
            return Err(Skip::missing("/proc/PID/status VmLck"));
        }
        let mut partial: Vec<Partial<'_>> = processes.iter().filter_map(partly_locked).collect();
        partial.sort_by_key(|partial| std::cmp::Reverse(partial.open()));
        let Some(worst) = partial.first() else { return Ok(Vec::new()) };

        let name = |p: &Partial<'_>| subject(p.process);
        let open: Bytes = partial.iter().map(Partial::open).sum();
        let at_limit = partial.iter().any(|partial| partial.limit.is_some());
        let stopped = match worst.limit {
            Some(limit) => format!(", as far as its limit of {limit} goes"),
            None => String::new(),
        };
        let mut finding = Finding::new(
            Self::ID,
            if at_limit { Severity::Warning } else { Severity::Info },
            format!(
                "{} has locked {} of {}{stopped}: {} can still be evicted",
                name(worst),
                worst.locked,
                worst.resident,
                worst.open()
            ),
            Cost::memory(open, cx.total()?, "of processes that lock their memory is not locked"),
        );
        finding.sure(if at_limit { Confidence::Likely } else { Confidence::Possible });
        for partial in partial.iter().take(3) {
            let share = partial.locked.share_of(partial.resident);
            finding.because(
                Evidence::new(
                    "/proc/PID/status",
                    "VmLck, VmRSS - RssShmem",
                    format!("{:#}, {:#} ({})", partial.locked, partial.resident, Percent(share)),
                )
                .of(name(partial))
                .against(format!("more than {}", Percent(ALL)), "the rest can be evicted"),
            );
            if let Some(limit) = partial.limit {
                finding.because(
                    Evidence::new("/proc/PID/limits", "Max locked memory", format!("{limit:#}"))
                        .of(name(partial))
                        .against(format!("more than {:#}", partial.resident), "what would have to be locked"),
                );
            }
        }
        let lock = Remedy::new(
            "Give it a limit above what it needs, and let it lock what comes later too (MCL_FUTURE)",
        )
        .run(format!("prlimit --memlock=unlimited --pid {}", worst.process.stat.pid))
        .keep(remedies::DROP_IN, "LimitMEMLOCK=infinity")
        .risk("What is locked is gone for the rest: add up all that is locked first.")
        .restart("the program, unless it locks again by itself");
        finding.remedy(applications::told(worst.process, Topic::Locked, lock)).note(
            "A raised limit of a running process helps its next lock only; pages that failed to be \
                 locked stay as they are.",
        );
        Ok(vec![finding])
    }
}

/// `process` as far as it locked a part of its memory on purpose.
fn partly_locked(process: &Process) -> Option<Partial<'_>> {
    let locked = process.memory(s::VmLck)?;
    let resident = process.memory(s::VmRSS)? - process.memory_or_zero(s::RssShmem);
    let share = locked.share_of(resident);
    if locked <= LOCKED_ON_PURPOSE || share > ALL || process.stat.is_kernel_thread() {
        return None;
    }
    let soft =
        process.detail.as_ref().and_then(|d| d.limits).and_then(|l| l.locked_memory).map(|(soft, _)| soft);
    let limit = (soft.and_then(|soft| soft.bytes()))
        .filter(|limit| locked.share_of(*limit) >= AT_LIMIT && process.has_cap_ipc_lock() != Some(true));
    let meant_all = share >= MEANT_ALL && resident - locked > LEAST_OPEN;
    (meant_all || limit.is_some()).then_some(Partial { process, locked, resident, limit })
}
