//! [`Scenario`]: a scenario file, checked, and the cases that it stands for.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lotsfree_workload::Memory;
use lotsfree_workload::actor::{self, Actor as Kind};
use lotsfree_workload::quantity::{Bandwidth, Size, Time};

use crate::case::{
    CalibrationSpec, Case, MeasureSpec, NamedFile, Placement, ScheduledActor, SweepPoint, THREADS,
    too_many_threads,
};
use crate::costs::Costs;
use crate::document::{Document, Entry, LARGEST, Node, Place, Source, Table, Value};
use crate::error::{Collector, Errors, quoted, suggestion};
use crate::format::{ActorTable, Header, Instant, MeasureTable, Strategies, SweepTable};
use crate::machine::{MachineSpec, machine};
use crate::read::{fields, read, unknown_key, unknown_name};
use crate::tuning;

mod names;

/// Most runs of a scenario.
const CASES: usize = 10_000;
/// Most values that all cases together may have: a bound for the work that a file can ask for.
const WORK: usize = 2_000_000;
/// Most threads, as a sum of what actors ask for.
const MOST_THREADS: u64 = THREADS as u64;
/// Longest run: 30 days.
const LONGEST: Time = Time::s(30 * 86_400);
/// Most samples of a run.
const SAMPLES: u64 = 10_000_000;
/// Longest name of an actor or a variant, in characters.
const NAME: usize = 60;
/// Name of the scenario as it stands, unless its key `base` gives another.
const BASE: &str = "base";

/// A scenario file whose every case has been checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    shared: Arc<Shared>,
}

/// What all cases refer to.
#[derive(Debug)]
struct Shared {
    document: Document,
    sets: Vec<Set>,
    base: String,
    variants: Vec<Variant>,
    sweep: Option<Sweep>,
    strategies: Option<Strategies>,
    directory: PathBuf,
}

/// Sections of a file that are about its cases, and in none of them.
const SPANNING: [&str; 3] = ["variant", "sweep", "strategies"];

/// A value that an override puts at a key.
#[derive(Clone, Debug)]
struct Set {
    key: String,
    at: Place,
    node: Node,
}

#[derive(Clone, Debug)]
struct Variant {
    name: String,
    sets: Vec<Set>,
}

#[derive(Clone, Debug)]
struct Sweep {
    table: SweepTable,
    key_at: Place,
    values: Vec<Node>,
}

/// What makes a case of the document; enough to find where each of its values is from.
#[derive(Clone, Debug)]
pub(crate) struct Overrides {
    shared: Arc<Shared>,
    variant: Option<usize>,
    point: Option<usize>,
    /// The value that the sweep sets.
    pub(crate) sweep: Option<toml::Value>,
}

impl Overrides {
    /// Where the value of a dotted key is from, or of what is nearest above it.
    pub(crate) fn place(&self, key: &str) -> Place {
        let root = self.shared.resolve(self.variant, self.point, &mut Collector::default());
        let Ok(path) = path(&root, key) else { return Place::default() };
        find(&root, &path)
    }

    pub(crate) fn sources(&self) -> &[Source] {
        &self.shared.document.sources
    }

    /// Where relative paths start.
    pub(crate) fn directory(&self) -> &Path {
        &self.shared.directory
    }
}

impl Scenario {
    /// Reads a scenario and checks every case of it. `file` is its name in errors; paths in the scenario are
    /// relative to its directory.
    ///
    /// # Errors
    /// Everything that is wrong with it, in the order of the text.
    pub fn parse(text: &str, file: &str) -> Result<Scenario, Errors> {
        let directory = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
        Scenario::check(Document::parse(text, file)?, Vec::new(), directory, None)
    }

