//! Time that the machine takes for a request, and time and memory that a sample takes. Readers work at a
//! fixed rate, and each request loads a few pages of a file that is mapped and resident; samples are those of
//! a machine with little to do. `cargo bench -p lotsfree-engine --bench machine`

#![allow(clippy::print_stdout)]

use std::ops::ControlFlow;
use std::time::Duration;

use lotsfree_engine::machine::{DeviceSpec, Machine, MachineConfig, SwapDevice};
use lotsfree_engine::{Generation, mm};
use lotsfree_run::{Event, Interval, Memory, Sample, Sink, WriteError};
use lotsfree_sys::thread_cpu_time;
use lotsfree_workload::{Op, Policy, Process, Program, RegionId, Stream, Thread};

const S: u64 = 1_000_000_000;
const SECONDS: u64 = 60;
const THREADS: u64 = 4;
const RATE: u64 = 100_000;
/// Requests a second where samples are what is measured.
const SLOW_RATE: u64 = 100;
const HOUR: u64 = 3600;
const PAGES: u32 = 1 << 20;
const REGION: RegionId = RegionId(0);

/// Loads every page once, then requests at random.
struct Reader {
    next: u32,
    touches: u32,
    /// Nanoseconds between requests.
    pace: u64,
    random: u64,
}

impl Stream for Reader {
    fn fill(&mut self, out: &mut Vec<Op>) {
        if self.next == 0 {
            out.push(Op::MapAnon { region: REGION, pages: PAGES / THREADS as u32 });
        }
        if self.next < PAGES / THREADS as u32 {
            let last = self.next + 256;
            out.extend((self.next..last).map(|page| Op::Touch { region: REGION, page, write: true }));
            self.next = last;
            return;
        }
        for _ in 0..32 {
            out.extend([Op::Pace { ns: self.pace }, Op::Arrive]);
            for _ in 0..self.touches {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                let page = (((self.random >> 32) * u64::from(PAGES / THREADS as u32)) >> 32) as u32;
                out.push(Op::Touch { region: REGION, page, write: false });
            }
            out.push(Op::Done);
        }
    }
}

#[derive(Default)]
struct Count(u64);

impl Sink for Count {
    fn sample(&mut self, _: &Sample) -> Result<(), WriteError> {
        Ok(())
    }
    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError> {
        self.0 += intervals.iter().map(|row| row.operations).sum::<u64>();
        Ok(())
    }
    fn event(&mut self, _: &Event) -> Result<(), WriteError> {
        Ok(())
    }
}

/// Keeps samples, and notes how much memory the process has at each full hour.
#[derive(Default)]
struct Kept {
    run: Memory,
    resident: Vec<u64>,
}

impl Sink for Kept {
    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        if sample.at.is_multiple_of(HOUR * S) {
            self.resident.push(resident());
        }
        self.run.sample(sample)
    }
    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError> {
        self.run.intervals(intervals)
    }
    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        self.run.event(event)
    }
}

fn machine(generation: Generation, interval: u64, processes: Vec<Process>) -> Machine {
    let disk = DeviceSpec { latency: 100_000, bandwidth: 200 << 20, iops: 2000, seek: None, burst: 0 };
    let config = MachineConfig {
        mm: mm::Config { cpus: 8, ..mm::Config::new(generation, vec![u64::from(PAGES) * 5 / 4]) },
        disk,
        disk_pages: 1 << 20,
        swap: SwapDevice::Disk,
        interval,
    };
    let program = Program { files: Vec::new(), segments: Vec::new(), commands: Vec::new(), processes };
    Machine::new(config, program)
}

/// Threads that read, each in a process of its own, `rate` requests a second in all.
fn readers(touches: u32, rate: u64) -> Vec<Process> {
    let process = |random: u64| Process {
        name: "reader".to_owned(),
        instance: 0,
        policy: Policy::Local,
        memory: lotsfree_workload::Memory::default(),
        oom_score_adj: 0,
        node: None,
        start: 0,
        stop: None,
        threads: vec![Thread {
            role: "reader",
            marks: Vec::new(),
            stream: Box::new(Reader { next: 0, touches, pace: S * THREADS / rate, random }),
        }],
    };
    (1..=THREADS).map(process).collect()
}

/// Runs a machine, and returns the CPU time that it takes.
fn run(mut machine: Machine, seconds: u64, sink: &mut dyn Sink) -> Result<Duration, WriteError> {
    let begin = thread_cpu_time();
    machine.run(seconds * S, sink, &mut |_| ControlFlow::Continue(()))?;
    Ok(thread_cpu_time() - begin)
}

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * lotsfree_sys::page_size() as u64
}

fn main() -> Result<(), WriteError> {
    let Some(generation) = Generation::named("linux-6.1") else { return Ok(()) };
    for touches in [1, 4] {
        let mut count = Count::default();
        let spent = run(machine(generation, S, readers(touches, RATE)), SECONDS, &mut count)?;
        println!(
            "{touches} touches a request: {} requests in {SECONDS} simulated seconds, {:.2} s, {:.0} ns a request",
            count.0,
            spent.as_secs_f64(),
            spent.as_nanos() as f64 / count.0 as f64
        );
    }
    // The same work, sampled each second and each hour.
    let mut seldom = Memory::default();
    let without = run(machine(generation, HOUR * S, readers(1, SLOW_RATE)), 4 * HOUR, &mut seldom)?;
    let mut often = Kept::default();
    let with = run(machine(generation, S, readers(1, SLOW_RATE)), 4 * HOUR, &mut often)?;
    // The machine itself has touched all that it will touch within the first hour.
    let bytes = match often.resident[..] {
        [_, first, .., last] => last.saturating_sub(first),
        _ => 0,
    };
    println!(
        "a sample: {:.1} us, {} bytes ({} samples, {} columns)",
        with.saturating_sub(without).as_secs_f64() * 1e6 / (4 * HOUR) as f64,
        bytes / (3 * HOUR),
        4 * HOUR,
        often.run.samples().columns().len()
    );
    Ok(())
}
