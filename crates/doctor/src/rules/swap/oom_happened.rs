use lotsfree_kernel_files::counters::{memory_events as e, vmstat as v};
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, Limit};
use lotsfree_kernel_files::file::kernel_log::report::{GroupCounter, Trigger};
use lotsfree_kernel_files::file::kernel_log::{KernelLog, OomKill};
use lotsfree_settings::PANIC_ON_OOM;
use lotsfree_units::{Bytes, Percent};

use crate::applications::{self, Topic};
use crate::control_groups::{self, Owner};
use crate::kernel_report::{Cause, Holder, Judged, dirty_of, kernel_of, shared_of};
use crate::remedy::SYSCTL_FILE;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Workload};

rule! {
    /// The OOM killer has killed processes.
    ///
    /// # Sees
    /// `oom_kill` in `/proc/vmstat` (4.13 and later), `oom_kill` in `memory.events` of the groups, and the
    /// kernel log, which says who was killed, how large it was and why: the whole host, a group's limit, a
    /// NUMA policy or cpuset, fragmentation, a low zone; or that the kernel killed without need: with memory
    /// free above the watermarks, beside clean page cache, or by a watermark that is more than its zone.
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
    /// day back, those of a group an hour. A batch job killed at its own limit is what limits are for.
    ///
    /// # References
    /// `mm/oom_kill.c:dump_oom_victim` and `__oom_kill_process` (6.12);
    /// `Documentation/admin-guide/cgroup-v2.rst`, memory.events.
    pub OomHappened = "oom-happened" in Swap
}

/// A kill within the last day still matters to whoever looks now.
const RECENT_SECONDS: f64 = 86_400.0;
const RECENT_OF_GROUP: f64 = 3600.0;
/// A kill this long ago or less is what somebody looks for.
const JUST_NOW: f64 = 60.0;
/// Kills that are shown as evidence, latest first.
const SHOWN: usize = 5;
/// Shared memory from this share of a group on is named.
const SHARED: f64 = 0.25;
/// Dirty pages from this share of a group's page cache on, none of them under writeback, are named.
const UNWRITTEN: f64 = 0.8;
/// Memory of the kernel from this share of a group on is named.
const KERNEL: f64 = 0.3;
/// A victim of this size held something.
const LARGE: Bytes = Bytes::mib(256);
/// Processes that have less than this share of memory did not fill it.
const SMALL: f64 = 0.2;
/// Page tables from this share of a victim on are worth a word.
const TABLES: f64 = 0.2;

/// By how much a limit is raised after a kill, and at least: `--oom-bump-up-ratio` and
/// `--oom-min-bump-up-bytes` of Kubernetes' Vertical Pod Autoscaler.
const BUMP_RATIO: f64 = 1.2;
const BUMP: Bytes = Bytes::mib(100);

/// A group that uses less than this share of its limit is not at it.
const FAR: f64 = 0.75;
/// Of a smaller one a single charge may be much.
const SMALL_GROUP: Bytes = Bytes::mib(16);
/// A limit from which on there is none: the kernel prints the largest counter in KiB.
const NO_LIMIT: Bytes = Bytes::gib(1 << 30);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Host,
    Group,
    Policy,
    /// No block of contiguous pages.
    Order,
    /// Zones that the request could not use had memory.
    Zone,
    /// Enough was free by the kernel's own figures.
    EnoughFree,
    Asked,
    /// Killed, and the log does not say why.
    Bare,
    /// Counted, and no line of the log says more.
    Untold,
}

/// Kills of one kind, and what the kernel reported at the last of them.
struct Incident<'a> {
    kind: Kind,
    kills: Vec<&'a OomKill>,
    judged: Option<Judged<'a>>,
}