    /// Reads a scenario file of at most 1 MiB.
    ///
    /// # Errors
    /// If the file cannot be read, or as [`Scenario::parse`].
    pub fn load(path: &Path) -> Result<Scenario, Errors> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let limit = u64::try_from(LARGEST).unwrap_or(u64::MAX).saturating_add(1);
        lotsfree_storage::open_regular(path)
            .and_then(|file| file.take(limit).read_to_end(&mut bytes))
            .map_err(|error| Errors::unreadable(&name, error.to_string()))?;
        let text = String::from_utf8(bytes)
            .map_err(|error| Errors::unreadable(&name, format!("not UTF-8 text: {error}")))?;
        Scenario::parse(&text, &name)
    }

    /// The scenario with overrides, as `--set KEY=VALUE` gives them: they count in every variant. A value is
    /// TOML, or a text if it is not. Keys are those of the file, dotted; settings may leave out `tuning.`,
    /// the generation `machine.`.
    ///
    /// # Errors
    /// If a key does not exist or the scenario cannot be with the new value.
    pub fn with(&self, overrides: &[(&str, &str)]) -> Result<Scenario, Errors> {
        self.with_for(overrides, None)
    }

    /// As [`Scenario::with`], for variants of these names alone: what the overrides make of others does not
    /// count.
    ///
    /// # Errors
    /// As [`Scenario::with`].
    pub fn with_for(
        &self,
        overrides: &[(&str, &str)],
        variants: Option<&[String]>,
    ) -> Result<Scenario, Errors> {
        let mut document = self.shared.document.clone();
        let mut sets = self.shared.sets.clone();
        for (key, value) in overrides {
            let node = document.add_set(key, value)?;
            let at = Place { start: 0, ..node.at };
            sets.push(Set { key: key.trim().to_owned(), at, node });
        }
        Scenario::check(document, sets, self.shared.directory.clone(), variants)
    }

    /// The title.
    pub fn title(&self) -> String {
        match self.shared.document.root.get("title").map(|node| &node.value) {
            Some(Value::Text(title)) => title.clone(),
            _ => String::new(),
        }
    }

    /// The names of the variants, that of the scenario as it stands first.
    pub fn variants(&self) -> impl Iterator<Item = &str> {
        let variants = self.shared.variants.iter().map(|variant| variant.name.as_str());
        std::iter::once(self.shared.base.as_str()).chain(variants)
    }

    /// Its table of strategies.
    pub fn strategies(&self) -> Option<&Strategies> {
        self.shared.strategies.as_ref()
    }

    /// The cases: every variant (or those of these names, in the order of the file) at every value of the
    /// sweep.
    ///
    /// # Errors
    /// If there is no variant of a name.
    pub fn cases(&self, variants: Option<&[String]>) -> Result<Vec<Case>, Errors> {
        let mut errors = Collector::default();
        if let Some(names) = variants {
            let known: Vec<&str> = self.variants().collect();
            for name in names.iter().filter(|name| !known.contains(&name.as_str())) {
                let at = self.shared.document.root.entry("variant").map_or(Place::default(), |e| e.key_at);
                errors.add(at, "variant", unknown_name(name, &known));
            }
        }
        let wanted = |name: &str| variants.is_none_or(|names| names.iter().any(|wanted| wanted == name));
        let cases = if errors.count() == 0 { self.resolve(&wanted, &mut errors) } else { Vec::new() };
        errors.finish(&self.shared.document.sources).map(|()| cases)
    }

    /// Reads what spans cases, and every case, or those of these variants, once.
    fn check(
        document: Document,
        sets: Vec<Set>,
        directory: PathBuf,
        names: Option<&[String]>,
    ) -> Result<Scenario, Errors> {
        let mut errors = Collector::default();
        let mut document = document;
        normalize(&mut document.root, &mut errors);
        let mut top = document.root.clone();
        for set in &sets {
            set.apply(&mut top, &mut errors);
        }
        let base = base(&top);
        let variants = variants(&document.root, &base, &mut errors);
        let sweep = sweep(&top, &mut errors);
        let before = errors.count();
        check_sweep(&top, sweep.as_ref(), &variants, &sets, &mut errors);
        let sweep = sweep.filter(|_| errors.count() == before);
        let strategies = strategies(&top, &base, &variants, sweep.as_ref(), &mut errors);
        let shared = Arc::new(Shared { document, sets, base, variants, sweep, strategies, directory });
        let scenario = Scenario { shared };
        if scenario.bounded(&top, &mut errors) {
            let wanted = |name: &str| names.is_none_or(|names| names.iter().any(|wanted| wanted == name));
            drop(scenario.resolve(&wanted, &mut errors));
        }
        errors.finish(&scenario.shared.document.sources).map(|()| scenario)
    }

    /// Whether the cases are few enough to look at.
    fn bounded(&self, top: &Table, errors: &mut Collector) -> bool {
        let shared = &self.shared;
        let variants = shared.variants.len() + 1;
        let values = shared.sweep.as_ref().map_or(1, |sweep| sweep.values.len().max(1));
        let place = |key| top.entry(key).map_or(Place::default(), |entry| entry.key_at);
        let cases = variants.saturating_mul(values);
        if cases > CASES {
            let message = format!(
                "{variants} variants (the scenario as it stands is one) at {values} values of the sweep are {cases} runs; a scenario has at most {CASES}"
            );
            errors.add(place(if values > variants { "sweep" } else { "variant" }), "", message);
            return false;
        }
        let actors = match top.get("actor").map(|node| &node.value) {
            Some(Value::List(actors)) => actors.len(),
            _ => 0,
        };
        if actors > THREADS {
            errors.add(place("actor"), "actor", format!("{actors} actors: {}", too_many_threads()));
            return false;
        }
        let sections = top.0.iter().filter(|entry| !SPANNING.contains(&entry.key.as_str()));
        let weight: usize = sections.map(|entry| entry.node.weight()).sum();
        if weight.saturating_mul(cases) > WORK {
            let message = format!(
                "{cases} runs with {weight} values each are too much to look at; at most {WORK} values in all"
            );
            errors.add(Place::default(), "", message);
            return false;
        }
        true
    }

    fn resolve(&self, wanted: &dyn Fn(&str) -> bool, errors: &mut Collector) -> Vec<Case> {
        let shared = &self.shared;
        let points = shared.sweep.as_ref().map_or(0, |sweep| sweep.values.len());
        let mut cases = Vec::new();
        let variants = std::iter::once(None).chain((0..shared.variants.len()).map(Some));
        for variant in variants {
            let named = variant.and_then(|index| shared.variants.get(index));
            let name = named.map_or(&shared.base, |variant| &variant.name);
            if !wanted(name) {
                continue;
            }
            let points: Vec<Option<usize>> = match points {
                0 => vec![None],
                _ => (0..points).map(Some).collect(),
            };
            for point in points {
                if errors.full() {
                    return cases;
                }
                let value = point.and_then(|index| shared.sweep.as_ref()?.point(index));
                let mut case = named.map(|variant| format!("in variant {}", quoted(&variant.name)));
                if let Some((point, _)) = value.as_ref().filter(|_| point != Some(0)) {
                    let at = format!("at {} = {}", point.key, point.label);
                    case = Some(case.map_or(at.clone(), |case| format!("{case} {at}")));
                }
                errors.enter(case);
                let (sweep, sweep_value) = value.unzip();
                let overrides = Overrides { shared: Arc::clone(shared), variant, point, sweep: sweep_value };
                let root = shared.resolve(variant, point, errors);
                cases.extend(read_case(&root, name, sweep, overrides, errors));
            }
        }
        errors.enter(None);
        cases
    }
}

