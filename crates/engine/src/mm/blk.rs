//! The queues of write requests to devices (`block/blk-core.c`, `block/blk-mq.c`), up to the device's own,
//! which is in `machine/device.rs`. Reads have a place of their own that is never full.

use std::collections::VecDeque;

use lotsfree_units::Bytes;

use super::wbt::{Throttle, Writer};
use super::{Config, Device, Io, MS, Queued, WaitChannel};

/// `/sys/block/*/queue/nr_requests` of the block layer before the multi-queue one.
const NR_REQUESTS: u32 = 128;
/// A queue becomes congested with 7/8 of that plus one requests, and stays so until it falls below 13/16.
const CONGESTION_ON: u32 = 113;
const CONGESTION_OFF: u32 = 103;
/// `BLK_BATCH_REQ` and `BLK_BATCH_TIME` (20 ms): a task that has waited for a place in the queue may then
/// send up to 32 requests within 20 ms although the queue is full, until it holds half more than its size
/// (`block/blk-core.c`: `get_request`, through 4.20; on every model without the multi-queue layer).
const BATCH_REQUESTS: u32 = 32;
const BATCH_TIME: u64 = 20 * MS;
const MOST_REQUESTS: u32 = NR_REQUESTS / 2 * 3;
/// `/sys/block/*/queue/nr_requests` of the multi-queue block layer, and how many of them writes may take
/// (`dd_limit_depth`).
const MQ_REQUESTS: u32 = 256;
const MQ_WRITES: u32 = MQ_REQUESTS / 4 * 3;
/// BLK_PLUG_FLUSH_SIZE: a task whose last request is as large sends what it has collected
/// before it adds another.
const PLUG_FLUSH_SIZE: Bytes = Bytes::kib(128);

/// Requests that a task may send to a full queue after it has waited for a place in it (`ioc_batching`).
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) waited: bool,
    pub(super) left: u32,
    until: u64,
}

/// Pages to be written that may become a request of their own.
pub(super) struct Write {
    /// The number of the request, if they do.
    pub(super) id: u64,
    pub(super) device: Device,
    pub(super) start: u64,
    pub(super) pages: u32,
    /// The most pages of a request.
    pub(super) most: u32,
}

/// Requests that a task collects before it sends them (`struct blk_plug`).
#[derive(Debug)]
struct Plug {
    task: usize,
    requests: Vec<Io>,
    /// Requests that were not merged with the one before.
    count: u32,
    /// The last one: its device, the place where it ends, and its pages.
    last: Option<(Device, u64, u32)>,
    /// The one before that was large enough to be sent.
    large: bool,
}

impl Plug {
    /// Sends what is collected.
    fn flush(&mut self, outbox: &mut Vec<Io>) {
        outbox.append(&mut self.requests);
        self.count = 0;
    }
}

/// The queues of the disk and of swap.
#[derive(Debug)]
pub(crate) struct WriteQueues {
    /// Swap is on the disk, whose queue serves both.
    shared: bool,
    /// Write requests under way, to the disk and to swap; one entry serves both if swap is on the disk.
    requests: [u32; 2],
    /// The youngest request of each device: the place where it ends, its pages and its number. A request that
    /// begins there is merged with it.
    youngest: [Option<(u64, u32, u64)>; 2],
    /// With the multi-queue block layer: the requests that tasks in reclaim collect.
    plugs: Vec<Plug>,
    /// BLK_MAX_REQUEST_COUNT: the most requests that a task collects.
    plug_requests: u32,
    /// [`PLUG_FLUSH_SIZE`] in pages.
    plug_flush_pages: u32,
    congested: [bool; 2],
    /// Writeback throttling of each device, with the multi-queue block layer.
    throttles: Option<[Throttle; 2]>,
    /// Write requests that wait until they may be sent to each device, of the favoured and of others.
    held: [[VecDeque<(Io, Queued)>; 2]; 2],
}

