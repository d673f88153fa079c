//! Dirty pages: limits, throttling of writers, flusher (`mm/page-writeback.c`, `fs/fs-writeback.c`).

use std::collections::VecDeque;

use lotsfree_formulas::dirty::{
    DirtyLimits, DirtyableInput, dirty_limits, dirtyable, freerun_pages, node_dirtyable,
};
use lotsfree_kernel_files::counters::vmstat;
use lotsfree_units::{Bytes, PageSize};

use super::blk::Write;
use super::frame::{entry, flag, list};
use super::mmzone::{Layout, Lruvec, Zone};
use super::vmstat::Stat;
use super::wbt::Writer;
use super::{Cx, Device, Done, IoRequest, MS, Mm, Queued, TENTH, Wait, WaitChannel, WaitReason};
use crate::generation::WriterThrottle;

/// MAX_WRITEBACK_PAGES through 3.1, MIN_WRITEBACK_PAGES from 3.2 on: the flusher turns to the next file after
/// this many pages, or, with the multi-queue block layer, after a multiple of this. (The kernel uses a
/// multiple from 3.2 on. With the older layer, the flusher is held while its requests find no place in the
/// queue, which is checked once for each chunk.)
const CHUNK: Bytes = Bytes::mib(4);
/// MAX_WRITEPAGES_EXTENT_LEN, 2,048 blocks: the most that the file system puts into one bio.
pub(super) const BIO: Bytes = Bytes::mib(8);
/// BIO_MAX_VECS: the most pieces of contiguous memory in a bio.
const BIO_VECS: usize = 256;
/// `/sys/block/*/queue/max_segments` of a virtual disk: the most pieces of contiguous memory in a request.
/// Pages that go to swap lie apart.
const SEGMENTS: u32 = 254;
/// INIT_BW: 100 MiB/s.
const INITIAL_RATE: Bytes = Bytes::mib(100);
/// Check a writer against the limit no more often than every 32 KiB (`balance_dirty_pages_ratelimited`).
const LEAST_POLL: Bytes = Bytes::kib(32);
/// BANDWIDTH_INTERVAL
const BANDWIDTH_INTERVAL: u64 = 200 * MS;
/// Ticks per second, as Debian's kernels have them.
const HZ: u64 = 250;
/// A tick, in nanoseconds.
const JIFFY: u64 = 1_000_000_000 / HZ;
/// MAX_PAUSE, in ticks
const MAX_PAUSE: u64 = HZ / 5;
/// DIRTY_POLL_THRESH
const POLL: Bytes = Bytes::kib(128);
/// Fixed-point representation of the position ratio.
const ONE_SHIFT: u32 = 10;
const ONE: i64 = 1 << ONE_SHIFT;
/// The period of the running mean of the disk's write bandwidth: three seconds, rounded up to a power of two
/// in ticks.
const BANDWIDTH_PERIOD: u64 = (3 * HZ).next_power_of_two() * JIFFY;

/// State of writeback for one backing device of files.
#[derive(Debug)]
pub(crate) struct Writeback {
    /// [`CHUNK`], in pages.
    chunk_pages: u64,
    /// Files with dirty pages, in the order in which they became dirty.
    files: VecDeque<u32>,
    /// How many of these, from the front on, the flusher writes before it looks at the limit again, and until
    /// when (`writeback_sb_inodes`, from 3.2 on).
    pass: (usize, u64),
    /// Pages that reclaim wants to write, in the order in which it met them.
    pageout: Vec<(Device, u64, u32)>,
    /// Pages that the flusher was asked to write.
    asked: u64,
    flusher_woken: bool,
    background: bool,
    next_periodic: u64,
    /// Pages of files that are under writeback; pages on their way to swap are not among them.
    under_writeback: u64,
    /// Pages per second that the disk writes: a running mean over the last four seconds, and a further
    /// smoothed one.
    bandwidth: u64,
    avg_bandwidth: u64,
    /// Pages per second that a writer may dirty at the set point, and the rate that was last computed to keep
    /// writers there.
    dirty_ratelimit: u64,
    balanced_ratelimit: u64,
    written: u64,
    dirtied: u64,
    stamp: u64,
    stamp_written: u64,
    stamp_dirtied: u64,
    /// `dirty_limit`, which follows the threshold down slowly.
    limit: u64,
}

impl Writeback {
    pub(crate) fn new(page: PageSize) -> Self {
        let rate = page.pages(INITIAL_RATE);
        Writeback {
            chunk_pages: page.pages(CHUNK),
            files: VecDeque::new(),
            pass: (0, 0),
            pageout: Vec::new(),
            asked: 0,
            flusher_woken: false,
            background: false,
            next_periodic: 0,
            under_writeback: 0,
            bandwidth: rate,
            avg_bandwidth: rate,
            dirty_ratelimit: rate,
            balanced_ratelimit: rate,
            written: 0,
            dirtied: 0,
            stamp: 0,
            stamp_written: 0,
            stamp_dirtied: 0,
            limit: 0,
        }
    }
}

impl Writeback {
    /// The number of pages of a file that the flusher writes before it turns to the next file
    /// (`writeback_chunk_size`): as many as the disk writes in half a second, but no more than an eighth of
    /// the limit.
    fn chunk(&self) -> u64 {
        let pages = (self.avg_bandwidth / 2).min(self.limit / 8);
        (pages + self.chunk_pages) / self.chunk_pages * self.chunk_pages
    }
    /// Removes an object that no longer exists, is no longer dirty or has had its turn; `false` if it was not
    /// there.
    pub(crate) fn forget(&mut self, number: u32) -> bool {
        let Some(at) = self.files.iter().position(|&file| file == number) else { return false };
        self.files.remove(at);
        self.pass.0 -= usize::from(at < self.pass.0);
        true
    }
    /// Pages of files that are under writeback.
    pub(crate) fn under_writeback(&self) -> u64 {
        self.under_writeback
    }
}

