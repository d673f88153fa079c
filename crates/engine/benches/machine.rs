//! Real time that the machine takes for a request. Readers work at a fixed rate, and each request loads a few
//! pages of a file that is mapped and resident. `cargo bench -p lotsfree-engine --bench machine`

#![allow(clippy::print_stdout)]

use std::ops::ControlFlow;
use std::time::Instant;

use lotsfree_engine::machine::{DeviceSpec, Machine, MachineConfig, SwapDevice};
use lotsfree_engine::{Generation, mm};
use lotsfree_run::{Event, Interval, Sample, Sink, WriteError};
use lotsfree_workload::{Op, Policy, Process, Program, RegionId, Stream, Thread};

const S: u64 = 1_000_000_000;
const SECONDS: u64 = 60;
const THREADS: u64 = 4;
const RATE: u64 = 100_000;
const PAGES: u32 = 1 << 20;
const REGION: RegionId = RegionId(0);

/// Loads every page once, then requests at random.
struct Reader {
    next: u32,
    touches: u32,
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
            out.extend([Op::Pace { ns: S * THREADS / RATE }, Op::Arrive]);
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

fn main() {
    for touches in [1, 4] {
        let disk = DeviceSpec { latency: 100_000, bandwidth: 200 << 20, iops: 2000, seek: None };
        let Some(generation) = Generation::named("linux-6.1") else { return };
        let config = MachineConfig {
            mm: mm::Config { cpus: 8, ..mm::Config::new(generation, vec![u64::from(PAGES) * 5 / 4]) },
            disk,
            disk_pages: 1 << 20,
            swap: SwapDevice::Disk,
            interval: S,
        };
        let process = |random: u64| Process {
            name: "reader".to_owned(),
            instance: 0,
            policy: Policy::Local,
            node: None,
            start: 0,
            stop: None,
            threads: vec![Thread {
                role: "reader",
                marks: Vec::new(),
                stream: Box::new(Reader { next: 0, touches, random }),
            }],
        };
        let program = Program {
            files: Vec::new(),
            segments: Vec::new(),
            commands: Vec::new(),
            processes: (1..=THREADS).map(process).collect(),
        };
        let mut machine = Machine::new(config, program);
        let mut count = Count::default();
        let begin = Instant::now();
        if machine.run(SECONDS * S, &mut count, &mut |_| ControlFlow::Continue(())).is_err() {
            return;
        }
        let real = begin.elapsed();
        println!(
            "{touches} touches a request: {} requests in {SECONDS} simulated seconds, {:.2} s, {:.0} ns a request",
            count.0,
            real.as_secs_f64(),
            real.as_nanos() as f64 / count.0 as f64
        );
    }
}
