//! Random operations on random machines; the whole state is checked after every step.

use lotsfree_engine::mm::{
    Config, Cx, Fadvise, Fault, Kswapd, Lock, Madvise, Mm, RaState, Read, SetPool, Stop, Write, ZramConfig,
    ZswapConfig, ZswapWorker,
};
use lotsfree_engine::{Costs, Generation, NAMES, Tuning};
use lotsfree_scenario::{Filesystem, Zpool};
use lotsfree_settings::{
    DIRTY_BACKGROUND_RATIO, DIRTY_RATIO, LAPTOP_MODE, MIN_FREE_KBYTES, NR_HUGEPAGES, OVERCOMMIT_MEMORY,
    OVERCOMMIT_RATIO, PAGE_CLUSTER, PAGECACHE_LIMIT_IGNORE_DIRTY, PAGECACHE_LIMIT_MB, READ_AHEAD_KB,
    SWAPPINESS, Value, WATERMARK_BOOST_FACTOR, ZONE_RECLAIM_MODE,
};
use lotsfree_units::PageSize;
use lotsfree_workload::quantity::Size;
use lotsfree_workload::{Advice, How, Huge, Limit, Limits, Memory, Policy, RegionId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const FILES: usize = 3;
const TASKS: usize = 4;
const REGIONS: u32 = 3;
/// Sizes of a page; most machines are PCs.
const PAGES: [u64; 5] = [4096, 4096, 4096, 16_384, 65_536];

/// The operations of a task.
#[derive(Clone, Debug)]
enum Op {
    MapAnon { region: u32, pages: u32 },
    MapFile { region: u32, file: usize, shared: bool },
    MapWithPages { region: u32, pages: u32 },
    Attach { region: u32, segment: usize },
    Unmap { region: u32 },
    Touch { region: u32, from: u32, count: u32, stride: u32, write: bool },
    Read { file: usize, offset: u64, len: u32, how: How },
    Write { file: usize, offset: u64, len: u32, how: How },
    Sync { file: usize },
    Advise { file: usize, offset: u64, len: u64, advice: Advice },
    AdviseRegion { region: u32, advice: Advice },
    Lock { region: Option<u32> },
    SetPool { pages: u64 },
    Truncate { file: usize, pages: u32 },
    Delete { file: usize },
    Exit,
    Exec,
}

#[derive(Clone, Debug)]
enum Step {
    /// A task begins an operation, or continues the one that it has not finished.
    Run(usize, Op),
    Kswapd(usize),
    Flusher,
    /// zswap's worker.
    Zswap,
    /// Some of the requests under way complete.
    Complete(Vec<Index>),
    /// Time passes, in ms.
    Pass(u64),
}

#[derive(Clone, Debug)]
struct Plan {
    generation: &'static str,
    page: PageSize,
    nodes: Vec<u64>,
    cpus: u32,
    distance: u32,
    swap: u64,
    zram: Option<ZramConfig>,
    zswap: Option<ZswapConfig>,
    rotational: bool,
    filesystem: Filesystem,
    /// Files have metadata, if the file system is ext4.
    mounted: bool,
    instant: bool,
    huge: bool,
    sysctls: Vec<(&'static str, Value)>,
    policies: Vec<Policy>,
    memory: Vec<Memory>,
    files: Vec<(u32, bool)>,
    steps: Vec<Step>,
}

fn op() -> impl Strategy<Value = Op> {
    use Advice::{DontNeed, Normal, Random, Sequential, WillNeed};
    let advice = || select(vec![Normal, Sequential, Random, WillNeed, DontNeed, DontNeed]);
    let how = || prop_oneof![9 => Just(How::Buffered), 1 => Just(How::Direct)];
    let (region, file) = (|| 0..REGIONS, || 0..FILES);
    let pages = || prop_oneof![1..64u32, 64..3000u32];
    let len = || prop_oneof![1..9000u32, 9000..4_000_000u32];
    let offset = || prop_oneof![Just(0u64), 0..4_000_000u64, (0..2000u64).prop_map(|page| page * 4096)];
    prop_oneof![
        4 => (region(), pages()).prop_map(|(region, pages)| Op::MapAnon { region, pages }),
        2 => (region(), pages()).prop_map(|(region, pages)| Op::MapWithPages { region, pages }),
        3 => (region(), file(), any::<bool>())
            .prop_map(|(region, file, shared)| Op::MapFile { region, file, shared }),
        3 => (region(), 0..3usize).prop_map(|(region, segment)| Op::Attach { region, segment }),
        1 => region().prop_map(|region| Op::Unmap { region }),
        16 => (region(), 0..200u32, pages(), 1..4u32, any::<bool>()).prop_map(
            |(region, from, count, stride, write)| Op::Touch { region, from, count, stride, write }
        ),
        8 => (file(), offset(), len(), how())
            .prop_map(|(file, offset, len, how)| Op::Read { file, offset, len, how }),
        8 => (file(), offset(), len(), how())
            .prop_map(|(file, offset, len, how)| Op::Write { file, offset, len, how }),
        2 => file().prop_map(|file| Op::Sync { file }),
        3 => (file(), offset(), 0..4_000_000u64, advice())
            .prop_map(|(file, offset, len, advice)| Op::Advise { file, offset, len, advice }),
        3 => (region(), prop_oneof![2 => advice(), 1 => Just(Advice::HugePage)])
            .prop_map(|(region, advice)| Op::AdviseRegion { region, advice }),
        1 => prop::option::weighted(0.9, region()).prop_map(|region| Op::Lock { region }),
        2 => prop_oneof![0..4u64, 4..16u64].prop_map(|pages| Op::SetPool { pages }),
        1 => (file(), pages()).prop_map(|(file, pages)| Op::Truncate { file, pages }),
        1 => file().prop_map(|file| Op::Delete { file }),
        1 => Just(Op::Exit),
        1 => Just(Op::Exec),
    ]
}

fn memory() -> impl Strategy<Value = Memory> {
    let limit = || {
        prop_oneof![8 => Just(None), 1 => Just(Some(Limit::Unlimited)), 3 => (0..8000u64)
        .prop_map(|kib| Some(Limit::At(Size::kib(kib))))]
    };
    let limits = (limit(), limit(), limit()).prop_map(|(memlock, address_space, data)| Limits {
        memlock,
        address_space,
        data,
    });
    let huge = prop_oneof![4 => Just(Huge::No), 1 => Just(Huge::Transparent), 1 => Just(Huge::Pool)];
    (prop::bool::weighted(0.1), prop::bool::weighted(0.2), huge, limits)
        .prop_map(|(locked, populate, huge, limits)| Memory { locked, populate, huge, limits })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..TASKS, op()).prop_map(|(task, op)| Step::Run(task, op)),
        3 => (0..2usize).prop_map(Step::Kswapd),
        2 => Just(Step::Flusher),
        3 => Just(Step::Zswap),
        5 => vec(any::<Index>(), 1..30).prop_map(Step::Complete),
        2 => prop_oneof![1..20u64, 20..40_000u64].prop_map(Step::Pass),
    ]
}

