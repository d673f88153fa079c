//! Speed of the memory model, as ratios within one run: touches of resident pages against a bare loop,
//! reclaim against random accesses to memory, cases side by side against one alone, and a host of 1 TiB.
//!
//! `cargo bench -p lotsfree-engine --bench reclaim [-- PART… [GENERATION]]`, where PART is one of `1m`,
//! `10m`, `parallel`, `terabyte`; all of them if none is given. Rates are millions per second of CPU time, so
//! that other load on the host matters less; every figure is the median of the repetitions.
//!
//! With `once` as PART the program counts for itself what `valgrind --tool=callgrind
//! --toggle-collect='*Host*run*'` counts in instructions: accesses and misses of one run at 1 M pages and
//! 10 %.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use lotsfree_engine::Generation;
use lotsfree_engine::mm::{Config, Cx, Fault, Kswapd, Madvise, Mm, Stop, WaitChannel, WaitReason};
use lotsfree_sys::thread_cpu_time;
use lotsfree_workload::{Advice, Policy, RegionId};

const ACCESSES: usize = 20_000_000;
const REPETITIONS: usize = 5;
const REGION: RegionId = RegionId(0);
/// Rate of the loop over 160 MB on the machine that the targets are stated for, in M/s.
const WALL: f64 = 63.0;
const SEED: u64 = 88_172_645_463_325_252;

/// xorshift64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Accesses to `pages` pages by Zipf's law with exponent 1, drawn from its exact distribution. The rank of
/// each page in popularity is random.
fn zipf(pages: usize, accesses: usize) -> Vec<u32> {
    let mut random = Random(SEED);
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=pages)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    // Indexes at which the search for a share of the sum begins.
    let mut at = 0;
    let guide: Vec<usize> = (0..=pages)
        .map(|step| {
            while at < pages - 1 && sums[at] < sum * step as f64 / pages as f64 {
                at += 1;
            }
            at
        })
        .collect();
    let mut order: Vec<u32> = (0..pages as u32).collect();
    for last in (1..pages).rev() {
        order.swap(last, (random.next() % (last as u64 + 1)) as usize);
    }
    (0..accesses)
        .map(|_| {
            let share = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
            let mut rank = guide[(share * pages as f64) as usize].saturating_sub(1);
            while rank < pages - 1 && sums[rank] < share * sum {
                rank += 1;
            }
            order[rank]
        })
        .collect()
}

