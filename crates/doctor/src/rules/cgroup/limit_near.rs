use lotsfree_kernel_files::counters::{meminfo as m, memory_events as e};
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, Cgroups, Limit};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::applications::{self, Topic};
use crate::control_groups::{self as groups, COMFORTABLE, Held};
use crate::finding::subject;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Rule, Severity, Skip};

rule! {
    /// A memory cgroup is close to its limit, and not with page cache.
    ///
    /// # Sees
    /// `memory.current` less the inactive file list of `memory.stat`, compared with `memory.max` (version 1:
    /// `memory.usage_in_bytes`, `total_inactive_file`, `memory.limit_in_bytes`). Above 90 % the page cache
    /// that remains is taken apart: mapped files are left out, and if active page cache makes up the
    /// difference the finding is only a remark. Over two samples also `memory.events` `max` and `oom_kill`
    /// (version 1: `memory.failcnt`, `oom_kill` of `memory.oom_control`).
    ///
    /// # Hurts
    /// At the limit every allocation of the group first reclaims from the group itself, however much memory
    /// the host has free. Sixteen rounds without success, and a process of the group is killed: usually the
    /// database, since it is the largest.
    ///
    /// # Remedies
    /// A limit with room above what the group cannot give back, or a smaller cache in the program. On version
    /// 2 `memory.high` below the limit slows the group down before anything is killed.
    ///
    /// # False alarms
    /// Usage alone says nothing: page cache fills every limit in time and is dropped without harm (one report
    /// showed 51 GB of usage of which 1.8 GB were the program's). Programs that map their files (MongoDB's
    /// older engine, time series databases) have active page cache that reclaim can still drop. With free
    /// swap the kernel swaps before it kills.
    ///
    /// # References
    /// mm/memcontrol.c:try_charge_memcg and mem_cgroup_oom (6.12); `Documentation/admin-guide/cgroup-v2.rst`,
    /// memory.max; kubernetes issue 43916, grafana/mimir issue 2466, kumomta issue 549.
    pub LimitNear = "limit-near" in Cgroup
}

/// What the alerts of container platforms use.
const NEAR: f64 = 0.90;
/// Groups with a finding of their own.
const MOST: usize = 8;
/// A parent that holds little more than a reported child says nothing new.
const SAME: f64 = 0.90;

struct Near<'a> {
    group: &'a Cgroup,
    limit: Bytes,
    held: Held,
}

impl Near<'_> {
    fn share(&self) -> f64 {
        self.held.working_set().share_of(self.limit)
    }
}

impl Rule for LimitNear {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let cgroups = cx.cgroups()?;
        let limited =
            || cgroups.groups.iter().filter_map(|group| Some((group, group.max.and_then(Limit::bytes)?)));
        if limited().next().is_none() {
            return match cgroups.groups.iter().any(|group| group.max.is_some() || group.path == "/") {
                true => Err(Skip::because("no memory cgroup has a limit")),
                false => Err(Skip::missing(groups::file(cgroups.version, "/", "max"))),
            };
        }
        let judged: Vec<Near<'_>> = limited()
            .filter(|(_, limit)| *limit > Bytes::ZERO)
            .filter_map(|(group, limit)| Some(Near { group, limit, held: Held::of(cgroups.version, group)? }))
            .collect();
        if judged.is_empty() {
            return Err(Skip::missing(groups::file(cgroups.version, "/*", "stat")));
        }
        let mut near: Vec<Near<'_>> = judged
            .into_iter()
            .filter(|near| near.share() > NEAR)
            .filter(|near| near.held.without_mapped_files().share_of(near.limit) > NEAR)
            .collect();
        let innermost: Vec<bool> = near.iter().map(|n| !near.iter().any(|other| repeats(n, other))).collect();
        let mut keep = innermost.into_iter();
        near.retain(|_| keep.next().unwrap_or(true));
        near.sort_by(|a, b| b.share().total_cmp(&a.share()));
        let left_out = near.len().saturating_sub(MOST);
        let mut findings: Vec<Finding> =
            near.iter().take(MOST).map(|near| finding(cx, cgroups, near)).collect();
        if let Some(last) = findings.last_mut().filter(|_| left_out > 0) {
            last.notes.push(format!("{left_out} more groups are above {} of their limits.", Percent(NEAR)));
        }
        Ok(findings)
    }
}

