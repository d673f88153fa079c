//! How the cost of a run grows with the simulated host: CPU time and memory over pages, actors, threads,
//! nodes and samples, each over a range, with the exponent of the growth.
//!
//! `cargo bench -p lotsfree-engine --bench growth [-- AXIS…]`, where AXIS is one of `pages`, `actors`,
//! `threads`, `nodes`, `samples`; all of them if none is given. Every case runs in a process of its own,
//! which prints its CPU time and the most memory it had. An exponent is the slope between the figures'
//! logarithms, 1 being growth in proportion: in each row from the row before, at the end of a line through
//! all.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::process::Command;

use lotsfree_run::{Event, Interval, Memory, Sample, Sink, WriteError};
use lotsfree_scenario::Scenario;
use lotsfree_sys::thread_cpu_time;

/// What grows.
struct Axis {
    name: &'static str,
    /// What a row stands for, and what stays the same.
    about: &'static str,
    sizes: &'static [u64],
    scenario: fn(u64) -> String,
    /// Samples are kept; they are thrown away otherwise.
    keeps_samples: bool,
}

const AXES: &[Axis] = &[
    Axis {
        name: "pages",
        about: "GiB of memory, a sixteenth of it in use",
        sizes: &[16, 64, 256, 1024, 4096],
        scenario: |gib| {
            let heap = gib * 1024 / 16;
            host(16, &[format!("{gib} GiB")], 4) + &server(&format!("{heap} MiB"), 16, "0", ["1 s", "4 s"])
        },
        keeps_samples: false,
    },
    Axis {
        name: "actors",
        about: "readers of 4 MiB/s, each of 512 KiB of its own, on 64 CPUs",
        sizes: &[100, 400, 1000, 4000],
        scenario: |count| {
            let mut text = host(64, &["64 GiB".to_owned()], 10)
                + "disk = { latency = \"100 us\", bandwidth = \"16 GiB/s\", iops = 1_000_000 }\n";
            for reader in 0..count {
                let _ = write!(
                    text,
                    "[[actor]]\nname = \"reader{reader}\"\nkind = \"file-reader\"\nsize = \"512 KiB\"\n\
                     rate = \"4 MiB/s\"\nrepeat = 0\n"
                );
            }
            text + "[measure]\nactor = \"reader0\"\nwindow = [\"1 s\", \"10 s\"]\n"
        },
        keeps_samples: false,
    },
    Axis {
        name: "threads",
        about: "threads that share 16 CPUs for the same work",
        sizes: &[250, 1000, 4000],
        scenario: |count| host(16, &["16 GiB".to_owned()], 4) + &server("2 GiB", count, "0", ["1 s", "4 s"]),
        keeps_samples: false,
    },
    Axis {
        name: "nodes",
        about: "nodes of 1 GiB, each with two threads of a server and a reader that fills it again and again",
        sizes: &[1, 2, 4, 8],
        scenario: |count| {
            let nodes: Vec<_> = (0..count).map(|_| "1 GiB".to_owned()).collect();
            let mut text = host(4 * count, &nodes, 20);
            let _ = writeln!(
                text,
                "disk = {{ latency = \"100 us\", bandwidth = \"{} MiB/s\", iops = {} }}",
                1000 * count,
                100_000 * count
            );
            text += &server(&format!("{} MiB", 200 * count), 2 * count, "2 ms", ["5 s", "20 s"]);
            for reader in 0..count {
                let _ = write!(
                    text,
                    "[[actor]]\nname = \"reader{reader}\"\nkind = \"file-reader\"\nsize = \"2 GiB\"\n\
                     rate = \"200 MiB/s\"\nrepeat = 0\n"
                );
            }
            text
        },
        keeps_samples: false,
    },
    Axis {
        name: "samples",
        about: "hours of a machine with little to do, sampled each second",
        sizes: &[1, 4, 12, 24],
        scenario: |hours| {
            host(4, &["1 GiB".to_owned()], hours * 3600)
                + "[[actor]]\nname = \"reader\"\nkind = \"file-reader\"\nsize = \"16 MiB\"\nrate = \"64 KiB/s\"\n\
                   repeat = 0\n[measure]\nactor = \"reader\"\nwindow = [\"4 s\", \"12 s\"]\n"
        },
        keeps_samples: true,
    },
];

