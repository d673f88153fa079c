//! A disk that is not slow but held to its figures, as those of QEMU's guests are (`util/throttle.c`,
//! `block/throttle-groups.c` of 7.2).
//!
//! A leaky bucket holds what has passed: time that the requests would occupy the disk, less the time that has
//! gone by. As long as it holds no more than the burst, requests pass at once. Reads and writes wait in a
//! queue each, in the order of arrival. The first of a queue waits for the time at which the bucket will have
//! leaked enough, as it is when the queue is set to wait, whatever passes in the other direction meanwhile.
//! Reads and writes that always wait therefore take turns.
//!
//! Contiguous requests that arrive at the same time are merged, as by the virtual disk
//! (`hw/block/virtio-blk.c:virtio_blk_submit_multireq`).

use std::collections::VecDeque;

use super::device::{DeviceSpec, HANDED_OVER_PAGES};
use crate::mm::Io;

/// One or more merged requests.
#[derive(Debug)]
struct Request {
    since: u64,
    /// Place after its last page.
    end: u64,
    pages: u32,
    ids: Vec<u64>,
}

/// Requests of one direction.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Request>,
    /// When the first of them passes.
    passes: Option<u64>,
}

/// A disk with a bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    spec: DeviceSpec,
    /// Until when what has passed would occupy the disk, by its bandwidth and by its requests per second.
    owed_until: [u64; 2],
    /// Reads and writes.
    queues: [Queue; 2],
    /// The event that is to come.
    event: Option<u64>,
}

impl Bucket {
    pub(super) fn new(spec: DeviceSpec) -> Self {
        Bucket { spec, owed_until: [0; 2], queues: Default::default(), event: None }
    }

    /// When a request may pass that is set to wait now.
    fn leaked(&self, now: u64) -> u64 {
        self.owed_until.into_iter().map(|until| until.saturating_sub(self.spec.burst)).fold(now, u64::max)
    }

    /// Accepts a request. Returns when to call [`Bucket::pass`], if that is not known yet.
    pub(super) fn submit(&mut self, io: &Io, now: u64) -> Option<u64> {
        let leaked = self.leaked(now);
        let Queue { waiting, passes } = &mut self.queues[usize::from(io.write)];
        match waiting.back_mut() {
            Some(last)
                if last.since == now
                    && last.end == io.start
                    && last.pages + io.pages <= HANDED_OVER_PAGES =>
            {
                last.end += u64::from(io.pages);
                last.pages += io.pages;
                last.ids.push(io.id);
            }
            _ => waiting.push_back(Request {
                since: now,
                end: io.start.saturating_add(u64::from(io.pages)),
                pages: io.pages,
                ids: vec![io.id],
            }),
        }
        passes.get_or_insert(leaked);
        self.next()
    }

    /// Lets pass what may, gives it to `complete` with the time at which it completes, and returns when to
    /// call again.
    pub(super) fn pass(&mut self, now: u64, mut complete: impl FnMut(u64, u64)) -> Option<u64> {
        if self.event != Some(now) {
            // An earlier event has taken the place of this one.
            return None;
        }
        self.event = None;
        for which in 0..self.queues.len() {
            while self.queues[which].passes.is_some_and(|at| at <= now) {
                if let Some(request) = self.queues[which].waiting.pop_front() {
                    let costs = [self.spec.transfer(request.pages), self.spec.operation()];
                    for (until, cost) in self.owed_until.iter_mut().zip(costs) {
                        *until = (*until).max(now).saturating_add(cost);
                    }
                    let at = now.saturating_add(self.spec.latency);
                    request.ids.into_iter().for_each(|id| complete(id, at));
                }
                let is_empty = self.queues[which].waiting.is_empty();
                self.queues[which].passes = (!is_empty).then(|| self.leaked(now));
            }
        }
        self.next()
    }

    /// The next event, if it is earlier than the one to come.
    fn next(&mut self) -> Option<u64> {
        let next = self.queues.iter().filter_map(|queue| queue.passes).min()?;
        if self.event.is_some_and(|event| event <= next) {
            return None;
        }
        self.event = Some(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mm::Device;

    const MS: u64 = 1_000_000;
    /// A page takes 1 ms.
    const SPEC: DeviceSpec =
        DeviceSpec { latency: 50, bandwidth: 4096 * 1000, iops: 0, seek: None, burst: 100 * MS };

    /// Gives a disk requests (number, whether it writes, first page, pages) at a time, and returns which
    /// passed at what time in milliseconds.
    fn passed(spec: DeviceSpec, ios: &[(u64, bool, u64, u32, u64)]) -> Vec<(u64, u64)> {
        let mut bucket = Bucket::new(spec);
        let (mut done, mut events, mut left) = (Vec::new(), Vec::new(), ios.iter().peekable());
        loop {
            let event = events.iter().min().copied();
            let arrival = left.peek().map(|io| io.4 * MS);
            if arrival.is_some_and(|at| event.is_none_or(|event| at <= event)) {
                let &(id, write, start, pages, at) = left.next().unwrap();
                let io = Io { id, device: Device::Disk, write, sync: !write, start, pages };
                events.extend(bucket.submit(&io, at * MS));
                continue;
            }
            let Some(now) = event else { return done };
            events.retain(|event| *event != now);
            events.extend(bucket.pass(now, |id, at| done.push((id, (at - 50) / MS))));
        }
    }

    #[test]
    fn what_a_rest_has_saved_passes_at_once() {
        let ios: Vec<_> = (0..5).map(|id| (id, false, 1000 * id, 40, 0)).collect();
        // Three are begun before the bucket of 100 pages is full, and each of the others when it has leaked.
        assert_eq!(passed(SPEC, &ios), [(0, 0), (1, 0), (2, 0), (3, 20), (4, 60)]);
        // After a rest there is room for as much again, and for no more than that.
        let again = [0, 500].map(|at| [(at, true, 0, 150, at), (at + 1, true, 900, 1, at)]);
        assert_eq!(passed(SPEC, again.as_flattened()), [(0, 0), (1, 50), (500, 500), (501, 550)]);
    }

    #[test]
    fn each_request_counts_among_those_of_a_second() {
        let spec = DeviceSpec { iops: 100, ..SPEC };
        let ios: Vec<_> = (0..13).map(|id| (id, false, 1000 * id, 1, 0)).collect();
        let done = passed(spec, &ios);
        // A tenth of a second's worth, and one more when none is left.
        assert_eq!(done.iter().filter(|(_, at)| *at == 0).count(), 11);
        assert_eq!(done[11..], [(11, 10), (12, 20)]);
    }

    #[test]
    fn reads_and_writes_take_turns_whatever_their_size() {
        let filled = (0, true, 0, 130, 0);
        let ios = (1..9).map(|id| (id, id % 2 == 0, 1000 * id, if id % 2 == 0 { 30 } else { 10 }, 1));
        let done = passed(SPEC, &[filled].into_iter().chain(ios).collect::<Vec<_>>());
        assert_eq!(done[1..5], [(1, 30), (2, 30), (3, 40), (4, 70)]);
        assert_eq!(done[5..], [(5, 80), (6, 110), (7, 120), (8, 150)], "40 ms for one of each");
    }

    #[test]
    fn neighbours_that_arrive_together_are_one_request() {
        let spec = DeviceSpec { iops: 10, ..SPEC };
        let ios = [(0, false, 0, 1, 0), (1, false, 1, 1, 0), (2, false, 2, 1, 1), (3, false, 3, 1, 1)];
        assert_eq!(passed(spec, &ios), [(0, 0), (1, 0), (2, 1), (3, 1)]);
    }
}
