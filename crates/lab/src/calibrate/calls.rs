//! Calls, cached reads and wake-ups.
//!
//! `syscall`: `getppid`, which only enters the kernel and leaves it. Cached read: `pread` of one random page
//! of a file that is in the page cache. `copy` is the cached read less `syscall`; it includes looking up the
//! page, and the work of a call that does not depend on its pages. `wakeup`: half of a round of two threads
//! that wake each other in turn (futex), in real time. It includes one call to wake and one to sleep and,
//! where each thread has a CPU of its own, the CPU's exit from its idle state. `slack`: how much later than
//! asked a sleep of 2 ms ends, less `wakeup`; `sleep`: the CPU time that it takes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use lotsfree_scenario::Record;
use lotsfree_units::Bytes;

use super::{Effort, PAGE, Random, Value, cpu, cpu_of, keep, less, of, repeated};
use crate::agent::Clock;

/// The most of the file that is read. The last-level cache may hold this much, so that the copy is measured
/// and not the memory.
const CACHED: Bytes = Bytes::mib(32);
/// A wake-up takes about this many times longer than a call, so it is repeated that much less often.
const SLOWER: u32 = 10;
/// A sleep takes milliseconds, so there is one sleep for this many calls.
const RARER: u32 = 1000;
/// Length of a sleep.
const NAP_NS: u64 = 2_000_000;

pub(super) fn measure(file: &File, bytes: Bytes, effort: &Effort, record: &mut Record) {
    let calls = f64::from(effort.calls);
    let call = || {
        for _ in 0..effort.calls {
            std::hint::black_box(rustix::process::getppid());
        }
    };
    let syscall = repeated(effort, || Ok(cpu(call) / calls));
    let read = cached_read(file, bytes.min(CACHED), effort);
    let copy = match (&read, &syscall) {
        (Ok(read), Ok(syscall)) => less(*read, syscall.median),
        (Err(why), _) | (_, Err(why)) => Err(why.clone()),
    };
    keep(record, "costs.syscall", syscall, |record| &mut record.costs.syscall);
    keep(record, "costs.copy", copy, |record| &mut record.costs.copy);
    keep(record, "cached-read", read, |record| &mut record.cached_read);
    let (wakeup, (late, cpu)) = (wakeup(effort), sleeps(effort));
    let slack = wakeup.clone().and_then(|wakeup| less(of(&late)?, wakeup.median));
    keep(record, "costs.wakeup", wakeup, |record| &mut record.costs.wakeup);
    keep(record, "costs.slack", slack, |record| &mut record.costs.slack);
    keep(record, "costs.sleep", of(&cpu), |record| &mut record.costs.sleep);
}

fn cached_read(file: &File, bytes: Bytes, effort: &Effort) -> Value {
    let pages = bytes.0 / PAGE as u64;
    let mut page = [0; PAGE];
    for number in 0..pages {
        file.read_exact_at(&mut page, number * PAGE as u64).map_err(|error| error.to_string())?;
    }
    let mut random = Random::new(1);
    repeated(effort, || {
        let reads = || {
            (0..effort.calls)
                .try_for_each(|_| file.read_exact_at(&mut page, random.below(pages, 0) * PAGE as u64))
        };
        Ok(cpu_of(reads)? / f64::from(effort.calls))
    })
}

fn wakeup(effort: &Effort) -> Value {
    let rounds = (effort.calls / SLOWER).max(1);
    repeated(effort, || {
        let turn = AtomicBool::new(false);
        let wait = |mine: bool| {
            while turn.load(Ordering::Acquire) != mine {
                thread::park();
            }
        };
        let first = thread::current();
        let elapsed = thread::scope(|scope| {
            let other = thread::Builder::new().spawn_scoped(scope, || {
                for _ in 0..rounds {
                    wait(true);
                    turn.store(false, Ordering::Release);
                    first.unpark();
                }
            })?;
            let began = Instant::now();
            for _ in 0..rounds {
                turn.store(true, Ordering::Release);
                other.thread().unpark();
                wait(false);
            }
            Ok::<_, io::Error>(began.elapsed())
        })?;
        Ok(elapsed.as_nanos() as f64 / f64::from(rounds) / 2.0)
    })
}

/// How much later than asked a sleep ends, and the CPU time that it takes, in nanoseconds: the means of each
/// repetition.
fn sleeps(effort: &Effort) -> (Vec<f64>, Vec<f64>) {
    let rounds = (effort.calls / RARER).max(1);
    let once = || {
        let mut late = 0;
        let cpu = cpu(|| {
            for _ in 0..rounds {
                let until = Clock::monotonic() + NAP_NS;
                Clock::default().sleep_until(until);
                late += Clock::monotonic().saturating_sub(until);
            }
        });
        (late as f64 / f64::from(rounds), cpu / f64::from(rounds))
    };
    (0..effort.repetitions).map(|_| once()).unzip()
}