impl Rule for OomHappened {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let counted = cx.vm(v::oom_kill);
        let log = cx.now().kernel_log.as_ref();
        let by_groups = group_kills(cx);
        let (count, kills) = match (&counted, log, by_groups) {
            (Err(skip), None, None) => return Err(skip.clone()),
            (counted, log, by_groups) => {
                let count = counted.clone().ok().or(by_groups).unwrap_or(0);
                (count, log.map_or(&[][..], |log| &log.ooms))
            }
        };
        let incidents = log.map(incidents).unwrap_or_default();
        if let Some(panic) = log.and_then(Panic::of) {
            return Ok(vec![panicked(cx, panic, &incidents)]);
        }
        if count == 0 && incidents.is_empty() {
            // Without the counter only a whole log tells that nobody was killed.
            return if counted.is_ok() { Ok(Vec::new()) } else { cx.not_logged() };
        }
        let now = cx.rate(&[v::oom_kill]).is_ok_and(|rate| rate.total > 0);
        // Of equal findings the latest comes first.
        let (of_groups, others): (Vec<_>, Vec<_>) =
            incidents.iter().rev().partition(|incident| incident.kind == Kind::Group);
        let mut findings: Vec<Finding> =
            others.into_iter().map(|incident| told(cx, incident, now, None)).collect();
        findings.extend(groups(cx, of_groups, now));
        if findings.is_empty() && kills.is_empty() {
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

/// The kills of the log by kind, and those of groups by group, with the last report of each. Kills for
/// which the kernel names a memory policy or cpuset are constraint-oom's.
fn incidents(log: &KernelLog) -> Vec<Incident<'_>> {
    let mut incidents: Vec<Incident<'_>> = Vec::new();
    let reported = log.reports.iter().filter(|report| {
        // A group's memory is printed only where it is at its limit.
        let group = report.trigger == Trigger::Shown && Judged::of(report).cause == Cause::Group;
        report.trigger == Trigger::OomKiller || !report.kills.is_empty() || group
    });
    for report in reported {
        let judged = Judged::of(report);
        let kind = kind(&judged.cause);
        let named = report.kills.iter().any(bound);
        if named && kind == Kind::Policy {
            continue;
        }
        let group = report.group.as_ref().map(|group| group.limit_of.as_str());
        let same = incidents
            .iter_mut()
            .find(|incident| incident.kind == kind && (kind != Kind::Group || incident.group() == group));
        match same {
            Some(incident) => {
                incident.kills.extend(&report.kills);
                incident.judged = Some(judged);
            }
            None => {
                incidents.push(Incident { kind, kills: report.kills.iter().collect(), judged: Some(judged) })
            }
        }
    }
    // Kills whose report the log no longer has.
    let reported = |kill: &OomKill| log.reports.iter().any(|report| report.kills.contains(kill));
    for kill in log.ooms.iter().filter(|kill| !bound(kill) && !reported(kill)) {
        let kind = if kill.constraint == "CONSTRAINT_MEMCG" { Kind::Group } else { Kind::Host };
        let same = incidents.iter_mut().find(|incident| match (kind, kill.cgroup.as_deref()) {
            // The line alone does not name the group.
            (Kind::Group, None) => incident.kind == Kind::Group,
            (kind, group) => incident.kind == kind && (kind != Kind::Group || incident.group() == group),
        });
        match same {
            Some(incident) => incident.kills.push(kill),
            None => incidents.push(Incident { kind, kills: vec![kill], judged: None }),
        }
    }
    without_bare(incidents)
}

/// Joins kills of which the log has little more than that they happened with those of the host that it
/// explains.
fn without_bare(incidents: Vec<Incident<'_>>) -> Vec<Incident<'_>> {
    let bare = |incident: &Incident<'_>| {
        incident.kind == Kind::Bare
            || incident.kind == Kind::Host
                && incident.judged.is_none()
                && incident.kills.iter().all(|kill| kill.constraint.is_empty())
    };
    let (bare, mut told): (Vec<_>, Vec<_>) = incidents.into_iter().partition(bare);
    let explained = told
        .iter_mut()
        .find(|incident| matches!(incident.kind, Kind::Host | Kind::Order | Kind::Zone | Kind::EnoughFree));
    match explained {
        Some(incident) => incident.kills.extend(bare.into_iter().flat_map(|bare| bare.kills)),
        None => told.extend(bare),
    }
    told
}

/// Whether the kernel names a memory policy or cpuset as the reason; kernels before 4.19 do not.
fn bound(kill: &OomKill) -> bool {
    matches!(kill.constraint.as_str(), "CONSTRAINT_MEMORY_POLICY" | "CONSTRAINT_CPUSET")
}

fn kind(cause: &Cause) -> Kind {
    match cause {
        Cause::Asked => Kind::Asked,
        Cause::Untold => Kind::Bare,
        Cause::Group => Kind::Group,
        Cause::Policy => Kind::Policy,
        Cause::Fragmented { .. } => Kind::Order,
        Cause::LowZone { .. } | Cause::Cma { .. } => Kind::Zone,
        Cause::EnoughFree { .. }
        | Cause::CacheKept { .. }
        | Cause::ListsKept { .. }
        | Cause::Miscounted { .. } => Kind::EnoughFree,
        Cause::Addresses(_) | Cause::Reserve | Cause::Host => Kind::Host,
    }
}

impl<'a> Incident<'a> {
    fn group(&self) -> Option<&'a str> {
        let reported = self.judged.as_ref().and_then(|judged| judged.report.group.as_ref());
        let reported = reported.map(|group| group.limit_of.as_str()).filter(|group| !group.is_empty());
        reported.or_else(|| self.kills.iter().rev().find_map(|kill| kill.cgroup.as_deref()))
    }

    /// The limit of the group, from the last report.
    fn limit(&self) -> Option<Bytes> {
        let group = self.judged.as_ref()?.report.group.as_ref()?;
        let memory = group.counters.iter().find(|counter| &*counter.name == "memory")?;
        Some(memory.limit).filter(|limit| *limit < NO_LIMIT)
    }