fn sysctls() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let one = |key: &'static str, values: Vec<u64>| {
        prop_oneof![Just(None), select(values).prop_map(move |value| Some((key, Value::Number(value))))]
    };
    let settings = (
        one(SWAPPINESS, vec![0, 1, 60, 100]),
        one(ZONE_RECLAIM_MODE, vec![0, 1, 3, 7]),
        one(MIN_FREE_KBYTES, vec![64, 256, 1024]),
        one(PAGECACHE_LIMIT_MB, vec![1, 4]),
        one(PAGECACHE_LIMIT_IGNORE_DIRTY, vec![0, 1, 2]),
        one(PAGE_CLUSTER, vec![0, 3, 5]),
        one(DIRTY_RATIO, vec![1, 5, 40]),
        one(DIRTY_BACKGROUND_RATIO, vec![1, 5]),
        one(LAPTOP_MODE, vec![0, 5]),
        one(READ_AHEAD_KB, vec![0, 128, 1024]),
        (
            one(WATERMARK_BOOST_FACTOR, vec![0, 150_000]),
            one(NR_HUGEPAGES, vec![1, 2, 3]),
            one(OVERCOMMIT_MEMORY, vec![0, 1, 2]),
            one(OVERCOMMIT_RATIO, vec![50, 100, 500]),
        ),
    );
    settings.prop_map(|(a, b, c, d, e, f, g, h, i, j, (k, l, m, n))| {
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n].into_iter().flatten().collect()
    })
}

