//! Reclaim of clean file pages, in a memory control group.
//!
//! A helper process is put into a group that is made for it. It reads a file page by page, so that the page
//! cache uses single pages, not large folios, and then asks the group to give up half of them, by the group's
//! limit or by `memory.reclaim`. The process that asks does the reclaim, so its CPU time is that of reclaim.
//!
//! `scan`: that time per page that the kernel counts as scanned (`pgscan_anon` + `pgscan_file` of
//! `/proc/vmstat`, which count the reclaim of groups, too), for pages that were read and that no process
//! maps. It includes freeing the reclaimed pages, as the model's `scan` does, and the group's accounting.
//! `rmap`: the time to reclaim pages that are mapped and were accessed, less `scan` for each page scanned,
//! per walk of the reverse mapping. There is one walk for each page scanned, and another to unmap each
//! reclaimed page (`pgsteal_*`).
//!
//! Both are measured with the page lists that the kernel uses, which the record names. `walk`, which only the
//! multi-generational LRU has, is not measured: no counter tells how many page table entries a walk has
//! looked at.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use lotsfree_changes::Changes;
use lotsfree_kernel_files::counters::{Values, Vmstat, vmstat};
use lotsfree_scenario::Record;
use lotsfree_sys::{Hint, Region};
use lotsfree_units::Bytes;
use rustix::fs::Advice;
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::{Calibration, PAGE, Value, cpu_of, keep, of};
use crate::agent::privileges;
use crate::error::{LabError, at, calling};
use crate::group::{self, Version};

/// Reading before each reclaim takes at most [`Effort::time`](super::Effort::time) divided by this.
const SHARE: u32 = 4;
/// Pages that are read in any case. Compared with them, the pages that a CPU keeps back in its batches are
/// few.
const LEAST: usize = 512;

/// The helper's order, a line of JSON on its standard input.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// The group's file by which it is made to give up memory.
    knob: PathBuf,
    /// The group's file with its memory usage.
    usage: PathBuf,
    /// The value that lifts the limit; `None`: the knob is no limit.
    unlimited: Option<String>,
    /// The file that is read and reclaimed.
    file: PathBuf,
    /// The most pages of the file that are read.
    pages: usize,
    /// The time for reading them, in nanoseconds; at least [`LEAST`] are read.
    time: u64,
    repetitions: u32,
}

/// The helper's answer, a line of JSON on its standard output.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// Reclaims of unmapped pages, and of mapped pages.
    Measured(Vec<Reclaim>, Vec<Reclaim>),
    Failed(String),
}

/// Figures of one reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Reclaim {
    /// CPU time in nanoseconds.
    ns: f64,
    scanned: u64,
    freed: u64,
}

pub(super) fn measure(
    calibration: &Calibration,
    (file, bytes): (&Path, Bytes),
    changes: &mut Changes,
    record: &mut Record,
) {
    let (scan, rmap) = match ask(calibration, (file, bytes), changes) {
        Ok(Answer::Measured(plain, mapped)) => {
            let scan = scan(&plain);
            let rmap = scan.clone().and_then(|scan| rmap(&mapped, scan.median));
            (scan, rmap)
        }
        Ok(Answer::Failed(why)) => (Err(why.clone()), Err(why)),
        Err(error) => (Err(error.to_string()), Err(error.to_string())),
    };
    keep(record, "costs.scan", scan, |record| &mut record.costs.scan);
    keep(record, "costs.rmap", rmap, |record| &mut record.costs.rmap);
    let why = match record.provenance.lru.as_str() {
        "mglru" => "no counter tells how many entries a walk has looked at",
        _ => "the kernel does not use the multi-generational LRU",
    };
    let unmeasured = [
        ("costs.walk", why),
        ("costs.skip", "reclaim of a control group takes every page"),
        ("costs.lru_lock", "no counter tells how long the lock is held"),
        ("costs.compress", "no swap is compressed while it is measured"),
        ("costs.decompress", "no swap is compressed while it is measured"),
    ];
    for (cost, why) in unmeasured {
        record.absent.insert(cost.to_owned(), why.to_owned());
    }
}