impl Shared {
    /// The document of a case: without the sections that span cases, with the overrides in it.
    fn resolve(&self, variant: Option<usize>, point: Option<usize>, errors: &mut Collector) -> Table {
        let sections = self.document.root.0.iter();
        let is_of_cases = |entry: &&Entry| !SPANNING.contains(&entry.key.as_str());
        let mut root = Table(sections.filter(is_of_cases).cloned().collect());
        if let Some(variant) = variant.and_then(|index| self.variants.get(index)) {
            for set in &variant.sets {
                set.apply(&mut root, errors);
            }
        }
        if let Some(sweep) = &self.sweep
            && let Some(node) = point.and_then(|index| sweep.values.get(index))
        {
            let set = Set { key: sweep.table.key.clone(), at: node.at, node: node.clone() };
            set.apply(&mut root, errors);
        }
        for set in self.sets.iter().filter(|set| !set.key.starts_with("sweep.")) {
            set.apply(&mut root, errors);
        }
        root
    }
}

impl Set {
    fn apply(&self, root: &mut Table, errors: &mut Collector) {
        let path = match path(root, &self.key) {
            Ok(path) => path,
            Err(message) => return errors.add(self.at, self.key.clone(), message),
        };
        let mut parts: Vec<&str> = path.iter().map(String::as_str).collect();
        let mut table = root;
        if let [list @ ("actor" | "file"), name, ..] = parts.as_slice() {
            let Some(inner) = named_mut(table, list, name) else { return };
            table = inner;
            parts.drain(..2);
        }
        if let Err(depth) = table.set(&parts, self.at, self.node.clone()) {
            let taken = path.get(..path.len() - parts.len() + depth).unwrap_or_default().join(".");
            errors.add(self.at, self.key.clone(), format!("{taken} is not a table that could have this key"));
        }
    }
}

/// The parts of a dotted key in the document: settings and costs are one part, though they have dots.
fn path(root: &Table, key: &str) -> Result<Vec<String>, String> {
    let part = |text: &str| text.to_owned();
    let setting = key.strip_prefix("tuning.").map(|name| name.trim_matches('"'));
    if let Some(name) = setting.or_else(|| tuning::is_setting(key).then_some(key)) {
        return Ok(vec![part("tuning"), part(name)]);
    }
    if key == "generation" {
        return Ok(vec![part("machine"), part(key)]);
    }
    if let Some(cost) = key.strip_prefix("calibration.") {
        return Ok(vec![part("calibration"), part(cost)]);
    }
    let parts: Vec<String> = key.split('.').map(part).collect();
    let head = parts.first().map_or("", String::as_str);
    match (head, parts.len()) {
        ("title" | "source" | "seed" | "duration" | "interval" | "base", 1) => Ok(parts),
        ("machine" | "measure" | "sweep", 2..) if !parts.iter().any(String::is_empty) => Ok(parts),
        ("actor" | "file", 3..) if !parts.iter().any(String::is_empty) => {
            let name = parts.get(1).map_or("", String::as_str);
            let names: Vec<&str> = named(root, head).filter_map(name_of).collect();
            match names.as_slice() {
                names if names.contains(&name) => Ok(parts),
                [] => Err(format!("there is no {head}")),
                names => Err(format!("the {head} {}", unknown_name(name, names))),
            }
        }
        _ => {
            let close = similar(key, &["seed", "duration", "interval", "title", "source", "base"]);
            Err(format!("not a key that can be overridden{close}{KEYS}"))
        }
    }
}

/// The keys that variants, sweeps and `--set` can change.
const KEYS: &str = "machine.KEY, actor.NAME.KEY, file.NAME.KEY, calibration.COST, generation or a setting such \
                    as vm.swappiness";

/// What a key that cannot be overridden may have been meant to be: a setting, with or without its first part,
/// or one of these; then the words before what is accepted.
fn similar(key: &str, others: &[&'static str]) -> String {
    let whole = suggestion(key, tuning::names().chain(others.iter().copied()).chain(["generation"]));
    let tail = |name: &'static str| name.split_once('.').map_or(name, |(_, tail)| tail);
    let by_tail = || {
        let close = suggestion(key, tuning::names().map(tail));
        let name = tuning::names().find(|name| close.contains(&format!("{:?}", tail(name))));
        name.map_or(String::new(), |name| format!("; did you mean {name:?}?"))
    };
    let close = if whole.is_empty() { by_tail() } else { whole };
    if close.is_empty() { "; write ".to_owned() } else { format!("{close} Write ") }
}

/// The tables of a list whose tables have names.
fn named<'a>(root: &'a Table, list: &str) -> impl Iterator<Item = &'a Table> {
    let list = match root.get(list).map(|node| &node.value) {
        Some(Value::List(list)) => list.as_slice(),
        _ => &[],
    };
    list.iter().filter_map(Node::table)
}

