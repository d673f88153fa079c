use lotsfree_kernel_files::counters::{meminfo as m, vmstat as v, zoneinfo as z};
use lotsfree_settings::SWAPPINESS;
use lotsfree_units::{Bytes, Percent};

use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Rule, Severity, Skip, advice, page_cache, remedies,
};

rule! {
    /// vm.swappiness is 0 although there is swap: the OOM killer may come before swap is used.
    ///
    /// # Sees
    /// `vm.swappiness` at 0 with `SwapTotal` above 0. Worse if the OOM killer has been at work for the host
    /// as a whole while a tenth of swap is free and files still take 5 % of memory.
    ///
    /// # Hurts
    /// From 3.5 on, 0 means that no program's page is swapped out until free and file pages together have
    /// fallen to the high watermarks. Before that cliff every shortage is taken from the file cache, the text
    /// of running programs included; at it, a fast allocation can find nothing to reclaim and the OOM killer
    /// ends a database with swap unused.
    ///
    /// # Remedies
    /// 1 instead of 0, or the value that suits the host's programs: 1 prefers the cache just as much and
    /// keeps the way to swap open.
    ///
    /// # False alarms
    /// A kill inside a memory cgroup says nothing of swappiness. Kernels before 3.5 still swap at 0, a
    /// little; there the setting is harmless and not reported. Without swap it has no effect.
    ///
    /// # References
    /// mm/vmscan.c:get_scan_count (3.10 to 6.12); A. Hass, W. Nüßer, "Memory Hogs" (RHEL 6.4 and SLES 11
    /// differ at 0); Pythian on kernels 2.6.32-303.el6 to 2.6.32-600.el6, mended in 2.6.32-642.el6.
    pub SwappinessZeroOom = "swappiness-zero-oom" in Reclaim
}

/// Swap that was free when the OOM killer came.
const SWAP_FREE: f64 = 0.1;
/// File pages that it could have taken.
const FILE_SHARE: f64 = 0.05;
/// What the kernel log says of a kill for the host as a whole; nothing before 4.19.
const HOST_WIDE: [&str; 2] = ["CONSTRAINT_NONE", ""];
/// Builds of 2.6.32 (RHEL 6) that took over the strict 0 …
const EL6_STRICT: u64 = 303;
/// … and the first that swaps before it kills.
const EL6_MENDED: u64 = 642;

/// What 0 means on this kernel.
#[derive(Clone, Copy, PartialEq)]
enum Zero {
    /// A little swapping goes on.
    Lenient,
    /// No swapping before the file cache is gone.
    Strict,
    /// Strict, and known to kill with swap free.
    Defective,
    /// Strict, but swaps as a last resort before it kills.
    LastResort,
}

impl Rule for SwappinessZeroOom {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        if cx.sysctl(SWAPPINESS)? != 0 {
            return Ok(Vec::new());
        }
        let swap = cx.mem(m::SwapTotal)?;
        if swap == Bytes::ZERO {
            return Err(Skip::because("no swap, so swappiness has no effect"));
        }
        let zero = meaning(cx);
        if zero == Zero::Lenient {
            return Err(Skip::because("kernels before 3.5 swap at swappiness 0 too"));
        }
        let total = cx.total()?;
        let free = cx.mem(m::SwapFree)?;
        let files = page_cache::file_pages(cx).ok();
        let left =
            free.share_of(swap) > SWAP_FREE && files.is_none_or(|files| files.share_of(total) > FILE_SHARE);

        // The counter includes kills inside memory cgroups; the log tells them apart where it still has them.
        let counted = cx.vm(v::oom_kill).unwrap_or(0);
        let log = cx.now().kernel_log.as_ref().map(|log| log.ooms.as_slice()).unwrap_or_default();
        let host_wide: Vec<_> = log.iter().filter(|oom| HOST_WIDE.contains(&&*oom.constraint)).collect();
        let during = cx.rate(&[v::oom_kill]).is_ok_and(|rate| rate.total > 0);
        let only_cgroups = !log.is_empty() && host_wide.is_empty();
        let killed = left && !only_cgroups && (!host_wide.is_empty() || counted > 0);
        let kills = if host_wide.is_empty() { counted } else { host_wide.len() as u64 };

