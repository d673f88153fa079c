//! Which slot of swap a page gets (`mm/swapfile.c`): [`SwapSlots`] says by which rule.
//!
//! ```text
//!  free ──▶ a CPU's cluster ──▶ full
//!   ▲            │    ▲           │
//!   │            ▼    │           ▼  a slot is freed
//!   └───────── frag ──┴──────▶ nonfull
//! ```
//!
//! Not modelled: that the area's first page is its header, slots of several pages, discards, and slots that
//! are taken from pages in memory when swap is getting full.

use std::collections::BTreeMap;

use super::super::footprint;
use super::super::frame::NONE;
use crate::generation::SwapSlots;

/// The slots of a cluster where the next free one is taken (`SWAPFILE_CLUSTER` without huge pages).
const CLUSTER: u32 = 256;
/// The slots of a cluster where clusters are on lists: as many as a huge page has pages.
const LISTED: u32 = 512;

/// The rule by which slots are chosen, with its state.
#[derive(Debug)]
pub(super) enum Slots {
    NextFree(NextFree),
    Clusters(Clusters),
}

impl Slots {
    /// All slots are free. `cursors` is 1 where seeking costs time, otherwise the number of CPUs.
    pub(super) fn new(rule: SwapSlots, total: u32, cursors: usize) -> Self {
        match rule {
            SwapSlots::NextFree => Slots::NextFree(NextFree::new(total, cursors)),
            SwapSlots::Clusters => Slots::Clusters(Clusters::new(total, cursors)),
        }
    }

    /// Takes a slot for a task on a CPU. `owner` says of each slot whether it is in use.
    pub(super) fn take(&mut self, cpu: usize, owner: &[u32]) -> Option<u32> {
        match self {
            Slots::NextFree(slots) => slots.take(cpu, owner),
            Slots::Clusters(slots) => slots.take(cpu, owner),
        }
    }

    /// Gives a slot back.
    pub(super) fn release(&mut self, slot: u32) {
        match self {
            Slots::NextFree(slots) => slots.cluster_free[(slot / CLUSTER) as usize] += 1,
            Slots::Clusters(slots) => slots.release(slot),
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Slots::NextFree(slots) => footprint::of(&slots.cluster_free) + footprint::of(&slots.cursor),
            Slots::Clusters(slots) => {
                footprint::of(&slots.clusters)
                    + footprint::of(&slots.next)
                    + slots.lists.iter().map(|list| list.len() * size_of::<(u64, u32)>()).sum::<usize>()
            }
        }
    }

    /// For `check`: compares the counts with the slots, and the lists with the counts.
    pub(super) fn check(&self, owner: &[u32]) -> Result<(), String> {
        match self {
            Slots::NextFree(slots) => slots.check(owner),
            Slots::Clusters(slots) => slots.check(owner),
        }
    }
}

/// [`SwapSlots::NextFree`]
#[derive(Debug)]
pub(super) struct NextFree {
    total: u32,
    /// Free slots of each cluster.
    cluster_free: Vec<u16>,
    /// Where the search for the next slot begins: one cursor, or one for each CPU where seeking costs
    /// nothing.
    cursor: Vec<u32>,
}

impl NextFree {
    fn new(total: u32, cursors: usize) -> Self {
        let clusters = total.div_ceil(CLUSTER);
        let cluster_free = (0..clusters).map(|i| CLUSTER.min(total - i * CLUSTER) as u16).collect();
        NextFree { total, cluster_free, cursor: vec![NONE; cursors] }
    }

    /// Takes a free slot, the one next to the last as long as the cluster lasts (`scan_swap_map`).
    fn take(&mut self, cpu: usize, owner: &[u32]) -> Option<u32> {
        let which = cpu % self.cursor.len();
        let mut at = self.cursor[which];
        let usable = |at: u32| owner.get(at as usize) == Some(&NONE);
        if at == NONE || at.is_multiple_of(CLUSTER) || !usable(at) {
            // The rest of the cluster is tried first, then an empty cluster, then any free slot.
            let rest = (at != NONE && !at.is_multiple_of(CLUSTER))
                .then(|| (at..(at / CLUSTER + 1) * CLUSTER).find(|&slot| usable(slot)))
                .flatten();
            at = match rest {
                Some(slot) => slot,
                None => {
                    let from = if at == NONE { 0 } else { at / CLUSTER };
                    self.next_cluster(from, owner)?
                }
            };
        }
        self.cursor[which] = at + 1;
        self.cluster_free[(at / CLUSTER) as usize] -= 1;
        Some(at)
    }

