use lotsfree_kernel_files::counters::{Counter, MemoryStat, memory_events as e, memory_stat as s};
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, Cgroups, Limit};
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::control_groups as groups;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// A memory cgroup loses time to reclaiming its own memory, as far as one reading of its files tells.
    ///
    /// # Sees
    /// `memory.pressure` of the group (version 2), `high` and `max` of `memory.events`, and the counters of
    /// `memory.stat` since the group was made: pages that were evicted and read again
    /// (`workingset_refault*`), and how much of what reclaim scanned it could free (`pgscan`, `pgsteal`).
    /// With `memory.current` and the limits also at which of them the group stands, and whether it waits
    /// although half of it is inactive, clean page cache.
    ///
    /// # Hurts
    /// A group at its limit reclaims from itself, however much memory the host has: its tasks wait, its
    /// files are read again and again, and nothing on the host looks short.
    ///
    /// # Remedies
    /// A higher limit, or a smaller cache in the program. Where the group holds mostly anonymous memory and
    /// cannot swap, reclaim has nothing to take: only a smaller program or more memory helps.
    ///
    /// # False alarms
    /// Counters since the group was made do not say when: without pressure the finding is only *possible*.
    /// A job that is bounded on purpose (`systemd-run`) is meant to be slowed down. With two samples
    /// `high-throttle` and `limit-near` tell more, and only what is read back while it is watched counts
    /// here.
    ///
    /// # References
    /// `Documentation/admin-guide/cgroup-v2.rst`, memory.stat, memory.events, memory.pressure;
    /// `mm/workingset.c:workingset_refault` (6.12); throttling at `memory.high`: commits 0e4b01df8659 (5.4),
    /// 9b8b17541f13 (5.7 and 5.6.5) and b3ff92916af3 (5.9).
    pub GroupPressure = "group-pressure" in Cgroup
}

/// A tenth of the time: where warnings on PSI memory start (nohang, systemd-oomd's tests).
const STALLED: f64 = 10.0;
/// Half of the time: most of the group waits.
const STANDS: f64 = 50.0;
/// Pages read again since the group was made: 1 GiB of small pages, and this share of what was freed.
const REFAULTS: u64 = 1 << 18;
const SHARE: f64 = 0.5;
/// A host with this share of memory available takes no pages from groups.
const ROOMY: f64 = 0.2;
/// Pages scanned from which on their yield matters, and the yield below which reclaim is in vain.
const SCANNED: u64 = 1 << 20;
const YIELD: f64 = 0.2;
/// Pages read back each second: as for the whole host (file-thrash).
const REREAD: f64 = 500.0;
/// Ten times that: 20 MiB a second of small pages.
const REREAD_HARD: f64 = 5000.0;
/// Times that a group was slowed down from which on it matters.
const SLOWED: u64 = 100_000;
/// The highest usage counts as the limit from here on: charges come in batches.
const MET: f64 = 0.995;
/// Anonymous memory from which on there is little else to reclaim.
const ANONYMOUS: f64 = 0.8;
/// Inactive, clean page cache of this size, and of this share of a group, is there to be taken.
const IDLE: Bytes = Bytes::mib(64);
const IDLE_SHARE: f64 = 0.5;
/// Groups with a finding of their own.
const MOST: usize = 4;

/// What one group loses.
struct Loss<'a> {
    group: &'a Cgroup,
    /// Stalls of some task, per cent of the last minute or ten seconds.
    stalled: Option<f64>,
    refaults: Option<u64>,
    /// Pages scanned and freed, if few were freed.
    in_vain: Option<(u64, u64)>,
    /// Pages that it reads back each second.
    reread: Option<f64>,
    /// How often it was slowed down at its `memory.high`.
    slowed: Option<(u64, Bytes)>,
    /// The highest usage and the limit, if it met the limit and nothing says whether that was page cache.
    met: Option<(Bytes, Bytes)>,
}

impl Rule for GroupPressure {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let cgroups = cx.cgroups()?;
        let told =
            |group: &Cgroup| group.pressure.is_some() || group.stat.is_some() || slowed(group).is_some();
        if !cgroups.groups.iter().any(told) {
            return Err(Skip::missing(groups::file(cgroups.version, "/*", "stat")));
        }
        // Rates of two samples tell more than sums.
        let sums = cx.seconds().is_err();
        let mut losses: Vec<Loss<'_>> = cgroups
            .groups
            .iter()
            .filter(|group| group.path != "/")
            .filter_map(|group| loss(cx, group, sums))
            .collect();
        let stalled = |loss: &Loss<'_>| loss.stalled.unwrap_or_default();
        let below = |path: &str, of: &str| path.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
        // A parent's pressure and counters include its children's.
        let inner: Vec<String> = losses.iter().map(|loss| loss.group.path.clone()).collect();
        losses.retain(|loss| !inner.iter().any(|path| below(path, &loss.group.path)));
        losses.sort_by(|a, b| stalled(b).total_cmp(&stalled(a)));
        Ok(losses.iter().take(MOST).map(|loss| finding(cgroups, loss)).collect())
    }
}

