//! The reference page and the JSON Schema of the format, made from its types.

use lotsfree_workload::actor::Actor;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json, json};

use crate::case::{CalibrationSpec, NamedFile};
use crate::costs::Costs;
use crate::format::{ActorTable, Header, MeasureTable, Strategies, Strategy, SweepTable, schema_of};
use crate::generation::Generation;
use crate::machine::{Disk, MachineSpec, Swap, Zswap};
use crate::read::fields;
use crate::record::{Device, Provenance, Record, Touch, Whole};
use crate::scenario::{kind_fields, kind_schemas};
use crate::tuning;

/// A complete scenario, which the reference shows and a test reads.
const EXAMPLE: &str = include_str!("example.toml");

/// What `calibration.record` is.
const RECORD: &str =
    "which record the other costs are from: the model's own, or the name of one that was measured";

/// The JSON Schema (draft 2020-12) of a scenario file, for editors that know TOML.
pub fn schema() -> String {
    let mut root = schema_of::<Header>().to_value();
    let mut definitions = Map::new();
    let mut kinds = Vec::new();
    for (kind, schema) in kind_schemas() {
        kinds.push(actor(kind, schema.to_value(), &mut definitions));
    }
    if let Some(root) = root.as_object_mut() {
        let mut section = |name: &str, schema: Json| {
            if let Some(properties) = root.get_mut("properties").and_then(Json::as_object_mut) {
                properties.insert(name.to_owned(), schema);
            }
        };
        let any = json!({ "type": ["string", "integer", "number", "boolean", "array", "object"] });
        section(
            "tuning",
            json!({ "type": "object", "properties": tuning::schema(),
                    "description": "Kernel settings that differ from the defaults, by the kernel's names." }),
        );
        section(
            "actor",
            json!({ "type": "array", "items": { "oneOf": kinds }, "description": "What loads the machine." }),
        );
        section(
            "variant",
            json!({ "type": "array", "description": "The same with other values; every variant is a run of its own.",
                    "items": { "type": "object", "required": ["name"], "additionalProperties": any,
                               "properties": { "name": { "type": "string" } } } }),
        );
        let mut costs = Map::new();
        costs.insert("record".to_owned(), json!({ "type": "string", "description": RECORD }));
        for ((name, about), (_, default)) in Costs::about().zip(Costs::default().entries()) {
            let about = format!("Nanoseconds: {about}");
            costs.insert(
                name.to_owned(),
                json!({ "type": "number", "minimum": 0, "default": default, "description": about }),
            );
        }
        section(
            "calibration",
            json!({ "type": "object", "description": "What things cost in the model.",
                    "properties": costs, "additionalProperties": false }),
        );
        if let Some(own) = root.get_mut("$defs").and_then(Json::as_object_mut) {
            own.append(&mut definitions);
        }
    }
    let mut text = serde_json::to_string_pretty(&root).unwrap_or_default();
    text.push('\n');
    text
}

/// An actor of one kind: the keys of all actors and those of the kind in one table.
fn actor(kind: &str, schema: Json, definitions: &mut Map<String, Json>) -> Json {
    let mut common = schema_of::<ActorTable>().to_value();
    let mut own = schema;
    for each in [&mut common, &mut own] {
        if let Some(Json::Object(found)) = each.as_object_mut().and_then(|each| each.remove("$defs")) {
            definitions.extend(found);
        }
    }
    let mut properties = common.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
    properties.extend(own.get("properties").and_then(Json::as_object).cloned().unwrap_or_default());
    properties.insert("kind".to_owned(), json!({ "const": kind }));
    let required: Vec<Json> = [&common, &own]
        .iter()
        .filter_map(|each| each.get("required")?.as_array())
        .flatten()
        .cloned()
        .collect();
    json!({
        "type": "object", "title": kind, "description": own.get("description"), "properties": properties,
        "required": required, "additionalProperties": false,
    })
}

