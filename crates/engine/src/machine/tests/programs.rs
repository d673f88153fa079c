//! Programs whose course can be worked out by hand.

use lotsfree_kernel_files::counters::vmstat;
use lotsfree_workload::{FileId, How, PACE_GRAIN_NS, RegionId};

use super::*;

const REGION: RegionId = RegionId(0);

fn touches(pages: u32) -> Vec<Op> {
    (0..pages).map(|page| Op::Touch { region: REGION, page, write: true }).collect()
}

#[test]
fn a_cpu_is_shared() {
    for (cpus, threads, factor) in [(2, 2, 1), (1, 2, 2), (2, 6, 3), (1, 1, 1)] {
        let mut config = config();
        config.mm.cpus = cpus;
        let ops = [Op::Begin, Op::Compute { ns: 7 * MS }, Op::Done];
        let threads = (0..threads).map(|_| thread("worker", &ops, 10)).collect();
        let told = run(config, program(&[], vec![process("a", threads)]), S);
        let end = told.when(EventKind::Exit)[0];
        let expected = 70 * MS * factor;
        assert!(end.abs_diff(expected) < expected / 50, "{cpus} CPUs: {end}, not {expected}");
        let spent = told.spent("worker");
        assert_eq!(spent.user, told.operations("worker") * 7 * MS);
        let longest = told.of("worker").filter_map(|row| row.latency.max()).max().unwrap();
        assert!(longest <= 8 * MS * factor, "{longest}");
    }
}

#[test]
fn more_threads_do_not_cut_the_same_work_into_more_pieces() {
    // Whatever the number of threads, two CPUs work for a minute.
    let events = |threads: u32| {
        let ops = [Op::Begin, Op::Compute { ns: 3 * MS }, Op::Done];
        let threads = (0..threads).map(|_| thread("worker", &ops, u32::MAX)).collect();
        let config = MachineConfig { interval: 60 * S, ..config() };
        let mut machine = Machine::new(config, program(&[], vec![process("a", threads)]));
        let mut told = Told::default();
        machine.run(60 * S, &mut told, &mut |_| ControlFlow::Continue(())).unwrap();
        check(&machine, &told);
        machine.queue.entered()
    };
    let (few, many) = (events(40), events(4000));
    assert!(many < few * 11 / 10, "{few} events with 40 threads, {many} with 4000");
}

#[test]
fn sleepers_leave_the_cpu_to_others() {
    let mut config = config();
    config.mm.cpus = 1;
    let busy = thread("busy", &[Op::Begin, Op::Compute { ns: MS }, Op::Done], 100);
    let idle = |_| thread("idle", &[Op::Sleep { ns: 50 * MS }, Op::Compute { ns: 1000 }], 4);
    let threads = std::iter::once(busy).chain((0..10).map(idle)).collect();
    let told = run(config, program(&[], vec![process("a", threads)]), S);
    let waited = told.spent("busy").runnable;
    assert!(waited < 5 * MS, "{waited}");
}

#[test]
fn a_sleep_takes_as_long_beside_others_as_alone() {
    let wakeup = config().mm.costs.wakeup;
    let sleeper = || thread("sleeper", &[Op::Begin, Op::Sleep { ns: 10_000 }, Op::Done], 1000);
    let pacer = || thread("other", &[Op::Pace { ns: 7_777 }, Op::Compute { ns: 50 }], 5000);
    for threads in [vec![sleeper()], vec![sleeper(), pacer()]] {
        let told = run(config(), program(&[], vec![process("a", threads)]), S);
        assert_eq!(told.operations("sleeper"), 1000);
        for row in told.of("sleeper").filter(|row| row.operations > 0) {
            assert_eq!(
                (row.latency.min(), row.latency.max()),
                (Some(10_000 + wakeup), Some(10_000 + wakeup))
            );
        }
        assert_eq!(told.spent("sleeper").idle, 10_000_000);
    }
}

