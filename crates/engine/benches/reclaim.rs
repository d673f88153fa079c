//! tmp speed probe
use lotsfree_engine::mm::*;
use lotsfree_engine::*;
use lotsfree_scenario::*;
use std::time::Instant;
fn zipf(n: usize, count: usize) -> Vec<u32> {
    let mut cdf = Vec::with_capacity(n);
    let mut s = 0.0;
    for i in 0..n {
        s += 1.0 / (i as f64 + 1.0);
        cdf.push(s);
    }
    let mut perm: Vec<u32> = (0..n as u32).collect();
    let mut r = 88172645463325252u64;
    let mut next = || {
        r ^= r << 13;
        r ^= r >> 7;
        r ^= r << 17;
        r
    };
    for i in (1..n).rev() {
        perm.swap(i, (next() % (i as u64 + 1)) as usize);
    }
    (0..count)
        .map(|_| {
            let u = (next() >> 11) as f64 / (1u64 << 53) as f64 * s;
            perm[cdf.partition_point(|&c| c < u).min(n - 1)]
        })
        .collect()
}
fn main() {
    for n in [1_000_000usize, 10_000_000] {
        let trace = zipf(n, 20_000_000);
        // bare loops
        let mut a = vec![0u32; n];
        for _ in 0..3 {
            let t = Instant::now();
            for &p in &trace {
                a[p as usize] |= 1 << 30;
            }
            println!("{n} bare {:.1} M/s {}", trace.len() as f64 / t.elapsed().as_secs_f64() / 1e6, a[5]);
        }
        for share in [120usize, 10, 50] {
            let pages = (n * share / 100) as u64;
            let name =
                std::env::args().nth(1).filter(|a| a.starts_with("linux")).unwrap_or("linux-6.1".into());
            let config = Config {
                generation: Generation::named(&name).unwrap(),
                cpus: 1,
                nodes: vec![pages + pages / 60 + 10000],
                distance: vec![vec![10]],
                tuning: Tuning { read_ahead_kb: 0, ..Tuning::default() },
                swap_pages: 0,
                swap_rotational: false,
                kernel_pages: Some(0),
                swap_on_disk: false,
                instant_reads: true,
                costs: Calibration::default(),
            };
            let mut mm = Mm::new(&config);
            let process = mm.create_process(Policy::Local);
            let task = mm.create_task();
            let kt = mm.create_task();
            let file = mm.declare_file(n as u32, true);
            let mut cx = Cx::new(task, 0, process, 0);
            mm.map_file(&mut cx, RegionId(0), file, n as u32, true).unwrap();
            mm.madvise_random(0);
            if share > 100 {
                let all: Vec<u32> = (0..n as u32).collect();
                run(&mut mm, &mut cx, kt, &all);
            }
            for _ in 0..2 {
                let t = Instant::now();
                let misses = run(&mut mm, &mut cx, kt, &trace);
                println!(
                    "{n} {share}% {:.1} M/s miss {:.4}",
                    trace.len() as f64 / t.elapsed().as_secs_f64() / 1e6,
                    misses as f64 / trace.len() as f64
                );
            }
        }
    }
}
fn run(mm: &mut Mm, cx: &mut Cx, kt: usize, trace: &[u32]) -> u64 {
    let mut misses = 0;
    for &page in trace {
        while let Err(stop) = mm.touch(cx, RegionId(0), page, false) {
            misses += 1;
            let ios: Vec<_> = mm.take_io().collect();
            for io in ios {
                mm.complete(io.id, 0);
            }
            let woken: Vec<_> = mm.take_events().collect();
            for e in woken {
                if let Event::Kswapd(n) = e {
                    for _ in 0..1000 {
                        let mut k = Cx::new(kt, 0, usize::MAX, cx.start);
                        let w = mm.kswapd(&mut k, n);
                        if w.why != Why::Yield {
                            break;
                        }
                    }
                }
            }
            cx.spent = 0;
            cx.start += 1000;
            if stop == Stop::OutOfMemory || stop == Stop::Bad {
                panic!("{stop:?}");
            }
            cx.again = true;
        }
        cx.again = false;
    }
    misses
}
