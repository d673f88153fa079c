//! Shadows of evicted pages (`mm/workingset.c`).
//!
//! A shadow has 29 bits: whether the page had been active, the lruvec it was evicted from, and the low bits
//! of a time that the policy chooses: the lruvec's clock, or with MGLRU the sequence number of the oldest
//! generation and the page's tier. What a refault means is the policy's to say.
//!
//! File pages have shadows from the generation linux-4.4 on (3.15, a528910e12ec; `Refault` in
//! `formulas/src/lists.rs` decides what a refault activates), anonymous pages from linux-6.1 on (5.9,
//! aae466b0052e; `Generation::anon_refault`). A shadow lies in the page's own entry.
//!
//! The pages and shadows of a file are held by nodes, one for 64 of them (`lib/xarray.c`; those above the
//! lowest are left out), and so are those of a swap area, by their slots. A node that holds shadows alone may
//! be reclaimed, and its shadows with it: a shrinker keeps no more such nodes than there are pages in memory
//! divided by 8. Nodes of swap are among them from 6.3 on (5649d113ffce; `Generation::swap_shadow_nodes`);
//! from 6.18 on swap has none (`Generation::swap_table`).

use std::collections::VecDeque;

use lotsfree_formulas::lists::Refault;
use lotsfree_kernel_files::counters::vmstat;

use super::frame::{NONE, entry, flag, list};
use super::object::RUN;
use super::policy::Shadow;
use super::slab::{Gfp, Kind};
use super::vmstat::Stat;
use super::{Config, Cx, MOST_FRAMES, Mm};

/// Objects that a shrinker is asked to free at a time (`SHRINK_BATCH`).
const SHRINK_BATCH: u64 = 128;

/// What the pages that a node holds belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// The files; a node is for a run of slots.
    Files,
    /// The swap area; a node is for 64 of its slots.
    Swap,
}

impl Tree {
    pub(super) const ALL: [Tree; 2] = [Tree::Files, Tree::Swap];
}

/// A node of a tree: 64 entries, and as many slots of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// Its slab.
    pub(super) slab: u32,
    /// Its entries; a node without any does not exist.
    pub(super) holds: Held,
    /// It is on the list of nodes with shadows alone, or was when a page was added.
    listed: bool,
}

impl Node {
    const ABSENT: Node = Node { slab: NONE, holds: Held(0), listed: false };
}

/// The numbers of a node's pages, in the low byte, and of its shadows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held(u16);

impl Held {
    const PAGE: u16 = 1;
    const SHADOW: u16 = 1 << 8;

    #[inline]
    pub(super) fn pages(self) -> u8 {
        self.0 as u8
    }

    pub(super) fn shadows(self) -> u8 {
        (self.0 >> 8) as u8
    }

    #[inline]
    fn after(self, change: Change) -> Held {
        Held(match change {
            Change::Added { shadow: false } => self.0 + Self::PAGE,
            Change::Added { shadow: true } => self.0 + Self::PAGE - Self::SHADOW,
            Change::Removed { shadow: false } => self.0 - Self::PAGE,
            Change::Removed { shadow: true } => self.0 - Self::PAGE + Self::SHADOW,
            Change::Forgotten => self.0 - Self::SHADOW,
        })
    }
}

/// The nodes of all trees.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// By [`Tree`] and the number of the run of slots.
    pub(super) nodes: [Vec<Node>; 2],
    /// Nodes that hold shadows alone, the oldest first, and others that did.
    shadow_nodes: VecDeque<(Tree, u32)>,
    /// `workingset_nodes`
    pub(super) count: u64,
    /// Nodes that the shrinker has not got to yet (`nr_deferred`).
    deferred: u64,
}

impl Nodes {
    /// No node yet.
    pub(super) fn of(config: &Config) -> Self {
        let mut nodes = Nodes::default();
        nodes.grow(Tree::Swap, config.swap_pages.min(MOST_FRAMES) as usize);
        nodes
    }