/// The beginning of a scenario.
fn host(cpus: u64, nodes: &[String], seconds: u64) -> String {
    format!(
        "title = \"Growth\"\nseed = 1\nduration = \"{seconds} s\"\ninterval = \"1 s\"\n[machine]\n\
         generation = \"linux-6.1\"\ncpus = {cpus}\nnodes = {nodes:?}\n"
    )
}

/// The application that is measured.
fn server(heap: &str, threads: u64, think: &str, window: [&str; 2]) -> String {
    format!(
        "[measure]\nactor = \"app\"\nwindow = {window:?}\n[[actor]]\nname = \"app\"\n\
         kind = \"app-server\"\nheap = \"{heap}\"\nthreads = {threads}\ntouches = 16\nthink = \"{think}\"\n\
         compute = \"200 us\"\nlocality = {{ hot-cold = {{ memory = 0.3, touches = 0.98 }} }}\n"
    )
}

/// Throws samples away.
struct Nowhere;

impl Sink for Nowhere {
    fn sample(&mut self, _: &Sample) -> Result<(), WriteError> {
        Ok(())
    }
    fn intervals(&mut self, _: &[Interval]) -> Result<(), WriteError> {
        Ok(())
    }
    fn event(&mut self, _: &Event) -> Result<(), WriteError> {
        Ok(())
    }
}

/// Runs a case in this process, and prints its seconds of CPU time and its KiB of memory.
fn one(axis: &Axis, size: u64) -> Result<(), Box<dyn Error>> {
    let text = (axis.scenario)(size);
    let cases = Scenario::parse(&text, "growth.toml")?.cases(None)?;
    let case = cases.first().ok_or("no case")?;
    let (mut kept, mut nowhere) = (Memory::default(), Nowhere);
    let sink: &mut dyn Sink = if axis.keeps_samples { &mut kept } else { &mut nowhere };
    let begin = thread_cpu_time();
    lotsfree_engine::simulate(case, sink, &mut |_| ControlFlow::Continue(()))?;
    println!("{} {}", (thread_cpu_time() - begin).as_secs_f64(), peak()?);
    Ok(())
}

/// The most memory that this process has had, in KiB.
fn peak() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Slope of the line through the logarithms of some points.
fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (mut xy, mut xx) = (0.0, 0.0);
    for (a, b) in logs {
        xy += (a - x) * (b - y);
        xx += (a - x) * (a - x);
    }
    xy / xx
}

fn table(axis: &Axis) -> Result<(), Box<dyn Error>> {
    println!("{}: {}", axis.name, axis.about);
    let (mut times, mut peaks) = (Vec::new(), Vec::new());
    for &size in axis.sizes {
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.args(["one", axis.name, &size.to_string()]).output()?;
        let text = String::from_utf8(output.stdout)?;
        let Some((time, peak)) = text.trim().split_once(' ').filter(|_| output.status.success()) else {
            println!("{size:>8}  {}", String::from_utf8_lossy(&output.stderr).trim());
            continue;
        };
        let (time, peak) = (time.parse::<f64>()?, peak.parse::<f64>()? / 1024.0);
        times.push((size as f64, time));
        peaks.push((size as f64, peak));
        let step = |points: &[(f64, f64)]| match points {
            [.., _, _] => format!("{:5.2}", exponent(&points[points.len() - 2..])),
            _ => " ".repeat(5),
        };
        println!("{size:>8} {time:>9.2} s {} {peak:>9.1} MiB {}", step(&times), step(&peaks));
    }
    println!("     all             {:5.2}               {:5.2}", exponent(&times), exponent(&peaks));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let named = |name: &str| AXES.iter().find(|axis| axis.name == name);
    if let [first, name, size] = &arguments[..]
        && first == "one"
    {
        return one(named(name).ok_or("no such axis")?, size.parse()?);
    }
    for axis in AXES.iter().filter(|axis| arguments.is_empty() || arguments.iter().any(|a| a == axis.name)) {
        table(axis)?;
    }
    Ok(())
}