impl WriteQueues {
    pub(super) fn new(config: &Config) -> Self {
        let throttle = |rotational| Throttle::new(rotational, MQ_REQUESTS);
        WriteQueues {
            shared: config.swap_on_disk,
            requests: [0; 2],
            youngest: [None; 2],
            plugs: Vec::new(),
            plug_requests: config.generation.plug_requests,
            plug_flush_pages: config.page.pages(PLUG_FLUSH_SIZE) as u32,
            congested: [false; 2],
            throttles: (config.generation.blk_mq)
                .then(|| [throttle(config.rotational), throttle(config.swap_rotational)]),
            held: Default::default(),
        }
    }

    /// The index of a device's queue.
    fn of(&self, device: Device) -> usize {
        if self.shared { 0 } else { device as usize }
    }

    /// Whether a device has nearly as many write requests as its queue takes (`bdi_write_congested`).
    pub(super) fn is_congested(&self) -> bool {
        self.congested.contains(&true)
    }

    /// The writeback throttling of a device, if there is any.
    pub(super) fn throttle(&mut self, device: Device) -> Option<&mut Throttle> {
        let which = self.of(device);
        self.throttles.as_mut().map(|throttles| &mut throttles[which])
    }

    /// The number of write requests under way or held.
    pub(super) fn pending(&self) -> usize {
        let sent: u32 = self.requests.iter().sum();
        sent as usize + self.held.iter().flatten().map(VecDeque::len).sum::<usize>()
    }

    /// The number of requests that a writer may send to a device with the multi-queue block layer.
    fn mq_room(&mut self, which: usize, writer: Writer, now: u64) -> u32 {
        let room = MQ_WRITES.saturating_sub(self.requests[which]);
        self.throttles.as_mut().map_or(room, |throttles| room.min(throttles[which].room(writer, now)))
    }

    /// Whether a device takes no more write requests of a writer. `batch` is the calling task's.
    pub(super) fn is_full(&mut self, device: Device, writer: Writer, batch: &mut Batch, now: u64) -> bool {
        let which = self.of(device);
        if self.throttles.is_some() {
            return !self.held[which][writer.kind()].is_empty() || self.mq_room(which, writer, now) == 0;
        }
        let requests = self.requests.into_iter().max().unwrap_or(0);
        if std::mem::take(&mut batch.waited) {
            (batch.left, batch.until) = (BATCH_REQUESTS, now + BATCH_TIME);
        }
        requests >= NR_REQUESTS && (requests >= MOST_REQUESTS || batch.left == 0 || now >= batch.until)
    }

    /// Whether a writer that has sent requests has to wait. With the multi-queue block layer it waits only
    /// while requests of its kind are held.
    pub(super) fn holds_up(&mut self, device: Device, writer: Writer, batch: &mut Batch, now: u64) -> bool {
        if self.throttles.is_none() {
            return self.is_full(device, writer, batch, now);
        }
        !self.held[self.of(device)][writer.kind()].is_empty()
    }

    /// Begins to collect the writes of a task (`blk_start_plug`). Without the multi-queue layer all writes
    /// are merged with the youngest, whoever sent it.
    pub(super) fn plug(&mut self, task: usize) {
        if self.throttles.is_some() && self.plug_of(task).is_none() {
            self.plugs.push(Plug { task, requests: Vec::new(), count: 0, last: None, large: false });
        }
    }

    fn plug_of(&mut self, task: usize) -> Option<&mut Plug> {
        self.plugs.iter_mut().find(|plug| plug.task == task)
    }

    /// Sends what a task has collected (`blk_finish_plug`; `sched_submit_work` for one that sleeps).
    pub(super) fn unplug(&mut self, task: usize, outbox: &mut Vec<Io>) {
        if let Some(at) = self.plugs.iter().position(|plug| plug.task == task) {
            self.plugs.swap_remove(at).flush(outbox);
        }
    }

