//! Scenarios that are sound: what their cases are, that overrides count, and that resolved cases read back.

use lotsfree_scenario::{Case, Conditions, Device, Measured, Record, Scenario, SwapOn};
use lotsfree_settings::{SWAPPINESS, TRANSPARENT_HUGEPAGE_ENABLED, Value};
use lotsfree_units::Bytes;
use lotsfree_workload::quantity::Size;
use lotsfree_workload::{Actor, Policy};
use proptest::prelude::*;

const TWO_NODES: &str = include_str!("files/two-nodes.toml");

fn cases(text: &str) -> Vec<Case> {
    let scenario = Scenario::parse(text, "s.toml").unwrap_or_else(|errors| panic!("{errors}"));
    scenario.cases(None).unwrap_or_else(|errors| panic!("{errors}"))
}

fn copied(case: &Case) -> u64 {
    match &case.actors[1].kind {
        Actor::FileWriter(writer) => writer.size.bytes() >> 20,
        other => panic!("{other:?}"),
    }
}

#[test]
fn cases_are_variants_at_values() {
    let cases = cases(TWO_NODES);
    let seen: Vec<(&str, f64, u64)> = cases
        .iter()
        .map(|case| (case.variant.as_str(), case.sweep.as_ref().unwrap().number, copied(case)))
        .collect();
    assert_eq!(
        seen,
        [
            ("base", 1.0, 1024),
            ("base", 1.5, 1536),
            ("swappiness 0", 1.0, 1024),
            ("swappiness 0", 1.5, 1536),
            ("3.11, direct", 1.0, 1024),
            ("3.11, direct", 1.5, 1536)
        ]
    );
    assert_eq!(cases[0].tuning.get(SWAPPINESS), Some(&Value::Number(60)));
    assert_eq!(cases[2].tuning.get(SWAPPINESS), Some(&Value::Number(0)));
    assert_eq!(cases[4].machine.generation.name(), "linux-3.11");
    assert_eq!(cases[4].tuning.get(TRANSPARENT_HUGEPAGE_ENABLED), Some(&Value::Word("never")));
    assert_eq!(cases[0].machine.cpus_per_node(), [2, 2]);
    assert_eq!(cases[0].machine.distance(0, 1), Some(20));
    assert_eq!(cases[0].machine.distance(1, 1), Some(10));
    assert_eq!(cases[0].calibration.costs["fault"], 700.0);
    assert_eq!(cases[0].measure.window.1, cases[0].duration);
    let program = cases[0].program().unwrap();
    assert_eq!(program.processes[0].policy, Policy::Interleave(vec![0, 1]));
    assert_eq!(program.processes[1].start, 60_000_000_000);
    assert_eq!(program.processes[1].node, Some(1));
}

#[test]
fn variants_are_chosen_by_name() {
    let scenario = Scenario::parse(TWO_NODES, "s.toml").unwrap();
    assert_eq!(scenario.variants().collect::<Vec<_>>(), ["base", "swappiness 0", "3.11, direct"]);
    let chosen = scenario.cases(Some(&["swappiness 0".to_owned()])).unwrap();
    assert_eq!(chosen.iter().map(|case| case.variant.as_str()).collect::<Vec<_>>(), ["swappiness 0"; 2]);
}

#[test]
fn overrides_win_over_variants() {
    let scenario = Scenario::parse(TWO_NODES, "s.toml").unwrap();
    let scenario = scenario
        .with(&[("tuning.vm.swappiness", "7"), ("machine.cpus", "[3, 1]"), ("sweep.values", "[\"2 GiB\"]")])
        .unwrap()
        .with(&[
            ("title", "7"),
            ("actor.server.locality", "{ zipf = 1.2 }"),
            ("measure.window", "[\"1 s\", \"end\"]"),
        ])
        .unwrap();
    let cases = scenario.cases(None).unwrap();
    assert_eq!(cases.len(), 3);
    for case in &cases {
        assert_eq!(case.tuning.get(SWAPPINESS), Some(&Value::Number(7)));
        assert_eq!(case.machine.cpus_per_node(), [3, 1]);
        assert_eq!(copied(case), 2048);
        assert_eq!(case.title, "7");
        assert_eq!(case.measure.window.0.ns(), 1_000_000_000);
    }
}

