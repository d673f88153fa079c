use lotsfree_kernel_files::counters::{meminfo as m, status as s};
use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::finding::subject;
use crate::rule::rule;
use crate::swapping::{first_victim, oom_points, saw};
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, Workload};

rule! {
    /// The OOM killer would choose the database first, or has hardly anybody to choose from.
    ///
    /// # Sees
    /// `oom_score_adj` of all processes and the points that the kernel would give each (resident, swapped out
    /// and page tables, plus the adjustment in thousandths of memory and swap): a database process has most
    /// of them; or processes at -1000, which are never killed, hold more than half of memory.
    ///
    /// # Hurts
    /// The killer takes the largest process, which is the one that the host is for, whoever caused the
    /// shortage. Where the large ones are all exempt it kills everything else without freeing much, and
    /// panics when nobody is left.
    ///
    /// # Remedies
    /// `OOMScoreAdjust=-900` for the database; -1000 for nothing but what repairs the host.
    ///
    /// # False alarms
    /// A database that is not the first victim needs nothing and is not reported. A kill inside a memory
    /// cgroup at its limit chooses within the group: there the adjustment cannot save the only process.
    ///
    /// # References
    /// `mm/oom_kill.c:oom_badness` (6.12); proc_pid_oom_score_adj(5); PostgreSQL manual, "Linux Memory
    /// Overcommit"; systemd.exec(5), OOMScoreAdjust.
    pub OomScore = "oom-score" in Swap
}

/// Last to be killed, and still killable: the value of distributions' units for PostgreSQL.
const LAST: i32 = -900;
/// Exempt processes that hold more than this leave too little for the killer to free.
const EXEMPT: f64 = 0.5;
/// Less than this available, and the choice is no longer academic (twice earlyoom's bound).
const TIGHT: f64 = 0.20;

impl Rule for OomScore {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let processes = cx.processes()?;
        if processes.iter().all(|p| p.oom_score_adj.is_none()) {
            return Err(Skip::missing("/proc/PID/oom_score_adj"));
        }
        let total = cx.total()?;
        let with_swap = total + cx.mem(m::SwapTotal)?;
        let mut findings = Vec::new();
        findings.extend(exempt(processes, total));
        let victim = first_victim(processes, with_swap, cx.now().host.page_size);
        if let Some((victim, workload)) = victim.and_then(|p| Some((p, Workload::database_of(p)?))) {
            findings.push(database_first(cx, processes, victim, workload, with_swap)?);
        }
        Ok(findings)
    }
}

fn saw_adjustment(process: &Process) -> Evidence {
    let value = process.oom_score_adj.map_or("absent".to_owned(), |adjustment| adjustment.to_string());
    Evidence::new("/proc/PID/oom_score_adj", "oom_score_adj", value).of(subject(process))
}

fn database_first(
    cx: &Context<'_>,
    processes: &[Process],
    victim: &Process,
    workload: Workload,
    with_swap: Bytes,
) -> Result<Finding, Skip> {
    let available = cx.mem(m::MemAvailable).or_else(|_| cx.mem(m::MemFree))?;
    let tight = available.share_of(cx.total()?) < TIGHT;
    let page = cx.now().host.page_size;
    let points = |p: &Process| oom_points(p, with_swap, page).unwrap_or(0).max(0) as u64;
    let others = || {
        processes.iter().filter(|p| {
            Workload::database_of(p) != Some(workload) && oom_points(p, with_swap, page).is_some()
        })
    };
    let next = others().max_by_key(|p| points(p));
    let parent = parent_to_spare(processes, victim, workload);
    let now = parent.unwrap_or(victim).oom_score_adj.unwrap_or(0);
    let mut finding = Finding::new(
        OomScore::ID,
        if tight { Severity::Warning } else { Severity::Info },
        format!(
            "{} of {} is the first that the OOM killer would take: {} points (pages), oom_score_adj {}",
            subject(victim),
            workload.name(),
            Grouped(points(victim)),
            victim.oom_score_adj.unwrap_or(0)
        ),
        Cost::risk(
            "the database dies when another process takes the memory; recovery and a cold cache follow",
        ),
    );
    finding
        .sure(Confidence::Certain)
        .because(saw_adjustment(victim).against(LAST, "the last to be killed, and still killable"))
        .because(saw(victim, s::VmRSS))
        .because(cx.saw_mem(m::MemTotal));
    finding.because_if(parent.filter(|parent| parent.stat.pid != victim.stat.pid).map(saw_adjustment));
    finding.because_if(cx.mem(m::MemAvailable).is_ok().then(|| cx.saw_mem(m::MemAvailable)));
    if let Some(next) = next {
        finding.note(format!(
            "Next in line would be {} with {} points.",
            subject(next),
            Grouped(points(next))
        ));
    }
    finding.note(format!(
        "Points = (VmRSS + VmSwap + VmPTE) / {page} + oom_score_adj x {with_swap:#} / 1000 / {page}. Shared \
         memory counts in full for each process that has touched it.",
        page = page.bytes(),
    ));
    if now > LAST {
        spare(&mut finding, workload, parent, now);
    } else {
        finding.note(format!(
            "The parent has {now} already: what counts is that less is touched, or that the others are \
             bounded."
        ));
    }
    Ok(finding)
}

