//! [`Report`]: all that is said about a host.

use lotsfree_doctor::{
    Consumer, Diagnosis, Finding, MemoryMap, Severity, SkippedRule, UNTOLD, Use, Verdict, Workload,
};
use lotsfree_kernel_files::counters::meminfo as m;
use lotsfree_kernel_files::{Problem, ProblemKind};
use lotsfree_snapshot::{Observation, Sample};
use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

/// What `doctor` says about a host. Its JSON form is described by [`crate::schema`].
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "lotsfree doctor report")]
pub struct Report {
    /// Name and version of this format: `lotsfree.doctor/1`. The number changes when a field changes its
    /// meaning or goes; fields may be added at any time.
    pub schema: &'static str,
    /// Version of the program.
    pub lotsfree: &'static str,
    /// What was read.
    pub source: Source,
    /// What kind of machine it is.
    pub host: HostLine,
    /// Who lost time to memory between the samples, and who took it; where the kernel's tracepoints were
    /// watched and somebody lost any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blame: Option<String>,
    /// The answer to "is it memory?".
    pub verdict: Verdict,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// Rules that looked and found nothing.
    pub fine: Vec<&'static str>,
    /// Rules that could not be judged, and what they lacked.
    #[schemars(with = "Vec<Skipped>")]
    pub unknown: Vec<SkippedRule>,
    /// Rules that need two samples, where there was one.
    pub need_samples: Vec<&'static str>,
    /// Rules that do not concern this host, and why.
    #[schemars(with = "Vec<Skipped>")]
    pub not_applicable: Vec<SkippedRule>,
    /// Files and lines that could not be read.
    pub unread: Vec<Unread>,
    /// Where memory goes; the parts add up to the total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryMap>,
    /// The programs that hold most memory, largest first.
    pub largest: Vec<Consumer>,
    /// Server programs that run on the host.
    pub workloads: Vec<Workload>,
    /// Where memory went over time, where there were several samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
}

/// A rule that said nothing.
#[derive(JsonSchema)]
#[allow(dead_code)]
struct Skipped {
    /// Its id.
    rule: String,
    /// What it lacked, or why it does not apply.
    why: String,
}

/// What was read.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Source {
    /// `this host`, a path, or `standard input`.
    pub label: String,
    /// Whether it is the running machine.
    pub live: bool,
    /// Seconds since the epoch of the latest sample, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<f64>,
    /// How many samples.
    pub samples: usize,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// How many files were read for the latest one.
    pub files_read: u32,
}

/// What kind of machine it is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HostLine {
    /// Name; empty if unknown or redacted.
    pub hostname: String,
    /// Kernel release; empty if unknown.
    pub kernel: String,
    /// Distribution and its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// Bytes in a base page.
    pub page_size: Bytes,
    /// Online CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// `MemTotal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// `SwapTotal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Bytes>,
    /// NUMA nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Container runtime around the reader. `/proc` then mostly shows the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Effective user id of the reader, live only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub euid: Option<u32>,
}

/// A file or line that could not be read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Unread {
    /// The file, with its leading slash.
    pub file: String,
    /// The line, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// `denied`, `absent`, `truncated`, `malformed`, `io` or `budget`.
    #[schemars(with = "String")]
    pub kind: ProblemKind,
    /// In words.
    pub detail: String,
}

/// Figures over time.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Series {
    /// Seconds since the first sample.
    pub at: Vec<f64>,
    /// Where memory went, per use, in bytes; one value per sample.
    pub memory: Vec<(Use, Vec<Bytes>)>,
    /// Rates between samples, per second; one value fewer than samples. `null` where the counter was reset.
    pub rates: Vec<(String, Vec<Option<f64>>)>,
}