#[test]
fn a_table_in_braces_replaces_and_a_dotted_key_changes() {
    let base = "title = \"t\"\nduration = \"1 s\"\n[machine]\ngeneration = \"linux-6.1\"\ncpus = 1\nnodes = [\"1 GiB\"]\n\
                disk = { latency = \"5 ms\", iops = 9 }\n[[variant]]\nname = \"v\"\n";
    let dotted = &cases(&format!("{base}machine.disk.iops = 8"))[1];
    assert_eq!((dotted.machine.disk.iops, dotted.machine.disk.latency.ns()), (Some(8), 5_000_000));
    let replaced = &cases(&format!("{base}machine.disk = {{ iops = 8 }}"))[1];
    assert_eq!((replaced.machine.disk.iops, replaced.machine.disk.latency.ns()), (Some(8), 100_000));
    let section = &cases(&format!("{base}[variant.machine.disk]\niops = 8"))[1];
    assert_eq!((section.machine.disk.iops, section.machine.disk.latency.ns()), (Some(8), 5_000_000));
}

#[test]
fn a_resolved_case_reads_back_as_itself() {
    for case in cases(TWO_NODES) {
        let text = case.to_toml();
        let again = cases(&text);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].to_toml(), text);
        assert_eq!(again[0].variant, case.variant);
        assert_eq!(again[0].sweep, case.sweep);
        assert_eq!(again[0].machine, case.machine);
        assert_eq!(again[0].tuning, case.tuning);
        assert_eq!(again[0].measure, case.measure);
        assert_eq!(again[0].calibration, case.calibration);
        assert_eq!(again[0].actors[0].kind, case.actors[0].kind);
        assert_eq!(again[0].actors[1].policy, case.actors[1].policy);
    }
}

#[test]
fn a_file_by_name_is_the_actors_file() {
    let text = "title = \"t\"\nduration = \"1 s\"\n[machine]\ngeneration = \"linux-6.12\"\ncpus = 1\nnodes = [\"1 GiB\"]\n\
                [[file]]\nname = \"data\"\nsize = \"8 MiB\"\n[[actor]]\nname = \"a\"\nkind = \"file-reader\"\nfile = \"data\"\n\
                [[actor]]\nname = \"b\"\nkind = \"file-reader\"\nfile = \"data\"\n";
    let program = cases(text)[0].program().unwrap();
    assert_eq!(program.files.len(), 1);
    assert_eq!(
        (program.files[0].name.as_str(), program.files[0].pages, program.files[0].exists),
        ("data", 2048, true)
    );
}

#[test]
fn scenarios_that_ship_read_back_resolved() {
    for shipped in lotsfree_scenario::shipped::SHIPPED {
        for case in shipped.scenario().unwrap().cases(None).unwrap() {
            let text = case.to_toml();
            let again = cases(&text).remove(0);
            assert_eq!(again.to_toml(), text, "{}", shipped.name);
            for (again, actor) in again.actors.iter().zip(&case.actors) {
                assert_eq!(again.kind, actor.kind, "{}", shipped.name);
            }
        }
    }
}

#[test]
fn sessions_are_processes_of_one_name() {
    let text = "title = \"t\"\nduration = \"30 s\"\n[machine]\ngeneration = \"linux-6.12\"\ncpus = 1\nnodes = [\"1 GiB\"]\n\
                [[actor]]\nname = \"a\"\nkind = \"sessions\"\nprocesses = 2\nsegment = \"8 MiB\"\nstart = \"1 s\"\nstop = \"9 s\"\n\
                ramp = \"4 s\"\n[[actor]]\nname = \"b\"\nkind = \"sessions\"\nprocesses = 1\nsegment = \"4 MiB\"\n";
    let program = cases(text)[0].program().unwrap();
    let processes: Vec<_> = (program.processes.iter())
        .map(|process| (process.name.as_str(), process.instance, process.start / 1_000_000, process.stop))
        .collect();
    let stop = Some(9_000_000_000);
    assert_eq!(processes, [("a", 0, 1000, stop), ("a", 1, 3000, stop), ("b", 0, 0, None)]);
    let segments: Vec<_> =
        program.segments.iter().map(|segment| (segment.name.as_str(), segment.pages)).collect();
    assert_eq!(segments, [("a/segment", 2048), ("b/segment", 1024)]);
    // The ramp must fit into the actor's time, and the error says where it is.
    let errors = cases(&text.replace("ramp = \"4 s\"", "ramp = \"9 s\""))[0].program().unwrap_err();
    assert_eq!(
        errors.to_string(),
        "s.toml:14:8: actor.a.ramp: is 9 s, but the actor has 8 s from its start to its end"
    );
}

