//! Every call that may block, polled until it has to wait and interrupted after every step: the same
//! counters, costs and faults.

use lotsfree_engine::mm::{
    Config, CopyRange, Cx, Fadvise, Fault, Kswapd, Madvise, Mm, RaState, Read, Stop, Turnover, Wait,
    WaitChannel, WaitReason, Write, ZramConfig, ZswapConfig, ZswapWorker,
};
use lotsfree_engine::{Generation, NAMES};
use lotsfree_scenario::Zpool;
use lotsfree_workload::{Advice, How, Policy, RegionId};

/// Pages of memory, of which the kernel has some.
const MEMORY: u32 = 12_000;
/// CPU time after which others run, in ns.
const LONG: u64 = 10_000_000;
const PAGE: u64 = 4096;
const HEAP: RegionId = RegionId(0);
const MAPPED: RegionId = RegionId(1);

/// A machine with one program, kswapd and the flusher.
struct Host {
    mm: Mm,
    cx: Cx,
    kswapd: (usize, Kswapd),
    flusher: usize,
    zswap: (usize, ZswapWorker),
    polls: u64,
    cpu: u64,
}

/// How swap is compressed.
#[derive(Clone, Copy, Default)]
struct Compressed {
    zram: Option<ZramConfig>,
    zswap: Option<ZswapConfig>,
}

/// What a series of calls leaves behind.
#[derive(Debug, PartialEq)]
struct Outcome {
    counters: Vec<(&'static str, u64)>,
    cpu: u64,
    reclaim: u64,
    faults: (u32, u32),
    pages: Turnover,
    now: u64,
}

impl Host {
    fn new(generation: &str, slice: u64, swap: Compressed) -> Self {
        let mut mm = Mm::new(&Config {
            zram: swap.zram,
            zswap: swap.zswap,
            swap_pages: 2 * u64::from(MEMORY),
            kernel_pages: Some(vec![300]),
            ..Config::new(Generation::named(generation).expect("a generation"), vec![u64::from(MEMORY)])
        });
        let process = mm.create_process(Policy::Local);
        let (task, kswapd, flusher) = (mm.create_task(), mm.create_task(), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 1);
        cx.slice = slice;
        let zswap = (mm.create_task(), ZswapWorker::default());
        Host { mm, cx, kswapd: (kswapd, Kswapd::new(0)), flusher, zswap, polls: 0, cpu: 0 }
    }

    /// Polls a call to its end.
    fn finish(&mut self, mut poll: impl FnMut(&mut Mm, &mut Cx) -> Result<(), Stop>) {
        for _ in 0..1_000_000 {
            self.polls += 1;
            match poll(&mut self.mm, &mut self.cx) {
                Ok(()) => return,
                Err(Stop::Wait(wait)) if wait.why == WaitReason::Yield && self.cx.spent < LONG => {}
                Err(Stop::Wait(wait)) => self.sleep(Some(wait)),
                Err(Stop::OutOfMemory) => self.sleep(None),
                Err(stop) => panic!("{stop:?}: the test asks for something that there is not"),
            }
        }
        panic!("the call does not end");
    }

    /// Lets the others run until the program's wait is over.
    fn sleep(&mut self, wait: Option<Wait>) {
        let awaited = match wait.and_then(|wait| wait.channel) {
            Some(WaitChannel::Io(id)) => Some(id),
            _ => None,
        };
        let until = wait.and_then(|wait| wait.until).unwrap_or(0);
        let now = self.cx.now();
        self.others(now, awaited);
        if let Some(id) = awaited {
            self.mm.complete(id, now);
        }
        self.cpu += self.cx.spent;
        (self.cx.start, self.cx.spent) = (until.max(now + 1000), 0);
    }

    /// Runs kswapd and the flusher if they have work, and completes what is on its way to a device.
    fn others(&mut self, now: u64, awaited: Option<u64>) {
        loop {
            let woken: Vec<WaitChannel> = self.mm.take_events().collect();
            for channel in &woken {
                match channel {
                    WaitChannel::Kswapd(_) => {
                        for _ in 0..20 {
                            let mut cx = Cx::new(self.kswapd.0, 0, usize::MAX, now);
                            cx.slice = LONG;
                            if self.kswapd.1.poll(&mut self.mm, &mut cx).why == WaitReason::Idle {
                                break;
                            }
                            self.complete(now, awaited);
                        }
                    }
                    WaitChannel::Flusher => {
                        self.mm.flusher(&mut Cx::new(self.flusher, 0, usize::MAX, now));
                    }
                    WaitChannel::Zswap => {
                        let mut cx = Cx::new(self.zswap.0, 0, usize::MAX, now);
                        cx.slice = LONG;
                        self.zswap.1.poll(&mut self.mm, &mut cx);
                    }
                    _ => {}
                }
            }
            if !self.complete(now, awaited) && woken.is_empty() {
                return;
            }
        }
    }