impl Mm {
    /// `global_dirty_limits`
    pub(crate) fn dirty_limits(&self) -> DirtyLimits {
        let free = self.zones.iter().map(|zone| zone.free).sum();
        self.dirty_limits_with(free, self.total_reserve, self.page.pages(Bytes::kib(self.min_free_kbytes)))
    }

    /// Dirty limits with `free` free pages, of which `reserve` are kept back (`totalreserve_pages`), and with
    /// `min_free` pages of `min_free_kbytes`.
    fn dirty_limits_with(&self, free: u64, reserve: u64, min_free: u64) -> DirtyLimits {
        let rules = &self.generation.dirty;
        let input = DirtyableInput {
            free,
            file: self.lruvecs.iter().map(Lruvec::file).sum(),
            anon: self.lruvecs.iter().map(Lruvec::anon).sum(),
            swap: self.swap.free() > 0,
            reserve,
        };
        let dirtyable = dirtyable(rules, &input, min_free);
        dirty_limits(rules, dirtyable, self.tuning.dirty, self.tuning.dirty_background, self.page, false)
    }

    /// Sets the first limit at boot, when the other CPUs come up: the threshold with all memory that the
    /// allocator has at that time (`writeback_set_ratelimit`). There are no watermarks yet, and so no reserve
    /// (`init_per_zone_wmark_min` comes later), and `min_free_kbytes` is still 1024. A machine that fills
    /// without writing still has that limit when writing begins, and the limit takes some twenty seconds to
    /// come down.
    pub(crate) fn writeback_set_ratelimit(&mut self) {
        let highest = |zone: &Zone| {
            !self.zones.iter().any(|other| other.node == zone.node && other.start_pfn > zone.start_pfn)
        };
        let layout = Layout::of(&self.generation, self.page);
        let there = |zone: &Zone| match self.generation.first_pages {
            Some(first) if highest(zone) => zone.first_managed(layout.first_pages(first), layout),
            _ => zone.managed,
        };
        let free = self.zones.iter().map(there).sum();
        self.writeback.limit = self.dirty_limits_with(free, 0, self.page.pages(Bytes::mib(1))).dirty;
    }

    /// `node_dirty_limit`: the dirty ratio of an lruvec's own dirtyable memory, in pages. An allocation for
    /// writing honours it in `page_alloc.rs:walk_zonelist`, from 3.3 on per zone and from 4.8 on per node.
    pub(crate) fn lruvec_dirty_limit(&self, which: usize) -> u64 {
        let lruvec = &self.lruvecs[which];
        let input = DirtyableInput {
            free: self.lruvec_sum(which, |zone| zone.free),
            file: lruvec.file(),
            anon: lruvec.anon(),
            swap: self.swap.free() > 0,
            reserve: self.lruvec_sum(which, |zone| zone.dirty_reserve),
        };
        let dirtyable = node_dirtyable(&self.generation.dirty, &input);
        match self.tuning.dirty {
            lotsfree_formulas::dirty::DirtyLimit::Percent(percent) => dirtyable * percent / 100,
            lotsfree_formulas::dirty::DirtyLimit::Bytes(bytes) => {
                let all: u64 = self.totalram_pages();
                (u128::from(self.page.pages(bytes)) * u128::from(dirtyable) / u128::from(all.max(1))) as u64
            }
        }
    }

    fn nr_dirty(&self) -> u64 {
        self.zones.iter().map(|zone| zone.stat[Stat::Dirty as usize]).sum()
    }

    fn nr_writeback(&self) -> u64 {
        self.zones.iter().map(|zone| zone.stat[Stat::Writeback as usize]).sum()
    }

    /// Whether a device takes no more write requests of a task, which then has to wait before it submits one.
    pub(crate) fn queue_full(&mut self, cx: &Cx, device: Device, writer: Writer) -> bool {
        self.queues.is_full(device, writer, &mut self.tasks[cx.task].batch, cx.now())
    }

    /// The wait of reclaim for a place in a device's queue after it has sent pages, if it has to wait. zram
    /// has no queue.
    pub(crate) fn pageout_wait(&mut self, cx: &Cx, device: Device, by_kswapd: bool) -> Option<Wait> {
        if device == Device::Swap && self.zram.is_some() {
            return None;
        }
        let writer = self.reclaimer(device, by_kswapd);
        let waits = self.queues.holds_up(device, writer, &mut self.tasks[cx.task].batch, cx.now());
        waits.then(|| self.wait_for_room(cx, device, writer, WaitReason::Io))
    }

    /// What throttling takes a reclaimer for that writes to a device.
    fn reclaimer(&self, device: Device, is_kswapd: bool) -> Writer {
        let favoured = if self.generation.swap_is_favoured { device == Device::Swap } else { is_kswapd };
        if favoured { Writer::Favoured } else { Writer::Task }
    }

    /// The wait of a writer for a device that takes no more of its requests.
    pub(crate) fn wait_for_room(&mut self, cx: &Cx, device: Device, writer: Writer, why: WaitReason) -> Wait {
        let batch = &mut self.tasks[cx.task].batch;
        (batch.waited, batch.left) = (true, 0);
        Wait { channel: Some(self.queues.channel(device, writer)), until: None, why }
    }

