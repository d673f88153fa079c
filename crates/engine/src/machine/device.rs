//! Devices: a request queue in front of something that moves one request's data at a time.
//!
//! A [`Scheduler`] decides which request is served next, and merges contiguous ones of one direction:
//!
//! - Deadline (`block/mq-deadline.c`; 2.6.32 to 5.x: `block/deadline-iosched.c`) serves reads and writes in
//!   batches, each batch in the order of place on the disk. Reads go first, but at most [`WRITES_STARVED`]
//!   batches of reads pass a waiting write. A batch begins with the oldest request if that one has waited too
//!   long.
//! - CFQ (`block/cfq-iosched.c`, to 4.20), in outline: reads, writes that nobody waits for and writes that
//!   somebody waits for take turns in slices of time. Within the slice of reads the disk does nothing for up
//!   to [`SLICE_IDLE`] after an answer, so that the reader can ask again. Readers that do so take most of the
//!   disk's time from the writers.
//!
//! - None (`block/blk-mq.c`; with the multi-queue layer, where the device does not rotate and there are
//!   several CPUs): requests go to the device at once. What order it serves them in is its own affair; here
//!   it serves each direction in the order of arrival and [`WRITES_STARVED`] reads before a write. A stream
//!   of contiguous reads does not pass others, as it does in the order of place.
//!   Nothing is merged while it waits; what a virtual disk is handed at the same moment is, up to
//!   [`HANDED_OVER_PAGES`] (QEMU, `hw/block/virtio-blk.c`: `virtio_blk_submit_multireq`).
//!
//! Deadline and CFQ merge requests as long as they wait, up to `max_sectors_kb`.
//!
//! A request occupies the device for the time that its data take at the device's bandwidth. Unless it begins
//! where the one before it ended, it takes at least one operation at the device's rate, or a seek on top of
//! the transfer. The latency is added to that, and overlaps with the requests that follow. A device with a
//! burst has none of this, except with CFQ, but a [`Bucket`].
//!
//! Not modelled are caches of the device, several hardware queues, the dependence of a seek on its distance,
//! I/O priorities and control groups. Of CFQ, the model lacks a queue for each process, requests that expire,
//! and slices whose length depends on the number of queues and on earlier overruns.

use std::collections::{BTreeMap, VecDeque};

use super::bucket::Bucket;
use crate::mm::Io;

/// `writes_starved`: batches of reads, or reads, that may pass a waiting write.
const WRITES_STARVED: u32 = 2;
/// `fifo_batch`: the most requests in a batch.
const FIFO_BATCH: u32 = 16;
/// `read_expire` and `write_expire` by class of request, in nanoseconds: 500 ms and 5 s.
const EXPIRE: [u64; 3] = [500_000_000, 5_000_000_000, 5_000_000_000];
/// CFQ's `slice_sync` and `slice_async` by class of request, in nanoseconds: 100 ms for reads and for writes
/// that somebody waits for, 40 ms for other writes.
const SLICE_NS: [u64; 3] = [100_000_000, 40_000_000, 100_000_000];
/// `slice_idle`, in nanoseconds: 8 ms.
const SLICE_IDLE: u64 = 8_000_000;
/// `cfq_prio_to_maxrq` with `slice_async_rq` 2 at the usual priority: the most requests in a slice of writes
/// that nobody waits for.
const SLICE_ASYNC_REQUESTS: u32 = 16;
/// A virtual disk merges requests that arrive together into one of at most this many blocks (IOV_MAX).
pub(super) const HANDED_OVER_PAGES: u32 = 1024;
const SECOND: u128 = 1_000_000_000;
const BLOCK: u128 = crate::mm::BLOCK as u128;

/// The performance of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// Nanoseconds from the end of the transfer to the completion of a request.
    pub latency: u64,
    /// Bytes per second; 0 is no limit.
    pub bandwidth: u64,
    /// Requests per second, of those that do not begin where the one before ended; 0 is no limit.
    pub iops: u64,
    /// Nanoseconds that the heads of a rotating disk take to reach a request that does not begin where the
    /// one before ended; if set, it replaces the limit on requests per second.
    pub seek: Option<u64>,
    /// Nanoseconds' worth of requests that pass at once after a rest, of a device that is not slow but held
    /// to its figures; 0 for one that is slow.
    pub burst: u64,
}

