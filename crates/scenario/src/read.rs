//! Reads types from a [`Node`] by serde, and says everything that is wrong rather than the first of it.
//!
//! A value that cannot be read is left out and the type is read again, until it can be read or lacks what it
//! cannot do without.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::de::{self, DeserializeOwned, IntoDeserializer, Unexpected};

use crate::document::{Node, Place, Table, Value, below};
use crate::error::{Collector, listed, quoted, suggestion};
use crate::format::schema_of;
use crate::tuning;

/// Reads a `T`. `path` is the node's key, for errors.
pub(crate) fn read<T: DeserializeOwned + JsonSchema>(
    node: &Node,
    path: &str,
    errors: &mut Collector,
) -> Option<T> {
    let masked = RefCell::new(BTreeSet::new());
    let mut failed = false;
    loop {
        match T::deserialize(Reader { node, masked: &masked }) {
            Ok(value) => return (!failed).then_some(value),
            Err(fault) => {
                failed = true;
                if fault.path.len() == 1 && fault.lacks {
                    add_missing::<T>(node, path, errors);
                }
                if !fault.silent {
                    let mut key = path.to_owned();
                    for part in fault.path.iter().rev() {
                        key = if part.starts_with('[') { format!("{key}{part}") } else { below(&key, part) };
                    }
                    errors.add(fault.at.unwrap_or(node.at), key, fault.message);
                }
                let progress = fault.mask.is_some_and(|key_at| masked.borrow_mut().insert(key_at));
                if !progress || errors.full() {
                    return None;
                }
            }
        }
    }
}

/// Says of every key that `T` cannot do without and `node` lacks that it is missing, not only of the first.
fn add_missing<T: JsonSchema>(node: &Node, path: &str, errors: &mut Collector) {
    let schema = schema_of::<T>();
    let required = schema.get("required").and_then(|list| list.as_array());
    for key in required.into_iter().flatten().filter_map(|key| key.as_str()) {
        if node.table().is_some_and(|table| table.get(key).is_none()) {
            errors.add(node.at, below(path, key), MISSING);
        }
    }
}

const MISSING: &str = "missing; it has no default";

/// One thing that is wrong, on its way up to [`read`].
#[derive(Debug)]
pub(crate) struct Fault {
    message: String,
    at: Option<Place>,
    /// Parts of the key, innermost first.
    path: Vec<String>,
    /// The key to leave out the next time.
    mask: Option<Place>,
    /// The key that is missing.
    missing: Option<&'static str>,
    /// It is about a key that is missing.
    lacks: bool,
    /// Follows from a fault that has been reported.
    silent: bool,
}

impl Fault {
    fn new(message: String) -> Fault {
        Fault { message, at: None, path: Vec::new(), mask: None, missing: None, lacks: false, silent: false }
    }

