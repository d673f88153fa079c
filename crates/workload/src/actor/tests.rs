//! What holds for the streams of every kind, and what each kind's stream is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use proptest::prelude::{Just, Strategy, any};
use proptest::{prop_assert_eq, prop_oneof, proptest};

use super::sessions::MARKS;
use super::*;
use crate::op::{Advice, CommandId, How, RegionId, SegmentId};
use crate::program::SegmentBacking;
use crate::quantity::Bandwidth;

/// What an actor becomes: processes, and the files and segments of the program.
type Built = (Vec<Instance>, Vec<FileSpec>, Vec<SegmentSpec>);

/// The processes of an actor in the TOML of a scenario, and the files and segments that the program then has.
fn instances_in(directory: &Path, seed: u64, name: &str, text: &str) -> Result<Built, String> {
    let actor: Actor = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let named = vec![
        FileSpec { name: "data".to_owned(), pages: 1000, exists: true },
        FileSpec { name: "later".to_owned(), pages: 10, exists: false },
    ];
    let mut files = Files::new(named);
    let (mut segments, mut commands) = (Vec::new(), Vec::new());
    let life = Time::s(100);
    let mut site = Site {
        actor: name,
        seed,
        directory,
        life,
        memlock: None,
        files: &mut files,
        segments: &mut segments,
        commands: &mut commands,
    };
    let instances = actor.build(&mut site).map_err(|refusal| refusal.to_string())?;
    Ok((instances, files.into_specs(), segments))
}

/// The threads of an actor that is one process.
fn build_in(
    directory: &Path,
    seed: u64,
    name: &str,
    text: &str,
) -> Result<(Vec<Thread>, Vec<FileSpec>), String> {
    let (mut instances, files, _) = instances_in(directory, seed, name, text)?;
    assert!(instances.len() == 1 && instances[0].delay == 0);
    Ok((instances.remove(0).threads, files))
}

fn build(text: &str) -> (Vec<Thread>, Vec<FileSpec>) {
    build_in(Path::new("."), 1, "actor", text).unwrap()
}

fn refused(text: &str) -> String {
    build_in(Path::new("."), 1, "actor", text).unwrap_err()
}

/// The operations of a stream: all, or at least so many.
fn ops(thread: &mut Thread, least: usize) -> Vec<Op> {
    let mut ops = Vec::new();
    while ops.len() < least {
        let before = ops.len();
        thread.stream.fill(&mut ops);
        if ops.len() == before {
            break;
        }
    }
    ops
}

/// A process whose threads run in any order, and what no stream may do.
#[derive(Default)]
struct Machine {
    /// Pages of the files that exist.
    files: BTreeMap<FileId, u32>,
    /// Pages and file of what is mapped.
    regions: BTreeMap<RegionId, (u32, Option<FileId>)>,
    segments: Vec<SegmentSpec>,
    signals: BTreeMap<u32, u32>,
}

impl Machine {
    fn new(files: &[FileSpec], segments: &[SegmentSpec]) -> Machine {
        let existing = files.iter().enumerate().filter(|(_, file)| file.exists);
        Machine {
            files: existing.map(|(i, file)| (FileId(i as u32), file.pages)).collect(),
            segments: segments.to_vec(),
            ..Machine::default()
        }
    }

    /// Whether the operation may be executed now; false: the thread has to wait.
    fn execute(&mut self, op: Op, specs: &[FileSpec]) -> Result<bool, String> {
        let wrong = |what: &str| Err(format!("{op:?}: {what}"));
        match op {
            Op::Await { stage, times } => {
                return Ok(self.signals.get(&stage).copied().unwrap_or(0) >= times);
            }
            Op::Signal { stage } => *self.signals.entry(stage).or_default() += 1,
            Op::MapAnon { region, pages } => {
                self.regions.insert(region, (pages, None));
            }
            Op::MapFile { region, file, pages, .. } => {
                if self.files.get(&file).is_none_or(|has| *has < pages) {
                    return wrong("the file is not there or too short");
                }
                self.regions.insert(region, (pages, Some(file)));
            }
            Op::Unmap { region } => {
                let was = self.regions.remove(&region);
                if was.is_none() {
                    return wrong("nothing is mapped");
                }
            }
            Op::Attach { region, segment } => match self.segments.get(segment.0 as usize) {
                Some(spec) => drop(self.regions.insert(region, (spec.pages, None))),
                None => return wrong("the program knows of no such segment"),
            },
            Op::AdviseRegion { region, .. } | Op::Lock { region } if !self.regions.contains_key(&region) => {
                return wrong("nothing is mapped");
            }
            Op::Touch { region, page, write } => match self.regions.get(&region) {
                None => return wrong("nothing is mapped"),
                Some((pages, _)) if page >= *pages => return wrong("beyond the mapping"),
                Some((_, Some(file))) if write && self.mapped(*file) > 1 => {
                    return wrong("stores to a file that is in use");
                }
                Some(_) => {}
            },
            Op::Create { file, pages } => {
                if self.mapped(file) > 0 {
                    return wrong("truncates a file that is in use");
                }
                if specs.get(file.0 as usize).is_none_or(|spec| spec.pages != pages) {
                    return wrong("the program knows of no such file");
                }
                self.files.insert(file, pages);
            }
            Op::Delete { file } => {
                let free = self.mapped(file) == 0;
                if !free || self.files.remove(&file).is_none() {
                    return wrong("the file is in use or not there");
                }
            }
            Op::Write { file, .. } if self.mapped(file) > 0 => {
                return wrong("writes to a file that is in use");
            }
            Op::Read { file, offset, len, how } | Op::Write { file, offset, len, how } => {
                let Some(pages) = self.files.get(&file) else { return wrong("the file is not there") };
                if len == 0 || offset + u64::from(len) > u64::from(*pages) * PAGE {
                    return wrong("beyond the file");
                }
                if how == How::Direct && !(offset.is_multiple_of(PAGE) && u64::from(len).is_multiple_of(PAGE))
                {
                    return wrong("not whole pages");
                }
            }
            Op::CopyRange { to, .. } if self.mapped(to) > 0 => {
                return wrong("writes to a file that is in use");
            }
            Op::CopyRange { from, to, offset, len } => {
                for file in [from, to] {
                    let Some(pages) = self.files.get(&file) else { return wrong("the file is not there") };
                    if len == 0 || offset + u64::from(len) > u64::from(*pages) * PAGE {
                        return wrong("beyond the file");
                    }
                }
            }
            Op::Sync { file } if !self.files.contains_key(&file) => return wrong("the file is not there"),
            Op::Advise { file, offset, len, .. } => {
                let end = offset + u64::from(len);
                if self.files.get(&file).is_none_or(|pages| end > u64::from(*pages) * PAGE) {
                    return wrong("beyond the file, or it is not there");
                }
            }
            Op::Rest { from, until } if from >= until => return wrong("no time"),
            _ => {}
        }
        Ok(true)
    }

    fn mapped(&self, file: FileId) -> usize {
        self.regions.values().filter(|(_, mapped)| *mapped == Some(file)).count()
    }
}

/// Requests begin and end in turn, dates come before arrivals, marks have names.
#[derive(Default)]
struct Requests {
    open: bool,
    dated: bool,
}

impl Requests {
    fn see(&mut self, op: Op, marks: usize) -> Result<(), String> {
        let right = match op {
            Op::Begin => !std::mem::replace(&mut self.open, true),
            Op::Arrive => !std::mem::replace(&mut self.open, true) && std::mem::take(&mut self.dated),
            Op::Done => std::mem::replace(&mut self.open, false),
            Op::Pace { .. } => {
                self.dated = true;
                !self.open
            }
            Op::Mark { mark } => (mark as usize) < marks && !self.open,
            Op::Rest { .. } | Op::Sleep { .. } | Op::Signal { .. } | Op::Await { .. } => !self.open,
            _ => true,
        };
        if right { Ok(()) } else { Err(format!("{op:?} is out of order")) }
    }
}