fn name_of(table: &Table) -> Option<&str> {
    match table.get("name").map(|node| &node.value) {
        Some(Value::Text(name)) => Some(name),
        _ => None,
    }
}

fn named_mut<'a>(root: &'a mut Table, list: &str, name: &str) -> Option<&'a mut Table> {
    let entry = root.0.iter_mut().find(|entry| entry.key == list)?;
    let Value::List(list) = &mut entry.node.value else { return None };
    list.iter_mut().find_map(|node| match &mut node.value {
        Value::Table(table) if name_of(table) == Some(name) => Some(table),
        _ => None,
    })
}

/// Where a value is from, or what is nearest above it.
fn find(root: &Table, path: &[String]) -> Place {
    let mut place = Place::default();
    let mut table = root;
    let mut rest = path;
    if let [head, name, inner @ ..] = path
        && ["actor", "file"].contains(&head.as_str())
    {
        let Some(Value::List(list)) = root.get(head).map(|node| &node.value) else { return place };
        let actor = list.iter().find(|node| node.table().and_then(name_of) == Some(name));
        let Some((node, actor)) = actor.and_then(|node| Some((node, node.table()?))) else { return place };
        (place, table, rest) = (node.at, actor, inner);
    }
    for part in rest {
        let Some(node) = table.get(part) else { return place };
        place = node.at;
        match node.table() {
            Some(inner) => table = inner,
            None => return place,
        }
    }
    place
}

/// Gives settings and costs one entry each under their dotted names, however they were nested.
fn normalize(root: &mut Table, errors: &mut Collector) {
    for section in ["tuning", "calibration"] {
        let Some(entry) = root.0.iter_mut().find(|entry| entry.key == section) else { continue };
        let Some(table) = entry.node.table() else { continue };
        let mut seen = BTreeSet::new();
        let mut flat = Vec::new();
        for (key, leaf) in tuning::flatten(table) {
            if seen.insert(key.clone()) {
                flat.push(Entry { key, ..leaf.clone() });
            } else {
                errors.add(leaf.key_at, format!("{section}.{key:?}"), "given twice; write it once");
            }
        }
        entry.node.value = Value::Table(Table(flat));
    }
}

fn base(top: &Table) -> String {
    match top.get("base").map(|node| &node.value) {
        Some(Value::Text(name)) => name.clone(),
        _ => BASE.to_owned(),
    }
}

/// What is wrong with a name that a run's directory and `--variant` use.
fn check_name(name: &str) -> Option<String> {
    let bad = name.chars().any(|c| c.is_control() || c == '/');
    (name.trim().is_empty() || bad || name.chars().count() > NAME || name.starts_with('.')).then(|| {
        format!(
            "{} is not a name; write 1 to {NAME} characters without '/' and control characters, not beginning \
             with '.'",
            quoted(name)
        )
    })
}

fn variants(root: &Table, base: &str, errors: &mut Collector) -> Vec<Variant> {
    let Some(node) = root.get("variant") else { return Vec::new() };
    let Value::List(list) = &node.value else {
        errors.add(node.at, "variant", format!("this is {}; write [[variant]]", node.value.kind()));
        return Vec::new();
    };
    let mut variants: Vec<Variant> = Vec::new();
    let mut names: BTreeSet<&str> = BTreeSet::from([base]);
    for (number, node) in list.iter().enumerate() {
        let key = format!("variant[{number}]");
        let Some(table) = node.table() else {
            errors.add(node.at, key, format!("this is {}; write [[variant]]", node.value.kind()));
            continue;
        };
        let name = match table.get("name").map(|name| (&name.value, name.at)) {
            Some((Value::Text(name), at)) => {
                if let Some(wrong) = check_name(name) {
                    errors.add(at, format!("{key}.name"), wrong);
                } else if !names.insert(name) {
                    let whose =
                        if name == base { "the scenario as it stands (key base)" } else { "a variant" };
                    let message = format!("{} is already the name of {whose}; write another", quoted(name));
                    errors.add(at, format!("{key}.name"), message);
                }
                name
            }
            Some((other, at)) => {
                errors.add(
                    at,
                    format!("{key}.name"),
                    format!("this is {}; write a text in quotes", other.kind()),
                );
                continue;
            }
            None => {
                errors.add(node.at, format!("{key}.name"), "missing; a variant has a name");
                continue;
            }
        };
        let mut sets = Vec::new();
        for (key, entry) in tuning::flatten(table).filter(|(key, _)| key != "name") {
            let head = key.split('.').next().unwrap_or_default();
            let known = ["machine", "actor", "file", "tuning", "calibration", "generation"].contains(&head);
            if !known && !tuning::is_setting(&key) {
                let close = similar(&key, &["name"]);
                let message = format!("not a key that a variant can override{close}{KEYS}");
                errors.add(entry.key_at, format!("variant.{key}"), message);
                continue;
            }
            sets.push(Set { key, at: entry.key_at, node: entry.node.clone() });
        }
        variants.push(Variant { name: name.clone(), sets });
    }
    variants
}