        let processes = if kills == 1 { "one process".to_owned() } else { format!("{kills} processes") };
        let (severity, title, cost, confidence) = if killed {
            (
                if during { Severity::Critical } else { Severity::High },
                format!(
                    "the OOM killer ended {processes} with {free} of swap free: vm.swappiness is 0 and \
                     keeps programs out of it"
                ),
                Cost::risk(match host_wide.last() {
                    Some(oom) => format!("{} (pid {}) was killed", oom.name, oom.pid),
                    None => format!("killed since boot: {processes}"),
                }),
                if host_wide.is_empty() { Confidence::Possible } else { Confidence::Likely },
            )
        } else {
            (
                if zero == Zero::LastResort { Severity::Info } else { Severity::Warning },
                format!(
                    "vm.swappiness is 0 with {swap} of swap: it stays unused until the file cache is gone"
                ),
                Cost::risk(
                    "a shortage takes the file cache first and may end in the OOM killer with swap free",
                ),
                Confidence::Certain,
            )
        };
        let mut finding = Finding::new(Self::ID, severity, title, cost);
        finding
            .sure(confidence)
            .because(cx.saw_sysctl(SWAPPINESS).against("at least 1", "the lowest value that still swaps"))
            .because(cx.saw_mem(m::SwapTotal))
            .because(cx.saw_mem(m::SwapFree));
        if let Some(files) = files {
            finding.because(Evidence::new(
                "/proc/meminfo",
                "Active(file) + Inactive(file)",
                format!("{files:#}"),
            ));
        }
        finding.because_if((counted > 0).then(|| cx.saw_vm(v::oom_kill)));
        for oom in host_wide.iter().rev().take(3) {
            let value = if oom.constraint.is_empty() { "killed" } else { oom.constraint.as_str() };
            finding.because(
                Evidence::new("kernel log", "Out of memory", value)
                    .of(format!("pid {} {}", oom.pid, oom.name)),
            );
        }
        if zero == Zero::Defective {
            finding.because(
                Evidence::new("/proc/sys/kernel/osrelease", "release", &cx.now().host.kernel).against(
                    "2.6.32-642.el6 or later",
                    "earlier builds kill at swappiness 0 with swap free (Pythian)",
                ),
            );
        }
        add_remedies(&mut finding, cx, total);
        if killed && host_wide.is_empty() {
            finding.note(
                "The counter includes kills inside memory cgroups, and the kernel log no longer shows which \
                 these were.",
            );
        }
        Ok(vec![finding])
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, total: Bytes) {
    let advice = advice::swappiness(cx);
    finding
        .remedy(
            remedies::swappiness(cx, advice.value)
                .risk("Cold pages of programs may go to swap; locked memory and huge pages never do."),
        )
        .note(format!("{}: {}. {}", advice.value, advice.because, advice.contested));
    if let Some(high) = high_watermarks(cx) {
        finding.note(format!(
            "The cliff: no program is swapped out while free and file pages together exceed {high}, the sum \
             of the high watermarks; that is {} of memory.",
            Percent(high.share_of(total))
        ));
    }
    let own = remedies::own_swappiness(cx).into_iter().find(|(_, own)| *own > 0);
    if let Some((path, own)) = own {
        finding.note(format!(
            "Version 1 cgroups go by their own memory.swappiness, {own} in {path}: vm.swappiness holds for \
             processes in the root group and for groups made from now on."
        ));
    }
}

fn meaning(cx: &Context<'_>) -> Zero {
    let kernel = &cx.now().host.kernel;
    if !kernel.is_known() || kernel.at_least(3, 5) {
        return Zero::Strict;
    }
    match el6_build(&kernel.release) {
        Some(EL6_MENDED..) => Zero::LastResort,
        Some(EL6_STRICT..) => Zero::Defective,
        _ => Zero::Lenient,
    }
}

/// 642 of `2.6.32-642.6.2.el6.x86_64`.
fn el6_build(release: &str) -> Option<u64> {
    let rest = release.strip_prefix("2.6.32-").filter(|rest| rest.contains(".el6"))?;
    rest.split('.').next()?.parse().ok()
}

/// The sum of the zones' high watermarks.
fn high_watermarks(cx: &Context<'_>) -> Option<Bytes> {
    let highs: Vec<u64> = cx.zones().ok()?.iter().filter_map(|zone| zone.marks.get(z::high)).collect();
    (!highs.is_empty()).then(|| cx.pages(highs.iter().fold(0, |sum, high| sum.saturating_add(*high))))
}