fn plan() -> impl Strategy<Value = Plan> {
    let node = || prop_oneof![9 => 300..1500u64, 1 => 4100..6000u64];
    let policy = select(vec![
        Policy::Local,
        Policy::Preferred(1),
        Policy::Bind(vec![0]),
        Policy::Bind(vec![1]),
        Policy::Interleave(vec![0, 1]),
    ]);
    let zram = (1..4200u32, prop_oneof![Just(0), 1..300u64])
        .prop_map(|(object_bytes, limit_pages)| ZramConfig { object_bytes, limit_pages });
    let zpool = select(vec![Zpool::Zbud, Zpool::Zsmalloc]);
    let zswap = (1..4200u32, zpool, prop_oneof![1..10u32, 10..=100u32], 1..=100u32).prop_map(
        |(object_bytes, zpool, max_pool_percent, accept_threshold_percent)| ZswapConfig {
            object_bytes,
            zpool,
            max_pool_percent,
            accept_threshold_percent,
        },
    );
    let compressed = prop_oneof![
        4 => Just((None, None)),
        3 => zram.prop_map(|zram| (Some(zram), None)),
        3 => zswap.prop_map(|zswap| (None, Some(zswap))),
    ];
    let machine = (
        (select(NAMES.to_vec()), select(PAGES.to_vec())),
        vec(node(), 1..3),
        1..4u32,
        select(vec![20u32, 40]),
        prop_oneof![Just(0), 1..300u64, 300..3000u64],
        compressed,
        any::<bool>(),
        select(Filesystem::ALL.to_vec()),
        any::<bool>(),
        (prop::bool::weighted(0.2), prop::bool::weighted(0.3)),
        sysctls(),
    );
    let file = (prop_oneof![1..100u32, 100..2000u32], any::<bool>());
    let work = (vec(policy, 2), vec(memory(), 2), vec(file, FILES), vec(step(), 1..60));
    (machine, work).prop_map(|(machine, (policies, memory, files, steps))| {
        let (
            (generation, page),
            nodes,
            cpus,
            distance,
            swap,
            (zram, zswap),
            rotational,
            filesystem,
            mounted,
            (instant, huge),
            sysctls,
        ) = machine;
        Plan {
            generation,
            page: PageSize::new(page).expect("a page size"),
            nodes,
            cpus,
            distance,
            swap,
            zram,
            zswap,
            rotational,
            filesystem,
            mounted,
            instant,
            huge,
            sysctls,
            policies,
            memory,
            files,
            steps,
        }
    })
}

/// A call that has begun and not ended.
#[derive(Debug)]
enum Call {
    Fault(Fault),
    Read(Read),
    Write(Write),
    Fadvise(Fadvise),
    Madvise(Madvise),
    Lock(Lock),
    Pool(SetPool),
    /// One whose progress is the machine's state.
    Other,
}

/// A task with its current operation, and how far that has got.
struct Task {
    op: Option<Op>,
    call: Option<Call>,
    at: u32,
    ra: [RaState; FILES],
}

struct Machine {
    mm: Mm,
    tasks: Vec<Task>,
    files: Vec<u32>,
    sizes: Vec<u32>,
    segments: Vec<u32>,
    under_way: Vec<u64>,
    now: u64,
    cpus: usize,
    nodes: usize,
    kswapd: Vec<(usize, Kswapd)>,
    flusher: usize,
    zswap: (usize, ZswapWorker),
    processes: usize,
}

