//! [`Case`]: one run of a scenario, with everything resolved.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lotsfree_units::Bytes;
use lotsfree_workload::Memory;
use lotsfree_workload::actor::{Actor, Files, Site};
use lotsfree_workload::program::{FileSpec, Policy, Process, Program};
use lotsfree_workload::quantity::{Size, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::costs::Costs;
use crate::error::{Collector, Errors, quoted};
use crate::machine::{MachineSpec, SwapOn};
use crate::record::Record;
use crate::scenario::Overrides;
use crate::tuning::TuningSpec;

/// Most threads of a scenario.
pub(crate) const THREADS: usize = 1 << 14;

/// One run of a scenario: a variant at a value of the sweep. Everything has been checked that can be checked
/// without building the actors, which [`program`](Case::program) does.
#[derive(Clone, Debug)]
pub struct Case {
    /// The scenario's title.
    pub title: String,
    /// Which article it reproduces, if it does.
    pub source: Option<String>,
    /// Where all random numbers come from.
    pub seed: u64,
    /// How long it runs.
    pub duration: Time,
    /// Time between two samples.
    pub interval: Time,
    /// The variant; the scenario as it stands has the name that its key `base` gives.
    pub variant: String,
    /// The value of the sweep, if the scenario has one.
    pub sweep: Option<SweepPoint>,
    /// The machine.
    pub machine: MachineSpec,
    /// Settings that differ from the kernel's defaults.
    pub tuning: TuningSpec,
    /// Files that are on the disk when the run begins, and that actors name.
    pub files: Vec<NamedFile>,
    /// What loads it.
    pub actors: Vec<ScheduledActor>,
    /// What is measured.
    pub measure: MeasureSpec,
    /// What things cost in the model.
    pub calibration: CalibrationSpec,
    pub(crate) overrides: Overrides,
}

/// A value that the sweep sets.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPoint {
    /// The key, such as `actor.copy.size`.
    pub key: String,
    /// What the values are, for an axis.
    pub title: Option<String>,
    /// The unit of `number`.
    pub unit: Option<String>,
    /// The value as it is written.
    pub label: String,
    /// The value in the unit; without a unit in bytes, nanoseconds or bytes per second, or as it is written.
    /// A text that is no quantity counts as its position in the list.
    pub number: f64,
}

/// A file that is on the disk when the run begins, with nothing of it in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NamedFile {
    /// Its name, by which actors refer to it: letters, digits, `-` and `_`.
    pub name: String,
    /// Its size, less than 16 TiB.
    pub size: Size,
}

/// An actor with its name, its times and its place: a process that loads the machine.
#[derive(Clone, Debug)]
pub struct ScheduledActor {
    /// Its name.
    pub name: String,
    /// When it starts.
    pub start: Time,
    /// When it is ended, unless it ends by itself before.
    pub stop: Option<Time>,
    /// The node whose CPUs run it.
    pub node: Option<u32>,
    /// Its memory policy.
    pub policy: Placement,
    /// `oom_score_adj` of its processes.
    pub oom_score_adj: i32,
    /// How its processes have their memory.
    pub memory: Memory,
    /// Its kind with the parameters.
    pub kind: Actor,
}

/// What is measured: the operations of which actor, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MeasureSpec {
    /// The actor; `None`: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Those of its threads that have this role; `None`: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// From when to when.
    pub window: (Time, Time),
    /// The undisturbed part, to which throughput is relative.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<(Time, Time)>,
}

/// What things cost in the model: a record by name, and single costs that replace the record's.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CalibrationSpec {
    /// The record; `None`: the model's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Single costs by their names, in nanoseconds.
    #[serde(flatten)]
    pub costs: BTreeMap<String, f64>,
}

impl CalibrationSpec {
    /// The record that the model has of its own.
    pub const DEFAULT: &'static str = "default";
}

/// The memory policy of an actor, as a scenario writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// `"local"`: the node of the CPU that asks.
    #[default]
    Local,
    /// `"preferred 0"`: this node first.
    Preferred(u32),
    /// `"bind 0,1"`: these nodes only.
    Bind(Vec<u32>),
    /// `"interleave"`: all nodes in turn, or `"interleave 0,1"`: these.
    Interleave(Vec<u32>),
}

impl Placement {
    /// The nodes that it names.
    pub(crate) fn nodes(&self) -> &[u32] {
        match self {
            Placement::Local => &[],
            Placement::Preferred(node) => std::slice::from_ref(node),
            Placement::Bind(nodes) | Placement::Interleave(nodes) => nodes,
        }
    }

