//! The kernel's small objects, as far as they come and go with the page cache (`mm/slub.c`): heads of the
//! buffers of pages that were written, nodes of the trees that hold the pages and shadows of files and of
//! swap, and what the block layer has for requests that are under way.
//!
//! They matter because they take pages of their own, which cannot be moved and are of their own migrate types
//! (`free_area.rs`). Objects share slabs of one or more pages; a slab is freed when its last object is.
//! Not modelled: dentries, inodes and whatever else the kernel has, which stays as it was when the run began;
//! and the slabs of kernels before 4.4 (`Generation::cache_slabs`).

use std::collections::VecDeque;
use std::ops::Range;

use lotsfree_scenario::Filesystem;

use super::frame::{Frame, NONE, flag};
use super::free_area::{MigrateType, Request};
use super::page_alloc::{AllocContext, HIGHEST, Watermark};
use super::vmstat::{PGALLOC, Stat};
use super::{Config, Cx, Mm};

/// `slub_max_order`
const MAX_ORDER: usize = 3;
/// Bytes of the vector of a page (`struct bio_vec`).
const BIO_VEC: usize = 16;
/// Empty slabs are kept while a node has fewer partial ones than this (`MIN_PARTIAL`).
const MIN_PARTIAL: usize = 5;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `buffer_head`
    BufferHead,
    /// `radix_tree_node`, which is `struct xa_node`
    Node,
    /// `struct bio`, with room for the vectors of four pages
    Bio,
    /// `biovec-16`: the vectors of a larger bio
    Vectors16,
    /// `biovec-64`
    Vectors64,
    /// `biovec-128`
    Vectors128,
    /// `biovec-max`
    Vectors256,
}

/// The slabs of a request's bio and of its vectors; [`NONE`] where these came from a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bio {
    cpu: usize,
    bio: u32,
    vectors: Option<(Kind, u32)>,
}

impl Bio {
    /// The slabs that it has objects of.
    pub(super) fn slabs(self) -> impl Iterator<Item = u32> {
        let vectors = self.vectors.map(|(_, slab)| slab);
        [Some(self.bio), vectors].into_iter().flatten().filter(|slab| *slab != NONE)
    }
}

/// How an object is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gfp {
    /// By a task that may reclaim and wakes kswapd (`GFP_KERNEL`, `GFP_NOFS`).
    Kernel,
    /// In reclaim itself, from half of what the min watermark keeps (`__GFP_HIGH | __GFP_NOMEMALLOC`).
    High,
    /// From a pool that has some objects left where there is no page (`mempool_alloc`).
    Pool,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::BufferHead,
        Kind::Node,
        Kind::Bio,
        Kind::Vectors16,
        Kind::Vectors64,
        Kind::Vectors128,
        Kind::Vectors256,
    ];

    /// Bytes of an object on x86-64.
    fn size(self) -> usize {
        match self {
            Kind::BufferHead => 104,
            Kind::Node => 576,
            Kind::Bio => 192,
            Kind::Vectors16 => 16 * BIO_VEC,
            Kind::Vectors64 => 64 * BIO_VEC,
            Kind::Vectors128 => 128 * BIO_VEC,
            Kind::Vectors256 => 256 * BIO_VEC,
        }
    }

    /// The vectors of a request; file systems write with as many as there are (`biovec_slab`).
    fn vectors(pages: u32, write: bool) -> Option<Kind> {
        match pages {
            0..=4 => None,
            _ if write => Some(Kind::Vectors256),
            5..=16 => Some(Kind::Vectors16),
            17..=64 => Some(Kind::Vectors64),
            65..=128 => Some(Kind::Vectors128),
            129.. => Some(Kind::Vectors256),
        }
    }

    fn migrate_type(self) -> MigrateType {
        match self {
            Kind::BufferHead | Kind::Node => MigrateType::Reclaimable,
            _ => MigrateType::Unmovable,
        }
    }
}

/// The order of a slab on a machine of that many CPUs with pages of `page` bytes (`calculate_order`): as many
/// objects as CPUs call for, as little waste as that allows.
fn slab_order(size: usize, cpus: usize, page: usize) -> usize {
    let most = (page << MAX_ORDER) / size;
    let wanted = (4 * (cpus.ilog2() as usize + 2)).min(most);
    for objects in (1..=wanted).rev() {
        for fraction in [16, 8, 4] {
            let fits = |order: &usize| {
                let bytes = page << order;
                bytes >= objects * size && bytes % size <= bytes / fraction
            };
            if let Some(order) = (0..=MAX_ORDER).find(fits) {
                return order;
            }
        }
    }
    MAX_ORDER
}

