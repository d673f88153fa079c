use lotsfree_kernel_files::counters::memory_events as e;
use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, Cgroups, Limit};
use lotsfree_settings::MIN_FREE_KBYTES;
use lotsfree_units::{Bytes, Grouped, Percent};

use crate::control_groups as groups;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Rate, Remedy, Rule, Severity, Skip};

rule! {
    /// Memory that a cgroup asks to be protected is not protected.
    ///
    /// # Sees
    /// `memory.low` and `memory.min` of each group against those of its ancestors: a group cannot have more
    /// protection than its parent hands down, and siblings that ask for more than the parent has share it.
    /// The sum of what the top-level groups ask for against the memory of the host. Over two samples, `low`
    /// in `memory.events`: reclaim that took protected memory after all.
    ///
    /// # Hurts
    /// The setting looks right in `systemctl show` and does nothing: the next backup pushes the database's
    /// pages out as if there were none. Protection beyond the host's memory protects nobody, and a
    /// `memory.min` that cannot be met ends with the OOM killer.
    ///
    /// # Remedies
    /// The same protection on every ancestor slice (`DefaultMemoryLow=`, or `MemoryLow=` on each), and a sum
    /// that fits.
    ///
    /// # False alarms
    /// With the mount option `memory_recursiveprot` a slice hands its protection down to children that ask
    /// for none; its own protection is still the bound. A top-level group has no ancestor that could limit
    /// it.
    ///
    /// # References
    /// mm/page_counter.c:effective_protection and mem_cgroup_calculate_protection,
    /// mm/vmscan.c:shrink_node_memcgs (6.12); `Documentation/admin-guide/cgroup-v2.rst`, memory.low.
    pub ProtectionIneffective = "protection-ineffective" in Cgroup
}

/// Less than this part of what is asked for counts as not protected; rounding to pages is far below.
const HONOURED: f64 = 0.95;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Low,
    Min,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Low => "low",
            Kind::Min => "min",
        }
    }

    fn property(self) -> &'static str {
        match self {
            Kind::Low => "MemoryLow",
            Kind::Min => "MemoryMin",
        }
    }

    fn limit(self, group: &Cgroup) -> Option<Limit> {
        match self {
            Kind::Low => group.low,
            Kind::Min => group.min,
        }
    }

    /// What the group asks for; `max` is all it can use.
    fn asked(self, group: &Cgroup) -> Option<Bytes> {
        match self.limit(group)? {
            Limit::Max => Some(Bytes(u64::MAX)),
            Limit::At(bytes) => Some(bytes),
        }
    }
}

impl Rule for ProtectionIneffective {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let cgroups = cx.cgroups()?;
        if cgroups.version == CgroupVersion::V1 {
            return Err(Skip::because("cgroup version 1 has no protection of memory"));
        }
        let inner = || cgroups.groups.iter().filter(|group| group.path != "/");
        if inner().all(|group| group.low.is_none()) {
            return Err(Skip::missing(groups::file(cgroups.version, "/*", "low")));
        }
        let protected =
            |kind: Kind, group: &&Cgroup| kind.asked(group).is_some_and(|bytes| bytes > Bytes::ZERO);
        if inner().all(|group| !protected(Kind::Low, &group) && !protected(Kind::Min, &group)) {
            return Err(Skip::because("no memory cgroup is protected"));
        }
        let mut findings = Vec::new();
        for kind in [Kind::Min, Kind::Low] {
            findings.extend(inner().filter(|g| protected(kind, g)).filter_map(|g| limited(cgroups, kind, g)));
            findings.extend(sum_too_large(cx, cgroups, kind));
        }
        findings.extend(broken(cx, cgroups));
        Ok(findings)
    }
}

/// What is asked for and could be used: the kernel's `min(usage, setting)`.
fn wanted(kind: Kind, group: &Cgroup) -> Bytes {
    let asked = kind.asked(group).unwrap_or_default();
    group.current.map_or(asked, |current| asked.min(current))
}

