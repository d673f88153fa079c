//! Textbook replacement, to compare the kernel's rules with: LRU and CLOCK for a single file whose pages all
//! cost the same, over the same frames, entries and lists that the kernel's rules use.
//!
//! There are no zones, no watermarks and no page tables: every frame may hold any page, and an access that
//! misses evicts one page if no frame is empty.

use crate::mm::frame::{Frame, List, entry};

/// The policy that chooses which page is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The page that was not accessed for the longest time.
    Lru,
    /// The next page under the hand that was not accessed since the hand passed it or it came in. The hand
    /// clears the accessed bits that it meets. A page comes in with its bit clear, behind the hand.
    Clock,
}

/// A file's pages in a fixed number of frames.
#[derive(Debug)]
pub struct Reference {
    replacement: Replacement,
    entries: Vec<u32>,
    frames: Vec<Frame>,
    used: u32,
    /// LRU: pages by time of access, the latest at the head. CLOCK: the hand is at the tail and turns to the
    /// head.
    list: List,
}

impl Reference {
    /// A file of `pages` pages, none of them in memory, and `frames` empty frames, clamped to at least 1 and
    /// below 2²⁹.
    pub fn new(replacement: Replacement, pages: u32, frames: u32) -> Self {
        let frames = frames.clamp(1, entry::VALUE);
        Reference {
            replacement,
            entries: vec![entry::EMPTY; pages as usize],
            frames: vec![Frame::default(); frames as usize],
            used: 0,
            list: List::default(),
        }
    }

    /// Accesses a page. Returns whether it was in memory, or `None` if the file does not have it.
    #[inline]
    pub fn access(&mut self, page: u32) -> Option<bool> {
        let e = self.entries.get_mut(page as usize)?;
        if *e & entry::MAPPED == 0 {
            self.bring_in(page);
            return Some(false);
        }
        match self.replacement {
            Replacement::Clock => *e |= entry::ACCESSED,
            Replacement::Lru => {
                let frame = *e & entry::VALUE;
                if self.list.newest() != frame {
                    self.list.remove(&mut self.frames, frame);
                    self.list.push_head(&mut self.frames, frame);
                }
            }
        }
        Some(true)
    }

    fn bring_in(&mut self, page: u32) {
        let frame = if (self.used as usize) < self.frames.len() {
            self.used += 1;
            self.used - 1
        } else {
            self.evict()
        };
        self.frames[frame as usize].slot = page;
        self.entries[page as usize] = entry::MAPPED | frame;
        self.list.push_head(&mut self.frames, frame);
    }

    /// Evicts a page and returns its frame, which is then on no list.
    fn evict(&mut self) -> u32 {
        loop {
            let frame = self.list.oldest();
            self.list.remove(&mut self.frames, frame);
            let e = &mut self.entries[self.frames[frame as usize].slot as usize];
            if *e & entry::ACCESSED == 0 {
                *e = entry::EMPTY;
                return frame;
            }
            *e &= !entry::ACCESSED;
            self.list.push_head(&mut self.frames, frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    /// Zipf(1.0) over `pages` pages in a random order of popularity.
    fn zipf(pages: u32, count: usize, seed: u64) -> Vec<u32> {
        let mut random = seed;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let sums: Vec<f64> = (1..=pages)
            .scan(0.0, |sum, rank| {
                *sum += 1.0 / f64::from(rank);
                Some(*sum)
            })
            .collect();
        let mut order: Vec<u32> = (0..pages).collect();
        for last in (1..pages as usize).rev() {
            order.swap(last, (next() % (last as u64 + 1)) as usize);
        }
        let total = sums[pages as usize - 1];
        (0..count)
            .map(|_| {
                let at = (next() >> 11) as f64 / (1u64 << 53) as f64 * total;
                order[sums.partition_point(|&sum| sum <= at).min(pages as usize - 1)]
            })
            .collect()
    }

    /// Textbook LRU: the time of each page's last access, and the pages in the order of that time.
    fn lru_misses(trace: &[u32], frames: usize) -> usize {
        let (mut last, mut by_time) = (HashMap::new(), BTreeMap::new());
        let mut misses = 0;
        for (now, &page) in trace.iter().enumerate() {
            match last.insert(page, now) {
                Some(before) => {
                    by_time.remove(&before);
                }
                None => {
                    misses += 1;
                    if by_time.len() == frames
                        && let Some((_, oldest)) = by_time.pop_first()
                    {
                        last.remove(&oldest);
                    }
                }
            }
            by_time.insert(now, page);
        }
        misses
    }

    /// Textbook CLOCK: pages in a ring, one bit for each, and a hand.
    fn clock_misses(trace: &[u32], frames: usize) -> usize {
        let mut ring: Vec<(u32, bool)> = Vec::new();
        let mut place = HashMap::new();
        let (mut hand, mut misses) = (0, 0);
        for &page in trace {
            if let Some(&at) = place.get(&page) {
                let bit: &mut (u32, bool) = &mut ring[at];
                bit.1 = true;
                continue;
            }
            misses += 1;
            if ring.len() < frames {
                place.insert(page, ring.len());
                ring.push((page, false));
                continue;
            }
            while ring[hand].1 {
                ring[hand].1 = false;
                hand = (hand + 1) % frames;
            }
            place.remove(&ring[hand].0);
            place.insert(page, hand);
            ring[hand] = (page, false);
            hand = (hand + 1) % frames;
        }
        misses
    }

    fn misses(replacement: Replacement, trace: &[u32], pages: u32, frames: u32) -> usize {
        let mut reference = Reference::new(replacement, pages, frames);
        trace.iter().filter(|&&page| reference.access(page) == Some(false)).count()
    }

    #[test]
    fn misses_equal_the_textbook_s() {
        for (seed, pages, frames) in
            [(1, 1000, 1), (2, 1000, 2), (3, 1000, 100), (4, 10_000, 1000), (5, 10_000, 5000), (6, 100, 200)]
        {
            let trace = zipf(pages, 100_000, 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
            let case = format!("{frames} frames for {pages} pages");
            let lru = misses(Replacement::Lru, &trace, pages, frames);
            assert_eq!(lru, lru_misses(&trace, frames as usize), "LRU, {case}");
            let clock = misses(Replacement::Clock, &trace, pages, frames);
            assert_eq!(clock, clock_misses(&trace, frames as usize), "CLOCK, {case}");
            assert!(frames == 1 || frames > pages || lru != clock, "{case}");
        }
    }

    #[test]
    fn a_page_beyond_the_file_is_no_access() {
        let mut reference = Reference::new(Replacement::Lru, 2, 1);
        assert_eq!(
            [1, 1, 0, 1, 2].map(|page| reference.access(page)),
            [Some(false), Some(true), Some(false), Some(false), None]
        );
    }
}
