use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo as m};
use lotsfree_units::{Bytes, Grouped};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Finding, Outcome, Rule, Severity, Skip};

rule! {
    /// Figures contradict each other: they were made up, mixed, or the kernel lost count.
    ///
    /// # Sees
    /// More free than there is (memory, swap, huge pages), and more dirty pages than the page cache has.
    ///
    /// # Hurts
    /// Whatever is concluded from such figures is wrong. Dirty pages that do not exist make writers wait at
    /// the dirty limit for ever: a few releases lost count when a file system gave up large folios.
    ///
    /// # Remedies
    /// Read the file again, whole and at one time. For dirty pages, a reboot and a later kernel.
    ///
    /// # False alarms
    /// The kernel's counters are summed without a lock and are off by some thousand pages; only more than
    /// that counts.
    ///
    /// # References
    /// `fs/proc/meminfo.c:meminfo_proc_show` (6.12); xfs and multi-page folios in 5.19-rc.
    pub ImpossibleFigures = "impossible-figures" in Host
}

/// What per-CPU counters may be off.
const OFF: Bytes = Bytes::mib(64);

impl Rule for ImpossibleFigures {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        if cx.now().meminfo.is_none() {
            return Err(Skip::missing("/proc/meminfo"));
        }
        let parts =
            [(m::MemFree, m::MemTotal), (m::SwapFree, m::SwapTotal), (m::HugePages_Free, m::HugePages_Total)];
        let mut findings: Vec<Finding> =
            parts.into_iter().filter_map(|(part, whole)| more(cx, part, whole)).collect();
        findings.extend(dirty(cx));
        Ok(findings)
    }
}

/// A part that is larger than its whole.
fn more(cx: &Context<'_>, part: Counter<Meminfo>, whole: Counter<Meminfo>) -> Option<Finding> {
    let (of_part, of_whole) = (cx.mem_count(part).ok()?, cx.mem_count(whole).ok()?);
    if of_part <= of_whole {
        return None;
    }
    let mut finding = Finding::new(
        ImpossibleFigures::ID,
        Severity::Warning,
        format!("{} is {}, more than {}, {}", part.name(), Grouped(of_part), whole.name(), Grouped(of_whole)),
        Cost::risk("what follows from either figure is not to be relied on"),
    );
    finding.sure(Confidence::Certain).because(cx.saw_mem(part)).because(cx.saw_mem(whole)).note(
        "Read the file again, whole and at one time: these lines are of different moments, or were edited.",
    );
    Some(finding)
}

fn dirty(cx: &Context<'_>) -> Option<Finding> {
    let dirty = cx.mem(m::Dirty).ok()?;
    let cache = cx.mem(m::Cached).ok()? + cx.mem(m::Buffers).ok()? + cx.mem_or_zero(m::SwapCached);
    if dirty <= cache + OFF {
        return None;
    }
    let mut finding = Finding::new(
        ImpossibleFigures::ID,
        Severity::High,
        format!(
            "{dirty:#} are counted as dirty, but the whole page cache is {cache:#}: the kernel lost count"
        ),
        Cost::risk("writers wait at the dirty limit for pages that do not exist"),
    );
    finding
        .sure(Confidence::Likely)
        .because(cx.saw_mem(m::Dirty))
        .because(cx.saw_mem(m::Cached))
        .because(cx.saw_mem(m::Buffers))
        .note("A defect of this kernel: only a reboot sets the count right, and a later release mends it.");
    Some(finding)
}