    /// On a machine with so many nodes.
    fn policy(&self, nodes: usize) -> Policy {
        match self {
            Placement::Local => Policy::Local,
            Placement::Preferred(node) => Policy::Preferred(*node),
            Placement::Bind(list) => Policy::Bind(list.clone()),
            Placement::Interleave(list) if list.is_empty() => {
                Policy::Interleave((0..u32::try_from(nodes).unwrap_or(u32::MAX)).collect())
            }
            Placement::Interleave(list) => Policy::Interleave(list.clone()),
        }
    }
}

impl Case {
    /// Whether it says itself how many huge pages the pool has.
    pub fn has_pool(&self) -> bool {
        self.tuning.get(lotsfree_settings::NR_HUGEPAGES).is_some()
    }

    /// The actors as processes, threads and streams.
    ///
    /// # Errors
    /// If an actor's kind refuses its parameters, if there are more than 16,384 threads, if a disk of a given
    /// size does not hold the files, or if what is measured does not exist.
    pub fn program(&self) -> Result<Program, Errors> {
        let mut errors = Collector::default();
        let mut program =
            Program { files: Vec::new(), segments: Vec::new(), commands: Vec::new(), processes: Vec::new() };
        let specs = self.files.iter().map(|file| FileSpec {
            name: file.name.clone(),
            pages: u32::try_from(file.size.pages()).unwrap_or(u32::MAX),
            exists: true,
        });
        let mut files = Files::new(specs.collect());
        let mut threads = 0_usize;
        for actor in &self.actors {
            let key = format!("actor.{}", actor.name);
            let mut site = Site {
                actor: &actor.name,
                seed: self.seed,
                directory: self.overrides.directory(),
                life: Time(actor.stop.unwrap_or(self.duration).ns().saturating_sub(actor.start.ns())),
                memlock: actor.memory.limits.memlock,
                files: &mut files,
                segments: &mut program.segments,
                commands: &mut program.commands,
            };
            match actor.kind.build(&mut site) {
                Ok(instances) => {
                    for (number, instance) in (0..).zip(instances) {
                        threads = threads.saturating_add(instance.threads.len());
                        program.processes.push(Process {
                            name: actor.name.clone(),
                            instance: number,
                            policy: actor.policy.policy(self.machine.nodes.len()),
                            memory: actor.memory,
                            oom_score_adj: actor.oom_score_adj,
                            node: actor.node,
                            start: actor.start.ns().saturating_add(instance.delay),
                            stop: actor.stop.map(Time::ns),
                            threads: instance.threads,
                        });
                    }
                }
                Err(refusal) => {
                    let key = format!("{key}.{}", refusal.key);
                    errors.add(self.overrides.place(&key), key, refusal.why);
                }
            }
            if threads > THREADS {
                errors.add(self.overrides.place("actor"), "actor", too_many_threads());
                break;
            }
        }
        program.files = files.into_specs();
        if errors.count() == 0 {
            self.check_files(&program, &mut errors);
            self.check_role(&program, &mut errors);
        }
        errors.finish(self.overrides.sources()).map(|()| program)
    }

    fn check_files(&self, program: &Program, errors: &mut Collector) {
        let Some(size) = self.machine.disk.size else { return };
        let swap = match self.machine.swap.on {
            SwapOn::Disk => self.machine.swap.size.pages(),
            SwapOn::Own | SwapOn::Zram => 0,
        };
        let files: u64 = program.files.iter().map(|file| u64::from(file.pages)).sum();
        if files.saturating_add(swap) > size.pages() {
            let message = format!(
                "the disk has {size}, but the files{} need {}; write more, or make the files smaller",
                if swap > 0 { " and the swap on it" } else { "" },
                Size(Bytes::kib(files.saturating_add(swap).saturating_mul(4)))
            );
            errors.add(self.overrides.place("machine.disk.size"), "machine.disk.size", message);
        }
    }

    fn check_role(&self, program: &Program, errors: &mut Collector) {
        let Some(role) = &self.measure.role else { return };
        let measured =
            |process: &&Process| self.measure.actor.as_ref().is_none_or(|actor| *actor == process.name);
        let mut roles: Vec<&str> = program
            .processes
            .iter()
            .filter(measured)
            .flat_map(|process| process.threads.iter().map(|thread| thread.role))
            .collect();
        roles.sort_unstable();
        roles.dedup();
        if !roles.contains(&role.as_str()) {
            let message = crate::read::unknown_name(role, &roles);
            errors.add(self.overrides.place("measure.role"), "measure.role", message);
        }
    }

