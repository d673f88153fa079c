//! `/proc/zoneinfo`: one block per zone of each node.

use std::fmt::Write as _;

use lotsfree_counters::{Counter, Values, Vmstat, Zoneinfo, zoneinfo};
use serde::Serialize;

use crate::{File, Log, ProblemKind};

/// At most this many zones are kept; 1024 nodes, the most that Linux can be built for, have no more that are
/// populated.
pub(super) const MOST_ZONES: usize = 4096;
/// At most this many CPUs are kept of a zone or node: the largest `CONFIG_NR_CPUS` of x86.
pub(super) const MOST_CPUS: usize = 8192;
/// At most this many zones can be named in `protection:`; kernels have up to six.
const MOST_PROTECTED: usize = 64;

/// One zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// NUMA node.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`, `Device`.
    pub name: Box<str>,
    /// Free pages, watermarks, sizes (the `pages free` block) and the few fields after the page sets.
    pub marks: Values<Zoneinfo>,
    /// The zone's own statistics, under their `/proc/vmstat` names.
    pub stats: Values<Vmstat>,
    /// The node's statistics (`per-node stats`), printed by 4.8 and later in the node's first populated zone.
    pub node_stats: Option<Values<Vmstat>>,
    /// `protection:`, the lowmem reserve in pages against allocations that may use higher zones.
    pub protection: Vec<u64>,
    /// `pagesets`, one per CPU.
    pub pagesets: Vec<Pageset>,
}

/// A zone's free pages that one CPU holds back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pageset {
    /// CPU number.
    pub cpu: u32,
    /// Pages on the list.
    pub count: u64,
    /// Length at which it is trimmed.
    pub high: u64,
    /// Pages moved at a time.
    pub batch: u64,
}

/// Names printed after the page sets, with a colon, by one kernel or another.
const TAIL: [&str; 6] = [
    "node_unreclaimable",
    "all_unreclaimable",
    "prev_priority",
    "start_pfn",
    "node_inactive_ratio",
    "inactive_ratio",
];

/// Names that belong to a CPU's page set. `high` is a watermark's name as well, but then has no colon.
const PAGESET: [&[u8]; 5] = [b"count", b"high", b"batch", b"high_min", b"high_max"];

/// Where in a zone's block the next line stands.
#[derive(Clone, Copy, Default, PartialEq)]
enum Section {
    /// Before the first zone.
    #[default]
    Before,
    /// After a `Node` line that made no sense: whose lines these are is unknown.
    Lost,
    /// Below `per-node stats`.
    NodeStats,
    /// The `pages` block and the lines after the page sets.
    Marks,
    /// The zone's own statistics.
    Stats,
    /// Below a `cpu:` line.
    Pageset,
    /// Below a `cpu:` line that was one too many.
    LeftOut,
}

#[derive(Default)]
struct Reader {
    section: Section,
    marks: usize,
    stats: usize,
    node_stats: usize,
}

