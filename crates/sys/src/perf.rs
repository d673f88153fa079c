//! Tracepoints of the running kernel as samples (`perf_event_open`).
//!
//! Nothing of them outlives the process: the kernel ends every event when its descriptor closes.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd as _;

use perf_event::data::Record;
use perf_event::events::{Software, Tracepoint};
use perf_event::{Builder, Counter, SampleFlag, Sampler};
use perf_event_open_sys::ioctls;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A tracepoint to watch on every CPU, in all tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracepointEvent {
    /// Number of the tracepoint: the file `id` in its directory of tracefs.
    pub id: u64,
    /// A filter in the kernel's language (`Documentation/trace/events.rst`), empty for none: hits that do not
    /// pass it make no sample.
    pub filter: String,
    /// Whether samples have the kernel's call chain.
    pub chain: bool,
    /// The set that it is switched with, numbered from 0.
    pub set: usize,
}

/// What a CPU's buffer held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A tracepoint was hit.
    Hit(Hit),
    /// A task got another name (`exec`, `prctl`).
    Named {
        /// Process id (thread group).
        process: u32,
        /// Task id.
        task: u32,
        /// The new name.
        name: String,
    },
    /// A task began.
    Forked {
        /// Process id of the new task.
        process: u32,
        /// Process id of the task that made it.
        parent: u32,
        /// Nanoseconds of `CLOCK_MONOTONIC`.
        time: u64,
    },
    /// The buffer was full.
    Lost(u64),
}

/// A sample of a tracepoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// Index of the tracepoint in the list that [`Tracing::open`] took.
    pub event: usize,
    /// Process id (thread group) of the task that hit it.
    pub process: u32,
    /// Its task id.
    pub task: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Return addresses in the kernel, innermost first; empty if they were not asked for.
    pub chain: Vec<u64>,
    /// The tracepoint's record; the file `format` in its directory says where its fields are.
    pub record: Vec<u8>,
}

/// Tracepoints that are watched on every CPU.
pub struct Tracing {
    cpus: Vec<Cpu>,
    /// Whether each set is on.
    on: Vec<bool>,
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing").field("cpus", &self.cpus.len()).field("on", &self.on).finish()
    }
}

/// The events of one CPU, which share a buffer.
struct Cpu {
    /// An event that never happens, which has the buffer.
    buffer: Sampler,
    /// Such events, too, which lead the sets, so that one call switches all of a set.
    leaders: Vec<Counter>,
    /// Names and beginnings of tasks, which are told at all times.
    _names: Counter,
    _events: Vec<Counter>,
    ids: Vec<u64>,
}

impl Tracing {
    /// Opens the tracepoints on these CPUs, switched off. Each CPU gets a buffer of `buffer` bytes, a power
    /// of two and at least a page.
    ///
    /// # Errors
    /// The kernel's: `EACCES` or `EPERM` without `CAP_PERFMON` (`CAP_SYS_ADMIN` before 5.8) where
    /// `kernel.perf_event_paranoid` is not -1, `EINVAL` for a filter that it does not understand, `EMFILE`.
    pub fn open(cpus: &[u32], events: &[TracepointEvent], buffer: usize) -> io::Result<Self> {
        let cpus = || cpus.iter().map(|cpu| Cpu::open(*cpu as usize, events, buffer)).collect();
        let cpus: io::Result<_> = with_all_descriptors(cpus)?;
        Ok(Tracing { cpus: cpus?, on: vec![false; sets(events)] })
    }

    /// Switches the tracepoints of a set on or off.
    ///
    /// # Errors
    /// The kernel's.
    pub fn switch(&mut self, set: usize, on: bool) -> io::Result<()> {
        let Some(is_on) = self.on.get_mut(set).filter(|is_on| **is_on != on) else { return Ok(()) };
        for leader in self.cpus.iter_mut().filter_map(|cpu| cpu.leaders.get_mut(set)) {
            if on { leader.enable()? } else { leader.disable()? }
        }
        *is_on = on;
        Ok(())
    }

    /// Takes what the buffers hold, CPU after CPU.
    pub fn drain(&mut self, mut take: impl FnMut(Observed)) {
        for cpu in &mut self.cpus {
            cpu.drain(&mut take);
        }
    }
}

