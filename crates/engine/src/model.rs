//! From a scenario's case to a machine that runs it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use lotsfree_run::{Facts, NodeFacts, Sink, Window, WriteError};
use lotsfree_scenario::{Case, Errors, KernelMemory, Occupied, SwapOn};
use lotsfree_settings::Value;
use lotsfree_units::words::duration;
use lotsfree_units::{Bytes, PageSize};
use lotsfree_workload::FileSpec;
use lotsfree_workload::actor::Actor;
use lotsfree_workload::quantity::Size;
use thiserror::Error;

use crate::generation::Generation;
use crate::machine::{DeviceSpec, End, Machine, MachineConfig, SwapDevice};
use crate::mm::{self, Lack, Mm, ZramConfig, ZswapConfig};
use crate::tuning::Tuning;

/// Rate of a device whose scenario does not limit its requests per second.
const NO_LIMIT: u64 = 0;

/// Why a case could not be run.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// The scenario asks for something that the model does not have.
    #[error(transparent)]
    Scenario(#[from] Errors),
    /// The scenario uses more memory at once than the model can with pages of this size.
    #[error(
        "{} after the beginning, more than {} of memory are in use, which is the most that the model can have in use",
        duration(*.0 as f64 / 1e9),
        .1.of(mm::MOST_FRAMES)
    )]
    Memory(u64, PageSize),
    /// A shared segment cannot be made, as the kernel promises too little.
    #[error(
        "{segment}: shmget fails, as at most {} may be promised where `vm.overcommit_memory` is {mode}",
        .most
    )]
    Promise {
        /// The segment's name.
        segment: String,
        /// The largest that can be made.
        most: Bytes,
        /// `vm.overcommit_memory`
        mode: u64,
    },
    /// A shared segment of huge pages cannot be made.
    #[error(
        "{segment}: shmget fails, as the pool of huge pages lacks {lacks}: of the {} that `vm.nr_hugepages` asks for there \
         was room for {total}",
        .wanted
    )]
    HugePages {
        /// The segment's name.
        segment: String,
        /// Huge pages that are not there.
        lacks: u64,
        /// Those that the pool has.
        total: u64,
        /// Those that were asked for.
        wanted: u64,
    },
    /// A shared segment of huge pages may not be made.
    #[error(
        "{segment}: shmget fails with EPERM: a process with `limits.memlock` has no `CAP_IPC_LOCK`, and may use huge pages only \
         where that limit is as large as the segment and the kernel is 5.15 or older"
    )]
    Permission {
        /// The segment's name.
        segment: String,
    },
    /// The run could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Runs a case to its end, or until `progress`, which gets the simulated time in nanoseconds, says to stop.
