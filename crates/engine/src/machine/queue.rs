//! The queue of future events, in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::mm::{Io, WaitChannel};

/// Something that happens at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A sample is due.
    Sample,
    /// The CPUs refresh their counters.
    Refresh,
    /// The memory controller collects its counters.
    Flush,
    /// A process starts.
    Start(usize),
    /// The time of a process is over.
    Stop(usize),
    /// A task gets a CPU.
    Run(usize),
    /// The time until which a task sleeps has come; ignored if that sleep has already ended.
    Timer { task: usize, sleep: u64 },
    /// A task that ran ahead and blocked reaches the time at which it blocked, and no longer uses a CPU.
    OffCpu { task: usize, sleep: u64 },
    /// A request reaches its device.
    Submit(Io),
    /// A device has moved the data of a request.
    Served(usize),
    /// A request has completed.
    Complete(u64),
    /// An event of the memory that tasks may wait for has happened.
    Wake(WaitChannel),
    /// A thread has signalled a stage to its process.
    Stage { process: usize, stage: u32 },
}

/// A future event. The sequence number keeps events of the same time in the order in which they were entered.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    sequence: u64,
    what: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// The future events, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
}

impl Queue {
    /// Enters an event.
    pub(super) fn push(&mut self, at: u64, what: Event) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, what }));
    }

    /// The number of events entered so far.
    #[cfg(test)]
    pub(super) fn entered(&self) -> u64 {
        self.sequence
    }

    /// The time of the next event, or `u64::MAX` if there is none.
    pub(super) fn next_at(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |entry| entry.0.at)
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse(Entry { at, what, .. })| (at, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_keep_the_order_of_entry() {
        let mut queue = Queue::default();
        for (at, process) in [(7, 0), (3, 1), (7, 2), (3, 3), (5, 4), (7, 5)] {
            queue.push(at, Event::Start(process));
        }
        let mut order = Vec::new();
        while let Some((at, Event::Start(process))) = queue.pop() {
            order.push((at, process));
        }
        assert_eq!(order, [(3, 1), (3, 3), (5, 4), (7, 0), (7, 2), (7, 5)]);
    }
}