impl Report {
    /// Puts together what was observed and what the rules said.
    pub fn new(observation: &Observation, diagnosis: Diagnosis) -> Self {
        let now = &observation.now;
        let meminfo = now.meminfo.as_ref();
        let field = |field| meminfo.and_then(|values| values.get(field)).map(Bytes::kib);
        Report {
            schema: "lotsfree.doctor/1",
            lotsfree: env!("CARGO_PKG_VERSION"),
            source: Source {
                label: observation.label.clone(),
                live: now.host.live,
                taken_at: now.taken_at,
                samples: observation.samples.len(),
                seconds: observation.seconds(),
                files_read: now.files_read,
            },
            host: HostLine {
                hostname: now.host.hostname.clone(),
                kernel: now.host.kernel.release.clone(),
                distribution: now.host.distribution.as_ref().map(|(id, version)| format!("{id} {version}")),
                page_size: now.host.page_size.bytes(),
                cpus: now.host.cpus,
                memory: field(m::MemTotal),
                swap: field(m::SwapTotal),
                nodes: now.nodes.as_ref().map(Vec::len),
                container: now.host.container.clone(),
                euid: now.host.euid,
            },
            blame: None,
            verdict: diagnosis.verdict,
            findings: diagnosis.findings,
            fine: diagnosis.quiet,
            unknown: diagnosis.unknown,
            need_samples: diagnosis.need_samples,
            not_applicable: diagnosis.not_applicable,
            unread: diagnosis.problems.iter().map(unread).collect(),
            memory: diagnosis.memory,
            largest: diagnosis.largest,
            workloads: diagnosis.workloads,
            series: Series::of(observation),
        }
    }

    /// The worst severity among the findings.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }

    /// Whether any rule, or the verdict, could say anything of the host, good or bad.
    pub fn judged(&self) -> bool {
        !(self.findings.is_empty() && self.fine.is_empty()) || self.verdict.text != UNTOLD
    }

    /// How many rules were asked.
    pub fn rules_asked(&self) -> usize {
        let rules: std::collections::BTreeSet<_> = self.findings.iter().map(|finding| finding.rule).collect();
        rules.len()
            + self.fine.len()
            + self.unknown.len()
            + self.need_samples.len()
            + self.not_applicable.len()
    }
}

fn unread(problem: &Problem) -> Unread {
    Unread {
        file: format!("/{}", problem.path),
        line: problem.line,
        kind: problem.kind,
        detail: problem.detail.clone(),
    }
}

impl Series {
    /// From at least three samples: two make no trend.
    fn of(observation: &Observation) -> Option<Series> {
        use lotsfree_kernel_files::counters::vmstat as v;
        let samples = &observation.samples;
        if samples.len() < 3 {
            return None;
        }
        let page = observation.now.host.page_size;
        let map = |sample: &Sample| {
            let meminfo = sample.meminfo.as_ref()?;
            let compressed = lotsfree_doctor::compressed(Some(meminfo), sample.vmstat.as_ref(), page);
            MemoryMap::of(meminfo, compressed, None)
        };
        let maps: Vec<Option<MemoryMap>> = samples.iter().map(map).collect();
        let mut uses: Vec<Use> =
            maps.iter().flatten().flat_map(|map| map.parts.iter().map(|(part, _)| *part)).collect();
        uses.sort_unstable();
        uses.dedup();
        let memory = uses.into_iter().map(|part| {
            (part, maps.iter().map(|map| map.as_ref().map(|map| map.get(part)).unwrap_or_default()).collect())
        });
        let quantities: [(&str, &[_]); 6] = [
            ("pages swapped in", &[v::pswpin]),
            ("pages swapped out", &[v::pswpout]),
            ("pages scanned by kswapd", lotsfree_doctor::KSWAPD_SCAN),
            ("pages scanned by tasks", lotsfree_doctor::DIRECT_SCAN),
            ("major faults", &[v::pgmajfault]),
            ("direct reclaim entries", lotsfree_doctor::ALLOCSTALL),
        ];
        let total = |index: usize,
                     counters: &[lotsfree_kernel_files::counters::Counter<
            lotsfree_kernel_files::counters::Vmstat,
        >]| {
            let vmstat = samples[index].vmstat.as_ref()?;
            counters.iter().filter_map(|&c| vmstat.get(c)).reduce(u64::saturating_add)
        };
        let rates = quantities.into_iter().filter_map(|(name, counters)| {
            let rate = |i: usize| {
                let (before, now) = (total(i - 1, counters)?, total(i, counters)?);
                let seconds = samples[i].at - samples[i - 1].at;
                (now >= before && seconds > 0.0).then(|| (now - before) as f64 / seconds)
            };
            let rates: Vec<Option<f64>> = (1..samples.len()).map(rate).collect();
            rates.iter().any(Option::is_some).then(|| (name.to_owned(), rates))
        });
        Some(Series {
            at: samples.iter().map(|s| s.at).collect(),
            memory: memory.collect(),
            rates: rates.collect(),
        })
    }
}
