//! [`HoldTimes`]: the spinlock of an lruvec's lists, and how long a task spins for it.
//!
//! It is `zone->lru_lock` through 4.7, `pgdat->lru_lock` from 4.8 on (a52633d8e9c3) and `lruvec->lru_lock`
//! from 5.11 on (6168d0da2b47), which without memory cgroups is again one for each node: one for each
//! [`Lruvec`](super::mmzone::Lruvec).
//!
//! # What is modelled
//!
//! - Reclaim holds the lock while it takes a batch off a list, drops it while it decides what becomes of
//!   the pages, and holds it again while it puts back those that stay (`shrink_inactive_list`,
//!   `shrink_active_list`, and `evict_folios` of MGLRU, whose batches are longer). MGLRU holds it too
//!   while it gives up a generation (`inc_max_seq`).
//! - A page that comes into memory waits in a batch of its CPU, and the lock is taken for a full one
//!   (`pagevec_lru_move_fn`, `folio_batch_move_lru`).
//! - The time for which the lock is held is part of what the work costs anyway. Only the time for which a
//!   task spins comes on top. It is CPU time of the task, in reclaim or in the system's time as the call
//!   is.
//! - Tasks execute ahead of each other by up to a lookahead, zone reclaim by its whole length, so that one
//!   asks for the lock at a time at which another has already been given it. A lock therefore remembers
//!   from when until when it is held, and gives out the time that is left, if need be in pieces. No two
//!   CPUs ever hold it at once, and it is held for as long in sum as was asked for. Which of several that
//!   want it at once waits is decided by the order in which they execute, not by that of a ticket or
//!   queued spinlock: where more is asked for than there is, the last one waits for all others.
//! - Whoever holds a spinlock is not preempted, so tasks on one CPU never wait for each other.
//!
//! # What is not
//!
//! The batches in which pages are activated, rotated and deactivated, the draining of batches that are not
//! full (`lru_add_drain`), and pages that leave the lists when they are unmapped or truncated
//! (`release_pages`) do not take the lock. A batch of added pages takes the lock of its last page's
//! lruvec. A lock that is contended costs no more than the wait: the cache line does not take longer to
//! arrive. No other lock is modelled, such as those of zones (`zone->lock`), page tables and files.

use std::collections::BTreeMap;

use super::{Cx, MS, Mm};

/// For how long after somebody had to wait for a lock tasks execute ahead of each other by less, in
/// nanoseconds: some slices, so that a phase of contention is one phase.
const CONTENTION_LASTS_NS: u64 = MS;

/// A time for which a CPU holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    cpu: usize,
    from: u64,
    until: u64,
}

/// The times for which a lock or a flag is held, as far as a task may still ask for it.
#[derive(Debug, Default)]
pub(crate) struct HoldTimes {
    /// By their begin, without overlaps.
    holds: BTreeMap<u64, Hold>,
    /// The holds that one task is given, in order.
    pieces: Vec<Hold>,
}

impl HoldTimes {
    /// Takes the lock for `hold_ns` of the time from `at_ns` on at which no other CPU holds it. Returns for
    /// how long the CPU spins meanwhile.
    fn acquire(&mut self, cpu: usize, at_ns: u64, hold_ns: u64) -> u64 {
        let mut pieces = std::mem::take(&mut self.pieces);
        let (mut from, mut left) = (at_ns, hold_ns);
        for other in self.ending_after(at_ns) {
            let gap = other.from.saturating_sub(from);
            if gap >= left {
                break;
            }
            if other.cpu == cpu {
                continue;
            }
            if gap > 0 {
                pieces.push(Hold { cpu, from, until: other.from });
                left -= gap;
            }
            from = other.until;
        }
        let until = from + left;
        if left > 0 {
            pieces.push(Hold { cpu, from, until });
        }
        pieces.drain(..).for_each(|piece| self.enter(piece));
        self.pieces = pieces;
        until - at_ns - hold_ns
    }

    /// The holds that end after a time, in order. There may be many: another task of the same CPU may have
    /// executed far ahead.
    fn ending_after(&self, at_ns: u64) -> impl Iterator<Item = &Hold> {
        let begun = self.holds.range(..=at_ns).next_back();
        let later = self.holds.range(at_ns + 1..);
        begun.into_iter().chain(later).map(|(_, hold)| hold).filter(move |hold| hold.until > at_ns)
    }

