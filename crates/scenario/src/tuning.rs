//! [`Tuning`]: kernel settings by the kernel's names, and what each accepts on which kernel.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use crate::document::{Entry, Node, Table, Value};
use crate::error::{Collector, quoted};
use crate::generation::{Generation, Kernel};
use crate::read::unknown_key;

/// Settings that differ from the kernel's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    values: BTreeMap<&'static str, Setting>,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A number.
    Number(u64),
    /// One of a few words, such as `madvise`.
    Word(&'static str),
    /// Several numbers, as `vm.lowmem_reserve_ratio` has.
    Numbers(Vec<u64>),
}

impl Tuning {
    /// A setting; `None` where the scenario leaves it at the kernel's default.
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.values.get(name)
    }

    /// A setting that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Setting::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A setting that is a word.
    pub fn word(&self, name: &str) -> Option<&'static str> {
        match self.get(name) {
            Some(Setting::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// A setting that is several numbers.
    pub fn numbers(&self, name: &str) -> Option<&[u64]> {
        match self.get(name) {
            Some(Setting::Numbers(numbers)) => Some(numbers),
            _ => None,
        }
    }

    /// The settings in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Setting)> {
        self.values.iter().map(|(name, value)| (*name, value))
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Number(number) => write!(f, "{number}"),
            Setting::Word(word) => f.write_str(word),
            Setting::Numbers(numbers) => {
                let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
                f.write_str(&words.join(" "))
            }
        }
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Setting::Number(number) => serializer.serialize_u64(*number),
            other => serializer.collect_str(other),
        }
    }
}

impl Serialize for Tuning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.values)
    }
}

/// What a setting accepts.
enum Accepts {
    /// Numbers in a range.
    Range(u64, u64),
    /// A range that newer kernels widened: the last one whose kernel is not newer than the scenario's counts.
    Ranges(&'static [(Kernel, u64, u64)]),
    /// Words, each from a kernel on.
    Words(&'static [(&'static str, Kernel)]),
    /// So many numbers at most, each in a range.
    Numbers(usize, u64, u64),
}

/// A setting that a scenario may have.
struct Row {
    name: &'static str,
    accepts: Accepts,
    /// Oldest and newest kernel that has it, where not all have.
    since: Option<Kernel>,
    until: Option<Kernel>,
    about: &'static str,
}

const INT: u64 = i32::MAX as u64;

const fn row(name: &'static str, accepts: Accepts, about: &'static str) -> Row {
    Row { name, accepts, since: None, until: None, about }
}

const fn between(since: Option<Kernel>, until: Option<Kernel>, row: Row) -> Row {
    Row { since, until, ..row }
}

