//! [`Memory`]: how a process has its memory, whatever it does with it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use lotsfree_units::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::quantity::Size;

/// How a process has its memory. What is left at its default is not written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// It calls `mlockall(MCL_CURRENT | MCL_FUTURE)` before it maps anything.
    #[serde(skip_serializing_if = "is_default")]
    pub locked: bool,
    /// It maps with `MAP_POPULATE`.
    #[serde(skip_serializing_if = "is_default")]
    pub populate: bool,
    /// What its anonymous memory consists of.
    #[serde(skip_serializing_if = "is_default")]
    pub huge: Huge,
    /// What it may have at most.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: Limits,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What the anonymous memory of a process consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Huge {
    /// Base pages.
    #[default]
    #[serde(rename = "no")]
    No,
    /// Transparent huge pages, where `kernel.mm.transparent_hugepage.enabled` is `"always"` or `"madvise"`
    /// (`MADV_HUGEPAGE`).
    #[serde(rename = "thp")]
    Transparent,
    /// Pages of the pool that `vm.nr_hugepages` reserves (`MAP_HUGETLB`). What the pool cannot hold is
    /// refused.
    #[serde(rename = "2M")]
    Pool,
}

/// Limits of a process (`setrlimit`). `ulimit -l`, `-v` and `-d` show those of a shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Limits {
    /// How much it may lock (`RLIMIT_MEMLOCK`, `LimitMEMLOCK` of systemd). Without this key the process has
    /// `CAP_IPC_LOCK` and may lock any amount; with it, be it `"unlimited"`, it does not have this
    /// capability. Up to 5.15 a segment of huge pages must be within the limit, too; from 6.1 on no limit
    /// opens huge pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memlock: Option<Limit>,
    /// Address space that it may map (`RLIMIT_AS`), touched or not, its program's own included.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    pub address_space: Option<Limit>,
    /// Private memory that may be written to (`RLIMIT_DATA`). Kernels before 4.7 hold only the heap of `brk`
    /// to it, which no actor uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Limit>,
}

impl Limits {
    /// Whether it is without any.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

/// A limit: a size, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this size.
    At(Size),
    /// `"unlimited"`
    Unlimited,
}

impl Limit {
    /// The limit in bytes; `None` if there is none.
    pub fn bytes(self) -> Option<Bytes> {
        match self {
            Limit::At(size) => Some(size.0),
            Limit::Unlimited => None,
        }
    }
}

const UNLIMITED: &str = "unlimited";

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            UNLIMITED => Ok(Limit::Unlimited),
            size => size.parse().map(Limit::At).map_err(|error| format!("{error}, or \"{UNLIMITED}\"")),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::At(size) => size.fmt(f),
            Limit::Unlimited => f.pad(UNLIMITED),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl de::Visitor<'_> for Reader {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size in quotes such as \"64 KiB\", or \"unlimited\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

impl JsonSchema for Limit {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": UNLIMITED }, generator.subschema_for::<Size>()] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_size_or_unlimited() {
        for (text, limit) in [
            ("64 KiB", Limit::At(Size::kib(64))),
            (" unlimited ", Limit::Unlimited),
            ("0", Limit::At(Size::kib(0))),
        ] {
            assert_eq!(text.parse(), Ok(limit));
            assert_eq!(limit.to_string(), text.trim());
        }
        let error = "infinity".parse::<Limit>().unwrap_err();
        assert!(error.ends_with("such as \"10 MiB\", or \"unlimited\""), "{error}");
    }
}