/// Runs the threads in an order that `choices` decides, for about `steps` operations.
fn run(
    threads: Vec<Thread>,
    specs: &[FileSpec],
    segments: &[SegmentSpec],
    choices: u64,
    steps: usize,
) -> Result<(), String> {
    let mut machine = Machine::new(specs, segments);
    let mut rng = rng::Rng::new(choices, "order", 0);
    let mut running: Vec<_> =
        threads.into_iter().map(|thread| (thread, VecDeque::<Op>::new(), Requests::default())).collect();
    let mut waited = 0;
    for _ in 0..steps {
        if running.is_empty() {
            return Ok(());
        }
        let index = rng.below(running.len() as u32) as usize;
        // Runs of operations of one thread, long and short.
        let run = rng.below(12);
        for _ in 0..=rng.below(1 << run) {
            let (thread, queue, requests) = &mut running[index];
            if queue.is_empty() {
                let mut ops = Vec::new();
                thread.stream.fill(&mut ops);
                queue.extend(ops);
            }
            let Some(op) = queue.front().copied() else {
                if requests.open {
                    return Err(format!("{} ends within a request", thread.role));
                }
                running.remove(index);
                break;
            };
            if !machine.execute(op, specs).map_err(|error| format!("{}: {error}", thread.role))? {
                waited += 1;
                if waited > 10_000 {
                    return Err(format!("{} waits for ever", thread.role));
                }
                break;
            }
            waited = 0;
            requests.see(op, thread.marks.len()).map_err(|error| format!("{}: {error}", thread.role))?;
            queue.pop_front();
        }
    }
    Ok(())
}

fn locality() -> impl Strategy<Value = Locality> {
    prop_oneof![
        Just(Locality::Uniform),
        (0.0..3.0).prop_map(Locality::Zipf),
        (0.01..0.99, 0.0..=1.0).prop_map(|(memory, touches)| Locality::HotCold(HotCold { memory, touches })),
    ]
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Buffered), Just(Access::Direct), Just(Access::Dontneed), Just(Access::Mmap)]
}

fn hint() -> impl Strategy<Value = Hint> {
    prop_oneof![Just(Hint::None), Just(Hint::Sequential), Just(Hint::Random)]
}

fn size(pages: std::ops::Range<u64>) -> impl Strategy<Value = Size> {
    pages.prop_map(|pages| Size::kib(pages * 4))
}

fn app_server() -> impl Strategy<Value = Actor> {
    let active = prop_oneof![
        Just(vec![]),
        Just(vec![Phase(Time(5), Until::At(Time(9))), Phase(Time(20), Until::End)])
    ];
    let load = prop_oneof![
        (0_u64..3).prop_map(|think| (Time(think), None)),
        (0.1..1e6).prop_map(|rate| (Time(0), Some(rate)))
    ];
    let held = prop_oneof![Just(Held::Read), Just(Held::Mmap)];
    let data = proptest::option::of((size(1..700), held).prop_map(|(size, how)| Data { size, how }));
    // Room for a page of each thread, and two pages that are live.
    let collector = proptest::option::of((1_u64..3, 0.0..1.0));
    (size(12..3000), 1_u32..9, 0_u32..40, locality(), 0.0..=1.0, load, active, data, collector).prop_map(
        |(heap, threads, touches, locality, write, (think, rate), active, data, collector)| {
            let compute = Time(u64::from(touches % 2));
            let object = Size::kib(if touches % 3 == 0 { 8 } else { 4 });
            let collector = collector.map(|(pages, live)| {
                let room = u64::from(threads) * pages;
                let most = (heap.pages().max(room + 2) - room) as f64;
                let live = Size::kib(4 * ((most * live) as u64).max(2));
                Collector { live, garbage: Size::kib(4 * pages), per_gib: Time::ms(touches.into()) }
            });
            let heap = collector.map_or(heap, |of| {
                Size::kib(heap.bytes().max(of.live.bytes() + of.garbage.bytes() * u64::from(threads)) >> 10)
            });
            let server = AppServer {
                heap,
                threads,
                collector,
                data,
                touches,
                object,
                locality,
                write,
                compute,
                think,
                rate,
                active,
            };
            Actor::AppServer(server)
        },
    )
}

fn file_writer() -> impl Strategy<Value = Actor> {
    let source = prop_oneof![
        Just((None, None)),
        Just((Some("data".to_owned()), None)),
        size(1..900).prop_map(|size| (None, Some(size)))
    ];
    let rate = proptest::option::of((1_u64..1000).prop_map(Bandwidth::mib));
    (size(0..800), size(1..300), access(), size(1..100), any::<bool>(), rate, source, 0_u32..5, 0_u32..4)
        .prop_map(|(size, chunk, how, behind, sync, rate, (copy_of, source_size), repeat, keep)| {
            Actor::FileWriter(FileWriter {
                size,
                chunk,
                how,
                behind,
                sync,
                rate,
                copy_of,
                source_size,
                repeat,
                keep,
            })
        })
}

fn file_reader() -> impl Strategy<Value = Actor> {
    let file =
        prop_oneof![Just((Some("data".to_owned()), None)), size(1..900).prop_map(|size| (None, Some(size)))];
    let order = prop_oneof![Just(Order::Sequential), Just(Order::Random)];
    (file, size(1..300), order, access(), size(1..100), hint(), 0_u64..2, 0_u32..5).prop_map(
        |((file, size), chunk, order, how, behind, advice, think, repeat)| {
            let think = Time(think);
            let reader =
                FileReader { file, size, chunk, order, how, behind, advice, rate: None, think, repeat };
            Actor::FileReader(reader)
        },
    )
}

fn segment_store() -> impl Strategy<Value = Actor> {
    let write_how = prop_oneof![Just(Fill::Mmap), Just(Fill::Write)];
    let reads = proptest::option::of(1.0..1e6);
    (
        (size(1..700), 1_u32..20, 0_u32..5, any::<bool>(), 0_u32..4, reads, 1_u32..9, locality()),
        (
            hint(),
            0_u32..5,
            write_how,
            size(1..300),
            any::<bool>(),
            proptest::option::of(0_u32..9),
            any::<bool>(),
        ),
    )
        .prop_map(|(what, how)| {
            let (segment, active, garbage, warm, readers, reads, pages_per_read, locality) = what;
            let (advice, writers, write_how, chunk, sync, keep, pool) = how;
            Actor::SegmentStore(SegmentStore {
                segment,
                active: active.max(2),
                garbage,
                warm,
                readers,
                reads,
                think: Time(0),
                compute: Time(u64::from(garbage)),
                pages_per_read: pages_per_read.min(segment.pages() as u32),
                locality,
                advice,
                writers: writers.min(active.max(2)),
                write_how,
                chunk,
                write_rate: sync.then_some(Bandwidth::mib(7)),
                write_pause: Time(u64::from(sync)),
                sync,
                keep,
                pool,
            })
        })
}

fn hold() -> impl Strategy<Value = Option<Time>> {
    proptest::option::of((0_u64..3000).prop_map(Time::ms))
}

