use lotsfree_kernel_files::counters::memory_events as e;
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, Limit};
use lotsfree_units::{Bytes, Percent};

use crate::control_groups as groups;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip, remedies};

rule! {
    /// Tasks stand still because of memory.
    ///
    /// # Sees
    /// `/proc/pressure/memory`: the share of the last minute in which some task stood still for memory (10 %
    /// and more), and the share of the last ten seconds in which all did (5 % and more); with two samples
    /// also the totals. Names the cgroups with the highest pressure of their own, and whether the first of
    /// them is at its own limit on a host that has a fifth of its memory available.
    ///
    /// # Hurts
    /// It is the sum of what memory costs: reclaim by tasks themselves, waits for pages that come back from
    /// swap or disk, compaction, throttling at a cgroup's limit. 10 % of some means that in six seconds of
    /// each minute at least one task that could run did not.
    ///
    /// # Remedies
    /// Of the cause, which other findings name; or a bound on the group that creates the pressure, unless it
    /// is its bound that creates it.
    ///
    /// # False alarms
    /// A cgroup throttled at its own `memory.high`, or one that reclaims at its own `memory.max`, stalls only
    /// itself, but the host's file counts it too.
    /// Pressure counts tasks, not work lost: a batch job that waits in reclaim may hurt nobody.
    ///
    /// # References
    /// `Documentation/accounting/psi.rst`; kernel/sched/psi.c (6.12); nohang (10 % and 40 %); systemd-oomd
    /// (acts at 60 % for 30 s); RHEL 8 and 9 need `psi=1` on the kernel's command line.
    pub PsiMemory = "psi-memory" in Reclaim
}

/// Share of time, of nohang's warning.
const WARN: f64 = 0.10;
/// Of nohang's action.
const HIGH: f64 = 0.40;
/// All tasks at once, over ten seconds: nobody makes progress for half a second in ten.
const FULL: f64 = 0.05;
/// Where systemd-oomd kills by default, if it lasts for 30 s.
const OOMD: f64 = 0.60;
/// Share of the host's pressure from which on it is a group's.
const OWN: f64 = 0.5;
/// Available memory with which a host is not short.
const ROOMY: f64 = 0.2;
/// A period from which on totals replace the kernel's own averages.
const SETTLED_SECONDS: f64 = 10.0;

impl Rule for PsiMemory {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let psi = cx.memory_pressure()?;
        let some = psi.some.ok_or_else(|| Skip::missing("/proc/pressure/memory some"))?;
        let settled = cx.seconds().is_ok_and(|seconds| seconds >= SETTLED_SECONDS);
        let measured = |full| cx.stalled(full).ok().filter(|_| settled);
        let share = measured(false).unwrap_or(0.0).max(some.avg60 / 100.0);
        let full = psi.full.map(|full| measured(true).unwrap_or(0.0).max(full.avg10 / 100.0)).unwrap_or(0.0);
        if share < WARN && full < FULL {
            return Ok(Vec::new());
        }

        let pressed = pressed(cx);
        let bounded = pressed.first().and_then(|first| bounded(cx, *first, some.avg60 / 100.0));
        let severity = Severity::ladder(
            &[
                (bounded.is_some(), Severity::Warning),
                (full >= FULL, Severity::Critical),
                (share >= HIGH, Severity::High),
            ],
            Severity::Warning,
        );
        let (title, lost) = if full >= FULL {
            let some = some.avg10 / 100.0;
            (
                format!(
                    "all tasks at once stood still for memory {} of the last seconds, some task {}",
                    Percent(full),
                    Percent(some.max(share).max(full))
                ),
                some.max(share).max(full),
            )
        } else {
            (format!("some task stands still for memory {} of the time", Percent(share)), share)
        };
        let mut finding = Finding::new(
            Self::ID,
            severity,
            title,
            Cost::stalled(lost, "lost to reclaim, to pages read again and to throttling"),
        );
        finding.sure(Confidence::Certain).because(
            Evidence::new(
                "/proc/pressure/memory",
                "some",
                format!("avg10={:.2} avg60={:.2} avg300={:.2}", some.avg10, some.avg60, some.avg300),
            )
            .against(format!("avg60 {:.0} and {:.0}", WARN * 100.0, HIGH * 100.0), "nohang"),
        );
        if let Some(stall) = psi.full {
            finding.because(
                Evidence::new(
                    "/proc/pressure/memory",
                    "full",
                    format!("avg10={:.2} avg60={:.2} avg300={:.2}", stall.avg10, stall.avg60, stall.avg300),
                )
                .against(format!("avg10 {:.0}", FULL * 100.0), "nobody makes progress"),
            );
        }
        if let Some(stalled) = measured(false) {
            finding.because(Evidence::new(
                "/proc/pressure/memory",
                "some total",
                format!("{:.0} ms/s over {:.0} s", stalled * 1e3, cx.seconds().unwrap_or(0.0)),
            ));
        }

