//! `/proc/pagetypeinfo`: free blocks and page blocks per migrate type. Reading it walks the free lists under the
//! zone lock (0.3 ms on a small host, milliseconds on a large one), so it is read once, never in a loop.

use std::fmt::Write as _;

use serde::Serialize;

use super::buddyinfo::counts;
use super::zoneinfo::{MOST_ZONES, lines, name_of, number, number32, words, zone_line};
use crate::{File, Log, ProblemKind};

/// At most this many migrate types are read; kernels have up to seven.
const MOST_TYPES: usize = 64;
/// From 5.4 on the kernel stops counting here and prints `>100000`.
const CAP: u64 = 100_000;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageTypes {
    /// `Page block order`, 9 on x86-64.
    pub block_order: Option<u32>,
    /// Free blocks per order, one row per node, zone and migrate type. A count that the kernel prints as
    /// `>100000` is kept as 100000.
    pub free: Vec<FreeByType>,
    /// Page blocks per migrate type, one row per node and zone: type name and count.
    pub blocks: Vec<BlocksByType>,
}

/// Free blocks of one migrate type in one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FreeByType {
    /// NUMA node.
    pub node: u32,
    /// Zone name.
    pub zone: Box<str>,
    /// `Unmovable`, `Movable`, `Reclaimable`, `HighAtomic`, `CMA`, `Isolate`.
    pub migrate_type: Box<str>,
    /// Free blocks by order.
    pub blocks: Vec<u64>,
}

/// Page blocks of one zone by migrate type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlocksByType {
    /// NUMA node.
    pub node: u32,
    /// Zone name.
    pub zone: Box<str>,
    /// Migrate type and number of page blocks, in file order.
    pub counts: Vec<(Box<str>, u64)>,
}

/// What the lines without `type` mean.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    /// Before `Number of blocks type`.
    Free,
    /// Page blocks by type.
    Blocks,
    /// A section that is not kept (`Number of mixed blocks`, printed with `page_owner=on`), or whose heading made
    /// no sense.
    Other,
}

/// `mm/vmstat.c:pagetypeinfo_show`, 2.6.32 to 6.18.
impl File for PageTypes {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut types = PageTypes::default();
        let mut names: Vec<Box<str>> = Vec::new();
        let mut section = Section::Free;
        for (line_number, line) in lines(text) {
            if types.free.len().max(types.blocks.len()) >= MOST_ZONES * MOST_TYPES {
                log.whole(ProblemKind::Budget, "more lines than Linux has zones and migrate types");
                break;
            }
            let result = if line.starts_with(b"Node") {
                types.row(line, section, &names)
            } else if let Some(order) = line.strip_prefix(b"Page block order:") {
                let order = number32(order.trim_ascii()).filter(|&order| order < u64::BITS);
                types.block_order = order.or(types.block_order);
                order.map(drop).ok_or("not an order of pages")
            } else if line.starts_with(b"Pages per block:")
                || line.starts_with(b"Free pages count per migrate type")
            {
                Ok(())
            } else if let Some(heading) = line.strip_prefix(b"Number of blocks type") {
                names.clear();
                names.extend(words(heading).take(MOST_TYPES + 1).map(name_of));
                if names.is_empty() || names.len() > MOST_TYPES {
                    section = Section::Other;
                    Err("not a list of migrate types")
                } else {
                    section = Section::Blocks;
                    Ok(())
                }
            } else if line.starts_with(b"Number of mixed blocks") {
                section = Section::Other;
                Ok(())
            } else {
                Err("neither a heading nor a zone")
            };
            if let Err(why) = result {
                log.malformed(line_number, why);
            }
        }
        types
    }

    fn print(&self, out: &mut String) {
        if let Some(order) = self.block_order {
            let pages = 1u64.checked_shl(order).unwrap_or(0);
            let _ = writeln!(out, "Page block order: {order}\nPages per block:  {pages}\n");
        }
        out.push_str("Free pages count per migrate type at order ");
        for order in 0..self.free.iter().map(|row| row.blocks.len()).max().unwrap_or(0) {
            let _ = write!(out, "{order:>6} ");
        }
        out.push('\n');
        for row in &self.free {
            let _ = write!(out, "Node {:>4}, zone {:>8}, type {:>12} ", row.node, row.zone, row.migrate_type);
            for &blocks in &row.blocks {
                let _ = write!(out, "{}{blocks:>6} ", if blocks == CAP { ">" } else { "" });
            }
            out.push('\n');
        }
        let mut heading: Option<&BlocksByType> = None;
        for row in &self.blocks {
            let same =
                |above: &BlocksByType| above.counts.iter().map(|c| &c.0).eq(row.counts.iter().map(|c| &c.0));
            if !heading.is_some_and(same) {
                heading = Some(row);
                out.push_str("\nNumber of blocks type ");
                for (name, _) in &row.counts {
                    let _ = write!(out, "{name:>12} ");
                }
                out.push('\n');
            }
            let _ = write!(out, "Node {}, zone {:>8} ", row.node, row.zone);
            for (_, blocks) in &row.counts {
                let _ = write!(out, "{blocks:>12} ");
            }
            out.push('\n');
        }
    }
}

impl PageTypes {
    fn row(&mut self, line: &[u8], section: Section, names: &[Box<str>]) -> Result<(), &'static str> {
        let (node, zone, mut words) = zone_line(line).ok_or("not `Node number, zone name`")?;
        if words.clone().next() == Some(b"type") {
            words.next();
            let migrate_type = name_of(words.next().ok_or("no migrate type")?);
            let zone = name_of(zone.strip_suffix(b",").ok_or("no comma after the zone")?);
            let orders = self.free.first().map(|row| row.blocks.len());
            let count = |word: &[u8]| number(word.strip_prefix(b">").unwrap_or(word));
            // `>` and its number part when the number is shorter than its column.
            let blocks = counts(words.filter(|word| *word != b">"), orders, count)?;
            self.free.push(FreeByType { node, zone, migrate_type, blocks });
            return Ok(());
        }
        match section {
            Section::Other => return Ok(()),
            Section::Free => return Err("page blocks without a heading that names the migrate types"),
            Section::Blocks => {}
        }
        let mut counts = Vec::with_capacity(names.len());
        for name in names {
            let count = words.next().and_then(number).ok_or("not one number per migrate type")?;
            counts.push((name.clone(), count));
        }
        if words.next().is_some() {
            return Err("more numbers than migrate types");
        }
        self.blocks.push(BlocksByType { node, zone: name_of(zone), counts });
        Ok(())
    }
}
