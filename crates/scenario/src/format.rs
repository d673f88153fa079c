//! The sections of a scenario file as types, from which its reference and its JSON Schema are made.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use lotsfree_workload::quantity::Time;
use lotsfree_workload::{Huge, Limits};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, de};

use crate::case::{NamedFile, Placement};
use crate::machine::MachineSpec;

/// The top of a scenario; its sections are read apart from it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "lotsfree scenario")]
pub(crate) struct Header {
    /// What the scenario shows, in a line.
    pub(crate) title: String,
    /// Which article it reproduces.
    pub(crate) source: Option<String>,
    /// Where all random numbers come from: the same seed gives the same operations.
    #[serde(default)]
    pub(crate) seed: u64,
    /// How long it runs, in the machine's time; at most 30 d.
    pub(crate) duration: Time,
    /// Time between two samples of the counters.
    #[serde(default = "second")]
    pub(crate) interval: Time,
    /// Name of the scenario as it stands, without any variant; "base" if left out.
    pub(crate) base: Option<String>,
    /// The machine.
    #[serde(rename = "machine")]
    #[schemars(with = "MachineSpec")]
    _machine: IgnoredAny,
    #[serde(rename = "tuning")]
    #[schemars(skip)]
    _tuning: Option<IgnoredAny>,
    #[serde(rename = "actor")]
    #[schemars(skip)]
    _actor: Option<IgnoredAny>,
    /// Files that are on the disk when the run begins.
    #[serde(rename = "file")]
    #[schemars(with = "Option<Vec<NamedFile>>")]
    _file: Option<IgnoredAny>,
    #[serde(rename = "variant")]
    #[schemars(skip)]
    _variant: Option<IgnoredAny>,
    /// Runs every variant once per value of a key.
    #[serde(rename = "sweep")]
    #[schemars(with = "Option<SweepTable>")]
    _sweep: Option<IgnoredAny>,
    /// What is measured.
    #[serde(rename = "measure")]
    #[schemars(with = "Option<MeasureTable>")]
    _measure: Option<IgnoredAny>,
    /// Strategies, each with a variant that has it and one that is without.
    #[serde(rename = "strategies")]
    #[schemars(with = "Option<Strategies>")]
    _strategies: Option<IgnoredAny>,
    #[serde(rename = "calibration")]
    #[schemars(skip)]
    _calibration: Option<IgnoredAny>,
}

fn second() -> Time {
    Time::s(1)
}

/// What every actor has; the keys of its kind stand beside these.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct ActorTable {
    /// Its name, unique in the scenario: letters, digits, `-` and `_`.
    pub(crate) name: String,
    /// What it does: one of the kinds.
    #[serde(rename = "kind")]
    _kind: String,
    /// When it starts.
    #[serde(default)]
    pub(crate) start: Time,
    /// When it is ended; without it, when it has done its work or the run is over.
    pub(crate) stop: Option<Time>,
    /// The node whose CPUs run it; without it, its threads are spread over all nodes.
    pub(crate) node: Option<u32>,
    /// Where its memory comes from: `"local"`, the node of the CPU that asks; `"preferred 0"`, that node
    /// first; `"bind 0,1"`, these only; `"interleave"`, all in turn, or `"interleave 0,1"`, these.
    #[serde(default)]
    pub(crate) policy: Placement,
    /// What the OOM killer adds to its badness, in thousandths of memory and swap
    /// (`/proc/PID/oom_score_adj`): -1000, never to be killed, to 1000. On a host the lab's actors have 1000
    /// more, and 1000 at most.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub(crate) oom_score_adj: i32,
    /// Whether it locks all of its memory before it has any (`mlockall(MCL_CURRENT | MCL_FUTURE)`): every
    /// page comes with its mapping and stays. A `page-toucher` has a key of its own for this.
    #[serde(default)]
    pub(crate) locked: bool,
    /// Whether its pages come when they are mapped and not when they are touched (`MAP_POPULATE`). Shared
    /// segments have no such mapping.
    #[serde(default)]
    pub(crate) populate: bool,
    /// What its anonymous memory consists of.
    #[serde(default)]
    pub(crate) huge: Huge,
    /// What it may have at most.
    #[serde(default)]
    pub(crate) limits: Limits,
}