fn loss<'a>(cx: &Context<'_>, group: &'a Cgroup, sums: bool) -> Option<Loss<'a>> {
    let some = group.pressure.and_then(|psi| psi.some);
    let stalled =
        some.map(|stall| stall.avg60.max(stall.avg10)).filter(|stalled| (STALLED..=100.0).contains(stalled));
    let get = |counter: Counter<MemoryStat>| group.stat.as_ref().and_then(|stat| stat.get(counter));
    let (scanned, freed) = (get(s::pgscan).unwrap_or(0), get(s::pgsteal).unwrap_or(0));
    let refaults = refaults(group);
    // Without a limit it was the host that took the pages, and a roomy host takes none.
    let limited = [group.max, group.high].into_iter().flatten().any(|limit| limit.bytes().is_some());
    let unbounded = !limited && (group.max.is_some() || group.high.is_some());
    let roomy = cx.available().zip(cx.total().ok());
    let roomy = roomy.is_some_and(|(available, total)| available.bytes.share_of(total) >= ROOMY);
    let thrashes = refaults >= REFAULTS
        && (freed == 0 || refaults as f64 / freed as f64 >= SHARE)
        && !(unbounded && roomy);
    let vain = scanned >= SCANNED && (freed as f64) < scanned as f64 * YIELD;
    let loss = Loss {
        group,
        stalled,
        refaults: (sums && thrashes).then_some(refaults),
        in_vain: (sums && vain).then_some((scanned, freed)),
        reread: reread(cx, group),
        slowed: slowed(group).filter(|_| sums),
        met: met(group).filter(|_| sums),
    };
    (loss.stalled.is_some()
        || loss.refaults.is_some()
        || loss.in_vain.is_some()
        || loss.reread.is_some()
        || loss.slowed.is_some()
        || loss.met.is_some())
    .then_some(loss)
}

/// Pages that a group had read back since it was made.
fn refaults(group: &Cgroup) -> u64 {
    let Some(stat) = &group.stat else { return 0 };
    // Version 1 has those of the groups below it in the total.
    let with_children = [s::total_workingset_refault_file, s::total_workingset_refault_anon];
    let own = [s::workingset_refault, s::workingset_refault_file, s::workingset_refault_anon];
    let sum = |counters: &[Counter<MemoryStat>]| {
        counters.iter().filter_map(|counter| stat.get(*counter)).fold(0, u64::saturating_add)
    };
    sum(&with_children).max(sum(&own))
}

/// Pages that a group reads back each second, between two samples.
fn reread(cx: &Context<'_>, group: &Cgroup) -> Option<f64> {
    let before = cx.before().ok()?.cgroups.as_ref()?.at(&group.path)?;
    let per_second = refaults(group).checked_sub(refaults(before))? as f64 / cx.seconds().ok()?.max(0.1);
    (per_second >= REREAD).then_some(per_second)
}

/// How often a group was slowed down since it was made, and at which `memory.high`.
fn slowed(group: &Cgroup) -> Option<(u64, Bytes)> {
    let high = group.high.and_then(Limit::bytes)?;
    let count =
        group.events.as_ref().and_then(|events| events.get(e::high)).filter(|count| *count >= SLOWED)?;
    Some((count, high))
}

/// The highest usage of a group that met its limit, where its `memory.stat` is not there.
fn met(group: &Cgroup) -> Option<(Bytes, Bytes)> {
    let limit = group.max.and_then(Limit::bytes).filter(|limit| *limit > Bytes::ZERO)?;
    let highest = group.peak.or(group.current)?;
    (group.stat.is_none() && highest.share_of(limit) >= MET).then_some((highest, limit))
}