impl Machine {
    fn new(plan: &Plan) -> Self {
        let mut tuning = Tuning { transparent_hugepage: Some(plan.huge), ..Tuning::default() };
        for (key, value) in &plan.sysctls {
            tuning.set(key, value).expect("a value in range");
        }
        let count = plan.nodes.len();
        let distance = |a: usize, b: usize| if a == b { 10 } else { plan.distance };
        let of_page = |bytes: u32| bytes << (plan.page.shift() - PageSize::X86.shift());
        let config = Config {
            generation: Generation::named(plan.generation).expect("a generation"),
            cpus: plan.cpus,
            page: plan.page,
            nodes: plan.nodes.clone(),
            distance: (0..count).map(|a| (0..count).map(|b| distance(a, b)).collect()).collect(),
            tuning,
            swap_pages: plan.swap,
            rotational: plan.rotational,
            swap_rotational: plan.rotational,
            kernel_pages: Some(vec![50 / count as u64; count]),
            committed: 0,
            others_pgtable_pages: 7,
            settled: 1_000_000_000,
            reserved_pages: None,
            pagesets: Vec::new(),
            swap_on_disk: false,
            zram: plan.zram.map(|zram| ZramConfig { object_bytes: of_page(zram.object_bytes), ..zram }),
            zswap: plan.zswap.map(|zswap| ZswapConfig { object_bytes: of_page(zswap.object_bytes), ..zswap }),
            filesystem: plan.filesystem,
            instant_reads: plan.instant,
            costs: Costs::default(),
        };
        let mut mm = Mm::new(&config);
        if plan.mounted {
            mm.mount(1 << 15);
        }
        let fits = |policy: &Policy| match policy {
            Policy::Local => true,
            Policy::Preferred(node) => (*node as usize) < count,
            Policy::Bind(nodes) | Policy::Interleave(nodes) => {
                nodes.iter().all(|node| (*node as usize) < count)
            }
        };
        for (policy, memory) in plan.policies.iter().zip(&plan.memory) {
            let process = mm.create_process(if fits(policy) { policy.clone() } else { Policy::Local });
            mm.set_memory(process, *memory);
            if memory.locked {
                let _ = mm.lock_from_start(process);
            }
        }
        let tasks = (0..TASKS).map(|_| {
            mm.create_task();
            Task { op: None, call: None, at: 0, ra: [RaState::default(); FILES] }
        });
        let tasks = tasks.collect();
        let kswapd = (0..count).map(|node| (mm.create_task(), Kswapd::new(node))).collect();
        let flusher = mm.create_task();
        let zswap = (mm.create_task(), ZswapWorker::default());
        let files = plan.files.iter().map(|&(pages, exists)| mm.declare_file(pages, exists)).collect();
        // The last is of huge pages, if the pool has them.
        let small = [(700, true), (3000, false)].map(|(pages, sysv)| mm.create_segment(pages, sysv));
        let segments = small.into_iter().chain([mm.create_huge_segment(600)]).flatten().collect();
        Machine {
            mm,
            tasks,
            files,
            segments,
            sizes: plan.files.iter().map(|file| file.0).collect(),
            under_way: Vec::new(),
            now: 0,
            cpus: plan.cpus as usize,
            nodes: count,
            kswapd,
            flusher,
            zswap,
            processes: plan.policies.len(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Run(task, op) => self.run(*task, op),
            Step::Kswapd(node) => {
                let node = node % self.nodes;
                let (task, kswapd) = &mut self.kswapd[node];
                let mut cx = Cx::new(*task, node % self.cpus, usize::MAX, self.now);
                kswapd.poll(&mut self.mm, &mut cx);
                self.now = cx.now();
            }
            Step::Flusher => {
                let mut cx = Cx::new(self.flusher, 0, usize::MAX, self.now);
                self.mm.flusher(&mut cx);
                self.now = cx.now();
            }
            Step::Zswap => {
                let mut cx = Cx::new(self.zswap.0, 0, usize::MAX, self.now);
                self.zswap.1.poll(&mut self.mm, &mut cx);
                self.now = cx.now();
            }
            Step::Complete(which) => {
                for index in which {
                    if !self.under_way.is_empty() {
                        let id = self.under_way.swap_remove(index.index(self.under_way.len()));
                        self.mm.complete(id, self.now);
                    }
                }
            }
            Step::Pass(ms) => self.now += ms * 1_000_000,
        }
        self.news();
    }

    fn news(&mut self) {
        self.under_way.extend(self.mm.take_io().map(|io| {
            assert!(io.pages > 0, "{io:?}");
            io.id
        }));
        drop(self.mm.take_events());
    }

    fn run(&mut self, number: usize, new: &Op) {
        let task = &mut self.tasks[number];
        let op = task.op.get_or_insert_with(|| new.clone()).clone();
        let mut cx = Cx::new(number, number % self.cpus, number % self.processes, self.now);
        let outcome = self.perform(&mut cx, number, &op);
        self.now = cx.now();
        let task = &mut self.tasks[number];
        match outcome {
            Err(Stop::Wait(_)) => {}
            _ => (task.op, task.call, task.at) = (None, None, 0),
        }
    }

    fn perform(&mut self, cx: &mut Cx, number: usize, op: &Op) -> Result<(), Stop> {
        let (mm, task) = (&mut self.mm, &mut self.tasks[number]);
        match *op {
            Op::MapAnon { region, pages } => mm.map_anon(cx, RegionId(region), pages),
            Op::MapFile { region, file, shared } => {
                mm.map_file(cx, RegionId(region), self.files[file], self.sizes[file], shared)
            }
            Op::MapWithPages { region, pages } => {
                match task.call.get_or_insert_with(|| Call::Lock(Lock::mmap(RegionId(region), pages))) {
                    Call::Lock(lock) => lock.poll(mm, cx),
                    other => panic!("{other:?} instead of a mapping"),
                }
            }
            Op::Attach { region, segment } => {
                let segment = self.segments.get(segment).ok_or(Stop::Bad)?;
                mm.attach(cx, RegionId(region), *segment)
            }
            Op::Unmap { region } => mm.unmap(cx, RegionId(region)),
            Op::Touch { region, from, count, stride, write } => {
                while task.at < count {
                    let page = from + task.at * stride;
                    let new = || Call::Fault(Fault::new(RegionId(region), page, write));
                    match task.call.get_or_insert_with(new) {
                        Call::Fault(fault) => fault.poll(mm, cx)?,
                        other => panic!("{other:?} instead of a fault"),
                    }
                    task.call = None;
                    task.at += 1;
                }
                Ok(())
            }
            Op::Read { file, offset, len, how } => {
                match task.call.get_or_insert_with(|| Call::Read(Read::new(offset, len, how))) {
                    Call::Read(read) => read.poll(mm, cx, self.files[file], &mut task.ra[file]),
                    other => panic!("{other:?} instead of a read"),
                }
            }
            Op::Write { file, offset, len, how } => {
                match task.call.get_or_insert_with(|| Call::Write(Write::new(offset, len, how))) {
                    Call::Write(write) => write.poll(mm, cx, self.files[file]),
                    other => panic!("{other:?} instead of a write"),
                }
            }
            Op::Sync { file } => {
                task.call = Some(Call::Other);
                mm.sync(cx, self.files[file])
            }
            Op::Advise { file, offset, len, advice } => {
                match task.call.get_or_insert_with(|| Call::Fadvise(Fadvise::new(offset, len, advice))) {
                    Call::Fadvise(fadvise) => fadvise.poll(mm, cx, self.files[file], &mut task.ra[file]),
                    other => panic!("{other:?} instead of advice"),
                }
            }
            Op::SetPool { pages } => match task.call.get_or_insert_with(|| Call::Pool(SetPool::new(pages))) {
                Call::Pool(set) => set.poll(mm, cx),
                other => panic!("{other:?} instead of a pool"),
            },
            Op::Lock { region } => {
                let new = || region.map_or_else(Lock::mlockall, |region| Lock::mlock(RegionId(region)));
                match task.call.get_or_insert_with(|| Call::Lock(new())) {
                    Call::Lock(lock) => lock.poll(mm, cx),
                    other => panic!("{other:?} instead of a lock"),
                }
            }
            Op::AdviseRegion { region, advice } => {
                match task.call.get_or_insert_with(|| Call::Madvise(Madvise::new(RegionId(region), advice))) {
                    Call::Madvise(madvise) => madvise.poll(mm, cx),
                    other => panic!("{other:?} instead of advice on a region"),
                }
            }
            Op::Truncate { file, pages } => {
                self.files[file] = mm.truncate(cx, self.files[file], pages);
                self.sizes[file] = pages;
                Ok(())
            }
            Op::Delete { file } => mm.delete_file(cx, self.files[file]),
            Op::Exit => {
                mm.exit(cx);
                Ok(())
            }
            Op::Exec => {
                mm.exec(cx, 1 + number % 2);
                Ok(())
            }
        }
    }

    /// Ends everything; nothing may be left behind.
    fn clear(&mut self) {
        for task in 0..=self.zswap.0 {
            self.mm.end_plug(task);
        }
        for process in 0..self.processes {
            self.mm.exit(&mut Cx::new(0, 0, process, self.now));
        }
        for &file in &self.files {
            let _ = self.mm.delete_file(&mut Cx::new(0, 0, 0, self.now), file);
        }
        for &segment in &self.segments {
            self.mm.remove_segment(&mut Cx::new(0, 0, 0, self.now), segment);
        }
        self.news();
        while let Some(id) = self.under_way.pop() {
            self.mm.complete(id, self.now);
            self.news();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 3000, ..ProptestConfig::default() })]