/// Whether `parent`'s memory is mostly that of `child`, which is reported itself.
fn repeats(parent: &Near<'_>, child: &Near<'_>) -> bool {
    let below = child.group.path.strip_prefix(parent.group.path.trim_end_matches('/'));
    child.group.path != parent.group.path
        && below.is_some_and(|rest| rest.starts_with('/'))
        && child.held.working_set().share_of(parent.held.working_set()) >= SAME
}

/// How a counter of the group grew between the two full snapshots.
fn grown(cx: &Context<'_>, group: &Cgroup, value: impl Fn(&Cgroup) -> Option<u64>) -> Option<(u64, Rate)> {
    let before = cx.before().ok()?.cgroups.as_ref()?.at(&group.path)?;
    let first = value(before)?;
    let rate = Rate::of(&[(0.0, first), (cx.seconds().ok()?, value(group)?)])?;
    Some((first, rate))
}

fn finding(cx: &Context<'_>, cgroups: &Cgroups, near: &Near<'_>) -> Finding {
    let Near { group, limit, held } = near;
    let (version, path) = (cgroups.version, group.path.as_str());
    let (used, kept) = (held.working_set(), held.kept());
    let cache = kept.share_of(*limit) <= NEAR;
    let meets = |group: &Cgroup| match version {
        CgroupVersion::V1 => group.failcnt,
        CgroupVersion::V2 => group.events.as_ref().and_then(|events| events.get(e::max)),
    };
    let kills = |group: &Cgroup| group.events.as_ref().and_then(|events| events.get(e::oom_kill));
    let met = grown(cx, group, meets).filter(|(_, rate)| rate.total > 0);
    let killed = grown(cx, group, kills).filter(|(_, rate)| rate.total > 0);
    let severity = Severity::ladder(
        &[(killed.is_some(), Severity::Critical), (cache, Severity::Info), (met.is_some(), Severity::High)],
        Severity::Warning,
    );
    let cost = cost(cx, near, cache);
    let title = match cache {
        false => format!(
            "{path} uses {used} of its limit of {limit} ({}), page cache that nobody uses left out",
            Percent(near.share())
        ),
        true => format!(
            "{path} uses {used} of its limit of {limit} ({}) as kubelet counts it, but {} of that is active page cache that can be dropped",
            Percent(near.share()),
            held.active_file
        ),
    };
    let mut finding = Finding::new(LimitNear::ID, severity, title, cost);
    finding.sure(if killed.is_some() { Confidence::Certain } else { Confidence::Likely });
    add_evidence(&mut finding, cx, cgroups.version, near, met, killed);
    finding.note(format!(
        "{} - {} on the inactive file list = {used}; {used} - {} of active page cache - {} of reclaimable \
         slab = {kept} ({} of the limit) that can only be swapped out or freed by the program.",
        held.current,
        held.inactive_file,
        held.active_file,
        held.slab_reclaimable,
        Percent(kept.share_of(*limit)),
    ));
    if cache {
        finding.note(
            "Reclaim drops the active page cache before anything is killed, and the files are read again if \
             they are needed. kubelet evicts pods by this figure all the same: raise the limit if it does.",
        );
        return finding;
    }
    add_remedies(&mut finding, cx, cgroups.version, near);
    finding.note_if(groups::lasting(path));
    finding
}

fn cost(cx: &Context<'_>, near: &Near<'_>, cache: bool) -> Cost {
    let Near { group, limit, held } = near;
    let left = *limit - held.working_set();
    let stalled = grown(cx, group, |g| Some(g.pressure?.some?.total_us)).map(|(_, r)| r.per_second / 1e6);
    match stalled.filter(|stalled| *stalled > 0.0) {
        Some(stalled) => Cost::stalled(
            stalled,
            format!("tasks of the group wait for memory; {left} are left below the limit"),
        ),
        None if cache => {
            Cost::risk("nothing is killed while there is page cache to drop; kubelet may evict the pod")
        }
        None => Cost::risk(format!(
            "{left} are left below the limit of {limit}; beyond it a process of the group is killed"
        )),
    }
}