#[test]
fn a_sleep_is_late_by_its_slack_on_average_and_takes_cpu_time() {
    let mut config = config();
    (config.mm.costs.slack, config.mm.costs.sleep) = (50_000, 4000);
    let costs = config.mm.costs;
    let sleeper = thread("sleeper", &[Op::Begin, Op::Sleep { ns: MS }, Op::Done], 2000);
    let told = run(config, program(&[], vec![process("a", vec![sleeper])]), 4 * S);
    let (operations, spent) = (told.operations("sleeper"), told.spent("sleeper"));
    assert_eq!((operations, spent.system), (2000, 2000 * costs.sleep));
    let late = spent.idle / operations - MS;
    assert!(late.abs_diff(costs.slack) < costs.slack / 20, "{late}");
    let longest = told.of("sleeper").filter_map(|row| row.latency.max()).max().unwrap();
    assert!(longest <= MS + 2 * costs.slack + costs.wakeup + costs.sleep, "{longest}");
}

#[test]
fn a_paced_thread_catches_up_and_its_requests_are_late() {
    let ops = [Op::Pace { ns: MS }, Op::Arrive, Op::Compute { ns: 10_000 }, Op::Done];
    let late = [Op::Pace { ns: MS }, Op::Arrive, Op::Compute { ns: 5 * MS }, Op::Done];
    let all = [&ops[..], &late, &ops, &ops, &ops, &ops, &ops].concat();
    let told = run(config(), program(&[], vec![process("a", vec![thread("r", &all, 20)])]), S);
    assert_eq!(told.operations("r"), 140);
    // The request after the long one had to wait for it: four milliseconds.
    let latency = |share| told.rows[0].latency.quantile(share).unwrap();
    assert!((4 * MS..6 * MS).contains(&latency(0.95)), "{}", latency(0.95));
    assert!(latency(0.1) < 20_000);
    assert_eq!(told.when(EventKind::Exit)[0] / MS, 140);
}

#[test]
fn rest_is_for_its_time_only() {
    let ops = [Op::Rest { from: 100 * MS, until: 300 * MS }, Op::Pace { ns: 10 * MS }, Op::Begin, Op::Done];
    let told = run(config(), program(&[], vec![process("a", vec![thread("r", &ops, 30)])]), S);
    let operations: Vec<u64> = told.of("r").map(|row| row.operations).collect();
    // The rest lets the request end that was under way when it began, and no other.
    assert_eq!((operations[1], operations[2]), (1, 0));
    assert_eq!(operations.iter().sum::<u64>(), 30);
    let end = told.when(EventKind::Exit)[0];
    // A date within a moment is not slept for.
    assert!((500 * MS - PACE_GRAIN_NS..502 * MS).contains(&end), "{end}");
}

#[test]
fn threads_wait_for_stages() {
    let worker = |ns| thread("worker", &[Op::Compute { ns }, Op::Signal { stage: 3 }], 1);
    let waiter = thread("waiter", &[Op::Await { stage: 3, times: 2 }, Op::Mark { mark: 1 }], 1);
    let never = thread("never", &[Op::Await { stage: 3, times: 3 }, Op::Mark { mark: 0 }], 1);
    let threads = vec![waiter, worker(5 * MS), worker(20 * MS), never];
    let told = run(config(), program(&[], vec![process("a", threads)]), S);
    let marks: Vec<_> = told.events.iter().filter(|event| event.kind == EventKind::Mark).collect();
    assert_eq!(marks.len(), 1);
    assert_eq!((marks[0].what.as_str(), marks[0].actor.as_deref()), ("second", Some("a")));
    assert!((20 * MS..21 * MS).contains(&marks[0].at), "{}", marks[0].at);
}

#[test]
fn an_endless_stream_of_nothing_ends_with_the_run() {
    for ops in [vec![Op::Compute { ns: 0 }], vec![Op::SleepUntil { at: 0 }], vec![Op::Begin; 100]] {
        let told =
            run(config(), program(&[], vec![process("a", vec![thread("r", &ops, u32::MAX)])]), 50 * MS);
        assert_eq!(told.when(EventKind::Note).len(), 1);
        assert_eq!(told.spent("r").user, 50 * MS);
    }
}

#[test]
fn errors_are_counted_and_told_once() {
    let bad = [
        Op::Touch { region: RegionId(7), page: 0, write: false },
        Op::Unmap { region: RegionId(u32::MAX) },
        Op::MapAnon { region: RegionId(u32::MAX), pages: 1 },
        Op::Read { file: FileId(9), offset: 0, len: 1, how: How::Buffered },
        Op::Delete { file: FileId(1) },
        Op::Mark { mark: 2 },
        Op::Signal { stage: u32::MAX },
        Op::Done,
    ];
    let told = run(config(), program(&[(10, true)], vec![process("a", vec![thread("r", &bad, 5)])]), S);
    assert_eq!(told.errors("r"), 40);
    assert_eq!(told.when(EventKind::Error).len(), 2);
}