/// The settings, in the order of the reference page.
const ROWS: &[Row] = &[
    row(
        "vm.swappiness",
        Accepts::Ranges(&[(Kernel::Rhel6, 0, 100), (Kernel::V6_1, 0, 200)]),
        "how readily anonymous pages are reclaimed rather than file pages",
    ),
    row(
        "vm.zone_reclaim_mode",
        Accepts::Range(0, 7),
        "reclaim on the local node before another is used: 1 on, 2 may write, 4 may unmap",
    ),
    row(
        "vm.min_unmapped_ratio",
        Accepts::Range(0, 100),
        "unmapped cache below which zone reclaim stays off, in percent",
    ),
    row(
        "vm.min_slab_ratio",
        Accepts::Range(0, 100),
        "reclaimable slab above which zone reclaim shrinks it, in percent",
    ),
    row("vm.min_free_kbytes", Accepts::Range(0, INT), "from which the watermarks follow, in KiB"),
    between(
        Some(Kernel::V5_4),
        None,
        row(
            "vm.watermark_scale_factor",
            Accepts::Ranges(&[(Kernel::V5_4, 1, 1000), (Kernel::V6_1, 1, 3000)]),
            "gap between the watermarks, in 1/10000 of a zone",
        ),
    ),
    between(
        Some(Kernel::V5_4),
        None,
        row(
            "vm.watermark_boost_factor",
            Accepts::Range(0, INT),
            "raise of the marks after a fallback to another migrate type, in 1/10000 of the high mark",
        ),
    ),
    between(
        None,
        Some(Kernel::Rhel6),
        row("vm.extra_free_kbytes", Accepts::Range(0, INT), "raises the low and high marks, in KiB"),
    ),
    row(
        "vm.lowmem_reserve_ratio",
        Accepts::Numbers(5, 0, INT),
        "memory of lower zones kept from requests for higher ones: 1/ratio",
    ),
    between(
        None,
        Some(Kernel::V4_4),
        row(
            "vm.numa_zonelist_order",
            Accepts::Words(&[("default", Kernel::Rhel6), ("node", Kernel::Rhel6), ("zone", Kernel::Rhel6)]),
            "whether zones are tried node by node or zone by zone",
        ),
    ),
    row(
        "vm.dirty_ratio",
        Accepts::Range(0, 100),
        "dirty pages at which writers wait, in percent of what may be dirty",
    ),
    row(
        "vm.dirty_bytes",
        Accepts::Range(8192, i64::MAX as u64),
        "the same in bytes; replaces vm.dirty_ratio",
    ),
    row(
        "vm.dirty_background_ratio",
        Accepts::Range(0, 100),
        "dirty pages at which the flusher begins, in percent",
    ),
    row(
        "vm.dirty_background_bytes",
        Accepts::Range(1, i64::MAX as u64),
        "the same in bytes; replaces vm.dirty_background_ratio",
    ),
    row(
        "vm.dirty_expire_centisecs",
        Accepts::Range(0, INT),
        "age at which a dirty page is written, in 1/100 s",
    ),
    row(
        "vm.dirty_writeback_centisecs",
        Accepts::Range(0, INT),
        "how often the flusher looks, in 1/100 s; 0: never",
    ),
    row(
        "vm.overcommit_memory",
        Accepts::Range(0, 2),
        "which requests for memory are refused: 0 what could never be there, 1 none, 2 what is above the commit limit",
    ),
    row(
        "vm.overcommit_ratio",
        Accepts::Range(0, INT),
        "RAM that counts towards the commit limit, in percent; swap comes on top",
    ),
    between(
        Some(Kernel::V4_4),
        None,
        row(
            "vm.overcommit_kbytes",
            Accepts::Range(0, i64::MAX as u64),
            "the same in KiB; replaces vm.overcommit_ratio unless 0",
        ),
    ),
    between(
        Some(Kernel::V3_10),
        None,
        row(
            "vm.admin_reserve_kbytes",
            Accepts::Range(0, i64::MAX as u64),
            "part of the commit limit that only root may use, in KiB",
        ),
    ),
    between(
        Some(Kernel::V3_10),
        None,
        row(
            "vm.user_reserve_kbytes",
            Accepts::Range(0, i64::MAX as u64),
            "part of the commit limit that no single process may use, in KiB",
        ),
    ),
    row("vm.nr_hugepages", Accepts::Range(0, INT), "huge pages of the default size that are reserved"),
    row(
        "vm.nr_overcommit_hugepages",
        Accepts::Range(0, INT),
        "huge pages that may be had beyond those, from memory that is free",
    ),
    between(
        Some(Kernel::V6_1),
        None,
        row(
            "vm.compaction_proactiveness",
            Accepts::Range(0, 100),
            "how eagerly kcompactd makes large pages before they are wanted; 0: not at all",
        ),
    ),
    row("kernel.shmmax", Accepts::Range(0, i64::MAX as u64), "largest System V segment, in bytes"),
    row("kernel.shmall", Accepts::Range(0, i64::MAX as u64), "all System V segments together, in pages"),
    row("vm.laptop_mode", Accepts::Range(0, INT), "delay of writeback while the disk is idle, in s; 0: off"),
    row("vm.page-cluster", Accepts::Range(0, 31), "pages that a swap-in reads at once, as a power of 2"),
    row(
        "vm.vfs_cache_pressure",
        Accepts::Range(0, INT),
        "how readily dentries and inodes are reclaimed, in percent",
    ),
    between(
        Some(Kernel::V3_0),
        Some(Kernel::V4_4),
        row(
            "vm.pagecache_limit_mb",
            Accepts::Range(0, INT),
            "SUSE's bound for unmapped cache, in MiB; 0: off",
        ),
    ),
    between(
        Some(Kernel::V3_0),
        Some(Kernel::V4_4),
        row(
            "vm.pagecache_limit_ignore_dirty",
            Accepts::Range(0, 2),
            "whether dirty pages count towards that bound: 0 all, 1 none, 2 part",
        ),
    ),
    between(
        Some(Kernel::V3_10),
        None,
        row("kernel.numa_balancing", Accepts::Range(0, 1), "whether pages follow the tasks that use them"),
    ),
    row(
        "kernel.mm.transparent_hugepage.enabled",
        Accepts::Words(&[("always", Kernel::Rhel6), ("madvise", Kernel::Rhel6), ("never", Kernel::Rhel6)]),
        "who gets transparent huge pages (/sys/kernel/mm/transparent_hugepage/enabled)",
    ),
    row(
        "kernel.mm.transparent_hugepage.defrag",
        Accepts::Words(&[
            ("always", Kernel::Rhel6),
            ("defer", Kernel::V5_4),
            ("defer+madvise", Kernel::V5_4),
            ("madvise", Kernel::Rhel6),
            ("never", Kernel::Rhel6),
        ]),
        "who reclaims and compacts for one (/sys/kernel/mm/transparent_hugepage/defrag)",
    ),
    between(
        Some(Kernel::V6_1),
        None,
        row(
            "kernel.mm.lru_gen.enabled",
            Accepts::Range(0, 7),
            "the multi-generational LRU: 1 on, 2 clear accessed bits in batches, 4 also in upper tables \
         (/sys/kernel/mm/lru_gen/enabled)",
        ),
    ),
    between(
        Some(Kernel::V6_1),
        None,
        row(
            "kernel.mm.lru_gen.min_ttl_ms",
            Accepts::Range(0, INT),
            "age below which pages are not evicted, in ms (/sys/kernel/mm/lru_gen/min_ttl_ms)",
        ),
    ),
    row(
        "block.queue.read_ahead_kb",
        Accepts::Range(0, INT),
        "readahead window of the disk, in KiB (/sys/block/*/queue/read_ahead_kb)",
    ),
];

