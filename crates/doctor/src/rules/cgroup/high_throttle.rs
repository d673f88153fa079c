use lotsfree_kernel_files::counters::memory_events as e;
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, Limit};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::control_groups as groups;
use crate::finding::subject;
use crate::rule::rule;
use crate::{Context, Cost, Evidence, Finding, Outcome, Rate, Rule, Severity, Skip};

rule! {
    /// A memory cgroup is slowed down because it is above its memory.high.
    ///
    /// # Sees
    /// `high` in `memory.events` of a group with `memory.high` growing between two samples, and
    /// `memory.pressure` of the group for what that costs. Version 2 only.
    ///
    /// # Hurts
    /// A task that allocates while its group is above `memory.high` has to reclaim from the group, and sleeps
    /// if that does not help: up to 2 seconds each time it returns to its program. No message is printed and
    /// nothing is killed; the database is just slow, on a host with free memory.
    ///
    /// # Remedies
    /// A higher `memory.high`, or a smaller cache in the program.
    ///
    /// # False alarms
    /// Jobs in a transient scope (`systemd-run`: backups, copies) are bounded on purpose so that they slow
    /// down instead of the others; for them this is a remark. The counter of a parent includes its
    /// children's.
    ///
    /// # References
    /// mm/memcontrol.c:reclaim_high, calculate_high_delay and mem_cgroup_handle_over_high (6.12);
    /// `Documentation/admin-guide/cgroup-v2.rst`, memory.high.
    pub HighThrottle = "high-throttle" in Cgroup
}

/// A tenth of the time: where warnings on PSI memory start (nohang, systemd-oomd's tests).
const HIGH_STALL: f64 = 0.10;
/// Room above the present use in a memory.high that is raised.
const ROOM: f64 = 1.25;

struct Throttled<'a> {
    group: &'a Cgroup,
    high: Bytes,
    first: u64,
    rate: Rate,
}

impl Rule for HighThrottle {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let cgroups = cx.cgroups()?;
        if cgroups.version == CgroupVersion::V1 {
            return Err(Skip::because("memory.high exists on cgroup version 2 only"));
        }
        let bounded: Vec<(&Cgroup, Bytes)> = (cgroups.groups.iter())
            .filter_map(|group| Some((group, group.high.and_then(Limit::bytes)?)))
            .collect();
        if bounded.is_empty() {
            return Err(Skip::because("no memory cgroup has memory.high"));
        }
        let before =
            cx.before()?.cgroups.as_ref().ok_or_else(|| Skip::missing("/sys/fs/cgroup memory files"))?;
        let seconds = cx.seconds()?;
        let events = |group: &Cgroup| group.events.as_ref().and_then(|events| events.get(e::high));
        if bounded.iter().all(|(group, _)| events(group).is_none()) {
            return Err(Skip::missing(groups::file(cgroups.version, "/*", "events high")));
        }
        let mut throttled: Vec<Throttled<'_>> = (bounded.into_iter())
            .filter_map(|(group, high)| {
                let first = events(before.at(&group.path)?)?;
                let rate = Rate::of(&[(0.0, first), (seconds, events(group)?)])?;
                (rate.total > 0).then_some(Throttled { group, high, first, rate })
            })
            .collect();
        // memory.events counts descendants: a parent whose growth is its children's says nothing of its own.
        let own: Vec<bool> = throttled.iter().map(|parent| own_growth(parent, &throttled) > 0).collect();
        let mut own = own.into_iter();
        throttled.retain(|_| own.next().unwrap_or(true));
        throttled.sort_by_key(|t| std::cmp::Reverse(t.rate.total));
        Ok(throttled.iter().map(|t| finding(cx, before.at(&t.group.path), t, seconds)).collect())
    }
}

/// The growth that is not that of reported groups directly below.
fn own_growth(parent: &Throttled<'_>, all: &[Throttled<'_>]) -> u64 {
    let below = |path: &str, of: &str| {
        path.strip_prefix(of.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/')) && path != of
    };
    let direct = |t: &&Throttled<'_>| {
        below(&t.group.path, &parent.group.path)
            && !all.iter().any(|mid| {
                below(&mid.group.path, &parent.group.path) && below(&t.group.path, &mid.group.path)
            })
    };
    let children: u64 = all.iter().filter(direct).map(|t| t.rate.total).fold(0, u64::saturating_add);
    parent.rate.total.saturating_sub(children)
}