fn add_evidence(
    finding: &mut Finding,
    cx: &Context<'_>,
    version: CgroupVersion,
    near: &Near<'_>,
    met: Option<(u64, Rate)>,
    killed: Option<(u64, Rate)>,
) {
    let Near { group, limit, held } = near;
    let path = group.path.as_str();
    let file = |name| groups::file(version, path, name);
    let stat = groups::field(version, "stat");
    let inactive = if version == CgroupVersion::V1 { "total_inactive_file" } else { "inactive_file" };
    let active = if version == CgroupVersion::V1 { "total_active_file" } else { "active_file" };
    finding
        .because(Evidence::new(file("max"), groups::field(version, "max"), limit).of(path))
        .because(
            Evidence::new(file("current"), groups::field(version, "current"), held.current).of(path).against(
                format!("less the inactive file list at most {} of the limit", Percent(NEAR)),
                "alerts of container platforms",
            ),
        )
        .because(Evidence::new(file("stat"), format!("{stat} {inactive}"), held.inactive_file).of(path))
        .because(Evidence::new(file("stat"), format!("{stat} {active}"), held.active_file).of(path));
    if let Some((first, rate)) = met {
        let (name, file) = match version {
            CgroupVersion::V1 => ("memory.failcnt", file("failcnt")),
            CgroupVersion::V2 => ("max", file("events")),
        };
        finding.because(
            Evidence::new(file, name, Grouped(first + rate.total))
                .of(path)
                .was(Grouped(first))
                .against("no growth", "each is an allocation that met the limit and had to reclaim first"),
        );
    }
    if let Some((first, rate)) = killed {
        let file = if version == CgroupVersion::V1 { file("oom_control") } else { file("events") };
        finding.because(
            Evidence::new(file, "oom_kill", Grouped(first + rate.total)).of(path).was(Grouped(first)),
        );
    }
    for (process, resident) in groups::largest_in(cx, path, 3) {
        finding.because(Evidence::new("/proc/PID/status", "VmRSS", resident).of(subject(process)));
    }
}

fn add_remedies(finding: &mut Finding, cx: &Context<'_>, version: CgroupVersion, near: &Near<'_>) {
    let Near { group, limit, held } = near;
    let kept = held.kept();
    let swap = cx.mem_or_zero(m::SwapFree);
    // On version 1 the cap is on memory and swap together.
    let may_swap = swap > Bytes::ZERO
        && match (group.swap_max, version) {
            (Some(Limit::At(cap)), CgroupVersion::V2) => group.swap_current.unwrap_or_default() < cap,
            (Some(Limit::At(cap)), CgroupVersion::V1) => cap > *limit,
            _ => group.swappiness != Some(0),
        };
    finding.note(match may_swap {
        true => format!("{swap} of swap are free: the group swaps before a process of it is killed."),
        false => "The group has no swap to go to: what is above the limit is killed.".to_owned(),
    });
    let wanted = groups::comfortable(kept, group);
    if cx.total().is_ok_and(|total| wanted > total) {
        finding.note(format!(
            "A limit at which it would use {} would be {wanted}, more than the host has: a smaller \
                 cache in the program, or memory, is the remedy.",
            Percent(COMFORTABLE)
        ));
        return;
    }
    let swapped = group.swap_current.unwrap_or_default();
    let back = match swapped {
        Bytes::ZERO => String::new(),
        swapped => format!(" with the {swapped} that it has in swap"),
    };
    let share = Percent((kept + swapped).share_of(wanted));
    let title = format!("Raise the limit to {wanted}, of which {share} would be in use{back}");
    let raise = groups::raise(title, version, group, *limit, wanted).risk(
        "The group may then take that much from the others; check that all limits together fit into the host.",
    );
    finding.remedy(match applications::in_group(cx, &group.path) {
        Some(application) => application.tell(Topic::Limit, raise),
        None => raise,
    });
    if version == CgroupVersion::V2 && group.high.is_none_or(|high| high == Limit::Max) {
        finding.note(
            "How to choose: raise the limit where the program needs the memory; where it may be slowed down \
             instead, give it memory.high below memory.max: above it tasks of the group are made to wait \
             and nothing is killed.",
        );
    }
}