fn sweep(top: &Table, errors: &mut Collector) -> Option<Sweep> {
    let entry = top.entry("sweep")?;
    let table: SweepTable = read(&entry.node, "sweep", errors)?;
    let inner = entry.node.table()?;
    let key_at = inner.get("key").map_or(entry.key_at, |node| node.at);
    let (values, at) = match inner.get("values").map(|node| (&node.value, node.at)) {
        Some((Value::List(values), at)) => (values.clone(), at),
        _ => return None,
    };
    if values.is_empty() {
        errors.add(at, "sweep.values", "the list is empty; write one value or more");
        return None;
    }
    for (number, node) in values.iter().enumerate() {
        if matches!(node.value, Value::Table(_) | Value::List(_)) {
            let message = format!("this is {}; write a number or a text", node.value.kind());
            errors.add(node.at, format!("sweep.values[{number}]"), message);
        }
    }
    if let Some(unit) = &table.unit {
        for (number, node) in values.iter().enumerate() {
            if let Value::Text(text) = &node.value
                && quantity(text, Some(unit)).is_none()
            {
                let message =
                    format!("{} cannot be given in {}; write another unit", quoted(text), quoted(unit));
                errors.add(node.at, format!("sweep.values[{number}]"), message);
            }
        }
    }
    Some(Sweep { table, key_at, values })
}

/// Refuses a key that cannot be swept, and one that somebody else sets too.
fn check_sweep(
    top: &Table,
    sweep: Option<&Sweep>,
    variants: &[Variant],
    sets: &[Set],
    errors: &mut Collector,
) {
    let Some(sweep) = sweep else { return };
    let key = &sweep.table.key;
    let head = key.split('.').next().unwrap_or_default();
    if !["machine", "actor", "file", "tuning", "calibration", "generation"].contains(&head)
        && !tuning::is_setting(key)
    {
        let message = format!("{} is not a key that can be swept{}{KEYS}", quoted(key), similar(key, &[]));
        errors.add(sweep.key_at, "sweep.key", message);
    } else if let Err(message) = path(top, key) {
        errors.add(sweep.key_at, "sweep.key", message);
    }
    let plain = |key: &str| key.strip_prefix("tuning.").unwrap_or(key).to_owned();
    for variant in variants {
        if let Some(set) = variant.sets.iter().find(|set| plain(&set.key) == plain(key)) {
            let message = format!("the sweep sets this key in every variant, {} too", quoted(&variant.name));
            errors.add(set.at, set.key.clone(), message);
        }
    }
    if let Some(set) = sets.iter().find(|set| plain(&set.key) == plain(key)) {
        errors.add(set.at, set.key.clone(), "the sweep sets this key; set sweep.values instead");
    }
}

impl Sweep {
    /// A value of the sweep, and how it is written.
    fn point(&self, index: usize) -> Option<(SweepPoint, toml::Value)> {
        let node = self.values.get(index)?;
        let unit = self.table.unit.as_deref();
        let (label, number, value) = match &node.value {
            Value::Text(text) => {
                let number = quantity(text, unit).unwrap_or(index as f64);
                (text.clone(), number, toml::Value::String(text.clone()))
            }
            Value::Integer(number) => (number.to_string(), *number as f64, toml::Value::Integer(*number)),
            Value::Float(number) => (number.to_string(), *number, toml::Value::Float(*number)),
            Value::Bool(value) => {
                (value.to_string(), f64::from(u8::from(*value)), toml::Value::Boolean(*value))
            }
            Value::List(_) | Value::Table(_) => return None,
        };
        let point = SweepPoint {
            key: self.table.key.clone(),
            title: self.table.title.clone(),
            unit: self.table.unit.clone(),
            label,
            number,
        };
        Some((point, value))
    }
}

/// The table of strategies, whose variants, value of the sweep and actor there are.
fn strategies(
    top: &Table,
    base: &str,
    variants: &[Variant],
    sweep: Option<&Sweep>,
    errors: &mut Collector,
) -> Option<Strategies> {
    let node = top.get("strategies")?;
    let table: Strategies = read(node, "strategies", errors)?;
    let before = errors.count();
    let points: Vec<String> = sweep.map_or_else(Vec::new, |sweep| {
        (0..sweep.values.len()).filter_map(|index| Some(sweep.point(index)?.0.label)).collect()
    });
    let points: Vec<&str> = points.iter().map(String::as_str).collect();
    let names: Vec<&str> = std::iter::once(base).chain(variants.iter().map(|v| v.name.as_str())).collect();
    let actors: Vec<&str> = named(top, "actor").filter_map(name_of).collect();
    let mut check = |at: Place, key: String, name: &str, known: &[&str]| {
        if !known.contains(&name) {
            errors.add(at, key, unknown_name(name, known));
        }
    };
    let of_table = |key: &str| node.table().and_then(|table| table.get(key)).map_or(node.at, |node| node.at);
    if let Some(from) = &table.from {
        check(of_table("from"), "strategies.from".to_owned(), from, &actors);
    }
    if let Some(at) = &table.at {
        check(of_table("at"), "strategies.at".to_owned(), at, &points);
    }
    let rows = match node.table().and_then(|table| table.get("row")).map(|node| &node.value) {
        Some(Value::List(rows)) => rows.as_slice(),
        _ => &[],
    };
    for (number, (row, node)) in table.row.iter().zip(rows).enumerate() {
        let of_row = |key: &str| node.table().and_then(|row| row.get(key)).map_or(node.at, |node| node.at);
        let key = |key: &str| format!("strategies.row[{number}].{key}");
        check(of_row("variant"), key("variant"), &row.variant, &names);
        check(of_row("without"), key("without"), &row.without, &names);
        if let Some(at) = &row.at {
            check(of_row("at"), key("at"), at, &points);
        }
    }
    if sweep.is_some() && table.row.iter().any(|row| table.point(row).is_none()) {
        errors.add(node.at, "strategies.at", "missing; the scenario has a sweep: write one of its values");
    }
    (errors.count() == before).then_some(table)
}

