use lotsfree_kernel_files::counters::{Counter, Meminfo, meminfo as m};
use lotsfree_units::{Bytes, Grouped};

use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rule, Severity, Skip};

rule! {
    /// Figures contradict each other: they were made up, mixed, or the kernel lost count.
    ///
    /// # Sees
    /// More free than there is (memory, swap, huge pages), counters that went below zero, more dirty pages
    /// than the page cache has, and stalls (PSI) that last longer than the host runs.
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

/// Ten years in seconds: no host runs as long.
const YEARS: f64 = 10.0 * 365.0 * 86_400.0;
/// What per-CPU counters may be off.
const OFF: Bytes = Bytes::mib(64);

impl Rule for ImpossibleFigures {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let now = cx.now();
        if now.meminfo.is_none() && now.pressure.memory.is_none() && now.cgroups.is_none() {
            return Err(Skip::missing("/proc/meminfo"));
        }
        let parts =
            [(m::MemFree, m::MemTotal), (m::SwapFree, m::SwapTotal), (m::HugePages_Free, m::HugePages_Total)];
        let mut findings: Vec<Finding> =
            parts.into_iter().filter_map(|(part, whole)| more(cx, part, whole)).collect();
        findings.extend(negative(cx));
        findings.extend(dirty(cx));
        findings.extend(stalled(cx));
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

/// A counter that went below zero, and shows as a number near 2^64.
fn negative(cx: &Context<'_>) -> Option<Finding> {
    let meminfo = cx.now().meminfo.as_ref()?;
    let (counter, value) = meminfo.iter().find(|(_, value)| *value > i64::MAX as u64)?;
    let below = value.wrapping_neg();
    let mut finding = Finding::new(
        ImpossibleFigures::ID,
        Severity::Warning,
        format!(
            "{} is {}, which is -{}: the kernel lost count",
            counter.name(),
            Grouped(value),
            Grouped(below)
        ),
        Cost::risk("what the kernel decides by that counter is wrong until a reboot"),
    );
    finding
        .sure(Confidence::Certain)
        .because(Evidence::new("/proc/meminfo", counter.name(), Grouped(value)))
        .note("A defect of this kernel: it subtracted more than it had added. Look whether a later release mends it.");
    Some(finding)
}

/// Stalls for memory that add up to more than ten years, or to more than the time since boot.
fn stalled(cx: &Context<'_>) -> Option<Finding> {
    let now = cx.now();
    let most = now.uptime.unwrap_or(YEARS).max(1.0) * 1e6 * 1.01;
    let groups = now.cgroups.iter().flat_map(|cgroups| &cgroups.groups);
    let of_groups = groups.filter_map(|group| Some((group.path.clone(), group.pressure?)));
    let of_host = now.pressure.memory.map(|psi| ("/proc/pressure/memory".to_owned(), psi));
    let (path, total) = of_host.into_iter().chain(of_groups).find_map(|(path, psi)| {
        let total = psi.some?.total_us;
        (total as f64 > most).then_some((path, total))
    })?;
    let mut finding = Finding::new(
        ImpossibleFigures::ID,
        Severity::Warning,
        format!(
            "stalls for memory of {path} add up to {} days: the kernel lost count",
            Grouped(total / 86_400_000_000)
        ),
        Cost::risk("whoever acts on these stalls (systemd-oomd, a scheduler) acts on nonsense"),
    );
    finding
        .sure(Confidence::Certain)
        .because(Evidence::new("memory.pressure", "some total", format!("{} us", Grouped(total))).of(path))
        .note("A defect of this kernel's pressure stall information; the averages of the last seconds may be wrong too.");
    Some(finding)
}

fn dirty(cx: &Context<'_>) -> Option<Finding> {
    let dirty = cx.mem(m::Dirty).ok()?;
    let cache = cx.mem(m::Cached).ok()? + cx.mem_or_zero(m::Buffers) + cx.mem_or_zero(m::SwapCached);
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
        .because_if(cx.mem(m::Buffers).is_ok().then(|| cx.saw_mem(m::Buffers)))
        .note("A defect of this kernel: only a reboot sets the count right, and a later release mends it.");
    Some(finding)
}