    /// The most pages of a write request.
    fn write_pages(&self, device: Device) -> u32 {
        let most = self.request_pages();
        if device == Device::Swap { most.min(SEGMENTS) } else { most }
    }

    pub(super) fn submit_write(
        &mut self,
        cx: &mut Cx,
        (device, start): (Device, u64),
        pages: u32,
        frames: Vec<u32>,
        sync: bool,
        writer: Writer,
    ) -> u64 {
        let id = self.flights.next();
        let write = Write { id, device, start, pages, most: self.write_pages(device) };
        let (flights, batch) = (&self.flights, &mut self.tasks[cx.task].batch);
        let merged = self.queues.add(&write, cx.task, batch, |first| flights.contains(first));
        let queued = if merged { Queued::Merged(writer) } else { Queued::Write(writer) };
        let request = IoRequest { device, write: true, sync, start, pages, queued };
        self.submit(cx, request, frames)
    }

    /// Marks a changed page of a file as dirty (`account_page_dirtied`).
    pub(crate) fn set_page_dirty(&mut self, cx: &Cx, frame: u32) {
        let f = &mut self.frames[frame as usize];
        if f.has(flag::DIRTY) {
            return;
        }
        f.flags |= flag::DIRTY;
        let slot = f.slot;
        self.stat_add(frame, Stat::Dirty);
        self.stat_add(frame, Stat::Dirtied);
        self.writeback.dirtied += 1;
        self.tasks[cx.task].dirtied += 1;
        let number = self.objects.owner(slot);
        let now = cx.now();
        let object = &mut self.objects[number];
        let page = slot - object.base;
        if object.dirty == 0 {
            object.dirtied_at = now;
            self.writeback.files.push_back(number);
        }
        object.dirty += 1;
        match object.dirty_runs.back_mut() {
            Some((start, len)) if *start + *len == page => *len += 1,
            _ => object.dirty_runs.push_back((page, 1)),
        }
    }

    /// Marks a page as clean, whose changes no longer matter.
    pub(crate) fn clear_dirty(&mut self, frame: u32) {
        let f = &mut self.frames[frame as usize];
        if !f.has(flag::DIRTY) {
            return;
        }
        f.flags &= !flag::DIRTY;
        if !f.has(flag::ANON) {
            let slot = f.slot;
            self.stat_sub(frame, Stat::Dirty);
            self.file_is_cleaner(slot);
        }
    }

    fn file_is_cleaner(&mut self, slot: u32) {
        let number = self.objects.owner(slot);
        let object = &mut self.objects[number];
        object.dirty -= 1;
        if object.dirty == 0 {
            object.dirty_runs.clear();
            self.writeback.forget(number);
        }
    }

    /// Whether a dirty page of a file has no place on disk yet; the flusher chooses it when it writes the
    /// page (`ext4_bh_delay_or_unwritten`).
    pub(crate) fn is_delayed(&self, slot: u32) -> bool {
        let object = self.objects.at(slot);
        object.hole && slot - object.base >= object.allocated
    }

    /// Moves a page from dirty to under writeback (`clear_page_dirty_for_io`, `set_page_writeback`).
    fn start_writeback(&mut self, frame: u32) {
        let f = &mut self.frames[frame as usize];
        let (slot, anon) = (f.slot, f.has(flag::ANON));
        f.flags = (f.flags & !flag::DIRTY) | flag::WRITEBACK;
        self.stat_add(frame, Stat::Writeback);
        if !anon {
            // The next store through a mapping faults again (page_mkclean).
            let e = &mut self.entries[slot as usize];
            if *e & entry::MAPPED != 0 {
                *e &= !entry::DIRTY;
            }
            self.stat_sub(frame, Stat::Dirty);
            let number = self.objects.owner(slot);
            let object = &mut self.objects[number];
            object.under_writeback += 1;
            self.writeback.under_writeback += 1;
            object.allocated = object.allocated.max(slot - object.base + 1);
            self.file_is_cleaner(slot);
        }
    }

    /// Ends writeback of a page whose write has completed (`end_page_writeback`).
    pub(crate) fn end_writeback(&mut self, frame: u32) {
        let f = &mut self.frames[frame as usize];
        let reclaim = f.has(flag::RECLAIM);
        f.flags &= !(flag::WRITEBACK | flag::RECLAIM);
        let f = *f;
        self.stat_sub(frame, Stat::Writeback);
        self.stat_add(frame, Stat::Written);
        if !f.has(flag::ANON) {
            let number = self.objects.owner(f.slot);
            self.objects[number].under_writeback -= 1;
            self.writeback.under_writeback -= 1;
            self.writeback.written += 1;
        }
        if reclaim && !f.has(flag::DIRTY) {
            self.rotate_reclaimable(frame);
        }
        self.reap_deleted(frame);
    }

    /// `rotate_reclaimable_page`: pages that reclaim wanted to free are the next to be reclaimed.
    fn rotate_reclaimable(&mut self, frame: u32) {
        let from = self.frames[frame as usize].list();
        if from == list::UNEVICTABLE || from == list::NONE {
            return;
        }
        if list::is_active(from) && !self.generation.dirty_activates {
            return;
        }
        let to = self.generation.policy.list_to_reclaim(self, frame);
        self.lru_move(frame, to, true);
        self.events[vmstat::pgrotated] += 1;
    }