/// The reference page in Markdown.
pub fn document() -> String {
    let mut text = format!("{INTRODUCTION}{EXAMPLE}{QUANTITIES}");
    text += &table_of::<Header>();
    text += &machine();
    text += "\n## `[tuning]`\n\nKernel settings that differ from the kernel's defaults, by the kernel's names: sysctls, and files below \
             `/sys` with\ndots for slashes.\n\n";
    text += &tuning::document();
    text += "\n## `[[file]]`\n\nFiles that are on the disk when the run begins, with nothing of them in memory, for actors that name one. \
             Other\nfiles need no declaration.\n\n";
    text += &table_of::<NamedFile>();
    text += "\n## `[[actor]]`\n\nEach is a process, or several if its kind says so. These keys belong to every kind:\n\n";
    text += &table_of::<ActorTable>();
    text += &actors();
    text += VARIANTS;
    text += &description(&schema_of::<SweepTable>().to_value());
    text += "\n\n";
    text += &table_of::<SweepTable>();
    text += "\n## `[strategies]`\n\n";
    text += &description(&schema_of::<Strategies>().to_value());
    text += "\n\n";
    text += &table_of::<Strategies>();
    text += "\nEach `[[strategies.row]]` has\n\n";
    text += &table_of::<Strategy>();
    text += "\n## `[measure]`\n\n";
    text += &description(&schema_of::<MeasureTable>().to_value());
    text += "\n\n";
    text += &table_of::<MeasureTable>();
    text += &calibration();
    text
}

const INTRODUCTION: &str = "# Scenarios

Generated from `crates/scenario/src` by `cargo xtask docs`; change the types, not this page. Editors check and complete
scenarios with [the schema](schema/scenario-1.json).

A scenario is a TOML file that describes a machine, its kernel settings, what loads it and what is measured. The same file runs
on the model (`lotsfree sim`) and on a real kernel. Nothing is guessed: an unknown key, a value out of range or a machine that
cannot be is an error that names the file, line, column and key, and what would be accepted. A file has at most 1 MiB, 10,000
runs and 16,384 threads, of which the lab executes 4,096 at most.

## An example: my own host

A host with two NUMA nodes, a server whose heap fills half of the memory, and the nightly copy beside it. What is yours is in
`lscpu` (CPUs, nodes), `numactl --hardware` (sizes, distances), `lsblk` (disk) and `sysctl vm` (settings); `lotsfree sim --host`
prints a scenario of the host on which it runs, and `lotsfree sim --like FILE` one of a host of which FILE is a snapshot.

```toml
";

const QUANTITIES: &str = "```

## Quantities

| written as | means |
|---|---|
| size | a number with `B`, `KiB`, `MiB`, `GiB` or `TiB` in quotes: `\"10 MiB\"`, `\"1.5 GiB\"`. `K`, `KB`, `M`, `MB`, … mean the same powers of 1024 |
| time | a number with `ns`, `us`, `ms`, `s`, `min`, `h` or `d` in quotes: `\"200 ms\"` |
| bandwidth | a size per second: `\"200 MiB/s\"` |

Only 0 needs no unit: `\"0\"`.

## The scenario

";

const VARIANTS: &str = "
## `[[variant]]`

The same scenario with other values: a run of its own beside the scenario as it stands, which is the first and has the name that
`base` gives. A variant has a `name`, and the keys that it changes:

| key | changes |
|---|---|
| `\"vm.swappiness\"`, any setting | that setting |
| `generation` | the kernel |
| `machine.KEY`, such as `machine.swap.size` | the machine |
| `actor.NAME.KEY`, such as `actor.copy.how` | the actor of that name |
| `file.NAME.KEY` | the file of that name |
| `calibration.COST` | a cost |

A table in braces replaces what was there as a whole; dotted keys change one value of it. `lotsfree sim --set KEY=VALUE` takes the
same keys, and `title`, `seed`, `duration`, `interval`, `base`, `measure.KEY` and `sweep.KEY`. It counts in every variant, and is
refused where it would belie a name: of a variant that sets the same key, or that is named after it.

## `[sweep]`

";

fn machine() -> String {
    let mut text = String::new();
    text += "\n## `[machine]`\n\n";
    text += &table_of::<MachineSpec>();
    text += "\n### Generations\n\nA generation is a set of rules in the model and a kernel in the lab. For another kernel the newest one before it\ncomes closest (`\"linux-4.4\"` for 4.19), but may well answer otherwise: compare it with the one after it before you trust it. No generation stands for\n5.5 to 5.8: 5.8 and 5.9 changed how file and anonymous pages are balanced, and on `quickstart` `\"linux-5.4\"` and `\"linux-5.10\"` give\nopposite answers.\n\n";
    text += "| generation | is |\n|---|---|\n";
    for generation in Generation::all() {
        text += &format!("| `\"{generation}\"` | {} |\n", generation.about());
    }
    text += "\n### `machine.disk`\n\nWritten as a section `[machine.disk]` or in a line, `disk = { latency = \"8 ms\", … }`.\n\n";
    text += &table_of::<Disk>();
    text += "\n### `machine.swap`\n\n";
    text += &table_of::<Swap>();
    text += "\n### `machine.swap.zswap`\n\nWritten as a section `[machine.swap.zswap]` or in a line, `zswap = {}`.\n\n";
    text += &table_of::<Zswap>();
    text
}