    /// The first hold of another CPU in a time.
    fn first_by_other(&self, cpu: usize, (from_ns, until_ns): (u64, u64)) -> Option<&Hold> {
        self.ending_after(from_ns).take_while(|hold| hold.from < until_ns).find(|hold| hold.cpu != cpu)
    }

    /// Whether another CPU holds the flag at a time.
    pub(super) fn is_held(&self, cpu: usize, at_ns: u64) -> bool {
        self.first_by_other(cpu, (at_ns, at_ns + 1)).is_some()
    }

    /// Holds the flag for a time that has passed already. Where a task that was executed before holds it
    /// later in that time, it ends there.
    pub(super) fn hold(&mut self, cpu: usize, from_ns: u64, until_ns: u64) {
        let other = self.first_by_other(cpu, (from_ns, until_ns));
        let until = other.map_or(until_ns, |other| other.from);
        if until > from_ns {
            self.enter(Hold { cpu, from: from_ns, until });
        }
    }

    /// Enters a hold, which may touch or overlap others of its CPU.
    fn enter(&mut self, mut new: Hold) {
        while let Some((&from, &hold)) = self.holds.range(..new.until).next_back()
            && hold.until >= new.from
            && hold.cpu == new.cpu
        {
            self.holds.remove(&from);
            (new.from, new.until) = (new.from.min(from), new.until.max(hold.until));
        }
        self.holds.insert(new.from, new);
    }

    /// Forgets what ended before a time from which on tasks ask.
    pub(super) fn forget(&mut self, now_ns: u64) {
        while let Some(first) = self.holds.first_entry()
            && first.get().until <= now_ns
        {
            first.remove();
        }
    }

    /// Checks that the lock is held by one CPU at a time.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut free_from = 0;
        for (from, hold) in &self.holds {
            if *from != hold.from || hold.from < free_from || hold.until <= hold.from {
                return Err(format!("a lock that is held until {free_from} has {hold:?} at {from}"));
            }
            free_from = hold.until;
        }
        Ok(())
    }
}

/// A batch that reclaim has processed, from the point of view of the lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockedBatch {
    /// When it was begun ([`Cx::now`]).
    pub(super) began_ns: u64,
    /// Pages taken off the list.
    pub(super) isolated: u64,
    /// Pages looked at under the lock and left, at the cost of `skip` each.
    pub(super) skipped: u64,
    /// Pages put back.
    pub(super) returned: u64,
}

/// Pages that wait on each CPU to be added to a list, and what contention there was.
#[derive(Debug, Default)]
pub(crate) struct LruLocking {
    /// Pages in each CPU's batch.
    pending: Vec<u32>,
    /// No task asks for a lock as of an earlier time.
    pub(super) now_ns: u64,
    /// When somebody last had to wait.
    contended_ns: Option<u64>,
}

impl LruLocking {
    pub(super) fn new(cpus: usize) -> Self {
        LruLocking { pending: vec![0; cpus], ..LruLocking::default() }
    }
}

impl Mm {
    /// Says that no task makes a call as of an earlier time any more.
    pub fn advance(&mut self, now_ns: u64) {
        self.lru_locking.now_ns = now_ns;
    }

    /// Whether a task has recently had to wait for a lock.
    pub fn is_contended(&self) -> bool {
        let LruLocking { now_ns, contended_ns, .. } = self.lru_locking;
        contended_ns.is_some_and(|at| now_ns < at + CONTENTION_LASTS_NS)
    }

    /// Takes the lock twice for a batch that reclaim has processed, to isolate the pages and to put them
    /// back, and charges the waits. The time of the two holds is part of what the batch has cost already.
    pub(super) fn lock_batch(&mut self, cx: &mut Cx, lruvec: usize, batch: LockedBatch) {
        if self.cpus == 1 {
            return;
        }
        let cost = cx.now() - batch.began_ns;
        let per_page = self.costs.lru_lock;
        let isolate = (batch.isolated * per_page + batch.skipped * self.costs.skip).min(cost);
        let put_back = (batch.returned * per_page).min(cost - isolate);
        self.spin(cx, lruvec, batch.began_ns, isolate);
        self.spin(cx, lruvec, cx.now() - put_back, put_back);
    }