    /// Completes all requests but the one that the program waits for; `false` if there were none.
    fn complete(&mut self, now: u64, awaited: Option<u64>) -> bool {
        let ids: Vec<u64> = self.mm.take_io().map(|io| io.id).filter(|&id| Some(id) != awaited).collect();
        ids.iter().for_each(|&id| self.mm.complete(id, now));
        !ids.is_empty()
    }

    fn file(&mut self, pages: u32, exists: bool) -> u32 {
        self.mm.declare_file(pages, exists)
    }

    fn heap(&mut self, pages: u32) {
        self.finish(|mm, cx| mm.map_anon(cx, HEAP, pages));
    }

    fn map(&mut self, file: u32, pages: u32, shared: bool) {
        self.finish(|mm, cx| mm.map_file(cx, MAPPED, file, pages, shared));
    }

    fn touch(&mut self, region: RegionId, pages: impl Iterator<Item = u32>, write: bool) {
        for page in pages {
            let mut fault = Fault::new(region, page, write);
            self.finish(|mm, cx| fault.poll(mm, cx));
        }
    }

    /// Reads or writes a file in calls of a length, at places that lie a step apart.
    fn each(&mut self, (pages, len, step): (u32, u32, u64), mut call: impl FnMut(&mut Self, u64, u32)) {
        let size = u64::from(pages) * PAGE;
        let mut at = 0;
        while at + u64::from(len) <= size {
            call(self, at, len);
            at += step;
        }
    }

    fn read(&mut self, file: u32, span: (u32, u32, u64), how: How) {
        let mut ra = RaState::default();
        self.each(span, |host, at, len| {
            let mut read = Read::new(at, len, how);
            host.finish(|mm, cx| read.poll(mm, cx, file, &mut ra));
        });
    }

    fn write(&mut self, file: u32, span: (u32, u32, u64), how: How) {
        self.each(span, |host, at, len| {
            let mut write = Write::new(at, len, how);
            host.finish(|mm, cx| write.poll(mm, cx, file));
        });
    }

    fn copy(&mut self, from: u32, to: u32, span: (u32, u32, u64)) {
        let mut ra = RaState::default();
        self.each(span, |host, at, len| {
            let mut copy = CopyRange::new(at, len);
            host.finish(|mm, cx| copy.poll(mm, cx, from, to, &mut ra));
        });
    }

    fn advise(&mut self, file: u32, offset: u64, advice: Advice) {
        let (mut ra, mut call) = (RaState::default(), Fadvise::new(offset, 0, advice));
        self.finish(|mm, cx| call.poll(mm, cx, file, &mut ra));
    }

    fn madvise(&mut self, advice: Advice) {
        let mut call = Madvise::new(HEAP, advice);
        self.finish(|mm, cx| call.poll(mm, cx));
    }

