//! Fuzzes scenario files, and operations on the model of memory.

use lotsfree_engine::mm::{
    Config, Cx, Fadvise, Fault, Kswapd, Madvise, Mm, RaState, Read, Stop, Write, ZramConfig, ZswapConfig,
    ZswapWorker,
};
use lotsfree_engine::{Costs, Generation, NAMES, Tuning};
use lotsfree_scenario::{Filesystem, Scenario, Zpool};
use lotsfree_settings::{
    DIRTY_RATIO, PAGE_CLUSTER, PAGECACHE_LIMIT_MB, SWAPPINESS, Value, ZONE_RECLAIM_MODE,
};
use lotsfree_units::PageSize;
use lotsfree_workload::{Advice, How, Policy, RegionId};

use crate::seeds::Fixture;

/// Resolves a scenario file to its cases and programs. A resolved case must read back the same.
pub(crate) fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let scenario = match Scenario::parse(text, "fuzz.toml") {
        Ok(scenario) => scenario,
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            return;
        }
    };
    let Ok(cases) = scenario.cases(None) else { return };
    for case in cases.iter().take(3) {
        let resolved = case.to_toml();
        let again = match Scenario::parse(&resolved, "resolved.toml") {
            Ok(again) => again,
            Err(errors) => panic!("{errors}\n{resolved}"),
        };
        match again.cases(None) {
            Ok(cases) => assert_eq!(cases[0].to_toml(), resolved),
            Err(errors) => panic!("{errors}\n{resolved}"),
        }
        if case.actors.len() < 16 {
            let _ = case.program();
        }
    }
}

/// Values that no key accepts, or few do.
const SPOILED: &[&str] = &[
    "-1",
    "0",
    "1e300",
    "9223372036854775808",
    "true",
    "1979-05-27",
    "\"\"",
    "\"x\"",
    "\"0 B\"",
    "\"-1 s\"",
    "\"9e9 TiB\"",
    "[]",
    "[\"0 B\", \"1 EiB\"]",
    "{}",
    "{ x = 1 }",
];
/// The longest scenario, in bytes, that is spoiled value by value; longer ones would give too many seeds.
const SHORT: usize = 1200;

/// Seeds: the scenarios that ship, those of a test, and the short ones with one value spoiled.
pub(crate) fn scenario_seeds(_: &Fixture) -> Vec<Vec<u8>> {
    let Ok(fixtures) = std::env::var("LOTSFREE_FUZZ_FIXTURES") else { return Vec::new() };
    let directories = ["scenarios", "crates/scenario/tests/files"];
    let listed =
        directories.iter().filter_map(|name| std::fs::read_dir(format!("{fixtures}/../{name}")).ok());
    let mut paths: Vec<_> = listed.flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut seeds: Vec<Vec<u8>> = paths.iter().filter_map(|path| std::fs::read(path).ok()).collect();
    let short: Vec<String> = seeds
        .iter()
        .filter(|text| text.len() <= SHORT)
        .filter_map(|text| String::from_utf8(text.clone()).ok())
        .collect();
    for text in &short {
        for line in text.lines().filter(|line| line.contains(" = ")) {
            let key = line.split(" = ").next().unwrap_or_default();
            let spoiled = SPOILED.iter().map(|value| text.replacen(line, &format!("{key} = {value}"), 1));
            seeds.extend(spoiled.map(String::into_bytes));
        }
    }
    seeds
}

/// Bytes of the input, zeroes after its end.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(crate) fn next(&mut self) -> u32 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        u32::from(*first)
    }
    fn wide(&mut self) -> u32 {
        self.next() << 8 | self.next()
    }
}