/// The slabs of one kind of object. The first frame of a slab has the number of its objects in use for a
/// slot, and for a place its turn on the list of partial slabs.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(super) order: usize,
    /// Objects of a slab.
    pub(super) objects: u32,
    /// The slab that a CPU takes objects from, by CPU.
    current: Vec<u32>,
    partial: Vec<Partial>,
}

/// The slabs of a node that have some objects free, in the order in which they got them.
#[derive(Debug, Default)]
struct Partial {
    /// Slabs and their turns; a slab that left keeps its place here, but not its turn.
    queue: VecDeque<(u32, u32)>,
    len: usize,
}

/// The caches, by [`Kind`].
#[derive(Debug)]
pub(crate) struct Slab {
    pub(super) caches: [Cache; Kind::ALL.len()],
    /// The turn of the next partial slab.
    turn: u32,
    /// Pages taken and given back, ever.
    pub(crate) taken: u64,
    pub(super) freed: u64,
    /// The slabs of the heads of a page's buffers, by frame, one for each block of it; [`NONE`] if it has
    /// none. Empty until there is one.
    pub(super) buffers: Vec<u32>,
    /// Pages that the kernel has had since boot, those that slabs may still take the place of, and the time
    /// until which they do.
    pub(super) boot: Vec<Range<u32>>,
    settled: u64,
    /// Pages of which slabs took the place.
    replaced: u64,
}

impl Slab {
    /// No object yet.
    pub(super) fn new(config: &Config) -> Self {
        let (cpus, nodes) = (config.cpus.max(1) as usize, config.nodes.len());
        let page = config.page.bytes().0 as usize;
        let cache = |kind: Kind| {
            let order = slab_order(kind.size(), cpus, page);
            Cache {
                order,
                objects: ((page << order) / kind.size()) as u32,
                current: vec![NONE; cpus],
                partial: std::iter::repeat_with(Partial::default).take(nodes).collect(),
            }
        };
        Slab {
            caches: Kind::ALL.map(cache),
            turn: 0,
            taken: 0,
            freed: 0,
            buffers: Vec::new(),
            boot: Vec::new(),
            settled: config.settled,
            replaced: 0,
        }
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        let queues = self.caches.iter().flat_map(|cache| &cache.partial);
        super::footprint::of(&self.buffers)
            + super::footprint::of(&self.boot)
            + queues.map(|partial| partial.queue.capacity() * size_of::<(u32, u32)>()).sum::<usize>()
    }
}

/// Whether a frame belongs to a slab, of which it may be the first.
pub(super) fn is_slab(f: &Frame) -> bool {
    f.flags & (flag::USED | flag::KERNEL | flag::SLAB) == flag::USED | flag::KERNEL | flag::SLAB
}

/// What the pages of a slab count as.
pub(super) fn stat_of(f: &Frame) -> Stat {
    if f.has(flag::UNRECLAIMABLE) { Stat::SlabUnreclaimable } else { Stat::SlabReclaimable }
}

impl Mm {
    /// Allocates an object, and returns its slab; [`NONE`] if there is none (`slab_alloc`).
    pub(super) fn slab_alloc(&mut self, cx: &mut Cx, kind: Kind, gfp: Gfp) -> u32 {
        if !self.generation.cache_slabs {
            return NONE;
        }
        let (cpu, node) = (self.list_of_cpu(cx.cpu), self.node_of_cpu(cx.cpu));
        let current = self.slab.caches[kind as usize].current[cpu];
        let has_room = |mm: &Mm, slab: u32| {
            slab != NONE && mm.frames[slab as usize].slot < mm.slab.caches[kind as usize].objects
        };
        let slab = if has_room(self, current) {
            current
        } else {
            let slab = match self.get_partial(kind, node) {
                Some(slab) => slab,
                None => self.new_slab(cx, kind, gfp),
            };
            self.slab.caches[kind as usize].current[cpu] = slab;
            slab
        };
        if slab != NONE {
            self.frames[slab as usize].slot += 1;
        }
        slab
    }