    /// Makes room for the nodes of that many slots.
    pub(super) fn grow(&mut self, tree: Tree, slots: usize) {
        let (nodes, wanted) = (&mut self.nodes[tree as usize], slots.div_ceil(RUN as usize));
        if nodes.len() < wanted {
            nodes.resize(wanted, Node::ABSENT);
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.iter().map(super::footprint::of).sum::<usize>()
            + self.shadow_nodes.capacity() * size_of::<(Tree, u32)>()
    }
}

/// The page had been active.
const WORKINGSET: u32 = 1 << 28;
/// Values that [`entry::ON_DISK`] and the zero page take.
const RESERVED: u32 = entry::VALUE - 2;

/// Pages and shadows that come to a node or leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A page takes an empty place, or that of a shadow.
    Added { shadow: bool },
    /// A page leaves, with or without a shadow in its place.
    Removed { shadow: bool },
    /// A shadow is forgotten.
    Forgotten,
}

impl Mm {
    /// Whether evicted pages of files leave shadows.
    #[inline]
    pub(super) fn keeps_shadows(&self) -> bool {
        self.generation.rules.lists.refault != Refault::None
    }

    /// Whether the entry of a file's page is a shadow, which takes a place in a node.
    #[inline]
    pub(super) fn is_shadow(&self, e: u32) -> bool {
        self.keeps_shadows() && e != entry::ON_DISK && matches!(entry::is(e), entry::Is::Shadow(_))
    }

    /// Whether a slot of swap holds the shadow of the page that was swapped out to it.
    pub(super) fn is_swap_shadow(&self, slot: u32) -> bool {
        self.swap.shadow.get(slot as usize).is_some_and(|&shadow| shadow != 0)
    }

    /// Notes a change of a file's entry at its node, which comes with its first page and goes with its last
    /// entry (`workingset_update_node`).
    #[inline(always)]
    pub(super) fn update_node(&mut self, cx: &mut Cx, slot: u32, change: Change) {
        self.update(cx, Tree::Files, slot, change, Gfp::Kernel);
    }

    /// The same of a slot of swap, where swap has nodes.
    #[inline]
    pub(super) fn update_swap_node(&mut self, cx: &mut Cx, slot: u32, change: Change, gfp: Gfp) {
        if !self.generation.swap_table {
            self.update(cx, Tree::Swap, slot, change, gfp);
        }
    }

    #[inline(always)]
    fn update(&mut self, cx: &mut Cx, tree: Tree, slot: u32, change: Change, gfp: Gfp) {
        let at = slot / RUN;
        let node = &mut self.tree.nodes[tree as usize][at as usize];
        let before = node.holds;
        node.holds = before.after(change);
        // Most changes leave some pages.
        if before.pages() == 0 || node.holds.pages() == 0 {
            self.node_changed(cx, tree, at, before, gfp);
        }
    }

    #[cold]
    fn node_changed(&mut self, cx: &mut Cx, tree: Tree, at: u32, before: Held, gfp: Gfp) {
        let alone = |holds: Held| holds.pages() == 0 && holds.shadows() > 0;
        let node = &mut self.tree.nodes[tree as usize][at as usize];
        let after = node.holds;
        if tree == Tree::Files || self.generation.swap_shadow_nodes {
            self.tree.count = self.tree.count + u64::from(alone(after)) - u64::from(alone(before));
            if alone(after) && !std::mem::replace(&mut node.listed, true) {
                self.tree.shadow_nodes.push_back((tree, at));
            }
        }
        if before == Held(0) {
            let slab = self.slab_alloc(cx, Kind::Node, gfp);
            self.tree.nodes[tree as usize][at as usize].slab = slab;
        } else if after == Held(0) {
            let slab = std::mem::replace(&mut node.slab, NONE);
            self.slab_free(cx.cpu, Kind::Node, slab);
        }
    }

    /// Forgets the shadows of slots that a file gives up.
    pub(super) fn forget_shadows(&mut self, cx: &mut Cx, slots: std::ops::Range<u32>) {
        for slot in slots {
            if self.is_shadow(self.entries[slot as usize]) {
                self.entries[slot as usize] = entry::ON_DISK;
                self.update_node(cx, slot, Change::Forgotten);
            }
        }
    }

    /// Forgets the shadow of a slot of swap, if it holds one (`clear_shadow_from_swap_cache`).
    pub(super) fn forget_swap_shadow(&mut self, cx: &mut Cx, slot: u32) {
        if self.is_swap_shadow(slot) {
            self.swap.shadow[slot as usize] = 0;
            self.update_swap_node(cx, slot, Change::Forgotten, Gfp::Kernel);
        }
    }

