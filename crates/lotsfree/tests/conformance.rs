//! Properties that must hold on the model and on a kernel alike: each scenario runs on both, and both runs
//! are checked in the same way. The kernel's part needs QEMU, a kernel (`lotsfree lab kernel 6.1`) and
//! half a minute per scenario. It runs with `LOTSFREE_LAB=1`, on the kernel that `LOTSFREE_LAB_KERNEL` names
//! (`6.1` by default).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is not tested, and what is measured, is said")]

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use lotsfree_lab::{Output, VirtualMachine};
use lotsfree_run::{Facts, Figures, Memory, Run, Sink, State, WriteError};
use lotsfree_scenario::{Case, Scenario};

/// The model or a kernel, on which a case is executed.
trait Machine {
    fn name(&self) -> String;
    fn run(&self, case: &Case) -> Run;
}

struct Model;

impl Machine for Model {
    fn name(&self) -> String {
        "the model".to_owned()
    }

    fn run(&self, case: &Case) -> Run {
        let facts = lotsfree_engine::facts(case).unwrap();
        let mut memory = Memory::default();
        lotsfree_engine::simulate(case, &mut memory, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        memory.finish(facts, case.to_toml(), State::Complete)
    }
}

struct Kernel(String);

#[derive(Default)]
struct Kept {
    memory: Memory,
    facts: Facts,
}

impl Output for Kept {
    fn begin(&mut self, facts: Facts) -> Result<(), WriteError> {
        self.facts = facts;
        Ok(())
    }

    fn sink(&mut self) -> &mut dyn Sink {
        &mut self.memory
    }
}

impl Machine for Kernel {
    fn name(&self) -> String {
        format!("kernel {}", self.0)
    }

    fn run(&self, case: &Case) -> Run {
        // Cases run one after the other, because each needs the CPUs that its scenario assumes.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = VirtualMachine {
            kernel: Some(self.0.clone()),
            init: PathBuf::from(env!("CARGO_BIN_EXE_lotsfree")),
            arguments: vec!["agent".to_owned(), "--init".to_owned()],
            ..VirtualMachine::default()
        };
        let mut kept = Kept::default();
        let done = machine.execute(case, &mut kept, &mut |_| std::ops::ControlFlow::Continue(()));
        let state = done.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(state, State::Complete);
        kept.memory.finish(kept.facts, case.to_toml(), state)
    }
}

fn machines() -> Vec<Box<dyn Machine>> {
    let mut machines: Vec<Box<dyn Machine>> = vec![Box::new(Model)];
    if std::env::var_os("LOTSFREE_LAB").is_some() {
        let kernel = std::env::var("LOTSFREE_LAB_KERNEL").unwrap_or("6.1".to_owned());
        machines.push(Box::new(Kernel(kernel)));
    } else {
        eprintln!("not tested: a kernel; set LOTSFREE_LAB=1");
    }
    machines
}

/// A machine of 256 MiB with a disk of 100 MiB/s, for 20 s.
fn scenario(nodes: &str, tuning: &str, swap: &str, actors: &str) -> Case {
    let text = format!(
        "title = \"Conformance\"\nseed = 1\nduration = \"20 s\"\ninterval = \"1 s\"\n\
         [machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [{nodes}]\ndistance = 40\n\
         disk = {{ latency = \"100 us\", bandwidth = \"100 MiB/s\", size = \"4 GiB\" }}\n\
         swap = {{ size = \"{swap}\", on = \"disk\" }}\n[tuning]\n{tuning}\n{actors}"
    );
    let scenario = Scenario::parse(&text, "conformance.toml").unwrap_or_else(|errors| panic!("{errors}"));
    scenario.cases(None).unwrap().remove(0)
}

/// Checks the same on both.
fn both(case: &Case, holds: impl Fn(&str, &Figures)) {
    for machine in machines() {
        let run = machine.run(case);
        let figures = run.summary().measured;
        eprintln!("{}: {:?}", machine.name(), figures.moved);
        holds(&machine.name(), &figures);
    }
}

const APP: &str = "[[actor]]\nname = \"app\"\nkind = \"app-server\"\nheap = \"60 MiB\"\nrate = 200\n";
const NODE: &str = "\"256 MiB\"";