/// A text as a number of units; without a unit of bytes, nanoseconds or bytes per second.
fn quantity(text: &str, unit: Option<&str>) -> Option<f64> {
    let one = unit.map(|unit| format!("1 {unit}"));
    let ratio = |value: Option<u64>, unit: Option<Option<u64>>| match (value?, unit) {
        (value, None) => Some(value as f64),
        (value, Some(unit)) => unit.filter(|unit| *unit > 0).map(|unit| value as f64 / unit as f64),
    };
    let size = |text: &str| text.parse::<Size>().ok().map(Size::bytes);
    let time = |text: &str| text.parse::<Time>().ok().map(Time::ns);
    let rate = |text: &str| text.parse::<Bandwidth>().ok().map(Bandwidth::bytes);
    ratio(size(text), one.as_deref().map(size))
        .or_else(|| ratio(time(text), one.as_deref().map(time)))
        .or_else(|| ratio(rate(text), one.as_deref().map(rate)))
}

/// Reads one case.
fn read_case(
    root: &Table,
    variant: &str,
    sweep: Option<SweepPoint>,
    overrides: Overrides,
    errors: &mut Collector,
) -> Option<Case> {
    let before = errors.count();
    let node = Node { value: Value::Table(root.clone()), at: Place::default(), inline: false, raw: None };
    let header: Option<Header> = read(&node, "", errors);
    let place = |key: &str| root.get(key).map_or(Place::default(), |node| node.at);
    // Times are compared with the duration only if there can be such a one.
    let duration = header.as_ref().and_then(|header| check_header(header, &place, errors));
    let machine = root.get("machine").and_then(|node| machine(node, errors));
    let table = |key: &str, errors: &mut Collector| {
        let node = root.get(key)?;
        if node.table().is_none() {
            errors.add(node.at, key, format!("this is {}; write a table", node.value.kind()));
        }
        node.table()
    };
    let tuning = table("tuning", errors);
    let tuning = match (tuning, &machine) {
        (Some(tuning), Some(machine)) => tuning::read(tuning, machine.generation, errors),
        _ => tuning::TuningSpec::default(),
    };
    let calibration =
        table("calibration", errors).map(|table| calibration(table, errors)).unwrap_or_default();
    let actors = read_actors(root, machine.as_ref(), duration, errors);
    let files = read_files(root, machine.as_ref(), errors);
    let measure = root.get("measure").and_then(|node| read::<MeasureTable>(node, "measure", errors));
    let measure = measure.unwrap_or_default();
    let measure = duration.map(|duration| resolve_measure(root, measure, duration, errors));
    if errors.count() > before {
        return None;
    }
    let header = header?;
    Some(Case {
        title: header.title,
        source: header.source,
        seed: header.seed,
        duration: header.duration,
        interval: header.interval,
        variant: variant.to_owned(),
        sweep,
        machine: machine?,
        tuning,
        files,
        actors,
        measure: measure?,
        calibration,
        overrides,
    })
}

/// Checks the top of a scenario; the duration, if it is one.
fn check_header(header: &Header, place: &dyn Fn(&str) -> Place, errors: &mut Collector) -> Option<Time> {
    if header.title.trim().is_empty() {
        errors.add(place("title"), "title", "empty; write what the scenario shows");
    }
    if let Some(wrong) = header.base.as_deref().and_then(check_name) {
        errors.add(place("base"), "base", wrong);
    }
    let Header { duration, interval, .. } = header;
    if duration.ns() == 0 || *duration > LONGEST {
        let message = format!("it is {duration}; write more than 0 and at most 30 d");
        errors.add(place("duration"), "duration", message);
        return None;
    }
    if interval.ns() == 0 || interval > duration {
        let message = format!("it is {interval}; write more than 0 and at most the duration, {duration}");
        errors.add(place("interval"), "interval", message);
    } else if duration.ns() / interval.ns() > SAMPLES {
        let message = format!(
            "a sample every {interval} for {duration} is {} samples; write an interval that gives at most {SAMPLES}",
            duration.ns() / interval.ns()
        );
        errors.add(place("interval"), "interval", message);
    }
    Some(*duration)
}