    /// Frees an object of a slab (`__slab_free`).
    pub(super) fn slab_free(&mut self, cpu: usize, kind: Kind, slab: u32) {
        if slab == NONE {
            return;
        }
        let f = &mut self.frames[slab as usize];
        f.slot -= 1;
        let (used, zone, stat) = (f.slot, f.zone(), stat_of(f));
        let node = self.zones[zone].node;
        let cache = &mut self.slab.caches[kind as usize];
        if cache.current.contains(&slab) {
            return;
        }
        let partial = &mut cache.partial[node];
        if used == 0 && partial.len >= MIN_PARTIAL {
            partial.len -= usize::from(f.at != NONE);
            let order = cache.order;
            for frame in slab..slab + (1 << order) {
                self.frames[frame as usize].flags &= flag::ZONE | flag::USED;
            }
            self.zones[zone].stat[stat as usize] -= 1 << order;
            self.slab.freed += 1 << order;
            self.free_pages(cpu, slab, order);
        } else if f.at == NONE {
            f.at = self.slab.turn;
            partial.queue.push_back((slab, f.at));
            partial.len += 1;
            self.slab.turn = (self.slab.turn + 1) % NONE;
            if partial.queue.len() > 2 * partial.len + 64 {
                let frames = &self.frames;
                partial.queue.retain(|&(slab, turn)| holds(&frames[slab as usize], turn));
            }
        }
    }

    /// Takes the first partial slab of a node (`get_partial`).
    fn get_partial(&mut self, kind: Kind, node: usize) -> Option<u32> {
        let partial = &mut self.slab.caches[kind as usize].partial[node];
        loop {
            let (slab, turn) = partial.queue.pop_front()?;
            let f = &mut self.frames[slab as usize];
            if holds(f, turn) {
                f.at = NONE;
                partial.len -= 1;
                return Some(slab);
            }
        }
    }

    /// A slab without objects (`new_slab`).
    fn new_slab(&mut self, cx: &mut Cx, kind: Kind, gfp: Gfp) -> u32 {
        let order = self.slab.caches[kind as usize].order;
        let mine = cx.pages;
        let slab = self.alloc_kernel_pages(cx, order, kind.migrate_type(), gfp);
        // These are the kernel's pages, not the caller's.
        cx.pages = mine;
        let Some(slab) = slab else { return NONE };
        self.slab.taken += 1 << order;
        let unreclaimable =
            if kind.migrate_type() == MigrateType::Unmovable { flag::UNRECLAIMABLE } else { 0 };
        for frame in slab..slab + (1 << order) {
            let f = &mut self.frames[frame as usize];
            f.flags |= flag::USED | flag::KERNEL | flag::SLAB | unreclaimable;
            (f.slot, f.at) = (0, NONE);
        }
        let f = &self.frames[slab as usize];
        self.zones[f.zone()].stat[stat_of(f) as usize] += 1 << order;
        if cx.now() < self.slab.settled {
            self.replace_boot_pages();
        }
        slab
    }

    /// Gives back as many of the kernel's pages as slabs have come to have. What a kernel was seen to have
    /// when measuring begins includes the slabs of the files that were used by then.
    fn replace_boot_pages(&mut self) {
        while self.slab.replaced < self.slab.taken - self.slab.freed && self.replace_boot_page() {
            self.slab.replaced += 1;
        }
    }

    /// Gives back one of the pages that the kernel has had since boot; `false` if none is left.
    fn replace_boot_page(&mut self) -> bool {
        let Some(frame) = self.take_boot_page() else { return false };
        let f = &mut self.frames[frame as usize];
        f.flags &= flag::ZONE;
        let zone = &mut self.zones[f.zone()];
        zone.free_one_page(&mut self.frames, frame, 0);
        true
    }

    /// Takes one of the pages that the kernel has had since boot.
    fn take_boot_page(&mut self) -> Option<u32> {
        let frame = loop {
            let last = self.slab.boot.last_mut()?;
            match last.next_back() {
                Some(frame) => break frame,
                None => self.slab.boot.pop(),
            };
        };
        self.stat_sub(frame, Stat::SlabUnreclaimable);
        Some(frame)
    }

    /// Until measuring begins, takes one of the kernel's pages of the CPU's node: what a machine's kernel has
    /// includes this memory then.
    pub(super) fn take_settled_page(&mut self, cx: &Cx) -> Option<u32> {
        if cx.now() >= self.slab.settled {
            return None;
        }
        let node = self.node_of_cpu(cx.cpu);
        let is_of_node = |range: &&mut Range<u32>| {
            range.start < range.end && self.zones[self.frames.zone_of(range.start)].node == node
        };
        let frame = self.slab.boot.iter_mut().rev().find(is_of_node)?.next_back()?;
        self.stat_sub(frame, Stat::SlabUnreclaimable);
        Some(frame)
    }

