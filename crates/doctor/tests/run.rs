//! A run as something to diagnose: what the collector and the rules see of it is what was recorded.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

use lotsfree_doctor::diagnose;
use lotsfree_kernel_files::ProblemKind;
use lotsfree_run::{
    Facts, Measured, Memory, NodeFacts, NodeSample, Run, Sample, Sink, State, Window, Writer,
};
use lotsfree_snapshot::source::run::{Instants, input};
use lotsfree_snapshot::{Observation, Options, Snapshot, observe, source};

/// A captured host.
fn host(name: &str) -> Observation {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    observe(source::open(&fixtures.join(name)).unwrap(), &Options::default())
}

fn facts() -> Facts {
    Facts {
        lotsfree: "0.1.0".to_owned(),
        title: "A test".to_owned(),
        kernel: "linux-6.1".to_owned(),
        osrelease: "6.1.0".to_owned(),
        cpus: 2,
        page_size: 4096,
        interval: 1_000_000_000,
        duration: 10_000_000_000,
        uptime: 60.0,
        ..Facts::default()
    }
}

/// What a machine would yield of a snapshot.
fn sample(snapshot: &Snapshot, at: u64) -> Sample {
    let nodes = snapshot.nodes.iter().flatten().map(|node| NodeSample {
        id: node.id,
        meminfo: node.meminfo.clone().unwrap(),
        numastat: node.numastat.clone().unwrap(),
    });
    Sample {
        at,
        meminfo: snapshot.meminfo.clone().unwrap(),
        vmstat: snapshot.vmstat.clone().unwrap(),
        zones: snapshot.zones.clone().unwrap(),
        nodes: nodes.collect(),
        swaps: snapshot.swaps.clone().unwrap(),
        ..Sample::default()
    }
}

fn facts_of(snapshot: &Snapshot) -> Facts {
    let nodes = snapshot.nodes.iter().flatten().map(|node| NodeFacts {
        id: node.id,
        cpus: node.cpus.clone(),
        distance: node.distance.clone(),
    });
    let vm = snapshot.sysctl.0.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    Facts {
        cpus: snapshot.host.cpus.unwrap(),
        osrelease: snapshot.host.kernel.release.clone(),
        nodes: nodes.collect(),
        sysctls: vm.collect(),
        files: BTreeMap::from([("proc/cmdline".to_owned(), "quiet\n".to_owned())]),
        uptime: snapshot.uptime.unwrap(),
        ..facts()
    }
}

#[test]
fn captured_hosts_come_back_as_they_were() {
    let hosts = ["6.1-2nodes-zone-reclaim.txt", "6.12-1node-swap.txt", "6.18-1node-cgroup1.txt"];
    for name in hosts {
        let host = host(name);
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(directory.path(), facts_of(&host.now), "").unwrap();
        writer.sample(&sample(&host.now, 0)).unwrap();
        writer.sample(&sample(&host.now, 2_500_000_000)).unwrap();
        writer.finish(State::Complete).unwrap();

        let input = input(&Run::open(directory.path()).unwrap(), Instants::default()).unwrap();
        assert_eq!(input.samples.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0.0, 2.5]);
        let seen = observe(input, &Options::default());
        assert_eq!(seen.seconds(), 2.5);
        let (now, then) = (&seen.now, &host.now);
        assert_eq!(
            (&now.meminfo, &now.vmstat, &now.zones),
            (&then.meminfo, &then.vmstat, &then.zones),
            "{name}"
        );
        assert_eq!((&now.swaps, &now.sysctl), (&then.swaps, &then.sysctl), "{name}");
        assert_eq!((&now.host.kernel, now.host.cpus), (&then.host.kernel, then.host.cpus), "{name}");
        assert_eq!(now.host.cmdline.as_deref(), Some("quiet"));
        assert_eq!(now.uptime, then.uptime.map(|uptime| uptime + 2.5));
        for (node, was) in now.nodes.iter().flatten().zip(then.nodes.iter().flatten()) {
            assert_eq!((&node.cpus, &node.distance), (&was.cpus, &was.distance));
            assert_eq!((&node.meminfo, &node.numastat), (&was.meminfo, &was.numastat));
            // Captured an instant later than zoneinfo: the names are the same, and the levels nearly.
            let (node, was) = (node.vmstat.as_ref().unwrap(), was.vmstat.as_ref().unwrap());
            for (counter, value) in was.iter().filter(|(counter, _)| counter.name() == "nr_active_anon") {
                let seen = node.get(counter).unwrap();
                assert!(seen.abs_diff(value) <= 2 + value / 10, "{name} {counter:?}: {seen} {value}");
            }
        }
        assert_eq!(now.nodes.as_ref().map(Vec::len), then.nodes.as_ref().map(Vec::len));
        // A run does not have everything that a host has; what it has can be read without complaint.
        let kinds: Vec<_> = now.problems.iter().filter(|p| p.kind != ProblemKind::Absent).collect();
        assert!(kinds.is_empty(), "{name}: {kinds:?}");
        let shown = [
            "proc/meminfo",
            "proc/vmstat",
            "proc/zoneinfo",
            "proc/swaps",
            "proc/uptime",
            "/osrelease",
            "/cpulist",
        ];
        let lacks = |path: &str| shown.iter().any(|file| path.ends_with(file)) || path.ends_with("stat");
        assert!(!now.problems.iter().any(|problem| lacks(&problem.path)), "{name}: {:?}", now.problems);
        let diagnosis = diagnose(&seen);
        assert!(diagnosis.findings.len() + diagnosis.quiet.len() > 10, "{name}");
    }
}