/// The nanoseconds in which an amount passes at a rate; 0 without one.
fn per_second(amount: u128, rate: u64) -> u64 {
    match rate {
        0 => 0,
        rate => u64::try_from((amount * SECOND).div_ceil(u128::from(rate))).unwrap_or(u64::MAX >> 1),
    }
}

impl DeviceSpec {
    /// Nanoseconds that the data of a request take.
    pub(super) fn transfer(&self, pages: u32) -> u64 {
        per_second(u128::from(pages) * BLOCK, self.bandwidth)
    }

    /// Nanoseconds that a request takes at least, wherever it begins.
    pub(super) fn operation(&self) -> u64 {
        self.seek.unwrap_or_else(|| per_second(1, self.iops))
    }

    /// Nanoseconds that a request occupies the device.
    fn service(&self, pages: u32, contiguous: bool) -> u64 {
        let transfer = self.transfer(pages);
        match (contiguous, self.seek) {
            (true, _) => transfer,
            (false, Some(seek)) => transfer.saturating_add(seek),
            (false, None) => transfer.max(self.operation()),
        }
    }
}

/// One or more merged requests.
#[derive(Debug)]
struct Request {
    sequence: u64,
    /// When the first of them was handed over.
    since: u64,
    pages: u32,
    id: u64,
    merged: Vec<u64>,
}

/// Waiting requests of one direction.
#[derive(Debug, Default)]
struct Direction {
    /// Requests by first page, then by age.
    sorted: BTreeMap<(u64, u64), Request>,
    /// Requests by age, as first page and sequence number, each with the time at which it has waited too
    /// long. Entries of requests that were served stay until they come to the front.
    fifo: VecDeque<(u64, (u64, u64))>,
}

impl Direction {
    /// Merges a request into a waiting one that was handed over at `since` or later, if the two are
    /// contiguous and together have at most `most` pages.
    fn merge(&mut self, io: &Io, most: u32, since: u64) -> bool {
        let fits = |request: &Request| request.pages + io.pages <= most && request.since >= since;
        let before = self.sorted.range_mut(..(io.start, 0)).next_back();
        if let Some(((start, _), request)) = before
            && start + u64::from(request.pages) == io.start
            && fits(request)
        {
            request.pages += io.pages;
            request.merged.push(io.id);
            return true;
        }
        let end = io.start.saturating_add(u64::from(io.pages));
        let after = self.sorted.range((end, 0)..).next().map(|(&key, request)| (key, fits(request)));
        if let Some((key, true)) = after
            && key.0 == end
            && let Some(mut request) = self.sorted.remove(&key)
        {
            request.pages += io.pages;
            request.merged.push(io.id);
            let moved = (io.start, key.1);
            if let Some(entry) = self.fifo.iter_mut().find(|entry| entry.1 == key) {
                entry.1 = moved;
            }
            self.sorted.insert(moved, request);
            return true;
        }
        false
    }

    /// The oldest request, if it has waited too long.
    fn expired(&mut self, now: u64) -> Option<(u64, u64)> {
        while let Some(&(expires, key)) = self.fifo.front() {
            if self.sorted.contains_key(&key) {
                return (expires <= now).then_some(key);
            }
            self.fifo.pop_front();
        }
        None
    }

    /// The next request at or above a place.
    fn from(&self, place: u64) -> Option<(u64, u64)> {
        self.sorted.range((place, 0)..).next().map(|(&key, _)| key)
    }
}

/// The policy that decides which request is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduler {
    Deadline,
    Cfq,
    None,
}

/// Classes of requests: reads, writes, and, with CFQ, writes that somebody waits for.
const READ: usize = 0;
const WRITE: usize = 1;
const SYNC_WRITE: usize = 2;

/// State of CFQ: the class whose slice it is.
#[derive(Debug, Default)]
struct Turn {
    class: usize,
    /// End of the slice.
    until: u64,
    /// Requests served in the slice.
    served: u32,
    /// When the last read completed.
    answered: u64,
    /// End of the idle time for which the machine has already been given an event.
    idle_until: Option<u64>,
}

/// The next step of a disk.
enum Next {
    Serve(usize, (u64, u64)),
    Idle(u64),
    Nothing,
}

