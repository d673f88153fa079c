//! [`TuningSpec`]: kernel settings by the kernel's names, as the table of `settings` has them.

use std::collections::BTreeMap;

use lotsfree_settings::{ALL, Accepts, Initial, Release, Setting, Value, pairs};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use crate::document::{Entry, Node, Table, Value as Written};
use crate::error::{Collector, quoted};
use crate::generation::{Generation, Kernel};
use crate::read::unknown_key;

/// Settings that differ from the kernel's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TuningSpec {
    values: BTreeMap<&'static str, Value>,
}

impl TuningSpec {
    /// A setting; `None` where the scenario leaves it at the kernel's default.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// The settings in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }
}

impl Serialize for TuningSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = |value: &Value| match value {
            Value::Number(number) => Json::from(*number),
            Value::Word(_) | Value::Numbers(_) => Json::from(value.to_string()),
        };
        serializer.collect_map(self.values.iter().map(|(name, value)| (name, json(value))))
    }
}

/// The settings that a scenario may have, in the order of the reference page.
fn settings() -> impl Iterator<Item = &'static Setting> {
    ALL.iter().filter(|setting| setting.in_scenarios)
}

/// The names of all of them.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    settings().map(|setting| setting.name)
}

/// Whether a dotted key can only be meant as a setting.
pub(crate) fn is_setting(key: &str) -> bool {
    names().any(|name| name == key) || ["vm.", "kernel.", "block."].iter().any(|head| key.starts_with(head))
}

/// The value of a node, or what is wrong with it.
fn value(setting: &Setting, node: &Node, kernel: Kernel) -> Result<Value, String> {
    let accepts = setting.accepts(kernel.release());
    let wrong = |shown: String| format!("{shown} is not accepted by {}; write {accepts}", kernel.name());
    match (accepts, &node.value) {
        (Accepts::Range(..), Written::Integer(number)) => {
            let accepted = u64::try_from(*number).ok().filter(|number| accepts.takes(*number));
            accepted.map(Value::Number).ok_or_else(|| wrong(number.to_string()))
        }
        (Accepts::Words(_) | Accepts::Numbers(..), Written::Text(text)) => {
            accepts.read(text).ok_or_else(|| wrong(quoted(text)))
        }
        (_, Written::Text(text)) => Err(wrong(quoted(text))),
        (_, Written::Integer(number)) => Err(wrong(number.to_string())),
        (_, Written::Float(number)) => Err(wrong(number.to_string())),
        (_, Written::Bool(value)) => Err(wrong(value.to_string())),
        (_, other) => Err(wrong(other.kind().to_owned())),
    }
}

/// Reads settings; keys may be quoted names or nested tables.
pub(crate) fn read(table: &Table, generation: Generation, errors: &mut Collector) -> TuningSpec {
    let mut tuning = TuningSpec::default();
    for (name, entry) in flatten(table) {
        let key = format!("tuning.{name:?}");
        let Some(setting) = settings().find(|setting| setting.name == name) else {
            let known: Vec<&str> = names().collect();
            errors.add(entry.key_at, key, unknown_key(&name, &known));
            continue;
        };
        let kernel = generation.kernel;
        if !setting.is_in(kernel.release()) {
            let why = format!("{} does not have it; {} has", kernel.name(), kernels(setting));
            errors.add(entry.key_at, key, why);
            continue;
        }
        match value(setting, &entry.node, kernel) {
            Ok(value) => drop(tuning.values.insert(setting.name, value)),
            Err(message) => errors.add(entry.node.at, key, message),
        }
    }
    for (bytes, ratio) in pairs().map(|(later, earlier)| (later.name, earlier.name)) {
        if tuning.get(bytes).is_some() && tuning.get(ratio).is_some() {
            let at = flatten(table).find(|(name, _)| name == bytes).map(|(_, entry)| entry.key_at);
            let message = format!("the kernel keeps one of {bytes} and {ratio}; write one");
            errors.add(at.unwrap_or_default(), format!("tuning.{bytes:?}"), message);
        }
    }
    tuning
}

/// The values of a table by their dotted names, so that `vm.swappiness = 1` means `"vm.swappiness" = 1`. A
/// table in braces is a value.
pub(crate) fn flatten(table: &Table) -> impl Iterator<Item = (String, &Entry)> {
    let mut open: Vec<(String, &Entry)> =
        table.0.iter().rev().map(|entry| (entry.key.clone(), entry)).collect();
    std::iter::from_fn(move || {
        loop {
            let (name, entry) = open.pop()?;
            match &entry.node.value {
                Written::Table(inner) if !entry.node.inline => {
                    let leaves = inner.0.iter().rev().map(|entry| (format!("{name}.{}", entry.key), entry));
                    open.extend(leaves);
                }
                _ => return Some((name, entry)),
            }
        }
    })
}

