//! How fast the actors' operations are made: millions of operations and requests a second, on one thread.
//!
//! `cargo bench -p lotsfree-workload --bench streams [FILTER]`. Each line is the best of five runs,
//! in time on the CPU as `/proc/thread-self/schedstat` counts it, so that a busy host disturbs little.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::path::Path;

use lotsfree_workload::Op;
use lotsfree_workload::actor::{Actor, Files, OracleRecord, Site};
use lotsfree_workload::quantity::Time;

/// Operations of one run.
const OPS: usize = 50_000_000;

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let directory = tempfile::tempdir().unwrap();
    trace(directory.path());
    println!("{:<48} {:>12} {:>12}", "stream", "M ops/s", "M requests/s");
    for (name, role, actor) in [
        // The article's full size: 25 GB in segments of 10 MB, 100,000 reads a second.
        ("segment-store, uniform, open", "reader", SEGMENTS.to_owned() + "reads = 100000.0"),
        ("segment-store, uniform, closed", "reader", SEGMENTS.to_owned()),
        ("segment-store, zipf 1.0, closed", "reader", SEGMENTS.to_owned() + "locality = { zipf = 1.0 }"),
        ("segment-store, writer", "writer", SEGMENTS.to_owned()),
        ("app-server, uniform, 4 GiB", "server", SERVER.to_owned()),
        ("app-server, zipf 1.0, 4 GiB", "server", SERVER.to_owned() + "locality = { zipf = 1.0 }"),
        ("app-server, zipf 1.0, 10 M pages", "server", TEN_MILLION.to_owned() + "locality = { zipf = 1.0 }"),
        (
            "app-server, hot-cold, 10 M pages",
            "server",
            TEN_MILLION.to_owned() + "locality = { hot-cold = { memory = 0.2, touches = 0.8 } }",
        ),
        ("file-writer", "writer", "kind = 'file-writer'\nsize = '1 GiB'\nrepeat = 0".to_owned()),
        ("trace, oracleGeneral", "replay", TRACE.to_owned()),
        ("trace, oracleGeneral, no requests", "replay", TRACE.to_owned() + "per-request = 0"),
    ] {
        if !name.contains(&filter) {
            continue;
        }
        let actor: Actor = toml::from_str(&actor).unwrap();
        let (ops, requests) = (0..5)
            .map(|_| measure(&actor, role, directory.path()))
            .fold((0.0_f64, 0.0_f64), |best, run| if run.0 > best.0 { run } else { best });
        println!("{name:<48} {ops:>12.1} {requests:>12.1}");
    }
}

const SEGMENTS: &str = "kind = 'segment-store'\nactive = 2500\nsegment = '10 MiB'\n";
const SERVER: &str = "kind = 'app-server'\nheap = '4 GiB'\n";
const TEN_MILLION: &str = "kind = 'app-server'\nheap = '40000000 KiB'\n";
const TRACE: &str = "kind = 'trace'\nformat = 'oracle-general'\npath = 'uniform.oracleGeneral'\n";

/// Millions of operations and of requests a second that the first thread of a role makes.
fn measure(actor: &Actor, role: &str, directory: &Path) -> (f64, f64) {
    let mut files = Files::default();
    let (mut segments, mut commands) = (Vec::new(), Vec::new());
    let mut site = Site {
        actor: "bench",
        seed: 1,
        directory,
        life: Time::s(1),
        memlock: None,
        files: &mut files,
        segments: &mut segments,
        commands: &mut commands,
    };
    let threads = actor.build(&mut site).unwrap().into_iter().flat_map(|instance| instance.threads);
    let mut stream = { threads }.find(|thread| thread.role == role).unwrap().stream;
    let mut ops: Vec<Op> = Vec::new();
    // Past the start, where there is one.
    loop {
        ops.clear();
        stream.fill(&mut ops);
        if ops.contains(&Op::Done) || role == "replay" {
            break;
        }
    }
    let (mut made, mut requests) = (0, 0);
    let begin = on_cpu();
    while made < OPS {
        ops.clear();
        stream.fill(&mut ops);
        if ops.is_empty() {
            break;
        }
        made += ops.len();
        requests += black_box(&ops).iter().filter(|op| **op == Op::Done).count();
    }
    let us = (on_cpu() - begin) / 1e3;
    (made as f64 / us, requests as f64 / us)
}

/// Nanoseconds that this thread has spent on a CPU.
fn on_cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Ten million records of a million objects of one page.
fn trace(directory: &Path) {
    let mut state = 1_u64;
    let bytes: Vec<u8> = (0..10_000_000_u32)
        .flat_map(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let object = (state >> 33) % 1_000_000;
            OracleRecord { clock_time: i / 1000, object, size: 4096, next_access: -1 }.to_bytes()
        })
        .collect();
    std::fs::write(directory.join("uniform.oracleGeneral"), bytes).unwrap();
}