fn sessions() -> impl Strategy<Value = Actor> {
    let backing = prop_oneof![
        Just((Sharing::Shm, None)),
        Just((Sharing::ShmHuge, None)),
        Just((Sharing::ShmHugeOrBase, None)),
        proptest::option::of(size(1..5000)).prop_map(|granule| (Sharing::Tmpfs, granule))
    ];
    let rate = proptest::option::of(0.1..1e4);
    (
        (1_u32..6, size(1..3000), backing, 0.0..=1.0, size(1..600)),
        (0.0..=1.0, size(1..600), 0_u64..100, hold(), rate),
        (0_u32..3, any::<bool>(), proptest::option::of((size(1..3000), size(1..600)))),
    )
        .prop_map(|((processes, segment, (backing, granule), touch, stride), more, own)| {
            let (write, chunk, ramp, hold, rate) = more;
            let (background, filled, private) = own;
            let private = private.map(|(size, stride)| Private { size, stride });
            let rate = rate.filter(|_| touch > 0.0);
            Actor::Sessions(Sessions {
                processes,
                background,
                idle: Time::ms(u64::from(background)),
                segment,
                backing,
                granule,
                filled,
                private,
                touch,
                stride,
                write,
                chunk,
                ramp: Time::s(ramp),
                hold,
                rate,
            })
        })
}

fn page_toucher() -> impl Strategy<Value = Actor> {
    let locked = prop_oneof![Just(Locked::No), Just(Locked::Before), Just(Locked::Region)];
    let huge_pages = prop_oneof![Just(HugePages::Default), Just(HugePages::Never), Just(HugePages::Always)];
    let alloc = prop_oneof![Just(Alloc::Mmap), Just(Alloc::PosixMemalign), Just(Alloc::Malloc)];
    (size(9..3000), alloc, locked, huge_pages, 1_u32..9, size(1..600), 0_u32..5, hold()).prop_map(
        |(size, alloc, locked, huge_pages, threads, chunk, repeat, hold)| {
            Actor::PageToucher(PageToucher { size, alloc, locked, huge_pages, threads, chunk, repeat, hold })
        },
    )
}

fn allocator() -> impl Strategy<Value = Actor> {
    let touching = prop_oneof![Just(Touching::AsItGoes), Just(Touching::AtTheEnd)];
    (size(1..3000), size(1..600), 0.0..=1.0, touching, 0_u64..3, hold()).prop_map(
        |(size, chunk, touch, touching, pause, hold)| {
            Actor::Allocator(Allocator { size, chunk, touch, touching, pause: Time(pause), hold })
        },
    )
}

fn any_kind() -> impl Strategy<Value = Actor> {
    prop_oneof![
        app_server(),
        file_writer(),
        file_reader(),
        segment_store(),
        sessions(),
        page_toucher(),
        allocator()
    ]
}

proptest! {
    #[test]
    fn no_stream_does_what_cannot_be(
        actor in any_kind(),
        seed: u64,
        choices: u64,
    ) {
        let text = toml::to_string(&actor).unwrap();
        let (instances, specs, segments) = instances_in(Path::new("."), seed, "actor", &text).unwrap();
        for Instance { threads, .. } in instances {
            prop_assert_eq!(run(threads, &specs, &segments, choices, 300), Ok(()), "{}", text);
        }
    }

    #[test]
    fn what_is_written_reads_back(
        actor in any_kind(),
    ) {
        prop_assert_eq!(&toml::from_str::<Actor>(&toml::to_string(&actor).unwrap()).unwrap(), &actor);
    }

    #[test]
    fn streams_come_from_the_seed_alone(
        actor in any_kind(),
        seed: u64,
    ) {
        let text = toml::to_string(&actor).unwrap();
        let made = || {
            let (instances, specs, segments) = instances_in(Path::new("."), seed, "actor", &text).unwrap();
            let threads = instances.into_iter().flat_map(|instance| instance.threads);
            let streams: Vec<Vec<Op>> = threads.map(|mut thread| ops(&mut thread, 5000)).collect();
            (streams, specs, segments)
        };
        prop_assert_eq!(made(), made());
    }
}

#[test]
fn an_operation_is_three_words() {
    // Streams of hundreds of millions are made and read back: what an operation takes is what they cost.
    assert_eq!(size_of::<Op>(), 24);
}

#[test]
fn seeds_names_and_threads_give_other_streams() {
    let text = "kind = 'app-server'\nheap = '1 GiB'\nthreads = 2";
    let mut seen = BTreeSet::new();
    for (seed, name) in [(1, "a"), (2, "a"), (1, "b")] {
        let (threads, _) = build_in(Path::new("."), seed, name, text).unwrap();
        for mut thread in threads {
            // Past the start.
            let pages: Vec<u32> = ops(&mut thread, 140_000).iter().rev().filter_map(page).take(50).collect();
            seen.insert(pages);
        }
    }
    assert_eq!(seen.len(), 6);
}

fn page(op: &Op) -> Option<u32> {
    match op {
        Op::Touch { page, .. } => Some(*page),
        _ => None,
    }
}

#[test]
fn a_server_fills_its_heap_and_serves() {
    let (threads, specs) = build(
        "kind = 'app-server'\nheap = '10 MiB'\nthreads = 3\ntouches = 5\nwrite = 0.3\ncompute = '7 us'\n\
         think = '1 ms'\nactive = [['1 s', 'end']]",
    );
    assert_eq!(specs.len(), 2);
    let mut filled = vec![0; 2560];
    for (index, mut thread) in threads.into_iter().enumerate() {
        let ops = ops(&mut thread, 60_000);
        let rest = Op::Rest { from: 0, until: 1_000_000_000 };
        let start = ops.iter().position(|op| *op == rest).unwrap();
        let (fill, serve) = ops.split_at(start);
        for op in fill {
            if let Op::Touch { page, write, .. } = op {
                assert!(write);
                filled[*page as usize] += 1;
            }
        }
        assert_eq!(fill.contains(&Op::Mark { mark: 0 }), index == 0);
        assert_eq!(
            fill.iter().filter(|op| matches!(op, Op::MapAnon { .. })).count(),
            usize::from(index == 0)
        );
        for request in serve.chunks_exact(10) {
            assert_eq!(request[..3], [rest, Op::Begin, Op::Compute { ns: 7000 }]);
            assert!(request[3..8].iter().all(|op| matches!(op, Op::Touch { region: RegionId(0), .. })));
            assert_eq!(request[8..], [Op::Done, Op::Sleep { ns: 1_000_000 }]);
        }
        let touches = serve.iter().filter(|op| page(op).is_some()).count() as f64;
        let stores = serve.iter().filter(|op| matches!(op, Op::Touch { write: true, .. })).count() as f64;
        assert!((stores - touches * 0.3).abs() < 4.0 * (touches * 0.3 * 0.7).sqrt(), "{stores} of {touches}");
    }
    assert!(filled.iter().all(|count| *count == 1));
}

