use lotsfree_kernel_files::counters::{mthp_stats as t, smaps_rollup as r, status as s, vmstat as v};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_snapshot::Snapshot;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::finding::subject;
use crate::rule::rule;
use crate::{
    Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload, advice,
    thp,
};

rule! {
    /// Huge pages hold memory that no program uses.
    ///
    /// # Sees
    /// What the kernel itself counted: pages that lost part of their mapping and are not split yet
    /// (`hugepages-*kB/stats/nr_anon_partially_mapped`, 6.12 and later), and, over two samples, pages found
    /// mostly zero (`thp_underused_split_page`, 6.12 and later). Over two samples also processes whose
    /// anonymous memory grew without the page faults that this takes: khugepaged filled their holes. On one
    /// sample, databases with more than half of their memory in huge pages while `max_ptes_none` lets
    /// khugepaged fill empty ranges.
    ///
    /// # Hurts
    /// A program that frees scattered small pieces gives nothing back: each 2 MiB stays whole as long as one
    /// page in it is used. khugepaged undoes what the program's allocator returned, because 511 of 512 pages
    /// may be empty. The resident size exceeds what the program says it uses, the host reclaims or kills, and
    /// every figure of the program looks healthy.
    ///
    /// # Remedies
    /// `khugepaged/max_ptes_none` at 64 or less (0 for MongoDB 8 or later), which from 6.12 on also lets the
    /// kernel split what it finds empty: with 511 it never looks. `madvise` for programs that did not ask. In
    /// jemalloc `thp:never`.
    ///
    /// # False alarms
    /// Heaps that are touched on purpose at start (`AlwaysPreTouch`). Whether a database with much memory in
    /// huge pages wastes any is only known from its own figures, so that finding stays a question.
    ///
    /// # References
    /// mm/khugepaged.c:hpage_collapse_scan_pmd, mm/huge_memory.c:thp_underused and deferred_split_folio
    /// (6.12); `Documentation/admin-guide/mm/transhuge.rst`.
    pub ThpBloat = "thp-bloat" in Thp
}

/// Share of memory from which on the loss matters.
const SHARE: f64 = 0.01;
/// Share of memory that a database has to hold before its own figures are worth asking for.
const LARGE: f64 = 0.1;
/// Share of a process's memory in huge pages from which on these decide its size.
const HUGE: f64 = 0.5;
/// Excess of the resident size over what the program reports, from which on it is called bloat.
const EXCESS: f64 = 0.3;

impl Rule for ThpBloat {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let mode = thp::mode(cx)?;
        let total = cx.total()?;
        let found = [partially_mapped(cx, total), underused(cx, total), filled(cx, total)];
        let mut findings: Vec<Finding> = found.into_iter().flatten().collect();
        if findings.is_empty() {
            findings.extend(suspects(cx, total, &mode)?);
        }
        // Silence would say more than is known where growth could not be seen.
        if findings.is_empty() && mode.word != "never" {
            cx.before()?;
            let counted = cx.rate(&[v::thp_underused_split_page]);
            if counted.is_err() && (collapsed(cx.now()).is_none() || cx.process_pairs().is_err()) {
                return Err(Skip::missing("/proc/vmstat thp_underused_split_page"));
            }
        }
        for finding in &mut findings {
            add_remedies(cx, &mode, finding);
        }
        Ok(findings)
    }
}

/// Pages of which a part was unmapped and that were not split yet.
fn partially_mapped(cx: &Context<'_>, total: Bytes) -> Option<Finding> {
    let sizes = cx.thp().ok()?.sizes.iter();
    let counts: Vec<(Bytes, u64)> = sizes
        .filter_map(|size| Some((size.size, size.stats.as_ref()?.get(t::nr_anon_partially_mapped)?)))
        .collect();
    let bytes: Bytes = counts.iter().map(|(size, count)| size.times(*count)).sum();
    if bytes.share_of(total) <= SHARE {
        return None;
    }
    let title = format!("{bytes} of huge pages have lost a part of their mapping and are not split yet");
    let cost = Cost::memory(bytes, total, "the most that is held in vain: the parts still mapped are used");
    let mut finding = Finding::new(ThpBloat::ID, Severity::Warning, title, cost);
    for (size, count) in counts.iter().filter(|(_, count)| *count > 0) {
        let file = format!("{}/hugepages-{}kB/stats/nr_anon_partially_mapped", thp::ROOT, size.as_kib());
        finding.because(
            Evidence::new(file, "nr_anon_partially_mapped", Grouped(*count))
                .against(format!("{} of memory in all", Percent(SHARE)), "what matters on any host"),
        );
    }
    finding.note(
        "The kernel splits them when memory becomes scarce; until then they count as used and cannot be \
         reached.",
    );
    Some(finding)
}