/// Runs every variant once per value.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct SweepTable {
    /// The key that gets the values, such as `"actor.copy.size"`; the keys are those of a variant.
    pub(crate) key: String,
    /// The values.
    #[serde(rename = "values")]
    #[schemars(with = "Vec<serde_json::Value>", length(min = 1))]
    _values: Vec<IgnoredAny>,
    /// What the values are, for an axis.
    pub(crate) title: Option<String>,
    /// The unit in which an axis shows them, such as `"GiB"`.
    pub(crate) unit: Option<String>,
}

/// A table of strategies: what each protects and costs, by a variant that has it and one that is without.
/// `lotsfree sim SCENARIO --table` runs these variants and fills the table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Strategies {
    /// What the table shows, in a line.
    pub title: String,
    /// The actor that the measured one is protected from; what it gets done is a cost.
    #[serde(default)]
    pub from: Option<String>,
    /// The value of the sweep at which variants are compared, as the sweep writes it.
    #[serde(default)]
    pub at: Option<String>,
    /// The strategies.
    #[schemars(length(min = 1))]
    pub row: Vec<Strategy>,
}

/// A row of the table of strategies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Strategy {
    /// What is done.
    pub name: String,
    /// The variant in which it is done.
    pub variant: String,
    /// The variant that is without it.
    pub without: String,
    /// What has to be changed for it.
    pub needs: String,
    /// Which kernels have it.
    pub kernels: String,
    /// The value of the sweep for this row, if it is another.
    #[serde(default)]
    pub at: Option<String>,
}

impl Strategies {
    /// The value of the sweep at which the variants of a row are compared; `None` without a sweep.
    pub fn point<'a>(&'a self, row: &'a Strategy) -> Option<&'a str> {
        row.at.as_deref().or(self.at.as_deref())
    }

    /// Whether a row is about a variant at a value of the sweep.
    pub fn wants(&self, variant: &str, point: Option<&str>) -> bool {
        let in_row = |row: &Strategy| row.variant == variant || row.without == variant;
        self.row.iter().any(|row| in_row(row) && self.point(row) == point)
    }
}

/// What is measured. Without it, the operations of all actors from begin to end.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct MeasureTable {
    /// The actor whose throughput and latency count.
    pub(crate) actor: Option<String>,
    /// Which of its threads, by their role (the kinds of actors name their roles).
    pub(crate) role: Option<String>,
    /// From when to when: two times, `"end"` for the end of the run.
    pub(crate) window: Option<[Instant; 2]>,
    /// The undisturbed part, to which the throughput in the window is relative.
    pub(crate) baseline: Option<[Instant; 2]>,
}

/// A time of the run, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instant {
    At(Time),
    End,
}

impl Instant {
    pub(crate) fn resolve(self, end: Time) -> Time {
        match self {
            Instant::At(time) => time,
            Instant::End => end,
        }
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Instant, D::Error> {
        struct Reader;
        impl de::Visitor<'_> for Reader {
            type Value = Instant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in quotes such as \"60 s\", or \"end\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Instant, E> {
                match text.trim() {
                    "end" => Ok(Instant::End),
                    text => Time::from_str(text)
                        .map(Instant::At)
                        .map_err(|error| E::custom(format!("{error}, or \"end\""))),
                }
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

impl JsonSchema for Instant {
    fn schema_name() -> Cow<'static, str> {
        "Instant".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "end" }, generator.subschema_for::<Time>()] })
    }
}

/// The schema of a type as it is read, on its own.
pub(crate) fn schema_of<T: JsonSchema>() -> Schema {
    schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}