    /// Takes the costs of a record, unless the case asks for the model's own, and the kernel's memory if the
    /// case leaves that to be measured. What the case states stays; a cost that was not measured is
    /// estimated: [`MeasuredCosts::or_estimate`](crate::MeasuredCosts::or_estimate).
    ///
    /// # Errors
    /// If the case asks for another record, or for the kernel's memory, and the record is of a machine of
    /// another size.
    pub fn calibrate(&mut self, record: &Record) -> Result<(), Errors> {
        match self.calibration.record.as_deref() {
            Some(CalibrationSpec::DEFAULT) => return Ok(()),
            Some(name) if name != record.name => {
                let why = format!(
                    "there is no calibration record {}; there are {:?} and {:?}",
                    quoted(name),
                    record.name,
                    CalibrationSpec::DEFAULT
                );
                return Err(self.refuse("calibration.record", why));
            }
            _ => {}
        }
        for (name, cost) in record.costs.or_estimate() {
            self.calibration.costs.entry(name.to_owned()).or_insert(cost);
        }
        self.calibration.record = Some(record.name.clone());
        self.machine.take_kernel(record).map_err(|why| self.refuse("machine.kernel", why))
    }

    /// What things cost, by the name of the record.
    ///
    /// # Errors
    /// If the record is not there, and the case does not state every cost.
    pub fn costs(&self) -> Result<(&str, Costs), Errors> {
        let mut costs = Costs::default();
        let mut stated = 0;
        for (name, cost) in &self.calibration.costs {
            // The names have been checked.
            stated += usize::from(costs.set(name, cost.round().clamp(0.0, 1e15) as u64));
        }
        let name = self.calibration.record.as_deref().unwrap_or(CalibrationSpec::DEFAULT);
        if name != CalibrationSpec::DEFAULT && stated < Costs::NAMES.len() {
            let why = format!(
                "there is no calibration record {}; the model has {:?}, and others come from files \
                 (`lotsfree sim --calibration FILE`)",
                quoted(name),
                CalibrationSpec::DEFAULT
            );
            return Err(self.refuse("calibration.record", why));
        }
        Ok((name, costs))
    }

    /// An error about a key of this case, such as `calibration.fault`, with the place that its value
    /// came from: for what only the machine that runs the case can refuse.
    pub fn refuse(&self, key: &str, message: impl Into<String>) -> Errors {
        let mut errors = Collector::default();
        errors.add(self.overrides.place(key), key, message);
        match errors.finish(self.overrides.sources()) {
            Err(errors) => errors,
            Ok(()) => Errors::unreadable("", String::new()),
        }
    }

    /// Every key that a variant can change, dotted as there, with its value as TOML: `actor.copy.how`,
    /// `"direct"`. Settings come without `tuning.`.
    pub fn keys(&self) -> BTreeMap<String, String> {
        let mut keys = BTreeMap::new();
        for (section, value) in self.to_toml().parse::<toml::Table>().unwrap_or_default() {
            match (section.as_str(), value) {
                ("machine", value) => flatten("machine".to_owned(), value, &mut keys),
                ("tuning" | "calibration", toml::Value::Table(table)) => {
                    let prefix = if section == "tuning" { "" } else { "calibration." };
                    keys.extend(
                        table.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value.to_string())),
                    );
                }
                ("actor" | "file", toml::Value::Array(list)) => {
                    for one in list {
                        let name =
                            one.get("name").and_then(toml::Value::as_str).unwrap_or_default().to_owned();
                        flatten(format!("{section}.{name}"), one, &mut keys);
                    }
                }
                _ => {}
            }
        }
        if let Some(generation) = keys.remove("machine.generation") {
            keys.insert("generation".to_owned(), generation);
        }
        keys
    }

    /// Whether a text that [`to_toml`](Case::to_toml) wrote is of this case. Keys that the text lacks did not
    /// exist when it was written.
    pub fn is_written_as(&self, text: &str) -> bool {
        let (Ok(written), Ok(own)) = (text.parse::<toml::Table>(), self.to_toml().parse::<toml::Table>())
        else {
            return false;
        };
        within(&toml::Value::Table(written), &toml::Value::Table(own))
    }

    /// The case as a scenario of its own: every default written out, no variants, the sweep with one value.
    /// Reading it gives this case again.
    pub fn to_toml(&self) -> String {
        let resolved = Resolved {
            title: &self.title,
            source: self.source.as_deref(),
            seed: self.seed,
            duration: self.duration,
            interval: self.interval,
            base: &self.variant,
            machine: &self.machine,
            tuning: &self.tuning,
            measure: &self.measure,
            calibration: &self.calibration,
            sweep: self.sweep.as_ref().map(|point| ResolvedSweep {
                key: &point.key,
                title: point.title.as_deref(),
                unit: point.unit.as_deref(),
                values: [&self.overrides.sweep],
            }),
            file: &self.files,
            actor: self.actors.iter().map(ResolvedActor::new).collect(),
        };
        toml::to_string(&resolved).unwrap_or_default()
    }
}

