//! Who lost time to memory and who took it, as text, JSON, Markdown and HTML.
//!
//! ```text
//! analysis::Blame + BlameDetails ──▶ BlameReport ──▶ blame_text · blame_json · blame_markdown · blame_html
//! ```
//!
//! [`BlameReport`] is complete: its JSON form is the published schema, and the others are renderings of it.
//! What only a live host can tell (what a taker was doing, control groups, what was not seen) is passed
//! beside the run, in [`BlameDetails`].

mod html;
mod markdown;
mod tables;
mod text;
mod unwatched;
pub(crate) mod words;

use std::collections::BTreeMap;

use lotsfree_analysis::blame::Blame;
use lotsfree_doctor::Remedy;
use lotsfree_run::{EventKind, Run, RunOn};
use lotsfree_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

pub use html::blame_html;
pub use markdown::blame_markdown;
pub use text::blame_text;
pub use unwatched::{Unwatched, UnwatchedProgram};

/// The format's name; raised when a field changes its meaning or goes.
const SCHEMA: &str = "lotsfree.blame/1";

/// Who lost time to memory, how much, who took it, how sure that is and what would help.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BlameReport {
    /// `lotsfree.blame/1`.
    pub schema: &'static str,
    /// Version of lotsfree that wrote it.
    pub lotsfree: &'static str,
    /// The answer in one sentence.
    pub answer: String,
    /// The program that was asked for; `null` if all were.
    pub asked: Option<String>,
    /// What is not in the run's rows.
    #[serde(flatten)]
    pub details: BlameDetails,
    /// The figures.
    #[serde(flatten)]
    pub blame: Blame,
    /// What could be seen without a watch, where this user may not watch the host. Then there are no payers
    /// and no takers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwatched: Option<Unwatched>,
}

/// What is known beside the rows of a run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct BlameDetails {
    /// Where the figures come from: a host, or the directory of a run.
    pub source: String,
    /// What takers were doing, by program, to follow its name: `reading /backup/a.tar`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub doing: BTreeMap<String, String>,
    /// Paths of payers' control groups, by program.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, String>,
    /// Limits of the control groups that met theirs, by path, in bytes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Bytes>,
    /// What could not be seen, each a sentence.
    pub not_seen: Vec<String>,
    /// What would help, best first.
    pub remedies: Vec<Remedy>,
}

impl BlameDetails {
    /// What the notes of a run say beside its rows: of an actor what it was doing, without one what was not
    /// seen.
    pub fn of(run: &Run) -> Self {
        let facts = run.facts();
        let machine = match facts.machine {
            RunOn::Model => "the model of",
            RunOn::Host => "this host, Linux",
            RunOn::Cgroup => "a control group, Linux",
            RunOn::Vm => "a virtual machine, Linux",
        };
        let source = format!("{machine} {}", facts.kernel);
        let mut details = BlameDetails { source, ..BlameDetails::default() };
        for event in run.events().iter().filter(|event| event.kind == EventKind::Note) {
            match &event.actor {
                // Notes of a model or a lab are about its actors' operations.
                Some(actor) if facts.variant.is_none() => {
                    details.doing.insert(actor.clone(), event.what.clone());
                }
                Some(_) => {}
                None => details.not_seen.push(event.what.clone()),
            }
        }
        details
    }
}

impl BlameReport {
    /// The report of a blame. `asked` is the program that it was asked for.
    pub fn new(blame: Blame, asked: Option<&str>, details: BlameDetails) -> Self {
        BlameReport {
            schema: SCHEMA,
            lotsfree: env!("CARGO_PKG_VERSION"),
            answer: words::answer(&blame, asked, &details),
            asked: asked.map(str::to_owned),
            details,
            blame,
            unwatched: None,
        }
    }

    /// The report to a user who may not watch.
    pub fn unwatched(unwatched: Unwatched, details: BlameDetails) -> Self {
        let unwatched = unwatched.sorted();
        let (answer, asked) = (unwatched.answer(), unwatched.asked());
        let blame =
            Blame { seconds: unwatched.seconds, actors: unwatched.programs.len(), ..Blame::default() };
        let report = BlameReport::new(blame, asked.as_deref(), details);
        BlameReport { answer, unwatched: Some(unwatched), ..report }
    }
}

/// Who lost most time to memory and who took it, in a sentence; `None` if nobody lost any.
pub fn blame_sentence(blame: &Blame, details: &BlameDetails) -> Option<String> {
    let payer = blame.payers.first()?;
    Some(words::payer_sentence(payer, blame, details))
}

/// As JSON, indented; `docs/schema/blame-1.json` is its schema.
///
/// # Errors
/// As [`serde_json::to_string_pretty`]; no run that can be read brings one about.
pub fn blame_json(report: &BlameReport) -> serde_json::Result<String> {
    Ok(lotsfree_units::visible_json(serde_json::to_string_pretty(report)? + "\n"))
}

/// The JSON Schema (draft 2020-12) of [`blame_json`]'s output.
pub fn blame_schema() -> String {
    crate::json::schema_of::<BlameReport>()
}