    fn at(mut self, place: Place) -> Fault {
        self.at.get_or_insert(place);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Fault {
        Fault::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Fault {
        Fault::new(format!("{}; write {}", is(found), expectation(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Fault {
        let found = match found {
            Unexpected::Signed(number) => format!("{number} is out of range"),
            Unexpected::Unsigned(number) => format!("{number} is out of range"),
            Unexpected::Float(number) => format!("{number} is out of range"),
            Unexpected::Str(text) => format!("{} is not accepted", quoted(text)),
            other => is(other),
        };
        Fault::new(format!("{found}; write {}", expectation(expected)))
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Fault {
        Fault::new(format!("the list has {length} values; write {}", expectation(expected)))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Fault {
        Fault::new(unknown_name(variant, expected))
    }

    fn missing_field(field: &'static str) -> Fault {
        Fault { missing: Some(field), lacks: true, ..Fault::new(MISSING.to_owned()) }
    }
}

/// An error about a text that is none of a few names.
pub(crate) fn unknown_name(written: &str, known: &[&str]) -> String {
    not_known(written, &suggestion(written, known.iter().copied()), known)
}

/// The same with a hint of one's own: empty, or a clause with its full stop, such as `; did you mean "a"?`.
pub(crate) fn not_known(written: &str, hint: &str, known: &[&str]) -> String {
    let names = known.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let accepted = if hint.is_empty() { "; accepted" } else { " Accepted" };
    format!("{} is not known{hint}{accepted}: {names}", quoted(written))
}

/// An error about a key that a table does not have.
pub(crate) fn unknown_key(written: &str, known: &[&str]) -> String {
    // Settings have dots, the keys of other tables have none.
    let setting = tuning::is_setting(written) || ["vm", "kernel", "block"].contains(&written);
    if setting && !known.iter().any(|key| tuning::is_setting(key)) {
        return "unknown key; settings of the kernel belong below [tuning]".to_owned();
    }
    match suggestion(written, known.iter().copied()) {
        close if !close.is_empty() => format!("unknown key{close}"),
        _ => format!("unknown key; known here: {}", listed(known.iter().copied())),
    }
}

fn is(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("{value} is a boolean"),
        Unexpected::Unsigned(number) => format!("{number} is a number"),
        Unexpected::Signed(number) => format!("{number} is a number"),
        Unexpected::Float(number) => format!("{number} is a number"),
        Unexpected::Str(text) => format!("{} is a text", quoted(text)),
        Unexpected::Seq => "this is a list".to_owned(),
        Unexpected::Map => "this is a table".to_owned(),
        other => format!("this is {other}"),
    }
}

/// What serde expects, in the words of the format.
fn expectation(expected: &dyn de::Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" | "u128" => "a whole number from 0 on".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" | "i128" => "a whole number".to_owned(),
        "a nonzero u32" => format!("a whole number from 1 to {}", u32::MAX),
        "a nonzero u64" | "a nonzero usize" => "a whole number from 1 on".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => "a list in [ ]".to_owned(),
        "a map" => "a table".to_owned(),
        _ if text.starts_with("struct ") => "a table".to_owned(),
        _ => text,
    }
}

/// A node as serde sees it.
#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a Node,
    masked: &'a RefCell<BTreeSet<Place>>,
}

impl<'a> Reader<'a> {
    fn visit<'de, V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Text(text) => visitor.visit_str(text),
            Value::Integer(number) => match u64::try_from(*number) {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_i64(*number),
            },
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::List(nodes) => {
                visitor.visit_seq(List { nodes: nodes.iter(), index: 0, masked: self.masked })
            }
            Value::Table(table) => visitor.visit_map(Map::new(table, self.masked)),
        }
        .map_err(|fault| fault.at(self.node.at))
    }
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = Fault;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.visit(visitor)
    }

    fn deserialize_str<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match (&self.node.value, &self.node.raw) {
            (Value::Integer(_) | Value::Float(_) | Value::Bool(_), Some(raw)) => {
                visitor.visit_str(raw).map_err(|fault: Fault| fault.at(self.node.at))
            }
            _ => self.visit(visitor),
        }
    }

    fn deserialize_string<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Some(table) = self.node.table() else { return self.visit(visitor) };
        let map = Map::new(table, self.masked);
        let unknown =
            table.0.iter().find(|entry| !fields.contains(&entry.key.as_str()) && !map.hides(entry.key_at));
        if let Some(entry) = unknown {
            let mut fault = Fault::new(unknown_key(&entry.key, fields)).at(entry.key_at);
            fault.path.push(entry.key.clone());
            fault.mask = Some(entry.key_at);
            return Err(fault);
        }
        visitor.visit_map(map).map_err(|mut fault| {
            if let Some(field) = fault.missing.take() {
                fault.silent = table.entry(field).is_some();
                fault.path.push(field.to_owned());
            }
            fault.at(self.node.at)
        })
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let known = variants.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
        match &self.node.value {
            Value::Text(text) => visitor.visit_enum(Bare(text)),
            Value::Table(table) => match table.0.as_slice() {
                [entry] => visitor.visit_enum(Choice { entry, masked: self.masked }),
                _ => Err(Fault::new(format!("this is a table; write one of {known}"))),
            },
            other => Err(Fault::new(format!("this is {}; write one of {known}", other.kind()))),
        }
        .map_err(|fault| fault.at(self.node.at))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct List<'a> {
    nodes: std::slice::Iter<'a, Node>,
    index: usize,
    masked: &'a RefCell<BTreeSet<Place>>,
}

impl<'de> de::SeqAccess<'de> for List<'_> {
    type Error = Fault;