#[test]
fn a_full_disk_is_told_once() {
    let mut config = config();
    config.disk_pages = 300;
    let write = |page: u64| Op::Write { file: FileId(5), offset: page * 4096, len: 4096, how: How::Buffered };
    let mut ops = vec![Op::Create { file: FileId(5), pages: 1000 }];
    ops.extend((0..400).map(write));
    let told = run(config, program(&[(100, true)], vec![process("a", vec![thread("r", &ops, 1)])]), S);
    assert_eq!(told.errors("r"), 200);
    assert_eq!(told.when(EventKind::Full).len(), 1);
}

/// Who is killed when memory runs out for the last of three, of which the second is the largest, with an
/// adjustment for each.
fn victims(config: MachineConfig, adjustments: [i32; 3]) -> (Vec<String>, Told) {
    let grow = |pages| {
        let mut ops = vec![Op::MapAnon { region: REGION, pages }];
        ops.extend(touches(pages));
        ops
    };
    let mut small = grow(1000);
    small.push(Op::Sleep { ns: 10 * S });
    let mut large = grow(5500);
    large.push(Op::Sleep { ns: 10 * S });
    let mut late = vec![Op::Sleep { ns: S / 2 }];
    late.extend(grow(3500));
    late.push(Op::Mark { mark: 0 });
    let mut processes = vec![
        process("small", vec![thread("r", &small, 1)]),
        process("large", vec![thread("r", &large, 1), thread("second", &[Op::Sleep { ns: MS }], 5000)]),
        process("late", vec![thread("r", &late, 1)]),
    ];
    for (process, adjustment) in processes.iter_mut().zip(adjustments) {
        process.oom_score_adj = adjustment;
    }
    let told = run(config, program(&[], processes), 3 * S);
    let kills = told.events.iter().filter(|event| event.kind == EventKind::OomKill);
    (kills.filter_map(|event| event.actor.clone()).collect(), told)
}

#[test]
fn memory_runs_out_for_the_largest() {
    let (killed, told) = victims(config(), [0; 3]);
    assert_eq!(killed, ["large"]);
    assert_eq!(told.samples.last().unwrap().vmstat.get(vmstat::oom_kill), Some(1));
    // Whoever asked gets the memory in the end.
    assert_eq!(
        (told.errors("r"), told.when(EventKind::Mark).len(), told.when(EventKind::Exit).len()),
        (0, 1, 2)
    );
}

#[test]
fn a_victim_may_ask_with_any_of_its_threads() {
    // The second thread of the only process takes more than there is, while the first one sleeps.
    let first = [Op::Sleep { ns: 10 * S }];
    let mut second = vec![Op::MapAnon { region: REGION, pages: 15_000 }];
    second.extend(touches(15_000));
    second.push(Op::Mark { mark: 0 });
    let process = process("a", vec![thread("first", &first, 1), thread("second", &second, 1)]);
    let told = run(config(), program(&[], vec![process]), 3 * S);
    assert_eq!(told.when(EventKind::OomKill).len(), 1);
    assert_eq!((told.when(EventKind::Exit).len(), told.when(EventKind::Mark).len()), (1, 0));
}

#[test]
fn an_adjustment_and_a_setting_say_who_is_killed() {
    assert_eq!(victims(config(), [1000, 0, 0]).0, ["small", "large"], "the small one has too little");
    assert_eq!(victims(config(), [0, -1000, 0]).0, ["late"]);
    let mut asker = config();
    asker.mm.tuning.oom_kill_allocating_task = true;
    assert_eq!(victims(asker, [0; 3]).0, ["late"]);
    let (killed, told) = victims(config(), [-1000; 3]);
    assert!(killed.is_empty());
    assert!(told.events.last().unwrap().what.starts_with("Kernel panic"), "{:?}", told.events);
    assert!(told.samples.last().unwrap().at < 3 * S, "the run ends");
}