impl Reader {
    fn line(&mut self, line: &[u8], zone: &mut Zone) -> Result<(), &'static str> {
        let mut words = words(line);
        let mut first = words.next().unwrap_or_default();
        match first {
            b"per-node" if words.clone().next() == Some(b"stats") => {
                zone.node_stats.get_or_insert_default();
                self.section = Section::NodeStats;
                return Ok(());
            }
            b"pagesets" if words.clone().next().is_none() => return Ok(()),
            b"vm" if line.starts_with(b"vm stats threshold:") => return Ok(()),
            b"pages" => {
                self.section = Section::Marks;
                match words.next() {
                    None => return Ok(()),
                    Some(word) => first = word,
                }
            }
            b"protection:" | b"protection" => {
                zone.protection = protection(line)?;
                return Ok(());
            }
            _ => {}
        }
        let name = first.strip_suffix(b":");
        let (colon, name) = (name.is_some(), name.unwrap_or(first));
        let value = words.next().and_then(number).filter(|&value| value != u64::MAX);
        let value = value.ok_or("no number after the name")?;
        // 2.6.18 prints `scanned 0 (a: 0 i: 0)`.
        if words.next().is_some_and(|rest| !rest.starts_with(b"(")) {
            return Err("something after the number");
        }
        if name.is_empty() {
            return Err("a number without a name");
        }
        if colon { self.with_colon(name, value, zone) } else { self.without_colon(name, value, zone) }
    }

    /// `cpu:`, the lines of a page set, and those after the page sets.
    fn with_colon(&mut self, name: &[u8], value: u64, zone: &mut Zone) -> Result<(), &'static str> {
        if name == b"cpu" {
            let cpu = u32::try_from(value).map_err(|_| "not the number of a CPU")?;
            if zone.pagesets.len() >= MOST_CPUS {
                let again = self.section == Section::LeftOut;
                self.section = Section::LeftOut;
                return if again { Ok(()) } else { Err("more CPUs than Linux can have; they are left out") };
            }
            zone.pagesets.push(Pageset { cpu, ..Pageset::default() });
            self.section = Section::Pageset;
            return Ok(());
        }
        if PAGESET.contains(&name) {
            match (self.section, zone.pagesets.last_mut()) {
                (Section::Pageset, Some(pageset)) => {
                    match name {
                        b"count" => pageset.count = value,
                        b"high" => pageset.high = value,
                        b"batch" => pageset.batch = value,
                        // Bounds of the self-tuned `high` (6.7 and later).
                        _ => {}
                    }
                    return Ok(());
                }
                (Section::LeftOut, _) => return Ok(()),
                _ if name == b"high" => {}
                _ => return Err("a line of a CPU's page set without its CPU"),
            }
        }
        zone.marks.record(name, value, &mut self.marks);
        if matches!(self.section, Section::Pageset | Section::LeftOut) {
            self.section = Section::Marks;
        }
        Ok(())
    }

    /// The `pages` block and statistics.
    fn without_colon(&mut self, name: &[u8], value: u64, zone: &mut Zone) -> Result<(), &'static str> {
        let stat = name.starts_with(b"nr_") || name.starts_with(b"numa_");
        let text = if stat { None } else { str::from_utf8(name).ok() };
        if text.is_some_and(|text| Counter::<Zoneinfo>::named(text).is_some()) {
            if self.section == Section::NodeStats {
                self.section = Section::Marks;
            }
            zone.marks.record(name, value, &mut self.marks);
            return Ok(());
        }
        match &mut zone.node_stats {
            Some(stats) if self.section == Section::NodeStats => {
                stats.record(name, value, &mut self.node_stats);
                return Ok(());
            }
            _ => {}
        }
        if stat
            || self.section == Section::Stats
            || text.is_some_and(|text| Counter::<Vmstat>::named(text).is_some())
        {
            self.section = Section::Stats;
            zone.stats.record(name, value, &mut self.stats);
            return Ok(());
        }
        if name == b"cpu" || PAGESET.contains(&name) {
            return Err("a line of a CPU's page set without a colon");
        }
        zone.marks.record(name, value, &mut self.marks);
        Ok(())
    }
}

/// `protection: (0, 3017, 6473)`.
fn protection(line: &[u8]) -> Result<Vec<u64>, &'static str> {
    const WHY: &str = "not a list of numbers in parentheses";
    let start = line.iter().position(|&b| b == b'(').ok_or(WHY)?;
    let list = line[start + 1..].strip_suffix(b")").ok_or(WHY)?;
    if list.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let mut values = Vec::new();
    for item in list.split(|&b| b == b',') {
        if values.len() == MOST_PROTECTED {
            return Err("more zones than Linux has");
        }
        values.push(number(item.trim_ascii()).ok_or(WHY)?);
    }
    Ok(values)
}

/// `mm/vmstat.c:zoneinfo_show_print`, 2.6.32 to 6.18, and excerpts of it that lost their indentation.
///
/// A line `name number` belongs to the `pages` block if the table of that block has its name, else to the
/// statistics if the name begins like one (`nr_`, `numa_`), is one of `/proc/vmstat`, or follows one. Names
/// that nobody knows are kept where they stood. `high_min`, `high_max` and `vm stats threshold` of a page set are
/// not kept.
impl File for Vec<Zone> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut zones: Vec<Zone> = Vec::new();
        let mut reader = Reader::default();
        for (number, line) in lines(text) {
            if words(line).next() == Some(b"Node") {
                match zone_line(line) {
                    Some((node, name, rest)) if rest.clone().next().is_none() => {
                        if zones.len() == MOST_ZONES {
                            log.whole(ProblemKind::Budget, format!("more than {MOST_ZONES} zones"));
                            break;
                        }
                        zones.push(Zone { node, name: name_of(name), ..Zone::default() });
                        reader = Reader { section: Section::Marks, ..Reader::default() };
                    }
                    _ => {
                        log.malformed(number, "not `Node number, zone name`; its lines are passed over");
                        reader.section = Section::Lost;
                    }
                }
                continue;
            }
            match (reader.section, zones.last_mut()) {
                (Section::Lost, _) => {}
                (Section::Before, _) | (_, None) => {
                    log.malformed(number, "a line before the first `Node number, zone name`");
                    reader.section = Section::Lost;
                }
                (_, Some(zone)) => {
                    if let Err(why) = reader.line(line, zone) {
                        log.malformed(number, why);
                    }
                }
            }
        }
        zones
    }

    fn print(&self, out: &mut String) {
        for zone in self {
            zone.print(out);
        }
    }
}