/// A device and the requests that wait for it.
#[derive(Debug)]
pub(super) struct Disk {
    spec: DeviceSpec,
    scheduler: Scheduler,
    /// What a device with a burst has in place of all that follows.
    bucket: Option<Bucket>,
    /// The most pages of a merged request (`max_sectors_kb`).
    request_pages: u32,
    /// Waiting requests by class.
    waiting: [Direction; 3],
    in_service: Option<Request>,
    /// When the request in service is done.
    busy_until: u64,
    /// It began where the one before it ended.
    contiguous: bool,
    /// Class of the current batch, and the number of requests that it may still serve.
    batch: (usize, u32),
    starved: u32,
    turn: Turn,
    /// Where the last request ended, and whether it was a write.
    head: (u64, bool),
    sequence: u64,
}

impl Disk {
    pub(super) fn new(spec: DeviceSpec, scheduler: Scheduler, request_pages: u32) -> Self {
        Disk {
            spec,
            scheduler,
            bucket: (spec.burst > 0 && scheduler != Scheduler::Cfq).then(|| Bucket::new(spec)),
            request_pages,
            waiting: Default::default(),
            in_service: None,
            busy_until: 0,
            contiguous: false,
            batch: (READ, 0),
            starved: 0,
            turn: Turn::default(),
            head: (u64::MAX, false),
            sequence: 0,
        }
    }

    /// Accepts a request. Returns when to call [`Disk::served`], if that is not known yet.
    pub(super) fn submit(&mut self, io: &Io, now: u64) -> Option<u64> {
        if let Some(bucket) = &mut self.bucket {
            return bucket.submit(io, now);
        }
        let class = match (io.write, self.scheduler) {
            (false, _) => READ,
            (true, Scheduler::Cfq) if io.sync => SYNC_WRITE,
            (true, _) => WRITE,
        };
        let at_once = self.scheduler == Scheduler::None;
        let (most, since) = if at_once { (HANDED_OVER_PAGES, now) } else { (self.request_pages, 0) };
        if at_once && self.extend(io, now) {
            return Some(self.busy_until);
        }
        if self.waiting[class].merge(io, most, since) {
            return None;
        }
        self.sequence += 1;
        let key = (io.start, self.sequence);
        let (sequence, merged) = (self.sequence, Vec::new());
        let request = Request { sequence, since: now, pages: io.pages, id: io.id, merged };
        self.waiting[class].sorted.insert(key, request);
        self.waiting[class].fifo.push_back((now.saturating_add(EXPIRE[class]), key));
        if self.in_service.is_some() { None } else { self.start(now) }
    }

    /// Adds a request to the one in service, if it goes on where that ends and both were handed over now.
    fn extend(&mut self, io: &Io, now: u64) -> bool {
        let spec = self.spec;
        match &mut self.in_service {
            Some(request)
                if self.head == (io.start, io.write)
                    && request.since == now
                    && request.pages + io.pages <= HANDED_OVER_PAGES =>
            {
                request.pages += io.pages;
                request.merged.push(io.id);
                // It was handed over now, so its service began now.
                self.busy_until = now.saturating_add(spec.service(request.pages, self.contiguous));
                self.head.0 += u64::from(io.pages);
                true
            }
            _ => false,
        }
    }

    /// Finishes the request in service, whose data have been moved, or an idle time. Gives the request and
    /// each one that was merged into it, with the time at which it completes, to `complete`. Returns when to
    /// call again.
    pub(super) fn served(&mut self, now: u64, mut complete: impl FnMut(u64, u64)) -> Option<u64> {
        if let Some(bucket) = &mut self.bucket {
            return bucket.pass(now, complete);
        }
        if self.in_service.is_some() && now < self.busy_until {
            // The event is the end of an idle time that a request has cut short, or of a request before
            // another was added to it.
            return None;
        }
        if let Some(request) = self.in_service.take() {
            let at = now.saturating_add(self.spec.latency);
            complete(request.id, at);
            request.merged.iter().for_each(|&id| complete(id, at));
            if !self.head.1 {
                self.turn.answered = at;
            }
        }
        self.start(now)
    }

    /// Starts the next request.
    fn start(&mut self, now: u64) -> Option<u64> {
        let next = match self.scheduler {
            Scheduler::Deadline => self.choose_deadline(now),
            Scheduler::Cfq => self.choose_cfq(now),
            Scheduler::None => self.choose_oldest(),
        };
        let (class, key) = match next {
            Next::Serve(class, key) => (class, key),
            Next::Idle(until) if self.turn.idle_until == Some(until) => return None,
            Next::Idle(until) => {
                self.turn.idle_until = Some(until);
                return Some(until);
            }
            Next::Nothing => return None,
        };
        let request = self.waiting[class].sorted.remove(&key)?;
        debug_assert_eq!(request.sequence, key.1);
        let write = class != READ;
        self.contiguous = self.head == (key.0, write);
        self.head = (key.0.saturating_add(u64::from(request.pages)), write);
        let service = self.spec.service(request.pages, self.contiguous);
        self.in_service = Some(request);
        self.busy_until = now.saturating_add(service);
        Some(self.busy_until)
    }

