use lotsfree_kernel_files::counters::{memory_events as e, vmstat as v};
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion};
use lotsfree_kernel_files::file::kernel_log::OomKill;
use lotsfree_units::{Bytes, Percent};

use crate::control_groups::{self, Owner};
use crate::remedy::word;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload};

rule! {
    /// The OOM killer has killed processes.
    ///
    /// # Sees
    /// `oom_kill` in `/proc/vmstat` (4.13 and later), `oom_kill` in `memory.events` of the groups, and the
    /// kernel log, which says who was killed, how large it was and why: the whole host, a group's limit, or a
    /// NUMA policy or cpuset.
    ///
    /// # Hurts
    /// A killed database recovers from its log, and its cache is cold; a killed back end makes PostgreSQL
    /// restart as a whole. The three kinds have different cures: more memory for the host does not help a
    /// group at its limit.
    ///
    /// # Remedies
    /// Of the whole host: find what grew, bound it, keep some swap. Of a group: raise its limit or shrink
    /// what is in it. Of a policy: prefer instead of bind.
    ///
    /// # False alarms
    /// Counters since boot only say that it has happened; they are information once the kills lie more than a
    /// day back. A batch job killed at its own limit is what limits are for.
    ///
    /// # References
    /// `mm/oom_kill.c:dump_oom_victim` and `__oom_kill_process` (6.12);
    /// `Documentation/admin-guide/cgroup-v2.rst`, memory.events.
    pub OomHappened = "oom-happened" in Swap
}

/// A kill within the last day still matters to whoever looks now.
const RECENT_SECONDS: f64 = 86_400.0;
/// Kills that are shown as evidence, latest first.
const SHOWN: usize = 5;
/// Page tables from this share of a victim on are worth a word.
const TABLES: f64 = 0.2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Host,
    Group,
    Policy,
    /// Counted, and no line of the log says more.
    Untold,
}

impl Rule for OomHappened {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let counted = cx.vm(v::oom_kill);
        let log = cx.now().kernel_log.as_ref();
        let (count, kills) = match (&counted, log) {
            (Err(skip), None) => return Err(skip.clone()),
            (counted, log) => (counted.clone().unwrap_or(0), log.map_or(&[][..], |log| &log.ooms)),
        };
        if count == 0 && kills.is_empty() {
            return Ok(Vec::new());
        }
        let now = cx.rate(&[v::oom_kill]).is_ok_and(|rate| rate.total > 0);
        let mut findings = Vec::new();
        for kind in [Kind::Host, Kind::Group, Kind::Policy] {
            let of_kind = kills.iter().filter(|kill| self::kind(kill) == kind).collect::<Vec<_>>();
            if !of_kind.is_empty() {
                findings.push(told(cx, kind, &of_kind, now));
            }
        }
        if findings.is_empty() {
            findings.push(untold(cx, count, now));
        } else if count > kills.len() as u64 {
            let more = count - kills.len() as u64;
            if let Some(finding) = findings.first_mut() {
                let note = format!("{more} more kills were counted since boot; the log no longer has them.");
                finding.note(note).because(cx.saw_vm(v::oom_kill));
            }
        }
        Ok(findings)
    }
}

fn kind(kill: &OomKill) -> Kind {
    match kill.constraint.as_str() {
        "CONSTRAINT_MEMCG" => Kind::Group,
        "CONSTRAINT_MEMORY_POLICY" | "CONSTRAINT_CPUSET" => Kind::Policy,
        // Kernels before 4.19 do not say; a group's kill they do tell apart.
        _ => Kind::Host,
    }
}

/// Seconds since a kill, where both times are known.
fn age(cx: &Context<'_>, kill: &OomKill) -> Option<f64> {
    Some((cx.now().uptime? - kill.at? as f64).max(0.0))
}

