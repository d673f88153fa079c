//! Executes jobs on threads, in order, as many in parallel as threads and memory allow.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Time between two calls of `watch`.
const LOOK: Duration = Duration::from_millis(100);

/// Limits on the jobs that run in parallel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of jobs.
    pub(crate) threads: usize,
    /// Bytes that the jobs take together. A larger job runs alone.
    pub(crate) bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Index of the job that begins next.
    next: usize,
    /// Bytes that running jobs take, and the number of these jobs.
    bytes: u64,
    running: usize,
    workers: usize,
}

/// Does each job once: `begin` in the order of the jobs, never two at a time, then `work` in parallel with
/// others. No job begins once `stop` returns `true`. `watch` is called in this thread at least every [`LOOK`]
/// until all is done.
///
/// The results are in the order of the jobs; `None` for those that did not begin.
pub(crate) fn each<J: Sync, B, T: Send>(
    jobs: &[J],
    limits: Limits,
    bytes: impl Fn(&J) -> u64 + Sync,
    stop: impl Fn() -> bool + Sync,
    begin: impl Fn(usize, &J) -> B + Sync,
    work: impl Fn(usize, &J, B) -> T + Sync,
    mut watch: impl FnMut(),
) -> Vec<Option<T>> {
    let workers = limits.threads.clamp(1, jobs.len().max(1));
    let state = Mutex::new(State { workers, ..State::default() });
    let changed = Condvar::new();
    let results: Vec<Mutex<Option<T>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let worker = || {
        let _gone = Leave { state: &state, changed: &changed };
        let mut now = lock(&state);
        loop {
            let index = now.next;
            let Some((job, result)) = jobs.get(index).zip(results.get(index)) else { break };
            if stop() {
                break;
            }
            let takes = bytes(job);
            let fits = now.running == 0 || now.bytes.saturating_add(takes) <= limits.bytes;
            if !fits {
                // The timeout is for `stop`, which notifies nobody.
                now = changed.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            now.next += 1;
            now.running += 1;
            now.bytes = now.bytes.saturating_add(takes);
            let begun = begin(index, job);
            drop(now);
            let done = work(index, job, begun);
            *lock(result) = Some(done);
            now = lock(&state);
            now.running -= 1;
            now.bytes = now.bytes.saturating_sub(takes);
            changed.notify_all();
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(worker);
        }
        let mut now = lock(&state);
        while now.workers > 0 {
            now = changed.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            drop(now);
            watch();
            now = lock(&state);
        }
    });
    results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Counts a worker as ended when it is dropped, even in a panic.
struct Leave<'a> {
    state: &'a Mutex<State>,
    changed: &'a Condvar,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        lock(self.state).workers -= 1;
        self.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// Runs jobs that take these numbers of bytes; returns the most jobs and bytes at a time.
    fn most(jobs: &[u64], limits: Limits) -> (usize, u64) {
        let (running, taken) = (AtomicUsize::new(0), AtomicU64::new(0));
        let (most, most_taken) = (AtomicUsize::new(0), AtomicU64::new(0));
        let results = each(
            jobs,
            limits,
            |job| *job,
            || false,
            |_, job| {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                most_taken.fetch_max(taken.fetch_add(*job, SeqCst) + job, SeqCst);
            },
            |index, job, ()| {
                thread::sleep(Duration::from_millis(5));
                running.fetch_sub(1, SeqCst);
                taken.fetch_sub(*job, SeqCst);
                index
            },
            || {},
        );
        assert_eq!(results, (0..jobs.len()).map(Some).collect::<Vec<_>>());
        (most.into_inner(), most_taken.into_inner())
    }

    #[test]
    fn every_job_is_done_once_within_the_limits() {
        let jobs = [10, 10, 10, 10, 10, 10, 10, 10];
        assert_eq!(most(&jobs, Limits { threads: 1, bytes: 1000 }), (1, 10));
        assert_eq!(most(&jobs, Limits { threads: 4, bytes: 1000 }), (4, 40));
        assert_eq!(most(&jobs, Limits { threads: 4, bytes: 25 }), (2, 20));
        assert_eq!(most(&jobs, Limits { threads: 4, bytes: 0 }), (1, 10));
        assert_eq!(most(&[], Limits { threads: 4, bytes: 0 }), (0, 0));
        // A job that is too large runs, but alone.
        assert_eq!(most(&[10, 99, 10], Limits { threads: 3, bytes: 30 }), (1, 99));
    }

    #[test]
    fn jobs_begin_in_order() {
        let begun = Mutex::new(Vec::new());
        let limits = Limits { threads: 4, bytes: u64::MAX };
        each(
            &[(); 50],
            limits,
            |()| 1,
            || false,
            |index, ()| lock(&begun).push(index),
            |_, (), ()| {},
            || {},
        );
        assert_eq!(begun.into_inner().unwrap(), (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_begins_after_a_stop() {
        let stop = AtomicBool::new(false);
        let limits = Limits { threads: 1, bytes: u64::MAX };
        let work = |index, _: &(), ()| {
            stop.store(index == 2, SeqCst);
            index
        };
        let results = each(&[(); 5], limits, |()| 1, || stop.load(SeqCst), |_, ()| {}, work, || {});
        assert_eq!(results, [Some(0), Some(1), Some(2), None, None]);
    }
}