/// Pages that the kernel found mostly zero.
fn underused(cx: &Context<'_>, total: Bytes) -> Option<Finding> {
    let rate = cx.rate(&[v::thp_underused_split_page]).ok().filter(|rate| rate.total > 0)?;
    let pages = thp::pages_in_huge(cx);
    // It counts those with more zero pages than `max_ptes_none`.
    let zero = cx.thp().ok()?.khugepaged("max_ptes_none")?.saturating_add(1).min(pages);
    let bytes = thp::huge_size(cx).times(rate.total).scale(zero as f64 / pages.max(1) as f64);
    let severity = if bytes.share_of(total) > SHARE { Severity::Warning } else { Severity::Info };
    let title = format!(
        "the kernel found {} huge pages mostly empty within {:.0} s",
        Grouped(rate.total),
        rate.seconds
    );
    let cost = Cost::memory(bytes, total, format!("at least {zero} of {pages} pages of each were zero"));
    let mut finding = Finding::new(ThpBloat::ID, severity, title, cost);
    finding
        .sure(Confidence::Certain)
        .because(cx.saw_rate(&[v::thp_underused_split_page], &rate))
        .because_all(thp::holders(cx, 3))
        .note(
            "The kernel splits these and gives the empty parts back; the program will make such pages \
             again.",
        );
    Some(finding)
}

/// Huge pages that khugepaged made since boot.
fn collapsed(snapshot: &Snapshot) -> Option<u64> {
    snapshot.thp.as_ref()?.khugepaged("pages_collapsed")
}

/// Processes that grew by more than their page faults account for.
fn filled(cx: &Context<'_>, total: Bytes) -> Option<Finding> {
    let collapsed =
        |snapshot: &lotsfree_snapshot::Snapshot| snapshot.thp.as_ref()?.khugepaged("pages_collapsed");
    let collapsed = collapsed(cx.now())?.checked_sub(collapsed(cx.before().ok()?)?)?;
    let collapsed_bytes = thp::huge_size(cx).times(collapsed);
    let mut grown: Vec<(Bytes, u64, &Process)> = (cx.process_pairs().ok()?.into_iter())
        .filter_map(|(before, now)| {
            let growth = now.memory(s::RssAnon)? - before.memory(s::RssAnon)?;
            let faults = |p: &Process| p.stat.minor_faults.saturating_add(p.stat.major_faults);
            let faults = faults(now).saturating_sub(faults(before));
            // Each fault may have brought a whole huge page: what remains came without one.
            let unfaulted = growth - thp::huge_size(cx).times(faults);
            (unfaulted > Bytes::ZERO).then_some((unfaulted, faults, now))
        })
        .collect();
    grown.sort_by_key(|(bytes, _, process)| (std::cmp::Reverse(*bytes), process.stat.pid));
    let bytes: Bytes = grown.iter().map(|(bytes, ..)| *bytes).sum();
    // khugepaged cannot have filled in more than the pages that it made.
    let bytes = bytes.min(collapsed_bytes);
    if bytes.share_of(total) <= SHARE {
        return None;
    }
    let title = format!(
        "khugepaged filled {bytes} of memory that no program touched within {:.0} s",
        cx.seconds().ok()?
    );
    let cost = Cost::memory(
        bytes,
        total,
        "resident without a page fault: holes that were filled to make huge pages",
    );
    let mut finding = Finding::new(ThpBloat::ID, Severity::Warning, title, cost);
    finding.because(Evidence::new(
        format!("{}/khugepaged/pages_collapsed", thp::ROOT),
        "pages_collapsed",
        format!("{} more, {collapsed_bytes}", Grouped(collapsed)),
    ));
    for (bytes, faults, process) in grown.iter().take(3) {
        finding.because(
            Evidence::new(
                "/proc/PID/status",
                "RssAnon",
                format!("{bytes:#} more than {} faults explain", Grouped(*faults)),
            )
            .of(subject(process)),
        );
    }
    Some(finding)
}

