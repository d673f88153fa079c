//! Small machines with programs written by hand, and random ones.

mod locks;
mod programs;
mod random;

use std::ops::ControlFlow;

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_run::{Event, EventKind, Interval, Sample, Sink, Spent, Toll, WriteError};
use lotsfree_workload::{FileSpec, Op, Policy, Process, Program, Stream, Thread};

use super::measure::{add, total};
use super::{DeviceSpec, Machine, MachineConfig, SwapDevice};
use crate::mm::vmstat::PGALLOC;
use crate::{Generation, mm};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A sequence of operations that is repeated a number of times.
struct Script {
    ops: Vec<Op>,
    times: u32,
}

impl Stream for Script {
    fn fill(&mut self, out: &mut Vec<Op>) {
        if self.times > 0 {
            self.times -= 1;
            out.extend_from_slice(&self.ops);
        }
    }
}

fn thread(role: &'static str, ops: &[Op], times: u32) -> Thread {
    let marks = vec!["first".to_owned(), "second".to_owned()];
    Thread { role, marks, stream: Box::new(Script { ops: ops.to_vec(), times }) }
}

fn process(name: &str, threads: Vec<Thread>) -> Process {
    Process {
        name: name.to_owned(),
        instance: 0,
        policy: Policy::Local,
        memory: lotsfree_workload::Memory::default(),
        oom_score_adj: 0,
        node: None,
        start: 0,
        stop: None,
        threads,
    }
}

fn program(files: &[(u32, bool)], processes: Vec<Process>) -> Program {
    let spec = |(index, &(pages, exists)): (usize, &(u32, bool))| FileSpec {
        name: format!("f{index}"),
        pages,
        exists,
    };
    Program {
        files: files.iter().enumerate().map(spec).collect(),
        segments: Vec::new(),
        commands: Vec::new(),
        processes,
    }
}

/// 64 MiB, two CPUs, a disk of 100 MiB/s, 1,000 requests per second, 100 µs.
fn config() -> MachineConfig {
    let disk = DeviceSpec { latency: 100_000, bandwidth: 100 << 20, iops: 1000, seek: None, burst: 0 };
    MachineConfig {
        mm: mm::Config { cpus: 2, ..mm::Config::new(Generation::named("linux-6.1").unwrap(), vec![16384]) },
        disk,
        disk_pages: 1 << 20,
        swap: SwapDevice::Disk,
        interval: 100 * MS,
    }
}

/// Everything that a run gave its sink, in order.
#[derive(Debug, Default)]
struct Told {
    samples: Vec<Sample>,
    rows: Vec<Interval>,
    events: Vec<Event>,
}

impl Sink for Told {
    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        self.samples.push(sample.clone());
        Ok(())
    }
    fn intervals(&mut self, intervals: &[Interval]) -> Result<(), WriteError> {
        self.rows.extend_from_slice(intervals);
        Ok(())
    }
    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        self.events.push(event.clone());
        Ok(())
    }
}

impl Told {
    fn of(&self, role: &str) -> impl Iterator<Item = &Interval> {
        self.rows.iter().filter(move |row| *row.role == *role)
    }
    fn operations(&self, role: &str) -> u64 {
        self.of(role).map(|row| row.operations).sum()
    }
    fn errors(&self, role: &str) -> u64 {
        self.of(role).map(|row| row.errors).sum()
    }
    fn spent(&self, role: &str) -> Spent {
        let mut spent = Spent::default();
        self.of(role).for_each(|row| add(&mut spent, &row.spent));
        spent
    }
    fn toll(&self, role: &str) -> Toll {
        let mut toll = Toll::default();
        self.of(role).for_each(|row| toll.add(&Toll { held: 0, ..row.toll }));
        toll
    }
    fn when(&self, kind: EventKind) -> Vec<u64> {
        self.events.iter().filter(|event| event.kind == kind).map(|event| event.at).collect()
    }
}

/// Runs a program to a time, and checks what must hold for every run.
fn run(config: MachineConfig, program: Program, until: u64) -> Told {
    let mut machine = Machine::new(config, program);
    let mut told = Told::default();
    machine.run(until, &mut told, &mut |_| ControlFlow::Continue(())).unwrap();
    check(&machine, &told);
    told
}

/// Time goes forwards, and all of every thread's time is accounted for, once.
fn check(machine: &Machine, told: &Told) {
    assert!(told.samples.is_sorted_by(|a, b| a.at < b.at));
    assert!(told.events.is_sorted_by_key(|event| event.at));
    assert!(told.rows.is_sorted_by_key(|row| row.at));
    assert!(told.rows.iter().all(|row| row.latency.count() == row.operations));
    assert_eq!(machine.check(), Ok(()));
    let all: u64 = machine.threads.iter().map(|thread| total(&thread.spent)).sum();
    assert_eq!(told.rows.iter().map(|row| total(&row.spent)).sum::<u64>(), all);
    let allocated: u64 = told.rows.iter().map(|row| row.toll.allocated).sum();
    let counted: u64 = PGALLOC.iter().map(|&zone| machine.mm.events[zone]).sum();
    let metadata = machine.mm.ext4.as_ref().map_or(0, |ext4| ext4.taken);
    let kernel = machine.mm.slab.taken + machine.mm.tables_taken;
    assert_eq!(allocated + kernel + metadata, counted);
    let returned: u64 = told.rows.iter().map(|row| row.toll.returned).sum();
    // What a device still holds of a deleted file is given back already, and free only when it arrives.
    let arriving: u32 = machine.mm.objects.iter().map(|(_, object)| object.busy).sum();
    assert!(returned <= machine.mm.events[vmstat::pgfree] + u64::from(arriving));
    for row in &told.rows {
        let Toll { thrashing, swap_in, compaction, refaults, allocated, .. } = row.toll;
        assert!(thrashing + swap_in <= row.spent.io && refaults <= allocated && compaction == 0, "{row:?}");
    }
}