#[test]
fn reading_is_as_fast_as_the_disk() {
    let pages = 8192;
    let read =
        |index: u64| Op::Read { file: FileId(0), offset: index << 17, len: 1 << 17, how: How::Buffered };
    let ops: Vec<Op> = (0..u64::from(pages) / 32).map(read).collect();
    let told =
        run(config(), program(&[(pages, true)], vec![process("a", vec![thread("r", &ops, 1)])]), 2 * S);
    let end = told.when(EventKind::Exit)[0];
    // 32 MiB at 100 MiB/s.
    assert!((320 * MS..400 * MS).contains(&end), "{end}");
    let spent = told.spent("r");
    assert!(spent.io > 200 * MS && spent.user == 0, "{spent:?}");
}

#[test]
fn direct_reads_at_random_are_bound_by_the_rate_of_the_disk() {
    let read = |index: u64| Op::Read {
        file: FileId(0),
        offset: (index * 977 % 8192) * 4096,
        len: 4096,
        how: How::Direct,
    };
    let ops: Vec<Op> = (0..200).flat_map(|index| [Op::Begin, read(index), Op::Done]).collect();
    let readers = |count| (0..count).map(|_| thread("r", &ops, 10)).collect();
    // A single reader waits for the disk's millisecond and the latency each time; eight keep the disk busy.
    for (count, expected) in [(1, 900), (8, 1000)] {
        let told = run(config(), program(&[(8192, true)], vec![process("a", readers(count))]), S);
        let operations = told.operations("r");
        assert!(operations.abs_diff(expected) < 30, "{count} readers: {operations}");
    }
}

#[test]
fn a_process_ends_when_its_time_is_over() {
    let ops = [Op::MapAnon { region: REGION, pages: 1000 }, Op::Sleep { ns: 10 * S }];
    let mut short =
        process("a", vec![thread("r", &ops, 1), thread("w", &[Op::Compute { ns: MS }], u32::MAX)]);
    (short.start, short.stop) = (100 * MS, Some(250 * MS));
    let mut never = process("b", vec![thread("r", &ops, 1)]);
    (never.start, never.stop) = (200 * MS, Some(150 * MS));
    let told = run(config(), program(&[], vec![short, never]), S);
    assert_eq!(told.when(EventKind::Start), [100 * MS]);
    let exits = told.when(EventKind::Exit);
    assert!(exits.len() == 1 && (250 * MS..252 * MS).contains(&exits[0]), "{exits:?}");
    let life = total(&told.spent("w"));
    assert!((150 * MS..151 * MS + MS).contains(&life), "{life}");
}

#[test]
fn a_run_that_stops_is_good_up_to_there() {
    let busy = || program(&[], vec![process("a", vec![thread("r", &[Op::Compute { ns: MS }], u32::MAX)])]);
    let mut told = Told::default();
    let stop = |now| if now >= 300 * MS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let end = Machine::new(config(), busy()).run(S, &mut told, &mut { stop }).unwrap();
    assert_eq!(end, super::super::End::Stopped(300 * MS));
    let times: Vec<u64> = told.samples.iter().map(|sample| sample.at).collect();
    assert_eq!(times, [0, 100 * MS, 200 * MS, 300 * MS]);
    let rows: Vec<_> = told.rows.iter().map(|row| (row.from, row.at, total(&row.spent))).collect();
    assert_eq!(rows, [0, 1, 2].map(|n| (n * 100 * MS, (n + 1) * 100 * MS, 100 * MS)));
    let whole = run(config(), busy(), 330 * MS);
    assert_eq!(whole.samples.last().unwrap().at, 330 * MS);
    assert_eq!(whole.rows[..3], told.rows);
}

#[test]
fn a_run_goes_on_where_it_was() {
    let ops = [Op::MapAnon { region: REGION, pages: 64 }, Op::Begin, Op::Compute { ns: 33_333 }, Op::Done];
    let make = || Machine::new(config(), program(&[], vec![process("a", vec![thread("r", &ops, 5000)])]));
    let go = |machine: &mut Machine, until, told: &mut Told| {
        machine.run(until, told, &mut |_| ControlFlow::Continue(())).unwrap();
    };
    let (mut whole, mut parts) = (Told::default(), Told::default());
    go(&mut make(), 400 * MS, &mut whole);
    let mut machine = make();
    [100, 200, 400].iter().for_each(|&until| go(&mut machine, until * MS, &mut parts));
    assert_eq!(format!("{whole:?}"), format!("{parts:?}"));
}

/// Reads a file of `pages` pages from its beginning to its end.
fn read_all(file: u32, pages: u64) -> Vec<Op> {
    let read = |index| Op::Read { file: FileId(file), offset: index << 17, len: 1 << 17, how: How::Buffered };
    (0..pages / 32).map(read).collect()
}