/// Page cache that reclaim could take at once, where tasks nevertheless stand most of the time.
fn idle_cache(loss: &Loss<'_>) -> Option<Bytes> {
    let get = |counter: Counter<MemoryStat>| loss.group.stat.as_ref()?.get(counter).map(Bytes);
    let stalled = loss.stalled.filter(|stalled| *stalled >= STANDS)?;
    let busy = get(s::file_dirty).unwrap_or_default() + get(s::file_writeback).unwrap_or_default();
    let idle = get(s::inactive_file)? - busy;
    let all = loss.group.current.or_else(|| Some(get(s::inactive_file)? + get(s::active_file)?))?;
    (stalled > 0.0 && idle >= IDLE && idle.share_of(all) >= IDLE_SHARE).then_some(idle)
}

/// The share of anonymous memory and the share of page cache in what a group holds.
fn held(group: &Cgroup) -> Option<(f64, f64)> {
    let get =
        |counter: Counter<MemoryStat>| group.stat.as_ref().and_then(|stat| stat.get(counter)).map(Bytes);
    let (anon, file) = (get(s::anon)?, get(s::file)?);
    let all = (anon + file + get(s::slab).unwrap_or_default()).max(Bytes(1));
    Some((anon.share_of(all), file.share_of(all)))
}

fn finding(cgroups: &Cgroups, loss: &Loss<'_>) -> Finding {
    let path = loss.group.path.as_str();
    let at = groups::limit(loss.group);
    let stands = at.map_or_else(String::new, |(name, limit)| {
        format!(", at its {} of {limit}", groups::field(cgroups.version, name))
    });
    let idle = idle_cache(loss);
    let title = match (loss.stalled, loss.refaults, loss.in_vain) {
        (Some(stalled), ..) if idle.is_some() => format!(
            "tasks of {path}{stands} wait for memory {} of the time, although {} of its page cache is inactive and clean: \
             the kernel makes them wait instead of reclaiming it",
            Percent(stalled / 100.0),
            idle.unwrap_or_default()
        ),
        (Some(stalled), ..) => {
            format!("tasks of {path}{stands} wait for memory {} of the time", Percent(stalled / 100.0))
        }
        (None, Some(refaults), _) => {
            format!(
                "{path}{stands} has read back {} pages that were evicted: its working set does not fit",
                Grouped(refaults)
            )
        }
        (None, None, None) if loss.reread.is_some() => format!(
            "{path}{stands} reads back {} pages a second that were evicted from it: its working set does not fit",
            Grouped(loss.reread.unwrap_or_default() as u64)
        ),
        (None, None, None) if loss.slowed.is_some() => {
            let (count, high) = loss.slowed.unwrap_or_default();
            format!("{path} was slowed down {} times at its memory.high of {high}", Grouped(count))
        }
        (None, None, None) if loss.met.is_some() => {
            let (highest, limit) = loss.met.unwrap_or_default();
            format!("{path} has met its limit of {limit:#}: its highest usage was {highest:#}")
        }
        (None, None, vain) => {
            let (scanned, freed) = vain.unwrap_or_default();
            format!(
                "reclaim in {path}{stands} frees {} of the pages that it scans",
                Percent(freed as f64 / scanned.max(1) as f64)
            )
        }
    };
    let severity = Severity::ladder(
        &[
            (groups::is_transient(path), Severity::Info),
            (loss.stalled.is_some_and(|stalled| stalled >= STANDS), Severity::High),
            (loss.reread.is_some_and(|reread| reread >= REREAD_HARD), Severity::High),
        ],
        Severity::Warning,
    );
    let cost = match loss.stalled {
        Some(stalled) => Cost::stalled(
            stalled / 100.0,
            "some task of the group waits for reclaim or for pages that come back",
        ),
        None if loss.reread.is_some() => Cost::risk("they come from the disk again, and tasks wait for them"),
        None => Cost::risk("when that was, these counters do not say; whether it goes on, two samples tell"),
    };
    let mut finding = Finding::new(GroupPressure::ID, severity, title, cost);
    let seen = loss.stalled.is_some() || loss.reread.is_some();
    finding.sure(if seen { Confidence::Likely } else { Confidence::Possible });
    evidence(&mut finding, cgroups, loss);
    if loss.met.is_some() {
        finding.note(
            "Page cache fills any limit without harm. If it was not page cache, a process of the group was killed: dmesg and \
             oom_kill of memory.events (version 1: memory.oom_control) tell, and memory.stat says who held it.",
        );
    }
    finding.note_if(idle.map(|_| {
        "Kernels slow down who exceeds memory.high from 5.4 on. Until 5.6.5 an underflow made them wait without need \
         (commit 9b8b17541f13), and until 5.9 they gave up reclaim after one attempt (b3ff92916af3): look which release \
         runs there. Without memory.high, bounded by memory.max alone, nobody is made to wait so."
    }));
    match held(loss.group) {
        _ if idle.is_some() => {}
        Some((anon, _)) if anon >= ANONYMOUS => {
            finding.note(format!(
                "{} of what it holds is anonymous memory: without swap reclaim can only take its programs' own files, \
                 which are read back at once.",
                Percent(anon)
            ));
        }
        Some((_, file)) if file >= ANONYMOUS && loss.stalled.is_some() => {
            finding.note(format!(
                "{} of what it holds is page cache, which reclaim can drop: tasks should not wait that long for it. Look \
                 whether it is dirty, whether its disk is slow, and whether this kernel has a known defect of memory.high.",
                Percent(file)
            ));
        }
        _ => {}
    }
    remedy(&mut finding, cgroups, loss.group, at);
    finding.note_if(groups::lasting(path));
    finding
}