impl Zone {
    fn print(&self, out: &mut String) {
        let _ = writeln!(out, "Node {}, zone {:>8}", self.node, self.name);
        if let Some(stats) = &self.node_stats {
            out.push_str("  per-node stats\n");
            print_stats(stats, out);
        }
        match self.marks.get(zoneinfo::free) {
            Some(free) => drop(writeln!(out, "  pages free     {free}")),
            // Ends the node's statistics.
            None if self.node_stats.is_some() => out.push_str("  pages\n"),
            None => {}
        }
        for (mark, value) in self.marks.iter() {
            if mark != zoneinfo::free && !TAIL.contains(&mark.name()) {
                let _ = writeln!(out, "        {:<8} {value}", mark.name());
            }
        }
        if let [first, rest @ ..] = &self.protection[..] {
            let _ = write!(out, "        protection: ({first}");
            for value in rest {
                let _ = write!(out, ", {value}");
            }
            out.push_str(")\n");
        }
        print_stats(&self.stats, out);
        if !self.pagesets.is_empty() {
            out.push_str("  pagesets\n");
        }
        for Pageset { cpu, count, high, batch } in &self.pagesets {
            let _ = writeln!(out, "    cpu: {cpu}");
            for (name, value) in [("count:", count), ("high:", high), ("batch:", batch)] {
                let _ = writeln!(out, "              {name:<9} {value}");
            }
        }
        let known = self.marks.iter().map(|(mark, value)| (mark.name(), value));
        let unknown = self.marks.unknown().iter().map(|(name, value)| (&**name, *value));
        for (name, value) in known.filter(|(name, _)| TAIL.contains(name)).chain(unknown) {
            let _ = writeln!(out, "  {:<20} {value}", format_args!("{name}:"));
        }
    }
}

fn print_stats(stats: &Values<Vmstat>, out: &mut String) {
    let known = stats.iter().map(|(counter, value)| (counter.name(), value));
    let unknown = stats.unknown().iter().map(|(name, value)| (&**name, *value));
    for (name, value) in known.chain(unknown) {
        let _ = writeln!(out, "      {name:<12} {value}");
    }
}

/// The lines of `text`, trimmed, with their numbers from 1. Blank ones are passed over.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let lines = (1u32..).zip(text.split(|&b| b == b'\n'));
    lines.map(|(number, line)| (number, line.trim_ascii())).filter(|(_, line)| !line.is_empty())
}

/// The words between white space.
pub(super) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A decimal number that is all of `word`; `None` if it is not one or does not fit.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    let digit = |value: u64, &b: &u8| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    };
    if word.is_empty() { None } else { word.iter().try_fold(0, digit) }
}

/// [`number`] where 32 bits hold it.
pub(super) fn number32(word: &[u8]) -> Option<u32> {
    number(word)?.try_into().ok()
}

/// A name; bytes that are not UTF-8 become U+FFFD.
pub(super) fn name_of(word: &[u8]) -> Box<str> {
    String::from_utf8_lossy(word).into()
}

/// `Node 0, zone   Normal` and the words after it, as three files of `mm/vmstat.c` begin their lines.
pub(super) fn zone_line(line: &[u8]) -> Option<(u32, &[u8], impl Iterator<Item = &[u8]> + Clone)> {
    let mut words = words(line);
    if words.next()? != b"Node" {
        return None;
    }
    let node = number32(words.next()?.strip_suffix(b",")?)?;
    if words.next()? != b"zone" {
        return None;
    }
    Some((node, words.next()?, words))
}