    /// Takes pages for the kernel, which does not wait for them: a page of users that needs them was
    /// allocated just before, or there is a pool.
    pub(super) fn alloc_kernel_pages(
        &mut self,
        cx: &mut Cx,
        order: usize,
        kind: MigrateType,
        gfp: Gfp,
    ) -> Option<u32> {
        let preferred = self.node_of_cpu(cx.cpu);
        let kind = self.generation.grouped(kind);
        let ac = AllocContext { preferred, allowed: u64::MAX, write_cache: false, interleaved: false, kind };
        // A slab of several pages is tried without kswapd, because a smaller one would do (`allocate_slab`).
        let wakes = order == 0 && gfp != Gfp::High;
        if wakes
            && gfp == Gfp::Kernel
            && let Some(frame) = self.alloc_page_light(cx, &ac)
        {
            return Some(frame);
        }
        cx.spend(self.costs.alloc);
        let request = Request { order: order as u8, wakes, ..self.generation.request(kind) };
        let wmarks: &[_] = match gfp {
            Gfp::Kernel => &[Some((Watermark::Low, 1)), Some((Watermark::Min, 1)), None],
            Gfp::Pool => &[Some((Watermark::Low, 1)), Some((Watermark::Min, 1))],
            Gfp::High => &[Some((Watermark::Low, 1)), Some((Watermark::Min, 2))],
        };
        for wmark in wmarks {
            for at in 0..self.nodes[preferred].zonelist.len() {
                let index = self.nodes[preferred].zonelist[at];
                let zone = &mut self.zones[index];
                let open = |(wmark, part)| {
                    zone.passes(zone.wmark_pages(wmark).div_ceil(part) + (1 << order) - 1, HIGHEST)
                };
                if !wmark.is_none_or(open) {
                    continue;
                }
                if let Some(frame) = zone.rmqueue(&mut self.frames, request) {
                    self.events[PGALLOC[zone.index()]] += 1 << order;
                    if wakes {
                        self.wake_for_boost(index);
                    }
                    return Some(frame);
                }
            }
        }
        None
    }

    /// Allocates the bio of a request for this number of pages, and its vectors (`bio_alloc_bioset`).
    pub(super) fn bio_alloc(&mut self, cx: &mut Cx, pages: u32, write: bool) -> Bio {
        let bio = self.slab_alloc(cx, Kind::Bio, Gfp::Pool);
        let vectors = Kind::vectors(pages, write).map(|kind| (kind, self.slab_alloc(cx, kind, Gfp::Pool)));
        Bio { cpu: cx.cpu, bio, vectors }
    }

    /// Frees a bio and its vectors, on the CPU that sent the request (`bio_free`).
    pub(super) fn bio_free(&mut self, Bio { cpu, bio, vectors }: Bio) {
        self.slab_free(cpu, Kind::Bio, bio);
        if let Some((kind, slab)) = vectors {
            self.slab_free(cpu, kind, slab);
        }
    }

    /// Attaches a buffer for each block to a page that is about to be written, if it has none and the file
    /// system works with buffers (`create_empty_buffers`).
    #[inline]
    pub(super) fn create_buffers(&mut self, cx: &mut Cx, frame: u32) {
        let has_buffers = matches!(self.filesystem, Filesystem::Ext3 | Filesystem::Ext4);
        if !has_buffers || !self.generation.cache_slabs {
            return;
        }
        let blocks = self.blocks() as usize;
        if self.slab.buffers.len() < self.frames.len() * blocks {
            self.slab.buffers.resize(self.frames.len() * blocks, NONE);
        }
        let first = frame as usize * blocks;
        for buffer in first..first + blocks {
            if self.slab.buffers[buffer] == NONE {
                // Its writer has the page locked, so that zone reclaim for the slab cannot free it.
                self.frames[frame as usize].flags |= flag::LOCKED;
                let slab = self.slab_alloc(cx, Kind::BufferHead, Gfp::Kernel);
                self.frames[frame as usize].flags &= !flag::LOCKED;
                self.slab.buffers[buffer] = slab;
            }
        }
    }