    /// Writes a page for reclaim, to swap or to its file (`pageout`).
    pub(crate) fn pageout(&mut self, frame: u32) {
        self.stat_add(frame, Stat::VmscanWrite);
        if self.frames[frame as usize].has(flag::ANON) {
            return self.swap_writeback(frame);
        }
        self.write_and_reclaim(frame, Device::Disk, self.frames[frame as usize].slot);
    }

    /// Writes a page of the swap cache to its slot on the device, and has it reclaimed then
    /// (`__swap_writepage`).
    pub(super) fn swap_writeback(&mut self, frame: u32) {
        let slot = self.swap.slot_of(frame).unwrap_or(0);
        if let Some(zswap) = &mut self.zswap {
            zswap.set_on_device(slot, true);
        }
        self.write_and_reclaim(frame, Device::Swap, slot);
    }

    /// Has a page written to a slot of a device with its neighbours, and reclaimed when it is.
    fn write_and_reclaim(&mut self, frame: u32, device: Device, slot: u32) {
        self.start_writeback(frame);
        self.frames[frame as usize].flags |= flag::RECLAIM;
        self.writeback.pageout.push((device, slot.into(), frame));
    }

    /// Sends the pages that reclaim wants to write, neighbours in one request. Returns whether that took a
    /// place in the queue.
    pub(crate) fn flush_pageout(&mut self, cx: &mut Cx, by_kswapd: bool) -> bool {
        if self.writeback.pageout.is_empty() {
            return false;
        }
        let before = self.queues.pending();
        let mut pages = std::mem::take(&mut self.writeback.pageout);
        pages.sort_unstable();
        for run in pages.chunk_by(|a, b| a.0 == b.0 && a.1 + 1 == b.1) {
            for part in run.chunks(self.write_pages(run[0].0) as usize) {
                let frames = part.iter().map(|page| page.2).collect();
                if part[0].0 == Device::Swap {
                    self.events[vmstat::pswpout] += part.len() as u64;
                }
                let pages = part.len() as u32;
                let writer = self.reclaimer(part[0].0, by_kswapd);
                self.submit_write(cx, (part[0].0, part[0].1), pages, frames, false, writer);
            }
        }
        pages.clear();
        self.writeback.pageout = pages;
        self.queues.pending() != before
    }

    /// Writes up to `most` dirty pages of a file. Returns how many, and the number of the last request. With
    /// the multi-queue block layer, contiguous pages form one bio, and each of them counts as written when
    /// the whole bio is.
    fn write_file(&mut self, cx: &mut Cx, number: u32, most: u64, sync: bool, writer: Writer) -> (u64, u64) {
        let before = self.objects[number].allocated;
        let (mut written, mut last) = (0, 0);
        let request = self.request_pages() as usize;
        let (longest, pieces) = match self.generation.blk_mq {
            true => (self.page.pages(BIO) as usize, BIO_VECS),
            false => (request, request),
        };
        let mut bio: Vec<u32> = Vec::new();
        let (mut bio_start, mut vecs) = (0, 0);
        let mut looks = self.objects[number].dirty_runs.iter().map(|run| u64::from(run.1)).sum::<u64>();
        while written < most && looks > 0 {
            let object = &mut self.objects[number];
            let base = object.base;
            let Some((start, len)) = object.dirty_runs.front_mut() else { break };
            let page = *start;
            *start += 1;
            *len -= 1;
            looks -= 1;
            if *len == 0 {
                object.dirty_runs.pop_front();
            }
            let slot = base + page;
            let Some(frame) = entry::frame(self.entries[slot as usize]) else { continue };
            let f = self.frames[frame as usize];
            if !f.has(flag::DIRTY) {
                continue;
            }
            if f.has(flag::WRITEBACK) {
                // The page was changed again while it is being written; it is written later.
                self.objects[number].dirty_runs.push_back((page, 1));
                continue;
            }
            let contiguous = bio.last().is_some_and(|last| last + 1 == frame);
            let full = bio.len() == longest || (!contiguous && vecs == pieces);
            if !bio.is_empty() && (bio_start + bio.len() as u32 != slot || full) {
                last = self.submit_bio(cx, bio_start, std::mem::take(&mut bio), sync, writer);
            }
            if bio.is_empty() {
                (bio_start, vecs) = (slot, 0);
            }
            vecs += usize::from(bio.is_empty() || !contiguous);
            cx.spend(self.costs.writeback);
            self.start_writeback(frame);
            bio.push(frame);
            written += 1;
        }
        if !bio.is_empty() {
            last = self.submit_bio(cx, bio_start, bio, sync, writer);
        }
        if last > 0 {
            self.objects[number].last_write = last;
        }
        self.map_blocks(cx, number, before);
        (written, last)
    }

    /// Submits a bio in requests of the largest size. Returns the number of the last one, which carries all
    /// pages.
    fn submit_bio(&mut self, cx: &mut Cx, start: u32, frames: Vec<u32>, sync: bool, writer: Writer) -> u64 {
        let most = self.generation.request_pages;
        let (mut at, mut left) = (u64::from(start), frames.len() as u32);
        while left > most {
            self.submit_write(cx, (Device::Disk, at), most, Vec::new(), sync, writer);
            at += u64::from(most);
            left -= most;
        }
        self.submit_write(cx, (Device::Disk, at), left, frames, sync, writer)
    }