#[test]
fn a_collector_loads_what_is_live_whenever_the_room_for_garbage_is_used_up() {
    // 256 pages are live and 64 are for garbage, half of each for a thread: 8 requests of 4 pages.
    let (threads, _) = build(
        "kind = 'app-server'\nheap = '1280 KiB'\nthreads = 2\ntouches = 1\ncompute = '0'\n\
         collector = { live = '1 MiB', garbage = '16 KiB', per-gib = '1 s' }",
    );
    for (index, mut thread) in threads.into_iter().enumerate() {
        let (live, room) = (128 * index as u32, 256 + 32 * index as u32);
        let ops = ops(&mut thread, 2000);
        let begin = ops.iter().position(|op| *op == Op::Begin).unwrap();
        let requests: Vec<&[Op]> = ops[begin..]
            .split_inclusive(|op| *op == Op::Done)
            .filter(|all| all.ends_with(&[Op::Done]))
            .collect();
        for (number, request) in requests.iter().enumerate() {
            let pages = |write| move |op: &Op| matches!(op, Op::Touch { write: w, .. } if *w == write);
            let loads: Vec<u32> =
                request.iter().copied().filter(pages(false)).filter_map(|op| page(&op)).collect();
            let stores: Vec<u32> =
                request.iter().copied().filter(pages(true)).filter_map(|op| page(&op)).collect();
            let traces = number % 8 == 0 && number > 0;
            let expected: Vec<u32> = if traces { (live..live + 128).collect() } else { Vec::new() };
            assert!(loads.starts_with(&expected) && loads.len() <= expected.len() + 1, "request {number}");
            let first = room + 4 * (number as u32 % 8);
            assert_eq!(stores[..4], [first, first + 1, first + 2, first + 3], "request {number}");
            let computed: u64 =
                request.iter().map(|op| if let Op::Compute { ns } = op { *ns } else { 0 }).sum();
            // 128 pages of 262,144 in a GiB.
            assert_eq!(computed / 1000, if traces { 488 } else { 0 }, "request {number}");
        }
    }
}

#[test]
fn data_is_copied_when_it_is_read_and_touched_in_place_when_it_is_mapped() {
    let of = |how: &str| {
        let text = format!(
            "kind = 'app-server'\nheap = '4 KiB'\ntouches = 4\nwrite = 1.0\n\
             data = {{ size = '2 MiB', how = '{how}' }}"
        );
        let (mut threads, specs) = build(&text);
        assert!(specs.iter().any(|file| file.name.ends_with("/data") && file.exists && file.pages == 512));
        ops(&mut threads[0], 3000)
    };
    let stores = |ops: &[Op]| {
        let stored = |op: &&Op| matches!(op, Op::Touch { region: RegionId(1), write: true, .. });
        ops.iter().filter(stored).count()
    };
    let begun = |ops: &[Op]| ops.iter().position(|op| *op == Op::Begin).unwrap();
    let read = of("read");
    let reads = read.iter().filter(|op| matches!(op, Op::Read { len: 1_048_576, how: How::Buffered, .. }));
    assert_eq!((reads.count(), stores(&read[..begun(&read)]), stores(&read[begun(&read)..])), (2, 512, 0));
    let mapped = of("mmap");
    assert!(mapped.iter().any(|op| matches!(op, Op::MapFile { pages: 512, shared: true, .. })));
    assert_eq!((stores(&mapped), mapped.iter().filter(|op| matches!(op, Op::Read { .. })).count()), (0, 0));
    assert!(mapped[begun(&mapped)..].iter().any(|op| matches!(op, Op::Touch { region: RegionId(1), .. })));
}

#[test]
fn a_server_with_a_rate_measures_from_when_requests_are_due() {
    let (threads, _) =
        build("kind = 'app-server'\nheap = '8 KiB'\nthreads = 2\nrate = 1000.0\ntouches = 0\ncompute = '0'");
    let starts = threads.into_iter().map(|mut thread| {
        let ops = ops(&mut thread, 100);
        let begin = ops.iter().position(|op| matches!(op, Op::Pace { .. })).unwrap();
        ops[begin..begin + 6].to_vec()
    });
    let request = |ns| [Op::Pace { ns }, Op::Arrive, Op::Done];
    let expected =
        [[request(0), request(2_000_000)].concat(), [request(1_000_000), request(2_000_000)].concat()];
    assert_eq!(starts.collect::<Vec<_>>(), expected);
}

const KIB64: u32 = 65_536;

#[test]
fn a_writer_writes_like_dd() {
    let job = |more: &str| {
        let text = format!("kind = 'file-writer'\nsize = '160 KiB'\nchunk = '64 KiB'\n{more}");
        ops(&mut build(&text).0[0], usize::MAX)
    };
    let file = FileId(2);
    let write = |offset: u64, len, how| Op::Write { file, offset, len, how };
    let create = Op::Create { file, pages: 40 };
    let mark = Op::Mark { mark: 0 };
    let drop = |offset, len| Op::Advise { file, offset, len, advice: Advice::DontNeed };
    for (how, name) in [(How::Buffered, "buffered"), (How::Direct, "direct")] {
        assert_eq!(
            job(&format!("how = '{name}'\nsync = true")),
            [
                create,
                Op::Begin,
                write(0, KIB64, how),
                Op::Done,
                Op::Begin,
                write(65_536, KIB64, how),
                Op::Done,
                Op::Begin,
                write(131_072, KIB64 / 2, how),
                Op::Done,
                Op::Sync { file },
                mark,
            ]
        );
    }
    assert_eq!(
        job("how = 'dontneed'\nbehind = '100 KiB'\nrate = '64 KiB/s'"),
        [
            create,
            Op::Pace { ns: 0 },
            Op::Begin,
            write(0, KIB64, How::Buffered),
            Op::Done,
            Op::Pace { ns: 1_000_000_000 },
            Op::Begin,
            write(65_536, KIB64, How::Buffered),
            Op::Sync { file },
            drop(0, 2 * KIB64),
            Op::Done,
            Op::Pace { ns: 1_000_000_000 },
            Op::Begin,
            write(131_072, KIB64 / 2, How::Buffered),
            Op::Sync { file },
            drop(131_072, KIB64 / 2),
            Op::Done,
            mark,
        ]
    );
    let mapped = job("how = 'mmap'");
    let region = RegionId(0);
    assert_eq!(mapped[..2], [create, Op::MapFile { region, file, pages: 40, shared: true }]);
    assert_eq!(mapped[mapped.len() - 2..], [Op::Unmap { region }, mark]);
    let touched: Vec<u32> = mapped.iter().filter_map(page).collect();
    assert_eq!(touched, (0..40).collect::<Vec<u32>>());
}

#[test]
fn nothing_to_write_is_nothing_to_do() {
    let (mut threads, _) = build("kind = 'file-writer'\nsize = '0'");
    assert_eq!(threads.len(), 1);
    assert_eq!((threads[0].role, ops(&mut threads[0], 1)), ("writer", vec![]));
}

#[test]
fn a_copy_reads_all_of_its_source_in_proportion() {
    for how in ["buffered", "direct", "dontneed", "mmap"] {
        for (source, from) in [("copy-of = 'data'", 1000), ("source-size = '40 KiB'", 10)] {
            let text =
                format!("kind = 'file-writer'\nsize = '1 MiB'\nchunk = '64 KiB'\nhow = '{how}'\n{source}");
            let (mut threads, _) = build(&text);
            let (mut read, mut written, mut chunks) = (0_u64, 0_u64, 0);
            for op in ops(&mut threads[0], usize::MAX) {
                match op {
                    Op::Read { offset, len, .. } => {
                        assert_eq!(offset, read);
                        read += u64::from(len);
                    }
                    Op::Touch { region: RegionId(1), page, write } => {
                        assert_eq!((u64::from(page) * PAGE, write), (read, false));
                        read += PAGE;
                    }
                    Op::Write { len, .. } => written += u64::from(len),
                    Op::Touch { region: RegionId(0), write: true, .. } => written += PAGE,
                    Op::Done => {
                        chunks += 1;
                        // Within a page of the proportion.
                        assert!((written * from / 256).abs_diff(read) < PAGE, "{written} {read}");
                    }
                    _ => {}
                }
            }
            assert_eq!((read, written, chunks), (from * PAGE, 1 << 20, 16), "{text}");
        }
    }
}