    #[test]
    fn the_state_holds_together_after_every_step(plan in plan()) {
        let mut machine = Machine::new(&plan);
        use lotsfree_kernel_files::counters::meminfo as m;
        let of_others = machine.mm.meminfo().get(m::PageTables);
        for (number, step) in plan.steps.iter().enumerate() {
            machine.step(step);
            if let Err(why) = machine.mm.check() {
                prop_assert!(false, "after step {number}, {step:?}: {why}");
            }
        }
        machine.clear();
        if let Err(why) = machine.mm.check() {
            prop_assert!(false, "after everybody left: {why}");
        }
        let meminfo = machine.mm.meminfo();
        for empty in [m::AnonPages, m::AnonHugePages, m::Mlocked, m::Mapped, m::Shmem, m::SwapCached, m::Writeback] {
            // Old kernels do not have all lines.
            let lacks = empty == m::AnonHugePages && meminfo.get(empty).is_none();
            prop_assert!(lacks || meminfo.get(empty) == Some(0), "{:?}", empty);
        }
        // Those of other programs stay.
        prop_assert_eq!(meminfo.get(m::PageTables), of_others);
        // Metadata stay, of which the allocator's two pages for the only group are no buffers.
        let buffers = meminfo.get(m::Buffers).unwrap_or_default();
        let mounted = plan.mounted && plan.filesystem == Filesystem::Ext4 && plan.page == PageSize::X86;
        let bounds = if mounted {
            [(m::Cached, 8), (m::Dirty, buffers), (m::Active, buffers + 8)]
        } else {
            [(m::Cached, 0), (m::Dirty, 0), (m::Active, 0)]
        };
        for (counter, most) in bounds {
            prop_assert!(meminfo.get(counter) <= Some(most), "{:?}, {} buffers", counter, buffers);
        }
        prop_assert_eq!(meminfo.get(m::SwapFree), meminfo.get(m::SwapTotal));
        prop_assert_eq!(meminfo.get(m::Committed_AS), Some(0));
    }
}