/// Decodes operations of three tasks on a small machine, byte by byte, and checks the state after them.
pub(crate) fn operations(data: &[u8]) {
    let mut bytes = Bytes(data);
    let nodes = 1 + bytes.next() as usize % 2;
    let mut tuning = Tuning::default();
    for (key, modulo) in [
        (SWAPPINESS, 101),
        (ZONE_RECLAIM_MODE, 8),
        (PAGECACHE_LIMIT_MB, 4),
        (PAGE_CLUSTER, 5),
        (DIRTY_RATIO, 60),
    ] {
        let _ = tuning.set(key, &Value::Number(u64::from(bytes.next() % modulo)));
    }
    let choice = bytes.next() as usize;
    let Some(generation) = Generation::named(NAMES[choice % NAMES.len()]) else { return };
    let page = [4, 4, 16, 64][choice / NAMES.len() % 4] << 10;
    let config = Config {
        generation,
        cpus: 2,
        page: PageSize::new(page).unwrap_or_default(),
        nodes: vec![5000; nodes],
        distance: (0..nodes).map(|a| (0..nodes).map(|b| if a == b { 10 } else { 25 }).collect()).collect(),
        tuning,
        swap_pages: u64::from(bytes.next()) * 8,
        rotational: false,
        swap_rotational: bytes.next() % 2 == 0,
        swap_on_disk: bytes.next() % 2 == 0,
        zram: (bytes.next() % 2 == 0)
            .then(|| ZramConfig { object_bytes: bytes.wide() % 4200, limit_pages: u64::from(bytes.next()) }),
        zswap: (bytes.next() % 2 == 0).then(|| ZswapConfig {
            object_bytes: bytes.wide() % 4200,
            zpool: if bytes.next() % 2 == 0 { Zpool::Zbud } else { Zpool::Zsmalloc },
            max_pool_percent: bytes.next() % 100,
            accept_threshold_percent: bytes.next() % 100,
        }),
        filesystem: Filesystem::ALL[bytes.next() as usize % Filesystem::ALL.len()],
        kernel_pages: Some(vec![200 / nodes as u64; nodes]),
        committed: 0,
        others_pgtable_pages: 7,
        settled: 1_000_000_000,
        reserved_pages: None,
        pagesets: Vec::new(),
        instant_reads: bytes.next() % 2 == 0,
        costs: Costs::default(),
    };
    let mut mm = Mm::new(&config);
    let processes: Vec<usize> = (0..2).map(|_| mm.create_process(Policy::Local)).collect();
    let tasks: Vec<usize> = (0..6).map(|_| mm.create_task()).collect();
    let mut files: Vec<u32> = [(900, true), (3000, false), (64, true)]
        .map(|(pages, exists)| mm.declare_file(pages, exists))
        .to_vec();
    let mut kswapds: Vec<Kswapd> = (0..nodes).map(Kswapd::new).collect();
    let mut zswap = ZswapWorker::default();
    let mut ra = RaState::default();
    let mut flying: Vec<u64> = Vec::new();
    let mut now = 0;
    let mut steps = 0;
    while !bytes.is_empty() && steps < 4000 {
        steps += 1;
        now += u64::from(bytes.next()) * 50_000;
        let what = bytes.next();
        let task = (what >> 5) as usize % 3;
        let mut cx = Cx::new(tasks[task], task % 2, processes[task % 2], now);
        let region = RegionId(bytes.next() % 3);
        let which = bytes.next() as usize % files.len();
        let file = files[which];
        let offset = u64::from(bytes.wide()) * 700;
        let len = bytes.wide() * 40;
        let how = if what & 16 == 0 { How::Buffered } else { How::Direct };
        let advices =
            [Advice::Normal, Advice::Random, Advice::Sequential, Advice::WillNeed, Advice::DontNeed];
        let advice = advices[len as usize % advices.len()];
        let first = len % 4000;
        let is_write = matches!(what & 15, 4 | 6 | 7);
        let (mut fault, mut touched) = (Fault::new(region, first, is_write), 0);
        let (mut read, mut write) = (Read::new(offset, len, how), Write::new(offset, len, how));
        let mut fadvise = Fadvise::new(offset, len.into(), advice);
        let mut madvise = Madvise::new(region, advice);
        let mut retry = 0;
        loop {
            let result = match what & 15 {
                0 => mm.map_anon(&mut cx, region, 1 + len % 4000),
                1 => mm.map_file(&mut cx, region, file, 3000, len % 2 == 0),
                2 => mm.unmap(&mut cx, region),
                3..=6 => fault.poll(&mut mm, &mut cx),
                7 => {
                    // Touches a run of pages, as far as it gets.
                    let last = (touched..200).try_for_each(|at| {
                        fault.poll(&mut mm, &mut cx)?;
                        touched = at + 1;
                        fault = Fault::new(region, first + touched, true);
                        Ok(())
                    });
                    if last == Err(Stop::Bad) { Ok(()) } else { last }
                }
                8 => read.poll(&mut mm, &mut cx, file, &mut ra),
                9 | 10 => write.poll(&mut mm, &mut cx, file),
                11 => mm.sync(&mut cx, file),
                12 => fadvise.poll(&mut mm, &mut cx, file, &mut ra),
                13 => madvise.poll(&mut mm, &mut cx),
                14 => {
                    files[which] = mm.truncate(&mut cx, file, 64 + len % 2000);
                    Ok(())
                }
                _ => {
                    mm.exit(&mut cx);
                    Ok(())
                }
            };
            // An operation that has to wait is polled again after the wait was served, at most 20 times.
            if !matches!(result, Err(Stop::Wait(_))) || retry == 20 {
                break;
            }
            retry += 1;
            flying.extend(mm.take_io().map(|io| io.id));
            for id in flying.drain(..) {
                mm.complete(id, now);
            }
            for kswapd in &mut kswapds {
                kswapd.poll(&mut mm, &mut Cx::new(tasks[3], 0, usize::MAX, now));
            }
            mm.flusher(&mut Cx::new(tasks[4], 0, usize::MAX, now));
            zswap.poll(&mut mm, &mut Cx::new(tasks[5], 0, usize::MAX, now));
            mm.take_events();
            now += 1_000_000;
            cx.start = now;
            cx.spent = 0;
        }
        flying.extend(mm.take_io().map(|io| io.id));
        if what & 64 != 0 {
            for id in flying.drain(..) {
                mm.complete(id, now);
            }
        }
        if steps % 16 == 0 {
            check(&mm);
        }
    }
    check(&mm);
}

fn check(mm: &Mm) {
    if let Err(why) = mm.check() {
        panic!("{why}");
    }
}

/// Seeds: a few walks.
pub(crate) fn operation_seeds(_: &Fixture) -> Vec<Vec<u8>> {
    (1..8).map(|seed| walk(seed, 600)).collect()
}

/// Bytes without a pattern.
pub(crate) fn walk(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}