    /// The victims: `java`, `java and 2 others`; nothing where the log does not have them.
    fn victims(&self, first: Option<&OomKill>) -> Option<String> {
        let name = &first.or(self.kills.last().copied())?.name;
        Some(match self.kills.len() {
            1 => name.clone(),
            2 => format!("{name} and another process"),
            count => format!("{name} and {} other processes", count - 1),
        })
    }

    /// `deed` is what the kernel did: it killed these, or panicked.
    fn title(&self, deed: &str, victims: &str, when: &str) -> String {
        let Some(judged) = &self.judged else {
            return match self.kind {
                Kind::Group => {
                    let group = self.group().unwrap_or("a memory cgroup");
                    format!("{group} was at its limit, and {deed}")
                }
                _ if self.kills.iter().any(|kill| !kill.constraint.is_empty()) => {
                    format!("the host was out of memory, and {deed}")
                }
                _ => format!("the kernel killed {victims} because memory ran out{when}"),
            };
        };
        let wanted = judged.wanted().unwrap_or_else(|| "memory".to_owned());
        match &judged.cause {
            Cause::Untold => format!("the kernel killed {victims} because memory ran out{when}"),
            Cause::Asked => {
                format!("somebody had the kernel kill {victims} by SysRq{when}; memory was not the reason")
            }
            Cause::Group => self.group_title(judged, deed),
            Cause::Policy => format!(
                "the nodes that a cpuset or memory policy allows were full, and {deed}; other \
                 nodes had memory"
            ),
            Cause::Fragmented { free } => format!(
                "{deed} because {} wanted {wanted} and memory was fragmented; {free:#} were \
                 free in smaller pieces",
                judged.report.process
            ),
            Cause::LowZone { zone, elsewhere, free } => {
                let slab = judged.slab_in_low_zones();
                let slab = slab.map(|(kind, bytes)| format!("; {} held {bytes:#} of it", kind.name()));
                let uncounted = judged.uncounted_in_low_zones();
                let uncounted = || uncounted.map(|rest| format!("; {rest:#} of it is in no counter"));
                let slab = slab.or_else(uncounted).unwrap_or_default();
                format!(
                    "the {} zone was empty, and {deed}, while {free:#} were free in {}, which \
                     the request could not use{slab}",
                    zone.name(),
                    elsewhere.name()
                )
            }
            Cause::Cma { cma, .. } => format!(
                "only CMA memory was free ({cma:#}), which {} could not use, and {deed}",
                judged.report.process
            ),
            Cause::EnoughFree { free } => {
                let cma = judged.free_cma();
                let cma = (cma.share_of(*free) >= 0.5).then(|| format!("; {cma:#} of it was CMA memory"));
                let cma = cma.unwrap_or_default();
                format!("{deed}, although {free:#} were free above the watermarks{cma}")
            }
            Cause::CacheKept { cache } => {
                format!("{deed}, although {cache:#} were clean page cache, which reclaim passed over")
            }
            Cause::ListsKept { pages } => {
                let swap = judged.swap_text().map_or_else(String::new, |swap| format!(" and {swap}"));
                format!(
                    "{deed}, although {pages:#} lay on the inactive list with nothing to write{swap}: they are pinned, \
                     or reclaim of that kernel has a defect"
                )
            }
            Cause::Miscounted { zone, min } => format!(
                "{deed}, because the min watermark of zone {zone} was {min:#}, more than it has: the kernel lost count"
            ),
            Cause::Addresses(_) | Cause::Reserve | Cause::Host if judged.only_zone().is_some() => {
                let zone = judged.only_zone().unwrap_or_default();
                format!(
                    "the {zone} zone was empty, and {deed}; what other zones had, these lines do not show"
                )
            }
            Cause::Addresses(_) | Cause::Reserve | Cause::Host => {
                let swap = judged.swap_text().map_or_else(String::new, |swap| format!(", and {swap}"));
                let victim = || self.kills.iter().max_by_key(|kill| kill.anon_rss);
                let held = lead(judged).or_else(|| {
                    let (name, held) = victim().and_then(|kill| Some((&kill.name, kill.anon_rss?)))?;
                    (held >= LARGE).then(|| format!("{name} held {held:#}"))
                });
                let held = held.unwrap_or_else(|| "its report does not say who held it".to_owned());
                format!("the host ran out of memory, and {deed}: {held}{swap}")
            }
        }
    }