/// The host of the zone-reclaim article: a run of it is diagnosed as the host itself is.
#[test]
fn zone_reclaim_is_found_in_a_run() {
    let host = host("6.1-2nodes-zone-reclaim.txt");
    let ids = |observation: &Observation| {
        diagnose(observation).findings.iter().map(|finding| finding.rule.to_string()).collect::<Vec<_>>()
    };
    let of_host = ids(&host);
    assert!(of_host.iter().any(|id| id.contains("zone-reclaim")), "{of_host:?}");
    let mut memory = Memory::default();
    let before = host.before.as_deref().unwrap_or(&host.now);
    memory.sample(&sample(before, 0)).unwrap();
    memory.sample(&sample(&host.now, 1_000_000_000)).unwrap();
    let run = memory.finish(facts_of(&host.now), "", State::Complete);
    let of_run = ids(&observe(input(&run, Instants::All).unwrap(), &Options::default()));
    assert!(of_run.iter().any(|id| id.contains("zone-reclaim")), "{of_run:?}");
}

#[test]
fn the_measured_part_is_what_is_shown() {
    let run = |measure, rows| -> Run {
        let mut memory = Memory::default();
        for row in 0..rows {
            memory.sample(&Sample { at: row * 1_000_000_000, ..Sample::default() }).unwrap();
        }
        memory.finish(Facts { measure, ..facts() }, "", State::Complete)
    };
    let times = |run: &Run, instants| {
        let input = input(run, instants)?;
        Some(input.samples.iter().map(|(at, _)| *at).collect::<Vec<_>>())
    };
    let window = Window { from: 3_500_000_000, to: 6_000_000_000 };
    let measured = run(Measured { baseline: None, window: Some(window) }, 10);
    // From the sample at 3 s on.
    assert_eq!(times(&measured, Instants::Measured).unwrap(), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(times(&measured, Instants::LastTwo).unwrap(), [0.0, 1.0]);
    assert_eq!(times(&measured, Instants::All).unwrap().len(), 10);
    let unmeasured = run(Measured::default(), 10);
    assert_eq!(times(&unmeasured, Instants::Measured).unwrap(), [0.0, 1.0]);
    assert_eq!(times(&run(Measured::default(), 1), Instants::Measured).unwrap(), [0.0]);
    assert_eq!(times(&run(Measured::default(), 0), Instants::Measured), None);
    let long = run(Measured::default(), 10_000);
    let all = times(&long, Instants::All).unwrap();
    assert_eq!((all.len(), all[0], all[all.len() - 1]), (source::MOST_SAMPLES, 0.0, 9999.0));
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
}

/// Each second the actors' group reads back a thousand pages that were evicted from it.
fn in_a_group(fill: impl Fn(&mut Sample, u64)) -> Vec<(String, String)> {
    use lotsfree_kernel_files::counters::memory_stat as g;
    let host = host("6.12-1node-swap.txt");
    let mut memory = Memory::default();
    for second in 0..3 {
        let mut taken = sample(&host.now, second * 1_000_000_000);
        taken.group.set(g::workingset_refault_file, 1000 * second);
        fill(&mut taken, second);
        memory.sample(&taken).unwrap();
    }
    let run = memory.finish(facts_of(&host.now), "", State::Complete);
    let diagnosis = diagnose(&observe(input(&run, Instants::All).unwrap(), &Options::default()));
    let findings = diagnosis.findings.iter();
    findings.map(|finding| (finding.rule.to_string(), finding.title.clone())).collect()
}

#[test]
fn a_run_in_a_control_group_is_judged_by_the_groups_counters_too() {
    use lotsfree_kernel_files::counters::memory_events;
    let expected = (
        "group-pressure".to_owned(),
        "/lotsfree-lab-run reads back 1,000 pages a second that were evicted from it: its working set does not fit"
            .to_owned(),
    );
    let two = in_a_group(|sample, second| sample.events.set(memory_events::max, second));
    assert!(two.contains(&expected), "{two:?}");
    let one = in_a_group(|sample, second| sample.failcnt = Some(second));
    assert!(one.contains(&expected), "{one:?}");
}