fn calibration(table: &Table, errors: &mut Collector) -> CalibrationSpec {
    let mut calibration = CalibrationSpec::default();
    for entry in &table.0 {
        let key = format!("calibration.{}", entry.key);
        match &entry.node.value {
            Value::Text(name) if entry.key == "record" => calibration.record = Some(name.clone()),
            _ if entry.key == "record" => {
                errors.add(
                    entry.node.at,
                    key,
                    "not the name of a calibration record; write a text in quotes",
                );
            }
            _ if !Costs::NAMES.contains(&entry.key.as_str()) => {
                let known: Vec<&str> =
                    std::iter::once("record").chain(Costs::NAMES.iter().copied()).collect();
                errors.add(entry.key_at, key, unknown_key(&entry.key, &known));
            }
            Value::Integer(number) if *number >= 0 => {
                calibration.costs.insert(entry.key.clone(), *number as f64);
            }
            Value::Float(number) if *number >= 0.0 => {
                calibration.costs.insert(entry.key.clone(), *number);
            }
            Value::Integer(_) | Value::Float(_) => {
                errors.add(entry.node.at, key, "a cost is not negative; write a number from 0 on");
            }
            other => {
                let message = format!("this is {}; write a number from 0 on", other.kind());
                errors.add(entry.node.at, key, message);
            }
        }
    }
    calibration
}

/// Files that the scenario names.
fn read_files(root: &Table, machine: Option<&MachineSpec>, errors: &mut Collector) -> Vec<NamedFile> {
    let Some(node) = root.get("file") else { return Vec::new() };
    let Value::List(list) = &node.value else {
        errors.add(node.at, "file", format!("this is {}; write [[file]]", node.value.kind()));
        return Vec::new();
    };
    let mut files: Vec<NamedFile> = Vec::new();
    let mut names = BTreeSet::new();
    for (number, node) in list.iter().enumerate() {
        let Some(file) = read::<NamedFile>(node, &format!("file[{number}]"), errors) else { continue };
        let at = |key: &str| node.table().and_then(|table| table.get(key)).map_or(node.at, |node| node.at);
        let key = format!("file.{}", file.name);
        if !is_name(&file.name) {
            errors.add(at("name"), format!("file[{number}].name"), bad_name(&file.name));
        } else if !names.insert(file.name.clone()) {
            errors.add(at("name"), format!("{key}.name"), "another file has this name; write another");
        }
        if !(1..=u64::from(u32::MAX)).contains(&file.size.pages()) {
            let message = format!("it is {}; write more than 0 and less than 16 TiB", file.size);
            errors.add(at("size"), format!("{key}.size"), message);
        } else {
            check_on_disk(file.size, at("size"), format!("{key}.size"), machine, errors);
        }
        files.push(file);
    }
    files
}

/// Refuses a file that is larger than the disk.
fn check_on_disk(size: Size, at: Place, key: String, machine: Option<&MachineSpec>, errors: &mut Collector) {
    if let Some(disk) = machine.and_then(|machine| machine.disk.size)
        && size > disk
    {
        errors.add(
            at,
            key,
            format!("{size} of files do not fit the disk of {disk}; write less, or a larger disk"),
        );
    }
}

fn bad_name(name: &str) -> String {
    format!("{} is not a name; write 1 to {NAME} letters, digits, '-' and '_'", quoted(name))
}

fn read_actors(
    root: &Table,
    machine: Option<&MachineSpec>,
    duration: Option<Time>,
    errors: &mut Collector,
) -> Vec<ScheduledActor> {
    let Some(node) = root.get("actor") else { return Vec::new() };
    let Value::List(list) = &node.value else {
        errors.add(node.at, "actor", format!("this is {}; write [[actor]]", node.value.kind()));
        return Vec::new();
    };
    let mut actors = Vec::new();
    let mut names = BTreeSet::new();
    let mut running = 0_u64;
    for (number, node) in list.iter().enumerate() {
        let Some(table) = node.table() else {
            let message = format!("this is {}; write [[actor]]", node.value.kind());
            errors.add(node.at, format!("actor[{number}]"), message);
            continue;
        };
        let name = name_of(table).filter(|name| is_name(name));
        let key = name.map_or_else(|| format!("actor[{number}]"), |name| format!("actor.{name}"));
        if let Some(name) = name
            && !names.insert(name)
        {
            let at = table.get("name").map_or(node.at, |node| node.at);
            errors.add(at, format!("{key}.name"), "another actor has this name; write another");
            continue;
        }
        if let Some(actor) = read_actor(node, table, &key, errors) {
            check_actor(&actor, node, &key, machine, duration, errors);
            for (parameter, size) in actor.kind.on_disk() {
                let at = table.get(parameter).map_or(node.at, |node| node.at);
                check_on_disk(size, at, format!("{key}.{parameter}"), machine, errors);
            }
            let before = running;
            running = running.saturating_add(actor.kind.thread_count());
            if before <= MOST_THREADS && running > MOST_THREADS {
                errors.add(node.at, key, too_many_threads());
            }
            actors.push(actor);
        }
    }
    actors
}