/// How a program says what it uses.
fn own_figure(workload: Workload) -> Option<&'static str> {
    Some(match workload {
        Workload::Redis => {
            "`redis-cli INFO memory`: mem_fragmentation_ratio, used_memory against used_memory_rss"
        }
        Workload::Mongo => "`db.serverStatus().tcmalloc`: bytes in use against the heap",
        Workload::Mysql => {
            "`performance_schema.memory_summary_global_by_event_name`, or jemalloc's statistics"
        }
        Workload::Tidb => "TiKV's metrics `tikv_allocator_stats`: allocated against resident",
        _ => return None,
    })
}

/// Databases of which most is in huge pages while khugepaged may fill empty ranges.
///
/// # Errors
/// If no process could be read.
fn suspects(cx: &Context<'_>, total: Bytes, mode: &thp::Mode<'_>) -> Result<Vec<Finding>, Skip> {
    let filled = cx.thp()?.khugepaged("max_ptes_none");
    let advice = advice::max_ptes_none(cx);
    let Some(filled) = filled.filter(|now| mode.word == "always" && *now > advice.value) else {
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    for process in cx.processes()? {
        let Some(figure) = Workload::of_name(&process.stat.name).and_then(own_figure) else { continue };
        let resident = process.memory_or_zero(s::VmRSS);
        let Some(huge) = thp::anon_huge(process) else { continue };
        if resident.share_of(total) < LARGE || huge.share_of(resident) <= HUGE {
            continue;
        }
        let name = &process.stat.name;
        let title =
            format!("{name} holds {huge} of its {resident} in huge pages, which may be more than it uses");
        let cost = Cost::risk(format!(
            "unknown from outside: ask {figure}; {} more resident than used is bloat",
            Percent(EXCESS)
        ));
        let mut finding = Finding::new(ThpBloat::ID, Severity::Info, title, cost);
        finding
            .sure(Confidence::Possible)
            .because(
                Evidence::new("/proc/PID/smaps_rollup", r::AnonHugePages.name(), format!("{huge:#}"))
                    .of(subject(process))
                    .against(
                        format!("{} of VmRSS", Percent(HUGE)),
                        "from there on huge pages decide the size",
                    ),
            )
            .because(Evidence::new("/proc/PID/status", "VmRSS", format!("{resident:#}")).of(subject(process)))
            .because(
                Evidence::new(format!("{}/khugepaged/max_ptes_none", thp::ROOT), "max_ptes_none", filled)
                    .against(advice.value, &advice.because),
            )
            .note(format!("How to tell: {figure}."));
        findings.push(finding);
    }
    Ok(findings)
}

fn add_remedies(cx: &Context<'_>, mode: &thp::Mode<'_>, finding: &mut Finding) {
    let advice = advice::max_ptes_none(cx);
    let now = cx.thp().ok().and_then(|thp| thp.khugepaged("max_ptes_none"));
    if let Some(now) = now.filter(|now| *now > advice.value) {
        finding
            .remedy(
                Remedy::new("Let khugepaged fill fewer empty pages")
                    .sysfs(
                        &format!("{}/khugepaged/max_ptes_none", thp::ROOT),
                        &advice.value.to_string(),
                        Some(&now.to_string()),
                    )
                    .risk(format!(
                        "Fewer ranges become huge pages, so sparse heaps lose speed ({}).",
                        advice.because
                    )),
            )
            .note(advice.contested);
        let last = thp::pages_in_huge(cx).saturating_sub(1);
        if now >= last && cx.thp().is_ok_and(|thp| thp.shrink_underused == Some(1)) {
            finding.note(format!(
                "shrink_underused is on, yet does nothing while max_ptes_none is {last}: the kernel then \
                 looks for no empty pages."
            ));
        }
    }
    let advised = advice::thp_enabled(cx);
    if mode.word == "always" && advised.value != "always" {
        finding.remedy(mode.set(cx, advised.value)).note(advised.contested);
    }
    if finding.remedies.is_empty() {
        finding.note(
            "The settings are as advised; what remains is the program's allocator (jemalloc: `thp:never`).",
        );
    }
}