#[test]
fn a_copy_of_today_names_both_files_in_one_call() {
    let text = "kind = 'file-writer'\nsize = '160 KiB'\nchunk = '64 KiB'\nhow = 'copy-file-range'";
    let (mut threads, specs) = build(text);
    let files: Vec<(&str, u32, bool)> =
        specs[2..].iter().map(|spec| (spec.name.as_str(), spec.pages, spec.exists)).collect();
    assert_eq!(files, [("actor/source", 40, true), ("actor/written-0", 40, false)]);
    let (from, to) = (FileId(2), FileId(3));
    let copy = |offset, len| [Op::Begin, Op::CopyRange { from, to, offset, len }, Op::Done];
    let expected = [
        &[
            Op::Create { file: to, pages: 40 },
            Op::Advise { file: from, offset: 0, len: 0, advice: Advice::Sequential },
        ][..],
        &copy(0, 64 << 10),
        &copy(64 << 10, 64 << 10),
        &copy(128 << 10, 32 << 10),
        &[Op::Mark { mark: 0 }],
    ]
    .concat();
    assert_eq!(ops(&mut threads[0], usize::MAX), expected);
    // Of a larger file a part is copied.
    let copied = ops(&mut build(&format!("{text}\ncopy-of = 'data'")).0[0], usize::MAX);
    assert_eq!(copied.iter().filter(|op| matches!(op, Op::CopyRange { from: FileId(0), .. })).count(), 3);
}

#[test]
fn passes_rotate_through_the_files_that_are_kept() {
    let created = |more: &str| -> Vec<u32> {
        let text = format!("kind = 'file-writer'\nsize = '4 KiB'\n{more}");
        let ops = ops(&mut build(&text).0[0], 36);
        let created = ops.iter().filter_map(|op| match op {
            Op::Create { file, .. } => Some(file.0),
            _ => None,
        });
        created.collect()
    };
    assert_eq!(created("repeat = 3"), [2, 2, 2]);
    assert_eq!(created("repeat = 5\nkeep = 1"), [2, 3, 2, 3, 2]);
    assert_eq!(created("repeat = 0\nkeep = 2")[..7], [2, 3, 4, 2, 3, 4, 2]);
}

#[test]
fn a_reader_reads_in_order_or_at_random() {
    let job = |more: &str| {
        let text = format!("kind = 'file-reader'\nfile = 'data'\nchunk = '1600 KiB'\n{more}");
        ops(&mut build(&text).0[0], usize::MAX)
    };
    let file = FileId(0);
    let len = 1600 << 10;
    let read = |offset: u64, len| Op::Read { file, offset, len, how: How::Buffered };
    assert_eq!(
        job("advice = 'sequential'\nhow = 'dontneed'\nbehind = '2 MiB'"),
        [
            Op::Advise { file, offset: 0, len: 0, advice: Advice::Sequential },
            Op::Begin,
            read(0, len),
            Op::Done,
            Op::Begin,
            read(u64::from(len), len),
            Op::Advise { file, offset: 0, len: 2 * len, advice: Advice::DontNeed },
            Op::Done,
            Op::Begin,
            read(2 * u64::from(len), 800 << 10),
            Op::Advise { file, offset: 2 * u64::from(len), len: 800 << 10, advice: Advice::DontNeed },
            Op::Done,
            Op::Mark { mark: 0 },
        ]
    );
    let text = "kind = 'file-reader'\nsize = '40 KiB'\nchunk = '4 KiB'\norder = 'random'\nrepeat = 10000";
    let mut seen = [0_f64; 10];
    for op in ops(&mut build(text).0[0], usize::MAX) {
        if let Op::Read { file: FileId(2), offset, len: 4096, .. } = op {
            seen[(offset / PAGE) as usize] += 1.0;
        }
    }
    assert_eq!(seen.iter().sum::<f64>(), 100_000.0);
    let chi: f64 = seen.iter().map(|n| (n - 10_000.0) * (n - 10_000.0) / 10_000.0).sum();
    assert!(chi < 9.0 + 5.0 * 18_f64.sqrt(), "{seen:?}");
}

#[test]
fn a_store_sets_up_before_it_is_read() {
    let (mut threads, specs) = build(
        "kind = 'segment-store'\nsegment = '8 KiB'\nactive = 2\ngarbage = 1\nwriters = 1\nreaders = 1\nkeep = 0\n\
         warm = true\nadvice = 'random'",
    );
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names[2..], ["actor/segment-0", "actor/segment-1", "actor/garbage-0", "actor/spare-0-0"]);
    let load = |region, page| Op::Touch { region: RegionId(region), page, write: false };
    let map = |region, file| {
        let region = RegionId(region);
        [
            Op::MapFile { region, file: FileId(file), pages: 2, shared: true },
            Op::AdviseRegion { region, advice: Advice::Random },
        ]
    };
    let expected = [
        &map(3, 4)[..],
        &[load(3, 0), load(3, 1), Op::Unmap { region: RegionId(3) }],
        &map(0, 2),
        &[load(0, 0), load(0, 1)],
        &map(1, 3),
        &[load(1, 0), load(1, 1), Op::Signal { stage: 0 }, Op::Mark { mark: 0 }],
    ]
    .concat();
    assert_eq!(ops(&mut threads[0], usize::MAX), expected);
    assert_eq!([threads[0].role, threads[1].role, threads[2].role], ["setup", "reader", "writer"]);
    for thread in &mut threads[1..] {
        assert_eq!(ops(thread, 1)[0], Op::Await { stage: 0, times: 1 });
    }
}

/// What the first writer of a store of ten segments does in its first `segments`: files created, deleted,
/// and overwritten in place, and slots that it replaced.
fn writing(more: &str, segments: usize) -> (Vec<u32>, Vec<u32>, Vec<u32>, Vec<u32>) {
    let text = format!("kind = 'segment-store'\nsegment = '64 KiB'\nactive = 10\nreaders = 0\n{more}");
    let mut threads = build(&text).0;
    let (mut created, mut deleted, mut again, mut slots) = (vec![], vec![], vec![], vec![]);
    let mut fresh = BTreeSet::new();
    for op in ops(&mut threads[1], 30 * segments) {
        if slots.len() == segments {
            break;
        }
        match op {
            Op::Create { file, .. } => {
                created.push(file.0);
                fresh.insert(file);
            }
            Op::Delete { file } => deleted.push(file.0),
            Op::MapFile { region, file, .. } if region.0 >= 10 => {
                again.extend((!fresh.contains(&file)).then_some(file.0));
            }
            Op::MapFile { region, file, .. } => {
                slots.push(region.0);
                fresh.remove(&file);
            }
            _ => {}
        }
    }
    (created, deleted, again, slots)
}

#[test]
fn a_pool_recycles_where_others_delete() {
    let (created, deleted, again, slots) = writing("keep = 3", 1000);
    // Four replacements fill the garbage; from then on each segment that is created deletes another.
    assert_eq!((created.len(), again.len()), (1000, 0));
    assert!((995..=997).contains(&deleted.len()), "{}", deleted.len());
    assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), 10);
    let (created, deleted, again, pooled) = writing("keep = 3\npool = true", 1000);
    assert_eq!((created.len(), deleted.len(), again.len()), (4, 0, 996));
    // The choice of slots is the same: the two can be compared.
    assert_eq!(slots, pooled);
    let (created, _, again, _) = writing("pool = true", 100);
    assert_eq!((created.len(), again.len()), (1, 99));
    let (_, deleted, _, _) = writing("", 100);
    assert_eq!(deleted.len(), 100 - 10 - 1);
}