/// Whether a value has all that another has.
fn within(part: &toml::Value, whole: &toml::Value) -> bool {
    use toml::Value::{Array, Table};
    match (part, whole) {
        (Table(part), Table(whole)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|other| within(value, other)))
        }
        (Array(part), Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(one, other)| within(one, other))
        }
        _ => part == whole,
    }
}

pub(crate) fn too_many_threads() -> String {
    format!("more than {THREADS} threads in all; a scenario has at most {THREADS}")
}

#[derive(Serialize)]
struct Resolved<'a> {
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    seed: u64,
    duration: Time,
    interval: Time,
    base: &'a str,
    machine: &'a MachineSpec,
    tuning: &'a TuningSpec,
    measure: &'a MeasureSpec,
    calibration: &'a CalibrationSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<ResolvedSweep<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    file: &'a [NamedFile],
    actor: Vec<ResolvedActor<'a>>,
}

#[derive(Serialize)]
struct ResolvedSweep<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a str>,
    values: [&'a Option<toml::Value>; 1],
}

#[derive(Serialize)]
struct ResolvedActor<'a> {
    name: &'a str,
    start: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    policy: &'a Placement,
    #[serde(rename = "oom-score-adj", skip_serializing_if = "is_zero")]
    oom_score_adj: i32,
    #[serde(flatten)]
    memory: Memory,
    #[serde(flatten)]
    parameters: &'a Actor,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

impl<'a> ResolvedActor<'a> {
    fn new(actor: &'a ScheduledActor) -> Self {
        ResolvedActor {
            name: &actor.name,
            start: actor.start,
            stop: actor.stop,
            node: actor.node,
            policy: &actor.policy,
            oom_score_adj: actor.oom_score_adj,
            memory: actor.memory,
            parameters: &actor.kind,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &[u32]| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        match self {
            Placement::Local => f.write_str("local"),
            Placement::Preferred(node) => write!(f, "preferred {node}"),
            Placement::Bind(nodes) => write!(f, "bind {}", list(nodes)),
            Placement::Interleave(nodes) if nodes.is_empty() => f.write_str("interleave"),
            Placement::Interleave(nodes) => write!(f, "interleave {}", list(nodes)),
        }
    }
}

impl FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Placement, String> {
        let wrong = || {
            format!(
                "{} is not a policy; write \"local\", \"preferred 0\", \"bind 0,1\", \"interleave\" or \
                 \"interleave 0,1\"",
                quoted(text)
            )
        };
        let (word, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let nodes = match rest.trim() {
            "" => Vec::new(),
            rest => {
                let numbers: Result<Vec<u32>, _> = rest.split(',').map(|node| node.trim().parse()).collect();
                let mut nodes = numbers.map_err(|_| wrong())?;
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
        };
        match (word, nodes.as_slice()) {
            ("local", []) => Ok(Placement::Local),
            ("preferred", [node]) => Ok(Placement::Preferred(*node)),
            ("bind", [_, ..]) => Ok(Placement::Bind(nodes)),
            ("interleave", _) => Ok(Placement::Interleave(nodes)),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for Placement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Placement, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Placement {
    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^\s*(local|preferred\s+[0-9]+|bind\s+[0-9]+(\s*,\s*[0-9]+)*|interleave(\s+[0-9]+(\s*,\s*[0-9]+)*)?)\s*$",
        })
    }
}

/// Adds a value, and those of a table under their own keys.
fn flatten(key: String, value: toml::Value, keys: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (part, value) in table {
                flatten(format!("{key}.{part}"), value, keys);
            }
        }
        value => {
            keys.insert(key, value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_and_print() {
        for (text, policy) in [
            ("local", Placement::Local),
            ("preferred 1", Placement::Preferred(1)),
            ("bind 0,1", Placement::Bind(vec![0, 1])),
            ("interleave", Placement::Interleave(vec![])),
            ("interleave 0,2", Placement::Interleave(vec![0, 2])),
        ] {
            assert_eq!(text.parse(), Ok(policy.clone()));
            assert_eq!(policy.to_string(), text);
        }
        assert_eq!("bind 1, 0,1".parse(), Ok(Placement::Bind(vec![0, 1])));
        for text in
            ["", "bind", "local 0", "preferred", "preferred 0,1", "bind x", "bind 0,", "bind -1", "all"]
        {
            assert!(text.parse::<Placement>().is_err(), "{text}");
        }
    }
}
