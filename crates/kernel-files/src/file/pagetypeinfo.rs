//! `/proc/pagetypeinfo`: free blocks and page blocks per migrate type. To print it, the kernel walks the free
//! lists under the zone lock (0.3 ms on a small host, milliseconds on a large one), so the file is read once,
//! never in a loop.

use std::fmt::Write as _;

use serde::Serialize;

use super::buddyinfo::counts;
use super::scan::{decimal, decimal32, name_of, trimmed_lines, words};
use super::zoneinfo::{MOST_ZONES, zone_line};
use crate::{File, Log, ProblemKind};

/// At most this many migrate types are read; kernels have up to seven.
const MOST_TYPES: usize = 64;
/// At most this many rows are kept per section.
const MOST_ROWS: usize = MOST_ZONES * 8;
/// From 5.4 on the kernel stops counting at this number and prints `>100000`.
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

/// Meaning of the lines without `type`, by the headings before them.
#[derive(Clone, Copy, PartialEq)]
enum Section {
    /// Free blocks: lines before `Number of blocks type`.
    Free,
    /// Page blocks by type.
    Blocks,
    /// A section that is not kept (`Number of mixed blocks`, printed with `page_owner=on`), or one with a
    /// malformed heading.
    Other,
}

/// `mm/vmstat.c:pagetypeinfo_show`, 2.6.32 to 6.18.
impl File for PageTypes {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut types = PageTypes::default();
        let mut names: Vec<Box<str>> = Vec::new();
        let mut section = Section::Free;
        for (line_number, line) in trimmed_lines(text) {
            if types.free.len().max(types.blocks.len()) >= MOST_ROWS {
                log.whole(ProblemKind::Budget, "more lines than Linux has zones and migrate types");
                break;
            }
            let result = if line.starts_with(b"Node") {
                types.row(line, section, &names)
            } else if let Some(order) = line.strip_prefix(b"Page block order:") {
                let order = decimal32(order.trim_ascii()).filter(|&order| order < u64::BITS);
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
        out.push_str("Free pages count per migrate type at order  ");
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
                out.push_str("\nNumber of blocks type  ");
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
            let count = |word: &[u8]| decimal(word.strip_prefix(b">").unwrap_or(word));
            // `>` and its number are separate words if the number is shorter than its column.
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
            let count = words.next().and_then(decimal).ok_or("not one number per migrate type")?;
            counts.push((name.clone(), count));
        }
        if words.next().is_some() {
            return Err("more numbers than migrate types");
        }
        self.blocks.push(BlocksByType { node, zone: name_of(zone), counts });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, name, parse, print, settles};

    /// Two zones of 6.18.
    const NEW: &str = "Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10 
Node    0, zone      DMA, type    Unmovable      0      0      0      0      0      0      0      0      1      0      0 
Node    0, zone      DMA, type   HighAtomic      0      0      0      0      0      0      0      0      0      0      0 
Node    0, zone   Normal, type    Unmovable    764    368     81    305    208     87     21     22      2      0      0 
Node    0, zone   Normal, type      Movable >100000    956    331     15      4      1      0     29     17     11     12 

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate 
Node 0, zone      DMA            1            7            0            0            0 
Node 0, zone   Normal          175         1454           99            0            0 
";
    /// The layout of a 3.x kernel, with the columns squeezed by a mail program.
    const OLD: &str = "Free pages count per migrate type at order      0     1     2    3    4
Node    0, zone      DMA, type    Unmovable   272   243   126    1    0
Node    0, zone      DMA, type      Reserve     0     0     0    0    0
Number of blocks type Unmovable Reclaimable Movable Reserve CMA Isolate
Node 0, zone      DMA       183          12     417       2 113       0
Number of mixed blocks    Unmovable  Reclaimable      Movable      Reserve      CMA    Isolate
Node 0, zone      DMA       1          2     3       4 5       6
";

    #[test]
    fn reads_and_prints_6_18() {
        let types: PageTypes = clean(NEW);
        assert_eq!((types.block_order, types.free.len(), types.blocks.len()), (Some(9), 4, 2));
        let movable = &types.free[3];
        assert_eq!((&*movable.zone, &*movable.migrate_type), ("Normal", "Movable"));
        assert_eq!(movable.blocks, [100_000, 956, 331, 15, 4, 1, 0, 29, 17, 11, 12]);
        assert_eq!(types.blocks[1].counts[2], ("Reclaimable".into(), 99));
        assert_eq!(print(&types), NEW);
    }

    #[test]
    fn reads_3_x_and_leaves_mixed_blocks_out() {
        let types: PageTypes = clean(OLD);
        assert_eq!((types.block_order, types.free.len(), types.blocks.len()), (None, 2, 1));
        assert_eq!(types.free[0].blocks, [272, 243, 126, 1, 0]);
        assert_eq!(types.blocks[0].counts[4], ("CMA".into(), 113));
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text =
            b"Page block order: 64\nNode 0, zone A, type B 1 2\nNode 0, zone A, type C 1\nNode 0, zone A 1\n\
                     hello\nNode 0, zone A, type\nNode 0, zone A type D 1 2\nNumber of blocks type X Y\n\
                     Node 0, zone A 3\nNode 0, zone A 3 4 5\nNode 0, zone A 3 4";
        assert_eq!(bad_lines::<PageTypes>(text), [1, 3, 4, 5, 6, 7, 9, 10]);
        let (types, _) = parse::<PageTypes>(text);
        assert_eq!(types.free.len(), 1);
        assert_eq!(types.blocks[0].counts, [("X".into(), 3), ("Y".into(), 4)]);
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<PageTypes>(""), PageTypes::default());
        cut_anywhere::<PageTypes>(NEW);
        cut_anywhere::<PageTypes>(OLD);
    }

    #[test]
    fn is_bounded() {
        let text = "Node 0, zone A, type B 1\n".repeat(MOST_ROWS + 2);
        let (types, problems) = parse::<PageTypes>(text.as_bytes());
        assert_eq!((types.free.len(), problems.len(), problems[0].kind), (MOST_ROWS, 1, ProblemKind::Budget));
        let heading = format!("Number of blocks type{}", " A".repeat(MOST_TYPES + 1));
        assert_eq!(bad_lines::<PageTypes>(heading.as_bytes()), [1]);
    }

    proptest! {
        #[test]
        fn round_trip(
            block_order in prop::option::of(0u32..64),
            orders in 1usize..=32,
            free in vec((any::<u32>(), name(), name(), any::<[u64; 32]>(), any::<bool>()), 0..9),
            blocks in vec((any::<u32>(), name(), vec((name(), any::<u64>()), 1..6)), 0..5),
        ) {
            let free = free.into_iter().map(|(node, zone, migrate_type, mut blocks, capped)| {
                if capped {
                    blocks[0] = CAP;
                }
                FreeByType { node, zone, migrate_type, blocks: blocks[..orders].to_vec() }
            });
            let blocks = blocks.into_iter().map(|(node, zone, counts)| BlocksByType { node, zone, counts });
            let types = PageTypes { block_order, free: free.collect(), blocks: blocks.collect() };
            prop_assert_eq!(clean::<PageTypes>(&print(&types)), types);
        }

        #[test]
        fn settles_whatever_it_reads(new in hostile(NEW), old in hostile(OLD)) {
            settles::<PageTypes>(&new);
            settles::<PageTypes>(&old);
        }
    }
}
