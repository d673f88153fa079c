use lotsfree_kernel_files::file::cgroup::{Cgroup, CgroupVersion, HugetlbLimit, Limit};
use lotsfree_units::{Bytes, Grouped};

use crate::huge;
use crate::remedy::word;
use crate::rule::rule;
use crate::{Confidence, Context, Cost, Evidence, Finding, Outcome, Remedy, Rule, Severity, Skip};

rule! {
    /// A cgroup limits huge pages where they are touched but not where they are reserved.
    ///
    /// # Sees
    /// `hugetlb.SIZE.max` (version 1: `limit_in_bytes`) with a higher or no `hugetlb.SIZE.rsvd.max`, and
    /// either a `max` event (version 1: `failcnt`) or no room left for a tenth more.
    ///
    /// # Hurts
    /// `mmap` and `shmget` succeed, because reservations are not limited; the first touch beyond the limit
    /// kills the process with SIGBUS. A database in a container crashes at start or, worse, later under
    /// load.
    ///
    /// # Remedies
    /// Limit the reservation as well (`rsvd.max`), so that the program learns it from `mmap`; raise the
    /// limit to what it needs (Kubernetes: request `hugepages-2Mi`).
    ///
    /// # False alarms
    /// With `rsvd.max` at or below `max` the program gets ENOMEM and may fall back: events then are no
    /// crashes, and the rule is quiet.
    ///
    /// # References
    /// `Documentation/admin-guide/cgroup-v2.rst` (HugeTLB);
    /// mm/hugetlb_cgroup.c:__hugetlb_cgroup_charge_cgroup (6.12); Kubernetes #71233; runc #4073 (sets
    /// `rsvd.max` from 1.1.10 on).
    pub HugetlbCgroupSigbus = "hugetlb-cgroup-sigbus" in HugePages
}

/// Less room than this part of the limit is no room for a restart or a resize.
const ROOM: f64 = 0.1;

impl Rule for HugetlbCgroupSigbus {
    fn check(&self, cx: &Context<'_>) -> Outcome {
        let cgroups = cx.cgroups()?;
        if cgroups.groups.iter().all(|group| group.hugetlb.is_empty()) {
            return Err(Skip::because("no hugetlb controller in the groups that were read"));
        }
        let mut findings = Vec::new();
        for group in &cgroups.groups {
            for limit in &group.hugetlb {
                findings.extend(judge(cx, cgroups.version, group, limit));
            }
        }
        Ok(findings)
    }
}

fn judge(cx: &Context<'_>, version: CgroupVersion, group: &Cgroup, limit: &HugetlbLimit) -> Option<Finding> {
    let max = limit.max.bytes()?;
    let reserved = limit.reserved_max.and_then(Limit::bytes);
    if reserved.is_some_and(|reserved| reserved <= max) {
        return None;
    }
    let events = limit.events_max.unwrap_or(0);
    let before = cx.before().ok().and_then(|before| {
        let group = before.cgroups.as_ref()?.at(&group.path)?;
        group.hugetlb.iter().find(|earlier| earlier.size == limit.size)?.events_max
    });
    let new = before.map(|before| events.saturating_sub(before));
    let current = limit.current.unwrap_or_default();
    let full = current > Bytes::ZERO && max - current < max.scale(ROOM);
    let size = huge::page_name(limit.size);
    let (severity, title) = match (events, new) {
        (_, Some(new @ 1..)) => (
            Severity::Critical,
            format!(
                "{} was refused {} huge pages of {size} just now: each refusal is a SIGBUS",
                group.path,
                Grouped(new)
            ),
        ),
        (1.., _) => (
            Severity::High,
            format!(
                "{} was refused huge pages of {size} {} times: each refusal is a SIGBUS",
                group.path,
                Grouped(events)
            ),
        ),
        _ if full => (
            Severity::Warning,
            format!(
                "{} has {current} of at most {max} in huge pages of {size}, and may reserve more than that",
                group.path
            ),
        ),
        _ => return None,
    };
    let (max_file, reserved_file, event_file) = files(version, group, limit.size);
    let text = |limit: Option<Limit>| match limit {
        Some(Limit::At(bytes)) => bytes.to_string(),
        Some(Limit::Max) => "max".to_owned(),
        None => "absent".to_owned(),
    };
    let mut finding = Finding::new(
        HugetlbCgroupSigbus::ID,
        severity,
        title,
        Cost::risk("the process that touches one page beyond the limit is killed by SIGBUS"),
    );
    finding
        .sure(if events > 0 { Confidence::Certain } else { Confidence::Possible })
        .because(Evidence::new(&max_file, "max", max).of(&group.path))
        .because(
            Evidence::new(&reserved_file, "rsvd.max", text(limit.reserved_max))
                .of(&group.path)
                .against(format!("at most {max}"), "else mmap promises what a touch cannot get"),
        )
        .because(Evidence::new(&event_file, "max", Grouped(events)).of(&group.path))
        .because(Evidence::new(&max_file, "current", current).of(&group.path));
    add_remedies(&mut finding, max, &reserved_file, limit, version);

    Some(finding)
}

fn add_remedies(
    finding: &mut Finding,
    max: Bytes,
    reserved_file: &str,
    limit: &HugetlbLimit,
    version: CgroupVersion,
) {
    finding
        .remedy(
            Remedy::new("Limit reservations like pages, so that mmap fails instead of the touch")
                .run(format!("echo {} > {}", max.0, word(reserved_file)))
                .undo_with(match limit.reserved_max.and_then(Limit::bytes) {
                    Some(bytes) => format!("echo {} > {}", bytes.0, word(reserved_file)),
                    None if version == CgroupVersion::V2 => {
                        format!("echo max > {}", word(reserved_file))
                    }
                    None => format!("echo -1 > {}", word(reserved_file)),
                })
                .risk(
                    "Programs that do not check for ENOMEM fail at start; a container runtime from runc \
                     1.1.10 on sets it itself.",
                )
                .sets(reserved_file, max.0),
        )
        .remedy(
            Remedy::new("Raise the limit to what the program maps (Kubernetes: the pod's hugepages request)")
                .risk("Pages come out of the host's pool: it has to have them.")
                .restart("the pod"),
        )
        .note("The event count is since the group was made, unless two samples show that it grew.");
}

/// The limit's files: pages, reservations, events.
fn files(version: CgroupVersion, group: &Cgroup, size: Bytes) -> (String, String, String) {
    let path = group.path.trim_end_matches('/');
    let name = match size.as_kib() {
        kib if kib >= 1 << 20 => format!("{}GB", kib >> 20),
        kib if kib >= 1 << 10 => format!("{}MB", kib >> 10),
        kib => format!("{kib}KB"),
    };
    match version {
        CgroupVersion::V2 => {
            let at = |file: &str| format!("/sys/fs/cgroup{path}/hugetlb.{name}.{file}");
            (at("max"), at("rsvd.max"), at("events"))
        }
        CgroupVersion::V1 => {
            let at = |file: &str| format!("/sys/fs/cgroup/hugetlb{path}/hugetlb.{name}.{file}");
            (at("limit_in_bytes"), at("rsvd.limit_in_bytes"), at("failcnt"))
        }
    }
}