/// Runs `work` and returns its rate, in millions of `count` things per second of this thread's CPU time.
fn rate_of(count: usize, work: impl FnOnce()) -> f64 {
    let begin = thread_cpu_time();
    work();
    count as f64 / (thread_cpu_time() - begin).as_secs_f64() / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Random reads, modifications and writes, independent of each other, of records of 16 bytes in an array of
/// 160 MB.
fn wall(records: &mut [[u64; 2]]) -> f64 {
    let mut random = Random(SEED);
    let count = records.len() as u64;
    rate_of(ACCESSES, || {
        for _ in 0..ACCESSES {
            let record = &mut records[((u128::from(random.next()) * u128::from(count)) >> 64) as usize];
            record[0] = record[0].wrapping_add(1);
            record[1] ^= record[0];
        }
        black_box(&records);
    })
}

/// One load and one store per access.
fn bare(array: &mut [u32], trace: &[u32]) -> f64 {
    rate_of(trace.len(), || {
        for &page in trace {
            array[page as usize] |= 1 << 30;
        }
        black_box(&array);
    })
}

/// A machine with one CPU and one file that is mapped with `MADV_RANDOM`. Reads take no time.
struct Host {
    mm: Mm,
    cx: Cx,
    kswapd: (usize, Kswapd),
    news: Vec<WaitChannel>,
}

impl Host {
    /// `room` is about the number of the file's pages that fit into memory.
    fn new(generation: Generation, pages: u32, room: u64) -> Self {
        let min = ((room * 64) as f64).sqrt() as u64 / 4;
        let config = Config {
            kernel_pages: Some(vec![0]),
            reserved_pages: None,
            pagesets: Vec::new(),
            instant_reads: true,
            ..Config::new(generation, vec![room * 64 / 63 + 2 * min])
        };
        let mut mm = Mm::new(&config);
        let process = mm.create_process(Policy::Local);
        let (task, kswapd) = (mm.create_task(), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 0);
        let file = mm.declare_file(pages, true);
        mm.map_file(&mut cx, REGION, file, pages, true).expect("a mapping");
        Madvise::new(REGION, Advice::Random).poll(&mut mm, &mut cx).expect("advice");
        Host { mm, cx, kswapd: (kswapd, Kswapd::new(0)), news: Vec::new() }
    }

    fn run(&mut self, trace: &[u32]) {
        let mut rest = trace;
        loop {
            let pages = rest.iter().map(|&page| (page, false));
            rest = &rest[self.mm.touch_mapped(self.cx.process, REGION, pages)..];
            let Some((&page, after)) = rest.split_first() else { break };
            let mut fault = Fault::new(REGION, page, false);
            while !self.poll(&mut fault) {}
            rest = after;
        }
    }

    /// Polls a fault and lets kswapd run; returns whether the fault is over.
    fn poll(&mut self, fault: &mut Fault) -> bool {
        let done = fault.poll(&mut self.mm, &mut self.cx);
        self.cx.start += std::mem::take(&mut self.cx.spent);
        match done {
            Ok(()) => {}
            Err(Stop::Wait(wait)) => self.cx.start = self.cx.start.max(wait.until.unwrap_or(0)),
            Err(stop) => panic!("{stop:?}"),
        }
        if self.mm.has_news() {
            self.serve();
        }
        done.is_ok()
    }

    /// Gives kswapd the CPU for as long as it wants it.
    fn serve(&mut self) {
        self.news.extend(self.mm.take_events());
        for event in self.news.drain(..) {
            if let WaitChannel::Kswapd(_) = event {
                loop {
                    let mut cx = Cx::new(self.kswapd.0, 0, usize::MAX, self.cx.start);
                    let wait = self.kswapd.1.poll(&mut self.mm, &mut cx);
                    self.cx.start += cx.spent;
                    if wait.why != WaitReason::Yield {
                        break;
                    }
                }
            }
        }
    }
}

/// Measures touches, and reclaim by the kernel's policy and the textbook's, with one size of file.
fn sizes(generation: Generation, pages: u32) {
    let trace = zipf(pages as usize, ACCESSES);
    let mut records = vec![[1, 2]; 10_000_000];
    let mut array = vec![0; pages as usize];
    let mut resident = Host::new(generation, pages, u64::from(pages) * 11 / 10);
    resident.run(&(0..pages).collect::<Vec<_>>());
    // A pass over everything comes before the measurement.
    let (_, _) = (wall(&mut records), bare(&mut array, &trace));
    let (mut walls, mut loops, mut touches, mut ratios) = (vec![], vec![], vec![], vec![]);
    for _ in 0..REPETITIONS {
        walls.push(wall(&mut records));
        let bare = bare(&mut array, &trace);
        let touch = rate_of(trace.len(), || resident.run(&trace));
        loops.push(bare);
        touches.push(touch);
        ratios.push(touch / bare);
    }
    let wall = median(walls);
    println!("{pages} pages: 160 MB loop {wall:.1} M/s, bare loop {:.1} M/s", median(loops));
    println!("  resident: {:.1} M/s, {:.2} of the bare loop (target 0.50)", median(touches), median(ratios));
    drop((resident, array));
    let target = if pages > 1_000_000 { 12.0 } else { 30.0 };
    for percent in [10, 50] {
        let room = u64::from(pages) * percent / 100;
        let (mut rates, mut scaled) = (vec![], vec![]);
        let (mut misses, mut resident) = (0, 0);
        for _ in 0..REPETITIONS {
            let own = self::wall(&mut records);
            let mut host = Host::new(generation, pages, room);
            let rate = rate_of(trace.len(), || host.run(&trace));
            (misses, resident) = (host.cx.major, host.mm.rss(host.cx.process).total());
            rates.push(rate);
            scaled.push(rate * WALL / own);
        }
        let (rate, scaled) = (median(rates), median(scaled));
        println!(
            "  {percent} %: {rate:.1} M/s, scaled {scaled:.1} (target {target}); miss ratio {:.4}, {resident} \
             pages resident",
            f64::from(misses) / trace.len() as f64
        );
        for policy in ["lru", "clock"] {
            let reference = generation.with_reference(policy).expect("a policy");
            let (mut rates, mut misses) = (vec![], 0);
            for _ in 0..REPETITIONS {
                let mut host = Host::new(reference, pages, room);
                rates.push(rate_of(trace.len(), || host.run(&trace)));
                misses = host.cx.major;
            }
            let ratio = f64::from(misses) / trace.len() as f64;
            println!("    {policy}: {:.1} M/s, miss ratio {ratio:.4}", median(rates));
        }
    }
}

/// Runs a part of the trace once and prints what a count of instructions is divided by.
fn once(generation: Generation) {
    let pages = 1_000_000;
    let trace = zipf(pages as usize, ACCESSES / 5);
    let mut host = Host::new(generation, pages, u64::from(pages) / 10);
    host.run(&trace);
    println!("{} accesses, {} misses", trace.len(), host.cx.major);
}

/// Runs one case alone, then two at the same time, each on a thread of its own. Elapsed time counts here.
fn parallel(generation: Generation) {
    let pages = 1_000_000;
    let trace = zipf(pages as usize, ACCESSES);
    let case = || {
        let begin = Instant::now();
        let mut host = Host::new(generation, pages, u64::from(pages) / 10);
        let cpu = rate_of(trace.len(), || host.run(&trace));
        (cpu, trace.len() as f64 / begin.elapsed().as_secs_f64() / 1e6)
    };
    let (mut alone, mut both) = (vec![], vec![]);
    for _ in 0..REPETITIONS {
        alone.push(case());
        std::thread::scope(|scope| {
            let threads = [scope.spawn(case), scope.spawn(case)];
            both.extend(threads.map(|thread| thread.join().expect("a case")));
        });
    }
    for (what, which) in [("CPU time", 0), ("elapsed time", 1)] {
        let rate = |cases: &[(f64, f64)]| {
            median(cases.iter().map(|case| if which == 0 { case.0 } else { case.1 }).collect())
        };
        let (one, each) = (rate(&alone), rate(&both));
        println!("parallel, {what}: one case {one:.1} M/s, each of two {each:.1} M/s, {:.2}", each / one);
    }
}

/// Measures a host of 1 TiB, with 90 % of it touched.
fn terabyte(generation: Generation) {
    let frames: u64 = 1 << 28;
    let pages = (frames * 9 / 10) as u32;
    let begin = Instant::now();
    let mut host = Host::new(generation, pages, frames * 62 / 64);
    let rate = rate_of(pages as usize, || {
        for first in (0..pages).step_by(1 << 16) {
            host.run(&(first..pages.min(first + (1 << 16))).collect::<Vec<_>>());
        }
    });
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).map_or("?", str::trim);
    println!(
        "1 TiB, {} pages resident: {:.2} bytes a frame, {:.2} GiB in all, peak RSS {peak} (target 8 GiB); {:.0} s, \
         {rate:.1} M pages/s",
        host.mm.rss(host.cx.process).total(),
        host.mm.bytes() as f64 / frames as f64,
        host.mm.bytes() as f64 / f64::from(1 << 30),
        begin.elapsed().as_secs_f64(),
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let name = args.iter().find(|arg| arg.starts_with("linux")).map_or("linux-6.1", String::as_str);
    let generation = Generation::named(name).expect("a generation");
    let parts: Vec<&str> = args.iter().map(String::as_str).filter(|arg| !arg.starts_with("linux")).collect();
    let wants = |part: &str| parts.is_empty() || parts.contains(&part);
    if wants("1m") {
        sizes(generation, 1_000_000);
    }
    if wants("10m") {
        sizes(generation, 10_000_000);
    }
    if parts.contains(&"once") {
        once(generation);
    }
    if wants("parallel") {
        parallel(generation);
    }
    if wants("terabyte") {
        terabyte(generation);
    }
}