/// The names of all settings.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

/// Whether a dotted key can only be meant as a setting.
pub(crate) fn is_setting(key: &str) -> bool {
    names().any(|name| name == key) || ["vm.", "kernel.", "block."].iter().any(|head| key.starts_with(head))
}

impl Row {
    /// What it accepts on a kernel, in words.
    fn accepted(&self, kernel: Kernel) -> String {
        match &self.accepts {
            Accepts::Words(words) => {
                let words = words.iter().filter(|(_, since)| *since <= kernel);
                words.map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ")
            }
            Accepts::Numbers(count, low, high) => {
                format!("up to {count} whole numbers from {low} to {high} in quotes, such as \"256 256 32\"")
            }
            Accepts::Range(..) | Accepts::Ranges(_) => {
                let (low, high) = self.range(kernel);
                format!("a whole number from {low} to {high}")
            }
        }
    }

    fn range(&self, kernel: Kernel) -> (u64, u64) {
        match &self.accepts {
            Accepts::Range(low, high) => (*low, *high),
            Accepts::Ranges(ranges) => {
                let fitting = ranges.iter().rev().find(|(since, ..)| *since <= kernel);
                fitting.map_or((0, 0), |(_, low, high)| (*low, *high))
            }
            Accepts::Words(_) | Accepts::Numbers(..) => (0, 0),
        }
    }

    /// The value of a node, or what is wrong with it.
    fn value(&self, node: &Node, kernel: Kernel) -> Result<Setting, String> {
        let wrong = |shown: String| {
            format!("{shown} is not accepted by {}; write {}", kernel.name(), self.accepted(kernel))
        };
        match (&self.accepts, &node.value) {
            (Accepts::Range(..) | Accepts::Ranges(_), Value::Integer(number)) => {
                let (low, high) = self.range(kernel);
                match u64::try_from(*number) {
                    Ok(number) if (low..=high).contains(&number) => Ok(Setting::Number(number)),
                    _ => Err(wrong(number.to_string())),
                }
            }
            (Accepts::Words(words), Value::Text(text)) => words
                .iter()
                .find(|(word, since)| word == text && *since <= kernel)
                .map(|(word, _)| Setting::Word(word))
                .ok_or_else(|| wrong(quoted(text))),
            (Accepts::Numbers(count, low, high), Value::Text(text)) => {
                let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
                match numbers {
                    Ok(numbers)
                        if (1..=*count).contains(&numbers.len())
                            && numbers.iter().all(|number| (low..=high).contains(&number)) =>
                    {
                        Ok(Setting::Numbers(numbers))
                    }
                    _ => Err(wrong(quoted(text))),
                }
            }
            (_, Value::Text(text)) => Err(wrong(quoted(text))),
            (_, Value::Integer(number)) => Err(wrong(number.to_string())),
            (_, Value::Float(number)) => Err(wrong(number.to_string())),
            (_, Value::Bool(value)) => Err(wrong(value.to_string())),
            (_, other) => Err(wrong(other.kind().to_owned())),
        }
    }
}