#[test]
fn who_reads_again_what_was_evicted_pays_and_who_reads_something_new_takes() {
    for kernel in ["linux-3.0", "linux-4.4", "linux-6.1", "linux-6.12+mglru"] {
        let mut config = config();
        config.mm.generation = Generation::named(kernel).unwrap();
        let mut hot = read_all(0, 8192);
        hot.push(Op::Sleep { ns: 2 * S });
        let mut stream = vec![Op::Sleep { ns: S / 2 }];
        stream.extend(read_all(1, 32768));
        let processes = vec![
            process("hot", vec![thread("hot", &hot, 2)]),
            process("stream", vec![thread("stream", &stream, 1)]),
        ];
        let told = run(config, program(&[(8192, true), (32768, true)], processes), 5 * S);
        let (hot, stream) = (told.toll("hot"), told.toll("stream"));
        assert_eq!((hot.allocated, hot.returned), (8192 + hot.refaults, 0), "{kernel}");
        assert!(hot.refaults > 4096, "{kernel}: {hot:?}");
        // Most pages of a window are there before they are asked for.
        let io = told.of("hot").filter(|row| row.from > 2 * S).map(|row| row.spent.io).sum::<u64>();
        assert!(hot.thrashing > 0 && hot.thrashing <= io && hot.swap_in == 0, "{kernel}: {hot:?}, {io}");
        let expected = Toll { allocated: 32768, ..Toll::default() };
        assert_eq!(stream, expected, "{kernel}");
    }
}

#[test]
fn what_a_process_holds_is_counted_once_and_given_back_in_the_end() {
    let mut ops = vec![Op::MapAnon { region: REGION, pages: 1000 }];
    ops.extend(touches(1000));
    ops.push(Op::Sleep { ns: S });
    let idle = [Op::Sleep { ns: 500 * MS }];
    let threads = vec![thread("first", &idle, 1), thread("second", &ops, 1)];
    let told = run(config(), program(&[], vec![process("a", threads)]), 2 * S);
    let held: Vec<u64> = told.of("first").map(|row| row.toll.held).collect();
    assert!(held[..9].iter().all(|held| *held == 1000) && held[11..].iter().all(|held| *held == 0));
    assert!(told.of("second").all(|row| row.toll.held == 0));
    let expected = Toll { allocated: 1000, returned: 1000, ..Toll::default() };
    assert_eq!(told.toll("second"), expected);
}

#[test]
fn pages_of_a_deleted_file_are_given_back_before_the_device_has_written_them() {
    let mut config = config();
    config.disk.latency = S;
    let write = Op::Write { file: FileId(0), offset: 0, len: 1000 << 12, how: How::Buffered };
    let writer = [write, Op::Sync { file: FileId(0) }];
    let deleter = [Op::Sleep { ns: 100 * MS }, Op::Delete { file: FileId(0) }];
    let threads = vec![thread("writer", &writer, 1), thread("deleter", &deleter, 1)];
    let told = run(config, program(&[(1000, false)], vec![process("a", threads)]), 500 * MS);
    assert_eq!(told.toll("writer").allocated, 1000);
    assert_eq!(told.toll("deleter").returned, 1000);
}

#[test]
fn who_needs_pages_that_are_on_swap_waits_for_them() {
    let mut config = config();
    // Room for all pages twice over: those on their way to swap have a place there and in memory.
    config.mm.swap_pages = 32768;
    let mut ops = vec![Op::MapAnon { region: REGION, pages: 10_000 }];
    (0..3).for_each(|_| {
        ops.extend(touches(10_000).into_iter().flat_map(|touch| [touch, Op::Compute { ns: 100_000 }]))
    });
    let processes = vec![process("a", vec![thread("a", &ops, 1)]), process("b", vec![thread("b", &ops, 1)])];
    let told = run(config, program(&[], processes), 20 * S);
    for role in ["a", "b"] {
        let toll = told.toll(role);
        assert!(toll.refaults > 1000 && toll.swap_in > 0 && toll.thrashing == 0, "{toll:?}");
        assert_eq!(toll.allocated, 10_000 + toll.refaults);
    }
    for rows in told.rows.chunks(2) {
        assert!(rows[0].toll.held + rows[1].toll.held <= 16384);
    }
}