    /// Reclaims nodes that hold shadows alone if they are too many for the pages of an lruvec or its node
    /// (`count_shadow_nodes`, `do_shrink_slab`).
    pub(super) fn shrink_shadow_nodes(&mut self, cx: &mut Cx, lruvec: usize, priority: u8) {
        let most = if self.generation.shadow_nodes_by_lists {
            let pages = self.lruvec_sum(lruvec, |zone| {
                let slab =
                    zone.stat[Stat::SlabReclaimable as usize] + zone.stat[Stat::SlabUnreclaimable as usize];
                slab + zone.lru[list::INACTIVE_ANON..=list::UNEVICTABLE].iter().sum::<u64>()
            });
            pages / 8
        } else {
            let node = self.zones[self.lruvecs[lruvec].zones[0]].node;
            let present = self.zones.iter().filter(|zone| zone.node == node).map(|zone| zone.present);
            present.sum::<u64>() / 16
        };
        let freeable = self.tree.count.saturating_sub(most);
        if freeable == 0 {
            return;
        }
        let wanted = freeable / 2;
        let mut left = ((self.tree.deferred >> priority) + wanted).min(2 * freeable);
        let mut scanned = 0;
        while left >= SHRINK_BATCH || left >= freeable {
            let batch = left.min(SHRINK_BATCH);
            left -= batch;
            scanned += batch;
            if !(0..batch).all(|_| self.reclaim_shadow_node(cx)) {
                break;
            }
        }
        self.tree.deferred = (self.tree.deferred + wanted).saturating_sub(scanned).min(2 * freeable);
    }

    /// Reclaims the oldest node that holds shadows alone (`shadow_lru_isolate`); `false` if there is none.
    fn reclaim_shadow_node(&mut self, cx: &mut Cx) -> bool {
        while let Some((tree, at)) = self.tree.shadow_nodes.pop_front() {
            let node = &mut self.tree.nodes[tree as usize][at as usize];
            node.listed = false;
            if node.holds.pages() == 0 && node.holds.shadows() > 0 {
                cx.spend(self.costs.scan);
                self.events[vmstat::workingset_nodereclaim] += 1;
                let slots = at * RUN..(at + 1) * RUN;
                match tree {
                    Tree::Files => self.forget_shadows(cx, slots),
                    Tree::Swap => slots.for_each(|slot| self.forget_swap_shadow(cx, slot)),
                }
                return true;
            }
        }
        false
    }

    fn lruvec_bits(&self) -> u32 {
        usize::BITS - (self.lruvecs.len() - 1).leading_zeros()
    }

    /// Returns the shadow of a page that is being evicted, and advances the clock. The shadow is 0 only for
    /// an anonymous page on a kernel that does not detect refaults of anonymous pages.
    #[inline(always)]
    pub(crate) fn workingset_eviction(&mut self, frame: u32) -> u32 {
        let f = self.frames[frame as usize];
        if self.generation.rules.lists.refault == Refault::None {
            // The kernel keeps nothing. The model keeps that the page was evicted.
            return RESERVED;
        }
        let which = self.lruvec_of(f.zone());
        let bits = 28 - self.lruvec_bits();
        let Some(clock) = self.generation.policy.evicted(self, which, frame) else { return 0 };
        let clock = clock as u32 & ((1 << bits) - 1);
        let workingset = if f.has(flag::WORKINGSET) { WORKINGSET } else { 0 };
        (workingset | (which as u32) << bits | clock).clamp(1, RESERVED)
    }

    /// Handles the return of an evicted page. Returns whether the policy is to keep it like one that was
    /// accessed often.
    pub(crate) fn workingset_refault(&mut self, frame: u32, shadow: u32) -> bool {
        if shadow == entry::VALUE || self.generation.rules.lists.refault == Refault::None {
            return false;
        }
        let bits = 28 - self.lruvec_bits();
        let lruvec = ((shadow & !WORKINGSET) >> bits) as usize;
        if lruvec >= self.lruvecs.len() {
            return false;
        }
        let clock = shadow & ((1u32 << bits) - 1);
        let shadow = Shadow { lruvec, clock, bits, workingset: shadow & WORKINGSET != 0 };
        self.generation.policy.refaulted(self, frame, shadow)
    }
}
