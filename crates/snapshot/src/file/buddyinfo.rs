//! `/proc/buddyinfo`: free blocks per zone and order.

use std::fmt::Write as _;

use serde::Serialize;

use super::zoneinfo::{MOST_ZONES, lines, name_of, number, zone_line};
use crate::{File, Log, ProblemKind};

/// At most this many orders are read of a line; the largest `MAX_PAGE_ORDER` of any architecture is below 20.
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

/// Reads the counts of one row, by order; all rows of a file have equally many.
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
        for (line_number, line) in lines(text) {
            let Some((node, zone, words)) = zone_line(line) else {
                log.malformed(line_number, "not `Node number, zone name` and counts");
                continue;
            };
            if zones.len() == MOST_ZONES {
                log.whole(ProblemKind::Budget, format!("more than {MOST_ZONES} zones"));
                break;
            }
            match counts(words, zones.first().map(|zone| zone.blocks.len()), number) {
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