    fn group_title(&self, judged: &Judged<'_>, deed: &str) -> String {
        let group = self.group().unwrap_or("a memory cgroup");
        let usage = judged.report.group.as_ref();
        // No limit at all on swap says nothing of one that was reached; charges come in batches.
        let limited = |counter: &&GroupCounter| counter.limit > Bytes::ZERO && counter.limit < NO_LIMIT;
        let find = |reached: fn(&GroupCounter) -> bool| {
            usage.and_then(|usage| usage.counters.iter().filter(limited).find(|counter| reached(counter)))
        };
        let limit = find(|counter| counter.usage >= counter.limit)
            .or_else(|| find(|counter| counter.usage + Bytes::mib(1) >= counter.limit))
            .or_else(|| find(|counter| counter.failcnt > 0))
            .or_else(|| usage.and_then(|usage| usage.counter("memory")));
        let far = |counter: &&GroupCounter| {
            counter.limit >= SMALL_GROUP && counter.usage.share_of(counter.limit) < FAR
        };
        if limit.is_some_and(|counter| counter.limit >= NO_LIMIT) {
            return format!("{deed} for its group {group}, which has no limit of its own");
        }
        if let Some(counter) = limit.filter(far) {
            return format!(
                "{deed} for the limit of {group}, although that used {:#} of {:#}: a defect of this kernel, or the \
                 report came late",
                counter.usage, counter.limit
            );
        }
        let limit = limit.map_or_else(String::new, |counter| match &*counter.name {
            "memory" => format!(" of {:#}", counter.limit),
            other => format!(" of {:#} for {other}", counter.limit),
        });
        let shared = usage.and_then(shared_of).filter(|(_, share)| *share >= SHARED);
        let held = shared.map(|(bytes, share)| {
            format!("; {bytes:#} ({}) of it was tmpfs or shared memory", Percent(share))
        });
        let held = held.or_else(|| {
            let (dirty, share) = usage.and_then(dirty_of).filter(|(_, share)| *share >= UNWRITTEN)?;
            Some(format!(
                "; {dirty:#} ({}) of its page cache was dirty, and nobody had begun to write it",
                Percent(share)
            ))
        });
        let held = held.or_else(|| {
            let (name, bytes, share) = usage.and_then(kernel_of).filter(|(.., share)| *share >= KERNEL)?;
            Some(format!("; {bytes:#} ({}) of it was {name}, which no kill gives back", Percent(share)))
        });
        let held = held.unwrap_or_default();
        format!("{group} reached its limit{limit}, and {deed}{held}")
    }
}

/// What took the memory of the host: `java held 11.2 GiB of 15.5 GiB`.
fn lead(judged: &Judged<'_>) -> Option<String> {
    let of = judged.managed.map_or_else(String::new, |managed| format!(" of {managed:#}"));
    if let Some(written) = judged.under_writeback() {
        return Some(format!(
            "{written:#} were dirty or under writeback, so reclaim had to wait for the device"
        ));
    }
    if let Some((holder, bytes)) = judged.culprit() {
        return Some(format!("{} took {bytes:#}{of}", holder.name()));
    }
    let processes = judged.held(Holder::Processes);
    let small = |bytes: Bytes| judged.managed.is_some_and(|managed| bytes.share_of(managed) < SMALL);
    Some(match judged.programs().first() {
        // Naming the largest of the small would accuse it.
        Some((.., bytes)) if small(*bytes) && small(processes) => {
            format!("processes held only {:#}{of}", processes.max(*bytes))
        }
        Some((name, 1, bytes)) => format!("{name} held {bytes:#}{of}"),
        Some((name, count, bytes)) => format!("{count} processes {name} held {bytes:#}{of}"),
        None if processes > Bytes::ZERO => format!("processes held {processes:#}{of}"),
        None => return None,
    })
}

/// Seconds since a kill, where both times are known.
fn age(cx: &Context<'_>, kill: &OomKill) -> Option<f64> {
    Some((cx.now().uptime? - kill.at? as f64).max(0.0))
}