    /// Starts to write the first run of dirty pages in a range of a file, as one request. Returns the page
    /// after the run, or `last` if there is none.
    pub(crate) fn write_run(&mut self, cx: &mut Cx, number: u32, first: u32, last: u32) -> u32 {
        let (base, before) = (self.objects[number].base, self.objects[number].allocated);
        let mut frames = self.flights.frames();
        let mut start = first;
        for page in first..last {
            let frame = entry::frame(self.entries[(base + page) as usize]);
            let frame = frame.filter(|&frame| {
                let f = self.frames[frame as usize];
                f.has(flag::DIRTY) && !f.has(flag::WRITEBACK)
            });
            match frame {
                Some(frame) => {
                    if frames.is_empty() {
                        start = page;
                    }
                    cx.spend(self.costs.writeback);
                    self.start_writeback(frame);
                    frames.push(frame);
                }
                None if frames.is_empty() => {}
                None => break,
            }
            if frames.len() == self.generation.request_pages as usize {
                break;
            }
        }
        if frames.is_empty() {
            return last;
        }
        let end = start + frames.len() as u32;
        let place = (Device::Disk, u64::from(base + start));
        let id = self.submit_write(cx, place, end - start, frames, false, Writer::Task);
        self.objects[number].last_write = id;
        self.map_blocks(cx, number, before);
        end
    }

    /// `fdatasync`
    pub fn sync(&mut self, cx: &mut Cx, number: u32) -> Done {
        self.filemap_write_and_wait(cx, number)?;
        match self.commit_for(cx, number) {
            Some(request) => Err(Wait::io(request).into()),
            None => Ok(()),
        }
    }

    /// Writes the dirty pages of a file, and waits until none is dirty or under writeback.
    pub(super) fn filemap_write_and_wait(&mut self, cx: &mut Cx, number: u32) -> Done {
        self.objects.file(number)?;
        loop {
            let object = &self.objects[number];
            let dirty = object.dirty;
            if dirty == 0 && object.under_writeback == 0 {
                return Ok(());
            }
            if self.queue_full(cx, Device::Disk, Writer::Sync) {
                return Err(self.wait_for_room(cx, Device::Disk, Writer::Sync, WaitReason::Io).into());
            }
            let chunk = self.page.pages(if self.generation.blk_mq { BIO } else { CHUNK });
            if dirty > 0 && self.write_file(cx, number, chunk, true, Writer::Sync).0 > 0 {
                continue;
            }
            let last = self.objects[number].last_write;
            return Err(if self.flights.contains(last) {
                Wait::io(last)
            } else {
                Wait::until(cx.now() + MS, WaitReason::Io)
            }
            .into());
        }
    }

    /// Asks the flusher to write at least `pages` pages (`wakeup_flusher_threads`).
    pub(crate) fn wakeup_flusher(&mut self, pages: u64) {
        if self.nr_dirty() == 0 {
            return;
        }
        self.writeback.asked = self.writeback.asked.max(pages.max(self.writeback.chunk_pages));
        self.wake_flusher();
    }

    pub(super) fn wake_flusher(&mut self) {
        if !self.writeback.flusher_woken {
            self.writeback.flusher_woken = true;
            self.woken.push(WaitChannel::Flusher);
        }
    }

    /// Runs the flusher for a slice. Returns the event or time that it waits for after that.
    pub fn flusher(&mut self, cx: &mut Cx) -> Wait {
        loop {
            self.commit_if_due(cx);
            let now = cx.now();
            let over = {
                let limits = self.dirty_limits();
                self.nr_dirty() > limits.background
            };
            self.writeback.background = over;
            let interval = self.tuning.dirty_writeback_centisecs * 10 * MS;
            let expired_before = now.saturating_sub(self.tuning.dirty_expire_centisecs * 10 * MS);
            let periodic = interval > 0 && now >= self.writeback.next_periodic;
            let mut expired = None;
            if periodic && expired_before > 0 {
                let objects = &self.objects;
                let old = |file: &&u32| objects[**file].dirtied_at <= expired_before;
                expired = self.writeback.files.iter().find(old).copied();
            }
            let passes = self.flusher_passes(now, over);
            let wanted = if passes || over || self.writeback.asked > 0 {
                self.writeback.files.front().copied()
            } else {
                expired
            };
            let Some(number) = wanted else {
                if periodic {
                    self.writeback.next_periodic = now + interval;
                }
                self.writeback.asked = 0;
                self.writeback.flusher_woken = false;
                let periodic = (interval > 0).then_some(self.writeback.next_periodic);
                let until = [periodic, self.commit_at()].into_iter().flatten().min();
                return Wait { channel: Some(WaitChannel::Flusher), until, why: WaitReason::Idle };
            };
            // Writes that reclaim asked for are not background writeback.
            let writer =
                if passes || over || self.writeback.asked == 0 { Writer::Background } else { Writer::Task };
            if self.queue_full(cx, Device::Disk, writer) {
                return self.wait_for_room(cx, Device::Disk, writer, WaitReason::Idle);
            }
            let chunk =
                if self.generation.blk_mq { self.writeback.chunk() } else { self.writeback.chunk_pages };
            let (written, _) = self.write_file(cx, number, chunk, false, writer);
            self.writeback.asked = self.writeback.asked.saturating_sub(written.max(1));
            // The file moves to the end of the queue, for the next file's turn.
            if self.writeback.forget(number) {
                self.writeback.files.push_back(number);
                if written == 0 {
                    // All dirty pages of the file are still under writeback from before.
                    return Wait {
                        channel: Some(WaitChannel::Room),
                        until: Some(now + 10 * MS),
                        why: WaitReason::Idle,
                    };
                }
                if expired == Some(number) {
                    let age = self.objects[number].dirtied_at;
                    self.objects[number].dirtied_at = age.max(expired_before);
                }
            }
            if cx.spent >= cx.slice {
                return Wait::YIELD;
            }
        }
    }

