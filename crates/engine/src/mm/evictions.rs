//! [`Evictions`]: exact books on evicted pages, which the kernel does not keep.
//!
//! Every page that reclaim evicts gets a stamp with the interval in which it left. When it comes back, the
//! books note for which process, and the intervals of its eviction and of its return. What `blame` derives
//! from the rows of a run is compared with them. They take 4 bytes a page, and exist only if they are asked
//! for.

use std::collections::BTreeMap;

use super::{Mm, footprint};

/// Books on evicted pages.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// The current interval, counted from 0.
    interval: u32,
    /// For each slot the interval in which its page was last evicted, plus 1; 0 if it never was.
    left_in: Vec<u32>,
    /// Pages that came back, by process and by the intervals in which they left and came back.
    returns: BTreeMap<(usize, u32, u32), u64>,
}

impl Evictions {
    pub(crate) fn evicted(&mut self, slot: u32) {
        if self.left_in.len() <= slot as usize {
            self.left_in.resize(slot as usize + 1, 0);
        }
        self.left_in[slot as usize] = self.interval + 1;
    }

    pub(crate) fn refaulted(&mut self, process: usize, slot: u32) {
        let left_in = self.left_in.get(slot as usize).and_then(|left_in| left_in.checked_sub(1));
        if let Some(left_in) = left_in {
            *self.returns.entry((process, left_in, self.interval)).or_default() += 1;
        }
    }

    /// Bytes allocated, without the returns.
    pub(crate) fn bytes(&self) -> usize {
        footprint::of(&self.left_in)
    }
}

impl Mm {
    /// Keeps books on evicted pages from now on.
    pub(crate) fn follow_evictions(&mut self) {
        self.evictions = Some(Box::default());
    }

    /// Ends an interval of the books.
    pub(crate) fn end_interval(&mut self) {
        if let Some(evictions) = &mut self.evictions {
            evictions.interval += 1;
        }
    }

    /// Pages that came back, by process and by the intervals in which they left and came back; nothing if no
    /// books are kept.
    pub(crate) fn returns(&self) -> impl Iterator<Item = ((usize, u32, u32), u64)> {
        self.evictions.iter().flat_map(|evictions| &evictions.returns).map(|(key, pages)| (*key, *pages))
    }
}