    fn outcome(mut self) -> (Outcome, u64) {
        self.sleep(None);
        self.mm.check().expect("the state holds together");
        let Host { mm, cx, cpu, polls, .. } = self;
        let counters = mm.vmstat().iter().map(|(counter, value)| (counter.name(), value)).collect();
        let Cx { reclaim, minor, major, pages, start: now, .. } = cx;
        (Outcome { counters, cpu, reclaim, faults: (minor, major), pages, now }, polls)
    }
}

const MIB: (u32, u64) = (1 << 20, 1 << 20);

/// A series of calls.
type Series = fn(&mut Host);

/// Calls that block, by name.
const CALLS: [(&str, Series); 13] = [
    ("faults on new memory", |host| {
        host.heap(20_000);
        host.touch(HEAP, 0..20_000, true);
    }),
    ("faults on swapped memory", |host| {
        host.heap(16_000);
        host.touch(HEAP, 0..16_000, true);
        host.touch(HEAP, (0..16_000).step_by(3), false);
        host.touch(HEAP, (0..16_000).step_by(5), true);
    }),
    ("reads", |host| {
        let file = host.file(20_000, true);
        host.heap(6000);
        host.touch(HEAP, 0..6000, true);
        host.read(file, (20_000, MIB.0, MIB.1), How::Buffered);
        host.read(file, (20_000, 5000, 77_777), How::Buffered);
    }),
    ("advice", |host| {
        let file = host.file(9000, true);
        host.heap(14_000);
        host.touch(HEAP, 0..14_000, true);
        host.advise(file, 0, Advice::WillNeed);
        host.madvise(Advice::WillNeed);
        host.touch(HEAP, 0..5000, false);
        host.read(file, (9000, 4096, 3 * PAGE), How::Buffered);
        host.madvise(Advice::DontNeed);
        host.advise(file, 0, Advice::DontNeed);
    }),
    ("faults on a file", |host| {
        let file = host.file(15_000, true);
        host.heap(6000);
        host.touch(HEAP, 0..6000, true);
        host.map(file, 15_000, true);
        host.touch(MAPPED, 0..15_000, false);
        host.touch(MAPPED, (0..15_000).step_by(7), false);
    }),
    ("writes through a mapping", |host| {
        let file = host.file(15_000, true);
        host.map(file, 15_000, true);
        host.touch(MAPPED, 0..15_000, true);
        host.touch(MAPPED, (0..15_000).step_by(3), true);
    }),
    ("copies of a private file", |host| {
        let file = host.file(9000, true);
        host.map(file, 9000, false);
        host.touch(MAPPED, (0..9000).step_by(2), false);
        host.touch(MAPPED, 0..9000, true);
        host.touch(MAPPED, (0..9000).step_by(3), true);
    }),
    ("writes", |host| {
        let file = host.file(20_000, false);
        host.write(file, (20_000, MIB.0, MIB.1), How::Buffered);
        host.write(file, (20_000, 9000, 50_000), How::Buffered);
    }),
    ("copies", |host| {
        let (from, to) = (host.file(20_000, true), host.file(20_000, false));
        host.copy(from, to, (20_000, MIB.0, MIB.1));
        host.copy(from, to, (20_000, 9000, 50_000));
    }),
    ("sync", |host| {
        let file = host.file(20_000, false);
        for _ in 0..3 {
            host.write(file, (2000, MIB.0, MIB.1), How::Buffered);
            host.finish(|mm, cx| mm.sync(cx, file));
        }
    }),
    ("writes of parts of pages", |host| {
        let file = host.file(20_000, true);
        host.heap(8000);
        host.touch(HEAP, 0..8000, true);
        host.write(file, (20_000, 100, 5 * PAGE + 50), How::Buffered);
    }),
    ("advice on dirty pages", |host| {
        let file = host.file(12_000, false);
        for _ in 0..3 {
            host.write(file, (1500, MIB.0, MIB.1), How::Buffered);
            host.advise(file, 0, Advice::DontNeed);
            host.advise(file, 3 * PAGE + 7, Advice::DontNeed);
        }
    }),
    ("direct I/O", |host| {
        let file = host.file(12_000, true);
        host.write(file, (3000, MIB.0, MIB.1), How::Buffered);
        host.read(file, (6000, MIB.0, MIB.1), How::Direct);
        host.write(file, (6000, MIB.0, MIB.1), How::Direct);
        host.read(file, (6000, 8192, MIB.1), How::Buffered);
    }),
];

/// Swap that is compressed in memory, to a seventh, so that it holds all that a test writes.
const ZRAM: ZramConfig = ZramConfig { object_bytes: 600, limit_pages: 0 };
/// zswap that takes pages that shrink to a half, until its pool has a tenth of memory.
const ZSWAP: ZswapConfig = ZswapConfig {
    object_bytes: 1900,
    zpool: Zpool::Zbud,
    max_pool_percent: 10,
    accept_threshold_percent: 90,
};

/// What a series of calls counts if it is interrupted after every step, where that is not what it counts at
/// once; and whether it was interrupted more often.
fn interrupted(calls: Series, generation: &str, swap: Compressed) -> (Option<String>, bool) {
    let run = |slice| {
        let mut host = Host::new(generation, slice, swap);
        calls(&mut host);
        host.outcome()
    };
    let ((at_once, polls), (interrupted, steps)) = (run(LONG), run(0));
    let differ: Vec<_> = (at_once.counters.iter().zip(&interrupted.counters))
        .filter(|(a, b)| a != b)
        .map(|(&(counter, a), &(_, b))| format!("{counter} {a} -> {b}"))
        .collect();
    let wrong = if !differ.is_empty() {
        Some(differ.join(", "))
    } else if at_once != interrupted {
        let without = |outcome| Outcome { counters: Vec::new(), ..outcome };
        let (at_once, interrupted) = (without(at_once), without(interrupted));
        Some(format!("{at_once:?} -> {interrupted:?}"))
    } else {
        None
    };
    (wrong, steps > polls)
}

#[test]
fn a_call_that_is_interrupted_after_every_step_counts_what_it_counts_at_once() {
    let (mut wrong, mut interrupted_more) = (Vec::new(), Vec::new());
    for (name, calls) in CALLS {
        let mut more = false;
        for generation in NAMES {
            let (differs, steps) = interrupted(calls, generation, Compressed::default());
            wrong.extend(differs.map(|differs| format!("{name}, {generation}: {differs}")));
            more |= steps;
        }
        if more {
            interrupted_more.push(name);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The others have nothing to do between two waits.
    assert!(interrupted_more.len() >= 10, "{interrupted_more:?}");
}

#[test]
fn a_call_with_compressed_swap_counts_the_same_too() {
    for (name, calls) in CALLS.into_iter().filter(|(name, _)| name.contains("memory") || *name == "advice") {
        let mut more = false;
        for generation in NAMES {
            let zram = Compressed { zram: Some(ZRAM), ..Compressed::default() };
            let zswap = Compressed { zswap: Some(ZSWAP), ..Compressed::default() };
            for swap in [zram, zswap] {
                let (differs, steps) = interrupted(calls, generation, swap);
                assert_eq!(differs, None, "{name}, {generation}, zswap: {}", swap.zswap.is_some());
                more |= steps;
            }
        }
        assert!(more, "{name}");
    }
}