fn told(cx: &Context<'_>, kind: Kind, kills: &[&OomKill], now: bool) -> Finding {
    let youngest = kills.iter().filter_map(|kill| age(cx, kill)).fold(f64::INFINITY, f64::min);
    let period = cx.seconds().unwrap_or(0.0);
    let during = now && youngest <= period + 1.0;
    let database =
        kills.iter().rev().find(|kill| Workload::of_name(&kill.name).is_some_and(Workload::is_database));
    let long_ago = youngest.is_finite() && youngest > RECENT_SECONDS;
    let severity = Severity::ladder(
        &[
            (during, Severity::Critical),
            (long_ago, Severity::Info),
            (database.is_some(), Severity::High),
            (kind == Kind::Group, Severity::Warning),
        ],
        Severity::High,
    );
    let when = match youngest {
        age if !age.is_finite() => String::new(),
        age if age < 120.0 => format!(", the last {age:.0} s ago"),
        age if age < 7200.0 => format!(", the last {:.0} min ago", age / 60.0),
        age => format!(", the last {:.0} h ago", age / 3600.0),
    };
    let victim = database.or(kills.last()).map_or(String::new(), |kill| kill.name.clone());
    let group = kills.iter().rev().find_map(|kill| kill.cgroup.as_deref()).unwrap_or("a memory cgroup");
    let processes =
        if kills.len() == 1 { "1 process".to_owned() } else { format!("{} processes", kills.len()) };
    let title = match kind {
        Kind::Group => {
            format!("{group} was at its limit and had {processes} killed, {victim} among them{when}")
        }
        Kind::Policy => {
            format!(
                "{processes} killed because a NUMA policy or cpuset had no memory left, {victim} among \
                 them{when}"
            )
        }
        _ => format!("the host was out of memory and {processes} were killed, {victim} among them{when}")
            .replace("1 process were", "1 process was"),
    };
    let killed: Bytes = kills.iter().filter_map(|kill| kill.anon_rss).sum();
    let cost = Cost::risk(format!(
        "work of processes that held {killed:#} of anonymous memory is lost; caches are cold after the \
         restart"
    ));
    let mut finding = Finding::new(OomHappened::ID, severity, title, cost);
    finding.sure(Confidence::Certain).because_all(kills.iter().rev().take(SHOWN).map(|kill| saw(cx, kill)));
    if let Some(kill) = kills.iter().rev().find(|kill| tables_share(kill) >= TABLES) {
        finding.note(format!(
            "Of {} (pid {}) {} were page tables: it grew by its mappings as much as by its memory. Huge \
             pages would shrink them (see pagetable-bloat).",
            kill.name,
            kill.pid,
            Percent(tables_share(kill))
        ));
    }
    if kills.iter().any(|kill| kill.constraint.is_empty()) {
        finding.note(
            "This kernel's log does not say why (4.19 and later do): a NUMA policy cannot be ruled out.",
        );
    }
    remedies(cx, kind, group, &mut finding);
    finding
}

fn tables_share(kill: &OomKill) -> f64 {
    let (Some(tables), Some(anon)) = (kill.page_tables, kill.anon_rss) else { return 0.0 };
    tables.share_of(tables + anon)
}

fn saw(cx: &Context<'_>, kill: &OomKill) -> Evidence {
    let mut value = vec![if kill.constraint.is_empty() {
        "reason not printed".to_owned()
    } else {
        kill.constraint.clone()
    }];
    value.extend(kill.anon_rss.map(|bytes| format!("anon-rss {bytes:#}")));
    value.extend(kill.page_tables.map(|bytes| format!("page tables {bytes:#}")));
    value.extend(kill.oom_score_adj.map(|adjustment| format!("oom_score_adj {adjustment}")));
    value.extend(age(cx, kill).map(|age| format!("{age:.0} s ago")));
    Evidence::new("/dev/kmsg", "oom-kill", value.join(", ")).of(format!("pid {} {}", kill.pid, kill.name))
}