fn evidence(finding: &mut Finding, cgroups: &Cgroups, loss: &Loss<'_>) {
    let (version, path) = (cgroups.version, loss.group.path.as_str());
    let file = |name| groups::file(version, path, name);
    if let Some((highest, limit)) = loss.met {
        finding.because(
            Evidence::new(file("peak"), "highest usage", highest).of(path).against(limit, "the limit"),
        );
    }
    if let Some(stalled) = loss.stalled {
        finding.because(
            Evidence::new(file("pressure"), "some avg60 or avg10", Percent(stalled / 100.0))
                .of(path)
                .against(format!("at least {}", Percent(STALLED / 100.0)), "nohang, systemd-oomd's tests"),
        );
    }
    for (name, counter) in [("high", e::high), ("max", e::max), ("oom_kill", e::oom_kill)] {
        let count =
            loss.group.events.as_ref().and_then(|events| events.get(counter)).filter(|count| *count > 0);
        finding.because_if(count.map(|count| Evidence::new(file("events"), name, Grouped(count)).of(path)));
    }
    finding.because_if(
        loss.group
            .current
            .map(|bytes| Evidence::new(file("current"), groups::field(version, "current"), bytes).of(path)),
    );
    finding.because_if(
        (loss.group.failcnt.filter(|count| *count > 0))
            .map(|count| Evidence::new(file("failcnt"), "memory.failcnt", Grouped(count)).of(path)),
    );
    let stat = loss.group.stat.as_ref();
    for (name, counter) in [
        ("anon", s::anon),
        ("file", s::file),
        ("pgscan", s::pgscan),
        ("pgsteal", s::pgsteal),
        ("workingset_refault", s::workingset_refault),
        ("workingset_refault_file", s::workingset_refault_file),
        ("workingset_refault_anon", s::workingset_refault_anon),
        ("pgmajfault", s::pgmajfault),
        // Version 1 counts for the groups below in these alone.
        ("total_workingset_refault_file", s::total_workingset_refault_file),
        ("total_workingset_refault_anon", s::total_workingset_refault_anon),
        ("total_pgmajfault", s::total_pgmajfault),
    ] {
        let Some(value) = stat.and_then(|stat| stat.get(counter)).filter(|value| *value > 0) else {
            continue;
        };
        let value = if matches!(name, "anon" | "file") {
            Bytes(value).to_string()
        } else {
            Grouped(value).to_string()
        };
        finding.because(Evidence::new(file("stat"), name, value).of(path));
    }
}

fn remedy(finding: &mut Finding, cgroups: &Cgroups, group: &Cgroup, at: Option<(&'static str, Bytes)>) {
    // The limit is the experiment.
    if groups::owner(&group.path) == groups::Owner::Lab {
        return;
    }
    let (Some((name, limit)), Some(current)) = (at, group.current) else {
        finding.remedy(
            Remedy::new("See whether it goes on, and at which limit")
                .run("lotsfree doctor --interval 60")
                .risk("None: it only reads."),
        );
        return;
    };
    let wanted = groups::rounded(current.max(limit).scale(1.25));
    // systemd's name of the limit of version 1 is another one (systemd.resource-control(5)).
    let property = match (name, cgroups.version) {
        ("high", _) => "MemoryHigh",
        (_, CgroupVersion::V1) => "MemoryLimit",
        (_, CgroupVersion::V2) => "MemoryMax",
    };
    finding.remedy(
        groups::set(
            format!("Raise {} to {wanted}", groups::field(cgroups.version, name)),
            cgroups.version,
            &group.path,
            (property, name),
            Some(wanted),
            Some(limit),
        )
        .risk("The group may then take that much from the others; check that all limits together fit into the host."),
    );
}
