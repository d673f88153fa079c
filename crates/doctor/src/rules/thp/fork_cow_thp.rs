use lotsfree_kernel_files::counters::smaps_rollup as r;
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::Bytes;

use crate::applications::{self, Topic};
use crate::finding::subject;
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
    thp,
};

rule! {
    /// A database that saves itself by forking has its memory in transparent huge pages.
    ///
    /// # Sees
    /// Redis or Valkey under mode `always` that did not opt out (`THP_enabled` in `/proc/PID/status`, or
    /// without it `AnonHugePages` in `smaps_rollup`), and whether a child that saves is running.
    ///
    /// # Hurts
    /// After the fork parent and child share all pages, and the first write to each copies it. Before 5.8 a
    /// write to a huge page copied all 2 MiB, 512 times the work and the memory of a small page: a few
    /// changed keys can double the resident size and hold each command up for hundreds of microseconds. From
    /// 5.8 on only 4 KiB are copied, but the huge mapping is taken apart at the first write and the child
    /// keeps the whole page until it ends.
    ///
    /// # Remedies
    /// `disable-thp yes` (the default since Redis 6.2, so somebody turned it off or an old one runs), or
    /// `madvise` for the host.
    ///
    /// # False alarms
    /// Redis since 6.2 opts out by itself and is passed over. An instance that never saves (no `save`, no
    /// `appendonly`, no replica) never forks; that cannot be seen from outside.
    ///
    /// # References
    /// mm/huge_memory.c:do_huge_pmd_wp_page (copies a huge page up to 5.7, falls back to base pages from
    /// 5.8); redis.conf, `disable-thp`; Redis documentation, "Diagnosing latency issues".
    pub ForkCowThp = "fork-cow-thp" in Thp
}

/// Nanoseconds to copy 4 KiB within a huge page: at least what clearing it costs (measured, 6.18).
const NS_PER_PAGE: u64 = 510;

impl Rule for ForkCowThp {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let processes = cx.processes()?;
        let is_redis = |process: &&Process| Workload::of_name(&process.stat.name) == Some(Workload::Redis);
        if !processes.iter().any(|process| is_redis(&process)) {
            return Err(Skip::because("no program that saves itself by forking runs here"));
        }
        let mode = thp::mode(cx)?;
        if mode.word != "always" {
            return Ok(Vec::new());
        }
        let total = cx.total()?;
        let mut findings = Vec::new();
        let mut unknown = None;
        for parent in processes.iter().filter(is_redis) {
            // A child that saves is judged with its parent.
            if processes.iter().filter(is_redis).any(|other| other.stat.pid == parent.stat.ppid) {
                continue;
            }
            match (parent.thp_enabled, thp::anon_huge(parent)) {
                (Some(false), _) | (_, Some(Bytes::ZERO)) => {}
                (None, None) => unknown = Some(Skip::missing("/proc/PID/status THP_enabled")),
                (_, huge) => findings.push(finding(cx, &mode, total, parent, huge)),
            }
        }
        match unknown {
            Some(skip) if findings.is_empty() => Err(skip),
            _ => Ok(findings),
        }
    }
}

fn finding(
    cx: &Context<'_>,
    mode: &thp::Mode<'_>,
    total: Bytes,
    parent: &Process,
    huge: Option<Bytes>,
) -> Finding {
    let kernel = &cx.now().host.kernel;
    let small = kernel.at_least(5, 8);
    let children = cx.processes().unwrap_or_default().iter().filter(|p| {
        p.stat.ppid == parent.stat.pid && Workload::of_name(&p.stat.name) == Some(Workload::Redis)
    });
    let child = children.max_by_key(|child| child.stat.start_ticks);
    let private = child.and_then(|child| {
        let rollup = child.detail.as_ref()?.rollup.as_ref()?;
        let kib = |field| rollup.get(field).map(Bytes::kib);
        Some(kib(r::Private_Clean)? + kib(r::Private_Dirty)?)
    });
    let amount = huge.map_or_else(|| "its memory".to_owned(), |huge| huge.to_string());
    let cost = match (child, private) {
        (Some(_), Some(private)) => Cost::memory(
            private,
            total,
            "held by the saving child alone, because the parent has written since",
        ),
        _ if small => Cost::risk(format!(
            "at each save the huge mappings of {amount} are taken apart, and the child keeps whole huge \
             pages until it ends"
        )),
        _ => Cost::risk(format!(
            "at each save up to {amount} may be copied, {} for each first write, {} us or more",
            thp::huge_size(cx),
            thp::pages_in_huge(cx) * NS_PER_PAGE / 1000
        )),
    };
    let name = &parent.stat.name;
    let mut finding = Finding::new(
        ForkCowThp::ID,
        if small { Severity::Info } else { Severity::Warning },
        format!("{name} has {amount} in transparent huge pages, whose mappings each save breaks up"),
        cost,
    );
    finding
        .sure(if kernel.is_known() { Confidence::Likely } else { Confidence::Possible })
        .because(mode.saw().against("madvise or never", "Redis documentation"));
    if !small {
        finding.title = format!(
            "{name} has {amount} in transparent huge pages: a write during a save copies {}",
            thp::huge_size(cx)
        );
    }
    if let Some(enabled) = parent.thp_enabled {
        let evidence =
            Evidence::new("/proc/PID/status", "THP_enabled", u8::from(enabled)).of(subject(parent));
        finding.because(evidence.against(0, "disable-thp yes, the default since Redis 6.2"));
    }
    if let Some(huge) = huge {
        finding.because(
            Evidence::new("/proc/PID/smaps_rollup", "AnonHugePages", format!("{huge:#}")).of(subject(parent)),
        );
    }
    if let Some(child) = child {
        let value = private.map_or_else(|| "running".to_owned(), |private| format!("{private:#}"));
        finding.because(
            Evidence::new("/proc/PID/smaps_rollup", "Private_Clean + Private_Dirty", value)
                .of(format!("pid {} {}, the child that saves", child.stat.pid, child.stat.name)),
        );
    }
    let advised = advice::thp_enabled(cx);
    finding
        .because(
            Evidence::new("/proc/sys/kernel/osrelease", "osrelease", kernel)
                .against("5.8", "copies base pages only from there on"),
        )
        .remedy(applications::told(
            parent,
            Topic::Thp,
            Remedy::new("Let it opt out of huge pages")
                .risk("Reads of a large data set miss the TLB more often."),
        ));
    if advised.value != "always" {
        finding.remedy(mode.set(cx, advised.value)).note(advised.contested);
    }
    if !small && kernel.is_known() {
        finding.note(format!(
            "Kernel {kernel}: unless the distribution has taken over the change of 5.8, whole huge pages \
             are copied."
        ));
    }
    finding
}