#[test]
fn writers_share_out_the_slots() {
    let text = "kind = 'segment-store'\nsegment = '4 KiB'\nactive = 7\nreaders = 0\nwriters = 3";
    let mut slots = vec![BTreeSet::new(); 3];
    for (writer, mut thread) in build(text).0.into_iter().skip(1).enumerate() {
        for op in ops(&mut thread, 2000) {
            if let Op::MapFile { region: RegionId(slot @ 0..7), .. } = op {
                slots[writer].insert(slot);
            }
        }
    }
    assert_eq!(slots, [BTreeSet::from([0, 3, 6]), BTreeSet::from([1, 4]), BTreeSet::from([2, 5])]);
}

#[test]
fn a_segment_is_whole_before_it_is_used() {
    for how in ["mmap", "write"] {
        let text = format!(
            "kind = 'segment-store'\nsegment = '100 KiB'\nactive = 3\nreaders = 0\nchunk = '16 KiB'\n\
             write-how = '{how}'\nsync = true"
        );
        let mut threads = build(&text).0;
        let (mut next, mut synced, mut segments) = (0_u64, false, 0);
        for op in ops(&mut threads[1], 1000) {
            match op {
                Op::Touch { region: RegionId(3), page, write: true } => {
                    assert_eq!(u64::from(page) * PAGE, next);
                    next += PAGE;
                }
                Op::Write { offset, len, .. } => {
                    assert_eq!(offset, next);
                    next += u64::from(len);
                }
                Op::Sync { .. } => synced = true,
                Op::MapFile { region: RegionId(0..3), .. } => {
                    assert_eq!((next, synced), (100 << 10, true));
                    (next, synced) = (0, false);
                    segments += 1;
                }
                _ => {}
            }
        }
        assert!(segments > 5, "{segments}");
    }
}

#[test]
fn reads_are_spread_as_their_locality_says() {
    let counts = |more: &str| {
        let text = format!("kind = 'segment-store'\nsegment = '64 KiB'\nactive = 8\nwriters = 0\n{more}");
        let mut counts = [0_f64; 128];
        for op in ops(&mut build(&text).0[1], 384_000) {
            if let Op::Touch { region, page, .. } = op {
                counts[(region.0 * 16 + page) as usize] += 1.0;
            }
        }
        counts
    };
    let chi = |counts: &[f64; 128]| {
        let mean = counts.iter().sum::<f64>() / 128.0;
        counts.iter().map(|n| (n - mean) * (n - mean) / mean).sum::<f64>()
    };
    let uniform = chi(&counts(""));
    assert!(uniform < 127.0 + 5.0 * 254_f64.sqrt(), "{uniform}");
    assert!(chi(&counts("locality = { zipf = 0.5 }")) > 5000.0);
    // A read of three pages never runs out of its segment, and its first page can be any that leaves room.
    let (mut threads, _) =
        build("kind = 'segment-store'\nsegment = '64 KiB'\nactive = 8\nwriters = 0\npages-per-read = 3");
    let ops = ops(&mut threads[1], 100_000);
    let mut starts = BTreeSet::new();
    for request in ops[1..].chunks_exact(5) {
        let [
            Op::Begin,
            Op::Touch { region: a, page, .. },
            Op::Touch { region: b, page: second, .. },
            _,
            Op::Done,
        ] = request
        else {
            panic!("{request:?}")
        };
        assert_eq!((a, page + 1), (b, *second));
        starts.insert(*page);
    }
    assert_eq!(starts, (0..14).collect::<BTreeSet<u32>>());
}

/// Pages that a stream touches, in its order.
fn touched(ops: &[Op]) -> Vec<u32> {
    ops.iter().filter_map(page).collect()
}

#[test]
fn sessions_attach_one_segment_one_after_the_other() {
    let (instances, _, segments) = instances_in(
        Path::new("."),
        1,
        "db",
        "kind = 'sessions'\nprocesses = 4\nsegment = '40 KiB'\nbacking = 'tmpfs'\ngranule = '16 KiB'\n\
         touch = 0.75\nchunk = '12 KiB'\nramp = '10 s'\nhold = '3 s'",
    )
    .unwrap();
    let backing = SegmentBacking::Tmpfs { granule_pages: 4 };
    assert_eq!(segments, [SegmentSpec { name: "db/segment".to_owned(), pages: 10, backing, memlock: None }]);
    let delays: Vec<u64> = instances.iter().map(|instance| instance.delay / 1_000_000).collect();
    assert_eq!(delays, [0, 2500, 5000, 7500]);
    for mut instance in instances {
        let [thread] = &mut instance.threads[..] else { panic!("{instance:?}") };
        assert_eq!((thread.role, &thread.marks[..]), ("session", &MARKS.map(str::to_owned)[..]));
        let ops = ops(thread, 1000);
        let region = RegionId(0);
        let touch = |page| Op::Touch { region, page, write: true };
        assert_eq!(ops[..2], [Op::Attach { region, segment: SegmentId(0) }, Op::Mark { mark: 0 }]);
        assert_eq!(ops[2..7], [Op::Begin, touch(0), touch(1), touch(2), Op::Done]);
        assert_eq!(touched(&ops), (0..8).collect::<Vec<u32>>());
        let end = [Op::Done, Op::Mark { mark: 1 }, Op::Sleep { ns: 3_000_000_000 }, Op::Mark { mark: 2 }];
        assert_eq!(ops[ops.len() - 4..], end);
    }
}

#[test]
fn sessions_touch_at_strides_and_while_they_stay() {
    let (mut instances, _, segments) = instances_in(
        Path::new("."),
        1,
        "db",
        "kind = 'sessions'\nprocesses = 1\nsegment = '9 MiB'\nbacking = 'shm-huge'\nstride = '2 MiB'\n\
         write = 0.0\nhold = '10 s'\nrate = 100.0",
    )
    .unwrap();
    assert_eq!(segments[0].backing, SegmentBacking::ShmHuge { or_base: false });
    let ops = ops(&mut instances[0].threads[0], 100_000);
    assert!(!ops.iter().any(|op| matches!(op, Op::Touch { write: true, .. })));
    let all = touched(&ops);
    assert_eq!(all[..5], [0, 512, 1024, 1536, 2048]);
    // Ten seconds hold 1000 dates; the last one is the end.
    assert_eq!(all.len(), 5 + 1000);
    assert!(all.iter().all(|page| page % 512 == 0 && *page <= 2048));
    let paced: u64 = ops.iter().map(|op| if let Op::Pace { ns } = op { *ns } else { 0 }).sum();
    assert_eq!(paced, 10_000_000_000);
    assert_eq!(ops.iter().filter(|op| **op == Op::Done).count(), 5);
    assert_eq!(ops[ops.len() - 1], Op::Mark { mark: 2 });
}

#[test]
fn an_instance_has_processes_and_memory_of_its_own() {
    let (instances, _, _) = instances_in(
        Path::new("."),
        1,
        "db",
        "kind = 'sessions'\nprocesses = 2\nbackground = 2\nsegment = '40 KiB'\nfilled = true\ntouch = 0.2\n\
         private = { size = '5 MiB', stride = '2 MiB' }\nidle = '7 s'\nramp = '10 s'\nhold = '3 s'",
    )
    .unwrap();
    let delays: Vec<u64> = instances.iter().map(|instance| instance.delay / 1_000_000_000).collect();
    assert_eq!(delays, [0, 0, 7, 12]);
    for (number, mut instance) in instances.into_iter().enumerate() {
        let ops = ops(&mut instance.threads[0], 1000);
        let (region, advice) = (RegionId(1), Advice::NoHugePage);
        assert_eq!(ops[..2], [Op::MapAnon { region, pages: 1280 }, Op::AdviseRegion { region, advice }]);
        let attach = ops.iter().position(|op| matches!(op, Op::Attach { .. })).unwrap();
        let attached = ops.iter().position(|op| *op == Op::Mark { mark: 0 }).unwrap();
        assert_eq!(touched(&ops[..attach]), [0, 512, 1024]);
        let all: Vec<u32> = if number == 0 { (0..10).collect() } else { Vec::new() };
        assert_eq!(touched(&ops[attach..attached]), all);
        assert_eq!(touched(&ops[attached..]), [0, 1]);
        let stays = ops.contains(&Op::Sleep { ns: 3_000_000_000 });
        assert_eq!(stays, number >= 2, "the others stay to the end");
    }
}