    /// Where the search for the next request of a class begins.
    fn place(&self, class: usize) -> u64 {
        if self.head.1 == (class != READ) { self.head.0 } else { 0 }
    }

    /// Chooses the next request (`dd_dispatch_request`).
    fn choose_deadline(&mut self, now: u64) -> Next {
        let (class, left) = self.batch;
        if left > 0
            && let Some(key) = self.waiting[class].from(self.head.0)
        {
            self.batch.1 -= 1;
            return Next::Serve(class, key);
        }
        let [reads, writes] = [READ, WRITE].map(|class| !self.waiting[class].sorted.is_empty());
        let class = match (reads, writes) {
            (false, false) => return Next::Nothing,
            (true, false) => READ,
            (true, true) if self.starved < WRITES_STARVED => {
                self.starved += 1;
                READ
            }
            (_, true) => {
                self.starved = 0;
                WRITE
            }
        };
        self.batch = (class, FIFO_BATCH - 1);
        let place = self.place(class);
        let waiting = &mut self.waiting[class];
        match waiting.expired(now).or_else(|| waiting.from(place)).or_else(|| waiting.from(0)) {
            Some(key) => Next::Serve(class, key),
            None => Next::Nothing,
        }
    }

    /// Chooses the oldest request of the direction whose turn it is.
    fn choose_oldest(&mut self) -> Next {
        let [reads, writes] = [READ, WRITE].map(|class| !self.waiting[class].sorted.is_empty());
        let class = match (reads, writes) {
            (true, true) if self.starved >= WRITES_STARVED => WRITE,
            (true, _) => READ,
            _ => WRITE,
        };
        self.starved = if class == READ && writes { self.starved + 1 } else { 0 };
        match self.waiting[class].expired(u64::MAX) {
            Some(key) => Next::Serve(class, key),
            None => Next::Nothing,
        }
    }