fn told(cx: &Context<'_>, incident: &Incident<'_>, now: bool, panic: Option<Panic>) -> Finding {
    let kills = &incident.kills;
    let youngest = kills.iter().filter_map(|kill| age(cx, kill)).fold(f64::INFINITY, f64::min);
    let period = cx.seconds().unwrap_or(0.0);
    let during = now && youngest <= period + 1.0;
    let database = kills
        .iter()
        .rev()
        .find(|kill| Workload::of_name(&kill.name).is_some_and(Workload::is_database))
        .copied();
    // A group at its own limit is a matter of the hour.
    let recent = if incident.kind == Kind::Group { RECENT_OF_GROUP } else { RECENT_SECONDS };
    let long_ago = youngest.is_finite() && youngest > recent;
    let severity = Severity::ladder(
        &[
            (incident.kind == Kind::Asked, Severity::Warning),
            (during, Severity::Critical),
            (long_ago, Severity::Info),
            // Whoever looks within the minute looks because of it.
            (youngest <= JUST_NOW, Severity::High),
            (database.is_some(), Severity::High),
            (incident.kind == Kind::Group, Severity::Warning),
        ],
        Severity::High,
    );
    let when = match youngest {
        age if !age.is_finite() => String::new(),
        age if age < 120.0 => format!(" {age:.0} s ago"),
        age if age < 7200.0 => format!(" {:.0} min ago", age / 60.0),
        age => format!(" {:.0} h ago", age / 3600.0),
    };
    // Kills of different hours are not one.
    let ages = || kills.iter().filter_map(|kill| age(cx, kill));
    let spread = ages().fold(0.0, f64::max) - youngest > JUST_NOW;
    let when = match kills.len() {
        count if spread && youngest.is_finite() => format!("{when}, the last of {count} kills"),
        _ => when,
    };
    let last = || kills.last().map(|kill| kill.name.clone());
    let victims = if spread { last() } else { incident.victims(database) };
    let victims = victims.unwrap_or_else(|| "a process".to_owned());
    let killed: Bytes = kills.iter().filter_map(|kill| kill.anon_rss).sum();
    let cost = Cost::risk(match killed {
        Bytes::ZERO => "the work of the killed process is lost".to_owned(),
        killed => format!(
            "work of processes that held {killed:#} of anonymous memory is lost; caches are cold after the restart"
        ),
    });
    let untold = kills.is_empty()
        && incident.judged.as_ref().is_some_and(|judged| judged.report.trigger == Trigger::Shown);
    let deed = match panic {
        Some(panic) => panic.text().to_owned(),
        None if untold => "these lines do not say whether a process was killed".to_owned(),
        None if kills.is_empty() => "the OOM killer was invoked".to_owned(),
        None => format!("the kernel killed {victims}{when}"),
    };
    let title = incident.title(&deed, &victims, &when);
    let mut finding = Finding::new(OomHappened::ID, severity, title, cost);
    finding.sure(match incident.kind {
        Kind::EnoughFree | Kind::Bare => Confidence::Possible,
        // A bare line says who was killed and not why.
        Kind::Host if incident.judged.is_none() && kills.iter().all(|kill| kill.constraint.is_empty()) => {
            Confidence::Possible
        }
        Kind::Order | Kind::Zone | Kind::Policy => Confidence::Likely,
        // A report that was cut does not show what the other zones had.
        Kind::Host if incident.judged.as_ref().is_some_and(|judged| judged.only_zone().is_some()) => {
            Confidence::Possible
        }
        Kind::Host
            if incident.judged.as_ref().is_some_and(|judged| judged.report.memory.zones.is_empty()) =>
        {
            Confidence::Likely
        }
        _ => Confidence::Certain,
    });
    finding.because_all(kills.iter().rev().take(SHOWN).map(|kill| saw(cx, kill)));
    if let Some(judged) = &incident.judged {
        explain(incident.kind, judged, &mut finding);
    }
    if let Some(kill) = kills.iter().rev().find(|kill| tables_share(kill) >= TABLES) {
        finding.note(format!(
            "Of {} (pid {}) {} were page tables: it grew by its mappings as much as by its memory. Huge \
             pages would shrink them (see pagetable-bloat).",
            kill.name,
            kill.pid,
            Percent(tables_share(kill))
        ));
    }
    let bare = incident.judged.is_none() && kills.iter().any(|kill| kill.constraint.is_empty());
    if bare || incident.kind == Kind::Bare {
        finding.note(
            "The log has no more than the kill itself: neither why memory ran out nor whether a limit, a NUMA policy or \
             one zone was the reason. The lines before it, from \"invoked oom-killer\" on, would tell.",
        );
    }
    // What processes do not hold is not given back by bounding one.
    let culprit =
        incident.judged.as_ref().filter(|_| incident.kind == Kind::Host).and_then(|judged| judged.culprit());
    match culprit.and_then(|(holder, _)| of_holder(cx, holder)) {
        Some(remedy) => _ = finding.remedy(remedy),
        None => remedies(cx, incident.kind, incident.group(), incident.limit(), &mut finding),
    }
    finding
}