#[test]
fn memory_of_the_c_library_has_headers() {
    let new_pages = |alloc: &str| -> [usize; 3] {
        let (mut threads, _) =
            build(&format!("kind = 'page-toucher'\nsize = '4 MiB'\nalloc = '{alloc}'\nhold = '1 s'"));
        let ops = ops(&mut threads[0], 100_000);
        let mapped = ops.iter().position(|op| *op == Op::Mark { mark: 0 }).unwrap();
        let before: BTreeSet<u32> = touched(&ops[..mapped]).into_iter().collect();
        let after: BTreeSet<u32> = touched(&ops[mapped..]).into_iter().collect();
        let size = ops.iter().find_map(|op| match op {
            Op::MapAnon { pages, .. } => Some(*pages as usize),
            _ => None,
        });
        [before.len(), after.difference(&before).count(), size.unwrap()]
    };
    assert_eq!(new_pages("mmap"), [0, 1024, 1024]);
    // As glibc 2.36 has it by the kernel's count: 1,025 faults before, 1,024 and 4 after.
    assert_eq!(new_pages("posix-memalign"), [1025, 1024, 2049]);
    assert_eq!(new_pages("malloc"), [1025, 4, 1029]);
}

#[test]
fn pages_are_touched_once_by_all_threads_together() {
    let mut touches = vec![0; 2560];
    let (threads, _) = build("kind = 'page-toucher'\nsize = '10 MiB'\nthreads = 3\nrepeat = 2\nhold = '1 s'");
    for (index, mut thread) in threads.into_iter().enumerate() {
        let ops = ops(&mut thread, 10_000);
        for page in touched(&ops) {
            touches[page as usize] += 1;
        }
        let passes: Vec<u32> = ops
            .iter()
            .filter_map(|op| match op {
                Op::Await { stage: 1, times } => Some(*times),
                _ => None,
            })
            .collect();
        assert_eq!(passes, [3, 6]);
        let marks = ops.iter().filter(|op| matches!(op, Op::Mark { .. })).count();
        assert_eq!((marks, thread.marks.len()), if index == 0 { (3, 2) } else { (0, 0) });
        assert_eq!(ops[ops.len() - 1], Op::Sleep { ns: 1_000_000_000 });
    }
    assert!(touches.iter().all(|count| *count == 2));
}

#[test]
fn memory_is_locked_and_advised_before_it_is_touched() {
    let region = RegionId(0);
    let map = Op::MapAnon { region, pages: 2 };
    let advise = |advice| Op::AdviseRegion { region, advice };
    let start = |more: &str| {
        let (mut threads, _) = build(&format!("kind = 'page-toucher'\nsize = '8 KiB'\n{more}"));
        let ops = ops(&mut threads[0], 100);
        let mapped = ops.iter().position(|op| *op == Op::Mark { mark: 0 }).unwrap();
        let touch = |page| Op::Touch { region, page, write: true };
        let rest = [
            Op::Mark { mark: 0 },
            Op::Signal { stage: 0 },
            Op::Begin,
            touch(0),
            touch(1),
            Op::Done,
            Op::Mark { mark: 1 },
            Op::Rest { from: 0, until: u64::MAX },
        ];
        assert_eq!(ops[mapped..], rest);
        ops[..mapped].to_vec()
    };
    assert_eq!(start(""), [map, advise(Advice::NoHugePage)]);
    assert_eq!(start("huge-pages = 'default'"), [map]);
    assert_eq!(
        start("huge-pages = 'always'\nlocked = 'before'"),
        [Op::LockAll, map, advise(Advice::HugePage)]
    );
    assert_eq!(start("locked = 'region'"), [map, advise(Advice::NoHugePage), Op::Lock { region }]);
}

#[test]
fn an_allocator_asks_for_all_and_touches_a_share() {
    let made = |more: &str| {
        let (mut threads, _) =
            build(&format!("kind = 'allocator'\nsize = '36 KiB'\nchunk = '16 KiB'\nhold = '0'\n{more}"));
        ops(&mut threads[0], 100)
    };
    let map = |region, pages| [Op::Begin, Op::MapAnon { region: RegionId(region), pages }, Op::Done];
    let touch = |region, page| Op::Touch { region: RegionId(region), page, write: true };
    let sleep = Op::Sleep { ns: 1000 };
    let [a, b, c] = [map(0, 4), map(1, 4), map(2, 1)];
    assert_eq!(made(""), [&a[..], &b, &c, &[Op::Mark { mark: 0 }]].concat());
    assert_eq!(
        made("touch = 0.5\npause = '1 us'"),
        [
            &a[..],
            &[touch(0, 0), touch(0, 1), sleep],
            &b,
            &[touch(1, 0), touch(1, 1), sleep],
            &c,
            &[touch(2, 0), sleep, Op::Mark { mark: 0 }, Op::Mark { mark: 1 }],
        ]
        .concat()
    );
    assert_eq!(
        made("touch = 0.5\ntouching = 'at-the-end'"),
        [
            &a[..],
            &b,
            &c,
            &[Op::Mark { mark: 0 }, touch(0, 0), touch(0, 1), touch(1, 0), touch(1, 1), touch(2, 0)],
            &[Op::Mark { mark: 1 }],
        ]
        .concat()
    );
}