    /// Puts a page that has come into memory into the batch of its CPU, and takes the lock for the batch
    /// if it is full (`lru_cache_add`, `folio_add_lru`).
    #[inline]
    pub(super) fn batch_lru_add(&mut self, cx: &mut Cx, frame: u32) {
        if self.cpus > 1 {
            let pending = &mut self.lru_locking.pending[cx.cpu];
            *pending += 1;
            if *pending >= self.generation.pagevec_size {
                self.lock_lru_add(cx, frame);
            }
        }
    }

    #[cold]
    fn lock_lru_add(&mut self, cx: &mut Cx, frame: u32) {
        let pages = std::mem::take(&mut self.lru_locking.pending[cx.cpu]);
        let hold = u64::from(pages) * self.costs.lru_lock;
        let at = cx.now().saturating_sub(hold).max(cx.start);
        self.spin(cx, self.lruvec_of_frame(frame), at, hold);
    }

    /// Takes the lock from `at_ns` on for `hold_ns`, and charges the wait.
    fn spin(&mut self, cx: &mut Cx, lruvec: usize, at_ns: u64, hold_ns: u64) {
        let lru_lock = &mut self.lruvecs[lruvec].lru_lock;
        lru_lock.forget(self.lru_locking.now_ns);
        let wait = lru_lock.acquire(cx.cpu, at_ns, hold_ns);
        if wait > 0 {
            cx.spend(wait);
            self.lru_locking.contended_ns = Some(at_ns + wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_cpu_holds_is_waited_for() {
        let mut lock = HoldTimes::default();
        assert_eq!(lock.acquire(0, 100, 50), 0);
        assert_eq!(lock.acquire(1, 120, 50), 30);
        assert_eq!(lock.acquire(2, 120, 50), 80, "behind both");
        assert_eq!(lock.acquire(0, 300, 50), 0);
        assert_eq!(lock.acquire(1, 60, 40), 0, "it is over before the first begins");
        assert_eq!(lock.acquire(1, 260, 50), 50, "it has the 40 ns before 300, and then 10");
        assert_eq!(lock.acquire(2, 260, 40), 100, "there is no gap left");
        assert_eq!(lock.check(), Ok(()));
    }

    #[test]
    fn tasks_on_one_cpu_do_not_wait_for_each_other() {
        let mut lock = HoldTimes::default();
        assert_eq!(lock.acquire(0, 100, 50), 0);
        assert_eq!(lock.acquire(0, 120, 60), 0);
        assert!(lock.holds.values().eq(&[Hold { cpu: 0, from: 100, until: 180 }]));
        assert_eq!(lock.acquire(1, 110, 20), 70);
        assert_eq!(lock.acquire(0, 170, 20), 20, "its CPU has the lock, but not for as long");
        assert_eq!(lock.check(), Ok(()));
    }

    #[test]
    fn a_flag_that_another_cpu_holds_is_seen_for_as_long() {
        let mut flag = HoldTimes::default();
        flag.hold(0, 100, 200);
        let seen = [99, 100, 199, 200].map(|at| flag.is_held(1, at));
        assert_eq!((seen, flag.is_held(0, 150)), ([false, true, true, false], false));
        flag.hold(1, 50, 150);
        assert_eq!(flag.holds[&50], Hold { cpu: 1, from: 50, until: 100 }, "until the other has it");
        assert_eq!(flag.check(), Ok(()));
    }

    #[test]
    fn only_what_tasks_may_still_meet_is_remembered() {
        let mut lock = HoldTimes::default();
        for at in 0..1000 {
            lock.forget(at * 100);
            assert_eq!(lock.acquire(at as usize % 4, at * 100 + 50, 20), 0);
        }
        assert_eq!(lock.holds.len(), 1);
    }

    /// However tasks run ahead of each other, the lock is held for as long as it was asked for, and never
    /// by two at once.
    #[test]
    fn a_lock_is_held_for_all_that_was_asked_for_and_by_one_cpu_at_a_time() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let mut lock = HoldTimes::default();
        let mut clocks = [0u64; 8];
        let mut asked = 0;
        for _ in 0..5000 {
            let cpu = random(8) as usize;
            let hold = 1 + random(300);
            let wait = lock.acquire(cpu, clocks[cpu], hold);
            clocks[cpu] += wait + hold + random(500);
            asked += hold;
            assert_eq!(lock.check(), Ok(()));
        }
        let held: u64 = lock.holds.values().map(|hold| hold.until - hold.from).sum();
        assert_eq!(held, asked);
    }
}