///
/// # Errors
/// If the scenario asks for something that the model does not have, or the sink fails.
pub fn simulate(
    case: &Case,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<End, SimulateError> {
    let config = config(case)?;
    let (wanted, mode) = (config.mm.tuning.nr_hugepages, config.mm.tuning.overcommit as u64);
    let (page, pgtables) = (case.machine.page(), config.mm.others_pgtable_pages);
    let mut machine = Machine::new(config, case.program()?);
    let there = machine.others_pgtables();
    if there < pgtables {
        let (asked, there) = (page.of(pgtables), page.of(there));
        let why = format!(
            "is {asked}, and only {there} of the kernel's memory is in zones (`kernel` less `reserved`)"
        );
        return Err(case.refuse("machine.page-tables", why).into());
    }
    if let Some((segment, lack)) = machine.lacks() {
        let (segment, total) = (segment.to_owned(), machine.huge_pages().total);
        return Err(match lack {
            Lack::HugePages(lacks) => SimulateError::HugePages { segment, lacks, total, wanted },
            Lack::Permission => SimulateError::Permission { segment },
            Lack::Promise(pages) => {
                SimulateError::Promise { segment, most: case.machine.page().of(pages), mode }
            }
        });
    }
    match machine.run(case.duration.ns(), sink, progress)? {
        End::Stopped(at) if machine.is_exhausted() => Err(SimulateError::Memory(at, case.machine.page())),
        end => Ok(end),
    }
}

/// The configuration of a case's machine.
///
/// # Errors
/// If the model does not know a setting, if a calibration record is missing, or if the model does not execute
/// an actor's kind.
pub fn config(case: &Case) -> Result<MachineConfig, Errors> {
    for actor in &case.actors {
        if actor.kind.executes() {
            let why = "the model executes no real command; `lotsfree lab --on cgroup --allow-exec` does";
            return Err(case.refuse(&format!("actor.{}.kind", actor.name), why));
        }
    }
    for actor in &case.actors {
        if let Actor::Sessions(sessions) = &actor.kind
            && case.machine.page().pages_for(sessions.segment.0) >= mm::MOST_FRAMES
        {
            let why = format!(
                "is as much as the model can have in use: {}",
                case.machine.page().of(mm::MOST_FRAMES)
            );
            return Err(case.refuse(&format!("actor.{}.segment", actor.name), why));
        }
    }
    let name = case.machine.generation.to_string();
    let generation = Generation::named(&name)
        .ok_or_else(|| case.refuse("machine.generation", format!("the model has no rules for {name}")))?;
    let mut tuning = Tuning::of(&generation);
    for (key, setting) in case.tuning.iter() {
        tuning.set(key, setting).map_err(|why| case.refuse(&format!("tuning.{key}"), why))?;
    }
    let (_, costs) = case.costs()?;
    let machine = &case.machine;
    if machine.kernel == Some(KernelMemory::Measured) {
        let why = "no measurement of this machine was given; `lotsfree sim --calibration RECORD` of a record that \
                   has `[machine]`, or `--like RUN`, tells it";
        return Err(case.refuse("machine.kernel", why));
    }
    let nodes = machine.nodes.len();
    let page = machine.page();
    let pages_of = |size: Size| page.pages_for(size.0);
    let pages: Vec<u64> = machine.nodes.iter().map(|size| pages_of(*size)).collect();
    let layout = mm::Layout::of(&generation, page);
    let distance = |from| (0..nodes).map(|to| machine.distance(from, to).unwrap_or(10)).collect();
    let disk = &machine.disk;
    let disk_spec = DeviceSpec {
        latency: if disk.rotational { 0 } else { disk.latency.ns() },
        bandwidth: disk.bandwidth.0.0,
        iops: disk.iops.unwrap_or(NO_LIMIT),
        seek: disk.rotational.then(|| disk.latency.ns()),
        burst: disk.burst.ns(),
    };
    let swap = match machine.swap.on {
        SwapOn::Disk => SwapDevice::Disk,
        SwapOn::Zram => SwapDevice::Zram,
        SwapOn::Own => SwapDevice::Own(DeviceSpec {
            latency: machine.swap.latency.map_or(disk.latency.ns(), |latency| latency.ns()),
            bandwidth: machine.swap.bandwidth.unwrap_or(disk.bandwidth).0.0,
            iops: machine.swap.iops.unwrap_or(NO_LIMIT),
            seek: None,
            burst: machine.swap.burst.ns(),
        }),
    };
    let in_pages = |occupied: &Occupied| -> Vec<u64> {
        machine.per_node(occupied).iter().map(|size| pages_of(*size)).collect()
    };
    let reserved = machine.reserved.as_ref().map(in_pages);
    Ok(MachineConfig {
        mm: mm::Config {
            generation,
            cpus: machine.cpus_per_node().iter().sum(),
            page,
            nodes: pages.clone(),
            distance: (0..nodes).map(distance).collect(),
            tuning,
            swap_pages: pages_of(machine.swap.size),
            rotational: disk.rotational,
            swap_rotational: disk.rotational && machine.swap.on == SwapOn::Disk,
            committed: machine.committed.map_or(0, pages_of),
            others_pgtable_pages: machine.page_tables.map_or(0, pages_of),
            kernel_pages: machine.stated_kernel().map(|kernel| {
                let unmanaged = mm::unmanaged(layout, &pages, reserved.as_deref());
                let of_zones = |(kernel, lost): (u64, u64)| kernel.saturating_sub(lost);
                in_pages(kernel).into_iter().zip(unmanaged).map(of_zones).collect()
            }),
            settled: case.measure.window.0.ns(),
            reserved_pages: reserved,
            pagesets: (machine.pagesets.iter().flatten())
                .map(|cpus| cpus.iter().map(|size| pages_of(*size)).collect())
                .collect(),
            swap_on_disk: machine.swap.on == SwapOn::Disk,
            zram: (machine.swap.on == SwapOn::Zram).then(|| ZramConfig {
                object_bytes: machine.swap.object_bytes(page),
                limit_pages: machine.swap.mem_limit.map_or(0, pages_of),
            }),
            zswap: machine.swap.zswap().map(|zswap| ZswapConfig {
                object_bytes: machine.swap.object_bytes(page),
                zpool: zswap.zpool(machine.generation),
                max_pool_percent: zswap.max_pool_percent,
                accept_threshold_percent: zswap.accept_threshold(),
            }),
            filesystem: disk.filesystem,
            instant_reads: false,
            costs,
        },
        disk: disk_spec,
        disk_pages: disk.size.map_or(u64::from(u32::MAX), pages_of),
        swap,
        interval: case.interval.ns(),
    })
}

/// Facts about a case's machine that are known before it runs.
///
/// # Errors
/// As [`config`].
pub fn facts(case: &Case) -> Result<Facts, Errors> {
    let config = config(case)?;
    let mm = Mm::new(&mm::Config { nodes: config.mm.nodes.clone(), swap_pages: 0, ..config.mm.clone() });
    let cpus = case.machine.cpus_per_node();
    let mut first = 0;
    let nodes = (cpus.iter().zip(&config.mm.distance).enumerate())
        .map(|(id, (&count, distance))| {
            let own = (first..first + count).collect();
            first += count;
            NodeFacts { id: id as u32, cpus: own, distance: distance.clone() }
        })
        .collect();
    let mut sysctls = mm.sysctls();
    for (key, setting) in case.tuning.iter() {
        if key.starts_with("vm.") {
            let value = match setting {
                Value::Numbers(numbers) => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join("\t"),
                other => other.to_string(),
            };
            sysctls.insert(key.to_owned(), value);
        }
    }
    let name = config.mm.generation.name;
    let window = |(from, to): (lotsfree_workload::quantity::Time, lotsfree_workload::quantity::Time)| {
        Window { from: from.ns(), to: to.ns() }
    };
    Ok(Facts {
        lotsfree: env!("CARGO_PKG_VERSION").to_owned(),
        title: case.title.clone(),
        variant: Some(case.variant.clone()),
        machine: lotsfree_run::RunOn::Model,
        kernel: name.to_owned(),
        osrelease: osrelease(name),
        cpus: cpus.iter().sum(),
        page_size: config.mm.page.bytes().0,
        nodes,
        sysctls,
        files: files(&config),
        calibration: Some(lotsfree_run::CalibrationFacts {
            name: case.costs()?.0.to_owned(),
            costs: config.mm.costs.entries().map(|(name, ns)| (format!("{name}_ns"), ns as f64)).collect(),
        }),
        remarks: Vec::new(),
        uptime: 0.0,
        interval: case.interval.ns(),
        duration: case.duration.ns(),
        measure: lotsfree_run::Measured {
            baseline: case.measure.baseline.map(window),
            window: Some(window(case.measure.window)),
        },
    })
}

/// `uname -r` of a kernel of a generation.
fn osrelease(generation: &str) -> String {
    match generation {
        "linux-2.6.32-rhel6.4" => "2.6.32-358.el6.x86_64".to_owned(),
        "linux-3.0-sles11sp2" => "3.0.53-0.7-default".to_owned(),
        "linux-3.0-sles11sp3" => "3.0.76-0.11-default".to_owned(),
        "linux-2.6.32-rhel6" => "2.6.32-642.el6.x86_64".to_owned(),
        name => {
            let version = name.trim_start_matches("linux-").trim_end_matches("+mglru");
            format!("{version}.0")
        }
    }
}

/// Contents, by path, of files that do not change while the case runs.
fn files(config: &MachineConfig) -> BTreeMap<String, String> {
    let generation = &config.mm.generation;
    let pages = &config.mm.nodes;
    let reserved = config.mm.reserved_pages.as_deref();
    let layout = mm::Layout::of(generation, config.mm.page);
    let managed = pages.iter().sum::<u64>() - mm::unmanaged(layout, pages, reserved).iter().sum::<u64>();
    let thp = if mm::has_transparent_hugepage(&config.mm.tuning, config.mm.page.of(managed)) {
        "[always] madvise never"
    } else {
        "always madvise [never]"
    };
    let mut files =
        BTreeMap::from([("sys/kernel/mm/transparent_hugepage/enabled".to_owned(), format!("{thp}\n"))]);
    if generation.reclaim_throttle {
        let enabled = format!("{:#06x}\n", generation.policy.lru_gen_enabled());
        files.insert("sys/kernel/mm/lru_gen/enabled".to_owned(), enabled);
    }
    // The disks as `Machine::counters` names them.
    let disks: &[(&str, bool)] = match config.swap {
        SwapDevice::Own(_) if config.mm.swap_pages > 0 => {
            &[("sda", config.mm.rotational), ("sdb", config.mm.swap_rotational)]
        }
        _ => &[("sda", config.mm.rotational)],
    };
    for (name, rotational) in disks {
        let queue = format!("sys/block/{name}/queue");
        files.insert(format!("{queue}/rotational"), format!("{}\n", u8::from(*rotational)));
        files.insert(format!("{queue}/read_ahead_kb"), format!("{}\n", config.mm.tuning.read_ahead_kb));
    }
    files
}

/// The most memory of the simulating host that a case takes, in bytes.
///
/// # Errors
/// As [`config`], or if the actors refuse their parameters.
pub fn bytes(case: &Case) -> Result<u64, Errors> {
    let config = config(case)?;
    let program = case.program()?;
    let mut memory: u64 = config.mm.nodes.iter().sum();
    let page = config.mm.page;
    let file_bytes = |file: &FileSpec| Bytes(u64::from(file.pages) * mm::BLOCK);
    let files: u64 = program.files.iter().map(|file| page.pages_for(file_bytes(file))).sum();
    let swap = config.mm.swap_pages;
    // What a trace maps is not known before.
    if case.actors.iter().all(|actor| !matches!(actor.kind, Actor::Trace(_))) {
        let demand: u64 = case.actors.iter().map(|actor| page.pages(actor.kind.demand())).sum();
        memory = memory.min(mm::kernel_pages(&config.mm).iter().sum::<u64>() + files + demand);
    }
    // Each page of memory that is ever in use takes 12 bytes for its frame, at most 8 for its place on a list
    // and 4 for its entry. Each page of a file takes 4 for its entry. Each page of swap takes 4 for its entry
    // and 8 for its slot, 4 more for its place in a pool, and with zswap some 40 for its entry and its
    // place in the order.
    let entry = if config.mm.zswap.is_some() { 40 } else { 0 };
    // Each page of a shared segment takes 4 for its entry and 4 for the count of those who map it; each
    // process takes a bit of its own for it, and 18 for a table of its pages.
    let shared = |pages: u64, processes: u64| pages * 8 + processes * (pages / 8 + pages / 512 * 18);
    let sessions = case.actors.iter().filter_map(|actor| match &actor.kind {
        Actor::Sessions(sessions) => {
            let processes = actor.kind.thread_count();
            let private = sessions.private.map_or(0, |private| page.pages_for(private.size.0) * 4);
            Some(shared(page.pages_for(sessions.segment.0), processes) + private * processes)
        }
        _ => None,
    });
    // What is mapped takes 4 for its entry, touched or not.
    let asked = case.actors.iter().filter_map(|actor| match &actor.kind {
        Actor::Allocator(allocator) => Some(page.pages_for(allocator.size.0)),
        _ => None,
    });
    let files = (files + asked.sum::<u64>()) * 4 + sessions.sum::<u64>();
    Ok(memory * (12 + 8 + 4) + files + swap * (4 + 8 + 4 + entry) + (64 << 20))
}

#[cfg(test)]
mod tests {
    use lotsfree_run::Memory;
    use lotsfree_scenario::{Conditions, Costs, Measured, Record, Scenario};

    use super::*;
    use lotsfree_settings::{COMPACTION_PROACTIVENESS, SHMALL, SHMMAX};

    fn case(more: &str) -> Case {
        let text = format!(
            "title = 't'\nduration = '1 s'\n[machine]\ngeneration = 'linux-6.1'\ncpus = 1\nnodes = ['1 GiB']\n{more}"
        );
        let scenario = Scenario::parse(&text, "s.toml").unwrap_or_else(|errors| panic!("{errors}"));
        scenario.cases(None).unwrap().remove(0)
    }

    #[test]
    fn the_disks_of_the_scenario_are_those_that_the_doctor_reads() {
        let files = |more: &str| facts(&case(more)).unwrap().files;
        let at = |name: &str, file: &str| format!("sys/block/{name}/queue/{file}");
        let turning = files(
            "disk = { rotational = true, latency = '8 ms' }\n[tuning]\n'block.queue.read_ahead_kb' = 64",
        );
        assert_eq!(turning[&at("sda", "rotational")], "1\n");
        assert_eq!(turning[&at("sda", "read_ahead_kb")], "64\n");
        assert!(!turning.contains_key(&at("sdb", "rotational")), "there is no swap");
        let apart = files(
            "disk = { rotational = true }\nswap = { size = '1 GiB', latency = '90 us', bandwidth = '1 GiB/s' }",
        );
        assert_eq!((&*apart[&at("sda", "rotational")], &*apart[&at("sdb", "rotational")]), ("1\n", "0\n"));
        assert_eq!(files("")[&at("sda", "rotational")], "0\n");
    }

    fn record() -> Record {
        let mut record = Record { name: "a slow host".to_owned(), ..Record::default() };
        record.costs.copy = Measured::of(&[50_000.0]);
        record.costs.fault = Measured::of(&[700.4]);
        record
    }

    #[test]
    fn a_record_changes_what_a_run_gives() {
        let reads = |calibrate: bool| {
            let mut case = case(
                "[[file]]\nname = 'f'\nsize = '4 MiB'\n[[actor]]\nname = 'a'\nkind = 'file-reader'\nfile = 'f'\n\
                 repeat = 0",
            );
            if calibrate {
                case.calibrate(&record()).unwrap();
            }
            let mut memory = Memory::default();
            simulate(&case, &mut memory, &mut |_| ControlFlow::Continue(())).unwrap();
            let run = memory.finish(facts(&case).unwrap(), case.to_toml(), lotsfree_run::State::Complete);
            let name = run.facts().calibration.clone().unwrap();
            let operations: u64 = run.intervals().iter().map(|interval| interval.operations).sum();
            (operations, name)
        };
        let ((fast, default), (slow, measured)) = (reads(false), reads(true));
        assert_eq!((default.name.as_str(), measured.name.as_str()), ("default", "a slow host"));
        assert_eq!((measured.costs["copy_ns"], measured.costs["fault_ns"]), (50_000.0, 700.0));
        // Costs that were not measured are the model's own, multiplied by the median ratio of those that were
        // measured: 62.5 and 1.17.
        let (times, like) = record().costs.times("scan");
        assert_eq!(like, None);
        assert_eq!(measured.costs["scan_ns"], (default.costs["scan_ns"] * times).round());
        assert!((times - 31.83).abs() < 0.01);
        assert!(slow * 10 < fast, "{slow} reads instead of {fast}");
    }

    #[test]
    fn what_a_case_states_wins_over_the_record() {
        let mut stated = case("[calibration]\nrecord = 'a slow host'\nfault = 5");
        let error = config(&stated).unwrap_err().to_string();
        assert!(
            error.starts_with("s.toml:8:10: calibration.record: there is no calibration record"),
            "{error}"
        );
        stated.calibrate(&record()).unwrap();
        let costs = config(&stated).unwrap().mm.costs;
        assert_eq!((costs.fault, costs.copy, costs.walk), (5, 50_000, 3 * 3183 / 100));
        // A run keeps its case, which can be run again without the file of the record.
        let scenario = Scenario::parse(&stated.to_toml(), "again.toml").unwrap();
        let again = scenario.cases(None).unwrap().remove(0);
        assert_eq!(again.costs().unwrap(), ("a slow host", costs));

        let mut own = case("[calibration]\nrecord = 'default'");
        own.calibrate(&record()).unwrap();
        assert_eq!(config(&own).unwrap().mm.costs, Costs::default());
        let mut other = case("[calibration]\nrecord = 'other'");
        let error = other.calibrate(&record()).unwrap_err().to_string();
        let expected = "s.toml:8:10: calibration.record: there is no calibration record \"other\"; there are \"a slow \
                        host\" and \"default\"";
        assert_eq!(error, expected);
    }

    #[test]
    fn the_kernels_memory_may_be_left_to_a_measurement() {
        let open = || {
            let text = "title = 't'\nduration = '1 s'\n[machine]\ngeneration = 'linux-6.1'\ncpus = 1\n\
                        nodes = ['1 GiB']\nkernel = 'measured'\n";
            Scenario::parse(text, "s.toml").unwrap().cases(None).unwrap().remove(0)
        };
        let says = |errors: Errors, expected: &str| {
            let text = errors.to_string();
            assert!(text.starts_with(&format!("s.toml:7:10: machine.kernel: {expected}")), "{text}");
        };
        says(config(&open()).unwrap_err(), "no measurement of this machine was given");
        let mut record = record();
        record.provenance.memory = "967 MiB".parse().unwrap();
        let mut without = open();
        without.calibrate(&record).unwrap();
        says(config(&without).unwrap_err(), "no measurement of this machine was given");

        record.machine.kernel = Some("104 MiB".parse().unwrap());
        let mut measured = open();
        measured.calibrate(&record).unwrap();
        let stated = case("kernel = '104 MiB'");
        let kernel = |case: &Case| config(case).unwrap().mm.kernel_pages.unwrap();
        assert_eq!(kernel(&measured), kernel(&stated));
        assert_ne!(Some(kernel(&measured)), config(&case("")).unwrap().mm.kernel_pages);

        for memory in ["1025 MiB", "700 MiB"] {
            record.provenance.memory = memory.parse().unwrap();
            let errors = open().calibrate(&record).unwrap_err();
            says(errors, "the record \"a slow host\" is of a machine whose kernel manages");
        }
    }

    #[test]
    fn a_run_tells_the_kernels_memory_before_a_record_does() {
        let mut case = case("kernel = 'measured'");
        let of = |size: &str| Occupied::Total(size.parse().unwrap());
        let told = Conditions { kernel: Some(of("90 MiB")), ..Conditions::default() };
        case.machine.take(Conditions::default(), None);
        assert_eq!(case.machine.kernel, Some(KernelMemory::Measured), "what does not say leaves it open");
        case.machine.take(told, None);
        let mut record = record();
        record.provenance.memory = "967 MiB".parse().unwrap();
        record.machine.kernel = Some("104 MiB".parse().unwrap());
        case.calibrate(&record).unwrap();
        assert_eq!(case.machine.kernel, Some(KernelMemory::Stated(of("90 MiB"))));
    }

    #[test]
    fn settings_are_called_as_scenarios_call_them() {
        let case = case("[tuning]\n'block.queue.read_ahead_kb' = 64");
        assert_eq!(config(&case).unwrap().mm.tuning.read_ahead_kb, 64);
    }

    #[test]
    fn settings_that_the_model_lacks_are_refused_by_name() {
        for setting in [COMPACTION_PROACTIVENESS, SHMMAX, SHMALL] {
            let error = config(&case(&format!("[tuning]\n'{setting}' = 1"))).unwrap_err().to_string();
            assert!(error.contains(&format!("the model does not know {setting}")), "{error}");
        }
    }
}