fn actors() -> String {
    let mut text = String::new();
    for (kind, schema) in kind_schemas() {
        let schema = schema.to_value();
        let order = kind_fields(kind);
        text += &format!("\n### `kind = \"{kind}\"`\n\n{}\n\n", description(&schema));
        text += &table(&schema, order);
        text += &inner_tables(&schema);
        let roles = Actor::roles(kind).iter().map(|role| format!("`{role}`")).collect::<Vec<_>>().join(", ");
        text += &format!("\nRoles of its threads: {roles}.\n");
    }
    text
}

const COSTS: &str = "
## `[calibration]`

What things cost in the model, in nanoseconds of CPU time. Every key can be left out: then the record's value counts, or the
model's own.

| key | default | meaning |
|---|---|---|
";

const RECORDS: &str = "
### Records

`lotsfree lab calibrate -o FILE` measures the machine that it runs on, or with `--on vm` a virtual machine, and
`lotsfree sim SCENARIO --calibration FILE` takes the costs. What a scenario states wins over the record, and what could not be
measured is the model's own; `sim` says which. A measured value is a table with `median`, `lower` and `upper` quartile and the
number of `repetitions`.

";

fn calibration() -> String {
    let mut text = COSTS.to_owned();
    text += &format!("| `record` | `\"{}\"` | {RECORD} |\n", CalibrationSpec::DEFAULT);
    for ((name, about), (_, default)) in Costs::about().zip(Costs::default().entries()) {
        text += &format!("| `{name}` | `{default}` | {about} |\n");
    }
    text += RECORDS;
    text += &table_of::<Record>();
    for (name, table) in [
        ("provenance", table_of::<Provenance>()),
        ("disk` and `swap", table_of::<Device>()),
        ("machine", table_of::<Whole>()),
        ("touch", table_of::<Touch>()),
    ] {
        text += &format!("\n`{name}` of a record:\n\n{table}");
    }
    text
}

/// A type's own description.
fn description(schema: &Json) -> String {
    schema.get("description").and_then(Json::as_str).unwrap_or_default().to_owned()
}

/// The keys of a type.
fn table_of<T: JsonSchema + DeserializeOwned>() -> String {
    table(&schema_of::<T>().to_value(), fields::<T>())
}