fn finding(cx: &Context<'_>, before: Option<&Cgroup>, t: &Throttled<'_>, seconds: f64) -> Finding {
    let path = t.group.path.as_str();
    let file = |name| groups::file(CgroupVersion::V2, path, name);
    let total = |group: &Cgroup| Some(group.pressure?.some?.total_us);
    let stalled = before
        .and_then(|before| Rate::of(&[(0.0, total(before)?), (seconds, total(t.group)?)]))
        .map(|rate| rate.per_second / 1e6);
    let on_purpose = groups::is_transient(path);
    let severity = Severity::ladder(
        &[
            (on_purpose, Severity::Info),
            (stalled.is_some_and(|stalled| stalled >= HIGH_STALL), Severity::High),
        ],
        Severity::Warning,
    );
    let cost = cost(t, stalled);
    let current = t.group.current.unwrap_or_default();
    let mut finding = Finding::new(
        HighThrottle::ID,
        severity,
        format!(
            "{path} is slowed down {:.1} times a second because it uses {current}, with memory.high at {}",
            t.rate.per_second, t.high
        ),
        cost,
    );
    finding
        .sure(cx.rate_confidence())
        .because(
            Evidence::new(file("events"), "high", Grouped(t.first + t.rate.total))
                .of(path)
                .was(Grouped(t.first))
                .against("no growth", "mm/memcontrol.c:reclaim_high"),
        )
        .because(Evidence::new(file("high"), "memory.high", t.high).of(path))
        .because(Evidence::new(file("current"), "memory.current", current).of(path));
    if let Some(psi) = t.group.pressure.and_then(|psi| psi.some) {
        finding
            .because(Evidence::new(file("pressure"), "some avg10", format!("{:.2} %", psi.avg10)).of(path));
    }
    for (process, resident) in groups::largest_in(cx, path, 3) {
        finding.because(Evidence::new("/proc/PID/status", "VmRSS", resident).of(subject(process)));
    }
    let excess = (current - t.high).share_of(t.high);
    finding.note(match excess > 0.0 {
        true => format!(
            "Above by {} of memory.high: the kernel asks a pause of {:.1} ms for every 64 pages charged (64 \
             s x {excess:.4}^2), at most 2 s, and none below 10 ms.",
            Percent(excess),
            64e3 * excess * excess
        ),
        false => "At present the group is held at memory.high by reclaim alone.".to_owned(),
    });
    if on_purpose {
        finding.note(
            "A transient scope: bounded on purpose so that this job waits and not the others. Nothing is to \
             be done unless the job is too slow.",
        );
        return finding;
    }
    let wanted = groups::rounded(current.max(t.high).scale(ROOM));
    let wanted = t.group.max.and_then(Limit::bytes).map_or(wanted, |max| wanted.min(max));
    add_remedies(&mut finding, t, path, wanted);

    finding
}

fn cost(t: &Throttled<'_>, stalled: Option<f64>) -> Cost {
    match stalled {
        Some(stalled) => {
            Cost::stalled(stalled, "tasks of the group reclaim from it or sleep (memory.pressure, some)")
        }
        None => Cost::risk(format!(
            "{:.1} times a second a task of the group reclaims from it or sleeps up to 2 s",
            t.rate.per_second
        )),
    }
}

fn add_remedies(finding: &mut Finding, t: &Throttled<'_>, path: &str, wanted: Bytes) {
    if wanted > t.high {
        finding.remedy(
            groups::set(
                format!("Raise memory.high to {wanted}"),
                CgroupVersion::V2,
                path,
                ("MemoryHigh", "high"),
                Some(wanted),
                Some(t.high),
            )
            .risk("The group takes that much more from the others before it is slowed down."),
        );
    }
    finding.note(
        "How to choose: a service that has to answer gets room; a batch job that may wait keeps its bound, \
         or its caches are made smaller.",
    );
    finding.note_if(groups::lasting(path));
}