/// Reads settings; keys may be quoted names or nested tables.
pub(crate) fn read(table: &Table, generation: Generation, errors: &mut Collector) -> Tuning {
    let mut tuning = Tuning::default();
    for (name, entry) in flatten(table) {
        let key = format!("tuning.{name:?}");
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            let known: Vec<&str> = names().collect();
            errors.add(entry.key_at, key, unknown_key(&name, &known));
            continue;
        };
        let kernel = generation.kernel;
        if row.since.is_some_and(|since| kernel < since) || row.until.is_some_and(|until| kernel > until) {
            errors.add(
                entry.key_at,
                key,
                format!("{} does not have it; {} has", kernel.name(), row.kernels()),
            );
            continue;
        }
        match row.value(&entry.node, kernel) {
            Ok(setting) => drop(tuning.values.insert(row.name, setting)),
            Err(message) => errors.add(entry.node.at, key, message),
        }
    }
    for (bytes, ratio) in [
        ("vm.dirty_bytes", "vm.dirty_ratio"),
        ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
        ("vm.overcommit_kbytes", "vm.overcommit_ratio"),
    ] {
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
                Value::Table(inner) if !entry.node.inline => {
                    let leaves = inner.0.iter().rev().map(|entry| (format!("{name}.{}", entry.key), entry));
                    open.extend(leaves);
                }
                _ => return Some((name, entry)),
            }
        }
    })
}

impl Row {
    /// The kernels that have it, in words.
    fn kernels(&self) -> String {
        match (self.since, self.until) {
            (None, None) => "every generation".to_owned(),
            (Some(since), None) => format!("{} and newer", since.name()),
            (None, Some(until)) if until == Kernel::Rhel6 => format!("only {}", until.name()),
            (None, Some(until)) => format!("{} and older", until.name()),
            (Some(since), Some(until)) => format!("{} to {}", since.name(), until.name()),
        }
    }

    /// The widest range, for a schema that knows no generation.
    fn schema(&self) -> Json {
        match &self.accepts {
            Accepts::Words(words) => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                json!({ "type": "string", "enum": words })
            }
            Accepts::Numbers(..) => json!({ "type": "string", "pattern": r"^\s*[0-9]+(\s+[0-9]+)*\s*$" }),
            Accepts::Range(..) | Accepts::Ranges(_) => {
                let (low, high) = self.range(Kernel::V6_12);
                json!({ "type": "integer", "minimum": low, "maximum": high })
            }
        }
    }
}

/// The schema of `[tuning]`: its properties.
pub(crate) fn schema() -> Map<String, Json> {
    let mut properties = Map::new();
    for row in ROWS {
        let mut schema = row.schema();
        if let Some(object) = schema.as_object_mut() {
            let about = format!(
                "{}{} ({})",
                row.about.get(..1).unwrap_or_default().to_uppercase(),
                row.about.get(1..).unwrap_or_default(),
                row.kernels()
            );
            object.insert("description".to_owned(), about.into());
        }
        properties.insert(row.name.to_owned(), schema);
    }
    properties
}

/// The reference table of the settings, in Markdown.
pub(crate) fn document() -> String {
    let mut text = "| setting | accepts | kernels | meaning |\n|---|---|---|---|\n".to_owned();
    for row in ROWS {
        let accepted = match &row.accepts {
            Accepts::Ranges(ranges) => {
                let parts = ranges.iter().map(|(since, low, high)| match *since {
                    Kernel::Rhel6 => format!("{low} to {high}"),
                    since => format!("{low} to {high} from {}", since.name()),
                });
                parts.collect::<Vec<_>>().join("; ")
            }
            Accepts::Range(low, high) if *high == i64::MAX as u64 => format!("{low} on"),
            Accepts::Range(low, high) if *high == INT => format!("{low} to 2³¹ − 1"),
            Accepts::Range(low, high) => format!("{low} to {high}"),
            Accepts::Words(words) => words
                .iter()
                .map(|(word, since)| match *since {
                    Kernel::Rhel6 => format!("`\"{word}\"`"),
                    since => format!("`\"{word}\"` (from {})", since.name()),
                })
                .collect::<Vec<_>>()
                .join(", "),
            Accepts::Numbers(count, ..) => format!("up to {count} numbers, such as `\"256 256 32\"`"),
        };
        text += &format!("| `\"{}\"` | {accepted} | {} | {} |\n", row.name, row.kernels(), row.about);
    }
    text
}