#[test]
fn with_free_memory_nothing_is_reclaimed() {
    both(&scenario(NODE, "", "128 MiB", APP), |machine, figures| {
        let moved = figures.moved;
        assert_eq!(
            (moved.swap_out, moved.direct_scan, moved.kswapd_scan),
            (Some(0), Some(0), Some(0)),
            "{machine}"
        );
        let app = &figures.actors[0];
        assert!(app.operations > 3000 && app.errors == 0, "{machine}: {app:?}");
    });
}

#[test]
fn a_file_larger_than_memory_goes_through_kswapd_and_swaps_nothing() {
    let actors = format!(
        "{APP}[[actor]]\nname = \"reader\"\nkind = \"file-reader\"\nsize = \"400 MiB\"\nrate = \"40 MiB/s\"\n"
    );
    both(&scenario(NODE, "", "0", &actors), |machine, figures| {
        let moved = figures.moved;
        assert!(moved.kswapd_scan > Some(20_000), "{machine}: {moved:?}");
        assert!(moved.kswapd_steal > Some(20_000), "{machine}: {moved:?}");
        assert_eq!(moved.swap_out, Some(0), "{machine}");
        // The whole file is read, and hardly any of it twice.
        let read = moved.page_in.unwrap_or(0) / 1024;
        assert!((400..480).contains(&read), "{machine}: {read} MiB");
    });
}

#[test]
fn direct_io_leaves_the_page_cache_alone() {
    let actors = "[[actor]]\nname = \"reader\"\nkind = \"file-reader\"\nsize = \"300 MiB\"\nhow = \"direct\"\n\
                  rate = \"40 MiB/s\"\n";
    both(&scenario(NODE, "", "0", actors), |machine, figures| {
        assert_eq!(figures.moved.kswapd_scan, Some(0), "{machine}");
        let cache = figures.levels["vmstat.nr_inactive_file"];
        assert!(cache.last < cache.first + 2000, "{machine}: {cache:?}");
    });
}

#[test]
fn a_copy_of_today_reads_and_writes_each_page_once() {
    let actors = "[[actor]]\nname = \"copy\"\nkind = \"file-writer\"\nsize = \"300 MiB\"\nsync = true\n\
                  how = \"copy-file-range\"\nrate = \"30 MiB/s\"\n";
    both(&scenario(NODE, "", "0", actors), |machine, figures| {
        let copy = &figures.actors[0];
        assert_eq!((copy.operations, copy.errors), (300, 0), "{machine}");
        for (what, kib) in [("read", figures.moved.page_in), ("written", figures.moved.page_out)] {
            let mib = kib.unwrap_or(0) / 1024;
            assert!((300..320).contains(&mib), "{machine}: {what} {mib} MiB");
        }
    });
}

#[test]
fn a_heap_larger_than_memory_swaps() {
    let actors = "[[actor]]\nname = \"app\"\nkind = \"app-server\"\nheap = \"280 MiB\"\nrate = 100\n\
                  locality = { hot-cold = { memory = 0.3, touches = 0.95 } }\n";
    both(&scenario(NODE, "", "256 MiB", actors), |machine, figures| {
        let moved = figures.moved;
        assert!(moved.swap_out > Some(10_000), "{machine}: {moved:?}");
        assert!(moved.swap_in > Some(50), "{machine}: {moved:?}");
        assert!(moved.major_faults > Some(20), "{machine}: {moved:?}");
    });
}

#[test]
fn zone_reclaim_scans_on_its_own_node_and_without_it_kswapd_does() {
    let store = "[[actor]]\nname = \"store\"\nkind = \"segment-store\"\nsegment = \"4 MiB\"\nactive = 25\n\
                 garbage = 20\nreads = 500\nwrite-rate = \"2 MiB/s\"\n";
    for mode in [1, 0] {
        let tuning = format!("\"vm.zone_reclaim_mode\" = {mode}\n");
        let case = scenario("\"128 MiB\", \"128 MiB\"", &tuning, "0", store);
        both(&case, |machine, figures| {
            let (tasks, kswapd) =
                (figures.moved.direct_scan.unwrap_or(0), figures.moved.kswapd_scan.unwrap_or(0));
            if mode == 1 {
                assert!(tasks > 1000, "{machine}: {tasks}");
            } else {
                // While garbage is read at full speed at the start, tasks may overtake a slow kswapd.
                assert!(kswapd > 1000 && tasks * 50 < kswapd, "{machine}: {tasks}, {kswapd}");
            }
        });
    }
}
