//! `cargo bench --bench doctor [-- PROCESSES…]`: cost of `lotsfree doctor --interval 0` on this host with
//! PROCESSES more processes (1,000 and 10,000 by default), compared with a floor: the cost of opening and
//! reading the same files once, in a process that parses nothing.
//!
//! Both are whole processes, run in turn. CPU time (user and system) is the kernel's own account of each
//! finished child, and the ratio is the median over pairs. Run it as root: an ordinary user cannot read most
//! files, which makes both sides cheaper.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lotsfree_snapshot::source::TreeSource;
use lotsfree_snapshot::{Options, ReadError, Source, collect};
use nix::sys::resource::{UsageWho, getrusage};

/// Number of pairs of runs.
const PAIRS: usize = 15;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, list] = arguments.as_slice()
        && flag == "--floor"
    {
        return floor(Path::new(list));
    }
    let mut counts: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![1_000, 10_000];
    }
    println!("processes   files   floor ms   doctor ms   ratio (min..max)   doctor peak MiB   us/process");
    let mut sleepers = Sleepers::default();
    let mut first: Option<(usize, f64)> = None;
    for count in counts {
        sleepers.grow_to(count)?;
        let list = std::env::temp_dir().join(format!("lotsfree-bench-{}.list", std::process::id()));
        let files = paths_read(&list)?;
        let mut pairs = Vec::new();
        let mut peak = 0;
        for pair in 0..=PAIRS {
            let (floor, _) = cost(Command::new(std::env::current_exe()?).arg("--floor").arg(&list))?;
            let doctor = Command::new(env!("CARGO_BIN_EXE_lotsfree"));
            let (doctor, kib) = cost({ doctor }.args(["doctor", "--interval", "0", "--fail-on", "never"]))?;
            // The first pair warms the caches.
            if pair > 0 {
                pairs.push((floor, doctor));
                peak = peak.max(kib);
            }
        }
        std::fs::remove_file(&list)?;
        let ratios = sorted(pairs.iter().map(|(floor, doctor)| doctor / floor));
        let floor = median(&sorted(pairs.iter().map(|pair| pair.0)));
        let doctor = median(&sorted(pairs.iter().map(|pair| pair.1)));
        println!(
            "{count:>9} {files:>7} {:>10.1} {:>11.1} {:>7.2} ({:.2}..{:.2}) {:>17.1} {:>12.1}",
            floor * 1e3,
            doctor * 1e3,
            median(&ratios),
            ratios[0],
            ratios[ratios.len() - 1],
            peak as f64 / 1024.0,
            doctor * 1e6 / count as f64,
        );
        match first {
            None => first = Some((count, doctor)),
            Some((base, cost)) => {
                let growth = (doctor / cost) / (count as f64 / base as f64);
                println!("{count} against {base} processes: {growth:.2} times linear");
            }
        }
    }
    Ok(())
}

/// CPU seconds of a child, and the peak memory in KiB of the largest child so far.
fn cost(command: &mut Command) -> io::Result<(f64, i64)> {
    let before = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    assert!(status.success(), "{command:?} failed: {status}");
    let after = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |usage: &nix::sys::resource::Usage| {
        let (user, system) = (usage.user_time(), usage.system_time());
        (user.tv_sec() + system.tv_sec()) as f64 + (user.tv_usec() + system.tv_usec()) as f64 / 1e6
    };
    Ok((seconds(&after) - seconds(&before), after.max_rss()))
}

/// Opens and reads each file of the list, and lists each directory (a line that ends in `/`).
fn floor(list: &Path) -> io::Result<()> {
    let paths = std::fs::read_to_string(list)?;
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0u64;
    for path in paths.lines() {
        if path.ends_with('/') {
            bytes += std::fs::read_dir(path).map_or(0, |entries| entries.count() as u64);
            continue;
        }
        let Ok(mut file) = File::open(path) else { continue };
        while let Ok(read @ 1..) = file.read(&mut buffer) {
            bytes += read as u64;
        }
    }
    writeln!(io::stdout(), "{bytes}")
}

/// Records the paths that are read.
struct Noting {
    inner: TreeSource,
    paths: RefCell<String>,
}

impl Source for Noting {
    fn read(&self, path: &str, limit: usize, buffer: &mut Vec<u8>) -> Result<bool, ReadError> {
        // At the end of the kernel log a plain reader blocks.
        if path != "dev/kmsg" {
            self.paths.borrow_mut().push_str(&format!("/{path}\n"));
        }
        self.inner.read(path, limit, buffer)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, ReadError> {
        self.paths.borrow_mut().push_str(&format!("/{directory}/\n"));
        self.inner.list(directory)
    }

    fn is_live(&self) -> bool {
        true
    }
}

/// Writes the paths that `doctor` reads on this host to `list`, and counts them.
fn paths_read(list: &Path) -> io::Result<usize> {
    let noting = Noting { inner: TreeSource::live()?, paths: RefCell::default() };
    collect(&noting, &Options::default());
    let paths = noting.paths.into_inner();
    std::fs::write(list, &paths)?;
    Ok(paths.lines().count())
}

/// Processes that sleep until the benchmark ends.
#[derive(Default)]
struct Sleepers {
    children: Vec<Child>,
}

impl Sleepers {
    fn grow_to(&mut self, count: usize) -> io::Result<()> {
        while self.children.len() < count {
            self.children.push(Command::new("sleep").arg("3600").spawn()?);
        }
        Ok(())
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
