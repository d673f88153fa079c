//! `/proc/buddyinfo`: free blocks per zone and order.

use std::fmt::Write as _;

use serde::Serialize;

use super::scan::{decimal, name_of, trimmed_lines};
use super::zoneinfo::{MOST_ZONES, zone_line};
use crate::{File, Log, ProblemKind};

/// At most this many orders are read per line; the largest `MAX_PAGE_ORDER` of any architecture is below 20.
pub(super) const MOST_ORDERS: usize = 64;

/// One zone's free lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BuddyZone {
    /// NUMA node.
    pub node: u32,
    /// Zone name.
    pub zone: Box<str>,
    /// Free blocks of 2^order pages, by order.
    pub blocks: Vec<u64>,
}

impl BuddyZone {
    /// Free pages in blocks of at least 2^`order` pages.
    pub fn pages_from(&self, order: usize) -> u64 {
        (self.blocks.iter().enumerate().skip(order))
            .fold(0, |sum, (order, blocks)| sum.saturating_add(blocks.saturating_mul(1 << order.min(40))))
    }
}

/// Reads the counts of one row, by order. All rows of a file have the same number of orders.
pub(super) fn counts<'a>(
    words: impl Iterator<Item = &'a [u8]>,
    orders: Option<usize>,
    count: impl Fn(&[u8]) -> Option<u64>,
) -> Result<Vec<u64>, &'static str> {
    let mut blocks = Vec::with_capacity(orders.unwrap_or(11).min(MOST_ORDERS));
    for word in words {
        if blocks.len() == MOST_ORDERS {
            return Err("more orders than Linux has");
        }
        blocks.push(count(word).ok_or("not a count of free blocks")?);
    }
    match orders {
        _ if blocks.is_empty() => Err("no counts of free blocks"),
        Some(orders) if blocks.len() != orders => Err("not as many orders as in the lines before"),
        _ => Ok(blocks),
    }
}

/// `mm/vmstat.c:frag_show_print`, 2.6.32 to 6.18.
impl File for Vec<BuddyZone> {
    fn parse(text: &[u8], log: &mut Log) -> Self {
        let mut zones: Vec<BuddyZone> = Vec::new();
        for (line_number, line) in trimmed_lines(text) {
            let Some((node, zone, words)) = zone_line(line) else {
                log.malformed(line_number, "not `Node number, zone name` and counts");
                continue;
            };
            if zones.len() == MOST_ZONES {
                log.whole(ProblemKind::Budget, format!("more than {MOST_ZONES} zones"));
                break;
            }
            match counts(words, zones.first().map(|zone| zone.blocks.len()), decimal) {
                Ok(blocks) => zones.push(BuddyZone { node, zone: name_of(zone), blocks }),
                Err(why) => log.malformed(line_number, why),
            }
        }
        zones
    }

    fn print(&self, out: &mut String) {
        for zone in self {
            let _ = write!(out, "Node {}, zone {:>8} ", zone.node, zone.zone);
            for blocks in &zone.blocks {
                let _ = write!(out, "{blocks:>6} ");
            }
            out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::file::trial::{bad_lines, clean, cut_anywhere, hostile, name, parse, print, settles};

    /// A file of 6.18; the layout is the same since before 2.6.32.
    const SAMPLE: &str =
        "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 
Node 0, zone    DMA32      3      3      2      2      5      5      4      3      4      1    752 
Node 0, zone   Normal   1392   1324    412    321    213     89     22     52     20     12     12 
";

    #[test]
    fn reads_and_prints_the_kernels_text() {
        let zones: Vec<BuddyZone> = clean(SAMPLE);
        assert_eq!(zones[1].blocks, [3, 3, 2, 2, 5, 5, 4, 3, 4, 1, 752]);
        assert_eq!((zones[2].node, &*zones[2].zone, zones[2].pages_from(10)), (0, "Normal", 12 << 10));
        assert_eq!(print(&zones), SAMPLE);
    }

    #[test]
    fn names_bad_lines_and_keeps_the_rest() {
        let text = b"Node 0, zone DMA 1 2 3\nNode 0, zone DMA32 1 2\nzone Normal 1 2 3\nNode 1, zone\nNode 1, zone A\n\
                     Node 2, zone \xfe 1 2 18446744073709551616\nNode 3, zone Normal 4 5 6";
        assert_eq!(bad_lines::<Vec<BuddyZone>>(text), [2, 3, 4, 5, 6]);
        let (zones, _) = parse::<Vec<BuddyZone>>(text);
        assert_eq!(zones.iter().map(|zone| zone.node).collect::<Vec<_>>(), [0, 3]);
    }

    #[test]
    fn is_bounded() {
        assert_eq!(bad_lines::<Vec<BuddyZone>>(format!("Node 0, zone A{}", " 1".repeat(65)).as_bytes()), [1]);
        let (zones, problems) =
            parse::<Vec<BuddyZone>>("Node 0, zone A 1\n".repeat(MOST_ZONES + 2).as_bytes());
        assert_eq!((zones.len(), problems.len(), problems[0].kind), (MOST_ZONES, 1, ProblemKind::Budget));
    }

    #[test]
    fn survives_cuts() {
        assert_eq!(clean::<Vec<BuddyZone>>(""), []);
        cut_anywhere::<Vec<BuddyZone>>(SAMPLE);
    }

    proptest! {
        #[test]
        fn round_trip(orders in 1..=MOST_ORDERS, zones in vec((any::<u32>(), name(), any::<[u64; 64]>()), 0..9)) {
            let zone = |(node, zone, blocks): (u32, Box<str>, [u64; 64])| {
                BuddyZone { node, zone, blocks: blocks[..orders].to_vec() }
            };
            let zones: Vec<BuddyZone> = zones.into_iter().map(zone).collect();
            prop_assert_eq!(clean::<Vec<BuddyZone>>(&print(&zones)), zones);
        }

        #[test]
        fn settles_whatever_it_reads(text in hostile(SAMPLE)) {
            settles::<Vec<BuddyZone>>(&text);
        }
    }
}