/// The oldest kernel of a release or a newer one.
fn first_with(since: Release) -> Option<Kernel> {
    // RHEL 8 has settings of kernels that are newer than those after it.
    Kernel::all().filter(|&kernel| kernel != Kernel::Rhel8).find(|kernel| kernel.release() >= since)
}

/// The kernels that have a setting, in words.
fn kernels(setting: &Setting) -> String {
    let since = setting.since.and_then(first_with);
    let until =
        setting.until.and_then(|until| Kernel::all().filter(|kernel| kernel.release() <= until).last());
    match (since, until) {
        (None, None) => "every generation".to_owned(),
        (Some(since), None) => format!("{} and newer", since.name()),
        (None, Some(until)) => format!("{} and older", until.name()),
        (Some(since), Some(until)) => format!("{} to {}", since.name(), until.name()),
    }
}

/// What a setting accepts on the newest kernel, whose ranges are the widest.
fn newest(setting: &Setting) -> Accepts {
    setting.accepts(Release::NEWEST)
}

/// The schema of a value, which knows no generation.
fn value_schema(setting: &Setting) -> Json {
    match newest(setting) {
        Accepts::Words(words) => json!({ "type": "string", "enum": words }),
        Accepts::Numbers(..) => json!({ "type": "string", "pattern": r"^\s*[0-9]+(\s+[0-9]+)*\s*$" }),
        Accepts::Range(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
    }
}

/// The schema of `[tuning]`: its properties.
pub(crate) fn schema() -> Map<String, Json> {
    let mut properties = Map::new();
    for setting in settings() {
        let mut schema = value_schema(setting);
        if let Some(object) = schema.as_object_mut() {
            let about = setting.description();
            let (first, rest) = about.split_at_checked(1).unwrap_or_default();
            let about = format!("{}{rest} ({})", first.to_uppercase(), kernels(setting));
            object.insert("description".to_owned(), about.into());
        }
        properties.insert(setting.name.to_owned(), schema);
    }
    properties
}

/// The reference table of the settings, in Markdown.
pub(crate) fn document() -> String {
    let mut text = "| setting | accepts | default | kernels | meaning |\n|---|---|---|---|---|\n".to_owned();
    for setting in settings() {
        let (accepted, default) = (accepted(setting), default(setting));
        let (kernels, about) = (kernels(setting), setting.description());
        text += &format!("| `\"{}\"` | {accepted} | {default} | {kernels} | {about} |\n", setting.name);
    }
    text
}

/// ` from linux-6.1`; nothing for the oldest.
fn from(since: Release) -> String {
    let first = first_with(since).filter(|_| since > Release::ANY);
    first.map(|kernel| format!(" from {}", kernel.name())).unwrap_or_default()
}

/// What a setting accepts, in Markdown.
fn accepted(setting: &Setting) -> String {
    const INT: u64 = i32::MAX as u64;
    const LONG: u64 = i64::MAX as u64;
    let range = |low: u64, high: u64| match high {
        LONG => format!("{low} on"),
        INT => format!("{low} to 2³¹ − 1"),
        high => format!("{low} to {high}"),
    };
    let since = |word: &str| {
        let has = |accepts: &Accepts| matches!(accepts, Accepts::Words(words) if words.contains(&word));
        setting.accepts.iter().find(|(_, accepts)| has(accepts)).map_or(Release::ANY, |(since, _)| *since)
    };
    match newest(setting) {
        Accepts::Range(..) => {
            let part = |(since, accepts): &(Release, Accepts)| match accepts {
                Accepts::Range(low, high) => range(*low, *high) + &from(*since),
                Accepts::Words(_) | Accepts::Numbers(..) => accepts.to_string(),
            };
            setting.accepts.iter().map(part).collect::<Vec<_>>().join("; ")
        }
        Accepts::Words(words) => {
            let word = |word: &&str| match from(since(word)).trim_start() {
                "" => format!("`\"{word}\"`"),
                from => format!("`\"{word}\"` ({from})"),
            };
            words.iter().map(word).collect::<Vec<_>>().join(", ")
        }
        Accepts::Numbers(most, ..) => format!("up to {most} numbers, such as `\"256 256 32\"`"),
    }
}

/// What a setting is unless somebody sets it, in Markdown.
fn default(setting: &Setting) -> String {
    let part = |(since, default): &(Release, Initial)| {
        let text = match default {
            Initial::Number(number) if *number > i64::MAX as u64 => "no limit".to_owned(),
            Initial::Number(number) => number.to_string(),
            Initial::Text(text) => format!("`\"{text}\"`"),
            Initial::Computed(how) => (*how).to_owned(),
        };
        text + &from(*since)
    };
    setting.default.iter().map(part).collect::<Vec<_>>().join("; ")
}