/// The keys of a table in the order in which the type declares them, one per row.
fn table(schema: &Json, order: &[&str]) -> String {
    let mut text = "| key | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let properties = schema.get("properties").and_then(Json::as_object);
    for key in order {
        let Some(property) = properties.and_then(|properties| properties.get(*key)) else { continue };
        let default = match property.get("default") {
            _ if required.contains(key) => "required".to_owned(),
            None | Some(Json::Null) => "–".to_owned(),
            Some(Json::Object(_)) => "see below".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        let about = description(property).split('\n').collect::<Vec<_>>().join(" ").replace('|', "\\|");
        text +=
            &format!("| `{key}` | {} | {default} | {about} |\n", kind(property, schema).replace('|', "\\|"));
    }
    text
}

/// Types of a kind that have keys or words of their own.
fn inner_tables(schema: &Json) -> String {
    let mut text = String::new();
    for (name, definition) in schema.get("$defs").and_then(Json::as_object).into_iter().flatten() {
        let choices: Vec<(String, String)> = choices(definition);
        if choices.iter().any(|(_, about)| !about.is_empty()) {
            text += &format!(
                "\n{}:\n\n| {} | meaning |\n|---|---|\n",
                one_line(&description(definition)),
                lower(name)
            );
            for (word, about) in choices {
                text += &format!("| {word} | {} |\n", one_line(&about).replace('|', "\\|"));
            }
        }
    }
    text
}

fn lower(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn one_line(text: &str) -> String {
    text.trim_end_matches('.').split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of an enum with what they mean.
fn choices(schema: &Json) -> Vec<(String, String)> {
    let all = schema.get("oneOf").and_then(Json::as_array).into_iter().flatten();
    all.flat_map(|choice| {
        let about = description(choice);
        match (choice.get("const"), choice.get("enum").and_then(Json::as_array)) {
            (Some(word), _) => vec![(format!("`{word}`"), about)],
            (None, Some(words)) => words.iter().map(|word| (format!("`{word}`"), about.clone())).collect(),
            (None, None) => {
                let properties = choice.get("properties").and_then(Json::as_object);
                let keys = properties.into_iter().flatten().map(|(key, _)| format!("`{{ {key} = … }}`"));
                keys.map(|key| (key, about.clone())).collect()
            }
        }
    })
    .collect()
}

/// What a value is, in words.
fn kind(property: &Json, root: &Json) -> String {
    if let Some(name) = property.get("$ref").and_then(Json::as_str).and_then(|path| path.rsplit('/').next()) {
        let definition = root.get("$defs").and_then(|definitions| definitions.get(name));
        return match name {
            "Size" | "Time" | "Bandwidth" | "Generation" | "Policy" => lower(name),
            "Instant" => "time or `\"end\"`".to_owned(),
            _ => definition.map_or_else(|| lower(name), |definition| kind(definition, root)),
        };
    }
    let alternatives = |key: &str| property.get(key).and_then(Json::as_array);
    if let Some(all) = alternatives("anyOf") {
        let real = all.iter().filter(|each| each.get("type").and_then(Json::as_str) != Some("null"));
        return real.map(|each| kind(each, root)).collect::<Vec<_>>().join(", or ");
    }
    if alternatives("oneOf").is_some() {
        let words = choices(property);
        return words.into_iter().map(|(word, _)| word).collect::<Vec<_>>().join(", ");
    }
    if let Some(words) = alternatives("enum") {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(word) = property.get("const") {
        return format!("`{word}`");
    }
    let name = match property.get("type") {
        Some(Json::Array(types)) => types.iter().filter_map(Json::as_str).find(|name| *name != "null"),
        other => other.and_then(Json::as_str),
    };
    match name {
        Some("string") => "text".to_owned(),
        Some("integer") => "whole number".to_owned(),
        Some("number") => "number".to_owned(),
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("array") => {
            match (property.get("prefixItems").and_then(Json::as_array), property.get("items")) {
                (Some(items), _) => {
                    format!(
                        "list of {}",
                        items.iter().map(|item| kind(item, root)).collect::<Vec<_>>().join(" and ")
                    )
                }
                (None, Some(items)) if items.is_object() => format!("list of {}", plural(&kind(items, root))),
                _ => "list".to_owned(),
            }
        }
        Some("object") if property.get("title").is_none() => "table".to_owned(),
        Some(other) => other.to_owned(),
        None => "number or text".to_owned(),
    }
}

fn plural(name: &str) -> String {
    match name {
        "size" | "time" | "bandwidth" | "whole number" | "number" | "text" | "table" => format!("{name}s"),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Scenario;

    #[test]
    fn the_example_of_the_reference_runs() {
        let scenario = Scenario::parse(EXAMPLE, "my-host.toml").unwrap_or_else(|errors| panic!("{errors}"));
        let cases = scenario.cases(None).unwrap();
        assert_eq!(scenario.variants().collect::<Vec<_>>(), ["as it is", "swappiness 0", "direct", "6.12"]);
        assert_eq!(cases.len(), 12);
        for case in cases {
            assert_eq!(case.program().unwrap().processes.len(), 2);
        }
        assert!(document().contains(EXAMPLE));
    }

    #[test]
    fn the_roles_of_the_reference_are_those_of_the_threads() {
        let head = "title = \"t\"\nduration = \"1 s\"\n[machine]\ngeneration = \"linux-6.1\"\ncpus = 1\n\
                    nodes = [\"1 GiB\"]\n[[actor]]\nname = \"a\"\n";
        for (kind, keys) in [
            ("app-server", "heap = \"64 MiB\""),
            ("file-writer", "size = \"1 MiB\""),
            ("file-reader", "size = \"1 MiB\""),
            ("segment-store", "active = 2"),
            ("sessions", "processes = 2\nsegment = \"1 MiB\""),
            ("page-toucher", "size = \"1 MiB\""),
            ("allocator", "size = \"1 MiB\""),
            ("exec", "command = [\"true\"]"),
        ] {
            let scenario = Scenario::parse(&format!("{head}kind = \"{kind}\"\n{keys}"), "s.toml").unwrap();
            let program = scenario.cases(None).unwrap().remove(0).program().unwrap();
            let roles: BTreeSet<&str> =
                program.processes[0].threads.iter().map(|thread| thread.role).collect();
            assert_eq!(roles, Actor::roles(kind).iter().copied().collect(), "{kind}");
        }
    }

    #[test]
    fn the_reference_explains_every_key() {
        let text = document();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split(" | ").collect();
            let last = cells.last().unwrap().trim_end_matches('|').trim();
            assert!(last.len() > 4, "no meaning: {line}");
        }
        for name in tuning::names().chain(Actor::KINDS.iter().copied()) {
            assert!(text.contains(name), "{name}");
        }
    }
}