/// Groups that were at their limits: one finding, of the group with most kills (of equals the latest) among
/// those still there, which names the next ones and counts the rest.
fn groups(cx: &Context<'_>, mut incidents: Vec<&Incident<'_>>, now: bool) -> Option<Finding> {
    let latest = *incidents.first()?;
    // What is proposed needs a group that is still there.
    let is_gone = |incident: &Incident<'_>| {
        let group = incident.group().zip(cx.cgroups().ok());
        group.is_some_and(|(path, groups)| groups.at(path).is_none())
    };
    incidents.sort_by_key(|incident| (is_gone(incident), std::cmp::Reverse(incident.kills.len())));
    let (worst, rest) = incidents.split_first()?;
    let mut finding = told(cx, worst, now, None);
    if rest.is_empty() {
        return Some(finding);
    }
    let others: Vec<Finding> = rest.iter().map(|incident| told(cx, incident, now, None)).collect();
    finding.severity = others.iter().map(|other| other.severity).fold(finding.severity, Severity::max);
    let kills: usize = incidents.iter().map(|incident| incident.kills.len()).sum();
    let killed = match kills {
        0 => String::new(),
        1 => ", and the kernel killed a process in them".to_owned(),
        kills => format!(", and the kernel killed {kills} processes in them"),
    };
    let most_of_rest = rest.iter().map(|incident| incident.kills.len()).max().unwrap_or(0);
    let which = if worst.kills.len() > most_of_rest {
        "most in one"
    } else if std::ptr::eq(*worst, latest) {
        "the latest"
    } else {
        "one of them"
    };
    finding.title =
        format!("{} groups were at their limits{killed}; {which}: {}", incidents.len(), finding.title);
    let name = |incident: &Incident<'_>| incident.group().unwrap_or("a group without a name").to_owned();
    for incident in rest.iter().take(SHOWN) {
        finding.because(Evidence::new("kernel log", "kills", incident.kills.len()).of(name(incident)));
    }
    if rest.len() > SHOWN {
        finding.note(format!("{} more groups had kills of their own.", rest.len() - SHOWN));
    }
    finding.note(
        "What is proposed is for the group in the title; each of the others has a limit of its own, to which the same \
         applies.",
    );
    Some(finding)
}

/// What to do about memory that no process holds.
fn of_holder(cx: &Context<'_>, holder: Holder) -> Option<Remedy> {
    let reads = "None: it only reads.";
    Some(match holder {
        Holder::SlabUnreclaimable | Holder::SlabReclaimable | Holder::Slab => {
            Remedy::new("Find the cache that grows, and who fills it")
                .run("slabtop --once --sort=c | head -15")
                .risk(reads)
        }
        Holder::Shared => {
            Remedy::new("Find the files in tmpfs and the segments, and remove what nobody needs")
                .run("df -t tmpfs -h; du -xsh /dev/shm /tmp /run; ipcs -m")
                .keep("/etc/fstab, the options of the tmpfs", "size=SIZE")
                .risk("Reading is safe; a file or segment that is still in use is lost to its program.")
        }
        Holder::HugePool => Remedy::new("Make the pool no larger than what its program needs")
            .run(cx.size_hugepages())
            .risk(reads),
        Holder::PageTables => {
            Remedy::new("Map shared memory with huge pages").run(cx.size_hugepages()).risk(reads)
        }
        Holder::Uncounted => {
            Remedy::new("Find who took it: a balloon, a graphics or network driver, or a leak of the kernel")
                .run("grep -i balloon /proc/meminfo /proc/vmstat; lsmod | grep -E 'balloon|vmw'")
                .run("sort -k2 -n -r /proc/vmallocinfo | head")
                .keep("kernel command line", "page_owner=on")
                .risk("Reading is safe. page_owner takes some 1 % of memory.")
        }
        Holder::Locked => Remedy::new("Find who locks memory, and let it lock less")
            .run("grep VmLck /proc/*/status | sort -k2 -n -r | head")
            .risk(reads),
        Holder::Processes | Holder::FileCache | Holder::KernelStacks => return None,
    })
}

/// Adds what the kernel reported at the time.
fn explain(kind: Kind, judged: &Judged<'_>, finding: &mut Finding) {
    let report = judged.report;
    if let Some(request) = &report.request {
        let flags =
            if request.flags.is_empty() { format!("{:#x}", request.mask) } else { request.flags.clone() };
        let value = format!("order {}, {flags}", request.order);
        finding.because(Evidence::new("kernel log", "invoked oom-killer", value).of(&report.process));
    }
    match kind {
        Kind::Group => {
            for counter in report.group.iter().flat_map(|group| &group.counters) {
                let limit = match counter.limit {
                    limit if limit >= NO_LIMIT => "no limit".to_owned(),
                    limit => format!("{limit:#}"),
                };
                let value = format!("{:#} of {limit}, failed {} times", counter.usage, counter.failcnt);
                finding.because(Evidence::new("kernel log", format!("{}: usage", counter.name), value));
            }
        }
        Kind::Order | Kind::Zone | Kind::EnoughFree | Kind::Policy => {
            finding.because_all(judged.zone_evidence());
        }
        _ => {
            finding.because_all(judged.holder_evidence());
        }
    }
    for (name, count, bytes) in judged.programs().into_iter().take(3) {
        let times = if count > 1 { format!("{bytes:#} in {count} processes") } else { format!("{bytes:#}") };
        finding.because(Evidence::new("kernel log", "rss", times).of(name));
    }
    let mut slabs: Vec<_> = report.slabs.iter().collect();
    slabs.sort_by_key(|slab| std::cmp::Reverse(slab.total));
    if judged.culprit().is_some_and(|(holder, _)| holder == Holder::SlabUnreclaimable) {
        for slab in slabs.into_iter().take(3) {
            finding.because(Evidence::new("kernel log", "slab", format!("{:#}", slab.total)).of(&slab.name));
        }
    }
    let why = match kind {
        Kind::Host => judged.culprit().map(|(holder, _)| why_held(holder)),
        Kind::EnoughFree if matches!(judged.cause, Cause::EnoughFree { .. }) => Some(
            "The figures were printed after the decision: memory may have come back in between. If it happens again \
             and again with so much free, the kernel decides wrongly: look whether its release has a known defect.",
        ),
        Kind::EnoughFree => Some(
            "A host with such figures is not out of memory: look whether this release of the kernel has a known defect. \
             Another release is what helps.",
        ),
        _ => None,
    };
    finding.note_if(why);
}