    /// The first free slot of the next cluster that is wholly free, or otherwise of the next that has a free
    /// slot.
    fn next_cluster(&self, from: u32, owner: &[u32]) -> Option<u32> {
        let count = self.cluster_free.len() as u32;
        let cursors = &self.cursor;
        let in_order = || (0..count).map(|i| (from + i) % count);
        let whole = |i: &u32| {
            let full = CLUSTER.min(self.total - i * CLUSTER) as u16;
            let taken = cursors.iter().any(|&c| c != NONE && c / CLUSTER == *i && c % CLUSTER != 0);
            self.cluster_free[*i as usize] == full && !taken
        };
        let cluster = in_order().find(whole);
        let cluster = cluster.or_else(|| in_order().find(|&i| self.cluster_free[i as usize] > 0))?;
        (cluster * CLUSTER..self.total).find(|&slot| owner[slot as usize] == NONE)
    }

    fn check(&self, owner: &[u32]) -> Result<(), String> {
        for (cluster, (counted, slots)) in
            self.cluster_free.iter().zip(owner.chunks(CLUSTER as usize)).enumerate()
        {
            let found = slots.iter().filter(|&&owner| owner == NONE).count();
            if usize::from(*counted) != found {
                return Err(format!("swap cluster {cluster} counts {counted} free slots and has {found}"));
            }
        }
        Ok(())
    }
}

/// The list that a cluster is on (`enum swap_cluster_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// Slots of it were freed since it was last used.
    Nonfull,
    /// No slot of it is in use.
    Free,
    /// It was used, and has slots left.
    Frag,
    /// It has no slot left; nobody takes a cluster from this list.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Cluster {
    slots: u16,
    used: u16,
    list: List,
    /// Its turn on the list, which is its key there.
    turn: u64,
}

/// [`SwapSlots::Clusters`]
#[derive(Debug)]
pub(super) struct Clusters {
    clusters: Vec<Cluster>,
    /// The clusters of each list by their turns.
    lists: [BTreeMap<u64, u32>; 4],
    /// The turn of the next cluster that joins a list.
    turn: u64,
    /// The slot at which the search in a CPU's cluster goes on, or that in the device's where seeking costs
    /// time; [`NONE`] where there is no cluster (`percpu_swap_cluster`, `global_cluster`).
    next: Vec<u32>,
}

impl Clusters {
    /// `setup_clusters`: clusters that lack a slot are the first to be used. The first one lacks that of the
    /// area's header.
    fn new(total: u32, cursors: usize) -> Self {
        let mut slots =
            Clusters { clusters: Vec::new(), lists: Default::default(), turn: 0, next: vec![NONE; cursors] };
        for at in 0..total.div_ceil(LISTED) {
            let size = LISTED.min(total - at * LISTED) as u16;
            slots.clusters.push(Cluster { slots: size, used: 0, list: List::Full, turn: 0 });
            slots.lists[List::Full as usize].insert(slots.turn, at);
            slots.clusters[at as usize].turn = slots.turn;
            slots.turn += 1;
            slots.join(at, slots.unused(at));
        }
        slots
    }

    /// The list of a cluster whose slots are all free.
    fn unused(&self, at: u32) -> List {
        let whole = at > 0 && u32::from(self.clusters[at as usize].slots) == LISTED;
        if whole { List::Free } else { List::Nonfull }
    }

    /// Moves a cluster to the end of a list (`move_cluster`).
    fn join(&mut self, at: u32, list: List) {
        let cluster = &mut self.clusters[at as usize];
        self.lists[cluster.list as usize].remove(&cluster.turn);
        (cluster.list, cluster.turn) = (list, self.turn);
        self.lists[list as usize].insert(self.turn, at);
        self.turn += 1;
    }