fn scan(plain: &[Reclaim]) -> Value {
    let scanned = plain.iter().filter(|reclaim| reclaim.scanned > 0);
    let values: Vec<f64> = scanned.map(|reclaim| reclaim.ns / reclaim.scanned as f64).collect();
    of(&values).map_err(|_| "the kernel counted no page as scanned".to_owned())
}

fn rmap(mapped: &[Reclaim], scan: f64) -> Value {
    let looks = mapped.iter().filter(|reclaim| reclaim.scanned > 0).map(|reclaim| {
        let rest = reclaim.ns - scan * reclaim.scanned as f64;
        rest / (reclaim.scanned + reclaim.freed) as f64
    });
    let value =
        of(&looks.collect::<Vec<f64>>()).map_err(|_| "the kernel counted no page as scanned".to_owned())?;
    if value.lower > 0.0 { Ok(value) } else { Err("mapped pages took no longer than others".to_owned()) }
}

/// Makes the group, starts the helper in it and gives it its order.
fn ask(
    calibration: &Calibration,
    (file, bytes): (&Path, Bytes),
    changes: &mut Changes,
) -> Result<Answer, LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::Refused("making a control group needs root".to_owned()));
    }
    let version = group::version()?;
    let path = group::make(version, changes)?;
    let of = |file: &str| path.join(file);
    let (knob, usage, unlimited) = match version {
        Version::One => (of("memory.limit_in_bytes"), of("memory.usage_in_bytes"), Some("-1".to_owned())),
        Version::Two if of("memory.reclaim").exists() => (of("memory.reclaim"), of("memory.current"), None),
        Version::Two => (of("memory.max"), of("memory.current"), Some("max".to_owned())),
    };
    let order = Order {
        knob,
        usage,
        unlimited,
        file: file.to_path_buf(),
        pages: calibration.effort.pages.min(bytes.0 as usize / PAGE),
        time: (calibration.effort.time / SHARE).as_nanos() as u64,
        repetitions: calibration.effort.repetitions,
    };
    let (program, arguments) = &calibration.helper;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(at(program))?;
    let answer = tell(&mut child, &path, &order);
    // The helper ends by itself once its input does; after a failure it is killed instead.
    if answer.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    answer
}

fn tell(child: &mut std::process::Child, group: &Path, order: &Order) -> Result<Answer, LabError> {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(LabError::Refused("a helper without pipes".to_owned()));
    };
    let procs = group.join("cgroup.procs");
    // The helper joins the group before it gets its order, so that all its memory is charged to the group.
    fs::write(&procs, child.id().to_string()).map_err(at(&procs))?;
    let told = serde_json::to_string(order).map_err(io::Error::from);
    told.and_then(|order| writeln!(input, "{order}")).map_err(calling("the helper's input"))?;
    drop(input);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(calling("the helper's output"))?;
    serde_json::from_str(&line).map_err(|error| LabError::Refused(format!("the helper's answer: {error}")))
}

/// Reclaims, as the process that [`measure`] starts.
///
/// # Errors
/// If it was not started as that process.
pub fn helper() -> Result<(), LabError> {
    // The helper may not outlive the lab, however that ends.
    let killed = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    killed.map_err(|error| calling("prctl")(error.into()))?;
    // The group and the file belong to root, as this process does, so it needs no capability.
    privileges::gain_none()
        .and_then(|()| privileges::keep(CapabilitySet::empty()))
        .map_err(calling("giving up capabilities"))?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(calling("input"))?;
    let order: Order = serde_json::from_str(&line)
        .map_err(|_| LabError::Refused("this command is started by `lotsfree lab calibrate`".to_owned()))?;
    let answer = match order.reclaim(false).and_then(|plain| Ok((plain, order.reclaim(true)?))) {
        Ok((plain, mapped)) => Answer::Measured(plain, mapped),
        Err(error) => Answer::Failed(error.to_string()),
    };
    let answer = serde_json::to_string(&answer).map_err(io::Error::from);
    answer.and_then(|answer| writeln!(io::stdout(), "{answer}")).map_err(calling("output"))
}

