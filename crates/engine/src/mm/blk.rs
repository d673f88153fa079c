//! The queues of write requests to devices (`block/blk-core.c`, `block/blk-mq.c`), up to the device's own, which
//! is in `machine/device.rs`. Reads have a place of their own that is never full.

use std::collections::VecDeque;

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
    /// With the multi-queue block layer: the task whose plug holds the youngest request. Requests of other
    /// tasks are not merged with it, nor are those that this task sends after it slept.
    plugged: Option<usize>,
    congested: [bool; 2],
    /// Writeback throttling of each device, with the multi-queue block layer.
    throttles: Option<[Throttle; 2]>,
    /// Write requests that wait until they may be sent to each device, of kswapd and of others.
    held: [[VecDeque<(Io, Queued)>; 2]; 2],
}

impl WriteQueues {
    pub(super) fn new(config: &Config) -> Self {
        let throttle = |rotational| Throttle::new(rotational, MQ_REQUESTS);
        WriteQueues {
            shared: config.swap_on_disk,
            requests: [0; 2],
            youngest: [None; 2],
            plugged: None,
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

    /// Begins to collect the writes of a task (`blk_start_plug`), or those of nobody in particular.
    pub(super) fn plug(&mut self, task: Option<usize>) {
        self.plugged = task;
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
        let (which, mq) = (self.of(device), self.throttles.is_some());
        let joins = !mq || self.plugged == Some(task);
        // The block layer merges neighbours, which take one place in the queue.
        let merged = match self.youngest[device as usize] {
            Some((end, size, first)) if joins && end == start && size + pages <= most => {
                is_under_way(first).then_some((size, first))
            }
            _ => None,
        };
        let (size, first) = merged.unwrap_or((0, id));
        self.youngest[device as usize] = Some((start + u64::from(pages), size + pages, first));
        if merged.is_none() && !mq {
            self.requests[which] += 1;
            batch.left = batch.left.saturating_sub(1);
            self.congested[which] |= self.requests[which] >= CONGESTION_ON;
        }
        merged.is_some()
    }

    /// With the multi-queue block layer, a request goes to the device as soon as writeback throttling lets
    /// it; its writer waits until then.
    pub(super) fn hold(&mut self, io: Io, queued: Queued, writer: Writer, now: u64, outbox: &mut Vec<Io>) {
        let which = self.of(io.device);
        self.held[which][writer.kind()].push_back((io, queued));
        self.send_held(which, now, outbox);
    }

    /// Sends a device the held requests that may be sent.
    fn send_held(&mut self, which: usize, now: u64, outbox: &mut Vec<Io>) {
        for kind in 0..self.held[which].len() {
            while let Some((io, queued)) = self.held[which][kind].front().copied() {
                if let Queued::Write(writer) = queued {
                    if self.mq_room(which, writer, now) == 0 {
                        break;
                    }
                    self.requests[which] += 1;
                    if let Some(throttles) = &mut self.throttles {
                        throttles[which].sent(writer, now);
                    }
                }
                self.held[which][kind].pop_front();
                outbox.push(io);
            }
        }
    }

    /// Accounts for a write request that has completed, and sends those that waited for it. Returns the
    /// events that this is.
    pub(super) fn complete(
        &mut self,
        device: Device,
        writer: Writer,
        now: u64,
        outbox: &mut Vec<Io>,
    ) -> &'static [WaitChannel] {
        let which = self.of(device);
        self.requests[which] -= 1;
        if let Some(throttles) = &mut self.throttles {
            throttles[which].written(writer, now);
            self.send_held(which, now, outbox);
            return &[WaitChannel::Request];
        }
        // clear_bdi_congested wakes tasks that sleep in congestion_wait at every request that completes while
        // the queue is not congested, whether or not it was congested before.
        if self.requests[which] <= CONGESTION_OFF {
            self.congested[which] = false;
            return &[WaitChannel::Request, WaitChannel::Room];
        }
        if self.requests[which] < NR_REQUESTS { &[WaitChannel::Request] } else { &[] }
    }
}
