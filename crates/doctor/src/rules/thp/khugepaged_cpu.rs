use lotsfree_kernel_files::counters::ksm;
use lotsfree_units::Percent;

use crate::latency::TICKS_PER_SECOND;
use crate::rule::rule;
use crate::{Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, advice, thp};

rule! {
    /// khugepaged or ksmd take a noticeable part of a CPU.
    ///
    /// # Sees
    /// CPU time of the two kernel threads over two samples (`utime` and `stime` of `/proc/PID/stat`),
    /// together more than 2 % of one CPU.
    ///
    /// # Hurts
    /// Both walk the memory of every registered process, for ever: khugepaged looks for ranges to copy into
    /// huge pages, ksmd compares pages with each other. The CPU time is the smaller part: they evict the
    /// caches of the programs beside them, and a range that is being copied stops every fault in it
    /// meanwhile.
    ///
    /// # Remedies
    /// khugepaged: the kernel's own pace (4096 entries every 10 s), and `madvise` so that fewer programs are
    /// looked at. ksmd: off where no virtual machines run, else fewer pages per round.
    ///
    /// # False alarms
    /// After a large program has started khugepaged works for minutes and is done. On hosts of many alike
    /// virtual machines ksmd is worth its time.
    ///
    /// # References
    /// mm/khugepaged.c:khugepaged_do_scan, mm/ksm.c:ksm_scan_thread (6.12);
    /// `Documentation/admin-guide/mm/ksm.rst`.
    pub KhugepagedCpu = "khugepaged-cpu" in Thp
}

/// Share of one CPU. The kernel's defaults keep khugepaged far below 1 %, so this says that somebody hurried
/// it.
const SHARE: f64 = 0.02;
/// The kernel's default of `pages_to_scan`: eight huge pages of 512 entries.
const PAGES_TO_SCAN: u64 = 4096;
/// The kernel's default of `scan_sleep_millisecs`.
const SCAN_SLEEP_MS: u64 = 10_000;

/// Share of one CPU that the kernel thread `name` took over the period.
///
/// # Errors
/// If there is one sample only, or the thread is in neither.
pub(super) fn cpu_share(cx: &Context<'_>, name: &str) -> Result<(u32, f64), Skip> {
    let seconds = cx.seconds()?;
    let pairs = cx.process_pairs()?;
    let pair = pairs.iter().find(|(_, now)| now.stat.is_kernel_thread() && &*now.stat.name == name);
    let (before, now) = pair.ok_or_else(|| Skip::missing(format!("/proc/PID/stat of {name}")))?;
    let ticks = |p: &lotsfree_kernel_files::file::process::Process| {
        p.stat.user_ticks.saturating_add(p.stat.system_ticks)
    };
    let used = ticks(now).saturating_sub(ticks(before)) as f64 / TICKS_PER_SECOND;
    Ok((now.stat.pid, used / seconds))
}

impl Rule for KhugepagedCpu {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let (huge, merge) = match (cpu_share(cx, "khugepaged"), cpu_share(cx, "ksmd")) {
            (Err(skip), Err(_)) => return Err(skip),
            (huge, merge) => (huge.ok(), merge.ok()),
        };
        let of = |thread: Option<(u32, f64)>| thread.map_or(0.0, |(_, share)| share);
        let share = of(huge) + of(merge);
        if share <= SHARE {
            return Ok(Vec::new());
        }
        let who = if of(huge) >= of(merge) { "khugepaged" } else { "ksmd" };
        let mut finding = Finding::new(
            Self::ID,
            Severity::Warning,
            format!("khugepaged and ksmd take {} of a CPU, most of it {who}", Percent(share)),
            Cost::stalled(share, "CPU time of kernel threads that walk the memory of all programs"),
        );
        finding.sure(cx.rate_confidence());
        for (name, thread) in [("khugepaged", huge), ("ksmd", merge)] {
            let Some((pid, share)) = thread else { continue };
            finding.because(
                Evidence::new("/proc/PID/stat", "utime + stime", format!("{} of a CPU", Percent(share)))
                    .of(format!("pid {pid} {name}"))
                    .against(format!("{} together", Percent(SHARE)), "the kernel's defaults stay far below"),
            );
        }
        if of(huge) > SHARE / 2.0 {
            khugepaged(cx, &mut finding);
        }
        if of(merge) > SHARE / 2.0 {
            ksmd(cx, &mut finding);
        }
        if finding.remedies.is_empty() {
            finding.note(
                "The pace is the kernel's own: if it stays so for longer than some minutes, look who keeps \
                 changing its memory (`thp_collapse_alloc`, `thp_split_page`).",
            );
        }
        Ok(vec![finding])
    }
}

fn khugepaged(cx: &Context<'_>, finding: &mut Finding) {
    let Ok(settings) = cx.thp() else { return };
    let mut remedy = Remedy::new("Give khugepaged back the kernel's own pace")
        .risk("Huge pages come back more slowly to memory that was first faulted in as base pages.");
    for (name, default, hurried) in [
        (
            "pages_to_scan",
            PAGES_TO_SCAN,
            settings.khugepaged("pages_to_scan").is_some_and(|now| now > PAGES_TO_SCAN),
        ),
        (
            "scan_sleep_millisecs",
            SCAN_SLEEP_MS,
            settings.khugepaged("scan_sleep_millisecs").is_some_and(|now| now < SCAN_SLEEP_MS),
        ),
    ] {
        let Some(now) = settings.khugepaged(name) else { continue };
        let path = format!("{}/khugepaged/{name}", thp::ROOT);
        finding.because(Evidence::new(path.clone(), name, now).against(default, "the kernel's default"));
        if hurried {
            remedy = remedy.sysfs(&path, &default.to_string(), Some(&now.to_string()));
        }
    }
    if !remedy.runtime.is_empty() {
        finding.remedy(remedy);
    }
    let advised = advice::thp_enabled(cx);
    if let Ok(mode) = thp::mode(cx)
        && mode.word == "always"
        && advised.value == "madvise"
    {
        finding.remedy(mode.set(cx, advised.value)).note(advised.contested);
    }
}

fn ksmd(cx: &Context<'_>, finding: &mut Finding) {
    let Some(values) = &cx.now().ksm else { return };
    let Some(pages) = values.get(ksm::pages_to_scan).filter(|pages| *pages > KSM_PAGES) else {
        finding.note(
            "ksmd is judged on its own where a database runs (ksm-on-database); elsewhere weigh \
             pages_sharing against its CPU time.",
        );
        return;
    };
    let path = "/sys/kernel/mm/ksm/pages_to_scan";
    finding
        .because(Evidence::new(path, "pages_to_scan", pages).against(KSM_PAGES, "the kernel's default"))
        .remedy(
            Remedy::new("Give ksmd back the kernel's own pace")
                .sysfs(path, &KSM_PAGES.to_string(), Some(&pages.to_string()))
                .risk(
                    "Pages of new virtual machines are merged later; ksmtuned sets it again where it runs.",
                ),
        );
}

/// The kernel's default of KSM's `pages_to_scan`.
const KSM_PAGES: u64 = 100;