impl Order {
    fn reclaim(&self, map: bool) -> Result<Vec<Reclaim>, LabError> {
        let file = OpenOptions::new().read(true).write(true).open(&self.file).map_err(at(&self.file))?;
        let failed = |error: rustix::io::Errno| at(&self.file)(error.into());
        // Without readahead, which would allocate large folios.
        rustix::fs::fadvise(&file, 0, None, Advice::Random).map_err(failed)?;
        let mut all = Vec::new();
        for _ in 0..self.repetitions {
            if let Some(unlimited) = &self.unlimited {
                fs::write(&self.knob, unlimited).map_err(at(&self.knob))?;
            }
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(failed)?;
            // Keep the mapping until its pages have been reclaimed.
            let (pages, _region) = match map {
                true => self.touch(&file).map(|(pages, region)| (pages, Some(region))),
                false => self.read(&file).map(|pages| (pages, None)),
            }
            .map_err(at(&self.file))?;
            let half = (pages * PAGE / 2) as u64;
            let amount = match self.unlimited {
                None => half,
                Some(_) => {
                    let text = fs::read_to_string(&self.usage).map_err(at(&self.usage))?;
                    text.trim().parse::<u64>().unwrap_or(0).saturating_sub(half)
                }
            };
            let before = counters()?;
            let ns = cpu_of(|| match fs::write(&self.knob, amount.to_string()) {
                // The group gave up less than it was asked for.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy) =>
                {
                    Ok(())
                }
                written => written,
            })
            .map_err(at(&self.knob))?;
            let after = counters()?;
            all.push(Reclaim {
                ns,
                scanned: after.0.saturating_sub(before.0),
                freed: after.1.saturating_sub(before.1),
            });
        }
        Ok(all)
    }

    /// Reads the file page by page, and returns the number of pages.
    fn read(&self, file: &File) -> io::Result<usize> {
        let mut page = [0; PAGE];
        self.each(|number| file.read_exact_at(&mut page, (number * PAGE) as u64))
    }

    /// Maps the file and accesses each page once. A page that was also read would count as active.
    fn touch(&self, file: &File) -> io::Result<(usize, Region)> {
        let region = Region::file(file, self.pages * PAGE, true, false)?;
        region.advise(Hint::Random)?;
        let pages = self.each(|number| {
            region.touch(number, false);
            Ok(())
        })?;
        Ok((pages, region))
    }

    /// Calls `page` for each page while there is time, and returns the number of pages.
    fn each(&self, mut page: impl FnMut(usize) -> io::Result<()>) -> io::Result<usize> {
        let began = Instant::now();
        for number in 0..self.pages {
            if began.elapsed().as_nanos() >= u128::from(self.time) && number >= LEAST {
                return Ok(number);
            }
            page(number)?;
        }
        Ok(self.pages)
    }
}

/// Pages that all reclaim of this machine has scanned and freed since boot.
fn counters() -> Result<(u64, u64), LabError> {
    let path = Path::new("/proc/vmstat");
    let values = Values::<Vmstat>::parse(&fs::read(path).map_err(at(path))?, |_| ());
    let both = |anon, file| Some(values.get(anon)? + values.get(file)?);
    let counted = both(vmstat::pgscan_anon, vmstat::pgscan_file)
        .and_then(|scanned| Some((scanned, both(vmstat::pgsteal_anon, vmstat::pgsteal_file)?)));
    counted.ok_or_else(|| LabError::Refused("this kernel does not count what groups reclaim".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_look_at_a_mapped_page_is_counted() {
        let plain = [Reclaim { ns: 10_000.0, scanned: 100, freed: 100 }; 3];
        // Each page is scanned twice, with a walk of the reverse mapping each time, and then unmapped.
        let mapped = [Reclaim { ns: 80_000.0, scanned: 200, freed: 100 }; 3];
        let scan = scan(&plain).unwrap();
        assert_eq!(scan.median, 100.0);
        assert_eq!(rmap(&mapped, scan.median).unwrap().median, 200.0);
        assert!(rmap(&plain, scan.median).is_err());
        assert!(super::scan(&[Reclaim { ns: 1.0, scanned: 0, freed: 0 }]).is_err());
    }
}