    /// Adds a write of a task, and returns whether it was merged with the request before it.
    pub(super) fn add(
        &mut self,
        write: &Write,
        task: usize,
        batch: &mut Batch,
        is_under_way: impl Fn(u64) -> bool,
    ) -> bool {
        let &Write { id, device, start, pages, most } = write;
        let plug_flush_pages = self.plug_flush_pages;
        let end = start + u64::from(pages);
        if self.throttles.is_some() {
            // The block layer merges neighbours, which take one place in the queue, while they are collected.
            let Some(plug) = self.plug_of(task) else { return false };
            let size = plug.last.map_or(0, |(.., size)| size);
            let merged =
                plug.last.is_some_and(|(on, to, _)| (on, to) == (device, start)) && size + pages <= most;
            plug.large = !merged && size >= plug_flush_pages;
            plug.last = Some((device, end, if merged { size + pages } else { pages }));
            return merged;
        }
        let merged = match self.youngest[device as usize] {
            Some((to, size, first)) if to == start && size + pages <= most => {
                is_under_way(first).then_some((size, first))
            }
            _ => None,
        };
        let (size, first) = merged.unwrap_or((0, id));
        self.youngest[device as usize] = Some((end, size + pages, first));
        if merged.is_none() {
            let which = self.of(device);
            self.requests[which] += 1;
            batch.left = batch.left.saturating_sub(1);
            self.congested[which] |= self.requests[which] >= CONGESTION_ON;
        }
        merged.is_some()
    }

    /// With the multi-queue block layer: takes a request of a task, which is collected if the task does that,
    /// and goes to the device at once otherwise, as soon as writeback throttling lets it; its writer waits
    /// until then.
    pub(super) fn hold(
        &mut self,
        io: Io,
        queued: Queued,
        writer: Writer,
        task: usize,
        now: u64,
        outbox: &mut Vec<Io>,
    ) {
        let (which, most) = (self.of(io.device), self.plug_requests);
        let new = matches!(queued, Queued::Write(_));
        let waits = !self.held[which][writer.kind()].is_empty();
        let throttled = waits || (new && self.mq_room(which, writer, now) == 0);
        if throttled {
            // The task sleeps, and sends what it has. What it writes after that may join this request.
            if let Some(plug) = self.plug_of(task) {
                plug.flush(outbox);
            }
            self.held[which][writer.kind()].push_back((io, queued));
            return;
        }
        if new {
            self.sent(which, writer, now);
        }
        let Some(plug) = self.plug_of(task) else { return outbox.push(io) };
        if new && (plug.count >= most || plug.large) {
            plug.flush(outbox);
        }
        plug.count += u32::from(new);
        plug.requests.push(io);
    }

    /// Counts a request that writeback throttling has let pass.
    fn sent(&mut self, which: usize, writer: Writer, now: u64) {
        self.requests[which] += 1;
        if let Some(throttles) = &mut self.throttles {
            throttles[which].sent(writer, now);
        }
    }

    /// What a writer waits for that has to wait for a device. Without throttling all wait for the same.
    pub(super) fn channel(&self, device: Device, writer: Writer) -> WaitChannel {
        let kind = if self.throttles.is_some() { writer.kind() } else { 0 };
        WaitChannel::Request(self.of(device), kind)
    }

    /// Wakes those who wait for a throttled device, if it is time for that, and sends it the held requests
    /// that may be sent.
    fn send_held(&mut self, which: usize, now: u64, outbox: &mut Vec<Io>, woken: &mut Vec<WaitChannel>) {
        let Some(throttles) = &mut self.throttles else { return };
        let wakes = throttles[which].wakes(now);
        for kind in (0..wakes.len()).filter(|&kind| wakes[kind]) {
            while let Some((io, queued)) = self.held[which][kind].front().copied() {
                if let Queued::Write(writer) = queued {
                    if self.mq_room(which, writer, now) == 0 {
                        break;
                    }
                    self.sent(which, writer, now);
                }
                self.held[which][kind].pop_front();
                outbox.push(io);
            }
            if self.held[which][kind].is_empty() {
                woken.push(WaitChannel::Request(which, kind));
            }
        }
    }