/// Values that a key may or may not have.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[0-9]{1,20}",
        "-?[0-9]{1,6}\\.[0-9]{1,3}",
        "\"[0-9]{1,12} (B|KiB|MiB|GiB|TiB|ms|s|min|d|GiB/s)\"",
        "\"[a-z0-9,. -]{0,12}\"",
        Just("true".to_owned()),
        Just("[]".to_owned()),
        Just("[[10, 20], [20, 10]]".to_owned()),
        Just("{ a = 1 }".to_owned()),
        Just("\"bind 0,1\"".to_owned()),
        Just("\"linux-6.12+mglru\"".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn mutated_text_never_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..40, "[a-z0-9\\[\\]\\{\\}=.\",# \n-]{0,8}"), 1..6)
    ) {
        let mut text = TWO_NODES.to_owned();
        for (at, cut, put) in edits {
            let at = at.index(text.len());
            let end = (at + cut).min(text.len());
            text.replace_range(at..end, &put);
        }
        if let Err(errors) = Scenario::parse(&text, "s.toml") {
            prop_assert!(errors.iter().count() > 0);
            prop_assert!(errors.iter().all(|error| !error.message().is_empty() && error.position().is_some()));
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn any_value_at_any_key_is_accepted_or_refused(line in any::<prop::sample::Index>(), value in value()) {
        let mut lines: Vec<String> = TWO_NODES.lines().map(str::to_owned).collect();
        let keys: Vec<usize> =
            lines.iter().enumerate().filter(|(_, line)| line.contains(" = ")).map(|(at, _)| at).collect();
        let at = keys[line.index(keys.len())];
        let key = lines[at].split(" = ").next().unwrap().to_owned();
        lines[at] = format!("{key} = {value}");
        match Scenario::parse(&lines.join("\n"), "s.toml") {
            Err(errors) => {
                let of_that_line = errors.iter().any(|error| error.position().is_some_and(|(line, _)| line == at + 1));
                // What one value makes impossible may be said where another is, but never nowhere.
                prop_assert!(of_that_line || errors.iter().all(|error| !error.key().is_empty()), "{errors}");
            }
            Ok(scenario) => {
                for case in scenario.cases(None).unwrap() {
                    let text = case.to_toml();
                    let again = Scenario::parse(&text, "again.toml").map_err(|e| TestCaseError::fail(e.to_string()))?;
                    prop_assert_eq!(again.cases(None).unwrap()[0].to_toml(), text);
                }
            }
        }
    }

    #[test]
    fn any_override_is_accepted_or_refused(key in "(machine|actor|actor\\.copy|tuning|vm|sweep|measure|file)\\.[a-z.]{0,12}|[a-z]{1,10}", value in value()) {
        let scenario = Scenario::parse(TWO_NODES, "s.toml").unwrap();
        if let Err(errors) = scenario.with(&[(&key, &value)]) {
            prop_assert!(errors.to_string().contains(&format!("--set {key}=")), "{errors}");
        }
    }
}

#[test]
fn the_keys_of_a_case_are_those_that_a_variant_writes() {
    let text = "title = 't'\nduration = '9 s'\n[machine]\ngeneration = 'linux-6.1'\ncpus = 1\nnodes = ['1 GiB']\n\
                [tuning]\n'vm.swappiness' = 10\n[[file]]\nname = 'data'\nsize = '1 GiB'\n\
                [[actor]]\nname = 'app'\nkind = 'app-server'\nheap = '1 MiB'\nlocality = { zipf = 0.5 }\n\
                [[variant]]\nname = 'v'\n'vm.swappiness' = 20\nactor.app.heap = '2 MiB'\n";
    let cases = Scenario::parse(text, "s.toml").unwrap().cases(None).unwrap();
    let keys = [cases[0].keys(), cases[1].keys()];
    for (key, value) in [
        ("generation", "\"linux-6.1\""),
        ("machine.nodes", "[\"1 GiB\"]"),
        ("file.data.size", "\"1 GiB\""),
        ("actor.app.locality.zipf", "0.5"),
    ] {
        assert_eq!(keys[0].get(key).map(String::as_str), Some(value), "{key}");
    }
    let different: Vec<&str> = keys[0]
        .iter()
        .filter(|(key, value)| keys[1].get(*key) != Some(value))
        .map(|(key, _)| key.as_str())
        .collect();
    assert_eq!(different, ["actor.app.heap", "vm.swappiness"]);
}

#[test]
fn an_override_counts_for_the_variants_that_are_asked_for() {
    let text = "title = 't'\nduration = '9 s'\n[machine]\ngeneration = 'linux-3.10'\ncpus = 1\nnodes = ['1 GiB']\n\
                [[actor]]\nname = 'app'\nkind = 'app-server'\nheap = '1 MiB'\n\
                [[variant]]\nname = 'limit'\n'vm.pagecache_limit_mb' = 512\n[[variant]]\nname = 'other'\n";
    let scenario = Scenario::parse(text, "s.toml").unwrap();
    let newer = [("generation", "linux-6.1")];
    assert!(scenario.with(&newer).unwrap_err().to_string().contains("in variant \"limit\""));
    let asked = ["other".to_owned()];
    let cases = scenario.with_for(&newer, Some(&asked)).unwrap().cases(Some(&asked)).unwrap();
    assert_eq!(cases.len(), 1);
    assert!(scenario.with_for(&newer, Some(&["limit".to_owned()])).is_err());
}

#[test]
fn the_disks_of_a_virtual_machine_let_a_tenth_of_a_second_pass_at_once() {
    let burst = |swap: &str, measured_latency| {
        let text = format!(
            "title = \"t\"\nduration = \"1 s\"\n[machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"1 GiB\"]\nswap = {{ {swap} }}\n\
             [[actor]]\nname = \"reader\"\nkind = \"file-reader\"\nsize = \"1 MiB\"\n"
        );
        let mut machine = cases(&text)[0].machine.clone();
        machine.take(Conditions { measured_latency, ..Conditions::default() }, None);
        [machine.disk.burst, machine.swap.burst].map(|burst| burst.ns() / 1_000_000)
    };
    let own = "size = \"1 GiB\", on = \"own\", latency = \"1 ms\", bandwidth = \"9 MiB/s\"";
    assert_eq!(burst(own, true), [100, 100]);
    assert_eq!(burst("size = \"1 GiB\", on = \"disk\"", true), [100, 0]);
    assert_eq!(burst(own, false), [0, 0]);
}

#[test]
fn files_and_swap_of_a_run_on_a_host_were_on_the_host_s_disk() {
    let text = "title = \"t\"\nduration = \"1 s\"\n[machine]\ngeneration = \"linux-6.1\"\ncpus = 2\nnodes = [\"1 GiB\"]\n\
                disk = { latency = \"5 ms\", bandwidth = \"8 MiB/s\", iops = 9, rotational = true }\n\
                swap = { size = \"1 GiB\", on = \"own\", latency = \"1 ms\", bandwidth = \"9 MiB/s\" }\n\
                [[actor]]\nname = \"reader\"\nkind = \"file-reader\"\nsize = \"1 MiB\"\n";
    let mut machine = cases(text)[0].machine.clone();
    let as_written = machine.disk.clone();
    let told = || Conditions { measured_disk: true, ..Conditions::default() };
    machine.take(told(), None);
    assert_eq!(
        (machine.swap.on, machine.swap.latency, machine.swap.size),
        (SwapOn::Disk, None, Size::mib(1024))
    );
    assert_eq!(machine.disk, as_written);

    let measured = |median| Some(Measured { median, lower: median, upper: median, repetitions: 1 });
    let mut record = Record::default();
    (record.costs.submit, record.costs.wakeup) = (measured(2_000.0), measured(3_000.0));
    record.disk = Device { latency: measured(65_000.0), bandwidth: measured(1.5), iops: measured(777.7) };
    machine.take(told(), Some(&record));
    let disk = &machine.disk;
    assert_eq!((disk.latency.ns(), disk.bandwidth.0, disk.iops), (60_000, Bytes::kib(1536), Some(777)));
    assert!(disk.rotational, "the case says it");
}