fn is_child(path: &str, parent: &str) -> bool {
    let rest = path.strip_prefix(parent.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
    rest.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// What protects `group` during reclaim of the whole host (`effective_protection`, without what recursive
/// protection hands out beyond the settings).
fn effective(cgroups: &Cgroups, kind: Kind, group: &Cgroup) -> Bytes {
    let own = wanted(kind, group);
    let Some(parent) = cgroups.ancestors(&group.path).next().filter(|parent| parent.path != "/") else {
        return own;
    };
    // What was not read cannot be held against the group.
    if kind.asked(parent).is_none() {
        return own;
    }
    let above = effective(cgroups, kind, parent);
    let siblings: Bytes =
        cgroups.groups.iter().filter(|g| is_child(&g.path, &parent.path)).map(|g| wanted(kind, g)).sum();
    if siblings > above { own.scale(above.share_of(siblings)) } else { own }
}

fn limited(cgroups: &Cgroups, kind: Kind, group: &Cgroup) -> Option<Finding> {
    let asked = kind.asked(group)?;
    let path = group.path.as_str();
    let ancestors = || cgroups.ancestors(path).filter(|parent| parent.path != "/");
    // The ancestor that gives least; one whose setting is unknown cannot be judged.
    let least = ancestors()
        .filter_map(|parent| Some((parent, kind.asked(parent)?)))
        .min_by_key(|(_, bytes)| *bytes)
        .filter(|(_, bytes)| *bytes < asked);
    let own = wanted(kind, group);
    let protected = effective(cgroups, kind, group);
    let short = protected.share_of(own) < HONOURED && own > Bytes::ZERO;
    let (name, file) = (kind.name(), |path: &str| groups::file(cgroups.version, path, kind.name()));
    let field = format!("memory.{name}");
    let shown = |bytes: Bytes| if bytes.0 == u64::MAX { "max".to_owned() } else { bytes.to_string() };
    let (title, cause) = match least {
        Some((parent, bytes)) => (
            format!(
                "{path} asks for {field} of {}, but {} has {}: {protected} of its memory is protected",
                shown(asked),
                parent.path,
                shown(bytes)
            ),
            Evidence::new(file(&parent.path), &*field, shown(bytes))
                .of(&*parent.path)
                .against(format!("at least {}", shown(asked)), "mm/page_counter.c:effective_protection"),
        ),
        None if short => {
            let parent = ancestors().next()?;
            (
                format!(
                    "{path} asks for {field} of {}, but shares that of {} with its siblings: {protected} of {own} is protected",
                    shown(asked),
                    parent.path
                ),
                Evidence::new(file(&parent.path), &*field, shown(kind.asked(parent).unwrap_or_default()))
                    .of(&*parent.path)
                    .against(
                        "the sum of what its children ask for",
                        "mm/page_counter.c:effective_protection",
                    ),
            )
        }
        None => return None,
    };
    let exposed = own - protected;
    let cost =
        Cost::risk(format!("{exposed} of the group's memory can be reclaimed although it was meant to stay"));
    let mut finding = Finding::new(ProtectionIneffective::ID, Severity::Warning, title, cost);
    finding
        .sure(Confidence::Certain)
        .because(Evidence::new(file(path), &*field, shown(asked)).of(path))
        .because(cause);
    if let Some(current) = group.current {
        finding.because(
            Evidence::new(groups::file(cgroups.version, path, "current"), "memory.current", current).of(path),
        );
    }
    finding.note(match cgroups.recursive_protection {
        true => "The hierarchy is mounted with memory_recursiveprot: a slice hands its protection down, but never more than it has.",
        false => "The hierarchy is mounted without memory_recursiveprot: every level needs the setting.",
    });
    // Nearest ancestors that have less than the group asks for; `max` above is what the manual of systemd
    // proposes for slices.
    for parent in ancestors().filter(|parent| kind.asked(parent).is_some_and(|bytes| bytes < asked)) {
        let now = kind.asked(parent).filter(|bytes| bytes.0 != u64::MAX);
        let sum: Bytes = (cgroups.groups.iter())
            .filter(|g| is_child(&g.path, &parent.path))
            .filter_map(|g| kind.asked(g))
            .sum();
        let enough = if sum.0 == u64::MAX { None } else { Some(sum.max(asked)) };
        let amount = enough.map_or("max".to_owned(), |bytes| bytes.to_string());
        finding.remedy(
            groups::set(
                format!("Give {} {amount}, the sum of what its children ask for", parent.path),
                cgroups.version,
                &parent.path,
                (kind.property(), name),
                enough,
                now,
            )
            .risk("Protection takes from all others: keep the sum of all groups below the host's memory with room to spare."),
        );
    }
    if finding.remedies.is_empty() {
        finding.remedy(
            Remedy::new("Make the siblings' protection fit into their parent's")
                .risk("Whoever gets less is reclaimed first."),
        );
    }
    Some(finding)
}

fn sum_too_large(cx: &Context<'_>, cgroups: &Cgroups, kind: Kind) -> Option<Finding> {
    let ram = cx.total().ok()?;
    let room = cx.total_without_pools().ok()?;
    let top: Vec<&Cgroup> = cgroups.groups.iter().filter(|g| is_child(&g.path, "/")).collect();
    let sum: Bytes = top
        .iter()
        .filter_map(|group| match kind.limit(group)? {
            Limit::At(bytes) => Some(bytes),
            // All that it uses.
            Limit::Max => group.current,
        })
        .sum();
    if sum <= room {
        return None;
    }
    let name = kind.name();
    let min_free = cx.sysctl(MIN_FREE_KBYTES).map_or(Bytes::ZERO, Bytes::kib);
    let budget = lotsfree_formulas::protection::low_budget(ram, cx.pool_bytes(), min_free);
    let (severity, cost) = match kind {
        Kind::Min => (
            Severity::High,
            Cost::risk("the kernel may not take any of it: once it is used, the OOM killer runs"),
        ),
        Kind::Low => (
            Severity::Warning,
            Cost::risk("once it is used nobody is protected any more: reclaim takes from all"),
        ),
    };
    let mut finding = Finding::new(
        ProtectionIneffective::ID,
        severity,
        format!(
            "memory.{name} of the top-level groups adds up to {sum}, {} of the {room} that can be used",
            Percent(sum.share_of(room))
        ),
        cost,
    );
    finding.sure(Confidence::Certain).because(cx.saw_mem(lotsfree_kernel_files::counters::meminfo::MemTotal));
    for group in top.iter().filter(|g| kind.asked(g).is_some_and(|bytes| bytes > Bytes::ZERO)) {
        let value = kind
            .limit(group)
            .map_or("max".to_owned(), |limit| limit.bytes().map_or("max".to_owned(), |b| b.to_string()));
        finding.because(
            Evidence::new(groups::file(cgroups.version, &group.path, name), format!("memory.{name}"), value)
                .of(&*group.path)
                .against(format!("together at most {room}"), "memory without huge page pools"),
        );
    }
    finding
            .note(format!(
                "{ram} - {} of huge page pools - {min_free} of vm.min_free_kbytes - 10 % of memory = {budget} to give away.",
                cx.pool_bytes()
            ))
            .remedy(
                Remedy::new(format!("Protect less: {budget} over all top-level groups, the database first"))
                    .risk("Groups that lose protection are reclaimed earlier."),
            );
    Some(finding)
}

/// Protected memory that was reclaimed after all.
fn broken(cx: &Context<'_>, cgroups: &Cgroups) -> Vec<Finding> {
    let (Ok(before), Ok(seconds)) = (cx.before(), cx.seconds()) else { return Vec::new() };
    let low = |group: &Cgroup| group.events.as_ref().and_then(|events| events.get(e::low));
    let grown = cgroups.groups.iter().filter_map(|group| {
        // Only groups that are protected themselves: the counter of a parent includes its children's.
        Kind::Low.asked(group).filter(|bytes| *bytes > Bytes::ZERO)?;
        let first = low(before.cgroups.as_ref()?.at(&group.path)?)?;
        let rate = Rate::of(&[(0.0, first), (seconds, low(group)?)])?;
        (rate.total > 0 && group.path != "/").then_some((group, first, rate))
    });
    grown
        .map(|(group, first, rate)| {
            let path = group.path.as_str();
            let file = |name| groups::file(cgroups.version, path, name);
            let setting = group.low.and_then(Limit::bytes).map_or("max".to_owned(), |b| b.to_string());
let mut finding = Finding::new(
                ProtectionIneffective::ID,
                Severity::Warning,
                format!("{path} was reclaimed {:.1} times a second although it is below its memory.low of {setting}", rate.per_second),
                Cost::risk("its pages are taken because nothing unprotected was left to take"),
            );
finding
            .sure(cx.rate_confidence())
            .because(
                Evidence::new(file("events"), "low", Grouped(first + rate.total))
                    .of(path)
                    .was(Grouped(first))
                    .against("no growth", "mm/vmscan.c:shrink_node_memcgs"),
            )
            .because(Evidence::new(file("low"), "memory.low", setting).of(path))
            .note("Reclaim spares a group below memory.low until a pass over all others has freed too little: then everything is taken from.")
            .remedy(
                Remedy::new("Protect less in sum, or bound the groups that grow (MemoryHigh=) so that something is left to reclaim")
                    .risk("Bounded groups wait, groups that lose protection are reclaimed earlier."),
            );
finding
        })
        .collect()
}