#[test]
fn impossible_parameters_are_refused() {
    for (text, error) in [
        ("kind = 'app-server'\nheap = '0'", "heap: is 0; it must be at least one page of 4 KiB"),
        ("kind = 'app-server'\nheap = '16 TiB'", "heap: is 16 TiB; it must be below 16 TiB"),
        (
            "kind = 'app-server'\nheap = '1 G'\nthreads = 1000000000",
            "threads: is 1000000000; it may be 1 to 16384",
        ),
        ("kind = 'app-server'\nheap = '1 G'\nwrite = 1.5", "write: is 1.5; it may be 0 to 1"),
        (
            "kind = 'app-server'\nheap = '1 GiB'\ncollector = { live = '1 GiB' }",
            "collector: live is 1 GiB, and the heap is to have room for garbage beside it",
        ),
        (
            "kind = 'app-server'\nheap = '1 GiB'\nthreads = 4\ncollector = { live = '1023 MiB', garbage = '1 MiB' }",
            "collector: garbage is 1 MiB, and 4 threads share the 1 MiB that are not live",
        ),
        (
            "kind = 'app-server'\nheap = '1 GiB'\nobject = '1 MiB'\ncollector = { live = '64 KiB' }",
            "object: does not fit into what is live, 64 KiB",
        ),
        (
            "kind = 'app-server'\nheap = '1 G'\nrate = 1.0\nthink = '1 s'",
            "think: has no meaning with `rate`; give one of them",
        ),
        ("kind = 'app-server'\nheap = '1 G'\nrate = -1.0", "rate: is -1 per second; it may be 0.001 to 1e9"),
        ("kind = 'file-writer'\nsize = '1 G'\nchunk = '2 G'", "chunk: is 2 GiB; it may be 1 B to 1 GiB"),
        (
            "kind = 'file-writer'\nsize = '1 G'\nchunk = '512 B'\nhow = 'direct'",
            "chunk: is 512 B; with how = \"direct\" it must be a multiple of 4 KiB",
        ),
        (
            "kind = 'file-writer'\nsize = '1 B'\nhow = 'mmap'",
            "size: is 1 B; with how = \"mmap\" it must be a multiple of 4 KiB",
        ),
        (
            "kind = 'file-writer'\nsize = '1 G'\nhow = 'dontneed'\nbehind = '0'",
            "behind: is 0; it must be at least 1 B with how = \"dontneed\"",
        ),
        ("kind = 'file-writer'\nsize = '1 G'\nrate = '0'", "rate: is 0; leave it out for no limit"),
        (
            "kind = 'file-writer'\nsize = '1 G'\ncopy-of = 'x'",
            "copy-of: the scenario has no file \"x\"; declare it as a [[file]]",
        ),
        (
            "kind = 'file-writer'\nsize = '1 G'\ncopy-of = 'later'",
            "copy-of: the file \"later\" has no contents when the run begins",
        ),
        (
            "kind = 'file-writer'\nsize = '1 M'\nsource-size = '1 T'",
            "source-size: what is read may be at most 1000 times `size`",
        ),
        (
            "kind = 'file-writer'\nsize = '1 M'\nsource-size = '1 T'\ncopy-of = 'data'",
            "source-size: has no meaning with `copy-of`; give one of them",
        ),
        (
            "kind = 'file-reader'",
            "file: is missing: name a file of the scenario, or give `size` for a file of the actor's own",
        ),
        (
            "kind = 'file-reader'\nfile = 'data'\nsize = '1 M'",
            "size: has no meaning with `file`; give one of them",
        ),
        ("kind = 'segment-store'\nactive = 0", "active: is 0; it may be 1 to 1048576"),
        (
            "kind = 'segment-store'\nactive = 1\ngarbage = 1048576",
            "kind: the program has more than 1048576 files",
        ),
        (
            "kind = 'segment-store'\nactive = 1\nwriters = 2",
            "writers: is 2; it may be at most `active`, so that each has a slot of its own",
        ),
        (
            "kind = 'segment-store'\nactive = 1\nsegment = '4 KiB'\npages-per-read = 2",
            "pages-per-read: is 2; it may be 1 to 1",
        ),
        (
            "kind = 'file-writer'\nsize = '5 MiB'\nhow = 'copy-file-range'\ncopy-of = 'data'",
            "copy-of: is smaller than `size`, all of which how = \"copy-file-range\" copies",
        ),
        (
            "kind = 'file-reader'\nfile = 'data'\nhow = 'copy-file-range'",
            "how: is \"copy-file-range\", which copies a file: only a file-writer has a second one",
        ),
        ("kind = 'sessions'\nprocesses = 0\nsegment = '1 G'", "processes: is 0; it may be 1 to 16384"),
        (
            "kind = 'sessions'\nprocesses = 1\nsegment = '1 G'\ngranule = '4 MiB'",
            "granule: has a meaning with backing = \"tmpfs\" only",
        ),
        (
            "kind = 'sessions'\nprocesses = 1\nsegment = '1 G'\nramp = '101 s'",
            "ramp: is 101 s, but the actor has 100 s from its start to its end",
        ),
        (
            "kind = 'sessions'\nprocesses = 1\nsegment = '1 G'\nramp = '50 s'\nidle = '51 s'",
            "idle: is 51 s before a ramp of 50 s, but the actor has 100 s from its start to its end",
        ),
        (
            "kind = 'sessions'\nprocesses = 16000\nbackground = 400\nsegment = '1 G'",
            "background: is 400 beside 16000 processes; together they may be 16384",
        ),
        (
            "kind = 'sessions'\nprocesses = 1\nsegment = '1 G'\nprivate = { size = '0' }",
            "private.size: is 0; it must be at least one page of 4 KiB",
        ),
        (
            "kind = 'sessions'\nprocesses = 1\nsegment = '1 G'\ntouch = 0.0\nrate = 1.0",
            "rate: has no meaning with touch = 0",
        ),
        (
            "kind = 'sessions'\nprocesses = 1\nsegment = '1 G'\nstride = '0'",
            "stride: is 0; it must be at least one page of 4 KiB",
        ),
        ("kind = 'page-toucher'\nsize = '8 KiB'\nthreads = 3", "threads: is 3; it may be 1 to 2"),
        (
            "kind = 'page-toucher'\nsize = '9 TiB'\nalloc = 'posix-memalign'",
            "size: is 9 TiB; with its headers it must be below 16 TiB",
        ),
        (
            "kind = 'allocator'\nsize = '1 TiB'",
            "chunk: is 1 MiB, of which `size` has 1048576; it may have 65000",
        ),
        (
            "kind = 'segment-store'\nactive = 3\nsegment = '8 TiB'\nlocality = { zipf = 1.0 }",
            "locality: other than \"uniform\" needs active segments of less than 16 TiB together",
        ),
    ] {
        assert_eq!(refused(text), error, "{text}");
    }
    for (text, part) in [
        ("kind = 'app-server'\nheap = '1 G'\nheep = 1", "unknown field `heep`, expected one of `heap`"),
        ("kind = 'app-server'", "missing field `heap`"),
        ("kind = 'server'", "unknown variant `server`, expected one of `app-server`, `file-writer`"),
        (
            "kind = 'file-writer'\nsize = '1 G'\nhow = 'fast'",
            "unknown variant `fast`, expected one of `buffered`",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_command_is_executed_as_often_as_it_is_told_with_pauses_between() {
    let text = "kind = \"exec\"\ncommand = [\"tar\", \"-c\"]\ntimes = 2\npause = \"3 s\"";
    let (mut threads, _) = build(text);
    let once = [Op::Begin, Op::Exec { command: CommandId(0) }, Op::Done];
    let expected = [&once[..], &[Op::Sleep { ns: 3_000_000_000 }], &once].concat();
    assert_eq!(ops(&mut threads[0], 100), expected);
}

#[test]
fn a_command_that_no_host_could_execute_is_refused() {
    for (keys, error) in [
        ("command = []", "command: is empty; it must name a program"),
        ("command = [\"\"]", "command: names \"\"; it must be a name, or a path from / on"),
        ("command = [\"bin/x\"]", "command: names \"bin/x\"; it must be a name, or a path from / on"),
        ("command = [\"a\", \"b\\u0000c\"]", "command: has a null byte in \"b\\0c\"; no word can have one"),
        ("command = [\"a\"]\nuser = \"root\"", "user: is \"root\"; it must be another user than root"),
        ("command = [\"a\"]\ntimes = 0", "times: is 0; it may be 1 to 1000000"),
    ] {
        assert_eq!(refused(&format!("kind = \"exec\"\n{keys}")), error);
    }
}

#[test]
fn an_administrator_sets_the_pool_as_often_as_he_is_told() {
    let text = "kind = \"pool\"\npages = 300\ntimes = 2\npause = \"1 s\"";
    let once = [Op::Begin, Op::SetPool { pages: 300 }, Op::Done];
    let expected = [&once[..], &[Op::Sleep { ns: 1_000_000_000 }], &once].concat();
    let (mut threads, _) = build(text);
    assert_eq!(ops(&mut threads[0], 100), expected);
    assert_eq!(
        refused("kind = \"pool\"\npages = 2000000000"),
        "pages: is 2000000000; it may be at most 1073741824"
    );
    assert_eq!(refused("kind = \"pool\"\npages = 3\ntimes = 0"), "times: is 0; it may be 1 to 1000000");
}