    /// Whether the flusher is in a pass over the files that were dirty when it began, in which it does not
    /// look at the limit. It begins one above the limit, and ends it after a tenth of a second.
    fn flusher_passes(&mut self, now: u64, over: bool) -> bool {
        let Writeback { files, pass: (left, until), .. } = &mut self.writeback;
        if *left > 0 && now > *until {
            *left = 0;
        }
        if *left == 0 && over && self.generation.flusher_passes {
            (*left, *until) = (files.len(), now + HZ / 10 * JIFFY);
        }
        *left > 0
    }

    /// Holds a writer to the dirty limit (`balance_dirty_pages_ratelimited`).
    pub(crate) fn balance_dirty_pages(&mut self, cx: &mut Cx) -> Done {
        let task = &self.tasks[cx.task];
        if task.dirtied < task.poll_after.max(self.page.pages(LEAST_POLL)) {
            return Ok(());
        }
        let limits = self.dirty_limits();
        let dirty = self.nr_dirty() + self.nr_writeback();
        if self.nr_dirty() > limits.background {
            self.wake_flusher();
        }
        let freerun = freerun_pages(limits);
        if dirty <= freerun {
            let room = limits.dirty.saturating_sub(dirty).max(1);
            let task = &mut self.tasks[cx.task];
            task.dirtied = 0;
            task.dirty_pause = 0;
            task.paused_at = Some(cx.now());
            task.poll_after = match self.generation.writers {
                WriterThrottle::Paused => 1 << (room.ilog2() / 2),
                WriterThrottle::WritesItself => (limits.dirty / (self.cpus as u64 * 32)).clamp(16, 1024),
            };
            return Ok(());
        }
        match self.generation.writers {
            WriterThrottle::WritesItself => self.write_and_pause(cx, limits),
            WriterThrottle::Paused => self.pause(cx, limits, dirty),
        }
    }

    /// Through 3.1: the writer writes pages itself, and sleeps if there were not enough to write.
    fn write_and_pause(&mut self, cx: &mut Cx, limits: DirtyLimits) -> Done {
        if self.queue_full(cx, Device::Disk, Writer::Task) {
            return Err(self.wait_for_room(cx, Device::Disk, Writer::Task, WaitReason::Dirty).into());
        }
        let rate = (limits.dirty / (self.cpus as u64 * 32)).clamp(16, 1024);
        let chunk = rate + rate / 2;
        let mut written = 0;
        while written < chunk
            && let Some(&number) = self.writeback.files.front()
        {
            let (pages, _) = self.write_file(cx, number, chunk - written, false, Writer::Task);
            written += pages;
            if pages == 0 {
                break;
            }
        }
        let task = &mut self.tasks[cx.task];
        task.poll_after = rate;
        if written >= chunk {
            task.dirtied = 0;
            task.dirty_pause = 0;
            return Ok(());
        }
        let pause = if task.dirty_pause == 0 { 4 * MS } else { (task.dirty_pause * 2).min(TENTH) };
        task.dirty_pause = pause;
        Err(Wait::until(cx.now() + pause, WaitReason::Dirty).into())
    }

    /// From 3.2 on: the writer sleeps for as long as its rate requires (`balance_dirty_pages`).
    fn pause(&mut self, cx: &mut Cx, limits: DirtyLimits, dirty: u64) -> Done {
        // Pages that the disk has to write. Pages on their way to swap are dirty too, but do not count among
        // these.
        let of_disk = self.nr_dirty() + self.writeback.under_writeback;
        let position = Position {
            dirty,
            of_disk,
            freerun: freerun_pages(limits),
            threshold: limits.dirty,
            limit: self.writeback.limit.max(limits.dirty),
            bandwidth: self.writeback.avg_bandwidth,
            share_within_limit: self.generation.share_within_limit,
        };
        let ratio = position.ratio();
        self.writeback.update_bandwidth(cx.now(), &position, ratio);
        let Writeback { avg_bandwidth: bandwidth, dirty_ratelimit, .. } = self.writeback;
        if let Some(throttle) = self.queues.throttle(Device::Disk) {
            throttle.held(cx.now());
        }
        let rate = ((u128::from(dirty_ratelimit) * u128::from(ratio)) >> ONE_SHIFT) as u64;
        let most = max_pause(of_disk, bandwidth);
        let poll = self.page.pages(POLL);
        let (least, poll_after) = min_pause(poll, (most, rate), dirty_ratelimit, bandwidth);
        let now = cx.now();
        let task = &mut self.tasks[cx.task];
        if rate == 0 {
            task.paused_at = Some(now + most * JIFFY);
            return Err(Wait::until(now + most * JIFFY, WaitReason::Dirty).into());
        }
        let period = task.dirtied * 1_000_000_000 / rate;
        // Time since the last pause counts as time slept.
        let since = task.paused_at.map_or(0, |at| now as i64 - at as i64);
        let pause = period as i64 - since;
        if pause < (least * JIFFY) as i64 {
            if pause < -1_000_000_000 {
                (task.paused_at, task.dirtied) = (Some(now), 0);
            } else if period >= JIFFY {
                (task.paused_at, task.dirtied) = (Some((now as i64 - since) as u64 + period), 0);
            } else if task.poll_after <= task.dirtied {
                task.poll_after += task.dirtied;
            }
            return Ok(());
        }
        let pause = (pause as u64).min(most * JIFFY);
        task.poll_after = poll_after;
        task.dirtied = 0;
        task.paused_at = Some(now + pause);
        Err(Wait::until(now + pause, WaitReason::Dirty).into())
    }
}

