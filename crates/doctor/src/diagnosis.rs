//! [`diagnose`]: applies all rules to one observation, then reconciles and ranks the findings.

use lotsfree_kernel_files::Problem;
use lotsfree_kernel_files::file::hugepages::HugePool;
use lotsfree_snapshot::Observation;
use lotsfree_units::Bytes;
use serde::Serialize;

use crate::largest::{Consumer, largest};
use crate::verdict::judge;
use crate::{Confidence, Context, Finding, MemoryMap, Rule, Severity, Skip, Verdict, Workload, rules};

/// The rule that says that tasks wait for memory.
const SYMPTOM: &str = "psi-memory";
/// Rules that say for what tasks wait when they wait for memory.
const CAUSES: &[&str] = &[
    "direct-reclaim",
    "file-thrash",
    "group-pressure",
    "high-throttle",
    "readahead-in-vain",
    "swap-thrash",
    "thp-compaction-stall",
    "zone-reclaim",
];

/// Result of all rules for one host.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// The answer to "is it memory?".
    pub verdict: Verdict,
    /// Findings, worst first.
    pub findings: Vec<Finding>,
    /// Rules that looked and found nothing.
    pub quiet: Vec<&'static str>,
    /// Rules that could not be judged, with the files or fields that they lacked.
    pub unknown: Vec<SkippedRule>,
    /// Rules that need a second sample.
    pub need_samples: Vec<&'static str>,
    /// Rules that do not concern this host, with the reason.
    pub not_applicable: Vec<SkippedRule>,
    /// Files and lines that could not be read.
    pub problems: Vec<Problem>,
    /// Use of memory.
    pub memory: Option<MemoryMap>,
    /// The programs that hold most memory, largest first.
    pub largest: Vec<Consumer>,
    /// Server programs that run here.
    pub workloads: Vec<Workload>,
}

/// A rule that was not judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedRule {
    /// Id of the rule.
    pub rule: &'static str,
    /// The files or fields that it lacked, or the reason why it does not apply.
    pub why: String,
}

/// Applies all rules to `observation`.
pub fn diagnose(observation: &Observation) -> Diagnosis {
    diagnose_with(observation, rules::all())
}

/// Applies some rules to `observation`.
pub fn diagnose_with(observation: &Observation, rules: impl Iterator<Item = &'static dyn Rule>) -> Diagnosis {
    let cx = Context::new(observation);
    let mut diagnosis = Diagnosis {
        verdict: judge(&cx, &[]),
        findings: Vec::new(),
        quiet: Vec::new(),
        unknown: Vec::new(),
        need_samples: Vec::new(),
        not_applicable: Vec::new(),
        problems: observation.now.problems.clone(),
        memory: memory_map(&cx),
        largest: largest(cx.now(), cx.total().ok()),
        workloads: cx.workloads().to_vec(),
    };
    for rule in rules {
        let id = rule.meta().id;
        match rule.check(&cx) {
            Ok(findings) if findings.is_empty() => diagnosis.quiet.push(id),
            Ok(findings) => diagnosis.findings.extend(findings),
            Err(Skip::NeedsSamples) => diagnosis.need_samples.push(id),
            Err(Skip::Unknown(missing)) => {
                diagnosis.unknown.push(SkippedRule { rule: id, why: missing.join(", ") });
            }
            Err(Skip::NotApplicable(why)) => {
                diagnosis.not_applicable.push(SkippedRule { rule: id, why: why.into_owned() });
            }
        }
    }
    rank(&mut diagnosis.findings);
    reconcile(&mut diagnosis.findings);
    diagnosis.verdict = judge(&cx, &diagnosis.findings);
    diagnosis
}

fn memory_map(cx: &Context<'_>) -> Option<MemoryMap> {
    let huge = cx.now().huge_pools.as_deref().map(|pools| {
        let sum = |pages: fn(&HugePool) -> u64| pools.iter().map(|p| p.size.times(pages(p))).sum::<Bytes>();
        (sum(HugePool::used), sum(|pool| pool.free))
    });
    MemoryMap::of(cx.now().meminfo.as_ref()?, cx.compressed(), huge)
}

