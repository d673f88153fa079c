//! Random programs on random machines: each run ends, its accounts add up, and it repeats exactly.

use lotsfree_scenario::Zpool;
use lotsfree_workload::{Advice, FileId, How, RegionId};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::mm::{ZramConfig, ZswapConfig};

fn how() -> impl Strategy<Value = How> {
    prop_oneof![3 => Just(How::Buffered), 1 => Just(How::Direct)]
}

fn advice() -> impl Strategy<Value = Advice> {
    prop_oneof![
        Just(Advice::Normal),
        Just(Advice::Sequential),
        Just(Advice::Random),
        Just(Advice::WillNeed),
        Just(Advice::DontNeed)
    ]
}

/// Operations on four regions and four files, of which two are declared; some of them are erroneous.
fn op() -> impl Strategy<Value = Op> {
    let region = || (0u32..5).prop_map(RegionId);
    let file = || (0u32..5).prop_map(FileId);
    let pages = || prop_oneof![4 => 1u32..400, 1 => 400u32..6000];
    let offset = || (0u64..6000 * 4096).prop_map(|at| at >> (at % 7) as u32);
    let len = || prop_oneof![1u32..70_000, 1u32..1_000_000];
    let other =
        prop_oneof![
            Just(Op::Begin),
            Just(Op::Done),
            Just(Op::Arrive),
            (region(), pages()).prop_map(|(region, pages)| Op::MapAnon { region, pages }),
            (region(), file(), pages(), any::<bool>())
                .prop_map(|(region, file, pages, shared)| Op::MapFile { region, file, pages, shared }),
            region().prop_map(|region| Op::Unmap { region }),
            (file(), pages()).prop_map(|(file, pages)| Op::Create { file, pages }),
            file().prop_map(|file| Op::Delete { file }),
            file().prop_map(|file| Op::Sync { file }),
            (file(), offset(), len(), advice()).prop_map(|(file, offset, len, advice)| Op::Advise {
                file,
                offset,
                len,
                advice
            }),
            (region(), advice()).prop_map(|(region, advice)| Op::AdviseRegion { region, advice }),
            (0u64..3_000_000).prop_map(|ns| Op::Compute { ns: ns >> (ns % 17) as u32 }),
            (0u64..30_000_000).prop_map(|ns| Op::Sleep { ns: ns >> (ns % 17) as u32 }),
            (0u64..400 * MS).prop_map(|at| Op::SleepUntil { at }),
            (0u64..5 * MS).prop_map(|ns| Op::Pace { ns }),
            (0u64..300 * MS, 0u64..300 * MS).prop_map(|(from, until)| Op::Rest { from, until }),
            (0u32..3).prop_map(|stage| Op::Signal { stage }),
            (0u32..3, 0u32..3).prop_map(|(stage, times)| Op::Await { stage, times }),
            (0u32..3).prop_map(|mark| Op::Mark { mark }),
        ];
    let transfer =
        (file(), offset(), len(), how(), any::<bool>()).prop_map(|(file, offset, len, how, read)| {
            if read { Op::Read { file, offset, len, how } } else { Op::Write { file, offset, len, how } }
        });
    let copy = (file(), file(), offset(), len()).prop_map(|(from, to, offset, len)| Op::CopyRange {
        from,
        to,
        offset,
        len,
    });
    prop_oneof![4 => transfer, 1 => copy, 12 => other]
}

/// Operations with runs of touches between them.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let run = (0u32..5, 0u32..6000, 1u32..1500, any::<bool>()).prop_map(|(region, first, count, write)| {
        let page = |page| Op::Touch { region: RegionId(region), page, write };
        (first..first + count).map(page).collect::<Vec<_>>()
    });
    vec(prop_oneof![3 => op().prop_map(|op| vec![op]), 1 => run], 1..25).prop_map(|parts| parts.concat())
}

/// An actor: its node and policy, start and stop in milliseconds, and its threads.
type Actor = (u32, u64, Option<u64>, Vec<(Vec<Op>, u32)>);

