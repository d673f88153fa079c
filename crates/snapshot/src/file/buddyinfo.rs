//! `/proc/buddyinfo`: free blocks per zone and order.

use serde::Serialize;

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
