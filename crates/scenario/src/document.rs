//! [`Document`]: the tree of a scenario's text, with the place that every key and value is from.
//!
//! Variants, sweeps and `--set` change the tree before it is read, so what they bring is judged by the same
//! code as the text itself, and an error names the place that the value came from.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Collector, Errors, quoted};

/// Largest text of a scenario, in bytes.
pub(crate) const LARGEST: usize = 1 << 20;
/// Longest text of one value, in bytes.
const LONGEST: usize = 4096;

/// Where a key or value is from: bytes `start..` of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// Index into the [`Document`]'s sources.
    pub(crate) source: u32,
    pub(crate) start: u32,
}

/// A text that values come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The scenario file.
    File { name: Arc<str>, text: Arc<str> },
    /// An override, as `KEY=VALUE`.
    Set { text: Arc<str> },
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: Place,
    /// A table in braces, which is one value; other tables are parts of dotted keys and sections.
    pub(crate) inline: bool,
    /// The text of an override's value: `--set seed=1` is a number for a seed and a text for a title.
    pub(crate) raw: Option<Arc<str>>,
}

/// What a TOML value can be.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Node>),
    Table(Table),
}

impl Value {
    /// What it is, with its article.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "a text",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number",
            Value::Bool(_) => "true or false",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: Place,
    pub(crate) node: Node,
}

/// Keys and values in the order of the text, overrides that brought new keys last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(pub(crate) Vec<Entry>);

impl Table {
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// Sets a value below tables, which are created where they are missing. The error is the key, as a
    /// number of the path's parts, at which something that is no table is in the way.
    pub(crate) fn set(&mut self, path: &[&str], key_at: Place, node: Node) -> Result<(), usize> {
        let Some((first, rest)) = path.split_first() else { return Ok(()) };
        let position = self.0.iter().position(|entry| entry.key == *first);
        if rest.is_empty() {
            match position.and_then(|at| self.0.get_mut(at)) {
                Some(entry) => (entry.key_at, entry.node) = (key_at, node),
                None => self.0.push(Entry { key: (*first).to_owned(), key_at, node }),
            }
            return Ok(());
        }
        if position.is_none() {
            let table = Node { value: Value::Table(Table::default()), at: key_at, inline: false, raw: None };
            self.0.push(Entry { key: (*first).to_owned(), key_at, node: table });
        }
        let at = position.unwrap_or(self.0.len() - 1);
        match self.0.get_mut(at).map(|entry| &mut entry.node.value) {
            Some(Value::Table(inner)) => inner.set(rest, key_at, node).map_err(|depth| depth + 1),
            _ => Err(1),
        }
    }
}

impl Node {
    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    /// How many values there are in it, itself included.
    pub(crate) fn weight(&self) -> usize {
        1 + match &self.value {
            Value::List(nodes) => nodes.iter().map(Node::weight).sum(),
            Value::Table(table) => table.0.iter().map(|entry| entry.node.weight()).sum(),
            _ => 0,
        }
    }
}

/// A scenario's text as a tree.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) root: Table,
    pub(crate) sources: Vec<Source>,
}

impl Document {
    /// Reads TOML.
    pub(crate) fn parse(text: &str, file: &str) -> Result<Document, Errors> {
        if text.len() > LARGEST {
            let message = format!(
                "the text has {} bytes; a scenario has at most {LARGEST} (a trace is a file of its own)",
                text.len()
            );
            return Err(Errors::unreadable(file, message));
        }
        let sources = vec![Source::File { name: file.into(), text: text.into() }];
        let mut errors = Collector::default();
        let (root, faults) = DeTable::parse_recoverable(text);
        // The first only: those after it mostly follow from it.
        if let Some(fault) = faults.first() {
            let start = fault.span().map_or(0, |span| span.start);
            errors.add(place(0, start), "", format!("not TOML: {}", one_line(fault.message())));
        }
        errors.finish(&sources)?;
        let mut errors = Collector::default();
        let root = table(root.into_inner(), Origin { source: 0, text }, &mut errors, "");
        errors.finish(&sources)?;
        Ok(Document { root, sources })
    }

    /// Adds an override's text to the sources and reads its value: TOML, or else a text as it stands.
    pub(crate) fn add_set(&mut self, key: &str, value: &str) -> Result<Node, Errors> {
        let text: Arc<str> = format!("{key}={value}").into();
        let source = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        self.sources.push(Source::Set { text });
        let raw: Arc<str> = value.trim().into();
        let plain = |text: &str| Node {
            value: Value::Text(text.to_owned()),
            at: place(source, 0),
            inline: false,
            raw: Some(Arc::clone(&raw)),
        };
        let mut errors = Collector::default();
        if value.len() > LONGEST {
            errors.add(place(source, 0), "", format!("the value has more than {LONGEST} bytes"));
        }
        errors.finish(&self.sources)?;
        let mut errors = Collector::default();
        let node = match DeValue::parse(&raw) {
            Ok(parsed) => node(parsed, Origin { source, text: &raw }, &mut errors, ""),
            Err(_) => Some(plain(&raw)),
        };
        errors.finish(&self.sources)?;
        Ok(node.unwrap_or_else(|| plain(&raw)))
    }
}

fn place(source: u32, start: usize) -> Place {
    Place { source, start: u32::try_from(start).unwrap_or(u32::MAX) }
}

/// A message of the TOML parser on one line.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The dotted name of a key below another.
pub(crate) fn below(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

/// The source that a value is being read from.
#[derive(Clone, Copy)]
struct Origin<'a> {
    source: u32,
    text: &'a str,
}

fn table(parsed: DeTable<'_>, from: Origin<'_>, errors: &mut Collector, path: &str) -> Table {
    let mut entries = Vec::new();
    for (key, value) in parsed {
        let key_at = place(from.source, key.span().start);
        let key = key.into_inner().into_owned();
        let path = below(path, &key);
        if let Some(node) = node(value, from, errors, &path) {
            entries.push(Entry { key, key_at, node });
        }
    }
    entries.sort_by_key(|entry| entry.key_at);
    Table(entries)
}

fn node(parsed: Spanned<DeValue<'_>>, from: Origin<'_>, errors: &mut Collector, path: &str) -> Option<Node> {
    let at = place(from.source, parsed.span().start);
    let inline = from.text.as_bytes().get(parsed.span().start) == Some(&b'{');
    let value = match parsed.into_inner() {
        DeValue::String(text) if text.len() > LONGEST => {
            Err(format!("the text has more than {LONGEST} bytes"))
        }
        DeValue::String(text) => Ok(Value::Text(text.into_owned())),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map(Value::Integer).map_err(|_| {
                format!("{} is too large; write a number of at most 63 bits", quoted(number.as_str()))
            })
        }
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::Float(value)),
            _ => Err(format!("{} is not a finite number", quoted(number.as_str()))),
        },
        DeValue::Boolean(value) => Ok(Value::Bool(value)),
        DeValue::Datetime(_) => Err("a scenario has no dates; write times such as \"60 s\"".to_owned()),
        DeValue::Array(list) => {
            let nodes = list.into_iter().filter_map(|each| node(each, from, errors, path));
            Ok(Value::List(nodes.collect()))
        }
        DeValue::Table(inner) => Ok(Value::Table(table(inner, from, errors, path))),
    };
    match value {
        Ok(value) => {
            let raw = (from.source > 0).then(|| from.text.into());
            Some(Node { value, at, inline, raw })
        }
        Err(message) => {
            errors.add(at, path, message);
            None
        }
    }
}