        for (group, share) in pressed.iter().take(3) {
            finding.because(Evidence::new("memory.pressure", "some avg60", Percent(*share)).of(&group.path));
        }
        finding.note_if(pressed.first().map(|(group, _)| where_to_begin(group, bounded)));
        add_remedies(&mut finding, cx, share, bounded.is_some());
        Ok(vec![finding])
    }
}

/// The limit at which a group stands, if the host's pressure is the group's and the host is not short: the
/// version 2 name of its file without `memory.`, and its value.
fn bounded(cx: &Context<'_>, (group, own): (&Cgroup, f64), hosts: f64) -> Option<(&'static str, Bytes)> {
    let limit = groups::limit(group)?;
    let available = cx.available()?.bytes.share_of(cx.total().ok()?);
    (own >= OWN * hosts && available >= ROOMY).then_some(limit)
}

fn where_to_begin(group: &Cgroup, bounded: Option<(&str, Bytes)>) -> String {
    let path = &group.path;
    let slowed = group.events.as_ref().and_then(|events| events.get(e::high)).is_some_and(|count| count > 0);
    match bounded {
        _ if slowed && group.high.and_then(Limit::bytes).is_some() => format!(
            "{path} has reached its own memory.high and is slowed down there: it may be the only one that stands still. \
             Raise the bound, or leave it if the group is meant to wait."
        ),
        Some((name, limit)) => format!(
            "{path} stands at its own {} of {limit} and reclaims from itself there, while the host has memory available: \
             it may be the only one that stands still. Raise the limit, or leave it if the group is meant to wait.",
            groups::field(CgroupVersion::V2, name)
        ),
        None => format!("{path} has most pressure of its own: begin there."),
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, share: f64, is_bounded: bool) {
    // Version 1 has no memory.high.
    let has_high = cx.cgroups().map_or(true, |cgroups| cgroups.version == CgroupVersion::V2);
    if has_high && !is_bounded {
        finding.remedy(
            Remedy::new("Bound the group that creates the pressure, so that it reclaims from itself")
                .run("systemctl set-property --runtime UNIT MemoryHigh=SIZE")
                .keep(remedies::DROP_IN, "MemoryHigh=SIZE")
                .undo_with("systemctl set-property --runtime UNIT MemoryHigh=infinity")
                .risk("The group is slowed down at its bound; memory cgroups of version 2 only."),
        );
    }
    if share >= OOMD && cx.now().tuners.systemd_oomd {
        finding.note(
            "systemd-oomd is enabled and kills by default in cgroups that stay above 60 % for 30 s, if \
             their unit asks for it (ManagedOOMMemoryPressure=kill).",
        );
    }
    finding.note(
        "Pressure says how much is lost, not why: the findings on direct reclaim, swap, file pages read \
         again and compaction name the cause. Mend that.",
    );
}

/// Groups below the root with pressure of their own, highest first; a parent is left out where its child
/// shows as much.
fn pressed<'a>(cx: &Context<'a>) -> Vec<(&'a Cgroup, f64)> {
    let Some(groups) = cx.cgroups().ok().filter(|groups| groups.version == CgroupVersion::V2) else {
        return Vec::new();
    };
    let share = |group: &Cgroup| group.pressure.and_then(|psi| psi.some).map(|some| some.avg60 / 100.0);
    let mut pressed: Vec<(&Cgroup, f64)> = (groups.groups.iter())
        .filter(|group| group.path != "/")
        .filter_map(|group| Some((group, share(group)?)))
        .filter(|(_, share)| *share > 0.0)
        .collect();
    let explained = |parent: &(&Cgroup, f64)| {
        let prefix = format!("{}/", parent.0.path);
        groups.groups.iter().any(|child| {
            child.path.starts_with(&prefix) && share(child).is_some_and(|share| share >= 0.9 * parent.1)
        })
    };
    pressed.retain(|group| !explained(group));
    pressed.sort_by(|a, b| b.1.total_cmp(&a.1));
    pressed
}