/// What to make of memory that processes do not hold.
fn why_held(holder: Holder) -> &'static str {
    match holder {
        Holder::SlabUnreclaimable => {
            "Unreclaimable slab belongs to the kernel: a leak in it or in a driver, or objects that a program makes it keep \
             (connections, watches, mounts, control groups). Killing processes does not give it back; slabtop names the cache."
        }
        Holder::Shared => {
            "Shared memory and tmpfs stay when a process is killed: files in /dev/shm, /tmp or /run, segments of System V, \
             or buffers of a graphics driver."
        }
        Holder::HugePool => {
            "A pool of huge pages is lost to everything else, used or not: it is too large for this host, or for what was \
             left beside it."
        }
        Holder::Locked => {
            "Locked memory (mlock, mlockall) can be neither swapped out nor dropped: swap that is free does not help."
        }
        Holder::PageTables => {
            "Page tables grow with the mappings of each process: many processes that map the same memory."
        }
        Holder::SlabReclaimable => {
            "Reclaimable slab (dentries, inodes) should have been given back; something pinned it, or the request could not \
             wait for file systems."
        }
        _ => {
            "Memory that no counter names was taken by a driver, a graphics processor, vmalloc, a hypervisor's balloon, or \
             was leaked page by page."
        }
    }
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

