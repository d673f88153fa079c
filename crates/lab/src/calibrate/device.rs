//! The disk and the swap area.
//!
//! All reads go past the page cache (`O_DIRECT`). Latency: one random read of 4 KiB at a time, in real time.
//! Bandwidth: sequential reads of 1 MiB, one at a time. IOPS: random reads of 4 KiB by many threads at once.
//! `submit`: CPU time of the thread per random read of 4 KiB, less `syscall`; it includes the part of the
//! completion that the thread itself does, and the path through the file system. The host may serve a virtual
//! disk from memory; the figures are then those of memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lotsfree_kernel_files::file::swaps::SwapArea;
use lotsfree_kernel_files::{File as _, Log};
use lotsfree_scenario::{Device, Measured, Record};
use lotsfree_sys::Buffer;
use lotsfree_units::Bytes;
use rustix::fs::OFlags;

use super::{Effort, PAGE, Random, cpu_of, keep, less, of};

/// Bytes of a sequential read.
const PIECE: usize = 1 << 20;
/// Threads that read at random at once: the queue depth of a virtual or SATA disk.
const THREADS: u64 = 32;
/// Reads per measurement of CPU time.
const BATCH: usize = 16;

pub(super) fn disk(path: &Path, bytes: Bytes, effort: &Effort, record: &mut Record) {
    match open(path).and_then(|file| Figures::of(&file, bytes, effort)) {
        Ok(figures) => {
            let submit = match record.costs.syscall {
                Some(syscall) => of(&figures.cpu).and_then(|cpu| less(cpu, syscall.median)),
                None => of(&figures.cpu),
            };
            keep(record, "costs.submit", submit, |record| &mut record.costs.submit);
            record.disk = figures.device();
        }
        Err(error) => {
            let why = format!("{}: {error}", path.display());
            record.absent.insert("costs.submit".to_owned(), why.clone());
            record.absent.insert("disk".to_owned(), why);
        }
    }
}

/// Measures the first swap area, a file or a device.
pub(super) fn swap(effort: &Effort, record: &mut Record) {
    let text = std::fs::read("/proc/swaps").unwrap_or_default();
    let areas = Vec::<SwapArea>::parse(&text, &mut Log::default());
    let Some(area) = areas.first() else {
        record.absent.insert("swap".to_owned(), "this machine does not swap".to_owned());
        return;
    };
    let path = Path::new(&area.path);
    match open(path).and_then(|file| Figures::of(&file, area.size, effort)) {
        Ok(figures) => record.swap = figures.device(),
        Err(error) => drop(record.absent.insert("swap".to_owned(), format!("{}: {error}", path.display()))),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

/// Measurements of a device.
#[derive(Debug, Default)]
struct Figures {
    /// Nanoseconds of each read.
    latency: Vec<f64>,
    /// Nanoseconds of CPU time per read, an average for each [`BATCH`].
    cpu: Vec<f64>,
    /// MiB per second.
    bandwidth: Vec<f64>,
    /// Reads per second.
    iops: Vec<f64>,
}

impl Figures {
    fn of(file: &File, bytes: Bytes, effort: &Effort) -> io::Result<Self> {
        let mut figures = Figures::default();
        let pages = bytes.0 / PAGE as u64;
        if bytes.0 < PIECE as u64 {
            return Err(io::Error::other(format!("only {bytes}, too small to be measured")));
        }
        figures.random(file, pages, effort)?;
        figures.sequential(file, bytes.0, effort)?;
        figures.many(file, pages, effort)?;
        Ok(figures)
    }

    /// Random reads, one at a time.
    fn random(&mut self, file: &File, pages: u64, effort: &Effort) -> io::Result<()> {
        let mut buffer = Buffer::new(PAGE)?;
        let mut random = Random::new(2);
        let began = Instant::now();
        while began.elapsed() < effort.time || self.cpu.is_empty() {
            let latency = &mut self.latency;
            let batch = || {
                for _ in 0..BATCH {
                    let at = random.below(pages, 0) * PAGE as u64;
                    let began = Instant::now();
                    file.read_exact_at(buffer.as_mut(), at)?;
                    latency.push(began.elapsed().as_nanos() as f64);
                }
                Ok(())
            };
            self.cpu.push(cpu_of(batch)? / BATCH as f64);
        }
        Ok(())
    }

    /// Sequential reads, one at a time.
    fn sequential(&mut self, file: &File, bytes: u64, effort: &Effort) -> io::Result<()> {
        let mut buffer = Buffer::new(PIECE)?;
        let pieces = bytes / PIECE as u64;
        let (mut next, part) = (0, part(effort));
        for _ in 0..effort.repetitions {
            let (began, mut done) = (Instant::now(), 0);
            while done == 0 || began.elapsed() < part {
                file.read_exact_at(buffer.as_mut(), next % pieces * PIECE as u64)?;
                next += 1;
                done += 1;
            }
            let mib = f64::from(done) * PIECE as f64 / f64::from(1 << 20);
            self.bandwidth.push(mib / began.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Random reads, many at a time.
    fn many(&mut self, file: &File, pages: u64, effort: &Effort) -> io::Result<()> {
        let (count, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        let reader = |number: u64| {
            let mut buffer = Buffer::new(PAGE)?;
            let mut random = Random::new(number);
            while !stop.load(Ordering::Relaxed) {
                file.read_exact_at(buffer.as_mut(), random.below(pages, 0) * PAGE as u64)?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, io::Error>(())
        };
        thread::scope(|scope| {
            let reader = &reader;
            let threads: Vec<_> = (0..THREADS)
                .map(|number| thread::Builder::new().spawn_scoped(scope, move || reader(number)))
                .collect();
            for _ in 0..effort.repetitions {
                let (began, before) = (Instant::now(), count.load(Ordering::Relaxed));
                thread::sleep(part(effort));
                let done = count.load(Ordering::Relaxed) - before;
                self.iops.push(done as f64 / began.elapsed().as_secs_f64());
            }
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().try_for_each(|thread| match thread?.join() {
                Ok(read) => read,
                Err(_) => Err(io::Error::other("a reader ended early")),
            })
        })
    }

    fn device(&self) -> Device {
        Device {
            latency: Measured::of(&self.latency),
            bandwidth: Measured::of(&self.bandwidth),
            iops: Measured::of(&self.iops),
        }
    }
}

/// Time for one repetition of a figure.
fn part(effort: &Effort) -> Duration {
    effort.time / effort.repetitions.max(1)
}