    /// Chooses the next request (`cfq_select_queue`, `cfq_arm_slice_timer`).
    fn choose_cfq(&mut self, now: u64) -> Next {
        let Turn { class, until, served, answered, .. } = self.turn;
        let next = |disk: &Self, class: usize| {
            let waiting = &disk.waiting[class];
            waiting.from(disk.place(class)).or_else(|| waiting.from(0))
        };
        if now < until && (class != WRITE || served < SLICE_ASYNC_REQUESTS) {
            if let Some(key) = next(self, class) {
                self.turn.served += 1;
                return Next::Serve(class, key);
            }
            let idle_until = answered.saturating_add(SLICE_IDLE).min(until);
            if class == READ && now < idle_until {
                return Next::Idle(idle_until);
            }
        }
        for class in [class + 1, class + 2, class].map(|class| class % SLICE_NS.len()) {
            if let Some(key) = next(self, class) {
                let turn = &mut self.turn;
                (turn.class, turn.until, turn.served) = (class, now.saturating_add(SLICE_NS[class]), 1);
                return Next::Serve(class, key);
            }
        }
        Next::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::Device;

    const SPEC: DeviceSpec =
        DeviceSpec { latency: 50, bandwidth: 4096 * 1_000_000, iops: 1000, seek: None, burst: 0 };
    const MS: u64 = 1_000_000;

    fn io(id: u64, write: bool, start: u64, pages: u32) -> Io {
        Io { id, device: Device::Disk, write, sync: !write, start, pages }
    }

    /// Gives a device all requests at time 0. Returns each with the time at which it completes, in that
    /// order.
    fn serve(spec: DeviceSpec, ios: &[Io]) -> Vec<(u64, u64)> {
        serve_by(Scheduler::Deadline, spec, ios)
    }

    fn serve_by(scheduler: Scheduler, spec: DeviceSpec, ios: &[Io]) -> Vec<(u64, u64)> {
        let mut disk = Disk::new(spec, scheduler, 128);
        let mut done = Vec::new();
        let mut next = None;
        for io in ios {
            next = disk.submit(io, 0).or(next);
        }
        while let Some(now) = next {
            next = disk.served(now, |id, at| done.push((id, at)));
        }
        done
    }

    #[test]
    fn a_request_takes_its_transfer_or_an_operation_and_the_latency() {
        // One page takes 1 µs, one operation 1 ms.
        let apart =
            [io(1, false, 100, 1), io(2, false, 900, 1), io(3, false, 901, 10), io(4, false, 5000, 2000)];
        assert_eq!(serve(SPEC, &apart[..2]), [(1, MS + 50), (2, 2 * MS + 50)]);
        // The second and the third are merged; the fourth is larger than one operation.
        let merged = [(1, MS + 50), (2, 2 * MS + 50), (3, 2 * MS + 50), (4, 4 * MS + 50)];
        assert_eq!(serve(SPEC, &apart), merged);
    }

    #[test]
    fn what_goes_on_where_the_last_one_ended_needs_no_operation() {
        let mut disk = Disk::new(SPEC, Scheduler::Deadline, 128);
        assert_eq!(disk.submit(&io(1, true, 7, 3), 0), Some(MS));
        assert_eq!(disk.served(MS, |_, _| {}), None);
        assert_eq!(disk.submit(&io(2, true, 10, 5), 2 * MS), Some(2 * MS + 5000));
        assert_eq!(disk.served(2 * MS + 5000, |_, _| {}), None);
        // A request in the other direction, or at another place, needs one.
        assert_eq!(disk.submit(&io(3, false, 15, 1), 3 * MS), Some(4 * MS));
    }

    #[test]
    fn a_seek_takes_the_place_of_the_rate() {
        let spec = DeviceSpec { seek: Some(8 * MS), ..SPEC };
        assert_eq!(serve(spec, &[io(1, false, 0, 10)]), [(1, 8 * MS + 10_000 + 50)]);
        let unlimited = DeviceSpec { latency: 50, bandwidth: 0, iops: 0, ..SPEC };
        assert_eq!(serve(unlimited, &[io(1, false, 0, 10)]), [(1, 50)]);
    }

    #[test]
    fn requests_are_merged_up_to_512_kib() {
        // The first is in service at once; the others wait, and are merged at either end.
        let pages = |id, start| io(id, true, start, 32);
        let ios: Vec<Io> = [9000, 64, 32, 96, 0, 128]
            .iter()
            .enumerate()
            .map(|(id, &start)| pages(id as u64, start))
            .collect();
        let done = serve(SPEC, &ios);
        let first =
            |end: u64| done.iter().filter(|(_, at)| *at == end + 50).map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!((first(MS), first(2 * MS)), (vec![0], vec![1, 2, 3, 4]));
        // The last is too large to be merged, but begins where the merged one ended.
        assert_eq!(done.last(), Some(&(5, 2 * MS + 32_000 + 50)));
    }

    #[test]
    fn without_a_scheduler_the_oldest_is_served_and_two_reads_pass_a_write() {
        let read = |n: u64, place: u64| io(n, false, place, 1);
        let write = |n: u64| io(n, true, n * 100, 1);
        // A stream that goes on where its last request ended does not pass the reader beside it.
        let reads = [read(1, 7), read(2, 9_000_000), read(3, 9), read(4, 5_000_000), read(5, 11)];
        let ios: Vec<Io> = reads.into_iter().chain((10..13).map(write)).collect();
        let order: Vec<u64> = serve_by(Scheduler::None, SPEC, &ios).iter().map(|(id, _)| *id).collect();
        assert_eq!(order, [1, 2, 3, 10, 4, 5, 11, 12]);
    }

    #[test]
    fn a_virtual_disk_merges_what_it_is_handed_at_once() {
        let mut disk = Disk::new(SPEC, Scheduler::None, 128);
        // 100 pages that follow each other take one operation, and all complete when the last page has moved.
        let mut next = None;
        for n in 0..10 {
            next = disk.submit(&io(n, true, n * 10, 10), 0).or(next);
        }
        next = disk.submit(&io(10, true, 5000, 1000), 0).or(next);
        // The eleventh takes no more than 24; and what comes later has to wait for itself.
        disk.submit(&io(11, true, 6000, 24), 0);
        disk.submit(&io(12, true, 6024, 1), 0);
        disk.submit(&io(13, true, 6025, 3000), MS / 2);
        let mut done = Vec::new();
        while let Some(now) = next {
            next = disk.served(now, |id, at| done.push((id, at)));
        }
        let at = |id: u64| done.iter().find(|(done, _)| *done == id).unwrap().1;
        assert!((0..10).all(|id| at(id) == MS + 50), "{done:?}");
        assert!((10..12).all(|id| at(id) == MS + 1_024_000 + 50), "{done:?}");
        assert_eq!(at(12), MS + 1_024_000 + 1000 + 50);
        assert_eq!(at(13), MS + 1_024_000 + 1000 + 3_000_000 + 50);
    }

    #[test]
    fn writes_wait_for_two_batches_of_reads_and_no_more() {
        let read = |n: u64| io(n, false, n * 100, 1);
        let write = |n: u64| io(n, true, n * 100, 1);
        let ios: Vec<Io> = (0..100).map(read).chain((100..140).map(write)).collect();
        let order: Vec<u64> = serve(SPEC, &ios).iter().map(|(id, _)| *id).collect();
        let first_write = order.iter().position(|&id| id >= 100);
        // The request that found the device idle began the first batch.
        assert_eq!(first_write, Some(48));
        assert!(order[48..64].iter().all(|&id| id >= 100) && order[64] == 48);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..140).collect::<Vec<_>>());
    }

    #[test]
    fn the_oldest_is_served_when_it_has_waited_too_long() {
        let mut disk = Disk::new(SPEC, Scheduler::Deadline, 128);
        let mut next = disk.submit(&io(0, false, 500_000, 1), 0);
        disk.submit(&io(1, false, 3, 1), 1);
        // New requests keep arriving above the head: sorted order alone would never come back to page 3.
        let (mut id, mut served_at) = (2, None);
        while let Some(now) = next
            && served_at.is_none()
        {
            disk.submit(&io(id, false, 500_000 + id * 10, 1), now);
            id += 1;
            next = disk.served(now, |id, at| {
                if id == 1 {
                    served_at = Some(at);
                }
            });
        }
        let at = served_at.unwrap();
        assert!((500 * MS..520 * MS).contains(&at), "{at}");
    }

    /// Runs a reader that asks again `think` after each answer, beside writes that all wait from the
    /// beginning. Returns the time of the last of `answers` answers, and the writes served by then.
    fn read_beside_writes(scheduler: Scheduler, think: u64, answers: u64) -> (u64, usize) {
        let mut disk = Disk::new(DeviceSpec { seek: Some(8 * MS), ..SPEC }, scheduler, 128);
        let mut events = std::collections::BinaryHeap::new();
        let push = |events: &mut std::collections::BinaryHeap<_>, at| {
            if let Some(at) = at {
                events.push(std::cmp::Reverse((at, false)));
            }
        };
        for n in 0..5000 {
            let next = disk.submit(&io(1000 + n, true, n * 1000, 1), 0);
            push(&mut events, next);
        }
        events.push(std::cmp::Reverse((0, true)));
        let (mut read, mut written) = (0, 0);
        while let Some(std::cmp::Reverse((now, asks))) = events.pop() {
            let next = if asks {
                disk.submit(&io(read, false, 900_000_000 + read * 10_000, 1), now)
            } else {
                let mut answered = None;
                let next = disk.served(now, |id, at| match id {
                    0..1000 => answered = Some(at),
                    _ => written += 1,
                });
                if let Some(at) = answered {
                    read += 1;
                    events.push(std::cmp::Reverse((at + think, true)));
                    if read == answers {
                        return (now, written);
                    }
                }
                next
            };
            push(&mut events, next);
        }
        panic!("{read} answers");
    }

    #[test]
    fn cfq_idles_for_a_reader_that_asks_again_soon() {
        // With deadline, every answer is followed by a batch of 16 writes. CFQ serves 16 writes in at most 40
        // ms, which is time for five of 8 ms, and then reads for 100 ms.
        let (took, written) = read_beside_writes(Scheduler::Deadline, MS, 100);
        assert!(written >= 1500 && took > 12_000 * MS, "{written} {took}");
        let (took, written) = read_beside_writes(Scheduler::Cfq, MS, 100);
        assert!((40..70).contains(&written) && took < 1_600 * MS, "{written} {took}");
        // A reader that thinks for longer than the disk idles gets no slice for itself.
        let (_, written) = read_beside_writes(Scheduler::Cfq, 20 * MS, 100);
        assert!((300..600).contains(&written), "{written}");
    }
}