impl Writeback {
    /// `update_dirty_limit`: the limit rises at once, and falls slowly but not below the dirty pages.
    fn update_limit(&mut self, threshold: u64, dirty: u64) {
        let limit = &mut self.limit;
        if *limit < threshold {
            *limit = threshold;
        } else {
            *limit -= limit.saturating_sub(threshold.max(dirty)) >> 5;
        }
    }

    /// `wb_update_bandwidth`: updates the disk's write bandwidth, and the rate that keeps writers at the set
    /// point.
    fn update_bandwidth(&mut self, now: u64, position: &Position, ratio: u64) {
        let elapsed = now.saturating_sub(self.stamp);
        if elapsed < BANDWIDTH_INTERVAL {
            return;
        }
        self.update_limit(position.threshold, position.dirty);
        let fresh = elapsed > 1_000_000_000 && self.stamp_dirtied == self.dirtied;
        let written = self.written - self.stamp_written;
        let dirtied = self.dirtied - self.stamp_dirtied;
        (self.stamp, self.stamp_written, self.stamp_dirtied) = (now, self.written, self.dirtied);
        if fresh || elapsed > 10_000_000_000 {
            return;
        }
        self.update_dirty_ratelimit(position, ratio, dirtied, elapsed);
        self.update_write_bandwidth(written, elapsed);
    }

    /// `wb_update_write_bandwidth`: a running mean over some four seconds, and a second mean that follows the
    /// first only while the first moves further away from it.
    fn update_write_bandwidth(&mut self, written: u64, elapsed: u64) {
        let (old, average) = (self.bandwidth, self.avg_bandwidth);
        let now = written * 1_000_000_000;
        self.bandwidth = if elapsed > BANDWIDTH_PERIOD {
            now / elapsed
        } else {
            (now + old * (BANDWIDTH_PERIOD - elapsed)) / BANDWIDTH_PERIOD
        };
        self.avg_bandwidth = if elapsed > BANDWIDTH_PERIOD {
            self.bandwidth
        } else if average > old && old >= self.bandwidth {
            average - ((average - old) >> 3)
        } else if average < old && old <= self.bandwidth {
            average + ((old - average) >> 3)
        } else {
            average
        }
        .max(1);
    }

    /// `wb_update_dirty_ratelimit`
    fn update_dirty_ratelimit(&mut self, position: &Position, ratio: u64, dirtied: u64, elapsed: u64) {
        let current = self.dirty_ratelimit;
        let dirty_rate = dirtied * 1_000_000_000 / elapsed;
        let task = ((u128::from(current) * u128::from(ratio)) >> ONE_SHIFT) as u64 + 1;
        let balanced = u128::from(task) * u128::from(self.avg_bandwidth) / u128::from(dirty_rate | 1);
        let balanced = balanced.min(u128::from(self.avg_bandwidth)) as u64;
        // The step is only as large as all three agree on.
        let last = self.balanced_ratelimit;
        let step = if position.dirty < position.setpoint() {
            last.min(balanced).min(task).saturating_sub(current)
        } else {
            current.saturating_sub(last.max(balanced).max(task))
        };
        let step = u32::try_from(current / (2 * step + 1)).ok().and_then(|shift| step.checked_shr(shift));
        let step = step.unwrap_or(0).div_ceil(8);
        self.dirty_ratelimit = if current < balanced { current + step } else { current - step }.max(1);
        self.balanced_ratelimit = balanced;
    }
}

/// The dirty pages and their limits, in pages.
#[derive(Debug)]
struct Position {
    /// All dirty pages, and those of the disk.
    dirty: u64,
    of_disk: u64,
    /// The number of dirty pages up to which no writer is held back.
    freerun: u64,
    /// The limit as computed now, and the limit that follows it down slowly.
    threshold: u64,
    limit: u64,
    /// Pages that the disk writes in a second.
    bandwidth: u64,
    /// The disk's share is no more than the threshold (`Generation::share_within_limit`).
    share_within_limit: bool,
}

impl Position {
    fn setpoint(&self) -> u64 {
        (self.freerun + self.limit) / 2
    }

    /// `pos_ratio_polynom`: 2 at the free-run ceiling, 1 at the set point, 0 at the limit.
    fn polynom(&self) -> u64 {
        if self.dirty >= self.limit {
            return 0;
        }
        let [setpoint, limit, dirty] = [self.setpoint(), self.limit, self.dirty].map(|pages| pages as i64);
        let x = ((setpoint - dirty) << ONE_SHIFT) / ((limit - setpoint) | 1);
        let cube = (((x * x) >> ONE_SHIFT) * x) >> ONE_SHIFT;
        (cube + ONE).clamp(0, 2 * ONE) as u64
    }

    /// `wb_position_ratio`, for a single disk, whose share of the limits is all. The pages that the disk has
    /// to write count a second time, along a line. The line is 1 at the set point and falls by 1 over the
    /// number of pages that the disk writes in eight seconds, down to a quarter. Where memory for files is
    /// less than that number, the line holds writers back much more than the limits do.
    fn ratio(&self) -> u64 {
        let ratio = u128::from(self.polynom());
        let [of_disk, threshold] = [self.of_disk, self.threshold].map(u128::from);
        // The disk's share is at least an eighth of the room that is left below the slowly falling limit; on
        // later kernels, below the threshold, which one disk has for itself.
        let room = if self.share_within_limit { 0 } else { self.limit.saturating_sub(self.dirty) / 8 };
        let share = u128::from(self.threshold.max(room));
        let x = (share << 16) / (threshold | 1);
        let setpoint = (u128::from(self.setpoint()) * x) >> 16;
        let span = ((threshold + 8 * u128::from(self.bandwidth)).saturating_sub(share) * x) >> 16;
        let end = setpoint + span;
        let ratio = if of_disk < end - span / 4 { ratio * (end - of_disk) / (span | 1) } else { ratio / 4 };
        // The disk should not run out of pages to write.
        let reserve = share / 2;
        let ratio = match of_disk {
            of_disk if of_disk >= reserve => ratio,
            of_disk if of_disk > reserve / 8 => ratio * reserve / of_disk,
            _ => ratio * 8,
        };
        ratio as u64
    }
}