/// Worst first: by severity, then by the share of memory or time that is lost, then by confidence. Pressure,
/// which says how much is lost and not why, comes after the findings that say for what a task waits.
fn rank(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        (b.severity.cmp(&a.severity))
            .then(b.cost.share.total_cmp(&a.cost.share))
            .then(b.confidence.cmp(&a.confidence))
    });
    let is_cause = |finding: &Finding| {
        finding.severity >= Severity::High
            && finding.confidence >= Confidence::Likely
            && CAUSES.contains(&finding.rule)
    };
    let pressure = findings.iter().position(|finding| finding.rule == SYMPTOM);
    let last_cause = findings.iter().rposition(is_cause);
    if let Some((pressure, cause)) = pressure.zip(last_cause).filter(|(pressure, cause)| pressure < cause) {
        findings[pressure..=cause].rotate_left(1);
    }
}

/// Withdraws remedies that another finding forbids, and those that would set a setting to another value than
/// a finding of higher rank. A note says so, and how to choose.
fn reconcile(findings: &mut [Finding]) {
    let forbidden: Vec<(String, String, &'static str)> = (findings.iter())
        .flat_map(|f| f.forbids.iter().map(|(setting, why)| (setting.clone(), why.clone(), f.rule)))
        .collect();
    let mut settled: Vec<(String, String, &'static str)> = Vec::new();
    for finding in findings.iter_mut() {
        let mut notes = Vec::new();
        finding.remedies.retain(|remedy| {
            for setting in &remedy.sets {
                let names = |name: &str| match name.strip_suffix('*') {
                    Some(prefix) => setting.name.starts_with(prefix),
                    None => name == setting.name,
                };
                let ban = forbidden.iter().find(|(name, _, rule)| names(name) && *rule != finding.rule);
                if let Some((_, why, rule)) = ban {
                    notes.push(format!("Not proposed here: \"{}\". {why} (see {rule}).", remedy.title));
                    return false;
                }
                let other = settled.iter().find(|(name, value, rule)| {
                    *name == setting.name && *value != setting.value && *rule != finding.rule
                });
                if let Some((name, value, rule)) = other {
                    notes.push(format!(
                        "Not proposed here: \"{}\" ({name} = {}), because {rule}, which weighs more, asks for {value}. \
                         Mend that first, then look again.",
                        remedy.title, setting.value
                    ));
                    return false;
                }
            }
            for setting in &remedy.sets {
                settled.push((setting.name.clone(), setting.value.clone(), finding.rule));
            }
            true
        });
        finding.notes.extend(notes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cost, Remedy};
    use lotsfree_settings::{PANIC, PANIC_ON_OOM, PANIC_ON_OOPS};

    #[test]
    fn pressure_follows_the_findings_that_say_for_what_tasks_wait() {
        let order = |cause: Severity| {
            let finding = |rule, severity| Finding::new(rule, severity, "", Cost::risk(""));
            let mut findings = vec![
                finding("v1-host", Severity::Info),
                finding("group-pressure", cause),
                finding(SYMPTOM, Severity::Critical),
            ];
            rank(&mut findings);
            findings.iter().map(|finding| finding.rule).collect::<Vec<_>>()
        };
        assert_eq!(order(Severity::High), ["group-pressure", "psi-memory", "v1-host"]);
        assert_eq!(order(Severity::Warning), ["psi-memory", "group-pressure", "v1-host"]);
        for named in CAUSES.iter().chain([&SYMPTOM]) {
            assert!(rules::all().any(|rule| rule.meta().id == *named), "{named} is no rule");
        }
    }

    #[test]
    fn a_star_forbids_all_that_begins_so() {
        let finding = |rule, setting: &str| {
            let mut finding = Finding::new(rule, Severity::Info, "", Cost::risk(""));
            finding.remedy(Remedy::new("set it").sets(setting, 1));
            finding
        };
        let mut ban = Finding::new("view-mismatch", Severity::Warning, "", Cost::risk(""));
        ban.forbid("vm.*", "not from a container").forbid(PANIC, "not from a container");
        let left = |setting: &str| {
            let mut findings = vec![ban.clone(), finding("other", setting)];
            reconcile(&mut findings);
            findings[1].remedies.len()
        };
        assert_eq!(left(PANIC_ON_OOM), 0);
        assert_eq!(left(PANIC), 0);
        assert_eq!(left(PANIC_ON_OOPS), 1);
        assert_eq!(left("db.service MemoryMax"), 1);
    }
}
