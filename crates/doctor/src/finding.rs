//! [`Finding`]: what is wrong, how we know, what it costs, what to do.

use lotsfree_kernel_files::file::process::Process;
use lotsfree_units::{Bytes, Percent};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Remedy;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is lost at present.
    Info,
    /// Costs something, or will under load.
    Warning,
    /// Costs a noticeable part of memory or time.
    High,
    /// Processes are being killed, blocked or are about to be.
    Critical,
}

impl Severity {
    /// The severity of the first rung whose condition holds, or `otherwise`.
    pub fn ladder(rungs: &[(bool, Severity)], otherwise: Severity) -> Severity {
        rungs.iter().find(|(holds, _)| *holds).map_or(otherwise, |(_, severity)| *severity)
    }
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Fits the evidence; so do other explanations.
    Possible,
    /// The evidence points here.
    Likely,
    /// The evidence admits nothing else.
    Certain,
}

/// One reading that supports a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Evidence {
    /// The file, with its leading slash (`/proc/meminfo`).
    pub file: String,
    /// The field in it (`PageTables`).
    pub field: String,
    /// Which node, zone, process, cgroup or device, where there are several (`node 1`, `pid 812 postgres`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The earlier reading, where two were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The reading, with its unit.
    pub value: String,
    /// What it was compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Threshold>,
}

/// What a reading was compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Threshold {
    /// The bound, as in "at least 2 % of memory".
    pub bound: String,
    /// Whose bound it is.
    pub source: String,
}

impl Evidence {
    /// A reading of `field` in `file`.
    pub fn new(file: impl Into<String>, field: impl Into<String>, value: impl ToString) -> Self {
        Evidence {
            file: file.into(),
            field: field.into(),
            subject: None,
            before: None,
            value: value.to_string(),
            threshold: None,
        }
    }

    /// Names the node, zone, process, cgroup or device that the reading is about.
    pub fn of(mut self, subject: impl ToString) -> Self {
        self.subject = Some(subject.to_string());
        self
    }

    /// Adds the earlier reading.
    pub fn was(mut self, before: impl ToString) -> Self {
        self.before = Some(before.to_string());
        self
    }

    /// Adds the bound that the reading was compared with, and whose bound that is.
    pub fn against(mut self, bound: impl ToString, source: impl ToString) -> Self {
        self.threshold = Some(Threshold { bound: bound.to_string(), source: source.to_string() });
        self
    }
}

/// Name of a process in reports: `pid 812 postgres`.
pub(crate) fn subject(process: &Process) -> String {
    format!("pid {} {}", process.stat.pid, process.stat.name)
}

/// What a finding costs. `share` makes costs of different kinds comparable: the part of memory, or of one
/// task's time, that is lost.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cost {
    /// Memory that is lost or at stake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Page faults or page reads per second that would not be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults_per_second: Option<f64>,
    /// Task-seconds lost per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled: Option<f64>,
    /// Part of memory or of one task's time, 0 where nothing is lost yet. Ranks findings of equal severity.
    pub share: f64,
    /// In words and numbers.
    pub text: String,
}

impl Cost {
    /// A loss of `bytes` out of `total`; `text` describes it.
    pub fn memory(bytes: Bytes, total: Bytes, text: impl Into<String>) -> Self {
        let share = bytes.share_of(total);
        let text = format!("{bytes} ({} of memory): {}", Percent(share), text.into());
        Cost { bytes: Some(bytes), faults_per_second: None, stalled: None, share, text }
    }

    /// A cost of `rate` faults per second at `seconds` each.
    pub fn faults(rate: f64, seconds: f64, text: impl Into<String>) -> Self {
        let stalled = rate * seconds;
        let text = format!("{rate:.0} faults/s, {} of a task's time: {}", Percent(stalled), text.into());
        Cost { bytes: None, faults_per_second: Some(rate), stalled: Some(stalled), share: stalled, text }
    }

    /// A cost of tasks that are stalled for `share` seconds per second.
    pub fn stalled(share: f64, text: impl Into<String>) -> Self {
        let text = format!("{} of a task's time: {}", Percent(share), text.into());
        Cost { bytes: None, faults_per_second: None, stalled: Some(share), share, text }
    }

    /// No loss yet; `text` describes the possible one.
    pub fn risk(text: impl Into<String>) -> Self {
        Cost { bytes: None, faults_per_second: None, stalled: None, share: 0.0, text: text.into() }
    }
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// The rule's id (`pagetable-bloat`).
    pub rule: &'static str,
    /// What is wrong, in one sentence with its main figure.
    pub title: String,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// How we know.
    pub evidence: Vec<Evidence>,
    /// What it costs.
    pub cost: Cost,
    /// What to do, best first.
    pub remedies: Vec<Remedy>,
    /// The arithmetic, the mechanism, how to choose between remedies, which false alarms were ruled out.
    pub notes: Vec<String>,
    /// Settings that no other finding may change while this one stands, and why (`vm.nr_hugepages`: "SAP HANA
    /// must run without a huge page pool"). A `*` at the end stands for all that begins so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forbids: Vec<(String, String)>,
}

impl Finding {
    /// A finding without evidence or remedies yet.
    pub fn new(rule: &'static str, severity: Severity, title: impl Into<String>, cost: Cost) -> Self {
        Finding {
            rule,
            title: title.into(),
            severity,
            confidence: Confidence::Likely,
            evidence: Vec::new(),
            cost,
            remedies: Vec::new(),
            notes: Vec::new(),
            forbids: Vec::new(),
        }
    }

    /// Sets the confidence.
    pub fn sure(&mut self, confidence: Confidence) -> &mut Self {
        self.confidence = confidence;
        self
    }

    /// Adds a reading.
    pub fn because(&mut self, evidence: Evidence) -> &mut Self {
        self.evidence.push(evidence);
        self
    }

    /// Adds readings.
    pub fn because_all(&mut self, evidence: impl IntoIterator<Item = Evidence>) -> &mut Self {
        self.evidence.extend(evidence);
        self
    }

    /// Adds a reading, if there is one.
    pub fn because_if(&mut self, evidence: Option<Evidence>) -> &mut Self {
        self.because_all(evidence)
    }

    /// Adds a remedy; the best comes first.
    pub fn remedy(&mut self, remedy: Remedy) -> &mut Self {
        self.remedies.push(remedy);
        self
    }

    /// Adds a note.
    pub fn note(&mut self, note: impl Into<String>) -> &mut Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a note, if there is one.
    pub fn note_if(&mut self, note: Option<impl Into<String>>) -> &mut Self {
        self.notes.extend(note.map(Into::into));
        self
    }

    /// Forbids other findings to change `setting`, giving the reason.
    pub fn forbid(&mut self, setting: impl Into<String>, why: impl Into<String>) -> &mut Self {
        self.forbids.push((setting.into(), why.into()));
        self
    }
}
