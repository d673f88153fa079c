//! Rules that turn an [`Observation`](lotsfree_snapshot::Observation) into [`Finding`]s.
//!
//! ```text
//! Observation ── Context (typed questions, Skip where the answer is missing) ── Rule::check ──▶ Finding
//!                                                            all findings ── reconcile ── rank ──▶ Diagnosis
//! ```
//!
//! A rule is one file below [`rules`]: its documentation (the source of `lotsfree explain` and
//! `docs/rules.md`) and a pure `check`. It asks the [`Context`]; a missing file or counter makes the answer
//! *unknown*, never *fine*. Values of settings on which vendors disagree are decided in one place,
//! [`advice`], so that two rules cannot recommend opposite values; [`diagnose`] checks that again over all
//! findings.

pub mod advice;
mod applications;
mod context;
mod control_groups;
mod diagnosis;
mod document;
mod finding;
mod held;
mod huge;
mod hung;
mod kernel_release;
mod kernel_report;
mod known_bad;
mod largest;
mod latency;
mod levels;
mod memlock;
mod memory_map;
mod min_free;
mod page_cache;
mod pool_requests;
mod remedies;
mod remedy;
mod rule;
pub mod rules;
mod swapping;
mod thp;
mod verdict;
mod workload;
mod writers;

pub use context::{Context, CpuShares, Rate, Trend};
pub use diagnosis::{Diagnosis, SkippedRule, diagnose, diagnose_with};
pub use document::document;
pub use finding::{Confidence, Cost, Evidence, Finding, Severity, Threshold};
pub use huge::{Shared, shared_memory};
pub use largest::Consumer;
pub use lotsfree_kernel_files::counters::groups::*;
pub use memory_map::{MemoryMap, Use, compressed};
pub use remedies::{bounded_taker, taker_apart};
pub use remedy::{Persistent, Remedy, Setting};
pub use rule::{Describe, Group, Meta, Outcome, Rule, Skip};
pub use verdict::{Answer, UNTOLD, Verdict};
pub use workload::Workload;