/// Back ends inherit what their parent has; the parent is the one to be spared.
fn parent_to_spare<'a>(
    processes: &'a [Process],
    victim: &'a Process,
    workload: Workload,
) -> Option<&'a Process> {
    match workload {
        // A session is gone tomorrow, and its parent is process 1: pmon is what an instance stands and falls
        // with.
        Workload::Oracle => only_pmon(processes),
        _ => processes
            .iter()
            .find(|p| p.stat.pid == victim.stat.ppid && Workload::database_of(p) == Some(workload))
            .or(Some(victim)),
    }
}

/// Proposes [`LAST`] for the unit, and for the running `parent`, whose adjustment is `now`.
fn spare(finding: &mut Finding, workload: Workload, parent: Option<&Process>, now: i32) {
    let mut remedy = Remedy::new(format!("Let {} be the last to be killed", workload.name()))
        .keep("the unit's drop-in, [Service]", format!("OOMScoreAdjust={LAST}"))
        .risk(
            "Somebody else is killed instead. Children inherit the value: those that already run keep \
             their own until they are started anew. With everything at -1000 the kernel panics for want \
             of a victim: do not go below -900.",
        );
    remedy = match parent.map(|parent| parent.stat.pid) {
        Some(pid) => remedy
            .run(format!("choom -p {pid} -n {LAST}"))
            .undo_with(format!("choom -p {pid} -n {now}"))
            .sets(format!("pid {pid} oom_score_adj"), LAST),
        None => remedy.restart("the unit"),
    };
    if workload == Workload::Postgres {
        remedy = remedy
            .keep("the unit's drop-in, [Service]", "Environment=PG_OOM_ADJUST_FILE=/proc/self/oom_score_adj")
            .keep("the unit's drop-in, [Service]", "Environment=PG_OOM_ADJUST_VALUE=0");
        finding.note(
            "PostgreSQL's back ends should not inherit the postmaster's value: PG_OOM_ADJUST_VALUE=0 \
             sets theirs back. A killed back end makes the postmaster restart all others, but the \
             postmaster itself lives.",
        );
    }
    finding.remedy(remedy);
}

/// Oracle's process monitor, where one instance runs; with several the victim's name does not tell whose it
/// is.
fn only_pmon(processes: &[Process]) -> Option<&Process> {
    let mut all = processes.iter().filter(|p| p.stat.name.starts_with("ora_pmon_"));
    all.next().filter(|_| all.next().is_none())
}

/// Processes that are never killed and hold most of memory. Only anonymous memory and swap are added up,
/// since shared pages would count once for each process.
fn exempt(processes: &[Process], total: Bytes) -> Option<Finding> {
    let held = |p: &Process| p.memory_or_zero(s::RssAnon) + p.memory_or_zero(s::VmSwap);
    let mut exempt = processes.iter().filter(|p| p.oom_score_adj == Some(-1000)).collect::<Vec<_>>();
    let sum: Bytes = exempt.iter().map(|p| held(p)).sum();
    let share = sum.share_of(total);
    if share <= EXEMPT {
        return None;
    }
    exempt.sort_by_key(|p| std::cmp::Reverse(held(p)));
    let first = exempt.first()?;
    let pid = first.stat.pid;
    let mut finding = Finding::new(
        OomScore::ID,
        Severity::Warning,
        format!(
            "{} processes that the OOM killer must not touch hold {sum}, {} of memory",
            exempt.len(),
            Percent(share)
        ),
        Cost::risk(
            "the killer takes everything else without freeing much, and the kernel panics when nobody is \
             left",
        ),
    );
    finding
        .sure(Confidence::Certain)
        .because_all(
            exempt
                .iter()
                .take(3)
                .map(|p| saw_adjustment(p).against("above -1000", "-1000 exempts a process")),
        )
        .because_all(exempt.iter().take(3).map(|p| saw(p, s::RssAnon)))
        .remedy(
            Remedy::new(format!("Make {} killable as the last: {LAST} instead of -1000", first.stat.name))
                .run(format!("choom -p {pid} -n {LAST}"))
                .keep("the unit's drop-in, [Service]", format!("OOMScoreAdjust={LAST}"))
                .undo_with(format!("choom -p {pid} -n -1000"))
                .risk("It may be killed, after everybody else.")
                .sets(format!("pid {pid} oom_score_adj"), LAST),
        )
        .note(
            "Exempt only what is needed to log in and repair: sshd, and cluster agents that must report the \
             failure.",
        );
    Some(finding)
}