/// Opens what is many descriptors on a host with many CPUs. The limit is that of a user afterwards, so that
/// no program that is started inherits another.
fn with_all_descriptors<T>(open: impl FnOnce() -> T) -> io::Result<T> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let opened = open();
    setrlimit(Resource::Nofile, limit)?;
    Ok(opened)
}

fn sets(events: &[TracepointEvent]) -> usize {
    events.iter().map(|event| event.set + 1).max().unwrap_or(0)
}

/// What all events of a CPU have in common: records in one buffer must have one layout.
fn common(builder: &mut Builder<'_>, cpu: usize) {
    builder.any_pid().one_cpu(cpu).include_kernel().exclude_callchain_user(true).sample_id_all(true);
    builder.clockid(perf_event::Clock::MONOTONIC);
    builder.sample(
        SampleFlag::IDENTIFIER | SampleFlag::TID | SampleFlag::TIME | SampleFlag::RAW | SampleFlag::CALLCHAIN,
    );
}

impl Cpu {
    fn open(cpu: usize, events: &[TracepointEvent], buffer: usize) -> io::Result<Self> {
        let dummy = || {
            let mut builder = Builder::new(Software::DUMMY);
            common(&mut builder, cpu);
            builder
        };
        let buffer = dummy().build()?.sampled(buffer)?;
        let names = dummy().comm(true).task(true).enabled(true).build()?;
        share(&buffer, &names)?;
        let leaders = (0..sets(events)).map(|_| dummy().build());
        let mut leaders = leaders.collect::<io::Result<Vec<_>>>()?;
        let (mut counters, mut ids) = (Vec::new(), Vec::new());
        for event in events {
            let mut builder = Builder::new(Tracepoint::with_id(event.id));
            common(&mut builder, cpu);
            builder.sample_period(1).exclude_callchain_kernel(!event.chain).enabled(true);
            let Some(leader) = leaders.get_mut(event.set) else { continue };
            let counter = builder.build_with_group(leader)?;
            if !event.filter.is_empty() {
                filter(&counter, &event.filter)?;
            }
            share(&buffer, &counter)?;
            ids.push(counter.id());
            counters.push(counter);
        }
        Ok(Cpu { buffer, leaders, _names: names, _events: counters, ids })
    }

    fn drain(&mut self, take: &mut impl FnMut(Observed)) {
        while let Some(record) = self.buffer.next_record() {
            // A record that the library does not understand is as good as lost.
            let Ok(parsed) = record.parse_record() else {
                take(Observed::Lost(1));
                continue;
            };
            match parsed {
                Record::Sample(sample) => {
                    let event = sample.id().and_then(|id| self.ids.iter().position(|known| *known == id));
                    let (Some(event), Some(raw)) = (event, sample.raw()) else { continue };
                    take(Observed::Hit(Hit {
                        event,
                        process: sample.pid().unwrap_or_default(),
                        task: sample.tid().unwrap_or_default(),
                        time: sample.time().unwrap_or_default(),
                        chain: sample.callchain().unwrap_or_default().to_vec(),
                        record: raw.to_vec(),
                    }));
                }
                Record::Comm(comm) => take(Observed::Named {
                    process: comm.pid,
                    task: comm.tid,
                    name: String::from_utf8_lossy(&comm.comm).trim_end_matches('\0').to_owned(),
                }),
                Record::Fork(fork) => {
                    take(Observed::Forked { process: fork.pid, parent: fork.ppid, time: fork.time })
                }
                Record::Lost(lost) => take(Observed::Lost(lost.lost)),
                _ => {}
            }
        }
    }
}

/// Sends the records of an event into a buffer.
fn share(buffer: &Sampler, event: &Counter) -> io::Result<()> {
    // SAFETY: both descriptors are open; the kernel checks that the events fit together.
    check(unsafe { ioctls::SET_OUTPUT(event.as_raw_fd(), buffer.as_counter().as_raw_fd()) })
}

fn filter(event: &Counter, text: &str) -> io::Result<()> {
    let text = CString::new(text)?;
    // SAFETY: a string that ends with NUL, which the kernel copies before the call returns.
    check(unsafe { ioctls::SET_FILTER(event.as_raw_fd(), text.as_ptr().cast_mut()) })
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