    /// Takes the buffers of a page along when it is moved to another frame (`buffer_migrate_folio`).
    pub(super) fn move_buffers(&mut self, from: u32, to: u32) {
        if self.slab.buffers.is_empty() {
            return;
        }
        let blocks = self.blocks() as usize;
        self.slab.buffers.resize(self.frames.len() * blocks, NONE);
        for block in 0..blocks {
            self.slab.buffers.swap(from as usize * blocks + block, to as usize * blocks + block);
        }
    }

    /// Frees the buffers of a page that is about to be freed (`try_to_free_buffers`).
    #[inline]
    pub(super) fn free_buffers(&mut self, cx: &Cx, frame: u32) {
        if self.slab.buffers.is_empty() {
            return;
        }
        let blocks = self.blocks() as usize;
        let first = frame as usize * blocks;
        for at in first..first + blocks {
            let Some(buffer) = self.slab.buffers.get_mut(at) else { return };
            let slab = std::mem::replace(buffer, NONE);
            self.slab_free(cx.cpu, Kind::BufferHead, slab);
        }
    }
}

/// Whether a frame is of a partial slab that still has this turn.
fn holds(f: &Frame, turn: u32) -> bool {
    is_slab(f) && f.at == turn
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::counters::vmstat;
    use lotsfree_workload::{How, Policy};

    use super::super::{RaState, Read, Write};
    use super::*;
    use crate::Generation;

    /// A machine of 64 MiB that writes a file of `pages` pages. Returns it, the task and the file.
    fn written(filesystem: Filesystem, pages: u32) -> (Mm, Cx, u32) {
        let generation = Generation::linux_6_1();
        let config = Config { filesystem, instant_reads: true, ..Config::new(generation, vec![1 << 14]) };
        let mut mm = Mm::new(&config);
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 0);
        let file = mm.declare_file(pages, false);
        let mut write = Write::new(0, pages * 4096, How::Buffered);
        while write.poll(&mut mm, &mut cx, file).is_err() {
            (cx.start, cx.spent) = (cx.now() + 1_000_000, 0);
        }
        (mm, cx, file)
    }

    fn slab_pages(mm: &Mm) -> u64 {
        mm.zones.iter().map(|zone| zone.stat[Stat::SlabReclaimable as usize]).sum()
    }

    #[test]
    fn a_page_that_is_written_has_a_buffer_and_a_share_of_a_node() {
        // 26 slabs of 39 buffers, and 1000 / 64 nodes at 7 to a slab of one page on a machine of one CPU.
        let (mut mm, mut cx, file) = written(Filesystem::Ext4, 1000);
        let nodes = mm.slab.caches[Kind::Node as usize].objects;
        let of_nodes = (1000u64.div_ceil(64)).div_ceil(nodes.into()) << mm.slab.caches[1].order;
        assert_eq!(slab_pages(&mm), 26 + of_nodes);
        assert_eq!(mm.check(), Ok(()));
        // XFS has no buffers.
        assert_eq!(slab_pages(&written(Filesystem::Xfs, 1000).0), of_nodes);
        // Without the file, what is left are slabs that a CPU or a node keeps.
        mm.delete_file(&mut cx, file).unwrap();
        assert!(slab_pages(&mm) <= 2 * (MIN_PARTIAL as u64 + 1), "{}", slab_pages(&mm));
        assert_eq!(mm.check(), Ok(()));
    }

    #[test]
    fn a_request_has_a_bio_until_it_completes() {
        let mut mm = Mm::new(&Config::new(Generation::linux_6_1(), vec![1 << 14]));
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let (mut cx, mut ra) = (Cx::new(task, 0, process, 0), RaState::default());
        let file = mm.declare_file(1000, true);
        // 32 pages are read: a bio, and a slab of 64 vectors for each.
        let mut read = Read::new(0, 16 * 4096, How::Buffered);
        assert!(read.poll(&mut mm, &mut cx, file, &mut ra).is_err());
        let objects = |mm: &Mm, kind: Kind| {
            mm.flights
                .bios()
                .filter(|bio| kind == Kind::Bio || bio.vectors.is_some_and(|(of, _)| of == kind))
                .count()
        };
        assert_eq!((objects(&mm, Kind::Bio), objects(&mm, Kind::Vectors64)), (1, 1));
        let pages = 1 + (1 << mm.slab.caches[Kind::Vectors64 as usize].order);
        let unreclaimable =
            |mm: &Mm| mm.zones.iter().map(|zone| zone.stat[Stat::SlabUnreclaimable as usize]).sum::<u64>();
        let before = unreclaimable(&Mm::new(&Config::new(Generation::linux_6_1(), vec![1 << 14])));
        assert_eq!(unreclaimable(&mm) - before, pages);
        assert_eq!(mm.check(), Ok(()));
        let sent: Vec<u64> = mm.take_io().map(|io| io.id).collect();
        sent.into_iter().for_each(|id| mm.complete(id, 1_000_000));
        assert_eq!(objects(&mm, Kind::Bio), 0);
        let slabs = mm.slab.caches.iter().flat_map(|cache| &cache.current).filter(|slab| **slab != NONE);
        let used: Vec<u32> = slabs.map(|slab| mm.frames[*slab as usize].slot).collect();
        // The node of the file's tree is what is left.
        assert_eq!(used, [1, 0, 0]);
        assert_eq!(mm.check(), Ok(()));
    }

    #[test]
    fn vectors_are_as_many_as_a_request_has_pages_or_as_there_are_for_a_write() {
        let of = |pages| (Kind::vectors(pages, false), Kind::vectors(pages, true));
        assert_eq!(of(4), (None, None));
        assert_eq!(of(5), (Some(Kind::Vectors16), Some(Kind::Vectors256)));
        assert_eq!(of(65), (Some(Kind::Vectors128), Some(Kind::Vectors256)));
        assert_eq!(of(320), (Some(Kind::Vectors256), Some(Kind::Vectors256)));
    }

    #[test]
    fn nodes_that_hold_shadows_alone_are_few() {
        // A machine of 64 MiB reads 4 GiB once, so that nearly all of it is evicted.
        for (kernel, most) in [("linux-6.1", (1 << 14) / 8), ("linux-4.4", (1 << 14) / 16)] {
            let generation = Generation::named(kernel).unwrap();
            let mut mm = Mm::new(&Config { instant_reads: true, ..Config::new(generation, vec![1 << 14]) });
            let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
            let (mut cx, mut ra) = (Cx::new(task, 0, process, 0), RaState::default());
            let file = mm.declare_file(1 << 20, true);
            for page in 0u64..1 << 20 {
                let mut read = Read::new(page * 4096, 4096, How::Buffered);
                while read.poll(&mut mm, &mut cx, file, &mut ra).is_err() {}
            }
            // And as many as reclaim adds until it looks again.
            assert!((most / 2..most * 2).contains(&mm.tree.count), "{kernel}: {}", mm.tree.count);
            assert!(mm.events[vmstat::workingset_nodereclaim] > 10_000, "{kernel}");
            assert_eq!(mm.check(), Ok(()));
        }
    }

    #[test]
    fn until_it_is_settled_slabs_take_the_place_of_the_kernel_s_pages() {
        let used = |settled| {
            let config = Config {
                settled,
                kernel_pages: Some(vec![1000]),
                ..Config::new(Generation::linux_6_1(), vec![1 << 14])
            };
            let mut mm = Mm::new(&config);
            let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
            let mut cx = Cx::new(task, 0, process, 0);
            let file = mm.declare_file(1000, false);
            let mut write = Write::new(0, 4_096_000, How::Buffered);
            while write.poll(&mut mm, &mut cx, file).is_err() {
                (cx.start, cx.spent) = (cx.now() + 1, 0);
            }
            assert_eq!(mm.check(), Ok(()));
            let own: u64 = mm.zones.iter().map(|zone| zone.stat[Stat::SlabUnreclaimable as usize]).sum();
            (own, own + slab_pages(&mm))
        };
        assert_eq!(used(0).0, 1000);
        assert_eq!(used(u64::MAX).1, 1000);
    }

    #[test]
    fn slabs_are_as_large_as_slabinfo_says() {
        // Objects of a slab and pages of a slab on machines of 2, 4 and 64 CPUs.
        let of = |kind: Kind, cpus| {
            let order = slab_order(kind.size(), cpus, 4096);
            ((4096 << order) / kind.size(), 1 << order)
        };
        assert_eq!([2, 4, 64].map(|cpus| of(Kind::BufferHead, cpus)), [(39, 1); 3]);
        assert_eq!([2, 4, 64].map(|cpus| of(Kind::Node, cpus)), [(14, 2), (28, 4), (56, 8)]);
        assert_eq!(of(Kind::Bio, 2), (21, 1));
        assert_eq!((of(Kind::Vectors128, 2), of(Kind::Vectors256, 2)), ((16, 8), (8, 8)));
    }
}