    fn take(&mut self, cpu: usize, owner: &[u32]) -> Option<u32> {
        let which = cpu % self.next.len();
        let next = self.next[which];
        // A cluster that has been freed meanwhile has lost its table, so that it is no longer the CPU's.
        if next != NONE && !matches!(self.clusters[(next / LISTED) as usize].list, List::Free | List::Full) {
            let slot = self.scan(which, next, owner);
            let at = next / LISTED;
            self.relocate(at, self.clusters[at as usize].list == List::Frag);
            if slot.is_some() {
                return slot;
            }
        }
        for list in [List::Nonfull, List::Free, List::Frag] {
            if let Some((_, &at)) = self.lists[list as usize].first_key_value() {
                let slot = self.scan(which, at * LISTED, owner);
                self.relocate(at, false);
                return slot;
            }
        }
        None
    }

    /// Takes the next free slot of a cluster from one on (`alloc_swap_scan_cluster`).
    fn scan(&mut self, which: usize, from: u32, owner: &[u32]) -> Option<u32> {
        let at = from / LISTED;
        let cluster = &mut self.clusters[at as usize];
        let end = at * LISTED + u32::from(cluster.slots);
        let slot = (from..end).find(|&slot| owner[slot as usize] == NONE);
        cluster.used += u16::from(slot.is_some());
        let goes_on = |slot: &u32| slot + 1 < end && cluster.used < cluster.slots;
        self.next[which] = slot.filter(goes_on).map_or(NONE, |slot| slot + 1);
        slot
    }

    /// Puts a cluster where it belongs after it was used (`relocate_cluster`); `stays` says that it is in its
    /// place unless it is full.
    fn relocate(&mut self, at: u32, stays: bool) {
        let cluster = self.clusters[at as usize];
        if cluster.used == cluster.slots {
            self.join(at, List::Full);
        } else if !stays {
            self.join(at, List::Frag);
        }
    }

    /// `free_cluster`, `partial_free_cluster`
    fn release(&mut self, slot: u32) {
        let at = slot / LISTED;
        let cluster = &mut self.clusters[at as usize];
        cluster.used -= 1;
        let (used, list) = (cluster.used, cluster.list);
        let to = if used == 0 { self.unused(at) } else { List::Nonfull };
        if list != to {
            self.join(at, to);
        }
    }