fn actor() -> impl Strategy<Value = Actor> {
    let stop = prop_oneof![3 => Just(None), 1 => (0u64..400).prop_map(Some)];
    (0u32..5, 0u64..200, stop, vec((ops(), 1u32..40), 1..4))
}

fn build(actors: &[Actor]) -> Program {
    let processes = actors.iter().enumerate().map(|(index, (place, start, stop, threads))| Process {
        name: format!("actor {}", index / 2),
        instance: index as u32 % 2,
        memory: lotsfree_workload::Memory::default(),
        oom_score_adj: 0,
        policy: match place {
            2 => Policy::Preferred(1),
            3 => Policy::Bind(vec![0]),
            4 => Policy::Interleave(vec![0, 1]),
            _ => Policy::Local,
        },
        node: (*place == 1).then_some(0),
        start: start * MS,
        stop: stop.map(|stop| stop * MS),
        threads: threads.iter().map(|(ops, times)| thread("worker", ops, *times)).collect(),
    });
    program(&[(3000, true), (500, false)], processes.collect())
}

fn machine() -> impl Strategy<Value = MachineConfig> {
    let burst = prop_oneof![Just(0), Just(100 * MS)];
    let device = (0u64..2 * MS, 1u64..500, prop_oneof![Just(0), 100u64..100_000], any::<bool>(), burst)
        .prop_map(|(latency, mib, iops, seek, burst)| DeviceSpec {
            latency,
            bandwidth: mib << 20,
            iops,
            seek: seek.then_some(5 * MS),
            burst,
        });
    let zram = (300u32..4096, prop_oneof![Just(0), 100u64..3000])
        .prop_map(|(object_bytes, limit_pages)| ZramConfig { object_bytes, limit_pages });
    let zpool = prop::sample::select(vec![Zpool::Zbud, Zpool::Zsmalloc]);
    let zswap = (300u32..4096, zpool, 1u32..50).prop_map(|(object_bytes, zpool, max_pool_percent)| {
        ZswapConfig { object_bytes, zpool, max_pool_percent, accept_threshold_percent: 90 }
    });
    let zswap = prop::option::of(zswap);
    let on = prop_oneof![
        zswap.clone().prop_map(|zswap| (SwapDevice::Disk, None, zswap)),
        (device.clone(), zswap).prop_map(|(device, zswap)| (SwapDevice::Own(device), None, zswap)),
        zram.prop_map(|zram| (SwapDevice::Zram, Some(zram), None)),
    ];
    let swap = (prop_oneof![Just(0u64), 100u64..20_000], on);
    let size = || 8192u64..20_000;
    let memory = (prop::sample::select(&crate::NAMES[..]), 1u32..5, size(), prop_oneof![Just(0), size()]);
    (memory, device, swap, 1u64..150, 500u64..100_000).prop_map(
        |((name, cpus, first, second), disk, (swap_pages, swap), interval, disk_pages)| {
            let nodes: Vec<u64> = [first, second].into_iter().filter(|&pages| pages > 0).collect();
            let mut config = config();
            config.mm.generation = Generation::named(name).unwrap();
            config.mm.cpus = cpus;
            config.mm.distance = (0..nodes.len())
                .map(|a| (0..nodes.len()).map(|b| if a == b { 10 } else { 40 }).collect())
                .collect();
            config.mm.nodes = nodes;
            config.mm.swap_pages = swap_pages;
            config.disk = disk;
            config.disk_pages = disk_pages;
            (config.swap, config.mm.zram, config.mm.zswap) = swap;
            config.interval = interval * MS;
            config
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_program_runs_to_the_end_and_repeats(config in machine(), actors in vec(actor(), 1..4)) {
        let until = 400 * MS;
        let once = || format!("{:?}", run(config.clone(), build(&actors), until));
        let alone = once();
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(once);
            let second = scope.spawn(once);
            (first.join().unwrap(), second.join().unwrap())
        });
        prop_assert_eq!(&alone, &first);
        prop_assert_eq!(&alone, &second);
    }
}