    /// Accounts for a write request that has completed, and sends those that waited for it. Adds the events
    /// that this is to `woken`.
    pub(super) fn complete(
        &mut self,
        device: Device,
        writer: Writer,
        now: u64,
        outbox: &mut Vec<Io>,
        woken: &mut Vec<WaitChannel>,
    ) {
        let which = self.of(device);
        self.requests[which] -= 1;
        if let Some(throttles) = &mut self.throttles {
            throttles[which].written(writer, now);
            self.send_held(which, now, outbox, woken);
            return;
        }
        if self.requests[which] < NR_REQUESTS {
            woken.extend([0, 1].map(|which| WaitChannel::Request(which, 0)));
        }
        // clear_bdi_congested wakes tasks that sleep in congestion_wait at every request that completes while
        // the queue is not congested, whether or not it was congested before.
        if self.requests[which] <= CONGESTION_OFF {
            self.congested[which] = false;
            woken.push(WaitChannel::Room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;

    /// kswapd writes pages to some places of swap. Returns the numbers of the requests that are at the device
    /// before it ends its plug, and after.
    fn sent(places: &[u64], plugged: bool) -> (Vec<u64>, Vec<u64>) {
        let generation = Generation::named("linux-6.1").unwrap();
        let mut queues = WriteQueues::new(&Config::new(generation, vec![1 << 16]));
        let (mut outbox, mut batch) = (Vec::new(), Batch::default());
        if plugged {
            queues.plug(0);
        }
        for (id, &start) in (1..).zip(places) {
            let write = Write { id, device: Device::Swap, start, pages: 1, most: 320 };
            let merged = queues.add(&write, 0, &mut batch, |_| true);
            let io = Io { id, device: Device::Swap, write: true, sync: false, start, pages: 1 };
            let queued =
                if merged { Queued::Merged(Writer::Favoured) } else { Queued::Write(Writer::Favoured) };
            queues.hold(io, queued, Writer::Favoured, 0, 0, &mut outbox);
        }
        let ids = |outbox: &[Io]| outbox.iter().map(|io| io.id).collect();
        let before = ids(&outbox);
        queues.unplug(0, &mut outbox);
        (before, ids(&outbox))
    }

    #[test]
    fn who_collects_sends_when_done() {
        assert_eq!(sent(&[7, 3, 9], true), (vec![], vec![1, 2, 3]));
        assert_eq!(sent(&[7, 3, 9], false), (vec![1, 2, 3], vec![1, 2, 3]));
    }

    #[test]
    fn a_large_request_is_sent_before_another_is_added() {
        let places = |neighbours: u64| (0..neighbours).chain([1000]).collect::<Vec<u64>>();
        assert!(sent(&places(31), true).0.is_empty());
        assert_eq!(sent(&places(32), true).0, (1..=32).collect::<Vec<_>>());
    }

    #[test]
    fn neighbours_that_are_collected_take_one_place() {
        // Writeback throttling lets 16 requests of kswapd pass.
        let apart: Vec<u64> = (0..20).map(|n| 2 * n).collect();
        let neighbours: Vec<u64> = (0..20).collect();
        let (before, after) = sent(&apart, true);
        assert_eq!(before, (1..=16).collect::<Vec<_>>(), "the task sleeps for the seventeenth");
        assert_eq!(after, before, "four are held");
        assert_eq!(sent(&neighbours, true), (vec![], (1..=20).collect()));
        assert_eq!(sent(&neighbours, false).1.len(), 16, "nothing is merged that is not collected");
    }

    #[test]
    fn who_sleeps_is_woken_when_all_that_was_sent_is_written() {
        let generation = Generation::named("linux-6.12").unwrap();
        let mut queues = WriteQueues::new(&Config::new(generation, vec![1 << 16]));
        let (mut outbox, mut woken, mut batch) = (Vec::new(), Vec::new(), Batch::default());
        let writer = Writer::Favoured;
        for id in 1..=18 {
            let io = Io { id, device: Device::Swap, write: true, sync: false, start: 2 * id, pages: 1 };
            queues.hold(io, Queued::Write(writer), writer, 0, 0, &mut outbox);
        }
        assert_eq!(outbox.len(), 16);
        for _ in 1..16 {
            queues.complete(Device::Swap, writer, MS, &mut outbox, &mut woken);
        }
        assert!(queues.holds_up(Device::Swap, writer, &mut batch, MS));
        assert_eq!(outbox.len(), 16, "room alone wakes nobody");
        queues.complete(Device::Swap, writer, MS, &mut outbox, &mut woken);
        assert_eq!(outbox.len(), 18);
        assert!(!queues.holds_up(Device::Swap, writer, &mut batch, MS));
        assert!(woken.contains(&queues.channel(Device::Swap, writer)));
        assert!(!woken.contains(&queues.channel(Device::Disk, writer)));
    }
}