    fn check(&self, owner: &[u32]) -> Result<(), String> {
        let listed: usize = self.lists.iter().map(BTreeMap::len).sum();
        if listed != self.clusters.len() {
            return Err(format!("{} swap clusters are on lists of {listed}", self.clusters.len()));
        }
        for ((at, cluster), slots) in (0u32..).zip(&self.clusters).zip(owner.chunks(LISTED as usize)) {
            let used = slots.iter().filter(|&&owner| owner != NONE).count();
            if used != usize::from(cluster.used) || slots.len() != usize::from(cluster.slots) {
                return Err(format!("swap cluster {at} is {cluster:?} and has {used} of {}", slots.len()));
            }
            let belongs = match cluster.list {
                List::Free => used == 0 && self.unused(at) == List::Free,
                List::Full => used == slots.len(),
                List::Nonfull | List::Frag => {
                    used < slots.len() && (used > 0 || self.unused(at) == List::Nonfull)
                }
            };
            if !belongs || self.lists[cluster.list as usize].get(&cluster.turn) != Some(&at) {
                return Err(format!("swap cluster {at} does not belong where it is: {cluster:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An area with the owner of each slot.
    struct Area {
        slots: Slots,
        owner: Vec<u32>,
    }

    impl Area {
        fn new(rule: SwapSlots, total: u32, cpus: usize) -> Self {
            Area { slots: Slots::new(rule, total, cpus), owner: vec![NONE; total as usize] }
        }

        fn take(&mut self, cpu: usize) -> Option<u32> {
            let slot = self.slots.take(cpu, &self.owner)?;
            assert_eq!(std::mem::replace(&mut self.owner[slot as usize], 0), NONE, "slot {slot} is taken");
            assert_eq!(self.slots.check(&self.owner), Ok(()));
            Some(slot)
        }

        fn take_all(&mut self, count: u32) -> Vec<u32> {
            (0..count).filter_map(|_| self.take(0)).collect()
        }

        fn free(&mut self, slot: u32) {
            self.owner[slot as usize] = NONE;
            self.slots.release(slot);
            assert_eq!(self.slots.check(&self.owner), Ok(()));
        }
    }

    #[test]
    fn clusters_that_lack_a_slot_are_filled_first_and_then_the_others_in_order() {
        // Four clusters, the last of 100 slots.
        let mut area = Area::new(SwapSlots::Clusters, 3 * LISTED + 100, 1);
        let order: Vec<u32> =
            (0..LISTED).chain(3 * LISTED..3 * LISTED + 100).chain(LISTED..3 * LISTED).collect();
        assert_eq!(area.take_all(u32::MAX >> 8), order);
    }

    #[test]
    fn every_cpu_has_a_cluster_of_its_own() {
        let mut area = Area::new(SwapSlots::Clusters, 4 * LISTED, 2);
        let firsts = [area.take(0), area.take(1), area.take(0), area.take(1)];
        assert_eq!(firsts, [Some(0), Some(LISTED), Some(1), Some(LISTED + 1)]);
        // Where seeking costs time, the device has one.
        let mut disk = Area::new(SwapSlots::Clusters, 4 * LISTED, 1);
        assert_eq!([disk.take(0), disk.take(1), disk.take(0)], [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn a_cluster_that_lost_slots_comes_before_free_ones_and_with_them_no_longer() {
        let mut area = Area::new(SwapSlots::Clusters, 4 * LISTED, 1);
        area.take_all(2 * LISTED);
        area.free(LISTED + 7);
        area.free(3);
        area.free(400);
        // The one that lost a slot first is used first, each from its beginning on.
        assert_eq!(area.take_all(4), [LISTED + 7, 3, 400, 2 * LISTED]);
        // Older kernels prefer what is wholly free.
        let mut older = Area::new(SwapSlots::NextFree, 4 * LISTED, 1);
        older.take_all(2 * LISTED);
        older.free(LISTED + 7);
        older.free(3);
        assert_eq!(older.take_all(2), [2 * LISTED, 2 * LISTED + 1]);
    }

    #[test]
    fn slots_behind_the_search_are_left_until_their_cluster_has_its_turn() {
        let mut area = Area::new(SwapSlots::Clusters, 2 * LISTED, 1);
        area.take_all(10);
        area.free(2);
        assert_eq!(area.take(0), Some(10), "the search goes on where it was");
        area.take_all(LISTED - 11);
        // The cluster is not full, but nothing of it was freed since it was used.
        assert_eq!(area.take(0), Some(LISTED));
        area.take_all(LISTED - 1);
        assert_eq!(area.take(0), Some(2), "what is left of a used cluster comes last");
        assert_eq!(area.take(0), None);
    }

    #[test]
    fn a_cluster_that_is_freed_whole_joins_the_end_of_the_free_ones() {
        let mut area = Area::new(SwapSlots::Clusters, 4 * LISTED, 1);
        area.take_all(LISTED + 3);
        for slot in LISTED..LISTED + 3 {
            area.free(slot);
        }
        // The CPU's cluster is no longer its own: the search begins with the next free one.
        assert_eq!(area.take(0), Some(2 * LISTED));
        area.take_all(2 * LISTED - 1);
        assert_eq!(area.take(0), Some(LISTED));
    }

    #[test]
    fn both_rules_hand_out_every_slot_once() {
        for rule in [SwapSlots::NextFree, SwapSlots::Clusters] {
            let mut area = Area::new(rule, 2000, 3);
            let mut state = 1u32;
            let mut taken = Vec::new();
            for step in 0..20_000 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let grows = state >> 31 == 1 || step < 1500;
                if grows && taken.len() < 2000 {
                    taken.push(area.take(step % 3).expect("not all are taken"));
                } else if !taken.is_empty() {
                    area.free(taken.swap_remove(state as usize % taken.len()));
                }
            }
        }
    }
}