fn is_name(name: &str) -> bool {
    (1..=NAME).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn read_actor(node: &Node, table: &Table, key: &str, errors: &mut Collector) -> Option<ScheduledActor> {
    let common = fields::<ActorTable>();
    let kind = match table.get("kind").map(|kind| (&kind.value, kind.at)) {
        Some((Value::Text(kind), at)) => match Kind::KINDS.iter().find(|known| *known == kind) {
            Some(kind) => Some(*kind),
            None => {
                errors.add(at, format!("{key}.kind"), unknown_name(kind, Kind::KINDS));
                None
            }
        },
        _ => None,
    };
    let own = kind.map_or(&[][..], kind_fields);
    let mut shared = Vec::new();
    let mut parameters = Vec::new();
    for entry in &table.0 {
        if own.contains(&entry.key.as_str()) {
            parameters.push(entry.clone());
        } else if common.contains(&entry.key.as_str()) {
            shared.push(entry.clone());
        } else if kind.is_some() {
            let known: Vec<&str> = own.iter().chain(common).copied().collect();
            errors.add(entry.key_at, format!("{key}.{}", entry.key), unknown_key(&entry.key, &known));
        }
    }
    let part = |entries| Node { value: Value::Table(Table(entries)), at: node.at, inline: false, raw: None };
    let common: Option<ActorTable> = read(&part(shared), key, errors);
    let kind = kind.and_then(|kind| read_kind(kind, &part(parameters), key, errors));
    let common = common?;
    if !is_name(&common.name) {
        let at = table.get("name").map_or(node.at, |node| node.at);
        errors.add(at, format!("{key}.name"), bad_name(&common.name));
    }
    Some(ScheduledActor {
        name: common.name,
        start: common.start,
        stop: common.stop,
        node: common.node,
        policy: common.policy,
        oom_score_adj: common.oom_score_adj,
        memory: Memory {
            locked: common.locked,
            populate: common.populate,
            huge: common.huge,
            limits: common.limits,
        },
        kind: kind?,
    })
}

fn check_actor(
    actor: &ScheduledActor,
    table: &Node,
    key: &str,
    machine: Option<&MachineSpec>,
    duration: Option<Time>,
    errors: &mut Collector,
) {
    let at = |name: &str| table.table().and_then(|inner| inner.get(name)).map_or(table.at, |node| node.at);
    if let Some(duration) = duration
        && actor.start >= duration
    {
        let message = format!("it starts at {}, when the run of {duration} is over; write less", actor.start);
        errors.add(at("start"), format!("{key}.start"), message);
    }
    if let Some(stop) = actor.stop
        && stop <= actor.start
    {
        let message = format!("it stops at {stop}, not after its start at {}; write more", actor.start);
        errors.add(at("stop"), format!("{key}.stop"), message);
    }
    if !(-1000..=1000).contains(&actor.oom_score_adj) {
        let message = format!("is {}; it may be -1000 to 1000", actor.oom_score_adj);
        errors.add(at("oom-score-adj"), format!("{key}.oom-score-adj"), message);
    }
    let Some(machine) = machine else { return };
    let nodes = machine.nodes.len();
    let missing = |node: &&u32| usize::try_from(**node).unwrap_or(usize::MAX) >= nodes;
    let there_is = |node: u32| match nodes {
        1 => format!("there is no node {node}; the machine has node 0 only"),
        _ => format!("there is no node {node}; the machine has nodes 0 to {}", nodes - 1),
    };
    if let Some(node) = actor.node.as_ref().filter(missing) {
        errors.add(at("node"), format!("{key}.node"), there_is(*node));
    } else if let Some(node) = actor.node
        && machine.cpus_per_node().get(node as usize) == Some(&0)
    {
        let message = format!("node {node} has no CPU that could run it; write a node with CPUs");
        errors.add(at("node"), format!("{key}.node"), message);
    }
    if let Placement::Preferred(_) | Placement::Bind(_) | Placement::Interleave(_) = actor.policy
        && let Some(node) = actor.policy.nodes().iter().find(missing)
    {
        errors.add(at("policy"), format!("{key}.policy"), there_is(*node));
    }
}

fn resolve_measure(root: &Table, table: MeasureTable, duration: Time, errors: &mut Collector) -> MeasureSpec {
    let at = |key: &str| find(root, &["measure".to_owned(), key.to_owned()]);
    let names: Vec<&str> = named(root, "actor").filter_map(name_of).collect();
    if let Some(actor) = table.actor.as_deref()
        && !names.contains(&actor)
    {
        errors.add(at("actor"), "measure.actor", unknown_name(actor, &names));
    }
    let mut span = |key: &str, [from, to]: [Instant; 2]| {
        let (from, to) = (from.resolve(duration), to.resolve(duration));
        if from >= to || to > duration {
            let message = format!(
                "from {from} to {to}; write two times, the later one second, at most \"end\", which is {duration}"
            );
            errors.add(at(key), format!("measure.{key}"), message);
        }
        (from, to)
    };
    MeasureSpec {
        window: table.window.map_or((Time(0), duration), |window| span("window", window)),
        baseline: table.baseline.map(|baseline| span("baseline", baseline)),
        actor: table.actor,
        role: table.role,
    }
}

macro_rules! readers {
    ($(#[doc = $about:literal] $name:literal => $kind:ident,)*) => {
        /// The keys of a kind.
        pub(crate) fn kind_fields(kind: &str) -> &'static [&'static str] {
            match kind {
                $($name => fields::<actor::$kind>(),)*
                _ => &[],
            }
        }

        /// Reads the parameters of a kind.
        fn read_kind(kind: &str, node: &Node, key: &str, errors: &mut Collector) -> Option<Kind> {
            match kind {
                $($name => read::<actor::$kind>(node, key, errors).map(Kind::$kind),)*
                _ => None,
            }
        }

        /// Each kind's name with the schema of its parameters.
        pub(crate) fn kind_schemas() -> Vec<(&'static str, schemars::Schema)> {
            vec![$(($name, crate::format::schema_of::<actor::$kind>()),)*]
        }
    };
}

lotsfree_workload::kinds!(readers);