/// The longest pause in jiffies: an eighth of the time that a disk of this bandwidth, in pages per second,
/// takes to write all dirty pages, so that it does not run out of them (`wb_max_pause`).
fn max_pause(dirty: u64, bandwidth: u64) -> u64 {
    (dirty / (1 + bandwidth / (1 + HZ / 8).next_power_of_two()) + 1).min(MAX_PAUSE)
}

/// The shortest pause in jiffies that is worth sleeping, and the number of pages after which the writer
/// checks again (`wb_min_pause`). `poll` is [`POLL`] in pages; a pause lasts at most `most` jiffies, and the
/// writer dirties `rate` pages a second.
fn min_pause(poll: u64, (most, rate): (u64, u64), limit: u64, bandwidth: u64) -> (u64, u64) {
    let second = HZ.next_power_of_two();
    let (high, low) = (u64::from(bandwidth.max(1).ilog2()), u64::from(limit.max(1).ilog2()));
    // The pause is longer where there are several writers.
    let mut time = (HZ / 100).max(1) + high.saturating_sub(low) * (10 * HZ) / 1024;
    time = time.min(1 + most / 2);
    let mut pages = limit * time / second;
    if pages < poll {
        time = most;
        pages = limit * time / second;
        if pages > poll {
            (pages, time) = (poll, HZ * poll / limit.max(1));
        }
    }
    if HZ * pages / (rate + 1) > most {
        time = most;
        pages = rate * time / second;
    }
    (if pages >= poll { 1 + time / 2 } else { time }, pages)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::Generation;

    /// 40 MiB/s, in pages.
    const DISK: u64 = 10_240;

    #[test]
    fn a_writer_sleeps_no_longer_than_the_disk_has_something_to_do() {
        // 4 ms with few dirty pages, 200 ms at most.
        assert_eq!([0, 100, 3210, 1_000_000].map(|dirty| max_pause(dirty, DISK)), [1, 1, 11, 50]);
    }

    #[test]
    fn a_writer_alone_looks_again_after_some_ten_milliseconds() {
        assert_eq!(min_pause(32, (50, DISK), DISK, DISK), (2, 80));
        // Each of sixteen writers has a sixteenth of the bandwidth, and sleeps longer.
        assert_eq!(min_pause(32, (50, DISK / 16), DISK / 16, DISK), (7, 32));
        // Where few pages are dirty, pauses are short and pages few.
        assert_eq!(min_pause(32, (1, DISK), DISK, DISK), (1, 40));
        assert_eq!(min_pause(32, (1, 0), DISK, DISK), (1, 0));
    }

    #[test]
    fn a_share_within_the_limit_does_not_grow_with_a_limit_that_falls_slowly() {
        let ratio = |limit, share_within_limit| {
            let position = Position {
                dirty: 500,
                of_disk: 500,
                freerun: 400,
                threshold: 1000,
                limit,
                bandwidth: DISK,
                share_within_limit,
            };
            position.ratio()
        };
        assert_eq!(ratio(1000, true), ratio(1000, false));
        // An eighth of what is left is 1,187 pages, more than the threshold. The disk's reserve is half its
        // share: below it a writer may write faster.
        assert!(ratio(10_000, true) < ratio(10_000, false));
    }

    #[test]
    fn the_limit_begins_with_the_memory_that_is_there_at_boot() {
        let dirtyable = |generation, gib: u64| {
            (5 * Mm::new(&Config::new(generation, vec![gib << 18])).writeback.limit) >> 8
        };
        // In MiB, of one GiB: two sections; with older kernels 2 GiB, or all of it. Nothing is reserved yet.
        assert!((250..256).contains(&dirtyable(Generation::linux_6_1(), 1)));
        assert!((1000..1024).contains(&dirtyable(Generation::linux_4_4(), 1)));
        assert!((1000..1024).contains(&dirtyable(Generation::linux_3_10(), 1)));
        // The lower zones of 16 GiB and a section of the highest zone are there.
        assert!((3100..3200).contains(&dirtyable(Generation::linux_6_1(), 16)));
        assert!((5000..5120).contains(&dirtyable(Generation::linux_4_4(), 16)));
        assert!((16_000..16_384).contains(&dirtyable(Generation::linux_3_10(), 16)));
    }

    #[test]
    fn the_limit_follows_up_at_once_and_down_slowly() {
        let mut mm = Mm::new(&Config::new(Generation::linux_6_1(), vec![100_000]));
        mm.writeback.limit = 0;
        mm.writeback.update_limit(3200, 0);
        assert_eq!(mm.writeback.limit, 3200);
        mm.writeback.update_limit(0, 0);
        assert_eq!(mm.writeback.limit, 3100);
        mm.writeback.update_limit(0, 3068);
        assert_eq!(mm.writeback.limit, 3099, "not below what is dirty");
    }
}