    fn next_element_seed<T: de::DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let Some(node) = self.nodes.next() else { return Ok(None) };
        self.index += 1;
        seed.deserialize(Reader { node, masked: self.masked }).map(Some).map_err(|mut fault| {
            fault.path.push(format!("[{}]", self.index - 1));
            fault.at(node.at)
        })
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.nodes.len())
    }
}

struct Map<'a> {
    table: &'a Table,
    next: usize,
    masked: &'a RefCell<BTreeSet<Place>>,
}

impl<'a> Map<'a> {
    fn new(table: &'a Table, masked: &'a RefCell<BTreeSet<Place>>) -> Map<'a> {
        Map { table, next: 0, masked }
    }

    fn hides(&self, key_at: Place) -> bool {
        self.masked.borrow().contains(&key_at)
    }
}

impl<'de> de::MapAccess<'de> for Map<'_> {
    type Error = Fault;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        while let Some(entry) = self.table.0.get(self.next) {
            if self.hides(entry.key_at) {
                self.next += 1;
                continue;
            }
            return seed.deserialize(entry.key.as_str().into_deserializer()).map(Some).map_err(
                |mut fault: Fault| {
                    fault.mask = Some(entry.key_at);
                    fault.at(entry.key_at)
                },
            );
        }
        Ok(None)
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let Some(entry) = self.table.0.get(self.next) else {
            return Err(Fault::new("a value was asked for before its key".to_owned()));
        };
        self.next += 1;
        seed.deserialize(Reader { node: &entry.node, masked: self.masked }).map_err(|mut fault| {
            fault.path.push(entry.key.clone());
            fault.mask.get_or_insert(entry.key_at);
            fault.at(entry.node.at)
        })
    }
}

/// A table with one key, the name of an enum's variant.
/// A variant that is named without a value.
#[derive(Clone, Copy)]
struct Bare<'a>(&'a str);

impl Bare<'_> {
    fn lacks_value<T>(self) -> Result<T, Fault> {
        Err(Fault::new(format!("{} needs a value; write {{ {} = … }}", quoted(self.0), self.0)))
    }
}

impl<'de> de::EnumAccess<'de> for Bare<'_> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: de::DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        Ok((seed.deserialize(self.0.into_deserializer())?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Bare<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Fault> {
        self.lacks_value()
    }

    fn tuple_variant<V: de::Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Fault> {
        self.lacks_value()
    }

    fn struct_variant<V: de::Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fault> {
        self.lacks_value()
    }
}

struct Choice<'a> {
    entry: &'a crate::document::Entry,
    masked: &'a RefCell<BTreeSet<Place>>,
}

impl<'a, 'de> de::EnumAccess<'de> for Choice<'a> {
    type Error = Fault;
    type Variant = Chosen<'a>;

    fn variant_seed<V: de::DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Chosen<'a>), Fault> {
        let name = self.entry.key.as_str().into_deserializer();
        let value = seed.deserialize(name).map_err(|fault: Fault| fault.at(self.entry.key_at))?;
        Ok((value, Chosen(Reader { node: &self.entry.node, masked: self.masked })))
    }
}

struct Chosen<'a>(Reader<'a>);

impl<'de> de::VariantAccess<'de> for Chosen<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Err(Fault::new("it takes no value; write it as a text in quotes".to_owned()).at(self.0.node.at))
    }

    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: de::Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.0.visit(visitor)
    }

    fn struct_variant<V: de::Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        de::Deserializer::deserialize_struct(self.0, "", fields, visitor)
    }
}

/// The keys that a struct has, as its `Deserialize` names them.
pub(crate) fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let found = RefCell::new(&[][..]);
    // What it returns is an error in any case: there are no values.
    drop(T::deserialize(Probe(&found)));
    found.into_inner()
}

/// Stops a struct's `Deserialize` once that has said which keys it has.
struct Probe<'a>(&'a RefCell<&'static [&'static str]>);

impl<'de> de::Deserializer<'de> for Probe<'_> {
    type Error = Fault;

    fn deserialize_any<V: de::Visitor<'de>>(self, _: V) -> Result<V::Value, Fault> {
        Err(Fault::new(String::new()))
    }

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fault> {
        self.0.replace(fields);
        Err(Fault::new(String::new()))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