/// `logged` is the limit of the group that the kernel's report has.
fn remedies(cx: &Context<'_>, kind: Kind, group: Option<&str>, logged: Option<Bytes>, finding: &mut Finding) {
    match kind {
        Kind::Group => {
            finding.note(
                "The host had memory: more of it, or swap settings of the host, do not help a group at its limit.",
            );
            let Some(group) = group else {
                finding.note(
                    "The log does not have the group's name: the line with oom_memcg= (or \"as a result of limit of\") before \
                     the kill names it. Raise its limit, or shrink what runs in it.",
                );
                return;
            };
            raise(cx, group, logged, finding);
            finding.note_if(control_groups::lasting(group));
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
        Kind::Order => {
            finding
                .remedy(
                    Remedy::new("Keep more memory free, so that blocks stay whole")
                        .run(cx.size_command("watermarks"))
                        .keep(SYSCTL_FILE, "vm.min_free_kbytes = (the figure that lotsfree size prints)")
                        .risk("That memory is lost to everything else."),
                )
                .note(
                    "Let the program or driver that asks for such blocks ask for smaller ones, or for memory that need not be \
                     contiguous: that is the mending; more free memory only makes it rarer.",
                );
        }
        Kind::Zone => {
            finding.note(
                "More memory does not help: it is added to the zone that was not short. A 64-bit kernel ends the shortage of \
                 lowmem; a smaller cma= on the kernel command line leaves more for requests that cannot use CMA; a driver \
                 that asks for DMA memory may have a wider mask in a later release.",
            );
        }
        Kind::Asked => {
            finding.note("SysRq f, or a write of f to /proc/sysrq-trigger, asks for a kill: look who did.");
        }
        Kind::EnoughFree => {}
        Kind::Host | Kind::Bare | Kind::Untold => {
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

/// Raises the limit of a group by one step, from the one that it has now or, where its files were not read,
/// had when the kernel reported.
fn raise(cx: &Context<'_>, path: &str, logged: Option<Bytes>, finding: &mut Finding) {
    const RISK: &str = "The memory is taken from the others. A leak meets any limit, only later.";
    let unit = path.rsplit('/').next().unwrap_or(path);
    let version = cx.cgroups().map_or(CgroupVersion::V2, |groups| groups.version);
    let read = cx.cgroups().ok().and_then(|groups| groups.at(path)).cloned();
    let systemd = matches!(control_groups::owner(path), Owner::Systemd(_));
    if read.is_none() && !systemd && cx.cgroups().is_ok() {
        let was = logged.map_or_else(String::new, |limit| format!(" of {limit}"));
        finding.note(format!(
            "The group is gone, or has lost its limit{was}: whoever makes it sets that. Let it be higher, or less run in it."
        ));
        return;
    }
    let group = read.unwrap_or_else(|| Cgroup { path: path.to_owned(), ..Cgroup::default() });
    let Some(limit) = group.max.and_then(Limit::bytes).or(logged) else {
        finding
            .remedy(Remedy::new(format!("Raise the limit of {unit}, or shrink what runs in it")).risk(RISK));
        return;
    };
    let wanted = control_groups::rounded((limit + BUMP).max(limit.scale(BUMP_RATIO)));
    let title = format!("Raise the limit of {unit} to {wanted}, or shrink what runs in it");
    let raise = control_groups::raise(title, version, &group, limit, wanted).risk(RISK);
    finding
        .note(format!(
            "A kill tells that the limit was too low, not by how much. {wanted} is one step: by {BUMP} or a fifth, as the \
             Vertical Pod Autoscaler of Kubernetes goes after a kill. Where the program has a bound of its own (the heap \
             of Java, maxmemory of Redis, -m of memcached), that bound and a tenth is the better figure."
        ))
        .remedy(match applications::in_group(cx, path) {
            Some(application) => application.tell(Topic::Limit, raise),
            None => raise,
        });
}

/// Kills that the events of the outermost groups count, where the host's own counter is unknown.
fn group_kills(cx: &Context<'_>) -> Option<u64> {
    let groups = &cx.now().cgroups.as_ref()?.groups;
    let kills = |group: &Cgroup| group.events.as_ref()?.get(e::oom_kill);
    groups.iter().filter_map(kills).max()
}

/// Why the kernel panicked for lack of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Panic {
    /// `vm.panic_on_oom` asks for it.
    Set,
    /// No process was left that may be killed.
    Unkillable,
}

impl Panic {
    fn of(log: &KernelLog) -> Option<Panic> {
        match (log.oom_panics, log.nothing_killable) {
            (0, 0) => None,
            (0, _) => Some(Panic::Unkillable),
            _ => Some(Panic::Set),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Panic::Set => "the kernel panicked instead of killing a process, because vm.panic_on_oom is set",
            Panic::Unkillable => "the kernel panicked, because no process was left to kill",
        }
    }
}

/// The kernel panicked; why memory was short its last report tells.
fn panicked(cx: &Context<'_>, panic: Panic, incidents: &[Incident<'_>]) -> Finding {
    let last = incidents.iter().rev().find(|incident| incident.judged.is_some());
    let mut finding = match last {
        Some(last) => told(cx, last, false, Some(panic)),
        None => {
            let title = format!("the host ran out of memory, and {}", panic.text());
            Finding::new(OomHappened::ID, Severity::Critical, title, Cost::risk(""))
        }
    };
    finding.severity = Severity::Critical;
    finding.cost = Cost::risk("the host went down with all that ran on it");
    finding.because(Evidence::new("kernel log", "Kernel panic", "Out of memory"));
    if last.is_none() {
        finding.sure(Confidence::Certain).note(
            "What took the memory is the question that remains: the lines before the panic tell, if they are there.",
        );
    }
    if panic == Panic::Unkillable {
        return finding;
    }
    finding.remedy(
        Remedy::new("Let the kernel kill a process, unless another node of a cluster takes over")
            .run("sysctl -w vm.panic_on_oom=0")
            .keep(SYSCTL_FILE, "vm.panic_on_oom = 0")
            .risk("The process that is killed may be the one that matters; the host then runs without it.")
            .sets(PANIC_ON_OOM, 0),
    );
    finding
}

/// Whether a group met its own limit: `oom` counts that alone, `oom_kill` every killer.
fn met_its_limit(group: &Cgroup) -> bool {
    group.events.as_ref().and_then(|events| events.get(e::oom)).unwrap_or(0) > 0
}

/// How many were killed; of a single group also at which limit.
fn untold_title(count: u64, state: &str, groups: &[&Cgroup]) -> String {
    let killed = match count {
        1 => "killed a process".to_owned(),
        count => format!("killed {count} processes"),
    };
    match groups {
        [group] if met_its_limit(group) => {
            let limit =
                group.max.and_then(Limit::bytes).map_or_else(String::new, |limit| format!(" of {limit}"));
            format!("{} reached its limit{limit}, and the OOM killer has {killed} of it {state}", group.path)
        }
        _ => format!("the OOM killer has {killed} {state}"),
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
        untold_title(count, state, &innermost),
        Cost::risk("work of the killed processes is lost; which they were, the kernel log would tell"),
    );
    finding.sure(Confidence::Certain);
    if cx.vm(v::oom_kill).is_ok() {
        finding.because(cx.saw_vm(v::oom_kill).against("0", "no process was killed"));
    }
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
        if met_its_limit(group) {
            remedies(cx, Kind::Group, Some(&group.path), None, &mut finding);
            return finding;
        }
        finding.note("Processes of the groups named were killed, though none of them was at its own limit.");
    }
    remedies(cx, Kind::Untold, None, None, &mut finding);
    finding
}