fn remedies(cx: &Context<'_>, kind: Kind, group: &str, finding: &mut Finding) {
    match kind {
        Kind::Group => {
            let unit = group.rsplit('/').next().unwrap_or(group);
            let limit =
                cx.cgroups().ok().and_then(|groups| groups.at(group)).and_then(|group| group.max?.bytes());
            let remedy = Remedy::new(format!("Raise the limit of {unit}, or shrink what runs in it"))
                .risk("The memory is taken from the others. A leak meets any limit, only later.");
            let old = limit.map_or("OLD".to_owned(), |old| old.0.to_string());
            let remedy = match control_groups::owner(group) {
                Owner::Systemd(unit) => remedy
                    .run(format!("systemctl set-property --runtime {} MemoryMax=SIZE", word(unit)))
                    .keep("the unit's drop-in, [Service]", "MemoryMax=SIZE")
                    .undo_with(format!("systemctl set-property --runtime {} MemoryMax={old}", word(unit))),
                // systemd knows nothing of it.
                _ => {
                    let version = cx.cgroups().map_or(CgroupVersion::V2, |groups| groups.version);
                    let file = word(&control_groups::file(version, group, "max"));
                    remedy.run(format!("echo SIZE > {file}")).undo_with(format!("echo {old} > {file}"))
                }
            };
            finding.note_if(control_groups::lasting(group)).remedy(remedy).note(
                "The host had memory: more of it, or swap settings of the host, do not help a group at its \
                 limit.",
            );
        }
        Kind::Policy => {
            finding
                .remedy(
                    Remedy::new("Prefer a node instead of binding to it, or interleave")
                        .run("numactl --preferred=NODE COMMAND")
                        .keep("the unit's drop-in, [Service]", "NUMAPolicy=preferred")
                        .keep("the unit's drop-in, [Service]", "NUMAMask=NODE")
                        .restart("the program")
                        .risk("Some of its memory then lies on another node."),
                )
                .note("Other nodes may have been free: a bind policy or a cpuset forbids to use them.");
        }
        Kind::Host | Kind::Untold => {
            finding
                .remedy(
                    Remedy::new("Bound what grew, so that it meets its own limit")
                        .run("systemctl set-property --runtime UNIT MemoryHigh=SIZE MemoryMax=SIZE")
                        .keep("the unit's drop-in, [Service]", "MemoryMax=SIZE")
                        .undo_with(
                            "systemctl set-property --runtime UNIT MemoryHigh=infinity MemoryMax=infinity",
                        )
                        .risk("A unit at its MemoryMax is killed alone."),
                )
                .note(
                    "Who is killed is decided by size, not by guilt: look for what grew. Whether swap was \
                     left and vm.swappiness is 0 is judged by other rules (swap-exhaustion, \
                     swappiness-zero-oom, oom-score).",
                );
        }
    }
}

/// Counted, but the log does not say who.
fn untold(cx: &Context<'_>, count: u64, now: bool) -> Finding {
    let groups = cx.cgroups().map(|groups| groups.groups.as_slice()).unwrap_or_default();
    let kills =
        |group: &Cgroup| group.events.as_ref().and_then(|events| events.get(e::oom_kill)).unwrap_or(0);
    // A group's events count those of the groups below it.
    let innermost = groups.iter().filter(|group| {
        let below = format!("{}/", group.path.trim_end_matches('/'));
        kills(group) > 0 && !groups.iter().any(|other| other.path.starts_with(&below) && kills(other) > 0)
    });
    let innermost = innermost.collect::<Vec<_>>();
    let severity = if now { Severity::Critical } else { Severity::Warning };
    let state = if now { "and it goes on" } else { "since boot" };
    let mut finding = Finding::new(
        OomHappened::ID,
        severity,
        format!("the OOM killer has killed {count} processes {state}"),
        Cost::risk("work of the killed processes is lost; which they were, the kernel log would tell"),
    );
    finding.sure(Confidence::Certain).because(cx.saw_vm(v::oom_kill).against("0", "no process was killed"));
    if let Ok(rate) = cx.rate(&[v::oom_kill])
        && now
    {
        finding.because(cx.saw_rate(&[v::oom_kill], &rate));
    }
    for group in innermost.iter().take(SHOWN) {
        finding.because(Evidence::new("memory.events", "oom_kill", kills(group)).of(&group.path));
    }
    finding.note(
        "dmesg -T | grep -E 'oom-kill|Out of memory' says who was killed and why, as long as the log \
         reaches back.",
    );
    if let Some(group) = innermost.first() {
        // `oom` counts only the group's own limit, `oom_kill` every killer.
        let limited = group.events.as_ref().and_then(|events| events.get(e::oom)).unwrap_or(0) > 0;
        if limited {
            remedies(cx, Kind::Group, &group.path, &mut finding);
            return finding;
        }
        finding.note("Processes of the groups named were killed, though none of them was at its own limit.");
    }
    remedies(cx, Kind::Untold, "", &mut finding);
    finding
}
